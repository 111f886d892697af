"""A small corpus, and a server that judges it: what the tests of golden sets share."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from loopback import Reply, Request

from rankproof.foundation.config import check_config
from rankproof.golden.settings import GoldenSettings

_BLOCK = re.compile(
    r"<<< passage ([A-Z]+) ([0-9a-z]+) >>>\n(.*?)\n<<< end of passage \1 \2 >>>", re.S
)
_NAME = re.compile(r"passage number (\S+)")


def write_corpus(folder: Path, queries: int = 3, documents: int = 12) -> Path:
    """A BEIR folder in which every query shares a word with every passage."""
    (folder / "qrels").mkdir(parents=True)
    rows = [
        {"_id": f"d{n}", "title": "", "text": f"passage number d{n} tells of whales " + "x " * n}
        for n in range(documents)
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": f"q{n}", "text": f"what of whales, case {n}?"} for n in range(queries)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    labels = [
        f"q{q}\td{n}\t{truth(f'q{q}', f'd{n}') - 1}"
        for q in range(queries)
        for n in range(documents)
        if truth(f"q{q}", f"d{n}") > 1
    ]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *labels]))
    return folder


def truth(query: str, doc: str) -> int:
    """The grade that a passage deserves."""
    return 1 + hashlib.sha256(f"{query}/{doc}".encode()).digest()[0] % 5


def settings(corpus: Path, **more: Any) -> GoldenSettings:
    """A configuration without dense retrieval, which is quick."""
    base = {
        "corpus": str(corpus),
        "depths": {"dense": 0, "bm25": 100, "pool": 50},
        "judge": {"type": "simulated"},
        "pruning": {"target": 4},
        "ranking": {"budget": 12, "target": 1.0},
    }
    return check_config(base | more, GoldenSettings, place="test")


def shown(request: Request) -> tuple[str, list[tuple[str, str]], bool]:
    """What a judge reads: the query, (label, document) of each passage, whether asked again."""
    user = request.json["messages"][1]["content"]
    found = re.search(r"case (\d+)\?", user)
    assert found is not None
    passages = []
    for name, _, text in _BLOCK.findall(user):
        document = _NAME.search(text)
        assert document is not None
        passages.append((name, document[1]))
    return f"q{found[1]}", passages, "last reply could not be used" in user


def reply(text: str) -> Reply:
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return Reply.of({"model": "m", "choices": [{"message": {"content": text}}], "usage": usage})


def ordering(request: Request) -> bool:
    """Whether an order is asked for, and not grades."""
    return '"order"' in request.json["messages"][0]["content"]


def honest(request: Request) -> Reply:
    """A judge that tells the truth: grades, or documents by grade and then by name."""
    query, passages, _ = shown(request)
    if ordering(request):
        best = sorted(passages, key=lambda p: (-truth(query, p[1]), p[1]))
        return reply(json.dumps({"order": [name for name, _ in best]}))
    return reply(json.dumps({name: truth(query, doc) for name, doc in passages}))


class Worker:
    """The process of golden_worker.py."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("golden_worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, config: Any, path: Path, stage: str | None, dies_at: int = 0) -> int:
        """Have a child build; it ends itself, unwarned, when so much was written to the store."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([config, str(path), stage, dies_at]) + "\n")
        self.process.stdin.flush()
        return self.line()

    def line(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
