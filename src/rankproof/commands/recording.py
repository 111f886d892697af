"""How a result was made, so that `verify` can call the same command again.

A manifest names the command, its arguments that are not files, and its files by role with their
digests. `verify` looks for the files by digest, calls the command with the same arguments and
compares `to_dict()`; no command needs code of its own for that.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rankproof.commands.registry import Argument, Command, find_command

ROW = "::"  # between a sweep's folder and one of its configurations

# True while a command is called whose result is stored, as by --out.
STORES_RESULT: ContextVar[bool] = ContextVar("stores_result", default=False)


def split_row(path: str) -> tuple[str, str]:
    """`folder::row` → the folder and "::row"; any other path → itself and ""."""
    folder, mark, row = path.partition(ROW)
    is_row = bool(row) and Path(folder).is_dir() and not Path(path).exists()
    return (folder, mark + row) if is_row else (path, "")


def source_arguments(command: Command) -> list[Argument]:
    """The command's arguments that are files to read."""
    return [argument for argument in command.arguments() if argument.source is not None]


def name_files(paths: list[str]) -> dict[str, str]:
    """Several files as {name: path}, with names that differ."""
    from rankproof.data.sources import names_of

    return dict(zip(names_of(paths), paths, strict=True))


def name_given_files(texts: list[str]) -> dict[str, str]:
    """Several files as {name: path}: NAME=path, else stems, or whole paths where stems repeat."""
    from rankproof.foundation.errors import InputError
    from rankproof.foundation.printable import printable_path

    parts = [_split_name(text) for text in texts]
    stems = [_stem(path) for name, path in parts if name is None]
    are_distinct = len(set(stems)) == len(stems)
    named: dict[str, str] = {}
    for given_name, path in parts:
        file_name = printable_path(_stem(path) if are_distinct else path)
        name = file_name if given_name is None else given_name
        if name in named:
            raise InputError(f"two files are named {name!r}", remedy="write NAME=path")
        named[name] = path
    return named


def _stem(path: str) -> str:
    """The name of a file without its ending; of a folder or a model, all of it."""
    place = Path(path)
    return place.stem if place.suffix else place.name


def _split_name(text: str) -> tuple[str | None, str]:
    """Split `NAME=path` into both; the name is None if the whole text is a path that exists."""
    name, equals, path = text.partition("=")
    if equals and name and "/" not in name and not Path(text).exists():
        return name, path
    return None, text


def input_roles(
    command: Command, arguments: Mapping[str, Any], *, digested: bool = False
) -> dict[str, str]:
    """Every file that the arguments name, by its role; with `digested` only those in a manifest."""
    roles: dict[str, str] = {}
    for argument in source_arguments(command):
        value = arguments.get(argument.name)
        assert argument.source is not None
        if value is None or (digested and not argument.source.digested):
            continue
        if not argument.source.is_named:
            paths = enumerate(map(os.fspath, value))
            roles |= {f"{argument.source.role} {number}": path for number, path in paths}
        elif isinstance(value, Mapping):
            roles |= {_role(argument, name): os.fspath(path) for name, path in value.items()}
        else:
            roles[_role(argument)] = split_row(os.fspath(value))[0]
    return roles


def _role(argument: Argument, name: str | None = None) -> str:
    """The role of a file: a run's is its name, that of one of several files begins with theirs."""
    from rankproof.foundation.manifest import role_of

    assert argument.source is not None
    role = argument.source.role
    if name is None:
        return role or role_of(argument.name)
    return f"{role} {name}" if role else role_of(name)


def make_manifest(
    command: Command, arguments: Mapping[str, Any], kind: str, record: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest of a result that `command` returned for these arguments.

    `record` is what a repeated call needs besides the arguments, such as the replies of a judge.
    """
    from rankproof.foundation.manifest import manifest

    files: dict[str, Any] = {}
    for argument in source_arguments(command):
        value = arguments.get(argument.name)
        assert argument.source is not None
        if value is None or not argument.source.digested:
            continue
        if isinstance(value, Mapping):
            files[argument.name] = {name: _role(argument, name) for name in value}
        else:
            files[argument.name] = _role(argument) + split_row(os.fspath(value))[1]
    settings = {a.name: a for a in command.arguments() if a.source is None}
    config = {
        name: value
        for name, value in arguments.items()
        if name in settings and settings[name].option.recorded
    }
    seed = arguments.get("seed", settings["seed"].default if "seed" in settings else None)
    call: dict[str, Any] = {"command": command.name, "files": files}
    if record:
        call["record"] = dict(record)
    inputs = input_roles(command, arguments, digested=True)
    return manifest(kind, config=config, inputs=inputs, seed=seed) | {"call": call}


def to_stored(command: Command, arguments: Mapping[str, Any], result: Any) -> dict[str, Any]:
    """What `--out` writes of a result: manifest, values, and the presentation for reports."""
    from rankproof.presentation.result import KEY, stored

    manifest = make_manifest(command, arguments, result.kind, getattr(result, "record", {}))
    values = getattr(result, "to_stored_dict", result.to_dict)()
    return {"manifest": manifest, **values, KEY: stored(result)}


@contextmanager
def storing() -> Iterator[None]:
    """Have commands compute what only a stored result holds."""
    token = STORES_RESULT.set(True)
    try:
        yield
    finally:
        STORES_RESULT.reset(token)


def call_and_store(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Call a command by name, as the command line does; what `--out` would write."""
    command = find_command(name)
    assert command is not None
    from rankproof.presentation.result import INPUTS, NO_INPUTS

    INPUTS.set(NO_INPUTS)  # those of the command line are another command's
    with storing():
        return to_stored(command, arguments, command.function(**arguments))


def repeat_call(stored: Mapping[str, Any], paths: Mapping[str, Path]) -> dict[str, Any] | str:
    """Call the command of a stored result again, and return what it gives as a dict.

    `paths` are the inputs by role. Where the call cannot be repeated, the reason is returned.
    """
    from rankproof.presentation.result import KEY

    manifest = stored["manifest"]
    call = manifest["call"]
    command = find_command(call["command"])
    if command is None:
        return f"this version has no command {call['command']}"
    if isinstance(command.replay, str):
        return command.replay
    with tempfile.TemporaryDirectory(prefix="rankproof-") as folder:
        defaults = {a.name: a.default for a in command.arguments() if not a.is_required}
        arguments: dict[str, Any] = {**defaults, **(manifest["config"] or {})}
        for name, roles in call["files"].items():
            if isinstance(roles, Mapping):
                arguments[name] = {run: str(paths[role]) for run, role in roles.items()}
            else:
                role, row = _split_role(roles, paths)
                recorded_name = manifest["inputs"][role]["file"]
                arguments[name] = _under_name(paths[role], recorded_name, Path(folder)) + row
        if callable(command.replay):
            replayed = command.replay(arguments, stored)
            if isinstance(replayed, str):
                return replayed
            arguments = replayed
        is_stored = KEY in stored  # written by --out, which holds more than --format json prints
        with storing() if is_stored else nullcontext():
            result = command.function(**arguments)
        if manifest["kind"] != result.kind:
            raise LookupError(f"{command.name} makes no {manifest['kind']}")
        again: dict[str, Any] = (
            getattr(result, "to_stored_dict", result.to_dict)() if is_stored else result.to_dict()
        )
        return again


def _split_role(text: str, paths: Mapping[str, Path]) -> tuple[str, str]:
    """Split a recorded file into its role and the "::row" that may follow it."""
    if text in paths:
        return text, ""
    role, mark, row = text.partition(ROW)
    return role, mark + row


def _under_name(path: Path, name: str, folder: Path) -> str:
    """The path of a file under the name that it had, by a link in `folder` if necessary.

    Results name runs after their files, so a renamed file would give another result.
    """
    name = "-" if name == "<stdin>" else Path(name).name
    if path.name == name:
        return str(path)
    link = Path(tempfile.mkdtemp(dir=folder)) / name
    link.symlink_to(path.resolve())
    return str(link)
