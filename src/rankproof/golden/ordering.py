"""The last stage of a golden set: rank each query's passages by asking judges to order batches.

`refinement` chooses the batches and decides when an order is certain enough; here batches become
requests, and replies orders of items. Replies of earlier builds count for the passages that are
still there, and a query that was finished with the same passages, judges and settings stays so.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from rankproof.foundation.manifest import digest
from rankproof.golden.annotators import Key
from rankproof.golden.judge_client import JudgeClient
from rankproof.golden.judgments import Reply, Row, group_rows
from rankproof.golden.refinement import Batch, Known, Part, Pool, Refinement
from rankproof.golden.requests import Request, make_request
from rankproof.golden.result import lock_rows, posterior_row
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store, sql_list

if TYPE_CHECKING:
    from rankproof.golden.building import Build


class Passage(NamedTuple):
    """A passage to be ranked, with its grade from 1 to 5; NaN where it has none."""

    doc: str
    text: str
    pair: str  # digest of question and text: a reply counts while it is the same
    rrf: float
    grade: float
    grade_sd: float  # 0: the grade is certain


@dataclass(slots=True)
class Subset:
    """A query and its passages to be ranked; an item is the index of one of them."""

    query: str
    question: str
    passages: list[Passage] = field(default_factory=list)
    known: Known | None = None  # orders that judges gave in earlier builds
    order_rows: list[Row] = field(default_factory=list)  # rows of the table `orders`
    times_shown: Counter[Batch] = field(default_factory=Counter)

    def pool(self) -> Pool:
        """What is known of the passages before their order is judged."""
        grades = [passage.grade for passage in self.passages]
        grade_sds = [passage.grade_sd for passage in self.passages]
        rrf = [passage.rrf for passage in self.passages]
        return Pool(grades, rrf, grade_sds if any(grade_sds) else None)


def rank_passages(
    build: Build,
    grade_estimates: Mapping[Key, tuple[float, float]],
    people_grades: Mapping[Key, int],
    mark_finished: Callable[[], None],
) -> None:
    """Ask for orders of each query's subset until they are certain enough; store the rankings.

    `grade_estimates` are mean and standard deviation of the judges' grades that are uncertain.
    `mark_finished` is called in the transaction that stores the rankings: if a killed process left
    one without the other, its replies would be taken for those of an earlier build.
    """
    settings, store = build.settings, build.store
    subsets = _read_subsets(store, grade_estimates, people_grades)
    max_calls = len(subsets) * settings.ranking.budget  # a query may be finished earlier
    with (
        build.prepared() as panel,
        build.clients(panel, "ordering (at most)", max_calls) as clients,
    ):
        judges = [build.judge_id(member.judge, "order") for member in panel]
        _read_known_orders(build, subsets, judges)
        pools, method = [subset.pool() for subset in subsets], settings.ranking.method
        known = {pool: s.known for pool, s in enumerate(subsets) if s.known is not None}
        refinement = Refinement(
            pools,
            settings.refinement,
            seed=settings.seed,
            method=method,
            known=known,
            judges=len(judges),
        )
        _run_rounds(build, clients, subsets, refinement)
    reasons = {s.query: str(reason) for s, reason in zip(subsets, refinement.done, strict=True)}
    tables = _result_tables(subsets, refinement)
    with store.transaction():
        for table, rows in tables.items():
            store.replace(table, rows)
        store.execute("DELETE FROM meta WHERE key = 'ordering'")
        _add_surprise(store, judges, refinement.surprise)
        if len(judges) > 1:
            build.store_reliability(judges, [{"sharpness": beta} for beta in refinement.sharpness])
        _store_finished(store, settings, judges, reasons)
        mark_finished()


def _read_subsets(
    store: Store,
    grade_estimates: Mapping[Key, tuple[float, float]],
    people_grades: Mapping[Key, int],
) -> list[Subset]:
    """Read the passages to be ranked; people's grades are certain and replace the judges'."""
    questions: dict[str, str] = dict(store.rows("SELECT query, text FROM queries"))
    subsets: dict[str, Subset] = {}
    for query, doc, judges_grade, rrf, text, pair in store.rows(
        "SELECT query, doc, grade, rrf, text, pair FROM subset "
        "LEFT JOIN grades USING (query, doc) JOIN pool USING (query, doc) "
        "JOIN pairs USING (query, doc) JOIN passages USING (doc) "
        "ORDER BY query, subset.position"
    ):
        grade, sd = math.nan if judges_grade is None else judges_grade, 0.0
        grade, sd = grade_estimates.get((query, doc), (grade, sd))
        if (query, doc) in people_grades:
            grade, sd = people_grades[query, doc], 0.0
        subset = subsets.setdefault(query, Subset(query, questions[query]))
        passage = Passage(doc=doc, text=text, pair=pair, rrf=rrf, grade=grade, grade_sd=sd)
        subset.passages.append(passage)
    return list(subsets.values())


def _run_rounds(
    build: Build, clients: Sequence[JudgeClient], subsets: list[Subset], refinement: Refinement
) -> None:
    """Ask for orders until `refinement` needs no more; add them to it and to the subsets' rows."""
    counted_replies = {reply_id for subset in subsets for *_, reply_id in subset.order_rows}
    round_number = 0
    while batches := refinement.next_round():
        round_number += 1
        requests = [_make_request(build, subsets[pool], batch) for pool, batch in batches]
        replies = _ask_judges(clients, refinement.judges_of_round(), requests)
        orders, part_orders = [], []
        numbers: Counter[str] = Counter()  # of replies in this round, by query
        for (pool, _), reply in zip(batches, replies, strict=True):
            subset = subsets[pool]
            # Two batches may have a half in common, whose reply counts once.
            new_parts = [part for part in reply.parts if part.id not in counted_replies]
            counted_replies |= {part.id for part in new_parts}
            _, order = _read_order(reply, subset)
            orders.append(order)
            part_orders.append([_read_order(part, subset) for part in new_parts])
            subset.times_shown.update(shown for shown, _ in part_orders[-1])
            for counted in (reply, *new_parts):
                numbers[subset.query] += 1
                number = numbers[subset.query]
                subset.order_rows.append((subset.query, round_number, number, counted.id))
        refinement.add(orders, part_orders)


def _make_request(build: Build, subset: Subset, batch: Batch) -> Request:
    """Make a request to order a batch; one that was shown before is asked again, as a repeat."""
    repeat = subset.times_shown[batch]
    subset.times_shown[batch] += 1
    return make_request(
        "order",
        build.prompts["order"],
        query=subset.query,
        question=subset.question,
        passages=[(subset.passages[item].doc, subset.passages[item].text) for item in batch],
        seed=build.settings.seed,
        repeat=repeat,
        shuffle=False,  # the refinement has shuffled the batch
        passage_chars=build.settings.passage_chars,
    )


def _ask_judges(
    clients: Sequence[JudgeClient], judge_of_request: Sequence[int], requests: Sequence[Request]
) -> list[Reply]:
    """Send each request to its judge; return the replies in the order of the requests."""
    replies: dict[int, Reply] = {}
    for judge, client in enumerate(clients):
        indexes = [index for index, other in enumerate(judge_of_request) if other == judge]
        if indexes:
            judge_replies = client.ask([requests[index] for index in indexes])
            replies |= dict(zip(indexes, judge_replies, strict=True))
    return [replies[index] for index in range(len(requests))]


def _read_order(reply: Reply, subset: Subset) -> Part:
    """The items that a judge was shown, and the order it put them in; None if it failed."""
    items = {passage.doc: item for item, passage in enumerate(subset.passages)}
    shown = tuple(items[doc] for doc in reply.documents)
    if not isinstance(reply.result, list):
        return shown, None
    return shown, tuple(items[doc] for doc in reply.result)


def _read_known_orders(build: Build, subsets: Sequence[Subset], judges: Sequence[int]) -> None:
    """Read what the judges said of each subset before this ordering began."""
    store, settings = build.store, build.settings
    replies = _earlier_replies(build, subsets, judges)
    offered = set(store.rows("SELECT judge, pair FROM offered"))
    reasons = {(query, key): reason for query, key, reason in store.rows("SELECT * FROM settled")}
    for subset in subsets:
        known = _replay(subset, replies.get(subset.query, []), judges)
        offers = [sum((judge, p.pair) in offered for p in subset.passages) for judge in judges]
        spent = _spent_calls(
            known.calls_by_judge, offers, len(subset.passages), settings.ranking.budget
        )
        pairs = {passage.pair for passage in subset.passages}
        reason = reasons.get((subset.query, _finished_key(settings, judges, pairs)))
        if sum(known.calls_by_judge) or reason:
            subset.known = replace(known, spent=spent, closed=reason)


def _earlier_replies(
    build: Build, subsets: Sequence[Subset], judges: Sequence[int]
) -> dict[str, list[Reply]]:
    """Return the final order replies that the store held when this ordering began, by query.

    Their ids are stored until the ordering ends, so that a killed process resumes the same rounds.
    """
    store = build.store
    pairs = {subset.query: sorted({p.pair for p in subset.passages}) for subset in subsets}
    ordering_digest = digest([build.digests()["rank"], _panel_key(judges), pairs])
    condition = f"kind = 'order' AND judge IN {sql_list(judges)} AND retired = 0"
    beginning = store.meta("ordering") or {}
    if beginning.get("of") != ordering_digest:
        rows = store.rows(f"SELECT id FROM replies WHERE {condition}")
        beginning = {"of": ordering_digest, "replies": [reply_id for (reply_id,) in rows]}
        store.set_meta("ordering", beginning)
    earlier_ids = set(beginning["replies"])
    replies: dict[str, list[Reply]] = {}
    for reply in store.replies(condition):
        if reply.id in earlier_ids and reply.final and reply.query in pairs:
            replies.setdefault(reply.query, []).append(reply)
    return replies


def _replay(subset: Subset, replies: Sequence[Reply], judges: Sequence[int]) -> Known:
    """Turn earlier replies into orders of the passages that are still there; add rows for them.

    Under Plackett–Luce the order of some items is the order of all with the others removed.
    """
    item_of_pair = {passage.pair: item for item, passage in enumerate(subset.passages)}
    orders: list[list[int]] = []
    judge_of_order: list[int] = []
    unjudgeable: list[int] = []
    calls = [0] * len(judges)
    for reply in replies:
        pairs = zip(reply.documents, reply.pairs, strict=False)
        items = {doc: item_of_pair[pair] for doc, pair in pairs if pair in item_of_pair}
        shown = tuple(items.values())
        if len(set(shown)) < min(2, len(reply.documents)):
            continue  # of several passages at most one is left, which has no order
        judge = judges.index(reply.judge)
        calls[judge] += 1
        subset.order_rows.append((subset.query, 0, sum(calls), reply.id))
        if len(shown) == len(reply.documents):
            subset.times_shown[shown] = max(subset.times_shown[shown], reply.repeat + 1)
        if isinstance(reply.result, list):
            ranked = [items[doc] for doc in reply.result if doc in items]
            orders.append(list(dict.fromkeys(ranked)))  # two documents may have the same text
            judge_of_order.append(judge)
        elif len(reply.documents) == 1:
            unjudgeable += shown
    failed = sum(calls) - len(orders)
    return Known(
        orders=orders,
        failed=failed,
        judge_of_order=judge_of_order,
        calls_by_judge=calls,
        unjudgeable=unjudgeable,
    )


def _spent_calls(calls: Sequence[int], offers: Sequence[int], passages: int, budget: int) -> int:
    """Earlier calls that count against a query's budget.

    A judge's calls count by the share of the passages that it was offered, so that new passages
    bring a budget with them. In a panel, no judge's calls count for more than its part of the
    budget, so that a judge that has just joined is asked, too.
    """
    if len(calls) > 1:
        share = -(-budget // len(calls))
        calls = [min(judge_calls, share) for judge_calls in calls]
    return sum(n * offered // passages for n, offered in zip(calls, offers, strict=True))


def _result_tables(subsets: Sequence[Subset], refinement: Refinement) -> dict[str, list[Row]]:
    """Rows of the tables that hold the rankings, by table."""
    tables: dict[str, list[Row]] = {"ranking": [], "refined": [], "posteriors": []}
    tables["orders"] = [row for subset in subsets for row in subset.order_rows]
    results = zip(subsets, refinement.done, refinement.rankings(), strict=True)
    for subset, reason, ranking in results:
        query, docs = subset.query, [passage.doc for passage in subset.passages]
        posterior = ranking.posterior
        columns = (posterior.mean, posterior.sd, ranking.low, ranking.high, ranking.top)
        for rank, item in enumerate(ranking.order.tolist(), 1):
            values = [column[item].item() for column in columns]
            tables["ranking"].append((query, docs[item], rank, *values))
        locks = lock_rows(docs, ranking.locks(), posterior.certainty())
        counts = (ranking.calls, ranking.failed, ranking.overlap)
        tables["refined"].append((query, reason, *counts, json.dumps(locks, ensure_ascii=False)))
        tables["posteriors"].append(posterior_row(query, docs, posterior.covariance))
    return tables


def _add_surprise(store: Store, judges: Sequence[int], surprise: list[tuple[int, float]]) -> None:
    """Add the surprise of each reply to its judge's total and count, which `health` reads."""
    totals = store.meta("surprise") or {}
    for judge, value in surprise:
        total, count = totals.get(str(judges[judge]), (0.0, 0))
        totals[str(judges[judge])] = [total + value, count + 1]
    store.set_meta("surprise", totals)


def _store_finished(
    store: Store, settings: GoldenSettings, judges: Sequence[int], reasons: Mapping[str, str]
) -> None:
    """Store why and of which passages each query's order is finished; inside a transaction."""
    rows = group_rows(store.rows("SELECT query, pair FROM subset JOIN pairs USING (query, doc)"))
    finished, offered = [], []
    for query, reason in reasons.items():
        pairs = [pair for (pair,) in rows.get(query, [])]
        finished.append((query, _finished_key(settings, judges, pairs), reason))
        offered += [(judge, pair) for judge in judges for pair in pairs]
    store.execute_many("INSERT OR REPLACE INTO settled VALUES (?, ?, ?)", finished)
    store.execute_many("INSERT OR IGNORE INTO offered VALUES (?, ?)", offered)


def _finished_key(settings: GoldenSettings, judges: Sequence[int], pairs: Iterable[str]) -> str:
    """Digest of all that decides whether a query's order is finished."""
    decisive_settings = [asdict(settings.refinement), settings.ranking.method]
    return digest([_panel_key(judges), sorted(pairs), decisive_settings])


def _panel_key(judges: Sequence[int]) -> int | list[int]:
    """The judges' ids as digests hold them: a single judge without a list."""
    return judges[0] if len(judges) == 1 else list(judges)
