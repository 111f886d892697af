"""`rankproof audit`: how far a number can be trusted at a precision."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rankproof.cli import inputs, options, output
from rankproof.cli.options import Format
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.foundation.printable import printable_path
from rankproof.foundation.progress import progress
from rankproof.presentation.json_values import plain_fields

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rankproof.audit import Audit
    from rankproof.audit.model_audit import AuditedModel
    from rankproof.data.tables import Qrels
    from rankproof.evaluation.recorded_inputs import RecordedInputs


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
        typer.Option(
            metavar="FILE",
            help="Query vectors: .npy, .npz, safetensors, .pt, a FAISS or usearch index, or "
            "Parquet and JSON lines with ids.",
        ),
    ] = None,
    documents: Annotated[
        list[str] | None, typer.Option(metavar="FILE", help="Document vectors, likewise.")
    ] = None,
    query_ids: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Ids of the rows of --queries, one per line."),
    ] = None,
    document_ids: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Ids of the rows of --documents, one per line."),
    ] = None,
    stored: Annotated[
        Literal["int8", "bits"] | None,
        typer.Option(
            help="What integer vectors are: numbers or calibrated codes of 8 bits, or packed bits."
        ),
    ] = None,
    ranges: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Ranges of calibrated int8 or uint8: .npy of (2, dimensions), least and largest.",
        ),
    ] = None,
    logits: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="A table with query, doc and logit, or logit_yes and logit_no; or an array whose "
            "rows are those of --candidates.",
        ),
    ] = None,
    scores: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Scores that a server gave: a run, or the answers of Cohere, Voyage, Jina, TEI, "
            "vLLM or Infinity as JSON.",
        ),
    ] = None,
    decimals: Annotated[
        str | None,
        typer.Option(
            metavar="D,D,...",
            help="Also round scores to D decimals, and find the fewest that --margin allows.",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="The range that --decimals may leave.", show_default="0.001"),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            *("--model", "--models"),
            metavar="NAME,NAME,...",
            help="Models to run: bi-encoders, cross-encoders, yes/no language models, late "
            "interaction; maxsim:NAME for that over a bi-encoder's tokens.",
        ),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            *("--dataset", "--datasets"),
            metavar="DIR,DIR,...",
            help="Texts that models are run on: BEIR folders, mteb:TASK, irds:NAME.",
        ),
    ] = None,
    candidates: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RUN",
            help="Rerank this run instead of searching; one for each dataset, or one for all. "
            "For arrays of logits and answers of servers: what was scored.",
        ),
    ] = None,
    run_dtypes: Annotated[
        str | None,
        typer.Option(
            metavar="F,F,...",
            help="Run each model in these formats, and compare with its float32 run.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Texts a model reads at a time.", show_default="32")
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1, help="Tokens of a text or pair, at most.", show_default="the model's own"
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Where models run: cpu, cuda, cuda:1, mps.",
            show_default="a GPU where there is one",
        ),
    ] = None,
    query_prompt: Annotated[
        str | None,
        typer.Option(help="Put before every question, for bi-encoders.", show_default="its own"),
    ] = None,
    passage_prompt: Annotated[
        str | None, typer.Option(help="Put before every passage.", show_default="its own")
    ] = None,
    repeats: Annotated[
        int,
        typer.Option(
            min=0,
            help="Run each model this many more times, in other batches: noise beside the ties.",
        ),
    ] = 0,
    shards: Annotated[
        int,
        typer.Option(min=1, help="Processes that share a model's work, each on a GPU of its own."),
    ] = 1,
    paper_strict: Annotated[
        bool,
        typer.Option(
            "--paper-strict",
            help="Rank logits by their float32 score alone, as the paper does, ties and all.",
        ),
    ] = False,
    measure: options.MeasureOption = None,
    formats: Annotated[
        str | None,
        typer.Option(
            metavar="F,F,...",
            help="Number formats, such as float32,bfloat16,int8,bit.",
            show_default="all that apply",
        ),
    ] = None,
    dimensions: Annotated[
        str | None,
        typer.Option(
            metavar="D,D,...", help="Also audit the first D dimensions (Matryoshka embeddings)."
        ),
    ] = None,
    k: Annotated[
        int | None, typer.Option(min=1, help="Length of the lists.", show_default="1000")
    ] = None,
    metric: Annotated[
        Literal["dot", "cosine"] | None,
        typer.Option(help="How vectors are compared.", show_default="dot, or the model's own"),
    ] = None,
    rescore: Annotated[
        Literal["decoded", "original"] | None,
        typer.Option(help="Rescore codes against these documents alone.", show_default="both"),
    ] = None,
    candidates_factor: Annotated[
        int | None,
        typer.Option(
            min=1, help="Rescore this many times k candidates of codes.", show_default="4"
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Draw measures over k into DIR (SVG)."),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Print every figure of every setting, and what each means."),
    ] = False,
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
    from rankproof.audit.tables import AuditTables, setting_table
    from rankproof.evaluation import Policy, parse_means
    from rankproof.evaluation.recorded_inputs import RecordedInputs

    Policy.of(order, missing, candidates_only)
    measures = parse_means(measure or options.DEFAULT_MEASURES)
    if plots is not None:
        check(plots)
        if not any(m.definition.takes_cutoff for m in measures):
            raise InputError(
                "no measure named takes a cutoff, so none has a curve", remedy="name nDCG@10, say"
            )
    jobs = _Jobs(
        embeddings=_paired(queries or [], documents or [], query_ids or [], document_ids or []),
        logits=_titled(logits or []),
        scores=_titled(scores or []),
        decimals=_given(decimals=_numbers(decimals, "--decimals", "4", 0), margin=margin),
        models=_titled(_several(model)),
        datasets=_titled(_several(dataset)),
        candidates=_several(candidates),
        run_dtypes=_words(run_dtypes),
        running=_given(batch=batch_size, max_tokens=max_tokens, device=device),
        prompts=_given(query_prompt=query_prompt, passage_prompt=passage_prompt),
        repeats=repeats,
        shards=shards,
        paper_strict=paper_strict,
        formats=_words(formats),
        stored=stored,
        ranges=ranges,
        searching=_given(
            dimensions=_numbers(dimensions, "--dimensions", "256,128", 1),
            k=k,
            metric=metric,
            rescore=None if rescore is None else (rescore,),
            candidates_factor=candidates_factor,
        ),
        shared={
            "measures": measures,
            "order": order,
            "missing": missing,
            "candidates_only": candidates_only,
            "curves": plots is not None,
        },
    )
    jobs.check(qrels)
    texts = jobs.texts(qrels)
    named = [qrels] if qrels is not None else [str(found.qrels) for found in texts]
    files = {"qrels" if at == 1 else f"qrels {at}": path for at, path in enumerate(named, 1)}
    arrays = (("queries", queries), ("documents", documents), ("logits", logits))
    for what, given in (*arrays, ("scores", scores)):
        files |= {f"{what} {at}": _named(text)[1] for at, text in enumerate(given or [], 1)}
    for what, given in (("query ids", query_ids), ("document ids", document_ids)):
        files |= {f"{what} {at}": path for at, path in enumerate(given or [], 1)}
    for at, found in enumerate(texts, 1):
        after = "" if at == 1 else f" {at}"
        files |= {f"{name}{after}": str(path) for name, path in found.files.items()}
    files |= {} if ranges is None else {"ranges": ranges}
    files |= {
        "candidates" if at == 1 else f"candidates {at}": path
        for at, path in enumerate(jobs.candidates, 1)
    }
    output.check_outputs(files.values(), out)
    judged = [inputs.load_qrels(path, qrels_format) for path in named]
    subjects, asked = jobs.subjects(judged, texts), jobs.asked(qrels_format)
    with progress("auditing", jobs.work(subjects)):
        audits = list(jobs.run(RecordedInputs(asked, files, judged=judged[0]), subjects))
    audit = Audit.together(audits)
    drawn = write(audit, plots) if plots is not None else []
    for_people = form is Format.table
    tables = (
        AuditTables(audit, for_people).all() if full or not for_people else [setting_table(audit)]
    )
    made = output.Made("audit", files, asked)
    survives = ["", "What survives", *audit.words()] if full else []
    first = audit.verdict() if form is Format.table else []
    charts = audit.charts()
    output.deliver(form, tables, audit.to_dict(), made, out, survives, first=first, charts=charts)
    if form is not Format.table:
        for note in audit.notes:
            output.warn(note)
    for path in drawn:
        output.warn(f"wrote {path}")


@dataclass(slots=True)
class _Jobs:
    """The models named on the command line, each to be audited."""

    embeddings: list[tuple[str, str]]  # name, path
    logits: list[tuple[str, str]]
    scores: list[tuple[str, str]]
    models: list[tuple[str, str]]
    datasets: list[tuple[str, str]]
    candidates: list[str]
    decimals: dict[str, Any]  # of these, what was said: decimals, margin
    running: dict[str, Any]  # batch, max_tokens, device
    prompts: dict[str, Any]  # query_prompt, passage_prompt
    searching: dict[str, Any]  # dimensions, k, metric, rescore, candidates_factor
    shared: dict[str, Any]  # what every audit takes
    formats: list[str] | None
    run_dtypes: list[str] | None
    repeats: int
    shards: int
    paper_strict: bool
    stored: Literal["int8", "bits"] | None
    ranges: str | None

    def check(self, qrels: str | None) -> None:
        """Refuse what does not go together, before any work."""
        from rankproof.audit.embeddings import check_formats
        from rankproof.audit.logits import FORMATS

        if not (self.embeddings or self.logits or self.scores or self.models):
            raise InputError(
                "there is nothing to audit",
                remedy="name --queries and --documents, --logits, --scores, or --model and "
                "--dataset",
            )
        if self.models and not self.datasets:
            raise InputError("--model has no texts", remedy="name a BEIR folder with --dataset")
        with_models = {
            "--dataset": self.datasets,
            "--candidates": self.candidates if not (self.logits or self.scores) else None,
            "--run-dtypes": self.run_dtypes,
            "--query-prompt": "query_prompt" in self.prompts,
            "--passage-prompt": "passage_prompt" in self.prompts,
            "--repeats": self.repeats,
            "--shards": self.shards > 1,
            "--batch-size": self.running.get("batch"),
            "--max-tokens": self.running.get("max_tokens"),
            "--device": self.running.get("device"),
        }
        for option, given in with_models.items():
            if given and not self.models:
                raise InputError(
                    f"{option} goes with --model", remedy="name a model, or leave it out"
                )
        for option, given in {"--stored": self.stored, "--ranges": self.ranges}.items():
            if given and not self.embeddings:
                raise InputError(
                    f"{option} goes with --queries and --documents", remedy="leave it out"
                )
        if self.decimals and (self.embeddings or not (self.logits or self.scores or self.models)):
            raise InputError(
                "--decimals and --margin apply to logits and scores, not embeddings",
                remedy="leave them out",
            )
        if "margin" in self.decimals and "decimals" not in self.decimals:
            raise InputError("--margin goes with --decimals", remedy="write --decimals 4, say")
        if qrels is None and not self.datasets:
            raise InputError("no judgements are named", remedy="write: rankproof audit QRELS …")
        if len(self.datasets) > 1 and (
            qrels is not None or self.embeddings or self.logits or self.scores
        ):
            raise InputError(
                f"{len(self.datasets)} datasets have judgements of their own",
                remedy="name models alone, and no QRELS",
            )
        if len(self.candidates) not in (0, 1, len(self.datasets)):
            raise InputError(
                f"--candidates is named {plural(len(self.candidates), 'time')} for "
                f"{plural(len(self.datasets), 'dataset')}",
                remedy="name it once, or once for each",
            )
        if self.run_dtypes is not None:
            if self.formats is not None:
                raise InputError(
                    "--formats goes without --run-dtypes: each run is scored in its own format",
                    remedy="name one of the two",
                )
            _known(self.run_dtypes, FORMATS, "a model is run in")
        if self.embeddings or self.models:
            check_formats(self.formats or ["float32"])
        else:
            self._check_logits()

    def _check_logits(self) -> None:
        """Refuse what goes with vectors, where there are none."""
        from rankproof.audit.logits import FORMATS

        if self.searching:
            option = next(iter(self.searching)).replace("_", "-")
            raise InputError(f"--{option} applies to embeddings, not logits", remedy="leave it out")
        _known(self.formats or [], FORMATS, "logits are audited in")

    def asked(self, qrels_format: Any) -> dict[str, Any]:
        """The settings, as the manifest holds them."""
        shared = self.shared | {"measures": [str(m) for m in self.shared["measures"]]}
        return {
            **shared,
            **{
                what: [name for name, *_ in getattr(self, what)]
                for what in ("embeddings", "logits", "scores", "models")
            },
            **self.decimals,
            **plain_fields(self, "formats", "stored", "paper_strict", "searching", "run_dtypes"),
            **plain_fields(self, "running", "prompts", "repeats"),
            "qrels_format": qrels_format,
        }

    def texts(self, qrels: str | None) -> list[Any]:
        from rankproof.audit.datasets import candidates_in, folder_of
        from rankproof.data.beir import read_corpus

        folders = [folder_of(path) for _, path in self.datasets]
        found = [read_corpus(folder, qrels) for folder in folders]
        own = [candidates_in(folder) for folder in folders]
        if not self.candidates and all(own):
            self.candidates = [path for path in own if path is not None]
        return found

    def subjects(self, judged: list[Qrels], texts: list[Any]) -> list[AuditedModel]:
        """Every model on every dataset; all are looked at before the first is run."""
        if not self.models:
            return []
        from rankproof.audit.model_audit import AuditedModel
        from rankproof.data import read_run

        runs = [read_run(path) for path in self.candidates]
        found = [
            AuditedModel(
                *(name, path, read, judged[at]),
                candidates=runs[at if len(runs) > 1 else 0] if runs else None,
                dataset=dataset if len(self.datasets) > 1 else None,
                running=self.running,
                prompts=self.prompts,
            )
            for name, path in self.models
            for at, ((dataset, _), read) in enumerate(zip(self.datasets, texts, strict=True))
        ]
        if "bi-encoder" not in {one.find_kind() for one in found} and not self.embeddings:
            self._check_logits()
        return found

    def work(self, subjects: list[AuditedModel]) -> int:
        """How much there is to wait for: settings, and texts and pairs that models read."""
        from rankproof.audit.embeddings import list_pipelines
        from rankproof.precision import FORMATS

        rescore = self.searching.get("rescore", ("decoded", "original"))
        cuts = len(self.searching.get("dimensions", ()))
        searched = (1 + cuts) * len(list_pipelines(self.formats or FORMATS, rescore))
        runs = len(set(self.run_dtypes or ()) | {"float32"}) * (1 + self.repeats)
        scored = runs * 2 if self.run_dtypes else searched
        return (
            len(self.embeddings) * searched
            + (len(self.logits) + len(self.scores)) * 2 * len(self._logit_formats())
            + sum(runs * subject.count_inputs() + scored for subject in subjects)
        )

    def _logit_formats(self) -> list[str]:
        """The formats that apply to logits, where others are meant for embeddings."""
        from rankproof.audit.logits import FORMATS

        return [form for form in self.formats or FORMATS if form in FORMATS]

    def run(self, given: RecordedInputs, subjects: list[AuditedModel]) -> Iterator[Audit]:
        from rankproof.audit.files import audit_files
        from rankproof.audit.model_audit import audit_model

        yield from audit_files(given)
        for subject in subjects:
            yield audit_model(
                subject,
                run_dtypes=self.run_dtypes,
                formats=self.formats,
                paper_strict=self.paper_strict,
                repeats=self.repeats,
                shards=self.shards,
                vector_options=self.searching,
                logit_options=self.decimals,
                options=self.shared,
            )


def _given(**options: Any) -> dict[str, Any]:
    """Those that were."""
    return {name: value for name, value in options.items() if value is not None}


def _named(text: str) -> tuple[str | None, str]:
    """`NAME=path` → both; a path that exists is one, whatever it contains."""
    name, equals, path = text.partition("=")
    if equals and name and not Path(text).exists() and "/" not in name:
        return name, path
    return None, text


def _titled(given: list[str]) -> list[tuple[str, str]]:
    """(name, path) of each."""
    return _with_names([_named(text) for text in given])


def _with_names(given: list[tuple[str | None, str]]) -> list[tuple[str, str]]:
    """Stems, or whole paths where stems are not enough to tell them apart."""
    stems = [Path(path).stem if Path(path).suffix else Path(path).name for _, path in given]
    unclear = len(set(stems)) < len(stems)
    return [
        (name if name is not None else printable_path(path if unclear else stem), path)
        for (name, path), stem in zip(given, stems, strict=True)
    ]


def _paired(
    queries: list[str], documents: list[str], query_ids: list[str], document_ids: list[str]
) -> list[tuple[str, str]]:
    """(name, documents) of each model; ids given once serve all."""
    if len(queries) != len(documents):
        raise InputError(
            f"--queries is named {plural(len(queries), 'time')} and --documents {len(documents)}",
            remedy="name both for each model",
        )
    for option, files in (("--query-ids", query_ids), ("--document-ids", document_ids)):
        if len(files) not in (0, 1, len(documents)) or (files and not documents):
            raise InputError(
                f"{option} is named {plural(len(files), 'time')} for "
                f"{plural(len(documents), 'model')}",
                remedy="name it once, or once for each",
            )
    pairs = [(_named(q)[0], *_named(d)) for q, d in zip(queries, documents, strict=True)]
    return _with_names([(own or other, path) for other, own, path in pairs])


def _several(given: list[str] | None) -> list[str]:
    """Options named once each or with commas between; a path that exists is one, whatever it
    contains."""
    found: list[str] = []
    for text in given or []:
        one = Path(_named(text)[1]).exists()
        found += [text] if one else [part.strip() for part in text.split(",") if part.strip()]
    return found


def _known(given: list[str], known: tuple[str, ...], what: str) -> None:
    wrong = next((form for form in given if form not in known), None)
    if wrong is not None:
        raise InputError(
            f"format {wrong!r} is not one that {what}", remedy=f"use {', '.join(known)}"
        )


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _numbers(text: str | None, option: str, example: str, least: int) -> list[int] | None:
    return None if text is None else inputs.whole_numbers(text, option, example, least)
