"""What people said of a golden set, and what follows from it.

A person's label of a passage is their last word on it: a grade, or none, whether they are sure, a
note. Several people may label one passage, and nobody's label touches another's. What holds is

    what was settled (by whoever looks at disagreements), else
    the median of those who are sure, else of those who are not; between two grades in the middle
    the one nearer to the judge's, and the lower if both are as near.

What people say of the judge may not lean on it: there it is one of the two, by a lot of the
passage's own. Were it the nearer one, a judge that guesses would agree with two people who guess
at a quadratic κ of .49.

Of the order people say two things. A move puts a passage above some and below others; a grade puts
it below every passage of a higher grade and above every one of a lower. Where statements contradict
each other, what was settled outweighs what was not, then the newer the older; that a person graded
one of two passages and the judge the other weighs less than what people said of both.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median_high, median_low

from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest
from rankproof.golden.judgments import Correction
from rankproof.golden.store import Store
from rankproof.statistics.agreement import Agreement, Coefficient, agreement, krippendorff_alpha

Key = tuple[str, str]  # query, document


@dataclass(frozen=True, slots=True)
class Held:
    """The grade of a passage that people gave it together."""

    grade: int
    settled: bool
    id: int  # of the newest row that it rests on


def labels(corrections: Iterable[Correction]) -> dict[Key, dict[str, Correction]]:
    """Of each passage, each person's label; of corrections that hold, oldest first."""
    found: dict[Key, dict[str, Correction]] = {}
    for each in corrections:
        if each.field == "grade" and not each.settles:
            found.setdefault((each.query, each.doc), {})[each.who] = each
    return found


def settled(corrections: Iterable[Correction]) -> dict[Key, Correction]:
    """Of each passage, the last row that settles its grade."""
    return {(c.query, c.doc): c for c in corrections if c.field == "grade" and c.settles and c.new}


def held(
    corrections: Sequence[Correction], judged: Mapping[Key, int | None] | None = None
) -> dict[Key, Held]:
    """The grade of people that holds, of each passage that has one; without the judge's grades
    people's alone."""
    found = {}
    for key, each in labels(corrections).items():
        said = [c for c in each.values() if c.new is not None]
        said = [c for c in said if c.sure] or said
        if said:
            grades = [c.new or 0 for c in said]
            low, high = median_low(grades), median_high(grades)
            if judged is None:
                upper = int(digest(key)[-1], 16) % 2 == 1
            else:
                judge = judged.get(key)
                upper = judge is not None and abs(high - judge) < abs(low - judge)
            found[key] = Held(high if upper else low, False, max(c.id for c in said))
    for key, last in settled(corrections).items():
        found[key] = Held(last.new or 0, True, last.id)
    return found


def claims(
    docs: Sequence[str],
    corrections: Iterable[Correction],
    grades: Mapping[str, int | None],
    people: Mapping[str, Held],
) -> list[tuple[int, int]]:
    """(above, below) of one query's passages, by place in `docs`, the weightiest first.

    `grades` are those that hold; `people` those among them that people gave.
    """
    place = {doc: at for at, doc in enumerate(docs)}
    weighed: list[tuple[tuple[bool, bool, int], int, int]] = []
    for each in corrections:
        if each.field == "rank" and each.doc in place:
            here, weight = place[each.doc], (True, each.settles, each.id)
            weighed += [(weight, here, place[doc]) for doc in each.above if doc in place]
            weighed += [(weight, place[doc], here) for doc in each.below if doc in place]
    for doc, one in people.items():
        if doc not in place:
            continue
        for other, at in place.items():
            grade = grades[other]
            if grade is None or grade == one.grade:
                continue
            them = people.get(other)
            both = them is not None and them.settled and one.settled
            newest = one.id if them is None else max(one.id, them.id)
            pair = (place[doc], at) if one.grade > grade else (at, place[doc])
            weighed.append(((them is not None, both, newest), *pair))
    weighed.sort(key=lambda each: each[0], reverse=True)
    return [(above, below) for _, above, below in weighed]


# ----------------------------------------------------------------------------------- agreement

PAIR_FIGURES = ("exact", "κ, quadratic", "AC2, quadratic", "α, ordinal")
JUDGE = "judge"


def between(
    corrections: Sequence[Correction], judges: Mapping[str, Mapping[Key, int | None]]
) -> Iterator[tuple[str, str, Agreement]]:
    """Every two people, then each person and each judge, over the passages that both graded."""
    names, queries, columns = _columns(corrections)
    of = [query for _, query in queries]
    for one, other in combinations(names, 2):
        yield one, other, agreement(columns[one], columns[other], queries=of)
    for judge, judged in judges.items():
        said = [_number(judged.get(key)) for key, _ in queries]
        for who in names:
            yield who, judge, agreement(columns[who], said, queries=of)


def everyone(corrections: Sequence[Correction]) -> Coefficient | None:
    """Krippendorff's α of all people; None for fewer than three of them."""
    names, queries, columns = _columns(corrections)
    if len(names) < 3:
        return None
    return krippendorff_alpha([columns[who] for who in names], queries=[q for _, q in queries])


def _columns(
    corrections: Sequence[Correction],
) -> tuple[list[str], list[tuple[Key, str]], dict[str, list[float]]]:
    """People, passages with their queries, and everybody's grades of them, NaN where none."""
    said = labels(corrections)
    keys = sorted(said)
    names = sorted({who for each in said.values() for who in each})
    grades = {
        who: [_number(said[key][who].new if who in said[key] else None) for key in keys]
        for who in names
    }
    return names, [(key, key[0]) for key in keys], grades


def _number(grade: int | None) -> float:
    return math.nan if grade is None else float(grade)


# ---------------------------------------------------------------------------------- assignment


def assign(store: Store, who: Sequence[str], each: int, all_of: int, only: int | None) -> int:
    """Deal passages out: every one to `each` people, `all_of` of them to all; how many passages.

    Drawn by the set's seed, the shared ones first, whole queries together; `only` so many queries.
    Who was given a passage before keeps it and is one of the `each`; who has least is given next.
    """
    names = [name.strip() for name in who]
    if not all(names) or len(set(names)) < len(names):
        raise InputError(f"people {', '.join(names)}", place="--to", remedy="name each one once")
    if not 1 <= each <= len(names):
        raise InputError(
            f"every passage to {each} of {len(names)} people",
            place="--each",
            remedy=f"give 1 to {len(names)}",
        )
    pools: dict[str, list[str]] = {}
    for query, doc in store.rows("SELECT query, doc FROM pool ORDER BY query, position"):
        pools.setdefault(query, []).append(doc)
    draw = random.Random(int((store.meta("config") or {}).get("seed", 0)))
    queries = sorted(pools)
    draw.shuffle(queries)
    keys = [(query, doc) for query in queries[:only] for doc in pools[query]]
    have: dict[Key, list[str]] = {key: [] for key in keys}
    load, turn = dict.fromkeys(names, 0), 0
    for name, query, doc, position in store.rows("SELECT who, query, doc, position FROM assigned"):
        turn = max(turn, position + 1)
        if name in load:
            load[name] += 1
            have.setdefault((query, doc), []).append(name)
    open_to = [key for key in keys if len(have[key]) < len(names)]
    more = all_of - (len(keys) - len(open_to))
    candidates = list(open_to)
    draw.shuffle(candidates)  # one order by seed: a larger share holds the smaller one
    shared = set(candidates[: max(more, 0)])
    rows = []
    for key in sorted(open_to, key=lambda key: key not in shared):
        wanted = len(names) if key in shared else each
        left = sorted((name for name in names if name not in have[key]), key=load.__getitem__)
        chosen = left[: max(0, wanted - len(have[key]))]
        for name in chosen:
            load[name] += 1
        rows += [(name, *key, turn) for name in chosen]
        turn += bool(chosen)
    with store.transaction():
        for row in rows:
            store.execute("INSERT INTO assigned VALUES (?, ?, ?, ?)", row)
    return len(keys)


def assigned(store: Store, who: str) -> dict[Key, int]:
    """A person's queue: passages by their place in it."""
    rows = store.rows("SELECT query, doc, position FROM assigned WHERE who = ?", (who,))
    return {(query, doc): position for query, doc, position in rows}


@dataclass(frozen=True, slots=True)
class Labeller:
    """How far a person is."""

    who: str
    assigned: int  # passages that they were given
    labelled: int  # that they graded
    unsure: int

    def __str__(self) -> str:
        given = f" of {self.assigned:,} given" if self.assigned else ""
        return f"{self.who} {self.labelled:,}{given}" + (
            f" ({self.unsure:,} unsure)" if self.unsure else ""
        )


def labellers(store: Store, corrections: Iterable[Correction]) -> list[Labeller]:
    """Each person who labels, or is to; of corrections that hold."""
    given: dict[str, int] = dict(store.rows("SELECT who, COUNT(*) FROM assigned GROUP BY who"))
    graded: Counter[str] = Counter()
    unsure: Counter[str] = Counter()
    for each in labels(corrections).values():
        for who, label in each.items():
            graded[who] += label.new is not None
            unsure[who] += not label.sure
    return [
        Labeller(who, given.get(who, 0), graded[who], unsure[who])
        for who in sorted({*given, *graded})
    ]
