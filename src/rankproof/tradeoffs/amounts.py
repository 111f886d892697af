"""Amounts of money as they are printed."""

from __future__ import annotations

SIGNS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥"}


def money(amount: float, currency: str = "USD", form: str = ".2f") -> str:
    """An amount with the sign of its currency, or its three letters."""
    return f"{SIGNS.get(currency, f'{currency} ')}{amount:{form}}"
