"""Decide in continuous integration whether a candidate is no worse than a baseline.

The verdict on candidate − baseline (`verdict`) is read with a margin m, the loss that is tolerated.
I, F and W are its intervals; the first line that applies decides on a measure:

    the candidate was not measured on what the baseline was       undecided, whatever is allowed
    queries of fewer than six groups differ                       passed if their bound is inside m
    the low end of I is above −m                                  passed
    the high end of W is below 0, or, if most of the top k is
    unjudged, that of F                                           worse
    the high end of F is below 0                                  undecided, whatever is allowed
    otherwise                                                     undecided

Where less is better, ends and signs are swapped. One measure that is worse makes the gate worse,
else one that is undecided makes it undecided. A loss on fewer than 3/n of n queries is not seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import polars as pl

from rankproof.comparison.annotated import annotator_note, labels_prefix
from rankproof.comparison.differences import Tests, aligned
from rankproof.comparison.gate_inputs import Side, check_same_policy
from rankproof.comparison.pair_tables import grades_note, is_mostly_unjudged
from rankproof.comparison.pairs import (
    Comparison,
    Difference,
    compare_evaluations,
    missing_queries,
    query_sets_dict,
)
from rankproof.comparison.repeats import repeat_note, repeats_dict
from rankproof.comparison.stale_judgments import Labels, compare_ids
from rankproof.comparison.verdict import Verdict
from rankproof.data.tables import Qrels
from rankproof.evaluation import Evaluation
from rankproof.evaluation.checks import merge_notes
from rankproof.evaluation.query_set import query_set_notes
from rankproof.foundation.errors import InputError, MeasureError, shorten
from rankproof.foundation.phrasing import out_of, plural, signed
from rankproof.foundation.printable import escape_controls
from rankproof.measures import Measure
from rankproof.presentation.charts import Chart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.judged_column import judged_note
from rankproof.presentation.lead_wording import ZERO
from rankproof.presentation.result import Presentation, Summary
from rankproof.presentation.tables import Column, Table
from rankproof.presentation.terminal import name_in_sentence
from rankproof.presentation.text_formats import to_markdown
from rankproof.statistics.distributions import t_quantile
from rankproof.statistics.intervals import (
    CONFIDENCE,
    MIN_QUERIES,
    Interval,
    queries_needed_range,
)

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import WorstCases

GateLabel = Literal["passed", "worse", "undecided"]

MARGIN = 0.01
_EXIT_CODES = {"passed": 0, "worse": 1, "undecided": 3}
_NAMED_QUERIES = 3  # in a note
_NOTE_WIDTH = 76


@dataclass(frozen=True, slots=True)
class Gated:
    """The verdict on one measure and its reasons; differences are candidate − baseline."""

    label: GateLabel
    difference: Difference
    baseline: float
    candidate: float
    margin: float
    bounds: Interval  # that decide: the interval, or the bound for few changes
    changed_most: tuple[tuple[str, float], ...]  # queries with the largest changes
    obstacle: str = ""  # why it cannot pass whatever the differences are
    is_final: bool = False  # undecided even if undecided is allowed
    grades: str = ""  # that unjudged documents could have, in words
    lost_relevant: int = 0  # relevant documents that only the baseline lists, if only those count
    queries_needed: tuple[int, int | None] | None = None  # fewest and most to add
    repeats_changed: float | None = None  # share of (pairs of) repeats with another verdict

    @property
    def verdict(self) -> Verdict:
        """The verdict on candidate against baseline, without the margin."""
        assert self.difference.verdict is not None
        return self.difference.verdict

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON has them."""
        d = self.difference
        lost = {"queries": self.verdict.only_b, "relevant": self.lost_relevant}
        return {
            "verdict": self.label,
            **plain_fields(self, "baseline", "candidate"),
            "difference": d.expected,
            **plain_fields(d, "ci", "lowest", "highest", "flip", "p", "queries", "differing"),
            **plain_fields(self, "bounds"),
            **plain_fields(d, "holes", "holes_exact"),
            **plain_fields(self, "grades", "margin"),
            "queries_needed": None if self.queries_needed is None else self.queries_needed[0],
            "queries_needed_range": self.queries_needed and list(self.queries_needed),
            **({"shortfall": lost} if self.obstacle else {}),
            **({} if self.repeats_changed is None else plain_fields(self, "repeats_changed")),
            "changed_most": [{"query": q, "difference": x} for q, x in self.changed_most],
            "comparison": self.verdict.to_dict(),
        }

    def sentence(self, candidate: str, measure: Measure) -> str:
        """Return the verdict on this measure as one sentence with its number."""
        low, _ = gains(self.bounds, measure.sign)
        gain = measure.sign * self.difference.expected
        if self.obstacle:
            return f"{self.obstacle}."
        if self.label == "passed":
            if not self.verdict.differing:
                return f"no query differs on {measure}."
            loss = f"{max(0.0, -low):.4f}"
            return f"{candidate} loses at most {loss} on {measure} (margin {self.margin:g})."
        if self.label == "worse":
            return f"{candidate} loses {-gain:.4f} on {measure} (margin {self.margin:g})."
        if self.is_final:
            return f"{candidate} loses {-gain:.4f} on {measure}, but only as judged."
        if math.isnan(low):
            return f"all queries change alike on {measure}: no interval."
        return f"{candidate} may lose more than {self.margin:g} on {measure}."

    def unjudged_note(self, measure: Measure) -> str:
        """Return what unjudged documents could do to a pass, or to a loss as judged; else ""."""
        worst = self.verdict.worst_case
        if self.is_final and not self.obstacle and worst is None:
            return "What unjudged documents could change is unknown."
        if worst is None or self.obstacle:
            return ""
        is_open = self.label == "passed" and gains(worst, measure.sign)[0] <= -self.margin
        if not is_open and not self.is_final:
            return ""
        span = f"{signed(worst[0])} to {signed(worst[1])}"
        return f"Grades of unjudged documents could make it {span} on {measure}."


def gains(ends: Interval, sign: int) -> Interval:
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
    comparison: Comparison = field(repr=False)  # of candidate and baseline

    @property
    def evaluation(self) -> Evaluation:
        """The candidate's evaluation, a baseline for the next gate."""
        return self.comparison.evaluations[0]

    @property
    def verdict(self) -> GateLabel:
        """Worse if one measure is, passed if all are."""
        labels = {gated.label for gated in self.measures.values()}
        if self.labels.stale:
            return "undecided"
        if "worse" in labels:
            return "worse"
        return "undecided" if "undecided" in labels else "passed"

    @property
    def passed(self) -> bool:
        """True if the candidate may be released; never if it was measured on less."""
        return self.exit_code == 0

    def __bool__(self) -> bool:
        return self.passed

    @property
    def exit_code(self) -> int:
        """0 passed, 1 worse, 3 undecided; 0 for undecided if that is allowed and not final."""
        is_final = self.labels.stale or any(gated.is_final for gated in self.measures.values())
        if self.verdict == "undecided" and self.allow_undecided and not is_final:
            return 0
        return _EXIT_CODES[self.verdict]

    # ------------------------------------------------------------------------------ words

    def summary(self) -> Summary:
        """The verdict with its reasons, what changed most, and what would decide it."""
        notes, next_step = self._notes(), self._next_step()
        shown = 1 if next_step else 2
        return Summary.of(
            "\n".join(self.sentences(name_in_sentence(self.candidate))),
            notes[:shown],
            next_step=next_step,
            details=[
                *notes[shown:],
                *self.evaluation.policy.definitions(self.evaluation.dtype),
                *_METHOD,
                *grades_note(self.comparison.grades),
            ],
        )

    def _notes(self) -> list[str]:
        """Return what else changes how the verdict is read, the weightiest first."""
        evaluations = self.comparison.evaluations
        sets = {e.name: {str(m): e.query_set(m) for m in e} for e in evaluations}
        judged = {e.name: e.judged for e in evaluations}
        policy = self.evaluation.policy
        shares = [g.repeats_changed for g in self.measures.values()]
        notes = [
            *repeat_note(evaluations, np.array(shares, np.float64)),
            *annotator_note(evaluations, self.comparison.pairs.figures),
            *query_set_notes(sets),
            *self._unjudged_notes(),
            *self._tie_notes(),
            *judged_note(judged, policy.condensed),
            *policy.changes(),
        ]
        return list(dict.fromkeys(notes))

    def sentences(self, candidate: str = "") -> list[str]:
        """Return the verdict, with a sentence for each measure that decides it."""
        prefix = labels_prefix(self.comparison.evaluations)
        lead = self.verdict.upper()
        if self.exit_code:
            lead += f" (exit {self.exit_code})"
        lead += f", {prefix[0].lower()}{prefix[1:-2]}" if prefix else ""
        if self.labels.stale:
            return [f"{lead}: {self.labels.why}"]
        deciding = [(m, g) for m, g in self.measures.items() if g.label == self.verdict]
        name = candidate or self.candidate
        sentences = list(dict.fromkeys(g.sentence(name, m) for m, g in deciding))
        return [f"{lead}: {sentences[0]}", *sentences[1:]]

    def _changed_note(self) -> list[str]:
        """Return how many queries changed, and as many of those that changed most as fit a line."""
        measure, gated = next(iter(self.measures.items()))
        d = gated.difference
        if not d.differing:
            return []
        of = f" on {measure}" if len(self.measures) > 1 else ""
        note = f"{out_of(d.differing, d.queries, 'query', 'changed', 'changed')}{of}"
        separator = "; most: "
        for query, change in gated.changed_most[:_NAMED_QUERIES]:
            longer = f"{note}{separator}{name_in_sentence(query)} {signed(change, 3)}"
            if len(longer) > _NOTE_WIDTH:
                break
            note, separator = longer, ", "
        return [note]

    def _unjudged_notes(self) -> list[str]:
        """Return what unjudged documents could do to a verdict, if enough is judged to say so."""
        if is_mostly_unjudged(self.comparison.evaluations):
            return []
        notes = [gated.unjudged_note(measure) for measure, gated in self.measures.items()]
        return [note for note in notes if note][:1]

    def _tie_notes(self) -> list[str]:
        for measure, gated in self.measures.items():
            d = gated.difference
            if "ties" in gated.verdict.depends_on and d.highest - d.lowest > ZERO:
                span = f"{signed(d.lowest)} to {signed(d.highest)}"
                return [f"Ties matter on {measure}: {span} over all orders; the mean decides."]
        return []

    def _next_step(self) -> str:
        """Return what would decide an undecided gate."""
        if self.verdict != "undecided" or self.labels.stale:
            return ""
        gated = next(g for g in self.measures.values() if g.label == "undecided")
        if gated.obstacle:
            return ""
        if gated.is_final or "unjudged" in gated.verdict.depends_on:
            mostly = is_mostly_unjudged(self.comparison.evaluations)
            sample = "--judge-sample 15" if mostly else "--judge-next 50"
            return f"rankproof holes {{inputs}} {sample}"
        if gated.queries_needed is None:
            return ""
        fewest, most = gated.queries_needed
        upper = "" if most is None else f" to {most:,}"
        verb = "label" if gated.verdict.annotated is not None else "judge"
        return f"{verb} {fewest:,}{upper} more queries, or widen --margin, or --allow-undecided"

    def __repr__(self) -> str:
        return f"<gate: {self.candidate} against {self.baseline}: {self.verdict}>"

    # ------------------------------------------------------------------------------ data

    def to_dict(self, per_query: bool = False) -> dict[str, Any]:
        """Return what `--format json` prints; with `per_query`, what `--out` writes."""
        missing = missing_queries(self.comparison.evaluations)
        values = {
            **plain_fields(
                self, "passed", "verdict", "baseline", "candidate", "measures", "labels"
            ),
            "sentences": self.sentences(),
            **plain_fields(self, "allow_undecided"),
            "seed": self.comparison.seed,
            **({"missing": missing} if missing else {}),
            "query_sets": query_sets_dict(self.comparison.evaluations),
            **repeats_dict(self.comparison.evaluations),
            "policy": self.evaluation.policy.to_dict(),
        }
        if per_query:
            values["runs"] = [self.evaluation.to_dict(per_query=True)]
        return values

    def to_stored_dict(self) -> dict[str, Any]:
        """What `--out` writes: also the candidate's values, a baseline for the next gate."""
        return self.to_dict(per_query=True)

    @property
    def warnings(self) -> list[str]:
        """Notes on what the readers assumed."""
        return merge_notes(self.comparison.evaluations)

    def figures(self) -> dict[str, float]:
        """Each difference, candidate − baseline, by measure."""
        return {str(m): gated.difference.expected for m, gated in self.measures.items()}

    def tables(self) -> list[Table]:
        """A row for each measure."""
        if self.labels.stale:  # no value describes the candidate then
            return []
        columns = [
            Column("measure", "text"),
            *Column.each("baseline", "candidate"),
            Column("difference", "signed"),
            Column("95% CI", "text"),
            Column("verdict", "text"),
        ]
        rows = [
            (
                *(str(m), g.baseline, g.candidate, g.difference.expected),
                None
                if math.isnan(g.bounds[0])
                else f"{signed(g.bounds[0])} to {signed(g.bounds[1])}",
                g.label,
            )
            for m, g in self.measures.items()
        ]
        return [Table(columns, rows, notes=self._changed_note())]

    def full_tables(self) -> list[Table]:
        """A row for each measure, with every value."""
        columns = [
            *Column.each("measure", "verdict", style="text"),
            *Column.each("baseline", "candidate", "margin"),
            *Column.each("difference", "low", "high", style="signed"),
            *Column.each("lowest over ties", "highest over ties", style="signed"),
            *Column.each("worst case low", "worst case high", style="signed"),
            *Column.each("queries", "differing", "missing", "baseline missing"),
        ]
        missing = [e.missing for e in self.comparison.evaluations]
        rows = [
            (
                *(str(m), g.label, g.baseline, g.candidate, g.margin),
                *(g.difference.expected, *g.bounds, g.difference.lowest, g.difference.highest),
                *(g.verdict.worst_case or (None, None)),
                *(g.difference.queries, g.difference.differing, *missing),
            )
            for m, g in self.measures.items()
        ]
        return [Table(columns, rows)]

    def markdown(self) -> str:
        """Return a summary for a pull request."""
        return f"### rankproof gate: {self.verdict}\n\n{to_markdown(Presentation.of(self))}\n"

    def junit(self) -> str:
        """Return JUnit XML with a test case for each measure."""
        cases = []
        failed = skipped = 0
        for m, gated in self.measures.items():
            text = self.labels.why if self.labels.stale else gated.sentence(self.candidate, m)
            text = escape_controls(text)
            is_allowed = self.allow_undecided and not gated.is_final and not self.labels.stale
            outcome = ""
            label = "undecided" if self.labels.stale else gated.label
            if label == "worse" or (label == "undecided" and not is_allowed):
                failed += 1
                outcome = f"<failure message={quoteattr(label)}>{escape(text)}</failure>"
            elif label == "undecided":
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
                f"{measure}: {gated.label}",
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


_METHOD = (
    "difference: candidate − baseline; 95% CI over queries, or a bound if fewer than "
    f"{MIN_QUERIES} differ.",
    "passed: the low end is above −margin; worse: the high end is below 0, whatever the unjudged "
    "documents are.",
)


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
    margins: Mapping[Measure, float],
    *,
    allow_undecided: bool = False,
    seed: int = 0,
    groups: Mapping[str, int] | None = None,
) -> Gate:
    """Return the gate of two sides on the measures that have a margin."""
    before, after = baseline.evaluation, candidate.evaluation
    _check_same_judgments(qrels, before, after)
    names = (after.name, before.name)
    if names[0] == names[1]:
        names = (f"{names[0]} (candidate)", f"{names[1]} (baseline)")
    sides = (
        replace(candidate, evaluation=after.renamed(names[0])),
        replace(baseline, evaluation=before.renamed(names[1])),
    )
    comparison = _compare(qrels, *sides, Tests(seed=seed), groups)
    gated = {m: _gated(comparison, m, margin) for m, margin in margins.items()}
    if after.repeats or before.repeats:
        gated = _with_repeats(qrels, sides, gated, groups)
    return Gate(
        baseline=names[1],
        candidate=names[0],
        measures=gated,
        labels=compare_ids(qrels, baseline, candidate),
        allow_undecided=allow_undecided,
        comparison=comparison,
    )


def _compare(
    qrels: Qrels, candidate: Side, baseline: Side, tests: Tests, groups: Mapping[str, int] | None
) -> Comparison:
    """Return the comparison of both sides, with worst cases where they are known."""
    view = _worst_cases(qrels, baseline, candidate)
    pair = [candidate.evaluation, baseline.evaluation]
    return compare_evaluations(pair, tests, groups=groups, view=view)


def _with_repeats(
    qrels: Qrels,
    sides: tuple[Side, Side],
    gated: Mapping[Measure, Gated],
    groups: Mapping[str, int] | None,
) -> dict[Measure, Gated]:
    """Add the share of (pairs of) repeats that alone would have another verdict."""
    tests = Tests(p_values=False, ties=False)
    labels: dict[Measure, list[bool]] = {m: [] for m in gated}
    for candidate, baseline in product(*(side.repeats() for side in sides)):
        comparison = _compare(qrels, candidate, baseline, tests, groups)
        for measure, whole in gated.items():
            alone = _gated(comparison, measure, whole.margin)
            labels[measure].append(alone.label != whole.label)
    return {m: replace(g, repeats_changed=float(np.mean(labels[m]))) for m, g in gated.items()}


def _worst_cases(qrels: Qrels, baseline: Side, candidate: Side) -> WorstCases | None:
    """Return a view of both runs for worst cases; None without both, or for condensed lists."""
    policy = candidate.evaluation.policy
    if not baseline.runs or not candidate.runs or policy.condensed:
        return None
    from rankproof.unjudged.bounds import WorstCases

    view = WorstCases([*candidate.runs, *baseline.runs], qrels, policy)
    try:
        view.check(list(candidate.evaluation.outcomes))
    except MeasureError:
        return None
    return view


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
                "the judgments have changed",
                place=side.name,
                remedy=f"evaluate {remedy} again",
            )


def _gated(comparison: Comparison, measure: Measure, margin: float) -> Gated:
    """Return the verdict on one measure; the comparison is of candidate and baseline."""
    difference = comparison.pairs[0].measures[measure]
    m = comparison.pairs.measures.index(measure)
    verdict = difference.verdict
    assert verdict is not None
    pair = comparison.evaluations
    values = aligned(pair, measure)["expected"]  # (2, Q)
    bounds = verdict.ci or verdict.bound or (math.nan, math.nan)
    lost = int(comparison.pairs.figures["lost_a"][0, m])
    obstacle = _obstacle(comparison, measure, values, lost)
    label, is_final = _decide(verdict, measure.sign, margin, bounds, comparison)
    if obstacle and (verdict.only_b or label != "worse"):
        label, is_final = "undecided", True
    else:
        obstacle = ""
    is_shared = ~np.isnan(values[0] - values[1])
    is_judged, means = pair[0].annotators is None, [e.best_estimate(measure) for e in pair]
    return Gated(
        label=label,
        difference=difference,
        baseline=float(values[1][is_shared].mean()) if is_judged else means[1],
        candidate=float(values[0][is_shared].mean()) if is_judged else means[0],
        margin=margin,
        bounds=bounds,
        changed_most=_changed_most(pair, values),
        obstacle=obstacle,
        is_final=is_final,
        grades=comparison.grades,
        lost_relevant=lost,
        queries_needed=_queries_needed(values, difference, margin, measure.sign)
        if label == "undecided" and not is_final
        else None,
    )


def _decide(
    verdict: Verdict, sign: int, margin: float, bounds: Interval, comparison: Comparison
) -> tuple[GateLabel, bool]:
    """Return the label of one measure, and whether an undecided one stays so if allowed."""
    low, _ = gains(bounds, sign)
    if verdict.differing == 0 or low > -margin:
        return "passed", False
    if verdict.differing < MIN_QUERIES or verdict.family_ci is None:
        return "undecided", False
    if not gains(verdict.family_ci, sign)[1] < 0:
        return "undecided", False
    worst = verdict.worst_case
    if is_fully_judged(comparison) or comparison.evaluations[0].policy.condensed:
        worst = verdict.family_ci
    if worst is not None and gains(worst, sign)[1] < 0:
        return "worse", False
    if is_mostly_unjudged(comparison.evaluations):
        return "worse", False
    return "undecided", True


def is_fully_judged(comparison: Comparison) -> bool:
    """True if every document of both top k is judged, so that worst cases are the interval."""
    shares = [share for e in comparison.evaluations for share in e.judged.values()]
    return bool(shares) and all(share == 1.0 for share in shares)


def _obstacle(comparison: Comparison, measure: Measure, values: Any, lost: int) -> str:
    """Return why the candidate cannot pass whatever the differences are; "" if it can."""
    candidate, baseline = comparison.evaluations
    verdict = comparison.pairs.verdict(0, comparison.pairs.measures.index(measure))
    total = int((~np.isnan(values[1])).sum())
    if verdict.only_b and candidate.policy.candidates_only:
        return (
            f"{candidate.name} lists no relevant document for {verdict.only_b:,} of "
            f"{plural(total, 'query')}; rerank the same candidates, or gate without "
            "--candidates-only"
        )
    if verdict.only_b:
        is_missing = candidate.missing > baseline.missing
        state = "missing from" if is_missing else "without a value in"
        return f"{verdict.only_b:,} of {plural(total, 'query')} are {state} {candidate.name}"
    if lost:
        return (
            f"{candidate.name} lists {plural(lost, 'relevant document')} fewer than "
            f"{baseline.name}, in {plural(verdict.fewer_relevant[0], 'query')}; rerank the same "
            "candidates, or gate without --candidates-only"
        )
    return _missing_gain(candidate, baseline, measure, values)


def _missing_gain(
    candidate: Evaluation, baseline: Evaluation, measure: Measure, values: Any
) -> str:
    """Return that missing queries, which count 0, look like gains where less is better."""
    if not candidate.missing:
        return ""
    queries = pl.concat([candidate.queries, baseline.queries]).unique().sort()
    is_missing = queries.is_in(candidate.missing_queries.implode()).to_numpy()
    better = is_missing & (measure.sign * (values[0] - values[1]) > ZERO)
    if not better.any():
        return ""
    return (
        f"{candidate.name} lacks {plural(int(better.sum()), 'query')} of {baseline.name}, and a "
        f"missing query, which counts 0, is better in {measure}; run it on all queries"
    )


def _changed_most(pair: Sequence[Evaluation], values: Any) -> tuple[tuple[str, float], ...]:
    """Return the queries that changed most, with their differences."""
    queries = pl.concat([e.queries for e in pair]).unique().sort()
    difference = np.nan_to_num(values[0] - values[1])
    by_size = np.argsort(-np.abs(difference), kind="stable")[:5]
    return tuple(
        (str(queries[int(row)]), float(difference[row]))
        for row in by_size
        if abs(difference[row]) > ZERO
    )


def _queries_needed(
    values: Any, difference: Difference, margin: float, sign: int
) -> tuple[int, int | None] | None:
    """Return the fewest and the most queries to add until the gate decides; None if unknown."""
    d = values[0] - values[1]
    d = sign * d[~np.isnan(d)]
    deviation, n = float(d.std(ddof=1)) if len(d) > 1 else math.nan, len(d)
    if difference.ci is not None and difference.verdict and difference.verdict.annotated:
        n = difference.verdict.annotated
        half = (difference.ci[1] - difference.ci[0]) / 2
        deviation = half * math.sqrt(n) / t_quantile((1 + CONFIDENCE) / 2, n - 2.0)
    if difference.ci is None or not deviation > ZERO:
        return None
    fewest, most = queries_needed_range(
        np.array(gains(difference.ci, sign)),
        np.array(deviation),
        np.array(difference.differing / difference.queries),
        np.array(n),
        margin,
    ).tolist()
    if math.isinf(fewest):
        return None
    return int(fewest), None if math.isinf(most) else int(most)
