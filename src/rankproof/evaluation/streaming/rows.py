"""Rows of a run in the order of the file, each with the number of its query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankproof.data.columns import encode
from rankproof.foundation.arrays import Array, Float, Int


@dataclass(frozen=True, slots=True)
class Rows:
    queries: pl.Series  # (Q,) distinct ids in order of appearance
    codes: Array  # (N,) int32, which of them
    doc: pl.Series  # (N,)
    score: Float  # (N,) float64

    @classmethod
    def none(cls) -> Rows:
        nothing = {"query": pl.String, "doc": pl.String, "score": pl.Float64}
        return cls.of(pl.DataFrame(schema=nothing))

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Rows:
        """Of columns `query`, `doc` and `score`."""
        return cls(*encode(frame["query"]), frame["doc"], frame["score"].to_numpy())

    def frame(self) -> pl.DataFrame:
        query = self.queries.gather(self.codes)
        return pl.DataFrame({"query": query, "doc": self.doc, "score": self.score})

    def __len__(self) -> int:
        return len(self.codes)

    def begins(self) -> Int:
        """Where rows of another query than that of the row before begin."""
        return np.append(0, np.flatnonzero(self.codes[1:] != self.codes[:-1]) + 1)[: len(self)]

    def between(self, first: int, last: int) -> Rows:
        """Some of these rows, of which those of each query stand together."""
        codes = self.codes[first:last]
        low, high = (int(codes[0]), int(codes[-1]) + 1) if len(codes) else (0, 0)
        doc, score = self.doc[first:last], self.score[first:last]
        return Rows(self.queries[low:high], codes - np.int32(low), doc, score)


def joined(parts: Sequence[Rows]) -> Rows:
    """Rows of which each part begins with the last query of the one before, or with new ones."""
    if len(parts) == 1:
        return parts[0]
    queries, codes, last, count = [], [], None, 0
    for part in parts:
        if len(part):
            goes_on = last is not None and part.queries[0] == last
            queries.append(part.queries[1:] if goes_on else part.queries)
            codes.append(part.codes + np.int32(count - goes_on))
            last, count = part.queries[-1], count + len(queries[-1])
    return Rows(
        pl.concat(queries),
        np.concatenate(codes),
        pl.concat([part.doc for part in parts]),
        np.concatenate([part.score for part in parts]),
    )
