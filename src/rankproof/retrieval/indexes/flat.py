"""Flat index: compares every passage with every query, exactly in the vectors' number format."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Array, Int
from rankproof.foundation.config import Count, Settings
from rankproof.precision import fixed_sum
from rankproof.precision.exact_search import find_top_k
from rankproof.precision.formats import Format, encode
from rankproof.precision.pipeline import ScoringPipeline
from rankproof.precision.topk import rows_near_top
from rankproof.retrieval.components import part
from rankproof.retrieval.protocols import Retrieved, Vectors
from rankproof.retrieval.ranked_lists import check_depth, run_from_rows


class FlatSettings(Settings):
    """Every passage is compared: exact in the format it is stored in.

    >>> from rankproof.retrieval.indexes.flat import FlatSettings
    >>> FlatSettings(format="int8").format
    'int8'
    """

    type: Literal["flat"] = "flat"
    format: Format = "float32"
    high_precision: bool = True
    rescore: Literal["decoded", "original"] = "decoded"
    candidates: Count | None = None

    @property
    def pipeline(self) -> ScoringPipeline:
        """How the index scores its unit vectors.

        A format that rounds changes their lengths; high precision divides by these.
        """
        divides = self.high_precision and self.format != "float32"
        return ScoringPipeline.of(
            self.format,
            high_precision=self.high_precision,
            rescore=self.rescore,
            metric="cosine" if divides else "dot",
            candidates=self.candidates,
        )

    @property
    def decides(self) -> dict[str, Any]:
        """Distinguishes lists that were stored when such scores were inner products."""
        return {"scores": "cosine"} if self.pipeline.metric == "cosine" else {}


@part("index", "flat")
class FlatIndex:
    """`rankproof.precision.search` over vectors that are encoded once."""

    def __init__(
        self,
        settings: FlatSettings,
        vectors: Vectors,
        document_ids: pl.Series,
    ):
        self.settings = settings
        self.document_ids = document_ids
        start = time.perf_counter()
        self._codes = encode(vectors, settings.format)
        self.build_seconds = time.perf_counter() - start
        self._float32: tuple[Array, float] | None = None  # (N, D), and the largest length
        if settings.format == "float32" and len(vectors):
            self._float32 = (
                self._codes.codes,
                float(fixed_sum.length_bounds(self._codes.codes).max()),
            )
        self._pipeline = settings.pipeline
        self._originals = vectors if self._pipeline.scoring == "original" else None

    @property
    def name(self) -> str:
        return f"flat {self.settings.format}"

    @property
    def bytes(self) -> int:
        """Size of the codes, their scales, and the original vectors if they rescore."""
        scale, originals = self._codes.scale, self._originals
        return (
            self._codes.codes.nbytes
            + (0 if scale is None else scale.nbytes)
            + (0 if originals is None else originals.nbytes)
        )

    def search(self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None) -> Retrieved:
        """Search all queries together; each is credited with an equal share of the time."""
        start = time.perf_counter()
        if len(queries) == 1 and (best_of_one := self.best(queries, k)) is not None:
            seconds = time.perf_counter() - start
            rows, scores, cut = best_of_one
            lists = [(rows, scores)]
            run = run_from_rows(self.name, query_ids, self.document_ids, lists, "float32", cut)
            return Retrieved(run, np.array([seconds]))
        best = find_top_k(
            queries, self._codes, k, self._pipeline, originals=self._originals, are_unit=True
        )
        share = (time.perf_counter() - start) / max(1, len(queries))
        dtype = self._pipeline.score_dtype
        lists = list(zip(best.documents, best.scores, strict=True))
        cut = best.cut.astype(np.int64)
        run = run_from_rows(self.name, query_ids, self.document_ids, lists, dtype, cut)
        return Retrieved(run, np.full(len(queries), share))

    def best(self, query: Vectors, k: int) -> tuple[Array, Array, Int] | None:
        """Return rows, scores and the number of ties cut, for one query in float32.

        Return None where only `find_top_k` gives the exact result. A fast product selects and the
        fixed sum scores: a document among the k best by the fixed sum lies, by the product, at most
        twice the rounding error below the k-th.
        """
        query = np.ascontiguousarray(query, np.float32)
        if self._float32 is None or query.shape[1:] != self._float32[0].shape[1:]:
            return None
        vectors, longest = self._float32
        check_depth(k)
        k = min(int(k), len(vectors))
        wide = query[0].astype(np.float64)
        length = math.sqrt(float(wide @ wide))
        steps = (len(wide) + 8) * fixed_sum.CPU  # the bound of fixed_sum.slack_of, rounded up
        error = 1.001 * (
            steps / (1.0 - steps) * length * longest + 1e-30 * (1.0 + length + longest)
        )
        if not (length * longest < 1e30 and steps < 0.5):  # NaN, or the product may overflow
            return None
        rows = rows_near_top(fixed_sum.products(query, vectors), k, 2.0 * error)
        exact = np.empty(len(rows), np.float32)
        fixed_sum.pairs(query, vectors, np.array([0, len(rows)]), rows, out=exact)
        order = np.argsort(-exact, kind="stable")
        ordered = exact[order]
        cut = np.count_nonzero(ordered[k:] == ordered[k - 1]) if len(rows) > k else 0
        return rows[order[:k]], ordered[:k].astype(np.float64), np.array([cut])
