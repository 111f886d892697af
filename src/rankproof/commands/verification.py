"""A result checked: its inputs digested again, its figures made again, compared to the last bit."""

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

LARGEST = 4 << 30  # bytes of a result that is read


@dataclass(frozen=True, slots=True)
class Digested:
    """An input, as the result tells of it and as it was found."""

    role: str
    file: str
    found: Path
    same: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure as it was and as it comes out now."""

    place: str  # runs.0.measures.nDCG@10.expected
    said: Any
    again: Any

    @property
    def same(self) -> bool:
        """To the last bit: −0.0 is not 0.0, and true is not 1."""
        if isinstance(self.said, bool) or isinstance(self.again, bool):
            return self.said is self.again
        return bool(self.said == self.again) and str(self.said)[:1] == str(self.again)[:1]


@dataclass(frozen=True, slots=True, repr=False)
class Verification(Displayed):
    """Whether a result is what its inputs give.

    >>> inputs = ["try/qrels.txt", "try/plain.trec", "try/saturated.trec"]
    >>> found = rp.verify("try/results/comparison.json", inputs)
    >>> found.of_kind, found.same
    ('comparison', True)
    """

    kind: ClassVar[str] = "verification"

    result: str
    of_kind: str  # of result
    made_by: str  # the version that wrote it
    inputs: tuple[Digested, ...]
    compared: int  # values
    differences: tuple[Difference, ...]
    unmade: str | None = None  # why the figures were not made again; only the inputs are checked

    @property
    def same(self) -> bool:
        """Every input has its digest, and every figure that was made again its bits."""
        return all(given.same for given in self.inputs) and not self.differences

    @property
    def exit_code(self) -> int:
        """1 if an input is another file or a value differs."""
        return 0 if self.same else 1

    def summary(self) -> Summary:
        """What was compared, and the first difference."""
        return Summary(notes=self.words())

    def tables(self) -> list[Table]:
        """A row for each input."""
        columns = [Column("input", "text", folds=True)]
        columns += Column.each("file", "SHA-256", style="text")
        rows = [(i.role, i.file, "the same" if i.same else "another") for i in self.inputs]
        return [Table(columns, rows)]

    def words(self) -> list[str]:
        changed = [given.file for given in self.inputs if not given.same]
        lines = []
        if changed:
            lines.append(f"Not the file that was read: {', '.join(changed)}.")
        if self.unmade is not None:
            kept = ""
            if self.inputs and not changed:
                has = plural(len(self.inputs), "input has its digest", "inputs have their digests")
                kept = f"{has}. "
            lines.append(f"{kept}No figure was made again: {self.unmade}.")
        elif self.differences:
            first = self.differences[0]
            lines.append(
                f"{len(self.differences)} of {self.compared} figures differ, the first at "
                f"{first.place}: {shorten(first.said)} then, {shorten(first.again)} now."
            )
        else:
            lines.append(f"All {self.compared} figures are the same to the last bit.")
        if self.made_by != __version__:
            lines.append(f"Made by version {self.made_by}; this is {__version__}.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof verify --format json` prints."""
        return {
            **plain_fields(self, "result"),
            "kind": self.of_kind,
            **plain_fields(self, "same"),
            "inputs": [plain_fields(given, "role", "file", "same") for given in self.inputs],
            "figures": self.compared,
            **plain_fields(self, "differences", "unmade"),
        }


class _Unmade(Exception):
    """Why figures are not made again."""


def verify_result(
    result: str | os.PathLike[str], inputs: Sequence[str | Path] = ()
) -> Verification:
    """Make a result again from its inputs and compare.

    Inputs are those named, known by digest or by name, else those beside the result or in the
    current folder. The command that made the result is called again; where it cannot be repeated,
    the inputs alone are digested, and `unmade` says why.
    """
    data = _read(result)
    made = data["manifest"]
    kind = str(made.get("kind"))
    compared: list[Difference] = []
    unmade: str | None = None
    try:
        digested = tuple(
            _find(role, said, Path(result), inputs)
            for role, said in made["inputs"].items()
            if said.get("file") is not None  # what came from memory has a digest and no file
        )
        again = json.loads(json.dumps(_made_again(data, digested)))
    except _Unmade as why:
        unmade = str(why)
    except RankproofError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise _misshapen(result, error) from None
    else:
        said = {key: value for key, value in data.items() if key != "manifest"}
        whole = made.get("rankproof") == __version__
        compared = list(_compared(said, again, "", whole))
        if not compared:
            raise _misshapen(result, "no figures")
    return Verification(
        result=str(result),
        of_kind=kind,
        made_by=str(made.get("rankproof")),
        inputs=digested,
        compared=len(compared),
        differences=tuple(found for found in compared if not found.same),
        unmade=unmade,
    )


def _read(result: str | os.PathLike[str]) -> dict[str, Any]:
    text = read_text(os.fspath(result), LARGEST)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _misshapen(result, error) from None
    if isinstance(data, dict) and {"kind", "rankproof", "inputs"} <= data.keys():
        data = {"manifest": data}  # the manifest.json of a folder
    if not isinstance(data, dict) or not isinstance(data.get("manifest"), dict):
        raise _misshapen(result, "no manifest")
    return data


def _misshapen(result: str | os.PathLike[str], error: Exception | str) -> InputError:
    said = next(iter(str(error).splitlines()), "")
    return InputError(
        f"not a result that rankproof wrote ({said})",
        place=str(result),
        remedy="name a file of --out or --format json",
    )


def _find(
    role: str, said: Mapping[str, Any], result: Path, given: Sequence[str | Path]
) -> Digested:
    """The file that an input was: by its digest among those given, else by its name."""
    name = Path(str(said["file"])).name
    named = [Path(path) for path in given]

    def same_name(path: Path) -> bool:
        return printable_path(path.name) == name

    def called_so(folder: Path) -> list[Path]:
        with suppress(OSError):  # a folder that cannot be listed holds none
            return sorted(filter(same_name, folder.iterdir()))
        return []

    for path in named:
        if not path.exists():
            raise InputError("there is no such file", place=str(path), remedy="check the path")
    places = [
        *sorted(named, key=lambda path: not same_name(path)),
        *(f for path in named if path.is_dir() for f in sorted(path.rglob("*")) if same_name(f)),
        *called_so(result.parent),
        *called_so(Path()),
    ]
    wanted = said["sha256"]
    same = next((path for path in places if input_digest(path)["sha256"] == wanted), None)
    if same is not None:
        return Digested(role, name, same, True)
    likely = next((path for path in places if same_name(path)), None)
    if name == "<stdin>" and len(named) == 1:  # what was piped has no name
        likely = named[0]
    if likely is None:
        absent = f"PATH/{shlex.quote(name)}"
        raise InputError(
            f"{role}: {shorten(name)} is not beside the result, nor in this folder",
            place=str(result),
            remedy=f"name it: rankproof verify {' '.join([*map(typed, [result, *given]), absent])}",
        )
    return Digested(role, name, likely, False)


def _compared(said: Any, again: Any, place: str, whole: bool) -> Iterator[Difference]:
    """Every leaf that the result holds, and with `whole` every one that it should hold.

    What a later version adds is not asked of an earlier result.
    """
    if isinstance(said, dict) and isinstance(again, dict):
        for key in dict.fromkeys([*said, *(again if whole else ())]):
            if key not in UNCOMPARED and (key in said or key not in MORE):
                inner = f"{place}{'.' if place else ''}{key}"
                yield from _compared(said.get(key), again.get(key), inner, whole)
    elif isinstance(said, list) and isinstance(again, list) and len(said) == len(again):
        for at, (one, other) in enumerate(zip(said, again, strict=True)):
            yield from _compared(one, other, f"{place}.{at}", whole)
    else:
        yield Difference(place, said, again)


# ------------------------------------------------------------------------------ made again


def _made_again(data: dict[str, Any], digested: Sequence[Digested]) -> dict[str, Any]:
    made = data["manifest"]
    if "call" not in made:
        raise _Unmade(UNMADE[str(made.get("kind"))])
    result = repeat_call(data, {each.role: each.found for each in digested})
    if isinstance(result, str):
        raise _Unmade(result)
    return result


UNMADE = {
    "sweep": "a sweep measures times, which no two runs share",
    "names": "an embedder was run",
    "noise": "an embedder was run",
    **dict.fromkeys(
        (
            *("doctor", "documents", "embed"),
            *("measures", "plan", "score", "verification"),
        ),
        "it holds none that follows from its inputs alone",
    ),
}
MORE = ("per_query", "relevant", "retrieved")  # what --out holds and --format json does not
UNCOMPARED = ("seconds", "presentation")  # what no two runs share, and what follows from the rest
