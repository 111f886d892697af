"""Every mean has its query set, and every pair of runs one label, in every command and format."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rankproof_cli import csv_rows, in_text

import rankproof as rp

COUNTS = {"averaged": 4, "missing": 1, "undefined": 0, "excluded": 1, "unjudged": 1, "tied": 2}
FORMATS = ("table", "json", "csv", "md", "latex", "html")


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str, str]:
    """Judgments of five queries; run a lacks m, has x without judgments, and ties on p and s."""
    (tmp_path / "q").write_text("p 0 d 1\nq 0 d 1\nm 0 d 1\ns 0 d 1\nu 0 d 0\n")
    listed = {"p": ("d 1", "e 1"), "q": ("d 2", "e 1"), "s": ("e 1", "d 1"), "u": ("d 2", "e 1")}
    rows = {**listed, "x": ("d 2", "e 1")}
    whole = {**listed, "m": ("d 2", "e 1")}
    for name, lists in (("a", rows), ("b", whole)):
        text = [
            f"{query} Q0 {doc} 1 {score} t\n"
            for query, docs in lists.items()
            for doc, score in map(str.split, docs)
        ]
        (tmp_path / name).write_text("".join(text))
    return str(tmp_path / "q"), str(tmp_path / "a"), str(tmp_path / "b")


def test_a_query_set_agrees_with_enumeration(files: tuple[str, str, str]) -> None:
    evaluation = rp.evaluate(files[0], files[1], "RR")
    queries = evaluation.query_set("RR")
    assert queries.counts() == COUNTS
    ids = {name: getattr(queries, name).to_list() for name in COUNTS}
    assert ids == {
        "averaged": ["m", "p", "q", "s"],
        "missing": ["m"],
        "undefined": [],
        "excluded": ["u"],
        "unjudged": ["x"],
        "tied": ["p", "s"],
    }
    assert evaluation["RR"].expected == (0 + 0.75 + 1 + 0.75) / 4
    skipping = rp.evaluate(files[0], files[1], "RR", missing="skip")
    assert skipping.query_set("RR").averaged.to_list() == ["p", "q", "s"]
    assert skipping["RR"].expected == pytest.approx((0.75 + 1 + 0.75) / 3)


@pytest.mark.parametrize("command", ["eval", "compare", "leaderboard", "gate"])
@pytest.mark.parametrize("form", FORMATS)
def test_every_command_reports_the_query_set_in_every_format(
    files: tuple[str, str, str], command: str, form: str
) -> None:
    qrels, a, b = files
    runs = {"eval": [a], "gate": [b, a]}.get(command, [a, b])
    done = in_text(command, qrels, *runs, "-m", "RR", "--format", form, "--explain")
    assert done.returncode in (0, 1, 3), done.stderr
    if form == "json":
        data = json.loads(done.stdout)
        found = data["runs"][0]["measures"]["RR"]["query_set"] if command == "eval" else (
            data["query_sets"]["a"]["RR"]
        )  # fmt: skip
        assert {name: found[name]["count"] for name in COUNTS} == COUNTS
        assert found["missing"]["queries"] == ["m"]
    elif form == "csv" and command == "eval":
        (row,) = csv_rows(done.stdout)
        assert {name: int(row[name]) for name in COUNTS} == COUNTS
    else:
        text = " ".join(done.stdout.split())
        assert "1 judged query is missing from the run; missing queries count 0" in text


def test_per_query_rows_have_a_status_and_values_only_where_the_mean_counts_them(
    files: tuple[str, str, str], tmp_path: Path
) -> None:
    statuses = {"m": "missing", "p": "averaged", "q": "averaged", "s": "averaged", "u": "excluded"}
    for policy, counted in (("zero", {"m", "p", "q", "s"}), ("skip", {"p", "q", "s"})):
        out = tmp_path / f"{policy}.parquet"
        words = ("eval", *files[:2], "-m", "RR", "--missing", policy, "--per-query", str(out))
        assert in_text(*words).returncode == 0
        frame = pl.read_parquet(out).sort("query")
        assert dict(frame.select("query", "status").iter_rows()) == statuses
        with_value = frame.filter(pl.col("expected").is_not_null())["query"].to_list()
        assert set(with_value) == counted


# ------------------------------------------------------------------ judgments that do not fit


def hundred_queries(folder: Path) -> tuple[str, str, str, str]:
    run = [f"q{i} Q0 d{i} 1 1 t\nq{i} Q0 x 2 0 t\n" for i in range(100)]
    (folder / "base").write_text("".join(run))
    (folder / "cand").write_text("".join(run[:8]))
    (folder / "re").write_text("".join(line.replace(" d", " chunk-") for line in run))
    (folder / "q").write_text("".join(f"q{i} 0 d{i} 1\n" for i in range(100)))
    qrels, base, cand, renamed = (str(folder / name) for name in ("q", "base", "cand", "re"))
    return qrels, base, cand, renamed


def test_a_run_without_most_queries_is_nowhere_equal_in_silence(tmp_path: Path) -> None:
    qrels, base, cand, renamed = hundred_queries(tmp_path)
    skip = ("-m", "AP", "--missing", "skip")
    note = "cand: 92 judged queries are missing from the run; missing queries are skipped."
    for command in ("compare", "leaderboard"):
        assert note in " ".join(in_text(command, qrels, base, cand, *skip).stdout.split())
    gate = in_text("gate", qrels, base, cand, *skip, "--allow-undecided")
    assert gate.returncode == 3
    assert gate.stdout.startswith("UNDECIDED (exit 3): 92 of 100 queries are missing from cand.")
    assert in_text("eval", qrels, cand, *skip, "--fail-if", "AP < 0.9").returncode == 1
    for command in ("compare", "leaderboard", "eval"):
        first = in_text(command, qrels, base, renamed, "-m", "AP").stdout.split("\n\n")[0]
        assert "100 of 100 queries return no document that the judgments know" in first


# ------------------------------------------------------------------------------- one verdict


def fifty_queries(folder: Path) -> tuple[str, list[str]]:
    """Three runs of growing depth, and one that finds nothing."""
    rng = np.random.default_rng(1)
    rank = rng.integers(1, 5, 50)
    judged = [f"q{i} 0 {d} {int(d == 'rel')}\n" for i in range(50) for d in ("rel", "n1", "n2")]
    (folder / "q").write_text("".join(judged))
    paths = []
    for j in range(4):
        lists = [
            [f"x{k}" for k in range(1, r + j * int(rng.integers(0, 2)))] + ["rel"] for r in rank
        ]
        lists = [["none"]] * 50 if j == 3 else lists
        rows = [
            f"q{i} Q0 {doc} {at} {99 - at} t\n"
            for i, docs in enumerate(lists)
            for at, doc in enumerate(docs, 1)
        ]
        path = folder / ("zero" if j == 3 else f"run{j}")
        path.write_text("".join(rows))
        paths.append(str(path))
    return str(folder / "q"), paths


def test_a_pair_has_the_same_label_in_compare_leaderboard_and_gate(tmp_path: Path) -> None:
    qrels, runs = fifty_queries(tmp_path)
    named = {Path(run).name: run for run in runs[:3]}
    comparison = rp.compare(qrels, named, "RR")
    board = rp.leaderboard(qrels, named, "RR")
    standing = board["RR"]
    best = board.runs[standing.best]
    for row, name in enumerate(board.runs):
        verdict = standing.verdicts[row]
        if verdict is None:
            continue
        pair = (best, name) if list(named).index(best) < list(named).index(name) else (name, best)
        other = comparison.verdict(*pair, "RR")
        assert verdict.label == (other if pair[0] == best else other.reversed()).label
    alone = {name: named[name] for name in ("run0", "run1")}
    pair_verdict = rp.compare(qrels, alone, "RR").verdict("run0", "run1", "RR")
    gate = rp.gate(qrels, named["run1"], named["run0"], "RR")
    (gated,) = gate.measures.values()
    assert gated.verdict.label == pair_verdict.label
    assert gated.verdict.ci == pair_verdict.ci


def test_an_added_run_that_finds_nothing_removes_no_label(tmp_path: Path) -> None:
    qrels, runs = fifty_queries(tmp_path)
    few = rp.compare(qrels, runs[:3], "RR")
    more = rp.compare(qrels, runs, "RR")
    for a, b in (("run0", "run1"), ("run0", "run2"), ("run1", "run2")):
        assert few.verdict(a, b, "RR").label == more.verdict(a, b, "RR").label
        assert few.verdict(a, b, "RR").ci == more.verdict(a, b, "RR").ci


def test_one_query_in_each_group_gives_bit_identical_intervals(tmp_path: Path) -> None:
    qrels, runs = fifty_queries(tmp_path)
    groups = tmp_path / "groups.tsv"
    groups.write_text("query\tgroup\n" + "".join(f"q{i}\tg{i}\n" for i in range(50)))
    plain = rp.compare(qrels, runs[:3], ["RR", "nDCG@3"])
    grouped = rp.compare(qrels, runs[:3], ["RR", "nDCG@3"], groups=str(groups))
    for pair, same in zip(plain.pairs, grouped.pairs, strict=True):
        for measure, difference in pair.measures.items():
            assert difference.verdict == same.measures[measure].verdict


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("query\tgroup\nq1\ta\nq1\tb\n", "q1"),
        ("query\tgroup\nzzz\ta\n", "no query of"),
    ],
)
def test_groups_that_contradict_or_do_not_fit_are_refused_in_one_line(
    tmp_path: Path, text: str, message: str
) -> None:
    qrels, runs = fifty_queries(tmp_path)
    groups = tmp_path / "groups.tsv"
    groups.write_text(text)
    done = in_text("compare", qrels, *runs[:2], "-m", "RR", "--groups", str(groups))
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def unjudged_candidate(folder: Path) -> list[str]:
    """Judgments, a baseline, and a candidate with an unjudged document before the relevant one."""
    judged = [f"q{i} 0 {d} {int(d == 'rel')}\n" for i in range(50) for d in ("rel", "n1", "n2")]
    (folder / "q").write_text("".join(judged))
    for name, docs in (("base", "rel n1 n2"), ("cand", "new rel n1")):
        rows = [
            f"q{i} Q0 {doc} {at} {99 - at} t\n"
            for i in range(50)
            for at, doc in enumerate((docs if i % 3 else "rel n1 n2").split(), 1)
        ]
        (folder / name).write_text("".join(rows))
    return [str(folder / name) for name in ("q", "base", "cand")]


def test_a_loss_that_unjudged_documents_could_undo_is_not_worse(tmp_path: Path) -> None:
    """The gate said worse, though grades of unjudged documents allow -0.244 to +0.255."""
    qrels, baseline, candidate = unjudged_candidate(tmp_path)
    gate = rp.gate(qrels, baseline, candidate, "nDCG@3", allow_undecided=True)
    assert (gate.verdict, gate.exit_code) == ("undecided", 3)
    (gated,) = gate.measures.values()
    assert gated.verdict.ci is not None
    assert gated.verdict.ci[1] < 0
    worst = gated.verdict.worst_case
    assert worst is not None
    assert worst[0] < -0.24
    assert worst[1] > 0.25
    assert "unjudged" in gated.verdict.depends_on


@pytest.mark.parametrize("command", ["compare", "leaderboard", "gate"])
def test_the_next_step_runs_as_it_is_printed(tmp_path: Path, command: str) -> None:
    done = in_text(command, *unjudged_candidate(tmp_path), "-m", "nDCG@3")
    (step,) = re.findall(r"^Next: (rankproof .*)$", done.stdout, re.M)
    again = in_text(*shlex.split(step)[1:], cwd=tmp_path)
    assert again.returncode == 0, again.stderr
