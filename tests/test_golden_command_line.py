"""`rankproof golden` as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from golden_sets import honest, write_corpus
from loopback import PATIENCE, Reply, loopback
from loopback import Request as Sent
from rankproof_cli import rankproof

from rankproof.golden.store import Store


def config(folder: Path, url: str, **more: Any) -> str:
    write_corpus(folder / "corpus")
    value = {
        "corpus": "corpus",
        "depths": {"dense": 0, "bm25": 20, "pool": 20},
        "judge": {
            "type": "llm",
            "url": url,
            "model": "m",
            "key_env": "GOLDEN_TEST_KEY",
            "price": {"input_per_1m": 100.0, "output_per_1m": 100.0},
        },
        "pruning": {"target": 4},
        "ranking": {"budget": 4, "target": 1.0},
    }
    file = folder / "set.yaml"
    file.write_text(json.dumps(value | more))  # JSON is YAML
    return str(file)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOLDEN_TEST_KEY", "very-secret-key")


def test_a_golden_set_from_plan_to_page(tmp_path: Path) -> None:
    with loopback(honest) as server:
        file = config(tmp_path, server.url)
        store = str(tmp_path / "set.golden")

        planned = rankproof("golden", "build", file, "--dry-run")
        assert planned.returncode == 0, planned.stderr
        assert "Nothing was sent." in planned.stdout.decode()
        assert server.requests == []
        assert not (tmp_path / "set.golden").exists()

        stopped = rankproof("golden", "build", file, "--max-cost", "0.6")
        assert stopped.returncode == 1
        assert b"could pass max_cost, $0.6" in stopped.stderr
        sent = len(server.requests)
        assert 0 < sent < 9 + 12

        done = rankproof("golden", "build", file, "--format", "json")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["graded"], found["failed"], found["pooled"]) == (36, 0, 36)
        assert found["cost"] == pytest.approx(found["replies"] * 110 * 100 / 1e6)
        assert len(server.requests) == found["replies"] == 9 + 12

    status = rankproof("golden", "status", store).stdout.decode()
    assert "36 graded, 0 failed, 36 in all" in status
    assert "judge: m" in status
    out = tmp_path / "out"
    exported = rankproof("golden", "export", store, "--out", str(out))
    assert exported.returncode == 0, exported.stderr
    assert (out / "index.html").is_file()
    people = str(tmp_path / "corpus" / "qrels" / "test.tsv")
    agreed = rankproof(
        *("golden", "agreement", store, "--human", people, "--unjudged", "zero", "--relevant", "3"),
        *("--format", "json"),
    )
    assert agreed.returncode == 0, agreed.stderr
    assert json.loads(agreed.stdout)["people"]["coefficients"]["κ"]["value"] == 1
    kept = [*tmp_path.glob("set.golden*"), *(f for f in out.rglob("*") if f.is_file())]
    assert len(kept) > 8
    assert not [f for f in kept if b"very-secret-key" in f.read_bytes()]


def test_a_share_of_failures_that_is_too_large_is_exit_code_1(tmp_path: Path) -> None:
    def answer(sent: Sent) -> Reply:
        text = str(sent.json["messages"][1])
        return Reply.of({"choices": []}, 400) if "case 1" in text else honest(sent)

    with loopback(answer) as server:
        file = config(tmp_path, server.url)
        assert rankproof("golden", "build", file).returncode == 0
    store = str(tmp_path / "set.golden")
    refused = rankproof("golden", "export", store, "--out", str(tmp_path / "out"))
    assert refused.returncode == 1
    assert b"12 of 36 judgements failed (33.3%, at most 2.0% may)" in refused.stderr
    assert not (tmp_path / "out").exists()

    with loopback(honest) as server:
        value = json.loads(Path(file).read_text())
        value["judge"]["url"] = server.url
        Path(file).write_text(json.dumps(value))
        again = rankproof("golden", "build", file, "--retry-failed", "--format", "json")
        assert b"3 failed requests will be asked again" in again.stderr
        assert (json.loads(again.stdout)["graded"], json.loads(again.stdout)["failed"]) == (36, 0)
    assert rankproof("golden", "export", store, "--out", str(tmp_path / "out")).returncode == 0


def test_an_undone_correction_is_no_label(tmp_path: Path) -> None:
    with loopback(honest) as server:
        file = config(tmp_path, server.url)
        assert rankproof("golden", "build", file, "--stage", "rewrite").returncode == 0
        assert rankproof("golden", "build", file).returncode == 0
        path = tmp_path / "set.golden"
        with Store(path, write=True) as store:
            store.undo(store.correct("q0", "d1", "grade", 2, who="ada"), who="ada")
        nothing = rankproof("golden", "agreement", str(path))
        assert nothing.returncode == 2
        assert b"nothing to compare the judge with" in nothing.stderr
        itself = rankproof("golden", "agreement", str(path), "--repeats", "1", "--format", "json")
        assert itself.returncode == 0, itself.stderr
        assert json.loads(itself.stdout)["people"] is None


def test_ctrl_c_ends_a_build_that_waits_for_its_turn(tmp_path: Path) -> None:
    busy = threading.Event()

    def answer(sent: Sent) -> Reply:
        busy.set()
        return Reply.of({"error": "busy"}, 429, retry_after="300")

    with loopback(answer) as server:
        command = [sys.executable, "-m", "rankproof", "golden", "build"]
        process = subprocess.Popen(
            [*command, config(tmp_path, server.url)], stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert busy.wait(PATIENCE)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert said.decode().endswith("rankproof: stopped\n")
    assert process.returncode == 130
    assert len(server.requests) <= 4  # as many as were under way


def test_what_cannot_go_well_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    with loopback(lambda sent: Reply.of({"error": "no"}, 401)) as server:
        file = config(tmp_path, server.url)
        wrong_key = rankproof("golden", "build", file)
        assert len(server.requests) <= 4  # as many as were under way
    store = tmp_path / "set.golden"
    cases = [
        (wrong_key, "check the key in $GOLDEN_TEST_KEY"),
        (rankproof("golden", "build", str(tmp_path / "absent.yaml")), "there is no such file"),
        (rankproof("golden", "status", str(tmp_path / "absent.golden")), "no such golden set"),
        (rankproof("golden", "status", file), "this is not a golden set"),
        (
            rankproof("golden", "export", str(store), "--out", str(tmp_path / "out")),
            "nothing is graded yet",
        ),
        (rankproof("golden", "build", file, "--stage", "rank"), "rank needs grade"),
        (rankproof("golden", "build", file, "--max-cost", "inf"), "--max-cost: max_cost: inf"),
    ]
    with Store(store, write=True):
        cases.append(
            (rankproof("golden", "build", file), f"in use by process {os.getpid()} on "),
        )
    for result, words in cases:
        said = result.stderr.decode()
        assert result.returncode == 2, said
        assert words in said
        assert said.count("\n") == 1, said
        assert "very-secret-key" not in said
        assert result.stdout == b""


def test_when_nothing_could_be_judged_it_is_exit_code_1_in_the_servers_own_words(
    tmp_path: Path,
) -> None:
    def refuses(sent: Sent) -> Reply:
        return Reply.of({"error": {"message": "the prompt offends policy 7"}}, 400)

    with loopback(refuses) as server:
        file = config(tmp_path, server.url, sample=2)
        done = rankproof("golden", "build", file)
        assert done.returncode == 1
        assert "policy 7" in done.stderr.decode()
        assert "--retry-failed" in done.stderr.decode()
        assert b"Traceback" not in done.stderr
