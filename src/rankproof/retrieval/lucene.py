"""What Elasticsearch and OpenSearch share: an index of texts and vectors, made and searched.

    GET  /{index}/_mapping    is it there, and whole?
    PUT  /{index}             make it
    POST /{index}/_bulk       rows by number, so that what was stopped goes on where it stopped
    POST /{index}/_refresh    make them visible
    PUT  /{index}/_mapping    write down that it is whole (_meta)
    GET  /{index}/_stats      its size, once all shards are open
    GET  /{index}/_field_caps which fields an index of the user's own has
    POST /{index}/_search     words, a graph of vectors, or every vector by script

An index of ours is named by a digest of what it holds (`rankproof-…`); one of the user's own is
only read. Where the two differ, each says so in its file (`Dialect`). Requests go through the
official clients, which know of nodes, TLS, keys and whether the server is what it claims to be.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, Protocol
from urllib.parse import quote, urlsplit

import numpy as np
import polars as pl
from pydantic import Field, StringConstraints, field_validator, model_validator

from rankproof.data.columns import row_ids
from rankproof.data.hits import best_of_repeated
from rankproof.data.tables import Run
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
from rankproof.retrieval.components import EmbedderChoice, is_here
from rankproof.retrieval.fusion import rrf
from rankproof.retrieval.hits import run_of_hits
from rankproof.retrieval.http import Refused
from rankproof.retrieval.protocols import Embedder, Retrieved, Vectors
from rankproof.retrieval.row_lists import check_depth, run_of

_KIND = "rankproof lucene 1"
_ROWS = 500  # of one bulk request, and bytes: servers refuse more than 100 MB
_BYTES = 8 << 20
_MOST = 10_000  # hits that one search returns: index.max_result_window
_BUSY = 429
_PAUSE = 0.05  # seconds to the second look at a shard that is opening; then twice as long

FieldName = Annotated[str, StringConstraints(pattern=r"^[\w.@-]+$")]


class LuceneSettings(Settings):
    """What both engines are told."""

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
    candidates: Annotated[int, Field(ge=1, le=_MOST)] = 100  # of the graph, for each query
    oversample: Annotated[float, Field(ge=1, le=10)] | None = None  # rescored with float32
    depth: Annotated[int, Field(ge=1, le=_MOST)] = 100  # of each list of a hybrid
    rrf_k: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    index: str | None = None  # your own: nothing is written to it
    text_field: FieldName = "text"
    vector_field: FieldName = "vector"
    id_field: FieldName | None = None  # of your own, where the passage's id is not _id
    cost_per_1000: NonNegative | None = None  # in the currency of the prices

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
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
        return not is_here(urlsplit(self.url).hostname)

    @property
    def decides(self) -> dict[str, Any]:
        """What is in an index of the user's own, only its place says."""
        if self.index is None:
            return {}
        parts = urlsplit(self.url)
        return {"at": f"{parts.hostname}:{parts.port}{parts.path}"}

    @property
    def password(self) -> str | None:
        return read_secret(self.password_env, urlsplit(self.url).hostname or "the server")


class Dialect(Protocol):
    """Where Elasticsearch and OpenSearch differ."""

    name: str
    place: str

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What the server answers, a list as lines of JSON; Refused where it says no."""

    def settings(self) -> dict[str, Any]:
        """Of an index, beside those that both know."""

    def field(self, dimensions: int) -> dict[str, Any]:
        """The mapping of the vectors."""

    def graph(self, vector: list[float], k: int) -> dict[str, Any]:
        """The body of a search in the graph."""

    def script(self, vector: list[float]) -> dict[str, Any]:
        """The script that compares every vector."""


class LuceneEngine:
    """A retriever upon one index."""

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
        self._ids: pl.Series | None = None  # of our own index, by row
        self.bytes, self.build_seconds = 0, 0.0
        made: Vectors | None = None
        if settings.mode != "bm25":
            assert embedder is not None
            self._embedder = embedder(settings.embedder)
        if settings.index is not None:
            self.index = settings.index
            self._check_fields()
            return
        if settings.mode != "bm25":
            assert vectors is not None
            made = vectors(settings.embedder)
        self._ids = row_ids(document_ids, len(documents), "document_ids")
        self.index = f"rankproof-{self._digest(documents, made)}"
        self.build_seconds = self._make(documents, made)
        self.bytes = self._stored_bytes()

    @property
    def name(self) -> str:
        return f"{self._dialect.name} {self.settings.index or self.settings.mode}"

    def drop(self) -> None:
        """Remove the index, if it is one of ours."""
        if self.settings.index is None:
            self._ask("DELETE", "")

    # ---------------------------------------------------------------------------- searching

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """One query after the other, each timed by itself, the way to the server included.

        Where every passage is scored (bm25, exact), `Run.cut` counts those that tie with the last
        one and are left out; a graph does not know.
        """
        check_depth(k)
        mode = self.settings.mode
        deep = max(k, self.settings.depth) if mode == "hybrid" else k
        if deep > _MOST:
            raise InputError(
                f"{deep} passages of one query; {self._dialect.name} returns at most {_MOST}",
                place=self._dialect.place,
                remedy="ask for fewer",
            )
        begun = time.perf_counter()
        vectors: Array = np.zeros((len(queries), 0), np.float32)
        if self._embedder is not None:
            vectors = self._embedder.embed_queries(queries)
        seconds = np.full(len(queries), (time.perf_counter() - begun) / max(1, len(queries)))
        runs: list[Run] = []
        bodies: list[dict[str, Any]]
        if mode in ("bm25", "hybrid"):
            bodies = [{"query": {"match": {self.settings.text_field: text}}} for text in queries]
            runs.append(self._run(bodies, deep, query_ids, seconds, exact=True))
        if mode == "exact":
            scripts = [self._dialect.script(vector.tolist()) for vector in vectors]
            bodies = [
                {"query": {"script_score": {"query": {"match_all": {}}, "script": script}}}
                for script in scripts
            ]
            runs.append(self._run(bodies, deep, query_ids, seconds, exact=True))
        if mode in ("knn", "hybrid"):
            bodies = [self._dialect.graph(vector.tolist(), deep) for vector in vectors]
            runs.append(self._run(bodies, deep, query_ids, seconds, exact=False))
        if len(runs) == 1:
            return Retrieved(runs[0], seconds)
        begun = time.perf_counter()
        both = rrf(runs, k=self.settings.rrf_k, top=k, name=self.name)
        share = (time.perf_counter() - begun) / max(1, len(queries))
        return Retrieved(both, seconds + share)

    def _run(
        self,
        bodies: Sequence[dict[str, Any]],
        k: int,
        query_ids: Sequence[str] | None,
        seconds: Float,
        exact: bool,
    ) -> Run:
        """One list for each body; what a request took is added to `seconds`."""
        found: list[tuple[list[str], Float]] = []
        cut: list[int] = []
        for at, body in enumerate(bodies):
            begun = time.perf_counter()
            names, scores = self._hits(body, k)
            seconds[at] += time.perf_counter() - begun
            size = k
            while exact and len(names) == size < _MOST:  # until the tie at the cut is whole
                size = min(_MOST, 2 * size)
                names, scores = self._hits(body, size)
                if scores[-1] < scores[k - 1]:
                    break
            order = np.lexsort((self._numbers(names), -scores))
            kept, out = order[:k], order[k:]
            cut.append(int((scores[out] == scores[kept[-1]]).sum()) if len(kept) else 0)
            found.append(([names[row] for row in kept], scores[kept]))
        left: Int | None = np.array(cut, np.int64) if exact else None
        if self._ids is None:
            hits = [best_of_repeated(names, scores.tolist()) for names, scores in found]
            return run_of_hits(self.name, query_ids, hits, left)
        rows = [(self._numbers(names), scores) for names, scores in found]
        return run_of(self.name, query_ids, self._ids, rows, "float32", left)

    def _numbers(self, names: list[str]) -> Int:
        """Rows of our index; of the user's own, the order it comes in."""
        if self._ids is None:
            return np.arange(len(names))
        return np.array([int(name) for name in names], np.int64)

    def _hits(self, body: dict[str, Any], k: int) -> tuple[list[str], Float]:
        """Names and scores of the hits."""
        wanted = {"size": k, "_source": False, "track_total_hits": False, **body}
        field = self.settings.id_field if self.settings.index is not None else None
        if field is not None:
            wanted["fields"] = [field]
        answer = self._ask("POST", "/_search", wanted)
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
            names = [str(_first(hit, field, self._dialect.place)) for hit in hits]
        return names, np.array([hit["_score"] for hit in hits], np.float64)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._dialect.ask(method, f"/{quote(self.index, safe='')}{path}", body)

    # ------------------------------------------------------------------------------- making

    def _digest(self, documents: Sequence[str], vectors: Vectors | None) -> str:
        """Of all that decides what the index holds; how it is searched is free to change."""
        assert self._ids is not None
        kept = [_KIND, self._dialect.name, self._body(vectors), self._ids.to_list()]
        sha = hashlib.sha256(json.dumps([kept, list(documents)]).encode())
        if vectors is not None:
            sha.update(np.ascontiguousarray(vectors).data)
        return sha.hexdigest()[:32]

    def _body(self, vectors: Vectors | None) -> dict[str, Any]:
        """Settings and mapping of an index."""
        settings, mode = self.settings, self.settings.mode
        fields: dict[str, Any] = {}
        more: dict[str, Any] = {}
        if mode in ("bm25", "hybrid"):
            fields[settings.text_field] = {"type": "text", "analyzer": settings.analyzer}
            bm25 = {"type": "BM25", "k1": settings.k1, "b": settings.b}
            more["similarity"] = {"default": bm25}
        source: dict[str, Any] = {}
        if vectors is not None:
            fields[settings.vector_field] = self._dialect.field(vectors.shape[1])
            source = {"_source": {"excludes": [settings.vector_field]}}
            more |= self._dialect.settings()
        index = {"number_of_shards": 1, "number_of_replicas": 0, **more}
        return {
            "settings": {"index": index},
            "mappings": {"dynamic": "strict", **source, "properties": fields},
        }

    def _make(self, documents: Sequence[str], vectors: Vectors | None) -> float:
        """Fill the index unless it is whole; the seconds that took, then or before."""
        said = self._said()
        if said is None:
            try:
                self._ask("PUT", "", self._body(vectors))
            except Refused as error:
                if "resource_already_exists" not in str(error):  # another process was faster
                    raise
        elif "build_seconds" in said:
            return float(said["build_seconds"])
        begun = time.perf_counter()
        self._ask("POST", "/_refresh")
        there = int(self._ask("GET", "/_count")["count"])
        for first, lines in self._bulks(documents, vectors):
            if first + len(lines) // 2 > there:  # rows go in in order: what came before is there
                self._send(lines)
        self._ask("POST", "/_refresh")
        count = int(self._ask("GET", "/_count")["count"])
        if count != len(documents):
            raise InputError(
                f"{count} of {len(documents)} passages are in the index {self.index}",
                place=self._dialect.place,
                remedy="delete that index, and run again",
            )
        seconds = time.perf_counter() - begun
        self._ask("PUT", "/_mapping", {"_meta": {"rankproof": {"build_seconds": seconds}}})
        return seconds

    def _stored_bytes(self) -> int:
        """Return the size of the index, once all its shards are open.

        OpenSearch closes a shard of vectors without a graph for a moment when its mapping changes:
        until it is open again it has no size, and a search is refused.
        """
        pause = _PAUSE
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
        """Refuse fields that the user's own index does not have: a search of them finds nothing."""
        settings, mode = self.settings, self.settings.mode
        named = {
            "text_field": settings.text_field if mode in ("bm25", "hybrid") else None,
            "vector_field": None if mode == "bm25" else settings.vector_field,
            "id_field": settings.id_field,
        }
        known = self._ask("GET", "/_field_caps?fields=*")["fields"]
        for setting, field in named.items():
            if field is not None and field not in known:
                own = sorted(name for name in known if not name.startswith("_"))
                remedy = f"name one of its fields: {shorten(', '.join(own), 200)}"
                raise InputError(
                    f"{setting} {field!r} is not in the index {self.index}",
                    place=self._dialect.place,
                    remedy=remedy if own else "check the index: it has no fields",
                )

    def _said(self) -> dict[str, Any] | None:
        """What the index says of itself; None where there is none."""
        try:
            answer = self._ask("GET", "/_mapping")
        except Refused as error:
            if error.status == 404:
                return None
            raise
        found: dict[str, Any] = answer[self.index]["mappings"].get("_meta", {}).get("rankproof", {})
        return found

    def _bulks(
        self, documents: Sequence[str], vectors: Vectors | None
    ) -> Iterator[tuple[int, list[Any]]]:
        """First row and lines of each request; cut the same way each time."""
        words = self.settings.mode in ("bm25", "hybrid")
        lines: list[Any] = []
        first = size = 0
        for row, text in enumerate(documents):
            weight = len(text.encode()) + 64
            weight += 0 if vectors is None else 12 * vectors.shape[1]
            if lines and (size + weight > _BYTES or len(lines) == 2 * _ROWS):
                yield first, lines
                lines, first, size = [], row, 0
            source: dict[str, Any] = {self.settings.text_field: text} if words else {}
            if vectors is not None:
                source[self.settings.vector_field] = vectors[row].tolist()
            lines += [{"index": {"_id": str(row)}}, source]
            size += weight
        if lines:
            yield first, lines

    def _send(self, lines: list[Any]) -> None:
        """All rows of a request; those that a busy server turned away are sent again."""
        for attempt in range(self.settings.attempts):
            answer = self._ask("POST", "/_bulk", lines)
            if not answer["errors"]:
                return
            results = [item["index"] for item in answer["items"]]
            wrong = next((r for r in results if r["status"] not in (200, 201, _BUSY)), None)
            if wrong is not None:
                reason = (wrong.get("error") or {}).get("reason", f"status {wrong['status']}")
                raise InputError(
                    f"passage {wrong['_id']} is refused: {shorten(reason, 200)}",
                    place=self._dialect.place,
                    remedy="see what the server says",
                )
            again = [at for at, r in enumerate(results) if r["status"] == _BUSY]
            lines = [line for at in again for line in lines[2 * at : 2 * at + 2]]
            self._sleep(float(2**attempt))
        raise InputError(
            f"it is too busy to index ({self.settings.attempts} attempts)",
            place=self._dialect.place,
            remedy="run again later: what is in stays in",
        )


def _first(hit: dict[str, Any], field: str, place: str) -> Any:
    values = hit.get("fields", {}).get(field)
    if not values:
        raise InputError(
            f"a hit has no field {field!r}", place=place, remedy="check id_field and its mapping"
        )
    return values[0]


def refusal(status: int, body: Any, place: str) -> Refused:
    """An answer that is no, in one line, without the secrets that were sent."""
    error = body.get("error") if isinstance(body, dict) else body
    shards = error.get("failed_shards") if isinstance(error, dict) else None
    # Of a search that fails on all shards only these say why.
    said = redact(_reason_of(shards[0].get("reason") if shards else error))
    remedy = "check the settings"
    if status in (401, 403):
        remedy = "check the user, the password or the key in the environment"
    elif status == 404:
        remedy = "check the url and the index"
    elif status >= 500 or status == _BUSY:
        remedy = "see the server's log, and run again"
    about = f": {shorten(said, 200)}" if said else ""
    return Refused(status, f"the server answers {status}{about}", place=place, remedy=remedy)


def _reason_of(error: Any) -> str:
    """Return type and reason of an error of the server, in one line."""
    if not isinstance(error, dict):
        return " ".join(str(error or "").split())
    return " ".join(f"{error.get('type', '')}: {error.get('reason', '')}".strip(": ").split())


def unanswered(error: Exception, place: str, timeout_s: float) -> InputError:
    """Of a client's error only the kind is told: its words may quote the address."""
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
