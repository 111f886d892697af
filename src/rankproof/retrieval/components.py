"""Registry of components: embedders, indexes, retrievers, rerankers, rewriters and judges.

A component is declared once, in the file that implements it:

    @part("index", "flat")
    class FlatIndex:
        def __init__(self, settings: FlatSettings, vectors, document_ids): ...

From that line follow the keys that a configuration may hold, the values of `type:`, the output of
`rankproof parts` and the tables in the docs. Other packages join through an entry point (group
`rankproof.parts`, a module that declares components), a user's file through
`type: my.module:MyIndex`, and a user's object by standing where settings go.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable
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
ENTRY_POINTS = "rankproof.parts"

# Every module of these packages declares one component or more.
PACKAGES = (
    "rankproof.retrieval.embedders",
    "rankproof.retrieval.indexes",
    "rankproof.retrieval.sparse",
    "rankproof.retrieval.retrievers",
    "rankproof.retrieval.rerankers",
    "rankproof.retrieval.rewriters",
    "rankproof.golden.judges",
)
# Methods that each kind must have; an object given instead of settings is recognized by them.
METHODS: dict[Kind, tuple[str, ...]] = {
    "embedder": ("embed_queries", "embed_passages"),
    "index": ("search",),
    "sparse": ("search",),
    "retriever": ("search",),
    "reranker": ("score",),
    "rewriter": ("rewrite",),
    "judge": ("ask", "prepare", "close"),
}
_ATTRIBUTES: dict[Kind, tuple[str, ...]] = {
    "judge": ("name", "model", "parameters", "simulated", "parallel")
}
_RESULT_ATTRIBUTES: dict[str, tuple[str, ...]] = {  # of what these methods return
    "search": ("run", "seconds"),  # protocols.Retrieved
    "score": ("score", "tokens", "dtype"),  # protocols.Scored
    "rewrite": ("split",),  # a text
    "ask": ("text",),  # chat.Answer
}

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Component:
    """One implementation of a stage, as it was declared."""

    kind: Kind
    type: str
    settings: builtins.type[Settings]
    make: Callable[..., Any]  # (settings, *material, **the offered values that it names)
    extra: str | None = None  # the extra that installs the packages it needs
    packages: tuple[str, ...] = ()  # packages whose version decides its results
    imports: tuple[str, ...] = ()  # modules that must be installed
    network: bool = False  # True if it calls a server

    @property
    def is_builtin(self) -> bool:
        """True if rankproof ships it."""
        is_foreign = self.settings is ForeignSettings
        return not is_foreign and self.settings.__module__.startswith("rankproof.")

    @property
    def does(self) -> str:
        """What it does: the first sentence of its settings' docstring."""
        return " ".join((self.settings.__doc__ or "").split("\n\n")[0].split())

    @property
    def missing_module(self) -> str | None:
        """The first module that it needs and that is not installed."""
        return next((name for name in self.imports if importlib.util.find_spec(name) is None), None)


_registered: dict[tuple[Kind, str], Component] = {}


def part(
    kind: Kind,
    name: str,
    *,
    extra: str | None = None,
    packages: tuple[str, ...] = (),
    imports: tuple[str, ...] = (),
    network: bool = False,
) -> Callable[[T], T]:
    """Declare a class or function as a component; its settings annotate the first argument.

    >>> from rankproof.foundation.config import Settings
    >>> from rankproof.retrieval.components import find_component, part
    >>> class Shouting(Settings):
    ...     "A question in capitals."
    ...     type: str = "shouting"
    >>> @part("rewriter", "shouting")
    ... class Shouts:
    ...     def __init__(self, settings: Shouting): ...
    >>> find_component("rewriter", "shouting").does
    'A question in capitals.'
    """

    def declare(make: T) -> T:
        """Register a class or function as a component; refuse a type that is already taken."""
        settings = _settings_class(make)
        if (kind, name) in _registered and _registered[kind, name].make is not make:
            raise InputError(
                f"there is already {_with_article(kind)} of the type {name!r}",
                place=f"{make.__module__}:{make.__qualname__}",
                remedy="give it another name",
            )
        _registered[kind, name] = Component(
            kind=kind,
            type=name,
            settings=settings,
            make=make,
            extra=extra,
            packages=packages,
            imports=imports,
            network=network,
        )
        return make

    return declare


def _with_article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aei' else 'a'} {kind}"


def _settings_class(make: Callable[..., Any]) -> type[Settings]:
    """Return the Settings class that annotates the first argument."""
    function = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    parameters = inspect.signature(function).parameters.values()
    first = next(parameter for parameter in parameters if parameter.name != "self")
    annotation = first.annotation
    if isinstance(annotation, str):  # resolved alone: other annotations may not be defined yet
        annotation = getattr(function, "__globals__", {}).get(annotation)
    if not (isinstance(annotation, type) and issubclass(annotation, Settings)):
        raise InputError(
            f"the first argument {first.name!r} is not annotated with the settings of the part",
            place=f"{make.__module__}:{make.__qualname__}",
            remedy="annotate it with a class made from rankproof.foundation.config.Settings",
        )
    return annotation


@cache
def _import_components() -> None:
    """Import every module that declares components, those of other packages last."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(getattr(package, "__path__", [])):
            importlib.import_module(f"{name}.{module.name}")
    plugins.load(ENTRY_POINTS, "parts")


def list_components(kind: Kind | None = None) -> list[Component]:
    """Return all components, or those of one kind, sorted by kind and name."""
    _import_components()
    selected = (c for c in _registered.values() if kind in (None, c.kind))
    return sorted(selected, key=lambda c: (KINDS.index(c.kind), c.type))


def find_component(kind: Kind, name: str) -> Component:
    """Return the component of a type; `module:Name` is imported.

    >>> from rankproof.retrieval.components import find_component
    >>> find_component("index", "hnsw").settings(type="hnsw", m=16).m
    16
    """
    _import_components()
    if (kind, name) in _registered:
        return _registered[kind, name]
    if ":" in name:
        return _foreign_component(kind, name)
    known = [component.type for component in list_components(kind)]
    similar = get_close_matches(name, known, 1)
    remedy = f"did you mean {similar[0]!r}?" if similar else f"use one of {', '.join(known)}"
    raise InputError(f"unknown type {name!r}", remedy=remedy)


# ------------------------------------------------------------------- classes that users wrote


class ForeignSettings(Settings):
    """A class or function of the user's, by the path `module:Name`; its own keys go to it."""

    model_config = ConfigDict(extra="allow", frozen=True, protected_namespaces=())

    type: str

    @property
    def own_keys(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def model_post_init(self, context: Any, /) -> None:
        register_settings(self.own_keys)


def _foreign_component(kind: Kind, path: str) -> Component:
    """Wrap the class or function at `module:Name`, unless it is declared with `@part`."""
    implementation = load_object(path, kind)
    for component in _registered.values():
        if component.make is implementation:
            return component

    def make(settings: ForeignSettings, *material: Any, **offered: Any) -> Any:
        try:
            return check_object(kind, implementation(*material, **settings.own_keys, **offered))
        except TypeError as error:
            raise InputError(
                f"cannot be made: {error}", place=path, remedy="check the keys beside `type`"
            ) from error

    make.__signature__ = _signature(implementation)  # type: ignore[attr-defined]
    return Component(kind, path, ForeignSettings, make)


class GuardedComponent:
    """A user's component whose exceptions become one-line errors and whose results are checked."""

    def __init__(self, kind: Kind, name: str, component: Any):
        self._kind, self._name, self.component = kind, name, component

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # copy and pickle ask before __init__ has run
            raise AttributeError(attribute)
        value = getattr(self.component, attribute)
        return self._guard(attribute, value) if attribute in METHODS[self._kind] else value

    def _guard(self, method_name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method with one-line errors and a check of what it returns."""

        @wraps(method)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                result = method(*args, **kwargs)
            except RankproofError:
                raise
            except Exception as error:
                raise user_code_error(self._name, error) from error
            required = _RESULT_ATTRIBUTES.get(method_name, ())
            missing = [name for name in required if not hasattr(result, name)]
            if missing:
                raise InputError(
                    f"{method_name} returned {shorten(result)}, which has no "
                    f"{' or '.join(missing)}",
                    place=self._name,
                    remedy="return what rankproof.retrieval.protocols says",
                )
            return result

        return guarded


def user_code_error(name: str, error: Exception, circumstance: str = "") -> InputError:
    """Return the error for an exception that a user's code raised, with its file and line."""
    last_frame = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split()) or "no words"
    return InputError(
        f"{type(error).__name__}{circumstance}: {message[:200]}",
        place=f"{name} ({last_frame.filename}:{last_frame.lineno})",
        remedy="mend it, and run again; RANKPROOF_DEBUG=1 shows the traceback",
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature, empty where Python knows none (compiled functions)."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return inspect.Signature()


def load_object(path: str, place: str) -> Any:
    """Import the callable that `module:Name` names; modules may lie in the current folder."""
    module, _, name = path.partition(":")
    folder = str(Path.cwd())
    is_added = folder not in sys.path and "" not in sys.path
    if is_added:
        sys.path.insert(0, folder)
    try:
        target: Any = importlib.import_module(module)
        for attribute in name.split("."):
            target = getattr(target, attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"there is no {path!r} ({error})",
            place=place,
            remedy="write module:Name, importable from this folder",
        ) from None
    except Exception as error:  # whatever a user's module raises while it is imported
        cause = user_code_error(path, error)
        raise InputError(
            f"{cause.place} cannot be imported ({cause.problem})",
            place=place,
            remedy="mend the module",
        ) from error
    finally:
        if is_added:
            sys.path.remove(folder)
    if not callable(target):
        raise InputError(
            f"{path!r} cannot be called", place=place, remedy="name a class or function"
        )
    return target


def check_object(kind: Kind, candidate: Any) -> Any:
    """Return the object if it has what its kind needs; raise InputError otherwise."""
    missing = [name for name in METHODS[kind] if not callable(getattr(candidate, name, None))]
    missing += [name for name in _ATTRIBUTES.get(kind, ()) if not hasattr(candidate, name)]
    if missing:
        raise InputError(
            f"{shorten(candidate)} is not {_with_article(kind)}: it has no {' or '.join(missing)}",
            remedy="give settings, or an object of the Protocol in rankproof.retrieval.protocols",
        )
    return candidate


# ------------------------------------------------------------------------- in a configuration


def _validate_choice(kind: Kind, value: Any, info: ValidationInfo) -> Any:
    """Return the settings of a component from a configuration's value; objects stay as they are."""
    if isinstance(value, Settings):
        owner = component_of(value)
        if owner.kind != kind and not isinstance(value, ForeignSettings):
            raise InputError(
                f"{owner.type} is of the kind {owner.kind}", remedy=f"give {_with_article(kind)}"
            )
        return value
    if isinstance(value, str) or value is None or isinstance(value, list | int | float):
        raise InputError(f"{shorten(value)} where keys belong", remedy="write {type: …}")
    if not isinstance(value, dict):
        return check_object(kind, value)
    name = value.get("type")
    if not isinstance(name, str):
        known = ", ".join(component.type for component in list_components(kind))
        raise InputError("no type is given", remedy=f"use one of {known}")
    return validate_nested(value, find_component(kind, name).settings, info)


@dataclass(frozen=True, slots=True)
class ComponentChoice:
    """Marks a setting that chooses a component: `Annotated[Any, ComponentChoice("embedder")]`."""

    kind: Kind

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.with_info_plain_validator_function(
            lambda value, info: _validate_choice(self.kind, value, info),
            serialization=core_schema.plain_serializer_function_ser_schema(describe_choice),
        )


def describe_choice(chosen: Any) -> Any:
    """Return the JSON value by which a manifest records settings or an object."""
    if isinstance(chosen, Settings):
        return chosen.model_dump(mode="json")
    name = str(getattr(chosen, "name", type(chosen).__name__))
    return {"type": f"{type(chosen).__module__}:{type(chosen).__qualname__}", "name": name}


EmbedderChoice = Annotated[Any, ComponentChoice("embedder")]
IndexChoice = Annotated[Any, ComponentChoice("index")]
SparseChoice = Annotated[Any, ComponentChoice("sparse")]
RetrieverChoice = Annotated[Any, ComponentChoice("retriever")]
RerankerChoice = Annotated[Any, ComponentChoice("reranker")]
RewriterChoice = Annotated[Any, ComponentChoice("rewriter")]
JudgeChoice = Annotated[Any, ComponentChoice("judge")]


def component_of(settings: Settings) -> Component:
    """Return the component that settings belong to."""
    _import_components()
    for component in _registered.values():
        if component.settings is type(settings):
            return component
    if isinstance(settings, ForeignSettings):
        return Component("retriever", settings.type, ForeignSettings, _refuse_to_make)
    raise InputError(f"{type(settings).__name__} are not the settings of a part")


def _refuse_to_make(*_: Any) -> Any:
    raise AssertionError("a user's component is made by its kind, which its settings do not hold")


def uses_network(chosen: Any) -> bool:
    """True if the component or its embedder calls a server, so that calls cost money and time."""
    embedder = getattr(chosen, "embedder", None)
    return calls_server(chosen) or (embedder is not None and calls_server(embedder))


def calls_server(chosen: Any) -> bool:
    """True if this component itself calls a server (not only its embedder)."""
    over_network = getattr(chosen, "over_network", None)
    if over_network is None and isinstance(chosen, Settings):
        return component_of(chosen).network
    return bool(over_network)


def is_local_host(host: str | None) -> bool:
    """True if a host is this machine; a path is a socket of this machine."""
    return not host or host.startswith("/") or host in ("localhost", "127.0.0.1", "::1")


def make_component(kind: Kind, chosen: Any, *material: Any, **offered: Any) -> Any:
    """Make the component that settings describe; an object is checked and returned.

    `material` is what it is made from (vectors and ids of an index, documents and ids of a sparse
    index or retriever); of `offered` (cache, folder, …) it gets what its signature names.
    """
    if not isinstance(chosen, Settings):
        return check_object(kind, chosen)
    component = find_component(kind, getattr(chosen, "type", ""))
    if (module := component.missing_module) is not None:
        raise MissingExtra(f"the {kind} {component.type}", module, component.extra or "all")
    parameters = _signature(component.make).parameters
    accepted = {name: value for name, value in offered.items() if name in parameters}
    if component.is_builtin:
        return component.make(chosen, *material, **accepted)
    try:
        instance = component.make(chosen, *material, **accepted)
    except RankproofError:
        raise
    except Exception as error:
        raise user_code_error(component.type, error) from error
    return GuardedComponent(kind, component.type, instance)
