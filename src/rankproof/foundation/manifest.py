"""Record how a result was made: version, configuration, inputs by digest, seed, machine.

A result that cannot be made again proves little. Each result file therefore has a manifest, from
which `rankproof verify` makes it again. It holds no folder and no secret, so that it may be
published.
"""

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
_LARGE = 1 << 24  # bytes from which a digest takes long enough to begin early

READ_ONCE: dict[str, tuple[int, str]] = {}  # size and SHA-256 of pipes, which cannot be read again
command: list[str] | None = None  # the words of the command line, if there is one

_ahead: dict[str, Future[str]] = {}  # digests being computed


def digest_ahead(paths: Iterable[str]) -> None:
    """Begin to digest large files in a thread; `digest_file` waits for the result."""
    large = [path for path in paths if Path(path).is_file() and Path(path).stat().st_size > _LARGE]
    _ahead.update((path, Future()) for path in large)

    def digest_all() -> None:
        for path in large:
            try:
                _ahead[path].set_result(_digest_file(path))
            except OSError as error:
                _ahead[path].set_exception(error)

    Thread(target=digest_all, daemon=True).start()


def digest_file(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    pending = _ahead.pop(str(path), None)
    return pending.result() if pending is not None else _digest_file(path)


def _digest_file(path: str | Path) -> str:
    sha = hashlib.sha256()
    block = bytearray(_BLOCK)
    with Path(path).open("rb", buffering=0) as file:
        while size := file.readinto(block):
            sha.update(memoryview(block)[:size])
    return sha.hexdigest()


def input_digest(path: str | Path) -> dict[str, Any]:
    """Return name, size and SHA-256 of an input; for a folder, of the digests of its files by name.

    A pipe cannot be read again, so its digest must have been taken while it was read.
    """
    place = Path(path)
    if str(path) in READ_ONCE:
        size, sha = READ_ONCE[str(path)]
        name = "<stdin>" if str(path) == "-" else printable_path(place.name)
        return {"file": name, "size": size, "sha256": sha}
    try:
        if place.is_dir():
            files = sorted(file for file in _iter_inputs(place) if file.is_file())
            digests = {
                printable_path(file.relative_to(place).as_posix()): digest_file(file)
                for file in files
            }
            size = sum(file.stat().st_size for file in files)
            name = printable_path(place.resolve().name)
            return {"file": name, "files": len(files), "size": size, "sha256": digest(digests)}
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


def _iter_inputs(folder: Path) -> Iterator[Path]:
    """Yield all that a folder holds, but only the results of a sweep and not its cache."""
    is_sweep = (folder / "sweep.json").is_file()
    for path in folder.iterdir():
        if not is_sweep or path.suffix in (".json", ".parquet"):
            yield from path.rglob("*") if path.is_dir() else [path]


# ------------------------------------------------------------------------------------ roles

# Roles of files that are not runs, and prefixes of roles that several files have.
_ROLES = ("qrels", "judged", "human", "golden", "correct", "sources", "provenance")
_PREFIXES = ("run ", "pool ")


def role_of(run: str) -> str:
    """Return the role of a run among the inputs: its name, prefixed if it could be another role."""
    return f"run {run}" if run in _ROLES or run.startswith(_PREFIXES) else run


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value in its canonical form: sorted keys, no blanks."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def machine() -> dict[str, Any]:
    """Return what measured times depend on."""
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
    import importlib.metadata  # takes longer to load than most commands run

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    installed = {package: _version(package) for package in packages}
    return {package: version for package, version in installed.items() if version is not None}


def manifest(
    kind: str,
    *,
    config: Any = None,
    inputs: Mapping[str, str | Path] | None = None,
    seed: int | None = None,
    packages: Iterable[str] = ("numpy", "polars"),
) -> dict[str, Any]:
    """Return what a result file records of how it was made.

    `inputs` are files by role, recorded by name, size and digest. Secrets are removed from the
    configuration and from the command line.
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
