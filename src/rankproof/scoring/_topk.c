/* The k best of a stream of float32 scores, and how many tie with the last of them.
 *
 * A candidate is one 64-bit key: the score's bits, mapped so that larger means better, above the
 * document's number, inverted so that of equal scores the earlier document is better. Keys are
 * distinct and their order is total, so the k best are well defined whatever the blocks were.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static inline uint32_t ordered(float score) {
    uint32_t bits;
    score += 0.0f; /* −0 and 0 are one score */
    memcpy(&bits, &score, 4);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static inline float score_of(uint64_t key) {
    uint32_t bits = (uint32_t)(key >> 32);
    bits = bits & 0x80000000u ? bits & 0x7FFFFFFFu : ~bits;
    float score;
    memcpy(&score, &bits, 4);
    return score;
}

static inline uint64_t key_of(float score, int64_t document) {
    return (uint64_t)ordered(score) << 32 | (uint32_t)~(uint32_t)document;
}

/* Brings the k largest of count keys to the front, the least of them at k − 1: quickselect with a
 * median of three. Keys are distinct, and the partition does not branch on them. */
static void select_largest(uint64_t *keys, int64_t count, int64_t k) {
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

typedef struct {
    uint64_t *keys; /* room for `room` */
    int64_t *count;
    float *bar;    /* score of the worst of the k best, −inf before there are k */
    int64_t *tied; /* documents left out whose score is `bar` */
    int64_t k, room;
} Shortlist;

static void keep_best(Shortlist *s) {
    select_largest(s->keys, *s->count, s->k);
    float bar = score_of(s->keys[s->k - 1]);
    if (bar > *s->bar) *s->tied = 0;
    for (int64_t i = s->k; i < *s->count; i++) *s->tied += score_of(s->keys[i]) == bar;
    *s->bar = bar;
    *s->count = s->k;
}

static inline void offer_one(Shortlist *s, float score, int64_t document) {
    if (score > *s->bar) {
        s->keys[(*s->count)++] = key_of(score, document);
        if (*s->count == s->room) keep_best(s);
    } else if (score == *s->bar) {
        (*s->tied)++;
    }
}

#define STEP 32

static void offer_row(Shortlist *s, const float *scores, int64_t count, int64_t first) {
    int64_t i = 0;
    for (; i + STEP <= count; i += STEP) {
        float bar = *s->bar;
        int any = 0;
        for (int j = 0; j < STEP; j++) any |= scores[i + j] >= bar;
        if (!any) continue;
        /* Which of them reach the bar is not predictable: collect them without branching. */
        int reached[STEP], number = 0;
        for (int j = 0; j < STEP; j++) {
            reached[number] = j;
            number += scores[i + j] >= bar;
        }
        for (int n = 0; n < number; n++)
            offer_one(s, scores[i + reached[n]], first + i + reached[n]);
    }
    for (; i < count; i++) offer_one(s, scores[i], first + i);
}

static int take(PyObject *array, Py_buffer *buffer, int writable) {
    return PyObject_GetBuffer(array, buffer, writable ? PyBUF_CONTIG : PyBUF_CONTIG_RO);
}

/* offer(scores, width, first, k, keys, room, count, bar, tied, low, high): documents first,
 * first+1, … with scores (Q, width) for queries low … high−1. */
static PyObject *topk_offer(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[5];
    long long width, first, k, room, low, high;
    if (!PyArg_ParseTuple(args, "OLLLOLOOOLL", &objects[0], &width, &first, &k, &objects[1], &room,
                          &objects[2], &objects[3], &objects[4], &low, &high))
        return NULL;
    Py_buffer b[5];
    for (int i = 0; i < 5; i++)
        if (take(objects[i], &b[i], i > 0)) {
            while (i-- > 0) PyBuffer_Release(&b[i]);
            return NULL;
        }
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = low; q < high; q++) {
        Shortlist s = {(uint64_t *)b[1].buf + q * room, (int64_t *)b[2].buf + q,
                       (float *)b[3].buf + q, (int64_t *)b[4].buf + q, k, room};
        offer_row(&s, (const float *)b[0].buf + q * width, width, first);
    }
    Py_END_ALLOW_THREADS;
    for (int i = 0; i < 5; i++) PyBuffer_Release(&b[i]);
    Py_RETURN_NONE;
}

/* finish(k, keys, room, count, bar, tied, low, high): the k best at the front of each row. */
static PyObject *topk_finish(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *objects[4];
    long long k, room, low, high;
    if (!PyArg_ParseTuple(args, "LOLOOOLL", &k, &objects[0], &room, &objects[1], &objects[2],
                          &objects[3], &low, &high))
        return NULL;
    Py_buffer b[4];
    for (int i = 0; i < 4; i++)
        if (take(objects[i], &b[i], 1)) {
            while (i-- > 0) PyBuffer_Release(&b[i]);
            return NULL;
        }
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = low; q < high; q++) {
        Shortlist s = {(uint64_t *)b[0].buf + q * room, (int64_t *)b[1].buf + q,
                       (float *)b[2].buf + q, (int64_t *)b[3].buf + q, k, room};
        if (*s.count > k) keep_best(&s);
    }
    Py_END_ALLOW_THREADS;
    for (int i = 0; i < 4; i++) PyBuffer_Release(&b[i]);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"offer", topk_offer, METH_VARARGS, "Offer a block of scores to the shortlists."},
    {"finish", topk_finish, METH_VARARGS, "Bring the k best to the front of each shortlist."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_topk", NULL, -1, functions,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__topk(void) { return PyModule_Create(&module); }
