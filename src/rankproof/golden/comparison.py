"""What differs between two golden sets, usually an older and a newer state of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from rankproof.data.tables import SET_SCALE
from rankproof.golden.annotators import Key
from rankproof.golden.build_status import shorten_list
from rankproof.golden.result import Golden
from rankproof.presentation.display import Displayed
from rankproof.presentation.tables import Column, Table

_COMPARED_RANKS = 10


@dataclass(frozen=True, slots=True)
class Regraded:
    """A passage that has another grade."""

    query: str
    doc: str
    before: int | None
    after: int | None


@dataclass(frozen=True)
class Changes(Displayed):
    """The changes from one golden set to another; lists hold ids."""

    kind: ClassVar[str] = "golden diff"

    judges: tuple[str, str]
    queries_added: list[str]
    queries_gone: list[str]
    queries_edited: list[str]
    passages_added: list[Key]  # to a pool
    passages_gone: list[Key]
    passages_edited: list[str]
    regraded: list[Regraded]  # of passages in both
    graded: int  # passages in both with the same grade
    turned: int  # of the regraded: relevant in one set alone
    reordered: list[str]  # queries with another top ten
    systems_added: list[str]
    systems_gone: list[str]
    cost: float | None  # of the newer set beyond that of the older

    def tables(self) -> list[Table]:
        """A row for each kind of change, with its number and the first few ids."""
        moves = [f"{r.query} {r.doc}: {r.before} → {r.after}" for r in self.regraded]
        values: dict[str, int | Sequence[str | Key]] = {
            "queries added": self.queries_added,
            "queries gone": self.queries_gone,
            "queries edited": self.queries_edited,
            "pooled passages added": self.passages_added,
            "pooled passages gone": self.passages_gone,
            "passages edited": self.passages_edited,
            "systems added": self.systems_added,
            "systems gone": self.systems_gone,
            "grades that stayed": self.graded,
            "grades that changed": moves,
            "of them over the line (4)": self.turned,
            "queries with another top 10": self.reordered,
        }
        rows = [
            (label, value, "")
            if isinstance(value, int)
            else (label, len(value), shorten_list(value))
            for label, value in values.items()
        ]
        columns = [Column("what", "text"), Column("count"), Column("which", "text", prose=True)]
        notes = [f"judge: {' → '.join(dict.fromkeys(self.judges))}"]
        if self.cost is not None:
            direction = "less" if self.cost < 0 else "more"
            notes.append(f"${abs(self.cost):.4f} {direction} was spent")
        return [Table(columns, rows, notes=notes)]

    def figures(self) -> dict[str, float]:
        return {"regraded": len(self.regraded), "graded": self.graded, "turned": self.turned}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_changes(old: Golden, new: Golden) -> Changes:
    """Compare an older and a newer golden set."""
    old_passages, new_passages = old.passages(), new.passages()
    regraded = [
        Regraded(*key, old_passages[key].grade, new_passages[key].grade)
        for key in sorted(old_passages.keys() & new_passages.keys())
        if old_passages[key].grade != new_passages[key].grade
    ]
    same_grades = sum(
        old_passages[key].grade == new_passages[key].grade is not None
        for key in old_passages.keys() & new_passages.keys()
    )
    old_queries, new_queries = _query_texts(old), _query_texts(new)
    old_systems, new_systems = _systems(old), _systems(new)
    has_costs = old.cost is not None and new.cost is not None
    return Changes(
        judges=(old.judge["name"], new.judge["name"]),
        queries_added=sorted(new_queries.keys() - old_queries.keys()),
        queries_gone=sorted(old_queries.keys() - new_queries.keys()),
        queries_edited=_changed_keys(old_queries, new_queries),
        passages_added=sorted(new_passages.keys() - old_passages.keys()),
        passages_gone=sorted(old_passages.keys() - new_passages.keys()),
        passages_edited=_changed_keys(_passage_texts(old), _passage_texts(new)),
        regraded=regraded,
        graded=same_grades,
        turned=sum(_is_relevant(r.before) != _is_relevant(r.after) for r in regraded),
        reordered=_changed_keys(_top_documents(old), _top_documents(new)),
        systems_added=sorted(new_systems - old_systems),
        systems_gone=sorted(old_systems - new_systems),
        cost=(new.cost or 0.0) - (old.cost or 0.0) if has_costs else None,
    )


def _changed_keys(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Keys of both that have different values."""
    return sorted(key for key in old.keys() & new.keys() if old[key] != new[key])


def _query_texts(golden: Golden) -> dict[str, str]:
    return {query.query: query.text for query in golden.queries}


def _passage_texts(golden: Golden) -> dict[str, str]:
    return {p.doc: p.text for p in golden.passages().values()}


def _top_documents(golden: Golden) -> dict[str, list[str]]:
    return {q.query: [p.doc for p in q.ranked][:_COMPARED_RANKS] for q in golden.queries}


def _systems(golden: Golden) -> set[str]:
    return {system for p in golden.passages().values() for system in p.systems}


def _is_relevant(grade: int | None) -> bool:
    return grade is not None and grade >= SET_SCALE.relevant
