"""Documents that are the same vector: found once, compared at every use, and summed by vector.

Where many documents tie since they are one vector, a search sums that vector once and then lists
its documents. Which those are is kept for the next search of the same tensor; since anybody may
have written to it meanwhile, `compare` looks at each of them again.
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
DISTINCT = 1 << 14  # vectors at most, and one in 64 documents, that are all summed in their stead
HEAVY = 512  # documents at least of a vector that is summed in their stead where there are more
KEPT = 3  # tensors of which it is known


@dataclass(frozen=True, slots=True, eq=False)
class Same:
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

    def room(self, k: int) -> int:
        """How many of a query's keys there is room for: one for each vector, and its `members`."""
        distinct = len(self.first)
        return distinct + min(distinct * k, k * (k + 1) // 2, 2 * k + 1024)


_LOCK = threading.Lock()
_KNOWN: OrderedDict[Any, Same] = OrderedDict()


def where(documents: Any) -> Any:
    """What tells a tensor from others: not what it holds."""
    return (
        *(documents.data_ptr(), documents.shape, documents.stride(0)),
        *(documents.device, documents.dtype),
    )


def known(documents: Any) -> Same | None:
    """What `look` found before."""
    return _KNOWN.get(where(documents))


def forget(documents: Any = None) -> None:
    """What `look` found, of these documents or of all."""
    with _LOCK:
        if documents is None:
            _KNOWN.clear()
        else:
            _KNOWN.pop(where(documents), None)


def look(documents: Any, anew: bool = False) -> Same | None:
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
    same = Same(
        *(first.int(), size[here], start[here], order.int(), vector, rows, rest),
        *(lengths_of(documents[first]).amax(dim=0, keepdim=True), anew),
    )
    status = torch.zeros(1, dtype=torch.int32, device=documents.device)
    compare(documents, same, status)
    if bool(status):
        return None
    with _LOCK:
        _KNOWN[where(documents)] = same
        while len(_KNOWN) > KEPT:
            _KNOWN.popitem(last=False)
    return same


@functools.lru_cache(maxsize=16)
def _weights(dimensions: int, device: Any) -> Any:
    drawn = torch.empty(dimensions, dtype=torch.int64, device="cpu")
    return drawn.random_(generator=torch.Generator("cpu").manual_seed(1)).to(device)


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


def compare(documents: Any, same: Same, status: Any) -> None:
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


def members(
    same: Same, best: Any, k: int, bar: Any, keys: Any, reached: Any, status: Any
) -> tuple[Any, Any, Any]:
    """Append keys of documents of the best vectors that reach the bar to the keys (Q, room) there
    are, which begin with those of the first document of each. `best` are the largest of these,
    and `reached` (Q,) says how many keys there are.

    (Q,) how many there are now, the score of the last of these vectors, as in keys, and how many
    of their documents with it are left out. status[0] where they are many more than k.

    Of r documents that are still wanted where several vectors tie, the j-th of these, by its first
    document, has at most r + 1 - j: every vector before it has an earlier one.
    """
    count, room = keys.shape
    distinct = len(same.first)
    if compiled(keys):
        last, beyond = torch.empty((2, count), dtype=torch.int64, device=keys.device)
        now = torch.empty_like(reached)
        block = max(16, triton.next_power_of_2(best.shape[1]))
        tile = max(1, min(128, (1 << 14) // block))
        kernels.members_kernel[(min(8, triton.cdiv(room, tile)), count)](
            *(best, bar, same.vector, same.size, same.start, same.order, reached),
            *(keys, now, last, beyond, status),
            *(k, best.shape[1], best.stride(0), distinct, room),
            BLOCK=block,
            TILE=tile,
            num_warps=4,
        )
        return now, last, beyond
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
    slot = torch.arange(room, device=keys.device).repeat(count, 1) - reached[:, None]
    vector = torch.searchsorted(ends, slot, right=True).clamp_(max=ends.shape[1] - 1)
    place = slot + 1 + (same.start[which] - ends + rest).gather(1, vector)
    rows = same.order[place.clamp_(0, len(same.order) - 1)].long()
    found = (ordered.gather(1, vector) << 32) | (0xFFFFFFFF - rows)
    summed = keys[:, :distinct]
    beyond = torch.where(summed >> 32 == last, same.size - 1, 0).sum(dim=1)
    keys.copy_(torch.where((slot >= 0) & (slot < ends[:, -1:]), found, keys))
    reached.add_(ends[:, -1])
    status[0] = (taken.sum(dim=1) >= 2 * k).any()
    return reached, last[:, 0], beyond - torch.where(tied, rest, 0).sum(dim=1)


def spread(same: Same, keys: Any, k: int, step: int) -> tuple[Any, Any]:
    """The k largest keys and the ties left out, where all documents are of these vectors and have
    the scores in their keys (Q, U); so many queries at a time.
    """
    rows = 0xFFFFFFFF - torch.arange(len(same.vector), device=keys.device)
    keys = keys >> 32 << 32
    best = torch.cat(
        [torch.topk(some[:, same.vector] | rows, k).values for some in keys.split(step)]
    )
    last = best[:, -1:] >> 32 << 32
    ties = torch.where(keys == last, same.size, 0).sum(dim=1)
    return best, ties - (best >= last).sum(dim=1) + (best > (last | 0xFFFFFFFF)).sum(dim=1)
