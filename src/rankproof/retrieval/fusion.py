"""Fusion of several ranked lists into one, by ranks (RRF) or by scores brought to one scale.

Documents that tie in a list share their mean rank, so that the result does not depend on the order
in which a list happens to hold them. Sums are computed in fixed point: they are exact in any order,
so that documents with the same ranks in different lists tie.

Notation: a weight w_l for each list l; `limit` is an upper bound of any document's sum, by which
values are scaled to integers of 61 bits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import chain, islice
from operator import gt
from typing import Any, Literal, get_args

import numpy as np
import polars as pl

from rankproof.data.tables import Run
from rankproof.data.ties import rank_run
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural
from rankproof.retrieval.ranked_lists import index_documents, take_documents

Method = Literal["sum", "mnz", "max", "weighted"]
Normalise = Literal["minmax", "z", "rank", "sum", "none"]

_SHORT = 100  # longer lists are fused faster by columns than by plain Python
_BITS = 61  # of a sum in fixed point; the spare bits keep the last rounding from overflowing


def rrf(
    runs: Sequence[Run],
    k: float = 60,
    weights: Sequence[float] | None = None,
    depth: int | None = None,
    top: int | None = None,
    name: str = "rrf",
) -> Run:
    """Reciprocal rank fusion: score(d) = Σ over lists that hold d of w / (k + rank of d).

    `rank` is the mean rank of the documents that tie with d. Documents at a rank beyond `depth` are
    not read; `top` is the length of the fused lists (Cormack, Clarke and Büttcher 2009).

    >>> from rankproof.retrieval.fusion import rrf
    >>> words, vectors = rp.read_run({"q": {"a": 2, "b": 1}}), rp.read_run({"q": {"b": 2, "c": 1}})
    >>> rrf([words, vectors]).doc.to_list()
    ['b', 'a', 'c']
    """
    _check_runs(runs, top)
    if not np.isfinite(k) or k < 0:
        raise InputError(f"k = {shorten(k)}", place="rrf", remedy="give 0 or more; 60 is usual")
    if depth is not None and (isinstance(depth, bool) or depth < 1):
        raise InputError(f"depth {shorten(depth)}", place="rrf", remedy="read 1 document or more")
    list_weights = _check_weights(weights, len(runs))
    limit = float(list_weights.sum()) / (k + 1)
    if depth is None and top is None and (lists := _lists_of_one_query(runs)) is not None:
        ids, scores = fuse_one(lists, k=k, weights=weights)
        return _run_of_one_query(ids, scores, runs[0].queries, name)
    longest = max(int(np.diff(run.start).max(initial=0)) for run in runs)
    values = np.empty(sum(map(len, runs)), np.int64)
    ends = np.cumsum([len(run) for run in runs])

    def fill(first: int, last: int) -> None:
        for number in range(first, last):
            weight = float(list_weights[number])
            by_rank = _value_by_rank(weight, float(k), limit, longest, depth)
            ranks = _twice_mean_rank(runs[number])
            np.take(by_rank, ranks, out=values[ends[number] - len(ranks) : ends[number]])

    kernels.map_ranges(fill, len(runs), kernels.THREADS)
    return _fuse(runs, values, limit=limit, top=top, name=name)


def fuse_one(
    lists: Sequence[tuple[Sequence[str], Sequence[float]]],
    method: Literal["rrf"] | Method = "rrf",
    *,
    k: float = 60,
    normalise: Literal["minmax", "z", "none"] = "minmax",
    weights: Sequence[float] | None = None,
) -> tuple[list[str], list[float]]:
    """Fuse the lists of one query (documents, finite scores), best first, without making a table.

    Scores are the same to the last bit as those of `rrf` and `combine`.

    >>> from rankproof.retrieval.fusion import fuse_one
    >>> fuse_one([(["a", "b"], [12.1, 9.5]), (["b", "c"], [0.81, 0.80])])[0]
    ['b', 'a', 'c']
    """
    given_weights = None if weights is None else tuple(weights)
    if method == "rrf":
        longest = 1 << max([len(ids) for ids, _ in lists]).bit_length()  # few sizes, for the cache
        limit, tables = _rank_values(given_weights, len(lists), k, longest)
        values = [_values_at_ranks(t, scores) for t, (_, scores) in zip(tables, lists, strict=True)]
    else:
        weighted = zip(_check_weights(given_weights, len(lists)).tolist(), lists, strict=True)
        scaled = [_scale_list(np.array(x, np.float64), normalise) * w for w, (_, x) in weighted]
        limit = sum(float(value.max(initial=0.0)) for value in scaled)
        values = [_to_fixed(value, limit).tolist() for value in scaled]
    sums = dict(zip(lists[0][0], values[0], strict=True))
    so_far = sums.get  # bound once: this loop decides the speed of a service
    for (ids, _), list_values in zip(lists[1:], values[1:], strict=True):
        if method == "max":
            for doc, value in zip(ids, list_values, strict=True):
                sums[doc] = max(so_far(doc, 0), value)
        else:
            for doc, value in zip(ids, list_values, strict=True):
                sums[doc] = so_far(doc, 0) + value
    unit = math.ldexp(-1.0, -_shift(limit))  # negative, so that equal sums are sorted by id
    totals = [value * unit for value in sums.values()]
    if not unit:  # the unit is too small to be represented
        totals = [math.ldexp(-value, -_shift(limit)) for value in sums.values()]
    if method == "mnz":
        counts = Counter(chain.from_iterable(ids for ids, _ in lists))
        totals = [total * counts[doc] for total, doc in zip(totals, sums, strict=True)]
    ranked = sorted(zip(totals, sums, strict=True))
    return [doc for _, doc in ranked], [-total for total, _ in ranked]


@lru_cache(maxsize=64)
def _rank_values(
    weights: tuple[float, ...] | None, count: int, k: float, longest: int
) -> tuple[float, tuple[list[int], ...]]:
    """Return the limit of a sum, and for each list the value of a document by twice its rank."""
    list_weights = _check_weights(weights, count)
    limit = float(list_weights.sum()) / (k + 1)
    tables = (_value_by_rank(w, float(k), limit, longest, None) for w in list_weights.tolist())
    return limit, tuple(table.tolist() for table in tables)


def _values_at_ranks(by_rank: list[int], scores: Sequence[float]) -> list[int]:
    """Return the value of each document of a list, by twice its mean rank."""
    if all(map(gt, scores, islice(scores, 1, None))):  # sorted, without ties
        return by_rank[2 : 2 * len(scores) + 1 : 2]
    above, twice_rank = 0, dict[float, int]()
    for score, count in sorted(Counter(scores).items(), reverse=True):
        twice_rank[score] = 2 * above + count + 1
        above += count
    return [by_rank[twice_rank[score]] for score in scores]


def _scale_list(score: Float, normalise: str) -> Float:
    """Return the scores of one list normalized, with the same bits as by `_normalized`."""
    if normalise == "none" or not len(score):
        return score
    lowest = score.min() / 2
    unit = score.max() / 2 - lowest
    if unit == 0:
        return np.ones(len(score))
    above: Float = score / 2 - lowest
    if normalise == "z":
        by_rank = np.sort(above)[::-1] / unit
        mean = np.add.reduceat(by_rank, [0]) / len(score)
        unit = unit * np.sqrt(np.add.reduceat((by_rank - mean) ** 2, [0]) / len(score))
    scaled: Float = above / unit
    return scaled


def _lists_of_one_query(runs: Sequence[Run]) -> list[tuple[list[str], list[float]]] | None:
    """Return documents and scores of short lists of one query; None for all other runs."""
    first = runs[0].queries
    if any(len(run.start) != 2 or len(run) > _SHORT or run.rest is not None for run in runs):
        return None
    if not all(run.queries is first or run.queries[0] == first[0] for run in runs[1:]):
        return None
    return [(run.doc.to_list(), run.score.tolist()) for run in runs]


def _run_of_one_query(ids: list[str], scores: list[float], queries: pl.Series, name: str) -> Run:
    """Return the fused list of one query as a Run."""
    start, score = np.array([0, len(ids)]), np.array(scores, np.float64)
    for column in (start, score):
        column.flags.writeable = False
    doc = pl.Series("doc", ids, dtype=pl.String)
    cut, index = np.zeros(1, np.int64), index_documents(doc, start)
    return Run(name, queries.alias("query"), start, doc, score, "float64", cut, index)


@lru_cache(maxsize=64)
def _value_by_rank(weight: float, k: float, limit: float, longest: int, depth: int | None) -> Int:
    """Return w / (k + rank) by twice the mean rank, which may be half; −1 beyond `depth`."""
    twice_rank = np.maximum(np.arange(2 * longest + 1), 2)
    values = _to_fixed(weight / (k + twice_rank / 2), limit)
    if depth is not None:
        values[2 * depth + 1 :] = -1
    return values


def combine(
    runs: Sequence[Run],
    method: Method = "sum",
    normalise: Normalise = "minmax",
    weights: Sequence[float] | None = None,
    top: int | None = None,
    name: str | None = None,
) -> Run:
    """CombSUM, CombMNZ, CombMAX or a weighted sum of scores: score(d) = Σ over lists of w · x(d).

    x is the score normalized within its list of n documents:

        minmax   (s − min) / (max − min)
        z        (s − min) / std, the standard score counted from the list's lowest
        sum      (s − min) / Σ (s − min)
        rank     1 − (r − 1) / n for the mean rank r of the documents that tie with d

    A list that lacks d adds 0, as its last document does. Where all scores of a list are equal,
    x = 1 (with sum, 1/n). `mnz` multiplies the sum by the number of lists that hold d, `max` takes
    the largest x (Fox and Shaw 1994).

    >>> from rankproof.retrieval.fusion import combine
    >>> words = rp.read_run({"q": {"a": 9, "b": 3}})
    >>> vectors = rp.read_run({"q": {"b": 0.8, "c": 0.2}})
    >>> combine([words, vectors], "weighted", weights=[0.3, 0.7]).to_frame().rows()[0]
    ('q', 'b', 0.7)
    """
    _check_runs(runs, top)
    if method not in get_args(Method):
        known = ", ".join(get_args(Method))
        raise InputError(f"method {shorten(method)} is unknown", remedy=f"use one of {known}")
    if normalise not in get_args(Normalise):
        known = ", ".join(get_args(Normalise))
        raise InputError(
            f"normalisation {shorten(normalise)} is unknown", remedy=f"use one of {known}"
        )
    if (weights is not None) != (method == "weighted"):
        problem = "no weights" if weights is None else f"weights with the method {method}"
        raise InputError(problem, place="combine", remedy="weights go with the method weighted")
    weighted = zip(runs, _check_weights(weights, len(runs)), strict=True)
    values = [_normalized(run, normalise) * weight for run, weight in weighted]
    limit = sum(float(value.max(initial=0.0)) for value in values)
    if not np.isfinite(limit):
        raise InputError(
            "the scores are too large to be added", place="combine", remedy="normalise them"
        )
    fixed = np.concatenate([_to_fixed(value, limit) for value in values])
    if method == "max":
        fixed = _keep_largest(runs, fixed)
    name = name or f"comb{method}"
    return _fuse(runs, fixed, limit=limit, top=top, name=name, by_lists=method == "mnz")


def isr(runs: Sequence[Run], top: int | None = None, name: str = "isr") -> Run:
    """Inverse square rank: score(d) = n(d) · Σ over the n(d) lists that hold d of 1/rank²."""
    _check_runs(runs, top)
    values = [4.0 / np.maximum(_twice_mean_rank(run), 2) ** 2.0 for run in runs]
    limit = float(len(runs))
    fixed = np.concatenate([_to_fixed(value, limit) for value in values])
    return _fuse(runs, fixed, limit=limit, top=top, name=name, by_lists=True)


def borda(runs: Sequence[Run], top: int | None = None, name: str = "borda") -> Run:
    """Borda count: each list gives a document c − r + 1 points at mean rank r.

    c is the number of candidates, the documents in any list for the query. The candidates that a
    list of n documents lacks share its remaining points equally: (c − n + 1)/2 each.
    """
    _check_runs(runs, top)
    queries, codes = _unite_queries(runs)
    codes = codes or [np.arange(len(queries))] * len(runs)
    zeros = np.zeros(sum(map(len, runs)), np.int64)
    union = _fuse(runs, zeros, limit=1.0, top=None, name=name)
    candidates = np.diff(union.start)
    missing_points = np.zeros(len(queries))  # points of a document that no list contains
    points = []
    for run, code in zip(runs, codes, strict=True):
        listed = np.zeros(len(queries), np.int64)
        listed[code] = np.diff(run.start)
        missing_points += (candidates - listed + 1) / 2
        # Points beyond those for a missing document: c − r + 1 − (c − n + 1)/2.
        extra = (candidates + listed + 1)[code] / 2
        points.append(np.repeat(extra, np.diff(run.start)) - _twice_mean_rank(run) / 2)
    largest = len(runs) * (candidates.max(initial=0) + 1)
    limit = float(missing_points.max(initial=0.0) + largest)
    values = np.concatenate([_to_fixed(list_points, limit) for list_points in points])
    fused = _fuse(runs, values, limit=limit, top=top, name=name)
    score = fused.score + np.repeat(missing_points, np.diff(fused.start))
    score.flags.writeable = False
    return replace(fused, score=score)


# Every fusion by the name that configurations and the ranx shim use.
FUSIONS: dict[str, Callable[..., Run]] = {
    "rrf": rrf,
    "sum": partial(combine, method="sum"),
    "mnz": partial(combine, method="mnz"),
    "max": partial(combine, method="max"),
    "weighted": partial(combine, method="weighted"),
    "isr": isr,
    "borda": borda,
}


def fuse(runs: Sequence[Run], method: str = "rrf", **settings: Any) -> Run:
    """Fuse runs by the name of a method: rrf, sum, mnz, max, weighted, isr or borda."""
    if method not in FUSIONS:
        raise InputError(
            f"fusion {shorten(method)} is unknown", remedy=f"use one of {', '.join(FUSIONS)}"
        )
    return FUSIONS[method](runs, **settings)


def _keep_largest(runs: Sequence[Run], value: Int) -> Int:
    """Return values (N,) of all lists; of each document only the largest stays, others become 0."""
    queries, codes = _unite_queries(runs)
    codes = codes or [np.arange(len(queries))] * len(runs)
    query = [np.repeat(c, np.diff(r.start)) for r, c in zip(runs, codes, strict=True)]
    table = pl.DataFrame(
        {
            "query": np.concatenate(query),
            "doc": pl.concat([run.doc for run in runs], rechunk=True),
            "value": value,
            "row": np.arange(len(value)),
        }
    )
    table = table.sort("value", "row", descending=[True, False])
    rows = table.unique(["query", "doc"], keep="first")["row"].to_numpy()
    largest = np.zeros_like(value)
    largest[rows] = value[rows]
    return largest


def _check_runs(runs: Sequence[Run], top: int | None) -> None:
    """Refuse a fusion of no runs, and lists shorter than 1."""
    if not runs:
        raise InputError("no runs to fuse", remedy="give one or more")
    if top is not None and (isinstance(top, bool) or top < 1):
        raise InputError(f"top {shorten(top)}", place="fusion", remedy="keep 1 document or more")


def _check_weights(weights: Sequence[float] | None, count: int) -> Float:
    """Return one weight for each list, 1 where none are given."""
    if weights is None:
        return np.ones(count)
    values = np.asarray(weights, np.float64)
    if values.shape != (count,):
        raise InputError(
            f"{plural(values.size, 'weight')} for {plural(count, 'run')}",
            place="weights",
            remedy="give one each",
        )
    if not np.isfinite(values.sum()) or (values < 0).any() or not values.any():
        raise InputError(
            f"weights {shorten(list(weights))}",
            place="weights",
            remedy="give numbers of 0 or more, one of them above 0",
        )
    return values


def _twice_mean_rank(run: Run) -> Int:
    """Return (N,) twice the mean rank of each row: first + last rank of its tie group."""
    ranking = rank_run(run)
    list_start = np.repeat(ranking.start[:-1], ranking.groups_of)
    ends = ranking.group_start
    twice = ends[:-1] + ends[1:] + 1 - 2 * list_start
    if len(twice) < len(run):
        twice = np.repeat(twice, np.diff(ends))
    return twice if ranking.position is None else twice[ranking.position]


def _normalized(run: Run, normalise: Normalise) -> Float:
    """Return scores (N,) normalized within their list, 0 or more; see `combine`."""
    _check_scores(run, normalise)
    score, start = run.score, run.start
    if normalise == "none":
        return score
    sizes = np.diff(start)
    if normalise == "rank":
        return np.asarray(1.0 - (_twice_mean_rank(run) / 2 - 1.0) / np.repeat(sizes, sizes))
    begin, sizes = start[:-1][sizes > 0], sizes[sizes > 0]
    if not len(begin):
        return score
    low, high = np.minimum.reduceat(score, begin), np.maximum.reduceat(score, begin)
    # Halves, since the difference of two finite numbers may be infinite.
    above = score / 2 - np.repeat(low / 2, sizes)
    unit = high / 2 - low / 2
    share = above / np.repeat(np.where(unit > 0, unit, 1.0), sizes)  # squares stay in range
    if normalise == "minmax":
        return np.where(np.repeat(unit == 0, sizes), 1.0, share)
    by_rank = share
    position = rank_run(run).position
    if position is not None:  # summed by rank, whatever the order of the rows
        by_rank = share.copy()
        by_rank[position] = share
    if normalise == "sum":
        total = np.repeat(np.add.reduceat(by_rank, begin), sizes)
        shares = share / np.where(total > 0, total, 1.0)
        return np.where(total > 0, shares, 1 / np.repeat(sizes, sizes))
    mean = np.add.reduceat(by_rank, begin) / sizes
    squares = np.add.reduceat((by_rank - np.repeat(mean, sizes)) ** 2, begin)
    unit = unit * np.sqrt(squares / sizes)  # the standard deviation
    is_constant = np.repeat(unit == 0, sizes)
    return np.where(is_constant, 1.0, above / np.repeat(np.where(unit > 0, unit, 1.0), sizes))


def _check_scores(run: Run, normalise: Normalise) -> None:
    """Refuse scores that cannot be added, or that are below the 0 of a missing document."""
    score = run.score
    if not np.isfinite(score).all():
        row = int((~np.isfinite(score)).argmax())
        raise InputError(
            f"score {score[row]} cannot be added to others",
            place=f"{run.name}: document {shorten(run.doc[row])}",
            remedy="fuse by rank (rrf)",
        )
    if normalise == "none" and (score < 0).any():
        row = int((score < 0).argmax())
        raise InputError(
            f"score {score[row]} is less than what a document gets that is not listed",
            place=f"{run.name}: document {shorten(run.doc[row])}",
            remedy="normalise, or fuse by rank (rrf)",
        )


def _to_fixed(values: Float, limit: float) -> Int:
    """Return numbers of 0 or more in fixed point; no sum of them may exceed `limit`."""
    return np.rint(np.ldexp(values, _shift(limit))).astype(np.int64)


def _shift(limit: float) -> int:
    """Return the power of two by which numbers are scaled to fixed point."""
    return _BITS - math.frexp(limit)[1]


def _fuse(
    runs: Sequence[Run],
    values: Int,
    *,
    limit: float,
    top: int | None,
    name: str,
    by_lists: bool = False,
) -> Run:
    """Return the sums of values (N,) of all runs' rows by query and document, as a Run, best first.

    With `by_lists` each sum is multiplied by the number of lists that contain the document.
    """
    queries, codes = _unite_queries(runs)
    first = np.zeros((len(runs), len(queries)), np.int64)
    last = np.zeros_like(first)
    offset = 0
    for number, run in enumerate(runs):
        columns: Int | slice = slice(None) if codes is None else codes[number]
        first[number, columns] = run.start[:-1] + offset
        last[number, columns] = run.start[1:] + offset
        offset += len(run)
    doc = pl.concat([run.doc for run in runs], rechunk=True)
    merged = kernels.merge_lists(doc, first, last, values, by_lists)
    start, row, score = merged.start, merged.row, np.ldexp(merged.score, -_shift(limit))
    cut = np.zeros(len(queries), np.int64)
    if top is not None:
        start, is_kept, cut = _cut_lists(score, start, top)
        row, score = row[is_kept], score[is_kept]
    documents = take_documents(doc, row)
    for column in (start, score):
        column.flags.writeable = False
    index = index_documents(documents, start)
    return Run(name, queries, start, documents, score, "float64", cut, index)


def _unite_queries(runs: Sequence[Run]) -> tuple[pl.Series, list[Int] | None]:
    """Return the queries of all runs in order of appearance, and each run's queries as codes.

    The codes are None where all runs have the same queries.
    """
    first = runs[0].queries
    if all(run.queries is first or run.queries.equals(first) for run in runs[1:]):
        return first.alias("query"), None
    queries = pl.concat([run.queries for run in runs]).unique(maintain_order=True)
    table = pl.DataFrame({"query": queries, "code": np.arange(len(queries))})
    codes = [
        run.queries.to_frame("query").join(table, on="query", how="left", maintain_order="left")
        for run in runs
    ]
    return queries.alias("query"), [code["code"].to_numpy() for code in codes]


def _cut_lists(score: Float, start: Int, top: int) -> tuple[Int, Bool, Int]:
    """Return the starts of shortened lists, the rows kept, and the ties with each last row."""
    sizes = np.diff(start)
    query = np.repeat(np.arange(len(sizes)), sizes)
    is_kept = np.arange(len(score)) - start[query] < top
    last_score = np.full(len(sizes), np.nan)  # equal to no score, where all rows are kept
    long = sizes > top
    last_score[long] = score[start[:-1][long] + top - 1]
    tied = ~is_kept & (score == last_score[query])
    shorter = np.zeros_like(start)
    np.cumsum(np.minimum(sizes, top), out=shorter[1:])
    return shorter, is_kept, np.bincount(query[tied], minlength=len(sizes))
