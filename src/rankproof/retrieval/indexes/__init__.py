"""Vector indexes, chosen by settings.

    flat.py        compares every passage, in any number format
    hnsw.py        searches a graph in part, by faiss
    milvus.py      Milvus, in this process or as a cluster
    pgvector.py    PostgreSQL, flat or HNSW

Vectors have unit length, so that the inner product by which they are ranked is the cosine. Scores
are similarities: higher is better. Bits alone are compared by minus the Hamming distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankproof.data.columns import row_ids
from rankproof.foundation.errors import InputError
from rankproof.precision.scorers import check_vectors
from rankproof.retrieval.components import make_component
from rankproof.retrieval.protocols import Index, Vectors


def make_index(
    chosen: Any,
    vectors: Vectors,
    document_ids: Sequence[str] | None = None,
    *,
    folder: str | Path | None = None,
) -> Index:
    """Build an index of (N, D) vectors, or open the one that was built before.

    `folder` keeps graphs between processes; PostgreSQL keeps its own tables.

    >>> from rankproof.retrieval.indexes import make_index
    >>> from rankproof.retrieval.indexes.flat import FlatSettings
    >>> index = make_index(FlatSettings(), np.eye(3, dtype=np.float32), ["a", "b", "c"])
    >>> index.search(np.array([[0, 1, 0]], np.float32), k=1).run.doc.to_list()
    ['b']
    """
    check_vectors(vectors, "documents")
    if not len(vectors):
        raise InputError("no vectors to index", remedy="give one passage or more")
    ids = row_ids(document_ids, len(vectors), "document_ids")
    index: Index = make_component("index", chosen, vectors, ids, folder=folder)
    return index
