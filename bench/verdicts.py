"""Whether intervals, families, ranks and gates keep what they state; part of bench/RESULTS.md.

    RANKPROOF_DATA=… VERDICT_PEERS=/path/to/python3.12 .venv/bin/python bench/verdicts.py

Populations are per-topic values of real systems: 1,109 SciFact claims under fifteen (BM25 with
several settings, on titles, on cut abstracts; static vectors of several sizes; fusions), and the
44 questions of the demo under twelve. Samples are drawn from a population with replacement, so
that the truth is known. Where all means must be equal, topics are drawn with the weights nearest
to equal ones that make them so (SciFact), or the runs of each topic are exchanged at random (demo).

VERDICT_PEERS is a Python with evalstats, evalconfidence, rag-ci and toolkit-rag-quality; without it
their columns are empty. `bench/verdicts.py unjudged` measures gates and labels on the demo
alone, with judgments taken away. What unjudged documents leave open is measured by bench/holes.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
import results
import wordllama

import rankproof as rp
from rankproof.data import read_run
from rankproof.data.tables import Run
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.retrieval.fusion import rrf
from rankproof.statistics.distributions import t_quantile
from rankproof.statistics.family import critical_values, critical_values_of_best
from rankproof.statistics.groups import means_of
from rankproof.statistics.intervals import (
    difference_intervals,
    few_changes_bound,
    mean_intervals,
    sequential_interval,
)
from rankproof.statistics.randomization import holm, randomization_test
from rankproof.statistics.ranks import rank_intervals
from rankproof.statistics.two_phase import two_phase_difference

MEASURES = ("nDCG@10", "AP", "Success@10", "R@10")
PEER_SAMPLES = 50
MARGIN = 0.02


@dataclass(frozen=True)
class Population:
    """Per-topic values of several systems."""

    names: list[str]
    values: dict[str, Float]  # (R, Q) by measure

    def row(self, name: str, measure: str) -> Float:
        values: Float = self.values[measure][self.names.index(name)]
        return values


# --------------------------------------------------------------------------------- populations


Labels = dict[str, dict[str, int]]


def read_folder(folder: Path) -> tuple[list[dict[str, str]], dict[str, str], Labels]:
    """Documents, texts of judged queries, and grades of a BEIR folder."""
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    asked = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    truth: Labels = {}
    for file in sorted((folder / "qrels").glob("*.tsv")):
        for line in file.read_text().splitlines()[1:]:
            query, doc, grade = line.split("\t")
            truth.setdefault(query, {})[doc] = int(grade)
    return rows, {row["_id"]: row["text"] for row in asked if row["_id"] in truth}, truth


def systems(
    rows: list[dict[str, str]], texts: dict[str, str], cuts: Sequence[int], dims: Sequence[int]
) -> dict[str, Run]:
    """The runs of every system by name."""
    docs = [row["_id"] for row in rows]
    full = [f"{row.get('title', '')} {row['text']}" for row in rows]
    runs: dict[str, Run] = {}

    def add(name: str, found: Array, scores: Array) -> None:
        lists = {
            query: {docs[d]: float(s) for d, s in zip(found[n], scores[n], strict=True)}
            for n, query in enumerate(texts)
        }
        runs[name] = read_run(lists, name=name)

    def bm25(name: str, passages: list[str], k1: float = 1.5, b: float = 0.75) -> None:
        index = bm25s.BM25(k1=k1, b=b)
        index.index(bm25s.tokenize(passages, show_progress=False), show_progress=False)
        tokens = bm25s.tokenize(list(texts.values()), show_progress=False)
        add(name, *index.retrieve(tokens, k=50, show_progress=False))

    bm25("bm25", full)
    for k1, b in ((0.9, 0.4), (2.0, 0.9), (1.2, 0.75), (1.5, 0.5)):
        bm25(f"bm25 k1={k1:g} b={b:g}", full, k1, b)
    bm25("title", [row.get("title", "") for row in rows])
    for cut in cuts:
        bm25(f"cut {cut}", [text[:cut] for text in full])
    folder = Path(wordllama.__file__).parent
    model = wordllama.WordLlama.load(cache_dir=folder, disable_download=True)
    of_docs, of_queries = (model.embed(list(t), norm=True) for t in (full, texts.values()))
    for dim in dims:
        scores = of_queries[:, :dim] @ of_docs[:, :dim].T
        top = np.argsort(-scores, axis=1)[:, :50]
        add(f"vectors {dim}", top, np.take_along_axis(scores, top, axis=1))
    for first, second in (("bm25", f"vectors {dims[0]}"), ("bm25", "title")):
        runs[f"{first} + {second}"] = rrf([runs[first], runs[second]])
    return runs


def population(folder: Path, cuts: Sequence[int], dims: Sequence[int]) -> Population:
    """Run every system on a BEIR folder and evaluate it."""
    rows, texts, truth = read_folder(folder)
    runs = systems(rows, texts, cuts, dims)
    values: dict[str, list[Float]] = {measure: [] for measure in MEASURES}
    for run in runs.values():
        frame = rp.evaluate(truth, run, list(MEASURES)).per_query
        for measure, rows_of in values.items():
            of_query = frame.filter(frame["measure"] == measure).select("query", "expected")
            held = dict(of_query.iter_rows())
            rows_of.append(np.array([held[query] for query in texts]))
    return Population(list(runs), {measure: np.array(rows) for measure, rows in values.items()})


def equal_weights(values: Float) -> Float:
    """(Q,) weights of topics, nearest to equal ones, with which all rows have the same mean."""
    x = (values - values.mean(axis=0)).T[:, :-1]
    tilt = np.zeros(x.shape[1])

    def objective(tilt: Float) -> float:
        logs = x @ tilt
        return float(np.log(np.exp(logs - logs.max()).sum()) + logs.max())

    for _ in range(200):
        weights = np.exp(x @ tilt - objective(tilt))
        gradient = weights @ x
        if np.abs(gradient).max() < 1e-10:
            break
        hessian = (x * weights[:, None]).T @ x - np.outer(gradient, gradient)
        step = np.linalg.solve(hessian + 1e-9 * np.eye(len(tilt)), gradient)
        while objective(tilt - step) > objective(tilt) + 1e-12 and np.abs(step).max() > 1e-12:
            step = step / 2
        tilt = tilt - step
    return np.asarray(weights / weights.sum())


def pairs_of(rows: int) -> tuple[Int, Int]:
    first, second = np.triu_indices(rows, 1)
    return first, second


def table(head: str, rows: Sequence[Sequence[object]], left: int = 1) -> list[str]:
    columns = [cell.strip() for cell in head.split("|")]
    marks = [":--"] * left + ["--:"] * (len(columns) - left)
    lines = [columns, marks, *[[str(cell) for cell in row] for row in rows]]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def share(flags: Any) -> str:
    return f"{float(np.mean(flags)):.3f}"


def covered(ends: Float, truth: float) -> Bool:
    known = ends[~np.isnan(ends[:, 0])]
    return np.asarray((known[:, 0] <= truth) & (truth <= known[:, 1]))


# ------------------------------------------------------------------------------------ intervals


def difference_rows(populations: dict[str, Population], rng: np.random.Generator) -> list[Any]:
    """Coverage of differences by size of the sample, over pairs; the worst pair."""
    rows = []
    for name, measure, sizes in (
        ("SciFact", "nDCG@10", (10, 30, 100)),
        ("SciFact", "Success@10", (30, 100)),
        ("demo", "nDCG@10", (10, 20, 40)),
    ):
        values = populations[name].values[measure]
        first, second = pairs_of(len(values))
        for n in sizes:
            cells = []
            for a, b in zip(first.tolist(), second.tolist(), strict=True):
                d = values[a] - values[b]
                hits = covered(
                    difference_intervals(d[rng.integers(0, len(d), (250, n))], 1.0), d.mean()
                )
                if len(hits) >= 60:
                    cells.append(
                        (
                            hits.mean(),
                            populations[name].names[a],
                            populations[name].names[b],
                            len(hits),
                        )
                    )
            worst = min(cells)
            hits_in_all = sum(c[0] * c[3] for c in cells) / sum(c[3] for c in cells)
            rows.append(
                [
                    f"{name}, {measure}",
                    n,
                    len(cells),
                    f"{hits_in_all:.3f}",
                    f"{worst[0]:.3f}",
                    f"{worst[1]} − {worst[2]}",
                ]
            )
    return rows


def mean_rows(populations: dict[str, Population], rng: np.random.Generator) -> list[Any]:
    """Coverage of means on the logit scale, beside Student's."""
    kinds: list[tuple[str, Float]] = [
        (f"SciFact, {m}, {run}", populations["SciFact"].row(run, m))
        for m, run in (("nDCG@10", "bm25"), ("AP", "vectors 64"), ("Success@10", "bm25"))
    ]
    kinds += [(f"Beta({a:g}, {b:g})", rng.beta(a, b, 400_000)) for a, b in ((0.3, 3), (0.1, 2))]
    rank = rng.integers(1, 61, 400_000)
    kinds.append(
        ("1/rank of 1 to 60, half of them 0", np.where(rng.random(400_000) < 0.5, 0, 1 / rank))
    )
    luck = rng.random(400_000)
    kinds.append(
        ("2% find nothing, 10% .99", np.select([luck < 0.02, luck < 0.12], [0.0, 0.99], 1.0))
    )
    rows = []
    for kind, values in kinds:
        for n in (6, 10, 20, 50):
            drawn = values[rng.integers(0, len(values), (1_500, n))]
            ends, means = mean_intervals(drawn), means_of(drawn)
            half = t_quantile(0.975, n - 1.0) * means.error
            truth = float(values.mean())
            student = np.stack([means.mean - half, means.mean + half], axis=1)
            rows.append(
                [
                    kind,
                    n,
                    share(covered(ends, truth)),
                    f"{np.diff(ends).mean():.3f}",
                    share(covered(student, truth)),
                ]
            )
    return rows


def sources(rng: np.random.Generator, d: Float, groups: Int, correlation: float) -> Float:
    """(n,) differences drawn from d; in a group each is one topic's with chance √correlation."""
    shared = rng.integers(0, len(d), int(groups.max()) + 1)[groups]
    single = rng.integers(0, len(d), len(groups))
    return np.asarray(d[np.where(rng.random(len(groups)) < np.sqrt(correlation), shared, single)])


def group_rows(populations: dict[str, Population], rng: np.random.Generator) -> list[Any]:
    """Coverage where questions share sources, of equal and of very unequal sizes."""
    scifact = populations["SciFact"]
    d = scifact.row("bm25", "nDCG@10") - scifact.row("vectors 64", "nDCG@10")
    rows = []
    for count in (8, 15, 30, 60):
        for sizes in ("equal", "Zipf"):
            for correlation in (0.05, 0.3):
                weights = 1 / np.arange(1, count + 1) if sizes == "Zipf" else np.ones(count)
                groups = np.sort(rng.choice(count, 300, p=weights / weights.sum()))
                drawn = np.stack([sources(rng, d, groups, correlation) for _ in range(800)])
                cells = [
                    covered(difference_intervals(drawn, 1.0, g), d.mean()) for g in (groups, None)
                ]
                p, _ = randomization_test(drawn[:200] - d.mean(), groups, permutations=2_000)
                rows.append(
                    [
                        f"{count}, {sizes}",
                        correlation,
                        share(cells[0]),
                        share(cells[1]),
                        share(p < 0.05),
                    ]
                )
    return rows


def judge_rows(populations: dict[str, Population], rng: np.random.Generator) -> list[Any]:
    """Coverage of differences by annotators' labels of n queries and a judge's of 300."""
    scifact = populations["SciFact"]
    d = scifact.row("bm25", "nDCG@10") - scifact.row("vectors 256", "nDCG@10")
    rows = []
    for errors in (0.1, 0.4):
        for n in (15, 30, 60):
            for count in (300, 30):
                groups = np.arange(300) % count
                hits, narrower = [], []
                for _ in range(200):
                    y = sources(rng, d, groups, 0.2 if count < 300 else 0.0)
                    wrong = d[rng.integers(0, len(d), 300)] + 0.1
                    judge = np.where(rng.random(300) < errors, wrong, y)
                    people = np.where(rng.permutation(300) < n, y, np.nan)
                    e = two_phase_difference(judge, people, 1.0, groups)
                    if not np.isnan(e.ci[0]):
                        hits.append(e.ci[0] <= d.mean() <= e.ci[1])
                        narrower.append((e.ci[1] - e.ci[0]) / (e.people_ci[1] - e.people_ci[0]))
                rows.append(
                    [f"errs on {errors:.0%}", n, count, share(hits), f"{np.mean(narrower):.2f}"]
                )
    return rows


def sequential_row(populations: dict[str, Population], rng: np.random.Generator) -> str:
    """A sentence on how often any of many looks misses."""
    scifact = populations["SciFact"]
    d = scifact.row("bm25", "nDCG@10") - scifact.row("vectors 256", "nDCG@10")
    missed = []
    for _ in range(300):
        drawn = d[rng.integers(0, len(d), 300)]
        ends = [sequential_interval(drawn[:n], 100) for n in range(8, 301, 6)]
        missed.append(any(low > d.mean() or high < d.mean() for low, high in ends))
    return (
        "Sequential intervals, 49 looks from 8 to 300 queries: any miss in "
        f"{share(missed)} of 300 series (stated: .05)."
    )


# ------------------------------------------------------------------------------------- families


@dataclass
class Families:
    """Counts over samples of one size."""

    false_claims: list[bool]
    false_best: list[bool]
    found: list[int]
    holm: list[int]
    lost: dict[str, list[int]]
    rank_hits: list[float]


def claims(values: Float, of_runs: int | None = None) -> tuple[Bool, Float]:
    """(P,) which pairs are significantly different together, and the differences' signs.

    All runs are one family; the pairs are those of the first `of_runs`.
    """
    first, second = pairs_of(len(values))
    d = values[first] - values[second]
    (critical,) = critical_values([values], first, second)
    ends = difference_intervals(d, 1.0, critical=critical)
    with np.errstate(invalid="ignore"):
        significant = (ends[:, 0] > 0) | (ends[:, 1] < 0)
    chosen = second < (of_runs or len(values))
    return significant[chosen], np.sign(d.mean(axis=1))[chosen]


def sample_families(
    values: Float, n: int, rounds: int, exchange: bool, rng: np.random.Generator
) -> Families:
    """Draw families as they are, and four times as many with equal means."""
    counts = Families([], [], [], [], {"a run of zeros": [], "a near copy": []}, [])
    weights = None if exchange else equal_weights(values)
    for _ in range(4 * rounds):
        null = values[:, rng.choice(values.shape[1], n, p=weights)]
        if exchange:
            null = rng.permuted(null, axis=0)
        counts.false_claims.append(bool(claims(null)[0].any()))
        best = int(null.mean(axis=1).argmax())
        critical = critical_values_of_best(null)
        ends = difference_intervals(null[best] - null, 1.0, critical=critical)
        counts.false_best.append(bool((ends[:, 0] > 0).any()))
    first, second = pairs_of(len(values))
    means = values.mean(axis=1)
    truth = np.sign(means[first] - means[second])
    rank = (means[:, None] < means).sum(axis=1) + 1
    for seed in range(rounds):
        drawn = values[:, rng.integers(0, values.shape[1], n)]
        significant, sign = claims(drawn)
        counts.found.append(int((significant & (sign == truth)).sum()))
        p, _ = randomization_test(drawn[first] - drawn[second], permutations=20_000)
        counts.holm.append(int(((holm(p) < 0.05) & (sign == truth)).sum()))
        copy = drawn[0].copy()
        copy[:6] = np.clip(copy[:6] + 0.02, 0, 1)
        for name, extra in (("a run of zeros", np.zeros(n)), ("a near copy", copy)):
            again, _ = claims(np.concatenate([drawn, extra[None]]), len(drawn))
            counts.lost[name].append(int((significant & ~again).sum()))
        low, high = rank_intervals(drawn, seed=seed)
        counts.rank_hits.append(float(((low <= rank) & (rank <= high)).mean()))
    return counts


def family_rows(populations: dict[str, Population], rng: np.random.Generator) -> list[Any]:
    rows = []
    for name, measure, sizes in (
        ("SciFact", "nDCG@10", (20, 30, 100)),
        ("SciFact", "Success@10", (50,)),
        ("demo", "nDCG@10", (20, 30, 44)),
    ):
        for n in sizes:
            values = populations[name].values[measure]
            c = sample_families(values, n, 50, name == "demo", rng)
            per40 = [f"{40 * sum(lost) / max(sum(c.found), 1):.2f}" for lost in c.lost.values()]
            rows.append(
                [
                    f"{name}, {measure}",
                    n,
                    share(c.false_claims),
                    share(c.false_best),
                    f"{np.mean(c.holm):.1f}",
                    f"{sum(c.found) / max(sum(c.holm), 1):.2f}",
                    *per40,
                    share(c.rank_hits),
                ]
            )
    return rows


def time_rows() -> list[Any]:
    rng = np.random.default_rng(3)
    rows = []
    for runs, queries in ((50, 1_000), (200, 50)):
        values = np.clip(rng.normal(0.5, 0.2, queries) + rng.normal(0, 0.1, (runs, queries)), 0, 1)
        begin = time.perf_counter()
        claims(values)
        rows.append([f"{runs} × {queries:,}", f"{time.perf_counter() - begin:.2f}"])
    return rows


# ---------------------------------------------------------------------------------------- gates


def passes(sample: Float) -> bool:
    """Whether a candidate passes: the low end of its interval is above −margin."""
    d = sample[1] - sample[0]
    low = float(difference_intervals(d[None], 1.0)[0, 0])
    return (few_changes_bound(d)[0] if np.isnan(low) else low) > -MARGIN


def ask_peers(samples: dict[str, Float]) -> dict[str, Any]:
    """What the peers answer; {} without an interpreter that has them."""
    python = os.environ.get("VERDICT_PEERS")
    if not python:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / name) for name in ("samples.npz", "answers.json")]
        np.savez(paths[0], **samples)  # type: ignore[arg-type]
        script = str(Path(__file__).with_name("verdict_peers.py"))
        subprocess.run([python, script, *paths], check=True)
        answers: dict[str, Any] = json.loads(Path(paths[1]).read_text())
    return answers


def peer_samples(
    scifact: Population, rng: np.random.Generator
) -> tuple[dict[str, Float], dict[str, float]]:
    """Samples (PEER_SAMPLES, 2, n) of baseline and candidate by name, and true differences."""
    samples, truth = {}, {}
    cases = [("intervals", m, "vectors 256") for m in ("nDCG@10", "Success@10")]
    cases += [
        ("gates", "R@10", run) for run in ("cut 700", "bm25 k1=1.2 b=0.75", "bm25 k1=2 b=0.9")
    ]
    for kind, measure, run in cases:
        rows = np.stack([scifact.row("bm25", measure), scifact.row(run, measure)])
        for n in (15, 30, 100) if kind == "intervals" else (30, 100, 300):
            picks = rng.integers(0, rows.shape[1], (PEER_SAMPLES, n))
            name = f"{kind}|{measure}|{run}|{n}"
            samples[name] = np.moveaxis(rows[:, picks], 0, 1)
            truth[name] = float(rows[1].mean() - rows[0].mean())
    return samples, truth


def peer_rows(scifact: Population, rng: np.random.Generator) -> tuple[list[Any], list[Any], str]:
    samples, truth = peer_samples(scifact, rng)
    found = ask_peers(samples)
    intervals, gates = [], []
    for name, stack in samples.items():
        kind, measure, run, n = name.split("|")
        case = [f"{measure}, {run}", n, f"{truth[name]:+.3f}"]
        if kind == "gates":
            cells = [share([passes(sample) for sample in stack])]
            peers = ("rag-ci", "toolkit-rag-quality")
            cells += [share(found["answers"][f"{name}|{p}"]) if found else "" for p in peers]
            gates.append([*case, *cells])
            continue
        ends = difference_intervals(stack[:, 1] - stack[:, 0], 1.0)
        cells = [share(covered(ends, truth[name]))]
        for peer in ("evalstats", "evalconfidence"):
            cells.append(
                share(covered(np.array(found["answers"][f"{name}|{peer}"]), truth[name]))
                if found
                else ""
            )
        intervals.append([*case, *cells])
    note = (
        ", ".join(f"{p} {v} {found['ms'][p]:.1f} ms" for p, v in found["versions"].items())
        if found
        else "not measured"
    )
    return intervals, gates, note


def rare_rows(scifact: Population, rng: np.random.Generator) -> list[Any]:
    """False passes of a candidate that finds nothing for a share of the queries."""
    baseline, rows = scifact.row("bm25", "nDCG@10"), []
    for failing in (0.03, 0.05, 0.1):
        broken = np.where(rng.random(len(baseline)) < failing, 0.0, baseline)
        loss = float((broken - baseline).mean())
        for n in (30, 50, 100, 300):
            picks = rng.integers(0, len(baseline), (1_000, n))
            stack = np.stack([baseline[picks], broken[picks]], axis=1)
            seen = "yes" if (broken != baseline).mean() >= 3 / n else "no: blind share"
            rows.append(
                [
                    f"{failing:.0%}",
                    n,
                    f"{loss:+.3f}",
                    seen,
                    share([passes(s) for s in stack]) if loss < -MARGIN else "–",
                ]
            )
    return rows


# ------------------------------------------------------------------------ judgments taken away


@dataclass(frozen=True)
class Judged:
    """The demo's systems with a grade for every document that they list in their top 10."""

    runs: dict[str, Run]
    grades: Labels  # 0 for what the demo does not judge


def fully_judged(folder: Path) -> Judged:
    rows, texts, truth = read_folder(folder)
    runs = systems(rows, texts, (100, 200), (256, 64))
    grades = {query: dict(truth[query]) for query in texts}
    for run in runs.values():
        for query, docs in top_ten(run).items():
            for doc in docs:
                grades[query].setdefault(doc, 0)
    return Judged(runs, grades)


def top_ten(run: Run) -> dict[str, list[str]]:
    frame = run.to_frame().sort("score", descending=True, maintain_order=True)
    by_query = frame.group_by("query", maintain_order=True)
    return {str(query): rows["doc"].head(10).to_list() for (query,), rows in by_query}


def values_of(grades: Labels, run: Run) -> dict[str, float]:
    frame = rp.evaluate(grades, run, "nDCG@10").per_query
    return dict(frame.select("query", "expected").iter_rows())


def gate_rows(judged: Judged, rng: np.random.Generator, samples: int) -> list[Any]:
    """False "worse" of gates on 30 questions, by the share of the other documents still judged."""
    complete = {name: values_of(judged.grades, run) for name, run in judged.runs.items()}
    rows = []
    for kept in (1.0, 0.9, 0.7, 0.0):
        counts: dict[str, list[bool]] = {"worse": [], "false": [], "as judged": [], "plain": []}
        shares = []
        for base in ("bm25", "vectors 256", "cut 200"):
            pool = top_ten(judged.runs[base])
            for name in [n for n in judged.runs if n != base]:
                gain = float(
                    np.mean([complete[name][q] - complete[base][q] for q in judged.grades])
                )
                for _ in range(samples):
                    drawn = rng.choice(sorted(judged.grades), 30, replace=False).tolist()
                    grades = {
                        q: {
                            d: g
                            for d, g in judged.grades[q].items()
                            if d in pool[q] or rng.random() < kept
                        }
                        for q in drawn
                    }
                    gate = rp.gate(grades, judged.runs[base], judged.runs[name], "nDCG@10", MARGIN)
                    (result,) = gate.measures.values()
                    judged_shares = result.difference.judged or (1.0, 1.0)
                    shares.append(judged_shares[0])
                    is_worse = gate.verdict == "worse"
                    mostly = min(judged_shares) < 0.5
                    counts["worse"].append(is_worse)
                    counts["as judged"].append(is_worse and mostly and gain >= 0)
                    counts["false"].append(is_worse and not mostly and gain >= 0)
                    high = result.difference.ci[1] if result.difference.ci else 0.0
                    counts["plain"].append(high < 0 and gain >= 0)
        rows.append([f"{kept:.0%}", share(shares), len(shares), *map(share, counts.values())])
    return rows


def label_rows(judged: Judged, rng: np.random.Generator, samples: int) -> list[Any]:
    """Labels of `compare` that one more run removes, of 40 that are ahead or behind."""
    rows = []
    for n in (20, 30, 44):
        labels, lost = 0, {"zeros": 0, "copy": 0}
        for _ in range(samples):
            grades = {q: judged.grades[q] for q in rng.choice(sorted(judged.grades), n, False)}
            before = significant_pairs(grades, judged.runs)
            labels += len(before)
            for name, extra in extra_runs(judged.runs["bm25"]).items():
                after = significant_pairs(grades, judged.runs | {name: extra})
                lost[name] += len(before - after)
        rows.append(
            [n, f"{labels / samples:.1f}", *(f"{40 * x / labels:.2f}" for x in lost.values())]
        )
    return rows


def significant_pairs(grades: Labels, runs: dict[str, Run]) -> set[tuple[str, str]]:
    compared = rp.compare(grades, runs, "nDCG@10")
    return {
        (pair["a"], pair["b"])
        for pair in compared.to_dict()["pairs"]
        if pair["measures"]["nDCG@10"]["verdict"]["label"] in ("ahead", "behind")
    }


def extra_runs(run: Run) -> dict[str, Run]:
    """A run that finds nothing, and one that swaps the first two documents of six lists."""
    lists = {
        query: {d: -float(rank) for rank, d in enumerate(docs)}
        for query, docs in top_ten(run).items()
    }
    copy = {query: dict(scores) for query, scores in lists.items()}
    for query in list(copy)[:6]:
        first, second = list(copy[query])[:2]
        copy[query][first], copy[query][second] = copy[query][second], copy[query][first]
    return {
        "zeros": read_run({query: {"none": 1.0} for query in lists}, name="zeros"),
        "copy": read_run(copy, name="copy"),
    }


def record_unjudged(samples: int = 5) -> None:
    """Write the section on gates and labels where judgments are taken away."""
    begin = time.perf_counter()
    rng = np.random.default_rng(48)
    judged = fully_judged(Path(rp.__file__).parent / "resources" / "demo")
    lines = [
        f"Made by `bench/verdicts.py unjudged`. The demo's 12 systems, nDCG@10, margin {MARGIN:g}; "
        "gates of three baselines against all others on 30 of the 44 questions. The baseline's top "
        "10 is judged, and a share of all other documents (not of those tied at rank 10). The "
        "truth is the difference over 44 questions with all judgments; "
        'a "worse" is false where that is not below 0. "As judged": less than half of a top 10 is '
        "judged. The last column is the "
        "interval alone, without the worst cases of unjudged documents.",
        "",
        *table(
            "others judged | candidate's share | gates | worse | false worse | false, as judged "
            "| interval alone",
            gate_rows(judged, rng, samples),
        ),
        f"Labels ahead or behind of all 66 pairs by `compare`, {samples} samples, and how many of "
        "40 one more run removes:",
        "",
        *table("n | labels | run of zeros | near copy", label_rows(judged, rng, samples)),
    ]
    lines.append(f"The whole took {time.perf_counter() - begin:.0f} s.")
    results.record("What gates and labels keep where judgments are taken away", lines)


# ------------------------------------------------------------------------------------- the report


def main() -> None:
    begin = time.perf_counter()
    rng = np.random.default_rng(48)
    demo = Path(rp.__file__).parent / "resources" / "demo"
    populations = {
        "SciFact": population(
            Path(os.environ["RANKPROOF_DATA"]) / "scifact", (200, 500, 700, 900), (256, 128, 64)
        ),
        "demo": population(demo, (100, 200), (256, 64)),
    }
    scifact = populations["SciFact"]
    intervals, gates, note = peer_rows(scifact, rng)
    lines = [
        "Stated: 95% intervals, 5% of families with a false claim. Made by `bench/verdicts.py`, "
        "which says how samples are drawn.",
        "",
        "Differences, Student's interval; all pairs of systems, 250 samples each:",
        "",
        *table(
            "population | n | pairs | covers | worst pair | which",
            difference_rows(populations, rng),
        ),
        "Means, logit interval beside Student's; 1,500 samples:",
        "",
        *table("values | n | covers | width | Student's", mean_rows(populations, rng)),
        "300 questions that share sources, BM25 − vectors 64, nDCG@10; 800 samples; p of sign "
        "flips of groups where the mean is 0:",
        "",
        *table(
            "sources | correlation | CR2 covers | Student's | p < .05", group_rows(populations, rng)
        ),
        "Annotators' labels of n of 300 queries with a judge's of all; differences; 200 samples; "
        "300 sources: every query its own:",
        "",
        *table(
            "judge | n | sources | covers | width / annotators' alone", judge_rows(populations, rng)
        ),
        sequential_row(populations, rng),
        "",
        "Families of all pairs, 50 samples and 200 with equal means: a false claim at equal means "
        "(over all pairs; of the best against the others), true differences that Holm finds, the "
        "share of these that max-T finds, labels lost of 40 by one more run, true ranks inside "
        "their intervals:",
        "",
        *table(
            "population | n | false | false best | Holm | found | run of zeros | near copy | ranks",
            family_rows(populations, rng),
        ),
        "Seconds for all labels of runs × queries:",
        "",
        *table("size | s", time_rows()),
        f"Beside other packages, {PEER_SAMPLES} samples; intervals of candidate − BM25 that cover "
        "(rankproof's where six queries or more differ, at 15 a few samples); "
        f"time of a comparison: {note}.",
        "",
        *table(
            "candidate | n | true difference | rankproof | evalstats | evalconfidence", intervals
        ),
        f"Gates, margin {MARGIN:g} (rag-ci: least effect; toolkit-rag-quality: budget, α .05): "
        "share that passes.",
        "",
        *table("candidate | n | true difference | rankproof | rag-ci | toolkit-rag-quality", gates),
        "A candidate that finds nothing for some queries: share that passes, of 1,000.",
        "",
        *table(
            "queries that fail | n | true difference | at least 3/n | passes",
            rare_rows(scifact, rng),
        ),
    ]
    lines.append(f"The whole took {time.perf_counter() - begin:.0f} s.")
    results.record("What verdicts keep of what they state", lines)


if __name__ == "__main__":
    record_unjudged() if sys.argv[1:] == ["unjudged"] else main()
