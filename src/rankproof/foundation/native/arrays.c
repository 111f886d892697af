/* Arrays as numpy lends them, checked before they are read; ids that no file may hold. A part of _native.c. */

/* ------------------------------------------------------------------- arrays from numpy */

/* All that a call holds: arrays of numpy's, ids, room to work in. What is asked of a lease that failed
 * is NULL, so that a function asks for all that it needs and looks once. */
typedef struct {
    Py_buffer buffers[20];
    Text texts[2];
    void *rooms[3];
    int arrays, ids, made, failed;
    int64_t items; /* of the last array */
} Lease;

/* Holds nothing yet; what it has room for need not be zero, of which there is a lot. */
static inline void lease_open(Lease *lease) {
    lease->arrays = lease->ids = lease->made = lease->failed = 0;
    lease->items = 0;
}

/* Gives all back: None for what is done, or NULL where an error is set. */
static PyObject *lease_close(Lease *lease) {
    while (lease->arrays) PyBuffer_Release(&lease->buffers[--lease->arrays]);
    while (lease->ids) text_release(&lease->texts[--lease->ids]);
    while (lease->made) free(lease->rooms[--lease->made]);
    return lease->failed ? NULL : Py_NewRef(Py_None);
}

static void *lease_fail(Lease *lease) {
    lease->failed = 1;
    lease->items = 0;
    return NULL;
}

/* The same with numbers to give. */
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

/* Whether all is well so far; an error says what is not. */
static int lease_check(Lease *lease, int ok, const char *otherwise) {
    if (!ok && !lease->failed) {
        PyErr_SetString(PyExc_ValueError, otherwise);
        lease_fail(lease);
    }
    return !lease->failed;
}

enum { READ = PyBUF_CONTIG_RO, WRITE = PyBUF_CONTIG };

/* What arrays hold, and the size of an item, 0 for any. The size is looked at and not the letter: to
 * have numpy spell it costs a small call a tenth of its time. */
typedef enum { WHOLE, SMALL, REAL, FLAG, WORD, SLOT } Kind;
static const struct {
    const char *name;
    Py_ssize_t size;
} KINDS[] = {{"int64", 8}, {"int32", 4}, {"float64", 8}, {"bool", 1}, {"any", 8}, {"any", 0}};

/* The memory of an array of `count` items or more of a kind, in C's order; NULL with an error set
 * otherwise. */
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
    return b->buf ? b->buf : (void *)b; /* no items: any address will do */
}

/* Ids: `count` of them or more. */
static Text lease_text(Lease *lease, PyObject *ids, int64_t count) {
    Text *text = &lease->texts[lease->ids];
    if (lease->failed || text_acquire(ids, text)) return lease_fail(lease), (Text){0};
    lease->ids++;
    lease_check(lease, text->length >= count, "the rows of the queries are not all there");
    return *text;
}

/* Memory for `count` items, and zeros if asked for. */
static void *lease_room(Lease *lease, int64_t count, size_t size, int zeros) {
    if (lease->failed) return NULL;
    size_t bytes = ((size_t)count + 1) * size;
    void *room = zeros ? calloc(bytes, 1) : malloc(bytes);
    if (!room) return PyErr_NoMemory(), lease_fail(lease);
    return lease->rooms[lease->made++] = room;
}

/* Slots of a hash table: a row counted from 1, or 0; of two bytes where no list is longer. */
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
    lease_check(lease, size == 2 || size == 4, "expected slots of 2 or 4 bytes");
    slots.narrow = size == 2;
    return slots;
}

/* Whether first to last is a range of queries at all; asked before start[last] is read. */
static int is_range(long long first, long long last) {
    int ok = first >= 0 && first <= last && last < INT64_MAX / 16;
    if (!ok) PyErr_SetString(PyExc_ValueError, "that is no range of queries");
    return ok;
}

/* Where so many queries begin among items, or below 0 all there are; and how many items these are.
 * Starts begin at 0 or later and never fall. */
static const int64_t *lease_starts(Lease *lease, PyObject *array, int64_t queries, int64_t *items) {
    const int64_t *start = lease_array(lease, array, WHOLE, queries < 0 ? 1 : queries + 1, READ);
    *items = 0;
    if (!start) return NULL;
    if (queries < 0) queries = lease->items - 1;
    int ok = start[0] >= 0;
    for (int64_t q = 0; q < queries; q++) ok &= start[q] <= start[q + 1];
    if (!lease_check(lease, ok, "the starts of the queries do not ascend from 0")) return NULL;
    *items = start[queries];
    return start;
}

/* The length of the longest list of first to last. */
static int64_t longest_of(const int64_t *start, int64_t first, int64_t last) {
    int64_t most = 0;
    for (int64_t q = first; q < last; q++)
        if (start[q + 1] - start[q] > most) most = start[q + 1] - start[q];
    return most;
}

/* Tables over lists: each has room for its rows, of a power of two slots. */
static Slots lease_tables(Lease *lease, PyObject *slot_start_, PyObject *slots_, const int64_t *start,
                          int64_t queries, int access, const int64_t **slot_start) {
    int64_t items;
    *slot_start = lease_starts(lease, slot_start_, queries, &items);
    int ok = 1;
    for (int64_t q = 0; q < queries && !lease->failed; q++) {
        int64_t rows = start[q + 1] - start[q], slots = (*slot_start)[q + 1] - (*slot_start)[q];
        ok &= rows < INT32_MAX && !(slots & (slots - 1)) && (rows == 0 || slots > rows);
    }
    lease_check(lease, ok, "the slots of the queries do not hold their rows");
    return lease_slots(lease, slots_, items, access);
}

/* ----------------------------------------------------------------------------- unfit ids */

#define EACH_BYTE(x) (0x0101010101010101u * (x))

/* The highest bit of some byte is set where one of eight may be a control character: below the
 * blank, DEL, or part of a character past ASCII. Where the lowest that is set is not of the text,
 * none is. */
static inline uint64_t suspicious(uint64_t word) {
    uint64_t low = (word - EACH_BYTE(0x20)) & ~word;
    return (low | word | (word + EACH_BYTE(0x01))) & EACH_BYTE(0x80);
}

static int holds_control(const unsigned char *s, size_t length) {
    for (const unsigned char *end = s + length; s < end; s++)
        if (*s < ' ' || *s == 0x7F || (*s == 0xC2 && s + 1 < end && s[1] < 0xA0)) return 1;
    return 0;
}

/* Blanks for the bytes of the two words of a view that are not of a text of so many bytes. */
static const uint64_t BLANKS[INLINE + 1][2] = {
#define REST(n) (EACH_BYTE(0x20) << (8 * (n)))
    {REST(0), REST(0)}, {REST(1), REST(0)}, {REST(2), REST(0)}, {REST(3), REST(0)},
    {REST(4), REST(0)}, {REST(5), REST(0)}, {REST(6), REST(0)}, {REST(7), REST(0)},
    {0, REST(0)},       {0, REST(1)},       {0, REST(2)},       {0, REST(3)},
    {0, REST(4)},
#undef REST
};

static int is_unfit(const Text *t, const View *v) {
    uint32_t n = view_length(v);
    return !n || holds_control((const unsigned char *)text_at(t, v), n);
}

/* Not 0 where a text may be unfit; 0 for most that are fit, in a few steps and without a branch
 * where it is short. */
static inline uint64_t maybe_unfit(const Text *t, const View *v) {
    uint32_t n = view_length(v);
    if (n <= INLINE) { /* bytes past the text are zero, and made blanks */
        uint64_t first = (v->low >> 32 | v->high << 32) | BLANKS[n][0];
        uint64_t last = v->high >> 32 | BLANKS[n][1];
        return suspicious(first) | suspicious(last) | !n;
    }
    const char *at = text_at(t, v), *end = at + n;
    uint64_t word, flags;
    memcpy(&word, end - 8, 8); /* which overlaps the word before */
    for (flags = suspicious(word); end - at > 8; at += 8) {
        memcpy(&word, at, 8);
        flags |= suspicious(word);
    }
    return flags;
}
