"""Exact search: the k best documents of every query, in any number format, as a Run."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_choice, check_whole_number
from rankproof.precision import fixed_sum
from rankproof.precision.array_types import is_torch, name_of
from rankproof.precision.formats import FLOATS, SHAPES, Codes, Format, check_format
from rankproof.precision.quantized_arrays import Stored, array_of, decoded
from rankproof.precision.scorers import Scorer, check_dimensions, check_rows, check_vectors
from rankproof.precision.topk import Shortlist, TopK

if TYPE_CHECKING:
    from rankproof.data.tables import Run

Metric = Literal["dot", "cosine"]
Rescore = Literal["decoded", "original"]

_CELLS = 1 << 22  # scores made at a time
ON_GPU = ("float32", "float16", "bfloat16")  # multiplied there as they are
OVERSAMPLE = 4  # times k candidates are rescored, where none are named


def search(
    queries: Any,
    documents: Any,
    k: int,
    *,
    format: Format | None = None,  # noqa: A002
    high_precision: bool = True,
    rescore: Rescore = "decoded",
    originals: Any = None,
    candidates: int | None = None,
    metric: Metric = "dot",
    stored: Stored | None = None,
    ranges: Any = None,
    query_ids: Sequence[str] | None = None,
    document_ids: Sequence[str] | None = None,
    name: str = "search",
) -> Run:
    """The k best documents of each query, exactly, as a Run.

    `queries` (Q, D) and `documents` (N, D) are arrays or tensors; `documents` may be Codes. The
    scores are never all held at once. `format` is what the index stores, by default the type of
    the documents. Tensors and Codes on a GPU are searched there, with the same result.

    With high precision a floating-point format keeps the float32 sum of its products; a format
    made of codes finds `candidates` (4 k where not given) and scores them again with the full
    query, against the decoded documents or against the `originals` (rescore="original"). Without,
    everything stays in the format. The cosine divides by the lengths of the decoded numbers with
    high precision; without, vectors are brought to unit length before they are encoded.

    Arrays of integers are `stored` "int8" or "bits" (`ranges` (2, D) where int8 or uint8 was
    calibrated), as sentence-transformers' quantize_embeddings makes them; the rest are floats.

    `Run.cut` counts, for each query, the documents left out that tie with the last one kept, at
    the step where the format chose.

    >>> from rankproof.precision import search
    >>> found = search(np.array([[1.0, 0.0]]), np.eye(2), 1)
    >>> found.doc.to_list(), found.score.tolist()
    (['0'], [1.0])
    """
    best, form = find(
        *(queries, documents, k),
        format=format,
        high_precision=high_precision,
        rescore=rescore,
        originals=originals,
        candidates=candidates,
        metric=metric,
        stored=stored,
        ranges=ranges,
    )
    dtype = "float32" if high_precision or form not in FLOATS else form
    return to_run(best, query_ids, document_ids, len(documents), dtype, name)


def check_asked(k: int, metric: str, rescore: str, candidates: int | None = None) -> None:
    check_whole_number("k", k, remedy="ask for 1 document or more")
    if candidates is not None:
        check_whole_number("candidates", candidates, remedy="rescore 1 candidate or more")
    check_choice("metric", metric, get_args(Metric))
    check_choice("rescore", rescore, get_args(Rescore))


@fixed_sum.keep_subnormals()
def find(
    queries: Any,
    documents: Any,
    k: int,
    *,
    format: Format | None = None,  # noqa: A002
    high_precision: bool = True,
    rescore: Rescore = "decoded",
    originals: Any = None,
    candidates: int | None = None,
    metric: Metric = "dot",
    stored: Stored | None = None,
    ranges: Any = None,
    are_unit: bool = False,
) -> tuple[TopK, Format]:
    """`search` as plain arrays, and the format that was used.

    `are_unit`: all vectors have unit length, or are zeros, and so had what Codes were made of.
    """
    check_asked(k, metric, rescore, candidates)
    queries, documents = decoded(queries, documents, stored, ranges)
    form = format or (documents.format if isinstance(documents, Codes) else _default(documents))
    check_format(form)
    kept: Any = documents.codes if isinstance(documents, Codes) else documents
    there = is_torch(kept) and bool(kept.is_cuda)
    if there and not isinstance(documents, Codes):
        check_rows(documents, "documents")
    if there and form in ON_GPU and getattr(documents, "format", form) == form:
        return on_gpu(queries, kept, int(k), form, high_precision, metric), form
    exactly = form if high_precision else None
    given: Metric = "dot" if are_unit else metric
    query_array, _ = vectors_of(queries, "queries", given, exactly)
    held, lengths = (
        (documents, None)
        if there or isinstance(documents, Codes)
        else vectors_of(documents, "documents", given, exactly)
    )
    dimensions = held.dimensions if isinstance(held, Codes) else held.shape[1]
    check_dimensions(query_array.shape[1], dimensions)
    k = min(int(k), len(held))
    if there:
        from rankproof.precision import gpu_formats

        best = gpu_formats.find(
            *(query_array, held, form, k),
            high_precision=high_precision,
            rescore=rescore,
            originals=originals,
            candidates=candidates or OVERSAMPLE * k,
            cosine=metric == "cosine",
            are_unit=are_unit,
        )
        return best, form
    cosine = metric == "cosine"
    two_steps = high_precision and form not in FLOATS
    alone = two_steps or not high_precision
    anew = cosine and (
        is_decoded_cosine(form, high_precision) or (isinstance(held, Codes) and not are_unit)
    )
    plain = Scorer(query_array, held, form, alone, lengths, cosine=anew)
    count = min(len(plain), max(k, candidates or OVERSAMPLE * k)) if two_steps else k
    found = best_of(plain, count)
    if not two_steps:
        return found, form
    if rescore == "original":
        against = held if originals is None else vectors_of(originals, "originals", given)[0]
        if isinstance(against, Codes):
            raise InputError(
                "there are no original vectors to rescore with",
                remedy="give originals=, or rescore='decoded'",
            )
        if against.shape != (len(held), dimensions):
            raise InputError(
                f"originals have the shape {against.shape} and documents {(len(held), dimensions)}",
                remedy="give the vectors that the codes were made of",
            )
        exact = Scorer(query_array, against, "float32", plain=False)
    else:
        assert plain.codes is not None
        exact = Scorer(query_array, plain.codes, form, plain=False, cosine=cosine)
    return rescored(exact.pairs(found.documents), found, k), form


@fixed_sum.keep_subnormals()
def best_of(scorer: Scorer, k: int) -> TopK:
    """The k best of all documents by this scorer: a product finds, the fixed sum scores."""
    queries, total = len(scorer.queries), len(scorer)
    step = max(256, _CELLS // max(1, queries))
    shortlist = Shortlist(queries, k, scorer.chosen, scorer.rounded)
    held = np.empty((queries, min(step, total)), np.float32)  # one block's memory serves all
    for first in range(0, total, step):
        last = min(total, first + step)
        room = held if last - first == held.shape[1] else np.empty((queries, last - first), "f4")
        scores, slack = scorer.product(first, last, room)
        shortlist.offer(scores, first, slack)
    return shortlist.result()


def rescored(scores: Array, found: TopK, k: int) -> TopK:
    """The k best of the candidates by their exact scores; of equal ones the first found."""
    by_score = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return TopK(
        np.take_along_axis(scores, by_score, axis=1),
        np.take_along_axis(found.documents, by_score, axis=1),
        found.cut,
    )


def _default(documents: Any) -> Format:
    form = name_of(documents)
    return form if form in FLOATS else "float32"  # type: ignore[return-value]


def is_decoded_cosine(form: Format, high_precision: bool) -> bool:
    """True if the cosine is of what the format stores: it rounds, and nothing is scored in it."""
    return high_precision and form in FLOATS and form != "float32"


def scorer_of(
    queries: Array, documents: Array, form: Format, *, plain: bool, metric: Metric
) -> Scorer:
    """Return the scorer that `find` uses for vectors (n, D) in this format, or their rescoring."""
    exactly = None if plain else form
    pair = [
        vectors_of(values, what, metric, exactly)[0]
        for values, what in ((queries, "queries"), (documents, "documents"))
    ]
    anew = metric == "cosine" and not plain and form != "float32"
    return Scorer(pair[0], pair[1], form, plain, cosine=anew)


@fixed_sum.keep_subnormals()
def vectors_of(
    values: Any, what: str, metric: Metric, exactly: Format | None = None
) -> tuple[Array, Array]:
    """(n, D) float32 as they are multiplied, and their lengths or more (n,) float32.

    They are finite, and of unit length under the cosine. Where that is the cosine of what the
    format `exactly` stores, they are as they are stored: nothing but their format rounds them.
    """
    array = array_of(values, what)
    if is_torch(array):
        array = array.detach().float().cpu().numpy()
    with np.errstate(over="ignore"):  # past float32 lies inf, which is refused with its row
        array = array if array.dtype == np.float32 else array.astype(np.float32)
    lengths = check_vectors(array, what, unit=metric == "cosine")
    if metric == "cosine" and exactly is not None and is_decoded_cosine(exactly, True):
        array = storable(array, lengths, exactly)
    elif metric == "cosine":
        # Each number is rounded by 2⁻²⁴ of itself, or of the smallest normal one.
        return fixed_sum.normalize(array, lengths), np.full(len(array), 1 + 2.0**-20, np.float32)
    return array, lengths


def storable(values: Array, lengths: Array, form: Format) -> Array:
    """Return vectors whose direction a format can hold.

    One with a number beyond the largest of the format, or with none that is not 0 in it, is
    brought to unit length: the cosine does not depend on lengths, and so no vector is refused.
    """
    _, _, least, most, _ = SHAPES[form]
    peak = np.maximum(values.max(axis=1, initial=0.0), -values.min(axis=1, initial=0.0))
    beyond = (peak > most) | (peak < least)
    if beyond.any():
        values = values.copy()
        values[beyond] = fixed_sum.normalize(values[beyond], lengths[beyond])
    return values


def on_gpu(
    queries: Any, documents: Any, k: int, form: Format, high_precision: bool, metric: Metric
) -> TopK:
    """The formats that a GPU multiplies, with everything there."""
    import torch

    from rankproof.precision import gpu_scores, gpu_search

    check_rows(queries, "queries")
    if not is_torch(queries):
        with np.errstate(over="ignore"):  # past float32 lies inf, which is refused with its row
            queries = torch.from_numpy(np.array(queries, np.float32))
    check_dimensions(queries.shape[1], documents.shape[1])
    there, cosine = documents.device, metric == "cosine"
    exactly = cosine and is_decoded_cosine(form, high_precision)
    a, b = (
        gpu_scores.stored(x.detach().to(there), form, what, cosine, exactly)
        for x, what in ((queries, "queries"), (documents, "documents"))
    )
    return gpu_search.top_k(a, b, k, low=not high_precision)


def to_run(
    best: TopK,
    query_ids: Sequence[str] | None,
    document_ids: Sequence[str] | None,
    documents: int,
    dtype: str,
    name: str,
    doc: Any = None,
) -> Run:
    """Row numbers → a Run with ids; the numbers themselves where none are given.

    `doc` are the ids of what was found, where those of all documents are not at hand.
    """
    import polars as pl

    from rankproof.data.columns import row_ids
    from rankproof.data.tables import Later, Run, build_run
    from rankproof.foundation import kernels

    count, k = best.documents.shape
    queries = row_ids(query_ids, count, "query_ids").alias("query")
    score, cut = best.scores.ravel().astype(np.float64), best.cut.astype(np.int64)
    if doc is not None:
        codes = np.repeat(np.arange(count, dtype=np.int32), k)
        return build_run(name, queries, codes, doc, score, dtype, cut=cut)
    known = None if document_ids is None else row_ids(document_ids, documents, "document_ids")
    start = np.arange(count + 1) * k
    for column in (start, score):
        column.flags.writeable = False

    @functools.cache
    def named() -> Any:
        rows = pl.Series(best.documents.ravel())
        ids = _numbered(rows, documents) if known is None else known.gather(rows)
        return ids.rechunk().alias("doc")

    # A million results have their scores long before they have their names.
    index = Later(lambda: kernels.index_documents(named(), start))
    return Run(name, queries, start, Later(named), score, dtype, cut, index)  # type: ignore[arg-type]


def _numbered(rows: Any, documents: int) -> Any:
    """Row numbers as ids: of the results, or of all documents where those are fewer."""
    import polars as pl

    if documents < len(rows):
        return _numbered(pl.Series(np.arange(documents)), documents).gather(rows)
    parts: dict[int, Any] = {}

    def name(low: int, high: int) -> None:
        parts[low] = rows[low:high].cast(pl.String)

    fixed_sum.run_on_threads(name, len(rows), len(rows))
    return pl.concat([parts[low] for low in sorted(parts)])
