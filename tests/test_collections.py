"""Runs over several collections: macro means, verdicts on them, Borda counts and mean ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rankproof_cli import in_text
from scipy import stats

import rankproof as rp
from rankproof.comparison.tasks import _macro_means, _pair_columns, _pooled, combine_tasks
from rankproof.foundation.arrays import Float, Int
from rankproof.statistics.family import critical_values

Scores = dict[str, dict[str, float]]
Task = tuple[dict[str, dict[str, int]], dict[str, Scores]]
RR = rp.parse("RR")


def make_task(seed: int, queries: int, shares: dict[str, float]) -> Task:
    """Judgments with one relevant document, which each run lists first on a share of queries."""
    rng = np.random.default_rng(seed)
    qrels = {f"q{q:02}": {"r": 1, "n": 0} for q in range(queries)}
    runs: dict[str, Scores] = {
        name: {q: {"r": float(rng.random() < share), "n": 0.5} for q in qrels}
        for name, share in shares.items()
    }
    return qrels, runs


TASKS = {
    "small": make_task(1, 20, {"a": 0.9, "b": 0.4, "c": 0.5}),
    "large": make_task(2, 90, {"a": 0.8, "b": 0.5, "c": 0.6}),
    "middle": make_task(3, 40, {"a": 0.7, "b": 0.6}),
}


def draw_tables(
    rng: np.random.Generator, runs: int, sizes: tuple[int, ...]
) -> list[tuple[Float, Int]]:
    """Values of equally good runs on tasks of these sizes, the smaller the more variable."""
    return [
        (np.clip(rng.normal(0.5, 0.3 / np.sqrt(t + 1), (runs, n)), 0, 1), np.arange(n))
        for t, n in enumerate(sizes)
    ]


def test_two_tasks_of_one_variance_have_the_degrees_of_both() -> None:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=12), rng.normal(size=30) * 3
    parts = [(float(v.mean()), float(v.var(ddof=1) / len(v)), len(v) - 1.0) for v in (x, y)]
    mean, variance, df = combine_tasks(parts)
    welch = stats.ttest_ind(x, -y, equal_var=False)  # of x̄ + ȳ
    assert mean == pytest.approx((x.mean() + y.mean()) / 2)
    assert (mean / np.sqrt(variance), df) == pytest.approx((welch.statistic, welch.df))


def test_the_mean_over_tasks_counts_every_task_alike() -> None:
    collection = rp.leaderboard(tasks=TASKS, measures="RR")
    s = collection.measures[RR]
    assert s.runs == ("a", "b")
    means = {
        name: np.mean(
            [rp.evaluate(q, runs[name], "RR")["RR"].expected for q, runs in TASKS.values()]
        )
        for name in s.runs
    }
    assert s.means == pytest.approx([means["a"], means["b"]])
    verdict = collection.verdict("a", "b", RR)
    assert verdict.estimate == pytest.approx(means["a"] - means["b"])
    assert verdict.queries == 150
    assert verdict == collection.verdict("b", "a", RR).reversed()
    assert verdict.label == "ahead"


def test_a_run_without_a_task_has_no_macro_mean() -> None:
    collection = rp.leaderboard(tasks=TASKS, measures="RR")
    assert collection.incomplete == {"c": ["middle"]}
    assert "c has no run on middle: no macro mean." in collection.summary().notes
    assert collection.tables()[0].rows[-1][:3] == [None, "c", None]
    two = {name: task for name, task in TASKS.items() if name != "middle"}
    assert set(rp.leaderboard(tasks=two, measures="RR").measures[RR].runs) == {"a", "b", "c"}
    apart = {"x": TASKS["small"], "y": make_task(9, 10, {"d": 0.5, "e": 0.5})}
    with pytest.raises(rp.InputError, match="0 runs have all of 2 tasks"):
        rp.leaderboard(tasks=apart, measures="RR")


def test_borda_counts_the_runs_that_each_run_beats() -> None:
    exact = {"q1": {"r": 1, "n": 0}}
    first, last = {"q1": {"r": 1.0, "n": 0.0}}, {"q1": {"r": 0.0, "n": 1.0}}
    tie = {"q1": {"r": 0.5, "n": 0.5}}
    tasks = {
        "x": (exact, {"a": first, "b": last, "c": last}),
        "y": (exact, {"a": first, "b": tie, "c": last}),
    }
    s = rp.leaderboard(tasks=tasks, measures="RR").measures[RR]
    assert dict(zip(s.runs, s.borda, strict=True)) == {"a": 4.0, "b": 1.5, "c": 0.5}
    assert dict(zip(s.runs, s.rank, strict=True)) == {"a": 1.0, "b": 2.0, "c": 2.5}


@pytest.mark.parametrize("sizes", [(8, 30, 120), (25, 25)])
def test_intervals_of_means_over_tasks_cover(sizes: tuple[int, ...]) -> None:
    """Of five equal runs the intervals cover 0, and those of the family do together.

    With 200 samples the intervals cover .95 and .96; .04 and .03 of families have a false claim.
    """
    rng = np.random.default_rng(len(sizes))
    first, second = np.triu_indices(5, 1)
    covered, any_claim, samples = [], 0, 50
    for sample in range(samples):
        tables = draw_tables(rng, 5, sizes)
        (critical,) = critical_values([_pooled(tables)], first, second, None, sample)
        columns = [
            _pair_columns(tables, a, b, float(c), RR)
            for a, b, c in zip(first.tolist(), second.tolist(), critical, strict=True)
        ]
        covered += [x["low"] <= 0 <= x["high"] for x in columns]
        any_claim += any(x["family_low"] > 0 or x["family_high"] < 0 for x in columns)
    assert np.mean(covered) >= 0.92
    assert any_claim / samples <= 0.12


def test_mean_ranks_are_covered_by_their_intervals() -> None:
    rng = np.random.default_rng(7)
    truth = np.array([0.6, 0.5, 0.45])
    hits = []
    for sample in range(100):
        tables = [
            (np.clip(truth[:, None] + rng.normal(0, 0.2, (3, n)), 0, 1), np.arange(n))
            for n in (30, 60)
        ]
        s = _macro_means(RR, ("a", "b", "c"), tables, np.zeros(3), seed=sample, equal_within=None)
        at = [s.runs.index(name) for name in "abc"]
        inside = (s.rank_ci[at, 0] <= [1, 2, 3]) & (s.rank_ci[at, 1] >= [1, 2, 3])
        hits.append(inside.mean())
    assert np.mean(hits) >= 0.9


def gated_tasks(candidate: str, baseline: str, names: list[str]) -> dict[str, object]:
    return {n: (TASKS[n][0], (TASKS[n][1][baseline], TASKS[n][1][candidate])) for n in names}


def test_a_worse_task_makes_the_gate_worse_though_the_mean_gains() -> None:
    names = ["small", "large", "middle"]
    passed = rp.gate(tasks=gated_tasks("a", "b", names), measures="RR")
    assert (passed.verdict, passed.exit_code) == ("passed", 0)
    mixed = gated_tasks("a", "b", ["small", "large"]) | {
        "reversed": (TASKS["large"][0], (TASKS["large"][1]["a"], TASKS["large"][1]["b"]))
    }
    gate = rp.gate(tasks=mixed, measures="RR")
    assert gate.mean_verdict(RR).estimate > 0
    assert (gate.verdict, gate.exit_code, bool(gate)) == ("worse", 1, False)
    assert str(gate).startswith("WORSE (exit 1): in reversed, ")
    assert gate.junit().count("<testsuite ") == 3


def test_a_mean_that_is_not_shown_to_hold_is_undecided() -> None:
    gate = rp.gate(tasks=gated_tasks("c", "b", ["small", "large"]), measures="RR", margin=0.0)
    assert gate.verdict == "undecided"
    allowed = rp.gate(
        tasks=gated_tasks("c", "b", ["small", "large"]),
        measures="RR",
        margin=0.0,
        allow_undecided=True,
    )
    assert (gate.exit_code, allowed.exit_code) == (3, 0)


def write_task(folder: Path, task: Task) -> None:
    folder.mkdir(parents=True)
    qrels, runs = task
    lines = [f"{q} 0 {d} {g}\n" for q, grades in qrels.items() for d, g in grades.items()]
    (folder / "qrels.txt").write_text("".join(lines))
    for name, run in runs.items():
        lines = [f"{q} Q0 {d} 1 {s} t\n" for q, docs in run.items() for d, s in docs.items()]
        (folder / f"{name}.trec").write_text("".join(lines))


def test_a_folder_of_task_folders_names_the_same_tasks_as_options(tmp_path: Path) -> None:
    for name, task in TASKS.items():
        write_task(tmp_path / "tasks" / name, task)
    by_folder = in_text("leaderboard", str(tmp_path / "tasks"), "-m", "RR", "--format", "csv")
    words = []
    for name, (_, runs) in sorted(TASKS.items()):
        place = tmp_path / "tasks" / name
        files = [str(place / "qrels.txt"), *(str(place / f"{run}.trec") for run in runs)]
        words += ["--task", f"{name}={','.join(files)}"]
    for command in ("leaderboard", "compare"):
        by_option = in_text(command, *words, "-m", "RR", "--format", "csv")
        assert by_option.stdout == by_folder.stdout != ""
    result = rp.compare(str(tmp_path / "tasks"), measures="RR")
    assert result.to_dict()["tasks"].keys() == TASKS.keys()


def test_predictions_of_mteb_are_named_by_their_folders(tmp_path: Path) -> None:
    qrels, runs = TASKS["small"]
    write_task(tmp_path / "t", (qrels, {}))
    words = []
    for model in ("a", "b"):
        (tmp_path / model).mkdir()
        path = tmp_path / model / "Small_predictions.json"
        head = '{"mteb_model_meta": {"model_name": "m"}, "default": {"test": '
        path.write_text(head + str(runs[model]).replace("'", '"') + "}}")
        words.append(str(path))
    task = f"Small={tmp_path / 't' / 'qrels.txt'},{','.join(words)}"
    done = in_text("leaderboard", "--task", task, "-m", "RR", "--format", "json")
    assert '"a"' in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("leaderboard",), "no run is named"),
        (("leaderboard", "--task", "x"), "is not a task"),
        (("compare", "q.txt", "--task", "x=q,a,b"), "judgments beside tasks"),
        (("gate", "--task", "x=q,a"), "1 runs"),
        (("compare", "--task", "x=q,a,b", "--task", "x=q,a,b"), "two tasks of one name"),
    ],
)
def test_tasks_that_are_not_described_right_are_refused(
    words: tuple[str, ...], message: str
) -> None:
    done = in_text(*words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_groups_that_lie_unused_beside_the_judgments_are_named_once(tmp_path: Path) -> None:
    write_task(tmp_path / "t", TASKS["small"])
    place = tmp_path / "t"
    words = [str(place / name) for name in ("qrels.txt", "a.trec", "b.trec")]
    groups = place / "groups.tsv"
    assert "groups.tsv" not in in_text("compare", *words, "-m", "RR").stderr
    groups.write_text("query\tgroup\nq00\tx\nq01\tx\n")
    unused = in_text("compare", *words, "-m", "RR")
    assert unused.stderr.count("is not used") == 1, unused
    used = in_text("compare", *words, "-m", "RR", "--groups", str(groups))
    assert "is not used" not in used.stderr
