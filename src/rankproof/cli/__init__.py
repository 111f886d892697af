"""The command line: one file per verb, imported when it is called."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from rankproof.cli.door import at_home, door, shown_arguments
from rankproof.cli.later import import_later
from rankproof.cli.progress import progress as draw_progress
from rankproof.foundation import manifest as made
from rankproof.foundation.interrupts import INTERRUPTED, two_stage
from rankproof.foundation.progress import show_progress
from rankproof.foundation.version import __version__

_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}

# What `rankproof --help` says of each, so that it need load none: the first line of the verb's own.
VERBS = {
    "eval": "Evaluate runs: the expectation over all orders of ties, the range, and what one order "
    "says.",
    "trec_eval": "Print what trec_eval 9 prints, byte for byte, so that a script changes one word.",
    "ties": "Count ties: distinct scores and group sizes at cutoffs, and how often a tie crosses "
    "them.",
    "compare": "Compare runs pairwise: a − b, its p-value, and what every tie-break would make of "
    "it.",
    "holes": "Say what unjudged documents could change: lowest and highest over every completion.",
    "gate": "Let a candidate through if it is no worse than the baseline by more than a margin.",
    "leaderboard": "Rank runs: expected values, ranks with their intervals, and who is told apart "
    "from whom.",
    "audit": "Audit a precision: the same vectors or logits in every number format, under all tie "
    "orders.",
    "search": "Search a corpus with any retriever that a sweep could measure.",
    "sweep": "Run every configuration of a grid on one corpus.",
    "ceilings": "Say what the candidates allow: actual, PROC, and whether to work on the pool or "
    "the order.",
    "recommend": "Choose a configuration within an SLA, a budget, a memory, at a quality, or all "
    "together.",
    "report": "Write one HTML page from evaluations, comparisons, audits, sweeps, golden sets, "
    "diagnostics.",
    "verify": "Digest the inputs of a result again, make it again, and compare every figure.",
    "measures": "List the measures, their parameters and what they mean.",
    "parts": "List the parts of a retrieval stack: what `type:` takes, and what each needs.",
    "doctor": "Say what is installed, what each verb needs, what answers, and how to mend the "
    "rest.",
    "demo": "Run `choose` and the other verbs on a small bilingual corpus, and write a report.",
    "init": "Make a corpus, questions and configurations from a folder of documents.",
    "choose": "Judge, sweep, recommend and report in one run that can be stopped at any time.",
    "golden": "Golden sets: pools that a judge graded and ordered.",
    "diagnose": "Test an embedder cheaply: what it makes of names, and of conversation.",
}
_MODULE = {"eval": "evaluate"}  # where it is not the verb's name


class _Verbs(TyperGroup):
    """The verbs by name and line; one becomes a command when it is called."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.commands = {verb: TyperCommand(verb, help=line) for verb, line in VERBS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in VERBS:
            self.commands[args[0]] = loaded(args[0])
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """What typer would draw, without rich, whose loading takes longer than all the rest."""
        width = shutil.get_terminal_size().columns
        shown = [p.get_help_record(ctx) for p in self.get_params(ctx)]
        options = [(" ".join(re.split(r"[ ,]+", r[0])), r[1]) for r in shown if r is not None]
        usage = f"Usage: {ctx.command_path} {' '.join(self.collect_usage_pieces(ctx))}"
        lines = ["", *_paragraph(usage, width), "", *_paragraph(self.help or "", width), ""]
        lines += [*_panel("Options", options, width), *_panel("Commands", VERBS.items(), width)]
        print("\n".join([*lines, "", *_paragraph(self.epilog or "", width), ""]))


def _paragraph(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(20, width - 2), initial_indent=" ", subsequent_indent=" ")


def _panel(title: str, rows: Any, width: int) -> list[str]:
    """Names and what they mean, in a frame."""
    rows = list(rows)
    inner = max(len(name) for name, _ in rows) + 2
    room = max(16, width - inner - 4)
    lines = []
    for name, text in rows:
        for line in textwrap.wrap(text, room, break_on_hyphens=False):
            lines.append(f"│ {name:<{inner}}{line:<{room}} │")
            name = ""
    across = "─" * (inner + room - len(title) - 1)
    return [f"╭─ {title} {across}╮", *lines, f"╰{'─' * (inner + room + 2)}╯"]


app = typer.Typer(
    name="rankproof",
    cls=_Verbs,
    help="Retrieval evaluation you can trust: exact under ties.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
    epilog="Exit codes: 0 done, 1 a check failed, 2 bad input.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Retrieval evaluation you can trust: exact under ties."""


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


def main() -> None:
    """Run the command line: whatever happens ends in an exit code and at most one line."""
    code = None
    show_progress(draw_progress)
    with door(), two_stage():
        sys.argv[1:] = map(at_home, sys.argv[1:])
        made.command = shown_arguments(sys.argv[1:])
        code = tidy(typer.main.get_command(app))(standalone_mode=False)
        if code == INTERRUPTED:  # typer makes this of Ctrl-C, without a word
            raise KeyboardInterrupt
        sys.stdout.flush()
    if isinstance(code, int) and code:
        sys.exit(code)


def run() -> None:
    """The entry of the command: `main`, and then no taking apart of the interpreter.

    The system frees half a gigabyte at once; the interpreter would do it piece by piece.
    """
    import_later("polars")
    if sys.platform == "linux" and any(word.startswith("--cluster") for word in sys.argv[1:]):
        from rankproof.cli.guardian import guarded  # Ray may end the process that it is in

        os._exit(guarded(_run))
    _run()


def _run(tell: Callable[[int], None] | None = None) -> NoReturn:
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # told of before, or nobody is left to be told
            stream.flush()
    if tell is not None:
        tell(code)
    if "ray" in sys.modules:  # which ends its processes as the interpreter goes
        sys.exit(code)
    os._exit(code)
