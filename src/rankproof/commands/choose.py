"""`choose`: from a prepared folder to what to deploy, and a page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Literal

from rankproof.commands.options import CHOOSING, Offline
from rankproof.commands.registry import Option, command

if TYPE_CHECKING:
    from rankproof.projects.choosing import Chosen


@command(group="RAG", needs=CHOOSING, replay="it holds none that follows from its inputs alone")
def choose(
    folder: Annotated[
        str | os.PathLike[str],
        Option(metavar="FOLDER", positional=True),
        "What `rankproof init` prepared.",
    ],
    *,
    sla_ms: Annotated[float | None, Option(minimum=0), "Best quality within this latency."] = None,
    budget: Annotated[
        float | None,
        Option(minimum=0),
        "Best quality within this many US dollars per 1,000 queries.",
    ] = None,
    quality: Annotated[
        float | None, Option(minimum=0), "Least latency, then cost, at this quality."
    ] = None,
    judge: Annotated[
        Literal["simulated"] | None,
        "Only to try the command out: its scores are evidence of nothing.",
    ] = None,
    yes: Annotated[bool, "Agree to the announced cost."] = False,
    offline: Offline = False,
) -> Chosen:
    """Judge, sweep, recommend and report: from a prepared folder to a configuration to deploy.

    The cost is announced before anything is sent, and you agree or not. Stop it at any time and run
    it again: it resumes, and nothing is paid for twice.

    $ rankproof choose handbook-rankproof
    $ rankproof choose handbook-rankproof --sla-ms 350 --yes
    $ rankproof choose handbook-rankproof --judge simulated

    >>> chosen = rp.choose("try/corpus", judge="simulated", sla_ms=1000)
    >>> chosen.recommendation.feasible, chosen.report.name
    (True, 'report.html')
    """
    from rankproof.foundation.model_hub import go_offline
    from rankproof.projects.choosing import choose as judge_sweep_and_recommend

    go_offline(offline)
    return judge_sweep_and_recommend(
        os.fspath(folder), sla_ms=sla_ms, budget=budget, quality=quality, judge=judge, yes=yes
    )
