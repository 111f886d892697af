/* The inner loops that numpy and polars cannot express: reading TREC lines, finding documents in
 * the list of their query, sorting each list, and Python's dicts of dicts.
 *
 * Each function has a twin in Python, named in its comment, that runs if this file was not
 * compiled. Tests hold both to the same results, to the last bit.
 *
 * Files, in the order in which they need each other:
 *     strings.c   columns of text in Arrow's layout, and memory lent to numpy
 *     parser.c    TREC files, read by several threads
 *     arrays.c    arguments from Python, checked; ids that no file may hold
 *     kernels.c   joins, ranking, tie groups, sums over groups
 *     bounds.c    ends of measures over every grade that unjudged documents could have
 *     figures.c   measures of lists without ties, among them all of trec_eval's
 *     dicts.c     dicts of dicts, ranked and measured in one pass
 *
 * Notation: a list of rows by query is described by its offsets start (Q+1,): query q owns rows
 * start[q]:start[q+1]. Most functions work on the queries [first, last), so that threads can share
 * the work.
 *
 * Text columns are Arrow "string view" arrays, exchanged through the Arrow C data interface, which
 * polars exports and imports without copying. A view is 16 bytes: the length, then either the text
 * itself (up to 12 bytes, zero-padded) or its first 4 bytes, a buffer number and an offset. */
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

/* One translation unit, so that small functions are inlined where they are called. */
#include "native/strings.c"
#include "native/parser.c"
#include "native/arrays.c"
#include "native/kernels.c"
#include "native/bounds.c"
#include "native/figures.c"
#include "native/dicts.c"

static PyMethodDef functions[] = {
    {"nest", native_nest, METH_VARARGS, "Make a dict of dicts from tuples."},
    {"tabulate", native_tabulate, METH_VARARGS, "Compute trec_eval's measures of dicts of dicts."},
    {"rows", native_rows, METH_VARARGS, "Make a dict of dicts from a table."},
    {"precisions", native_precisions, METH_VARARGS, "Sum precisions at relevant documents."},
    {"discounted", native_discounted, METH_VARARGS, "Sum discounted gains."},
    {"tally", native_tally, METH_VARARGS, "Count the grades of each query."},
    {"ideal", native_ideal, METH_VARARGS, "Sum the discounted gains of the best order."},
    {"figures", native_figures, METH_VARARGS, "Compute trec_eval's measures of ranked lists."},
    {"settle", native_settle, METH_VARARGS, "Rank the judged documents of dicts."},
    {"first_unfit", native_first_unfit, METH_O, "Find an id that is empty or has a control character."},
    {"index", native_index, METH_VARARGS, "Fill hash tables over each query's documents."},
    {"lookup", native_lookup, METH_VARARGS, "Find documents in their queries' lists."},
    {"falls", native_falls, METH_VARARGS, "Find the tie groups of sorted lists."},
    {"place", native_place, METH_VARARGS, "Rank the rows of each list."},
    {"grouped", native_grouped, METH_VARARGS, "Find the tie groups of judged documents."},
    {"chosen", native_chosen, METH_VARARGS, "Select tie groups."},
    {"counted", native_counted, METH_VARARGS, "Count documents in the top k of lists with ties."},
    {"averages", native_averages, METH_VARARGS, "Sum precisions over lists with ties."},
    {"starts", native_starts, METH_VARARGS, "Find where queries begin in sorted rows."},
    {"group", native_group, METH_VARARGS, "Find the rows of each query."},
    {"scatter", native_scatter, METH_VARARGS, "Sort rows by query."},
    {"merge", native_merge, METH_VARARGS, "Sum the values of equal documents over lists."},
    {"precision", native_precision, METH_VARARGS, "Bound average precision over unjudged documents."},
    {"cascade", native_cascade, METH_VARARGS, "Sum a cascade measure over lists with unjudged documents."},
    {"preference", native_preference, METH_VARARGS, "Bound bpref over unjudged documents."},
    {"interpolated", native_interpolated, METH_VARARGS, "Bound precision at recall over unjudged documents."},
    {"share", native_share, METH_VARARGS, "Find the unjudged documents that two runs share."},
    {"lead", native_lead, METH_VARARGS, "Weigh the unjudged documents of two runs."},
    {"gain", native_gain, METH_VARARGS, "Bound nDCG over unjudged documents."},
    {"sets", native_sets, METH_VARARGS, "Bound RAnWG over unjudged documents."},
    {"gains", native_gains, METH_VARARGS, "Bound differences of nDCG over unjudged documents."},
    {"gain_in_rows", native_gain_in_rows, METH_VARARGS, "Bound nDCG where all other ranks are unjudged."},
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
