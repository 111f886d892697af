"""The results of a sweep: one reader for every command that needs them.

A sweep leaves a folder: `configurations.parquet`, and beside it `per_query.parquet`, `sweep.json`,
the lists of each configuration and the judgments. Tables of configurations from elsewhere (Parquet
or CSV) are accepted too; what only per-query values can answer is then not known.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.data import read_qrels, read_run
from rankproof.data.frames import polars_reads
from rankproof.data.scales import read_scale
from rankproof.data.tables import Scale
from rankproof.evaluation import Policy
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import Measure, parse
from rankproof.presentation.tables import span
from rankproof.statistics.family import critical_values_of_best
from rankproof.statistics.intervals import (
    NO_DIFFERENCE,
    Interval,
    difference_intervals,
    possible_range,
)
from rankproof.statistics.labels import AHEAD, BEHIND, difference_labels
from rankproof.statistics.resampling import best_out_of_bag, joint_lower_bounds
from rankproof.unjudged.bounds import WorstCases

CONFIGURATIONS = "configurations.parquet"
PER_QUERY = "per_query.parquet"
MANIFEST = "sweep.json"
LISTS = "lists.parquet"
JUDGEMENTS = "judgements.parquet"
TEXTS = "texts.parquet"  # kind, id, text: the questions, and the beginnings of listed passages
EARLIER = "earlier"  # folder of the results that a sweep replaced
AT_PROMPT = "@prompt"  # RAnWG@prompt is RAnWG@5 of a configuration that gives 5 passages
EQUAL_QUALITY = 1e-12  # qualities closer than this count as equal
_REQUIRED = ("configuration", "cost_per_1000", "latency_p50_ms", "latency_p95_ms")
_PER_QUERY_COLUMNS = ("configuration", "query", "measure", "value")
_MOST_RIVALS = 20  # rivals whose unjudged passages are examined
_NETWORK_JITTER = 75.0  # milliseconds by which two calls over a network may differ
Label = Literal["chosen", "not significantly worse", "worse", "better"]
CHOSEN: Label = "chosen"
LEVEL: Label = "not significantly worse"
_LABELS: dict[int, Label] = {AHEAD: "worse", BEHIND: "better"}  # of chosen − other
_CURRENCY_SIGNS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥"}


def currency_sign(currency: str) -> str:
    """Return the sign of a currency, or its three letters where it has none."""
    return _CURRENCY_SIGNS.get(currency, currency)


def interval_cell(low: float | None, high: float | None, digits: int = 3) -> str:
    """Write an interval as a cell of a table; a dash where an end is not known."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "–"
    return span(low, high, digits)


def money(amount: float, currency: str = "USD", form: str | None = None) -> str:
    """Write an amount with the sign of its currency; an amount above 0 never reads as 0.00."""
    if form is None:
        form = ".2f" if amount == 0 or amount >= 0.01 else ".4f" if amount >= 5e-5 else ".1g"
    return f"{_CURRENCY_SIGNS.get(currency, f'{currency} ')}{amount:{form}}"


@dataclass(frozen=True, slots=True)
class Results:
    """One row per configuration; values per query, lists and judgments where they are known."""

    label: str  # for messages
    frame: pl.DataFrame
    per_query: pl.DataFrame | None = None  # configuration, query, measure, value, …
    manifest: dict[str, Any] | None = None
    lists: pl.DataFrame | None = None  # configuration, query, doc, score: to the deepest cutoff
    judgements: pl.DataFrame | None = None  # query, doc, grade
    scale: Scale | None = None  # declared scale of the grades
    cache: dict[str, tuple[dict[str, int], Float]] = field(default_factory=dict, repr=False)
    critical_values: dict[tuple[Any, ...], Float] = field(default_factory=dict, repr=False)

    def latency_jitter(self, override: float | None) -> tuple[Float, Float]:
        """Return (N,) milliseconds below which latency differences are noise: own, over a network.

        The second array applies between two configurations that both call over a network, and is 0
        for one that does not. `override` replaces what the sweep measured, and the 75 ms.
        """
        count = len(self.frame)
        network = np.zeros(count, np.bool_)
        if "network" in self.frame.columns:
            network = self.frame["network"].fill_null(False).to_numpy()
        if override is not None:
            return np.full(count, float(override)), np.where(network, float(override), 0.0)
        measured = np.zeros(count)
        if "jitter_ms" in self.frame.columns:
            measured = self.frame["jitter_ms"].cast(pl.Float64).fill_null(0.0).to_numpy()
        return measured, np.where(network, np.maximum(measured, _NETWORK_JITTER), 0.0)

    @property
    def currency(self) -> str:
        """Currency of the prices, three letters."""
        return str(((self.manifest or {}).get("prices") or {}).get("currency", "USD"))

    # ---------------------------------------------------------------------------- per query

    def _value_matrix(self, measure: str) -> tuple[dict[str, int], Float]:
        """Return {configuration: row} and (C, Q) values of a measure, NaN where undefined."""
        if measure not in self.cache:
            self.cache[measure] = ({}, np.empty((0, 0)))
            if self.per_query is not None:
                rows = self.per_query.filter(pl.col("measure") == measure)
                names = rows["configuration"].cast(pl.String).unique(maintain_order=True).to_list()
                if names:
                    values = configuration_matrix(rows.sort("query"), "value", names)
                    self.cache[measure] = ({name: at for at, name in enumerate(names)}, values)
        return self.cache[measure]

    def shared_values(self, measure: str, names: Sequence[str]) -> tuple[list[str], Float]:
        """Return the names that have values, and (C, Q) values on the queries that all share."""
        row_by_name, values = self._value_matrix(measure)
        known = [name for name in names if name in row_by_name]
        values = values[[row_by_name[name] for name in known]]
        return known, values[:, ~np.isnan(values).any(axis=0)]

    def paired_intervals(
        self, pairs: Sequence[tuple[str, str]], measure: str
    ) -> list[Interval | None]:
        """Return the 95% interval of a − b for each pair, on shared queries; None where unknown.

        The ends are NaN where fewer than six queries differ.
        """
        row_by_name, values = self._value_matrix(measure)
        known = [at for at, (a, b) in enumerate(pairs) if a in row_by_name and b in row_by_name]
        intervals: list[Interval | None] = [None] * len(pairs)
        if not known:
            return intervals
        first, second = ([row_by_name[pairs[at][side]] for at in known] for side in (0, 1))
        least, most = possible_range(values, parse(_at_one(measure)).upper)
        ends = difference_intervals(values[first] - values[second], most - least)
        for at, (low, high) in zip(known, ends.tolist(), strict=True):
            intervals[at] = (low, high)
        return intervals

    def expected_best(self, measure: str, names: Sequence[str], seed: int) -> float | None:
        """Estimate the quality of the best of several on new queries; None where unknown."""
        known, values = self.shared_values(measure, names)
        if len(known) < 2 or values.shape[1] < 2:
            return None
        return best_out_of_bag(values, seed)

    def joint_lower_ends(self, measure: str, names: Sequence[str], seed: int) -> dict[str, float]:
        """Return lower ends that hold for all of these at once; empty where unknown."""
        known, values = self.shared_values(measure, names)
        if not known or not values.shape[1]:
            return {}
        return dict(zip(known, joint_lower_bounds(values, seed).tolist(), strict=True))

    def labels(
        self, chosen: str, measure: str, names: Sequence[str], seed: int
    ) -> dict[str, Label] | None:
        """Return the label of each of these configurations that has values per query.

        The chosen one is compared with all others by the rule of `comparison/verdict.py`. The
        family is the best of `names`, chosen again in each resample, against every other one.
        None if the chosen configuration has no values per query.
        """
        known, values = self.shared_values(measure, names)
        if chosen not in known or not values.shape[1]:
            return None
        differences = values[known.index(chosen)] - values
        critical = self._critical_values(chosen, measure, names, seed)
        limits = np.array([critical[name] for name in known])
        codes = self._codes(differences, measure, limits)
        labels = {name: _LABELS.get(code, LEVEL) for name, code in zip(known, codes, strict=True)}
        return {**labels, chosen: CHOSEN}

    def _critical_values(
        self, chosen: str, measure: str, names: Sequence[str], seed: int
    ) -> dict[str, float]:
        """Return the critical value of the difference of the chosen one from each of these.

        Those of the best configuration step down; from another one, the largest holds for all.
        """
        key = (measure, tuple(names), seed)
        known, values = self.shared_values(measure, names)
        if key not in self.critical_values:
            self.critical_values[key] = critical_values_of_best(values, seed=seed)
        critical = self.critical_values[key]
        if chosen != known[int(values.mean(axis=1).argmax())]:
            critical = np.full(len(known), critical.max())
        return dict(zip(known, critical.tolist(), strict=True))

    def _codes(self, differences: Float, measure: str, critical: float | Float) -> list[int]:
        """Return the label codes of rows (P, Q) of differences in a measure."""
        values = self._value_matrix(measure)[1]
        least, most = possible_range(values, parse(_at_one(measure)).upper)
        differences = np.where(np.abs(differences) < NO_DIFFERENCE, 0.0, differences)
        codes = difference_labels(differences, most - least, None, critical)
        return [int(code) for code in codes]

    # --------------------------------------------------------------------- unjudged passages

    def unsettled(
        self, chosen: str, measure: str, names: Sequence[str], seed: int
    ) -> tuple[str, ...]:
        """Return the configurations whose label depends on unjudged passages.

        It would be another with the lowest, or with the highest, difference on every query that
        some grades of the passages allow. Of many configurations, the twenty that could be lifted
        highest are examined.
        """
        if self.lists is None or self.judgements is None:
            return ()
        rivals = [name for name in self._by_highest(measure, names) if name != chosen]
        rivals = rivals[:_MOST_RIVALS]
        at_prompt = measure
        if measure.endswith(AT_PROMPT):  # lists are bounded at one number of passages
            prompts = dict(self.frame.select("configuration", "prompt_k").iter_rows())
            rivals = [name for name in rivals if prompts[name] == prompts[chosen]]
            measure = f"{measure.removesuffix(AT_PROMPT)}@{prompts[chosen]}"
        lists = self._lists_of([chosen, *rivals])
        if chosen not in lists:
            return ()
        own_list = lists[chosen]
        # Configurations that differ in their prompt alone have the same list.
        rivals = [name for name in rivals if name in lists and not lists[name].equals(own_list)]
        judgments = replace(read_qrels(self.judgements), scale=self.scale)
        runs = [read_run(lists[name], name=name) for name in (chosen, *rivals)]
        view, parsed = WorstCases(runs, judgments, Policy()), parse(measure)
        has_values = chosen in self.shared_values(at_prompt, names)[0]
        critical = self._critical_values(chosen, at_prompt, names, seed) if has_values else {}
        changing = {
            name
            for at, name in enumerate(rivals, start=1)
            if len(
                set(self._codes(_with_bounds(view, at, parsed), at_prompt, critical.get(name, 0.0)))
            )
            > 1
        }
        return tuple(name for name in names if name in changing)

    def _lists_of(self, names: Sequence[str]) -> dict[str, pl.DataFrame]:
        assert self.lists is not None
        rows = self.lists.filter(pl.col("configuration").cast(pl.String).is_in(names))
        rows = rows.with_columns(pl.col("configuration").cast(pl.String))
        by_name = rows.partition_by("configuration", as_dict=True, include_key=False)
        return {str(name): frame for (name,), frame in by_name.items()}

    def _by_highest(self, measure: str, names: Sequence[str]) -> list[str]:
        """Sort by the quality that a configuration's own unjudged passages could lift it to.

        This is only an order of examination: a passage that one configuration alone lists belongs
        to the ideal of the other as well, so that each pair has to be bounded together.
        """
        column = f"{measure} highest"
        if column not in self.frame.columns:
            return list(names)
        highest = dict(self.frame.select("configuration", column).drop_nulls().iter_rows())
        return sorted(names, key=lambda name: -highest.get(name, math.inf))


def read_results(source: Any) -> Results:
    """Read a sweep's folder, a table of configurations, or a frame of them."""
    if isinstance(source, Results):
        return source
    if isinstance(source, pl.DataFrame):
        return Results("results", _check_configurations(source, "results"))
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"cannot read results from {shorten(source)}",
            remedy="give a sweep's folder, a table of configurations or a frame",
        )
    path = Path(source)
    if not path.exists():
        raise InputError(
            "there is no such file or folder", place=str(path), remedy="check the path"
        )
    if not path.is_dir():
        return Results(str(path), _check_configurations(_read_table(path), str(path)))
    check_present(path / CONFIGURATIONS)
    frame = _check_configurations(_read_table(path / CONFIGURATIONS), str(path))
    per_query, manifest = path / PER_QUERY, path / MANIFEST
    lists, judgements = (
        _read_table(path / name) if (path / name).is_file() else None
        for name in (LISTS, JUDGEMENTS)
    )
    return Results(
        label=str(path),
        frame=frame,
        per_query=_read_per_query(per_query) if per_query.is_file() else None,
        manifest=_read_manifest(manifest) if manifest.is_file() else None,
        lists=lists,
        judgements=judgements,
        scale=read_scale(str(path / JUDGEMENTS)),
    )


def find_row(frame: pl.DataFrame, name: str, place: str) -> dict[str, Any]:
    """Return the row of a configuration; raise InputError with the closest name if absent."""
    row = frame.filter(pl.col("configuration") == name)
    if not row.height:
        closest = get_close_matches(name, frame["configuration"].to_list(), 1)
        remedy = "`rankproof sweep … --plan` lists them"
        if closest:
            remedy = f"did you mean {closest[0]!r}?"
        raise InputError(f"there is no row {shorten(name)}", place=place, remedy=remedy)
    return row.row(0, named=True)


def _at_one(measure: str) -> str:
    """Replace `@prompt`, which stands for one number of passages or another, by a cutoff."""
    return measure.replace(AT_PROMPT, "@1")


def _with_bounds(view: WorstCases, other: int, measure: Measure) -> Float:
    """Return (3, Q) the differences of run 0 from another: as judged, the lowest, the highest."""
    difference = view.pair_differences(0, other, measure)
    bounds = view.pair_bounds_by_query(0, other, measure)
    is_open = (view.unjudged([0, other], measure).count > 0) & ~np.isnan(difference)
    low = np.where(is_open, np.fmin(bounds.low, difference), difference)
    high = np.where(is_open, np.fmax(bounds.high, difference), difference)
    return np.stack([difference, low, high])


def configuration_matrix(rows: pl.DataFrame, column: str, names: Sequence[str]) -> Float:
    """Return (C, Q) a column of rows with configuration and query; NaN where it is null."""
    wide = rows.pivot("configuration", index="query", values=column, aggregate_function="last")
    values: Float = wide.select(names).cast(pl.Float64).fill_null(math.nan).to_numpy().T
    return values


def check_present(path: Path) -> None:
    """Raise InputError if a file is absent from the folder of a sweep."""
    if not path.is_file():
        raise InputError(
            f"there is no {path.name} in this folder",
            place=str(path.parent),
            remedy="name the folder that `rankproof sweep` wrote, or let it finish",
        )


def _read_table(path: Path) -> pl.DataFrame:
    """Read Parquet or CSV."""
    remedy = "give Parquet or .csv, or run the sweep again"
    with polars_reads(str(path), remedy=remedy):
        if path.suffix.lower() == ".csv":
            return pl.read_csv(path, infer_schema_length=None)
        return pl.read_parquet(path)


def _read_per_query(path: Path) -> pl.DataFrame:
    frame = _read_table(path)
    absent = next((name for name in _PER_QUERY_COLUMNS if name not in frame.columns), None)
    if absent is not None:
        raise InputError(f"no column {absent!r}", place=str(path), remedy="run the sweep again")
    return frame


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise InputError(
            f"not JSON ({error})", place=str(path), remedy="run the sweep again"
        ) from None
    return loaded if isinstance(loaded, dict) else {}


def _check_configurations(frame: pl.DataFrame, label: str) -> pl.DataFrame:
    """Return a table of configurations with names as text; raise InputError if it is unusable."""
    absent = next((name for name in _REQUIRED if name not in frame.columns), None)
    if absent is not None:
        raise InputError(
            f"no column {absent!r}", place=label, remedy="a sweep writes it; or add it yourself"
        )
    if not len(frame):
        raise InputError("no configurations", place=label, remedy="run the sweep again")
    duplicates = frame["configuration"].is_duplicated()
    if duplicates.any():
        raise InputError(
            f"configuration {shorten(frame.filter(duplicates)['configuration'][0])} appears twice",
            place=label,
            remedy="keep one of the two",
        )
    if "network" in frame.columns and frame["network"].dtype not in (pl.Boolean, pl.Null):
        raise InputError(
            f"column 'network' holds {frame['network'].dtype}",
            place=label,
            remedy="write true or false",
        )
    for name in _REQUIRED[1:]:
        _check_numbers(frame, name, label)
    if "jitter_ms" in frame.columns:
        _check_numbers(frame, "jitter_ms", label, is_optional=True)
    return frame.with_columns(pl.col("configuration").cast(pl.String))


def _check_numbers(frame: pl.DataFrame, name: str, label: str, is_optional: bool = False) -> None:
    """Raise InputError unless a column holds finite numbers from 0; an optional one may be null."""
    column = frame[name]
    if not column.dtype.is_numeric() and not (is_optional and column.dtype == pl.Null):
        raise InputError(
            f"column {name!r} holds {column.dtype}, not numbers",
            place=label,
            remedy="write plain numbers",
        )
    column = column.cast(pl.Float64)
    column = column.fill_null(0.0) if is_optional else column
    invalid = column.is_null() | ~column.is_finite() | (column < 0)
    if invalid.any():
        row = frame.row(int(invalid.arg_max() or 0), named=True)
        raise InputError(
            f"{name} of {shorten(row['configuration'])} is {row[name]}",
            place=label,
            remedy="measure it, or leave the configuration out",
        )
