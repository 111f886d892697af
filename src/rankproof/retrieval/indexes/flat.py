"""Every passage compared with every query: exact in the number format the vectors are kept in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.foundation.arrays import Array, Int
from rankproof.foundation.config import Count, Settings
from rankproof.precision import fixed_sum
from rankproof.precision.exact_search import find
from rankproof.precision.formats import FLOATS, Format, encode
from rankproof.precision.topk import near
from rankproof.retrieval.components import part
from rankproof.retrieval.protocols import Retrieved, Vectors
from rankproof.retrieval.row_lists import check_depth, run_of


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
    def is_decoded_cosine(self) -> bool:
        """True if scores are divided by the lengths of decoded vectors."""
        return self.high_precision and self.format != "float32"

    @property
    def decides(self) -> dict[str, Any]:
        """Lists that were kept when such scores were inner products are not used again."""
        return {"scores": "cosine"} if self.is_decoded_cosine else {}


@part("index", "flat")
class FlatIndex:
    """`rankproof.precision.search` over vectors that were encoded once."""

    def __init__(
        self,
        settings: FlatSettings,
        vectors: Vectors,
        document_ids: pl.Series,
        progress: Callable[[float], None] | None = None,
    ):
        self.settings = settings
        self.document_ids = document_ids
        begun = time.perf_counter()
        self._codes = encode(vectors, settings.format)
        self.build_seconds = time.perf_counter() - begun
        self._plain: tuple[Array, float] | None = None  # float32 vectors, and their longest
        if settings.format == "float32" and len(vectors):
            self._plain = self._codes.codes, float(fixed_sum.length_bounds(self._codes.codes).max())
        originals = settings.rescore == "original" and settings.high_precision
        self._originals = vectors if originals and settings.format not in FLOATS else None
        if progress is not None:
            progress(len(vectors))

    @property
    def name(self) -> str:
        return f"flat {self.settings.format}"

    @property
    def bytes(self) -> int:
        """The codes and their scales, and the original vectors where they are rescored with."""
        scale, originals = self._codes.scale, self._originals
        return (
            self._codes.codes.nbytes
            + (0 if scale is None else scale.nbytes)
            + (0 if originals is None else originals.nbytes)
        )

    def search(self, queries: Vectors, k: int, query_ids: Sequence[str] | None = None) -> Retrieved:
        """All queries together, so each takes an equal share of the time."""
        settings = self.settings
        begun = time.perf_counter()
        if len(queries) == 1 and (one := self.best(queries, k)) is not None:
            seconds = time.perf_counter() - begun
            *listed, cut = one
            found = [(listed[0], listed[1])]
            run = run_of(self.name, query_ids, self.document_ids, found, "float32", cut)
            return Retrieved(run, np.array([seconds]))
        best, form = find(
            *(queries, self._codes, k),
            format=settings.format,
            high_precision=settings.high_precision,
            rescore="decoded" if self._originals is None else "original",
            originals=self._originals,
            candidates=settings.candidates,
            metric="cosine" if settings.is_decoded_cosine else "dot",
            are_unit=True,
        )
        share = (time.perf_counter() - begun) / max(1, len(queries))
        dtype = "float32" if settings.high_precision or form not in FLOATS else form
        found = list(zip(best.documents, best.scores, strict=True))
        run = run_of(
            self.name, query_ids, self.document_ids, found, dtype, best.cut.astype(np.int64)
        )
        return Retrieved(run, np.full(len(queries), share))

    def best(self, query: Vectors, k: int) -> tuple[Array, Array, Int] | None:
        """Rows, scores and what ties with the last but is left out, of one query in float32; None
        where `find` has to look closer.

        A product finds, the fixed sum scores: whoever is among the k best by the sum lies, by the
        product, no further than twice the slack below the k-th.
        """
        plain = self._plain
        asked = np.ascontiguousarray(query, np.float32)
        if plain is None or asked.shape[1:] != plain[0].shape[1:]:
            return None
        vectors, longest = plain
        check_depth(k)
        k = min(int(k), len(vectors))
        wide = asked[0].astype(np.float64)
        length = math.sqrt(float(wide @ wide))
        steps = (len(wide) + 8) * fixed_sum.CPU  # as fixed_sum.slack_of has it, rounded up
        away = 1.001 * (steps / (1.0 - steps) * length * longest + 1e-30 * (1.0 + length + longest))
        if not (length * longest < 1e30 and steps < 0.5):  # no number, or the product may overflow
            return None
        rows = near(fixed_sum.products(asked, vectors), k, 2.0 * away)
        exact = np.empty(len(rows), np.float32)
        fixed_sum.pairs(asked, vectors, np.array([0, len(rows)]), rows, exact)
        order = np.argsort(-exact, kind="stable")
        ordered = exact[order]
        cut = np.count_nonzero(ordered[k:] == ordered[k - 1]) if len(rows) > k else 0
        return rows[order[:k]], ordered[:k].astype(np.float64), np.array([cut])
