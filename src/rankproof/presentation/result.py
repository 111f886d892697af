"""What every result can do, and what is shown of it.

A command returns a `Result`. Terminal, CSV, Markdown, LaTeX, HTML, notebook and report show its
`Presentation` and nothing else, live or read back from a stored result; so a result is described
in one place, by the class that holds its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from rankproof.foundation.redaction import redact, remove_secrets
from rankproof.presentation.charts import Chart, chart_from_dict, chart_to_dict
from rankproof.presentation.json_values import plain
from rankproof.presentation.tables import Table

KEY = "presentation"  # of a stored result
# Replaces `{inputs}` in a next step: the judgments and runs as they were typed.
NO_INPUTS = "QRELS RUN..."
INPUTS: ContextVar[str] = ContextVar("inputs", default=NO_INPUTS)
MAX_NOTES = 3  # that are shown
STORED_ROWS = 1000  # most rows of each table in a stored result


@dataclass(frozen=True)
class Summary:
    """A result in words: the answer, what changes how it is read, and what to do next."""

    answer: str = ""  # one sentence with its number; "" where the table is the answer
    notes: Sequence[str] = field(default=())  # that apply to this result, the weightiest first
    next_step: str = ""  # a command that can be pasted
    details: Sequence[str] = field(default=())  # definitions, policy, method; shown by --explain
    caption: str = ""  # one sentence for a paper; shown by --caption

    @classmethod
    def of(
        cls,
        answer: str,
        notes: Sequence[str],
        *,
        next_step: str = "",
        details: Sequence[str] = (),
    ) -> Summary:
        """Return a summary with at most three notes, the first ones; the others become details."""
        notes = list(dict.fromkeys(notes))
        shown, others = notes[:MAX_NOTES], notes[MAX_NOTES:]
        details = [text for text in dict.fromkeys([*others, *details]) if text not in shown]
        return cls(answer, shown, next_step, details)

    def with_inputs(self, inputs: str) -> Summary:
        """Return the summary with these inputs in the next step."""
        return replace(self, next_step=self.next_step.replace("{inputs}", inputs))


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

    def full_tables(self) -> list[Table]:
        """The tables with every column, for CSV and --wide."""

    def charts(self) -> list[Chart]:
        """Charts as data; presentation.svg draws them."""

    def to_dict(self) -> dict[str, Any]:
        """What `--format json` prints, apart from the manifest."""

    def figures(self) -> dict[str, float]:
        """Values by a flat name, for experiment trackers."""


class Presentable(Protocol):
    """The part of a result that is shown."""

    kind: ClassVar[str]

    def summary(self) -> Summary:
        """The result in words."""

    def tables(self) -> list[Table]:
        """The tables, the most important first."""

    def charts(self) -> list[Chart]:
        """Charts as data."""


@dataclass(frozen=True)
class Presentation:
    """All that is shown of a result, as plain data without secrets.

    It is the same live and read back from JSON, so whatever is written from it is too.
    """

    kind: str
    summary: Summary
    tables: Sequence[Table] = field(default=())
    charts: Sequence[Chart] = field(default=())

    @classmethod
    def of(cls, result: Presentable) -> Presentation:
        """Return what is shown of a result."""
        return cls.assemble(result.kind, result.summary(), result.tables(), result.charts())

    @classmethod
    def assemble(
        cls, kind: str, summary: Summary, tables: Sequence[Table], charts: Sequence[Chart] = ()
    ) -> Presentation:
        """Return these parts as a presentation: without secrets, undefined values as None."""
        return cls.from_dict(_to_dict(kind, summary, tables, charts))

    def to_dict(self) -> dict[str, Any]:
        """Return the presentation as JSON holds it."""
        return _to_dict(self.kind, self.summary, self.tables, self.charts)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Presentation:
        """Read what `to_dict` returned."""
        return cls(
            kind=data["kind"],
            summary=Summary(**data["summary"]),
            tables=[Table.from_dict(table) for table in data["tables"]],
            charts=[chart_from_dict(chart) for chart in data["charts"]],
        )

    def shortened(self, limit: int = STORED_ROWS) -> Presentation:
        """Return the presentation with at most `limit` rows a table, and a note where some went."""
        tables = [table.shortened(limit) for table in self.tables]
        return Presentation(self.kind, self.summary, tables, self.charts)


def _to_dict(
    kind: str, summary: Summary, tables: Sequence[Table], charts: Sequence[Chart]
) -> dict[str, Any]:
    # Cells may be addresses that the reader needs; sentences and pictures get around further.
    written = [table.to_dict() for table in tables]
    return {
        "kind": kind,
        "summary": redact(plain(asdict(summary.with_inputs(INPUTS.get())))),
        "tables": [{**remove_secrets(table), "notes": redact(table["notes"])} for table in written],
        "charts": redact([chart_to_dict(chart) for chart in charts]),
    }


def stored(presentation: Presentation | Presentable) -> dict[str, Any]:
    """Return what a stored result holds under `KEY`: the presentation, long tables shortened."""
    if not isinstance(presentation, Presentation):
        presentation = Presentation.of(presentation)
    return presentation.shortened().to_dict()


def read_presentation(data: Mapping[str, Any]) -> Presentation | None:
    """Return the presentation in a stored result; None where there is none."""
    return Presentation.from_dict(data[KEY]) if isinstance(data.get(KEY), Mapping) else None
