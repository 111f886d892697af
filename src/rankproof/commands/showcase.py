"""The demo: `choose` on a small corpus that ships with rankproof, and the other verbs beside it.

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
_COMPARED = ["nDCG@5", "nDCG@10", "RR", "R@5"]
SEED = 0
RUNS_OF_NAMES = 5  # of the fifteen that `diagnose names` makes: a demo is to be quick
MADE = ("golden-simulated", "simulated.golden*", "swept-simulated", "report.html")  # by `choose`


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth knowing, in words."""

    title: str
    words: str


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo left behind."""

    folder: Path
    report: Path
    findings: list[Finding]
    chosen: Chosen


def demo_lines(demo: Demo) -> list[str]:
    """What the demo shows: the choice, the findings, and what to try next."""

    def indented(text: str) -> list[str]:
        return textwrap.wrap(text, 78, initial_indent="   ", subsequent_indent="   ")

    lines = ["What to deploy", ""]
    for sentence in demo.chosen.words():
        lines += indented(sentence)
    lines += ["", "Five findings worth knowing", ""]
    for number, finding in enumerate(demo.findings, 1):
        lines += [f"{number}. {finding.title}.", *indented(finding.words), ""]
    corpus, qrels, run = (
        typed(demo.folder / name) for name in ("corpus", "qrels.txt", "saturated.trec")
    )
    return [
        *lines,
        "The corpus was written for this demo, and a simulation judged it: the figures",
        "show what rankproof does, and are evidence of nothing else.",
        "",
        f"Report:  {demo.report}",
        f"Again:   rankproof choose {corpus} --judge simulated --sla-ms 5",
        f"Ties:    rankproof eval {qrels} {run}",
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
    found = {
        "evaluation": _kept(results / "evaluation.json", lambda: _evaluation(place)),
        "comparison": _kept(results / "comparison.json", lambda: _comparison(place)),
        "gate": _kept(results / "gate.json", lambda: _gate(place)),
        "audit": _kept(results / "audit.json", lambda: _audit(place)),
    }
    chosen = choose(place / "corpus", judge="simulated")
    for language in ("en", "fr"):
        found |= _diagnoses(results / language, language)
    report, _ = write_report(place, None, "The rankproof demo")
    return Demo(place, report, findings(found, chosen), chosen)


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


def _kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A result from its file, or made and written there."""
    if not path.is_file():
        text = json.dumps(make(), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(path, lambda file: file.write_text(text, encoding="utf-8"))
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


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


def _diagnoses(folder: Path, language: Any) -> dict[str, dict[str, Any]]:
    from rankproof.diagnostics import diagnose_names, diagnose_noise
    from rankproof.retrieval.embedders import make_embedder
    from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    from rankproof.retrieval.rewriters import make_rewriter
    from rankproof.retrieval.rewriters.rules import RulesRewriterSettings

    def made(kind: str) -> dict[str, Any]:
        config = {"embedder": WordllamaSettings().model_dump(mode="json")}
        return manifest(kind, config=config, seed=SEED, packages=("numpy", "polars", "wordllama"))

    def names() -> dict[str, Any]:
        found = diagnose_names(
            make_embedder(WordllamaSettings()), language=language, runs=RUNS_OF_NAMES, seed=SEED
        )
        result = {"manifest": made("names"), **found.to_dict(), "rules": []}
        return result | {"presentation": stored(found)}

    def noise() -> dict[str, Any]:
        rules = [RulesRewriterSettings(language=language, keep=k) for k in ("topics", "question")]
        rewriters = [make_rewriter(settings) for settings in rules]
        found = diagnose_noise(
            make_embedder(WordllamaSettings()), language=language, rewriters=rewriters, seed=SEED
        )
        result = {"manifest": made("noise"), **found.to_dict(), "rules": []}
        return result | {"presentation": stored(found)}

    return {
        f"names {language}": _kept(folder / "names.json", names),
        f"noise {language}": _kept(folder / "noise.json", noise),
    }


# ----------------------------------------------------------------------------------- findings


def findings(found: dict[str, Any], chosen: Chosen) -> list[Finding]:
    """The five things worth knowing."""
    return [
        _reversed(found["comparison"]),
        _precise(found["audit"]),
        *_chosen(chosen.swept.folder, chosen.swept.manifest["best_by"]),
        _named(found["names en"], found["names fr"], found["noise en"], found["noise fr"]),
    ]


def _reversed(comparison: dict[str, Any]) -> Finding:
    pair = comparison["pairs"][0]
    d = pair["measures"]["nDCG@5"]
    turned = sum(m["reversed"] for m in pair["measures"].values())
    return Finding(
        "Ties turned a verdict round",
        f"In nDCG@5 the usual tie-break puts {pair['a']} ahead of {pair['b']} by "
        f"{d['oblivious']:.3f}. Over all orders of its ties it is behind by {-d['expected']:.3f} "
        f"(p = {d['p_holm']:.3f} after Holm's correction). {turned} of {len(pair['measures'])} "
        "measures are reversed.",
    )


def _precise(audit: dict[str, Any]) -> Finding:
    measure = "RAnWG@10"
    reading = {(r["format"], r["scoring"]): r["measures"][measure] for r in audit["readings"]}
    bit, decoded, original = (reading["bit", how] for how in ("plain", "decoded", "original"))
    full = reading["float32", "plain"]["expected"]
    return Finding(
        "One-bit codes find, the originals rank",
        f"{measure} from one-bit codes alone lies anywhere from {bit['min']:.3f} to "
        f"{bit['max']:.3f} by how ties are broken. Rescored with the full query it is "
        f"{decoded['expected']:.3f}, and against the original vectors, which may lie on a disk, "
        f"{original['expected']:.3f}; float32 gives {full:.3f}.",
    )


def _chosen(folder: Path, by: str) -> list[Finding]:
    import polars as pl

    from rankproof.tradeoffs.ceilings import ceilings
    from rankproof.tradeoffs.results import read_results

    results = read_results(folder)
    frame = results.frame
    best = frame.row(by_predicate=pl.col("best"), named=True)
    assert results.judgements is not None
    ceiling = ceilings(folder / best["run"], results.judgements, [by], seed=SEED)[by]
    wants = {
        "ordering": "it wants a better order of them",
        "pool": "it wants better candidates",
        "either": "which of the two matters more these questions do not tell",
        "neither": "there is little left to gain",
    }
    rivals = [row for row in frame.iter_rows(named=True) if not row["best"]]
    names = [row["configuration"] for row in rivals]
    level = set(results.not_significantly_different(best["configuration"], by, names, SEED) or ())
    alike = [row for row in rivals if row["configuration"] in level]
    simple = next((row for row in alike if row["mode"] == "sparse"), None)
    among = "" if simple is None else f", among them BM25 alone ({simple[by]:.3f}), without vectors"
    return [
        Finding(
            "The ceiling says which knob to turn",
            f"The best configuration ({best['configuration']}) reaches {by} {best[by]:.3f}, "
            f"{best[f'{by} %PROC']:.0f}% of the {best[f'{by} PROC']:.3f} that its candidates "
            f"allow. Ordering could add {ceiling.ordering:.3f}, retrieval "
            f"{ceiling.retrieval:.3f}: {wants[ceiling.knob]}.",
        ),
        Finding(
            "The best is not told apart from something simpler",
            f"On {best[f'{by} queries']} questions the best lies between {best[f'{by} low']:.3f} "
            f"and {best[f'{by} high']:.3f} (95%). Question by question, {len(alike)} of the other "
            f"{len(rivals)} configurations are not told apart from it{among}.",
        ),
    ]


def _named(
    english: dict[str, Any], french: dict[str, Any], noise: dict[str, Any], bruit: dict[str, Any]
) -> Finding:
    def margin(data: dict[str, Any]) -> float:
        return float(data["rows"][0]["margin"]["name"]["mean"])

    def change(data: dict[str, Any], ablation: str) -> float:
        row = next(r for r in data["rows"] if r["ablation"] == ablation)
        return float(row["percent"]["name"]["mean"])

    def share(data: dict[str, Any]) -> float:
        """Of the drop at the highest level, what the last rewriter wins back."""
        row = [r for r in data["rows"] if r["level"] == 4 and r["rewriter"] is not None][-1]
        return float(row["recovered"]["clean"])

    return Finding(
        "Names and noise, before any sweep",
        f"The right author leads an impostor by {margin(english):.3f} in English and "
        f"{margin(french):.3f} in French; a name written without its accents changes that by "
        f"{change(french, 'strip_diacritics'):+.0f}% in French. Of what conversational noise "
        f"costs, keeping the question alone wins back {share(noise):.0%} in English and "
        f"{share(bruit):.0%} in French.",
    )
