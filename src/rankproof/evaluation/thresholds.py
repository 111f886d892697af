"""Conditions on one measure, such as `nDCG@10 < 0.42`, that a run must not meet."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from rankproof.evaluation.result import Evaluation
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import Measure, parse

SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONDITION = re.compile(r"(?P<measure>.+?)\s*(?P<sign><=|>=|<|>)\s*(?P<threshold>\S+)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """A measure, a comparison and a threshold."""

    measure: Measure
    sign: str  # a key of SIGNS
    threshold: float
    text: str  # as the user wrote it

    def failures(self, evaluation: Evaluation) -> list[str]:
        """Return a sentence if the run meets the condition, or if its value cannot be trusted.

        It cannot if no query defines it, if the policy skips queries that the run lacks, or if the
        run's ids are not those of the judgments.
        """
        value = evaluation[self.measure].expected
        if evaluation.id_problem:
            return [f"{evaluation.name}: {evaluation.id_problem} ({self.text})"]
        if evaluation.missing and evaluation.policy.missing == "skip":
            judged = evaluation.missing + len(evaluation.queries)
            return [
                f"{evaluation.name}: {evaluation.missing:,} of {judged:,} judged queries are "
                f"missing from the run ({self.text})"
            ]
        if math.isnan(value):
            return [f"{evaluation.name}: {self.measure} is defined on no query ({self.text})"]
        if not SIGNS[self.sign](value, self.threshold):
            return []
        return [f"{evaluation.name}: {self.measure} is {value:.4f}: {self.text}"]


def parse_condition(text: str) -> Condition:
    """Parse "nDCG@10 < 0.42"; the threshold must be finite."""
    match = _CONDITION.fullmatch(text.strip())
    try:
        threshold = float(match["threshold"]) if match else math.nan
    except ValueError:
        threshold = math.nan
    if match is None or not math.isfinite(threshold):
        raise InputError(
            f"cannot read the condition {shorten(text)}", remedy="write it as 'nDCG@10 < 0.42'"
        )
    return Condition(parse(match["measure"]), match["sign"], threshold, text.strip())
