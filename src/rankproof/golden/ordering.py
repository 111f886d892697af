"""The last stage of a golden set: the judge puts small batches in order until that is enough.

What it said before counts, of passages that are still there; what is finished is not opened again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from rankproof.foundation.manifest import digest
from rankproof.golden.annotators import Key
from rankproof.golden.judgments import Reply, Row, grouped
from rankproof.golden.request_runner import Asker
from rankproof.golden.requests import Request, make_request
from rankproof.golden.result import posterior_row
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store

if TYPE_CHECKING:
    from rankproof.golden.building import Build
    from rankproof.golden.refinement import Known, Part


def put_in_order(
    build: Build,
    sure: Mapping[Key, tuple[float, float]],
    people: Mapping[Key, int],
    finish: Callable[[], None],
) -> None:
    """Ask for orders of each query's subset until they are enough, and keep what they say.

    `sure` are mean and standard deviation of the grades that are not, `people` those of people.
    `finish` notes that it is done, with the last write: were we killed between the two, what was
    just said would be taken for what was known before, and the figures would be others.
    """
    from rankproof.golden.refinement import Pool, Refinement, reduced

    settings, store = build.settings, build.store
    found = grouped(
        [
            (query, doc, people.get((query, doc), grade), rrf, text, what)
            for query, doc, grade, rrf, text, what in store.rows(
                "SELECT query, doc, grade, rrf, text, pair FROM subset "
                "LEFT JOIN grades USING (query, doc) JOIN pool USING (query, doc) "
                "JOIN pairs USING (query, doc) JOIN passages USING (doc) "
                "ORDER BY query, subset.position"
            )
        ]
    )
    names = list(found)
    asked: dict[str, str] = dict(store.rows("SELECT query, text FROM queries"))
    pools = []
    for query, rows in found.items():
        said = [
            (row[1], 0.0) if (query, row[0]) in people else sure.get((query, row[0]), (row[1], 0.0))
            for row in rows
        ]
        doubt = [sd for _, sd in said] if any(sd for _, sd in said) else None
        pools.append(Pool([mean for mean, _ in said], [row[2] for row in rows], doubt))
    orders: list[Row] = []
    shown: Counter[tuple[int, tuple[int, ...]]] = Counter()
    # A query may end before its budget does: the time left is an upper bound.
    most = len(names) * settings.ranking.budget
    with build.prepared() as panel, build.askers(panel, "ordering (at most)", most) as askers:
        who = [build.number(each.judge, "order") for each in panel]
        known = _known_orders(build, found, who, orders, shown)
        refinement = Refinement(
            *(pools, settings.refinement, settings.seed, settings.ranking.method, known),
            judges=len(panel),
        )
        count = 0
        counted = {row[3] for row in orders}
        while batches := refinement.next_round():
            requests = []
            for at, batch in batches:
                rows = found[names[at]]
                passages = [(rows[item][0], rows[item][3]) for item in batch]
                requests.append(
                    _order_request(build, names[at], asked[names[at]], passages, shown[at, batch])
                )
                shown[at, batch] += 1
            replies = _dealt(askers, refinement.asked(), requests)
            given: list[list[Part]] = []
            made: list[Reply] = []
            for (at, _), reply in zip(batches, replies, strict=True):
                place = {row[0]: item for item, row in enumerate(found[names[at]])}
                # Two batches may have a part in common: it was asked for once.
                parts = [each for each in reply.parts if each.id not in counted]
                counted |= {each.id for each in parts}
                made += [reply, *parts]
                given.append([_items(place, each) for each in (reply, *parts)])
                shown.update((at, items) for items, _ in given[-1][1:])
            refinement.add([said[0][1] for said in given], [said[1:] for said in given])
            count += 1
            orders += _numbered(count, made)
    ranking: list[Row] = []
    refined: list[Row] = []
    posteriors: list[Row] = []
    for query, reason, result in zip(names, refinement.done, refinement.rankings(), strict=True):
        docs = [row[0] for row in found[query]]
        mean = result.posterior.mean
        sd = np.sqrt(np.diag(result.posterior.covariance))
        for rank, item in enumerate(result.order.tolist(), 1):
            figures = (mean[item], sd[item], result.low[item], result.high[item])
            ranking.append(
                (query, docs[item], rank, *(x.item() for x in figures), result.top[item].item())
            )
        posteriors.append(posterior_row(query, docs, result.posterior.covariance))
        certainty = result.posterior.certainty()
        locked = [
            [docs[i], docs[j], round(float(certainty[i, j]), 6)]
            for i, j in np.argwhere(reduced(result.locks())).tolist()
        ]
        refined.append(
            (
                query,
                reason,
                result.calls,
                result.failed,
                result.overlap,
                json.dumps(locked, ensure_ascii=False),
            )
        )
    with store.transaction():
        store.replace("orders", orders)
        store.replace("ranking", ranking)
        store.replace("refined", refined)
        store.replace("posteriors", posteriors)
        store.execute("DELETE FROM meta WHERE key = 'ordering'")
        seen = store.meta("surprise") or {}
        for judge, value in refinement.surprise:
            total, count = seen.get(str(who[judge]), (0.0, 0))
            seen[str(who[judge])] = [total + value, count + 1]
        store.set_meta("surprise", seen)
        if len(who) > 1:
            build.measured(who, [{"sharpness": beta} for beta in refinement.sharpness])
        settle(store, settings, who, dict(zip(names, map(str, refinement.done), strict=True)))
        finish()


def _known_orders(
    build: Build,
    found: dict[str, list[Row]],
    who: Sequence[int],
    orders: list[Row],
    shown: Counter[tuple[int, tuple[int, ...]]],
) -> dict[int, Known]:
    """What the judge said of each pool before this ordering began, of those passages that are
    still in it: under Plackett–Luce the order of some is the order of all with the rest left
    out.

    What it was is fixed when the ordering begins and kept until it ends: a process that was
    killed goes on with the rounds that it would have asked.
    """
    from rankproof.golden.refinement import Known

    store, settings = build.store, build.settings
    pairs = {query: {row[4]: at for at, row in enumerate(rows)} for query, rows in found.items()}
    begun = digest([build.digests()["rank"], _one(who), {q: sorted(p) for q, p in pairs.items()}])
    held = store.meta("ordering") or {}
    given = f"kind = 'order' AND judge IN ({', '.join(map(str, who))}) AND retired = 0"
    if held.get("of") != begun:
        every = store.rows(f"SELECT id FROM replies WHERE {given}")
        held = {"of": begun, "replies": [number for (number,) in every]}
        store.set_meta("ordering", held)
    before = set(held["replies"])
    said: dict[str, list[Reply]] = {}
    for reply in store.replies(given):
        if reply.id in before and reply.final and reply.query in found:
            said.setdefault(reply.query, []).append(reply)
    offered = set(store.rows("SELECT judge, pair FROM offered"))
    closed = {(q, key): reason for q, key, reason in store.rows("SELECT * FROM settled")}
    known: dict[int, Known] = {}
    for at, (query, rows) in enumerate(found.items()):
        place = pairs[query]
        order: list[list[int]] = []
        by: list[int] = []
        turns = [0] * len(who)
        failed, mute = 0, list[int]()
        for reply in said.get(query, []):
            items = dict(zip(reply.documents, (place.get(p) for p in reply.pairs), strict=False))
            kept = [item for item in items.values() if item is not None]
            if len(set(kept)) < min(2, len(reply.documents)):
                continue
            orders.append((query, 0, len(order) + failed + 1, reply.id))
            turns[who.index(reply.judge)] += 1
            if len(kept) == len(reply.documents):  # shown again, it would be a repeat
                batch = at, tuple(kept)
                shown[batch] = max(shown[batch], reply.repeat + 1)
            if not isinstance(reply.result, list):
                failed += 1
                mute += kept if len(reply.documents) == 1 else []
                continue
            ranked = [items[doc] for doc in reply.result]
            order.append(list(dict.fromkeys(item for item in ranked if item is not None)))
            by.append(who.index(reply.judge))
        # What was said of passages that are still there is spent; but who joined a panel has
        # a share of the budget, though the others have spent it all.
        share = -(-settings.ranking.budget // len(who))
        spent = 0
        for judge, calls in zip(who, turns, strict=True):
            old = sum((judge, row[4]) in offered for row in rows)
            spent += min(calls, share if len(who) > 1 else calls) * old // len(rows)
        reason = closed.get((query, _settled_key(settings, who, list(place))))
        if sum(turns) or reason:
            known[at] = Known(order, failed, spent, reason, by, turns, mute)
    return known


def _settled_key(settings: GoldenSettings, who: Sequence[int], pairs: Sequence[str]) -> str:
    """All that decides whether a pool's order is finished."""
    asked = [asdict(settings.refinement), settings.ranking.method]
    return digest([_one(who), sorted(pairs), asked])


def settle(
    store: Store, settings: GoldenSettings, who: Sequence[int], reasons: dict[str, str]
) -> None:
    """Note which orders are finished, and of which passages; inside a transaction."""
    rows = grouped(store.rows("SELECT query, pair FROM subset JOIN pairs USING (query, doc)"))
    finished, offered = [], []
    for query, reason in reasons.items():
        pairs = [what for (what,) in rows.get(query, [])]
        finished.append((query, _settled_key(settings, who, pairs), reason))
        offered += [(judge, what) for judge in who for what in pairs]
    store.execute_many("INSERT OR REPLACE INTO settled VALUES (?, ?, ?)", finished)
    store.execute_many("INSERT OR IGNORE INTO offered VALUES (?, ?)", offered)


def _order_request(
    build: Build, query: str, question: str, passages: Sequence[tuple[str, str]], repeat: int
) -> Request:
    # The refinement shuffles its batches itself. A small pool runs out of orders to show: the
    # same one is a repeat, so that it is answered anew and not counted twice.
    return make_request(
        *("order", build.prompts["order"], query, question, passages),
        seed=build.settings.seed,
        repeat=repeat,
        shuffle=False,
        passage_chars=build.settings.passage_chars,
    )


def _one(judges: Sequence[int]) -> int | list[int]:
    """A judge who judges alone is known by its number."""
    return judges[0] if len(judges) == 1 else list(judges)


def _dealt(
    askers: Sequence[Asker], whose: Sequence[int], requests: Sequence[Request]
) -> list[Reply]:
    """Each request put to its judge; replies in the order of the requests."""
    found: dict[int, Reply] = {}
    for judge, asker in enumerate(askers):
        mine = [at for at, who in enumerate(whose) if who == judge]
        if mine:
            replies = asker.ask([requests[at] for at in mine])
            found |= dict(zip(mine, replies, strict=True))
    return [found[at] for at in range(len(requests))]


def _items(place: Mapping[str, int], reply: Reply) -> Part:
    """What was shown, and the order given, as places in the pool; None where the judge failed."""
    asked = tuple(place[doc] for doc in reply.documents)
    if not isinstance(reply.result, list):
        return asked, None
    return asked, tuple(place[doc] for doc in reply.result)


def _numbered(count: int, replies: Sequence[Reply]) -> list[Row]:
    """(query, round, batch, reply) of one round."""
    batch: dict[str, int] = {}
    rows: list[Row] = []
    for reply in replies:
        batch[reply.query] = batch.get(reply.query, 0) + 1
        rows.append((reply.query, count, batch[reply.query], reply.id))
    return rows
