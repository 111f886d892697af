"""Decide in continuous integration whether a candidate is no worse than a baseline.

For each measure, candidate − baseline over the queries of both has a 95% interval, and a loss of up
to a margin is tolerated:

    passed      the lower end is above −margin: the loss is not larger than tolerated
    worse       the upper end is below 0
    undecided   neither; the message says how many queries would decide

A candidate that was evaluated on fewer queries or fewer relevant documents than the baseline does
not pass, whatever the other queries show (gate_coverage). For a measure where less is better, ends
and signs are swapped.

For each measure, a candidate that is worse by the margin or more passes in at most 2.5% of cases,
and one that is as good is called worse in at most 2.5%; but a loss that none of the queries shows
passes. If fewer than six queries differ there is no interval: then the largest share of queries
that could differ (Clopper and Pearson) times the largest observed change must be within the margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import polars as pl

from rankproof.comparison.gate_coverage import Shortfall, shortfall
from rankproof.comparison.gate_inputs import Side, check_same_policy
from rankproof.comparison.known_ids import Labels, labels_of
from rankproof.comparison.pairs import (
    Difference,
    aligned,
    compare_evaluations,
    missing_note,
    missing_queries,
)
from rankproof.data.tables import Qrels
from rankproof.evaluation import Evaluation, merge_notes
from rankproof.foundation.errors import InputError, MeasureError, shorten
from rankproof.foundation.phrasing import out_of, plural, signed
from rankproof.foundation.printable import escape_controls, escape_markdown
from rankproof.measures import Measure
from rankproof.presentation.charts import Chart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.lead_wording import ZERO, modal_verb
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Column, Table
from rankproof.presentation.text_formats import markdown_table
from rankproof.statistics.intervals import (
    MIN_QUERIES,
    ROUNDING,
    Interval,
    count_or_none,
    few_changes_bound,
    queries_needed,
)

Verdict = Literal["passed", "worse", "undecided"]

_SIGNS = {"passed": "✅", "worse": "❌", "undecided": "❔"}
MARGIN = 0.01
NAMED_QUERIES = 5  # in a sentence


@dataclass(frozen=True, slots=True)
class Gated:
    """The verdict on one measure and its reasons; differences are candidate − baseline."""

    verdict: Verdict
    difference: Difference
    baseline: float
    candidate: float
    margin: float
    bounds: Interval  # that decide: the interval, or the bound for few changes
    needed: int | None  # number of queries that would decide, at this difference
    most: tuple[tuple[str, float], ...]  # queries with the largest changes
    holes: Interval | None = None  # worst cases over unjudged documents; None: not computed
    holes_exact: bool | None = None  # True if some grades reach these ends; else they are bounds
    grades: str = ""  # those that unjudged documents could have, in words
    shortfall: Shortfall = field(default_factory=Shortfall)  # what only the baseline was judged on

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON has them."""
        d = self.difference
        return {
            **plain_fields(self, "verdict", "baseline", "candidate"),
            "difference": d.expected,
            **plain_fields(d, "ci", "lowest", "highest", "flip", "p", "queries", "differing"),
            **plain_fields(self, "bounds", "holes", "holes_exact", "grades", "margin"),
            "queries_needed": self.needed,
            **({"shortfall": self.shortfall.to_dict()} if self.shortfall.reason else {}),
            "changed_most": [{"query": q, "difference": x} for q, x in self.most],
        }

    def _unjudged_could_decide(self, sign: int) -> bool:
        """True if unjudged documents could change the verdict where ties alone cannot."""
        if self.holes is None:
            return False
        low, high = _gains(self.holes, sign)
        low_by_ties, high_by_ties = _gains((self.difference.lowest, self.difference.highest), sign)
        could_fail = low < min(-self.margin, low_by_ties - 1e-9)
        limit = -self.margin if self.verdict == "worse" else 0.0
        could_pass = high > max(limit, high_by_ties + 1e-9)
        if self.verdict == "passed":
            return could_fail
        return could_pass or (self.verdict == "undecided" and could_fail)

    def sentence(self, measure: Measure) -> str:
        """Say what differs, by how much, on which queries most, and what would decide it."""
        d = self.difference
        unjudged = []
        if self._unjudged_could_decide(measure.sign):
            assert self.holes is not None
            at_most = "" if self.holes_exact else " at most"
            unjudged = [
                f"Documents that nobody judged {modal_verb(self.holes_exact)} make it anything "
                f"from {signed(self.holes[0])} to {signed(self.holes[1])}{at_most}, with grades "
                f"{self.grades}: `rankproof holes` says which to judge first."
            ]
        if d.differing == 0:
            return " ".join(
                [f"{measure}: {self.verdict}. No query of {d.queries} differs.", *unjudged]
            )
        low, high = self.bounds
        direction = "less is better, " if measure.sign < 0 else ""
        span = f"95% from {signed(low)} to {signed(high)}"
        if d.ci is None:
            span = f"too few for an interval; at most {high:.4f} either way if the rest is alike"
        if math.isnan(low):
            span = "all alike, and so without an interval"
        differ = out_of(d.differing, d.queries, "query", "differs", "differ")
        parts = [
            f"{measure}: {self.verdict}. {self.baseline:.4f} → {self.candidate:.4f}, a change of "
            f"{signed(d.expected)} ({direction}margin {self.margin:g}); {differ}, "
            f"{span}."
        ]
        named = ", ".join(f"{q} {signed(x, 3)}" for q, x in self.most)
        parts.append(f"Changed most: {named}.")
        is_certain = not unjudged and not d.rests_on_ties
        if self.verdict == "passed" and _gains(self.bounds, measure.sign)[1] < 0 and is_certain:
            parts.append("The queries show it to be worse, by less than the margin.")
        if self.verdict == "undecided" and self.needed is not None:
            more = self.needed - d.queries
            parts.append(f"About {plural(self.needed, 'query')} would decide it: {more:,} more.")
        parts += unjudged
        if d.rests_on_ties:
            parts.append(
                f"Which is ahead rests on how ties are broken "
                f"({signed(d.lowest)} to {signed(d.highest)})."
            )
        return " ".join(parts)


def _gains(ends: Interval, sign: int) -> Interval:
    """Return the ends of a difference as gains: swapped and negated where less is better."""
    return ends if sign > 0 else (-ends[1], -ends[0])


@dataclass(frozen=True, slots=True, repr=False)
class Gate(Displayed):
    """The verdict over all measures; true if the candidate may pass.

    >>> before, after = "try/plain.trec", "try/saturated.trec"
    >>> gate = rp.gate("try/qrels.txt", before, after, ["nDCG@5"], margin=0.02)
    >>> gate.verdict, gate.passed
    ('worse', False)
    """

    kind: ClassVar[str] = "gate"

    baseline: str
    candidate: str
    measures: dict[Measure, Gated]
    labels: Labels
    allow_undecided: bool
    seed: int
    evaluation: Evaluation = field(repr=False)  # the candidate's, for the next gate
    missing: Mapping[str, int] = field(default_factory=dict)  # judged queries, by run
    notes: tuple[str, ...] = ()  # what was guessed of the files

    @property
    def verdict(self) -> Verdict:
        """Worse if one measure is, passed if all are."""
        verdicts = {gated.verdict for gated in self.measures.values()}
        if "worse" in verdicts:
            return "worse"
        return "undecided" if "undecided" in verdicts else "passed"

    @property
    def passed(self) -> bool:
        """True if the candidate may be released; never if it was evaluated on less."""
        allowed = ("passed", "undecided") if self.allow_undecided else ("passed",)
        return self.verdict in allowed and not self.labels.stale and not self._obstacles()

    def __bool__(self) -> bool:
        return self.passed

    def sentences(self) -> list[str]:
        """Return the verdict, then a sentence for each measure."""
        lead = f"{self.candidate} against {self.baseline}: {self.verdict}."
        missing = [f"{note}." for note in missing_note(self.missing, self.evaluation.policy)]
        if self.labels.stale:
            return [f"{lead} {self.labels.why}", *missing]
        sentences = [gated.sentence(m) for m, gated in self.measures.items()]
        return [lead, *self._obstacles(), *missing, *sentences]

    def _obstacles(self) -> list[str]:
        """Return why the candidate cannot pass whatever the differences are, each reason once."""
        reasons: dict[str, list[str]] = {}
        for measure, gated in self.measures.items():
            if gated.shortfall.reason:
                reasons.setdefault(gated.shortfall.reason, []).append(str(measure))
        return [
            f"Cannot pass{'' if len(names) == len(self.measures) else ' on ' + ', '.join(names)}: "
            f"{reason}."
            for reason, names in reasons.items()
        ]

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    __repr__ = __str__

    def to_dict(self, per_query: bool = False) -> dict[str, Any]:
        """Return what `--format json` prints; with `per_query`, what `--out` writes."""
        values = {
            **plain_fields(
                self, "passed", "verdict", "baseline", "candidate", "measures", "labels"
            ),
            "sentences": self.sentences(),
            **plain_fields(self, "allow_undecided", "seed"),
            **({"missing": dict(self.missing)} if self.missing else {}),
            "policy": self.evaluation.policy.to_dict(),
        }
        if per_query:
            values["runs"] = [self.evaluation.to_dict(per_query=True)]
        return values

    @property
    def exit_code(self) -> int:
        """1 unless the candidate passed."""
        return 0 if self.passed else 1

    @property
    def warnings(self) -> tuple[str, ...]:
        """Notes on what the readers assumed."""
        return self.notes

    def summary(self) -> Summary:
        """The verdict, then a sentence for each measure."""
        return Summary(notes=self.sentences())

    def figures(self) -> dict[str, float]:
        """Each difference, candidate − baseline, by measure."""
        return {str(m): gated.difference.expected for m, gated in self.measures.items()}

    def to_stored_dict(self) -> dict[str, Any]:
        """What `--out` writes: also the candidate's values, a baseline for the next gate."""
        return self.to_dict(per_query=True)

    def tables(self) -> list[Table]:
        """A row for each measure."""
        columns = [
            *Column.each("measure", "verdict", style="text"),
            *Column.each("baseline", "candidate", drop=3),
            *Column.each("difference", "low", "high", style="signed"),
            Column("margin"),
            Column("over ties", "text", drop=1),
            Column("differ", "text", drop=4),
            Column("queries needed", drop=2),
        ]
        rows = [
            (
                *(str(m), g.verdict, g.baseline, g.candidate, g.difference.expected, *g.bounds),
                g.margin,
                f"{signed(g.difference.lowest)} to {signed(g.difference.highest)}",
                f"{g.difference.differing} of {g.difference.queries}",
                g.needed if g.verdict == "undecided" else None,  # the others are decided
            )
            for m, g in self.measures.items()
        ]
        notes = ["candidate − baseline; low and high: 95% over queries"]
        if any(g.difference.differing < MIN_QUERIES for g in self.measures.values()):
            notes[0] += (
                f", or, where fewer than {MIN_QUERIES} queries differ, the largest change times "
                "the largest share that could differ"
            )
        signs = {m.sign for m in self.measures}
        if 1 in signs:
            notes[0] += "; passed: low above −margin; worse: high below 0"
        if -1 in signs:
            less = ", ".join(str(m) for m in self.measures if m.sign < 0)
            notes.append(f"less {less} is better; passed: high below margin; worse: low above 0")
        return [Table(columns, rows, notes=notes)]

    def markdown(self) -> str:
        """Return a summary for a pull request."""
        lines = [f"### {_SIGNS[self.verdict]} rankproof gate: {self.verdict}", ""]
        lines += [
            f"{escape_markdown(escape_controls(sentence))}\n" for sentence in self.sentences()
        ]
        return "\n".join([*lines, markdown_table(self.tables()[0]), ""])

    def junit(self) -> str:
        """Return JUnit XML with a test case for each measure."""
        cases = []
        failed = skipped = 0
        for m, gated in self.measures.items():
            outcome = ""
            reason = gated.shortfall.reason
            text = f"Cannot pass: {reason}. {gated.sentence(m)}" if reason else gated.sentence(m)
            text = escape_controls(self.labels.why if self.labels.stale else text)
            has_failed = self.labels.stale or gated.verdict == "worse" or bool(reason)
            if has_failed or (gated.verdict == "undecided" and not self.allow_undecided):
                failed += 1
                outcome = f"<failure message={quoteattr(gated.verdict)}>{escape(text)}</failure>"
            elif gated.verdict == "undecided":
                skipped += 1
                outcome = f"<skipped message={quoteattr(text)}/>"
            name = quoteattr(f"{m}, margin {gated.margin:g}")
            suite = quoteattr(escape_controls(f"rankproof.gate.{self.candidate}"))
            output = f"<system-out>{escape(text)}</system-out>"
            cases.append(f"  <testcase classname={suite} name={name}>{outcome}{output}</testcase>")
        head = (
            f'<testsuite name="rankproof gate" tests="{len(cases)}" failures="{failed}" '
            f'skipped="{skipped}" errors="0">'
        )
        return "\n".join(
            ['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>", ""]
        )

    def charts(self) -> list[Chart]:
        """Each difference with its interval, 0, and the margin."""
        rows = [
            Range(
                f"{measure}: {gated.verdict}",
                gated.difference.expected,
                *gated.bounds,
                marker=-measure.sign * gated.margin,
            )
            for measure, gated in self.measures.items()
        ]
        title = f"{self.candidate} − {self.baseline}"
        return [
            RangeChart(title, rows, "difference", zero=True, caption=_chart_caption(self.measures))
        ]


def _chart_caption(measures: Iterable[Measure]) -> str:
    """Return what the bars and lines of a gate's chart mean."""
    falling = [str(measure) for measure in measures if measure.sign < 0]
    names = ", ".join(falling)
    reversed_rule = f" (the margin, and the upper bound below it, for {names})" if names else ""
    return (
        "The difference and its 95% bounds. Upright line: minus the margin; it passes where the "
        f"lower bound is above that{reversed_rule}."
    )


def margins_of(
    measures: Sequence[Measure], margin: float | Sequence[float]
) -> dict[Measure, float]:
    """Return the tolerated loss of each measure: one for all, or one for each in order."""
    losses = [margin] if isinstance(margin, int | float) else list(margin)
    if len(losses) == 1:
        losses *= len(measures)
    if len(losses) != len(measures):
        raise InputError(
            f"{plural(len(losses), 'margin')} for {plural(len(measures), 'measure')}",
            remedy="give one margin, or one for each measure in order",
        )
    for loss in losses:
        if not (isinstance(loss, int | float) and math.isfinite(loss) and loss >= 0):
            raise InputError(f"margin {shorten(loss)} is not a number from 0", remedy="0.01, say")
    return dict(zip(measures, map(float, losses), strict=True))


def gate_sides(
    qrels: Qrels,
    baseline: Side,
    candidate: Side,
    measures: Sequence[Measure],
    margins: Mapping[Measure, float],
    *,
    allow_undecided: bool = False,
    seed: int = 0,
) -> Gate:
    """Return the gate of two sides."""
    before, after = baseline.evaluation, candidate.evaluation
    _check_same_judgments(qrels, before, after)
    names = (after.name, before.name)
    if names[0] == names[1]:
        names = (f"{names[0]} (candidate)", f"{names[1]} (baseline)")
    pair = [after.renamed(names[0]), before.renamed(names[1])]
    labels = labels_of(qrels, baseline, candidate)
    differences = compare_evaluations(pair, seed=seed).pairs[0].measures
    worst_cases = _worst_cases(qrels, baseline, candidate, measures)
    sides = [
        replace(side, evaluation=side.evaluation.renamed(name))
        for side, name in zip((candidate, baseline), names, strict=True)
    ]
    gated = {m: _gated(qrels, sides, m, differences[m], margins[m]) for m in measures}
    gated = {m: replace(g, **worst_cases.get(m, {})) for m, g in gated.items()}
    if labels.stale:  # no value describes the candidate then
        gated = {m: replace(g, verdict="undecided") for m, g in gated.items()}
    missing = missing_queries(pair)
    return Gate(
        baseline=names[1],
        candidate=names[0],
        measures=gated,
        labels=labels,
        allow_undecided=allow_undecided,
        seed=seed,
        evaluation=after,
        missing=missing,
        notes=tuple(merge_notes([before, after])),
    )


def _check_same_judgments(qrels: Qrels, before: Evaluation, after: Evaluation) -> None:
    """Refuse a baseline that was evaluated with another policy or with other judgments."""
    check_same_policy(before.policy.to_dict(), after.policy, before.name)
    if after.policy.candidates_only:  # the relevant documents depend on the run
        return
    if after.policy.missing == "zero":
        pairs = [(before, after.relevant, "the candidate with", "the baseline")]
    else:  # the queries depend on the run
        relevant = qrels.to_frame().filter(pl.col("grade") >= 1)["query"]
        pairs = [
            (side, int(relevant.is_in(side.queries.implode()).sum()), "its queries now have", "it")
            for side in (before, after)
        ]
    for side, now, owner, remedy in pairs:
        if side.relevant and now and side.relevant != now:
            raise InputError(
                f"was measured with {side.relevant} relevant documents, and {owner} {now}: "
                "the judgements have changed",
                place=side.name,
                remedy=f"evaluate {remedy} again",
            )


def _gated(
    qrels: Qrels, sides: Sequence[Side], measure: Measure, d: Difference, margin: float
) -> Gated:
    """Return the verdict on one measure; `sides` are the candidate and the baseline."""
    candidate, baseline = sides
    pair = [side.evaluation for side in sides]
    values = aligned(pair, measure)["expected"]  # (2, Q)
    difference = values[0] - values[1]
    is_shared = ~np.isnan(difference)
    difference = np.where(np.abs(difference) < ZERO, 0.0, difference)
    bounds = d.ci or few_changes_bound(difference[is_shared])
    low, high = _gains(bounds, measure.sign)
    verdict: Verdict = "undecided"
    if d.differing == 0 or low > -margin:
        verdict = "passed"
    elif high < 0:
        verdict = "worse"
    queries = pl.concat([e.queries for e in pair]).unique().sort()
    lost = shortfall(qrels, baseline, candidate, measure, queries, values)
    if lost.reason and verdict == "passed":
        verdict = "undecided"
    by_size = np.argsort(-np.abs(np.nan_to_num(difference)), kind="stable")
    changed = [row for row in by_size if difference[row] and is_shared[row]]
    deviation = float(difference[is_shared].std(ddof=1)) if is_shared.sum() > 1 else math.nan
    gain = measure.sign * d.expected
    distance = max(gain + margin, -gain)  # to 0 or to −margin, whichever is easier to exclude
    needed = queries_needed(*map(np.array, (distance, deviation, d.differing / d.queries)))
    is_unknown = bool(lost.reason) or deviation <= ROUNDING or needed <= d.queries
    if verdict == "undecided" and is_unknown:
        needed = np.array(math.nan)
    return Gated(
        verdict=verdict,
        difference=d,
        baseline=float(values[1][is_shared].mean()),
        candidate=float(values[0][is_shared].mean()),
        margin=margin,
        bounds=bounds,
        needed=count_or_none(float(needed)),
        most=tuple(
            (str(queries[int(row)]), float(difference[row])) for row in changed[:NAMED_QUERIES]
        ),
        shortfall=lost,
    )


def _worst_cases(
    qrels: Qrels, baseline: Side, candidate: Side, measures: Sequence[Measure]
) -> dict[Measure, dict[str, Any]]:
    """Return, by measure, the fields of `Gated` about unjudged documents; {} without both lists."""
    policy = candidate.evaluation.policy
    if baseline.run is None or candidate.run is None or policy.condensed:
        return {}
    from rankproof.unjudged.bounds import WorstCases

    pair = [replace(candidate.run, name="candidate"), replace(baseline.run, name="baseline")]
    fields: dict[Measure, dict[str, Any]] = {}
    view = WorstCases(pair, qrels, policy)
    for measure in measures:
        with suppress(MeasureError):  # a measure without worst cases
            view.check([measure])
            bound, grades = view.pair_bound(0, 1, measure), view.grades([measure])
            ends = {"holes": (bound.lowest, bound.highest), "holes_exact": bound.exact}
            fields[measure] = {**ends, "grades": grades}
    return fields
