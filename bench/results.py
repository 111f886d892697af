"""bench/RESULTS.md: one section per benchmark, each replaced when its benchmark runs."""

from __future__ import annotations

import os
import platform
import re
from datetime import date
from pathlib import Path

RESULTS = Path(__file__).parent / "RESULTS.md"
HEAD = "# Results\n\nThe last run of each benchmark, with its date and machine.\n"


def machine() -> str:
    """The processor and Python this runs on."""
    model = "unknown processor"
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"^model name\s*:\s*(.*)$", info.read_text(), re.M)
        model = found[1] if found else model
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Python {platform.python_version()}"


def record(title: str, lines: list[str]) -> None:
    """Replace the section `title`, or add it at the end."""
    text = RESULTS.read_text() if RESULTS.exists() else HEAD
    stamp = f"{date.today().isoformat()}, {machine()}."
    section = "\n".join([f"## {title}", "", stamp, "", *lines]).rstrip() + "\n"
    parts = re.split(r"^(?=## )", text, flags=re.M)
    kept = [part.rstrip() + "\n" for part in parts]
    at = next((i for i, part in enumerate(kept) if part.startswith(f"## {title}\n")), None)
    if at is None:
        kept.append(section)
    else:
        kept[at] = section
    RESULTS.write_text("\n".join(kept))
    print(section)
