"""What the page asks for besides its queries: evidence for a grade, recent labels, agreement."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rankproof.data.tables import SET_SCALE
from rankproof.foundation.errors import InputError
from rankproof.golden.annotators import (
    JUDGE,
    Key,
    agreement_items,
    labels_by_person,
    people_alpha,
    people_grades,
)
from rankproof.golden.judgments import Reply, undone_ids
from rankproof.golden.requests import letter_label
from rankproof.golden.store import Store, sql_list
from rankproof.golden.viewer.desk import Seat
from rankproof.golden.viewer.index import Index
from rankproof.presentation.json_values import plain_fields
from rankproof.statistics.agreement import agreement

if TYPE_CHECKING:
    from rankproof.data.tables import Run
    from rankproof.measures.registry import Measure

_MAX_SOURCES = 200  # in a menu; others can be searched by name
_RECENT_LABELS = 20


def evidence(store: Store, seat: Seat, query: str, doc: str) -> dict[str, Any]:
    """What a passage's grade and rank rest on: the judge's replies, and people's corrections.

    The blind see only replies about passages that they have graded.
    """
    corrections = [
        correction
        for correction in store.corrections(query)
        if correction.doc == doc and (seat.settles or correction.who == seat.who)
    ]
    judges = sql_list(store.current_judges("grade"))
    grading = store.replies(
        "id IN (SELECT reply FROM pairs JOIN answers USING (pair) "
        f"WHERE pairs.query = ? AND pairs.doc = ? AND answers.judge IN {judges})",
        (query, doc),
    )
    orders = [reply for reply in _order_replies(store, query) if doc in reply.documents]
    hidden = 0
    if seat.blind:
        graded = _graded_documents(store, seat, query)
        if doc not in graded:
            raise InputError("the judge is hidden", remedy="grade the passage first")
        total = len(grading) + len(orders)
        grading = [reply for reply in grading if graded.issuperset(reply.documents)]
        orders = [reply for reply in orders if graded.issuperset(reply.documents)]
        hidden = total - len(grading) - len(orders)
    undone = undone_ids(corrections)
    members = (store.meta("judge") or {}).get("members", [])
    names = {number: m["name"] for m in members for number in m["numbers"].values()}
    return {
        "grade": [_reply_item(reply, names) for reply in grading],
        "orders": [_reply_item(reply, names) for reply in orders],
        "hidden": hidden,
        "history": [
            asdict(correction)
            | {"undone": correction.id in undone, "mine": correction.who == seat.who}
            for correction in corrections
        ],
    }


def _graded_documents(store: Store, seat: Seat, query: str) -> set[str]:
    """Passages of a query that this person graded."""
    labels = labels_by_person(store.active_corrections(query))
    return {
        doc
        for (_, doc), by_person in labels.items()
        if seat.who in by_person and by_person[seat.who].new is not None
    }


def recent_labels(index: Index) -> list[dict[str, Any]]:
    """One's own last corrections that count, newest first; of each label only the last."""
    store = index.store
    corrections = [c for c in index.active_corrections() if c.who == index.seat.who]
    corrections.sort(key=lambda c: c.id)
    last = {(c.query, c.doc, c.settles) if c.field == "grade" else c.id: c for c in corrections}
    recent = sorted(last.values(), key=lambda c: c.id)[-_RECENT_LABELS:]
    questions: dict[str, str] = dict(store.rows("SELECT query, text FROM queries"))
    texts: dict[str, str] = dict(
        store.rows(
            "SELECT doc, text FROM json_each(?) JOIN passages ON doc = value",
            (json.dumps([c.doc for c in recent]),),
        )
    )
    return [
        index.correction_for_author(c)
        | {"question": questions.get(c.query, ""), "text": texts.get(c.doc, "")[:300]}
        for c in reversed(recent)
    ]


def compared_pair(store: Store, query: str, first: str, second: str) -> dict[str, int]:
    """How often the judge saw both passages in one call, and put the first before the second."""
    orders = [
        reply.result
        for reply in _order_replies(store, query)
        if isinstance(reply.result, list) and first in reply.result and second in reply.result
    ]
    first_wins = sum(order.index(first) < order.index(second) for order in orders)
    return {"together": len(orders), "first": first_wins}


def comparison_holes(store: Store, runs: Sequence[Run], measure: Measure) -> dict[Key, float]:
    """How far a person's grade of each pooled passage could move a comparison of runs.

    Computed as in `rankproof holes`, with people's grades as the only judgments: the passages that
    no person graded are the unjudged documents.
    """
    from rankproof.data import read_qrels
    from rankproof.evaluation import Policy
    from rankproof.unjudged.bounds import WorstCases
    from rankproof.unjudged.judging_order import judge_next

    # Queries without judgments would be skipped, so each has one of a document outside all runs.
    lowest = 1 if measure.definition.grades else 0
    grades: dict[str, dict[str, int]] = {
        query: {"no run holds this": lowest} for (query,) in store.rows("SELECT query FROM queries")
    }
    for (query, doc), label in people_grades(store.active_corrections()).items():
        grades.setdefault(query, {})[doc] = label.grade
    view = WorstCases(runs, read_qrels(grades), Policy(), scale=SET_SCALE.highest)
    view.check([measure])
    pooled = set(store.rows("SELECT query, doc FROM pool"))
    rows = judge_next(view, measure).iter_rows()
    return {(query, doc): effect for query, doc, effect in rows if (query, doc) in pooled}


def sources(store: Store) -> list[list[Any]]:
    """(name, passages) of the most frequent sources, by name."""
    rows = store.rows(
        "SELECT source, COUNT(*) FROM passages WHERE source NOT NULL "
        "GROUP BY source ORDER BY 2 DESC, 1 LIMIT ?",
        (_MAX_SOURCES,),
    )
    return [list(row) for row in sorted(rows)]


def live_agreement(index: Index) -> dict[str, Any]:
    """Agreement of the judge with people so far; who settles also sees each person's."""
    grades = [
        (p.query, p.judged, p.grade)
        for pool in index.refresh().values()
        for p in pool
        if p.validated and p.judged is not None and p.grade is not None
    ]
    people = _people_agreement(index) if index.seat.settles else []
    if not grades:
        empty: dict[str, Any] = {"pairs": 0, "coefficients": {}, "levels": [], "confusion": []}
        return empty | {"people": people}
    queries, judge, person = zip(*grades, strict=True)
    result = agreement(judge, person, queries=queries)
    changed = sum(judged != grade for _, judged, grade in grades)
    return {"pairs": len(grades), "changed": changed, **result.to_dict(), "people": people}


def _people_agreement(index: Index) -> list[dict[str, Any]]:
    """Agreement of every two people, of each person with the judge, and of all people."""
    judged = {(p.query, p.doc): p.judged for pool in index.refresh().values() for p in pool}
    corrections = index.active_corrections()
    items = agreement_items(corrections, {JUDGE: judged})
    alpha = people_alpha(corrections)
    if alpha is not None:
        items.append({"who": "all", "with": "all", "figures": {alpha.name: alpha.to_dict()}})
    return items


def _order_replies(store: Store, query: str) -> list[Reply]:
    """The replies that the order of a query rests on."""
    return store.replies("id IN (SELECT reply FROM orders WHERE query = ?)", (query,))


def _reply_item(reply: Reply, names: Mapping[int, str]) -> dict[str, Any]:
    """A reply as the page shows it; labels say which passage is meant."""
    return {
        **plain_fields(reply, "text", "failure"),
        "labels": [[letter_label(index), doc] for index, doc in enumerate(reply.documents)],
        "result": reply.result,
        "model": ": ".join(filter(None, [names.get(reply.judge), reply.model])),
        "attempt": reply.attempt,
        "tokens": [reply.tokens_in, reply.tokens_out],
        **plain_fields(reply, "cost", "seconds", "at"),
    }
