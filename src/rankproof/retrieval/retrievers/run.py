"""Retriever that reads a run file: results of an engine, with its stated latency and cost."""

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
from rankproof.retrieval.protocols import Retrieved
from rankproof.retrieval.ranked_lists import check_depth, keep_first


class RunSettings(Settings):
    """A run that was made before, as TREC, JSON, CSV or Parquet."""

    operation: ClassVar[frozenset[str]] = frozenset({"cost_per_1000"})

    type: Literal["run"]
    file: BesidePath
    latency_ms: NonNegative | None = None  # of one query, as its owner measured it
    cost_per_1000: NonNegative | None = None  # in the currency of the prices


@part("retriever", "run")
class RunRetriever:
    """Looks questions up by their ids, so that rewriting their texts changes nothing."""

    bytes = 0  # unknown
    build_seconds = 0.0
    drivable = False  # a file cannot be put under load

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
        """Return the first k of each list; without ids, empty lists with the stated latency."""
        check_depth(k)
        seconds = np.full(len(queries), self._seconds)
        if query_ids is None:
            ids = row_ids(None, len(queries), "query_ids")
            codes = np.zeros(0, np.int32)
            doc = pl.Series("doc", [], dtype=pl.String)
            return Retrieved(build_run(self.name, ids, codes, doc, np.zeros(0), ""), seconds)
        return Retrieved(keep_first(self._lists_of(query_ids), k), seconds)

    def _lists_of(self, query_ids: Sequence[str]) -> Run:
        """Return the lists of these queries in their order, empty where the run has none."""
        queries = row_ids(query_ids, len(query_ids), "query_ids")
        codes = pl.DataFrame({"query": queries, "code": np.arange(len(queries), dtype=np.int32)})
        rows = self.run.to_frame().join(codes, on="query", how="inner", maintain_order="left")
        return build_run(
            self.name,
            queries,
            rows["code"].to_numpy(),
            rows["doc"],
            rows["score"].to_numpy(),
            self.run.dtype,
        )
