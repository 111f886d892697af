"""Ctrl-C while others are waited for: the first says for whom and lets them answer, the second
leaves at once.

An answer that is under way may be paid already: it is awaited and kept, and nothing more is asked.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # what a shell calls a command that Ctrl-C ended
_KEEPING_S = 0.5  # for an answer to be stored, once it is there
_RAISED_AGAIN_S = 0.02  # after what swallowed it has returned

_waits: dict[object, tuple[str, float, int]] = {}  # whom for, since when, in which thread
_asked = threading.Event()
_ending = threading.Event()


@contextmanager
def waiting_for(whom: str) -> Iterator[None]:
    """Inside, a server is at work for us; after Ctrl-C nobody gets here any more."""
    here = threading.get_ident()
    if _asked.is_set() and here == threading.main_thread().ident:
        raise KeyboardInterrupt
    ticket = object()
    _waits[ticket] = (whom, time.monotonic(), here)
    try:
        yield
    finally:
        del _waits[ticket]
        if _asked.is_set() and here == threading.main_thread().ident:
            _soon(_KEEPING_S)


def stopping() -> bool:
    """Whether Ctrl-C was pressed: then nothing is tried again."""
    return _asked.is_set()


@contextmanager
def two_stage() -> Iterator[None]:
    """Hear Ctrl-C so, as a command does; a caller's own way of hearing it is left alone."""
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    before, untold = signal.signal(signal.SIGINT, _heard), sys.unraisablehook

    def swallowed(lost: sys.UnraisableHookArgs) -> None:
        """A library that may raise nothing (pydantic, where it compiles a pattern; a destructor)
        loses Ctrl-C and prints that: it is raised again, where it can be heard."""
        if issubclass(lost.exc_type, KeyboardInterrupt):
            _soon(_RAISED_AGAIN_S)
        else:
            untold(lost)

    sys.unraisablehook = swallowed
    try:
        yield
    finally:
        sys.unraisablehook = untold
        signal.signal(signal.SIGINT, before)
        _asked.clear()


def _soon(seconds: float) -> None:
    ending = threading.Timer(seconds, _raise)
    ending.daemon = True
    ending.start()


def _raise() -> None:
    """End the main thread's work as Ctrl-C does; the request that it waited for is answered."""
    if not _asked.is_set():  # the command has ended meanwhile
        return
    _ending.set()
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # which may be inside a system call
    else:
        _thread.interrupt_main()


def _heard(number: int, frame: FrameType | None) -> None:
    if _ending.is_set():
        _ending.clear()
        raise KeyboardInterrupt
    if _asked.is_set():
        _say("stopped", show_cursor=True)
        os._exit(INTERRUPTED)
    _asked.set()
    waits = list(_waits.values())
    if not waits:
        raise KeyboardInterrupt
    whom = ", ".join(dict.fromkeys(name for name, _, _ in waits))
    longest = time.monotonic() - min(since for _, since, _ in waits)
    answers = "its answer" if len(waits) == 1 else f"{len(waits)} answers"
    _say(f"waiting for {answers}: {whom}, {longest:.0f} s so far; Ctrl-C again leaves at once")
    if all(thread != threading.main_thread().ident for _, _, thread in waits):
        raise KeyboardInterrupt  # those threads end their requests, and are waited for


def _say(text: str, show_cursor: bool = False) -> None:
    """Past the buffers of sys.stderr: the line that was interrupted may hold them."""
    cursor = "\x1b[?25h" if show_cursor and sys.stderr.isatty() else ""
    os.write(sys.stderr.fileno(), f"{cursor}rankproof: {text}\n".encode())


def interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: before 3.12 Python makes a RuntimeError of what is raised
    while it makes a class, as modules that load do."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None
