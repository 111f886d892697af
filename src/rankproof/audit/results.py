"""The result of an audit: readings of every setting, and what they mean for the order of models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from rankproof.audit.readings import Difference, Lead, Reading, find_leads, mean_differences
from rankproof.foundation.errors import InputError
from rankproof.foundation.version import __version__
from rankproof.measures import Measure
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.presentation.charts import Chart, Range, range_charts
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table


@dataclass(frozen=True, slots=True, eq=False)
class Audit(Displayed):
    """The readings of all models and settings, and the leads of models over one another.

    >>> vectors = np.eye(3, dtype="float32")
    >>> audit = rp.audit_vectors({"0": {"0": 1}}, vectors, vectors, ["RR"], formats=["bit"])
    >>> audit.reading("bit").evaluation["RR"].range
    0.0
    """

    kind: ClassVar[str] = "audit"

    readings: tuple[Reading, ...]
    leads: tuple[Lead, ...]  # of each pair of models
    notes: tuple[str, ...]
    made: tuple[dict[str, Any], ...]  # how each model was audited
    shows_all: bool = False  # True: show every value of every setting, not one row for each
    drawn: tuple[Path, ...] = ()  # the files of curves that were written

    @classmethod
    def together(cls, audits: Sequence[Audit]) -> Audit:
        """Return audits of several models as one, with the models compared pairwise."""
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
        made = tuple(description for audit in audits for description in audit.made)
        subjects = [(model["model"], model.get("dataset")) for model in made]
        for place, (name, _) in enumerate(subjects):
            if subjects[place] in subjects[:place]:
                raise InputError(f"two models are named {name!r}", remedy="write NAME=path")
        notes = tuple(dict.fromkeys(note for audit in audits for note in audit.notes))
        return cls(tuple(readings), tuple(find_leads(readings, subjects)), notes, made)

    @property
    def models(self) -> list[str]:
        """The names of the models."""
        return list(dict.fromkeys(model["model"] for model in self.made))

    @property
    def datasets(self) -> list[str]:
        """The names of the datasets, where several were audited."""
        names = dict.fromkeys(reading.dataset for reading in self.readings)
        return [name for name in names if name is not None]

    @property
    def measures(self) -> list[Measure]:
        """The measures, in the order in which they were named."""
        return list(self.readings[0].evaluation)

    def reading(
        self,
        format: str,  # noqa: A002
        scoring: str = "plain",
        *,
        model: str | None = None,
        dataset: str | None = None,
        dimensions: int | None = None,
    ) -> Reading:
        """Return the reading of one setting; `dimensions` where vectors were cut to fewer."""
        setting = ScoringPipeline(format, scoring, dimensions=dimensions)  # type: ignore[arg-type]
        for reading in self.readings:
            if (
                reading.pipeline.name == setting.name
                and model in (None, reading.model)
                and dataset in (None, reading.dataset)
            ):
                return reading
        available = "; ".join(dict.fromkeys(reading.pipeline.name for reading in self.readings))
        raise KeyError(f"{format}, {scoring} was not audited; there are {available}")

    def float32_reading(self, reading: Reading) -> Reading | None:
        """Return the most precise float32 reading of the same whole vectors or logits, if any."""
        matches = [
            other
            for other in self.readings
            if other.subject == reading.subject and other.format == "float32" and other.is_full
        ]
        return matches[-1] if matches else None

    def from_float32(self, reading: Reading) -> dict[Measure, Difference]:
        """Return differences from the float32 reading by measure; none for that reading itself."""
        exact = self.float32_reading(reading)
        if exact is None or exact is reading:
            return {}
        differences = mean_differences(reading.evaluation, exact.evaluation)
        return {m: differences[str(m)] for m in reading.evaluation if str(m) in differences}

    def orders(self) -> list[str]:
        """Return a sentence for each pair of models: where ties or formats change who leads."""
        from rankproof.audit.sentences import describe_orders

        return describe_orders(self)

    @property
    def warnings(self) -> list[str]:
        """Return lines for standard error: the files of curves."""
        return [f"wrote {path}" for path in self.drawn]

    def summary(self) -> Summary:
        """Return which formats are safe; where models are compared, which order survives."""
        from rankproof.audit.sentences import audit_summary

        return audit_summary(self)

    def tables(self) -> list[Table]:
        """Return a row for each setting, or all tables where every value is wanted."""
        from rankproof.audit.tables import AuditTables, format_table

        return AuditTables(self, True).all() if self.shows_all else [format_table(self)]

    def full_tables(self) -> list[Table]:
        """Return all tables with a column for each value."""
        from rankproof.audit.tables import AuditTables

        return AuditTables(self, False).all()

    def charts(self) -> list[Chart]:
        """Return for each measure a dot for each reading, and the range that its ties leave."""
        rows, panels = [], []
        for reading in self.readings:
            for measure in reading.evaluation:
                score = reading.evaluation[measure]
                rows.append(
                    Range(
                        f"{reading.model}: {reading.pipeline.name}",
                        score.expected,
                        score.min,
                        score.max,
                        marker=score.oblivious,
                        group=int(not reading.pipeline.is_plain),
                    )
                )
                panels.append(str(measure))
        return range_charts(
            rows,
            "Every number format",
            axis="score",
            panels=panels,
            groups=["the format alone", "rescored in high precision"],
            caption="The same vectors stored and scored in each format. Dot: expectation over "
            "every order of ties. Bar: the least and the most. Upright line: one tie-break.",
        )

    def figures(self) -> dict[str, float]:
        """Return expected values and ranges by flat names, for experiment trackers."""
        values: dict[str, float] = {}
        for reading in self.readings:
            parts = (reading.dataset, reading.model, reading.run, reading.pipeline.name)
            name = "/".join(part for part in parts if part is not None)
            for measure in reading.evaluation:
                summary = reading.evaluation[measure]
                values[f"{name}/{measure}"] = summary.expected
                values[f"{name}/{measure}/range"] = summary.range
        return values

    def to_polars(self) -> pl.DataFrame:
        """Return a row for each model, format, scoring and measure."""
        return self.to_frame()

    def to_frame(self) -> pl.DataFrame:
        """Return a row for each model, format, scoring and measure."""
        rows = [
            {
                **plain_fields(reading, "model", "dataset", "run"),
                **plain_fields(reading, "format", "scoring", "dimensions"),
                "measure": str(measure),
                **reading.evaluation[measure].to_dict(),
                "spearman": plain(reading.agreement.mean),
                **plain_fields(reading, "bytes_per_vector", "seconds"),
            }
            for reading in self.readings
            for measure in reading.evaluation
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def curves(self) -> pl.DataFrame:
        """Return measures over k, if curves were computed: a row for each setting, measure, k."""
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
        """Return what `rankproof audit --format json` prints."""
        from rankproof.audit.paper_tables import entries, paired_formats

        return {
            "version": __version__,
            "made": list(self.made),
            "policy": self.readings[0].evaluation.policy.to_dict(),
            "readings": [
                reading.to_dict()
                | {
                    "from_float32": {
                        str(m): difference.to_dict()
                        for m, difference in self.from_float32(reading).items()
                    }
                }
                for reading in self.readings
            ],
            "leads": [lead.to_dict() for lead in self.leads],
            "paper": [
                entry.to_dict() for form in paired_formats(self) for entry in entries(self, form)
            ],
            "verdict": self.summary().answer.splitlines(),
            "words": self.orders(),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return self.summary().answer
