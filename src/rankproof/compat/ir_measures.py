"""A provider for ir_measures: `import rankproof.compat.ir_measures as ir_measures`.

All of ir_measures' names are here. What its provider pytrec_eval computes is computed by ours, bit
for bit and faster; the rest is left to its other providers. `ir_measures.providers.registry` holds
ours as `rankproof`, and two more that give what other orders of ties would give:

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
from typing import Any

import ir_measures
from ir_measures import *  # noqa: F403
from ir_measures import Metric, measures, providers, util
from ir_measures.providers.base import NOT_PROVIDED, Choices
from ir_measures.providers.base import Any as Anything

from rankproof.compat.dict_groups import groups_of_dicts, nest_columns
from rankproof.data import read_qrels, read_run
from rankproof.evaluation import Policy, evaluate_some, measure_all
from rankproof.foundation import kernels
from rankproof.measures import Measure as OurMeasure
from rankproof.measures import Outcomes, parse

FIGURES = {
    "rankproof": lambda found: found.oblivious,
    "rankproof_expected": lambda found: found.expected,
    "rankproof_range": lambda found: found.max - found.min,
}


class RankproofProvider(providers.Provider):
    """Figures under trec_eval's order of ties, or over every order."""

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

    def _evaluator(self, wanted: Iterable[Any], qrels: Any) -> Any:
        return _Evaluator(self.NAME, list(wanted), _dicts(util.QrelsConverter(qrels), "relevance"))


def _dicts(given: Any, value: str) -> Any:
    """Return the content of a converter of ir_measures as a dict of dicts."""
    kind, _ = given.predict_type()
    names = ("query_id", "doc_id", value)
    held = given.qrels if value == "relevance" else given.run
    if kind == "pd_dataframe":
        return nest_columns(*(held[name].tolist() for name in names))
    if kind == "namedtuple_iter":
        held = list(held)
        types: list[Any] = list(set(map(type, held)))
        if len(types) == 1:  # of others the fields may stand elsewhere
            at = [types[0]._fields.index(name) for name in names]
            if kernels.native is not None:
                return kernels.native.nest(held, *at)
            return nest_columns(*(list(map(itemgetter(n), held)) for n in at))
        given = type(given)(held)
    return given.as_dict_of_dict()


class _Evaluator(providers.Evaluator):
    def __init__(self, name: str, wanted: list[Any], qrels: dict[str, dict[str, int]]):
        super().__init__(wanted, set(qrels))
        self._name = name
        self._qrels = qrels
        # A choice for the whole evaluation here: those with it are evaluated apart.
        self._ours: dict[bool, dict[Any, OurMeasure]] = {}
        for measure in wanted:
            condensed = bool(measure.params.get("judged_only"))
            plain = measure(judged_only=False) if condensed else measure
            self._ours.setdefault(condensed, {})[measure] = parse(plain)

    def _iter_calc(self, run: Any) -> Iterator[Any]:
        queries, columns = self._columns(_dicts(util.RunConverter(run), "score"))
        for at, query in enumerate(queries):
            for theirs, values in columns.items():
                yield Metric(query_id=query, measure=theirs, value=values[at])

    def calc_aggregate(self, run: Any) -> dict[Any, Any]:
        """Return aggregated values, without creating a Metric for each query and measure."""
        queries, columns = self._columns(_dicts(util.RunConverter(run), "score"))
        missing = len(self._qrels) - len(queries)
        found: dict[Any, Any] = {}
        for measure in self.measures:
            aggregator = measure.aggregator()
            for value in chain(columns.get(measure, ()), repeat(measure.DEFAULT, missing)):
                aggregator.add(value)
            found[measure] = aggregator.result()
        return found

    def _columns(self, scores: Any) -> tuple[list[str], dict[Any, list[float]]]:
        """Return the queries in the run's order, in which means are summed, and their values."""
        queries = [query for query in scores if query in self._qrels]
        columns: dict[Any, list[float]] = {}
        for condensed, ours in self._ours.items() if queries else ():
            names, outcomes = self._measured(scores, list(ours.values()), condensed)
            order = None
            if names != queries:
                at = {query: number for number, query in enumerate(names)}
                order = [at[query] for query in queries if query in at]
                queries = [query for query in queries if query in at]
            for theirs, measure in ours.items():
                values = FIGURES[self._name](outcomes[measure])
                columns[theirs] = (values if order is None else values[order]).tolist()
        return queries, columns

    def _measured(
        self, scores: dict[str, dict[str, float]], wanted: list[OurMeasure], condensed: bool
    ) -> tuple[list[str], dict[OurMeasure, Outcomes]]:
        wanted = list(dict.fromkeys(wanted))
        simple = self._name == "rankproof" and not condensed
        quick = groups_of_dicts(scores, self._qrels) if simple else None
        if quick is not None:
            queries, groups = quick
            return queries, measure_all(groups, wanted, Policy(undefined="zero"))
        policy = Policy("trec_eval", "skip", "zero", False, "float32", condensed)
        found = evaluate_some(read_run(scores), read_qrels(self._qrels), wanted, policy)
        return found.queries.to_list(), found.outcomes


rankproof, expected, ranges = (providers.register(RankproofProvider(name)) for name in FIGURES)
DefaultPipeline = providers.FallbackProvider([rankproof, *ir_measures.DefaultPipeline.providers])
evaluator = DefaultPipeline.evaluator
iter_calc = DefaultPipeline.iter_calc
calc_aggregate = DefaultPipeline.calc_aggregate
calc = DefaultPipeline.calc
