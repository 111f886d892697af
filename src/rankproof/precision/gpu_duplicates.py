"""Duplicate vectors: documents with the same vector, which is summed only once for all of them.

Many documents with one vector tie, and would fill a query's list of candidates. So a search sums
each such vector once and then lists its documents. Which documents those are is remembered for the
next search of the same tensor; since the tensor may have been written to in the meantime,
`check_duplicates` compares each document with its vector again.
"""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch

from rankproof.precision.gpu_scores import compiled, kernels, lengths_of, open_keys

if kernels is not None:
    import triton

STEP = 1 << 14  # documents compared at a time on a CPU
DISTINCT = 1 << 14  # all vectors are covered up to so many, if each has 64 documents on average
HEAVY = 512  # with more vectors, only those of at least so many documents are covered
KEPT = 3  # tensors whose duplicates are remembered


@dataclass(frozen=True, slots=True, eq=False)
class DuplicateVectors:
    """The vectors of a tensor that several documents share, as last examined.

    All vectors are covered where there are few different ones, else only those of many documents.
    """

    first: Any  # (U,) int32 the first document of each vector, ascending
    size: Any  # (U,) documents of each vector
    start: Any  # (U,) where the documents of each vector begin in `order`
    order: Any  # (N,) int32 documents, those of a vector together and ascending
    vector: Any  # (N,) int32 the number of each document's vector, -1 where it is not covered
    rows: Any  # int32, the covered documents
    other_rows: Any  # int32, all other documents
    longest: Any  # (1,) the length of the longest vector
    is_repeated: bool  # the tensor was examined a second time because other vectors tied

    @property
    def has_others(self) -> bool:
        """True if some documents are not covered."""
        return len(self.other_rows) > 0

    def capacity(self, k: int) -> int:
        """Return how many keys a list must hold: one per vector, and those of its copies."""
        distinct = len(self.first)
        return distinct + min(distinct * k, k * (k + 1) // 2, 2 * k + 1024)


_LOCK = threading.Lock()
_KNOWN: OrderedDict[Any, DuplicateVectors] = OrderedDict()


def tensor_key(documents: Any) -> Any:
    """Return the identity of a tensor: its memory, shape and type, not its content."""
    return (
        documents.data_ptr(),
        documents.shape,
        documents.stride(0),
        documents.device,
        documents.dtype,
    )


def known_duplicates(documents: Any) -> DuplicateVectors | None:
    """Return the duplicates that `find_duplicates` remembers of this tensor, or None."""
    return _KNOWN.get(tensor_key(documents))


def forget(documents: Any = None) -> None:
    """Forget the duplicates of this tensor, or of all."""
    with _LOCK:
        if documents is None:
            _KNOWN.clear()
        else:
            _KNOWN.pop(tensor_key(documents), None)


def find_duplicates(documents: Any, is_repeated: bool = False) -> DuplicateVectors | None:
    """Find the duplicate vectors of a tensor (N, D), and remember them for its next search.

    Returns None if there are many different vectors, each of few documents, or if two of them have
    one hash.
    """
    total = len(documents)
    hashes, order = torch.sort(_hashes(documents), stable=True)
    is_new = hashes[1:] != hashes[:-1]
    start = torch.nn.functional.pad(is_new.nonzero().flatten() + 1, (1, 0))
    size = torch.nn.functional.pad(start[1:], (0, 1), value=total) - start
    are_few = len(start) <= min(DISTINCT, total // 64)
    smallest = 1 if are_few else max(HEAVY, total // DISTINCT)
    is_covered = size >= smallest
    hash_number = torch.nn.functional.pad(is_new.cumsum(dim=0), (1, 0))
    (covered,) = is_covered.nonzero(as_tuple=True)
    if not len(covered):
        return None
    first, by_first = torch.sort(order[start[covered]])
    covered = covered[by_first]
    vector_number = torch.full_like(start, -1, dtype=torch.int32)
    vector_number[covered] = torch.arange(len(covered), dtype=torch.int32, device=documents.device)
    vector = torch.empty(total, dtype=torch.int32, device=documents.device)
    vector[order] = vector_number[hash_number]
    duplicates = DuplicateVectors(
        first=first.int(),
        size=size[covered],
        start=start[covered],
        order=order.int(),
        vector=vector,
        rows=(vector >= 0).nonzero().flatten().int(),
        other_rows=(vector < 0).nonzero().flatten().int(),
        longest=lengths_of(documents[first]).amax(dim=0, keepdim=True),
        is_repeated=is_repeated,
    )
    status = torch.zeros(1, dtype=torch.int32, device=documents.device)
    check_duplicates(documents, duplicates, status)  # different vectors may share a hash
    if bool(status):
        return None
    with _LOCK:
        _KNOWN[tensor_key(documents)] = duplicates
        while len(_KNOWN) > KEPT:
            _KNOWN.popitem(last=False)
    return duplicates


@functools.lru_cache(maxsize=16)
def _weights(dimensions: int, device: Any) -> Any:
    """Return random weights (D,) int64 of a fixed seed."""
    weights = torch.empty(dimensions, dtype=torch.int64, device="cpu")
    return weights.random_(generator=torch.Generator("cpu").manual_seed(1)).to(device)


def _hashes(documents: Any) -> Any:
    """Return weighted sums (N,) int64 of each vector's bits: equal vectors have equal sums."""
    weights = _weights(documents.shape[1], documents.device)
    if not compiled(documents):
        bits = [(part.float() + 0.0).view(torch.int32) for part in documents.split(STEP)]
        return torch.cat([((part ^ (part >> 16)) * weights).sum(dim=1) for part in bits])
    hashes = torch.empty(len(documents), dtype=torch.int64, device=documents.device)
    kernels.hash_kernel[(triton.cdiv(len(documents), 16),)](
        documents,
        weights,
        hashes,
        *documents.shape,
        documents.stride(0),
        ROWS=16,
        WIDE=128,
        num_warps=4,
    )
    return hashes


def check_duplicates(documents: Any, duplicates: DuplicateVectors, status: Any) -> None:
    """Set status[0] if a covered document is no longer its vector, or not finite."""
    rows = duplicates.rows
    if not compiled(documents):
        for part in rows.split(STEP):
            vectors = documents[part]
            expected = documents[duplicates.first[duplicates.vector[part]]]
            if not (torch.equal(vectors, expected) and vectors.isfinite().all()):
                status[0] = 1
        return
    kernels.compare_kernel[(triton.cdiv(len(rows), 16),)](
        documents,
        rows,
        duplicates.vector,
        duplicates.first,
        status,
        len(rows),
        documents.shape[1],
        documents.stride(0),
        ROWS=16,
        WIDE=128,
        num_warps=4,
    )


@dataclass(frozen=True, slots=True)
class Members:
    """The keys of each query after those of the copies of its best vectors were appended."""

    counts: Any  # (Q,) int32 keys
    last: Any  # (Q,) score of the last vector that was needed, ordered as in keys
    left_out: Any  # (Q,) documents with that score that have no key


def append_members(
    duplicates: DuplicateVectors,
    best: Any,
    k: int,
    *,
    threshold: Any,
    keys: Any,
    counts: Any,
    status: Any,
) -> Members:
    """Append to keys (Q, capacity) those of the copies of its best vectors.

    The keys begin with one for each vector, of its first document; `best` holds the largest of
    these, and `counts` (Q,) says how many keys there are. Vectors below `threshold` (Q,) are
    skipped. Sets status[0] if 2 k keys or more are needed.

    If r documents are still missing where several vectors tie, at most r + 1 − j of the j-th vector
    (by first document) can be among the k best: every vector before it has an earlier document.
    """
    if not compiled(keys):
        return _append_members_in_torch(
            duplicates, best, k, threshold=threshold, keys=keys, counts=counts, status=status
        )
    count, capacity = keys.shape
    last, left_out = torch.empty((2, count), dtype=torch.int64, device=keys.device)
    new_counts = torch.empty_like(counts)
    block = max(16, triton.next_power_of_2(best.shape[1]))
    tile = max(1, min(128, (1 << 14) // block))
    kernels.members_kernel[(min(8, triton.cdiv(capacity, tile)), count)](
        best,
        threshold,
        duplicates.vector,
        duplicates.size,
        duplicates.start,
        duplicates.order,
        counts,
        keys,
        new_counts,
        last,
        left_out,
        status,
        k,
        best.shape[1],
        best.stride(0),
        len(duplicates.first),
        capacity,
        BLOCK=block,
        TILE=tile,
        num_warps=4,
    )
    return Members(new_counts, last, left_out)


def _append_members_in_torch(
    duplicates: DuplicateVectors,
    best: Any,
    k: int,
    *,
    threshold: Any,
    keys: Any,
    counts: Any,
    status: Any,
) -> Members:
    """Do the work of `append_members` in plain torch, in place."""
    count, capacity = keys.shape
    ordered, vectors = best >> 32, duplicates.vector[open_keys(best)[1]]
    reaches_threshold = open_keys(best)[0] >= threshold[:, None]
    size = torch.where(reaches_threshold, duplicates.size[vectors], 0)
    last_needed = (size.cumsum(dim=1) < k).sum(dim=1, keepdim=True).clamp_(max=best.shape[1] - 1)
    last = ordered.gather(1, last_needed)
    missing = k - torch.where(ordered > last, size, 0).sum(dim=1, keepdim=True)
    is_tied = ordered == last
    limit = torch.where(
        is_tied, missing + 1 - is_tied.cumsum(dim=1), torch.where(ordered > last, k, 0)
    )
    candidates = torch.minimum(size, limit.clamp_(min=0))
    appended = (candidates - 1).clamp_(min=0)  # the first document has its key already
    ends = appended.cumsum(dim=1)
    slot = torch.arange(capacity, device=keys.device).repeat(count, 1) - counts[:, None]
    place = torch.searchsorted(ends, slot, right=True).clamp_(max=ends.shape[1] - 1)
    member = slot + 1 + (duplicates.start[vectors] - ends + appended).gather(1, place)
    rows = duplicates.order[member.clamp_(0, len(duplicates.order) - 1)].long()
    member_keys = (ordered.gather(1, place) << 32) | (0xFFFFFFFF - rows)
    vector_keys = keys[:, : len(duplicates.first)]
    tied_members = torch.where(vector_keys >> 32 == last, duplicates.size - 1, 0).sum(dim=1)
    keys.copy_(torch.where((slot >= 0) & (slot < ends[:, -1:]), member_keys, keys))
    counts.add_(ends[:, -1])
    status[0] = (candidates.sum(dim=1) >= 2 * k).any()
    left_out = tied_members - torch.where(is_tied, appended, 0).sum(dim=1)
    return Members(counts, last[:, 0], left_out)


def rank_all_documents(
    duplicates: DuplicateVectors, keys: Any, k: int, step: int
) -> tuple[Any, Any]:
    """Return the k largest keys and the ties outside them, where every document is covered.

    `keys` (Q, U) hold the score of each vector; `step` queries are ranked at a time.
    """
    rows = 0xFFFFFFFF - torch.arange(len(duplicates.vector), device=keys.device)
    keys = keys >> 32 << 32
    best = torch.cat(
        [torch.topk(part[:, duplicates.vector] | rows, k).values for part in keys.split(step)]
    )
    last = best[:, -1:] >> 32 << 32
    ties = torch.where(keys == last, duplicates.size, 0).sum(dim=1)
    return best, ties - (best >= last).sum(dim=1) + (best > (last | 0xFFFFFFFF)).sum(dim=1)
