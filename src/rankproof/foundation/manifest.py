"""How a result was made: version, configuration, inputs by digest, seed, machine."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Any

from rankproof.foundation.errors import InputError
from rankproof.foundation.printable import printable_path
from rankproof.foundation.redaction import redact_for_publication
from rankproof.foundation.version import __version__

_BLOCK = 1 << 22
_LARGE = 1 << 24  # bytes of a file that takes long enough to be digested ahead

READ_ONCE: dict[str, tuple[int, str]] = {}  # size and SHA-256 of pipes, which cannot be read again
command: list[str] | None = None  # what was asked for, where it was on the command line


_ahead: dict[str, Future[str]] = {}  # digests that are being made


def digest_ahead(paths: Iterable[str]) -> None:
    """Begin to digest large files beside other work: `digest_file` then waits for the rest."""
    large = [path for path in paths if Path(path).is_file() and Path(path).stat().st_size > _LARGE]
    _ahead.update((path, Future()) for path in large)

    def work() -> None:
        for path in large:
            try:
                _ahead[path].set_result(_digest_file(path))
            except OSError as error:
                _ahead[path].set_exception(error)

    Thread(target=work, daemon=True).start()


def digest_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes."""
    begun = _ahead.pop(str(path), None)
    return begun.result() if begun is not None else _digest_file(path)


def _digest_file(path: str | Path) -> str:
    sha = hashlib.sha256()
    block = bytearray(_BLOCK)
    with Path(path).open("rb", buffering=0) as file:
        while size := file.readinto(block):
            sha.update(memoryview(block)[:size])
    return sha.hexdigest()


def input_digest(path: str | Path) -> dict[str, Any]:
    """Name, size and SHA-256 of an input; of a folder, of the digests of its files by name.

    A pipe cannot be read again: what was counted as it was read is told, if it was.
    """
    place = Path(path)
    if str(path) in READ_ONCE:
        size, sha = READ_ONCE[str(path)]
        name = "<stdin>" if str(path) == "-" else printable_path(place.name)
        return {"file": name, "size": size, "sha256": sha}
    try:
        if place.is_dir():
            files = sorted(file for file in _results(place) if file.is_file())
            known = {
                printable_path(file.relative_to(place).as_posix()): digest_file(file)
                for file in files
            }
            size = sum(file.stat().st_size for file in files)
            name = printable_path(place.resolve().name)
            return {"file": name, "files": len(files), "size": size, "sha256": digest(known)}
        name = printable_path(place.name)
        if not place.is_file():
            return {"file": name, "size": None, "sha256": None}
        return {"file": name, "size": place.stat().st_size, "sha256": digest_file(place)}
    except OSError as error:
        raise InputError(
            f"cannot read it again for its digest ({error.strerror or error})",
            place=str(path),
            remedy="leave the inputs where they are until the result is written",
        ) from None


def _results(folder: Path) -> Iterator[Path]:
    """What a folder holds; of a sweep's its results, not what it keeps for the next time."""
    swept = (folder / "sweep.json").is_file()
    for path in folder.iterdir():
        if not swept or path.suffix in (".json", ".parquet"):
            yield from path.rglob("*") if path.is_dir() else [path]


# ------------------------------------------------------------------------------------ roles

# Of files that are no runs.
_ROLES = ("qrels", "judged", "human", "golden", "correct", "sources", "provenance")
_SEVERAL = ("run ", "pool ")


def role_of(run: str) -> str:
    """What a run is called among the inputs: its name, unless something else is called so."""
    return f"run {run}" if run in _ROLES or run.startswith(_SEVERAL) else run


def run_of(role: str) -> str | None:
    """The name of the run that has a role; None where it is no run's."""
    if role.startswith("run "):
        return role.removeprefix("run ")
    return None if role in _ROLES or role.startswith(_SEVERAL) else role


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, written in one way only."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def machine() -> dict[str, Any]:
    """What the figures of time depend on."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "python": platform.python_version(),
    }


@cache
def _version(package: str) -> str | None:
    import importlib.metadata  # which parses mail, and costs more than most verbs do

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of the packages that are installed."""
    known = {package: _version(package) for package in packages}
    return {package: version for package, version in known.items() if version is not None}


def manifest(
    kind: str,
    *,
    config: Any = None,
    inputs: Mapping[str, str | Path] | None = None,
    seed: int | None = None,
    packages: Iterable[str] = ("numpy", "polars"),
) -> dict[str, Any]:
    """What every result file says of how it was made.

    `inputs` are files by role; a manifest holds their names, sizes and digests, never their
    folders, and no secret of the configuration. `command` is what was typed, where it was.
    """
    return {
        "kind": kind,
        "rankproof": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": None
        if command is None
        else [printable_path(word) for word in redact_for_publication(command)],
        "config": redact_for_publication(config),
        "inputs": {role: input_digest(path) for role, path in (inputs or {}).items()},
        "seed": seed,
        "versions": versions(packages),
        "machine": machine(),
    }
