"""Models by name: what is at hand, and when the hub is asked.

A folder or a model in the local cache is loaded without a network. Any other name is looked up on
the Hugging Face hub once, quickly, unless that is forbidden (`--offline`, HF_HUB_OFFLINE=1): a name
that was mistyped is told of in a second, with the names that are at hand.
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
_PATIENCE_S = 3.0  # for one question to the hub
_YES = {"1", "ON", "YES", "TRUE"}


def go_offline(wanted: bool) -> None:
    """Forbid the hub for this process and those it starts."""
    if wanted:
        os.environ[OFFLINE] = "1"
        os.environ["TRANSFORMERS_OFFLINE"] = "1"


def is_offline() -> bool:
    names = (OFFLINE, "TRANSFORMERS_OFFLINE")
    return any(os.environ.get(name, "").upper() in _YES for name in names)


def locate(name: str) -> tuple[str, dict[str, Any]]:
    """What to load a model by, and how: a folder, a name in the cache, or one that the hub has."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return str(folder), {}
    try:
        hub: Any = importlib.import_module("huggingface_hub")
    except ImportError:  # then nothing can be fetched either: the library says what it misses
        return name, {}
    spelled = _spellings(name)
    if any(_is_held(hub, each) for each in spelled):
        return name, {"local_files_only": True}
    if is_offline():
        raise _absent(name, f"{_ABSENT}, and the hub may not be asked ({OFFLINE})", hub)
    if Path(name).is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise _absent(name, "there is no such folder", hub)
    said = _ask(hub, spelled)
    if said is not None:
        raise _absent(name, said, hub)
    return name, {}


_ABSENT = "it is not on this machine"


def _is_held(hub: Any, name: str) -> bool:
    try:
        hub.snapshot_download(name, local_files_only=True)
    except Exception:  # not in the cache, or no name for a model
        return False
    return True


def _spellings(name: str) -> list[str]:
    """sentence-transformers finds its own models without their folder."""
    return [name] if "/" in name else [name, f"sentence-transformers/{name}"]


def _ask(hub: Any, names: list[str]) -> str | None:
    """None where the hub has one of the names, else what it says; it is not waited for long."""
    answers: list[str | None] = []

    def ask() -> None:
        said = "the hub has no such model"
        for name in names:
            try:
                hub.HfApi().model_info(name, timeout=_PATIENCE_S)
            except Exception as error:  # whatever the library below raises
                status = getattr(getattr(error, "response", None), "status_code", None)
                if status is None and type(error).__name__ != "HFValidationError":
                    said = f"{_ABSENT}, and the hub does not answer ({_first_line(error)})"
                    break
                if status == 403:
                    said = "the hub has it behind a gate: accept its terms, and log in"
                    break
            else:
                answers.append(None)
                return
        answers.append(said)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE_S)
    return answers[0] if answers else f"{_ABSENT}, and the hub does not answer in time"


def at_hand(hub: Any) -> list[str]:
    """Models in the local cache."""
    try:
        held = hub.scan_cache_dir().repos
    except Exception:  # no cache, or one that cannot be read
        return []
    return sorted(repo.repo_id for repo in held if repo.repo_type == "model")


def _absent(name: str, problem: str, hub: Any) -> InputError:
    known = ["wordllama", *at_hand(hub)]
    near = difflib.get_close_matches(name, known, 3, 0.5) or known[:5]
    return InputError(
        problem,
        place=shorten(name),
        remedy=f"this machine has {', '.join(near)}; or name a folder with a saved model",
    )


def _first_line(error: BaseException) -> str:
    said = first_line(error)
    return said if len(said) <= 100 else f"{said[:99]}…"
