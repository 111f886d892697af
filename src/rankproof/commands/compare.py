"""`compare`: which run is better, and whether ties, chance or unjudged documents decide that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Unpack, overload

from rankproof.commands.options import (
    DEFAULT_MEASURES,
    ComparisonOptions,
    Holes,
    JudgedQrels,
    Measures,
    Runs,
    Seed,
    Tasks,
    replay_without_tasks,
)
from rankproof.commands.registry import Option, command

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    from rankproof.commands.tasks import TasksLike
    from rankproof.comparison.pairs import Comparison
    from rankproof.comparison.tasks import Collection
    from rankproof.data import QrelsLike, RunLike
    from rankproof.measures.registry import Measure


@overload
def compare(
    qrels: QrelsLike,
    runs: RunLike | Sequence[RunLike] | Mapping[str, Any],
    measures: str | Measure | Iterable[str | Measure] = ...,
    *,
    seed: int = ...,
    t_test: bool = ...,
    equal: float | None = ...,
    holes: bool | None = ...,
    **options: Unpack[ComparisonOptions],
) -> Comparison: ...


@overload
def compare(
    qrels: str | os.PathLike[str] | None = ...,
    *,
    measures: str | Measure | Iterable[str | Measure] = ...,
    tasks: TasksLike = ...,
    seed: int = ...,
    equal: float | None = ...,
    **options: Unpack[ComparisonOptions],
) -> Collection: ...


@command(group="Compare", replay=replay_without_tasks)
def compare(
    qrels: JudgedQrels = None,
    runs: Runs = (),
    measures: Measures = DEFAULT_MEASURES,
    *,
    tasks: Tasks = None,
    seed: Seed = 0,
    t_test: Annotated[bool, "Add the p of Student's paired t-test."] = False,
    equal: Annotated[
        float | None,
        Option(metavar="DIFFERENCE"),
        "Call runs equal whose difference is shown to be smaller than this.",
    ] = None,
    holes: Holes = None,
    **options: Unpack[ComparisonOptions],
) -> Any:
    """Say which run is better, and whether chance, ties or unjudged documents decide that.

    Every pair of runs has one verdict on each measure: ahead, behind, equal or undecided. Its 95%
    interval is over queries, and holds for all pairs and measures of the call together. p is from a
    paired randomization test. --wide and CSV have every value.

    $ rankproof compare qrels.txt a.trec b.trec
    $ rankproof compare qrels.txt a.trec b.trec -m nDCG@5,RR --equal 0.01
    $ rankproof compare qrels.txt a.trec b.trec c.trec --groups groups.tsv --format csv

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> comparison = rp.compare("try/qrels.txt", runs, ["nDCG@5"])
    >>> difference = comparison.pairs[0].measures[rp.nDCG @ 5]
    >>> round(difference.oblivious, 3), round(difference.expected, 3)
    (0.053, -0.11)
    """
    from rankproof.commands.inputs import EvaluationInputs, check_runs_named
    from rankproof.commands.tasks import evaluate_tasks, find_tasks
    from rankproof.comparison.differences import Tests
    from rankproof.comparison.pairs import check_two_runs, compare_evaluations
    from rankproof.foundation.progress import progress

    if collections := find_tasks(tasks, qrels, runs):
        return evaluate_tasks(
            "compare", collections, measures, options, seed=seed, equal_within=equal
        )
    check_runs_named("compare", qrels, runs)
    inputs = EvaluationInputs.of("compare", qrels, runs, measures, options)
    check_two_runs(inputs.runs)
    evaluations, view = inputs.evaluate(holes=holes)
    with progress("testing", 1.0):
        tests = Tests(seed=seed, t_test=t_test, equal_within=equal)
        return compare_evaluations(evaluations, tests, groups=inputs.groups, view=view)
