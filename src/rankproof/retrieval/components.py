"""Every part of a retrieval stack, declared once, in the file that implements it.

    @part("index", "flat")
    class FlatIndex:
        def __init__(self, settings: FlatSettings, vectors, document_ids): ...

The settings that a configuration may hold, the names that `type:` takes, `rankproof parts`, the
tables in the documents and what is made all follow from that line. A package of its own joins in
through an entry point (group `rankproof.parts`, a module that declares parts), a user's file
through `type: my.module:MyIndex`, and a user's object by being handed in where settings go.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import ConfigDict, ValidationInfo
from pydantic_core import core_schema

from rankproof.foundation import plugins
from rankproof.foundation.config import Settings, validate_nested
from rankproof.foundation.errors import InputError, MissingExtra, RankproofError, shorten
from rankproof.foundation.redaction import register_settings

Kind = Literal["embedder", "index", "sparse", "retriever", "reranker", "rewriter", "judge"]
KINDS: tuple[Kind, ...] = get_args(Kind)
GROUP = "rankproof.parts"

# Where the parts of this package are written: every module of these folders declares one or more.
FOLDERS = (
    "rankproof.retrieval.embedders",
    "rankproof.retrieval.indexes",
    "rankproof.retrieval.sparse",
    "rankproof.retrieval.retrievers",
    "rankproof.retrieval.rerankers",
    "rankproof.retrieval.rewriters",
    "rankproof.golden.judges",
)
# What a part must be able to do: an object handed in instead of settings is known by it.
METHODS: dict[Kind, tuple[str, ...]] = {
    "embedder": ("embed_queries", "embed_passages"),
    "index": ("search",),
    "sparse": ("search",),
    "retriever": ("search",),
    "reranker": ("score",),
    "rewriter": ("rewrite",),
    "judge": ("ask", "prepare", "close"),
}
# What else is asked of one, and what must be in what it returns.
TOLD: dict[Kind, tuple[str, ...]] = {
    "judge": ("name", "model", "parameters", "simulated", "parallel")
}
RETURNED: dict[str, tuple[str, ...]] = {
    "search": ("run", "seconds"),  # protocols.Retrieved
    "score": ("score", "tokens", "dtype"),  # protocols.Scored
    "rewrite": ("split",),  # a text
    "ask": ("text",),  # chat.Answer
}

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Part:
    """One way to do a stage's work."""

    kind: Kind
    type: str
    settings: builtins.type[Settings]
    make: Callable[..., Any]  # (settings, *material, **what it takes of what is offered)
    extra: str | None  # that brings the packages it needs
    packages: tuple[str, ...]  # whose version decides what it returns
    imports: tuple[str, ...]  # modules that must be there
    network: bool  # whether it asks a server

    @property
    def is_ours(self) -> bool:
        """Whether it is written in this package, and not in a user's own."""
        return self.settings is not Foreign and self.settings.__module__.startswith("rankproof.")

    @property
    def does(self) -> str:
        """Its settings' first sentence."""
        return " ".join((self.settings.__doc__ or "").split("\n\n")[0].split())

    @property
    def absent(self) -> str | None:
        """A module that it needs and that is not installed."""
        return next((name for name in self.imports if importlib.util.find_spec(name) is None), None)


_registered: dict[tuple[Kind, str], Part] = {}


def part(
    kind: Kind,
    name: str,
    *,
    extra: str | None = None,
    packages: tuple[str, ...] = (),
    imports: tuple[str, ...] = (),
    network: bool = False,
) -> Callable[[T], T]:
    """Declare a class or function as a part; its first argument is annotated with its settings.

    >>> from rankproof.foundation.config import Settings
    >>> from rankproof.retrieval.components import find, part
    >>> class Shouting(Settings):
    ...     "A question in capitals."
    ...     type: str = "shouting"
    >>> @part("rewriter", "shouting")
    ... class Shouts:
    ...     def __init__(self, settings: Shouting): ...
    >>> find("rewriter", "shouting").does
    'A question in capitals.'
    """

    def declare(make: T) -> T:
        settings = _settings_of(make)
        if (kind, name) in _registered and _registered[kind, name].make is not make:
            raise InputError(
                f"there is already {_a(kind)} of the type {name!r}",
                place=f"{make.__module__}:{make.__qualname__}",
                remedy="give it another name",
            )
        _registered[kind, name] = Part(
            kind, name, settings, make, extra, packages, imports, network
        )
        return make

    return declare


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aei' else 'a'} {kind}"


def _settings_of(make: Callable[..., Any]) -> type[Settings]:
    function = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    first = next(p for p in inspect.signature(function).parameters.values() if p.name != "self")
    found = first.annotation
    if isinstance(found, str):  # only this one: others may name what is not defined yet
        found = getattr(function, "__globals__", {}).get(found)
    if not (isinstance(found, type) and issubclass(found, Settings)):
        raise InputError(
            f"the first argument {first.name!r} is not annotated with the settings of the part",
            place=f"{make.__module__}:{make.__qualname__}",
            remedy="annotate it with a class made from rankproof.foundation.config.Settings",
        )
    return found


@cache
def _load() -> None:
    """Import every module that declares parts; what a package brings comes after our own."""
    for folder in FOLDERS:
        package = importlib.import_module(folder)
        for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
            importlib.import_module(f"{folder}.{module.name}")
    plugins.load(GROUP, "parts")


def every(kind: Kind | None = None) -> list[Part]:
    """All parts, or those of a kind, in the order of kinds and names."""
    _load()
    found = (p for p in _registered.values() if kind in (None, p.kind))
    return sorted(found, key=lambda p: (KINDS.index(p.kind), p.type))


def find(kind: Kind, name: str) -> Part:
    """The part of a type; `module:Name` is imported. InputError says which there are.

    >>> from rankproof.retrieval.components import find
    >>> find("index", "hnsw").settings(type="hnsw", m=16).m
    16
    """
    _load()
    if (kind, name) in _registered:
        return _registered[kind, name]
    if ":" in name:
        return _foreign(kind, name)
    known = [p.type for p in every(kind)]
    near = get_close_matches(name, known, 1)
    remedy = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known)}"
    raise InputError(f"unknown type {name!r}", remedy=f"{remedy}")


# -------------------------------------------------------------------------- a user's own classes


class Foreign(Settings):
    """A class or function of the user's, by the path `module:Name`; its own keys go to it."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    type: str

    @property
    def own(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def model_post_init(self, context: Any, /) -> None:
        register_settings(self.own)


def _foreign(kind: Kind, name: str) -> Part:
    made = load_object(name, kind)
    declared = next((p for p in _registered.values() if p.make is made), None)
    if declared is not None:
        return declared

    def make(settings: Foreign, *material: Any, **offered: Any) -> Any:
        try:
            return check_object(kind, made(*material, **settings.own, **offered))
        except TypeError as error:
            raise InputError(
                f"cannot be made: {error}", place=name, remedy="check the keys beside `type`"
            ) from error

    make.__signature__ = _signature(made)  # type: ignore[attr-defined]
    return Part(kind, name, Foreign, make, None, (), (), False)


class Theirs:
    """A part that is not ours: what it raises at work is told as one line that names it."""

    def __init__(self, kind: Kind, name: str, given: Any):
        self._kind, self._name, self.given = kind, name, given

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # as copying and pickling ask, before there is anything
            raise AttributeError(attribute)
        found = getattr(self.given, attribute)
        if attribute not in METHODS[self._kind]:
            return found

        @wraps(found)
        def guarded(*given: Any, **named: Any) -> Any:
            try:
                answer = found(*given, **named)
            except RankproofError:
                raise
            except Exception as error:
                raise failed(self._name, error) from error
            lacks = [name for name in RETURNED.get(attribute, ()) if not hasattr(answer, name)]
            if lacks:
                raise InputError(
                    f"{attribute} returned {shorten(answer)}, which has no {' or '.join(lacks)}",
                    place=self._name,
                    remedy="return what rankproof.retrieval.protocols says",
                )
            return answer

        return guarded


def failed(name: str, error: Exception, when: str = "") -> InputError:
    """What a user's own code raised, as one line that says where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    said = " ".join(str(error).split()) or "no words"
    return InputError(
        f"{type(error).__name__}{when}: {said[:200]}",
        place=f"{name} ({last.filename}:{last.lineno})",
        remedy="mend it, and run again; RANKPROOF_DEBUG=1 shows the traceback",
    )


def _signature(made: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(made)
    except (TypeError, ValueError):
        return inspect.Signature()


def load_object(path: str, what: str) -> Any:
    """What `module:Name` names; the folder it is run from is looked in too."""
    module, _, name = path.partition(":")
    here = str(Path.cwd())
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for step in name.split("."):
            found = getattr(found, step)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"there is no {path!r} ({error})",
            place=what,
            remedy="write module:Name, importable from this folder",
        ) from None
    except Exception as error:  # whatever a user's module does as it is imported
        told = failed(path, error)
        raise InputError(
            f"{told.place} cannot be imported ({told.problem})",
            place=what,
            remedy="mend the module",
        ) from error
    finally:
        if added:
            sys.path.remove(here)
    if not callable(found):
        raise InputError(
            f"{path!r} cannot be called", place=what, remedy="name a class or function"
        )
    return found


def check_object(kind: Kind, given: Any) -> Any:
    """An object that does what a part of the kind does, or an InputError."""
    lacks = [name for name in METHODS[kind] if not callable(getattr(given, name, None))]
    lacks += [name for name in TOLD.get(kind, ()) if not hasattr(given, name)]
    if lacks:
        raise InputError(
            f"{shorten(given)} is not {_a(kind)}: it has no {' or '.join(lacks)}",
            remedy="give settings, or an object of the Protocol in rankproof.retrieval.protocols",
        )
    return given


# ------------------------------------------------------------------------- in a configuration


def _chosen(kind: Kind, value: Any, info: ValidationInfo) -> Any:
    """Settings of a part, from what a configuration says; an object of the Protocol as it is."""
    if isinstance(value, Settings):
        owner = part_of(value)
        if owner.kind != kind and not isinstance(value, Foreign):
            raise InputError(f"{owner.type} is of the kind {owner.kind}", remedy=f"give {_a(kind)}")
        return value
    if isinstance(value, str) or value is None or isinstance(value, list | int | float):
        raise InputError(f"{shorten(value)} where keys belong", remedy="write {type: …}")
    if not isinstance(value, dict):
        return check_object(kind, value)
    name = value.get("type")
    if not isinstance(name, str):
        known = ", ".join(p.type for p in every(kind))
        raise InputError("no type is given", remedy=f"use one of {known}")
    return validate_nested(value, find(kind, name).settings, info)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Marks a setting that chooses a part: `embedder: Annotated[Any, Chosen("embedder")]`."""

    kind: Kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(
            lambda value, info: _chosen(self.kind, value, info),
            serialization=core_schema.plain_serializer_function_ser_schema(describe),
        )


def describe(chosen: Any) -> Any:
    """A choice as a manifest shows it."""
    if isinstance(chosen, Settings):
        return chosen.model_dump(mode="json")
    name = str(getattr(chosen, "name", type(chosen).__name__))
    return {"type": f"{type(chosen).__module__}:{type(chosen).__qualname__}", "name": name}


EmbedderChoice = Annotated[Any, Chosen("embedder")]
IndexChoice = Annotated[Any, Chosen("index")]
SparseChoice = Annotated[Any, Chosen("sparse")]
RetrieverChoice = Annotated[Any, Chosen("retriever")]
RerankerChoice = Annotated[Any, Chosen("reranker")]
RewriterChoice = Annotated[Any, Chosen("rewriter")]
JudgeChoice = Annotated[Any, Chosen("judge")]


def part_of(settings: Settings) -> Part:
    """The part that settings belong to."""
    _load()
    found = next((p for p in _registered.values() if p.settings is type(settings)), None)
    if found is not None:
        return found
    if isinstance(settings, Foreign):
        return Part("retriever", settings.type, Foreign, _never, None, (), (), False)
    raise InputError(f"{type(settings).__name__} are not the settings of a part")


def _never(*_: Any) -> Any:
    raise AssertionError("a part of the user's is made by its kind")


def is_network(chosen: Any) -> bool:
    """Whether it asks a server, or its embedder does: its calls are paid for, and take the time of
    the way."""
    inside = getattr(chosen, "embedder", None)
    return asks_server(chosen) or (inside is not None and asks_server(inside))


def asks_server(chosen: Any) -> bool:
    """Whether it asks one itself."""
    said = getattr(chosen, "over_network", None)
    if said is None and isinstance(chosen, Settings):
        return part_of(chosen).network
    return bool(said)


def is_here(host: str | None) -> bool:
    """Whether a server's host is this machine: a socket of its own is no network."""
    return not host or host.startswith("/") or host in ("localhost", "127.0.0.1", "::1")


# --------------------------------------------------------------------------------------- making


def make(kind: Kind, chosen: Any, *material: Any, **offered: Any) -> Any:
    """The part that `chosen` describes, or `chosen` itself where it is an object already.

    `material` is what it is made from (vectors and ids of an index, documents and ids of a sparse
    index or retriever); of `offered` (cache, folder, progress, …) it gets what its signature takes.
    """
    if not isinstance(chosen, Settings):
        return check_object(kind, chosen)
    found = find(kind, getattr(chosen, "type", ""))
    if found.absent is not None:
        raise MissingExtra(f"the {kind} {found.type}", found.absent, found.extra or "all")
    taken = dict(_taken(found.make, offered))
    if found.is_ours:
        return found.make(chosen, *material, **taken)
    try:
        return Theirs(kind, found.type, found.make(chosen, *material, **taken))
    except RankproofError:
        raise
    except Exception as error:
        raise failed(found.type, error) from error


def _taken(make: Callable[..., Any], offered: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    taken = _signature(make).parameters
    return ((name, value) for name, value in offered.items() if name in taken)
