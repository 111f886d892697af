"""Doubles of Elasticsearch and OpenSearch on loopback that take nothing their references do not.

Method, path, headers and every key of a body are checked; what is indexed is searched for real, but
only once it was refreshed: BM25 by Lucene's formula, vectors by their inner product.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
from loopback import Loopback, Reply, Request, loopback

Kind = Literal["elasticsearch", "opensearch"]
KEY = "planted-api-key"
USER, PASSWORD = "reader", "planted-password"
CLIENT: int = pytest.importorskip("elasticsearch").__version__[0]
_DIMENSIONS = 4096


class No(Exception):
    """What a server refuses."""

    def __init__(self, status: int, kind: str, reason: str, **more: Any):
        self.status = status
        self.body = {
            "error": {"root_cause": [{"type": kind, "reason": reason}], "type": kind,
                      "reason": reason, **more},
            "status": status,
        }  # fmt: skip
        super().__init__(reason)


@dataclass
class Index:
    body: dict[str, Any]
    written: dict[str, dict[str, Any]] = field(default_factory=dict)
    visible: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Double:
    """A server of one kind: its indexes, and ways to misbehave."""

    kind: Kind
    indexes: dict[str, Index] = field(default_factory=dict)
    busy: int = 0  # rows of the next bulk requests that are turned away with 429
    stop_after: int | None = None  # bulk requests, after which it answers 500
    product: bool = True  # whether Elasticsearch says what it is
    major: int = CLIENT  # version of Elasticsearch
    closed: int = 0  # looks at the size that find no shard open
    reopens: int = 0  # what `closed` becomes when the mapping of an index without a graph changes
    fails: int = 0  # shards of two that fail in a search
    bulks: int = 0

    def answer(self, request: Request) -> Reply:
        headers = {"Content-Type": "application/json; charset=UTF-8"}
        if self.kind == "elasticsearch":
            vendor = f"application/vnd.elasticsearch+json;compatible-with={self.major}"
            headers = {"Content-Type": vendor}
            if self.product:
                headers["X-Elastic-Product"] = "Elasticsearch"
        try:
            self._check_headers(request)
            status, body = 200, self._route(request)
        except No as no:
            status, body = no.status, no.body
        return Reply(json.dumps(body).encode(), status, headers)

    def _check_headers(self, request: Request) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        allowed = {f"Basic {basic}"}
        if self.kind == "elasticsearch":
            allowed.add(f"ApiKey {KEY}")
        if headers.get("authorization") not in allowed:
            raise No(401, "security_exception", f"unable to use {headers.get('authorization')}")
        if "x-elastic-client-meta" in headers:
            raise No(400, "nobody", "asked for the meta header")
        lines = request.path.endswith("/_bulk")
        wanted = "application/x-ndjson" if lines else "application/json"
        if self.kind == "elasticsearch":
            accept = f"application/vnd.elasticsearch+json; compatible-with={CLIENT}"
            assert headers.get("accept") == accept
            if self.major < CLIENT:
                said = f"Accept version must be either version {self.major} or {self.major - 1}, "
                said += f"but found {CLIENT}. Accept={accept}"
                cause = {"type": "status_exception", "reason": said}
                problem = "Invalid media-type value on headers [Accept]"
                raise No(400, "media_type_header_exception", problem, caused_by=cause)
            plain = wanted.removeprefix("application/")
            wanted = f"application/vnd.elasticsearch+{plain}; compatible-with={CLIENT}"
        if request.body and headers.get("content-type") != wanted:
            raise No(406, "media_type", f"content-type {headers.get('content-type')}")

    def _route(self, request: Request) -> Any:
        path = request.path.removesuffix("?fields=*")
        match = re.fullmatch(r"/([^/?_][^/?]*)(/_[a-z_]+(?:/[a-z]+)?)?", path)
        if match is None:
            raise No(400, "illegal_argument_exception", f"no handler for {request.path}")
        name, what = match[1], match[2] or ""
        routes: dict[tuple[str, str], Callable[[str, Request], Any]] = {
            ("PUT", ""): self._create,
            ("DELETE", ""): self._delete,
            ("GET", "/_mapping"): self._mapping,
            ("PUT", "/_mapping"): self._remap,
            ("POST", "/_bulk"): self._bulk,
            ("POST", "/_refresh"): self._refresh,
            ("GET", "/_count"): self._count,
            ("GET", "/_stats/store"): self._stats,
            ("GET", "/_field_caps"): self._fields,
            ("POST", "/_search"): self._search,
        }
        if (request.method, what) not in routes:
            raise No(405, "method_not_allowed", f"{request.method} {request.path}")
        if what and name not in self.indexes:
            raise No(404, "index_not_found_exception", f"no such index [{name}]")
        return routes[request.method, what](name, request)

    # ---------------------------------------------------------------------------- indexes

    def _create(self, name: str, request: Request) -> Any:
        if name in self.indexes:
            raise No(400, "resource_already_exists_exception", f"index [{name}] already exists")
        if name != name.lower() or len(name.encode()) > 255:
            raise No(400, "invalid_index_name_exception", name)
        body = request.json
        only(body, {"settings", "mappings"})
        only(body["settings"], {"index"})
        known = {"number_of_shards", "number_of_replicas", "similarity"}
        only(body["settings"]["index"], known | ({"knn"} if self.kind == "opensearch" else set()))
        similarity = body["settings"]["index"].get("similarity", {}).get("default")
        if similarity is not None:
            only(similarity, {"type", "k1", "b"}, all_of=True)
        only(body["mappings"], {"dynamic", "_source", "properties", "_meta"})
        for mapping in body["mappings"]["properties"].values():
            self._check_field(mapping, body["settings"]["index"])
        self.indexes[name] = Index(body)
        return {"acknowledged": True, "shards_acknowledged": True, "index": name}

    def _check_field(self, mapping: dict[str, Any], settings: dict[str, Any]) -> None:
        if mapping["type"] == "text":
            only(mapping, {"type", "analyzer"}, all_of=True)
            if mapping["analyzer"] not in ("english", "french", "standard"):
                raise No(400, "mapper_parsing_exception", f"analyzer [{mapping['analyzer']}]")
            return
        if self.kind == "elasticsearch":
            assert mapping["type"] == "dense_vector", mapping
            indexed = {"type", "dims", "index", "similarity", "index_options"}
            only(mapping, indexed if mapping["index"] else {"type", "dims", "index"}, all_of=True)
            if mapping["index"]:
                only(mapping["index_options"], {"type", "m", "ef_construction"}, all_of=True)
                assert mapping["index_options"]["type"] in ("hnsw", "int8_hnsw", "bbq_hnsw")
                assert mapping["similarity"] in ("max_inner_product", "cosine", "dot_product")
                if mapping["index_options"]["type"] == "bbq_hnsw" and mapping["dims"] < 64:
                    raise No(400, "mapper_parsing_exception", "bbq_hnsw needs 64 dimensions")
            assert 1 <= mapping["dims"] <= _DIMENSIONS
            return
        assert mapping["type"] == "knn_vector", mapping
        if "method" not in mapping:
            only(mapping, {"type", "dimension"}, all_of=True)
            return
        if not settings.get("knn"):
            raise No(400, "mapper_parsing_exception", "index.knn is not true")
        only(mapping, {"type", "dimension", "space_type", "method"}, all_of=True)
        only(mapping["method"], {"name", "engine", "parameters"}, all_of=True)
        parameters = mapping["method"]["parameters"]
        only(parameters, {"m", "ef_construction", "encoder"})
        encoder = parameters.get("encoder")
        if encoder is not None:
            only(encoder, {"name", "parameters"}, all_of=True)
            pair = (mapping["method"]["engine"], encoder["name"], encoder["parameters"])
            assert pair in (("lucene", "sq", {"bits": 7}), ("faiss", "binary", {"bits": 1}))

    def _delete(self, name: str, request: Request) -> Any:
        if self.indexes.pop(name, None) is None:
            raise No(404, "index_not_found_exception", f"no such index [{name}]")
        return {"acknowledged": True}

    def _mapping(self, name: str, request: Request) -> Any:
        return {name: {"mappings": self.indexes[name].body["mappings"]}}

    def _remap(self, name: str, request: Request) -> Any:
        only(request.json, {"_meta"})
        mappings = self.indexes[name].body["mappings"]
        mappings["_meta"] = request.json["_meta"]
        if any("method" not in m for m in mappings["properties"].values() if "dimension" in m):
            self.closed = self.reopens
        return {"acknowledged": True}

    def _fields(self, name: str, request: Request) -> Any:
        assert request.path.endswith("?fields=*")
        index = self.indexes[name]
        types = {field: m["type"] for field, m in index.body["mappings"]["properties"].items()}
        types |= {field: "keyword" for row in index.visible.values() for field in row}
        types["_id"] = "_id"
        return {"indices": [name], "fields": {field: {t: {}} for field, t in types.items()}}

    def _bulk(self, name: str, request: Request) -> Any:
        self.bulks += 1
        if self.stop_after is not None and self.bulks > self.stop_after:
            raise No(500, "circuit_breaking_exception", "the disk is full")
        assert request.body.endswith(b"\n"), "the last line ends too"
        lines = [json.loads(line) for line in request.body.splitlines()]
        assert len(lines) % 2 == 0
        items = []
        for action, source in zip(lines[::2], lines[1::2], strict=True):
            only(action, {"index"}, all_of=True)
            only(action["index"], {"_id"}, all_of=True)
            row = action["index"]["_id"]
            item: dict[str, Any] = {"_index": name, "_id": row, "status": 201}
            if self.busy > 0:
                self.busy -= 1
                item |= {"status": 429, "error": {"type": "rejected", "reason": "queue full"}}
            elif problem := self._problem(self.indexes[name], source):
                item |= {"status": 400, "error": {"type": "parsing", "reason": problem}}
            else:
                self.indexes[name].written[row] = source
            items.append({"index": item})
        errors = any(item["index"]["status"] != 201 for item in items)
        return {"took": 1, "errors": errors, "items": items}

    def _problem(self, index: Index, source: dict[str, Any]) -> str | None:
        properties = index.body["mappings"]["properties"]
        strange = set(source) - set(properties)
        if strange:
            return f"introduction of {strange} is not allowed (dynamic: strict)"
        for name, mapping in properties.items():
            size = mapping.get("dims", mapping.get("dimension"))
            if size is not None and len(source[name]) != size:
                return f"vector of {len(source[name])} dimensions, {size} expected"
        return None

    def _refresh(self, name: str, request: Request) -> Any:
        self.indexes[name].visible = dict(self.indexes[name].written)
        return {"_shards": {"total": 1, "successful": 1, "failed": 0}}

    def _count(self, name: str, request: Request) -> Any:
        return {"count": len(self.indexes[name].visible), "_shards": {"failed": 0}}

    def _stats(self, name: str, request: Request) -> Any:
        size = len(json.dumps(self.indexes[name].visible))
        if self.closed:
            self.closed -= 1
            shards = {"total": 1, "successful": 0, "failed": 0}
            return {"_shards": shards, "_all": {"primaries": {}, "total": {}}}
        shards = {"total": 1, "successful": 1, "failed": 0}
        return {"_shards": shards, "_all": {"primaries": {"store": {"size_in_bytes": size}}}}

    # -------------------------------------------------------------------------- searching

    def _search(self, name: str, request: Request) -> Any:
        index, body = self.indexes[name], request.json
        only(body, {"size", "_source", "track_total_hits", "query", "knn", "fields"})
        assert body["_source"] is False
        failures = [
            {"shard": shard, "index": name,
             "reason": {"type": "query_shard_exception", "reason": f"no luck with shard {shard}"}}
            for shard in range(self.fails)
        ]  # fmt: skip
        if self.closed or self.fails == 2:
            kind, status = "search_phase_execution_exception", 503 if self.closed else 400
            raise No(status, kind, "all shards failed", failed_shards=failures)
        if body["size"] > 10_000:
            raise No(400, "illegal_argument_exception", "Result window is too large")
        if "knn" in body:
            assert self.kind == "elasticsearch"
            scores = self._knn(index, body["knn"])
        else:
            only(body["query"], {"match", "knn", "script_score"})
            ((what, query),) = body["query"].items()
            ways: dict[str, Callable[[Index, Any], dict[str, float]]] = {
                "match": self._match,
                "knn": self._knn_query,
                "script_score": self._script,
            }
            scores = ways[what](index, query)
        # Of equal scores Lucene keeps its own order of documents, which is none of ours.
        best = sorted(scores.items(), key=lambda hit: (-np.float32(hit[1]), hit[0]))[: body["size"]]
        hits = [{"_index": name, "_id": row, "_score": float(np.float32(s))} for row, s in best]
        for hit in hits:
            if "fields" in body:
                source = index.visible[str(hit["_id"])]
                hit["fields"] = {f: [source[f]] for f in body["fields"] if f in source}
        shards: dict[str, Any] = {"total": 2, "successful": 2 - self.fails, "failed": self.fails}
        shards |= {"failures": failures} if failures else {}
        return {"took": 1, "timed_out": False, "_shards": shards,
                "hits": {"max_score": None, "hits": hits}}  # fmt: skip

    def _match(self, index: Index, query: dict[str, Any]) -> dict[str, float]:
        ((name, text),) = query.items()
        bm25 = index.body["settings"]["index"].get("similarity", {}).get("default", {})
        k1, b = bm25.get("k1", 1.2), bm25.get("b", 0.75)
        words = {row: tokens(source[name]) for row, source in index.visible.items()}
        mean = sum(map(len, words.values())) / len(words)
        scores: dict[str, float] = {}
        for word in tokens(text):
            holding = {row: Counter(w)[word] for row, w in words.items() if word in w}
            idf = math.log(1 + (len(words) - len(holding) + 0.5) / (len(holding) + 0.5))
            for row, count in holding.items():
                length = k1 * (1 - b + b * len(words[row]) / mean)
                scores[row] = scores.get(row, 0.0) + idf * count / (count + length)
        return scores

    def _knn(self, index: Index, knn: dict[str, Any]) -> dict[str, float]:
        only(knn, {"field", "query_vector", "k", "num_candidates", "rescore_vector"})
        if not knn["k"] <= knn["num_candidates"] <= 10_000:
            raise No(400, "illegal_argument_exception", "[num_candidates] is out of range")
        mapping = index.body["mappings"]["properties"][knn["field"]]
        assert mapping["index"] is True
        if "rescore_vector" in knn:
            only(knn["rescore_vector"], {"oversample"}, all_of=True)
        return self._nearest(index, knn["field"], knn["query_vector"], knn["k"])

    def _knn_query(self, index: Index, query: dict[str, Any]) -> dict[str, float]:
        assert self.kind == "opensearch"
        ((name, knn),) = query.items()
        only(knn, {"vector", "k", "method_parameters", "rescore"})
        only(knn["method_parameters"], {"ef_search"}, all_of=True)
        assert "method" in index.body["mappings"]["properties"][name]
        return self._nearest(index, name, knn["vector"], knn["k"])

    def _nearest(self, index: Index, name: str, vector: list[float], k: int) -> dict[str, float]:
        found = products(index, name, vector)
        best = sorted(found, key=lambda row: -found[row])[:k]
        return {row: 1 + found[row] if found[row] >= 0 else 1 / (1 - found[row]) for row in best}

    def _script(self, index: Index, query: dict[str, Any]) -> dict[str, float]:
        only(query, {"query", "script"}, all_of=True)
        assert query["query"] == {"match_all": {}}
        script = query["script"]
        if self.kind == "opensearch":
            only(script, {"source", "lang", "params"}, all_of=True)
            assert (script["source"], script["lang"]) == ("knn_score", "knn")
            only(script["params"], {"field", "query_value", "space_type"}, all_of=True)
            name, vector = script["params"]["field"], script["params"]["query_value"]
        else:
            only(script, {"source", "params"}, all_of=True)
            source = r"Math\.max\(0\.0, 1\.0 \+ dotProduct\(params\.query_vector, '(\w+)'\)\)"
            match = re.fullmatch(source, script["source"])
            assert match is not None
            name, vector = match[1], script["params"]["query_vector"]
        return {row: max(0.0, 1 + dot) for row, dot in products(index, name, vector).items()}


def products(index: Index, name: str, vector: list[float]) -> dict[str, float]:
    rows = list(index.visible)
    matrix = np.array([index.visible[row][name] for row in rows], np.float64)
    if matrix.shape[1] != len(vector):
        raise No(400, "query_shard_exception", f"the query vector has {len(vector)} dimensions")
    return dict(zip(rows, (matrix @ np.array(vector)).tolist(), strict=True))


def tokens(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def only(given: dict[str, Any], known: set[str], all_of: bool = False) -> None:
    """Refuse what is not known, as the servers do."""
    strange = set(given) - known
    if strange or (all_of and set(given) != known):
        raise No(400, "x_content_parse_exception", f"unknown or missing: {strange or known}")


@contextmanager
def search_server(kind: Kind) -> Iterator[tuple[Loopback, Double]]:
    double = Double(kind)
    with loopback(double.answer) as there:
        yield there, double
