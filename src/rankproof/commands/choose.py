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
        Literal["simulated"] | None, "To try things out only: it is evidence of nothing."
    ] = None,
    yes: Annotated[bool, "Agree to the cost that is said beforehand."] = False,
    offline: Offline = False,
) -> Chosen:
    """Judge, sweep, recommend and report in one run that can be stopped at any time.

    What it will cost is said, and asked about, before anything is sent. Run the same command again
    and it goes on: nothing that was answered is asked twice.

    $ rankproof choose handbook-rankproof
    $ rankproof choose handbook-rankproof --sla-ms 350 --yes

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
