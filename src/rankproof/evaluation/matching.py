"""Match judgments with the documents of a run, and measure the tie groups that result.

Notation: Q evaluated queries, P their judgments; −1 is the row of a judged document that the run
does not list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels, Run, ids_of
from rankproof.data.ties import Pool, Ranking, TieGroups, rank_run, subset_of, tie_groups
from rankproof.evaluation.policy import Policy
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.measures import Measure, Outcomes


@dataclass(frozen=True, slots=True, eq=False)
class MatchedJudgments:
    """A ranked run, and the row of each judged document in it."""

    queries: Any  # (Q,) ids, in polars or in the compiled reader
    missing_queries: Any  # ids that are judged, but not in the run
    unjudged_queries: Any  # ids in the run, without judgments
    ranking: Ranking
    listed: Int  # (Q,) the ranking's index of each query, or −1
    query: Int  # (P,) of each judgment, ascending
    row: Int  # (P,) of the run that holds the document, or −1
    grade: Int  # (P,)
    pool: Pool
    sampled: tuple[Int, Int] | None = None  # query and row of what was pooled and not judged
    judgment: Int | None = None  # (P,) row of each judgment in the pool's aspects, if there are any

    def relevant_listed(self) -> Int:
        """Return (Q, G) how many documents of grade 1, 2, … or higher the run lists."""
        levels = np.arange(1, max(1, self.pool.max_grade) + 1)
        counts = np.zeros((len(self.listed), len(levels)), np.int64)
        is_listed = self.row >= 0
        for at, level in enumerate(levels):
            reaches = is_listed & (self.grade >= level)
            counts[:, at] = np.bincount(self.query[reaches], minlength=len(self.listed))
        return counts

    def groups(self) -> TieGroups:
        """Return the tie groups that hold a judged document."""
        return tie_groups(
            self.ranking,
            self.listed,
            query=self.query,
            row=self.row,
            grade=self.grade,
            pool=self.pool,
            sampled=self.sampled,
            judgment=self.judgment,
        )


@dataclass(frozen=True, slots=True, eq=False)
class EvaluatedRun:
    """A run with the intermediate results of its evaluation, for an analysis that follows."""

    run: Run
    policy: Policy
    matched: MatchedJudgments
    groups: TieGroups
    outcomes: dict[Measure, Outcomes]


def match_judgments(run: Run, qrels: Qrels, policy: Policy) -> MatchedJudgments:
    """Rank a run under a policy and find each judged document in its list."""
    listed = match_queries(qrels, run)
    is_missing = listed < 0
    missing = int(is_missing.sum())
    has_judgments = np.zeros(len(run.start) - 1, np.bool_)
    has_judgments[listed[~is_missing]] = True
    pool = _full_pool(qrels)
    query, queries, grade = pool.query, ids_of(qrels, "queries"), qrels.grade
    doc = ids_of(run, "doc")
    row = kernels.find_rows(run.index, doc, run.start, ids_of(qrels, "doc"), listed[query])
    sampled = None
    if policy.condensed:
        run, row = _condense(run, row)
    elif qrels.sampled is not None:
        sampled_query, sampled_doc = qrels.sampled.query, ids_of(qrels.sampled, "doc")
        lists = listed[sampled_query]
        sampled = sampled_query, kernels.find_rows(run.index, doc, run.start, sampled_doc, lists)
    ranking = rank_run(run, policy.order, policy.score_dtype)
    if policy.missing == "skip" and missing:
        is_listed = listed >= 0
        number = np.cumsum(is_listed) - 1  # of each query among those listed
        if sampled is not None:
            is_kept = is_listed[sampled[0]]
            sampled = number[sampled[0][is_kept]], sampled[1][is_kept]
        is_kept = is_listed[query]
        queries, listed = queries.gather(np.flatnonzero(is_listed)), listed[is_listed]
        query, row, grade = number[query[is_kept]], row[is_kept], grade[is_kept]
        pool = subset_of(pool, is_kept, query, len(listed))
    judgment = pool.judgment
    if policy.candidates_only:
        pool = subset_of(pool, row >= 0, query[row >= 0], len(listed))
    return MatchedJudgments(
        queries=queries,
        missing_queries=ids_of(qrels, "queries").gather(np.flatnonzero(is_missing)),
        unjudged_queries=_sorted_ids(run, np.flatnonzero(~has_judgments)),
        ranking=ranking,
        listed=listed,
        query=query,
        row=row,
        grade=grade,
        pool=pool,
        sampled=sampled,
        judgment=judgment,
    )


def _sorted_ids(run: Run, queries: Int) -> Any:
    """Return the ids of some of a run's queries, sorted: parts of a run come in any order."""
    ids = ids_of(run, "queries").gather(queries)
    return ids.gather(np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64))


def _condense(run: Run, row: Int) -> tuple[Run, Int]:
    """Return a run without its unjudged documents, and the row (P,) of each judged one in it."""
    is_judged = np.zeros(len(run), np.bool_)
    is_judged[row[row >= 0]] = True
    new_row = np.append(0, np.cumsum(is_judged))
    doc = run.doc.filter(pl.Series(is_judged)).rechunk()
    rest = None if run.rest is None else run.rest[is_judged]
    columns: dict[str, Any] = {"doc": doc, "score": run.score[is_judged], "rest": rest}
    condensed = replace(run, start=new_row[run.start], **columns, index=None, cache={})
    return condensed, np.where(row >= 0, new_row[row], -1)


def _full_pool(qrels: Qrels) -> Pool:
    """Return the pool of all judgments; all runs evaluated on them share it."""
    if "pool" not in qrels.cache:
        highest = int(qrels.grade.max(initial=0))
        pool = Pool(qrels.start, highest, qrels.grade, qrels.aspects, qrels.aspect_row)
        qrels.cache["pool"] = pool
    full_pool: Pool = qrels.cache["pool"]
    return full_pool


def match_queries(qrels: Qrels, run: Run) -> Int:
    """Return the run's index (Q,) of each judged query, or −1; the last run's is cached."""
    cached = qrels.cache.get("match")
    if cached is None or cached[0] is not run.start:
        listed = kernels.match_ids(ids_of(qrels, "queries"), ids_of(run, "queries"))
        cached = qrels.cache["match"] = run.start, listed
    result: Int = cached[1]
    return result


def measure_all(
    groups: TieGroups, measures: Sequence[Measure], policy: Policy
) -> dict[Measure, Outcomes]:
    """Compute measures, by default all of them over the queries with a relevant document.

    nDCG and AP are undefined if nothing is relevant. If RR and P counted 0 there, the scores of
    one table would be means over different queries.
    """

    def compute(measure: Measure) -> Outcomes:
        outcomes = policy.apply(measure).outcomes(groups)
        if policy.undefined == "zero":
            return fill_undefined(outcomes)
        is_averaged = averaged_queries(groups, measure)
        return outcomes if is_averaged.all() else replace(outcomes, counted=is_averaged)

    outcomes = kernels.map_in_threads(compute, measures, len(groups.grade))
    return dict(zip(measures, outcomes, strict=True))


def averaged_queries(groups: TieGroups, measure: Measure) -> Bool:
    """Return (Q,) whether a mean includes the query: it has a relevant document."""
    # A measure with its own scale, or of aspects, has its own rule.
    if measure.definition.grades is not None or measure.needs_aspects:
        return np.ones(groups.queries, np.bool_)
    return np.asarray(groups.relevant(measure.threshold) > 0, np.bool_)


def groups_to_shuffle(
    groups: TieGroups, measures: Sequence[Measure], outcomes: dict[Measure, Outcomes]
) -> TieGroups | None:
    """Return the tie groups that random orders are drawn of; None if no order changes a score."""
    if not any((values.max > values.min).any() for values in outcomes.values()):
        return None
    cutoffs = [measure.cutoff for measure in measures]
    finite = [cutoff for cutoff in cutoffs if cutoff is not None]
    return groups if len(finite) < len(cutoffs) else groups.within(max(finite))


def fill_undefined(outcomes: Outcomes) -> Outcomes:
    """Return outcomes with 0 for every query that a measure is undefined on."""

    def fill(values: Float) -> Float:
        return np.where(np.isnan(values), 0.0, values)

    return replace(
        outcomes,
        expected=fill(outcomes.expected),
        min=fill(outcomes.min),
        max=fill(outcomes.max),
        oblivious=fill(outcomes.oblivious),
        variance=None if outcomes.variance is None else fill(outcomes.variance),
    )
