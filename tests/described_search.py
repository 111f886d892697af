"""`rankproof.precision.search` as plain arrays: what its arguments describe, without a Run."""

from __future__ import annotations

from typing import Any

from rankproof.precision.exact_search import default_format, find_top_k
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.precision.topk import TopK


def find(
    queries: Any,
    documents: Any,
    k: int,
    *,
    format: str | None = None,  # noqa: A002
    originals: Any = None,
    are_unit: bool = False,
    **settings: Any,
) -> TopK:
    """Return the k best documents by the pipeline that the settings describe."""
    pipeline = ScoringPipeline.of(format or default_format(documents), **settings)
    return find_top_k(queries, documents, k, pipeline, originals=originals, are_unit=are_unit)
