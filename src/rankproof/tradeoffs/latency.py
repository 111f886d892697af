"""How long each stage takes for a single query.

Stages are timed in turn, query by query, so that what disturbs the machine disturbs all alike; the
first calls warm up and are not counted. Each time is on disk the moment it is known: a call over a
network is paid for, and a sweep that goes on does not make it again.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rankproof.foundation.arrays import Array, Float
from rankproof.foundation.database import connect, explain_database_errors, write_ahead
from rankproof.retrieval.protocols import Retrieved
from rankproof.statistics.intervals import CONFIDENCE
from rankproof.tradeoffs.plan import LatencySettings

Kind = Literal["rewrite", "embed", "retrieve", "rerank"]
KINDS: tuple[Kind, ...] = ("rewrite", "embed", "retrieve", "rerank")


@dataclass(frozen=True, slots=True)
class Stage:
    """Something done for one query.

    `prepare` takes the query's index and returns what is timed: its inputs are ready by then.
    """

    key: str
    kind: Kind
    prepare: Callable[[int], Callable[[], object]]
    network: bool = False  # called once per query and never to warm up: calls are paid for
    keeps: bool = False  # holds passages in memory: each query is asked once before it is timed


class Times:
    """Seconds by stage, query and repeat, in a file."""

    def __init__(self, path: Path):
        self._path = path
        with self._open() as base:
            base.execute(
                "CREATE TABLE IF NOT EXISTS time (stage TEXT, query INTEGER, repeat INTEGER, "
                "seconds REAL, PRIMARY KEY (stage, query, repeat)) WITHOUT ROWID"
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        remedy = "delete the file, and run again"
        with (
            explain_database_errors(self._path, "the times", remedy),
            closing(connect(self._path)) as base,
        ):
            write_ahead(base, "NORMAL")
            yield base

    def measure(
        self,
        stages: Sequence[Stage],
        queries: Sequence[int],
        settings: LatencySettings,
        tell: Callable[[float], None] = lambda _: None,
    ) -> float:
        """Time what is not timed yet; the seconds spent inside the stages."""
        spent = 0.0
        with self._open() as base:
            known = {tuple(row) for row in base.execute("SELECT stage, query, repeat FROM time")}
            open_ = [
                stage
                for stage in stages
                if any(
                    (stage.key, query, repeat) not in known
                    for query in queries
                    for repeat in range(_repeats(stage, settings))
                )
            ]
            for stage in open_:
                first = len(queries) if stage.keeps else settings.warmup
                for query in [] if stage.network else queries[:first]:
                    spent += _seconds(stage, query)[1]
            for repeat in range(settings.repeats):
                for turn, query in enumerate(queries):
                    for at in range(len(stages)):
                        stage = stages[(at + turn) % len(stages)]  # none always follows the same
                        tell(1.0)
                        if repeat >= _repeats(stage, settings):
                            continue
                        if (stage.key, query, repeat) in known:
                            continue
                        seconds, whole = _seconds(stage, query)
                        spent += whole
                        base.execute(
                            "INSERT OR REPLACE INTO time VALUES (?, ?, ?, ?)",
                            (stage.key, query, repeat, seconds),
                        )
        return spent

    def read(self, key: str, queries: Sequence[int], repeats: int) -> Float:
        """(queries, repeats) seconds of a stage; a stage timed once says the same each time."""
        with self._open() as base:
            rows = base.execute(
                "SELECT query, repeat, seconds FROM time WHERE stage = ? ORDER BY repeat", (key,)
            ).fetchall()
        found: dict[int, list[float]] = {}
        for query, _, seconds in rows:
            found.setdefault(query, []).append(seconds)
        return np.array(
            [[found[query][r % len(found[query])] for r in range(repeats)] for query in queries]
        )


def _repeats(stage: Stage, settings: LatencySettings) -> int:
    return 1 if stage.network else settings.repeats


def _seconds(stage: Stage, query: int) -> tuple[float, float]:
    """What a query took, and the whole call; an index says itself how long it searched."""
    call = stage.prepare(query)
    begun = time.perf_counter()
    found = call()
    whole = time.perf_counter() - begun
    return float(found.seconds.sum()) if isinstance(found, Retrieved) else whole, whole


@dataclass(frozen=True, slots=True)
class Latency:
    """What one configuration takes for a query, in milliseconds."""

    p50: float
    p95: float
    jitter: float  # 95% of repeats lie within this of their query's median
    stages: dict[Kind, tuple[float, float]]  # p50 and p95 of each
    p95_low: float | None = None  # 95% each, whatever the distribution; None: too few queries
    p95_high: float | None = None
    local_seconds: float = 0.0  # of this machine, on average


def summarise(parts: dict[Kind, Float], repeats: int) -> Latency:
    """Percentiles of the sum of stages, each (queries, repeats) seconds."""
    total: Array = np.sum(list(parts.values()), axis=0)
    apart = np.abs(total - np.median(total, axis=1, keepdims=True))
    jitter = float(np.quantile(apart, 0.95)) if repeats > 1 else 0.0
    low, high = quantile_ends(np.median(total, axis=1), 0.95)
    p95 = _quantile(total, 0.95)
    return Latency(
        1000.0 * _quantile(total, 0.5),
        1000.0 * p95,
        1000.0 * jitter,
        {
            kind: (1000.0 * _quantile(seconds, 0.5), 1000.0 * _quantile(seconds, 0.95))
            for kind, seconds in parts.items()
        },
        None if low is None else 1000.0 * min(low, p95),
        None if high is None else 1000.0 * max(high, p95),
    )


def quantile_ends(values: Array, share: float) -> tuple[float | None, float | None]:
    """The order statistics between which a quantile lies, each end with 95% confidence.

    Of n queries the number below the quantile is binomial: x_(i) lies below it where
    P(at least i of n below) ≥ .95, x_(j) above it where P(at most j − 1 below) ≥ .95.
    """
    n = len(values)
    ordered = np.sort(values)
    ways = np.cumsum([0.0, *(math.log((n - i) / (i + 1)) for i in range(n))])  # of i of n, its log
    below_it = np.arange(n + 1)
    chance = np.exp(ways + below_it * math.log(share) + (n - below_it) * math.log1p(-share))
    at_most = np.cumsum(chance)  # at_most[i]: so many or fewer lie below
    below = np.flatnonzero(1.0 - np.concatenate([[0.0], at_most[:-1]]) >= CONFIDENCE - 1e-12)
    above = np.flatnonzero(at_most[:-1] >= CONFIDENCE - 1e-12)  # x_(i+1), i from 0
    low, high = int(below[-1]), int(above[0]) if len(above) else n
    return (
        float(ordered[low - 1]) if low >= 1 else None,
        float(ordered[high]) if high < n else None,
    )


def _quantile(values: Array, share: float) -> float:
    return float(np.quantile(values, share))
