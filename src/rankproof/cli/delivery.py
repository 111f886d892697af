"""What happens to every command alike: check files, call the function, deliver its result.

`--format`, `--out`, `--wide` and `--explain` belong here and to no command. Standard output holds
the result alone; warnings and progress go to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankproof.cli import terminal
from rankproof.commands.inputs import resolve_row
from rankproof.commands.recording import (
    STORES_RESULT,
    input_roles,
    make_manifest,
    name_files,
    name_given_files,
    source_arguments,
    to_stored,
)
from rankproof.commands.registry import Command, Output
from rankproof.foundation.errors import InputError, first_few
from rankproof.foundation.files import STDOUT, check_ending, check_output, write_atomically
from rankproof.foundation.lines import pending_paths
from rankproof.foundation.phrasing import typed
from rankproof.foundation.printable import printable_path
from rankproof.foundation.redaction import remove_secrets
from rankproof.presentation.result import INPUTS, Presentation
from rankproof.presentation.tables import Table


@dataclass(frozen=True)
class _Delivery:
    """Where and how a result is printed and written."""

    format: str
    out: Path | None
    wide: bool
    explain: bool
    columns: tuple[str, ...]
    caption: bool
    files: Mapping[Output, Path]

    @classmethod
    def of(cls, command: Command, values: Mapping[str, Any]) -> _Delivery:
        return cls(
            format=values.get("format") or "table",
            out=values.get("out"),
            wide=bool(values.get("wide")),
            explain=bool(values.get("explain")),
            columns=tuple(values.get("columns") or ()),
            caption=bool(values.get("caption")),
            files={o: values[o.name] for o in command.outputs if values.get(o.name) is not None},
        )

    @property
    def takes_stdout(self) -> bool:
        """True if standard output is that of a file, and the result is not printed."""
        return any(str(path) == STDOUT for path in (self.out, *self.files.values()))


def run_command(command: Command, arguments: dict[str, Any], values: Mapping[str, Any]) -> int:
    """Call a command, print and write its result, and return the exit code."""
    delivery = _Delivery.of(command, values)
    _name_several_files(command, arguments)
    roles = input_roles(command, arguments)
    check_stdin(roles.values())
    check_outputs(roles.values(), [delivery.out, *delivery.files.values()])
    for output, path in delivery.files.items():
        if output.endings:
            check_ending(path, output.endings, output.name.replace("_", "-"))
    if delivery.out is not None or delivery.format == "json":
        from rankproof.foundation.manifest import digest_ahead

        digest_ahead(roles.values())  # in a thread, while the command runs
    if pending_paths():  # runs that threads began to read while Python imported modules
        from rankproof.data.trec import group_ahead

        group_ahead()
        if delivery.format == "table":
            importlib.import_module("rich.console")
            importlib.import_module("rich.table")
    INPUTS.set(typed_inputs(command, arguments))
    STORES_RESULT.set(delivery.out is not None)
    result = command.function(**arguments)
    if command.prints:
        return int(result or 0)
    _deliver(command, arguments, result, delivery, roles)
    for line in dict.fromkeys(getattr(result, "warnings", ())):
        terminal.warn(line)
    return int(result.exit_code)


def typed_inputs(command: Command, arguments: Mapping[str, Any]) -> str:
    """Return judgments, runs and measures as they are typed in a command that comes next."""
    words = []
    for argument in source_arguments(command):
        value = arguments.get(argument.name)
        if not argument.is_positional or value is None:
            continue
        paths = value.values() if isinstance(value, Mapping) else [value]
        words += [typed(printable_path(str(path))) for path in paths]
    measures = arguments.get("measures")
    if isinstance(measures, list | tuple):
        words += ["-m", typed(",".join(map(str, measures)))]
    return " ".join(words)


def _name_several_files(command: Command, arguments: dict[str, Any]) -> None:
    """Turn lists of files into {name: file}, globs and folders expanded."""
    for argument in source_arguments(command):
        paths = arguments.get(argument.name)
        assert argument.source is not None
        if argument.is_list and paths and argument.source.is_named:
            expand = argument.source.expand
            paths = [str(path) for path in paths]
            if argument.source.takes_names:
                named = name_given_files(paths)
                paths = list(named.values())
                paths = expand(paths, arguments) if expand else paths
                arguments[argument.name] = dict(zip(named, paths, strict=True))
                continue
            paths = expand(paths, arguments) if expand else [resolve_row(path) for path in paths]
            arguments[argument.name] = name_files(paths)
        elif paths and argument.source.expand:  # one file, or a pattern that names several
            files = argument.source.expand([str(paths)], arguments)
            if len(files) > 1:
                arguments[argument.name] = name_files(files)


def check_stdin(paths: Iterable[str]) -> None:
    """Refuse to read standard input twice."""
    if list(paths).count("-") > 1:
        raise InputError(
            "standard input (-) is named twice", remedy="it can be read once: name a file"
        )


def check_outputs(inputs: Iterable[str], outputs: Iterable[Path | None]) -> None:
    """Refuse, before any work, files that cannot be written, are inputs, or are named twice."""
    sources, targets = list(inputs), []
    for path in outputs:
        if path is None:
            continue
        target = check_output(path, sources)
        if target in targets and str(path) == STDOUT:
            raise InputError("standard output (-) is named twice", remedy="name a file")
        if target in targets:
            raise InputError("it is named twice", place=str(path), remedy="name two files")
        targets.append(target)


def _deliver(
    command: Command,
    arguments: Mapping[str, Any],
    result: Any,
    delivery: _Delivery,
    roles: Mapping[str, str],
) -> None:
    """Write the command's files and the JSON of the result, then print it."""
    inputs = list(roles.values())
    for output, path in delivery.files.items():
        method = getattr(result, output.method)
        ending = check_ending(path, output.endings, output.name) if output.endings else None
        content = method() if ending is None else method(ending)
        _write(path, content, inputs)
    if delivery.out is not None:
        unicode = None if str(delivery.out) == STDOUT else True
        text = to_json(to_stored(command, arguments, result), unicode)
        _write(delivery.out, f"{text}\n", inputs)
    if hasattr(result, "markdown"):
        _append_job_summary(result.markdown(), inputs)
    output_files = [arguments.get(a.name) for a in command.arguments() if a.kind is Path]
    if not delivery.takes_stdout and STDOUT not in map(str, output_files):
        _print_result(command, arguments, result, delivery)


def _print_result(
    command: Command, arguments: Mapping[str, Any], result: Any, delivery: _Delivery
) -> None:
    """Print a result in the requested format.

    CSV and --wide have every column. A result may have its own Markdown.
    """
    form = delivery.format
    if form == "json":
        manifest = make_manifest(command, arguments, result.kind, getattr(result, "record", {}))
        print(to_json({"manifest": manifest, **result.to_dict()}))
    elif form == "md" and hasattr(result, "markdown"):
        print(result.markdown())
    else:
        terminal.wide = delivery.wide
        is_full = form == "csv" or delivery.wide
        tables = result.full_tables() if is_full else result.tables()
        summary = result.summary()
        if delivery.columns:
            tables = [_chosen_columns(result, delivery.columns)]
        if delivery.caption and hasattr(result, "caption"):
            summary = replace(summary, caption=result.caption())
        presentation = Presentation.assemble(result.kind, summary, tables, result.charts())
        terminal.print_presentation(presentation, form, explain=delivery.explain)


def _chosen_columns(result: Any, names: Sequence[str]) -> Table:
    """Return the table that has these columns: the one that is shown, else the one with all."""
    tables = [*result.tables(), *result.full_tables()]
    for table in tables:
        chosen: Table | None = table.named(names)
        if chosen is not None:
            return chosen
    known = dict.fromkeys(column.name for table in tables for column in table.columns)
    missing = next((name for name in names if name not in known), names[0])
    raise InputError(
        f"no column {missing!r}",
        place="columns",
        remedy=f"name some of one table: {first_few(list(known), 12)}",
    )


def _append_job_summary(text: str, inputs: Iterable[str]) -> None:
    """Append Markdown to the summary of a GitHub job; do nothing outside of one."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with check_output(path, inputs).open("a", encoding="utf-8") as file:
            file.write(f"{text}\n")
    except (OSError, InputError) as error:
        problem = getattr(error, "strerror", None) or getattr(error, "problem", error)
        terminal.warn(f"{path}: no summary was written ({problem})")


def _write(path: Path, content: str | bytes, inputs: Iterable[str]) -> None:
    """Write a file atomically; what UTF-8 cannot hold is escaped (`\\udce9`), as JSON writes it."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    write_atomically(path, lambda file: file.write_bytes(data), inputs=inputs)


def to_json(data: Any, unicode: bool | None = None) -> str:
    """Format as JSON without secrets; in ASCII if standard output is not Unicode."""
    if unicode is None:
        unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    return json.dumps(remove_secrets(data), indent=2, ensure_ascii=not unicode, allow_nan=False)
