"""The command line: the registered commands on click, and how a process begins and ends.

command_line.py  options, help and completion, generated from the commands' signatures
delivery.py      call the command, print and write its result
terminal.py      tables, lines, warnings and a progress bar for people
exit_line.py     errors become one line on stderr and an exit code
child_process.py `--cluster` runs in a child process, which Ray may end
deferred_import.py  polars is imported when it is first used

It holds no logic of a command: what a command does stands in `commands/`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import NoReturn

from rankproof.cli.deferred_import import defer_import
from rankproof.cli.exit_line import errors_as_one_line, expand_home, shown_arguments
from rankproof.foundation import manifest
from rankproof.foundation.interrupts import INTERRUPTED, two_stage
from rankproof.foundation.progress import ask_with, show_announcements, show_progress


def main() -> None:
    """Run the command line: whatever happens ends in an exit code and at most one line."""
    code = None
    show_progress(_draw_progress)
    show_announcements(_warn)
    ask_with(_confirm)
    with errors_as_one_line(), two_stage():
        sys.argv[1:] = map(expand_home, sys.argv[1:])
        manifest.command = shown_arguments(sys.argv[1:])
        from rankproof.cli.command_line import build_command_line

        code = build_command_line().main(prog_name="rankproof", standalone_mode=False)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        sys.stdout.flush()
    if isinstance(code, int) and code:
        sys.exit(code)


def _draw_progress(label: str, total: float) -> AbstractContextManager[Callable[[float], None]]:
    from rankproof.cli.terminal import progress_bar

    return progress_bar(label, total)


def _confirm(question: str) -> bool:
    from rankproof.cli import terminal  # loads the writers of results: later than the help

    return terminal.confirm(question)


def _warn(line: str) -> None:
    from rankproof.cli.terminal import warn

    warn(line)


def run() -> None:
    """Run `main`, then leave without taking the interpreter apart.

    The system frees half a gigabyte at once; the interpreter would do it piece by piece.
    """
    defer_import("polars")
    if sys.platform == "linux" and any(word.startswith("--cluster") for word in sys.argv[1:]):
        from rankproof.cli.child_process import (
            run_in_child,  # Ray may end the process that it is in
        )

        os._exit(run_in_child(_run_and_leave))
    _run_and_leave()


def _run_and_leave(report_code: Callable[[int], None] | None = None) -> NoReturn:
    """Run `main` and end the process; `report_code` is called with the exit code before."""
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # already reported, or there is nobody to report to
            stream.flush()
    if report_code is not None:
        report_code(code)
    if "ray" in sys.modules:  # which ends its processes as the interpreter goes
        sys.exit(code)
    os._exit(code)
