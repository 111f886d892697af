"""Exact top-k on a GPU: a product selects what can win, and the fixed sum scores it.

Sorting every score would cost more than the product that makes them. Instead each query gets a
bar that a little more than k documents reach:

    up to 64 queries    one pass over the documents writes scores, lengths and the best of each of
                        some thousand groups; the k-th best group is the bar, and never too high
    more                a sample of the documents sets it; the product then compares its scores
                        with it and keeps one bit of each, or a block of scores is made and read

Documents that can reach the bar are summed again in float64, lane by lane as on the CPU
(fixed_sum.py), and sorted as 64-bit keys (score above document number). Whether k of them do reach
it, and whether there was room for all, is checked, so that the result is exact for any data;
otherwise that query is searched again with more room, or exhaustively. Where too many documents tie
since they are the same vector, such vectors are summed once instead (gpu_duplicates.py), and the
next search of the same tensor begins with that: it compares every such document with its vector
again, and searches the others. Without Triton, or without a GPU, plain torch does the same.
"""

from __future__ import annotations

import functools
import math
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from rankproof.precision import gpu_duplicates
from rankproof.precision.fixed_sum import LANES
from rankproof.precision.formats import SHAPES
from rankproof.precision.gpu_duplicates import DuplicateVectors
from rankproof.precision.gpu_scores import (
    BLOCK_CELLS,
    Slack,
    check_finite,
    compiled,
    kernels,
    keys_of,
    lengths_of,
    name_of,
    on_device_of,
    open_keys,
    pairs,
    product,
    rounded,
)
from rankproof.precision.topk import TopK

if kernels is not None:
    import triton

FEW = 64  # queries up to which one pass over the documents is what a search costs
MANY = 4096  # queries searched together
GROUPS = 132 * 32  # of documents, whose best set the bar of few queries
SAMPLE = 1 << 14, 1 << 16  # documents that set the bar of many, at least and at most; one in 32
LARGE = 1 << 29  # scores from which on it is worth asking whether most documents are equal
SHARED = 8  # sampled documents of which only the best is looked at
REPLAYED = 1 << 30  # scores up to which kernels are recorded
KEPT = 3  # recordings
COUNTED = 128  # queries below which counting larger keys is the fastest way to sort them
ALL = 1 << 20  # scores up to which summing all is less work than selecting
CROWD = 1 << 22  # documents to sum at a time where there was no room for them
_EMPTY = torch.iinfo(torch.int64).min


def top_k(queries: Any, documents: Any, k: int, *, low: bool = False) -> TopK:
    """Return the k best documents of each query by product; see `keys_of_best`."""
    return as_arrays(*keys_of_best(queries, documents, k, low=low))


def as_arrays(keys: Any, cut: Any) -> TopK:
    """Return keys as arrays on the CPU."""
    scores, rows = open_keys(keys)
    return TopK(scores.cpu().numpy(), rows.cpu().numpy(), cut.cpu().numpy())


def keys_of_best(queries: Any, documents: Any, k: int, *, low: bool = False) -> tuple[Any, Any]:
    """Return keys (Q, k) from best to worst, and the documents outside that tie with the last (Q,).

    `low` rounds each score to the format of the operands, as scoring wholly in it does. Numbers
    that are not finite are refused. If memory runs out, blocks are halved, with a warning.
    """
    cells = BLOCK_CELLS
    while True:
        try:
            with on_device_of(documents):
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
    """Drop what is kept for the next search: recorded kernels, and which documents are equal."""
    _GRAPHS.clear()
    gpu_duplicates.forget()


def _unrounded_bar(bar: Any, form: str) -> Any:
    """Return what a sum (Q,) must reach so that its rounded score reaches the bar."""
    if form == "float32":
        return bar
    shape = SHAPES[form]
    below = bar - bar.abs() * 2.0 ** (1 - shape.significand_bits) - shape.smallest
    return torch.where(bar > shape.largest, shape.largest, below).float()


# ------------------------------------------------------------------------------------- the search


@dataclass(frozen=True, slots=True)
class _Task:
    """A search: the k best of the documents for each of the queries."""

    queries: Any  # (Q, D)
    documents: Any  # (N, D)
    k: int
    form: str  # that scores are rounded to
    cells: int  # scores made at a time
    lengths: Any = None  # (N,) of the documents, where they are known

    def of(self, queries: Any) -> _Task:
        """Return the same search for some of the queries."""
        return replace(self, queries=self.queries[queries])


def _search(queries: Any, documents: Any, k: int, low: bool, cells: int) -> tuple[Any, Any]:
    """Return `keys_of_best`, searching at most MANY queries together."""
    k = min(k, len(documents))
    form = name_of(queries.dtype) if low else "float32"
    if queries.stride(1) != 1 or documents.stride(1) != 1:
        queries, documents = queries.contiguous(), documents.contiguous()
    if not len(queries) or not k:
        keys = torch.empty((len(queries), k), dtype=torch.int64, device=queries.device)
        return keys, torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    lengths = None
    if len(queries) > MANY:
        lengths = lengths_of(documents)  # once for all parts
        check_finite(queries, lengths_of(queries), "queries")  # with row numbers of the whole
    task = _Task(queries, documents, k, form, cells, lengths)
    parts = range(0, len(queries), MANY)
    results = [_search_part(task.of(slice(first, first + MANY))) for first in parts]
    if len(results) == 1:
        return results[0]
    return torch.cat([keys for keys, _ in results]), torch.cat([cut for _, cut in results])


def _search_part(task: _Task) -> tuple[Any, Any]:
    """Return `keys_of_best` of queries that are searched together."""
    queries, documents, k = task.queries, task.documents, task.k
    count, total = len(queries), len(documents)
    plan = _Plan.of(count, total, k)
    if plan is None:
        slack = Slack.of(queries, lengths_of(queries), lengths_of(documents))
        check_finite(queries, slack.query_lengths, "queries")
        check_finite(documents, slack.document_lengths, "documents")
        return _search_exhaustively(task, slack)
    tensor = gpu_duplicates.tensor_key(documents)
    conditions = (count, k, task.form, task.cells, task.lengths is None)
    duplicates = gpu_duplicates.known_duplicates(documents)
    is_first_search = not _GRAPHS.get((tensor, conditions, plan, None))
    if duplicates is None and count * total >= LARGE and plan.sample and is_first_search:
        distinct, _ = _count_distinct(queries, documents)
        if 2 * total > distinct * plan.room:
            duplicates = gpu_duplicates.find_duplicates(documents)
    work = count * total * (32 if plan.sample == 0 else 1)
    is_large = work > REPLAYED and (duplicates is None or duplicates.has_others)
    if not compiled(queries) or is_large:
        return _verified(task, plan, duplicates, _stage(task, plan, duplicates))
    with _LOCK:  # a replay uses the same memory each time
        attempt = _replay((tensor, conditions, plan, duplicates), task, plan, duplicates)
        # Copied before the CPU waits for the GPU.
        attempt = replace(attempt, best=attempt.best.clone(), cut=attempt.cut.clone())
        return _verified(task, plan, duplicates, attempt)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the bar is set, and how many documents of a query there is room for."""

    sample: int  # documents looked at first; 0 where groups of all documents set the bar
    place: int  # the bar is their score of this place
    needed: int  # documents expected to reach the bar, with a margin
    room: int  # at least `needed`

    @classmethod
    def of(cls, count: int, total: int, k: int) -> _Plan | None:
        """Return the plan for so many queries and documents; None if a bar saves no work."""
        if count <= FEW and (total <= GROUPS // 4 or 4 * k <= GROUPS):
            room = min(total, 4 * k + 2048)
            return cls(sample=0, place=k, needed=room, room=room)
        least, most = SAMPLE
        size = min(max(total // 32, least), most) // SHARED * SHARED
        mean = k * size / total
        place = math.ceil(mean + 5 * mean**0.5 + 4)
        needed = math.ceil(1.25 * total / size * (place + 5 * place**0.5 + 5))
        room = max(needed, min(2048, total // 8))  # or a thousand copies of one document fill it
        if 2 * place * SHARED > size or 2 * room > total:
            return None
        return cls(size, place, needed, room)

    def room_with(self, duplicates: DuplicateVectors | None, k: int) -> int:
        """Return the room where duplicates are summed once per vector."""
        if duplicates is None:
            return self.room
        own = duplicates.room(k)
        return max(self.room, self.needed + own) if duplicates.has_others else own


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The result of one try, before it is known whether its bar was right."""

    slack: Slack
    bar: Any
    lists: _Lists
    best: Any
    cut: Any


def _stage(task: _Task, plan: _Plan, duplicates: DuplicateVectors | None) -> _Attempt:
    """Set the bars, collect the documents that can reach them, and score these."""
    queries, documents, k = task.queries, task.documents, task.k
    groups = GROUPS if not plan.sample and _skips_tensor_cores(queries) else 0
    lists = _Lists.of(len(queries), plan.room_with(duplicates, k), queries.device, groups)
    if duplicates is not None:
        lists.candidates[:, : len(duplicates.first)] = duplicates.first
        lists.counts.fill_(len(duplicates.first))
        gpu_duplicates.check_duplicates(documents, duplicates, lists.status[4:])
    if duplicates is not None and not duplicates.has_others:
        no_lengths = lengths_of(documents[:0])
        slack = Slack.of(queries, lengths_of(queries, lists.status[2:]), no_lengths)
        bar = torch.full((len(queries),), -math.inf, dtype=torch.float32, device=queries.device)
    elif plan.sample:
        slack, bar = _bar_by_sample(task, plan, lists, duplicates)
        _sift(task, _unrounded_bar(bar, task.form), slack, lists)
    else:
        rows = None if duplicates is None else duplicates.other_rows
        scores, slack, bar = _survey(task, lists, rows)
        bar = rounded(bar, task.form)
        _collect(scores, _unrounded_bar(bar, task.form), slack, lists, rows=rows)
    keys = _rescore(task, lists)
    last = left_out = None
    if duplicates is not None:
        distinct = len(duplicates.first)
        vectors = _largest(keys[:, :distinct], min(k, distinct), lists.counts, 2048)
        counts, last, left_out = gpu_duplicates.append_members(
            duplicates, vectors, k, bar, keys, lists.counts, lists.status[3:]
        )
        lists = replace(lists, counts=counts)
    best, cut = _finish(keys, bar, k, lists, last, left_out)
    return _Attempt(slack, bar, lists, best, cut)


def _bar_by_sample(
    task: _Task, plan: _Plan, lists: _Lists, duplicates: DuplicateVectors | None
) -> tuple[Slack, Any]:
    """Return the slack of all documents, and the bar (Q,) that a sample of them sets."""
    queries, documents, lengths = task.queries, task.documents, task.lengths
    if lengths is None:
        known = None if duplicates is None else duplicates.vector
        lengths = lengths_of(documents, lists.status[1:], known=known)
    else:
        lists.status[1] = ~torch.isfinite(lengths).all()
        if duplicates is not None:
            lengths = torch.where(duplicates.vector < 0, lengths, -math.inf)
    slack = Slack.of(queries, lengths_of(queries, lists.status[2:]), lengths)
    chosen = _sampled(len(documents), plan.sample, documents.device)
    scores = product(queries, documents[chosen])
    # Neighbors in the sample are neighbors in the documents: they are shared out over groups.
    groups = plan.sample // SHARED
    bar = _bar_of_groups(scores, groups, plan.place, SHARED, slack=slack, duplicates=duplicates)
    return slack, rounded(bar, task.form)


_LOCK = threading.RLock()  # reentrant: documents that tie are searched once more inside
_GRAPHS: OrderedDict[Any, Any] = OrderedDict()


def _replay(key: Any, task: _Task, plan: _Plan, duplicates: DuplicateVectors | None) -> _Attempt:
    """Return `_stage`, recorded when the same documents are searched a second time.

    Launching its kernels one by one takes longer than they run where there is little to do. The
    recording reads the documents again each time.
    """
    recording = _GRAPHS.pop(key, None)
    if recording is None:
        attempt = _stage(task, plan, duplicates)
        recording = ()
    elif not recording:
        lengths = None if task.lengths is None else task.lengths.clone()
        recorded_task = replace(task, queries=task.queries.clone(), lengths=lengths)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            attempt = _stage(recorded_task, plan, duplicates)
        recording = recorded_task, graph, attempt
    if recording:
        recorded_task, graph, attempt = recording
        recorded_task.queries.copy_(task.queries)
        if recorded_task.lengths is not None:
            recorded_task.lengths.copy_(task.lengths)
        graph.replay()
    _GRAPHS[key] = recording
    while len(_GRAPHS) > KEPT:
        _GRAPHS.popitem(last=False)
    return attempt


def _verified(
    task: _Task, plan: _Plan, duplicates: DuplicateVectors | None, attempt: _Attempt
) -> tuple[Any, Any]:
    """Return the keys and ties of an attempt; search again the queries whose bar was wrong.

    Refuses vectors that are not finite.
    """
    queries, documents = task.queries, task.documents
    any_failed, bad_document, bad_query, many_ties, changed = attempt.lists.status.tolist()
    if bad_query:
        check_finite(queries, attempt.slack.query_lengths, "queries")
    if bad_document:
        check_finite(documents, lengths_of(documents), "documents")
    task = replace(task, lengths=None)
    if changed:  # documents are no longer the vectors that they were
        gpu_duplicates.forget(documents)
        return _search_part(task)
    if (many_ties or any_failed) and duplicates is not None and not duplicates.is_repeated:
        # The documents that tie may be copies of vectors not covered so far.
        gpu_duplicates.find_duplicates(documents, is_repeated=True)
    if any_failed:
        failed = attempt.lists.failed.nonzero().flatten()
        if duplicates is None:
            _retry(task, attempt, failed)
        else:
            part = task.of(failed)
            if duplicates.has_others:
                keys, cut = _verified(part, plan, None, _stage(part, plan, None))
            else:
                keys, cut = _rank_by_vectors(part, duplicates)
            attempt.best[failed], attempt.cut[failed] = keys, cut
    return attempt.best, attempt.cut


def _rank_by_vectors(task: _Task, duplicates: DuplicateVectors) -> tuple[Any, Any]:
    """Return `_verified` where many vectors tie: all documents with the scores of their vectors."""
    lists = _Lists.of(len(task.queries), len(duplicates.first), task.queries.device)
    lists.candidates.copy_(duplicates.first)
    lists.counts.fill_(len(duplicates.first))
    step = max(1, task.cells // (8 * len(task.documents)))
    return gpu_duplicates.rank_all_documents(duplicates, _rescore(task, lists), task.k, step)


@dataclass(frozen=True, slots=True)
class _Lists:
    """The candidates of each query; few allocations, since each costs a small search dear."""

    status: Any  # (5,) flags, named in `_verified`
    counts: Any  # (Q,) int32 documents that can reach the bar, also beyond the room
    failed: Any  # (Q,) int32 whether the bar was wrong or the room too small
    candidates: Any  # (Q, room) int32 documents
    best: Any  # (Q · groups,) zeros, for the best of each group

    @classmethod
    def of(cls, count: int, room: int, device: Any, groups: int = 0) -> _Lists:
        """Return empty lists for so many queries."""
        zeros: Any = torch.zeros(5 + count * (2 + groups), dtype=torch.int32, device=device)
        best, status, counts, failed = zeros.split([count * groups, 5, count, count])
        candidates = torch.empty((count, room), dtype=torch.int32, device=device)
        return cls(status, counts, failed, candidates, best)


def _retry(task: _Task, attempt: _Attempt, failed: Any) -> None:
    """Search failed queries again, with as much room as they need or exhaustively."""
    best, cut, documents = attempt.best, attempt.cut, task.documents
    if gpu_duplicates.known_duplicates(documents) is None:
        distinct, sampled = _count_distinct(task.queries[failed], documents)
        has_copies = 512 * (sampled - distinct) >= sampled
        if has_copies and gpu_duplicates.find_duplicates(documents) is not None:
            best[failed], cut[failed] = _search_part(task.of(failed))
            return
    counts = attempt.lists.counts[failed].tolist()
    step = max(1, 4 * CROWD // max(counts))
    for first in range(0, len(failed), step):
        queries, room = failed[first : first + step], max(counts[first : first + step])
        part, slack, bars = task.of(queries), attempt.slack[queries], attempt.bar[queries]
        still_failed = torch.ones_like(queries)
        if task.k <= room <= 4 * CROWD:
            lists = _Lists.of(len(queries), room, queries.device)
            _sift(part, _unrounded_bar(bars, task.form), slack, lists, dense=True)
            best[queries], cut[queries] = _finish(_rescore(part, lists), bars, task.k, lists)
            still_failed = lists.failed
        places = still_failed.nonzero().flatten()
        if len(places):
            keys, ties = _search_exhaustively(part.of(places), slack[places])
            best[queries[places]], cut[queries[places]] = keys, ties


# ---------------------------------------------------------------------------------------- the bar


@functools.lru_cache(maxsize=16)
def _sampled(total: int, size: int, device: Any) -> Any:
    """Return row numbers, a random one from each stretch, so that no order of documents matters."""
    generator = torch.Generator("cpu").manual_seed(0)
    places = torch.arange(size, dtype=torch.float64, device="cpu") + torch.rand(
        size, generator=generator, dtype=torch.float64, device="cpu"
    )
    return (places * (total / size)).long().clamp(max=total - 1).to(device)


def _count_distinct(queries: Any, documents: Any) -> tuple[int, int]:
    """Return how many different scores a sample of the documents has, and the sample's size."""
    total = len(documents)
    sample = documents[_sampled(total, min(total, SAMPLE[0]), documents.device)]
    scores = torch.sort(product(queries[:1], sample)[0]).values
    return int((scores[1:] != scores[:-1]).sum()) + 1, len(scores)


def _bar_of_groups(
    best: Any,
    groups: int,
    place: int,
    shared: int = 1,
    *,
    slack: Slack,
    duplicates: DuplicateVectors | None = None,
    are_ordered: bool = False,
) -> Any:
    """Return bars (Q,): about the `place`-th largest of the best of each group, and no more.

    `best` (Q, shared · groups) are scores, or their ordered integers (`are_ordered`). If the bar
    may be the product of a duplicate vector, it is lowered to at most that vector's fixed sum: else
    none of its documents might reach it.
    """
    count = len(best)
    if place > groups:
        return torch.full((count,), -math.inf, dtype=torch.float32, device=best.device)
    if not compiled(best):
        best = best.view(count, shared, groups).amax(dim=1)
        bar = torch.topk(best, place, dim=1).values[:, -1].contiguous()
        if duplicates is not None:
            factor, extra, longest = replace(slack, document_lengths=duplicates.longest).terms()
            bar = (bar - (factor * longest + extra)[:, 0]).float()
        return bar
    bar = torch.empty(count, dtype=torch.float32, device=best.device)
    kernels.bar_kernel[(count,)](
        best,
        bar,
        slack.query_lengths,
        None if duplicates is None else duplicates.longest,
        groups,
        best.stride(0),
        place,
        *slack.constants,
        SHARED=shared,
        BLOCK=triton.next_power_of_2(groups),
        ARE_ORDERED=are_ordered,
        HAS_LONGEST=duplicates is not None,
        num_warps=8,
    )
    return bar


def _skips_tensor_cores(queries: Any) -> bool:
    """True if a pass without tensor cores is the faster one."""
    return compiled(queries) and len(queries) <= 2 and queries.dtype == torch.float32


def _survey(task: _Task, lists: _Lists, rows: Any) -> tuple[Any, Slack, Any]:
    """Return scores (Q, N) of the documents, or of some rows, their slack and the bar (Q,).

    The bar is the k-th best of groups of documents.
    """
    queries, documents = task.queries, task.documents
    if not compiled(queries):
        return _survey_in_torch(task, lists.status[1:], rows)
    count, total = len(queries), len(documents if rows is None else rows)
    memory: Any = torch.empty(
        count * total + total + count, dtype=torch.float32, device=queries.device
    )
    scores, lengths, query_lengths = memory.split([count * total, total, count])
    scores = scores.view(count, total)
    slack = Slack.of(queries, query_lengths, lengths)
    tensors = (queries, documents, query_lengths, scores, lengths)
    shape = (count, total, queries.shape[1], queries.stride(0), documents.stride(0))
    survey = _survey_without_tensor_cores if _skips_tensor_cores(queries) else _survey_in_tiles
    return scores, slack, survey(task, lists, rows, tensors, shape, slack)


def _survey_in_torch(task: _Task, status: Any, rows: Any) -> tuple[Any, Slack, Any]:
    """Return `_survey` by plain torch."""
    queries, documents = task.queries, task.documents
    documents = documents if rows is None else documents[rows]
    total = len(documents)
    lengths = lengths_of(documents, status)
    slack = Slack.of(queries, lengths_of(queries, status[1:]), lengths)
    scores = product(queries, documents)
    factor, extra, lengths = slack.terms()
    low = (scores - (factor * lengths + extra)).float()
    low = low - low.abs() * 2.0**-22
    low = torch.where(low.isnan(), -math.inf, low)
    groups = min(GROUPS, total)
    low = torch.nn.functional.pad(low, (0, -total % groups), value=-math.inf)
    bar = _bar_of_groups(low, groups, task.k, low.shape[1] // groups, slack=slack)
    return scores, slack, bar


def _survey_without_tensor_cores(
    task: _Task, lists: _Lists, rows: Any, tensors: Any, shape: Any, slack: Slack
) -> Any:
    """Write scores and lengths for a query or two, and return the bar (Q,)."""
    count, total = len(task.queries), shape[1]
    lengths_of(task.queries, lists.status[2:], slack.query_lengths)
    best = lists.best.view(count, GROUPS)
    kernels.glance_kernel[(triton.cdiv(total, 16),)](
        *tensors,
        best,
        lists.status[1:],
        rows,
        *shape,
        GROUPS,
        *slack.constants,
        ROWS=16,
        QUERIES=count,
        WIDE=64,
        HAS_ROWS=rows is not None,
        num_warps=1,
    )
    return _bar_of_groups(best, GROUPS, task.k, slack=slack, are_ordered=True)


def _survey_in_tiles(
    task: _Task, lists: _Lists, rows: Any, tensors: Any, shape: Any, slack: Slack
) -> Any:
    """Write scores and lengths on tensor cores, and return the bar (Q,)."""
    queries = task.queries
    count, total, dimensions = shape[:3]
    is_float32 = queries.dtype == torch.float32
    is_short = dimensions <= 128 and count <= 16  # little work between two reads: more at a time
    tile, wide, fold = 128, 32 if is_float32 or is_short else 64, 8 if is_short else 4
    programs = min(528 if is_short else 264, triton.cdiv(total, tile))
    groups = programs * tile // fold
    best = torch.empty((count, groups), dtype=torch.float32, device=queries.device)
    kernels.survey_kernel[(programs,)](
        *tensors,
        best,
        lists.status[1:],
        rows,
        *shape,
        groups,
        *slack.constants,
        ROWS=tile,
        QUERIES=max(16, triton.next_power_of_2(count)),
        WIDE=wide,
        HAS_ROWS=rows is not None,
        EVEN=dimensions % wide == 0,
        FOLD=fold,
        PRECISION="tf32x3" if is_float32 else "ieee",
        num_warps=4,
        num_stages=4,
    )
    return _bar_of_groups(best, groups, task.k, slack=slack)


# ---------------------------------------------------------------------------- what reaches the bar


def _sift(task: _Task, bar: Any, slack: Slack, lists: _Lists, dense: bool = False) -> None:
    """Append the documents that can reach the bar to each query's list, in any order.

    `dense` where so many of them are expected that single bits would cost more than their scores.
    """
    queries, documents = task.queries, task.documents
    count, total, room = len(queries), len(documents), lists.candidates.shape[1]
    dense = dense and 32 * room > total
    if dense or not _fusable(queries, documents):
        step = max(1024, task.cells // count)
        for first in range(0, total, step):
            block = slice(first, first + step)
            scores = product(queries, documents[block])
            _collect(scores, bar, slack.of_documents(block), lists, first)
        return
    words = triton.cdiv(count, 32)
    step = max(1 << 14, task.cells // words)
    marks = torch.empty((min(step, total), words), dtype=torch.int32, device=queries.device)
    for first in range(0, total, step):
        rows = documents[first : first + step]
        _mark(queries, rows, bar, slack.of_documents(slice(first, None)), marks)
        size = len(rows) * words
        kernels.gather_kernel[(triton.cdiv(size, _GATHER_BLOCK),)](
            marks,
            lists.candidates,
            lists.counts,
            first,
            size,
            words,
            room,
            BLOCK=_GATHER_BLOCK,
            num_warps=1,
        )


def _mark(queries: Any, documents: Any, bar: Any, slack: Slack, marks: Any) -> None:
    """Set a bit in marks (N, ⌈Q/32⌉) where a document can reach a query's bar."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    is_float32 = queries.dtype == torch.float32
    rows, tile, wide, warps, stages = _TILES[is_float32]
    tile = min(tile, max(32, triton.next_power_of_2(len(queries))))
    grid = triton.cdiv(len(documents), rows) * triton.cdiv(len(queries), tile)
    kernels.sift_kernel[(grid,)](
        TensorDescriptor.from_tensor(documents, [rows, wide]),
        TensorDescriptor.from_tensor(queries, [tile, wide]),
        slack.document_lengths,
        slack.query_lengths,
        bar,
        marks,
        len(queries),
        len(documents),
        queries.shape[1],
        marks.shape[1],
        *slack.constants,
        ROWS=rows,
        QUERIES=tile,
        WIDE=wide,
        PRECISION="tf32x3" if is_float32 else "ieee",
        num_warps=warps,
        num_stages=stages,
    )


_GATHER_BLOCK = 256
# Documents, queries, dimensions, warps and stages; the last for float32. Small enough for two at a
# time on a processor: one multiplies while the other packs its bits.
_TILES = (128, 128, 64, 4, 3), (128, 64, 32, 4, 3)


def _fusable(queries: Any, documents: Any) -> bool:
    """True if the GPU's copy engine can read both: their rows are aligned and do not overlap."""
    return (
        compiled(queries)
        and torch.cuda.get_device_capability(queries.device)[0] >= 9
        and all(
            x.data_ptr() % 16 == 0
            and x.stride(0) * x.element_size() % 16 == 0
            and x.stride(0) >= x.shape[1]
            for x in (queries, documents)
        )
    )


def _collect(
    scores: Any, bar: Any, slack: Slack, lists: _Lists, first: int = 0, rows: Any = None
) -> None:
    """Append the documents whose scores (Q, B) can reach the bar to each list, in any order.

    They are the documents from `first` on, or these rows.
    """
    width, room = scores.shape[1], lists.candidates.shape[1]
    candidates, counts = lists.candidates, lists.counts
    if not compiled(scores):
        factor, extra, lengths = slack.terms()
        limit = bar[:, None] - extra - bar[:, None].abs() * 2e-7
        # Documents of length -inf are listed already, whatever their product overflows to.
        passes = ~(scores + factor * lengths < limit) & (lengths != -math.inf)
        place = counts[:, None] + passes.cumsum(dim=1) - 1
        query, column = (passes & (place < room)).nonzero(as_tuple=True)
        candidates[query, place[query, column]] = (
            (column + first).int() if rows is None else rows[column]
        )
        counts += passes.sum(dim=1, dtype=torch.int32)
        return
    # Enough programs to fill the GPU, and no more than that needs.
    cells = width * len(scores)
    chunks = 16 if cells > 1 << 26 else 1 if cells < 1 << 22 else 4
    grid = (triton.cdiv(width, 1024 * chunks), len(scores))
    kernels.collect_kernel[grid](
        scores,
        slack.document_lengths,
        slack.query_lengths,
        bar,
        candidates,
        counts,
        rows,
        first,
        width,
        scores.stride(0),
        room,
        *slack.constants,
        CHUNK=1024,
        CHUNKS=chunks,
        ALONE=16 if chunks > 1 else 0,
        HAS_ROWS=rows is not None,
        num_warps=2,
    )


# -------------------------------------------------------------------------------- scores and ranks


def _rescore(task: _Task, lists: _Lists) -> Any:
    """Return keys (Q, room) of the candidates' scores; the smallest key where there is none."""
    queries, documents, form = task.queries, task.documents, task.form
    candidates, counts = lists.candidates, lists.counts
    count, room = candidates.shape
    keys = torch.empty((count, room), dtype=torch.int64, device=queries.device)
    if not compiled(queries):
        is_used = torch.arange(room, device=queries.device) < counts[:, None]
        query, place = is_used.nonzero(as_tuple=True)
        rows = candidates[query, place].long()
        keys.fill_(_EMPTY)
        scores = rounded(pairs(queries, documents, query, rows), form)
        keys[query, place] = keys_of(scores, rows)
        return keys
    tile = 64 if queries.dtype != torch.float32 and count * room > 1 << 20 else 32
    kernels.rescore_kernel[(triton.cdiv(room, tile) * count,)](
        queries,
        documents,
        candidates,
        counts,
        keys,
        queries.shape[1],
        queries.stride(0),
        documents.stride(0),
        count,
        room,
        TILE=tile,
        LANES=LANES,
        FORM=getattr(kernels.tl, form),
        num_warps=2,
    )
    return keys


def _largest(keys: Any, k: int, counts: Any, countable: int) -> Any:
    """Return the k largest keys (Q, k) in order, of the first `counts` (Q,) of each query.

    Few queries with at most `countable` keys are sorted by counting larger ones.
    """
    count, room = keys.shape
    if compiled(keys) and count < COUNTED and room <= countable:
        best = torch.empty((count, k), dtype=torch.int64, device=keys.device)
        kernels.order_kernel[(triton.cdiv(room, 32), count)](
            keys,
            best,
            counts,
            k,
            room,
            keys.stride(0),
            best.stride(0),
            TILE=32,
            BLOCK=64,
            num_warps=2,
        )
        return best
    if count >= COUNTED and room <= 4096:
        return torch.sort(keys, dim=1, descending=True).values[:, :k]
    return torch.topk(keys, k, dim=1).values


def _finish(
    keys: Any, bar: Any, k: int, lists: _Lists, last_vector: Any = None, left_out: Any = None
) -> tuple[Any, Any]:
    """Return the k largest keys and the ties outside them; mark queries whose bar was wrong.

    `last_vector` and `left_out` are what `gpu_duplicates.append_members` says of documents that
    have no key.
    """
    count, room = keys.shape
    best = _largest(keys, k, lists.counts, 1 << 14)
    if not compiled(keys):
        last, counts = best[:, -1:], lists.counts
        failed = (counts < k) | (counts > room) | ~(open_keys(last)[0][:, 0] >= bar)
        lists.failed.copy_(failed)
        lists.status[0] = failed.any()
        cut = ((keys < last) & (keys >> 32 == last >> 32)).sum(dim=1)
        if left_out is not None:
            cut += torch.where(last[:, 0] >> 32 == last_vector, left_out, 0)
        return best, cut
    cut = torch.empty(count, dtype=torch.int64, device=keys.device)
    kernels.finish_kernel[(count,)](
        keys,
        best,
        bar,
        lists.counts,
        last_vector,
        left_out,
        cut,
        lists.failed,
        lists.status,
        k,
        room,
        best.stride(0),
        BLOCK=1024,
        HAS_LEFT_OUT=left_out is not None,
        num_warps=4,
    )
    return best, cut


# -------------------------------------------------------------------------- exhaustively, in blocks


def _top_keys(keys: Any, k: int) -> tuple[Any, Any]:
    """Return the k largest keys in order, and how many others have the score of the last (Q,)."""
    best = torch.topk(keys, k, dim=1, sorted=True).values
    bar = best[:, -1:] >> 32
    cut = ((keys >> 32) == bar).sum(dim=1) - ((best >> 32) == bar).sum(dim=1)
    return best, cut


def _search_exhaustively(task: _Task, slack: Slack) -> tuple[Any, Any]:
    """Return `keys_of_best` without a bar: sum all that can win in each block, or simply all."""
    queries, documents, k, form = task.queries, task.documents, task.k, task.form
    if compiled(queries) and len(queries) * len(documents) <= ALL:
        cells = torch.arange(len(queries) * len(documents), device=queries.device)
        query_rows, rows = cells // len(documents), cells % len(documents)
        scores = rounded(pairs(queries, documents, query_rows, rows), form)
        return _top_keys(keys_of(scores, rows).view(len(queries), len(documents)), k)

    def score_block(first: int, last: int, bar: Any) -> tuple[Any, Any]:
        block = documents[first:last]
        part = slack.of_documents(slice(first, last))
        low, high = part.bounds(product(queries, block), form)
        return settle_bounds(
            low, high, k, bar, lambda *places: rounded(pairs(queries, block, *places), form)
        )

    return merge_blocks(
        score_block,
        queries=len(queries),
        documents=len(documents),
        k=k,
        step=max(k, task.cells // (8 * len(queries))),
        device=queries.device,
    )


def settle_bounds(
    low: Any, high: Any, k: int, bar: Any, score: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    """Return scores (Q, B), exact where they can be among the k best, and where they can be.

    `low` and `high` are their bounds, `bar` (Q,) the k-th best of earlier blocks; `score` returns
    exact scores of pairs of queries and documents.
    """
    if low.shape[1] >= k:
        bar = torch.maximum(bar, torch.topk(low, k, dim=1).values[:, -1])
    can_win = high >= bar[:, None]
    query, place = (can_win & (low != high)).nonzero(as_tuple=True)
    low[query, place] = score(query, place)
    return low, can_win


def merge_blocks(
    score_block: Callable[[int, int, Any], tuple[Any, Any]],
    *,
    queries: int,
    documents: int,
    k: int,
    step: int,
    device: Any,
) -> tuple[Any, Any]:
    """Return the k largest keys and the ties outside them over all blocks of documents.

    score_block(first, last, bar) returns a block's scores (Q, B), and which can be among the best.
    """
    best: Any = None
    cut = torch.zeros(queries, dtype=torch.int64, device=device)
    for first in range(0, documents, step):
        last = min(documents, first + step)
        is_full = best is not None and best.shape[1] == k
        bar = torch.full((queries,), -math.inf, dtype=torch.float32, device=device)
        if is_full:
            bar = open_keys(best[:, -1])[0]
        scores, can_win = score_block(first, last, bar)
        rows = torch.arange(first, last, device=device)
        keys = torch.where(can_win, keys_of(scores, rows), _EMPTY)
        if best is not None:
            keys = torch.cat([best, keys], dim=1)
        new_best, new_cut = _top_keys(keys, min(k, keys.shape[1]))
        if is_full:  # documents left out before may still tie
            new_cut = new_cut + torch.where(new_best[:, -1] >> 32 == best[:, -1] >> 32, cut, 0)
        best, cut = new_best, new_cut
    return best, cut
