"""Milvus index: embedded in this process (milvus-lite, a folder that ends in .db), or a cluster.

A collection is named by a digest of its vectors and settings; others are not touched. Rows are
inserted by number, so that an interrupted build goes on where it stopped and a complete collection
is used again. milvus-lite reports an index as finished before it is on the disk, and until then
compares every vector. Its files are waited for, so that a graph is not credited with an exact
search.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import numpy as np
import polars as pl
from pydantic import AfterValidator, Field, ValidationInfo

from rankproof.foundation.arrays import Array
from rankproof.foundation.config import Count, Settings, read_secret, resolve_beside
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import write_atomically
from rankproof.foundation.redaction import redact
from rankproof.retrieval.components import is_local_host, part
from rankproof.retrieval.identity import contents_digest
from rankproof.retrieval.protocols import Retrieved, Vectors
from rankproof.retrieval.ranked_lists import check_queries, run_from_rows, time_each

_KIND = "rankproof milvus 1"
_ROWS_PER_REQUEST = 1000
_MAX_HITS = 16384  # that one search returns
_CONNECT_TIMEOUT = 10.0  # seconds
_BUILD_TIMEOUT = 600.0  # seconds
_POLL = 0.05  # seconds between two looks at an index under construction
_TYPES = {
    "flat": "FLAT",
    "hnsw": "HNSW",
    "hnsw_sq": "HNSW_SQ",
    "ivf_flat": "IVF_FLAT",
    "ivf_sq8": "IVF_SQ8",
}


def _check_uri(uri: str | None, info: ValidationInfo) -> str | None:
    """Return an address as it is, and a path from the folder of its configuration."""
    if uri is None or "://" in uri:
        return uri
    if not uri.endswith(".db"):
        raise InputError(
            "uri is neither an address nor a path that ends in .db",  # may hold a password
            remedy="write http://host:19530, or ./passages.db",
        )
    return str(resolve_beside(Path(uri), info))


class MilvusSettings(Settings):
    """Milvus: a folder of this machine (milvus-lite), or a cluster by its address."""

    operation: ClassVar[frozenset[str]] = frozenset({"uri", "token_env"})

    type: Literal["milvus"]
    uri: Annotated[str | None, AfterValidator(_check_uri)] = None  # without one, beside the results
    token_env: str | None = None  # the environment variable that holds user:password or a key
    index: Literal["flat", "hnsw", "hnsw_sq", "ivf_flat", "ivf_sq8"] = "flat"
    m: Annotated[int, Field(ge=2, le=2048)] = 16  # of hnsw and hnsw_sq
    ef_construction: Count = 128
    ef_search: Count = 100
    nlist: Annotated[int, Field(ge=1, le=65536)] = 128  # of ivf_flat and ivf_sq8
    nprobe: Annotated[int, Field(ge=1, le=65536)] = 8
    filter: str | None = None  # an expression: id like "en-%"

    @property
    def over_network(self) -> bool:
        return self.uri is not None and "://" in self.uri and not is_local_host(_host(self.uri))

    @property
    def build_parameters(self) -> dict[str, Any]:
        """Parameters by which Milvus builds the index."""
        if self.index == "flat":
            return {}
        if self.index.startswith("ivf"):
            return {"nlist": self.nlist}
        return {"M": self.m, "efConstruction": self.ef_construction}

    def search_parameters(self, k: int) -> dict[str, Any]:
        """Return the parameters of a search for k passages."""
        if self.index == "flat":
            return {}
        if self.index.startswith("ivf"):
            return {"nprobe": min(self.nprobe, self.nlist)}
        return {"ef": max(self.ef_search, k)}


def _host(uri: str) -> str | None:
    try:
        return urlsplit(uri).hostname
    except ValueError:
        return "?"


class MilvusServer:
    """A connection to Milvus whose errors become one-line errors."""

    def __init__(self, uri: str, token_env: str | None):
        self.local = "://" not in uri
        self.uri = uri
        self.place = f"Milvus {Path(uri).name if self.local else _host(uri)}"
        self._token = read_secret(token_env, self.place) or ""
        if self.local:
            Path(uri).parent.mkdir(parents=True, exist_ok=True)
        with self.errors():
            self.client = self._connect()

    def _connect(self) -> Any:
        for name in ("pymilvus", "milvus_lite", "grpc._server"):  # they print tracebacks
            logging.getLogger(name).setLevel(logging.CRITICAL)
        from pymilvus import MilvusClient

        return MilvusClient(self.uri, token=self._token, timeout=_CONNECT_TIMEOUT)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn Milvus' errors into one-line errors without secrets."""
        from pymilvus.exceptions import MilvusException

        try:
            yield
        except MilvusException as error:
            problem = redact(" ".join(str(error.message).split()))
            remedy = "see the server's log, and run again"
            if "Open local milvus failed" in problem:
                remedy = "another process may have it open: end that one, or name another file"
            elif "connecting" in problem:
                problem, remedy = "no server answers", "start it, or check the uri"
            raise InputError(problem[:300], place=self.place, remedy=remedy) from None

    def search(self, collection: str, vector: Array, k: int, **options: Any) -> list[Any]:
        """Return the hits of one vector."""
        if k > _MAX_HITS:
            raise InputError(
                f"{k} passages of one query; Milvus returns at most {_MAX_HITS}",
                place=self.place,
                remedy="ask for fewer",
            )
        with self.errors():
            (hits,) = self.client.search(collection, data=[vector], limit=k, **options)
        return list(hits)


@part(
    "index", "milvus", extra="milvus", imports=("pymilvus",), packages=("pymilvus", "milvus-lite")
)
class MilvusIndex:
    """A collection with the fields row, id and vector."""

    def __init__(
        self,
        settings: MilvusSettings,
        vectors: Vectors,
        document_ids: pl.Series,
        folder: str | Path | None = None,
    ):
        if settings.uri is None and folder is None:
            raise InputError(
                "no uri is given", place="Milvus", remedy="write uri: ./passages.db, say"
            )
        self.settings = settings
        self.document_ids = document_ids
        self.dimensions = vectors.shape[1]
        self.server = MilvusServer(
            settings.uri or str(Path(str(folder)) / "milvus.db"), settings.token_env
        )
        self.collection = f"rankproof_{self._digest(vectors)}"
        start = time.perf_counter()
        with self.server.errors():
            is_new = self._fill(vectors)
        self.build_seconds: float = time.perf_counter() - start if is_new else 0.0
        if folder is not None:
            self._keep_build_time(Path(folder) / f"{self.collection}.json", is_new)

    @property
    def name(self) -> str:
        return f"milvus {self.settings.index}"

    @property
    def bytes(self) -> int:
        """Size of the index files that milvus-lite writes; 0 for a cluster, which does not say."""
        return sum(file.stat().st_size for file in self._files("*.idx"))

    def search(self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None) -> Retrieved:
        """Search one query after the other, each timed by itself.

        A flat index compares every vector, so `Run.cut` can count the documents beyond k that tie
        with the last one; with other indexes it is unknown.
        """
        check_queries(queries, k, self.dimensions)
        count = min(k, len(self.document_ids))
        vectors = np.ascontiguousarray(queries, np.float32)
        hits, seconds = time_each(vectors, lambda vector: self._hits(vector, count))
        best = [self._count_ties(v, h, count) for v, h in zip(vectors, hits, strict=True)]
        lists = [(rows, scores) for rows, scores, _ in best]
        cut = None
        if self.settings.index == "flat":
            cut = np.array([ties for *_, ties in best], np.int64)
        run = run_from_rows(self.name, query_ids, self.document_ids, lists, "float32", cut)
        return Retrieved(run, seconds)

    def drop(self) -> None:
        """Remove the collection."""
        with self.server.errors():
            self.server.client.drop_collection(self.collection)

    def close(self) -> None:
        self.server.client.close()

    def _hits(self, vector: Array, k: int) -> Array:
        """Return (n, 2) rows and scores, best first, equal scores in the order of rows."""
        hits = self.server.search(
            self.collection,
            vector,
            k,
            filter=self.settings.filter or "",
            anns_field="vector",
            output_fields=[],
            search_params={"metric_type": "IP", "params": self.settings.search_parameters(k)},
        )
        pairs = np.array([(hit["row"], hit["distance"]) for hit in hits], np.float64).reshape(-1, 2)
        return pairs[np.lexsort((pairs[:, 0], -pairs[:, 1]))]

    def _count_ties(self, vector: Array, hits: Array, k: int) -> tuple[Array, Array, int]:
        """Return rows and scores of the k best, and how many others tie with the last of them.

        More hits are requested until the tie at the cut is complete.
        """
        limit = min(len(self.document_ids), _MAX_HITS)
        size, ties = k, 0
        while self.settings.index == "flat" and len(hits) == size < limit:
            size = min(2 * size, limit)
            hits = self._hits(vector, size)
            if hits[-1, 1] < hits[k - 1, 1]:
                break
        if len(hits) > k:
            ties = int((hits[k:, 1] == hits[k - 1, 1]).sum())
        return hits[:k, 0].astype(np.int64), hits[:k, 1] + 0.0, ties  # + 0.0: no minus zero

    def _digest(self, vectors: Vectors) -> str:
        """Return a digest of all that decides what the collection contains."""
        settings = self.settings
        stored = [settings.index, settings.build_parameters, self.document_ids.to_list()]
        return contents_digest([_KIND, stored, vectors.shape], vectors)[:24]

    def _fill(self, vectors: Vectors) -> bool:
        """Insert the rows that the collection lacks; return True if there were any."""
        client, name = self.server.client, self.collection
        if not client.has_collection(name):
            self._create()
        client.load_collection(name)
        count = int(client.query(name, filter="", output_fields=["count(*)"])[0]["count(*)"])
        first = count
        if count != len(vectors):  # the last request may have been interrupted
            first = count // _ROWS_PER_REQUEST * _ROWS_PER_REQUEST
        rows = np.ascontiguousarray(vectors, np.float32)
        for low in range(first, len(rows), _ROWS_PER_REQUEST):
            batch = range(low, min(low + _ROWS_PER_REQUEST, len(rows)))
            ids = self.document_ids
            client.upsert(name, [{"row": r, "id": ids[r], "vector": rows[r]} for r in batch])
        if first < len(rows):
            client.flush(name)
        self._await_index()
        return first < len(rows)

    def _create(self) -> None:
        """Create the empty collection with its fields and index."""
        from pymilvus import DataType, MilvusClient

        client = self.server.client
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        longest = max(len(name.encode()) for name in self.document_ids)
        schema.add_field("id", DataType.VARCHAR, max_length=max(64, longest))
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.dimensions)
        index = client.prepare_index_params()
        parameters = self.settings.build_parameters
        if self.server.local:  # milvus-lite 3.2 reads them there, and else uses its defaults
            parameters = {**parameters, "params": parameters}
        index.add_index(
            "vector", index_type=_TYPES[self.settings.index], metric_type="IP", params=parameters
        )
        client.create_collection(
            self.collection, schema=schema, index_params=index, consistency_level="Strong"
        )

    def _await_index(self) -> None:
        """Wait until every row is indexed and, with milvus-lite, the index files exist."""
        deadline = time.monotonic() + _BUILD_TIMEOUT
        while time.monotonic() < deadline:
            state = self.server.client.describe_index(self.collection, "vector")
            pending = int(state.get("pending_index_rows", 0) or 0)
            if not pending and not (self.server.local and self._lacks_index_files()):
                return
            time.sleep(_POLL)
        raise InputError(
            f"the index {self.settings.index} is not built after {_BUILD_TIMEOUT:.0f} s",
            place=self.server.place,
            remedy="see that faiss-cpu is installed, or use index: flat",
        )

    def _lacks_index_files(self) -> bool:
        """True if milvus-lite has not yet written an index file for every data file."""
        return len(list(self._files("*.idx"))) < max(1, len(list(self._files("data_*.parquet"))))

    def _files(self, pattern: str) -> Iterator[Path]:
        if not self.server.local:
            return iter(())
        return (Path(self.server.uri) / "collections" / self.collection).rglob(pattern)

    def _keep_build_time(self, file: Path, is_new: bool) -> None:
        """Store the build time of a new collection; read that of an older one."""
        if is_new or not file.is_file():
            text = json.dumps({"build_seconds": self.build_seconds})
            write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))
        else:
            self.build_seconds = float(json.loads(file.read_text())["build_seconds"])
