"""`leaderboard`: many runs in one table, and which of them differ significantly."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Unpack, overload

from rankproof.commands.options import (
    DEFAULT_MEASURES,
    ComparisonOptions,
    Holes,
    JudgedQrels,
    Measures,
    Seed,
    Tasks,
    replay_without_tasks,
)
from rankproof.commands.registry import Option, Output, Source, command

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rankproof.commands.inputs import EvaluationInputs
    from rankproof.commands.tasks import TasksLike
    from rankproof.comparison.label_agreement import LabelAgreement
    from rankproof.comparison.leaderboard import Leaderboard
    from rankproof.comparison.tasks import Collection
    from rankproof.data import QrelsLike
    from rankproof.measures.registry import Measure


def _expand(paths: list[str], arguments: Mapping[str, Any]) -> list[str]:
    from rankproof.commands.inputs import resolve_row
    from rankproof.comparison.leaderboard import expand

    return expand([resolve_row(path) for path in paths], arguments.get("qrels"))


@overload
def leaderboard(
    qrels: QrelsLike,
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Any],
    measures: str | Measure | Iterable[str | Measure] = ...,
    *,
    baseline: str = ...,
    letters: bool = ...,
    seed: int = ...,
    holes: bool | None = ...,
    **options: Unpack[ComparisonOptions],
) -> Leaderboard: ...


@overload
def leaderboard(
    qrels: str | os.PathLike[str] | None = ...,
    *,
    measures: str | Measure | Iterable[str | Measure] = ...,
    tasks: TasksLike = ...,
    seed: int = ...,
    **options: Unpack[ComparisonOptions],
) -> Collection: ...


@overload
def leaderboard(
    qrels: QrelsLike,
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Any],
    measures: str | Measure | Iterable[str | Measure] = ...,
    *,
    against: QrelsLike,
    seed: int = ...,
    **options: Unpack[ComparisonOptions],
) -> LabelAgreement: ...


@command(
    group="Compare",
    replay=replay_without_tasks,
    outputs=[
        Output("plot", "chart_file", "Draw ranks and intervals: .svg or .html.", (".svg", ".html"))
    ],
)
def leaderboard(
    qrels: JudgedQrels = None,
    runs: Annotated[
        str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Any],
        Source("RUN...", expand=_expand),
        "Runs: files, folders, globs or rows of a sweep (FOLDER::ROW).",
    ] = (),
    measures: Measures = DEFAULT_MEASURES,
    *,
    tasks: Tasks = None,
    baseline: Annotated[
        str, Option(metavar="RUN"), "Compare every run with this one instead of the best."
    ] = "",
    letters: Annotated[
        bool, "Mark by letters which runs each run is significantly better than."
    ] = False,
    against: Annotated[
        QrelsLike | None,
        Source("OTHER_QRELS", "against"),
        "Other judgments, such as a judge's: say how far they rank the runs as QRELS do.",
    ] = None,
    seed: Seed = 0,
    holes: Holes = None,
    **options: Unpack[ComparisonOptions],
) -> Any:
    """Rank runs, and mark which are significantly worse than the best.

    The first measure orders the rows. * marks runs that are significantly worse than the best of
    the column; all pairs and measures are tested together, as in `compare`.

    $ rankproof leaderboard qrels.txt runs/
    $ rankproof leaderboard qrels.txt runs/ -m nDCG@10,RR --format latex --caption
    $ rankproof leaderboard qrels.txt runs/ -m nDCG@10 --baseline bm25
    $ rankproof leaderboard human.txt runs/ --against judge.txt
    $ rankproof leaderboard --task nq=q1.txt,a.trec,b.trec --task fiqa=q2.txt,a.trec

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> rp.leaderboard("try/qrels.txt", runs, ["nDCG@5", "RR"]).runs
    ('b', 'a')
    """
    from rankproof.commands.inputs import EvaluationInputs, check_runs_named
    from rankproof.commands.tasks import evaluate_tasks, find_tasks
    from rankproof.comparison.leaderboard import rank_evaluations

    if collections := find_tasks(tasks, qrels, runs):
        return evaluate_tasks("leaderboard", collections, measures, options, seed=seed)
    check_runs_named("leaderboard", qrels, runs)
    if not isinstance(runs, Mapping):
        paths = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
        if all(isinstance(path, str | os.PathLike) for path in paths):
            runs = _expand([os.fspath(path) for path in paths], {"qrels": qrels})
    inputs = EvaluationInputs.of("leaderboard", qrels, runs, measures, options)
    if against is not None:
        return _rank_against(inputs, against, seed)
    evaluations, view = inputs.evaluate(holes=holes)
    return rank_evaluations(
        evaluations,
        seed=seed,
        baseline=baseline,
        letters=letters,
        groups=inputs.groups,
        view=view,
    )


def _rank_against(inputs: EvaluationInputs, against: Any, seed: int) -> LabelAgreement:
    """Return how far other judgments rank the runs as those of the inputs do."""
    from rankproof.comparison.label_agreement import compare_labels
    from rankproof.foundation.errors import InputError

    if inputs.options.get("human") is not None:
        raise InputError(
            "--human beside --against", remedy="name annotators' labels as QRELS, the judge's there"
        )
    others, rescaled, _ = inputs.annotators(against)
    evaluations, _ = inputs.evaluate()
    relabeled, _ = others.evaluate(measures=list(dict.fromkeys(rescaled.values())))
    names = (inputs.qrels.name, others.qrels.name)
    if names[0] == names[1]:
        names = (f"{names[0]} (1)", f"{names[1]} (2)")
    return compare_labels(evaluations, relabeled, rescaled, names, seed=seed, groups=inputs.groups)
