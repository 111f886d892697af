"""The demo: `choose` on a small corpus that ships with rankproof, and the other commands.

    DIR/qrels.txt, saturated.trec, plain.trec    two runs, one of which ends in a bfloat16 sigmoid
    DIR/corpus/                                  passages and questions in English and French, and
                                                 what `choose --judge simulated` writes for them
    DIR/vectors/                                 their embeddings, for the audit
    DIR/results/                                 evaluation, comparison, gate, audit, diagnostics
    DIR/report.html                              a report of all of it

Nothing here needs a key, a GPU or a download. Results of an earlier run in DIR are used again.
"""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankproof.commands.recording import call_and_store
from rankproof.foundation.errors import InputError, MissingExtra
from rankproof.foundation.files import claim_folder, write_atomically
from rankproof.foundation.manifest import digest, digest_file, manifest
from rankproof.foundation.phrasing import typed
from rankproof.foundation.version import __version__
from rankproof.presentation.result import stored

if TYPE_CHECKING:
    from rankproof.projects.choosing import Chosen

RUNS = {
    "demo-qrels.txt": "qrels.txt",
    "demo-plain.trec": "plain.trec",
    "demo-saturated.trec": "saturated.trec",
}
NAMES = ("saturated", "plain")
CUTOFFS = (1, 2, 3, 5, 10, 20)
SHOWN = "nDCG@5"  # the measure in the text that the demo prints
_COMPARED = [SHOWN, "nDCG@10", "RR", "R@5"]
SEED = 0
_WIDTH = 79  # columns of the printed text
RUNS_OF_NAMES = 1  # instead of the fifteen of `diagnose names`, to be quick
CHOOSE_OUTPUTS = ("golden-simulated", "simulated.golden*", "swept-simulated", "report.html")


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo wrote, and the comparison that it shows."""

    folder: Path
    report: Path
    comparison: dict[str, Any]  # as JSON: the saturated run against the plain one
    chosen: Chosen


def demo_lines(demo: Demo) -> list[str]:
    """Return what the demo prints: one surprising result, the report, and what to try next."""
    pair = demo.comparison["pairs"][0]
    d = pair["measures"][SHOWN]
    tied, plain = pair["a"], pair["b"]
    low, high = sorted(-end for end in d["ci"])
    qrels, corpus = typed(demo.folder / "qrels.txt"), typed(demo.folder / "corpus")
    runs = " ".join(typed(demo.folder / f"{name}.trec") for name in NAMES)
    surprise = (
        f"Your tool may say that {tied} beats {plain} by {d['oblivious']:.3f} {SHOWN}. In truth it "
        f"is {-d['expected']:.3f} worse (95% CI {low:.3f}–{high:.3f})."
    )
    reason = (
        f"The scores of {tied} are bfloat16 and tie, and tools break ties in an arbitrary order. "
        "rankproof averages over every order."
    )
    return [
        *textwrap.wrap(surprise, _WIDTH),
        *textwrap.wrap(reason, _WIDTH),
        "",
        f"Report: {demo.report}",
        "(also: what to deploy and which number format to use, on a small made-up corpus)",
        "Next:",
        f"  rankproof compare {qrels} {runs} -m {SHOWN}",
        f"  rankproof gate {qrels} {runs.split(' ')[1]} {runs.split(' ')[0]}",
        f"  rankproof choose {corpus} --judge simulated --sla-ms 5",
    ]


def build_demo(folder: str | Path) -> Demo:
    """Fill a folder with results and a report; the same values every time."""
    for package in ("wordllama", "bm25s", "pydantic", "jinja2"):
        if find_spec(package) is None:
            raise MissingExtra("the demo", package, "demo")
    from rankproof.projects.choosing import choose
    from rankproof.report import write_report

    place = Path(folder)
    results = place / "results"
    _prepare_folder(place, results)
    unpack(place)
    if not all(file.is_file() for file in _vector_files(place)):
        (results / "audit.json").unlink(missing_ok=True)  # the audit writes the vectors it reads
    results_by_name = {
        "evaluation": _stored(results / "evaluation.json", lambda: _evaluation(place)),
        "comparison": _stored(results / "comparison.json", lambda: _comparison(place)),
        "gate": _stored(results / "gate.json", lambda: _gate(place)),
        "audit": _stored(results / "audit.json", lambda: _audit(place)),
    }
    chosen = choose(place / "corpus", judge="simulated")
    _diagnoses(results / "en")
    report, _ = write_report(place, None, "The rankproof demo")
    return Demo(place, report, results_by_name["comparison"], chosen)


def unpack(place: Path) -> None:
    """Write the runs and the corpus, as files to try commands on."""
    with as_file(files("rankproof") / "resources") as resources:
        for target, source in _packaged_files(resources).items():
            write_atomically(place / target, partial(shutil.copyfile, source))


def _packaged_files(data: Path) -> dict[str, Path]:
    """Return the packaged file behind each input of the demo, by its path in the demo's folder."""
    corpus = data / "demo"
    corpus_files = sorted(path for path in corpus.rglob("*") if path.is_file())
    return {target: data / source for source, target in RUNS.items()} | {
        f"corpus/{path.relative_to(corpus).as_posix()}": path for path in corpus_files
    }


def _choose_outputs(place: Path) -> list[Path]:
    """Return the files and folders that `choose` wrote."""
    return [path for name in CHOOSE_OUTPUTS for path in (place / "corpus").glob(name)]


def _prepare_folder(place: Path, results: Path) -> None:
    """Delete results of another version of the demo; refuse a folder with files of the user.

    `.demo` has a digest of what the results depend on.
    """
    with as_file(files("rankproof") / "resources") as resources:
        packaged = {name: digest_file(path) for name, path in _packaged_files(resources).items()}
    current = digest([__version__, packaged, SEED, CUTOFFS, RUNS_OF_NAMES])
    stamp = place / ".demo"
    old_stamp = results / stamp.name  # its place in the first versions
    stamps = (file.read_text(encoding="utf-8") for file in (stamp, old_stamp) if file.is_file())
    previous = next(stamps, None)
    if previous in (None, current):
        _refuse_user_files(place, results, packaged, is_demo=previous is not None)
    if previous == current and stamp.is_file():
        return
    shutil.rmtree(results, ignore_errors=True)
    for path in _choose_outputs(place):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_atomically(stamp, lambda file: file.write_text(current, encoding="utf-8"))


def _refuse_user_files(place: Path, results: Path, packaged: dict[str, str], is_demo: bool) -> None:
    """Raise an InputError if the demo would overwrite a file that it did not write.

    `packaged` are digests of the demo's inputs; `is_demo` is True if an earlier demo wrote here.
    """
    try:
        foreign = [
            name
            for name, sha in packaged.items()
            if (place / name).exists() and digest_file(place / name) != sha
        ]
        if not is_demo:
            claim_folder(place, (*RUNS.values(), "corpus", results.name), "the demo")
            foreign += [path.relative_to(place).as_posix() for path in _choose_outputs(place)]
            foreign += ["report.html"] if (place / "report.html").exists() else []
            foreign += [results.name] if results.exists() and any(results.iterdir()) else []
    except OSError as error:
        raise InputError(
            f"cannot read what is there ({error.strerror or error})",
            place=str(place),
            remedy="name another folder",
        ) from None
    if foreign:
        raise InputError(
            f"this folder holds {foreign[0]}, which is not the demo's",
            place=str(place),
            remedy="name another folder",
        )


def _stored(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a result from its JSON file, after computing and writing it if there is none."""
    if not path.is_file():
        text = json.dumps(make(), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return result


def _runs(place: Path) -> dict[str, Path]:
    return {name: place / f"{name}.trec" for name in NAMES}


def _evaluation(place: Path) -> dict[str, Any]:
    measures = [*(f"nDCG@{k}" for k in CUTOFFS), "RR", "R@5"]
    arguments = {"qrels": place / "qrels.txt", "runs": _runs(place), "measures": measures}
    return call_and_store("eval", arguments)


def _comparison(place: Path) -> dict[str, Any]:
    arguments = {"qrels": place / "qrels.txt", "runs": _runs(place), "measures": _COMPARED}
    return call_and_store("compare", arguments | {"seed": SEED})


def _gate(place: Path) -> dict[str, Any]:
    candidate, baseline = (place / f"{name}.trec" for name in NAMES)
    arguments = {"qrels": place / "qrels.txt", "baseline": baseline, "candidate": candidate}
    return call_and_store("gate", arguments | {"measures": _COMPARED, "margin": 0.02, "seed": SEED})


def _audit(place: Path) -> dict[str, Any]:
    from rankproof.data.beir import read_corpus
    from rankproof.retrieval.embedders import make_embedder
    from rankproof.retrieval.embedders.wordllama import WordllamaSettings

    corpus = read_corpus(place / "corpus")
    embedder = make_embedder(WordllamaSettings())
    queries, documents = _vector_files(place)
    _write_vectors(queries, corpus.query_ids, embedder.embed_queries(corpus.queries))
    _write_vectors(documents, corpus.document_ids, embedder.embed_passages(corpus.documents))
    arguments = {"qrels": corpus.qrels, "queries": {embedder.name: queries}}
    arguments |= {"documents": {embedder.name: documents}, "k": 100}
    arguments |= {"measures": ["RAnWG@10", "nDCG@10", "RR@10"]}
    return _without_durations(call_and_store("audit vectors", arguments))


def _vector_files(place: Path) -> list[Path]:
    """Return the files of the embedded queries and documents."""
    return [place / "vectors" / f"{name}.parquet" for name in ("queries", "documents")]


def _without_durations(audit: dict[str, Any]) -> dict[str, Any]:
    """Return an audit's JSON without seconds, which differ from run to run."""
    readings = [{**reading, "seconds": None} for reading in audit["readings"]]
    return {**audit, "readings": readings}


def _write_vectors(path: Path, ids: Sequence[str], vectors: Any) -> None:
    import polars as pl

    frame = pl.DataFrame({"id": ids, "vector": list(vectors)})
    write_atomically(path, frame.write_parquet)


def _diagnoses(folder: Path) -> None:
    """Write the diagnoses of names and of noise in English."""
    from rankproof.diagnostics import diagnose_names, diagnose_noise
    from rankproof.retrieval.embedders import make_embedder
    from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    from rankproof.retrieval.rewriters import make_rewriter
    from rankproof.retrieval.rewriters.rules import RulesRewriterSettings

    def make_manifest(kind: str) -> dict[str, Any]:
        config = {"embedder": WordllamaSettings().model_dump(mode="json")}
        return manifest(kind, config=config, seed=SEED, packages=("numpy", "polars", "wordllama"))

    def names() -> dict[str, Any]:
        diagnosis = diagnose_names(
            make_embedder(WordllamaSettings()), runs=RUNS_OF_NAMES, seed=SEED
        )
        result = {"manifest": make_manifest("names"), **diagnosis.to_dict(), "rules": []}
        return result | {"presentation": stored(diagnosis)}

    def noise() -> dict[str, Any]:
        rules = [RulesRewriterSettings(language="en", keep=k) for k in ("topics", "question")]
        rewriters = [make_rewriter(settings) for settings in rules]
        diagnosis = diagnose_noise(
            make_embedder(WordllamaSettings()), rewriters=rewriters, seed=SEED
        )
        result = {"manifest": make_manifest("noise"), **diagnosis.to_dict(), "rules": []}
        return result | {"presentation": stored(diagnosis)}

    _stored(folder / "names.json", names)
    _stored(folder / "noise.json", noise)
