"""Many runs in one table: ranks, groups, marks, and every way to print them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rankproof_cli import csv_rows, rankproof

import rankproof as rp
from rankproof.comparison.leaderboard import expand, rank_evaluations
from rankproof.evaluation import Evaluation, Policy
from rankproof.measures import Outcomes, parse
from rankproof.statistics.family import critical_values
from rankproof.statistics.intervals import difference_intervals

Runs = dict[str, dict[str, dict[str, float]]]
MEASURES = ["nDCG@5", "P@3", "RR"]


def board_of(runs: int = 8, queries: int = 25, ties: bool = False) -> tuple[Runs, dict]:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    qrels = {f"q{q:02d}": {f"d{d}": int(d < 3) for d in range(12)} for q in range(queries)}
    made: Runs = {}
    for r in range(runs):
        skill = 0.5 * r
        made[f"run{r}"] = {
            q: {
                f"d{d}": float(np.round(rng.normal() + skill * (d < 3), 0 if ties else 6))
                for d in range(12)
            }
            for q in qrels
        }
    return made, qrels


def test_values_are_those_of_evaluate_and_rows_stand_by_rank() -> None:
    runs, qrels = board_of(ties=True)
    board = rp.leaderboard(qrels, runs, MEASURES)
    for m in MEASURES:
        standing = board[m]
        for at, name in enumerate(board.runs):
            summary = rp.evaluate(qrels, runs[name], m)[m]
            assert (standing.expected[at], standing.min[at], standing.max[at]) == (
                summary.expected, summary.min, summary.max,
            )  # fmt: skip
    first = board["nDCG@5"]
    assert (np.diff(first.expected) <= 0).all()
    assert first.rank.tolist() == sorted(first.rank.tolist())
    assert (first.rank_low <= first.rank).all()
    assert (first.rank <= first.rank_high).all()
    assert (first.wins + first.ties + first.losses == 25).all()
    assert (first.wins[0], first.losses[0]) == (0, 0)


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_fewer_than_six_queries_leave_every_rank_open(queries: int) -> None:
    """Two queries that agree put each run on one rank in every resample."""
    qrels = {f"q{n}": {"r": 1} for n in range(queries)}
    runs = {
        name: {q: {"r": 1.0, **dict.fromkeys(above, 2.0)} for q in qrels}
        for name, above in (("a", ""), ("b", "x"), ("c", "xy"))
    }
    standing = rp.leaderboard(qrels, runs, "RR")["RR"]
    assert standing.rank.tolist() == [1, 2, 3]
    assert (standing.rank_low.tolist(), standing.rank_high.tolist()) == ([1] * 3, [3] * 3)


def test_runs_that_differ_on_fewer_than_six_queries_share_their_ranks() -> None:
    """One query of thirty puts a ahead in two of three resamples, and b in none."""
    qrels = {f"q{n:02}": {"r": 1, "n": 0} for n in range(30)}
    best = {q: {"r": 2.0, "n": 1.0} for q in qrels}
    worst = {q: {"n": 2.0, "r": 1.0} for q in qrels}
    runs = {"a": best, "b": {**best, "q00": worst["q00"]}, "c": worst, "d": dict(worst)}
    for first in (runs, {name: runs[name] for name in "dcba"}):
        board = rp.leaderboard(qrels, first, "RR")
        ranks = dict(zip(board.runs, board["RR"].rank.tolist(), strict=True))
        assert ranks == {"a": 1, "b": 2, "c": 3, "d": 3}
        ends = zip(board["RR"].rank_low.tolist(), board["RR"].rank_high.tolist(), strict=True)
        found = dict(zip(board.runs, ends, strict=True))
        assert found == {"a": (1, 2), "b": (1, 2), "c": (3, 4), "d": (3, 4)}


def test_copies_of_a_run_do_not_tell_another_apart_by_a_few_queries() -> None:
    """Two queries of thirty: of thirty runs the same one is seldom ahead on both by chance, but it
    is one run set against another, and p of that is a half."""
    qrels = {f"q{n:02}": {"r": 1, "n": 0} for n in range(30)}
    worst = {q: {"n": 2.0, "r": 1.0} for q in qrels}
    for count, told in ((2, 0), (5, 0), (6, 29)):
        lucky = worst | {q: {"r": 2.0, "n": 1.0} for q in list(qrels)[:count]}
        runs = {"lucky": lucky} | {f"copy{n}": worst for n in range(29)}
        standing = rp.leaderboard(qrels, runs, "RR")["RR"]
        assert (standing.group_first > 1).sum() == told
        assert standing.below.tolist() == [told] + [0] * 29
        assert standing.above.tolist() == [0] + [told > 0] * 29
        assert standing.group_last.tolist() == [1 if told else 2] + [2] * 29
    one = {"q0": {"r": 1, "n": 0}}
    runs = {f"copy{n}": {"q0": {"n": 2.0, "r": 1.0}} for n in range(29)}
    standing = rp.leaderboard(one, {"a": {"q0": {"r": 1.0}}, **runs}, "RR")["RR"]
    assert (standing.group_first == 1).all()


def test_the_ranks_of_runs_that_hardly_differ_cover_the_true_ones() -> None:
    """b, the second, is first on the queries seen in a fifth of samples, and level in another: then
    no resample puts it second."""
    rng = np.random.default_rng(3)
    covered = 0
    for seed in range(60):
        luck = rng.random(30)
        some = {"a": luck < 0.03, "b": (luck >= 0.03) & (luck < 0.05)}
        qrels = {f"q{n:02}": {"r": 1, "n": 0} for n in range(30)}
        runs = {
            name: {
                q: {"r": 2.0, "n": 3.0 if luck[n] < 0.05 and not wins[n] else 1.0}
                for n, q in enumerate(qrels)
            }
            for name, wins in some.items()
        }
        board = rp.leaderboard(qrels, runs, "RR", seed=seed)
        at = board.runs.index("b")
        covered += int(board["RR"].rank_low[at] <= 2 <= board["RR"].rank_high[at])
    assert covered >= 55


def test_runs_that_are_level_but_for_rounding_are_not_told_apart() -> None:
    """0.1 + 0.2 of each query, and 0.3."""
    values = np.array([[0.3] * 30, [0.1 + 0.2] * 30, [0.1 + 0.2] * 30])
    queries = pl.Series("query", [f"q{n:02}" for n in range(30)])
    each = [
        Evaluation(name, queries, {rp.RR: Outcomes(v, v, v, v, np.zeros(30))}, Policy(), "float64")
        for name, v in zip("abc", values, strict=True)
    ]
    board = rank_evaluations(each)
    assert board["RR"].rank.tolist() == [1, 1, 1]
    assert board["RR"].above.tolist() == board["RR"].below.tolist() == [0, 0, 0]


@pytest.mark.parametrize("measure", ["Hits@10", "DCG@10", "NumRet", "NumRel", "NumRelRet"])
def test_a_measure_that_counts_has_no_end_though_none_was_seen_past_1(measure: str) -> None:
    qrels = {f"q{n}": {"r": 1} for n in range(12)}
    runs = {name: {q: {"r": 2.0} for q in qrels} for name in "ab"}
    assert np.isnan(rp.leaderboard(qrels, runs, measure)[measure].high).all()
    mixed = {q: {"r": 1.0} if n % 2 else {"x": 1.0} for n, q in enumerate(qrels)}
    found = rp.leaderboard(qrels, {"a": mixed, "b": mixed}, ["R@1", measure])
    assert found["R@1"].high[0] == pytest.approx(0.7904, abs=1e-4)
    few = {q: {"x": 1.0} for q in qrels} | {q: {"r": 1.0} for q in list(qrels)[:3]}
    if measure in ("Hits@10", "DCG@10", "NumRelRet"):
        assert rp.compare(qrels, {"a": runs["a"], "b": few}, measure).pairs[0].measures[
            parse(measure)
        ].ci == pytest.approx((0.4626, 1.0374), abs=1e-4)


def test_a_measure_that_one_run_takes_past_1_has_no_end_for_the_others() -> None:
    """All lists of a run have one document, and those of the other two."""
    qrels = {f"q{n}": {"r": 1} for n in range(8)}
    runs = {"two": {q: {"r": 2.0, "x": 1.0} for q in qrels}, "one": {q: {"r": 2.0} for q in qrels}}
    board = rp.leaderboard(qrels, runs, "NumRet")
    assert np.isnan(board["NumRet"].low).all()
    assert "NaN" not in board.plot().to_html()


def test_groups_are_the_pairs_that_do_not_differ_significantly_together() -> None:
    runs, qrels = board_of()
    standing = rp.leaderboard(qrels, runs, "nDCG@5")["nDCG@5"]
    values = np.stack(
        [rp.evaluate(qrels, runs[n], "nDCG@5").per_query["expected"].to_numpy() for n in runs]
    )
    order = np.argsort(-values.mean(axis=1), kind="stable")
    first, second = np.triu_indices(len(runs), 1)
    (critical,) = critical_values([values], first, second)
    ends = difference_intervals(values[first] - values[second], 1.0, critical=critical)
    differs = np.zeros((len(runs), len(runs)), np.bool_)
    differs[first, second] = differs[second, first] = (ends[:, 0] > 0) | (ends[:, 1] < 0)
    differs = differs[np.ix_(order, order)]
    assert differs.any()
    for at in range(len(runs)):
        alike = standing.rank[~differs[at]]
        assert (standing.group_first[at], standing.group_last[at]) == (alike.min(), alike.max())
        assert standing.above[at] == differs[at, :at].sum()
        assert standing.below[at] == differs[at, at:].sum()


def test_a_note_counts_the_runs_that_ties_give_another_rank_as_listed() -> None:
    qrels = {f"q{q}": {"x": 1} for q in range(8)}
    runs: Runs = {
        "lucky": {q: {"x": 1.0, "a": 1.0, "b": 1.0} for q in qrels},
        "honest": {q: {"a": 1.0, "x": 0.9} if q == "q0" else {"x": 1.0} for q in qrels},
    }
    board = rp.leaderboard(qrels, runs, "RR")
    assert board.runs == ("honest", "lucky")
    assert board["RR"].oblivious_rank.tolist() == [2, 1]
    assert "As listed, ties would give 2 runs another rank." in str(board)
    assert board.full_tables()[0].plain()["RR oblivious rank"] == [2, 1]
    untied, judged = board_of()
    assert "ties" not in str(rp.leaderboard(judged, untied, "RR"))


def folder_of_runs(folder: Path) -> tuple[str, str]:
    runs, qrels = board_of(4)
    (folder / "runs").mkdir()
    for name, run in runs.items():
        rows = [f"{q} Q0 {d} 1 {s} t" for q, docs in run.items() for d, s in docs.items()]
        (folder / "runs" / f"{name}.trec").write_text("\n".join(rows) + "\n")
    (folder / "runs" / "notes.md").write_text("not a run")
    rows = [f"{q} 0 {d} {g}" for q, docs in qrels.items() for d, g in docs.items()]
    (folder / "qrels.txt").write_text("\n".join(rows) + "\n")
    return str(folder / "qrels.txt"), str(folder / "runs")


def test_files_folders_and_globs_name_the_same_runs(tmp_path: Path) -> None:
    qrels, folder = folder_of_runs(tmp_path)
    files = expand([folder])
    shutil.copy(qrels, folder)  # judgements that lie among the runs are no run
    assert expand([folder], Path(folder) / "qrels.txt") == files
    assert expand([f"{folder}/*.t*"], Path(folder) / "qrels.txt") == files
    (Path(folder) / "qrels.txt").unlink()
    assert len(files) == 4
    assert files == expand([f"{folder}/*.trec"]) == expand(files)
    boards = [
        json.loads(rankproof("leaderboard", qrels, *what, "-m", "P@3", "--format", "json").stdout)
        for what in ([folder], [f"{folder}/*.trec"], files)
    ]
    for board in boards:
        del board["manifest"]  # another command each
    assert boards[0] == boards[1] == boards[2]
    assert rp.leaderboard(qrels, folder, "P@3").to_dict()["runs"] == boards[0]["runs"]
    with pytest.raises(rp.InputError, match="no file matches"):
        rp.leaderboard(qrels, f"{folder}/*.none", "P@3")


@pytest.mark.parametrize("form", ["table", "md", "latex", "csv", "html", "json"])
def test_every_format_holds_every_run(tmp_path: Path, form: str) -> None:
    qrels, folder = folder_of_runs(tmp_path)
    done = rankproof("leaderboard", qrels, folder, "-m", "nDCG@5", "-m", "P@3", "--format", form)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert all(f"run{at}" in text for at in range(4))
    marks = {
        "table": "* significantly worse than the best", "md": "**",
        "latex": r"\textbf{", "html": "significantly worse", "csv": "nDCG@5 rank low",
        "json": "rank_ci",
    }  # fmt: skip
    assert marks[form] in " ".join(text.split())
    if form == "latex":
        assert r"\toprule" in text
        assert r"\textbf{" in text
    if form == "csv":
        rows = csv_rows(text)
        assert [int(row["nDCG@5 rank"]) for row in rows] == [1, 2, 3, 4]


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_ranks_and_intervals_are_drawn(tmp_path: Path, ending: str) -> None:
    qrels, folder = folder_of_runs(tmp_path)
    path = tmp_path / f"board.{ending}"
    done = rankproof("leaderboard", qrels, folder, "-m", "nDCG@5", "--plot", str(path))
    assert done.returncode == 0, done.stderr
    assert path.stat().st_size > 1000


def test_one_run_makes_no_leaderboard() -> None:
    runs, qrels = board_of(1)
    with pytest.raises(rp.InputError, match="two runs or more"):
        rp.leaderboard(qrels, runs, "RR")


def test_a_report_finds_what_leaderboard_and_gate_wrote(tmp_path: Path) -> None:
    from rankproof.report.result_files import find_results

    qrels, folder = folder_of_runs(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    run = f"{folder}/run3.trec"
    for words in (
        ("leaderboard", qrels, folder, "-m", "P@3", "--out", str(out / "board.json")),
        ("gate", qrels, run, run, "-m", "P@3", "--out", str(out / "gate.json")),
        ("eval", qrels, run, "-m", "P@3", "--out", str(out / "eval.json")),
    ):
        assert rankproof(*words).returncode == 0
    plain = rankproof("leaderboard", qrels, folder, "-m", "P@3", "--format", "json")
    (out / "plain.json").write_bytes(plain.stdout)
    results, problems = find_results(out)
    assert [result.path.name for result in results] == ["gate.json", "board.json", "eval.json"]
    assert problems == ["plain.json: no presentation is stored in it; make it again with --out"]


def test_equal_runs_share_the_lead() -> None:
    """One of two equal runs was said to lead."""
    qrels = {f"q{n}": {"d0": 1, "d1": 0} for n in range(12)}
    runs = {name: {q: {"d0": 2.0, "d1": 1.0} for q in qrels} for name in ("a", "b")}
    runs["c"] = {q: {"d0": 1.0, "d1": 2.0} for q in qrels}
    board = rp.leaderboard(qrels, runs, ["P@1", "R@2"])
    assert str(board).splitlines()[:2] == [
        "P@1 over 12 queries: a, b share the lead with 1.0000.",
        "R@2 over 12 queries: a, b and 1 more share the lead with 1.0000.",
    ]


def test_ties_are_named_apart_from_unjudged_documents() -> None:
    qrels = {f"q{n}": {"d0": 1, "d1": 0, "d2": 0} for n in range(12)}
    runs = {
        "ahead": {q: {"d0": 1.0, "d1": 1.0, "d2": 0.5} for q in qrels},
        "behind": {q: {"d0": 1.0, "d1": 1.0, "d2": 1.0} for q in qrels},
    }
    board = rp.leaderboard(qrels, runs, "RR@3", holes=True)
    assert "unjudged" not in str(board)
    assert "unjudged" not in board.depends_on
    runs["behind"] = {q: {"x": 2.0, **listed} for q, listed in runs["behind"].items()}
    board = rp.leaderboard(qrels, runs, "RR@3", holes=True)
    assert "unjudged" in board.depends_on
    assert board.summary().next_step == "rankproof holes {inputs} --judge-next 50"
    runs = {
        "ahead": {q: {"d0": 3.0, "d1": 2.0} for q in qrels},
        "behind": {q: {"d1": 3.0, "d0": 2.0, "x": 0.5} for q in qrels},
    }
    board = rp.leaderboard(qrels, runs, "RR", holes=True)
    assert "unjudged" not in board.depends_on, "x comes after all others"


def test_who_has_less_of_what_harms_is_ahead() -> None:
    qrels = {f"q{n}": {"good": 5, "bad": 1, "poor": 2} for n in range(20)}
    runs = {
        "harmful": {q: {"bad": 2.0, "poor": 1.0} for q in qrels},
        "sound": {q: {"good": 2.0, "poor": 1.0} for q in qrels},
        "unknown": {q: {"poor": 2.0, "x": 1.0} for q in qrels},
    }
    board = rp.leaderboard(qrels, runs, ["Harm@2", "P4@2"], holes=True)
    assert board.runs == ("sound", "unknown", "harmful")
    harm = board["Harm@2"]
    assert harm.rank.tolist() == [1, 1, 3]
    assert (harm.wins[2], harm.losses[2], harm.above[2]) == (0, 20, 2)
    verdict = harm.verdicts[1]  # on sound against unknown
    assert verdict is not None
    assert verdict.worst_case is not None
    assert verdict.worst_case[1] == 0.0, "an unjudged passage harms not at all, at best"
    compared = rp.compare(qrels, {n: runs[n] for n in ("harmful", "sound")}, "Harm@2")
    assert str(compared).startswith("sound beats harmful on Harm@2 by 0.5000")
    said = rp.holes(qrels, {n: runs[n] for n in ("harmful", "unknown")}, "Harm@2")
    assert "put unknown ahead, or leave both equal, on Harm@2" in said.summary().answer


def test_worst_cases_are_over_the_queries_that_both_runs_average() -> None:
    """Run b lacks a query, on which a has an unjudged document."""
    qrels = {q: {"r": 1, "n": 0} for q in ("p", "q", "s")}
    a = {"p": {"r": 2.0, "x": 1.0}, "q": {"x": 2.0, "n": 1.0}, "s": {"r": 1.0, "y": 0.5}}
    b = {q: {"n": 2.0, "r": 1.0} for q in ("p", "s")}
    comparison = rp.compare(qrels, {"a": a, "b": b}, ["P@2", "RR"], missing="skip", holes=True)
    for measure, ends in (("P@2", (0.0, 0.5)), ("RR", (0.5, 0.5))):
        assert comparison["a", "b"][parse(measure)].holes == ends


def test_the_answer_names_the_queries_that_all_runs_have() -> None:
    qrels = {q: {"r": 1, "n": 0} for q in ("p", "q", "s")}
    runs = {
        "a": {q: {"r": 2.0, "n": 1.0} for q in "pqs"},
        "b": {q: {"n": 2.0, "r": 1.0} for q in "ps"},
    }
    board = rp.leaderboard(qrels, runs, "RR", missing="skip")
    assert str(board).startswith("RR over the 2 of 3 queries that all runs have: a is best,")
    assert board["RR"].expected.tolist() == [1.0, 0.5]


def test_mostly_unjudged_runs_get_a_sample_of_queries_as_the_next_step() -> None:
    qrels = {f"q{n}": {"r": 1, "n": 0} for n in range(10)}
    runs = {
        "a": {q: {"r": 3.0, "n": 2.0} for q in qrels},
        "b": {q: {"w": 3.0, "x": 2.0, "n": 1.0} for q in qrels},
        "c": {q: {"w": 3.0, "v": 2.0, "y": 2.0, "n": 1.0} for q in qrels},
    }
    board = rp.leaderboard(qrels, runs, ["P@2", "RR@2", "nDCG@2"], holes=True)
    assert board.summary().next_step == "rankproof holes {inputs} --judge-sample 15"
    assert "could lead" not in str(board)


def test_the_others_are_compared_with_one_of_the_runs_that_share_the_lead() -> None:
    """Rows stand by the first measure; of the second, a and b share the lead."""
    qrels = {"q": {"r": 1, "s": 1, "n": 0}}
    runs = {
        "a": {"q": {"n": 3.0, "x": 2.0, "r": 1.0}},
        "b": {"q": {"r": 3.0, "n": 2.0, "m": 1.0}},
    }
    board = rp.leaderboard(qrels, runs, ["RR", "R@3"], holes=True)
    assert board.runs == ("b", "a")
    shared = board["R@3"]
    assert shared.rank.tolist() == [1, 1]
    assert shared.verdicts[shared.best] is None
    assert shared.verdicts[1 - shared.best] is not None
