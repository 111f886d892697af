"""A threshold for one measure: `nDCG@10 < 0.42`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from rankproof.evaluation import Evaluation
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import Measure, parse

SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SHAPE = re.compile(r"(?P<measure>.+?)\s*(?P<sign><=|>=|<|>)\s*(?P<number>\S+)\s*")


@dataclass(frozen=True, slots=True)
class Limit:
    """What a run must not be."""

    measure: Measure
    sign: str
    number: float
    text: str

    def broken(self, evaluation: Evaluation) -> list[str]:
        """A line where the run's expected value meets the condition, or has none."""
        value = evaluation[self.measure].expected
        if math.isnan(value):
            return [f"{evaluation.name}: {self.measure} is defined on no query ({self.text})"]
        if not SIGNS[self.sign](value, self.number):
            return []
        return [f"{evaluation.name}: {self.measure} is {value:.4f}: {self.text}"]


def parse_limit(text: str) -> Limit:
    """`"nDCG@10 < 0.42"` → the limit."""
    found = _SHAPE.fullmatch(text.strip())
    try:
        number = float(found["number"]) if found else math.nan
    except ValueError:
        number = math.nan
    if found is None or not math.isfinite(number):
        raise InputError(
            f"cannot read the condition {shorten(text)}", remedy="write it as 'nDCG@10 < 0.42'"
        )
    return Limit(parse(found["measure"]), found["sign"], number, text.strip())
