"""Scores and grades in arrays → Evaluation: each row a query, each column a candidate."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.ties import ScoreType, joined, pool_of, rank, round_scores, tie_groups
from rankproof.evaluation import Evaluation, Policy, check_scale, measure_all, parse_all, undecided
from rankproof.foundation.arrays import Array, Bool, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure, Outcomes


def evaluate_arrays(
    scores: Any,
    relevance: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    score_dtype: ScoreType | None = None,
    name: str = "arrays",
) -> Evaluation:
    """Measure scores (Q, L) against grades (Q, L), as arrays, tensors or lists of rows.

    Each row is a query, each column a candidate. Rows may differ in length. A score of −inf is
    padding: that slot holds no document, whatever its grade says. A negative grade means "not
    judged". Every relevant document is among the candidates, so `candidates_only` has no meaning
    here; ties are broken for `oblivious` by column.

    >>> found = rp.evaluate_arrays([[0.9, 0.8, 0.8]], [[0, 1, 0]], ["RR"])
    >>> found["RR"].min, found["RR"].max
    (0.3333333333333333, 0.5)
    """
    parsed = parse_all(measures)
    policy = Policy.of(None, None, False, score_dtype, None)
    score, lengths, dtype = _flat(scores, "scores", exact=score_dtype is None)
    value, widths, _ = _flat(relevance, "relevance")
    if len(lengths) != len(widths):
        raise InputError(
            f"{plural(len(lengths), 'row')} of scores and {len(widths)} of relevance",
            remedy="give one row of each per query",
        )
    if (lengths != widths).any():
        at = int((lengths != widths).argmax())
        raise InputError(
            f"{plural(int(lengths[at]), 'score')} and {plural(int(widths[at]), 'grade')}",
            place=f"row {at}",
            remedy="give one grade per score, −1 where there is none",
        )
    query = np.repeat(np.arange(len(lengths)), lengths)
    if not len(score):
        raise InputError("no scores", place="scores", remedy="give at least one query")
    for what, values in (("score", score), ("grade", value)):
        bad = _unfit(values, whole=what == "grade")
        if bad is not None:
            at = int(bad.argmax())
            column = at - int(np.searchsorted(query, query[at]))
            raise InputError(
                f"{what} {values[at]:g} is not a {'number' if what == 'score' else 'whole number'}",
                place=f"row {query[at]}, column {column}",
                remedy="fix it, or use −inf for padding" if what == "score" else "grade 0, 1, 2, …",
            )
    grade = value.astype(np.int64, copy=False)
    if score.min() == -np.inf:
        real = score != -np.inf
        score, query, grade = score[real], query[real], grade[real]
        lengths = np.bincount(query, minlength=len(lengths))
    start = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    if policy.score_dtype is not None:
        score = round_scores(score, policy.score_dtype)
    judged = grade >= 0
    for measure in parsed:
        check_scale(
            measure,
            grade[judged],
            lambda at: f"row {query[np.flatnonzero(judged)[at]]} of relevance",
        )
    top = int(grade.max(initial=0))
    # Some queries at a time: what is made of their cells takes many times the cells themselves.
    steps = np.searchsorted(start, np.arange(0, start[-1], _CELLS), side="right") - 1
    cuts = np.unique([0, *steps, len(lengths)])
    parts, tied, ties = [], 0, []
    for low, high in pairwise(cuts):
        rows = slice(start[low], start[high])
        ranking = rank(start[low : high + 1] - start[low], score[rows], None, "input")
        own = np.flatnonzero(judged[rows])
        owner, given = query[rows][own] - low, grade[rows][own]
        groups = tie_groups(
            *(ranking, np.arange(high - low), owner, own, given),
            pool_of(owner, given, high - low, top),
        )
        parts.append(measure_all(groups, parsed, policy))
        tied += int(ranking.tied.sum())
        loose = undecided(groups, parsed, parts[-1])
        if loose is not None:
            ties.append((loose, np.arange(low, high)))
    return Evaluation(
        name=name,
        queries=pl.Series("query", np.arange(len(lengths))).cast(pl.String),
        outcomes={m: Outcomes.concatenate([part[m] for part in parts]) for m in parsed},
        missing=0,
        unjudged=0,
        tied=tied,
        policy=policy,
        dtype=policy.score_dtype or dtype,
        ties=joined([t for t, _ in ties], [at for _, at in ties], len(lengths)) if ties else None,
    )


_CELLS = 1 << 20
_GAPS = 2.0**53  # past which float64 has gaps


def _unfit(values: Array, whole: bool) -> Bool | None:
    """Where a value is not a number, or none that is finite and whole; None where all are fit."""
    if not whole:
        return np.isnan(values) if np.isnan(values.min()) else None
    bad = ~((values > -_GAPS) & (values < _GAPS))  # as of judgements in files
    if values.dtype.kind == "f":
        bad |= values != np.trunc(values)
    return bad if bad.any() else None


def _flat(values: Any, what: str, exact: bool = False) -> tuple[Array, Int, str]:
    """All rows one after the other as numbers, their lengths, and the format they came in."""
    whole, dtype = _as_array(values)
    if whole is not None and whole.ndim == 2:
        return _plain(whole.ravel(), what, exact), np.full(len(whole), whole.shape[1]), dtype
    rows = []
    kinds = set()
    for at, row in enumerate(values):
        array, kind = _as_array(row)
        if array is None or array.ndim != 1:
            raise InputError(
                f"{shorten(row)} is not a row of numbers",
                place=f"{what}[{at}]",
                remedy="give a (queries, candidates) array or a list of rows",
            )
        rows.append(_plain(array, what, exact))
        kinds.add(kind)
    lengths = np.array([len(row) for row in rows], np.int64)
    whole = np.concatenate(rows) if rows else np.zeros(0)
    return whole, lengths, kinds.pop() if len(kinds) == 1 else "float64"


def _plain(values: Array, what: str, exact: bool) -> Array:
    """Scores as float64; grades too, but whole numbers stay what they are.

    Of whole scores that float64 cannot tell apart, where they are to be, their order.
    """
    if what == "relevance" and values.dtype.kind in "iu" and values.dtype != np.uint64:
        return values.astype(np.int64, copy=False)
    if exact and values.dtype.kind in "iu" and ((values >= _GAPS) | (values <= -_GAPS)).any():
        values = np.unique(values, return_inverse=True)[1]
    return values.astype(np.float64, copy=False)


def _as_array(values: Any) -> tuple[Array | None, str]:
    """numpy's view of an array, a torch tensor or a list; None where there is none."""
    if hasattr(values, "detach"):  # a torch tensor, on any device and of any type
        dtype = str(values.dtype).removeprefix("torch.")
        values = values.detach().cpu()
        array = (values.double() if values.is_floating_point() else values).numpy()
        return (None if array.dtype.kind == "c" else array), dtype
    given = values if isinstance(values, list | tuple) else [values]
    masks = any(issubclass(kind, np.ma.MaskedArray) for kind in set(map(type, given)))
    if masks and any(map(np.ma.is_masked, given)):
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
