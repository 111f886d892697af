"""Scores of embedding pairs: products accumulated and kept in float32.

A product of two bfloat16 or float16 numbers is exact in float32; only the sum rounds. `low=True`
rounds the result to the format of the input, as scoring wholly in that format does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankproof.errors import InputError
from rankproof.scoring.backend import is_torch, name_of, round_result, upcast


def dot(queries: Any, documents: Any, *, low: bool = False) -> Any:
    """(Q, N) scores of queries (Q, D) against documents (N, D), as float32."""
    _check(queries, documents)
    form = name_of(queries)
    if is_torch(queries):
        scores = _product(queries, documents)
    else:
        scores = upcast(queries) @ upcast(documents).T
    return round_result(scores, form if low else "float32")


def cosine(queries: Any, documents: Any, *, low: bool = False) -> Any:
    """(Q, N) cosines, as float32; lengths are taken in float32 too."""
    _check(queries, documents)
    form = name_of(queries)
    a, b = _unit(upcast(queries), "queries"), _unit(upcast(documents), "documents")
    return round_result(a @ b.T, form if low else "float32")


def _product(queries: Any, documents: Any) -> Any:
    """torch's product with a float32 result; on a GPU straight from the low operands."""
    import torch

    documents = documents.detach().T
    queries = queries.detach()
    if queries.is_cuda and queries.dtype in (torch.bfloat16, torch.float16):
        return torch.mm(queries, documents, out_dtype=torch.float32)
    return queries.float() @ documents.float()


def _unit(values: Any, what: str) -> Any:
    if is_torch(values):
        length = values.norm(dim=1, keepdim=True)
        zero = (length == 0).flatten().nonzero().flatten().tolist()
    else:
        length = np.linalg.norm(values, axis=1, keepdims=True)
        zero = np.flatnonzero(length == 0).tolist()
    if zero:
        raise InputError(
            "a zero vector has no direction",
            place=f"{what}: row {zero[0]}",
            remedy="drop it, or score with dot",
        )
    return values / length


def _check(queries: Any, documents: Any) -> None:
    if queries.ndim != 2 or documents.ndim != 2 or queries.shape[1] != documents.shape[1]:
        raise InputError(
            f"queries are {tuple(queries.shape)} and documents {tuple(documents.shape)}",
            remedy="give (rows, dimensions) arrays with the same number of dimensions",
        )
