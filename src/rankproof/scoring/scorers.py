"""How a number format scores: blocks of documents, or chosen pairs, against all queries.

Plain scoring stays in the format: the float32 sum rounded to it, or products of codes. High
precision keeps the float32 sum of a floating-point format, and scores the full-precision query
against decoded documents where the format is made of codes (asymmetric).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankproof.arrays import Array
from rankproof.errors import InputError, shorten
from rankproof.scoring.formats import FLOATS, Codes, Format, check_format, encode, round_to

_CELLS = 1 << 23  # numbers of gathered documents held at a time


class Scorer:
    """Scores of queries (Q, D) against documents in a number format, made on demand."""

    def __init__(self, queries: Array, documents: Array | Codes, form: Format, plain: bool):
        check_format(form)
        self.plain = plain
        self.form = form
        self.codes: Codes | None = None
        if isinstance(documents, Codes):
            if documents.format != form:
                raise InputError(
                    f"the documents are {documents.format}, not {form}",
                    remedy=f"search with format={documents.format!r}",
                )
            self.codes = documents
        elif form not in FLOATS:
            self.codes = encode(documents, form)
        self._documents = None if self.codes is not None else np.asarray(documents)
        self.queries, self._query_scale = self._prepare(np.asarray(queries, np.float32))

    def __len__(self) -> int:
        return len(self.codes if self.codes is not None else self._documents)  # type: ignore[arg-type]

    @property
    def bytes_per_vector(self) -> float:
        if self.codes is not None:
            return self.codes.bytes_per_vector
        assert self._documents is not None
        return encode(self._documents[:1], self.form).bytes_per_vector

    def _prepare(self, queries: Array) -> tuple[Array, Array | None]:
        """Queries as the format sees them, and the factor that their codes leave out."""
        if self.form in FLOATS:
            return round_to(queries, self.form), None
        if not self.plain:
            return queries, None
        if self.form == "bit":
            return encode(queries, "bit").numbers(), None
        if self.form == "int8_dimension":
            assert self.codes is not None
            assert self.codes.scale is not None
            codes = encode(queries * self.codes.scale, "int8")
        else:
            codes = encode(queries, self.form)
        return codes.numbers(), codes.scale

    def _vectors(self, rows: Any) -> tuple[Array, Array | None]:
        """Documents (n, D) as they are multiplied, and the factor their codes leave out (n,)."""
        if self.codes is None:
            assert self._documents is not None
            return round_to(np.asarray(self._documents[rows], np.float32), self.form), None
        chosen = self.codes[rows]
        if not self.plain:
            return chosen.decode(), None
        own = chosen.scale if self.form in ("int8", "int4") else None
        return chosen.numbers(), None if own is None else own[:, 0]

    def _finish(self, scores: Array, scale: Array | None) -> Array:
        if self._query_scale is not None:
            scores = scores * self._query_scale
        if scale is not None:
            scores = scores * scale
        if self.plain and self.form in FLOATS:
            scores = round_to(scores, self.form)
        return scores

    def block(self, first: int, last: int, out: Array | None = None) -> Array:
        """(Q, last − first) scores of consecutive documents; `out` may be used to hold them."""
        vectors, scale = self._vectors(slice(first, last))
        return self._finish(np.matmul(self.queries, vectors.T, out=out), scale)

    def pairs(self, rows: Array) -> Array:
        """(Q, n) scores of the documents `rows` (Q, n), each query against its own."""
        scores = np.empty(rows.shape, np.float32)
        step = max(1, _CELLS // max(1, rows.shape[1] * self.queries.shape[1]))
        for low in range(0, len(rows), step):
            some = rows[low : low + step]
            vectors, scale = self._vectors(some.ravel())
            vectors = vectors.reshape(*some.shape, -1)
            product = np.einsum("qd,qnd->qn", self.queries[low : low + step], vectors)
            if self._query_scale is not None:
                product = product * self._query_scale[low : low + step]
            if scale is not None:
                product = product * scale.reshape(some.shape)
            if self.plain and self.form in FLOATS:
                product = round_to(product, self.form)
            scores[low : low + step] = product
        return scores


def check_vectors(values: Array, what: str, unit: bool = False) -> None:
    """Refuse vectors that cannot be scored, with the row."""
    if values.ndim != 2:
        raise InputError(
            f"{what} have the shape {shorten(values.shape)}", remedy="give (rows, dimensions)"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        doubtful = np.flatnonzero(~np.isfinite(values.sum(axis=1)))  # one pass, no mask of all
    wrong = ~np.isfinite(values[doubtful])
    if wrong.any():
        first = int(wrong.any(axis=1).argmax())
        row = int(doubtful[first])
        raise InputError(
            f"{values[row][wrong[first]][0]} in a vector",
            place=f"{what}: row {row}",
            remedy="embed that text again",
        )
    if unit:
        zero = ~values.any(axis=1)
        if zero.any():
            raise InputError(
                "a zero vector has no direction",
                place=f"{what}: row {int(zero.argmax())}",
                remedy="drop it, or score with the dot product",
            )
