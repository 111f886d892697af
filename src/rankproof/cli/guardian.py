"""A command in a child process, for libraries that end the process they are in.

Where its head or its node dies, Ray's core calls exit or abort: no handler of ours runs then. So
the command runs in a child; this process says the line that it could not, and ends whom it left
behind.
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

from rankproof.cli.door import open_streams
from rankproof.foundation.interrupts import INTERRUPTED

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36  # of prctl(2)
_FROM_KERNEL = 128  # a signal of the terminal, which every process in front hears


def guarded(work: Callable[[Callable[[int], None]], NoReturn]) -> int:
    """The exit code of `work`, which is handed a function to be told it before the process ends.

    For Linux.
    """
    open_streams()
    heard = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
    told, tell = os.pipe()
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what its child leaves behind becomes ours
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    child = os.fork()
    if not child:
        prctl(_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(told)
        work(partial(_tell, tell))
    os.close(tell)
    status = _waited(child, heard)
    _end_orphans()
    said = os.read(told, 1)
    if said:
        return said[0]
    code = os.waitstatus_to_exitcode(status)
    if code == INTERRUPTED:
        return code
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    remedy = "see that there is room on disk, in memory and for open files (ulimit -n)"
    problem = f"Ray ended this command ({how}): its head or its node died"
    with suppress(OSError):  # stderr may be gone or full
        print(f"rankproof: cluster: {problem}; {remedy}", file=sys.stderr, flush=True)
    return 2


def _tell(pipe: int, code: int) -> None:
    os.write(pipe, bytes([code]))


def _waited(child: int, heard: set[signal.Signals]) -> int:
    """The child's status; signals to this process alone are handed on to it."""
    while True:
        found = signal.sigwaitinfo(heard)
        if found.si_signo == signal.SIGCHLD:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status
        elif found.si_code != _FROM_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(child, found.si_signo)


def _end_orphans() -> None:
    """Kill every child that is left, and theirs, which become ours as they go."""
    while True:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                pid, rest = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
                if int(rest[1]) == os.getpid():
                    os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return
