"""Audits on Ray: one task for each number format, the inputs shared between them.

A format is audited by the ordinary code over all rows, so that its figures are one machine's. The
inputs lie once in the store of each machine; a task adds what `rankproof audit` takes for one
format.
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
    """`rankproof.audit_logits` of logits in shards or a Ray Dataset; settings are its own.

    >>> from rankproof import cluster
    >>> import polars as pl
    >>> table = pl.DataFrame({"query": "q", "doc": ["a", "b"], "logit": [9.0, 9.1]})
    >>> table.write_parquet("logits.parquet")
    >>> found = cluster.audit_logits("logits.parquet", {"q": {"b": 1}}, "RR", formats=["bfloat16"])
    >>> found.reading("bfloat16").evaluation["RR"].range
    0.5
    """
    judged, parsed = read_qrels(qrels), parse_means(measures)
    with connected(address) as ray:
        if is_dataset(source):
            given = read_logits(_dataset(source, ray))
        else:
            parts = []
            for file in find_files(source):
                with file.local() as path:
                    parts.append(read_logits(path))
            given = _together(parts)
        given.check()
        one = ray.remote(logits.audit_logits)
        shared = (ray.put(given), judged, parsed)
        tasks = [one.remote(*shared, formats=[form], **settings) for form in _each(formats)]
        return _as_one(gather(ray, tasks))


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
    """`rankproof.audit_embeddings` of arrays, or of .npy and Parquet shards of vectors.

    >>> from rankproof import cluster
    >>> both = np.eye(4, dtype=np.float32)
    >>> found = cluster.audit_embeddings(both, both, {"0": {"0": 1}}, "RR", formats=["bit"])
    >>> found.reading("bit").evaluation["RR"].expected
    1.0
    """
    judged, parsed = read_qrels(qrels), parse_means(measures)
    asked, asked_ids = _vectors(queries, query_ids)
    stored, stored_ids = _vectors(documents, document_ids)
    with connected(address) as ray:
        shared = (ray.put(asked), ray.put(stored), judged, parsed)
        settings |= {"query_ids": ray.put(asked_ids), "document_ids": ray.put(stored_ids)}
        one = ray.remote(vectors.audit_embeddings)
        tasks = [one.remote(*shared, formats=[form], **settings) for form in _each(formats)]
        return _as_one(gather(ray, tasks))


def _each(formats: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(formats))
    if not found:
        raise InputError("no number format was named", remedy=f"use {', '.join(FORMATS)}")
    return found


def _as_one(audits: list[Audit]) -> Audit:
    """The audits of several formats of one model; vectors cut to fewer dimensions come last."""
    readings = [reading for audit in audits for reading in audit.readings]
    sizes = list(dict.fromkeys(reading.dimensions for reading in readings))
    readings.sort(key=lambda reading: sizes.index(reading.dimensions))
    made = dict(audits[0].made[0])
    made["formats"] = [form for audit in audits for form in audit.made[0]["formats"]]
    if "candidates" in made:  # only formats made of codes have them
        made["candidates"] = max(
            (a.made[0]["candidates"] for a in audits if a.made[0]["candidates"]), default=None
        )
    return Audit.together([Audit(tuple(readings), (), audits[0].notes, (made,))])


def _together(parts: list[logits.Logits]) -> logits.Logits:
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


def _dataset(source: Any, ray: Any) -> pl.DataFrame:
    blocks = ray.get(blocks_of(source))
    frames = [pl.DataFrame(block) for block in blocks if block.num_rows]
    if not frames:
        raise InputError("no rows", place="dataset", remedy="check how it was made")
    return pl.concat(frames)


def _vectors(source: Any, ids: Any) -> tuple[Array | Any, Any]:
    """Vectors as they are, or those of all shards, with the ids that the files hold."""
    if hasattr(source, "shape") or not (
        isinstance(source, str) or hasattr(source, "__fspath__") or _are_paths(source)
    ):
        return source, ids
    parts = []
    for file in find_files(source):
        with file.local() as path:
            parts.append(read_vectors(path))
    own = [part.ids for part in parts if part.ids is not None]
    if own and len(own) < len(parts):
        raise InputError(
            "some shards have ids and some have none", remedy="write all of them as Parquet"
        )
    return np.concatenate([part.values for part in parts]), (
        pl.concat(own) if own and ids is None else ids
    )


def _are_paths(source: Any) -> bool:
    return isinstance(source, list | tuple) and all(
        isinstance(one, str) or hasattr(one, "__fspath__") for one in source
    )
