"""A result as JSON has it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """Numbers, texts, lists, dicts: what is undefined or endless is null; of a class its fields."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if is_dataclass(value):
        return told(value, *(field.name for field in fields(value)))
    return value


def told(of: Any, *names: str) -> dict[str, Any]:
    """Some attributes by name, as JSON has them."""
    return {name: plain(getattr(of, name)) for name in names}
