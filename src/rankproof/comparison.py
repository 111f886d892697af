"""Two runs or more: paired tests, and what ties alone could change."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from rankproof.arrays import Array, Bool, Float
from rankproof.errors import InputError
from rankproof.evaluation import (
    Evaluation,
    Like,
    Missing,
    Policy,
    evaluate_tables,
    parse_all,
)
from rankproof.measures.registry import Measure
from rankproof.records import QrelsLike, RunLike, read_qrels, read_run
from rankproof.ties import Order, ScoreType

PERMUTATIONS = 100_000
RESAMPLES = 10_000
CONFIDENCE = 0.95

_ZERO = 1e-12  # a mean difference below this is rounding, not a lead
_CELLS = 1 << 22  # of the sign and count tables held at a time


@dataclass(frozen=True, slots=True)
class Difference:
    """A measure of run a minus that of run b: means over the queries both have it for."""

    expected: float
    oblivious: float
    lowest: float  # over every tie-break of both runs
    highest: float
    p: float  # paired randomisation test on per-query expected values
    p_holm: float  # corrected for every pair and measure compared
    ci: tuple[float, float]  # bootstrap interval of `expected`
    queries: int

    @property
    def certain(self) -> bool:
        """Whether every tie-break gives the same sign."""
        return _sign(self.lowest) == _sign(self.highest)

    @property
    def reversed(self) -> bool:
        """Whether the stated tie-break and the expectation favour different runs."""
        return _sign(self.oblivious) * _sign(self.expected) < 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "expected": self.expected,
            "oblivious": self.oblivious,
            "lowest": self.lowest,
            "highest": self.highest,
            "certain": self.certain,
            "reversed": self.reversed,
            "p": self.p,
            "p_holm": self.p_holm,
            "ci": list(self.ci),
            "queries": self.queries,
        }

    def verdict(self, a: str, b: str, measure: Measure, alpha: float = 0.05) -> str:
        """The comparison in words."""
        ahead, behind = (a, b) if self.expected > 0 else (b, a)
        size = f"{abs(self.expected):.4f}"
        span = f"from {self.lowest:+.4f} to {self.highest:+.4f}"
        if self.reversed:
            return (
                f"{measure}: reversed. As its ties happen to be broken, {behind} leads by "
                f"{abs(self.oblivious):.4f}; over all orders {ahead} leads by {size} ({span})."
            )
        if not self.certain:
            return (
                f"{measure}: which of {a} and {b} is ahead rests on how ties are broken "
                f"({a} − {b} {span}, {self.expected:+.4f} expected)."
            )
        if _sign(self.expected) == 0:
            return f"{measure}: {a} and {b} are equal."
        noise = "" if self.p_holm < alpha else ", a lead that chance could explain"
        return (
            f"{measure}: {ahead} is ahead of {behind} under every tie-break "
            f"(by {size}, p = {_p(self.p_holm)} after Holm{noise})."
        )


def _sign(value: float) -> int:
    return 0 if abs(value) < _ZERO else int(math.copysign(1, value))


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 1e-4 else f"{value:.0e}"


@dataclass(frozen=True, slots=True)
class Pair:
    """Run a against run b."""

    a: str
    b: str
    measures: dict[Measure, Difference]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every pair of the runs, on every measure."""

    evaluations: tuple[Evaluation, ...]
    pairs: tuple[Pair, ...]
    seed: int
    exact: bool  # every sign flip was tried, rather than a sample

    def __getitem__(self, pair: tuple[str, str]) -> dict[Measure, Difference]:
        for found in self.pairs:
            if (found.a, found.b) == pair:
                return found.measures
        raise KeyError(f"{pair!r} was not compared; there are {[(p.a, p.b) for p in self.pairs]}")

    def verdicts(self) -> list[str]:
        """Every comparison in words."""
        return [
            difference.verdict(pair.a, pair.b, measure)
            for pair in self.pairs
            for measure, difference in pair.measures.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof compare --format json` prints."""
        return {
            "pairs": [
                {
                    "a": pair.a,
                    "b": pair.b,
                    "measures": {str(m): d.to_dict() for m, d in pair.measures.items()},
                }
                for pair in self.pairs
            ]
        }

    def __str__(self) -> str:
        return "\n".join(self.verdicts())


def compare(
    runs: Mapping[str, RunLike],
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure],
    *,
    seed: int = 0,
    order: Order | None = None,
    missing: Missing | None = None,
    candidates_only: bool = False,
    score_dtype: ScoreType | None = None,
    like: Like | None = None,
    memory: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Compare runs pairwise, on queries they share.

    `p` is from a paired randomisation test on per-query expected values (100,000 sign flips, or
    all of them where there are fewer), `p_holm` is corrected over all pairs and measures, `ci` a
    95% percentile bootstrap over queries. The other settings are those of `evaluate`.
    """
    from rankproof.streaming import evaluate_stream, streams

    policy = Policy.of(order, missing, candidates_only, score_dtype, like)
    parsed = parse_all(measures)
    judged = read_qrels(qrels)
    evaluations = []
    for name, run in runs.items():
        if isinstance(run, str | os.PathLike) and streams(run, memory):
            evaluation = evaluate_stream(
                run, judged, parsed, policy, memory=memory, spill_dir=spill_dir, name=name
            )
        else:
            evaluation = evaluate_tables(read_run(run, name=name), judged, parsed, policy)
        evaluations.append(evaluation if evaluation.name == name else evaluation.renamed(name))
    return compare_evaluations(evaluations, seed=seed)


def compare_evaluations(
    evaluations: list[Evaluation],
    *,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
    resamples: int = RESAMPLES,
    progress: Callable[[float], None] | None = None,
) -> Comparison:
    """`compare` for runs evaluated before, on the same judgements and measures."""
    if len(evaluations) < 2:
        raise InputError("one run cannot be compared", remedy="name two runs or more")
    queries = pl.concat([e.queries for e in evaluations]).unique().sort()
    aligned = [_Aligned(e, queries) for e in evaluations]
    measures = list(evaluations[0].outcomes)
    jobs = [(a, b, m) for a, b in combinations(range(len(aligned)), 2) for m in measures]

    columns = [aligned[a]("expected", m) - aligned[b]("expected", m) for a, b, m in jobs]
    matrix = np.stack(columns, axis=1)
    defined = ~np.isnan(matrix)
    if not defined.any(axis=0).all():
        a, b, m = jobs[int((~defined.any(axis=0)).argmax())]
        raise InputError(
            f"{m} is defined on no query that {evaluations[a].name} and {evaluations[b].name} "
            "share",
            remedy="check the judgements, or leave the measure out",
        )
    filled = np.where(defined, matrix, 0.0)
    generator = np.random.default_rng(seed)
    p, exact = _randomisation(filled, permutations, generator, progress)
    low, high = _bootstrap(filled, defined, resamples, generator, progress)
    adjusted = _holm(p)

    pairs: dict[tuple[int, int], dict[Measure, Difference]] = {}
    for column, (a, b, m) in enumerate(jobs):
        shared = defined[:, column]

        def mean(one: str, other: str) -> float:
            difference = aligned[a](one, m) - aligned[b](other, m)  # noqa: B023
            return math.fsum(difference[shared]) / int(shared.sum())  # noqa: B023

        pairs.setdefault((a, b), {})[m] = Difference(
            expected=mean("expected", "expected"),
            oblivious=mean("oblivious", "oblivious"),
            lowest=mean("min", "max"),
            highest=mean("max", "min"),
            p=float(p[column]),
            p_holm=float(adjusted[column]),
            ci=(float(low[column]), float(high[column])),
            queries=int(shared.sum()),
        )
    return Comparison(
        tuple(evaluations),
        tuple(Pair(evaluations[a].name, evaluations[b].name, d) for (a, b), d in pairs.items()),
        seed,
        exact,
    )


class _Aligned:
    """An evaluation's per-query figures on a common list of queries; NaN where it has none."""

    def __init__(self, evaluation: Evaluation, queries: pl.Series):
        self._evaluation = evaluation
        self._queries = len(queries)
        # Both are sorted and the evaluation's are among the others.
        self._at = queries.search_sorted(evaluation.queries).to_numpy()

    def __call__(self, figure: str, measure: Measure) -> Float:
        values = np.full(self._queries, np.nan)
        values[self._at] = getattr(self._evaluation.outcomes[measure], figure)
        return values


def _whole(matrix: Float) -> tuple[Float, Float]:
    """Columns as whole multiples of a unit, and the unit of each.

    The unit is the smallest power of two that leaves room for any sum of the rows in float64:
    sums are then exact, so that they do not depend on their order, nor on threads.
    """
    largest = np.abs(matrix).max(axis=0, initial=0.0)
    room = 52 - math.ceil(math.log2(max(2, len(matrix))))
    power = np.frexp(np.where(largest > 0, largest, 1.0))[1] - room
    return np.rint(np.ldexp(matrix, -power)), np.ldexp(1.0, power)


def _randomisation(
    matrix: Float,
    permutations: int,
    generator: np.random.Generator,
    progress: Callable[[float], None] | None,
) -> tuple[Float, bool]:
    """(C,) two-sided p of each column: how often random signs give as large a sum.

    All columns share the signs. The sample includes the signs observed, so p is never 0.
    """
    matrix = matrix[(matrix != 0).any(axis=1)]
    count = len(matrix)
    whole, _ = _whole(matrix)
    total = whole.sum(axis=0)
    exact = count < 62 and 2**count <= permutations
    draws = 2**count if exact else permutations
    step = max(1, _CELLS // max(count, 1))
    extreme = np.zeros(matrix.shape[1])
    for low in range(0, draws, step):
        size = min(step, draws - low)
        flips: Array
        if exact:
            flips = (np.arange(low, low + size)[:, None] >> np.arange(count)) & 1
        else:
            bits = generator.integers(0, 256, (size, (count + 7) // 8), np.uint8)
            flips = np.unpackbits(bits, axis=1, count=count)
        sums = total - 2.0 * (flips.astype(np.float64) @ whole)
        extreme += (np.abs(sums) >= np.abs(total)).sum(axis=0)
        if progress is not None:
            progress(size / draws / 2)
    return (extreme / draws if exact else (extreme + 1) / (draws + 1)), exact


def _bootstrap(
    matrix: Float,
    defined: Bool,
    resamples: int,
    generator: np.random.Generator,
    progress: Callable[[float], None] | None,
) -> tuple[Float, Float]:
    """(C,) ends of the percentile interval of each column's mean, resampling queries."""
    count, columns = matrix.shape
    whole, unit = _whole(matrix)
    means = np.empty((resamples, columns))
    step = max(1, _CELLS // max(count, 1))
    for low in range(0, resamples, step):
        size = min(step, resamples - low)
        drawn = generator.integers(0, count, (size, count)) + np.arange(size)[:, None] * count
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        weights = times.astype(np.float64)
        over = weights @ defined.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            means[low : low + size] = (weights @ whole) / over
        if progress is not None:
            progress(size / resamples / 2)
    tail = (1.0 - CONFIDENCE) / 2.0
    low_end, high_end = np.nanquantile(means, [tail, 1.0 - tail], axis=0)
    return low_end * unit, high_end * unit


def _holm(p: Float) -> Float:
    """Holm's step-down correction."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
