"""A judge's health, from the replies that are kept: nothing is asked.

    position   Σ τ_b/√(Σ v_b), τ of the order shown and the order given, v = 2(2m+5)/(9m(m−1)):
               within ±3 for a judge that does not care where a passage stands
    repeats    pairs of passages that were compared M ≥ 2 times: how often two comparisons agree,
               C(w,2) + C(M−w,2) for w wins, against judges drawn from the posterior, standardised:
               within ±3; above, pairs are steadier than the posterior makes them: so are those of
               a judge that never wavers, unless many go against the order that fits its replies
               best, as those of one that prefers in circles must. Whoever guesses is as steady as a
               posterior that has learned it: comparisons that agree half of the time tell
    surprise   (concordant pairs − their expectation)²/variance, each reply against the posterior
               before its round, on average: about 1 for an honest judge, flagged above 1.1 where
               so many replies, of variance 2 each, do not show it by chance
    constant   grading replies on three passages or more that give all of them one grade
    copied     orders that repeat the order shown, against the 1/m! of chance

None of them sees a stable bias, such as one for length: only people do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rankproof.foundation.phrasing import signed
from rankproof.golden.judgments import Reply
from rankproof.golden.plackett_luce import Posterior, fit
from rankproof.golden.result import read_posteriors
from rankproof.golden.store import Store

_SURE = 3.0  # standard deviations
_LIKELY = 2.0  # of them, by which a judge that is called consistent is better than one that guesses
_FAVOURED = 3.5  # of the likeliest of several places
_SURPRISED = 1.1
_DRAWN, _DRAWN_IN_ALL = 30, 600  # judges who follow the posterior: of a pool, and in all
_AGAINST = 0.1  # of the pairs compared more than once: so many in no one order are circles
_GUESSED = 0.6  # of the comparisons of a pair: who surely agrees on fewer all but guesses
_FEWEST = 10  # replies, below which nothing is said


@dataclass(frozen=True, slots=True)
class Health:
    """Figures, None where there is too little to say; and what they say in words."""

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

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """The card in two lines, for people; none where there is nothing to say."""
        figures = [
            None if self.position is None else f"position z {signed(self.position, 1)}",
            None
            if self.repeats is None
            else f"repeats z {signed(self.repeats, 1)} ({self.repeated:,} pairs)",
            None if self.surprise is None else f"surprise {self.surprise:.2f}",
            None if self.constant is None else f"constant replies {self.constant:.0%}",
        ]
        known = ", ".join(figure for figure in figures if figure is not None)
        return [f"the judge: {'; '.join(self.words)}", known] if self.words else []


@dataclass(frozen=True, slots=True)
class Proved:
    """One judge of a panel: what it proved to be worth, and its card."""

    name: str
    right: float | None  # share of its grades that are right, as far as all and people tell
    apart: float | None  # grades by which they lie away on average
    sharpness: float | None  # of its orders; 1 on geometric average over the panel
    health: Health

    def line(self) -> str:
        """For people."""
        told = [
            None if self.right is None else f"about {self.right:.0%} of its grades are right",
            None if self.apart is None else f"{self.apart:.2f} off on average",
            None if self.sharpness is None else f"orders {self.sharpness:.2f} times as sharp",
            *self.health.words,
        ]
        return f"{self.name}: {'; '.join(word for word in told if word is not None)}"


def panel(store: Store) -> list[Proved]:
    """Each judge of a panel; none where one judges alone."""
    said = (store.meta("judge") or {}).get("members", [])
    measured = store.meta("reliability") or {}
    found = []
    for each in said:
        numbers = each["numbers"]
        figures = measured.get(str(numbers["grade"]), {}) | measured.get(str(numbers["order"]), {})
        right, apart, sharpness = map(figures.get, ("right", "apart", "sharpness"))
        found.append(Proved(each["name"], right, apart, sharpness, _health(store, numbers)))
    return found


def card(store: Store) -> list[str]:
    """For people: the judge's card, or what each of a panel proved to be."""
    several = panel(store)
    return [each.line() for each in several] or health(store).lines()


def health(store: Store) -> Health:
    """Of the judge in force; of a panel, of its first."""
    said = store.meta("judge") or {}
    return _health(store, (said.get("members") or [said])[0].get("numbers", {}))


def _health(store: Store, said: dict[str, int]) -> Health:
    where = "kind = ? AND judge = ? AND retired = 0 AND result NOT NULL"
    orders = store.replies(where, ("order", said.get("order", -1)))
    orders = [reply for reply in orders if len(reply.documents) > 1]  # others are parts of batches
    grading = store.replies(where, ("grade", said.get("grade", -1)))
    position, copied, chance = _positions(orders)
    measured = (store.meta("reliability") or {}).get(str(said.get("order")), {})
    again, repeats, guesses, circles, better = _repeats(
        store, orders, measured.get("sharpness", 1.0)
    )
    seen = (store.meta("surprise") or {}).get(str(said.get("order")))
    surprise = seen[0] / seen[1] if seen and seen[1] >= _FEWEST else None
    expected = max(_SURPRISED, 1 + _SURE * math.sqrt(2 / seen[1])) if seen else math.inf
    wide = [list(r.result.values()) for r in grading if isinstance(r.result, dict)]
    several = [grades for grades in wide if len(grades) >= 3]
    constant = (
        sum(len(set(grades)) == 1 for grades in several) / len(several)
        if len(several) >= _FEWEST
        else None
    )
    used = Counter(grade for grades in wide for grade in grades)
    grades = {str(grade): used[grade] for grade in range(1, 6)}
    told = surprise if surprise is not None and surprise > expected else None
    words = _words(
        *(position, copied, chance, _favoured(orders), repeats, guesses),
        *(circles, better, told, constant, grades),
    )
    return Health(
        *(len(orders), position, again, repeats, surprise, copied, chance),
        *(len(several), constant, grades, words),
    )


def _positions(orders: list[Reply]) -> tuple[float | None, float | None, float | None]:
    """z of τ between the orders shown and given; the share copied, and by chance."""
    if len(orders) < _FEWEST:
        return None, None, None
    total = variance = chance = 0.0
    copies = 0
    for reply in orders:
        place = {doc: at for at, doc in enumerate(reply.documents)}
        given = np.array([place[doc] for doc in reply.result or ()])
        m = len(given)
        if m < 2:
            continue
        later = np.sign(given[None, :] - given[:, None])[np.triu_indices(m, 1)]
        total += float(later.mean())
        variance += 2 * (2 * m + 5) / (9 * m * (m - 1))
        copies += bool((np.diff(given) > 0).all())
        chance += 1 / math.factorial(m)
    if variance == 0:
        return None, None, None
    return total / math.sqrt(variance), copies / len(orders), chance / len(orders)


def _favoured(orders: list[Reply]) -> str | None:
    """What a judge puts first that looks at the place where a passage is shown, though it may not
    copy the order; a τ of 0 hides it."""
    if len(orders) < _FEWEST:
        return None
    size = np.array([len(reply.documents) for reply in orders])
    best = [next(iter(reply.result or reply.documents)) for reply in orders]
    first = np.array([r.documents.index(doc) for r, doc in zip(orders, best, strict=True)])
    worst, told = _FAVOURED, None
    for place in (-1, *range(int(size.max()) - 1)):
        there = (size > 1) & (size > place + 1)
        if not there.any():
            continue
        won = first[there] == (size[there] - 1 if place < 0 else place)
        chance = 1 / size[there]
        z = (won - chance).sum() / math.sqrt((chance * (1 - chance)).sum())
        if z > worst:
            name = {-1: "last", 0: "first"}.get(place, f"in place {place + 1}")
            share = f"{won.mean():.0%}; by chance {chance.mean():.0%}"
            worst, told = z, f"puts first what it is shown {name} ({share})"
    return told


def _repeats(
    store: Store, orders: list[Reply], sharp: float
) -> tuple[int, float | None, float | None, bool, bool]:
    """Pairs compared more than once; z of how often their comparisons agree; the share of them that
    do, where they are about as many as guesses would make; whether they go in circles; whether they
    surely agree more often than guesses."""
    if not orders:
        return 0, None, None, False, False
    asked: dict[str, list[Reply]] = {}
    for reply in orders:
        asked.setdefault(reply.query, []).append(reply)
    draws = max(_DRAWN, _DRAWN_IN_ALL // len(asked))
    generator = np.random.default_rng(len(orders))
    again, surplus, variance, agreeing, compared = 0, 0.0, 0.0, 0, 0
    pools: list[tuple[int, list[list[int]]]] = []
    for query, docs, posterior in read_posteriors(store):
        place = {doc: at for at, doc in enumerate(docs)}
        given = [
            [place[doc] for doc in reply.result or () if doc in place]
            for reply in asked.get(query, ())
        ]
        pools.append((len(docs), given))
        found = repeated(given, posterior, sharp, draws, generator)
        again += found[0]
        surplus += found[1]
        variance += found[2]
        agreeing += found[3]
        compared += found[4]
    if again < _FEWEST or variance <= 0:
        return again, None, None, False, False
    z = surplus / math.sqrt(variance)
    share = agreeing / compared
    # Those asked about are close: an honest judge (β = 3) agrees on two thirds. Comparisons of one
    # batch go together, and their share varies half as much again as if each were by itself.
    error = 1.5 * 0.5 / math.sqrt(compared)
    guesses = share if share + _SURE * error < _GUESSED else None
    return again, z, guesses, z > _SURE and _circles(pools), share - _LIKELY * error > 0.5


def _circles(pools: Sequence[tuple[int, list[list[int]]]]) -> bool:
    """Whether more than a tenth of the pairs compared more than once go, most of the time, against
    the order that fits all replies best: no order then has them all."""
    twice = against = 0
    for n, given in pools:
        wins = np.zeros((n, n))
        for order in given:
            for at, better in enumerate(order):
                wins[better, order[at + 1 :]] += 1
        mean = fit(given, np.zeros(n), 1.0).mean
        pairs = np.triu(wins + wins.T > 1, 1)
        twice += int(pairs.sum())
        against += int((pairs & ((wins - wins.T) * (mean[:, None] - mean) < 0)).sum())
    return against > _AGAINST * twice


def repeated(
    orders: Sequence[Sequence[int]],
    posterior: Posterior,
    sharp: float,
    draws: int,
    generator: np.random.Generator,
) -> tuple[int, float, float, int, int]:
    """Pairs of one pool that were compared M ≥ 2 times; by how much Σ C(w,2) + C(M−w,2) of their w
    wins passes its mean under the posterior; its variance there; itself, and Σ C(M,2).

    The same batches are put to `draws` judges who follow the posterior: pairs of one batch, and all
    pairs of one passage, go together, and their sum varies more than if each were by itself.
    """
    n = len(posterior.mean)
    drawn = posterior.sample(generator, draws)
    by_size: dict[int, list[Sequence[int]]] = {}
    for order in orders:
        if len(order) > 1:
            by_size.setdefault(len(order), []).append(order)
    pairs, first = [], []  # which two; whether the lower number won, as given and as drawn
    for m, some in by_size.items():
        items = np.array(some, np.int64).reshape(-1, m)
        above, below = np.triu_indices(m, 1)
        a, b = items[:, above], items[:, below]
        seen = drawn[:, items] + generator.gumbel(size=(draws, *items.shape)) / sharp
        won = np.concatenate([np.ones((1, *a.shape), bool), seen[..., above] > seen[..., below]])
        pairs.append((np.minimum(a, b) * n + np.maximum(a, b)).ravel())
        first.append((won == (a < b)).reshape(1 + draws, -1))
    if not pairs:
        return 0, 0.0, 0.0, 0, 0
    _, which, times = np.unique(np.concatenate(pairs), return_inverse=True, return_counts=True)
    cell = which + len(times) * np.arange(1 + draws)[:, None]
    won = np.concatenate(first, axis=1).ravel()
    w = np.bincount(cell.ravel(), won, len(times) * (1 + draws)).reshape(1 + draws, -1)
    agreeing = np.sum(w * (w - 1) + (times - w) * (times - w - 1), axis=1) / 2
    expected = agreeing[1:]
    return (
        int((times > 1).sum()),
        float(agreeing[0] - expected.mean()),
        float(expected.var(ddof=1)),
        int(agreeing[0]),
        int((times * (times - 1)).sum()) // 2,
    )


def _words(
    position: float | None,
    copied: float | None,
    chance: float | None,
    favoured: str | None,
    repeats: float | None,
    guesses: float | None,
    circles: bool,
    better: bool,
    surprise: float | None,
    constant: float | None,
    grades: dict[str, int],
) -> tuple[str, ...]:
    words = []
    if position is not None and position > _SURE:
        share = (
            "" if copied is None or chance is None else f" ({copied:.0%}; by chance {chance:.0%})"
        )
        words.append(f"copies the order it is shown{share}")
    elif position is not None and position < -_SURE:
        words.append("turns the order it is shown around")
    if favoured is not None and not ("shown first" in favoured and words):
        words.append(favoured)
    if guesses is not None:
        told = f"asked again, it agrees with itself {guesses:.0%} of the time; by chance 50%"
        words.append(f"contradicts itself ({told})")
    elif circles:
        words.append("contradicts itself (it prefers in circles)")
    elif repeats is not None and repeats < -_SURE:
        words.append("contradicts itself (asked again, it says another thing)")
    if surprise is not None:
        words.append(f"is harder to predict than the posterior assumes ({surprise:.2f} times)")
    if constant is not None and constant > 0.5:
        words.append(f"gives all passages of a request one grade ({constant:.0%} of requests)")
    total = sum(grades.values())
    unused = [grade for grade, count in grades.items() if count == 0]
    if total >= 50 and unused:
        words.append(f"gave no {' and no '.join(unused)} in {total:,} grades")
    if not words and position is not None and not better:
        words.append("not told apart from one that guesses: too few pairs were compared again")
    elif not words and position is not None:
        steady = repeats is not None and repeats > _SURE
        how = "more consistent than" if steady else "as consistent as"
        words.append(f"{how} the posterior assumes")
    return tuple(words)
