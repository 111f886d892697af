"""Every measure as its definition reads, of one fully ordered list; nothing here is fast.

`ranked` holds the grade of each listed document in rank order, None where it was not judged, and
for infAP −1 where it was pooled and not judged;
`pool` the grades of all judged documents of the query, retrieved or not; `max_grade` is the highest
grade of the whole qrels. A measure that is undefined for the query is NaN.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, permutations, product

Ranked = Sequence[int | None]
Pool = Sequence[int]


def enumerate_orderings(
    scores: Sequence[float], grades: Ranked
) -> Iterator[tuple[int | None, ...]]:
    """Every distinct ordering that the scores allow, as grades in rank order.

    Documents of one grade are alike to every measure. Leaving out their permutations leaves the
    distribution as it was: each distinct ordering stands for equally many.
    """
    best_first = sorted(zip(scores, grades, strict=True), key=lambda pair: -pair[0])
    groups = [[grade for _, grade in tied] for _, tied in groupby(best_first, lambda pair: pair[0])]
    arrangements = [dict.fromkeys(permutations(group)) for group in groups]
    for chosen in product(*arrangements):
        yield tuple(grade for group in chosen for grade in group)


def relevant(grade: int | None, rel: int) -> bool:
    return grade is not None and grade >= rel


def count(grades: Ranked, rel: int) -> int:
    return sum(relevant(grade, rel) for grade in grades)


def hits(ranked: Ranked, pool: Pool, cutoff: int | None, max_grade: int, rel: int = 1) -> float:
    return count(ranked[:cutoff], rel)


def precision(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int, rel: int = 1) -> float:
    return count(ranked[:cutoff], rel) / cutoff


def recall(ranked: Ranked, pool: Pool, cutoff: int | None, max_grade: int, rel: int = 1) -> float:
    wanted = count(pool, rel)
    return count(ranked[:cutoff], rel) / wanted if wanted else math.nan


def f1(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int, rel: int = 1) -> float:
    found = count(ranked[:cutoff], rel)
    if not found:
        return 0.0
    p, r = found / cutoff, found / count(pool, rel)
    return 2 * p * r / (p + r)


def r_precision(ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1) -> float:
    wanted = count(pool, rel)
    return count(ranked[:wanted], rel) / wanted if wanted else math.nan


def judged(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int) -> float:
    shown = ranked[:cutoff]
    return sum(grade is not None for grade in shown) / len(shown) if shown else 0.0


def rbp(
    ranked: Ranked,
    pool: Pool,
    cutoff: int | None,
    max_grade: int,
    p: float = 0.8,
    rel: int = 1,
    max: int | None = None,  # noqa: A002
) -> float:
    value, looks = 0.0, 1.0  # the reader looks at rank 1 for certain
    for grade in ranked[:cutoff]:
        if max is not None:
            value += (1 - p) * looks * min(grade or 0, max) / max
        elif relevant(grade, rel):
            value += (1 - p) * looks
        looks *= p
    return value


def rbp_residual(
    ranked: Ranked, pool: Pool, cutoff: int | None, max_grade: int, p: float = 0.8
) -> float:
    unknown, looks = 0.0, 1.0
    for grade in ranked[:cutoff]:
        unknown += (1 - p) * looks if grade is None else 0.0
        looks *= p
    return unknown + looks  # whoever is still reading sees nothing that was judged


def worth(grade: int | None, gain: str | dict[int, float], rel: int = 1) -> float:
    if isinstance(gain, dict):
        return 0.0 if grade is None else gain.get(grade, grade)
    if grade is None or grade < rel:
        return 0.0
    counted = grade - rel + 1
    return counted if gain == "linear" else 2**counted - 1


def dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def discounted(
    ranked: Ranked,
    pool: Pool,
    cutoff: int | None,
    max_grade: int,
    gain: str = "linear",
    rel: int = 1,
) -> float:
    return dcg([worth(grade, gain, rel) for grade in ranked[:cutoff]])


def ndcg(
    ranked: Ranked,
    pool: Pool,
    cutoff: int | None,
    max_grade: int,
    gain: str | dict[int, float] = "linear",
    rel: int = 1,
) -> float:
    ideal = dcg(sorted((worth(grade, gain, rel) for grade in pool), reverse=True)[:cutoff])
    found = dcg([worth(grade, gain, rel) for grade in ranked[:cutoff]])
    return found / ideal if ideal else math.nan


def num_ret(
    ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int | None = None
) -> float:
    return len(ranked) if rel is None else count(ranked, rel)


def num_rel(ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1) -> float:
    return count(pool, rel)


def num_rel_ret(ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1) -> float:
    return count(ranked, rel)


def set_precision(ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1) -> float:
    return count(ranked, rel) / len(ranked) if ranked else 0.0


def set_recall(ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1) -> float:
    return recall(ranked, pool, None, max_grade, rel)


def set_f(
    ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1, beta: float = 1.0
) -> float:
    if not count(ranked, rel):
        return 0.0
    p = set_precision(ranked, pool, None, max_grade, rel)
    r = set_recall(ranked, pool, None, max_grade, rel)
    return (beta + 1) * p * r / (beta * p + r)


def set_ap(ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1) -> float:
    return set_precision(ranked, pool, None, max_grade, rel) * set_recall(
        ranked, pool, None, max_grade, rel
    )


def interpolated(
    ranked: Ranked,
    pool: Pool,
    cutoff: None,
    max_grade: int,
    recall: float = 0.0,
    rel: int = 1,
    rounding: str = "up",
) -> float:
    """As trec_eval's m_iprec_at_recall.c: the level counts relevant documents, rounded so; up as
    version 9 has it, to the nearest as version 10 has it.
    """
    wanted = count(pool, rel)
    if not wanted:
        return math.nan
    least = int(recall * wanted + (0.9 if rounding == "up" else 0.5))
    reached = [r for r in range(1, len(ranked) + 1) if count(ranked[:r], rel) >= max(least, 1)]
    return max((count(ranked[:r], rel) / r for r in reached), default=0.0)


def eleven_points(
    ranked: Ranked,
    pool: Pool,
    cutoff: None,
    max_grade: int,
    rel: int = 1,
    rounding: str = "up",
) -> float:
    levels = [number / 10 for number in range(11)]
    return sum(interpolated(ranked, pool, None, max_grade, x, rel, rounding) for x in levels) / 11


def reciprocal_rank(
    ranked: Ranked, pool: Pool, cutoff: int | None, max_grade: int, rel: int = 1
) -> float:
    for rank, grade in enumerate(ranked[:cutoff], 1):
        if relevant(grade, rel):
            return 1 / rank
    return 0.0


def success(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int, rel: int = 1) -> float:
    return float(count(ranked[:cutoff], rel) > 0)


def average_precision(
    ranked: Ranked, pool: Pool, cutoff: int | None, max_grade: int, rel: int = 1
) -> float:
    wanted = count(pool, rel)
    if not wanted:
        return math.nan
    total = 0.0
    for rank, grade in enumerate(ranked[:cutoff], 1):
        if relevant(grade, rel):
            total += count(ranked[:rank], rel) / rank
    return total / wanted


def inferred(ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1) -> float:
    """As trec_eval's m_infap.c."""
    wanted, epsilon, total = count(pool, rel), 0.00001, 0.0
    if not wanted:
        return math.nan
    for rank, grade in enumerate(ranked, 1):
        if not relevant(grade, rel):
            continue
        above = ranked[: rank - 1]
        good = count(above, rel)
        judged = sum(g is not None and g >= 0 for g in above)
        pooled = sum(g is not None for g in above)
        total += 1 / rank
        total += pooled / rank * (good + epsilon) / (judged + 2 * epsilon)
    return total / wanted


def geometric(ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1) -> float:
    """Of one query; the mean over queries is the geometric one."""
    value = average_precision(ranked, pool, None, max_grade, rel)
    return value if math.isnan(value) else max(value, 0.00001)


def err(
    ranked: Ranked,
    pool: Pool,
    cutoff: int | None,
    max_grade: int,
    max: int | None = None,  # noqa: A002
) -> float:
    top = max_grade if max is None else max
    value, reads_on = 0.0, 1.0
    for rank, grade in enumerate(ranked[:cutoff], 1):
        stop = (2 ** min(grade or 0, top) - 1) / 2**top
        value += reads_on * stop / rank
        reads_on *= 1 - stop
    return value


def bpref(ranked: Ranked, pool: Pool, cutoff: None, max_grade: int, rel: int = 1) -> float:
    """As trec_eval's m_bpref.c: R is num_rel, N num_nonrel of the judgements."""
    wanted = count(pool, rel)
    unwanted = len(pool) - wanted
    if not wanted:
        return math.nan
    total, nonrel_so_far = 0.0, 0
    for grade in ranked:
        if grade is None:
            continue
        if grade < rel:
            nonrel_so_far += 1
        elif nonrel_so_far:
            total += 1 - min(nonrel_so_far, wanted) / min(unwanted, wanted)
        else:
            total += 1
    return total / wanted


def rarity_weights(pool: Pool, alpha: float, cap4: float, cap3: float) -> dict[int | None, float]:
    if 5 not in pool:
        return {None: 0.0, 1: 0.0, 2: 0.0, 3: 0.2, 4: 1.0, 5: 1.0}

    def rarity(grade: int, base: float) -> float:
        share = pool.count(grade) / len(pool)
        return base / share**alpha if share else 0.0

    r5, r4, r3 = rarity(5, 1.0), rarity(4, 0.5), rarity(3, 0.1)
    return {None: 0.0, 1: 0.0, 2: 0.0, 3: min(r3 / r5, cap3), 4: min(r4 / r5, cap4), 5: 1.0}


def ra_nwg(
    ranked: Ranked,
    pool: Pool,
    cutoff: int,
    max_grade: int,
    alpha: float = 1.0,
    cap4: float = 1.0,
    cap3: float = 0.25,
) -> float:
    weight = rarity_weights(pool, alpha, cap4, cap3)
    ideal = sum(sorted((weight[grade] for grade in pool), reverse=True)[:cutoff])
    return sum(weight[grade] for grade in ranked[:cutoff]) / ideal if ideal else math.nan


def normalised_recall(ranked: Ranked, pool: Pool, cutoff: int, rel: int) -> float:
    reachable = min(cutoff, count(pool, rel))
    return count(ranked[:cutoff], rel) / reachable if reachable else math.nan


def n_recall_4(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int) -> float:
    return normalised_recall(ranked, pool, cutoff, 4)


def n_recall_5(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int) -> float:
    return normalised_recall(ranked, pool, cutoff, 5)


def precision_4(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int) -> float:
    return count(ranked[:cutoff], 4) / cutoff


def harm(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int) -> float:
    return sum(grade is not None and grade <= 2 for grade in ranked[:cutoff]) / cutoff


def hit(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int) -> float:
    wanted = count(pool, 4)
    return float(count(ranked[:cutoff], 4) == wanted) if wanted else math.nan


def udcg(ranked: Ranked, pool: Pool, cutoff: int, max_grade: int, penalty: float = 1 / 3) -> float:
    context = ranked[:cutoff]
    if not context:
        return 0.0
    utility = {5: 1.0, 4: 1.0, 3: -penalty * 2 / 3, 2: -penalty / 3, 1: 0.0, None: 0.0}
    return 1 / (1 + math.exp(-sum(utility[grade] for grade in context) / len(context)))


# ------------------------------------------------------------------------------------- aspects

# Here `ranked` and `pool` hold a mapping of aspect to grade for each judged document; the pool
# has the documents by descending id. Nuggets that a passage supports in part have grade 0 and
# those that it does not support −1; `vital` are the vital ones, None for aspects.

Aspects = Mapping[str, int]


def covered(document: Aspects | None, rel: int) -> list[str]:
    return sorted(aspect for aspect, grade in (document or {}).items() if grade >= rel)


def aspects_of(pool: Sequence[Aspects], rel: int) -> list[str]:
    return sorted({aspect for document in pool for aspect in covered(document, rel)})


def novelty(
    ranked: Sequence[Aspects | None], cutoff: int | None, rel: int, alpha: float, by: str
) -> float:
    value, seen = 0.0, Counter[str]()
    for rank, document in enumerate(ranked[:cutoff], 1):
        gain = sum((1 - alpha) ** seen[aspect] for aspect in covered(document, rel))
        value += gain / (rank if by == "rank" else math.log2(rank + 1))
        seen.update(covered(document, rel))
    return value


def greedy(pool: Sequence[Aspects], rel: int, alpha: float) -> list[Aspects]:
    """Of equal documents the first of the pool, which is sorted by descending id."""
    left, order = list(pool), list[Aspects]()
    while left:
        seen = Counter(aspect for document in order for aspect in covered(document, rel))
        gains = [
            sum((1 - alpha) ** seen[aspect] for aspect in covered(document, rel))
            for document in left
        ]
        order.append(left.pop(gains.index(max(gains))))
    return order


def alpha_dcg(
    ranked: Sequence[Aspects | None],
    pool: Sequence[Aspects],
    cutoff: int,
    alpha: float = 0.5,
    rel: int = 1,
    by: str = "log",
) -> float:
    """As ndeval: over a list in which every document covers every aspect, which @1 leaves out."""
    aspects = aspects_of(pool, rel)
    if not aspects:
        return math.nan
    full = novelty([dict.fromkeys(aspects, rel)] * cutoff, cutoff, rel, alpha, by)
    return novelty(ranked, cutoff, rel, alpha, by) / (full if cutoff > 1 else 1.0)


def alpha_ndcg(
    ranked: Sequence[Aspects | None],
    pool: Sequence[Aspects],
    cutoff: int,
    alpha: float = 0.5,
    rel: int = 1,
    by: str = "log",
) -> float:
    ideal = novelty(greedy(pool, rel, alpha), cutoff, rel, alpha, by)
    return novelty(ranked, cutoff, rel, alpha, by) / ideal if ideal else math.nan


def mean_over_aspects(
    measure: Callable[..., float],
    ranked: Sequence[Aspects | None],
    pool: Sequence[Aspects],
    cutoff: int | None,
    rel: int,
) -> float:
    values = [
        measure(
            [int(aspect in covered(document, rel)) for document in ranked],
            [int(aspect in covered(document, rel)) for document in pool],
            cutoff,
            1,
        )
        for aspect in aspects_of(pool, rel)
    ]
    return sum(values) / len(values) if values else math.nan


def subtopic_recall(
    ranked: Sequence[Aspects | None],
    pool: Sequence[Aspects],
    cutoff: int,
    rel: int = 1,
    nuggets: str = "all",
    partial: int = 0,
    vital: Collection[str] | None = None,
) -> float:
    least = 0 if partial else rel

    def chosen(aspects: Iterable[str]) -> set[str]:
        return {aspect for aspect in aspects if nuggets == "all" or aspect in (vital or ())}

    all_of = chosen(aspects_of(pool, least))
    if not all_of:
        return math.nan
    if vital is not None:
        all_of = chosen(aspects_of(pool, -1))
    top = {aspect for document in ranked[:cutoff] for aspect in covered(document, least)}
    return len(chosen(top)) / len(all_of)


ASPECT_ORACLES: dict[str, Callable[..., float]] = {
    "AP_IA": lambda ranked, pool, cutoff, rel=1: mean_over_aspects(
        average_precision, ranked, pool, cutoff, rel
    ),
    "ERR_IA": lambda ranked, pool, k, rel=1: alpha_dcg(ranked, pool, k, rel=rel, by="rank"),
    "P_IA": lambda ranked, pool, cutoff, rel=1: mean_over_aspects(
        precision, ranked, pool, cutoff, rel
    ),
    "StRecall": subtopic_recall,
    "alpha_DCG": alpha_dcg,
    "alpha_nDCG": alpha_ndcg,
    "nERR_IA": lambda ranked, pool, k, rel=1: alpha_ndcg(ranked, pool, k, rel=rel, by="rank"),
}

ORACLES: dict[str, Callable[..., float]] = {
    "AP": average_precision,
    "DCG": discounted,
    "ERR": err,
    "F1": f1,
    "Harm": harm,
    "Hit": hit,
    "Hits": hits,
    "Judged": judged,
    "AP11": eleven_points,
    "GMAP": geometric,
    "IPrec": interpolated,
    "NumRel": num_rel,
    "NumRelRet": num_rel_ret,
    "NumRet": num_ret,
    "RBPResidual": rbp_residual,
    "SetAP": set_ap,
    "SetF": set_f,
    "SetP": set_precision,
    "SetR": set_recall,
    "NRecall4": n_recall_4,
    "NRecall5": n_recall_5,
    "P": precision,
    "P4": precision_4,
    "R": recall,
    "RAnWG": ra_nwg,
    "RBP": rbp,
    "RR": reciprocal_rank,
    "Rprec": r_precision,
    "Success": success,
    "UDCG": udcg,
    "bpref": bpref,
    "infAP": inferred,
    "nDCG": ndcg,
}
