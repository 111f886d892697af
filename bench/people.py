"""How many of people's labels a judge saves, on SciFact; writes its part of bench/RESULTS.md.

    RANKPROOF_DATA=… .venv/bin/python bench/people.py

People are SciFact's own test labels (300 claims), the run is BM25's, the measure nDCG@10. Three
judges label the first thirty of each list: one that calls the nearest by word vectors relevant, and
two that know the labels and err. Of 300 queries n are drawn for people, 1,000 times; how often the
interval holds what all 300 of people's say, how wide it is, and what people alone would have.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import bm25s
import numpy as np
import results
import wordllama

import rankproof as rp
from rankproof.statistics.agreement import cohen_kappa
from rankproof.statistics.two_phase import two_phase

DEPTH, ROUNDS = 30, 1_000
Labels = dict[str, dict[str, int]]


def lines(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def judges(
    run: dict[str, dict[str, float]], truth: Labels, texts: dict[str, str]
) -> dict[str, Labels]:
    """Labels of each judge, of the first documents of each list."""
    loaded = wordllama.WordLlama.load(
        cache_dir=Path(wordllama.__file__).parent, disable_download=True
    )
    names = sorted({*texts})
    vectors = loaded.embed([texts[name] for name in names], norm=True)
    at = {name: i for i, name in enumerate(names)}
    draw = np.random.default_rng(0)
    found: dict[str, Labels] = {"nearest by word vectors": {}, "errs much": {}, "errs little": {}}
    for query, docs in run.items():
        shown = sorted(docs, key=lambda doc: -docs[doc])[:DEPTH]
        near = vectors[[at[doc] for doc in shown]] @ vectors[at[f"query {query}"]]
        found["nearest by word vectors"][query] = {
            doc: int(n == near.argmax()) for n, doc in enumerate(shown)
        }
        for name, hit, false in (("errs much", 0.7, 0.03), ("errs little", 0.9, 0.005)):
            found[name][query] = {
                doc: int(draw.random() < (hit if truth[query].get(doc) else false)) for doc in shown
            }
    return found


def main() -> None:
    folder = Path(os.environ["RANKPROOF_DATA"]) / "scifact"
    corpus = {row["_id"]: f"{row['title']} {row['text']}" for row in lines(folder / "corpus.jsonl")}
    asked = {row["_id"]: row["text"] for row in lines(folder / "queries.jsonl")}
    truth: Labels = {}
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query, doc, grade = line.split("\t")
        truth.setdefault(query, {})[doc] = int(grade)
    names = list(corpus)
    index = bm25s.BM25()
    index.index(bm25s.tokenize(list(corpus.values()), show_progress=False), show_progress=False)
    queries = list(truth)
    tokens = bm25s.tokenize([asked[q] for q in queries], show_progress=False)
    docs, scores = index.retrieve(tokens, k=100, show_progress=False)
    run = {
        query: {names[d]: float(s) for d, s in zip(docs[n], scores[n], strict=True)}
        for n, query in enumerate(queries)
    }
    texts = corpus | {f"query {query}": asked[query] for query in queries}

    def values(labels: Labels) -> np.ndarray:
        frame = rp.evaluate(labels, run, "nDCG@10").per_query
        held = dict(frame.select("query", "expected").iter_rows())
        return np.array([held.get(query, 0.0) for query in queries])

    people = values(truth)
    rows = []
    for name, labels in judges(run, truth, texts).items():
        judge = values(labels)
        pairs = [(g, truth[q].get(d, 0)) for q in queries for d, g in labels[q].items()]
        kappa = cohen_kappa([a for a, _ in pairs], [b for _, b in pairs]).value
        rho = np.corrcoef(np.nan_to_num(judge), people)[0, 1]
        for n in (15, 30, 60):
            draw = np.random.default_rng(n)
            told = []
            for _ in range(ROUNDS):
                some = np.full(len(people), np.nan)
                chosen = draw.permutation(len(people))[:n]
                some[chosen] = people[chosen]
                e = two_phase(judge, some)
                inside = float(e.ci[0] <= people.mean() <= e.ci[1])
                widths = (e.ci[1] - e.ci[0], e.people_ci[1] - e.people_ci[0])
                told.append((inside, *widths, float(e.used), e.worth))
            covered, width, alone, used, _ = np.mean(told, axis=0)
            worth = np.median([each[4] for each in told])
            cells = [f"{kappa:.2f}", f"{np.nanmean(judge):.3f}", f"{rho:.2f}", str(n)]
            cells += [f"{used:.2f}", f"{covered:.3f}", f"{width:.3f}", f"{alone:.3f}"]
            cells.append(f"{worth:.0f}")
            cells.append(f"{DEPTH * n * ((alone / width) ** 2 - 1):,.0f}")
            rows.append(f"| {name} | {' | '.join(cells)} |")
    results.record(
        "People's labels that a judge saves",
        [
            f"SciFact, {len(queries)} test claims, BM25, nDCG@10 by people {people.mean():.3f}; "
            f"judges label the first {DEPTH} of each list; n of people's queries drawn {ROUNDS:,} "
            "times. Used: how often people saw enough of how the judge errs, else the interval is "
            "theirs alone. Worth: the median of what is printed; saved: people's labels that were "
            "to be added for intervals as narrow as these are on average. "
            "Made by `bench/people.py`.",
            "",
            "| judge | κ | nDCG@10 by it | ρ | n | used | covers | width | people alone | worth "
            "| saved |",
            "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
            *rows,
        ],
    )


if __name__ == "__main__":
    main()
