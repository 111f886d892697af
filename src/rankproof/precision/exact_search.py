"""Exact search: the k best documents of every query, in any number format, as a Run."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError, check_whole_number
from rankproof.precision import fixed_sum
from rankproof.precision.array_types import format_of, is_torch
from rankproof.precision.formats import FLOATS, SHAPES, Codes, Format
from rankproof.precision.pipeline import Metric, Rescore, ScoringPipeline
from rankproof.precision.quantized_arrays import Stored, as_numbers, check_array
from rankproof.precision.scorers import Scorer, check_dimensions, check_rows, check_vectors
from rankproof.precision.topk import Shortlist, TopK

if TYPE_CHECKING:
    from rankproof.data.tables import Run

_BLOCK_SCORES = 1 << 22  # scores made at a time
GPU_FORMATS = ("float32", "float16", "bfloat16")  # a GPU multiplies these as they are


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
    """Return the k best documents of each query, exactly, as a Run.

    `queries` (Q, D) and `documents` (N, D) are arrays or tensors; `documents` may be Codes. The
    scores are never all in memory at once. `format` is what the index stores, by default the type
    of the documents. Tensors and Codes on a GPU are searched there, with the same result.

    With `high_precision` a floating-point format keeps the float32 sum of its products; a format
    made of codes selects `candidates` (4 k by default) and scores them again with the full query,
    against the decoded documents or against the `originals` (rescore="original"). Without it,
    all computation stays in the format. In high precision the cosine divides by the lengths of the
    decoded numbers; otherwise vectors are brought to unit length before they are encoded.

    Arrays of integers need `stored`: "int8" or "bits", as sentence-transformers'
    quantize_embeddings makes them (with `ranges` (2, D) where int8 or uint8 was calibrated).

    `Run.cut` counts, for each query, the documents outside the list that tie with the last one in
    it; where candidates are rescored, the documents that tie with the last candidate.

    >>> from rankproof.precision import search
    >>> run = search(np.array([[1.0, 0.0]]), np.eye(2), 1)
    >>> run.doc.to_list(), run.score.tolist()
    (['0'], [1.0])
    """
    check_depth(k)
    queries, documents = as_numbers(queries, documents, stored, ranges)
    pipeline = ScoringPipeline.of(
        format or default_format(documents),
        high_precision=high_precision,
        rescore=rescore,
        metric=metric,
        candidates=candidates,
    )
    best = find_top_k(queries, documents, k, pipeline, originals=originals)
    dtype = pipeline.score_dtype
    return to_run(best, query_ids, document_ids, len(documents), dtype=dtype, name=name)


def check_depth(k: int) -> None:
    """Refuse a number of results below 1."""
    check_whole_number("k", k, remedy="ask for 1 document or more")


def default_format(documents: Any) -> Format:
    """Return the format of Codes or of an array of floats; float32 for any other."""
    if isinstance(documents, Codes):
        return documents.format
    name = format_of(documents)
    return name if name in FLOATS else "float32"  # type: ignore[return-value]


@fixed_sum.keep_subnormals()
def find_top_k(
    queries: Any,
    documents: Any,
    k: int,
    pipeline: ScoringPipeline,
    *,
    originals: Any = None,
    are_unit: bool = False,
) -> TopK:
    """Return the result of `search` as plain arrays.

    `are_unit` is true if every vector has unit length or is zero, also those that were encoded.
    """
    check_depth(k)
    numbers: Any = documents.codes if isinstance(documents, Codes) else documents
    if is_torch(numbers) and bool(numbers.is_cuda):
        return _find_on_gpu(queries, documents, k, pipeline, originals=originals, are_unit=are_unit)
    preparation = replace(pipeline, metric="dot") if are_unit else pipeline
    query_array, _ = prepare_vectors(queries, "queries", preparation)
    lengths = None
    if not isinstance(documents, Codes):
        documents, lengths = prepare_vectors(documents, "documents", preparation)
    check_dimensions(query_array.shape[1], _dimensions(documents))
    k = min(int(k), len(documents))
    first_step = Scorer(
        query_array,
        documents,
        pipeline.format,
        plain=pipeline.is_plain or pipeline.rescores,
        lengths=lengths,
        normalize=pipeline.has_decoded_cosine
        or (pipeline.metric == "cosine" and isinstance(documents, Codes) and not are_unit),
    )
    best = find_best(first_step, pipeline.candidate_count(k, len(documents)))
    if not pipeline.rescores:
        return best
    if pipeline.scoring == "original":
        if originals is not None:
            originals, _ = prepare_vectors(originals, "originals", preparation)
        vectors, form, normalize = check_originals(documents, originals), "float32", False
    else:
        vectors, form, normalize = first_step.codes, pipeline.format, pipeline.metric == "cosine"
    rescorer = Scorer(query_array, vectors, form, plain=False, normalize=normalize)
    return rescore_candidates(rescorer.pairs(best.documents), best, k)


def _dimensions(documents: Any) -> int:
    """Return the dimensions of vectors or of what Codes stand for."""
    return int(documents.dimensions if isinstance(documents, Codes) else documents.shape[1])


def check_originals(documents: Any, originals: Any) -> Any:
    """Return the vectors to rescore with: the originals, or documents that are not Codes."""
    vectors = documents if originals is None else originals
    if isinstance(vectors, Codes):
        raise InputError(
            "there are no original vectors to rescore with",
            remedy="give originals=, or rescore='decoded'",
        )
    expected = len(documents), _dimensions(documents)
    if tuple(vectors.shape) != expected:
        raise InputError(
            f"originals have the shape {tuple(vectors.shape)} and documents {expected}",
            remedy="give the vectors that the codes were made of",
        )
    return vectors


@fixed_sum.keep_subnormals()
def find_best(scorer: Scorer, k: int) -> TopK:
    """Return the k best of all documents; a fast product selects them, the fixed sum scores."""
    queries, total = len(scorer.queries), len(scorer)
    step = max(256, _BLOCK_SCORES // max(1, queries))
    shortlist = Shortlist(queries, k, scorer.chosen, scorer.rounded)
    buffer = np.empty((queries, min(step, total)), np.float32)  # every full block reuses it
    for first in range(0, total, step):
        last = min(total, first + step)
        is_full = last - first == buffer.shape[1]
        block = buffer if is_full else np.empty((queries, last - first), "f4")
        scores, slack = scorer.product(first, last, block)
        shortlist.offer(scores, first, slack)
    return shortlist.result()


def rescore_candidates(scores: Array, candidates: TopK, k: int) -> TopK:
    """Return the k best candidates by new scores (Q, C); of equal ones the earlier candidate."""
    by_score = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return TopK(
        np.take_along_axis(scores, by_score, axis=1),
        np.take_along_axis(candidates.documents, by_score, axis=1),
        candidates.cut,
    )


def final_scorer(queries: Array, documents: Array, pipeline: ScoringPipeline) -> Scorer:
    """Return the scorer that makes the final scores of a pipeline, for vectors (n, D).

    Where candidates are rescored, it is the scorer of that step.
    """
    step = replace(pipeline, format="float32") if pipeline.scoring == "original" else pipeline
    query_array, _ = prepare_vectors(queries, "queries", step)
    document_array, _ = prepare_vectors(documents, "documents", step)
    normalize = step.metric == "cosine" and not step.is_plain and step.format != "float32"
    return Scorer(query_array, document_array, step.format, step.is_plain, normalize=normalize)


@fixed_sum.keep_subnormals()
def prepare_vectors(values: Any, label: str, pipeline: ScoringPipeline) -> tuple[Array, Array]:
    """Return finite float32 vectors (n, D) ready to be multiplied, and bounds of their lengths.

    Under the cosine they are brought to unit length. The exception is the cosine of decoded numbers
    (`has_decoded_cosine`): there they keep their length, so that only the format rounds them.
    """
    array = check_array(values, label)
    if is_torch(array):
        array = array.detach().float().cpu().numpy()
    with np.errstate(over="ignore"):  # a number beyond float32 becomes inf and is refused below
        array = array if array.dtype == np.float32 else array.astype(np.float32)
    lengths = check_vectors(array, label, unit=pipeline.metric == "cosine")
    if pipeline.has_decoded_cosine:
        return make_storable(array, lengths, pipeline.format), lengths
    if pipeline.metric == "cosine":
        # Each number is rounded by 2⁻²⁴ of itself, or of the smallest normal one.
        return fixed_sum.normalize(array, lengths), np.full(len(array), 1 + 2.0**-20, np.float32)
    return array, lengths


def make_storable(values: Array, lengths: Array, form: str) -> Array:
    """Return vectors (n, D) whose direction a format can hold; for the cosine only.

    A vector with a number beyond the largest of the format, or whose numbers would all become 0 in
    it, is brought to unit length, which does not change its cosine. So no vector is refused.
    """
    shape = SHAPES[form]
    peak = np.maximum(values.max(axis=1, initial=0.0), -values.min(axis=1, initial=0.0))
    out_of_range = (peak > shape.largest) | (peak < shape.smallest)
    if out_of_range.any():
        values = values.copy()
        values[out_of_range] = fixed_sum.normalize(values[out_of_range], lengths[out_of_range])
    return values


def _find_on_gpu(
    queries: Any,
    documents: Any,
    k: int,
    pipeline: ScoringPipeline,
    *,
    originals: Any,
    are_unit: bool,
) -> TopK:
    """Return `find_top_k` where the documents, or their codes, lie on a GPU."""
    from rankproof.precision import gpu_formats

    is_coded = isinstance(documents, Codes)
    if not is_coded:
        check_rows(documents, "documents")
    if pipeline.format in GPU_FORMATS and (not is_coded or documents.format == pipeline.format):
        return search_on_gpu(queries, documents.codes if is_coded else documents, k, pipeline)
    preparation = replace(pipeline, metric="dot") if are_unit else pipeline
    query_array, _ = prepare_vectors(queries, "queries", preparation)
    check_dimensions(query_array.shape[1], _dimensions(documents))
    return gpu_formats.find_top_k(
        query_array,
        documents,
        min(int(k), len(documents)),
        pipeline,
        originals=originals,
        are_unit=are_unit,
    )


def search_on_gpu(queries: Any, documents: Any, k: int, pipeline: ScoringPipeline) -> TopK:
    """Return the k best documents in one of GPU_FORMATS, with everything on the documents' GPU."""
    import torch

    from rankproof.precision import gpu_scores, gpu_search

    check_rows(queries, "queries")
    if not is_torch(queries):
        with np.errstate(over="ignore"):  # a number beyond float32 becomes inf, refused later
            queries = torch.from_numpy(np.array(queries, np.float32))
    check_dimensions(queries.shape[1], documents.shape[1])
    device = documents.device
    query_rows = gpu_scores.prepare_vectors(queries.detach().to(device), "queries", pipeline)
    document_rows = gpu_scores.prepare_vectors(documents.detach(), "documents", pipeline)
    return gpu_search.top_k(query_rows, document_rows, int(k), low=pipeline.is_plain)


def to_run(
    best: TopK,
    query_ids: Sequence[str] | None,
    document_ids: Sequence[str] | None,
    documents: int,
    *,
    dtype: str,
    name: str,
    doc: Any = None,
) -> Run:
    """Return the best documents as a Run with ids; without ids, row numbers are the ids.

    `doc` holds the ids of the results, one after the other, where `document_ids` are not known.
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
    all_ids = None if document_ids is None else row_ids(document_ids, documents, "document_ids")
    start = np.arange(count + 1) * k
    for column in (start, score):
        column.flags.writeable = False

    @functools.cache
    def result_ids() -> Any:
        rows = pl.Series(best.documents.ravel())
        ids = _row_numbers_as_ids(rows, documents) if all_ids is None else all_ids.gather(rows)
        return ids.rechunk().alias("doc")

    # For a million results, ids take much longer than scores, so they are made on first use.
    index = Later(lambda: kernels.index_documents(result_ids(), start))
    return Run(name, queries, start, Later(result_ids), score, dtype, cut, index)  # type: ignore[arg-type]


def _row_numbers_as_ids(rows: Any, documents: int) -> Any:
    """Return row numbers as text; each is converted once if documents are fewer than results."""
    import polars as pl

    if documents < len(rows):
        return _row_numbers_as_ids(pl.Series(np.arange(documents)), documents).gather(rows)
    parts: dict[int, Any] = {}

    def convert(low: int, high: int) -> None:
        parts[low] = rows[low:high].cast(pl.String)

    fixed_sum.run_on_threads(convert, len(rows), len(rows))
    return pl.concat([parts[low] for low in sorted(parts)])
