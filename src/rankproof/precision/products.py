"""Scores of all pairs of vectors: fixed sums (fixed_sum.py), rounded to float32.

The bits are the same on every processor and GPU. `low=True` rounds the result to the format of the
input, as scoring wholly in that format does.
"""

from __future__ import annotations

from typing import Any

from rankproof.foundation.errors import InputError
from rankproof.precision import fixed_sum
from rankproof.precision.array_types import format_of, is_torch, round_result, upcast


def dot(queries: Any, documents: Any, *, low: bool = False) -> Any:
    """Return scores (Q, N) float32 of queries (Q, D) with documents (N, D).

    >>> from rankproof.precision import dot
    >>> dot(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    _check(queries, documents)
    scores = _scores(upcast(queries), upcast(documents))
    return round_result(scores, format_of(queries) if low else "float32")


def cosine(queries: Any, documents: Any, *, low: bool = False) -> Any:
    """Return cosines (Q, N) float32; lengths are computed in float64.

    >>> from rankproof.precision import cosine
    >>> cosine(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [[1.0, 0.0]]
    """
    _check(queries, documents)
    scores = _scores(_unit(upcast(queries), "queries"), _unit(upcast(documents), "documents"))
    return round_result(scores, format_of(queries) if low else "float32")


def _scores(queries: Any, documents: Any) -> Any:
    """Return fixed sums (Q, N) of float32 vectors, on their own device."""
    if not is_torch(queries):
        return fixed_sum.matrix(queries, documents)
    import torch

    if queries.is_cuda:
        from rankproof.precision import gpu_scores

        return gpu_scores.matrix(queries, documents)
    return torch.from_numpy(fixed_sum.matrix(queries.cpu().numpy(), documents.cpu().numpy()))


def _unit(values: Any, label: str) -> Any:
    """Return vectors at unit length; refuse one of zeros."""
    is_zero = (values == 0).all(1)
    if bool(is_zero.any()):
        raise InputError(
            "a zero vector has no direction",
            place=f"{label}: row {int(is_zero.nonzero()[0][0])}",
            remedy="drop it, or score with dot",
        )
    if not is_torch(values):
        return fixed_sum.normalize(values)
    import torch

    if values.is_cuda:
        from rankproof.precision import gpu_scores

        return gpu_scores.normalize(values)
    return torch.from_numpy(fixed_sum.normalize(values.cpu().numpy()))


def _check(queries: Any, documents: Any) -> None:
    """Refuse arrays that are not (rows, dimensions) of the same dimensions."""
    if queries.ndim != 2 or documents.ndim != 2 or queries.shape[1] != documents.shape[1]:
        raise InputError(
            f"queries are {tuple(queries.shape)} and documents {tuple(documents.shape)}",
            remedy="give (rows, dimensions) arrays with the same number of dimensions",
        )
