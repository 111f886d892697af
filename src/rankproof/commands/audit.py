"""`audit`: how far a number can be trusted at a precision. Vectors, logits, scores, or a model.

Files and values in memory are taken alike; `rankproof.audit` does the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from rankproof.commands.options import (
    DEFAULT_MEASURES,
    SCORING,
    JudgmentOptions,
    Measures,
    Offline,
    Qrels,
    RankingOptions,
)
from rankproof.commands.registry import Option, Source, command

if TYPE_CHECKING:
    from rankproof.audit import Audit
    from rankproof.audit.input_files import Vectors
    from rankproof.audit.model_audit import AuditedModel
    from rankproof.data import QrelsLike, RunLike
    from rankproof.data.beir import Corpus
    from rankproof.data.tables import Run

MARGIN = 0.001
Formats = Annotated[
    Sequence[str] | None,
    Option(metavar="F,F,...", default_text="all that apply"),
    "Number formats, such as float32,bfloat16,int8,bit.",
]
Dimensions = Annotated[
    Sequence[int],
    Option(metavar="D,D,...", minimum=1),
    "Also audit the first D dimensions (Matryoshka embeddings).",
]
Depth = Annotated[
    int | None, Option(minimum=1, default_text="1000"), "Length of the lists that are searched."
]
Rescore = Annotated[
    Sequence[Literal["decoded", "original"]],
    Option(default_text="both"),
    "Rescore codes against these documents alone.",
]
CandidatesFactor = Annotated[
    int | None,
    Option(minimum=1, default_text="4"),
    "Rescore this many times k candidates of codes.",
]
Decimals = Annotated[
    Sequence[int],
    Option(metavar="D,D,...", minimum=0),
    "Also round scores to D decimals, and find the fewest that --margin allows.",
]
Margin = Annotated[
    float | None,
    Option(default_text=str(MARGIN)),
    "The range that --decimals may leave.",
]
PaperStrict = Annotated[
    bool, "Rank logits by their float32 score alone, as the paper does, ties and all."
]
ScoredRun = Annotated[
    "RunLike | None",
    Source("RUN", "candidates"),
    "What was scored, where the files do not name it: arrays, and answers of servers.",
]
Plots = Annotated[
    Path | None,
    Option(metavar="DIR", recorded=False),
    "Draw measures over k into DIR (SVG).",
]
Full = Annotated[
    bool, Option(recorded=False), "Show every value of every setting, and what each means."
]


class AuditOptions(RankingOptions, JudgmentOptions, total=False):
    """Everything that all audits take."""


@command(group="Precision", name="audit vectors", needs=SCORING)
def audit_vectors(
    qrels: Qrels,
    queries: Annotated[
        Any,
        Source("FILE...", "queries", names=("--queries",), takes_names=True),
        "Query vectors: .npy, .npz, safetensors, .pt, a FAISS or usearch index, or Parquet and "
        "JSON lines with ids.",
    ],
    documents: Annotated[
        Any,
        Source("FILE...", "documents", names=("--documents",), takes_names=True),
        "Document vectors, likewise; NAME=FILE names the model.",
    ],
    measures: Measures = DEFAULT_MEASURES,
    *,
    formats: Formats = None,
    dimensions: Dimensions = (),
    k: Depth = None,
    metric: Annotated[Literal["dot", "cosine"], "How vectors are compared."] = "dot",
    rescore: Rescore = (),
    candidates_factor: CandidatesFactor = None,
    query_ids: Annotated[
        Any,
        Source("FILE...", "query ids", names=("--query-ids",), takes_names=True),
        "Ids of the rows of --queries, one per line.",
    ] = None,
    document_ids: Annotated[
        Any,
        Source("FILE...", "document ids", names=("--document-ids",), takes_names=True),
        "Ids of the rows of --documents, one per line.",
    ] = None,
    candidates: Annotated[
        RunLike | None,
        Source("RUN", "candidates"),
        "Rank the documents that this run lists instead of searching all.",
    ] = None,
    stored: Annotated[
        Literal["int8", "bits"] | None,
        "What integer vectors are: numbers or calibrated codes of 8 bits, or packed bits.",
    ] = None,
    ranges: Annotated[
        Any,
        Source("FILE", "ranges"),
        "Ranges of calibrated int8 or uint8: .npy of (2, dimensions), least and largest.",
    ] = None,
    plots: Plots = None,
    full: Full = False,
    **options: Unpack[AuditOptions],
) -> Audit:
    """Audit vectors: search the same ones in every number format, under all tie orders.

    Each format is scored plainly and with high precision: the float32 sum of a floating-point
    format, codes rescored with the full query against decoded or original documents. ρ is
    Spearman's, to the float32 ranking. Name several models (NAME=FILE names one) to see where tie
    order or format changes which is ahead.

    $ rankproof audit vectors qrels.txt --queries queries.npy --documents documents.npy
    $ rankproof audit vectors qrels.txt --queries q.npy --documents d.npy --formats float32,int8

    >>> vectors = np.eye(3, dtype="float32")
    >>> audit = rp.audit_vectors({"0": {"0": 1}}, vectors, vectors, "RR", formats=["bit"])
    >>> audit.reading("bit").evaluation["RR"].range
    0.0
    """
    from rankproof.audit.embeddings import audit_embeddings, list_pipelines
    from rankproof.commands.inputs import is_path, read_judgments
    from rankproof.foundation.progress import progress
    from rankproof.precision import FORMATS

    shared = _shared_options(measures, options, plots)
    search = _chosen(k=k, candidates_factor=candidates_factor, rescore=tuple(rescore) or None)
    settings = {"metric": metric, "dimensions": dimensions, **search, **shared}
    settings |= {} if formats is None else {"formats": formats}
    query_files, document_files = _name_each(queries, "queries"), _name_each(documents, "vectors")
    _check_pairs(
        query_files, document_files, {"query_ids": query_ids, "document_ids": document_ids}
    )
    pipelines = list_pipelines(FORMATS if formats is None else formats)
    judged = read_judgments(qrels, options.get("qrels_format"))
    codes_ranges = _read_vectors(ranges, "ranges").values if is_path(ranges) else ranges
    audits = []
    with progress("auditing", len(document_files) * len(pipelines) * (1 + len(dimensions))):
        for at, name in enumerate(document_files):
            pair = (
                _read_vectors(list(query_files.values())[at], "queries"),
                _read_vectors(document_files[name], "documents"),
            )
            audit = audit_embeddings(
                pair[0].values,
                pair[1].values,
                judged,
                query_ids=_read_ids(query_ids, at, pair[0]),
                document_ids=_read_ids(document_ids, at, pair[1]),
                candidates=candidates,
                stored=stored,
                ranges=codes_ranges,
                name=name,
                labels=(pair[0].label, pair[1].label),
                **settings,
            )
            notes = [note for vectors in pair for note in vectors.notes]
            audits.append(replace(audit, notes=(*audit.notes, *notes)))
    return _combine(audits, plots, full)


@command(group="Precision", name="audit logits", needs=SCORING)
def audit_logits(
    qrels: Qrels,
    logits: Annotated[
        Any,
        Source("FILE...", "logits", takes_names=True),
        "Tables with query, doc and logit, or logit_yes and logit_no; or arrays whose rows are "
        "those of --candidates. NAME=FILE names the model.",
    ],
    measures: Measures = DEFAULT_MEASURES,
    *,
    formats: Formats = None,
    paper_strict: PaperStrict = False,
    decimals: Decimals = (),
    margin: Margin = None,
    candidates: ScoredRun = None,
    plots: Plots = None,
    full: Full = False,
    **options: Unpack[AuditOptions],
) -> Audit:
    """Audit the logits of rerankers: score the same ones in several formats, under all tie orders.

    Plainly the logit and its activation are in the format; with high precision lists are ranked by
    (score, logit) in float32. ρ is Spearman's, to the float32 ranking.

    $ rankproof audit logits qrels.txt logits.csv
    $ rankproof audit logits qrels.txt careful=logits.csv hasty=hasty.csv -m nDCG@10

    >>> import polars as pl
    >>> logits = pl.DataFrame({"query": "q", "doc": ["a", "b"], "logit": [9.0, 9.1]})
    >>> audit = rp.audit_logits({"q": {"b": 1}}, logits, ["RR"], formats=["bfloat16"])
    >>> {reading.scoring: reading.evaluation["RR"].range for reading in audit.readings}
    {'plain': 0.5, 'high precision': 0.0}
    """
    from rankproof.audit.input_files import read_logits
    from rankproof.audit.logits import Logits

    def read(source: Any, scored: Run | None) -> Logits:
        return source if isinstance(source, Logits) else read_logits(source, scored)

    settings = {
        **_shared_options(measures, options, plots),
        **_decimal_options(decimals, margin),
        "paper_strict": paper_strict,
    }
    audits = _audit_scored(
        qrels, _name_each(logits, "logits"), read, candidates, formats, options, settings
    )
    return _combine(audits, plots, full)


@command(group="Precision", name="audit scores", needs=SCORING)
def audit_scores(
    qrels: Qrels,
    scores: Annotated[
        Any,
        Source("FILE...", "scores", takes_names=True),
        "Scores that a server gave: runs, or the answers of Cohere, Voyage, Jina, TEI, vLLM or "
        "Infinity as JSON. NAME=FILE names the model.",
    ],
    measures: Measures = DEFAULT_MEASURES,
    *,
    formats: Formats = None,
    decimals: Decimals = (),
    margin: Margin = None,
    candidates: ScoredRun = None,
    plots: Plots = None,
    full: Full = False,
    **options: Unpack[AuditOptions],
) -> Audit:
    """Audit the scores that a server gave: rounded to formats and decimals, under all tie orders.

    What a server rounded is lost, so scores are read plainly alone.

    $ rankproof audit scores qrels.txt answers.jsonl --decimals 2,4

    >>> run = {"q": {"a": 0.701, "b": 0.704}}
    >>> audit = rp.audit_scores({"q": {"b": 1}}, run, "RR", decimals=[2, 3])
    >>> [audit.reading(f"{count} decimals").evaluation["RR"].range for count in (2, 3)]
    [0.5, 0.0]
    """
    from rankproof.audit.input_files import read_served
    from rankproof.audit.logits import Logits
    from rankproof.commands.inputs import is_path
    from rankproof.data import read_run

    def read(source: Any, scored: Run | None) -> Logits:
        if is_path(source):
            return read_served(os.fspath(source), scored)
        run = read_run(source)
        frame = run.to_frame()
        return Logits(frame["query"], frame["doc"], run.score.copy(), None, run.name, scored=True)

    settings = {
        **_shared_options(measures, options, plots),
        **_decimal_options(decimals, margin),
    }
    named = _name_each(scores, "scores", are_runs=True)
    audits = _audit_scored(qrels, named, read, candidates, formats, options, settings)
    return _combine(audits, plots, full)


def _locate_datasets(names: list[str], _: Mapping[str, Any]) -> list[str]:
    """The folders of datasets; those of a library are written into the cache."""
    from rankproof.audit.datasets import dataset_folder

    return [dataset_folder(name) for name in names]


@command(
    group="Precision",
    name="audit model",
    needs=SCORING,
    replay="a model was run",
)
def audit_model(
    models: Annotated[
        str | os.PathLike[str] | Sequence[str] | Mapping[str, str],
        Option(metavar="MODEL...", positional=True),
        "Models to run: bi-encoders, cross-encoders, yes/no language models, late interaction; "
        "maxsim:NAME for that over a bi-encoder's tokens. NAME=MODEL names one.",
    ],
    datasets: Annotated[
        str | os.PathLike[str] | Sequence[str] | Mapping[str, str],
        Source(
            *("DIR...", "dataset", ("--dataset",)),
            expand=_locate_datasets,
            takes_names=True,
        ),
        "Texts that models are run on: a BEIR folder, mteb:TASK or irds:NAME; may be repeated.",
    ],
    measures: Measures = DEFAULT_MEASURES,
    *,
    qrels: Annotated[
        QrelsLike | None,
        Source("FILE", "qrels"),
        "Judgments instead of the dataset's qrels/test.tsv.",
    ] = None,
    candidates: Annotated[
        RunLike | Sequence[RunLike] | Mapping[str, RunLike] | None,
        Source("RUN...", "candidates", names=("--candidates",)),
        "Rerank this run instead of searching; one for each dataset, or one for all.",
    ] = None,
    run_dtypes: Annotated[
        Sequence[Literal["float32", "float16", "bfloat16"]] | None,
        Option(metavar="F,F,..."),
        "Run each model in these formats, and compare with its float32 run.",
    ] = None,
    formats: Formats = None,
    dimensions: Dimensions = (),
    k: Depth = None,
    metric: Annotated[
        Literal["dot", "cosine"] | None,
        Option(default_text="the model's own"),
        "How vectors are compared.",
    ] = None,
    rescore: Rescore = (),
    candidates_factor: CandidatesFactor = None,
    paper_strict: PaperStrict = False,
    decimals: Decimals = (),
    margin: Margin = None,
    batch_size: Annotated[
        int | None, Option(minimum=1, default_text="32"), "Texts a model reads at a time."
    ] = None,
    max_tokens: Annotated[
        int | None,
        Option(minimum=1, default_text="the model's own"),
        "Tokens of a text or pair, at most.",
    ] = None,
    device: Annotated[
        str | None,
        Option(metavar="NAME", default_text="a GPU where there is one"),
        "Where models run: cpu, cuda, cuda:1, mps.",
    ] = None,
    query_prompt: Annotated[
        str | None, Option(default_text="its own"), "Put before every question, for bi-encoders."
    ] = None,
    passage_prompt: Annotated[
        str | None, Option(default_text="its own"), "Put before every passage."
    ] = None,
    repeats: Annotated[
        int,
        Option(minimum=0),
        "Run each model this many more times, in other batches: noise beside the ties.",
    ] = 0,
    shards: Annotated[
        int,
        Option(minimum=1),
        "Processes that share a model's work, each on a GPU of its own.",
    ] = 1,
    plots: Plots = None,
    full: Full = False,
    offline: Offline = False,
    **options: Unpack[AuditOptions],
) -> Audit:
    """Run a model on a dataset, and audit its vectors or logits under all tie orders.

    A bi-encoder searches all documents, or ranks those of --candidates; other models rerank. ρ is
    Spearman's, to the float32 ranking. Several models show where tie order or format changes which
    is ahead.

    $ rankproof audit model my-model --dataset my-dataset
    $ rankproof audit model my-reranker --dataset my-dataset --candidates bm25.trec

    >>> rp.audit_model("./my-model", "try/corpus")
    Traceback (most recent call last):
        ...
    rankproof.foundation.errors.InputError: './my-model': ...; this machine has ...
    """
    from rankproof.audit.model_audit import audit_model as audit_one_model
    from rankproof.foundation.model_hub import go_offline
    from rankproof.foundation.progress import progress

    go_offline(offline)
    shared = _shared_options(measures, options, plots)
    search = _chosen(k=k, metric=metric, candidates_factor=candidates_factor)
    search |= {"rescore": tuple(rescore)} if rescore else {}
    search |= {"dimensions": tuple(dimensions)} if dimensions else {}
    if run_dtypes is not None and formats is not None:
        raise _refusal("formats goes without run_dtypes: each run is scored in its own format")
    decimal_options = _decimal_options(decimals, margin)
    subjects = _subjects(
        _name_models(models),
        _name_models(datasets),
        qrels=qrels,
        candidates=candidates,
        qrels_format=options.get("qrels_format"),
        running=_chosen(batch=batch_size, max_tokens=max_tokens, device=device),
        prompts=_chosen(query_prompt=query_prompt, passage_prompt=passage_prompt),
    )
    _check_formats(subjects, formats, search)
    work = sum(_count_work(s, run_dtypes, formats, search, repeats) for s in subjects)
    with progress("auditing", work):
        audits = [
            audit_one_model(
                subject,
                run_dtypes=run_dtypes,
                formats=formats,
                paper_strict=paper_strict,
                repeats=repeats,
                shards=shards,
                vector_options=search,
                logit_options=decimal_options,
                options=shared,
            )
            for subject in subjects
        ]
    return _combine(audits, plots, full)


# ------------------------------------------------------------------------- settings of all audits


def _chosen(**settings: Any) -> dict[str, Any]:
    """The settings that are not None; the others keep the defaults of the core."""
    return {name: value for name, value in settings.items() if value is not None}


def _refusal(problem: str) -> Exception:
    from rankproof.foundation.errors import InputError

    return InputError(problem, remedy="name one of the two")


def _shared_options(
    measures: Any, options: Mapping[str, Any], plots: str | os.PathLike[str] | None
) -> dict[str, Any]:
    """Keywords of every audit of the core; what `plots` cannot draw is refused before any work."""
    from rankproof.audit.curves import check
    from rankproof.evaluation import Policy, parse_means
    from rankproof.foundation.errors import InputError

    policy = {name: options.get(name) for name in ("order", "missing")}
    candidates_only = bool(options.get("candidates_only"))
    Policy.of(**policy, candidates_only=candidates_only)  # type: ignore[arg-type]
    parsed = parse_means(measures)
    if plots is not None:
        check(Path(plots))
        if not any(measure.definition.takes_cutoff for measure in parsed):
            raise InputError(
                "no measure named takes a cutoff, so none has a curve", remedy="name nDCG@10, say"
            )
    curves = plots is not None
    return {"measures": parsed, **policy, "candidates_only": candidates_only, "curves": curves}


def _decimal_options(decimals: Iterable[int], margin: float | None) -> dict[str, Any]:
    from rankproof.foundation.errors import InputError

    counts = tuple(decimals)
    if margin is not None and not counts:
        raise InputError("margin goes with decimals", remedy="name 4 decimals, say")
    if not counts:
        return {}
    return {"decimals": counts, "margin": MARGIN if margin is None else margin}


def _name_each(value: Any, what: str, *, are_runs: bool = False) -> dict[str, Any]:
    """One input or several as {name: input}; files are named after themselves."""
    from rankproof.commands.inputs import is_path
    from rankproof.commands.recording import name_given_files

    is_one_run = are_runs and not _is_named_files(value)
    if isinstance(value, Mapping) and not is_one_run:
        return dict(value)
    is_several = isinstance(value, list | tuple) and bool(value)
    if is_several and all(map(is_path, value)):
        return name_given_files([os.fspath(path) for path in value])
    if is_several and all(hasattr(item, "shape") for item in value):
        return {f"{what} {number}": item for number, item in enumerate(value, 1)}
    return name_given_files([os.fspath(value)]) if is_path(value) else {what: value}


def _is_named_files(value: Any) -> bool:
    from rankproof.commands.inputs import are_named_paths

    return bool(value) and are_named_paths(value)


def _combine(audits: Sequence[Audit], plots: str | os.PathLike[str] | None, full: bool) -> Audit:
    """The audits as one, its curves drawn."""
    from rankproof.audit import Audit

    audit = Audit.together(audits)
    drawn = [] if plots is None else audit.draw(Path(plots))
    return replace(audit, shows_all=full, drawn=tuple(drawn))


# -------------------------------------------------------------------------------- vectors, logits


def _check_pairs(
    queries: Mapping[str, Any], documents: Mapping[str, Any], ids: Mapping[str, Any]
) -> None:
    """Refuse files that cannot be paired: each model has queries and documents."""
    from rankproof.foundation.errors import InputError
    from rankproof.foundation.phrasing import plural

    if len(queries) != len(documents):
        raise InputError(
            f"queries are named {plural(len(queries), 'time')} and documents {len(documents)}",
            remedy="name both for each model",
        )
    for what, files in ids.items():
        if isinstance(files, Mapping) and len(files) not in (1, len(documents)):
            raise InputError(
                f"{what} are named {plural(len(files), 'time')} for "
                f"{plural(len(documents), 'model')}",
                remedy="name them once, or once for each",
            )


def _read_vectors(source: Any, label: str) -> Vectors:
    from rankproof.audit.input_files import Vectors, read_vectors
    from rankproof.commands.inputs import is_path

    return read_vectors(os.fspath(source)) if is_path(source) else Vectors(source, None, label)


def _read_ids(ids: Any, at: int, vectors: Vectors) -> Any:
    """The ids of one model's rows: of files by name, of one file, or the ids themselves."""
    from rankproof.audit.input_files import read_ids
    from rankproof.commands.inputs import is_path

    if ids is None:
        return vectors.ids
    if isinstance(ids, Mapping):
        files = list(ids.values())
        ids = files[at if len(files) > 1 else 0]
    return read_ids(os.fspath(ids)) if is_path(ids) else ids


def _audit_scored(
    qrels: Any,
    sources: Mapping[str, Any],
    read: Callable[[Any, Run | None], Any],
    candidates: Any,
    formats: Sequence[str] | None,
    options: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> list[Audit]:
    """The audits of logits or scores, by the names of their models."""
    from rankproof.audit.logits import FORMATS, check_formats
    from rankproof.audit.logits import audit_logits as audit_table
    from rankproof.commands.inputs import read_judgments
    from rankproof.data import read_run
    from rankproof.foundation.progress import progress

    names = check_formats(FORMATS if formats is None else formats)
    judged = read_judgments(qrels, options.get("qrels_format"))
    scored = None if candidates is None else read_run(candidates)
    with progress("auditing", len(sources) * 2 * len(names)):
        return [
            audit_table(read(source, scored), judged, name=name, formats=names, **settings)
            for name, source in sources.items()
        ]


# ----------------------------------------------------------------------------------------- models


def _name_models(models: Any) -> dict[str, str]:
    """Models or datasets as {name: path}, of which NAME=path gives the name."""
    from rankproof.commands.inputs import is_path
    from rankproof.commands.recording import name_given_files

    if isinstance(models, Mapping):
        return {name: os.fspath(path) for name, path in models.items()}
    return name_given_files([os.fspath(m) for m in ([models] if is_path(models) else models)])


def _subjects(
    models: Mapping[str, str],
    datasets: Mapping[str, str],
    *,
    qrels: Any,
    candidates: Any,
    qrels_format: str | None,
    running: dict[str, Any],
    prompts: dict[str, str],
) -> list[AuditedModel]:
    """Every model on every dataset; all are looked at before the first is run."""
    from rankproof.audit.datasets import candidates_in, dataset_folder
    from rankproof.audit.model_audit import AuditedModel
    from rankproof.commands.inputs import is_path, name_runs, read_judgments
    from rankproof.data import read_run
    from rankproof.data.beir import read_corpus
    from rankproof.foundation.errors import InputError
    from rankproof.foundation.phrasing import plural

    if qrels is not None and len(datasets) > 1:
        raise InputError(
            f"{len(datasets)} datasets have judgments of their own", remedy="leave qrels out"
        )
    folders = [dataset_folder(path) for path in datasets.values()]
    own_qrels = os.fspath(qrels) if is_path(qrels) else None
    corpora: list[Corpus] = [read_corpus(folder, own_qrels) for folder in folders]
    listed = [candidates_in(folder) for folder in folders]
    runs = [] if candidates is None else list(name_runs(candidates).values())
    if not runs and all(listed):
        runs = listed
    if len(runs) not in (0, 1, len(datasets)):
        raise InputError(
            f"candidates are named {plural(len(runs), 'time')} for "
            f"{plural(len(datasets), 'dataset')}",
            remedy="name them once, or once for each",
        )
    tables = [read_run(run) for run in runs]
    judged = [
        read_judgments(corpus.qrels if qrels is None else qrels, qrels_format) for corpus in corpora
    ]
    return [
        AuditedModel(
            name,
            path,
            corpus,
            judged[at],
            candidates=tables[at if len(tables) > 1 else 0] if tables else None,
            dataset=dataset if len(datasets) > 1 else None,
            running=running,
            prompts=prompts,
        )
        for name, path in models.items()
        for at, (dataset, corpus) in enumerate(zip(datasets, corpora, strict=True))
    ]


def _check_formats(
    subjects: Sequence[AuditedModel], formats: Sequence[str] | None, search: Mapping[str, Any]
) -> None:
    """Refuse formats that do not apply, and settings of a search where nothing is searched."""
    from rankproof.audit import embeddings, logits
    from rankproof.foundation.errors import InputError

    kinds = {subject.find_kind() for subject in subjects}
    if "bi-encoder" in kinds:
        embeddings.check_formats(["float32"] if formats is None else formats)
        return
    logits.check_formats(["float32"] if formats is None else formats)
    if search:
        raise InputError(
            f"{next(iter(search))} applies to embeddings, not logits", remedy="leave it out"
        )


def _count_work(
    subject: AuditedModel,
    run_dtypes: Sequence[str] | None,
    formats: Sequence[str] | None,
    search: Mapping[str, Any],
    repeats: int,
) -> int:
    """How much there is to wait for: texts and pairs that the model reads, and settings."""
    from rankproof.audit.embeddings import list_pipelines
    from rankproof.precision import FORMATS

    rescorings = search.get("rescore", ("decoded", "original"))
    pipelines = list_pipelines(FORMATS if formats is None else formats, rescorings)
    runs = len({"float32", *(run_dtypes or ())}) * (1 + repeats)
    settings = len(pipelines) * (1 + len(search.get("dimensions", ())))
    return runs * subject.count_inputs() + (runs * 2 if run_dtypes else settings)
