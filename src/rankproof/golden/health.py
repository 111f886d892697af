"""A judge's health, computed from its stored replies: nothing is asked.

    position   Σ τ_b/√(Σ v_b), τ between the order shown and the order given, v = 2(2m+5)/(9m(m−1)):
               within ±3 for a judge that ignores where a passage is shown
    repeats    pairs of passages that were compared M ≥ 2 times: how many of their comparisons
               agree, C(w,2) + C(M−w,2) for w wins, standardized by judges that are simulated from
               the posterior: within ±3. Higher values mean that pairs are steadier than the
               posterior has them. So are those of a judge that never wavers, unless many pairs
               contradict the order that fits its replies best, as circular preferences must. A
               judge that guesses is as steady as a posterior that has learned it; there, that only
               half of the comparisons agree gives it away
    surprise   (concordant pairs − their expectation)²/variance of each reply against the posterior
               before its round, on average: about 1 for an honest judge, flagged above 1.1, or
               above what so many replies, of variance 2 each, reach by chance
    constant   grading replies on three passages or more that give all of them one grade
    copied     orders that repeat the order shown, against the 1/m! of chance

None of them detects a stable bias, such as one for length: only people do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankproof.foundation.phrasing import signed
from rankproof.golden.judgments import Reply
from rankproof.golden.plackett_luce import OrderTable, Posterior, find_modes
from rankproof.golden.result import read_posteriors
from rankproof.golden.store import Store

_Z_LIMIT = 3.0  # standard deviations beyond which a value is not due to chance
_Z_BETTER_THAN_GUESSING = 2.0  # for calling a judge consistent
_Z_FAVORED = 3.5  # for the likeliest of several places
_MAX_SURPRISE = 1.1
_MIN_SIMULATED, _TOTAL_SIMULATED = 30, 600  # judges simulated for a pool, and for all pools
_CIRCULAR_SHARE = 0.1  # of the pairs compared more than once: more in no one order are circles
_GUESSING_AGREEMENT = 0.6  # share of agreeing comparisons below which a judge all but guesses
_MIN_REPLIES = 10  # with fewer, a figure is None


@dataclass(frozen=True, slots=True)
class Health:
    """A judge's figures, None where there are too few replies, and findings in words."""

    orders: int
    position: float | None  # z
    repeated: int  # pairs that were compared more than once
    repeats: float | None  # z
    surprise: float | None
    copied: float | None  # share of the orders
    copied_by_chance: float | None
    graded: int  # grading replies on three passages or more
    constant: float | None  # share of them
    grades: dict[str, int]  # grade → how often
    words: tuple[str, ...]

    def lines(self) -> list[str]:
        """Findings in one line and figures in another; [] without findings."""
        figures = []
        if self.position is not None:
            figures.append(f"position z {signed(self.position, 1)}")
        if self.repeats is not None:
            figures.append(f"repeats z {signed(self.repeats, 1)} ({self.repeated:,} pairs)")
        if self.surprise is not None:
            figures.append(f"surprise {self.surprise:.2f}")
        if self.constant is not None:
            figures.append(f"constant replies {self.constant:.0%}")
        return [f"the judge: {'; '.join(self.words)}", ", ".join(figures)] if self.words else []


@dataclass(frozen=True, slots=True)
class MemberHealth:
    """How reliable one judge of a panel is, and its health."""

    name: str
    right: float | None  # estimated share of its grades that are right
    apart: float | None  # mean distance of its grades from the true ones
    sharpness: float | None  # of its orders; 1 on geometric average over the panel
    health: Health

    def line(self) -> str:
        """The judge in one line."""
        parts = []
        if self.right is not None:
            parts.append(f"about {self.right:.0%} of its grades are right")
        if self.apart is not None:
            parts.append(f"{self.apart:.2f} off on average")
        if self.sharpness is not None:
            parts.append(f"orders {self.sharpness:.2f} times as sharp")
        return f"{self.name}: {'; '.join([*parts, *self.health.words])}"


def panel_health(store: Store) -> list[MemberHealth]:
    """The health of each judge of a panel; [] if one judges alone."""
    reliability = store.meta("reliability") or {}
    members = []
    for member in (store.meta("judge") or {}).get("members", []):
        ids = member["numbers"]
        figures = reliability.get(str(ids["grade"]), {}) | reliability.get(str(ids["order"]), {})
        members.append(
            MemberHealth(
                name=member["name"],
                right=figures.get("right"),
                apart=figures.get("apart"),
                sharpness=figures.get("sharpness"),
                health=_judge_health(store, ids),
            )
        )
    return members


def health_lines(store: Store) -> list[str]:
    """The health of the judge, or of each judge of a panel, in words."""
    members = panel_health(store)
    return [member.line() for member in members] or judge_health(store).lines()


def judge_health(store: Store) -> Health:
    """The health of the current judge; of a panel, of its first."""
    return _judge_health(store, store.panel_members()[0].get("numbers", {}))


def _judge_health(store: Store, judge_ids: dict[str, int]) -> Health:
    """The health of the judge with these ids, by the kind of its replies."""
    condition = "kind = ? AND judge = ? AND retired = 0 AND result NOT NULL"
    order_id = judge_ids.get("order", -1)
    orders = store.replies(condition, ("order", order_id))
    orders = [reply for reply in orders if len(reply.documents) > 1]  # others are parts of batches
    grading = store.replies(condition, ("grade", judge_ids.get("grade", -1)))
    reliability = (store.meta("reliability") or {}).get(str(order_id), {})
    position = _position(orders)
    consistency = _consistency(store, orders, reliability.get("sharpness", 1.0))
    surprise, is_surprising = _surprise(store, order_id)
    graded = [list(r.result.values()) for r in grading if isinstance(r.result, dict)]
    wide = [grades for grades in graded if len(grades) >= 3]
    constant = None
    if len(wide) >= _MIN_REPLIES:
        constant = sum(len(set(grades)) == 1 for grades in wide) / len(wide)
    counts = Counter(grade for grades in graded for grade in grades)
    grades = {str(grade): counts[grade] for grade in range(1, 6)}
    words = _order_findings(orders, position, consistency)
    if surprise is not None and is_surprising:
        words.append(f"is harder to predict than the posterior assumes ({surprise:.2f} times)")
    words += _grade_findings(constant, grades)
    if not words and position is not None:
        words.append(_verdict(consistency))
    return Health(
        orders=len(orders),
        position=None if position is None else position.z,
        repeated=consistency.repeated_pairs,
        repeats=consistency.z,
        surprise=surprise,
        copied=None if position is None else position.copied,
        copied_by_chance=None if position is None else position.copied_by_chance,
        graded=len(wide),
        constant=constant,
        grades=grades,
        words=tuple(words),
    )


# ------------------------------------------------------------------------------------- position


class _Position(NamedTuple):
    """How far orders depend on where passages were shown."""

    z: float  # of τ between the orders shown and given
    copied: float  # share of orders that repeat the order shown
    copied_by_chance: float


def _position(orders: Sequence[Reply]) -> _Position | None:
    """Measure how far orders depend on where passages were shown; None for too few orders."""
    if len(orders) < _MIN_REPLIES:
        return None
    total = variance = chance = 0.0
    copies = 0
    for reply in orders:
        shown_at = {doc: index for index, doc in enumerate(reply.documents)}
        order = np.array([shown_at[doc] for doc in reply.result or ()])
        m = len(order)
        if m < 2:
            continue
        concordance = np.sign(order[None, :] - order[:, None])[np.triu_indices(m, 1)]
        total += float(concordance.mean())
        variance += 2 * (2 * m + 5) / (9 * m * (m - 1))
        copies += bool((np.diff(order) > 0).all())
        chance += 1 / math.factorial(m)
    if variance == 0:
        return None
    return _Position(total / math.sqrt(variance), copies / len(orders), chance / len(orders))


def _favored_place(orders: Sequence[Reply]) -> str | None:
    """Say from which place a judge takes its first passage too often; None if from none.

    Such a judge need not copy the order shown: τ can be 0.
    """
    if len(orders) < _MIN_REPLIES:
        return None
    size = np.array([len(reply.documents) for reply in orders])
    best = [next(iter(reply.result or reply.documents)) for reply in orders]
    best_place = np.array([r.documents.index(d) for r, d in zip(orders, best, strict=True)])
    largest_z, finding = _Z_FAVORED, None
    for place in (-1, *range(int(size.max()) - 1)):  # -1: the last one
        has_place = (size > 1) & (size > place + 1)
        if not has_place.any():
            continue
        sizes = size[has_place]
        won = best_place[has_place] == (sizes - 1 if place < 0 else place)
        chance = 1 / sizes
        z = (won - chance).sum() / math.sqrt((chance * (1 - chance)).sum())
        if z > largest_z:
            name = {-1: "last", 0: "first"}.get(place, f"in place {place + 1}")
            shares = f"{won.mean():.0%}; by chance {chance.mean():.0%}"
            largest_z, finding = z, f"puts first what it is shown {name} ({shares})"
    return finding


# ---------------------------------------------------------------------------------- consistency


class _Consistency(NamedTuple):
    """How well a judge's comparisons of the same pair agree."""

    repeated_pairs: int = 0
    z: float | None = None  # of the agreeing comparisons against judges from the posterior
    guessing_share: float | None = None  # that agree, if about as many as guesses would have
    is_circular: bool = False
    beats_guessing: bool = False


class RepeatedPairs(NamedTuple):
    """Comparisons of pairs that were compared M ≥ 2 times, with w wins of the first item."""

    pairs: int
    surplus: float  # of Σ C(w,2) + C(M−w,2) over its mean under the posterior
    variance: float  # of the sum under the posterior
    agreeing: int  # the sum itself
    compared: int  # Σ C(M,2)


def _consistency(store: Store, orders: Sequence[Reply], sharpness: float) -> _Consistency:
    """Compare how well a judge's comparisons of a pair agree with simulated judges and guesses."""
    if not orders:
        return _Consistency()
    replies_by_query: dict[str, list[Reply]] = {}
    for reply in orders:
        replies_by_query.setdefault(reply.query, []).append(reply)
    simulated = max(_MIN_SIMULATED, _TOTAL_SIMULATED // len(replies_by_query))
    generator = np.random.default_rng(len(orders))
    pools: list[tuple[int, list[list[int]]]] = []  # size and orders
    counts: list[RepeatedPairs] = []
    for query, docs, posterior in read_posteriors(store):
        index = {doc: at for at, doc in enumerate(docs)}
        item_orders = [
            [index[doc] for doc in reply.result or () if doc in index]
            for reply in replies_by_query.get(query, ())
        ]
        pools.append((len(docs), item_orders))
        counts.append(
            count_repeated_pairs(
                item_orders, posterior, sharpness, simulated=simulated, generator=generator
            )
        )
    pairs, surplus, variance, agreeing, compared = [
        sum(column) for column in zip(*counts, strict=True)
    ] or [0] * 5
    if pairs < _MIN_REPLIES or variance <= 0:
        return _Consistency(int(pairs))
    z = surplus / math.sqrt(variance)
    share = agreeing / compared
    # Compared pairs are close: an honest judge (β = 3) agrees on two thirds. Comparisons within a
    # batch depend on each other, so that the share varies half as much again as a binomial one.
    error = 1.5 * 0.5 / math.sqrt(compared)
    is_guessing = share + _Z_LIMIT * error < _GUESSING_AGREEMENT
    return _Consistency(
        repeated_pairs=int(pairs),
        z=z,
        guessing_share=share if is_guessing else None,
        is_circular=z > _Z_LIMIT and _is_circular(pools),
        beats_guessing=share - _Z_BETTER_THAN_GUESSING * error > 0.5,
    )


def _is_circular(pools: Sequence[tuple[int, list[list[int]]]]) -> bool:
    """True if many repeated pairs mostly contradict the order that fits all replies best.

    No single order then has all of them right.
    """
    repeated = contradicting = 0
    for n, orders in pools:
        wins = np.zeros((n, n))  # how often item i was put before item j
        for order in orders:
            for place, better in enumerate(order):
                wins[better, order[place + 1 :]] += 1
        mean, _ = find_modes(OrderTable.from_orders(orders, n), np.zeros(n), np.ones(n))
        is_repeated = np.triu(wins + wins.T > 1, 1)
        contradicts = (wins - wins.T) * (mean[:, None] - mean) < 0
        repeated += int(is_repeated.sum())
        contradicting += int((is_repeated & contradicts).sum())
    return contradicting > _CIRCULAR_SHARE * repeated


def count_repeated_pairs(
    orders: Sequence[Sequence[int]],
    posterior: Posterior,
    sharpness: float,
    simulated: int,
    generator: np.random.Generator,
) -> RepeatedPairs:
    """Count the comparisons of one pool that agree, and simulate how many would by the posterior.

    The same batches are given to simulated judges, because pairs of one batch, and all pairs of one
    passage, depend on each other: their sum varies more than that of independent pairs.
    """
    n = len(posterior.mean)
    utilities = posterior.sample(generator, simulated)
    orders_by_size: dict[int, list[Sequence[int]]] = {}
    for order in orders:
        if len(order) > 1:
            orders_by_size.setdefault(len(order), []).append(order)
    pair_ids, lower_item_won = [], []  # as given (row 0) and as simulated
    for size, same_size in orders_by_size.items():
        items = np.array(same_size, np.int64).reshape(-1, size)
        above, below = np.triu_indices(size, 1)
        first, second = items[:, above], items[:, below]
        noise = generator.gumbel(size=(simulated, *items.shape)) / sharpness
        noisy = utilities[:, items] + noise
        simulated_wins = noisy[..., above] > noisy[..., below]
        first_won = np.concatenate([np.ones((1, *first.shape), bool), simulated_wins])
        pair_ids.append((np.minimum(first, second) * n + np.maximum(first, second)).ravel())
        lower_item_won.append((first_won == (first < second)).reshape(1 + simulated, -1))
    if not pair_ids:
        return RepeatedPairs(pairs=0, surplus=0.0, variance=0.0, agreeing=0, compared=0)
    _, pair, times = np.unique(np.concatenate(pair_ids), return_inverse=True, return_counts=True)
    cell = pair + len(times) * np.arange(1 + simulated)[:, None]
    won = np.concatenate(lower_item_won, axis=1).ravel()
    wins = np.bincount(cell.ravel(), won, len(times) * (1 + simulated)).reshape(1 + simulated, -1)
    losses = times - wins
    agreeing = np.sum(wins * (wins - 1) + losses * (losses - 1), axis=1) / 2
    expected = agreeing[1:]
    return RepeatedPairs(
        pairs=int((times > 1).sum()),
        surplus=float(agreeing[0] - expected.mean()),
        variance=float(expected.var(ddof=1)),
        agreeing=int(agreeing[0]),
        compared=int((times * (times - 1)).sum()) // 2,
    )


def _surprise(store: Store, order_id: int) -> tuple[float | None, bool]:
    """Mean surprise of a judge's orders, and whether it is more than chance explains."""
    totals = (store.meta("surprise") or {}).get(str(order_id))
    if not totals or totals[1] < _MIN_REPLIES:
        return None, False
    surprise = totals[0] / totals[1]
    by_chance = 1 + _Z_LIMIT * math.sqrt(2 / totals[1])
    return surprise, surprise > max(_MAX_SURPRISE, by_chance)


# ------------------------------------------------------------------------------------- findings


def _order_findings(
    orders: Sequence[Reply], position: _Position | None, consistency: _Consistency
) -> list[str]:
    """What is wrong with a judge's orders, in words."""
    words = []
    if position is not None and position.z > _Z_LIMIT:
        shares = f"{position.copied:.0%}; by chance {position.copied_by_chance:.0%}"
        words.append(f"copies the order it is shown ({shares})")
    elif position is not None and position.z < -_Z_LIMIT:
        words.append("turns the order it is shown around")
    favored = _favored_place(orders)
    if favored is not None and not ("shown first" in favored and words):
        words.append(favored)
    if consistency.guessing_share is not None:
        share = f"{consistency.guessing_share:.0%}"
        detail = f"asked again, it agrees with itself {share} of the time; by chance 50%"
        words.append(f"contradicts itself ({detail})")
    elif consistency.is_circular:
        words.append("contradicts itself (it prefers in circles)")
    elif consistency.z is not None and consistency.z < -_Z_LIMIT:
        words.append("contradicts itself (asked again, it says another thing)")
    return words


def _grade_findings(constant: float | None, grades: dict[str, int]) -> list[str]:
    """What is wrong with a judge's grades, in words."""
    words = []
    if constant is not None and constant > 0.5:
        words.append(f"gives all passages of a request one grade ({constant:.0%} of requests)")
    total = sum(grades.values())
    unused = [grade for grade, count in grades.items() if count == 0]
    if total >= 50 and unused:
        words.append(f"gave no {' and no '.join(unused)} in {total:,} grades")
    return words


def _verdict(consistency: _Consistency) -> str:
    """How consistent a judge is that has no fault."""
    if not consistency.beats_guessing:
        return "not significantly better than guessing: too few pairs were compared again"
    is_steadier = consistency.z is not None and consistency.z > _Z_LIMIT
    comparison = "more consistent than" if is_steadier else "as consistent as"
    return f"{comparison} the posterior assumes"
