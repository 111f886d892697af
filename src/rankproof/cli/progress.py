"""A bar on stderr for work that takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

PATIENCE = 2.0  # seconds of silence


@contextmanager
def progress(label: str, total: float) -> Iterator[Callable[[float], None]]:
    """Yields a function to be told of work done; draws only on a terminal, and only late.

    Any thread may call it.
    """
    begun = time.monotonic()
    done = 0.0
    bar: Any = None
    task: Any = None
    lock = Lock()
    visible = sys.stderr.isatty()

    def advance(amount: float) -> None:
        nonlocal done, bar, task
        with lock:
            done += amount
            if not visible or time.monotonic() - begun < PATIENCE:
                return
            if bar is None:
                bar = _bar()
                task = bar.add_task(label, total=total)
                bar.start()
            bar.update(task, completed=min(done, total))

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def _bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
