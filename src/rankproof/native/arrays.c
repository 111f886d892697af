/* Arrays as numpy lends them, checked before they are read; ids that no file may hold. A part of _native.c. */

/* ------------------------------------------------------------------- arrays from numpy */

typedef struct {
    Py_buffer buffers[20];
    int count;
} Lease;

static void lease_end(Lease *lease) {
    for (int i = 0; i < lease->count; i++) PyBuffer_Release(&lease->buffers[i]);
    lease->count = 0;
}

/* What a function gives that wrote into its arrays: None, or NULL where an error is set. */
static PyObject *lease_close(Lease *lease, int done) {
    lease_end(lease);
    return done ? Py_NewRef(Py_None) : NULL;
}

enum { READ = PyBUF_CONTIG_RO, WRITE = PyBUF_CONTIG };

/* The memory of an array of `count` items or more, each of `size` bytes, or any for 0; NULL with an
 * error set otherwise. */
static void *lease_array(Lease *lease, PyObject *array, size_t size, long long count, int access) {
    Py_buffer *b = &lease->buffers[lease->count];
    if (PyObject_GetBuffer(array, b, access)) return NULL;
    lease->count++;
    if ((size && (size_t)b->itemsize != size) || b->len / b->itemsize < count) {
        size_t each = size ? size : (size_t)b->itemsize;
        PyErr_Format(PyExc_ValueError, "expected %lld items of %zu bytes or more", count, each);
        return NULL;
    }
    return b->buf ? b->buf : (void *)b; /* no items: any address will do */
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
    Slots slots = {lease_array(lease, array, 0, count, access), 0};
    if (!slots.items) return slots;
    Py_ssize_t size = lease->buffers[lease->count - 1].itemsize;
    if (size != 2 && size != 4) {
        PyErr_SetString(PyExc_ValueError, "expected slots of 2 or 4 bytes");
        slots.items = NULL;
    }
    slots.narrow = size == 2;
    return slots;
}

/* Whether first to last is a range of queries at all; asked before start[last] is read. */
static int is_range(long long first, long long last) {
    int ok = first >= 0 && first <= last && last < INT64_MAX / 16;
    if (!ok) PyErr_SetString(PyExc_ValueError, "that is no range of queries");
    return ok;
}

/* Whether starts begin at 0 or later and never fall. */
static int ascends(const int64_t *start, int64_t queries) {
    int ok = start[0] >= 0;
    for (int64_t q = 0; q < queries; q++) ok &= start[q] <= start[q + 1];
    if (!ok) PyErr_SetString(PyExc_ValueError, "the starts of the queries do not ascend from 0");
    return ok;
}

/* Queries up to `last` own items [.., start[last]) of something that has `count` of them. */
static int fits(const int64_t *start, long long last, int64_t count) {
    int ok = start[last] <= count;
    if (!ok) PyErr_SetString(PyExc_ValueError, "the rows of the queries are not all there");
    return ok;
}

/* Whether each query has a table that its rows leave room in, of a power of two slots. */
static int has_room(const int64_t *start, const int64_t *slot_start, int64_t queries) {
    int ok = 1;
    for (int64_t q = 0; q < queries; q++) {
        int64_t rows = start[q + 1] - start[q], slots = slot_start[q + 1] - slot_start[q];
        ok &= rows < INT32_MAX && !(slots & (slots - 1)) && (rows == 0 || slots > rows);
    }
    if (!ok) PyErr_SetString(PyExc_ValueError, "the slots of the queries do not hold their rows");
    return ok;
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
