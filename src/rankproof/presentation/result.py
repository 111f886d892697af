"""What every result can do, and what is shown of it.

A command returns a `Result`. Terminal, CSV, Markdown, LaTeX, HTML, notebook and report show its
`Presentation` and nothing else, live or read back from a stored result; so a result is described
in one place, by the class that holds its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from rankproof.presentation.tables import Table


@dataclass(frozen=True)
class Summary:
    """A result in words: the answer, what changes how it is read, and what to do next."""

    answer: str  # one sentence with its number; "" where the table is the answer
    notes: Sequence[str] = field(default=())  # that apply to this result, the weightiest first
    next_step: str = ""  # a command that can be pasted
    details: Sequence[str] = field(default=())  # definitions, policy, method; shown by --explain


@runtime_checkable
class Result(Protocol):
    """All that a terminal, a file, a notebook or a report asks of a result."""

    kind: ClassVar[str]  # in the manifest: "comparison"

    @property
    def exit_code(self) -> int:
        """0 done or passed, 1 a check failed, 3 undecided."""

    def summary(self) -> Summary:
        """The result in words."""

    def tables(self) -> list[Table]:
        """The tables, the most important first."""

    def charts(self) -> list[Any]:
        """Charts as data; presentation.charts draws them."""

    def to_dict(self) -> dict[str, Any]:
        """What `--format json` prints, apart from the manifest."""

    def figures(self) -> dict[str, float]:
        """Values by a flat name, for experiment trackers."""
