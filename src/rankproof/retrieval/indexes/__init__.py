"""Vector indexes, chosen by settings.

    flat.py        every passage compared, in any number format
    hnsw.py        a graph searched in part, by faiss
    pgvector.py    PostgreSQL, flat or HNSW

Vectors have unit length, so that the inner product they are ranked by is the cosine. Scores are
similarities: higher is better; where bits alone are compared, minus the Hamming distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankproof.data.columns import row_ids
from rankproof.foundation.errors import InputError
from rankproof.precision.scorers import check_vectors
from rankproof.retrieval.components import make
from rankproof.retrieval.protocols import Index, Vectors

Progress = Callable[[float], None]


def make_index(
    chosen: Any,
    vectors: Vectors,
    document_ids: Sequence[str] | None = None,
    *,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> Index:
    """An index of vectors (N, D), built, or taken from where it was built before.

    `folder` keeps graphs between processes; PostgreSQL keeps its own tables. `progress` is
    told how many passages were indexed since it was last told.

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
    found: Index = make("index", chosen, vectors, ids, folder=folder, progress=progress)
    return found
