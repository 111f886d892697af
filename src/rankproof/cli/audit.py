"""`rankproof audit`: how far a number can be trusted at a precision."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankproof.cli import options
from rankproof.cli.options import Format, value

if TYPE_CHECKING:
    from collections.abc import Callable

    from rankproof.audit import Audit
    from rankproof.tables import Qrels


class Metric(StrEnum):
    dot = "dot"
    cosine = "cosine"


class Rescore(StrEnum):
    decoded = "decoded"
    original = "original"


def command(
    qrels: Annotated[
        str | None,
        typer.Argument(
            metavar="QRELS",
            help="Judgements; with --dataset its qrels/test.tsv where none are named.",
            show_default=False,
        ),
    ] = None,
    queries: Annotated[
        list[str] | None,
        typer.Option("--queries", metavar="FILE", help="Query vectors: .npy, or Parquet with ids."),
    ] = None,
    documents: Annotated[
        list[str] | None,
        typer.Option("--documents", metavar="FILE", help="Document vectors, likewise."),
    ] = None,
    query_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--query-ids", metavar="FILE", help="Ids of the rows of --queries, one per line."
        ),
    ] = None,
    document_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--document-ids", metavar="FILE", help="Ids of the rows of --documents, one per line."
        ),
    ] = None,
    logits: Annotated[
        list[str] | None,
        typer.Option(
            "--logits",
            metavar="FILE",
            help="A table with query, doc and logit, or logit_yes and logit_no.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="A sentence-transformers model or folder."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset", metavar="DIR", help="BEIR folder of texts that --model is to embed."
        ),
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            "--candidates", metavar="RUN", help="Each --model is a cross-encoder: rerank this run."
        ),
    ] = None,
    measure: options.MeasureOption = None,
    formats: Annotated[
        str | None,
        typer.Option(
            "--formats",
            metavar="F,F,...",
            help="Number formats, such as float32,bfloat16,int8,bit.",
            show_default="all that apply",
        ),
    ] = None,
    dimensions: Annotated[
        str | None,
        typer.Option(
            "--dimensions",
            metavar="D,D,...",
            help="Also audit the first D dimensions (Matryoshka embeddings).",
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", min=1, help="Length of the lists.", show_default="1000")
    ] = None,
    metric: Annotated[
        Metric | None,
        typer.Option(
            "--metric", help="How vectors are compared.", show_default="dot, or the model's own"
        ),
    ] = None,
    rescore: Annotated[
        Rescore | None,
        typer.Option(
            "--rescore", help="Rescore codes against these documents alone.", show_default="both"
        ),
    ] = None,
    candidates_factor: Annotated[
        int | None,
        typer.Option(
            "--candidates-factor",
            min=1,
            help="Rescore so many times k candidates of codes.",
            show_default="4",
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option("--plots", metavar="DIR", help="Draw measures over k into DIR (PNG and SVG)."),
    ] = None,
    order: options.OrderOption = None,
    missing: options.MissingOption = None,
    candidates_only: options.CandidatesOption = False,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
    out: options.OutOption = None,
    qrels_format: options.QrelsFormatOption = None,
    offline: options.OfflineOption = False,
) -> None:
    """Audit a precision: the same vectors or logits in every number format, under all tie orders.

    Each format is scored plainly and with high precision: the float32 sum of a floating-point
    format, codes rescored with the full query against decoded or original documents, logits ranked
    by (score, logit) in float32. ρ is Spearman's, to the float32 ranking. Name several models
    (NAME=path names one) to see where tie order or format changes which is ahead.
    """
    from rankproof.audit import Audit
    from rankproof.audit.curves import check, write
    from rankproof.cli import inputs, output
    from rankproof.cli.audit_tables import Tables
    from rankproof.cli.progress import progress
    from rankproof.errors import InputError
    from rankproof.evaluation import Policy, parse_all

    Policy.of(value(order), value(missing), candidates_only)
    measures = parse_all(measure or options.DEFAULT_MEASURES)
    if plots is not None:
        check(plots)
        if not any(m.definition.takes_cutoff for m in measures):
            raise InputError(
                "no measure named takes a cutoff, so none has a curve", remedy="name nDCG@10, say"
            )
    jobs = _Jobs(
        embeddings=_paired(queries or [], documents or [], query_ids or [], document_ids or []),
        logits=[_named(text) for text in logits or []],
        models=[_named(text) for text in model or []],
        dataset=dataset,
        candidates=candidates,
        formats=_words(formats),
        searching={
            "dimensions": _numbers(dimensions),
            "k": k,
            "metric": value(metric),
            "rescore": None if rescore is None else (rescore.value,),
            "candidates_factor": candidates_factor,
        },
        shared={
            "measures": measures,
            "order": value(order),
            "missing": value(missing),
            "candidates_only": candidates_only,
            "curves": plots is not None,
        },
    )
    jobs.check(qrels)
    texts = jobs.texts(qrels)
    files = {"qrels": qrels or str(texts.qrels)}
    for what, named in (("queries", queries), ("documents", documents), ("logits", logits)):
        files |= {f"{what} {at}": _named(text)[1] for at, text in enumerate(named or [], 1)}
    for what, named in (("query ids", query_ids), ("document ids", document_ids)):
        files |= {f"{what} {at}": path for at, path in enumerate(named or [], 1)}
    files |= {} if texts is None else {name: str(path) for name, path in texts.files.items()}
    files |= {} if candidates is None else {"candidates": candidates}
    output.check_outputs(files.values(), out)
    judged = inputs.load_qrels(qrels or str(texts.qrels), qrels_format)
    with progress("auditing", jobs.settings()) as told:
        audits = list(jobs.run(judged, texts, told))
    audit = Audit.together(audits)
    drawn = write(audit, plots) if plots is not None else []
    tables = Tables(audit, people=form is Format.table).all()
    asked = {"measures": [str(m) for m in measures], "formats": _words(formats)}
    made = output.Made("audit", files, asked)
    words = ["", "What survives", *audit.words()]
    output.deliver(form, tables, audit.to_dict(), made, out, words)
    if form is not Format.table:
        for note in audit.notes:
            output.warn(note)
    for path in drawn:
        output.warn(f"wrote {path}")


class _Jobs:
    """The models named on the command line, each to be audited."""

    def __init__(
        self,
        embeddings: list[tuple[str, tuple[str, str], tuple[str | None, str | None]]],
        logits: list[tuple[str | None, str]],
        models: list[tuple[str | None, str]],
        dataset: str | None,
        candidates: str | None,
        formats: list[str] | None,
        searching: dict[str, Any],
        shared: dict[str, Any],
    ):
        self.embeddings = embeddings
        self.logits = [(name, path) for (_, path), name in zip(logits, _names(logits), strict=True)]
        self.models = [(name, path) for (_, path), name in zip(models, _names(models), strict=True)]
        self.dataset = dataset
        self.candidates = candidates
        self.formats = formats
        self.searching = {key: given for key, given in searching.items() if given is not None}
        self.shared = shared

    @property
    def searches(self) -> int:
        """Models that are audited as embeddings."""
        return len(self.embeddings) + (len(self.models) if self.candidates is None else 0)

    def check(self, qrels: str | None) -> None:
        """Refuse what does not go together, before any work."""
        from rankproof.audit.embeddings import settings
        from rankproof.audit.logits import FORMATS
        from rankproof.errors import InputError

        if not (self.embeddings or self.logits or self.models):
            raise InputError(
                "there is nothing to audit",
                remedy="name --queries and --documents, --logits, or --model and --dataset",
            )
        if self.models and self.dataset is None:
            raise InputError("--model has no texts", remedy="name a BEIR folder with --dataset")
        if not self.models and (self.dataset or self.candidates):
            given = "--dataset" if self.dataset else "--candidates"
            raise InputError(f"{given} goes with --model", remedy="name a model, or leave it out")
        if qrels is None and self.dataset is None:
            raise InputError("no judgements are named", remedy="write: rankproof audit QRELS …")
        if not self.searches and self.searching:
            option = next(iter(self.searching)).replace("_", "-")
            raise InputError(f"--{option} applies to embeddings, not logits", remedy="leave it out")
        if self.searches:
            settings(self.formats or ["float32"], (), 0)
        elif self.formats is not None:
            wrong = next((form for form in self.formats if form not in FORMATS), None)
            if wrong is not None:
                raise InputError(
                    f"format {wrong!r} is none that logits are audited in",
                    remedy=f"use {', '.join(FORMATS)}",
                )

    def texts(self, qrels: str | None) -> Any:
        from rankproof.records.beir import read_corpus

        return None if self.dataset is None else read_corpus(self.dataset, qrels)

    def settings(self) -> int:
        """How many there are to wait for."""
        from rankproof.audit.embeddings import settings
        from rankproof.scoring import FORMATS

        rescore = self.searching.get("rescore", ("decoded", "original"))
        cuts = len(self.searching.get("dimensions", ()))
        searched = self.searches * settings(self.formats or FORMATS, rescore, cuts)
        others = len(self.logits) + len(self.models) + len(self.embeddings) - self.searches
        return searched + others * 2 * len(self._logit_formats())

    def _logit_formats(self) -> list[str]:
        """The formats that apply to logits, where others are meant for embeddings."""
        from rankproof.audit.logits import FORMATS

        return [form for form in self.formats or FORMATS if form in FORMATS]

    def run(self, judged: Qrels, texts: Any, told: Callable[[float], None]) -> Any:
        from rankproof.audit import audit_logits
        from rankproof.audit.models import rerank
        from rankproof.audit.sources import read_ids, read_logits, read_vectors
        from rankproof.records import read_run

        for name, files, id_files in self.embeddings:
            pair = [read_vectors(path) for path in files]
            ids = [
                read_ids(path) if path is not None else vectors.ids
                for path, vectors in zip(id_files, pair, strict=True)
            ]
            labels = tuple(vectors.label for vectors in pair)
            yield self._search(name, pair[0].values, pair[1].values, ids, judged, told, labels)
        for name, path in self.logits:
            yield self._logits(audit_logits, name, read_logits(path), judged, told)
        for name, path in self.models:
            if self.candidates is not None:
                found = rerank(path, texts, read_run(self.candidates), judged)
                yield self._logits(audit_logits, name, found, judged, told)
            else:
                yield self._embed(name, path, texts, judged, told)

    def _logits(self, audit: Any, name: str, found: Any, judged: Qrels, told: Any) -> Audit:
        made: Audit = audit(
            found, judged, name=name, formats=self._logit_formats(), progress=told, **self.shared
        )
        return made

    def _search(
        self,
        name: str,
        queries: Any,
        documents: Any,
        ids: Any,
        judged: Qrels,
        told: Any,
        labels: Any = ("queries", "documents"),
        **own: Any,
    ) -> Audit:
        from rankproof.audit import audit_embeddings

        formats = {} if self.formats is None else {"formats": self.formats}
        return audit_embeddings(
            *(queries, documents, judged),
            query_ids=ids[0],
            document_ids=ids[1],
            name=name,
            labels=labels,
            progress=told,
            **(own | self.searching | formats | self.shared),
        )

    def _embed(self, name: str, path: str, texts: Any, judged: Qrels, told: Any) -> Audit:
        from rankproof.audit.models import embed

        wanted = set(judged.queries)
        asked = [
            (query, text)
            for query, text in zip(texts.query_ids, texts.queries, strict=True)
            if query in wanted
        ]
        queries, documents, metric = embed(path, texts, [text for _, text in asked])
        ids = ([query for query, _ in asked], texts.document_ids)
        return self._search(name, queries, documents, ids, judged, told, metric=metric)


def _named(text: str) -> tuple[str | None, str]:
    """`NAME=path` → both; a path that exists is one, whatever it contains."""
    name, equals, path = text.partition("=")
    if equals and name and not Path(text).exists() and "/" not in name:
        return name, path
    return None, text


def _names(given: list[tuple[str | None, str]]) -> list[str]:
    """Stems, or whole paths where stems are not enough to tell them apart."""
    stems = [Path(path).stem if Path(path).suffix else Path(path).name for _, path in given]
    unclear = len(set(stems)) < len(stems)
    return [
        name if name is not None else path if unclear else stem
        for (name, path), stem in zip(given, stems, strict=True)
    ]


def _paired(
    queries: list[str], documents: list[str], query_ids: list[str], document_ids: list[str]
) -> list[tuple[str, tuple[str, str], tuple[str | None, str | None]]]:
    """(name, files, files of ids) of each model; ids given once serve all."""
    from rankproof.errors import InputError

    if len(queries) != len(documents):
        raise InputError(
            f"--queries is named {len(queries)} times and --documents {len(documents)}",
            remedy="name both for each model",
        )

    def spread(files: list[str], option: str) -> list[str | None]:
        if len(files) not in (0, 1, len(documents)) or (files and not documents):
            raise InputError(
                f"{option} is named {len(files)} times for {len(documents)} models",
                remedy="name it once, or once for each",
            )
        if len(files) == len(documents):
            return list(files)
        return [files[0] if files else None] * len(documents)

    ids = zip(spread(query_ids, "--query-ids"), spread(document_ids, "--document-ids"), strict=True)
    asked, held = [_named(text) for text in queries], [_named(text) for text in documents]
    given = [(d[0] or q[0], d[1]) for q, d in zip(asked, held, strict=True)]
    files = [(q[1], d[1]) for q, d in zip(asked, held, strict=True)]
    return list(zip(_names(given), files, ids, strict=True))


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str | None) -> list[int] | None:
    from rankproof.errors import InputError

    if text is None:
        return None
    for part in text.split(","):
        if not (part.strip().isascii() and part.strip().isdigit()) or int(part) < 1:
            raise InputError(
                f"--dimensions {text}: {part.strip()!r} is not a whole number from 1",
                remedy="write --dimensions 256,128",
            )
    return [int(part) for part in text.split(",")]
