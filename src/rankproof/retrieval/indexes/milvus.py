"""Milvus: embedded in this process (milvus-lite, a folder that ends in .db), or a cluster.

A collection is named by a digest of its vectors and settings; others are not touched. Rows go in by
number, so that what was stopped goes on where it stopped, and a collection that holds them all is
used again. milvus-lite says "Finished" before an index is on the disk, and compares every vector
until it is: here its files are waited for, or a graph would be credited with an exact search.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
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
from rankproof.retrieval.components import is_here, part
from rankproof.retrieval.protocols import Retrieved, Vectors
from rankproof.retrieval.row_lists import check_asked, run_of, timed

_KIND = "rankproof milvus 1"
_BATCH = 1000  # rows of one request
_MOST = 16384  # hits that one search returns
_PATIENCE = 10.0  # seconds to wait for a server
_BUILDING = 600.0  # seconds to wait for an index
_STEP = 0.05
_TYPES = {
    "flat": "FLAT",
    "hnsw": "HNSW",
    "hnsw_sq": "HNSW_SQ",
    "ivf_flat": "IVF_FLAT",
    "ivf_sq8": "IVF_SQ8",
}


def _place(uri: str | None, info: ValidationInfo) -> str | None:
    if uri is None or "://" in uri:
        return uri
    if not uri.endswith(".db"):
        raise InputError(
            "uri is neither an address nor a path that ends in .db",  # not quoted: a password?
            remedy="write http://host:19530, or ./passages.db",
        )
    return str(resolve_beside(Path(uri), info))


class MilvusSettings(Settings):
    """Milvus: a folder of this machine (milvus-lite), or a cluster by its address."""

    operation: ClassVar[frozenset[str]] = frozenset({"uri", "token_env"})

    type: Literal["milvus"]
    uri: Annotated[str | None, AfterValidator(_place)] = None  # without one, beside the results
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
        return self.uri is not None and "://" in self.uri and not is_here(_host(self.uri))

    @property
    def building(self) -> dict[str, Any]:
        """What the index is made with."""
        if self.index == "flat":
            return {}
        if self.index.startswith("ivf"):
            return {"nlist": self.nlist}
        return {"M": self.m, "efConstruction": self.ef_construction}

    def searching(self, k: int) -> dict[str, Any]:
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
    """A client, and its errors in one line each."""

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
        for name in ("pymilvus", "milvus_lite", "grpc._server"):  # they print tracebacks otherwise
            logging.getLogger(name).setLevel(logging.CRITICAL)
        from pymilvus import MilvusClient

        return MilvusClient(self.uri, token=self._token, timeout=_PATIENCE)

    @contextmanager
    def errors(self) -> Iterator[None]:
        from pymilvus.exceptions import MilvusException

        try:
            yield
        except MilvusException as error:
            said = redact(" ".join(str(error.message).split()))
            remedy = "see the server's log, and run again"
            if "Open local milvus failed" in said:
                remedy = "another process may have it open: end that one, or name another file"
            elif "connecting" in said:
                said, remedy = "no server answers", "start it, or check the uri"
            raise InputError(said[:300], place=self.place, remedy=remedy) from None

    def search(self, collection: str, vector: Array, k: int, **more: Any) -> list[Any]:
        """The hits of one vector."""
        if k > _MOST:
            raise InputError(
                f"{k} passages of one query; Milvus returns at most {_MOST}",
                place=self.place,
                remedy="ask for fewer",
            )
        with self.errors():
            found = self.client.search(collection, data=[vector], limit=k, **more)
        return list(found[0])


@part(
    "index", "milvus", extra="milvus", imports=("pymilvus",), packages=("pymilvus", "milvus-lite")
)
class MilvusIndex:
    """A collection of row, id and vector."""

    def __init__(
        self,
        settings: MilvusSettings,
        vectors: Vectors,
        document_ids: pl.Series,
        folder: str | Path | None = None,
        progress: Callable[[float], None] | None = None,
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
        noted = None if folder is None else Path(folder) / f"{self.collection}.json"
        begun = time.perf_counter()
        with self.server.errors():
            made = self._make(vectors, progress)
        self.build_seconds: float = time.perf_counter() - begun if made else 0.0
        if noted is not None:
            self._note(noted, made)

    @property
    def name(self) -> str:
        return f"milvus {self.settings.index}"

    @property
    def bytes(self) -> int:
        """Of the index files that milvus-lite writes; a cluster does not tell."""
        return sum(file.stat().st_size for file in self._files("*.idx"))

    def search(self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None) -> Retrieved:
        """One query after the other, each timed by itself.

        Where every vector is compared (flat), `Run.cut` counts those that tie with the last one and
        are left out; other indexes do not know.
        """
        check_asked(queries, k, self.dimensions)
        wanted = min(k, len(self.document_ids))
        vectors = np.ascontiguousarray(queries, np.float32)
        hits, seconds = timed(vectors, lambda vector: self._hits(vector, wanted))
        best = [self._whole_tie(v, some, wanted) for v, some in zip(vectors, hits, strict=True)]
        known = np.array([left for *_, left in best], np.int64)
        found = [(rows, scores) for rows, scores, _ in best]
        cut = known if self.settings.index == "flat" else None
        run = run_of(self.name, query_ids, self.document_ids, found, "float32", cut)
        return Retrieved(run, seconds)

    def drop(self) -> None:
        """Remove the collection."""
        with self.server.errors():
            self.server.client.drop_collection(self.collection)

    def close(self) -> None:
        self.server.client.close()

    def _hits(self, vector: Array, k: int) -> Array:
        """(n, 2) of row and score, best first, of equal scores the first row first."""
        hits = self.server.search(
            *(self.collection, vector, k),
            filter=self.settings.filter or "",
            anns_field="vector",
            output_fields=[],
            search_params={"metric_type": "IP", "params": self.settings.searching(k)},
        )
        pairs = np.array([(hit["row"], hit["distance"]) for hit in hits], np.float64).reshape(-1, 2)
        return pairs[np.lexsort((pairs[:, 0], -pairs[:, 1]))]

    def _whole_tie(self, vector: Array, hits: Array, k: int) -> tuple[Array, Array, int]:
        """The k best, and how many that tie with the last of them are left out."""
        most = min(len(self.document_ids), _MOST)
        size, left = k, 0
        while self.settings.index == "flat" and len(hits) == size < most:
            size = min(2 * size, most)
            hits = self._hits(vector, size)
            if hits[-1, 1] < hits[k - 1, 1]:
                break
        if len(hits) > k:
            left = int((hits[k:, 1] == hits[k - 1, 1]).sum())
        return hits[:k, 0].astype(np.int64), hits[:k, 1] + 0.0, left

    def _digest(self, vectors: Vectors) -> str:
        """Of all that decides what the collection holds; how it is searched is free to change."""
        kept = [self.settings.index, self.settings.building, self.document_ids.to_list()]
        sha = hashlib.sha256(json.dumps([_KIND, kept, vectors.shape]).encode())
        sha.update(np.ascontiguousarray(vectors).data)
        return sha.hexdigest()[:24]

    def _make(self, vectors: Vectors, progress: Callable[[float], None] | None) -> bool:
        """Fill the collection unless it is whole; whether there was anything to do."""
        client, name = self.server.client, self.collection
        if not client.has_collection(name):
            self._create()
        client.load_collection(name)
        there = int(client.query(name, filter="", output_fields=["count(*)"])[0]["count(*)"])
        first = there if there == len(vectors) else there // _BATCH * _BATCH
        if progress is not None:
            progress(first)
        rows = np.ascontiguousarray(vectors, np.float32)
        for low in range(first, len(rows), _BATCH):
            high = min(low + _BATCH, len(rows))
            client.upsert(
                name,
                [
                    {"row": row, "id": self.document_ids[row], "vector": rows[row]}
                    for row in range(low, high)
                ],
            )
            if progress is not None:
                progress(high - low)
        if first < len(rows):
            client.flush(name)
        self._await_index()
        return first < len(rows)

    def _create(self) -> None:
        from pymilvus import DataType, MilvusClient

        client = self.server.client
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("row", DataType.INT64, is_primary=True)
        longest = max(len(name.encode()) for name in self.document_ids)
        schema.add_field("id", DataType.VARCHAR, max_length=max(64, longest))
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.dimensions)
        index = client.prepare_index_params()
        building = self.settings.building
        if self.server.local:  # milvus-lite 3.2 reads them there, and takes its defaults otherwise
            building = {**building, "params": self.settings.building}
        index.add_index(
            "vector", index_type=_TYPES[self.settings.index], metric_type="IP", params=building
        )
        client.create_collection(
            self.collection, schema=schema, index_params=index, consistency_level="Strong"
        )

    def _await_index(self) -> None:
        """Until every row is indexed; of milvus-lite, until the files are there."""
        deadline = time.monotonic() + _BUILDING
        while time.monotonic() < deadline:
            said = self.server.client.describe_index(self.collection, "vector")
            waiting = int(said.get("pending_index_rows", 0) or 0)
            if not waiting and not (self.server.local and self._unindexed()):
                return
            time.sleep(_STEP)
        raise InputError(
            f"the index {self.settings.index} is not built after {_BUILDING:.0f} s",
            place=self.server.place,
            remedy="see that faiss-cpu is installed, or use index: flat",
        )

    def _unindexed(self) -> bool:
        return len(list(self._files("*.idx"))) < max(1, len(list(self._files("data_*.parquet"))))

    def _files(self, pattern: str) -> Iterator[Path]:
        if not self.server.local:
            return iter(())
        return (Path(self.server.uri) / "collections" / self.collection).rglob(pattern)

    def _note(self, file: Path, made: bool) -> None:
        """Keep how long it took, for those who find it built."""
        if made or not file.is_file():
            text = json.dumps({"build_seconds": self.build_seconds})
            write_atomically(file, lambda path: path.write_text(text, encoding="utf-8"))
        else:
            self.build_seconds = float(json.loads(file.read_text())["build_seconds"])
