"""`eval`: runs × judgments × measures, under every order of tied documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Unpack, overload

from rankproof.commands.options import (
    DEFAULT_MEASURES,
    EvaluationOptions,
    Holes,
    Measures,
    Runs,
)
from rankproof.commands.registry import Option, Output, Source, command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rankproof.commands.inputs import EvaluationInputs
    from rankproof.data import QrelsLike, RunLike
    from rankproof.evaluation import Evaluation, Evaluations, Several
    from rankproof.measures.registry import Measure


@overload
def evaluate(
    qrels: QrelsLike,
    runs: Several,
    measures: str | Measure | Iterable[str | Measure] = ...,
    *,
    human: QrelsLike | None = ...,
    holes: bool | None = ...,
    fail_if: Sequence[str] = ...,
    cluster: str | None = ...,
    **options: Unpack[EvaluationOptions],
) -> Evaluations: ...


@overload
def evaluate(
    qrels: QrelsLike,
    runs: RunLike,
    measures: str | Measure | Iterable[str | Measure] = ...,
    *,
    human: QrelsLike | None = ...,
    holes: bool | None = ...,
    fail_if: Sequence[str] = ...,
    cluster: str | None = ...,
    **options: Unpack[EvaluationOptions],
) -> Evaluation: ...


@command(
    name="eval",
    group="Evaluate",
    outputs=[
        Output(
            "per_query",
            "per_query_file",
            "Write per-query values to FILE (.parquet or .csv).",
            endings=(".csv", ".parquet"),
        )
    ],
)
def evaluate(
    qrels: Annotated[
        QrelsLike,
        Source("QRELS", "qrels", instead="--judge"),
        "Relevance judgments; - is standard input. --judge FILE names them too, before --human.",
    ],
    runs: Runs,
    measures: Measures = DEFAULT_MEASURES,
    *,
    human: Annotated[
        QrelsLike | None,
        Source("FILE", "human"),
        "Annotators' labels of some queries, drawn at random, where QRELS are a judge's of all: "
        "adds an estimate of each score with annotators' labels.",
    ] = None,
    holes: Holes = False,
    fail_if: Annotated[
        Sequence[str],
        Option(metavar="CONDITION,..."),
        "Exit with 1 where a run meets it, such as 'nDCG@10 < 0.42'.",
    ] = (),
    cluster: Annotated[
        str | None,
        Option(metavar="auto|ADDRESS", recorded=False, panel="Large runs"),
        "Evaluate on Ray: a running cluster or this machine (auto), or the one at ADDRESS. Runs "
        "may be folders of shards.",
    ] = None,
    **options: Unpack[EvaluationOptions],
) -> Any:
    """Score runs: each measure's mean, its 95% interval, and what ties could change.

    The score is the mean over queries and over every order of tied documents; "as listed" is the
    value under one tie-break, which other tools print. --wide and CSV have every value.

    Python: one run gives an Evaluation, several give Evaluations, a mapping of name to Evaluation.

    $ rankproof eval qrels.txt a.trec b.trec
    $ rankproof eval qrels.txt a.trec -m nDCG@5,RR --per-query values.csv
    $ rankproof eval qrels.txt a.trec --fail-if 'nDCG@10 < 0.42'

    >>> run = {"q1": {"a": 0.9, "b": 0.8, "c": 0.8}}
    >>> evaluation = rp.evaluate({"q1": {"b": 1}}, run, [rp.nDCG @ 2, "RR"])
    >>> evaluation["RR"].expected, evaluation["RR"].min, evaluation["RR"].max
    (0.41666666666666663, 0.3333333333333333, 0.5)
    """
    from rankproof.commands.inputs import EvaluationInputs, is_single_run
    from rankproof.commands.recording import STORES_RESULT
    from rankproof.evaluation import Evaluations, at_level, parse_all, parse_means
    from rankproof.evaluation.thresholds import parse_condition

    level = options.get("level")
    conditions = [parse_condition(text) for text in fail_if]
    conditions = [replace(c, measure=at_level([c.measure], level)[0]) for c in conditions]
    names: Any = measures
    if conditions:  # which name measures of their own
        names = [] if measures is DEFAULT_MEASURES else _as_list(measures)
        names = [*names, *(condition.measure for condition in conditions)]
    parse = parse_means if holes else parse_all
    arguments = {**options, "human": human}
    inputs = EvaluationInputs.of("evaluate", qrels, runs, names, arguments, parse=parse)
    if cluster is None:
        evaluations, _ = inputs.evaluate()
    else:
        evaluations = _evaluate_on_cluster(inputs, cluster)
        if human is not None:
            evaluations = inputs.with_annotators(evaluations, human)
    if holes or (STORES_RESULT.get() and cluster is None):
        evaluations = _with_bounds(inputs, evaluations, is_requested=bool(holes))
    if conditions:
        evaluations = [
            replace(e, failed_conditions=tuple(line for c in conditions for line in c.failures(e)))
            for e in evaluations
        ]
    if is_single_run(runs):
        return evaluations[0]
    return Evaluations(tuple(evaluations), inputs.policy)


def _as_list(measures: Any) -> list[Any]:
    from rankproof.measures.registry import Measure

    return [measures] if isinstance(measures, str | Measure) else list(measures)


def _with_bounds(
    inputs: EvaluationInputs, evaluations: Sequence[Evaluation], *, is_requested: bool
) -> list[Evaluation]:
    """Add the bounds over every grade that unjudged documents could have; runs are read again.

    A stored result gets them for a later `gate`, where they are known; only requested ones are
    shown, and an error if they cannot be had.
    """
    from rankproof.commands.inputs import reading
    from rankproof.data import read_run
    from rankproof.unjudged.judged_share import bound_evaluation, check_readable_twice, store_bounds

    if is_requested:
        check_readable_twice(inputs.runs.values())
    elif not _can_be_bounded(inputs):
        return list(evaluations)
    add_bounds = bound_evaluation if is_requested else store_bounds
    bounded = []
    with reading(inputs.runs):
        for evaluation, (name, run) in zip(evaluations, inputs.runs.items(), strict=True):
            table = read_run(run, format=inputs.options.get("input_format"), name=name)
            bounded.append(add_bounds(evaluation, table, inputs.qrels, inputs.measures))
    return bounded


def _can_be_bounded(inputs: EvaluationInputs) -> bool:
    """True if runs can be read whole a second time, and lists keep their unjudged documents."""
    from rankproof.commands.inputs import is_path
    from rankproof.data.sources import is_folder, is_pipe

    paths = [str(run) for run in inputs.runs.values() if is_path(run)]
    in_parts = inputs.options.get("memory") is not None or any(map(is_folder, paths))
    return not (in_parts or inputs.policy.condensed or any(map(is_pipe, paths)))


def _evaluate_on_cluster(inputs: EvaluationInputs, address: str) -> list[Evaluation]:
    """Evaluate on Ray, which prints to standard output when a node dies: nobody reads that."""
    import io
    from contextlib import redirect_stdout

    from rankproof.cluster import connected
    from rankproof.cluster.runs import evaluate_shards
    from rankproof.foundation.progress import progress
    from rankproof.unjudged.judged_share import attach_judged, with_judged

    wanted = with_judged(inputs.measures)
    form: Any = inputs.options.get("input_format")
    with (
        redirect_stdout(io.StringIO()),
        connected(address),
        progress("evaluating", len(inputs.runs)),
    ):
        evaluations = [
            evaluate_shards(run, inputs.qrels, wanted, inputs.policy, name=name, format=form)
            for name, run in inputs.runs.items()
        ]
    return [attach_judged(evaluation, inputs.measures) for evaluation in evaluations]
