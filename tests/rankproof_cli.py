"""The command line as a process of its own.

To load what it imports takes most of such a process. So one that has loaded all of it, and done
nothing yet, forks for each call: arguments, folder, environment and streams are the call's own, and
whatever it does ends with it; for models there is another, which has loaded those libraries too.
Where the environment decides what is loaded and how, it is Python.
"""

from __future__ import annotations

import atexit
import csv
import json
import os
import socket
import struct
import subprocess
import sys
import traceback
import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread
from typing import Any

_TERMINAL = {"COLUMNS": "200", "NO_COLOR": "1"}
_DECIDES = ("PYTHON", "RANKPROOF_NATIVE", "POLARS", "OMP_", "OPENBLAS", "LC_", "LANG")
_PIPE = 1 << 16  # bytes that a pipe takes without a reader
_LOADED = (
    *("polars", "rich.console", "rich.table", "rich.text", "pydantic", "yaml"),
    *(
        "rankproof.comparison.leaderboard",
        "rankproof.comparison.gate",
        "rankproof.evaluation.tie_counts",
        "rankproof.evaluation.streaming",
    ),
    *(
        "rankproof.presentation.terminal",
        "rankproof.unjudged.judging_order",
        "rankproof.unjudged.sampling",
    ),
    *("rankproof.tradeoffs.recommend", "rankproof.tradeoffs.sweep", "rankproof.audit"),
    *("rankproof.golden.building", "rankproof.report", "rankproof.data.arrow"),
)
_MODELS = ("torch", "transformers", "sentence_transformers")
_lock = Lock()


def csv_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a table in CSV, without the comments below it."""
    lines = [line for line in text.splitlines() if not line.startswith("# ")]
    return list(csv.DictReader(lines))


def rankproof(
    *arguments: str,
    stdin: bytes = b"",
    cwd: str | Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """`env` is set beside this process's, by default a wide terminal without colours."""
    whole = {**os.environ, **(_TERMINAL if env is None else env)}
    command = [sys.executable, "-W", "error", "-m", "rankproof", *arguments]
    if len(stdin) > _PIPE or "--cluster" in arguments or _decided(whole) != _decided(_at_start):
        return subprocess.run(command, input=stdin, capture_output=True, env=whole, cwd=cwd)
    pipes = [os.pipe() for _ in range(3)]
    (stdin_end, fill), *outputs = pipes
    asked = json.dumps([arguments, str(cwd or Path.cwd()), whole]).encode()
    found: list[bytes] = [b"", b""]

    def drain(at: int) -> None:
        with open(outputs[at][0], "rb") as stream:  # noqa: PTH123
            found[at] = stream.read()

    readers = [Thread(target=drain, args=(at,)) for at in range(2)]
    for reader in readers:
        reader.start()
    with _lock:
        theirs = [stdin_end, outputs[0][1], outputs[1][1]]
        hub = frozenset(of for of in whole.items() if of[0].startswith("HF_"))  # read when loaded
        models = any(word.startswith("--model") for word in arguments)
        server = _server(hub, _MODELS if models else ())
        socket.send_fds(server, [struct.pack("Q", len(asked))], theirs)
        server.sendall(asked)
        for end in theirs:
            os.close(end)
        with open(fill, "wb") as stream:  # noqa: PTH123
            stream.write(stdin)
        (code,) = struct.unpack("i", _whole(server, 4))
    for reader in readers:
        reader.join()
    return subprocess.CompletedProcess(command, code, *found)


def in_text(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The same, with what it printed as text."""
    done = rankproof(*arguments, **options)
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


_at_start = dict(os.environ)


def _decided(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_DECIDES)}


@cache
def _server(hub: frozenset[tuple[str, str]], more: tuple[str, ...]) -> socket.socket:
    """One of a kind for this process; it ends when this end of the connection does."""
    apart = {name: value for name, value in _at_start.items() if not name.startswith("HF_")}
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__, str(theirs.fileno()), *more],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=apart | dict(hub),
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _whole(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        some = connection.recv(size - len(found))
        if not some:
            raise EOFError("the other end went away")
        found += some
    return found


def _serve(connection: socket.socket, more: list[str]) -> None:
    from rankproof.cli import command_line, delivery
    from rankproof.commands import registry

    assert delivery
    command_line.build_command_line()
    registry.all_commands()
    for name in _LOADED:
        import_module(name)
    with warnings.catch_warnings():  # which are others' to mend
        warnings.simplefilter("ignore")
        for name in more:
            import_module(name)
    while True:
        head, streams, _, _ = socket.recv_fds(connection, 8, 3)
        if not head:
            return
        arguments, folder, env = json.loads(_whole(connection, *struct.unpack("Q", head)))
        with warnings.catch_warnings():  # of threads, which wait for work
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            connection.close()
            _call(arguments, folder, env, streams)
        for end in streams:
            os.close(end)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        connection.sendall(struct.pack("i", code))


def _call(arguments: list[str], folder: str, env: dict[str, str], streams: list[int]) -> None:
    """In the process of a call: `python -m rankproof`, from where Python itself has started."""
    import runpy

    for at, (name, end) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
        os.dup2(end, at)
        os.close(end)
        how = getattr(sys, name)  # whose encoding this process took from the environment
        mode, lines = ("r" if at == 0 else "w"), (1 if at == 2 else -1)
        stream = open(at, mode, lines, how.encoding, how.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.argv[1:] = arguments
    try:
        runpy.run_module("rankproof", run_name="__main__", alter_sys=True)
    except BaseException:  # which ends there in an exit
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        _serve(connection, sys.argv[2:])
