"""What all results share in Python: print, notebook, frames and charts.

The mix-in needs `kind`, `tables()` and, where there is more to show, `summary()` and `charts()`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rankproof.foundation.errors import import_extra
from rankproof.foundation.files import check_ending, write_atomically
from rankproof.foundation.redaction import redact
from rankproof.presentation.charts import Chart, chart_from_dict, chart_to_dict
from rankproof.presentation.html import NOTEBOOK_ROWS, charts_fragment, charts_page, fragment
from rankproof.presentation.result import Presentation, Summary
from rankproof.presentation.svg import to_svg
from rankproof.presentation.tables import Table
from rankproof.presentation.terminal import to_text

if TYPE_CHECKING:
    import polars as pl


class Displayed(ABC):
    """A mix-in for results: print, notebook, frames and charts, all from its presentation."""

    __slots__ = ()
    kind: ClassVar[str] = ""

    @abstractmethod
    def tables(self) -> list[Table]:
        """The tables, the most important first."""

    def full_tables(self) -> list[Table]:
        """The tables with every column, for CSV, frames and --wide; by default the same."""
        return self.tables()

    def summary(self) -> Summary:
        """The result in words; by default the tables say all."""
        return Summary()

    def charts(self) -> list[Chart]:
        """Charts as data; by default none."""
        return []

    @property
    def exit_code(self) -> int:
        """0 done or passed, 1 a check failed, 3 undecided."""
        return 0

    def figures(self) -> dict[str, float]:
        """Values by a flat name, for experiment trackers; by default none."""
        return {}

    def __str__(self) -> str:
        return to_text(Presentation.of(self))

    def _repr_html_(self) -> str:
        return fragment(Presentation.of(self), NOTEBOOK_ROWS)

    def to_polars(self) -> pl.DataFrame:
        """Return the rows of the first table as a polars frame."""
        import polars as pl

        return pl.DataFrame(self.full_tables()[0].plain(), strict=False)

    def to_pandas(self) -> Any:
        """Return the rows of the first table as a pandas frame."""
        return import_extra("pandas", "a pandas frame", "report").DataFrame(
            self.full_tables()[0].plain()
        )

    def plot(self) -> Charts:
        """Return the charts: a notebook shows them, `save` writes SVG or HTML."""
        return Charts(self.charts())

    def chart_file(self, ending: str) -> str:
        """Return the charts as the text of a file of .svg or .html."""
        return self.plot().to_svg() if ending == ".svg" else self.plot().to_html()


@dataclass(frozen=True)
class Charts:
    """Charts to look at in a notebook, or to save."""

    charts: Sequence[Chart]

    def __post_init__(self) -> None:
        # Labels and titles may name a model by its address: no secret gets into a picture.
        shown = [chart_from_dict(redact(chart_to_dict(chart))) for chart in self.charts]
        object.__setattr__(self, "charts", shown)

    def _repr_html_(self) -> str:
        return charts_fragment(self.charts)

    def to_svg(self) -> str:
        """Return the charts below one another as one SVG file."""
        return to_svg(self.charts)

    def to_html(self) -> str:
        """Return the charts as a page that needs nothing else, with their data as tables."""
        return charts_page(self.charts)

    def save(self, path: str | Path, inputs: Iterable[str] = ()) -> Path:
        """Write the charts as the ending says, .svg or .html; no file of `inputs` is replaced."""
        path = Path(path)
        text = self.to_svg() if check_chart_path(path) == ".svg" else self.to_html()
        return write_atomically(path, lambda file: file.write_bytes(text.encode()), inputs=inputs)


def check_chart_path(path: Path) -> str:
    """Return the ending of a file for charts; refuse all but .svg and .html."""
    return check_ending(path, (".svg", ".html"), "charts")
