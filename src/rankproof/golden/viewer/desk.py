"""Where a person labels: each change is a row of its own, each undo another.

The store is locked for the moment of a change, so that a build can write between two of them, and
one that is at work refuses the change. A change says which row of its author it was made upon: from
two tabs, or by two who settle the same passage, nothing is overwritten unseen.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from rankproof.foundation.errors import InputError
from rankproof.golden.annotators import labels_by_person, settled_labels
from rankproof.golden.judgments import Correction
from rankproof.golden.result import read_queries
from rankproof.golden.store import Store

_WRITING = threading.Lock()  # people at one server wait for each other, and are not refused


@dataclass(frozen=True, slots=True)
class Seat:
    """Who looks, and what they may see: the judge and themselves, unless they settle or are blind.

    Who labels never sees what others said; who settles sees all of it.
    """

    who: str
    settles: bool = False
    blind: bool = False  # to the judge, until they have graded

    def __post_init__(self) -> None:
        if not self.who.strip():
            raise InputError("nobody is named", place="--as", remedy="say who corrects")
        if self.settles and self.blind:
            raise InputError("--settle sees all labels", remedy="leave out --blind")

    @property
    def alone(self) -> str | None:
        """Whose statements the order shown rests on; None: everybody's."""
        return None if self.settles else self.who


@dataclass(slots=True)
class Desk:
    """One person at one golden set."""

    path: Path
    seat: Seat
    _made: list[int] = field(default_factory=list)  # in this sitting, and not undone

    def label(
        self,
        query: str,
        doc: str,
        grade: int | None,
        sure: bool | None = None,
        note: str | None = None,
        seen: int | None = None,
    ) -> Correction:
        """Give a passage a grade, a note, or say that one is not sure; None: as one had it."""
        with _WRITING, Store(self.path, write=True) as store:
            active = store.active_corrections(query)
            key = (query, doc)
            before = (
                settled_labels(active).get(key)
                if self.seat.settles
                else labels_by_person(active).get(key, {}).get(self.seat.who)
            )
            if before is not None:
                grade = before.new if grade is None else grade
                note = before.note if note is None else note
                sure = before.sure if sure is None else sure
            return self._keep(
                store,
                store.add_correction(
                    *(query, doc, "grade", grade),
                    who=self.seat.who,
                    note=note or None,
                    sure=True if sure is None else sure,
                    settles=self.seat.settles,
                    seen=seen,
                ),
            )

    def move(self, query: str, doc: str, rank: int, seen: int | None = None) -> Correction:
        """Put a passage at a rank: below all that stand above it there, above all below."""
        with _WRITING, Store(self.path, write=True) as store:
            order = self._order(store, query, doc)
            if not 1 <= rank <= len(order):
                raise InputError(f"rank {rank}", remedy=f"give a rank from 1 to {len(order)}")
            old = order.index(doc) + 1
            order.remove(doc)
            above, below = order[rank - 1 :], order[: rank - 1]
            return self._moved(store, query, doc, above, below, (old, rank), seen)

    def prefer(self, query: str, doc: str, over: str, seen: int | None = None) -> Correction:
        """Say that a passage is better than another, and nothing of the rest."""
        with _WRITING, Store(self.path, write=True) as store:
            order = self._order(store, query, doc, over)
            old = order.index(doc) + 1
            ranks = (old, min(old, order.index(over) + 1))
            return self._moved(store, query, doc, [over], [], ranks, seen)

    def undo(self, correction: int | None = None) -> Correction:
        """Take back a correction of one's own, or else the last one of this sitting."""
        with _WRITING:
            if correction is None and not self._made:
                raise InputError(
                    "nothing to undo",
                    remedy="open your last twenty (l) to undo what you did before",
                )
            chosen = self._made[-1] if correction is None else correction
            with Store(self.path, write=True) as store:
                made = store.undo(chosen, who=self.seat.who)
                self._made = [one for one in self._made if one != chosen]
                return _row(store, made)

    def _order(self, store: Store, query: str, *docs: str) -> list[str]:
        """The passages in order, as this person is shown it."""
        found = read_queries(store, query, self.seat.alone)
        order = [p.doc for each in found for p in each.passages if p.rank is not None]
        for doc in docs:
            if doc not in order:
                raise InputError(f"passage {doc!r} is not in the order", remedy="grade it")
        if len(set(docs)) < len(docs):
            raise InputError("a passage and itself", remedy="name two")
        return order

    def _moved(
        self,
        store: Store,
        query: str,
        doc: str,
        above: list[str],
        below: list[str],
        ranks: tuple[int, int],
        seen: int | None,
    ) -> Correction:
        made = store.add_correction(
            *(query, doc, "rank", ranks[1]),
            who=self.seat.who,
            settles=self.seat.settles,
            above=above,
            below=below,
            old=ranks[0],
            seen=seen,
        )
        return self._keep(store, made)

    def _keep(self, store: Store, made: int) -> Correction:
        self._made.append(made)
        return _row(store, made)


def _row(store: Store, number: int) -> Correction:
    ((query,),) = store.rows("SELECT query FROM corrections WHERE id = ?", (number,))
    return next(c for c in store.corrections(query) if c.id == number)
