"""What the command line prints, in every format."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rankproof_cli import csv_rows, in_text, rankproof

import rankproof as rp

DATA = Path(rp.__file__).parent / "resources"
QRELS = str(DATA / "demo-qrels.txt")
TIED = str(DATA / "demo-saturated.trec")
PLAIN = str(DATA / "demo-plain.trec")


def output(*arguments: str, stdin: bytes = b"") -> str:
    result = rankproof(*arguments, stdin=stdin)
    assert result.returncode == 0, result.stderr.decode()
    return result.stdout.decode()


def as_json(*arguments: str, stdin: bytes = b"") -> Any:
    return json.loads(output(*arguments, "--format", "json", stdin=stdin))


def test_eval_json_has_the_fixed_shape_and_the_figures_of_python() -> None:
    data = as_json("eval", QRELS, TIED, PLAIN, "-m", "nDCG@10", "-m", "ERR@10")
    assert [run["name"] for run in data["runs"]] == ["demo-saturated", "demo-plain"]
    run = data["runs"][0]
    expected = rp.evaluate(QRELS, TIED, ["nDCG@10", "ERR@10"])
    assert (run["queries"], run["missing"], run["tied"]) == (30, 0, 30)
    found = run["measures"]["nDCG@10"]
    summary = expected["nDCG@10"]
    for figure in ("expected", "oblivious", "min", "max", "range", "bias", "std", "queries"):
        assert found[figure] == getattr(summary, figure)
    assert run["measures"]["ERR@10"]["std"] == expected["ERR@10"].std
    assert data["policy"]["order"] == "input"


def test_compare_json_has_the_fixed_shape() -> None:
    data = as_json("compare", QRELS, TIED, PLAIN, "-m", "nDCG@5")
    (pair,) = data["pairs"]
    assert (pair["a"], pair["b"]) == ("demo-saturated", "demo-plain")
    figures = pair["measures"]["nDCG@5"]
    assert set(figures) >= {
        *("expected", "oblivious", "lowest", "highest", "certain", "reversed"),
        *("p", "p_holm", "ci"),
    }
    assert figures["reversed"] is True
    assert figures["certain"] is False
    assert figures["lowest"] < figures["expected"] < 0 < figures["oblivious"]
    assert figures["ci"][0] < figures["expected"] < figures["ci"][1]


def test_explain_states_the_policy() -> None:
    text = output("eval", QRELS, TIED, "-m", "R@5", "--score-dtype", "bfloat16", "--explain")
    assert "Scores are compared as bfloat16." in text
    assert text.count("compared as bfloat16") == 1
    assert "As listed: ties broken by the order in which the run lists them." in text
    assert "queries missing from a run count 0" in text
    default = output("eval", QRELS, TIED, "-m", "R@5")
    assert "compared as" not in default
    assert "missing" not in default, "nothing is said of a policy that changes nothing"


def test_like_trec_eval_is_stated_too() -> None:
    text = output("eval", QRELS, TIED, "-m", "R@5", "--like", "trec_eval", "--explain")
    assert text.count("Scores are compared as float32.") == 1
    assert "document id descending, as trec_eval does" in text
    assert "Queries without a value count 0." in text
    assert "queries missing from a run are skipped" in text


def test_missing_unjudged_and_undefined_queries_are_counted(tmp_path: Path) -> None:
    (tmp_path / "q").write_text("a 0 d1 1\nb 0 d1 0\nc 0 d1 1\n")
    (tmp_path / "r").write_text("a Q0 d1 1 1 t\nb Q0 d1 1 1 t\nx Q0 d1 1 1 t\n")
    text = output("eval", str(tmp_path / "q"), str(tmp_path / "r"), "-m", "R@5")
    assert "1 judged query is missing from the run; missing queries count 0." in text
    assert "1 query of the run has no judgments." in text
    assert "1 query has no value and is skipped." in text
    data = as_json("eval", str(tmp_path / "q"), str(tmp_path / "r"), "-m", "R@5")
    run = data["runs"][0]
    assert (run["missing"], run["unjudged"]) == (1, 1)
    assert (run["measures"]["R@5"]["queries"], run["measures"]["R@5"]["undefined"]) == (2, 1)
    assert run["measures"]["R@5"]["expected"] == 0.5


def test_csv_holds_every_digit() -> None:
    rows = csv_rows(output("eval", QRELS, TIED, "--format", "csv"))
    summary = rp.evaluate(QRELS, TIED, "nDCG@10")["nDCG@10"]
    assert float(rows[0]["expected"]) == summary.expected
    assert [row["measure"] for row in rows] == ["nDCG@10", "RR@10", "AP@100", "R@100"]


def test_markdown_is_a_table_with_aligned_columns() -> None:
    lines = output("eval", QRELS, TIED, "-m", "R@5", "--format", "md").splitlines()
    assert lines[0].startswith("R@5 of demo-saturated is 0.4433 (30 queries, 95% CI ")
    assert lines[2].startswith("| measure | score | 95% CI |")
    assert lines[3].startswith("| :-- | --: | :-- |")
    assert lines[4].startswith("| R@5 | 0.4433 |")


def test_latex_uses_booktabs_and_escapes() -> None:
    text = output(
        "eval", QRELS, "-", "-m", "R@5", "--format", "latex", stdin=Path(TIED).read_bytes()
    )
    assert r"\toprule" in text
    assert r"\bottomrule" in text
    renamed = output("compare", QRELS, TIED, PLAIN, "-m", "AP(rel=2)@5", "--format", "latex")
    assert "AP(rel=2)@5" in renamed
    assert "_" not in renamed.replace(r"\_", "")


def test_per_query_results_hold_a_row_per_run_query_and_measure(tmp_path: Path) -> None:
    for name in ("x.parquet", "x.csv"):
        out = tmp_path / name
        output("eval", QRELS, TIED, PLAIN, "-m", "RR", "-m", "R@5", "--per-query", str(out))
        frame = pl.read_parquet(out) if out.suffix == ".parquet" else pl.read_csv(out)
        assert frame.columns == [
            *("run", "query", "measure", "status", "expected", "oblivious", "min", "max", "std")
        ]
        assert frame.height == 2 * 30 * 2
        own = rp.evaluate(QRELS, TIED, ["RR", "R@5"]).per_query
        assert frame.filter(pl.col("run") == "demo-saturated").drop("run").equals(own)


def test_a_run_may_come_from_standard_input_compressed_or_not() -> None:
    import gzip

    plain = Path(TIED).read_bytes()
    named = as_json("eval", QRELS, TIED, "-m", "RR")["runs"][0]["measures"]
    for data in (plain, gzip.compress(plain)):
        assert as_json("eval", QRELS, "-", "-m", "RR", stdin=data)["runs"][0]["measures"] == named


def test_json_is_alone_on_stdout_and_notes_go_to_stderr(tmp_path: Path) -> None:
    (tmp_path / "q").write_text("a 0 d1 1\na 0 d2 -1\n")
    (tmp_path / "r").write_text("a Q0 d1 1 1 t\n")
    result = rankproof("eval", str(tmp_path / "q"), str(tmp_path / "r"), "--format", "json")
    json.loads(result.stdout)
    assert b"1 negative grade " in result.stderr


def test_more_than_two_runs_give_a_matrix_and_a_sentence(tmp_path: Path) -> None:
    third = tmp_path / "third.trec"
    third.write_bytes(Path(PLAIN).read_bytes())
    text = output("compare", QRELS, TIED, PLAIN, str(third), "-m", "nDCG@5")
    lines = text.splitlines()
    assert lines[0].startswith("nDCG@5: demo-plain is best with ")
    assert sum("+0.1103*" in line for line in lines) == 2
    assert any(line.startswith("  third") and "0.0000" in line for line in lines)
    assert "* significantly different, over all comparisons together" in text
    pairs = as_json("compare", QRELS, TIED, PLAIN, str(third), "-m", "nDCG@5")["pairs"]
    assert len(pairs) == 3


def test_runs_that_list_the_same_documents_are_equal_at_full_depth() -> None:
    text = output("compare", QRELS, PLAIN, TIED, "-m", "P@40")
    assert text.startswith("demo-plain and demo-saturated are equal on P@40.")


def test_ties_reports_the_overview_and_each_cutoff() -> None:
    data = as_json("ties", TIED, "--at", "10,1")
    (run,) = data["runs"]
    assert [at["cutoff"] for at in run["at"]] == [1, 10]
    assert run["tied"] == 30
    text = output("ties", TIED, PLAIN)
    assert "largest group" in text
    assert "tie crosses k" in text


def test_the_demo_runs_are_made_by_the_script_in_examples(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "examples" / "make_demo_runs.py"
    subprocess.run([sys.executable, str(script), str(tmp_path)], check=True)
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (DATA / made.name).read_bytes()


def test_help_names_every_verb_and_option() -> None:
    text = output("--help")
    verbs = (
        *("eval", "ties", "compare", "audit", "sweep", "ceilings", "recommend", "golden"),
        *("diagnose", "report", "measures", "demo"),
    )
    for verb in verbs:
        assert re.search(rf"^\W*{verb}\b", text, re.M), verb
    text = output("eval", "--help")
    for option in (
        *("--measure", "--per-query", "--order", "--missing", "--candidates-only"),
        *("--score-dtype", "--like", "--format"),
    ):
        assert option in text


@pytest.mark.parametrize("verb", ["eval", "compare", "leaderboard", "verify", "search", "ties"])
def test_help_names_an_argument_once_and_by_the_type_of_one(verb: str) -> None:
    said = in_text(verb, "--help", env={"COLUMNS": "100"}).stdout
    assert not re.search(r"\[\[|\.{3}\S*\.{3}|list\[", said), said


def test_a_wrong_number_is_named() -> None:
    for verb, *option in (["gate", "--margin", "x"], ["compare", "--seed", "1.5"]):
        done = in_text(verb, QRELS, TIED, PLAIN, *option)
        assert done.returncode == 2
        assert f"{option[0]}': {option[1]!r} is not a valid " in done.stderr, done.stderr


def test_of_several_numbers_the_wrong_one_is_named() -> None:
    for given in (["1e-3", "x"], ["x", "1e-3"]):
        margins = [word for one in given for word in ("--margin", one)]
        done = in_text("gate", QRELS, TIED, PLAIN, *margins)
        assert done.returncode == 2
        assert "'--margin': 'x' is not a valid float" in done.stderr, done.stderr


def test_an_error_ends_in_one_mark_and_its_remedy_fits_the_verb() -> None:
    mistyped = in_text("evla").stderr
    assert re.search(r"Did you mean 'eval'\? See .*rankproof --help\n$", mistyped)
    done = in_text("ties", QRELS)
    assert done.returncode == 2
    assert done.stderr.endswith("it looks like judgements: name a run here\n")


def test_measures_lists_the_registry() -> None:
    listed = as_json("measures")["measures"]
    assert {m["name"] for m in listed} == set(rp.measures.REGISTRY)


def test_version_is_printed() -> None:
    assert output("--version").strip() == rp.__version__


@pytest.mark.skipif(os.name == "nt", reason="pipes end differently there")
def test_a_reader_that_goes_away_is_no_error() -> None:
    script = f"{shlex.quote(sys.executable)} -m rankproof measures --format json | head -c 1"
    result = subprocess.run(["sh", "-c", script], capture_output=True)
    assert result.stdout == b"{"
    assert result.stderr == b""


def test_columns_on_ties_appear_only_where_ties_change_a_score() -> None:
    (untied,) = rp.evaluate(QRELS, PLAIN, "R@5").tables()
    (tied,) = rp.evaluate(QRELS, TIED, "R@5").tables()
    tie_columns = {"range from ties", "as listed", "tied"}
    assert not tie_columns & {column.name for column in untied.columns}
    assert tie_columns <= {column.name for column in tied.columns}


@pytest.mark.parametrize("room", [40, 80, 120, 200])
def test_no_number_is_cut_on_a_narrow_terminal(room: int) -> None:
    from rankproof.presentation.terminal import drawn_lines, fit

    evaluation = rp.evaluate(QRELS, TIED, ["nDCG@10", "AP(rel=2)@100"])
    (whole,) = evaluation.renamed("a-name-" * 9 + "end").full_tables()
    shown, gap = fit(whole, room - 2)
    lines = [line.plain for line in drawn_lines(shown, gap)]
    assert all(len(line) <= room for line in lines)
    rows = [line for line in lines if "end" in line]
    assert len(rows) == len(whole.rows), "no row takes two lines"
    names = [column.name for column in shown.columns]
    for line, row in zip(rows, whole.rows, strict=True):
        for column, cell in list(zip(whole.columns, row, strict=True))[1:]:
            assert column.write(cell) in line or column.name not in names
    gone = [column.name for column in whole.columns if column.name not in names]
    assert bool(gone) == any("not shown" in note for note in shown.notes)
    assert not gone or room < 200


def test_a_home_that_the_shell_left_as_it_is_is_found(tmp_path: Path) -> None:
    """`--out=~/x` reaches us as it stands, and made a folder that is called `~`."""
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    made = rankproof("eval", QRELS, PLAIN, "--out=~/x.json", cwd=tmp_path, env=home)
    assert made.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    (tmp_path / "run.trec").write_bytes(Path(PLAIN).read_bytes())
    assert rankproof("ties", "~/run.trec", cwd=tmp_path, env=home).returncode == 0


def test_signs_have_a_plain_form_where_the_encoding_lacks_them(tmp_path: Path) -> None:
    third = tmp_path / "third.trec"
    third.write_bytes(Path(PLAIN).read_bytes())
    runs = (TIED, PLAIN, str(third))
    done = rankproof("compare", QRELS, *runs, "-m", "nDCG@5", env={"PYTHONIOENCODING": "ascii"})
    assert b"row - column" in done.stdout
    assert b"\\u" not in done.stdout


def test_a_choice_that_there_is_not_is_refused_in_our_words() -> None:
    said = rankproof("eval", QRELS, PLAIN, "--format", "xml").stderr.decode()
    assert said.startswith("rankproof: Invalid value for '--format': 'xml' is not one of 'table',")
