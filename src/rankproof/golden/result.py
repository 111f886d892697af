"""A golden set as it is shown and exported: pools with grades and ranks, corrections applied."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Bool, Float
from rankproof.foundation.errors import InputError
from rankproof.golden.annotators import JUDGE, Key, PeopleGrade, order_claims, people_grades
from rankproof.golden.constrained import ConstrainedRanking, consistent_claims, constrain
from rankproof.golden.judgments import Correction
from rankproof.golden.plackett_luce import Posterior
from rankproof.golden.pruning import prune
from rankproof.golden.refinement import RefineSettings, transitive_reduction
from rankproof.golden.settings import PruningSettings
from rankproof.golden.store import Store, of_query

_LOCK_CERTAINTY = 0.95  # from which a pair counts as locked


@dataclass(frozen=True, slots=True)
class GoldenPassage:
    """A passage of a query's pool. `grade` and `rank` are final; `judged` is the judge's grade."""

    doc: str
    text: str
    source: str | None
    rrf: float
    grade: int | None  # None: the judge failed, and nobody corrected it
    judged: int | None
    failure: str | None
    rank: int | None  # None: it is not in the order
    judged_rank: int | None
    mean: float | None
    sd: float | None
    low: int | None  # 95% interval of the rank, given people's corrections
    high: int | None
    top: float | None = None  # P(it is truly in the top)
    corrections: tuple[Correction, ...] = ()  # active ones
    systems: tuple[str, ...] = ()  # whose lists brought it into the pool
    validated: bool = False  # a person graded it, even if as the judge did
    votes: Mapping[str, int] = field(default_factory=dict)  # grades of a panel's judges, by name

    @property
    def people(self) -> int | None:
        """People's grade, independent of the judge's; None if nobody graded it."""
        grades = people_grades(self.corrections).values()
        return next((grade.grade for grade in grades), None)

    @property
    def corrected(self) -> bool:
        """True if a person gave it another grade than the judge, or moved it."""
        is_moved = any(c.field == "rank" for c in self.corrections)
        return is_moved or (self.validated and self.grade != self.judged)


@dataclass(frozen=True, slots=True)
class GoldenQuery:
    """A query and its passages: those in the order first, then the others by grade and RRF."""

    query: str
    text: str
    asked: str
    passages: list[GoldenPassage]
    reason: str | None = None  # why its refinement ended
    calls: int = 0
    failed: int = 0  # of the calls
    overlap: float | None = None  # expected, of the top with the true top
    locks: list[list[Any]] = field(default_factory=list)  # above, below, certainty of sure pairs

    @property
    def ranked(self) -> list[GoldenPassage]:
        """The passages in the order, best first."""
        return [passage for passage in self.passages if passage.rank is not None]


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of pooled passages by state, and of calls for an order."""

    total: int
    graded: int
    failed: int
    validated: int  # graded by people, even if as the judge did
    corrected: int  # given another grade or place by people
    orders: int  # calls for an order
    orders_failed: int

    @property
    def failed_share(self) -> float:
        return self.failed / self.total if self.total else 0.0

    @property
    def orders_failed_share(self) -> float:
        return self.orders_failed / self.orders if self.orders else 0.0


@dataclass(frozen=True, slots=True)
class Golden:
    """A golden set as it is exported."""

    queries: list[GoldenQuery]
    judge: dict[str, Any]
    config: dict[str, Any]
    inputs: dict[str, Any]
    counts: Counts
    cost: float | None
    corrections: list[Correction]  # all of them, undone ones included

    @property
    def simulated(self) -> bool:
        """True if the judge knew the truth: such grades are evidence of nothing."""
        return bool(self.judge.get("simulated"))

    def passages(self) -> dict[Key, GoldenPassage]:
        """All pooled passages by query and document."""
        return {(query.query, p.doc): p for query in self.queries for p in query.passages}

    def grades_by_judge(self) -> dict[str, dict[Key, int | None]]:
        """The judge's own grades and, in a panel, those of each of its judges by name."""
        passages = self.passages()
        grades = {JUDGE: {key: p.judged for key, p in passages.items()}}
        for member in self.judge.get("members", []):
            name = member["name"]
            grades[name] = {key: p.votes.get(name) for key, p in passages.items()}
        return grades


def read_golden(store: Store) -> Golden:
    """Read a graded golden set, with corrections applied.

    >>> from rankproof.golden.result import read_golden
    >>> from rankproof.golden.store import Store, of_query
    >>> with Store("try/corpus/simulated.golden") as store:
    ...     golden = read_golden(store)
    >>> golden.simulated, golden.counts.failed
    (True, 0)
    """
    judge = store.meta("judge")
    if judge is None or "grade" not in store.meta("done", {}):
        raise InputError(
            "nothing is graded yet",
            place=str(store.path),
            remedy="run `rankproof golden build` to its end",
        )
    queries = read_queries(store)
    ((cost, unpriced),) = store.rows("SELECT SUM(cost), SUM(cost IS NULL) FROM replies")
    return Golden(
        queries=queries,
        judge=judge,
        config=store.meta("config"),
        inputs=store.meta("inputs"),
        counts=count_passages(queries),
        cost=None if unpriced else float(cost or 0.0),
        corrections=store.corrections(),
    )


def count_passages(queries: Sequence[GoldenQuery]) -> Counts:
    """Count passages by state, and calls for an order."""
    passages = [passage for query in queries for passage in query.passages]
    return Counts(
        total=len(passages),
        graded=sum(p.grade is not None for p in passages),
        failed=sum(p.grade is None and p.failure is not None for p in passages),
        validated=sum(p.validated for p in passages),
        corrected=sum(p.corrected for p in passages),
        orders=sum(query.calls for query in queries),
        orders_failed=sum(query.failed for query in queries),
    )


def read_queries(
    store: Store, query: str | None = None, who: str | None = None, *, reorder: bool = True
) -> list[GoldenQuery]:
    """Read every query or one, with corrections by everybody or by one person applied.

    `reorder=False` keeps the judge's order, which saves sampling the posterior.
    """
    condition, parameters = of_query(query)
    passages = _read_passages(store, condition, parameters)
    queries = {
        row[0]: GoldenQuery(row[0], row[1], row[2] or row[1], [])
        for row in store.rows(
            f"SELECT query, text, asked FROM queries WHERE {condition} ORDER BY position",
            parameters,
        )
    }
    for name, reason, calls, failed, overlap, locks in store.rows(
        f"SELECT query, reason, calls, failed, overlap, locks FROM refined WHERE {condition}",
        parameters,
    ):
        queries[name] = replace(
            queries[name],
            reason=reason,
            calls=calls,
            failed=failed,
            overlap=overlap,
            locks=json.loads(locks),
        )
    corrections: dict[str, list[Correction]] = {}
    for correction in store.active_corrections(query):
        if correction.query in passages and who in (None, correction.who):
            corrections.setdefault(correction.query, []).append(correction)
    for name, query_corrections in corrections.items():
        pool = passages[name]
        labels = _apply_grades(name, pool, query_corrections)
        if reorder and queries[name].reason is not None:
            ranking = _reorder(store, name, pool, corrections=query_corrections, labels=labels)
            if ranking is not None:
                overlap, locks = ranking
                queries[name] = replace(queries[name], overlap=overlap, locks=locks)
    return [replace(q, passages=_sorted(passages.get(q.query, {}))) for q in queries.values()]


def _read_passages(
    store: Store, condition: str, parameters: Sequence[str]
) -> dict[str, dict[str, GoldenPassage]]:
    """The pooled passages as the judge graded and ranked them, by query and document."""
    systems: dict[Key, dict[str, None]] = {}
    for query, name, doc in store.rows(
        f"SELECT query, list, doc FROM retrieved JOIN pool USING (query, doc) WHERE {condition} "
        "ORDER BY list",
        parameters,
    ):  # a name with ~ is an earlier list of the same system
        systems.setdefault((query, doc), {})[name.split("~")[0]] = None
    votes = _read_votes(store)
    passages: dict[str, dict[str, GoldenPassage]] = {}
    for query, doc, text, source, rrf, grade, failure, rank, mean, sd, low, high, top in store.rows(
        "SELECT pool.query, doc, text, source, rrf, grade, failure, rank, mean, sd, low, high, top "
        "FROM pool JOIN passages USING (doc) LEFT JOIN grades USING (query, doc) "
        "LEFT JOIN ranking USING (query, doc) "
        f"WHERE {condition} ORDER BY pool.query, pool.position",
        parameters,
    ):
        passages.setdefault(query, {})[doc] = GoldenPassage(
            doc=doc,
            text=text,
            source=source,
            rrf=rrf,
            grade=grade,
            judged=grade,
            failure=failure,
            rank=rank,
            judged_rank=rank,
            mean=mean,
            sd=sd,
            low=low,
            high=high,
            top=top,
            systems=tuple(systems.get((query, doc), ())),
            votes=votes.get((query, doc), {}),
        )
    return passages


def _read_votes(store: Store) -> dict[Key, dict[str, int]]:
    """The grades of each judge of a panel, by name; nothing if one judges alone."""
    votes: dict[Key, dict[str, int]] = {}
    for member in (store.meta("judge") or {}).get("members", []):
        for query, doc, grade in store.rows(
            "SELECT pairs.query, pairs.doc, grade FROM pairs JOIN answers USING (pair) "
            "WHERE judge = ? AND grade NOT NULL",
            (member["numbers"]["grade"],),
        ):
            votes.setdefault((query, doc), {})[member["name"]] = grade
    return votes


def _apply_grades(
    query: str, passages: dict[str, GoldenPassage], corrections: Sequence[Correction]
) -> dict[str, PeopleGrade]:
    """Give passages people's grades and corrections, in place; return those grades by document."""
    judge_grades = {(query, doc): p.judged for doc, p in passages.items()}
    for correction in corrections:
        passage = passages.get(correction.doc)
        if passage is not None:
            so_far = (*passage.corrections, correction)
            passages[correction.doc] = replace(passage, corrections=so_far)
    labels = {}
    for (_, doc), label in people_grades(corrections, judge_grades).items():
        if doc in passages:
            labels[doc] = label
            passages[doc] = replace(passages[doc], grade=label.grade, validated=True)
    return labels


def _reorder(
    store: Store,
    query: str,
    passages: dict[str, GoldenPassage],
    *,
    corrections: Sequence[Correction],
    labels: Mapping[str, PeopleGrade],
) -> tuple[float, list[list[Any]]] | None:
    """Rank passages by the judge and people together, in place; return overlap and locks.

    None if people's statements change nothing. A passage that pruning chooses only because of
    people's grades joins the order, although the judge never ordered it.
    """
    config = store.meta("config")
    ranked = sorted((p for p in passages.values() if p.rank is not None), key=lambda p: p.rank or 0)
    pool = sorted(passages.values(), key=lambda p: (-p.rrf, p.doc))
    chosen = prune([p.grade for p in pool], PruningSettings(**config["pruning"]))
    chosen_passages = [pool[index] for index in sorted(chosen)]
    added = [p for p in chosen_passages if p.rank is None and p.doc in labels]
    docs = [p.doc for p in (*ranked, *added)]
    grades = {p.doc: p.grade for p in passages.values()}
    above = consistent_claims(order_claims(docs, corrections, grades, labels), len(docs))
    if not (added or above.any()):
        return None
    mean, covariance = _joint_posterior(store, query, ranked, added)
    top_size = int(config["ranking"]["depth"] or config["pruning"]["target"])
    depth = RefineSettings(depth=top_size).depth_of(len(docs))
    ranking = constrain(mean, covariance, above, depth=depth, seed=int(config["seed"]))
    for rank, item in enumerate(ranking.order.tolist(), 1):
        passages[docs[item]] = _with_rank(passages[docs[item]], rank, item, ranking)
    return ranking.overlap, lock_rows(docs, ranking.locks(_LOCK_CERTAINTY), ranking.certainty)


def _with_rank(
    passage: GoldenPassage, rank: int, item: int, ranking: ConstrainedRanking
) -> GoldenPassage:
    """The passage, item `item` of a ranking, with its rank and uncertainty there."""
    return replace(
        passage,
        rank=rank,
        mean=ranking.mean[item].item(),
        sd=ranking.sd[item].item(),
        low=ranking.low[item].item(),
        high=ranking.high[item].item(),
        top=ranking.top[item].item(),
    )


def _joint_posterior(
    store: Store, query: str, ranked: Sequence[GoldenPassage], added: Sequence[GoldenPassage]
) -> tuple[Float, Float]:
    """Mean and covariance of ranked and added passages.

    The utility of an added passage is taken to be that of ranked ones with the closest grade, with
    the variance of all.
    """
    ranked_means = np.array([p.mean or 0.0 for p in ranked])
    sd = (float(np.std(ranked_means)) if len(ranked) > 1 else 0.0) or 1.0
    ranked_grades = np.array([float(p.judged or 0) for p in ranked])
    means = list(ranked_means)
    for passage in added:
        distance = np.abs(ranked_grades - (passage.grade or 0))
        is_closest = distance == distance.min(initial=np.inf)
        means.append(ranked_means[is_closest].mean() if len(ranked) else 0.0)
    covariance = np.diag(np.full(len(means), sd * sd))
    if ranked:
        known = {name: (docs, matrix) for name, docs, matrix in _covariances(store, query)}
        docs, matrix = known[query]
        index = np.array([docs.index(p.doc) for p in ranked])
        covariance[: len(ranked), : len(ranked)] = matrix[np.ix_(index, index)]
    return np.array(means), covariance


def lock_rows(docs: Sequence[str], locks: Bool, certainty: Float) -> list[list[Any]]:
    """[above, below, certainty] of locked pairs, without those that follow from others."""
    return [
        [docs[i], docs[j], round(float(certainty[i, j]), 6)]
        for i, j in np.argwhere(transitive_reduction(locks)).tolist()
    ]


def read_posteriors(store: Store) -> Iterator[tuple[str, list[str], Posterior]]:
    """Each query that was put in order, its passages, and the posterior of their utilities."""
    means = {(q, doc): mean for q, doc, mean in store.rows("SELECT query, doc, mean FROM ranking")}
    for query, docs, covariance in _covariances(store):
        yield query, docs, Posterior(np.array([means[query, doc] for doc in docs]), covariance)


def _covariances(store: Store, query: str | None = None) -> Iterator[tuple[str, list[str], Float]]:
    condition, parameters = of_query(query)
    sql = f"SELECT query, documents, covariance FROM posteriors WHERE {condition}"
    for name, documents, packed in store.rows(sql, parameters):
        docs = json.loads(documents)
        upper = np.zeros((len(docs), len(docs)))
        upper[np.triu_indices(len(docs))] = np.frombuffer(packed)
        yield name, docs, upper + np.triu(upper, 1).T


def posterior_row(query: str, docs: Sequence[str], covariance: Float) -> tuple[str, str, bytes]:
    """A row of `posteriors`, which `read_posteriors` reads."""
    packed = np.ascontiguousarray(covariance[np.triu_indices(len(docs))])
    return query, json.dumps(list(docs), ensure_ascii=False), packed.tobytes()


def _sorted(passages: Mapping[str, GoldenPassage]) -> list[GoldenPassage]:
    return sorted(
        passages.values(),
        key=lambda p: (p.rank is None, p.rank or 0, -(p.grade or 0), -p.rrf, p.doc),
    )
