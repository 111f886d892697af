"""A provider for ir_measures: `import rankproof.compat.ir_measures as ir_measures`.

This module has all names of ir_measures. The measures of its provider pytrec_eval are computed by
rankproof, bit for bit and faster; its other providers compute the other measures. Three providers
are registered: `rankproof` for trec_eval's tie-break, and two for every order of the ties:

    ir_measures.expected.calc_aggregate([nDCG@10], qrels, run)      # rankproof_expected
    ir_measures.ranges.calc_aggregate([nDCG@10], qrels, run)        # rankproof_range

>>> import rankproof.compat.ir_measures as ir_measures
>>> run, qrels = {"q1": {"d1": 1.0, "d2": 1.0}}, {"q1": {"d1": 1}}
>>> ir_measures.calc_aggregate([ir_measures.AP], qrels, run)
{AP: 0.5}
>>> ir_measures.expected.calc_aggregate([ir_measures.AP], qrels, run)
{AP: 0.75}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, Literal

import ir_measures
from ir_measures import *  # noqa: F403
from ir_measures import Metric, measures, providers, util
from ir_measures.providers.base import NOT_PROVIDED, Choices
from ir_measures.providers.base import Any as Anything

from rankproof.compat.dict_groups import groups_of_dicts, nest_columns
from rankproof.data import read_qrels, read_run
from rankproof.evaluation import Policy, evaluate_some, measure_all
from rankproof.foundation import kernels
from rankproof.measures import Measure as RankproofMeasure  # `Measure` is ir_measures' own
from rankproof.measures import Outcomes, parse

STATISTICS = {  # of each provider, by its name
    "rankproof": lambda outcomes: outcomes.oblivious,
    "rankproof_expected": lambda outcomes: outcomes.expected,
    "rankproof_range": lambda outcomes: outcomes.max - outcomes.min,
}


class RankproofProvider(providers.Provider):
    """A provider of values under trec_eval's tie-break, or over every order of the ties."""

    def __init__(self, name: str = "rankproof"):
        super().__init__()
        self.NAME = name
        any_ = Anything()
        self.SUPPORTED_MEASURES = [
            measures._P(cutoff=any_, rel=any_, judged_only=any_),
            measures._RR(cutoff=Choices(NOT_PROVIDED), rel=any_, judged_only=any_),
            measures._Rprec(rel=any_, judged_only=any_),
            measures._AP(cutoff=any_, rel=any_, judged_only=any_),
            measures._nDCG(cutoff=any_, dcg=Choices("log2"), gains=any_, judged_only=any_),
            measures._R(cutoff=any_, rel=any_, judged_only=any_),
            measures._Bpref(rel=any_),
            measures._NumRet(rel=any_),
            measures._NumRel(rel=Choices(1)),
            measures._SetAP(rel=any_, judged_only=any_),
            measures._SetF(rel=any_, beta=any_, judged_only=any_),
            measures._SetP(rel=any_, relative=Choices(False), judged_only=any_),
            measures._SetR(rel=any_),
            measures._Success(rel=any_, cutoff=any_, judged_only=any_),
            measures._IPrec(recall=any_, rel=any_, judged_only=any_),
            measures._infAP(rel=any_),
        ]

    def _evaluator(self, measures: Iterable[Any], qrels: Any) -> Any:
        judgments = _as_dicts(util.QrelsConverter(qrels), "relevance")
        return _Evaluator(self.NAME, list(measures), judgments)


def _as_dicts(converter: Any, value: Literal["relevance", "score"]) -> Any:
    """Return the rows of a converter of ir_measures as a dict of dicts, faster than it does."""
    kind, _ = converter.predict_type()
    names = ("query_id", "doc_id", value)
    rows = converter.qrels if value == "relevance" else converter.run
    if kind == "pd_dataframe":
        return nest_columns(*(rows[name].tolist() for name in names))
    if kind == "namedtuple_iter":
        rows = list(rows)
        types: list[Any] = list(set(map(type, rows)))
        if len(types) == 1:  # all rows have their fields at the same places
            places = [types[0]._fields.index(name) for name in names]
            if kernels.native is not None:
                return kernels.native.nest(rows, *places)
            return nest_columns(*(list(map(itemgetter(at), rows)) for at in places))
        converter = type(converter)(rows)
    return converter.as_dict_of_dict()


class _Evaluator(providers.Evaluator):
    def __init__(self, name: str, measures: list[Any], qrels: dict[str, dict[str, int]]):
        super().__init__(measures, set(qrels))
        self._name = name
        self._qrels = qrels
        # {is condensed: {ir_measures' measure: rankproof's}}. `judged_only` belongs to a measure
        # there and to a whole evaluation here, so measures with it are evaluated apart.
        self._parsed: dict[bool, dict[Any, RankproofMeasure]] = {}
        for measure in measures:
            is_condensed = bool(measure.params.get("judged_only"))
            plain = measure(judged_only=False) if is_condensed else measure
            self._parsed.setdefault(is_condensed, {})[measure] = parse(plain)

    def _iter_calc(self, run: Any) -> Iterator[Any]:
        queries, columns = self._columns(_as_dicts(util.RunConverter(run), "score"))
        for row, query in enumerate(queries):
            for measure, values in columns.items():
                yield Metric(query_id=query, measure=measure, value=values[row])

    def calc_aggregate(self, run: Any) -> dict[Any, Any]:
        """Return aggregated values, without creating a Metric for each query and measure."""
        queries, columns = self._columns(_as_dicts(util.RunConverter(run), "score"))
        missing = len(self._qrels) - len(queries)
        aggregates: dict[Any, Any] = {}
        for measure in self.measures:
            aggregator = measure.aggregator()
            for value in chain(columns.get(measure, ()), repeat(measure.DEFAULT, missing)):
                aggregator.add(value)
            aggregates[measure] = aggregator.result()
        return aggregates

    def _columns(self, scores: Any) -> tuple[list[str], dict[Any, list[float]]]:
        """Return the judged queries of the run, and their values on each measure.

        The queries keep the run's order, in which means are summed.
        """
        queries = [query for query in scores if query in self._qrels]
        columns: dict[Any, list[float]] = {}
        if not queries:
            return queries, columns
        for is_condensed, parsed in self._parsed.items():
            evaluated, outcomes = self._evaluate(scores, list(parsed.values()), is_condensed)
            order = None
            if evaluated != queries:
                row_of = {query: row for row, query in enumerate(evaluated)}
                queries = [query for query in queries if query in row_of]
                order = [row_of[query] for query in queries]
            for measure, rankproof_measure in parsed.items():
                values = STATISTICS[self._name](outcomes[rankproof_measure])
                columns[measure] = (values if order is None else values[order]).tolist()
        return queries, columns

    def _evaluate(
        self,
        scores: dict[str, dict[str, float]],
        measures: list[RankproofMeasure],
        is_condensed: bool,
    ) -> tuple[list[str], dict[RankproofMeasure, Outcomes]]:
        """Return the evaluated queries, in any order, and the outcomes of each measure."""
        measures = list(dict.fromkeys(measures))
        if self._name == "rankproof" and not is_condensed:
            matches = groups_of_dicts(scores, self._qrels)
            if matches is not None:
                queries, groups = matches
                return queries, measure_all(groups, measures, Policy(undefined="zero"))
        policy = Policy.of(like="trec_eval", condensed=is_condensed)
        evaluation = evaluate_some(read_run(scores), read_qrels(self._qrels), measures, policy)
        return evaluation.queries.to_list(), evaluation.outcomes


rankproof, expected, ranges = (providers.register(RankproofProvider(name)) for name in STATISTICS)
DefaultPipeline = providers.FallbackProvider([rankproof, *ir_measures.DefaultPipeline.providers])
evaluator = DefaultPipeline.evaluator
iter_calc = DefaultPipeline.iter_calc
calc_aggregate = DefaultPipeline.calc_aggregate
calc = DefaultPipeline.calc
