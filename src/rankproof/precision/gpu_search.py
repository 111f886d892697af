"""Exact top-k on a GPU: a product finds what can win, and the fixed sum of fixed_sum.py scores it.

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
are summed once instead (gpu_duplicates.py), and the next search of the tensor begins with it: it
compares every such document with its vector again, and searches the others. Without Triton, or
without a GPU, plain torch does the same.
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

from rankproof.precision import gpu_duplicates
from rankproof.precision.fixed_sum import LANES
from rankproof.precision.formats import SHAPES
from rankproof.precision.gpu_duplicates import Same
from rankproof.precision.gpu_scores import (
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
    there,
)
from rankproof.precision.topk import TopK

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
            with there(documents):
                return _search(queries, documents, k, low, cells)
        except torch.cuda.OutOfMemoryError:
            cells //= 2
            if cells < 1 << 16:
                raise
            forget()
            torch.cuda.empty_cache()
            warnings.warn(
                f"out of GPU memory: going on with blocks of {cells:,} scores", stacklevel=2
            )


def forget() -> None:
    """Drop what searches keep for the next one: their recordings, and which documents are equal."""
    _GRAPHS.clear()
    gpu_duplicates.forget()


def _edge(bar: Any, form: str) -> Any:
    """(Q,) what a sum has to reach for its score, rounded to the format, to reach the bar."""
    if form == "float32":
        return bar
    bits, _, least, most, _ = SHAPES[form]
    below = bar - bar.abs() * 2.0 ** (1 - bits) - least
    return torch.where(bar > most, most, below).float()


# ------------------------------------------------------------------------------------- the search


@dataclass(frozen=True, slots=True)
class _Task:
    """What is asked: the k best of the documents for each of the queries."""

    queries: Any  # (Q, D)
    documents: Any  # (N, D)
    k: int
    form: str  # that scores are rounded to
    cells: int  # scores made at a time
    lengths: Any = None  # (N,) of the documents, where they are known

    def of(self, queries: Any) -> _Task:
        """The same for some of the queries."""
        return dataclasses.replace(self, queries=self.queries[queries])


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
    task = _Task(queries, documents, k, form, cells, lengths)
    parts = range(0, len(queries), MANY)
    found = [_some(task.of(slice(first, first + MANY))) for first in parts]
    if len(found) == 1:
        return found[0]
    return torch.cat([keys for keys, _ in found]), torch.cat([cut for _, cut in found])


def _some(task: _Task) -> tuple[Any, Any]:
    queries, documents, k = task.queries, task.documents, task.k
    count, total = len(queries), len(documents)
    plan = _Plan.of(count, total, k)
    if plan is None:
        slack = Slack.of(queries, lengths_of(queries), lengths_of(documents))
        finite(queries, slack.asked, "queries")
        finite(documents, slack.lengths, "documents")
        return _merge(task, slack)
    where = gpu_duplicates.where(documents)
    how = (count, k, task.form, task.cells, task.lengths is None)
    same = gpu_duplicates.known(documents)
    doubtful = count * total >= LARGE and plan.sample and not _GRAPHS.get((where, how, plan, None))
    if same is None and doubtful and 2 * total > _variety(queries, documents)[0] * plan.room:
        same = gpu_duplicates.look(documents)
    work = count * total * (32 if plan.sample == 0 else 1)
    if not compiled(queries) or (work > REPLAYED and (same is None or same.others)):
        return _settled(task, plan, same, _stage(task, plan, same))
    with _LOCK:  # what is replayed uses the same memory each time
        made = _replay((where, how, plan, same), task, plan, same)
        # Copied before anyone waits for the GPU.
        made = dataclasses.replace(made, best=made.best.clone(), cut=made.cut.clone())
        return _settled(task, plan, same, made)


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

    def beside(self, same: Same | None, k: int) -> int:
        """The room where those documents are summed by their vectors."""
        if same is None:
            return self.room
        own = same.room(k)
        return max(self.room, self.needed + own) if same.others else own


@dataclass(frozen=True, slots=True)
class _Made:
    """What one try gives, before anyone has looked whether its bar was off."""

    slack: Slack
    bar: Any
    lists: _Lists
    best: Any
    cut: Any


def _stage(task: _Task, plan: _Plan, same: Same | None) -> _Made:
    queries, documents, k, form = task.queries, task.documents, task.k, task.form
    count = len(queries)
    groups = GROUPS if not plan.sample and _glances(queries) else 0
    lists = _Lists.of(count, plan.beside(same, k), queries.device, groups)
    if same is not None:
        lists.found[:, : len(same.first)] = same.first
        lists.reached.fill_(len(same.first))
        gpu_duplicates.compare(documents, same, lists.status[4:])
    if same is not None and not same.others:
        slack = Slack.of(queries, lengths_of(queries, lists.status[2:]), lengths_of(documents[:0]))
        bar = torch.full((count,), -math.inf, dtype=torch.float32, device=queries.device)
    elif plan.sample:
        lengths = task.lengths
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
        _sift(task, _edge(bar, form), slack, lists)
    else:
        rows = None if same is None else same.rest
        scores, slack, bar = _survey(task, lists, rows)
        bar = rounded(bar, form)
        _collect(scores, _edge(bar, form), slack, lists, rows=rows)
    keys = _rescore(task, lists)
    last = beyond = None
    if same is not None:
        distinct = len(same.first)
        vectors = _largest(keys[:, :distinct], min(k, distinct), lists.reached, 2048)
        reached, last, beyond = gpu_duplicates.members(
            same, vectors, k, bar, keys, lists.reached, lists.status[3:]
        )
        lists = dataclasses.replace(lists, reached=reached)
    best, cut = _finish(keys, bar, k, lists, last, beyond)
    return _Made(slack, bar, lists, best, cut)


_LOCK = threading.RLock()  # documents that tie are searched once more inside
_GRAPHS: OrderedDict[Any, Any] = OrderedDict()


def _replay(key: Any, task: _Task, plan: _Plan, same: Same | None) -> _Made:
    """`_stage`, recorded when the same documents are searched a second time.

    To launch its kernels one by one takes longer than they run where there is little to do. What
    is recorded reads the documents anew each time.
    """
    kept = _GRAPHS.pop(key, None)
    if kept is None:
        made = _stage(task, plan, same)
        kept = ()
    elif not kept:
        known = None if task.lengths is None else task.lengths.clone()
        asked = dataclasses.replace(task, queries=task.queries.clone(), lengths=known)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            made = _stage(asked, plan, same)
        kept = asked, graph, made
    if kept:
        asked, graph, made = kept
        asked.queries.copy_(task.queries)
        if asked.lengths is not None:
            asked.lengths.copy_(task.lengths)
        graph.replay()
    _GRAPHS[key] = kept
    while len(_GRAPHS) > KEPT:
        _GRAPHS.popitem(last=False)
    return made


def _settled(task: _Task, plan: _Plan, same: Same | None, made: _Made) -> tuple[Any, Any]:
    """The best of what was found, and another way where the bar was off. Refuses what is not
    finite.
    """
    queries, documents = task.queries, task.documents
    off, document, query, ties, other = made.lists.status.tolist()
    if query:
        finite(queries, made.slack.asked, "queries")
    if document:
        finite(documents, lengths_of(documents), "documents")
    task = dataclasses.replace(task, lengths=None)
    if other:  # documents are no longer those vectors
        gpu_duplicates.forget(documents)
        return _some(task)
    if (ties or off) and same is not None and not same.anew:
        # Other documents than those, whose vectors may be one.
        gpu_duplicates.look(documents, anew=True)
    if off:
        left = made.lists.off.nonzero().flatten()
        if same is None:
            _again(task, made, left)
        elif same.others:
            some = task.of(left)
            made.best[left], made.cut[left] = _settled(some, plan, None, _stage(some, plan, None))
        else:
            made.best[left], made.cut[left] = _by_rows(task.of(left), same)
    return made.best, made.cut


def _by_rows(task: _Task, same: Same) -> tuple[Any, Any]:
    """`_settled` where many vectors tie: all documents with the scores of their vectors."""
    lists = _Lists.of(len(task.queries), len(same.first), task.queries.device)
    lists.found.copy_(same.first)
    lists.reached.fill_(len(same.first))
    step = max(1, task.cells // (8 * len(task.documents)))
    return gpu_duplicates.spread(same, _rescore(task, lists), task.k, step)


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


def _again(task: _Task, made: _Made, left: Any) -> None:
    """Queries whose bar was off: with as much room as they need, or the slow way."""
    best, cut, documents = made.best, made.cut, task.documents
    if gpu_duplicates.known(documents) is None:  # or that was of no help
        distinct, looked_at = _variety(task.queries[left], documents)
        if 512 * (looked_at - distinct) >= looked_at and gpu_duplicates.look(documents) is not None:
            best[left], cut[left] = _some(task.of(left))
            return
    seen = made.lists.reached[left].tolist()
    step = max(1, 4 * CROWD // max(seen))
    for first in range(0, len(left), step):
        some, room = left[first : first + step], max(seen[first : first + step])
        part, here, bars = task.of(some), made.slack[some], made.bar[some]
        wrong = torch.ones_like(some)
        if task.k <= room <= 4 * CROWD:
            more = _Lists.of(len(some), room, some.device)
            _sift(part, _edge(bars, task.form), here, more, dense=True)
            best[some], cut[some] = _finish(_rescore(part, more), bars, task.k, more)
            wrong = more.off
        still = wrong.nonzero().flatten()
        if len(still):
            best[some[still]], cut[some[still]] = _merge(part.of(still), here[still])


@functools.lru_cache(maxsize=16)
def _sampled(total: int, size: int, device: Any) -> Any:
    """Row numbers, one at random from each stretch, so that no order of the documents matters."""
    generator = torch.Generator("cpu").manual_seed(0)
    where = torch.arange(size, dtype=torch.float64, device="cpu") + torch.rand(
        size, generator=generator, dtype=torch.float64, device="cpu"
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
    same: Same | None = None,
    numbers: bool = False,
) -> Any:
    """(Q,) nearly the `place`-th largest best of groups, or that very one; no more.

    If it is the product of one of `same`, no more than its fixed sum either, or none would reach
    it.
    """
    count = len(best)
    if place > groups:
        return torch.full((count,), -math.inf, dtype=torch.float32, device=best.device)
    if not compiled(best):
        best = best.view(count, shared, groups).amax(dim=1)
        bar = torch.topk(best, place, dim=1).values[:, -1].contiguous()
        if same is not None:
            factor, extra, longest = dataclasses.replace(slack, lengths=same.longest).reaches()
            bar = (bar - (factor * longest + extra)[:, 0]).float()
        return bar
    bar = torch.empty(count, dtype=torch.float32, device=best.device)
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


def _survey(task: _Task, lists: _Lists, rows: Any) -> tuple[Any, Slack, Any]:
    """Scores (Q, N) of the documents, or of some rows, their slack, and the bar: the k-th best of
    groups of them.
    """
    queries, documents, k = task.queries, task.documents, task.k
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
    size = count * total + total + count
    held: Any = torch.empty(size, dtype=torch.float32, device=queries.device)
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
    best = torch.empty((count, groups), dtype=torch.float32, device=queries.device)
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


def _sift(task: _Task, edge: Any, slack: Slack, lists: _Lists, dense: bool = False) -> None:
    """Append what can reach the edge to the list of each query, in any order; `dense` where there
    is room for so many of the documents that single bits would cost more than their scores.
    """
    queries, documents = task.queries, task.documents
    count, total = len(queries), len(documents)
    dense = dense and 32 * lists.found.shape[1] > total
    if dense or not _fusable(queries, documents):
        step = max(1024, task.cells // count)
        for first in range(0, total, step):
            some = slice(first, first + step)
            scores = product(queries, documents[some])
            _collect(scores, edge, slack.among(some), lists, first)
        return
    words = triton.cdiv(count, 32)
    step = max(1 << 14, task.cells // words)
    marks = torch.empty((min(step, total), words), dtype=torch.int32, device=queries.device)
    for first in range(0, total, step):
        some = documents[first : first + step]
        _mark(queries, some, edge, slack.among(slice(first, None)), marks)
        size = len(some) * words
        kernels.gather_kernel[(triton.cdiv(size, _GATHER[0]),)](
            *(marks, lists.found, lists.reached),
            *(first, size, words, lists.found.shape[1]),
            BLOCK=_GATHER[0],
            num_warps=_GATHER[1],
        )


def _mark(queries: Any, documents: Any, edge: Any, slack: Slack, marks: Any) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    full = queries.dtype == torch.float32
    rows, tile, wide, warps, stages = _TILES[full]
    tile = min(tile, max(32, triton.next_power_of_2(len(queries))))
    grid = triton.cdiv(len(documents), rows) * triton.cdiv(len(queries), tile)
    kernels.sift_kernel[(grid,)](
        TensorDescriptor.from_tensor(documents, [rows, wide]),
        TensorDescriptor.from_tensor(queries, [tile, wide]),
        *(slack.lengths, slack.asked, edge, marks),
        *(len(queries), len(documents), queries.shape[1], marks.shape[1]),
        *slack.numbers,
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


def _rescore(task: _Task, lists: _Lists) -> Any:
    """(Q, room) keys of the fixed sums of what was found; the smallest where nothing was."""
    queries, documents, form = task.queries, task.documents, task.form
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
    """The k largest keys and the ties that they leave out, with what `gpu_duplicates.members` has
    beyond them; notes queries whose bar was off.
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


def _settle(keys: Any, k: int) -> tuple[Any, Any]:
    """The k largest keys in order, and how many others have the score of the last."""
    best = torch.topk(keys, k, dim=1, sorted=True).values
    bar = best[:, -1:] >> 32
    cut = ((keys >> 32) == bar).sum(dim=1) - ((best >> 32) == bar).sum(dim=1)
    return best, cut


def _merge(task: _Task, slack: Slack) -> tuple[Any, Any]:
    """The slow way: all of a block summed that can win, or simply all where they are few."""
    queries, documents, k, form = task.queries, task.documents, task.k, task.form
    if compiled(queries) and len(queries) * len(documents) <= ALL:
        every = torch.arange(len(queries) * len(documents), device=queries.device)
        asked, rows = every // len(documents), every % len(documents)
        scores = rounded(pairs(queries, documents, asked, rows), form)
        return _settle(keys_of(scores, rows).view(len(queries), len(documents)), k)

    def offer(first: int, last: int, bar: Any) -> tuple[Any, Any]:
        some, here = documents[first:last], slack.among(slice(first, last))
        low, high = here.bounds(product(queries, some), form)
        return settled(low, high, k, bar, lambda *at: rounded(pairs(queries, some, *at), form))

    step = max(k, task.cells // (8 * len(queries)))
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
        bar = torch.full((count,), -math.inf, dtype=torch.float32, device=device)
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
