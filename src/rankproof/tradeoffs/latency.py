"""How long each stage takes for a single query.

Times of single calls are noisy and calls over a network cost money. So stages are timed in turn,
query by query, and a disturbance of the machine affects all alike; the first calls warm up and are
not counted. Each time is stored at once, and a resumed sweep repeats no call.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path
from typing import Literal

import numpy as np

from rankproof.foundation.arrays import Array, Float
from rankproof.foundation.database import connect, explain_database_errors, write_ahead
from rankproof.foundation.progress import advance
from rankproof.retrieval.protocols import Retrieved
from rankproof.statistics.intervals import CONFIDENCE
from rankproof.tradeoffs.plan import LatencySettings

Kind = Literal["rewrite", "embed", "retrieve", "rerank"]
KINDS: tuple[Kind, ...] = ("rewrite", "embed", "retrieve", "rerank")


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of answering a query.

    `prepare` takes the query's index, makes the inputs ready, and returns the call to time.
    """

    key: str
    kind: Kind
    prepare: Callable[[int], Callable[[], object]]
    network: bool = False  # called once per query and never to warm up: calls cost money
    keeps: bool = False  # keeps passages in memory: every query is asked once before timing


class Times:
    """Seconds by stage, query and repeat, in a database."""

    def __init__(self, path: Path):
        """Open or create the database."""
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
        self, stages: Sequence[Stage], queries: Sequence[int], settings: LatencySettings
    ) -> float:
        """Time what is not stored yet; return the seconds spent inside the stages."""
        with self._open() as base:
            stored = {tuple(row) for row in base.execute("SELECT stage, query, repeat FROM time")}
            spent = 0.0
            for stage in stages:
                turns = product(queries, range(_repeats(stage, settings)))
                if any((stage.key, query, repeat) not in stored for query, repeat in turns):
                    spent += _warm_up(stage, queries, settings)
            for repeat, (turn, query) in product(range(settings.repeats), enumerate(queries)):
                for at in range(len(stages)):
                    stage = stages[(at + turn) % len(stages)]  # no stage always follows the same
                    advance()
                    is_due = repeat < _repeats(stage, settings)
                    if is_due and (stage.key, query, repeat) not in stored:
                        seconds, whole = _seconds(stage, query)
                        spent += whole
                        base.execute(
                            "INSERT OR REPLACE INTO time VALUES (?, ?, ?, ?)",
                            (stage.key, query, repeat, seconds),
                        )
        return spent

    def read(self, key: str, queries: Sequence[int], repeats: int) -> Float:
        """Return (queries, repeats) seconds of a stage; one timed once is repeated."""
        with self._open() as base:
            rows = base.execute(
                "SELECT query, repeat, seconds FROM time WHERE stage = ? ORDER BY repeat", (key,)
            ).fetchall()
        by_query: dict[int, list[float]] = {}
        for query, _, seconds in rows:
            by_query.setdefault(query, []).append(seconds)
        return np.array([list(islice(cycle(by_query[query]), repeats)) for query in queries])


def _repeats(stage: Stage, settings: LatencySettings) -> int:
    return 1 if stage.network else settings.repeats


def _warm_up(stage: Stage, queries: Sequence[int], settings: LatencySettings) -> float:
    """Call a local stage a few times; return the seconds that took."""
    if stage.network:
        return 0.0
    first = len(queries) if stage.keeps else settings.warmup
    return sum(_seconds(stage, query)[1] for query in queries[:first])


def _seconds(stage: Stage, query: int) -> tuple[float, float]:
    """Return the seconds of a query, which an index measures itself, and of the whole call."""
    call = stage.prepare(query)
    started = time.perf_counter()
    result = call()
    whole = time.perf_counter() - started
    return float(result.seconds.sum()) if isinstance(result, Retrieved) else whole, whole


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds per query of one configuration."""

    p50: float
    p95: float
    jitter: float  # 95% of repeats are within this of their query's median
    stages: dict[Kind, tuple[float, float]]  # p50 and p95 of each kind
    p95_low: float | None = None  # ends at 95% each, for any distribution; None: too few queries
    p95_high: float | None = None
    local_seconds: float = 0.0  # mean seconds on this machine


def summarize_times(by_kind: dict[Kind, Float], repeats: int) -> Latency:
    """Return percentiles of the sum of all stages, each (queries, repeats) seconds."""
    total: Array = np.sum(list(by_kind.values()), axis=0)
    deviation = np.abs(total - np.median(total, axis=1, keepdims=True))
    jitter = float(np.quantile(deviation, 0.95)) if repeats > 1 else 0.0
    low, high = quantile_ends(np.median(total, axis=1), 0.95)
    p95 = _quantile(total, 0.95)
    return Latency(
        p50=1000.0 * _quantile(total, 0.5),
        p95=1000.0 * p95,
        jitter=1000.0 * jitter,
        stages={
            kind: (1000.0 * _quantile(seconds, 0.5), 1000.0 * _quantile(seconds, 0.95))
            for kind, seconds in by_kind.items()
        },
        p95_low=None if low is None else 1000.0 * min(low, p95),
        p95_high=None if high is None else 1000.0 * max(high, p95),
    )


def quantile_ends(values: Array, share: float) -> tuple[float | None, float | None]:
    """Return the order statistics that enclose a quantile, each end with 95% confidence.

    Of n queries the number below the quantile is binomial: x_(i) is below it where
    P(at least i of n below) ≥ .95, x_(j) above it where P(at most j − 1 below) ≥ .95.
    """
    n = len(values)
    ordered = np.sort(values)
    log_ways = np.cumsum([0.0, *(math.log((n - i) / (i + 1)) for i in range(n))])  # log C(n, i)
    count = np.arange(n + 1)
    chance = np.exp(log_ways + count * math.log(share) + (n - count) * math.log1p(-share))
    at_most = np.cumsum(chance)  # at_most[i] = P(at most i values below the quantile)
    lower = np.flatnonzero(1.0 - np.concatenate([[0.0], at_most[:-1]]) >= CONFIDENCE - 1e-12)
    upper = np.flatnonzero(at_most[:-1] >= CONFIDENCE - 1e-12)  # x_(i+1), i from 0
    low, high = int(lower[-1]), int(upper[0]) if len(upper) else n
    return (
        float(ordered[low - 1]) if low >= 1 else None,
        float(ordered[high]) if high < n else None,
    )


def _quantile(values: Array, share: float) -> float:
    return float(np.quantile(values, share))
