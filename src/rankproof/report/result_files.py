"""Which files of a folder are results, and of what.

A result is a JSON file that names its kind in its manifest. Sweeps and golden sets are folders with
pages of their own; every other result holds its presentation, which the page shows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankproof.foundation.errors import InputError
from rankproof.foundation.files import check_folder, read_text
from rankproof.presentation.result import Presentation, read_presentation

FOLDER_KINDS = ("sweep", "golden")  # results whose page is built from their folder
_ORDER = ("sweep", "gate", "leaderboard", "evaluation", "comparison", "holes", "ties")
_LARGEST_FILE = 64 << 20  # bytes; a larger file is something else
_DEPTH = 4  # levels of folders that are searched
_SKIPPED_FOLDERS = {"work"}  # a sweep's intermediate files
_RECORDS = {"documents"}  # kinds of files that say how other files were made


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A result read from a file."""

    kind: str
    path: Path
    name: str  # the path inside the folder
    data: dict[str, Any]
    presentation: Presentation | None  # None for a sweep and a golden set

    @property
    def manifest(self) -> dict[str, Any]:
        """How it was made, as far as the file says."""
        manifest = self.data.get("manifest")
        return manifest if isinstance(manifest, dict) else self.data


def titled(words: str, result: StoredResult) -> str:
    """Return a heading, with the name of the file's folder where that says more than the kind."""
    folder = result.path.parent.name
    return words if folder == result.kind else f"{words}: {folder}"


def find_results(folder: str | Path) -> tuple[list[StoredResult], list[str]]:
    """Return the results in a folder and those below it, and why files could not be read."""
    place = check_folder(folder)
    results: list[StoredResult] = []
    problems: list[str] = []
    for path in sorted(_json_files(place)):
        name = str(path.relative_to(place))
        try:
            if path.stat().st_size > _LARGEST_FILE:
                continue
            data = json.loads(read_text(path))
        except (ValueError, OSError, RecursionError) as error:
            problems.append(f"{name}: {first_line_of(error)}")
            continue
        kind = _kind(data)
        if kind is None:
            continue
        try:
            presentation = read_presentation(data)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{name}: its presentation cannot be read ({first_line_of(error)})")
            continue
        if presentation is not None or kind in FOLDER_KINDS:
            results.append(StoredResult(kind, path, name, data, presentation))
        else:
            problems.append(f"{name}: no presentation is stored in it; make it again with --out")
    if not results and not problems:
        raise InputError(
            "no results in this folder",
            place=str(folder),
            remedy="write some there: rankproof eval … --out DIR/eval.json, "
            "rankproof sweep … --out DIR/sweep",
        )
    return sorted(results, key=_page_order), problems


def _json_files(place: Path) -> Iterator[Path]:
    """Yield JSON files that are not hidden, at most `_DEPTH` folders deep."""
    for folder, subfolders, names in os.walk(place):
        depth = len(Path(folder).relative_to(place).parts) + 1
        subfolders[:] = [
            name
            for name in subfolders
            if depth < _DEPTH and not name.startswith(".") and name not in _SKIPPED_FOLDERS
        ]
        for name in names:
            if name.endswith(".json") and not name.startswith("."):
                yield Path(folder) / name


def first_line_of(error: Exception) -> str:
    """Return the first line of an error's message."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return next(iter(text.splitlines()), "cannot be read")


def _kind(data: Any) -> str | None:
    """Return a file's kind by its manifest; None where it is no result of rankproof."""
    if not isinstance(data, dict):
        return None
    manifest = data.get("manifest")
    kind = (manifest if isinstance(manifest, dict) else data).get("kind")
    is_result = isinstance(manifest, dict) or kind in FOLDER_KINDS
    return kind if isinstance(kind, str) and is_result and kind not in _RECORDS else None


def _page_order(result: StoredResult) -> tuple[int, str, str]:
    place = _ORDER.index(result.kind) if result.kind in _ORDER else len(_ORDER)
    return place, result.kind, result.name
