"""A sentence-transformers model and the texts of a BEIR folder → its audit.

    bi-encoder                    vectors, searched, or compared over fixed candidates
    cross-encoder, yes/no model   logits of the candidates
    late interaction              scores of the candidates, from token vectors

The model runs in float32 and in any other format asked for; what it puts out is kept on disk
(`retrieval/workshop.py`), so that another measure costs nothing and a killed audit goes on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import numpy as np
import polars as pl
from pydantic import TypeAdapter

from rankproof.audit.embeddings import audit_embeddings
from rankproof.audit.logits import FORMATS, Logits, audit_logits
from rankproof.audit.results import Audit
from rankproof.data.beir import Corpus
from rankproof.data.tables import Qrels, Run
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.manifest import versions
from rankproof.retrieval.components import EmbedderChoice
from rankproof.retrieval.embedders.sentence_transformers import SentenceTransformersSettings
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.rerankers.cross_encoder import CrossEncoderSettings
from rankproof.retrieval.rerankers.maxsim import MaxSimSettings
from rankproof.retrieval.sentence_models import Kind, declared_activation, model_digest, model_kind
from rankproof.retrieval.workshop import PART, Texts, Workshop, quiet

PACKAGES = ("torch", "transformers", "sentence-transformers", "numpy")
BATCH = 32
Tell = Callable[[float], None]
LATE = "maxsim:"  # before the name of a bi-encoder
_OWN = re.compile(r"[\w.]+:[\w.]+")  # an embedder of the user's, module:Name


@dataclass(frozen=True, slots=True)
class Embedded:
    """What a bi-encoder made of the texts."""

    queries: Array  # (Q, D) float32
    documents: Array  # (N, D)
    query_ids: list[str]
    document_ids: list[str]
    metric: str  # the model's own


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, the texts that it is run on, and what it is asked of them."""

    name: str
    path: str
    texts: Corpus
    judged: Qrels
    candidates: Run | None = None  # to be reranked; None to search all documents
    dataset: str | None = None  # its name, where several are audited
    running: dict[str, Any] = field(default_factory=dict)  # batch, max_tokens, device
    prompts: dict[str, str] = field(default_factory=dict)  # query_prompt, passage_prompt

    def kind(self) -> Kind:
        """A model that is of no use here is refused before it is run."""
        kind: Kind | None = "late interaction" if self.path.startswith(LATE) else "bi-encoder"
        if not self.path.startswith(LATE) and not _OWN.fullmatch(self.path):
            kind = model_kind(self.path)
        if kind is None:
            raise InputError(
                "this is neither a bi-encoder nor a cross-encoder",
                place=self.path,
                remedy="name a SentenceTransformer, a CrossEncoder or a language model that "
                "answers yes or no",
            )
        if kind != "bi-encoder" and self.candidates is None:
            raise InputError(
                "late interaction reranks, it does not search"
                if kind == "late interaction"
                else "a cross-encoder scores pairs, not texts",
                place=self.path,
                remedy="name the run that it is to rerank with --candidates",
            )
        return kind

    def reads(self) -> int:
        """Texts or pairs that the model reads in a run."""
        if self.kind() != "bi-encoder":
            return self.pairs().height
        return len(self.asked()) + len(_passages(self))

    def asked(self) -> Texts:
        """The questions that have judgements, and candidates where those are fixed."""
        wanted = set(self.judged.queries)
        if self.candidates is not None:
            wanted &= set(self.candidates.queries)
            if not wanted:
                raise InputError(
                    f"no query is both in {self.candidates.name} and in {self.judged.name}",
                    remedy="check that the two files belong together",
                )
        pairs = zip(self.texts.query_ids, self.texts.queries, strict=True)
        kept = [(query, text) for query, text in pairs if query in wanted]
        return Texts([query for query, _ in kept], [text for _, text in kept])

    def pairs(self) -> pl.DataFrame:
        """query, doc of each candidate that is asked about; all of them have texts."""
        assert self.candidates is not None
        frame = self.candidates.to_frame().select("query", "doc")
        frame = frame.join(pl.DataFrame({"query": self.judged.queries}), on="query", how="semi")
        for key, ids in (("query", self.texts.query_ids), ("doc", self.texts.document_ids)):
            known = pl.DataFrame({key: ids}, schema={key: pl.String})
            absent = frame.join(known, on=key, how="anti", maintain_order="left")[key]
            if len(absent):
                raise InputError(
                    f"{key} {shorten(absent[0])} of the candidates has no text",
                    place=self.texts.label,
                    remedy="rerank candidates that were retrieved from this dataset",
                )
        return frame


def audit_model(
    subject: Subject,
    *,
    run_dtypes: Sequence[str] | None = None,
    formats: Iterable[str] | None = None,
    searching: dict[str, Any] | None = None,
    paper_strict: bool = False,
    decimals: dict[str, Any] | None = None,
    repeats: int = 0,
    shards: int = 1,
    shared: dict[str, Any] | None = None,
    progress: Tell | None = None,
    tell: Tell = quiet,
) -> Audit:
    """Run a model and audit what it puts out.

    Without `run_dtypes` it runs in float32 and its output is audited in every format. With them it
    runs in float32 and in each, every run is scored in its own format, plainly and with high
    precision, and compared with the float32 run. With `repeats` each run is made so many times
    more, in other batches and another order of the texts: what that alone changes is noise.
    `shards` processes share the texts or pairs, each on a GPU of its own.
    `tell` hears of texts and pairs done.
    """
    shared = {"name": subject.name, "progress": progress, **(shared or {})}
    kind = subject.kind()
    if decimals and kind == "bi-encoder":
        raise InputError(
            "decimals apply to logits and scores, not embeddings",
            place=subject.path,
            remedy="leave --decimals out",
        )
    dtypes = ["float32"] if run_dtypes is None else list(dict.fromkeys(["float32", *run_dtypes]))
    audits: list[Audit] = []
    first: Embedded | Logits | None = None

    def audited(found: Embedded | Logits, formats: Iterable[str] | None, **own: Any) -> Audit:
        chosen = {} if formats is None else {"formats": list(formats)}
        if isinstance(found, Embedded):
            beside = (first.queries, first.documents) if isinstance(first, Embedded) else None
            return audit_embeddings(
                *(found.queries, found.documents, subject.judged),
                query_ids=found.query_ids,
                document_ids=found.document_ids,
                candidates=subject.candidates,
                reference=beside,
                **({"metric": found.metric} | (searching or {}) | chosen | shared | own),
            )
        if "formats" in chosen:
            chosen = {"formats": [form for form in chosen["formats"] if form in FORMATS]}
        return audit_logits(
            *(found, subject.judged),
            reference=first if isinstance(first, Logits) else None,
            paper_strict=paper_strict,
            **(chosen | shared | (decimals or {}) | own),
        )

    look: Any = _embed if kind == "bi-encoder" else _rerank
    passages, asked = _passages(subject), subject.asked()
    if shards > 1:
        _spread(subject, passages, asked, dtypes, shards, tell)
        tell = quiet  # of what is there
    notes: list[str] = []
    for dtype in dtypes:
        with Workshop(passages) as shop:  # one each: it holds its model for as long as it lives
            found = look(shop, subject, asked, dtype, tell)
            if run_dtypes is None and isinstance(found, Logits):
                found = replace(found, low=None)  # formats are applied to what it puts out
            made = audited(found, [dtype] if run_dtypes is not None else formats)
            first = found if first is None else first
            again = [
                audited(_again(look, shop, subject, asked, dtype, at, tell), [dtype], curves=False)
                for at in range(1, repeats + 1)
            ]
            audits.append(_placed(_noisy(made, again), subject.dataset, dtype))
            notes += shop.notes()
    ran = {
        "dtypes": dtypes,
        "repeats": repeats,
        "device": subject.running.get("device"),
        "model": fingerprint(_embedder(subject, "float32"))
        if _OWN.fullmatch(subject.path) and kind != "late interaction"
        else model_digest(subject.path.removeprefix(LATE)),
        "corpus": passages.digest,
        "questions": asked.digest,
        "versions": versions(PACKAGES),
    }
    return _as_one(audits, ran, notes, subject.dataset)


def _passages(subject: Subject) -> Texts:
    """All documents, or those that are candidates of a question."""
    ids, texts = subject.texts.document_ids, subject.texts.documents
    if subject.candidates is None:
        return Texts(ids, texts)
    wanted = set(subject.pairs()["doc"])
    kept = [(name, text) for name, text in zip(ids, texts, strict=True) if name in wanted]
    return Texts([name for name, _ in kept], [text for _, text in kept])


def _embed(shop: Workshop, subject: Subject, asked: Texts, dtype: Any, tell: Tell) -> Embedded:
    model = _embedder(subject, dtype)
    queries, documents = (shop.vectors(model, texts, tell) for texts in (asked, shop.passages))
    metric = str(getattr(shop.embedder(model), "similarity", "cosine"))
    return Embedded(queries, documents, asked.ids, shop.passages.ids, metric)


def _embedder(subject: Subject, dtype: Any) -> Any:
    """A model by its name or folder, in the format asked for; or the user's own, in its own."""
    if _OWN.fullmatch(subject.path):
        if dtype != "float32" or subject.running or subject.prompts:
            raise InputError(
                "an embedder of your own runs as it is written",
                place=subject.path,
                remedy="leave out --run-dtypes, --batch-size, --max-tokens, --device and prompts",
            )
        return TypeAdapter(EmbedderChoice).validate_python({"type": subject.path})
    return SentenceTransformersSettings(
        type="sentence-transformers",
        model=subject.path,
        normalise=False,
        dtype=dtype,
        **(subject.running | subject.prompts),
    )


def _reranker(subject: Subject, dtype: Any) -> CrossEncoderSettings | MaxSimSettings:
    if subject.kind() == "cross-encoder":
        return CrossEncoderSettings(
            type="cross-encoder", model=subject.path, dtype=dtype, **subject.running
        )
    return MaxSimSettings(
        type="maxsim",
        model=subject.path.removeprefix(LATE),
        dtype=dtype,
        tokens=dtype,
        **subject.running,
    )


def _spread(
    subject: Subject, passages: Texts, asked: Texts, dtypes: Sequence[str], shards: int, tell: Tell
) -> None:
    """Have processes put vectors or logits on disk, where the audit then finds them."""
    if _OWN.fullmatch(subject.path):
        raise InputError(
            "only models by name or folder are run in shards",
            place=subject.path,
            remedy="leave out --shards",
        )
    if ":" in str(subject.running.get("device")):
        raise InputError(
            f"device {shorten(subject.running['device'])} for {shards} shards, each of which has a "
            "GPU of its own",
            remedy="leave out --device, or name those to use in CUDA_VISIBLE_DEVICES",
        )
    reranks = subject.kind() != "bi-encoder"
    models = [(_reranker if reranks else _embedder)(subject, dtype) for dtype in dtypes]
    pairs = subject.pairs() if reranks else None
    firsts = range(0, len(passages) if pairs is None else pairs.height, PART)
    gpus = _gpus()
    context = get_context("spawn")  # CUDA does not live through a fork
    # A process each, so that each has a GPU.
    pools = [
        ProcessPoolExecutor(
            *(1, context, begin), (gpus[at % len(gpus)] if gpus else "", passages, asked, pairs)
        )
        for at in range(shards)
    ]
    try:
        jobs = [
            pools[at % shards].submit(fill, model, first)
            for model in models
            for at, first in enumerate(firsts)
        ]
        for job in jobs:
            tell(job.result())
    except BrokenProcessPool:
        raise InputError(
            "a process that ran a share of it ended by itself",
            place=subject.path,
            remedy="try fewer --shards, or a smaller --batch-size",
        ) from None
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def _gpus() -> list[str]:
    """Those that may be used, as CUDA_VISIBLE_DEVICES names them; more shards share them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [gpu.strip() for gpu in named.split(",") if gpu.strip()]
    return list(map(str, range(import_module("torch").cuda.device_count())))


@dataclass(slots=True)
class _Share:
    """What a process of several works on."""

    passages: Texts
    asked: Texts
    pairs: pl.DataFrame | None
    model: Any = None  # whose parts it runs now
    shop: Workshop | None = None

    def bench(self, model: Any) -> Workshop:
        """A workshop that holds this model and no other."""
        if self.shop is None or model != self.model:
            self.end()
            self.model, self.shop = model, Workshop(self.passages)
        return self.shop

    def end(self) -> None:
        if self.shop is not None:
            self.shop.__exit__()
        self.shop = None


_shares: list[_Share] = []  # of this process: none, or one


def begin(gpu: str, passages: Texts, asked: Texts, pairs: pl.DataFrame | None) -> None:
    """What a process is told first; before torch is imported, which looks once for GPUs."""
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    _shares[:] = [_Share(passages, asked, pairs)]


def fill(model: Any, first: int) -> int:
    """Run the part that begins at `first`, and say how many texts or pairs it has."""
    (share,) = _shares
    shop, part = share.bench(model), slice(first, first + PART)
    if share.pairs is not None:
        return len(shop.logits(model, share.pairs[part], share.asked))
    shop.passages = Texts(share.passages.ids[part], share.passages.texts[part])
    return len(shop.vectors(model, shop.passages))


def _rerank(
    shop: Workshop,
    subject: Subject,
    asked: Texts,
    dtype: Any,
    tell: Tell,
    draw: np.random.Generator | None = None,
) -> Logits:
    """Logits of the candidates, which are read in their order or in one drawn."""
    model = _reranker(subject, dtype)
    pairs = subject.pairs()
    places = np.arange(pairs.height) if draw is None else draw.permutation(pairs.height)
    made = _back(shop.logits(model, pairs[places], asked, tell).astype("f8"), places)
    query, doc, first, last = pairs["query"], pairs["doc"], made[:, 0].copy(), made[:, -1].copy()
    if isinstance(model, MaxSimSettings):
        label = f"scores of {subject.path}"
        return Logits(query, doc, last, None, label, scored=True, low=first)
    label = f"logits of {subject.path}"
    if made.shape[1] == 2:
        return Logits(query, doc, last, first, label)
    own = declared_activation(subject.path)
    return Logits(query, doc, last, None, label, identity=own == "Identity")


def _again(
    look: Any, shop: Workshop, subject: Subject, asked: Texts, dtype: Any, at: int, tell: Tell
) -> Embedded | Logits:
    """The same run in other batches and another order; kept in a folder of its own."""
    if _OWN.fullmatch(subject.path):
        raise InputError(
            "an embedder of your own is run once", place=subject.path, remedy="leave out --repeats"
        )
    batch = max(1, int(subject.running.get("batch", BATCH)) >> at)
    other = replace(subject, running={**subject.running, "batch": batch})
    draw = np.random.default_rng(at)
    documents, questions = (draw.permutation(len(texts)) for texts in (shop.passages, asked))
    folder = shop.folder / "repeats" / f"{at}-{batch}"
    with Workshop(_shuffled(shop.passages, documents), folder) as again:
        if look is _rerank:
            logits: Logits = _rerank(again, other, asked, dtype, tell, draw)
            return logits
        found = _embed(again, other, _shuffled(asked, questions), dtype, tell)
    return Embedded(
        _back(found.queries, questions),
        _back(found.documents, documents),
        *(asked.ids, shop.passages.ids, found.metric),
    )


def _shuffled(texts: Texts, places: Array) -> Texts:
    return Texts([texts.ids[p] for p in places], [texts.texts[p] for p in places])


def _back(rows: Array, places: Array) -> Array:
    """Rows of shuffled texts where the texts stood before."""
    found = np.empty_like(rows)
    found[places] = rows
    return found


def _noisy(audit: Audit, again: Sequence[Audit]) -> Audit:
    """Readings with the spread of what is expected over the same run made again."""
    if not again:
        return audit
    readings = []
    for reading in audit.readings:
        same = [r for other in again for r in other.readings if r.setting == reading.setting]
        if same:
            spread = {
                m: max(seen) - min(seen)
                for m in reading.evaluation
                for seen in [[r.evaluation[m].expected for r in (reading, *same)]]
            }
            reading = replace(reading, noise=spread)
        readings.append(reading)
    return replace(audit, readings=tuple(readings))


def _placed(audit: Audit, dataset: str | None, dtype: str) -> Audit:
    readings = tuple(replace(reading, dataset=dataset, run=dtype) for reading in audit.readings)
    return replace(audit, readings=readings)


def _as_one(
    audits: Sequence[Audit], ran: dict[str, Any], notes: Sequence[str], dataset: str | None
) -> Audit:
    """The runs of one model as one audit of it."""
    formats = [form for audit in audits for form in audit.made[0]["formats"]]
    made = {**audits[0].made[0], "dataset": dataset, "formats": formats, "ran": ran}
    readings = tuple(reading for audit in audits for reading in audit.readings)
    said = [note for audit in audits for note in audit.notes]
    return Audit(readings, (), tuple(dict.fromkeys([*said, *notes])), (made,))
