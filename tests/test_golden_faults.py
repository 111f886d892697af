"""The proof: a server that misbehaves in every way, a builder that is killed again and again."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from golden_sets import Worker, honest, reply, settings, shown, truth, write_corpus
from loopback import PATIENCE, Reply, Request, loopback

from rankproof.golden.store import Store

KILLS = 20
Key = tuple[str, tuple[str, ...], int]  # query, documents as shown, attempt


def key(request: Request) -> Key:
    """What a request is, worked out from its words alone."""
    query, passages, again = shown(request)
    return query, tuple(doc for _, doc in passages), 2 if again else 1


class Faults:
    """Trouble by the content of a request: what may pass at its first sight, the rest always."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.seen: dict[Key, int] = {}
        self.used: set[str] = set()
        self.lock = threading.Lock()

    def __call__(self, request: Request) -> Reply:
        found = key(request)
        with self.lock:
            sights = self.seen[found] = self.seen.get(found, 0) + 1
        number = random.Random(repr(found)).randrange(self.every)
        passing: dict[int, Callable[[], Reply]] = {
            0: lambda: Reply.of({"error": "slow down"}, 429, retry_after="1"),
            1: lambda: Reply.of({"error": "oops"}, 500),
            2: lambda: Reply(silent=True),
            3: lambda: Reply(b'{"choices": [{"mess', claim=5000),
        }
        if number in passing and sights == 1:
            self.used.add(str(number))
            return passing[number]()
        if found[2] == 1:
            good = json.loads(json.loads(honest(request).body)["choices"][0]["message"]["content"])
            first, *_, last = good
            if isinstance(good[first], list):
                return honest(request)
            malformed: dict[int, str] = {
                4: "I would say that both passages are quite good.",
                5: json.dumps({"Z": 3, **good}),
                6: f'{{"{first}": 3, "{first}": 3, "{last}": 2}}',
                7: json.dumps(good | {last: 9}),
                8: "",
                9: json.dumps({first: good[first]}),
                10: json.dumps({name: str(grade) for name, grade in good.items()}),  # accepted
                11: f"My grades are:\n```json\n{json.dumps(good)}\n```\nI hope this helps.",  # so
            }
            if number in malformed:
                self.used.add(str(number))
                return reply(malformed[number])
            if number == 12 and random.Random(repr(found) + "!").random() < 0.2:
                self.used.add("12")
                return reply("x" * 2_000_000)
        return honest(request)


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


class Deaths:
    """Kills the builder when the server has seen so many requests since it started."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self.answer = answer
        self.left = 0
        self.victim: Queue[int] = Queue()  # its number, which may come after its first request
        self.lock = threading.Lock()

    def __call__(self, request: Request) -> Reply:
        given = self.answer(request)
        with self.lock:
            self.left -= 1
            if self.left == 0:
                os.kill(self.victim.get(timeout=PATIENCE), signal.SIGKILL)
        return given

    def aim(self, requests: int) -> None:
        with self.lock:
            self.left = requests
            self.victim = Queue()


def completed(path: Path) -> set[Key]:
    """The requests whose replies are in the store."""
    if not path.exists():
        return set()
    with Store(path) as store:
        return {(r.query, r.documents, r.attempt) for r in store.replies()}


def killed_again_and_again(
    worker: Worker, config: Any, path: Path, deaths: Deaths, log: list[Request], points: list[int]
) -> list[tuple[set[Key], int]]:
    """Run to the end through so many kills: what was stored, and what had been seen, at each."""
    moments = []
    for point in [*points, 0]:
        deaths.aim(point)
        deaths.victim.put(worker.start(config, path, None))
        code = worker.line()
        if code == 0:
            break
        assert code == -signal.SIGKILL, f"the builder ended with {code}"
        seen = len(log)
        moments.append((completed(path), seen))
    assert code == 0
    return moments


def llm(corpus: Path, url: str, **more: Any) -> Any:
    judge = {"type": "llm", "url": f"{url}/v1", "model": "m", "timeout_s": 1.0, "attempts": 8}
    chosen = settings(corpus, judge=judge, limits={"concurrency": 8}, **more)
    return chosen.model_dump(mode="json")


@pytest.mark.slow
def test_a_thousand_judgements_survive_every_fault_and_twenty_kills(
    tmp_path: Path, worker: Worker
) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=25, documents=40)
    faults = Faults(every=40)
    deaths = Deaths(faults)
    path = tmp_path / "set.golden"
    with loopback(deaths) as server:
        config = llm(corpus, server.url, grading={"batch": 2}, ranking={"budget": 0})
        points = random.Random(20).choices(range(1, 40), k=KILLS)
        moments = killed_again_and_again(worker, config, path, deaths, server.requests, points)
        log = [key(request) for request in server.requests]
    assert len(moments) == KILLS
    assert faults.used == {str(n) for n in range(13)}  # the test has teeth

    with Store(path) as store:
        grades = store.rows("SELECT query, doc, grade, failure FROM grades")
        expected = [(f"q{q}", f"d{d}") for q in range(25) for d in range(40)]
        assert sorted(grades) == sorted((q, d, truth(q, d), None) for q, d in expected)
        rows = store.replies()
        assert len({row.request for row in rows}) == len(rows)
        malformed = [row for row in rows if row.failure is not None]
        assert malformed
        assert all(row.attempt == 1 for row in malformed)
    for stored, seen in moments:
        assert not stored & set(log[seen:]), "a call that was stored was made again"


@pytest.mark.slow
def test_a_golden_set_killed_while_it_was_ordered_is_the_one_it_would_have_been(
    tmp_path: Path, worker: Worker
) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    tables = []
    for name, points in (("whole", []), ("killed", [3, 1, 12, 5, 7, 2])):
        path = tmp_path / f"{name}.golden"
        deaths = Deaths(honest)
        with loopback(deaths) as server:
            config = llm(corpus, server.url, pruning={"target": 3}, ranking={"budget": 16})
            moments = killed_again_and_again(worker, config, path, deaths, server.requests, points)
            log = [key(request) for request in server.requests]
        assert len(moments) == len(points)
        for stored, seen in moments:
            assert not stored & set(log[seen:])
        with Store(path) as store:
            asked = "SELECT o.query, round, batch, documents, result FROM orders o JOIN replies r "
            tables.append(
                [
                    *(store.rows(f"SELECT * FROM {t} ORDER BY 1, 2") for t in ("pool", "subset")),
                    store.rows("SELECT query, doc, grade FROM grades ORDER BY 1, 2"),
                    store.rows("SELECT * FROM ranking ORDER BY query, rank"),
                    store.rows("SELECT * FROM refined ORDER BY query"),
                    store.rows(f"{asked} ON r.id = o.reply ORDER BY 1, 2, 3"),
                ]
            )
    assert tables[0] == tables[1]
    assert len(tables[0][-1]) > 8
