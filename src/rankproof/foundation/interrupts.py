"""Two-stage Ctrl-C: the first lets pending requests end, the second exits at once.

A request that is under way to a paid server may already be charged. So the first Ctrl-C starts no
new request, waits for the pending ones and keeps their answers; it names the servers it waits for.
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
from dataclasses import dataclass
from types import FrameType

INTERRUPTED = 130  # a shell's exit code of a command that Ctrl-C ended
_STORE_SECONDS = 0.5  # time to store an answer after it arrived
_RERAISE_SECONDS = 0.02  # until code that swallowed KeyboardInterrupt has returned


@dataclass(frozen=True, eq=False)
class _PendingRequest:
    server: str
    start: float  # seconds, monotonic clock
    thread: int


_pending: set[_PendingRequest] = set()
_interrupt_requested = threading.Event()
_interrupt_due = threading.Event()  # the next SIGINT was sent by `_interrupt_main_thread`


@contextmanager
def waiting_for(server: str) -> Iterator[None]:
    """Mark the block as a request to a server that Ctrl-C waits for.

    After Ctrl-C the main thread cannot enter another such block.
    """
    thread = threading.get_ident()
    is_main = thread == threading.main_thread().ident
    if _interrupt_requested.is_set() and is_main:
        raise KeyboardInterrupt
    request = _PendingRequest(server, time.monotonic(), thread)
    _pending.add(request)
    try:
        yield
    finally:
        _pending.remove(request)
        if _interrupt_requested.is_set() and is_main:
            _interrupt_after(_STORE_SECONDS)


def stopping() -> bool:
    """True after Ctrl-C was pressed: failed requests are not repeated."""
    return _interrupt_requested.is_set()


@contextmanager
def two_stage() -> Iterator[None]:
    """Handle Ctrl-C in two stages inside the block, unless the caller has a handler of its own."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    previous_handler = signal.signal(signal.SIGINT, _handle_interrupt)
    previous_hook = sys.unraisablehook

    def raise_again(unraisable: sys.UnraisableHookArgs) -> None:
        """Raise KeyboardInterrupt again where a library lost it.

        Code that may not raise (a destructor, pydantic compiling a pattern) prints it instead.
        """
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _interrupt_after(_RERAISE_SECONDS)
        else:
            previous_hook(unraisable)

    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        sys.unraisablehook = previous_hook
        signal.signal(signal.SIGINT, previous_handler)
        _interrupt_requested.clear()


def _interrupt_after(seconds: float) -> None:
    timer = threading.Timer(seconds, _interrupt_main_thread)
    timer.daemon = True
    timer.start()


def _interrupt_main_thread() -> None:
    """Raise KeyboardInterrupt in the main thread, unless the command has ended meanwhile."""
    if not _interrupt_requested.is_set():
        return
    _interrupt_due.set()
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)  # also ends a system call it may be waiting in
    else:
        _thread.interrupt_main()


def _handle_interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt at the first Ctrl-C unless requests are pending; exit at the second.

    While the main thread waits for a request of its own, nothing is raised: `waiting_for` does so
    when the request has ended.
    """
    if _interrupt_due.is_set():
        _interrupt_due.clear()
        raise KeyboardInterrupt
    if _interrupt_requested.is_set():
        _write_stderr("stopped", show_cursor=True)
        os._exit(INTERRUPTED)
    _interrupt_requested.set()
    requests = list(_pending)
    if not requests:
        raise KeyboardInterrupt
    servers = ", ".join(sorted({request.server for request in requests}))
    longest = time.monotonic() - min(request.start for request in requests)
    answers = "its answer" if len(requests) == 1 else f"{len(requests)} answers"
    _write_stderr(
        f"waiting for {answers}: {servers}, {longest:.0f} s so far; Ctrl-C again leaves at once"
    )
    main = threading.main_thread().ident
    if all(request.thread != main for request in requests):
        raise KeyboardInterrupt  # the threads end their requests and are joined


def _write_stderr(text: str, show_cursor: bool = False) -> None:
    """Write past the buffer of sys.stderr, whose lock the interrupted code may hold."""
    cursor = "\x1b[?25h" if show_cursor and sys.stderr.isatty() else ""
    os.write(sys.stderr.fileno(), f"{cursor}rankproof: {text}\n".encode())


def interrupted(error: BaseException | None) -> bool:
    """True if Ctrl-C caused an error, at any depth.

    Before 3.12, Python turns an exception raised while a class is created (as modules do when they
    load) into a RuntimeError.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error is not None
