"""Run × qrels → tie groups of judged documents, and the measures of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels, Run, ids_of
from rankproof.data.ties import Pool, Ranking, TieGroups, pool_of, rank_run, tie_groups
from rankproof.evaluation.policy import Policy
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.measures import Measure, Outcomes


@dataclass(frozen=True, slots=True, eq=False)
class Met:
    """A run and judgements brought together on the queries evaluated."""

    queries: Any  # (Q,) ids of either kind
    missing: int  # judged queries that the run lacks
    ranking: Ranking
    listed: Int  # (Q,) the ranking's index of each query, or −1
    query: Int  # (P,) of each judgement, ascending
    row: Int  # (P,) of the run that holds the document, or −1
    grade: Int  # (P,)
    pool: Pool
    sampled: tuple[Int, Int] | None = None  # query and row of what was pooled and not judged

    def groups(self) -> TieGroups:
        judged = self.query, self.row, self.grade
        return tie_groups(self.ranking, self.listed, *judged, self.pool, self.sampled)


@dataclass(frozen=True, slots=True, eq=False)
class Evaluated:
    """A run as an evaluation saw it, for who looks at it again."""

    run: Run
    policy: Policy
    met: Met
    groups: TieGroups
    outcomes: dict[Measure, Outcomes]


def meet(run: Run, qrels: Qrels, policy: Policy) -> Met:
    """Find each judged document in the run's lists, as the policy says."""
    listed = match(qrels, run)
    missing = int((listed < 0).sum())
    pool = _whole_pool(qrels)
    query, queries, grade = pool.query, ids_of(qrels, "queries"), qrels.grade
    docs = ids_of(run, "doc"), ids_of(qrels, "doc")
    row = kernels.find_rows(run.index, docs[0], run.start, docs[1], listed[query])
    sampled = None
    if policy.condensed:
        run, row = _condensed(run, row)
    elif qrels.sampled is not None:
        own = qrels.sampled.query, ids_of(qrels.sampled, "doc")
        sampled = own[0], kernels.find_rows(run.index, docs[0], run.start, own[1], listed[own[0]])
    ranking = rank_run(run, policy.order, policy.score_dtype)
    if policy.missing == "skip" and missing:
        if sampled is not None:
            kept = listed[sampled[0]] >= 0
            sampled = (np.cumsum(listed >= 0) - 1)[sampled[0][kept]], sampled[1][kept]
        queries, listed, query, row, grade = _keep_listed(queries, listed, query, row, grade)
        pool = pool_of(query, grade, len(listed), pool.max_grade)
    if policy.candidates_only:
        pool = pool_of(query[row >= 0], grade[row >= 0], len(listed), pool.max_grade)
    return Met(queries, missing, ranking, listed, query, row, grade, pool, sampled)


def _condensed(run: Run, row: Int) -> tuple[Run, Int]:
    """The run without its unjudged documents, and the judgements' rows in it."""
    keep = np.zeros(len(run), np.bool_)
    keep[row[row >= 0]] = True
    kept = np.append(0, np.cumsum(keep))
    doc = run.doc.filter(pl.Series(keep)).rechunk()
    rest = None if run.rest is None else run.rest[keep]
    columns: dict[str, Any] = {"doc": doc, "score": run.score[keep], "rest": rest}
    shorter = replace(run, start=kept[run.start], **columns, index=None, cache={})
    return shorter, np.where(row >= 0, kept[row], -1)


def _whole_pool(qrels: Qrels) -> Pool:
    """Every judgement; made once for all runs evaluated on these qrels."""
    if "pool" not in qrels.cache:
        qrels.cache["pool"] = Pool(qrels.start, int(qrels.grade.max(initial=0)), qrels.grade)
    pool: Pool = qrels.cache["pool"]
    return pool


def measure_all(
    groups: TieGroups, measures: Sequence[Measure], policy: Policy
) -> dict[Measure, Outcomes]:
    """Every measure, by default over one set of queries: those with a relevant document.

    Where nothing is relevant nDCG and AP have no value; were RR and P to count 0 there, the
    figures of one table would be means over different queries.
    """

    def of(measure: Measure) -> Outcomes:
        found = measure.outcomes(groups)
        if policy.undefined == "zero":
            return undefined_is_zero(found)
        some = counts(groups, measure)
        return found if some.all() else replace(found, counted=some)

    found = kernels.map_in_threads(of, measures, len(groups.grade))
    return dict(zip(measures, found, strict=True))


def counts(groups: TieGroups, measure: Measure) -> Bool:
    """(Q,) the queries that a mean is over: those with a relevant document."""
    if measure.definition.grades is not None:  # a scale of its own has its own rule
        return np.ones(groups.queries, np.bool_)
    return np.asarray(groups.relevant(measure.threshold) > 0, np.bool_)


def undecided(
    groups: TieGroups, measures: Sequence[Measure], outcomes: dict[Measure, Outcomes]
) -> TieGroups | None:
    """What is needed to draw orders of the ties; None where no order changes a figure."""
    if not any((found.max > found.min).any() for found in outcomes.values()):
        return None
    cutoffs = [measure.cutoff for measure in measures]
    known = [cutoff for cutoff in cutoffs if cutoff is not None]
    return groups if len(known) < len(cutoffs) else groups.within(max(known))


def undefined_is_zero(outcomes: Outcomes) -> Outcomes:
    def filled(values: Float) -> Float:
        return np.where(np.isnan(values), 0.0, values)

    variance = None if outcomes.variance is None else filled(outcomes.variance)
    return replace(
        outcomes,
        expected=filled(outcomes.expected),
        min=filled(outcomes.min),
        max=filled(outcomes.max),
        oblivious=filled(outcomes.oblivious),
        variance=variance,
    )


def match(qrels: Qrels, run: Run) -> Int:
    """(Q,) where the run has each judged query, or −1; found once for a pair."""
    known = qrels.cache.get("match")
    if known is None or known[0] is not run.start:
        found = kernels.match_ids(ids_of(qrels, "queries"), ids_of(run, "queries"))
        known = qrels.cache["match"] = run.start, found
    listed: Int = known[1]
    return listed


def _keep_listed(
    queries: kernels.Ids, listed: Int, query: Int, row: Int, grade: Int
) -> tuple[kernels.Ids, Int, Int, Int, Int]:
    keep = listed >= 0
    place = np.cumsum(keep) - 1
    rows = keep[query]
    return (
        queries.gather(np.flatnonzero(keep)),
        listed[keep],
        place[query[rows]],
        row[rows],
        grade[rows],
    )
