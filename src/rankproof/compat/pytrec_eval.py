"""pytrec_eval's interface: `import rankproof.compat.pytrec_eval as pytrec_eval`.

evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"map", "ndcg_cut.10"})
results = evaluator.evaluate(run)         # {query: {"map": …, "ndcg_cut_10": …}}, to the last bit
results.expected, results.range           # the same over every order of the ties
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.arrays import Float
from rankproof.compat.lists import settled
from rankproof.compat.trec_eval import NICKNAMES, ORDER, Asked, asked_for, measured
from rankproof.errors import InputError
from rankproof.evaluation import Evaluation, Policy, evaluate_some, meet
from rankproof.measures.registry import Measure, Outcomes
from rankproof.records import QrelsLike, read_qrels, read_run
from rankproof.tables import Qrels, Run, build_run
from rankproof.ties import in_order

_TEXTS = {"runid", "relstring"}  # for which it returns a number that means nothing
supported_measures = set(ORDER) - _TEXTS
supported_nicknames = {name: set(names) - _TEXTS for name, names in NICKNAMES.items()}

Table = dict[str, dict[str, float]]


class Results(dict[str, dict[str, float]]):
    """{query: {measure: value}} under trec_eval's order; the other figures are made when asked."""

    def __init__(self, values: Table, ties: Callable[[], Evaluation], lines: list[Asked]):
        super().__init__(values)
        self._ties = ties
        self._lines = lines

    @cached_property
    def _every(self) -> Evaluation:
        return self._ties()

    def _figure(self, figure: Callable[[Outcomes], Float]) -> Table:
        """Of the measures that are ours; the formulas of trec_eval's know one order alone."""
        ours = [(line, line.measure) for line in self._lines if line.measure is not None]
        columns = [figure(self._every.outcomes[measure]) for _, measure in ours]
        return _nested(self._every.queries.to_list(), [line for line, _ in ours], columns)

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


def _nested(queries: list[str], lines: list[Asked], columns: list[Float]) -> Table:
    names = [line.printed for line in lines]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    pairs = zip(queries, rows, strict=True)
    return {query: dict(zip(names, values, strict=True)) for query, values in pairs}


class RelevanceEvaluator:
    """Judgements and measures, for any number of runs."""

    def __init__(
        self,
        query_relevance: QrelsLike,
        measures: Iterable[str],
        relevance_level: int = 1,
        judged_docs_only_flag: bool = False,
    ):
        if isinstance(query_relevance, Mapping):
            query_relevance = {q: listed for q, listed in query_relevance.items() if listed}
        self._given: Any = query_relevance
        names = [_dotted(name) for name in sorted(measures)]
        self.shown, self._lines = asked_for(_combined(names), relevance_level)
        self._condensed = bool(judged_docs_only_flag)

    def evaluate(self, scores: Any) -> Results:
        """The figures of every query that the run and the judgements share."""
        if isinstance(scores, Mapping) and not any(scores.values()):
            scores = []
        nested = isinstance(scores, Mapping) and isinstance(self._given, Mapping)
        quick = settled(scores, self._given) if nested and not self._condensed else None

        @cache
        def run() -> Run:
            return read_run(scores) if not isinstance(scores, list) or scores else _NOTHING

        policy = Policy("trec_eval", "skip", "zero", condensed=self._condensed)
        if quick is not None:
            queries, groups = quick
        else:
            met = meet(in_order(run(), "trec_eval", "float32", settle=True), self._qrels, policy)
            queries, groups = kernels.series(met.queries, "query").to_list(), met.groups()
        columns, outcomes = measured(groups, self._lines, policy)
        pairs = list(zip(self._lines, columns, strict=True))
        columns = [line.logs(c) if line.name.startswith("gm_") else c for line, c in pairs]
        values = _nested(queries, self._lines, columns)
        if "num_q" in self.shown:
            values = {query: {"num_q": 1.0, **each} for query, each in values.items()}
        ties = partial(self._tied, run, list(outcomes))
        return Results(values, ties, self._lines)

    @cached_property
    def _qrels(self) -> Qrels:
        return read_qrels(self._given)

    def _tied(self, run: Callable[[], Run], wanted: list[Measure]) -> Evaluation:
        policy = Policy("trec_eval", "skip", "zero", False, "float32", self._condensed)
        return evaluate_some(run(), self._qrels, wanted, policy)


_NO_IDS = pl.Series([], dtype=pl.String)
_NOTHING = build_run("run", _NO_IDS, np.zeros(0, np.int32), _NO_IDS, np.zeros(0), "float64")


def _dotted(name: str) -> str:
    """`ndcg_cut_10` → `ndcg_cut.10`, as `-m` writes it."""
    if name in supported_measures or name in supported_nicknames:
        return name
    found = re.fullmatch(r"(.+?)[._]([0-9.]+(?:,[0-9.]+)*)", name)
    return f"{found[1]}.{found[2]}" if found else name


def _combined(names: list[str]) -> list[str]:
    """Each measure once, with all its cutoffs: `P.5` and `P.10` → `P.5,10`."""
    cutoffs: dict[str, list[str]] = {}
    for name in names:
        stem, dot, given = name.partition(".")
        for each in supported_nicknames.get(stem, (stem,)):
            cutoffs.setdefault(each, [])
            cutoffs[each] += [c for c in given.split(",") if dot and c not in cutoffs[each]]
    return [f"{name}.{','.join(given)}" if given else name for name, given in cutoffs.items()]


def compute_aggregated_measure(measure: str, values: list[float]) -> float:
    """Sums of what counts, the geometric mean of `gm_map`, means of the others."""
    if measure.startswith("num_"):
        return float(np.sum(values))
    if measure.startswith("gm_"):
        return math.exp(float(np.sum(values)) / len(values))
    return float(np.mean(values))


def parse_run(lines: Iterable[str]) -> dict[str, dict[str, float]]:
    """The lines of a TREC run."""
    table: dict[str, dict[str, float]] = _parsed(lines, 6, 4, float)
    return table


def parse_qrel(lines: Iterable[str]) -> dict[str, dict[str, int]]:
    """The lines of TREC qrels."""
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
