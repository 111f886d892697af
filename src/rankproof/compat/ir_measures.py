"""A provider for ir_measures: `import rankproof.compat.ir_measures as ir_measures`.

All of ir_measures' names are here. What its provider pytrec_eval computes is computed by ours, bit
for bit and faster; the rest is left to its other providers. `ir_measures.providers.registry` holds
ours as `rankproof`, and two more that give what other orders of ties would give:

    ir_measures.expected.calc_aggregate([nDCG@10], qrels, run)      # rankproof_expected
    ir_measures.ranges.calc_aggregate([nDCG@10], qrels, run)        # rankproof_range
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import ir_measures
from ir_measures import *  # noqa: F403
from ir_measures import Metric, measures, providers, util
from ir_measures.providers.base import NOT_PROVIDED, Choices
from ir_measures.providers.base import Any as Anything

from rankproof.compat.lists import settled
from rankproof.evaluation import Policy, evaluate_some, measure_all
from rankproof.measures.registry import Measure as OurMeasure
from rankproof.measures.registry import Outcomes, parse
from rankproof.records import read_qrels, read_run

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
        return _Evaluator(self.NAME, list(wanted), util.QrelsConverter(qrels).as_dict_of_dict())


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
        scores = util.RunConverter(run).as_dict_of_dict()
        if scores.keys().isdisjoint(self._qrels):
            return
        figure = FIGURES[self._name]
        columns: dict[Any, list[float]] = {}
        at: dict[str, int] = {}
        for condensed, ours in self._ours.items():
            queries, outcomes = self._measured(scores, list(ours.values()), condensed)
            at = {query: number for number, query in enumerate(queries)}
            columns |= {theirs: figure(outcomes[m]).tolist() for theirs, m in ours.items()}
        for query in scores:  # in whose order its means are summed
            if query in at:
                for theirs, values in columns.items():
                    yield Metric(query_id=query, measure=theirs, value=values[at[query]])

    def _measured(
        self, scores: dict[str, dict[str, float]], wanted: list[OurMeasure], condensed: bool
    ) -> tuple[list[str], dict[OurMeasure, Outcomes]]:
        wanted = list(dict.fromkeys(wanted))
        simple = self._name == "rankproof" and not condensed
        quick = settled(scores, self._qrels) if simple else None
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
