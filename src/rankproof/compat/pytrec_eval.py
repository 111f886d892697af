"""pytrec_eval's interface: `import rankproof.compat.pytrec_eval as pytrec_eval`.

evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"map", "ndcg_cut.10"})
results = evaluator.evaluate(run)         # {query: {"map": …, "ndcg_cut_10": …}}, to the last bit
results.expected, results.range           # the same over every order of the ties
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from rankproof.compat.dict_groups import groups_of_dicts, read_lists
from rankproof.compat.trec_eval import (
    NICKNAMES,
    ORDER,
    OutputLine,
    compiled_numbers,
    line_values,
    requested_lines,
)
from rankproof.data import QrelsLike, read_qrels
from rankproof.data.tables import Qrels, Run
from rankproof.data.ties import TieGroups, in_order
from rankproof.evaluation import Evaluation, Policy, evaluate_some, match_judgments
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, MeasureError, shorten
from rankproof.measures import Outcomes

__all__ = [
    "RelevanceEvaluator",
    "compute_aggregated_measure",
    "parse_qrel",
    "parse_run",
    "supported_measures",
    "supported_nicknames",
]

supported_measures = set(ORDER)
"""Measures by trec_eval's names.

>>> from rankproof.compat.pytrec_eval import supported_measures
>>> "ndcg_cut" in supported_measures
True
"""
supported_nicknames = {name: set(names) for name, names in NICKNAMES.items()}
"""Names that stand for several measures.

>>> from rankproof.compat.pytrec_eval import supported_nicknames
>>> "map" in supported_nicknames["official"]
True
"""

Table = dict[str, dict[str, float]]


class Results(dict[str, dict[str, float]]):
    """{query: {measure: value}} in trec_eval's tie order; `expected` and `range` are lazy."""

    def __init__(self, values: Table, ties: Callable[[], Evaluation], lines: list[OutputLine]):
        super().__init__(values)
        self._ties = ties
        self._lines = lines

    @cached_property
    def _every(self) -> Evaluation:
        return self._ties()

    def _figure(self, figure: Callable[[Outcomes], Float]) -> Table:
        """Return a value per measure; formulas that only trec_eval has know one tie order."""
        if not self:
            return {}
        ours = [(line, line.measure) for line in self._lines if line.measure is not None]
        columns = [figure(self._every.outcomes[measure]) for _, measure in ours]
        table = np.reshape(columns, (len(ours), len(self._every.queries))).T
        return rows_of(self._every.queries.to_list(), {}, [line.printed for line, _ in ours], table)

    @property
    def expected(self) -> Table:
        """The mean over every order of the ties."""
        return self._figure(lambda found: found.expected)

    @property
    def min(self) -> Table:
        return self._figure(lambda found: found.min)

    @property
    def max(self) -> Table:
        return self._figure(lambda found: found.max)

    @property
    def range(self) -> Table:
        """How far apart the best and the worst order are."""
        return self._figure(lambda found: found.max - found.min)


def rows_of(queries: list[str], told: dict[str, float], names: list[str], table: Float) -> Table:
    """Return {query: {name: value}} of a table (Q, L), with constant values for every query."""
    if kernels.native is not None:
        template = told | dict.fromkeys(names, 0.0)
        values = np.ascontiguousarray(table, np.float64)
        found: Table = kernels.native.rows(queries, template, names, values)
        return found
    pairs = zip(queries, table.tolist(), strict=True)
    return {query: told | dict(zip(names, values, strict=True)) for query, values in pairs}


class RelevanceEvaluator:
    """Judgements and measures, for any number of runs.

    >>> import rankproof.compat.pytrec_eval as pytrec_eval
    >>> run, qrels = {"q1": {"d1": 1.0, "d2": 1.0}}, {"q1": {"d1": 1}}
    >>> results = pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(run)
    >>> results, results.expected
    ({'q1': {'map': 0.5}}, {'q1': {'map': 0.75}})
    """

    def __init__(
        self,
        query_relevance: QrelsLike,
        measures: Iterable[str],
        relevance_level: int = 1,
        judged_docs_only_flag: bool = False,
    ):
        self._given: Any = query_relevance
        if isinstance(query_relevance, dict):  # what becomes of it later changes no figure
            both = query_relevance.items()
            self._given = {q: dict(own) if isinstance(own, dict) else own for q, own in both}
        if isinstance(measures, str):  # whose letters would be taken for names
            raise MeasureError(f"measures {shorten(measures)} is one text", remedy="give a set")
        names = [_dotted(name) for name in sorted(measures)]
        self.shown, lines = (
            requested_lines(_combined(names), relevance_level) if names else (set(), [])
        )
        self._lines = [  # one figure has one name, whatever it is told
            line if line.usual else replace(line, printed=line.name)
            for line in lines
            if line.name != "relstring"
        ]
        self._names = [line.printed for line in self._lines]
        # Of what is text it returns a number that means nothing.
        constant = {"runid": 0.0, "num_q": 1.0, "relstring": 0.0}
        self._told = {name: value for name, value in constant.items() if name in self.shown}
        self._level = relevance_level
        self._condensed = bool(judged_docs_only_flag)

    def evaluate(self, scores: Any) -> Results:
        """Return the values of every query that the run and the judgments share."""
        both = isinstance(scores, Mapping) and isinstance(self._given, Mapping)
        policy = Policy("trec_eval", "skip", "zero", condensed=self._condensed)

        @cache
        def shared() -> tuple[Any, dict[str, Any]]:
            """Return the lists of judged queries, and those without a document."""
            if not both:
                return scores, {}
            known = {query: listed for query, listed in scores.items() if query in self._judged}
            return known, {query: {} for query, listed in known.items() if not listed}

        @cache
        def run() -> Run:
            return read_lists(shared()[0])

        plain = isinstance(scores, dict) and isinstance(self._given, dict) and not self._condensed
        numbers = compiled_numbers(self._lines)
        if plain and kernels.native is not None and numbers is not None:
            template = self._told | dict.fromkeys(self._names, 0.0)
            told = (self._level, *numbers, template, self._names)
            table: Table | None = kernels.native.tabulate(scores, self._given, *told)
            if table is not None:
                return Results(table, lambda: self._tied(run()), self._lines)
        quick = groups_of_dicts(scores, self._judged) if plain else None
        if quick is not None:
            return Results(self._table(*quick, policy), lambda: self._tied(run()), self._lines)
        known, empty = shared()
        if both and not known:
            return Results({}, lambda: self._tied(run()), self._lines)
        policy = replace(policy, missing="zero" if empty else "skip")
        ranked = in_order(run(), "trec_eval", "float32", settle=True)
        met = match_judgments(ranked, self._qrels, policy)
        found = self._table(kernels.as_polars(met.queries, "query").to_list(), met.groups(), policy)
        if empty:  # tables know no list without a document
            wanted = set(map(str, known))
            found = {query: values for query, values in found.items() if query in wanted}
        return Results(found, lambda: self._tied(run()), self._lines)

    def _table(self, queries: list[str], groups: TieGroups, policy: Policy) -> Table:
        return rows_of(queries, self._told, self._names, line_values(groups, self._lines, policy))

    @cached_property
    def _judged(self) -> Any:
        """The judgments, without queries that have none."""
        if isinstance(self._given, Mapping) and not all(self._given.values()):
            return {query: judged for query, judged in self._given.items() if judged}
        return self._given

    @cached_property
    def _qrels(self) -> Qrels:
        return read_qrels(self._judged)

    def _tied(self, run: Run) -> Evaluation:
        policy = Policy("trec_eval", "skip", "zero", False, "float32", self._condensed)
        wanted = [line.measure for line in self._lines if line.measure is not None]
        return evaluate_some(run, self._qrels, list(dict.fromkeys(wanted)), policy)


def _dotted(name: str) -> str:
    """`ndcg_cut_10` → `ndcg_cut.10`, as `-m` writes it."""
    if name in supported_measures or name in supported_nicknames:
        return name
    found = re.fullmatch(r"(.+?)[._]([0-9.]+(?:,[0-9.]+)*)", name)
    return f"{found[1]}.{found[2]}" if found else name


def _combined(names: list[str]) -> list[str]:
    """Return each measure once, with all its cutoffs: `P.5` and `P.10` → `P.5,10`."""
    cutoffs: dict[str, dict[str, None]] = {}
    for name in names:
        stem, dot, given = name.partition(".")
        for each in supported_nicknames.get(stem, (stem,)):
            cutoffs.setdefault(each, {}).update(dict.fromkeys(given.split(",") if dot else ()))
    return [f"{name}.{','.join(given)}" if given else name for name, given in cutoffs.items()]


def compute_aggregated_measure(measure: str, values: list[float]) -> float:
    """Return the sum of a count, the geometric mean of `gm_map`, the mean of any other measure.

    >>> from rankproof.compat.pytrec_eval import compute_aggregated_measure
    >>> compute_aggregated_measure("map", [0.5, 1.0])
    0.75
    """
    if measure.startswith("num_"):
        return float(np.sum(values))
    if measure.startswith("gm_"):
        return math.exp(float(np.sum(values)) / len(values))
    return float(np.mean(values))


def parse_run(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """The lines of a TREC run.

    >>> from rankproof.compat.pytrec_eval import parse_run
    >>> parse_run(["q1 Q0 d1 1 0.9 mine"])
    {'q1': {'d1': 0.9}}
    """
    table: dict[str, dict[str, float]] = _parsed(lines, 6, 4, float)
    return table


def parse_qrel(lines: Iterable[str]) -> dict[str, dict[str, int]]:
    """The lines of TREC qrels.

    >>> from rankproof.compat.pytrec_eval import parse_qrel
    >>> parse_qrel(["q1 0 d1 2"])
    {'q1': {'d1': 2}}
    """
    table: dict[str, dict[str, int]] = _parsed(lines, 4, 3, int)
    return table


def _parsed(lines: Iterable[str], fields: int, at: int, kind: Callable[[str], Any]) -> Any:
    table: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if len(words) != fields:
            raise InputError(f"{len(words)} columns", place=f"line {number}", remedy="fix the line")
        listed = table.setdefault(words[0], {})
        if words[2] in listed:
            raise InputError(
                f"document {words[2]} a second time", place=f"line {number}", remedy="keep one"
            )
        listed[words[2]] = kind(words[at])
    return table
