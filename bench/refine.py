"""Ways of asking a judge for an order, in simulation; writes its part of bench/RESULTS.md.

    OMP_NUM_THREADS=1 .venv/bin/python bench/refine.py

The true order is known, so quality and what the posterior says of itself can be measured. The
prior's constants and the judge's noise are estimated from the judgements: nothing of the
generator is told to any method. Needs about seven minutes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import results

from rankproof.foundation.arrays import Array, Float, Int
from rankproof.golden.prior import fit_pools, pool_features
from rankproof.golden.rag_gs_ordering import AS_PUBLISHED, RagGsRefiner
from rankproof.golden.refinement import Pool, Ranking, Refinement, Refiner, RefineSettings

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from simulated_pools import SimulatedJudge, SimulatedPool, simulate_pool

POOLS, DEPTH = 60, 20
SPREAD_SETS, SPREAD_POOLS = 10, 240  # the few locks of a weak pool need many pools
PASSAGE_TOKENS, PROMPT_TOKENS, REPLY_TOKENS = 200, 150, 4
BUDGETS = (8, 12, 16, 32, 48, 64, 80)
UNENDING = 10_000
ALL = 1_000  # passages: more than a pool holds

JUDGES = {
    "β = 1.5": SimulatedJudge(1.5),
    "β = 3": SimulatedJudge(3),
    "β = 10": SimulatedJudge(10),
    "Thurstone, β = 3": SimulatedJudge(3, noise="normal"),
    "position bias, β = 3": SimulatedJudge(3, position=2),
    "noise grows, β = 3": SimulatedJudge(3, growth=0.5),
}


Order = Callable[[Float, Int, np.random.Generator], Array]


@dataclass(frozen=True)
class Habit:
    """A judge that no Plackett–Luce model describes: what it sees of the items shown, higher is
    better."""

    sees: Order

    def order(
        self, utility: Float, shown: Sequence[int], generator: np.random.Generator
    ) -> tuple[int, ...]:
        items = np.asarray(shown, np.int64)
        seen = self.sees(3 * utility[items], np.arange(len(items)), generator)
        return tuple(int(item) for item in items[np.argsort(-seen, kind="stable")])


def lapsing(share: float, instead: Order) -> Order:
    """As Plackett–Luce has it, but for a share of the replies."""

    def sees(utility: Float, place: Int, draw: np.random.Generator) -> Array:
        if draw.random() < share:
            return instead(utility, place, draw)
        return utility + draw.gumbel(size=len(place))

    return sees


def by_pairs(utility: Float, place: Int, draw: np.random.Generator) -> Array:
    """Compares every two by themselves, and counts wins."""
    won = draw.random((len(place), len(place))) < 1 / (1 + np.exp(utility - utility[:, None]))
    upper = np.triu(won, 1)
    wins = (upper + np.tril(~upper.T, -1)).sum(axis=1)
    return np.asarray(wins + 1e-3 * draw.random(len(place)))


def top_first(utility: Float, place: Int, draw: np.random.Generator) -> Array:
    """Takes care with the best two of what it is shown, and little with the rest."""
    seen = utility + draw.gumbel(size=len(place))
    late = np.argsort(-seen)[2:]
    lowest = seen.min() - 100
    seen[late] = lowest + utility[late] + 3 * draw.gumbel(size=len(late))
    return seen


PANELS = ((6.0, 0.5), (6.0, 1.5), (3.0, 3.0))

OTHERS = {
    "normal noise (Thurstone)": Habit(lambda u, p, g: u + g.normal(scale=1.28, size=len(p))),
    "noise with heavy tails (Student, 2)": Habit(lambda u, p, g: u + g.standard_t(2, len(p))),
    "noise that differs from call to call": Habit(
        lambda u, p, g: u + g.lognormal(0, 0.7) * g.gumbel(size=len(p))
    ),
    "likes what is shown first (2 logits)": Habit(
        lambda u, p, g: u + g.gumbel(size=len(p)) - 2 * p / max(1, len(p) - 1)
    ),
    "copies what is shown, 15%": Habit(lapsing(0.15, lambda u, p, g: -1.0 * p)),
    "guesses, 15%": Habit(lapsing(0.15, lambda u, p, g: g.random(len(p)))),
    "careful with the best two alone": Habit(top_first),
    "compares every two by themselves": Habit(by_pairs),
    "sees steps (1 logit), first shown before": Habit(
        lambda u, p, g: np.round(u + g.gumbel(size=len(p))) - 0.01 * p
    ),
}


@dataclass
class Asking:
    """A judge who counts what is asked of it."""

    judge: SimulatedJudge
    pool: SimulatedPool
    generator: np.random.Generator
    calls: int = 0
    tokens: int = 0

    def __call__(self, shown: Sequence[int]) -> tuple[int, ...]:
        self.calls += 1
        self.tokens += PROMPT_TOKENS + len(shown) * (PASSAGE_TOKENS + REPLY_TOKENS)
        return self.judge.order(self.pool.utility, shown, self.generator)


@dataclass
class Row:
    """One method under one judge, pool by pool."""

    ndcg: list[float] = field(default_factory=list)
    overlap: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)

    def put(self, pool: SimulatedPool, order: Sequence[int] | Int, calls: int, tokens: int) -> None:
        self.ndcg.append(pool.ndcg(order, DEPTH))
        self.overlap.append(pool.overlap(order, DEPTH))
        self.calls.append(calls)
        self.tokens.append(tokens)


@dataclass(frozen=True)
class Claim:
    """What a ranking says of itself, beside the truth."""

    stated: float
    true: float
    locked: int
    wrong: int
    covered: float

    @classmethod
    def of(cls, pool: SimulatedPool, ranking: Ranking) -> Claim:
        locks = ranking.locks()
        wrong = locks & (pool.utility[:, None] < pool.utility)
        rank = np.empty(len(pool.utility))
        rank[np.argsort(-pool.utility)] = np.arange(1, len(rank) + 1)
        covered = np.mean((ranking.low <= rank) & (rank <= ranking.high))
        true = pool.overlap(ranking.order, DEPTH)
        return cls(ranking.overlap, true, int(locks.sum()), int(wrong.sum()), float(covered))


def first_order(pool: SimulatedPool) -> Int:
    return np.lexsort((-pool.rrf, -pool.grade))


def one_call(pool: SimulatedPool, ask: Asking) -> Sequence[int]:
    return ask(list(ask.generator.permutation(len(pool.grade))))


def sliding(pool: SimulatedPool, ask: Asking, window: int = 20, step: int = 10) -> Sequence[int]:
    order = [int(item) for item in first_order(pool)]
    start = len(order) - window
    while True:
        at = max(start, 0)
        order[at : at + window] = ask(order[at : at + window])
        if start <= 0:
            return order
        start -= step


def borda(pool: SimulatedPool, ask: Asking, lists: int = 4) -> Int:
    places = [np.argsort(one_call(pool, ask)) for _ in range(lists)]
    return np.argsort(np.sum(places, axis=0), kind="stable")


def plain(pool: SimulatedPool, ask: Asking) -> Int:
    return first_order(pool)


PLAIN: dict[str, Callable[[SimulatedPool, Asking], Sequence[int] | Int]] = {
    "grade + RRF, no judge order": plain,
    "one call ranks all": one_call,
    "sliding window 20/10": sliding,
    "four shuffled full lists, Borda": borda,
}


def generator(*what: int) -> np.random.Generator:
    return np.random.default_rng([7, *what])


def measure(
    at: int, judge: SimulatedJudge, pools: list[SimulatedPool], rows: dict[str, Row]
) -> tuple[list[Claim], list[Claim], float]:
    """Every method under one judge; claims over all budgets, claims at the stop, seed's locks."""
    for number, (name, method) in enumerate(PLAIN.items()):
        row = rows.setdefault(name, Row())
        for index, pool in enumerate(pools):
            ask = Asking(judge, pool, generator(at, number, index))
            row.put(pool, method(pool, ask), ask.calls, ask.tokens)

    locked = wrong = 0
    refitted: list[Refiner] = []
    row = rows.setdefault("seed's rule at its own stop", Row())
    for index, pool in enumerate(pools):
        ask = Asking(judge, pool, generator(at, 10, index))
        seed = RagGsRefiner(
            pool.grade, RefineSettings(depth=DEPTH, budget=UNENDING), index, AS_PUBLISHED
        )
        while asked := seed.next_round():
            seed.add([ask(batch) for batch in asked])
        row.put(pool, seed.order(), ask.calls, ask.tokens)
        locked += int(seed.locked.sum())
        wrong += int((seed.locked & (pool.utility[:, None] < pool.utility)).sum())
        refiner = Refiner(
            pool_features(pool.grade, pool.rrf), RefineSettings(depth=DEPTH), learn=False
        )
        refiner.add_orders(seed.orders)
        refitted.append(refiner)
    for _ in range(10):
        fit_pools(refitted)
    again = rows.setdefault("the same judgements, posterior", Row())
    for pool, refiner, calls, tokens in zip(pools, refitted, row.calls, row.tokens, strict=True):
        again.put(pool, refiner.ranking().order, int(calls), int(tokens))

    claims: list[Claim] = []
    for batch, budgets, side in ((5, BUDGETS, 4), (20, (2, 4), 1), (ALL, (1,), 1)):
        settings = RefineSettings(
            batch=batch, depth=DEPTH, per_round=side, budget=max(budgets), target=1
        )
        asks = [Asking(judge, pool, generator(at, 20 + batch, i)) for i, pool in enumerate(pools)]
        refinement = refine(pools, settings, at)
        while asked_of := refinement.next_round():
            refinement.add([asks[index](shown) for index, shown in asked_of])
            rankings = refinement.rankings()
            if rankings[0].calls not in budgets:
                continue
            row = rows.setdefault(label(rankings[0].calls, batch), Row())
            for pool, ranking, ask in zip(pools, rankings, asks, strict=True):
                row.put(pool, ranking.order, ask.calls, ask.tokens)
                if batch == 5:
                    claims.append(Claim.of(pool, ranking))

    row = rows.setdefault("posterior at its own stop", Row())
    asks = [Asking(judge, pool, generator(at, 30, i)) for i, pool in enumerate(pools)]
    refinement = refine(pools, RefineSettings(depth=DEPTH), at)
    while asked_of := refinement.next_round():
        refinement.add([asks[index](shown) for index, shown in asked_of])
    stopped = []
    for pool, ranking, ask in zip(pools, refinement.rankings(), asks, strict=True):
        row.put(pool, ranking.order, ask.calls, ask.tokens)
        stopped.append(Claim.of(pool, ranking))
    return claims, stopped, wrong / locked


def label(calls: int, batch: int) -> str:
    return "posterior, 1 batch of all" if batch == ALL else f"posterior, {calls} batches of {batch}"


def refine(pools: list[SimulatedPool], settings: RefineSettings, seed: int) -> Refinement:
    return Refinement([Pool(pool.grade, pool.rrf) for pool in pools], settings, seed)


def one_round() -> float:
    """Milliseconds, of a processor, of a round on a pool of 100 with 500 judgements: the median."""
    draw = generator(1000)
    pool = simulate_pool(draw, items=(100, 100))
    judge = SimulatedJudge(3)
    settings = RefineSettings(depth=DEPTH, budget=UNENDING, target=1)
    refiner = Refiner(pool_features(pool.grade, pool.rrf), settings)
    taken = []
    while refiner.calls < 580:
        begin = time.process_time()
        asked = refiner.next_round()
        chosen = time.process_time()
        orders = [judge.order(pool.utility, batch, draw) for batch in asked]
        judged = time.process_time()
        refiner.add(orders)
        refiner.ranking()
        taken.append(chosen - begin + time.process_time() - judged)
    return 1000 * float(np.median(taken[-20:]))


def a_query(pools: list[SimulatedPool]) -> float:
    """Milliseconds of a processor that the order of a query takes at 20 calls, in a set of many."""
    draw, judge = generator(1001), SimulatedJudge(3)
    taken = 0.0
    begin = time.process_time()
    refinement = refine(pools, RefineSettings(depth=DEPTH, budget=20, target=1), 0)
    while asked := refinement.next_round():
        taken += time.process_time() - begin
        orders = [judge.order(pools[i].utility, batch, draw) for i, batch in asked]
        begin = time.process_time()
        refinement.add(orders)
    refinement.rankings()
    return 1000 * (taken + time.process_time() - begin) / len(pools)


def main() -> None:
    pools = [simulate_pool(generator(2000, index)) for index in range(POOLS)]
    tables: dict[str, dict[str, Row]] = {}
    claims: dict[str, list[Claim]] = {}
    stops: dict[str, list[Claim]] = {}
    seed_wrong: dict[str, float] = {}
    for at, (name, judge) in enumerate(JUDGES.items()):
        tables[name] = {}
        claims[name], stops[name], seed_wrong[name] = measure(at, judge, pools, tables[name])

    passages = np.mean([len(pool.grade) for pool in pools])
    lines = [
        f"{POOLS} pools of {passages:.0f} passages on average. Quality is against the true order; "
        f"gains of nDCG are {DEPTH} for the truly best, one less for each rank. A call is "
        f"{PROMPT_TOKENS} tokens, and {PASSAGE_TOKENS} + {REPLY_TOKENS} for each passage. β is "
        "the judge's inverse temperature; Thurstone's noise is normal; position bias is 2 logits "
        "from the first shown to the last; growing noise is √(items/5) times as large. Made by "
        "`bench/refine.py`.",
        "",
        f"nDCG@{DEPTH} / overlap@{DEPTH}:",
        "",
        "| | calls | tokens | " + " | ".join(JUDGES) + " |",
        "|:--|--:|--:|" + "--:|" * len(JUDGES),
    ]
    for name in tables["β = 3"]:
        rows = [tables[judge][name] for judge in JUDGES]
        calls = sorted(float(np.mean(row.calls)) for row in rows)
        tokens = sorted(float(np.mean(row.tokens)) / 1000 for row in rows)
        cells = [f"{np.mean(row.ndcg):.3f} / {np.mean(row.overlap):.3f}" for row in rows]
        lines.append(f"| {name} | {span(calls, 0)} | {span(tokens, 1)}k | {' | '.join(cells)} |")
    lines += [
        "",
        "Calls of the two methods that stop by themselves, and what the seed's locks are worth:",
        "",
        "| | " + " | ".join(JUDGES) + " |",
        "|:--|" + "--:|" * len(JUDGES),
    ]
    for name in ("seed's rule at its own stop", "posterior at its own stop"):
        cells = [f"{np.mean(tables[judge][name].calls):.0f}" for judge in JUDGES]
        lines.append(f"| calls, {name} | {' | '.join(cells)} |")
    lines.append(
        "| seed's locks that are wrong | "
        + " | ".join(f"{100 * seed_wrong[judge]:.1f}%" for judge in JUDGES)
        + " |"
    )
    lines += ["", "What the posterior says of itself, beside the truth:", ""]
    lines += calibration(claims, stops)
    lines += ["", "Judges who hardly know, 64 batches of 5:", "", *weak_judges(pools)]
    lines += ["", "Judges that are not Plackett–Luce, 40 batches of 5:", "", *other_judges(pools)]
    lines += ["", "Two judges who take turns:", "", *panels(pools)]
    many = (
        f"Pools that differ in spread, half of {SPREAD_POOLS} each, 30 calls, {SPREAD_SETS} sets "
        "(± a standard error):"
    )
    lines += ["", many, "", *mixed_spreads()]
    said_all = "Utilities that are the grade and little more: what is learned, and what is true:"
    lines += ["", said_all, "", *told_by_grades()]
    lines += [
        "",
        f"A round on a pool of 100 with 500 judgements: {one_round():.0f} ms of a processor. "
        f"A query of {POOLS} with 20 calls, from first batch to last: {a_query(pools):.0f} ms.",
    ]
    results.record("Refining an order, in simulation", lines)


def weak_judges(pools: list[SimulatedPool]) -> list[str]:
    """Where the replies are mostly noise: is the order still no worse than the grades'?"""
    lines = ["| β | grade + RRF | posterior | overlap, stated → true |", "|--:|--:|--:|--:|"]
    before = np.mean([pool.ndcg(first_order(pool), DEPTH) for pool in pools])
    for at, beta in enumerate((0.1, 0.3, 0.6)):
        draw = generator(3000, at)
        refinement = refine(pools, RefineSettings(depth=DEPTH, budget=64, target=1), at)
        while asked := refinement.next_round():
            judge = SimulatedJudge(beta)
            refinement.add([judge.order(pools[i].utility, batch, draw) for i, batch in asked])
        found = list(zip(pools, refinement.rankings(), strict=True))
        after = np.mean([pool.ndcg(ranking.order, DEPTH) for pool, ranking in found])
        claims = [Claim.of(pool, ranking) for pool, ranking in found]
        lines.append(f"| {beta} | {before:.3f} | {after:.3f} | {said(claims)} |")
    return lines


def other_judges(pools: list[SimulatedPool]) -> list[str]:
    """What the posterior says of itself where the judge does not follow its model."""
    lines = [
        "| judge | grade + RRF | posterior | overlap, stated → true | locks wrong | ranks in their "
        "interval |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    before = np.mean([pool.ndcg(first_order(pool), DEPTH) for pool in pools])
    for at, (name, judge) in enumerate(OTHERS.items()):
        draw = generator(5000, at)
        refinement = refine(pools, RefineSettings(depth=DEPTH, budget=40, target=1), at)
        while asked := refinement.next_round():
            refinement.add([judge.order(pools[i].utility, batch, draw) for i, batch in asked])
        found = list(zip(pools, refinement.rankings(), strict=True))
        after = np.mean([pool.ndcg(ranking.order, DEPTH) for pool, ranking in found])
        claims = [Claim.of(pool, ranking) for pool, ranking in found]
        wrong = sum(c.wrong for c in claims) / max(1, sum(c.locked for c in claims))
        covered = np.mean([c.covered for c in claims])
        cells = f"{said(claims)} | {100 * wrong:.1f}% | {covered:.3f}"
        lines.append(f"| {name} | {before:.3f} | {after:.3f} | {cells} |")
    return lines


def panels(pools: list[SimulatedPool]) -> list[str]:
    """Two judges who take turns, joined by their sharpness or taken for one."""
    lines = [
        "| judges | | calls | nDCG | overlap, stated → true | sharpness learned (true) |",
        "|:--|:--|--:|--:|--:|--:|",
    ]
    for at, betas in enumerate(PANELS):
        mean = float(np.sqrt(np.prod(betas)))
        ways = (("joined", betas, 2, 24), ("taken for one", betas, 1, 24))
        for name, who, count, calls in (*ways, ("the first alone", betas[:1], 1, 12)):
            draw, turn = generator(6000, at, count), 0
            refinement = Refinement(
                [Pool(pool.grade, pool.rrf) for pool in pools],
                RefineSettings(depth=DEPTH, budget=calls, target=1),
                judges=count,
            )
            while asked := refinement.next_round():
                turns = [(turn + n) % len(who) for n in range(len(asked))]
                whose = refinement.judges_of_round() if count > 1 else turns
                turn += len(asked)
                refinement.add(
                    [
                        SimulatedJudge(who[judge]).order(pools[i].utility, batch, draw)
                        for judge, (i, batch) in zip(whose, asked, strict=True)
                    ]
                )
            found = list(zip(pools, refinement.rankings(), strict=True))
            ndcg = np.mean([pool.ndcg(ranking.order, DEPTH) for pool, ranking in found])
            learned = "–"
            if count > 1:
                learned = " and ".join(
                    f"{found:.2f} ({beta / mean:.2f})"
                    for found, beta in zip(refinement.sharpness, betas, strict=True)
                )
            claims = [Claim.of(pool, ranking) for pool, ranking in found]
            title = " and ".join(f"β = {beta:g}" for beta in betas)
            cells = f"{calls} | {ndcg:.3f} | {said(claims)} | {learned}"
            lines.append(f"| {title} | {name} | {cells} |")
    return lines


def mixed_spreads() -> list[str]:
    """Utilities that lie far apart in one half of the pools and close in the other."""
    lines = [
        "| | grades | overlap, stated → true | locks wrong | ranks in their interval |",
        "|:--|:--|--:|--:|--:|",
    ]
    spreads = (1.2, 0.15)
    for graded in (True, False):
        found: dict[float, list[Claim]] = {spread: [] for spread in spreads}
        for number in range(SPREAD_SETS):
            pools = [
                simulate_pool(
                    generator(4000 + number, index),
                    spread=spreads[index % 2],
                    grade_noise=0.83 * spreads[index % 2],
                    rrf_noise=2 * spreads[index % 2],
                )
                for index in range(SPREAD_POOLS)
            ]
            draw = generator(4001, graded, number)
            unknown = [np.full(len(pool.grade), np.nan) for pool in pools]
            hints = [pool.grade if graded else unknown[at] for at, pool in enumerate(pools)]
            refinement = Refinement(
                [Pool(hint, pool.rrf) for hint, pool in zip(hints, pools, strict=True)],
                RefineSettings(depth=DEPTH, budget=30, target=1),
            )
            judge = SimulatedJudge(3)
            while asked := refinement.next_round():
                refinement.add([judge.order(pools[i].utility, batch, draw) for i, batch in asked])
            for at, claim in enumerate(map(Claim.of, pools, refinement.rankings())):
                found[spreads[at % 2]].append(claim)
        for spread, claims in found.items():
            locked = sum(c.locked for c in claims)
            wrong = sum(c.wrong for c in claims) / max(1, locked)
            away = np.array([c.wrong - wrong * c.locked for c in claims])  # a pool's go together
            error = float(np.sqrt(away @ away)) / max(1, locked)
            known = "given" if graded else "none"
            cells = f"{said(claims)} | {100 * wrong:.1f}% ± {100 * error:.1f}"
            covered = np.mean([c.covered for c in claims])
            lines.append(f"| spread {spread} | {known} | {cells} | {covered:.3f} |")
    return lines


def told_by_grades() -> list[str]:
    """Utilities that follow the grade but for a part in [0, 1), by judges with ever less noise."""
    lines = [
        "| β | calls | w of a grade (true) | σ (true) | overlap, stated → true |",
        "|--:|--:|--:|--:|--:|",
    ]
    pools = []
    for index in range(8):
        pool, part = simulate_pool(generator(7000, index)), generator(7001, index)
        pools.append(replace(pool, utility=pool.grade + part.random(len(pool.grade))))
    for beta in (1, 3, 10, 100):
        for calls in (20, 40):
            draw, judge = generator(7002, beta, calls), SimulatedJudge(beta)
            refinement = refine(pools, RefineSettings(depth=DEPTH, budget=calls, target=1), 0)
            while asked := refinement.next_round():
                refinement.add([judge.order(pools[i].utility, batch, draw) for i, batch in asked])
            claims = list(map(Claim.of, pools, refinement.rankings()))
            learned, true = refinement.scale, beta / np.sqrt(12)
            cells = f"{learned.grade:.2f} ({beta}) | {learned.spread:.2f} ({true:.2f})"
            lines.append(f"| {beta} | {calls} | {cells} | {said(claims)} |")
    return lines


def span(values: list[float], digits: int) -> str:
    low, high = f"{values[0]:.{digits}f}", f"{values[-1]:.{digits}f}"
    return low if low == high else f"{low}–{high}"


def calibration(claims: dict[str, list[Claim]], stops: dict[str, list[Claim]]) -> list[str]:
    """Stated and true overlap in bins of the stated one; locks and rank intervals."""
    lines = [
        "| | " + " | ".join(JUDGES) + " |",
        "|:--|" + "--:|" * len(JUDGES),
    ]
    edges = (0.0, 0.8, 0.85, 0.9, 0.95, 1.01)
    for low, high in pairwise(edges):
        cells = []
        for judge in JUDGES:
            found = [c for c in claims[judge] if low <= c.stated < high]
            cells.append(said(found) if len(found) >= 20 else "–")
        label = f"below {high}" if low == 0 else f"{low} to {min(high, 1):g}"
        lines.append(f"| overlap stated {label} | {' | '.join(cells)} |")
    lines.append(f"| at its own stop | {' | '.join(said(stops[judge]) for judge in JUDGES)} |")
    wrong = [
        f"{100 * sum(c.wrong for c in claims[j]) / sum(c.locked for c in claims[j]):.1f}%"
        for j in JUDGES
    ]
    covered = [f"{100 * np.mean([c.covered for c in claims[j]]):.0f}%" for j in JUDGES]
    lines.append(f"| locks (P ≥ 0.95) that are wrong | {' | '.join(wrong)} |")
    lines.append(f"| true ranks inside the 95% interval | {' | '.join(covered)} |")
    return lines


def said(claims: list[Claim]) -> str:
    stated, true = np.mean([c.stated for c in claims]), np.mean([c.true for c in claims])
    return f"{stated:.3f} → {true:.3f} ({len(claims)})"


if __name__ == "__main__":
    main()
