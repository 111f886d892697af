"""Several ranked lists into one: by ranks (RRF), or by scores brought to one scale.

Documents that tie in a list share their mean rank, so that what is fused does not depend on the
order in which a list happens to hold them. Sums are made in fixed point: exact in any order, so
that documents with the same ranks in different lists tie.
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

_SHORT = 100  # documents of a list that plain Python fuses sooner than columns
_BITS = 61  # of a sum in fixed point; what is left keeps the last rounding from overflowing


def rrf(
    runs: Sequence[Run],
    k: float = 60,
    weights: Sequence[float] | None = None,
    depth: int | None = None,
    top: int | None = None,
    name: str = "rrf",
) -> Run:
    """Reciprocal rank fusion: score(d) = Σ over lists that hold d of w / (k + rank of d).

    `rank` is the mean rank of the documents that tie with d; `depth` reads the documents of each
    list whose rank is at most that, `top` keeps that many of each fused list.

    >>> from rankproof.retrieval.fusion import rrf
    >>> words, vectors = rp.read_run({"q": {"a": 2, "b": 1}}), rp.read_run({"q": {"b": 2, "c": 1}})
    >>> rrf([words, vectors]).doc.to_list()
    ['b', 'a', 'c']
    """
    _check(runs, top)
    if not np.isfinite(k) or k < 0:
        raise InputError(f"k = {shorten(k)}", place="rrf", remedy="give 0 or more; 60 is usual")
    if depth is not None and (isinstance(depth, bool) or depth < 1):
        raise InputError(f"depth {shorten(depth)}", place="rrf", remedy="read 1 document or more")
    shares = _weights(weights, len(runs))
    limit = float(shares.sum()) / (k + 1)
    if depth is None and top is None and (one := _one_query(runs)) is not None:
        return _run_of(*fuse_one(one, k=k, weights=weights), runs[0].queries, name)
    longest = max(int(np.diff(run.start).max(initial=0)) for run in runs)
    value = np.empty(sum(map(len, runs)), np.int64)
    ends = np.cumsum([len(run) for run in runs])

    def fill(first: int, last: int) -> None:
        for number in range(first, last):
            by_rank = _by_rank(float(shares[number]), float(k), limit, longest, depth)
            ranks = _twice_mean_rank(runs[number])
            np.take(by_rank, ranks, out=value[ends[number] - len(ranks) : ends[number]])

    kernels.map_ranges(fill, len(runs), kernels.THREADS)
    return _fuse(runs, value, limit, top, name)


def fuse_one(
    lists: Sequence[tuple[Sequence[str], Sequence[float]]],
    method: Literal["rrf"] | Method = "rrf",
    *,
    k: float = 60,
    normalise: Literal["minmax", "z", "none"] = "minmax",
    weights: Sequence[float] | None = None,
) -> tuple[list[str], list[float]]:
    """The lists of one query, documents and finite scores of each, into one, best first.

    What a service does for a question: no table is made. Every bit is that of `rrf` and `combine`.

    >>> from rankproof.retrieval.fusion import fuse_one
    >>> fuse_one([(["a", "b"], [12.1, 9.5]), (["b", "c"], [0.81, 0.80])])[0]
    ['b', 'a', 'c']
    """
    given = None if weights is None else tuple(weights)
    if method == "rrf":
        longest = 1 << max([len(ids) for ids, _ in lists]).bit_length()  # few sizes, each once
        limit, worth = _worth(given, len(lists), k, longest)
        fixed = [_at_ranks(by, scores) for by, (_, scores) in zip(worth, lists, strict=True)]
    else:
        shares = _weights(given, len(lists)).tolist()
        scaled = zip(shares, lists, strict=True)
        values = [_on_scale(np.array(x, np.float64), normalise) * w for w, (_, x) in scaled]
        limit = sum(float(value.max(initial=0.0)) for value in values)
        fixed = [_fixed(value, limit).tolist() for value in values]
    sums = dict(zip(lists[0][0], fixed[0], strict=True))
    seen = sums.get
    for (ids, _), value in zip(lists[1:], fixed[1:], strict=True):
        if method == "max":
            sums.update([(doc, max(seen(doc, 0), x)) for doc, x in zip(ids, value, strict=True)])
        else:
            for doc, x in zip(ids, value, strict=True):
                sums[doc] = seen(doc, 0) + x
    unit = math.ldexp(-1.0, -_shift(limit))  # turned, so that equal sums go by id
    totals = [x * unit for x in sums.values()]
    if not unit:  # too small to be a number
        totals = [math.ldexp(-x, -_shift(limit)) for x in sums.values()]
    if method == "mnz":
        held = Counter(chain.from_iterable(ids for ids, _ in lists))
        totals = [x * held[doc] for x, doc in zip(totals, sums, strict=True)]
    best = sorted(zip(totals, sums, strict=True))
    return [doc for _, doc in best], [-x for x, _ in best]


@lru_cache(maxsize=64)
def _worth(
    weights: tuple[float, ...] | None, count: int, k: float, longest: int
) -> tuple[float, tuple[list[int], ...]]:
    """The limit of a sum, and what each list gives by twice the mean rank."""
    shares = _weights(weights, count)
    limit = float(shares.sum()) / (k + 1)
    given = (_by_rank(share, float(k), limit, longest, None) for share in shares.tolist())
    return limit, tuple(by.tolist() for by in given)


def _at_ranks(by: list[int], scores: Sequence[float]) -> list[int]:
    """What each document gets, by twice its mean rank."""
    if all(map(gt, scores, islice(scores, 1, None))):  # from best to worst, without ties
        return by[2 : 2 * len(scores) + 1 : 2]
    above, ranks = 0, dict[float, int]()
    for score, level in sorted(Counter(scores).items(), reverse=True):
        ranks[score] = 2 * above + level + 1
        above += level
    return [by[ranks[score]] for score in scores]


def _on_scale(score: Float, normalise: str) -> Float:
    """`_normalised` of one list."""
    if normalise == "none" or not len(score):
        return score
    least = score.min() / 2
    unit = score.max() / 2 - least
    if unit == 0:
        return np.ones(len(score))
    above: Float = score / 2 - least
    if normalise == "z":
        by_rank = np.sort(above)[::-1] / unit
        mean = np.add.reduceat(by_rank, [0]) / len(score)
        unit = unit * np.sqrt(np.add.reduceat((by_rank - mean) ** 2, [0]) / len(score))
    scaled: Float = above / unit
    return scaled


def _one_query(runs: Sequence[Run]) -> list[tuple[list[str], list[float]]] | None:
    """Short lists of one query, whose scores are what they seem; None for others."""
    first = runs[0].queries
    if any(len(run.start) != 2 or len(run) > _SHORT or run.rest is not None for run in runs):
        return None
    if not all(run.queries is first or run.queries[0] == first[0] for run in runs[1:]):
        return None
    return [(run.doc.to_list(), run.score.tolist()) for run in runs]


def _run_of(ids: list[str], scores: list[float], queries: pl.Series, name: str) -> Run:
    start, score = np.array([0, len(ids)]), np.array(scores, np.float64)
    for column in (start, score):
        column.flags.writeable = False
    doc = pl.Series("doc", ids, dtype=pl.String)
    cut, index = np.zeros(1, np.int64), index_documents(doc, start)
    return Run(name, queries.alias("query"), start, doc, score, "float64", cut, index)


@lru_cache(maxsize=64)
def _by_rank(share: float, k: float, limit: float, longest: int, depth: int | None) -> Int:
    """What a document gets at each mean rank, by twice that rank: it is a half, or whole."""
    twice = np.maximum(np.arange(2 * longest + 1), 2)
    found = _fixed(share / (k + twice / 2), limit)
    if depth is not None:
        found[2 * depth + 1 :] = -1
    return found


def combine(
    runs: Sequence[Run],
    method: Method = "sum",
    normalise: Normalise = "minmax",
    weights: Sequence[float] | None = None,
    top: int | None = None,
    name: str | None = None,
) -> Run:
    """CombSUM, CombMNZ, CombMAX or a weighted sum of scores: score(d) = Σ over lists of w · x(d).

    x is the score normalised within its list: (s − min)/(max − min), or with z (s − min)/std,
    the standard score counted from the list's lowest; with sum its share (s − min)/Σ(s − min); with
    rank 1 − (r − 1)/n for the mean rank r of those that tie with it. A list that lacks d gives 0,
    which is where its last document stands. Where all scores of a list are equal, x = 1, and with
    sum 1/n. `mnz` multiplies the sum by the number of lists that hold d, `max` takes the largest x.

    >>> from rankproof.retrieval.fusion import combine
    >>> words = rp.read_run({"q": {"a": 9, "b": 3}})
    >>> vectors = rp.read_run({"q": {"b": 0.8, "c": 0.2}})
    >>> combine([words, vectors], "weighted", weights=[0.3, 0.7]).to_frame().rows()[0]
    ('q', 'b', 0.7)
    """
    _check(runs, top)
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
    shares = _weights(weights, len(runs))
    values = [_normalised(run, normalise) * share for run, share in zip(runs, shares, strict=True)]
    limit = sum(float(value.max(initial=0.0)) for value in values)
    if not np.isfinite(limit):
        raise InputError(
            "the scores are too large to be added", place="combine", remedy="normalise them"
        )
    fixed = np.concatenate([_fixed(value, limit) for value in values])
    if method == "max":
        fixed = _largest(runs, fixed)
    return _fuse(runs, fixed, limit, top, name or f"comb{method}", method == "mnz")


def isr(runs: Sequence[Run], top: int | None = None, name: str = "isr") -> Run:
    """Inverse square rank: Σ over lists that hold d of 1/rank², times how many hold it."""
    _check(runs, top)
    values = [4.0 / np.maximum(_twice_mean_rank(run), 2) ** 2.0 for run in runs]
    limit = float(len(runs))
    fixed = np.concatenate([_fixed(value, limit) for value in values])
    return _fuse(runs, fixed, limit, top, name, by_lists=True)


def borda(runs: Sequence[Run], top: int | None = None, name: str = "borda") -> Run:
    """Borda's count: of c candidates a list gives the one at rank r c − r + 1 points.

    Those that it lacks share the points it has left: (c − n + 1)/2 each, where it holds n.
    """
    _check(runs, top)
    queries, codes = _queries(runs)
    codes = codes or [np.arange(len(queries))] * len(runs)
    everyone = _fuse(runs, np.zeros(sum(map(len, runs)), np.int64), 1.0, None, name)
    candidates = np.diff(everyone.start)
    left = np.zeros(len(queries))  # what a document gets that no list holds
    points = []
    for run, code in zip(runs, codes, strict=True):
        listed = np.zeros(len(queries), np.int64)
        listed[code] = np.diff(run.start)
        left += (candidates - listed + 1) / 2
        more = (candidates + listed + 1)[code] / 2
        points.append(np.repeat(more, np.diff(run.start)) - _twice_mean_rank(run) / 2)
    limit = float(left.max(initial=0.0) + len(runs) * (candidates.max(initial=0) + 1))
    value = np.concatenate([_fixed(given, limit) for given in points])
    fused = _fuse(runs, value, limit, top, name)
    score = fused.score + np.repeat(left, np.diff(fused.start))
    score.flags.writeable = False
    return replace(fused, score=score)


# Every fusion by name: what a configuration, a script or another tool's user may ask for.
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


def _largest(runs: Sequence[Run], value: Int) -> Int:
    """(N,) the values, those that another list exceeds for the same document set to 0."""
    queries, codes = _queries(runs)
    codes = codes or [np.arange(len(queries))] * len(runs)
    query = [np.repeat(c, np.diff(r.start)) for r, c in zip(runs, codes, strict=True)]
    rows = pl.DataFrame(
        {
            "query": np.concatenate(query),
            "doc": pl.concat([run.doc for run in runs], rechunk=True),
            "value": value,
            "row": np.arange(len(value)),
        }
    )
    best = rows.sort("value", "row", descending=[True, False]).unique(
        ["query", "doc"], keep="first"
    )
    kept = np.zeros_like(value)
    chosen = best["row"].to_numpy()
    kept[chosen] = value[chosen]
    return kept


def _check(runs: Sequence[Run], top: int | None) -> None:
    if not runs:
        raise InputError("no runs to fuse", remedy="give one or more")
    if top is not None and (isinstance(top, bool) or top < 1):
        raise InputError(f"top {shorten(top)}", place="fusion", remedy="keep 1 document or more")


def _weights(given: Sequence[float] | None, count: int) -> Float:
    if given is None:
        return np.ones(count)
    weights = np.asarray(given, np.float64)
    if weights.shape != (count,):
        raise InputError(
            f"{plural(weights.size, 'weight')} for {plural(count, 'run')}",
            place="weights",
            remedy="give one each",
        )
    if not np.isfinite(weights.sum()) or (weights < 0).any() or not weights.any():
        raise InputError(
            f"weights {shorten(list(given))}",
            place="weights",
            remedy="give numbers of 0 or more, one of them above 0",
        )
    return weights


def _twice_mean_rank(run: Run) -> Int:
    """(N,) first + last rank of the tie group of each row: twice its mean rank."""
    ranking = rank_run(run)
    begin = np.repeat(ranking.start[:-1], ranking.groups_of)
    ends = ranking.group_start
    twice = ends[:-1] + ends[1:] + 1 - 2 * begin
    if len(twice) < len(run):
        twice = np.repeat(twice, np.diff(ends))
    return twice if ranking.position is None else twice[ranking.position]


def _normalised(run: Run, normalise: Normalise) -> Float:
    """(N,) scores of each list on its own scale, 0 and up."""
    score, start = run.score, run.start
    if not np.isfinite(score).all():
        row = int((~np.isfinite(score)).argmax())
        raise InputError(
            f"score {score[row]} cannot be added to others",
            place=f"{run.name}: document {shorten(run.doc[row])}",
            remedy="fuse by rank (rrf)",
        )
    if normalise == "none":
        if (score < 0).any():
            row = int((score < 0).argmax())
            raise InputError(
                f"score {score[row]} is less than what a document gets that is not listed",
                place=f"{run.name}: document {shorten(run.doc[row])}",
                remedy="normalise, or fuse by rank (rrf)",
            )
        return score
    sizes = np.diff(start)
    if normalise == "rank":
        return np.asarray(1.0 - (_twice_mean_rank(run) / 2 - 1.0) / np.repeat(sizes, sizes))
    listed = sizes > 0
    begin, sizes = start[:-1][listed], sizes[listed]
    if not len(begin):
        return score
    low, high = np.minimum.reduceat(score, begin), np.maximum.reduceat(score, begin)
    # Halves: the distance of two finite numbers may not be finite.
    above = score / 2 - np.repeat(low / 2, sizes)
    unit = high / 2 - low / 2
    if normalise in ("z", "sum"):
        share = above / np.repeat(np.where(unit > 0, unit, 1.0), sizes)  # squares stay in range
        position = rank_run(run).position
        if position is not None:  # summed by rank, whatever the order of the rows
            share[position] = share.copy()
        if normalise == "sum":
            total = np.repeat(np.add.reduceat(share, begin), sizes)
            share = above / np.repeat(np.where(unit > 0, unit, 1.0), sizes)
            return np.where(
                total > 0, share / np.where(total > 0, total, 1.0), 1 / np.repeat(sizes, sizes)
            )
        mean = np.add.reduceat(share, begin) / sizes
        squares = np.add.reduceat((share - np.repeat(mean, sizes)) ** 2, begin)
        unit = unit * np.sqrt(squares / sizes)
    constant = np.repeat(unit == 0, sizes)
    return np.where(constant, 1.0, above / np.repeat(np.where(unit > 0, unit, 1.0), sizes))


def _fixed(values: Float, limit: float) -> Int:
    """Numbers of 0 and up, of which no sum exceeds `limit`, in fixed point."""
    return np.rint(np.ldexp(values, _shift(limit))).astype(np.int64)


def _shift(limit: float) -> int:
    return _BITS - math.frexp(limit)[1]


def _fuse(
    runs: Sequence[Run],
    value: Int,
    limit: float,
    top: int | None,
    name: str,
    by_lists: bool = False,
) -> Run:
    """Sum the values (N,) of all runs' rows by query and document, best first."""
    queries, codes = _queries(runs)
    first = np.zeros((len(runs), len(queries)), np.int64)
    last = np.zeros_like(first)
    offset = 0
    for number, run in enumerate(runs):
        where: Int | slice = slice(None) if codes is None else codes[number]
        first[number, where] = run.start[:-1] + offset
        last[number, where] = run.start[1:] + offset
        offset += len(run)
    doc = pl.concat([run.doc for run in runs], rechunk=True)
    merged = kernels.merge_lists(doc, first, last, value, by_lists)
    start, row, score = merged.start, merged.row, np.ldexp(merged.score, -_shift(limit))
    cut = np.zeros(len(queries), np.int64)
    if top is not None:
        start, kept, cut = _keep(score, start, top)
        row, score = row[kept], score[kept]
    found = take_documents(doc, row)
    for column in (start, score):
        column.flags.writeable = False
    return Run(name, queries, start, found, score, "float64", cut, index_documents(found, start))


def _queries(runs: Sequence[Run]) -> tuple[pl.Series, list[Int] | None]:
    """Every query as first met, and the codes of each run's queries among them; None where all
    runs have the same."""
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


def _keep(score: Float, start: Int, top: int) -> tuple[Int, Bool, Int]:
    """The first `top` of each list; and how many of the others tie with the last of them."""
    sizes = np.diff(start)
    query = np.repeat(np.arange(len(sizes)), sizes)
    kept = np.arange(len(score)) - start[query] < top
    bar = np.full(len(sizes), np.nan)  # equal to nothing, where all is kept
    long = sizes > top
    bar[long] = score[start[:-1][long] + top - 1]
    left = ~kept & (score == bar[query])
    shorter = np.zeros_like(start)
    np.cumsum(np.minimum(sizes, top), out=shorter[1:])
    return shorter, kept, np.bincount(query[left], minlength=len(sizes))
