"""numpy arrays and torch tensors behind one interface, without importing torch for an array."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from rankproof.foundation.errors import InputError, shorten
from rankproof.precision.formats import FLOATS, round_to

_TORCH_NAMES = {"float8_e4m3": "float8_e4m3fn"}  # of formats that torch names differently


def is_torch(values: Any) -> bool:
    """True for a torch tensor."""
    return type(values).__module__.partition(".")[0] == "torch"


def torch_dtype(form: str) -> Any:
    """Return torch's type for a floating-point format."""
    import torch

    return getattr(torch, _TORCH_NAMES.get(form, form))


def format_of(values: Any) -> str:
    """Return rankproof's name of the format that an array or tensor holds."""
    dtype = values.dtype if hasattr(values, "dtype") else np.asarray(values).dtype
    name = str(dtype).removeprefix("torch.")
    return next((form for form, torch_name in _TORCH_NAMES.items() if torch_name == name), name)


def upcast(values: Any, form: Literal["float32", "float64"] = "float32") -> Any:
    """Return the same values in float32 or float64: exact from every narrower format."""
    if is_torch(values):
        if form == "float64" and values.device.type not in ("cpu", "cuda"):
            values = values.cpu()  # Apple's GPUs have no float64
        return values.detach().to(torch_dtype(form))
    array = np.asarray(values)
    if array.dtype.kind not in "fiubV":
        raise InputError(f"{shorten(values)} holds no numbers", remedy="give an array of numbers")
    return array.astype(form)


def round_result(values: Any, form: str) -> Any:
    """Return float32 results rounded to `form`; a tensor comes back in that type."""
    if form == "float32" or form not in FLOATS:
        return values
    return values.to(torch_dtype(form)) if is_torch(values) else round_to(values, form)
