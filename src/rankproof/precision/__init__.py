"""Scoring vectors and logits in any number format, without the ties that narrow formats create.

For: float32 scores of vectors (`dot`, `cosine`) and logits (`sigmoid`, `softmax`), exact search in
every number format (`search`), encoding (`encode`, `truncate`), and sentence-transformers models
that score in float32 (`high_precision`). Approximate indexes and embedders are in `retrieval`.

pipeline.py           ScoringPipeline: how scores are made, and its name
formats.py            number formats: encode, decode, round
exact_search.py       the k best documents of each query in any format, as a Run
scorers.py, topk.py   scores of blocks and pairs; the k best over blocks
fixed_sum.py          a sum of products with the same bits on every machine
products.py, activations.py   scores of all pairs; scores of logits
quantized_arrays.py, array_types.py   integer arrays and what they stand for; numpy and torch
gpu_*.py              the same searches on a GPU
model_patching.py, mteb.py    models and MTEB tasks in high precision

numpy on the CPU (ml_dtypes for the formats numpy lacks), torch on a GPU. Names load on first use,
so that a bare PyTorch image can import this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankproof.precision.activations import sigmoid, softmax
    from rankproof.precision.exact_search import search
    from rankproof.precision.formats import FORMATS, Codes, Format, encode, truncate
    from rankproof.precision.model_patching import high_precision
    from rankproof.precision.products import cosine, dot
    from rankproof.precision.topk import TopK

__all__ = [
    "FORMATS",
    "Codes",
    "Format",
    "TopK",
    "cosine",
    "dot",
    "encode",
    "high_precision",
    "search",
    "sigmoid",
    "softmax",
    "truncate",
]

_NAMES_BY_MODULE = {
    "activations": ("sigmoid", "softmax"),
    "exact_search": ("search",),
    "formats": ("FORMATS", "Codes", "Format", "encode", "truncate"),
    "model_patching": ("high_precision",),
    "products": ("cosine", "dot"),
    "topk": ("TopK",),
}


def __getattr__(name: str) -> Any:
    """Import a public name's module when the name is first used."""
    for module, names in _NAMES_BY_MODULE.items():
        if name in names:
            value = getattr(importlib.import_module(f"rankproof.precision.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'rankproof.precision' has no attribute {name!r}")
