"""Evaluate scores and grades in arrays: each row is a query, each column a candidate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.columns import LARGE
from rankproof.data.ties import (
    Ranking,
    ScoreType,
    TieGroups,
    joined,
    pool_of,
    rank,
    round_scores,
    tie_groups,
)
from rankproof.evaluation import (
    Evaluation,
    Policy,
    check_scale,
    groups_to_shuffle,
    measure_all,
    parse_all,
    sampling_notes,
)
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure, Outcomes

_BLOCK = 1 << 20  # candidates evaluated at a time; that takes many times their own memory


def evaluate_arrays(
    scores: Any,
    relevance: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    score_dtype: ScoreType | None = None,
    name: str = "arrays",
) -> Evaluation:
    """Evaluate scores (Q, L) on grades (Q, L), given as arrays, tensors or lists of rows.

    Each row is a query, each column a candidate. Rows may differ in length. A score of −inf is
    padding: that cell holds no document, whatever its grade is. A negative grade means "not
    judged", and to infAP "in the pool, but not judged", as in a file. All relevant documents are
    taken to be among the candidates, so `candidates_only` does not apply; for `oblivious`, ties are
    broken by column.

    >>> evaluation = rp.evaluate_arrays([[0.9, 0.8, 0.8]], [[0, 1, 0]], ["RR"])
    >>> evaluation["RR"].min, evaluation["RR"].max
    (0.3333333333333333, 0.5)
    """
    parsed = parse_all(measures)
    policy = Policy.of(score_dtype=score_dtype)
    cells = _read_cells(scores, relevance, exact=score_dtype is None)
    for measure in parsed:
        _check_grades(cells, measure)
    score = cells.score
    if policy.score_dtype is not None:
        score = round_scores(score, policy.score_dtype)
    outcomes, tied, ties, numbers = [], [], [], []
    has_pool = any(m.definition.unjudged == "inferred precision" for m in parsed)
    for low, high in _query_blocks(cells.start):
        ranking, groups = _block_groups(cells, score, low, high, has_pool=has_pool)
        outcomes.append(measure_all(groups, parsed, policy))
        tied.append(ranking.tied)
        shuffled = groups_to_shuffle(groups, parsed, outcomes[-1])
        if shuffled is not None:
            ties.append(shuffled)
            numbers.append(np.arange(low, high))
    queries = len(cells.start) - 1
    by_measure = {m: Outcomes.concatenate([block[m] for block in outcomes]) for m in parsed}
    return Evaluation(
        name=name,
        queries=pl.Series("query", np.arange(queries)).cast(pl.String),
        outcomes=by_measure,
        notes=tuple(sampling_notes(name, by_measure)),
        policy=policy,
        dtype=policy.score_dtype or cells.dtype,
        is_tied=np.concatenate(tied),
        ties=joined(ties, numbers, queries) if ties else None,
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    """The N candidates of all queries, without padding."""

    start: Int  # (Q+1,) query q owns candidates start[q]:start[q+1]
    query: Int  # (N,)
    score: Float  # (N,)
    grade: Int  # (N,) negative if not judged
    max_grade: int
    dtype: str  # the format of the scores in the input


def _query_blocks(start: Int) -> Iterator[tuple[int, int]]:
    """Yield ranges of queries that have about `_BLOCK` candidates each."""
    steps = np.searchsorted(start, np.arange(0, start[-1], _BLOCK), side="right") - 1
    yield from pairwise(np.unique([0, *steps, len(start) - 1]).tolist())


def _block_groups(
    cells: _Cells, score: Float, low: int, high: int, *, has_pool: bool
) -> tuple[Ranking, TieGroups]:
    """Rank queries [low, high) and return their tie groups.

    If `has_pool`, candidates of negative grade are documents that were pooled and not judged.
    """
    start = cells.start[low : high + 1]
    rows = slice(start[0], start[-1])
    ranking = rank(start - start[0], score[rows], None, "input")
    judged = np.flatnonzero(cells.grade[rows] >= 0)
    query, grade = cells.query[rows][judged] - low, cells.grade[rows][judged]
    pool, sampled = pool_of(query, grade, high - low, cells.max_grade), None
    if has_pool:
        unjudged = np.flatnonzero(cells.grade[rows] < 0)
        sampled = cells.query[rows][unjudged] - low, unjudged
    listed = np.arange(high - low)
    return ranking, tie_groups(ranking, listed, query, judged, grade, pool=pool, sampled=sampled)


# ------------------------------------------------------------------------------ reading and checks


def _read_cells(scores: Any, relevance: Any, exact: bool) -> _Cells:
    """Return the candidates of two arrays of equal shape; refuse values that are not numbers."""
    score, lengths, dtype = _flatten(scores, "scores", exact)
    value, widths, _ = _flatten(relevance, "relevance")
    _check_shapes(lengths, widths)
    if not len(score):
        raise InputError("no scores", place="scores", remedy="give at least one query")
    query = np.repeat(np.arange(len(lengths)), lengths)
    _check_values("score", score, query)
    _check_values("grade", value, query)
    grade = value.astype(np.int64, copy=False)
    if score.min() == -np.inf:
        is_document = score != -np.inf
        score, query, grade = score[is_document], query[is_document], grade[is_document]
        lengths = np.bincount(query, minlength=len(lengths))
    start = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    max_grade = int(grade.max(initial=0))
    return _Cells(start, query, score, grade, max_grade=max_grade, dtype=dtype)


def _check_shapes(lengths: Int, widths: Int) -> None:
    if len(lengths) != len(widths):
        raise InputError(
            f"{plural(len(lengths), 'row')} of scores and {len(widths)} of relevance",
            remedy="give one row of each per query",
        )
    if (lengths != widths).any():
        row = int((lengths != widths).argmax())
        raise InputError(
            f"{plural(int(lengths[row]), 'score')} and {plural(int(widths[row]), 'grade')}",
            place=f"row {row}",
            remedy="give one grade per score, −1 where there is none",
        )


def _check_values(name: str, values: Array, query: Int) -> None:
    """Refuse a score that is NaN, or a grade that is not a whole number."""
    is_grade = name == "grade"
    invalid = _not_whole(values) if is_grade else np.isnan(values)
    if not invalid.any():
        return
    at = int(invalid.argmax())
    column = at - int(np.searchsorted(query, query[at]))
    raise InputError(
        f"{name} {values[at]:g} is not a {'whole number' if is_grade else 'number'}",
        place=f"row {query[at]}, column {column}",
        remedy="grade 0, 1, 2, …" if is_grade else "fix it, or use −inf for padding",
    )


def _not_whole(values: Array) -> Bool:
    """Return (N,) True for values with a fraction, or too large to be a grade in a file."""
    invalid = ~((values > -LARGE) & (values < LARGE))
    if values.dtype.kind == "f":
        invalid |= values != np.trunc(values)
    return invalid


def _check_grades(cells: _Cells, measure: Measure) -> None:
    judged = np.flatnonzero(cells.grade >= 0)
    rows = cells.query[judged]
    check_scale(measure, cells.grade[judged], lambda at: f"row {rows[at]} of relevance")


def _flatten(values: Any, argument: str, exact: bool = False) -> tuple[Array, Int, str]:
    """Return the values of all rows as numbers, the length of each row, and the input's format."""
    matrix, dtype = _as_array(values)
    if matrix is not None and matrix.ndim == 2:
        numbers = _as_numbers(matrix.ravel(), argument, exact)
        return numbers, np.full(len(matrix), matrix.shape[1]), dtype
    rows = []
    dtypes = set()
    for number, row in enumerate(values):
        array, dtype = _as_array(row)
        if array is None or array.ndim != 1:
            raise InputError(
                f"{shorten(row)} is not a row of numbers",
                place=f"{argument}[{number}]",
                remedy="give a (queries, candidates) array or a list of rows",
            )
        rows.append(_as_numbers(array, argument, exact))
        dtypes.add(dtype)
    lengths = np.array([len(row) for row in rows], np.int64)
    numbers = np.concatenate(rows) if rows else np.zeros(0)
    return numbers, lengths, dtypes.pop() if len(dtypes) == 1 else "float64"


def _as_numbers(values: Array, argument: str, exact: bool) -> Array:
    """Return float64, or int64 for whole grades.

    If `exact`, whole scores beyond 2⁵³, which float64 would make equal, become their ranks.
    """
    if argument == "relevance" and values.dtype.kind in "iu" and values.dtype != np.uint64:
        return values.astype(np.int64, copy=False)
    if exact and values.dtype.kind in "iu" and ((values >= LARGE) | (values <= -LARGE)).any():
        values = np.unique(values, return_inverse=True)[1]
    return values.astype(np.float64, copy=False)


def _as_array(values: Any) -> tuple[Array | None, str]:
    """Return an array, torch tensor or list as a numpy array, and its format.

    The array is None if the rows differ in length or hold something other than numbers.
    """
    if hasattr(values, "detach"):  # a torch tensor, on any device and of any type
        dtype = str(values.dtype).removeprefix("torch.")
        values = values.detach().cpu()
        array = (values.double() if values.is_floating_point() else values).numpy()
        return (None if array.dtype.kind == "c" else array), dtype
    members = values if isinstance(values, list | tuple) else [values]
    has_masks = any(issubclass(kind, np.ma.MaskedArray) for kind in set(map(type, members)))
    if has_masks and any(map(np.ma.is_masked, members)):
        raise InputError(
            "a masked array, whose mask would be lost",
            place="evaluate_arrays",
            remedy="fill it: scores.filled(-np.inf) for padding, grades with −1",
        )
    try:
        array = np.asarray(values)
    except ValueError:  # rows of unequal length
        return None, "float64"
    if array.dtype.kind not in "biufV":  # text, objects, dates, complex numbers
        return None, "float64"
    dtype = str(array.dtype) if array.dtype.kind in "fV" else "float64"
    return array, dtype
