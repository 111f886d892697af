"""Latency under load: queries arrive at a rate, whether or not earlier ones were answered.

    latency of a query = time of its answer − scheduled time of its arrival

Arrivals never wait for answers (open loop), so that a slow engine cannot slow its own load down and
hide its queue. A query that was not answered in time counts with the time until then: percentiles
are never too low. A query that failed is an error and has no latency.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.config import Seconds, Settings
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import write_atomically
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import advance

_ENOUGH_ARRIVALS = 59  # for a p95: .95^59 is .05

Rate = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
Ask = Callable[[int], object]  # answers a question, given its index


class Engine(NamedTuple):
    """A first stage to drive."""

    name: str
    key: str  # digest of all that decides its times
    ask: Ask


class LoadSettings(Settings):
    """Queries per second, and for how long."""

    qps: list[Rate]
    seconds: Seconds = 20.0
    arrivals: Literal["poisson", "fixed"] = "poisson"
    sla_ms: Seconds = 350.0
    at_once: Annotated[int, Field(ge=1, le=1024)] = 64  # most queries running at the same time
    patience_s: Seconds = 30.0  # after the last arrival

    @field_validator("qps")
    @classmethod
    def _sort_rates(cls, value: list[float]) -> list[float]:
        if not value or len(set(value)) < len(value):
            raise InputError("no rate, or one twice", remedy="list each rate once: [1, 10, 50]")
        return sorted(value)


class Clock(Protocol):
    """Tells and waits for times, in seconds."""

    def now(self) -> float: ...

    def wait_until(self, moment: float) -> None: ...


class WallClock:
    """The real clock."""

    def now(self) -> float:
        """Seconds from an arbitrary moment."""
        return time.perf_counter()

    def wait_until(self, moment: float) -> None:
        """Sleep until a moment; return at once if it has passed."""
        if (remaining := moment - time.perf_counter()) > 0:
            time.sleep(remaining)


@dataclass(frozen=True, slots=True)
class Driven:
    """What happened to each of n queries that arrived."""

    arrival: Float  # (n,) seconds from the beginning
    latency: Float  # (n,) seconds from the arrival; of lost queries, until waiting ended
    queue_wait: Float  # (n,) seconds between arrival and start
    failed: Bool  # (n,)
    lost: Bool  # (n,) not answered in time


@dataclass(frozen=True, slots=True)
class Loaded:
    """Latencies and failures of one engine at one rate: a row of load.parquet."""

    engine: str
    qps: float
    arrivals: int
    answered: int
    errors: int
    lost: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    late_p95_ms: float | None  # of the wait for a free worker
    within_sla: bool


def arrival_times(settings: LoadSettings, rate: float, seed: int) -> Float:
    """Return arrival times in seconds: evenly spaced, or drawn from a Poisson process."""
    count = max(1, round(rate * settings.seconds))
    if settings.arrivals == "fixed":
        return np.arange(count) / rate
    draws = np.random.default_rng([seed, round(1000 * rate)])
    times: Float = np.cumsum(draws.exponential(1 / rate, 2 * count + 20))
    return times[: max(1, int(np.searchsorted(times, settings.seconds)))]


def drive(
    ask: Ask, questions: Int, arrival: Float, executor: Executor, clock: Clock, patience_s: float
) -> Driven:
    """Ask `questions[i]` at `arrival[i]` seconds, whether or not earlier ones were answered."""
    count = len(arrival)
    latency, queue_wait = np.full(count, np.nan), np.full(count, np.nan)
    failed = np.zeros(count, np.bool_)
    started = clock.now()

    def ask_one(at: int) -> None:
        queue_wait[at] = clock.now() - started - arrival[at]
        try:
            ask(int(questions[at]))
        except Exception:
            failed[at] = True
        latency[at] = clock.now() - started - arrival[at]

    futures = []
    for at, moment in enumerate(arrival):
        clock.wait_until(started + float(moment))
        futures.append(executor.submit(ask_one, at))
    _, pending = wait(futures, timeout=patience_s)
    for future in pending:
        future.cancel()
    ended = clock.now() - started
    # Copies: calls that are still running write to the arrays.
    latency, queue_wait, failed = latency.copy(), queue_wait.copy(), failed.copy()
    lost: Bool = np.isnan(latency)
    latency[lost] = ended - arrival[lost]
    queue_wait = np.where(np.isnan(queue_wait), ended - arrival, queue_wait)
    return Driven(arrival, latency, queue_wait, failed & ~lost, lost)


def summarize_load(engine: str, rate: float, driven: Driven, sla_ms: float) -> Loaded:
    """Return percentiles at a rate; within the SLA if 95% of all arrivals succeed in time."""
    latencies = driven.latency[~driven.failed]
    p50, p95, p99 = (
        1000 * float(np.quantile(latencies, share)) if len(latencies) else None
        for share in (0.5, 0.95, 0.99)
    )
    answered = ~driven.failed & ~driven.lost
    timely = answered & (1000 * driven.latency <= sla_ms)
    return Loaded(
        engine=engine,
        qps=rate,
        arrivals=len(driven.arrival),
        answered=int(answered.sum()),
        errors=int(driven.failed.sum()),
        lost=int(driven.lost.sum()),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        late_p95_ms=1000 * float(np.quantile(driven.queue_wait, 0.95)),
        within_sla=bool(timely.mean() >= 0.95),
    )


def drive_all(
    engines: Sequence[Engine],
    count: int,
    settings: LoadSettings,
    seed: int,
    file: Path,
    clock: Clock | None = None,
    executor: Callable[[int], Executor] = ThreadPoolExecutor,
) -> pl.DataFrame:
    """Drive each engine at each rate; return a row for each, also written to `file`.

    `count` is the number of questions. A row that the file has is not measured again.
    """
    clock = clock or WallClock()
    stored = {row["key"]: row for row in _read_rows(file)}
    rows: list[dict[str, Any]] = []
    for engine, rate in product(engines, settings.qps):
        key = f"{engine.key} {rate:g}"
        if key not in stored:
            arrival = arrival_times(settings, rate, seed)
            order = np.random.default_rng(seed).integers(0, count, len(arrival))
            pool = executor(settings.at_once)
            try:
                engine.ask(int(order[0]))  # so that connections are open
                driven = drive(engine.ask, order, arrival, pool, clock, settings.patience_s)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
            loaded = summarize_load(engine.name, rate, driven, settings.sla_ms)
            stored[key] = {"key": key, **asdict(loaded)}
            frame = pl.DataFrame([*rows, stored[key]], infer_schema_length=None)
            write_atomically(file, frame.write_parquet)
        rows.append({**stored[key], "engine": engine.name})
        advance()
    frame = pl.DataFrame(rows, infer_schema_length=None)
    write_atomically(file, frame.write_parquet)
    return frame


def _read_rows(file: Path) -> list[dict[str, Any]]:
    try:
        return pl.read_parquet(file).to_dicts() if file.is_file() else []
    except (pl.exceptions.PolarsError, OSError):  # damaged: measured again
        return []


def describe_load(frame: pl.DataFrame, sla_ms: float) -> list[str]:
    """Say at which rate each engine exceeds the SLA, and where too few arrivals support that."""
    lines = []
    for (engine,), rows in frame.group_by("engine", maintain_order=True):
        rows = rows.sort("qps")
        is_within = rows["within_sla"].to_list()
        rates = [f"{rate:g} {'query' if rate == 1 else 'queries'} a second" for rate in rows["qps"]]
        first_miss = is_within.index(False) if False in is_within else None
        if first_miss is None:
            words = f"keeps its p95 within {sla_ms:g} ms up to {rates[-1]}"
        elif first_miss == 0:
            words = f"passes {sla_ms:g} ms at {rates[0]} already"
        else:
            last_kept = f"{rows['qps'][first_miss - 1]:g}"
            words = f"passes {sla_ms:g} ms between {last_kept} and {rates[first_miss]}"
        arrivals = rows["arrivals"][first_miss - 1] if first_miss else rows["arrivals"][-1]
        if first_miss != 0 and arrivals < _ENOUGH_ARRIVALS:
            count = plural(arrivals, "arrival")
            words += f", as far as {count} can tell: a p95 takes {_ENOUGH_ARRIVALS}"
        lines.append(f"{engine} {words}.")
    return lines
