"""Codes and 8-bit floating-point numbers on a GPU, with the bits of formats.py and scorers.py.

Codes are whole numbers. bfloat16 holds them exactly and float32 holds their sums, so that tensor
cores give the same products as the CPU; scales are multiplied by the same float32 operations. 8-bit
floating-point numbers are multiplied as bfloat16, which also holds them, and summed by fixed sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch

from rankproof.foundation.arrays import Array
from rankproof.precision import fixed_sum, gpu_scores, gpu_search
from rankproof.precision.exact_search import check_originals
from rankproof.precision.formats import FLOATS, Codes, exact_pieces, largest_code
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.precision.scorers import check_code_format, encode_queries
from rankproof.precision.topk import TopK

_DECODED_NUMBERS = 1 << 26  # numbers of decoded documents in memory at a time


# ---------------------------------------------------------------------------------- encode, decode


def encode(values: Any, form: str) -> Codes:
    """Return `formats.encode` of a tensor (N, D), on its device."""
    return encode_for(values, ScoringPipeline(form, "plain"))


def encode_for(values: Any, pipeline: ScoringPipeline, label: str = "documents") -> Codes:
    """Return vectors (N, D) of a tensor as the codes that a pipeline stores, on its device.

    Block by block: a block's intermediate numbers take more capacity than its codes.
    """
    form, dimensions = pipeline.format, values.shape[1]
    if form in FLOATS:
        casts = [gpu_scores.cast(block, form) for block in _blocks(values, label, pipeline)]
        return Codes(form, _concatenate(casts, values), None, dimensions)  # type: ignore[arg-type]
    if form == "bit":
        parts = [_encode_bits(block) for block in _blocks(values, label, pipeline)]
    elif form == "int8_dimension":
        peak = torch.zeros((1, dimensions), dtype=torch.float32, device=values.device)
        for block in _blocks(values, label, pipeline):
            peak = torch.maximum(peak, block.abs().amax(dim=0, keepdim=True))
        scale = _scale_of(peak, form)
        parts = [
            (_whole_numbers(block, scale, form), scale)
            for block in _blocks(values, label, pipeline)
        ]
    else:
        parts = [_encode_scaled(block, form) for block in _blocks(values, label, pipeline)]
    codes = _concatenate([codes for codes, _ in parts], values)
    if form != "int8_dimension":
        scale = _concatenate([block_scale for _, block_scale in parts], values)
    return Codes(form, codes, scale, dimensions)  # type: ignore[arg-type]


def _blocks(values: Any, label: str, pipeline: ScoringPipeline) -> Iterator[Any]:
    """Yield blocks of vectors as float32, prepared for the pipeline; refuse unusable ones."""
    step = max(1, _DECODED_NUMBERS // max(1, values.shape[1]))
    for first in range(0, len(values), step):
        block = values[first : first + step].float()
        lengths = gpu_scores.lengths_of(block)
        if not bool((torch.isfinite(lengths) & (lengths > 0)).all()):
            is_finite = torch.isfinite(block).all(dim=1)
            gpu_scores.refuse_rows(~is_finite, "a number that is not finite", label, first)
            if pipeline.metric == "cosine":
                problem = "a zero vector has no direction"
                gpu_scores.refuse_rows(~block.any(dim=1), problem, label, first)
        if pipeline.has_decoded_cosine:
            yield gpu_scores.make_storable(block, pipeline.format)
        else:
            yield gpu_scores.normalize(block) if pipeline.metric == "cosine" else block


def _concatenate(parts: list[Any], values: Any) -> Any:
    """Return the parts as one tensor; where there are none, an empty one like the values."""
    if not parts:
        return torch.empty((0, values.shape[1]), dtype=torch.float32, device=values.device)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _encode_bits(block: Any) -> tuple[Any, Any]:
    """Return packed signs of vectors, and their mean magnitudes (n, 1)."""
    dimensions = block.shape[1]
    ones = torch.ones((1, dimensions), dtype=torch.float32, device=block.device)
    rows = torch.arange(len(block), device=block.device)
    sums = gpu_scores.sums_of(ones, block.abs(), torch.zeros_like(rows), rows)
    signs = torch.nn.functional.pad((block > 0).byte(), (0, -dimensions % 8))
    places = 2 ** torch.arange(7, -1, -1, dtype=torch.uint8, device=block.device)
    packed = (signs.view(len(block), -1, 8) * places).sum(dim=2, dtype=torch.uint8)
    return packed, (sums / max(1, dimensions)).float()[:, None]


def _encode_scaled(block: Any, form: str) -> tuple[Any, Any]:
    """Return int8 or packed int4 codes of vectors, and their scales (n, 1)."""
    scale = _scale_of(block.abs().amax(dim=1, keepdim=True), form)
    codes = _whole_numbers(block, scale, form)
    if form == "int4":
        shifted = torch.nn.functional.pad(codes, (0, codes.shape[1] % 2)) + 8
        codes = (shifted[:, ::2] | (shifted[:, 1::2] << 4)).to(torch.uint8)
    return codes, scale


def _scale_of(peak: Any, form: str) -> Any:
    """Return peak / largest code, rounded down where the largest code would stand for infinity."""
    largest = largest_code(form)
    scale = peak / torch.tensor(largest, dtype=torch.float32, device=peak.device)
    lower = torch.nextafter(scale, torch.zeros_like(scale))
    return torch.where(torch.isinf(scale * largest), lower, scale)


def _whole_numbers(block: Any, scale: Any, form: str) -> Any:
    """Return vectors divided by their scale and rounded, as int8."""
    largest = largest_code(form)
    divisor = torch.where(scale > 0, scale, 1.0)
    return (block / divisor).round().clamp(-largest, largest).to(torch.int8)


def numbers(codes: Codes) -> Any:
    """Return the codes as plain numbers (N, D) in bfloat16; see `Codes.numbers`."""
    values: Any = codes.codes
    if codes.format == "bit":
        places = torch.arange(7, -1, -1, device=values.device)
        bits = (values[:, :, None] >> places) & 1
        values = bits.flatten(1)[:, : codes.dimensions].to(torch.int8) * 2 - 1
    elif codes.format == "int4":
        halves = torch.stack([values & 0x0F, values >> 4], dim=2).flatten(1)
        values = halves[:, : codes.dimensions].to(torch.int8) - 8
    return values.to(torch.bfloat16)


def decode(codes: Codes) -> Any:
    """Return the vectors (N, D) float32 that the codes stand for."""
    plain = numbers(codes).float()
    return plain if codes.scale is None else plain * codes.scale


# ------------------------------------------------------------------------------------------ search


def find_top_k(
    queries: Array,
    documents: Any,
    k: int,
    pipeline: ScoringPipeline,
    *,
    originals: Any = None,
    are_unit: bool = False,
) -> TopK:
    """Return `exact_search.find_top_k` where documents, or their codes, lie on a GPU.

    The queries are float32 arrays from `exact_search.prepare_vectors`.
    """
    is_cosine, is_coded = pipeline.metric == "cosine", isinstance(documents, Codes)
    codes = documents if is_coded else encode_for(documents, pipeline)
    check_code_format(codes, pipeline.format)
    normalize = pipeline.has_decoded_cosine or (is_cosine and is_coded and not are_unit)
    count = pipeline.candidate_count(k, len(codes))
    keys, cut = find_best(queries, codes, count, low=pipeline.is_plain, normalize=normalize)
    if not pipeline.rescores:
        return gpu_search.as_arrays(keys, cut)
    vectors: Any = codes
    if pipeline.scoring == "original":
        if originals is not None and not isinstance(originals, Codes):
            originals = torch.as_tensor(originals).to(keys.device)
        vectors = check_originals(documents, originals)
        if originals is not None:
            gpu_scores.check_finite(vectors, gpu_scores.lengths_of(vectors), "originals")
    _, rows = gpu_scores.open_keys(keys)
    normalize = is_cosine and (vectors is codes or not are_unit)
    scores = pairs(queries, vectors, rows, normalize=normalize)
    ranked = torch.sort(scores, dim=1, descending=True, stable=True)  # ties keep their order
    best_places = ranked.indices[:, : min(k, len(codes))]
    best = ranked.values[:, : best_places.shape[1]], rows.gather(1, best_places), cut
    return TopK(*(tensor.cpu().numpy() for tensor in best))


@dataclass(frozen=True, slots=True)
class _BlockScorer:
    """Queries ready to be multiplied with blocks of documents in a number format."""

    queries: Any  # (Q, D) bfloat16, or float32 where decoded numbers are normalized
    query_lengths: Any  # (Q,)
    query_scale: Any  # (Q, 1), or None
    form: str
    k: int
    low: bool  # scores are rounded to the format
    normalize: bool  # documents are brought to unit length

    @classmethod
    def of(
        cls, queries: Array, codes: Codes, k: int, *, low: bool, normalize: bool
    ) -> _BlockScorer:
        """Encode queries in the format of the codes, on their device."""
        form, device = codes.format, cast(Any, codes.codes).device
        document_scale: Any = codes.scale
        if document_scale is not None:
            document_scale = document_scale.cpu().numpy()
        numbers_of_queries, scale = encode_queries(queries, form, document_scale)
        keeps_float32 = normalize and form in FLOATS and not low
        if keeps_float32:
            numbers_of_queries = fixed_sum.normalize(numbers_of_queries)
        query_rows = torch.from_numpy(numbers_of_queries).to(device)
        query_rows = query_rows if keeps_float32 else query_rows.to(torch.bfloat16)
        return cls(
            queries=query_rows,
            query_lengths=gpu_scores.lengths_of(query_rows),
            query_scale=None if scale is None else torch.from_numpy(scale).to(device),
            form=form,
            k=k,
            low=low,
            normalize=normalize,
        )

    def score(self, block: Codes, threshold: Any) -> tuple[Any, Any]:
        """Return scores (Q, B) of a block and a mask of those that can be among the k best."""
        score = self._score_floats if self.form in FLOATS else self._score_codes
        return score(block, threshold)

    def _score_floats(self, block: Codes, threshold: Any) -> tuple[Any, Any]:
        """Score floating-point numbers: by a product, and by the fixed sum where that decides."""
        vectors = numbers(block)
        if self.normalize:
            vectors = gpu_scores.normalize(vectors.float())
            if self.low:
                vectors = gpu_scores.cast(vectors, self.form).to(torch.bfloat16)
        score_format = self.form if self.low else "float32"
        lengths = gpu_scores.lengths_of(vectors)
        slack = gpu_scores.Slack.of(self.queries, self.query_lengths, lengths)
        bounds = slack.bounds(gpu_scores.product(self.queries, vectors), score_format)

        def score_exactly(query_places: Any, places: Any) -> Any:
            scores = gpu_scores.pairs(self.queries, vectors, query_places, places)
            return gpu_scores.rounded(scores, score_format)

        return gpu_search.settle_bounds(*bounds, self.k, threshold, score_exactly)

    def _score_codes(self, block: Codes, threshold: Any) -> tuple[Any, Any]:
        """Score codes, whose products are exact; the scales follow."""
        scores = _code_products(self.queries, numbers(block), self.form)
        if self.query_scale is not None:
            scores = scores * self.query_scale
        if self.normalize and self.form != "bit":
            scores = scores * _unit_scale(block)
        elif self.form in ("int8", "int4"):
            scores = scores * block.scale[:, 0]  # type: ignore[index]
        return scores, scores >= threshold[:, None]


def find_best(
    queries: Array, codes: Codes, k: int, low: bool, normalize: bool = False
) -> tuple[Any, Any]:
    """Return keys of the k best documents in the format, and the ties outside them (Q,).

    See `gpu_search.keys_of_best`; `low` scores wholly in the format, `normalize` is that of
    `scorers.Scorer`.
    """
    scorer = _BlockScorer.of(queries, codes, k, low=low, normalize=normalize)
    blocks_of_scores = gpu_scores.BLOCK_CELLS // (8 * max(1, len(queries)))
    blocks_of_numbers = _DECODED_NUMBERS // max(1, codes.dimensions)
    return gpu_search.merge_blocks(
        lambda first, last, threshold: scorer.score(codes[first:last], threshold),
        queries=len(queries),
        documents=len(codes),
        k=k,
        step=max(k, min(blocks_of_scores, blocks_of_numbers)),
        device=scorer.queries.device,
    )


def _unit_scale(codes: Codes) -> Any:
    """Return the factors (n,) float32 that bring products of codes to the cosine; see `Scorer`."""
    length = gpu_scores.fixed_lengths(decode(codes))
    own_scale: Any = codes.scale
    scale = own_scale[:, 0].double() if codes.format in ("int8", "int4") else 1.0
    return (scale / torch.where(length > 0, length, 1.0)).float()


def _code_products(queries: Any, documents: Any, form: str) -> Any:
    """Return sums (Q, n) of products of codes; see `Scorer._code_products`."""
    pieces = exact_pieces(form, documents.shape[1])
    if len(pieces) <= 1:
        return gpu_scores.product(queries, documents)
    total: Any = 0.0
    for piece in pieces:
        total = total + gpu_scores.product(queries[:, piece], documents[:, piece]).double()
    return total.float()


def pairs(queries: Array, documents: Any, rows: Any, *, normalize: bool = False) -> Any:
    """Return the scores (Q, n) of each query with its documents `rows` (Q, n).

    `documents` are vectors or Codes; `normalize` brings them to unit length for the cosine.
    """
    query_rows = torch.from_numpy(queries).to(rows.device)
    scores = torch.empty(rows.shape, dtype=torch.float32, device=rows.device)
    flat_rows, flat_scores = rows.flatten(), scores.view(-1)
    owner = torch.arange(len(rows), device=rows.device).repeat_interleave(rows.shape[1])
    step = max(1, _DECODED_NUMBERS // max(1, queries.shape[1]))
    for first in range(0, len(flat_rows), step):
        part = flat_rows[first : first + step]
        is_coded = isinstance(documents, Codes)
        vectors = decode(documents[part]) if is_coded else documents[part].float()
        vectors = gpu_scores.normalize(vectors) if normalize else vectors
        places = torch.arange(len(part), device=rows.device)
        flat_scores[first : first + step] = gpu_scores.pairs(
            query_rows, vectors, owner[first : first + step], places
        )
    return scores
