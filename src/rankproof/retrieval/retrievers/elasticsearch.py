"""Elasticsearch, through its official client."""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal
from urllib.parse import urlsplit

from rankproof.foundation.config import read_secret
from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import part
from rankproof.retrieval.http import Refused
from rankproof.retrieval.lucene import LuceneEngine, LuceneSettings, connection_error, refused_error
from rankproof.retrieval.protocols import Embedder, Vectors

_FORMATS = {"float32": "hnsw", "int8": "int8_hnsw", "bit": "bbq_hnsw"}


class ElasticsearchSettings(LuceneSettings):
    """Elasticsearch: BM25, HNSW in float32, int8 or one bit, exact vectors, hybrid."""

    operation: ClassVar[frozenset[str]] = LuceneSettings.operation | {"key_env"}

    type: Literal["elasticsearch"]
    key_env: str | None = None  # the environment variable that holds an API key


class Elasticsearch:
    """The client, and the requests that only Elasticsearch understands."""

    name = "elasticsearch"

    def __init__(self, settings: ElasticsearchSettings):
        import elasticsearch

        for logger in ("elastic_transport", "elasticsearch"):  # they log addresses
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        self._errors = elasticsearch
        self._settings = settings
        self.place = f"Elasticsearch {urlsplit(settings.url).hostname}"
        key = read_secret(settings.key_env, self.place)
        try:
            self._client = elasticsearch.Elasticsearch(
                settings.url,
                api_key=key,
                basic_auth=settings.credentials,
                request_timeout=settings.timeout_s,
                meta_header=False,
                **settings.client_options,
            )
        except ValueError:
            raise InputError(
                "the url is not an address, or two ways to sign in are given",
                place="Elasticsearch",
                remedy="write https://host:9200, and a key or a user with a password",
            ) from None
        weakref.finalize(self, self._client.close)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request (a list as lines of JSON) and return the answer, or raise Refused."""
        is_lines = isinstance(body, list)
        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/x-ndjson" if is_lines else "application/json"
        try:
            return self._client.perform_request(method, path, headers=headers, body=body).body
        except self._errors.UnsupportedProductError:
            raise InputError(
                "the server is not Elasticsearch",
                place=self.place,
                remedy="check the url; OpenSearch has the type opensearch",
            ) from None
        except self._errors.ApiError as error:
            if "compatible-with" in str(error.body):
                raise self._version_error(error) from None
            raise refused_error(error.meta.status, error.body, self.place) from None
        except self._errors.TransportError as error:
            raise connection_error(error, self.place, self._settings.timeout_s) from None

    def _version_error(self, error: Any) -> Refused:
        """Return the error for a client whose major version is later than the server's.

        A client requests answers of its own version, which only a server of that version or the
        next one returns. The server names the versions it accepts, the highest first; servers
        before version 8 name none.
        """
        accepted = re.search(r"must be either version (\d+)", str(error.body))
        major = accepted[1] if accepted else "7"
        client = ".".join(map(str, self._errors.__version__))
        return Refused(
            error.meta.status,
            f"the server is of version {major} and refuses the client elasticsearch {client}",
            place=self.place,
            remedy=f"install the client of its version: pip install 'elasticsearch=={major}.*'",
        )

    def index_settings(self) -> dict[str, Any]:
        return {}

    def vector_mapping(self, dimensions: int) -> dict[str, Any]:
        """Map vectors to max_inner_product: cosine refuses the zero vectors of blank texts."""
        settings = self._settings
        if settings.mode == "exact":
            return {"type": "dense_vector", "dims": dimensions, "index": False}
        options = {
            "type": _FORMATS[settings.format],
            "m": settings.m,
            "ef_construction": settings.ef_construction,
        }
        return {
            "type": "dense_vector",
            "dims": dimensions,
            "index": True,
            "similarity": "max_inner_product",
            "index_options": options,
        }

    def graph_query(self, vector: list[float], k: int) -> dict[str, Any]:
        """Return the body of a search in the graph."""
        settings = self._settings
        knn: dict[str, Any] = {
            "field": settings.vector_field,
            "query_vector": vector,
            "k": k,
            "num_candidates": max(settings.candidates, k),
        }
        if settings.oversample is not None:
            knn["rescore_vector"] = {"oversample": settings.oversample}
        return {"knn": knn}

    def exact_script(self, vector: list[float]) -> dict[str, Any]:
        """Score 1 + cosine, but not below 0, where rounding may lead and scores may not be."""
        field = self._settings.vector_field
        source = f"Math.max(0.0, 1.0 + dotProduct(params.query_vector, '{field}'))"
        return {"source": source, "params": {"query_vector": vector}}


@part("retriever", "elasticsearch", extra="elasticsearch", imports=("elasticsearch",), network=True)
def make_elasticsearch(
    settings: ElasticsearchSettings,
    documents: Sequence[str],
    document_ids: Sequence[str] | None = None,
    vectors: Callable[[Any], Vectors] | None = None,
    embedder: Callable[[Any], Embedder] | None = None,
) -> LuceneEngine:
    """Return a retriever over an index of Elasticsearch, made here or the user's own."""
    dialect = Elasticsearch(settings)
    return LuceneEngine(settings, dialect, documents, document_ids, vectors, embedder)
