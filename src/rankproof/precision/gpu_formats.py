"""Codes and 8-bit floating-point numbers on a GPU: the bits of formats.py and scorers.py, there.

Codes are whole numbers that bfloat16 holds, and float32 holds their sums, so that tensor cores give
the CPU's scores exactly; the scales follow in the same float32 operations. 8-bit floating-point
numbers are multiplied as bfloat16, which holds them, and summed as everywhere.
"""

from __future__ import annotations

from typing import Any

import torch

from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError
from rankproof.precision import fixed_sum, gpu_scores, gpu_search
from rankproof.precision.formats import FLOATS, Codes, Format
from rankproof.precision.scorers import as_seen
from rankproof.precision.topk import TopK

_WHOLE = 1 << 24  # float32 holds every whole number up to here
_CELLS = 1 << 26  # numbers of decoded documents held at a time


def encode(
    values: Any,
    form: Format,
    what: str = "documents",
    *,
    cosine: bool = False,
    exactly: bool = False,
) -> Codes:
    """`formats.encode` of a tensor (N, D), where it lies; at unit length for the cosine, but for
    that of what the format stores (`exactly`).

    Block by block, and then all at once, since a block's numbers take more room than its codes.
    """
    total, dimensions = values.shape
    step = max(1, _CELLS // max(1, dimensions))

    def blocks() -> Any:
        for first in range(0, total, step):
            block = _vectors(values[first : first + step], what, cosine, first, exactly)
            yield first, gpu_scores.storable(block, form) if exactly else block

    if form in FLOATS:
        made = [gpu_scores.cast(block, form) for _, block in blocks()]
        return Codes(form, _together(made, values), None, dimensions)
    if form == "bit":
        parts = [_bits(block) for _, block in blocks()]
    elif form == "int8_dimension":
        largest = torch.zeros((1, dimensions), dtype=torch.float32, device=values.device)
        for _, block in blocks():
            largest = torch.maximum(largest, block.abs().amax(dim=0, keepdim=True))
        scale = _over(largest, 127)
        parts = [(_whole(block, scale, 127), scale) for _, block in blocks()]
    else:
        parts = [_scaled(block, form) for _, block in blocks()]
    codes = _together([codes for codes, _ in parts], values)
    if form == "int8_dimension":
        return Codes(form, codes, scale, dimensions)
    return Codes(form, codes, _together([own for _, own in parts], values), dimensions)


def _together(parts: list[Any], values: Any) -> Any:
    if not parts:
        return torch.empty((0, values.shape[1]), dtype=torch.float32, device=values.device)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _vectors(block: Any, what: str, cosine: bool, first: int, exactly: bool) -> Any:
    """float32 vectors as they are multiplied; those that cannot be are refused."""
    block = block.float()
    lengths = gpu_scores.lengths_of(block)
    if not bool((torch.isfinite(lengths) & (lengths > 0)).all()):
        whole = torch.isfinite(block).all(dim=1)
        gpu_scores.refuse(~whole, "a number that is not finite", what, first)
        if cosine:
            gpu_scores.refuse(~block.any(dim=1), "a zero vector has no direction", what, first)
    return gpu_scores.unit(block) if cosine and not exactly else block


def _bits(block: Any) -> tuple[Any, Any]:
    dimensions = block.shape[1]
    ones = torch.ones((1, dimensions), dtype=torch.float32, device=block.device)
    rows = torch.arange(len(block), device=block.device)
    sums = gpu_scores.sums_of(ones, block.abs(), torch.zeros_like(rows), rows)
    signs = torch.nn.functional.pad((block > 0).byte(), (0, -dimensions % 8))
    places = 2 ** torch.arange(7, -1, -1, dtype=torch.uint8, device=block.device)
    packed = (signs.view(len(block), -1, 8) * places).sum(dim=2, dtype=torch.uint8)
    return packed, (sums / max(1, dimensions)).float()[:, None]


def _scaled(block: Any, form: str) -> tuple[Any, Any]:
    most = 7 if form == "int4" else 127
    scale = _over(block.abs().amax(dim=1, keepdim=True), most)
    codes = _whole(block, scale, most)
    if form == "int4":
        shifted = torch.nn.functional.pad(codes, (0, codes.shape[1] % 2)) + 8
        codes = (shifted[:, ::2] | (shifted[:, 1::2] << 4)).to(torch.uint8)
    return codes, scale


def _over(largest: Any, most: int) -> Any:
    """The scale: a division, rounded once, and the largest code stands for a finite number."""
    scale = largest / torch.tensor(most, dtype=torch.float32, device=largest.device)
    lower = torch.nextafter(scale, torch.zeros_like(scale))
    return torch.where(torch.isinf(scale * most), lower, scale)


def _whole(block: Any, scale: Any, most: int) -> Any:
    divisor = torch.where(scale > 0, scale, 1.0)
    return (block / divisor).round().clamp(-most, most).to(torch.int8)


def numbers(codes: Codes) -> Any:
    """(N, D) the codes as plain numbers in bfloat16, which holds them; see `Codes.numbers`."""
    held: Any = codes.codes
    if codes.format == "bit":
        places = torch.arange(7, -1, -1, device=held.device)
        bits = (held[:, :, None] >> places) & 1
        held = bits.flatten(1)[:, : codes.dimensions].to(torch.int8) * 2 - 1
    elif codes.format == "int4":
        both = torch.stack([held & 0x0F, held >> 4], dim=2).flatten(1)
        held = both[:, : codes.dimensions].to(torch.int8) - 8
    return held.to(torch.bfloat16)


def decode(codes: Codes) -> Any:
    """(N, D) float32 the vectors that the codes stand for."""
    plain = numbers(codes).float()
    return plain if codes.scale is None else plain * codes.scale


def best_of(
    queries: Array, codes: Codes, k: int, low: bool, cosine: bool = False
) -> tuple[Any, Any]:
    """Keys of the k best documents in the format, and the ties left out.

    See `gpu_search.keys_of_best`.

    `cosine` is that of `scorers.Scorer`.
    """
    there: Any = codes.codes.device
    form, by = codes.format, codes.scale
    seen, scale = as_seen(queries, form, None if by is None else by.cpu().numpy())  # type: ignore[attr-defined]
    exactly = cosine and form in FLOATS and not low
    if exactly:
        seen = fixed_sum.normalize(seen)
    asked = torch.from_numpy(seen).to(there)
    asked = asked if exactly else asked.to(torch.bfloat16)
    factor = None if scale is None else torch.from_numpy(scale).to(there)
    own = form in ("int8", "int4")
    name = form if low and form in FLOATS else "float32"
    lengths = gpu_scores.lengths_of(asked)

    def offer(first: int, last: int, bar: Any) -> tuple[Any, Any]:
        some = codes[first:last]
        vectors = numbers(some)
        if cosine and form in FLOATS:
            vectors = gpu_scores.unit(vectors.float())
            vectors = vectors if exactly else gpu_scores.cast(vectors, form).to(torch.bfloat16)
        if form in FLOATS:
            slack = gpu_scores.Slack.of(asked, lengths, gpu_scores.lengths_of(vectors))
            below, above = slack.bounds(gpu_scores.product(asked, vectors), name)
            return gpu_search.settled(
                *(below, above, k, bar),
                lambda *at: gpu_scores.rounded(gpu_scores.pairs(asked, vectors, *at), name),
            )
        scores = _sums(asked, vectors, form)
        if factor is not None:
            scores = scores * factor
        if cosine and form != "bit":
            scores = scores * _unit_scale(some)
        elif own:
            scores = scores * some.scale[:, 0]  # type: ignore[index]
        return scores, scores >= bar[:, None]

    step = max(
        k,
        min(gpu_scores.BLOCK_CELLS // (8 * max(1, len(asked))), _CELLS // max(1, codes.dimensions)),
    )
    return gpu_search.merged(offer, len(asked), len(codes), k, step, there)


def _unit_scale(codes: Codes) -> Any:
    """(n,) float32 the factor that codes leave out, at unit length; see `Scorer`."""
    vectors = decode(codes)
    every = torch.arange(len(vectors), device=vectors.device)
    length = gpu_scores.sums_of(vectors, vectors, every, every).sqrt()
    by: Any = codes.scale
    scale = by[:, 0].double() if codes.format in ("int8", "int4") else 1.0
    return (scale / torch.where(length > 0, length, 1.0)).float()


def _sums(queries: Any, documents: Any, form: str) -> Any:
    """(Q, n) sums of products of whole numbers, exact, rounded once to float32."""
    most = {"bit": 1, "int4": 7}.get(form, 127)
    step, dimensions = (_WHOLE - 1) // most**2, documents.shape[1]
    if dimensions <= step:
        return gpu_scores.product(queries, documents)
    total: Any = 0.0
    for first in range(0, dimensions, step):
        some = slice(first, first + step)
        total = total + gpu_scores.product(queries[:, some], documents[:, some]).double()
    return total.float()


def pairs(queries: Array, against: Any, rows: Any, *, cosine: bool = False) -> Any:
    """(Q, n) the fixed sums of each query with `rows` (Q, n) of what the codes, or the original
    vectors, say; at unit length for the cosine.
    """
    asked = torch.from_numpy(queries).to(rows.device)
    scores = torch.empty(rows.shape, dtype=torch.float32, device=rows.device)
    flat, out = rows.flatten(), scores.view(-1)
    owner = torch.arange(len(rows), device=rows.device).repeat_interleave(rows.shape[1])
    step = max(1, _CELLS // max(1, queries.shape[1]))
    for first in range(0, len(flat), step):
        some = flat[first : first + step]
        coded = isinstance(against, Codes)
        vectors = decode(against[some]) if coded else against[some].float()
        vectors = gpu_scores.unit(vectors) if cosine else vectors
        own = torch.arange(len(some), device=rows.device)
        out[first : first + step] = gpu_scores.pairs(
            asked, vectors, owner[first : first + step], own
        )
    return scores


def find(
    queries: Array,
    documents: Any,
    form: Format,
    k: int,
    *,
    high_precision: bool,
    rescore: str,
    originals: Any,
    candidates: int,
    cosine: bool,
    are_unit: bool = False,
) -> TopK:
    """`exact.find` with documents, or their codes, on a GPU; the queries are float32 arrays."""
    exactly = cosine and high_precision and form in FLOATS
    anew = exactly or (cosine and isinstance(documents, Codes) and not are_unit)
    codes = (
        documents
        if isinstance(documents, Codes)
        else encode(documents, form, cosine=cosine, exactly=exactly)
    )
    if codes.format != form:
        raise InputError(
            f"the documents are {codes.format}, not {form}",
            remedy=f"search with format={codes.format!r}",
        )
    two_steps = high_precision and form not in FLOATS
    count = min(len(codes), max(k, candidates)) if two_steps else min(k, len(codes))
    keys, cut = best_of(queries, codes, count, low=not high_precision, cosine=anew)
    if not two_steps:
        return gpu_search.opened(keys, cut)
    against: Any = codes
    if rescore == "original":
        against = documents if originals is None else originals
        if isinstance(against, Codes):
            raise InputError(
                "there are no original vectors to rescore with",
                remedy="give originals=, or rescore='decoded'",
            )
        against = torch.as_tensor(against).to(keys.device)
        if tuple(against.shape) != (len(codes), codes.dimensions):
            raise InputError(
                f"originals have the shape {tuple(against.shape)} and documents "
                f"{(len(codes), codes.dimensions)}",
                remedy="give the vectors that the codes were made of",
            )
        if originals is not None:
            gpu_scores.finite(against, gpu_scores.lengths_of(against), "originals")
    _, rows = gpu_scores.open_keys(keys)
    renewed = cosine and (isinstance(against, Codes) or not are_unit)
    scores = pairs(queries, against, rows, cosine=renewed)
    ranked = torch.sort(scores, dim=1, descending=True, stable=True)  # of equal ones the first
    kept = ranked.indices[:, : min(k, len(codes))]
    best = ranked.values[:, : kept.shape[1]], rows.gather(1, kept), cut
    return TopK(*(x.cpu().numpy() for x in best))
