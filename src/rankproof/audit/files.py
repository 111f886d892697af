"""Vectors, logits and scores that files hold → audits: as the verb asks, and `verify` again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rankproof.audit.embeddings import audit_embeddings
from rankproof.audit.input_files import read_ids, read_logits, read_served, read_vectors
from rankproof.audit.logits import FORMATS, audit_logits
from rankproof.audit.results import Audit
from rankproof.data import read_run
from rankproof.evaluation.recorded_inputs import RecordedInputs


def audit_files(given: RecordedInputs) -> Iterator[Audit]:
    """An audit of each."""
    asked, files, qrels = given.config, given.files, given.qrels
    shared = {k: asked[k] for k in ("measures", "order", "missing", "candidates_only", "curves")}
    formats = asked["formats"]
    chosen = {} if formats is None else {"formats": formats}
    ranges = read_vectors(str(files["ranges"])).values if "ranges" in files else None
    for at, name in enumerate(asked["embeddings"], 1):
        pair = [read_vectors(str(files[f"{what} {at}"])) for what in ("queries", "documents")]
        ids = [
            vectors.ids if file is None else read_ids(str(file))
            for what, vectors in zip(("query ids", "document ids"), pair, strict=True)
            for file in [files.get(f"{what} {at}", files.get(f"{what} 1"))]
        ]
        found = audit_embeddings(
            *(pair[0].values, pair[1].values, qrels),
            query_ids=ids[0],
            document_ids=ids[1],
            name=name,
            labels=(pair[0].label, pair[1].label),
            stored=asked["stored"],
            ranges=ranges,
            **(asked["searching"] | chosen | shared),
        )
        said = [note for vectors in pair for note in vectors.notes]
        yield replace(found, notes=(*found.notes, *said))
    reranked = "candidates" in files and not asked["models"]
    sent = read_run(files["candidates"]) if reranked else None
    shared |= {key: asked[key] for key in ("decimals", "margin") if key in asked}
    for what, read in (("logits", read_logits), ("scores", read_served)):
        for at, name in enumerate(asked.get(what, ()), 1):
            yield audit_logits(
                *(read(str(files[f"{what} {at}"]), sent), qrels),
                name=name,
                formats=[form for form in formats or FORMATS if form in FORMATS],
                paper_strict=asked["paper_strict"],
                **shared,
            )
