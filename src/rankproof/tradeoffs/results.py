"""The results of a sweep, as `rankproof recommend` reads them.

A folder with `configurations.parquet`, and beside it `per_query.parquet` and `sweep.json` where
there are such; or one table of configurations, Parquet or CSV, from wherever it came.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.data import read_qrels, read_run
from rankproof.data.frames import polars_reads
from rankproof.data.scales import read_scale
from rankproof.data.tables import Scale
from rankproof.evaluation import Policy
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import parse
from rankproof.statistics.intervals import Interval, difference_intervals, range_of
from rankproof.statistics.resampling import (
    best_out_of_bag,
    lower_ends,
    told_apart_from,
    told_apart_pairs,
)
from rankproof.unjudged.bounds import View, grades_of

NEEDED = ("configuration", "cost_per_1000", "latency_p50_ms", "latency_p95_ms")
LISTS = "lists.parquet"
JUDGEMENTS = "judgements.parquet"
NEAREST = 20  # rivals whose unjudged passages are looked at
TEXTS = "texts.parquet"  # kind, id, text: the questions, and the beginnings of what lists hold
EARLIER = "earlier"  # folder of the results that a sweep replaced
LEVEL = 1e-12  # qualities closer than this are the same figure
AT_PROMPT = "@prompt"  # RAnWG@prompt is RAnWG@5 of a configuration that gives 5 passages
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
    scale: Scale | None = None  # of the grades, where somebody said
    cache: dict[str, tuple[dict[str, int], Float]] = field(default_factory=dict, repr=False)

    def jitter(self, given: float | None) -> tuple[Float, Float]:
        """(N,) milliseconds below which a difference in latency says nothing: of each, and of two
        that both answer over a network, 0 for one that does not.

        As given; else what the sweep measured, and 75 between two over a network.
        """
        count = len(self.frame)
        network = np.zeros(count, np.bool_)
        if "network" in self.frame.columns:
            network = self.frame["network"].fill_null(False).to_numpy()
        if given is not None:
            return np.full(count, float(given)), np.where(network, float(given), 0.0)
        measured = np.zeros(count)
        if "jitter_ms" in self.frame.columns:
            measured = self.frame["jitter_ms"].cast(pl.Float64).fill_null(0.0).to_numpy()
        return measured, np.where(network, np.maximum(measured, OVER_NETWORK), 0.0)

    @property
    def currency(self) -> str:
        return str(((self.manifest or {}).get("prices") or {}).get("currency", "USD"))

    def differences(self, pairs: Sequence[tuple[str, str]], measure: str) -> list[Interval | None]:
        """95% intervals of a − b, on queries both have; None where unknown.

        NaN where fewer than six queries differ: these two are not told apart.
        """
        at, values = self._wide(measure)
        known = [n for n, (a, b) in enumerate(pairs) if a in at and b in at]
        found: list[Interval | None] = [None] * len(pairs)
        if not known:
            return found
        a, b = ([at[pairs[n][side]] for n in known] for side in (0, 1))
        least, most = range_of(values, parse(_at_one(measure)).upper)
        ends = difference_intervals(values[a] - values[b], most - least)
        for n, (low, high) in zip(known, ends.tolist(), strict=True):
            found[n] = (low, high)
        return found

    def _wide(self, measure: str) -> tuple[dict[str, int], Float]:
        """Rows by configuration, and (C, Q) the values of a measure; NaN where there is none."""
        if measure not in self.cache:
            self.cache[measure] = ({}, np.empty((0, 0)))
            if self.per_query is not None:
                some = self.per_query.filter(pl.col("measure") == measure)
                if some.height:
                    self.cache[measure] = _spread(some)
        return self.cache[measure]

    def unsettled(self, chosen: str, measure: str, others: Sequence[str]) -> dict[str, bool]:
        """Those of the others that some grades of unjudged passages could put level or ahead, and
        whether some do; of many those are looked at that could be lifted highest."""
        if self.lists is None or self.judgements is None:
            return {}
        others = [n for n in self._by_reach(measure, others) if n != chosen][:NEAREST]
        if measure.endswith(AT_PROMPT):  # lists are bounded at one number of passages
            prompts = dict(self.frame.select("configuration", "prompt_k").iter_rows())
            others = [name for name in others if prompts[name] == prompts[chosen]]
            measure = f"{measure.removesuffix(AT_PROMPT)}@{prompts[chosen]}"
        wanted = parse(measure)
        judged = replace(read_qrels(self.judgements), scale=self.scale)
        some = self.lists.filter(pl.col("configuration").cast(pl.String).is_in([chosen, *others]))
        some = some.with_columns(pl.col("configuration").cast(pl.String))
        by_name = some.partition_by("configuration", as_dict=True, include_key=False)
        if (chosen,) not in by_name:
            return {}
        # Configurations that differ in their prompt alone have the same list.
        mine = by_name[(chosen,)]
        rivals = {n: by_name[(n,)] for n in others if (n,) in by_name and n != chosen}
        names = [name for name, rows in rivals.items() if not rows.equals(mine)]
        runs = [read_run(mine, name=chosen), *(read_run(rivals[n], name=n) for n in names)]
        view = View(runs, judged, Policy())
        found = {name: view.turns(0, at, wanted) for at, name in enumerate(names, start=1)}
        return {name: bound.exact for name, bound in found.items() if bound is not None}

    def assumed(self, measure: str) -> str:
        """The grades that unjudged passages are taken to have, where nobody said what there are."""
        scaled = parse(_at_one(measure)).definition.grades
        if self.judgements is None or self.scale is not None or scaled:
            return ""
        return f" (grades {grades_of(read_qrels(self.judgements))})"

    def _by_reach(self, measure: str, others: Sequence[str]) -> list[str]:
        """From the one that its own unjudged passages could lift highest down, as far as the sweep
        found that out. Whether it gets past another is a question to both: a passage that one
        alone lists belongs to the ideal of the other, too."""
        end = f"{measure} highest"
        if end not in self.frame.columns:
            return list(others)
        reach = dict(self.frame.select("configuration", end).drop_nulls().iter_rows())
        return sorted(others, key=lambda name: -reach.get(name, math.inf))

    def values(self, measure: str, among: Sequence[str]) -> tuple[list[str], Float]:
        """Names and (C, Q) values of some, on the queries that all have; none where unknown."""
        at, every = self._wide(measure)
        names = [name for name in among if name in at]
        values = every[[at[name] for name in names]]
        return names, values[:, ~np.isnan(values).any(axis=0)]

    def best_of(self, measure: str, among: Sequence[str], seed: int) -> float | None:
        """What to expect of whichever of these is best, on queries it was not chosen by."""
        names, values = self.values(measure, among)
        if len(names) < 2 or values.shape[1] < 2:
            return None
        return best_out_of_bag(values, seed)

    def surely(self, measure: str, among: Sequence[str], seed: int) -> dict[str, float]:
        """What each of these reaches, of all of them together; none where it is not known."""
        names, values = self.values(measure, among)
        if not names or not values.shape[1]:
            return {}
        return dict(zip(names, lower_ends(values, seed).tolist(), strict=True))

    def not_told_apart(
        self, chosen: str, measure: str, others: Sequence[str], seed: int
    ) -> tuple[str, ...] | None:
        """Those of the others that differ from the chosen by no more than chance explains; None
        where there are no values of single queries."""
        rivals = [other for other in others if other != chosen]
        names, values = self.values(measure, [chosen, *rivals])
        if names[:1] != [chosen] or len(names) < 1 + bool(rivals) or not values.shape[1]:
            return None
        told = told_apart_from(0, values, seed)[1:]
        return tuple(name for name, yes in zip(names[1:], told.tolist(), strict=True) if not yes)

    def alike(self, measure: str, among: Sequence[str], seed: int) -> dict[str, tuple[str, ...]]:
        """Of each of these the others that differ from it by no more than chance explains."""
        names, values = self.values(measure, among)
        if len(names) < 2 or not values.shape[1]:
            return {}
        told = told_apart_pairs(values, seed)
        return {
            name: tuple(
                other for other, yes in zip(names, row, strict=True) if not yes and other != name
            )
            for name, row in zip(names, told.tolist(), strict=True)
        }


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
    return Results(
        str(path),
        frame,
        _per_query(per_query) if per_query.is_file() else None,
        _manifest(manifest) if manifest.is_file() else None,
        *listed(path),
    )


def listed(folder: Path) -> tuple[pl.DataFrame | None, pl.DataFrame | None, Scale | None]:
    """What a sweep's configurations listed, and the judgements with their scale, where its folder
    has them."""
    paths = (folder / name for name in (LISTS, JUDGEMENTS))
    lists, judgements = (_table(path) if path.is_file() else None for path in paths)
    return lists, judgements, read_scale(str(folder / JUDGEMENTS))


def find_row(frame: pl.DataFrame, name: str, place: str) -> dict[str, Any]:
    """A configuration by its name; InputError with the nearest where there is none."""
    row = frame.filter(pl.col("configuration") == name)
    if not row.height:
        near = get_close_matches(name, frame["configuration"].to_list(), 1)
        known = f"did you mean {near[0]!r}?" if near else "`rankproof sweep … --plan` lists them"
        raise InputError(f"there is no row {shorten(name)}", place=place, remedy=known)
    return row.row(0, named=True)


def _at_one(measure: str) -> str:
    """A measure that can be parsed: what a configuration gives is one number or another."""
    return measure.replace(AT_PROMPT, "@1")


def _spread(some: pl.DataFrame) -> tuple[dict[str, int], Float]:
    """configuration, query, value → rows by configuration and (C, Q) values, queries by id."""
    names = some["configuration"].cast(pl.String).unique(maintain_order=True)
    queries = some["query"].unique().sort()
    row, column = (
        some[key].cast(pl.String).replace_strict(
            ids, np.arange(len(ids)), return_dtype=pl.Int64
        ).to_numpy()
        for key, ids in (("configuration", names), ("query", queries))
    )  # fmt: skip
    values = np.full((len(names), len(queries)), np.nan)
    values[row, column] = some["value"].cast(pl.Float64).fill_null(math.nan).to_numpy()
    return {name: at for at, name in enumerate(names)}, values


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
    remedy = "give Parquet or .csv, or run the sweep again"
    with polars_reads(str(path), remedy=remedy):
        if path.suffix.lower() == ".csv":
            return pl.read_csv(path, infer_schema_length=None)
        return pl.read_parquet(path)


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
            f"configuration {shorten(frame.filter(again)['configuration'][0])} appears twice",
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
