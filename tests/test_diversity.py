"""Measures of documents that cover aspects: against enumeration and ndeval, in every command."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, permutations, product
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from oracles import ASPECT_ORACLES, Aspects

import rankproof as rp
from rankproof.data.aspect_rows import ASPECT_MEASURES
from rankproof.measures import REGISTRY, Measure, diversity

SPECS = [
    "alpha_nDCG@1", "alpha_nDCG@3", "alpha_nDCG(alpha=0.3)@4", "alpha_nDCG(alpha=1.0,rel=2)@5",
    "alpha_nDCG(alpha=0.0)@2", "alpha_nDCG@20",
    "alpha_DCG@1", "alpha_DCG@3", "alpha_DCG(alpha=0.9)@4", "alpha_DCG(rel=2)@20",
    "ERR_IA@1", "ERR_IA@3", "ERR_IA(rel=2)@20", "nERR_IA@1", "nERR_IA@4", "nERR_IA(rel=2)@20",
    "P_IA@1", "P_IA@3", "P_IA(rel=2)@20", "AP_IA", "AP_IA@3", "AP_IA(rel=2)@5",
    "StRecall@1", "StRecall@2", "StRecall@4", "StRecall(rel=2)@3", "StRecall@20",
]  # fmt: skip
NUGGETS = [
    *("StRecall@2", "StRecall(nuggets=vital)@1", "StRecall(nuggets=vital)@3"),
    *("StRecall(partial=1)@2", "StRecall(nuggets=vital,partial=1)@3", "alpha_nDCG@3"),
]
FIGURES = ("expected", "min", "max", "oblivious")


@dataclass(frozen=True)
class Case:
    """A query: what judged documents cover, the scores of a run, and which nuggets are vital."""

    judged: Mapping[str, Aspects]
    scores: Mapping[str, float]
    vital: frozenset[str] | None = None

    @property
    def pool(self) -> list[Aspects]:
        return [self.judged[doc] for doc in sorted(self.judged, reverse=True)]

    @property
    def rows(self) -> list[tuple[str, str, str, int]]:
        return [("q", a, doc, grade) for doc, of in self.judged.items() for a, grade in of.items()]

    def orders(self) -> Iterator[list[Aspects | None]]:
        best_first = sorted(self.scores, key=lambda doc: -self.scores[doc])
        tied = [list(docs) for _, docs in groupby(best_first, lambda doc: self.scores[doc])]
        for order in product(*(permutations(docs) for docs in tied)):
            yield [self.judged.get(doc) for docs in order for doc in docs]

    def by_definition(self, measure: Measure, ranked: list[Aspects | None]) -> float:
        parameters: dict[str, Any] = dict(measure.explicit)
        if measure.name == "StRecall":
            parameters["vital"] = self.vital
        oracle = ASPECT_ORACLES[measure.name]
        return oracle(ranked, self.pool, measure.cutoff, **parameters)


def random_case(rng: Random, longest: int = 6, nuggets: bool = False) -> Case:
    """A few documents in which ties abound; some judged ones are not listed, some are unjudged."""
    docs = rng.sample([f"d{i}" for i in range(20)], rng.randint(2, longest + 3))
    names = [f"aspect-{i}" for i in range(rng.randint(1, 4))]
    grades = (-1, 0, 1) if nuggets else (0, 1, 1, 2)
    chosen = rng.sample(docs, rng.randint(1, len(docs)))
    judged = {
        doc: {
            name: rng.choice(grades)
            for name in names
            if nuggets or rng.random() < rng.choice((0.3, 0.8))
        }
        for doc in chosen
    }
    judged = {doc: of for doc, of in judged.items() if of}
    listed = docs[: rng.randint(1, min(longest, len(docs)))]
    palette = rng.choice([(1.0,), (2.0, 1.0), (3.0, 2.0, 1.0), tuple(map(float, range(9)))])
    scores = {doc: rng.choice(palette) for doc in listed}
    vital = frozenset(name for name in names if rng.random() < 0.5) if nuggets else None
    return Case(judged or {docs[0]: {names[0]: 1}}, scores, vital)


def write_nuggets(case: Case, path: Path) -> Path:
    """The case as nuggetizer's retrieval assignments."""
    words = {1: "support", 0: "partial_support", -1: "not_support"}
    lines = [
        json.dumps(
            {
                "text": "a question",
                "qid": "q",
                "candidate_text": "a passage",
                "docid": doc,
                "nuggets": [
                    {
                        "text": name,
                        "importance": "vital" if name in (case.vital or ()) else "okay",
                        "assignment": words[grade],
                    }
                    for name, grade in of.items()
                ],
            }
        )
        for doc, of in case.judged.items()
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def check_by_enumeration(case: Case, specs: list[str], qrels: Any, depth: int | None = None) -> int:
    """Compare every figure with the definition; return how many were compared."""
    orders = [ranked[:depth] for ranked in case.orders()]
    evaluation = rp.evaluate(qrels, {"q": case.scores}, specs, depth=depth)
    compared = 0
    for measure, outcomes in evaluation.outcomes.items():
        values = [case.by_definition(measure, ranked) for ranked in orders]
        wanted = (fmean(values), min(values), max(values), values[0])
        assert outcomes.is_bound is None
        for figure, value in zip(FIGURES, wanted, strict=True):
            actual = float(getattr(outcomes, figure)[0])
            same = math.isnan(actual) if math.isnan(value) else abs(actual - value) < 1e-12
            assert same, (case, str(measure), figure, actual, value)
            compared += 1
    return compared


@pytest.mark.parametrize("seed", range(60))
def test_aspects_agree_with_enumeration(seed: int) -> None:
    case = random_case(Random(seed))
    assert check_by_enumeration(case, SPECS, rp.read_qrels(case.rows, aspects=True))


@pytest.mark.parametrize("seed", range(30))
def test_lists_that_end_at_a_depth_agree_with_enumeration(seed: int) -> None:
    case = random_case(Random(seed))
    qrels = rp.read_qrels(case.rows, aspects=True)
    assert check_by_enumeration(case, SPECS, qrels, depth=1 + seed % 5)


@pytest.mark.parametrize("seed", range(20))
def test_nuggets_agree_with_enumeration(seed: int, tmp_path: Path) -> None:
    case = random_case(Random(seed), nuggets=True)
    assert check_by_enumeration(case, NUGGETS, write_nuggets(case, tmp_path / "nuggets.jsonl"))


# ------------------------------------------------------------------------------------ large ties


@pytest.mark.parametrize("seed", range(20))
def test_extremes_of_ties_too_large_to_search_are_bounds_and_a_note_says_so(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diversity, "_STATES", 1)
    case = random_case(Random(seed))
    orders = list(case.orders())
    qrels = rp.read_qrels(case.rows, aspects=True)
    evaluation = rp.evaluate(qrels, {"q": case.scores}, SPECS)
    for measure, outcomes in evaluation.outcomes.items():
        values = [case.by_definition(measure, ranked) for ranked in orders]
        if math.isnan(values[0]):
            continue
        assert outcomes.min[0] <= min(values) + 1e-12
        assert outcomes.max[0] >= max(values) - 1e-12
        assert outcomes.expected[0] == pytest.approx(fmean(values), abs=1e-12)
        is_bound = outcomes.is_bound is not None
        assert is_bound == any(note.startswith(f"{measure}: lowest") for note in evaluation.notes)
        if not is_bound:
            assert (outcomes.min[0], outcomes.max[0]) == pytest.approx((min(values), max(values)))


def test_a_tie_of_thousands_takes_little_time_and_memory() -> None:
    rng = Random(5)
    rows = [
        ("q", str(aspect), f"d{i}", 1)
        for i in range(3000)
        for aspect in rng.sample(range(40), rng.randint(1, 6))
    ]
    qrels = rp.read_qrels(rows, aspects=True)
    run = {"q": {f"d{i}": 1.0 for i in range(6000)}}
    measures = ["alpha_nDCG@20", "ERR_IA@1000", "AP_IA", "StRecall@50", "P_IA@10"]
    evaluation = rp.evaluate(qrels, run, measures)
    for measure in measures:
        summary = evaluation[measure]
        assert 0 <= summary.min < summary.expected < summary.max <= rp.parse(measure).upper
    share = len({row[2] for row in rows}) / 6000
    covered = len(rows) / 3000 * share / 40
    assert evaluation["P_IA@10"].expected == pytest.approx(covered)


# --------------------------------------------------------------------------------------- ndeval


def test_values_without_ties_are_those_of_ndeval() -> None:
    pyndeval = pytest.importorskip("pyndeval")
    names = {
        "alpha_nDCG": "alpha-nDCG", "alpha_DCG": "alpha-DCG", "ERR_IA": "ERR-IA",
        "nERR_IA": "nERR-IA", "P_IA": "P-IA", "StRecall": "strec",
    }  # fmt: skip
    compared = 0
    for seed in range(60):
        rng = Random(seed)
        cases = {f"q{n}": random_case(rng, longest=15) for n in range(3)}
        rows = [(q, *row[1:]) for q, case in cases.items() for row in case.rows]
        run = {q: {doc: rng.random() for doc in case.scores} for q, case in cases.items()}
        k, alpha, rel = rng.randint(1, 20), rng.choice([0.0, 0.3, 0.5, 1.0]), rng.choice([1, 2])
        theirs = {}
        for ours, name in names.items():
            parameter = f"alpha={alpha}," if ours.startswith("alpha") else ""
            theirs[f"{ours}({parameter}rel={rel})@{k}"] = f"{name}@{k}"
        theirs[f"AP_IA(rel={rel})"] = "MAP-IA"
        judge = pyndeval.RelevanceEvaluator(rows, theirs.values(), rel, alpha)
        fixed = pyndeval.RelevanceEvaluator(rows, theirs.values(), rel)  # ir_measures' ERR_IA
        lists = [(q, doc, score) for q, listed in run.items() for doc, score in listed.items()]
        by_alpha, by_half = judge.evaluate(lists), fixed.evaluate(lists)
        qrels = rp.read_qrels(rows, aspects=True)
        values = rp.evaluate(qrels, run, list(theirs), like="ir_measures").per_query
        for row in values.iter_rows(named=True):
            peer = by_half if "ERR" in row["measure"] else by_alpha
            value = peer[row["query"]][theirs[row["measure"]]]
            if not math.isnan(value):  # ndeval divides by 0 where nothing is relevant
                assert row["expected"] == pytest.approx(value, abs=1e-12, rel=0), (seed, row)
                compared += 1
    assert compared > 1000


def test_the_example_of_two_documents(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("1 1 d1 1\n1 2 d1 1\n1 2 d2 1\n")
    (tmp_path / "run").write_text("1 Q0 d1 1 2 t\n1 Q0 d2 2 1 t\n")
    measures = [f"{name}@5" for name in ("alpha_nDCG", "alpha_DCG", "nERR_IA", "ERR_IA")]
    measures += ["StRecall@5", "P_IA@5", "AP_IA", "nDCG@5"]
    evaluation = rp.evaluate(tmp_path / "qrels", tmp_path / "run", measures)
    values = [round(evaluation[measure].expected, 4) for measure in measures]
    assert values == [1.0, 0.7624, 1.0, 0.8169, 1.0, 0.3, 1.0, 1.0]


# -------------------------------------------------------------------------------------- reading


def test_aspect_measures_are_those_that_errors_name() -> None:
    assert {n for n, d in REGISTRY.items() if d.reads == "aspects"} == set(ASPECT_MEASURES)


def as_inputs(rows: list[tuple[str, str, str, int]], folder: Path) -> Iterator[Any]:
    """The same judgments of aspects in every form that is read."""
    import pandas as pd
    import polars as pl

    frame = pl.DataFrame(rows, ["query", "aspect", "doc", "grade"], orient="row")
    yield from (rows, frame, frame.to_pandas(), frame.to_dicts(), frame.lazy())
    yield pd.DataFrame(rows, columns=["query_id", "iteration", "doc_id", "relevance"])
    frame.write_csv(folder / "a.csv")
    frame.write_csv(folder / "a.tsv", separator="\t")
    frame.write_parquet(folder / "a.parquet")
    frame.write_ipc(folder / "a.arrow")
    frame.write_ndjson(folder / "a.jsonl")
    (folder / "a.json").write_text(json.dumps(frame.to_dicts()))
    (folder / "a.qrels").write_text("".join(f"{q} {a} {d} {g}\n" for q, a, d, g in rows))
    yield from (folder / f"a.{end}" for end in ("csv", "tsv", "parquet", "arrow"))
    yield from (folder / f"a.{end}" for end in ("jsonl", "json", "qrels"))


def test_every_form_of_input_gives_the_same_values(tmp_path: Path) -> None:
    rng = Random(2)
    cases = {f"q{n}": random_case(rng) for n in range(4)}
    rows = [(q, *row[1:]) for q, case in cases.items() for row in case.rows]
    run = {q: dict(case.scores) for q, case in cases.items()}
    tables = [rp.evaluate(each, run, SPECS).per_query for each in as_inputs(rows, tmp_path)]
    assert len(tables) == 13
    assert all(table.equals(tables[0], null_equal=True) for table in tables)


def test_other_measures_take_the_highest_grade_over_aspects() -> None:
    rows = [("q", "1", "a", 1), ("q", "2", "a", 3), ("q", "1", "b", 2), ("q", "1", "c", 0)]
    run = {"q": {"c": 3, "b": 2, "a": 1}}
    best = rp.evaluate({"q": {"a": 3, "b": 2, "c": 0}}, run, ["nDCG@3", "AP"])
    both = rp.evaluate(rows, run, ["nDCG@3", "AP", "StRecall@3"])
    assert [best[m].expected for m in best] == [both[m].expected for m in best]


@pytest.mark.parametrize(
    ("text", "measure", "words"),
    [
        ("1 1 d 1\n1 2 d 1\n", "nDCG", r"qrels:2: .*a second time.*ask for alpha_nDCG, alpha_DCG"),
        ("1 1 d 1\n1 1 d 1\n", "AP_IA", r"qrels:2: .*second time for aspect '1'"),
        ("1 1 d x\n1 1 d 1\n", "AP_IA", r"qrels:1: grade 'x' is not a number"),
        ("1 d 1\n", "AP_IA", r"plain holds no aspects"),
        ('{"1": {"d": 1}}', "AP_IA", r"a dict holds no aspects"),
        ("query,doc,grade\n1,d,1\n", "AP_IA", r"no column 'aspect'"),
        ("1 1 d 1\n", "StRecall(nuggets=vital)@5", r"needs nuggets; name nuggetizer's"),
        ('{"qid": "1", "nuggets": [], "answer_text": "a"}', "AP_IA", r"no docid: they judge answ"),
        ('{"qid": "1", "docid": "d", "nuggets": [{"text": "a"}]}', "AP_IA", r"no importance"),
    ],
)
def test_judgments_that_do_not_fit_are_refused_in_one_line(
    tmp_path: Path, text: str, measure: str, words: str
) -> None:
    (tmp_path / "qrels").write_text(text)
    with pytest.raises(rp.RankproofError, match=words) as error:
        rp.evaluate(tmp_path / "qrels", {"1": {"d": 1.0}}, measure)
    assert "\n" not in str(error.value)


def test_judgments_without_aspects_are_refused() -> None:
    qrels = rp.read_qrels({"q": {"a": 1}})
    with pytest.raises(rp.RankproofError, match="were read without aspects"):
        rp.evaluate(qrels, {"q": {"a": 1}}, "AP_IA")
    with pytest.raises(rp.MeasureError, match="needs judgments with aspects"):
        rp.evaluate_arrays([[2, 1]], [[1, 0]], "AP_IA")


def test_a_single_aspect_per_query_is_noted() -> None:
    evaluation = rp.evaluate([("q", "0", "a", 1)], {"q": {"a": 1}}, "alpha_nDCG@3")
    assert "no query of qrels has two aspects: are these diversity judgments?" in evaluation.notes


def test_ordinary_measures_read_nuggets_as_judgments(tmp_path: Path) -> None:
    case = Case(
        {"a": {"x": 1, "y": -1}, "b": {"x": 0, "y": -1}}, {"b": 2.0, "a": 1.0}, frozenset("x")
    )
    path = write_nuggets(case, tmp_path / "nuggets.jsonl")
    evaluation = rp.evaluate(path, {"q": case.scores}, ["RR", "StRecall@2", "StRecall@1"])
    assert [evaluation[m].expected for m in evaluation] == [0.5, 0.5, 0.0]


# ------------------------------------------------------------------------------------- commands


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Judgments of aspects of 12 queries, and two runs with ties and unjudged documents."""
    folder, rng = tmp_path_factory.mktemp("diversity"), Random(4)
    docs = [f"d{i}" for i in range(30)]
    rows = [
        f"q{q} {aspect} {doc} {rng.choice([0, 1, 2])}\n"
        for q in range(12)
        for doc in rng.sample(docs, 15)
        for aspect in rng.sample("abcd", rng.randint(1, 3))
    ]
    (folder / "qrels").write_text("".join(rows))
    for name in ("one", "two"):
        lines = [
            f"q{q} Q0 {doc} 1 {rng.randint(1, 6)} {name}\n"
            for q in range(12)
            for doc in rng.sample(docs, 20)
        ]
        (folder / name).write_text("".join(lines))
    return folder


EVERY = ["alpha_nDCG@5", "alpha_DCG@5", "ERR_IA@5", "nERR_IA@5", "P_IA@5", "AP_IA", "StRecall@5"]


def test_a_run_read_in_parts_has_the_same_values(files: Path, tmp_path: Path) -> None:
    whole = rp.evaluate(files / "qrels", files / "one", EVERY)
    lines = (files / "one").read_text().splitlines(keepends=True)
    (tmp_path / "shards").mkdir()
    for at in range(3):  # queries are spread over the shards
        (tmp_path / "shards" / f"{at}.trec").write_text("".join(lines[at::3]))
    parts = rp.evaluate(files / "qrels", tmp_path / "shards", EVERY)
    for figure in ("expected", "min", "max"):
        a, b = ([getattr(e[m], figure) for m in EVERY] for e in (whole, parts))
        assert a == b, figure
    runs = {"a": files / "one", "b": files / "two"}
    flips = rp.compare(files / "qrels", runs, EVERY).pairs[0].measures
    shards = {"a": tmp_path / "shards", "b": files / "two"}
    again = rp.compare(files / "qrels", shards, EVERY).pairs[0].measures
    for measure, difference in flips.items():
        assert difference.expected == pytest.approx(again[measure].expected, abs=1e-15)
        assert difference.flip == pytest.approx(again[measure].flip, abs=0.05)


def test_a_random_order_flips_a_difference_as_often_as_it_should(files: Path) -> None:
    """The orders that are drawn have the mean that the closed form has."""
    from rankproof.statistics import flips

    evaluation = rp.evaluate(files / "qrels", files / "one", EVERY)
    assert evaluation.ties is not None
    queries = np.arange(len(evaluation.queries))
    for measure, outcomes in evaluation.outcomes.items():
        generator = flips.run_generator("one", 0)
        sums = flips.drawn_sums(
            evaluation.ties, measure, queries, outcomes.expected, None, generator
        )
        assert abs(sums.mean()) < 5 * sums.std() / math.sqrt(len(sums)), measure


def test_every_command_takes_the_measures(files: Path) -> None:
    runs = {"a": files / "one", "b": files / "two"}
    qrels = files / "qrels"
    assert len(rp.leaderboard(qrels, runs, EVERY).runs) == 2
    gate = rp.gate(qrels, files / "one", files / "two", EVERY)
    assert set(map(str, gate.measures)) == set(EVERY)
    bounds = rp.holes(qrels, runs, EVERY).runs[0].measures
    for measure, bound in bounds.items():
        assert bound.lowest <= bound.expected <= bound.highest
        assert bound.exact == (measure.name == "StRecall")
    left_out = rp.holes(qrels, runs, EVERY, leave_one_out=3).leave_one_out
    assert left_out is not None
    assert len(left_out) == 2 * len(EVERY)
    with pytest.raises(rp.MeasureError, match="which documents to judge next"):
        rp.holes(qrels, runs, "AP_IA", judge_next=3)
    with pytest.raises(rp.MeasureError, match="has no ceiling"):
        rp.ceilings(qrels, files / "one", "AP_IA")


def test_policies_choose_the_aspects_that_count(files: Path) -> None:
    """A run that lists what another lists has the same pool once only candidates count."""
    whole = rp.evaluate(files / "qrels", files / "one", EVERY)
    listed = rp.evaluate(files / "qrels", files / "one", EVERY, candidates_only=True)
    run = rp.read_run(files / "one").to_frame().select("query", "doc")
    import polars as pl

    names = ["query", "aspect", "doc", "grade"]
    lines = (files / "qrels").read_text().splitlines()
    rows = pl.DataFrame([line.split() for line in lines], names, orient="row")
    retrieved = rows.with_columns(pl.col("grade").cast(pl.Int64)).join(run, on=["query", "doc"])
    smaller = rp.evaluate(retrieved, files / "one", EVERY)
    for measure in EVERY:
        assert listed[measure].expected == pytest.approx(smaller[measure].expected)
    assert whole["StRecall@5"].expected <= listed["StRecall@5"].expected
    missing = rp.read_run(files / "one").to_frame().filter(pl.col("query") != "q3")
    skipped = rp.evaluate(files / "qrels", missing, EVERY, missing="skip")
    answered = whole.per_query.filter(pl.col("query") != "q3")
    for measure in EVERY:
        mean = answered.filter(pl.col("measure") == measure)["expected"].mean()
        assert skipped[measure].expected == pytest.approx(mean)


def test_nuggets_choose_the_prompt_of_a_sweep(tmp_path: Path) -> None:
    from small_corpus import TOPICS, write_corpus

    from rankproof.foundation.config import read_config
    from rankproof.tradeoffs.plan import SweepSettings
    from rankproof.tradeoffs.sweep import sweep

    write_corpus(tmp_path / "corpus")
    lines = []
    for topic in TOPICS:
        for at in range(5):
            nuggets = [
                {
                    "text": "effect",
                    "importance": "vital",
                    "assignment": "support" if at == 0 else "not_support",
                },
                {
                    "text": "figures",
                    "importance": "vital",
                    "assignment": "support" if at == 2 else "partial_support",
                },
                {"text": "history", "importance": "okay", "assignment": "not_support"},
            ]
            record = {"qid": f"ask-{topic}", "docid": f"{topic}-{at}", "nuggets": nuggets}
            lines.append(json.dumps(record))
    (tmp_path / "nuggets.jsonl").write_text("\n".join(lines))
    (tmp_path / "sweep.yaml").write_text(
        "corpus: corpus\nqrels: nuggets.jsonl\nmodes: [sparse]\npools: [10]\nprompts: [1, 5]\n"
        "at: []\nmeasures: ['StRecall(nuggets=vital)@5', 'StRecall(nuggets=vital,partial=1)@1']\n"
        "best_by: StRecall(nuggets=vital)@prompt\nlatency: {queries: 2, repeats: 1, warmup: 0}\n"
    )
    swept = sweep(read_config(tmp_path / "sweep.yaml", SweepSettings), tmp_path / "out")
    values = dict(
        swept.configurations.select("prompt_k", "StRecall(nuggets=vital)@prompt").iter_rows()
    )
    assert values[1] < values[5] <= 1.0


def test_every_parameter_of_the_measures_is_enumerated() -> None:
    measures = [rp.parse(spec) for spec in SPECS + NUGGETS]
    for name in ASPECT_MEASURES:
        definition = REGISTRY[name]
        mine = [measure for measure in measures if measure.name == name]
        assert {key for m in mine for key, _ in m.explicit} == set(definition.parameters), name
        assert (None in {m.cutoff for m in mine}) == (not definition.needs_cutoff), name
