"""Load: arrivals that do not wait, latencies from when a query was meant to come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pytest
from loopback import PATIENCE
from rankproof_cli import rankproof
from small_corpus import write_corpus

from rankproof.foundation.config import check_config, read_config
from rankproof.foundation.errors import InputError
from rankproof.retrieval.identity import identity as identity_of
from rankproof.retrieval.retrievers.python import FunctionRetriever
from rankproof.tradeoffs.latency import Stage
from rankproof.tradeoffs.load import (
    Engine,
    LoadSettings,
    arrival_times,
    describe_load,
    drive,
    drive_all,
    summarize_load,
)
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import read_sweep, sweep


class Still:
    """A clock that moves only when it is told to."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def wait_until(self, moment: float) -> None:
        self.time = max(self.time, moment)


class Inline(Executor):
    """One server that answers in turn: whoever comes meanwhile stands in line."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(call(*args, **more))
        return future


class Never(Executor):
    """Nobody answers."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        return Future()


def served(clock: Still, service: list[float]) -> Callable[[int], None]:
    left = iter(service)

    def ask(question: int) -> None:
        clock.time += next(left)

    return ask


def test_latency_counts_from_the_intended_arrival_as_a_queue_says() -> None:
    """finish(i) = max(arrival(i), finish(i−1)) + service(i): Lindley's recursion, written out."""
    generator = np.random.default_rng(3)
    arrival = np.cumsum(generator.exponential(1.0, 200))
    service = generator.exponential(0.9, 200)
    clock = Still()
    driven = drive(
        served(clock, service.tolist()), np.zeros(200, np.int64), arrival, Inline(), clock, 0.0
    )
    finish = 0.0
    for at in range(200):
        begin = max(arrival[at], finish)
        finish = begin + service[at]
        assert driven.latency[at] == pytest.approx(finish - arrival[at], abs=1e-9)
        assert driven.queue_wait[at] == pytest.approx(begin - arrival[at], abs=1e-9)
    assert not driven.failed.any()
    assert not driven.lost.any()
    assert driven.queue_wait.max() > 1  # there was a line: a closed loop would have seen none


def test_one_slow_answer_is_felt_by_all_that_come_meanwhile() -> None:
    """A client that waits for each answer would report a single slow query."""
    clock = Still()
    service = [10.0] + [0.001] * 99
    arrival = np.arange(100) / 10
    driven = drive(served(clock, service), np.zeros(100, np.int64), arrival, Inline(), clock, 0.0)
    loaded = summarize_load("x", 10, driven, 350)
    assert loaded.p50_ms == pytest.approx(5050, rel=0.02)
    assert not loaded.within_sla


def test_arrivals_do_not_wait_for_answers() -> None:
    """Nobody is answered before all have come: a closed loop would hang here."""
    count = 12
    all_here = threading.Barrier(count, timeout=PATIENCE)
    with ThreadPoolExecutor(count) as pool:
        driven = drive(
            lambda question: all_here.wait(),
            np.zeros(count, np.int64),
            np.arange(count) / 5,
            pool,
            Still(),
            PATIENCE,
        )
    assert not driven.failed.any()


def test_errors_are_counted_and_are_no_latency() -> None:
    clock = Still()

    def ask(question: int) -> None:
        clock.time += 0.01
        if question == 1:
            raise ValueError("no")

    questions = np.array([0, 1, 0, 0, 1])
    driven = drive(ask, questions, np.arange(5.0), Inline(), clock, 0.0)
    loaded = summarize_load("x", 1, driven, 350)
    assert (loaded.arrivals, loaded.answered, loaded.errors, loaded.lost) == (5, 3, 2, 0)
    assert loaded.p99_ms == pytest.approx(10)
    assert not loaded.within_sla  # 2 of 5 got nothing


def test_what_is_never_answered_counts_as_long_as_it_was_waited_for() -> None:
    driven = drive(lambda _: None, np.zeros(4, np.int64), np.arange(4.0), Never(), Still(), 0.0)
    loaded = summarize_load("x", 1, driven, 350)
    assert (loaded.answered, loaded.errors, loaded.lost) == (0, 0, 4)
    assert driven.latency.tolist() == [3, 2, 1, 0]
    assert loaded.p50_ms == 1500
    assert not loaded.within_sla


def test_where_all_fail_there_is_no_percentile() -> None:
    def ask(question: int) -> None:
        raise ValueError

    driven = drive(ask, np.zeros(3, np.int64), np.arange(3.0), Inline(), Still(), 0.0)
    assert summarize_load("x", 1, driven, 350).p95_ms is None


def test_arrivals_are_even_or_a_seeded_poisson_process() -> None:
    even = arrival_times(LoadSettings(qps=[4], seconds=2, arrivals="fixed"), 4, 0)
    assert even.tolist() == [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 1.75]
    settings = LoadSettings(qps=[50], seconds=200)
    drawn = arrival_times(settings, 50, 0)
    assert np.array_equal(drawn, arrival_times(settings, 50, 0))
    assert not np.array_equal(drawn, arrival_times(settings, 50, 1)[: len(drawn)])
    assert drawn[-1] <= 200
    gaps = np.diff(drawn)
    assert len(drawn) == pytest.approx(10_000, abs=400)  # four standard deviations
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.05)  # as of an exponential
    assert len(arrival_times(LoadSettings(qps=[0.001], seconds=1), 0.001, 0)) == 1


def test_rates_are_said_between_which_the_sla_is_passed(tmp_path: Path) -> None:
    settings = LoadSettings(qps=[1, 5, 20], seconds=10, sla_ms=200, arrivals="fixed")
    asked = 0

    def measured(service: float) -> pl.DataFrame:
        clock = Still()

        def ask(question: int) -> None:
            nonlocal asked
            asked += 1
            clock.time += service

        return drive_all(
            [Engine("engine", f"k{service}", ask)],
            *(3, settings, 0, tmp_path / "load.parquet"),
            clock=clock,
            executor=lambda at_once: Inline(),
        )

    frame = measured(0.1)
    assert frame["qps"].to_list() == [1, 5, 20]
    assert frame["within_sla"].to_list() == [True, True, False]
    assert frame["p95_ms"].to_list()[:2] == pytest.approx([100, 100])
    assert describe_load(frame, 200) == [
        "engine passes 200 ms between 5 and 20 queries a second, as far as 50 arrivals can tell: a "
        "p95 takes 59."
    ]
    before = asked
    assert measured(0.1).equals(frame)
    assert asked == before  # what was measured is not measured again
    assert describe_load(measured(0.001), 200) == [
        "engine keeps its p95 within 200 ms up to 20 queries a second."
    ]
    assert describe_load(measured(3.0), 200) == [
        "engine passes 200 ms at 1 query a second already."
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"qps": []}, "no rate, or one twice"),
        ({"qps": [1, 1]}, "no rate, or one twice"),
        ({"qps": [0]}, "qps"),
        ({"qps": [1], "seconds": 0}, "seconds"),
        ({"qsp": [1]}, "did you mean 'qps'"),
    ],
)
def test_rates_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_config(given, LoadSettings, place="x")


SWEEP = """
corpus: corpus
embedders: {toy: {type: "toy_embedder:Toy"}}
dimensions: [64]
pools: [8, 10]
prompts: [5]
at: [5]
best_by: RAnWG@5
latency: {queries: 2, repeats: 1, warmup: 0}
load: {qps: [20, 40], seconds: 0.2}
retrievers:
  past: {type: run, file: past.trec}
  mine: {type: python, call: "test_load:nothing"}
"""


def nothing(text: str, k: int) -> list[tuple[str, float]]:
    return [("bees-0", 1.0)]


def test_a_sweep_drives_every_first_stage_that_can_be_driven(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    (tmp_path / "past.trec").write_text("ask-bees Q0 bees-0 1 1 past\n")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    found = sweep(read_config(tmp_path / "sweep.yaml", SweepSettings), tmp_path / "out")
    assert found.load is not None
    assert found.load["engine"].unique(maintain_order=True).to_list() == [
        "dense toy:64 flat",
        "sparse",
        "hybrid toy:64 flat",
        "mine",
    ]
    assert found.load.height == 8
    assert (found.load["answered"] == found.load["arrivals"]).all()
    assert (found.load["p50_ms"] <= found.load["p99_ms"]).all()
    again = read_sweep(tmp_path / "out")
    assert again.load is not None
    assert again.load.equals(found.load)
    assert len(again.manifest["load"]["words"]) == 4
    once_more = sweep(read_config(tmp_path / "sweep.yaml", SweepSettings), tmp_path / "out")
    assert once_more.load is not None
    assert once_more.load.equals(found.load)
    done = rankproof("report", str(tmp_path / "out"), "--out", str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert "Under load" in page
    assert again.manifest["load"]["words"][0] in page


def test_whatever_is_timed_or_driven_looks_nothing_up_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a part is known by takes milliseconds to tell: as long as a search."""
    counted: list[object] = []
    told = identity_of

    def identity(chosen: Any) -> Any:
        counted.append(chosen)
        return told(chosen)

    stages: list[str] = []

    def seconds(stage: Stage, query: int) -> tuple[float, float]:
        call = stage.prepare(query)
        before = len(counted)
        call()
        assert len(counted) == before, stage.key
        stages.append(stage.kind)
        return (0.001, 0.001)

    def drive_them(engines: list[Engine], *rest: Any) -> None:
        before = len(counted)
        for _, _, answer in engines:
            assert answer(0) is not None
        assert before
        assert len(counted) == before
        assert len(engines) == 8

    monkeypatch.setattr("rankproof.retrieval.workshop.identity", identity)
    monkeypatch.setattr("rankproof.tradeoffs.latency._seconds", seconds)
    monkeypatch.setattr("rankproof.tradeoffs.timing.drive_all", drive_them)
    write_corpus(tmp_path / "corpus")
    (tmp_path / "past.trec").write_text("ask-bees Q0 bees-0 1 1 past\n")
    rewritten = "rewriters: {none: null, rules: {type: rules}}\n"
    (tmp_path / "sweep.yaml").write_text(SWEEP + rewritten)
    sweep(read_config(tmp_path / "sweep.yaml", SweepSettings), tmp_path / "out")
    assert set(stages) == {"rewrite", "embed", "retrieve"}


def test_what_is_driven_is_all_that_a_name_says_as_deep_as_its_deepest_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that rewrites and drops duplicates was driven without either."""
    asked: list[tuple[str, int]] = []
    answers: dict[str, list[str]] = {}

    def search(text: str, k: int) -> list[tuple[str, float]]:
        asked.append((text, k))
        return [("bees-0", 2.0), ("twin", 1.0)]

    def drive_them(engines: list[Engine], *rest: Any) -> None:
        asked.clear()
        for name, _, answer in engines:
            answers[name] = cast(Any, answer(0)).doc.to_list()

    monkeypatch.setattr("rankproof.tradeoffs.timing.drive_all", drive_them)
    corpus = write_corpus(tmp_path / "corpus")
    bees = next(x for x in (corpus / "corpus.jsonl").read_text().splitlines() if "bees-0" in x)
    with (corpus / "corpus.jsonl").open("a") as file:
        file.write(bees.replace('"bees-0"', '"twin"') + "\n")
    questions = (corpus / "queries.jsonl").read_text()
    (corpus / "queries.jsonl").write_text(questions.replace("What is", "Hello! What is"))
    settings = SweepSettings.model_validate(
        {
            "corpus": corpus,
            "modes": ["sparse"],
            "pools": [8, 6],
            "prompts": [5],
            "at": [5],
            "retrievers": {"mine": FunctionRetriever("mine", search)},
            "rewriters": {"none": None, "rules": {"type": "rules"}},
            "duplicates": {"none": None, "near": {"threshold": 0.8}},
            "latency": {"queries": 2, "repeats": 1, "warmup": 0},
            "load": {"qps": [20], "seconds": 0.2},
        }
    )
    sweep(settings, tmp_path / "out")
    assert answers["mine"] == ["bees-0", "twin"]
    assert answers["mine duplicates=near"] == ["bees-0"]
    assert len(answers) == 8
    hello = [text.startswith("Hello!") for text, _ in asked]
    assert hello == [True, True, False, False]  # with the greeting as typed; rewritten without
    assert [k for _, k in asked] == [8, 16, 8, 16]


def test_the_command_shows_the_load(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    (tmp_path / "sweep.yaml").write_text(
        "corpus: corpus\nmodes: [sparse]\npools: [10]\nprompts: [5]\nat: [5]\n"
        "best_by: RAnWG@5\nlatency: {queries: 2, repeats: 1, warmup: 0}\n"
        "load: {qps: [30], seconds: 0.1, sla_ms: 60000}\n"
    )
    done = rankproof("sweep", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert "Under load" in text
    assert "sparse keeps its p95 within 60000 ms up to 30 queries a second, as far as" in text
