"""The demo: everything rankproof does, on a small corpus that ships with it.

    DIR/qrels.txt, saturated.trec, plain.trec    two runs, one of which ends in a bfloat16 sigmoid
    DIR/corpus/                                  passages and questions in English and French
    DIR/demo.golden                              a golden set, judged by a simulation that says so
    DIR/results/                                 evaluation, comparison, sweep, audit, diagnostics
    DIR/report.html                              all of it on one page

Nothing here needs a key, a GPU or a download. What is in DIR from an earlier run is used again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rankproof.errors import InputError, MissingExtra
from rankproof.files import claim_folder, write_whole
from rankproof.manifest import digest, manifest
from rankproof.version import __version__

RUNS = {
    "demo-qrels.txt": "qrels.txt",
    "demo-plain.trec": "plain.trec",
    "demo-saturated.trec": "saturated.trec",
}
CUTOFFS = (1, 2, 3, 5, 10, 20)
SEED = 0
SWEEP: dict[str, Any] = {
    "dimensions": [256, 64],
    "indexes": {"flat": {"type": "flat"}, "bit": {"type": "flat", "format": "bit"}},
    "pools": [30, 60],
    "prompts": [10],
    "generator": "GPT-5 mini",
    "latency": {"queries": 12, "repeats": 3, "warmup": 2},
}
GOLDEN: dict[str, Any] = {
    "judge": {"type": "simulated", "beta": 3.0, "wrong": 0.05},
    "ranking": {"budget": 40},
}

Told = Callable[[str, float], AbstractContextManager[Callable[[float], None]]]


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


def build_demo(folder: str | Path, progress: Told) -> Demo:
    """Fill a folder with results and a report; the same figures every time."""
    for package in ("wordllama", "bm25s", "pydantic", "jinja2"):
        if find_spec(package) is None:
            raise MissingExtra("the demo", package, "demo")
    place = Path(folder)
    results = place / "results"
    _stamp(place, results)
    unpack(place)
    found = {
        "evaluation": _kept(results / "evaluation.json", lambda: _evaluation(place)),
        "comparison": _kept(results / "comparison.json", lambda: _comparison(place)),
        "audit": _kept(results / "audit.json", lambda: _audit(place, progress)),
    }
    found["golden"] = _golden(place, results / "golden", progress)
    found["sweep"] = _sweep(place, results / "sweep", progress)
    for language in ("en", "fr"):
        found |= _diagnoses(results / language, language, progress)
    report = _report(results, place / "report.html")
    return Demo(place, report, findings(found, results))


def unpack(place: Path) -> None:
    """The runs and the corpus, as files to try things on."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        with as_file(files("rankproof") / "data") as data:
            for source, target in RUNS.items():
                shutil.copyfile(data / source, place / target)
            shutil.copytree(data / "demo", place / "corpus", dirs_exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write there ({error.strerror or error})",
            place=str(place),
            remedy="name another folder",
        ) from None


def _stamp(place: Path, results: Path) -> None:
    """Results of another version or another demo are made anew."""
    wanted = digest([__version__, SWEEP, GOLDEN, SEED, CUTOFFS])
    stamp = results / ".demo"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    if not stamp.is_file():
        _refuse_others(place, results)
    shutil.rmtree(results, ignore_errors=True)
    for store in place.glob("demo.golden*"):
        store.unlink()
    write_whole(stamp, lambda file: file.write_text(wanted, encoding="utf-8"))


def _refuse_others(place: Path, results: Path) -> None:
    """Where no demo was made before, nothing may stand but what one would write."""
    claim_folder(place, (*RUNS.values(), "corpus", "demo.golden*", results.name), "the demo")
    try:
        with as_file(files("rankproof") / "data") as data:
            ours = {place / target: data / source for source, target in RUNS.items()}
            corpus = data / "demo"
            ours |= {
                place / "corpus" / path.relative_to(corpus): path
                for path in corpus.rglob("*")
                if path.is_file()
            }
            others = [
                path
                for path, source in ours.items()
                if path.exists() and path.read_bytes() != source.read_bytes()
            ]
        others += [
            path for name in ("demo.golden", "report.html") if (path := place / name).exists()
        ]
        others += [results] if results.exists() and any(results.iterdir()) else []
    except OSError as error:
        raise InputError(
            f"cannot read what is there ({error.strerror or error})",
            place=str(place),
            remedy="name another folder",
        ) from None
    if others:
        raise InputError(
            f"this folder holds {others[0].relative_to(place)}, which is not the demo's",
            place=str(place),
            remedy="name another folder",
        )


def _kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A result from its file, or made and written there."""
    if not path.is_file():
        text = json.dumps(make(), indent=2, ensure_ascii=False, allow_nan=False)
        write_whole(path, lambda file: file.write_text(text, encoding="utf-8"))
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _inputs(place: Path) -> dict[str, Path]:
    return {name: place / name for name in RUNS.values()}


def _evaluation(place: Path) -> dict[str, Any]:
    from rankproof.evaluation import evaluate

    measures = [*(f"nDCG@{k}" for k in CUTOFFS), "RR", "R@5"]
    runs = [
        evaluate(place / f"{name}.trec", place / "qrels.txt", measures)
        for name in ("saturated", "plain")
    ]
    made = manifest("evaluation", config={"measures": measures}, inputs=_inputs(place))
    return {
        "manifest": made,
        "runs": [run.to_dict() for run in runs],
        "policy": runs[0].policy.to_dict(),
    }


def _comparison(place: Path) -> dict[str, Any]:
    from rankproof.comparison import compare

    measures = ["nDCG@5", "nDCG@10", "RR", "R@5"]
    runs = {name: place / f"{name}.trec" for name in ("saturated", "plain")}
    found = compare(runs, place / "qrels.txt", measures, seed=SEED)
    made = manifest("comparison", config={"measures": measures}, inputs=_inputs(place), seed=SEED)
    return {"manifest": made, **found.to_dict()}


def _audit(place: Path, progress: Told) -> dict[str, Any]:
    from rankproof.audit import audit_embeddings
    from rankproof.records.beir import read_corpus
    from rankproof.retrieval.embedders import make_embedder
    from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    from rankproof.scoring.formats import FORMATS

    corpus = read_corpus(place / "corpus")
    embedder = make_embedder(WordllamaSettings())
    with progress("auditing precisions", 2 * len(FORMATS)) as told:
        audit = audit_embeddings(
            embedder.embed_queries(corpus.queries),
            embedder.embed_passages(corpus.documents),
            corpus.qrels,
            ["RAnWG@10", "nDCG@10", "RR@10"],
            query_ids=corpus.query_ids,
            document_ids=corpus.document_ids,
            k=100,
            name=embedder.name,
            progress=told,
        )
    files_read = {**corpus.files, "qrels": corpus.qrels}
    made = manifest("audit", config={"embedder": embedder.name, "k": 100}, inputs=files_read)
    return {"manifest": made, **_timeless(audit.to_dict())}


def _timeless(audit: dict[str, Any]) -> dict[str, Any]:
    """Without seconds, which differ from run to run."""
    readings = [{**reading, "seconds": None} for reading in audit["readings"]]
    return {**audit, "readings": readings}


def _golden(place: Path, out: Path, progress: Told) -> dict[str, Any]:
    from rankproof.config import check_config
    from rankproof.golden.building import Build
    from rankproof.golden.export import export
    from rankproof.golden.settings import GoldenSettings
    from rankproof.golden.store import Store

    if not (out / "manifest.json").is_file():
        config = {"corpus": "corpus", "seed": SEED, **GOLDEN}
        settings = check_config(config, GoldenSettings, place="demo", folder=place.resolve())
        with Store(place / "demo.golden", create=True) as store:
            Build(settings, store, progress).run()
            export(store, out)
    found: dict[str, Any] = json.loads((out / "manifest.json").read_text(encoding="utf-8"))
    return found


def _sweep(place: Path, out: Path, progress: Told) -> dict[str, Any]:
    from rankproof.config import check_config
    from rankproof.tradeoffs.plan import SweepSettings
    from rankproof.tradeoffs.sweep import MANIFEST, sweep

    if not (out / MANIFEST).is_file():
        config = {"corpus": "corpus", "seed": SEED, **SWEEP}
        settings = check_config(config, SweepSettings, place="demo", folder=place.resolve())
        sweep(settings, out, progress=progress)
    found: dict[str, Any] = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    return found


def _diagnoses(folder: Path, language: Any, progress: Told) -> dict[str, dict[str, Any]]:
    from rankproof.diagnostics import diagnose_names, diagnose_noise
    from rankproof.retrieval.embedders import make_embedder
    from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    from rankproof.retrieval.rewriters import make_rewriter
    from rankproof.retrieval.rewriters.rules import RulesRewriterSettings

    def made(kind: str) -> dict[str, Any]:
        config = {"embedder": WordllamaSettings().model_dump(mode="json")}
        return manifest(kind, config=config, seed=SEED, packages=("numpy", "polars", "wordllama"))

    def names() -> dict[str, Any]:
        with progress(f"diagnosing names ({language})", 1.0) as told:
            found = diagnose_names(
                make_embedder(WordllamaSettings()), language=language, seed=SEED, progress=told
            )
        return {"manifest": made("names"), **found.to_dict(), "rules": []}

    def noise() -> dict[str, Any]:
        rules = [RulesRewriterSettings(language=language, keep=k) for k in ("topics", "question")]
        rewriters = [make_rewriter(settings) for settings in rules]
        with progress(f"diagnosing noise ({language})", 1.0) as told:
            found = diagnose_noise(
                make_embedder(WordllamaSettings()),
                language=language,
                rewriters=rewriters,
                seed=SEED,
                progress=told,
            )
        return {"manifest": made("noise"), **found.to_dict(), "rules": []}

    return {
        f"names {language}": _kept(folder / "names.json", names),
        f"noise {language}": _kept(folder / "noise.json", noise),
    }


def _report(results: Path, path: Path) -> Path:
    from rankproof.report import write_report

    return write_report(results, path, "The rankproof demo")[0]


# ----------------------------------------------------------------------------------- findings


def findings(found: dict[str, Any], results: Path) -> list[Finding]:
    """The five things worth knowing."""
    return [
        _reversed(found["comparison"]),
        _precise(found["audit"]),
        *_chosen(results / "sweep", found["sweep"]["best_by"]),
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
        f"(p = {d['p_holm']:.3f}). {turned} of {len(pair['measures'])} measures are reversed.",
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
    level = set(results.not_told_apart(best["configuration"], by, names, SEED) or ())
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
