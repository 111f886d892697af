"""Scores in a number format: of all queries with blocks of documents, or of chosen pairs.

Plain scoring stays in the format: fixed sums rounded to it, or products of codes. High precision
keeps the fixed sum of a floating-point format in float32; for codes it scores the full query
against decoded documents (asymmetric scoring). Its cosine is that of the decoded numbers: a narrow
format changes the length of a vector, so the scores are divided by the changed length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, shorten
from rankproof.precision import fixed_sum
from rankproof.precision.fixed_sum import Slack
from rankproof.precision.formats import (
    FLOATS,
    Codes,
    check_format,
    encode,
    exact_pieces,
    round_to,
)

_DECODED_NUMBERS = 1 << 23  # numbers of decoded documents in memory at a time


class Scorer:
    """Scores of queries (Q, D) against documents in a number format, made on demand.

    `lengths` (N,) float32 are bounds of the documents' lengths, if known; they save a pass over the
    documents. With `normalize`, decoded documents are brought to unit length, and queries too where
    the format rounds them.
    """

    def __init__(
        self,
        queries: Array,
        documents: Array | Codes,
        form: str,
        plain: bool,
        lengths: Array | None = None,
        *,
        normalize: bool = False,
    ):
        check_format(form)
        self.plain = plain
        self.normalize = normalize
        self.form = form
        self.codes: Codes | None = None
        if isinstance(documents, Codes):
            check_code_format(documents, form)
            self.codes = documents
        elif form not in FLOATS:
            self.codes = encode(documents, form)  # type: ignore[arg-type]
        self._documents = None if self.codes is not None else np.asarray(documents)
        queries, self._query_scale = np.asarray(queries, np.float32), None
        if plain or form in FLOATS:  # queries of asymmetric scoring are not encoded
            document_scale = None if self.codes is None else self.codes.scale
            queries, self._query_scale = encode_queries(queries, form, document_scale)
            if normalize and not plain and form != "float32":
                queries = fixed_sum.normalize(queries)
        self.queries = queries
        self._multiplies_codes = plain and form not in FLOATS
        check_range(fixed_sum.length_bounds(self.queries), form, "queries")
        self._query_lengths = fixed_sum.lengths(self.queries)
        self._lengths = lengths if form == "float32" and self.codes is None else None

    def __len__(self) -> int:
        return len(self.codes if self.codes is not None else self._documents)  # type: ignore[arg-type]

    @property
    def bytes_per_vector(self) -> float:
        """Bytes that a document takes in the format."""
        if self.codes is not None:
            return self.codes.bytes_per_vector
        assert self._documents is not None
        return encode(self._documents[:1], self.form).bytes_per_vector  # type: ignore[arg-type]

    @property
    def rounded(self) -> str:
        """The format that the scores are rounded to."""
        return self.form if self.plain and self.form in FLOATS else "float32"

    def product(self, first: int, last: int, out: Array) -> tuple[Array, Slack | None]:
        """Return scores (Q, last − first) of consecutive documents, as fast as possible.

        Products of codes are exact. Others lie within the slack of the fixed sums, before the
        format rounds them. `out` may be used to store them.
        """
        vectors, scale = self._vectors(slice(first, last))
        if self._multiplies_codes:
            return self._finish(self._code_products(vectors, out), slice(None), scale), None
        lengths = self._lengths[first:last] if self._lengths is not None else None
        if lengths is None:
            lengths = fixed_sum.length_bounds(vectors)
            check_range(lengths, self.form, "documents", first)
        slack = fixed_sum.slack_of(self._query_lengths, lengths, self.queries.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            return np.matmul(self.queries, vectors.T, out=out), slack

    @fixed_sum.keep_subnormals()
    def block(self, first: int, last: int) -> Array:
        """Return exact scores (Q, last − first) of consecutive documents."""
        vectors, scale = self._vectors(slice(first, last))
        return self._finish(fixed_sum.matrix(self.queries, vectors), slice(None), scale)

    @fixed_sum.keep_subnormals()
    def pairs(self, rows: Array) -> Array:
        """Return scores (Q, n) of the documents `rows` (Q, n), each query with its own."""
        count, width = rows.shape
        if not rows.size:
            return np.zeros(rows.shape, np.float32)
        # Keys of row number (upper bits) and column: sorting them sorts each query's rows.
        keys = np.sort((rows.astype(np.int64) << 32) | np.arange(width), axis=1)
        start = np.arange(0, rows.size + 1, width)
        ascending = self.chosen(np.arange(count), start, (keys >> 32).ravel()).reshape(rows.shape)
        scores = np.empty_like(ascending)
        np.put_along_axis(scores, keys & 0xFFFFFFFF, ascending, axis=1)
        return scores

    def chosen(self, queries: Array, start: Array, rows: Array) -> Array:
        """Return scores (P,) of the documents rows[start[i]:start[i+1]], ascending, for queries[i].

        Documents are decoded once each, however many queries chose them.
        """
        all_queries = len(queries) == len(self.queries)
        query_rows = self.queries if all_queries else self.queries[queries]
        scores = np.empty(len(rows), np.float32)
        scales: Array | None = None
        if self.codes is None and self.form == "float32":
            assert self._documents is not None
            fixed_sum.pairs(query_rows, self._documents, start, rows, out=scores)
        else:
            distinct, rows = _renumber(rows, len(self))
            step = max(1, _DECODED_NUMBERS // max(1, self.queries.shape[1]))
            for first in range(0, len(distinct), step):
                part: Any = distinct[first : first + step]
                if part[-1] - part[0] == len(part) - 1:  # consecutive rows need no copy
                    part = slice(part[0], part[-1] + 1)
                vectors, scale = self._vectors(part)
                fixed_sum.pairs(query_rows, vectors, start, rows, out=scores, first=first)
                if scale is not None:
                    scales = np.empty(len(distinct), np.float32) if scales is None else scales
                    scales[first : first + step] = scale
        owner = None if self._query_scale is None else np.repeat(queries, np.diff(start))
        return self._finish(scores, owner, None if scales is None else scales[rows])

    def _vectors(self, rows: Any) -> tuple[Array, Array | None]:
        """Return documents (n, D) ready to be multiplied, and factors (n,) of their scores."""
        if self.codes is None:
            assert self._documents is not None
            vectors = round_to(np.asarray(self._documents[rows], np.float32), self.form)
            return fixed_sum.normalize(vectors) if self.normalize else vectors, None
        codes = self.codes[rows]
        if not self._multiplies_codes:
            vectors = codes.decode()
            if self.normalize:
                vectors = fixed_sum.normalize(vectors)
            return round_to(vectors, self.rounded), None
        scale = None
        if codes.scale is not None and self.form in ("int8", "int4"):
            scale = codes.scale[:, 0]
        if self.normalize and self.form != "bit":  # bits all have the same length
            length = fixed_sum.lengths(codes.decode())
            wide = 1.0 if scale is None else scale.astype(np.float64)
            scale = (wide / np.where(length > 0, length, 1.0)).astype(np.float32)
        return codes.numbers(), scale

    def _code_products(self, vectors: Array, out: Array) -> Array:
        """Return sums (Q, n) of products of codes: exact, and rounded once to float32.

        Long vectors are summed in pieces that float32 holds exactly, added in float64.
        """
        pieces = exact_pieces(self.form, vectors.shape[1])
        if len(pieces) <= 1:
            return np.matmul(self.queries, vectors.T, out=out)
        total = np.zeros(out.shape, np.float64)
        for piece in pieces:
            total += np.matmul(self.queries[:, piece], vectors[:, piece].T, out=out)
        return total.astype(np.float32)

    def _finish(self, scores: Array, queries: Any, scale: Array | None) -> Array:
        """Apply the scales of queries and documents to sums (…), and round to the score format."""
        with np.errstate(over="ignore"):  # scores too large for float32 tie at infinity
            if self._query_scale is not None:
                factor = self._query_scale[queries]
                scores = scores * (factor[:, 0] if scores.ndim == 1 else factor)
            if scale is not None:
                scores = scores * scale
        return round_to(scores, self.rounded)


def _renumber(rows: Array, total: int) -> tuple[Array, Array]:
    """Return the distinct rows, ascending, and the position of each row among them."""
    if len(rows) < total:
        distinct, places = np.unique(rows, return_inverse=True)
        return distinct, places
    is_used = np.zeros(total, np.bool_)  # many repetitions: a table is cheaper than sorting
    is_used[rows] = True
    if is_used.all():
        return np.arange(total), rows
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[rows]


def encode_queries(
    queries: Array, form: str, document_scale: Array | None
) -> tuple[Array, Array | None]:
    """Return queries (Q, D) encoded as plain numbers, and the scale (Q, 1) to multiply scores by.

    `document_scale` is the scale of the documents' codes. In int8_dimension it belongs to each
    dimension, so queries are multiplied by it before they are encoded.
    """
    if form in FLOATS:
        return round_to(queries, form), None
    if form == "bit":
        return encode(queries, "bit").numbers(), None
    if form == "int8_dimension":
        assert document_scale is not None
        with np.errstate(over="ignore"):
            scaled = queries * document_scale
        check_range(fixed_sum.length_bounds(scaled), form, "queries")
        codes = encode(scaled, "int8")
    else:
        codes = encode(queries, form)  # type: ignore[arg-type]
    return codes.numbers(), codes.scale


# ----------------------------------------------------------------------------- what is refused


def check_range(lengths: Array, form: str, label: str, first: int = 0) -> None:
    """Refuse vectors with numbers too large for the format: their length (n,) is NaN."""
    if np.isnan(lengths).any():
        row = first + int(np.isnan(lengths).argmax())
        raise InputError(
            f"a number is too large for {form}",
            place=f"{label}: row {row}",
            remedy="scale the vectors, or search in a wider format",
        )


def check_code_format(codes: Codes, form: str) -> None:
    """Refuse codes of another format than the one searched in."""
    if codes.format != form:
        raise InputError(
            f"the documents are {codes.format}, not {form}",
            remedy=f"search with format={codes.format!r}",
        )


def check_dimensions(queries: int, documents: int, place: str | None = None) -> None:
    """Refuse queries and documents of different dimensions."""
    if queries != documents:
        raise InputError(
            f"queries have {queries} dimensions and documents {documents}",
            place=place,
            remedy="embed both with the same model",
        )


def check_rows(values: Any, label: str) -> None:
    """Refuse an array or a tensor that is not (rows, dimensions)."""
    if values.ndim != 2:
        raise InputError(
            f"{label} have the shape {shorten(tuple(values.shape))}",
            remedy="give (rows, dimensions)",
        )


def check_vectors(values: Array, label: str, unit: bool = False) -> Array:
    """Return the lengths (n,) of vectors (n, D) float32; refuse numbers that are not finite.

    With `unit` (vectors are to be normalized) lengths are float64 and zero vectors are refused too;
    without, lengths are float32 upper bounds.
    """
    check_rows(values, label)
    lengths = fixed_sum.lengths(values) if unit else fixed_sum.length_bounds(values)
    is_bad = ~np.isfinite(lengths) if unit else np.isnan(lengths)
    if is_bad.any():
        row = int(is_bad.argmax())
        raise InputError(
            f"{values[row][~np.isfinite(values[row])][0]} in a vector",
            place=f"{label}: row {row}",
            remedy="embed that text again",
        )
    if unit and (lengths == 0).any():
        raise InputError(
            "a zero vector has no direction",
            place=f"{label}: row {int((lengths == 0).argmax())}",
            remedy="drop it, or score with the dot product",
        )
    return lengths
