# mypy: ignore-errors
"""The Triton kernels of gpu_search.py, gpu_duplicates.py and gpu_scores.py.

Those modules explain the steps, and compute each of them in plain torch too. Documents are the rows
of every tile, so that a product with few queries still fills the tensor cores.
`share`, `tiny`, `stretch` and `offset` are the constants of `gpu_scores.SlackConstants`.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _slack(query_length, share, tiny, stretch, offset):
    """Return factor and extra of `gpu_scores.Slack.terms` for queries of these lengths."""
    length = query_length * stretch + offset
    return (length * share + tiny) * 1.000001, tiny * (1 + length) * 1.000001


@triton.jit
def _overflow_length(query_length, stretch, offset):
    """Return the document length from which a product may overflow: 2¹²⁶ / query length."""
    return 8.507059173023462e37 / tl.maximum(query_length * stretch + offset, 1.0)


@triton.jit
def _report_infinite(length, inside, status):
    """Set the status if the length of a row that exists is not finite."""
    wrong = inside & ((length < float("inf")) == 0)
    if tl.max(wrong.to(tl.int32)) > 0:
        tl.store(status, 1)


@triton.jit
def _sum_lanes(lanes, A: tl.constexpr, B: tl.constexpr, LANES: tl.constexpr):
    """Return sums (A, B) of lanes (A, B, LANES): halves are added until one is left."""
    lanes = tl.sum(tl.reshape(lanes, [A, B, 2, LANES // 2]), 2)
    lanes = tl.sum(tl.reshape(lanes, [A, B, 2, LANES // 4]), 2)
    lanes = tl.sum(tl.reshape(lanes, [A, B, 2, LANES // 8]), 2)
    lanes = tl.sum(tl.reshape(lanes, [A, B, 2, LANES // 16]), 2)
    return tl.reshape(tl.sum(tl.reshape(lanes, [A, B, 2, 1]), 2), [A, B])


@triton.jit
def _lower_bounds(sums, length, factor, extra, overflow_length, stretch, offset):
    """Return lower bounds of the fixed sums (documents, queries); -inf after an overflow."""
    length = length * stretch + offset
    length = tl.where(length < overflow_length, length, float("inf"))
    low = sums - length[:, None] * factor[None, :] - extra[None, :]
    low = low - tl.abs(low) * 2.4e-07
    return tl.where(low == low, low, float("-inf"))


@triton.jit
def _ordered(score):
    """Return integers in the same order as the scores."""
    bits = (score + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


@triton.jit
def _score_limit(threshold, extra):
    """Return a lower limit, rounding included, of the products whose sum reaches the threshold.

    The product itself may be lower by its slack: factor · document length.
    """
    return threshold - extra - tl.abs(threshold) * 4.8e-07


@triton.jit
def lengths_kernel(
    values,
    lengths,
    status,
    covered,
    count,
    dimensions,
    stride,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
    HAS_COVERED: tl.constexpr,
):
    """Write the lengths of rows in float32, and set the status if one is not finite.

    With HAS_COVERED, rows with a number (≥ 0) in `covered` are not read and get -inf.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < count
    if HAS_COVERED:
        inside &= tl.load(covered + row, mask=inside, other=0) < 0
    base = values + row.to(tl.int64)[:, None] * stride
    squares = tl.zeros([ROWS, WIDE], tl.float32)
    for first in tl.range(0, dimensions, WIDE):
        column = (first + tl.arange(0, WIDE))[None, :]
        mask = inside[:, None] & (column < dimensions)
        number = tl.load(base + column, mask=mask, other=0.0).to(tl.float32)
        squares += number * number
    length = tl.sqrt(tl.sum(squares, 1))
    _report_infinite(length, inside, status)
    tl.store(lengths + row, tl.where(inside, length, float("-inf")), mask=row < count)


@triton.jit
def scan_few_kernel(
    queries,
    documents,
    query_lengths,
    scores,
    lengths,
    best,
    status,
    rows,
    count,
    total,
    dimensions,
    query_stride,
    document_stride,
    groups,
    share,
    tiny,
    stretch,
    offset,
    ROWS: tl.constexpr,
    QUERIES: tl.constexpr,
    WIDE: tl.constexpr,
    HAS_ROWS: tl.constexpr,
):
    """Do the work of `scan_kernel` for one or two queries, without tensor cores.

    Tensor cores would only wait for memory here. `best` holds zeros at first, then the best lower
    bound of each group as an unsigned integer (integers in the order of the scores).
    """
    query = tl.arange(0, QUERIES)
    is_query = query < count
    position = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = position < total
    row = tl.load(rows + position, mask=inside, other=0) if HAS_ROWS else position
    base = documents + row.to(tl.int64)[:, None] * document_stride
    products = tl.zeros([ROWS, QUERIES, WIDE], tl.float32)
    squares = tl.zeros([ROWS, WIDE], tl.float32)
    for first in tl.range(0, dimensions, WIDE):
        column = first + tl.arange(0, WIDE)
        within = (column < dimensions)[None, :]
        a = tl.load(base + column[None, :], mask=inside[:, None] & within, other=0.0)
        b = tl.load(
            queries + query[:, None] * query_stride + column[None, :],
            mask=is_query[:, None] & within,
            other=0.0,
        ).to(tl.float32)
        numbers = a.to(tl.float32)
        products += numbers[:, None, :] * b[None, :, :]
        squares += numbers * numbers
    sums = tl.sum(products, 2)
    length = tl.sqrt(tl.sum(squares, 1))
    query_length = tl.load(query_lengths + query, mask=is_query, other=0.0)
    factor, extra = _slack(query_length, share, tiny, stretch, offset)
    tl.store(lengths + position, length, mask=inside)
    _report_infinite(length, inside, status)
    valid = inside[:, None] & is_query[None, :]
    tl.store(scores + query[None, :].to(tl.int64) * total + position[:, None], sums, mask=valid)
    low = _lower_bounds(
        sums,
        length,
        factor,
        extra,
        _overflow_length(tl.max(query_length, 0), stretch, offset),
        stretch,
        offset,
    )
    ordered_low = _ordered(low) ^ -2147483648
    best = best.to(tl.pointer_type(tl.uint32), bitcast=True)
    tl.atomic_max(
        best + query[None, :] * groups + (position % groups)[:, None],
        ordered_low.to(tl.uint32, bitcast=True),
        mask=valid,
        sem="relaxed",
    )


@triton.jit
def scan_kernel(
    queries,
    documents,
    query_lengths,
    scores,
    lengths,
    best,
    status,
    rows,
    count,
    total,
    dimensions,
    query_stride,
    document_stride,
    groups,
    share,
    tiny,
    stretch,
    offset,
    ROWS: tl.constexpr,
    QUERIES: tl.constexpr,
    WIDE: tl.constexpr,
    HAS_ROWS: tl.constexpr,
    EVEN: tl.constexpr,
    FOLD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write scores and lengths of all documents or of `rows`, and each group's best lower bound.

    Documents of a group lie far apart, so that sorted or clustered ones fall into several groups.
    """
    query = tl.arange(0, QUERIES)
    is_query = query < count
    dimension = tl.arange(0, WIDE)
    query_squares = tl.zeros([QUERIES, WIDE], tl.float32)
    for first in tl.range(0, dimensions, WIDE):
        b = tl.load(
            queries + query[:, None] * query_stride + (first + dimension)[None, :],
            mask=is_query[:, None] & (first + dimension < dimensions)[None, :],
            other=0.0,
        ).to(tl.float32)
        query_squares += b * b
    query_length = tl.sqrt(tl.sum(query_squares, 1))
    if tl.program_id(0) == 0:
        tl.store(query_lengths + query, query_length, mask=is_query)
        _report_infinite(query_length, is_query, status + 1)
    factor, extra = _slack(query_length, share, tiny, stretch, offset)
    overflow_length = _overflow_length(tl.max(query_length, 0), stretch, offset)
    group_best = tl.full([ROWS, QUERIES], float("-inf"), tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(total, ROWS), tl.num_programs(0)):
        position = tile * ROWS + tl.arange(0, ROWS)
        inside = position < total
        row = tl.load(rows + position, mask=inside, other=0) if HAS_ROWS else position
        base = documents + row.to(tl.int64)[:, None] * document_stride
        sums = tl.zeros([ROWS, QUERIES], tl.float32)
        squares = tl.zeros([ROWS], tl.float32)
        for first in tl.range(0, dimensions, WIDE):
            column = first + dimension
            if EVEN:
                a = tl.load(base + column[None, :], mask=inside[:, None], other=0.0)
            else:
                within = column < dimensions
                a = tl.load(
                    base + column[None, :], mask=inside[:, None] & within[None, :], other=0.0
                )
            b = tl.load(
                queries + query[None, :] * query_stride + column[:, None],
                mask=is_query[None, :] & (column < dimensions)[:, None],
                other=0.0,
            )
            sums = tl.dot(a, b, sums, input_precision=PRECISION)
            numbers = a.to(tl.float32)
            squares += tl.sum(numbers * numbers, 1)
        length = tl.sqrt(squares)
        tl.store(lengths + position, length, mask=inside)
        _report_infinite(length, inside, status)
        target = scores + query[None, :].to(tl.int64) * total + position[:, None]
        tl.store(target, sums, mask=inside[:, None] & is_query[None, :])
        low = _lower_bounds(sums, length, factor, extra, overflow_length, stretch, offset)
        group_best = tl.maximum(group_best, tl.where(inside[:, None], low, float("-inf")))
    group_best = tl.max(tl.reshape(group_best, [FOLD, ROWS // FOLD, QUERIES]), 0)
    group = tl.program_id(0) * (ROWS // FOLD) + tl.arange(0, ROWS // FOLD)
    tl.store(best + query[None, :] * groups + group[:, None], group_best, mask=is_query[None, :])


@triton.jit
def threshold_kernel(
    best,
    thresholds,
    query_lengths,
    longest,
    groups,
    stride,
    rank,
    share,
    tiny,
    stretch,
    offset,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    ARE_ORDERED: tl.constexpr,
    HAS_LONGEST: tl.constexpr,
):
    """Write a threshold per query: the `rank`-th best of the groups' best scores, or less.

    Bisection over ordered integers finds it. With HAS_LONGEST it is lowered by the error of a
    product with the longest duplicate vector.
    """
    query = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, BLOCK)
    inside = group < groups
    base = best + query * stride + group
    if ARE_ORDERED:
        ordered = tl.load(base, mask=inside, other=0).to(tl.int32, bitcast=True) ^ -2147483648
    else:
        value = tl.load(base, mask=inside, other=float("-inf"))
        for sample in tl.static_range(1, SHARED):
            value = tl.maximum(
                value, tl.load(base + sample * groups, mask=inside, other=float("-inf"))
            )
        ordered = _ordered(tl.where(value == value, value, float("-inf")))
    low = tl.min(tl.where(inside, ordered, 2147483647), 0).to(tl.int64)
    high = tl.max(tl.where(inside, ordered, -2147483648), 0).to(tl.int64) + 1
    for _ in tl.range(24):
        middle = (low + high) >> 1
        is_reached = tl.sum((inside & (ordered >= middle.to(tl.int32))).to(tl.int32), 0) >= rank
        low = tl.where(is_reached, middle, low)
        high = tl.where(is_reached, high, middle)
    ordered_threshold = low.to(tl.int32)
    threshold = tl.where(
        ordered_threshold >= 0, ordered_threshold, ordered_threshold ^ 0x7FFFFFFF
    ).to(tl.float32, bitcast=True)
    if HAS_LONGEST:
        factor, extra = _slack(tl.load(query_lengths + query), share, tiny, stretch, offset)
        threshold -= factor * (tl.load(longest) * stretch + offset) + extra
        threshold -= tl.abs(threshold) * 2.4e-07
    tl.store(thresholds + query, tl.where(threshold == threshold, threshold, float("-inf")))


@triton.jit
def collect_kernel(
    scores,
    lengths,
    query_lengths,
    thresholds,
    candidates,
    counts,
    rows,
    first,
    width,
    stride,
    capacity,
    share,
    tiny,
    stretch,
    offset,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    ALONE: tl.constexpr,
    HAS_ROWS: tl.constexpr,
):
    """Append the documents that can reach the threshold to each query's list.

    If at most ALONE documents of a chunk do, each takes its slot by its own atomic addition, since
    a prefix sum would make every lane wait for the others. Many atomics on one counter take longer.
    """
    query = tl.program_id(1).to(tl.int64)
    query_length = tl.load(query_lengths + query)
    factor, extra = _slack(query_length, share, tiny, stretch, offset)
    overflow_length = _overflow_length(query_length, stretch, offset)
    limit = _score_limit(tl.load(thresholds + query), extra)
    for chunk in tl.range(CHUNKS):
        column = (tl.program_id(0) * CHUNKS + chunk) * CHUNK + tl.arange(0, CHUNK)
        inside = column < width
        score = tl.load(scores + query * stride + column, mask=inside, other=0.0)
        length = tl.load(lengths + column, mask=inside, other=0.0) * stretch + offset
        length = tl.where(length < overflow_length, length, float("inf"))
        passes = inside & (length != float("-inf"))
        passes &= (score + factor * length < limit) == 0  # NaN may be anything
        is_passing = passes.to(tl.int32)
        passing = tl.sum(is_passing, 0)
        row = tl.load(rows + column, mask=passes, other=0) if HAS_ROWS else first + column
        if passing > ALONE:
            position = tl.cumsum(is_passing, 0) - 1
            position += tl.atomic_add(counts + query, passing, sem="relaxed")
            tl.store(
                candidates + query * capacity + position, row, mask=passes & (position < capacity)
            )
        elif passing > 0:
            counter = counts + query + tl.zeros([CHUNK], tl.int32)
            position = tl.atomic_add(counter, 1, mask=passes, sem="relaxed")
            tl.store(
                candidates + query * capacity + position, row, mask=passes & (position < capacity)
            )


@triton.jit
def mark_kernel(
    documents,
    queries,
    lengths,
    query_lengths,
    thresholds,
    marks,
    count,
    total,
    dimensions,
    words,
    share,
    tiny,
    stretch,
    offset,
    ROWS: tl.constexpr,
    QUERIES: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write one bit per score, set if it can reach the threshold; the scores are never written."""
    tiles = tl.cdiv(count, QUERIES)
    first_query = (tl.program_id(0) % tiles) * QUERIES
    first_row = (tl.program_id(0) // tiles) * ROWS
    sums = tl.zeros([ROWS, QUERIES], tl.float32)
    for first in tl.range(0, dimensions, WIDE):
        a = documents.load([first_row, first])
        b = queries.load([first_query, first])
        sums = tl.dot(a, b.T, sums, input_precision=PRECISION)
    row = first_row + tl.arange(0, ROWS)
    inside = row < total
    query = first_query + tl.arange(0, QUERIES)
    is_query = query < count
    query_length = tl.load(query_lengths + query, mask=is_query, other=0.0)
    factor, extra = _slack(query_length, share, tiny, stretch, offset)
    limit = _score_limit(tl.load(thresholds + query, mask=is_query, other=0.0), extra)
    overflow_length = _overflow_length(tl.max(query_length, 0), stretch, offset)
    length = tl.load(lengths + row, mask=inside, other=0.0) * stretch + offset
    length = tl.where(length < overflow_length, length, float("inf"))
    passes = (sums + length[:, None] * factor[None, :] < limit[None, :]) == 0
    bit = tl.where(is_query, 1 << (query % 32), 0)
    bits = tl.where(passes, bit[None, :], 0)
    word = tl.sum(tl.reshape(bits, [ROWS, QUERIES // 32, 32]), 2)
    word = tl.where(length[:, None] == float("-inf"), 0, word)
    column = first_query // 32 + tl.arange(0, QUERIES // 32)
    position = marks + row[:, None].to(tl.int64) * words + column[None, :]
    tl.store(position, word, mask=inside[:, None] & (column < words)[None, :])


@triton.jit
def gather_kernel(marks, candidates, counts, first, size, words, capacity, BLOCK: tl.constexpr):
    """Append the documents whose bits `mark_kernel` set to each query's list."""
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(marks + position, mask=position < size, other=0)
    row = (first + position // words).to(tl.int32)
    word = word.to(tl.uint32, bitcast=True)
    base = (position % words) * 32
    while tl.max((word != 0).to(tl.int32)) > 0:
        remaining = word & (word - 1)
        # A power of two, so that the exponent of the float is the number of the bit.
        lowest = (word ^ remaining).to(tl.float32)
        query = base + ((lowest.to(tl.int32, bitcast=True) >> 23) - 127)
        has_bits = word != 0
        slot = tl.atomic_add(counts + query, 1, mask=has_bits, sem="relaxed")
        tl.store(candidates + query * capacity + slot, row, mask=has_bits & (slot < capacity))
        word = remaining


@triton.jit
def rescore_kernel(
    queries,
    documents,
    candidates,
    counts,
    keys,
    dimensions,
    query_stride,
    document_stride,
    count,
    capacity,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
    FORM: tl.constexpr,
):
    """Write keys of the candidates' fixed sums, and the smallest key into empty slots.

    Programs run in the order of positions, then queries. Lists are nearly in the order of the
    documents, so that programs that run together read the same documents.

    Products are exact in float64, so that a fused multiply-add gives the same bits. Converting to
    float64 takes longer than multiplying; a tile of many documents converts the query only once.
    """
    query = (tl.program_id(0) % count).to(tl.int64)
    begin = tl.program_id(0) // count * TILE
    position = begin + tl.arange(0, TILE)
    is_used = position < tl.minimum(tl.load(counts + query), capacity)
    keys += query * capacity
    if begin < tl.load(counts + query):
        row = tl.load(candidates + query * capacity + position, mask=is_used, other=0).to(tl.int64)
        base = documents + row[:, None] * document_stride
        lane = tl.arange(0, LANES)
        sums = tl.zeros([TILE, LANES], tl.float64)
        for first in tl.range(0, dimensions, LANES, num_stages=3):
            column = first + lane
            within = column < dimensions
            q = tl.load(queries + query * query_stride + column, mask=within, other=0.0)
            d = tl.load(base + column[None, :], mask=within[None, :], other=0.0)
            sums += q.to(tl.float64)[None, :] * d.to(tl.float64)
        score = tl.reshape(_sum_lanes(tl.reshape(sums, [1, TILE, LANES]), 1, TILE, LANES), [TILE])
        score = score.to(tl.float32).to(FORM).to(tl.float32) + 0.0
        key = (_ordered(score).to(tl.int64) << 32) | (0xFFFFFFFF - row)
        tl.store(
            keys + position, tl.where(is_used, key, -9223372036854775808), mask=position < capacity
        )
    else:
        empty = tl.full([TILE], -9223372036854775808, tl.int64)
        tl.store(keys + position, empty, mask=position < capacity)


@triton.jit
def order_kernel(
    keys, best, counts, k, capacity, stride, best_stride, TILE: tl.constexpr, BLOCK: tl.constexpr
):
    """Sort keys, all different: write each to the position given by the number of larger keys."""
    query = tl.program_id(1).to(tl.int64)
    used = tl.minimum(tl.load(counts + query), capacity)
    if tl.program_id(0) * TILE < used:
        keys += query * stride
        position = tl.program_id(0) * TILE + tl.arange(0, TILE)
        key = tl.load(keys + position, mask=position < used, other=0)
        count = tl.zeros([TILE, BLOCK], tl.int32)
        for first in tl.range(0, used, BLOCK):
            other = first + tl.arange(0, BLOCK)
            other_keys = tl.load(keys + other, mask=other < used, other=-9223372036854775808)
            count += (other_keys[None, :] > key[:, None]).to(tl.int32)
        larger = tl.sum(count, 1)
        target = best + query * best_stride + larger
        tl.store(target, key, mask=(position < used) & (larger < k))


@triton.jit
def finish_kernel(
    keys,
    best,
    thresholds,
    counts,
    last_vectors,
    left_out,
    cut,
    failed,
    status,
    k,
    capacity,
    best_stride,
    BLOCK: tl.constexpr,
    HAS_LEFT_OUT: tl.constexpr,
):
    """Write how many documents tie with the last of the k best, and whether the query failed.

    A query fails if fewer than k documents reached its threshold, or more than its list can hold.
    `left_out` documents have no key; they tie if the last score equals that in `last_vectors`.
    """
    query = tl.program_id(0).to(tl.int64)
    last = tl.load(best + query * best_stride + k - 1)
    ordered = last >> 32
    ties = tl.zeros([BLOCK], tl.int32)
    for first in tl.range(0, capacity, BLOCK):
        position = first + tl.arange(0, BLOCK)
        key = tl.load(keys + query * capacity + position, mask=position < capacity, other=0)
        ties += ((position < capacity) & (key < last) & ((key >> 32) == ordered)).to(tl.int32)
    outside = tl.sum(ties, 0).to(tl.int64)
    if HAS_LEFT_OUT:
        outside += tl.where(ordered == tl.load(last_vectors + query), tl.load(left_out + query), 0)
    tl.store(cut + query, outside)
    whole = ordered.to(tl.int32)
    score = tl.where(whole >= 0, whole, whole ^ 0x7FFFFFFF).to(tl.float32, bitcast=True)
    count = tl.load(counts + query)
    has_failed = (count < k) | (count > capacity) | ((score >= tl.load(thresholds + query)) == 0)
    tl.store(failed + query, has_failed.to(tl.int32))
    if has_failed:
        tl.store(status, 1)


@triton.jit
def sums_kernel(
    queries,
    documents,
    query_rows,
    document_rows,
    sums,
    count,
    dimensions,
    query_stride,
    document_stride,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Write the fixed sums of pairs of queries and documents."""
    pair = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = pair < count
    query = queries + tl.load(query_rows + pair, mask=inside, other=0)[:, None] * query_stride
    document = (
        documents + tl.load(document_rows + pair, mask=inside, other=0)[:, None] * document_stride
    )
    lane = tl.arange(0, LANES)
    lanes = tl.zeros([TILE, LANES], tl.float64)
    for first in tl.range(0, dimensions, LANES):
        column = (first + lane)[None, :]
        mask = inside[:, None] & (column < dimensions)
        a = tl.load(query + column, mask=mask, other=0.0).to(tl.float64)
        b = tl.load(document + column, mask=mask, other=0.0).to(tl.float64)
        lanes += a * b
    total = tl.reshape(_sum_lanes(tl.reshape(lanes, [1, TILE, LANES]), 1, TILE, LANES), [TILE])
    tl.store(sums + pair, total, mask=inside)


@triton.jit
def hash_kernel(
    documents, weights, hashes, total, dimensions, stride, ROWS: tl.constexpr, WIDE: tl.constexpr
):
    """Write weighted sums of the bits of each row: equal rows have equal sums."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < total
    base = documents + row.to(tl.int64)[:, None] * stride
    sums = tl.zeros([ROWS, WIDE], tl.int64)
    for first in tl.range(0, dimensions, WIDE):
        column = first + tl.arange(0, WIDE)
        within = column < dimensions
        values = tl.load(base + column[None, :], mask=inside[:, None] & within[None, :], other=0.0)
        bits = (values.to(tl.float32) + 0.0).to(tl.int32, bitcast=True)
        weight = tl.load(weights + column, mask=within, other=0)
        sums += (bits ^ (bits >> 16)).to(tl.int64) * weight[None, :]
    tl.store(hashes + row, tl.sum(sums, 1), mask=inside)


@triton.jit
def compare_kernel(
    documents,
    rows,
    vector,
    firsts,
    status,
    count,
    dimensions,
    stride,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Set the status if one of these rows differs from its duplicate vector, or is not finite."""
    position = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = position < count
    row = tl.load(rows + position, mask=inside, other=0)
    documents_base = documents + row.to(tl.int64)[:, None] * stride
    first_row = tl.load(firsts + tl.load(vector + row, mask=inside, other=0), mask=inside, other=0)
    vectors_base = documents + first_row.to(tl.int64)[:, None] * stride
    differs = tl.zeros([ROWS, WIDE], tl.int32)
    for first in tl.range(0, dimensions, WIDE):
        column = (first + tl.arange(0, WIDE))[None, :]
        mask = inside[:, None] & (column < dimensions)
        number = tl.load(documents_base + column, mask=mask, other=0.0).to(tl.float32)
        expected = tl.load(vectors_base + column, mask=mask, other=0.0).to(tl.float32)
        differs |= ((number != expected) | ((tl.abs(number) < float("inf")) == 0)).to(tl.int32)
    if tl.max(differs) > 0:
        tl.store(status, 1)


@triton.jit
def members_kernel(
    best,
    thresholds,
    vector,
    size,
    start,
    order,
    counts,
    keys,
    new_counts,
    last_vectors,
    left_out,
    status,
    k,
    best_count,
    best_stride,
    distinct,
    capacity,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):
    """Append keys of the copies of the best vectors that reach the threshold; see `append_members`.

    For each vector as many as can be among the k best; its first document has a key already.
    """
    query = tl.program_id(1).to(tl.int64)
    best += query * best_stride
    keys += query * capacity
    position = tl.arange(0, BLOCK)
    is_vector = position < best_count
    key = tl.load(best + position, mask=is_vector, other=0)
    ordered = key >> 32
    is_vector &= ordered >= _ordered(tl.load(thresholds + query))
    number = tl.load(vector + (0xFFFFFFFF - (key & 0xFFFFFFFF)), mask=is_vector, other=0)
    sizes = tl.load(size + number, mask=is_vector, other=0)
    needed = is_vector & (tl.cumsum(sizes, 0) - sizes < k)
    last = tl.min(tl.where(needed, ordered, 2147483647), 0)
    above = is_vector & (ordered > last)
    missing = k - tl.sum(tl.where(above, sizes, 0), 0)
    tied = (is_vector & (ordered == last)).to(tl.int64)
    limit = tl.where(tied > 0, missing + 1 - tl.cumsum(tied, 0), tl.where(above, k, 0))
    candidates = tl.minimum(sizes, tl.maximum(limit, 0))
    appended = tl.maximum(candidates - 1, 0)
    ends = tl.cumsum(appended, 0)
    total_appended = tl.sum(appended, 0)
    key_count = tl.load(counts + query)
    if tl.program_id(0) == 0:
        tl.store(new_counts + query, key_count + total_appended.to(tl.int32))
        if tl.sum(candidates, 0) >= 2 * k:
            tl.store(status, 1)
        ties = tl.zeros([1024], tl.int64)
        for first in tl.range(0, distinct, 1024):
            vector_position = first + tl.arange(0, 1024)
            inside = vector_position < distinct
            score = tl.load(keys + vector_position, mask=inside, other=0) >> 32
            amount = tl.load(size + vector_position, mask=inside, other=0) - 1
            ties += tl.where(inside & (score == last), amount, 0)
        tl.store(last_vectors + query, last)
        tl.store(left_out + query, tl.sum(ties, 0) - tl.sum(tl.where(tied > 0, appended, 0), 0))
    end = tl.minimum(total_appended, capacity - key_count)
    for tile in tl.range(tl.program_id(0), tl.cdiv(end, TILE), tl.num_programs(0)):
        slot = tile * TILE + tl.arange(0, TILE)
        inside_end = slot < end
        is_past = is_vector[None, :] & (ends[None, :] <= slot[:, None])
        slot_start = tl.max(tl.where(is_past, ends[None, :], 0), 1)
        vector_key = tl.load(best + tl.sum(is_past.to(tl.int32), 1), mask=inside_end, other=0)
        vector_number = tl.load(
            vector + (0xFFFFFFFF - (vector_key & 0xFFFFFFFF)), mask=inside_end, other=0
        )
        first_member = tl.load(start + vector_number, mask=inside_end, other=0) + 1
        row = tl.load(order + first_member + slot - slot_start, mask=inside_end, other=0).to(
            tl.int64
        )
        member = ((vector_key >> 32) << 32) | (0xFFFFFFFF - row)
        tl.store(keys + key_count + slot, member, mask=inside_end)
