"""What differs between two golden sets: an older and a newer state of one, as a rule."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rankproof.golden.result import Golden, GoldenPassage

RELEVANT = 4
Key = tuple[str, str]  # query, document


@dataclass(frozen=True, slots=True)
class Regraded:
    """A passage that has another grade."""

    query: str
    doc: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class Changes:
    """From the one to the other; lists are of ids."""

    judges: tuple[str, str]
    queries_added: list[str]
    queries_gone: list[str]
    queries_edited: list[str]
    passages_added: list[Key]  # to a pool
    passages_gone: list[Key]
    passages_edited: list[str]
    regraded: list[Regraded]  # of those in both
    graded: int  # in both, with the same grade
    turned: int  # of the regraded: relevant (4 or more) in one, and not in the other
    reordered: list[str]  # queries whose best ten are others, or stand otherwise
    systems_added: list[str]
    systems_gone: list[str]
    cost: float | None  # of the newer beyond the older

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def changes(old: Golden, new: Golden) -> Changes:
    """What became of a golden set."""
    before, after = _passages(old), _passages(new)
    asked, asks = ({q.query: q.text for q in golden.queries} for golden in (old, new))
    both = before.keys() & after.keys()
    regraded = [
        Regraded(*key, before[key].grade, after[key].grade)
        for key in sorted(both)
        if before[key].grade != after[key].grade
    ]
    texts, now = ({p.doc: p.text for p in found.values()} for found in (before, after))
    order, orders = (
        {q.query: [p.doc for p in q.passages if p.rank is not None][:10] for q in golden.queries}
        for golden in (old, new)
    )
    systems, others = ({s for p in found.values() for s in p.systems} for found in (before, after))
    spent = None if old.cost is None or new.cost is None else new.cost - old.cost
    return Changes(
        (old.judge["name"], new.judge["name"]),
        sorted(asks.keys() - asked.keys()),
        sorted(asked.keys() - asks.keys()),
        sorted(query for query in asked.keys() & asks.keys() if asked[query] != asks[query]),
        sorted(after.keys() - before.keys()),
        sorted(before.keys() - after.keys()),
        sorted(doc for doc in texts.keys() & now.keys() if texts[doc] != now[doc]),
        regraded,
        sum(before[key].grade == after[key].grade is not None for key in both),
        sum(_relevant(each.before) != _relevant(each.after) for each in regraded),
        sorted(q for q in order.keys() & orders.keys() if order[q] != orders[q]),
        sorted(others - systems),
        sorted(systems - others),
        spent,
    )


def _passages(golden: Golden) -> dict[Key, GoldenPassage]:
    return {(query.query, p.doc): p for query in golden.queries for p in query.passages}


def _relevant(grade: int | None) -> bool:
    return grade is not None and grade >= RELEVANT
