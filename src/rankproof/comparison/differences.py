"""Differences of pairs of runs, as columns: one value for each pair (P) and measure (M).

Everything that is said of two runs is computed here, for all pairs at once: differences and their
extremes over tie orders, p-values, the intervals I, F and W of `verdict`, and the label.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankproof.comparison.annotated import annotated_columns, annotated_values
from rankproof.comparison.verdict import FLIP_LIMIT, REASONS
from rankproof.data.query_groups import number_groups
from rankproof.evaluation import Evaluation
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError, MeasureError
from rankproof.foundation.progress import advance
from rankproof.measures import Measure
from rankproof.measures.properties import is_free_of_unlisted
from rankproof.presentation.lead_wording import ZERO
from rankproof.statistics import flips
from rankproof.statistics.family import critical_values
from rankproof.statistics.groups import Groups, means_of
from rankproof.statistics.intervals import (
    count_differing,
    difference_intervals,
    possible_range,
    queries_needed,
    queries_needed_range,
)
from rankproof.statistics.labels import (
    AHEAD,
    BEHIND,
    EQUAL,
    UNDECIDED,
    difference_labels,
    few_changes_bounds,
    label_codes,
)
from rankproof.statistics.randomization import holm, randomization_test, t_test

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import WorstCases

_CELLS = 1 << 20  # values of (pair, query) in memory at a time
_NO_BOUNDS = ("holes_low", "holes_high", "holes_exact", "worst_low", "worst_high", "worst_exact")


@dataclass(frozen=True)
class Tests:
    """What to compute of each pair besides its verdict."""

    seed: int = 0
    p_values: bool = True  # by paired randomization
    ties: bool = True  # the probability that ties reverse the difference
    t_test: bool = False
    equal_within: float | None = None  # δ of the verdict


def difference_columns(
    evaluations: Sequence[Evaluation],
    first: Int,
    second: Int,
    tests: Tests,
    *,
    groups: Mapping[str, int] | None = None,
    view: WorstCases | None = None,
) -> tuple[dict[str, Float], bool]:
    """Return the columns (P, M) of the pairs first[i] − second[i], and whether every p is exact.

    All measures of all pairs are one family. `groups` numbers the source of each query; `view`
    has the same runs in the same order, for worst cases over unjudged documents: of an average of
    repeats all of them, one after the other.
    """
    measures = tuple(evaluations[0].outcomes)
    values = [aligned(evaluations, measure) for measure in measures]
    queries = _all_queries(evaluations)
    group_of = number_groups(queries, groups)
    expected = [v["expected"] for v in values]
    names = [evaluation.name for evaluation in evaluations]
    for measure, of_runs in zip(measures, expected, strict=True):
        _check_shared_queries(of_runs, first, second, measure, names)
    if evaluations[0].annotators is not None:
        expected = [
            annotated_values(evaluations, m, queries, group_of) for m in evaluations[0].outcomes
        ]
    critical = critical_values(expected, first, second, group_of, tests.seed)
    parts, exact = [], True
    for measure, of_measure, limits in zip(measures, values, critical, strict=True):
        columns = _MeasureColumns(evaluations, measure, of_measure, queries, group_of, limits)
        part, is_exact = columns.compute(first, second, tests, view, share=1 / len(measures))
        parts.append(part)
        exact &= is_exact
    figures = {name: np.stack([part[name] for part in parts], axis=1) for name in parts[0]}
    figures |= _judged_shares(evaluations, measures, first, second)
    if tests.p_values:
        figures["p_holm"] = holm(figures["p"].ravel()).reshape(figures["p"].shape)
    return figures, exact


def _all_queries(evaluations: Sequence[Evaluation]) -> pl.Series:
    """Return the sorted queries of all runs."""
    return pl.concat([e.queries for e in evaluations]).unique().sort()


def aligned(evaluations: Sequence[Evaluation], measure: Measure) -> dict[str, Float]:
    """Return (R, Q) the values of each run on a common list of queries; NaN if it has none.

    The columns are expected, oblivious, min, max and variance.
    """
    queries = pl.concat([e.queries for e in evaluations]).unique().sort()
    columns = {}
    # Both lists are sorted, and the common one contains every query of a run.
    positions = [queries.search_sorted(e.queries).to_numpy() for e in evaluations]
    for name in ("expected", "oblivious", "min", "max", "variance"):
        values = np.full((len(evaluations), len(queries)), np.nan)
        for row, (evaluation, columns_of_run) in enumerate(
            zip(evaluations, positions, strict=True)
        ):
            outcomes = evaluation.outcomes[measure]
            if getattr(outcomes, name) is not None:
                values[row, columns_of_run] = outcomes.in_mean(name)
        columns[name] = values
    return columns


def _check_shared_queries(
    expected: Float, first: Int, second: Int, measure: Measure, names: Sequence[str]
) -> None:
    """Refuse a pair without a query for which both runs, rows of `expected`, have a value."""
    is_defined = (~np.isnan(expected)).astype(np.float64)
    without = (is_defined @ is_defined.T)[first, second] == 0
    if without.any():
        row = int(without.argmax())
        one, other = names[int(first[row])], names[int(second[row])]
        raise InputError(
            f"{measure} is defined on no query that {one} and {other} share",
            remedy="check the judgments, or leave the measure out",
        )


class _MeasureColumns:
    """The columns of one measure, computed for blocks of pairs."""

    def __init__(
        self,
        evaluations: Sequence[Evaluation],
        measure: Measure,
        values: dict[str, Float],
        queries: pl.Series,
        groups: Groups | None,
        critical: Float,
    ):
        self._evaluations = evaluations
        self._measure = measure
        self._values = values
        self._queries = queries
        self._groups = groups
        self._critical = critical  # (P,) of F
        smallest, largest = possible_range(values["expected"], measure.upper)
        self._span = largest - smallest
        self._relevant = _relevant_listed(evaluations, queries)
        self._repeats = _rows_of_repeats(evaluations)
        self._is_by_judge = any(e.by_judge for e in evaluations)
        self._annotations = _annotations(evaluations, measure, queries)

    def compute(
        self, first: Int, second: Int, tests: Tests, view: WorstCases | None, share: float
    ) -> tuple[dict[str, Float], bool]:
        """Return the columns (P,) by name, and whether every p is exact."""
        orders = _TieOrders(self._evaluations, self._measure, self._values, tests.seed)
        step = max(1, _CELLS // max(1, len(self._queries)))
        blocks, exact = [], True
        for low in range(0, len(first), step):
            a, b = first[low : low + step], second[low : low + step]
            critical = self._critical[low : low + step]
            block, is_exact = self._block(a, b, tests, orders, view, critical=critical)
            blocks.append(block)
            exact &= is_exact
            advance(len(a) / len(first) * share)
        names = blocks[0]
        return {name: np.concatenate([block[name] for block in blocks]) for name in names}, exact

    def _block(
        self,
        a: Int,
        b: Int,
        tests: Tests,
        orders: _TieOrders,
        view: WorstCases | None,
        *,
        critical: Float,
    ) -> tuple[dict[str, Float], bool]:
        values = self._values
        difference = values["expected"][a] - values["expected"][b]
        difference[np.abs(difference) < ZERO] = 0.0  # equal but for rounding
        columns = self._differences(difference, a, b) | {"critical": critical}
        columns["flip"] = orders.flips(a, b, columns) if tests.ties else np.full(len(a), np.nan)
        exact = True
        if tests.p_values:
            columns["p"], is_exact = randomization_test(difference, self._groups, seed=tests.seed)
            exact = bool(is_exact.all())
        if tests.t_test:
            columns["p_t"] = t_test(difference, self._groups)
        columns |= self._intervals(difference, columns)
        columns |= self._relevant_counts(a, b)
        bounds = None
        if self._annotations is None:
            bounds = self._bounds_by_query(a, b, difference, view)
        else:
            columns |= annotated_columns(
                difference,
                self._annotations[a] - self._annotations[b],
                self._span,
                self._groups,
                critical=critical,
            )
        columns |= self._worst_cases(columns, bounds)
        label = self._label_codes(columns, tests.equal_within)
        columns["repeats_changed"] = self._repeats_changed(
            a, b, label, critical, tests.equal_within
        )
        self._decide(label, columns, bounds, tests.equal_within)
        return columns, exact

    def _differences(self, difference: Float, a: Int, b: Int) -> dict[str, Float]:
        """Return means of differences, over queries that both runs average, and their counts."""
        values = self._values
        means = means_of(difference)
        is_shared = ~np.isnan(difference)
        is_defined = ~np.isnan(values["expected"])

        def mean(of_a: str, of_b: str) -> Float:
            both = np.where(is_shared, values[of_a][a] - values[of_b][b], 0.0)
            return np.asarray(both.sum(axis=1) / means.n)

        differing = (np.where(is_shared, difference, 0.0) != 0).sum(axis=1)
        return {
            "expected": means.mean,
            "oblivious": mean("oblivious", "oblivious"),
            "lowest": mean("min", "max"),
            "highest": mean("max", "min"),
            "queries": means.n.astype(np.float64),
            "differing": differing.astype(np.float64),
            "queries_needed": queries_needed(means.mean, means.deviation, differing / means.n),
            "only_a": (is_defined[a] & ~is_defined[b]).sum(axis=1).astype(np.float64),
            "only_b": (is_defined[b] & ~is_defined[a]).sum(axis=1).astype(np.float64),
        }

    def _intervals(self, difference: Float, columns: Mapping[str, Float]) -> dict[str, Float]:
        """Return the ends of I and F, the bounds of few changes, and the queries still needed."""
        single, family = self._interval_ends(difference, columns["critical"])
        means = means_of(difference, self._groups)
        differing = count_differing(difference, self._groups)
        needed = queries_needed_range(
            single, means.deviation, columns["differing"] / columns["queries"], means.n
        )
        bound = few_changes_bounds(difference, self._groups)
        return {
            **_ends("", single),
            **_ends("family_", family),
            **_ends("bound_", bound),
            **_ends("needed_", needed),
            "units": means.units.astype(np.float64),
            "differing_units": differing.astype(np.float64),
        }

    def _interval_ends(self, difference: Float, critical: Float) -> tuple[Float, Float]:
        """Return (P, 2) the ends of I, and of F."""
        single = difference_intervals(difference, self._span, self._groups)
        if not critical.any():
            return single, single
        return single, difference_intervals(difference, self._span, self._groups, critical)

    # ---------------------------------------------------------------- unjudged documents

    def _bounds_by_query(
        self, a: Int, b: Int, difference: Float, view: WorstCases | None
    ) -> _Bounds | None:
        """Return the ends of the differences (P, Q) over unjudged documents; None if unknown."""
        if view is None:
            return self._stored_bounds(a, b, difference)
        try:
            view.check([self._measure])
            pairs = [self._pair_bounds(view, *numbers) for numbers in _numbers(a, b)]
        except MeasureError:
            return None
        at = view.qrels.queries.search_sorted(self._queries).to_numpy()
        low, high = difference.copy(), difference.copy()
        for row, pair in enumerate(pairs):
            # Where every document is judged only ties are left, and ties never change a verdict.
            is_open = pair.is_open[at] & ~np.isnan(difference[row])
            low[row] = np.where(is_open, np.fmin(pair.low[at], low[row]), low[row])
            high[row] = np.where(is_open, np.fmax(pair.high[at], high[row]), high[row])
        ends = np.array([pair.ends for pair in pairs])
        exact = np.array([pair.exact for pair in pairs], np.float64)
        return _Bounds(low, high, ends, exact)

    def _pair_bounds(self, view: WorstCases, a: int, b: int) -> _PairBounds:
        """Return the bounds of a pair; of averages the mean over all pairs of their repeats."""
        pairs = list(product(self._repeats[a], self._repeats[b]))
        by_query = [view.pair_bounds_by_query(i, j, self._measure) for i, j in pairs]
        overall = [view.pair_bound(i, j, self._measure) for i, j in pairs]
        counts = [view.unjudged(list(pair), self._measure).count for pair in pairs]
        return _PairBounds(
            low=np.mean([bounds.low for bounds in by_query], axis=0),
            high=np.mean([bounds.high for bounds in by_query], axis=0),
            is_open=np.any(np.array(counts) > 0, axis=0),
            ends=tuple(np.mean([(b.lowest, b.highest) for b in overall], axis=0).tolist()),
            exact=len(pairs) == 1 and overall[0].exact,
        )

    def _stored_bounds(self, a: Int, b: Int, difference: Float) -> _Bounds | None:
        """Return bounds from those of single runs; None unless both evaluations have them."""
        from rankproof.unjudged.bounds import lowest_mean

        by_run = [_run_bounds(e, self._measure, self._queries) for e in self._evaluations]
        if any(bounds is None for bounds in by_run):
            return None
        low = np.stack([bounds[0] for bounds in by_run if bounds is not None])
        high = np.stack([bounds[1] for bounds in by_run if bounds is not None])
        low_a, high_a = self._beside_rival(low[a], high[a], b)
        low_b, high_b = self._beside_rival(low[b], high[b], a)
        is_shared = ~np.isnan(difference)
        lowest = np.where(is_shared, np.fmin(low_a - high_b, difference), np.nan)
        highest = np.where(is_shared, np.fmax(high_a - low_b, difference), np.nan)
        # Queries without a value may get one: 0 for the run that lists nothing relevant.
        may_count = ~is_shared & ~(np.isnan(low[a]) & np.isnan(low[b]))
        low_ends = np.where(may_count, -np.nan_to_num(high_b), lowest)
        high_ends = np.where(may_count, np.nan_to_num(high_a), highest)
        ends = [
            [lowest_mean(low_ends[row], shared), -lowest_mean(-high_ends[row], shared)]
            for row, shared in enumerate(is_shared)
        ]
        return _Bounds(lowest, highest, np.array(ends), np.zeros(len(difference)))

    def _beside_rival(self, low: Float, high: Float, rivals: Int) -> tuple[Float, Float]:
        """Return ends (P, Q) of runs that hold whatever the rivals' unjudged documents are.

        Those that a run does not list count among the relevant documents that it misses, any
        number of them. A rival without unjudged documents changes nothing.
        """
        definition = self._measure.definition
        if is_free_of_unlisted(definition.unjudged):
            return low, high
        judged = [e.judged.get(self._measure, math.nan) for e in self._evaluations]
        is_open = (np.array(judged) != 1.0)[rivals, None]
        low = np.where(is_open, np.minimum(low, 0.0), low)
        if definition.ignores_unjudged:
            high = np.where(is_open, np.maximum(high, self._measure.upper), high)
        return low, high

    def _worst_cases(
        self, columns: Mapping[str, Float], bounds: _Bounds | None
    ) -> dict[str, Float]:
        """Return the extremes of the mean over unjudged documents, and the ends of W."""
        if bounds is None:
            worst = {name: np.full(len(columns["low"]), np.nan) for name in _NO_BOUNDS}
            if self._annotations is not None:  # annotators labeled whole queries: W is I
                worst |= {"worst_low": columns["low"], "worst_high": columns["high"]}
            return worst
        # Queries without a value now may get one: the extremes of the mean allow for that.
        extra_low = np.fmax(np.nanmean(bounds.low, axis=1) - bounds.ends[:, 0], 0.0)
        extra_high = np.fmax(bounds.ends[:, 1] - np.nanmean(bounds.high, axis=1), 0.0)
        single = np.stack(  # I, or the bound of few changes
            [
                np.fmin(columns["low"], columns["bound_low"]),
                np.fmax(columns["high"], columns["bound_high"]),
            ],
            axis=1,
        )
        low = self._reach(bounds.low)[:, 0] - extra_low
        high = self._reach(bounds.high)[:, 1] + extra_high
        return {
            "holes_low": bounds.ends[:, 0],
            "holes_high": bounds.ends[:, 1],
            "holes_exact": bounds.exact,
            "worst_low": np.fmin(low, single[:, 0]),
            "worst_high": np.fmax(high, single[:, 1]),
            "worst_exact": bounds.exact,
        }

    def _reach(self, difference: Float) -> Float:
        """Return (P, 2) the interval of a mean difference, or its bound where few differ."""
        ends = difference_intervals(difference, self._span, self._groups)
        bound = few_changes_bounds(difference, self._groups)
        return np.where(np.isnan(ends), bound, ends)

    # ---------------------------------------------------------------- the label

    def _label_codes(self, columns: Mapping[str, Float], equal_within: float | None) -> Int:
        """Return (P,) the codes of the labels, whatever relevant documents both list."""
        return label_codes(
            np.stack([columns["family_low"], columns["family_high"]], axis=1),
            columns["differing_units"].astype(np.int64),
            np.stack([columns["bound_low"], columns["bound_high"]], axis=1),
            self._measure.sign,
            equal_within,
        )

    def _decide(
        self,
        label: Int,
        columns: dict[str, Float],
        bounds: _Bounds | None,
        equal_within: float | None,
    ) -> None:
        """Add the label of each pair, and what it depends on."""
        fewer_a, fewer_b = columns["fewer_a"] > 0, columns["fewer_b"] > 0
        flattered = (label == EQUAL) & (fewer_a | fewer_b)
        flattered |= (label == AHEAD) & fewer_a
        flattered |= (label == BEHIND) & fewer_b
        label = np.where(flattered, UNDECIDED, label)
        opposite = np.sign(columns["oblivious"]) * np.sign(columns["expected"]) < 0
        reasons: dict[str, Array] = {
            "queries": label == UNDECIDED,
            "unjudged": self._label_changes(label, bounds, columns["critical"], equal_within)
            | _contradicts(columns, label, self._measure.sign, equal_within or 0.0),
            "ties": ((columns["flip"] >= FLIP_LIMIT) | opposite) & (self._annotations is None),
            "missing": (columns["only_a"] > 0) | (columns["only_b"] > 0),
            "candidates": flattered,
            "judge": np.full(len(label), self._annotations is None and self._is_by_judge),
        }
        bits = sum((reasons[name].astype(np.int64) << at) for at, name in enumerate(REASONS))
        columns["label"], columns["reasons"] = label.astype(np.float64), np.asarray(bits, float)

    def _label_changes(
        self, label: Int, bounds: _Bounds | None, critical: Float, equal_within: float | None
    ) -> Bool:
        """Return (P,) whether the label would be another with l or with u in place of d."""
        changes = np.zeros(len(label), np.bool_)
        for difference in [] if bounds is None else [bounds.low, bounds.high]:
            changes |= label != self._labels_of(difference, critical, equal_within)
        return changes

    def _labels_of(self, difference: Float, critical: Float, equal_within: float | None) -> Int:
        """Return (P,) the codes of the labels that other differences (P, Q) would have."""
        return difference_labels(
            difference,
            self._span,
            self._groups,
            critical,
            sign=self._measure.sign,
            equal_within=equal_within,
        )

    def _repeats_changed(
        self, a: Int, b: Int, label: Int, critical: Float, equal_within: float | None
    ) -> Float:
        """Return (P,) the share of (pairs of) repeats whose label is another; NaN for none."""
        shares = np.full(len(label), np.nan)
        if not any(e.repeats for e in self._evaluations):
            return shares
        for row, (i, j) in enumerate(_numbers(a, b)):
            pair = [self._evaluations[k] for k in (i, j)]
            if not any(e.repeats for e in pair):
                continue
            of_a, of_b = (_expected(e.repeats or (e,), self._measure, self._queries) for e in pair)
            difference = _all_differences(of_a, of_b)
            limits = np.full(len(difference), critical[row])
            if self._annotations is None:
                alone = self._labels_of(difference, limits, equal_within)
            else:
                own = [_annotations(e.repeats or (e,), self._measure, self._queries) for e in pair]
                assert own[0] is not None
                assert own[1] is not None
                columns = annotated_columns(
                    difference,
                    _all_differences(own[0], own[1]),
                    self._span,
                    self._groups,
                    critical=limits,
                )
                alone = self._label_codes(columns, equal_within)
            shares[row] = (alone != label[row]).mean()
        return shares

    def _relevant_counts(self, a: Int, b: Int) -> dict[str, Float]:
        """Return on how many queries each run lists fewer relevant documents than the other."""
        if self._relevant is None:
            return {name: np.zeros(len(a)) for name in ("fewer_a", "fewer_b", "lost_a")}
        of_a, of_b = self._relevant[a], self._relevant[b]
        return {
            "fewer_a": (of_a < of_b).any(axis=2).sum(axis=1).astype(np.float64),
            "fewer_b": (of_b < of_a).any(axis=2).sum(axis=1).astype(np.float64),
            "lost_a": np.maximum(of_b - of_a, 0).max(axis=2).sum(axis=1).astype(np.float64),
        }


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The ends of differences over every grade that unjudged documents could have."""

    low: Float  # (P, Q)
    high: Float  # (P, Q)
    ends: Float  # (P, 2) of the mean
    exact: Float  # (P,) 1 if some grades reach them


@dataclass(frozen=True, slots=True)
class _PairBounds:
    """The bounds of one pair, by the queries of the judgments."""

    low: Float  # (Q,)
    high: Float  # (Q,)
    is_open: Bool  # (Q,) some document is unjudged
    ends: tuple[float, ...]  # of the mean
    exact: bool


def _rows_of_repeats(evaluations: Sequence[Evaluation]) -> list[range]:
    """Return the numbers of each evaluation's runs, where repeats stand one after the other."""
    rows, start = [], 0
    for evaluation in evaluations:
        rows.append(range(start, start + max(1, len(evaluation.repeats))))
        start = rows[-1].stop
    return rows


def _expected(evaluations: Sequence[Evaluation], measure: Measure, queries: pl.Series) -> Float:
    """Return (R, Q) the expected values on sorted queries; NaN where a run has none."""
    values = np.full((len(evaluations), len(queries)), np.nan)
    for row, evaluation in enumerate(evaluations):
        in_mean = evaluation.outcomes[measure].in_mean()
        is_listed = evaluation.queries.is_in(queries.implode()).to_numpy()
        at = queries.search_sorted(evaluation.queries.filter(pl.Series(is_listed))).to_numpy()
        values[row, at] = in_mean[is_listed]
    return values


def _contradicts(columns: Mapping[str, Float], label: Int, sign: int, equal_within: float) -> Bool:
    """Return (P,) whether W contradicts the label, as where a query without a value gets one."""
    low, high = columns["worst_low"], columns["worst_high"]
    if sign < 0:
        low, high = -high, -low
    contradicts = (label == EQUAL) & ((low < -ZERO - equal_within) | (high > ZERO + equal_within))
    contradicts |= (label == AHEAD) & (low <= 0)
    return np.asarray(contradicts | ((label == BEHIND) & (high >= 0)))


def _all_differences(a: Float, b: Float) -> Float:
    """Return (A·B, Q) the differences of all rows of a (A, Q) from all rows of b (B, Q)."""
    difference = (a[:, None] - b[None]).reshape(-1, a.shape[1])
    difference[np.abs(difference) < ZERO] = 0.0
    return np.asarray(difference)


def _annotations(
    evaluations: Sequence[Evaluation], measure: Measure, queries: pl.Series
) -> Float | None:
    """Return (R, Q) the annotators' values; None unless they labeled queries of every run."""
    by_run = [e.annotators for e in evaluations]
    known = [of_run.values(measure, queries) for of_run in by_run if of_run is not None]
    return np.stack(known) if len(known) == len(evaluations) else None


def _numbers(a: Int, b: Int) -> list[tuple[int, int]]:
    return list(zip(a.tolist(), b.tolist(), strict=True))


def _ends(prefix: str, ends: Float) -> dict[str, Float]:
    return {f"{prefix}low": ends[:, 0], f"{prefix}high": ends[:, 1]}


def _run_bounds(
    evaluation: Evaluation, measure: Measure, queries: pl.Series
) -> tuple[Float, Float] | None:
    """Return (Q,) the ends of a run's values over unjudged documents; None if it has none."""
    bounds = evaluation.query_bounds.get(measure)
    if bounds is None:
        return None
    at = queries.search_sorted(evaluation.queries).to_numpy()
    low, high = np.full(len(queries), np.nan), np.full(len(queries), np.nan)
    low[at], high[at] = bounds
    return low, high


def _relevant_listed(evaluations: Sequence[Evaluation], queries: pl.Series) -> Int | None:
    """Return (R, Q, G) the relevant documents each run lists, if only listed ones count."""
    listed = [evaluation.relevant_listed for evaluation in evaluations]
    known = [counts for counts in listed if counts is not None]
    if not evaluations[0].policy.candidates_only or len(known) < len(listed):
        return None
    grades = max(counts.shape[1] for counts in known)
    aligned_counts = np.zeros((len(evaluations), len(queries), grades), np.int64)
    for row, (evaluation, counts) in enumerate(zip(evaluations, known, strict=True)):
        at = queries.search_sorted(evaluation.queries).to_numpy()
        aligned_counts[row, at, : counts.shape[1]] = counts
    return aligned_counts


def _judged_shares(
    evaluations: Sequence[Evaluation], measures: Sequence[Measure], first: Int, second: Int
) -> dict[str, Float]:
    """Return (P, M) the judged shares of both runs of each pair."""
    shares = np.array([[e.judged.get(m, math.nan) for m in measures] for e in evaluations])
    return {"judged_a": shares[first], "judged_b": shares[second]}


class _TieOrders:
    """The probability that a random order of ties reverses the sign of a pair's difference.

    It follows from the moments of each run's values where the normal approximation is good, else
    from simulated orders, which are drawn once for each run and set of tied queries.
    """

    def __init__(
        self,
        evaluations: Sequence[Evaluation],
        measure: Measure,
        values: dict[str, Float],
        seed: int,
    ):
        self._evaluations = evaluations
        self._measure = measure
        self._values = values
        self._seed = seed
        self._queries = pl.concat([e.queries for e in evaluations]).unique().sort()
        self._simulated: dict[tuple[int, bytes], Float | None] = {}

    def flips(self, a: Int, b: Int, pair_values: dict[str, Float]) -> Float:
        """Return (P,) the probabilities; 0 where no order reverses the sign."""
        total = pair_values["expected"] * pair_values["queries"]
        # 0 also where some order makes both equal and none goes past that.
        probability = np.zeros(len(a))
        lowest, highest = pair_values["lowest"], pair_values["highest"]
        uncertain = np.flatnonzero((lowest <= -ZERO) & (highest >= ZERO))
        if not len(uncertain):
            return probability
        a, b = a[uncertain], b[uncertain]
        expected, variance = self._values["expected"], self._values["variance"]
        is_shared = ~np.isnan(expected[a] - expected[b])
        v = np.where(is_shared, variance[a] + variance[b], 0.0)
        flip = flips.normal_flips(
            total[uncertain], v.sum(axis=1), (v * v).sum(axis=1), self._measure.step
        )
        for row in np.flatnonzero(np.isnan(flip)):
            of_a = self._simulated_sums(int(a[row]), is_shared[row])
            of_b = self._simulated_sums(int(b[row]), is_shared[row])
            if of_a is not None and of_b is not None:
                flip[row] = flips.simulated_flip(float(total[uncertain[row]]), of_a - of_b)
        probability[uncertain] = flip
        return probability

    def _simulated_sums(self, run: int, is_shared: Bool) -> Float | None:
        """Return (ORDERS,) sums of a run's deviations from its expectation, one for each order.

        None if the evaluation has not kept its tie groups.
        """
        evaluation = self._evaluations[run]
        key = (run, is_shared.tobytes())
        if key not in self._simulated:
            used = self._queries.filter(pl.Series(is_shared))
            sums = [self._simulate(e, used) for e in evaluation.repeats or (evaluation,)]
            known = [of_one for of_one in sums if of_one is not None]
            self._simulated[key] = np.mean(known, axis=0) if len(known) == len(sums) else None
        return self._simulated[key]

    def _simulate(self, evaluation: Evaluation, used: pl.Series) -> Float | None:
        outcomes = evaluation.outcomes[self._measure]
        is_used = evaluation.queries.is_in(used.implode()).to_numpy()
        tied = np.flatnonzero((outcomes.max > outcomes.min) & is_used)
        if not len(tied):
            return np.zeros(flips.ORDERS)
        if evaluation.ties is None:
            return None
        variance = None if outcomes.variance is None else outcomes.variance[tied]
        generator = flips.run_generator(evaluation.name, self._seed)
        return flips.drawn_sums(
            evaluation.ties, self._measure, tied, outcomes.expected[tied], variance, generator
        )
