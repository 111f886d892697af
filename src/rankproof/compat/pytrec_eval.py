"""pytrec_eval's interface: `import rankproof.compat.pytrec_eval as pytrec_eval`.

evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"map", "ndcg_cut.10"})
results = evaluator.evaluate(run)     # {query: {"map": …, "ndcg_cut_10": …}}, to the last bit
results.expected, results.range       # the same over every order of the ties
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from rankproof.compat.dict_groups import groups_of_dicts, read_lists
from rankproof.compat.trec_eval import line_values
from rankproof.compat.trec_lines import (
    MEASURE_NAMES,
    NICKNAMES,
    OutputLine,
    compiled_codes,
    requested_lines,
)
from rankproof.data import QrelsLike, read_qrels
from rankproof.data.tables import Qrels, Run
from rankproof.data.ties import TieGroups, in_order
from rankproof.evaluation import Evaluation, Missing, Policy, evaluate_some, match_judgments
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

supported_measures = set(MEASURE_NAMES)
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
    """{query: {measure: value}} under trec_eval's tie-break; values over all orders are lazy."""

    def __init__(self, values: Table, ties: Callable[[], Evaluation], lines: list[OutputLine]):
        super().__init__(values)
        self._evaluate_ties = ties
        self._lines = lines

    @cached_property
    def _tied(self) -> Evaluation:
        return self._evaluate_ties()

    def _table(self, statistic: Callable[[Outcomes], Float]) -> Table:
        """Return a statistic of each measure; trec_eval's own formulas have none, and no column."""
        if not self:
            return {}
        columns = {
            line.label: statistic(self._tied.outcomes[line.measure])
            for line in self._lines
            if line.measure is not None
        }
        table = np.reshape(list(columns.values()), (len(columns), len(self._tied.queries))).T
        return rows_of(self._tied.queries.to_list(), {}, list(columns), table)

    @property
    def expected(self) -> Table:
        """The mean over every order of the ties."""
        return self._table(lambda outcomes: outcomes.expected)

    @property
    def min(self) -> Table:
        """The value of the worst order of the ties."""
        return self._table(lambda outcomes: outcomes.min)

    @property
    def max(self) -> Table:
        """The value of the best order of the ties."""
        return self._table(lambda outcomes: outcomes.max)

    @property
    def range(self) -> Table:
        """The difference between the best and the worst order."""
        return self._table(lambda outcomes: outcomes.max - outcomes.min)


def rows_of(
    queries: list[str], constants: dict[str, float], names: list[str], table: Float
) -> Table:
    """Return {query: {name: value}} of a table (Q, L); each row begins with the constants."""
    if kernels.native is not None:
        template = constants | dict.fromkeys(names, 0.0)
        values = np.ascontiguousarray(table, np.float64)
        rows: Table = kernels.native.rows(queries, template, names, values)
        return rows
    pairs = zip(queries, table.tolist(), strict=True)
    return {query: constants | dict(zip(names, values, strict=True)) for query, values in pairs}


class RelevanceEvaluator:
    """Judgments and measures, to evaluate any number of runs.

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
        self._source: Any = query_relevance
        if isinstance(query_relevance, dict):  # later changes by the caller must not matter
            self._source = {
                query: dict(judged) if isinstance(judged, dict) else judged
                for query, judged in query_relevance.items()
            }
        if isinstance(measures, str):  # iterating would take its letters for names
            raise MeasureError(f"measures {shorten(measures)} is one text", remedy="give a set")
        names = _merge_parameters([_with_dot(name) for name in sorted(measures)])
        requested, lines = requested_lines(names, relevance_level) if names else (set(), [])
        self._lines = [  # pytrec_eval leaves changed parameters out of the name
            line if line.is_default else replace(line, label=line.name)
            for line in lines
            if line.name != "relstring"
        ]
        self._labels = [line.label for line in self._lines]
        # For measures that are text pytrec_eval returns a number without meaning.
        constants = {"runid": 0.0, "num_q": 1.0, "relstring": 0.0}
        self._constants = {name: x for name, x in constants.items() if name in requested}
        self._level = relevance_level
        self._condensed = bool(judged_docs_only_flag)

    def evaluate(self, scores: Any) -> Results:
        """Return the values of every query that the run and the judgments share."""
        values = self._evaluate_dicts(scores)
        if values is not None:
            return Results(
                values,
                lambda: self._evaluate_ties(_read_run(scores, self._judged_lists(scores))),
                self._lines,
            )
        lists = self._judged_lists(scores)
        run = _read_run(scores, lists)  # once, as it may be an iterator
        return Results(
            self._evaluate_run(run, lists), lambda: self._evaluate_ties(run), self._lines
        )

    def _evaluate_dicts(self, scores: Any) -> Table | None:
        """Evaluate by compiled code, without tables; None if that cannot handle run or options."""
        are_dicts = isinstance(scores, dict) and isinstance(self._source, dict)
        if kernels.native is None or not are_dicts or self._condensed:
            return None
        codes = compiled_codes(self._lines)
        if codes is not None:
            template = self._constants | dict.fromkeys(self._labels, 0.0)
            table: Table | None = kernels.native.tabulate(
                scores, self._source, self._level, *codes, template, self._labels
            )
            if table is not None:
                return table
        groups = groups_of_dicts(scores, self._judgments)
        return None if groups is None else self._rows(*groups, self._policy("skip"))

    def _judged_lists(self, scores: Any) -> dict[str, Any] | None:
        """Return the lists of judged queries, None if run or judgments are not a mapping."""
        if not (isinstance(scores, Mapping) and isinstance(self._source, Mapping)):
            return None
        return {query: scored for query, scored in scores.items() if query in self._judgments}

    def _evaluate_run(self, run: Run, lists: dict[str, Any] | None) -> Table:
        """Evaluate a run; `lists` is what it was read from, if that is a mapping."""
        if lists is not None and not lists:
            return {}
        has_empty_lists = lists is not None and not all(lists.values())
        policy = self._policy("zero" if has_empty_lists else "skip")
        ranked = in_order(run, "trec_eval", "float32", settle=True)
        matches = match_judgments(ranked, self._qrels, policy)
        queries = kernels.as_polars(matches.queries, "query").to_list()
        rows = self._rows(queries, matches.groups(), policy)
        if lists is not None and has_empty_lists:
            # Tables have no lists without documents: all judged queries were evaluated instead.
            listed = set(map(str, lists))
            rows = {query: values for query, values in rows.items() if query in listed}
        return rows

    def _policy(self, missing: Missing) -> Policy:
        return Policy("trec_eval", missing, "zero", condensed=self._condensed)

    def _rows(self, queries: list[str], groups: TieGroups, policy: Policy) -> Table:
        values = line_values(groups, self._lines, policy)
        return rows_of(queries, self._constants, self._labels, values)

    @cached_property
    def _judgments(self) -> Any:
        """The judgments, without queries that have none."""
        if isinstance(self._source, Mapping) and not all(self._source.values()):
            return {query: judged for query, judged in self._source.items() if judged}
        return self._source

    @cached_property
    def _qrels(self) -> Qrels:
        return read_qrels(self._judgments)

    def _evaluate_ties(self, run: Run) -> Evaluation:
        """Evaluate over every order of ties the lines whose measure is one of rankproof's."""
        policy = Policy.of(like="trec_eval", condensed=self._condensed)
        measures = dict.fromkeys(line.measure for line in self._lines if line.measure is not None)
        return evaluate_some(run, self._qrels, list(measures), policy)


def _read_run(scores: Any, lists: dict[str, Any] | None) -> Run:
    return read_lists(scores if lists is None else lists)


def _with_dot(name: str) -> str:
    """Return `ndcg_cut_10` as `ndcg_cut.10`, the way `-m` writes it."""
    if name in supported_measures or name in supported_nicknames:
        return name
    match = re.fullmatch(r"(.+?)[._]([0-9.]+(?:,[0-9.]+)*)", name)
    return f"{match[1]}.{match[2]}" if match else name


def _merge_parameters(names: list[str]) -> list[str]:
    """Return each measure once, with all its parameters: `P.5` and `P.10` become `P.5,10`."""
    parameters: dict[str, dict[str, None]] = {}  # of each measure, without repetition
    for name in names:
        stem, dot, text = name.partition(".")
        for measure in supported_nicknames.get(stem, (stem,)):
            merged = parameters.setdefault(measure, {})
            merged.update(dict.fromkeys(text.split(",") if dot else ()))
    return [f"{name}.{','.join(merged)}" if merged else name for name, merged in parameters.items()]


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
    """Parse the lines of a TREC run.

    >>> from rankproof.compat.pytrec_eval import parse_run
    >>> parse_run(["q1 Q0 d1 1 0.9 mine"])
    {'q1': {'d1': 0.9}}
    """
    table: dict[str, dict[str, float]] = {}
    for query, doc, score in _parse_lines(lines, width=6, value_column=4):
        table.setdefault(query, {})[doc] = float(score)
    return table


def parse_qrel(lines: Iterable[str]) -> dict[str, dict[str, int]]:
    """Parse the lines of TREC qrels.

    >>> from rankproof.compat.pytrec_eval import parse_qrel
    >>> parse_qrel(["q1 0 d1 2"])
    {'q1': {'d1': 2}}
    """
    table: dict[str, dict[str, int]] = {}
    for query, doc, grade in _parse_lines(lines, width=4, value_column=3):
        table.setdefault(query, {})[doc] = int(grade)
    return table


def _parse_lines(
    lines: Iterable[str], width: int, value_column: int
) -> Iterator[tuple[str, str, str]]:
    """Yield query, document and value of each line; refuse a document that appears twice."""
    seen: set[tuple[str, str]] = set()
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if len(fields) != width:
            raise InputError(
                f"{len(fields)} columns", place=f"line {number}", remedy="fix the line"
            )
        query, doc = fields[0], fields[2]
        if (query, doc) in seen:
            raise InputError(
                f"document {doc} a second time", place=f"line {number}", remedy="keep one"
            )
        seen.add((query, doc))
        yield query, doc, fields[value_column]
