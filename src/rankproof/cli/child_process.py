"""Run a command in a child process, for a library that may end the process it is in.

When its head or its node dies, Ray's core calls exit or abort, and no handler of Python runs. So
the command runs in a child; the parent reports an end that the child could not report, and kills
the processes that it left behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

from rankproof.cli.exit_line import repair_streams
from rankproof.foundation.interrupts import INTERRUPTED

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # arguments of prctl(2)
_FROM_TERMINAL = 128  # si_code of a signal that every process in the foreground receives


def run_in_child(work: Callable[[Callable[[int], None]], NoReturn]) -> int:
    """Run `work` in a child process (Linux) and return its exit code.

    `work` receives a function to call with its exit code before the process ends.
    """
    repair_streams()
    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
    read_end, write_end = os.pipe()
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the child's orphans become children of this process
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    child = os.fork()
    if not child:
        prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        os.close(read_end)
        work(partial(_report_code, write_end))
    os.close(write_end)
    status = _wait_for(child, signals)
    _kill_orphans()
    reported = os.read(read_end, 1)
    return reported[0] if reported else _unreported_end(os.waitstatus_to_exitcode(status))


def _report_code(pipe: int, code: int) -> None:
    """In the child: tell the parent the exit code, before Ray can end this process."""
    os.write(pipe, bytes([code]))


def _unreported_end(code: int) -> int:
    """Print how the child ended without reporting a code; return this process's exit code."""
    if code == INTERRUPTED:
        return code
    reason = f"signal {-code}" if code < 0 else f"exit code {code}"
    remedy = "see that there is room on disk, in memory and for open files (ulimit -n)"
    problem = f"Ray ended this command ({reason}): its head or its node died"
    with suppress(OSError):  # stderr may be closed or full
        print(f"rankproof: cluster: {problem}; {remedy}", file=sys.stderr, flush=True)
    return 2


def _wait_for(child: int, signals: set[signal.Signals]) -> int:
    """Wait for the child's status, passing on signals; a terminal sends its own to both."""
    while True:
        received = signal.sigwaitinfo(signals)
        if received.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif received.si_code != _FROM_TERMINAL:
            with suppress(ProcessLookupError):
                os.kill(child, received.si_signo)


def _kill_orphans() -> None:
    """Kill every remaining child, and theirs, which become children of this process."""
    while True:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                pid, fields = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
                if int(fields[1]) == os.getpid():
                    os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
