"""The results of a sweep, as `rankproof recommend` reads them.

A folder with `configurations.parquet`, and beside it `per_query.parquet` and `sweep.json` where
there are such; or one table of configurations, Parquet or CSV, from wherever it came.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.arrays import Float
from rankproof.errors import InputError, shorten
from rankproof.evaluation import Policy
from rankproof.measures.registry import parse
from rankproof.records import read_qrels, read_run
from rankproof.statistics.intervals import Interval, difference_intervals
from rankproof.statistics.resampling import best_out_of_bag, told_apart_from
from rankproof.unjudged.bounds import View

NEEDED = ("configuration", "cost_per_1000", "latency_p50_ms", "latency_p95_ms")
LISTS = "lists.parquet"
JUDGEMENTS = "judgements.parquet"
LEVEL = 1e-12  # qualities closer than this are the same figure
OVER_NETWORK = 75.0  # milliseconds that two calls over a network may differ by


@dataclass(frozen=True, slots=True)
class Results:
    """One row per configuration; per-query values and the manifest where they are known."""

    label: str
    frame: pl.DataFrame
    per_query: pl.DataFrame | None = None  # configuration, query, measure, value
    manifest: dict[str, Any] | None = None
    lists: pl.DataFrame | None = None  # configuration, query, doc, score: as far as figures reach
    judgements: pl.DataFrame | None = None  # query, doc, grade

    def jitter(self, given: float | None) -> Float:
        """(N,) milliseconds below which a difference in latency says nothing.

        As given; else 75 over a network, and elsewhere what the sweep measured.
        """
        if given is not None:
            return np.full(len(self.frame), float(given))
        measured = np.zeros(len(self.frame))
        if "jitter_ms" in self.frame.columns:
            measured = self.frame["jitter_ms"].cast(pl.Float64).fill_null(0.0).to_numpy()
        if "network" not in self.frame.columns:
            return measured
        network = self.frame["network"].fill_null(False).to_numpy()
        return np.where(network, np.maximum(measured, OVER_NETWORK), measured)

    def differences(self, chosen: str, measure: str, others: Sequence[str]) -> dict[str, Interval]:
        """95% intervals of chosen − other, on queries both have; {} where unknown.

        NaN where fewer than six queries differ: these two are not told apart.
        """
        if self.per_query is None or not others:
            return {}
        wide = (
            self.per_query.filter(
                (pl.col("measure") == measure) & pl.col("configuration").is_in([chosen, *others])
            )
            .with_columns(pl.col("value").cast(pl.Float64).fill_null(math.nan))
            .pivot("configuration", index="query", values="value")
            .sort("query")
        )
        known = [other for other in others if other in wide.columns]
        if chosen not in wide.columns or not known:
            return {}
        values = wide.select(chosen, *known).fill_null(math.nan).to_numpy()
        ends = difference_intervals((values[:, :1] - values[:, 1:]).T)
        return {other: (float(a), float(b)) for other, (a, b) in zip(known, ends, strict=True)}

    def unsettled(self, chosen: str, measure: str, others: Sequence[str]) -> tuple[str, ...]:
        """Those of the others that some grades of unjudged passages put level or ahead."""
        if self.lists is None or self.judgements is None:
            return ()
        wanted = parse(measure)
        judged = read_qrels(self.judgements)
        by_name = self.lists.partition_by("configuration", as_dict=True, include_key=False)
        if (chosen,) not in by_name:
            return ()
        # Configurations that differ in their prompt alone have the same list.
        mine = by_name[(chosen,)]
        rivals = {n: by_name[(n,)] for n in others if (n,) in by_name and n != chosen}
        names = [name for name, rows in rivals.items() if not rows.equals(mine)]
        runs = [read_run(mine, name=chosen), *(read_run(rivals[n], name=n) for n in names)]
        view = View(runs, judged, Policy())
        own = view.count([0], wanted)
        return tuple(
            name
            for at, name in enumerate(names, start=1)
            if (own or view.count([at], wanted)) and not view.pair_bound(0, at, wanted).certain
        )

    def _values(self, measure: str, among: Sequence[str]) -> tuple[list[str], Float]:
        """Names and (C, Q) values of some, on the queries that all have; none where unknown."""
        if self.per_query is None:
            return [], np.empty((0, 0))
        wide = (
            self.per_query.filter(
                (pl.col("measure") == measure) & pl.col("configuration").is_in(list(among))
            )
            .with_columns(pl.col("value").cast(pl.Float64).fill_null(math.nan))
            .pivot("configuration", index="query", values="value")
            .sort("query")
        )
        names = [name for name in among if name in wide.columns]
        values = wide.select(names).fill_null(math.nan).to_numpy().T
        return names, values[:, ~np.isnan(values).any(axis=0)]

    def best_of(self, measure: str, among: Sequence[str], seed: int) -> float | None:
        """What to expect of whichever of these is best, on queries it was not chosen by."""
        names, values = self._values(measure, among)
        if len(names) < 2 or values.shape[1] < 2:
            return None
        return best_out_of_bag(values, seed)

    def not_told_apart(
        self, chosen: str, measure: str, others: Sequence[str], seed: int
    ) -> tuple[str, ...]:
        """Those of the others that differ from the chosen by no more than chance explains."""
        rivals = [other for other in others if other != chosen]
        names, values = self._values(measure, [chosen, *rivals])
        if names[:1] != [chosen] or len(names) < 2 or not values.shape[1]:
            return ()
        told = told_apart_from(0, values, seed)[1:]
        return tuple(name for name, yes in zip(names[1:], told.tolist(), strict=True) if not yes)


def read_results(source: Any) -> Results:
    """A sweep's folder, a table of configurations, or a frame of them."""
    if isinstance(source, Results):
        return source
    if isinstance(source, pl.DataFrame):
        return Results("results", _checked(source, "results"))
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"cannot read results from {shorten(source)}",
            remedy="give a sweep's folder, a table of configurations or a frame",
        )
    path = Path(source)
    if not path.is_dir():
        return Results(str(path), _checked(_table(path), str(path)))
    frame = _checked(_table(path / "configurations.parquet", path), str(path))
    per_query = path / "per_query.parquet"
    manifest = path / "sweep.json"
    lists, judgements = (path / name for name in (LISTS, JUDGEMENTS))
    return Results(
        str(path),
        frame,
        _per_query(per_query) if per_query.is_file() else None,
        _manifest(manifest) if manifest.is_file() else None,
        _table(lists) if lists.is_file() else None,
        _table(judgements) if judgements.is_file() else None,
    )


def _table(path: Path, folder: Path | None = None) -> pl.DataFrame:
    if not path.is_file():
        if folder is not None:
            raise InputError(
                f"there is no {path.name} in this folder",
                place=str(folder),
                remedy="name the folder that `rankproof sweep` wrote, or let it finish",
            )
        raise InputError(
            "there is no such file or folder", place=str(path), remedy="check the path"
        )
    try:
        if path.suffix.lower() == ".csv":
            return pl.read_csv(path, infer_schema_length=None)
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(
            f"cannot read it as a table ({said})",
            place=str(path),
            remedy="give Parquet or .csv, or run the sweep again",
        ) from None


def _per_query(path: Path) -> pl.DataFrame:
    frame = _table(path)
    wanted = ("configuration", "query", "measure", "value")
    absent = next((name for name in wanted if name not in frame.columns), None)
    if absent is not None:
        raise InputError(f"no column {absent!r}", place=str(path), remedy="run the sweep again")
    return frame.select(wanted)


def _manifest(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(
            f"not JSON ({error})", place=str(path), remedy="run the sweep again"
        ) from None
    return loaded if isinstance(loaded, dict) else {}


def _checked(frame: pl.DataFrame, label: str) -> pl.DataFrame:
    absent = next((name for name in NEEDED if name not in frame.columns), None)
    if absent is not None:
        raise InputError(
            f"no column {absent!r}", place=label, remedy="a sweep writes it; or add it yourself"
        )
    if not len(frame):
        raise InputError("no configurations", place=label, remedy="run the sweep again")
    again = frame["configuration"].is_duplicated()
    if again.any():
        raise InputError(
            f"configuration {shorten(frame.filter(again)['configuration'][0])} stands twice",
            place=label,
            remedy="keep one of the two",
        )
    if "network" in frame.columns and frame["network"].dtype not in (pl.Boolean, pl.Null):
        raise InputError(
            f"column 'network' holds {frame['network'].dtype}",
            place=label,
            remedy="write true or false",
        )
    for name in (*NEEDED[1:], *(["jitter_ms"] if "jitter_ms" in frame.columns else [])):
        optional = name == "jitter_ms"
        if not frame[name].dtype.is_numeric() and not (optional and frame[name].dtype == pl.Null):
            raise InputError(
                f"column {name!r} holds {frame[name].dtype}, not numbers",
                place=label,
                remedy="write plain numbers",
            )
        column = frame[name].cast(pl.Float64)
        column = column.fill_null(0.0) if optional else column
        wrong = column.is_null() | ~column.is_finite() | (column < 0)
        if wrong.any():
            row = frame.row(int(wrong.arg_max() or 0), named=True)
            raise InputError(
                f"{name} of {shorten(row['configuration'])} is {row[name]}",
                place=label,
                remedy="measure it, or leave the configuration out",
            )
    return frame.with_columns(pl.col("configuration").cast(pl.String))
