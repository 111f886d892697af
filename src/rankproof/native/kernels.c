/* Documents joined, scores ranked, ties grouped, measures of groups added up. A part of _native.c. */

/* ------------------------------------------------------------------------------- kernels */

/* index(doc, start, slot_start, slots, first, last, check) -> row of a repeated document, or -1;
 * with check, -2 - row of an id that is empty or holds a control character.
 * Query q owns slots[slot_start[q]:slot_start[q+1]], a power of two of them; a slot will hold a
 * row of the query counted from 1, or 0. */
static PyObject *native_index(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *doc_, *start_, *slot_start_, *slots_;
    long long first, last;
    int check = 0;
    if (!PyArg_ParseTuple(args, "OOOOLL|p", &doc_, &start_, &slot_start_, &slots_, &first, &last,
                          &check))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Text doc = {0};
    const int64_t *start = lease_array(&lease, start_, 8, last + 1, READ);
    const int64_t *slot_start = start ? lease_array(&lease, slot_start_, 8, last + 1, READ) : NULL;
    Slots slots = {NULL, 0};
    if (slot_start && ascends(start, last) && ascends(slot_start, last) &&
        has_room(start, slot_start, last))
        slots = lease_slots(&lease, slots_, slot_start[last], WRITE);
    if (!slots.items || text_acquire(doc_, &doc) || !fits(start, last, doc.length)) {
        text_release(&doc);
        lease_end(&lease);
        return NULL;
    }
    int64_t repeated = -1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && repeated == -1; q++) {
        int64_t table = slot_start[q];
        uint64_t mask = (uint64_t)(slot_start[q + 1] - slot_start[q]) - 1;
        const View *rows = doc.views + start[q];
        int64_t count = start[q + 1] - start[q];
        uint64_t odd = 0;
        if (slots.narrow && count > UINT16_MAX) repeated = INT64_MAX;
        if (count)
            memset((char *)slots.items + table * (slots.narrow ? 2 : 4), 0,
                   (mask + 1) * (slots.narrow ? 2 : 4));
        for (int64_t i = 0; i < count && repeated < 0; i++) {
            if (check) odd |= maybe_unfit(&doc, &rows[i]);
            uint64_t slot = hash_view(&doc, &rows[i]) & mask;
            uint32_t held;
            while ((held = slot_get(&slots, table + (int64_t)slot))) {
                if (same_text(&doc, &rows[held - 1], &doc, &rows[i])) {
                    repeated = start[q] + i;
                    break;
                }
                slot = (slot + 1) & mask;
            }
            if (repeated < 0) slot_set(&slots, table + (int64_t)slot, (uint32_t)i + 1);
        }
        for (int64_t i = 0; odd && i < count && repeated == -1; i++)
            if (is_unfit(&doc, &rows[i])) repeated = -2 - (start[q] + i);
    }
    Py_END_ALLOW_THREADS;
    text_release(&doc);
    lease_end(&lease);
    if (repeated == INT64_MAX) {
        PyErr_SetString(PyExc_ValueError, "the slots are too narrow");
        return NULL;
    }
    return PyLong_FromLongLong(repeated);
}

/* lookup(doc, start, slot_start, slots, wanted, query, rows, first, last): rows[i] becomes the
 * row that holds wanted[i] in the list of query[i], or -1. A negative query has no list. */
static PyObject *native_lookup(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *doc_, *start_, *slot_start_, *slots_, *wanted_, *query_, *rows_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOLL", &doc_, &start_, &slot_start_, &slots_, &wanted_,
                          &query_, &rows_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Text doc = {0}, wanted = {0};
    const int64_t *start = lease_array(&lease, start_, 8, 1, READ);
    int64_t queries = start ? lease.buffers[0].len / 8 - 1 : 0;
    const int64_t *slot_start =
        start ? lease_array(&lease, slot_start_, 8, queries + 1, READ) : NULL;
    Slots slots = {NULL, 0};
    if (slot_start && ascends(start, queries) && ascends(slot_start, queries) &&
        has_room(start, slot_start, queries))
        slots = lease_slots(&lease, slots_, slot_start[queries], READ);
    const int64_t *query = slots.items ? lease_array(&lease, query_, 8, last, READ) : NULL;
    int64_t *rows = query ? lease_array(&lease, rows_, 8, last, WRITE) : NULL;
    if (!rows || text_acquire(doc_, &doc) || !fits(start, queries, doc.length) ||
        text_acquire(wanted_, &wanted) || !fits((int64_t[]){last}, 0, wanted.length)) {
        text_release(&wanted);
        text_release(&doc);
        lease_end(&lease);
        return NULL;
    }
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    /* Memory is slow to answer: some are hashed, then asked for their slots, then for their rows,
     * before the first is looked at. */
    enum { AHEAD = 16 };
    for (int64_t low = first; low < last && good; low += AHEAD) {
        int64_t high = low + AHEAD < last ? low + AHEAD : last;
        uint64_t slot_of[AHEAD];
        for (int64_t i = low; i < high; i++) {
            int64_t q = query[i];
            rows[i] = q < 0 || q >= queries || slot_start[q] == slot_start[q + 1] ? -1 : 0;
            if (rows[i]) continue;
            uint64_t mask = (uint64_t)(slot_start[q + 1] - slot_start[q]) - 1;
            slot_of[i - low] = hash_view(&wanted, &wanted.views[i]) & mask;
            SOON((const char *)slots.items +
                 (slot_start[q] + (int64_t)slot_of[i - low]) * (slots.narrow ? 2 : 4));
        }
        for (int64_t i = low; i < high; i++) {
            if (rows[i]) continue;
            int64_t q = query[i];
            int64_t row = slot_get(&slots, slot_start[q] + (int64_t)slot_of[i - low]);
            if (row && row <= start[q + 1] - start[q]) SOON(&doc.views[start[q] + row - 1]);
        }
        for (int64_t i = low; i < high && good; i++) {
            if (rows[i]) continue;
            rows[i] = -1;
            int64_t q = query[i];
            int64_t table = slot_start[q];
            uint64_t mask = (uint64_t)(slot_start[q + 1] - table) - 1;
            const View *list = doc.views + start[q];
            uint32_t count = (uint32_t)(start[q + 1] - start[q]), held;
            uint64_t slot = slot_of[i - low];
            /* A slot that names no row of the list, or a table without an empty one, is no index. */
            for (uint64_t tries = 0; (held = slot_get(&slots, table + (int64_t)slot)); tries++) {
                if (held > count || tries > mask) {
                    good = 0;
                    break;
                }
                if (same_text(&doc, &list[held - 1], &wanted, &wanted.views[i])) {
                    rows[i] = start[q] + held - 1;
                    break;
                }
                slot = (slot + 1) & mask;
            }
        }
    }
    Py_END_ALLOW_THREADS;
    text_release(&wanted);
    text_release(&doc);
    lease_end(&lease);
    if (good) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "the slots are not those of the rows");
    return NULL;
}

static inline int compare_text(const Text *t, const View *a, const View *b) {
    uint32_t m = view_length(a), n = view_length(b);
    int c = memcmp(text_at(t, a), text_at(t, b), m < n ? m : n);
    return c ? c : (m > n) - (m < n);
}

typedef struct {
    double score;
    int64_t row;
} Item;

/* Numbers that ascend as scores fall; −0 and 0 are one. */
static inline uint64_t falling_key(double score) {
    uint64_t bits;
    score += 0.0;
    memcpy(&bits, &score, 8);
    return bits >> 63 ? bits : ~bits & INT64_MAX;
}

/* `sort_items` for lists long enough, a byte of the key at a time; bytes that all share are passed
 * over, of which scores of a narrow format have many. */
static void sort_by_bytes(Item *items, Item *space, int64_t count) {
    Item *from = items, *to = space;
    uint64_t any = falling_key(items[0].score), differ = 0;
    for (int64_t i = 1; i < count; i++) differ |= falling_key(items[i].score) ^ any;
    for (int shift = 0; shift < 64; shift += 8) {
        if (!(differ >> shift & 255)) continue;
        uint32_t next[256] = {0}, sum = 0;
        for (int64_t i = 0; i < count; i++) next[falling_key(from[i].score) >> shift & 255]++;
        for (int value = 0; value < 256; value++) {
            uint32_t here = next[value];
            next[value] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < count; i++)
            to[next[falling_key(from[i].score) >> shift & 255]++] = from[i];
        Item *swap = from;
        from = to;
        to = swap;
    }
    if (from != items) memcpy(items, from, (size_t)count * sizeof *items);
}

/* Sorts by score from high to low; stable. Merging is written without branches on the data,
 * which a processor could not predict. The result is in `items`; `space` holds as many. */
static void sort_items(Item *items, Item *space, int64_t count) {
    enum { SHORT = 8, LONG = 256 };
    if (count >= LONG && count <= UINT32_MAX) {
        sort_by_bytes(items, space, count);
        return;
    }
    for (int64_t low = 0; low < count; low += SHORT) {
        int64_t high = low + SHORT < count ? low + SHORT : count;
        for (int64_t i = low + 1; i < high; i++) {
            Item item = items[i];
            int64_t j = i;
            for (; j > low && items[j - 1].score < item.score; j--) items[j] = items[j - 1];
            items[j] = item;
        }
    }
    Item *from = items, *to = space;
    for (int64_t width = SHORT; width < count; width *= 2) {
        for (int64_t low = 0; low < count; low += 2 * width) {
            int64_t middle = low + width < count ? low + width : count;
            int64_t high = middle + width < count ? middle + width : count;
            const Item *a = from + low, *a_end = from + middle, *b = a_end, *b_end = from + high;
            Item *out = to + low;
            if (b == b_end || a_end[-1].score >= b->score) {
                memcpy(out, a, (size_t)(high - low) * sizeof *out);
                continue;
            }
            while (a < a_end && b < b_end) {
                int take_b = a->score < b->score;
                const Item *next = take_b ? b : a;
                *out++ = *next;
                b += take_b;
                a += !take_b;
            }
            memcpy(out, a, (size_t)(a_end - a) * sizeof *out);
            memcpy(out + (a_end - a), b, (size_t)(b_end - b) * sizeof *out);
        }
        Item *swap = from;
        from = to;
        to = swap;
    }
    if (from != items) memcpy(items, from, (size_t)count * sizeof *items);
}

/* `count` scores from high to low, stable: rows[i] becomes which of them is the i-th. `items` and
 * `keys` have room for two and three times as many.
 *
 * Long lists are sorted by the highest bits in which they differ, next to which a number takes the
 * other half of a word; those that share these, hardly any, are sorted as they are. */
static void sort_scores(const double *score, int64_t count, Item *items, uint64_t *keys,
                        int64_t *rows) {
    enum { LONG = 128, FEW = 16, BITS = 24 };
    uint64_t differ = 0, *from = keys + count, *to = from + count;
    if (count < LONG || count > UINT32_MAX) {
        for (int64_t i = 0; i < count; i++) items[i] = (Item){score[i], i};
        sort_items(items, items + count, count);
        for (int64_t i = 0; i < count; i++) rows[i] = items[i].row;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        keys[i] = falling_key(score[i]);
        differ |= keys[i] ^ keys[0];
    }
    int low = 0, top = 0; /* the bits that differ are low to top */
    while (top < 64 && differ >> top) top++;
    while (low < top && !(differ >> low & 1)) low++;
    int shift = top - low > BITS ? top - BITS : low, width = top - shift;
    int passes = (width + 7) / 8, bits = passes ? (width + passes - 1) / passes : 0;
    uint64_t mask = ((uint64_t)1 << width) - 1, digit = ((uint64_t)1 << bits) - 1;
    for (int64_t i = 0; i < count; i++)
        from[i] = (keys[i] >> shift & mask) << 32 | (uint64_t)i;
    for (int pass = 0; pass < passes; pass++) {
        uint32_t next[256] = {0}, sum = 0;
        int at = 32 + pass * bits;
        for (int64_t i = 0; i < count; i++) next[from[i] >> at & digit]++;
        for (uint64_t value = 0; value <= digit; value++) {
            uint32_t here = next[value];
            next[value] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < count; i++) to[next[from[i] >> at & digit]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    for (int64_t i = 0; i < count; i++) rows[i] = (int64_t)(from[i] & UINT32_MAX);
    for (int64_t first = 0, last; shift > low && first < count; first = last) {
        for (last = first + 1; last < count && from[last] >> 32 == from[first] >> 32;) last++;
        if (last - first > FEW) {
            for (int64_t i = first; i < last; i++) items[i - first] = (Item){score[rows[i]], rows[i]};
            sort_items(items, items + count, last - first);
            for (int64_t i = first; i < last; i++) rows[i] = items[i - first].row;
            continue;
        }
        for (int64_t i = first + 1; i < last; i++) {
            int64_t row = rows[i], j = i;
            for (; j > first && keys[rows[j - 1]] > keys[row]; j--) rows[j] = rows[j - 1];
            rows[j] = row;
        }
    }
}

/* Sorts rows by document id, ascending (direction 1) or descending (−1). */
static void sort_by_doc(const Text *doc, int direction, int64_t *rows, int64_t *space,
                        int64_t count) {
    if (count <= 8) {
        for (int64_t i = 1; i < count; i++) {
            int64_t row = rows[i], j = i;
            const View *v = &doc->views[row];
            for (; j > 0 && direction * compare_text(doc, &doc->views[rows[j - 1]], v) > 0; j--)
                rows[j] = rows[j - 1];
            rows[j] = row;
        }
        return;
    }
    int64_t half = count / 2;
    sort_by_doc(doc, direction, rows, space, half);
    sort_by_doc(doc, direction, rows + half, space, count - half);
    memcpy(space, rows, (size_t)half * sizeof *rows);
    int64_t a = 0, b = half, out = 0;
    while (a < half && b < count) {
        int c = compare_text(doc, &doc->views[space[a]], &doc->views[rows[b]]);
        rows[out++] = direction * c > 0 ? rows[b++] : space[a++];
    }
    memcpy(rows + out, space + a, (size_t)(half - a) * sizeof *rows);
}

/* falls(score, start, groups, first, last): from groups[start[first]] on, the rows at which a query
 * begins or a score is below the one before. Returns how many there are; -1 where a score rises
 * inside a query, and then they are not all there. */
static PyObject *native_falls(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *score_, *start_, *groups_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOLL", &score_, &start_, &groups_, &first, &last)) return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    const int64_t *start = lease_array(&lease, start_, 8, last + 1, READ);
    const double *score = start && ascends(start, last)
                              ? lease_array(&lease, score_, 8, start[last], READ)
                              : NULL;
    int64_t *groups = score ? lease_array(&lease, groups_, 8, start[last], WRITE) : NULL;
    if (!groups) {
        lease_end(&lease);
        return NULL;
    }
    int64_t *next = groups + start[first];
    int rises = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && !rises; q++) {
        if (start[q] < start[q + 1]) *next++ = start[q];
        for (int64_t i = start[q] + 1; i < start[q + 1]; i++) {
            *next = i; /* stays where the score is below */
            next += score[i] < score[i - 1];
            rises |= score[i] > score[i - 1];
        }
    }
    Py_END_ALLOW_THREADS;
    int64_t count = rises ? -1 : next - (groups + start[first]);
    lease_end(&lease);
    return PyLong_FromLongLong(count);
}

/* place(score, start, doc or None, direction, position, groups, first, last): position[row] becomes
 * where the row stands when the rows of each query are sorted from best to worst; from
 * groups[start[first]] on, such places at which a query begins or a score is below the one before.
 * Returns how many of these there are. */
static PyObject *native_place(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *score_, *start_, *doc_, *position_, *groups_;
    int direction;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOiOOLL", &score_, &start_, &doc_, &direction, &position_,
                          &groups_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Text doc = {0};
    const int64_t *start = lease_array(&lease, start_, 8, last + 1, READ);
    const double *score = start && ascends(start, last)
                              ? lease_array(&lease, score_, 8, start[last], READ)
                              : NULL;
    int64_t *position = score ? lease_array(&lease, position_, 8, start[last], WRITE) : NULL;
    int64_t *groups = position ? lease_array(&lease, groups_, 8, start[last], WRITE) : NULL;
    if (!groups || (doc_ != Py_None && text_acquire(doc_, &doc)) ||
        !fits(start, last, doc_ == Py_None ? INT64_MAX : doc.length)) {
        text_release(&doc);
        lease_end(&lease);
        return NULL;
    }
    int64_t longest = 0;
    for (int64_t q = first; q < last; q++)
        if (start[q + 1] - start[q] > longest) longest = start[q + 1] - start[q];
    Item *items = malloc((size_t)(4 * longest + 1) * sizeof *items);
    if (!items) {
        text_release(&doc);
        lease_end(&lease);
        return PyErr_NoMemory();
    }
    uint64_t *keys = (uint64_t *)(items + 2 * longest);
    int64_t *rows = (int64_t *)(keys + 3 * longest), *next = groups + start[first];
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        int64_t begin = start[q], count = start[q + 1] - begin;
        const double *list = score + begin;
        Text listed = doc;
        if (doc_ != Py_None) listed.views += begin;
        sort_scores(list, count, items, keys, rows);
        for (int64_t i = 0; i < count; i++) {
            *next = begin + i;
            next += i == 0 || list[rows[i]] < list[rows[i - 1]];
        }
        for (int64_t low = 0, high; doc_ != Py_None && low < count; low = high) {
            for (high = low + 1; high < count && list[rows[high]] == list[rows[low]];) high++;
            sort_by_doc(&listed, direction, rows + low, (int64_t *)items, high - low);
        }
        for (int64_t i = 0; i < count; i++) position[begin + rows[i]] = begin + i;
    }
    Py_END_ALLOW_THREADS;
    int64_t found = next - (groups + start[first]);
    free(items);
    text_release(&doc);
    lease_end(&lease);
    return PyLong_FromLongLong(found);
}

/* grouped(row, grade, start, list, group, list_start, position or None, group_start, size, begin,
 * query, judged, grades, rank, first, last): the judgements of query q are start[q] to start[q + 1],
 * row[..] those of the run that hold their documents, or -1; list[q] is its list, and group[q] the
 * first of the groups of that, which begin at the places group_start[..]. From start[first] on:
 * rank and grades of the documents in their lists' order, and of each group that holds one its
 * size, the rank where it begins, its query, and how many documents come before its own. Returns
 * how many groups and documents there are, in a pair; None where a document is judged twice. */
static PyObject *native_grouped(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *row_, *grade_, *start_, *list_, *group_, *list_start_, *position_, *group_start_;
    PyObject *size_, *begin_, *query_, *judged_, *grades_, *rank_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOOOLL", &row_, &grade_, &start_, &list_, &group_,
                          &list_start_, &position_, &group_start_, &size_, &begin_, &query_,
                          &judged_, &grades_, &rank_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    const int64_t *start = lease_array(&lease, start_, 8, last + 1, READ);
    int64_t all = start && ascends(start, last) ? start[last] : -1;
    const int64_t *row = all >= 0 ? lease_array(&lease, row_, 8, all, READ) : NULL;
    const int64_t *grade = row ? lease_array(&lease, grade_, 8, all, READ) : NULL;
    const int64_t *list = grade ? lease_array(&lease, list_, 8, last, READ) : NULL;
    const int64_t *group = list ? lease_array(&lease, group_, 8, last, READ) : NULL;
    const int64_t *list_start = group ? lease_array(&lease, list_start_, 8, 1, READ) : NULL;
    int64_t lists = list_start ? lease.buffers[lease.count - 1].len / 8 - 1 : 0;
    const int64_t *group_start = list_start ? lease_array(&lease, group_start_, 8, 1, READ) : NULL;
    int64_t groups = group_start ? lease.buffers[lease.count - 1].len / 8 - 1 : 0;
    int64_t *size = group_start ? lease_array(&lease, size_, 8, all, WRITE) : NULL;
    int64_t *begin = size ? lease_array(&lease, begin_, 8, all, WRITE) : NULL;
    int64_t *query = begin ? lease_array(&lease, query_, 8, all, WRITE) : NULL;
    int64_t *judged = query ? lease_array(&lease, judged_, 8, all, WRITE) : NULL;
    int64_t *grades = judged ? lease_array(&lease, grades_, 8, all, WRITE) : NULL;
    int64_t *rank = grades ? lease_array(&lease, rank_, 8, all, WRITE) : NULL;
    const int64_t *position = NULL;
    int64_t rows = rank && ascends(list_start, lists) ? list_start[lists] : -1;
    if (rows >= 0 && position_ != Py_None)
        position = lease_array(&lease, position_, 8, rows, READ);
    if (rows < 0 || (position_ != Py_None && !position)) {
        lease_end(&lease);
        return NULL;
    }
    int64_t longest = 0;
    for (int64_t q = first; q < last; q++) {
        int64_t l = list[q];
        if (l >= 0 && l < lists && list_start[l + 1] - list_start[l] > longest)
            longest = list_start[l + 1] - list_start[l];
    }
    /* Which places of a list are judged, a bit each, and by which judgement: their order without
     * sorting. */
    uint64_t *bits = calloc((size_t)longest / 64 + 1, sizeof *bits);
    int64_t *held = malloc((size_t)(longest + 1) * sizeof *held);
    if (!bits || !held) {
        free(bits);
        free(held);
        lease_end(&lease);
        return PyErr_NoMemory();
    }
    int good = 1, twice = 0;
    int64_t found = start[first], document = start[first];
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && good && !twice; q++) {
        int64_t l = list[q], low = 0, length = 0;
        if (l >= 0 && l < lists) {
            low = list_start[l];
            length = list_start[l + 1] - low;
        }
        int64_t least = length, most = -1;
        for (int64_t i = start[q]; i < start[q + 1] && good; i++) {
            if (row[i] < 0) continue;
            good = row[i] < rows;
            if (!good) break;
            int64_t place = (position ? position[row[i]] : row[i]) - low;
            good = place >= 0 && place < length;
            if (!good) break;
            uint64_t bit = (uint64_t)1 << (place & 63);
            twice |= (bits[place >> 6] & bit) != 0;
            bits[place >> 6] |= bit;
            held[place] = grade[i];
            if (place < least) least = place;
            if (place > most) most = place;
        }
        int64_t g = group[q] < 0 ? 0 : group[q], end = -1; /* where the group before ends */
        for (int64_t word = least >> 6; good && word <= most >> 6 && most >= 0; word++) {
            for (uint64_t left = bits[word]; left; left &= left - 1) {
#if defined(__GNUC__)
                int64_t place = word * 64 + __builtin_ctzll(left);
#else
                int64_t place = word * 64;
                while (!(left >> (place & 63) & 1)) place++;
#endif
                if (low + place >= end) {
                    int64_t step = 1;
                    while (g + step < groups && group_start[g + step] <= low + place) {
                        g += step; /* ever longer steps */
                        step *= 2;
                    }
                    for (; step; step /= 2) /* and back to short ones */
                        if (g + step < groups && group_start[g + step] <= low + place) g += step;
                    if (g >= groups) { /* which ranked lists do not have */
                        good = 0;
                        break;
                    }
                    end = group_start[g + 1];
                    size[found] = end - group_start[g];
                    begin[found] = group_start[g] - low + 1;
                    query[found] = q;
                    judged[found++] = document - start[first];
                }
                grades[document] = held[place];
                rank[document++] = place + 1;
            }
            bits[word] = 0;
        }
    }
    Py_END_ALLOW_THREADS;
    free(bits);
    free(held);
    found -= start[first];
    document -= start[first];
    lease_end(&lease);
    if (twice) Py_RETURN_NONE;
    if (good) return Py_BuildValue("(LL)", (long long)found, (long long)document);
    PyErr_SetString(PyExc_ValueError, "the rows are not those of the lists");
    return NULL;
}

/* Tie groups in columns, as `grouped` makes them. */
typedef struct {
    const int64_t *size, *begin, *query, *start, *rank;
    int64_t count, documents;
} Groups;

/* Whether the columns are there and belong together; queries are of 0 to `queries`. */
static int lease_groups(Lease *lease, Groups *g, PyObject *size, PyObject *begin, PyObject *query,
                        PyObject *start, PyObject *rank, int64_t documents, int64_t queries) {
    g->size = lease_array(lease, size, 8, 0, READ);
    g->count = g->size ? lease->buffers[lease->count - 1].len / 8 : 0;
    g->documents = documents;
    g->begin = g->size ? lease_array(lease, begin, 8, g->count, READ) : NULL;
    g->query = g->begin ? lease_array(lease, query, 8, g->count, READ) : NULL;
    g->start = g->query ? lease_array(lease, start, 8, g->count + 1, READ) : NULL;
    g->rank = g->start ? lease_array(lease, rank, 8, documents, READ) : NULL;
    if (!g->rank || !ascends(g->start, g->count) || !fits(g->start, g->count, documents)) return 0;
    int ok = 1;
    for (int64_t i = 0; i < g->count; i++)
        ok &= g->query[i] >= 0 && g->query[i] < queries && g->size[i] > 0 && g->begin[i] > 0;
    if (!ok) PyErr_SetString(PyExc_ValueError, "there is no such query or group");
    return ok;
}

/* chosen(flags, size, begin, query, start, grade, rank, ...): the groups whose flag is set, in six
 * columns more. Returns how many groups and documents these are. */
static PyObject *native_chosen(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *flags_, *given[6], *into[6];
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOO", &flags_, &given[0], &given[1], &given[2],
                          &given[3], &given[4], &given[5], &into[0], &into[1], &into[2], &into[3],
                          &into[4], &into[5]))
        return NULL;
    Lease lease = {.count = 0};
    Groups g;
    const int64_t *grade = lease_array(&lease, given[4], 8, 0, READ);
    int64_t documents = grade ? lease.buffers[0].len / 8 : 0;
    int good = grade && lease_groups(&lease, &g, given[0], given[1], given[2], given[3], given[5],
                                     documents, INT64_MAX);
    const uint8_t *flags = good ? lease_array(&lease, flags_, 1, g.count, READ) : NULL;
    int64_t *to[6];
    good = flags != NULL;
    for (int i = 0; i < 6 && good; i++) {
        to[i] = lease_array(&lease, into[i], 8, i < 3 ? g.count : i == 3 ? g.count + 1 : documents,
                            WRITE);
        good = to[i] != NULL;
    }
    if (!good) {
        lease_end(&lease);
        return NULL;
    }
    int64_t found = 0, held = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t i = 0; i < g.count; i++) {
        if (!flags[i]) continue;
        to[0][found] = g.size[i];
        to[1][found] = g.begin[i];
        to[2][found] = g.query[i];
        to[3][found++] = held;
        for (int64_t d = g.start[i]; d < g.start[i + 1]; d++, held++) {
            to[4][held] = grade[d];
            to[5][held] = g.rank[d];
        }
    }
    to[3][found] = held;
    Py_END_ALLOW_THREADS;
    lease_end(&lease);
    return Py_BuildValue("(LL)", (long long)found, (long long)held);
}

/* What is added up for each query over its groups, in their order. */
typedef struct {
    double *expected, *least, *most, *oblivious, *variance;
} Sums;

static int lease_sums(Lease *lease, Sums *sums, PyObject *const *given, int64_t queries) {
    double **to[] = {&sums->expected, &sums->least, &sums->most, &sums->oblivious,
                     &sums->variance};
    for (int i = 0; i < 5; i++) {
        *to[i] = lease_array(lease, given[i], 8, queries, WRITE);
        if (!*to[i]) return 0;
    }
    return 1;
}

/* How many ranks of a group count, the last of which is `cut`. */
static inline int64_t ranks_inside(int64_t cut, int64_t begin, int64_t size) {
    int64_t inside = cut < begin ? 0 : cut - begin + 1;
    return inside > size ? size : inside;
}

/* counted(chosen, cut, size, begin, query, start, rank, ...): adds to the five sums of each query
 * how many of its chosen documents are in the top `cut`. */
static PyObject *native_counted(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *chosen_, *cut_, *size_, *begin_, *query_, *start_, *rank_, *sums_[5];
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOO", &chosen_, &cut_, &size_, &begin_, &query_, &start_,
                          &rank_, &sums_[0], &sums_[1], &sums_[2], &sums_[3], &sums_[4]))
        return NULL;
    Lease lease = {.count = 0};
    Groups of;
    Sums sums;
    const uint8_t *chosen = lease_array(&lease, chosen_, 1, 0, READ);
    int64_t documents = chosen ? lease.buffers[0].len : 0;
    const int64_t *cut = chosen ? lease_array(&lease, cut_, 8, 0, READ) : NULL;
    int64_t queries = cut ? lease.buffers[1].len / 8 : 0;
    if (!cut || !lease_sums(&lease, &sums, sums_, queries) ||
        !lease_groups(&lease, &of, size_, begin_, query_, start_, rank_, documents, queries)) {
        lease_end(&lease);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t i = 0; i < of.count; i++) {
        int64_t q = of.query[i], g = of.size[i], m = 0, shown = 0;
        for (int64_t d = of.start[i]; d < of.start[i + 1]; d++) {
            m += chosen[d] != 0;
            shown += chosen[d] && of.rank[d] <= cut[q];
        }
        if (!m) continue;
        int64_t t = ranks_inside(cut[q], of.begin[i], g);
        double size = (double)g;
        sums.expected[q] += (double)(m * t) / size;
        sums.least[q] += (double)(m + t > g ? m + t - g : 0);
        sums.most[q] += (double)(m < t ? m : t);
        sums.oblivious[q] += (double)shown;
        sums.variance[q] += (double)(m * (g - m)) / size * ((double)(t * (g - t)) / size) /
                            (double)(g > 1 ? g - 1 : 1);
    }
    Py_END_ALLOW_THREADS;
    lease_end(&lease);
    Py_RETURN_NONE;
}

/* Mean and variance of what a tied group adds to R·AP; `room` holds three numbers for each of the
 * ranks that count. precision.py has the formulas, and the same operations in the same order. */
static void average_moments(int64_t first, int64_t size, int64_t inside, int64_t held,
                            int64_t before, double *room, double *mean, double *variance) {
    double p[4], chance = 1.0;
    for (int j = 0; j < 4; j++) {
        chance = chance * (double)(held > j ? held - j : 0) / (double)(size > j + 1 ? size - j : 1);
        p[j] = chance;
    }
    double lead = (double)before + 1.0, total = 0.0, placed = 0.0;
    double *a = room, *sum = room + inside, *squares = sum + inside;
    for (int64_t i = 0; i < inside; i++) {
        a[i] = 1.0 / (double)(first + i);
        total += a[i];
        placed += a[i] * (double)i;
    }
    *mean = p[0] * lead * total + p[1] * placed;
    *variance = 0.0;
    if (held == size) return;
    double centre = inside == size ? total / (double)inside : 0.0;
    double s1 = 0.0, s2 = 0.0, d = 0.0, f = 0.0, triple = 0.0;
    for (int64_t i = 0; i < inside; i++) {
        a[i] -= centre;
        double square = a[i] * a[i];
        sum[i] = s1 += a[i];
        squares[i] = s2 += square;
        d += a[i] * (double)i;
        f += square * (double)i;
    }
    for (int64_t i = 0; i < inside; i++) {
        double column = (double)i, square = a[i] * a[i];
        double after = s1 - sum[i], after_square = s2 - squares[i];
        triple += square * column * (column - 1.0) + (after * after - after_square) +
                  2.0 * a[i] * column * after;
    }
    double h = (s1 * s1 - s2) / 2.0;
    double l_l = p[0] * s2 + p[1] * (s1 * s1 - s2);
    double l_q = p[1] * (f + h) + p[2] * (s1 * d - f - h);
    double q_q = p[1] * f + p[2] * triple + p[3] * (d * d - f - triple);
    double both = lead * p[0] * s1 + p[1] * d;
    *variance = lead * lead * l_l + 2.0 * lead * l_q + q_q - both * both;
}

/* averages(grade, cut, size, begin, query, start, rank, rel, ...): adds to the five sums of each
 * query what its groups add to R·AP, up to rank `cut`. */
static PyObject *native_averages(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *grade_, *cut_, *size_, *begin_, *query_, *start_, *rank_, *sums_[5];
    long long rel;
    if (!PyArg_ParseTuple(args, "OOOOOOOLOOOOO", &grade_, &cut_, &size_, &begin_, &query_, &start_,
                          &rank_, &rel, &sums_[0], &sums_[1], &sums_[2], &sums_[3], &sums_[4]))
        return NULL;
    Lease lease = {.count = 0};
    Groups of;
    Sums sums;
    const int64_t *grade = lease_array(&lease, grade_, 8, 0, READ);
    int64_t documents = grade ? lease.buffers[0].len / 8 : 0;
    const int64_t *cut = grade ? lease_array(&lease, cut_, 8, 0, READ) : NULL;
    int64_t queries = cut ? lease.buffers[1].len / 8 : 0;
    if (!cut || !lease_sums(&lease, &sums, sums_, queries) ||
        !lease_groups(&lease, &of, size_, begin_, query_, start_, rank_, documents, queries)) {
        lease_end(&lease);
        return NULL;
    }
    int64_t longest = 0;
    for (int64_t i = 0; i < of.count; i++) {
        int64_t inside = ranks_inside(cut[of.query[i]], of.begin[i], of.size[i]);
        if (inside > longest) longest = inside;
    }
    double *room = malloc(((size_t)longest * 3 + 1) * sizeof *room);
    if (!room) {
        lease_end(&lease);
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS;
    int64_t before = 0, last = -1;
    for (int64_t i = 0; i < of.count; i++) {
        int64_t q = of.query[i], size = of.size[i], held = 0, least = 0;
        if (q != last) before = 0;
        last = q;
        for (int64_t d = of.start[i]; d < of.start[i + 1]; d++) held += grade[d] >= rel;
        if (!held) continue;
        for (int64_t d = of.start[i]; d < of.start[i + 1]; d++) {
            if (grade[d] < rel) continue;
            double number = (double)(before + ++least);
            int64_t best = of.begin[i] - 1 + least, worst = best + size - held;
            if (worst <= cut[q]) sums.least[q] += number / (double)worst;
            if (best <= cut[q]) sums.most[q] += number / (double)best;
            if (of.rank[d] <= cut[q]) sums.oblivious[q] += number / (double)of.rank[d];
        }
        int64_t inside = ranks_inside(cut[q], of.begin[i], size);
        if (inside > 0 && size == 1) {
            sums.expected[q] += (double)(before + 1) / (double)of.begin[i];
        } else if (inside > 0) {
            double mean, variance;
            average_moments(of.begin[i], size, inside, held, before, room, &mean, &variance);
            sums.expected[q] += mean;
            sums.variance[q] += variance;
        }
        before += held;
    }
    Py_END_ALLOW_THREADS;
    free(room);
    lease_end(&lease);
    Py_RETURN_NONE;
}

/* starts(codes, start): whether the rows of each query stand together, in the order of their codes;
 * start[q]:start[q+1] are then those of query q. */
static PyObject *native_starts(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *codes_, *start_;
    if (!PyArg_ParseTuple(args, "OO", &codes_, &start_)) return NULL;
    Lease lease = {.count = 0};
    const int32_t *codes = lease_array(&lease, codes_, 4, 0, READ);
    int64_t count = codes ? lease.buffers[0].len / 4 : 0;
    int64_t *start = codes ? lease_array(&lease, start_, 8, 1, WRITE) : NULL;
    if (!start) {
        lease_end(&lease);
        return NULL;
    }
    int64_t queries = lease.buffers[1].len / 8 - 1, q = -1;
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    enum { MANY = 32 }; /* at a time, without a branch, as a compiler makes vectors of */
    for (int64_t i = 0; i < count && good;) {
        int32_t differ = i + MANY > count;
        for (int k = 0; k < MANY && !(i + MANY > count); k++) differ |= codes[i + k] ^ (int32_t)q;
        if (!differ) {
            i += MANY;
            continue;
        }
        if (codes[i] != q) {
            good = codes[i] == q + 1 && q + 1 < queries;
            if (good) start[++q] = i;
        }
        i++;
    }
    good &= q == queries - 1;
    if (good) start[queries] = count;
    Py_END_ALLOW_THREADS;
    lease_end(&lease);
    return PyBool_FromLong(good);
}

/* group(codes, start, rows or None): a counting sort. start[q]:start[q+1] of rows are the positions
 * where codes == q, in order. */
static PyObject *native_group(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *codes_, *start_, *rows_;
    if (!PyArg_ParseTuple(args, "OOO", &codes_, &start_, &rows_)) return NULL;
    Lease lease = {.count = 0};
    const int32_t *codes = lease_array(&lease, codes_, 4, 0, READ);
    int64_t count = codes ? lease.buffers[0].len / 4 : 0;
    int64_t *start = codes ? lease_array(&lease, start_, 8, 1, WRITE) : NULL;
    int64_t *rows = start && rows_ != Py_None ? lease_array(&lease, rows_, 8, count, WRITE) : NULL;
    if (!start || (!rows && rows_ != Py_None)) {
        lease_end(&lease);
        return NULL;
    }
    int64_t queries = lease.buffers[1].len / 8 - 1;
    int64_t *next = calloc((size_t)queries + 1, sizeof *next);
    if (!next) {
        lease_end(&lease);
        return PyErr_NoMemory();
    }
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t i = 0; i < count && good; i++) {
        good = codes[i] >= 0 && codes[i] < queries;
        if (good) next[codes[i]]++;
    }
    int64_t sum = 0;
    for (int64_t q = 0; q < queries; q++) {
        start[q] = sum;
        sum += next[q];
        next[q] = start[q];
    }
    start[queries] = sum;
    for (int64_t i = 0; rows && i < count && good; i++) rows[next[codes[i]]++] = i;
    Py_END_ALLOW_THREADS;
    free(next);
    lease_end(&lease);
    if (good) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "a code that no query has");
    return NULL;
}

/* scatter(codes, begin, end, value, doc, to, into, first, last): of rows first to last those of
 * query q go to places begin[q] to end[q], in order: their values to `to`, their ids to `into`, which
 * was made of `doc`. Rows are read as they lie, which is faster than to fetch each from where it
 * is. */
static PyObject *native_scatter(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *codes_, *begin_, *end_, *value_, *doc_, *to_, *into_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOLL", &codes_, &begin_, &end_, &value_, &doc_, &to_, &into_,
                          &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Text doc = {0}, into = {0};
    if (!strings_lend(doc_, &doc) || !strings_lend(into_, &into) || doc.data != into.data) {
        PyErr_SetString(PyExc_TypeError, "expected Strings, and others made of them");
        return NULL;
    }
    Lease lease = {.count = 0};
    int64_t *next = NULL;
    PyObject *result = NULL;
    const int32_t *codes = lease_array(&lease, codes_, 4, last, READ);
    const int64_t *begin = codes ? lease_array(&lease, begin_, 8, 0, READ) : NULL;
    if (!begin) goto done;
    int64_t queries = lease.buffers[1].len / 8;
    const int64_t *end = lease_array(&lease, end_, 8, queries, READ);
    const int64_t *value = end ? lease_array(&lease, value_, 8, last, READ) : NULL;
    int64_t *to = value ? lease_array(&lease, to_, 8, into.length, WRITE) : NULL;
    if (!to || !fits((int64_t[]){last}, 0, doc.length)) goto done;
    next = malloc((size_t)(queries + 1) * sizeof *next);
    if (!next) {
        PyErr_NoMemory();
        goto done;
    }
    View *views = (View *)into.views;
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = 0; q < queries; q++) {
        next[q] = begin[q];
        good &= begin[q] >= 0 && begin[q] <= end[q] && end[q] <= into.length;
    }
    enum { AHEAD = 24 }; /* rows, for whose places memory is asked before they are written */
    for (int64_t i = first; i < last && good; i++) {
        int64_t q = codes[i], soon = i + AHEAD < last ? codes[i + AHEAD] : q;
        good = q >= 0 && q < queries && next[q] < end[q];
        if (!good) break;
        if (soon >= 0 && soon < queries) {
            SOON_WRITTEN(&views[next[soon]]);
            SOON_WRITTEN(&to[next[soon]]);
        }
        int64_t at = next[q]++;
        views[at] = doc.views[i];
        to[at] = value[i];
    }
    Py_END_ALLOW_THREADS;
    if (good) result = Py_NewRef(Py_None);
    else PyErr_SetString(PyExc_ValueError, "the places are not those of the codes");
done:
    free(next);
    lease_end(&lease);
    return result;
}

/* strings.like(count): so many empty strings, to be filled with those of `strings`. */
static PyObject *strings_like(PyObject *self, PyObject *argument) {
    Py_ssize_t count = PyLong_AsSsize_t(argument);
    if (count < 0) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a count below 0");
        return NULL;
    }
    Shared *shared = ((Strings *)self)->shared;
    Column column = {.length = (size_t)count};
    size_t bytes = ((size_t)count + 1) * sizeof *column.views;
    column.views = in_large_pages(calloc(bytes, 1), bytes);
    if (!column.views) return PyErr_NoMemory();
    PyObject *made = strings_new(&column, shared->owner ? shared->owner : shared);
    column_free(&column);
    return made;
}

/* strings.gather(rows): the strings of these rows, which share their text. */
static PyObject *strings_gather(PyObject *self, PyObject *rows_) {
    Lease lease = {.count = 0};
    Text from = {0}, to = {0};
    strings_lend(self, &from);
    const int64_t *rows = lease_array(&lease, rows_, 8, 0, READ);
    PyObject *size = rows ? PyLong_FromSsize_t(lease.buffers[0].len / 8) : NULL;
    PyObject *made = size ? strings_like(self, size) : NULL;
    Py_XDECREF(size);
    if (made) {
        strings_lend(made, &to);
        int good = 1;
        for (int64_t i = 0; i < to.length && good; i++) {
            good = rows[i] >= 0 && rows[i] < from.length;
            if (good) ((View *)to.views)[i] = from.views[rows[i]];
        }
        if (!good) {
            PyErr_SetString(PyExc_IndexError, "no such row");
            Py_DECREF(made);
            made = NULL;
        }
    }
    lease_end(&lease);
    return made;
}

static PyMethodDef strings_methods[] = {
    {"__arrow_c_array__", (PyCFunction)(void (*)(void))strings_export,
     METH_VARARGS | METH_KEYWORDS, "A pair of Arrow capsules."},
    {"gather", strings_gather, METH_O, "The strings of these rows."},
    {"like", strings_like, METH_O, "So many empty strings, for scatter."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot strings_slots[] = {
    {Py_tp_dealloc, strings_dealloc},
    {Py_tp_methods, strings_methods},
    {Py_sq_length, strings_length},
    {Py_sq_item, strings_item},
    {0, NULL},
};

static PyType_Spec strings_spec = {
    "rankproof._native.Strings", sizeof(Strings), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, strings_slots};

/* merge(doc, first, last, value, by_lists, room, row, score, counts, low, high): for queries low
 * to high, each document of its lists once, with the sum of its values, or that times the number
 * of its lists; from the highest down, equal ones by document id. List l of query q is rows
 * first[l * queries + q] to last[..] of doc; a row with a negative value is passed over. What is
 * found stands together from room[low] on; counts[q] says how much of it is of query q.
 * room[q + 1] - room[q] is the length of all lists of q. */
static PyObject *native_merge(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *doc_, *first_, *last_, *value_, *room_, *row_, *score_, *counts_;
    int by_lists;
    long long low, high;
    if (!PyArg_ParseTuple(args, "OOOOpOOOOLL", &doc_, &first_, &last_, &value_, &by_lists, &room_,
                          &row_, &score_, &counts_, &low, &high))
        return NULL;
    if (!is_range(low, high)) return NULL;
    Lease lease = {.count = 0};
    Text doc = {0};
    Item *items = NULL;
    PyObject *result = NULL;
    const int64_t *room = lease_array(&lease, room_, 8, high + 1, READ);
    if (!room || !ascends(room, high)) goto done;
    int64_t queries = lease.buffers[0].len / 8 - 1;
    const int64_t *first = lease_array(&lease, first_, 8, 0, READ);
    if (!first) goto done;
    int64_t cells = lease.buffers[1].len / 8, lists = queries ? cells / queries : 0;
    const int64_t *last = lease_array(&lease, last_, 8, cells, READ);
    if (!last || text_acquire(doc_, &doc)) goto done;
    const int64_t *value = lease_array(&lease, value_, 8, doc.length, READ);
    int64_t *row = value ? lease_array(&lease, row_, 8, room[high], WRITE) : NULL;
    double *score = row ? lease_array(&lease, score_, 8, room[high], WRITE) : NULL;
    int64_t *counts = score ? lease_array(&lease, counts_, 8, high, WRITE) : NULL;
    if (!counts) goto done;
    int64_t longest = 0;
    for (int64_t q = low; q < high; q++) {
        int64_t sum = 0;
        for (int64_t l = 0; l < lists; l++) {
            int64_t from = first[l * queries + q], to = last[l * queries + q];
            if (from < 0 || from > to || to > doc.length) sum = INT64_MIN / 2;
            else sum += to - from;
        }
        if (sum != room[q + 1] - room[q]) {
            PyErr_SetString(PyExc_ValueError, "the rows of the queries are not all there");
            goto done;
        }
        if (sum > longest) longest = sum;
    }
    size_t most = 2, long_ = (size_t)longest;
    while (most < 2 * long_) most *= 2;
    /* In one piece: items, room to sort them, sums, rows, list counts, hash table. */
    items = malloc(long_ * (2 * sizeof *items + 2 * 8 + 4) + most * 4);
    if (!items) {
        PyErr_NoMemory();
        goto done;
    }
    Item *space = items + longest;
    int64_t *total = (int64_t *)(space + longest), *rows = total + longest;
    int32_t *held = (int32_t *)(rows + longest), *slots = held + longest;
    Py_BEGIN_ALLOW_THREADS;
    int64_t end = room[low];
    for (int64_t q = low; q < high; q++) {
        int32_t count = 0;
        size_t size = 2;
        while (size < 2 * (size_t)(room[q + 1] - room[q])) size *= 2;
        memset(slots, 0, size * sizeof *slots);
        for (int64_t l = 0; l < lists; l++) {
            int64_t to = last[l * queries + q];
            for (int64_t i = first[l * queries + q]; i < to; i++) {
                if (value[i] < 0) continue;
                uint64_t slot = hash_view(&doc, &doc.views[i]) & (size - 1);
                while (slots[slot] && !same_text(&doc, &doc.views[rows[slots[slot] - 1]], &doc,
                                                 &doc.views[i]))
                    slot = (slot + 1) & (size - 1);
                if (slots[slot]) {
                    total[slots[slot] - 1] += value[i];
                    held[slots[slot] - 1]++;
                } else {
                    rows[count] = i;
                    total[count] = value[i];
                    held[count] = 1;
                    slots[slot] = ++count;
                }
            }
        }
        for (int32_t i = 0; i < count; i++)
            items[i] = (Item){(double)total[i] * (by_lists ? held[i] : 1), rows[i]};
        sort_items(items, space, count);
        for (int32_t i = 0; i < count; i++) rows[i] = items[i].row;
        for (int32_t i = 0, next; i < count; i = next) {
            for (next = i + 1; next < count && items[next].score == items[i].score;) next++;
            sort_by_doc(&doc, 1, rows + i, (int64_t *)space, next - i);
        }
        for (int32_t i = 0; i < count; i++) {
            row[end] = rows[i];
            score[end++] = items[i].score;
        }
        counts[q] = count;
    }
    Py_END_ALLOW_THREADS;
    result = Py_NewRef(Py_None);
done:
    free(items);
    text_release(&doc);
    lease_end(&lease);
    return result;
}

/* first_unfit(ids) -> the first row whose text is empty or holds a control character, or -1. */
static PyObject *native_first_unfit(PyObject *self, PyObject *ids) {
    (void)self;
    Text text;
    if (text_acquire(ids, &text)) return NULL;
    int64_t found = -1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t row = 0; row < text.length; row++) {
        const View *v = &text.views[row];
        if (maybe_unfit(&text, v) && is_unfit(&text, v)) {
            found = row;
            break;
        }
    }
    Py_END_ALLOW_THREADS;
    text_release(&text);
    return PyLong_FromLongLong(found);
}
