"""Which queries a mean is over, which it is not over, and why.

A mean over 8 queries does not answer the question that was asked about 100. So every evaluation
knows, for each of its measures, what became of every judged query. Judged queries are `averaged`,
or they have no value there (`undefined`), or the policy does not count the value they have
(`excluded`), or the run lacks them and the policy skips missing queries. `missing` queries are
averaged, as 0, unless the policy skips them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from rankproof.foundation.phrasing import plural

EXAMPLES = 10  # ids of each set in JSON
STATUSES = ("averaged", "missing", "undefined", "excluded")  # of a judged query
_NAMED_RUNS = 5  # in a note


def no_queries() -> pl.Series:
    """Return an empty column of query ids."""
    return pl.Series("query", [], pl.String)


@dataclass(frozen=True, slots=True, eq=False)
class QuerySet:
    """The queries of one run on one measure, by what became of them.

    >>> evaluation = rp.evaluate({"q1": {"a": 1}, "q2": {"b": 1}}, {"q1": {"a": 0.9}}, "RR")
    >>> queries = evaluation.query_set("RR")
    >>> queries.averaged.to_list(), queries.missing.to_list()
    (['q1', 'q2'], ['q2'])
    """

    averaged: pl.Series  # ids of the queries that the mean is over
    missing: pl.Series  # judged, but not in the run
    undefined: pl.Series  # the measure has no value
    excluded: pl.Series  # the measure has a value, which the policy does not count
    unjudged: pl.Series  # in the run, without judgments
    tied: pl.Series  # averaged, with a tie among the listed documents
    exclusion: str = ""  # why the excluded queries are
    missing_count_zero: bool = True  # else they are skipped

    def counts(self) -> dict[str, int]:
        """Return the number of queries in each set, by its name."""
        return {name: len(getattr(self, name)) for name in SETS}

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, and up to ten ids of each set, as JSON has them."""
        data: dict[str, Any] = {
            name: {
                "count": len(getattr(self, name)),
                "queries": getattr(self, name).head(EXAMPLES).to_list(),
            }
            for name in SETS
        }
        if len(self.excluded):
            data["excluded"]["reason"] = self.exclusion
        return data

    def notes(self) -> list[str]:
        """Return a clause for each set that is not empty and changes how the mean is read."""
        clauses = []
        if len(self.missing):
            effect = "count 0" if self.missing_count_zero else "are skipped"
            judged = plural(len(self.missing), "judged query is", "judged queries are")
            clauses.append(f"{judged} missing from the run; missing queries {effect}")
        if len(self.undefined):
            clauses.append(
                f"{plural(len(self.undefined), 'query has', 'queries have')} no value and "
                f"{'is' if len(self.undefined) == 1 else 'are'} skipped"
            )
        if len(self.excluded):
            clauses.append(f"{plural(len(self.excluded), 'query')} skipped: {self.exclusion}")
        if len(self.unjudged):
            own = plural(len(self.unjudged), "query of the run has", "queries of the run have")
            clauses.append(f"{own} no judgments")
        return clauses


SETS = ("averaged", "missing", "undefined", "excluded", "unjudged", "tied")


def query_set_notes(sets: Mapping[str, Mapping[str, QuerySet]]) -> list[str]:
    """Return one sentence for each fact about query sets, naming the runs and measures it holds of.

    `sets` has the query sets by run and measure.
    """
    several_runs = len(sets) > 1
    places: dict[str, list[str]] = {}
    for run, by_measure in sets.items():
        clauses: dict[str, list[str]] = {}
        for measure, queries in by_measure.items():
            for clause in queries.notes():
                clauses.setdefault(clause, []).append(measure)
        for clause, measures in clauses.items():
            scope = [run] if several_runs else []
            if len(measures) < len(by_measure):
                scope.append(", ".join(measures))
            places.setdefault(clause, []).append(" ".join(scope))
    return [_scoped(clause, scopes, len(sets)) for clause, scopes in places.items()]


def _scoped(clause: str, scopes: list[str], runs: int) -> str:
    """Return a clause as a sentence, with the runs and measures it holds of."""
    if not any(scopes):
        return _sentence(clause)
    if len(scopes) == runs > 1:
        return f"In every run: {clause}."
    named = ", ".join(scopes[:_NAMED_RUNS])
    others = len(scopes) - _NAMED_RUNS
    return f"{named}{f' and {others} others' if others > 0 else ''}: {clause}."


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}."
