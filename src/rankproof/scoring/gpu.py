"""Exact top-k on a GPU: a product with float32 results, and a filter that keeps what can win.

Sorting every score would cost more than the product that makes them. Instead a sample of the
documents gives each query a bar that about three times k documents reach; blocks of scores are
made, compared with the bar while they are still in the cache, and the few that reach it are kept
as 64-bit keys (score above document number). One sort of the keys gives the k best. Whether at
least k reached the bar is checked, so the result is exact for any data; where the bar was off,
that query is done again the slow way.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

from rankproof.scoring.topk import TopK

try:
    import triton
    import triton.language as tl
except ImportError:  # a GPU without Triton: the slow way serves everything
    triton = None

SAMPLE = 16_384  # documents that set the bar
SPARE = 3  # times k documents are meant to reach it
BLOCK_CELLS = 1 << 26  # scores made at a time
_EMPTY = torch.iinfo(torch.int64).min


def top_k(queries: Any, documents: Any, k: int, *, low: bool = False) -> TopK:
    """The k best documents of each query by product; see `keys_of_best`."""
    keys, cut = keys_of_best(queries, documents, k, low=low)
    scores, rows = open_keys(keys)
    return TopK(scores.cpu().numpy(), rows.cpu().numpy(), cut.cpu().numpy())


def keys_of_best(queries: Any, documents: Any, k: int, *, low: bool = False) -> tuple[Any, Any]:
    """Keys (Q, k) from best to worst, and how many documents left out tie with the last (Q,).

    `low` rounds each score to the format of the operands, as scoring wholly in it does. Blocks
    are halved, with a warning, as long as memory does not suffice.
    """
    cells = BLOCK_CELLS
    while True:
        try:
            return _search(queries, documents, k, low, cells)
        except torch.cuda.OutOfMemoryError:
            cells //= 2
            if cells < 1 << 16:
                raise
            torch.cuda.empty_cache()
            warnings.warn(
                f"out of GPU memory: going on with blocks of {cells:,} scores", stacklevel=2
            )


def _search(queries: Any, documents: Any, k: int, low: bool, cells: int) -> tuple[Any, Any]:
    count, total = len(queries), len(documents)
    k = min(k, total)
    if triton is None or total < 4 * max(SAMPLE, SPARE * k):
        return _merge(queries, documents, k, low, cells)
    bar = _bar(queries, documents, k, low)
    room = 2 * SPARE * k
    keys = torch.full((count, room), _EMPTY, dtype=torch.int64, device=queries.device)
    reached = torch.zeros(count, dtype=torch.int32, device=queries.device)
    step = max(1024, cells // count)
    for first in range(0, total, step):
        scores = product(queries, documents[first : first + step], low)
        _filter(scores, bar, keys, reached, first)
    best, cut = _settle(keys, k)
    # Off the bar: too few reached it, or more than there is room for (many equal scores).
    again = ((reached < k) | (reached > room)).nonzero().flatten()
    if len(again):
        best[again], cut[again] = _merge(queries[again], documents, k, low, cells)
    return best, cut


def product(queries: Any, documents: Any, low: bool) -> Any:
    """(Q, B) scores; float32 straight from low operands, no upcast copy of them."""
    narrow = queries.dtype in (torch.bfloat16, torch.float16)
    if low or not narrow:
        return torch.mm(queries, documents.T)
    if queries.is_cuda:
        return torch.mm(queries, documents.T, out_dtype=torch.float32)
    return torch.mm(queries.float(), documents.T.float())


def _bar(queries: Any, documents: Any, k: int, low: bool) -> Any:
    """(Q,) a score that about SPARE · k documents reach."""
    total = len(documents)
    chosen = torch.arange(SAMPLE, device=documents.device) * total // SAMPLE
    scores = product(queries, documents[chosen], low).float()
    place = max(32, -(-SPARE * k * SAMPLE // total))
    return torch.topk(scores, place, dim=1, sorted=True).values[:, -1].contiguous()


def close_keys(scores: Any, first: int) -> Any:
    """Keys (Q, B) of the scores of documents first, first + 1, …"""
    bits = (scores.float() + 0.0).view(torch.int32)  # −0 and 0 are one score
    ordered = torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(torch.int64)
    rows = torch.arange(first, first + scores.shape[1], device=scores.device)
    return (ordered << 32) | (0xFFFFFFFF - rows)


def open_keys(keys: Any) -> tuple[Any, Any]:
    """Scores (float32) and document numbers of keys."""
    ordered = (keys >> 32).to(torch.int32)
    bits = torch.where(ordered >= 0, ordered, ordered ^ 0x7FFFFFFF)
    return bits.view(torch.float32), 0xFFFFFFFF - (keys & 0xFFFFFFFF)


def _settle(keys: Any, k: int) -> tuple[Any, Any]:
    """The k largest keys in order, and how many others have the score of the last."""
    best = torch.topk(keys, k, dim=1, sorted=True).values
    bar = best[:, -1:] >> 32
    cut = ((keys >> 32) == bar).sum(dim=1) - ((best >> 32) == bar).sum(dim=1)
    return best, cut


def _merge(queries: Any, documents: Any, k: int, low: bool, cells: int) -> tuple[Any, Any]:
    """The slow way: the k best so far beside each new block."""
    best: Any = None
    cut = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    step = max(k, cells // (4 * max(1, len(queries))))
    for first in range(0, len(documents), step):
        keys = close_keys(product(queries, documents[first : first + step], low), first)
        if best is not None:
            keys = torch.cat([best, keys], dim=1)
        fresh, left = _settle(keys, min(k, keys.shape[1]))
        if best is not None and best.shape[1] == k:  # documents left out before may still tie
            left = left + torch.where(fresh[:, -1] >> 32 == best[:, -1] >> 32, cut, 0)
        best, cut = fresh, left
    return best, cut


def _filter(scores: Any, bar: Any, keys: Any, reached: Any, first: int) -> None:
    width = scores.shape[1]
    grid = (triton.cdiv(width, _CHUNK * _CHUNKS), len(scores))
    _filter_kernel[grid](
        *(scores, bar, keys, reached, first, width, scores.stride(0), keys.shape[1]),
        CHUNK=_CHUNK,
        CHUNKS=_CHUNKS,
        num_warps=2,
    )


_CHUNK, _CHUNKS = 1024, 16  # the fastest of a sweep on an H200

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _filter_kernel(  # type: ignore[no-untyped-def]
        scores,
        bar,
        keys,
        reached,
        first,
        width,
        stride,
        room,
        CHUNK: tl.constexpr,
        CHUNKS: tl.constexpr,
    ):
        """Append the keys of scores that reach the bar to their query's row, in any order.

        Few do, so each takes its place with an atomic of its own; a prefix sum over the chunk
        would make every lane wait for the others.
        """
        query = tl.program_id(1).to(tl.int64)
        limit = tl.load(bar + query)
        for chunk in tl.range(CHUNKS):
            column = (tl.program_id(0) * CHUNKS + chunk) * CHUNK + tl.arange(0, CHUNK)
            score = tl.load(
                scores + query * stride + column, mask=column < width, other=-float("inf")
            ).to(tl.float32)
            passes = score >= limit
            counter = reached + query + tl.zeros([CHUNK], tl.int32)
            place = tl.atomic_add(counter, 1, mask=passes, sem="relaxed")
            bits = (score + 0.0).to(tl.int32, bitcast=True)
            ordered = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(tl.int64)
            key = (ordered << 32) | (0xFFFFFFFF - (first + column).to(tl.int64))
            tl.store(keys + query * room + place, key, mask=passes & (place < room))
