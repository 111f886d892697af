"""Agreement with the tools that people have used until now."""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from oracles import ORACLES

import rankproof as rp

Nested = dict[str, dict[str, Any]]
Pair = tuple[Nested, Nested]  # run, qrels

CUTOFFS = (1, 2, 3, 5, 10, 100)
# ours → pytrec_eval's; {k} is a cutoff
TREC_NAMES = {
    "AP": "map",
    "AP@{k}": "map_cut_{k}",
    "nDCG": "ndcg",
    "nDCG@{k}": "ndcg_cut_{k}",
    "RR": "recip_rank",
    "P@{k}": "P_{k}",
    "R@{k}": "recall_{k}",
    "Rprec": "Rprec",
    "bpref": "bpref",
    "Success@{k}": "success_{k}",
    "Hits": "num_rel_ret",
}
TREC = {
    ours.format(k=k): theirs.format(k=k) for ours, theirs in TREC_NAMES.items() for k in CUTOFFS
}
GRADED = ("nDCG",)  # take no threshold


def identifiers(rng: Random, count: int) -> list[str]:
    """Ids that a comparison of characters, of lengths or of locales would order otherwise."""
    shapes: list[Callable[[int], str]] = [
        lambda i: f"d{i}",
        lambda i: f"D{i:06d}",
        lambda i: "x" * (i % 5) + f"-{i}",
        lambda i: f"été{i}",
        lambda i: f"文書{i}",
        lambda i: f"𝒟{i}",
        lambda i: f"ÿ{i}-a-rather-long-name-that-no-pointer-holds",
    ]
    return [rng.choice(shapes)(i) for i in rng.sample(range(10 * count), count)]


def random_pair(rng: Random, score: Callable[[int], list[float]]) -> Pair:
    """Queries of both, of the run alone and of the qrels alone; grades −1 to 4, and unjudged."""
    run: Nested = {}
    qrels: Nested = {}
    for number in range(rng.randint(2, 5)):
        query = f"q{number}"
        docs = identifiers(rng, rng.randint(1, 40))
        listed = docs[: rng.randint(1, len(docs))]
        run[query] = dict(zip(listed, score(len(listed)), strict=True))
        judged = rng.sample(docs, rng.randint(1, len(docs)))
        qrels[query] = {doc: rng.choice([-1, 0, 0, 0, 1, 1, 2, 3, 4]) for doc in judged}
        # Of a query with negative grades alone trec_eval 9 reads memory it did not set.
        qrels[query][judged[0]] = max(0, qrels[query][judged[0]])
    run["only in the run"] = {"d1": 1.0}
    qrels["only in the qrels"] = {"d1": 1}
    return run, qrels


def distinct(rng: Random) -> Callable[[int], list[float]]:
    """Scores that differ in float32 too."""
    return lambda n: [x / 8 for x in rng.sample(range(-4 * n, 4 * n), n)]


def tied(rng: Random) -> Callable[[int], list[float]]:
    return lambda n: [rng.choice([2.0, 1.0, 0.5, 0.0, -0.0, -1.0]) for _ in range(n)]


def nearly_tied(rng: Random) -> Callable[[int], list[float]]:
    """Scores that differ in float64; most of them are one number in float32."""
    step = 2.0**-40
    return lambda n: [rng.choice([1.0, 3.0]) + x * step for x in rng.sample(range(4 * n), n)]


def pairs(
    seed: int, count: int, score: Callable[[Random], Callable[[int], list[float]]]
) -> Iterator[Pair]:
    rng = Random(seed)
    for _ in range(count):
        yield random_pair(rng, score(rng))


def by_pytrec_eval(run: Nested, qrels: Nested, rel: int = 1) -> dict[str, dict[str, float]]:
    pytrec_eval = pytest.importorskip("pytrec_eval")

    names = {name.rsplit("_", 1)[0] if name[-1].isdigit() else name for name in TREC.values()}
    cut = ",".join(map(str, CUTOFFS))
    measures = {
        f"{name}.{cut}" if name in ("map_cut", "ndcg_cut", "P", "recall", "success") else name
        for name in names
    }
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, measures, relevance_level=rel)
    found: dict[str, dict[str, float]] = evaluator.evaluate(run)
    return found


def per_query(result: rp.Evaluation, figure: str) -> dict[str, dict[str, float]]:
    """Query → measure → value, also of queries that the mean does not count; NaN: undefined."""
    values: dict[str, dict[str, float]] = {query: {} for query in result.queries}
    for measure, outcomes in result.outcomes.items():
        for query, value in zip(values, getattr(outcomes, figure).tolist(), strict=True):
            values[query][str(measure)] = value
    return values


def with_threshold(spec: str, rel: int) -> str:
    name, at, cutoff = spec.partition("@")
    return spec if rel == 1 or name in GRADED else f"{name}(rel={rel}){at}{cutoff}"


# ---------------------------------------------------------------------------------- pytrec_eval


@pytest.mark.parametrize("rel", [1, 2])
def test_without_ties_every_figure_is_pytrec_evals(rel: int) -> None:
    specs = {with_threshold(ours, rel): theirs for ours, theirs in TREC.items()}
    for run, qrels in pairs(1, 150, distinct):
        theirs = by_pytrec_eval(run, qrels, rel)
        result = rp.evaluate(qrels, run, list(specs), missing="skip")
        assert set(result.queries) == set(theirs)
        assert result.tied == 0
        for figure in ("expected", "min", "max", "oblivious"):
            for query, ours in per_query(result, figure).items():
                for spec, name in specs.items():
                    if math.isnan(ours[spec]):  # trec_eval gives 0 where nothing is relevant
                        assert theirs[query][name] == 0
                    else:
                        assert ours[spec] == pytest.approx(theirs[query][name], rel=0, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rel", [1, 2])
@pytest.mark.parametrize("score", [distinct, tied, nearly_tied])
def test_like_trec_eval_is_pytrec_eval_to_the_last_bit(
    score: Callable[[Random], Callable[[int], list[float]]], rel: int
) -> None:
    specs = {with_threshold(ours, rel): theirs for ours, theirs in TREC.items()}
    ties = 0
    for run, qrels in pairs(2, 80, score):
        theirs = by_pytrec_eval(run, qrels, rel)
        result = rp.evaluate(qrels, run, list(specs), like="trec_eval")
        ties += result.tied
        ours = per_query(result, "oblivious")
        assert set(ours) == set(theirs)
        for query, values in ours.items():
            assert values == {s: theirs[query][name] for s, name in specs.items()}, query
    assert (ties == 0) == (score is distinct)


def test_like_trec_eval_the_mean_is_over_the_queries_of_both() -> None:
    for run, qrels in pairs(3, 20, tied):
        theirs = by_pytrec_eval(run, qrels)
        result = rp.evaluate(qrels, run, list(TREC), like="trec_eval")
        for ours, name in TREC.items():
            mean = sum(values[name] for values in theirs.values()) / len(theirs)
            assert result[ours].oblivious == pytest.approx(mean, rel=1e-14)
            assert (result[ours].queries, result[ours].undefined) == (len(theirs), 0)


def test_scores_that_tie_in_float32_alone_are_told_apart_unless_asked() -> None:
    near = 1.0 + 2.0**-40
    run, qrels = {"q": {"a": near, "z": 1.0}}, {"q": {"a": 1}}
    as_given = rp.evaluate(qrels, run, "RR")["RR"]
    assert (as_given.oblivious, as_given.min, as_given.max) == (1.0, 1.0, 1.0)
    as_trec_eval = rp.evaluate(qrels, run, "RR", like="trec_eval")["RR"]
    assert as_trec_eval.oblivious == by_pytrec_eval(run, qrels)["q"]["recip_rank"] == 0.5
    assert (as_trec_eval.min, as_trec_eval.max, as_trec_eval.expected) == (0.5, 1.0, 0.75)


def trec_eval_order(run: dict[str, float], narrow: bool) -> list[str]:
    """comp_sim_docno of form_res_rels.c: score down, then strcmp of the bytes down."""

    def sim(score: float) -> float:
        if not narrow:
            return score
        value: float = struct.unpack("f", struct.pack("f", score))[0]
        return value

    return sorted(run, key=lambda doc: (sim(run[doc]), doc.encode()), reverse=True)


@pytest.mark.parametrize(("like", "narrow"), [("trec_eval", True), ("trec_eval10", False)])
@pytest.mark.parametrize("score", [distinct, tied, nearly_tied])
def test_trec_evals_order_is_score_then_bytes_of_the_id_both_down(
    score: Callable[[Random], Callable[[int], list[float]]], like: Any, narrow: bool
) -> None:
    """trec_eval 9 holds scores as float, trec_eval 10 as double; pytrec_eval has only 9."""
    specs = list(TREC)
    ties = 0
    for run, qrels in pairs(4, 40, score):
        result = rp.evaluate(qrels, run, specs, like=like)
        ties += result.tied
        for query, values in per_query(result, "oblivious").items():
            grades = {doc: grade for doc, grade in qrels[query].items() if grade >= 0}
            ranked = [grades.get(doc) for doc in trec_eval_order(run[query], narrow)]
            for spec in specs:
                measure = rp.parse(spec)
                value = ORACLES[measure.name](ranked, list(grades.values()), measure.cutoff, 4)
                value = 0.0 if math.isnan(value) else value
                assert values[spec] == pytest.approx(value, rel=0, abs=1e-12)
    has_ties = score is tied or (score is nearly_tied and narrow)
    assert (ties > 0) == has_ties


# ---------------------------------------------------------------------------------- ir_measures


PLAIN = {  # ours → theirs
    **{spec: spec for spec in ("AP", "AP@5", "AP(rel=2)@5", "RR", "RR@3", "RR(rel=2)", "Rprec")},
    **{spec: spec for spec in ("nDCG", "nDCG@5", "P@3", "P(rel=2)@3", "R@5", "Success@2")},
    "Judged@3": "Judged@3",
    "bpref": "Bpref",
}
GDEVAL = {
    "ERR(max=4)@5": "ERR@5",
    "ERR(max=4)@20": "ERR@20",
    "nDCG(gain='exp')@5": "nDCG(dcg='exp-log2')@5",
    "nDCG(gain='exp')@20": "nDCG(dcg='exp-log2')@20",
}


def compare_with_ir_measures(
    names: dict[str, str], seed: int, count: int, tolerance: float
) -> None:
    ir_measures = pytest.importorskip("ir_measures")
    wanted = {ir_measures.parse_measure(theirs): ours for ours, theirs in names.items()}
    compared: set[str] = set()
    for run, qrels in pairs(seed, count, distinct):
        # gdeval wants numbers for queries; ir_measures takes a negative grade for a judgement.
        both = [q for q in run if q in qrels and run[q]]
        run = {f"{i}": run[q] for i, q in enumerate(both)}
        qrels = {f"{i}": {d: g for d, g in qrels[q].items() if g >= 0} for i, q in enumerate(both)}
        if not run:
            continue
        ours = per_query(rp.evaluate(qrels, run, list(names)), "expected")
        for metric in ir_measures.iter_calc(list(wanted), qrels, run):
            spec = wanted[metric.measure]
            value = ours[metric.query_id][spec]
            if math.isnan(value):
                assert metric.value == 0
                continue
            assert value == pytest.approx(metric.value, rel=0, abs=tolerance), spec
            compared.add(spec)
    assert compared == set(names)


def test_without_ties_ir_measures_says_the_same() -> None:
    compare_with_ir_measures(PLAIN, seed=5, count=40, tolerance=1e-12)


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a perl script")
def test_without_ties_gdeval_says_the_same_to_its_five_decimals() -> None:
    compare_with_ir_measures(GDEVAL, seed=6, count=12, tolerance=5.1e-6)


# ----------------------------------------------------------------------------------------- ranx


RANX = """
import json, sys
import numpy as np
from ranx.metrics import rank_biased_precision
judged, listed = ([np.array(row, np.float64) for row in rows] for rows in json.load(sys.stdin))
print(json.dumps([list(rank_biased_precision(judged, listed, p)) for p in (0.5, 0.8, 0.95)]))
"""


@pytest.mark.slow
def test_without_ties_rank_biased_precision_is_ranxs() -> None:
    """On binary grades: ranx weighs by the grade itself."""
    pytest.importorskip("ranx")
    rng = Random(7)
    scores = [rng.sample(range(100), rng.randint(1, 30)) for _ in range(60)]
    grades = [[rng.randint(0, 1) for _ in row] for row in scores]
    listed = [sorted(enumerate(row), key=lambda pair: -pair[1]) for row in scores]
    judged = [list(enumerate(row)) for row in grades]
    # Compiling takes half a minute, and can be left out only in a process of its own.
    done = subprocess.run(
        [sys.executable, "-c", RANX],
        input=json.dumps([judged, listed]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    for p, theirs in zip((0.5, 0.8, 0.95), json.loads(done.stdout), strict=True):
        (outcomes,) = rp.evaluate_arrays(scores, grades, f"RBP(p={p})").outcomes.values()
        assert outcomes.expected.tolist() == pytest.approx(theirs, rel=0, abs=1e-12)


# --------------------------------------------------------------------------------- scikit-learn


@pytest.mark.parametrize("cutoff", [None, 1, 3, 10, 100])
def test_expected_ndcg_is_scikit_learns_tie_averaged_ndcg(cutoff: int | None) -> None:
    ndcg_score = pytest.importorskip("sklearn.metrics").ndcg_score

    rng = np.random.default_rng(7)
    scores = rng.integers(0, 6, (60, 25)) / 4
    grades = rng.choice([0, 0, 0, 1, 2, 3], (60, 25))
    grades[0] = 0
    spec = "nDCG" if cutoff is None else f"nDCG@{cutoff}"
    ours = rp.evaluate_arrays(scores, grades, spec).per_query["expected"].to_list()
    assert ours[0] is None  # scikit-learn's is 0
    for mine, row, grade in list(zip(ours, scores, grades, strict=True))[1:]:
        theirs = ndcg_score([grade], [row], k=cutoff, ignore_ties=False)
        assert mine == pytest.approx(theirs, rel=0, abs=1e-12)


# ------------------------------------------------------------------ the paper [T] and its code


def test_the_worked_example_of_the_paper() -> None:
    scores, relevance = [[0.99, 0.97, 0.97, 0.97, 0.95]], [[0, 1, 0, 1, 0]]
    result = rp.evaluate_arrays(scores, relevance, ["R@3", "nDCG@3"])
    recall = result["R@3"]
    assert recall.expected == pytest.approx(2 / 3, rel=1e-15)
    assert (recall.min, recall.max) == (0.5, 1.0)
    assert round(result["nDCG@3"].expected, 4) == 0.4623


def test_the_papers_own_code_gives_the_same_expectations_and_extrema() -> None:
    evaluate = pytest.importorskip("trm").evaluate

    names = {"ndcg": "nDCG", "mrr": "RR", "map": "AP", "recall": "R", "precision": "P", "f1": "F1",
             "hits": "Hits"}  # fmt: skip
    rng = Random(8)
    cutoffs = [1, 2, 3, 5, 10, 20]  # no list is shorter: trm divides by its length if one is
    scores = [[rng.choice([0.9, 0.8, 0.5]) for _ in range(rng.randint(20, 40))] for _ in range(60)]
    grades = [[int(rng.random() < 0.2) for _ in row] for row in scores]
    for row in grades:
        row[rng.randrange(len(row))] = 1  # trm gives 0 where nothing is relevant
    theirs = evaluate(
        scores, [list(map(bool, row)) for row in grades], metrics=list(names), k_list=cutoffs
    )
    specs = {f"{ours}@{k}": (name, k) for name, ours in names.items() for k in cutoffs}
    result = rp.evaluate_arrays(scores, grades, list(specs))
    frame = result.per_query
    for spec, (name, k) in specs.items():
        ours = frame.filter(measure=spec).iter_rows(named=True)
        for mine, other in zip(ours, theirs.per_query[name][k], strict=True):
            found = [mine[figure] for figure in ("expected", "min", "max", "oblivious")]
            wanted = [other.expected, other.minimum, other.maximum, other.oblivious]
            assert found == pytest.approx(wanted, rel=0, abs=1e-12), spec
