"""`leaderboard`: many runs in one table, and which of them differ significantly."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from rankproof.commands.options import (
    DEFAULT_MEASURES,
    ComparisonOptions,
    Holes,
    JudgedQrels,
    Measures,
    Seed,
)
from rankproof.commands.registry import Option, Output, Source, command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankproof.comparison.leaderboard import Leaderboard
    from rankproof.data import RunLike


def _expand(paths: list[str], arguments: Mapping[str, Any]) -> list[str]:
    from rankproof.commands.inputs import resolve_row
    from rankproof.comparison.leaderboard import expand

    return expand([resolve_row(path) for path in paths], arguments.get("qrels"))


@command(
    group="Compare",
    outputs=[
        Output("plot", "chart_file", "Draw ranks and intervals: .svg or .html.", (".svg", ".html"))
    ],
)
def leaderboard(
    qrels: JudgedQrels,
    runs: Annotated[
        str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, RunLike],
        Source("RUN...", expand=_expand),
        "Runs: files, folders, globs or rows of a sweep (FOLDER::ROW).",
    ],
    measures: Measures = DEFAULT_MEASURES,
    *,
    baseline: Annotated[
        str, Option(metavar="RUN"), "Compare every run with this one instead of the best."
    ] = "",
    letters: Annotated[
        bool, "Mark by letters which runs each run is significantly better than."
    ] = False,
    seed: Seed = 0,
    holes: Holes = None,
    **options: Unpack[ComparisonOptions],
) -> Leaderboard:
    """Rank runs, and mark which are significantly worse than the best.

    The first measure orders the rows. * marks runs that are significantly worse than the best of
    the column; all pairs and measures are tested together, as in `compare`.

    $ rankproof leaderboard qrels.txt runs/
    $ rankproof leaderboard qrels.txt runs/ -m nDCG@10,RR --format latex --caption
    $ rankproof leaderboard qrels.txt runs/ -m nDCG@10 --baseline bm25

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> rp.leaderboard("try/qrels.txt", runs, ["nDCG@5", "RR"]).runs
    ('b', 'a')
    """
    from rankproof.commands.inputs import EvaluationInputs
    from rankproof.comparison.leaderboard import rank_evaluations

    if not isinstance(runs, Mapping):
        paths = [runs] if isinstance(runs, str | os.PathLike) else list(runs)
        if all(isinstance(path, str | os.PathLike) for path in paths):
            runs = _expand([os.fspath(path) for path in paths], {"qrels": qrels})
    inputs = EvaluationInputs.of("leaderboard", qrels, runs, measures, options)
    evaluations, view = inputs.evaluate(holes=holes)
    return rank_evaluations(
        evaluations,
        seed=seed,
        baseline=baseline,
        letters=letters,
        groups=inputs.groups,
        view=view,
    )
