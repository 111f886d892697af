"""The interfaces between the stages of a retrieval stack, one small Protocol each.

    texts ─ Rewriter ─▶ texts ─ Embedder ─▶ vectors ─ Index ─▶ Retrieved ─ Reranker ─▶ Run

Each implementation has a file of its own and is chosen by `type` in a configuration
(`components.py`). An object of a user's that satisfies a Protocol can stand in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rankproof.data.tables import Run
from rankproof.foundation.arrays import Float

Vectors = NDArray[np.float32]  # (n, D)


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A run and the time that each of its queries took.

    >>> from rankproof.retrieval.protocols import Retrieved
    >>> Retrieved(rp.read_run({"q1": {"a": 0.9}}), np.array([0.002])).seconds.tolist()
    [0.002]
    """

    run: Run
    seconds: Float  # (Q,) wall time; an equal share each where queries were searched together


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of one query's passages by a reranker, and what they cost."""

    score: Float  # (n,) higher is better
    tokens: int  # read by the reranker, query and passage together
    dtype: str  # number format of the scores
    searches: float | None = None  # billed by the server; None if it does not say
    share: float | None = None  # of a search, billed for one passage of the largest request


class Embedder(Protocol):
    """Turns texts into vectors; queries and passages may have different prompts."""

    @property
    def name(self) -> str:
        """Name of the model, for tables."""

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides the vectors: model, prompts, dimensions."""

    def embed_queries(self, texts: Sequence[str]) -> Vectors: ...

    def embed_passages(self, texts: Sequence[str]) -> Vectors: ...


class Built(Protocol):
    """A structure that is built before it is searched."""

    @property
    def name(self) -> str: ...

    @property
    def bytes(self) -> int:
        """Size in memory or on the server's disk; 0 where it is unknown."""

    @property
    def build_seconds(self) -> float: ...


class Index(Built, Protocol):
    """Finds the best passages of each query vector."""

    def search(
        self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved: ...


class Retriever(Built, Protocol):
    """Finds the best passages of each question: a sparse index, or a whole search engine."""

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved: ...


class Reranker(Protocol):
    """Scores the candidates of a query."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """Digest of everything that decides the scores."""

    def score(self, query: str, passages: Sequence[str]) -> Scored: ...


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A question as it is searched."""

    text: str
    kept: str | None = None  # why the question stayed as typed, if its rewriting was refused
    reply: str | None = None  # the reply that was refused
    tokens: tuple[float, float] | None = None  # read and written, where the server counts them


class Rewriter(Protocol):
    """Turns a question as a person typed it into one fit to be searched."""

    @property
    def name(self) -> str: ...

    def rewrite(self, query: str) -> str: ...
