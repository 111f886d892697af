"""Commands that are still on typer; each goes as its function in `commands/` comes."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}

_MODULE: dict[str, str] = {}  # where it is not the command's name


def loaded(verb: str) -> Any:
    """The command of a verb, its module imported."""
    module = import_module(f"rankproof.cli.{_MODULE.get(verb, verb)}")
    host = typer.Typer(add_completion=False)
    if hasattr(module, "app"):
        host.add_typer(module.app, name=verb)
    else:
        host.command(verb)(module.command)
    return tidy(typer.main.get_group(host).commands[verb])


def tidy(command: Any) -> Any:
    """Help that wraps at the terminal's width; a flag shows no type, a list that of its items."""
    command.help = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(command.help or ""))
    for param in [*command.params, command.get_help_option(typer.Context(command, **_HELP))]:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif _kind(param) is None:
            continue
        elif param.metavar is None:
            _name_type(param)
        elif param.nargs == -1:
            param.display_type_rich = partial(_type_of_items, param)
        if hasattr(param, "_runtime_param"):
            param._runtime_param = _Plain()
    for inner in getattr(command, "commands", {}).values():
        tidy(inner)
    return command


def _kind(param: Any) -> Any:
    """The type of an argument; None where typer has it elsewhere, and then shows it its own way."""
    return getattr(getattr(param, "type_descriptor", None), "annotation", None)


def _type_of_items(param: Any, ctx: Any) -> str:
    return f"<{get_args(_kind(param))[0].__name__.lower()}>"


def _name_type(param: Any) -> None:
    """A list shows the type of its items, and a long choice its words where lines can break."""
    kind = _kind(param)
    if getattr(param, "multiple", False):
        param.metavar = _type_of_items(param, None)
    enumerated = isinstance(kind, type) and issubclass(kind, Enum)
    words = [each.value for each in kind] if enumerated else get_args(kind)
    if len("|".join(map(str, words))) > 20 and all(isinstance(word, str) for word in words):
        param.metavar = "<choice>"
        param.help = f"{param.help} One of {', '.join(words)}."


_FILES = ("FILE", "RUN")  # what the value of an option that is a file is called


class _Plain:
    """Takes an argument's word where nothing about it is in question; typer has the others.

    For each argument typer has a validator of pydantic, whose loading takes as long as numpy's.
    """

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind = _kind(param)
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if kind is Path and param.metavar in _FILES:
            from rankproof.foundation.files import (
                check_name,  # which names polars: `--help` needs none
            )

            check_name(value)
        if several and not isinstance(value, str) and get_args(kind):
            one = get_args(kind)[0]
            made = [_plain(word, one) for word in value]
        else:
            made = [_plain(value, kind)]
        if any(word is None for word in made):
            param._runtime_param = None
            try:
                return param.get_runtime_param().coerce(value, param=param, ctx=ctx)
            except typer.BadParameter as error:  # in pydantic's words, which leave the value out
                if several and len(value) > 1:
                    for word in value:  # the one that is wrong says so
                        self.coerce([word], param, ctx)
                said = error.message.partition(", unable to parse")[0]
                given = ", ".join(map(repr, value if several else [value]))
                error.message = re.sub("^Input(?= should)", lambda _: given, said)
                raise
        return made if several else made[0]


def _plain(value: Any, kind: Any) -> Any:
    """The value as its kind; None where that is not plain to see."""
    if type(value) is kind:
        return value
    if type(value) is str and get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if type(value) is not str or not isinstance(kind, type):
        return None
    if issubclass(kind, Enum):
        return next((member for member in kind if member.value == value), None)
    return Path(value) if kind is Path else None


def run(arguments: list[str]) -> Any:
    """Run the command that the first word names; the exit code."""
    command = loaded(arguments[0])
    command.context_settings = {**command.context_settings, **_HELP}
    return command.main(arguments[1:], prog_name=f"rankproof {arguments[0]}", standalone_mode=False)
