"""Amounts of money as they are printed."""

from __future__ import annotations

SIGNS = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥"}


def money(amount: float, currency: str = "USD", form: str | None = None) -> str:
    """An amount with the sign of its currency, or its three letters; what is paid is never 0.00."""
    if form is None:
        form = ".2f" if amount == 0 or amount >= 0.01 else ".4f" if amount >= 5e-5 else ".1g"
    return f"{SIGNS.get(currency, f'{currency} ')}{amount:{form}}"
