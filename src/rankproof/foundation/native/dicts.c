/* Dicts of dicts, as scripts hold runs and judgments, ranked and measured in one pass without
 * columns of ids. Part of _native.c; the long way through tables gives the same
 * (compat/dict_groups.py). */

/* ---------------------------------------------------------------------- scores and ties */

/* Read a score, rounded to float32 if `narrow`; return 0, without an error, if it is not a number. */
static int read_score(PyObject *value, int narrow, double *out) {
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

/* A tied document: its id, and the eight bytes after the prefix that all ids of the tie share, as a
 * number that decides most comparisons. */
typedef struct {
    uint64_t head;
    const char *text;
    PyObject *id;
    int64_t row;
} TiedDocument;

static inline int compare_documents(const TiedDocument *a, const TiedDocument *b) {
    if (a->head != b->head) return a->head < b->head ? -1 : 1;
    return a->id == b->id ? 0 : PyUnicode_Compare(a->id, b->id);
}

static int compare_descending(const void *a, const void *b) { return compare_documents(b, a); }

/* Sort the first `some` of `count` tied documents, the judged ones, by id, greatest first, and set
 * before[i] to the number of all that come before them. Return 0 if an id is not valid text. */
static int order_tie(TiedDocument *tied, int64_t count, int64_t some, int64_t *before) {
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
    for (int64_t i = 0; i < count; i++) { /* text ends with 0, and nothing is read past it */
        const unsigned char *s = (const unsigned char *)tied[i].text + shared;
        tied[i].head = 0;
        for (int at = 0; at < 8; at++) {
            tied[i].head = tied[i].head << 8 | *s;
            s += *s != 0;
        }
    }
    qsort(tied, (size_t)some, sizeof *tied, compare_descending);
    memset(before, 0, (size_t)(some + 1) * sizeof *before);
    for (int64_t i = some; i < count; i++) {
        int64_t low = 0;
        for (int64_t high = some; low < high;) {
            int64_t middle = (low + high) / 2;
            if (compare_documents(&tied[middle], &tied[i]) > 0)
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

/* Return memory for `count` numbers, with some to spare; NULL if out of memory. */
static int64_t *grow_column(int64_t *memory, int64_t *capacity, int64_t count) {
    if (memory && count <= *capacity) return memory;
    int64_t size = *capacity * 2 > count ? *capacity * 2 : count + 1024;
    int64_t *more = realloc(memory, (size_t)size * sizeof *more);
    if (!more) return NULL;
    *capacity = size;
    return more;
}

/* Memory to rank one list. */
typedef struct {
    int64_t capacity;
    Item *items, *space;
    TiedDocument *tied;
    PyObject **docs, **known; /* of each row: its id, and its grade or NULL */
    double *score;
    int64_t *before;
    uint64_t judged_filter[16]; /* Bloom filter of the judged ids: it rules out most others */
    struct {
        PyObject *object;
        int64_t grade;
    } seen[16]; /* converted grades; there are few different ones */
} Workspace;

static int workspace_reserve(Workspace *d, int64_t count) {
    if (d->items && count < d->capacity) return 1; /* `before` needs one more */
    free(d->items);
    d->capacity = 2 * count + 1;
    d->items = malloc((size_t)d->capacity * (2 * sizeof(Item) + sizeof(TiedDocument) + 4 * 8));
    if (!d->items) return 0;
    d->space = d->items + d->capacity, d->tied = (TiedDocument *)(d->space + d->capacity);
    d->docs = (PyObject **)(d->tied + d->capacity), d->known = d->docs + d->capacity;
    d->score = (double *)(d->known + d->capacity), d->before = (int64_t *)(d->score + d->capacity);
    return 1;
}

static inline size_t filter_bit(PyObject *id) { return (size_t)PyObject_Hash(id) & 1023; }

/* Read a grade; return 0 if it is not a whole number. */
static inline int read_grade(Workspace *d, PyObject *value, int64_t *out) {
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

/* Return the number of dict members fetched next; their objects are prefetched together, since each
 * lies elsewhere in memory. */
static Py_ssize_t next_block(PyObject *dict, Py_ssize_t *place, PyObject **id, PyObject **value) {
    Py_ssize_t count = 0;
    while (count < BLOCK && PyDict_Next(dict, place, &id[count], &value[count])) {
        PREFETCH(id[count]);
        PREFETCH(value[count]);
        count++;
    }
    return count;
}

/* Rank the judged documents of one list, given as the dicts document → score and document → grade.
 * Writes all grades to `pooled`, and rank and grade of each judged document that is listed, by
 * rank. Ties go by id, greatest first, or as listed. Return how many are listed; -1 if the dicts
 * need the long way, or with an error set. */
static int64_t rank_judged(Workspace *d, PyObject *list, PyObject *judged, int narrow, int by_id,
                           int64_t *pooled, int64_t *rank, int64_t *grade) {
    enum { FEW = 16 }; /* if so few are judged, their ranks are counted instead of sorting all */
    PyObject *id[BLOCK], *value[BLOCK];
    int64_t count = 0, shared = 0, kept = 0, found = 0;
    int is_filtered = 2 * PyDict_Size(judged) < PyDict_Size(list) && PyDict_Size(judged) < 256;
    /* An OrderedDict may iterate in an order of its own. */
    if (!by_id && PyType_GetSlot(Py_TYPE(list), Py_tp_iter) != PyType_GetSlot(&PyDict_Type, Py_tp_iter))
        return -1;
    if (is_filtered) memset(d->judged_filter, 0, sizeof d->judged_filter);
    for (Py_ssize_t place = 0, some; (some = next_block(judged, &place, id, value));) {
        for (Py_ssize_t i = 0; i < some; i++) {
            if (!PyUnicode_CheckExact(id[i]) || !read_grade(d, value[i], pooled++)) return -1;
            size_t bit = is_filtered ? filter_bit(id[i]) : 0;
            if (is_filtered) d->judged_filter[bit / 64] |= (uint64_t)1 << bit % 64;
        }
    }
    if (!workspace_reserve(d, PyDict_Size(list))) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t place = 0, some; (some = next_block(list, &place, id, value));) {
        for (Py_ssize_t i = 0; i < some; i++, count++) {
            if (!PyUnicode_CheckExact(id[i]) || !read_score(value[i], narrow, &d->score[count]))
                return -1;
            size_t bit = is_filtered ? filter_bit(id[i]) : 0;
            int lacks = is_filtered && !(d->judged_filter[bit / 64] >> bit % 64 & 1);
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
    sort_by_score(d->items, d->space, kept);
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
            read_grade(d, d->known[row], &grade[found++]);
            if (same == 1) break;
            d->tied[some].id = d->docs[row];
            d->tied[some++].row = row;
        }
        if (!some) continue;
        if (!by_id) { /* unjudged documents may be listed between those kept */
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
        if (!order_tie(d->tied, same, some, d->before)) return -1;
        for (int64_t i = 0; i < some; i++) {
            rank[begin + i] = above + 1 + d->before[i];
            read_grade(d, d->known[d->tied[i].row], &grade[begin + i]);
        }
    }
    return found;
}

/* Fetch the next query that both dicts have, and its two inner dicts; return 0 at the end, or with
 * `good` cleared where the dicts need the long way. */
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

/* ------------------------------------------------------------ functions for compat */

/* settle(run, qrels, narrow, by_id) -> (queries, listed, judged, grades, query, rank, grade), or
 * None
 *
 * Rank the judged documents of every query that both dicts of dicts have: numbers of documents
 * listed and judged, the grades of all judgments, and query, rank and grade of those that are
 * listed. None if something is not a plain dict, id, score or grade. Twin: compat/dict_groups.py,
 * which then reads the dicts as any others. */
static PyObject *native_settle(PyObject *self, PyObject *args) {
    PyObject *run, *qrels, *query, *list, *judged;
    int narrow, by_id;
    if (!PyArg_ParseTuple(args, "O!O!ii", &PyDict_Type, &run, &PyDict_Type, &qrels, &narrow, &by_id))
        return NULL;
    enum { LISTED, JUDGED, GRADE, QUERY, RANK, LISTED_GRADE, COLUMNS };
    int64_t *column[COLUMNS] = {0}, capacity[COLUMNS] = {0};
    int64_t total = 0, listed = 0, queries = 0;
    Workspace workspace = {.items = NULL};
    PyObject *names = PyList_New(0), *result = NULL;
    int good = names != NULL;
    Py_ssize_t place = 0;
    while (next_query(run, qrels, &place, &query, &list, &judged, &good)) {
        int64_t judgments = PyDict_Size(judged);
        for (int c = 0; c < COLUMNS && good; c++) {
            int64_t *grown = grow_column(column[c], &capacity[c], c < GRADE ? queries + 1 : total + judgments);
            good = grown != NULL;
            if (grown) column[c] = grown;
        }
        if (!good) PyErr_NoMemory();
        if (!good || PyList_Append(names, query)) break;
        int64_t ranked = rank_judged(&workspace, list, judged, narrow, by_id, column[GRADE] + total,
                                    column[RANK] + listed, column[LISTED_GRADE] + listed);
        good = ranked >= 0;
        for (int64_t i = 0; i < ranked; i++) column[QUERY][listed + i] = queries;
        column[LISTED][queries] = PyDict_Size(list);
        column[JUDGED][queries++] = judgments;
        listed += ranked;
        total += judgments;
    }
    free(workspace.items);
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

/* nest(rows, query, doc, value): return {query: {document: value}} of tuples, which hold them at
 * these positions. Called by compat.ir_measures. */
static PyObject *native_nest(PyObject *self, PyObject *args) {
    PyObject *rows, *last = NULL, *inner = NULL;
    Py_ssize_t at[3];
    if (!PyArg_ParseTuple(args, "O!nnn", &PyList_Type, &rows, &at[0], &at[1], &at[2])) return NULL;
    PyObject *nested = PyDict_New();
    Py_ssize_t count = PyList_Size(rows);
    for (Py_ssize_t r = 0; nested && r < count; r++) {
        PyObject *row = PyList_GetItem(rows, r), *field[3];
        int bad = !PyTuple_Check(row);
        if (bad) PyErr_SetString(PyExc_TypeError, "expected tuples");
        for (int f = 0; f < 3 && !bad; f++) bad = !(field[f] = PyTuple_GetItem(row, at[f]));
        if (!bad && field[0] != last) {
            last = field[0];
            inner = PyDict_GetItemWithError(nested, last);
            bad = !inner && PyErr_Occurred();
            if (!inner && !bad) {
                PyObject *fresh = PyDict_New();
                bad = !fresh || PyDict_SetItem(nested, last, fresh);
                inner = fresh; /* held by `nested` */
                Py_XDECREF(fresh);
            }
        }
        if (bad || PyDict_SetItem(inner, field[1], field[2])) Py_CLEAR(nested);
    }
    return nested;
}

/* Rows of a table as dicts. Values repeat often, so their Python objects are cached. */
enum { CACHE_BITS = 12 };

typedef struct {
    PyObject *result, *template, *names;
    Py_ssize_t width;
    double *earlier; /* the values in the template */
    struct {
        double number;
        PyObject *object;
    } cache[1 << CACHE_BITS];
} Rows;

/* Return rows for a template whose keys `names` get the values; NULL with an error set. */
static Rows *rows_new(PyObject *template, PyObject *names) {
    Rows *rows = calloc(1, sizeof *rows);
    if (!rows) return (Rows *)PyErr_NoMemory();
    rows->template = template, rows->names = names, rows->width = PyList_Size(names);
    rows->result = PyDict_New();
    rows->earlier = malloc((size_t)(rows->width + 1) * sizeof(double));
    if (!rows->earlier) PyErr_NoMemory();
    return rows;
}

/* Return the dict of rows, a new reference; NULL with an error set. */
static PyObject *rows_finish(Rows *rows) {
    if (!rows) return NULL;
    PyObject *result = rows->result;
    for (int at = 0; at < 1 << CACHE_BITS; at++) Py_XDECREF(rows->cache[at].object);
    free(rows->earlier);
    free(rows);
    if (PyErr_Occurred()) Py_CLEAR(result);
    return result;
}

/* Return the float of a number, a borrowed reference; NULL with an error set. */
static PyObject *rows_float(Rows *rows, double number) {
    uint64_t word;
    memcpy(&word, &number, 8);
    size_t at = word * 0x9E3779B97F4A7C15u >> (64 - CACHE_BITS);
    if (!rows->cache[at].object || memcmp(&rows->cache[at].number, &number, 8)) {
        PyObject *object = PyFloat_FromDouble(number);
        if (!object) return NULL;
        Py_XDECREF(rows->cache[at].object);
        rows->cache[at].number = number;
        rows->cache[at].object = object;
    }
    return rows->cache[at].object;
}

/* Add {query: a copy of the template with these values}; return 0 with an error set. */
static int rows_add(Rows *rows, PyObject *query, const double *figures) {
    int first = !PyDict_Size(rows->result);
    for (Py_ssize_t n = 0; n < rows->width; n++) {
        if (!first && !memcmp(&figures[n], &rows->earlier[n], 8)) continue;
        PyObject *number = rows_float(rows, figures[n]);
        if (!number || PyDict_SetItem(rows->template, PyList_GetItem(rows->names, n), number))
            return 0;
        rows->earlier[n] = figures[n];
    }
    PyObject *row = PyDict_Copy(rows->template);
    int good = row && !PyDict_SetItem(rows->result, query, row);
    Py_XDECREF(row);
    return good;
}

/* rows(queries, template, names, table): return {query: a copy of the template with its values}.
 * `table` has a row of float64 for each query; the template is overwritten. Called by
 * compat.pytrec_eval. */
static PyObject *native_rows(PyObject *self, PyObject *args) {
    PyObject *queries, *template, *names, *table_;
    if (!PyArg_ParseTuple(args, "O!O!O!O", &PyList_Type, &queries, &PyDict_Type, &template,
                          &PyList_Type, &names, &table_))
        return NULL;
    Lease lease;
    lease_open(&lease);
    Py_ssize_t count = PyList_Size(queries), width = PyList_Size(names);
    const double *table = lease_array(&lease, table_, F64, count * width, READ);
    Rows *rows = table ? rows_new(template, names) : NULL;
    for (Py_ssize_t q = 0; q < count && !PyErr_Occurred(); q++)
        rows_add(rows, PyList_GetItem(queries, q), table + q * width);
    Py_XDECREF(lease_close(&lease));
    return rows_finish(rows);
}

/* tabulate(run, qrels, rel, which, at, template, names) -> {query: {measure: value}}, or None
 *
 * Do `settle` (by float32 and id), `figures` and `rows` in one pass, while each query is in the
 * cache. Queries without judgments are skipped. None where `settle` returns it or `figures` refuses
 * a grade. Called by compat.pytrec_eval. */
static PyObject *native_tabulate(PyObject *self, PyObject *args) {
    PyObject *run, *qrels, *which_, *at_, *template, *names, *query, *list, *judged;
    long long rel;
    if (!PyArg_ParseTuple(args, "O!O!LOOO!O!", &PyDict_Type, &run, &PyDict_Type, &qrels, &rel,
                          &which_, &at_, &PyDict_Type, &template, &PyList_Type, &names))
        return NULL;
    Lease lease;
    lease_open(&lease);
    MeasureList w = {.rel = rel};
    lease_measures(&lease, &w, which_, at_);
    int good = lease_require(&lease, w.count == PyList_Size(names), "expected a name for each figure");
    Rows *rows = good ? rows_new(template, names) : NULL;
    RankedQuery q = {.memory = NULL};
    Workspace workspace = {.items = NULL};
    int64_t *memory = NULL, most = 0;
    double *figures = lease_memory(&lease, w.count, sizeof *figures, 0);
    good = rows && figures;
    int collects = PyGC_Disable(); /* no reference cycles are made here */
    Py_ssize_t place = 0;
    while (next_query(run, qrels, &place, &query, &list, &judged, &good)) {
        int64_t pool = PyDict_Size(judged);
        if (!pool) continue;
        if (!memory || pool > most) {
            free(memory);
            most = 2 * pool + 1;
            memory = malloc((size_t)most * 3 * sizeof *memory);
        }
        int64_t *pooled = memory, *rank = memory + most, *grade = rank + most;
        int64_t ranked = memory ? rank_judged(&workspace, list, judged, 1, 1, pooled, rank, grade) : -1;
        good = ranked >= 0;
        for (int64_t i = 0; i < pool && good; i++) good = pooled[i] >= 0 && pooled[i] < GRADES;
        if (!good) {
            if (!memory) PyErr_NoMemory();
            break;
        }
        if (!compute_values(&q, &w, PyDict_Size(list), rank, grade, ranked, pooled, pool, figures)) {
            PyErr_NoMemory();
            break;
        }
        good = rows_add(rows, query, figures);
    }
    if (collects) PyGC_Enable();
    free(memory);
    free(workspace.items);
    ranked_query_free(&q);
    Py_XDECREF(lease_close(&lease));
    PyObject *result = rows_finish(rows);
    if (!result || good) return result;
    Py_DECREF(result);
    Py_RETURN_NONE;
}
