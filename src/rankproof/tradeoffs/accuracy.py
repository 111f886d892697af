"""Acc|Hit: how often the answer is right where every passage that answers was retrieved [R §2.4].

Low accuracy where Hit is high is the generator's fault, not retrieval's. With ties Hit@K of a query
is a probability P, and accuracy is Σ P·correct / Σ P. Over tie-breaks, each query with 0 < P < 1 is
in or out of this mean independently of the others. So its maximum adds undecided queries from the
most correct one down for as long as that raises the mean, and its minimum from the least up.
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
    >>> accuracy = accuracy_given_hit({"q": {"a": 2.0}}, {"q": {"a": 5}}, {"q": 1.0})
    >>> accuracy.hits, accuracy.overall
    (1.0, 1.0)
    """

    k: int
    expected: float  # Σ P·correct / Σ P
    min: float
    max: float
    oblivious: float  # over the hits as listed
    overall: float  # over every query with an answer, hit or not
    ci: Interval  # 95% of `expected`, bootstrap over queries
    hits: float  # Σ P, the expected number of queries that hit
    certain: int  # queries that hit under every tie-break
    possible: int  # queries that hit under at least one
    answered: int  # judged queries with a known answer for which Hit@K is defined
    unanswered: int  # judged queries without a known answer
    unknown: int  # answered queries that are not judged

    def to_dict(self) -> dict[str, Any]:
        """All fields."""
        fields: dict[str, Any] = plain(asdict(self))
        return fields


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
    """Return the accuracy of answers to queries with all passages of grade 4 and 5 in the top K.

    `correct` says how right the answer to each query is, from 0 to 1: a {query: correct} dict, or a
    frame or file with columns query and correct.

    >>> from rankproof.tradeoffs import accuracy_given_hit
    >>> accuracy_given_hit({"q": {"a": 2.0}}, {"q": {"a": 5}}, {"q": 1.0}).expected
    1.0
    """
    check_order(order)
    hit = parse(f"Hit@{at}")
    judgments = read_qrels(qrels)
    answers = read_pairs(correct, "query", "correct")
    table = answers.frame.with_columns(correct=pl.Series(_parse_correct(answers)))
    queries = pl.DataFrame({"query": judgments.queries})
    aligned = queries.join(table, on="query", how="left", maintain_order="left")["correct"]
    is_answered = aligned.is_not_null().to_numpy()
    if not is_answered.any():
        raise InputError(
            f"no query of {judgments.name} has an answer there",
            place=answers.label,
            remedy="check that the two files belong together",
        )
    evaluation = evaluate_tables(read_run(run), judgments, [hit], Policy(order=order))
    outcomes = evaluation.outcomes[hit]
    counted = is_answered & ~np.isnan(outcomes.expected)
    correctness = aligned.fill_null(0.0).to_numpy()[counted]
    chance, lowest = outcomes.expected[counted], outcomes.min[counted]
    as_listed, highest = outcomes.oblivious[counted], outcomes.max[counted]
    certain = correctness[lowest == 1]
    undecided = correctness[(lowest == 0) & (highest == 1)]
    return Accuracy(
        k=at,
        expected=_weighted_mean(correctness, chance),
        min=0.0 - _highest_mean(-certain, -undecided),
        max=_highest_mean(certain, undecided),
        oblivious=_weighted_mean(correctness, as_listed),
        overall=_weighted_mean(correctness, np.ones(len(correctness))),
        ci=_interval(chance, correctness, seed, resamples),
        hits=math.fsum(chance),
        certain=len(certain),
        possible=len(certain) + len(undecided),
        answered=int(counted.sum()),
        unanswered=int((~is_answered).sum()),
        unknown=len(table.join(queries, on="query", how="anti")),
    )


def _parse_correct(answers: Pairs) -> Float:
    """Return (N,) the column `correct` as numbers from 0 to 1; true and false are 1 and 0."""
    column = answers.frame["correct"]
    if column.dtype == pl.String:
        truth_values = {"true": "1", "false": "0"}
        column = column.str.strip_chars().str.to_lowercase().replace(truth_values)
    numbers = column.cast(pl.Float64, strict=False)
    is_invalid = numbers.is_null() | ~numbers.is_between(0.0, 1.0)
    if is_invalid.any():
        query, value = answers.frame.filter(is_invalid).row(0)
        raise InputError(
            f"query {shorten(query)}: correct {shorten(value)} is not between 0 and 1",
            place=answers.label,
            remedy="write 1 for a right answer and 0 for a wrong one",
        )
    return numbers.to_numpy()


def _highest_mean(certain: Float, undecided: Float) -> float:
    """Return the highest mean of `certain` and any of `undecided`; NaN where both are empty."""
    added = np.sort(undecided)[::-1]
    sums = certain.sum() + np.concatenate([[0.0], np.cumsum(added)])
    counts = len(certain) + np.arange(len(added) + 1)
    means = sums[counts > 0] / counts[counts > 0]
    return float(means.max()) if len(means) else math.nan


def _interval(chance: Float, correctness: Float, seed: int, resamples: int) -> Interval:
    """Return the 95% interval of Σ P·correct / Σ P over queries.

    It is at least as wide as that of as many queries with equal answers, which a bootstrap of few
    queries understates. Queries count by their weights, as (Σ P)²/Σ P² of them (Kish's effective
    sample size): one that hits and nine with P = 0.001 count as one.
    """
    hit = correctness[chance > 0]
    if not len(hit):
        return (math.nan, math.nan)
    effective_queries = int(chance.sum() ** 2 / (chance @ chance) + ROUNDING)
    mean = _weighted_mean(correctness, chance)
    low, high = constant_interval(mean, effective_queries, 0.0, 1.0)
    if np.ptp(hit) <= ROUNDING:
        return (low, high)
    columns = np.stack([chance * correctness, chance], axis=1)
    sums, weights = resampled_means(columns, seed, resamples).T
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(weights > 0, sums / weights, np.nan)
    ends = percentile_interval(means, effective_queries)
    return (float(np.minimum(ends[0], low)), float(np.maximum(ends[1], high)))


def _weighted_mean(values: Float, weights: Float) -> float:
    """Return Σ w·x / Σ w; NaN where all weights are 0."""
    total = math.fsum(weights)
    return math.fsum(weights * values) / total if total > 0 else math.nan
