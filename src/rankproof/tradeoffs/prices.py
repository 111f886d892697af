"""Prices are data with a date, never constants in code; and the arithmetic of cost.

    rerank cost of a query          K · tokens per candidate / 1000 · price per 1k tokens
    generator input cost            K · tokens per passage / 1000 · price per 1k tokens
    search cost of a query          searches billed / 1000 · price per 1000 searches
    machine cost                    seconds / 3600 · (price per hour + GB · price per GB and hour)

Every function returns an amount for 1,000 queries, in the currency of the price file.
"""

from __future__ import annotations

import calendar
import datetime
import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import StringConstraints, field_validator, model_validator

from rankproof.foundation.config import NonNegative, Settings, read_config
from rankproof.foundation.errors import InputError, shorten

QUERIES = 1000
SHIPPED = Path(__file__).parents[1] / "resources" / "prices.yaml"


class Price(Settings):
    """A price by the token, by the search, or both; it may have a date and a source of its own."""

    per_million_tokens: NonNegative | None = None  # that it reads
    per_million_output_tokens: NonNegative | None = None  # that it writes; else as it reads
    per_1000_searches: NonNegative | None = None
    date: str | None = None
    source: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _in_dollars(cls, data: Any) -> Any:
        """`usd_per_million_tokens`, as files wrote it before they could name a currency."""
        if not isinstance(data, dict):
            return data
        return {str(key).removeprefix("usd_"): value for key, value in data.items()}

    @field_validator("date", mode="before")
    @classmethod
    def _date(cls, value: Any) -> Any:
        return value if value is None else _checked(value)

    @model_validator(mode="after")
    def _some_price(self) -> Price:
        if self.per_million_tokens is None and self.per_1000_searches is None:
            raise InputError(
                "no price is given", remedy="add per_million_tokens or per_1000_searches"
            )
        return self

    @property
    def per_written(self) -> float:
        """Of a million tokens that it writes."""
        written = self.per_million_output_tokens
        return written if written is not None else self.per_million_tokens or 0.0


class Machine(Settings):
    """What the machine costs on which local stages run."""

    per_hour: NonNegative
    per_gb_hour: NonNegative = 0.0  # of memory that indexes take
    date: str | None = None
    source: str | None = None


class Prices(Settings):
    """What a million tokens, or 1,000 searches, cost by model; and an hour of the machine.

    >>> from rankproof.tradeoffs import read_prices
    >>> read_prices().currency
    'USD'
    """

    date: str  # YYYY-MM-DD, or YYYY-MM for a month
    source: str
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "USD"
    models: dict[str, Price]  # in a file a plain number will do
    machine: Machine | None = None  # without it the time of local stages has no price

    @field_validator("date", mode="before")
    @classmethod
    def _date(cls, value: Any) -> Any:
        return _checked(value)

    @field_validator("models", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not value:
            raise InputError("no model is listed", remedy="write `rerank-2.5: 0.05`, say")
        found = {}
        for model, price in value.items():
            number = isinstance(price, int | float) and not isinstance(price, bool)
            if not isinstance(price, dict) and not (number and 0 <= price < math.inf):
                raise InputError(
                    f"{model}: {shorten(price)} is not a price",
                    remedy="write what a million tokens cost, such as 0.05, or 0",
                )
            found[str(model)] = {"per_million_tokens": price} if number else price
        return found

    @model_validator(mode="before")
    @classmethod
    def _one_currency(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("currency", "USD") != "USD":
            listed = data.get("models")
            for model, price in listed.items() if isinstance(listed, dict) else ():
                if isinstance(price, dict) and any(str(key).startswith("usd_") for key in price):
                    raise InputError(
                        f"models.{model}: a price in US dollars in a file of {data['currency']}",
                        remedy="write per_million_tokens, in the currency of the file",
                    )
        return data

    def price(self, model: str) -> Price:
        """Of a model; InputError where it has none."""
        if model not in self.models:
            lower = {name.lower(): name for name in self.models}
            near = get_close_matches(model.lower(), lower, 1)
            known = ", ".join(self.models)
            raise InputError(
                f"model {shorten(model)} has no price",
                remedy=f"did you mean {lower[near[0]]!r}?"
                if near
                else f"add it to the price file (`{model}: 0` if it runs on your own machine); "
                f"known: {known}",
            )
        return self.models[model]

    def per_million(self, model: str) -> float:
        """What a million tokens cost; InputError where the model has no such price."""
        found = self.price(model).per_million_tokens
        if found is None:
            raise InputError(
                f"model {shorten(model)} has a price by the search alone",
                remedy="add its per_million_tokens to the price file",
            )
        return found

    def select(self, models: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return the prices of these models by kind; kinds without one are left out."""
        by_kind: dict[str, dict[str, float]] = {"per_million_tokens": {}}
        for kind in ("per_million_tokens", "per_million_output_tokens", "per_1000_searches"):
            for model in models:
                if (price := getattr(self.price(model), kind)) is not None:
                    by_kind.setdefault(kind, {})[model] = price
        return by_kind

    def per_1k(self, model: str) -> float:
        """What a thousand tokens cost."""
        return self.per_million(model) / 1000.0

    def stale(
        self, today: datetime.date | None = None, models: Iterable[str] | None = None
    ) -> list[str]:
        """A line for each date more than a year ago; of these models alone, if named."""
        now = today or datetime.date.today()
        old: dict[str, list[str]] = {}
        for model in self.models if models is None else models:
            price = self.price(model)
            when = price.date or self.date
            costs = max(price.per_million_tokens or 0.0, price.per_1000_searches or 0.0)
            if costs > 0 and now > _year_after(when):
                old.setdefault(when, []).append(model)
        return [
            f"prices of {when} are more than a year old ({', '.join(names)}): check them, and "
            "name a newer price file"
            for when, names in old.items()
        ]


def read_prices(path: str | Path | None = None) -> Prices:
    """A price file, or the one that ships with rankproof.

    >>> from rankproof.tradeoffs import read_prices
    >>> "GPT-5 mini" in read_prices().models
    True
    """
    return read_config(SHIPPED if path is None else path, Prices)


def rerank_cost(k: float, tokens_per_candidate: float, price_per_1k: float) -> float:
    """Of 1,000 queries that each have K candidates reranked.

    >>> from rankproof.tradeoffs import rerank_cost
    >>> rerank_cost(50, 200, 0.00005)
    0.5
    """
    return _token_cost(k, tokens_per_candidate, price_per_1k)


def generator_cost(k: float, tokens_per_passage: float, price_per_1k: float) -> float:
    """Of the input of 1,000 answers that each read K passages.

    >>> from rankproof.tradeoffs import generator_cost
    >>> generator_cost(10, 200, 0.00025)
    0.5
    """
    return _token_cost(k, tokens_per_passage, price_per_1k)


def token_cost(tokens: float, per_million: float) -> float:
    """Of 1,000 queries that take so many tokens each."""
    return _token_cost(1.0, tokens, per_million / 1000.0)


def search_cost(searches: float, per_1000: float) -> float:
    """Of 1,000 queries that are billed so many searches each.

    >>> from rankproof.tradeoffs import search_cost
    >>> search_cost(1, 2.0)
    2.0
    """
    _check(searches=searches, per_1000=per_1000)
    return QUERIES * searches * per_1000 / 1000.0


def machine_cost(
    seconds_per_query: float, per_hour: float, gigabytes: float = 0.0, per_gb_hour: float = 0.0
) -> float:
    """Of 1,000 queries on a machine that is paid by the hour, and by the memory they need.

    >>> from rankproof.tradeoffs import machine_cost
    >>> machine_cost(0.036, 1.0)
    0.01
    """
    _check(seconds_per_query=seconds_per_query, per_hour=per_hour)
    _check(gigabytes=gigabytes, per_gb_hour=per_gb_hour)
    return QUERIES * seconds_per_query * (per_hour + gigabytes * per_gb_hour) / 3600.0


def _token_cost(k: float, tokens: float, price_per_1k: float) -> float:
    _check(k=k, tokens=tokens, price_per_1k=price_per_1k)
    return QUERIES * k * tokens * price_per_1k / 1000.0


def _check(**figures: float) -> None:
    for name, figure in figures.items():
        if not (math.isfinite(figure) and figure >= 0):
            raise InputError(f"{name} {figure} is not a number from 0", remedy="check the figures")


def _checked(value: Any) -> str:
    """YAML reads 2025-11-12 as a date and 2025-11 as text."""
    text = value.isoformat() if isinstance(value, datetime.date) else str(value)
    if _last_day(text) is None:
        raise InputError(
            f"{shorten(value)} is not a date", remedy="write 2025-11-30, or 2025-11 for a month"
        )
    return text


def _last_day(text: str) -> datetime.date | None:
    """The day, or the last day of the month; None where there is no such day."""
    match = re.fullmatch(r"(\d{4})-(\d{2})(?:-(\d{2}))?", text)
    try:
        year, month, day = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
        return datetime.date(year, month, day or calendar.monthrange(year, month)[1])
    except ValueError:
        return None


def _year_after(text: str) -> datetime.date:
    day = _last_day(text) or datetime.date.min
    leap = (day.month, day.day) == (2, 29)
    return day.replace(year=day.year + 1, day=28 if leap else day.day)
