"""How far other judgments rank the same runs alike: τ_b, τ_AP, significant pairs, the top."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from rankproof_cli import in_text
from scipy import stats
from test_annotated_comparisons import Collection

import rankproof as rp
from rankproof.comparison.label_agreement import _agreement, tau_of_top
from rankproof.statistics.rank_similarity import kendall_tau

NDCG = rp.parse("nDCG@5")


def test_the_rank_correlation_of_the_top_is_that_of_its_definition() -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        reference, other = rng.permutation(7).astype(float), rng.permutation(7).astype(float)
        order = np.argsort(-other)
        shares = [
            np.mean([reference[above] > reference[order[i]] for above in order[:i]])
            for i in range(1, 7)
        ]
        assert tau_of_top(reference, other) == pytest.approx(2 * np.mean(shares) - 1)
    assert tau_of_top(np.arange(5.0), np.arange(5.0)) == 1.0
    assert tau_of_top(np.arange(5.0), -np.arange(5.0)) == -1.0
    assert tau_of_top(np.arange(5.0), np.zeros(5)) == 0.0


def test_rankings_pairs_and_the_top_are_those_of_two_leaderboards() -> None:
    data = Collection(1, queries=60)
    runs = {f"run{n}": data.run(0.3 + 0.15 * n) for n in range(8)}
    agreement = rp.leaderboard(data.truth, runs, "nDCG@5", against=data.judge)
    a = agreement.measures[NDCG]
    boards = [rp.leaderboard(labels, runs, "nDCG@5") for labels in (data.truth, data.judge)]
    ranks = [
        [int(board["nDCG@5"].rank[board.runs.index(name)]) for name in runs] for board in boards
    ]
    assert [a.rank.tolist(), a.other_rank.tolist()] == ranks
    assert a.tau == pytest.approx(stats.kendalltau(*ranks).statistic)
    labels = [rp.compare(qrels, runs, "nDCG@5") for qrels in (data.truth, data.judge)]
    pairs = [[c.verdict(x, y, NDCG).label for x, y in combinations(runs, 2)] for c in labels]
    significant = [{"ahead", "behind"} & {label} for label in pairs[0]]
    kept = sum(bool(s) and x == y for s, x, y in zip(significant, *pairs, strict=True))
    assert a.kept == kept
    assert a.kept + a.lost == sum(map(bool, significant))
    assert a.invented == sum(
        x == "undecided" and y in ("ahead", "behind") for x, y in zip(*pairs, strict=True)
    )
    leaves, enters = a.top(agreement.runs, 3)
    tops = [{n for n, r in zip(runs, rank, strict=True) if r <= 3} for rank in ranks]
    assert (set(leaves), set(enters)) == (tops[0] - tops[1], tops[1] - tops[0])
    shifts = [abs(float(str(row[3]))) for row in agreement.tables()[0].rows]
    assert shifts == sorted(shifts, reverse=True)


def test_the_same_judgments_agree_wholly() -> None:
    data = Collection(2, queries=40)
    runs = {f"run{n}": data.run(0.4 * n) for n in range(4)}
    a = rp.leaderboard(data.truth, runs, "nDCG@5", against=data.truth).measures[NDCG]
    assert (a.tau, a.tau_ap, a.lost, a.invented) == (1.0, 1.0, 0, 0)


def test_intervals_of_rank_correlations_cover() -> None:
    hits = []
    rng = np.random.default_rng(3)
    truth = np.array([0.5, 0.54, 0.58, 0.62, 0.66, 0.7])
    for sample in range(25):
        judged = truth + rng.normal(0, 0.04, 6)
        noise = rng.normal(0, 0.15, (6, 60))
        x = truth[:, None] + noise
        y = judged[:, None] + 0.7 * noise + rng.normal(0, 0.1, (6, 60))
        a = _agreement(x, y, [np.zeros(15)] * 2, 1, groups=None, seed=sample)
        tau = float(kendall_tau(truth[None], judged[None])[0])
        tau_ap = tau_of_top(truth, judged)
        hits.append(a.tau_ci[0] - 1e-9 <= tau <= a.tau_ci[1] + 1e-9)
        hits.append(a.tau_ap_ci[0] - 1e-9 <= tau_ap <= a.tau_ap_ci[1] + 1e-9)
    assert np.mean(hits) >= 0.9


def test_the_command_names_both_judgments_and_only_common_queries_count(tmp_path: Path) -> None:
    data = Collection(4, queries=30)
    words = []
    for name, labels in (("human", dict(list(data.truth.items())[:20])), ("judge", data.judge)):
        lines = [f"{q} 0 {d} {g}\n" for q, grades in labels.items() for d, g in grades.items()]
        (tmp_path / f"{name}.txt").write_text("".join(lines))
    for n in range(3):
        run = data.run(0.5 * n)
        lines = [f"{q} Q0 {d} 1 {s} t\n" for q, docs in run.items() for d, s in docs.items()]
        (tmp_path / f"r{n}.trec").write_text("".join(lines))
        words.append(str(tmp_path / f"r{n}.trec"))
    human, judge = str(tmp_path / "human.txt"), str(tmp_path / "judge.txt")
    stored = str(tmp_path / "result.json")
    done = in_text(
        "leaderboard", human, *words, "-m", "nDCG@5", "--against", judge, "--out", stored
    )
    assert "judge ranks 3 runs on nDCG@5 as human does with τ" in done.stdout, done
    assert "over 20 queries" in " ".join(done.stdout.split())
    verified = in_text("verify", stored, human, judge, *words)
    assert verified.returncode == 0, verified
