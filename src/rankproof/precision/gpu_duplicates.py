"""Documents that are the same vector: found once, checked at every use, and summed once per vector.

Where many documents tie since they are one vector, a search sums that vector once and then lists
its documents. Which documents those are is remembered for the next search of the same tensor. The
tensor may have been written to in between, so `check_duplicates` compares each of them again.
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
DISTINCT = 1 << 14  # vectors summed for their documents: no more than this, and one in 64 documents
HEAVY = 512  # with more vectors, only those of at least so many documents are
KEPT = 3  # tensors whose duplicates are remembered


@dataclass(frozen=True, slots=True, eq=False)
class DuplicateVectors:
    """Which documents of a tensor were the same vector when it was last examined.

    It covers all vectors where there are few different ones, else those of many documents.
    """

    first: Any  # (U,) int32 the first document of each vector, ascending
    size: Any  # (U,) documents of each vector
    start: Any  # (U,) where the documents of each vector begin in `order`
    order: Any  # (N,) int32 documents, those of a vector together and ascending
    vector: Any  # (N,) int32 the number of each document's vector, -1 where it is not covered
    rows: Any  # int32 the documents that are covered
    other_rows: Any  # int32 the documents that are not
    longest: Any  # (1,) the length of the longest vector
    is_repeated: bool  # the tensor was examined a second time, since other vectors tied

    @property
    def has_others(self) -> bool:
        """True if some documents are not covered."""
        return len(self.other_rows) > 0

    def room(self, k: int) -> int:
        """Return how many keys per query to allow for: each vector's, and those of its members."""
        distinct = len(self.first)
        return distinct + min(distinct * k, k * (k + 1) // 2, 2 * k + 1024)


_LOCK = threading.Lock()
_KNOWN: OrderedDict[Any, DuplicateVectors] = OrderedDict()


def tensor_key(documents: Any) -> Any:
    """Return what identifies a tensor, its memory and shape, but not its content."""
    return (
        documents.data_ptr(),
        documents.shape,
        documents.stride(0),
        documents.device,
        documents.dtype,
    )


def known_duplicates(documents: Any) -> DuplicateVectors | None:
    """Return what `find_duplicates` remembers of this tensor."""
    return _KNOWN.get(tensor_key(documents))


def forget(documents: Any = None) -> None:
    """Drop what is remembered, of this tensor or of all."""
    with _LOCK:
        if documents is None:
            _KNOWN.clear()
        else:
            _KNOWN.pop(tensor_key(documents), None)


def find_duplicates(documents: Any, is_repeated: bool = False) -> DuplicateVectors | None:
    """Find and remember documents that are the same vector.

    None where there are many vectors, each of few documents.
    """
    total = len(documents)
    hashes, order = torch.sort(_hashes(documents), stable=True)
    is_new = hashes[1:] != hashes[:-1]
    start = torch.nn.functional.pad(is_new.nonzero().flatten() + 1, (1, 0))
    size = torch.nn.functional.pad(start[1:], (0, 1), value=total) - start
    are_few = len(start) <= min(DISTINCT, total // 64)
    is_covered = size >= (1 if are_few else max(HEAVY, total // DISTINCT))
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
    """Return random weights (D,) int64, always the same ones."""
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


def append_members(
    duplicates: DuplicateVectors, best: Any, k: int, bar: Any, keys: Any, counts: Any, status: Any
) -> tuple[Any, Any, Any]:
    """Append to keys (Q, room) those of the documents of the best vectors that reach the bar.

    The keys begin with one for each vector, of its first document; `best` holds the largest of
    these, and `counts` (Q,) says how many keys there are. Returns (Q,) how many there are now, the
    score of the last of these vectors as in keys, and how many of their documents with that score
    are left out. Sets status[0] where the documents are many more than k.

    If r documents are still wanted where several vectors tie, at most r + 1 − j of the j-th vector
    (by first document) can be among them: every vector before it has an earlier document.
    """
    count, room = keys.shape
    distinct = len(duplicates.first)
    if compiled(keys):
        last, left_out = torch.empty((2, count), dtype=torch.int64, device=keys.device)
        new_counts = torch.empty_like(counts)
        block = max(16, triton.next_power_of_2(best.shape[1]))
        tile = max(1, min(128, (1 << 14) // block))
        kernels.members_kernel[(min(8, triton.cdiv(room, tile)), count)](
            best,
            bar,
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
            distinct,
            room,
            BLOCK=block,
            TILE=tile,
            num_warps=4,
        )
        return new_counts, last, left_out
    ordered, vectors = best >> 32, duplicates.vector[open_keys(best)[1]]
    reaches_bar = open_keys(best)[0] >= bar[:, None]
    size = torch.where(reaches_bar, duplicates.size[vectors], 0)
    last_needed = (size.cumsum(dim=1) < k).sum(dim=1, keepdim=True).clamp_(max=best.shape[1] - 1)
    last = ordered.gather(1, last_needed)
    wanted = k - torch.where(ordered > last, size, 0).sum(dim=1, keepdim=True)
    is_tied = ordered == last
    limit = torch.where(
        is_tied, wanted + 1 - is_tied.cumsum(dim=1), torch.where(ordered > last, k, 0)
    )
    taken = torch.minimum(size, limit.clamp_(min=0))
    appended = (taken - 1).clamp_(min=0)  # the first document has its key already
    ends = appended.cumsum(dim=1)
    slot = torch.arange(room, device=keys.device).repeat(count, 1) - counts[:, None]
    place = torch.searchsorted(ends, slot, right=True).clamp_(max=ends.shape[1] - 1)
    member = slot + 1 + (duplicates.start[vectors] - ends + appended).gather(1, place)
    rows = duplicates.order[member.clamp_(0, len(duplicates.order) - 1)].long()
    member_keys = (ordered.gather(1, place) << 32) | (0xFFFFFFFF - rows)
    vector_keys = keys[:, :distinct]
    tied_members = torch.where(vector_keys >> 32 == last, duplicates.size - 1, 0).sum(dim=1)
    keys.copy_(torch.where((slot >= 0) & (slot < ends[:, -1:]), member_keys, keys))
    counts.add_(ends[:, -1])
    status[0] = (taken.sum(dim=1) >= 2 * k).any()
    left_out = tied_members - torch.where(is_tied, appended, 0).sum(dim=1)
    return counts, last[:, 0], left_out


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
