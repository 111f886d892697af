"""How much memory is available, and how much a run needs."""

from __future__ import annotations

import os
import re

BYTES_PER_ROW = 160  # at the peak of an evaluation, with ids of 12 bytes or less
MINIMUM = 16 << 20  # bytes

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)}
_AMOUNT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]i?)?B?\s*", re.I)


def parse_memory(amount: int | str) -> int:
    """Return an amount of memory in bytes: a number, or text such as 2GB, 512 MiB, 1.5G."""
    # Imported late: a command begins to read a run before errors are loaded.
    from rankproof.foundation.errors import InputError, shorten

    match = None if isinstance(amount, bool) else _AMOUNT.fullmatch(str(amount))
    if match is None:
        raise InputError(
            f"{shorten(amount)} is not an amount of memory", remedy="write it as 2GB or 512MB"
        )
    unit = (match[2] or "").upper().replace("I", "i")
    size = int(min(float(match[1]) * _UNITS[unit], 2.0**62))  # more than any machine has
    if size < MINIMUM:
        raise InputError(
            f"{shorten(amount)} of memory is too little to work in", remedy="give 16MiB or more"
        )
    return size


def available_memory() -> int:
    """Return the bytes that can be allocated now without swapping."""
    limits = [amount for amount in (_meminfo(), _cgroup()) if amount is not None]
    if limits:
        return min(limits)
    try:
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # not a Unix
        return 4 << 30


def _meminfo() -> int | None:
    try:
        match = re.search(r"^MemAvailable:\s+(\d+) kB", _read("/proc/meminfo"), re.M)
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def _cgroup() -> int | None:
    """Return what a container may still allocate; None outside of containers with a limit."""
    folder = "/sys/fs/cgroup"
    try:
        return max(0, int(_read(f"{folder}/memory.max")) - int(_read(f"{folder}/memory.current")))
    except (OSError, ValueError):  # "max" stands for no limit
        return None


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123
        return file.read()
