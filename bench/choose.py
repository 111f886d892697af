"""How long it takes from a folder of documents to the page, with a judge that answers at once.

    python bench/choose.py [--documents 500] [--questions 40]

`init` and `choose` as processes of their own; the judge is a server on loopback. Seconds of the
wall and of the processor, theirs alone. Writes its part of RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from results import record

WORDS = [
    f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("lin", "ran", "tor", "mes")
]


class Judge(BaseHTTPRequestHandler):
    """Grades by length, in the shape of a chat."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = re.findall(r"<<< passage ([A-Z]+) ", asked["messages"][1]["content"])
        said = json.dumps({name: 1 + at % 5 for at, name in enumerate(names)})
        usage = {"prompt_tokens": 500, "completion_tokens": 20}
        reply = {"model": "m", "choices": [{"message": {"content": said}}], "usage": usage}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


def write(folder: Path, documents: int, questions: int) -> None:
    """Markdown of three sections each, and questions of six words."""
    draw = random.Random(0)
    (folder / "documents").mkdir()
    for number in range(documents):
        sections = [
            f"## {draw.choice(WORDS)}\n\n{' '.join(draw.choices(WORDS, k=90))}." for _ in "123"
        ]
        text = f"# Document {number}\n\n" + "\n\n".join(sections)
        (folder / "documents" / f"{number}.md").write_text(text, encoding="utf-8")
    lines = [" ".join(draw.choices(WORDS, k=6)) + "?" for _ in range(questions)]
    (folder / "questions.txt").write_text("\n".join(lines), encoding="utf-8")


def timed(words: list[str], folder: Path) -> tuple[float, float]:
    """Seconds of the wall and of the processor that a command takes."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "rankproof", *words]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - begun, spent


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--documents", type=int, default=500)
    given.add_argument("--questions", type=int, default=40)
    asked = given.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, asked.documents, asked.questions)
        init = ["init", "documents", "--questions", "questions.txt", "--url", url, "--model", "m"]
        choose = ["choose", "documents-rankproof", "--yes"]
        steps = {"`init`": init, "`init` again, nothing changed": init, "`choose`": choose}
        steps |= {"`choose` again": choose, "`demo`": ["demo"]}
        rows = []
        for what, words in steps.items():
            wall, spent = timed(words, folder)
            rows.append(f"| {what} | {wall:.1f} | {spent:.1f} |")
            print(rows[-1], flush=True)
    record(
        "From documents to a decision",
        [
            f"{asked.documents} Markdown documents of three sections, {asked.questions} questions, "
            "a judge on loopback that answers at once: pools of 50 graded five passages a call, "
            "three configurations, holes judged, the page written. Seconds of the wall and of the "
            "processor; the load of the machine when it began: "
            f"{load:.1f}.",
            "",
            "| step | wall s | processor s |",
            "|:--|--:|--:|",
            *rows,
        ],
    )
    server.shutdown()


if __name__ == "__main__":
    main()
