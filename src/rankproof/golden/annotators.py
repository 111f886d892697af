"""Annotators' labels of a golden set, and the grades and orders that follow from them.

A person's label of a passage is their latest statement about it: a grade or none, whether they are
sure, a note. Several people may label one passage, and nobody's label replaces another's. The grade
that counts is

    the one that was settled (by whoever resolves disagreements), else
    the median of those who are sure, else of those who are not; between two middle grades
    the one closer to the judge's, and the lower if both are as close.

To measure the judge against people, their grade must not depend on the judge: there one of the two
middle grades is drawn by a hash of the passage. Otherwise a judge that guesses would agree with two
people who guess at a quadratic κ of .49.

People say two things about the order. A move puts a passage above some and below others; a grade
puts it below every passage of a higher grade and above every one of a lower. Where statements
contradict each other, settled ones outweigh others, then newer outweigh older; a grade by a person
against one by the judge weighs less than what people said of both passages.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median_high, median_low
from typing import Any, ClassVar

from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest
from rankproof.foundation.phrasing import plural
from rankproof.golden.judgments import Correction
from rankproof.golden.store import Store
from rankproof.presentation.display import Displayed
from rankproof.presentation.tables import Column, Table
from rankproof.statistics.agreement import Agreement, Coefficient, agreement, krippendorff_alpha

Key = tuple[str, str]  # query, document

PAIR_COEFFICIENTS = ("exact", "κ, quadratic", "AC2, quadratic", "α, ordinal")
JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class PeopleGrade:
    """The grade that all annotators of a passage gave it together."""

    grade: int
    settled: bool
    id: int  # of the newest correction that it rests on


def labels_by_person(corrections: Iterable[Correction]) -> dict[Key, dict[str, Correction]]:
    """Each person's label of each passage, from active corrections, oldest first."""
    labels: dict[Key, dict[str, Correction]] = {}
    for correction in corrections:
        if correction.field == "grade" and not correction.settles:
            key = (correction.query, correction.doc)
            labels.setdefault(key, {})[correction.who] = correction
    return labels


def settled_labels(corrections: Iterable[Correction]) -> dict[Key, Correction]:
    """The last correction that settles the grade of each passage."""
    return {(c.query, c.doc): c for c in corrections if c.field == "grade" and c.settles and c.new}


def people_grades(
    corrections: Sequence[Correction], judge_grades: Mapping[Key, int | None] | None = None
) -> dict[Key, PeopleGrade]:
    """The grade that people gave each passage together.

    The judge's grades decide between two middle grades; None draws one of them by a hash.
    """
    grades: dict[Key, PeopleGrade] = {}
    for key, labels in labels_by_person(corrections).items():
        graded = [label for label in labels.values() if label.new is not None]
        counted = [label for label in graded if label.sure] or graded
        if counted:
            grade = _median_grade(key, [label.new or 0 for label in counted], judge_grades)
            grades[key] = PeopleGrade(grade, False, max(label.id for label in counted))
    for key, label in settled_labels(corrections).items():
        grades[key] = PeopleGrade(label.new or 0, True, label.id)
    return grades


def _median_grade(
    key: Key, grades: Sequence[int], judge_grades: Mapping[Key, int | None] | None
) -> int:
    low, high = median_low(grades), median_high(grades)
    if judge_grades is None:
        return high if int(digest(key)[-1], 16) % 2 == 1 else low
    judge = judge_grades.get(key)
    return high if judge is not None and abs(high - judge) < abs(low - judge) else low


def order_claims(
    docs: Sequence[str],
    corrections: Iterable[Correction],
    grades: Mapping[str, int | None],
    people: Mapping[str, PeopleGrade],
) -> list[tuple[int, int]]:
    """(above, below) indexes into `docs` that people's statements imply, the weightiest first.

    `docs` are passages of one query, `grades` their final grades, `people` those given by people.
    Moves, and two grades by people, outweigh a person's grade beside a judge's; then what settles a
    disagreement comes first, then what is newer.
    """
    index = {doc: position for position, doc in enumerate(docs)}
    weighted: list[tuple[tuple[bool, bool, int], int, int]] = []
    for move in corrections:
        if move.field == "rank" and move.doc in index:
            item, weight = index[move.doc], (True, move.settles, move.id)
            weighted += [(weight, item, index[doc]) for doc in move.above if doc in index]
            weighted += [(weight, index[doc], item) for doc in move.below if doc in index]
    for doc, label in people.items():
        if doc not in index:
            continue
        for other in docs:
            other_grade = grades[other]
            if other_grade is None or other_grade == label.grade:
                continue
            other_label = people.get(other)
            weight = (False, False, label.id)
            if other_label is not None:
                is_settled = label.settled and other_label.settled
                weight = (True, is_settled, max(label.id, other_label.id))
            above, below = (doc, other) if label.grade > other_grade else (other, doc)
            weighted.append((weight, index[above], index[below]))
    weighted.sort(key=lambda claim: claim[0], reverse=True)
    return [(above, below) for _, above, below in weighted]


# ----------------------------------------------------------------------------------- agreement


def pairwise_agreement(
    corrections: Sequence[Correction], judges: Mapping[str, Mapping[Key, int | None]]
) -> Iterator[tuple[str, str, Agreement]]:
    """Agreement of every two people, then of each person with each judge, where both graded."""
    keys, grades = _grade_columns(corrections)
    queries = [query for query, _ in keys]
    for first, second in combinations(grades, 2):
        yield first, second, agreement(grades[first], grades[second], queries=queries)
    for judge, judge_grades in judges.items():
        column = [_as_float(judge_grades.get(key)) for key in keys]
        for person, person_grades in grades.items():
            yield person, judge, agreement(person_grades, column, queries=queries)


def agreement_items(
    corrections: Sequence[Correction], judges: Mapping[str, Mapping[Key, int | None]]
) -> list[dict[str, Any]]:
    """`pairwise_agreement` for JSON."""
    return [
        {
            "who": first,
            "with": second,
            "figures": {name: pair.coefficients[name].to_dict() for name in PAIR_COEFFICIENTS},
        }
        for first, second, pair in pairwise_agreement(corrections, judges)
    ]


def people_alpha(corrections: Sequence[Correction]) -> Coefficient | None:
    """Krippendorff's α of all people; None for fewer than three of them."""
    keys, grades = _grade_columns(corrections)
    if len(grades) < 3:
        return None
    return krippendorff_alpha(list(grades.values()), queries=[query for query, _ in keys])


def _grade_columns(corrections: Sequence[Correction]) -> tuple[list[Key], dict[str, list[float]]]:
    """Labeled passages, and each person's grades of them by name; NaN where they gave none."""
    labels = labels_by_person(corrections)
    keys = sorted(labels)
    people = sorted({person for by_person in labels.values() for person in by_person})
    grades: dict[str, list[float]] = {person: [] for person in people}
    for key in keys:
        for person in people:
            label = labels[key].get(person)
            grades[person].append(_as_float(None if label is None else label.new))
    return keys, grades


def _as_float(grade: int | None) -> float:
    return math.nan if grade is None else float(grade)


# ---------------------------------------------------------------------------------- assignment


def assign_passages(
    store: Store,
    people: Sequence[str],
    people_per_passage: int,
    shared_passages: int = 0,
    max_queries: int | None = None,
) -> int:
    """Assign passages to people and return how many passages there are to label.

    Each passage goes to `people_per_passage` of them, `shared_passages` to all. Whole queries are
    assigned, drawn by the set's seed, shared passages first; whoever has least gets the next
    passage. Earlier assignments stay, and count.
    """
    names = [name.strip() for name in people]
    _check_assignment(names, people_per_passage)
    generator = random.Random(int((store.meta("config") or {}).get("seed", 0)))
    keys = _draw_queries(store, generator, max_queries)
    assigned_to: dict[Key, list[str]] = {key: [] for key in keys}
    load, position = dict.fromkeys(names, 0), 0
    for name, query, doc, earlier in store.rows("SELECT who, query, doc, position FROM assigned"):
        position = max(position, earlier + 1)
        if name in load:
            load[name] += 1
            assigned_to.setdefault((query, doc), []).append(name)
    open_keys = [key for key in keys if len(assigned_to[key]) < len(names)]
    candidates = list(open_keys)
    generator.shuffle(candidates)  # one order by seed: a larger share contains the smaller one
    already_shared = len(keys) - len(open_keys)
    shared = set(candidates[: max(shared_passages - already_shared, 0)])
    rows = []
    for key in sorted(open_keys, key=lambda key: key not in shared):
        required = len(names) if key in shared else people_per_passage
        free = sorted((n for n in names if n not in assigned_to[key]), key=load.__getitem__)
        chosen = free[: max(0, required - len(assigned_to[key]))]
        for name in chosen:
            load[name] += 1
        rows += [(name, *key, position) for name in chosen]
        position += bool(chosen)
    with store.transaction():
        store.execute_many("INSERT INTO assigned VALUES (?, ?, ?, ?)", rows)
    return len(keys)


def _check_assignment(names: Sequence[str], people_per_passage: int) -> None:
    """Refuse empty or repeated names, and more people per passage than there are."""
    if not all(names) or len(set(names)) < len(names):
        raise InputError(f"people {', '.join(names)}", place="--to", remedy="name each one once")
    if not 1 <= people_per_passage <= len(names):
        raise InputError(
            f"every passage to {people_per_passage} of {len(names)} people",
            place="--each",
            remedy=f"give 1 to {len(names)}",
        )


def _draw_queries(store: Store, generator: random.Random, max_queries: int | None) -> list[Key]:
    """The pooled passages of randomly drawn queries, query by query."""
    pools: dict[str, list[str]] = {}
    for query, doc in store.rows("SELECT query, doc FROM pool ORDER BY query, position"):
        pools.setdefault(query, []).append(doc)
    queries = sorted(pools)
    generator.shuffle(queries)
    return [(query, doc) for query in queries[:max_queries] for doc in pools[query]]


def assigned_passages(store: Store, who: str) -> dict[Key, int]:
    """A person's queue: passages by their position in it."""
    rows = store.rows("SELECT query, doc, position FROM assigned WHERE who = ?", (who,))
    return {(query, doc): position for query, doc, position in rows}


@dataclass(frozen=True, slots=True)
class AnnotatorProgress:
    """How many passages a person labeled."""

    who: str
    assigned: int
    labelled: int  # graded
    unsure: int

    def __str__(self) -> str:
        assigned = f" of {self.assigned:,} given" if self.assigned else ""
        unsure = f" ({self.unsure:,} unsure)" if self.unsure else ""
        return f"{self.who} {self.labelled:,}{assigned}{unsure}"


def annotator_progress(store: Store, corrections: Iterable[Correction]) -> list[AnnotatorProgress]:
    """The progress of everybody who labeled a passage or was assigned one."""
    assigned: dict[str, int] = dict(store.rows("SELECT who, COUNT(*) FROM assigned GROUP BY who"))
    graded: Counter[str] = Counter()
    unsure: Counter[str] = Counter()
    for labels in labels_by_person(corrections).values():
        for who, label in labels.items():
            graded[who] += label.new is not None
            unsure[who] += not label.sure
    return [
        AnnotatorProgress(who, assigned.get(who, 0), graded[who], unsure[who])
        for who in sorted({*assigned, *graded})
    ]


@dataclass(frozen=True)
class Assignment(Displayed):
    """Who is to label how many passages."""

    kind: ClassVar[str] = "assignment"

    passages: int
    named_people: int
    people_per_passage: int
    shared_passages: int
    people: tuple[AnnotatorProgress, ...]  # everybody who was assigned a passage, now or before

    def tables(self) -> list[Table]:
        columns = [Column("who", "text"), *Column.each("given", "labelled")]
        rows = [(person.who, person.assigned, person.labelled) for person in self.people]
        passages = plural(self.passages, "passage")
        people = plural(self.named_people, "person", "people")
        note = f"{passages}, each to {self.people_per_passage} of {people}; "
        return [Table(columns, rows, notes=[note + f"{self.shared_passages} of them to all"])]

    def figures(self) -> dict[str, float]:
        return {"passages": float(self.passages)}

    def to_dict(self) -> dict[str, Any]:
        people = [{"who": p.who, "given": p.assigned, "labelled": p.labelled} for p in self.people]
        return {"passages": self.passages, "people": people}
