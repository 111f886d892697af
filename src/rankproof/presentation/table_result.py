"""A result that is no more than its tables and its JSON: lists of what there is, counts, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rankproof.presentation.display import Displayed
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table


@dataclass(frozen=True, repr=False)
class TableResult(Displayed):
    """Tables for people and the same as data, for commands that compute no scores."""

    kind: str = ""  # type: ignore[misc]
    data: Mapping[str, Any] = field(default_factory=dict)  # as JSON holds it
    shown: Sequence[Table] = ()
    answer: str = ""
    notes: Sequence[str] = ()
    warnings: Sequence[str] = field(default=())  # lines for standard error

    def summary(self) -> Summary:
        """The answer and the notes."""
        return Summary(self.answer, notes=self.notes)

    def tables(self) -> list[Table]:
        """The tables."""
        return list(self.shown)

    def to_dict(self) -> dict[str, Any]:
        """What `--format json` prints."""
        return dict(self.data)

    def __repr__(self) -> str:
        return str(self)
