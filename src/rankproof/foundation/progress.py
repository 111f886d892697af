"""Progress of long work, shown by whoever runs it and reported by whoever does it.

Work that can take longer than a moment opens a task and advances it:

    with progress("embedding", total=len(texts)):
        for batch in batches:
            ...
            advance(len(batch))

Functions deeper down call `advance` alone; it counts for the innermost open task. Nothing is shown
unless a display was chosen (the command line draws a bar on a terminal), so that a library call is
silent. Threads started inside a task report to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

TYPE_CHECKING = False  # typing itself is slow to load
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import TypeAlias

    # Draws a task with a label and a total; yields the function to call with work done.
    Display: TypeAlias = Callable[[str, float], AbstractContextManager[Callable[[float], None]]]
    DisplayMaker: TypeAlias = Callable[[Callable[[float], None]], Display]

_display: Display | None = None
_open_tasks: list[Callable[[float], None]] = []  # innermost last; shared by all threads
_lock = Lock()


def show_progress(display: Display | None) -> None:
    """Choose how tasks are drawn in this process; None draws nothing."""
    global _display
    _display = display


@contextmanager
def combine_progress(label: str, total: float, make_display: DisplayMaker) -> Iterator[None]:
    """Draw one task in place of all that open inside the block.

    `make_display(report)` returns the display for the inner tasks; what it reports moves the one
    that is drawn.
    """
    outer = _display
    if outer is None:
        yield
        return
    with outer(label, total) as report:
        show_progress(make_display(report))
        try:
            yield
        finally:
            show_progress(outer)


@contextmanager
def progress(label: str, total: float) -> Iterator[None]:
    """Open a task of `total` units that `advance` counts for until the block ends."""
    if _display is None:
        yield
        return
    with _display(label, total) as report:
        with _lock:
            _open_tasks.append(report)
        try:
            yield
        finally:
            with _lock:
                _open_tasks.remove(report)


@contextmanager
def open_task(label: str, total: float) -> Iterator[Callable[[float], None]]:
    """Open a task, and yield `advance` for a callee that takes it as an argument."""
    with progress(label, total):
        yield advance


def is_shown() -> bool:
    """True if somebody sees the progress of the innermost open task."""
    return bool(_open_tasks)


def advance(amount: float = 1) -> None:
    """Report `amount` units of work done to the innermost open task, if there is one."""
    if _open_tasks:
        with _lock:
            report = _open_tasks[-1] if _open_tasks else None
        if report is not None:
            report(amount)


_announce: Callable[[str], None] | None = None


def show_announcements(write: Callable[[str], None] | None) -> None:
    """Choose who is told what `announce` says; None tells nobody."""
    global _announce
    _announce = write


def announce(line: str) -> None:
    """Tell whoever runs the work one line at once, such as what a judge will cost.

    The command line writes it to standard error; a call from Python is silent.
    """
    if _announce is not None:
        _announce(line)


_ask: Callable[[str], bool] | None = None


def ask_with(ask: Callable[[str], bool] | None) -> None:
    """Choose who answers what `confirm` asks; None answers no."""
    global _ask
    _ask = ask


def confirm(question: str) -> bool:
    """Ask whoever runs the work to agree; False where nobody can be asked."""
    return _ask is not None and _ask(question)
