# mypy: ignore-errors
"""The Triton kernels of gpu_search.py, which says what they are for and has all in plain torch.

Documents are the rows of every tile: a product with few queries then still fills the tensor cores.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _slack(asked, share, tiny, most, least):
    """`gpu_scores.Slack`: factor and extra of queries of these lengths."""
    length = asked * most + least
    return (length * share + tiny) * 1.000001, tiny * (1 + length) * 1.000001


@triton.jit
def _roof(asked, most, least):
    """The length from which on a product may overflow: 2¹²⁶ over the query's."""
    return 8.507059173023462e37 / tl.maximum(asked * most + least, 1.0)


@triton.jit
def _tell(length, inside, status):
    wrong = inside & ((length < float("inf")) == 0)
    if tl.max(wrong.to(tl.int32)) > 0:
        tl.store(status, 1)


@triton.jit
def _tree(lanes, A: tl.constexpr, B: tl.constexpr, LANES: tl.constexpr):
    """(A, B) sums of (A, B, LANES): halves are added until one lane is left."""
    lanes = tl.sum(tl.reshape(lanes, [A, B, 2, LANES // 2]), 2)
    lanes = tl.sum(tl.reshape(lanes, [A, B, 2, LANES // 4]), 2)
    lanes = tl.sum(tl.reshape(lanes, [A, B, 2, LANES // 8]), 2)
    lanes = tl.sum(tl.reshape(lanes, [A, B, 2, LANES // 16]), 2)
    return tl.reshape(tl.sum(tl.reshape(lanes, [A, B, 2, 1]), 2), [A, B])


@triton.jit
def _low(sums, length, factor, extra, roof, most, least):
    """Below the fixed sums (documents, queries); -inf where they may be anything."""
    length = length * most + least
    length = tl.where(length < roof, length, float("inf"))
    low = sums - length[:, None] * factor[None, :] - extra[None, :]
    low = low - tl.abs(low) * 2.4e-07
    return tl.where(low == low, low, float("-inf"))


@triton.jit
def _ordered(score):
    """Whole numbers in the order of scores."""
    bits = (score + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


@triton.jit
def _limit(edge, extra):
    return edge - extra - tl.abs(edge) * 4.8e-07


@triton.jit
def lengths_kernel(
    values,
    lengths,
    status,
    vector,
    count,
    dimensions,
    stride,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
    SOME: tl.constexpr,
):
    """Square roots of float32 sums of squares; status where one is not finite. With SOME, -inf for
    rows that have a vector's number: they are not looked at.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < count
    if SOME:
        inside &= tl.load(vector + row, mask=inside, other=0) < 0
    base = values + row.to(tl.int64)[:, None] * stride
    squares = tl.zeros([ROWS, WIDE], tl.float32)
    for first in tl.range(0, dimensions, WIDE):
        column = (first + tl.arange(0, WIDE))[None, :]
        mask = inside[:, None] & (column < dimensions)
        x = tl.load(base + column, mask=mask, other=0.0).to(tl.float32)
        squares += x * x
    length = tl.sqrt(tl.sum(squares, 1))
    _tell(length, inside, status)
    tl.store(lengths + row, tl.where(inside, length, float("-inf")), mask=row < count)


@triton.jit
def glance_kernel(
    queries,
    documents,
    asked,
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
    most,
    least,
    ROWS: tl.constexpr,
    QUERIES: tl.constexpr,
    WIDE: tl.constexpr,
    SOME: tl.constexpr,
):
    """`survey_kernel` for a query or two, where tensor cores only wait for memory.

    `best` holds zeros, and then the lower bounds as whole numbers above zero in the same order.
    """
    query = tl.arange(0, QUERIES)
    known = query < count
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = place < total
    row = tl.load(rows + place, mask=inside, other=0) if SOME else place
    base = documents + row.to(tl.int64)[:, None] * document_stride
    products = tl.zeros([ROWS, QUERIES, WIDE], tl.float32)
    squares = tl.zeros([ROWS, WIDE], tl.float32)
    for first in tl.range(0, dimensions, WIDE):
        column = first + tl.arange(0, WIDE)
        within = (column < dimensions)[None, :]
        a = tl.load(base + column[None, :], mask=inside[:, None] & within, other=0.0)
        b = tl.load(
            queries + query[:, None] * query_stride + column[None, :],
            mask=known[:, None] & within,
            other=0.0,
        ).to(tl.float32)
        wide = a.to(tl.float32)
        products += wide[:, None, :] * b[None, :, :]
        squares += wide * wide
    sums = tl.sum(products, 2)
    length = tl.sqrt(tl.sum(squares, 1))
    asked_q = tl.load(asked + query, mask=known, other=0.0)
    factor, extra = _slack(asked_q, share, tiny, most, least)
    tl.store(lengths + place, length, mask=inside)
    _tell(length, inside, status)
    valid = inside[:, None] & known[None, :]
    tl.store(scores + query[None, :].to(tl.int64) * total + place[:, None], sums, mask=valid)
    low = _low(sums, length, factor, extra, _roof(tl.max(asked_q, 0), most, least), most, least)
    number = _ordered(low) ^ -2147483648
    best = best.to(tl.pointer_type(tl.uint32), bitcast=True)
    tl.atomic_max(
        best + query[None, :] * groups + (place % groups)[:, None],
        number.to(tl.uint32, bitcast=True),
        mask=valid,
        sem="relaxed",
    )


@triton.jit
def survey_kernel(
    queries,
    documents,
    asked,
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
    most,
    least,
    ROWS: tl.constexpr,
    QUERIES: tl.constexpr,
    WIDE: tl.constexpr,
    SOME: tl.constexpr,
    EVEN: tl.constexpr,
    FOLD: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Scores and lengths of all documents, or of these rows, and the best lower bound of each group
    of them.

    A group's documents lie far apart, so that sorted or clustered ones do not share one.
    """
    query = tl.arange(0, QUERIES)
    known = query < count
    offset = tl.arange(0, WIDE)
    own = tl.zeros([QUERIES, WIDE], tl.float32)
    for first in tl.range(0, dimensions, WIDE):
        b = tl.load(
            queries + query[:, None] * query_stride + (first + offset)[None, :],
            mask=known[:, None] & (first + offset < dimensions)[None, :],
            other=0.0,
        ).to(tl.float32)
        own += b * b
    asked_q = tl.sqrt(tl.sum(own, 1))
    if tl.program_id(0) == 0:
        tl.store(asked + query, asked_q, mask=known)
        _tell(asked_q, known, status + 1)
    factor, extra = _slack(asked_q, share, tiny, most, least)
    roof = _roof(tl.max(asked_q, 0), most, least)
    top = tl.full([ROWS, QUERIES], float("-inf"), tl.float32)
    for tile in tl.range(tl.program_id(0), tl.cdiv(total, ROWS), tl.num_programs(0)):
        place = tile * ROWS + tl.arange(0, ROWS)
        inside = place < total
        row = tl.load(rows + place, mask=inside, other=0) if SOME else place
        base = documents + row.to(tl.int64)[:, None] * document_stride
        sums = tl.zeros([ROWS, QUERIES], tl.float32)
        squares = tl.zeros([ROWS], tl.float32)
        for first in tl.range(0, dimensions, WIDE):
            column = first + offset
            if EVEN:
                a = tl.load(base + column[None, :], mask=inside[:, None], other=0.0)
            else:
                within = column < dimensions
                a = tl.load(
                    base + column[None, :], mask=inside[:, None] & within[None, :], other=0.0
                )
            b = tl.load(
                queries + query[None, :] * query_stride + column[:, None],
                mask=known[None, :] & (column < dimensions)[:, None],
                other=0.0,
            )
            sums = tl.dot(a, b, sums, input_precision=PRECISION)
            wide = a.to(tl.float32)
            squares += tl.sum(wide * wide, 1)
        length = tl.sqrt(squares)
        tl.store(lengths + place, length, mask=inside)
        _tell(length, inside, status)
        to = scores + query[None, :].to(tl.int64) * total + place[:, None]
        tl.store(to, sums, mask=inside[:, None] & known[None, :])
        low = _low(sums, length, factor, extra, roof, most, least)
        top = tl.maximum(top, tl.where(inside[:, None], low, float("-inf")))
    top = tl.max(tl.reshape(top, [FOLD, ROWS // FOLD, QUERIES]), 0)
    group = tl.program_id(0) * (ROWS // FOLD) + tl.arange(0, ROWS // FOLD)
    tl.store(best + query[None, :] * groups + group[:, None], top, mask=known[None, :])


@triton.jit
def bar_kernel(
    best,
    bars,
    asked,
    longest,
    groups,
    stride,
    place,
    share,
    tiny,
    most,
    least,
    SHARED: tl.constexpr,
    BLOCK: tl.constexpr,
    NUMBERS: tl.constexpr,
    SOME: tl.constexpr,
):
    """The best of every SHARED numbers, and nearly the `place`-th largest of those: no more, and no
    more than the fixed sum where it is the product of one of `longest` or shorter.
    """
    query = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, BLOCK)
    inside = group < groups
    base = best + query * stride + group
    if NUMBERS:
        x = tl.load(base, mask=inside, other=0).to(tl.int32, bitcast=True) ^ -2147483648
    else:
        value = tl.load(base, mask=inside, other=float("-inf"))
        for other in tl.static_range(1, SHARED):
            value = tl.maximum(
                value, tl.load(base + other * groups, mask=inside, other=float("-inf"))
            )
        x = _ordered(tl.where(value == value, value, float("-inf")))
    low = tl.min(tl.where(inside, x, 2147483647), 0).to(tl.int64)
    high = tl.max(tl.where(inside, x, -2147483648), 0).to(tl.int64) + 1
    for _ in tl.range(24):
        middle = (low + high) >> 1
        enough = tl.sum((inside & (x >= middle.to(tl.int32))).to(tl.int32), 0) >= place
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    whole = low.to(tl.int32)
    bar = tl.where(whole >= 0, whole, whole ^ 0x7FFFFFFF).to(tl.float32, bitcast=True)
    if SOME:
        factor, extra = _slack(tl.load(asked + query), share, tiny, most, least)
        bar -= factor * (tl.load(longest) * most + least) + extra
        bar -= tl.abs(bar) * 2.4e-07
    tl.store(bars + query, tl.where(bar == bar, bar, float("-inf")))


@triton.jit
def collect_kernel(
    scores,
    lengths,
    asked,
    edges,
    found,
    reached,
    rows,
    first,
    width,
    stride,
    room,
    share,
    tiny,
    most,
    least,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    ALONE: tl.constexpr,
    SOME: tl.constexpr,
):
    """Where few of a chunk reach the bar, each takes its place with an atomic of its own: a prefix
    sum would make every lane wait for the others. Many atomics on one counter take longer.
    """
    query = tl.program_id(1).to(tl.int64)
    length_q = tl.load(asked + query)
    factor, extra = _slack(length_q, share, tiny, most, least)
    roof = _roof(length_q, most, least)
    limit = _limit(tl.load(edges + query), extra)
    for chunk in tl.range(CHUNKS):
        column = (tl.program_id(0) * CHUNKS + chunk) * CHUNK + tl.arange(0, CHUNK)
        inside = column < width
        score = tl.load(scores + query * stride + column, mask=inside, other=0.0)
        length = tl.load(lengths + column, mask=inside, other=0.0) * most + least
        length = tl.where(length < roof, length, float("inf"))
        passes = inside & (length != float("-inf"))
        passes &= (score + factor * length < limit) == 0  # NaN may be anything
        one = passes.to(tl.int32)
        many = tl.sum(one, 0)
        row = tl.load(rows + column, mask=passes, other=0) if SOME else first + column
        if many > ALONE:
            place = tl.cumsum(one, 0) - 1
            place += tl.atomic_add(reached + query, many, sem="relaxed")
            tl.store(found + query * room + place, row, mask=passes & (place < room))
        elif many > 0:
            counter = reached + query + tl.zeros([CHUNK], tl.int32)
            place = tl.atomic_add(counter, 1, mask=passes, sem="relaxed")
            tl.store(found + query * room + place, row, mask=passes & (place < room))


@triton.jit
def sift_kernel(
    documents,
    queries,
    lengths,
    asked,
    edges,
    marks,
    count,
    total,
    dimensions,
    words,
    share,
    tiny,
    most,
    least,
    ROWS: tl.constexpr,
    QUERIES: tl.constexpr,
    WIDE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """A product whose scores are never written: one bit each, whether it can reach the bar."""
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
    known = query < count
    asked_q = tl.load(asked + query, mask=known, other=0.0)
    factor, extra = _slack(asked_q, share, tiny, most, least)
    limit = _limit(tl.load(edges + query, mask=known, other=0.0), extra)
    roof = _roof(tl.max(asked_q, 0), most, least)
    length = tl.load(lengths + row, mask=inside, other=0.0) * most + least
    length = tl.where(length < roof, length, float("inf"))
    passes = (sums + length[:, None] * factor[None, :] < limit[None, :]) == 0
    bit = tl.where(known, 1 << (query % 32), 0)
    bits = tl.where(passes, bit[None, :], 0)
    word = tl.sum(tl.reshape(bits, [ROWS, QUERIES // 32, 32]), 2)
    word = tl.where(length[:, None] == float("-inf"), 0, word)
    column = first_query // 32 + tl.arange(0, QUERIES // 32)
    place = marks + row[:, None].to(tl.int64) * words + column[None, :]
    tl.store(place, word, mask=inside[:, None] & (column < words)[None, :])


@triton.jit
def gather_kernel(marks, found, reached, first, size, words, room, BLOCK: tl.constexpr):
    """The numbers of the documents whose bits are set."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(marks + place, mask=place < size, other=0)
    row = (first + place // words).to(tl.int32)
    word = word.to(tl.uint32, bitcast=True)
    base = (place % words) * 32
    while tl.max((word != 0).to(tl.int32)) > 0:
        rest = word & (word - 1)
        lowest = (word ^ rest).to(tl.float32)  # a power of two: its exponent is the bit's place
        query = base + ((lowest.to(tl.int32, bitcast=True) >> 23) - 127)
        some = word != 0
        at = tl.atomic_add(reached + query, 1, mask=some, sem="relaxed")
        tl.store(found + query * room + at, row, mask=some & (at < room))
        word = rest


@triton.jit
def rescore_kernel(
    queries,
    documents,
    found,
    reached,
    keys,
    dimensions,
    query_stride,
    document_stride,
    count,
    room,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
    FORM: tl.constexpr,
):
    """Keys of the fixed sums of what was found; the smallest key where nothing was.

    Lists are nearly in the order of the documents: what runs at one time is the same stretch of
    the lists of many queries, whose documents are then read once and shared.

    Products are exact in float64, so that a fused addition gives the same bits. To make float64 of
    a number takes longer than to multiply it: a tile of many documents needs a query's but once.
    """
    query = (tl.program_id(0) % count).to(tl.int64)
    begin = tl.program_id(0) // count * TILE
    place = begin + tl.arange(0, TILE)
    held = place < tl.minimum(tl.load(reached + query), room)
    keys += query * room
    if begin < tl.load(reached + query):
        row = tl.load(found + query * room + place, mask=held, other=0).to(tl.int64)
        base = documents + row[:, None] * document_stride
        lane = tl.arange(0, LANES)
        sums = tl.zeros([TILE, LANES], tl.float64)
        for first in tl.range(0, dimensions, LANES, num_stages=3):
            column = first + lane
            within = column < dimensions
            q = tl.load(queries + query * query_stride + column, mask=within, other=0.0)
            d = tl.load(base + column[None, :], mask=within[None, :], other=0.0)
            sums += q.to(tl.float64)[None, :] * d.to(tl.float64)
        score = tl.reshape(_tree(tl.reshape(sums, [1, TILE, LANES]), 1, TILE, LANES), [TILE])
        score = score.to(tl.float32).to(FORM).to(tl.float32) + 0.0
        key = (_ordered(score).to(tl.int64) << 32) | (0xFFFFFFFF - row)
        tl.store(keys + place, tl.where(held, key, -9223372036854775808), mask=place < room)
    else:
        empty = tl.full([TILE], -9223372036854775808, tl.int64)
        tl.store(keys + place, empty, mask=place < room)


@triton.jit
def order_kernel(
    keys, best, reached, k, room, stride, best_stride, TILE: tl.constexpr, BLOCK: tl.constexpr
):
    """Each key in its place: as many are larger. No two are equal, since documents are not."""
    query = tl.program_id(1).to(tl.int64)
    many = tl.minimum(tl.load(reached + query), room)
    if tl.program_id(0) * TILE < many:
        keys += query * stride
        place = tl.program_id(0) * TILE + tl.arange(0, TILE)
        key = tl.load(keys + place, mask=place < many, other=0)
        count = tl.zeros([TILE, BLOCK], tl.int32)
        for first in tl.range(0, many, BLOCK):
            other = first + tl.arange(0, BLOCK)
            rival = tl.load(keys + other, mask=other < many, other=-9223372036854775808)
            count += (rival[None, :] > key[:, None]).to(tl.int32)
        larger = tl.sum(count, 1)
        to = best + query * best_stride + larger
        tl.store(to, key, mask=(place < many) & (larger < k))


@triton.jit
def finish_kernel(
    keys,
    best,
    bars,
    reached,
    lasts,
    beyond,
    cut,
    off,
    status,
    k,
    room,
    best_stride,
    BLOCK: tl.constexpr,
    SOME: tl.constexpr,
):
    """How many left out tie with the last one kept, and whether the bar was off.

    `beyond` are not in keys, and tie with it where it has the score of `lasts`.
    """
    query = tl.program_id(0).to(tl.int64)
    last = tl.load(best + query * best_stride + k - 1)
    ordered = last >> 32
    ties = tl.zeros([BLOCK], tl.int32)
    for first in tl.range(0, room, BLOCK):
        place = first + tl.arange(0, BLOCK)
        key = tl.load(keys + query * room + place, mask=place < room, other=0)
        ties += ((place < room) & (key < last) & ((key >> 32) == ordered)).to(tl.int32)
    left = tl.sum(ties, 0).to(tl.int64)
    if SOME:
        left += tl.where(ordered == tl.load(lasts + query), tl.load(beyond + query), 0)
    tl.store(cut + query, left)
    whole = ordered.to(tl.int32)
    score = tl.where(whole >= 0, whole, whole ^ 0x7FFFFFFF).to(tl.float32, bitcast=True)
    seen = tl.load(reached + query)
    wrong = (seen < k) | (seen > room) | ((score >= tl.load(bars + query)) == 0)
    tl.store(off + query, wrong.to(tl.int32))
    if wrong:
        tl.store(status, 1)


@triton.jit
def sums_kernel(
    queries,
    documents,
    asked,
    rows,
    sums,
    count,
    dimensions,
    query_stride,
    document_stride,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """The fixed sums of pairs."""
    pair = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = pair < count
    query = queries + tl.load(asked + pair, mask=inside, other=0)[:, None] * query_stride
    document = documents + tl.load(rows + pair, mask=inside, other=0)[:, None] * document_stride
    lane = tl.arange(0, LANES)
    lanes = tl.zeros([TILE, LANES], tl.float64)
    for first in tl.range(0, dimensions, LANES):
        column = (first + lane)[None, :]
        mask = inside[:, None] & (column < dimensions)
        a = tl.load(query + column, mask=mask, other=0.0).to(tl.float64)
        b = tl.load(document + column, mask=mask, other=0.0).to(tl.float64)
        lanes += a * b
    total = tl.reshape(_tree(tl.reshape(lanes, [1, TILE, LANES]), 1, TILE, LANES), [TILE])
    tl.store(sums + pair, total, mask=inside)


@triton.jit
def marks_kernel(
    documents, weights, marks, total, dimensions, stride, ROWS: tl.constexpr, WIDE: tl.constexpr
):
    """Weighted sums of the bits of each row."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < total
    base = documents + row.to(tl.int64)[:, None] * stride
    sums = tl.zeros([ROWS, WIDE], tl.int64)
    for first in tl.range(0, dimensions, WIDE):
        column = first + tl.arange(0, WIDE)
        within = column < dimensions
        x = tl.load(base + column[None, :], mask=inside[:, None] & within[None, :], other=0.0)
        bits = (x.to(tl.float32) + 0.0).to(tl.int32, bitcast=True)
        weight = tl.load(weights + column, mask=within, other=0)
        sums += (bits ^ (bits >> 16)).to(tl.int64) * weight[None, :]
    tl.store(marks + row, tl.sum(sums, 1), mask=inside)


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
    """status where one of these rows is not the vector it is known as, or not finite."""
    place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = place < count
    row = tl.load(rows + place, mask=inside, other=0)
    a = documents + row.to(tl.int64)[:, None] * stride
    its = tl.load(firsts + tl.load(vector + row, mask=inside, other=0), mask=inside, other=0)
    b = documents + its.to(tl.int64)[:, None] * stride
    wrong = tl.zeros([ROWS, WIDE], tl.int32)
    for first in tl.range(0, dimensions, WIDE):
        column = (first + tl.arange(0, WIDE))[None, :]
        mask = inside[:, None] & (column < dimensions)
        x = tl.load(a + column, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(b + column, mask=mask, other=0.0).to(tl.float32)
        wrong |= ((x != y) | ((tl.abs(x) < float("inf")) == 0)).to(tl.int32)
    if tl.max(wrong) > 0:
        tl.store(status, 1)


@triton.jit
def members_kernel(
    best,
    bars,
    vector,
    size,
    start,
    order,
    before,
    keys,
    reached,
    lasts,
    beyond,
    status,
    k,
    kept,
    best_stride,
    distinct,
    room,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
):
    """Keys of the documents of the best vectors that reach the bar, as many of each as can be among
    the k best; those of the first documents of all vectors are there.
    """
    query = tl.program_id(1).to(tl.int64)
    best += query * best_stride
    keys += query * room
    place = tl.arange(0, BLOCK)
    held = place < kept
    key = tl.load(best + place, mask=held, other=0)
    ordered = key >> 32
    held &= ordered >= _ordered(tl.load(bars + query))
    number = tl.load(vector + (0xFFFFFFFF - (key & 0xFFFFFFFF)), mask=held, other=0)
    many = tl.load(size + number, mask=held, other=0)
    needed = held & (tl.cumsum(many, 0) - many < k)
    last = tl.min(tl.where(needed, ordered, 2147483647), 0)
    above = held & (ordered > last)
    wanted = k - tl.sum(tl.where(above, many, 0), 0)
    tied = (held & (ordered == last)).to(tl.int64)
    most = tl.where(tied > 0, wanted + 1 - tl.cumsum(tied, 0), tl.where(above, k, 0))
    taken = tl.minimum(many, tl.maximum(most, 0))
    rest = tl.maximum(taken - 1, 0)
    ends = tl.cumsum(rest, 0)
    every = tl.sum(rest, 0)
    begin = tl.load(before + query)
    if tl.program_id(0) == 0:
        tl.store(reached + query, begin + every.to(tl.int32))
        if tl.sum(taken, 0) >= 2 * k:
            tl.store(status, 1)
        ties = tl.zeros([1024], tl.int64)
        for first in tl.range(0, distinct, 1024):
            one = first + tl.arange(0, 1024)
            inside = one < distinct
            score = tl.load(keys + one, mask=inside, other=0) >> 32
            amount = tl.load(size + one, mask=inside, other=0) - 1
            ties += tl.where(inside & (score == last), amount, 0)
        tl.store(lasts + query, last)
        tl.store(beyond + query, tl.sum(ties, 0) - tl.sum(tl.where(tied > 0, rest, 0), 0))
    end = tl.minimum(every, room - begin)
    for tile in tl.range(tl.program_id(0), tl.cdiv(end, TILE), tl.num_programs(0)):
        slot = tile * TILE + tl.arange(0, TILE)
        some = slot < end
        past = held[None, :] & (ends[None, :] <= slot[:, None])
        begins = tl.max(tl.where(past, ends[None, :], 0), 1)
        own = tl.load(best + tl.sum(past.to(tl.int32), 1), mask=some, other=0)
        which = tl.load(vector + (0xFFFFFFFF - (own & 0xFFFFFFFF)), mask=some, other=0)
        at = tl.load(start + which, mask=some, other=0) + 1
        row = tl.load(order + at + slot - begins, mask=some, other=0).to(tl.int64)
        member = ((own >> 32) << 32) | (0xFFFFFFFF - row)
        tl.store(keys + begin + slot, member, mask=some)
