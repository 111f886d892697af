"""Milvus as a whole engine: an embedder and a collection, made here or the user's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rankproof.data.columns import row_ids
from rankproof.data.hits import Hits, best_of_repeated
from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import EmbedderChoice, part
from rankproof.retrieval.hits import run_of_hits
from rankproof.retrieval.indexes.milvus import MilvusIndex, MilvusServer, MilvusSettings
from rankproof.retrieval.protocols import Embedder, Retrieved, Vectors
from rankproof.retrieval.retrievers.http import plain_address
from rankproof.retrieval.row_lists import check_depth, timed


class MilvusRetrieverSettings(MilvusSettings):
    """An embedder and Milvus: a collection made of the corpus, or one of your own, only read."""

    embedder: EmbedderChoice
    collection: str | None = None  # your own: nothing is written to it
    vector_field: str = "vector"  # of your own
    id_field: str = "id"  # of your own: ids as corpus.jsonl has them

    @property
    def decides(self) -> dict[str, Any]:
        """What is in a collection of the user's own, only its place says."""
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
    """A question is embedded and searched; both are its time."""

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
            made = vectors(settings.embedder)
            ids = row_ids(document_ids, len(made), "document_ids")
            self._index = MilvusIndex(settings, made, ids, folder)
            self.bytes, self.build_seconds = self._index.bytes, self._index.build_seconds
        else:
            self.bytes, self.build_seconds = 0, 0.0
            self._theirs = self._open()

    @property
    def name(self) -> str:
        of = self.settings.collection or self.settings.index
        return f"milvus {of} {self._embedder.name}"

    def _open(self) -> MilvusServer:
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
            said = server.client.describe_index(name, indexed[0]) if indexed else {}
        self._sign = -1.0 if (said or {}).get("metric_type") == "L2" else 1.0  # a distance
        return server

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        check_depth(k)
        begun = time.perf_counter()
        vectors = self._embedder.embed_queries(queries)
        share = (time.perf_counter() - begun) / max(1, len(queries))
        if self._index is not None:
            found = self._index.search(vectors, k, query_ids)
            return Retrieved(found.run, found.seconds + share)
        hits, seconds = timed(vectors, lambda vector: self._theirs_of(vector, k))
        return Retrieved(run_of_hits(self.name, query_ids, hits), share + seconds)

    def _theirs_of(self, vector: Any, k: int) -> Hits:
        field = self.settings.id_field
        found = self._theirs.search(
            *(str(self.settings.collection), vector, k),
            filter=self.settings.filter or "",
            anns_field=self.settings.vector_field,
            output_fields=[field],
            search_params={"params": self.settings.searching(k)},
        )
        ids = [str(hit["entity"][field]) for hit in found]
        return best_of_repeated(ids, [self._sign * float(hit["distance"]) for hit in found])
