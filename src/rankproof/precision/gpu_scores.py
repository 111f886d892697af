"""Scores of tensors: fast products with their slack, the fixed sum, and keys that order results.

The GPU's counterpart of fixed_sum.py. With Triton and a GPU its kernels do the work; without them
plain torch computes the same bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from rankproof.foundation.errors import InputError
from rankproof.precision.array_types import torch_dtype
from rankproof.precision.fixed_sum import GPU, LANES
from rankproof.precision.formats import SHAPES
from rankproof.precision.pipeline import ScoringPipeline

kernels: Any
try:
    import triton

    from rankproof.precision import gpu_kernels as kernels
except ImportError:
    kernels = None

BLOCK_CELLS = 1 << 26  # scores (cells of a matrix) made at a time
PAIRS = 1 << 18  # pairs of a query and a document summed at a time


def compiled(values: Any) -> bool:
    """True if Triton's kernels can work on these values."""
    return kernels is not None and bool(values.is_cuda)


def on_device_of(values: Any) -> Any:
    """Return a context in which kernels are launched on the GPU of these values, if on any."""
    return torch.cuda.device_of(values)  # type: ignore[no-untyped-call]


def name_of(dtype: Any) -> str:
    """Return the name of a torch type: float32."""
    return str(dtype).removeprefix("torch.")


def refuse_rows(is_bad: Any, problem: str, label: str, first: int = 0) -> None:
    """Refuse vectors if a row is marked; rows are counted from `first`."""
    if bool(is_bad.any()):
        raise InputError(
            problem,
            place=f"{label}: row {first + int(is_bad.nonzero()[0])}",
            remedy="embed that text again, drop it or scale the vectors",
        )


def check_finite(values: Any, lengths: Any, label: str) -> None:
    """Refuse vectors with a number that is not finite.

    `lengths` tell where to look: those of such vectors are not finite either.
    """
    suspects = (~torch.isfinite(lengths)).nonzero().flatten()
    if len(suspects):
        is_bad = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        is_bad[suspects] = ~torch.isfinite(values[suspects]).all(dim=1)
        refuse_rows(is_bad, "a number that is not finite", label)


class SlackConstants(NamedTuple):
    """Constants of the error bound, in the order in which kernels take them."""

    share: float  # error per unit of ‖q‖ ‖d‖
    tiny: float  # error from numbers below the smallest normal one
    stretch: float  # a length in float32 times this, plus `offset`, is an upper bound
    offset: float


@dataclass(frozen=True, slots=True)
class Slack:
    """How far a product of tensors may be from the fixed sum, also on tensor cores.

    `fixed_sum.Slack` is the same on the CPU.
    """

    query_lengths: Any  # (Q,) float32
    document_lengths: Any  # (N,) float32
    constants: SlackConstants

    @classmethod
    def of(cls, queries: Any, query_lengths: Any, document_lengths: Any) -> Slack:
        """Return the slack of products of queries (Q, D) with documents of these lengths."""
        dimensions = queries.shape[1]
        # Tensor cores may multiply float32 numbers as three products of shorter ones.
        steps = (dimensions + (40 if queries.dtype == torch.float32 else 8)) * GPU
        constants = SlackConstants(
            share=steps / (1 - steps) if steps < 0.5 else math.inf,
            tiny=2.0**-124 * (dimensions + 8),
            # Lengths summed in float32 are too short by rounding and by lost subnormal squares.
            stretch=1 + 2 * steps,
            offset=dimensions**0.5 * 2.0**-62,
        )
        return cls(query_lengths, document_lengths, constants)

    def __getitem__(self, queries: Any) -> Slack:
        """Return the slack of some of the queries."""
        return replace(self, query_lengths=self.query_lengths[queries])

    def of_documents(self, rows: Any) -> Slack:
        """Return the slack of some of the documents."""
        return replace(self, document_lengths=self.document_lengths[rows])

    def terms(self) -> tuple[Any, Any, Any]:
        """Return factor (Q, 1), extra (Q, 1), lengths (N,): the error is factor · length + extra.

        A length is infinite where the product may overflow.
        """
        share, tiny, stretch, offset = self.constants
        queries, documents = (
            lengths.double() * stretch + offset
            for lengths in (self.query_lengths, self.document_lengths)
        )
        factor, extra = queries * share + tiny, tiny * (1 + queries)
        cannot_overflow = documents * queries.max().clamp(min=1.0) < 2.0**126
        margin = 1 + 2.0**-20
        documents = torch.where(cannot_overflow, documents, math.inf)
        return factor[:, None] * margin, extra[:, None] * margin, documents

    def bounds(self, scores: Any, form: str) -> tuple[Any, Any]:
        """Return bounds of the final scores, rounded to a format, given products (Q, B)."""
        factor, extra, lengths = self.terms()
        reach = factor * lengths + extra
        low, high = (scores - reach).float(), (scores + reach).float()
        low = torch.where(low.isnan(), -math.inf, low)
        high = torch.where(high.isnan(), math.inf, high)
        return rounded(low, form), rounded(high, form)


def rounded(scores: Any, form: str) -> Any:
    """Return float32 scores rounded to a format, still as float32; see `formats.round_to`."""
    return scores if form == "float32" else cast(scores, form).float()


def cast(values: Any, form: str) -> Any:
    """Return numbers in torch's type of a format; where it has no infinity, at most its largest."""
    shape = SHAPES[form]
    if shape.saturates:
        values = values.clamp(-shape.largest, shape.largest)
    return values.to(torch_dtype(form))


# ------------------------------------------------------------------------------------- the product


def product(queries: Any, documents: Any) -> Any:
    """Return scores (Q, B) float32 straight from operands in a low format, without upcast copies.

    Where torch is set to round the operands first or to sum in float16, the result would lie
    outside the slack; then it is computed in float64 instead.
    """
    if is_coarse(queries.dtype) or torch.is_autocast_enabled(queries.device.type):
        return torch.mm(queries.double(), documents.T.double()).float()
    if queries.dtype == torch.float32:
        return torch.mm(queries, documents.T)
    if queries.is_cuda:
        return torch.mm(queries, documents.T, out_dtype=torch.float32)
    return torch.mm(queries.float(), documents.T.float())


def is_coarse(dtype: Any) -> bool:
    """True if torch is set to multiply less precisely than the format allows."""
    cuda = torch.backends.cuda.matmul
    if dtype == torch.float16 and getattr(cuda, "allow_fp16_accumulation", False):
        return True
    if dtype != torch.float32:
        return False
    try:
        settings = {
            getattr(cuda, "fp32_precision", "none"),
            getattr(torch.backends, "fp32_precision", "none"),
            torch.get_float32_matmul_precision(),
        }
    except RuntimeError:  # the old setting and the new one contradict each other
        return True
    return not settings <= {"none", "ieee", "highest"}


def lengths_of(values: Any, status: Any = None, out: Any = None, covered: Any = None) -> Any:
    """Return lengths (n,) float32, with errors that the constants of `Slack` cover.

    They are written to `out` if it is given; status[0] is set if one is not finite. Rows with a
    number (≥ 0) in `covered` (n,) are copies of a duplicate vector: they are not read, and their
    length is -inf.
    """
    if status is None:
        status = torch.empty(1, dtype=torch.int32, device=values.device)
    if not compiled(values):
        lengths = torch.linalg.vector_norm(values, dim=1, dtype=torch.float32)
        if covered is not None:
            lengths[covered >= 0] = -math.inf
        status[0] = ~(lengths < math.inf).all()
        return lengths
    lengths = out
    if lengths is None:
        lengths = torch.empty(len(values), dtype=torch.float32, device=values.device)
    if len(values):
        with on_device_of(values):
            kernels.lengths_kernel[(triton.cdiv(len(values), 16),)](
                values,
                lengths,
                status,
                covered,
                *values.shape,
                values.stride(0),
                ROWS=16,
                WIDE=128,
                HAS_COVERED=covered is not None,
                num_warps=4,
            )
    return lengths


# --------------------------------------------------------------------------- the fixed sum


def pairs(queries: Any, documents: Any, query_rows: Any, document_rows: Any) -> Any:
    """Return the scores (P,) float32 of queries[query_rows] with documents[document_rows]."""
    sums = sums_of(queries, documents, query_rows, document_rows)
    return sums.float() + 0.0  # −0 and 0 are one score


def sums_of(queries: Any, documents: Any, query_rows: Any, document_rows: Any) -> Any:
    """Return the fixed sums (P,) float64 of queries[query_rows] with documents[document_rows]."""
    sums = torch.empty(len(query_rows), dtype=torch.float64, device=queries.device)
    if not compiled(queries):
        step = max(1, PAIRS * LANES // max(LANES, queries.shape[1]))
        for first in range(0, len(query_rows), step):
            part = slice(first, first + step)
            terms = queries[query_rows[part]].double() * documents[document_rows[part]].double()
            sums[part] = _sum_lanes(terms)
        return sums
    if queries.stride(1) != 1 or documents.stride(1) != 1:
        queries, documents = queries.contiguous(), documents.contiguous()
    if len(query_rows):
        with on_device_of(queries):
            kernels.sums_kernel[(triton.cdiv(len(query_rows), 16),)](
                queries,
                documents,
                query_rows,
                document_rows,
                sums,
                len(query_rows),
                queries.shape[1],
                queries.stride(0),
                documents.stride(0),
                TILE=16,
                LANES=LANES,
                num_warps=4,
            )
    return sums


def _sum_lanes(terms: Any) -> Any:
    """Return the fixed sums (n,) of products (n, D) float64; see fixed_sum.py."""
    lanes = torch.zeros((len(terms), LANES), dtype=torch.float64, device=terms.device)
    for first in range(0, terms.shape[1], LANES):
        chunk = terms[:, first : first + LANES]
        lanes[:, : chunk.shape[1]] += chunk
    half = LANES // 2
    while half:
        lanes = lanes[:, :half] + lanes[:, half:]
        half //= 2
    return lanes[:, 0]


def fixed_lengths(values: Any) -> Any:
    """Return lengths (n,) float64 by the fixed sum, with its bits; see `fixed_sum.lengths`."""
    rows = torch.arange(len(values), device=values.device)
    return sums_of(values, values, rows, rows).sqrt()


def normalize(values: Any) -> Any:
    """Return vectors (n, D) float32 at length 1; see `fixed_sum.normalize`."""
    length = fixed_lengths(values)
    length = torch.where(length > 0, length, 1.0)
    return (values.double() / length[:, None]).float()


def make_storable(values: Any, form: str) -> Any:
    """Return vectors whose direction a format can hold; see `exact_search.make_storable`."""
    shape = SHAPES[form]
    peak = values.abs().amax(dim=1, keepdim=True)
    return torch.where((peak > shape.largest) | (peak < shape.smallest), normalize(values), values)


def prepare_vectors(values: Any, label: str, pipeline: ScoringPipeline) -> Any:
    """Return vectors in the pipeline's format, at unit length for the cosine; refuse unusable ones.

    For the cosine of the numbers that the format holds, those numbers are returned in float32, at
    unit length. Vectors already in the format are returned unchecked: the search checks them.
    """
    form, is_cosine = pipeline.format, pipeline.metric == "cosine"
    dtype = torch_dtype(form)
    if values.dtype == dtype and not is_cosine:
        return values
    out_dtype = torch.float32 if pipeline.has_decoded_cosine else dtype
    out = torch.empty(values.shape, dtype=out_dtype, device=values.device)
    step = max(1, BLOCK_CELLS // 4 // max(1, values.shape[1]))
    for first in range(0, len(values), step):
        block = values[first : first + step].float()
        if pipeline.has_decoded_cosine:
            block = normalize(cast(make_storable(block, form), form).float())
        elif is_cosine:
            block = normalize(block)
        out[first : first + step] = block.to(out_dtype)
        lengths = lengths_of(out[first : first + step])
        is_bad = (lengths == 0) | lengths.isnan() if is_cosine else ~torch.isfinite(lengths)
        if bool(is_bad.any()):
            _refuse_vectors(values[: first + step], out[: first + step], label, pipeline)
    return out


def _refuse_vectors(values: Any, prepared: Any, label: str, pipeline: ScoringPipeline) -> None:
    """Refuse vectors that are not finite, zero under the cosine, or too large for the format."""
    refuse_rows(~torch.isfinite(values).all(dim=1), "a number that is not finite", label)
    if pipeline.metric == "cosine":
        refuse_rows(~values.any(dim=1), "a zero vector has no direction", label)
    is_infinite = ~torch.isfinite(prepared).all(dim=1)
    refuse_rows(is_infinite, f"a number is too large for {pipeline.format}", label)


def matrix(queries: Any, documents: Any) -> Any:
    """Return the scores (Q, N) float32 of all pairs; see `fixed_sum.matrix`."""
    shape = len(queries), len(documents)
    scores = torch.empty(shape, dtype=torch.float32, device=queries.device)
    wide = queries.double()
    reach = wide.square().sum(dim=1).sqrt() * ((queries.shape[1] + 8) * 2.0**-51)
    step = max(1, BLOCK_CELLS // max(4, 4 * len(queries), 4 * queries.shape[1]))
    for first in range(0, len(documents), step):
        rows = documents[first : first + step].double()
        sums = wide @ rows.T
        error = reach[:, None] * rows.square().sum(dim=1).sqrt()
        low, high = (sums - error).float(), (sums + error).float()
        open_queries, open_rows = (low != high).nonzero(as_tuple=True)
        low += 0.0
        low[open_queries, open_rows] = pairs(queries, documents, open_queries, open_rows + first)
        scores[:, first : first + step] = low
    return scores


# ---------------------------------------------------------------------------------------- keys


def keys_of(scores: Any, rows: Any) -> Any:
    """Return keys (int64) of scores and document numbers: a larger key is better."""
    bits = (scores.float() + 0.0).view(torch.int32)  # −0 and 0 are one score
    ordered = torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(torch.int64)
    return (ordered << 32) | (0xFFFFFFFF - rows)


def open_keys(keys: Any) -> tuple[Any, Any]:
    """Return the scores (float32) and document numbers of keys."""
    ordered = (keys >> 32).to(torch.int32)
    bits = torch.where(ordered >= 0, ordered, ordered ^ 0x7FFFFFFF)
    return bits.view(torch.float32), 0xFFFFFFFF - (keys & 0xFFFFFFFF)
