"""Ctrl-C while a server is asked: real signals to a real command, a server that never answers."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from golden_sets import honest, write_corpus
from loopback import PATIENCE, Reply, Request, loopback

from rankproof.cli.exit_line import errors_as_one_line
from rankproof.foundation.interrupts import two_stage

SWEEP = """
corpus: {corpus}
embedders: {{served: {{type: endpoint, url: "{url}", model: m, batch: 4, attempts: 2}}}}
modes: [dense]
pools: [5]
prompts: [5]
grades: {{1: 2, 2: 3, 3: 4, 4: 5}}
"""
GOLDEN = """
corpus: {corpus}
judge: {{type: llm, url: "{url}", model: m, attempts: 2}}
grading: {{batch: 2}}
limits: {{concurrency: 2}}
depths: {{dense: 0}}
"""
REWRITING = (
    GOLDEN
    + """
rewriter: {{type: llm, url: "{url}", model: m, attempts: 2}}
"""
)
VERBS = {
    "sweep": (["sweep"], SWEEP),
    "golden": (["golden", "build"], GOLDEN),
    "rewriting": (["golden", "build"], REWRITING),
}


@contextmanager
def command(folder: Path, verb: str, url: str) -> Iterator[subprocess.Popen[str]]:
    words, config = VERBS[verb]
    corpus = folder / "corpus"
    if not corpus.exists():
        write_corpus(corpus)
    file = folder / f"{verb}.yaml"
    file.write_text(config.format(corpus=corpus, url=url))
    with subprocess.Popen(
        [sys.executable, "-m", "rankproof", *words, str(file)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


def line(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


class Gate:
    """A server that says when it was asked, and answers once it may."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may = threading.Event()

    def __call__(self, request: Request) -> Reply:
        self.asked.set()
        self.may.wait(PATIENCE)
        if request.path.endswith("/embeddings"):
            texts = request.json["input"]
            vectors = [{"index": at, "embedding": [1.0, len(t)]} for at, t in enumerate(texts)]
            return Reply.of({"data": vectors})
        return honest(request)


@pytest.mark.slow
@pytest.mark.parametrize("verb", list(VERBS))
def test_the_first_ctrl_c_names_the_pending_request_and_the_second_exits_at_once(
    verb: str, tmp_path: Path
) -> None:
    asked = threading.Event()

    def never(request: Request) -> Reply:
        asked.set()
        return Reply(silent=True)

    with loopback(never) as server, command(tmp_path, verb, server.url) as process:
        assert asked.wait(PATIENCE)
        process.send_signal(signal.SIGINT)
        said = line(process)
        assert said.startswith("rankproof: waiting for ")
        assert server.url[7:] in said
        assert said.endswith("Ctrl-C again leaves at once\n")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert line(process) == "rankproof: stopped\n"
        assert process.wait() == 130


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["sweep", "golden"])
def test_the_pending_answer_is_stored_and_no_further_request_is_sent(
    verb: str, tmp_path: Path
) -> None:
    gate = Gate()
    with loopback(gate) as server:
        with command(tmp_path, verb, server.url) as process:
            assert gate.asked.wait(PATIENCE)
            process.send_signal(signal.SIGINT)
            assert "waiting for" in line(process)
            sent = len(server.requests)
            gate.may.set()
            assert line(process) == "rankproof: stopped\n"
            assert process.wait() == 130
        assert sent <= len(server.requests) <= 2  # the other judge's thread may just have asked
        asked = [len(request.json.get("input", "1")) for request in server.requests]
        assert stored(tmp_path, verb) == sum(asked)


def stored(folder: Path, verb: str) -> int:
    """How many texts, or replies, were kept."""
    if verb == "golden":
        file, query = folder / "golden.golden", "SELECT COUNT(*) FROM replies"
    else:
        file, query = folder / "sweep-results/work/cache.sqlite", "SELECT COUNT(*) FROM entries"
    connection = sqlite3.connect(file)
    (found,) = connection.execute(query).fetchone()
    connection.close()
    return int(found)


def test_ctrl_c_during_a_pause_that_the_server_requested_exits_at_once(tmp_path: Path) -> None:
    asked = threading.Event()

    def busy(request: Request) -> Reply:
        asked.set()
        return Reply.of({}, 429, retry_after="300")

    with loopback(busy) as server, command(tmp_path, "sweep", server.url) as process:
        assert asked.wait(PATIENCE)
        heard = []
        process.send_signal(signal.SIGINT)  # the answer may still be on its way
        heard.append(line(process))
        if "waiting" in heard[0]:
            heard.append(line(process))
        assert heard[-1] == "rankproof: stopped\n"
        assert process.wait() == 130
        assert len(server.requests) == 1


@pytest.mark.parametrize("in_a_class", [False, True])
def test_ctrl_c_while_the_command_loads_prints_one_line(tmp_path: Path, in_a_class: bool) -> None:
    text = "import signal\nsignal.raise_signal(signal.SIGINT)\n"
    if in_a_class:  # of which Python 3.11 makes an error of its own
        text = (
            "import signal\nclass Set:\n    def __set_name__(self, *_):\n"
            "        signal.raise_signal(signal.SIGINT)\nclass Owner:\n    name = Set()\n"
        )
    (tmp_path / "click.py").write_text(text)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom rankproof import __main__ as m\n"
    )
    code += "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nm.run()"
    done = subprocess.run(
        [sys.executable, "-c", code, "measures"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "rankproof: stopped\n")


def test_ctrl_c_that_a_library_swallows_still_stops_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Ends:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    def work() -> None:
        given = [Ends()]
        given.clear()
        threading.Event().wait(PATIENCE)

    with two_stage(), pytest.raises(KeyboardInterrupt):
        work()
    assert capsys.readouterr().err == ""


def test_an_error_caused_by_ctrl_c_is_reported_as_ctrl_c(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as stopped, errors_as_one_line():
        raise RuntimeError("__set_name__") from KeyboardInterrupt()
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "rankproof: stopped\n"
