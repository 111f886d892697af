"""Values as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """Return a value as numbers, texts, lists and dicts; NaN and infinity are null.

    Of an object `to_dict()` is taken, of a dataclass without it all fields.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if is_dataclass(value):
        return plain_fields(value, *(field.name for field in fields(value)))
    return value


def plain_fields(value: Any, *names: str) -> dict[str, Any]:
    """Return attributes by name, as JSON has them."""
    return {name: plain(getattr(value, name)) for name in names}
