"""A sentence-transformers model and the texts of a BEIR folder → vectors or logits."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import polars as pl
from pydantic import TypeAdapter

from rankproof.arrays import Array
from rankproof.audit.logits import Logits
from rankproof.errors import InputError, shorten
from rankproof.records.beir import Corpus
from rankproof.retrieval.embedders.sentence_transformers import SentenceTransformersSettings
from rankproof.retrieval.models import load_model
from rankproof.retrieval.parts import EmbedderChoice
from rankproof.retrieval.workshop import Texts, Workshop
from rankproof.tables import Qrels, Run


def embed(name: str, dataset: Corpus, queries: list[str]) -> tuple[Array, Array, str]:
    """(Q, D) queries and (N, D) documents in float32, and the model's own similarity."""
    model = _embedder(name)
    with Workshop(Texts(dataset.document_ids, dataset.documents)) as shop:
        asked = Texts([str(at) for at in range(len(queries))], queries)
        vectors = [shop.vectors(model, texts) for texts in (asked, shop.passages)]
        return vectors[0], vectors[1], str(getattr(shop.embedder(model), "similarity", "cosine"))


def _embedder(name: str) -> Any:
    """A model by its name or folder; or an embedder of the user's, by `module:Name`."""
    if re.fullmatch(r"[\w.]+:[\w.]+", name):
        return TypeAdapter(EmbedderChoice).validate_python({"type": name})
    return SentenceTransformersSettings(type="sentence-transformers", model=name, normalise=False)


def rerank(name: str, dataset: Corpus, candidates: Run, qrels: Qrels) -> Logits:
    """Logits of the judged queries' candidates; two columns where the model has two labels."""
    model = load_model("CrossEncoder", name)
    frame = candidates.to_frame()
    frame = frame.join(pl.DataFrame({"query": qrels.queries}), on="query", how="semi")
    asked, texts = (
        pl.DataFrame({key: ids, text: values}, schema={key: pl.String, text: pl.String})
        for key, ids, text, values in (
            ("query", dataset.query_ids, "asked", dataset.queries),
            ("doc", dataset.document_ids, "text", dataset.documents),
        )
    )
    pairs = frame.join(asked, on="query", how="left", maintain_order="left")
    pairs = pairs.join(texts, on="doc", how="left", maintain_order="left")
    for column, key in (("asked", "query"), ("text", "doc")):
        absent = pairs.filter(pl.col(column).is_null())[key]
        if len(absent):
            raise InputError(
                f"{key} {shorten(absent[0])} of the candidates has no text",
                place=dataset.label,
                remedy="rerank candidates that were retrieved from this dataset",
            )
    if not pairs.height:
        raise InputError(
            f"no query is both in {candidates.name} and in {qrels.name}",
            remedy="check that the two files belong together",
        )
    logits = _predict(model, list(zip(pairs["asked"], pairs["text"], strict=True)))
    label = f"logits of {name}"
    if logits.ndim == 1 or logits.shape[1] == 1:
        return Logits(pairs["query"], pairs["doc"], logits.reshape(-1), None, label)
    if logits.shape[1] != 2:
        raise InputError(
            f"the model has {logits.shape[1]} labels", place=name, remedy="use one with 1 or 2"
        )
    return Logits(pairs["query"], pairs["doc"], logits[:, 1].copy(), logits[:, 0].copy(), label)


def _predict(model: Any, pairs: list[tuple[str, str]]) -> Array:
    """(N,) or (N, labels) outputs before any activation."""
    torch = importlib.import_module("torch")
    scores = model.predict(
        pairs, activation_fn=torch.nn.Identity(), convert_to_numpy=True, show_progress_bar=False
    )
    return np.asarray(scores, np.float64)
