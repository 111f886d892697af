/* The k best documents of a stream of scores, and how many tie with the last of them.
 *
 * A score from a fast product is only known to lie between two bounds. A document stays as long as
 * its upper bound reaches the bar: the k-th best of the lower bounds, which k earlier documents are
 * sure to reach. If the bounds are equal, the score is exact, and the documents left are the k
 * best; of equal scores the earlier document is better. Twin: precision/topk.py. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__)
#define EVERY_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EVERY_PROCESSOR
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#define LOWEST(bits) __builtin_ctz(bits)
#else
#define INLINE static inline
static inline int LOWEST(uint32_t bits) {
    int at = 0;
    while (!(bits >> at & 1)) at++;
    return at;
}
#endif

/* ------------------------------------------------------------------- keys that sort as scores */

/* Return bits that order as scores do. */
INLINE uint32_t ordered(float score) {
    uint32_t bits;
    score += 0.0f; /* −0 and 0 are one score */
    memcpy(&bits, &score, 4);
    return bits ^ ((0u - (bits >> 31)) | 0x80000000u);
}

/* Return the score of a key. */
INLINE float score_of(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    bits = bits & 0x80000000u ? bits & 0x7FFFFFFFu : ~bits;
    float score;
    memcpy(&score, &bits, 4);
    return score;
}

/* Return a key, larger for better documents: the score, then the smaller number. Keys are distinct. */
INLINE uint64_t key_of(float score, uint32_t number) {
    return (uint64_t)ordered(score) << 32 | (uint32_t)~number;
}

/* Move the k largest keys to the front, the least of them to k − 1: quickselect with a median of
 * three, whose partition does not branch on keys. */
INLINE void select_largest(uint64_t *keys, int64_t count, int64_t k) {
    int64_t low = 0, high = count - 1;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        uint64_t a = keys[low], b = keys[middle], c = keys[high];
        int64_t at = a > b ? (b > c ? middle : (a > c ? high : low))
                           : (a > c ? low : (b > c ? high : middle));
        uint64_t pivot = keys[at];
        keys[at] = keys[high];
        int64_t larger = low;
        for (int64_t i = low; i < high; i++) {
            uint64_t key = keys[i];
            keys[i] = keys[larger];
            keys[larger] = key;
            larger += key > pivot;
        }
        keys[high] = keys[larger];
        keys[larger] = pivot;
        if (larger == k - 1) return;
        if (larger < k - 1)
            low = larger + 1;
        else
            high = larger - 1;
    }
}

/* ------------------------------------------------------------------------ narrower formats */

/* A floating-point format that scores are rounded to; with 24 bits, float32 itself. */
typedef struct {
    int bits;      /* bits of the significand */
    double normal; /* smallest number with all bits */
    double least;  /* smallest positive number */
    double most;   /* largest finite number */
    int holds;     /* larger numbers become `most`, and not infinite */
} Format;

/* Round to the nearest number of the format, halves to even. Twin: `round_to` of
 * precision/formats.py.
 *
 * A number of 1.5 · 2⁵² units has no digits below the unit: adding it rounds, and subtracting it
 * again is exact. The unit is 2^(1 − bits) of the power of two below the magnitude. */
INLINE float narrow(const Format *f, float score) {
    double magnitude = fabs((double)score);
    if (f->holds) magnitude = magnitude > f->most ? f->most : magnitude;
    double power = magnitude > f->normal ? magnitude : f->normal;
    uint64_t digits;
    memcpy(&digits, &power, 8);
    digits &= 0x7FF0000000000000u;
    memcpy(&power, &digits, 8);
    double units = power * (f->least / f->normal) * 0x1.8p52;
    double rounded = magnitude + units;
    rounded -= units;
    rounded = rounded > f->most ? INFINITY : rounded;
    rounded = magnitude < INFINITY ? rounded : magnitude;
    return (float)copysign(rounded, score);
}

EVERY_PROCESSOR
static void narrow_all(const Format *f, float *scores, int64_t count) {
    Format held = *f; /* a copy that the loop cannot change, so that compilers vectorize it */
    for (int64_t i = 0; i < count; i++) scores[i] = narrow(&held, scores[i]);
}

/* ------------------------------------------------------------------------------ shortlists */

/* How far the exact score of document j of a block may be from its product: factor · lengths[j] +
 * extra. See fixed_sum.py. */
typedef struct {
    float factor;         /* times lengths[j] */
    float extra;          /* plus this */
    const float *lengths; /* NULL if the scores are exact */
} Slack;

typedef struct {
    float *low, *high;   /* bounds, with room for `room` documents */
    uint32_t *documents; /* ascending */
    int64_t *count;
    int64_t *limit; /* number of documents at which to look for some to drop */
    float *bar;     /* NaN before there are k */
    int64_t *tied;  /* dropped documents whose score is sure to be `bar` */
    int64_t k, room;
    uint64_t *scratch; /* room for `room` */
} Shortlist;

/* Drop the documents that can no longer be among the k best. */
EVERY_PROCESSOR
static void compact(Shortlist *s) {
    int64_t count = *s->count, kept = 0;
    if (count < s->k || s->k < 1) return;
    for (int64_t i = 0; i < count; i++) s->scratch[i] = key_of(s->low[i], (uint32_t)i);
    select_largest(s->scratch, count, s->k);
    float bar = score_of(s->scratch[s->k - 1]);
    int needed = (int)s->k, tied = 0;
    for (int64_t i = 0; i < count; i++) needed -= s->low[i] > bar;
    /* Which documents stay cannot be predicted, so nothing branches on it. */
    for (int64_t i = 0; i < count; i++) {
        float low = s->low[i], high = s->high[i];
        uint32_t document = s->documents[i];
        int proves = (low == bar) & (needed > 0); /* the first k that reach the bar prove it */
        int ties = (low == bar) & (high == bar) & !proves;
        needed -= proves;
        tied += ties;
        s->low[kept] = low;
        s->high[kept] = high;
        s->documents[kept] = document;
        kept += !(high < bar) & !ties;
    }
    if (!(bar <= *s->bar)) *s->tied = 0;
    *s->tied += tied;
    *s->bar = bar;
    *s->count = kept;
}

/* Return a number below every score that the format rounds to the bar or above. */
static float edge_of(const Shortlist *s, const Format *f, const Slack *e) {
    float bar = *s->bar;
    if (!e->lengths || isnan(bar)) return bar;
    if (f->holds && bar <= -f->most) return -INFINITY; /* all lower scores are rounded up to it */
    double edge = bar;
    if (f->bits < 24)
        edge = bar > f->most ? f->most : bar - fabs((double)bar) * ldexp(2.0, -f->bits) - f->least;
    edge -= e->extra;
    float below = (float)edge;
    return below > edge ? nextafterf(below, -INFINITY) : below;
}

/* Add a document if it can be among the k best; return 1 if it does. */
INLINE int hold(Shortlist *s, const Format *f, const Slack *e, float score, int64_t j,
                int64_t document) {
    float low = score, high = score;
    if (e->lengths) {
        double away = (double)e->factor * e->lengths[j] + e->extra;
        low = (float)(score - away);
        high = (float)(score + away);
        low = low > -INFINITY ? low : -INFINITY; /* a NaN may have any score */
        high = high < INFINITY ? high : INFINITY;
        if (f->bits < 24) {
            low = narrow(f, low);
            high = narrow(f, high);
        }
    }
    float bar = *s->bar;
    int64_t at = *s->count;
    int ties = (low == high) & (high == bar);
    int stays = !(high < bar) & !ties & (high == high);
    s->low[at] = low;
    s->high[at] = high;
    s->documents[at] = (uint32_t)document;
    *s->tied += ties;
    *s->count = at + stays;
    return stays;
}

/* Return whether the shortlist is full of documents whose bounds overlap. */
static int full(Shortlist *s) {
    if (*s->count < *s->limit) return 0;
    compact(s);
    if (*s->count - s->k <= (*s->limit - s->k) / 2) return 0;
    if (*s->limit == s->room) return 1;
    *s->limit = 2 * *s->limit < s->room ? 2 * *s->limit : s->room;
    return 0;
}

#define STEP 32

/* Offer the scores of a row from column `at` on; return where it stopped, which is `count` at the
 * end. */
EVERY_PROCESSOR
static int64_t offer_row(Shortlist *s, const Format *f, const Slack *e, const float *scores,
                         int64_t at, int64_t count, int64_t first) {
    static const uint32_t bit[STEP] = {
        1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
        1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
        1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
        1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};
    float edge = edge_of(s, f, e), factor = e->factor;
    const float *lengths = e->lengths;
    for (int64_t j = at; j < count; j += STEP) {
        /* A NaN, or a bar that is not known yet, drops no document. */
        uint32_t reached = 0;
        if (count - j < STEP) {
            for (int i = 0; i < count - j; i++) {
                float reach = lengths ? scores[j + i] + factor * lengths[j + i] : scores[j + i];
                reached |= reach < edge ? 0 : bit[i];
            }
        } else if (lengths) {
            for (int i = 0; i < STEP; i++)
                reached |= scores[j + i] + factor * lengths[j + i] < edge ? 0 : bit[i];
        } else {
            for (int i = 0; i < STEP; i++) reached |= scores[j + i] < edge ? 0 : bit[i];
        }
        if (!reached) continue;
        if (*s->count + STEP < *s->limit) { /* there is room for all of them */
            for (; reached; reached &= reached - 1) {
                int64_t i = j + LOWEST(reached);
                hold(s, f, e, scores[i], i, first + i);
            }
            continue;
        }
        for (; reached; reached &= reached - 1) {
            int64_t i = j + LOWEST(reached);
            if (hold(s, f, e, scores[i], i, first + i) && full(s)) return i + 1;
        }
        edge = edge_of(s, f, e);
    }
    return count;
}

/* ------------------------------------------------------------------ arguments from Python */

#define HELD 7 /* low, high, documents, count, limit, bar, tied */

/* Return the shortlist of one query. */
static Shortlist of_query(Py_buffer *b, int64_t q, int64_t k, int64_t room, uint64_t *scratch) {
    return (Shortlist){(float *)b[0].buf + q * room, (float *)b[1].buf + q * room,
                       (uint32_t *)b[2].buf + q * room, (int64_t *)b[3].buf + q,
                       (int64_t *)b[4].buf + q, (float *)b[5].buf + q, (int64_t *)b[6].buf + q,
                       k, room, scratch};
}

static void release(Py_buffer *buffers, int count) {
    while (count-- > 0) PyBuffer_Release(&buffers[count]);
}

/* Return whether a buffer lacks `count` numbers of a type: f, I, or q for whole numbers of eight
 * bytes. */
static int lacks(const Py_buffer *b, char type, int64_t count) {
    char has = b->format && b->format[0] && !b->format[1] ? b->format[0] : 0;
    int alike = type == 'q' ? b->itemsize == 8 && (has == 'q' || has == 'l')
                            : b->itemsize == 4 && (has == type || (type == 'I' && has == 'L'));
    return !alike || b->len / b->itemsize < count;
}

/* Borrow the shortlists of queries [low, high), `room` documents each, of which k are wanted;
 * return -1 with an error set if they are invalid. */
static int take_held(PyObject *held, Py_buffer *b, int64_t k, int64_t room, int64_t low,
                     int64_t high) {
    int wrong = k < 0 || room <= k || room > INT32_MAX || low < 0 || high < low || high > INT32_MAX;
    int taken = 0;
    for (; taken < HELD && !wrong; taken++) {
        PyObject *array = PySequence_GetItem(held, taken);
        int failed =
            !array || PyObject_GetBuffer(array, &b[taken], PyBUF_CONTIG | PyBUF_FORMAT);
        Py_XDECREF(array);
        if (failed) {
            release(b, taken);
            return -1;
        }
        wrong = lacks(&b[taken], "ffIqqfq"[taken], taken < 3 ? high * room : high);
    }
    for (int64_t q = low; q < high && !wrong; q++) {
        int64_t count = ((int64_t *)b[3].buf)[q], limit = ((int64_t *)b[4].buf)[q];
        wrong = count < 0 || count > limit || limit <= k || limit > room;
    }
    if (!wrong) return 0;
    release(b, taken);
    PyErr_SetString(PyExc_ValueError, "these are no shortlists of that many queries");
    return -1;
}

/* -------------------------------------------------------------------- functions for Python */

/* offer(held, k, room, scores, width, first, factors, extras, lengths or None, bits, normal, least,
 * most, holds, at, low, high)
 *
 * Offer documents first, first+1, … with scores (Q, width) to queries [low, high), each from column
 * at[q] on; at[q] becomes the column where it stopped. Twin: `Shortlist.offer` without compiled code. */
static PyObject *topk_offer(PyObject *self, PyObject *args) {
    PyObject *held, *objects[5];
    long long width, first, k, room, low, high;
    Format f;
    if (!PyArg_ParseTuple(args, "OLLOLLOOOidddiOLL", &held, &k, &room, &objects[0], &width, &first,
                          &objects[1], &objects[2], &objects[3], &f.bits, &f.normal, &f.least,
                          &f.most, &f.holds, &objects[4], &low, &high))
        return NULL;
    Py_buffer b[HELD], given[5];
    if (take_held(held, b, k, room, low, high)) return NULL;
    int exact = objects[3] == Py_None;
    if (exact) objects[3] = objects[2]; /* not used */
    for (int i = 0; i < 5; i++)
        if (PyObject_GetBuffer(objects[i], &given[i],
                               (i == 4 ? PyBUF_CONTIG : PyBUF_CONTIG_RO) | PyBUF_FORMAT)) {
            release(given, i);
            release(b, HELD);
            return NULL;
        }
    int wrong = width < 0 || width > INT32_MAX || first < 0 || first > UINT32_MAX - width ||
                lacks(&given[0], 'f', high * width) || lacks(&given[1], 'f', high) ||
                lacks(&given[2], 'f', high) || lacks(&given[3], 'f', exact ? 0 : width) ||
                lacks(&given[4], 'q', high);
    for (int64_t q = low; q < high && !wrong; q++) {
        /* A full shortlist takes no document before it was settled. */
        int64_t at = ((int64_t *)given[4].buf)[q];
        int full = ((int64_t *)b[3].buf)[q] >= ((int64_t *)b[4].buf)[q];
        wrong = at < 0 || at > width || (at < width && full);
    }
    if (wrong) {
        release(given, 5);
        release(b, HELD);
        PyErr_SetString(PyExc_ValueError, "these are no scores of that many queries");
        return NULL;
    }
    uint64_t *scratch = malloc((size_t)room * sizeof *scratch);
    if (scratch) {
        Py_BEGIN_ALLOW_THREADS;
        fenv_t before; /* a library may have told this thread to flush small numbers to zero */
        fegetenv(&before);
        fesetenv(FE_DFL_ENV);
        int64_t *at = given[4].buf;
        for (int64_t q = low; q < high; q++) {
            Shortlist s = of_query(b, q, k, room, scratch);
            Slack e = {((float *)given[1].buf)[q], ((float *)given[2].buf)[q],
                       exact ? NULL : (float *)given[3].buf};
            at[q] = offer_row(&s, &f, &e, (float *)given[0].buf + q * width, at[q], width, first);
        }
        fesetenv(&before);
        Py_END_ALLOW_THREADS;
    }
    free(scratch);
    release(given, 5);
    release(b, HELD);
    if (!scratch) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* compact(held, k, room, low, high): let go of what cannot be among the k best of its query. */
static PyObject *topk_compact(PyObject *self, PyObject *args) {
    PyObject *held;
    long long k, room, low, high;
    if (!PyArg_ParseTuple(args, "OLLLL", &held, &k, &room, &low, &high)) return NULL;
    Py_buffer b[HELD];
    if (take_held(held, b, k, room, low, high)) return NULL;
    uint64_t *scratch = malloc((size_t)room * sizeof *scratch);
    if (scratch) {
        Py_BEGIN_ALLOW_THREADS;
        fenv_t before;
        fegetenv(&before);
        fesetenv(FE_DFL_ENV);
        for (int64_t q = low; q < high; q++) {
            Shortlist s = of_query(b, q, k, room, scratch);
            compact(&s);
        }
        fesetenv(&before);
        Py_END_ALLOW_THREADS;
    }
    free(scratch);
    release(b, HELD);
    if (!scratch) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* close(held, k, room, keys, kept, low, high): write the keys of the first `kept` documents of each
 * shortlist. */
static PyObject *topk_close(PyObject *self, PyObject *args) {
    PyObject *held, *object;
    long long k, room, kept, low, high;
    if (!PyArg_ParseTuple(args, "OLLOLLL", &held, &k, &room, &object, &kept, &low, &high))
        return NULL;
    Py_buffer b[HELD], keys;
    if (take_held(held, b, k, room, low, high)) return NULL;
    if (PyObject_GetBuffer(object, &keys, PyBUF_CONTIG | PyBUF_FORMAT)) {
        release(b, HELD);
        return NULL;
    }
    int wrong = kept < 0 || kept > room || lacks(&keys, 'q', high * kept);
    if (!wrong) {
        Py_BEGIN_ALLOW_THREADS;
        for (int64_t q = low; q < high; q++) {
            Shortlist s = of_query(b, q, k, room, NULL);
            uint64_t *at = (uint64_t *)keys.buf + q * kept;
            for (int64_t i = 0; i < kept; i++) at[i] = key_of(s.low[i], s.documents[i]);
        }
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&keys);
    release(b, HELD);
    if (!wrong) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "these are no shortlists of that many queries");
    return NULL;
}

/* move(held, k, room, queries, start, numbers, scores or None, total)
 *
 * Copy the documents of queries[i], one of `total`, to numbers[start[i]] and on; or, with scores,
 * copy those from scores[start[i]] on to both bounds. */
static PyObject *topk_move(PyObject *self, PyObject *args) {
    PyObject *held, *objects[4];
    long long k, room, total;
    if (!PyArg_ParseTuple(args, "OLLOOOOL", &held, &k, &room, &objects[0], &objects[1], &objects[2],
                          &objects[3], &total))
        return NULL;
    Py_buffer b[HELD], given[4];
    if (take_held(held, b, k, room, 0, total)) return NULL;
    int scored = objects[3] != Py_None;
    for (int i = 0; i < 3 + scored; i++)
        if (PyObject_GetBuffer(objects[i], &given[i],
                               (i == 2 ? PyBUF_CONTIG : PyBUF_CONTIG_RO) | PyBUF_FORMAT)) {
            release(given, i);
            release(b, HELD);
            return NULL;
        }
    int64_t *queries = given[0].buf, *start = given[1].buf, *numbers = given[2].buf;
    int64_t *counts = b[3].buf, asked = given[0].len / 8, room_for = given[2].len / 8;
    int wrong = lacks(&given[0], 'q', 0) || lacks(&given[1], 'q', asked + 1) ||
                lacks(&given[2], 'q', 0) || (scored && lacks(&given[3], 'f', room_for));
    for (int64_t i = 0; i < asked && !wrong; i++) {
        int64_t q = queries[i];
        wrong = q < 0 || q >= total || start[i] < 0 || start[i] > room_for - counts[q];
    }
    if (!wrong) {
        for (int64_t i = 0; i < asked; i++) {
            Shortlist s = of_query(b, queries[i], k, room, NULL);
            if (scored) {
                const float *scores = (float *)given[3].buf + start[i];
                memcpy(s.low, scores, (size_t)*s.count * sizeof *scores);
                memcpy(s.high, scores, (size_t)*s.count * sizeof *scores);
            } else {
                for (int64_t j = 0; j < *s.count; j++) numbers[start[i] + j] = s.documents[j];
            }
        }
    }
    release(given, 3 + scored);
    release(b, HELD);
    if (!wrong) Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "these are no shortlists of that many queries");
    return NULL;
}

/* narrow(values, bits, normal, least, most, holds, low, high): round values [low, high) in place. */
static PyObject *topk_narrow(PyObject *self, PyObject *args) {
    PyObject *values;
    Format f;
    long long low, high;
    if (!PyArg_ParseTuple(args, "OidddiLL", &values, &f.bits, &f.normal, &f.least, &f.most,
                          &f.holds, &low, &high))
        return NULL;
    Py_buffer b;
    if (PyObject_GetBuffer(values, &b, PyBUF_CONTIG | PyBUF_FORMAT)) return NULL;
    if (low < 0 || high < low || lacks(&b, 'f', high)) {
        PyBuffer_Release(&b);
        PyErr_SetString(PyExc_ValueError, "as many float32 numbers are wanted");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    fenv_t before;
    fegetenv(&before);
    fesetenv(FE_DFL_ENV);
    if (f.bits < 24) narrow_all(&f, (float *)b.buf + low, high - low);
    fesetenv(&before);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&b);
    Py_RETURN_NONE;
}

/* ---------------------------------------------------------------- scores near the k-th best */

/* Return the k-th best score; `keys` has room for more than k. */
EVERY_PROCESSOR
static float kth_best(const float *scores, int64_t count, int64_t k, uint64_t *keys, int64_t room) {
    float bar = -INFINITY;
    int64_t held = 0;
    for (int64_t j = 0; j < count; j += STEP) {
        int64_t last = count - j < STEP ? count : j + STEP;
        int reached = held < k;
        for (int64_t i = j; i < last; i++) reached |= scores[i] > bar;
        for (int64_t i = j; reached && i < last; i++) {
            if (held >= k && !(scores[i] > bar)) continue;
            keys[held++] = key_of(scores[i], (uint32_t)i);
            if (held < room) continue;
            select_largest(keys, held, k);
            held = k;
            bar = score_of(keys[k - 1]);
        }
    }
    select_largest(keys, held, k);
    return score_of(keys[k - 1]);
}

/* Write the rows whose score is at least `edge`; return how many, or -1 if there is no room. */
EVERY_PROCESSOR
static int64_t reaching(const float *scores, int64_t count, double edge, int64_t *rows,
                        int64_t room) {
    int64_t found = 0;
    float below = (float)edge; /* rounded down */
    if (below > edge) below = nextafterf(below, -INFINITY);
    for (int64_t j = 0; j < count; j += STEP) {
        int64_t last = count - j < STEP ? count : j + STEP;
        int reached = 0;
        for (int64_t i = j; i < last; i++) reached |= scores[i] >= below;
        for (int64_t i = j; reached && i < last; i++)
            if (scores[i] >= below) {
                if (found == room) return -1;
                rows[found++] = i;
            }
    }
    return found;
}

/* near(scores, k, slack, rows) -> count: write the rows, ascending, whose score is at most `slack`
 * below the k-th best; -1 if there is no room. Twin: `rows_near_top` of topk.py. */
static PyObject *topk_near(PyObject *self, PyObject *args) {
    PyObject *scores_, *rows_;
    long long k;
    double slack;
    if (!PyArg_ParseTuple(args, "OLdO", &scores_, &k, &slack, &rows_)) return NULL;
    Py_buffer b[2];
    if (PyObject_GetBuffer(scores_, &b[0], PyBUF_CONTIG_RO | PyBUF_FORMAT)) return NULL;
    if (PyObject_GetBuffer(rows_, &b[1], PyBUF_CONTIG | PyBUF_FORMAT)) {
        release(b, 1);
        return NULL;
    }
    int64_t count = b[0].len / 4, room = b[1].len / 8, held = 2 * k + 256;
    if (k < 1 || k > count || count > UINT32_MAX || lacks(&b[0], 'f', 0) || lacks(&b[1], 'q', 0)) {
        release(b, 2);
        PyErr_SetString(PyExc_ValueError, "float32 scores, k of them or more, are wanted");
        return NULL;
    }
    int64_t found = 0;
    uint64_t *keys = malloc((size_t)held * sizeof *keys);
    if (keys) {
        Py_BEGIN_ALLOW_THREADS;
        double edge = (double)kth_best(b[0].buf, count, k, keys, held) - slack;
        found = reaching(b[0].buf, count, edge, b[1].buf, room);
        Py_END_ALLOW_THREADS;
    }
    free(keys);
    release(b, 2);
    return keys ? PyLong_FromLongLong(found) : PyErr_NoMemory();
}

static PyMethodDef functions[] = {
    {"offer", topk_offer, METH_VARARGS, "Offer a block of scores to the shortlists."},
    {"compact", topk_compact, METH_VARARGS, "Let go of what cannot be among the k best."},
    {"close", topk_close, METH_VARARGS, "Keys of what shortlists hold."},
    {"move", topk_move, METH_VARARGS, "What shortlists hold to an array, or its scores back."},
    {"near", topk_near, METH_VARARGS, "Places of scores near the k-th best."},
    {"narrow", topk_narrow, METH_VARARGS, "Round scores to a narrower format."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_topk", NULL, -1, functions,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__topk(void) { return PyModule_Create(&module); }
