"""Verdicts with a judge's labels of all queries and annotators' labels of some."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rankproof_cli import in_text

import rankproof as rp
from rankproof.comparison.annotated import annotated_columns, pseudo_values
from rankproof.foundation.arrays import Float
from rankproof.statistics.family import critical_values
from rankproof.statistics.two_phase import two_phase_difference

Labels = dict[str, dict[str, int]]
Scores = dict[str, dict[str, float]]
NDCG = rp.parse("nDCG@5")


class Collection:
    """Queries with true grades, a judge who errs on some, and runs of known skill."""

    def __init__(self, seed: int, queries: int = 120, labeled: int = 40, errors: float = 0.1):
        self._rng = np.random.default_rng(seed)
        documents = [f"d{n}" for n in range(8)]
        self.truth: Labels = {
            f"q{q:03}": {d: int(self._rng.random() < 0.3) for d in documents} | {"d0": 1}
            for q in range(queries)
        }
        self.judge: Labels = {
            q: {d: g ^ int(self._rng.random() < errors) for d, g in grades.items()} | {"d0": 1}
            for q, grades in self.truth.items()
        }
        sample = self._rng.permutation(sorted(self.truth))[:labeled].tolist()
        self.human: Labels = {q: self.truth[q] for q in sample}

    def run(self, skill: float) -> Scores:
        return {
            q: {d: float(skill * g + self._rng.normal()) for d, g in grades.items()}
            for q, grades in self.truth.items()
        }


def test_the_interval_is_that_of_the_two_phase_difference() -> None:
    data = Collection(1)
    runs = {"a": data.run(1.2), "b": data.run(0.5)}
    verdict = rp.compare(data.judge, runs, "nDCG@5", human=data.human).verdict("a", "b", "nDCG@5")
    by_judge = [
        rp.evaluate(data.judge, run, "nDCG@5").outcomes[NDCG].in_mean() for run in runs.values()
    ]
    labeled = [
        rp.evaluate(data.human, run, "nDCG@5").outcomes[NDCG].in_mean() for run in runs.values()
    ]
    own = np.full(120, np.nan)
    own[[q in data.human for q in sorted(data.judge)]] = labeled[0] - labeled[1]
    expected = two_phase_difference(by_judge[0] - by_judge[1], own)
    assert verdict.ci == pytest.approx(expected.ci)
    assert verdict.estimate == pytest.approx(expected.estimate)
    assert verdict.worst_case == verdict.ci, "annotators' labels leave no bounds"
    assert verdict.judge_estimate == pytest.approx(np.mean(by_judge[0] - by_judge[1]))
    assert (verdict.annotated, verdict.depends_on) == (40, ())


def test_a_biased_judge_is_corrected() -> None:
    data = Collection(2, queries=200, labeled=60, errors=0.0)
    runs = {"a": data.run(1.5), "b": data.run(0.3)}
    # The judge calls relevant whatever b ranks first.
    judge = {
        q: dict.fromkeys(g, 0) | {max(runs["b"][q], key=runs["b"][q].__getitem__): 1}
        for q, g in data.truth.items()
    }
    alone = rp.compare(judge, runs, "nDCG@5", judge=True).verdict("a", "b", "nDCG@5")
    assert (alone.label, alone.depends_on) == ("behind", ("judge",))
    both = rp.compare(judge, runs, "nDCG@5", human=data.human)
    assert both.verdict("a", "b", "nDCG@5").label == "ahead"
    truth = rp.compare(data.truth, runs, "nDCG@5").verdict("a", "b", "nDCG@5").estimate
    ci = both.verdict("a", "b", "nDCG@5").ci
    assert ci is not None
    assert ci[0] < truth < ci[1]
    board = rp.leaderboard(judge, runs, "nDCG@5", human=data.human)
    assert board.runs == ("a", "b")
    gate = rp.gate(judge, runs["b"], runs["a"], "nDCG@5", human=data.human)
    assert gate.verdict == "passed"
    assert rp.gate(judge, runs["a"], runs["b"], "nDCG@5", human=data.human).verdict == "worse"
    assert rp.gate(judge, runs["b"], runs["a"], "nDCG@5", judge=True).verdict == "worse"


def test_few_annotated_queries_decide_nothing() -> None:
    data = Collection(3, labeled=5)
    runs = {"a": data.run(3.0), "b": data.run(0.0)}
    verdict = rp.compare(data.judge, runs, "nDCG@5", human=data.human).verdict("a", "b", "nDCG@5")
    assert (verdict.label, verdict.ci) == ("undecided", None)
    gate = rp.gate(data.judge, runs["a"], runs["b"], "nDCG@5", human=data.human)
    assert gate.verdict == "undecided"


def test_runs_that_differ_by_the_judges_labels_alone_are_not_equal() -> None:
    data = Collection(4)
    run = data.run(1.0)
    other = {
        q: scores if q in data.human else dict(zip(scores, reversed(scores.values()), strict=True))
        for q, scores in run.items()
    }
    label = rp.compare(data.judge, {"a": run, "b": other}, "nDCG@5", human=data.human)
    assert label.verdict("a", "b", "nDCG@5").label == "undecided"
    same = rp.compare(data.judge, {"a": run, "b": run}, "nDCG@5", human=data.human)
    assert same.verdict("a", "b", "nDCG@5").label == "equal"


def test_repeats_are_judged_by_annotators_labels_too() -> None:
    data = Collection(5)
    repeats, other = [data.run(0.9), data.run(1.3)], data.run(0.6)
    comparison = rp.compare(data.judge, {"a": repeats, "b": other}, "nDCG@5", human=data.human)
    whole = comparison.verdict("a", "b", "nDCG@5")
    alone = [
        rp.compare(data.judge, {"a": run, "b": other}, "nDCG@5", human=data.human).verdict(
            "a", "b", "nDCG@5"
        )
        for run in repeats
    ]
    assert whole.repeats_changed == np.mean([v.label != whole.label for v in alone])
    gate = rp.gate(data.judge, other, repeats, "nDCG@5", human=data.human).measures[NDCG]
    assert gate.verdict.ci == pytest.approx(whole.ci)


def simulated_differences(
    rng: np.random.Generator, runs: int, queries: int, labeled: int, quality: float
) -> tuple[Float, Float]:
    """Values (R, Q) of equally good runs by a judge, who is biased, and by annotators of some."""
    need = rng.normal(0.5, 0.15, queries)
    truth = np.clip(need + rng.normal(0, 0.15, (runs, queries)), 0, 1)
    noise = rng.normal(0, 0.15, (runs, queries))
    bias = np.linspace(0, 0.1, runs)[:, None]
    judge = np.clip(quality * truth + (1 - quality) * (need + noise) + bias, 0, 1)
    own = np.full((runs, queries), np.nan)
    at = rng.permutation(queries)[:labeled]
    own[:, at] = truth[:, at]
    return judge, own


@pytest.mark.parametrize(("labeled", "quality"), [(15, 0.7), (30, 0.8)])
def test_intervals_of_a_family_hold_together(labeled: int, quality: float) -> None:
    """Five equal runs that the judge ranks by a bias of up to .1: no claim in 95% of families."""
    rng = np.random.default_rng(labeled)
    first, second = np.triu_indices(5, 1)
    any_claim, covered = 0, []
    samples = 200
    for sample in range(samples):
        judge, own = simulated_differences(rng, 5, 200, labeled, quality)
        by_query = np.stack([pseudo_values(f, y) for f, y in zip(judge, own, strict=True)])
        (critical,) = critical_values([by_query], first, second, None, sample)
        columns = annotated_columns(
            judge[first] - judge[second], own[first] - own[second], 1.0, None, critical=critical
        )
        covered += ((columns["low"] <= 0) & (columns["high"] >= 0)).tolist()
        any_claim += bool(((columns["family_low"] > 0) | (columns["family_high"] < 0)).any())
    assert np.mean(covered) >= 0.92
    assert any_claim / samples <= 0.08


def test_pseudo_values_have_the_estimate_as_their_mean() -> None:
    judge, own = simulated_differences(np.random.default_rng(1), 2, 80, 25, 0.6)
    data = Collection(6)
    run = data.run(1.0)
    evaluation = rp.evaluate(data.judge, run, "nDCG@5", human=data.human)
    assert evaluation.annotators is not None
    assert evaluation.best_estimate(NDCG) == evaluation.annotators.estimates[NDCG].estimate
    for f, y in zip(judge, own, strict=True):
        difference = two_phase_difference(f, y)
        assert pseudo_values(f, y).mean() == pytest.approx(difference.estimate)


def test_the_command_line_names_judge_and_annotators(tmp_path: Path) -> None:
    data = Collection(7)
    files = {}
    for name, labels in (("judge", data.judge), ("human", data.human)):
        files[name] = str(tmp_path / name)
        lines = [f"{q} 0 {d} {g}\n" for q, grades in labels.items() for d, g in grades.items()]
        Path(files[name]).write_text("".join(lines))
    for name, skill in (("a", 1.5), ("b", 0.3)):
        files[name] = str(tmp_path / f"{name}.trec")
        run = data.run(skill)
        lines = [f"{q} Q0 {d} 1 {s} t\n" for q, scores in run.items() for d, s in scores.items()]
        Path(files[name]).write_text("".join(lines))
    sides = (files["b"], files["a"], "-m", "nDCG@5")
    for command in ("compare", "leaderboard", "gate"):
        alone = in_text(command, "--judge", files["judge"], *sides)
        assert "by this judge's labels" in alone.stdout.lower(), alone
        both = in_text(command, "--judge", files["judge"], "--human", files["human"], *sides)
        assert "Annotators labeled 40 of 120 queries" in both.stdout, both
        assert "judge's labels:" not in both.stdout
        plain = in_text(command, files["judge"], *sides)
        assert "judge's labels" not in plain.stdout
    too_many = in_text("gate", "--judge", files["judge"], files["judge"], *sides)
    assert too_many.returncode == 2
    assert "one file too many" in too_many.stderr


def test_a_baseline_without_lists_is_refused_beside_annotators(tmp_path: Path) -> None:
    data = Collection(8)
    stored = rp.evaluate(data.judge, data.run(1.0), "nDCG@5")
    with pytest.raises(rp.InputError, match="holds no lists"):
        rp.gate(data.judge, stored, data.run(1.0), "nDCG@5", human=data.human)
