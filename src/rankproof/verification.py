"""A result checked: its inputs digested again, its figures made again, compared to the last bit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rankproof.comparison import compare_evaluations
from rankproof.errors import InputError, shorten
from rankproof.evaluation import Evaluation, Policy, parse_all
from rankproof.files import read_text
from rankproof.manifest import input_digest
from rankproof.measures.registry import Measure
from rankproof.records import read_qrels, read_run
from rankproof.streaming import evaluate_file
from rankproof.tables import Qrels, Run
from rankproof.tie_counts import tie_statistics
from rankproof.unjudged.beside import added, bounded, split, with_judged
from rankproof.unjudged.bounds import View
from rankproof.version import __version__


@dataclass(frozen=True, slots=True)
class Digested:
    """An input, as the result tells of it and as it was found."""

    role: str
    file: str
    found: Path
    same: bool


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure that came out otherwise."""

    place: str  # runs.0.measures.nDCG@10.expected
    said: Any
    again: Any


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether a result is what its inputs give."""

    result: str
    kind: str
    made_by: str  # the version that wrote it
    inputs: tuple[Digested, ...]
    figures: int  # compared
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        """Every input has its digest, and every figure its bits."""
        return all(given.same for given in self.inputs) and not self.differences

    def words(self) -> list[str]:
        changed = [given.file for given in self.inputs if not given.same]
        lines = []
        if changed:
            lines.append(f"Not the file that was read: {', '.join(changed)}.")
        if self.differences:
            first = self.differences[0]
            lines.append(
                f"{len(self.differences)} of {self.figures} figures differ, the first at "
                f"{first.place}: {shorten(first.said)} then, {shorten(first.again)} now."
            )
        else:
            lines.append(f"All {self.figures} figures are the same to the last bit.")
        if self.made_by != __version__:
            lines.append(f"Made by version {self.made_by}; this is {__version__}.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof verify --format json` prints."""
        return {
            "result": self.result,
            "kind": self.kind,
            "same": self.same,
            "inputs": [
                {"role": given.role, "file": given.file, "same": given.same}
                for given in self.inputs
            ],
            "figures": self.figures,
            "differences": [
                {"place": d.place, "said": d.said, "again": d.again} for d in self.differences
            ],
        }


def verify(result: str | Path, inputs: Sequence[str | Path] = ()) -> Verification:
    """Make a result again from its inputs and compare.

    Inputs are those named, told by digest or by name, else those beside the result or in the
    current folder. Evaluations, comparisons and counts of ties can be made again.
    """
    data = _read(result)
    made = data["manifest"]
    kind = made.get("kind")
    if kind not in REMAKERS:
        raise InputError(
            f"a result of kind {shorten(kind)} cannot be made again here",
            place=str(result),
            remedy=f"verify one of {', '.join(REMAKERS)}",
        )
    try:
        digested = tuple(
            _find(role, said, Path(result), inputs) for role, said in made["inputs"].items()
        )
        files = {given.role: given.found for given in digested}
        again = json.loads(json.dumps(REMAKERS[kind](made, files)))
    except (LookupError, TypeError, AttributeError) as error:
        raise _misshapen(result, error) from None
    said = {key: value for key, value in data.items() if key != "manifest"}
    compared = list(_compared(said, again, ""))
    return Verification(
        result=str(result),
        kind=kind,
        made_by=str(made.get("rankproof")),
        inputs=digested,
        figures=len(compared),
        differences=tuple(found for found in compared if found.said != found.again),
    )


def _read(result: str | Path) -> dict[str, Any]:
    text = read_text(result)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _misshapen(result, error) from None
    if not isinstance(data, dict) or not isinstance(data.get("manifest"), dict):
        raise _misshapen(result, None)
    return data


def _misshapen(result: str | Path, error: Exception | None) -> InputError:
    said = next(iter(str(error).splitlines()), "") if error is not None else "no manifest"
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
    for path in named:
        if not path.exists():
            raise InputError("there is no such file", place=str(path), remedy="check the path")
    digests = [input_digest(path)["sha256"] for path in named]
    if said["sha256"] in digests:
        return Digested(role, name, named[digests.index(said["sha256"])], True)
    places = [
        *(path for path in named if path.name == name),
        *(folder / name for folder in (result.parent, Path()) if (folder / name).exists()),
    ]
    if not places:
        raise InputError(
            f"{role}: {shorten(name)} is not beside the result, nor in this folder",
            place=str(result),
            remedy=f"name it: rankproof verify {result.name} PATH/{name}",
        )
    same = [path for path in places if input_digest(path)["sha256"] == said["sha256"]]
    return Digested(role, name, (same or places)[0], bool(same))


def _compared(said: Any, again: Any, place: str) -> Iterator[Difference]:
    """Every leaf that the result holds; what a later version adds is not asked for."""
    if isinstance(said, dict) and isinstance(again, dict):
        for key, value in said.items():
            yield from _compared(value, again.get(key), f"{place}{'.' if place else ''}{key}")
    elif isinstance(said, list) and isinstance(again, list) and len(said) == len(again):
        for at, (one, other) in enumerate(zip(said, again, strict=True)):
            yield from _compared(one, other, f"{place}.{at}")
    else:
        yield Difference(place, said, again)


# ------------------------------------------------------------------------------ made again


def _policy(config: Mapping[str, Any]) -> Policy:
    return Policy(**{f.name: config[f.name] for f in fields(Policy) if f.name in config})


def _evaluations(
    made: Mapping[str, Any], files: Mapping[str, Path], measures: list[Measure]
) -> list[Evaluation]:
    config = made["config"]
    qrels = read_qrels(files["qrels"], format=config.get("qrels_format"))
    return [
        evaluate_file(
            *(path, qrels, measures, _policy(config)),
            name="qrels" if role == "run qrels" else role,
            format=config.get("input_format"),
        )
        for role, path in files.items()
        if role != "qrels"
    ]


def _evaluation(made: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, Any]:
    config = made["config"]
    measures = parse_all(config["measures"])
    found = _evaluations(made, files, with_judged(measures))
    asked, beside = split(found, measures)
    if config.get("holes"):
        runs, qrels = _tables(config, files)
        beside = bounded(beside, runs, qrels, measures, _policy(config))
    return {
        "runs": [
            evaluation.to_dict(per_query=True) | added(evaluation.to_dict(), shown)
            for evaluation, shown in zip(asked, beside, strict=True)
        ],
        "policy": _policy(config).to_dict(),
    }


def _tables(config: Mapping[str, Any], files: Mapping[str, Path]) -> tuple[list[Run], Qrels]:
    """The runs and the judgements whole, for bounds."""
    runs = [
        read_run(path, format=config.get("input_format"))
        for role, path in files.items()
        if role != "qrels"
    ]
    return runs, read_qrels(files["qrels"], format=config.get("qrels_format"))


def _comparison(made: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, Any]:
    config = made["config"]
    measures = parse_all(config["measures"])
    found, _ = split(_evaluations(made, files, with_judged(measures)), measures)
    seed = int(made["seed"])
    view = View(*_tables(config, files), _policy(config)) if config.get("holes") else None
    with_t = bool(config.get("t_test"))
    comparison = compare_evaluations(found, seed=seed, with_t=with_t, holes=view)
    return comparison.to_dict() | {"policy": found[0].policy.to_dict(), "seed": seed}


def _ties(made: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, Any]:
    config = made["config"]
    found = [
        tie_statistics(
            *(path, config["cutoffs"]),
            score_dtype=config["score_dtype"],
            name=role,
            format=config.get("input_format"),
        )
        for role, path in files.items()
    ]
    return {"runs": [s.to_dict() for s in found]}


REMAKERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Path]], dict[str, Any]]] = {
    "evaluation": _evaluation,
    "comparison": _comparison,
    "ties": _ties,
}
