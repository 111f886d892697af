"""What a command is: a typed function, and what its signature does not say.

`@command` registers a function. Its parameters, with the markers `Source` and `Option` inside
`Annotated`, are read only when a command line, a manifest or a page of the docs asks for them.
Nothing here imports numpy, polars, rich or click, so that registering costs half a millisecond.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from inspect import Parameter, Signature, unwrap
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, get_args, get_origin, is_typeddict

P = ParamSpec("P")
R = TypeVar("R")

GROUPS = ("Evaluate", "Compare", "Precision", "RAG", "Golden sets", "Tools")  # order of the help
REQUIRED: Any = Parameter.empty
_HAS_KEYWORDS = 8  # flag of a code object with **keywords
# Modules of this package that hold no command; every other module is found as one.
_FRAMEWORK = {
    *("registry", "options", "inputs", "recording", "health", "showcase", "verification", "tasks"),
}


class Source(NamedTuple):
    """A file or folder that is read: digested in the manifest, and never replaced by an output.

    A positional parameter is a positional argument of the command line, a keyword-only one, or one
    with `names`, is an option. A metavar that ends in "..." takes several files, which become
    {name: file}.
    """

    metavar: str
    role: str = ""  # among the manifest's inputs; several files are named after themselves
    names: tuple[str, ...] = ()  # of the option, where not --parameter-name
    instead: str = ""  # an option that may give this positional argument, such as "--judge"
    expand: Callable[[list[str], Mapping[str, Any]], list[str]] | None = None  # globs and folders
    digested: bool = True  # in the manifest; False for what a repeated call does not need
    is_named: bool = True  # several become {name: file}; False: they stay a list
    takes_names: bool = False  # NAME=path names one of several


class Option(NamedTuple):
    """What a type and a sentence do not say about a parameter."""

    names: tuple[str, ...] = ()  # ("-m", "--measure"), where not --parameter-name
    metavar: str = ""  # with a comma or dots inside: a list, which may be written A,B or repeated
    minimum: float | None = None
    default_text: str = ""  # the default in words
    hidden: bool = False  # in Python alone
    recorded: bool = True  # in the manifest; False for what changes no value, such as --memory
    positional: bool = False  # an argument of the command line that is no file to be read
    is_split: bool = True  # a list may be written A,B; False: it may only be repeated
    panel: str = ""  # of the help; "" is that of its TypedDict, or "Options"
    completions: Callable[[], Sequence[str]] | None = None


class Output(NamedTuple):
    """A file that a command can also write: `method` of its result returns the text or bytes.

    With `endings` the file's ending chooses the format and is handed to the method.
    """

    name: str
    method: str
    help: str
    endings: tuple[str, ...] = ()
    metavar: str = "FILE"


class Needs(NamedTuple):
    """The extra that a command cannot do without, for `doctor` and the docs."""

    extra: str = ""
    modules: tuple[str, ...] = ()  # of that extra, which the command always imports
    optional: Mapping[str, str] = {}  # other extras, and what each of them adds


class Argument(NamedTuple):
    """One parameter of a command, with shared keywords spelled out."""

    name: str
    kind: Any  # its type without Annotated, None and list
    default: Any
    help: str
    panel: str
    is_list: bool
    is_positional: bool  # on the command line
    source: Source | None
    option: Option

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def choices(self) -> tuple[str, ...]:
        """The words of a Literal."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def flag(self) -> str:
        """The long option, such as --score-dtype."""
        names = self.option.names or (self.source.names if self.source else ())
        return names[-1] if names else f"--{self.name.replace('_', '-')}"


Replay = bool | str | Callable[[dict[str, Any], Mapping[str, Any]], "dict[str, Any] | str"]


class Command(NamedTuple):
    """A registered function. `name` is what is typed: "compare", "golden build"."""

    function: Callable[..., Any]
    name: str
    group: str
    needs: Needs
    outputs: tuple[Output, ...]
    replay: Replay  # see `command`
    prints: bool  # the function prints for itself and returns an exit code

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return " ".join((self.function.__doc__ or "").partition("\n\n")[0].split())

    def arguments(self) -> list[Argument]:
        """Every parameter, those of `**options: Unpack[...]` one by one."""
        function = unwrap(self.function)
        code, defaults = function.__code__, function.__defaults__ or ()
        positional = code.co_varnames[: code.co_argcount]
        keyword_only = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        known = dict(zip(reversed(positional), reversed(defaults), strict=False))
        known |= function.__kwdefaults__ or {}
        arguments = [
            _argument(name, _hint(function, name), known.get(name, REQUIRED), name in positional)
            for name in (*positional, *keyword_only)
        ]
        if code.co_flags & _HAS_KEYWORDS:
            keywords = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
            arguments += _typed_dict_arguments(get_args(_hint(function, keywords))[0])
        return arguments


COMMANDS: dict[str, Command] = {}  # those whose module is imported


def command(
    *,
    group: str,
    name: str = "",
    needs: Needs | None = None,
    outputs: Sequence[Output] = (),
    replay: Replay = True,
    prints: bool = False,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function as a command, and return it with its keywords checked at run time.

    Type checkers read `**options: Unpack[...]` themselves; Python would accept any keyword, and
    notebooks would complete none, so the wrapper refuses unknown ones and carries a signature in
    which every shared keyword is spelled out.

    `replay` tells `verify` how a recorded call is repeated: True, call it with the recorded
    arguments; a string, it is not repeated, for this reason; a function of the arguments and of
    the stored result, which returns the arguments to use, or such a reason.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        typed_name = name or function.__name__.rstrip("_")
        entry = Command(
            function, typed_name, group, needs or Needs(), tuple(outputs), replay, prints
        )
        arguments = entry.arguments()
        known = {argument.name for argument in arguments}

        @wraps(function)
        def checked(*values: P.args, **keywords: P.kwargs) -> R:
            unknown = keywords.keys() - known
            if unknown:
                wrong = min(unknown)
                close = get_close_matches(wrong, known, 1)
                suggestion = f"; did you mean {close[0]}?" if close else ""
                raise TypeError(f"{function.__name__}() has no argument {wrong!r}{suggestion}")
            return function(*values, **keywords)

        checked.__signature__ = _signature(function, arguments)  # type: ignore[attr-defined]
        COMMANDS[typed_name] = entry._replace(function=checked)
        return checked

    return register


def command_modules() -> list[str]:
    """Names of the modules that hold commands: the first words that can be typed."""
    folder = os.path.dirname(__file__)  # noqa: PTH120 - pathlib takes longer to load than this
    names = {entry.partition(".")[0] for entry in os.listdir(folder)}  # noqa: PTH208
    return sorted(n for n in names - _FRAMEWORK if not n.startswith("_"))


def load_commands(first_word: str) -> list[Command]:
    """The commands that begin with this word; only their module is imported."""
    if first_word in command_modules():
        import_module(f"rankproof.commands.{first_word}")
    return [c for name, c in COMMANDS.items() if name.split()[0] == first_word]


def all_commands() -> list[Command]:
    """Every command, in the order of the help: by group, then by name."""
    for word in command_modules():
        load_commands(word)
    return sorted(COMMANDS.values(), key=lambda c: (GROUPS.index(c.group), c.name))


def find_command(name: str) -> Command | None:
    """Import the module of a command and return the command; None if there is none."""
    load_commands(name.partition(" ")[0])
    return COMMANDS.get(name)


# --------------------------------------------------------------------- reading a signature


class _HeavyMeta(type):
    """Lets `HeavyType` replace a module, too: its attributes and parameters are itself."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __getitem__(cls, item: Any) -> Any:
        return cls


class HeavyType(metaclass=_HeavyMeta):
    """Stands for a type that only type checkers import; the command line takes text for it."""


class _Names(dict[str, Any]):
    """The names that a module's annotations may use, those of TYPE_CHECKING included."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, HeavyType)


def _hint(function: Any, name: str) -> Any:
    """The type of a parameter, evaluated if the annotation is a string."""
    hint = function.__annotations__[name]
    return eval(hint, {}, _Names(function.__globals__)) if isinstance(hint, str) else hint


def _typed_dict_arguments(table: Any) -> list[Argument]:
    """The keys of a TypedDict as arguments.

    The docstring of the smallest TypedDict with a key is the title of its panel in the help.
    """
    assert is_typeddict(table)
    parts = [p for p in vars(sys.modules[table.__module__]).values() if is_typeddict(p)]
    arguments = []
    for name, hint in table.__annotations__.items():
        with_key = [part for part in parts if name in part.__annotations__]
        smallest = min(with_key, key=lambda part: len(part.__annotations__))
        panel = (smallest.__doc__ or "Options").splitlines()[0].rstrip(".")
        default = False if bool in (get_args(hint) or (hint,)) else None
        arguments.append(_argument(name, hint, default, False, panel))
    return arguments


def _argument(
    name: str, hint: Any, default: Any, is_positional: bool, panel: str = "Options"
) -> Argument:
    """Describe a parameter by its type: markers and help of `Annotated`, optional, list or not."""
    markers: list[Any] = []
    while hasattr(hint, "__metadata__"):
        markers = [*hint.__metadata__, *markers]
        hint = hint.__origin__
    help_text = next((x for x in reversed(markers) if isinstance(x, str)), "")
    source = next((x for x in reversed(markers) if isinstance(x, Source)), None)
    option = next((x for x in reversed(markers) if isinstance(x, Option)), Option())
    inner = [x for x in get_args(hint) if x is not type(None)]
    if type(None) in get_args(hint) and len(inner) == 1:
        hint = inner[0]
    if (
        len(inner) == 2
        and get_origin(inner[1]) is Sequence
        and list(get_args(inner[1])) == inner[:1]
    ):
        hint = inner[1]  # one or several
    is_list = get_origin(hint) in (list, Sequence)
    if is_list:
        (hint,) = get_args(hint)
    metavar = source.metavar if source else option.metavar
    is_argument = option.positional or (source is not None and is_positional and not source.names)
    return Argument(
        name=name,
        kind=hint,
        default=default,
        help=help_text,
        panel="Arguments" if is_argument else option.panel or panel,
        is_list=is_list or "," in metavar or metavar.endswith("..."),
        is_positional=is_argument,
        source=source,
        option=option,
    )


def _signature(function: Any, arguments: Sequence[Argument]) -> Signature:
    """The signature with every keyword by name, as help() and notebooks show it."""
    positional = function.__code__.co_argcount
    return Signature(
        [
            Parameter(
                argument.name,
                Parameter.POSITIONAL_OR_KEYWORD if index < positional else Parameter.KEYWORD_ONLY,
                default=argument.default,
                annotation=function.__annotations__.get(argument.name, argument.kind),
            )
            for index, argument in enumerate(arguments)
        ],
        return_annotation=function.__annotations__.get("return", Signature.empty),
    )


def docs_table() -> str:
    """The table of commands in docs/commands.md."""
    lines = ["| command | what it does | needs |", "|:--|:--|:--|"]
    for entry in all_commands():
        extra = f"`rankproof[{entry.needs.extra}]`" if entry.needs.extra else ""
        lines.append(f"| `{entry.name}` | {entry.summary} | {extra} |")
    return "\n".join(lines)
