"""Scores on tensors: a product with its slack, the fixed sum, and the keys of both."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from rankproof.foundation.errors import InputError
from rankproof.precision.fixed_sum import GPU, LANES
from rankproof.precision.formats import SHAPES

kernels: Any
try:
    import triton

    from rankproof.precision import gpu_kernels as kernels
except ImportError:
    kernels = None

BLOCK_CELLS = 1 << 26  # scores made at a time
PAIRS = 1 << 18  # documents summed at a time


def compiled(values: Any) -> bool:
    return kernels is not None and bool(values.is_cuda)


def there(values: Any) -> Any:
    """While it is entered, kernels are launched on the GPU where the values lie, if on any."""
    return torch.cuda.device_of(values)  # type: ignore[no-untyped-call]


def name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def refuse(rows: Any, problem: str, what: str, first: int = 0) -> None:
    """InputError for the first of the rows, from `first` on, that are marked."""
    if bool(rows.any()):
        raise InputError(
            problem,
            place=f"{what}: row {first + int(rows.nonzero()[0])}",
            remedy="embed that text again, drop it or scale the vectors",
        )


def finite(values: Any, lengths: Any, what: str) -> None:
    """Refuse vectors that are not; a length that is finite says that its numbers are."""
    doubtful = (~torch.isfinite(lengths)).nonzero().flatten()
    if len(doubtful):
        wrong = torch.zeros(len(values), dtype=torch.bool, device=values.device)
        wrong[doubtful] = ~torch.isfinite(values[doubtful]).all(dim=1)
        refuse(wrong, "a number that is not finite", what)


@dataclass(frozen=True, slots=True)
class Slack:
    """`fixed.Slack` as tensors, for any order of sums, on tensor cores too."""

    asked: Any  # (Q,) float32 lengths of the queries
    lengths: Any  # (N,) of the documents
    numbers: tuple[float, float, float, float]

    @classmethod
    def of(cls, queries: Any, asked: Any, lengths: Any) -> Slack:
        dimensions = queries.shape[1]
        # float32 operands may be multiplied as three products of shorter ones.
        steps = (dimensions + (40 if queries.dtype == torch.float32 else 8)) * GPU
        tiny = 2.0**-124 * (dimensions + 8)
        share = steps / (1 - steps) if steps < 0.5 else math.inf
        # What float32 squares may lose: to rounding, and below the smallest normal number.
        numbers = (share, tiny, 1 + 2 * steps, dimensions**0.5 * 2.0**-62)
        return cls(asked, lengths, numbers)

    def __getitem__(self, queries: Any) -> Slack:
        return Slack(self.asked[queries], self.lengths, self.numbers)

    def among(self, rows: Any) -> Slack:
        """For some of the documents."""
        return Slack(self.asked, self.lengths[rows], self.numbers)

    def reaches(self) -> tuple[Any, Any, Any]:
        """(Q, 1) factor, (Q, 1) extra, (N,) lengths; infinite where the product may overflow."""
        share, tiny, most, least = self.numbers
        asked, lengths = (x.double() * most + least for x in (self.asked, self.lengths))
        factor, extra = asked * share + tiny, tiny * (1 + asked)
        safe = lengths * asked.max().clamp(min=1.0) < 2.0**126
        wider = 1 + 2.0**-20
        lengths = torch.where(safe, lengths, math.inf)
        return factor[:, None] * wider, extra[:, None] * wider, lengths

    def bounds(self, scores: Any, form: str) -> tuple[Any, Any]:
        """Below and above the scores (Q, B) that the fixed sum and the format make of these."""
        factor, extra, lengths = self.reaches()
        away = factor * lengths + extra
        low, high = (scores - away).float(), (scores + away).float()
        low = torch.where(low.isnan(), -math.inf, low)
        high = torch.where(high.isnan(), math.inf, high)
        return rounded(low, form), rounded(high, form)


def rounded(scores: Any, form: str) -> Any:
    """float32 scores as a format holds them; see `formats.round_to`."""
    return scores if form == "float32" else cast(scores, form).float()


def cast(values: Any, form: str) -> Any:
    """Numbers as torch holds them in a format; one that has no infinity takes its largest."""
    most, held = SHAPES[form][3:]
    dtype = getattr(torch, {"float8_e4m3": "float8_e4m3fn"}.get(form, form))
    return (values.clamp(-most, most) if held else values).to(dtype)


# ------------------------------------------------------------------------------------- the product


def product(queries: Any, documents: Any) -> Any:
    """(Q, B) float32 scores straight from low operands, no upcast copy of them.

    A setting by which torch rounds the operands first, or sums in float16, would put them beyond
    the slack; then float64 makes them, whatever the setting.
    """
    if coarse(queries.dtype) or torch.is_autocast_enabled(queries.device.type):
        return torch.mm(queries.double(), documents.T.double()).float()
    if queries.dtype == torch.float32:
        return torch.mm(queries, documents.T)
    if queries.is_cuda:
        return torch.mm(queries, documents.T, out_dtype=torch.float32)
    return torch.mm(queries.float(), documents.T.float())


def coarse(form: Any) -> bool:
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


def lengths_of(values: Any, status: Any = None, out: Any = None, known: Any = None) -> Any:
    """(n,) float32 lengths, within what `Slack` allows; status[0] where one is not finite.

    Rows whose number in `known` (n,) is not below 0 are not looked at; their length is -inf.
    """
    if status is None:
        status = torch.empty(1, dtype=torch.int32, device=values.device)
    if not compiled(values):
        lengths = torch.linalg.vector_norm(values, dim=1, dtype=torch.float32)
        if known is not None:
            lengths[known >= 0] = -math.inf
        status[0] = ~(lengths < math.inf).all()
        return lengths
    lengths = out
    if lengths is None:
        lengths = torch.empty(len(values), dtype=torch.float32, device=values.device)
    if len(values):
        with there(values):
            kernels.lengths_kernel[(triton.cdiv(len(values), 16),)](
                *(values, lengths, status, known, *values.shape, values.stride(0)),
                ROWS=16,
                WIDE=128,
                SOME=known is not None,
                num_warps=4,
            )
    return lengths


# --------------------------------------------------------------------------- the fixed sum, there


def pairs(queries: Any, documents: Any, asked: Any, rows: Any) -> Any:
    """(P,) float32 the fixed sums of queries[asked] with documents[rows]."""
    sums = sums_of(queries, documents, asked, rows)
    return sums.float() + 0.0  # −0 and 0 are one score


def unit(values: Any) -> Any:
    """float32 vectors (n, D) at length 1, rounded once; one of zeros stays."""
    every = torch.arange(len(values), device=values.device)
    length = sums_of(values, values, every, every).sqrt()
    length = torch.where(length > 0, length, 1.0)
    return (values.double() / length[:, None]).float()


def storable(values: Any, form: str) -> Any:
    """`exact.storable` of float32 vectors, where they lie."""
    _, _, least, most, _ = SHAPES[form]
    peak = values.abs().amax(dim=1, keepdim=True)
    return torch.where((peak > most) | (peak < least), unit(values), values)


def stored(values: Any, form: str, what: str, cosine: bool, exactly: bool = False) -> Any:
    """Vectors in the format, of unit length for the cosine; those that cannot be are refused.

    For the cosine of what the format stores (`exactly`) its numbers come in float32, at unit
    length. What is already in the format is looked at by the search, with the lengths it needs.
    """
    dtype = getattr(torch, form)
    if values.dtype == dtype and not cosine:
        return values
    kept = torch.float32 if exactly else dtype
    out = torch.empty(values.shape, dtype=kept, device=values.device)
    step = max(1, BLOCK_CELLS // 4 // max(1, values.shape[1]))
    for first in range(0, len(values), step):
        some = values[first : first + step].float()
        if exactly:
            made = unit(cast(storable(some, form), form).float())
        else:
            made = unit(some) if cosine else some
        out[first : first + step] = made.to(kept)
        lengths = lengths_of(out[first : first + step])
        wrong = ~torch.isfinite(lengths) if not cosine else (lengths == 0) | lengths.isnan()
        if bool(wrong.any()):
            _explain(values[: first + step], out[: first + step], form, what, cosine)
    return out


def _explain(values: Any, out: Any, form: str, what: str, cosine: bool) -> None:
    """Why vectors are refused, if they are."""
    refuse(~torch.isfinite(values).all(dim=1), "a number that is not finite", what)
    if cosine:
        refuse(~values.any(dim=1), "a zero vector has no direction", what)
    refuse(~torch.isfinite(out).all(dim=1), f"a number is too large for {form}", what)


def matrix(queries: Any, documents: Any) -> Any:
    """(Q, N) float32 the scores of all pairs; see `fixed.matrix`."""
    shape = len(queries), len(documents)
    scores = torch.empty(shape, dtype=torch.float32, device=queries.device)
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


def sums_of(queries: Any, documents: Any, asked: Any, rows: Any) -> Any:
    """(P,) float64."""
    sums = torch.empty(len(asked), dtype=torch.float64, device=queries.device)
    if compiled(queries):
        if queries.stride(1) != 1 or documents.stride(1) != 1:
            queries, documents = queries.contiguous(), documents.contiguous()
        if len(asked):
            with there(queries):
                kernels.sums_kernel[(triton.cdiv(len(asked), 16),)](
                    *(queries, documents, asked, rows, sums, len(asked), queries.shape[1]),
                    *(queries.stride(0), documents.stride(0)),
                    TILE=16,
                    LANES=LANES,
                    num_warps=4,
                )
        return sums
    step = max(1, PAIRS * LANES // max(LANES, queries.shape[1]))
    for first in range(0, len(asked), step):
        some = slice(first, first + step)
        products = queries[asked[some]].double() * documents[rows[some]].double()
        lanes = torch.zeros((len(products), LANES), dtype=torch.float64, device=queries.device)
        for low in range(0, products.shape[1], LANES):
            chunk = products[:, low : low + LANES]
            lanes[:, : chunk.shape[1]] += chunk
        half = LANES // 2
        while half:
            lanes = lanes[:, :half] + lanes[:, half:]
            half //= 2
        sums[some] = lanes[:, 0]
    return sums


# ---------------------------------------------------------------------------------------- keys


def keys_of(scores: Any, rows: Any) -> Any:
    """Keys of scores and document numbers: the larger is better."""
    bits = (scores.float() + 0.0).view(torch.int32)  # −0 and 0 are one score
    ordered = torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(torch.int64)
    return (ordered << 32) | (0xFFFFFFFF - rows)


def open_keys(keys: Any) -> tuple[Any, Any]:
    """Scores (float32) and document numbers of keys."""
    ordered = (keys >> 32).to(torch.int32)
    bits = torch.where(ordered >= 0, ordered, ordered ^ 0x7FFFFFFF)
    return bits.view(torch.float32), 0xFFFFFFFF - (keys & 0xFFFFFFFF)
