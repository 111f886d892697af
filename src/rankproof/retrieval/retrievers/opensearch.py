"""OpenSearch, through its official client."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import model_validator

from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import part
from rankproof.retrieval.lucene import LuceneEngine, LuceneSettings, connection_error, refused_error
from rankproof.retrieval.protocols import Embedder, Vectors

# Engine and encoder of each format: only Lucene encodes in 7 bits, only faiss in one ("binary").
_FORMATS: dict[str, tuple[str, dict[str, Any] | None]] = {
    "float32": ("faiss", None),
    "int8": ("lucene", {"name": "sq", "parameters": {"bits": 7}}),
    "bit": ("faiss", {"name": "binary", "parameters": {"bits": 1}}),
}


class OpensearchSettings(LuceneSettings):
    """OpenSearch: BM25, HNSW in float32, int8 or one bit, exact vectors, hybrid."""

    type: Literal["opensearch"]

    @model_validator(mode="after")
    def _check_oversample(self) -> OpensearchSettings:
        if self.format == "int8" and self.oversample is not None:
            raise InputError(
                "OpenSearch does not rescore int8, and ignores oversample",
                remedy="leave out oversample, or raise candidates",
            )
        return self


class Opensearch:
    """The client, and the requests that only OpenSearch understands."""

    name = "opensearch"

    def __init__(self, settings: OpensearchSettings):
        import opensearchpy

        logging.getLogger("opensearch").setLevel(logging.CRITICAL)  # it logs addresses
        self._errors = opensearchpy.exceptions
        self._settings = settings
        self.place = f"OpenSearch {urlsplit(settings.url).hostname}"
        self._client = opensearchpy.OpenSearch(
            hosts=[settings.url],
            http_auth=settings.credentials,
            timeout=settings.timeout_s,
            **settings.client_options,
        )
        weakref.finalize(self, self._client.close)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request (a list as lines of JSON) and return the answer, or raise Refused."""
        is_lines = isinstance(body, list)
        headers = {"content-type": "application/x-ndjson" if is_lines else "application/json"}
        if is_lines:
            dump = self._client.transport.serializer.dumps
            body = "".join(f"{dump(line)}\n" for line in body)
        try:
            return self._client.transport.perform_request(method, path, headers=headers, body=body)
        except self._errors.TransportError as error:
            if isinstance(error.status_code, int):
                raise refused_error(error.status_code, error.info, self.place) from None
            raise connection_error(error, self.place, self._settings.timeout_s) from None
        except self._errors.OpenSearchException as error:
            raise connection_error(error, self.place, self._settings.timeout_s) from None

    def index_settings(self) -> dict[str, Any]:
        return {} if self._settings.mode == "exact" else {"knn": True}

    def vector_mapping(self, dimensions: int) -> dict[str, Any]:
        """Map vectors to innerproduct: cosinesimil refuses the zero vectors of blank texts."""
        settings = self._settings
        if settings.mode == "exact":
            return {"type": "knn_vector", "dimension": dimensions}
        engine, encoder = _FORMATS[settings.format]
        parameters: dict[str, Any] = {"m": settings.m, "ef_construction": settings.ef_construction}
        if encoder is not None:
            parameters["encoder"] = encoder
        return {
            "type": "knn_vector",
            "dimension": dimensions,
            "space_type": "innerproduct",
            "method": {"name": "hnsw", "engine": engine, "parameters": parameters},
        }

    def graph_query(self, vector: list[float], k: int) -> dict[str, Any]:
        """Return the body of a search in the graph."""
        settings = self._settings
        knn: dict[str, Any] = {
            "vector": vector,
            "k": k,
            "method_parameters": {"ef_search": max(settings.candidates, k)},
        }
        if settings.oversample is not None:
            knn["rescore"] = {"oversample_factor": settings.oversample}
        return {"query": {"knn": {settings.vector_field: knn}}}

    def exact_script(self, vector: list[float]) -> dict[str, Any]:
        params = {
            "field": self._settings.vector_field,
            "query_value": vector,
            "space_type": "innerproduct",
        }
        return {"source": "knn_score", "lang": "knn", "params": params}


@part("retriever", "opensearch", extra="opensearch", imports=("opensearchpy",), network=True)
def make_opensearch(
    settings: OpensearchSettings,
    documents: Sequence[str],
    document_ids: Sequence[str] | None = None,
    vectors: Callable[[Any], Vectors] | None = None,
    embedder: Callable[[Any], Embedder] | None = None,
) -> LuceneEngine:
    """Return a retriever over an index of OpenSearch, made here or the user's own."""
    dialect = Opensearch(settings)
    return LuceneEngine(settings, dialect, documents, document_ids, vectors, embedder)
