"""Retriever for Elasticsearch and OpenSearch: makes an index of texts and vectors, searches it.

    GET  /{index}/_mapping    does it exist, and is it complete?
    PUT  /{index}             create it
    POST /{index}/_bulk       insert rows by number; an interrupted build goes on where it stopped
    POST /{index}/_refresh    make them visible
    PUT  /{index}/_mapping    record that it is complete (_meta)
    GET  /{index}/_stats      its size, once all shards are open
    GET  /{index}/_field_caps the fields of a user's own index
    POST /{index}/_search     by words, by a graph of vectors, or by every vector in a script

An index made here is named by a digest of its contents (`rankproof-…`); a user's own is only read.
Where the two engines differ, each has its `Dialect`. Requests go through the official clients,
which handle nodes, TLS, keys and the check that the server is what it claims to be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol
from urllib.parse import quote, urlsplit

import numpy as np
import polars as pl
from pydantic import Field, StringConstraints, field_validator, model_validator

from rankproof.data.columns import row_ids
from rankproof.data.hits import best_of_repeated
from rankproof.foundation.arrays import Array, Float, Int
from rankproof.foundation.config import (
    BesidePath,
    Count,
    NonNegative,
    Seconds,
    Settings,
    read_secret,
)
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.redaction import redact
from rankproof.retrieval.components import EmbedderChoice, is_local_host
from rankproof.retrieval.fusion import rrf
from rankproof.retrieval.http import Refused
from rankproof.retrieval.identity import contents_digest
from rankproof.retrieval.protocols import Embedder, Retrieved, Vectors
from rankproof.retrieval.ranked_lists import check_depth, run_from_hits, run_from_rows

_KIND = "rankproof lucene 1"
_ROWS_PER_REQUEST = 500
_BYTES_PER_REQUEST = 8 << 20  # servers refuse more than 100 MB
_MAX_HITS = 10_000  # that one search returns: index.max_result_window
_BUSY = 429  # HTTP status
_FIRST_POLL = 0.05  # seconds until the next look at a shard that is opening; doubled each time

FieldName = Annotated[str, StringConstraints(pattern=r"^[\w.@-]+$")]


class LuceneSettings(Settings):
    """Settings of both engines."""

    operation: ClassVar[frozenset[str]] = frozenset(
        {"url", "user", "password_env", "ca_file", "timeout_s", "attempts", "cost_per_1000"}
    )

    url: str
    user: str | None = None
    password_env: str | None = None  # the environment variable that holds the password
    ca_file: BesidePath | None = None  # of the authority that signed the server's certificate
    timeout_s: Seconds = 60.0
    attempts: Count = 4
    mode: Literal["bm25", "knn", "exact", "hybrid"] = "bm25"
    embedder: EmbedderChoice | None = None  # of knn, exact and hybrid
    analyzer: str = "english"  # any the server has: standard, french, …
    k1: NonNegative = 1.2
    b: Annotated[float, Field(ge=0, le=1)] = 0.75
    format: Literal["float32", "int8", "bit"] = "float32"  # of the graph
    m: Annotated[int, Field(ge=2, le=512)] = 16
    ef_construction: Count = 100
    candidates: Annotated[int, Field(ge=1, le=_MAX_HITS)] = 100  # of the graph, for each query
    oversample: Annotated[float, Field(ge=1, le=10)] | None = None  # rescored with float32
    depth: Annotated[int, Field(ge=1, le=_MAX_HITS)] = 100  # of each list of a hybrid
    rrf_k: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    index: str | None = None  # your own: nothing is written to it
    text_field: FieldName = "text"
    vector_field: FieldName = "vector"
    id_field: FieldName | None = None  # of your own, where the passage's id is not _id
    cost_per_1000: NonNegative | None = None  # in the currency of the prices

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        """Refuse a url that is not an address."""
        try:
            parts = urlsplit(url.strip())
            parts.port  # noqa: B018  read to be checked
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                "no address",  # not quoted: it may hold a password
                remedy="write https://host:9200",
            )
        return url.strip()

    @model_validator(mode="after")
    def _possible(self) -> LuceneSettings:
        """Refuse settings that contradict each other."""
        if (self.mode == "bm25") != (self.embedder is None):
            problem = "needs an embedder" if self.embedder is None else "takes no embedder"
            raise InputError(f"mode {self.mode} {problem}", remedy="see docs/engines.md")
        if self.mode == "exact" and (self.format != "float32" or self.oversample is not None):
            raise InputError(
                "mode exact compares float32", remedy="leave out format and oversample"
            )
        if (self.user is None) != (self.password_env is None):
            raise InputError("user and password_env belong together", remedy="give both")
        return self

    @property
    def over_network(self) -> bool:
        return not is_local_host(urlsplit(self.url).hostname)

    @property
    def decides(self) -> dict[str, Any]:
        """A user's own index is identified by its address alone."""
        if self.index is None:
            return {}
        parts = urlsplit(self.url)
        return {"at": f"{parts.hostname}:{parts.port}{parts.path}"}

    @property
    def credentials(self) -> tuple[str, str] | None:
        """User and password."""
        password = read_secret(self.password_env, urlsplit(self.url).hostname or "the server")
        return None if password is None else (str(self.user), password)

    @property
    def client_options(self) -> dict[str, Any]:
        """Options that both official clients have: retries, and the server's authority."""
        options: dict[str, Any] = {
            "max_retries": self.attempts - 1,
            "retry_on_timeout": True,
            "retry_on_status": (429, 502, 503, 504),
        }
        if self.ca_file is not None:
            options["ca_certs"] = str(self.ca_file)
        return options


class Dialect(Protocol):
    """The client of one engine, and the requests in which the two engines differ."""

    name: str
    place: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request (a list as lines of JSON) and return the answer, or raise Refused."""

    def index_settings(self) -> dict[str, Any]:
        """Return the settings of an index with vectors that only this engine has."""

    def vector_mapping(self, dimensions: int) -> dict[str, Any]:
        """Return the mapping of the field of vectors."""

    def graph_query(self, vector: list[float], k: int) -> dict[str, Any]:
        """Return the body of a search in the graph."""

    def exact_script(self, vector: list[float]) -> dict[str, Any]:
        """Return the script that scores every vector."""


class LuceneEngine:
    """A retriever over one index of Elasticsearch or OpenSearch."""

    def __init__(
        self,
        settings: LuceneSettings,
        dialect: Dialect,
        documents: Sequence[str],
        document_ids: Sequence[str] | None,
        vectors: Callable[[Any], Vectors] | None,
        embedder: Callable[[Any], Embedder] | None,
        *,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.settings, self._dialect, self._sleep = settings, dialect, sleep
        self._embedder: Embedder | None = None
        self._ids: pl.Series | None = None  # (N,) ids by row; None for a user's own index
        self.bytes, self.build_seconds = 0, 0.0
        embedded: Vectors | None = None
        if settings.mode != "bm25":
            assert embedder is not None
            self._embedder = embedder(settings.embedder)
        if settings.index is not None:
            self.index = settings.index
            self._check_fields()
            return
        if settings.mode != "bm25":
            assert vectors is not None
            embedded = vectors(settings.embedder)
        self._ids = row_ids(document_ids, len(documents), "document_ids")
        self.index = f"rankproof-{self._digest(documents, embedded)}"
        self.build_seconds = self._fill(documents, embedded)
        self.bytes = self._stored_bytes()

    @property
    def name(self) -> str:
        return f"{self._dialect.name} {self.settings.index or self.settings.mode}"

    def drop(self) -> None:
        """Delete the index, unless it is the user's own."""
        if self.settings.index is None:
            self._ask("DELETE", "")

    # ---------------------------------------------------------------------------- searching

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """Search one query after the other, each timed by itself, the network included.

        When every passage is scored (bm25, exact), `Run.cut` counts the documents beyond k that tie
        with the last one; with a graph they are unknown.
        """
        check_depth(k)
        mode = self.settings.mode
        depth = max(k, self.settings.depth) if mode == "hybrid" else k
        if depth > _MAX_HITS:
            raise InputError(
                f"{depth} passages of one query; {self._dialect.name} returns at most {_MAX_HITS}",
                place=self._dialect.place,
                remedy="ask for fewer",
            )
        start = time.perf_counter()
        vectors: Array = np.zeros((len(queries), 0), np.float32)
        if self._embedder is not None:
            vectors = self._embedder.embed_queries(queries)
        seconds = np.full(len(queries), (time.perf_counter() - start) / max(1, len(queries)))
        runs: list[Retrieved] = []
        bodies: list[dict[str, Any]]
        if mode in ("bm25", "hybrid"):
            bodies = [{"query": {"match": {self.settings.text_field: text}}} for text in queries]
            runs.append(self._search_all(bodies, depth, query_ids, is_exact=True))
        if mode == "exact":
            bodies = [self._exact_query(vector.tolist()) for vector in vectors]
            runs.append(self._search_all(bodies, depth, query_ids, is_exact=True))
        if mode in ("knn", "hybrid"):
            bodies = [self._dialect.graph_query(vector.tolist(), depth) for vector in vectors]
            runs.append(self._search_all(bodies, depth, query_ids, is_exact=False))
        for retrieved in runs:
            seconds = seconds + retrieved.seconds
        if len(runs) == 1:
            return Retrieved(runs[0].run, seconds)
        start = time.perf_counter()
        lists = [retrieved.run for retrieved in runs]
        fused = rrf(lists, k=self.settings.rrf_k, top=k, name=self.name)
        share = (time.perf_counter() - start) / max(1, len(queries))
        return Retrieved(fused, seconds + share)

    def _exact_query(self, vector: list[float]) -> dict[str, Any]:
        script = self._dialect.exact_script(vector)
        return {"query": {"script_score": {"query": {"match_all": {}}, "script": script}}}

    def _search_all(
        self,
        bodies: Sequence[dict[str, Any]],
        k: int,
        query_ids: Sequence[str] | None,
        *,
        is_exact: bool,
    ) -> Retrieved:
        """Send one search after the other, each again with more hits until a tie at k is whole."""
        lists: list[tuple[list[str], Float]] = []
        ties: list[int] = []
        seconds = np.zeros(len(bodies))
        for number, body in enumerate(bodies):
            start = time.perf_counter()
            names, scores = self._search_one(body, k)
            seconds[number] = time.perf_counter() - start
            size = k
            while is_exact and len(names) == size < _MAX_HITS:  # until the tie is complete
                size = min(_MAX_HITS, 2 * size)
                names, scores = self._search_one(body, size)
                if scores[-1] < scores[k - 1]:
                    break
            order = np.lexsort((self._rows(names), -scores))
            best, outside = order[:k], order[k:]
            ties.append(int((scores[outside] == scores[best[-1]]).sum()) if len(best) else 0)
            lists.append(([names[position] for position in best], scores[best]))
        cut: Int | None = np.array(ties, np.int64) if is_exact else None
        if self._ids is None:
            hits = [best_of_repeated(names, scores.tolist()) for names, scores in lists]
            return Retrieved(run_from_hits(self.name, query_ids, hits, cut), seconds)
        rows = [(self._rows(names), scores) for names, scores in lists]
        run = run_from_rows(self.name, query_ids, self._ids, rows, "float32", cut)
        return Retrieved(run, seconds)

    def _rows(self, names: list[str]) -> Int:
        """Return the rows of hits in the index; in a user's own, their order of arrival."""
        if self._ids is None:
            return np.arange(len(names))
        return np.array([int(name) for name in names], np.int64)

    def _search_one(self, body: dict[str, Any], k: int) -> tuple[list[str], Float]:
        """Return the names and scores of the hits; refuse an answer without some shards."""
        request = {"size": k, "_source": False, "track_total_hits": False, **body}
        field = self.settings.id_field if self.settings.index is not None else None
        if field is not None:
            request["fields"] = [field]
        answer = self._ask("POST", "/_search", request)
        shards = answer.get("_shards", {})
        if answer.get("timed_out") or shards.get("failed"):
            failures = shards.get("failures") or [{}]
            reason = shorten(redact(_reason_of(failures[0].get("reason"))), 200)
            raise InputError(
                f"only a part of the index answered{f': {reason}' if reason else ''}",
                place=self._dialect.place,
                remedy="see the server's log, and run again",
            )
        hits = answer["hits"]["hits"]
        if field is None:
            names = [str(hit["_id"]) for hit in hits]
        else:
            names = [str(_first_value(hit, field, self._dialect.place)) for hit in hits]
        return names, np.array([hit["_score"] for hit in hits], np.float64)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._dialect.ask(method, f"/{quote(self.index, safe='')}{path}", body)

    # ------------------------------------------------------------------------------- making

    def _digest(self, documents: Sequence[str], vectors: Vectors | None) -> str:
        """Return a digest of all that decides the index's contents, which searching does not."""
        assert self._ids is not None
        stored = [_KIND, self._dialect.name, self._definition(vectors), self._ids.to_list()]
        return contents_digest([stored, list(documents)], vectors)[:32]

    def _definition(self, vectors: Vectors | None) -> dict[str, Any]:
        """Return the settings and mappings of the index."""
        settings, mode = self.settings, self.settings.mode
        fields: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        if mode in ("bm25", "hybrid"):
            fields[settings.text_field] = {"type": "text", "analyzer": settings.analyzer}
            bm25 = {"type": "BM25", "k1": settings.k1, "b": settings.b}
            extra["similarity"] = {"default": bm25}
        source: dict[str, Any] = {}
        if vectors is not None:
            fields[settings.vector_field] = self._dialect.vector_mapping(vectors.shape[1])
            source = {"_source": {"excludes": [settings.vector_field]}}
            extra |= self._dialect.index_settings()
        index = {"number_of_shards": 1, "number_of_replicas": 0, **extra}
        return {
            "settings": {"index": index},
            "mappings": {"dynamic": "strict", **source, "properties": fields},
        }

    def _fill(self, documents: Sequence[str], vectors: Vectors | None) -> float:
        """Insert the rows that the index lacks; return its build time, now or earlier."""
        metadata = self._metadata()
        if metadata is None:
            try:
                self._ask("PUT", "", self._definition(vectors))
            except Refused as error:
                if "resource_already_exists" not in str(error):  # another process was faster
                    raise
        elif "build_seconds" in metadata:
            return float(metadata["build_seconds"])
        start = time.perf_counter()
        self._ask("POST", "/_refresh")
        present = int(self._ask("GET", "/_count")["count"])
        for first, lines in self._requests(documents, vectors):
            if first + len(lines) // 2 > present:  # rows are inserted in order
                self._send(lines)
        self._ask("POST", "/_refresh")
        count = int(self._ask("GET", "/_count")["count"])
        if count != len(documents):
            raise InputError(
                f"{count} of {len(documents)} passages are in the index {self.index}",
                place=self._dialect.place,
                remedy="delete that index, and run again",
            )
        seconds = time.perf_counter() - start
        self._ask("PUT", "/_mapping", {"_meta": {"rankproof": {"build_seconds": seconds}}})
        return seconds

    def _stored_bytes(self) -> int:
        """Return the size of the index, once all its shards are open.

        OpenSearch closes a shard of vectors without a graph for a moment when its mapping changes.
        Until it is open again it has no size, and a search is refused.
        """
        pause = _FIRST_POLL
        while True:
            stats = self._ask("GET", "/_stats/store")
            shards, size = stats["_shards"], stats["_all"]["primaries"].get("store")
            if size is not None and shards["successful"] == shards["total"]:
                return int(size["size_in_bytes"])
            if pause > self.settings.timeout_s:
                raise InputError(
                    f"{shards['successful']} of {shards['total']} shards of the index "
                    f"{self.index} are open",
                    place=self._dialect.place,
                    remedy="see the server's log, and run again",
                )
            self._sleep(pause)
            pause *= 2

    def _check_fields(self) -> None:
        """Refuse configured fields that the user's own index lacks: they would match nothing."""
        settings, mode = self.settings, self.settings.mode
        configured = {
            "text_field": settings.text_field if mode in ("bm25", "hybrid") else None,
            "vector_field": None if mode == "bm25" else settings.vector_field,
            "id_field": settings.id_field,
        }
        known = self._ask("GET", "/_field_caps?fields=*")["fields"]
        for setting, field in configured.items():
            if field is not None and field not in known:
                user_fields = sorted(name for name in known if not name.startswith("_"))
                remedy = f"name one of its fields: {shorten(', '.join(user_fields), 200)}"
                raise InputError(
                    f"{setting} {field!r} is not in the index {self.index}",
                    place=self._dialect.place,
                    remedy=remedy if user_fields else "check the index: it has no fields",
                )

    def _metadata(self) -> dict[str, Any] | None:
        """Return what rankproof recorded in the index; None if it does not exist."""
        try:
            answer = self._ask("GET", "/_mapping")
        except Refused as error:
            if error.status == 404:
                return None
            raise
        recorded = answer[self.index]["mappings"].get("_meta", {})
        metadata: dict[str, Any] = recorded.get("rankproof", {})
        return metadata

    def _requests(
        self, documents: Sequence[str], vectors: Vectors | None
    ) -> Iterator[tuple[int, list[Any]]]:
        """Yield the first row and the lines of each request, always split at the same rows."""
        has_text = self.settings.mode in ("bm25", "hybrid")
        lines: list[Any] = []
        first = size = 0
        for row, text in enumerate(documents):
            row_size = len(text.encode()) + 64  # bytes of JSON, about
            row_size += 0 if vectors is None else 12 * vectors.shape[1]
            is_full = size + row_size > _BYTES_PER_REQUEST or len(lines) == 2 * _ROWS_PER_REQUEST
            if lines and is_full:
                yield first, lines
                lines, first, size = [], row, 0
            source: dict[str, Any] = {self.settings.text_field: text} if has_text else {}
            if vectors is not None:
                source[self.settings.vector_field] = vectors[row].tolist()
            lines += [{"index": {"_id": str(row)}}, source]
            size += row_size
        if lines:
            yield first, lines

    def _send(self, lines: list[Any]) -> None:
        """Insert the rows of a request; those that a busy server rejects are sent again."""
        for attempt in range(self.settings.attempts):
            answer = self._ask("POST", "/_bulk", lines)
            if not answer["errors"]:
                return
            results = [item["index"] for item in answer["items"]]
            failed = next((r for r in results if r["status"] not in (200, 201, _BUSY)), None)
            if failed is not None:
                reason = (failed.get("error") or {}).get("reason", f"status {failed['status']}")
                raise InputError(
                    f"passage {failed['_id']} is refused: {shorten(reason, 200)}",
                    place=self._dialect.place,
                    remedy="see what the server says",
                )
            rejected = [row for row, r in enumerate(results) if r["status"] == _BUSY]
            lines = [line for row in rejected for line in lines[2 * row : 2 * row + 2]]
            self._sleep(float(2**attempt))
        raise InputError(
            f"it is too busy to index ({self.settings.attempts} attempts)",
            place=self._dialect.place,
            remedy="run again later: what is in stays in",
        )


def _first_value(hit: dict[str, Any], field: str, place: str) -> Any:
    values = hit.get("fields", {}).get(field)
    if not values:
        raise InputError(
            f"a hit has no field {field!r}", place=place, remedy="check id_field and its mapping"
        )
    return values[0]


def refused_error(status: int, body: Any, place: str) -> Refused:
    """Return the error for an answer with an error status, without secrets."""
    error = body.get("error") if isinstance(body, dict) else body
    shards = error.get("failed_shards") if isinstance(error, dict) else None
    # If a search fails on all shards, only the shards' errors say why.
    reason = redact(_reason_of(shards[0].get("reason") if shards else error))
    remedy = "check the settings"
    if status in (401, 403):
        remedy = "check the user, the password or the key in the environment"
    elif status == 404:
        remedy = "check the url and the index"
    elif status >= 500 or status == _BUSY:
        remedy = "see the server's log, and run again"
    detail = f": {shorten(reason, 200)}" if reason else ""
    return Refused(status, f"the server answers {status}{detail}", place=place, remedy=remedy)


def _reason_of(error: Any) -> str:
    """Return type and reason of an error of the server, in one line."""
    if not isinstance(error, dict):
        return " ".join(str(error or "").split())
    return " ".join(f"{error.get('type', '')}: {error.get('reason', '')}".strip(": ").split())


def connection_error(error: Exception, place: str, timeout_s: float) -> InputError:
    """Return the error for an exception of the client, by its kind.

    The message is not quoted: it may contain the address with its password.
    """
    words = f"{type(error).__name__} {error}".lower()
    if "certificate" in words or "tls" in words or "ssl" in words:
        return InputError(
            "its certificate is not valid", place=place, remedy="give ca_file, or check the url"
        )
    if "timeout" in words or "timed out" in words:
        return InputError(
            f"no answer within {timeout_s:g} s", place=place, remedy="see the server's log"
        )
    if "serializ" in words or "mimetype" in words:
        return InputError("the answer is not JSON", place=place, remedy="check the url")
    return InputError("no server answers", place=place, remedy="start it, or check the url")
