"""Judgements that say what their grades mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.data.scales import read_scale, scale_text
from rankproof.data.tables import SET_SCALE, Scale

POOR = {"q": {"a": 3.0, "b": 2.0}}  # two passages of grade 1; the one good passage is missed
LINES = "q 0 a 1\nq 0 b 1\nq 0 c 5\n"


def written(folder: Path, scale: str | None = None) -> Path:
    qrels = folder / "qrels.txt"
    qrels.write_text(LINES)
    (folder / "qrels.txt.scale").write_text(scale_text(SET_SCALE) if scale is None else scale)
    return qrels


def test_a_file_beside_the_judgements_says_what_grades_mean(tmp_path: Path) -> None:
    qrels = written(tmp_path)
    assert rp.read_qrels(qrels).scale == SET_SCALE == Scale(1, 5, relevant=4, gains=3)
    (tmp_path / "plain.txt").write_text(LINES)
    assert rp.read_qrels(tmp_path / "plain.txt").scale is None
    assert rp.read_qrels({"q": {"a": 5}}).scale is None


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("RR@10", "RR(rel=4)@10"),
        ("AP", "AP(rel=4)"),
        ("R@5", "R(rel=4)@5"),
        ("RBP(p=0.5)", "RBP(p=0.5,rel=4)"),
        ("nDCG@10", "nDCG(rel=3)@10"),
        ("nDCG(gain='exp')@10", "nDCG(gain='exp',rel=3)@10"),
        ("RR(rel=1)@10", "RR(rel=1)@10"),
        ("RAnWG@10", "RAnWG@10"),
        ("Judged@10", "Judged@10"),
    ],
)
def test_a_measure_is_read_on_a_scale_unless_it_says_otherwise(given: str, read: str) -> None:
    assert str(rp.parse(given).on_scale(SET_SCALE)) == read
    assert str(rp.parse(given).on_scale(None)) == given


@pytest.mark.parametrize(
    ("given", "of", "to", "read"),
    [
        ("RR(rel=4)@10", SET_SCALE, None, "RR@10"),
        ("RR@10", None, SET_SCALE, "RR(rel=4)@10"),
        ("nDCG(gain='exp',rel=3)@10", SET_SCALE, None, "nDCG(gain='exp')@10"),
        ("RR(rel=4)@10", SET_SCALE, SET_SCALE, "RR(rel=4)@10"),
        ("RR(rel=2)@10", SET_SCALE, None, "RR(rel=2)@10"),  # somebody's own
        ("RR@10", SET_SCALE, None, "RR@10"),
        ("RAnWG@10", SET_SCALE, None, "RAnWG@10"),
    ],
)
def test_a_measure_of_one_scale_is_that_of_another(
    given: str, of: Scale | None, to: Scale | None, read: str
) -> None:
    assert str(rp.parse(given).rescaled(of, to)) == read


def test_what_is_not_relevant_on_the_scale_counts_nothing() -> None:
    qrels = {"q": {"a": 1, "b": 1, "c": 5}}
    found = rp.evaluate(qrels, POOR, ["RR@10", "RR(rel=4)@10", "nDCG@10", "nDCG(rel=3)@10"])
    assert found["RR@10"].expected == 1.0
    assert found["RR(rel=4)@10"].expected == 0.0
    assert found["nDCG@10"].expected > 0.2
    assert found["nDCG(rel=3)@10"].expected == 0.0


def test_eval_warns_where_a_measure_counts_what_the_scale_does_not(tmp_path: Path) -> None:
    qrels = written(tmp_path)
    run = tmp_path / "run.trec"
    run.write_text("q Q0 a 1 3 x\nq Q0 b 2 2 x\n")
    done = rankproof("eval", str(qrels), str(run), "-m", "RR@10", "-m", "RAnWG@10", "--format=csv")
    assert done.returncode == 0, done.stderr
    assert "qrels grades 1–5, relevant from 4 on: RR@10" in done.stderr.decode()
    assert "write RR(rel=4)@10" in done.stderr.decode()
    done = rankproof("eval", str(qrels), str(run), "-m", "RR(rel=4)@10", "--format=csv")
    assert done.stderr == b""
    done = rankproof("eval", str(qrels), str(run), "--format=csv")  # ours to choose: it follows
    assert done.stderr == b""
    assert b"RR(rel=4)@10" in done.stdout


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"grades": [1, 5]}', '{"grades": [1, 5], "relevant": 9, "gains": 3}']
)
def test_a_scale_that_is_none_is_refused_in_a_line(tmp_path: Path, text: str) -> None:
    qrels = written(tmp_path, text)
    with pytest.raises(rp.InputError, match=r"qrels\.txt\.scale: no scale of grades"):
        read_scale(str(qrels))


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["eval", "compare", "leaderboard", "gate", "holes"])
def test_measures_that_nobody_names_follow_the_scale(tmp_path: Path, verb: str) -> None:
    qrels = written(tmp_path)
    runs = [tmp_path / "a.trec", tmp_path / "b.trec"]
    for run in runs:
        run.write_text("q Q0 a 1 3 x\nq Q0 b 2 2 x\n")
    done = rankproof(verb, str(qrels), *map(str, runs), "--format=json")
    assert done.returncode in (0, 1), done.stderr
    assert b'"nDCG(rel=3)@10"' in done.stdout
    assert b'"nDCG@10"' not in done.stdout
    done = rankproof(verb, str(qrels), *map(str, runs), "-m", "nDCG@10", "--format=json")
    assert b'"nDCG@10"' in done.stdout  # what is asked for is what is given
