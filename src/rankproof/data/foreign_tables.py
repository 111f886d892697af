"""Tables as other packages hold them → a dict, a frame or rows.

Told by the module of their type, so that no package is imported to look.
"""

from __future__ import annotations

from typing import Any

from rankproof.data.columns import Kind
from rankproof.foundation.errors import InputError


def unpacked(source: Any, kind: Kind) -> tuple[str | None, Any]:
    """The name that a peer's table bears, and what it holds; anything else as it is."""
    package, _, _ = type(source).__module__.partition(".")
    if package == "ranx" and hasattr(source, "to_dict"):
        _check_kind(source, kind, {"Run": "run", "Qrels": "qrels"})
        return source.name, dict(source.to_dict())
    if package == "datasets" and hasattr(source, "to_polars"):
        return None, source.to_polars()
    if package == "trectools":
        _check_kind(source, kind, {"TrecRun": "run", "TrecQrel": "qrels"})
        return None, source.run_data if kind == "run" else source.qrels_data
    if package == "ir_datasets" and hasattr(source, "qrels_iter"):
        return None, source.scoreddocs_iter() if kind == "run" else source.qrels_iter()
    return None, source


def _check_kind(source: Any, kind: Kind, kinds: dict[str, Kind]) -> None:
    other = kinds.get(type(source).__name__, kind)
    if other != kind:
        raise swapped(kind, "judgements" if other == "qrels" else "a run")


def swapped(kind: Kind, given: str) -> InputError:
    """The error for a run in the place of judgements, or the other way round."""
    return InputError(
        f"{given} in the place of {'the run' if kind == 'run' else 'the judgements'}",
        place=kind,
        remedy="name the judgments first and the run second: evaluate(qrels, run, …)",
    )
