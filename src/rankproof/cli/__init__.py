"""The command line: one file per verb, imported when it is called."""

from __future__ import annotations

import inspect
import os
import re
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from rankproof import manifest as made
from rankproof.cli import (
    audit,
    ceilings,
    compare,
    demo,
    diagnose,
    evaluate,
    gate,
    golden,
    holes,
    leaderboard,
    measures,
    parts,
    recommend,
    report,
    search,
    sweep,
    ties,
    verify,
)
from rankproof.cli.door import door, shown_arguments
from rankproof.interrupts import INTERRUPTED, two_stage
from rankproof.version import __version__

_HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="rankproof",
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


app.command("eval")(evaluate.command)
app.command("ties")(ties.command)
app.command("compare")(compare.command)
app.command("holes")(holes.command)
app.command("gate")(gate.command)
app.command("leaderboard")(leaderboard.command)
app.command("audit")(audit.command)
app.command("search")(search.command)
app.command("sweep")(sweep.command)
app.add_typer(golden.app, name="golden")
app.command("ceilings")(ceilings.command)
app.command("recommend")(recommend.command)
app.add_typer(diagnose.app, name="diagnose")
app.command("report")(report.command)
app.command("verify")(verify.command)
app.command("measures")(measures.command)
app.command("parts")(parts.command)
app.command("demo")(demo.command)


def tidy(command: Any) -> Any:
    """Help that wraps at the terminal's width, with flags that show no type."""
    command.help = re.sub(r"(?<=\S)\n(?=\S)", " ", inspect.cleandoc(command.help or ""))
    flags = [p for p in command.params if getattr(p, "is_flag", False)]
    for flag in [*flags, command.get_help_option(typer.Context(command, **_HELP))]:
        flag.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        tidy(inner)
    return command


def main() -> None:
    """Run the command line: whatever happens ends in an exit code and at most one line."""
    code = None
    with door(), two_stage():
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
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # told of before, or nobody is left to be told
            stream.flush()
    if "ray" in sys.modules:  # which ends its processes as the interpreter goes
        sys.exit(code)
    os._exit(code)
