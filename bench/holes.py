"""What bounds over holes cost beside the evaluation, and how few judgements settle a comparison.

    .venv/bin/python bench/holes.py [--queries 1000] [--documents 1000] [--repeat 3]

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
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

import numpy as np
import results
from workload import make

import rankproof as rp
from rankproof.arrays import Float, Int
from rankproof.evaluation import Policy, evaluate_tables, parse_all
from rankproof.measures import Measure, parse
from rankproof.tables import Qrels, Run
from rankproof.unjudged import Bound, holes_of
from rankproof.unjudged.bounds import View
from rankproof.unjudged.judging import Asked, Settling, merged

MEASURES = ["nDCG@10", "RR@10", "P@10", "R@100", "AP@100", "nDCG@100"]
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


def cost(queries: int, documents: int, repeat: int) -> list[str]:
    """Seconds of an evaluation, and of the bounds of one run and of two."""
    place = make(queries, documents)
    run = rp.read_run(place / "run.trec", name="a")
    other = replace(fresh(run), name="b", score=run.score[::-1].copy())
    lines = [
        f"{queries * documents:,} rows, ids and scores in memory, ranked anew; processor seconds.",
        "",
        "| qrels | measure | evaluate one run | its holes | evaluate two | "
        "their holes, and those of the difference |",
        "|:--|:--|--:|--:|--:|--:|",
    ]
    policy = Policy()
    for name in ("a", "b"):
        for measure in [*MEASURES, " ".join(MEASURES)]:
            parsed = parse_all(measure.split())
            qrels = rp.read_qrels(place / f"{name}.qrels")

            def bounds(runs: list[Run]) -> object:
                return holes_of([fresh(r) for r in runs], qrels, parsed, policy)  # noqa: B023

            def figures(runs: list[Run]) -> object:
                return [evaluate_tables(fresh(r), qrels, parsed, policy) for r in runs]  # noqa: B023

            spent = [
                best_of(repeat, partial(work, runs))
                for runs in ([run], [run, other])
                for work in (figures, bounds)
            ]
            cells = " | ".join(f"{s:.3f}" for s in spent)
            lines.append(f"| {name} | {'all' if ' ' in measure else measure} | {cells} |")
    return lines


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

    def judge(self, asked: Asked) -> list[int]:
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

    def first(self, count: int, bound: Bound) -> Int:
        return self._by(np.abs(self.change), count)

    def _by(self, weight: Float, count: int) -> Int:
        first = np.argsort(-np.where(self.open, weight, -np.inf), kind="stable")[:count]
        return first[self.open[first]]


class ByRank(ByEffect):
    """From the top of the lists down, as pools are judged."""

    def first(self, count: int, bound: Bound) -> Int:
        seen = [reach.see(self.found).first for reach in self.view.reaches]
        return self._by(-np.minimum(*seen).astype(np.float64), count)


class AtRandom(ByEffect):
    """In any order."""

    def first(self, count: int, bound: Bound) -> Int:
        return self._by(np.random.default_rng(1).random(len(self.open)), count)


ORDERS: dict[str, type[Settling]] = {
    "rankproof": Settling,
    "effect alone": ByEffect,
    "by rank": ByRank,
    "at random": AtRandom,
}


def needed(world: World, order: type[Settling], batch: int) -> tuple[int, int]:
    """Judgements until the better run is certain, and the holes there were."""
    view = View(world.runs, world.qrels, Policy(), scale=world.scale)
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
    """SciFact's test claims by BM25 and by wordllama's vectors, to rank 20."""
    import wordllama

    from rankproof.records.beir import read_corpus
    from rankproof.retrieval.sparse.bm25 import Bm25
    from rankproof.scoring import search

    corpus = read_corpus(SCIFACT)
    qrels = rp.read_qrels(corpus.qrels)
    judged = set(qrels.queries)
    asked = [p for p in zip(corpus.query_ids, corpus.queries, strict=True) if p[0] in judged]
    ids, texts = [q for q, _ in asked], [t for _, t in asked]
    words = Bm25(corpus.documents, corpus.document_ids).search(texts, 20, ids).run
    model = wordllama.WordLlama.load(
        cache_dir=Path(wordllama.__file__).parent, disable_download=True
    )
    asking, held = (
        np.asarray(model.embed(t, norm=True), np.float32) for t in (texts, corpus.documents)
    )
    dense = search(asking, held, 20, query_ids=ids, document_ids=corpus.document_ids)
    return [replace(words, name="BM25"), replace(dense, name="wordllama")], qrels


def scifact() -> World:
    """BM25 against wordllama; what SciFact does not label is not relevant."""
    runs, qrels = retrieved()
    return World(
        "SciFact, BM25 and wordllama", runs, qrels, lambda _query, _doc: 0, parse("nDCG@10"), 1
    )


# --------------------------------------------------------------------------------------- a story


def story() -> list[str]:
    """Two retrievers that are equal in truth, on a pool that one of them filled."""
    from rankproof.report import svg

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
    home = frames[1].group_by("query", maintain_order=True).head(10)
    pool: dict[str, dict[str, int]] = {query: {} for query in labels.queries}
    for query, doc, _ in home.rows():
        pool[query][doc] = truth[query, doc]
    qrels, measure = rp.read_qrels(pool), parse("RAnWG@10")
    view = View(runs, qrels, Policy())
    asked: Asked = []

    def judge(pairs: Asked) -> list[int]:
        asked.extend(pairs)
        return [truth[pair] for pair in pairs]

    done = Settling(view, measure, 0.0).run(judge, 50, None)
    total = done.holes
    steps = sorted({*range(0, total, max(1, total // 16)), total})
    states = []
    for step in steps:
        rows = [(query, doc, truth[query, doc]) for query, doc in asked[:step]]
        known = merged(qrels, rp.read_qrels(rows)) if rows else qrels
        states.append(View(runs, known, Policy()))
    bounds = [[state.run_bound(at, measure, [0, 1]) for state in states] for at in range(2)]
    lines = [
        "| retriever | judged | reported | lowest | highest | all judged |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    bars, series = [], []
    for at, run in enumerate(runs):
        first, true = bounds[at][0], bounds[at][-1].expected
        lines.append(
            f"| {run.name} | {view.judged(at, measure):.3f} | {first.expected:.3f} | "
            f"{first.lowest:.3f} | {first.highest:.3f} | {true:.3f} |"
        )
        tip = f"{run.name}: reported {first.expected:.3f}, all judged {true:.3f}"
        bars.append(svg.Bar(run.name, first.expected, first.lowest, first.highest, tip, true, at))
        series.append(
            svg.Series(
                run.name,
                x=[float(step) for step in steps],
                y=[b.expected for b in bounds[at]],
                low=[b.lowest for b in bounds[at]],
                high=[b.highest for b in bounds[at]],
            )
        )
    lines += ["", f"{total} holes; every grade drawn from the same distribution."]
    arms = svg.ranges(bars, "What holes leave open", axis="RAnWG@10; tick: all judged")
    _write("holes-arms", arms)
    closing = svg.curves(
        series, "Bounds close", across="holes judged", up="RAnWG@10: BM25 orange, wordllama blue"
    )
    _write("holes-closing", closing)
    return lines


def _write(name: str, drawn: str) -> None:
    """A chart as a file of its own that follows light and dark."""
    style = (files("rankproof.report") / "assets" / "page.css").read_text(encoding="utf-8")
    chart = str(drawn).partition("<div")[0]
    chart = chart.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    ground = "svg { background: var(--paper); font-family: system-ui, sans-serif; }"
    styled = chart.replace(">", f"><style>{style}\n{ground}</style>", 1)
    (IMAGES / f"{name}.svg").write_text(styled, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    chosen = parser.parse_args()
    lines = [*cost(chosen.queries, chosen.documents, chosen.repeat), "", *settling()]
    if SCIFACT.is_dir():
        lines += ["", *story()]
    results.record("Holes", lines)
