"""Milvus as a search engine: an embedder and a collection, made here or the user's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankproof.data.columns import row_ids
from rankproof.data.hits import Hits, best_of_repeated
from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import EmbedderChoice, part
from rankproof.retrieval.indexes.milvus import MilvusIndex, MilvusServer, MilvusSettings
from rankproof.retrieval.protocols import Embedder, Retrieved, Vectors
from rankproof.retrieval.ranked_lists import check_depth, run_from_hits, time_each
from rankproof.retrieval.retrievers.http import plain_address


class MilvusRetrieverSettings(MilvusSettings):
    """An embedder and Milvus: a collection made of the corpus, or one of your own, only read."""

    embedder: EmbedderChoice
    collection: str | None = None  # your own: nothing is written to it
    vector_field: str = "vector"  # of your own
    id_field: str = "id"  # of your own: ids as corpus.jsonl has them

    @property
    def decides(self) -> dict[str, Any]:
        """A user's own collection is identified by its address alone."""
        if self.collection is None or self.uri is None:
            return {}
        return {"at": plain_address(self.uri) if "://" in self.uri else self.uri}


@part(
    "retriever",
    "milvus",
    extra="milvus",
    imports=("pymilvus",),
    packages=("pymilvus", "milvus-lite"),
)
class MilvusRetriever:
    """Embeds a question and searches its vector; both count as its time."""

    def __init__(
        self,
        settings: MilvusRetrieverSettings,
        documents: Sequence[str],
        document_ids: Sequence[str] | None,
        vectors: Callable[[Any], Vectors],
        embedder: Callable[[Any], Embedder],
        folder: Path | None = None,
    ):
        self.settings = settings
        self._embedder = embedder(settings.embedder)
        self._index: MilvusIndex | None = None
        if settings.collection is None:
            embedded = vectors(settings.embedder)
            ids = row_ids(document_ids, len(embedded), "document_ids")
            self._index = MilvusIndex(settings, embedded, ids, folder)
            self.bytes, self.build_seconds = self._index.bytes, self._index.build_seconds
        else:
            self.bytes, self.build_seconds = 0, 0.0
            self._own_server = self._open_own_collection()

    @property
    def name(self) -> str:
        collection = self.settings.collection or self.settings.index
        return f"milvus {collection} {self._embedder.name}"

    def _open_own_collection(self) -> MilvusServer:
        """Connect to the user's collection and learn whether its scores are distances."""
        uri, name = self.settings.uri, self.settings.collection
        if uri is None:
            raise InputError(f"collection {name} of no uri", place="Milvus", remedy="give the uri")
        server = MilvusServer(uri, self.settings.token_env)
        with server.errors():
            if not server.client.has_collection(name):
                raise InputError(
                    f"there is no collection {name!r}", place=server.place, remedy="check its name"
                )
            server.client.load_collection(name)
            indexed = server.client.list_indexes(name, field_name=self.settings.vector_field)
            index = server.client.describe_index(name, indexed[0]) if indexed else {}
        is_distance = (index or {}).get("metric_type") == "L2"
        self._sign = -1.0 if is_distance else 1.0
        return server

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """Embed and search one query after the other; the time of embedding is shared equally."""
        check_depth(k)
        start = time.perf_counter()
        vectors = self._embedder.embed_queries(queries)
        share = (time.perf_counter() - start) / max(1, len(queries))
        if self._index is not None:
            retrieved = self._index.search(vectors, k, query_ids)
            return Retrieved(retrieved.run, retrieved.seconds + share)
        hits, seconds = time_each(vectors, lambda vector: self._search_own_collection(vector, k))
        return Retrieved(run_from_hits(self.name, query_ids, hits), share + seconds)

    def _search_own_collection(self, vector: Any, k: int) -> Hits:
        """Return the hits of one vector in the user's collection, distances as negative scores."""
        field = self.settings.id_field
        hits = self._own_server.search(
            str(self.settings.collection),
            vector,
            k,
            filter=self.settings.filter or "",
            anns_field=self.settings.vector_field,
            output_fields=[field],
            search_params={"params": self.settings.search_parameters(k)},
        )
        ids = [str(hit["entity"][field]) for hit in hits]
        return best_of_repeated(ids, [self._sign * float(hit["distance"]) for hit in hits])
