"""A display of progress that calls a function with each amount of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rankproof.foundation.progress import progress, show_progress


@contextmanager
def reporting_to(report: Callable[[float], object]) -> Iterator[None]:
    """Open a task inside which every reported amount is passed to `report`."""

    @contextmanager
    def display(label: str, total: float) -> Iterator[Callable[[float], None]]:
        def advance(amount: float) -> None:
            report(amount)

        yield advance

    show_progress(display)
    try:
        with progress("test", 1):
            yield
    finally:
        show_progress(None)
