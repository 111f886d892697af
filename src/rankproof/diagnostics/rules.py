"""Guardrails: one-line rules that a diagnosis must not break.

    name drop > 30% under strip_diacritics      also topic, both; a family stands for each of its
    name margin < 0.05                          of the base, or under an ablation
    name/topic ratio < 0.3
    confused > 5% under formatting              queries for which an impostor is as near
    retrieval drop > 2% under initials_form
    cosine drop > 40% at level 4                to the clean query; passage drop likewise
    cosine < 0.6 at level 3                     passage cosine likewise
    recovered < 50% at level 4                  of the cosine drop, by the rewriter
    retrieval drop > 0.05 at level 4

A drop is a fall: positive when the figure went down. With % it is relative, without it absolute.
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

FIGURES: dict[Kind, tuple[str, ...]] = {
    "names": (
        *("name drop", "topic drop", "both drop", "name margin", "topic margin", "both margin"),
        *("name/topic ratio", "confused", "retrieval drop"),
    ),
    "noise": (
        *("cosine drop", "passage drop", "cosine", "passage cosine", "recovered"),
        "retrieval drop",
    ),
}
_ABSOLUTE = (
    *("name margin", "topic margin", "both margin", "name/topic ratio"),
    *("cosine", "passage cosine"),
)
_SHAPE = re.compile(
    r"(?P<figure>[a-z][a-z/ ]*?)\s*(?P<sign><=|>=|<|>)\s*"
    r"(?P<number>[-+]?\d*\.?\d+)\s*(?P<percent>%?)"
    r"(?:\s+(?:under|at level|at)\s+(?P<scope>\S+))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """What must not be.

    >>> from rankproof.diagnostics import parse_rule
    >>> rule = parse_rule("cosine drop > 40% at level 4", "noise")
    >>> rule.threshold, rule.scope
    (40.0, 4)
    """

    text: str
    figure: str
    sign: str
    threshold: float  # percent where `percent`
    percent: bool
    scope: str | int | None  # an ablation, a family, a level


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rule held against a diagnosis.

    >>> from rankproof.diagnostics import check_rules, parse_rule
    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> found = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> rule = parse_rule("cosine drop > 99% at level 4", "noise")
    >>> check_rules([rule], found)[0].sentence
    'passed: cosine drop > 99% at level 4: 55.5% at level 4'
    """

    rule: Rule
    value: float  # the worst of what the rule covers; NaN where it is undefined
    where: str
    failed: bool

    @property
    def sentence(self) -> str:
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
    """A rule as it is written; InputError says what is wrong with it.

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
    figure = " ".join(shape["figure"].lower().split())
    known = FIGURES[kind]
    if figure not in known:
        near = get_close_matches(figure, known, 1)
        raise InputError(
            f"rule {shorten(text)}: {figure!r} is not a figure of {kind}",
            remedy=f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known)}",
        )
    percent = shape["percent"] == "%"
    if percent and figure in _ABSOLUTE:
        raise InputError(
            f"rule {shorten(text)}: {figure} is not a percentage", remedy="leave out the % sign"
        )
    scope = _scope(text, shape["scope"], figure, kind)
    return Rule(
        " ".join(text.split()), figure, shape["sign"], float(shape["number"]), percent, scope
    )


def _scope(text: str, scope: str | None, figure: str, kind: Kind) -> str | int | None:
    if kind == "noise":
        if scope is None or scope not in map(str, LEVELS):
            raise InputError(
                f"rule {shorten(text)} names no level", remedy="end it with “at level 4”, say"
            )
        return int(scope)
    if figure == "name/topic ratio":
        if scope is not None:
            raise InputError(
                f"rule {shorten(text)}: the ratio is that of the base",
                remedy="leave out what follows “under”",
            )
        return None
    if scope is None:
        if figure.endswith("drop"):
            raise InputError(
                f"rule {shorten(text)} names no ablation",
                remedy="end it with “under strip_diacritics”, or a family: " + ", ".join(FAMILIES),
            )
        return BASE
    known = (BASE, *ABLATIONS, *FAMILIES)
    if scope.lower() not in known:
        near = get_close_matches(scope.lower(), known, 1)
        raise InputError(
            f"rule {shorten(text)}: {scope!r} is neither an ablation nor a family",
            remedy=f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known)}",
        )
    return scope.lower()


def check_rules(rules: Iterable[Rule], diagnosis: NamesDiagnosis | NoiseDiagnosis) -> list[Verdict]:
    """Each rule held against the means of a diagnosis. What is undefined, or was not tried, fails.

    >>> from rankproof.diagnostics import check_rules, parse_rule
    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> found = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> rule = parse_rule("cosine drop > 99% at level 4", "noise")
    >>> check_rules([rule], found)[0].failed
    False
    """
    verdicts = []
    for rule in rules:
        found = (
            _names(rule, diagnosis)
            if isinstance(diagnosis, NamesDiagnosis)
            else _noise(rule, diagnosis)
        )
        worst = max if rule.sign.startswith(">") else min
        unknown = [pair for pair in found if math.isnan(pair[0])]
        value, where = unknown[0] if unknown else worst(found)
        failed = math.isnan(value) or SIGNS[rule.sign](value, rule.threshold)
        verdicts.append(Verdict(rule, value, where, failed))
    return verdicts


def _names(rule: Rule, diagnosis: NamesDiagnosis) -> list[tuple[float, str]]:
    if rule.scope is None:
        return [(diagnosis.ratio.mean, "in the base")]
    rows = [r for r in diagnosis.rows if rule.scope in (r.ablation, r.family)]
    tried = [r for r in rows if r.changed or not r.family]
    if not tried:
        return [(math.nan, f"under {rule.scope}: it changes none of these texts")]
    return [
        (
            _name_figure(rule, row, diagnosis),
            f"under {row.ablation}" if row.family else "in the base",
        )
        for row in tried
    ]


def _name_figure(rule: Rule, row: NameRow, diagnosis: NamesDiagnosis) -> float:
    if rule.figure == "confused":
        return row.confused.mean * (100.0 if rule.percent else 1.0)
    if rule.figure == "retrieval drop":
        lost = -row.retrieval_change[MEASURES[0]].mean
        return _relative(lost, diagnosis.base.retrieval[MEASURES[0]].mean, rule.percent)
    margin, _, what = rule.figure.partition(" ")
    if what == "margin":
        return row.margin[margin].mean
    return -(row.percent if rule.percent else row.change)[margin].mean + 0.0


def _noise(rule: Rule, diagnosis: NoiseDiagnosis) -> list[tuple[float, str]]:
    level = int(rule.scope or 0)
    where = f"at level {level}"
    if rule.figure == "recovered":
        ways = [diagnosis.at(level, name) for name in diagnosis.rewriters]
        share = 100.0 if rule.percent else 1.0
        return [
            (row.recovered["clean"] * share, f"{where}, rewritten by {row.rewriter}")
            for row in ways
        ] or [(math.nan, f"{where}: nothing was rewritten")]
    return [(_noise_figure(rule, diagnosis.at(level), diagnosis), where)]


def _noise_figure(rule: Rule, row: NoiseRow, diagnosis: NoiseDiagnosis) -> float:
    if rule.figure == "retrieval drop":
        if row.retrieval is None:
            return math.nan
        base = diagnosis.at(0).retrieval
        assert base is not None
        return _relative(-row.retrieval.change.mean, base.measure.mean, rule.percent)
    cosine = "passage" if rule.figure.startswith("passage") else "clean"
    if not rule.figure.endswith("drop"):
        return row.cosine[cosine].mean
    return -(row.percent if rule.percent else row.drop)[cosine].mean + 0.0


def _relative(lost: float, of: float, percent: bool) -> float:
    if not percent:
        return lost + 0.0
    return lost / of * 100.0 + 0.0 if of else math.nan
