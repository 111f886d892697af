"""Bounds over unjudged documents, and what was asked for beside them: documents to judge next, a
sample to estimate from, judging until a difference is certain, runs without their own judgments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from rankproof.data import read_qrels
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Policy
from rankproof.measures import Measure
from rankproof.unjudged import leave_one_out
from rankproof.unjudged.bounds import Unjudged, WorstCases
from rankproof.unjudged.judging_order import Settled, judge_next, merged
from rankproof.unjudged.sampling import draw, estimate

Settle = Callable[[WorstCases], Settled]
JudgeSample = Callable[[WorstCases, pl.DataFrame], tuple[Qrels, pl.DataFrame]]


def find_holes(
    runs: Sequence[Run],
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    *,
    scale: int | None = None,
    judge_next: int | None = None,
    judge_sample: int | None = None,
    pool_depth: int | None = None,
    provenance: Path | None = None,
    judged_since: Qrels | None = None,
    settle: Settle | None = None,
    judge: JudgeSample | None = None,
    seed: int = 0,
) -> Unjudged:
    """Bound every run and pair over what unjudged documents could be, and answer the requests.

    `judged_since` are judgments made after `qrels`: merged with these, or with `judge_sample` the
    labels of the sample, which `judge` makes where it is given. `settle` has documents judged
    before anything is bounded.
    """
    known = qrels
    if judged_since is not None and judge_sample is None:
        known = merged(known, judged_since)
    view = WorstCases(runs, known, policy, depth=policy.depth, scale=scale)
    settled = None
    if settle is not None:
        settled = settle(view)
        if settled.judgements.height:
            known = merged(known, read_qrels(settled.judgements))
        view = WorstCases(runs, known, policy, depth=policy.depth, scale=scale)
    report = replace(view.analyze(measures), settled=settled, warnings=_warnings(known, runs))
    if judge_next is not None:
        report = replace(report, to_judge=_next_to_judge(view, measures[0], judge_next))
    if judge_sample is not None:
        report = _add_sample(report, view, measures, judge_sample, judged_since, judge, seed)
    if pool_depth is not None or provenance is not None:
        report = _add_leave_one_out(report, runs, known, measures, pool_depth, provenance)
    return report


_next_to_judge = judge_next


def _warnings(qrels: Qrels, runs: Sequence[Run]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*qrels.notes, *(note for run in runs for note in run.notes)]))


def _add_sample(
    report: Unjudged,
    view: WorstCases,
    measures: Sequence[Measure],
    count: int,
    labels: Qrels | None,
    judge: JudgeSample | None,
    seed: int,
) -> Unjudged:
    """Draw queries, and estimate from the labels of all their unjudged documents if there are."""
    to_judge = draw(view, measures, count, seed)
    judgments = None
    if judge is not None:
        labels, judgments = judge(view, to_judge)
    sampled = None if labels is None else estimate(view, measures, labels, count, seed=seed)
    return replace(
        report, to_judge=to_judge, judgments=judgments, sampled=sampled, sample_was_drawn=True
    )


def _add_leave_one_out(
    report: Unjudged,
    runs: Sequence[Run],
    qrels: Qrels,
    measures: Sequence[Measure],
    pool_depth: int | None,
    provenance: Path | None,
) -> Unjudged:
    """Evaluate each run without the judgments that it alone brought in."""
    if provenance is not None:
        contributions = leave_one_out.read_provenance(provenance)
    else:
        assert pool_depth is not None
        contributions = leave_one_out.contributions(runs, qrels, pool_depth)
    rows = leave_one_out.leave_one_out(runs, qrels, measures, contributions, policy=report.policy)
    return replace(report, left_out=rows, pool_depth=pool_depth)
