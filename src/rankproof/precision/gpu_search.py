"""Exact top-k on a GPU: a fast product selects the candidates, a fixed sum scores them.

Sorting all scores would cost more than the product that makes them. So each query first gets a
threshold, a score that a little more than k documents reach:

    up to 64 queries    one pass over the documents writes scores, lengths and the best score of
                        each of some thousand groups; the k-th best group is the threshold, which
                        is never too high
    more                a sample of the documents sets it; the product then compares its scores
                        with it and keeps one bit of each, or a block of scores is made and read

Documents that can reach the threshold are summed again in float64, lane by lane as on the CPU
(fixed_sum.py), and sorted as 64-bit keys (score above document number). The result is exact for any
data, because a query is searched again, with longer lists or exhaustively, where fewer than k
documents reach its threshold or its list was too short for those that do.

Many copies of one vector tie and would fill the lists. So where too many documents tie, such
vectors are summed once instead (gpu_duplicates.py); the next search of the same tensor begins with
them, compares every copy with its vector again, and searches the other documents as usual.

Without Triton, or without a GPU, plain torch does the same.
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
from rankproof.precision.gpu_duplicates import DuplicateVectors, Members
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

FEW_QUERIES = 64  # up to so many, one pass over the documents is the cost of a search
QUERIES_AT_ONCE = 4096  # queries searched together
GROUPS = 132 * 32  # of documents, whose best scores set the threshold of few queries
SAMPLE_SIZES = 1 << 14, 1 << 16  # smallest and largest sample of documents; else one in 32
GROUP_SAMPLES = 8  # sampled documents per group, of which only the best counts
COPIES_WORTH_FINDING = 1 << 29  # scores of a search from which on duplicates are looked for first
RECORDED_SCORES = 1 << 30  # scores of a search up to which its kernels are recorded
KEPT = 3  # recordings
COUNTING_QUERIES = 128  # with fewer, counting larger keys is the fastest way to sort them
EXHAUSTIVE_SCORES = 1 << 20  # scores up to which summing all is less work than selecting
RETRIED_DOCUMENTS = 1 << 22  # documents summed at a time where the lists were too short
_EMPTY = torch.iinfo(torch.int64).min


def top_k(queries: Any, documents: Any, k: int, *, low: bool = False) -> TopK:
    """Return the k best documents of each query by dot product; see `keys_of_best`."""
    return as_arrays(*keys_of_best(queries, documents, k, low=low))


def as_arrays(keys: Any, cut: Any) -> TopK:
    """Return keys as arrays on the CPU."""
    scores, rows = open_keys(keys)
    return TopK(scores.cpu().numpy(), rows.cpu().numpy(), cut.cpu().numpy())


def keys_of_best(queries: Any, documents: Any, k: int, *, low: bool = False) -> tuple[Any, Any]:
    """Return keys (Q, k), best first, and how many other documents tie with the last (Q,).

    `low` rounds each score to the format of the vectors, as scoring wholly in that format does.
    Vectors with numbers that are not finite are refused. If GPU memory runs out, the search starts
    again with blocks of half the size, and warns.
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
    """Drop what is remembered for the next search: recorded kernels and duplicate vectors."""
    _GRAPHS.clear()
    gpu_duplicates.forget()


def _unrounded_threshold(threshold: Any, form: str) -> Any:
    """Return the least sum (Q,), or a little less, that rounds to a score at the threshold."""
    if form == "float32":
        return threshold
    shape = SHAPES[form]
    below = threshold - threshold.abs() * 2.0 ** (1 - shape.significand_bits) - shape.smallest
    return torch.where(threshold > shape.largest, shape.largest, below).float()


# ------------------------------------------------------------------------------------- the search


@dataclass(frozen=True, slots=True)
class _Task:
    """What to search: queries, documents, k, and the format of the scores."""

    queries: Any  # (Q, D)
    documents: Any  # (N, D)
    k: int
    form: str  # the format that scores are rounded to
    cells: int  # scores made at a time
    lengths: Any = None  # (N,) lengths of the documents, if computed before

    def of(self, queries: Any) -> _Task:
        """Return the same search for some of the queries."""
        return replace(self, queries=self.queries[queries])


def _search(queries: Any, documents: Any, k: int, low: bool, cells: int) -> tuple[Any, Any]:
    """Return `keys_of_best`, for at most QUERIES_AT_ONCE queries at a time."""
    k = min(k, len(documents))
    form = name_of(queries.dtype) if low else "float32"
    if queries.stride(1) != 1 or documents.stride(1) != 1:
        queries, documents = queries.contiguous(), documents.contiguous()
    if not len(queries) or not k:
        keys = torch.empty((len(queries), k), dtype=torch.int64, device=queries.device)
        return keys, torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    lengths = None
    if len(queries) > QUERIES_AT_ONCE:
        lengths = lengths_of(documents)  # once for all parts
        check_finite(queries, lengths_of(queries), "queries")  # with row numbers of the whole
    task = _Task(queries, documents, k, form, cells, lengths)
    parts = range(0, len(queries), QUERIES_AT_ONCE)
    results = [_search_part(task.of(slice(first, first + QUERIES_AT_ONCE))) for first in parts]
    if len(results) == 1:
        return results[0]
    return torch.cat([keys for keys, _ in results]), torch.cat([cut for _, cut in results])


def _search_part(task: _Task) -> tuple[Any, Any]:
    """Return `keys_of_best` of at most QUERIES_AT_ONCE queries."""
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
    if (
        duplicates is None
        and count * total >= COPIES_WORTH_FINDING
        and plan.sample
        and is_first_search
    ):
        distinct, _ = _count_distinct(queries, documents)
        if 2 * total > distinct * plan.capacity:
            duplicates = gpu_duplicates.find_duplicates(documents)
    work = count * total * (32 if plan.sample == 0 else 1)
    is_large = work > RECORDED_SCORES and (duplicates is None or duplicates.has_others)
    if not compiled(queries) or is_large:
        return _verify(task, plan, duplicates, _try_search(task, plan, duplicates))
    with _LOCK:  # a replay uses the same memory each time
        attempt = _record_or_replay((tensor, conditions, plan, duplicates), task, plan, duplicates)
        # Copied before the CPU waits for the GPU.
        attempt = replace(attempt, best=attempt.best.clone(), cut=attempt.cut.clone())
        return _verify(task, plan, duplicates, attempt)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the threshold is set, and how many candidates each query's list can hold."""

    sample: int  # documents sampled for the threshold; 0: it is set by groups of all documents
    rank: int  # the threshold is the score of this rank among them
    needed: int  # documents expected to reach the threshold, plus a margin
    capacity: int  # candidates that a list holds, at least `needed`

    @classmethod
    def of(cls, count: int, total: int, k: int) -> _Plan | None:
        """Return the plan for `count` queries and `total` documents; None if all must be summed.

        A random sample of s of the N documents contains about k s / N of the k best, with a
        standard deviation of at most the root of that; five of these are added as a margin.
        """
        if count <= FEW_QUERIES and (total <= GROUPS // 4 or 4 * k <= GROUPS):
            capacity = min(total, 4 * k + 2048)
            return cls(sample=0, rank=k, needed=capacity, capacity=capacity)
        least, most = SAMPLE_SIZES
        size = min(max(total // 32, least), most) // GROUP_SAMPLES * GROUP_SAMPLES
        mean = k * size / total
        rank = math.ceil(mean + 5 * mean**0.5 + 4)
        needed = math.ceil(1.25 * total / size * (rank + 5 * rank**0.5 + 5))
        # With less capacity, a thousand copies of one document would fill a list.
        capacity = max(needed, min(2048, total // 8))
        if 2 * rank * GROUP_SAMPLES > size or 2 * capacity > total:
            return None
        return cls(size, rank, needed, capacity)

    def capacity_with(self, duplicates: DuplicateVectors | None, k: int) -> int:
        """Return the capacity of a list that also holds one candidate per duplicate vector."""
        if duplicates is None:
            return self.capacity
        vectors = duplicates.capacity(k)
        return max(self.capacity, self.needed + vectors) if duplicates.has_others else vectors


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The result of one try, before it is checked that its thresholds were low enough."""

    slack: Slack
    threshold: Any  # (Q,)
    lists: _Lists
    best: Any  # (Q, k) keys
    cut: Any  # (Q,) ties outside them


def _try_search(task: _Task, plan: _Plan, duplicates: DuplicateVectors | None) -> _Attempt:
    """Set the thresholds, collect the documents that can reach them, and score those."""
    queries, documents, k = task.queries, task.documents, task.k
    groups = GROUPS if not plan.sample and _is_faster_without_tensor_cores(queries) else 0
    lists = _Lists.of(len(queries), plan.capacity_with(duplicates, k), queries.device, groups)
    if duplicates is not None:
        lists.candidates[:, : len(duplicates.first)] = duplicates.first
        lists.counts.fill_(len(duplicates.first))
        gpu_duplicates.check_duplicates(documents, duplicates, lists.status[4:])
    if duplicates is not None and not duplicates.has_others:
        no_lengths = lengths_of(documents[:0])
        slack = Slack.of(queries, lengths_of(queries, lists.status[2:]), no_lengths)
        threshold = torch.full(
            (len(queries),), -math.inf, dtype=torch.float32, device=queries.device
        )
    elif plan.sample:
        slack, threshold = _threshold_by_sample(task, plan, lists, duplicates)
        _collect_candidates(task, _unrounded_threshold(threshold, task.form), slack, lists)
    else:
        rows = None if duplicates is None else duplicates.other_rows
        scores, slack, threshold = _scan(task, lists, rows)
        threshold = rounded(threshold, task.form)
        _collect_from_scores(
            scores, _unrounded_threshold(threshold, task.form), slack, lists, rows=rows
        )
    keys = _rescore(task, lists)
    members = None
    if duplicates is not None:
        distinct = len(duplicates.first)
        members = gpu_duplicates.append_members(
            duplicates,
            _largest(keys[:, :distinct], min(k, distinct), lists.counts, 2048),
            k,
            threshold=threshold,
            keys=keys,
            counts=lists.counts,
            status=lists.status[3:],
        )
        lists = replace(lists, counts=members.counts)
    best, cut = _finish(keys, threshold, k, lists, members)
    return _Attempt(slack, threshold, lists, best, cut)


def _threshold_by_sample(
    task: _Task, plan: _Plan, lists: _Lists, duplicates: DuplicateVectors | None
) -> tuple[Slack, Any]:
    """Return the slack of all documents, and the threshold (Q,) that a sample of them sets."""
    queries, documents, lengths = task.queries, task.documents, task.lengths
    if lengths is None:
        covered = None if duplicates is None else duplicates.vector
        lengths = lengths_of(documents, lists.status[1:], covered=covered)
    else:
        lists.status[1] = ~torch.isfinite(lengths).all()
        if duplicates is not None:
            lengths = torch.where(duplicates.vector < 0, lengths, -math.inf)
    slack = Slack.of(queries, lengths_of(queries, lists.status[2:]), lengths)
    sample = _sample_rows(len(documents), plan.sample, documents.device)
    scores = product(queries, documents[sample])
    # Neighbors in the sample are neighbors in the documents, so each goes to another group.
    groups = plan.sample // GROUP_SAMPLES
    threshold = _group_threshold(
        scores, groups, plan.rank, GROUP_SAMPLES, slack=slack, duplicates=duplicates
    )
    return slack, rounded(threshold, task.form)


_LOCK = threading.RLock()  # reentrant: documents that tie are searched once more inside
_GRAPHS: OrderedDict[Any, Any] = OrderedDict()


def _record_or_replay(
    key: Any, task: _Task, plan: _Plan, duplicates: DuplicateVectors | None
) -> _Attempt:
    """Return `_try_search`, recorded as a CUDA graph from the second search under the same key on.

    In a small search, launching the kernels one by one takes longer than they run. A recording
    holds no scores: each replay reads the documents again.
    """
    recording = _GRAPHS.pop(key, None)
    if recording is None:
        attempt = _try_search(task, plan, duplicates)
        recording = ()
    elif not recording:
        lengths = None if task.lengths is None else task.lengths.clone()
        recorded_task = replace(task, queries=task.queries.clone(), lengths=lengths)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            attempt = _try_search(recorded_task, plan, duplicates)
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


def _verify(
    task: _Task, plan: _Plan, duplicates: DuplicateVectors | None, attempt: _Attempt
) -> tuple[Any, Any]:
    """Return the keys and ties of an attempt, after searching again the queries that failed in it.

    A query fails if fewer than k documents reached its threshold, or too many for its list. Vectors
    with numbers that are not finite are refused.
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
                keys, cut = _verify(part, plan, None, _try_search(part, plan, None))
            else:
                keys, cut = _rank_by_vectors(part, duplicates)
            attempt.best[failed], attempt.cut[failed] = keys, cut
    return attempt.best, attempt.cut


def _rank_by_vectors(task: _Task, duplicates: DuplicateVectors) -> tuple[Any, Any]:
    """Return keys and ties of all documents, each with the score of its vector, where many tie."""
    lists = _Lists.of(len(task.queries), len(duplicates.first), task.queries.device)
    lists.candidates.copy_(duplicates.first)
    lists.counts.fill_(len(duplicates.first))
    step = max(1, task.cells // (8 * len(task.documents)))
    return gpu_duplicates.rank_all_documents(duplicates, _rescore(task, lists), task.k, step)


@dataclass(frozen=True, slots=True)
class _Lists:
    """The candidates of each query, in few tensors: in a small search every allocation counts."""

    status: Any  # (5,) flags, named in `_verify`
    counts: Any  # (Q,) int32 documents that can reach the threshold, also those beyond capacity
    failed: Any  # (Q,) int32, 1 where the threshold was too high or the capacity too small
    candidates: Any  # (Q, capacity) int32 documents
    best: Any  # (Q · groups,) zeros, to be filled with the best score of each group

    @classmethod
    def of(cls, count: int, capacity: int, device: Any, groups: int = 0) -> _Lists:
        """Return empty lists for so many queries."""
        zeros: Any = torch.zeros(5 + count * (2 + groups), dtype=torch.int32, device=device)
        best, status, counts, failed = zeros.split([count * groups, 5, count, count])
        candidates = torch.empty((count, capacity), dtype=torch.int32, device=device)
        return cls(status, counts, failed, candidates, best)


def _retry(task: _Task, attempt: _Attempt, failed: Any) -> None:
    """Search failed queries again, with lists as long as they need or exhaustively.

    Their results replace those in the attempt.
    """
    best, cut, documents = attempt.best, attempt.cut, task.documents
    if gpu_duplicates.known_duplicates(documents) is None:
        distinct, sampled = _count_distinct(task.queries[failed], documents)
        has_copies = 512 * (sampled - distinct) >= sampled
        if has_copies and gpu_duplicates.find_duplicates(documents) is not None:
            best[failed], cut[failed] = _search_part(task.of(failed))
            return
    counts = attempt.lists.counts[failed].tolist()
    step = max(1, 4 * RETRIED_DOCUMENTS // max(counts))
    for first in range(0, len(failed), step):
        queries, capacity = failed[first : first + step], max(counts[first : first + step])
        part, slack, thresholds = (
            task.of(queries),
            attempt.slack[queries],
            attempt.threshold[queries],
        )
        still_failed = torch.ones_like(queries)
        if task.k <= capacity <= 4 * RETRIED_DOCUMENTS:
            lists = _Lists.of(len(queries), capacity, queries.device)
            _collect_candidates(
                part, _unrounded_threshold(thresholds, task.form), slack, lists, dense=True
            )
            best[queries], cut[queries] = _finish(_rescore(part, lists), thresholds, task.k, lists)
            still_failed = lists.failed
        places = still_failed.nonzero().flatten()
        if len(places):
            keys, ties = _search_exhaustively(part.of(places), slack[places])
            best[queries[places]], cut[queries[places]] = keys, ties


# ----------------------------------------------------------------------------------- the threshold


@functools.lru_cache(maxsize=16)
def _sample_rows(total: int, size: int, device: Any) -> Any:
    """Return row numbers (size,), one at random from each stretch of the documents.

    So the order of the documents does not matter.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    places = torch.arange(size, dtype=torch.float64, device="cpu") + torch.rand(
        size, generator=generator, dtype=torch.float64, device="cpu"
    )
    return (places * (total / size)).long().clamp(max=total - 1).to(device)


def _count_distinct(queries: Any, documents: Any) -> tuple[int, int]:
    """Return how many different scores a sample of the documents has, and the sample's size."""
    total = len(documents)
    sample = documents[_sample_rows(total, min(total, SAMPLE_SIZES[0]), documents.device)]
    scores = torch.sort(product(queries[:1], sample)[0]).values
    return int((scores[1:] != scores[:-1]).sum()) + 1, len(scores)


def _group_threshold(
    best: Any,
    groups: int,
    rank: int,
    shared: int = 1,
    *,
    slack: Slack,
    duplicates: DuplicateVectors | None = None,
    are_ordered: bool = False,
) -> Any:
    """Return thresholds (Q,): the `rank`-th best of the groups' best scores, or less.

    `best` (Q, shared · groups) are scores, `shared` to a group, or their ordered integers
    (`are_ordered`). With duplicates the threshold may be a product of one of their vectors; then it
    is lowered by the slack, since otherwise that vector's fixed sum might not reach it.
    """
    count = len(best)
    if rank > groups:
        return torch.full((count,), -math.inf, dtype=torch.float32, device=best.device)
    if not compiled(best):
        best = best.view(count, shared, groups).amax(dim=1)
        threshold = torch.topk(best, rank, dim=1).values[:, -1].contiguous()
        if duplicates is not None:
            factor, extra, longest = replace(slack, document_lengths=duplicates.longest).terms()
            threshold = (threshold - (factor * longest + extra)[:, 0]).float()
        return threshold
    threshold = torch.empty(count, dtype=torch.float32, device=best.device)
    kernels.threshold_kernel[(count,)](
        best,
        threshold,
        slack.query_lengths,
        None if duplicates is None else duplicates.longest,
        groups,
        best.stride(0),
        rank,
        *slack.constants,
        SHARED=shared,
        BLOCK=triton.next_power_of_2(groups),
        ARE_ORDERED=are_ordered,
        HAS_LONGEST=duplicates is not None,
        num_warps=8,
    )
    return threshold


def _is_faster_without_tensor_cores(queries: Any) -> bool:
    """True if `scan_few_kernel`, which does not use tensor cores, is faster for these queries."""
    return compiled(queries) and len(queries) <= 2 and queries.dtype == torch.float32


def _scan(task: _Task, lists: _Lists, rows: Any) -> tuple[Any, Slack, Any]:
    """Return scores (Q, N) of all documents or of some rows, their slack, and thresholds (Q,).

    Documents are divided into groups; the k-th best of the groups' best scores is the threshold.
    """
    queries, documents = task.queries, task.documents
    if not compiled(queries):
        return _scan_in_torch(task, lists.status[1:], rows)
    count, total = len(queries), len(documents if rows is None else rows)
    memory: Any = torch.empty(
        count * total + total + count, dtype=torch.float32, device=queries.device
    )
    scores, lengths, query_lengths = memory.split([count * total, total, count])
    scores = scores.view(count, total)
    slack = Slack.of(queries, query_lengths, lengths)
    tensors = (queries, documents, query_lengths, scores, lengths)
    shape = (count, total, queries.shape[1], queries.stride(0), documents.stride(0))
    scan = (
        _scan_without_tensor_cores if _is_faster_without_tensor_cores(queries) else _scan_in_tiles
    )
    return scores, slack, scan(task, lists, rows, tensors, shape, slack)


def _scan_in_torch(task: _Task, status: Any, rows: Any) -> tuple[Any, Slack, Any]:
    """Return `_scan` by plain torch."""
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
    threshold = _group_threshold(low, groups, task.k, low.shape[1] // groups, slack=slack)
    return scores, slack, threshold


def _scan_without_tensor_cores(
    task: _Task, lists: _Lists, rows: Any, tensors: Any, shape: Any, slack: Slack
) -> Any:
    """Write scores and lengths for a query or two, and return the threshold (Q,)."""
    count, total = len(task.queries), shape[1]
    lengths_of(task.queries, lists.status[2:], slack.query_lengths)
    best = lists.best.view(count, GROUPS)
    kernels.scan_few_kernel[(triton.cdiv(total, 16),)](
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
    return _group_threshold(best, GROUPS, task.k, slack=slack, are_ordered=True)


def _scan_in_tiles(
    task: _Task, lists: _Lists, rows: Any, tensors: Any, shape: Any, slack: Slack
) -> Any:
    """Write scores and lengths on tensor cores, and return the threshold (Q,)."""
    queries = task.queries
    count, total, dimensions = shape[:3]
    is_float32 = queries.dtype == torch.float32
    is_short = dimensions <= 128 and count <= 16  # little work between two reads: more at a time
    tile, wide, fold = 128, 32 if is_float32 or is_short else 64, 8 if is_short else 4
    programs = min(528 if is_short else 264, triton.cdiv(total, tile))
    groups = programs * tile // fold
    best = torch.empty((count, groups), dtype=torch.float32, device=queries.device)
    kernels.scan_kernel[(programs,)](
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
    return _group_threshold(best, groups, task.k, slack=slack)


# -------------------------------------------------------------- documents that reach the threshold


def _collect_candidates(
    task: _Task, threshold: Any, slack: Slack, lists: _Lists, dense: bool = False
) -> None:
    """Append the documents that can reach the threshold to each query's list, in any order.

    `dense`: so many are expected that reading one bit per score would cost more than the scores.
    """
    queries, documents = task.queries, task.documents
    count, total, capacity = len(queries), len(documents), lists.candidates.shape[1]
    dense = dense and 32 * capacity > total
    if dense or not _can_fuse_product(queries, documents):
        step = max(1024, task.cells // count)
        for first in range(0, total, step):
            block = slice(first, first + step)
            scores = product(queries, documents[block])
            _collect_from_scores(scores, threshold, slack.of_documents(block), lists, first)
        return
    words = triton.cdiv(count, 32)
    step = max(1 << 14, task.cells // words)
    marks = torch.empty((min(step, total), words), dtype=torch.int32, device=queries.device)
    for first in range(0, total, step):
        rows = documents[first : first + step]
        _mark(queries, rows, threshold, slack.of_documents(slice(first, None)), marks)
        size = len(rows) * words
        kernels.gather_kernel[(triton.cdiv(size, _GATHER_BLOCK),)](
            marks,
            lists.candidates,
            lists.counts,
            first,
            size,
            words,
            capacity,
            BLOCK=_GATHER_BLOCK,
            num_warps=1,
        )


def _mark(queries: Any, documents: Any, threshold: Any, slack: Slack, marks: Any) -> None:
    """Set a bit in marks (N, ⌈Q/32⌉) where a document can reach a query's threshold."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    is_float32 = queries.dtype == torch.float32
    rows, tile, wide, warps, stages = _TILES[is_float32]
    tile = min(tile, max(32, triton.next_power_of_2(len(queries))))
    grid = triton.cdiv(len(documents), rows) * triton.cdiv(len(queries), tile)
    kernels.mark_kernel[(grid,)](
        TensorDescriptor.from_tensor(documents, [rows, wide]),
        TensorDescriptor.from_tensor(queries, [tile, wide]),
        slack.document_lengths,
        slack.query_lengths,
        threshold,
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


def _can_fuse_product(queries: Any, documents: Any) -> bool:
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


def _collect_from_scores(
    scores: Any, threshold: Any, slack: Slack, lists: _Lists, first: int = 0, rows: Any = None
) -> None:
    """Append the documents whose scores (Q, B) can reach the threshold to each list, in any order.

    They are the documents from `first` on, or these rows.
    """
    width, capacity = scores.shape[1], lists.candidates.shape[1]
    candidates, counts = lists.candidates, lists.counts
    if not compiled(scores):
        factor, extra, lengths = slack.terms()
        limit = threshold[:, None] - extra - threshold[:, None].abs() * 2e-7
        # Documents of length -inf are listed already, whatever their product overflows to.
        passes = ~(scores + factor * lengths < limit) & (lengths != -math.inf)
        place = counts[:, None] + passes.cumsum(dim=1) - 1
        query, column = (passes & (place < capacity)).nonzero(as_tuple=True)
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
        threshold,
        candidates,
        counts,
        rows,
        first,
        width,
        scores.stride(0),
        capacity,
        *slack.constants,
        CHUNK=1024,
        CHUNKS=chunks,
        ALONE=16 if chunks > 1 else 0,
        HAS_ROWS=rows is not None,
        num_warps=2,
    )


# -------------------------------------------------------------------------------- scores and ranks


def _rescore(task: _Task, lists: _Lists) -> Any:
    """Return keys (Q, capacity) of the candidates' fixed sums; the smallest key in empty slots."""
    queries, documents, form = task.queries, task.documents, task.form
    candidates, counts = lists.candidates, lists.counts
    count, capacity = candidates.shape
    keys = torch.empty((count, capacity), dtype=torch.int64, device=queries.device)
    if not compiled(queries):
        is_used = torch.arange(capacity, device=queries.device) < counts[:, None]
        query, place = is_used.nonzero(as_tuple=True)
        rows = candidates[query, place].long()
        keys.fill_(_EMPTY)
        scores = rounded(pairs(queries, documents, query, rows), form)
        keys[query, place] = keys_of(scores, rows)
        return keys
    tile = 64 if queries.dtype != torch.float32 and count * capacity > 1 << 20 else 32
    kernels.rescore_kernel[(triton.cdiv(capacity, tile) * count,)](
        queries,
        documents,
        candidates,
        counts,
        keys,
        queries.shape[1],
        queries.stride(0),
        documents.stride(0),
        count,
        capacity,
        TILE=tile,
        LANES=LANES,
        FORM=getattr(kernels.tl, form),
        num_warps=2,
    )
    return keys


def _largest(keys: Any, k: int, counts: Any, countable: int) -> Any:
    """Return the k largest keys (Q, k), largest first, of the first `counts` (Q,) of each query.

    Few queries with at most `countable` keys are sorted by counting larger ones.
    """
    count, capacity = keys.shape
    if compiled(keys) and count < COUNTING_QUERIES and capacity <= countable:
        best = torch.empty((count, k), dtype=torch.int64, device=keys.device)
        kernels.order_kernel[(triton.cdiv(capacity, 32), count)](
            keys,
            best,
            counts,
            k,
            capacity,
            keys.stride(0),
            best.stride(0),
            TILE=32,
            BLOCK=64,
            num_warps=2,
        )
        return best
    if count >= COUNTING_QUERIES and capacity <= 4096:
        return torch.sort(keys, dim=1, descending=True).values[:, :k]
    return torch.topk(keys, k, dim=1).values


def _finish(
    keys: Any, threshold: Any, k: int, lists: _Lists, members: Members | None = None
) -> tuple[Any, Any]:
    """Return the k largest keys and the ties outside them; mark queries that failed in `lists`."""
    count, capacity = keys.shape
    best = _largest(keys, k, lists.counts, 1 << 14)
    if not compiled(keys):
        last, counts = best[:, -1:], lists.counts
        failed = (counts < k) | (counts > capacity) | ~(open_keys(last)[0][:, 0] >= threshold)
        lists.failed.copy_(failed)
        lists.status[0] = failed.any()
        cut = ((keys < last) & (keys >> 32 == last >> 32)).sum(dim=1)
        if members is not None:
            cut += torch.where(last[:, 0] >> 32 == members.last, members.left_out, 0)
        return best, cut
    cut = torch.empty(count, dtype=torch.int64, device=keys.device)
    kernels.finish_kernel[(count,)](
        keys,
        best,
        threshold,
        lists.counts,
        None if members is None else members.last,
        None if members is None else members.left_out,
        cut,
        lists.failed,
        lists.status,
        k,
        capacity,
        best.stride(0),
        BLOCK=1024,
        HAS_LEFT_OUT=members is not None,
        num_warps=4,
    )
    return best, cut


# -------------------------------------------------------------------------- exhaustively, in blocks


def _top_keys(keys: Any, k: int) -> tuple[Any, Any]:
    """Return the k largest keys in order, and how many others have the score of the last (Q,)."""
    best = torch.topk(keys, k, dim=1, sorted=True).values
    threshold = best[:, -1:] >> 32
    cut = ((keys >> 32) == threshold).sum(dim=1) - ((best >> 32) == threshold).sum(dim=1)
    return best, cut


def _search_exhaustively(task: _Task, slack: Slack) -> tuple[Any, Any]:
    """Return `keys_of_best` without thresholds, block by block."""
    queries, documents, k, form = task.queries, task.documents, task.k, task.form
    if compiled(queries) and len(queries) * len(documents) <= EXHAUSTIVE_SCORES:
        cells = torch.arange(len(queries) * len(documents), device=queries.device)
        query_rows, rows = cells // len(documents), cells % len(documents)
        scores = rounded(pairs(queries, documents, query_rows, rows), form)
        return _top_keys(keys_of(scores, rows).view(len(queries), len(documents)), k)

    def score_block(first: int, last: int, threshold: Any) -> tuple[Any, Any]:
        block = documents[first:last]
        part = slack.of_documents(slice(first, last))
        low, high = part.bounds(product(queries, block), form)
        return settle_bounds(
            low, high, k, threshold, lambda *places: rounded(pairs(queries, block, *places), form)
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
    low: Any, high: Any, k: int, threshold: Any, score: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    """Return scores (Q, B), and a mask (Q, B) of those that can be among the k best.

    Scores in the mask are exact, the others lower bounds. `low` and `high` bound the scores;
    `threshold` (Q,) is the k-th best score of earlier blocks; `score(queries, places)` returns
    exact scores of pairs of queries and documents of this block.
    """
    if low.shape[1] >= k:
        threshold = torch.maximum(threshold, torch.topk(low, k, dim=1).values[:, -1])
    can_win = high >= threshold[:, None]
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

    score_block(first, last, threshold) returns the scores (Q, B) of a block and a mask of those
    that can be among the k best.
    """
    best: Any = None
    cut = torch.zeros(queries, dtype=torch.int64, device=device)
    for first in range(0, documents, step):
        last = min(documents, first + step)
        is_full = best is not None and best.shape[1] == k
        threshold = torch.full((queries,), -math.inf, dtype=torch.float32, device=device)
        if is_full:
            threshold = open_keys(best[:, -1])[0]
        scores, can_win = score_block(first, last, threshold)
        rows = torch.arange(first, last, device=device)
        keys = torch.where(can_win, keys_of(scores, rows), _EMPTY)
        if best is not None:
            keys = torch.cat([best, keys], dim=1)
        new_best, new_cut = _top_keys(keys, min(k, keys.shape[1]))
        if is_full:  # documents dropped before may still tie
            new_cut = new_cut + torch.where(new_best[:, -1] >> 32 == best[:, -1] >> 32, cut, 0)
        best, cut = new_best, new_cut
    return best, cut
