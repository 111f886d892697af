"""Where a person labels: each change is a row of its own, and each undo another.

The store is locked only for the moment of a change, so that a build can write between two of them;
a build that is writing refuses the change. A change names the row of its author that it follows:
nothing is overwritten unseen, neither from two tabs nor by two people who settle the same passage.
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

_WRITING = threading.Lock()  # people at one server wait for each other instead of being refused


@dataclass(frozen=True, slots=True)
class Seat:
    """Who looks, and what they may see: the judge and themselves, unless they settle or are blind.

    Who labels never sees other people's labels; who settles sees all of them.
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
        """Whose corrections the order shown rests on; None: everybody's."""
        return None if self.settles else self.who


@dataclass(slots=True)
class Desk:
    """One person at one golden set."""

    path: Path
    seat: Seat
    _made: list[int] = field(default_factory=list)  # ids of this sitting that are not undone

    def label(
        self,
        query: str,
        doc: str,
        grade: int | None,
        sure: bool | None = None,
        note: str | None = None,
        seen: int | None = None,
    ) -> Correction:
        """Store a grade, a note, or doubt; None leaves a value as it was."""
        with _WRITING, Store(self.path, write=True) as store:
            before = self._last_label(store, query, doc)
            if before is not None:
                grade = before.new if grade is None else grade
                note = before.note if note is None else note
                sure = before.sure if sure is None else sure
            correction_id = store.add_correction(
                query,
                doc,
                "grade",
                grade,
                who=self.seat.who,
                note=note or None,
                sure=True if sure is None else sure,
                settles=self.seat.settles,
                seen=seen,
            )
            return self._remember(store, correction_id)

    def _last_label(self, store: Store, query: str, doc: str) -> Correction | None:
        active = store.active_corrections(query)
        if self.seat.settles:
            return settled_labels(active).get((query, doc))
        return labels_by_person(active).get((query, doc), {}).get(self.seat.who)

    def move(self, query: str, doc: str, rank: int, seen: int | None = None) -> Correction:
        """Put a passage at a rank: below all that are above it there, above all below."""
        with _WRITING, Store(self.path, write=True) as store:
            order = self._order(store, query, doc)
            if not 1 <= rank <= len(order):
                raise InputError(f"rank {rank}", remedy=f"give a rank from 1 to {len(order)}")
            old = order.index(doc) + 1
            order.remove(doc)
            above, below = order[rank - 1 :], order[: rank - 1]
            correction_id = store.add_correction(
                query,
                doc,
                "rank",
                rank,
                who=self.seat.who,
                settles=self.seat.settles,
                above=above,
                below=below,
                old=old,
                seen=seen,
            )
            return self._remember(store, correction_id)

    def prefer(self, query: str, doc: str, over: str, seen: int | None = None) -> Correction:
        """Say that a passage is better than another, and nothing about any third."""
        with _WRITING, Store(self.path, write=True) as store:
            order = self._order(store, query, doc, over)
            old = order.index(doc) + 1
            correction_id = store.add_correction(
                query,
                doc,
                "rank",
                min(old, order.index(over) + 1),
                who=self.seat.who,
                settles=self.seat.settles,
                above=[over],
                old=old,
                seen=seen,
            )
            return self._remember(store, correction_id)

    def undo(self, correction_id: int | None = None) -> Correction:
        """Take back a correction of one's own; None: the last one of this sitting."""
        with _WRITING:
            if correction_id is None and not self._made:
                raise InputError(
                    "nothing to undo",
                    remedy="open your last twenty (l) to undo what you did before",
                )
            undone = self._made[-1] if correction_id is None else correction_id
            with Store(self.path, write=True) as store:
                undo_id = store.undo(undone, who=self.seat.who)
                self._made = [made for made in self._made if made != undone]
                return _read_correction(store, undo_id)

    def _order(self, store: Store, query: str, *docs: str) -> list[str]:
        """The order as this person sees it; it must contain each of `docs` once."""
        queries = read_queries(store, query, self.seat.alone)
        order = [passage.doc for found in queries for passage in found.ranked]
        for doc in docs:
            if doc not in order:
                raise InputError(f"passage {doc!r} is not in the order", remedy="grade it")
        if len(set(docs)) < len(docs):
            raise InputError("a passage and itself", remedy="name two")
        return order

    def _remember(self, store: Store, correction_id: int) -> Correction:
        self._made.append(correction_id)
        return _read_correction(store, correction_id)


def _read_correction(store: Store, correction_id: int) -> Correction:
    ((query,),) = store.rows("SELECT query FROM corrections WHERE id = ?", (correction_id,))
    return next(c for c in store.corrections(query) if c.id == correction_id)
