"""The tables of the paper (arXiv 2508.03306): FP32 | BF16 | BF16 + HPS, means over datasets.

HPS is its word for high precision, %p for hundredths of a measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankproof.audit.results import Audit, Reading, Scoring
from rankproof.measures import Measure
from rankproof.presentation.json_values import told

SHORT = {
    "float32": "FP32",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float8_e4m3": "E4M3",
    "float8_e5m2": "E5M2",
}
TITLES: dict[Scoring, str] = {"plain": "", "high precision": " + HPS"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A model in one setting, on one dataset or as the mean over several."""

    model: str
    dataset: str | None  # None for the mean
    datasets: int  # over which it is taken
    format: str
    scoring: Scoring
    measures: dict[Measure, tuple[float, float, float]]  # expected, min, max
    distinct: dict[int, float]  # scores in the top k, by k
    group_size: dict[int, float]  # documents of a score
    spearman: float

    @property
    def title(self) -> str:
        return SHORT[self.format] + TITLES[self.scoring]

    def to_dict(self) -> dict[str, Any]:
        return {
            **told(self, "model", "dataset", "datasets"),
            "setting": self.title,
            "measures": {
                str(m): dict(zip(("expected", "min", "max"), found, strict=True))
                for m, found in self.measures.items()
            },
            **told(self, "distinct", "group_size", "spearman"),
        }


def lows(audit: Audit) -> list[str]:
    """The low formats that stand beside float32 in the paper's way; codes do not."""
    formats = dict.fromkeys(r.format for r in audit.readings if _ours(r))
    return [form for form in formats if form != "float32" and entries(audit, form)]


def entries(audit: Audit, form: str, *, apart: bool = False) -> list[Entry]:
    """FP32, the low format and the same with HPS, of each model: the mean over the datasets that
    have all three, or each dataset `apart`."""
    wanted: list[tuple[str, Scoring]] = [
        *(("float32", "plain"), (form, "plain"), (form, "high precision"))
    ]
    found = {(*r.subject, r.format, r.scoring): r for r in audit.readings if _ours(r)}
    made = []
    for model in audit.models:
        names = [how.get("dataset") for how in audit.made if how["model"] == model]
        whole = [n for n in names if all((model, n, *setting) in found for setting in wanted)]
        for some in [[name] for name in whole] if apart else [whole] * bool(whole):
            for setting in wanted:
                readings = [found[model, name, *setting] for name in some]
                made.append(_mean(readings, some[0] if apart else None))
    return made


def _ours(reading: Reading) -> bool:
    return reading.full and reading.format in SHORT and reading.scoring in TITLES


def _mean(readings: Sequence[Reading], dataset: str | None) -> Entry:
    first = readings[0]
    cutoffs = [at.cutoff for at in first.ties.at]
    cutoffs = [k for k in cutoffs if all(k in {at.cutoff for at in r.ties.at} for r in readings)]
    rows = [[at for at in r.ties.at if at.cutoff in cutoffs] for r in readings]

    def mean(values: Sequence[float]) -> float:
        return math.fsum(values) / len(values)

    return Entry(
        first.model,
        dataset,
        len(readings),
        first.format,
        first.scoring,
        {
            m: (
                mean([r.evaluation[m].expected for r in readings]),
                mean([r.evaluation[m].min for r in readings]),
                mean([r.evaluation[m].max for r in readings]),
            )
            for m in first.evaluation
        },
        {at[0].cutoff: mean([one.distinct for one in at]) for at in zip(*rows, strict=True)},
        {at[0].cutoff: mean([one.group_size for one in at]) for at in zip(*rows, strict=True)},
        mean([r.agreement.mean for r in readings]),
    )
