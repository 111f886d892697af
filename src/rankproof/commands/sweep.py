"""`sweep`: every configuration of a grid, with its quality, ceiling, latency and cost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

from rankproof.commands.options import RETRIEVAL, Offline
from rankproof.commands.registry import Option, Source, command

if TYPE_CHECKING:
    from rankproof.tradeoffs.plan import SweepPlan
    from rankproof.tradeoffs.sweep import Swept


@command(
    group="RAG",
    needs=RETRIEVAL,
    replay="a sweep measures times, which no two runs share",
)
def sweep(
    config: Annotated[
        Any,
        Source("CONFIG", "config"),
        "A YAML file that says what to sweep.",
    ],
    out: Annotated[
        str | os.PathLike[str] | None,
        Option(metavar="FOLDER", default_text="CONFIG-results"),
        "Folder of the results.",
    ] = None,
    *,
    plan: Annotated[bool, "List the configurations; run and send nothing."] = False,
    offline: Offline = False,
) -> Swept | SweepPlan:
    """Measure quality, latency and cost of every configuration of a grid on one corpus.

    Rewriter × embedder × dimensions × index × mode × fusion × duplicates × pool × reranker ×
    prompt. What configurations share is computed once and kept in the folder; a stopped sweep
    resumes from there.

    $ rankproof sweep sweep.yaml --plan
    $ rankproof sweep sweep.yaml --out swept
    $ rankproof sweep sweep.yaml --out swept --wide

    >>> from pathlib import Path
    >>> from rankproof.tradeoffs.plan import SweepSettings
    >>> settings = SweepSettings(corpus=Path("try/corpus"), modes=["sparse"], pools=[30])
    >>> rp.sweep(settings, "swept").configurations["configuration"].to_list()
    ['sparse K=30 top 10']
    """
    from pathlib import Path

    from rankproof.foundation.config import read_config
    from rankproof.foundation.model_hub import go_offline
    from rankproof.tradeoffs.plan import SweepPlan, SweepSettings

    go_offline(offline)
    name, settings = "sweep", config
    if not isinstance(config, SweepSettings):
        name, settings = Path(config).stem, read_config(config, SweepSettings)
    if plan:
        return SweepPlan.of(settings)
    from rankproof.tradeoffs.sweep import sweep as sweep_corpus

    folder, judge = Path(f"{name}-results" if out is None else out), None
    if settings.judge is not None:
        from rankproof.golden.passage_grading import hole_grader

        judge = hole_grader(settings, folder)
    return sweep_corpus(settings, folder, judge=judge)
