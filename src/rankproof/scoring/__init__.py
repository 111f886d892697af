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
    from rankproof.scoring.activations import sigmoid, softmax
    from rankproof.scoring.exact import search
    from rankproof.scoring.formats import FORMATS, Codes, Format, encode, truncate
    from rankproof.scoring.models import high_precision
    from rankproof.scoring.products import cosine, dot
    from rankproof.scoring.topk import TopK

_HOME = {
    "activations": ("sigmoid", "softmax"),
    "exact": ("search",),
    "formats": ("FORMATS", "Codes", "Format", "encode", "truncate"),
    "models": ("high_precision",),
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
        raise AttributeError(f"module 'rankproof.scoring' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"rankproof.scoring.{_MODULE[name]}"), name)
    globals()[name] = value
    return value
