"""`rankproof diagnose names|noise`: cheap tests of an embedder, with rules that must hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rankproof.cli import options, output
from rankproof.cli.options import Format
from rankproof.cli.progress import progress
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import claim_folder, write_atomically
from rankproof.foundation.manifest import manifest
from rankproof.foundation.redaction import remove_secrets
from rankproof.presentation.result import stored

if TYPE_CHECKING:
    from rankproof.diagnostics import JudgedCorpus, NamesDiagnosis, NoiseDiagnosis, Rule, Verdict
    from rankproof.diagnostics.rules import Kind
    from rankproof.diagnostics.settings import DiagnoseSettings
    from rankproof.retrieval.protocols import Embedder

app = typer.Typer(
    help="Test an embedder cheaply: what it makes of names, and of conversation.",
    no_args_is_help=True,
)


EmbedderOption = Annotated[
    str,
    typer.Option(
        metavar="NAME|CONFIG",
        help="wordllama, a sentence-transformers model or folder, or a YAML file.",
    ),
]
LanguageOption = Annotated[str, typer.Option(help="Language of the texts: en or fr.")]
SeedOption = Annotated[int, typer.Option(min=0, help="Seed of everything that is drawn.")]
CorpusOption = Annotated[
    str | None, typer.Option(metavar="DIR", help="Also search this judged BEIR folder.")
]
QrelsOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Its judgements, such as a golden set's qrels.txt.",
        show_default="qrels/test.tsv in the folder",
    ),
]
OutOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write all figures (JSON) and the plot there.")
]
RuleOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE",
        help="Exit with 1 if this holds, such as 'name drop > 30% under strip_diacritics' or "
        "'cosine drop > 40% at level 4'; may be repeated.",
    ),
]


@app.command("names")
def names(
    embedder: EmbedderOption = "wordllama",
    language: LanguageOption = "en",
    authors: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="CSV with the columns author and topic.",
            show_default="made-up names that ship with rankproof",
        ),
    ] = None,
    queries: Annotated[int, typer.Option(min=2, help="Authors asked about.")] = 100,
    runs: Annotated[int, typer.Option(min=1, help="Runs, each with other impostors.")] = 15,
    seed: SeedOption = 0,
    corpus: CorpusOption = None,
    qrels: QrelsOption = None,
    out: OutOption = None,
    fail_if: RuleOption = None,
    offline: options.OfflineOption = False,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Measure what a name is worth to an embedder, and which rewritings undo it.

    Δname is the cosine of “Which works by A on T?” to A's passage on T less that to the nearest
    impostor's. ΔΔ% is its change under an ablation, a mean over queries; ± is the deviation
    between runs. “confused” is the share of questions to which an impostor is as near.
    """
    from rankproof.cli.diagnose_tables import name_tables
    from rankproof.diagnostics import check_rules, diagnose_names, read_lists, shipped
    from rankproof.diagnostics.name_lists import check_language, check_lists

    settings = _settings(embedder)
    rules = _rules([*settings.fail_if.names, *(fail_if or [])], "names")
    check_language(language)
    lists = check_lists(shipped(language) if authors is None else read_lists(authors))
    judged = _judged(corpus, qrels)
    folder = _folder(out)
    made = _embedder(settings)
    with progress("diagnosing names", 1.0 if judged is None else 2.0) as told:
        diagnosis = diagnose_names(
            made,
            language=language,
            lists=lists,
            queries=queries,
            runs=runs,
            seed=seed,
            corpus=judged,
            progress=told,
        )
    inputs = {} if authors is None else {"authors": Path(authors)}
    inputs |= {} if judged is None else judged.files
    verdicts = check_rules(rules, diagnosis)
    _finish(diagnosis, verdicts, name_tables(diagnosis), settings, inputs, folder, form)


@app.command("noise")
def noise(
    embedder: EmbedderOption = "wordllama",
    language: LanguageOption = "en",
    queries: Annotated[int, typer.Option(min=2, help="Questions, at most.")] = 100,
    runs: Annotated[int, typer.Option(min=1, help="Runs, each with other words.")] = 5,
    seed: SeedOption = 0,
    corpus: CorpusOption = None,
    qrels: QrelsOption = None,
    out: OutOption = None,
    fail_if: RuleOption = None,
    offline: options.OfflineOption = False,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Measure what conversation around a question does to its vector, and what rewriting undoes.

    Levels: 1 greeting and thanks, 2 fillers and hedges, 3 personal context, 4 a digression, emoji,
    slips of the keyboard. Each keeps what the level below added.
    """
    from rankproof.cli.diagnose_tables import noise_tables
    from rankproof.diagnostics import check_rules, diagnose_noise
    from rankproof.diagnostics.name_lists import check_language
    from rankproof.retrieval.rewriters import make_rewriter
    from rankproof.retrieval.rewriters.rules import RulesRewriterSettings

    settings = _settings(embedder)
    rules = _rules([*settings.fail_if.noise, *(fail_if or [])], "noise")
    known = check_language(language)
    judged = _judged(corpus, qrels)
    folder = _folder(out)
    keeps: tuple[Literal["topics", "question"], ...] = ("topics", "question")
    rewriters = [make_rewriter(RulesRewriterSettings(language=known, keep=k)) for k in keeps]
    if settings.rewriter is not None:
        other = make_rewriter(settings.rewriter)
        rewriters += [other] if other.name not in [r.name for r in rewriters] else []
    made = _embedder(settings)
    with progress("diagnosing noise", 1.0) as told:
        diagnosis = diagnose_noise(
            made,
            language=known,
            corpus=judged,
            rewriters=rewriters,
            queries=queries,
            runs=runs,
            seed=seed,
            progress=told,
        )
    verdicts = check_rules(rules, diagnosis)
    inputs = {} if judged is None else judged.files
    _finish(diagnosis, verdicts, noise_tables(diagnosis), settings, inputs, folder, form)


def _settings(embedder: str) -> DiagnoseSettings:
    """A YAML file, a name we know, or a model of sentence-transformers."""
    from rankproof.diagnostics.settings import DiagnoseSettings
    from rankproof.foundation.config import read_config
    from rankproof.retrieval.embedders.sentence_transformers import SentenceTransformersSettings

    if Path(embedder).suffix.lower() in (".yaml", ".yml", ".json"):
        return read_config(embedder, DiagnoseSettings)
    if embedder == "wordllama":
        return DiagnoseSettings()
    if not embedder.strip():
        raise InputError("--embedder is empty", remedy="name wordllama, a model or a YAML file")
    return DiagnoseSettings(
        embedder=SentenceTransformersSettings(type="sentence-transformers", model=embedder)
    )


def _judged(corpus: str | None, qrels: str | None) -> JudgedCorpus | None:
    from rankproof.diagnostics.corpus import JudgedCorpus

    if corpus is None and qrels is not None:
        raise InputError("--qrels without --corpus", remedy="name the folder they judge")
    return None if corpus is None else JudgedCorpus.read(corpus, qrels)


def _embedder(settings: DiagnoseSettings) -> Embedder:
    from rankproof.retrieval.cache import Cache
    from rankproof.retrieval.components import uses_network
    from rankproof.retrieval.embedders import make_embedder

    # What was paid for once is kept.
    return make_embedder(settings.embedder, Cache() if uses_network(settings.embedder) else None)


def _rules(texts: list[str], kind: Kind) -> list[Rule]:
    from rankproof.diagnostics import parse_rule

    return [parse_rule(text, kind) for text in texts]


_ENDINGS = ("json", "html", "svg", "png")  # of what is written


def _folder(out: Path | None) -> Path | None:
    """Refuse, before any work, a place that cannot be written to."""
    ours = [f"{kind}.{ending}" for kind in ("names", "noise") for ending in _ENDINGS]
    return None if out is None else claim_folder(out, ours, "diagnose")


def _finish(
    diagnosis: NamesDiagnosis | NoiseDiagnosis,
    verdicts: list[Verdict],
    tables: Any,
    settings: DiagnoseSettings,
    inputs: dict[str, Path],
    folder: Path | None,
    form: Format,
) -> None:
    """Write, print, and exit with 1 where a rule is broken."""
    from rankproof.diagnostics import NamesDiagnosis

    kind = "names" if isinstance(diagnosis, NamesDiagnosis) else "noise"
    data = {
        "manifest": manifest(
            kind,
            config=settings.model_dump(mode="json"),
            inputs=inputs,
            seed=diagnosis.seed,
            packages=("numpy", "polars", "wordllama", "sentence-transformers", "torch"),
        ),
        **diagnosis.to_dict(),
        "rules": [verdict.to_dict() for verdict in verdicts],
    }
    written = [] if folder is None else _write(diagnosis, data, folder, kind)
    output.deliver(form, tables, data, remarks=["", "What this says", *diagnosis.words()])
    for path in written:
        output.warn(f"wrote {path}")
    for verdict in verdicts:
        output.warn(verdict.sentence)
    if any(verdict.failed for verdict in verdicts):
        raise typer.Exit(1)


def _write(
    diagnosis: NamesDiagnosis | NoiseDiagnosis, data: dict[str, Any], folder: Path, kind: str
) -> list[Path]:
    """Write the result as JSON, and its chart as SVG and HTML."""
    import json

    data = data | {"presentation": stored(diagnosis)}
    text = json.dumps(remove_secrets(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    written = [
        write_atomically(folder / f"{kind}.json", lambda path: path.write_text(text, "utf-8"))
    ]
    charts = diagnosis.plot()
    written += [charts.save(folder / f"{kind}.{ending}") for ending in ("html", "svg")]
    return written
