"""Where a person corrects: each change is a row of its own, each undo another.

The store is locked for the moment of a change, so that a build can write between two of them, and
one that is at work refuses the change.
"""

from __future__ import annotations

import threading
from pathlib import Path

from rankproof.errors import InputError
from rankproof.golden.store import Correction, Field, Store


class Desk:
    """One person at one golden set."""

    def __init__(self, path: Path, who: str):
        if not who.strip():
            raise InputError("nobody is named", place="--as", remedy="say who corrects")
        self.path = path
        self.who = who.strip()
        self._made: list[int] = []  # in this sitting, and not undone
        self._mutex = threading.Lock()

    def correct(self, query: str, doc: str, field: Field, new: int) -> Correction:
        """Give a passage a grade, or move it to a rank."""
        with self._mutex, Store(self.path, write=True) as store:
            made = store.correct(query, doc, field, new, who=self.who)
            self._made.append(made)
            return store.corrections()[-1]

    def undo(self, correction: int | None = None) -> Correction:
        """Take back a correction, or else the last one of this sitting; the row that does so."""
        with self._mutex:
            if correction is None and not self._made:
                raise InputError(
                    "nothing to undo",
                    remedy="open a passage's history (r) to undo what was done before",
                )
            chosen = self._made[-1] if correction is None else correction
            with Store(self.path, write=True) as store:
                store.undo(chosen, who=self.who)
                self._made = [made for made in self._made if made != chosen]
                return store.corrections()[-1]
