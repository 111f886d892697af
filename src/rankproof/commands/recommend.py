"""`recommend`: which configuration to deploy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from rankproof.commands.options import COMPONENT_SETTINGS, Seed
from rankproof.commands.registry import Option, Source, command

if TYPE_CHECKING:
    from rankproof.tradeoffs.recommend import Recommendation


@command(group="RAG", needs=COMPONENT_SETTINGS)
def recommend(
    results: Annotated[
        Any,
        Source("RESULTS", "results"),
        "A sweep's folder, or a table of configurations (.parquet, .csv).",
    ],
    *,
    sla_ms: Annotated[float | None, Option(minimum=0), "Best quality within this latency."] = None,
    budget: Annotated[
        float | None,
        Option(minimum=0),
        "Best quality within this cost per 1,000 queries, in the currency of the prices.",
    ] = None,
    quality: Annotated[
        float | None, Option(minimum=0), "Least latency, then cost, at this quality."
    ] = None,
    memory_mb: Annotated[
        float | None, Option(minimum=0), "Best quality within this much memory."
    ] = None,
    measure: Annotated[
        str | None,
        Option(("-m", "--measure"), default_text="what the sweep chose by, else RAnWG@10"),
        "The quality; RAnWG@prompt scores each configuration at its own prompt.",
    ] = None,
    latency: Annotated[Literal["p50", "p95"], "The percentile that --sla-ms limits."] = "p95",
    jitter_ms: Annotated[
        float | None,
        Option(minimum=0, default_text="75 over a network, else as measured"),
        "Latencies that differ by no more count as equal.",
    ] = None,
    seed: Seed = 0,
) -> Recommendation:
    """Say which configuration of a sweep to deploy, within limits or without.

    The chosen configuration is compared with all others within the limits: each is worse, or not
    significantly worse. Exit code 1 if nothing is within the limits. --wide and CSV have every
    configuration and what each larger pool adds; --explain has the choice of each limit alone.

    $ rankproof recommend swept
    $ rankproof recommend swept --sla-ms 350
    $ rankproof recommend swept --quality 0.8 --budget 2

    >>> _ = rp.choose("try/corpus", judge="simulated")
    >>> rp.recommend("try/corpus/swept-simulated", sla_ms=1000).feasible
    True
    """
    from rankproof.tradeoffs.recommend import recommend as recommend_configuration

    return recommend_configuration(
        results,
        sla_ms=sla_ms,
        budget=budget,
        quality=quality,
        memory_mb=memory_mb,
        measure=measure,
        latency=latency,
        jitter_ms=jitter_ms,
        seed=seed,
    )
