"""Read YAML configurations into checked models, or explain in one line what is wrong.

A model is a pydantic class derived from `Settings`. An unknown key is refused with the nearest
known one; a path is relative to the folder of its file. Secrets are never in a file: a setting
names the environment variable that holds one.
"""

from __future__ import annotations

import os
import re
import typing
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from rankproof.foundation.errors import InputError, MissingExtra, shorten
from rankproof.foundation.files import read_text
from rankproof.foundation.redaction import is_variable, register_address, register_secret

try:
    import yaml
    from pydantic import (
        AfterValidator,
        BaseModel,
        ConfigDict,
        Field,
        ValidationError,
        ValidationInfo,
    )
except ImportError as absent:
    package = "PyYAML" if absent.name == "yaml" else "pydantic"
    raise MissingExtra("a configuration", package, "retrieval") from None


class Settings(BaseModel):
    """A section of a configuration: immutable, and without unknown keys.

    >>> from rankproof.foundation.config import Settings
    >>> class Halves(Settings):
    ...     share: float = 0.5
    >>> Halves(share=0.25).share
    0.25
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    operation: ClassVar[frozenset[str]] = frozenset()
    """Keys that do not change any result (addresses, timeouts, batch sizes). A property `decides`
    may add what results depend on besides the keys, such as the source of a function."""

    def model_post_init(self, context: Any, /) -> None:
        """Register the secrets in addresses, so that they are shown nowhere."""
        texts = [value for value in self.__dict__.values() if isinstance(value, str)]
        public = frozenset(text for text in texts if "://" not in text)
        for text in texts:
            if "://" in text:
                register_address(text, public)


Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


def resolve_beside(path: Path, info: ValidationInfo) -> Path:
    """Return a path relative to the folder of the configuration file, if there is one."""
    folder, path = (info.context or {}).get("folder"), path.expanduser()
    return path if folder is None or path.is_absolute() else Path(folder) / path


def _folder_beside(name: str, info: ValidationInfo) -> str:
    folder = (info.context or {}).get("folder")
    path = None if folder is None else Path(folder) / name
    return str(path) if path is not None and path.is_dir() else name


BesidePath = Annotated[Path, AfterValidator(resolve_beside)]
"""A path; in a file, relative to the folder of that file."""

ModelName = Annotated[str, AfterValidator(_folder_beside)]
"""A model: a folder, in a file relative to the folder of that file; or a name on the hub."""

T = TypeVar("T", bound=Settings)

_MERGE = "tag:yaml.org,2002:merge"


def read_config(path: str | Path, model: type[T]) -> T:
    """Return a YAML (or JSON) file as a model; InputError names the file, the key and a remedy."""
    data = read_keys(path, f"it takes {', '.join(list(model.model_fields)[:6])}, …")
    return check_config(data, model, place=str(path), folder=Path(path).resolve().parent)


def read_keys(path: str | Path, remedy: str = "write `key: value`") -> dict[str, Any]:
    """Return the keys of a YAML (or JSON) file, unchecked; `remedy` is for a file without keys."""
    text = read_text(path)
    try:
        data = yaml.load(text, Loader=_Strict)  # a SafeLoader: no objects are made
    except _TooManyAliases:
        raise InputError(
            f"its aliases (*name) stand for more than {_MOST_ALIASED:,} values, or for themselves",
            place=str(path),
            remedy="write out what they stand for",
        ) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"not YAML: {problem}", place=place, remedy="check that line") from None
    except (ValueError, RecursionError) as error:  # 2025-13-01 looks like a date
        raise InputError(
            f"not YAML: {error}", place=str(path), remedy="quote what is meant as text"
        ) from None
    if not isinstance(data, dict):
        raise InputError(
            f"{shorten(data)} where keys belong" if data is not None else "the file is empty",
            place=str(path),
            remedy=remedy,
        )
    return data


def check_config(
    data: dict[str, Any], model: type[T], *, place: str, folder: Path | None = None
) -> T:
    """Return a dict as a model; InputError names the place, the key and a remedy."""
    try:
        return model.model_validate(data, context={"folder": folder})
    except ValidationError as error:
        problem = _first_problem(error, model)
        raise InputError(problem.problem, place=place, remedy=problem.remedy) from None


def read_secret(variable: str | None, setting: str) -> str | None:
    """Return the value of the environment variable that a setting names, and register it."""
    if variable is None:
        return None
    if not re.fullmatch(r"\w+", variable, re.ASCII):
        raise InputError(
            "what should name an environment variable is not a name",  # unquoted: it may be the key
            place=setting,
            remedy="write the variable's name there, and the secret into the variable",
        )
    value = os.environ.get(variable)
    if not value:
        raise InputError(
            f"the environment variable {variable} is not set"
            if is_variable(variable)
            else "the environment variable of that name is not set",  # it may be the key itself
            place=setting,
            remedy=f"export {variable}=… and run again"
            if is_variable(variable)
            else "write the variable's name there, and the secret into the variable",
        )
    register_secret(value)
    return value


_MOST_ALIASED = 100_000  # values that aliases repeat, beside those that are written


class _TooManyAliases(Exception):
    """Aliases of aliases stand for more values than any code could visit."""


def _expanded_size(node: Any, known: dict[int, float]) -> float:
    """Return the number of values of a node, each alias counted as what it repeats."""
    if id(node) not in known:
        known[id(node)] = inf  # for a node that contains itself
        inner = node.value if isinstance(node, yaml.CollectionNode) else []
        pairs = [part for pair in inner for part in (pair if isinstance(pair, tuple) else (pair,))]
        known[id(node)] = 1 + sum(_expanded_size(part, known) for part in pairs)
    return known[id(node)]


class _Strict(yaml.SafeLoader):
    """YAML loader that refuses repeated keys (except after a merge, `<<: *other`)."""

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        sizes: dict[int, float] = {}
        if node is not None and _expanded_size(node, sizes) > _MOST_ALIASED + len(sizes):
            raise _TooManyAliases
        return node

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        earlier: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            if (key.tag, key.value) in earlier:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key.value!r} is given twice", key.start_mark
                )
            earlier.add((key.tag, key.value))
        return node


class KeyProblem(InputError):
    """A problem with a key of a section.

    `template` has {} where the dotted key goes: the sections above put their keys before it.
    """

    def __init__(self, keys: tuple[str, ...], template: str, remedy: str | None):
        self.keys, self.template = keys, template
        key = ".".join(keys)
        problem = template.format(key) if key else template.removeprefix("{}: ")
        super().__init__(problem, remedy=remedy)


def validate_nested(data: Any, model: type[T], info: ValidationInfo) -> T:
    """Return a section of a configuration as a model that was chosen while reading it."""
    try:
        return model.model_validate(data, context=info.context)
    except ValidationError as error:
        raise _first_problem(error, model) from None


def _first_problem(error: ValidationError, model: type[BaseModel]) -> KeyProblem:
    """Return the first of pydantic's problems (unknown keys before others), in plain words."""
    problems = error.errors(include_url=False)
    first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    holders, keys = _descend(model, first["loc"])
    if first["type"] == "extra_forbidden":
        known = sorted({name for holder in holders for name in holder.model_fields})
        matches = get_close_matches(keys[-1] if keys else "", known, 1)
        remedy = f"did you mean {matches[0]!r}?" if matches else f"it takes {', '.join(known)}"
        return KeyProblem(keys, "unknown key {!r}", remedy)
    if first["type"] == "missing":
        return KeyProblem(keys, "{!r} is missing", "add it")
    cause = first.get("ctx", {}).get("error") if first["type"] == "value_error" else None
    if isinstance(cause, KeyProblem):
        return KeyProblem((*keys, *cause.keys), cause.template, cause.remedy)
    if isinstance(cause, InputError):
        return KeyProblem(keys, "{}: " + _escape_braces(cause.problem), cause.remedy)
    message = first["msg"][:1].lower() + first["msg"][1:]
    message = message.removeprefix("value error, ")
    alternatives = [
        problem["msg"].removeprefix("Input should be ")
        for problem in problems
        if problem is not first and _descend(model, problem["loc"])[1] == keys
    ]
    message = ", or ".join([message, *alternatives])
    return KeyProblem(keys, "{}: " + _escape_braces(shorten(first["input"])), message)


def _escape_braces(text: str) -> str:
    """Protect text from `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")


def _descend(
    model: type[BaseModel], loc: tuple[int | str, ...]
) -> tuple[list[type[BaseModel]], tuple[str, ...]]:
    """Return the models that may hold the last key of a location, and the keys a user wrote."""
    holders: list[type[BaseModel]] = [model]
    below = holders
    keys: list[str] = []
    for index, step in enumerate(loc):
        if step == "[key]":
            continue
        if index and isinstance(loc[index - 1], int) and isinstance(step, str) and not below:
            continue  # the name of a type that pydantic tried for an item of a list
        keys.append(str(step))
        holders = below
        fields = [m.model_fields[step] for m in below if step in m.model_fields]
        if fields:
            below = [inner for field in fields for inner in _models(field.annotation)]
    return holders, tuple(keys)


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return every model inside an annotation (a union, a list, a dict)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models(part)]
