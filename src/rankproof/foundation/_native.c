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

/* One unit for the compiler, so that what is small is put in where it is called. */
#include "native/strings.c"
#include "native/parser.c"
#include "native/arrays.c"
#include "native/kernels.c"
#include "native/bounds.c"
#include "native/figures.c"
#include "native/dicts.c"

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
