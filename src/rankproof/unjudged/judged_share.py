"""The judged share beside each score of an evaluation, and bounds of scores where requested.

A score is worth little where most of the top k is unjudged, so every evaluation of a measure also
has Judged@k. Bounds need all runs in memory at once; they are computed on request, or unasked for a
few runs with unjudged documents.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from rankproof.data import RunLike, read_run
from rankproof.data.sources import Format, is_folder, is_pipe
from rankproof.data.tables import Qrels, Run, ids_of
from rankproof.evaluation import EvaluatedRun, Evaluation, Policy, evaluate_tables
from rankproof.foundation.errors import InputError, MeasureError
from rankproof.measures import Judged, Measure

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import WorstCases


_UNLIMITED = 10**17  # a cutoff beyond every list
_MAX_UNREQUESTED = 12  # runs; the bounds of more are computed only on request


def judged_at(measure: Measure, depth: int | None = None) -> Measure:
    """Judged@k with the cutoff of a measure; without one, of `depth` or whole lists."""
    return Judged @ (measure.cutoff or depth or _UNLIMITED)


def with_judged(measures: Sequence[Measure]) -> list[Measure]:
    """The measures, and Judged@k for each of their cutoffs."""
    return list(dict.fromkeys([*measures, *map(judged_at, measures)]))


def attach_judged(evaluation: Evaluation, measures: Sequence[Measure]) -> Evaluation:
    """Move Judged@k out of an evaluation's outcomes, to stand beside the score of each measure.

    `evaluation` has outcomes for `with_judged(measures)`.
    """
    return replace(
        evaluation,
        missing_queries=ids_of(evaluation, "missing_queries"),
        unjudged_queries=ids_of(evaluation, "unjudged_queries"),
        queries=ids_of(evaluation, "queries"),  # unread: `replace` would load the ids
        outcomes={m: evaluation.outcomes[m] for m in measures},
        judged={m: evaluation.answered_share(judged_at(m)) for m in measures},
    )


def check_readable_twice(sources: Iterable[object]) -> None:
    """Refuse runs that cannot be read whole a second time, as bounds require."""
    for path in (os.fspath(x) for x in sources if isinstance(x, str | os.PathLike)):
        is_read_in_parts = is_folder(path)
        if is_read_in_parts or is_pipe(path):
            why = "a folder is read in parts" if is_read_in_parts else "this can be read only once"
            raise InputError(
                f"what unjudged documents could change (holes) takes a second look, and {why}",
                place=path,
                remedy="name a file",
            )


def evaluate_named(
    runs: Mapping[str, RunLike],
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    *,
    holes: bool | None = False,
    memory: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    format: Format | None = None,  # noqa: A002
    reading: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[list[Evaluation], WorstCases | None]:
    """Evaluate runs by name on the same judgments, with judged shares, and worst cases for bounds.

    Runs are read one after the other, so that only one need be in memory, a large one in parts.
    With `holes` the worst cases of all are returned, for which runs that were read in parts are
    read again, whole. If it is None, they are returned only for a few runs that are in memory
    anyway and have unjudged documents.
    """
    from rankproof.evaluation.streaming import evaluate_file

    all_measures = with_judged(measures)
    is_cheap = memory is None and len(runs) <= _MAX_UNREQUESTED
    in_memory: list[EvaluatedRun] | None = [] if holes or (holes is None and is_cheap) else None
    evaluations = []
    with reading():
        for name, run in runs.items():
            if isinstance(run, str | os.PathLike):
                evaluation = evaluate_file(
                    *(run, qrels, all_measures, policy),
                    memory=memory,
                    spill_dir=spill_dir,
                    name=name,
                    format=format,
                    kept=in_memory,
                )
            else:
                table = read_run(run, name=name)
                evaluation = evaluate_tables(table, qrels, all_measures, policy, in_memory)
            evaluation = attach_judged(evaluation, measures)
            has_name = evaluation.name == name
            evaluations.append(evaluation if has_name else evaluation.renamed(name))
    if not holes and not _could_change(evaluations, in_memory):
        return evaluations, None
    from rankproof.unjudged.bounds import WorstCases

    if in_memory is not None and len(in_memory) == len(runs):
        return evaluations, WorstCases.of(in_memory, qrels, policy)
    check_readable_twice(runs.values())
    with reading():
        tables = [read_run(run, format=format, name=name) for name, run in runs.items()]
    return evaluations, WorstCases(tables, qrels, policy)


def _could_change(
    evaluations: Sequence[Evaluation], in_memory: Sequence[EvaluatedRun] | None
) -> bool:
    """True if unjudged documents could change a verdict, and it can be found out cheaply.

    That needs all runs in memory and measures that have bounds.
    """
    if not in_memory or len(in_memory) < len(evaluations):
        return False
    from rankproof.unjudged.rules import rule_of

    measures = list(evaluations[0].outcomes)
    has_named_gains = all(isinstance(m.parameters.get("gain", ""), str) for m in measures)
    has_bounds = has_named_gains and all(rule_of(m) is not None for m in measures)
    if evaluations[0].policy.condensed or not has_bounds:
        return False
    # Of all queries: one that no mean includes, for want of a relevant document, counts with some
    # grades of its unjudged documents.
    shares = (run.outcomes[judged_at(m)].expected for run in in_memory for m in measures)
    return any((share < 1).any() for share in shares)


def bound_evaluation(
    evaluation: Evaluation, run: Run, qrels: Qrels, measures: Sequence[Measure]
) -> Evaluation:
    """Add the lowest and highest scores over all grades of unjudged documents."""
    worst_cases = _worst_cases(evaluation, run, qrels)
    bounds = {measure: worst_cases.run_bound(0, measure) for measure in measures}
    evaluation = store_bounds(evaluation, run, qrels, measures)
    return replace(evaluation, bounds=bounds, grades=worst_cases.grades(measures))


def store_bounds(
    evaluation: Evaluation, run: Run, qrels: Qrels, measures: Sequence[Measure]
) -> Evaluation:
    """Add the bounds (Q,) of every query, of the measures that have bounds."""
    worst_cases = _worst_cases(evaluation, run, qrels)
    rows = qrels.queries.search_sorted(evaluation.queries).to_numpy()
    query_bounds = {}
    for measure in measures:
        with suppress(MeasureError):
            bounds = worst_cases.run_bounds_by_query(0, measure)
            query_bounds[measure] = (bounds.low[rows], bounds.high[rows])
    return replace(evaluation, query_bounds=query_bounds)


def _worst_cases(evaluation: Evaluation, run: Run, qrels: Qrels) -> WorstCases:
    from rankproof.unjudged.bounds import WorstCases

    return WorstCases([run], qrels, evaluation.policy, depth=evaluation.policy.depth)
