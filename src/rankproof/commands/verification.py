"""Verify a stored result: digest its inputs, repeat its call, and compare every value.

Values are compared to the last bit. The inputs are found again by their digest or their name; a
result of a command that cannot be repeated is checked by its inputs alone.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rankproof.commands.recording import repeat_call
from rankproof.foundation.errors import InputError, RankproofError, shorten
from rankproof.foundation.files import read_text
from rankproof.foundation.manifest import input_digest
from rankproof.foundation.phrasing import plural, typed
from rankproof.foundation.printable import printable_path
from rankproof.foundation.version import __version__
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Column, Table

MAX_BYTES = 4 << 30  # of a result that is read


@dataclass(frozen=True, slots=True)
class DigestedInput:
    """An input of a result, and the file that was found for it."""

    role: str
    file: str  # its name when the result was made
    path: Path
    same: bool  # the file found has the digest of the input


@dataclass(frozen=True, slots=True)
class Difference:
    """A value of the result, and the same value of the repeated call."""

    place: str  # runs.0.measures.nDCG@10.expected
    said: Any  # in the result
    again: Any  # of the repeated call

    @property
    def same(self) -> bool:
        """True if both are equal to the last bit: −0.0 is not 0.0, and true is not 1."""
        if isinstance(self.said, bool) or isinstance(self.again, bool):
            return self.said is self.again
        return bool(self.said == self.again) and str(self.said)[:1] == str(self.again)[:1]


@dataclass(frozen=True, slots=True, repr=False)
class Verification(Displayed):
    """Whether a result follows from its inputs.

    >>> inputs = ["try/qrels.txt", "try/plain.trec", "try/saturated.trec"]
    >>> verification = rp.verify("try/results/comparison.json", inputs)
    >>> verification.of_kind, verification.same
    ('comparison', True)
    """

    kind: ClassVar[str] = "verification"

    result: str
    of_kind: str  # kind of the result
    made_by: str  # the version that wrote it
    inputs: tuple[DigestedInput, ...]
    compared: int  # values
    differences: tuple[Difference, ...]
    unmade: str | None = None  # why the call was not repeated; only the inputs are checked

    @property
    def same(self) -> bool:
        """True if every input has its digest and no value differs."""
        return all(item.same for item in self.inputs) and not self.differences

    @property
    def exit_code(self) -> int:
        """1 if an input is another file or a value differs."""
        return 0 if self.same else 1

    def summary(self) -> Summary:
        """Whether all values are the same, and the first difference."""
        return Summary("\n".join(self.words()))

    def tables(self) -> list[Table]:
        """None where every input is the same: the answer says it."""
        return [] if all(item.same for item in self.inputs) else self.full_tables()

    def full_tables(self) -> list[Table]:
        """A row for each input."""
        columns = [Column("input", "text", folds=True)]
        columns += Column.each("file", "SHA-256", style="text")
        rows = [(i.role, i.file, "the same" if i.same else "another") for i in self.inputs]
        return [Table(columns, rows)]

    def words(self) -> list[str]:
        """The outcome in sentences: inputs, values, version."""
        changed = [item.file for item in self.inputs if not item.same]
        lines = []
        if changed:
            lines.append(f"Not the file that was read: {', '.join(changed)}.")
        if self.unmade is not None:
            if self.inputs and not changed:
                has = plural(len(self.inputs), "input has its digest", "inputs have their digests")
                lines.append(f"{has}. No value was computed again: {self.unmade}.")
            else:
                lines.append(f"No value was computed again: {self.unmade}.")
        elif self.differences:
            first = self.differences[0]
            lines.append(
                f"{len(self.differences)} of {self.compared} values differ, the first at "
                f"{first.place}: {shorten(first.said)} then, {shorten(first.again)} now."
            )
        else:
            lines.append(f"All {self.compared} values are the same to the last bit.")
        if self.made_by != __version__:
            lines.append(f"Made by version {self.made_by}; this is {__version__}.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof verify --format json` prints."""
        return {
            **plain_fields(self, "result"),
            "kind": self.of_kind,
            **plain_fields(self, "same"),
            "inputs": [plain_fields(item, "role", "file", "same") for item in self.inputs],
            "figures": self.compared,
            **plain_fields(self, "differences", "unmade"),
        }


class _NotRepeatable(Exception):
    """The call of a result cannot be repeated; the message says why."""


def verify_result(
    result: str | os.PathLike[str], inputs: Sequence[str | Path] = ()
) -> Verification:
    """Repeat the call of a stored result with its inputs, and compare the values.

    Inputs are those named, known by digest or by name, else those beside the result or in the
    current folder. Where the call cannot be repeated, the inputs alone are digested, and `unmade`
    says why.
    """
    data = _read(result)
    manifest = data["manifest"]
    values: list[Difference] = []
    unmade: str | None = None
    try:
        digested = tuple(
            _find_input(role, recorded, Path(result), inputs)
            for role, recorded in manifest["inputs"].items()
            if recorded.get("file") is not None  # an input from memory has a digest and no file
        )
        repeated = json.loads(json.dumps(_repeat(data, digested)))
    except _NotRepeatable as reason:
        unmade = str(reason)
    except RankproofError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise _malformed(result, error) from None
    else:
        stored = {key: value for key, value in data.items() if key != "manifest"}
        is_complete = manifest.get("rankproof") == __version__
        values = list(_compare(stored, repeated, "", is_complete))
        if not values:
            raise _malformed(result, "no values")
    return Verification(
        result=str(result),
        of_kind=str(manifest.get("kind")),
        made_by=str(manifest.get("rankproof")),
        inputs=digested,
        compared=len(values),
        differences=tuple(value for value in values if not value.same),
        unmade=unmade,
    )


def _read(result: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a result, or the manifest.json of a folder of results."""
    text = read_text(os.fspath(result), MAX_BYTES)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _malformed(result, error) from None
    if isinstance(data, dict) and {"kind", "rankproof", "inputs"} <= data.keys():
        data = {"manifest": data}
    if not isinstance(data, dict) or not isinstance(data.get("manifest"), dict):
        raise _malformed(result, "no manifest")
    return data


def _malformed(result: str | os.PathLike[str], error: Exception | str) -> InputError:
    """The error for a file that is not a result."""
    reason = next(iter(str(error).splitlines()), "")
    return InputError(
        f"not a result that rankproof wrote ({reason})",
        place=str(result),
        remedy="name a file of --out or --format json",
    )


def _find_input(
    role: str, recorded: Mapping[str, Any], result: Path, inputs: Sequence[str | Path]
) -> DigestedInput:
    """Find the file of an input: by its digest among the named files, else by its name."""
    name = Path(str(recorded["file"])).name
    paths = [Path(path) for path in inputs]

    def has_name(path: Path) -> bool:
        return printable_path(path.name) == name

    for path in paths:
        if not path.exists():
            raise InputError("there is no such file", place=str(path), remedy="check the path")
    candidates = [
        *sorted(paths, key=lambda path: not has_name(path)),
        *(f for path in paths if path.is_dir() for f in sorted(path.rglob("*")) if has_name(f)),
        *filter(has_name, _files_in(result.parent)),
        *filter(has_name, _files_in(Path())),
    ]
    for path in candidates:
        if input_digest(path)["sha256"] == recorded["sha256"]:
            return DigestedInput(role, name, path, same=True)
    if name == "<stdin>" and len(paths) == 1:  # piped data has no name
        return DigestedInput(role, name, paths[0], same=False)
    for path in filter(has_name, candidates):
        return DigestedInput(role, name, path, same=False)
    command = ["rankproof verify", *map(typed, [result, *inputs]), f"PATH/{shlex.quote(name)}"]
    raise InputError(
        f"{role}: {shorten(name)} is not beside the result, nor in this folder",
        place=str(result),
        remedy=f"name it: {' '.join(command)}",
    )


def _files_in(folder: Path) -> list[Path]:
    """The files of a folder, sorted; none if it cannot be listed."""
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _compare(stored: Any, repeated: Any, place: str, is_complete: bool) -> Iterator[Difference]:
    """Yield every value of the stored result beside that of the repeated call.

    If the stored result is complete (made by this version), values that it lacks are yielded, too;
    an earlier version may not have had them.
    """
    if isinstance(stored, dict) and isinstance(repeated, dict):
        for key in dict.fromkeys([*stored, *(repeated if is_complete else ())]):
            if key not in UNCOMPARED and (key in stored or key not in ONLY_IN_FILES):
                inner = f"{place}{'.' if place else ''}{key}"
                yield from _compare(stored.get(key), repeated.get(key), inner, is_complete)
    elif isinstance(stored, list) and isinstance(repeated, list) and len(stored) == len(repeated):
        for index, (value, repeated_value) in enumerate(zip(stored, repeated, strict=True)):
            yield from _compare(value, repeated_value, f"{place}.{index}", is_complete)
    else:
        yield Difference(place, stored, repeated)


def _repeat(data: dict[str, Any], inputs: Sequence[DigestedInput]) -> dict[str, Any]:
    """Repeat the call that made a result, with the files found for its inputs."""
    manifest = data["manifest"]
    if "call" not in manifest:
        raise _NotRepeatable(UNMADE[str(manifest.get("kind"))])
    result = repeat_call(data, {item.role: item.path for item in inputs})
    if isinstance(result, str):
        raise _NotRepeatable(result)
    return result


_NOTHING_TO_REPEAT = "it holds none that follows from its inputs alone"
UNMADE = {
    "sweep": "a sweep measures times, which no two runs share",
    "names": "an embedder was run",
    "noise": "an embedder was run",
    "doctor": _NOTHING_TO_REPEAT,
    "documents": _NOTHING_TO_REPEAT,
    "embed": _NOTHING_TO_REPEAT,
    "measures": _NOTHING_TO_REPEAT,
    "plan": _NOTHING_TO_REPEAT,
    "score": _NOTHING_TO_REPEAT,
    "verification": _NOTHING_TO_REPEAT,
}  # why the call of a kind of result is not repeated
ONLY_IN_FILES = ("per_query", "relevant", "retrieved")  # keys that --format json does not print
UNCOMPARED = ("seconds", "presentation")  # keys: times differ, a presentation follows from values
