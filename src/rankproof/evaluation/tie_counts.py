"""Count the ties of a run, which needs no judgments.

Where the top k has few distinct scores, the order in it is left to chance. The statistics say how
often: distinct scores and group sizes at cutoffs, and lists that were probably cut inside a tie.
"""

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
from rankproof.evaluation.checks import rank_warning
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
    distinct: float  # distinct scores in the top k
    group_size: float  # documents per distinct score
    crossed: float  # share of queries where a tie group reaches past rank k


@dataclass(frozen=True, slots=True)
class TieStatistics(Displayed):
    """The ties of one run.

    >>> statistics = rp.tie_statistics("try/saturated.trec")
    >>> statistics.tied, statistics.queries
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
    notes: tuple[str, ...] = ()  # what the reader assumed

    def tables(self) -> list[Table]:
        """Return a row for each cutoff."""
        columns = [Column("k"), Column("distinct scores"), Column("mean group size")]
        rows = [(at.cutoff, at.distinct, at.group_size, at.crossed) for at in self.at]
        tied = f"{self.name}: {out_of(self.tied, self.queries, 'query', 'has', 'have')} ties"
        return [Table([*columns, Column("tie crosses k")], rows, notes=[tied, *self.notes])]

    def charts(self) -> list[Chart]:
        """Return the mean size of a tie group at each cutoff."""
        rows = [Range(f"k = {at.cutoff}", at.group_size, 1.0, at.group_size) for at in self.at]
        return [RangeChart(f"Tie groups of {self.name}", rows, "mean group size")]

    def to_dict(self) -> dict[str, Any]:
        """Return what `rankproof ties --format json` prints for this run."""
        return {name: value for name, value in asdict(self).items() if name != "notes"}


@dataclass(frozen=True, slots=True)
class TieReport(Displayed):
    """The ties of several runs, in the order in which the runs were named.

    >>> rp.ties(["try/saturated.trec"]).runs[0].tied
    30
    """

    kind: ClassVar[str] = "ties"
    runs: tuple[TieStatistics, ...]

    @property
    def warnings(self) -> list[str]:
        """Return what the readers assumed."""
        return [note for run in self.runs for note in run.notes]

    def tables(self) -> list[Table]:
        """Return a row for each run, and one for each run and cutoff."""
        return [self._overview(), self._at_cutoffs()]

    def full_tables(self) -> list[Table]:
        """One table: the values of the whole run are repeated for each cutoff."""
        overview, at_cutoffs = self.tables()
        by_run = {row[0]: row for row in overview.rows}
        rows = [(*by_run[row[0]], *row[1:]) for row in at_cutoffs.rows]
        return [Table([*overview.columns, *at_cutoffs.columns[1:]], rows)]

    def charts(self) -> list[Chart]:
        """Return a chart for each run: the mean size of a tie group at each cutoff."""
        return [chart for run in self.runs for chart in run.charts()]

    def figures(self) -> dict[str, float]:
        """Return the counts of each run under flat names."""
        return {
            f"{run.name}/{figure}": float(getattr(run, figure))
            for run in self.runs
            for figure in ("tied", "tied_documents", "largest", "cut")
        }

    def to_dict(self) -> dict[str, Any]:
        """Return what `rankproof ties --format json` prints."""
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
        ranks = [run.name for run in self.runs if run.score_dtype == RANKS]
        notes += [rank_warning(ranks)] if ranks else []
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

    A list is taken to be cut inside a tie if it ends in a group of two or more and is as long as
    the longest list, provided that several lists are as long or its length is a multiple of ten:
    the retriever may have dropped documents that tie with the last. A file that would take more
    than `memory` is read in parts, as by `evaluate`.

    >>> statistics = rp.tie_statistics("try/saturated.trec", [5])
    >>> round(statistics.at[0].distinct, 2)
    2.07
    """
    for cutoff in cutoffs:
        if not 1 <= cutoff < 2**63:
            raise InputError(
                f"cutoff {cutoff} is {'below 1' if cutoff < 1 else 'past any list'}",
                remedy="count ranks from 1, in 64 bits",
            )

    def count_whole(table: Run) -> TieStatistics:
        parts = [_count_ties(table, cutoffs, score_dtype)]
        return _merge_counts(table.name, score_dtype or table.dtype, parts, cutoffs, table.notes)

    if not isinstance(run, str | os.PathLike):
        table: Run = read_run(run, name=name)
        if not len(table):  # a search of no documents returns such a run
            raise no_rows(table.name)
        return count_whole(table)

    from rankproof.evaluation.streaming.evaluate import map_query_parts, read_whole_or_in_parts
    from rankproof.evaluation.streaming.merging import build_partial_run
    from rankproof.evaluation.streaming.rows import Rows

    label = name or stem(os.fspath(run))

    def count_shards(shards: list[Any]) -> TieStatistics:
        def count(rows: Rows) -> _TieCounts:
            return _count_ties(build_partial_run(rows, label), cutoffs, score_dtype)

        stream, parts = map_query_parts(shards, count, memory, spill_dir)
        dtype = score_dtype or stream.dtype
        return _merge_counts(label, dtype, parts, cutoffs, tuple(stream.notes))

    return read_whole_or_in_parts(
        run, count_whole, count_shards, memory, spill_dir, name=label, form=format
    )


@dataclass(frozen=True, slots=True)
class _TieCounts:
    """The ties of Q queries at K cutoffs."""

    length: Int  # (Q,) documents listed
    last_group: Int  # (Q,) documents in the last group
    tied: int  # queries with a group of two or more
    tied_documents: int
    largest: int  # documents in the largest group
    distinct: Int  # (K, Q) distinct scores in the top k
    crossed: Int  # (K,) queries where a group reaches past rank k


def _count_ties(run: Run, cutoffs: Sequence[int], score_dtype: ScoreType | None) -> _TieCounts:
    ranking = rank_run(run, "input", score_dtype)
    has_documents = np.diff(ranking.start) > 0  # a file could not name a query without any
    begin, end = ranking.start[:-1][has_documents], ranking.start[1:][has_documents]
    length = end - begin
    sizes = np.diff(ranking.group_start)
    distinct, crossed = [], []
    for cutoff in cutoffs:
        stop = begin + np.minimum(cutoff, length)
        next_group = np.searchsorted(ranking.group_start, stop)
        distinct.append(next_group - np.searchsorted(ranking.group_start, begin))
        crossed.append(int((ranking.group_start[next_group] != stop).sum()))
    return _TieCounts(
        length=length,
        last_group=sizes[np.searchsorted(ranking.group_start, end) - 1],
        tied=int(ranking.tied.sum()),
        tied_documents=int(sizes[sizes > 1].sum()),
        largest=int(sizes.max()),
        distinct=np.array(distinct, np.int64).reshape(len(cutoffs), len(length)),
        crossed=np.array(crossed, np.int64),
    )


def _merge_counts(
    name: str,
    dtype: str,
    parts: Sequence[_TieCounts],
    cutoffs: Sequence[int],
    notes: tuple[str, ...],
) -> TieStatistics:
    """Return the statistics of all queries.

    Means are correctly rounded sums, so they do not depend on how the run was divided.
    """
    length = np.concatenate([part.length for part in parts])
    last_group = np.concatenate([part.last_group for part in parts])
    distinct = np.concatenate([part.distinct for part in parts], axis=1)
    crossed = np.sum([part.crossed for part in parts], axis=0)
    queries, documents = len(length), int(length.sum())
    at = tuple(
        TiesAt(
            cutoff,
            distinct=int(distinct[k].sum()) / queries,
            group_size=math.fsum(np.minimum(cutoff, length) / distinct[k]) / queries,
            crossed=int(crossed[k]) / queries,
        )
        for k, cutoff in enumerate(cutoffs)
    )
    longest = int(length.max())
    is_full = length == longest
    has_limit = int(is_full.sum()) > 1 or (longest > 1 and longest % 10 == 0)
    return TieStatistics(
        name=name,
        queries=queries,
        documents=documents,
        score_dtype=dtype,
        tied=sum(part.tied for part in parts),
        tied_documents=sum(part.tied_documents for part in parts) / documents,
        largest=max(part.largest for part in parts),
        cut=int((is_full & (last_group > 1)).sum()) if has_limit else 0,
        at=at,
        notes=notes,
    )
