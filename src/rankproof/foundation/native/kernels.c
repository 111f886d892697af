/* Documents found in lists, scores ranked, tie groups made, and measures summed over tie groups.
 * Part of _native.c; the twins of all functions are in foundation/kernels.py, or named. */

/* ------------------------------------------------------------ documents of a query: hash tables */

/* index(doc, start, slot_start, slots, first, last, check) -> row of a repeated document, or -1;
 * with `check`, -2 - row of an invalid id
 *
 * Fill one hash table per query from document to row. Query q owns
 * slots[slot_start[q]:slot_start[q+1]], a power of two of them; each becomes 0 or a row of the list
 * counted from 1. Twin: kernels.index_documents. */
static PyObject *native_index(PyObject *self, PyObject *args) {
    PyObject *doc_, *start_, *slot_start_, *slots_;
    long long first, last;
    int check = 0;
    if (!PyArg_ParseTuple(args, "OOOOLL|p", &doc_, &start_, &slot_start_, &slots_, &first, &last,
                          &check))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    int64_t items;
    const int64_t *start = lease_starts(&lease, start_, last, &items), *slot_start;
    Slots slots = lease_tables(&lease, slot_start_, slots_, start, last, WRITE, &slot_start);
    Text doc = lease_text(&lease, doc_, items);
    if (lease.failed) return lease_close(&lease);
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
            if (check) odd |= may_be_invalid_id(&doc, &rows[i]);
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
            if (is_invalid_id(&doc, &rows[i])) repeated = -2 - (start[q] + i);
    }
    Py_END_ALLOW_THREADS;
    lease_require(&lease, repeated != INT64_MAX, "the slots are too narrow");
    return lease_number(&lease, repeated);
}

/* lookup(doc, start, slot_start, slots, wanted, query, rows, first, last)
 *
 * Set rows[i] to the row that holds wanted[i] in the list of query[i], or -1, for i in [first,
 * last). A negative query has no list. Twin: kernels.find_rows. */
static PyObject *native_lookup(PyObject *self, PyObject *args) {
    PyObject *doc_, *start_, *slot_start_, *slots_, *wanted_, *query_, *rows_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOLL", &doc_, &start_, &slot_start_, &slots_, &wanted_,
                          &query_, &rows_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    int64_t items;
    const int64_t *start = lease_starts(&lease, start_, -1, &items), *slot_start;
    int64_t queries = lease.items - 1;
    Slots slots = lease_tables(&lease, slot_start_, slots_, start, queries, READ, &slot_start);
    const int64_t *query = lease_array(&lease, query_, I64, last, READ);
    int64_t *rows = lease_array(&lease, rows_, I64, last, WRITE);
    Text doc = lease_text(&lease, doc_, items), wanted = lease_text(&lease, wanted_, last);
    if (lease.failed) return lease_close(&lease);
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    /* Most time goes into waiting for memory. A batch is hashed, then its slots and its rows are
     * prefetched, before the first document is compared. */
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
            PREFETCH((const char *)slots.items +
                 (slot_start[q] + (int64_t)slot_of[i - low]) * (slots.narrow ? 2 : 4));
        }
        for (int64_t i = low; i < high; i++) {
            if (rows[i]) continue;
            int64_t q = query[i];
            int64_t row = slot_get(&slots, slot_start[q] + (int64_t)slot_of[i - low]);
            if (row && row <= start[q + 1] - start[q]) PREFETCH(&doc.views[start[q] + row - 1]);
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
            /* A slot beyond the list, or a full table, shows that the tables belong to other lists. */
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
    lease_require(&lease, good, "the slots are not those of the rows");
    return lease_close(&lease);
}

/* ------------------------------------------------------------------------------- ranking */

/* Compare two ids byte by byte, as Python compares text. */
static inline int compare_ids(const Text *t, const View *a, const View *b) {
    uint32_t m = view_length(a), n = view_length(b);
    int c = memcmp(text_at(t, a), text_at(t, b), m < n ? m : n);
    return c ? c : (m > n) - (m < n);
}

/* A row and its score, as they are sorted. */
typedef struct {
    double score;
    int64_t row;
} Item;

/* Return a key that ascends as scores fall; −0 and 0 have the same. */
static inline uint64_t descending_key(double score) {
    uint64_t bits;
    score += 0.0;
    memcpy(&bits, &score, 8);
    return bits >> 63 ? bits : ~bits & INT64_MAX;
}

/* Radix sort for long lists, a byte of the key at a time. Bytes in which no two keys differ are
 * skipped; scores of a narrow format have many. */
static void sort_by_bytes(Item *items, Item *space, int64_t count) {
    Item *from = items, *to = space;
    uint64_t any = descending_key(items[0].score), differ = 0;
    for (int64_t i = 1; i < count; i++) differ |= descending_key(items[i].score) ^ any;
    for (int shift = 0; shift < 64; shift += 8) {
        if (!(differ >> shift & 255)) continue;
        uint32_t next[256] = {0}, sum = 0;
        for (int64_t i = 0; i < count; i++) next[descending_key(from[i].score) >> shift & 255]++;
        for (int value = 0; value < 256; value++) {
            uint32_t here = next[value];
            next[value] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < count; i++)
            to[next[descending_key(from[i].score) >> shift & 255]++] = from[i];
        Item *swap = from;
        from = to;
        to = swap;
    }
    if (from != items) memcpy(items, from, (size_t)count * sizeof *items);
}

/* Sort by score, highest first; stable. The merge has no branches that depend on scores, which a
 * processor could not predict. `space` holds as many items. */
static void sort_by_score(Item *items, Item *space, int64_t count) {
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

/* Set rows[i] to the row of the i-th highest of `count` scores; stable. `items` has room for two
 * and `keys` for three times as many.
 *
 * Long lists are radix-sorted by the highest 24 bits in which keys differ, packed with the row into
 * one word. The few rows that are equal in these bits are sorted by score afterwards. */
static void sort_scores(const double *score, int64_t count, Item *items, uint64_t *keys,
                        int64_t *rows) {
    enum { LONG = 128, FEW = 16, BITS = 24 };
    uint64_t differ = 0, *from = keys + count, *to = from + count;
    if (count < LONG || count > UINT32_MAX) {
        for (int64_t i = 0; i < count; i++) items[i] = (Item){score[i], i};
        sort_by_score(items, items + count, count);
        for (int64_t i = 0; i < count; i++) rows[i] = items[i].row;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        keys[i] = descending_key(score[i]);
        differ |= keys[i] ^ keys[0];
    }
    int low = 0, top = 0; /* keys differ in bits [low, top) */
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
            sort_by_score(items, items + count, last - first);
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

/* Merge-sort rows by document id, ascending (direction 1) or descending (−1). */
static void sort_by_doc(const Text *doc, int direction, int64_t *rows, int64_t *space,
                        int64_t count) {
    if (count <= 8) {
        for (int64_t i = 1; i < count; i++) {
            int64_t row = rows[i], j = i;
            const View *v = &doc->views[row];
            for (; j > 0 && direction * compare_ids(doc, &doc->views[rows[j - 1]], v) > 0; j--)
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
        int c = compare_ids(doc, &doc->views[space[a]], &doc->views[rows[b]]);
        rows[out++] = direction * c > 0 ? rows[b++] : space[a++];
    }
    memcpy(rows + out, space + a, (size_t)(half - a) * sizeof *rows);
}

/* falls(score, start, groups, first, last) -> number of groups, or -1
 *
 * Write the rows at which a tie group begins (a new query or a lower score) from
 * groups[start[first]] on. Return -1 if a score rises inside a query, so that the list is not
 * sorted. Twin: kernels.tie_group_starts. */
static PyObject *native_falls(PyObject *self, PyObject *args) {
    PyObject *score_, *start_, *groups_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOLL", &score_, &start_, &groups_, &first, &last)) return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    int64_t items;
    const int64_t *start = lease_starts(&lease, start_, last, &items);
    const double *score = lease_array(&lease, score_, F64, items, READ);
    int64_t *groups = lease_array(&lease, groups_, I64, items, WRITE);
    if (lease.failed) return lease_close(&lease);
    int64_t *next = groups + start[first];
    int rises = 0;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && !rises; q++) {
        if (start[q] < start[q + 1]) *next++ = start[q];
        for (int64_t i = start[q] + 1; i < start[q + 1]; i++) {
            *next = i; /* kept if the score is lower */
            next += score[i] < score[i - 1];
            rises |= score[i] > score[i - 1];
        }
    }
    Py_END_ALLOW_THREADS;
    return lease_number(&lease, rises ? -1 : next - (groups + start[first]));
}

/* place(score, start, doc or None, direction, position, groups, first, last) -> number of groups
 *
 * Set position[row] to the position of a row when each list is sorted best first, ties by id in
 * this direction or as listed. Write the positions at which a tie group begins from
 * groups[start[first]] on. Twin: kernels.rank_rows. */
static PyObject *native_place(PyObject *self, PyObject *args) {
    PyObject *score_, *start_, *doc_, *position_, *groups_;
    int direction;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOiOOLL", &score_, &start_, &doc_, &direction, &position_,
                          &groups_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    int64_t all;
    const int64_t *start = lease_starts(&lease, start_, last, &all);
    const double *score = lease_array(&lease, score_, F64, all, READ);
    int64_t *position = lease_array(&lease, position_, I64, all, WRITE);
    int64_t *groups = lease_array(&lease, groups_, I64, all, WRITE);
    Text doc = {0};
    if (doc_ != Py_None) doc = lease_text(&lease, doc_, all);
    int64_t longest = lease.failed ? 0 : longest_of(start, first, last);
    Item *items = lease_memory(&lease, 4 * longest, sizeof *items, 0);
    if (lease.failed) return lease_close(&lease);
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
    return lease_number(&lease, next - (groups + start[first]));
}

/* ---------------------------------------------------------------------------- tie groups */

/* grouped(row, grade, start, list, group, list_start, position or None, group_start, size, begin,
 * query, judged, grades, rank, first, last) -> (groups, documents), or None
 *
 * Find the tie groups that hold a judged document. Input: judgments start[q]:start[q+1] of each
 * query, with grade and row of the run (-1: not listed); the query's list in the run and its first
 * tie group; the ranking's offsets, positions and group starts.
 * Output, from start[first] on: for each group its size, first rank, query and number of judged
 * documents before it; for each judged document, by rank, grade and rank. None if a document is
 * judged twice, which the twin handles: kernels.group_judged. */
static PyObject *native_grouped(PyObject *self, PyObject *args) {
    PyObject *row_, *grade_, *start_, *list_, *group_, *list_start_, *position_, *group_start_;
    PyObject *size_, *begin_, *query_, *judged_, *grades_, *rank_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOOOLL", &row_, &grade_, &start_, &list_, &group_,
                          &list_start_, &position_, &group_start_, &size_, &begin_, &query_,
                          &judged_, &grades_, &rank_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    int64_t all, rows;
    const int64_t *start = lease_starts(&lease, start_, last, &all);
    const int64_t *row = lease_array(&lease, row_, I64, all, READ);
    const int64_t *grade = lease_array(&lease, grade_, I64, all, READ);
    const int64_t *list = lease_array(&lease, list_, I64, last, READ);
    const int64_t *group = lease_array(&lease, group_, I64, last, READ);
    const int64_t *list_start = lease_starts(&lease, list_start_, -1, &rows);
    int64_t lists = lease.items - 1;
    const int64_t *group_start = lease_array(&lease, group_start_, I64, 1, READ);
    int64_t groups = lease.items - 1;
    int64_t *size = lease_array(&lease, size_, I64, all, WRITE);
    int64_t *begin = lease_array(&lease, begin_, I64, all, WRITE);
    int64_t *query = lease_array(&lease, query_, I64, all, WRITE);
    int64_t *judged = lease_array(&lease, judged_, I64, all, WRITE);
    int64_t *grades = lease_array(&lease, grades_, I64, all, WRITE);
    int64_t *rank = lease_array(&lease, rank_, I64, all, WRITE);
    const int64_t *position = NULL;
    if (position_ != Py_None) position = lease_array(&lease, position_, I64, rows, READ);
    if (lease.failed) return lease_close(&lease);
    int64_t longest = 0;
    for (int64_t q = first; q < last; q++) {
        int64_t l = list[q];
        if (l >= 0 && l < lists && list_start[l + 1] - list_start[l] > longest)
            longest = list_start[l + 1] - list_start[l];
    }
    /* One bit for each position of a list that is judged, and the grade there: reading the bits in
     * order sorts the judgments by rank. */
    uint64_t *bits = lease_memory(&lease, longest / 64, sizeof *bits, 1);
    int64_t *held = lease_memory(&lease, longest, sizeof *held, 0);
    if (lease.failed) return lease_close(&lease);
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
        int64_t g = group[q] < 0 ? 0 : group[q], end = -1; /* where the last group ends */
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
                        g += step; /* search with ever longer steps */
                        step *= 2;
                    }
                    for (; step; step /= 2) /* and then shorter ones */
                        if (g + step < groups && group_start[g + step] <= low + place) g += step;
                    if (g >= groups) { /* cannot happen in a ranked list */
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
    if (twice) return lease_close(&lease);
    lease_require(&lease, good, "the rows are not those of the lists");
    return lease_numbers(&lease, found - start[first], document - start[first]);
}

/* The columns of data.ties.TieGroups. */
typedef struct {
    const int64_t *size, *begin, *query, *start, *rank;
    int64_t count, documents;
} Groups;

/* Return the columns, checked to belong together; queries are below `queries`. */
static Groups lease_groups(Lease *lease, PyObject *const *given, int64_t documents, int64_t queries) {
    int64_t held;
    Groups g = {.size = lease_array(lease, given[0], I64, 0, READ), .documents = documents};
    g.count = lease->items;
    g.begin = lease_array(lease, given[1], I64, g.count, READ);
    g.query = lease_array(lease, given[2], I64, g.count, READ);
    g.start = lease_starts(lease, given[3], g.count, &held);
    g.rank = lease_array(lease, given[4], I64, documents, READ);
    lease_require(lease, held <= documents, "the rows of the queries are not all there");
    int ok = 1;
    for (int64_t i = 0; i < g.count && !lease->failed; i++)
        ok &= g.query[i] >= 0 && g.query[i] < queries && g.size[i] > 0 && g.begin[i] > 0;
    lease_require(lease, ok, "there is no such query or group");
    return g;
}

/* chosen(flags, size, begin, query, start, grade, rank, six output columns) -> (groups, documents)
 *
 * Copy the groups whose flag is set. Twin: kernels.select_groups. */
static PyObject *native_chosen(PyObject *self, PyObject *args) {
    PyObject *flags_, *grade_, *given[5], *into[6];
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOO", &flags_, &given[0], &given[1], &given[2],
                          &given[3], &grade_, &given[4], &into[0], &into[1], &into[2], &into[3],
                          &into[4], &into[5]))
        return NULL;
    Lease lease;
    lease_open(&lease);
    const int64_t *grade = lease_array(&lease, grade_, I64, 0, READ);
    int64_t documents = lease.items;
    Groups g = lease_groups(&lease, given, documents, INT64_MAX);
    const uint8_t *flags = lease_array(&lease, flags_, FLAG, g.count, READ);
    int64_t *to[6];
    for (int i = 0; i < 6; i++) {
        int64_t count = i < 3 ? g.count : i == 3 ? g.count + 1 : documents;
        to[i] = lease_array(&lease, into[i], I64, count, WRITE);
    }
    if (lease.failed) return lease_close(&lease);
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
    return lease_numbers(&lease, found, held);
}

/* ----------------------------------------------------------------------- sums over tie groups */

/* Sums for each query, added group by group: kernels.Sums. */
typedef struct {
    double *expected, *least, *most, *oblivious, *variance;
} Sums;

static Sums lease_sums(Lease *lease, PyObject *const *given, int64_t queries) {
    double *to[5];
    for (int i = 0; i < 5; i++) to[i] = lease_array(lease, given[i], F64, queries, WRITE);
    return (Sums){to[0], to[1], to[2], to[3], to[4]};
}

/* Return how many ranks of a group lie up to rank `cut`. */
static inline int64_t ranks_inside(int64_t cut, int64_t begin, int64_t size) {
    int64_t inside = cut < begin ? 0 : cut - begin + 1;
    return inside > size ? size : inside;
}

/* counted(chosen, cut, size, begin, query, start, rank, five sums)
 *
 * Add the number of chosen documents in the top `cut` of each query: kernels.count_in_top. Of a
 * group with g documents, m chosen and t inside the cut, the number is hypergeometric: mean m·t/g,
 * variance m(g−m)/g · t(g−t)/g / (g−1). Twin: measures/linear.py. */
static PyObject *native_counted(PyObject *self, PyObject *args) {
    PyObject *chosen_, *cut_, *of_[5], *sums_[5];
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOO", &chosen_, &cut_, &of_[0], &of_[1], &of_[2], &of_[3],
                          &of_[4], &sums_[0], &sums_[1], &sums_[2], &sums_[3], &sums_[4]))
        return NULL;
    Lease lease;
    lease_open(&lease);
    const uint8_t *chosen = lease_array(&lease, chosen_, FLAG, 0, READ);
    int64_t documents = lease.items;
    const int64_t *cut = lease_array(&lease, cut_, I64, 0, READ);
    int64_t queries = lease.items;
    Sums sums = lease_sums(&lease, sums_, queries);
    Groups of = lease_groups(&lease, of_, documents, queries);
    if (lease.failed) return lease_close(&lease);
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
    return lease_close(&lease);
}

/* Return mean and variance of what a tied group adds to R·AP. `room` holds three numbers for each
 * rank inside the cut. The formulas are in measures/average_precision.py, and here the same
 * operations follow in the same order. */
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

/* averages(grade, cut, size, begin, query, start, rank, rel, five sums)
 *
 * Add what each group adds to R·AP up to rank `cut`: kernels.average_precision_sums. Twin:
 * measures/average_precision.py. */
static PyObject *native_averages(PyObject *self, PyObject *args) {
    PyObject *grade_, *cut_, *of_[5], *sums_[5];
    long long rel;
    if (!PyArg_ParseTuple(args, "OOOOOOOLOOOOO", &grade_, &cut_, &of_[0], &of_[1], &of_[2], &of_[3],
                          &of_[4], &rel, &sums_[0], &sums_[1], &sums_[2], &sums_[3], &sums_[4]))
        return NULL;
    Lease lease;
    lease_open(&lease);
    const int64_t *grade = lease_array(&lease, grade_, I64, 0, READ);
    int64_t documents = lease.items, longest = 0;
    const int64_t *cut = lease_array(&lease, cut_, I64, 0, READ);
    int64_t queries = lease.items;
    Sums sums = lease_sums(&lease, sums_, queries);
    Groups of = lease_groups(&lease, of_, documents, queries);
    for (int64_t i = 0; i < of.count && !lease.failed; i++) {
        int64_t inside = ranks_inside(cut[of.query[i]], of.begin[i], of.size[i]);
        if (inside > longest) longest = inside;
    }
    double *room = lease_memory(&lease, longest * 3, sizeof *room, 0);
    if (lease.failed) return lease_close(&lease);
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
    return lease_close(&lease);
}

/* --------------------------------------------------------------------- rows sorted by query */

/* starts(codes, start) -> whether the rows are sorted by code and every code occurs
 *
 * If so, rows start[q]:start[q+1] are those of query q. Twin: kernels._starts. */
static PyObject *native_starts(PyObject *self, PyObject *args) {
    PyObject *codes_, *start_;
    if (!PyArg_ParseTuple(args, "OO", &codes_, &start_)) return NULL;
    Lease lease;
    lease_open(&lease);
    const int32_t *codes = lease_array(&lease, codes_, I32, 0, READ);
    int64_t count = lease.items;
    int64_t *start = lease_array(&lease, start_, I64, 1, WRITE);
    int64_t queries = lease.items - 1, q = -1;
    if (lease.failed) return lease_close(&lease);
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    enum { MANY = 32 }; /* compared without a branch, so that compilers vectorize it */
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
    Py_DECREF(lease_close(&lease));
    return PyBool_FromLong(good);
}

/* group(codes, start, rows or None)
 *
 * Counting sort: rows[start[q]:start[q+1]] become the positions where codes == q, in order. Twin:
 * kernels.query_groups. */
static PyObject *native_group(PyObject *self, PyObject *args) {
    PyObject *codes_, *start_, *rows_;
    if (!PyArg_ParseTuple(args, "OOO", &codes_, &start_, &rows_)) return NULL;
    Lease lease;
    lease_open(&lease);
    const int32_t *codes = lease_array(&lease, codes_, I32, 0, READ);
    int64_t count = lease.items, *rows = NULL;
    int64_t *start = lease_array(&lease, start_, I64, 1, WRITE);
    int64_t queries = lease.items - 1;
    if (rows_ != Py_None) rows = lease_array(&lease, rows_, I64, count, WRITE);
    int64_t *next = lease_memory(&lease, queries, sizeof *next, 1);
    if (lease.failed) return lease_close(&lease);
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
    lease_require(&lease, good, "a code that no query has");
    return lease_close(&lease);
}

/* scatter(codes, begin, end, value, doc, to, into, first, last)
 *
 * Move the values and ids of rows [first, last) to positions begin[q] to end[q] of `to` and `into`,
 * by query and in order. `into` was made by doc.like(). Reading rows in order and scattering them
 * is faster than gathering them. Twin: kernels.group_rows. */
static PyObject *native_scatter(PyObject *self, PyObject *args) {
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
    Lease lease;
    lease_open(&lease);
    const int32_t *codes = lease_array(&lease, codes_, I32, last, READ);
    const int64_t *begin = lease_array(&lease, begin_, I64, 0, READ);
    int64_t queries = lease.items;
    const int64_t *end = lease_array(&lease, end_, I64, queries, READ);
    const int64_t *value = lease_array(&lease, value_, WORD, last, READ);
    int64_t *to = lease_array(&lease, to_, WORD, into.length, WRITE);
    lease_require(&lease, last <= doc.length, "the rows of the queries are not all there");
    int64_t *next = lease_memory(&lease, queries, sizeof *next, 0);
    if (lease.failed) return lease_close(&lease);
    View *views = (View *)into.views;
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = 0; q < queries; q++) {
        next[q] = begin[q];
        good &= begin[q] >= 0 && begin[q] <= end[q] && end[q] <= into.length;
    }
    enum { AHEAD = 24 }; /* rows whose targets are prefetched before they are written */
    for (int64_t i = first; i < last && good; i++) {
        int64_t q = codes[i], soon = i + AHEAD < last ? codes[i + AHEAD] : q;
        good = q >= 0 && q < queries && next[q] < end[q];
        if (!good) break;
        if (soon >= 0 && soon < queries) {
            PREFETCH_WRITE(&views[next[soon]]);
            PREFETCH_WRITE(&to[next[soon]]);
        }
        int64_t at = next[q]++;
        views[at] = doc.views[i];
        to[at] = value[i];
    }
    Py_END_ALLOW_THREADS;
    lease_require(&lease, good, "the places are not those of the codes");
    return lease_close(&lease);
}

/* ------------------------------------------------------------------- methods of Strings */

/* strings.like(count): return so many empty strings, which `scatter` fills with those of `strings`. */
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

/* strings.gather(rows): return the strings of these rows, which share the text of long ids. */
static PyObject *strings_gather(PyObject *self, PyObject *rows_) {
    Lease lease;
    lease_open(&lease);
    Text from = {0}, to = {0};
    strings_lend(self, &from);
    const int64_t *rows = lease_array(&lease, rows_, I64, 0, READ);
    PyObject *size = rows ? PyLong_FromLongLong(lease.items) : NULL;
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
    Py_XDECREF(lease_close(&lease));
    return made;
}

static PyMethodDef strings_methods[] = {
    {"__arrow_c_array__", (PyCFunction)(void (*)(void))strings_export,
     METH_VARARGS | METH_KEYWORDS, "Return a pair of Arrow capsules."},
    {"gather", strings_gather, METH_O, "Return the strings of these rows."},
    {"like", strings_like, METH_O, "Return so many empty strings, for scatter."},
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
    "rankproof.foundation._native.Strings", sizeof(Strings), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, strings_slots};

/* --------------------------------------------------------------------- fusion of lists */

/* merge(doc, first, last, value, by_lists, room, row, score, counts, low, high)
 *
 * For queries [low, high), write each document of all lists once, with the sum of its values (times
 * the number of its lists, with by_lists), highest first and equal sums by id. List l of query q is
 * rows first[l * queries + q] to last[..] of doc; rows with a negative value are skipped. room[q+1]
 * - room[q] is the length of all lists of q; the results of all queries follow each other from
 * room[low] on, counts[q] of them for q. Twin: kernels.merge_lists. */
static PyObject *native_merge(PyObject *self, PyObject *args) {
    PyObject *doc_, *first_, *last_, *value_, *room_, *row_, *score_, *counts_;
    int by_lists;
    long long low, high;
    if (!PyArg_ParseTuple(args, "OOOOpOOOOLL", &doc_, &first_, &last_, &value_, &by_lists, &room_,
                          &row_, &score_, &counts_, &low, &high))
        return NULL;
    if (!is_range(low, high)) return NULL;
    Lease lease;
    lease_open(&lease);
    int64_t all;
    const int64_t *room = lease_starts(&lease, room_, high, &all);
    int64_t queries = lease.items - 1;
    const int64_t *first = lease_array(&lease, first_, I64, 0, READ);
    int64_t cells = lease.items, lists = queries > 0 ? cells / queries : 0;
    const int64_t *last = lease_array(&lease, last_, I64, cells, READ);
    Text doc = lease_text(&lease, doc_, 0);
    const int64_t *value = lease_array(&lease, value_, I64, doc.length, READ);
    int64_t *row = lease_array(&lease, row_, I64, all, WRITE);
    double *score = lease_array(&lease, score_, F64, all, WRITE);
    int64_t *counts = lease_array(&lease, counts_, I64, high, WRITE);
    int64_t longest = 0;
    for (int64_t q = low; q < high && !lease.failed; q++) {
        int64_t sum = 0;
        for (int64_t l = 0; l < lists; l++) {
            int64_t from = first[l * queries + q], to = last[l * queries + q];
            if (from < 0 || from > to || to > doc.length) sum = INT64_MIN / 2;
            else sum += to - from;
        }
        lease_require(&lease, sum == room[q + 1] - room[q], "the rows of the queries are not all there");
        if (sum > longest) longest = sum;
    }
    size_t most = 2, long_ = (size_t)longest;
    while (most < 2 * long_) most *= 2;
    /* One allocation: items, space to sort them, sums, rows, list counts, hash table. */
    size_t bytes = long_ * (2 * sizeof(Item) + 2 * 8 + 4) + most * 4;
    Item *items = lease_memory(&lease, (int64_t)bytes, 1, 0);
    if (lease.failed) return lease_close(&lease);
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
        sort_by_score(items, space, count);
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
    return lease_close(&lease);
}

/* first_unfit(ids) -> the first row whose id is empty or has a control character, or -1. Twin:
 * kernels.first_invalid_id. */
static PyObject *native_first_unfit(PyObject *self, PyObject *ids) {
    Text text;
    if (text_acquire(ids, &text)) return NULL;
    int64_t found = -1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t row = 0; row < text.length; row++) {
        const View *v = &text.views[row];
        if (may_be_invalid_id(&text, v) && is_invalid_id(&text, v)) {
            found = row;
            break;
        }
    }
    Py_END_ALLOW_THREADS;
    text_release(&text);
    return PyLong_FromLongLong(found);
}
