"""One run: the lowest and highest value of each measure over every completion of its holes.

A rule reads tie groups with holes among them and gives both ends for every query, NaN where no
completion defines the measure. Rules are exact, ties included, but for nDCG and RAnWG, whose ends
are bounds where a hole ties with something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np

from rankproof import kernels
from rankproof.arrays import Array, Bool, Float, Int
from rankproof.errors import InputError
from rankproof.evaluation import threshold
from rankproof.measures import AP
from rankproof.measures.cascade import stopping
from rankproof.measures.inferred import EPSILON
from rankproof.measures.interpolated import LEVELS, extremes
from rankproof.measures.linear import counted_from, graded, limit
from rankproof.measures.ragged import row_sum, tables
from rankproof.measures.registry import Measure
from rankproof.measures.sets import SCALE
from rankproof.unjudged.gains import levels, ndcg_highest, weights
from rankproof.unjudged.reach import HOLE, Holed


@dataclass(frozen=True, slots=True)
class Ends:
    """Both ends of a measure for every query, over completions and ties."""

    low: Float  # (Q,)
    high: Float  # (Q,)
    exact: bool = True  # else a completion may not reach them


Rule = Callable[[Measure, Holed], Ends]
RULES: dict[str, Rule] = {}

IGNORING = ("bpref", "infAP")  # holes: what they report now is no completion, and may lie outside

_CELLS = 1 << 15  # of a table that fits into a processor's cache
_TRIED = 1 << 15  # of a table of completions, for the same reason
_COMPLETIONS = 200_000  # of one query that are tried one by one
_KEY = np.int64(1) << 40  # ranks stay below it


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register how holes bound a measure."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return register


def ends(measure: Measure, holed: Holed) -> Ends:
    """The ends of a measure; a query without holes has those that its ties give it."""
    if measure.name not in RULES:
        raise InputError(
            f"{measure.name} has no rule for holes",
            remedy=f"register one with rankproof.unjudged.rules.rule({measure.name!r})",
        )
    found = RULES[measure.name](measure, holed)
    with_holes = holed.any
    tied = holed.now(measure)
    low, high = (
        np.where(with_holes, a, b) for a, b in ((found.low, tied.min), (found.high, tied.max))
    )
    barren = holed.barren(measure) & with_holes
    # Unjudged counts as the lowest grade: what is reported now is one of the completions, and
    # rounding must not leave it outside. Where holes are ignored it is none, unless nothing is
    # relevant.
    now = ~barren
    if measure.name in IGNORING:
        now &= holed.groups.relevant(_parameter(measure, "rel")) == 0
    low = np.where(now, np.fmin(low, tied.min), low)
    high = np.where(now, np.fmax(high, tied.max), high)
    found = Ends(low, high, found.exact or not with_holes.any())
    return _with_one(measure, holed, found, barren) if barren.any() else found


# Defined where nothing is relevant, and never falling when a grade rises.
_RISING = {"Hits", "P", "RBP", "DCG", "RR", "Success", "ERR", "F1"}
_RISING |= {"SetP", "SetF", "NumRelRet", "NumRet"}


def _with_one(measure: Measure, holed: Holed, found: Ends, barren: Bool) -> Ends:
    """Both ends where some queries count only with a relevant hole.

    The least is one such hole: the last of the list, or one that the run does not list.
    """
    rel = threshold(measure)
    if holed.top < rel:
        low, high = (np.where(barren, np.nan, x) for x in (found.low, found.high))
        return Ends(low, high, found.exact)
    if measure.name in _RISING:
        least = measure.outcomes(holed.with_last(rel, barren)).min
        least = np.where(holed.extra > 0, holed.now(measure).min, least)
        return Ends(np.where(barren, least, found.low), found.high, found.exact)
    undefined = np.isnan(holed.now(measure).expected)
    return Ends(found.low, found.high, found.exact and not (barren & ~undefined).any())


def _parameter(measure: Measure, name: str) -> int:
    value = dict(measure.resolved)[name]
    assert isinstance(value, int)
    return value


# ------------------------------------------------------- a grade that is best, one that is worst


@rule("Hits", "P", "Success", "SetP", "NumRelRet", "NumRet")
def rising(measure: Measure, holed: Holed) -> Ends:
    """Never falls when a grade rises: every hole 0, as it is now, or the highest."""
    rel, now = dict(measure.resolved)["rel"], holed.now(measure)
    if not isinstance(rel, int) or holed.top < rel:  # or what is listed counts, whatever it is
        return Ends(now.min, now.max)
    if measure.name == "DCG":  # no count: a grade is worth what it is
        return Ends(now.min, measure.outcomes(holed.with_all(holed.top)).max)
    most = _fitting(measure, holed, holed.chosen(rel)).most
    if measure.name == "Success":
        return Ends(now.min, (most > 0).astype(np.float64))
    if measure.name == "P":
        return Ends(now.min, most / (measure.cutoff or 1))
    return Ends(now.min, most / np.maximum(holed.groups.listed if measure.name == "SetP" else 1, 1))


@dataclass(frozen=True, slots=True)
class Fitting:
    """(Q,) Of documents that count and holes that may, those in the top k."""

    least: Int  # without the holes
    most: Int  # with all that fit
    holes: Int  # that fit
    left_out: Int  # holes that need not be there


def _fitting(measure: Measure, holed: Holed, m: Int, possible: bool = True) -> Fitting:
    """What fits into the top k, where (G,) m documents of each group count.

    A tie group that straddles k leaves out what it can; holes that tie with nothing judged are
    those ranks that no group has.
    """
    groups = holed.groups
    cut = limit(groups, measure.cutoff)

    def by_query(values: Array) -> Int:
        return groups.sum_by_query(groups.query, values).astype(np.int64)

    n = holed.of_group * possible
    if holed.tied:
        t = np.clip(cut[groups.query] - groups.first + 1, 0, groups.size)
        inside = np.clip(t - m, 0, n)
        outside = np.clip(groups.size - t - m, 0, n)
        least = by_query(np.maximum(m + t - groups.size, 0))
        most, left_out = by_query(np.minimum(m + inside, t)), by_query(outside)
        holes, taken, sizes = by_query(inside), by_query(t), by_query(groups.size)
    else:  # all these groups are in the top k
        least = by_query(m)
        holes = by_query(n)
        most, left_out = least + holes, np.zeros_like(least)
        taken = sizes = np.bincount(groups.query, minlength=groups.queries)
    if holed.gaps and possible:
        between = np.minimum(cut, holed.span) - taken
        most, holes = most + between, holes + between
        left_out = left_out + holed.span - sizes - between
    return Fitting(least, most, holes, left_out)


@rule("RR")
def reciprocal(measure: Measure, holed: Holed) -> Ends:
    """The first group that holds a relevant document or a hole."""
    rel, groups = _parameter(measure, "rel"), holed.groups
    now = holed.now(measure)
    if holed.top < rel:
        return Ends(now.min, now.max)

    def highest() -> Float:
        some = (holed.chosen(rel) + holed.of_group) > 0
        rank = groups.first
        last = np.zeros(groups.queries, np.int64)  # a rank behind all groups, where there is one
        if holed.gaps:  # the first rank that no group has, if there is one before
            ahead = _up_to(groups.size, groups.query) - groups.size
            some |= rank - 1 > ahead
            rank = ahead + 1
            sizes = groups.sum_by_query(groups.query, groups.size).astype(np.int64)
            last = np.where(sizes < holed.span, sizes + 1, 0)
        found = np.flatnonzero(some)
        found = found[np.diff(groups.query[found], prepend=-1) != 0]
        last[groups.query[found]] = rank[found]
        with np.errstate(divide="ignore"):
            return np.where(last > 0, 1.0 / last, 0.0)

    return Ends(now.min, holed.once(measure, highest))


@rule("RBP", "DCG")
def weighed(measure: Measure, holed: Holed) -> Ends:
    """What each hole adds at the top of the scale, the highest gains of a group first."""
    settings: dict[str, Any] = dict(measure.resolved)
    rel, groups, cutoff = settings["rel"], holed.groups, measure.cutoff

    def highest() -> Float:
        grade = np.append(np.where(holed.is_hole, holed.top, groups.grade), holed.top)
        ranks = int(max(holed.span.max(initial=0), groups.listed.max(initial=0))) + 1
        if measure.name == "DCG":
            gain = graded(counted_from(rel, grade), settings["gain"], np.zeros(1, np.int64))
            weight = weights(np.arange(ranks), cutoff)
        else:
            p, top = settings["p"], settings["max"]
            gain = np.asarray(grade >= rel if top is None else np.minimum(grade, top) / top)
            weight = (1.0 - p) * p ** np.arange(-1.0, ranks - 1.0)
            weight[ranks if cutoff is None else cutoff + 1 :] = 0.0
        weight[0] = 0.0
        gain, hole = gain[:-1].astype(np.float64), float(gain[-1])
        order, rank = holed.line(gain, hole)
        # All ranks as if they were holes, and what the judged ones are worth besides.
        own = gain[order] - hole if holed.gaps else gain[order]
        value = groups.sum_by_query(groups.doc_query, own * weight[rank])
        return value + hole * np.cumsum(weight)[holed.span] if holed.gaps else value

    return Ends(holed.now(measure).min, holed.once(measure, highest))


@rule("DCG")
def gained(measure: Measure, holed: Holed) -> Ends:
    """Every hole 0, as it is now, or of the highest grade."""
    return Ends(holed.now(measure).min, measure.outcomes(holed.with_all(holed.top)).max)


@rule("ERR")
def cascade(measure: Measure, holed: Holed) -> Ends:
    """As the others that rise; a scale above the judgements also changes what each grade is worth.

    Stop probabilities fall when the highest grade rises, so every highest grade is tried.
    """
    groups, known = holed.groups, holed.groups.pool.max_grade

    def highest(grade: int, top: int) -> Float:
        worth = np.exp2(np.arange(top + 1) - top) - np.exp2(-float(top))
        lists = holed if kernels.native is not None else holed.spelled
        grades = np.where(lists.is_hole, grade, lists.groups.grade)
        order, rank = lists.line(grades, grade)
        stop = worth[np.minimum(grades[order], top)]
        cut = limit(groups, measure.cutoff)
        compiled = kernels.native
        if compiled is None:
            return stopping(lists.groups, stop, rank, cut)
        gap = float(worth[min(grade, top)]) if lists.gaps else 0.0
        value, last = np.empty(groups.queries), cut.copy()
        kernels.in_threads(
            lambda low, high: compiled.cascade(
                *(stop, rank, lists.begin, lists.span, gap, last, value, low, high)
            ),
            *(groups.queries, kernels.pieces(int(lists.span.sum()))),
        )
        return value

    limited = dict(measure.resolved)["max"]
    if isinstance(limited, int) or holed.top <= known:
        top = limited if isinstance(limited, int) else known
        high = holed.once(measure, lambda: highest(holed.top, top))
        return Ends(holed.now(measure).min, high)
    found = [highest(top, top) for top in range(max(known, 1), holed.top + 1)]
    low = measure(max=holed.top).outcomes(holed.with_all(0)).min
    return Ends(low, np.max(found, axis=0), exact=False)


@rule("P4", "Harm")
def in_a_set(measure: Measure, holed: Holed) -> Ends:
    """A hole adds nothing as it is, and most if it helps, or if it harms."""
    counted = holed.chosen(4) if measure.name == "P4" else holed.chosen(SCALE[0], 2)
    most = _fitting(measure, holed, counted).most
    return Ends(holed.now(measure).min, most / (measure.cutoff or 1))


@rule("UDCG")
def utility(measure: Measure, holed: Holed) -> Ends:
    """What nearly answers distracts most: grade 3 is the worst, 5 the best."""
    low, high = (measure.outcomes(holed.with_all(grade)) for grade in (3, 5))
    return Ends(low.min, high.max)


@rule("Judged")
def judged(measure: Measure, holed: Holed) -> Ends:
    """From what is judged now to all of the list; no grade matters."""
    now = holed.now(measure).min
    return Ends(now, measure.outcomes(holed.with_all(0)).max)


@rule("RBPResidual")
def residual(measure: Measure, holed: Holed) -> Ends:
    """From what is left when all of the list is judged to what is left now."""
    now = holed.now(measure).max
    return Ends(measure.outcomes(holed.with_all(0)).min, now)


# ------------------------------------------------------------- a share of what there is to find


@rule("NumRel")
def wanted(measure: Measure, holed: Holed) -> Ends:
    """Each hole may be one more."""
    rel = _parameter(measure, "rel")
    known = holed.groups.relevant(rel).astype(np.float64)
    return Ends(known, known + (holed.of_query + holed.extra) * (holed.top >= rel))


@rule("SetF", "SetAP")
def set_share(measure: Measure, holed: Holed) -> Ends:
    """Both rise with a relevant document that is listed and fall with one that is not.

    Of h listed of T, n documents listed: F = (β+1)h/(βT + n), AP = h²/(nT).
    """
    rel = _parameter(measure, "rel")
    groups = holed.groups
    possible = holed.top >= rel
    inside, extra = holed.of_query * possible, holed.extra * possible
    found = groups.sum_by_query(groups.query, holed.chosen(rel))
    wanted = groups.relevant(rel)
    listed = np.maximum(groups.listed, 1)
    beta = dict(measure.resolved).get("beta")

    def value(found: Array, wanted: Array) -> Float:
        with np.errstate(invalid="ignore", divide="ignore"):
            if isinstance(beta, float):
                share = (beta + 1.0) * found / (beta * wanted + listed)
                return np.where(found > 0, share, 0.0)
            return np.where(wanted > 0, found * found / (listed * wanted), np.nan)

    # Undefined as it is: one relevant hole outside gives 0, one inside as little as can be.
    low, high = value(found, wanted + extra), value(found + inside, wanted + inside)
    low = np.where(np.isnan(low) & (inside > 0), value(np.ones(len(low)), np.ones(len(low))), low)
    return Ends(low, np.where(np.isnan(high) & (extra > 0), 0.0, high))


@rule("IPrec", "AP11")
def interpolated(measure: Measure, holed: Holed) -> Ends:
    """The ends of each level of recall; their means where there are several, which is a bound.

    Rank r is worth most if its holes down to r are relevant, and no other: c(r)/r, where that
    reaches the level. A completion is worth least if of its T relevant holes as many as can be are
    not listed, and the others the last of the list; with more of them the documents that are known
    count less, for the level asks for more, and the holes more. So the least is where these cross.
    """
    rel = _parameter(measure, "rel")
    given = dict(measure.resolved).get("recall")
    levels = (float(given),) if isinstance(given, int | float) else LEVELS
    exact = len(levels) == 1
    if holed.top < rel:
        now = holed.now(measure)
        return Ends(now.min, now.max)
    compiled = kernels.native
    if compiled is None:
        found = [_one_level(holed.spelled, rel, level) for level in reversed(levels)]
        low, high = (sum(x) / len(levels) for x in zip(*found, strict=True))
        return Ends(low, high, exact)

    def end(highest: bool) -> Float:
        return _walked(
            lambda *path: compiled.interpolated(*path),
            *(holed, rel, highest),
            *(np.array(levels), holed.groups.relevant(rel), holed.extra, highest),
        )

    return Ends(end(False), end(True), exact)


def _one_level(holed: Holed, rel: int, level: float) -> tuple[Float, Float]:
    """(Q,) both ends at one level, number by number of relevant holes."""
    groups = holed.groups
    inside, extra = holed.of_query, holed.extra
    total = inside + extra
    number = _up_to(holed.of_group, groups.query) - holed.of_group
    number = number[groups.doc_group] + holed.alone() + 1  # 1 for the first hole of its query
    known = groups.relevant(rel)
    low, high = np.full(groups.queries, np.nan), np.full(groups.queries, np.nan)
    query = groups.doc_query
    for more in range(int(total.max(initial=0)) + 1):
        possible = total >= more
        lucky = holed.is_hole & (number <= more)
        unlucky = holed.is_hole & (number > (inside - np.maximum(more - extra, 0))[query])
        for chosen, end in ((lucky, 1), (unlucky, 0)):
            good = np.flatnonzero((groups.grade >= rel) | chosen)
            value = extremes(groups, good, known + more, (level,))[end]
            if end:
                high = np.where(possible, np.fmax(high, value), high)
            else:
                low = np.where(possible, np.fmin(low, value), low)
    return low, high


def _walked(walk: Callable[..., None], holed: Holed, rel: int, highest: bool, *given: Any) -> Float:
    """(Q,) what compiled code makes of lists whose ties are broken for the best, or the worst."""
    worth = _worth(holed, rel)
    order, rank = holed.line(worth, 1, best=highest)
    grade, value = holed.groups.grade[order], np.empty(holed.groups.queries)
    given = tuple(np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x for x in given)
    kernels.in_threads(
        lambda low, high: walk(
            *(grade, rank, holed.begin, holed.span, holed.gaps, rel, *given, value, low, high)
        ),
        *(len(value), kernels.pieces(int(holed.span.sum()) if holed.gaps else len(rank))),
    )
    return value


@rule("R", "SetR", "F1", "NRecall4", "NRecall5")
def share(measure: Measure, holed: Holed) -> Ends:
    """Relevant documents in the top k over a norm that grows with their number.

    A relevant hole adds one to the count and at most one to the norm, so it never lowers the share
    where it fits; one that does not fit, or that the run does not list, adds to the norm alone.
    """
    rel = {"NRecall4": 4, "NRecall5": 5}.get(measure.name) or _parameter(measure, "rel")
    groups = holed.groups
    cut = limit(groups, measure.cutoff)
    relevant = groups.relevant(rel)
    possible = holed.top >= rel
    extra = holed.extra * possible

    def norm(total: Int) -> Float:
        if measure.name == "F1":
            return (cut + total) / 2.0
        return (total if measure.name in ("R", "SetR") else np.minimum(total, cut)).astype(
            np.float64
        )

    fit = holed.once(
        (measure, "fit"), lambda: _fitting(measure, holed, holed.chosen(rel), possible)
    )
    left_out = fit.left_out + extra
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = fit.least / norm(relevant + left_out), fit.most / norm(relevant + fit.holes)
        only = np.where(fit.holes > 0, 1.0 / norm(np.ones_like(relevant)), np.nan)
    low = np.where(norm(relevant + left_out) > 0, low, only)
    high = np.where(
        norm(relevant + fit.holes) > 0,
        high,
        np.where(holed.of_query * possible + extra > 0, 0.0, np.nan),
    )
    return Ends(low, high)


@rule("Rprec")
def r_precision(measure: Measure, holed: Holed) -> Ends:
    """For every number T of relevant holes: rank R + T, with as many of them above it as can be."""
    rel, holed = _parameter(measure, "rel"), holed.spelled
    groups = holed.groups
    relevant = groups.relevant(rel)
    possible = holed.top >= rel
    inside = holed.of_query * possible
    total = inside + holed.extra * possible
    query = np.repeat(np.arange(groups.queries), total + 1)
    begin = np.cumsum(total + 1) - (total + 1)
    more = np.arange(len(query)) - begin[query]  # T
    cut = relevant[query] + more
    worth = _worth(holed, rel)
    place = groups.place(worth)

    def above(rank: Int, kind: int) -> Int:
        """How many documents of a kind stand at `cut` or above."""
        of = worth == kind
        keys = np.sort(groups.doc_query[of] * _KEY + np.minimum(rank[of], _KEY - 1))
        first = np.searchsorted(keys, np.arange(groups.queries) * _KEY)
        to_cut = np.searchsorted(keys, query * _KEY + cut, side="right")
        return np.asarray(to_cut - first[query], np.int64)

    best, worst = groups.best_rank(place), groups.worst_rank(place)
    taken = np.minimum(more, above(best, 1)) if possible else np.zeros_like(more)
    forced = np.maximum(more - (total[query] - above(worst, 1)), 0) if possible else taken
    with np.errstate(invalid="ignore", divide="ignore"):
        high = (above(best, 2) + taken) / cut
        low = (above(worst, 2) + forced) / cut
    return Ends(np.fmin.reduceat(low, begin), np.fmax.reduceat(high, begin))


def _worth(holed: Holed, rel: int) -> Int:
    """(J,) 2 for a relevant document, 1 for a hole, 0 for the others.

    Placed by it, the relevant ones of a tie group come first and its others last, with the holes
    between: then any of the holes may be relevant, and no order of the group is better.
    """
    return np.where(holed.is_hole, 1, np.where(holed.groups.grade >= rel, 2, 0))


@rule("Hit")
def hit(measure: Measure, holed: Holed) -> Ends:
    """A hole that surely is in the top K cannot miss; one that can fall out can."""
    groups, cutoff = holed.groups, measure.cutoff
    assert cutoff is not None
    wanted = groups.relevant(4)
    now = holed.now(measure)
    none = np.zeros(len(groups.size), np.int64)
    can_miss = (_fitting(measure, holed, none).left_out > 0) | (holed.extra > 0)
    none = np.where(holed.any, np.where(can_miss, 0.0, 1.0), np.nan)
    one = np.where(holed.any, np.where(holed.of_query > 0, 1.0, 0.0), np.nan)
    return Ends(
        np.where(wanted > 0, np.where(can_miss, 0.0, now.min), none),
        np.where(wanted > 0, now.max, one),
    )


# ------------------------------------------------------------------------------- average precision


@rule("AP", "GMAP")
def average_precision(measure: Measure, holed: Holed) -> Ends:
    """For every number i of relevant holes the first i of the list are best, and the last i worst.

    Weights never rise with the rank, and a relevant document that moves up past x others adds
    to each of them what it loses by standing behind x fewer, or more. So the sums for i = 1, 2, …
    follow from each other; at the end each is divided by R + i.
    """
    rel = _parameter(measure, "rel")
    if holed.top < rel:
        now = holed.now(measure)
        return Ends(now.min, now.max)
    high = holed.once(measure, lambda: _precisions(measure, holed, rel, highest=True))
    # Nothing relevant listed or taken, but a hole that the run does not list may be.
    high = np.where(np.isnan(high) & (holed.extra > 0), 0.0, high)
    return Ends(_precisions(measure, holed, rel, highest=False), high)


@rule("infAP")
def inferred(measure: Measure, holed: Holed) -> Ends:
    """As AP, where holes are all that nobody judged: then no pool is sampled any more.

    Nor is it where no document was pooled and not judged; then each precision is within ε of that
    of AP. Else the sampled ones among the others count, and anything is possible.
    """
    groups = holed.groups
    known = np.bincount(groups.doc_query, minlength=groups.queries)
    if holed.gaps or not (known < groups.listed)[holed.any].any():
        return average_precision(measure, holed)
    if holed.sampled:
        nothing = np.zeros(groups.queries)
        return Ends(nothing, nothing + 1.0, exact=False)
    found = average_precision(AP(rel=_parameter(measure, "rel")), holed)
    return Ends(np.fmax(found.low - EPSILON, 0.0), np.fmin(found.high + EPSILON, 1.0), exact=False)


def _precisions(measure: Measure, holed: Holed, rel: int, *, highest: bool) -> Float:
    """(Q,) the highest value, or the lowest, over completions and ties; NaN where there is none.

    infAP of a list that is judged whole is Σ (k−1)/(k(k−1+2ε)) · (relevant so far) + rest(k).
    """
    relevant, cut = holed.groups.relevant(rel), limit(holed.groups, measure.cutoff)
    longest = int(holed.span.max(initial=0))
    rank = np.maximum(np.arange(longest + 1.0), 1.0)
    weight, rest = 1.0 / rank, np.zeros(longest + 1)
    if measure.name == "infAP":
        weight = (rank - 1.0) / (rank * (rank - 1.0 + 2 * EPSILON))
        rest = 1.0 / rank - (1.0 - EPSILON) * weight
    compiled = kernels.native
    if compiled is not None:
        return _walked(
            lambda *path: compiled.precision(*path),
            *(holed, rel, highest, weight, rest, cut, relevant, holed.extra, highest),
        )
    holed = holed.spelled
    order, rank = holed.line(_worth(holed, rel), 1, best=highest)
    grade, begin = holed.groups.grade[order], holed.begin[:-1]
    length = np.diff(holed.begin)
    known = relevant if highest else relevant + holed.extra
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(known > 0, 0.0 / known, np.nan)
    for chosen, column, real in tables(length, _CELLS):
        row = np.where(real, begin[chosen, None] + column, 0)
        counts = real & (rank[row] <= cut[chosen, None])
        w, more = (np.where(counts, x[rank[row]], 0.0) for x in (weight, rest))
        taken, good = real & (grade[row] == HOLE), real & (grade[row] >= rel)
        above = np.cumsum(good, axis=1)  # relevant for certain, at this rank or above
        none = row_sum(np.where(good, w * above + more, 0.0))[:, None]
        below = np.cumsum(np.where(good, w, 0.0)[:, ::-1], axis=1)[:, ::-1]
        number = np.cumsum(taken, axis=1)
        if highest:
            more = np.where(taken, w * (above + number) + below + more, 0.0)
            sums = none + np.cumsum(more, axis=1)
        else:
            number = number[:, -1:] - number + 1  # from the last hole up
            held = np.zeros((len(chosen), column.shape[1] + 1))  # by those below
            held[:, :-1] = np.cumsum(np.where(taken, w, 0.0)[:, ::-1], axis=1)[:, ::-1]
            more = np.where(taken, w * (above + 1) + below + held[:, 1:] + more, 0.0)
            sums = none + np.cumsum(more[:, ::-1], axis=1)[:, ::-1]
        over = known[chosen, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = np.where(taken, sums / (over + number), np.nan)
            alone = np.where(over > 0, none / over, np.nan)
        better = np.fmax if highest else np.fmin
        value[chosen] = better.reduce(np.concatenate([alone, shares], axis=1), axis=1)
    return value


# ----------------------------------------------------------------------------------- preference


@rule("bpref")
def preference(measure: Measure, holed: Holed) -> Ends:
    """For every number of relevant holes: the first so many of the list, and the last so many.

    A relevant document higher up, and a non-relevant one lower down, never cost anything. Holes
    that the run does not list count in R or in N alone. What is reported now ignores holes, so it
    is no completion and may lie outside.
    """
    rel = _parameter(measure, "rel")
    relevant = holed.groups.relevant(rel)
    others = np.diff(holed.groups.pool.start) - relevant
    possible = holed.top >= rel
    compiled = kernels.native
    if compiled is not None:

        def end(highest: bool) -> Float:
            return _walked(
                lambda *path: compiled.preference(*path),
                *(holed, rel, highest, relevant, others, holed.extra, possible, highest),
            )

        return Ends(end(False), end(True))
    holed = holed.spelled
    groups = holed.groups
    unwanted = holed.chosen(0) - holed.chosen(rel)
    bad_to, holes_to = (_up_to(x, groups.query) for x in (unwanted, holed.of_group))
    bad_before, holes_before = bad_to - unwanted, holes_to - holed.of_group
    good, hole = np.flatnonzero(groups.grade >= rel), np.flatnonzero(holed.is_hole)
    number = holes_before[groups.doc_group] + holed.alone() + 1  # 1 for the first hole, and so on
    inside, extra = holed.of_query, holed.extra
    total = inside + extra
    low, high = np.full(groups.queries, np.nan), np.full(groups.queries, np.nan)

    def mean(count: Int, over: Int, cap: Int, r: Int) -> Float:
        found = np.bincount(over, minlength=groups.queries)
        cost = groups.sum_by_query(over, np.minimum(count, cap[over]))
        over_all = np.where(cap > 0, found * 1.0 * cap - cost, found)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(r > 0, over_all / (np.maximum(cap, 1) * 1.0 * r), np.nan)

    for i in range(int(total.max(initial=0)) + 1 if possible else 1):
        r = relevant + i
        cap = np.minimum(r, others + total - i)
        reachable = total >= i
        best = np.minimum(i, inside)  # the first of the list are relevant
        worst = inside - np.maximum(i - extra, 0)  # the first of the list are not
        group, query = groups.doc_group[good], groups.doc_query[good]
        hole_group, hole_query = groups.doc_group[hole], groups.doc_query[hole]
        lucky = number[hole] <= best[hole_query]
        unlucky = number[hole] > worst[hole_query]
        above = bad_before[group] + np.maximum(holes_before[group] - best[query], 0)
        value = mean(
            np.concatenate([above, bad_before[hole_group[lucky]]]),
            np.concatenate([query, hole_query[lucky]]),
            cap,
            r,
        )
        high = np.where(reachable, np.fmax(high, value), high)
        above = bad_to[group] + np.minimum(holes_to[group], worst[query])
        value = mean(
            np.concatenate([above, bad_to[hole_group[unlucky]] + worst[hole_query[unlucky]]]),
            np.concatenate([query, hole_query[unlucky]]),
            cap,
            r,
        )
        low = np.where(reachable, np.fmin(low, value), low)
    return Ends(low, high)


def _up_to(counts: Int, query: Int) -> Int:
    """(G,) sums within a query up to and with each group."""
    total = np.cumsum(counts)
    new = np.ones(len(query), np.bool_)
    new[1:] = query[1:] != query[:-1]
    head = np.maximum.accumulate(np.where(new, np.arange(len(query)), 0))
    return np.asarray(total - (total - counts)[head], np.int64)


# ------------------------------------------------------------------------------------------ gains


@rule("nDCG")
def ndcg(measure: Measure, holed: Holed) -> Ends:
    """Exact where no hole ties with anything but holes; see gains.py."""
    steps = levels(holed, measure)
    plain = holed.gaps and not holed.tied and kernels.native is not None
    lists = holed if plain else holed.spelled
    groups = lists.groups
    known, hole = np.flatnonzero(~lists.is_hole), np.flatnonzero(lists.is_hole)
    gains, query = steps.gain(groups.grade[known]), groups.doc_query
    none, exact = np.zeros(groups.queries, np.int64), True

    def end(sign: float, extra: Int) -> Float:
        sums, delta = ranked(sign)
        sums = groups.sum_by_query(query[known], gains * sums)
        return sign * ndcg_highest(
            *(sign * sums, delta, holed.of_query, extra, steps, measure.cutoff, sign)
        )

    def ranked(sign: float) -> tuple[Float, Float]:
        """What the judged documents weigh, and the holes: (1, H), or (L, H) for each level."""
        if not lists.tied:
            weight = lists.once(("ranks", measure), lambda: weights(groups.rank, measure.cutoff))
            if plain:
                return weight, lists.once(("holes", measure), lambda: _weighed(lists, measure))
            return weight[known], weight[None, hole]
        rank = groups.best_rank if sign > 0 else groups.worst_rank
        delta = [weights(rank(alone + a)[hole], measure.cutoff) for a in ahead]
        return weights(rank(groups.place_by_grade)[known], measure.cutoff), np.stack(delta)

    if lists.tied:
        alone = lists.alone()
        exact = not ((lists.of_group > 0) & (lists.of_group < groups.size)).any()
        # How many judged documents of at least the level's grade tie with each.
        ahead = [np.zeros(len(query), np.int64)]
        if not exact:
            ahead = [lists.chosen(int(grade))[groups.doc_group] for grade in steps.grade]
    high = holed.once(measure, lambda: end(1.0, none))
    low = end(-1.0, holed.extra)
    # Nothing relevant listed or taken, but a hole that the run does not list may be.
    high = np.where(np.isnan(high) & (holed.extra > 0) & (steps.step.sum() > 0), 0.0, high)
    return Ends(np.maximum(low, 0.0), np.minimum(high, 1.0), exact)


def _weighed(holed: Holed, measure: Measure) -> Float:
    """(1, H) what nDCG multiplies the gains of holes by, where nothing ties."""
    compiled = kernels.native
    assert compiled is not None
    start = np.append(0, np.cumsum(holed.of_query))
    table = weights(np.arange(int(holed.span.max(initial=0)) + 1), measure.cutoff)
    delta = np.empty((1, int(start[-1])))
    kernels.in_threads(
        lambda low, high: compiled.spread(
            *(holed.groups.rank, holed.begin, holed.span, table, start, delta[0], low, high)
        ),
        *(len(holed.span), kernels.pieces(int(start[-1]))),
    )
    return delta


@rule("RAnWG")
def ra_nwg(measure: Measure, holed: Holed) -> Ends:
    """Every number of holes of grade 3, 4 and 5, in columns.

    Where a tie group straddles K, or another run has holes, what fits is taken from all documents
    that might: a bound.
    """
    groups, k = holed.groups, measure.cutoff
    assert k is not None
    parameters: dict[str, Any] = dict(measure.resolved)
    alpha, cap4, cap3 = (float(parameters[p] or 0.0) for p in ("alpha", "cap4", "cap3"))
    fits = np.clip(k - groups.first + 1, 0, groups.size)
    whole = fits == groups.size

    def by_query(values: Array) -> Int:
        return groups.sum_by_query(groups.query, values).astype(np.int64)

    sure = [by_query(holed.chosen(g, g) * whole) for g in (3, 4, 5)]
    loose = [by_query(holed.chosen(g, g) * ~whole) for g in (3, 4, 5)]
    nothing = by_query(holed.chosen(1, 2) * ~whole)
    holes = holed.of_query + holed.extra
    slots = by_query(holed.of_group * whole) + by_query(fits * ~whole)
    cut_off = False  # holes that tie with nothing judged
    if holed.gaps:
        between = holed.span - by_query(groups.size)
        inside = np.minimum(k, holed.span) - by_query(fits)
        slots, cut_off = slots + inside, bool((inside < between).any())
    pooled = [groups.pool.count(g, g) for g in (3, 4, 5)]
    kinds = np.stack([*sure, *loose, nothing, holes, slots, *pooled], axis=1)
    # The numbers of a query as one, if that has room for them: to sort it takes no time.
    most = kinds.max(axis=0, initial=0).astype(object) + 1
    if most.prod() < 2**62:
        _, at, which = np.unique(
            kinds @ (np.cumprod(most) // most).astype(np.int64),
            return_index=True,
            return_inverse=True,
        )
        keys = kinds[at]
    else:
        keys, which = np.unique(kinds, axis=0, return_inverse=True)
    low, high = np.full(len(keys), np.nan), np.full(len(keys), np.nan)
    for count in np.unique(keys[:, 7]):
        chosen = np.flatnonzero(keys[:, 7] == count)
        if comb(int(count) + 3, 3) > _COMPLETIONS:
            low[chosen], high[chosen] = 0.0, 1.0
            continue
        given = _split(int(count))
        step = max(1, _TRIED // len(given))
        for begin in range(0, len(chosen), step):
            some = chosen[begin : begin + step]
            columns = [keys[some, c, None] for c in range(keys.shape[1])]
            low[some], high[some] = _graded_sets(columns, given, k, alpha, cap4, cap3)
    which = which.reshape(-1)
    crowded = bool((holed.of_query + holed.extra >= 1).any()) and bool(
        (~whole).any() or cut_off or holed.extra.any()
    )
    too_many = comb(int(holes.max(initial=0)) + 3, 3) > _COMPLETIONS
    return Ends(low[which], high[which], exact=not (crowded or too_many))


def _split(holes: int) -> Int:
    """(V, 3) how many of the holes have grade 3, 4 and 5, in every way."""
    a, b, c = np.meshgrid(*(np.arange(holes + 1),) * 3, indexing="ij")
    keep = a + b + c <= holes
    return np.stack([a[keep], b[keep], c[keep]], axis=1)


def _graded_sets(
    columns: list[Int], given: Int, k: int, alpha: float, cap4: float, cap3: float
) -> tuple[Float, Float]:
    """(S,) lowest and highest RAnWG over all ways to grade the holes."""
    s3, s4, s5, l3, l4, l5, nothing, holes, slots, n3, n4, n5 = columns
    a3, a4, a5 = (given[None, :, g] for g in range(3))
    n3, n4, n5 = n3 + a3, n4 + a4, n5 + a5
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # r_g / r_5 = b_g · (n_5 / n_g)^alpha: the size of the pool goes out.
        w4 = np.where(n4 > 0, np.fmin(0.5 * (n5 / n4) ** alpha, cap4), 0.0)
        w3 = np.where(n3 > 0, np.fmin(0.1 * (n5 / n3) ** alpha, cap3), 0.0)
    w4, w3 = np.where(n5 > 0, w4, 1.0), np.where(n5 > 0, w3, 0.2)
    heavy, light = np.maximum(w3, w4), np.minimum(w3, w4)
    three = w3 > w4  # a rare grade 3 can outweigh a common grade 4

    def fill(room: Int, first: Int, *rest: tuple[Int, Float]) -> Float:
        """`first` takes room and weighs nothing; then each kind in turn."""
        room = np.maximum(room - first, 0)
        total = np.zeros(np.broadcast_shapes(room.shape, n5.shape))
        for count, weight in rest:
            taken = np.minimum(count, room)
            total = total + taken * weight
            room = room - taken
        return total

    def sides(x3: Int, x4: Int) -> tuple[Int, Int]:
        return np.where(three, x3, x4), np.where(three, x4, x3)

    none = np.zeros_like(slots)
    one = np.ones_like(w4)
    pool_heavy, pool_light = sides(n3, n4)
    ideal = fill(none + k, none, (n5, one), (pool_heavy, heavy), (pool_light, light))
    known = s5 + s4 * w4 + s3 * w3
    fit_heavy, fit_light = sides(l3 + a3, l4 + a4)
    best = known + fill(slots, none, (l5 + a5, one), (fit_heavy, heavy), (fit_light, light))
    zeros = nothing + holes - a3 - a4 - a5
    worst = known + fill(slots, zeros, (fit_light, light), (fit_heavy, heavy), (l5 + a5, one))
    with np.errstate(invalid="ignore", divide="ignore"):
        low = np.where(ideal > 0, worst / ideal, np.nan)
        high = np.where(ideal > 0, best / ideal, np.nan)
    return np.fmin.reduce(low, axis=1), np.minimum(np.fmax.reduce(high, axis=1), 1.0)
