/* Measures of lists without ties, among them all of trec_eval's. Part of _native.c. */

/* ----------------------------------------------------------------------- sums over lists */

/* precisions(query, rank, grade, rel, cut, total)
 *
 * Add number/rank of each relevant document up to the cut to the total of its query. Twin:
 * kernels.precision_sum. */
static PyObject *native_precisions(PyObject *self, PyObject *args) {
    PyObject *query_, *rank_, *grade_, *cut_, *total_;
    long long rel;
    if (!PyArg_ParseTuple(args, "OOOLOO", &query_, &rank_, &grade_, &rel, &cut_, &total_)) return NULL;
    Lease lease;
    lease_open(&lease);
    const int64_t *query = lease_array(&lease, query_, I64, 0, READ);
    int64_t count = lease.items;
    const int64_t *rank = lease_array(&lease, rank_, I64, count, READ);
    const int64_t *grade = lease_array(&lease, grade_, I64, count, READ);
    double *total = lease_array(&lease, total_, F64, 0, WRITE);
    int64_t queries = lease.items;
    const int64_t *cut = lease_array(&lease, cut_, I64, queries, READ);
    int good = !lease.failed;
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
    lease_require(&lease, good, "there is no such query");
    return lease_close(&lease);
}

/* discounted(query, rank, gain, discount, cut, total)
 *
 * Add gain/discount[rank] of each document up to the cut to the total of its query. Twin:
 * kernels.discounted_sum. */
static PyObject *native_discounted(PyObject *self, PyObject *args) {
    PyObject *query_, *rank_, *gain_, *discount_, *cut_, *total_;
    if (!PyArg_ParseTuple(args, "OOOOOO", &query_, &rank_, &gain_, &discount_, &cut_, &total_))
        return NULL;
    Lease lease;
    lease_open(&lease);
    const int64_t *query = lease_array(&lease, query_, I64, 0, READ);
    int64_t count = lease.items;
    const int64_t *rank = lease_array(&lease, rank_, I64, count, READ);
    const double *gain = lease_array(&lease, gain_, F64, count, READ);
    double *total = lease_array(&lease, total_, F64, 0, WRITE);
    int64_t queries = lease.items;
    const double *discount = lease_array(&lease, discount_, F64, 1, READ);
    int64_t longest = lease.items;
    const int64_t *cut = lease_array(&lease, cut_, I64, queries, READ);
    int good = !lease.failed;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t i = 0; i < count && good; i++) {
        int64_t q = query[i], r = rank[i];
        good = q >= 0 && q < queries && r >= 0;
        if (!good || r > cut[q]) continue;
        good = r < longest;
        if (good) total[q] += gain[i] / discount[r];
    }
    Py_END_ALLOW_THREADS;
    lease_require(&lease, good, "there is no such query or rank");
    return lease_close(&lease);
}

/* tally(start, grade, low, high, count): count the grades of each query in low to high. Twin:
 * kernels.count_grades. */
static PyObject *native_tally(PyObject *self, PyObject *args) {
    PyObject *start_, *grade_, *count_;
    long long low, high;
    if (!PyArg_ParseTuple(args, "OOLLO", &start_, &grade_, &low, &high, &count_)) return NULL;
    Lease lease;
    lease_open(&lease);
    int64_t *count = lease_array(&lease, count_, I64, 0, WRITE);
    int64_t queries = lease.items, judged;
    const int64_t *start = lease_starts(&lease, start_, queries, &judged);
    const int64_t *grade = lease_array(&lease, grade_, I64, judged, READ);
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = 0; q < queries && grade; q++) {
        count[q] = 0;
        for (int64_t i = start[q]; i < start[q + 1]; i++)
            count[q] += grade[i] >= low && grade[i] <= high;
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* ideal(start, grade, worth, discount, cut, total)
 *
 * Add the ideal Σ worth[grade]/discount[rank] up to rank `cut`, highest grades first, to each
 * query's total: kernels.ideal_gain. */
static PyObject *native_ideal(PyObject *self, PyObject *args) {
    PyObject *start_, *grade_, *worth_, *discount_, *total_;
    long long cut;
    if (!PyArg_ParseTuple(args, "OOOOLO", &start_, &grade_, &worth_, &discount_, &cut, &total_))
        return NULL;
    Lease lease;
    lease_open(&lease);
    double *total = lease_array(&lease, total_, F64, 0, WRITE);
    int64_t queries = lease.items, judged;
    const int64_t *start = lease_starts(&lease, start_, queries, &judged);
    const int64_t *grade = lease_array(&lease, grade_, I64, judged, READ);
    const double *worth = lease_array(&lease, worth_, F64, 1, READ);
    int64_t levels = lease.items;
    const double *discount = lease_array(&lease, discount_, F64, cut + 1, READ);
    int64_t *held = lease_memory(&lease, levels, sizeof *held, 1);
    int good = !lease.failed;
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
    lease_require(&lease, good, "there is no such grade");
    return lease_close(&lease);
}

/* ------------------------------------------------- trec_eval's measures */

/* Numbered as in compat/trec_lines.py. */
enum {
    NUM_RET, NUM_REL, NUM_REL_RET, MAP, GM_MAP, RPREC, BPREF, RECIP_RANK, IPREC, PRECISION,
    RELSTRING, RECALL, INFAP, GM_BPREF, RPREC_MULT, UTILITY, ELEVEN, BING, GAIN, NDCG, NDCG_REL,
    RNDCG, NDCG_CUT, MAP_CUT, RELATIVE_P, SUCCESS, SET_P, SET_RELATIVE_P, SET_RECALL, SET_MAP,
    SET_F, NUM_NONREL, YAAP, MEASURES,
};

enum { GRADES = 64 }; /* grades from 0 to 63 are counted in arrays */

/* The requested measures, and which sums over documents they need. */
typedef struct {
    int64_t count, rel;
    const int64_t *which;
    const double *at; /* cutoff, or share of recall, of each measure */
    int interpolated, preferred, inferred, binary, gains;
} MeasureList;

/* log2(rank + 1) by rank, computed up to the highest rank needed so far. */
typedef struct {
    int64_t count;
    double *value;
} Discount;

/* Compute discounts up to a rank; return 0 if out of memory. */
static int extend_discounts(Discount *d, int64_t rank) {
    if (rank < d->count) return 1;
    int64_t count = 2 * rank + 64;
    double *more = realloc(d->value, (size_t)count * sizeof *more);
    if (!more) return 0;
    d->value = more;
    for (; d->count < count; d->count++) more[d->count] = log2((double)(d->count + 1));
    return 1;
}

/* What the measures of one query need: its relevant documents by rank, those with a gain, and the
 * ideal list. Sums are indexed by the number of documents summed. */
typedef struct {
    Discount discount;
    char *memory;
    int64_t room;
    int64_t listed, wanted, others; /* others: judged and not relevant */
    int64_t found, *rank;
    double *sum, *precision; /* sum of precisions; precision, or the highest from here on */
    double preferred, inferred, binary;
    int64_t gains, *gain_rank, *gain;
    double *reached;
    int64_t ideals, *cost;
    double *best;
    int64_t changes, change[GRADES]; /* ranks after which the ideal list has a lower gain */
    int64_t held[GRADES]; /* number of documents of each grade; cleared after each query */
} RankedQuery;

/* Make room for so many judged documents, of ranks up to `last`; return 0 if out of memory. */
static int ranked_query_reserve(RankedQuery *q, int64_t count, int64_t last) {
    if (!extend_discounts(&q->discount, last > count ? last : count)) return 0;
    if (q->memory && count < q->room) return 1;
    free(q->memory);
    q->room = 2 * count + 2;
    q->memory = malloc((size_t)q->room * 8 * 8);
    if (!q->memory) return 0;
    int64_t *ints = (int64_t *)q->memory;
    double *reals = (double *)(ints + 4 * q->room);
    q->rank = ints, q->gain_rank = ints + q->room, q->gain = ints + 2 * q->room;
    q->cost = ints + 3 * q->room, q->sum = reals, q->precision = reals + q->room;
    q->reached = reals + 2 * q->room, q->best = reals + 3 * q->room;
    return 1;
}

static void ranked_query_free(RankedQuery *q) {
    free(q->memory);
    free(q->discount.value);
}

/* Return how many of ascending ranks are at most `cut`. */
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

/* Fill in the relevant documents of a query and the sums over them. */
static void sum_over_relevant(RankedQuery *q, const MeasureList *w, const int64_t *rank,
                              const int64_t *grade, int64_t count) {
    const double little = 0.00001; /* trec_eval's smoothing of infAP */
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
        q->precision[q->found] = (double)q->found / (double)rank[i];
        q->sum[q->found] = total += q->precision[q->found];
        if (w->preferred)
            q->preferred += 1.0 - (bound > 0 ? (double)least(above, bound) / (double)bound : 0.0);
        if (w->inferred) {
            double chance = (r + little) / (r + n + 2 * little);
            double rest = over / (over + 1.0) * ((r + n) / (over > 1.0 ? over : 1.0)) * chance;
            q->inferred += 1.0 / (over + 1.0) + rest;
        }
        if (w->binary) q->binary += 1.0 / q->discount.value[rank[i] - q->found + 1];
    }
    for (int64_t i = w->interpolated ? q->found - 1 : 0; i > 0; i--)
        if (q->precision[i] < q->precision[i + 1]) q->precision[i] = q->precision[i + 1];
}

/* Fill in the documents with a gain and the ideal list, for grades up to `top`. */
static void sum_over_gains(RankedQuery *q, const int64_t *rank, const int64_t *grade, int64_t count,
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

/* Return trec_eval's G: gains over the logarithm of the gain lost on the way to them. */
static double gain_over_cost(const RankedQuery *q) {
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

/* Return nDCG averaged over the ranks of documents with a gain (ndcg_rel). */
static double ndcg_at_relevant(const RankedQuery *q) {
    double total = 0.0;
    if (!q->ideals) return 0.0;
    for (int64_t i = 0; i < q->gains; i++)
        total += q->reached[i + 1] / q->best[least(q->gain_rank[i], q->ideals)];
    total += (double)(q->ideals - q->gains) * q->reached[q->gains] / q->best[q->ideals];
    return total / (double)q->ideals;
}

/* Return nDCG averaged over the ranks where the ideal list changes its gain (Rndcg). */
static double ndcg_at_levels(const RankedQuery *q) {
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

/* Return interpolated precision at a level of recall. */
static inline double interpolated_at(const RankedQuery *q, double level) {
    int64_t at = (int64_t)floor(level * (double)q->wanted + 0.9);
    if (at < 1) at = 1;
    return at <= q->found ? q->precision[at] : 0.0;
}

/* Return the logarithm that a geometric mean averages. */
static inline double log_of(double value) { return log(value > 1e-5 ? value : 1e-5); }

/* Return one measure of a query, as trec_eval computes it, at a cutoff or share of recall. */
static double measure_value(const RankedQuery *q, int64_t which, double at) {
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

/* Compute the measures of a query from its judged documents by rank and the grades of all its
 * judgments; return 0 if out of memory. */
static int compute_values(RankedQuery *q, const MeasureList *w, int64_t listed, const int64_t *rank,
                        const int64_t *grade, int64_t count, const int64_t *pooled, int64_t pool,
                        double *into) {
    int64_t top = 0;
    if (!ranked_query_reserve(q, count > pool ? count : pool, count ? rank[count - 1] : 0)) return 0;
    q->listed = listed, q->others = 0;
    for (int64_t i = 0; i < pool; i++) {
        q->held[pooled[i]]++;
        top = pooled[i] > top ? pooled[i] : top;
        q->others += pooled[i] < w->rel;
    }
    q->wanted = pool - q->others;
    sum_over_relevant(q, w, rank, grade, count);
    if (w->gains) sum_over_gains(q, rank, grade, count, top);
    memset(q->held, 0, (size_t)(top + 1) * sizeof *q->held);
    for (int64_t n = 0; n < w->count; n++) {
        int64_t which = w->which[n];
        if (which == NUM_NONREL)
            into[n] = (double)(count - q->found);
        else if (!listed && (which == IPREC || which == ELEVEN) &&
                 floor(w->at[n] * (double)q->wanted + 0.9) < 1)
            into[n] = copysign(NAN, -1.0); /* 0/0 */
        else
            into[n] = measure_value(q, which, w->at[n]);
    }
    return 1;
}

/* Fill in the requested measures, and check that they exist. */
static void lease_measures(Lease *lease, MeasureList *w, PyObject *which, PyObject *at) {
    w->which = lease_array(lease, which, I64, 0, READ);
    w->count = lease->items;
    w->at = lease_array(lease, at, F64, w->count, READ);
    for (int64_t n = 0; n < w->count && !lease->failed; n++) {
        int64_t one = w->which[n];
        lease_require(lease, one >= 0 && one < MEASURES, "there is no such figure");
        w->interpolated |= one == IPREC || one == ELEVEN;
        w->preferred |= one == BPREF || one == GM_BPREF;
        w->inferred |= one == INFAP;
        w->binary |= one == BING;
        w->gains |= one == NDCG || one == NDCG_CUT || one == NDCG_REL || one == RNDCG || one == GAIN;
    }
}

/* figures(listed, query, rank, grade, start, pooled, rel, which, at, table)
 *
 * Set table[q, n] to measure which[n] of query q, at a cutoff or share at[n]. query, rank and grade
 * describe the judged documents that are listed, by query and rank; pooled[start[q]:start[q+1]] are
 * the grades of all. kernels.trec_eval_values; twin: compat/trec_formulas.py. */
static PyObject *native_figures(PyObject *self, PyObject *args) {
    PyObject *listed_, *query_, *rank_, *grade_, *start_, *pooled_, *which_, *at_, *table_;
    long long rel;
    if (!PyArg_ParseTuple(args, "OOOOOOLOOO", &listed_, &query_, &rank_, &grade_, &start_, &pooled_,
                          &rel, &which_, &at_, &table_))
        return NULL;
    Lease lease;
    lease_open(&lease);
    MeasureList w = {.rel = rel};
    const int64_t *listed = lease_array(&lease, listed_, I64, 0, READ);
    int64_t queries = lease.items, judged;
    const int64_t *query = lease_array(&lease, query_, I64, 0, READ);
    int64_t count = lease.items;
    const int64_t *rank = lease_array(&lease, rank_, I64, count, READ);
    const int64_t *grade = lease_array(&lease, grade_, I64, count, READ);
    const int64_t *start = lease_starts(&lease, start_, queries, &judged);
    const int64_t *pooled = lease_array(&lease, pooled_, I64, judged, READ);
    judged = lease.items;
    lease_measures(&lease, &w, which_, at_);
    double *table = lease_array(&lease, table_, F64, queries * w.count, WRITE);
    int good = !lease.failed, room = 1;
    for (int64_t i = 0; i < count && good; i++) {
        good = query[i] >= 0 && query[i] < queries && grade[i] < GRADES && rank[i] >= 1 &&
               (!i || query[i] > query[i - 1] || (query[i] == query[i - 1] && rank[i] > rank[i - 1]));
        if (good) good = rank[i] <= listed[query[i]];
    }
    for (int64_t i = 0; i < judged && good; i++) good = pooled[i] >= 0 && pooled[i] < GRADES;
    lease_require(&lease, good, "there is no such query, rank or grade");
    Py_BEGIN_ALLOW_THREADS;
    RankedQuery q = {.memory = NULL};
    for (int64_t n = 0, from = 0, to = 0; n < queries && good && room; n++, from = to) {
        while (to < count && query[to] == n) to++;
        room = compute_values(&q, &w, listed[n], rank + from, grade + from, to - from,
                            pooled + start[n], start[n + 1] - start[n], table + n * w.count);
    }
    ranked_query_free(&q);
    Py_END_ALLOW_THREADS;
    if (!room) PyErr_NoMemory(), lease_fail(&lease);
    return lease_close(&lease);
}
