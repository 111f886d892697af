"""Ceilings against every reordering of a pool, written out; sensitivity against the measure."""

from __future__ import annotations

import json
import math
from itertools import combinations, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import ORACLES
from rankproof_cli import rankproof
from scipy import stats

import rankproof as rp
from rankproof.statistics.rank_similarity import kendall_tau
from rankproof.tradeoffs.ceilings import ceilings
from rankproof.tradeoffs.sensitivity import sensitivity

DOCS = ("a", "b", "c", "d", "e", "f")
SPECS = ("RAnWG@2", "RAnWG(alpha=2.0,cap3=1.0)@3", "NRecall4@2", "NRecall5@3", "P4@4", "Hit@3",
         "nDCG@3", "AP@4", "RR@2")  # fmt: skip
Lists = dict[str, dict[str, float]]
Grades = dict[str, dict[str, int]]


def value(spec: str, order: tuple[str, ...], grades: dict[str, int]) -> float:
    """A measure of one ordered list, as its oracle reads."""
    measure = rp.parse(spec)
    ranked = [grades.get(doc) for doc in order]
    parameters = dict(measure.explicit)
    return ORACLES[measure.name](ranked, list(grades.values()), measure.cutoff, 5, **parameters)


def best(spec: str, pool: list[str], grades: dict[str, int]) -> float:
    """The best of every reordering; what comes past the cutoff changes nothing."""
    length = min(rp.parse(spec).cutoff or 0, len(pool))
    return max(value(spec, order, grades) for order in permutations(pool, length))


def pools_of(listed: dict[str, float], depth: int) -> list[list[str]]:
    """Every pool of the top `depth` that some tie-break makes."""
    cut = sorted(listed.values(), reverse=True)[depth - 1] if depth <= len(listed) else -math.inf
    above = [doc for doc, score in listed.items() if score > cut]
    level = [doc for doc, score in listed.items() if score == cut]
    room = min(depth - len(above), len(level))
    return [above + list(chosen) for chosen in combinations(level, room)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, float], dict[str, int]]:
    listed = {doc: draw(st.sampled_from((3.0, 2.0, 1.0))) for doc in DOCS}
    judged = draw(st.lists(st.sampled_from((*DOCS, "u", "v")), max_size=6, unique=True))
    return listed, {doc: draw(st.integers(1, 5)) for doc in judged} | {"w": 5}


@settings(max_examples=settings().max_examples // 2)
@given(case=cases(), depth=st.integers(1, 6))
def test_proc_is_the_best_of_every_reordering_of_every_pool_that_ties_allow(
    case: tuple[dict[str, float], dict[str, int]], depth: int
) -> None:
    listed, grades = case
    found = ceilings({"q": listed}, {"q": grades}, SPECS, pool_depth=depth, resamples=1)
    stated = sorted(listed, key=lambda doc: -listed[doc])[:depth]
    for spec in SPECS:
        every = [best(spec, pool, grades) for pool in pools_of(listed, depth)]
        assert found[spec].proc == pytest.approx(best(spec, stated, grades), abs=1e-12), spec
        assert found[spec].proc_min == pytest.approx(min(every), abs=1e-12), spec
        assert found[spec].proc_max == pytest.approx(max(every), abs=1e-12), spec
        assert found[spec].ideal == pytest.approx(best(spec, list(grades), grades), abs=1e-12)


def large(seed: int, queries: int = 40) -> tuple[Lists, Grades]:
    rng = np.random.default_rng(seed)
    docs = [f"d{i}" for i in range(60)]
    qrels = {f"q{q}": {d: int(rng.integers(1, 6)) for d in docs[::3]} for q in range(queries)}
    run = {
        q: {d: float(rng.integers(0, 5)) + 0.5 * graded.get(d, 1) for d in docs[:50]}
        for q, graded in qrels.items()
    }
    return run, qrels


def test_realised_ordering_and_retrieval_headroom_add_up_to_the_ideal() -> None:
    run, qrels = large(1)
    found = ceilings(run, qrels)
    assert list(map(str, found.measures)) == [
        f"{m}@{k}" for m in ("RAnWG", "NRecall4") for k in (10, 20, 30)
    ]
    plain = rp.evaluate(qrels, run, list(found.measures))
    for measure, c in found.measures.items():
        assert c.actual + c.ordering + c.retrieval == pytest.approx(c.ideal)
        assert c.ideal == pytest.approx(1.0)
        assert c.percent == pytest.approx(100 * c.actual / c.proc)
        assert (c.actual, c.actual_min, c.actual_max) == pytest.approx(
            (plain[measure].expected, plain[measure].min, plain[measure].max)
        )
        assert c.actual_max <= c.proc + 1e-12
        for figure, (low, high) in (
            (c.actual, c.actual_ci), (c.proc, c.proc_ci), (c.percent, c.percent_ci),
            (c.ordering, c.ordering_ci), (c.retrieval, c.retrieval_ci),
        ):  # fmt: skip
            assert low <= figure <= high
    assert ceilings(run, qrels).to_dict() == found.to_dict()
    assert ceilings(run, qrels, seed=1).to_dict() != found.to_dict()


def test_the_interval_agrees_with_scipy() -> None:
    run, qrels = large(2, 80)
    measure = rp.parse("RAnWG@10")
    values = rp.evaluate(qrels, run, measure).outcomes[measure].expected
    low, high = ceilings(run, qrels, [measure])[measure].actual_ci
    peer = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1)
    ).confidence_interval
    width = peer.high - peer.low
    assert abs(low - peer.low) < 0.03 * width
    assert abs(high - peer.high) < 0.03 * width


def test_the_ratio_is_over_queries_whose_pool_reaches_anything() -> None:
    run = {"a": {"x": 2.0, "y": 1.0}, "b": {"y": 1.0}, "c": {"y": 1.0}}
    qrels = {"a": {"y": 5}, "b": {"x": 5}, "c": {"x": 1}}
    c = ceilings(run, qrels, "RAnWG@1")["RAnWG@1"]
    assert (c.actual, c.proc, c.queries) == (0.0, 0.5, 2)  # c has no gain at all
    assert (c.ratio, c.ratio_queries) == (0.0, 1)


def test_the_pool_of_several_runs_is_their_union() -> None:
    qrels = {"q": {"x": 5, "y": 5, "z": 5}}
    one, two = {"q": {"x": 1.0, "n": 0.5}}, {"q": {"y": 2.0, "x": 1.0, "z": 0.5}}
    found = {
        name: ceilings(one, qrels, "NRecall5@3", pool=pool, pool_depth=depth)["NRecall5@3"].proc
        for name, pool, depth in (
            ("own", None, None),
            ("both", [one, two], None),
            ("both to 1", [one, two], 1),
            ("rows", [("q", "z", 1.0)], None),
        )
    }
    assert found == pytest.approx({"own": 1 / 3, "both": 1.0, "both to 1": 2 / 3, "rows": 1 / 3})
    assert ceilings(one, qrels, "RR@2", pool=[one, two])["RR@2"].proc_min is None


def test_a_run_with_documents_that_its_pool_lacks_is_told_of() -> None:
    found = ceilings({"q": {"x": 1.0}}, {"q": {"x": 5}}, "RR@2", pool={"q": {"y": 1.0}})
    assert found.outside == 1
    assert found["RR@2"].actual > found["RR@2"].proc
    assert "1 document in its top is not in the pool" in str(found)


@pytest.mark.parametrize(
    ("found", "wanted", "knob"),
    [
        ("n1 n2 x1 x2", "x1 x2", "ordering"),
        ("x1 n1 n2 n3", "x1 x2 x3", "pool"),
        ("x1 x2 n1", "x1 x2", "neither"),
    ],
)
def test_the_knob_is_where_there_is_more_to_gain(found: str, wanted: str, knob: str) -> None:
    run = {str(q): {doc: -float(i) for i, doc in enumerate(found.split())} for q in range(12)}
    qrels = {str(q): dict.fromkeys(wanted.split(), 5) for q in range(12)}
    ceiling = ceilings(run, qrels, "NRecall5@2")["NRecall5@2"]
    assert ceiling.knob == knob
    words = {"ordering": "add 1.000", "pool": "retrieval 0.500.", "neither": "nothing is left to"}
    assert words[knob] in ceiling.words()


def test_where_queries_disagree_either_knob_is_named() -> None:
    run = {"a": {"n": 2.0, "x": 1.0}, "b": {"n": 1.0}}
    c = ceilings(run, {"a": {"x": 5}, "b": {"x": 5}}, "NRecall5@1")["NRecall5@1"]
    assert (c.ordering, c.retrieval, c.knob) == (0.5, 0.5, "either")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measures": "Harm@10"}, "Harm@10 has no ceiling; use one of Hits, "),
        ({"measures": []}, "no measure or no cutoff was named"),
        ({"at": []}, "no measure or no cutoff was named"),
        ({"pool_depth": 0}, "pool depth 0 is below 1"),
        ({"pool": []}, "the list of pools is empty"),
        ({"measures": "RAnGW"}, "unknown measure 'RAnGW'; did you mean RAnWG@10?"),
        ({"order": "random"}, "tie-break 'random' is unknown"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_line(
    arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(rp.InputError) as caught:
        ceilings({"q": {"x": 1.0}}, {"q": {"x": 5}}, **arguments)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)
    with pytest.raises(rp.InputError, match="it reads grades 1 to 5, and finds none that is relev"):
        ceilings({"q": {"x": 1.0}}, {"q": {"x": 2}}, "RAnWG@10")


# ------------------------------------------------------------------------------- sensitivity


def test_sensitivity_is_the_measure_under_every_choice_of_constants() -> None:
    run, qrels = large(3)
    other, _ = large(4)
    found = sensitivity({"a": run, "b": other}, qrels, 10)
    assert len(found.frame) == 2 * 4 * 2 * 3
    for row in found.frame.iter_rows(named=True):
        spec = f"RAnWG(alpha={row['alpha']},cap4={row['cap4']},cap3={row['cap3']})@10"
        plain = rp.evaluate(qrels, run if row["run"] == "a" else other, spec)[spec]
        assert (row["expected"], row["min"], row["max"], row["queries"]) == (
            plain.expected, plain.min, plain.max, plain.queries,
        )  # fmt: skip


def test_a_change_of_order_is_found_and_named() -> None:
    # Pool: one 5, eight 4s, one 3. A 3 weighs 0.1, a 4 weighs 0.5/8^α: more than that for α of 0
    # and 0.5, less for 1 and 2.
    grades = {"five": 5, **{f"four{i}": 4 for i in range(8)}, "three": 3}
    runs = {
        "fours": {"q": {"four0": 1.0, "three": 0.5}},
        "threes": {"q": {"three": 1.0, "four0": 0.5}},
    }
    found = sensitivity(runs, {"q": grades}, 1)
    assert found.changed["alpha"].unique().sort().to_list() == [0.0, 0.5]
    assert set(found.changed["tau"]) == {-1.0}
    assert "changes under 12 of 24 choices" in found.words()
    alone = sensitivity(runs["fours"], {"q": grades}, 1)
    assert len(alone.changed) == 0
    assert "lies between" in alone.words()
    twice = sensitivity(
        {"x": runs["fours"], "y": runs["threes"]}, {"q": {"five": 5, "three": 1}}, 1
    )
    assert twice.frame["tau"].null_count() == 48  # nothing is ahead of anything


@given(
    a=st.lists(st.integers(0, 3), min_size=2, max_size=6),
    b=st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
def test_kendall_agrees_with_scipy(a: list[int], b: list[int]) -> None:
    x, y = np.array(a, np.float64), np.array(b[: len(a)], np.float64)
    expected = pytest.approx(stats.kendalltau(x, y).statistic, nan_ok=True)
    assert kendall_tau(x[None], y[None])[0] == expected


# ------------------------------------------------------------------------------ command line


@pytest.fixture
def files(tmp_path: Path) -> Path:
    run, qrels = large(5, 12)
    other, _ = large(6, 12)
    (tmp_path / "qrels.json").write_text(json.dumps(qrels))
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "other.json").write_text(json.dumps(other))
    (tmp_path / "answers.csv").write_text(
        "query,correct\n" + "".join(f"q{i},{i % 2}\n" for i in range(12))
    )
    (tmp_path / "sources.csv").write_text(
        "doc,source\n" + "".join(f"d{i},s{i % 7}\n" for i in range(60))
    )
    return tmp_path


def test_the_command_prints_what_the_function_computes(files: Path) -> None:
    done = rankproof(
        "ceilings", str(files / "qrels.json"), str(files / "run.json"), "--pool",
        str(files / "other.json"), "--pool-depth", "40", "--at", "5,10", "-m", "RAnWG",
        "-m", "nDCG@7", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [run] = json.loads(done.stdout)["runs"]
    found = ceilings(
        files / "run.json", files / "qrels.json", ["RAnWG", "nDCG@7"], [5, 10],
        pool=files / "other.json", pool_depth=40,
    )  # fmt: skip
    assert run == json.loads(json.dumps(found.to_dict()))


def test_the_answer_is_what_could_be_added_and_the_rule_is_explained_on_request(
    files: Path,
) -> None:
    inputs = ("ceilings", str(files / "qrels.json"), str(files / "run.json"))
    done = rankproof(*inputs)
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert text.startswith("Better ranking could add up to ")
    assert "PROC" not in text
    assert "95% interval of what is left" in rankproof(*inputs, "--explain").stdout.decode()
    assert "%PROC" in rankproof(*inputs, "--wide").stdout.decode()


@pytest.mark.slow
def test_answers_and_sources_add_their_tables(files: Path) -> None:
    done = rankproof(
        "ceilings", str(files / "qrels.json"), str(files / "run.json"), "--at", "50", "--correct",
        str(files / "answers.csv"), "--sources", str(files / "sources.csv"), "--beta", "0.25",
        "--sensitivity", "--format", "json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["accuracy"][0]["k"] == 50
    assert found["novelty"][0]["beta"] == 0.25
    assert len(found["sensitivity"]["settings"]) == 24
    again = rankproof(
        "ceilings", str(files / "qrels.json"), str(files / "run.json"), str(files / "other.json"),
        "--at", "50", "--correct", str(files / "answers.csv"), "--sources",
        str(files / "sources.csv"), "--sensitivity", "--format", "md", "--wide",
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    for words in ("| RAnWG@50 |", "| Acc\\|Hit@50 |", "| novel RAnWG@50 |", "τ to the default"):
        assert words in again.stdout.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--at", "0"], "Invalid value for '--at': 0 is not in the range x>=1"),
        (["--correct", "nowhere.csv"], "nowhere.csv: there is no such file"),
        (["--sources", "nowhere.csv"], "nowhere.csv: there is no such file"),
        (["--pool", "nowhere.trec"], "nowhere.trec: there is no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(files: Path, extra: list[str], message: str) -> None:
    done = rankproof("ceilings", str(files / "qrels.json"), str(files / "run.json"), *extra)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().startswith(f"rankproof: {message}")
    assert done.stderr.count(b"\n") == 1


def test_candidates_that_are_the_pool_of_the_judgements_are_told_of() -> None:
    qrels = {"q": {"a": 5, "b": 1}}
    own = ceilings({"q": {"a": 1.0, "b": 2.0}}, qrels, at=10)
    assert own.own
    assert any("Every judged passage is a candidate" in note for note in own.notes())
    assert own["RAnWG@10"].judged == 1
    other = ceilings({"q": {"a": 1.0, "z": 2.0}}, qrels, at=10)
    assert not other.own
    assert other["RAnWG@10"].judged == 0.5
    assert other.to_dict()["measures"]["RAnWG@10"]["judged"] == 0.5
    assert "50% of each top 10 is judged" in str(other)


def test_nothing_is_left_only_where_the_upper_end_says_so() -> None:
    """A mean headroom below the limit that rests on one query is no promise."""
    judged = {f"q{i}": {"a": 5, "b": 1} for i in range(40)}
    run = {q: {"a": 2.0, "b": 1.0} for q in judged} | {"q0": {"b": 1.0}}
    found = ceilings(run, judged, "NRecall4", at=1)["NRecall4@1"]
    assert found.ordering + found.retrieval < 0.05 < found.left_ci[1]
    assert found.knob != "neither"


def test_a_part_of_what_is_left_is_no_more_than_all_of_it() -> None:
    """That nothing is lost by ordering is known of these queries; of others, what is left allows
    no more."""
    judged = {f"q{i}": dict.fromkeys("abcdefghij", 5) for i in range(25)}
    run = {f"q{i}": dict.fromkeys("abcdefghij"[i < 8 :], 1.0) for i in range(25)}
    found = ceilings(run, judged, "NRecall5", at=10)["NRecall5@10"]
    assert found.ordering == 0
    assert 0 < found.ordering_ci[1] == found.left_ci[1] < 0.1


def test_one_query_names_no_knob() -> None:
    """Nothing is left to gain on it, and it has no interval."""
    found = ceilings({"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 5, "b": 1}}, ["RAnWG@1"])
    c = found["RAnWG@1"]
    assert (c.ordering, c.retrieval, c.knob) == (0.0, 0.0, "either")
    assert c.words().endswith("1 query does not show which is larger.")
    none = ceilings({"q": {"b": 1.0}}, {"q": {"a": 5, "b": 1}}, ["RAnWG@1"])["RAnWG@1"]
    assert "could add 0.000 to RAnWG@1 (0.000)" in none.words(), "no share of nothing"
