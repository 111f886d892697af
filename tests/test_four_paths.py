"""The four ways in on the front page run, word for word, in a folder with what a user has."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from loopback import loopback
from mixed_documents import QUESTIONS, write_documents
from rankproof_cli import rankproof
from test_choose import answer

import rankproof as rp

ROOT = Path(__file__).parents[1]
DATA = Path(rp.__file__).parent / "data"


def paths() -> dict[str, list[str]]:
    """Who you are → the commands for you."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Four ways in\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\*\*(.*?)\.\*\*.*?^```console\n(.*?)^```", section, re.S | re.M)
    return {who: [line.removeprefix("$ ") for line in said.splitlines()] for who, said in found}


def run(commands: list[str]) -> None:
    assert 1 < len(commands) <= 5
    assert commands[0].startswith("pip install ")  # as the extras of test_extras_fit_the_paths
    for line in commands[1:]:
        program, *words = shlex.split(os.path.expandvars(line), comments=True)
        assert program == "rankproof"
        done = rankproof(*words)
        assert done.returncode == 0, (line, done.stderr.decode())


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds judgements and runs."""
    monkeypatch.chdir(tmp_path)
    Path("qrels.txt").write_bytes((DATA / "demo-qrels.txt").read_bytes())
    for name in ("run", "bm25", "baseline", "candidate"):
        Path(f"{name}.trec").write_bytes((DATA / "demo-plain.trec").read_bytes())
    Path("dense.trec").write_bytes((DATA / "demo-saturated.trec").read_bytes())
    return tmp_path


def test_there_are_four() -> None:
    assert len(paths()) == 4


def test_who_publishes_numbers(runs: Path) -> None:
    run(paths()["You publish numbers"])


def test_who_trains_or_quantises_embedders(runs: Path) -> None:
    pytest.importorskip("ml_dtypes")
    generator = np.random.default_rng(0)
    Path("qrels.txt").write_text("".join(f"{q} 0 {3 * q} 1\n" for q in range(8)))
    np.save("queries.npy", generator.normal(size=(8, 16)).astype(np.float32))
    np.save("documents.npy", generator.normal(size=(40, 16)).astype(np.float32))
    run(paths()["You train or quantise embedders"])
    assert Path("audited/audit.json").is_file()


def test_who_builds_rag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("lxml", "pypdf", "wordllama", "jinja2"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    write_documents(tmp_path / "documents")
    Path("questions.txt").write_text("\n".join(QUESTIONS))
    with loopback(answer) as server:
        monkeypatch.setenv("JUDGE_URL", server.url)
        monkeypatch.setenv("JUDGE_MODEL", "m")
        run(paths()["You build RAG"])
    assert "What to deploy" in Path("documents-rankproof/report.html").read_text()


def test_who_keeps_a_platform_from_getting_worse(runs: Path) -> None:
    run(paths()["You keep a platform from getting worse"])
