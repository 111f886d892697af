"""What a result depends on, as one JSON value for every cache key, store and manifest.

It holds the settings that change a result, the digest of a model's or a run's files, the versions
of the packages that compute it and the source of a user's own class. It never holds how a result is
asked for (an address, the name of a key's variable, timeouts, batches): a server that moved is not
paid twice.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import uuid
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from rankproof.foundation.config import Settings
from rankproof.foundation.manifest import digest, digest_file, machine, versions
from rankproof.retrieval.components import (
    ForeignSettings,
    GuardedComponent,
    component_of,
    load_object,
)
from rankproof.retrieval.protocols import Vectors
from rankproof.retrieval.sentence_models import has_weights, model_digest

_random_ids: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def identity(chosen: Any) -> Any:
    """Return a JSON value that differs wherever the results of two settings or objects may."""
    if chosen is None:
        return None
    if not isinstance(chosen, Settings):
        return _object_identity(chosen)
    if isinstance(chosen, ForeignSettings):
        own_keys = {name: _own_key_identity(value) for name, value in chosen.own_keys.items()}
        return {"type": chosen.type, "own": own_keys, "source": source_digest(chosen.type)}
    component = component_of(chosen)
    result: dict[str, Any] = {
        "kind": component.kind,
        "versions": versions(component.packages),
    }
    for name in type(chosen).model_fields:
        if name not in chosen.operation:
            value = getattr(chosen, name)
            if name == "model" and not component.network:
                value = model_digest(value)
            result[name] = value_identity(value)
    # Further values that decide: a prompt that ships with the package, the source of a function.
    return {**result, **getattr(chosen, "decides", {})}


def fingerprint(chosen: Any) -> str:
    """Return the digest of the identity."""
    return digest(identity(chosen))


def value_identity(value: Any) -> Any:
    """Return the identity of any value of a setting: settings, files, containers, plain values."""
    if isinstance(value, Path):
        return digest_file(value) if value.is_file() else str(value)
    if isinstance(value, Settings):
        try:
            return identity(value)
        except ValueError:  # settings that are not those of a component
            return {name: value_identity(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, dict):
        return {str(key): value_identity(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [value_identity(inner) for inner in value]
    if value is None or isinstance(value, str | int | float):
        return value
    return _object_identity(value)  # such as the embedder of a search engine


def _own_key_identity(value: Any) -> Any:
    """Return the identity of a setting of a user's class; a path counts as the file's content."""
    if not isinstance(value, str) or "://" in value:
        return value_identity(value)
    with suppress(OSError, RuntimeError):  # a text too long for a path, or an unknown ~user
        path = Path(value).expanduser()
        if has_weights(path):
            return model_digest(value)
        if path.is_file():
            return digest_file(path)
    return value


def _object_identity(component: Any) -> dict[str, Any]:
    """Return the identity that an object states; without one, a random id that is never reused."""
    if isinstance(component, GuardedComponent):
        component = component.component
    kind = f"{type(component).__module__}:{type(component).__qualname__}"
    own_fingerprint = getattr(component, "fingerprint", None)
    if isinstance(own_fingerprint, str) and own_fingerprint:
        return {"object": kind, "fingerprint": own_fingerprint}
    model = getattr(component, "model", None)
    if isinstance(model, str) and model and hasattr(component, "parameters"):  # a judge
        parameters = json.loads(json.dumps(component.parameters, default=str))
        return {"object": kind, "model": model, "parameters": parameters}
    try:
        return {"object": kind, "unnamed": _random_ids.setdefault(component, uuid.uuid4().hex)}
    except TypeError:  # the object cannot be hashed or weakly referenced
        return {"object": kind, "unnamed": uuid.uuid4().hex}


def is_reproducible(identity_value: Any) -> bool:
    """True if another process can state the same identity: no random id is in it."""
    if isinstance(identity_value, dict):
        return "unnamed" not in identity_value and all(
            map(is_reproducible, identity_value.values())
        )
    return not isinstance(identity_value, list | tuple) or all(map(is_reproducible, identity_value))


def environment_digest(packages: tuple[str, ...]) -> str:
    """Return a digest of the machine and the package versions, on which measured times depend."""
    return digest([machine(), versions(packages)])


def contents_digest(description: Any, vectors: Vectors | None, ids: Iterable[str] = ()) -> str:
    """Return the digest that names a stored index: of a JSON description, vectors and ids."""
    sha = hashlib.sha256(json.dumps(description).encode())
    if vectors is not None:
        sha.update(np.ascontiguousarray(vectors).data)
    sha.update("\0".join(ids).encode())
    return sha.hexdigest()


def source_digest(path: str) -> str | None:
    """Return the digest of the file that defines the user's class or function `module:Name`."""
    try:
        file = inspect.getsourcefile(load_object(path, "parts"))
    except TypeError:
        return None
    # Functions of Python itself may name a file that does not exist.
    return digest_file(file) if file is not None and Path(file).is_file() else None
