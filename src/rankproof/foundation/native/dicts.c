/* Dicts of dicts to dicts of figures in one pass. A part of _native.c. */

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
    PyObject *queries, *template, *names, *table_;
    if (!PyArg_ParseTuple(args, "O!O!O!O", &PyList_Type, &queries, &PyDict_Type, &template,
                          &PyList_Type, &names, &table_))
        return NULL;
    Lease lease;
    lease_open(&lease);
    Py_ssize_t count = PyList_Size(queries), width = PyList_Size(names);
    const double *table = lease_array(&lease, table_, REAL, count * width, READ);
    Rows *rows = table ? rows_new(template, names) : NULL;
    for (Py_ssize_t q = 0; q < count && !PyErr_Occurred(); q++)
        rows_add(rows, PyList_GetItem(queries, q), table + q * width);
    Py_XDECREF(lease_close(&lease));
    return rows_finish(rows);
}

/* tabulate(run, qrels, rel, which, at, template, names): `settle` by float32 and id, `figures` and
 * `rows` in one pass, in which what is read of a query is still at hand. Queries without judgements
 * are passed over. None where `settle` would say so, and where `figures` would refuse a grade. */
static PyObject *native_tabulate(PyObject *self, PyObject *args) {
    PyObject *run, *qrels, *which_, *at_, *template, *names, *query, *list, *judged;
    long long rel;
    if (!PyArg_ParseTuple(args, "O!O!LOOO!O!", &PyDict_Type, &run, &PyDict_Type, &qrels, &rel,
                          &which_, &at_, &PyDict_Type, &template, &PyList_Type, &names))
        return NULL;
    Lease lease;
    lease_open(&lease);
    Wanted w = {.rel = rel};
    lease_wanted(&lease, &w, which_, at_);
    int good = lease_check(&lease, w.count == PyList_Size(names), "expected a name for each figure");
    Rows *rows = good ? rows_new(template, names) : NULL;
    Listed q = {.memory = NULL};
    Desk desk = {.items = NULL};
    int64_t *room = NULL, most = 0;
    double *figures = lease_room(&lease, w.count, sizeof *figures, 0);
    good = rows && figures;
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
    free(desk.items);
    listed_free(&q);
    Py_XDECREF(lease_close(&lease));
    PyObject *made = rows_finish(rows);
    if (!made || good) return made;
    Py_DECREF(made);
    Py_RETURN_NONE;
}
