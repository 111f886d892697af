"""Make the two runs and the judgements that ship with the package.

    python examples/make_demo_runs.py src/rankproof/data

Two rerankers score the same candidates. `plain` is a fair model whose scores are distinct.
`saturated` is a slightly worse model that ends in a bfloat16 sigmoid: near 1 only a few scores
are left, so candidates tie. The candidate files list the judged documents first, as reranking
data sets do, and a stable sort keeps that order inside ties.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from rankproof.data.ties import round_scores

QUERIES, CANDIDATES, RELEVANT = 30, 40, 4


def make(folder: Path) -> None:
    generator = np.random.default_rng(19)
    grades = np.zeros((QUERIES, CANDIDATES), np.int64)
    grades[:, :RELEVANT] = np.sort(generator.integers(1, 4, (QUERIES, RELEVANT)))[:, ::-1]
    quality = grades * 0.9 + generator.normal(0.0, 1.1, grades.shape)
    plain = quality + generator.normal(0.0, 0.5, grades.shape)
    noisy = quality + generator.normal(0.0, 0.75, grades.shape)
    saturated = round_scores(1.0 / (1.0 + np.exp(-(noisy + 3.5))), "bfloat16")
    ids = np.array([f"doc{n:04d}" for n in generator.permutation(QUERIES * CANDIDATES)])
    ids = ids.reshape(grades.shape)

    def lines(scores: np.ndarray[tuple[int, int], np.dtype[np.float64]], tag: str) -> str:
        rows = []
        for q in range(QUERIES):
            ranked = np.argsort(-scores[q], kind="stable")
            for rank, d in enumerate(ranked, 1):
                rows.append(f"q{q + 1:02d} Q0 {ids[q, d]} {rank} {scores[q, d]:.10g} {tag}\n")
        return "".join(rows)

    judged = [
        f"q{q + 1:02d} 0 {ids[q, d]} {grades[q, d]}\n"
        for q in range(QUERIES)
        for d in range(2 * RELEVANT)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "demo-qrels.txt").write_text("".join(judged))
    (folder / "demo-plain.trec").write_text(lines(plain, "plain"))
    (folder / "demo-saturated.trec").write_text(lines(saturated, "saturated"))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
