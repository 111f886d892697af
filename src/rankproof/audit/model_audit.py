"""Audit of a model: run it on the texts of a BEIR folder, and audit its output.

    bi-encoder                    vectors, searched, or compared over fixed candidates
    cross-encoder, yes/no model   logits of the candidates
    late interaction              scores of the candidates, from token vectors

The model runs in float32 and in any other requested format. Its output is stored on disk
(`retrieval/workshop.py`), so that another measure costs nothing and an interrupted audit resumes.
Several processes can share the work, each on its own GPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from multiprocessing import get_context
from typing import Any

import numpy as np
import polars as pl
from pydantic import TypeAdapter

from rankproof.audit.embeddings import audit_embeddings
from rankproof.audit.logits import FORMATS, Logits, audit_logits
from rankproof.audit.readings import Reading
from rankproof.audit.results import Audit
from rankproof.data.beir import Corpus
from rankproof.data.tables import Qrels, Run
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.manifest import versions
from rankproof.foundation.progress import advance
from rankproof.retrieval.components import EmbedderChoice
from rankproof.retrieval.embedders.sentence_transformers import SentenceTransformersSettings
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.rerankers.cross_encoder import CrossEncoderSettings
from rankproof.retrieval.rerankers.maxsim import MaxSimSettings
from rankproof.retrieval.sentence_models import Kind, declared_activation, model_digest, model_kind
from rankproof.retrieval.workshop import PART, Texts, Workshop

PACKAGES = ("torch", "transformers", "sentence-transformers", "numpy")
BATCH = 32
MAXSIM_PREFIX = "maxsim:"  # before the name of a bi-encoder
_USER_EMBEDDER = re.compile(r"[\w.]+:[\w.]+")  # an embedder of the user's, module:Name


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors that a bi-encoder computed for the texts."""

    queries: Array  # (Q, D) float32
    documents: Array  # (N, D)
    query_ids: list[str]
    document_ids: list[str]
    metric: str  # the one that the model was trained for


Output = Embedded | Logits


@dataclass(frozen=True, slots=True)
class AuditedModel:
    """A model, and the texts, judgments and candidates that it is run on."""

    name: str
    path: str
    texts: Corpus
    judged: Qrels
    candidates: Run | None = None  # documents to rerank; None to search all documents
    dataset: str | None = None  # name of the dataset, where several are audited
    running: dict[str, Any] = field(default_factory=dict)  # batch, max_tokens, device
    prompts: dict[str, str] = field(default_factory=dict)  # query_prompt, passage_prompt

    @property
    def is_user_embedder(self) -> bool:
        """True for an embedder of the user's, module:Name."""
        is_maxsim = self.path.startswith(MAXSIM_PREFIX)
        return not is_maxsim and bool(_USER_EMBEDDER.fullmatch(self.path))

    def find_kind(self) -> Kind:
        """Return the kind of the model; refuse a reranker without candidates."""
        if self.path.startswith(MAXSIM_PREFIX):
            kind: Kind | None = "late interaction"
        else:
            kind = "bi-encoder" if self.is_user_embedder else model_kind(self.path)
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

    def count_inputs(self) -> int:
        """Return how many texts or pairs the model reads in one run."""
        if self.find_kind() != "bi-encoder":
            return self.candidate_pairs().height
        return len(self.judged_queries()) + len(self.passages())

    def judged_queries(self) -> Texts:
        """Return the queries with judgments, and with candidates where those are fixed."""
        query_ids = set(self.judged.queries)
        if self.candidates is not None:
            query_ids &= set(self.candidates.queries)
            if not query_ids:
                raise InputError(
                    f"no query is both in {self.candidates.name} and in {self.judged.name}",
                    remedy="check that the two files belong together",
                )
        return _choose_texts(self.texts.query_ids, self.texts.queries, query_ids)

    def passages(self) -> Texts:
        """Return all documents, or those that are candidates of a judged query."""
        ids, texts = self.texts.document_ids, self.texts.documents
        if self.candidates is None:
            return Texts(ids, texts)
        return _choose_texts(ids, texts, set(self.candidate_pairs()["doc"]))

    def candidate_pairs(self) -> pl.DataFrame:
        """Return query and doc of the judged queries' candidates; refuse those without a text."""
        assert self.candidates is not None
        pairs = self.candidates.to_frame().select("query", "doc")
        pairs = pairs.join(pl.DataFrame({"query": self.judged.queries}), on="query", how="semi")
        for column, ids in (("query", self.texts.query_ids), ("doc", self.texts.document_ids)):
            known = pl.DataFrame({column: ids}, schema={column: pl.String})
            absent = pairs.join(known, on=column, how="anti", maintain_order="left")[column]
            if len(absent):
                raise InputError(
                    f"{column} {shorten(absent[0])} of the candidates has no text",
                    place=self.texts.label,
                    remedy="rerank candidates that were retrieved from this dataset",
                )
        return pairs

    # -------------------------------------------------------------- settings of its component

    def embedder(self, dtype: str) -> Any:
        """Return the embedder's settings to run it in a format.

        An embedder of the user's has no such settings, so only float32 is possible.
        """
        if self.is_user_embedder:
            if dtype != "float32" or self.running or self.prompts:
                raise InputError(
                    "an embedder of your own runs as it is written",
                    place=self.path,
                    remedy="leave out --run-dtypes, --batch-size, --max-tokens, --device and "
                    "prompts",
                )
            return TypeAdapter(EmbedderChoice).validate_python({"type": self.path})
        return SentenceTransformersSettings(
            type="sentence-transformers",
            model=self.path,
            normalise=False,
            dtype=dtype,  # type: ignore[arg-type]
            **(self.running | self.prompts),
        )

    def reranker(self, dtype: Any) -> CrossEncoderSettings | MaxSimSettings:
        """Return the reranker's settings to run it in a format."""
        if self.find_kind() == "cross-encoder":
            return CrossEncoderSettings(
                type="cross-encoder", model=self.path, dtype=dtype, **self.running
            )
        return MaxSimSettings(
            type="maxsim",
            model=self.path.removeprefix(MAXSIM_PREFIX),
            dtype=dtype,
            tokens=dtype,
            **self.running,
        )

    def fingerprint(self) -> str:
        """Return a digest of the model's files, or of the user's code."""
        if self.is_user_embedder:
            return fingerprint(self.embedder("float32"))
        return model_digest(self.path.removeprefix(MAXSIM_PREFIX))


def _choose_texts(ids: Sequence[str], texts: Sequence[str], chosen_ids: set[str]) -> Texts:
    """Return the texts with one of these ids, in their own order."""
    places = [place for place, text_id in enumerate(ids) if text_id in chosen_ids]
    return Texts([ids[place] for place in places], [texts[place] for place in places])


def audit_model(
    model: AuditedModel,
    *,
    run_dtypes: Sequence[str] | None = None,
    formats: Iterable[str] | None = None,
    paper_strict: bool = False,
    repeats: int = 0,
    shards: int = 1,
    vector_options: Mapping[str, Any] | None = None,
    logit_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Audit:
    """Run a model and audit its output.

    Without `run_dtypes` it runs in float32 and its output is audited in every format. With them it
    runs in float32 and in each of these formats; every run is scored in its own format, plainly and
    with high precision, and compared with the float32 run. `repeats` is how often each run is
    repeated in other batches and another order of the texts: differences between these are noise.
    `shards` processes share the texts or pairs, each on its own GPU.

    `vector_options` are keywords of `audit_embeddings`, `logit_options` of `audit_logits`,
    `options` of both.
    """
    if logit_options and model.find_kind() == "bi-encoder":
        raise InputError(
            "decimals apply to logits and scores, not embeddings",
            place=model.path,
            remedy="leave --decimals out",
        )
    dtypes = ["float32"] if run_dtypes is None else list(dict.fromkeys(["float32", *run_dtypes]))
    output_audits = _OutputAudits(
        model,
        {"name": model.name, **(options or {})},
        vector_options or {},
        {"paper_strict": paper_strict, **(logit_options or {})},
    )
    passages, queries = model.passages(), model.judged_queries()
    if shards > 1:
        run_in_shards(model, passages, queries, dtypes, shards)
    # The output of shards is only read here, and was already counted as progress.
    report = advance if shards == 1 else _ignore_progress
    audits: list[Audit] = []
    notes: list[str] = []
    for dtype in dtypes:
        with Workshop(passages) as workshop:  # one per format: it keeps its model loaded
            run = _ModelRun(workshop, model, queries, dtype, report)
            output = run.output()
            if run_dtypes is None and isinstance(output, Logits):
                output = replace(output, low=None)  # formats are applied to the float32 output
            audit = output_audits.audit(output, formats if run_dtypes is None else [dtype])
            repeated = [
                output_audits.audit(run.repeat(number), [dtype], curves=False)
                for number in range(1, repeats + 1)
            ]
            audits.append(_label_readings(audit, repeated, model.dataset, dtype))
            notes += workshop.notes()
    ran = {
        "dtypes": dtypes,
        "repeats": repeats,
        "device": model.running.get("device"),
        "model": model.fingerprint(),
        "corpus": passages.digest,
        "questions": queries.digest,
        "versions": versions(PACKAGES),
    }
    return _combine(audits, ran, notes, model.dataset)


@dataclass(slots=True)
class _OutputAudits:
    """Audits the output of every run of a model, with the first run as reference."""

    model: AuditedModel
    options: Mapping[str, Any]  # of audits of vectors and of logits
    vector_options: Mapping[str, Any]
    logit_options: Mapping[str, Any]
    first: Output | None = None

    def audit(self, output: Output, formats: Iterable[str] | None, **options: Any) -> Audit:
        """Return the audit of a run's output, in all formats that apply if none are named."""
        reference, names = self.first, None if formats is None else list(formats)
        if self.first is None:
            self.first = output
        keywords = {**self.options, **options}
        if isinstance(output, Embedded):
            pair = None
            if isinstance(reference, Embedded):
                pair = (reference.queries, reference.documents)
            output_options = {"metric": output.metric} | dict(self.vector_options)
            if names is not None:
                output_options["formats"] = names
            return audit_embeddings(
                output.queries,
                output.documents,
                self.model.judged,
                query_ids=output.query_ids,
                document_ids=output.document_ids,
                candidates=self.model.candidates,
                reference=pair,
                **(output_options | keywords),
            )
        output_options = dict(self.logit_options)
        if names is not None:
            output_options["formats"] = [form for form in names if form in FORMATS]
        return audit_logits(
            output,
            self.model.judged,
            reference=reference if isinstance(reference, Logits) else None,
            **(output_options | keywords),
        )


# ---------------------------------------------------------------------------------- running a model


def _ignore_progress(_: float) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True)
class _ModelRun:
    """A run of a model in one format, on texts that a workshop holds."""

    workshop: Workshop
    model: AuditedModel
    queries: Texts
    dtype: Any
    report: Callable[[float], None]  # of progress

    def output(self) -> Output:
        """Return the model's output for all texts, or for all candidates."""
        return self._embed() if self.model.find_kind() == "bi-encoder" else self._rerank()

    def repeat(self, number: int) -> Output:
        """Return the output of the same run in smaller batches and another order of the texts.

        It is stored in a folder of its own.
        """
        model, passages, queries = self.model, self.workshop.passages, self.queries
        if model.is_user_embedder:
            raise InputError(
                "an embedder of your own is run once",
                place=model.path,
                remedy="leave out --repeats",
            )
        batch = max(1, int(model.running.get("batch", BATCH)) >> number)
        model = replace(model, running={**model.running, "batch": batch})
        generator = np.random.default_rng(number)
        passage_order = generator.permutation(len(passages))
        query_order = generator.permutation(len(queries))
        folder = self.workshop.folder / "repeats" / f"{number}-{batch}"
        with Workshop(_shuffle(passages, passage_order), folder) as workshop:
            repetition = replace(self, workshop=workshop, model=model)
            if model.find_kind() != "bi-encoder":
                return repetition._rerank(generator)
            output = replace(repetition, queries=_shuffle(queries, query_order))._embed()
        return replace(
            output,
            queries=_unshuffle(output.queries, query_order),
            documents=_unshuffle(output.documents, passage_order),
            query_ids=queries.ids,
            document_ids=passages.ids,
        )

    def _embed(self) -> Embedded:
        """Return the vectors of queries and passages."""
        embedder, passages = self.model.embedder(self.dtype), self.workshop.passages
        query_vectors = self.workshop.vectors(embedder, self.queries, self.report)
        passage_vectors = self.workshop.vectors(embedder, passages, self.report)
        metric = str(getattr(self.workshop.embedder(embedder), "similarity", "cosine"))
        return Embedded(query_vectors, passage_vectors, self.queries.ids, passages.ids, metric)

    def _rerank(self, generator: np.random.Generator | None = None) -> Logits:
        """Return the logits of the candidates, read in their order or in a random one."""
        model, reranker = self.model, self.model.reranker(self.dtype)
        pairs = model.candidate_pairs()
        order = np.arange(pairs.height)
        if generator is not None:
            order = generator.permutation(pairs.height)
        outputs = self.workshop.logits(reranker, pairs[order], self.queries, self.report)
        rows = _unshuffle(outputs, order).astype("f8")
        query, doc = pairs["query"], pairs["doc"]
        first, last = rows[:, 0].copy(), rows[:, -1].copy()
        if isinstance(reranker, MaxSimSettings):
            label = f"scores of {model.path}"
            return Logits(query, doc, last, label=label, scored=True, low=first)
        label = f"logits of {model.path}"
        if rows.shape[1] == 2:
            return Logits(query, doc, yes=last, no=first, label=label)
        is_identity = declared_activation(model.path) == "Identity"
        return Logits(query, doc, last, label=label, identity=is_identity)


def _shuffle(texts: Texts, order: Array) -> Texts:
    """Return texts in another order."""
    return Texts([texts.ids[place] for place in order], [texts.texts[place] for place in order])


def _unshuffle(rows: Array, order: Array) -> Array:
    """Return rows of shuffled texts in the texts' own order."""
    restored = np.empty_like(rows)
    restored[order] = rows
    return restored


# --------------------------------------------------------------------------- audits of several runs


def _label_readings(
    audit: Audit, repeated: Sequence[Audit], dataset: str | None, dtype: str
) -> Audit:
    """Return the audit of one run, its readings with dataset, format of the run, and noise."""
    readings = (
        replace(_add_noise(reading, repeated), dataset=dataset, run=dtype)
        for reading in audit.readings
    )
    return replace(audit, readings=tuple(readings))


def _add_noise(reading: Reading, repeated: Sequence[Audit]) -> Reading:
    """Return a reading with the spread of expected values over repeated runs."""
    repetitions = [
        other
        for audit in repeated
        for other in audit.readings
        if other.pipeline.name == reading.pipeline.name
    ]
    if not repetitions:
        return reading
    noise = {}
    for measure in reading.evaluation:
        values = [r.evaluation[measure].expected for r in (reading, *repetitions)]
        noise[measure] = max(values) - min(values)
    return replace(reading, noise=noise)


def _combine(
    audits: Sequence[Audit], ran: dict[str, Any], notes: Sequence[str], dataset: str | None
) -> Audit:
    """Return one audit of all runs of a model."""
    formats = [form for audit in audits for form in audit.made[0]["formats"]]
    made = {**audits[0].made[0], "dataset": dataset, "formats": formats, "ran": ran}
    readings = tuple(reading for audit in audits for reading in audit.readings)
    all_notes = [*(note for audit in audits for note in audit.notes), *notes]
    return Audit(readings, (), tuple(dict.fromkeys(all_notes)), (made,))


# -------------------------------------------------------------------------------- several processes


def run_in_shards(
    model: AuditedModel, passages: Texts, queries: Texts, dtypes: Sequence[str], shards: int
) -> None:
    """Compute vectors or logits in several processes, which store them for the audit to read."""
    if model.is_user_embedder:
        raise InputError(
            "only models by name or folder are run in shards",
            place=model.path,
            remedy="leave out --shards",
        )
    if ":" in str(model.running.get("device")):
        raise InputError(
            f"device {shorten(model.running['device'])} for {shards} shards, each of which has a "
            "GPU of its own",
            remedy="leave out --device, or name those to use in CUDA_VISIBLE_DEVICES",
        )
    reranks = model.find_kind() != "bi-encoder"
    pairs = model.candidate_pairs() if reranks else None
    count = len(passages) if pairs is None else pairs.height
    components = [(model.reranker if reranks else model.embedder)(dtype) for dtype in dtypes]
    with _process_pools(shards, (passages, queries, pairs)) as pools:
        jobs = [
            pools[number % shards].submit(run_part, component, first)
            for component in components
            for number, first in enumerate(range(0, count, PART))
        ]
        try:
            for job in jobs:
                advance(job.result())
        except BrokenProcessPool:
            raise InputError(
                "a process that ran a share of it ended by itself",
                place=model.path,
                remedy="try fewer --shards, or a smaller --batch-size",
            ) from None


@contextmanager
def _process_pools(shards: int, inputs: tuple[Any, ...]) -> Any:
    """Yield one pool per process, so that each process has its own GPU; end them afterwards."""
    gpus = _visible_gpus()
    context = get_context("spawn")  # CUDA does not survive a fork
    pools = [
        ProcessPoolExecutor(
            1, context, start_shard, (gpus[number % len(gpus)] if gpus else "", *inputs)
        )
        for number in range(shards)
    ]
    try:
        yield pools
    finally:
        for pool in pools:
            pool.shutdown(cancel_futures=True)


def _visible_gpus() -> list[str]:
    """Return the usable GPUs, as CUDA_VISIBLE_DEVICES names them."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is not None:
        return [gpu.strip() for gpu in names.split(",") if gpu.strip()]
    return list(map(str, range(import_module("torch").cuda.device_count())))


@dataclass(slots=True)
class _Shard:
    """The inputs of one of several processes, and the workshop it runs a model in."""

    passages: Texts
    queries: Texts
    pairs: pl.DataFrame | None
    component: Any = None  # the model that the workshop has loaded
    workshop: Workshop | None = None

    def workshop_for(self, component: Any) -> Workshop:
        """Return a workshop that has loaded this model and no other."""
        if self.workshop is None or component != self.component:
            self.end()
            self.component, self.workshop = component, Workshop(self.passages)
        return self.workshop

    def end(self) -> None:
        """Release the model."""
        if self.workshop is not None:
            self.workshop.__exit__()
        self.workshop = None


_shards: list[_Shard] = []  # the one shard of this process; none in the main process


def start_shard(gpu: str, passages: Texts, queries: Texts, pairs: pl.DataFrame | None) -> None:
    """Initialize a process; torch, which looks for GPUs only once, is imported later."""
    os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    _shards[:] = [_Shard(passages, queries, pairs)]


def run_part(component: Any, first: int) -> int:
    """Run and store the part of the inputs that begins at `first`; return how many it has."""
    (shard,) = _shards
    workshop, part = shard.workshop_for(component), slice(first, first + PART)
    if shard.pairs is not None:
        pairs = shard.pairs[part]
        return len(workshop.logits(component, pairs, shard.queries, _ignore_progress))
    workshop.passages = Texts(shard.passages.ids[part], shard.passages.texts[part])
    return len(workshop.vectors(component, workshop.passages, _ignore_progress))
