"""What decides a result: one answer, for every cache key, store and manifest.

The settings that change an answer, the digest of a model's or a run's files, the versions of the
packages that compute it, the source of a user's own class. Never what only asks for it (an
address, a key's variable, patience, batches): a server that moved is not paid twice.
"""

from __future__ import annotations

import inspect
import json
import uuid
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankproof.foundation.config import Settings
from rankproof.foundation.manifest import digest, digest_file, machine, versions
from rankproof.retrieval.components import Foreign, Theirs, load_object, part_of
from rankproof.retrieval.sentence_models import digest_name, is_model

_unnamed: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def identity(chosen: Any) -> Any:
    """Of settings or of an object handed in: a JSON value that differs where answers may."""
    if chosen is None:
        return None
    if not isinstance(chosen, Settings):
        return _said(chosen)
    if isinstance(chosen, Foreign):
        own = {name: _own(value) for name, value in chosen.own.items()}
        return {"type": chosen.type, "own": own, "source": source_digest(chosen.type)}
    part = part_of(chosen)
    said: dict[str, Any] = {"kind": part.kind, "versions": versions(part.packages)}
    for name in type(chosen).model_fields:
        if name in chosen.operation:
            continue
        value = getattr(chosen, name)
        if name == "model" and not part.network:
            value = digest_name(value)
        said[name] = decides(value)
    # What no setting says: a prompt that ships with the package, the source of a function.
    return {**said, **getattr(chosen, "decides", {})}


def _own(value: Any) -> Any:
    """Of a key that only a user's class knows: the files that it may name are not their names."""
    if not isinstance(value, str) or "://" in value:
        return decides(value)
    with suppress(OSError, RuntimeError):  # a text too long for a name, a user who is not there
        path = Path(value).expanduser()
        if is_model(path):
            return digest_name(value)
        if path.is_file():
            return digest_file(path)
    return value


def fingerprint(chosen: Any) -> str:
    """A digest of the identity."""
    return digest(identity(chosen))


def lasting(decides: Any) -> bool:
    """Whether what is decided so can be asked for again in another process."""
    if isinstance(decides, dict):
        return "unnamed" not in decides and all(map(lasting, decides.values()))
    return not isinstance(decides, list | tuple) or all(map(lasting, decides))


def circumstances(packages: tuple[str, ...]) -> str:
    """What times depend on beside what is done: another machine, or other versions, differ."""
    return digest([machine(), versions(packages)])


def decides(value: Any) -> Any:
    """Of any value of a setting: what in it decides a result."""
    if isinstance(value, Path):
        return digest_file(value) if value.is_file() else str(value)
    if isinstance(value, Settings):
        try:
            return identity(value)
        except ValueError:  # no part by itself
            return {name: decides(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {str(key): decides(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [decides(inner) for inner in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return _said(value)  # an object inside: the embedder of an engine


def _said(given: Any) -> dict[str, Any]:
    """What an object says of itself; one that says nothing is like no other, and nothing of it is
    used again."""
    given = given.given if isinstance(given, Theirs) else given
    kind = f"{type(given).__module__}:{type(given).__qualname__}"
    own = getattr(given, "fingerprint", None)
    if isinstance(own, str) and own:
        return {"object": kind, "fingerprint": own}
    model = getattr(given, "model", None)
    if isinstance(model, str) and model and hasattr(given, "parameters"):  # a judge
        return {
            "object": kind,
            "model": model,
            "parameters": json.loads(json.dumps(given.parameters, default=str)),
        }
    try:
        return {"object": kind, "unnamed": _unnamed.setdefault(given, uuid.uuid4().hex)}
    except TypeError:  # cannot be weakly held or hashed
        return {"object": kind, "unnamed": uuid.uuid4().hex}


def source_digest(path: str) -> str | None:
    """The digest of the file in which a user's class or function is written."""
    try:
        file = inspect.getsourcefile(load_object(path, "parts"))
    except TypeError:
        return None
    # Python's own functions name a file that is nowhere.
    return digest_file(file) if file is not None and Path(file).is_file() else None
