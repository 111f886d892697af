"""A Ray session, and what its errors mean to a user."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from rankproof.foundation import kernels
from rankproof.foundation.errors import (
    InputError,
    RankproofError,
    first_line,
    import_extra,
    shorten,
)

_ROOM = "see that there is room on disk, in memory and for open files (ulimit -n)"
_LOOK_S = 1.0  # between two looks at whether somebody is still there


def load_ray(address: str | None = None) -> Any:
    # Nothing is told to anyone unless the user asked for it, and an error is told once.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    if address in (None, "auto") and "RAY_ADDRESS" not in os.environ:
        # What Ray starts here listens to this machine alone; the address 127.0.0.1 itself it would
        # turn into that of the network. It reads this as it is imported, perhaps long before.
        alone = os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0") == "0"
        if alone and (read := sys.modules.get("ray._private.ray_constants")) is not None:
            read.__dict__["ENABLE_RAY_CLUSTER"] = False
    return import_extra("ray", "rankproof.cluster", "ray")


@contextmanager
def connected(address: str | None = None, **settings: Any) -> Iterator[Any]:
    """A Ray session: the one there is, or a new one that ends with the block.

    `address` is "auto" (or None) for a running cluster, else this machine as one, or where a
    cluster listens. `settings` are those of `ray.init`.

    >>> from rankproof import cluster
    >>> with cluster.connected() as ray:
    ...     ray.is_initialized()
    True
    """
    ray = load_ray(address)
    started = None if address in (None, "auto") else address
    if started is not None:
        _knock(started)
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    # A task has one core: polars in it must not take them all.
    quiet["runtime_env"] = {"env_vars": {"POLARS_MAX_THREADS": "1"}, **_quoted_python(started)}
    if started is None and "RAY_ADDRESS" not in os.environ:
        quiet["include_dashboard"] = False
    for last in (False, True):
        try:
            with _hushed():
                ray.init(address=started, **{**quiet, **settings})
            break
        except Exception as error:  # Ray raises all kinds, plain Exception among them
            ray.shutdown()
            if last or "timed out during startup" not in str(error):  # on a busy machine
                raise _no_cluster(address or "auto", error) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _quoted_python(address: str | None) -> dict[str, str]:
    """Settings under which workers on this machine start from a folder with a blank in its name.

    Ray passes the path of Python to a shell without quotes. On other machines it may be another.
    """
    host = "" if address is None else address.removeprefix("ray://").rpartition(":")[0]
    is_local = host in ("", "localhost", "127.0.0.1", "[::1]")
    if not is_local or "RAY_ADDRESS" in os.environ or sys.platform == "win32":
        return {}
    quoted = shlex.quote(sys.executable)
    return {} if quoted == sys.executable else {"py_executable": quoted}


@contextmanager
def _hushed() -> Iterator[None]:
    """Without what Ray's processes print as they fail to start: it is told in one line after."""
    sys.stderr.flush()
    try:
        held = os.dup(2)
    except OSError:  # there is no such stream
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(held, 2)
        os.close(held)
        os.close(nowhere)


def _knock(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would wait for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: Exception) -> InputError:
    if address == "auto":
        return InputError(
            f"Ray does not start on this machine ({shorten(first_line(error), 160)})",
            remedy=f"{_ROOM}, or leave out --cluster",
        )
    return InputError(
        f"no Ray cluster answers at {shorten(address)} ({first_line(error)})",
        remedy="start one (ray start --head) and give its host:port, or use auto",
    )


def use_own_cores() -> None:
    """In a worker: as many threads as Ray gave the task cores, which it writes into OpenMP's."""
    given = os.environ.get("OMP_NUM_THREADS", "1")
    kernels.THREADS = int(given) if given.isdigit() else 1


def gather(ray: Any, references: Iterable[Any]) -> list[Any]:
    """The results in order; the error of the first that failed, as one line.

    The other tasks are let run out: cancelling one as it ends brings Ray 2.60 down.
    """
    return list(gathered(ray, references))


def gathered(
    ray: Any, references: Iterable[Any], progress: Callable[[float], None] | None = None
) -> Iterator[Any]:
    """`gather` for who may need no more."""
    for reference in references:
        yield fetched(ray, reference)
        if progress is not None:
            progress(1.0)


def fetched(ray: Any, reference: Any) -> Any:
    """What a task gave, once it is done."""
    first_done(ray, [reference])
    with understood(ray):
        return ray.get(reference)


def first_done(ray: Any, references: list[Any]) -> Any:
    """One of them that is done."""
    while not (done := ray.wait(references, num_returns=1, timeout=_LOOK_S)[0]):
        check_head(ray)
    return done[0]


def check_head(ray: Any) -> None:
    """Refuse to wait for a cluster whose head or nodes are gone: Ray waits, or ends the process.

    A head that is only busy takes the connection.
    """
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
        dead = "nodes" if not any(node["Alive"] for node in ray.nodes()) else ""
    except (ConnectionError, ValueError):
        dead = "head"
    except OSError:  # a network that does not answer for a moment
        return
    if dead:
        raise InputError(
            f"Ray's {dead} died",
            place="cluster",
            remedy=_ROOM,
        )


@contextmanager
def understood(ray: Any) -> Iterator[None]:
    """Raise what a worker raised, and say what it means when workers die."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        while isinstance(cause, ray.exceptions.RayTaskError):  # a task that waited for another
            cause = cause.cause
        if isinstance(cause, RankproofError):
            raise cause from None
        raise
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.ActorDiedError):
        problem = "a worker died again and again"
    except ray.exceptions.OutOfMemoryError:
        problem = "a worker took more memory than there is"
    except ray.exceptions.OutOfDiskError:
        problem = "Ray's spill folder is full"
    except (ray.exceptions.RayError, ConnectionError) as error:  # its node went away, say
        problem = f"Ray failed ({shorten(' '.join(str(error).split()), 160)})"
    else:
        return
    raise InputError(
        problem, place="cluster", remedy="give tasks fewer rows (rows_per_task=), or more room"
    )
