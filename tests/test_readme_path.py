"""From a corpus to a deployed configuration: the page's commands run in an empty folder."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import polars as pl
import pytest
from rankproof_cli import rankproof

from rankproof.foundation.config import check_config
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import sweep

pytest.importorskip("wordllama")

PAGE = Path(__file__).parents[1] / "docs" / "decide.md"


@pytest.mark.slow
def test_the_path_from_a_golden_set_to_a_report_runs_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("## The whole path\n")[2].partition("\n## ")[0]
    files = re.findall(r"^```yaml\n# (\S+)\n(.*?)^```", section, re.S | re.M)
    assert [name for name, _ in files] == ["judge.yaml", "grid.yaml"]
    for name, content in files:
        Path(name).write_text(content, encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(rankproof .*?)^```", text, re.S | re.M)
    assert block in section
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    verbs = [words[1] for words in commands]
    assert verbs == ["demo", "golden", "golden", "sweep", "recommend", "diagnose", "report"]
    for program, *words in commands:
        assert program == "rankproof"
        done = rankproof(*words)
        assert done.returncode == 0, (words, done.stderr.decode())
    assert Path("swept/report.html").is_file()
    frame = pl.read_parquet("swept/configurations.parquet")
    assert {"RAnWG@prompt", "RR(rel=4)@10"} <= set(frame.columns)
    # The export is a corpus of its own.
    settings = {"corpus": "judged/beir-simulated", "modes": ["sparse"], "pools": [30]}
    taken = check_config(settings, SweepSettings, place="test", folder=tmp_path)
    assert sweep(taken, "again").configurations["RAnWG@10"].is_not_null().all()


def test_a_corpus_without_judgements_names_the_key_that_is_missing(tmp_path: Path) -> None:
    for name in ("corpus", "queries"):
        (tmp_path / f"{name}.jsonl").write_text('{"_id": "a", "text": "one"}\n')
    (tmp_path / "grid.yaml").write_text("corpus: .\n")
    done = rankproof("sweep", str(tmp_path / "grid.yaml"), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "there is no qrels/test.tsv in this folder" in done.stderr.decode()
    assert "`qrels: " in done.stderr.decode()
