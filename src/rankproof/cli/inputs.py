"""Files named on the command line → tables, with names to tell them apart and a bar if slow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankproof.cli.options import InputFormat
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rankproof.data.tables import Qrels, Run, Scale
    from rankproof.evaluation import Policy
    from rankproof.measures import Measure


def check_stdin(paths: list[str]) -> None:
    if paths.count("-") > 1:
        raise InputError(
            "standard input (-) is named twice", remedy="it can be read once: name a file"
        )


def whole_numbers(text: str, option: str, example: str, least: int = 1) -> list[int]:
    """N,N,… as it was written to an option."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdigit()) or len(part) > 18 or int(part) < least:
            raise InputError(
                f"{option} {shorten(text)}: {shorten(part)} is not a whole number from {least}",
                remedy=f"write {option} {example}",
            )
    return [int(part) for part in parts]


def named(paths: list[str]) -> dict[str, str]:
    from rankproof.data.sources import names_of

    return dict(zip(names_of(paths), paths, strict=True))


def read_as(
    paths: list[str], form: InputFormat | None, memory: str | None, spill_dir: Path | None
) -> dict[str, Any]:
    """How `evaluate_named` is to read these runs, with a bar."""
    bar = partial(progress, _reading(paths), size_of(paths))
    return {"format": form, "memory": memory, "spill_dir": spill_dir, "reading": bar}


def _reading(paths: list[str]) -> str:
    return f"reading {len(paths)} runs" if len(paths) > 1 else "reading"


def roles(qrels: str, runs: list[str]) -> dict[str, str]:
    """The files of an evaluation by what they are to it: judgements, and runs by name."""
    from rankproof.foundation.manifest import role_of

    return {"qrels": qrels} | {role_of(name): run for name, run in named(runs).items()}


def asked(
    measures: list[Measure],
    policy: Policy,
    runs_format: InputFormat | None = None,
    qrels_format: InputFormat | None = None,
) -> dict[str, Any]:
    """The settings of an evaluation, as its manifest holds them."""
    formats = {"input_format": runs_format, "qrels_format": qrels_format}
    return {"measures": [str(m) for m in measures]} | policy.to_dict() | formats


def load_qrels(path: str, form: InputFormat | None, memory: str | None = None) -> Qrels:
    """Judgements, which are held whole: where `memory` is named they may take no more."""
    from rankproof.data import read_qrels
    from rankproof.data.beir import chosen_among, qrels_file
    from rankproof.data.sources import Source
    from rankproof.foundation.memory import parse_memory

    with progress("reading judgements", size_of([path])):
        file = qrels_file(path)
        source = Source(file, limit=None if memory is None else parse_memory(memory))
        found = read_qrels(source, format=form)
        chosen = chosen_among(path, file)
        return replace(found, notes=(*chosen, *found.notes)) if chosen else found


def on_scale(measures: list[Measure], named: object, scale: Scale | None) -> list[Measure]:
    """Measures that nobody named are ours to choose: as the judgements mean their grades."""
    return measures if named else [m.on_scale(scale) for m in measures]


def load_runs(paths: list[str], form: InputFormat | None) -> Iterator[Run]:
    """The runs one after the other, so that only one need be held."""
    from rankproof.data import read_run

    with progress(_reading(paths), size_of(paths)):
        for name, path in named(paths).items():
            yield read_run(path, format=form, name=name)


def size_of(paths: list[str]) -> int:
    """Bytes of the files, for a bar of progress; those of a folder are its shards."""
    from rankproof.data.sources import is_file, is_folder

    named = [Path(path) for path in paths if path != "-"]
    files = [file for path in named for file in (path.rglob("*") if is_folder(path) else [path])]
    return sum(file.stat().st_size for file in files if is_file(file))
