"""Numbers at the edges: grades and scores that no file holds until one does."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import rankproof as rp
from rankproof.data.tables import build_run
from rankproof.evaluation.tie_counts import tie_statistics

GRADES = [(3, 2, 0, 1), (60, 59, 1, 2), (1100, 1099, 1098, 0), (5000, 1, 0, 4999)]


@pytest.mark.parametrize("grades", GRADES)
@pytest.mark.parametrize("cutoff", [1, 2, 4])
def test_exponential_gains_are_right_for_any_grade(grades: tuple[int, ...], cutoff: int) -> None:
    """In exact arithmetic, over a tie of the first two documents."""
    names = "abcd"
    run = {"q": dict(zip(names, (2.0, 2.0, 1.0, 0.5), strict=True))}
    qrels = {"q": dict(zip(names, grades, strict=True))}
    top = max(grades)
    gains = [Fraction(2**grade - 1, 2**top) for grade in grades]
    discounts = [Fraction(1 / math.log2(rank + 1)) for rank in range(1, 5)]

    def dcg(order: tuple[int, ...]) -> Fraction:
        kept = zip(order[:cutoff], discounts[:cutoff], strict=True)
        return sum((gains[d] * w for d, w in kept), Fraction(0))

    ideal = dcg(tuple(sorted(range(4), key=lambda d: -gains[d])))
    values = sorted(float(dcg(order) / ideal) for order in ((0, 1, 2, 3), (1, 0, 2, 3)))
    found = rp.evaluate(qrels, run, f"nDCG(gain='exp')@{cutoff}")[f"nDCG(gain='exp')@{cutoff}"]
    assert found.queries == 1
    assert found.expected == pytest.approx(sum(values) / 2, rel=1e-13)
    assert (found.min, found.max) == pytest.approx(values, rel=1e-13)
    assert found.std == pytest.approx((values[1] - values[0]) / 2, rel=1e-9, abs=1e-15)


def test_exponential_gains_of_one_query_do_not_drown_those_of_another() -> None:
    qrels = {"small": {"a": 1, "b": 0}, "large": {"a": 3000, "b": 1}}
    run = {query: {"a": 2.0, "b": 1.0} for query in qrels}
    found = rp.evaluate(qrels, run, "nDCG(gain='exp')@2")["nDCG(gain='exp')@2"]
    assert (found.expected, found.queries) == (1.0, 2)


def test_err_of_a_large_tie_without_cutoff_is_what_a_cutoff_past_it_gives() -> None:
    """Twenty thousand judged documents that tie: few positions matter, and only they are summed."""
    count = 20_000
    run = {"q": dict.fromkeys(map(str, range(count)), 1.0)}
    qrels = {"q": {str(i): 1 + i % 2 for i in range(count)}}
    found = rp.evaluate(qrels, run, ["ERR", "ERR@200"])
    assert found["ERR"].expected == pytest.approx(found["ERR@200"].expected, rel=1e-15)
    # A reader stops with ¼ or ¾, on average ½: Σ 2^−r/r = log 2, but for drawing without return.
    assert found["ERR"].expected == pytest.approx(math.log(2), rel=1e-3)


@pytest.mark.parametrize(("cutoff", "value"), [(1, 1.0), (3, 2 / 3), (5, 0.6), (1000, 0.6)])
def test_judged_divides_by_the_list_where_it_is_shorter(cutoff: int, value: float) -> None:
    run = {"q": {str(i): 1.0 / (i + 1) for i in range(5)}, "none": {"x": 1.0}}
    qrels = {"q": {"0": 1, "2": 0, "4": 1}}
    assert rp.evaluate(qrels, run, f"Judged@{cutoff}")[f"Judged@{cutoff}"].expected == value


def test_judged_of_a_query_that_the_run_lacks_is_zero() -> None:
    found = rp.evaluate({"q": {"d": 1}, "r": {"d": 1}}, {"q": {"d": 1.0}}, "Judged@10")
    assert (found["Judged@10"].expected, found["Judged@10"].queries) == (0.5, 2)


LARGE = [2**53 + 1, 2**53, 2**53 + 2, 2**53 + 1, -(2**53) - 1, -(2**53), 7]
HUGE = [2**63 - 1, 2**63 - 2, 2**63 - 3]


def ways(scores: list[int], folder: Path) -> dict[str, Any]:
    """The same whole numbers in every form they come in."""
    docs = [f"d{i}" for i in range(len(scores))]
    frame = pl.DataFrame({"query": "q", "doc": docs, "score": pl.Series(scores, dtype=pl.Int64)})
    frame.write_parquet(folder / "r.parquet")
    frame.write_ipc(folder / "r.arrow")
    frame.write_csv(folder / "r.csv")
    frame.write_ndjson(folder / "r.jsonl")
    rows = zip(docs, scores, strict=True)
    lines = [f"q Q0 {doc} 1 {score} t" for doc, score in rows]
    (folder / "r.trec").write_text("\n".join(lines))
    (folder / "r.json").write_text(json.dumps({"q": dict(zip(docs, scores, strict=True))}))
    point = [f'"{doc}": {score}.0' for doc, score in zip(docs, scores, strict=True)]
    (folder / "point.json").write_text(f'{{"q": {{{", ".join(point)}}}}}')
    ten = [f'["{doc}", {score}0e-1]' for doc, score in zip(docs, scores, strict=True)]
    (folder / "hits.json").write_text(f'{{"q": [{", ".join(ten)}]}}')
    # More digits than Python makes a whole number of.
    digits = [line.replace(" t", f".{'0' * 5000} t") for line in lines]
    (folder / "digits.trec").write_text("\n".join(digits))
    files = {file.name: file for file in folder.iterdir()}
    return files | {
        "decimal": {"q": dict(zip(docs, map(Decimal, scores), strict=True))},
        "fraction": {"q": dict(zip(docs, map(Fraction, scores), strict=True))},
        "dict": {"q": dict(zip(docs, scores, strict=True))},
        "frame": frame,
        "numpy": {"q": dict(zip(docs, np.array(scores, np.int64), strict=True))},
    }


@pytest.mark.parametrize("scores", [LARGE, HUGE])
def test_whole_numbers_that_differ_do_not_tie_however_large(
    tmp_path: Path, scores: list[int]
) -> None:
    best = max(range(len(scores)), key=lambda i: scores[i])
    qrels = {"q": {f"d{best}": 1}}
    for name, run in ways(scores, tmp_path).items():
        found = tie_statistics(run)
        assert found.at[-1].distinct == len(set(scores)), name
        reciprocal = rp.evaluate(qrels, run, "RR")["RR"]
        assert (reciprocal.min, reciprocal.max) == (1.0, 1.0), name
        condensed = rp.evaluate(qrels | {"q": qrels["q"] | {"d1": 0}}, run, "RR", condensed=True)
        assert condensed["RR"].min == 1.0, name


def test_rounded_on_request_large_numbers_tie(tmp_path: Path) -> None:
    run = ways(HUGE, tmp_path)["dict"]
    assert tie_statistics(run, score_dtype="float64").largest == 3
    assert tie_statistics(run).largest == 1


def test_large_numbers_that_float64_holds_are_left_alone() -> None:
    run = rp.read_run({"q": {"a": 2.0**60, "b": 2**61, "c": float("inf")}})
    assert run.rest is None


@pytest.mark.parametrize("truth", [True, np.True_])
def test_a_truth_is_no_score(truth: Any) -> None:
    with pytest.raises(rp.InputError, match=r"run\['q'\]\['d'\]: score .*True.* is not a number"):
        rp.read_run({"q": {"d": truth}})
    with pytest.raises(rp.InputError, match="holds Boolean, not numbers"):
        rp.read_run(pl.DataFrame({"query": ["q"], "doc": ["d"], "score": [True]}))


def test_true_in_json_is_no_score(tmp_path: Path) -> None:
    for name, text in {
        "r.json": '{"q": {"d": true}}',
        "r.jsonl": '{"query": "q", "doc": "d", "score": true}',
    }.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(rp.InputError, match="score True is not a number"):
            rp.read_run(tmp_path / name)


@pytest.mark.parametrize(
    ("documents", "share", "top"), [(6, 0.5, 2), (400, 0.05, 10), (2000, 0.9, 4)]
)
def test_err_of_a_large_tie_is_the_same_by_integral_and_by_recurrence(
    documents: int, share: float, top: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankproof.measures import expected_reciprocal_rank

    random = np.random.default_rng(documents)
    graded = random.random((2, documents)) < share
    grades = np.where(graded, random.integers(1, top + 1, (2, documents)), 0)
    grades[:, :2] = top, 0
    scores = np.zeros((2, documents))
    scores[0, :2] = 1  # a group before the large one
    found = []
    for cells in (-1, 1 << 60):
        monkeypatch.setattr(expected_reciprocal_rank, "_CELLS", cells)
        found.append(rp.evaluate_arrays(scores, grades, ["ERR"]).per_query["expected"].to_numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=5e-13)


def test_err_of_a_tie_of_a_million_is_between_its_bounds() -> None:
    """Of as many that stop with 1/16 the first 50 or so decide; the recurrence took hours."""
    grades = np.ones((1, 1_000_000), np.int64)
    grades[0, 0] = 4
    found = rp.evaluate_arrays(np.zeros((1, 1_000_000)), grades, ["ERR"])["ERR"]
    same = sum(15 ** (r - 1) / 16**r / r for r in range(1, 2000))  # were all of grade 1
    assert found.min <= found.expected <= found.max
    assert found.expected == pytest.approx(same, rel=1e-5)


def test_groups_are_the_same_in_whatever_order_the_run_has_its_queries() -> None:
    random = np.random.default_rng(0)
    run = {
        f"q{q}": {f"d{d}": float(random.integers(0, 5)) for d in range(int(random.integers(1, 30)))}
        for q in range(20)
    }
    qrels = {q: {d: int(random.integers(0, 3)) for d in listed} for q, listed in run.items()}
    backwards = {q: run[q] for q in reversed(run)}
    measures = ["nDCG", "AP@5", "RR@3", "ERR", "Rprec", "bpref", "R@10"]
    one, other = (rp.evaluate(qrels, r, measures).per_query for r in (run, backwards))
    assert one.equals(other)


def test_a_list_without_documents_has_no_ties_as_in_a_file_of_the_run() -> None:
    queries, docs = pl.Series(["a", "none", "b"]), pl.Series(["x", "y", "x", "y"])
    codes, scores = np.array([0, 0, 2, 2], np.int32), np.array([1.0, 1.0, 2.0, 1.0])
    run = build_run("r", queries, codes, docs, scores, "float64")
    read = {"a": {"x": 1.0, "y": 1.0}, "b": {"x": 2.0, "y": 1.0}}
    assert tie_statistics(run, [1, 2]) == tie_statistics(read, [1, 2], name="r")
