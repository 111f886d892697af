/* Dot products whose bits do not depend on the processor.
 *
 * The product of two float32 numbers is exact in float64. LANES running sums take the products in
 * turn, product i in lane i mod LANES; the lanes are then added pairwise, lane j to lane j + half.
 * IEEE arithmetic leaves nothing open in that, so vector units of any width, with or without fused
 * multiplication, give the same bits, and so do the twins: precision/fixed_sum.py and
 * precision/gpu_scores.py. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 32
#define CACHED (1 << 18) /* bytes of documents that stay in a core's cache */

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__)
#define EVERY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EVERY_PROCESSOR
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define FETCH(address) __builtin_prefetch(address)
#define WIDE 8
typedef double Wide __attribute__((vector_size(8 * WIDE)));
typedef double WideAt __attribute__((vector_size(8 * WIDE), aligned(8)));
typedef float Narrow __attribute__((vector_size(4 * WIDE)));
typedef float NarrowAt __attribute__((vector_size(4 * WIDE), aligned(4)));
#define WIDEN(at) __builtin_convertvector(*(const NarrowAt *)(at), Wide)
#else
#define INLINE static inline
#define FETCH(address) (void)(address)
#endif

/* --------------------------------------------------------------------------- dot products */

/* Return the dot product of `a`, which is float64 already, with `b`; `next` is prefetched for the
 * call after this one. */
INLINE double fixed_sum(const double *a, const float *b, int64_t count, const float *next) {
    double lanes[LANES] = {0.0};
    int64_t i = 0;
#ifdef WIDE
    Wide w0 = {0}, w1 = {0}, w2 = {0}, w3 = {0};
    for (; i + LANES <= count; i += LANES) {
        FETCH(next + i);
        FETCH(next + i + LANES / 2);
        w0 += *(const WideAt *)(a + i) * WIDEN(b + i);
        w1 += *(const WideAt *)(a + i + WIDE) * WIDEN(b + i + WIDE);
        w2 += *(const WideAt *)(a + i + 2 * WIDE) * WIDEN(b + i + 2 * WIDE);
        w3 += *(const WideAt *)(a + i + 3 * WIDE) * WIDEN(b + i + 3 * WIDE);
    }
    if (i == count) { /* the same additions, in registers */
        w0 = (w0 + w2) + (w1 + w3);
        double x0 = w0[0] + w0[4], x1 = w0[1] + w0[5], x2 = w0[2] + w0[6], x3 = w0[3] + w0[7];
        return (x0 + x2) + (x1 + x3);
    }
    memcpy(lanes, &w0, sizeof w0);
    memcpy(lanes + WIDE, &w1, sizeof w1);
    memcpy(lanes + 2 * WIDE, &w2, sizeof w2);
    memcpy(lanes + 3 * WIDE, &w3, sizeof w3);
#else
    (void)next;
#endif
    for (; i < count; i++) lanes[i % LANES] += a[i] * (double)b[i];
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] += lanes[j + half];
    return lanes[0];
}

/* Convert float32 to float64. */
INLINE void widen(const float *from, double *to, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = (double)from[i];
}

/* Return the dot product in float32, in LANES running sums. Its error is at most count / LANES + 8
 * roundings. */
INLINE float quick_sum(const float *a, const float *b, int64_t count) {
    float lanes[LANES] = {0.0f};
    int64_t i = 0;
#ifdef WIDE
    Narrow w0 = {0}, w1 = {0}, w2 = {0}, w3 = {0};
    for (; i + LANES <= count; i += LANES) {
        w0 += *(const NarrowAt *)(a + i) * *(const NarrowAt *)(b + i);
        w1 += *(const NarrowAt *)(a + i + WIDE) * *(const NarrowAt *)(b + i + WIDE);
        w2 += *(const NarrowAt *)(a + i + 2 * WIDE) * *(const NarrowAt *)(b + i + 2 * WIDE);
        w3 += *(const NarrowAt *)(a + i + 3 * WIDE) * *(const NarrowAt *)(b + i + 3 * WIDE);
    }
    w0 = (w0 + w2) + (w1 + w3);
    if (i == count) return ((w0[0] + w0[4]) + (w0[2] + w0[6])) + ((w0[1] + w0[5]) + (w0[3] + w0[7]));
    memcpy(lanes, &w0, sizeof w0);
#endif
    for (; i < count; i++) lanes[i % LANES] += a[i] * b[i];
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++) lanes[j] += lanes[j + half];
    return lanes[0];
}

/* A matrix of float32; its rows need not be adjacent. */
typedef struct {
    const char *at;
    int64_t rows, columns, stride;
} Matrix;

static inline const float *row_of(const Matrix *m, int64_t row) {
    return (const float *)(m->at + row * m->stride);
}

/* Score the pairs of queries [low, high), whose documents ascend, with documents from row `first`
 * on. If documents occur more than once, they pass through the cache a block at a time. */
EVERY_PROCESSOR
static void score_pairs(const Matrix *queries, const Matrix *documents, int64_t first,
                        const int64_t *start, const int64_t *rows, float *out, int64_t low,
                        int64_t high, int64_t *cursor, double *wide) {
    int64_t pairs = start[high] - start[low];
    int64_t step = pairs > documents->rows ? CACHED / (4 * documents->columns + 1) + 1
                                           : documents->rows; /* no row is read twice */
    for (int64_t q = low; q < high; q++) {
        int64_t i = start[q];
        while (i < start[q + 1] && rows[i] < first) i++;
        cursor[q - low] = i;
    }
    for (int64_t block = 0; block < documents->rows; block += step) {
        int64_t last = block + step < documents->rows ? block + step : documents->rows;
        for (int64_t q = low; q < high; q++) {
            int64_t i = cursor[q - low], end = start[q + 1];
            if (i < end && rows[i] < first + last)
                widen(row_of(queries, q), wide, documents->columns);
            for (; i < end && rows[i] < first + last; i++) {
                int64_t next = i + 1 < end && rows[i + 1] < first + documents->rows ? i + 1 : i;
                /* −0 and 0 are one score */
                out[i] = (float)fixed_sum(wide, row_of(documents, rows[i] - first),
                                          documents->columns,
                                          row_of(documents, rows[next] - first)) + 0.0f;
            }
            cursor[q - low] = i;
        }
    }
}

/* Set out[i] to the dot product of row i of a and of b. */
EVERY_PROCESSOR
static void score_rows(const Matrix *a, const Matrix *b, double *out, int64_t low, int64_t high,
                       double *wide) {
    for (int64_t i = low; i < high; i++) {
        const float *row = row_of(b, i);
        widen(row_of(a, i), wide, a->columns);
        out[i] = fixed_sum(wide, row, a->columns, row);
    }
}

/* Set out[i] to an upper bound of the length of row i; NaN if a number is not finite. */
EVERY_PROCESSOR
static void bound_rows(const Matrix *a, float *out, int64_t low, int64_t high, double *wide) {
    /* Twice the error of all roundings, including that of the root. */
    double more = 1.0 + (double)(a->columns / LANES + 16) * 0x1p-23;
    for (int64_t i = low; i < high; i++) {
        const float *row = row_of(a, i);
        float square = quick_sum(row, row, a->columns);
        if (square > 0x1p-60f && square < 0x1p120f) {
            out[i] = (float)sqrt((double)square * more);
            continue;
        }
        widen(row, wide, a->columns);
        double exact = fixed_sum(wide, row, a->columns, row);
        out[i] = exact < INFINITY ? nextafterf((float)sqrt(exact), INFINITY) : NAN;
    }
}

/* Set out[i] to the float32 dot product of the query with row i. */
EVERY_PROCESSOR
static void multiply_rows(const float *query, const Matrix *m, float *out, int64_t low,
                          int64_t high) {
    for (int64_t i = low; i < high; i++) out[i] = quick_sum(query, row_of(m, i), m->columns);
}

/* Divide row i by by[i] in float64, rounding once. */
EVERY_PROCESSOR
static void divide_rows(const Matrix *a, const double *by, float *out, int64_t low, int64_t high) {
    for (int64_t i = low; i < high; i++) {
        const float *row = row_of(a, i);
        for (int64_t j = 0; j < a->columns; j++)
            out[i * a->columns + j] = (float)((double)row[j] / by[i]);
    }
}

/* ------------------------------------------------------------------ arguments from Python */

/* Return the type of a buffer's numbers, a letter of Python's struct; 0 if it is not one plain
 * letter. */
static char type_of(const Py_buffer *buffer) {
    const char *format = buffer->format;
    return format && format[0] && !format[1] ? format[0] : 0;
}

/* Borrow a matrix; return -1 with an error set if it is not one of float32. */
static int take_matrix(PyObject *object, Py_buffer *buffer, Matrix *m) {
    if (PyObject_GetBuffer(object, buffer, PyBUF_STRIDED_RO | PyBUF_FORMAT)) return -1;
    if (buffer->ndim != 2 || buffer->itemsize != 4 || type_of(buffer) != 'f' ||
        (buffer->shape[1] > 1 && buffer->strides[1] != 4)) {
        PyBuffer_Release(buffer);
        PyErr_SetString(PyExc_ValueError, "a matrix of float32 in rows is wanted");
        return -1;
    }
    *m = (Matrix){buffer->buf, buffer->shape[0], buffer->shape[1], buffer->strides[0]};
    return 0;
}

/* Borrow contiguous numbers: d, f, or q for whole numbers of eight bytes. */
static int take(PyObject *object, Py_buffer *buffer, int writable, char type) {
    int flags = (writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO) | PyBUF_FORMAT;
    if (PyObject_GetBuffer(object, buffer, flags)) return -1;
    char has = type_of(buffer);
    if (buffer->itemsize == (type == 'f' ? 4 : 8) && (has == type || (type == 'q' && has == 'l')))
        return 0;
    PyBuffer_Release(buffer);
    PyErr_SetString(PyExc_ValueError, "numbers of another type are wanted");
    return -1;
}

static int64_t length_of(const Py_buffer *buffer) { return buffer->len / buffer->itemsize; }

static void release(Py_buffer *buffers, int count) {
    while (count-- > 0) PyBuffer_Release(&buffers[count]);
}

/* Borrow several objects. The letter for each says what it must hold: m a matrix, else numbers,
 * which are written if the letter is a capital. */
static int take_all(PyObject **objects, const char *types, Py_buffer *buffers, Matrix *m) {
    for (int i = 0; types[i]; i++)
        if (types[i] == 'm' ? take_matrix(objects[i], &buffers[i], m++)
                            : take(objects[i], &buffers[i], types[i] < 'a', types[i] | 0x20)) {
            release(buffers, i);
            return -1;
        }
    return 0;
}

/* Work without the interpreter, in IEEE arithmetic: a library may have told this thread to flush
 * small numbers to zero. */
#define AS_USUAL(work)         \
    Py_BEGIN_ALLOW_THREADS;    \
    fenv_t before;             \
    fegetenv(&before);         \
    fesetenv(FE_DFL_ENV);      \
    work;                      \
    fesetenv(&before);         \
    Py_END_ALLOW_THREADS

/* Release the buffers and return NULL with an error: the indices are outside the arrays. */
static PyObject *refuse(Py_buffer *buffers, int count) {
    release(buffers, count);
    PyErr_SetString(PyExc_ValueError, "the arrays do not hold what is asked of them");
    return NULL;
}

/* -------------------------------------------------------------------- functions for Python */

/* pairs(queries, documents, first, start, rows, out, low, high)
 *
 * Set out[i] to the score of query q with document rows[i], for start[q] ≤ i < start[q+1], if
 * `documents`, which are the rows from `first` on, hold it. Twin: `pairs` of fixed_sum.py. */
static PyObject *fixed_pairs(PyObject *self, PyObject *args) {
    PyObject *objects[5];
    long long first, low, high;
    if (!PyArg_ParseTuple(args, "OOLOOOLL", &objects[0], &objects[1], &first, &objects[2],
                          &objects[3], &objects[4], &low, &high))
        return NULL;
    Py_buffer b[5];
    Matrix m[2];
    if (take_all(objects, "mmqqF", b, m)) return NULL;
    const Matrix queries = m[0], documents = m[1];
    const int64_t *start = b[2].buf, *rows = b[3].buf;
    int64_t pairs = length_of(&b[3]);
    int wrong = low < 0 || high < low || high > queries.rows || length_of(&b[2]) <= high ||
                length_of(&b[4]) < pairs || queries.columns != documents.columns || first < 0 ||
                first > INT64_MAX - documents.rows;
    for (int64_t q = low; q < high && !wrong; q++) {
        wrong = start[q] < 0 || start[q + 1] < start[q] || start[q + 1] > pairs;
        for (int64_t i = start[q]; i + 1 < start[q + 1] && !wrong; i++)
            wrong = rows[i + 1] < rows[i];
    }
    if (wrong) return refuse(b, 5);
    int64_t *cursor = malloc((size_t)(high - low + 1) * sizeof *cursor);
    double *wide = malloc((size_t)(queries.columns + 1) * sizeof *wide);
    if (cursor && wide) {
        AS_USUAL(score_pairs(&queries, &documents, first, start, rows, b[4].buf, low, high, cursor,
                             wide));
    }
    int done = cursor && wide;
    free(cursor);
    free(wide);
    release(b, 5);
    if (!done) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* rows(a, b, out, low, high): set out[i] to the dot product of row i of a and of b. */
static PyObject *fixed_rows(PyObject *self, PyObject *args) {
    PyObject *objects[3];
    long long low, high;
    if (!PyArg_ParseTuple(args, "OOOLL", &objects[0], &objects[1], &objects[2], &low, &high))
        return NULL;
    Py_buffer b[3];
    Matrix m[2];
    if (take_all(objects, "mmD", b, m)) return NULL;
    if (low < 0 || high < low || high > m[0].rows || high > m[1].rows ||
        m[0].columns != m[1].columns || high > length_of(&b[2]))
        return refuse(b, 3);
    double *wide = malloc((size_t)(m[0].columns + 1) * sizeof *wide);
    if (wide) {
        AS_USUAL(score_rows(&m[0], &m[1], b[2].buf, low, high, wide));
    }
    free(wide);
    release(b, 3);
    if (!wide) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* bounds(values, out, low, high): set out[i] (float32) to an upper bound of the length of row i;
 * NaN if one of its numbers is not finite. */
static PyObject *fixed_bounds(PyObject *self, PyObject *args) {
    PyObject *objects[2];
    long long low, high;
    if (!PyArg_ParseTuple(args, "OOLL", &objects[0], &objects[1], &low, &high)) return NULL;
    Py_buffer b[2];
    Matrix values;
    if (take_all(objects, "mF", b, &values)) return NULL;
    if (low < 0 || high < low || high > values.rows || high > length_of(&b[1]))
        return refuse(b, 2);
    double *wide = malloc((size_t)(values.columns + 1) * sizeof *wide);
    if (wide) {
        AS_USUAL(bound_rows(&values, b[1].buf, low, high, wide));
    }
    free(wide);
    release(b, 2);
    if (!wide) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* products(query, documents, out, low, high): set out[i] to the dot product of the first row of
 * `query` with document i, in float32 and in whatever order is fast. */
static PyObject *fixed_products(PyObject *self, PyObject *args) {
    PyObject *objects[3];
    long long low, high;
    if (!PyArg_ParseTuple(args, "OOOLL", &objects[0], &objects[1], &objects[2], &low, &high))
        return NULL;
    Py_buffer b[3];
    Matrix m[2];
    if (take_all(objects, "mmF", b, m)) return NULL;
    if (low < 0 || high < low || high > m[1].rows || m[0].rows < 1 ||
        m[0].columns != m[1].columns || high > length_of(&b[2]))
        return refuse(b, 3);
    AS_USUAL(multiply_rows(row_of(&m[0], 0), &m[1], b[2].buf, low, high));
    release(b, 3);
    Py_RETURN_NONE;
}

/* divide(values, by, out, low, high): divide each row by its own number, in float64, rounded once. */
static PyObject *fixed_divide(PyObject *self, PyObject *args) {
    PyObject *objects[3];
    long long low, high;
    if (!PyArg_ParseTuple(args, "OOOLL", &objects[0], &objects[1], &objects[2], &low, &high))
        return NULL;
    Py_buffer b[3];
    Matrix values;
    if (take_all(objects, "mdF", b, &values)) return NULL;
    if (low < 0 || high < low || high > values.rows || high > length_of(&b[1]) ||
        (values.columns && high > length_of(&b[2]) / values.columns))
        return refuse(b, 3);
    AS_USUAL(divide_rows(&values, b[1].buf, b[2].buf, low, high));
    release(b, 3);
    Py_RETURN_NONE;
}

/* usual(): switch this thread to IEEE arithmetic; return its settings before, for `restore`. */
static PyObject *fixed_usual(PyObject *self, PyObject *args) {
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    return PyBytes_FromStringAndSize((const char *)&before, sizeof before);
}

static PyObject *fixed_restore(PyObject *self, PyObject *held) {
    fenv_t before;
    char *bytes;
    Py_ssize_t count;
    if (PyBytes_AsStringAndSize(held, &bytes, &count)) return NULL;
    if (count != (Py_ssize_t)sizeof before) {
        PyErr_SetString(PyExc_ValueError, "this is not what usual() gave");
        return NULL;
    }
    memcpy(&before, bytes, sizeof before);
    fesetenv(&before);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"usual", fixed_usual, METH_NOARGS, "IEEE arithmetic in this thread; gives what was before."},
    {"restore", fixed_restore, METH_O, "The arithmetic that `usual` gave."},
    {"pairs", fixed_pairs, METH_VARARGS, "Scores of chosen documents for each query."},
    {"rows", fixed_rows, METH_VARARGS, "Sums of products of the rows of two matrices."},
    {"bounds", fixed_bounds, METH_VARARGS, "Numbers not below the lengths of rows."},
    {"products", fixed_products, METH_VARARGS, "Products of one query, as a fast sum has them."},
    {"divide", fixed_divide, METH_VARARGS, "Rows divided by a number each."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_fixed", NULL, -1, functions,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__fixed(void) { return PyModule_Create(&module); }
