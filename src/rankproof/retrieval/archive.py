"""An index in one file: arrays with a JSON header, as numpy's npz without pickles."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import write_atomically

_HEADER = "said"  # name of the array that holds the header, in every archive written so far


def write_archive(
    path: Path, kind: str, header: Mapping[str, Any], arrays: Mapping[str, Array]
) -> Path:
    """Write an index, all of it or nothing; `kind` names the contents and their version."""
    text = np.frombuffer(json.dumps({"kind": kind, **header}).encode(), np.uint8)
    columns: dict[str, Any] = {_HEADER: text, **arrays}

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **columns)

    return write_atomically(path, write)


def read_archive(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Read the header and the arrays; raise InputError for any other file."""
    header: Any = None
    arrays: dict[str, Array] = {}
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as columns:
            arrays = {name: columns[name] for name in columns.files}
        header = json.loads(arrays.pop(_HEADER).tobytes())
    except FileNotFoundError:
        raise InputError(
            "there is no such file", place=str(path), remedy="build the index and save it"
        ) from None
    except (OSError, ValueError, KeyError, EOFError, AttributeError, zipfile.BadZipFile):
        pass  # not an archive: the header remains None
    if not isinstance(header, dict) or header.get("kind") != kind:
        raise InputError(f"not a {kind} index", place=str(path), remedy="build it again")
    return header, arrays
