"""What an engine returned before: a run file, with the latency and cost that its owner states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import polars as pl

from rankproof.data import read_run
from rankproof.data.columns import row_ids
from rankproof.data.tables import Run, build_run
from rankproof.foundation.config import BesidePath, NonNegative, Settings
from rankproof.retrieval.components import part
from rankproof.retrieval.pools import head
from rankproof.retrieval.protocols import Retrieved
from rankproof.retrieval.row_lists import check_depth


class RunSettings(Settings):
    """A run that was made before, as TREC, JSON, CSV or Parquet."""

    operation: ClassVar[frozenset[str]] = frozenset({"cost_per_1000"})

    type: Literal["run"]
    file: BesidePath
    latency_ms: NonNegative | None = None  # of one query, as its owner measured it
    cost_per_1000: NonNegative | None = None  # in the currency of the prices


@part("retriever", "run")
class RunRetriever:
    """Questions are known by their ids: rewriting their texts changes nothing."""

    bytes = 0  # nobody can tell
    build_seconds = 0.0
    drivable = False  # nothing answers

    def __init__(
        self,
        settings: RunSettings,
        documents: Sequence[str] = (),
        document_ids: Sequence[str] | None = None,
    ):
        self.run = read_run(settings.file)
        self.name = self.run.name
        self._seconds = (settings.latency_ms or 0.0) / 1000

    @property
    def notes(self) -> list[str]:
        if self._seconds:
            return []
        return [f"nobody says how long {self.name} took (latency_ms): 0 is taken"]

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """The first k of each list, ties at the cut counted; without ids, only how long it took."""
        check_depth(k)
        seconds = np.full(len(queries), self._seconds)
        if query_ids is None:
            ids = row_ids(None, len(queries), "query_ids")
            nothing = np.zeros(0, np.int32)
            doc = pl.Series("doc", [], dtype=pl.String)
            return Retrieved(build_run(self.name, ids, nothing, doc, np.zeros(0), ""), seconds)
        return Retrieved(head(self._of(query_ids), k), seconds)

    def _of(self, query_ids: Sequence[str]) -> Run:
        """The lists of these queries, in their order; an empty one where the run has none."""
        queries = row_ids(query_ids, len(query_ids), "query_ids")
        at = pl.DataFrame({"query": queries, "at": np.arange(len(queries), dtype=np.int32)})
        rows = self.run.to_frame().join(at, on="query", how="inner", maintain_order="left")
        return build_run(
            self.name,
            queries,
            rows["at"].to_numpy(),
            rows["doc"],
            rows["score"].to_numpy(),
            self.run.dtype,
        )
