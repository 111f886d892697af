"""What the page asks beside its questions: what a grade rests on, one's last words, agreement."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rankproof.data.tables import SET_SCALE
from rankproof.foundation.errors import InputError
from rankproof.golden.annotators import (
    JUDGE,
    PAIR_COEFFICIENTS,
    Key,
    labels_by_person,
    pairwise_agreement,
    people_alpha,
    people_grades,
)
from rankproof.golden.judgments import Reply, undone_ids
from rankproof.golden.requests import letter_label
from rankproof.golden.store import Store
from rankproof.golden.viewer.desk import Seat
from rankproof.golden.viewer.index import Index
from rankproof.presentation.json_values import told
from rankproof.statistics.agreement import agreement

if TYPE_CHECKING:
    from rankproof.data.tables import Run
    from rankproof.measures import Measure

SOURCES = 200  # more are no choice for a menu; the search finds them by name
LAST = 20  # of one's own changes, to look at again


def evidence(store: Store, seat: Seat, query: str, doc: str) -> dict[str, Any]:
    """What a passage's grade and rank rest on: the judge's words, and what people changed.

    Who is blind is told the words that speak of passages they graded, and of no other.
    """
    every = [
        each
        for each in store.corrections(query)
        if each.doc == doc and (seat.settles or each.who == seat.who)
    ]
    said = labels_by_person(store.active_corrections(query)) if seat.blind else {}
    graded = {d for (_, d), by in said.items() if seat.who in by and by[seat.who].new is not None}
    if seat.blind and doc not in graded:
        raise InputError("the judge is hidden", remedy="grade the passage first")
    judges = ", ".join(map(str, store.current_judges("grade")))
    grade = store.replies(
        "id IN (SELECT reply FROM pairs JOIN answers USING (pair) "
        f"WHERE pairs.query = ? AND pairs.doc = ? AND answers.judge IN ({judges}))",
        (query, doc),
    )
    orders = [reply for reply in _orders(store, query) if doc in reply.documents]
    hidden = 0
    if seat.blind:
        told = [[r for r in each if graded.issuperset(r.documents)] for each in (grade, orders)]
        hidden = len(grade) + len(orders) - sum(map(len, told))
        grade, orders = told
    gone = undone_ids(every)
    panel = (store.meta("judge") or {}).get("members", [])
    names = {number: each["name"] for each in panel for number in each["numbers"].values()}
    return {
        "grade": [_told(reply, names) for reply in grade],
        "orders": [_told(reply, names) for reply in orders],
        "hidden": hidden,
        "history": [
            asdict(each) | {"undone": each.id in gone, "mine": each.who == seat.who}
            for each in every
        ],
    }


def recent(index: Index) -> list[dict[str, Any]]:
    """One's own last twenty words that hold, newest first; of a passage's label the last alone."""
    store = index.store
    own = sorted((c for c in index.active() if c.who == index.seat.who), key=lambda c: c.id)
    last = {(c.query, c.doc, c.settles) if c.field == "grade" else c.id: c for c in own}
    mine = sorted(last.values(), key=lambda c: c.id)[-LAST:]
    asked: dict[str, str] = dict(store.rows("SELECT query, text FROM queries"))
    texts: dict[str, str] = dict(
        store.rows(
            "SELECT doc, text FROM json_each(?) JOIN passages ON doc = value",
            (json.dumps([c.doc for c in mine]),),
        )
    )
    return [
        index.told(c) | {"question": asked.get(c.query, ""), "text": texts.get(c.doc, "")[:300]}
        for c in reversed(mine)
    ]


def pair(store: Store, query: str, first: str, second: str) -> dict[str, int]:
    """How often the judge saw both passages in one call, and put the first before the second."""
    both = [
        reply.result
        for reply in _orders(store, query)
        if isinstance(reply.result, list) and first in reply.result and second in reply.result
    ]
    return {
        "together": len(both),
        "first": sum(order.index(first) < order.index(second) for order in both),
    }


def comparison_holes(store: Store, runs: Sequence[Run], measure: Measure) -> dict[Key, float]:
    """Passages of the pools that no person graded, by how far a grade could move a comparison.

    Holes as `rankproof holes` knows them, with people's grades as all that is known.
    """
    from rankproof.data import read_qrels
    from rankproof.evaluation import Policy
    from rankproof.unjudged.bounds import View
    from rankproof.unjudged.judging_order import judge_next

    # A query that nobody labelled has a judgement, too, of a passage that no run can hold.
    least = 1 if measure.definition.grades else 0
    known: dict[str, dict[str, int]] = {
        query: {"no run holds this": least} for (query,) in store.rows("SELECT query FROM queries")
    }
    for (query, doc), each in people_grades(store.active_corrections()).items():
        known.setdefault(query, {})[doc] = each.grade
    view = View(runs, read_qrels(known), Policy(), scale=SET_SCALE.highest)
    view.check([measure])
    pooled = set(store.rows("SELECT query, doc FROM pool"))
    rows = judge_next(view, measure).iter_rows()
    return {(query, doc): effect for query, doc, effect in rows if (query, doc) in pooled}


def sources(store: Store) -> list[list[Any]]:
    """(name, passages) of the most frequent sources."""
    rows = store.rows(
        "SELECT source, COUNT(*) FROM passages WHERE source NOT NULL "
        "GROUP BY source ORDER BY 2 DESC, 1 LIMIT ?",
        (SOURCES,),
    )
    return [list(row) for row in sorted(rows)]


def live_agreement(index: Index) -> dict[str, Any]:
    """The judge beside people, over what they validated so far; who settles sees each person."""
    pairs = [
        (p.query, p.judged, p.grade)
        for found in index.fresh().values()
        for p in found
        if p.validated and p.judged is not None and p.grade is not None
    ]
    people = _between(index) if index.seat.settles else []
    if not pairs:
        empty: dict[str, Any] = {"pairs": 0, "coefficients": {}, "levels": [], "confusion": []}
        return empty | {"people": people}
    queries, judge, person = zip(*pairs, strict=True)
    found = agreement(judge, person, queries=queries)
    changed = sum(j != g for _, j, g in pairs)
    return {"pairs": len(pairs), "changed": changed, **found.to_dict(), "people": people}


def _between(index: Index) -> list[dict[str, Any]]:
    """Every two people, each person and the judge, and all people together."""
    judged = {(p.query, p.doc): p.judged for found in index.fresh().values() for p in found}
    active = index.active()
    told = []
    for one, other, found in pairwise_agreement(active, {JUDGE: judged}):
        figures = {name: found.coefficients[name].to_dict() for name in PAIR_COEFFICIENTS}
        told.append({"who": one, "with": other, "figures": figures})
    alpha = people_alpha(active)
    if alpha is not None:
        told.append({"who": "all", "with": "all", "figures": {alpha.name: alpha.to_dict()}})
    return told


def _orders(store: Store, query: str) -> list[Reply]:
    """The replies that the order of a question rests on."""
    return store.replies("id IN (SELECT reply FROM orders WHERE query = ?)", (query,))


def _told(reply: Reply, names: Mapping[int, str]) -> dict[str, Any]:
    """A reply as the page shows it, of a panel by whom; labels say which passage is meant."""
    return {
        **told(reply, "text", "failure"),
        "labels": [[letter_label(at), doc] for at, doc in enumerate(reply.documents)],
        "result": reply.result,
        "model": ": ".join(filter(None, [names.get(reply.judge), reply.model])),
        "attempt": reply.attempt,
        "tokens": [reply.tokens_in, reply.tokens_out],
        **told(reply, "cost", "seconds", "at"),
    }
