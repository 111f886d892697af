/* Arguments from Python, checked before they are read: arrays, ids, offsets and hash tables; and
 * ids that no file may hold. Part of _native.c. */

/* ------------------------------------------------------------------- arrays from numpy */

/* Everything that a call borrows or allocates. After a failure each further request returns NULL,
 * so that a function can make all of its requests and check once. */
typedef struct {
    Py_buffer buffers[20];
    Text texts[2];
    void *allocated[3];
    int arrays, ids, allocated_count, failed;
    int64_t items; /* in the last array */
} Lease;

/* Begin with nothing; the arrays inside are left uninitialized, since clearing them would take
 * longer than small calls do. */
static inline void lease_open(Lease *lease) {
    lease->arrays = lease->ids = lease->allocated_count = lease->failed = 0;
    lease->items = 0;
}

/* Release everything; return None, or NULL if an error is set. */
static PyObject *lease_close(Lease *lease) {
    while (lease->arrays) PyBuffer_Release(&lease->buffers[--lease->arrays]);
    while (lease->ids) text_release(&lease->texts[--lease->ids]);
    while (lease->allocated_count) free(lease->allocated[--lease->allocated_count]);
    return lease->failed ? NULL : Py_NewRef(Py_None);
}

static void *lease_fail(Lease *lease) {
    lease->failed = 1;
    lease->items = 0;
    return NULL;
}

/* Release everything; return a number, or NULL if an error is set. */
static PyObject *lease_number(Lease *lease, int64_t number) {
    PyObject *done = lease_close(lease);
    Py_XDECREF(done);
    return done ? PyLong_FromLongLong(number) : NULL;
}

static PyObject *lease_numbers(Lease *lease, int64_t one, int64_t other) {
    PyObject *done = lease_close(lease);
    Py_XDECREF(done);
    return done ? Py_BuildValue("(LL)", (long long)one, (long long)other) : NULL;
}

/* Fail with a ValueError unless `ok`; return whether nothing has failed so far. */
static int lease_require(Lease *lease, int ok, const char *otherwise) {
    if (!ok && !lease->failed) {
        PyErr_SetString(PyExc_ValueError, otherwise);
        lease_fail(lease);
    }
    return !lease->failed;
}

enum { READ = PyBUF_CONTIG_RO, WRITE = PyBUF_CONTIG };

/* The item types of arrays, and their size (0: any). Only the size is checked: to ask numpy for the
 * type takes a tenth of the time of a small call. */
typedef enum { I64, I32, F64, FLAG, WORD, SLOT } Kind;
static const struct {
    const char *name;
    Py_ssize_t size;
} KINDS[] = {{"int64", 8}, {"int32", 4}, {"float64", 8}, {"bool", 1}, {"any", 8}, {"any", 0}};

/* Return the items of a contiguous array with at least `count` items of a type; NULL with an error
 * set otherwise. */
static void *lease_array(Lease *lease, PyObject *array, Kind kind, long long count, int access) {
    Py_buffer *b = &lease->buffers[lease->arrays];
    if (lease->failed || PyObject_GetBuffer(array, b, access)) return lease_fail(lease);
    lease->arrays++;
    lease->items = b->len / b->itemsize;
    Py_ssize_t size = KINDS[kind].size ? KINDS[kind].size : b->itemsize;
    if (b->itemsize != size || lease->items < count) {
        PyErr_Format(PyExc_ValueError,
                     "expected %lld items of %zd bytes or more (%s), got %lld of %zd bytes", count, size,
                     KINDS[kind].name, (long long)lease->items, b->itemsize);
        return lease_fail(lease);
    }
    return b->buf ? b->buf : (void *)b; /* empty: any address will do */
}

/* Return a column of at least `count` ids. */
static Text lease_text(Lease *lease, PyObject *ids, int64_t count) {
    Text *text = &lease->texts[lease->ids];
    if (lease->failed || text_acquire(ids, text)) return lease_fail(lease), (Text){0};
    lease->ids++;
    lease_require(lease, text->length >= count, "the rows of the queries are not all there");
    return *text;
}

/* Return memory for `count` items, cleared if `zeros`. */
static void *lease_memory(Lease *lease, int64_t count, size_t size, int zeros) {
    if (lease->failed) return NULL;
    size_t bytes = ((size_t)count + 1) * size;
    void *room = zeros ? calloc(bytes, 1) : malloc(bytes);
    if (!room) return PyErr_NoMemory(), lease_fail(lease);
    return lease->allocated[lease->allocated_count++] = room;
}

/* The slots of hash tables: 0, or a row of the list counted from 1. They are 16 bits wide if no
 * list needs more. */
typedef struct {
    void *items;
    int narrow;
} Slots;

static inline uint32_t slot_get(const Slots *slots, int64_t at) {
    return slots->narrow ? ((const uint16_t *)slots->items)[at] : ((const uint32_t *)slots->items)[at];
}

static inline void slot_set(const Slots *slots, int64_t at, uint32_t row) {
    if (slots->narrow) ((uint16_t *)slots->items)[at] = (uint16_t)row;
    else ((uint32_t *)slots->items)[at] = row;
}

static Slots lease_slots(Lease *lease, PyObject *array, int64_t count, int access) {
    Slots slots = {lease_array(lease, array, SLOT, count, access), 0};
    Py_ssize_t size = lease->failed ? 0 : lease->buffers[lease->arrays - 1].itemsize;
    lease_require(lease, size == 2 || size == 4, "expected slots of 2 or 4 bytes");
    slots.narrow = size == 2;
    return slots;
}

/* Return whether [first, last) can be a range of queries; set an error otherwise. Called before
 * start[last] is read. */
static int is_range(long long first, long long last) {
    int ok = first >= 0 && first <= last && last < INT64_MAX / 16;
    if (!ok) PyErr_SetString(PyExc_ValueError, "that is no range of queries");
    return ok;
}

/* Return the offsets of so many queries (all there are if `queries` is negative), and set `items`
 * to the last of them. Offsets begin at 0 or later and never fall. */
static const int64_t *lease_starts(Lease *lease, PyObject *array, int64_t queries, int64_t *items) {
    const int64_t *start = lease_array(lease, array, I64, queries < 0 ? 1 : queries + 1, READ);
    *items = 0;
    if (!start) return NULL;
    if (queries < 0) queries = lease->items - 1;
    int ok = start[0] >= 0;
    for (int64_t q = 0; q < queries; q++) ok &= start[q] <= start[q + 1];
    if (!lease_require(lease, ok, "the starts of the queries do not ascend from 0")) return NULL;
    *items = start[queries];
    return start;
}

/* Return the length of the longest list of queries [first, last). */
static int64_t longest_of(const int64_t *start, int64_t first, int64_t last) {
    int64_t most = 0;
    for (int64_t q = first; q < last; q++)
        if (start[q + 1] - start[q] > most) most = start[q + 1] - start[q];
    return most;
}

/* Return the slots of one hash table per list: a power of two of them, and more than it has rows. */
static Slots lease_tables(Lease *lease, PyObject *slot_start_, PyObject *slots_, const int64_t *start,
                          int64_t queries, int access, const int64_t **slot_start) {
    int64_t items;
    *slot_start = lease_starts(lease, slot_start_, queries, &items);
    int ok = 1;
    for (int64_t q = 0; q < queries && !lease->failed; q++) {
        int64_t rows = start[q + 1] - start[q], slots = (*slot_start)[q + 1] - (*slot_start)[q];
        ok &= rows < INT32_MAX && !(slots & (slots - 1)) && (rows == 0 || slots > rows);
    }
    lease_require(lease, ok, "the slots of the queries do not hold their rows");
    return lease_slots(lease, slots_, items, access);
}

/* ----------------------------------------------------------------------------- invalid ids */

#define EACH_BYTE(x) (0x0101010101010101u * (x))

/* Return flags in the highest bit of bytes that may be a control character: below the blank, DEL,
 * or part of a character beyond ASCII. Bytes above a flagged one may be flagged wrongly. */
static inline uint64_t control_flags(uint64_t word) {
    uint64_t low = (word - EACH_BYTE(0x20)) & ~word;
    return (low | word | (word + EACH_BYTE(0x01))) & EACH_BYTE(0x80);
}

/* Return whether text has a control character: below the blank, or from DEL to U+009F. */
static int has_control(const unsigned char *s, size_t length) {
    for (const unsigned char *end = s + length; s < end; s++)
        if (*s < ' ' || *s == 0x7F || (*s == 0xC2 && s + 1 < end && s[1] < 0xA0)) return 1;
    return 0;
}

/* Blanks for those bytes of the two words of a view that lie past a text of n bytes. */
static const uint64_t BLANKS[INLINE + 1][2] = {
#define FROM(n) (EACH_BYTE(0x20) << (8 * (n)))
    {FROM(0), FROM(0)}, {FROM(1), FROM(0)}, {FROM(2), FROM(0)}, {FROM(3), FROM(0)},
    {FROM(4), FROM(0)}, {FROM(5), FROM(0)}, {FROM(6), FROM(0)}, {FROM(7), FROM(0)},
    {0, FROM(0)},       {0, FROM(1)},       {0, FROM(2)},       {0, FROM(3)},
    {0, FROM(4)},
#undef FROM
};

/* Return whether an id is empty or has a control character. Twin: kernels.first_invalid_id. */
static int is_invalid_id(const Text *t, const View *v) {
    uint32_t n = view_length(v);
    return !n || has_control((const unsigned char *)text_at(t, v), n);
}

/* Return nonzero if an id may be invalid, and 0 for most that are valid: a few steps, without a
 * branch if the id is short. */
static inline uint64_t may_be_invalid_id(const Text *t, const View *v) {
    uint32_t n = view_length(v);
    if (n <= INLINE) { /* bytes past the text become blanks */
        uint64_t first = (v->low >> 32 | v->high << 32) | BLANKS[n][0];
        uint64_t last = v->high >> 32 | BLANKS[n][1];
        return control_flags(first) | control_flags(last) | !n;
    }
    const char *at = text_at(t, v), *end = at + n;
    uint64_t word, flags;
    memcpy(&word, end - 8, 8); /* may overlap the words before */
    for (flags = control_flags(word); end - at > 8; at += 8) {
        memcpy(&word, at, 8);
        flags |= control_flags(word);
    }
    return flags;
}
