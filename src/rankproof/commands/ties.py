"""`ties`: how many documents of a run share a score, and at which ranks that matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Unpack

from rankproof.commands.options import MemoryOptions, Runs, ScoreType
from rankproof.commands.registry import Option, command

if TYPE_CHECKING:
    from rankproof.evaluation.tie_counts import TieReport


@command(group="Evaluate")
def ties(
    runs: Runs,
    *,
    at: Annotated[Sequence[int], Option(metavar="K,K,...", minimum=1), "Cutoffs."] = (
        *(1, 3, 5, 10, 20, 50, 100, 1000),
    ),
    score_dtype: Annotated[
        ScoreType | None,
        Option(default_text="as they come"),
        "Round scores to this format before comparing them.",
    ] = None,
    input_format: Annotated[str | None, Option(metavar="FORMAT"), "Format of the runs."] = None,
    **options: Unpack[MemoryOptions],
) -> TieReport:
    """Count ties: distinct scores and group sizes at cutoffs, and how often a tie crosses them.

    $ rankproof ties run.trec
    $ rankproof ties run.trec --score-dtype bfloat16 --at 10,100

    >>> round(rp.ties("try/saturated.trec", at=[5]).runs[0].at[0].crossed, 4)
    0.9333
    """
    from rankproof.commands.inputs import name_runs, reading
    from rankproof.evaluation.tie_counts import TieReport, tie_statistics

    cutoffs = sorted(set(at))
    named = name_runs(runs)
    with reading(named):
        statistics = [
            tie_statistics(
                run,
                cutoffs,
                score_dtype=score_dtype,
                name=name,
                format=input_format,
                **options,
            )
            for name, run in named.items()
        ]
    return TieReport(tuple(statistics))
