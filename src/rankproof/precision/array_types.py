"""numpy arrays and torch tensors, told apart without importing torch."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rankproof.foundation.errors import InputError, shorten
from rankproof.precision.formats import FLOATS, round_to

_TORCH_NAMES = {"float8_e4m3fn": "float8_e4m3"}


def is_torch(values: Any) -> bool:
    return type(values).__module__.partition(".")[0] == "torch"


def name_of(values: Any) -> str:
    """The format of an array or tensor, by the name rankproof gives it."""
    name = str(values.dtype if hasattr(values, "dtype") else np.asarray(values).dtype)
    name = name.removeprefix("torch.")
    return _TORCH_NAMES.get(name, name)


def upcast(values: Any, form: Literal["float32", "float64"] = "float32") -> Any:
    """Return the same values in float32 or float64: exact from every narrower format."""
    if is_torch(values):
        import torch

        if form == "float64" and values.device.type not in ("cpu", "cuda"):
            values = values.cpu()  # Apple's GPUs have no float64
        return values.detach().to(getattr(torch, form))
    array = np.asarray(values)
    if array.dtype.kind not in "fiubV":
        raise InputError(f"{shorten(values)} holds no numbers", remedy="give an array of numbers")
    return array.astype(form)


def round_result(values: Any, form: str) -> Any:
    """float32 results as `form` would hold them; a tensor comes back in that type."""
    if form == "float32" or form not in FLOATS:
        return values
    if is_torch(values):
        import torch

        return values.to(getattr(torch, {v: k for k, v in _TORCH_NAMES.items()}.get(form, form)))
    return round_to(values, form)
