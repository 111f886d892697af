"""Find a model by name: in a folder, in the local cache, or on the Hugging Face hub.

A name that is not on this machine is looked up on the hub once, with a short timeout, unless that
is forbidden (`--offline`, HF_HUB_OFFLINE=1). A mistyped name is refused within seconds, with the
names that are available.
"""

from __future__ import annotations

import difflib
import importlib
import os
import threading
from pathlib import Path
from typing import Any

from rankproof.foundation.errors import InputError, first_line, shorten

OFFLINE = "HF_HUB_OFFLINE"
_HUB_TIMEOUT = 3.0  # seconds
_TRUE_WORDS = {"1", "ON", "YES", "TRUE"}
_NOT_LOCAL = "it is not on this machine"


def go_offline(offline: bool) -> None:
    """Forbid the hub for this process and its children, if `offline`."""
    if offline:
        os.environ[OFFLINE] = "1"
        os.environ["TRANSFORMERS_OFFLINE"] = "1"


def is_offline() -> bool:
    """True if the environment forbids the hub."""
    variables = (OFFLINE, "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(variable, "").upper() in _TRUE_WORDS for variable in variables)


def locate(name: str) -> tuple[str, dict[str, Any]]:
    """Return what to load a model by (a folder or a name) and the arguments to load it with."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return str(folder), {}
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError:  # nothing can be downloaded either; the model's library reports the lack
        return name, {}
    spellings = _spellings(name)
    if any(_is_cached(hub, spelling) for spelling in spellings):
        return name, {"local_files_only": True}
    if is_offline():
        raise _missing_model(name, f"{_NOT_LOCAL}, and the hub may not be asked ({OFFLINE})", hub)
    if Path(name).is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise _missing_model(name, "there is no such folder", hub)
    problem = _hub_problem(hub, spellings)
    if problem is not None:
        raise _missing_model(name, problem, hub)
    return name, {}


def _is_cached(hub: Any, name: str) -> bool:
    try:
        hub.snapshot_download(name, local_files_only=True)
    except Exception:  # not in the cache, or not a valid name
        return False
    return True


def _spellings(name: str) -> list[str]:
    """sentence-transformers finds its own models without their organization's name."""
    return [name] if "/" in name else [name, f"sentence-transformers/{name}"]


def _hub_problem(hub: Any, names: list[str]) -> str | None:
    """Return why the hub cannot deliver any of the names, or None where it has one.

    The question runs in a thread, since the library may repeat it for longer than the timeout.
    """
    problems: list[str | None] = []

    def ask() -> None:
        problem: str | None = "the hub has no such model"
        for name in names:
            try:
                hub.HfApi().model_info(name, timeout=_HUB_TIMEOUT)
            except Exception as error:  # whatever the libraries below raise
                status = getattr(getattr(error, "response", None), "status_code", None)
                if status is None and type(error).__name__ != "HFValidationError":
                    problem = f"{_NOT_LOCAL}, and the hub does not answer ({_short_line(error)})"
                    break
                if status == 403:
                    problem = "the hub has it behind a gate: accept its terms, and log in"
                    break
            else:
                problem = None
                break
        problems.append(problem)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_HUB_TIMEOUT)
    return problems[0] if problems else f"{_NOT_LOCAL}, and the hub does not answer in time"


def cached_models(hub: Any) -> list[str]:
    """Return the names of the models in the local cache."""
    try:
        repositories = hub.scan_cache_dir().repos
    except Exception:  # no cache, or an unreadable one
        return []
    return sorted(repo.repo_id for repo in repositories if repo.repo_type == "model")


def _missing_model(name: str, problem: str, hub: Any) -> InputError:
    available = ["wordllama", *cached_models(hub)]
    suggestions = difflib.get_close_matches(name, available, 3, 0.5) or available[:5]
    return InputError(
        problem,
        place=shorten(name),
        remedy=f"this machine has {', '.join(suggestions)}; or name a folder with a saved model",
    )


def _short_line(error: BaseException) -> str:
    line = first_line(error)
    return line if len(line) <= 100 else f"{line[:99]}…"
