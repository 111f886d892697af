"""`diagnose names` and `diagnose noise`: cheap tests of an embedder, with rules that must hold.

>>> rp.diagnose.names(queries=4, runs=1).diagnosis.rows[0].ablation
'base'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rankproof.commands.options import EMBEDDING, Offline
from rankproof.commands.registry import Option, Source, command

if TYPE_CHECKING:
    from pathlib import Path

    from rankproof.diagnostics.checked import CheckedDiagnosis
    from rankproof.diagnostics.corpus import JudgedCorpus
    from rankproof.diagnostics.settings import DiagnoseSettings
    from rankproof.retrieval.protocols import Embedder as EmbedderLike

Embedder = Annotated[
    str,
    Option(metavar="NAME|CONFIG"),
    "wordllama, a sentence-transformers model or folder, or a YAML file.",
]
Language = Annotated[str, "Language of the texts: en or fr."]
Seed = Annotated[int, Option(minimum=0), "Seed of everything that is drawn."]
JudgedFolder = Annotated[Any, Source("DIR", "corpus"), "Also search this judged BEIR folder."]
Judgments = Annotated[
    Any,
    Source("FILE", "qrels"),
    "Its judgments, such as a golden set's qrels.txt. [qrels/test.tsv in the folder]",
]
OutFolder = Annotated[
    "str | os.PathLike[str] | None",
    Option(metavar="DIR", recorded=False),
    "Write all values (JSON) and the chart there.",
]
Rules = Annotated[
    Sequence[str],
    Option(metavar="RULE,..."),
    "Exit with 1 if this holds, such as 'name drop > 30% under strip_diacritics' or 'cosine drop > "
    "40% at level 4'; may be repeated.",
]
_RUN = "an embedder was run"
_ENDINGS = ("json", "html", "svg", "png")  # of files that a diagnosis wrote


@command(name="diagnose names", group="RAG", needs=EMBEDDING, replay=_RUN)
def names(
    *,
    embedder: Embedder = "wordllama",
    language: Language = "en",
    authors: Annotated[
        Any,
        Source("FILE", "authors"),
        "CSV with the columns author and topic. [made-up names that ship with rankproof]",
    ] = None,
    queries: Annotated[int, Option(minimum=2), "Authors asked about."] = 100,
    runs: Annotated[int, Option(minimum=1), "Runs, each with other impostors."] = 15,
    seed: Seed = 0,
    corpus: JudgedFolder = None,
    qrels: Judgments = None,
    out: OutFolder = None,
    fail_if: Rules = (),
    offline: Offline = False,
) -> CheckedDiagnosis:
    """Measure what a name is worth to an embedder, and which rewritings undo it.

    Δname is the cosine of “Which works by A on T?” to A's passage on T less that to the nearest
    impostor's. ΔΔ% is its change under an ablation, a mean over queries; ± is the deviation between
    runs. “confused” is the share of questions to which an impostor is as near.

    $ rankproof diagnose names --embedder intfloat/multilingual-e5-small --language fr

    >>> rp.diagnose.names(queries=4, runs=1).diagnosis.rows[0].ablation
    'base'
    """
    from rankproof.diagnostics import diagnose_names, parse_rule, read_lists, shipped_lists
    from rankproof.diagnostics.checked import CheckedDiagnosis
    from rankproof.diagnostics.name_lists import check_language, check_lists
    from rankproof.foundation.model_hub import go_offline

    go_offline(offline)
    settings = _read_settings(embedder)
    rules = [parse_rule(text, "names") for text in (*settings.fail_if.names, *fail_if)]
    known = check_language(language)
    lists = check_lists(shipped_lists(known) if authors is None else read_lists(authors))
    judged = _read_corpus(corpus, qrels)
    folder = _claim(out)
    diagnosis = diagnose_names(
        _make_embedder(settings),
        language=known,
        lists=lists,
        queries=queries,
        runs=runs,
        seed=seed,
        corpus=judged,
    )
    inputs = {} if authors is None else {"authors": authors}
    inputs |= {} if judged is None else judged.files
    return CheckedDiagnosis.of(diagnosis, rules, settings, inputs, folder)


@command(name="diagnose noise", group="RAG", needs=EMBEDDING, replay=_RUN)
def noise(
    *,
    embedder: Embedder = "wordllama",
    language: Language = "en",
    queries: Annotated[int, Option(minimum=2), "Questions, at most."] = 100,
    runs: Annotated[int, Option(minimum=1), "Runs, each with other words."] = 5,
    seed: Seed = 0,
    corpus: JudgedFolder = None,
    qrels: Judgments = None,
    out: OutFolder = None,
    fail_if: Rules = (),
    offline: Offline = False,
) -> CheckedDiagnosis:
    """Measure what conversation around a question does to its vector, and what rewriting undoes.

    Levels: 1 greeting and thanks, 2 fillers and hedges, 3 personal context, 4 a digression, emoji,
    slips of the keyboard. Each keeps what the level below added.

    $ rankproof diagnose noise --corpus scifact --fail-if 'cosine drop > 40% at level 4'

    >>> len(rp.diagnose.noise(queries=4, runs=1).diagnosis.rewriters)
    2
    """
    from rankproof.diagnostics import diagnose_noise, parse_rule
    from rankproof.diagnostics.checked import CheckedDiagnosis
    from rankproof.diagnostics.name_lists import check_language
    from rankproof.foundation.model_hub import go_offline
    from rankproof.retrieval.rewriters import make_rewriter
    from rankproof.retrieval.rewriters.rules import RulesRewriterSettings

    go_offline(offline)
    settings = _read_settings(embedder)
    rules = [parse_rule(text, "noise") for text in (*settings.fail_if.noise, *fail_if)]
    known = check_language(language)
    judged = _read_corpus(corpus, qrels)
    folder = _claim(out)
    keeps: tuple[Literal["topics", "question"], ...] = ("topics", "question")
    rewriters = [make_rewriter(RulesRewriterSettings(language=known, keep=k)) for k in keeps]
    if settings.rewriter is not None:
        other = make_rewriter(settings.rewriter)
        rewriters += [other] if other.name not in [r.name for r in rewriters] else []
    diagnosis = diagnose_noise(
        _make_embedder(settings),
        language=known,
        corpus=judged,
        rewriters=rewriters,
        queries=queries,
        runs=runs,
        seed=seed,
    )
    inputs = {} if judged is None else judged.files
    return CheckedDiagnosis.of(diagnosis, rules, settings, inputs, folder)


def _read_settings(embedder: str) -> DiagnoseSettings:
    """Return the settings of a YAML file, of wordllama, or of a sentence-transformers model."""
    from rankproof.diagnostics.settings import DiagnoseSettings
    from rankproof.foundation.config import read_config
    from rankproof.foundation.errors import InputError
    from rankproof.retrieval.embedders.sentence_transformers import SentenceTransformersSettings

    if os.path.splitext(embedder)[1].lower() in (".yaml", ".yml", ".json"):  # noqa: PTH122
        return read_config(embedder, DiagnoseSettings)
    if embedder == "wordllama":
        return DiagnoseSettings()
    if not embedder.strip():
        raise InputError("--embedder is empty", remedy="name wordllama, a model or a YAML file")
    return DiagnoseSettings(
        embedder=SentenceTransformersSettings(type="sentence-transformers", model=embedder)
    )


def _read_corpus(corpus: Any, qrels: Any) -> JudgedCorpus | None:
    """Read a judged BEIR folder, if one is named."""
    from rankproof.diagnostics.corpus import JudgedCorpus
    from rankproof.foundation.errors import InputError

    if corpus is None and qrels is not None:
        raise InputError("--qrels without --corpus", remedy="name the folder they judge")
    return None if corpus is None else JudgedCorpus.read(corpus, qrels)


def _make_embedder(settings: DiagnoseSettings) -> EmbedderLike:
    """Make the embedder; vectors that were paid for are cached."""
    from rankproof.retrieval.cache import Cache
    from rankproof.retrieval.components import uses_network
    from rankproof.retrieval.embedders import make_embedder

    return make_embedder(settings.embedder, Cache() if uses_network(settings.embedder) else None)


def _claim(out: str | os.PathLike[str] | None) -> Path | None:
    """Refuse, before any work, a folder that holds files of others."""
    from rankproof.foundation.files import claim_folder

    own_files = [f"{kind}.{ending}" for kind in ("names", "noise") for ending in _ENDINGS]
    return None if out is None else claim_folder(os.fspath(out), own_files, "diagnose")
