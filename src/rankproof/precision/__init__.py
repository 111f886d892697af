"""Scoring that does not create ties: upcast first, then score, in float32.

    sigmoid, softmax        logits → float32 scores
    dot, cosine             embeddings → float32 scores
    encode, truncate        vectors in narrower number formats
    search, rescore         exact top-k over any number of documents, as a Run
    high_precision          the same for sentence-transformers models, in place

numpy on the CPU (ml_dtypes for the formats numpy lacks), torch on a GPU; names load when they are
first used, so that a bare PyTorch image can import this.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankproof.precision.activations import sigmoid, softmax
    from rankproof.precision.exact import search
    from rankproof.precision.formats import FORMATS, Codes, Format, encode, truncate
    from rankproof.precision.model_patching import high_precision
    from rankproof.precision.products import cosine, dot
    from rankproof.precision.topk import TopK

_HOME = {
    "activations": ("sigmoid", "softmax"),
    "exact": ("search",),
    "formats": ("FORMATS", "Codes", "Format", "encode", "truncate"),
    "model_patching": ("high_precision",),
    "products": ("cosine", "dot"),
    "topk": ("TopK",),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

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


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'rankproof.precision' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"rankproof.precision.{_MODULE[name]}"), name)
    globals()[name] = value
    return value
