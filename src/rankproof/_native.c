/* The inner loops that numpy and polars cannot express: reading TREC lines, finding a
 * document in its query's list, and sorting each query's list; and dicts of Python's.
 *
 * Everything here has a second implementation in polars and numpy (kernels.py, records/trec.py)
 * that runs when this file was not compiled; the tests hold the two to the same results.
 *
 * Text columns travel as Arrow "string view" arrays through the Arrow C data interface, which
 * polars exports and imports without copying. A view is 16 bytes: the length, then either the
 * text itself (up to 12 bytes, zero-padded) or its first 4 bytes, a buffer number and an offset.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef _WIN32
#include <io.h>
#include <windows.h>
#else
#include <sched.h>
#include <unistd.h>
#endif
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "string views are read as little-endian words; build without this file"
#endif

/* ------------------------------------------------------------------ Arrow C data interface */

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

typedef struct {
    uint64_t low;  /* length and the first four bytes */
    uint64_t high; /* the next eight bytes, or buffer number and offset */
} View;

#define INLINE 12

static inline uint32_t view_length(const View *v) { return (uint32_t)v->low; }

/* Text columns shorter than 2^31 bytes per buffer; a new buffer is begun before that. */
#define BUFFER_LIMIT ((size_t)1 << 30)

/* A borrowed string-view column: one chunk, no nulls. */
typedef struct {
    struct ArrowArray array;
    const View *views;
    const char **data;
    int64_t length;
} Text;

static inline const char *text_at(const Text *t, const View *v) {
    if (view_length(v) <= INLINE) return (const char *)v + 4;
    return t->data[(uint32_t)v->high] + (uint32_t)(v->high >> 32);
}

static void text_release(Text *t) {
    if (t->array.release) t->array.release(&t->array);
    t->array.release = NULL;
}

static int strings_lend(PyObject *object, Text *out);

/* Takes Strings, or the single chunk of a polars Series; sets a Python error and returns -1
 * otherwise. */
static int text_acquire(PyObject *series, Text *out) {
    memset(out, 0, sizeof *out);
    if (strings_lend(series, out)) return 0;
    PyObject *capsule = PyObject_CallMethod(series, "__arrow_c_stream__", NULL);
    if (!capsule) return -1;
    struct ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (!stream) {
        Py_DECREF(capsule);
        return -1;
    }
    struct ArrowSchema schema = {0};
    int ok = stream->get_schema(stream, &schema) == 0;
    int is_view = ok && strcmp(schema.format, "vu") == 0;
    if (ok && schema.release) schema.release(&schema);
    if (!is_view) {
        PyErr_SetString(PyExc_TypeError, "expected a column of string views");
        Py_DECREF(capsule);
        return -1;
    }
    struct ArrowArray next = {0};
    const char *problem = NULL;
    int failed;
    while (!(failed = stream->get_next(stream, &next)) && next.release) {
        if (next.length && !out->array.release && next.null_count <= 0) {
            out->array = next;
        } else {
            if (next.length) problem = "expected a column in one chunk, without nulls";
            next.release(&next);
        }
        memset(&next, 0, sizeof next);
    }
    if (failed) problem = "the column could not be exported";
    Py_DECREF(capsule);
    if (problem) {
        text_release(out);
        PyErr_SetString(PyExc_ValueError, problem);
        return -1;
    }
    if (out->array.release) {
        out->views = (const View *)out->array.buffers[1] + out->array.offset;
        out->data = (const char **)out->array.buffers + 2;
        out->length = out->array.length;
    }
    return 0;
}

/* --------------------------------------------------------------- memory lent to numpy */

typedef struct {
    PyObject_HEAD
    void *data;
    Py_ssize_t size;
} Block;

static PyTypeObject *block_type;

static int block_getbuffer(PyObject *self, Py_buffer *view, int flags) {
    Block *block = (Block *)self;
    return PyBuffer_FillInfo(view, self, block->data, block->size, 0, flags);
}

static void block_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    free(((Block *)self)->data);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyType_Slot block_slots[] = {
    {Py_tp_dealloc, block_dealloc},
    {Py_bf_getbuffer, block_getbuffer},
    {0, NULL},
};

static PyType_Spec block_spec = {
    "rankproof._native.Block", sizeof(Block), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, block_slots};

/* Takes over malloc'd memory. */
static PyObject *block_new(void *data, size_t size) {
    allocfunc alloc = (allocfunc)PyType_GetSlot(block_type, Py_tp_alloc);
    Block *block = (Block *)alloc(block_type, 0);
    if (!block) {
        free(data);
        return NULL;
    }
    block->data = data;
    block->size = (Py_ssize_t)size;
    return (PyObject *)block;
}

/* ------------------------------------------------------------------ a column of strings */

/* A string-view column being built; ids over 12 bytes are copied to the arena. */
typedef struct {
    View *views;
    size_t length, room;
    char **arenas;
    int64_t *arena_sizes;
    size_t arena_count, arena_room;
    uint32_t first_arena; /* its number, where other columns' come before */
} Column;

static void column_free(Column *c) {
    free(c->views);
    for (size_t i = 0; i < c->arena_count; i++) free(c->arenas[i]);
    free(c->arenas);
    free(c->arena_sizes);
    memset(c, 0, sizeof *c);
}

/* Room for `length` more bytes in the last arena, or in a new one: -1 when out of memory. */
static int column_reserve(Column *c, size_t length) {
    size_t used = c->arena_count ? (size_t)c->arena_sizes[c->arena_count - 1] : 0;
    if (c->arena_count && used + length <= c->arena_room) return 0;
    if (c->arena_count && used + length <= BUFFER_LIMIT) {
        size_t room = c->arena_room * 2;
        if (room < used + length) room = used + length;
        char *grown = realloc(c->arenas[c->arena_count - 1], room);
        if (!grown) return -1;
        c->arenas[c->arena_count - 1] = grown;
        c->arena_room = room;
        return 0;
    }
    size_t count = c->arena_count + 1;
    char **arenas = realloc(c->arenas, count * sizeof *arenas);
    if (!arenas) return -1;
    c->arenas = arenas;
    int64_t *sizes = realloc(c->arena_sizes, count * sizeof *sizes);
    if (!sizes) return -1;
    c->arena_sizes = sizes;
    size_t room = length > (1 << 20) ? length : (1 << 20);
    arenas[count - 1] = malloc(room);
    if (!arenas[count - 1]) return -1;
    sizes[count - 1] = 0;
    c->arena_room = room;
    c->arena_count = count;
    return 0;
}

/* The view of up to 12 bytes of text. Where 16 may be read, two loads and a mask make it, which
 * is faster than copying a varying number of bytes. */
static inline View short_view(const char *text, size_t length, const char *end) {
    uint64_t a = 0, b = 0;
    if (end - text >= 16) {
        memcpy(&a, text, 8);
        memcpy(&b, text + 8, 8);
        if (length < 8) {
            a &= ((uint64_t)1 << (8 * length)) - 1;
            b = 0;
        } else {
            b &= ((uint64_t)1 << (8 * (length - 8))) - 1;
        }
    } else {
        memcpy(&a, text, length < 8 ? length : 8);
        if (length > 8) memcpy(&b, text + 8, length - 8);
    }
    View v = {(uint64_t)length | a << 32, a >> 32 | b << 32};
    return v;
}

/* A system that can fills much memory in large pages, each asked for once. */
static void *in_large_pages(void *memory, size_t size) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = (uintptr_t)1 << 21;
    uintptr_t first = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t last = ((uintptr_t)memory + size) & ~(page - 1);
    if (memory && size >= 2 * page && first < last)
        (void)madvise((void *)first, last - first, MADV_HUGEPAGE);
#else
    (void)size;
#endif
    return memory;
}

/* Room for so many strings in all: -1 when out of memory. */
static int column_widen(Column *c, size_t room) {
    if (room <= c->room) return 0;
    View *views = realloc(c->views, room * sizeof *views);
    if (!views) return -1;
    c->views = views;
    c->room = room;
    return 0;
}

/* `end` bounds what may be read after the text. */
static int column_append(Column *c, const char *text, size_t length, const char *end) {
    if (c->length == c->room) {
        if (column_widen(c, c->room ? c->room * 2 : 4096)) return -1;
    }
    if (length <= INLINE) {
        c->views[c->length++] = short_view(text, length, end);
        return 0;
    }
    if (length > INT32_MAX || column_reserve(c, length)) return -1;
    uint32_t arena = (uint32_t)c->arena_count - 1, prefix;
    uint64_t offset = (uint64_t)c->arena_sizes[arena];
    memcpy(c->arenas[arena] + offset, text, length);
    memcpy(&prefix, text, 4);
    c->arena_sizes[arena] += (int64_t)length;
    uint64_t number = c->first_arena + arena;
    View v = {(uint64_t)length | (uint64_t)prefix << 32, number | offset << 32};
    c->views[c->length++] = v;
    return 0;
}

/* A finished column, held by Python, by polars, and by columns gathered from it. The memory is
 * plain malloc, so that whoever drops the last reference needs no interpreter to free it. */
typedef struct Shared {
    long references;
    Column column;
    struct Shared *owner; /* of the arenas, where they are not the column's own */
} Shared;

#if defined(_MSC_VER)
#include <intrin.h>
#define ONE_MORE(count) _InterlockedIncrement(count)
#define ONE_LESS(count) _InterlockedDecrement(count)
#else
#define ONE_MORE(count) __atomic_add_fetch(count, 1, __ATOMIC_RELAXED)
#define ONE_LESS(count) __atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL)
#endif

static void shared_release(Shared *s) {
    if (!s || ONE_LESS(&s->references)) return;
    column_free(&s->column);
    shared_release(s->owner);
    free(s);
}

static const Column *shared_arenas(const Shared *s) {
    return s->owner ? &s->owner->column : &s->column;
}

typedef struct {
    PyObject_HEAD
    Shared *shared;
} Strings;

static PyTypeObject *strings_type;

static int strings_lend(PyObject *object, Text *out) {
    if (Py_TYPE(object) != strings_type) return 0;
    const Shared *s = ((Strings *)object)->shared;
    out->views = s->column.views;
    out->data = (const char **)shared_arenas(s)->arenas;
    out->length = (int64_t)s->column.length;
    return 1;
}

/* Moves the column into a Strings. */
static PyObject *strings_new(Column *column, Shared *owner) {
    Shared *shared = malloc(sizeof *shared);
    allocfunc alloc = (allocfunc)PyType_GetSlot(strings_type, Py_tp_alloc);
    Strings *made = shared ? (Strings *)alloc(strings_type, 0) : NULL;
    if (!made) {
        free(shared);
        return PyErr_NoMemory();
    }
    *shared = (Shared){1, *column, owner};
    if (owner) ONE_MORE(&owner->references);
    memset(column, 0, sizeof *column);
    made->shared = shared;
    return (PyObject *)made;
}

static void strings_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    shared_release(((Strings *)self)->shared);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static Py_ssize_t strings_length(PyObject *self) {
    return (Py_ssize_t)((Strings *)self)->shared->column.length;
}

static PyObject *strings_item(PyObject *self, Py_ssize_t at) {
    Text t = {0};
    strings_lend(self, &t);
    if (at < 0 || at >= t.length) {
        PyErr_SetString(PyExc_IndexError, "no such row");
        return NULL;
    }
    return PyUnicode_FromStringAndSize(text_at(&t, &t.views[at]), view_length(&t.views[at]));
}

static void exported_schema_release(struct ArrowSchema *schema) { schema->release = NULL; }

static void exported_array_release(struct ArrowArray *array) {
    shared_release(array->private_data);
    free((void *)array->buffers);
    array->release = NULL;
}

static void schema_capsule_free(PyObject *capsule) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema->release) schema->release(schema);
    free(schema);
}

static void array_capsule_free(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array->release) array->release(array);
    free(array);
}

/* A pair of Arrow capsules that share the column's memory. */
static PyObject *strings_export(PyObject *self, PyObject *args, PyObject *kwargs) {
    (void)args; /* a schema that is asked for: there is this one */
    (void)kwargs;
    Shared *shared = ((Strings *)self)->shared;
    const Column *arenas = shared_arenas(shared);
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    struct ArrowArray *array = calloc(1, sizeof *array);
    const void **buffers = calloc(arenas->arena_count + 3, sizeof *buffers);
    if (!schema || !array || !buffers) {
        free(schema);
        free(array);
        free((void *)buffers);
        return PyErr_NoMemory();
    }
    ONE_MORE(&shared->references);
    buffers[1] = shared->column.views;
    for (size_t i = 0; i < arenas->arena_count; i++) buffers[2 + i] = arenas->arenas[i];
    buffers[2 + arenas->arena_count] = arenas->arena_sizes;
    schema->format = "vu";
    schema->name = "";
    schema->release = exported_schema_release;
    array->length = (int64_t)shared->column.length;
    array->n_buffers = (int64_t)arenas->arena_count + 3;
    array->buffers = buffers;
    array->release = exported_array_release;
    array->private_data = shared;
    PyObject *a = PyCapsule_New(schema, "arrow_schema", schema_capsule_free);
    if (!a) free(schema);
    PyObject *b = PyCapsule_New(array, "arrow_array", array_capsule_free);
    if (!b) {
        array->release(array);
        free(array);
    }
    PyObject *pair = a && b ? PyTuple_Pack(2, a, b) : NULL;
    Py_XDECREF(a);
    Py_XDECREF(b);
    return pair;
}

/* ------------------------------------------------------------------------------- hashing */

#if defined(__GNUC__)
#define SOON(address) __builtin_prefetch(address)
#define SOON_WRITTEN(address) __builtin_prefetch(address, 1)
#else
#define SOON(address) ((void)(address))
#define SOON_WRITTEN(address) ((void)(address))
#endif

static inline uint64_t mix(uint64_t a, uint64_t b) {
    a = (a ^ 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    a ^= a >> 29;
    a = (a ^ b) * 0x94D049BB133111EBu;
    return a ^ (a >> 32);
}

static inline uint64_t hash_bytes(const char *text, size_t length) {
    uint64_t h = length, word;
    while (length >= 8) {
        memcpy(&word, text, 8);
        h = mix(h, word);
        text += 8;
        length -= 8;
    }
    word = 0;
    memcpy(&word, text, length);
    return mix(h, word);
}

static inline uint64_t hash_view(const Text *t, const View *v) {
    uint32_t length = view_length(v);
    return length <= INLINE ? mix(v->low, v->high) : hash_bytes(text_at(t, v), length);
}

static inline int same_text(const Text *t, const View *a, const Text *u, const View *b) {
    if (a->low != b->low) return 0;
    if (view_length(a) <= INLINE) return a->high == b->high;
    return memcmp(text_at(t, a), text_at(u, b), view_length(a)) == 0;
}

/* --------------------------------------------------------------------------- TREC parser */

enum { GOOD, MALFORMED, NO_MEMORY, TOO_LONG, UNREAD };

/* Reads pieces of a file one after the other, for itself alone. */
typedef struct {
    int columns;    /* 6 for a run, 4 for qrels */
    Column queries; /* distinct, in order of appearance */
    int64_t *met;   /* one per query: the row that named it first */
    size_t met_room;
    int32_t *slots; /* hash table over `queries`: code + 1, or 0 */
    size_t slot_count;
    int32_t last;   /* code of the row before, -1 at the start */
    int busy;
    int odd;        /* whether a number is not below 2^53 in size, or a grade not whole */
    char *buffer;   /* of a file, for the piece that is read */
    size_t buffer_size;
    int64_t first;  /* row at which the piece begins */
    Column docs;    /* of the piece; room for all of its lines */
    int32_t *codes; /* one per row: which query */
    double *values; /* one per row: score or grade */
} Reader;

static Text column_text(const Column *c) {
    Text t = {0};
    t.views = c->views;
    t.data = (const char **)c->arenas;
    t.length = (int64_t)c->length;
    return t;
}

static int reader_grow_slots(Reader *p) {
    size_t count = p->slot_count ? p->slot_count * 2 : 1024;
    int32_t *slots = calloc(count, sizeof *slots);
    if (!slots) return NO_MEMORY;
    Text t = column_text(&p->queries);
    for (size_t code = 0; code < p->queries.length; code++) {
        const View *v = &t.views[code];
        size_t slot = hash_view(&t, v) & (count - 1);
        while (slots[slot]) slot = (slot + 1) & (count - 1);
        slots[slot] = (int32_t)code + 1;
    }
    free(p->slots);
    p->slots = slots;
    p->slot_count = count;
    return GOOD;
}

/* Whether a query is this text; `key` is its view where it is short. */
static inline int reader_is_query(const Reader *p, int32_t code, View key, const char *text,
                                  size_t n) {
    const View *v = &p->queries.views[code];
    if (n <= INLINE) return v->low == key.low && v->high == key.high;
    Text t = column_text(&p->queries);
    return view_length(v) == n && memcmp(text_at(&t, v), text, n) == 0;
}

/* The code of a query id, new or known; negative when out of memory. */
static int32_t reader_code(Reader *p, const char *text, size_t n, const char *end) {
    View key = n <= INLINE ? short_view(text, n, end) : (View){0, 0};
    if (p->last >= 0 && reader_is_query(p, p->last, key, text, n)) return p->last;
    /* Sparse as long as it stays in a cache: a slot that another has costs more than an empty one. */
    size_t least = p->queries.length * (p->slot_count < 1 << 16 ? 8 : 2);
    if (least >= p->slot_count && reader_grow_slots(p)) return -1;
    uint64_t hash = n <= INLINE ? mix(key.low, key.high) : hash_bytes(text, n);
    size_t slot = hash & (p->slot_count - 1);
    while (p->slots[slot]) {
        int32_t code = p->slots[slot] - 1;
        if (reader_is_query(p, code, key, text, n)) return p->last = code;
        slot = (slot + 1) & (p->slot_count - 1);
    }
    if (p->queries.length == p->met_room) {
        size_t room = p->met_room ? p->met_room * 2 : 64;
        int64_t *met = realloc(p->met, room * sizeof *met);
        if (!met) return -1;
        p->met = met;
        p->met_room = room;
    }
    if (p->queries.length >= INT32_MAX - 1 || column_append(&p->queries, text, n, end))
        return -1;
    p->last = (int32_t)p->queries.length - 1;
    p->met[p->last] = p->first + (int64_t)p->docs.length;
    p->slots[slot] = p->last + 1;
    return p->last;
}

static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Longer ones are left to the general reader. */
#define NUMBER_LIMIT 64

static int slow_number(const char *text, size_t length, double *out) {
    char copy[NUMBER_LIMIT];
    memcpy(copy, text, length);
    copy[length] = 0;
    PyGILState_STATE state = PyGILState_Ensure();
    char *end = NULL;
    double value = PyOS_string_to_double(copy, &end, NULL);
    int bad = PyErr_Occurred() != NULL || end != copy + length || isnan(value);
    PyErr_Clear();
    PyGILState_Release(state);
    *out = value;
    return bad ? MALFORMED : GOOD;
}

/* The value of the digits at s, eight at most, and how many they are; 8 bytes may be read. */
static inline int eight_digits(const char *s, uint64_t *value) {
    uint64_t x;
    memcpy(&x, s, 8);
    x ^= 0x3030303030303030u; /* which leaves 0 to 9 of a digit */
    uint64_t other = ((x + 0x7676767676767676u) | x) & 0x8080808080808080u;
    int count = 8;
#if defined(__GNUC__)
    if (other) count = __builtin_ctzll(other) >> 3;
#else
    for (count = 0; count < 8 && !(other >> (8 * count) & 0x80);) count++;
#endif
    if (!count) return 0;
    x <<= 64 - 8 * count; /* zeros before them; then pairs, fours and all of them in one step each */
    x = (x * (10 << 8 | 1)) >> 8 & 0x00FF00FF00FF00FFu;
    x = (x * (100 << 16 | 1)) >> 16 & 0x0000FFFF0000FFFFu;
    *value = (x * ((uint64_t)10000 << 32 | 1)) >> 32;
    return count;
}

/* mantissa · 10^exponent, correctly rounded. Short numbers are one exact operation (Clinger); up
 * to 19 digits go through the 64-bit significand of an x87 long double unless that lands close to
 * halfway between two doubles: GOOD, or MALFORMED where this is not the way. */
static inline int scaled(uint64_t mantissa, int exponent, double *out) {
    if (mantissa == 0) {
        *out = 0.0;
        return GOOD;
    }
    if (mantissa <= ((uint64_t)1 << 53) && exponent >= -22 && exponent <= 22) {
        *out = exponent < 0 ? (double)mantissa / TENS[-exponent]
                            : (double)mantissa * TENS[exponent];
        return GOOD;
    }
#if LDBL_MANT_DIG == 64
    int size = exponent < 0 ? -exponent : exponent;
    if (size > 27) return MALFORMED;
    long double power = (long double)TENS[size > 22 ? 22 : size];
    for (int i = 22; i < size; i++) power *= 10.0L;
    long double wide = exponent < 0 ? (long double)mantissa / power
                                    : (long double)mantissa * power;
    uint64_t significand;
    memcpy(&significand, &wide, 8);
    unsigned below = (unsigned)(significand & 0x7FF);
    if (below >= 0x3FF && below <= 0x401) return MALFORMED;
    *out = (double)wide;
    return GOOD;
#else
    return MALFORMED;
#endif
}

/* Any number; what cannot be told in one step, and inf, takes Python's own conversion. */
static int any_number(const char *text, size_t length, double *out) {
    if (length >= NUMBER_LIMIT) return MALFORMED; /* so that no count below can overflow */
    const char *s = text, *end = text + length;
    int negative = 0;
    if (s < end && (*s == '-' || *s == '+')) negative = *s++ == '-';
    uint64_t mantissa = 0;
    int exponent = 0;
    const char *begin = s;
    while (s < end && *s == '0') s++; /* digits count from the first that is not zero */
    const char *whole = s;
    for (; s < end && (unsigned char)(*s - '0') < 10; s++)
        mantissa = mantissa * 10 + (uint64_t)(*s - '0');
    int64_t digits = s - whole, seen = s - begin;
    if (s < end && *s == '.') {
        const char *fraction = ++s;
        while (!digits && s < end && *s == '0') s++;
        whole = s;
        for (; s < end && (unsigned char)(*s - '0') < 10; s++)
            mantissa = mantissa * 10 + (uint64_t)(*s - '0');
        digits += s - whole;
        seen += s - fraction;
        exponent = -(int)(s - fraction);
    }
    if (!seen || digits > 19) return slow_number(text, length, out); /* 19 fit into 64 bits */
    if (s < end && (*s == 'e' || *s == 'E')) {
        s++;
        int sign = 1, power = 0;
        if (s < end && (*s == '-' || *s == '+')) sign = *s++ == '-' ? -1 : 1;
        if (s == end) return MALFORMED;
        for (; s < end && (unsigned char)(*s - '0') < 10 && power < 10000; s++)
            power = power * 10 + (*s - '0');
        exponent += sign * power;
    }
    double value;
    if (s != end || scaled(mantissa, exponent, &value)) return slow_number(text, length, out);
    *out = negative ? -value : value;
    return GOOD;
}

/* A number. Most are up to seven digits and a fraction of up to sixteen, which are read eight at a
 * time; `limit` bounds what may be read after the text. */
static inline int number(const char *text, size_t length, const char *limit, double *out) {
    static const uint64_t SHIFT[] = {1,      10,      100,      1000,     10000,
                                     100000, 1000000, 10000000, 100000000};
    const char *s = text, *end = text + length;
    int negative = *s == '-';
    s += negative;
    uint64_t whole = 0, first = 0, second = 0;
    if (limit - text < 40) return any_number(text, length, out);
    int before = eight_digits(s, &whole), after = 0, more = 0;
    s += before;
    if (*s == '.') {
        after = eight_digits(++s, &first);
        s += after;
        if (after == 8) more = eight_digits(s, &second);
        s += more;
    }
    /* So the digits are 19 at most, and fit into 64 bits. */
    if (s != end || before > (more ? 3 : 7) || !(before + after))
        return any_number(text, length, out);
    double value;
    uint64_t mantissa = (whole * SHIFT[after] + first) * SHIFT[more] + second;
    if (scaled(mantissa, -after - more, &value)) return slow_number(text, length, out);
    *out = negative ? -value : value;
    return GOOD;
}

static inline int is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* A row of a line's fields, of which field k stands at text[k]. */
static inline int reader_row(Reader *p, const char *const *text, const size_t *length,
                             const char *end) {
    int value_at = p->columns == 6 ? 4 : 3;
    size_t row = p->docs.length;
    int status = number(text[value_at], length[value_at], end, &p->values[row]);
    if (status) return status;
    double value = p->values[row];
    if (!(fabs(value) < 0x1p53)) p->odd = 1;
    else if (p->columns == 4 && (double)(int64_t)value != value) p->odd = 1;
    int32_t code = reader_code(p, text[0], length[0], end);
    if (code < 0) return NO_MEMORY;
    p->codes[row] = code;
    return column_append(&p->docs, text[2], length[2], end) ? NO_MEMORY : GOOD;
}

/* Reads the line at *cursor, whatever it is like, and moves the cursor past it. */
static int reader_line(Reader *p, const char **cursor, const char *end) {
    const char *field[6];
    size_t length[6];
    const char *s = *cursor;
    int count = 0;
    for (;;) {
        while (s < end && is_blank(*s)) s++;
        if (s == end || *s == '\n') break;
        if (count == 0 && *s == '#') {
            const char *stop = memchr(s, '\n', (size_t)(end - s));
            s = stop ? stop : end;
            break;
        }
        if (count == p->columns) return MALFORMED; /* also at a control character, never passed */
        field[count] = s;
        while (s < end && (unsigned char)*s > ' ') s++;
        length[count] = (size_t)(s - field[count]);
        count++;
    }
    *cursor = s == end ? s : s + 1;
    if (count == 0) return GOOD;
    if (count != p->columns) return MALFORMED;
    return reader_row(p, field, length, end);
}

/* Bytes looked at before their lines are read, so that what was found stays in the cache. */
#define PIECE 4096

/* Where the blanks and other characters below 0x21 stand among so many bytes, at most PIECE. */
static size_t find_ends(const char *s, size_t length, uint16_t *at) {
    uint16_t *found = at;
    size_t i = 0;
#if defined(__SSE2__)
    const __m128i blank = _mm_set1_epi8(' ');
    for (; i + 64 <= length; i += 64) {
        uint64_t mask = 0;
        for (int part = 0; part < 4; part++) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(s + i + 16 * part));
            __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, blank), bytes);
            mask |= (uint64_t)(uint32_t)_mm_movemask_epi8(low) << (16 * part);
        }
        for (; mask; mask &= mask - 1) *found++ = (uint16_t)(i + (size_t)__builtin_ctzll(mask));
    }
#elif defined(__GNUC__)
    for (; i + 8 <= length; i += 8) {
        uint64_t word;
        memcpy(&word, s + i, 8);
        /* What is 0x21 or more sets the highest bit of its byte, and carries into no other. */
        uint64_t high = ((word & 0x7F7F7F7F7F7F7F7Fu) + 0x5F5F5F5F5F5F5F5Fu) | word;
        for (uint64_t mask = ~high & 0x8080808080808080u; mask; mask &= mask - 1)
            *found++ = (uint16_t)(i + ((size_t)__builtin_ctzll(mask) >> 3));
    }
#endif
    for (; i < length; i++)
        if ((unsigned char)s[i] <= ' ') *found++ = (uint16_t)i;
    return (size_t)(found - at);
}

/* Reads whole lines. Where one blank stands between fields, and nothing else at the ends of the
 * line, where the fields end says all; other lines are read one character after the other. */
static int reader_lines(Reader *p, const char *s, const char *end) {
    uint16_t at[PIECE + 8];
    int columns = p->columns, status = GOOD;
    while (s < end && status == GOOD) {
        const char *piece = s;
        size_t length = (size_t)(end - s) < PIECE ? (size_t)(end - s) : PIECE;
        size_t count = find_ends(s, length, at), next = 0;
        while (next + (size_t)columns <= count && status == GOOD) {
            const char *field[6];
            size_t width[6];
            const char *begin = s;
            size_t line = next;
            int plain = *s != '#';
            for (int k = 0; k < columns; k++) {
                const char *stop = piece + at[next + (size_t)k];
                plain &= stop > begin && (k == columns - 1 || *stop == ' ' || *stop == '\t');
                field[k] = begin;
                width[k] = (size_t)(stop - begin);
                begin = stop + 1;
            }
            next += (size_t)columns;
            if (begin[-1] == '\r' && next < count && piece + at[next] == begin) {
                next++;
                begin++;
            }
            if (plain && begin[-1] == '\n') {
                s = begin;
                status = reader_row(p, field, width, end);
            } else {
                status = reader_line(p, &s, end);
                for (next = line; next < count && piece + at[next] < s;) next++;
            }
        }
        if (s == piece) status = reader_line(p, &s, end); /* longer than a piece, or the last */
    }
    return status;
}

/* Whether the bytes are UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF; and no
 * control characters from DEL to U+009F. Those below the blank are met by whoever reads fields. */
static int is_plain(const unsigned char *s, const unsigned char *end) {
    while (s < end) {
        uint64_t word;
        /* One more than DEL sets the highest bit, as every byte of other characters has it. Many
         * at a time, without a branch, as a compiler makes vectors of. */
        while (end - s >= 64) {
            uint64_t words[8], flags = 0;
            memcpy(words, s, 64);
            for (int i = 0; i < 8; i++) flags |= words[i] | (words[i] + 0x0101010101010101u);
            if (flags & 0x8080808080808080u) break;
            s += 64;
        }
        while (end - s >= 8 && (memcpy(&word, s, 8),
                                !((word | (word + 0x0101010101010101u)) & 0x8080808080808080u)))
            s += 8;
        if (s == end) break;
        unsigned char lead = *s++;
        if (lead < 0x7F) continue;
        if (lead == 0x7F || (lead == 0xC2 && s < end && *s < 0xA0)) return 0;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - s < more) return 0;
        unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (*s < low || *s > high) return 0;
        for (s++; more > 1; more--, s++)
            if ((*s & 0xC0) != 0x80) return 0;
    }
    return 1;
}

/* Where the rows of a piece stand. */
typedef struct {
    size_t first, lines, rows; /* rows fill the first of its lines */
    int reader;
    char *arena; /* the text of its long ids */
    int64_t arena_size;
} Piece;

/* The rows of a file whose pieces, each of whole lines, are read by several readers at a time. A
 * piece's rows go behind as many as the pieces before it have lines, so that nothing is copied once
 * it is read. */
typedef struct {
    PyObject_HEAD
    int columns, reader_count;
    Reader *readers;
    PyThread_type_lock lock; /* of all that follows */
    Piece *pieces;
    size_t piece_count; /* that have a place: the first ones */
    size_t piece_room, expected;
    size_t taken; /* pieces of a file that a reader took */
    int reading; /* pieces at this moment */
    int stopped;
    int odd; /* as a reader's, of what was finished */
    size_t lines, room;
    View *views;
    int32_t *codes;
    double *values;
} Parser;

/* Lets others go on. */
static void parser_wait(Parser *p) {
    PyThread_release_lock(p->lock);
#ifdef _WIN32
    SwitchToThread();
#else
    sched_yield();
#endif
    PyThread_acquire_lock(p->lock, WAIT_LOCK);
}

static int parser_widen(Parser *p, size_t room) {
    View *views = realloc(p->views, room * sizeof *views);
    if (!views) return NO_MEMORY;
    p->views = in_large_pages(views, room * sizeof *views);
    int32_t *codes = realloc(p->codes, room * sizeof *codes);
    if (!codes) return NO_MEMORY;
    p->codes = in_large_pages(codes, room * sizeof *codes);
    double *values = realloc(p->values, room * sizeof *values);
    if (!values) return NO_MEMORY;
    p->values = in_large_pages(values, room * sizeof *values);
    p->room = room;
    return GOOD;
}

/* Gives the next piece its place, and room for it; the lock is held. */
static int parser_place(Parser *p, size_t lines) {
    if (p->piece_count == p->piece_room) {
        size_t count = p->piece_room ? p->piece_room * 2 : p->expected + 1;
        Piece *pieces = realloc(p->pieces, count * sizeof *pieces);
        if (!pieces) return NO_MEMORY;
        p->pieces = pieces;
        p->piece_room = count;
    }
    if (p->lines + lines > p->room) {
        while (p->reading && !p->stopped) parser_wait(p); /* nobody may write while it moves */
        if (p->stopped) return p->stopped;
        /* As many again for each piece that is to come, or twice as many as there are. */
        size_t done = p->piece_count + 1;
        double more = p->expected > done ? (double)(p->expected - done) / (double)done : 0.0;
        double guess = (double)(p->lines + lines) * (1.02 * more + 1.0);
        if (!more) guess = 2.0 * (double)p->room;
        size_t least = p->lines + lines + 64;
        size_t room = guess > (double)least && guess < 1e12 ? (size_t)guess : least;
        /* What is reserved costs nothing until it is used; where it is not to be had, less is. */
        if (parser_widen(p, room) && parser_widen(p, least)) return NO_MEMORY;
    }
    p->pieces[p->piece_count] = (Piece){.first = p->lines, .lines = lines};
    p->piece_count++;
    p->lines += lines;
    return GOOD;
}

/* Lines, the last of which may have no end. */
static size_t count_lines(const char *s, size_t size) {
    size_t lines = size && s[size - 1] != '\n', i = 0;
#if defined(__SSE2__)
    const __m128i feed = _mm_set1_epi8('\n'), zero = _mm_setzero_si128();
    while (size - i >= 16) {
        __m128i counts = zero; /* of each place in 16, up to 255 */
        for (int times = 0; times < 255 && size - i >= 16; times++, i += 16) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(s + i));
            counts = _mm_sub_epi8(counts, _mm_cmpeq_epi8(bytes, feed));
        }
        uint64_t sums[2];
        _mm_storeu_si128((__m128i *)sums, _mm_sad_epu8(counts, zero));
        lines += (size_t)(sums[0] + sums[1]);
    }
#endif
    for (; i < size; i++) lines += s[i] == '\n';
    return lines;
}

/* Reads piece `number` (the next where that is negative), whose turn comes after those before it
 * have a place. */
static int parser_read(Parser *p, Reader *r, long long number, const char *s, size_t size) {
    int status = GOOD;
    size_t lines = count_lines(s, size);
    if (!is_plain((const unsigned char *)s, (const unsigned char *)s + size)) status = MALFORMED;
    PyThread_acquire_lock(p->lock, WAIT_LOCK);
    if (number < 0) number = (long long)p->piece_count;
    while (!status && !p->stopped && p->piece_count < (size_t)number) parser_wait(p);
    if (p->stopped) status = p->stopped;
    if (!status) status = parser_place(p, lines);
    if (status) {
        p->stopped = status;
        PyThread_release_lock(p->lock);
        return status;
    }
    Piece piece = p->pieces[number];
    r->first = (int64_t)piece.first;
    r->docs = (Column){.views = p->views + piece.first, .room = lines};
    r->docs.first_arena = (uint32_t)number;
    r->codes = p->codes + piece.first;
    r->values = p->values + piece.first;
    p->reading++;
    PyThread_release_lock(p->lock);

    status = reader_lines(r, s, s + size);
    if (r->docs.arena_count) {
        piece.arena = r->docs.arenas[0];
        piece.arena_size = r->docs.arena_sizes[0];
        void *fitted = realloc(piece.arena, (size_t)piece.arena_size);
        if (fitted) piece.arena = fitted;
    }
    free(r->docs.arenas);
    free(r->docs.arena_sizes);
    piece.rows = r->docs.length;
    piece.reader = (int)(r - p->readers);
    memset(&r->docs, 0, sizeof r->docs);

    PyThread_acquire_lock(p->lock, WAIT_LOCK);
    p->pieces[number] = piece;
    p->reading--;
    if (status) p->stopped = status;
    PyThread_release_lock(p->lock);
    return status;
}

static PyObject *parser_feed(PyObject *self, PyObject *args) {
    Parser *p = (Parser *)self;
    PyObject *argument;
    long long number = -1;
    int which = 0;
    if (!PyArg_ParseTuple(args, "O|Li", &argument, &number, &which)) return NULL;
    if (which < 0 || which >= p->reader_count || number >= UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "there is no such reader or piece");
        return NULL;
    }
    Reader *r = &p->readers[which];
    if (r->busy || (number >= 0 && (size_t)number < p->piece_count)) {
        PyErr_SetString(PyExc_RuntimeError, "the reader is at work, or the piece was read before");
        return NULL;
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(argument, &buffer, PyBUF_SIMPLE)) return NULL;
    int status;
    r->busy = 1;
    Py_BEGIN_ALLOW_THREADS;
    status = parser_read(p, r, number, buffer.buf, (size_t)buffer.len);
    Py_END_ALLOW_THREADS;
    r->busy = 0;
    PyBuffer_Release(&buffer);
    if (status == NO_MEMORY) return PyErr_NoMemory();
    return PyBool_FromLong(status == GOOD);
}

/* Fills a reader's buffer from `filled` to `wanted` or further, from a file whose byte `at` is the
 * buffer's first; how far, less only at the end of the file. -1: it cannot be read. */
static int64_t reader_fill(Reader *r, int fd, int64_t at, int64_t filled, int64_t wanted) {
    while (filled < wanted) {
        int64_t room = (int64_t)r->buffer_size - filled;
#ifdef _WIN32
        if (_lseeki64(fd, at + filled, SEEK_SET) < 0) return -1;
        int64_t count = _read(fd, r->buffer + filled, room < INT32_MAX ? (unsigned)room : INT32_MAX);
#else
        int64_t count = pread(fd, r->buffer + filled, (size_t)room, (off_t)(at + filled));
#endif
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return -1;
        if (!count) break;
        filled += count;
    }
    return filled;
}

/* Where a newline stands among bytes [from, to), or -1. */
static int64_t find_feed(const char *s, int64_t from, int64_t to) {
    const char *found = from < to ? memchr(s + from, '\n', (size_t)(to - from)) : NULL;
    return found ? found - s : -1;
}

/* The lines that begin in [begin, end) of a file, whole: *first to *stop of the reader's buffer. The
 * first `bom` bytes of the file are no text; a line of more than `longest` is none. lines.py has
 * the same. */
static int reader_between(Reader *r, int fd, int64_t begin, int64_t end, int64_t bom,
                          int64_t longest, int64_t *first, int64_t *stop) {
    enum { TAIL = 1 << 12 }; /* read past the end, where the last line is likely to end */
    int64_t at = begin ? begin - 1 : 0; /* whether a line begins is said by the byte before */
    if ((int64_t)r->buffer_size < end - at + TAIL) {
        char *buffer = realloc(r->buffer, (size_t)(end - at + TAIL));
        if (!buffer) return NO_MEMORY;
        r->buffer = buffer;
        r->buffer_size = (size_t)(end - at + TAIL);
    }
    int64_t filled = reader_fill(r, fd, at, 0, end - at);
    if (filled < 0) return UNREAD;
    *first = *stop = bom < filled ? bom : filled;
    if (!filled) return GOOD; /* the file is not as long as it was */
    if (begin) {
        *first = *stop = find_feed(r->buffer, 0, filled < end - begin ? filled : end - begin) + 1;
        if (!*first) return GOOD;
    }
    int64_t last = find_feed(r->buffer, end - 1 - at, filled);
    int64_t line = end - 1 - at < filled ? end - 1 - at : filled; /* that holds the last byte */
    while (last < 0 && line > 0 && r->buffer[line - 1] != '\n') line--;
    while (last < 0) { /* it goes on */
        if (filled == (int64_t)r->buffer_size) {
            char *buffer = realloc(r->buffer, r->buffer_size * 2);
            if (!buffer) return NO_MEMORY;
            r->buffer = buffer;
            r->buffer_size *= 2;
        }
        int64_t before = filled;
        filled = reader_fill(r, fd, at, filled, filled + 1);
        if (filled < 0) return UNREAD;
        last = filled > before ? find_feed(r->buffer, before, filled) : filled - 1; /* or ends */
        if ((last < 0 ? filled : last) - line > longest) return TOO_LONG;
    }
    if (last + 1 > *first) *stop = last + 1;
    return GOOD;
}

/* fetch(fd, begin, end, bom, step, longest, reader, most) -> bytes of the file that were read, in at
 * most so many of its pieces of `step` bytes, each of whole lines; 0 where none is left. -1: a line
 * is not well formed; -2: it is longer than any. Whoever is free takes the next piece, and needs no
 * interpreter. */
static PyObject *parser_fetch(PyObject *self, PyObject *args) {
    Parser *p = (Parser *)self;
    int fd, which;
    long long begin, end, bom, step, longest, most;
    if (!PyArg_ParseTuple(args, "iLLLLLiL", &fd, &begin, &end, &bom, &step, &longest, &which, &most))
        return NULL;
    if (which < 0 || which >= p->reader_count || begin < 0 || end < begin || bom < 0 || step < 1 ||
        step > INT32_MAX || longest < 1 || (end - begin) / step >= UINT32_MAX - 1) {
        PyErr_SetString(PyExc_ValueError, "there is no such reader or piece");
        return NULL;
    }
    Reader *r = &p->readers[which];
    if (r->busy) {
        PyErr_SetString(PyExc_RuntimeError, "the reader is at work");
        return NULL;
    }
    int status = GOOD, trouble = 0;
    long long done = 0;
    r->busy = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (; most > 0 && status == GOOD; most--) {
        PyThread_acquire_lock(p->lock, WAIT_LOCK);
        long long number = (long long)p->taken, low = begin + number * step;
        if (low < end) p->taken++;
        PyThread_release_lock(p->lock);
        if (low >= end) break;
        long long high = end - low < step ? end : low + step;
        int64_t first, stop;
        status = reader_between(r, fd, low, high, bom, longest, &first, &stop);
        trouble = errno;
        if (status) {
            PyThread_acquire_lock(p->lock, WAIT_LOCK);
            if (!p->stopped) p->stopped = MALFORMED; /* nobody need wait for this piece */
            PyThread_release_lock(p->lock);
        } else {
            status = parser_read(p, r, number, r->buffer + first, (size_t)(stop - first));
        }
        done += high - low;
    }
    Py_END_ALLOW_THREADS;
    r->busy = 0;
    if (status == NO_MEMORY) return PyErr_NoMemory();
    if (status == UNREAD) {
        errno = trouble;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromLongLong(status == GOOD ? done : status == TOO_LONG ? -2 : -1);
}

/* Who waits for a piece that will not come waits no longer. */
static PyObject *parser_stop(PyObject *self, PyObject *unused) {
    (void)unused;
    Parser *p = (Parser *)self;
    Py_BEGIN_ALLOW_THREADS;
    PyThread_acquire_lock(p->lock, WAIT_LOCK);
    if (!p->stopped) p->stopped = MALFORMED;
    PyThread_release_lock(p->lock);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static void parser_empty(Parser *p) {
    for (int i = 0; i < p->reader_count; i++) {
        Reader *r = &p->readers[i];
        column_free(&r->queries);
        free(r->met);
        free(r->slots);
        free(r->buffer);
        *r = (Reader){.columns = p->columns, .last = -1};
    }
    for (size_t i = 0; i < p->piece_count; i++) free(p->pieces[i].arena);
    free(p->pieces);
    free(p->views);
    free(p->codes);
    free(p->values);
    p->pieces = NULL;
    p->views = NULL;
    p->codes = NULL;
    p->values = NULL;
    p->piece_count = p->piece_room = p->lines = p->room = p->taken = 0;
    p->stopped = 0;
}

/* A query as one reader met it. */
typedef struct {
    int64_t met;
    int32_t code;
    int reader;
} Meeting;

static int compare_meetings(const void *a, const void *b) {
    int64_t x = ((const Meeting *)a)->met, y = ((const Meeting *)b)->met;
    return (x > y) - (x < y);
}

/* One code for each query, in the order in which the file first names them: place[reader][code]
 * becomes the code in `all`. */
static int parser_unite(Parser *p, Reader *all, int32_t **place) {
    size_t count = 0;
    for (int i = 0; i < p->reader_count; i++) count += p->readers[i].queries.length;
    Meeting *meetings = malloc((count + 1) * sizeof *meetings);
    if (!meetings) return NO_MEMORY;
    int status = GOOD;
    size_t at = 0;
    for (int i = 0; i < p->reader_count; i++) {
        const Reader *r = &p->readers[i];
        place[i] = malloc((r->queries.length + 1) * sizeof **place);
        if (!place[i]) status = NO_MEMORY;
        for (size_t code = 0; code < r->queries.length; code++)
            meetings[at++] = (Meeting){r->met[code], (int32_t)code, i};
    }
    if (p->reader_count > 1) qsort(meetings, count, sizeof *meetings, compare_meetings);
    for (size_t i = 0; i < count && status == GOOD; i++) {
        const Meeting *m = &meetings[i];
        Text names = column_text(&p->readers[m->reader].queries);
        const View *v = &names.views[m->code];
        const char *name = text_at(&names, v);
        int32_t code = reader_code(all, name, view_length(v), name + view_length(v));
        if (code < 0) status = NO_MEMORY;
        else place[m->reader][m->code] = code;
    }
    free(meetings);
    return status;
}

/* Codes of all queries; no room between the rows of one piece and the next. */
static int parser_close(Parser *p, Reader *all, Column *docs) {
    int32_t **place = calloc((size_t)p->reader_count, sizeof *place);
    int status = place ? parser_unite(p, all, place) : NO_MEMORY;
    size_t row = 0;
    int arenas = 0;
    for (size_t i = 0; i < p->piece_count && status == GOOD; i++) {
        const Piece *piece = &p->pieces[i];
        const int32_t *codes = place[piece->reader];
        int32_t *own = p->codes + piece->first;
        for (size_t k = 0; k < piece->rows; k++) p->codes[row + k] = codes[own[k]];
        if (row != piece->first && piece->rows) {
            memmove(p->views + row, p->views + piece->first, piece->rows * sizeof *p->views);
            memmove(p->values + row, p->values + piece->first, piece->rows * sizeof *p->values);
        }
        row += piece->rows;
        arenas |= piece->arena != NULL;
    }
    for (int i = 0; place && i < p->reader_count; i++) free(place[i]);
    free(place);
    if (status) return status;
    docs->length = row;
    if (arenas) { /* a piece's arena bears its number */
        docs->arenas = calloc(p->piece_count, sizeof *docs->arenas);
        docs->arena_sizes = calloc(p->piece_count, sizeof *docs->arena_sizes);
        if (!docs->arenas || !docs->arena_sizes) return NO_MEMORY;
        docs->arena_count = p->piece_count;
        for (size_t i = 0; i < p->piece_count; i++) {
            docs->arenas[i] = p->pieces[i].arena ? p->pieces[i].arena : malloc(1);
            p->pieces[i].arena = NULL;
            if (!docs->arenas[i]) return NO_MEMORY;
            docs->arena_sizes[i] = p->pieces[i].arena_size;
        }
    }
    if (row) { /* give back what was reserved too much */
        void *fitted = realloc(p->codes, row * sizeof *p->codes);
        if (fitted) p->codes = fitted;
        fitted = realloc(p->values, row * sizeof *p->values);
        if (fitted) p->values = fitted;
        fitted = realloc(p->views, row * sizeof *p->views);
        if (fitted) p->views = fitted;
    }
    docs->views = p->views;
    docs->room = row;
    p->views = NULL;
    return GOOD;
}

static PyObject *parser_finish(PyObject *self, PyObject *unused) {
    (void)unused;
    Parser *p = (Parser *)self;
    if (p->reading || p->stopped) {
        PyErr_SetString(PyExc_RuntimeError, "the parser is at work, or gave up");
        return NULL;
    }
    Reader all = {.columns = p->columns, .last = -1};
    Column found = {0};
    int status;
    p->odd = 0;
    for (int i = 0; i < p->reader_count; i++) p->odd |= p->readers[i].odd;
    p->reading = 1;
    Py_BEGIN_ALLOW_THREADS;
    status = parser_close(p, &all, &found);
    Py_END_ALLOW_THREADS;
    p->reading = 0;
    PyObject *out = NULL;
    if (status == GOOD) {
        size_t rows = found.length;
        PyObject *codes = block_new(p->codes, rows * sizeof *p->codes);
        p->codes = NULL;
        PyObject *values = block_new(p->values, rows * sizeof *p->values);
        p->values = NULL;
        PyObject *queries = strings_new(&all.queries, NULL);
        PyObject *docs = strings_new(&found, NULL);
        if (codes && values && queries && docs) out = PyTuple_Pack(4, queries, codes, docs, values);
        Py_XDECREF(codes);
        Py_XDECREF(values);
        Py_XDECREF(queries);
        Py_XDECREF(docs);
    } else {
        PyErr_NoMemory();
    }
    column_free(&all.queries); /* not empty only where something failed */
    free(all.met);
    free(all.slots);
    column_free(&found);
    parser_empty(p);
    return out;
}

static PyObject *parser_plain(PyObject *self, PyObject *unused) {
    (void)unused;
    return PyBool_FromLong(!((Parser *)self)->odd);
}

static PyObject *parser_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    (void)kwargs;
    int columns, readers = 1;
    long long pieces = 0;
    if (!PyArg_ParseTuple(args, "i|iL", &columns, &readers, &pieces)) return NULL;
    if (columns != 6 && columns != 4) {
        PyErr_SetString(PyExc_ValueError, "a TREC file has 6 columns (run) or 4 (qrels)");
        return NULL;
    }
    if (readers < 1 || readers > 1024 || pieces < 0 || pieces >= UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "that many readers or pieces there cannot be");
        return NULL;
    }
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Parser *p = (Parser *)alloc(type, 0);
    if (!p) return NULL;
    p->columns = columns;
    p->expected = (size_t)pieces;
    p->lock = PyThread_allocate_lock();
    p->readers = calloc((size_t)readers, sizeof *p->readers);
    if (!p->lock || !p->readers) {
        Py_DECREF((PyObject *)p);
        return PyErr_NoMemory();
    }
    p->reader_count = readers;
    parser_empty(p);
    return (PyObject *)p;
}

static void parser_dealloc(PyObject *self) {
    Parser *p = (Parser *)self;
    PyTypeObject *type = Py_TYPE(self);
    parser_empty(p);
    free(p->readers);
    if (p->lock) PyThread_free_lock(p->lock);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef parser_methods[] = {
    {"feed", parser_feed, METH_VARARGS,
     "Read the whole lines of a piece of the file, by number, with one of the readers; False at "
     "the first line that is not well formed."},
    {"fetch", parser_fetch, METH_VARARGS,
     "Read pieces of a file with one of the readers, as long as there are any."},
    {"stop", parser_stop, METH_NOARGS, "Let nobody wait for pieces that will not come."},
    {"finish", parser_finish, METH_NOARGS,
     "The columns read so far: distinct queries, query of each row, documents, values."},
    {"plain", parser_plain, METH_NOARGS,
     "Whether the numbers of the rows are below 2^53 in size, and grades whole."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot parser_slots[] = {
    {Py_tp_new, parser_new},
    {Py_tp_dealloc, parser_dealloc},
    {Py_tp_methods, parser_methods},
    {0, NULL},
};

static PyType_Spec parser_spec = {"rankproof._native.TrecParser", sizeof(Parser), 0,
                                  Py_TPFLAGS_DEFAULT, parser_slots};

/* ------------------------------------------------------------------- arrays from numpy */

typedef struct {
    Py_buffer buffers[20];
    int count;
} Lease;

static void lease_end(Lease *lease) {
    for (int i = 0; i < lease->count; i++) PyBuffer_Release(&lease->buffers[i]);
    lease->count = 0;
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

/* ------------------------------------------------------------------------ bounds over holes */

/* The documents of each query that matter, by rank, of grade -1 where they are holes. With `gaps`
 * every other rank up to the query's reach is a hole, too. */
typedef struct {
    int32_t rank, count, kind;
} Stop;

typedef struct {
    const int64_t *grade, *rank, *begin, *reach;
    int gaps;
    int64_t most; /* stops of one query */
    Stop *stop;   /* room for a query's */
} Path;

enum { OTHER = 0, OPEN = 1, RELEVANT = 2 };

/* Borrows a path and makes room for one query of it; 0 with an error set otherwise. */
static int lease_path(Lease *lease, Path *path, PyObject *grade, PyObject *rank, PyObject *begin,
                      PyObject *reach, int gaps, long long first, long long last) {
    *path = (Path){.gaps = gaps};
    if (!(path->begin = lease_array(lease, begin, 8, last + 1, READ)) || !ascends(path->begin, last))
        return 0;
    int64_t rows = path->begin[last], fit = 1;
    if (!(path->reach = lease_array(lease, reach, 8, last, READ)) ||
        !(path->rank = lease_array(lease, rank, 8, rows, READ)) ||
        (grade && !(path->grade = lease_array(lease, grade, 8, rows, READ))))
        return 0;
    for (int64_t q = first; q < last; q++) {
        int64_t before = 0, count = path->begin[q + 1] - path->begin[q];
        if (gaps) count += count + 1;
        for (int64_t i = path->begin[q]; i < path->begin[q + 1]; i++) {
            fit &= path->rank[i] > before;
            before = path->rank[i];
        }
        fit &= before <= path->reach[q] && path->reach[q] < INT32_MAX;
        if (count > path->most) path->most = count;
    }
    if (!fit) {
        PyErr_SetString(PyExc_ValueError, "the ranks of a query do not ascend within its reach");
        return 0;
    }
    path->stop = malloc((size_t)(path->most + 1) * sizeof *path->stop);
    if (!path->stop) PyErr_NoMemory();
    return path->stop != NULL;
}

/* The last rank in reach of any query. */
static int64_t longest(const Path *path, int64_t first, int64_t last) {
    int64_t most = 0;
    for (int64_t q = first; q < last; q++)
        if (path->reach[q] > most) most = path->reach[q];
    return most;
}

/* Spells a query of a path out, holes in a row as one stop, at the last of them: how many stops. */
static int64_t spell(const Path *path, int64_t q, int64_t rel) {
    int64_t count = 0, rank = 0;
    for (int64_t i = path->begin[q]; i <= path->begin[q + 1]; i++) {
        int end = i == path->begin[q + 1];
        int64_t next = end ? path->reach[q] + 1 : path->rank[i];
        if (path->gaps && next > rank + 1)
            path->stop[count++] = (Stop){(int32_t)(next - 1), (int32_t)(next - rank - 1), OPEN};
        if (end) break;
        rank = next;
        int kind = path->grade[i] == -1 ? OPEN : path->grade[i] >= rel ? RELEVANT : OTHER;
        path->stop[count++] = (Stop){(int32_t)rank, 1, kind};
    }
    return count;
}

/* Of each rank: what a relevant document there adds for every relevant one down to it, and besides;
 * and sums up to it: of the first, of both, of the first times the rank and the second, and of the
 * sums of the first. */
typedef struct {
    const double *weight, *rest, *weights, *rests, *ranked, *twice;
} RankSums;

/* Holes in a row, from the first down: each adds more than the one before it, so that the share falls
 * and then rises, and is highest before or behind them all. (Rank 1 may add more than rank 2.) */
static double highest_precision(const Path *path, int64_t q, int64_t rel, const RankSums *sums,
                                int64_t cut, double none, int64_t known) {
    const int64_t *g = path->grade + path->begin[q], *r = path->rank + path->begin[q];
    int64_t count = path->begin[q + 1] - path->begin[q], above = 0, taken = 0;
    double best = known > 0 ? none / (double)known : NAN, sum = none, behind = 0.0;
    for (int64_t i = 0; i < count; i++)
        if (g[i] >= rel && r[i] <= cut) behind += sums->weight[r[i]];
    for (int64_t i = 0; i <= count; i++) {
        int64_t to = i == count ? path->reach[q] : r[i] - 1, from = to + 1;
        if (path->gaps) from = i == 0 ? 1 : r[i - 1] + 1;
        if (i < count && g[i] == -1) to++;
        while (from <= to) {
            int64_t end = from == 1 ? 1 : from <= cut && to > cut ? cut : to;
            int64_t off = from - above - taken - 1; /* what is not relevant down to these ranks */
            if (from <= cut) {
                sum += behind * (double)(end - from + 1) + sums->ranked[end] - sums->ranked[from - 1] -
                       (double)off * (sums->weights[end] - sums->weights[from - 1]);
            }
            taken += end - from + 1;
            double share = sum / (double)(known + taken);
            if (!(share <= best)) best = share;
            from = end + 1;
        }
        if (i < count && g[i] >= rel) {
            above++;
            if (r[i] <= cut) behind -= sums->weight[r[i]];
        }
    }
    return best;
}

/* From the last hole up each adds more than the one before it: the share falls and then rises. */
static double lowest_precision(const Path *path, int64_t q, int64_t rel, const RankSums *sums,
                               int64_t cut, double none, int64_t above, int64_t known) {
    const int64_t *g = path->grade + path->begin[q], *r = path->rank + path->begin[q];
    int64_t count = path->begin[q + 1] - path->begin[q];
    double sum = none, behind = 0.0; /* weights of all relevant ones further down */
    for (int64_t i = count; i >= 0; i--) {
        int64_t to = i == count ? path->reach[q] : r[i] - 1, from = to + 1;
        if (path->gaps) from = i == 0 ? 1 : r[i - 1] + 1;
        if (i > 0 && g[i - 1] == -1) {
            from = r[i - 1];
            if (!path->gaps) to = from;
        }
        if (to > cut && from <= to) { /* these add nothing */
            known += to - (from > cut ? from - 1 : cut);
            to = cut;
        }
        int64_t low = 0, high = to - from + 1;
        for (;;) { /* how many are worth less than the share of those before: at first all, it may be */
            int64_t n = low < high ? (low + high) / 2 : low, rank = to - n;
            double own = n > 0 ? sums->weights[to] - sums->weights[rank] : 0.0, more = sum;
            if (n > 0)
                more += (double)(above + 1) * own + sums->rests[to] - sums->rests[rank] +
                        (behind + sums->weights[to]) * (double)n - sums->twice[to] + sums->twice[rank];
            if (low >= high) {
                sum = more, behind += own, known += n > 0 ? n : 0;
                break;
            }
            double next = (double)(above + 1) * sums->weight[rank] + sums->rest[rank] + behind + own;
            if (known + n > 0 && next * (double)(known + n) >= more) high = n;
            else low = n + 1;
        }
        if (low < to - from + 1) break;
        if (i > 0 && g[i - 1] >= rel) {
            above--;
            if (r[i - 1] <= cut) behind += sums->weight[r[i - 1]];
        }
    }
    return known > 0 ? sum / (double)known : NAN;
}

/* precision(grade, rank, begin, reach, gaps, rel, sums, cut, relevant, extra, highest, value, first,
 *           last)
 *
 * The highest or lowest average precision of each query over how many of its holes are relevant:
 * the first ones of the list, or the last ones and all that is not listed (extra). A relevant
 * document adds weight[rank] * (relevant ones so far) + rest[rank]; past the cut nothing counts. */
static PyObject *native_precision(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *grade_, *rank_, *begin_, *reach_, *sums_, *cut_, *relevant_, *extra_, *value_;
    long long rel, first, last;
    int highest, gaps;
    if (!PyArg_ParseTuple(args, "OOOOpLOOOOpOLL", &grade_, &rank_, &begin_, &reach_, &gaps, &rel,
                          &sums_, &cut_, &relevant_, &extra_, &highest, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Path path;
    int done = 0;
    const int64_t *cut = NULL, *relevant = NULL, *extra = NULL;
    const double *table = NULL;
    double *value = NULL;
    int64_t ranks = 0;
    if (!lease_path(&lease, &path, grade_, rank_, begin_, reach_, gaps, first, last) ||
        !(table = lease_array(&lease, sums_, 8, 6, READ)))
        goto end;
    ranks = lease.buffers[lease.count - 1].len / 48;
    if (longest(&path, first, last) >= ranks) {
        PyErr_SetString(PyExc_ValueError, "sums for every rank");
        goto end;
    }
    if (!(cut = lease_array(&lease, cut_, 8, last, READ)) ||
        !(relevant = lease_array(&lease, relevant_, 8, last, READ)) ||
        !(extra = lease_array(&lease, extra_, 8, last, READ)) ||
        !(value = lease_array(&lease, value_, 8, last, WRITE)))
        goto end;
    RankSums sums = {table,             table + ranks,     table + 2 * ranks,
                 table + 3 * ranks, table + 4 * ranks, table + 5 * ranks};
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        const int64_t *g = path.grade + path.begin[q], *r = path.rank + path.begin[q];
        int64_t count = path.begin[q + 1] - path.begin[q], above = 0, cutoff = cut[q];
        double none = 0.0;
        for (int64_t i = 0; i < count; i++)
            if (g[i] >= rel && ++above && r[i] <= cutoff)
                none += sums.weight[r[i]] * (double)above + sums.rest[r[i]];
        if (highest) {
            double best = highest_precision(&path, q, rel, &sums, cutoff, none, relevant[q]);
            value[q] = isnan(best) && extra[q] > 0 ? 0.0 : best;
        } else {
            int64_t known = relevant[q] + extra[q];
            value[q] = lowest_precision(&path, q, rel, &sums, cutoff, none, above, known);
        }
    }
    Py_END_ALLOW_THREADS;
    done = 1;
end:
    free(path.stop);
    lease_end(&lease);
    if (!done) return NULL;
    Py_RETURN_NONE;
}

/* cascade(stop, rank, begin, reach, gap, cut, value, first, last): the sum of stop / rank * what is
 * let through above, of documents by rank. Every other rank up to the reach stops with `gap`. */
static PyObject *native_cascade(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *stop_, *rank_, *begin_, *reach_, *cut_, *value_;
    long long first, last;
    double gap;
    if (!PyArg_ParseTuple(args, "OOOOdOOLL", &stop_, &rank_, &begin_, &reach_, &gap, &cut_, &value_,
                          &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Path path;
    int done = 0;
    const double *stop = NULL;
    const int64_t *cut = NULL;
    double *value = NULL;
    if (!lease_path(&lease, &path, NULL, rank_, begin_, reach_, 0, first, last) ||
        !(stop = lease_array(&lease, stop_, 8, path.begin[last], READ)) ||
        !(cut = lease_array(&lease, cut_, 8, last, READ)) ||
        !(value = lease_array(&lease, value_, 8, last, WRITE)))
        goto end;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        int64_t end = path.reach[q] < cut[q] ? path.reach[q] : cut[q], at = path.begin[q];
        double passed = 1.0, sum = 0.0;
        /* What is less than half of the last digit changes no sum. */
        for (int64_t r = 1; r <= end && passed >= sum * 0x1p-54; r++) {
            int known = at < path.begin[q + 1] && path.rank[at] == r;
            if (!known && gap == 0.0) {
                if (at == path.begin[q + 1]) break;
                r = path.rank[at] - 1;
                continue;
            }
            double here = known ? stop[at++] : gap;
            sum += passed * here / (double)r;
            passed *= 1.0 - here;
        }
        value[q] = sum;
    }
    Py_END_ALLOW_THREADS;
    done = 1;
end:
    free(path.stop);
    lease_end(&lease);
    if (!done) return NULL;
    Py_RETURN_NONE;
}

/* What bpref asks of a query, and room for its numbers. */
typedef struct {
    int64_t relevant, others, extra;
    int possible;
    int64_t *room, most;
} Preferred;

/* Holes in rows, each with as many documents that are not relevant above: sums of these over the
 * first so many holes. `at` is where the last search ended. */
typedef struct {
    const int64_t *before, *over, *sum; /* holes before a row, what is above it, sums before it */
    int64_t rows, at;
} HoleRows;

static inline int64_t first_sum(HoleRows *rows, int64_t holes) {
    while (rows->at + 1 < rows->rows && rows->before[rows->at + 1] <= holes) rows->at++;
    while (rows->at > 0 && rows->before[rows->at] > holes) rows->at--;
    if (!rows->rows) return 0;
    return rows->sum[rows->at] + (holes - rows->before[rows->at]) * rows->over[rows->at];
}

static inline double preferred(const Path *path, int64_t count, const Preferred *of,
                               const int highest) {
    /* Of relevant documents: those not relevant and the holes above, and sums of the former and of
     * both; of holes, row by row. */
    int64_t *bad = of->room, *open = bad + of->most, *bads = open + of->most;
    int64_t *both = bads + of->most + 1, *before = both + of->most + 1, *over = before + of->most + 1;
    int64_t *overs = over + of->most + 1;
    int64_t good = 0, inside = 0, above = 0, rows = 0, held = 0;
    bads[0] = both[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (path->stop[i].kind == RELEVANT) {
            bad[good] = above, open[good] = inside;
            bads[good + 1] = bads[good] + above;
            both[good + 1] = both[good] + above + inside;
            good++;
        } else if (path->stop[i].kind == OPEN) {
            if (!rows || over[rows - 1] != above)
                before[rows] = inside, over[rows] = above, overs[rows++] = held;
            held += above * path->stop[i].count;
            inside += path->stop[i].count;
        } else {
            above++;
        }
    }
    HoleRows from_ = {before, over, overs, rows, 0}, to_ = from_;
    int64_t total = inside + of->extra, under = 0, whole = 0, free_ = 0, end = of->possible ? total : 0;
    int64_t start = of->relevant > 0 ? 0 : 1, samples = (end - start) / 24 < 10 ? (end - start) / 24 : 10;
    double best = NAN, highest_cap = 2.0 / (double)(of->relevant + of->others + total); /* 1 over it */
    /* A few first: against a good value most of the others need no look. */
    for (int64_t n = start, step = 0; n <= end; n++, step++) {
        if (step < samples) n = start + (end - start) * (step + 1) / (samples + 1);
        else if (step == samples) n = start;
        int64_t r = of->relevant + n, rest = of->others + total - n;
        int64_t cap = r < rest ? r : rest, cost = 0;
        int64_t taken = n < inside ? n : inside;
        if (!highest) taken = n > of->extra ? n - of->extra : 0;
        int64_t left = inside - taken; /* holes that are not relevant: the last, or the first */
        /* A relevant document has above it bad + the holes beyond `taken`, or up to `left`. */
        int64_t limit = highest ? taken : left;
        while (whole < good && open[whole] <= limit) whole++;
        while (whole > 0 && open[whole - 1] > limit) whole--;
#define ABOVE(d) (bad[d] + (highest ? (open[d] > limit ? open[d] - limit : 0) \
                                : (open[d] < limit ? open[d] : limit)))
        while (under < good && ABOVE(under) < cap) under++;
        while (under > 0 && ABOVE(under - 1) >= cap) under--;
#undef ABOVE
        int64_t low = whole < under ? whole : under;
        if (highest)
            cost = bads[low] + both[under] - both[low] - limit * (under - low);
        else
            cost = both[low] + bads[under] - bads[low] + limit * (under - low);
        cost += cap * (good - under);
        /* Holes that are relevant: the first with those above them, the last with `left` more. */
        int64_t from = highest ? 0 : left, to = highest ? taken : inside;
        int64_t more = highest ? 0 : left;
        while (free_ < rows && over[free_] + more < cap) free_++;
        while (free_ > 0 && over[free_ - 1] + more >= cap) free_--;
        int64_t middle = free_ < rows ? before[free_] : inside;
        middle = middle < from ? from : middle > to ? to : middle;
        cost += first_sum(&to_, middle) - (from ? first_sum(&from_, from) : 0);
        cost += more * (middle - from) + cap * (to - middle);
        int64_t found = good + to - from;
        double shrink = cap > 0 ? 1.0 / (double)cap : 0.0, lost = (double)cost * shrink;
        double apart = (best * (double)r - ((double)found - lost)) * (highest ? 1.0 : -1.0);
        if (!(apart > 1e-12 * (double)r)) {
            double share = (double)found / (double)r;
            if (cap > 0)
                share = ((double)found * (double)cap - (double)cost) / ((double)cap * (double)r);
            if (highest ? !(share <= best) : !(share >= best)) best = share;
            if (best == (highest ? 1.0 : 0.0)) break;
            continue;
        }
        if (step < samples || cap <= 0) continue;
        /* How many numbers need no look, as no value there is past the best. With k more relevant ones:
         * - Above a relevant document are k fewer holes at most, if any, and the cap is k higher at
         *   most, and not if it falls already: so much more are all worth; a new one is worth 1 at
         *   most, less what is above the next hole in the highest cap there is to come.
         * - Nor are they worth less, but if the cap falls, by k, and for those of which what is above
         *   them does not: by its share of half the cap, while k is no more than that half. */
        double each = best;
        int64_t room = highest ? end - n : r >= rest ? cap / 2 : rest - r;
        if (highest) {
            double next = 0.0;
            if (n < inside)
                next = fmax(0.0, 1.0 - (double)over[to_.at] * (r < rest ? highest_cap : shrink));
            each = next + ((double)(good - whole) + (r < rest ? lost : 0.0)) * shrink - best;
        } else if (r >= rest) {
            if (n >= of->extra) lost = (double)both[low] * shrink;
            each += 2.0 * lost * shrink;
        }
        if (!(each > 0.0) || apart >= each * (double)room) n += room;
        else n += (int64_t)(apart / each * (1.0 - 1e-9));
    }
    return best;
}

/* preference(grade, rank, begin, reach, gaps, rel, relevant, others, extra, possible, highest,
 *            value, first, last)
 *
 * The highest or lowest bpref of each query over how many holes are relevant (none, where that is
 * not possible): the first ones of the list, or what is not listed (extra) and the last ones.
 * What stands above a document never falls down the list, so those whose cost the cap limits are
 * the last; and from one number to the next the place where they begin moves little. */
static PyObject *native_preference(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *grade_, *rank_, *begin_, *reach_, *relevant_, *others_, *extra_, *value_;
    long long rel, first, last;
    int highest, gaps, possible;
    if (!PyArg_ParseTuple(args, "OOOOpLOOOppOLL", &grade_, &rank_, &begin_, &reach_, &gaps, &rel,
                          &relevant_, &others_, &extra_, &possible, &highest, &value_, &first,
                          &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Path path;
    int64_t *room = NULL;
    int done = 0;
    const int64_t *relevant = NULL, *others = NULL, *extra = NULL;
    double *value = NULL;
    if (!lease_path(&lease, &path, grade_, rank_, begin_, reach_, gaps, first, last) ||
        !(relevant = lease_array(&lease, relevant_, 8, last, READ)) ||
        !(others = lease_array(&lease, others_, 8, last, READ)) ||
        !(extra = lease_array(&lease, extra_, 8, last, READ)) ||
        !(value = lease_array(&lease, value_, 8, last, WRITE)))
        goto end;
    room = malloc((size_t)(7 * path.most + 5) * sizeof *room);
    if (!room) {
        PyErr_NoMemory();
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        Preferred of = {relevant[q], others[q], extra[q], possible, room, path.most};
        int64_t count = spell(&path, q, rel);
        value[q] = highest ? preferred(&path, count, &of, 1) : preferred(&path, count, &of, 0);
    }
    Py_END_ALLOW_THREADS;
    done = 1;
end:
    free(room);
    free(path.stop);
    lease_end(&lease);
    if (!done) return NULL;
    Py_RETURN_NONE;
}

/* Which relevant document, counted from 1, reaches a level of recall. */
static inline int64_t target(double level, int64_t relevant) {
    int64_t number = (int64_t)(level * (double)relevant + 0.9);
    return number < 1 ? 1 : number;
}

/* interpolated(grade, rank, begin, reach, gaps, rel, levels, relevant, extra, highest, value,
 *              first, last)
 *
 * The mean over levels of recall, ascending, of the highest or lowest interpolated precision at
 * each: `interpolated` of unjudged/walks.py, where the method stands. */
static PyObject *native_interpolated(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *grade_, *rank_, *begin_, *reach_, *levels_, *relevant_, *extra_, *value_;
    long long rel, first, last;
    int highest, gaps;
    if (!PyArg_ParseTuple(args, "OOOOpLOOOpOLL", &grade_, &rank_, &begin_, &reach_, &gaps, &rel,
                          &levels_, &relevant_, &extra_, &highest, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Path path;
    double *room = NULL;
    int64_t levels = 0;
    int done = 0;
    const int64_t *relevant = NULL, *extra = NULL;
    const double *level = NULL;
    double *value = NULL;
    if (!lease_path(&lease, &path, grade_, rank_, begin_, reach_, gaps, first, last)) goto end;
    if (!(level = lease_array(&lease, levels_, 8, 1, READ))) goto end;
    levels = lease.buffers[lease.count - 1].len / 8;
    if (!(relevant = lease_array(&lease, relevant_, 8, last, READ)) ||
        !(extra = lease_array(&lease, extra_, 8, last, READ)) ||
        !(value = lease_array(&lease, value_, 8, last, WRITE)))
        goto end;
    room = malloc(((size_t)(path.most + 2) * 4 + (size_t)levels) * sizeof *room);
    if (!room) {
        PyErr_NoMemory();
        goto end;
    }
    double *best = room, *rising = best + levels; /* of the relevant ones from each number on */
    int64_t *rank = (int64_t *)(rising + path.most + 2), *number = rank + path.most + 2;
    int64_t *next = number + path.most + 2;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        int64_t count = spell(&path, q, rel), good = 0, all = 0, reached = 0, ends = 0;
        double sum = 0.0;
        if (highest) {
            for (int64_t l = 0; l < levels; l++) best[l] = 0.0;
            for (int64_t i = 0; i < count; i++) {
                if (path.stop[i].kind == OTHER) continue;
                good += path.stop[i].kind == RELEVANT;
                all += path.stop[i].count;
                while (reached < levels && all >= target(level[reached], relevant[q] + all - good))
                    reached++;
                double share = (double)all / (double)path.stop[i].rank;
                if (reached && share > best[reached - 1]) best[reached - 1] = share;
            }
            for (int64_t l = levels; l-- > 0;) {
                if (l + 1 < levels && best[l + 1] > best[l]) best[l] = best[l + 1];
                sum += best[l];
            }
            int some = relevant[q] > 0 || all > 0 || extra[q] > 0;
            value[q] = some ? sum / (double)levels : NAN;
            continue;
        }
        /* Of documents in a row the last has the highest share: the others need no look. */
        for (int64_t i = 0; i < count; i++) {
            Stop stop = path.stop[i];
            if (stop.kind == OTHER) continue;
            all += stop.count;
            if (!ends || rank[ends - 1] - number[ends - 1] != stop.rank - all) ends++;
            rank[ends - 1] = stop.rank, number[ends - 1] = all;
            if (stop.kind != RELEVANT) continue;
            good++;
            rising[good] = (double)good / (double)stop.rank;
        }
        for (int64_t n = good; n-- > 1;)
            if (rising[n + 1] > rising[n]) rising[n] = rising[n + 1];
        /* The corners of what lies above the points (rank, number): from each the next one. */
        for (int64_t n = ends; n-- > 0;) {
            int64_t to = n + 1;
            while (to < ends && next[to] < ends &&
                   (number[next[to]] - number[n]) * (rank[to] - rank[n]) >=
                       (number[to] - number[n]) * (rank[next[to]] - rank[n]))
                to = next[to];
            next[n] = to;
        }
        int64_t holes = all - good, known = relevant[q] + extra[q], least = known > 0 ? 0 : 1;
        if (least > holes) {
            value[q] = NAN;
            continue;
        }
        for (int64_t l = levels, near = least; l-- > 0;) {
            /* With more relevant holes the known documents count less, and the holes more. Often the
             * number is that of the level before, or next to it. */
            int64_t low = least, high = holes + 1; /* the first at which the holes count more */
            double lowest = INFINITY;
            for (int tries = 0; low < high; tries++) {
                int64_t n = tries > 1 ? (low + high) / 2 : high > near ? near : near - 1;
                n = n < low ? low : n >= high ? high - 1 : n;
                int64_t off = holes - n, at = target(level[l], known + n);
                double sure = at <= good ? rising[at] : 0.0, open = 0.0;
                if (off + at <= all) {
                    int64_t j = 0, after = ends - 1;
                    while (j < after) { /* the first that has so many */
                        int64_t middle = (j + after) / 2;
                        if (number[middle] < off + at) j = middle + 1;
                        else after = middle;
                    }
                    while (next[j] < ends &&
                           (number[next[j]] - off) * rank[j] >= (number[j] - off) * rank[next[j]])
                        j = next[j];
                    open = (double)(number[j] - off) / (double)rank[j];
                }
                double here = sure > open ? sure : open;
                if (here < lowest) lowest = here;
                if (open >= sure)
                    high = n;
                else
                    low = n + 1;
            }
            near = low;
            sum += lowest;
        }
        value[q] = sum / (double)levels;
    }
    Py_END_ALLOW_THREADS;
    done = 1;
end:
    free(room);
    free(path.stop);
    lease_end(&lease);
    if (!done) return NULL;
    Py_RETURN_NONE;
}

enum { PROBED = 256 };

/* Documents of one list that are looked for in another, some at a time. */
typedef struct {
    const Text *text;     /* of the other */
    const View *held;     /* its documents */
    uint32_t count;       /* how many */
    const int64_t *place; /* their positions, or NULL: one after the other */
    int64_t shift, reach; /* what to add to these for a rank from 0, and where ranks end */
    uint64_t mask;
    Slots slots;
    int64_t table;
} Probed;

/* One slot of each after the other, and again for those whose slot holds another: which of them are
 * there is anybody's guess, so that nothing branches on it. The ranks go into theirs[of]; how many
 * were found, or -1 if these are not the slots of the list. */
static int64_t probe(const Probed *p, const Text *a, const View **view, uint64_t *at, int32_t *of,
                     int asked, int32_t *theirs) {
    int64_t both = 0;
    uint32_t slot[PROBED];
    for (uint64_t tries = 0; asked; tries++) {
        uint32_t most = 0;
        int again = 0;
        for (int j = 0; j < asked; j++) {
            slot[j] = slot_get(&p->slots, p->table + (int64_t)at[j]);
            most = slot[j] > most ? slot[j] : most;
        }
        if (most > p->count || tries > p->mask) return -1;
        for (int j = 0; j < asked; j++) {
            const View *mine = view[j];
            int64_t row = (int64_t)slot[j] - (slot[j] != 0);
            const View *other = p->held + row;
            int same = (slot[j] != 0) & (other->low == mine->low) & (other->high == mine->high);
            if (view_length(mine) > INLINE)
                same = slot[j] && same_text(p->text, other, a, mine);
            int64_t rank = (p->place ? p->place[row] : row) + p->shift;
            int there = same & (rank >= 0) & (rank < p->reach);
            theirs[of[j]] = ((int32_t)rank + 1) & -there;
            both += there;
            of[again] = of[j], view[again] = mine, at[again] = (at[j] + 1) & p->mask;
            again += (slot[j] != 0) & (same ^ 1);
        }
        asked = again;
    }
    return both;
}

/* share(doc_a, row_a or None, known_a, begin_a, start_a, list_b, doc_b, lists_b, slot_start, slots,
 *       place_b or None, known_b, begin_b, start_b, theirs, own, shared, first, last)
 *
 * Query q has the positions begin[q] + 0, 1, … of each ranking in reach, start[q + 1] - start[q] of
 * them. theirs[start_a[q] + i] becomes the rank, from 1, at which b has the document of a's i-th
 * position, 0 where b has it not in reach, and -1 where it is known; own[start_b[q] + i] 1 where
 * b's i-th is neither known nor in reach of a; shared[q] how many both have. row_a says which row
 * stands at a position, place_b at which position a row. */
static PyObject *native_share(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *doc_a_, *row_a_, *known_a_, *begin_a_, *start_a_, *list_b_, *doc_b_, *lists_b_,
        *slot_start_, *slots_, *place_b_, *known_b_, *begin_b_, *start_b_, *theirs_, *own_,
        *shared_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOOOOOOLL", &doc_a_, &row_a_, &known_a_, &begin_a_,
                          &start_a_, &list_b_, &doc_b_, &lists_b_, &slot_start_, &slots_,
                          &place_b_, &known_b_, &begin_b_, &start_b_, &theirs_, &own_, &shared_,
                          &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Text a = {0}, b = {0};
    int good = 0;
    const int64_t *begin_a = NULL, *start_a = NULL, *list_b = NULL, *lists_b = NULL, *begin_b = NULL,
                  *start_b = NULL, *slot_start = NULL, *row_a = NULL, *place_b = NULL;
    const uint8_t *known_a = NULL, *known_b = NULL;
    Slots slots = {NULL, 0};
    int32_t *theirs = NULL;
    uint8_t *own = NULL;
    int64_t *shared = NULL, queries = 0, most = 0;
    uint8_t *met = NULL;
    if (text_acquire(doc_a_, &a) || text_acquire(doc_b_, &b)) goto end;
    if (!(lists_b = lease_array(&lease, lists_b_, 8, 1, READ))) goto end;
    queries = lease.buffers[0].len / 8 - 1;
    if (!(slot_start = lease_array(&lease, slot_start_, 8, queries + 1, READ)) ||
        !ascends(lists_b, queries) || !ascends(slot_start, queries) ||
        !has_room(lists_b, slot_start, queries) || !fits(lists_b, queries, b.length) ||
        !(slots = lease_slots(&lease, slots_, slot_start[queries], READ)).items ||
        !(begin_a = lease_array(&lease, begin_a_, 8, last, READ)) ||
        !(begin_b = lease_array(&lease, begin_b_, 8, last, READ)) ||
        !(start_a = lease_array(&lease, start_a_, 8, last + 1, READ)) || !ascends(start_a, last) ||
        !(start_b = lease_array(&lease, start_b_, 8, last + 1, READ)) || !ascends(start_b, last) ||
        !(list_b = lease_array(&lease, list_b_, 8, last, READ)) ||
        !(known_a = lease_array(&lease, known_a_, 1, a.length, READ)) ||
        !(known_b = lease_array(&lease, known_b_, 1, b.length, READ)) ||
        (row_a_ != Py_None && !(row_a = lease_array(&lease, row_a_, 8, a.length, READ))) ||
        (place_b_ != Py_None && !(place_b = lease_array(&lease, place_b_, 8, b.length, READ))) ||
        !(theirs = lease_array(&lease, theirs_, 4, start_a[last], WRITE)) ||
        !(own = lease_array(&lease, own_, 1, start_b[last], WRITE)) ||
        !(shared = lease_array(&lease, shared_, 8, last, WRITE)))
        goto end;
    for (int64_t q = first; q < last; q++)
        if (start_b[q + 1] - start_b[q] > most) most = start_b[q + 1] - start_b[q];
    if (!(met = malloc((size_t)most + 2))) {
        PyErr_NoMemory();
        goto end;
    }
    good = 1;
    for (int64_t q = first; q < last; q++)
        good &= begin_a[q] >= 0 && begin_a[q] <= a.length - (start_a[q + 1] - start_a[q]) &&
                begin_b[q] >= 0 && begin_b[q] <= b.length - (start_b[q + 1] - start_b[q]) &&
                start_b[q + 1] - start_b[q] < INT32_MAX;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && good; q++) {
        int64_t reach = start_b[q + 1] - start_b[q], both = 0, list = list_b[q];
        uint8_t *left = own + start_b[q];
        memset(met, 0, (size_t)(reach + 2));
        int there = list >= 0 && list < queries && slot_start[list] < slot_start[list + 1];
        int64_t table = there ? slot_start[list] : 0;
        uint64_t mask = there ? (uint64_t)(slot_start[list + 1] - slot_start[list]) - 1 : 0;
        uint32_t count = there ? (uint32_t)(lists_b[list + 1] - lists_b[list]) : 0;
        const View *held = b.views + (there ? lists_b[list] : 0), *view[PROBED];
        Probed in = {&b, held, count, place_b ? place_b + (held - b.views) : NULL,
                     (place_b ? 0 : held - b.views) - begin_b[q], reach, mask, slots, table};
        uint64_t at[PROBED];
        int32_t of[PROBED];
        for (uint32_t i = 0; i < count; i += 4) SOON(held + i);
        for (int64_t from = start_a[q]; from < start_a[q + 1] && good; from += PROBED) {
            int64_t end = from + PROBED < start_a[q + 1] ? from + PROBED : start_a[q + 1];
            int64_t before = begin_a[q] - start_a[q];
            int asked = 0;
            for (int64_t i = from; i < end; i++) {
                theirs[i] = -(int32_t)known_a[before + i];
                of[asked] = (int32_t)(i - from);
                asked += (known_a[before + i] ^ 1) & there;
            }
            for (int j = 0; j < asked && good; j++) {
                int64_t row = before + from + of[j];
                if (row_a) row = row_a[row];
                good = row >= 0 && row < a.length;
                if (!good) break;
                view[j] = &a.views[row];
                at[j] = hash_view(&a, view[j]) & mask;
            }
            if (!good || !asked) continue;
            int64_t found = probe(&in, &a, view, at, of, asked, theirs + from);
            good = found >= 0;
            both += found;
        }
        /* met[rank + 1]; those that b has not, and the known ones, go before. */
        for (int64_t i = start_a[q]; i < start_a[q + 1] && good; i++) met[theirs[i] + 1] = 1;
        for (int64_t i = 0; i < reach; i++) left[i] = !(known_b[begin_b[q] + i] | met[i + 2]);
        shared[q] = both;
    }
    Py_END_ALLOW_THREADS;
    if (!good) PyErr_SetString(PyExc_ValueError, "these are not the lists of the queries");
end:
    free(met);
    text_release(&b);
    text_release(&a);
    lease_end(&lease);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

/* The holes of two runs, as `share` found them, and what a rank weighs. */
typedef struct {
    const int32_t *theirs;
    const uint8_t *own;
    const int64_t *start_a, *start_b;
    const double *weight;
    double *delta; /* room for the holes of a query */
    int64_t room;
} Pair;

static int lease_pair(Lease *lease, Pair *pair, PyObject *theirs, PyObject *own, PyObject *start_a,
                      PyObject *start_b, PyObject *weight, long long first, long long last) {
    *pair = (Pair){0};
    int64_t most = 0, ranks;
    if (!(pair->start_a = lease_array(lease, start_a, 8, last + 1, READ)) ||
        !ascends(pair->start_a, last) ||
        !(pair->start_b = lease_array(lease, start_b, 8, last + 1, READ)) ||
        !ascends(pair->start_b, last) ||
        !(pair->theirs = lease_array(lease, theirs, 4, pair->start_a[last], READ)) ||
        !(pair->own = lease_array(lease, own, 1, pair->start_b[last], READ)) ||
        !(pair->weight = lease_array(lease, weight, 8, 1, READ)))
        return 0;
    ranks = lease->buffers[lease->count - 1].len / 8 - 1;
    for (int64_t q = first; q < last; q++) {
        int64_t a = pair->start_a[q + 1] - pair->start_a[q], b = pair->start_b[q + 1] - pair->start_b[q];
        if (a > most) most = a;
        if (b > most) most = b;
        if (a + b > pair->room) pair->room = a + b;
    }
    if (most > ranks) {
        PyErr_SetString(PyExc_ValueError, "weights for every rank");
        return 0;
    }
    pair->delta = malloc((size_t)(pair->room + 4) * 6 * sizeof *pair->delta);
    if (!pair->delta) PyErr_NoMemory();
    return pair->delta != NULL;
}

/* What the holes of a query weigh: those of a alone and of b alone, falling, and those of both, in a
 * less in b. */
typedef struct {
    const double *own, *shared, *theirs;
    int64_t owned, both, other;
} Weighed;

/* 0 if the ranks in b are none. */
static int weigh(const Pair *pair, int64_t q, Weighed *holes) {
    const int32_t *theirs = pair->theirs + pair->start_a[q];
    const uint8_t *left = pair->own + pair->start_b[q];
    const double *weight = pair->weight;
    int64_t a = pair->start_a[q + 1] - pair->start_a[q], b = pair->start_b[q + 1] - pair->start_b[q];
    double *own = pair->delta, *shared = own + a + 1, *other = shared + a + 1;
    int64_t owned = 0, both = 0, others = 0;
    int32_t most = 0;
    for (int64_t i = 0; i < a; i++) most = theirs[i] > most ? theirs[i] : most;
    if (most > b) return 0;
    for (int64_t i = 0; i < a; i++) {
        own[owned] = weight[i + 1];
        owned += theirs[i] == 0;
        shared[both] = weight[i + 1] - weight[theirs[i] > 0 ? theirs[i] : 0];
        both += theirs[i] > 0;
    }
    for (int64_t i = 0; i < b; i++) {
        other[others] = weight[i + 1];
        others += left[i] != 0;
    }
    *holes = (Weighed){own, shared, other, owned, both, others};
    return 1;
}

/* lead(theirs, own, start_a, start_b, weight, gained, lost, most, least, first, last)
 *
 * What each hole of two runs weighs in a less what it weighs in b, as `share` found them: its sums
 * above 0 and below, and its ends. */
static PyObject *native_lead(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *theirs_, *own_, *start_a_, *start_b_, *weight_, *out_[4];
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOLL", &theirs_, &own_, &start_a_, &start_b_, &weight_,
                          &out_[0], &out_[1], &out_[2], &out_[3], &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Pair pair;
    double *out[4];
    int good = 0;
    if (!lease_pair(&lease, &pair, theirs_, own_, start_a_, start_b_, weight_, first, last)) goto end;
    for (int i = 0; i < 4; i++)
        if (!(out[i] = lease_array(&lease, out_[i], 8, last, WRITE))) goto end;
    good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && good; q++) {
        double gained = 0.0, lost = 0.0, most = -INFINITY, least = INFINITY;
        Weighed holes = {0};
        good = weigh(&pair, q, &holes);
        for (int64_t i = 0; i < holes.both; i++) {
            double d = holes.shared[i];
            gained += d > 0.0 ? d : 0.0;
            lost -= d > 0.0 ? 0.0 : d;
            most = d > most ? d : most;
            least = d < least ? d : least;
        }
        for (int64_t i = 0; i < holes.owned; i++) gained += holes.own[i];
        for (int64_t i = 0; i < holes.other; i++) lost += holes.theirs[i];
        if (holes.owned) most = fmax(most, holes.own[0]), least = fmin(least, holes.own[holes.owned - 1]);
        if (holes.other)
            least = fmin(least, -holes.theirs[0]), most = fmax(most, -holes.theirs[holes.other - 1]);
        out[0][q] = gained, out[1][q] = lost, out[2][q] = most, out[3][q] = least;
    }
    Py_END_ALLOW_THREADS;
    if (!good) PyErr_SetString(PyExc_ValueError, "these are not the holes of the lists");
end:
    free(pair.delta);
    lease_end(&lease);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

/* Falling order, of numbers that often have it already. */
static void sort_falling(double *a, int64_t count) {
    while (count > 24) {
        int64_t same = 1;
        while (same < count && a[same - 1] >= a[same]) same++;
        if (same == count) return;
        double x = a[0], y = a[count / 2], z = a[count - 1];
        double pivot = x > y ? (y > z ? y : x > z ? z : x) : (x > z ? x : y > z ? z : y);
        int64_t low = -1, high = count;
        for (;;) {
            do low++; while (a[low] > pivot);
            do high--; while (a[high] < pivot);
            if (low >= high) break;
            double held = a[low];
            a[low] = a[high], a[high] = held;
        }
        int64_t left = high + 1; /* the smaller part is sorted by itself */
        if (left < count - left) {
            sort_falling(a, left);
            a += left, count -= left;
        } else {
            sort_falling(a + left, count - left);
            count = left;
        }
    }
    for (int64_t i = 1; i < count; i++) {
        double held = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1] < held; j--) a[j] = a[j - 1];
        a[j] = held;
    }
}

/* Falling order of numbers of 0 or more: by bits, eleven at a time. `space` has room for as many. */
static void sort_many(double *a, double *space, int64_t count) {
    enum { BITS = 11, SIZE = 1 << BITS, TIMES = 6 };
    int64_t same = 1;
    while (same < count && a[same - 1] >= a[same]) same++;
    if (same >= count) return;
    if (count < 1024) {
        sort_falling(a, count);
        return;
    }
    uint32_t counts[TIMES][SIZE];
    memset(counts, 0, sizeof counts);
    for (int64_t i = 0; i < count; i++) {
        uint64_t key;
        memcpy(&key, &a[i], sizeof key);
        for (int t = 0; t < TIMES; t++) counts[t][key >> t * BITS & (SIZE - 1)]++;
    }
    double *from = a, *to = space;
    for (int t = 0; t < TIMES; t++) {
        uint32_t sum = 0;
        int skip = 0;
        for (int digit = SIZE; digit-- > 0;) {
            uint32_t own = counts[t][digit];
            skip |= own == count;
            counts[t][digit] = sum;
            sum += own;
        }
        if (skip) continue;
        for (int64_t i = 0; i < count; i++) {
            uint64_t key;
            memcpy(&key, &from[i], sizeof key);
            to[counts[t][key >> t * BITS & (SIZE - 1)]++] = from[i];
        }
        double *swap = from;
        from = to;
        to = swap;
    }
    if (from != a) memcpy(a, from, (size_t)count * sizeof *a);
}

/* The ideal of nDCG: `unjudged/gains.py`, where the method stands. */
typedef struct {
    const double *step, *total; /* what each level adds, and discounts summed, of the ideal's ranks */
    const int64_t *held;        /* (levels, queries) */
    int64_t levels, queries, most;
    int64_t *limit;
} Ideal;

static int lease_ideal(Lease *lease, Ideal *ideal, PyObject *held, PyObject *step, PyObject *total,
                       long long first, long long last) {
    *ideal = (Ideal){0};
    if (!(ideal->step = lease_array(lease, step, 8, 1, READ))) return 0;
    ideal->levels = lease->buffers[lease->count - 1].len / 8;
    if (!(ideal->total = lease_array(lease, total, 8, 1, READ))) return 0;
    ideal->most = lease->buffers[lease->count - 1].len / 8 - 1;
    if (!(ideal->held = lease_array(lease, held, 8, ideal->levels * last, READ))) return 0;
    ideal->queries = lease->buffers[lease->count - 1].len / 8 / ideal->levels;
    for (int64_t q = first; q < last; q++)
        for (int64_t l = 0; l < ideal->levels; l++) {
            int64_t here = ideal->held[l * ideal->queries + q];
            if (here < 0 || here > INT32_MAX) {
                PyErr_SetString(PyExc_ValueError, "these are no numbers of documents");
                return 0;
            }
        }
    ideal->limit = malloc((size_t)ideal->levels * sizeof *ideal->limit);
    if (!ideal->limit) PyErr_NoMemory();
    return ideal->limit != NULL;
}

/* The ideal of a query with n more documents of the highest grade. */
static inline double ideal_with(const Ideal *ideal, int64_t q, int64_t n) {
    double sum = 0.0;
    for (int64_t l = 0; l < ideal->levels; l++) {
        int64_t full = ideal->held[l * ideal->queries + q] + n;
        sum += ideal->step[l] * ideal->total[full < ideal->most ? full : ideal->most];
    }
    return sum;
}

/* Dinkelbach's steps from a value of 0 or more: sums[i] are of the first at[i] holes, i if that is
 * NULL, up to sums[last]. */
static double climb(const Ideal *ideal, int64_t q, double known, const double *sums,
                    const int64_t *at, int64_t last, double best) {
    for (int64_t l = 0; l < ideal->levels; l++) ideal->limit[l] = last;
    for (int tries = 0; tries < 200; tries++) {
        double above = known, below = 0.0;
        for (int64_t l = 0; l < ideal->levels; l++) {
            int64_t base = ideal->held[l * ideal->queries + q], chosen = 0, i = 0;
            double most_worth = -INFINITY;
            /* No more than at a lower value, and than of a lower grade. */
            int64_t *limit = ideal->limit + l;
            if (l && *limit > limit[-1]) *limit = limit[-1];
            for (; !at && i <= *limit && base + i < ideal->most; i++) {
                double worth = sums[i] - best * ideal->total[base + i];
                if (worth > most_worth) most_worth = worth, chosen = i;
            }
            for (; i <= *limit; i++) {
                int64_t full = base + (at ? at[i] : i);
                double worth = sums[i] - best * ideal->total[full < ideal->most ? full : ideal->most];
                if (worth > most_worth) most_worth = worth, chosen = i;
            }
            *limit = chosen;
            int64_t full = base + (at ? at[chosen] : chosen);
            above += ideal->step[l] * sums[chosen];
            below += ideal->step[l] * ideal->total[full < ideal->most ? full : ideal->most];
        }
        if (!(below > 0.0 && above / below > best)) break;
        best = above / below;
    }
    return best;
}

/* The highest (known + sum of gains * what a hole weighs) / ideal over all grades of the holes; what
 * both have weighs sign * shared. `lead` holes besides weigh nothing, and come first, where no other
 * weighs more than that. `space` has room for all holes twice, and eight more. */
static double highest_gain(const Ideal *ideal, int64_t q, double known, Weighed holes, double sign,
                           int64_t lead, double *space) {
    int64_t count = holes.owned + holes.both + holes.other, helping = holes.owned;
    double *fall = space, *sums = fall + count + 4, all = 0.0, v = 0.0;
    double best = ideal_with(ideal, q, lead);
    best = best > 0.0 ? known / best : -INFINITY;
    for (int64_t l = 0; l < ideal->levels; l++) v += ideal->step[l];
    for (int part = 1; part <= 4 && holes.owned; part++) { /* a value to begin with */
        int64_t to = holes.owned * part / 4;
        for (int64_t i = holes.owned * (part - 1) / 4; i < to; i++) all += holes.own[i];
        double below = ideal_with(ideal, q, lead + to);
        if (below > 0.0 && known + v * all > best * below) best = (known + v * all) / below;
    }
    double lanes[4] = {0.0, 0.0, 0.0, 0.0};
    for (int64_t i = 0; i < holes.both; i++) {
        double d = sign * holes.shared[i];
        lanes[i & 3] += d > 0.0 ? d : 0.0;
        helping += d > 0.0;
    }
    all += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    if (known + v * all >= 0.0 && helping) {
        double below = ideal_with(ideal, q, lead + helping);
        if (below > 0.0 && known + v * all > best * below) best = (known + v * all) / below;
        if (!isfinite(best)) return NAN;
        /* What weighs less than the last place of the ideal costs is no help. */
        int64_t last = ideal->held[q] + helping, kept = 0, owned = holes.owned;
        double price = 0.0;
        if (last <= ideal->most && best > 0.0)
            price = best * (ideal->total[last] - ideal->total[last - 1]) * (1.0 - 1e-9);
        for (int64_t i = 0; i < holes.both; i++) {
            fall[kept] = sign * holes.shared[i];
            kept += fall[kept] > price;
        }
        while (owned > 0 && !(holes.own[owned - 1] > price)) owned--;
        sort_many(fall, sums, kept);
        fall[kept] = -1.0;
        sums[0] = 0.0;
        for (int64_t i = 0, j = 0, n = 0; n < owned + kept; n++) { /* both, laid together */
            double one = i < owned ? holes.own[i] : -1.0, other = fall[j];
            int first = one >= other;
            sums[n + 1] = sums[n] + (first ? one : other);
            i += first, j += !first;
        }
        return climb(ideal, q, known, sums, NULL, owned + kept, best);
    }
    /* Past those that help, more holes only make the ideal larger: good for a value below 0, or where
     * nothing is relevant yet. Then all that are taken have the highest grade. */
    int64_t room = ideal->most - ideal->held[(ideal->levels - 1) * ideal->queries + q] - lead;
    if (room > count) room = count;
    if (holes.owned) memcpy(fall, holes.own, (size_t)holes.owned * sizeof *fall);
    for (int64_t i = 0; i < holes.both; i++) fall[holes.owned + i] = sign * holes.shared[i];
    for (int64_t i = 0; i < holes.other; i++) fall[count - 1 - i] = -holes.theirs[i];
    sort_falling(fall, count);
    double sum = 0.0;
    for (int64_t n = 1; n <= (room > helping ? room : helping); n++) {
        sum += fall[n - 1];
        double above = known + v * sum, below = ideal_with(ideal, q, lead + n);
        /* A division takes longer than to see that it is of no use. */
        if (below > 0.0 && above >= best * below - fabs(best * below) * 1e-14 && above / below > best)
            best = above / below;
    }
    return isfinite(best) ? best : NAN;
}

/* gain(delta, sign, begin, known, held, step, total, lead, value, first, last)
 *
 * The highest (known + sum of gains * sign * delta) / ideal of each query over all grades of its holes:
 * ndcg_highest of unjudged/gains.py for one delta of each hole, where the method stands. */
static PyObject *native_gain(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *delta_, *begin_, *known_, *held_, *step_, *total_, *lead_, *value_;
    long long first, last;
    double sign;
    if (!PyArg_ParseTuple(args, "OdOOOOOOOLL", &delta_, &sign, &begin_, &known_, &held_, &step_,
                          &total_, &lead_, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Ideal ideal = {0};
    double *space = NULL, *value = NULL;
    int64_t most = 0;
    int done = 0;
    const int64_t *begin = NULL, *lead = NULL;
    const double *known = NULL, *delta = NULL;
    if (!(begin = lease_array(&lease, begin_, 8, last + 1, READ)) || !ascends(begin, last) ||
        !lease_ideal(&lease, &ideal, held_, step_, total_, first, last) ||
        !(known = lease_array(&lease, known_, 8, last, READ)) ||
        !(lead = lease_array(&lease, lead_, 8, last, READ)) ||
        !(value = lease_array(&lease, value_, 8, last, WRITE)) ||
        !(delta = lease_array(&lease, delta_, 8, begin[last], READ)))
        goto end;
    for (int64_t q = first; q < last; q++) {
        if (lead[q] < 0 || lead[q] > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "these are no numbers of documents");
            goto end;
        }
        if (begin[q + 1] - begin[q] > most) most = begin[q + 1] - begin[q];
    }
    if (!(space = malloc((size_t)(most + 4) * 2 * sizeof *space))) {
        PyErr_NoMemory();
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        Weighed holes = {.shared = delta + begin[q], .both = begin[q + 1] - begin[q]};
        value[q] = highest_gain(&ideal, q, known[q], holes, sign, lead[q], space);
    }
    Py_END_ALLOW_THREADS;
    done = 1;
end:
    free(space);
    free(ideal.limit);
    lease_end(&lease);
    if (!done) return NULL;
    Py_RETURN_NONE;
}

/* gains(theirs, own, start_a, start_b, weight, known, held, step, total, high, low, first, last)
 *
 * Both ends of the difference of two runs: `gain` of what their holes weigh, and less that of a
 * difference the other way round. */
static PyObject *native_gains(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *theirs_, *own_, *start_a_, *start_b_, *weight_, *known_, *held_, *step_, *total_,
        *high_, *low_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOLL", &theirs_, &own_, &start_a_, &start_b_, &weight_,
                          &known_, &held_, &step_, &total_, &high_, &low_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Pair pair;
    Ideal ideal = {0};
    const double *known = NULL;
    double *high = NULL, *low = NULL;
    int good = 0;
    if (!lease_pair(&lease, &pair, theirs_, own_, start_a_, start_b_, weight_, first, last) ||
        !lease_ideal(&lease, &ideal, held_, step_, total_, first, last) ||
        !(known = lease_array(&lease, known_, 8, last, READ)) ||
        !(high = lease_array(&lease, high_, 8, last, WRITE)) ||
        !(low = lease_array(&lease, low_, 8, last, WRITE)))
        goto end;
    good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && good; q++) {
        Weighed holes, turned;
        good = weigh(&pair, q, &holes);
        if (!good) break;
        double *space = pair.delta + 2 * pair.room + 4;
        high[q] = highest_gain(&ideal, q, known[q], holes, 1.0, 0, space);
        turned = (Weighed){holes.theirs, holes.shared, holes.own, holes.other, holes.both, holes.owned};
        low[q] = -highest_gain(&ideal, q, -known[q], turned, -1.0, 0, space);
    }
    Py_END_ALLOW_THREADS;
    if (!good) PyErr_SetString(PyExc_ValueError, "these are not the holes of the lists");
end:
    free(pair.delta);
    free(ideal.limit);
    lease_end(&lease);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

/* From the last hole up each adds more to the sum than the one before it, and less to the ideal: the
 * share falls and then rises. */
static double lowest_discounted(const Path *path, const Ideal *ideal, int64_t q, const double *sums,
                                double known, double worth, int64_t extra) {
    const int64_t *r = path->rank + path->begin[q];
    int64_t count = path->begin[q + 1] - path->begin[q];
    double sum = known;
    for (int64_t i = count; i >= 0; i--) {
        int64_t to = i == count ? path->reach[q] : r[i] - 1, length = to - (i ? r[i - 1] : 0);
        int64_t low = 0, high = length, n = length - 1; /* at first whether all are taken */
        while (low < high) {
            double ideal_n = ideal_with(ideal, q, extra + n), next = sums[to - n] - sums[to - n - 1];
            double more = ideal_with(ideal, q, extra + n + 1) - ideal_n;
            double here = sum + worth * (sums[to] - sums[to - n]);
            if (ideal_n > 0.0 && worth * next * ideal_n >= here * more) high = n;
            else low = n + 1;
            n = (low + high) / 2;
        }
        sum += worth * (sums[to] - sums[to - low]);
        extra += low;
        if (low < length) break;
    }
    double below = ideal_with(ideal, q, extra);
    return below > 0.0 ? sum / below : NAN;
}

/* gain_in_rows(rank, begin, reach, sums, known, held, step, total, extra, highest, value, first, last)
 *
 * The highest or lowest nDCG of each query of which every rank that is not given is a hole. The
 * holes in a row, from the first down, each cost less of the ideal's place, as the next has less to
 * lose: all of them are taken, or none. */
static PyObject *native_gain_in_rows(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *rank_, *begin_, *reach_, *sums_, *known_, *held_, *step_, *total_, *extra_, *value_;
    long long first, last;
    int highest;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOpOLL", &rank_, &begin_, &reach_, &sums_, &known_, &held_,
                          &step_, &total_, &extra_, &highest, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    Path path = {0};
    Ideal ideal = {0};
    int64_t *at = NULL;
    int done = 0;
    const double *sums = NULL, *known = NULL;
    const int64_t *extra = NULL;
    double *value = NULL;
    if (!lease_path(&lease, &path, NULL, rank_, begin_, reach_, 1, first, last) ||
        !(sums = lease_array(&lease, sums_, 8, longest(&path, first, last) + 1, READ)) ||
        !lease_ideal(&lease, &ideal, held_, step_, total_, first, last) ||
        !(known = lease_array(&lease, known_, 8, last, READ)) ||
        !(extra = lease_array(&lease, extra_, 8, last, READ)) ||
        !(value = lease_array(&lease, value_, 8, last, WRITE)))
        goto end;
    at = malloc((size_t)(path.most + 2) * 2 * sizeof *at);
    if (!at) {
        PyErr_NoMemory();
        goto end;
    }
    double *held = (double *)(at + path.most + 2), worth = 0.0;
    for (int64_t l = 0; l < ideal.levels; l++) worth += ideal.step[l];
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        if (!highest) {
            value[q] = lowest_discounted(&path, &ideal, q, sums, known[q], worth, extra[q]);
            continue;
        }
        int64_t rows = 0, rank = 0;
        at[0] = 0, held[0] = 0.0;
        for (int64_t i = path.begin[q]; i <= path.begin[q + 1]; i++) {
            int64_t next = i < path.begin[q + 1] ? path.rank[i] : path.reach[q] + 1;
            if (next > rank + 1) {
                at[rows + 1] = at[rows] + next - rank - 1;
                held[rows + 1] = held[rows] + sums[next - 1] - sums[rank];
                rows++;
            }
            rank = next;
        }
        double none = ideal_with(&ideal, q, 0), full = ideal_with(&ideal, q, at[rows]);
        double best = none > 0.0 ? known[q] / none : -INFINITY;
        double all = full > 0.0 ? (known[q] + worth * held[rows]) / full : -INFINITY;
        if (all > best) best = all;
        value[q] = best >= 0.0 ? climb(&ideal, q, known[q], held, at, rows, best) : NAN;
    }
    Py_END_ALLOW_THREADS;
    done = 1;
end:
    free(at);
    free(path.stop);
    free(ideal.limit);
    lease_end(&lease);
    if (!done) return NULL;
    Py_RETURN_NONE;
}

/* So many that weigh nothing take room first, then each kind in turn. */
static inline double filled(int64_t room, int64_t first, const int64_t count[3], const double weight[3]) {
    double sum = 0.0;
    room = room > first ? room - first : 0;
    for (int i = 0; i < 3; i++) {
        int64_t taken = count[i] < room ? count[i] : room;
        sum += (double)taken * weight[i];
        room -= taken;
    }
    return sum;
}

/* sets(kinds, weight4, weight3, k, low, high, first, last)
 *
 * The lowest and highest RAnWG over how many holes have grade 3, 4 and 5: _tried_sets of
 * unjudged/graded.py. weight4[n5, n4] is what grade 4 weighs with so many of 5 and 4 in the pool. */
static PyObject *native_sets(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *kinds_, *weight4_, *weight3_, *low_, *high_;
    long long k, wide4, wide3, first, last;
    if (!PyArg_ParseTuple(args, "OOLOLLOOLL", &kinds_, &weight4_, &wide4, &weight3_, &wide3, &k, &low_,
                          &high_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease = {.count = 0};
    const int64_t *kinds = NULL;
    const double *weight4 = NULL, *weight3 = NULL;
    double *low = NULL, *high = NULL;
    int64_t most5 = 0, most4 = 0, most3 = 0;
    int done = 0;
    if (!(kinds = lease_array(&lease, kinds_, 8, 12 * last, READ))) goto end;
    for (int64_t q = first; q < last; q++) {
        const int64_t *of = kinds + 12 * q;
        for (int i = 0; i < 12; i++)
            if (of[i] < 0 || of[i] > INT32_MAX) {
                PyErr_SetString(PyExc_ValueError, "these are no numbers of documents");
                goto end;
            }
        if (of[9] + of[7] > most3) most3 = of[9] + of[7];
        if (of[10] + of[7] > most4) most4 = of[10] + of[7];
        if (of[11] + of[7] > most5) most5 = of[11] + of[7];
    }
    if (most4 >= wide4 || most3 >= wide3) {
        PyErr_SetString(PyExc_ValueError, "a weight for every number of documents");
        goto end;
    }
    if (!(weight4 = lease_array(&lease, weight4_, 8, (most5 + 1) * wide4, READ)) ||
        !(weight3 = lease_array(&lease, weight3_, 8, (most5 + 1) * wide3, READ)) ||
        !(low = lease_array(&lease, low_, 8, last, WRITE)) ||
        !(high = lease_array(&lease, high_, 8, last, WRITE)))
        goto end;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        const int64_t *of = kinds + 12 * q, holes = of[7], slots = of[8];
        double least = NAN, most = NAN;
        for (int64_t a5 = 0; a5 <= holes; a5++) {
            int64_t n5 = of[11] + a5;
            for (int64_t a4 = 0; a4 <= holes - a5; a4++) {
                int64_t n4 = of[10] + a4;
                double w4 = weight4[n5 * wide4 + n4];
                const double *w3s = weight3 + n5 * wide3 + of[9];
                for (int64_t a3 = 0; a3 <= holes - a5 - a4; a3++) {
                    int64_t n3 = of[9] + a3, f3 = of[3] + a3, f4 = of[4] + a4, f5 = of[5] + a5;
                    double w3 = w3s[a3];
                    int three = w3 > w4; /* a rare grade 3 can outweigh a common grade 4 */
                    double heavy = three ? w3 : w4, light = three ? w4 : w3;
                    int64_t pool[3] = {n5, three ? n3 : n4, three ? n4 : n3};
                    double falling[3] = {1.0, heavy, light}, rising[3] = {light, heavy, 1.0};
                    double ideal = filled(k, 0, pool, falling);
                    if (!(ideal > 0.0)) continue;
                    double known = (double)of[2] + (double)of[1] * w4 + (double)of[0] * w3;
                    int64_t best[3] = {f5, three ? f3 : f4, three ? f4 : f3};
                    int64_t worst[3] = {best[2], best[1], f5};
                    double above = known + filled(slots, 0, best, falling);
                    double below = known + filled(slots, of[6] + holes - a3 - a4 - a5, worst, rising);
                    if (!(above <= most * ideal)) most = above / ideal;
                    if (!(below >= least * ideal)) least = below / ideal;
                }
            }
        }
        low[q] = least, high[q] = most > 1.0 ? 1.0 : most;
    }
    Py_END_ALLOW_THREADS;
    done = 1;
end:
    lease_end(&lease);
    if (!done) return NULL;
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------------- lists without ties, in order */

/* precisions(query, rank, grade, rel, cut, total): adds to each query's total, up to its cut, the
 * number of relevant documents so far over the rank of each of them. */
static PyObject *native_precisions(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *query_, *rank_, *grade_, *cut_, *total_;
    long long rel;
    if (!PyArg_ParseTuple(args, "OOOLOO", &query_, &rank_, &grade_, &rel, &cut_, &total_)) return NULL;
    Lease lease = {.count = 0};
    const int64_t *query = lease_array(&lease, query_, 8, 0, READ);
    int64_t count = query ? lease.buffers[0].len / 8 : 0;
    const int64_t *rank = query ? lease_array(&lease, rank_, 8, count, READ) : NULL;
    const int64_t *grade = rank ? lease_array(&lease, grade_, 8, count, READ) : NULL;
    double *total = grade ? lease_array(&lease, total_, 8, 0, WRITE) : NULL;
    int64_t queries = total ? lease.buffers[3].len / 8 : 0;
    const int64_t *cut = total ? lease_array(&lease, cut_, 8, queries, READ) : NULL;
    int good = cut != NULL;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t i = 0, last = -1, number = 0; i < count && good; i++) {
        int64_t q = query[i];
        good = q >= 0 && q < queries;
        if (!good || grade[i] < rel) continue;
        number = q == last ? number + 1 : 1;
        last = q;
        if (rank[i] <= cut[q]) total[q] += (double)number / (double)rank[i];
    }
    Py_END_ALLOW_THREADS;
    if (cut && !good) PyErr_SetString(PyExc_ValueError, "there is no such query");
    lease_end(&lease);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

/* discounted(query, rank, gain, discount, cut, total): adds gain/discount[rank] to each query's
 * total, up to its cut. */
static PyObject *native_discounted(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *query_, *rank_, *gain_, *discount_, *cut_, *total_;
    if (!PyArg_ParseTuple(args, "OOOOOO", &query_, &rank_, &gain_, &discount_, &cut_, &total_))
        return NULL;
    Lease lease = {.count = 0};
    const int64_t *query = lease_array(&lease, query_, 8, 0, READ);
    int64_t count = query ? lease.buffers[0].len / 8 : 0;
    const int64_t *rank = query ? lease_array(&lease, rank_, 8, count, READ) : NULL;
    const double *gain = rank ? lease_array(&lease, gain_, 8, count, READ) : NULL;
    double *total = gain ? lease_array(&lease, total_, 8, 0, WRITE) : NULL;
    int64_t queries = total ? lease.buffers[3].len / 8 : 0;
    const double *discount = total ? lease_array(&lease, discount_, 8, 1, READ) : NULL;
    int64_t longest = discount ? lease.buffers[4].len / 8 : 0;
    const int64_t *cut = discount ? lease_array(&lease, cut_, 8, queries, READ) : NULL;
    int good = cut != NULL;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t i = 0; i < count && good; i++) {
        int64_t q = query[i], r = rank[i];
        good = q >= 0 && q < queries && r >= 0;
        if (!good || r > cut[q]) continue;
        good = r < longest;
        if (good) total[q] += gain[i] / discount[r];
    }
    Py_END_ALLOW_THREADS;
    if (cut && !good) PyErr_SetString(PyExc_ValueError, "there is no such query or rank");
    lease_end(&lease);
    if (!good) return NULL;
    Py_RETURN_NONE;
}

/* tally(start, grade, low, high, count): how many grades of each query are in low to high. */
static PyObject *native_tally(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *start_, *grade_, *count_;
    long long low, high;
    if (!PyArg_ParseTuple(args, "OOLLO", &start_, &grade_, &low, &high, &count_)) return NULL;
    Lease lease = {.count = 0};
    int64_t *count = lease_array(&lease, count_, 8, 0, WRITE);
    int64_t queries = count ? lease.buffers[0].len / 8 : 0;
    const int64_t *start = count ? lease_array(&lease, start_, 8, queries + 1, READ) : NULL;
    const int64_t *grade = start && ascends(start, queries)
                               ? lease_array(&lease, grade_, 8, start[queries], READ)
                               : NULL;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = 0; q < queries && grade; q++) {
        count[q] = 0;
        for (int64_t i = start[q]; i < start[q + 1]; i++)
            count[q] += grade[i] >= low && grade[i] <= high;
    }
    Py_END_ALLOW_THREADS;
    lease_end(&lease);
    if (!grade) return NULL;
    Py_RETURN_NONE;
}

/* ideal(start, grade, worth, discount, cut, total): adds to each query's total what its grades are
 * worth, the highest first, each over the discount of its place, up to place `cut`. */
static PyObject *native_ideal(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *start_, *grade_, *worth_, *discount_, *total_;
    long long cut;
    if (!PyArg_ParseTuple(args, "OOOOLO", &start_, &grade_, &worth_, &discount_, &cut, &total_))
        return NULL;
    Lease lease = {.count = 0};
    double *total = lease_array(&lease, total_, 8, 0, WRITE);
    int64_t queries = total ? lease.buffers[0].len / 8 : 0;
    const int64_t *start = total ? lease_array(&lease, start_, 8, queries + 1, READ) : NULL;
    const int64_t *grade = start ? lease_array(&lease, grade_, 8, 0, READ) : NULL;
    int64_t judged = grade ? lease.buffers[2].len / 8 : 0;
    const double *worth = grade ? lease_array(&lease, worth_, 8, 1, READ) : NULL;
    int64_t levels = worth ? lease.buffers[3].len / 8 : 0;
    const double *discount = worth ? lease_array(&lease, discount_, 8, cut + 1, READ) : NULL;
    int64_t *held = discount ? calloc((size_t)levels, sizeof *held) : NULL;
    int good = held && ascends(start, queries) && start[queries] <= judged;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = 0; q < queries && good; q++) {
        int64_t place = 0;
        for (int64_t i = start[q]; i < start[q + 1] && good; i++) {
            good = grade[i] >= 0 && grade[i] < levels;
            if (good) held[grade[i]]++;
        }
        for (int64_t level = levels; level-- > 0; held[level] = 0)
            for (int64_t n = 0; n < held[level] && place < cut && good; n++)
                total[q] += worth[level] / discount[++place];
    }
    Py_END_ALLOW_THREADS;
    if (!PyErr_Occurred() && !good) PyErr_SetString(PyExc_ValueError, "there is no such grade");
    free(held);
    lease_end(&lease);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* ------------------------------------------------- trec_eval's figures of lists without ties */

/* As compat/trec_eval.py numbers them. */
enum {
    NUM_RET, NUM_REL, NUM_REL_RET, MAP, GM_MAP, RPREC, BPREF, RECIP_RANK, IPREC, PRECISION,
    RELSTRING, RECALL, INFAP, GM_BPREF, RPREC_MULT, UTILITY, ELEVEN, BING, GAIN, NDCG, NDCG_REL,
    RNDCG, NDCG_CUT, MAP_CUT, RELATIVE_P, SUCCESS, SET_P, SET_RELATIVE_P, SET_RECALL, SET_MAP,
    SET_F, NUM_NONREL, YAAP, FIGURES,
};

enum { GRADES = 64 }; /* grades below it are counted */

/* What is asked for, and the sums over documents that it needs. */
typedef struct {
    int64_t count, rel;
    const int64_t *which;
    const double *at; /* a cutoff or a share */
    int peaks, preferred, inferred, binary, gains;
} Wanted;

/* log2(rank + 1) by rank, as far as there was need of it. */
typedef struct {
    int64_t count;
    double *value;
} Discount;

static int discount_up_to(Discount *d, int64_t rank) {
    if (rank < d->count) return 1;
    int64_t count = 2 * rank + 64;
    double *more = realloc(d->value, (size_t)count * sizeof *more);
    if (!more) return 0;
    d->value = more;
    for (; d->count < count; d->count++) more[d->count] = log2((double)(d->count + 1));
    return 1;
}

/* A query's relevant documents by rank, those with a gain, and the ideal list. Sums run from
 * place 1 on; at 0 they are 0. */
typedef struct {
    Discount discount;
    char *memory;
    int64_t room;
    int64_t listed, wanted, others; /* others were judged and are not relevant */
    int64_t found, *rank;
    double *sum, *peak; /* of precisions; the highest from here on */
    double preferred, inferred, binary;
    int64_t gains, *gain_rank, *gain;
    double *reached;
    int64_t ideals, *cost;
    double *best;
    int64_t changes, change[GRADES]; /* where the ideal list changes its gain */
    int64_t held[GRADES]; /* documents of each grade; 0 between queries */
} Listed;

/* Makes room for so many judged documents, of ranks up to `last`. */
static int listed_fit(Listed *q, int64_t count, int64_t last) {
    if (!discount_up_to(&q->discount, last > count ? last : count)) return 0;
    if (q->memory && count < q->room) return 1;
    free(q->memory);
    q->room = 2 * count + 2;
    q->memory = malloc((size_t)q->room * 8 * 8);
    if (!q->memory) return 0;
    int64_t *ints = (int64_t *)q->memory;
    double *reals = (double *)(ints + 4 * q->room);
    q->rank = ints, q->gain_rank = ints + q->room, q->gain = ints + 2 * q->room;
    q->cost = ints + 3 * q->room, q->sum = reals, q->peak = reals + q->room;
    q->reached = reals + 2 * q->room, q->best = reals + 3 * q->room;
    return 1;
}

static void listed_free(Listed *q) {
    free(q->memory);
    free(q->discount.value);
}

/* How many of ascending ranks are up to a cut. */
static inline int64_t up_to(const int64_t *rank, int64_t count, int64_t cut) {
    if (!count || rank[count - 1] <= cut) return count;
    int64_t low = 0;
    for (int64_t high = count - 1; low < high;) {
        int64_t middle = (low + high) / 2;
        if (rank[middle] <= cut)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline double share(double part, double of) { return of > 0 ? part / of : 0.0; }

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* The relevant documents of a query, and the sums over them. */
static void look_at_relevant(Listed *q, const Wanted *w, const int64_t *rank, const int64_t *grade,
                             int64_t count) {
    const double little = 0.00001; /* as trec_eval has it */
    int64_t above = 0, bound = least(q->wanted, q->others);
    q->found = 0;
    q->preferred = q->inferred = q->binary = 0.0;
    double total = q->sum[0] = 0.0;
    for (int64_t i = 0; i < count; i++) {
        if (grade[i] < w->rel) {
            above++;
            continue;
        }
        double r = (double)q->found, n = (double)above, over = (double)rank[i] - 1.0;
        q->rank[q->found++] = rank[i];
        q->peak[q->found] = (double)q->found / (double)rank[i];
        q->sum[q->found] = total += q->peak[q->found];
        if (w->preferred)
            q->preferred += 1.0 - (bound > 0 ? (double)least(above, bound) / (double)bound : 0.0);
        if (w->inferred) {
            double chance = (r + little) / (r + n + 2 * little);
            double rest = over / (over + 1.0) * ((r + n) / (over > 1.0 ? over : 1.0)) * chance;
            q->inferred += 1.0 / (over + 1.0) + rest;
        }
        if (w->binary) q->binary += 1.0 / q->discount.value[rank[i] - q->found + 1];
    }
    for (int64_t i = w->peaks ? q->found - 1 : 0; i > 0; i--)
        if (q->peak[i] < q->peak[i + 1]) q->peak[i] = q->peak[i + 1];
}

/* Its documents with a gain, and the ideal list, of grades up to `top`. */
static void look_at_gains(Listed *q, const int64_t *rank, const int64_t *grade, int64_t count,
                          int64_t top) {
    double reached = q->reached[0] = q->best[0] = 0.0, best = 0.0;
    q->gains = q->ideals = q->changes = q->cost[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (grade[i] <= 0) continue;
        q->gain_rank[q->gains] = rank[i];
        q->gain[q->gains++] = grade[i];
        q->reached[q->gains] = reached += (double)grade[i] / q->discount.value[rank[i]];
    }
    for (int64_t level = top; level > 0; level--) {
        for (int64_t n = 0; n < q->held[level]; n++) {
            int64_t place = ++q->ideals;
            q->best[place] = best += (double)level / q->discount.value[place];
            q->cost[place] = q->cost[place - 1] + level;
        }
        if (q->held[level]) q->change[q->changes++] = q->ideals;
    }
}

static double gain_over_cost(const Listed *q) {
    double value = 0.0;
    int64_t gained = 0;
    for (int64_t i = 0; i < q->gains; i++) {
        int64_t rank = q->gain_rank[i], lost = 2 + q->cost[least(rank, q->ideals)];
        if (rank > q->ideals) lost += rank - q->ideals;
        lost -= gained += q->gain[i];
        int known = lost <= q->discount.count;
        value += (double)q->gain[i] / (known ? q->discount.value[lost - 1] : log2((double)lost));
    }
    return share(value, (double)q->cost[q->ideals]);
}

static double ndcg_at_relevant(const Listed *q) {
    double total = 0.0;
    if (!q->ideals) return 0.0;
    for (int64_t i = 0; i < q->gains; i++)
        total += q->reached[i + 1] / q->best[least(q->gain_rank[i], q->ideals)];
    total += (double)(q->ideals - q->gains) * q->reached[q->gains] / q->best[q->ideals];
    return total / (double)q->ideals;
}

static double ndcg_at_levels(const Listed *q) {
    double total = 0.0;
    int64_t points = q->changes;
    if (!q->wanted) return 0.0;
    if (!q->ideals) return copysign(NAN, -1.0); /* 0/0 by -l 0 */
    for (int64_t i = 0; i < q->changes; i++)
        total += q->reached[up_to(q->gain_rank, q->gains, q->change[i])] / q->best[q->change[i]];
    if (q->listed > q->ideals + 1) {
        total += q->reached[up_to(q->gain_rank, q->gains, q->listed)] / q->best[q->ideals];
        points++;
    }
    return total / (double)points;
}

static inline double interpolated_at(const Listed *q, double level) {
    int64_t at = (int64_t)floor(level * (double)q->wanted + 0.9);
    if (at < 1) at = 1;
    return at <= q->found ? q->peak[at] : 0.0;
}

/* What a geometric mean is the mean of. */
static inline double log_of(double value) { return log(value > 1e-5 ? value : 1e-5); }

static double figure(const Listed *q, int64_t which, double at) {
    double listed = (double)(q->listed > 0 ? q->listed : 1), wanted = (double)q->wanted;
    double found = (double)q->found, value = 0.0;
    int64_t cut = (int64_t)at;
    switch (which) {
    case NUM_RET: return (double)q->listed;
    case NUM_REL: return wanted;
    case NUM_REL_RET: return found;
    case MAP: return share(q->sum[q->found], wanted);
    case GM_MAP: return log_of(share(q->sum[q->found], wanted));
    case RPREC: return share((double)up_to(q->rank, q->found, q->wanted), wanted);
    case BPREF: return share(q->preferred, wanted);
    case GM_BPREF: return log_of(share(q->preferred, wanted));
    case RECIP_RANK: return q->found ? 1.0 / (double)q->rank[0] : 0.0;
    case IPREC: return interpolated_at(q, at);
    case PRECISION: return (double)up_to(q->rank, q->found, cut) / at;
    case RECALL: return share((double)up_to(q->rank, q->found, cut), wanted);
    case INFAP: return share(q->inferred, wanted);
    case RPREC_MULT:
        cut = (int64_t)(at * wanted + 0.9);
        return share((double)up_to(q->rank, q->found, cut), (double)cut);
    case UTILITY: return (double)(2 * q->found - q->listed);
    case ELEVEN:
        for (int tenth = 10; tenth >= 0; tenth--) value += interpolated_at(q, tenth / 10.0);
        return value / 11;
    case BING: return share(q->binary, wanted);
    case GAIN: return gain_over_cost(q);
    case NDCG: return share(q->reached[q->gains], q->best[q->ideals]);
    case NDCG_REL: return ndcg_at_relevant(q);
    case RNDCG: return ndcg_at_levels(q);
    case NDCG_CUT:
        value = q->reached[up_to(q->gain_rank, q->gains, cut)];
        return share(value, q->best[least(cut, q->ideals)]);
    case MAP_CUT: return share(q->sum[up_to(q->rank, q->found, cut)], wanted);
    case RELATIVE_P:
        return share((double)up_to(q->rank, q->found, cut), (double)least(cut, q->wanted));
    case SUCCESS: return q->found && q->rank[0] <= cut;
    case SET_P: return found / listed;
    case SET_RELATIVE_P: return share(found, (double)least(q->listed, q->wanted));
    case SET_RECALL: return share(found, wanted);
    case SET_MAP: return share(found * found, listed * wanted);
    case SET_F:
        if (!q->found) return 0.0;
        return 2.0 * (found / listed) * (found / wanted) / (found / listed + found / wanted);
    case YAAP: return log((1.0 + q->sum[q->found]) / (1.0 + wanted - q->sum[q->found]));
    default: return 0.0;
    }
}

/* The figures of a query: documents by rank, and the grades of all that were judged. 0 when out of
 * memory. */
static int make_figures(Listed *q, const Wanted *w, int64_t listed, const int64_t *rank,
                        const int64_t *grade, int64_t count, const int64_t *pooled, int64_t pool,
                        double *into) {
    int64_t top = 0;
    if (!listed_fit(q, count > pool ? count : pool, count ? rank[count - 1] : 0)) return 0;
    q->listed = listed, q->others = 0;
    for (int64_t i = 0; i < pool; i++) {
        q->held[pooled[i]]++;
        top = pooled[i] > top ? pooled[i] : top;
        q->others += pooled[i] < w->rel;
    }
    q->wanted = pool - q->others;
    look_at_relevant(q, w, rank, grade, count);
    if (w->gains) look_at_gains(q, rank, grade, count, top);
    memset(q->held, 0, (size_t)(top + 1) * sizeof *q->held);
    for (int64_t n = 0; n < w->count; n++) {
        int64_t which = w->which[n];
        if (which == NUM_NONREL)
            into[n] = (double)(count - q->found);
        else if (!listed && (which == IPREC || which == ELEVEN) &&
                 floor(w->at[n] * (double)q->wanted + 0.9) < 1)
            into[n] = copysign(NAN, -1.0); /* 0/0 */
        else
            into[n] = figure(q, which, w->at[n]);
    }
    return 1;
}

/* Borrows what is asked for; 0 with an error set where that is no figure. */
static int lease_wanted(Lease *lease, Wanted *w, PyObject *which, PyObject *at) {
    int number = lease->count;
    w->which = lease_array(lease, which, 8, 0, READ);
    w->count = w->which ? lease->buffers[number].len / 8 : 0;
    w->at = w->which ? lease_array(lease, at, 8, w->count, READ) : NULL;
    for (int64_t n = 0; n < w->count && w->at; n++) {
        int64_t one = w->which[n];
        if (one < 0 || one >= FIGURES) {
            PyErr_SetString(PyExc_ValueError, "there is no such figure");
            return 0;
        }
        w->peaks |= one == IPREC || one == ELEVEN;
        w->preferred |= one == BPREF || one == GM_BPREF;
        w->inferred |= one == INFAP;
        w->binary |= one == BING;
        w->gains |= one == NDCG || one == NDCG_CUT || one == NDCG_REL || one == RNDCG || one == GAIN;
    }
    return w->at != NULL;
}

/* figures(listed, query, rank, grade, start, pooled, rel, which, at, table): table[q, n] becomes
 * figure which[n] of query q, at a cutoff or a share. The judged documents that are listed stand by
 * query and rank; pooled[start[q]:start[q+1]] are the grades of all. */
static PyObject *native_figures(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *listed_, *query_, *rank_, *grade_, *start_, *pooled_, *which_, *at_, *table_;
    long long rel;
    if (!PyArg_ParseTuple(args, "OOOOOOLOOO", &listed_, &query_, &rank_, &grade_, &start_, &pooled_,
                          &rel, &which_, &at_, &table_))
        return NULL;
    Lease lease = {.count = 0};
    Wanted w = {.rel = rel};
    const int64_t *listed = lease_array(&lease, listed_, 8, 0, READ);
    int64_t queries = listed ? lease.buffers[0].len / 8 : 0;
    const int64_t *query = listed ? lease_array(&lease, query_, 8, 0, READ) : NULL;
    int64_t count = query ? lease.buffers[1].len / 8 : 0;
    const int64_t *rank = query ? lease_array(&lease, rank_, 8, count, READ) : NULL;
    const int64_t *grade = rank ? lease_array(&lease, grade_, 8, count, READ) : NULL;
    const int64_t *start = grade ? lease_array(&lease, start_, 8, queries + 1, READ) : NULL;
    const int64_t *pooled = start ? lease_array(&lease, pooled_, 8, 0, READ) : NULL;
    int64_t judged = pooled ? lease.buffers[5].len / 8 : 0;
    int ready = pooled && lease_wanted(&lease, &w, which_, at_);
    double *table = ready ? lease_array(&lease, table_, 8, queries * w.count, WRITE) : NULL;
    int good = table && ascends(start, queries) && start[queries] <= judged, room = 1;
    for (int64_t i = 0; i < count && good; i++) {
        good = query[i] >= 0 && query[i] < queries && grade[i] < GRADES && rank[i] >= 1 &&
               (!i || query[i] > query[i - 1] || (query[i] == query[i - 1] && rank[i] > rank[i - 1]));
        if (good) good = rank[i] <= listed[query[i]];
    }
    for (int64_t i = 0; i < judged && good; i++) good = pooled[i] >= 0 && pooled[i] < GRADES;
    if (table && !good) PyErr_SetString(PyExc_ValueError, "there is no such query, rank or grade");
    Py_BEGIN_ALLOW_THREADS;
    Listed q = {.memory = NULL};
    for (int64_t n = 0, from = 0, to = 0; n < queries && good && room; n++, from = to) {
        while (to < count && query[to] == n) to++;
        room = make_figures(&q, &w, listed[n], rank + from, grade + from, to - from,
                            pooled + start[n], start[n + 1] - start[n], table + n * w.count);
    }
    listed_free(&q);
    Py_END_ALLOW_THREADS;
    if (!room) PyErr_NoMemory();
    lease_end(&lease);
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

/* ------------------------------------------------------------ dicts of dicts, as scripts have them */

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

/* A number that a list may hold as a score; 0 where it is none, and nothing is raised. */
static int plain_score(PyObject *value, int narrow, double *out) {
    if (PyFloat_Check(value)) {
        *out = PyFloat_AsDouble(value);
    } else if (PyLong_CheckExact(value)) {
        *out = PyLong_AsDouble(value);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
    } else {
        return 0;
    }
    if (narrow) *out = (double)(float)*out;
    return *out == *out;
}

/* A document that ties with others: its id, and the eight bytes of it after those that all of the tie
 * share, as a number, so that most comparisons are of numbers. */
typedef struct {
    uint64_t head;
    const char *text;
    PyObject *id;
    int64_t row;
} Tied;

static inline int compare_tied(const Tied *a, const Tied *b) {
    if (a->head != b->head) return a->head < b->head ? -1 : 1;
    return a->id == b->id ? 0 : PyUnicode_Compare(a->id, b->id);
}

static int compare_falling(const void *a, const void *b) { return compare_tied(b, a); }

/* Of documents that tie, the `some` first of them judged: brings these into the order of their ids,
 * the greatest first, and says how many of all come before each. 0 where an id is not plain text. */
static int settle_tie(Tied *tied, int64_t count, int64_t some, int64_t *before) {
    const char *model = NULL;
    Py_ssize_t size, shared = 0;
    for (int64_t i = 0; i < count; i++) {
        tied[i].text = PyUnicode_AsUTF8AndSize(tied[i].id, &size);
        if (!tied[i].text) {
            PyErr_Clear();
            return 0;
        }
        if (!i) model = tied[i].text, shared = size;
        Py_ssize_t same = 0;
        while (same < shared && same < size && tied[i].text[same] == model[same]) same++;
        shared = same;
    }
    for (int64_t i = 0; i < count; i++) { /* a text ends with 0, behind which nothing is read */
        const unsigned char *s = (const unsigned char *)tied[i].text + shared;
        tied[i].head = 0;
        for (int at = 0; at < 8; at++) {
            tied[i].head = tied[i].head << 8 | *s;
            s += *s != 0;
        }
    }
    qsort(tied, (size_t)some, sizeof *tied, compare_falling);
    memset(before, 0, (size_t)(some + 1) * sizeof *before);
    for (int64_t i = some; i < count; i++) {
        int64_t low = 0;
        for (int64_t high = some; low < high;) {
            int64_t middle = (low + high) / 2;
            if (compare_tied(&tied[middle], &tied[i]) > 0)
                low = middle + 1;
            else
                high = middle;
        }
        before[low]++;
    }
    for (int64_t i = 1; i < some; i++) before[i] += before[i - 1];
    for (int64_t i = 0; i < some; i++) before[i] += i;
    return 1;
}

/* Room for `count` numbers, most of which are to come: NULL when out of memory. */
static int64_t *roomier(int64_t *memory, int64_t *room, int64_t count) {
    if (memory && count <= *room) return memory;
    int64_t size = *room * 2 > count ? *room * 2 : count + 1024;
    int64_t *more = realloc(memory, (size_t)size * sizeof *more);
    if (!more) return NULL;
    *room = size;
    return more;
}

/* Room to settle a list in. */
typedef struct {
    int64_t room;
    Item *items, *space;
    Tied *tied;
    PyObject **docs, **known; /* of each row its id, and its grade or NULL */
    double *score;
    int64_t *before;
    uint64_t sieve[16]; /* a bit for each judged id, so that most others are told by it */
    struct {
        PyObject *object;
        int64_t grade;
    } seen[16]; /* grades are few */
} Desk;

static int desk_fit(Desk *d, int64_t count) {
    if (d->items && count < d->room) return 1; /* `before` is one longer */
    free(d->items);
    d->room = 2 * count + 1;
    d->items = malloc((size_t)d->room * (2 * sizeof(Item) + sizeof(Tied) + 4 * 8));
    if (!d->items) return 0;
    d->space = d->items + d->room, d->tied = (Tied *)(d->space + d->room);
    d->docs = (PyObject **)(d->tied + d->room), d->known = d->docs + d->room;
    d->score = (double *)(d->known + d->room), d->before = (int64_t *)(d->score + d->room);
    return 1;
}

static inline size_t sieve_bit(PyObject *id) { return (size_t)PyObject_Hash(id) & 1023; }

/* A grade as a number; 0 where it is none. */
static inline int plain_grade(Desk *d, PyObject *value, int64_t *out) {
    size_t at = (size_t)value / 32 % 16;
    if (d->seen[at].object != value) {
        int overflow = 1;
        if (PyLong_CheckExact(value)) d->seen[at].grade = PyLong_AsLongLongAndOverflow(value, &overflow);
        d->seen[at].object = overflow ? NULL : value;
        if (overflow) return 0;
    }
    *out = d->seen[at].grade;
    return 1;
}

enum { BLOCK = 32 };

/* The next few members of a dict; they are fetched side by side, since each lies elsewhere. */
static Py_ssize_t next_block(PyObject *dict, Py_ssize_t *place, PyObject **id, PyObject **value) {
    Py_ssize_t count = 0;
    while (count < BLOCK && PyDict_Next(dict, place, &id[count], &value[count])) {
        PREFETCH(id[count]);
        PREFETCH(value[count]);
        count++;
    }
    return count;
}

/* Of two dicts, document → score and document → grade: the grades, and of the documents that both
 * have, by rank, rank and grade. Ties go by id, the greatest first, or stand as they are listed. How
 * many both have; -1 where that is not all there is to it, or with an error set. */
static int64_t settle_list(Desk *d, PyObject *list, PyObject *judged, int narrow, int by_id,
                           int64_t *pooled, int64_t *rank, int64_t *grade) {
    enum { FEW = 16 }; /* whose ranks are counted rather than all sorted */
    PyObject *id[BLOCK], *value[BLOCK];
    int64_t count = 0, shared = 0, kept = 0, found = 0;
    int sieved = 2 * PyDict_Size(judged) < PyDict_Size(list) && PyDict_Size(judged) < 256;
    /* An OrderedDict may have an order of its own. */
    if (!by_id && PyType_GetSlot(Py_TYPE(list), Py_tp_iter) != PyType_GetSlot(&PyDict_Type, Py_tp_iter))
        return -1;
    if (sieved) memset(d->sieve, 0, sizeof d->sieve);
    for (Py_ssize_t place = 0, some; (some = next_block(judged, &place, id, value));) {
        for (Py_ssize_t i = 0; i < some; i++) {
            if (!PyUnicode_CheckExact(id[i]) || !plain_grade(d, value[i], pooled++)) return -1;
            if (sieved) d->sieve[sieve_bit(id[i]) / 64] |= (uint64_t)1 << sieve_bit(id[i]) % 64;
        }
    }
    if (!desk_fit(d, PyDict_Size(list))) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t place = 0, some; (some = next_block(list, &place, id, value));) {
        for (Py_ssize_t i = 0; i < some; i++, count++) {
            if (!PyUnicode_CheckExact(id[i]) || !plain_score(value[i], narrow, &d->score[count]))
                return -1;
            size_t bit = sieved ? sieve_bit(id[i]) : 0;
            int lacks = sieved && !(d->sieve[bit / 64] >> bit % 64 & 1);
            d->docs[count] = id[i];
            d->known[count] = lacks ? NULL : PyDict_GetItemWithError(judged, id[i]);
            shared += d->known[count] != NULL;
        }
    }
    int few = shared <= FEW && 2 * shared <= count;
    for (int64_t row = 0; row < count; row++) {
        d->items[kept] = (Item){d->score[row], row};
        kept += !few || d->known[row];
    }
    sort_items(d->items, d->space, kept);
    for (int64_t first = 0, last; first < kept; first = last) {
        double score = d->items[first].score;
        int64_t begin = found, some = 0;
        for (last = first + 1; last < kept && d->items[last].score == score;) last++;
        int64_t above = few ? 0 : first, same = few ? 0 : last - first;
        for (int64_t row = 0; row < count && few; row++) {
            above += d->score[row] > score;
            same += d->score[row] == score;
        }
        for (int64_t i = first; i < last; i++) {
            int64_t row = d->items[i].row;
            if (!d->known[row]) continue;
            rank[found] = above + 1 + (i - first);
            plain_grade(d, d->known[row], &grade[found++]);
            if (same == 1) break;
            d->tied[some].id = d->docs[row];
            d->tied[some++].row = row;
        }
        if (!some) continue;
        if (!by_id) { /* others may stand between those that were kept */
            for (int64_t i = 0, row = 0, at = 0; i < some && few; row++) {
                if (row == d->tied[i].row) rank[begin + i++] = above + 1 + at;
                at += d->score[row] == score;
            }
            continue;
        }
        int64_t others = some;
        for (int64_t i = few ? 0 : first, end = few ? count : last; i < end && others < same; i++) {
            int64_t row = few ? i : d->items[i].row;
            if (d->score[row] == score && !d->known[row]) d->tied[others++].id = d->docs[row];
        }
        if (!settle_tie(d->tied, same, some, d->before)) return -1;
        for (int64_t i = 0; i < some; i++) {
            rank[begin + i] = above + 1 + d->before[i];
            plain_grade(d, d->known[d->tied[i].row], &grade[begin + i]);
        }
    }
    return found;
}

/* The next query that both dicts have, and its own two; 0 at the end, or where something is not as
 * it mostly is, which `good` then says. */
static int next_query(PyObject *run, PyObject *qrels, Py_ssize_t *place, PyObject **query,
                      PyObject **list, PyObject **judged, int *good) {
    while (*good && PyDict_Next(run, place, query, list)) {
        *good = PyUnicode_CheckExact(*query);
        *judged = *good ? PyDict_GetItemWithError(qrels, *query) : NULL;
        if (!*judged) continue;
        *good = PyDict_Check(*list) && PyDict_Check(*judged);
        return *good;
    }
    return 0;
}

/* settle(run, qrels, narrow, by_id): of two dicts of dicts the queries that both have, and columns:
 * how many documents each lists and how many are judged; the grades, query by query; and of those
 * that are listed, by rank: query, rank and grade. None where that is not all there is to it: what is
 * no dict, id, score or grade as these mostly are. */
static PyObject *native_settle(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run, *qrels, *query, *list, *judged;
    int narrow, by_id;
    if (!PyArg_ParseTuple(args, "O!O!ii", &PyDict_Type, &run, &PyDict_Type, &qrels, &narrow, &by_id))
        return NULL;
    enum { LISTED, JUDGED, GRADE, QUERY, RANK, HELD, COLUMNS };
    int64_t *column[COLUMNS] = {0}, room[COLUMNS] = {0};
    int64_t total = 0, listed = 0, queries = 0;
    Desk desk = {.items = NULL};
    PyObject *names = PyList_New(0), *result = NULL;
    int good = names != NULL;
    Py_ssize_t place = 0;
    while (next_query(run, qrels, &place, &query, &list, &judged, &good)) {
        int64_t own = PyDict_Size(judged);
        for (int c = 0; c < COLUMNS && good; c++) {
            int64_t *more = roomier(column[c], &room[c], c < GRADE ? queries + 1 : total + own);
            good = more != NULL;
            if (more) column[c] = more;
        }
        if (!good) PyErr_NoMemory();
        if (!good || PyList_Append(names, query)) break;
        int64_t found = settle_list(&desk, list, judged, narrow, by_id, column[GRADE] + total,
                                    column[RANK] + listed, column[HELD] + listed);
        good = found >= 0;
        for (int64_t i = 0; i < found; i++) column[QUERY][listed + i] = queries;
        column[LISTED][queries] = PyDict_Size(list);
        column[JUDGED][queries++] = own;
        listed += found;
        total += own;
    }
    free(desk.items);
    int failed = PyErr_Occurred() != NULL;
    if (!failed && good && queries) {
        int64_t length[COLUMNS] = {queries, queries, total, listed, listed, listed};
        PyObject *block[COLUMNS] = {0};
        for (int c = 0; c < COLUMNS; c++) {
            block[c] = block_new(column[c], (size_t)length[c] * sizeof(int64_t));
            column[c] = NULL;
            failed |= !block[c];
        }
        if (!failed)
            result = PyTuple_Pack(7, names, block[0], block[1], block[2], block[3], block[4],
                                  block[5]);
        for (int c = 0; c < COLUMNS; c++) Py_XDECREF(block[c]);
    }
    for (int c = 0; c < COLUMNS; c++) free(column[c]);
    Py_XDECREF(names);
    if (failed || result) return result;
    Py_RETURN_NONE;
}

/* nest(rows, query, doc, value): {query: {document: value}} of tuples, which hold them there. */
static PyObject *native_nest(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *rows, *last = NULL, *inner = NULL;
    Py_ssize_t at[3];
    if (!PyArg_ParseTuple(args, "O!nnn", &PyList_Type, &rows, &at[0], &at[1], &at[2])) return NULL;
    PyObject *made = PyDict_New();
    Py_ssize_t count = PyList_Size(rows);
    for (Py_ssize_t r = 0; made && r < count; r++) {
        PyObject *row = PyList_GetItem(rows, r), *field[3];
        int bad = !PyTuple_Check(row);
        if (bad) PyErr_SetString(PyExc_TypeError, "expected tuples");
        for (int f = 0; f < 3 && !bad; f++) bad = !(field[f] = PyTuple_GetItem(row, at[f]));
        if (!bad && field[0] != last) {
            last = field[0];
            inner = PyDict_GetItemWithError(made, last);
            bad = !inner && PyErr_Occurred();
            if (!inner && !bad) {
                PyObject *fresh = PyDict_New();
                bad = !fresh || PyDict_SetItem(made, last, fresh);
                inner = fresh; /* which `made` holds */
                Py_XDECREF(fresh);
            }
        }
        if (bad || PyDict_SetItem(inner, field[1], field[2])) Py_CLEAR(made);
    }
    return made;
}

/* Rows of figures as dicts; figures come again and again, so objects of some are kept. */
enum { KEPT_BITS = 12 };

typedef struct {
    PyObject *made, *template, *names;
    Py_ssize_t width;
    double *earlier; /* what the template holds */
    struct {
        double number;
        PyObject *object;
    } kept[1 << KEPT_BITS];
} Rows;

static Rows *rows_new(PyObject *template, PyObject *names) {
    Rows *rows = calloc(1, sizeof *rows);
    if (!rows) return (Rows *)PyErr_NoMemory();
    rows->template = template, rows->names = names, rows->width = PyList_Size(names);
    rows->made = PyDict_New();
    rows->earlier = malloc((size_t)(rows->width + 1) * sizeof(double));
    if (!rows->earlier) PyErr_NoMemory();
    return rows;
}

/* The dict of rows, which the caller owns; NULL with an error set. */
static PyObject *rows_finish(Rows *rows) {
    if (!rows) return NULL;
    PyObject *made = rows->made;
    for (int at = 0; at < 1 << KEPT_BITS; at++) Py_XDECREF(rows->kept[at].object);
    free(rows->earlier);
    free(rows);
    if (PyErr_Occurred()) Py_CLEAR(made);
    return made;
}

static PyObject *rows_number(Rows *rows, double number) {
    uint64_t word;
    memcpy(&word, &number, 8);
    size_t at = word * 0x9E3779B97F4A7C15u >> (64 - KEPT_BITS);
    if (!rows->kept[at].object || memcmp(&rows->kept[at].number, &number, 8)) {
        PyObject *object = PyFloat_FromDouble(number);
        if (!object) return NULL;
        Py_XDECREF(rows->kept[at].object);
        rows->kept[at].number = number;
        rows->kept[at].object = object;
    }
    return rows->kept[at].object;
}

/* Adds {query: a copy of the template with these figures}; 0 with an error set. */
static int rows_add(Rows *rows, PyObject *query, const double *figures) {
    int first = !PyDict_Size(rows->made);
    for (Py_ssize_t n = 0; n < rows->width; n++) {
        if (!first && !memcmp(&figures[n], &rows->earlier[n], 8)) continue;
        PyObject *number = rows_number(rows, figures[n]);
        if (!number || PyDict_SetItem(rows->template, PyList_GetItem(rows->names, n), number))
            return 0;
        rows->earlier[n] = figures[n];
    }
    PyObject *row = PyDict_Copy(rows->template);
    int good = row && !PyDict_SetItem(rows->made, query, row);
    Py_XDECREF(row);
    return good;
}

/* rows(queries, template, names, table): {query: a copy of the template with its values}; `table`
 * holds a row of float64 for each query. The template is written over. */
static PyObject *native_rows(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *queries, *template, *names, *table_;
    if (!PyArg_ParseTuple(args, "O!O!O!O", &PyList_Type, &queries, &PyDict_Type, &template,
                          &PyList_Type, &names, &table_))
        return NULL;
    Lease lease = {.count = 0};
    Py_ssize_t count = PyList_Size(queries), width = PyList_Size(names);
    const double *table = lease_array(&lease, table_, 8, count * width, READ);
    Rows *rows = table ? rows_new(template, names) : NULL;
    for (Py_ssize_t q = 0; q < count && !PyErr_Occurred(); q++)
        rows_add(rows, PyList_GetItem(queries, q), table + q * width);
    lease_end(&lease);
    return rows_finish(rows);
}

/* tabulate(run, qrels, rel, which, at, template, names): `settle` by float32 and id, `figures` and
 * `rows` in one pass, in which what is read of a query is still at hand. Queries without judgements
 * are passed over. None where `settle` would say so, and where `figures` would refuse a grade. */
static PyObject *native_tabulate(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *run, *qrels, *which_, *at_, *template, *names, *query, *list, *judged;
    long long rel;
    if (!PyArg_ParseTuple(args, "O!O!LOOO!O!", &PyDict_Type, &run, &PyDict_Type, &qrels, &rel,
                          &which_, &at_, &PyDict_Type, &template, &PyList_Type, &names))
        return NULL;
    Lease lease = {.count = 0};
    Wanted w = {.rel = rel};
    int good = lease_wanted(&lease, &w, which_, at_);
    if (good && w.count != PyList_Size(names)) {
        PyErr_SetString(PyExc_ValueError, "expected a name for each figure");
        good = 0;
    }
    Rows *rows = good ? rows_new(template, names) : NULL;
    Listed q = {.memory = NULL};
    Desk desk = {.items = NULL};
    int64_t *room = NULL, most = 0;
    double *figures = malloc((size_t)(w.count + 1) * sizeof *figures);
    if (!figures) PyErr_NoMemory();
    good = rows && !PyErr_Occurred();
    int collects = PyGC_Disable(); /* nothing here makes a cycle */
    Py_ssize_t place = 0;
    while (next_query(run, qrels, &place, &query, &list, &judged, &good)) {
        int64_t pool = PyDict_Size(judged);
        if (!pool) continue;
        if (!room || pool > most) {
            free(room);
            most = 2 * pool + 1;
            room = malloc((size_t)most * 3 * sizeof *room);
        }
        int64_t *pooled = room, *rank = room + most, *grade = rank + most;
        int64_t found = room ? settle_list(&desk, list, judged, 1, 1, pooled, rank, grade) : -1;
        good = found >= 0;
        for (int64_t i = 0; i < pool && good; i++) good = pooled[i] >= 0 && pooled[i] < GRADES;
        if (!good) {
            if (!room) PyErr_NoMemory();
            break;
        }
        if (!make_figures(&q, &w, PyDict_Size(list), rank, grade, found, pooled, pool, figures)) {
            PyErr_NoMemory();
            break;
        }
        good = rows_add(rows, query, figures);
    }
    if (collects) PyGC_Enable();
    free(room);
    free(figures);
    free(desk.items);
    listed_free(&q);
    lease_end(&lease);
    PyObject *made = rows_finish(rows);
    if (!made || good) return made;
    Py_DECREF(made);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"nest", native_nest, METH_VARARGS, "Make a dict of dicts of tuples."},
    {"tabulate", native_tabulate, METH_VARARGS, "Make figures of dicts of dicts."},
    {"rows", native_rows, METH_VARARGS, "Make a dict of dicts of a table."},
    {"precisions", native_precisions, METH_VARARGS, "Sum precisions at relevant documents."},
    {"discounted", native_discounted, METH_VARARGS, "Sum discounted gains."},
    {"tally", native_tally, METH_VARARGS, "Count the grades of each query."},
    {"ideal", native_ideal, METH_VARARGS, "Sum the discounted gains of the best order."},
    {"figures", native_figures, METH_VARARGS, "Make trec_eval's figures of lists in order."},
    {"settle", native_settle, METH_VARARGS, "Find where judged documents stand in dicts."},
    {"first_unfit", native_first_unfit, METH_O, "Find an id that is empty or not plain text."},
    {"index", native_index, METH_VARARGS, "Fill hash tables over each query's documents."},
    {"lookup", native_lookup, METH_VARARGS, "Find documents in their queries' lists."},
    {"falls", native_falls, METH_VARARGS, "Find where the scores of a list fall."},
    {"place", native_place, METH_VARARGS, "Find where each row stands in its sorted list."},
    {"grouped", native_grouped, METH_VARARGS, "Find the tie groups of judged documents."},
    {"chosen", native_chosen, METH_VARARGS, "Some of the tie groups."},
    {"counted", native_counted, METH_VARARGS, "Count documents in the top of lists with ties."},
    {"averages", native_averages, METH_VARARGS, "Sum precisions over lists with ties."},
    {"starts", native_starts, METH_VARARGS, "Find where queries begin that stand in order."},
    {"group", native_group, METH_VARARGS, "Find the rows of each query."},
    {"scatter", native_scatter, METH_VARARGS, "Bring the rows of each query together."},
    {"merge", native_merge, METH_VARARGS, "Sum the values of equal documents over lists."},
    {"precision", native_precision, METH_VARARGS, "Bound average precision over holes."},
    {"cascade", native_cascade, METH_VARARGS, "Sum stops down lists with holes."},
    {"preference", native_preference, METH_VARARGS, "Bound bpref over holes."},
    {"interpolated", native_interpolated, METH_VARARGS, "Bound precision at recall over holes."},
    {"share", native_share, METH_VARARGS, "Find the holes that two runs share."},
    {"lead", native_lead, METH_VARARGS, "Weigh the holes of two runs."},
    {"gain", native_gain, METH_VARARGS, "Bound nDCG over holes."},
    {"sets", native_sets, METH_VARARGS, "Bound RAnWG over holes."},
    {"gains", native_gains, METH_VARARGS, "Bound differences of nDCG over holes."},
    {"gain_in_rows", native_gain_in_rows, METH_VARARGS, "Bound nDCG over holes in rows."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, functions,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *m = PyModule_Create(&module);
    if (!m) return NULL;
    block_type = (PyTypeObject *)PyType_FromSpec(&block_spec);
    strings_type = (PyTypeObject *)PyType_FromSpec(&strings_spec);
    PyObject *parser = PyType_FromSpec(&parser_spec);
    if (!block_type || !strings_type || !parser ||
        PyModule_AddObjectRef(m, "Strings", (PyObject *)strings_type) ||
        PyModule_AddIntMacro(m, GRADES) ||
        PyModule_AddObjectRef(m, "TrecParser", parser)) {
        Py_XDECREF(parser);
        Py_DECREF(m);
        return NULL;
    }
    Py_DECREF(parser);
    return m;
}
