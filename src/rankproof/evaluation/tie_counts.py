"""What ties a run holds, without any judgement."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from rankproof.data import Format, RunLike, read_run
from rankproof.data.columns import no_rows
from rankproof.data.hits import RANKS
from rankproof.data.sources import stem
from rankproof.data.tables import Run
from rankproof.data.ties import ScoreType, rank_run
from rankproof.foundation.arrays import Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import out_of
from rankproof.presentation.charts import Chart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.tables import Column, Table

CUTOFFS = (1, 3, 5, 10, 20, 50, 100, 1000)


@dataclass(frozen=True, slots=True)
class TiesAt:
    """Ties in the top k, as means over queries."""

    cutoff: int
    distinct: float  # different scores among the top k
    group_size: float  # documents per different score
    crossed: float  # share of queries where a tie group reaches past rank k


@dataclass(frozen=True, slots=True)
class TieStatistics(Displayed):
    """The ties of one run.

    >>> found = rp.tie_statistics("try/saturated.trec")
    >>> found.tied, found.queries
    (30, 30)
    """

    kind = "ties"

    name: str
    queries: int
    documents: int
    score_dtype: str
    tied: int  # queries with a tie group of two or more
    tied_documents: float  # share of documents that tie with another
    largest: int  # documents in the largest tie group
    cut: int  # queries whose list seems cut inside a tie group
    at: tuple[TiesAt, ...]
    notes: tuple[str, ...] = ()  # what was guessed of the file

    def tables(self) -> list[Table]:
        """A row for each cutoff."""
        columns = [Column("k"), Column("distinct scores"), Column("mean group size")]
        rows = [(at.cutoff, at.distinct, at.group_size, at.crossed) for at in self.at]
        said = f"{self.name}: {out_of(self.tied, self.queries, 'query', 'has', 'have')} ties"
        return [Table([*columns, Column("tie crosses k")], rows, notes=[said, *self.notes])]

    def charts(self) -> list[Chart]:
        """The mean size of a tie group at each cutoff."""
        rows = [Range(f"k = {at.cutoff}", at.group_size, 1.0, at.group_size) for at in self.at]
        return [RangeChart(f"Tie groups of {self.name}", rows, "mean group size")]

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof ties --format json` prints for this run."""
        return {name: value for name, value in asdict(self).items() if name != "notes"}


@dataclass(frozen=True, slots=True)
class TieReport(Displayed):
    """The ties of several runs, in the order in which the runs were named.

    >>> rp.ties(["try/saturated.trec"]).runs[0].tied
    30
    """

    kind: ClassVar[str] = "ties"
    runs: tuple[TieStatistics, ...]

    def tables(self) -> list[Table]:
        """One row for each run, and one for each run and cutoff."""
        return [self._overview(), self._at_cutoffs()]

    def tables_for(self, form: str) -> list[Table]:
        """In CSV one table: the values of the whole run are repeated for each cutoff."""
        if form != "csv":
            return self.tables()
        overview, at_cutoffs = self.tables()
        by_run = {row[0]: row for row in overview.rows}
        rows = [(*by_run[row[0]], *row[1:]) for row in at_cutoffs.rows]
        return [Table([*overview.columns, *at_cutoffs.columns[1:]], rows)]

    def charts(self) -> list[Chart]:
        """The mean size of a tie group at each cutoff, a chart for each run."""
        return [chart for run in self.runs for chart in run.charts()]

    def figures(self) -> dict[str, float]:
        return {
            f"{run.name}/{figure}": float(getattr(run, figure))
            for run in self.runs
            for figure in ("tied", "tied_documents", "largest", "cut")
        }

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof ties --format json` prints."""
        return {"runs": [run.to_dict() for run in self.runs]}

    def _overview(self) -> Table:
        columns = [
            Column("run", "text", folds=True),
            Column("queries"),
            Column("documents", drop=2),
            Column("scores", "text", drop=1),
            *Column.each("tied queries", "tied documents", "largest group", "cut in a tie"),
        ]
        rows = [
            (
                run.name,
                run.queries,
                run.documents,
                run.score_dtype,
                run.tied,
                run.tied_documents,
                run.largest,
                run.cut,
            )
            for run in self.runs
        ]
        notes = [
            f"{run.name}: {out_of(run.cut, run.queries, 'list', 'ends', 'end')} inside a tie at "
            "full length; the retriever may have dropped documents that tie with the last"
            for run in self.runs
            if run.cut
        ]
        notes += [
            f"the scores of {run.name} are only ranks: ties cannot be seen in them"
            for run in self.runs
            if run.score_dtype == RANKS
        ]
        notes += [note for run in self.runs for note in run.notes]
        return Table(columns, rows, notes=notes)

    def _at_cutoffs(self) -> Table:
        columns = [
            Column("run", "text", folds=True),
            *Column.each("k", "distinct scores", "mean group size", "tie crosses k"),
        ]
        rows = [
            (run.name, at.cutoff, at.distinct, at.group_size, at.crossed)
            for run in self.runs
            for at in run.at
        ]
        notes = [
            "means over queries; “tie crosses k” is the share of queries where rank k splits a tie"
        ]
        return Table(columns, rows, notes=notes)


def tie_statistics(
    run: RunLike,
    cutoffs: Sequence[int] = CUTOFFS,
    *,
    score_dtype: ScoreType | None = None,
    memory: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    name: str | None = None,
    format: Format | None = None,  # noqa: A002
) -> TieStatistics:
    """Count a run's ties: distinct scores and group sizes at cutoffs, and where ties cross them.

    A list seems cut inside a tie when it is as long as the run's longest list, which others share
    or which is a round number, and ends in a group of two or more: the retriever may have left
    out documents that tie with the last one it kept. A file that would take more than `memory` is
    read in parts, as by `evaluate`.

    >>> found = rp.tie_statistics("try/saturated.trec", [5])
    >>> round(found.at[0].distinct, 2)
    2.07
    """
    for cutoff in cutoffs:
        if not 1 <= cutoff < 2**63:
            raise InputError(
                f"cutoff {cutoff} is {'below 1' if cutoff < 1 else 'past any list'}",
                remedy="count ranks from 1, in 64 bits",
            )
    if not isinstance(run, str | os.PathLike):
        table: Run = read_run(run, name=name)
        if not len(table):  # as a search of no documents gives it
            raise no_rows(table.name)
        return _of_table(table, cutoffs, score_dtype)

    from rankproof.evaluation.streaming.evaluate import in_parts, whole_or_parts
    from rankproof.evaluation.streaming.merging import part_as_run
    from rankproof.evaluation.streaming.rows import Rows

    label = name or stem(os.fspath(run))

    def whole(table: Run) -> TieStatistics:
        return _of_table(table, cutoffs, score_dtype)

    def parts(shards: list[Any]) -> TieStatistics:
        def count(rows: Rows) -> _Counted:
            return _count(part_as_run(rows, label, "float64"), cutoffs, score_dtype)

        stream, counted = in_parts(shards, count, memory, spill_dir)
        dtype = score_dtype or stream.dtype
        return _together(label, dtype, counted, cutoffs, tuple(stream.notes))

    return whole_or_parts(run, whole, parts, memory, spill_dir, name=label, form=format)


@dataclass(frozen=True, slots=True)
class _Counted:
    """The ties of some queries."""

    length: Int  # (q,) documents listed
    last: Int  # (q,) documents in the last group
    tied: int
    tied_documents: int
    largest: int
    distinct: Int  # (k, q) different scores in the top k
    crossed: Int  # (k,) queries where a group reaches past rank k


def _of_table(run: Run, cutoffs: Sequence[int], score_dtype: ScoreType | None) -> TieStatistics:
    counted = [_count(run, cutoffs, score_dtype)]
    return _together(run.name, score_dtype or run.dtype, counted, cutoffs, run.notes)


def _count(run: Run, cutoffs: Sequence[int], score_dtype: ScoreType | None) -> _Counted:
    ranking = rank_run(run, "input", score_dtype)
    some = np.diff(ranking.start) > 0  # a file of the run would not name the others either
    begin, end = ranking.start[:-1][some], ranking.start[1:][some]
    length = end - begin
    groups = np.diff(ranking.group_start)
    distinct, crossed = [], []
    for cutoff in cutoffs:
        stop = begin + np.minimum(cutoff, length)
        after = np.searchsorted(ranking.group_start, stop)
        distinct.append(after - np.searchsorted(ranking.group_start, begin))
        crossed.append(int((ranking.group_start[after] != stop).sum()))
    return _Counted(
        length=length,
        last=groups[np.searchsorted(ranking.group_start, end) - 1],
        tied=int(ranking.tied.sum()),
        tied_documents=int(groups[groups > 1].sum()),
        largest=int(groups.max()),
        distinct=np.array(distinct, np.int64).reshape(len(cutoffs), len(length)),
        crossed=np.array(crossed, np.int64),
    )


def _together(
    name: str,
    dtype: str,
    counted: Sequence[_Counted],
    cutoffs: Sequence[int],
    notes: tuple[str, ...],
) -> TieStatistics:
    """The ties of all queries; means are correctly rounded sums and do not depend on the parts."""
    length, last = (np.concatenate([getattr(c, f) for c in counted]) for f in ("length", "last"))
    distinct = np.concatenate([c.distinct for c in counted], axis=1)
    crossed = np.sum([c.crossed for c in counted], axis=0)
    queries, documents = len(length), int(length.sum())
    at = tuple(
        TiesAt(
            cutoff,
            int(distinct[k].sum()) / queries,
            math.fsum(np.minimum(cutoff, length) / distinct[k]) / queries,
            int(crossed[k]) / queries,
        )
        for k, cutoff in enumerate(cutoffs)
    )
    longest = int(length.max())
    full = length == longest
    capped = int(full.sum()) > 1 or (longest > 1 and longest % 10 == 0)
    return TieStatistics(
        name=name,
        queries=queries,
        documents=documents,
        score_dtype=dtype,
        tied=sum(c.tied for c in counted),
        tied_documents=sum(c.tied_documents for c in counted) / documents,
        largest=max(c.largest for c in counted),
        cut=int((full & (last > 1)).sum()) if capped else 0,
        at=at,
        notes=notes,
    )
