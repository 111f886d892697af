"""Every passage compared with every query: exact in the number format the vectors are kept in."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import polars as pl

from rankproof.config import Count, Settings
from rankproof.retrieval.lists import run_of
from rankproof.retrieval.parts import part
from rankproof.retrieval.protocols import Retrieved, Vectors
from rankproof.scoring.exact import find
from rankproof.scoring.formats import FLOATS, Format, encode


class FlatSettings(Settings):
    """Every passage is compared: exact in the format it is stored in."""

    type: Literal["flat"] = "flat"
    format: Format = "float32"
    high_precision: bool = True
    rescore: Literal["decoded", "original"] = "decoded"
    candidates: Count | None = None


@part("index", "flat")
class FlatIndex:
    """`rankproof.scoring.search` over vectors that were encoded once."""

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
        best, form = find(
            *(queries, self._codes, k),
            format=settings.format,
            high_precision=settings.high_precision,
            rescore="decoded" if self._originals is None else "original",
            originals=self._originals,
            candidates=settings.candidates,
        )
        share = (time.perf_counter() - begun) / max(1, len(queries))
        dtype = "float32" if settings.high_precision or form not in FLOATS else form
        found = list(zip(best.documents, best.scores, strict=True))
        run = run_of(
            self.name, query_ids, self.document_ids, found, dtype, best.cut.astype(np.int64)
        )
        return Retrieved(run, np.full(len(queries), share))
