"""Exact top-k on a GPU: a product finds what can win, and the fixed sum of fixed.py scores it.

Sorting every score would cost more than the product that makes them. Instead a sample of the
documents gives each query a bar that about three times k documents reach; blocks of scores are
made, compared with the bar while they are still in the cache, and the few that can reach it are
kept as 64-bit keys (score above document number). Those whose bounds reach the k-th best lower
bound are summed again in float64, lane by lane as on the CPU. Whether the bar lay low enough is
checked, so the result is exact for any data; where it did not, that query is done again the slow
way. Without Triton, or without a GPU, plain torch does the same.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

from rankproof.scoring.fixed import GPU, LANES
from rankproof.scoring.formats import SHAPES
from rankproof.scoring.topk import TopK

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

SAMPLE = 16_384  # documents that set the bar
SPARE = 3  # times k documents are meant to reach it
BLOCK_CELLS = 1 << 26  # scores made at a time
PAIRS = 1 << 18  # documents summed at a time
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


@dataclass(frozen=True, slots=True)
class _Slack:
    """`fixed.Slack` as tensors."""

    factor: Any  # (Q,)
    extra: Any  # (Q,)
    lengths: Any  # (N,)

    @classmethod
    def of(cls, queries: Any, documents: Any) -> _Slack:
        """For any order of sums, on tensor cores too."""
        dimensions = queries.shape[1]
        steps, tiny = (dimensions + 8) * GPU, 2.0**-124 * (dimensions + 8)
        # What float32 squares may lose: to rounding, and below the smallest normal number.
        most, least = 1 + 2 * steps, dimensions**0.5 * 2.0**-62
        asked, lengths = (
            torch.linalg.vector_norm(x, dim=1, dtype=torch.float32) * most + least
            for x in (queries, documents)
        )
        unsafe = lengths.double() * max(1.0, float(asked.max())) >= 2.0**126
        factor = asked.double() * (steps / (1 - steps) if steps < 0.5 else torch.inf) + tiny
        extra = tiny * (1 + asked.double())
        return cls(
            (factor * (1 + 2.0**-20)).float(),
            (extra * (1 + 2.0**-20)).float(),
            torch.where(unsafe, torch.inf, lengths),
        )

    def __getitem__(self, queries: Any) -> _Slack:
        return _Slack(self.factor[queries], self.extra[queries], self.lengths)

    def bounds(self, scores: Any, lengths: Any, form: Any) -> tuple[Any, Any]:
        """Below and above the scores (Q, B) that the fixed sum and the format make of these."""
        away = self.factor.double()[:, None] * lengths + self.extra.double()[:, None]
        low, high = (scores - away).float(), (scores + away).float()
        low = torch.where(low.isnan(), -torch.inf, low)
        high = torch.where(high.isnan(), torch.inf, high)
        return low.to(form).float(), high.to(form).float()

    def edge(self, bar: Any, form: Any) -> Any:
        """(Q,) a number below every product whose score can reach the bar, but for its length."""
        bits, _, least, most, _ = SHAPES[str(form).removeprefix("torch.")]
        edge = bar.double()
        if bits < 24:
            below = edge - edge.abs() * 2.0 ** (1 - bits) - least
            edge = torch.where(edge > most, most, below)
        edge = (edge - self.extra).float()
        return torch.nextafter(edge, torch.full_like(edge, -torch.inf))


def _search(queries: Any, documents: Any, k: int, low: bool, cells: int) -> tuple[Any, Any]:
    count, total = len(queries), len(documents)
    k = min(k, total)
    form = queries.dtype if low else torch.float32
    slack = _Slack.of(queries, documents)
    if total < 4 * max(SAMPLE, SPARE * k):
        return _merge(queries, documents, k, slack, form, cells)
    bar = _bar(queries, documents, k).to(form).float()
    room = 2 * SPARE * k
    keys = torch.full((count, room), _EMPTY, dtype=torch.int64, device=queries.device)
    reached = torch.zeros(count, dtype=torch.int32, device=queries.device)
    step = max(1024, cells // count)
    edge = slack.edge(bar, form)
    for first in range(0, total, step):
        scores = product(queries, documents[first : first + step])
        _filter(scores, edge, slack, keys, reached, first)
    held = keys != _EMPTY
    scores, rows = open_keys(keys)
    rows = torch.where(held, rows, 0)
    below, above = slack.bounds(scores, slack.lengths[rows], form)
    below = torch.where(held, below, -torch.inf)
    sure = torch.topk(below, k, dim=1).values[:, -1]
    # Off the bar: not k are sure to reach it, or more do than there is room for (equal scores).
    off = (reached < k) | (reached > room) | ~(sure >= bar)
    asked, place = (held & (above >= sure[:, None]) & ~off[:, None]).nonzero(as_tuple=True)
    found = rows[asked, place]
    keys.fill_(_EMPTY)
    exact = pairs(queries, documents, asked, found).to(form)
    keys[asked, place] = _keys_of(exact, found)
    best, cut = _settle(keys, k)
    again = off.nonzero().flatten()
    if len(again):
        best[again], cut[again] = _merge(queries[again], documents, k, slack[again], form, cells)
    return best, cut


def product(queries: Any, documents: Any) -> Any:
    """(Q, B) float32 scores straight from low operands, no upcast copy of them.

    A setting by which torch rounds the operands first, or sums in float16, would put them beyond
    the slack; then float64 makes them, whatever the setting.
    """
    if _coarse(queries.dtype):
        return torch.mm(queries.double(), documents.T.double()).float()
    if queries.dtype == torch.float32:
        return torch.mm(queries, documents.T)
    if queries.is_cuda:
        return torch.mm(queries, documents.T, out_dtype=torch.float32)
    return torch.mm(queries.float(), documents.T.float())


def _coarse(form: Any) -> bool:
    """Whether torch has been told to multiply less precisely than the format allows."""
    cuda = torch.backends.cuda.matmul
    if form == torch.float16 and getattr(cuda, "allow_fp16_accumulation", False):
        return True
    if form != torch.float32:
        return False
    try:
        told = [
            getattr(cuda, "fp32_precision", "none"),
            getattr(torch.backends, "fp32_precision", "none"),
            torch.get_float32_matmul_precision(),
        ]
    except RuntimeError:  # the old way to tell and the new one disagree
        return True
    return not set(told) <= {"none", "ieee", "highest"}


def _bar(queries: Any, documents: Any, k: int) -> Any:
    """(Q,) a score that about SPARE · k documents reach."""
    total = len(documents)
    chosen = torch.arange(SAMPLE, device=documents.device) * total // SAMPLE
    scores = product(queries, documents[chosen])
    place = max(32, -(-SPARE * k * SAMPLE // total))
    return torch.topk(scores, place, dim=1, sorted=True).values[:, -1].contiguous()


# --------------------------------------------------------------------------- the fixed sum, there


def pairs(queries: Any, documents: Any, asked: Any, rows: Any) -> Any:
    """(P,) float32 the fixed sums of queries[asked] with documents[rows]."""
    sums = _sums(queries, documents, asked, rows)
    return sums.float() + 0.0  # −0 and 0 are one score


def unit(values: Any) -> Any:
    """float32 vectors (n, D) at length 1, rounded once; one of zeros stays."""
    every = torch.arange(len(values), device=values.device)
    length = _sums(values, values, every, every).sqrt()
    length = torch.where(length > 0, length, 1.0)
    out = torch.empty(values.shape, dtype=torch.float32, device=values.device)
    for first in range(0, len(values), PAIRS):
        some = slice(first, first + PAIRS)
        out[some] = (values[some].double() / length[some, None]).float()
    return out


def matrix(queries: Any, documents: Any) -> Any:
    """(Q, N) float32 the scores of all pairs; see `fixed.matrix`."""
    scores = torch.empty((len(queries), len(documents)), device=queries.device)
    wide = queries.double()
    reach = wide.square().sum(dim=1).sqrt() * ((queries.shape[1] + 8) * 2.0**-51)
    step = max(1, BLOCK_CELLS // max(4, 4 * len(queries), 4 * queries.shape[1]))
    for first in range(0, len(documents), step):
        some = documents[first : first + step].double()
        made = wide @ some.T
        away = reach[:, None] * some.square().sum(dim=1).sqrt()
        low, high = (made - away).float(), (made + away).float()
        asked, rows = (low != high).nonzero(as_tuple=True)
        low += 0.0
        low[asked, rows] = pairs(queries, documents, asked, rows + first)
        scores[:, first : first + step] = low
    return scores


def _sums(queries: Any, documents: Any, asked: Any, rows: Any) -> Any:
    """(P,) float64."""
    sums = torch.empty(len(asked), dtype=torch.float64, device=queries.device)
    compiled = triton is not None and queries.is_cuda
    step = PAIRS if compiled else max(1, PAIRS * LANES // max(LANES, queries.shape[1]))
    for first in range(0, len(asked), step):
        some = slice(first, first + step)
        lanes = (_lanes if compiled else _lanes_plain)(queries, documents, asked[some], rows[some])
        half = LANES // 2
        while half:
            lanes = lanes[:, :half] + lanes[:, half:]
            half //= 2
        sums[some] = lanes[:, 0]
    return sums


def _lanes_plain(queries: Any, documents: Any, asked: Any, rows: Any) -> Any:
    """(P, LANES) float64: product i in lane i mod LANES, in order."""
    products = queries[asked].double() * documents[rows].double()
    lanes = torch.zeros((len(asked), LANES), dtype=torch.float64, device=queries.device)
    for first in range(0, products.shape[1], LANES):
        some = products[:, first : first + LANES]
        lanes[:, : some.shape[1]] += some
    return lanes


def _lanes(queries: Any, documents: Any, asked: Any, rows: Any) -> Any:
    count = len(asked)
    lanes = torch.empty((count, LANES), dtype=torch.float64, device=queries.device)
    if queries.stride(1) != 1 or documents.stride(1) != 1:
        queries, documents = queries.contiguous(), documents.contiguous()
    if count:
        _lanes_kernel[(triton.cdiv(count, _TILE),)](
            *(queries, documents, asked, rows, lanes, count, queries.shape[1]),
            *(queries.stride(0), documents.stride(0)),
            TILE=_TILE,
            LANES=LANES,
            num_warps=4,
        )
    return lanes


# ---------------------------------------------------------------------------------------- keys


def _keys_of(scores: Any, rows: Any) -> Any:
    """Keys of scores and document numbers: the larger is better."""
    bits = (scores.float() + 0.0).view(torch.int32)  # −0 and 0 are one score
    ordered = torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(torch.int64)
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


def _merge(
    queries: Any, documents: Any, k: int, slack: _Slack, form: Any, cells: int
) -> tuple[Any, Any]:
    """The slow way: the k best so far beside each new block, all of it summed that can win."""
    best: Any = None
    cut = torch.zeros(len(queries), dtype=torch.int64, device=queries.device)
    step = max(k, cells // (8 * max(1, len(queries))))
    for first in range(0, len(documents), step):
        some = documents[first : first + step]
        lengths = slack.lengths[first : first + step]
        low, high = slack.bounds(product(queries, some), lengths, form)
        bar = torch.full_like(low[:, 0], -torch.inf)
        if best is not None and best.shape[1] == k:
            bar = open_keys(best[:, -1])[0]
        if low.shape[1] >= k:
            bar = torch.maximum(bar, torch.topk(low, k, dim=1).values[:, -1])
        reach = high >= bar[:, None]
        asked, place = (reach & (low != high)).nonzero(as_tuple=True)
        low[asked, place] = pairs(queries, some, asked, place).to(form).float()
        rows = torch.arange(first, first + len(some), device=queries.device)
        keys = torch.where(reach, _keys_of(low, rows), _EMPTY)
        if best is not None:
            keys = torch.cat([best, keys], dim=1)
        fresh, left = _settle(keys, min(k, keys.shape[1]))
        if best is not None and best.shape[1] == k:  # documents left out before may still tie
            left = left + torch.where(fresh[:, -1] >> 32 == best[:, -1] >> 32, cut, 0)
        best, cut = fresh, left
    return best, cut


def _filter(scores: Any, edge: Any, slack: _Slack, keys: Any, reached: Any, first: int) -> None:
    """Append the keys of what can reach the bar to the row of each query, in any order."""
    width = scores.shape[1]
    lengths = slack.lengths[first : first + width]
    if triton is None or not scores.is_cuda:
        passes = ~(scores + slack.factor[:, None] * lengths < edge[:, None])
        place = reached[:, None] + passes.cumsum(dim=1) - 1
        rows = torch.arange(first, first + width, device=scores.device)
        asked, column = (passes & (place < keys.shape[1])).nonzero(as_tuple=True)
        keys[asked, place[asked, column]] = _keys_of(scores, rows)[asked, column]
        reached += passes.sum(dim=1, dtype=torch.int32)
        return
    grid = (triton.cdiv(width, _CHUNK * _CHUNKS), len(scores))
    _filter_kernel[grid](
        *(scores, edge, slack.factor, lengths, keys, reached),
        *(first, width, scores.stride(0), keys.shape[1]),
        CHUNK=_CHUNK,
        CHUNKS=_CHUNKS,
        num_warps=2,
    )


_CHUNK, _CHUNKS = 1024, 16  # the fastest of a sweep on an H200
_TILE = 16  # pairs summed together

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _filter_kernel(  # type: ignore[no-untyped-def]
        scores,
        edge,
        factors,
        lengths,
        keys,
        reached,
        first,
        width,
        stride,
        room,
        CHUNK: tl.constexpr,
        CHUNKS: tl.constexpr,
    ):
        """Few reach the bar, so each takes its place with an atomic of its own; a prefix sum over
        the chunk would make every lane wait for the others.
        """
        query = tl.program_id(1).to(tl.int64)
        limit = tl.load(edge + query)
        factor = tl.load(factors + query)
        for chunk in tl.range(CHUNKS):
            column = (tl.program_id(0) * CHUNKS + chunk) * CHUNK + tl.arange(0, CHUNK)
            inside = column < width
            score = tl.load(scores + query * stride + column, mask=inside, other=0.0)
            length = tl.load(lengths + column, mask=inside, other=0.0)
            passes = inside & ((score + factor * length < limit) == 0)  # NaN may be anything
            counter = reached + query + tl.zeros([CHUNK], tl.int32)
            place = tl.atomic_add(counter, 1, mask=passes, sem="relaxed")
            bits = (score + 0.0).to(tl.int32, bitcast=True)
            ordered = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(tl.int64)
            key = (ordered << 32) | (0xFFFFFFFF - (first + column).to(tl.int64))
            tl.store(keys + query * room + place, key, mask=passes & (place < room))

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def _lanes_kernel(  # type: ignore[no-untyped-def]
        queries,
        documents,
        asked,
        rows,
        lanes,
        count,
        dimensions,
        query_stride,
        document_stride,
        TILE: tl.constexpr,
        LANES: tl.constexpr,
    ):
        """Products are exact in float64, so that a fused addition gives the same bits."""
        pair = tl.program_id(0) * TILE + tl.arange(0, TILE)
        inside = pair < count
        query = queries + tl.load(asked + pair, mask=inside, other=0)[:, None] * query_stride
        document = documents + tl.load(rows + pair, mask=inside, other=0)[:, None] * document_stride
        lane = tl.arange(0, LANES)
        sums = tl.zeros([TILE, LANES], tl.float64)
        for first in tl.range(0, dimensions, LANES):
            column = (first + lane)[None, :]
            mask = inside[:, None] & (column < dimensions)
            a = tl.load(query + column, mask=mask, other=0.0).to(tl.float64)
            b = tl.load(document + column, mask=mask, other=0.0).to(tl.float64)
            sums += a * b
        tl.store(lanes + pair[:, None] * LANES + lane[None, :], sums, mask=inside[:, None])
