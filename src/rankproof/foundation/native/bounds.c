/* The lowest and highest values of measures over every grade that unjudged documents could have
 * ("holes" for short). Part of _native.c; the methods are explained, and have their twins, in the
 * modules of rankproof/unjudged that are named. */

/* ---------------------------------------------------------------- lists with unjudged documents */

/* A judged document, or a range of adjacent holes: its last rank and length. */
typedef struct {
    int32_t rank, count, kind;
} RankRange;

/* The documents of each query that matter, by rank; a hole has grade -1. With `gaps`, every other
 * rank up to the reach of the query is a hole, too. */
typedef struct {
    const int64_t *grade, *rank, *begin, *reach;
    int gaps;
    int64_t most;      /* ranges of one query, at most */
    RankRange *ranges; /* those of the query at hand */
} OpenList;

enum { OTHER = 0, OPEN = 1, RELEVANT = 2 };

/* Return the lists, checked, with room for the ranges of one query. */
static OpenList lease_list(Lease *lease, PyObject *grade, PyObject *rank, PyObject *begin,
                           PyObject *reach, int gaps, long long first, long long last) {
    OpenList list = {.gaps = gaps};
    int64_t rows, fit = 1;
    list.begin = lease_starts(lease, begin, last, &rows);
    list.reach = lease_array(lease, reach, I64, last, READ);
    list.rank = lease_array(lease, rank, I64, rows, READ);
    if (grade) list.grade = lease_array(lease, grade, I64, rows, READ);
    for (int64_t q = first; q < last && !lease->failed; q++) {
        int64_t before = 0, count = list.begin[q + 1] - list.begin[q];
        if (gaps) count += count + 1;
        for (int64_t i = list.begin[q]; i < list.begin[q + 1]; i++) {
            fit &= list.rank[i] > before;
            before = list.rank[i];
        }
        fit &= before <= list.reach[q] && list.reach[q] < INT32_MAX;
        if (count > list.most) list.most = count;
    }
    lease_require(lease, fit, "the ranks of a query do not ascend within its reach");
    list.ranges = lease_memory(lease, list.most, sizeof *list.ranges, 0);
    return list;
}

/* Return the last rank in reach of any query. */
static int64_t last_rank(const Lease *lease, const OpenList *list, int64_t first, int64_t last) {
    int64_t most = 0;
    for (int64_t q = first; q < last && !lease->failed; q++)
        if (list->reach[q] > most) most = list->reach[q];
    return most;
}

/* Write out the ranges of a query, adjacent holes as one, and return how many there are. */
static int64_t list_ranges(const OpenList *list, int64_t q, int64_t rel) {
    int64_t count = 0, rank = 0;
    for (int64_t i = list->begin[q]; i <= list->begin[q + 1]; i++) {
        int end = i == list->begin[q + 1];
        int64_t next = end ? list->reach[q] + 1 : list->rank[i];
        if (list->gaps && next > rank + 1)
            list->ranges[count++] = (RankRange){(int32_t)(next - 1), (int32_t)(next - rank - 1), OPEN};
        if (end) break;
        rank = next;
        int kind = list->grade[i] == -1 ? OPEN : list->grade[i] >= rel ? RELEVANT : OTHER;
        list->ranges[count++] = (RankRange){(int32_t)rank, 1, kind};
    }
    return count;
}

/* ------------------------------------------------------- average precision (unjudged/walks.py) */

/* By rank: a relevant document at rank r adds weight[r] for every relevant one down to it, and
 * rest[r]. Sums over ranks 1 to r: of weight, rest, weight·rank + rest, and of the sums of weight. */
typedef struct {
    const double *weight, *rest, *weights, *rests, *ranked, *twice;
} RankSums;

/* Return the highest average precision of a query. Of adjacent holes, from the first down, each
 * adds more than the one before, so the ratio falls and then rises: it is highest before or after
 * all of them. (Rank 1 may add more than rank 2.) */
static double highest_precision(const OpenList *list, int64_t q, int64_t rel, const RankSums *sums,
                                int64_t cut, double base_sum, int64_t known) {
    const int64_t *g = list->grade + list->begin[q], *r = list->rank + list->begin[q];
    int64_t count = list->begin[q + 1] - list->begin[q], above = 0, relevant_holes = 0;
    double best = known > 0 ? base_sum / (double)known : NAN, sum = base_sum, behind = 0.0;
    for (int64_t i = 0; i < count; i++)
        if (g[i] >= rel && r[i] <= cut) behind += sums->weight[r[i]];
    for (int64_t i = 0; i <= count; i++) {
        int64_t to = i == count ? list->reach[q] : r[i] - 1, from = to + 1;
        if (list->gaps) from = i == 0 ? 1 : r[i - 1] + 1;
        if (i < count && g[i] == -1) to++;
        while (from <= to) {
            int64_t end = from == 1 ? 1 : from <= cut && to > cut ? cut : to;
            /* Documents down to these ranks that are not relevant. */
            int64_t off = from - above - relevant_holes - 1;
            if (from <= cut) {
                sum += behind * (double)(end - from + 1) + sums->ranked[end] - sums->ranked[from - 1] -
                       (double)off * (sums->weights[end] - sums->weights[from - 1]);
            }
            relevant_holes += end - from + 1;
            double share = sum / (double)(known + relevant_holes);
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

/* Return the lowest average precision of a query. From the last hole up, each adds more than the
 * one before, so the ratio falls and then rises. */
static double lowest_precision(const OpenList *list, int64_t q, int64_t rel, const RankSums *sums,
                               int64_t cut, double base_sum, int64_t above, int64_t known) {
    const int64_t *g = list->grade + list->begin[q], *r = list->rank + list->begin[q];
    int64_t count = list->begin[q + 1] - list->begin[q];
    double sum = base_sum, behind = 0.0; /* weights of all relevant documents further down */
    for (int64_t i = count; i >= 0; i--) {
        int64_t to = i == count ? list->reach[q] : r[i] - 1, from = to + 1;
        if (list->gaps) from = i == 0 ? 1 : r[i - 1] + 1;
        if (i > 0 && g[i - 1] == -1) {
            from = r[i - 1];
            if (!list->gaps) to = from;
        }
        /* Holes past the cut only add to the number of relevant documents. */
        if (to > cut && from <= to) {
            known += to - (from > cut ? from - 1 : cut);
            to = cut;
        }
        int64_t low = 0, high = to - from + 1;
        /* Bisect for the number of holes worth less than the ratio before them; first try all. */
        for (;;) {
            int64_t n = low < high ? (low + high) / 2 : low, rank = to - n;
            double own_weights = n > 0 ? sums->weights[to] - sums->weights[rank] : 0.0, total = sum;
            if (n > 0)
                total += (double)(above + 1) * own_weights + sums->rests[to] - sums->rests[rank] +
                        (behind + sums->weights[to]) * (double)n - sums->twice[to] + sums->twice[rank];
            if (low >= high) {
                sum = total, behind += own_weights, known += n > 0 ? n : 0;
                break;
            }
            double next_worth = (double)(above + 1) * sums->weight[rank] + sums->rest[rank] + behind +
                                own_weights;
            if (known + n > 0 && next_worth * (double)(known + n) >= total) high = n;
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

/* precision(grade, rank, begin, reach, gaps, rel, sums, cut, relevant, unlisted, highest, value,
 * first, last)
 *
 * Set value[q] to the highest or lowest average precision of each query over the number of its
 * holes that are relevant: the first of the list, or the last of the list and all that are not
 * listed (unlisted). sums (6, ranks) are those of RankSums; past the cut nothing counts. Twin:
 * `_precision_bound_by_rows`. */
static PyObject *native_precision(PyObject *self, PyObject *args) {
    PyObject *grade_, *rank_, *begin_, *reach_, *sums_, *cut_, *relevant_, *unlisted_, *value_;
    long long rel, first, last;
    int highest, gaps;
    if (!PyArg_ParseTuple(args, "OOOOpLOOOOpOLL", &grade_, &rank_, &begin_, &reach_, &gaps, &rel,
                          &sums_, &cut_, &relevant_, &unlisted_, &highest, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    OpenList list = lease_list(&lease, grade_, rank_, begin_, reach_, gaps, first, last);
    const double *table = lease_array(&lease, sums_, F64, 6, READ);
    int64_t ranks = lease.items / 6;
    lease_require(&lease, last_rank(&lease, &list, first, last) < ranks, "sums for every rank");
    const int64_t *cut = lease_array(&lease, cut_, I64, last, READ);
    const int64_t *relevant = lease_array(&lease, relevant_, I64, last, READ);
    const int64_t *unlisted = lease_array(&lease, unlisted_, I64, last, READ);
    double *value = lease_array(&lease, value_, F64, last, WRITE);
    if (lease.failed) return lease_close(&lease);
    RankSums sums = {table,             table + ranks,     table + 2 * ranks,
                 table + 3 * ranks, table + 4 * ranks, table + 5 * ranks};
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        const int64_t *g = list.grade + list.begin[q], *r = list.rank + list.begin[q];
        int64_t count = list.begin[q + 1] - list.begin[q], above = 0, cutoff = cut[q];
        double none = 0.0;
        for (int64_t i = 0; i < count; i++)
            if (g[i] >= rel && ++above && r[i] <= cutoff)
                none += sums.weight[r[i]] * (double)above + sums.rest[r[i]];
        if (highest) {
            double best = highest_precision(&list, q, rel, &sums, cutoff, none, relevant[q]);
            value[q] = isnan(best) && unlisted[q] > 0 ? 0.0 : best;
        } else {
            int64_t known = relevant[q] + unlisted[q];
            value[q] = lowest_precision(&list, q, rel, &sums, cutoff, none, above, known);
        }
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* -------------------------------------------------------------- cascade measures (unjudged/rules.py) */

/* cascade(stop, rank, begin, reach, gap, cut, value, first, last)
 *
 * Set value[q] = Σ_r stop_r / r · Π_{s<r} (1 − stop_s) over ranks up to the cut: ERR. Every rank up
 * to the reach that is not listed stops with probability `gap`. Twin: `stopping` in
 * measures/expected_reciprocal_rank.py. */
static PyObject *native_cascade(PyObject *self, PyObject *args) {
    PyObject *stop_, *rank_, *begin_, *reach_, *cut_, *value_;
    long long first, last;
    double gap;
    if (!PyArg_ParseTuple(args, "OOOOdOOLL", &stop_, &rank_, &begin_, &reach_, &gap, &cut_, &value_,
                          &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    OpenList list = lease_list(&lease, NULL, rank_, begin_, reach_, 0, first, last);
    const double *stop = lease_array(&lease, stop_, F64, lease.failed ? 0 : list.begin[last], READ);
    const int64_t *cut = lease_array(&lease, cut_, I64, last, READ);
    double *value = lease_array(&lease, value_, F64, last, WRITE);
    if (lease.failed) return lease_close(&lease);
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        int64_t end = list.reach[q] < cut[q] ? list.reach[q] : cut[q], at = list.begin[q];
        double passed = 1.0, sum = 0.0;
        /* A term below half of the last digit changes no sum. */
        for (int64_t r = 1; r <= end && passed >= sum * 0x1p-54; r++) {
            int known = at < list.begin[q + 1] && list.rank[at] == r;
            if (!known && gap == 0.0) {
                if (at == list.begin[q + 1]) break;
                r = list.rank[at] - 1;
                continue;
            }
            double stop_here = known ? stop[at++] : gap;
            sum += passed * stop_here / (double)r;
            passed *= 1.0 - stop_here;
        }
        value[q] = sum;
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* ------------------------------------------------------------------- bpref (unjudged/walks.py) */

/* Counts of one query that bpref needs, and memory. */
typedef struct {
    int64_t relevant, nonrelevant, unlisted;
    int possible;
    int64_t *memory, most;
} BprefQuery;

/* Runs of holes with the same number of documents above that are not relevant, and the position
 * where the last search ended. */
typedef struct {
    const int64_t *before, *over, *sum; /* holes before each run, documents above it, sum before it */
    int64_t rows, at;
} HoleRuns;

/* Return, summed over the first `holes` holes, the documents above each that are not relevant. */
static inline int64_t sum_of_first_holes(HoleRuns *rows, int64_t holes) {
    while (rows->at + 1 < rows->rows && rows->before[rows->at + 1] <= holes) rows->at++;
    while (rows->at > 0 && rows->before[rows->at] > holes) rows->at--;
    if (!rows->rows) return 0;
    return rows->sum[rows->at] + (holes - rows->before[rows->at]) * rows->over[rows->at];
}

/* Return the highest or lowest bpref of a query, over the number n of relevant holes.
 *
 * bpref = 1/R Σ (1 − min(above, cap)/cap) with R relevant documents and cap = min(R, those that are
 * not). The n relevant holes are the first of the list, or those not listed and the last of the
 * list. From n to n + 1 the costs change little, so their sums are updated, not computed again. */
static inline double extreme_bpref(const OpenList *list, int64_t count, const BprefQuery *of,
                               const int highest) {
    /* By relevant document: others and holes above it, and sums of the former and of both. By run of
     * holes: holes before it, others above it, and sums. */
    int64_t *others_above = of->memory, *open = others_above + of->most, *others_sum = open + of->most;
    int64_t *all_sum = others_sum + of->most + 1, *before = all_sum + of->most + 1, *over = before + of->most + 1;
    int64_t *above_sum = over + of->most + 1;
    int64_t good = 0, inside = 0, above = 0, rows = 0, sum_above = 0;
    others_sum[0] = all_sum[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (list->ranges[i].kind == RELEVANT) {
            others_above[good] = above, open[good] = inside;
            others_sum[good + 1] = others_sum[good] + above;
            all_sum[good + 1] = all_sum[good] + above + inside;
            good++;
        } else if (list->ranges[i].kind == OPEN) {
            if (!rows || over[rows - 1] != above)
                before[rows] = inside, over[rows] = above, above_sum[rows++] = sum_above;
            sum_above += above * list->ranges[i].count;
            inside += list->ranges[i].count;
        } else {
            above++;
        }
    }
    HoleRuns from_ = {before, over, above_sum, rows, 0}, to_ = from_;
    int64_t total = inside + of->unlisted, under = 0, whole = 0, free_ = 0, end = of->possible ? total : 0;
    int64_t start = of->relevant > 0 ? 0 : 1, samples = (end - start) / 24 < 10 ? (end - start) / 24 : 10;
    /* 1 over the highest cap. */
    double best = NAN, highest_cap = 2.0 / (double)(of->relevant + of->nonrelevant + total);
    /* Try a few numbers first: with a good value at hand most others can be skipped. */
    for (int64_t n = start, step = 0; n <= end; n++, step++) {
        if (step < samples) n = start + (end - start) * (step + 1) / (samples + 1);
        else if (step == samples) n = start;
        int64_t r = of->relevant + n, nonrelevant = of->nonrelevant + total - n;
        int64_t cap = r < nonrelevant ? r : nonrelevant, cost = 0;
        int64_t first_holes = n < inside ? n : inside;
        if (!highest) first_holes = n > of->unlisted ? n - of->unlisted : 0;
        int64_t other_holes = inside - first_holes; /* holes that are not relevant */
        /* Above a relevant document count `others_above` and the holes beyond `first_holes`, or up
         * to `other_holes`. */
        int64_t limit = highest ? first_holes : other_holes;
        while (whole < good && open[whole] <= limit) whole++;
        while (whole > 0 && open[whole - 1] > limit) whole--;
#define ABOVE(d) (others_above[d] + (highest ? (open[d] > limit ? open[d] - limit : 0) \
                                : (open[d] < limit ? open[d] : limit)))
        while (under < good && ABOVE(under) < cap) under++;
        while (under > 0 && ABOVE(under - 1) >= cap) under--;
#undef ABOVE
        int64_t low = whole < under ? whole : under;
        if (highest)
            cost = others_sum[low] + all_sum[under] - all_sum[low] - limit * (under - low);
        else
            cost = all_sum[low] + others_sum[under] - others_sum[low] + limit * (under - low);
        cost += cap * (good - under);
        /* The relevant holes: the first with what is above them, or the last with `other_holes`
         * more. */
        int64_t from = highest ? 0 : other_holes, to = highest ? first_holes : inside;
        int64_t holes_above = highest ? 0 : other_holes;
        while (free_ < rows && over[free_] + holes_above < cap) free_++;
        while (free_ > 0 && over[free_ - 1] + holes_above >= cap) free_--;
        int64_t middle = free_ < rows ? before[free_] : inside;
        middle = middle < from ? from : middle > to ? to : middle;
        cost += sum_of_first_holes(&to_, middle) - (from ? sum_of_first_holes(&from_, from) : 0);
        cost += holes_above * (middle - from) + cap * (to - middle);
        int64_t counted = good + to - from;
        double shrink = cap > 0 ? 1.0 / (double)cap : 0.0, lost = (double)cost * shrink;
        double apart = (best * (double)r - ((double)counted - lost)) * (highest ? 1.0 : -1.0);
        if (!(apart > 1e-12 * (double)r)) {
            double share = (double)counted / (double)r;
            if (cap > 0)
                share = ((double)counted * (double)cap - (double)cost) / ((double)cap * (double)r);
            if (highest ? !(share <= best) : !(share >= best)) best = share;
            if (best == (highest ? 1.0 : 0.0)) break;
            continue;
        }
        if (step < samples || cap <= 0) continue;
        /* How many numbers n can be skipped because none of them gets past the best value. With k
         * more relevant holes:
         * - Above a relevant document are at most k fewer holes, and the cap is at most k higher
         * (not if it falls already), so every document gains that much at most; a new one is worth
         * at most 1, less what is above the next hole over the highest cap to come.
         * - No document loses anything unless the cap falls, by k. Then those whose `above` does
         * not fall lose at most their share of half the cap, while k is no more than that half. */
        double each = best;
        int64_t room = highest ? end - n : r >= nonrelevant ? cap / 2 : nonrelevant - r;
        if (highest) {
            double next = 0.0;
            if (n < inside)
                next = fmax(0.0, 1.0 - (double)over[to_.at] * (r < nonrelevant ? highest_cap : shrink));
            each = next + ((double)(good - whole) + (r < nonrelevant ? lost : 0.0)) * shrink - best;
        } else if (r >= nonrelevant) {
            if (n >= of->unlisted) lost = (double)all_sum[low] * shrink;
            each += 2.0 * lost * shrink;
        }
        if (!(each > 0.0) || apart >= each * (double)room) n += room;
        else n += (int64_t)(apart / each * (1.0 - 1e-9));
    }
    return best;
}

/* preference(grade, rank, begin, reach, gaps, rel, relevant, nonrelevant, unlisted, possible,
 * highest, value, first, last)
 *
 * Set value[q] to the highest or lowest bpref of each query over the number of relevant holes (0
 * only, unless `possible`). Twin: `_PreferenceBounds`. */
static PyObject *native_preference(PyObject *self, PyObject *args) {
    PyObject *grade_, *rank_, *begin_, *reach_, *relevant_, *nonrelevant_, *unlisted_, *value_;
    long long rel, first, last;
    int highest, gaps, possible;
    if (!PyArg_ParseTuple(args, "OOOOpLOOOppOLL", &grade_, &rank_, &begin_, &reach_, &gaps, &rel,
                          &relevant_, &nonrelevant_, &unlisted_, &possible, &highest, &value_, &first,
                          &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    OpenList list = lease_list(&lease, grade_, rank_, begin_, reach_, gaps, first, last);
    const int64_t *relevant = lease_array(&lease, relevant_, I64, last, READ);
    const int64_t *nonrelevant = lease_array(&lease, nonrelevant_, I64, last, READ);
    const int64_t *unlisted = lease_array(&lease, unlisted_, I64, last, READ);
    double *value = lease_array(&lease, value_, F64, last, WRITE);
    int64_t *memory = lease_memory(&lease, 7 * list.most + 4, sizeof *memory, 0);
    if (lease.failed) return lease_close(&lease);
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        BprefQuery of = {relevant[q], nonrelevant[q], unlisted[q], possible, memory, list.most};
        int64_t count = list_ranges(&list, q, rel);
        value[q] = highest ? extreme_bpref(&list, count, &of, 1) : extreme_bpref(&list, count, &of, 0);
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* --------------------------------------------- interpolated precision (unjudged/walks.py) */

/* Return the number, from 1, of the relevant document that reaches a level of recall. */
static inline int64_t recall_target(double level, int64_t relevant) {
    int64_t number = (int64_t)(level * (double)relevant + 0.9);
    return number < 1 ? 1 : number;
}

/* interpolated(grade, rank, begin, reach, gaps, rel, levels, relevant, unlisted, highest, value,
 * first, last)
 *
 * Set value[q] to the mean, over ascending levels of recall, of the highest or lowest interpolated
 * precision. The method is explained at the twin, `interpolated`. */
static PyObject *native_interpolated(PyObject *self, PyObject *args) {
    PyObject *grade_, *rank_, *begin_, *reach_, *levels_, *relevant_, *unlisted_, *value_;
    long long rel, first, last;
    int highest, gaps;
    if (!PyArg_ParseTuple(args, "OOOOpLOOOpOLL", &grade_, &rank_, &begin_, &reach_, &gaps, &rel,
                          &levels_, &relevant_, &unlisted_, &highest, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    OpenList list = lease_list(&lease, grade_, rank_, begin_, reach_, gaps, first, last);
    const double *level = lease_array(&lease, levels_, F64, 1, READ);
    int64_t levels = lease.items;
    const int64_t *relevant = lease_array(&lease, relevant_, I64, last, READ);
    const int64_t *unlisted = lease_array(&lease, unlisted_, I64, last, READ);
    double *value = lease_array(&lease, value_, F64, last, WRITE);
    double *memory = lease_memory(&lease, (list.most + 2) * 4 + levels, sizeof *memory, 0);
    if (lease.failed) return lease_close(&lease);
    /* Highest precision of judged relevant documents from each number on. */
    double *best = memory, *rising = best + levels;
    int64_t *rank = (int64_t *)(rising + list.most + 2), *number = rank + list.most + 2;
    int64_t *next = number + list.most + 2;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        int64_t count = list_ranges(&list, q, rel), good = 0, all = 0, reached = 0, ends = 0;
        double sum = 0.0;
        if (highest) {
            for (int64_t l = 0; l < levels; l++) best[l] = 0.0;
            for (int64_t i = 0; i < count; i++) {
                if (list.ranges[i].kind == OTHER) continue;
                good += list.ranges[i].kind == RELEVANT;
                all += list.ranges[i].count;
                while (reached < levels && all >= recall_target(level[reached], relevant[q] + all - good))
                    reached++;
                double share = (double)all / (double)list.ranges[i].rank;
                if (reached && share > best[reached - 1]) best[reached - 1] = share;
            }
            for (int64_t l = levels; l-- > 0;) {
                if (l + 1 < levels && best[l + 1] > best[l]) best[l] = best[l + 1];
                sum += best[l];
            }
            int is_defined = relevant[q] > 0 || all > 0 || unlisted[q] > 0;
            value[q] = is_defined ? sum / (double)levels : NAN;
            continue;
        }
        /* Of adjacent documents the last has the highest share; the others are skipped. */
        for (int64_t i = 0; i < count; i++) {
            RankRange range = list.ranges[i];
            if (range.kind == OTHER) continue;
            all += range.count;
            if (!ends || rank[ends - 1] - number[ends - 1] != range.rank - all) ends++;
            rank[ends - 1] = range.rank, number[ends - 1] = all;
            if (range.kind != RELEVANT) continue;
            good++;
            rising[good] = (double)good / (double)range.rank;
        }
        for (int64_t n = good; n-- > 1;)
            if (rising[n + 1] > rising[n]) rising[n] = rising[n + 1];
        /* The upper hull of the points (rank, number): next[n] is the corner after n. */
        for (int64_t n = ends; n-- > 0;) {
            int64_t to = n + 1;
            while (to < ends && next[to] < ends &&
                   (number[next[to]] - number[n]) * (rank[to] - rank[n]) >=
                       (number[to] - number[n]) * (rank[next[to]] - rank[n]))
                to = next[to];
            next[n] = to;
        }
        int64_t holes = all - good, known = relevant[q] + unlisted[q], least = known > 0 ? 0 : 1;
        if (least > holes) {
            value[q] = NAN;
            continue;
        }
        for (int64_t l = levels, near = least; l-- > 0;) {
            /* With more relevant holes judged documents count less, and holes more; the lowest
             * value is where the two cross. It is often at the number of the last level, or next to
             * it. */
            int64_t low = least, high = holes + 1; /* the first number at which holes count more */
            double lowest = INFINITY;
            for (int tries = 0; low < high; tries++) {
                int64_t n = tries > 1 ? (low + high) / 2 : high > near ? near : near - 1;
                n = n < low ? low : n >= high ? high - 1 : n;
                int64_t off = holes - n, at = recall_target(level[l], known + n);
                double sure = at <= good ? rising[at] : 0.0, open = 0.0;
                if (off + at <= all) {
                    int64_t j = 0, after = ends - 1;
                    while (j < after) { /* bisect for the first point with so many */
                        int64_t middle = (j + after) / 2;
                        if (number[middle] < off + at) j = middle + 1;
                        else after = middle;
                    }
                    while (next[j] < ends &&
                           (number[next[j]] - off) * rank[j] >= (number[j] - off) * rank[next[j]])
                        j = next[j];
                    open = (double)(number[j] - off) / (double)rank[j];
                }
                double level_precision = sure > open ? sure : open;
                if (level_precision < lowest) lowest = level_precision;
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
    return lease_close(&lease);
}

/* ------------------------------- holes that two runs share (unjudged/shared_documents.py) */

enum { LOOKUP_BATCH = 256 };

/* The list in which documents of another are looked up, a batch at a time. */
typedef struct {
    const Text *text;     /* text of its ids */
    const View *held;     /* ids of its documents */
    uint32_t count;       /* number of documents */
    const int64_t *place; /* position of each row, or NULL: that of the row */
    int64_t shift, reach; /* added to a position for its rank from 0; ranks in reach end here */
    uint64_t mask;
    Slots slots;
    int64_t table;
} ListLookup;

/* Look up a batch: one slot of each document after the other, then again for those whose slot holds
 * another document. Whether a document is found cannot be predicted, so nothing branches on it.
 * Writes the rank of each to rank_in_b[of]; returns how many were found, or -1 if the slots belong
 * to another list. */
static int64_t probe_slots(const ListLookup *p, const Text *a, const View **view, uint64_t *at,
                           int32_t *of, int pending, int32_t *rank_in_b) {
    int64_t both = 0;
    uint32_t slot[LOOKUP_BATCH];
    for (uint64_t tries = 0; pending; tries++) {
        uint32_t most = 0;
        int again = 0;
        for (int j = 0; j < pending; j++) {
            slot[j] = slot_get(&p->slots, p->table + (int64_t)at[j]);
            most = slot[j] > most ? slot[j] : most;
        }
        if (most > p->count || tries > p->mask) return -1;
        for (int j = 0; j < pending; j++) {
            const View *mine = view[j];
            int64_t row = (int64_t)slot[j] - (slot[j] != 0);
            const View *other = p->held + row;
            int same = (slot[j] != 0) & (other->low == mine->low) & (other->high == mine->high);
            if (view_length(mine) > INLINE)
                same = slot[j] && same_text(p->text, other, a, mine);
            int64_t rank = (p->place ? p->place[row] : row) + p->shift;
            int there = same & (rank >= 0) & (rank < p->reach);
            rank_in_b[of[j]] = ((int32_t)rank + 1) & -there;
            both += there;
            of[again] = of[j], view[again] = mine, at[again] = (at[j] + 1) & p->mask;
            again += (slot[j] != 0) & (same ^ 1);
        }
        pending = again;
    }
    return both;
}

/* share(doc_a, row_a or None, known_a, begin_a, start_a, list_b, doc_b, lists_b, slot_start, slots,
 * place_b or None, known_b, begin_b, start_b, rank_in_b, own, shared, level, first, last)
 *
 * Find the holes that two runs share. Query q has start[q+1] - start[q] positions of each ranking
 * in reach, from begin[q] on. rank_in_b[start_a[q] + i] becomes the rank (from 1) in b of the
 * document at a's i-th position, 0 if b does not have it in reach, and -1 if it is judged;
 * own[start_b[q] + i] becomes 1 if b's i-th is neither judged nor in reach of a; shared[q] how many
 * both have, level[q] how many of these at the same rank. row_a maps positions to rows, place_b
 * rows to positions. */
static PyObject *native_share(PyObject *self, PyObject *args) {
    PyObject *doc_a_, *row_a_, *known_a_, *begin_a_, *start_a_, *list_b_, *doc_b_, *lists_b_,
        *slot_start_, *slots_, *place_b_, *known_b_, *begin_b_, *start_b_, *rank_in_b_, *own_,
        *shared_, *level_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOOOOOOOLL", &doc_a_, &row_a_, &known_a_, &begin_a_,
                          &start_a_, &list_b_, &doc_b_, &lists_b_, &slot_start_, &slots_,
                          &place_b_, &known_b_, &begin_b_, &start_b_, &rank_in_b_, &own_, &shared_,
                          &level_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    int64_t items_a, items_b, rows;
    const int64_t *lists_b = lease_starts(&lease, lists_b_, -1, &rows), *slot_start;
    int64_t queries = lease.items - 1;
    Text a = lease_text(&lease, doc_a_, 0), b = lease_text(&lease, doc_b_, rows);
    Slots slots = lease_tables(&lease, slot_start_, slots_, lists_b, queries, READ, &slot_start);
    const int64_t *begin_a = lease_array(&lease, begin_a_, I64, last, READ);
    const int64_t *begin_b = lease_array(&lease, begin_b_, I64, last, READ);
    const int64_t *start_a = lease_starts(&lease, start_a_, last, &items_a);
    const int64_t *start_b = lease_starts(&lease, start_b_, last, &items_b);
    const int64_t *list_b = lease_array(&lease, list_b_, I64, last, READ), *row_a = NULL, *place_b = NULL;
    const uint8_t *known_a = lease_array(&lease, known_a_, FLAG, a.length, READ);
    const uint8_t *known_b = lease_array(&lease, known_b_, FLAG, b.length, READ);
    if (row_a_ != Py_None) row_a = lease_array(&lease, row_a_, I64, a.length, READ);
    if (place_b_ != Py_None) place_b = lease_array(&lease, place_b_, I64, b.length, READ);
    int32_t *rank_in_b = lease_array(&lease, rank_in_b_, I32, items_a, WRITE);
    uint8_t *own = lease_array(&lease, own_, FLAG, items_b, WRITE);
    int64_t *shared = lease_array(&lease, shared_, I64, last, WRITE);
    int64_t *level = lease_array(&lease, level_, I64, last, WRITE);
    int64_t most = lease.failed ? 0 : longest_of(start_b, first, last);
    uint8_t *in_both = lease_memory(&lease, most + 1, 1, 0);
    if (lease.failed) return lease_close(&lease);
    int good = 1;
    for (int64_t q = first; q < last; q++)
        good &= begin_a[q] >= 0 && begin_a[q] <= a.length - (start_a[q + 1] - start_a[q]) &&
                begin_b[q] >= 0 && begin_b[q] <= b.length - (start_b[q + 1] - start_b[q]) &&
                start_b[q + 1] - start_b[q] < INT32_MAX;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && good; q++) {
        int64_t reach = start_b[q + 1] - start_b[q], both = 0, list = list_b[q];
        uint8_t *left = own + start_b[q];
        memset(in_both, 0, (size_t)(reach + 2));
        int there = list >= 0 && list < queries && slot_start[list] < slot_start[list + 1];
        int64_t table = there ? slot_start[list] : 0;
        uint64_t mask = there ? (uint64_t)(slot_start[list + 1] - slot_start[list]) - 1 : 0;
        uint32_t count = there ? (uint32_t)(lists_b[list + 1] - lists_b[list]) : 0;
        const View *held = b.views + (there ? lists_b[list] : 0), *view[LOOKUP_BATCH];
        ListLookup in = {&b, held, count, place_b ? place_b + (held - b.views) : NULL,
                     (place_b ? 0 : held - b.views) - begin_b[q], reach, mask, slots, table};
        uint64_t at[LOOKUP_BATCH];
        int32_t of[LOOKUP_BATCH];
        for (uint32_t i = 0; i < count; i += 4) PREFETCH(held + i);
        for (int64_t from = start_a[q]; from < start_a[q + 1] && good; from += LOOKUP_BATCH) {
            int64_t end = from + LOOKUP_BATCH < start_a[q + 1] ? from + LOOKUP_BATCH : start_a[q + 1];
            int64_t before = begin_a[q] - start_a[q];
            int pending = 0;
            for (int64_t i = from; i < end; i++) {
                rank_in_b[i] = -(int32_t)known_a[before + i];
                of[pending] = (int32_t)(i - from);
                pending += (known_a[before + i] ^ 1) & there;
            }
            for (int j = 0; j < pending && good; j++) {
                int64_t row = before + from + of[j];
                if (row_a) row = row_a[row];
                good = row >= 0 && row < a.length;
                if (!good) break;
                view[j] = &a.views[row];
                at[j] = hash_view(&a, view[j]) & mask;
            }
            if (!good || !pending) continue;
            int64_t found = probe_slots(&in, &a, view, at, of, pending, rank_in_b + from);
            good = found >= 0;
            both += found;
        }
        /* in_both[rank + 1]; the entries 0 and 1 stand for judged documents and those that b lacks. */
        int64_t same = 0;
        for (int64_t i = start_a[q]; i < start_a[q + 1] && good; i++) {
            in_both[rank_in_b[i] + 1] = 1;
            same += rank_in_b[i] == i - start_a[q] + 1;
        }
        for (int64_t i = 0; i < reach; i++) left[i] = !(known_b[begin_b[q] + i] | in_both[i + 2]);
        shared[q] = both;
        level[q] = same;
    }
    Py_END_ALLOW_THREADS;
    lease_require(&lease, good, "these are not the lists of the queries");
    return lease_close(&lease);
}

/* The holes of two runs, as `share` finds them, and the weight of each rank. */
typedef struct {
    const int32_t *rank_in_b;
    const uint8_t *own;
    const int64_t *start_a, *start_b;
    const double *weight;
    double *delta; /* memory for the holes of a query */
    int64_t room;
} HolePair;

static HolePair lease_holes(Lease *lease, PyObject *rank_in_b, PyObject *own, PyObject *start_a,
                       PyObject *start_b, PyObject *weight, long long first, long long last) {
    int64_t most = 0, items_a, items_b;
    HolePair pair = {.start_a = lease_starts(lease, start_a, last, &items_a)};
    pair.start_b = lease_starts(lease, start_b, last, &items_b);
    pair.rank_in_b = lease_array(lease, rank_in_b, I32, items_a, READ);
    pair.own = lease_array(lease, own, FLAG, items_b, READ);
    pair.weight = lease_array(lease, weight, F64, 1, READ);
    for (int64_t q = first; q < last && !lease->failed; q++) {
        int64_t a = pair.start_a[q + 1] - pair.start_a[q], b = pair.start_b[q + 1] - pair.start_b[q];
        if (a > most) most = a;
        if (b > most) most = b;
        if (a + b > pair.room) pair.room = a + b;
    }
    lease_require(lease, most < lease->items, "weights for every rank");
    pair.delta = lease_memory(lease, (pair.room + 4) * 6, sizeof *pair.delta, 0);
    return pair;
}

/* Weights of the holes of a query: of a alone and of b alone, falling; and of both, in a minus in
 * b. */
typedef struct {
    const double *only_a, *in_both, *only_b;
    int64_t only_a_count, both_count, only_b_count;
} HoleWeights;

/* Fill in the weights of a query; return 0 if the ranks in b are invalid. */
static int weigh_holes(const HolePair *pair, int64_t q, HoleWeights *holes) {
    const int32_t *rank_in_b = pair->rank_in_b + pair->start_a[q];
    const uint8_t *is_only_in_b = pair->own + pair->start_b[q];
    const double *weight = pair->weight;
    int64_t a = pair->start_a[q + 1] - pair->start_a[q], b = pair->start_b[q + 1] - pair->start_b[q];
    double *only_a = pair->delta, *in_both = only_a + a + 1, *only_b = in_both + a + 1;
    int64_t only_a_count = 0, both_count = 0, only_b_count = 0;
    int32_t most = 0;
    for (int64_t i = 0; i < a; i++) most = rank_in_b[i] > most ? rank_in_b[i] : most;
    if (most > b) return 0;
    for (int64_t i = 0; i < a; i++) {
        only_a[only_a_count] = weight[i + 1];
        only_a_count += rank_in_b[i] == 0;
        in_both[both_count] = weight[i + 1] - weight[rank_in_b[i] > 0 ? rank_in_b[i] : 0];
        both_count += rank_in_b[i] > 0;
    }
    for (int64_t i = 0; i < b; i++) {
        only_b[only_b_count] = weight[i + 1];
        only_b_count += is_only_in_b[i] != 0;
    }
    *holes = (HoleWeights){only_a, in_both, only_b, only_a_count, both_count, only_b_count};
    return 1;
}

/* lead(rank_in_b, own, start_a, start_b, weight, gained, lost, most, least, first, last)
 *
 * Summarize, for each query, what its holes weigh in a minus in b: the sum of what is positive and
 * of what is negative, the highest and the lowest. Twin: `SharedDocuments.weight_gap`. */
static PyObject *native_lead(PyObject *self, PyObject *args) {
    PyObject *rank_in_b_, *own_, *start_a_, *start_b_, *weight_, *out_[4];
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOLL", &rank_in_b_, &own_, &start_a_, &start_b_, &weight_,
                          &out_[0], &out_[1], &out_[2], &out_[3], &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    HolePair pair = lease_holes(&lease, rank_in_b_, own_, start_a_, start_b_, weight_, first, last);
    double *out[4];
    for (int i = 0; i < 4; i++) out[i] = lease_array(&lease, out_[i], F64, last, WRITE);
    if (lease.failed) return lease_close(&lease);
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && good; q++) {
        double gained = 0.0, lost = 0.0, most = -INFINITY, least = INFINITY;
        HoleWeights holes = {0};
        good = weigh_holes(&pair, q, &holes);
        for (int64_t i = 0; i < holes.both_count; i++) {
            double d = holes.in_both[i];
            gained += d > 0.0 ? d : 0.0;
            lost -= d > 0.0 ? 0.0 : d;
            most = d > most ? d : most;
            least = d < least ? d : least;
        }
        for (int64_t i = 0; i < holes.only_a_count; i++) gained += holes.only_a[i];
        for (int64_t i = 0; i < holes.only_b_count; i++) lost += holes.only_b[i];
        if (holes.only_a_count) {
            most = fmax(most, holes.only_a[0]);
            least = fmin(least, holes.only_a[holes.only_a_count - 1]);
        }
        if (holes.only_b_count) {
            least = fmin(least, -holes.only_b[0]);
            most = fmax(most, -holes.only_b[holes.only_b_count - 1]);
        }
        out[0][q] = gained, out[1][q] = lost, out[2][q] = most, out[3][q] = least;
    }
    Py_END_ALLOW_THREADS;
    lease_require(&lease, good, "these are not the holes of the lists");
    return lease_close(&lease);
}

/* Sort numbers in descending order; quick if they are sorted already. */
static void sort_descending(double *a, int64_t count) {
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
            double moved = a[low];
            a[low] = a[high], a[high] = moved;
        }
        int64_t middle = high + 1; /* recurse into the smaller part */
        if (middle < count - middle) {
            sort_descending(a, middle);
            a += middle, count -= middle;
        } else {
            sort_descending(a + middle, count - middle);
            count = middle;
        }
    }
    for (int64_t i = 1; i < count; i++) {
        double moved = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1] < moved; j--) a[j] = a[j - 1];
        a[j] = moved;
    }
}

/* Sort numbers of 0 or more in descending order: radix sort by eleven bits at a time. `space` has
 * room for as many. */
static void radix_sort_descending(double *a, double *space, int64_t count) {
    enum { BITS = 11, SIZE = 1 << BITS, TIMES = 6 };
    int64_t same = 1;
    while (same < count && a[same - 1] >= a[same]) same++;
    if (same >= count) return;
    if (count < 1024) {
        sort_descending(a, count);
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

/* ----------------------------------------------------------------- nDCG (unjudged/gains.py) */

/* The ideal DCG of each query; unjudged/gains.py explains the method. */
typedef struct {
    const double *step, *total; /* gain that each level adds; sums of discounts over ideal ranks */
    const int64_t *judged;      /* (levels, queries) documents of each level or a higher one */
    int64_t levels, queries, most;
    int64_t *limit;
} Ideal;

static Ideal lease_ideal(Lease *lease, PyObject *judged, PyObject *step, PyObject *total, long long first,
                         long long last) {
    Ideal ideal = {.step = lease_array(lease, step, F64, 1, READ)};
    ideal.levels = lease->items;
    ideal.total = lease_array(lease, total, F64, 1, READ);
    ideal.most = lease->items - 1;
    ideal.judged = lease_array(lease, judged, I64, ideal.levels * last, READ);
    ideal.queries = ideal.levels ? lease->items / ideal.levels : 0;
    int ok = 1;
    for (int64_t q = first; q < last && !lease->failed; q++)
        for (int64_t l = 0; l < ideal.levels; l++) {
            int64_t count = ideal.judged[l * ideal.queries + q];
            ok &= count >= 0 && count <= INT32_MAX;
        }
    lease_require(lease, ok, "these are no numbers of documents");
    ideal.limit = lease_memory(lease, ideal.levels, sizeof *ideal.limit, 0);
    return ideal;
}

/* Return the ideal DCG of a query with n more documents of the highest grade. */
static inline double ideal_with(const Ideal *ideal, int64_t q, int64_t n) {
    double sum = 0.0;
    for (int64_t l = 0; l < ideal->levels; l++) {
        int64_t full = ideal->judged[l * ideal->queries + q] + n;
        sum += ideal->step[l] * ideal->total[full < ideal->most ? full : ideal->most];
    }
    return sum;
}

/* Maximize (known + gains) / ideal over grades of the holes by Dinkelbach's method (1967, "On
 * nonlinear fractional programming"), from a value of 0 or more. sums[i] is the weight of the first
 * at[i] holes (i if `at` is NULL), up to sums[last]. */
static double maximize_ratio(const Ideal *ideal, int64_t q, double known, const double *sums,
                    const int64_t *at, int64_t last, double best) {
    for (int64_t l = 0; l < ideal->levels; l++) ideal->limit[l] = last;
    for (int tries = 0; tries < 200; tries++) {
        double above = known, below = 0.0;
        for (int64_t l = 0; l < ideal->levels; l++) {
            int64_t base = ideal->judged[l * ideal->queries + q], chosen = 0, i = 0;
            double most_worth = -INFINITY;
            /* No more holes than at a lower value, and than of a lower grade. */
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

/* Return the highest (known + Σ gain · weight) / ideal over all grades of the holes; what both runs
 * have weighs sign * in_both. `lead` further holes weigh nothing, and come first if no other hole
 * weighs more. `space` has room for all holes twice, and eight more. */
static double highest_gain(const Ideal *ideal, int64_t q, double known, HoleWeights holes, double sign,
                           int64_t lead, double *space) {
    int64_t count = holes.only_a_count + holes.both_count + holes.only_b_count;
    int64_t helping = holes.only_a_count;
    double *fall = space, *sums = fall + count + 4, all = 0.0, v = 0.0;
    double best = ideal_with(ideal, q, lead);
    best = best > 0.0 ? known / best : -INFINITY;
    for (int64_t l = 0; l < ideal->levels; l++) v += ideal->step[l];
    for (int part = 1; part <= 4 && holes.only_a_count; part++) { /* a value to start from */
        int64_t to = holes.only_a_count * part / 4;
        for (int64_t i = holes.only_a_count * (part - 1) / 4; i < to; i++) all += holes.only_a[i];
        double below = ideal_with(ideal, q, lead + to);
        if (below > 0.0 && known + v * all > best * below) best = (known + v * all) / below;
    }
    double lanes[4] = {0.0, 0.0, 0.0, 0.0};
    for (int64_t i = 0; i < holes.both_count; i++) {
        double d = sign * holes.in_both[i];
        lanes[i & 3] += d > 0.0 ? d : 0.0;
        helping += d > 0.0;
    }
    all += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    if (known + v * all >= 0.0 && helping) {
        double below = ideal_with(ideal, q, lead + helping);
        if (below > 0.0 && known + v * all > best * below) best = (known + v * all) / below;
        if (!isfinite(best)) return NAN;
        /* A hole that weighs less than its place in the ideal costs does not help. */
        int64_t last = ideal->judged[q] + helping, shared_count = 0, alone_count = holes.only_a_count;
        double price = 0.0;
        if (last <= ideal->most && best > 0.0)
            price = best * (ideal->total[last] - ideal->total[last - 1]) * (1.0 - 1e-9);
        for (int64_t i = 0; i < holes.both_count; i++) {
            fall[shared_count] = sign * holes.in_both[i];
            shared_count += fall[shared_count] > price;
        }
        while (alone_count > 0 && !(holes.only_a[alone_count - 1] > price)) alone_count--;
        radix_sort_descending(fall, sums, shared_count);
        fall[shared_count] = -1.0;
        sums[0] = 0.0;
        for (int64_t i = 0, j = 0, n = 0; n < alone_count + shared_count; n++) { /* merge the two */
            double one = i < alone_count ? holes.only_a[i] : -1.0, other = fall[j];
            int first = one >= other;
            sums[n + 1] = sums[n] + (first ? one : other);
            i += first, j += !first;
        }
        return maximize_ratio(ideal, q, known, sums, NULL, alone_count + shared_count, best);
    }
    /* Beyond the holes that help, more of them only increase the ideal. That helps if the value is
     * below 0, or nothing is relevant yet; then all of them get the highest grade. */
    int64_t room = ideal->most - ideal->judged[(ideal->levels - 1) * ideal->queries + q] - lead;
    if (room > count) room = count;
    if (holes.only_a_count) memcpy(fall, holes.only_a, (size_t)holes.only_a_count * sizeof *fall);
    for (int64_t i = 0; i < holes.both_count; i++) fall[holes.only_a_count + i] = sign * holes.in_both[i];
    for (int64_t i = 0; i < holes.only_b_count; i++) fall[count - 1 - i] = -holes.only_b[i];
    sort_descending(fall, count);
    double sum = 0.0;
    for (int64_t n = 1; n <= (room > helping ? room : helping); n++) {
        sum += fall[n - 1];
        double above = known + v * sum, below = ideal_with(ideal, q, lead + n);
        /* A product rules most values out faster than a division. */
        if (below > 0.0 && above >= best * below - fabs(best * below) * 1e-14 && above / below > best)
            best = above / below;
    }
    return isfinite(best) ? best : NAN;
}

/* gain(delta, sign, begin, known, judged, step, total, lead, value, first, last)
 *
 * Set value[q] to the highest (known + Σ gain · sign · delta) / ideal over all grades of the holes
 * of each query. Twin: `ndcg_highest`. */
static PyObject *native_gain(PyObject *self, PyObject *args) {
    PyObject *delta_, *begin_, *known_, *held_, *step_, *total_, *lead_, *value_;
    long long first, last;
    double sign;
    if (!PyArg_ParseTuple(args, "OdOOOOOOOLL", &delta_, &sign, &begin_, &known_, &held_, &step_,
                          &total_, &lead_, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    int64_t items;
    const int64_t *begin = lease_starts(&lease, begin_, last, &items);
    Ideal ideal = lease_ideal(&lease, held_, step_, total_, first, last);
    const double *known = lease_array(&lease, known_, F64, last, READ);
    const int64_t *lead = lease_array(&lease, lead_, I64, last, READ);
    double *value = lease_array(&lease, value_, F64, last, WRITE);
    const double *delta = lease_array(&lease, delta_, F64, items, READ);
    for (int64_t q = first; q < last && !lease.failed; q++)
        lease_require(&lease, lead[q] >= 0 && lead[q] <= INT32_MAX, "these are no numbers of documents");
    int64_t most = lease.failed ? 0 : longest_of(begin, first, last);
    double *space = lease_memory(&lease, (most + 4) * 2, sizeof *space, 0);
    if (lease.failed) return lease_close(&lease);
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        HoleWeights holes = {.in_both = delta + begin[q], .both_count = begin[q + 1] - begin[q]};
        value[q] = highest_gain(&ideal, q, known[q], holes, sign, lead[q], space);
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* gains(rank_in_b, own, start_a, start_b, weight, known, judged, step, total, high, low, first, last)
 *
 * Set high[q] and low[q] to both ends of the difference of two runs: `gain` of the weights of their
 * holes, and minus that of the reversed difference. Twin: `ndcg_highest`, called for both. */
static PyObject *native_gains(PyObject *self, PyObject *args) {
    PyObject *rank_in_b_, *own_, *start_a_, *start_b_, *weight_, *known_, *held_, *step_, *total_,
        *high_, *low_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOLL", &rank_in_b_, &own_, &start_a_, &start_b_, &weight_,
                          &known_, &held_, &step_, &total_, &high_, &low_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    HolePair pair = lease_holes(&lease, rank_in_b_, own_, start_a_, start_b_, weight_, first, last);
    Ideal ideal = lease_ideal(&lease, held_, step_, total_, first, last);
    const double *known = lease_array(&lease, known_, F64, last, READ);
    double *high = lease_array(&lease, high_, F64, last, WRITE);
    double *low = lease_array(&lease, low_, F64, last, WRITE);
    if (lease.failed) return lease_close(&lease);
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && good; q++) {
        HoleWeights holes, reversed;
        good = weigh_holes(&pair, q, &holes);
        if (!good) break;
        double *space = pair.delta + 2 * pair.room + 4;
        high[q] = highest_gain(&ideal, q, known[q], holes, 1.0, 0, space);
        reversed = (HoleWeights){holes.only_b,       holes.in_both,    holes.only_a,
                                 holes.only_b_count, holes.both_count, holes.only_a_count};
        low[q] = -highest_gain(&ideal, q, -known[q], reversed, -1.0, 0, space);
    }
    Py_END_ALLOW_THREADS;
    lease_require(&lease, good, "these are not the holes of the lists");
    return lease_close(&lease);
}

/* Return the lowest nDCG of a query. From the last hole up, each adds more to the sum than the one
 * before, and less to the ideal, so the ratio falls and then rises. */
static double lowest_discounted(const OpenList *list, const Ideal *ideal, int64_t q, const double *sums,
                                double known, double worth, int64_t unlisted) {
    const int64_t *r = list->rank + list->begin[q];
    int64_t count = list->begin[q + 1] - list->begin[q];
    double sum = known;
    for (int64_t i = count; i >= 0; i--) {
        int64_t to = i == count ? list->reach[q] : r[i] - 1, length = to - (i ? r[i - 1] : 0);
        int64_t low = 0, high = length, n = length - 1; /* first try all */
        while (low < high) {
            double ideal_n = ideal_with(ideal, q, unlisted + n), next = sums[to - n] - sums[to - n - 1];
            double ideal_step = ideal_with(ideal, q, unlisted + n + 1) - ideal_n;
            double gained = sum + worth * (sums[to] - sums[to - n]);
            if (ideal_n > 0.0 && worth * next * ideal_n >= gained * ideal_step) high = n;
            else low = n + 1;
            n = (low + high) / 2;
        }
        sum += worth * (sums[to] - sums[to - low]);
        unlisted += low;
        if (low < length) break;
    }
    double below = ideal_with(ideal, q, unlisted);
    return below > 0.0 ? sum / below : NAN;
}

/* gain_in_rows(rank, begin, reach, sums, known, judged, step, total, unlisted, highest, value, first,
 * last)
 *
 * Set value[q] to the highest or lowest nDCG of each query in which every rank that is not given is
 * a hole. For the highest, of adjacent holes all are relevant or none: from the first down, each
 * costs less of the ideal than it loses in discount. Twin: `ndcg_by_rank`. */
static PyObject *native_gain_in_rows(PyObject *self, PyObject *args) {
    PyObject *rank_, *begin_, *reach_, *sums_, *known_, *held_, *step_, *total_, *unlisted_, *value_;
    long long first, last;
    int highest;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOpOLL", &rank_, &begin_, &reach_, &sums_, &known_, &held_,
                          &step_, &total_, &unlisted_, &highest, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    OpenList list = lease_list(&lease, NULL, rank_, begin_, reach_, 1, first, last);
    int64_t reach = last_rank(&lease, &list, first, last);
    const double *sums = lease_array(&lease, sums_, F64, reach + 1, READ);
    Ideal ideal = lease_ideal(&lease, held_, step_, total_, first, last);
    const double *known = lease_array(&lease, known_, F64, last, READ);
    const int64_t *unlisted = lease_array(&lease, unlisted_, I64, last, READ);
    double *value = lease_array(&lease, value_, F64, last, WRITE);
    int64_t *at = lease_memory(&lease, (list.most + 2) * 2, sizeof *at, 0);
    if (lease.failed) return lease_close(&lease);
    double *held = (double *)(at + list.most + 2), worth = 0.0;
    for (int64_t l = 0; l < ideal.levels; l++) worth += ideal.step[l];
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        if (!highest) {
            value[q] = lowest_discounted(&list, &ideal, q, sums, known[q], worth, unlisted[q]);
            continue;
        }
        int64_t rows = 0, rank = 0;
        at[0] = 0, held[0] = 0.0;
        for (int64_t i = list.begin[q]; i <= list.begin[q + 1]; i++) {
            int64_t next = i < list.begin[q + 1] ? list.rank[i] : list.reach[q] + 1;
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
        value[q] = best >= 0.0 ? maximize_ratio(&ideal, q, known[q], held, at, rows, best) : NAN;
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* ---------------------------------------------------------------- RAnWG (unjudged/graded.py) */

/* Fill `room` places with `first` documents that weigh nothing, then with each kind in turn; return
 * the sum of weights. */
static inline double fill_slots(int64_t room, int64_t first, const int64_t count[3],
                                const double weight[3]) {
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
 * Set low[q] and high[q] to the ends of RAnWG over the numbers of holes with grades 3, 4 and 5.
 * weight4[n5, n4] is what grade 4 weighs with so many documents of grades 5 and 4 in the pool.
 * Twin: `_rarity_bounds_by_enumeration`. */
static PyObject *native_sets(PyObject *self, PyObject *args) {
    PyObject *kinds_, *weight4_, *weight3_, *low_, *high_;
    long long k, wide4, wide3, first, last;
    if (!PyArg_ParseTuple(args, "OOLOLLOOLL", &kinds_, &weight4_, &wide4, &weight3_, &wide3, &k, &low_,
                          &high_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    const int64_t *kinds = lease_array(&lease, kinds_, I64, 12 * last, READ);
    int64_t most5 = 0, most4 = 0, most3 = 0;
    for (int64_t q = first; q < last && !lease.failed; q++) {
        const int64_t *of = kinds + 12 * q;
        int ok = 1;
        for (int i = 0; i < 12; i++) ok &= of[i] >= 0 && of[i] <= INT32_MAX;
        if (!lease_require(&lease, ok, "these are no numbers of documents")) break;
        if (of[9] + of[7] > most3) most3 = of[9] + of[7];
        if (of[10] + of[7] > most4) most4 = of[10] + of[7];
        if (of[11] + of[7] > most5) most5 = of[11] + of[7];
    }
    lease_require(&lease, most4 < wide4 && most3 < wide3, "a weight for every number of documents");
    const double *weight4 = lease_array(&lease, weight4_, F64, (most5 + 1) * wide4, READ);
    const double *weight3 = lease_array(&lease, weight3_, F64, (most5 + 1) * wide3, READ);
    double *low = lease_array(&lease, low_, F64, last, WRITE);
    double *high = lease_array(&lease, high_, F64, last, WRITE);
    if (lease.failed) return lease_close(&lease);
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
                    double ideal = fill_slots(k, 0, pool, falling);
                    if (!(ideal > 0.0)) continue;
                    double known = (double)of[2] + (double)of[1] * w4 + (double)of[0] * w3;
                    int64_t best[3] = {f5, three ? f3 : f4, three ? f4 : f3};
                    int64_t worst[3] = {best[2], best[1], f5};
                    double above = known + fill_slots(slots, 0, best, falling);
                    double below = known + fill_slots(slots, of[6] + holes - a3 - a4 - a5, worst, rising);
                    if (!(above <= most * ideal)) most = above / ideal;
                    if (!(below >= least * ideal)) least = below / ideal;
                }
            }
        }
        low[q] = least, high[q] = most > 1.0 ? 1.0 : most;
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}
