"""What bounds over holes cost beside the evaluation, and how few judgements settle a comparison.

    .venv/bin/python bench/holes.py [--repeat 3]

Both sides of the first part start from tables that were read before, and rank anew each time. The
comparisons to settle are seeded pools of graded documents, judged to rank 10 of run A alone, and
SciFact's test claims (BM25 against wordllama's vectors, its labels taken for the whole truth) where
RANKPROOF_DATA names a folder that holds it. The charts of docs/holes.md are drawn from SciFact's
texts with grades drawn at random. Writes its part of bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import results

import rankproof as rp
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Policy, evaluate_tables
from rankproof.foundation.arrays import Float, Int
from rankproof.measures import Measure, parse
from rankproof.presentation.charts import Chart, Curve, CurveChart, Range, RangeChart
from rankproof.presentation.svg import to_svg
from rankproof.unjudged import Bound, holes_of
from rankproof.unjudged.bounds import WorstCases
from rankproof.unjudged.judging_order import QueryDocuments, Settling, merge_judgments

MEASURES = [
    *("P@10", "Hits@100", "R@100", "F1@100", "SetF", "RBP", "RR", "ERR", "nDCG@10", "nDCG@100"),
    *("nDCG", "nDCG(gain='exp')", "AP@100", "AP", "infAP", "bpref", "IPrec@0.5", "AP11"),
    "RAnWG@10",
]
WORLDS = [
    (queries, documents, unjudged)
    for queries, documents in ((100, 10_000), (1_000, 1_000), (10_000, 100))
    for unjudged in (0.05, 0.5, 0.95)
]
SCIFACT = Path(os.environ.get("RANKPROOF_DATA", "data")) / "scifact"
IMAGES = Path(__file__).parents[1] / "docs" / "images"


def fresh(run: Run) -> Run:
    """The run without the rankings it keeps."""
    return replace(run, cache={})


def best_of(times: int, work: Callable[[], object]) -> float:
    """Least processor seconds of several, over all threads."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def lists(queries: int, documents: int, unjudged: float, top: int) -> tuple[list[Run], Qrels]:
    """Two runs that share two documents of three, and judgements of a share of all of them.

    Lists come best first; half of what is judged is not relevant.
    """
    rng = np.random.default_rng(0)
    near = documents * 3 // 2
    names = pl.Series("query", [f"q{q}" for q in range(queries)])
    first = 7 * np.arange(queries)[:, None]
    runs = []
    for name in "ab":
        chosen = rng.random((queries, near)).argsort(axis=1)[:, :documents] + first
        score = np.sort(rng.normal(size=(queries, documents)), axis=1)[:, ::-1]
        columns = {
            "query": names.gather(np.repeat(np.arange(queries), documents)),
            "doc": pl.Series(chosen.ravel()).cast(pl.String),
            "score": score.ravel(),
        }
        runs.append(rp.read_run(pl.DataFrame(columns), name=name))
    query, doc = np.nonzero(rng.random((queries, near)) >= unjudged)
    grade = rng.integers(1, top + 1, len(query)) * (rng.random(len(query)) < 0.5)
    judged = {
        "query": names.gather(query),
        "doc": pl.Series(doc + first[query, 0]).cast(pl.String),
        "grade": grade,
    }
    return runs, rp.read_qrels(pl.DataFrame(judged))


def cost(repeat: int) -> list[str]:
    """Bounds of one run, and of two and their difference, over the evaluation of as many."""
    lines = [
        "Runs of 1,000,000 rows in memory, ranked anew, grades 0–3 (1–5 for RAnWG): processor "
        "seconds of `holes` over those of evaluating the same runs, in one process, the least of "
        f"{repeat}; of one run / of two runs with their difference, for which the documents of the "
        "one are looked up in the other.",
        "",
    ]
    heads = [f"{q:,} × {d:,}, {unjudged:.0%}" for q, d, unjudged in WORLDS]
    lines += [f"| unjudged | {' | '.join(heads)} |", f"|:--|{'--:|' * len(heads)}"]
    cells: dict[str, list[str]] = {name: [] for name in MEASURES}
    worst: dict[int, tuple[float, str]] = {1: (0.0, ""), 2: (0.0, "")}
    for world, head in zip(WORLDS, heads, strict=True):
        runs, qrels = lists(*world, 3)
        for name in MEASURES:
            found = {n: ratio(runs[:n], qrels, parse(name), repeat) for n in (1, 2)}
            cells[name].append(" / ".join(f"{b / e:.1f}" for e, b in found.values()))
            for n, (e, b) in found.items():
                worst[n] = max(worst[n], (b / e, f"{name}, {head}: {e:.3f} and {b:.3f} s"))
    lines += [f"| {name} | {' | '.join(row)} |" for name, row in cells.items()]
    lines += ["", *(f"Worst of {n}: {x:.1f} × ({told})." for n, (x, told) in worst.items())]
    with TemporaryDirectory() as folder:
        file = Path(folder) / "run.trec"
        frame = runs[0].to_frame()
        rows = frame.select("query", pl.lit("Q0"), "doc", rank=1, score="score", tag=pl.lit("b"))
        rows.write_csv(file, include_header=False, separator=" ")
        read = best_of(repeat, lambda: rp.read_run(file))
    lines += [f"To read one such run from a TREC file takes {read:.2f} s, before either begins."]
    return [*lines, "", compared(repeat)]


def compared(repeat: int) -> str:
    """What bounds that nobody asks for add to `compare`, of tables and of files."""
    runs, qrels = lists(1_000, 1_000, 0.5, 3)
    told = []
    with TemporaryDirectory() as folder:
        paths = {run.name: Path(folder) / f"{run.name}.trec" for run in runs}
        for run in runs:
            rows = run.to_frame().select(
                "query", pl.lit("Q0"), "doc", rank=1, score="score", tag=pl.lit("b")
            )
            rows.write_csv(paths[run.name], include_header=False, separator=" ")

        def made(name: str, files: bool, holes: bool | None) -> Callable[[], object]:
            tables = {run.name: run for run in runs}
            return lambda: rp.compare(
                *(qrels, name),
                paths if files else {of: fresh(run) for of, run in tables.items()},
                holes=holes,
            )

        for name in ("nDCG@10", "nDCG", "AP", "bpref"):
            ratios = []
            for files in (False, True):
                taken = {
                    holes: best_of(repeat, made(name, files, holes)) for holes in (None, False)
                }
                ratios.append(f"{taken[None] / taken[False]:.2f}")
            told.append(f"{name} {' / '.join(ratios)}")
    return (
        "`compare` of two such runs (1,000 × 1,000, half unjudged) with the bounds that nobody "
        "asks for, over one without (`holes=False`), of tables / of TREC files: "
        f"{', '.join(told)}."
    )


def ratio(runs: Sequence[Run], qrels: Qrels, measure: Measure, repeat: int) -> tuple[float, float]:
    """Seconds to evaluate runs, and to bound them and their difference."""
    policy = Policy()
    if measure.definition.grades is not None:
        qrels = replace(qrels, grade=qrels.grade + measure.definition.grades[0], cache={})

    def evaluated() -> object:
        return [evaluate_tables(fresh(run), qrels, [measure], policy) for run in runs]

    def bounded() -> object:
        return holes_of([fresh(run) for run in runs], qrels, [measure], policy)

    return best_of(repeat, evaluated), best_of(repeat, bounded)


# -------------------------------------------------------------------------------------- settling


@dataclass(frozen=True)
class World:
    """Two runs, judgements, and what a judge would say of everything else."""

    name: str
    runs: Sequence[Run]
    qrels: Qrels
    truth: Callable[[str, str], int]
    measure: Measure
    scale: int

    def judge(self, asked: QueryDocuments) -> list[int]:
        return [self.truth(query, doc) for query, doc in asked]


def graded(gap: float, seed: int) -> World:
    """60 queries of 60 documents; B's scores are noisier than A's, and only A's are judged."""
    rng = np.random.default_rng(seed)
    queries, documents = 60, 60
    rate = rng.beta(2, 8, (queries, 1))
    shape = (queries, documents)
    grade = (rng.random(shape) < rate) * (1 + (rng.random(shape) < 0.3))
    ids = [f"q{q:03}" for q in range(queries)]
    runs = []
    for name, noise in (("A", 0.8), ("B", 0.8 + gap)):
        score = grade + rng.normal(0, noise, shape)
        top = np.argsort(-score, axis=1)[:, :20]
        lists = {q: {f"d{d}": float(score[i, d]) for d in top[i]} for i, q in enumerate(ids)}
        runs.append(rp.read_run(lists, name=name))
    known = {q: {f"d{d}": int(grade[i, d]) for d in range(documents)} for i, q in enumerate(ids)}
    judged: dict[str, dict[str, int]] = {q: {} for q in ids}
    for query, doc, _ in runs[0].to_frame().group_by("query", maintain_order=True).head(10).rows():
        judged[query][doc] = known[query][doc]
    return World(
        *(f"graded pool, B noisier by {gap}", runs, rp.read_qrels(judged)),
        *(lambda query, doc: known[query][doc], parse("nDCG@10"), 2),
    )


class ByEffect(Settling):
    """The largest effect first, whichever run it helps."""

    def choose_next(self, count: int, bound: Bound) -> Int:
        return self._by(np.abs(self.effects), count)

    def _by(self, weight: Float, count: int) -> Int:
        first = np.argsort(-np.where(self.is_open, weight, -np.inf), kind="stable")[:count]
        return first[self.is_open[first]]


class ByRank(ByEffect):
    """From the top of the lists down, as pools are judged."""

    def choose_next(self, count: int, bound: Bound) -> Int:
        seen = [reach.tied_ranks(self.documents).first for reach in self.worst_cases.matched]
        return self._by(-np.minimum(*seen).astype(np.float64), count)


class AtRandom(ByEffect):
    """In any order."""

    def choose_next(self, count: int, bound: Bound) -> Int:
        return self._by(np.random.default_rng(1).random(len(self.is_open)), count)


ORDERS: dict[str, type[Settling]] = {
    "rankproof": Settling,
    "effect alone": ByEffect,
    "by rank": ByRank,
    "at random": AtRandom,
}


def needed(world: World, order: type[Settling], batch: int) -> tuple[int, int]:
    """Judgements until the better run is certain, and the holes there were."""
    view = WorstCases(world.runs, world.qrels, Policy(), scale=world.scale)
    done = order(view, world.measure, "certain").run(world.judge, batch, None)
    return done.asked, done.holes


def settling() -> list[str]:
    """Judgements that settle a comparison, in four orders."""
    lines = [
        "Judgements until no completion can turn the difference of nDCG@10 round (graded pools: "
        "mean of 3 seeds; SciFact in batches of 10).",
        "",
        f"| comparison | holes | {' | '.join(ORDERS)} |",
        f"|:--|--:|{'--:|' * len(ORDERS)}",
    ]
    for gap in (0.4, 0.8, 1.6):
        worlds = [graded(gap, seed) for seed in range(3)]
        found = {
            name: np.mean([needed(world, order, 1) for world in worlds], axis=0)
            for name, order in ORDERS.items()
        }
        cells = " | ".join(f"{asked:.0f}" for asked, _ in found.values())
        lines.append(f"| {worlds[0].name} | {found['rankproof'][1]:.0f} | {cells} |")
    if SCIFACT.is_dir():
        world = scifact()
        counts = {name: needed(world, order, 10) for name, order in ORDERS.items()}
        cells = " | ".join(f"{asked}" for asked, _ in counts.values())
        lines.append(f"| {world.name} | {counts['rankproof'][1]} | {cells} |")
    return lines


@cache
def retrieved() -> tuple[list[Run], Qrels]:
    """SciFact's test claims to rank 20: by BM25, and by 256 and 64 of wordllama's dimensions."""
    import wordllama

    from rankproof.data.beir import read_corpus
    from rankproof.precision import search
    from rankproof.retrieval.sparse.bm25 import Bm25

    corpus = read_corpus(SCIFACT)
    qrels = rp.read_qrels(corpus.qrels)
    judged = set(qrels.queries)
    asked = [p for p in zip(corpus.query_ids, corpus.queries, strict=True) if p[0] in judged]
    ids, texts = [q for q, _ in asked], [t for _, t in asked]
    words = Bm25(corpus.documents, corpus.document_ids).search(texts, 20, ids).run
    model = wordllama.WordLlama.load(
        cache_dir=Path(wordllama.__file__).parent, disable_download=True
    )
    runs = [replace(words, name="BM25")]
    for name, keep in (("wordllama", 256), ("wordllama, 64 dim.", 64)):
        asking, held = (
            np.asarray(model.embed(t, norm=True), np.float32)[:, :keep]
            for t in (texts, corpus.documents)
        )
        asking, held = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (asking, held))
        dense = search(asking, held, 20, query_ids=ids, document_ids=corpus.document_ids)
        runs.append(replace(dense, name=name))
    return runs, qrels


def scifact() -> World:
    """BM25 against wordllama; what SciFact does not label is not relevant."""
    runs, qrels = retrieved()
    return World(
        "SciFact, BM25 and wordllama", runs[:2], qrels, lambda _query, _doc: 0, parse("nDCG@10"), 1
    )


# --------------------------------------------------------------------------------------- a story


def story() -> list[str]:
    """Three retrievers that are equal in truth, on a pool that two of them filled."""
    runs, labels = retrieved()
    rng = np.random.default_rng(0)
    frames = [run.to_frame() for run in runs]
    truth: dict[tuple[str, str], int] = {}
    for frame in frames:
        for query, doc, _ in frame.rows():
            if (query, doc) not in truth:
                truth[query, doc] = int(
                    rng.choice([1, 2, 3, 4, 5], p=[0.45, 0.25, 0.15, 0.1, 0.05])
                )
    home = pl.concat(f.group_by("query", maintain_order=True).head(10) for f in frames[:2])
    pool: dict[str, dict[str, int]] = {query: {} for query in labels.queries}
    for query, doc, _ in home.rows():
        pool[query][doc] = truth[query, doc]
    qrels, measure = rp.read_qrels(pool), parse("RAnWG@10")
    view = WorstCases(runs, qrels, Policy())
    asked: QueryDocuments = []

    def judge(pairs: QueryDocuments) -> list[int]:
        asked.extend(pairs)
        return [truth[pair] for pair in pairs]

    # Only the newcomer has holes; they are judged as its difference from the best at home asks.
    done = Settling(WorstCases(runs[1:], qrels, Policy()), measure, 0.0).run(judge, 50, None)
    total = done.holes
    steps = sorted({*range(0, total, max(1, total // 16)), total})
    states = []
    for step in steps:
        rows = [(query, doc, truth[query, doc]) for query, doc in asked[:step]]
        known = merge_judgments(qrels, rp.read_qrels(rows)) if rows else qrels
        states.append(WorstCases(runs, known, Policy()))
    everyone = range(len(runs))
    bounds = [[state.run_bound(at, measure, everyone) for state in states] for at in everyone]
    lines = [
        "| retriever | judged | reported | lowest | highest | all judged |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    bars, series = [], []
    for at, run in enumerate(runs):
        first, true = bounds[at][0], bounds[at][-1].expected
        lines.append(
            f"| {run.name} | {view.judged_share(at, measure):.3f} | {first.expected:.3f} | "
            f"{first.lowest:.3f} | {first.highest:.3f} | {true:.3f} |"
        )
        tip = f"{run.name}: reported {first.expected:.3f}, all judged {true:.3f}"
        bars.append(Range(run.name, first.expected, first.lowest, first.highest, true, at, tip))
        series.append(
            Curve(
                run.name,
                x=[float(step) for step in steps],
                y=[b.expected for b in bounds[at]],
                low=[b.lowest for b in bounds[at]],
                high=[b.highest for b in bounds[at]],
            )
        )
    lines += ["", f"{total} holes; every grade drawn from the same distribution."]
    arms = RangeChart("What holes leave open", bars, axis="RAnWG@10; tick: all judged")
    _write("holes-arms", arms)
    y_label = "RAnWG@10, colours as above"
    _write("holes-closing", CurveChart("Bounds close", series, "holes judged", y_label))
    return lines


def _write(name: str, chart: Chart) -> None:
    """A chart as a file of its own that follows light and dark."""
    (IMAGES / f"{name}.svg").write_text(to_svg([chart], themed=True), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    lines = [*cost(chosen.repeat), "", *settling()]
    if SCIFACT.is_dir():
        lines += ["", *story()]
    results.record("Holes", lines)
