"""What an audit found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Literal

import polars as pl

from rankproof.audit.rank_correlation import Agreement
from rankproof.data.tables import Run
from rankproof.evaluation import Evaluation
from rankproof.evaluation.tie_counts import CUTOFFS, TieStatistics, tie_statistics
from rankproof.foundation.errors import InputError
from rankproof.foundation.version import __version__
from rankproof.measures import Measure, parse
from rankproof.presentation.charts import Chart, Range, range_charts
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, told
from rankproof.presentation.lead_wording import sign
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table
from rankproof.statistics.intervals import (
    Interval,
    difference_intervals,
    interval_or_none,
    possible_range,
)

Scoring = Literal["plain", "high precision", "decoded", "original"]

CURVE = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)  # k of the curves


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One model in one number format, scored in one way.

    >>> vectors = np.eye(2, dtype="float32")
    >>> found = rp.audit_embeddings(vectors, vectors, {"0": {"0": 1}}, ["RR"], formats=["bit"])
    >>> found.readings[0].bytes_per_vector
    5.0
    """

    model: str
    format: str
    scoring: Scoring
    dimensions: int | None  # None for logits
    full: bool  # not cut to fewer dimensions
    evaluation: Evaluation
    ties: TieStatistics
    agreement: Agreement  # with the float32 ranking
    cut: int  # lists whose last tie, or that of their candidates, goes on past the last kept
    open: dict[Measure, int]  # lists where what was cut off could change the measure
    bytes_per_vector: float | None
    seconds: float
    curve: pl.DataFrame | None = None  # measure, k, expected, oblivious, min, max
    dataset: str | None = None  # where several are audited
    run: str | None = None  # the format the model itself ran in, where it was run
    noise: dict[Measure, float] | None = None  # most minus least expected over repeated runs

    @property
    def setting(self) -> tuple[str, Scoring, int | None]:
        """What must be equal in two models to compare them: format, scoring, dimensions kept."""
        return self.format, self.scoring, None if self.full else self.dimensions

    @property
    def subject(self) -> tuple[str, str | None]:
        """What is audited: a model on a dataset."""
        return self.model, self.dataset

    @property
    def label(self) -> str:
        cut = "" if self.full else f", {self.dimensions} dimensions"
        return f"{self.format}, {self.scoring}{cut}"

    def to_dict(self) -> dict[str, Any]:
        evaluated = self.evaluation.to_dict()
        return {
            **told(self, "model", "dataset", "run", "format", "scoring", "dimensions"),
            **told(self, "bytes_per_vector", "seconds", "noise", "cut", "open"),
            "spearman": plain(self.agreement),
            **{key: evaluated[key] for key in ("queries", "missing", "tied", "score_dtype")},
            "measures": evaluated["measures"],
            "ties": [
                told(at, "cutoff", "distinct", "group_size", "crossed") for at in self.ties.at
            ],
        }


@dataclass(frozen=True, slots=True)
class Lead:
    """A measure of model a minus that of model b, both in the same setting.

    >>> vectors = np.eye(2, dtype="float32")
    >>> given = (vectors, {"0": {"0": 1}}, ["RR"])
    >>> a = rp.audit_embeddings(vectors, *given, name="a", formats=["float32"])
    >>> b = rp.audit_embeddings(vectors[::-1], *given, name="b", formats=["float32"])
    >>> rp.Audit.together([a, b]).leads[0].expected
    0.5
    """

    a: str
    b: str
    dataset: str | None
    format: str
    scoring: Scoring
    dimensions: int | None  # None where none were cut off
    measure: Measure
    expected: float
    oblivious: float
    lowest: float  # over every tie-break of both
    highest: float
    ci: Interval  # of the expected difference, over queries; NaN where fewer than six differ
    queries: int

    @property
    def certain(self) -> bool:
        """Whether every tie-break gives the same sign."""
        return sign(self.lowest) == sign(self.highest)

    @property
    def reversed(self) -> bool:
        """Whether the stated tie-break and the expectation favour different models."""
        return sign(self.oblivious) * sign(self.expected) < 0

    @property
    def label(self) -> str:
        cut = "" if self.dimensions is None else f", {self.dimensions} dimensions"
        return f"{self.format}, {self.scoring}{cut}"

    def to_dict(self) -> dict[str, Any]:
        names = ("a", "b", "dataset", "format", "scoring", "dimensions", "expected", "oblivious")
        found = told(self, *names, "lowest", "highest", "certain", "reversed", "queries")
        return found | {"measure": str(self.measure), "ci": interval_or_none(self.ci)}


@dataclass(frozen=True, slots=True)
class Apart:
    """What is expected of a measure in a setting, minus the same in float32."""

    mean: float
    ci: Interval  # over queries; NaN where fewer than six differ
    queries: int

    def to_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "ci": interval_or_none(self.ci), "queries": self.queries}


@dataclass(frozen=True, slots=True, eq=False)
class Audit(Displayed):
    """Every reading, and what it means for the order of models.

    >>> vectors = np.eye(3, dtype="float32")
    >>> found = rp.audit_embeddings(vectors, vectors, {"0": {"0": 1}}, ["RR"], formats=["bit"])
    >>> found.reading("bit").evaluation["RR"].range
    0.0
    """

    kind: ClassVar[str] = "audit"

    readings: tuple[Reading, ...]
    leads: tuple[Lead, ...]  # of each pair of models
    notes: tuple[str, ...]
    made: tuple[dict[str, Any], ...]  # how each model was audited

    @classmethod
    def together(cls, audits: Sequence[Audit]) -> Audit:
        """Audits of several models as one, with the models compared pairwise."""
        readings = [reading for audit in audits for reading in audit.readings]
        if not readings:
            raise InputError("nothing was audited", remedy="name embeddings, logits or a model")
        for reading in readings:
            for measure in reading.evaluation:
                if math.isnan(reading.evaluation[measure].expected):
                    raise InputError(
                        f"{measure} is defined on no query",
                        place=reading.dataset,
                        remedy="check the judgements, or leave the measure out",
                    )
        made = tuple(how for audit in audits for how in audit.made)
        names = [(how["model"], how.get("dataset")) for how in made]
        again = next((name for at, name in enumerate(names) if name in names[:at]), None)
        if again is not None:
            raise InputError(f"two models are named {again[0]!r}", remedy="write NAME=path")
        notes = tuple(dict.fromkeys(note for audit in audits for note in audit.notes))
        return cls(tuple(readings), tuple(_leads(readings, names)), notes, made)

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(how["model"] for how in self.made))

    @property
    def datasets(self) -> list[str]:
        """By name, where several were audited."""
        named = dict.fromkeys(reading.dataset for reading in self.readings)
        return [name for name in named if name is not None]

    @property
    def measures(self) -> list[Measure]:
        return list(self.readings[0].evaluation)

    def reading(
        self,
        format: str,  # noqa: A002
        scoring: Scoring = "plain",
        *,
        model: str | None = None,
        dataset: str | None = None,
        dimensions: int | None = None,
    ) -> Reading:
        """The reading of one setting; `dimensions` where vectors were cut to fewer."""
        for found in self.readings:
            if (
                found.setting == (format, scoring, dimensions)
                and model in (None, found.model)
                and dataset in (None, found.dataset)
            ):
                return found
        have = "; ".join(dict.fromkeys(reading.label for reading in self.readings))
        raise KeyError(f"{format}, {scoring} was not audited; there are {have}")

    def exact(self, reading: Reading) -> Reading | None:
        """The most careful float32 reading of the same whole vectors or logits, if there is one."""
        found = [r for r in self.readings if r.subject == reading.subject]
        found = [r for r in found if r.format == "float32" and r.full]
        return found[-1] if found else None

    def apart(self, reading: Reading) -> dict[Measure, Apart]:
        """How far a reading is from that of float32; nothing where there is no other."""
        exact = self.exact(reading)
        if exact is None or exact is reading:
            return {}
        found = _differences(reading.evaluation, exact.evaluation)
        return {
            m: Apart(own["expected"], own["ci"], own["queries"])
            for m in reading.evaluation
            for own in [found.get(str(m))]
            if own is not None
        }

    def verdict(self) -> list[str]:
        """What there is to know first, in three sentences at most."""
        from rankproof.audit.sentences import verdict

        return verdict(self)

    def words(self) -> list[str]:
        """Which conclusions survive, in sentences."""
        from rankproof.audit.sentences import sentences

        return sentences(self)

    def summary(self) -> Summary:
        """Which formats are safe to use."""
        return Summary("\n".join(self.verdict()))

    def tables(self) -> list[Table]:
        """A row for each model, format, scoring and measure."""
        chosen = ["model", "format", "scoring", "dimensions", "measure", "expected", "min", "max"]
        return [Table.from_frame(self.to_frame().select(chosen), self.words())]

    def to_polars(self) -> pl.DataFrame:
        """A row for each model, format, scoring and measure."""
        return self.to_frame()

    def charts(self) -> list[Chart]:
        """For each measure a dot for each reading, and the range that its ties leave open."""
        measured = [(r, m, r.evaluation[m]) for r in self.readings for m in r.evaluation]
        rows = [
            Range(
                f"{reading.model}: {reading.label}",
                score.expected,
                score.min,
                score.max,
                marker=score.oblivious,
                group=int(reading.scoring != "plain"),
            )
            for reading, _, score in measured
        ]
        return range_charts(
            rows,
            "Every number format",
            axis="score",
            panels=[str(measure) for _, measure, _ in measured],
            groups=["the format alone", "rescored in high precision"],
            caption="The same vectors stored and scored in each format. Dot: expectation over "
            "every order of ties. Bar: the least and the most. Upright line: one tie-break.",
        )

    def to_frame(self) -> pl.DataFrame:
        """A row for each model, format, scoring and measure."""
        rows = [
            {
                **told(reading, "model", "dataset", "run", "format", "scoring", "dimensions"),
                "measure": str(measure),
                **reading.evaluation[measure].to_dict(),
                "spearman": plain(reading.agreement.mean),
                **told(reading, "bytes_per_vector", "seconds"),
            }
            for reading in self.readings
            for measure in reading.evaluation
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def curves(self) -> pl.DataFrame:
        """Measures over k, where they were asked for: one row for each setting, measure and k."""
        frames = [
            reading.curve.select(
                *(
                    pl.lit(getattr(reading, name), pl.String).alias(name)
                    for name in ("model", "dataset", "format", "scoring")
                ),
                pl.lit(reading.dimensions, pl.Int64).alias("dimensions"),
                pl.all(),
            )
            for reading in self.readings
            if reading.curve is not None
        ]
        if not frames:
            raise InputError("no curves were computed", remedy="audit with curves=True")
        return pl.concat(frames)

    def draw(self, folder: str | Path) -> list[Path]:
        """Write the curves into a folder, as SVG."""
        from rankproof.audit.curves import write

        return write(self, Path(folder))

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof audit --format json` prints."""
        from rankproof.audit.paper_tables import entries, lows

        return {
            "version": __version__,
            "made": list(self.made),
            "policy": self.readings[0].evaluation.policy.to_dict(),
            "readings": [
                reading.to_dict()
                | {"from_float32": {str(m): a.to_dict() for m, a in self.apart(reading).items()}}
                for reading in self.readings
            ],
            "leads": [lead.to_dict() for lead in self.leads],
            "paper": [entry.to_dict() for form in lows(self) for entry in entries(self, form)],
            "verdict": self.verdict(),
            "words": self.words(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n".join(self.words())

    def __repr__(self) -> str:
        return "\n".join(self.verdict())


def _leads(readings: list[Reading], names: list[tuple[str, str | None]]) -> Iterable[Lead]:
    """Each pair of models in each setting that both were audited in, on the same dataset."""
    of: dict[tuple[str, str | None], dict[Any, Reading]] = {}
    for reading in readings:
        of.setdefault(reading.subject, {})[reading.setting] = reading
    for a, b in combinations(names, 2):
        if a[1] != b[1]:
            continue
        for setting, one in of[a].items():
            if setting not in of[b]:
                continue
            form, scoring, dimensions = setting
            differences = _differences(one.evaluation, of[b][setting].evaluation)
            for measure in one.evaluation:
                figures = differences.get(str(measure))
                if figures is not None:
                    yield Lead(a[0], b[0], a[1], form, scoring, dimensions, measure, **figures)


def _differences(a: Evaluation, b: Evaluation) -> dict[str, dict[str, Any]]:
    """Mean differences over the queries for which both have the measure."""
    both = a.per_query.join(b.per_query, on=["query", "measure"], suffix="_b").filter(
        pl.col("expected").is_not_nan() & pl.col("expected_b").is_not_nan()
    )
    found: dict[str, dict[str, Any]] = {}
    for (measure,), rows in both.group_by("measure"):
        found[str(measure)] = {
            name: math.fsum(rows[one] - rows[other]) / rows.height
            for name, one, other in (
                ("expected", "expected", "expected_b"),
                ("oblivious", "oblivious", "oblivious_b"),
                ("lowest", "min", "max_b"),
                ("highest", "max", "min_b"),
            )
        }
        apart = (rows["expected"] - rows["expected_b"]).to_numpy()
        seen = rows.select("expected", "expected_b").to_numpy()
        least, most = possible_range(seen, parse(str(measure)).upper)
        low, high = difference_intervals(apart[None], most - least)[0].tolist()
        found[str(measure)] |= {"ci": (low, high), "queries": rows.height}
    return found


def statistics(run: Run) -> TieStatistics:
    """The ties of a run at the usual cutoffs, those past its longest list left out."""
    longest = int((run.start[1:] - run.start[:-1]).max())
    return tie_statistics(run, [cutoff for cutoff in CUTOFFS if cutoff <= longest])


def curve_measures(measures: Iterable[Measure], depth: int) -> list[Measure]:
    """The same measures at every k of the curves that lists reach; those without a k left out."""
    families = dict.fromkeys(replace(m, cutoff=None) for m in measures if m.definition.takes_cutoff)
    return [family @ k for family in families for k in CURVE if k <= depth]


def curve_frame(evaluation: Evaluation) -> pl.DataFrame:
    """measure, k, expected, oblivious, min, max of an evaluation on `curve_measures`."""
    rows = [
        {
            "measure": str(replace(m, cutoff=None)),
            "k": m.cutoff,
            "expected": s.expected,
            "oblivious": s.oblivious,
            "min": s.min,
            "max": s.max,
        }
        for m in evaluation
        for s in [evaluation[m]]
    ]
    return pl.DataFrame(rows)
