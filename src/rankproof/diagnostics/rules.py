"""One-line rules about a diagnosis; a rule whose condition holds fails.

    name drop > 30% under strip_diacritics      also topic drop, both drop
    name margin < 0.05                          of the base, or under an ablation
    name/topic ratio < 0.3
    confused > 5% under formatting              share of bundles with an impostor as near
    retrieval drop > 2% under initials_form
    cosine drop > 40% at level 4                to the clean query; also passage drop
    cosine < 0.6 at level 3                     also passage cosine
    recovered < 50% at level 4                  share of the cosine drop that rewriting undoes
    retrieval drop > 0.05 at level 4

A rule about a family of ablations fails if it fails for one of them. A drop is positive when the
quantity fell; with % it is relative, without absolute.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from rankproof.diagnostics.ablations import ABLATIONS, FAMILIES
from rankproof.diagnostics.conversation import LEVELS
from rankproof.diagnostics.names import BASE, MEASURES, NameRow, NamesDiagnosis
from rankproof.diagnostics.noise import NoiseDiagnosis, NoiseRow
from rankproof.evaluation.thresholds import SIGNS
from rankproof.foundation.errors import InputError, shorten

Kind = Literal["names", "noise"]

QUANTITIES: dict[Kind, tuple[str, ...]] = {
    "names": (
        *("name drop", "topic drop", "both drop", "name margin", "topic margin", "both margin"),
        *("name/topic ratio", "confused", "retrieval drop"),
    ),
    "noise": (
        *("cosine drop", "passage drop", "cosine", "passage cosine", "recovered"),
        "retrieval drop",
    ),
}
_ABSOLUTE = (  # quantities that cannot be percentages
    *("name margin", "topic margin", "both margin", "name/topic ratio"),
    *("cosine", "passage cosine"),
)
_SHAPE = re.compile(
    r"(?P<quantity>[a-z][a-z/ ]*?)\s*(?P<sign><=|>=|<|>)\s*"
    r"(?P<number>[-+]?\d*\.?\d+)\s*(?P<percent>%?)"
    r"(?:\s+(?:under|at level|at)\s+(?P<scope>\S+))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition on a quantity that must not hold.

    >>> from rankproof.diagnostics import parse_rule
    >>> rule = parse_rule("cosine drop > 40% at level 4", "noise")
    >>> rule.threshold, rule.scope
    (40.0, 4)
    """

    text: str
    quantity: str
    sign: str
    threshold: float  # in percent if `percent`
    percent: bool
    scope: str | int | None  # an ablation or a family of them; a level; None for the ratio


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a rule for a diagnosis.

    >>> from rankproof.diagnostics import check_rules, parse_rule
    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> diagnosis = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> rule = parse_rule("cosine drop > 99% at level 4", "noise")
    >>> check_rules([rule], diagnosis)[0].sentence
    'passed: cosine drop > 99% at level 4: 55.5% at level 4'
    """

    rule: Rule
    value: float  # the worst of all that the rule covers; NaN where it is undefined
    where: str  # "under strip_diacritics"
    failed: bool

    @property
    def sentence(self) -> str:
        """Whether the rule passed or failed, and the value."""
        if math.isnan(self.value):
            return f"failed: {self.rule.text}: there is no figure {self.where}"
        value = f"{self.value:.1f}%" if self.rule.percent else f"{self.value:.4f}"
        return f"{'failed' if self.failed else 'passed'}: {self.rule.text}: {value} {self.where}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule.text,
            "failed": self.failed,
            "value": None if math.isnan(self.value) else self.value,
            "where": self.where,
        }


def parse_rule(text: str, kind: Kind) -> Rule:
    """Parse a rule; an InputError says what is wrong with it.

    >>> from rankproof.diagnostics import parse_rule
    >>> parse_rule("name drop > 30% under strip_diacritics", "names").scope
    'strip_diacritics'
    """
    example = (
        "name drop > 30% under strip_diacritics"
        if kind == "names"
        else "cosine drop > 40% at level 4"
    )
    shape = _SHAPE.fullmatch(" ".join(text.split()))
    if shape is None:
        raise InputError(
            f"rule {shorten(text)} is not understood", remedy=f"write it like {example!r}"
        )
    quantity = " ".join(shape["quantity"].lower().split())
    known = QUANTITIES[kind]
    if quantity not in known:
        raise InputError(
            f"rule {shorten(text)}: {quantity!r} is not a figure of {kind}",
            remedy=_did_you_mean(quantity, known),
        )
    percent = shape["percent"] == "%"
    if percent and quantity in _ABSOLUTE:
        raise InputError(
            f"rule {shorten(text)}: {quantity} is not a percentage", remedy="leave out the % sign"
        )
    return Rule(
        text=" ".join(text.split()),
        quantity=quantity,
        sign=shape["sign"],
        threshold=float(shape["number"]),
        percent=percent,
        scope=_parse_scope(text, shape["scope"], quantity, kind),
    )


def _did_you_mean(word: str, known: tuple[str, ...]) -> str:
    matches = get_close_matches(word, known, 1)
    return f"did you mean {matches[0]!r}?" if matches else f"use one of {', '.join(known)}"


def _parse_scope(text: str, scope: str | None, quantity: str, kind: Kind) -> str | int | None:
    """Return the level, or the ablation or family in lower case, that a rule names."""
    if kind == "noise":
        if scope is None or scope not in map(str, LEVELS):
            raise InputError(
                f"rule {shorten(text)} names no level", remedy="end it with “at level 4”, say"
            )
        return int(scope)
    if quantity == "name/topic ratio":
        if scope is not None:
            raise InputError(
                f"rule {shorten(text)}: the ratio is that of the base",
                remedy="leave out what follows “under”",
            )
        return None
    if scope is None:
        if quantity.endswith("drop"):
            raise InputError(
                f"rule {shorten(text)} names no ablation",
                remedy="end it with “under strip_diacritics”, or a family: " + ", ".join(FAMILIES),
            )
        return BASE
    known = (BASE, *ABLATIONS, *FAMILIES)
    if scope.lower() not in known:
        raise InputError(
            f"rule {shorten(text)}: {scope!r} is neither an ablation nor a family",
            remedy=_did_you_mean(scope.lower(), known),
        )
    return scope.lower()


def check_rules(rules: Iterable[Rule], diagnosis: NamesDiagnosis | NoiseDiagnosis) -> list[Verdict]:
    """Compare each rule with a diagnosis; one whose quantity is undefined or not measured fails.

    >>> from rankproof.diagnostics import check_rules, parse_rule
    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> diagnosis = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> rule = parse_rule("cosine drop > 99% at level 4", "noise")
    >>> check_rules([rule], diagnosis)[0].failed
    False
    """
    verdicts = []
    for rule in rules:
        if isinstance(diagnosis, NamesDiagnosis):
            values = _names_values(rule, diagnosis)
        else:
            values = _noise_values(rule, diagnosis)
        worst = max if rule.sign.startswith(">") else min
        undefined = [pair for pair in values if math.isnan(pair[0])]
        value, where = undefined[0] if undefined else worst(values)
        failed = math.isnan(value) or SIGNS[rule.sign](value, rule.threshold)
        verdicts.append(Verdict(rule, value, where, failed))
    return verdicts


def _names_values(rule: Rule, diagnosis: NamesDiagnosis) -> list[tuple[float, str]]:
    """Return the value of the rule's quantity in each row that it covers, and which row that is.

    Ablations that change none of the texts are not covered.
    """
    if rule.scope is None:
        return [(diagnosis.ratio.mean, "in the base")]
    rows = [row for row in diagnosis.rows if rule.scope in (row.ablation, row.family)]
    covered = [row for row in rows if row.changed or row.family is None]
    if not covered:
        return [(math.nan, f"under {rule.scope}: it changes none of these texts")]
    return [
        (
            _names_value(rule, row, diagnosis),
            "in the base" if row.family is None else f"under {row.ablation}",
        )
        for row in covered
    ]


def _names_value(rule: Rule, row: NameRow, diagnosis: NamesDiagnosis) -> float:
    """Return the rule's quantity in one row."""
    if rule.quantity == "confused":
        return row.confused.mean * (100.0 if rule.percent else 1.0)
    if rule.quantity == "retrieval drop":
        change = row.retrieval_change[MEASURES[0]].mean
        return _drop(change, diagnosis.base.retrieval[MEASURES[0]].mean, rule.percent)
    margin, _, statistic = rule.quantity.partition(" ")
    if statistic == "margin":
        return row.margin[margin].mean
    return _positive_zero(-(row.percent if rule.percent else row.change)[margin].mean)


def _noise_values(rule: Rule, diagnosis: NoiseDiagnosis) -> list[tuple[float, str]]:
    """Return the value of the rule's quantity at its level; of `recovered`, for each rewriter."""
    level = int(rule.scope or 0)
    where = f"at level {level}"
    if rule.quantity != "recovered":
        return [(_noise_value(rule, diagnosis.at(level), diagnosis), where)]
    rows = [diagnosis.at(level, name) for name in diagnosis.rewriters]
    factor = 100.0 if rule.percent else 1.0
    if not rows:
        return [(math.nan, f"{where}: nothing was rewritten")]
    return [
        (row.recovered["clean"] * factor, f"{where}, rewritten by {row.rewriter}") for row in rows
    ]


def _noise_value(rule: Rule, row: NoiseRow, diagnosis: NoiseDiagnosis) -> float:
    """Return the rule's quantity at one level as typed; NaN for retrieval without a corpus."""
    if rule.quantity == "retrieval drop":
        base = diagnosis.at(0).retrieval
        if row.retrieval is None or base is None:
            return math.nan
        return _drop(row.retrieval.change.mean, base.measure.mean, rule.percent)
    target = "passage" if rule.quantity.startswith("passage") else "clean"
    if not rule.quantity.endswith("drop"):
        return row.cosine[target].mean
    return _positive_zero(-(row.percent if rule.percent else row.drop)[target].mean)


def _drop(change: float, base: float, percent: bool) -> float:
    """Return how far a value fell from the base; in percent NaN if the base is 0."""
    if not percent:
        return _positive_zero(-change)
    return _positive_zero(-change / base * 100.0) if base else math.nan


def _positive_zero(value: float) -> float:
    """Return 0.0 for −0.0, which would be printed with its sign."""
    return value + 0.0
