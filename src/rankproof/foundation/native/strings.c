/* Columns of text: borrowed from polars, built from a file and lent to polars, as Arrow's string
 * views; and blocks of memory lent to numpy. Part of _native.c. */

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

/* A buffer stays below 2^31 bytes, as Arrow requires; a new one is begun before that. */
#define BUFFER_LIMIT ((size_t)1 << 30)

/* A borrowed column of strings: one chunk, no nulls. */
typedef struct {
    struct ArrowArray array;
    const View *views;
    const char **data;
    int64_t length;
} Text;

/* Return where the text of a view begins. */
static inline const char *text_at(const Text *t, const View *v) {
    if (view_length(v) <= INLINE) return (const char *)v + 4;
    return t->data[(uint32_t)v->high] + (uint32_t)(v->high >> 32);
}

static void text_release(Text *t) {
    if (t->array.release) t->array.release(&t->array);
    t->array.release = NULL;
}

static int strings_lend(PyObject *object, Text *out);

/* Borrow the text of Strings, or of the single chunk of a polars Series; return -1 with a Python
 * error set if it is something else. */
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
    "rankproof.foundation._native.Block", sizeof(Block), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, block_slots};

/* Return a Block that owns memory from malloc. */
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

/* A column of strings while it is built; the text of ids over 12 bytes is copied to arenas. */
typedef struct {
    View *views;
    size_t length, room;
    char **arenas;
    int64_t *arena_sizes;
    size_t arena_count, arena_room;
    uint32_t first_arena; /* number of the first arena, if arenas of other columns come before */
} Column;

static void column_free(Column *c) {
    free(c->views);
    for (size_t i = 0; i < c->arena_count; i++) free(c->arenas[i]);
    free(c->arenas);
    free(c->arena_sizes);
    memset(c, 0, sizeof *c);
}

/* Make room for `length` more bytes in the last arena or in a new one; return -1 if out of memory. */
static int column_reserve_bytes(Column *c, size_t length) {
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

/* Return the view of up to 12 bytes of text. If 16 bytes may be read, two loads and a mask make it,
 * which is faster than copying a varying number of bytes. `end` bounds what may be read. */
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

/* Ask the system to use large pages, which it fills with one fault each; return `memory`. */
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

/* Make room for `room` strings in all; return -1 if out of memory. */
static int column_reserve_views(Column *c, size_t room) {
    if (room <= c->room) return 0;
    View *views = realloc(c->views, room * sizeof *views);
    if (!views) return -1;
    c->views = views;
    c->room = room;
    return 0;
}

/* Append a string; `end` bounds what may be read after it. Return -1 if out of memory. */
static int column_append(Column *c, const char *text, size_t length, const char *end) {
    if (c->length == c->room) {
        if (column_reserve_views(c, c->room ? c->room * 2 : 4096)) return -1;
    }
    if (length <= INLINE) {
        c->views[c->length++] = short_view(text, length, end);
        return 0;
    }
    if (length > INT32_MAX || column_reserve_bytes(c, length)) return -1;
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

/* A finished column. Python, polars and columns gathered from it hold references. Its memory comes
 * from malloc, so that dropping the last reference needs no interpreter. */
typedef struct Shared {
    long references;
    Column column;
    struct Shared *owner; /* of the arenas, unless they are the column's own */
} Shared;

#if defined(_MSC_VER)
#include <intrin.h>
#define ADD_REFERENCE(count) _InterlockedIncrement(count)
#define DROP_REFERENCE(count) _InterlockedDecrement(count)
#else
#define ADD_REFERENCE(count) __atomic_add_fetch(count, 1, __ATOMIC_RELAXED)
#define DROP_REFERENCE(count) __atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL)
#endif

static void shared_release(Shared *s) {
    if (!s || DROP_REFERENCE(&s->references)) return;
    column_free(&s->column);
    shared_release(s->owner);
    free(s);
}

/* Return the column that owns the text of long ids. */
static const Column *shared_arenas(const Shared *s) {
    return s->owner ? &s->owner->column : &s->column;
}

typedef struct {
    PyObject_HEAD
    Shared *shared;
} Strings;

static PyTypeObject *strings_type;

/* Fill `out` with the text of Strings; return 0 if the object is something else. */
static int strings_lend(PyObject *object, Text *out) {
    if (Py_TYPE(object) != strings_type) return 0;
    const Shared *s = ((Strings *)object)->shared;
    out->views = s->column.views;
    out->data = (const char **)shared_arenas(s)->arenas;
    out->length = (int64_t)s->column.length;
    return 1;
}

/* Return Strings that own the column, which is left empty. */
static PyObject *strings_new(Column *column, Shared *owner) {
    Shared *shared = malloc(sizeof *shared);
    allocfunc alloc = (allocfunc)PyType_GetSlot(strings_type, Py_tp_alloc);
    Strings *made = shared ? (Strings *)alloc(strings_type, 0) : NULL;
    if (!made) {
        free(shared);
        return PyErr_NoMemory();
    }
    *shared = (Shared){1, *column, owner};
    if (owner) ADD_REFERENCE(&owner->references);
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

/* Return a pair of Arrow capsules that share the column's memory; a requested schema is ignored. */
static PyObject *strings_export(PyObject *self, PyObject *args, PyObject *kwargs) {
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
    ADD_REFERENCE(&shared->references);
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
