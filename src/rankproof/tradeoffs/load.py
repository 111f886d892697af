"""What a service would see: queries that arrive at a rate, whether or not others were answered.

    latency of a query = when it was answered − when it was meant to arrive

An arrival never waits for an answer (open loop), and what an overloaded engine keeps waiting is
counted from when it should have been asked: nothing is omitted because the engine was slow.
Percentiles are over what was answered, and what was not answered in time counts as having taken
until then, so that they are never too low; a query that failed is an error and no latency.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import polars as pl
from pydantic import Field, field_validator

from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.config import Seconds, Settings
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import write_atomically
from rankproof.foundation.phrasing import plural

ENOUGH = 59  # arrivals: .95^59 is .05

Rate = Annotated[float, Field(gt=0, le=100_000, allow_inf_nan=False)]
Ask = Callable[[int], object]  # the answer to a question, by its number
Engine = tuple[str, str, Ask]  # its name, what decides it, how it is asked


class LoadSettings(Settings):
    """Queries a second, and for how long."""

    qps: list[Rate]
    seconds: Seconds = 20.0
    arrivals: Literal["poisson", "fixed"] = "poisson"
    sla_ms: Seconds = 350.0
    at_once: Annotated[int, Field(ge=1, le=1024)] = 64  # queries asked at the same time, at most
    patience_s: Seconds = 30.0  # after the last arrival

    @field_validator("qps")
    @classmethod
    def _rising(cls, value: list[float]) -> list[float]:
        if not value or len(set(value)) < len(value):
            raise InputError("no rate, or one twice", remedy="list each rate once: [1, 10, 50]")
        return sorted(value)


class Clock(Protocol):
    def now(self) -> float: ...

    def wait_until(self, moment: float) -> None: ...


class WallClock:
    def now(self) -> float:
        return time.perf_counter()

    def wait_until(self, moment: float) -> None:
        if (left := moment - time.perf_counter()) > 0:
            time.sleep(left)


@dataclass(frozen=True, slots=True)
class Driven:
    """What became of each arrival."""

    arrival: Float  # (n,) seconds from the beginning
    latency: Float  # (n,) seconds from the arrival; of what was lost, until nobody waited longer
    late: Float  # (n,) seconds from the arrival until it was asked
    failed: Bool  # (n,)
    lost: Bool  # (n,) not answered in time


@dataclass(frozen=True, slots=True)
class Loaded:
    """One engine at one rate."""

    engine: str
    qps: float
    arrivals: int
    answered: int
    errors: int
    lost: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    late_p95_ms: float | None  # of it, before it was asked: all were busy
    within_sla: bool


def arrival_times(settings: LoadSettings, rate: float, seed: int) -> Float:
    """Seconds from the beginning: evenly, or as a Poisson process draws them."""
    count = max(1, round(rate * settings.seconds))
    if settings.arrivals == "fixed":
        return np.arange(count) / rate
    draws = np.random.default_rng([seed, round(1000 * rate)])
    times: Float = np.cumsum(draws.exponential(1 / rate, 2 * count + 20))
    return times[: max(1, int(np.searchsorted(times, settings.seconds)))]


def drive(
    ask: Ask, questions: Int, arrival: Float, executor: Executor, clock: Clock, patience_s: float
) -> Driven:
    """Ask `questions[i]` at `arrival[i]`, come what may."""
    count = len(arrival)
    latency, late = np.full(count, np.nan), np.full(count, np.nan)
    failed = np.zeros(count, np.bool_)
    begun = clock.now()

    def one(at: int) -> None:
        late[at] = clock.now() - begun - arrival[at]
        try:
            ask(int(questions[at]))
        except Exception:
            failed[at] = True
        latency[at] = clock.now() - begun - arrival[at]

    futures = []
    for at, moment in enumerate(arrival):
        clock.wait_until(begun + float(moment))
        futures.append(executor.submit(one, at))
    _, open_ = wait(futures, timeout=patience_s)
    for future in open_:
        future.cancel()
    ended = clock.now() - begun
    latency, late, failed = latency.copy(), late.copy(), failed.copy()  # some may still be asked
    lost: Bool = np.isnan(latency)
    latency[lost] = ended - arrival[lost]
    late = np.where(np.isnan(late), ended - arrival, late)
    return Driven(arrival, latency, late, failed & ~lost, lost)


def summarise(engine: str, rate: float, driven: Driven, sla_ms: float) -> Loaded:
    """Percentiles of a rate. Within the SLA are 95% of all arrivals, errors not among them."""
    taken = driven.latency[~driven.failed]
    p50, p95, p99 = (
        1000 * float(np.quantile(taken, share)) if len(taken) else None
        for share in (0.5, 0.95, 0.99)
    )
    answered = ~driven.failed & ~driven.lost
    timely = answered & (1000 * driven.latency <= sla_ms)
    return Loaded(
        engine,
        rate,
        len(driven.arrival),
        int(answered.sum()),
        int(driven.failed.sum()),
        int(driven.lost.sum()),
        *(p50, p95, p99),
        1000 * float(np.quantile(driven.late, 0.95)),
        bool(timely.mean() >= 0.95),
    )


def drive_all(
    engines: Sequence[Engine],
    count: int,
    settings: LoadSettings,
    seed: int,
    file: Path,
    tell: Callable[[float], None],
    clock: Clock | None = None,
    executor: Callable[[int], Executor] = ThreadPoolExecutor,
) -> pl.DataFrame:
    """A row for each engine and rate, in a file.

    A row that is there is not measured again.
    """
    clock = clock or WallClock()
    known = {row["key"]: row for row in _kept(file)}
    rows: list[dict[str, Any]] = []
    for name, decides, ask in engines:
        for rate in settings.qps:
            key = f"{decides} {rate:g}"
            if key not in known:
                arrival = arrival_times(settings, rate, seed)
                order = np.random.default_rng(seed).integers(0, count, len(arrival))
                pool = executor(settings.at_once)
                try:
                    ask(int(order[0]))  # opens what has to be opened
                    driven = drive(ask, order, arrival, pool, clock, settings.patience_s)
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
                loaded = summarise(name, rate, driven, settings.sla_ms)
                known[key] = {"key": key, **asdict(loaded)}
                frame = pl.DataFrame([*rows, known[key]], infer_schema_length=None)
                write_atomically(file, frame.write_parquet)
            rows.append({**known[key], "engine": name})
            tell(1)
    frame = pl.DataFrame(rows, infer_schema_length=None)
    write_atomically(file, frame.write_parquet)
    return frame


def _kept(file: Path) -> list[dict[str, Any]]:
    try:
        return pl.read_parquet(file).to_dicts() if file.is_file() else []
    except (pl.exceptions.PolarsError, OSError):  # damaged: measured again
        return []


def words(frame: pl.DataFrame, sla_ms: float) -> list[str]:
    """Where each engine passes the SLA, and where too few arrivals say so: all may come in time by
    luck."""
    lines = []
    for (engine,), rows in frame.group_by("engine", maintain_order=True):
        rows = rows.sort("qps")
        good = rows["within_sla"].to_list()
        rates = [f"{rate:g}" for rate in rows["qps"]]
        each = ["query" if rate == 1 else "queries" for rate in rows["qps"]]
        first = good.index(False) if False in good else None
        if first is None:
            said = f"keeps its p95 within {sla_ms:g} ms up to {rates[-1]} {each[-1]} a second"
        elif first == 0:
            said = f"passes {sla_ms:g} ms at {rates[0]} {each[0]} a second already"
        else:
            said = (
                f"passes {sla_ms:g} ms between {rates[first - 1]} and {rates[first]} "
                f"{each[first]} a second"
            )
        kept = rows["arrivals"][first - 1] if first else rows["arrivals"][-1]
        if first != 0 and kept < ENOUGH:
            said += f", as far as {plural(kept, 'arrival')} can tell: a p95 takes {ENOUGH}"
        lines.append(f"{engine} {said}.")
    return lines
