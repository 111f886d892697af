"""How fast the viewer opens and answers; writes its part of bench/RESULTS.md.

    .venv/bin/python bench/viewer.py

The golden set is made up: 1,000 questions × 50 passages of about 150 words, every one graded, 35
of each pool in order by 25 calls. Times are of headless Chromium, the least and the median of
several; the server is the command itself. Needs a minute.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import results

from rankproof.golden.judgments import Row
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from browser import browser, tab

QUESTIONS, PASSAGES, RANKED, CALLS, BATCH = 1_000, 50, 35, 25, 5
WORDS = 150
TIMES = 7


def make_set(path: Path) -> None:
    """A golden set without a judge."""
    drawn = random.Random(0)
    words = ["".join(drawn.choices("aeinorstlu", k=drawn.randint(3, 9))) for _ in range(5_000)]
    config = GoldenSettings.model_validate({"corpus": "corpus", "judge": {"type": "simulated"}})
    queries = [f"q{n}" for n in range(QUESTIONS)]
    docs = {query: [f"{query}-d{n}" for n in range(PASSAGES)] for query in queries}
    with Store(path, create=True) as store, store.transaction():
        store.set_meta("config", config.model_dump(mode="json"))
        store.set_meta("judge", {"name": "none", "type": "simulated", "simulated": True})
        store.set_meta("done", {"grade": "made up", "rank": "made up"})
        store.replace(
            "queries",
            [
                (query, n, " ".join(drawn.choices(words, k=12)), None)
                for n, query in enumerate(docs)
            ],
        )
        store.replace(
            "passages",
            [
                (doc, " ".join(drawn.choices(words, k=WORDS)), f"shelf {drawn.randrange(20)}")
                for pool in docs.values()
                for doc in pool
            ],
        )
        for table, row in (
            ("retrieved", lambda q, n, d: (q, "dense", d, n + 1, 1 / (n + 1))),
            ("pool", lambda q, n, d: (q, d, n + 1, 1 / (60 + n))),
            ("grades", lambda q, n, d: (q, d, drawn.randint(1, 5), None, 1)),
        ):
            store.replace(
                table, [row(q, n, d) for q, pool in docs.items() for n, d in enumerate(pool)]
            )
        store.replace(
            "ranking",
            [
                (q, d, n + 1, -float(n), 1.0, max(1, n - 3), min(RANKED, n + 5), drawn.random())
                for q, pool in docs.items()
                for n, d in enumerate(pool[:RANKED])
            ],
        )
        store.replace("refined", [(q, "overlap", CALLS, 0, 0.9, "[]") for q in queries])
        replies: list[Row] = []
        orders: list[Row] = []
        for query, pool in docs.items():
            for call in range(CALLS):
                shown = drawn.sample(pool[:RANKED], BATCH)
                number = len(replies) + 1
                listed = json.dumps(shown)
                replies.append(
                    (
                        *(number, f"r{number}", f"c{number}", "order", query, listed, 1, 0),
                        *("p", "none", "{}", '{"order": ["A", "B", "C", "D", "E"]}', listed, None),
                        *(1200, 12, 1, 0.0, 0.5, 1, "2026-01-01T00:00:00.000+00:00", 0),
                        *(0, "[]", None),
                    )
                )
                orders.append((query, call // 4, call % 4, number))
        store.replace("replies", replies)
        store.replace("orders", orders)


# From a word in the field, or a click on "clear", to the frame that shows what was found.
_SEARCH = """word => new Promise(done => {
  const begun = performance.now();
  const seen = new MutationObserver(() => {
    seen.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
  });
  seen.observe(document.getElementById("count"), {childList: true});
  if (word === null) { document.getElementById("clear").click(); return; }
  const field = document.getElementById("search");
  field.value = word;
  field.dispatchEvent(new Event("input"));
})"""


def timed(act: Callable[[], object]) -> list[float]:
    """Milliseconds of each time."""
    found = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        act()
        found.append(1000 * (time.perf_counter() - begun))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.golden"
        make_set(path)
        size = path.stat().st_size / 1e6
        load = os.getloadavg()[0]
        begun = time.perf_counter()
        server = subprocess.Popen(
            [sys.executable, "-m", "rankproof", "golden", "view", str(path), "--no-open"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        start = 1000 * (time.perf_counter() - begun)
        try:
            rows = measure(url)
        finally:
            server.terminate()
            server.wait()
    lines = [
        f"{QUESTIONS:,} questions × {PASSAGES} passages of {WORDS} words, {QUESTIONS * CALLS:,} "
        f"orders: a file of {size:.0f} MB. Milliseconds in headless Chromium, {TIMES} times each; "
        f"the command printed its address after {start:.0f} ms; "
        f"load before: {load:.1f}. Made by `bench/viewer.py`.",
        "",
        "| | least | median |",
        "|:--|--:|--:|",
        *(
            f"| {name} | {min(found):.0f} | {statistics.median(found):.0f} |"
            for name, found in rows.items()
        ),
    ]
    results.record("The viewer", lines)


def measure(url: str) -> dict[str, list[float]]:
    with browser() as running, tab(running) as opened:
        page = opened.page

        def load() -> None:
            page.goto(url)
            page.locator(".passage:focus").wait_for()

        def follow() -> None:
            before = page.locator("#question h2").inner_text()
            page.keyboard.press("n")
            page.wait_for_function(
                "before => document.querySelector('#question h2').innerText !== before", arg=before
            )

        def grade() -> None:
            page.keyboard.press("j")
            page.keyboard.press("v")
            page.locator(".passage.current .badge.good").wait_for()

        rows = {
            "page load to the first question shown": timed(load),
            "next question": timed(follow),
            "a grade, stored and shown": timed(grade),
        }
        words = page.locator(".passage .text").first.inner_text().split()
        names = ("a word searched in all passages", "the search cleared")
        for name in names:
            rows[name] = []
        for turn in range(TIMES):
            for name, word in zip(names, (words[turn], None), strict=True):
                rows[name].append(page.evaluate(_SEARCH, word))
                page.wait_for_load_state("networkidle")
        assert opened.errors == []
        return rows


if __name__ == "__main__":
    main()
