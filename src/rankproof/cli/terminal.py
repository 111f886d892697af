"""Lines and tables for people, on standard output; warnings and progress, on standard error.

Whatever a user's file holds is escaped first: a name cannot move the cursor.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from rankproof.foundation.printable import escape_controls
from rankproof.foundation.redaction import redact
from rankproof.presentation.html import fragment
from rankproof.presentation.result import Presentation
from rankproof.presentation.terminal import print_lines, wrap
from rankproof.presentation.terminal import print_presentation as write_to_terminal
from rankproof.presentation.text_formats import to_csv, to_latex, to_markdown

_SILENCE = 2.0  # seconds before a progress bar is drawn

wide = False  # whether tables may be wider than the terminal; set by --wide


def print_presentation(presentation: Presentation, form: str, *, explain: bool = False) -> None:
    """Print a result as a table for people, or as `csv`, `md`, `latex` or `html`."""
    if form == "table":
        write_to_terminal(presentation, wide=wide, explain=explain)
        return
    writers = {"csv": to_csv, "md": to_markdown, "latex": to_latex, "html": fragment}
    print(writers[form](presentation))


def say(lines: Iterable[str]) -> None:
    """Print lines for people, wrapped between words."""
    print_lines(lines, wide=wide)


def warn(message: str) -> None:
    """Print a line on stderr that does not stop anything."""
    line = f"rankproof: {escape_controls(redact(message))}"
    if sys.stderr.isatty():
        from rich.console import Console

        line = "\n".join(wrap(line, Console(stderr=True).width))
    print(line, file=sys.stderr)


def confirm(question: str) -> bool:
    """Ask on the terminal, yes or no; False where there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    import click

    return click.confirm(question, err=True)


@contextmanager
def progress_bar(label: str, total: float) -> Iterator[Callable[[float], None]]:
    """Yield a function to call with work done; a bar is drawn on a terminal, after two seconds.

    Any thread may call it.
    """
    started = time.monotonic()
    is_terminal = sys.stderr.isatty()
    lock = Lock()
    completed = 0.0
    bar: Any = None

    def advance(amount: float) -> None:
        nonlocal completed, bar
        with lock:
            completed += amount
            if not is_terminal or time.monotonic() - started < _SILENCE:
                return
            if bar is None:
                bar = _start_bar(label, total)
            bar.update(bar.task_ids[0], completed=min(completed, total))

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()


def _start_bar(label: str, total: float) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(label, total=total)
    bar.start()
    return bar
