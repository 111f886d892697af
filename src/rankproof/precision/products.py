"""Scores of embedding pairs: products in float64, summed by one fixed order, kept in float32.

The same bits on every processor and GPU. `low=True` rounds the result to the format of the input,
as scoring wholly in that format does.
"""

from __future__ import annotations

from typing import Any

from rankproof.foundation.errors import InputError
from rankproof.precision import fixed_sum
from rankproof.precision.array_types import is_torch, name_of, round_result, upcast


def dot(queries: Any, documents: Any, *, low: bool = False) -> Any:
    """(Q, N) scores of queries (Q, D) against documents (N, D), as float32.

    >>> from rankproof.precision import dot
    >>> dot(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    _check(queries, documents)
    form = name_of(queries)
    return round_result(_scores(upcast(queries), upcast(documents)), form if low else "float32")


def cosine(queries: Any, documents: Any, *, low: bool = False) -> Any:
    """(Q, N) cosines, as float32; lengths are taken in float64.

    >>> from rankproof.precision import cosine
    >>> cosine(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0]])).tolist()
    [[1.0, 0.0]]
    """
    _check(queries, documents)
    form = name_of(queries)
    a, b = _unit(upcast(queries), "queries"), _unit(upcast(documents), "documents")
    return round_result(_scores(a, b), form if low else "float32")


def _scores(queries: Any, documents: Any) -> Any:
    """(Q, N) fixed sums of float32 vectors, where they lie."""
    if not is_torch(queries):
        return fixed_sum.matrix(queries, documents)
    import torch

    if queries.is_cuda:
        from rankproof.precision import gpu_scores

        return gpu_scores.matrix(queries, documents)
    return torch.from_numpy(fixed_sum.matrix(queries.cpu().numpy(), documents.cpu().numpy()))


def _unit(values: Any, what: str) -> Any:
    zero = (values == 0).all(1)
    if bool(zero.any()):
        raise InputError(
            "a zero vector has no direction",
            place=f"{what}: row {int(zero.nonzero()[0][0])}",
            remedy="drop it, or score with dot",
        )
    if not is_torch(values):
        return fixed_sum.normalize(values)
    import torch

    if values.is_cuda:
        from rankproof.precision import gpu_scores

        return gpu_scores.unit(values)
    return torch.from_numpy(fixed_sum.normalize(values.cpu().numpy()))


def _check(queries: Any, documents: Any) -> None:
    if queries.ndim != 2 or documents.ndim != 2 or queries.shape[1] != documents.shape[1]:
        raise InputError(
            f"queries are {tuple(queries.shape)} and documents {tuple(documents.shape)}",
            remedy="give (rows, dimensions) arrays with the same number of dimensions",
        )
