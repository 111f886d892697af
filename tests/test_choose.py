"""From a folder of documents to a decision and its page, in one run that can be stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from loopback import PATIENCE, Loopback, Reply, Request, loopback
from mixed_documents import QUESTIONS, write_documents
from rankproof_cli import rankproof

import rankproof as rp

_PASSAGE = re.compile(r"<<< passage ([A-Z]+) ")


def answer(request: Request) -> Reply:
    """Grades that follow the words: 5 where a passage says "heart", krill or song, else 2."""
    user = request.json["messages"][1]["content"]
    blocks = re.split(r"(?=<<< passage [A-Z]+ )", user)[1:]
    grades = {}
    for block in blocks:
        found = _PASSAGE.match(block)
        assert found is not None
        grades[found[1]] = 5 if re.search("heart|krill|song", block) else 2
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    said = {"choices": [{"message": {"content": json.dumps(grades)}}], "usage": usage, "model": "m"}
    return Reply.of(said)


def prepared(folder: Path, server: Loopback | None) -> Path:
    pytest.importorskip("lxml")
    pytest.importorskip("pypdf")
    write_documents(folder / "documents")
    (folder / "questions.txt").write_text("\n".join(QUESTIONS))
    out = folder / "set"
    url = None if server is None else server.url
    model = None if server is None else "m"
    rp.init(folder / "documents", out, questions=folder / "questions.txt", url=url, model=model)
    return out


def test_documents_become_a_decision_and_a_page(tmp_path: Path) -> None:
    with loopback(answer) as server:
        out = prepared(tmp_path, server)
        refused = rankproof("choose", str(out))
        assert refused.returncode == 2
        assert b"m is asked" in refused.stderr
        assert b"add --yes" in refused.stderr
        assert not server.requests  # nothing is sent before it is agreed to
        done = rankproof("choose", str(out), "--yes", "--format", "json")
        assert done.returncode == 0, done.stderr
        asked = len(server.requests)
        again = rankproof("choose", str(out), "--format", "json")  # nothing is left to pay
        assert again.returncode == 0, again.stderr
        assert len(server.requests) == asked
    data = json.loads(done.stdout)
    assert data["manifest"]["kind"] == "sweep"
    assert len(data["recommendation"]["configurations"]) == 3
    assert data["words"][0].startswith("Best by ")
    assert not data["simulated"]
    page = (out / "report.html").read_text()
    assert "What to deploy: set" in page
    for stage in range(1, 5):
        assert f"{stage} of 4: ".encode() in done.stderr


def test_progress_is_over_all_stages_and_only_goes_on(tmp_path: Path) -> None:
    bars: list[tuple[str, float]] = []
    shares: list[float] = []

    @contextmanager
    def progress(label: str, total: float) -> Iterator[Callable[[float], None]]:
        bars.append((label, total))
        yield shares.append

    with loopback(answer) as server:
        out = prepared(tmp_path, server)
        rp.choose(out, yes=True, progress=progress)
    assert bars == [("all 4 stages", 1.0)]  # one bar, whatever the stages do
    assert all(share >= 0 for share in shares)
    assert 0.5 < sum(shares) < 1  # the page is still to be written
    assert sum(share > 0 for share in shares) > len(server.requests)


@pytest.mark.skipif(os.name == "nt", reason="signals are others there")
def test_it_is_stopped_anywhere_and_goes_on(tmp_path: Path) -> None:
    asked = threading.Event()

    def some(request: Request) -> Reply:
        """Answers three, and then nobody any more."""
        if request.number < 3:
            return answer(request)
        if request.number == 6:  # all four that ask at a time now wait: the three are stored
            asked.set()
        return Reply(silent=True)

    with loopback(some) as server:
        out = prepared(tmp_path, server)
        with subprocess.Popen(
            [sys.executable, "-m", "rankproof", "choose", str(out), "--yes"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            # a shell that runs the tests in the background has children ignore Ctrl-C
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            assert asked.wait(PATIENCE)
            assert process.stderr is not None
            process.send_signal(signal.SIGINT)
            said = iter(process.stderr.readline, b"")
            assert any(line.startswith(b"rankproof: waiting for ") for line in said)
            process.send_signal(signal.SIGINT)
            assert process.wait() == 130
        answered = {request.body for request in server.requests[:3]}
    with loopback(answer) as server:
        rp.init(tmp_path / "documents", out, url=server.url, model="m")  # it has moved
        done = rankproof("choose", str(out), "--yes", "--format", "json")
        assert done.returncode == 0, done.stderr
        assert not answered & {request.body for request in server.requests}


def test_a_limit_that_nothing_keeps_ends_with_1(tmp_path: Path) -> None:
    with loopback(answer) as server:
        out = prepared(tmp_path, server)
        done = rankproof("choose", str(out), "--yes", "--quality", "2", "--format", "json")
    assert done.returncode == 1, done.stderr


def test_nobody_to_judge_is_said_with_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankproof.documents.starters.has_torch", lambda: False)
    out = prepared(tmp_path, None)
    with pytest.raises(rp.InputError, match=r"names no judge; name a chat endpoint there") as told:
        rp.choose(out)
    assert "simulated" not in str(told.value)  # it would need judgements, and there are none
    with pytest.raises(rp.InputError, match="a simulated judge needs judgements to know"):
        rp.choose(out, judge="simulated")
    (out / "golden.yaml").write_text("corpus: .\njudge: {type: simulated}\n")
    with pytest.raises(rp.InputError, match="evidence of nothing; name another"):
        rp.choose(out)
    (out / "queries.jsonl").unlink()
    with pytest.raises(rp.InputError, match="no questions in this folder"):
        rp.choose(out)
    with pytest.raises(rp.InputError, match="there is no such folder; prepare one"):
        rp.choose(tmp_path / "nowhere")


def test_a_simulation_asked_for_by_name_says_so_everywhere(tmp_path: Path) -> None:
    out = prepared(tmp_path, None)
    names = [json.loads(line)["_id"] for line in (out / "queries.jsonl").read_text().splitlines()]
    docs = [json.loads(line)["_id"] for line in (out / "corpus.jsonl").read_text().splitlines()]
    (out / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore", *(f"{name}\t{docs[0]}\t1" for name in names)]
    (out / "qrels" / "test.tsv").write_text("\n".join(lines))
    found = rp.choose(out, judge="simulated")
    assert found.simulated
    assert "the judge was simulated: these figures are evidence of nothing" in found.notes
    assert "SIMULATED" in found.report.read_text()
    assert (out / "golden-simulated" / "qrels.simulated.txt").is_file()
    assert not (out / "golden").exists()
