"""The tables of the paper (arXiv 2508.03306): FP32 | BF16 | BF16 + HPS, means over datasets.

HPS is its name for high precision, %p for hundredths of a measure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rankproof.audit.readings import Reading
from rankproof.audit.results import Audit
from rankproof.measures import Measure
from rankproof.presentation.json_values import plain_fields

SHORT = {
    "float32": "FP32",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float8_e4m3": "E4M3",
    "float8_e5m2": "E5M2",
}
TITLES = {"plain": "", "high precision": " + HPS"}


class MeanRange(NamedTuple):
    """A measure's expected value and its range over every order of ties."""

    expected: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Entry:
    """A model in one setting, on one dataset or as the mean over several."""

    model: str
    dataset: str | None  # None for the mean
    datasets: int  # over which it is taken
    format: str
    scoring: str
    measures: dict[Measure, MeanRange]
    distinct: dict[int, float]  # scores in the top k, by k
    group_size: dict[int, float]  # documents per score, by k
    spearman: float

    @property
    def title(self) -> str:
        """The setting as the paper names it: BF16 + HPS."""
        return SHORT[self.format] + TITLES[self.scoring]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as JSON shows it."""
        return {
            **plain_fields(self, "model", "dataset", "datasets"),
            "setting": self.title,
            "measures": {str(m): values._asdict() for m, values in self.measures.items()},
            **plain_fields(self, "distinct", "group_size", "spearman"),
        }


def paired_formats(audit: Audit) -> list[str]:
    """Return the low formats that some model has beside float32, plain and in high precision."""
    formats = dict.fromkeys(r.format for r in audit.readings if _is_in_paper(r))
    return [form for form in formats if form != "float32" and entries(audit, form)]


def entries(audit: Audit, form: str, *, by_dataset: bool = False) -> list[Entry]:
    """Return each model in FP32, the low format and the same with HPS, in this order.

    They are means over the datasets that have all three, or one triple for each dataset.
    """
    settings = [("float32", "plain"), (form, "plain"), (form, "high precision")]
    readings = {(*r.subject, r.format, r.scoring): r for r in audit.readings if _is_in_paper(r)}
    result = []
    for model in audit.models:
        datasets = [m.get("dataset") for m in audit.made if m["model"] == model]
        complete = [d for d in datasets if all((model, d, *s) in readings for s in settings)]
        groups = [[dataset] for dataset in complete] if by_dataset else [complete]
        for group in groups if complete else []:
            for setting in settings:
                chosen = [readings[model, dataset, *setting] for dataset in group]
                result.append(_mean_entry(chosen, group[0] if by_dataset else None))
    return result


def _is_in_paper(reading: Reading) -> bool:
    """True for whole vectors or logits in a format and scoring that the paper compares."""
    return reading.is_full and reading.format in SHORT and reading.scoring in TITLES


def _mean_entry(readings: Sequence[Reading], dataset: str | None) -> Entry:
    """Return the mean of a setting's readings on several datasets."""
    first = readings[0]
    cutoffs = [
        at.cutoff
        for at in first.ties.at
        if all(at.cutoff in {other.cutoff for other in r.ties.at} for r in readings)
    ]
    ties_by_cutoff = {
        cutoff: [at for r in readings for at in r.ties.at if at.cutoff == cutoff]
        for cutoff in cutoffs
    }

    def mean(values: Iterable[float]) -> float:
        return math.fsum(values) / len(readings)

    return Entry(
        model=first.model,
        dataset=dataset,
        datasets=len(readings),
        format=first.format,
        scoring=first.scoring,
        measures={
            measure: MeanRange(
                expected=mean(r.evaluation[measure].expected for r in readings),
                min=mean(r.evaluation[measure].min for r in readings),
                max=mean(r.evaluation[measure].max for r in readings),
            )
            for measure in first.evaluation
        },
        distinct={k: mean(at.distinct for at in ties) for k, ties in ties_by_cutoff.items()},
        group_size={k: mean(at.group_size for at in ties) for k, ties in ties_by_cutoff.items()},
        spearman=mean(r.agreement.mean for r in readings),
    )
