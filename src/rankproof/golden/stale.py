"""Grades and orders that no longer count in a golden set, and why.

Nothing is deleted: what judges said of other texts, under another prompt or as other judges stays
on record, and so does what people said of texts that were edited since.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rankproof.golden.store import Store, sql_list


@dataclass(frozen=True, slots=True)
class Stale:
    """A grade or an order that does not count: whose it is, and why."""

    query: str
    doc: str | None  # of a grade
    grade: int | None
    who: str
    reason: str
    order: tuple[str, ...] | None = None  # documents, best first


def find_stale(store: Store) -> list[Stale]:
    """Every grade and order that does not count, of judges and people."""
    stale = [*_stale_grades(store), *_stale_orders(store)]
    for correction in store.outdated_corrections():
        reason = "the text that a person saw was edited"
        query, doc = correction.query, correction.doc
        stale.append(
            Stale(query=query, doc=doc, grade=correction.new, who=correction.who, reason=reason)
        )
    return stale


def _stale_grades(store: Store) -> Iterator[Stale]:
    """Grades of another prompt or judge, and those of passages that are gone or were edited."""
    current = store.current_judges("grade")
    judges = store.judge_identities()
    queries = {query for (query,) in store.rows("SELECT query FROM queries")}
    for query, doc, grade, judge_id, old_pair, new_pair in store.rows(
        "SELECT answers.query, answers.doc, grade, judge, answers.pair, p.pair FROM answers "
        "LEFT JOIN pairs AS p ON p.query = answers.query AND p.doc = answers.doc "
        f"WHERE grade NOT NULL AND NOT (judge IN {sql_list(current)} "
        "AND answers.pair IN (SELECT pair FROM pairs))"
    ):
        judge = judges.get(judge_id, {})
        if judge_id not in current:
            reason = _difference(store, judge)
        elif query not in queries:
            reason = "its query is gone"
        elif new_pair is None:
            reason = "not in the pool any more"
        else:
            half = len(old_pair) // 2  # the first half is the question's digest
            is_same_question = old_pair[:half] == new_pair[:half]
            reason = "its passage was edited" if is_same_question else "its query was edited"
        name = str(judge.get("name"))
        yield Stale(query=query, doc=doc, grade=grade, who=name, reason=reason)


def _stale_orders(store: Store) -> Iterator[Stale]:
    """Orders of another prompt or judge, and those with fewer than two of today's texts."""
    current = store.current_judges("order")
    judges = store.judge_identities()
    pooled = {pair for (pair,) in store.rows("SELECT pair FROM pairs")}
    for query, judge_id, result, pairs in store.rows(
        "SELECT query, judge, result, pairs FROM replies "
        "WHERE kind = 'order' AND retired = 0 AND result NOT NULL ORDER BY id"
    ):
        judge = judges.get(judge_id, {})
        if judge_id not in current:
            reason = f"an order, {_difference(store, judge)}"
        elif sum(pair in pooled for pair in json.loads(pairs)) < 2:
            reason = "an order of texts that were edited or are gone"
        else:
            continue
        yield Stale(
            query=query,
            doc=None,
            grade=None,
            who=str(judge.get("name")),
            reason=reason,
            order=tuple(json.loads(result)),
        )


def _difference(store: Store, judge: dict[str, Any]) -> str:
    """How a judge differs from the current ones."""
    same_model = [
        member.get("parameters")
        for member in store.panel_members()
        if member.get("model") == judge.get("model")
    ]
    if judge.get("parameters") in same_model:
        return "another prompt"
    return "other settings of the judge" if same_model else "another judge"
