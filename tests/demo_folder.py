"""The folder that `rankproof demo` leaves, made once for all processes of a run of tests."""

from __future__ import annotations

import os
from pathlib import Path

from filelock import FileLock

from rankproof.commands.showcase import build_demo


def demo_folder() -> Path:
    """To be copied before anything is written into it."""
    place = Path(os.environ["RANKPROOF_TESTS"]) / "demo"
    with FileLock(f"{place}.lock"):
        if not (place / "report.html").is_file():  # what it writes last
            build_demo(place)
    return place
