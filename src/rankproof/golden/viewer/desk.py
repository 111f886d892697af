"""Store a person's labels, moves and undos; each is a row of its own.

The store is locked only for the moment of a change, so that a build can write between two changes;
while one writes, changes are refused. A change names the author's last row that they saw (`seen`):
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

_WRITING = threading.Lock()  # held during a change, for which other people at this server wait


@dataclass(frozen=True, slots=True)
class Seat:
    """A person, and what they may see.

    Whoever labels sees the judge's grades and their own labels, never those of other people;
    whoever settles disagreements sees everybody's.
    """

    who: str
    settles: bool = False
    blind: bool = False  # sees a judge's grade only after giving one

    def __post_init__(self) -> None:
        if not self.who.strip():
            raise InputError("nobody is named", place="--as", remedy="say who corrects")
        if self.settles and self.blind:
            raise InputError("--settle sees all labels", remedy="leave out --blind")

    @property
    def visible_author(self) -> str | None:
        """The person whose corrections the order on the page rests on; None: everybody."""
        return None if self.settles else self.who


@dataclass(slots=True)
class Desk:
    """Changes of one person to one golden set."""

    path: Path
    seat: Seat
    _correction_ids: list[int] = field(default_factory=list)  # made since the start, not undone

    def label(
        self,
        query: str,
        doc: str,
        grade: int | None,
        *,
        sure: bool | None = None,
        note: str | None = None,
        seen: int | None = None,
    ) -> Correction:
        """Store a grade, whether it is sure, or a note; None keeps the value of the last label."""
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
        """The label that a new one of this person would replace."""
        active = store.active_corrections(query)
        if self.seat.settles:
            return settled_labels(active).get((query, doc))
        return labels_by_person(active).get((query, doc), {}).get(self.seat.who)

    def move(self, query: str, doc: str, rank: int, seen: int | None = None) -> Correction:
        """Put a passage at a rank: below all passages that are then above it, above all others."""
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
        """Take back one's own correction; None: the last one since the server started."""
        with _WRITING:
            if correction_id is None and not self._correction_ids:
                raise InputError(
                    "nothing to undo",
                    remedy="open your last twenty (l) to undo what you did before",
                )
            if correction_id is None:
                correction_id = self._correction_ids[-1]
            with Store(self.path, write=True) as store:
                undo_id = store.undo(correction_id, who=self.seat.who)
                if correction_id in self._correction_ids:
                    self._correction_ids.remove(correction_id)
                return _read_correction(store, undo_id)

    def _order(self, store: Store, query: str, *docs: str) -> list[str]:
        """The order as this person sees it; `docs`, which must differ, must be in it."""
        queries = read_queries(store, query, self.seat.visible_author)
        order = [passage.doc for golden_query in queries for passage in golden_query.ranked]
        for doc in docs:
            if doc not in order:
                raise InputError(f"passage {doc!r} is not in the order", remedy="grade it")
        if len(set(docs)) < len(docs):
            raise InputError("a passage and itself", remedy="name two")
        return order

    def _remember(self, store: Store, correction_id: int) -> Correction:
        """Return a stored correction, and keep its id for `undo`."""
        self._correction_ids.append(correction_id)
        return _read_correction(store, correction_id)


def _read_correction(store: Store, correction_id: int) -> Correction:
    ((query,),) = store.rows("SELECT query FROM corrections WHERE id = ?", (correction_id,))
    return next(c for c in store.corrections(query) if c.id == correction_id)
