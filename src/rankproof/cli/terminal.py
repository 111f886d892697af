"""Lines and tables for people, on standard output; warnings and progress, on standard error.

Whatever a user's file holds is escaped first: a name cannot move the cursor.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from rankproof.foundation.printable import escape_controls
from rankproof.foundation.redaction import redact

if TYPE_CHECKING:
    from rankproof.presentation.tables import Table

WIDEST = 10_000  # columns: nothing is shortened or left out
_PIPE_COLUMNS = 200  # a pipe or a file has no edge to wrap at
_SILENCE = 2.0  # seconds before a progress bar is drawn

wide = False  # whether tables may be wider than the terminal; set by --wide


def _columns(console: Any) -> int:
    """Columns to fill: those of the terminal, or as many as it takes with --wide."""
    if wide:
        return WIDEST
    if console.is_terminal or os.environ.get("COLUMNS", "").strip("0").isdigit():
        return int(console.width) or 80  # where 0 columns are said, nobody knows
    return _PIPE_COLUMNS


def print_tables(tables: Sequence[Table], lines: Sequence[str]) -> None:
    """Print tables fitted to the terminal, each with its notes, and `lines` below them."""
    from rich.console import Console

    from rankproof.presentation.tables import draw, fitted

    columns = _columns(Console(highlight=False))
    console = Console(highlight=False, width=WIDEST)  # rows are fitted before: they never wrap
    for table in tables:
        shown, padding = fitted(table, columns)
        console.print(draw(shown, padding))
        say([f"  {note}" for note in shown.notes], "dim")
    say(lines)


def say(lines: Iterable[str], style: str = "") -> None:
    """Print lines for people, wrapped between words."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    narrow = Console(highlight=False, width=min(_columns(console), _PIPE_COLUMNS))
    for line in lines:
        for part in _wrap(escape_controls(line), narrow):
            narrow.print(Text(part, style), soft_wrap=True)


def _wrap(line: str, console: Any) -> list[str]:
    """Break a line between words; it continues below where its text began.

    A command or a path to be copied stays whole: the terminal breaks it, and copies no line end.
    """
    from rich.text import Text

    if re.match(r" {6}|next: |page: ", line):
        return [line.rstrip()]
    begin = re.match(r" *(?:rankproof: )?", line)
    indent = len(begin[0]) if begin else 0
    parts = Text(line[indent:]).wrap(console, max(20, console.width - indent))
    lines = [f"{' ' * indent}{part.plain}".rstrip() for part in parts]
    return [line[:indent] + lines[0][indent:], *lines[1:]] if lines else [line.rstrip()]


def warn(message: str) -> None:
    """Print a line on stderr that does not stop anything."""
    line = f"rankproof: {escape_controls(redact(message))}"
    if sys.stderr.isatty():
        from rich.console import Console

        line = "\n".join(_wrap(line, Console(stderr=True)))
    print(line, file=sys.stderr)


@contextmanager
def progress_bar(label: str, total: float) -> Iterator[Callable[[float], None]]:
    """Yield a function to call with work done; a bar is drawn on a terminal, after two seconds.

    Any thread may call it.
    """
    started = time.monotonic()
    is_terminal = sys.stderr.isatty()
    lock = Lock()
    done = 0.0
    bar: Any = None

    def advance(amount: float) -> None:
        nonlocal done, bar
        with lock:
            done += amount
            if not is_terminal or time.monotonic() - started < _SILENCE:
                return
            if bar is None:
                bar = _start_bar(label, total)
            bar.update(bar.task_ids[0], completed=min(done, total))

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
