"""How a result was made: version, configuration, inputs by digest, seed, machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rankproof.redaction import published
from rankproof.version import __version__

_BLOCK = 1 << 20


def digest_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes."""
    sha = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            sha.update(block)
    return sha.hexdigest()


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


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of the packages that are installed."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def manifest(
    kind: str,
    *,
    config: Any = None,
    inputs: Mapping[str, str | Path] | None = None,
    seed: int | None = None,
    packages: Iterable[str] = ("numpy", "polars"),
) -> dict[str, Any]:
    """What every result file says of how it was made.

    `inputs` are files by role; a manifest holds their names and digests, never their folders, and
    no secret of the configuration.
    """
    return {
        "kind": kind,
        "rankproof": __version__,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "config": published(config),
        "inputs": {
            role: {"file": Path(path).name, "sha256": digest_file(path)}
            for role, path in (inputs or {}).items()
        },
        "seed": seed,
        "versions": versions(packages),
        "machine": machine(),
    }
