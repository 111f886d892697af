"""What the parts of a retrieval stack promise each other: a small Protocol each.

    texts ─ Rewriter ─▶ texts ─ Embedder ─▶ vectors ─ Index ─▶ Retrieved ─ Reranker ─▶ Run

One file per implementation, chosen by `type` in a configuration (`settings.py`). Whatever
satisfies a Protocol can be handed in instead, from a user's own code.
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
    """A run, and how long each of its queries took.

    >>> from rankproof.retrieval.protocols import Retrieved
    >>> Retrieved(rp.read_run({"q1": {"a": 0.9}}), np.array([0.002])).seconds.tolist()
    [0.002]
    """

    run: Run
    seconds: Float  # (Q,) wall time; where queries were searched together, an equal share each


@dataclass(frozen=True, slots=True)
class Scored:
    """One query's passages as a reranker scored them."""

    score: Float  # (n,) higher is better
    tokens: int  # that the reranker read, query and passage together
    dtype: str  # the format the scores came in
    searches: float | None = None  # that were billed for it; None where nobody says
    share: float | None = None  # of a search, for one passage of the largest request


class Embedder(Protocol):
    """Texts → vectors. Queries and passages may be prompted differently."""

    @property
    def name(self) -> str:
        """For tables: the model."""

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides the vectors: model, prompts, dimensions."""

    def embed_queries(self, texts: Sequence[str]) -> Vectors: ...

    def embed_passages(self, texts: Sequence[str]) -> Vectors: ...


class Built(Protocol):
    """Something that is made before it is searched."""

    @property
    def name(self) -> str: ...

    @property
    def bytes(self) -> int:
        """What it takes in memory, or on the server's disk; 0 where nobody can tell."""

    @property
    def build_seconds(self) -> float: ...


class Index(Built, Protocol):
    """Vectors → the best passages of each query."""

    def search(
        self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved: ...


class Retriever(Built, Protocol):
    """Questions → the best passages of each: a sparse index, or a whole engine."""

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved: ...


class Reranker(Protocol):
    """A query and its candidates → scores."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides the scores."""

    def score(self, query: str, passages: Sequence[str]) -> Scored: ...


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A question as it is searched, and why it is the one that was typed, if it had to be kept."""

    text: str
    kept: str | None = None
    reply: str | None = None  # what a model said, where that was not taken
    tokens: tuple[float, float] | None = None  # that it read and wrote, where the server counts


class Rewriter(Protocol):
    """A question as a person typed it → a question fit to be searched."""

    @property
    def name(self) -> str: ...

    def rewrite(self, query: str) -> str: ...
