"""What ties a run holds, without any judgement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rankproof.errors import InputError
from rankproof.records import RunLike, read_run
from rankproof.results.displayed import Displayed, ranges
from rankproof.results.tables import Column, Table
from rankproof.tables import Run
from rankproof.ties import ScoreType, rank_run

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
    """The ties of one run."""

    name: str
    queries: int
    documents: int
    score_dtype: str
    tied: int  # queries with a tie group of two or more
    tied_documents: float  # share of documents that tie with another
    largest: int  # documents in the largest tie group
    cut: int  # queries whose list seems cut inside a tie group
    at: tuple[TiesAt, ...]

    def _shown(self) -> Table:
        columns = [Column("k"), Column("distinct scores"), Column("mean group size")]
        rows = [(at.cutoff, at.distinct, at.group_size, at.crossed) for at in self.at]
        said = f"{self.name}: {self.tied} of {self.queries} queries have ties"
        return Table([*columns, Column("tie crosses k")], rows, notes=[said])

    def plot(self) -> Any:
        """The mean size of a tie group at each cutoff."""
        rows = [
            {"k": str(at.cutoff), "mean group size": at.group_size, "one": 1.0} for at in self.at
        ]
        return ranges(rows, label="k", value="mean group size", low="one", high="mean group size")

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof ties --format json` prints for this run."""
        return asdict(self)


def tie_statistics(
    run: RunLike,
    cutoffs: Sequence[int] = CUTOFFS,
    *,
    score_dtype: ScoreType | None = None,
) -> TieStatistics:
    """Count a run's ties: distinct scores and group sizes at cutoffs, and where ties cross them.

    A list seems cut inside a tie when it is as long as the run's longest list, which others share
    or which is a round number, and ends in a group of two or more: the retriever may have left
    out documents that tie with the last one it kept.
    """
    for cutoff in cutoffs:
        if cutoff < 1:
            raise InputError(f"cutoff {cutoff} is below 1", remedy="count ranks from 1")
    table: Run = read_run(run)
    ranking = rank_run(table, "input", score_dtype)
    begin, length = ranking.start[:-1], np.diff(ranking.start)
    end = ranking.start[1:]
    groups = np.diff(ranking.group_start)

    at = []
    for cutoff in cutoffs:
        stop = begin + np.minimum(cutoff, length)
        distinct = np.searchsorted(ranking.group_start, stop) - np.searchsorted(
            ranking.group_start, begin
        )
        on_boundary = ranking.group_start[np.searchsorted(ranking.group_start, stop)] == stop
        at.append(
            TiesAt(
                cutoff,
                float(distinct.mean()),
                float((np.minimum(cutoff, length) / distinct).mean()),
                float((~on_boundary).mean()),
            )
        )

    longest = int(length.max())
    full = length == longest
    capped = int(full.sum()) > 1 or (longest > 1 and longest % 10 == 0)
    last_group = groups[np.searchsorted(ranking.group_start, end) - 1]
    return TieStatistics(
        name=table.name,
        queries=len(length),
        documents=len(table),
        score_dtype=score_dtype or table.dtype,
        tied=int(ranking.tied.sum()),
        tied_documents=float(groups[groups > 1].sum() / len(table)),
        largest=int(groups.max()),
        cut=int((full & (last_group > 1)).sum()) if capped else 0,
        at=tuple(at),
    )
