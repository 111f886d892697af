"""Bounds over unjudged documents, and the requests that `rankproof holes` answers beside them.

These are documents to judge next, a sample to estimate from, judging until a difference is certain,
and the scores of runs without their own judgments.
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
from rankproof.unjudged.judging_order import Settled, merge_judgments
from rankproof.unjudged.judging_order import judge_next as choose_documents
from rankproof.unjudged.sampling import draw, estimate, queries_to_draw

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
    """Bound every run and pair over the grades of unjudged documents, and answer the requests.

    `judged_since` are judgments made after `qrels`. They are merged with these; with `judge_sample`
    they are the labels of the sample instead, unless `judge` makes these. `settle` has documents
    judged before anything is bounded.
    """
    known = qrels
    if judged_since is not None and judge_sample is None:
        known = merge_judgments(known, judged_since)
    worst_cases = WorstCases(runs, known, policy, depth=policy.depth, scale=scale)
    settled = None
    if settle is not None:
        settled = settle(worst_cases)
        if settled.judgements.height:
            known = merge_judgments(known, read_qrels(settled.judgements))
        worst_cases = WorstCases(runs, known, policy, depth=policy.depth, scale=scale)
    report = replace(
        worst_cases.analyze(measures), settled=settled, warnings=_warnings(known, runs)
    )
    if judge_next is not None:
        report = replace(report, to_judge=choose_documents(worst_cases, measures[0], judge_next))
    if judge_sample is not None:
        report = _add_sample(report, worst_cases, measures, judge_sample, judged_since, judge, seed)
    if pool_depth is not None or provenance is not None:
        report = _add_leave_one_out(report, runs, known, measures, pool_depth, provenance)
    return report


def _warnings(qrels: Qrels, runs: Sequence[Run]) -> tuple[str, ...]:
    """What was guessed or skipped while the files were read, each once."""
    return tuple(dict.fromkeys([*qrels.notes, *(note for run in runs for note in run.notes)]))


def _add_sample(
    report: Unjudged,
    worst_cases: WorstCases,
    measures: Sequence[Measure],
    count: int,
    labels: Qrels | None,
    judge: JudgeSample | None,
    seed: int,
) -> Unjudged:
    """Draw queries; if all their unjudged documents have labels, estimate scores from these.

    Of a judge more queries are requested while too few of the drawn ones have a value.
    """
    to_judge = draw(worst_cases, measures, count, seed)
    judgments = None
    if judge is not None:
        labels, judgments = judge(worst_cases, to_judge)
        while (enough := queries_to_draw(worst_cases, measures, labels, count, seed=seed)) > count:
            count = enough
            to_judge = draw(worst_cases, measures, count, seed)
            labels, judgments = judge(worst_cases, to_judge)
    sampled = None if labels is None else estimate(worst_cases, measures, labels, count, seed=seed)
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
    """Add the scores of each run without the judgments that it alone contributed.

    Who contributed which is read from `provenance`, or else follows from the first `pool_depth`
    documents of each run.
    """
    if provenance is not None:
        contributions = leave_one_out.read_provenance(provenance)
    else:
        assert pool_depth is not None
        contributions = leave_one_out.contributions(runs, qrels, pool_depth)
    rows = leave_one_out.leave_one_out(runs, qrels, measures, contributions, policy=report.policy)
    return replace(report, leave_one_out=rows, pool_depth=pool_depth)
