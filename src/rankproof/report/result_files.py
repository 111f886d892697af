"""What a folder of results holds, told by what its files say of themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rankproof.foundation.errors import InputError
from rankproof.foundation.files import check_folder, read_text

Kind = Literal[
    "sweep", "gate", "leaderboard", "evaluation", "comparison", "audit", "golden", "names", "noise"
]
KINDS: tuple[Kind, ...] = get_args(Kind)  # in the order of the page
_ELSEWHERE = ("agreement", "ceilings", "holes", "recommendation", "ties")  # what verbs print
_LARGEST = 64 << 20  # bytes of a file of results; a larger one is something else
_DEEP = 4  # folders
_SKIPPED = {"work"}  # a sweep's intermediates


@dataclass(frozen=True, slots=True)
class Result:
    """One file of results."""

    kind: Kind
    path: Path
    name: str  # where it lies in the folder
    data: dict[str, Any]

    @property
    def manifest(self) -> dict[str, Any]:
        """How it was made, as far as it says."""
        inside = self.data.get("manifest")
        return inside if isinstance(inside, dict) else self.data


def titled(what: str, result: Result) -> str:
    """A heading, with the name of its folder where that says more than the kind."""
    folder = result.path.parent.name
    return what if folder == result.kind else f"{what}: {folder}"


def find(folder: str | Path) -> tuple[list[Result], list[str]]:
    """The results in a folder and those below it, and files that could not be read."""
    place = check_folder(folder)
    found: list[Result] = []
    broken: list[str] = []
    for path in sorted(_files(place)):
        inside = path.relative_to(place)
        try:
            if path.stat().st_size > _LARGEST:
                continue
            data = json.loads(read_text(path))
        except (ValueError, OSError, RecursionError) as error:
            broken.append(f"{inside}: {reason(error)}")
            continue
        kind = _kind(data)
        if kind is not None:
            found.append(Result(kind, path, str(inside), data))
        elif isinstance(data, dict) and isinstance(data.get("manifest"), dict):
            said = data["manifest"].get("kind")
            if said in _ELSEWHERE:
                broken.append(f"{inside}: the page does not show {said}")
    if not found:
        raise InputError(
            "no results in this folder",
            place=str(folder),
            remedy="write some there: rankproof eval … --out DIR/eval.json, "
            "rankproof sweep … --out DIR/sweep",
        )
    found.sort(key=lambda result: (KINDS.index(result.kind), result.name))
    return found, broken


def _files(place: Path) -> Iterator[Path]:
    """JSON files that are not hidden, at most so many folders deep."""
    for folder, below, names in os.walk(place):
        inside = Path(folder).relative_to(place)
        deep = len(inside.parts) + 1 >= _DEEP
        below[:] = [b for b in below if not (deep or b.startswith(".") or b in _SKIPPED)]
        for name in names:
            if name.endswith(".json") and not name.startswith("."):
                yield Path(folder) / name


def reason(error: Exception) -> str:
    """The first line of what an error says."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return next(iter(said.splitlines()), "cannot be read")


def _kind(data: Any) -> Kind | None:
    """A file's kind by its manifest, or by what it holds."""
    if not isinstance(data, dict):
        return None
    inside = data.get("manifest")
    said = (inside if isinstance(inside, dict) else data).get("kind")
    if said in KINDS:
        return said  # type: ignore[no-any-return]
    if said is not None:
        return None
    if "verdict" in data or "shuffles" in data:
        return "gate" if "verdict" in data else "leaderboard"
    for key, kind in (("runs", "evaluation"), ("pairs", "comparison"), ("readings", "audit")):
        rows = data.get(key)
        if isinstance(rows, list) and rows and isinstance(rows[0], dict):
            return kind  # type: ignore[return-value]
    return None
