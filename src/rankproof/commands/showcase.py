"""The demo: `choose` on a small corpus that ships with rankproof, and the other commands.

    DIR/qrels.txt, saturated.trec, plain.trec    two runs, one of which ends in a bfloat16 sigmoid
    DIR/corpus/                                  passages and questions in English and French, and
                                                 what `choose --judge simulated` makes of them
    DIR/vectors/                                 their embeddings, to be audited
    DIR/results/                                 evaluation, comparison, gate, audit, diagnostics
    DIR/report.html                              all of it on one page

Nothing here needs a key, a GPU or a download. What is in DIR from an earlier run is used again.
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
SHOWN = "nDCG@5"  # in what the demo prints
_COMPARED = [SHOWN, "nDCG@10", "RR", "R@5"]
SEED = 0
_WIDTH = 79  # of the text that is printed
RUNS_OF_NAMES = 1  # of the fifteen that `diagnose names` makes: a demo is to be quick
MADE = ("golden-simulated", "simulated.golden*", "swept-simulated", "report.html")  # by `choose`


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
    _stamp(place, results)
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
    """Write the runs and the corpus, as files to try things on."""
    with as_file(files("rankproof") / "resources") as resources:
        for target, source in _shipped(resources).items():
            write_atomically(place / target, partial(shutil.copyfile, source))


def _shipped(data: Path) -> dict[str, Path]:
    """What the demo's folder begins with, and where that comes from."""
    corpus = data / "demo"
    inside = sorted(path for path in corpus.rglob("*") if path.is_file())
    return {target: data / source for source, target in RUNS.items()} | {
        f"corpus/{path.relative_to(corpus).as_posix()}": path for path in inside
    }


def _left(place: Path) -> list[Path]:
    return [path for name in MADE for path in (place / "corpus").glob(name)]


def _stamp(place: Path, results: Path) -> None:
    """Results of another version or another demo are made anew; what is not the demo's stays."""
    with as_file(files("rankproof") / "resources") as resources:
        shipped = {name: digest_file(path) for name, path in _shipped(resources).items()}
    wanted = digest([__version__, shipped, SEED, CUTOFFS, RUNS_OF_NAMES])
    stamp = place / ".demo"
    earlier = results / stamp.name  # where it was at first
    held = next((s.read_text(encoding="utf-8") for s in (stamp, earlier) if s.is_file()), None)
    if held in (None, wanted):
        _refuse_others(place, results, shipped, made=held is not None)
    if held == wanted and stamp.is_file():
        return
    shutil.rmtree(results, ignore_errors=True)
    for path in _left(place):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    write_atomically(stamp, lambda file: file.write_text(wanted, encoding="utf-8"))


def _refuse_others(place: Path, results: Path, shipped: dict[str, str], made: bool) -> None:
    """What stands there under a name of the demo's is the demo's, or it is left alone."""
    try:
        others = [
            name
            for name, sha in shipped.items()
            if (place / name).exists() and digest_file(place / name) != sha
        ]
        if not made:
            claim_folder(place, (*RUNS.values(), "corpus", results.name), "the demo")
            others += [path.relative_to(place).as_posix() for path in _left(place)]
            others += ["report.html"] if (place / "report.html").exists() else []
            others += [results.name] if results.exists() and any(results.iterdir()) else []
    except OSError as error:
        raise InputError(
            f"cannot read what is there ({error.strerror or error})",
            place=str(place),
            remedy="name another folder",
        ) from None
    if others:
        raise InputError(
            f"this folder holds {others[0]}, which is not the demo's",
            place=str(place),
            remedy="name another folder",
        )


def _stored(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a result from its file, or make it and write it there."""
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
    return _timeless(call_and_store("audit vectors", arguments))


def _vector_files(place: Path) -> list[Path]:
    """Where the embedded queries and documents are kept."""
    return [place / "vectors" / f"{name}.parquet" for name in ("queries", "documents")]


def _timeless(audit: dict[str, Any]) -> dict[str, Any]:
    """Without seconds, which differ from run to run."""
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
