"""Prices of models and machines, read from a file with a date, and the arithmetic of cost.

    rerank cost of a query          K · tokens per candidate / 1000 · price per 1k tokens
    generator input cost            K · tokens per passage / 1000 · price per 1k tokens
    search cost of a query          searches billed / 1000 · price per 1000 searches
    machine cost                    seconds / 3600 · (price per hour + GB · price per GB and hour)

Prices change, so that no code holds any. Every function of cost returns an amount for 1,000
queries, in the currency of the price file.
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
    """The price of a model by the token, by the search, or both."""

    per_million_tokens: NonNegative | None = None  # of input
    per_million_output_tokens: NonNegative | None = None  # by default as for input
    per_1000_searches: NonNegative | None = None
    date: str | None = None  # by default that of the file
    source: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_dollar_names(cls, data: Any) -> Any:
        """Accept `usd_per_million_tokens`, the name in files from before there were currencies."""
        if not isinstance(data, dict):
            return data
        return {str(key).removeprefix("usd_"): value for key, value in data.items()}

    @field_validator("date", mode="before")
    @classmethod
    def _check_own_date(cls, value: Any) -> Any:
        return value if value is None else _check_date(value)

    @model_validator(mode="after")
    def _require_a_price(self) -> Price:
        if self.per_million_tokens is None and self.per_1000_searches is None:
            raise InputError(
                "no price is given", remedy="add per_million_tokens or per_1000_searches"
            )
        return self

    @property
    def per_written(self) -> float:
        """Price of a million tokens of output."""
        output = self.per_million_output_tokens
        return output if output is not None else self.per_million_tokens or 0.0


class Machine(Settings):
    """What the machine costs on which local stages run."""

    per_hour: NonNegative
    per_gb_hour: NonNegative = 0.0  # of memory that indexes take
    date: str | None = None
    source: str | None = None


class Prices(Settings):
    """A price file: prices by model, and of an hour of the machine.

    >>> from rankproof.tradeoffs import read_prices
    >>> read_prices().currency
    'USD'
    """

    date: str  # YYYY-MM-DD, or YYYY-MM for a month
    source: str
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "USD"
    models: dict[str, Price]  # in a file, a number is the price of a million tokens
    machine: Machine | None = None  # without it the time of local stages has no price

    @field_validator("date", mode="before")
    @classmethod
    def _check_file_date(cls, value: Any) -> Any:
        return _check_date(value)

    @field_validator("models", mode="before")
    @classmethod
    def _expand_numbers(cls, value: Any) -> Any:
        """Turn each number into a price per million tokens."""
        if not isinstance(value, dict) or not value:
            raise InputError("no model is listed", remedy="write `rerank-2.5: 0.05`, say")
        models = {}
        for model, price in value.items():
            is_number = isinstance(price, int | float) and not isinstance(price, bool)
            if not isinstance(price, dict) and not (is_number and 0 <= price < math.inf):
                raise InputError(
                    f"{model}: {shorten(price)} is not a price",
                    remedy="write what a million tokens cost, such as 0.05, or 0",
                )
            models[str(model)] = {"per_million_tokens": price} if is_number else price
        return models

    @model_validator(mode="before")
    @classmethod
    def _refuse_dollars_in_other_currencies(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("currency", "USD") != "USD":
            models = data.get("models")
            for model, price in models.items() if isinstance(models, dict) else ():
                if isinstance(price, dict) and any(str(key).startswith("usd_") for key in price):
                    raise InputError(
                        f"models.{model}: a price in US dollars in a file of {data['currency']}",
                        remedy="write per_million_tokens, in the currency of the file",
                    )
        return data

    def price(self, model: str) -> Price:
        """Return the price of a model; raise InputError, with the closest name, if it has none."""
        if model in self.models:
            return self.models[model]
        by_lower_case = {name.lower(): name for name in self.models}
        remedy = (
            f"add it to the price file (`{model}: 0` if it runs on your own machine); "
            f"known: {', '.join(self.models)}"
        )
        if closest := get_close_matches(model.lower(), by_lower_case, 1):
            remedy = f"did you mean {by_lower_case[closest[0]]!r}?"
        raise InputError(f"model {shorten(model)} has no price", remedy=remedy)

    def per_million(self, model: str) -> float:
        """Return the price of a million tokens; raise InputError if the model has none."""
        price = self.price(model).per_million_tokens
        if price is None:
            raise InputError(
                f"model {shorten(model)} has a price by the search alone",
                remedy="add its per_million_tokens to the price file",
            )
        return price

    def per_1k(self, model: str) -> float:
        """Return the price of a thousand tokens; raise InputError if the model has none."""
        return self.per_million(model) / 1000.0

    def select(self, models: Iterable[str]) -> dict[str, dict[str, float]]:
        """Return {kind of price: {model: price}} of these models."""
        by_kind: dict[str, dict[str, float]] = {"per_million_tokens": {}}
        for kind in ("per_million_tokens", "per_million_output_tokens", "per_1000_searches"):
            for model in models:
                if (price := getattr(self.price(model), kind)) is not None:
                    by_kind.setdefault(kind, {})[model] = price
        return by_kind

    def stale(
        self, today: datetime.date | None = None, models: Iterable[str] | None = None
    ) -> list[str]:
        """Return a warning for each date of prices that is more than a year ago.

        Only of the named models, if any are; a price of 0 does not age.
        """
        now = today or datetime.date.today()
        models_by_date: dict[str, list[str]] = {}
        for model in self.models if models is None else models:
            price = self.price(model)
            date = price.date or self.date
            is_free = not price.per_million_tokens and not price.per_1000_searches
            if not is_free and now > _a_year_after(date):
                models_by_date.setdefault(date, []).append(model)
        return [
            f"prices of {date} are more than a year old ({', '.join(names)}): check them, and "
            "name a newer price file"
            for date, names in models_by_date.items()
        ]


def read_prices(path: str | Path | None = None) -> Prices:
    """Read a price file; by default the one that ships with rankproof.

    >>> from rankproof.tradeoffs import read_prices
    >>> "GPT-5 mini" in read_prices().models
    True
    """
    return read_config(SHIPPED if path is None else path, Prices)


def rerank_cost(k: float, tokens_per_candidate: float, price_per_1k: float) -> float:
    """Return the cost of reranking K candidates for each of 1,000 queries.

    >>> from rankproof.tradeoffs import rerank_cost
    >>> rerank_cost(50, 200, 0.00005)
    0.5
    """
    return _token_cost(k, tokens_per_candidate, price_per_1k)


def generator_cost(k: float, tokens_per_passage: float, price_per_1k: float) -> float:
    """Return the cost of reading K passages for each of 1,000 answers.

    >>> from rankproof.tradeoffs import generator_cost
    >>> generator_cost(10, 200, 0.00025)
    0.5
    """
    return _token_cost(k, tokens_per_passage, price_per_1k)


def token_cost(tokens: float, per_million: float) -> float:
    """Return the cost of 1,000 queries of so many tokens each."""
    return _token_cost(1.0, tokens, per_million / 1000.0)


def search_cost(searches: float, per_1000: float) -> float:
    """Return the cost of 1,000 queries that are each billed so many searches.

    >>> from rankproof.tradeoffs import search_cost
    >>> search_cost(1, 2.0)
    2.0
    """
    _check_amounts(searches=searches, per_1000=per_1000)
    return QUERIES * searches * per_1000 / 1000.0


def machine_cost(
    seconds_per_query: float, per_hour: float, gigabytes: float = 0.0, per_gb_hour: float = 0.0
) -> float:
    """Return the cost of 1,000 queries on a machine paid by the hour, and by the memory in use.

    >>> from rankproof.tradeoffs import machine_cost
    >>> machine_cost(0.036, 1.0)
    0.01
    """
    _check_amounts(seconds_per_query=seconds_per_query, per_hour=per_hour)
    _check_amounts(gigabytes=gigabytes, per_gb_hour=per_gb_hour)
    return QUERIES * seconds_per_query * (per_hour + gigabytes * per_gb_hour) / 3600.0


def _token_cost(k: float, tokens: float, price_per_1k: float) -> float:
    """Return the cost of 1,000 queries that each read K texts of so many tokens."""
    _check_amounts(k=k, tokens=tokens, price_per_1k=price_per_1k)
    return QUERIES * k * tokens * price_per_1k / 1000.0


def _check_amounts(**amounts: float) -> None:
    """Raise InputError for an amount that is negative or not finite."""
    for name, amount in amounts.items():
        if not (math.isfinite(amount) and amount >= 0):
            raise InputError(f"{name} {amount} is not a number from 0", remedy="check the figures")


def _check_date(value: Any) -> str:
    """Return a day or month as text; YAML reads 2025-11-12 as a date but 2025-11 as text."""
    text = value.isoformat() if isinstance(value, datetime.date) else str(value)
    if _last_day(text) is None:
        raise InputError(
            f"{shorten(value)} is not a date", remedy="write 2025-11-30, or 2025-11 for a month"
        )
    return text


def _last_day(text: str) -> datetime.date | None:
    """Return the day, or the last day of the month, that a text names; None if there is none."""
    match = re.fullmatch(r"(\d{4})-(\d{2})(?:-(\d{2}))?", text)
    if match is None:
        return None
    year, month, day = (int(part or 0) for part in match.groups())
    try:
        return datetime.date(year, month, day or calendar.monthrange(year, month)[1])
    except ValueError:
        return None


def _a_year_after(text: str) -> datetime.date:
    """Return the same day of the next year; for 29 February the 28th."""
    day = _last_day(text) or datetime.date.min
    is_leap_day = (day.month, day.day) == (2, 29)
    return day.replace(year=day.year + 1, day=28 if is_leap_day else day.day)
