"""Acc|Hit: how often the answer is right where every passage that answers was given [R §2.4].

With ties Hit@K of a query is a chance P, and the reported figure is Σ P·correct / Σ P. Over
tie-breaks each query whose P is neither 0 nor 1 may be in or out, independently of the others, so
the extremes are those of a mean to which some values may be added: the most is reached by adding
undecided queries from the highest down for as long as that lifts it, the least from the lowest up.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from rankproof.data import QrelsLike, RunLike, read_qrels, read_run
from rankproof.data.ties import Order, check_order
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import parse
from rankproof.presentation.json_values import plain
from rankproof.statistics.intervals import (
    ROUNDING,
    Interval,
    constant_interval,
    percentile_interval,
)
from rankproof.statistics.resampling import RESAMPLES, resampled_means
from rankproof.tradeoffs.pairs import Pairs, read_pairs


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Answer accuracy over the queries with Hit@K = 1; NaN where there is none.

    >>> from rankproof.tradeoffs import accuracy_given_hit
    >>> found = accuracy_given_hit({"q": {"a": 2.0}}, {"q": {"a": 5}}, {"q": 1.0})
    >>> found.hits, found.overall
    (1.0, 1.0)
    """

    k: int
    expected: float  # Σ P·correct / Σ P
    min: float
    max: float
    oblivious: float  # over the hits of the stated tie-break
    overall: float  # over every query with an answer, hit or not
    ci: Interval  # bootstrap over queries, of `expected`
    hits: float  # expected number of queries behind it, Σ P
    certain: int  # queries that hit under every tie-break
    possible: int  # queries that hit under some
    answered: int  # judged queries with a known answer for which Hit@K is defined
    unanswered: int  # judged queries for which the file says nothing
    unknown: int  # queries of the file that are not judged

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = plain(asdict(self))
        return found


def accuracy_given_hit(
    run: RunLike,
    qrels: QrelsLike,
    correct: Any,
    at: int = 10,
    *,
    order: Order = "input",
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Accuracy:
    """Answer accuracy where every passage of grade 4 or 5 is in the top K.

    `correct` says how right the answer to each query was, from 0 to 1: a {query: correct} dict, a
    frame or a file with columns query and correct. Low where Hit is high: the generator is at
    fault, not retrieval.

    >>> from rankproof.tradeoffs import accuracy_given_hit
    >>> accuracy_given_hit({"q": {"a": 2.0}}, {"q": {"a": 5}}, {"q": 1.0}).expected
    1.0
    """
    check_order(order)
    measure = parse(f"Hit@{at}")
    judged = read_qrels(qrels)
    answers = read_pairs(correct, "query", "correct")
    table = answers.frame.with_columns(correct=pl.Series(_shares(answers)))
    aligned = pl.DataFrame({"query": judged.queries}).join(
        table, on="query", how="left", maintain_order="left"
    )["correct"]
    known = aligned.is_not_null().to_numpy()
    if not known.any():
        raise InputError(
            f"no query of {judged.name} has an answer there",
            place=answers.label,
            remedy="check that the two files belong together",
        )
    outcomes = evaluate_tables(read_run(run), judged, [measure], Policy(order=order)).outcomes[
        measure
    ]
    counted = known & ~np.isnan(outcomes.expected)
    right = aligned.fill_null(0.0).to_numpy()[counted]
    chance, low, high, stated = (
        figure[counted]
        for figure in (outcomes.expected, outcomes.min, outcomes.max, outcomes.oblivious)
    )
    certain, undecided = right[low == 1], right[(low == 0) & (high == 1)]
    return Accuracy(
        k=at,
        expected=_ratio(math.fsum(chance * right), math.fsum(chance)),
        min=0.0 - _highest(-certain, -undecided),
        max=_highest(certain, undecided),
        oblivious=_ratio(math.fsum(stated * right), math.fsum(stated)),
        overall=_ratio(math.fsum(right), len(right)),
        ci=_interval(chance, right, seed, resamples),
        hits=math.fsum(chance),
        certain=len(certain),
        possible=len(certain) + len(undecided),
        answered=int(counted.sum()),
        unanswered=int((~known).sum()),
        unknown=len(table.join(pl.DataFrame({"query": judged.queries}), on="query", how="anti")),
    )


def _shares(answers: Pairs) -> Float:
    """The column `correct` as numbers from 0 to 1; true and false count too."""
    column = answers.frame["correct"]
    if column.dtype == pl.String:
        words = {"true": "1", "false": "0"}
        column = column.str.strip_chars().str.to_lowercase().replace(words)
    numbers = column.cast(pl.Float64, strict=False)
    wrong = numbers.is_null() | ~numbers.is_between(0.0, 1.0)
    if wrong.any():
        at = int(wrong.arg_max() or 0)
        query, given = answers.frame.row(at)
        raise InputError(
            f"query {shorten(query)}: correct {shorten(given)} is not between 0 and 1",
            place=answers.label,
            remedy="write 1 for a right answer and 0 for a wrong one",
        )
    return numbers.to_numpy()


def _highest(certain: Float, undecided: Float) -> float:
    """The highest mean of `certain` with any of `undecided` added; NaN where both are empty."""
    added = np.sort(undecided)[::-1]
    sums = certain.sum() + np.concatenate([[0.0], np.cumsum(added)])
    counts = len(certain) + np.arange(len(added) + 1)
    means = sums[counts > 0] / counts[counts > 0]
    return float(means.max()) if len(means) else math.nan


def _interval(chance: Float, right: Float, seed: int, resamples: int) -> Interval:
    """Of Σ P·correct / Σ P over queries, and no narrower than what may be unseen.

    Queries that hardly ever hit hardly say anything of it: it is the matter of (Σ P)²/Σ P² of them
    (one that hits, and nine that do in a thousandth of all orders: of one).
    """
    hit = right[chance > 0]
    if not len(hit):
        return (math.nan, math.nan)
    known = int(chance.sum() ** 2 / (chance @ chance) + ROUNDING)
    value = _ratio(math.fsum(chance * right), math.fsum(chance))
    low, high = constant_interval(value, known, 0.0, 1.0)
    if np.ptp(hit) <= ROUNDING:
        return (low, high)
    sums, over = resampled_means(np.stack([chance * right, chance], axis=1), seed, resamples).T
    with np.errstate(invalid="ignore", divide="ignore"):
        ends = percentile_interval(np.where(over > 0, sums / over, np.nan), known)
    return (float(np.minimum(ends[0], low)), float(np.maximum(ends[1], high)))


def _ratio(a: float, b: float) -> float:
    return a / b if b > 0 else math.nan
