"""A Ray session: connecting, waiting for tasks, and errors in the user's terms."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterable, Iterator
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

_SPACE_REMEDY = "see that there is room on disk, in memory and for open files (ulimit -n)"
_CHECK_INTERVAL = 1.0  # seconds between two checks that the cluster is alive


def load_ray(address: str | None = None) -> Any:
    """Import Ray, configured to send no usage statistics and to report an error once."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    if address in (None, "auto") and "RAY_ADDRESS" not in os.environ:
        # What Ray starts here should listen to this machine alone. An address of 127.0.0.1 would
        # not do: Ray replaces it by that of the network. Ray reads the variable when it is
        # imported, which may have happened before.
        is_alone = os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0") == "0"
        if is_alone and (constants := sys.modules.get("ray._private.ray_constants")) is not None:
            constants.__dict__["ENABLE_RAY_CLUSTER"] = False
    return import_extra("ray", "rankproof.cluster", "ray")


@contextmanager
def connected(address: str | None = None, **settings: Any) -> Iterator[Any]:
    """Yield a Ray session: the current one, or a new one that ends with the block.

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
        _check_address(started)
    if ray.is_initialized():
        yield ray
        return
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    # A task has one core, and polars in it must not use all of them.
    options["runtime_env"] = {"env_vars": {"POLARS_MAX_THREADS": "1"}, **_quoted_python(started)}
    if started is None and "RAY_ADDRESS" not in os.environ:
        options["include_dashboard"] = False
    for is_last_try in (False, True):
        try:
            with _silenced_stderr():
                ray.init(address=started, **{**options, **settings})
            break
        except Exception as error:  # Ray raises many types, among them plain Exception
            ray.shutdown()
            # A busy machine may be too slow once.
            if is_last_try or "timed out during startup" not in str(error):
                raise _connection_error(address or "auto", error) from None
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
def _silenced_stderr() -> Iterator[None]:
    """Drop what Ray's processes print when they fail to start; one line reports it afterwards."""
    sys.stderr.flush()
    try:
        stderr = os.dup(2)
    except OSError:  # standard error is closed
        yield
        return
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)


def _check_address(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would wait for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _connection_error(address, error) from None


def _connection_error(address: str, error: Exception) -> InputError:
    if address == "auto":
        return InputError(
            f"Ray does not start on this machine ({shorten(first_line(error), 160)})",
            remedy=f"{_SPACE_REMEDY}, or leave out --cluster",
        )
    return InputError(
        f"no Ray cluster answers at {shorten(address)} ({first_line(error)})",
        remedy="start one (ray start --head) and give its host:port, or use auto",
    )


def use_own_cores() -> None:
    """In a worker: use as many threads as the task has cores, as Ray's OMP_NUM_THREADS says."""
    cores = os.environ.get("OMP_NUM_THREADS", "1")
    kernels.THREADS = int(cores) if cores.isdigit() else 1


def gather(ray: Any, references: Iterable[Any]) -> list[Any]:
    """Return the results in order, or raise the error of the first that failed.

    Other tasks are not cancelled: cancelling one as it ends crashes Ray 2.60.
    """
    return [fetch(ray, reference) for reference in references]


def fetch(ray: Any, reference: Any) -> Any:
    """Wait for a task and return its result."""
    wait_for_one(ray, [reference])
    with explain_ray_errors(ray):
        return ray.get(reference)


def wait_for_one(ray: Any, references: list[Any]) -> Any:
    """Wait until one of the tasks is finished, and return its reference."""
    while not (finished := ray.wait(references, num_returns=1, timeout=_CHECK_INTERVAL)[0]):
        check_head(ray)
    return finished[0]


def check_head(ray: Any) -> None:
    """Raise an error if the head or all nodes died: Ray would wait on, or end the process.

    A head that is only busy still accepts the connection.
    """
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
        dead = "nodes" if not any(node["Alive"] for node in ray.nodes()) else ""
    except (ConnectionError, ValueError):
        dead = "head"
    except OSError:  # the network may fail for a moment
        return
    if dead:
        raise InputError(
            f"Ray's {dead} died",
            place="cluster",
            remedy=_SPACE_REMEDY,
        )


@contextmanager
def explain_ray_errors(ray: Any) -> Iterator[None]:
    """Raise the error that a worker raised; turn errors of Ray into one line."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        while isinstance(cause, ray.exceptions.RayTaskError):  # of a task that waited
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
    except (ray.exceptions.RayError, ConnectionError) as error:  # such as a lost node
        problem = f"Ray failed ({shorten(' '.join(str(error).split()), 160)})"
    else:
        return
    raise InputError(
        problem, place="cluster", remedy="give tasks fewer rows (rows_per_task=), or more room"
    )
