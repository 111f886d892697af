"""Times of stages: what is called, how often, and what is kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rankproof.tradeoffs.latency import Stage, Times, quantile_ends, summarize_times
from rankproof.tradeoffs.plan import LatencySettings

SETTINGS = LatencySettings(queries=4, repeats=3, warmup=2)
QUERIES = [3, 5, 8, 9]


def counting(calls: Counter[tuple[str, int]], name: str) -> Callable[[int], Callable[[], object]]:
    def prepare(query: int) -> Callable[[], object]:
        def call() -> None:
            calls[name, query] += 1

        return call

    return prepare


def test_each_stage_is_called_as_often_as_it_may_be(tmp_path: Path) -> None:
    calls: Counter[tuple[str, int]] = Counter()
    stages = [
        Stage("local", "embed", counting(calls, "local")),
        Stage("paid", "rerank", counting(calls, "paid"), network=True),
        Stage("kept", "rerank", counting(calls, "kept"), keeps=True),
    ]
    times = Times(tmp_path / "times.sqlite")
    times.measure(stages, QUERIES, SETTINGS)
    assert [calls["local", q] for q in QUERIES] == [4, 4, 3, 3]  # two warm up
    assert [calls["paid", q] for q in QUERIES] == [1, 1, 1, 1]
    assert [calls["kept", q] for q in QUERIES] == [4, 4, 4, 4]  # each is asked once before
    before = calls.copy()
    Times(tmp_path / "times.sqlite").measure(stages, QUERIES, SETTINGS)
    assert calls == before
    assert times.read("local", QUERIES, 3).shape == (4, 3)
    paid = times.read("paid", QUERIES, 3)
    assert (paid == paid[:, :1]).all()


def test_what_was_timed_before_a_stop_is_kept(tmp_path: Path) -> None:
    calls: Counter[tuple[str, int]] = Counter()

    def failing(query: int) -> Callable[[], object]:
        def call() -> None:
            calls["paid", query] += 1
            if query == 8 and calls["paid", 8] == 1:
                raise KeyboardInterrupt

        return call

    stages = [Stage("paid", "rerank", failing, network=True)]
    with pytest.raises(KeyboardInterrupt):
        Times(tmp_path / "times.sqlite").measure(stages, QUERIES, SETTINGS)
    Times(tmp_path / "times.sqlite").measure(stages, QUERIES, SETTINGS)
    assert [calls["paid", q] for q in QUERIES] == [1, 1, 2, 1]


def test_a_configuration_takes_the_sum_of_its_stages_query_by_query() -> None:
    embed = np.array([[0.010, 0.012], [0.020, 0.020]])
    rerank = np.array([[0.100, 0.104], [0.300, 0.300]])
    found = summarize_times({"embed": embed, "rerank": rerank}, repeats=2)
    total = 1000 * (embed + rerank)
    assert found.p50 == pytest.approx(np.quantile(total, 0.5))
    assert found.p95 == pytest.approx(np.quantile(total, 0.95))
    assert found.stages["embed"][0] == pytest.approx(16.0)
    apart = np.abs(total - np.median(total, axis=1, keepdims=True))
    assert found.jitter == pytest.approx(np.quantile(apart, 0.95))


@pytest.mark.parametrize("n", [10, 58, 59, 60, 200])
def test_the_ends_of_a_p95_hold_it_as_often_as_they_say(n: int) -> None:
    """Of uniform times the p95 is .95, whatever else they would be."""
    rng = np.random.default_rng(n)
    lows, highs = [], []
    for _ in range(4000):
        low, high = quantile_ends(rng.random(n), 0.95)
        lows.append(low)
        highs.append(high)
    assert np.mean([low is None or low <= 0.95 for low in lows]) >= 0.94
    if n < 59:
        assert set(highs) == {None}  # the largest of so few may lie below it
    else:
        assert np.mean([high is not None and high >= 0.95 for high in highs]) >= 0.94


@pytest.mark.parametrize(("n", "ends"), [(59, (53, 59)), (1000, (938, 962)), (2000, (1884, 1917))])
def test_the_p95_of_thousands_of_queries_has_its_ends_too(n: int, ends: tuple[int, int]) -> None:
    """The number of ways to choose half of a thousand queries is no float."""
    assert list(quantile_ends(np.arange(1.0, n + 1), 0.95)) == list(ends)
    below = [math.comb(n, i) * 19**i for i in range(n + 1)]  # of 20**n
    low, high = ends
    assert 20 * sum(below[low:]) >= 19 * 20**n > 20 * sum(below[low + 1 :])
    assert 20 * sum(below[:high]) >= 19 * 20**n > 20 * sum(below[: high - 1])


def test_a_summary_says_between_which_times_the_p95_lies() -> None:
    seconds = np.linspace(0.001, 0.06, 60)[:, None]
    found = summarize_times({"embed": seconds}, 1)
    assert found.p95_low is not None
    assert found.p95_high is not None
    assert found.p95_low < found.p95 < found.p95_high == pytest.approx(60.0)
    assert summarize_times({"embed": seconds[:30]}, 1).p95_high is None
