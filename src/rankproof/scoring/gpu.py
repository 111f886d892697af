"""Exact top-k on a GPU: a product finds what can win, and the fixed sum of fixed.py scores it.

Sorting every score would cost more than the product that makes them. Instead each query gets a
bar that a little more than k documents reach:

    up to 64 queries    one pass over the documents writes scores, lengths and the best of each of
                        some thousand groups; the k-th best group is the bar, and never too high
    more                a sample of the documents sets it; the product then compares its scores
                        with it and keeps one bit of each, or a block of scores is made and read

What can reach the bar is summed again in float64, lane by lane as on the CPU, and sorted as 64-bit
keys (score above document number). Whether k of them do reach it, and whether there was room for
all, is checked, so that the result is exact for any data; otherwise that query is done again with
more room or the slow way. Where too many documents tie since they are the same vector, such vectors
are summed once instead, and the next search of the same tensor begins with that: it compares every
such document with its vector anew, and searches the others. Without Triton, or without a GPU, plain
torch does the same.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch

from rankproof.scoring.fixed import LANES
from rankproof.scoring.formats import SHAPES
from rankproof.scoring.gpu_scores import (
    BLOCK_CELLS,
    Slack,
    compiled,
    finite,
    kernels,
    keys_of,
    lengths_of,
    name_of,
    open_keys,
    pairs,
    product,
    rounded,
)
from rankproof.scoring.topk import TopK

if kernels is not None:
    import triton

FEW = 64  # queries up to which one pass over the documents is what a search costs
MANY = 4096  # queries searched together
GROUPS = 132 * 32  # of documents, whose best set the bar of few queries
SAMPLE = 1 << 14, 1 << 16  # documents that set the bar of many, at least and at most; one in 32
LARGE = 1 << 29  # scores from which on it is worth asking whether most documents are equal
SHARED = 8  # of them whose best alone is looked at
REPLAYED = 1 << 30  # scores up to which kernels are recorded; fewer where all are held
KEPT = 3  # recordings
COUNTED = 128  # queries below which counting larger keys is the fastest way to sort them
ALL = 1 << 20  # scores up to which to sum all is less work than to choose
CROWD = 1 << 22  # documents to sum at a time where there was no room for them
STEP = 1 << 14  # documents compared at a time on a CPU
DISTINCT = 1 << 14  # vectors at most, and one in 64 documents, that are all summed in their stead
HEAVY = 512  # documents at least of a vector that is summed in their stead where there are more
_EMPTY = torch.iinfo(torch.int64).min


def top_k(queries: Any, documents: Any, k: int, *, low: bool = False) -> TopK:
    """The k best documents of each query by product; see `keys_of_best`."""
    return opened(*keys_of_best(queries, documents, k, low=low))


def opened(keys: Any, cut: Any) -> TopK:
    """Keys as arrays on the CPU."""
    scores, rows = open_keys(keys)
    return TopK(scores.cpu().numpy(), rows.cpu().numpy(), cut.cpu().numpy())


def keys_of_best(queries: Any, documents: Any, k: int, *, low: bool = False) -> tuple[Any, Any]:
    """Keys (Q, k) from best to worst, and how many documents left out tie with the last (Q,).

    `low` rounds each score to the format of the operands, as scoring wholly in it does. Numbers
    that are not finite are refused. Blocks are halved, with a warning, as long as memory does not
    suffice.
    """
    cells = BLOCK_CELLS
    while True:
        try:
            return _search(queries, documents, k, low, cells)
        except torch.cuda.OutOfMemoryError:
            cells //= 2
            if cells < 1 << 16:
                raise
            _GRAPHS.clear()
            _SAME.clear()
            torch.cuda.empty_cache()
            warnings.warn(
                f"out of GPU memory: going on with blocks of {cells:,} scores", stacklevel=2
            )


def _edge(bar: Any, form: str) -> Any:
    """(Q,) what a sum has to reach for its score, rounded to the format, to reach the bar."""
    if form == "float32":
        return bar
    bits, _, least, most, _ = SHAPES[form]
    below = bar - bar.abs() * 2.0 ** (1 - bits) - least
    return torch.where(bar > most, most, below).float()


# ------------------------------------------------------------------------------------- the search


def _search(queries: Any, documents: Any, k: int, low: bool, cells: int) -> tuple[Any, Any]:
    k = min(k, len(documents))
    form = name_of(queries.dtype) if low else "float32"
    if queries.stride(1) != 1 or documents.stride(1) != 1:
        queries, documents = queries.contiguous(), documents.contiguous()
    if not len(queries) or not k:
        keys = torch.empty((len(queries), k), dtype=torch.int64, device=queries.device)
        return keys, torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    lengths = None
    if len(queries) > MANY:
        lengths = lengths_of(documents)  # once for all of them
        finite(queries, lengths_of(queries), "queries")  # by the row of all, not of a part
    found = [
        _some(queries[first : first + MANY], documents, k, form, cells, lengths)
        for first in range(0, len(queries), MANY)
    ]
    if len(found) == 1:
        return found[0]
    return torch.cat([keys for keys, _ in found]), torch.cat([cut for _, cut in found])


def _some(
    queries: Any, documents: Any, k: int, form: str, cells: int, lengths: Any
) -> tuple[Any, Any]:
    count, total = len(queries), len(documents)
    plan = _Plan.of(count, total, k)
    if plan is None:
        slack = Slack.of(queries, lengths_of(queries), lengths_of(documents))
        finite(queries, slack.asked, "queries")
        finite(documents, slack.lengths, "documents")
        return _merge(queries, documents, k, slack, form, cells)
    where = _where(documents)
    how = (count, k, form, cells, lengths is None)
    same = _SAME.get(where)
    doubtful = count * total >= LARGE and plan.sample and not _GRAPHS.get((where, how, plan, None))
    if same is None and doubtful and 2 * total > _variety(queries, documents)[0] * plan.room:
        same = _find_same(documents)
    work = count * total * (32 if plan.sample == 0 else 1)
    if not compiled(queries) or (work > REPLAYED and (same is None or same.others)):
        made = _stage(queries, documents, k, form, cells, plan, lengths, same)
        return _settled(queries, documents, k, form, cells, plan, made, same)
    with _LOCK:  # what is replayed uses the same memory each time
        key = (where, how, plan, same)
        made = _replay(key, queries, documents, k, form, cells, plan, lengths, same)
        # Copied before anyone waits for the GPU.
        made = dataclasses.replace(made, best=made.best.clone(), cut=made.cut.clone())
        return _settled(queries, documents, k, form, cells, plan, made, same)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the bar is set, and how many documents of a query there is room for."""

    sample: int  # documents looked at first; none where groups of all documents set the bar
    place: int  # the bar is their score of this place
    needed: int
    room: int  # no less

    @classmethod
    def of(cls, count: int, total: int, k: int) -> _Plan | None:
        """None where nothing is won by a bar."""
        if count <= FEW and (total <= GROUPS // 4 or 4 * k <= GROUPS):
            room = min(total, 4 * k + 2048)
            return cls(0, k, room, room)
        least, most = SAMPLE
        size = min(max(total // 32, least), most) // SHARED * SHARED
        mean = k * size / total
        place = math.ceil(mean + 5 * mean**0.5 + 4)
        needed = math.ceil(1.25 * total / size * (place + 5 * place**0.5 + 5))
        room = max(needed, min(2048, total // 8))  # or a thousand copies of one document fill it
        if 2 * place * SHARED > size or 2 * room > total:
            return None
        return cls(size, place, needed, room)


@dataclass(frozen=True, slots=True)
class _Made:
    """What one try gives, before anyone has looked whether its bar was off."""

    slack: Slack
    bar: Any
    lists: _Lists
    best: Any
    cut: Any


def _stage(
    queries: Any,
    documents: Any,
    k: int,
    form: str,
    cells: int,
    plan: _Plan,
    lengths: Any = None,
    same: _Same | None = None,
) -> _Made:
    count = len(queries)
    groups = GROUPS if not plan.sample and _glances(queries) else 0
    room = plan.room if same is None else same.room(plan, k)
    lists = _Lists.of(count, room, queries.device, groups)
    if same is not None:
        lists.found[:, : len(same.first)] = same.first
        lists.reached.fill_(len(same.first))
        _compare(documents, same, lists.status[4:])
    if same is not None and not same.others:
        slack = Slack.of(queries, lengths_of(queries, lists.status[2:]), lengths_of(documents[:0]))
        bar = torch.full((count,), -math.inf, device=queries.device)
    elif plan.sample:
        if lengths is None:
            known = None if same is None else same.vector
            lengths = lengths_of(documents, lists.status[1:], known=known)
        else:
            lists.status[1] = ~torch.isfinite(lengths).all()
            if same is not None:
                lengths = torch.where(same.vector < 0, lengths, -math.inf)
        slack = Slack.of(queries, lengths_of(queries, lists.status[2:]), lengths)
        chosen = _sampled(len(documents), plan.sample, documents.device)
        scores = product(queries, documents[chosen])
        # Neighbours in the sample lie near each other in the documents: shared out over groups.
        bar = _place(scores, plan.sample // SHARED, plan.place, SHARED, slack=slack, same=same)
        bar = rounded(bar, form)
        _sift(queries, documents, _edge(bar, form), slack, lists, cells)
    else:
        rows = None if same is None else same.rest
        scores, slack, bar = _survey(queries, documents, k, lists, rows)
        bar = rounded(bar, form)
        _collect(scores, _edge(bar, form), slack, lists, rows=rows)
    keys = _rescore(queries, documents, lists, form)
    if same is None:
        best, cut = _finish(keys, bar, k, lists)
        return _Made(slack, bar, lists, best, cut)
    lists, last, beyond = _members(k, same, keys, bar, lists)
    best, cut = _finish(keys, bar, k, lists, last, beyond)
    return _Made(slack, bar, lists, best, cut)


_LOCK = threading.RLock()  # documents that tie are searched once more inside
_GRAPHS: OrderedDict[Any, Any] = OrderedDict()


def _replay(
    key: Any,
    queries: Any,
    documents: Any,
    k: int,
    form: str,
    cells: int,
    plan: _Plan,
    lengths: Any,
    same: _Same | None,
) -> _Made:
    """`_stage`, recorded when the same documents are searched a second time.

    To launch its kernels one by one takes longer than they run where there is little to do. What
    is recorded reads the documents anew each time.
    """
    kept = _GRAPHS.pop(key, None)
    if kept is None:
        made = _stage(queries, documents, k, form, cells, plan, lengths, same)
        kept = ()
    elif not kept:
        asked, known = queries.clone(), None if lengths is None else lengths.clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            made = _stage(asked, documents, k, form, cells, plan, known, same)
        kept = asked, known, graph, made
    if kept:
        asked, known, graph, made = kept
        asked.copy_(queries)
        if known is not None:
            known.copy_(lengths)
        graph.replay()
    _GRAPHS[key] = kept
    while len(_GRAPHS) > KEPT:
        _GRAPHS.popitem(last=False)
    return made


def _settled(
    queries: Any,
    documents: Any,
    k: int,
    form: str,
    cells: int,
    plan: _Plan,
    made: _Made,
    same: _Same | None,
) -> tuple[Any, Any]:
    """The best of what was found, and another way where the bar was off. Refuses what is not
    finite.
    """
    off, document, query, ties, other = made.lists.status.tolist()
    if query:
        finite(queries, made.slack.asked, "queries")
    if document:
        finite(documents, lengths_of(documents), "documents")
    if other:  # documents are no longer those vectors
        _SAME.pop(_where(documents), None)
        return _some(queries, documents, k, form, cells, None)
    if (ties or off) and same is not None and not same.anew:
        _find_same(documents, anew=True)  # other documents than those, whose vectors may be one
    left = made.lists.off.nonzero().flatten() if off else None
    if off and same is None:
        _again(queries, documents, k, form, cells, made, left)
    elif off and same is not None and same.others:
        asked = queries[left]
        stage = _stage(asked, documents, k, form, cells, plan)
        settled = _settled(asked, documents, k, form, cells, plan, stage, None)
        made.best[left], made.cut[left] = settled
    elif off and same is not None:
        settled = _by_rows(queries[left], documents, k, form, cells, same)
        made.best[left], made.cut[left] = settled
    return made.best, made.cut


@dataclass(frozen=True, slots=True)
class _Lists:
    """What was found for each query; few allocations, since each costs a small search dear."""

    status: Any  # whether a bar was off, a document or a query is not finite; see `_settled`
    reached: Any  # (Q,) int32 how many documents can reach the bar
    off: Any  # (Q,) int32 whether it was off
    found: Any  # (Q, room) int32 the documents
    best: Any  # (Q · groups,) zeros

    @classmethod
    def of(cls, count: int, room: int, device: Any, groups: int = 0) -> _Lists:
        zeros: Any = torch.zeros(5 + count * (2 + groups), dtype=torch.int32, device=device)
        best, status, reached, off = zeros.split([count * groups, 5, count, count])
        found = torch.empty((count, room), dtype=torch.int32, device=device)
        return cls(status, reached, off, found, best)


def _again(
    queries: Any, documents: Any, k: int, form: str, cells: int, made: _Made, left: Any
) -> None:
    """Queries whose bar was off: with as much room as they need, or the slow way."""
    best, cut, slack, bar = made.best, made.cut, made.slack, made.bar
    if _where(documents) not in _SAME:  # or that was of no help
        distinct, looked_at = _variety(queries[left], documents)
        if 512 * (looked_at - distinct) >= looked_at and _find_same(documents) is not None:
            best[left], cut[left] = _some(queries[left], documents, k, form, cells, None)
            return
    seen = made.lists.reached[left].tolist()
    step = max(1, 4 * CROWD // max(seen))
    for first in range(0, len(left), step):
        some, room = left[first : first + step], max(seen[first : first + step])
        asked, here, bars = queries[some], slack[some], bar[some]
        wrong = torch.ones_like(some)
        if k <= room <= 4 * CROWD:
            more = _Lists.of(len(some), room, queries.device)
            _sift(asked, documents, _edge(bars, form), here, more, cells, dense=True)
            keys = _rescore(asked, documents, more, form)
            best[some], cut[some] = _finish(keys, bars, k, more)
            wrong = more.off
        still = wrong.nonzero().flatten()
        if len(still):
            best[some[still]], cut[some[still]] = _merge(
                asked[still], documents, k, here[still], form, cells
            )


@functools.lru_cache(maxsize=16)
def _sampled(total: int, size: int, device: Any) -> Any:
    """Row numbers, one at random from each stretch, so that no order of the documents matters."""
    generator = torch.Generator().manual_seed(0)
    where = torch.arange(size, dtype=torch.float64) + torch.rand(
        size, generator=generator, dtype=torch.float64
    )
    return (where * (total / size)).long().clamp(max=total - 1).to(device)


def _variety(queries: Any, documents: Any) -> tuple[int, int]:
    """How many different vectors a sample of the documents has, as scores of one query show, and
    how many documents.
    """
    total = len(documents)
    some = documents[_sampled(total, min(total, SAMPLE[0]), documents.device)]
    scores = torch.sort(product(queries[:1], some)[0]).values
    return int((scores[1:] != scores[:-1]).sum()) + 1, len(scores)


def _place(
    best: Any,
    groups: int,
    place: int,
    shared: int = 1,
    *,
    slack: Slack,
    same: _Same | None = None,
    numbers: bool = False,
) -> Any:
    """(Q,) nearly the `place`-th largest best of groups, or that very one; no more.

    If it is the product of one of `same`, no more than its fixed sum either, or none would reach
    it.
    """
    count = len(best)
    if place > groups:
        return torch.full((count,), -math.inf, device=best.device)
    if not compiled(best):
        best = best.view(count, shared, groups).amax(dim=1)
        bar = torch.topk(best, place, dim=1).values[:, -1].contiguous()
        if same is not None:
            factor, extra, longest = dataclasses.replace(slack, lengths=same.longest).reaches()
            bar = (bar - (factor * longest + extra)[:, 0]).float()
        return bar
    bar = torch.empty(count, device=best.device)
    kernels.bar_kernel[(count,)](
        *(best, bar, slack.asked, None if same is None else same.longest),
        *(groups, best.stride(0), place, *slack.numbers),
        SHARED=shared,
        BLOCK=triton.next_power_of_2(groups),
        NUMBERS=numbers,
        SOME=same is not None,
        num_warps=8,
    )
    return bar


def _glances(queries: Any) -> bool:
    """Whether a pass without tensor cores is the faster one."""
    return compiled(queries) and len(queries) <= 2 and queries.dtype == torch.float32


def _survey(
    queries: Any, documents: Any, k: int, lists: _Lists, rows: Any
) -> tuple[Any, Slack, Any]:
    """Scores (Q, N) of the documents, or of some rows, their slack, and the bar: the k-th best of
    groups of them.
    """
    count, dimensions = queries.shape
    total = len(documents if rows is None else rows)
    status = lists.status[1:]
    if not compiled(queries):
        documents = documents if rows is None else documents[rows]
        lengths = lengths_of(documents, status)
        slack = Slack.of(queries, lengths_of(queries, status[1:]), lengths)
        scores = product(queries, documents)
        factor, extra, lengths = slack.reaches()
        low = (scores - (factor * lengths + extra)).float()
        low = low - low.abs() * 2.0**-22
        low = torch.where(low.isnan(), -math.inf, low)
        groups = min(GROUPS, total)
        low = torch.nn.functional.pad(low, (0, -total % groups), value=-math.inf)
        return scores, slack, _place(low, groups, k, low.shape[1] // groups, slack=slack)
    held: Any = torch.empty(count * total + total + count, device=queries.device)
    scores, lengths, asked = held.split([count * total, total, count])
    scores = scores.view(count, total)
    slack = Slack.of(queries, asked, lengths)
    what = (queries, documents, asked, scores, lengths)
    shape = (count, total, dimensions, queries.stride(0), documents.stride(0))
    if _glances(queries):
        lengths_of(queries, status[1:], asked)
        best = lists.best.view(count, GROUPS)
        kernels.glance_kernel[(triton.cdiv(total, 16),)](
            *(*what, best, status, rows, *shape, GROUPS, *slack.numbers),
            ROWS=16,
            QUERIES=count,
            WIDE=64,
            SOME=rows is not None,
            num_warps=1,
        )
        return scores, slack, _place(best, GROUPS, k, slack=slack, numbers=True)
    full = queries.dtype == torch.float32
    short = dimensions <= 128 and count <= 16  # little to do between two reads: more at a time
    tile, wide, fold = 128, 32 if full or short else 64, 8 if short else 4
    programs = min(528 if short else 264, triton.cdiv(total, tile))
    groups = programs * tile // fold
    best = torch.empty((count, groups), device=queries.device)
    kernels.survey_kernel[(programs,)](
        *(*what, best, status, rows, *shape, groups, *slack.numbers),
        ROWS=tile,
        QUERIES=max(16, triton.next_power_of_2(count)),
        WIDE=wide,
        SOME=rows is not None,
        EVEN=dimensions % wide == 0,
        FOLD=fold,
        PRECISION="tf32x3" if full else "ieee",
        num_warps=4,
        num_stages=4,
    )
    return scores, slack, _place(best, groups, k, slack=slack)


def _sift(
    queries: Any,
    documents: Any,
    edge: Any,
    slack: Slack,
    lists: _Lists,
    cells: int,
    dense: bool = False,
) -> None:
    """Append what can reach the edge to the list of each query, in any order; `dense` where there
    is room for so many of the documents that single bits would cost more than their scores.
    """
    count, total = len(queries), len(documents)
    dense = dense and 32 * lists.found.shape[1] > total
    if dense or not _fusable(queries, documents):
        step = max(1024, cells // count)
        for first in range(0, total, step):
            some = slice(first, first + step)
            scores = product(queries, documents[some])
            _collect(scores, edge, slack.among(some), lists, first)
        return
    words = triton.cdiv(count, 32)
    step = max(1 << 14, cells // words)
    marks = torch.empty((min(step, total), words), dtype=torch.int32, device=queries.device)
    for first in range(0, total, step):
        some = documents[first : first + step]
        _mark(queries, some, edge, slack.asked, slack.lengths[first:], slack.numbers, marks)
        size = len(some) * words
        kernels.gather_kernel[(triton.cdiv(size, _GATHER[0]),)](
            *(marks, lists.found, lists.reached),
            *(first, size, words, lists.found.shape[1]),
            BLOCK=_GATHER[0],
            num_warps=_GATHER[1],
        )


def _mark(
    queries: Any, documents: Any, edge: Any, asked: Any, lengths: Any, numbers: Any, marks: Any
) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    full = queries.dtype == torch.float32
    rows, tile, wide, warps, stages = _TILES[full]
    tile = min(tile, max(32, triton.next_power_of_2(len(queries))))
    grid = triton.cdiv(len(documents), rows) * triton.cdiv(len(queries), tile)
    kernels.sift_kernel[(grid,)](
        TensorDescriptor.from_tensor(documents, [rows, wide]),
        TensorDescriptor.from_tensor(queries, [tile, wide]),
        *(lengths, asked, edge, marks),
        *(len(queries), len(documents), queries.shape[1], marks.shape[1]),
        *numbers,
        ROWS=rows,
        QUERIES=tile,
        WIDE=wide,
        PRECISION="tf32x3" if full else "ieee",
        num_warps=warps,
        num_stages=stages,
    )


_GATHER = 256, 1
# Documents, queries, dimensions, warps and stages; the last for float32. Small enough for two at a
# time on a processor: one multiplies while the other packs its bits.
_TILES = (128, 128, 64, 4, 3), (128, 64, 32, 4, 3)


def _fusable(queries: Any, documents: Any) -> bool:
    """Whether the copy engine can read both."""
    return (
        compiled(queries)
        and torch.cuda.get_device_capability(queries.device)[0] >= 9
        and all(
            x.data_ptr() % 16 == 0
            and x.stride(0) * x.element_size() % 16 == 0
            and x.stride(0) >= x.shape[1]  # rows that are one vector in memory are not for it
            for x in (queries, documents)
        )
    )


def _collect(
    scores: Any, edge: Any, slack: Slack, lists: _Lists, first: int = 0, rows: Any = None
) -> None:
    """Append what can reach the edge to the list of each query, in any order: documents from
    `first` on, or these rows.
    """
    width, room = scores.shape[1], lists.found.shape[1]
    found, reached = lists.found, lists.reached
    if not compiled(scores):
        factor, extra, lengths = slack.reaches()
        limit = edge[:, None] - extra - edge[:, None].abs() * 2e-7
        # What has no length is listed already, whatever its product overflows to.
        passes = ~(scores + factor * lengths < limit) & (lengths != -math.inf)
        place = reached[:, None] + passes.cumsum(dim=1) - 1
        asked, column = (passes & (place < room)).nonzero(as_tuple=True)
        found[asked, place[asked, column]] = (
            (column + first).int() if rows is None else rows[column]
        )
        reached += passes.sum(dim=1, dtype=torch.int32)
        return
    # Enough programs to fill the GPU, and no more than that needs.
    chunks = 16 if width * len(scores) > 1 << 26 else 1 if width * len(scores) < 1 << 22 else 4
    grid = (triton.cdiv(width, 1024 * chunks), len(scores))
    kernels.collect_kernel[grid](
        *(scores, slack.lengths, slack.asked, edge, found, reached),
        *(rows, first, width, scores.stride(0), room, *slack.numbers),
        CHUNK=1024,
        CHUNKS=chunks,
        ALONE=16 if chunks > 1 else 0,
        SOME=rows is not None,
        num_warps=2,
    )


def _rescore(queries: Any, documents: Any, lists: _Lists, form: str) -> Any:
    """(Q, room) keys of the fixed sums of what was found; the smallest where nothing was."""
    found, reached = lists.found, lists.reached
    count, room = found.shape
    keys = torch.empty((count, room), dtype=torch.int64, device=queries.device)
    if not compiled(queries):
        held = torch.arange(room, device=queries.device) < reached[:, None]
        asked, place = held.nonzero(as_tuple=True)
        rows = found[asked, place].long()
        keys.fill_(_EMPTY)
        exact = rounded(pairs(queries, documents, asked, rows), form)
        keys[asked, place] = keys_of(exact, rows)
        return keys
    tile = 64 if queries.dtype != torch.float32 and count * room > 1 << 20 else 32
    kernels.rescore_kernel[(triton.cdiv(room, tile) * count,)](
        *(queries, documents, found, reached, keys),
        *(queries.shape[1], queries.stride(0), documents.stride(0), count, room),
        TILE=tile,
        LANES=LANES,
        FORM=getattr(kernels.tl, form),
        num_warps=2,
    )
    return keys


def _largest(keys: Any, k: int, held: Any, countable: int) -> Any:
    """(Q, k) the largest keys in order, of those held (Q,)."""
    count, room = keys.shape
    if compiled(keys) and count < COUNTED and room <= countable:
        best = torch.empty((count, k), dtype=torch.int64, device=keys.device)
        kernels.order_kernel[(triton.cdiv(room, 32), count)](
            *(keys, best, held, k, room, keys.stride(0), best.stride(0)),
            TILE=32,
            BLOCK=64,
            num_warps=2,
        )
        return best
    if count >= COUNTED and room <= 4096:
        return torch.sort(keys, dim=1, descending=True).values[:, :k]
    return torch.topk(keys, k, dim=1).values


def _finish(
    keys: Any, bar: Any, k: int, lists: _Lists, last_of_same: Any = None, beyond: Any = None
) -> tuple[Any, Any]:
    """The k largest keys and the ties that they leave out, with those of `_members` beyond them;
    notes queries whose bar was off.
    """
    count, room = keys.shape
    best = _largest(keys, k, lists.reached, 1 << 14)
    if not compiled(keys):
        last, reached = best[:, -1:], lists.reached
        off = (reached < k) | (reached > room) | ~(open_keys(last)[0][:, 0] >= bar)
        lists.off.copy_(off)
        lists.status[0] = off.any()
        cut = ((keys < last) & (keys >> 32 == last >> 32)).sum(dim=1)
        if beyond is not None:
            cut += torch.where(last[:, 0] >> 32 == last_of_same, beyond, 0)
        return best, cut
    cut = torch.empty(count, dtype=torch.int64, device=keys.device)
    kernels.finish_kernel[(count,)](
        *(keys, best, bar, lists.reached, last_of_same, beyond, cut, lists.off, lists.status),
        *(k, room, best.stride(0)),
        BLOCK=1024,
        SOME=beyond is not None,
        num_warps=4,
    )
    return best, cut


# ------------------------------------------------------------------ documents of the same vector


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """Which documents are the same vector, as they once were: compared again at each use.

    All vectors where they are few, else those of many documents.
    """

    first: Any  # (U,) int32 the first document of each vector, ascending
    size: Any  # (U,) how many there are
    start: Any  # (U,) where they stand in
    order: Any  # (N,) int32 documents, those of a vector together and ascending
    vector: Any  # (N,) int32 the number of each document's vector, -1 where it is none of these
    rows: Any  # int32 the documents that are here
    rest: Any  # and those that are not
    longest: Any  # (1,) the length of the longest
    anew: bool  # found a second time, since vectors tied

    @property
    def others(self) -> bool:
        return len(self.rest) > 0

    def room(self, plan: _Plan, k: int) -> int:
        """How many documents of a query there is room for: those of `_members` too."""
        distinct = len(self.first)
        own = distinct + min(distinct * k, k * (k + 1) // 2, 2 * k + 1024)
        return max(plan.room, plan.needed + own) if self.others else own


_SAME: OrderedDict[Any, _Same] = OrderedDict()


def _where(documents: Any) -> Any:
    return (
        *(documents.data_ptr(), documents.shape, documents.stride(0)),
        *(documents.device, documents.dtype),
    )


def _find_same(documents: Any, anew: bool = False) -> _Same | None:
    """The vectors, kept for the next search; None where they are many of few documents each."""
    total = len(documents)
    marks, order = torch.sort(_marks(documents), stable=True)
    fresh = marks[1:] != marks[:-1]
    start = torch.nn.functional.pad(fresh.nonzero().flatten() + 1, (1, 0))
    size = torch.nn.functional.pad(start[1:], (0, 1), value=total) - start
    few = len(start) <= min(DISTINCT, total // 64)
    heavy = size >= (1 if few else max(HEAVY, total // DISTINCT))
    which = torch.nn.functional.pad(fresh.cumsum(dim=0), (1, 0))
    (here,) = heavy.nonzero(as_tuple=True)
    if not len(here):
        return None
    first, by_first = torch.sort(order[start[here]])
    here = here[by_first]
    number = torch.full_like(start, -1, dtype=torch.int32)
    number[here] = torch.arange(len(here), dtype=torch.int32, device=documents.device)
    vector = torch.empty(total, dtype=torch.int32, device=documents.device)
    vector[order] = number[which]
    rows, rest = (some.nonzero().flatten().int() for some in (vector >= 0, vector < 0))
    same = _Same(
        *(first.int(), size[here], start[here], order.int(), vector, rows, rest),
        *(lengths_of(documents[first]).amax(dim=0, keepdim=True), anew),
    )
    status = torch.zeros(1, dtype=torch.int32, device=documents.device)
    _compare(documents, same, status)
    if bool(status):
        return None
    with _LOCK:
        _SAME[_where(documents)] = same
        while len(_SAME) > KEPT:
            _SAME.popitem(last=False)
    return same


@functools.lru_cache(maxsize=16)
def _weights(dimensions: int, device: Any) -> Any:
    drawn = torch.empty(dimensions, dtype=torch.int64)
    return drawn.random_(generator=torch.Generator().manual_seed(1)).to(device)


def _marks(documents: Any) -> Any:
    """(N,) int64 the same for the same vector, wherever it stands: weighted sums of its bits."""
    weights = _weights(documents.shape[1], documents.device)
    if not compiled(documents):
        bits = [(some.float() + 0.0).view(torch.int32) for some in documents.split(STEP)]
        return torch.cat([((some ^ (some >> 16)) * weights).sum(dim=1) for some in bits])
    marks = torch.empty(len(documents), dtype=torch.int64, device=documents.device)
    kernels.marks_kernel[(triton.cdiv(len(documents), 16),)](
        *(documents, weights, marks, *documents.shape, documents.stride(0)),
        ROWS=16,
        WIDE=128,
        num_warps=4,
    )
    return marks


def _compare(documents: Any, same: _Same, status: Any) -> None:
    """status[0] where one of these documents is not its vector, or not finite."""
    rows = same.rows
    if not compiled(documents):
        for some in rows.split(STEP):
            these = documents[some]
            its = documents[same.first[same.vector[some]]]
            if not (torch.equal(these, its) and these.isfinite().all()):
                status[0] = 1
        return
    kernels.compare_kernel[(triton.cdiv(len(rows), 16),)](
        *(documents, rows, same.vector, same.first, status),
        *(len(rows), documents.shape[1], documents.stride(0)),
        ROWS=16,
        WIDE=128,
        num_warps=4,
    )


def _members(k: int, same: _Same, keys: Any, bar: Any, lists: _Lists) -> tuple[_Lists, Any, Any]:
    """Append keys of documents of the best vectors that reach the bar to the keys (Q, room) there
    are, which begin with those of the first document of each; (Q,) the score of the last of these
    vectors, as in keys, and how many of their documents with it are left out.

    Of r documents that are still wanted where several vectors tie, the j-th of these, by its first
    document, has at most r + 1 - j: every vector before it has an earlier one.
    """
    count, room = keys.shape
    distinct = len(same.first)
    summed = keys[:, :distinct]
    best = _largest(summed, min(k, distinct), lists.reached, 2048)
    if compiled(keys):
        last, beyond = torch.empty((2, count), dtype=torch.int64, device=keys.device)
        reached = torch.empty_like(lists.reached)
        block = max(16, triton.next_power_of_2(best.shape[1]))
        tile = max(1, min(128, (1 << 14) // block))
        kernels.members_kernel[(min(8, triton.cdiv(room, tile)), count)](
            *(best, bar, same.vector, same.size, same.start, same.order, lists.reached),
            *(keys, reached, last, beyond, lists.status[3:]),
            *(k, best.shape[1], best.stride(0), distinct, room),
            BLOCK=block,
            TILE=tile,
            num_warps=4,
        )
        return dataclasses.replace(lists, reached=reached), last, beyond
    ordered, which = best >> 32, same.vector[open_keys(best)[1]]
    many = torch.where(open_keys(best)[0] >= bar[:, None], same.size[which], 0)
    needed = (many.cumsum(dim=1) < k).sum(dim=1, keepdim=True).clamp_(max=best.shape[1] - 1)
    last = ordered.gather(1, needed)
    wanted = k - torch.where(ordered > last, many, 0).sum(dim=1, keepdim=True)
    tied = ordered == last
    most = torch.where(tied, wanted + 1 - tied.cumsum(dim=1), torch.where(ordered > last, k, 0))
    taken = torch.minimum(many, most.clamp_(min=0))
    rest = (taken - 1).clamp_(min=0)
    ends = rest.cumsum(dim=1)
    slot = torch.arange(room, device=keys.device).repeat(count, 1) - lists.reached[:, None]
    vector = torch.searchsorted(ends, slot, right=True).clamp_(max=ends.shape[1] - 1)
    place = slot + 1 + (same.start[which] - ends + rest).gather(1, vector)
    rows = same.order[place.clamp_(0, len(same.order) - 1)].long()
    found = (ordered.gather(1, vector) << 32) | (0xFFFFFFFF - rows)
    beyond = torch.where(summed >> 32 == last, same.size - 1, 0).sum(dim=1)
    keys.copy_(torch.where((slot >= 0) & (slot < ends[:, -1:]), found, keys))
    lists.reached.add_(ends[:, -1])
    lists.status[3] = (taken.sum(dim=1) >= 2 * k).any()
    return lists, last[:, 0], beyond - torch.where(tied, rest, 0).sum(dim=1)


def _by_rows(
    queries: Any, documents: Any, k: int, form: str, cells: int, same: _Same
) -> tuple[Any, Any]:
    """`_settled` where many vectors tie: all documents with the scores of their vectors."""
    rows = 0xFFFFFFFF - torch.arange(len(documents), device=queries.device)
    lists = _Lists.of(len(queries), len(same.first), queries.device)
    lists.found.copy_(same.first)
    lists.reached.fill_(len(same.first))
    keys = _rescore(queries, documents, lists, form) >> 32 << 32
    step = max(1, cells // (8 * len(documents)))
    best = torch.cat(
        [torch.topk(some[:, same.vector] | rows, k).values for some in keys.split(step)]
    )
    last = best[:, -1:] >> 32 << 32
    ties = torch.where(keys == last, same.size, 0).sum(dim=1)
    return best, ties - (best >= last).sum(dim=1) + (best > (last | 0xFFFFFFFF)).sum(dim=1)


def _settle(keys: Any, k: int) -> tuple[Any, Any]:
    """The k largest keys in order, and how many others have the score of the last."""
    best = torch.topk(keys, k, dim=1, sorted=True).values
    bar = best[:, -1:] >> 32
    cut = ((keys >> 32) == bar).sum(dim=1) - ((best >> 32) == bar).sum(dim=1)
    return best, cut


def _merge(
    queries: Any, documents: Any, k: int, slack: Slack, form: str, cells: int
) -> tuple[Any, Any]:
    """The slow way: all of a block summed that can win, or simply all where they are few."""
    if compiled(queries) and len(queries) * len(documents) <= ALL:
        every = torch.arange(len(queries) * len(documents), device=queries.device)
        asked, rows = every // len(documents), every % len(documents)
        scores = rounded(pairs(queries, documents, asked, rows), form)
        return _settle(keys_of(scores, rows).view(len(queries), len(documents)), k)

    def offer(first: int, last: int, bar: Any) -> tuple[Any, Any]:
        some, here = documents[first:last], slack.among(slice(first, last))
        low, high = here.bounds(product(queries, some), form)
        return settled(low, high, k, bar, lambda *at: rounded(pairs(queries, some, *at), form))

    step = max(k, cells // (8 * len(queries)))
    return merged(offer, len(queries), len(documents), k, step, queries.device)


def settled(low: Any, high: Any, k: int, bar: Any, score: Any) -> tuple[Any, Any]:
    """Scores (Q, B), exact where they can be among the k best, and where that is."""
    if low.shape[1] >= k:
        bar = torch.maximum(bar, torch.topk(low, k, dim=1).values[:, -1])
    reach = high >= bar[:, None]
    asked, place = (reach & (low != high)).nonzero(as_tuple=True)
    low[asked, place] = score(asked, place)
    return low, reach


def merged(offer: Any, count: int, total: int, k: int, step: int, device: Any) -> tuple[Any, Any]:
    """The k best so far beside each new block: offer(first, last, bar) gives its scores (Q, B),
    and which of them can be among the best.
    """
    best: Any = None
    cut = torch.zeros(count, dtype=torch.int64, device=device)
    for first in range(0, total, step):
        last = min(total, first + step)
        bar = torch.full((count,), -math.inf, device=device)
        if best is not None and best.shape[1] == k:
            bar = open_keys(best[:, -1])[0]
        scores, reach = offer(first, last, bar)
        rows = torch.arange(first, last, device=device)
        keys = torch.where(reach, keys_of(scores, rows), _EMPTY)
        if best is not None:
            keys = torch.cat([best, keys], dim=1)
        fresh, left = _settle(keys, min(k, keys.shape[1]))
        if best is not None and best.shape[1] == k:  # documents left out before may still tie
            left = left + torch.where(fresh[:, -1] >> 32 == best[:, -1] >> 32, cut, 0)
        best, cut = fresh, left
    return best, cut
