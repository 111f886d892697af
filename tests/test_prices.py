"""Prices: the file that ships, files of users, and the arithmetic."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

import rankproof as rp
from rankproof.tradeoffs.prices import (
    generator_cost,
    machine_cost,
    read_prices,
    rerank_cost,
    search_cost,
)


def write_prices(folder: Path, text: str) -> Path:
    path = folder / "prices.yaml"
    path.write_text(text)
    return path


def test_the_prices_that_ship_have_a_date_and_a_source() -> None:
    prices = read_prices()
    assert prices.date == "2025-11"
    assert "arXiv 2511.09545" in prices.source
    assert prices.per_1k("rerank-2.5") == 5e-05
    assert prices.per_million("GPT-5") == 1.25
    assert prices.per_million("local") == 0.0


def test_cost_is_candidates_times_tokens_times_price() -> None:
    # One query: 7 candidates of 300 tokens are 2,100 tokens, at 0.002 dollars per thousand.
    assert rerank_cost(7, 300, 0.002) == pytest.approx(1000 * 2.1 * 0.002)
    assert generator_cost(7, 300, 0.002) == rerank_cost(7, 300, 0.002)
    assert rerank_cost(0, 300, 0.002) == rerank_cost(50, 300, 0.0) == 0.0
    assert machine_cost(0.36, 2.0) == pytest.approx(0.2)  # 360 seconds, a tenth of an hour


@pytest.mark.parametrize("figure", [-1.0, float("nan"), float("inf")])
def test_an_amount_that_is_negative_or_not_finite_is_refused(figure: float) -> None:
    for arguments in ((figure, 1, 1), (1, figure, 1), (1, 1, figure)):
        with pytest.raises(rp.InputError, match="is not a number from 0"):
            rerank_cost(*arguments)
    with pytest.raises(rp.InputError, match="per_hour"):
        machine_cost(1.0, figure)


@pytest.mark.parametrize(
    ("when", "today", "stale"),
    [
        ("2025-11-12", date(2026, 11, 12), False),
        ("2025-11-12", date(2026, 11, 13), True),
        ("2025-11", date(2026, 11, 30), False),  # a month counts to its last day
        ("2025-11", date(2026, 12, 1), True),
        ("2024-02-29", date(2025, 2, 28), False),
        ("2024-02-29", date(2025, 3, 1), True),
        ("2024-02", date(2025, 3, 1), True),
    ],
)
def test_prices_are_stale_after_a_year(tmp_path: Path, when: str, today: date, stale: bool) -> None:
    prices = read_prices(
        write_prices(tmp_path, f"date: {when}\nsource: s\nmodels: {{a: 1, b: 0}}\n")
    )
    lines = prices.stale(today)
    assert bool(lines) == stale
    if stale:
        assert lines == [
            f"prices of {when} are more than a year old (a): check them, and name a newer price "
            "file"
        ]


def test_a_price_may_have_a_date_of_its_own(tmp_path: Path) -> None:
    text = """
date: 2020-01-01
source: the old list
models:
  old: 3
  new: {usd_per_million_tokens: 2.5, date: 2026-01-31, source: the new list}
"""
    prices = read_prices(write_prices(tmp_path, text))
    assert prices.per_million("new") == 2.5
    [line] = prices.stale(date(2026, 6, 1))
    assert "(old)" in line
    assert prices.stale(date(2026, 6, 1), models=["new"]) == []


def test_the_error_for_an_unknown_model_names_the_closest_or_a_remedy() -> None:
    prices = read_prices()
    with pytest.raises(rp.InputError, match=r"'gpt5' has no price; did you mean 'GPT-5'\?"):
        prices.per_1k("gpt5")
    with pytest.raises(rp.InputError, match=r"`mine: 0` if it runs on your own machine.*local"):
        prices.per_1k("mine")
    with pytest.raises(rp.InputError, match="has no price"):
        prices.stale(date(2026, 1, 1), models=["mine"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (
            "date: 2025-13\nsource: s\nmodels: {a: 1}",
            "date: '2025-13' is not a date; write 2025-11",
        ),
        ("date: soon\nsource: s\nmodels: {a: 1}", "date: 'soon' is not a date"),
        ("date: 2025-01\nmodels: {a: 1}", "'source' is missing"),
        ("date: 2025-01\nsource: s", "'models' is missing"),
        ("date: 2025-01\nsource: s\nmodels: {}", "models: no model is listed"),
        ("date: 2025-01\nsource: s\nmodels: {a: -1}", "models: a: -1 is not a price"),
        ("date: 2025-01\nsource: s\nmodels: {a: .nan}", "models: a: nan is not a price"),
        ("date: 2025-01\nsource: s\nmodels: {a: }", "models: a: None is not a price"),
        ("date: 2025-01\nsource: s\nmodels: {a: free}", "models: a: 'free' is not a price"),
        ("date: 2025-01\nsource: s\nmodels: {a: true}", "models: a: True is not a price"),
        ("date: 2025-01\nsource: s\nmodels: {a: {usd: 1}}", "unknown key 'models.a.usd'"),
        ("date: 2025-01\nsource: s\nmodels: {a: 1, a: 2}", "not YAML: key 'a' is given twice"),
        ("date: 2025-01\nsource: s\nmodels: {a: 1}\ncurrency: euro", "currency: 'euro'"),
        (
            "date: 2025-01\nsource: s\nmodels: {a: {usd_per_million_tokens: 1}}\ncurrency: EUR",
            "models.a: a price in US dollars in a file of EUR",
        ),
    ],
)
def test_the_error_for_a_price_file_is_one_line_with_its_path(
    tmp_path: Path, text: str, message: str
) -> None:
    path = write_prices(tmp_path, text)
    with pytest.raises(rp.InputError) as caught:
        read_prices(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_price_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rp.InputError, match="there is no such file"):
        read_prices(tmp_path / "none.yaml")


def test_without_pydantic_prices_name_the_extra_and_ceilings_work() -> None:
    code = """
import sys
sys.modules["pydantic"] = None
import rankproof as rp
from rankproof.tradeoffs import ceilings
print(ceilings({"q": {"x": 1.0}}, {"q": {"x": 5}}, "RR@1", resamples=10)["RR@1"].proc)
try:
    from rankproof.tradeoffs import read_prices
except rp.MissingExtra as absent:
    print(absent)
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == [
        "1.0",
        "a configuration needs pydantic: pip install 'rankproof[retrieval]'",
    ]


def test_a_price_may_be_by_the_search(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(
        "date: 2026-01\nsource: us\nmodels:\n  a: 1\n  b: {usd_per_1000_searches: 2}\n", "utf-8"
    )
    prices = read_prices(file)
    assert prices.price("b").per_1000_searches == 2.0
    assert prices.select(["a", "b"]) == {
        "per_million_tokens": {"a": 1.0},
        "per_1000_searches": {"b": 2.0},
    }
    with pytest.raises(rp.InputError, match="'b' has a price by the search alone"):
        prices.per_million("b")
    assert search_cost(1.5, 2.0) == 3.0  # of 1,000 queries
    file.write_text("date: 2026-01\nsource: us\nmodels:\n  b: {source: x}\n", "utf-8")
    with pytest.raises(rp.InputError, match="no price is given"):
        read_prices(file)
