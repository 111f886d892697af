"""Audits on Ray: one task for each number format.

A format is audited by the ordinary code over all rows, so that its values are those of one machine.
The inputs are stored once on each machine; a task needs the additional memory of one format.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

from rankproof.audit import Audit, logits
from rankproof.audit import embeddings as vectors
from rankproof.audit.input_files import read_logits, read_vectors
from rankproof.cluster.session import connected, gather
from rankproof.cluster.shards import ClusterRun, blocks_of, find_files, is_dataset
from rankproof.data import QrelsLike, read_qrels
from rankproof.evaluation import parse_means
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError
from rankproof.measures import Measure
from rankproof.precision.formats import FORMATS


def audit_logits(
    source: ClusterRun,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure] = vectors.MEASURES,
    *,
    formats: Iterable[str] = logits.FORMATS,
    address: str | None = None,
    **settings: Any,
) -> Audit:
    """`rankproof.audit.audit_logits` of logits in shards or a Ray Dataset; settings are its own.

    >>> from rankproof import cluster
    >>> import polars as pl
    >>> table = pl.DataFrame({"query": "q", "doc": ["a", "b"], "logit": [9.0, 9.1]})
    >>> table.write_parquet("logits.parquet")
    >>> audit = cluster.audit_logits("logits.parquet", {"q": {"b": 1}}, "RR", formats=["bfloat16"])
    >>> audit.reading("bfloat16").evaluation["RR"].range
    0.5
    """
    parsed = parse_means(measures)
    judged = read_qrels(qrels, aspects=any(m.needs_aspects for m in parsed))
    with connected(address) as ray:
        if is_dataset(source):
            rows = read_logits(_read_dataset(source, ray))
        else:
            parts = []
            for file in find_files(source):
                with file.local() as path:
                    parts.append(read_logits(path))
            rows = _concatenate(parts)
        rows.check()
        audit = ray.remote(logits.audit_logits)
        inputs = (ray.put(rows), judged, parsed)
        tasks = [audit.remote(*inputs, formats=[f], **settings) for f in _distinct(formats)]
        return _join(gather(ray, tasks))


def audit_embeddings(
    queries: Any,
    documents: Any,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure] = vectors.MEASURES,
    *,
    formats: Iterable[str] = FORMATS,
    query_ids: Any = None,
    document_ids: Any = None,
    address: str | None = None,
    **settings: Any,
) -> Audit:
    """`rankproof.audit.audit_embeddings` of arrays, or of .npy and Parquet shards of vectors.

    >>> from rankproof import cluster
    >>> vectors = np.eye(4, dtype=np.float32)
    >>> judgments = {"0": {"0": 1}}
    >>> audit = cluster.audit_embeddings(vectors, vectors, judgments, "RR", formats=["bit"])
    >>> audit.reading("bit").evaluation["RR"].expected
    1.0
    """
    parsed = parse_means(measures)
    judged = read_qrels(qrels, aspects=any(m.needs_aspects for m in parsed))
    query_vectors, query_ids = _read_vectors(queries, query_ids)
    document_vectors, document_ids = _read_vectors(documents, document_ids)
    with connected(address) as ray:
        inputs = (ray.put(query_vectors), ray.put(document_vectors), judged, parsed)
        settings |= {"query_ids": ray.put(query_ids), "document_ids": ray.put(document_ids)}
        audit = ray.remote(vectors.audit_embeddings)
        tasks = [audit.remote(*inputs, formats=[f], **settings) for f in _distinct(formats)]
        return _join(gather(ray, tasks))


def _distinct(formats: Iterable[str]) -> list[str]:
    """The formats, each once; an InputError if there are none."""
    distinct = list(dict.fromkeys(formats))
    if not distinct:
        raise InputError("no number format was named", remedy=f"use {', '.join(FORMATS)}")
    return distinct


def _join(audits: list[Audit]) -> Audit:
    """Join the audits of several formats; vectors cut to fewer dimensions come last."""
    readings = [reading for audit in audits for reading in audit.readings]
    sizes = list(dict.fromkeys(reading.dimensions for reading in readings))
    readings.sort(key=lambda reading: sizes.index(reading.dimensions))
    settings = dict(audits[0].made[0])
    settings["formats"] = [form for audit in audits for form in audit.made[0]["formats"]]
    if "candidates" in settings:  # only quantized formats have them
        settings["candidates"] = max(
            (a.made[0]["candidates"] for a in audits if a.made[0]["candidates"]), default=None
        )
    return Audit.together([Audit(tuple(readings), (), audits[0].notes, (settings,))])


def _concatenate(parts: list[logits.Logits]) -> logits.Logits:
    """Join the logits of all shards; either all of them have a logit for "no", or none."""
    if len({part.no is None for part in parts}) > 1:
        raise InputError(
            "some shards have one logit and some have two", remedy="write all of them alike"
        )
    no = [part.no for part in parts if part.no is not None]
    return logits.Logits(
        pl.concat([part.query for part in parts]),
        pl.concat([part.doc for part in parts]),
        np.concatenate([part.yes for part in parts]),
        np.concatenate(no) if no else None,
        parts[0].label if len(parts) == 1 else "logits",
    )


def _read_dataset(source: Any, ray: Any) -> pl.DataFrame:
    """Read a Ray Dataset into memory."""
    blocks = ray.get(blocks_of(source))
    frames = [pl.DataFrame(block) for block in blocks if block.num_rows]
    if not frames:
        raise InputError("no rows", place="dataset", remedy="check how it was made")
    return pl.concat(frames)


def _read_vectors(source: Any, ids: Any) -> tuple[Array | Any, Any]:
    """Return arrays as they are, or read all shards; ids come from the files if none are given."""
    if hasattr(source, "shape") or not (
        isinstance(source, str) or hasattr(source, "__fspath__") or _are_paths(source)
    ):
        return source, ids
    parts = []
    for file in find_files(source):
        with file.local() as path:
            parts.append(read_vectors(path))
    file_ids = [part.ids for part in parts if part.ids is not None]
    if file_ids and len(file_ids) < len(parts):
        raise InputError(
            "some shards have ids and some have none", remedy="write all of them as Parquet"
        )
    if file_ids and ids is None:
        ids = pl.concat(file_ids)
    return np.concatenate([part.values for part in parts]), ids


def _are_paths(source: Any) -> bool:
    return isinstance(source, list | tuple) and all(
        isinstance(item, str) or hasattr(item, "__fspath__") for item in source
    )
