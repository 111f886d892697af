"""Names of configurations in words: "BM25, 30 candidates, 5 passages in the prompt"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from rankproof.foundation.phrasing import plural

_SPARSE = {"bm25": "BM25", "lucene": "BM25 as in Lucene"}
_INDEXES = {"flat": "exact", "hnsw": "HNSW"}


@dataclass(frozen=True, slots=True)
class ConfigurationName:
    """A configuration in words."""

    full: str  # all of it
    short: str  # only what differs between the configurations of the sweep


def name_configurations(
    frame: pl.DataFrame, config: Mapping[str, Any] | None
) -> dict[str, ConfigurationName]:
    """Return each configuration's name in words; its own name where the table says no more."""
    own = {name: ConfigurationName(name, name) for name in frame["configuration"]}
    if not {"mode", "embedder", "index", "reranker", "pool"} <= set(frame.columns):
        return own
    rows = list(frame.iter_rows(named=True))
    descriptions = [_describe(row, config or {}) for row in rows]
    axes = range(len(descriptions[0])) if rows else range(0)
    # The first axis, how passages are retrieved, is always named.
    varying = [axis for axis in axes if axis == 0 or len({d[axis] for d in descriptions}) > 1]
    names = {}
    for row, parts in zip(rows, descriptions, strict=True):
        short = ", ".join(parts[axis] for axis in varying if parts[axis])
        full = ", ".join(filter(None, parts))
        names[row["configuration"]] = ConfigurationName(full, short.replace(" vectors", ""))
    if len({name.short for name in names.values()}) < len(rows):  # an axis without words yet
        return own
    return names


def _describe(row: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    """Return each axis of a configuration in words; "" where there is nothing to say."""
    prompt = row.get("prompt_k")
    return [
        _retrieval(row, config),
        _setting("questions rewritten by", row.get("rewriter")),
        _setting("documents cut by", row.get("chunking")),
        _pool(row, config),
        _setting("duplicates dropped by", row.get("duplicates")),
        _setting("reranked by", row["reranker"]),
        "" if prompt is None else f"{plural(prompt, 'passage')} in the prompt",
    ]


def _setting(words: str, value: Any) -> str:
    return "" if value in (None, "none", True, False) else f"{words} {value}"


def _retrieval(row: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return how passages are retrieved: "BM25 + wordllama 256d vectors (HNSW)"."""
    if row["mode"] == "retriever":
        return str(row["retriever"])
    kind = (config.get("sparse") or {}).get("type", "bm25")
    sparse = _SPARSE.get(kind, str(kind))
    if row["mode"] == "sparse":
        return sparse
    size = "" if row.get("dimensions") is None else f" {row['dimensions']}d"
    dense = f"{row['embedder']}{size} vectors{_index(str(row['index']), config)}"
    if row["mode"] == "dense":
        return dense
    has_fusions = len(config.get("fusions") or {}) > 1
    return f"{sparse} + {dense}" + (_setting(" fused by", row.get("fusion")) if has_fusions else "")


def _index(name: str, config: Mapping[str, Any]) -> str:
    """Return how vectors are searched; "" where the only index is exact."""
    kinds = {key: _index_kind(key, value) for key, value in (config.get("indexes") or {}).items()}
    if len(kinds) < 2 and kinds.get(name) == "exact":
        return ""
    kind = kinds.get(name, name)
    is_ambiguous = list(kinds.values()).count(kind) > 1
    return f" ({name if is_ambiguous else kind})"


def _index_kind(name: str, settings: Any) -> str:
    if not isinstance(settings, Mapping):
        return name
    kind = _INDEXES.get(str(settings.get("type")), str(settings.get("type", name)))
    number = settings.get("format", "float32")
    return kind if number == "float32" else f"{kind}, {number}"


def _pool(row: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    if row["pool"] != "dynamic":
        return plural(int(row["pool"]), "candidate")
    depth = config.get("depth") or {}
    return f"{depth.get('start', '?')} to {depth.get('deep', '?')} candidates"
