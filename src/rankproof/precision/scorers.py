"""How a number format scores: blocks of documents, or chosen pairs, against all queries.

Plain scoring stays in the format: the fixed sum rounded to it, or products of codes. High precision
keeps the fixed sum of a floating-point format in float32, and scores the full-precision query
against decoded documents where the format is made of codes (asymmetric). Its cosine is that of the
decoded numbers: a narrow format changes the length of a vector, and that is divided by.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, shorten
from rankproof.precision import fixed_sum
from rankproof.precision.fixed_sum import Slack
from rankproof.precision.formats import FLOATS, Codes, Format, check_format, encode, round_to

_CELLS = 1 << 23  # numbers of decoded documents held at a time
_WHOLE = 1 << 24  # float32 holds every whole number up to here


class Scorer:
    """Scores of queries (Q, D) against documents in a number format, made on demand.

    `lengths` (N,) float32 of documents, or more, spare it a look at all of them. With `cosine` the
    decoded documents are brought to unit length, and the queries where the format rounds them;
    without, they are multiplied as they are.
    """

    def __init__(
        self,
        queries: Array,
        documents: Array | Codes,
        form: Format,
        plain: bool,
        lengths: Array | None = None,
        *,
        cosine: bool = False,
    ):
        check_format(form)
        self.plain = plain
        self.cosine = cosine
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
        queries, self._query_scale = np.asarray(queries, np.float32), None
        if plain or form in FLOATS:
            by = None if self.codes is None else self.codes.scale
            queries, self._query_scale = as_seen(queries, form, by)
            if cosine and not plain and form != "float32":
                queries = fixed_sum.normalize(queries)
        self.queries = queries
        self._whole = plain and form not in FLOATS  # products of codes: whole numbers
        fits(fixed_sum.length_bounds(self.queries), form, "queries")
        self._query_lengths = fixed_sum.lengths(self.queries)
        self._lengths = lengths if form == "float32" and self.codes is None else None

    def __len__(self) -> int:
        return len(self.codes if self.codes is not None else self._documents)  # type: ignore[arg-type]

    @property
    def bytes_per_vector(self) -> float:
        if self.codes is not None:
            return self.codes.bytes_per_vector
        assert self._documents is not None
        return encode(self._documents[:1], self.form).bytes_per_vector

    def _vectors(self, rows: Any) -> tuple[Array, Array | None]:
        """Documents (n, D) as they are multiplied, and the factor their codes leave out (n,)."""
        if self.codes is None:
            assert self._documents is not None
            vectors = round_to(np.asarray(self._documents[rows], np.float32), self.form)
            return fixed_sum.normalize(vectors) if self.cosine else vectors, None
        chosen = self.codes[rows]
        if not self._whole:
            vectors = fixed_sum.normalize(chosen.decode()) if self.cosine else chosen.decode()
            return round_to(vectors, self.rounded), None
        own = None
        if chosen.scale is not None and self.form in ("int8", "int4"):
            own = chosen.scale[:, 0]
        if self.cosine and self.form != "bit":  # bits all have the same length
            length = fixed_sum.lengths(chosen.decode())
            scale = 1.0 if own is None else own.astype(np.float64)
            own = (scale / np.where(length > 0, length, 1.0)).astype(np.float32)
        return chosen.numbers(), own

    def product(self, first: int, last: int, out: Array) -> tuple[Array, Slack | None]:
        """(Q, last − first) scores of consecutive documents as fast as they come.

        Those of codes are exact. Others lie within the slack of the fixed sums, which the format
        has not rounded yet. `out` may be used to hold them.
        """
        vectors, scale = self._vectors(slice(first, last))
        if self._whole:
            return self._finish(self._sums(vectors, out), slice(None), scale), None
        lengths = self._lengths[first:last] if self._lengths is not None else None
        if lengths is None:
            lengths = fixed_sum.length_bounds(vectors)
            fits(lengths, self.form, "documents", first)
        slack = fixed_sum.slack_of(self._query_lengths, lengths, self.queries.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            return np.matmul(self.queries, vectors.T, out=out), slack

    @fixed_sum.keep_subnormals()
    def block(self, first: int, last: int) -> Array:
        """(Q, last − first) scores of consecutive documents."""
        vectors, scale = self._vectors(slice(first, last))
        return self._finish(fixed_sum.matrix(self.queries, vectors), slice(None), scale)

    @fixed_sum.keep_subnormals()
    def pairs(self, rows: Array) -> Array:
        """(Q, n) scores of the documents `rows` (Q, n), each query against its own."""
        count, width = rows.shape
        if not rows.size:
            return np.zeros(rows.shape, np.float32)
        keys = np.sort((rows.astype(np.int64) << 32) | np.arange(width), axis=1)
        start = np.arange(0, rows.size + 1, width)
        scores = self.chosen(np.arange(count), start, (keys >> 32).ravel()).reshape(rows.shape)
        found = np.empty_like(scores)
        np.put_along_axis(found, keys & 0xFFFFFFFF, scores, axis=1)
        return found

    def chosen(self, queries: Array, start: Array, rows: Array) -> Array:
        """(P,) scores of the documents rows[start[i]:start[i+1]], ascending, for queries[i]."""
        asked = self.queries if len(queries) == len(self.queries) else self.queries[queries]
        scores = np.empty(len(rows), np.float32)
        scales: Array | None = None
        if self.codes is None and self.form == "float32":
            assert self._documents is not None
            fixed_sum.pairs(asked, self._documents, start, rows, scores)
        else:  # decoded once each, and only those that were chosen
            used, rows = _numbered(rows, len(self))
            step = max(1, _CELLS // max(1, self.queries.shape[1]))
            own = np.empty(len(used), np.float32)
            for first in range(0, len(used), step):
                some: Any = used[first : first + step]
                if some[-1] - some[0] == len(some) - 1:  # side by side: no copy
                    some = slice(some[0], some[-1] + 1)
                vectors, scale = self._vectors(some)
                fixed_sum.pairs(asked, vectors, start, rows, scores, first)
                if scale is not None:
                    own[first : first + step] = scale
                    scales = own
        owner = None if self._query_scale is None else np.repeat(queries, np.diff(start))
        return self._finish(scores, owner, None if scales is None else scales[rows])

    def _sums(self, vectors: Array, out: Array) -> Array:
        """(Q, n) sums of products of whole numbers, exact, rounded once to float32.

        As long as no sum can pass 2²⁴ float32 holds all of them; of longer vectors pieces do.
        """
        most = {"bit": 1, "int4": 7}.get(self.form, 127)
        step, dimensions = (_WHOLE - 1) // most**2, vectors.shape[1]
        if dimensions <= step:
            return np.matmul(self.queries, vectors.T, out=out)
        total = np.zeros(out.shape, np.float64)
        for first in range(0, dimensions, step):
            some = slice(first, first + step)
            total += np.matmul(self.queries[:, some], vectors[:, some].T, out=out)
        return total.astype(np.float32)

    def _finish(self, scores: Array, queries: Any, scale: Array | None) -> Array:
        """Sums (…) of `queries` as the format leaves them."""
        with np.errstate(over="ignore"):  # what is too large for float32 ties at infinity
            if self._query_scale is not None:
                factor = self._query_scale[queries]
                scores = scores * (factor[:, 0] if scores.ndim == 1 else factor)
            if scale is not None:
                scores = scores * scale
        return round_to(scores, self.rounded)

    @property
    def rounded(self) -> str:
        """What the scores are rounded to."""
        return self.form if self.plain and self.form in FLOATS else "float32"


def fits(bounds: Array, form: str, what: str, first: int = 0) -> None:
    """Refuse numbers that the format cannot hold."""
    if np.isnan(bounds).any():
        row = first + int(np.isnan(bounds).argmax())
        raise InputError(
            f"a number is too large for {form}",
            place=f"{what}: row {row}",
            remedy="scale the vectors, or search in a wider format",
        )


def _numbered(rows: Array, total: int) -> tuple[Array, Array]:
    """Which rows there are, ascending, and where among them each stands."""
    if len(rows) < total:
        used, places = np.unique(rows, return_inverse=True)
        return used, places
    known = np.zeros(total, np.bool_)  # as many again and again: a table spares the sorting
    known[rows] = True
    if known.all():
        return np.arange(total), rows
    return np.flatnonzero(known), (np.cumsum(known) - 1)[rows]


def as_seen(queries: Array, form: Format, scale: Array | None) -> tuple[Array, Array | None]:
    """Queries as a format sees them, and the factor that their codes leave out (Q, 1).

    `scale` is that of the documents' codes.
    """
    if form in FLOATS:
        return round_to(queries, form), None
    if form == "bit":
        return encode(queries, "bit").numbers(), None
    if form == "int8_dimension":
        assert scale is not None
        with np.errstate(over="ignore"):
            scaled = queries * scale
        fits(fixed_sum.length_bounds(scaled), form, "queries")
        codes = encode(scaled, "int8")
    else:
        codes = encode(queries, form)
    return codes.numbers(), codes.scale


def check_dimensions(queries: int, documents: int, place: str | None = None) -> None:
    """Vectors to be multiplied with each other, which are as long."""
    if queries != documents:
        raise InputError(
            f"queries have {queries} dimensions and documents {documents}",
            place=place,
            remedy="embed both with the same model",
        )


def check_rows(values: Any, what: str) -> None:
    """Refuse an array or a tensor that is not one of vectors."""
    if values.ndim != 2:
        raise InputError(
            f"{what} have the shape {shorten(tuple(values.shape))}",
            remedy="give (rows, dimensions)",
        )


def check_vectors(values: Array, what: str, unit: bool = False) -> Array:
    """(n,) the lengths of vectors (n, D) float32; those that cannot be scored are refused.

    Of those that need not have unit length, bounds: float32 numbers not below.
    """
    check_rows(values, what)
    lengths = fixed_sum.lengths(values) if unit else fixed_sum.length_bounds(values)
    wrong = ~np.isfinite(lengths) if unit else np.isnan(lengths)
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"{values[row][~np.isfinite(values[row])][0]} in a vector",
            place=f"{what}: row {row}",
            remedy="embed that text again",
        )
    if unit:
        zero = lengths == 0
        if zero.any():
            raise InputError(
                "a zero vector has no direction",
                place=f"{what}: row {int(zero.argmax())}",
                remedy="drop it, or score with the dot product",
            )
    return lengths
