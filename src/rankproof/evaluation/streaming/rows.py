"""Rows of a run in input order, each with the number of its query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankproof.data.columns import encode
from rankproof.foundation.arrays import Array, Float, Int


@dataclass(frozen=True, slots=True)
class Rows:
    """Adjacent rows of a run, N in all."""

    queries: pl.Series  # (Q,) distinct ids in order of appearance
    codes: Array  # (N,) int32 index of each row's query
    doc: pl.Series  # (N,)
    score: Float  # (N,) float64

    @classmethod
    def empty(cls) -> Rows:
        """Return no rows."""
        schema = {"query": pl.String, "doc": pl.String, "score": pl.Float64}
        return cls.from_frame(pl.DataFrame(schema=schema))

    @classmethod
    def from_frame(cls, frame: pl.DataFrame) -> Rows:
        """Return the rows of a frame with the columns `query`, `doc` and `score`."""
        return cls(*encode(frame["query"]), frame["doc"], frame["score"].to_numpy())

    def frame(self) -> pl.DataFrame:
        """Return a frame with the columns `query`, `doc` and `score`."""
        query = self.queries.gather(self.codes)
        return pl.DataFrame({"query": query, "doc": self.doc, "score": self.score})

    def __len__(self) -> int:
        return len(self.codes)

    def query_starts(self) -> Int:
        """Return the rows whose query differs from that of the row before; row 0 is one."""
        return np.append(0, np.flatnonzero(self.codes[1:] != self.codes[:-1]) + 1)[: len(self)]

    def slice_rows(self, first: int, last: int) -> Rows:
        """Return rows [first, last), in which the rows of each query must be adjacent."""
        codes = self.codes[first:last]
        low, high = (int(codes[0]), int(codes[-1]) + 1) if len(codes) else (0, 0)
        doc, score = self.doc[first:last], self.score[first:last]
        return Rows(self.queries[low:high], codes - np.int32(low), doc, score)


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several parts; only adjacent parts may share a query."""
    if len(parts) == 1:
        return parts[0]
    queries, codes, last, count = [], [], None, 0
    for part in parts:
        if len(part):
            continues = last is not None and part.queries[0] == last
            queries.append(part.queries[1:] if continues else part.queries)
            codes.append(part.codes + np.int32(count - continues))
            last, count = part.queries[-1], count + len(queries[-1])
    return Rows(
        pl.concat(queries),
        np.concatenate(codes),
        pl.concat([part.doc for part in parts]),
        np.concatenate([part.score for part in parts]),
    )
