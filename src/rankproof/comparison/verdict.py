"""One verdict decides every comparison of two runs.

For A − B every query has a difference d, and ends l ≤ d ≤ u over all grades that its unjudged
documents could have. Three intervals follow:

    I   95% interval of the mean of d: what the queries show
    F   the same, holding together with all other comparisons of the call (the family)
    W   from the low end for l to the high end for u, never narrower than I: the worst case over
        unjudged documents

The label is that of the first line that applies; δ is the largest difference that counts as equal:

    no query differs                                   equal
    queries of fewer than six groups differ            undecided; equal if their bound is inside ±δ
    F inside ±δ                                        equal
    F excludes 0                                       ahead or behind
    otherwise                                          undecided

Ties enter by expectation. What the label rests on besides the queries is named in `depends_on`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from rankproof.foundation.phrasing import amount, plural, signed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.statistics.intervals import MIN_QUERIES, Interval
from rankproof.statistics.labels import LABELS, Label

Reason = Literal["queries", "unjudged", "ties", "missing", "candidates", "judge"]

REASONS: tuple[Reason, ...] = (*("queries", "unjudged", "ties", "missing", "candidates", "judge"),)
FLIP_LIMIT = 0.05  # probability of a reversal by ties from which the label depends on them
MOSTLY_UNJUDGED = 0.5  # judged share of the top k below which worst cases say nothing


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one measure shows of run a against run b; differences are a − b.

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> verdict = rp.compare("try/qrels.txt", runs, ["nDCG@5"]).verdict("a", "b", "nDCG@5")
    >>> verdict.label, "ties" in verdict.depends_on
    ('behind', True)
    """

    label: Label  # of a, on this measure
    estimate: float  # mean difference over the shared queries
    ci: Interval | None  # I; None if queries of fewer than six groups differ
    family_ci: Interval | None  # F
    worst_case: Interval | None  # W; None if unknown
    worst_case_exact: bool  # some grades reach the ends of l and u
    depends_on: tuple[Reason, ...]
    queries: int  # that both runs average
    groups: int  # of queries that share a source
    differing: int  # groups that differ
    only_a: int  # queries that only run a averages
    only_b: int
    fewer_relevant: tuple[int, int]  # queries on which a, and b, lists fewer relevant candidates
    bound: Interval | None  # of the mean where there is no interval
    equal_within: float | None  # δ
    queries_needed: tuple[int, int | None] | None  # fewest and most queries to add; None: never
    repeats_changed: float | None = None  # share of (pairs of) repeats with another label
    annotated: int | None = None  # queries that annotators labeled; None: nobody was asked
    worth: float | None = None  # annotated queries that without the judge would show as much
    judge_estimate: float | None = None  # mean difference by the judge's labels alone

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON has it."""
        needed = self.queries_needed
        return {
            "label": self.label,
            "estimate": plain(self.estimate),
            "ci": plain(self.ci),
            "family_ci": plain(self.family_ci),
            "worst_case": plain(self.worst_case),
            "worst_case_exact": self.worst_case_exact,
            "depends_on": list(self.depends_on),
            "queries": self.queries,
            "groups": self.groups,
            "differing_groups": self.differing,
            "only_a": self.only_a,
            "only_b": self.only_b,
            "fewer_relevant": list(self.fewer_relevant),
            "equal_within": self.equal_within,
            "queries_needed_range": None if needed is None else list(needed),
            **({} if self.repeats_changed is None else plain_fields(self, "repeats_changed")),
            **({} if self.annotated is None else plain_fields(self, *_ANNOTATED)),
        }

    @classmethod
    def from_columns(cls, values: Mapping[str, float], equal_within: float | None) -> Verdict:
        """Return the verdict in one cell of the columns that `decide` fills."""
        changed = values.get("repeats_changed", math.nan)
        return cls(
            label=LABELS[int(values["label"])],
            estimate=values["expected"],
            ci=_interval(values, "low", "high"),
            family_ci=_interval(values, "family_low", "family_high"),
            worst_case=_interval(values, "worst_low", "worst_high"),
            worst_case_exact=bool(values["worst_exact"]),
            depends_on=tuple(r for at, r in enumerate(REASONS) if int(values["reasons"]) >> at & 1),
            queries=int(values["queries"]),
            groups=int(values["units"]),
            differing=int(values["differing_units"]),
            only_a=int(values["only_a"]),
            only_b=int(values["only_b"]),
            fewer_relevant=(int(values["fewer_a"]), int(values["fewer_b"])),
            bound=_interval(values, "bound_low", "bound_high"),
            equal_within=equal_within,
            queries_needed=_count_range(values["needed_low"], values["needed_high"]),
            repeats_changed=None if math.isnan(changed) else changed,
            annotated=int(values["annotated"]) if "annotated" in values else None,
            worth=values.get("worth"),
            judge_estimate=values.get("judge_estimate"),
        )

    def reversed(self) -> Verdict:
        """Return the verdict on run b against run a."""
        swapped: dict[Label, Label] = {"ahead": "behind", "behind": "ahead"}

        def negative(ends: Interval | None) -> Interval | None:
            return None if ends is None else (-ends[1], -ends[0])

        return replace(
            self,
            label=swapped.get(self.label, self.label),
            estimate=-self.estimate,
            ci=negative(self.ci),
            family_ci=negative(self.family_ci),
            worst_case=negative(self.worst_case),
            only_a=self.only_b,
            only_b=self.only_a,
            fewer_relevant=self.fewer_relevant[::-1],
            bound=negative(self.bound),
            judge_estimate=None if self.judge_estimate is None else -self.judge_estimate,
        )

    # ------------------------------------------------------------------------------ words

    def sentence(self, a: str, b: str, measure: str, p: float | None = None) -> str:
        """Return the verdict as one sentence with its number."""
        if self.only_a or self.only_b:
            measure += f" over the {plural(self.queries, 'query')} that both have"
        if self.label == "equal":
            return f"{a} and {b} are {self._equality()} on {measure}{self._sign_clause(a, b)}."
        if self.label == "undecided":
            return f"Undecided on {measure}: {self._doubt(a, b)}"
        ahead, behind = (a, b) if self.label == "ahead" else (b, a)
        return (
            f"{ahead} beats {behind} on {measure} by {amount(abs(self.estimate))} "
            f"({self._interval_text(absolute=True)}{p_clause(p)})."
        )

    def _equality(self) -> str:
        if not self.differing:
            return "equal"
        return f"equal within {self.equal_within:g} ({self._interval_text()})"

    def _sign_clause(self, a: str, b: str) -> str:
        """Return who leads inside the tolerance, if the interval shows it."""
        if self.family_ci is None or self.family_ci[0] <= 0 <= self.family_ci[1]:
            return ""
        return f"; {a if self.family_ci[0] > 0 else b} has the higher value"

    def _doubt(self, a: str, b: str) -> str:
        """Return why nothing is decided."""
        if "candidates" in self.depends_on:
            fewer, name = max(zip(self.fewer_relevant, (a, b), strict=True))
            lists = plural(fewer, "query", "queries")
            return f"{name} lists fewer relevant documents for {lists}, and only listed ones count."
        if self.differing < MIN_QUERIES:
            differ = f"{plural(self.differing, *self._units())} differ{'s' * (self.differing == 1)}"
            return f"only {differ}, of at least {MIN_QUERIES} needed ({signed(self.estimate)})."
        queries = self.queries if self.annotated is None else self.annotated
        return (
            f"{plural(queries, *self._units('query'))} do not show whether {a} or {b} is better "
            f"({signed(self.estimate)}, {self._interval_text()})."
        )

    def _units(self, unit: str = "") -> tuple[str, str]:
        """Return the words for one and for several of what was drawn."""
        if self.annotated is not None:
            return "annotated query", "annotated queries"
        if unit == "query" or self.groups == self.queries:
            return "query", "queries"
        return "group", "groups"

    def _interval_text(self, absolute: bool = False) -> str:
        """Return the interval that decided; positive for whoever is ahead if `absolute`."""
        ends = self.family_ci or self.bound
        if ends is None:
            return "no interval"
        low, high = sorted(map(abs, ends)) if absolute else ends
        if absolute:
            return f"95% CI {low:.4f}–{high:.4f}"
        return f"95% CI {signed(low)} to {signed(high)}"

    def more_queries(self) -> str:
        """Return "60 to 900 more", the queries that would decide; "" if they would not help."""
        if self.label != "undecided" or self.queries_needed in (None, (1, None)):
            return ""
        assert self.queries_needed is not None
        fewest, most = self.queries_needed
        annotated = "" if self.annotated is None else " annotated"
        return f"{fewest:,} to {'never' if most is None else f'{most:,}'} more{annotated}"


_ANNOTATED = ("annotated", "worth", "judge_estimate")


def p_clause(p: float | None) -> str:
    """Return ", p = .008", without a leading zero; "" for None.

    >>> p_clause(0.0081), p_clause(1e-7), p_clause(1.0)
    (', p = .008', ', p < .001', ', p = 1')
    """
    if p is None or math.isnan(p):
        return ""
    if p < 0.001:
        return ", p < .001"
    text = f"{p:.3f}"
    return f", p = {text[1:]}" if text.startswith("0") else ", p = 1"


def _interval(values: Mapping[str, float], low: str, high: str) -> Interval | None:
    ends = (values.get(low, math.nan), values.get(high, math.nan))
    return None if any(map(math.isnan, ends)) else ends


def _count_range(low: float, high: float) -> tuple[int, int | None] | None:
    if math.isnan(low) or math.isinf(low):
        return None
    return int(low), None if math.isnan(high) or math.isinf(high) else int(high)
