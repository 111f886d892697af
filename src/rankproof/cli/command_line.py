"""The command line, generated from the registered commands: click parses, the help is ours.

Only the module of the chosen command is imported. `--help` imports all of them, and neither numpy,
polars nor rich, so that it answers within a few hundredths of a second.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from rankproof.commands.registry import (
    Argument,
    Command,
    Option,
    all_commands,
    command_modules,
    load_commands,
)
from rankproof.foundation.errors import InputError
from rankproof.foundation.interrupts import INTERRUPTED
from rankproof.foundation.version import __version__

FORMATS = ("table", "json", "csv", "md", "latex", "html")
_HELP_NAMES = {"help_option_names": ["-h", "--help"]}
_SHORT_CHOICES = 14  # letters of choices that fit beside an option's name
_WIDEST_NAME = 26


def _delivery(
    name: str, kind: Any, default: Any, help_text: str, option: Option, *, is_list: bool = False
) -> Argument:
    return Argument(name, kind, default, help_text, "Output", is_list, False, None, option)


DELIVERY = (
    _delivery("format", str, "table", "How to print the result.", Option()),
    _delivery(
        "out",
        Path,
        None,
        "Also write the result as JSON, with how it was made, for `report` and `verify`.",
        Option(metavar="FILE"),
    ),
    _delivery(
        "wide", bool, False, "Print every column whole, however narrow the terminal.", Option()
    ),
    _delivery("explain", bool, False, "Say what each value is and how it was made.", Option()),
    _delivery(
        "columns",
        str,
        None,
        "Print these columns only, such as run,nDCG@10; --wide shows their names.",
        Option(metavar="COLUMN,..."),
        is_list=True,
    ),
    _delivery(
        "caption", bool, False, "Add a sentence for a paper: measures, queries, policy.", Option()
    ),
)


def delivery_arguments(command: Command) -> list[Argument]:
    """Options that print and write the result, unless the command has its own of that name."""
    if command.prints:
        return []
    command_names = {argument.name for argument in command.arguments()}
    outputs = [
        _delivery(output.name, Path, None, output.help, Option(metavar=output.metavar))
        for output in command.outputs
    ]
    return [argument for argument in (*DELIVERY, *outputs) if argument.name not in command_names]


def split_list(text: str) -> list[str]:
    """Split "A,B(c,d),E" at the commas outside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


class _ListType(click.ParamType):  # type: ignore[type-arg]
    """The items of one word: A,B(c,d),E."""

    name = "list"

    def __init__(self, item_type: click.ParamType | None, argument: Argument):  # type: ignore[type-arg]
        self.item_type, self.argument = item_type, argument

    def convert(self, value: Any, param: Any, ctx: Any) -> list[Any]:
        parts = split_list(value)
        if not parts:
            self.fail(f"{value!r} names nothing.", param, ctx)
        convert = self.item_type.convert if self.item_type is not None else lambda part, *_: part
        return [convert(part, param, ctx) for part in parts]

    def shell_complete(self, ctx: Any, param: Any, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        words = self.argument.option.completions
        return [
            CompletionItem(before + comma + word)
            for word in (words() if words else ())
            if word.startswith(last)
        ]


class _OutputPath(click.Path):
    """A file to write: a name that ends in a slash is a folder's."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        from rankproof.foundation.files import check_name  # imports polars: --help needs none

        check_name(value)
        return Path(value)


def _scalar_type(argument: Argument) -> click.ParamType:  # type: ignore[type-arg]
    """The type of click that checks one value of an argument."""
    if argument.panel == "Output" and argument.name == "format":
        return click.Choice(FORMATS)
    if argument.choices:
        return click.Choice(argument.choices)
    low = argument.option.minimum
    if argument.kind is int:
        return click.INT if low is None else click.IntRange(min=int(low))
    if argument.kind is float:
        return click.FLOAT if low is None else click.FloatRange(min=low)
    if argument.kind is Path:
        is_file = argument.option.metavar in ("FILE", "RUN") or argument.panel == "Output"
        return _OutputPath() if is_file else click.Path(path_type=Path)
    return click.Path() if argument.source is not None else click.STRING


def _join_lists(ctx: Any, param: Any, values: Sequence[list[Any]]) -> list[Any]:
    return [item for value in values for item in value]


def click_parameter(argument: Argument, may_be_absent: bool = False) -> click.Parameter:
    """The argument or option that click parses; whatever is not given stays None or empty."""
    kind = _scalar_type(argument)
    if argument.is_positional:
        return click.Argument(
            [argument.name],
            required=argument.is_required and not may_be_absent,
            nargs=-1 if argument.is_list else 1,
            type=kind,
            metavar=argument.source.metavar if argument.source else argument.option.metavar,
        )
    source_names = argument.source.names if argument.source else ()
    names = [*(argument.option.names or source_names or (argument.flag,)), argument.name]
    if argument.kind is bool:
        if argument.default is True:
            names[0] = f"{argument.flag}/--no-{argument.flag[2:]}"
        return click.Option(names, is_flag=True, default=None, help=argument.help)
    if argument.is_list:
        if argument.source is not None or not argument.option.is_split:
            return click.Option(
                names,
                type=kind,
                multiple=True,
                required=argument.is_required,
                help=argument.help,
            )
        item_type = None if isinstance(kind, (click.types.StringParamType, click.Path)) else kind
        return click.Option(
            names,
            multiple=True,
            type=_ListType(item_type, argument),
            callback=_join_lists,
            required=argument.is_required,
            help=argument.help,
        )
    return click.Option(names, type=kind, required=argument.is_required, help=argument.help)


class GeneratedCommand(click.Command):
    """The click command of a registered command."""

    def __init__(self, command: Command):
        self.command = command
        self.arguments = command.arguments()
        self.shown = [*(a for a in self.arguments if not a.option.hidden)]
        self.shown += delivery_arguments(command)
        self.instead = {
            a.name: a.source.instead for a in self.arguments if a.source and a.source.instead
        }
        parameters = [click_parameter(a, may_be_absent=bool(self.instead)) for a in self.shown]
        super().__init__(
            command.name.split()[-1],
            params=[*parameters, *(click.Option([flag]) for flag in self.instead.values())],
            callback=self.call,
            help=command.function.__doc__,
            context_settings=_HELP_NAMES,
        )

    def call(self, **values: Any) -> int:
        """Run the command with the parsed values, and return the exit code."""
        from rankproof.cli.delivery import run_command

        for name, flag in self.instead.items():
            self._shift_positional(values, name, values.pop(flag[2:].replace("-", "_")))
        delivery = {a.name: values.pop(a.name) for a in delivery_arguments(self.command)}
        arguments = {n: v for n, v in values.items() if v is not None and v not in ([], ())}
        try:
            return run_command(self.command, arguments, delivery)
        except KeyboardInterrupt:  # click would print an empty line and raise its own error
            return INTERRUPTED

    def _shift_positional(self, values: dict[str, Any], name: str, path: str | None) -> None:
        """If an option gives the first positional argument, move the other ones up by one.

        `rankproof eval --judge x run.trec`: what was parsed as judgments is the first run.
        """
        positional = [a for a in self.arguments if a.is_positional]
        if path is not None:
            words = [path]
            for argument in positional:
                value = values[argument.name]
                words += value if argument.is_list else [] if value is None else [value]
            for argument in positional:
                values[argument.name] = words if argument.is_list else next(iter(words), None)
                words = [] if argument.is_list else words[1:]
            if words:
                raise InputError(f"{words[0]} is one file too many", place=self.command.name)
            if any(argument.name == "judge" for argument in self.arguments):
                values["judge"] = True
        if any(a.is_required and not values[a.name] for a in positional):
            usage = ", then ".join(a.source.metavar for a in positional if a.source)
            raise InputError("no run is named", place=self.command.name, remedy=f"give {usage}")

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print usage, what the command does, examples, details, and its options by panel."""
        width = shutil.get_terminal_size().columns
        positional = [_heading(a) for a in self.shown if a.is_positional]
        print(f"Usage: {ctx.command_path} [OPTIONS] {' '.join(positional)}\n")
        (first, *details), examples = _docstring_parts(self.help or "")
        print("\n".join([*_paragraph(first, width), ""]))
        if examples:
            commands = (f"  {line.removeprefix('$ ')}" for line in examples)
            print("\n".join(["Examples:", *commands, ""]))
        for paragraph in details:
            print("\n".join([*_paragraph(paragraph, width), ""]))
        panels: dict[str, list[tuple[str, str]]] = {}
        for argument in self.shown:
            panels.setdefault(argument.panel, []).append((_heading(argument), _meaning(argument)))
        panels.setdefault("Output", []).append(("-h, --help", "Show this message and exit."))
        for title, rows in panels.items():
            print("\n".join(panel_lines(title, rows, width)))


def _docstring_parts(text: str) -> tuple[list[str], list[str]]:
    """Split a docstring into paragraphs and the lines that begin with `$`; doctests are dropped."""
    blocks = textwrap.dedent(" " * 4 + text).strip().split("\n\n")
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    examples = [line for line in lines if line.startswith("$ ")]
    prose = [b for b in blocks if not b.lstrip().startswith(("$ ", ">>> ", "Python:"))]
    return [" ".join(block.split()) for block in prose], examples


def _heading(argument: Argument) -> str:
    """An option's names and the shape of its value."""
    metavar = argument.source.metavar if argument.source else argument.option.metavar
    if argument.is_positional:
        return metavar
    names = argument.option.names or (argument.flag,)
    if argument.kind is bool:
        return ", ".join(names)
    words = "|".join(argument.choices)
    if not metavar:
        metavar = {int: "N", float: "X"}.get(argument.kind, "TEXT")
        if words:
            metavar = words if len(words) < _SHORT_CHOICES else "CHOICE"
    return f"{', '.join(names)} {metavar}"


def _meaning(argument: Argument) -> str:
    """An option's help, its choices where they are long, and its default."""
    words = FORMATS if argument.name == "format" else argument.choices
    text = argument.help
    if words and len("|".join(words)) >= _SHORT_CHOICES:
        text += f" One of {', '.join(words)}."
    default = argument.option.default_text
    value = argument.default
    if not default and not argument.is_required and value not in (None, ()) and value is not False:
        default = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return f"{text} [{default}]" if default else text


def _paragraph(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(20, width))


def panel_lines(title: str, rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Return a heading, then names and their meanings in two columns, and an empty line."""
    name_width = min(max(len(name) for name, _ in rows), _WIDEST_NAME) + 2
    text_width = max(16, width - name_width - 2)
    lines = []
    for name, text in rows:
        if len(name) > name_width - 2:  # on a line of its own
            lines.append(f"  {name}")
            name = ""
        for part in textwrap.wrap(text, text_width, break_on_hyphens=False) or [""]:
            lines.append(f"  {name:<{name_width}}{part}".rstrip())
            name = ""
    return [f"{title}:", *lines, ""]


class CommandGroup(click.Group):
    """The commands by name; "golden build" is `build` in the group `golden`."""

    def __init__(self, name: str, prefix: str = "", **settings: Any):
        super().__init__(name, context_settings=_HELP_NAMES, no_args_is_help=True, **settings)
        self.prefix = prefix

    def registered(self) -> list[Command]:
        """The commands of the group; their modules are imported."""
        if self.prefix:
            return load_commands(self.prefix.strip())
        return all_commands()

    def list_commands(self, ctx: Any) -> list[str]:
        if not self.prefix:
            return command_modules()
        return [command.name.removeprefix(self.prefix) for command in self.registered()]

    def get_command(self, ctx: Any, name: str) -> click.Command | None:
        full_name = self.prefix + name
        commands = {c.name: c for c in load_commands(full_name.partition(" ")[0])}
        if full_name in commands:
            return GeneratedCommand(commands[full_name])
        if commands and not self.prefix:
            return CommandGroup(name, f"{name} ")
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            close = get_close_matches(args[0], known, 1)
            suggestion = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{suggestion}")
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: Any) -> str:
        """What `--help` prints."""
        width = shutil.get_terminal_size().columns
        lines = ["", f" Usage: {ctx.command_path} [OPTIONS] COMMAND [ARGS]...", ""]
        if self.help:
            lines += [*_paragraph(self.help, width), ""]
        panels: dict[str, list[tuple[str, str]]] = {}
        for command in self.registered():
            name = command.name.removeprefix(self.prefix)
            panels.setdefault(command.group, []).append((name, command.summary))
        for title, rows in panels.items():
            lines += panel_lines(title, rows, width)
        return "\n".join([*lines, "", *_paragraph(self.epilog or "", width), ""])


def _print_version(ctx: Any, param: Any, is_requested: bool) -> None:
    if is_requested:
        print(__version__)
        ctx.exit()


def _print_completion(app: click.Command, ctx: Any, param: Any, shell: str | None) -> None:
    if shell is not None:
        completion = get_completion_class(shell)
        assert completion is not None
        print(completion(app, {}, "rankproof", "_RANKPROOF_COMPLETE").source())
        ctx.exit()


def build_command_line() -> CommandGroup:
    """The whole command line; no command's module is imported yet."""
    app = CommandGroup(
        "rankproof",
        help="Retrieval evaluation you can trust: exact under ties.",
        epilog="Exit codes: 0 done, 1 a check failed, 2 bad input, 3 undecided.",
    )
    version = click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_print_version
    )
    completion = click.Option(
        ["--show-completion"],
        type=click.Choice(["bash", "zsh", "fish"]),
        expose_value=False,
        is_eager=True,
        callback=partial(_print_completion, app),
    )
    app.params += [version, completion]
    return app
