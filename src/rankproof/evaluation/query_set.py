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

import numpy as np
import polars as pl

from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Int
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

    ids: kernels.Ids  # (Q,) evaluated queries
    is_averaged: Bool  # (Q,)
    has_value: Bool  # (Q,) the measure is defined
    is_tied: Bool  # (Q,) some listed documents tie
    missing_ids: kernels.Ids  # judged, but not in the run
    unjudged_ids: kernels.Ids  # in the run, without judgments
    exclusion: str = ""  # why a value is not counted
    missing_count_zero: bool = True  # else they are skipped

    @property
    def averaged(self) -> pl.Series:
        """The queries that the mean is over."""
        return self._column("averaged")

    @property
    def missing(self) -> pl.Series:
        """Judged queries that the run lacks."""
        return self._column("missing")

    @property
    def undefined(self) -> pl.Series:
        """Queries for which the measure has no value."""
        return self._column("undefined")

    @property
    def excluded(self) -> pl.Series:
        """Queries with a value that the policy does not count."""
        return self._column("excluded")

    @property
    def unjudged(self) -> pl.Series:
        """Queries of the run without judgments."""
        return self._column("unjudged")

    @property
    def tied(self) -> pl.Series:
        """Averaged queries with a tie among the listed documents."""
        return self._column("tied")

    def counts(self) -> dict[str, int]:
        """Return the number of queries in each set, by its name."""
        return {name: len(self._rows(name)) for name in SETS}

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, and up to ten ids of each set, as JSON has them."""
        data: dict[str, Any] = {}
        for name in SETS:
            rows = self._rows(name)
            examples = self._owner(name).gather(rows[:EXAMPLES])
            data[name] = {
                "count": len(rows),
                "queries": [examples[at] for at in range(len(examples))],
            }
        if data["excluded"]["count"]:
            data["excluded"]["reason"] = self.exclusion
        return data

    def _owner(self, name: str) -> Any:
        """Return the ids that the rows of a set belong to."""
        return {"missing": self.missing_ids, "unjudged": self.unjudged_ids}.get(name, self.ids)

    def _rows(self, name: str) -> Int:
        """Return the rows of a set among the ids that it belongs to."""
        if name in ("missing", "unjudged"):
            return np.arange(len(self._owner(name)))
        masks = {
            "averaged": self.is_averaged,
            "undefined": ~self.has_value,
            "excluded": self.has_value & ~self.is_averaged,
            "tied": self.is_averaged & self.is_tied,
        }
        return np.flatnonzero(masks[name])

    def _column(self, name: str) -> pl.Series:
        return kernels.as_polars(self._owner(name).gather(self._rows(name)), "query")

    def notes(self) -> list[str]:
        """Return a clause for each set that is not empty and changes how the mean is read."""
        clauses = []
        count = self.counts()
        if count["missing"]:
            effect = "count 0" if self.missing_count_zero else "are skipped"
            judged = plural(count["missing"], "judged query is", "judged queries are")
            clauses.append(f"{judged} missing from the run; missing queries {effect}")
        if count["undefined"]:
            clauses.append(
                f"{plural(len(self.undefined), 'query has', 'queries have')} no value and "
                f"{'is' if count['undefined'] == 1 else 'are'} skipped"
            )
        if count["excluded"]:
            clauses.append(f"{plural(count['excluded'], 'query')} skipped: {self.exclusion}")
        if count["unjudged"]:
            own = plural(count["unjudged"], "query of the run has", "queries of the run have")
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
