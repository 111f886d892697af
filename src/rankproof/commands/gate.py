"""`gate`: a verdict for continuous integration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack, cast, overload

from rankproof.commands.options import (
    MAIN_MEASURE,
    ComparisonOptions,
    JudgedQrels,
    Seed,
    replay_without_tasks,
)
from rankproof.commands.registry import Option, Output, Source, command
from rankproof.commands.tasks import find_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rankproof.commands.inputs import EvaluationInputs
    from rankproof.commands.tasks import TasksLike
    from rankproof.comparison.gate import Gate
    from rankproof.comparison.gate_inputs import Side
    from rankproof.comparison.gate_plan import GatePlan
    from rankproof.comparison.task_gate import TaskGate
    from rankproof.measures.registry import Measure


def _expand_pattern(paths: list[str], arguments: Mapping[str, Any]) -> list[str]:
    """Replace a pattern by its files; a folder stays."""
    from rankproof.comparison.leaderboard import expand

    return [f for path in paths for f in ([path] if Path(path).is_dir() else expand([path]))]


@overload
def gate(
    qrels: object,
    baseline: object,
    candidate: object = ...,
    measures: str | Measure | Iterable[str | Measure] | Mapping[str | Measure, float] = ...,
    margin: float | Sequence[float] = ...,
    *,
    plan: Literal[True],
    **options: Unpack[ComparisonOptions],
) -> GatePlan: ...


@overload
def gate(
    qrels: object,
    baseline: object,
    candidate: object,
    measures: str | Measure | Iterable[str | Measure] | Mapping[str | Measure, float] = ...,
    margin: float | Sequence[float] = ...,
    *,
    tasks: None = ...,
    allow_undecided: bool = ...,
    seed: int = ...,
    **options: Unpack[ComparisonOptions],
) -> Gate: ...


@overload
def gate(
    qrels: None = ...,
    *,
    measures: str | Measure | Iterable[str | Measure] | Mapping[str | Measure, float] = ...,
    margin: float | Sequence[float] = ...,
    tasks: TasksLike,
    allow_undecided: bool = ...,
    seed: int = ...,
    **options: Unpack[ComparisonOptions],
) -> TaskGate: ...


@command(
    group="Compare",
    replay=replay_without_tasks,
    outputs=[Output("junit", "junit", "Write the verdicts as JUnit XML.")],
)
def gate(
    qrels: JudgedQrels = None,
    baseline: Annotated[
        object,
        Source("BASELINE", "baseline", expand=_expand_pattern),
        "A run, the JSON of an earlier `eval --out` or `gate --out`, or a sweep's folder.",
    ] = None,
    candidate: Annotated[
        object,
        Source("CANDIDATE", "candidate", expand=_expand_pattern),
        "A run, or a sweep's folder. A folder of runs or a quoted pattern names repeats, which are "
        "averaged.",
    ] = None,
    measures: Annotated[
        str | Measure | Iterable[str | Measure] | Mapping[str | Measure, float],
        Option(("-m", "--measure"), "MEASURE,..."),
        "Such as nDCG@10 or AP(rel=2)@100. `rankproof measures` lists them.",
    ] = MAIN_MEASURE,
    margin: Annotated[
        float | Sequence[float],
        Option(metavar="LOSS,..."),
        "The loss that is tolerated: one for all measures, or one for each in order.",
    ] = 0.01,
    *,
    tasks: Annotated[
        Sequence[str] | Mapping[str, tuple[object, object]] | None,
        Option(("--task",), "NAME=QRELS,BASELINE,CANDIDATE,...", is_split=False),
        "A collection, in place of QRELS, BASELINE and CANDIDATE; may be repeated. The mean over "
        "all tasks decides, and no task may be worse.",
    ] = None,
    allow_undecided: Annotated[
        bool, "Exit with 0 instead of 3 if the queries cannot decide."
    ] = False,
    plan: Annotated[
        bool, "Say what margin these queries can decide, before there is a candidate."
    ] = False,
    seed: Seed = 0,
    **options: Unpack[ComparisonOptions],
) -> Any:
    """Say whether a candidate is worse than a baseline, for continuous integration.

    Exit code 0 if every measure passed: the low end of the 95% interval of candidate − baseline is
    above −margin. 1 if one is worse, whatever the unjudged documents are. 3 if it is undecided, as
    it always is for a candidate that was not measured on all queries of the baseline. A summary
    goes to $GITHUB_STEP_SUMMARY if that is set.

    Python: both sides are runs, or results that hold values of every query: the JSON that
    `eval --out` or `gate --out` wrote, a sweep's folder (its best configuration, or
    `folder::configuration`), what `sweep` or `recommend` returned. A list of runs are repeats of
    one system: they are averaged for each query, and the verdict is for them. `measures` may be
    {measure: margin}. The result is true where the candidate passes: `assert rp.gate(…)`.

    $ rankproof gate qrels.txt old.trec new.trec
    $ rankproof gate qrels.txt old.trec new.trec -m nDCG@10,RR --margin 0.02,0.01
    $ rankproof gate qrels.txt old.json new.trec --junit gate.xml
    $ rankproof gate qrels.txt old.trec --plan

    >>> before, after = "try/plain.trec", "try/saturated.trec"
    >>> result = rp.gate("try/qrels.txt", before, after, ["nDCG@5"], margin=0.02)
    >>> result.verdict
    'worse'
    """
    if tasks:
        return _gate_tasks(
            find_tasks(tasks, qrels, baseline),
            measures,
            margin,
            options,
            allow_undecided=allow_undecided,
            seed=seed,
        )
    from rankproof.commands.inputs import EvaluationInputs, check_runs_named
    from rankproof.commands.recording import STORES_RESULT
    from rankproof.comparison.gate import gate_sides, margins_of
    from rankproof.comparison.gate_inputs import with_bounds
    from rankproof.foundation.errors import InputError

    check_runs_named("gate", qrels, () if baseline is None else [baseline])
    inputs = EvaluationInputs.of("gate", qrels, None, measures, options)
    losses = list(measures.values()) if isinstance(measures, Mapping) else margin
    margins = margins_of(inputs.measures, losses)
    if plan:
        return _plan(inputs, baseline, margins)
    if candidate is None:
        raise InputError(
            "no candidate is named", place="gate", remedy="give a run, or --plan without one"
        )
    before, after = (
        _read_side(inputs, source, name)
        for source, name in ((baseline, "baseline"), (candidate, "candidate"))
    )
    if STORES_RESULT.get() or before.evaluation.query_bounds:
        after = with_bounds(after, inputs.qrels)
    return gate_sides(
        inputs.qrels,
        before,
        after,
        margins,
        allow_undecided=allow_undecided,
        seed=seed,
        groups=inputs.groups,
    )


def _gate_tasks(
    tasks: Mapping[str, tuple[Any, Any]],
    measures: Any,
    margin: float | Sequence[float],
    options: Mapping[str, Any],
    *,
    allow_undecided: bool,
    seed: int,
) -> TaskGate:
    """Return the gate over several collections."""
    from rankproof.commands.inputs import EvaluationInputs
    from rankproof.comparison.gate import margins_of
    from rankproof.comparison.task_gate import TaskGate
    from rankproof.comparison.tasks import compare_tasks
    from rankproof.foundation.errors import InputError

    gates: dict[str, Gate] = {}
    groups = {}
    for task, (qrels, sides) in tasks.items():
        runs = list(sides.values()) if isinstance(sides, Mapping) else list(sides)
        if len(runs) != 2:
            raise InputError(
                f"{len(runs)} runs", place=f"task {task}", remedy="name baseline and candidate"
            )
        gates[task] = gate(
            *(qrels, runs[0], runs[1], measures, margin),
            allow_undecided=allow_undecided,
            seed=seed,
            **cast("ComparisonOptions", options),
        )
        if options.get("groups") is not None:
            groups[task] = EvaluationInputs.of("gate", qrels, None, measures, options).groups
    first = next(iter(gates.values()))
    names = (first.candidate, first.baseline)
    evaluations = {
        task: [e.renamed(n) for e, n in zip(g.comparison.evaluations, names, strict=True)]
        for task, g in gates.items()
    }
    losses = list(measures.values()) if isinstance(measures, Mapping) else margin
    return TaskGate(
        gates,
        compare_tasks(evaluations, seed=seed, groups=groups),
        margins_of(list(first.measures), losses),
        allow_undecided,
    )


def _read_side(inputs: EvaluationInputs, source: object, name: str) -> Side:
    """Read one side, with annotators' labels where there are some."""
    from rankproof.comparison.gate_inputs import read_side, with_annotators

    def read(judgments: EvaluationInputs, measures: Sequence[Measure]) -> Side:
        options = judgments.reading_options
        return read_side(source, judgments.qrels, measures, judgments.policy, name, **options)

    side, human = read(inputs, inputs.measures), inputs.options.get("human")
    if human is not None:
        labels, rescaled, unknown = inputs.annotators(human)
        labeled = read(labels, list(dict.fromkeys(rescaled.values())))
        return with_annotators(side, labeled, rescaled, unknown)
    if inputs.options.get("judge"):
        return replace(side, evaluation=replace(side.evaluation, by_judge=True))
    return side


def _plan(inputs: EvaluationInputs, baseline: object, margins: Mapping[Measure, float]) -> GatePlan:
    """Return what the gate could decide with the queries of the baseline, on the first measure."""
    import numpy as np

    from rankproof.comparison.gate_plan import GatePlan
    from rankproof.data.query_groups import number_groups

    measure, margin = next(iter(margins.items()))
    side = _read_side(inputs, baseline, "baseline")
    queries = side.evaluation.query_set(measure).averaged
    groups = number_groups(queries, inputs.groups)
    if groups is None:
        return GatePlan(measure, margin, len(queries), "query")
    return GatePlan(measure, margin, len(np.unique(groups)), "group")
