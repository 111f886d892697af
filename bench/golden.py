"""How fast a store takes judgements; writes its part of bench/RESULTS.md.

    .venv/bin/python bench/golden.py

Every reply is a row of its own, committed before the next one: by one thread, then by eight that
share the store, as those that ask a judge do. Then rows are looked up, as a resumed build does.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import results

from rankproof.foundation.manifest import digest
from rankproof.golden.judgments import Reply
from rankproof.golden.store import Store

ROWS, ROUNDS, THREADS = 4000, 5, 8
DOCUMENTS = tuple(f"document {n}" for n in range(5))
REPLY = Reply(
    request="",
    content=digest("content"),
    kind="grade",
    query="query 17",
    documents=DOCUMENTS,
    attempt=1,
    repeat=0,
    prompt=digest("prompt"),
    model="a-model",
    parameters={"temperature": 0, "max_tokens": 1024},
    text='{"A": 5, "B": 1, "C": 3, "D": 2, "E": 1}',
    result=dict.fromkeys(DOCUMENTS, 1),
    failure=None,
    tokens_in=1500,
    tokens_out=30,
    counted=True,
    cost=0.0004,
    seconds=0.8,
    tries=1,
)


def one_by_one(store: Store, rows: list[Reply]) -> None:
    for row in rows:
        store.add_reply(row)


def by_threads(store: Store, rows: list[Reply]) -> None:
    threads = [
        threading.Thread(target=one_by_one, args=(store, rows[n::THREADS])) for n in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def look_up(store: Store, rows: list[Reply]) -> None:
    for row in rows:
        assert store.reply(row.request) is not None


def main() -> None:
    rows = [replace(REPLY, request=digest(n)) for n in range(ROWS)]
    taken: dict[str, list[float]] = {}

    def measure(name: str, work: Callable[[Store, list[Reply]], None], store: Store) -> None:
        begin = time.perf_counter()
        work(store, rows)
        taken.setdefault(name, []).append(time.perf_counter() - begin)

    sizes = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
            with Store(Path(folder) / "a.golden", create=True) as store:
                measure("one thread writes", one_by_one, store)
                measure("looked up by digest", look_up, store)
            sizes.append((Path(folder) / "a.golden").stat().st_size / ROWS)
            with Store(Path(folder) / "b.golden", create=True) as store:
                measure(f"{THREADS} threads write", by_threads, store)
    lines = [
        f"{ROWS:,} replies to requests of 5 passages, each committed by itself; medians of "
        f"{ROUNDS} rounds. {statistics.median(sizes):,.0f} bytes a reply on disk.",
        "",
        "| | replies/s | judgements/s |",
        "|:--|--:|--:|",
    ]
    for name, seconds in taken.items():
        rate = ROWS / statistics.median(seconds)
        lines.append(f"| {name} | {rate:,.0f} | {5 * rate:,.0f} |")
    results.record("Storing judgements", lines)


if __name__ == "__main__":
    main()
