"""`rankproof diagnose` as a process of its own."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
from rankproof_cli import csv_rows, rankproof

pytest.importorskip("wordllama")

SMALL = ("--queries", "5", "--runs", "1")


def test_names_prints_a_table_and_sentences() -> None:
    done = rankproof("diagnose", "names", *SMALL, env={"COLUMNS": "80"})
    assert done.returncode == 0, done.stderr.decode()
    out = done.stdout.decode()
    assert " ".join(out.split("\n")[0].split()) == (
        "ablation Δname Δtopic Δboth ΔΔ% confused % nDCG@10"
    )
    assert "hard_name_mask" in out
    assert "-100.0" in out
    assert "hard_name_mask takes the whole margin, as it must." in out
    assert done.stderr == b""


def test_names_writes_its_files_and_a_broken_rule_exits_with_1(tmp_path: Path) -> None:
    done = rankproof(
        *("diagnose", "names", *SMALL, "--language", "fr", "--format", "json"),
        *("--out", str(tmp_path / "new" / "out")),
        *("--fail-if", "name drop > 50% under hard_name_mask"),
        *("--fail-if", "name margin < -1"),
    )
    assert done.returncode == 1
    data = json.loads(done.stdout)
    assert data["manifest"]["kind"] == "names"
    assert data["manifest"]["config"]["embedder"]["type"] == "wordllama"
    assert [row["ablation"] for row in data["rows"]][:2] == ["base", "hard_name_mask"]
    assert data["rows"][1]["percent"]["name"]["mean"] == -100.0
    assert [rule["failed"] for rule in data["rules"]] == [True, False]
    said = done.stderr.decode()
    assert "failed: name drop > 50% under hard_name_mask: 100.0% under hard_name_mask" in said
    assert "passed: name margin < -1" in said
    folder = tmp_path / "new" / "out"
    stored = json.loads((folder / "names.json").read_text("utf-8"))
    assert stored.pop("presentation")["kind"] == "names"
    assert stored == data
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["names.html", "names.json", "names.svg"]
    assert "unicode_normalization_stress" in (folder / "names.svg").read_text("utf-8")


def test_noise_reads_embedder_and_rules_from_a_file(tmp_path: Path) -> None:
    config = tmp_path / "model.yaml"
    config.write_text(
        "embedder: {type: wordllama, dimensions: 64}\n"
        "fail_if: {noise: ['cosine drop > 1% at level 4'], names: ['name margin < 0']}\n"
    )
    done = rankproof(
        *("diagnose", "noise", *SMALL, "--embedder", str(config), "--format", "json"),
        *("--out", str(tmp_path / "out")),
    )
    assert done.returncode == 1, done.stderr.decode()
    data = json.loads(done.stdout)
    assert data["embedder"] == "wordllama-64"
    assert [rule["rule"] for rule in data["rules"]] == ["cosine drop > 1% at level 4"]
    ways = [(row["level"], row["rewriter"]) for row in data["rows"]]
    said = (None, "rules (en)", "question alone (en)")
    assert ways == [(n, way) for way in said for n in range(5)]
    assert (tmp_path / "out" / "noise.json").exists()
    assert (tmp_path / "out" / "noise.svg").exists()


@pytest.mark.parametrize("form", ["csv", "md", "latex"])
def test_tables_come_in_every_format(form: str) -> None:
    done = rankproof("diagnose", "noise", *SMALL, "--format", form)
    assert done.returncode == 0
    out = done.stdout.decode()
    if form == "csv":
        rows = csv_rows(out)
        assert len(rows) == 15
        assert float(rows[0]["to clean"]) == pytest.approx(1.0)
    else:
        assert "as typed" in out


def lists(tmp_path: Path, content: str) -> str:
    path = tmp_path / "authors.csv"
    path.write_text(content, "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name,topic\nA,b\n", "there is no column 'author'"),
        ("author,topic\nAda Holm,soil\n,ice\n", "1 author; give 3 authors or more"),
        ("author,topic\nA,soil\nB,soil\nC,ice\n", "topic 'soil' stands already on line 2"),
        ("author,topic\nÉda Holm,a\neda holm,b\nC,c\n", "author 'eda holm' stands as 'Éda Holm'"),
    ],
)
def test_unusable_lists_are_refused_in_one_line_with_exit_code_2(
    tmp_path: Path, content: str, message: str
) -> None:
    done = rankproof("diagnose", "names", "--authors", lists(tmp_path, content))
    assert done.returncode == 2
    said = done.stderr.decode()
    assert said.startswith("rankproof: ")
    assert said.count("\n") == 1
    assert message in said
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("names", "--language", "de"), "language 'de' has no templates; use en or fr"),
        (("noise", "--language", "de"), "language 'de' has no templates; use en or fr"),
        (("names", "--fail-if", "name drop > 3%"), "names no ablation"),
        (("noise", "--fail-if", "x"), "is not understood"),
        (("noise", "--fail-if", "cosine drop > 3% at level ²"), "names no level"),
        (("names", "--embedder", "absent.yaml"), "absent.yaml: there is no such file"),
        (("names", "--authors", "absent.csv"), "absent.csv"),
        (("noise", "--corpus", "absent"), "absent: there is no such folder"),
        (("noise", "--qrels", "x.txt"), "--qrels without --corpus"),
        (("names", "--out", __file__), "this is a file; name a folder"),
    ],
)
def test_bad_arguments_are_refused_in_one_line_with_exit_code_2(
    arguments: tuple[str, ...], message: str
) -> None:
    done = rankproof("diagnose", *arguments)
    assert done.returncode == 2
    said = done.stderr.decode()
    assert said.count("\n") == 1
    assert message in said


def test_judgments_of_a_golden_set_replace_those_of_the_corpus(tmp_path: Path) -> None:
    corpus = Path(str(files("rankproof") / "resources" / "demo"))
    grades = (corpus / "qrels" / "test.tsv").read_text("utf-8").splitlines()[1:]
    golden = tmp_path / "qrels.txt"
    rows = (line.split("\t") for line in grades)
    golden.write_text(
        "".join(f"{query} 0 {passage} {int(g) >= 4:d}\n" for query, passage, g in rows)
    )
    measures = []
    for more in ((), ("--qrels", str(golden))):
        done = rankproof(
            *("diagnose", "noise", *SMALL, "--corpus", str(corpus), *more, "--format", "json")
        )
        assert done.returncode == 0, done.stderr.decode()
        measures.append(json.loads(done.stdout)["measure"])
    assert measures == ["NRecall4@10", "nDCG@10"]
