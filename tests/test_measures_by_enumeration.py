"""Closed forms against the definition, over every ordering that the scores allow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from oracles import ASPECT_ORACLES, ORACLES, Pool, Ranked, enumerate_orderings

import rankproof as rp
from rankproof.data.ties import Order
from rankproof.foundation.arrays import Float
from rankproof.measures import REGISTRY, Measure, interpolated_precision

GRADED = [
    "Hits", "Hits@1", "Hits(rel=2)@3", "Hits@10",
    "P@1", "P@2", "P(rel=2)@4", "P@10",
    "R", "R@1", "R@3", "R(rel=3)@2", "R@10",
    "F1@1", "F1@3", "F1(rel=2)@2", "F1@10",
    "Rprec", "Rprec(rel=2)",
    "Judged@1", "Judged@3", "Judged@10",
    "RBP", "RBP@2", "RBP(p=0.5)@3", "RBP(p=0.95,rel=2)", "RBP(p=0.0)", "RBP(p=1.0)",
    "nDCG", "nDCG@1", "nDCG@3", "nDCG@10", "nDCG(gain='exp')", "nDCG(gain='exp')@2",
    "nDCG(rel=2)@3", "nDCG(gain='exp',rel=2)", "DCG", "DCG@3", "DCG(gain='exp',rel=2)@2",
    "RR", "RR@1", "RR@2", "RR(rel=2)@4", "RR@10",
    "Success@1", "Success@2", "Success(rel=2)@4", "Success@10",
    "AP", "AP@1", "AP@2", "AP(rel=2)@4", "AP(rel=3)", "AP@10",
    "ERR", "ERR@1", "ERR@3", "ERR(max=4)@5", "ERR(max=1)", "ERR@10",
    "bpref", "bpref(rel=2)", "infAP", "infAP(rel=2)",
    "RBP(p=0.5,max=2)", "RBP(p=0.9,max=3)@3", "RBPResidual", "RBPResidual(p=0.5)@2",
    "nDCG(gain={1: 1, 2: 5})", "nDCG(gain={0: 1, 1: 3, 2: 2})@3",
    "NumRet", "NumRet(rel=2)", "NumRel", "NumRel(rel=2)", "NumRelRet", "NumRelRet(rel=2)",
    "SetP", "SetP(rel=2)", "SetR", "SetR(rel=2)", "SetF", "SetF(rel=2,beta=3.0)", "SetAP",
    "SetAP(rel=2)", "IPrec@0", "IPrec@0.3", "IPrec(rel=2)@0.5", "IPrec@1", "AP11", "AP11(rel=2)",
    "IPrec(rounding='nearest')@0.2", "AP11(rounding='nearest')",
    "GMAP", "GMAP(rel=2)",
]  # fmt: skip
SETS = [
    "RAnWG@1", "RAnWG@2", "RAnWG(alpha=0.5)@3", "RAnWG(alpha=0.5,cap3=0.2)@4",
    "RAnWG(alpha=2.0,cap4=0.3)@2", "RAnWG(alpha=0.0,cap4=0.0,cap3=1.0)@3", "RAnWG@10",
    "NRecall4@1", "NRecall4@3", "NRecall4@10", "NRecall5@1", "NRecall5@2", "NRecall5@10",
    "P4@1", "P4@3", "P4@10", "Harm@1", "Harm@3", "Harm@10",
    "Hit@1", "Hit@3", "Hit@10", "UDCG@1", "UDCG@3", "UDCG(penalty=1.0)@2", "UDCG@10",
]  # fmt: skip
OPEN_SCALE = {spec for spec in GRADED if spec.startswith("ERR") and "max" not in spec}
FIGURES = ("expected", "min", "max", "oblivious", "std")
ORDERS: tuple[Order, ...] = ("input", "docid", "trec_eval")


@dataclass(frozen=True)
class Case:
    """A run and qrels as rows; queries may be interleaved."""

    run: tuple[tuple[str, str, float], ...]
    qrels: tuple[tuple[str, str, int], ...]

    @property
    def queries(self) -> list[str]:
        return sorted({query for query, _, _ in self.qrels})

    @property
    def max_grade(self) -> int:
        return max([0, *(grade for _, _, grade in self.qrels)])

    def grades(self, query: str) -> dict[str, int]:
        """The pooled documents; a negative grade says "not judged"."""
        return {d: grade for q, d, grade in self.qrels if q == query}

    def listed(self, query: str) -> list[tuple[str, float]]:
        return [(doc, score) for q, doc, score in self.run if q == query]

    def ranked(self, query: str, order: Order) -> list[int | None]:
        rows = self.listed(query)
        if order != "input":
            rows.sort(key=lambda row: row[0].encode(), reverse=order == "trec_eval")
        rows.sort(key=lambda row: -row[1])
        return [self.grades(query).get(doc) for doc, _ in rows]

    def orderings(self, query: str) -> Iterable[Ranked]:
        rows, grades = self.listed(query), self.grades(query)
        return enumerate_orderings([s for _, s in rows], [grades.get(doc) for doc, _ in rows])

    def pool(self, query: str) -> list[int]:
        return [grade for grade in self.grades(query).values() if grade >= 0]

    def shuffled(self, rng: Random) -> Case:
        return Case(
            tuple(rng.sample(self.run, len(self.run))),
            tuple(rng.sample(self.qrels, len(self.qrels))),
        )


def nested(rows: Iterable[tuple[str, str, Any]]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for query, doc, value in rows:
        found.setdefault(query, {})[doc] = value
    return found


def by_definition(measure: Measure, ranked: Ranked, pool: Pool, max_grade: int) -> float:
    oracle = ORACLES[measure.name]
    if measure.name != "infAP":  # which alone tells pooled documents from others
        ranked = [None if grade is None or grade < 0 else grade for grade in ranked]
    return oracle(ranked, pool, measure.cutoff, max_grade, **dict(measure.explicit))


Figures = dict[str, dict[str, dict[str, Any]]]  # measure → query → figure → value


def figures(case: Case, specs: Sequence[str], **policy: Any) -> Figures:
    found: Figures = {spec: {} for spec in specs}
    for row in query_values(rp.evaluate(case.qrels, case.run, specs, **policy)):
        found[row["measure"]][row["query"]] = {name: row[name] for name in FIGURES}
    return found


def query_values(result: rp.Evaluation) -> Iterator[dict[str, Any]]:
    """The values of every query and measure, also those that the mean does not count."""
    for measure, outcomes in result.outcomes.items():
        std = None if outcomes.variance is None else np.sqrt(outcomes.variance)
        for at, query in enumerate(result.queries):
            row: dict[str, Any] = {"measure": str(measure), "query": query}
            for name in ("expected", "oblivious", "min", "max"):
                row[name] = float(getattr(outcomes, name)[at])
            yield row | {"std": None if std is None else float(std[at])}


def same(a: float | None, b: float | None) -> bool:
    """Equal to the last bit; NaN is NaN."""
    return a == b or (a is not None and b is not None and math.isnan(a) and math.isnan(b))


# ------------------------------------------------------------------------------------- cases

IDS = ("a", "b", "c", "B", "a1", "a10", "a2", "é", "ü-2", "文書", "z" * 20)
PALETTES = ((1.0,), (2.0, 1.0), (0.9, 0.5, 0.1), (1.0, 0.0, -0.0), (math.inf, 1e300, -math.inf))


@st.composite
def cases(draw: st.DrawFn, grades: Sequence[int | None]) -> Case:
    """A few small queries in which ties abound."""
    run: list[tuple[str, str, float]] = []
    qrels: list[tuple[str, str, int]] = []
    for number in range(draw(st.integers(1, 3))):
        query = f"q{number}"
        docs = draw(st.permutations(IDS))
        # The first query is in the run and in the qrels: else there is nothing to evaluate.
        length = draw(st.integers(0 if number else 1, 7))
        palette = st.sampled_from(draw(st.sampled_from(PALETTES)))
        run += [(query, doc, draw(palette)) for doc in docs[:length]]
        pooled = docs[: length + draw(st.integers(0, 3))]
        given_grades = [draw(st.sampled_from(grades)) for _ in pooled]
        if number == 0 and all(grade is None for grade in given_grades):
            given_grades[0] = grades[-1]
        qrels += [
            (query, doc, g) for doc, g in zip(pooled, given_grades, strict=True) if g is not None
        ]
    return Case(tuple(run), tuple(qrels)).shuffled(Random(draw(st.integers(0, 99))))


GRADED_CASES = cases([None, -1, 0, 1, 2, 3])
SET_CASES = cases([None, 1, 2, 3, 4, 5])


def one_query(scores: Sequence[float], grades: Ranked, unretrieved: Sequence[int] = ()) -> Case:
    run = tuple(("q", f"d{i}", score) for i, score in enumerate(scores))
    judged = [(f"d{i}", grade) for i, grade in enumerate(grades) if grade is not None]
    others = [(f"u{i}", grade) for i, grade in enumerate(unretrieved)]
    return Case(run, tuple(("q", doc, grade) for doc, grade in judged + others))


def random_case(seed: int, queries: int, longest: int, grades: Sequence[int | None]) -> Case:
    """Longer lists than enumeration can take, for laws that need none."""
    rng = Random(seed)
    run: list[tuple[str, str, float]] = []
    qrels: list[tuple[str, str, int]] = []
    for number in range(queries):
        docs = [f"d{i}" for i in range(longest + 5)]
        rng.shuffle(docs)
        length = rng.randint(1, longest)
        values = [rng.random() for _ in range(rng.randint(1, length))]
        run += [(f"q{number}", doc, rng.choice(values)) for doc in docs[:length]]
        judged = [(doc, rng.choice(grades)) for doc in docs[: length + rng.randint(0, 5)]]
        qrels += [(f"q{number}", doc, grade) for doc, grade in judged if grade is not None]
    return Case(tuple(run), tuple(qrels))


BULK = [
    pytest.param(random_case(1, 300, 12, [None, 0, 1, 2, 3]), GRADED, id="graded, short"),
    pytest.param(random_case(2, 300, 60, [None, 0, 0, 1, 2, 3]), GRADED, id="graded, long"),
    pytest.param(random_case(3, 300, 12, [None, 1, 2, 3, 4, 5]), SETS, id="sets, short"),
    pytest.param(random_case(4, 300, 60, [None, 1, 2, 3, 3, 4, 5]), SETS, id="sets, long"),
]


# ----------------------------------------------------------------------- against the definition


def test_every_registered_measure_has_an_oracle() -> None:
    assert set(REGISTRY) == {*ORACLES, *ASPECT_ORACLES}


def test_every_registered_measure_and_parameter_is_enumerated() -> None:
    measures = [rp.parse(spec) for spec in GRADED + SETS]
    for name, definition in REGISTRY.items():
        if name in ASPECT_ORACLES:  # test_diversity.py
            continue
        mine = [m for m in measures if m.name == name]
        assert {key for m in mine for key, _ in m.explicit} == set(definition.parameters), name
        cutoffs = {m.cutoff for m in mine}
        assert (cutoffs - {None} != set()) == definition.takes_cutoff, name
        assert (None in cutoffs) == (not definition.needs_cutoff), name


def check_by_enumeration(name: str, specs: Sequence[str], case: Case, as_dict: bool) -> None:
    measures = [measure for measure in map(rp.parse, specs) if measure.name == name]
    run, qrels = (nested(case.run), nested(case.qrels)) if as_dict else (case.run, case.qrels)
    orderings = {query: list(case.orderings(query)) for query in case.queries}
    for order in ORDERS:
        rows = query_values(rp.evaluate(qrels, run, measures, order=order))
        for measure in measures:
            for query in case.queries:
                row = next(rows)
                assert (row["measure"], row["query"]) == (str(measure), query)
                pool, ranked = case.pool(query), case.ranked(query, order)
                oblivious = by_definition(measure, ranked, pool, case.max_grade)
                values = np.array(
                    [by_definition(measure, o, pool, case.max_grade) for o in orderings[query]]
                )
                check_row(row, oblivious, values)


def check_row(row: dict[str, Any], oblivious: float, values: Float) -> None:
    if math.isnan(oblivious):
        assert all(row[name] is None or math.isnan(row[name]) for name in FIGURES), row
        return
    wanted = (oblivious, values.mean(), values.min(), values.max())
    found = tuple(row[name] for name in ("oblivious", "expected", "min", "max"))
    assert found == pytest.approx(wanted, rel=0, abs=1e-9), row
    if row["std"] is None:
        assert row["measure"].startswith(("AP11", "infAP"))
        return
    assert row["std"] == pytest.approx(values.std(), rel=0, abs=1e-9), row
    assert row["std"] ** 2 == pytest.approx(values.var(), rel=0, abs=1e-12), row


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({rp.parse(spec).name for spec in GRADED}))
@given(case=GRADED_CASES, as_dict=st.booleans())
@example(one_query([1.0], [1]), False)
@example(one_query([1.0], [None], [2]), True)
@example(one_query([1.0] * 6, [None, 3, 0, 1, 2, 0]), False)
@example(one_query([1.0] * 7, [1] * 7, [1, 1]), False)
@example(one_query([1.0] * 5, [0, None, 0, 0, None], [0]), False)
@example(one_query([0.99, 0.97, 0.97, 0.97, 0.95], [0, 1, 0, 1, 0]), False)
@example(one_query([2.0] * 3 + [1.0] * 4, [None, None, None, 1, -1, -1, 1]), False)
@example(one_query([2.0] * 3 + [1.0] * 5, [None, None, 2, 1, -1, -1, 2, 0]), False)
def test_figures_are_those_of_the_definition_over_every_ordering(
    name: str, case: Case, as_dict: bool
) -> None:
    check_by_enumeration(name, GRADED, case, as_dict)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({rp.parse(spec).name for spec in SETS}))
@given(case=SET_CASES, as_dict=st.booleans())
@example(one_query([1.0] * 6, [5, 4, 4, 4, 3, None], [1, 1, 1]), False)
@example(one_query([1.0] * 6, [5, 5, 5, 4, 3, 3], [5]), False)
@example(one_query([2.0, 1.0, 1.0, 1.0], [None, 4, 3, 1], [3, 2]), False)
@example(one_query([1.0, 1.0], [2, 1]), True)
def test_figures_of_set_measures_are_those_of_the_definition_over_every_ordering(
    name: str, case: Case, as_dict: bool
) -> None:
    check_by_enumeration(name, SETS, case, as_dict)


# ------------------------------------------------------------------- laws every measure obeys


@pytest.mark.parametrize(("case", "specs"), BULK)
@pytest.mark.parametrize("order", ORDERS)
def test_no_tie_break_leaves_the_range(case: Case, specs: list[str], order: Order) -> None:
    for spec, queries in figures(case, specs, order=order).items():
        for query, row in queries.items():
            if not math.isnan(row["expected"]):
                assert row["min"] <= row["expected"] <= row["max"], (spec, query, row)
                assert row["min"] <= row["oblivious"] <= row["max"], (spec, query, row)


@pytest.mark.parametrize(("case", "specs"), BULK)
def test_without_ties_nothing_is_uncertain(case: Case, specs: list[str]) -> None:
    rng = Random(5)
    scores = rng.sample(range(10 * len(case.run)), len(case.run))
    run = tuple((q, d, float(s)) for (q, d, _), s in zip(case.run, scores, strict=True))
    for spec, queries in figures(replace(case, run=run), specs).items():
        for row in queries.values():
            assert same(row["min"], row["max"]), (spec, row)
            assert same(row["expected"], row["oblivious"]), (spec, row)
            if not math.isnan(row["expected"]):
                assert row["expected"] == row["min"], (spec, row)
                assert row["std"] in (0.0, None), (spec, row)


@pytest.mark.parametrize(("case", "specs"), BULK)
def test_the_order_of_rows_changes_nothing_but_oblivious(case: Case, specs: list[str]) -> None:
    before = figures(case, specs)
    for seed in range(3):
        after = figures(case.shuffled(Random(seed)), specs)
        for spec in specs:
            for query in case.queries:
                for name in ("expected", "min", "max", "std"):
                    a, b = before[spec][query][name], after[spec][query][name]
                    assert same(a, b), (spec, query, name, a, b)


@pytest.mark.parametrize(("case", "specs"), BULK)
def test_a_cutoff_past_the_list_changes_only_what_divides_by_it(
    case: Case, specs: list[str]
) -> None:
    divided = {"P", "F1", "P4", "Harm"}
    near, far = 128, 1024  # both past every list and pool
    measures = [m for m in map(rp.parse, specs) if m.definition.takes_cutoff]
    optional = [str(replace(m, cutoff=None)) for m in measures if not m.definition.needs_cutoff]
    found = figures(case, [str(m @ k) for m in measures for k in (near, far)] + optional)
    for measure in measures:
        parameters: dict[str, Any] = dict(measure.resolved)
        rel = parameters.get("rel", 1)
        for query in case.queries:
            wanted = sum(grade >= rel for grade in case.pool(query)) if measure.name == "F1" else 0
            for name in FIGURES:
                a, b = (found[str(measure @ k)][query][name] for k in (near, far))
                where = (measure, query, name)
                if measure.name in divided:
                    b *= (far + wanted) / (near + wanted)
                    assert a == pytest.approx(b, rel=1e-14, abs=0), where
                    continue
                assert same(a, b), where
                if not measure.definition.needs_cutoff:
                    whole = str(replace(measure, cutoff=None))
                    assert same(a, found[whole][query][name]), where


@given(case=GRADED_CASES)
def test_candidates_only_takes_what_was_retrieved_for_all_there_is(case: Case) -> None:
    specs = [spec for spec in GRADED if spec not in OPEN_SCALE]  # the scale is the qrels'
    retrieved = {(query, doc) for query, doc, _ in case.run}
    kept = tuple(row for row in case.qrels if row[:2] in retrieved)
    result = rp.evaluate(case.qrels, case.run, specs, candidates_only=True)
    found = figures(case, specs, candidates_only=True)
    restricted = Case(case.run, kept)
    if any(query in restricted.queries for query, _, _ in case.run):
        for spec, queries in figures(restricted, specs).items():
            for query, row in queries.items():
                assert all(same(row[name], found[spec][query][name]) for name in FIGURES), spec
    for measure in result:
        for query in case.queries:  # also those of which nothing judged was retrieved
            pool = restricted.pool(query)
            value = by_definition(measure, case.ranked(query, "input"), pool, case.max_grade)
            oblivious = found[str(measure)][query]["oblivious"]
            assert oblivious == pytest.approx(value, rel=0, abs=1e-9, nan_ok=True)


MISSING = Case(
    run=(("a", "d1", 1.0), ("a", "d2", 1.0), ("c", "d1", 0.5), ("x", "d1", 0.5)),
    qrels=(("a", "d1", 2), ("a", "d3", 1), ("b", "d1", 1), ("b", "d2", 3), ("c", "d1", 0)),
)


NOT_ZERO = ("NumRel", "NumRel(rel=2)", "RBPResidual", "RBPResidual(p=0.5)@2", "GMAP", "GMAP(rel=2)")


def test_a_missing_query_keeps_what_no_list_decides() -> None:
    rows = query_values(rp.evaluate(MISSING.qrels, MISSING.run, NOT_ZERO, missing="zero"))
    assert [row["expected"] for row in rows if row["query"] == "b"] == [
        2.0,
        1.0,
        1.0,
        1.0,
        1e-5,
        1e-5,
    ]


@pytest.mark.parametrize("spec", [spec for spec in GRADED if spec not in NOT_ZERO])
def test_a_missing_query_scores_zero(spec: str) -> None:
    result = rp.evaluate(MISSING.qrels, MISSING.run, spec, missing="zero")
    assert (result.missing, result.unjudged) == (1, 1)
    rows = {row["query"]: row for row in query_values(result)}
    assert list(rows) == ["a", "b", "c"]
    assert [rows["b"][name] for name in ("expected", "min", "max", "oblivious")] == [0.0] * 4
    assert rows["b"]["std"] in (0.0, None)
    counted = result.outcomes[rp.parse(spec)].in_mean()
    defined = [value for value in counted.tolist() if not math.isnan(value)]
    assert (result[spec].queries, result[spec].undefined) == (len(defined), 3 - len(defined))
    assert result[spec].expected == pytest.approx(sum(defined) / len(defined), rel=1e-15)


@pytest.mark.parametrize("spec", GRADED)
def test_skipping_a_missing_query_leaves_the_others_as_they_were(spec: str) -> None:
    result = rp.evaluate(MISSING.qrels, MISSING.run, spec, missing="skip")
    assert (result.missing, result.unjudged) == (1, 1)
    zero, skip = (figures(MISSING, [spec], missing=how)[spec] for how in ("zero", "skip"))
    assert list(skip) == ["a", "c"]
    for query, row in skip.items():
        assert all(same(row[name], zero[query][name]) for name in FIGURES), (query, row)


@pytest.mark.parametrize(("case", "specs"), BULK)
def test_a_summary_is_over_the_queries_that_count_and_define_the_measure(
    case: Case, specs: list[str]
) -> None:
    result = rp.evaluate(case.qrels, case.run, specs)
    for measure in result:
        summary = result[measure]
        if measure.definition.geometric:
            continue
        counted = ~np.isnan(result.outcomes[measure].in_mean())
        rows = result.per_query.filter(pl.col("measure") == str(measure)).filter(pl.Series(counted))
        assert summary.queries == len(rows)
        assert summary.queries + summary.undefined == len(case.queries)
        for name in ("expected", "min", "max", "oblivious"):
            assert getattr(summary, name) == pytest.approx(rows[name].mean(), rel=1e-13)
        assert summary.range == summary.max - summary.min
        assert summary.bias == summary.oblivious - summary.expected
        if summary.std is None:
            assert rows["std"].null_count() == len(rows)
        else:
            assert summary.std == pytest.approx(
                math.sqrt((rows["std"] ** 2).sum()) / len(rows), rel=1e-13
            )


def test_measures_of_one_table_are_means_over_one_set_of_queries() -> None:
    run = {q: {"d": 1.0, "e": 0.5} for q in ("q1", "q2", "q3")}
    qrels = {"q1": {"e": 1}, "q2": {"d": 1}, "q3": {"d": 0}}
    result = rp.evaluate(qrels, run, ["AP", "RR", "nDCG@10", "P@1", "Success@1", "Judged@1"])
    assert {result[m].queries for m in result} == {2}
    assert result["AP"].expected == result["RR"].expected == 0.75
    assert result.per_query.filter(measure="RR")["expected"].to_list() == [0.5, 1.0, None]
    like = rp.evaluate(qrels, run, ["AP", "RR"], like="trec_eval")
    assert {like[m].queries for m in like} == {3}, "as trec_eval does"


# ------------------------------------------------------- groups too large for enumeration


def tied_query(size: int, grades: Sequence[int]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """One query whose `size` documents all tie; the judged ones lie scattered among them."""
    docs = pl.int_range(size, eager=True).cast(pl.String)
    run = pl.DataFrame({"query": pl.repeat("q", size, eager=True), "doc": docs, "score": 1.0})
    judged = docs.sample(len(grades), seed=1)
    query = pl.repeat("q", len(grades), eager=True)
    return pl.DataFrame({"query": query, "doc": judged, "grade": list(grades)}), run


MILLION = 1_000_000


def test_a_million_tied_documents_with_one_relevant() -> None:
    """The one stands at every rank equally often: all is a mean over 1 … n."""
    qrels, run = tied_query(MILLION, [1])
    result = rp.evaluate(qrels, run, ["RR", "AP", "nDCG", "ERR", "R@10", "Success@10"])
    harmonic = math.fsum(1 / r for r in range(1, MILLION + 1))
    squares = math.fsum(1 / r**2 for r in range(1, MILLION + 1))
    discounts = math.fsum(1 / math.log2(r + 1) for r in range(1, MILLION + 1))
    mean = harmonic / MILLION
    std = math.sqrt(squares / MILLION - mean**2)
    for spec in ("RR", "AP"):
        assert result[spec].expected == pytest.approx(mean, rel=1e-11)
        assert result[spec].std == pytest.approx(std, rel=1e-11)
        assert (result[spec].min, result[spec].max) == (1 / MILLION, 1.0)
    assert result["nDCG"].expected == pytest.approx(discounts / MILLION, rel=1e-11)
    assert result["nDCG"].min == pytest.approx(1 / math.log2(MILLION + 1), rel=1e-15)
    assert result["ERR"].expected == pytest.approx(0.5 * mean, rel=1e-9)
    assert result["R@10"].expected == pytest.approx(10 / MILLION, rel=1e-9)
    assert result["Success@10"].expected == pytest.approx(10 / MILLION, rel=1e-9)


def test_a_million_tied_documents_with_a_thousand_relevant() -> None:
    g, m = MILLION, 1000
    qrels, run = tied_query(g, [1] * m)
    result = rp.evaluate(qrels, run, ["RR", "AP", "nDCG"])
    # P(first at t) = C(g−t, m−1)/C(g, m), by logarithms of factorials
    whole = math.lgamma(g + 1) - math.lgamma(m + 1) - math.lgamma(g - m + 1)
    reciprocal = math.fsum(
        math.exp(math.lgamma(g - t + 1) - math.lgamma(m) - math.lgamma(g - t - m + 2) - whole) / t
        for t in range(1, 40_000)  # what is left past here has a chance of e^−40
    )
    assert result["RR"].expected == pytest.approx(reciprocal, rel=1e-6)
    # A relevant document at rank r finds (r−1)(m−1)/(g−1) others before it, on average.
    harmonic = math.fsum(1 / r for r in range(1, g + 1))
    average = (harmonic + (m - 1) / (g - 1) * (g - harmonic)) / g
    assert result["AP"].expected == pytest.approx(average, rel=1e-11)
    discounts = [1 / math.log2(r + 1) for r in range(1, g + 1)]
    ideal = math.fsum(discounts[:m])
    expected = m / g * math.fsum(discounts) / ideal
    assert result["nDCG"].expected == pytest.approx(expected, rel=1e-11)


def test_every_figure_of_a_million_tied_documents_is_sensible() -> None:
    for specs, grades in ((GRADED, [0, 1, 2, 3] * 5), (SETS, [1, 2, 3, 4, 5] * 4)):
        qrels, run = tied_query(MILLION, grades)
        result = rp.evaluate(qrels, run, specs)
        for measure in result:
            s = result[measure]
            many = measure.name in ("Hits", "NumRet", "NumRel", "NumRelRet", "DCG")
            assert 0 <= s.min <= s.expected <= s.max <= (10 if not many else MILLION)
            assert s.min <= s.oblivious <= s.max
            # A variable in [min, max] with that mean has no larger variance (Bhatia–Davis).
            if s.std is not None:
                bound = (s.max - s.expected) * (s.expected - s.min)
                assert 0 <= s.std**2 <= bound * (1 + 1e-9), measure


def test_interpolated_precisions_of_a_hundred_thousand_ties_of_one_query() -> None:
    """Of each pair one is relevant: V is the precision of the first pair where it stands first."""
    pairs = 100_000
    scores = np.repeat(np.arange(pairs)[::-1], 2)[None, :]
    result = rp.evaluate_arrays(scores, np.tile([1, 0], pairs)[None, :], ["IPrec@0.5", "AP11"])

    def moment(level: float, power: int) -> float:
        before = max(int(level * pairs + 0.9), 1) - 1
        ranks = range(before, min(before + 60, pairs))  # what is left has a chance of 2^-60
        shares = [2.0 ** (before - k - 1) for k in ranks]
        over = [((k + 1) / (2 * k + 1) - 0.5) ** power for k in ranks]
        return math.fsum(map(math.prod, zip(shares, over, strict=True)))

    mean = moment(0.5, 1)
    assert result["IPrec@0.5"].expected == pytest.approx(0.5 + mean, rel=1e-14)
    assert result["IPrec@0.5"].std == pytest.approx((moment(0.5, 2) - mean**2) ** 0.5, rel=1e-6)
    eleven = math.fsum(0.5 + moment(number / 10, 1) for number in range(11)) / 11
    assert result["AP11"].expected == pytest.approx(eleven, rel=1e-14)


@pytest.mark.parametrize("held", [1, 3, 12, 40])
def test_the_chances_of_an_interpolated_precision_are_one_by_document_and_by_position(
    held: int,
) -> None:
    rng = np.random.default_rng(held)
    barred = np.sort(rng.integers(0, 2 * np.arange(1, held + 1), (50, held)), axis=1)
    found = interpolated_precision._by_document(60, barred)
    assert found == pytest.approx(interpolated_precision._by_position(60, barred), rel=1e-12)
    assert found.max() > 0


def test_inferred_ap_of_a_long_tie_of_which_all_that_is_judged_is_relevant_is_its_ap() -> None:
    """But for what ε takes off each but the first, which has 1/rank log 2 on average."""
    size, held = 200_000, 100_000
    result = rp.evaluate(*tied_query(size, [1] * held), ["infAP", "AP"])
    harmonic = math.fsum(1 / r for r in range(1, size + 1))
    less = 0.00001 * (harmonic / size - math.log(2) / held)
    assert result["infAP"].expected == pytest.approx(result["AP"].expected - less, rel=1e-14)


@pytest.mark.parametrize(("ahead", "good", "bad", "pooled"), [(0, 9, 5, 40), (7, 12, 0, 30)])
def test_the_least_inferred_ap_has_its_pooled_documents_in_the_worst_place(
    ahead: int, good: int, bad: int, pooled: int
) -> None:
    head = [1] * ahead
    grades = head + [0] * bad + [1] * good + [-1] * pooled
    case = one_query([2.0] * ahead + [1.0] * (len(grades) - ahead), grades)
    row = figures(case, ["infAP"])["infAP"]["q"]
    orders = (
        head + [0] * bad + [-1] * first + [1] * good + [-1] * (pooled - first)
        for first in range(pooled + 1)
    )
    values = [by_definition(rp.parse("infAP"), order, case.pool("q"), 1) for order in orders]
    assert row["min"] == pytest.approx(min(values), rel=1e-13)


def test_the_mean_of_a_geometric_measure_is_the_geometric_one() -> None:
    run = {"a": {"x": 1.0, "y": 1.0}, "b": {"x": 2.0, "y": 1.0}, "c": {"z": 1.0}}
    qrels = {"a": {"x": 1}, "b": {"y": 1}, "c": {"x": 1}}
    found = rp.evaluate(qrels, run, ["GMAP", "AP"])["GMAP"]
    root = (1.0 + 0.5 ** (1 / 3)) / 2 * (0.5 * 0.00001) ** (1 / 3)  # either order of query a
    assert found.expected == pytest.approx(root, rel=1e-12)
    assert found.max == pytest.approx((1.0 * 0.5 * 0.00001) ** (1 / 3), rel=1e-12)
    assert found.std is not None


def ap_by_recursion(c: int, before: int, g: int, m: int, cutoff: int | None) -> tuple[float, float]:
    """Mean and variance of Σ precision over a group, position after position.

    State: j relevant documents so far; kept are its chance and the first two moments of the sum.
    """
    j = np.arange(m + 1)
    chance, first, second = (np.zeros(m + 1) for _ in range(3))
    chance[0] = 1.0
    for i in range(g):
        hit = (m - j) / (g - i)  # 0 at j = m
        gain = (before + j + 1) / (c + i + 1) if cutoff is None or c + i < cutoff else 0.0 * j
        moved = (
            hit * chance,
            hit * (first + gain * chance),
            hit * (second + 2 * gain * first + gain**2 * chance),
        )
        stay = np.clip(1 - hit, 0, None)
        chance, first, second = (
            stay * x + np.concatenate([[0.0], y[:-1]])
            for x, y in zip((chance, first, second), moved, strict=True)
        )
    return first.sum(), second.sum() - first.sum() ** 2


@pytest.mark.parametrize("cutoff", [None, 7, 20, 33, 1500])
@pytest.mark.parametrize(
    ("c", "before", "g", "m"),
    [
        (0, 0, 30, 1),
        (0, 0, 30, 12),
        (0, 0, 30, 29),
        (5, 3, 30, 15),
        (9, 0, 31, 2),
        (4, 4, 2000, 60),
    ],
)
def test_average_precision_of_a_large_group_matches_a_recursion_over_positions(
    c: int, before: int, g: int, m: int, cutoff: int | None
) -> None:
    ranks = [i < before for i in range(c)]
    grades = [int(x) for x in ranks] + [1] * m + [0] * (g - m)
    scores = [float(c - i) for i in range(c)] + [0.0] * g
    unretrieved = 3
    case = one_query(scores, grades, [1] * unretrieved)
    spec = "AP" if cutoff is None else f"AP@{cutoff}"
    [row] = figures(case, [spec])[spec].values()
    mean, variance = ap_by_recursion(c, before, g, m, cutoff)
    certain = sum(1.0 for rank in range(1, before + 1) if cutoff is None or rank <= cutoff)
    relevant = before + m + unretrieved
    assert row["expected"] == pytest.approx((certain + mean) / relevant, rel=1e-11)
    assert row["std"] ** 2 == pytest.approx(variance / relevant**2, rel=1e-8, abs=1e-15)


def test_figures_of_long_lists_match_seeded_sampling() -> None:
    """Two thousand documents in groups of hundreds, by five standard errors of 250 samples."""
    rng = Random(20)
    size, samples = 2000, 250
    grades: list[int | None] = [None] * 900 + [0] * 1040 + [1] * 30 + [2] * 20 + [3] * 10
    rng.shuffle(grades)
    scores = [float(rng.choice([3, 2, 2, 1, 1, 1])) for _ in grades]
    case = one_query(scores, grades, [1, 3])
    specs = ["RR", "RR(rel=3)@100", "nDCG", "nDCG(gain='exp')@50", "AP", "AP@100", "ERR", "ERR@20",
             "RBP", "bpref", "Rprec", "Success(rel=2)@9", "R@500", "Judged@300"]  # fmt: skip
    found = {spec: rows["q"] for spec, rows in figures(case, specs).items()}
    drawn: dict[str, list[float]] = {spec: [] for spec in specs}
    order = list(range(size))
    for _ in range(samples):
        rng.shuffle(order)
        ranked = [grades[i] for i in sorted(order, key=lambda i: -scores[i])]
        for spec in specs:
            drawn[spec].append(by_definition(rp.parse(spec), ranked, case.pool("q"), 3))
    for spec, values in drawn.items():
        spread = float(np.std(values))
        assert abs(found[spec]["expected"] - np.mean(values)) <= 5 * spread / samples**0.5, spec
        if found[spec]["std"] is not None:
            assert found[spec]["std"] == pytest.approx(spread, rel=0.25), spec
