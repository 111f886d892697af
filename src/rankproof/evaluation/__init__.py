"""Evaluate runs: run × judgments × measures → Evaluation.

Other packages import from here; `rankproof.evaluate` (commands/eval.py) is built on it. Ranking
is in data/ties.py, the measures in measures/, comparisons of runs in comparison/.

policy.py         every choice that a score depends on
matching.py       matches a run with judgments, and measures their tie groups
id_profile.py     recognizes runs whose ids are not those of the judgments
checks.py         warnings and errors for runs and judgments that do not belong together
sampled_means.py  means that are geometric, or estimated from random orders of ties
result.py         Evaluation: the scores of one run, as means, frames and dicts
query_set.py      QuerySet: which queries a mean is over, and what became of the others
several_runs.py   Evaluations: those of several runs, as one result
annotator_estimates.py  scores with annotators' labels, where a judge labeled every query
thresholds.py     conditions on a measure that a run must not meet
tie_counts.py     the ties of a run, without judgments
matrices.py       runs given as arrays
streaming/        files that are larger than memory, in parts
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from rankproof.data.frames import is_frame
from rankproof.data.hits import unwrapped
from rankproof.data.sources import stem
from rankproof.data.tables import Qrels, Run
from rankproof.data.ties import end_after_ties, in_order
from rankproof.evaluation.checks import (
    bound_notes,
    check_scales,
    input_notes,
    pair_warnings,
    profile_scores,
    score_warnings,
)
from rankproof.evaluation.checks import check_scale as check_scale
from rankproof.evaluation.checks import example_ids as example_ids
from rankproof.evaluation.checks import grade_like_scores as grade_like_scores
from rankproof.evaluation.checks import merge_notes as merge_notes
from rankproof.evaluation.checks import no_common_query as no_common_query
from rankproof.evaluation.checks import scale_notes as scale_notes
from rankproof.evaluation.checks import swap_evidence as swap_evidence
from rankproof.evaluation.id_profile import profile_ids
from rankproof.evaluation.matching import EvaluatedRun as EvaluatedRun
from rankproof.evaluation.matching import MatchedJudgments as MatchedJudgments
from rankproof.evaluation.matching import averaged_queries as averaged_queries
from rankproof.evaluation.matching import fill_undefined as fill_undefined
from rankproof.evaluation.matching import groups_to_shuffle as groups_to_shuffle
from rankproof.evaluation.matching import match_judgments as match_judgments
from rankproof.evaluation.matching import match_queries as match_queries
from rankproof.evaluation.matching import measure_all as measure_all
from rankproof.evaluation.policy import LIKE as LIKE
from rankproof.evaluation.policy import Choices as Choices
from rankproof.evaluation.policy import Like as Like
from rankproof.evaluation.policy import Missing as Missing
from rankproof.evaluation.policy import Policy as Policy
from rankproof.evaluation.query_set import QuerySet as QuerySet
from rankproof.evaluation.result import Evaluation as Evaluation
from rankproof.evaluation.result import MeanScore as MeanScore
from rankproof.evaluation.result import mean_score as mean_score
from rankproof.evaluation.sampled_means import sampling_notes as sampling_notes
from rankproof.evaluation.several_runs import Evaluations as Evaluations
from rankproof.foundation.errors import InputError, MeasureError
from rankproof.measures import Measure, parse

Several: TypeAlias = "Mapping[str, Run] | Mapping[str, str] | list[Run] | list[str]"


_LISTED = (Mapping, list, tuple)  # what a dict holds for each query of a run


def several(given: Any) -> dict[str, Any] | None:
    """Runs by name, where more than one run was given; None for a single one."""

    def is_run(value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(isinstance(listed, _LISTED) for listed in value.values())
        return isinstance(value, Run | str | os.PathLike) or is_frame(value)

    if isinstance(given, Mapping):
        values = list(given.values())
        return dict(given) if values and all(map(is_run, values)) and not _one_run(values) else None
    if not isinstance(given, list | tuple) or not given or not all(map(is_run, given)):
        return None
    names = [
        value.name
        if isinstance(value, Run)
        else stem(os.fspath(value))
        if isinstance(value, str | os.PathLike)
        else f"run {number}"
        for number, value in enumerate(given, 1)
    ]
    if len(set(names)) < len(names):
        raise InputError(
            "two runs of one name", place="runs", remedy="name them: {'a': run, 'b': run}"
        )
    return dict(zip(names, given, strict=True))


def _one_run(values: list[Any]) -> bool:
    """Whether the values of a dict are lists of documents, so that the dict is one run."""
    if any(unwrapped(value) is not value for value in values):
        return True
    return all(
        isinstance(value, Mapping)
        and not any(isinstance(listed, _LISTED) for listed in value.values())
        for value in values
    )


def parse_all(measures: str | Measure | Iterable[str | Measure]) -> list[Measure]:
    """The measures asked for, each once, in order."""
    asked = [measures] if isinstance(measures, str | Measure) else list(measures)
    if not asked:
        raise InputError("no measure was named", remedy="name one, such as nDCG@10")
    return list(dict.fromkeys(parse(m) for m in asked))


def at_level(measures: list[Measure], level: int | None) -> list[Measure]:
    """Measures that call a grade relevant and name none, with this one (trec_eval's -l)."""
    if level is None:
        return measures
    return [
        m(rel=level)
        if isinstance(m.parameters.get("rel"), int)
        and dict(m.explicit).keys().isdisjoint({"rel", "max"})
        and "gain" not in m.definition.parameters
        else m
        for m in measures
    ]


def parse_means(measures: str | Measure | Iterable[str | Measure]) -> list[Measure]:
    """`parse_all` for differences and intervals, which are those of plain means over queries."""
    parsed = parse_all(measures)
    other = next((m for m in parsed if m.definition.geometric), None)
    if other is not None:
        raise MeasureError(f"{other} is not a plain mean over queries", remedy="ask for AP here")
    return parsed


def evaluate_tables(
    run: Run,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    kept: list[EvaluatedRun] | None = None,
) -> Evaluation:
    """`evaluate` for tables and parsed measures; what was seen of the run is added to `kept`."""
    check_scales(qrels, measures)
    if not (match_queries(qrels, run) >= 0).any():
        raise no_common_query(run.name, run.queries, qrels)
    evaluation = evaluate_some(run, qrels, measures, policy, kept)
    assert evaluation.score_profile is not None
    warnings = pair_warnings(evaluation.score_profile, qrels)
    if not warnings:
        return evaluation
    return replace(evaluation, notes=(*evaluation.notes, *warnings))


def evaluate_some(
    run: Run,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    kept: list[EvaluatedRun] | None = None,
) -> Evaluation:
    """`evaluate_tables` without its checks, for some of the queries of a larger run."""
    few = grade_like_scores(run)
    if policy.condensed or policy.candidates_only:  # what is not listed does not exist there
        run = end_lists(run, policy)
    matched = match_judgments(run, qrels, policy)
    tied = np.append(matched.ranking.tied, False)[matched.listed]
    profile = profile_scores(run, policy, few)
    notes = [
        *input_notes(qrels, measures),
        *run.notes,
        *score_warnings(run.name, run.dtype, profile),
    ]
    groups = matched.groups()
    if policy.depth is not None:
        groups = groups.until(policy.depth)
    outcomes = measure_all(groups, measures, policy)
    notes += sampling_notes(run.name, outcomes)
    notes += bound_notes(outcomes)
    if kept is not None:
        evaluated = EvaluatedRun(run, policy, matched, groups, outcomes)
        kept.append(evaluated if policy.depth is None else _cut_lists(evaluated, qrels))
    judged_shares = [m for m in measures if m.name == "Judged"] if policy.condensed else []
    if judged_shares:  # condensed lists are fully judged; the share is of the list as it was
        full_lists = match_judgments(run, qrels, replace(policy, condensed=False)).groups()
        outcomes |= measure_all(full_lists, judged_shares, policy)
    return Evaluation(
        name=run.name,
        queries=matched.queries,
        outcomes=outcomes,
        missing_queries=matched.missing_queries,
        unjudged_queries=matched.unjudged_queries,
        is_tied=tied,
        policy=policy,
        dtype=policy.score_dtype or run.dtype,
        notes=tuple(notes),
        ties=groups_to_shuffle(groups, measures, outcomes),
        relevant=int((matched.pool.unsorted >= 1).sum()),
        retrieved=int((groups.grade >= 1).sum()),
        score_profile=profile,
        id_profile=profile_ids(run, qrels, matched),
        relevant_listed=matched.relevant_listed() if policy.candidates_only else None,
    )


def _cut_lists(evaluated: EvaluatedRun, qrels: Qrels) -> EvaluatedRun:
    """Return an evaluation to a depth with the lists over which worst cases are computed."""
    run = end_lists(evaluated.run, evaluated.policy)
    return replace(evaluated, run=run, matched=match_judgments(run, qrels, evaluated.policy))


def end_lists(run: Run, policy: Policy) -> Run:
    """Return a run whose lists end after the tie group that holds the policy's depth.

    They end inside it, under the stated tie-break, where the policy leaves out what is unjudged or
    not listed: which documents these are cannot depend on the order.
    """
    if policy.depth is None:
        return run
    cut = in_order if policy.condensed or policy.candidates_only else end_after_ties
    return cut(run, policy.order, policy.score_dtype, policy.depth)
