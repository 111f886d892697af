"""How much memory there is, and how much a run would take."""

from __future__ import annotations

import os
import re

ROW = 160  # bytes that a row takes at the peak of its evaluation, ids of 12 bytes or less
LEAST = 16 << 20

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?)?B?\s*", re.I)


def parse_memory(amount: int | str) -> int:
    """Bytes: a number, or words such as 2GB, 512 MiB, 1.5G."""
    from rankproof.foundation.errors import (  # a command reads a run before they are there
        InputError,
        shorten,
    )

    found = None if isinstance(amount, bool) else _AMOUNT.fullmatch(str(amount))
    if found is None:
        raise InputError(
            f"{shorten(amount)} is not an amount of memory", remedy="write it as 2GB or 512MB"
        )
    unit = (found[2] or "").upper().replace("I", "i")
    size = int(min(float(found[1]) * _UNITS[unit], 2.0**62))  # more is as good as no bound
    if size < LEAST:
        raise InputError(
            f"{shorten(amount)} of memory is too little to work in", remedy="give 16MiB or more"
        )
    return size


def available_memory() -> int:
    """Bytes that could be taken now without pushing anything else out."""
    known = [amount for amount in (_meminfo(), _cgroup()) if amount is not None]
    if known:
        return min(known)
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not a Unix
        return 4 << 30


def _meminfo() -> int | None:
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"), re.M)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def _cgroup() -> int | None:
    """What a container may still take."""
    folder = "/sys/fs/cgroup"
    try:
        return max(0, int(_text(f"{folder}/memory.max")) - int(_text(f"{folder}/memory.current")))
    except (OSError, ValueError):  # no container, or no limit ("max")
        return None


def _text(path: str) -> str:
    with open(path) as file:  # noqa: PTH123
        return file.read()
