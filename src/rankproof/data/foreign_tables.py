"""Turn tables of other packages into a dict, a frame or rows.

They are recognized by the module of their type, so that no package has to be imported.
"""

from __future__ import annotations

from typing import Any

from rankproof.data.columns import Kind
from rankproof.foundation.errors import InputError


def unpacked(source: Any, kind: Kind) -> tuple[str | None, Any]:
    """Return the name and content of another package's table; any other object unchanged."""
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
    """Refuse a run where judgments are expected, or the reverse, by the name of its type."""
    other = kinds.get(type(source).__name__, kind)
    if other != kind:
        raise swapped(kind, "judgements" if other == "qrels" else "a run")


def swapped(kind: Kind, actual: str) -> InputError:
    """Return the error for a run in the place of judgments, or the reverse."""
    return InputError(
        f"{actual} in the place of {'the run' if kind == 'run' else 'the judgements'}",
        place=kind,
        remedy="name the judgments first and the run second: evaluate(qrels, run, …)",
    )
