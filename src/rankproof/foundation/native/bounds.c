/* The ends of measures over every grade that unjudged documents could have. A part of _native.c. */

/* ------------------------------------------------------------------------ bounds over holes */

/* The documents of each query that matter, by rank, of grade -1 where they are holes. With `gaps`
 * every other rank up to the query's reach is a hole, too. */
typedef struct {
    int32_t rank, count, kind;
} Stop;

typedef struct {
    const int64_t *grade, *rank, *begin, *reach;
    int gaps;
    int64_t most; /* stops of one query */
    Stop *stop;   /* room for a query's */
} Path;

enum { OTHER = 0, OPEN = 1, RELEVANT = 2 };

/* A path, and room for one query of it. */
static Path lease_path(Lease *lease, PyObject *grade, PyObject *rank, PyObject *begin, PyObject *reach,
                       int gaps, long long first, long long last) {
    Path path = {.gaps = gaps};
    int64_t rows, fit = 1;
    path.begin = lease_starts(lease, begin, last, &rows);
    path.reach = lease_array(lease, reach, WHOLE, last, READ);
    path.rank = lease_array(lease, rank, WHOLE, rows, READ);
    if (grade) path.grade = lease_array(lease, grade, WHOLE, rows, READ);
    for (int64_t q = first; q < last && !lease->failed; q++) {
        int64_t before = 0, count = path.begin[q + 1] - path.begin[q];
        if (gaps) count += count + 1;
        for (int64_t i = path.begin[q]; i < path.begin[q + 1]; i++) {
            fit &= path.rank[i] > before;
            before = path.rank[i];
        }
        fit &= before <= path.reach[q] && path.reach[q] < INT32_MAX;
        if (count > path.most) path.most = count;
    }
    lease_check(lease, fit, "the ranks of a query do not ascend within its reach");
    path.stop = lease_room(lease, path.most, sizeof *path.stop, 0);
    return path;
}

/* The last rank in reach of any query. */
static int64_t furthest(const Lease *lease, const Path *path, int64_t first, int64_t last) {
    int64_t most = 0;
    for (int64_t q = first; q < last && !lease->failed; q++)
        if (path->reach[q] > most) most = path->reach[q];
    return most;
}

/* Spells a query of a path out, holes in a row as one stop, at the last of them: how many stops. */
static int64_t spell(const Path *path, int64_t q, int64_t rel) {
    int64_t count = 0, rank = 0;
    for (int64_t i = path->begin[q]; i <= path->begin[q + 1]; i++) {
        int end = i == path->begin[q + 1];
        int64_t next = end ? path->reach[q] + 1 : path->rank[i];
        if (path->gaps && next > rank + 1)
            path->stop[count++] = (Stop){(int32_t)(next - 1), (int32_t)(next - rank - 1), OPEN};
        if (end) break;
        rank = next;
        int kind = path->grade[i] == -1 ? OPEN : path->grade[i] >= rel ? RELEVANT : OTHER;
        path->stop[count++] = (Stop){(int32_t)rank, 1, kind};
    }
    return count;
}

/* Of each rank: what a relevant document there adds for every relevant one down to it, and besides;
 * and sums up to it: of the first, of both, of the first times the rank and the second, and of the
 * sums of the first. */
typedef struct {
    const double *weight, *rest, *weights, *rests, *ranked, *twice;
} RankSums;

/* Holes in a row, from the first down: each adds more than the one before it, so that the share falls
 * and then rises, and is highest before or behind them all. (Rank 1 may add more than rank 2.) */
static double highest_precision(const Path *path, int64_t q, int64_t rel, const RankSums *sums,
                                int64_t cut, double none, int64_t known) {
    const int64_t *g = path->grade + path->begin[q], *r = path->rank + path->begin[q];
    int64_t count = path->begin[q + 1] - path->begin[q], above = 0, taken = 0;
    double best = known > 0 ? none / (double)known : NAN, sum = none, behind = 0.0;
    for (int64_t i = 0; i < count; i++)
        if (g[i] >= rel && r[i] <= cut) behind += sums->weight[r[i]];
    for (int64_t i = 0; i <= count; i++) {
        int64_t to = i == count ? path->reach[q] : r[i] - 1, from = to + 1;
        if (path->gaps) from = i == 0 ? 1 : r[i - 1] + 1;
        if (i < count && g[i] == -1) to++;
        while (from <= to) {
            int64_t end = from == 1 ? 1 : from <= cut && to > cut ? cut : to;
            int64_t off = from - above - taken - 1; /* what is not relevant down to these ranks */
            if (from <= cut) {
                sum += behind * (double)(end - from + 1) + sums->ranked[end] - sums->ranked[from - 1] -
                       (double)off * (sums->weights[end] - sums->weights[from - 1]);
            }
            taken += end - from + 1;
            double share = sum / (double)(known + taken);
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

/* From the last hole up each adds more than the one before it: the share falls and then rises. */
static double lowest_precision(const Path *path, int64_t q, int64_t rel, const RankSums *sums,
                               int64_t cut, double none, int64_t above, int64_t known) {
    const int64_t *g = path->grade + path->begin[q], *r = path->rank + path->begin[q];
    int64_t count = path->begin[q + 1] - path->begin[q];
    double sum = none, behind = 0.0; /* weights of all relevant ones further down */
    for (int64_t i = count; i >= 0; i--) {
        int64_t to = i == count ? path->reach[q] : r[i] - 1, from = to + 1;
        if (path->gaps) from = i == 0 ? 1 : r[i - 1] + 1;
        if (i > 0 && g[i - 1] == -1) {
            from = r[i - 1];
            if (!path->gaps) to = from;
        }
        if (to > cut && from <= to) { /* these add nothing */
            known += to - (from > cut ? from - 1 : cut);
            to = cut;
        }
        int64_t low = 0, high = to - from + 1;
        for (;;) { /* how many are worth less than the share of those before: at first all, it may be */
            int64_t n = low < high ? (low + high) / 2 : low, rank = to - n;
            double own = n > 0 ? sums->weights[to] - sums->weights[rank] : 0.0, more = sum;
            if (n > 0)
                more += (double)(above + 1) * own + sums->rests[to] - sums->rests[rank] +
                        (behind + sums->weights[to]) * (double)n - sums->twice[to] + sums->twice[rank];
            if (low >= high) {
                sum = more, behind += own, known += n > 0 ? n : 0;
                break;
            }
            double next = (double)(above + 1) * sums->weight[rank] + sums->rest[rank] + behind + own;
            if (known + n > 0 && next * (double)(known + n) >= more) high = n;
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

/* precision(grade, rank, begin, reach, gaps, rel, sums, cut, relevant, extra, highest, value, first,
 *           last)
 *
 * The highest or lowest average precision of each query over how many of its holes are relevant:
 * the first ones of the list, or the last ones and all that is not listed (extra). A relevant
 * document adds weight[rank] * (relevant ones so far) + rest[rank]; past the cut nothing counts. */
static PyObject *native_precision(PyObject *self, PyObject *args) {
    PyObject *grade_, *rank_, *begin_, *reach_, *sums_, *cut_, *relevant_, *extra_, *value_;
    long long rel, first, last;
    int highest, gaps;
    if (!PyArg_ParseTuple(args, "OOOOpLOOOOpOLL", &grade_, &rank_, &begin_, &reach_, &gaps, &rel,
                          &sums_, &cut_, &relevant_, &extra_, &highest, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    Path path = lease_path(&lease, grade_, rank_, begin_, reach_, gaps, first, last);
    const double *table = lease_array(&lease, sums_, REAL, 6, READ);
    int64_t ranks = lease.items / 6;
    lease_check(&lease, furthest(&lease, &path, first, last) < ranks, "sums for every rank");
    const int64_t *cut = lease_array(&lease, cut_, WHOLE, last, READ);
    const int64_t *relevant = lease_array(&lease, relevant_, WHOLE, last, READ);
    const int64_t *extra = lease_array(&lease, extra_, WHOLE, last, READ);
    double *value = lease_array(&lease, value_, REAL, last, WRITE);
    if (lease.failed) return lease_close(&lease);
    RankSums sums = {table,             table + ranks,     table + 2 * ranks,
                 table + 3 * ranks, table + 4 * ranks, table + 5 * ranks};
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        const int64_t *g = path.grade + path.begin[q], *r = path.rank + path.begin[q];
        int64_t count = path.begin[q + 1] - path.begin[q], above = 0, cutoff = cut[q];
        double none = 0.0;
        for (int64_t i = 0; i < count; i++)
            if (g[i] >= rel && ++above && r[i] <= cutoff)
                none += sums.weight[r[i]] * (double)above + sums.rest[r[i]];
        if (highest) {
            double best = highest_precision(&path, q, rel, &sums, cutoff, none, relevant[q]);
            value[q] = isnan(best) && extra[q] > 0 ? 0.0 : best;
        } else {
            int64_t known = relevant[q] + extra[q];
            value[q] = lowest_precision(&path, q, rel, &sums, cutoff, none, above, known);
        }
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* cascade(stop, rank, begin, reach, gap, cut, value, first, last): the sum of stop / rank * what is
 * let through above, of documents by rank. Every other rank up to the reach stops with `gap`. */
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
    Path path = lease_path(&lease, NULL, rank_, begin_, reach_, 0, first, last);
    const double *stop = lease_array(&lease, stop_, REAL, lease.failed ? 0 : path.begin[last], READ);
    const int64_t *cut = lease_array(&lease, cut_, WHOLE, last, READ);
    double *value = lease_array(&lease, value_, REAL, last, WRITE);
    if (lease.failed) return lease_close(&lease);
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        int64_t end = path.reach[q] < cut[q] ? path.reach[q] : cut[q], at = path.begin[q];
        double passed = 1.0, sum = 0.0;
        /* What is less than half of the last digit changes no sum. */
        for (int64_t r = 1; r <= end && passed >= sum * 0x1p-54; r++) {
            int known = at < path.begin[q + 1] && path.rank[at] == r;
            if (!known && gap == 0.0) {
                if (at == path.begin[q + 1]) break;
                r = path.rank[at] - 1;
                continue;
            }
            double here = known ? stop[at++] : gap;
            sum += passed * here / (double)r;
            passed *= 1.0 - here;
        }
        value[q] = sum;
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* What bpref asks of a query, and room for its numbers. */
typedef struct {
    int64_t relevant, others, extra;
    int possible;
    int64_t *room, most;
} Preferred;

/* Holes in rows, each with as many documents that are not relevant above: sums of these over the
 * first so many holes. `at` is where the last search ended. */
typedef struct {
    const int64_t *before, *over, *sum; /* holes before a row, what is above it, sums before it */
    int64_t rows, at;
} HoleRows;

static inline int64_t first_sum(HoleRows *rows, int64_t holes) {
    while (rows->at + 1 < rows->rows && rows->before[rows->at + 1] <= holes) rows->at++;
    while (rows->at > 0 && rows->before[rows->at] > holes) rows->at--;
    if (!rows->rows) return 0;
    return rows->sum[rows->at] + (holes - rows->before[rows->at]) * rows->over[rows->at];
}

static inline double preferred(const Path *path, int64_t count, const Preferred *of,
                               const int highest) {
    /* Of relevant documents: those not relevant and the holes above, and sums of the former and of
     * both; of holes, row by row. */
    int64_t *bad = of->room, *open = bad + of->most, *bads = open + of->most;
    int64_t *both = bads + of->most + 1, *before = both + of->most + 1, *over = before + of->most + 1;
    int64_t *overs = over + of->most + 1;
    int64_t good = 0, inside = 0, above = 0, rows = 0, held = 0;
    bads[0] = both[0] = 0;
    for (int64_t i = 0; i < count; i++) {
        if (path->stop[i].kind == RELEVANT) {
            bad[good] = above, open[good] = inside;
            bads[good + 1] = bads[good] + above;
            both[good + 1] = both[good] + above + inside;
            good++;
        } else if (path->stop[i].kind == OPEN) {
            if (!rows || over[rows - 1] != above)
                before[rows] = inside, over[rows] = above, overs[rows++] = held;
            held += above * path->stop[i].count;
            inside += path->stop[i].count;
        } else {
            above++;
        }
    }
    HoleRows from_ = {before, over, overs, rows, 0}, to_ = from_;
    int64_t total = inside + of->extra, under = 0, whole = 0, free_ = 0, end = of->possible ? total : 0;
    int64_t start = of->relevant > 0 ? 0 : 1, samples = (end - start) / 24 < 10 ? (end - start) / 24 : 10;
    double best = NAN, highest_cap = 2.0 / (double)(of->relevant + of->others + total); /* 1 over it */
    /* A few first: against a good value most of the others need no look. */
    for (int64_t n = start, step = 0; n <= end; n++, step++) {
        if (step < samples) n = start + (end - start) * (step + 1) / (samples + 1);
        else if (step == samples) n = start;
        int64_t r = of->relevant + n, rest = of->others + total - n;
        int64_t cap = r < rest ? r : rest, cost = 0;
        int64_t taken = n < inside ? n : inside;
        if (!highest) taken = n > of->extra ? n - of->extra : 0;
        int64_t left = inside - taken; /* holes that are not relevant: the last, or the first */
        /* A relevant document has above it bad + the holes beyond `taken`, or up to `left`. */
        int64_t limit = highest ? taken : left;
        while (whole < good && open[whole] <= limit) whole++;
        while (whole > 0 && open[whole - 1] > limit) whole--;
#define ABOVE(d) (bad[d] + (highest ? (open[d] > limit ? open[d] - limit : 0) \
                                : (open[d] < limit ? open[d] : limit)))
        while (under < good && ABOVE(under) < cap) under++;
        while (under > 0 && ABOVE(under - 1) >= cap) under--;
#undef ABOVE
        int64_t low = whole < under ? whole : under;
        if (highest)
            cost = bads[low] + both[under] - both[low] - limit * (under - low);
        else
            cost = both[low] + bads[under] - bads[low] + limit * (under - low);
        cost += cap * (good - under);
        /* Holes that are relevant: the first with those above them, the last with `left` more. */
        int64_t from = highest ? 0 : left, to = highest ? taken : inside;
        int64_t more = highest ? 0 : left;
        while (free_ < rows && over[free_] + more < cap) free_++;
        while (free_ > 0 && over[free_ - 1] + more >= cap) free_--;
        int64_t middle = free_ < rows ? before[free_] : inside;
        middle = middle < from ? from : middle > to ? to : middle;
        cost += first_sum(&to_, middle) - (from ? first_sum(&from_, from) : 0);
        cost += more * (middle - from) + cap * (to - middle);
        int64_t found = good + to - from;
        double shrink = cap > 0 ? 1.0 / (double)cap : 0.0, lost = (double)cost * shrink;
        double apart = (best * (double)r - ((double)found - lost)) * (highest ? 1.0 : -1.0);
        if (!(apart > 1e-12 * (double)r)) {
            double share = (double)found / (double)r;
            if (cap > 0)
                share = ((double)found * (double)cap - (double)cost) / ((double)cap * (double)r);
            if (highest ? !(share <= best) : !(share >= best)) best = share;
            if (best == (highest ? 1.0 : 0.0)) break;
            continue;
        }
        if (step < samples || cap <= 0) continue;
        /* How many numbers need no look, as no value there is past the best. With k more relevant ones:
         * - Above a relevant document are k fewer holes at most, if any, and the cap is k higher at
         *   most, and not if it falls already: so much more are all worth; a new one is worth 1 at
         *   most, less what is above the next hole in the highest cap there is to come.
         * - Nor are they worth less, but if the cap falls, by k, and for those of which what is above
         *   them does not: by its share of half the cap, while k is no more than that half. */
        double each = best;
        int64_t room = highest ? end - n : r >= rest ? cap / 2 : rest - r;
        if (highest) {
            double next = 0.0;
            if (n < inside)
                next = fmax(0.0, 1.0 - (double)over[to_.at] * (r < rest ? highest_cap : shrink));
            each = next + ((double)(good - whole) + (r < rest ? lost : 0.0)) * shrink - best;
        } else if (r >= rest) {
            if (n >= of->extra) lost = (double)both[low] * shrink;
            each += 2.0 * lost * shrink;
        }
        if (!(each > 0.0) || apart >= each * (double)room) n += room;
        else n += (int64_t)(apart / each * (1.0 - 1e-9));
    }
    return best;
}

/* preference(grade, rank, begin, reach, gaps, rel, relevant, others, extra, possible, highest,
 *            value, first, last)
 *
 * The highest or lowest bpref of each query over how many holes are relevant (none, where that is
 * not possible): the first ones of the list, or what is not listed (extra) and the last ones.
 * What stands above a document never falls down the list, so those whose cost the cap limits are
 * the last; and from one number to the next the place where they begin moves little. */
static PyObject *native_preference(PyObject *self, PyObject *args) {
    PyObject *grade_, *rank_, *begin_, *reach_, *relevant_, *others_, *extra_, *value_;
    long long rel, first, last;
    int highest, gaps, possible;
    if (!PyArg_ParseTuple(args, "OOOOpLOOOppOLL", &grade_, &rank_, &begin_, &reach_, &gaps, &rel,
                          &relevant_, &others_, &extra_, &possible, &highest, &value_, &first,
                          &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    Path path = lease_path(&lease, grade_, rank_, begin_, reach_, gaps, first, last);
    const int64_t *relevant = lease_array(&lease, relevant_, WHOLE, last, READ);
    const int64_t *others = lease_array(&lease, others_, WHOLE, last, READ);
    const int64_t *extra = lease_array(&lease, extra_, WHOLE, last, READ);
    double *value = lease_array(&lease, value_, REAL, last, WRITE);
    int64_t *room = lease_room(&lease, 7 * path.most + 4, sizeof *room, 0);
    if (lease.failed) return lease_close(&lease);
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        Preferred of = {relevant[q], others[q], extra[q], possible, room, path.most};
        int64_t count = spell(&path, q, rel);
        value[q] = highest ? preferred(&path, count, &of, 1) : preferred(&path, count, &of, 0);
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* Which relevant document, counted from 1, reaches a level of recall. */
static inline int64_t target(double level, int64_t relevant) {
    int64_t number = (int64_t)(level * (double)relevant + 0.9);
    return number < 1 ? 1 : number;
}

/* interpolated(grade, rank, begin, reach, gaps, rel, levels, relevant, extra, highest, value,
 *              first, last)
 *
 * The mean over levels of recall, ascending, of the highest or lowest interpolated precision at
 * each: `interpolated` of unjudged/walks.py, where the method stands. */
static PyObject *native_interpolated(PyObject *self, PyObject *args) {
    PyObject *grade_, *rank_, *begin_, *reach_, *levels_, *relevant_, *extra_, *value_;
    long long rel, first, last;
    int highest, gaps;
    if (!PyArg_ParseTuple(args, "OOOOpLOOOpOLL", &grade_, &rank_, &begin_, &reach_, &gaps, &rel,
                          &levels_, &relevant_, &extra_, &highest, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    Path path = lease_path(&lease, grade_, rank_, begin_, reach_, gaps, first, last);
    const double *level = lease_array(&lease, levels_, REAL, 1, READ);
    int64_t levels = lease.items;
    const int64_t *relevant = lease_array(&lease, relevant_, WHOLE, last, READ);
    const int64_t *extra = lease_array(&lease, extra_, WHOLE, last, READ);
    double *value = lease_array(&lease, value_, REAL, last, WRITE);
    double *room = lease_room(&lease, (path.most + 2) * 4 + levels, sizeof *room, 0);
    if (lease.failed) return lease_close(&lease);
    double *best = room, *rising = best + levels; /* of the relevant ones from each number on */
    int64_t *rank = (int64_t *)(rising + path.most + 2), *number = rank + path.most + 2;
    int64_t *next = number + path.most + 2;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        int64_t count = spell(&path, q, rel), good = 0, all = 0, reached = 0, ends = 0;
        double sum = 0.0;
        if (highest) {
            for (int64_t l = 0; l < levels; l++) best[l] = 0.0;
            for (int64_t i = 0; i < count; i++) {
                if (path.stop[i].kind == OTHER) continue;
                good += path.stop[i].kind == RELEVANT;
                all += path.stop[i].count;
                while (reached < levels && all >= target(level[reached], relevant[q] + all - good))
                    reached++;
                double share = (double)all / (double)path.stop[i].rank;
                if (reached && share > best[reached - 1]) best[reached - 1] = share;
            }
            for (int64_t l = levels; l-- > 0;) {
                if (l + 1 < levels && best[l + 1] > best[l]) best[l] = best[l + 1];
                sum += best[l];
            }
            int some = relevant[q] > 0 || all > 0 || extra[q] > 0;
            value[q] = some ? sum / (double)levels : NAN;
            continue;
        }
        /* Of documents in a row the last has the highest share: the others need no look. */
        for (int64_t i = 0; i < count; i++) {
            Stop stop = path.stop[i];
            if (stop.kind == OTHER) continue;
            all += stop.count;
            if (!ends || rank[ends - 1] - number[ends - 1] != stop.rank - all) ends++;
            rank[ends - 1] = stop.rank, number[ends - 1] = all;
            if (stop.kind != RELEVANT) continue;
            good++;
            rising[good] = (double)good / (double)stop.rank;
        }
        for (int64_t n = good; n-- > 1;)
            if (rising[n + 1] > rising[n]) rising[n] = rising[n + 1];
        /* The corners of what lies above the points (rank, number): from each the next one. */
        for (int64_t n = ends; n-- > 0;) {
            int64_t to = n + 1;
            while (to < ends && next[to] < ends &&
                   (number[next[to]] - number[n]) * (rank[to] - rank[n]) >=
                       (number[to] - number[n]) * (rank[next[to]] - rank[n]))
                to = next[to];
            next[n] = to;
        }
        int64_t holes = all - good, known = relevant[q] + extra[q], least = known > 0 ? 0 : 1;
        if (least > holes) {
            value[q] = NAN;
            continue;
        }
        for (int64_t l = levels, near = least; l-- > 0;) {
            /* With more relevant holes the known documents count less, and the holes more. Often the
             * number is that of the level before, or next to it. */
            int64_t low = least, high = holes + 1; /* the first at which the holes count more */
            double lowest = INFINITY;
            for (int tries = 0; low < high; tries++) {
                int64_t n = tries > 1 ? (low + high) / 2 : high > near ? near : near - 1;
                n = n < low ? low : n >= high ? high - 1 : n;
                int64_t off = holes - n, at = target(level[l], known + n);
                double sure = at <= good ? rising[at] : 0.0, open = 0.0;
                if (off + at <= all) {
                    int64_t j = 0, after = ends - 1;
                    while (j < after) { /* the first that has so many */
                        int64_t middle = (j + after) / 2;
                        if (number[middle] < off + at) j = middle + 1;
                        else after = middle;
                    }
                    while (next[j] < ends &&
                           (number[next[j]] - off) * rank[j] >= (number[j] - off) * rank[next[j]])
                        j = next[j];
                    open = (double)(number[j] - off) / (double)rank[j];
                }
                double here = sure > open ? sure : open;
                if (here < lowest) lowest = here;
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

enum { PROBED = 256 };

/* Documents of one list that are looked for in another, some at a time. */
typedef struct {
    const Text *text;     /* of the other */
    const View *held;     /* its documents */
    uint32_t count;       /* how many */
    const int64_t *place; /* their positions, or NULL: one after the other */
    int64_t shift, reach; /* what to add to these for a rank from 0, and where ranks end */
    uint64_t mask;
    Slots slots;
    int64_t table;
} Probed;

/* One slot of each after the other, and again for those whose slot holds another: which of them are
 * there is anybody's guess, so that nothing branches on it. The ranks go into theirs[of]; how many
 * were found, or -1 if these are not the slots of the list. */
static int64_t probe(const Probed *p, const Text *a, const View **view, uint64_t *at, int32_t *of,
                     int asked, int32_t *theirs) {
    int64_t both = 0;
    uint32_t slot[PROBED];
    for (uint64_t tries = 0; asked; tries++) {
        uint32_t most = 0;
        int again = 0;
        for (int j = 0; j < asked; j++) {
            slot[j] = slot_get(&p->slots, p->table + (int64_t)at[j]);
            most = slot[j] > most ? slot[j] : most;
        }
        if (most > p->count || tries > p->mask) return -1;
        for (int j = 0; j < asked; j++) {
            const View *mine = view[j];
            int64_t row = (int64_t)slot[j] - (slot[j] != 0);
            const View *other = p->held + row;
            int same = (slot[j] != 0) & (other->low == mine->low) & (other->high == mine->high);
            if (view_length(mine) > INLINE)
                same = slot[j] && same_text(p->text, other, a, mine);
            int64_t rank = (p->place ? p->place[row] : row) + p->shift;
            int there = same & (rank >= 0) & (rank < p->reach);
            theirs[of[j]] = ((int32_t)rank + 1) & -there;
            both += there;
            of[again] = of[j], view[again] = mine, at[again] = (at[j] + 1) & p->mask;
            again += (slot[j] != 0) & (same ^ 1);
        }
        asked = again;
    }
    return both;
}

/* share(doc_a, row_a or None, known_a, begin_a, start_a, list_b, doc_b, lists_b, slot_start, slots,
 *       place_b or None, known_b, begin_b, start_b, theirs, own, shared, level, first, last)
 *
 * Query q has the positions begin[q] + 0, 1, … of each ranking in reach, start[q + 1] - start[q] of
 * them. theirs[start_a[q] + i] becomes the rank, from 1, at which b has the document of a's i-th
 * position, 0 where b has it not in reach, and -1 where it is known; own[start_b[q] + i] 1 where
 * b's i-th is neither known nor in reach of a; shared[q] how many both have, level[q] how many of
 * these at the same rank. row_a says which row stands at a position, place_b at which position a
 * row. */
static PyObject *native_share(PyObject *self, PyObject *args) {
    PyObject *doc_a_, *row_a_, *known_a_, *begin_a_, *start_a_, *list_b_, *doc_b_, *lists_b_,
        *slot_start_, *slots_, *place_b_, *known_b_, *begin_b_, *start_b_, *theirs_, *own_,
        *shared_, *level_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOOOOOOOOLL", &doc_a_, &row_a_, &known_a_, &begin_a_,
                          &start_a_, &list_b_, &doc_b_, &lists_b_, &slot_start_, &slots_,
                          &place_b_, &known_b_, &begin_b_, &start_b_, &theirs_, &own_, &shared_,
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
    const int64_t *begin_a = lease_array(&lease, begin_a_, WHOLE, last, READ);
    const int64_t *begin_b = lease_array(&lease, begin_b_, WHOLE, last, READ);
    const int64_t *start_a = lease_starts(&lease, start_a_, last, &items_a);
    const int64_t *start_b = lease_starts(&lease, start_b_, last, &items_b);
    const int64_t *list_b = lease_array(&lease, list_b_, WHOLE, last, READ), *row_a = NULL, *place_b = NULL;
    const uint8_t *known_a = lease_array(&lease, known_a_, FLAG, a.length, READ);
    const uint8_t *known_b = lease_array(&lease, known_b_, FLAG, b.length, READ);
    if (row_a_ != Py_None) row_a = lease_array(&lease, row_a_, WHOLE, a.length, READ);
    if (place_b_ != Py_None) place_b = lease_array(&lease, place_b_, WHOLE, b.length, READ);
    int32_t *theirs = lease_array(&lease, theirs_, SMALL, items_a, WRITE);
    uint8_t *own = lease_array(&lease, own_, FLAG, items_b, WRITE);
    int64_t *shared = lease_array(&lease, shared_, WHOLE, last, WRITE);
    int64_t *level = lease_array(&lease, level_, WHOLE, last, WRITE);
    int64_t most = lease.failed ? 0 : longest_of(start_b, first, last);
    uint8_t *met = lease_room(&lease, most + 1, 1, 0);
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
        memset(met, 0, (size_t)(reach + 2));
        int there = list >= 0 && list < queries && slot_start[list] < slot_start[list + 1];
        int64_t table = there ? slot_start[list] : 0;
        uint64_t mask = there ? (uint64_t)(slot_start[list + 1] - slot_start[list]) - 1 : 0;
        uint32_t count = there ? (uint32_t)(lists_b[list + 1] - lists_b[list]) : 0;
        const View *held = b.views + (there ? lists_b[list] : 0), *view[PROBED];
        Probed in = {&b, held, count, place_b ? place_b + (held - b.views) : NULL,
                     (place_b ? 0 : held - b.views) - begin_b[q], reach, mask, slots, table};
        uint64_t at[PROBED];
        int32_t of[PROBED];
        for (uint32_t i = 0; i < count; i += 4) SOON(held + i);
        for (int64_t from = start_a[q]; from < start_a[q + 1] && good; from += PROBED) {
            int64_t end = from + PROBED < start_a[q + 1] ? from + PROBED : start_a[q + 1];
            int64_t before = begin_a[q] - start_a[q];
            int asked = 0;
            for (int64_t i = from; i < end; i++) {
                theirs[i] = -(int32_t)known_a[before + i];
                of[asked] = (int32_t)(i - from);
                asked += (known_a[before + i] ^ 1) & there;
            }
            for (int j = 0; j < asked && good; j++) {
                int64_t row = before + from + of[j];
                if (row_a) row = row_a[row];
                good = row >= 0 && row < a.length;
                if (!good) break;
                view[j] = &a.views[row];
                at[j] = hash_view(&a, view[j]) & mask;
            }
            if (!good || !asked) continue;
            int64_t found = probe(&in, &a, view, at, of, asked, theirs + from);
            good = found >= 0;
            both += found;
        }
        /* met[rank + 1]; those that b has not, and the known ones, go before. */
        int64_t same = 0;
        for (int64_t i = start_a[q]; i < start_a[q + 1] && good; i++) {
            met[theirs[i] + 1] = 1;
            same += theirs[i] == i - start_a[q] + 1;
        }
        for (int64_t i = 0; i < reach; i++) left[i] = !(known_b[begin_b[q] + i] | met[i + 2]);
        shared[q] = both;
        level[q] = same;
    }
    Py_END_ALLOW_THREADS;
    lease_check(&lease, good, "these are not the lists of the queries");
    return lease_close(&lease);
}

/* The holes of two runs, as `share` found them, and what a rank weighs. */
typedef struct {
    const int32_t *theirs;
    const uint8_t *own;
    const int64_t *start_a, *start_b;
    const double *weight;
    double *delta; /* room for the holes of a query */
    int64_t room;
} Pair;

static Pair lease_pair(Lease *lease, PyObject *theirs, PyObject *own, PyObject *start_a,
                       PyObject *start_b, PyObject *weight, long long first, long long last) {
    int64_t most = 0, items_a, items_b;
    Pair pair = {.start_a = lease_starts(lease, start_a, last, &items_a)};
    pair.start_b = lease_starts(lease, start_b, last, &items_b);
    pair.theirs = lease_array(lease, theirs, SMALL, items_a, READ);
    pair.own = lease_array(lease, own, FLAG, items_b, READ);
    pair.weight = lease_array(lease, weight, REAL, 1, READ);
    for (int64_t q = first; q < last && !lease->failed; q++) {
        int64_t a = pair.start_a[q + 1] - pair.start_a[q], b = pair.start_b[q + 1] - pair.start_b[q];
        if (a > most) most = a;
        if (b > most) most = b;
        if (a + b > pair.room) pair.room = a + b;
    }
    lease_check(lease, most < lease->items, "weights for every rank");
    pair.delta = lease_room(lease, (pair.room + 4) * 6, sizeof *pair.delta, 0);
    return pair;
}

/* What the holes of a query weigh: those of a alone and of b alone, falling, and those of both, in a
 * less in b. */
typedef struct {
    const double *own, *shared, *theirs;
    int64_t owned, both, other;
} Weighed;

/* 0 if the ranks in b are none. */
static int weigh(const Pair *pair, int64_t q, Weighed *holes) {
    const int32_t *theirs = pair->theirs + pair->start_a[q];
    const uint8_t *left = pair->own + pair->start_b[q];
    const double *weight = pair->weight;
    int64_t a = pair->start_a[q + 1] - pair->start_a[q], b = pair->start_b[q + 1] - pair->start_b[q];
    double *own = pair->delta, *shared = own + a + 1, *other = shared + a + 1;
    int64_t owned = 0, both = 0, others = 0;
    int32_t most = 0;
    for (int64_t i = 0; i < a; i++) most = theirs[i] > most ? theirs[i] : most;
    if (most > b) return 0;
    for (int64_t i = 0; i < a; i++) {
        own[owned] = weight[i + 1];
        owned += theirs[i] == 0;
        shared[both] = weight[i + 1] - weight[theirs[i] > 0 ? theirs[i] : 0];
        both += theirs[i] > 0;
    }
    for (int64_t i = 0; i < b; i++) {
        other[others] = weight[i + 1];
        others += left[i] != 0;
    }
    *holes = (Weighed){own, shared, other, owned, both, others};
    return 1;
}

/* lead(theirs, own, start_a, start_b, weight, gained, lost, most, least, first, last)
 *
 * What each hole of two runs weighs in a less what it weighs in b, as `share` found them: its sums
 * above 0 and below, and its ends. */
static PyObject *native_lead(PyObject *self, PyObject *args) {
    PyObject *theirs_, *own_, *start_a_, *start_b_, *weight_, *out_[4];
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOLL", &theirs_, &own_, &start_a_, &start_b_, &weight_,
                          &out_[0], &out_[1], &out_[2], &out_[3], &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    Pair pair = lease_pair(&lease, theirs_, own_, start_a_, start_b_, weight_, first, last);
    double *out[4];
    for (int i = 0; i < 4; i++) out[i] = lease_array(&lease, out_[i], REAL, last, WRITE);
    if (lease.failed) return lease_close(&lease);
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && good; q++) {
        double gained = 0.0, lost = 0.0, most = -INFINITY, least = INFINITY;
        Weighed holes = {0};
        good = weigh(&pair, q, &holes);
        for (int64_t i = 0; i < holes.both; i++) {
            double d = holes.shared[i];
            gained += d > 0.0 ? d : 0.0;
            lost -= d > 0.0 ? 0.0 : d;
            most = d > most ? d : most;
            least = d < least ? d : least;
        }
        for (int64_t i = 0; i < holes.owned; i++) gained += holes.own[i];
        for (int64_t i = 0; i < holes.other; i++) lost += holes.theirs[i];
        if (holes.owned) most = fmax(most, holes.own[0]), least = fmin(least, holes.own[holes.owned - 1]);
        if (holes.other)
            least = fmin(least, -holes.theirs[0]), most = fmax(most, -holes.theirs[holes.other - 1]);
        out[0][q] = gained, out[1][q] = lost, out[2][q] = most, out[3][q] = least;
    }
    Py_END_ALLOW_THREADS;
    lease_check(&lease, good, "these are not the holes of the lists");
    return lease_close(&lease);
}

/* Falling order, of numbers that often have it already. */
static void sort_falling(double *a, int64_t count) {
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
            double held = a[low];
            a[low] = a[high], a[high] = held;
        }
        int64_t left = high + 1; /* the smaller part is sorted by itself */
        if (left < count - left) {
            sort_falling(a, left);
            a += left, count -= left;
        } else {
            sort_falling(a + left, count - left);
            count = left;
        }
    }
    for (int64_t i = 1; i < count; i++) {
        double held = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1] < held; j--) a[j] = a[j - 1];
        a[j] = held;
    }
}

/* Falling order of numbers of 0 or more: by bits, eleven at a time. `space` has room for as many. */
static void sort_many(double *a, double *space, int64_t count) {
    enum { BITS = 11, SIZE = 1 << BITS, TIMES = 6 };
    int64_t same = 1;
    while (same < count && a[same - 1] >= a[same]) same++;
    if (same >= count) return;
    if (count < 1024) {
        sort_falling(a, count);
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

/* The ideal of nDCG: `unjudged/gains.py`, where the method stands. */
typedef struct {
    const double *step, *total; /* what each level adds, and discounts summed, of the ideal's ranks */
    const int64_t *held;        /* (levels, queries) */
    int64_t levels, queries, most;
    int64_t *limit;
} Ideal;

static Ideal lease_ideal(Lease *lease, PyObject *held, PyObject *step, PyObject *total, long long first,
                         long long last) {
    Ideal ideal = {.step = lease_array(lease, step, REAL, 1, READ)};
    ideal.levels = lease->items;
    ideal.total = lease_array(lease, total, REAL, 1, READ);
    ideal.most = lease->items - 1;
    ideal.held = lease_array(lease, held, WHOLE, ideal.levels * last, READ);
    ideal.queries = ideal.levels ? lease->items / ideal.levels : 0;
    int ok = 1;
    for (int64_t q = first; q < last && !lease->failed; q++)
        for (int64_t l = 0; l < ideal.levels; l++) {
            int64_t here = ideal.held[l * ideal.queries + q];
            ok &= here >= 0 && here <= INT32_MAX;
        }
    lease_check(lease, ok, "these are no numbers of documents");
    ideal.limit = lease_room(lease, ideal.levels, sizeof *ideal.limit, 0);
    return ideal;
}

/* The ideal of a query with n more documents of the highest grade. */
static inline double ideal_with(const Ideal *ideal, int64_t q, int64_t n) {
    double sum = 0.0;
    for (int64_t l = 0; l < ideal->levels; l++) {
        int64_t full = ideal->held[l * ideal->queries + q] + n;
        sum += ideal->step[l] * ideal->total[full < ideal->most ? full : ideal->most];
    }
    return sum;
}

/* Dinkelbach's steps from a value of 0 or more: sums[i] are of the first at[i] holes, i if that is
 * NULL, up to sums[last]. */
static double climb(const Ideal *ideal, int64_t q, double known, const double *sums,
                    const int64_t *at, int64_t last, double best) {
    for (int64_t l = 0; l < ideal->levels; l++) ideal->limit[l] = last;
    for (int tries = 0; tries < 200; tries++) {
        double above = known, below = 0.0;
        for (int64_t l = 0; l < ideal->levels; l++) {
            int64_t base = ideal->held[l * ideal->queries + q], chosen = 0, i = 0;
            double most_worth = -INFINITY;
            /* No more than at a lower value, and than of a lower grade. */
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

/* The highest (known + sum of gains * what a hole weighs) / ideal over all grades of the holes; what
 * both have weighs sign * shared. `lead` holes besides weigh nothing, and come first, where no other
 * weighs more than that. `space` has room for all holes twice, and eight more. */
static double highest_gain(const Ideal *ideal, int64_t q, double known, Weighed holes, double sign,
                           int64_t lead, double *space) {
    int64_t count = holes.owned + holes.both + holes.other, helping = holes.owned;
    double *fall = space, *sums = fall + count + 4, all = 0.0, v = 0.0;
    double best = ideal_with(ideal, q, lead);
    best = best > 0.0 ? known / best : -INFINITY;
    for (int64_t l = 0; l < ideal->levels; l++) v += ideal->step[l];
    for (int part = 1; part <= 4 && holes.owned; part++) { /* a value to begin with */
        int64_t to = holes.owned * part / 4;
        for (int64_t i = holes.owned * (part - 1) / 4; i < to; i++) all += holes.own[i];
        double below = ideal_with(ideal, q, lead + to);
        if (below > 0.0 && known + v * all > best * below) best = (known + v * all) / below;
    }
    double lanes[4] = {0.0, 0.0, 0.0, 0.0};
    for (int64_t i = 0; i < holes.both; i++) {
        double d = sign * holes.shared[i];
        lanes[i & 3] += d > 0.0 ? d : 0.0;
        helping += d > 0.0;
    }
    all += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    if (known + v * all >= 0.0 && helping) {
        double below = ideal_with(ideal, q, lead + helping);
        if (below > 0.0 && known + v * all > best * below) best = (known + v * all) / below;
        if (!isfinite(best)) return NAN;
        /* What weighs less than the last place of the ideal costs is no help. */
        int64_t last = ideal->held[q] + helping, kept = 0, owned = holes.owned;
        double price = 0.0;
        if (last <= ideal->most && best > 0.0)
            price = best * (ideal->total[last] - ideal->total[last - 1]) * (1.0 - 1e-9);
        for (int64_t i = 0; i < holes.both; i++) {
            fall[kept] = sign * holes.shared[i];
            kept += fall[kept] > price;
        }
        while (owned > 0 && !(holes.own[owned - 1] > price)) owned--;
        sort_many(fall, sums, kept);
        fall[kept] = -1.0;
        sums[0] = 0.0;
        for (int64_t i = 0, j = 0, n = 0; n < owned + kept; n++) { /* both, laid together */
            double one = i < owned ? holes.own[i] : -1.0, other = fall[j];
            int first = one >= other;
            sums[n + 1] = sums[n] + (first ? one : other);
            i += first, j += !first;
        }
        return climb(ideal, q, known, sums, NULL, owned + kept, best);
    }
    /* Past those that help, more holes only make the ideal larger: good for a value below 0, or where
     * nothing is relevant yet. Then all that are taken have the highest grade. */
    int64_t room = ideal->most - ideal->held[(ideal->levels - 1) * ideal->queries + q] - lead;
    if (room > count) room = count;
    if (holes.owned) memcpy(fall, holes.own, (size_t)holes.owned * sizeof *fall);
    for (int64_t i = 0; i < holes.both; i++) fall[holes.owned + i] = sign * holes.shared[i];
    for (int64_t i = 0; i < holes.other; i++) fall[count - 1 - i] = -holes.theirs[i];
    sort_falling(fall, count);
    double sum = 0.0;
    for (int64_t n = 1; n <= (room > helping ? room : helping); n++) {
        sum += fall[n - 1];
        double above = known + v * sum, below = ideal_with(ideal, q, lead + n);
        /* A division takes longer than to see that it is of no use. */
        if (below > 0.0 && above >= best * below - fabs(best * below) * 1e-14 && above / below > best)
            best = above / below;
    }
    return isfinite(best) ? best : NAN;
}

/* gain(delta, sign, begin, known, held, step, total, lead, value, first, last)
 *
 * The highest (known + sum of gains * sign * delta) / ideal of each query over all grades of its holes:
 * ndcg_highest of unjudged/gains.py for one delta of each hole, where the method stands. */
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
    const double *known = lease_array(&lease, known_, REAL, last, READ);
    const int64_t *lead = lease_array(&lease, lead_, WHOLE, last, READ);
    double *value = lease_array(&lease, value_, REAL, last, WRITE);
    const double *delta = lease_array(&lease, delta_, REAL, items, READ);
    for (int64_t q = first; q < last && !lease.failed; q++)
        lease_check(&lease, lead[q] >= 0 && lead[q] <= INT32_MAX, "these are no numbers of documents");
    int64_t most = lease.failed ? 0 : longest_of(begin, first, last);
    double *space = lease_room(&lease, (most + 4) * 2, sizeof *space, 0);
    if (lease.failed) return lease_close(&lease);
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        Weighed holes = {.shared = delta + begin[q], .both = begin[q + 1] - begin[q]};
        value[q] = highest_gain(&ideal, q, known[q], holes, sign, lead[q], space);
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* gains(theirs, own, start_a, start_b, weight, known, held, step, total, high, low, first, last)
 *
 * Both ends of the difference of two runs: `gain` of what their holes weigh, and less that of a
 * difference the other way round. */
static PyObject *native_gains(PyObject *self, PyObject *args) {
    PyObject *theirs_, *own_, *start_a_, *start_b_, *weight_, *known_, *held_, *step_, *total_,
        *high_, *low_;
    long long first, last;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOOOLL", &theirs_, &own_, &start_a_, &start_b_, &weight_,
                          &known_, &held_, &step_, &total_, &high_, &low_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    Pair pair = lease_pair(&lease, theirs_, own_, start_a_, start_b_, weight_, first, last);
    Ideal ideal = lease_ideal(&lease, held_, step_, total_, first, last);
    const double *known = lease_array(&lease, known_, REAL, last, READ);
    double *high = lease_array(&lease, high_, REAL, last, WRITE);
    double *low = lease_array(&lease, low_, REAL, last, WRITE);
    if (lease.failed) return lease_close(&lease);
    int good = 1;
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last && good; q++) {
        Weighed holes, turned;
        good = weigh(&pair, q, &holes);
        if (!good) break;
        double *space = pair.delta + 2 * pair.room + 4;
        high[q] = highest_gain(&ideal, q, known[q], holes, 1.0, 0, space);
        turned = (Weighed){holes.theirs, holes.shared, holes.own, holes.other, holes.both, holes.owned};
        low[q] = -highest_gain(&ideal, q, -known[q], turned, -1.0, 0, space);
    }
    Py_END_ALLOW_THREADS;
    lease_check(&lease, good, "these are not the holes of the lists");
    return lease_close(&lease);
}

/* From the last hole up each adds more to the sum than the one before it, and less to the ideal: the
 * share falls and then rises. */
static double lowest_discounted(const Path *path, const Ideal *ideal, int64_t q, const double *sums,
                                double known, double worth, int64_t extra) {
    const int64_t *r = path->rank + path->begin[q];
    int64_t count = path->begin[q + 1] - path->begin[q];
    double sum = known;
    for (int64_t i = count; i >= 0; i--) {
        int64_t to = i == count ? path->reach[q] : r[i] - 1, length = to - (i ? r[i - 1] : 0);
        int64_t low = 0, high = length, n = length - 1; /* at first whether all are taken */
        while (low < high) {
            double ideal_n = ideal_with(ideal, q, extra + n), next = sums[to - n] - sums[to - n - 1];
            double more = ideal_with(ideal, q, extra + n + 1) - ideal_n;
            double here = sum + worth * (sums[to] - sums[to - n]);
            if (ideal_n > 0.0 && worth * next * ideal_n >= here * more) high = n;
            else low = n + 1;
            n = (low + high) / 2;
        }
        sum += worth * (sums[to] - sums[to - low]);
        extra += low;
        if (low < length) break;
    }
    double below = ideal_with(ideal, q, extra);
    return below > 0.0 ? sum / below : NAN;
}

/* gain_in_rows(rank, begin, reach, sums, known, held, step, total, extra, highest, value, first, last)
 *
 * The highest or lowest nDCG of each query of which every rank that is not given is a hole. The
 * holes in a row, from the first down, each cost less of the ideal's place, as the next has less to
 * lose: all of them are taken, or none. */
static PyObject *native_gain_in_rows(PyObject *self, PyObject *args) {
    PyObject *rank_, *begin_, *reach_, *sums_, *known_, *held_, *step_, *total_, *extra_, *value_;
    long long first, last;
    int highest;
    if (!PyArg_ParseTuple(args, "OOOOOOOOOpOLL", &rank_, &begin_, &reach_, &sums_, &known_, &held_,
                          &step_, &total_, &extra_, &highest, &value_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    Path path = lease_path(&lease, NULL, rank_, begin_, reach_, 1, first, last);
    int64_t reach = furthest(&lease, &path, first, last);
    const double *sums = lease_array(&lease, sums_, REAL, reach + 1, READ);
    Ideal ideal = lease_ideal(&lease, held_, step_, total_, first, last);
    const double *known = lease_array(&lease, known_, REAL, last, READ);
    const int64_t *extra = lease_array(&lease, extra_, WHOLE, last, READ);
    double *value = lease_array(&lease, value_, REAL, last, WRITE);
    int64_t *at = lease_room(&lease, (path.most + 2) * 2, sizeof *at, 0);
    if (lease.failed) return lease_close(&lease);
    double *held = (double *)(at + path.most + 2), worth = 0.0;
    for (int64_t l = 0; l < ideal.levels; l++) worth += ideal.step[l];
    Py_BEGIN_ALLOW_THREADS;
    for (int64_t q = first; q < last; q++) {
        if (!highest) {
            value[q] = lowest_discounted(&path, &ideal, q, sums, known[q], worth, extra[q]);
            continue;
        }
        int64_t rows = 0, rank = 0;
        at[0] = 0, held[0] = 0.0;
        for (int64_t i = path.begin[q]; i <= path.begin[q + 1]; i++) {
            int64_t next = i < path.begin[q + 1] ? path.rank[i] : path.reach[q] + 1;
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
        value[q] = best >= 0.0 ? climb(&ideal, q, known[q], held, at, rows, best) : NAN;
    }
    Py_END_ALLOW_THREADS;
    return lease_close(&lease);
}

/* So many that weigh nothing take room first, then each kind in turn. */
static inline double filled(int64_t room, int64_t first, const int64_t count[3], const double weight[3]) {
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
 * The lowest and highest RAnWG over how many holes have grade 3, 4 and 5: _tried_sets of
 * unjudged/graded.py. weight4[n5, n4] is what grade 4 weighs with so many of 5 and 4 in the pool. */
static PyObject *native_sets(PyObject *self, PyObject *args) {
    PyObject *kinds_, *weight4_, *weight3_, *low_, *high_;
    long long k, wide4, wide3, first, last;
    if (!PyArg_ParseTuple(args, "OOLOLLOOLL", &kinds_, &weight4_, &wide4, &weight3_, &wide3, &k, &low_,
                          &high_, &first, &last))
        return NULL;
    if (!is_range(first, last)) return NULL;
    Lease lease;
    lease_open(&lease);
    const int64_t *kinds = lease_array(&lease, kinds_, WHOLE, 12 * last, READ);
    int64_t most5 = 0, most4 = 0, most3 = 0;
    for (int64_t q = first; q < last && !lease.failed; q++) {
        const int64_t *of = kinds + 12 * q;
        int ok = 1;
        for (int i = 0; i < 12; i++) ok &= of[i] >= 0 && of[i] <= INT32_MAX;
        if (!lease_check(&lease, ok, "these are no numbers of documents")) break;
        if (of[9] + of[7] > most3) most3 = of[9] + of[7];
        if (of[10] + of[7] > most4) most4 = of[10] + of[7];
        if (of[11] + of[7] > most5) most5 = of[11] + of[7];
    }
    lease_check(&lease, most4 < wide4 && most3 < wide3, "a weight for every number of documents");
    const double *weight4 = lease_array(&lease, weight4_, REAL, (most5 + 1) * wide4, READ);
    const double *weight3 = lease_array(&lease, weight3_, REAL, (most5 + 1) * wide3, READ);
    double *low = lease_array(&lease, low_, REAL, last, WRITE);
    double *high = lease_array(&lease, high_, REAL, last, WRITE);
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
                    double ideal = filled(k, 0, pool, falling);
                    if (!(ideal > 0.0)) continue;
                    double known = (double)of[2] + (double)of[1] * w4 + (double)of[0] * w3;
                    int64_t best[3] = {f5, three ? f3 : f4, three ? f4 : f3};
                    int64_t worst[3] = {best[2], best[1], f5};
                    double above = known + filled(slots, 0, best, falling);
                    double below = known + filled(slots, of[6] + holes - a3 - a4 - a5, worst, rising);
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
