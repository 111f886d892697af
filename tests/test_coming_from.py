"""Each row of docs/coming-from.md: both tools run, and agree or differ as the row says."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rankproof_cli import in_text

import rankproof as rp
from rankproof.compat import ranx as our_ranx
from rankproof.compat.trec_eval import trec_eval
from rankproof.evaluation import at_level, parse_all
from rankproof.retrieval import fusion

PAGE = Path(__file__).parents[1] / "docs" / "coming-from.md"
Nested = dict[str, dict[str, Any]]


def random_tables(ties: bool, queries: int = 6) -> tuple[Nested, Nested]:
    """Return a run and judgments; query ids are numbers, as gdeval requires."""
    draw = Random(7)
    docs = [f"d{i}" for i in range(40)]
    run: Nested = {}
    qrels: Nested = {}
    for query in map(str, range(1, queries + 1)):
        listed = draw.sample(docs, 30)
        scores = [draw.choice([2.0, 1.0, 1 + 1e-9]) if ties else x / 8 for x in range(30)]
        draw.shuffle(scores)
        run[query] = dict(zip(listed, scores, strict=True))
        qrels[query] = {doc: draw.choice([0, 1, 2, 3]) for doc in draw.sample(docs, 20)}
        qrels[query] |= {listed[3]: 1, listed[9]: 0}
    return run, qrels


RUN, QRELS = random_tables(ties=False)
TIED, TIED_QRELS = random_tables(ties=True)


def page_rows() -> list[tuple[str, str, str, str]]:
    """Return section, their name, our name and difference of each row of three columns."""
    result, section = [], ""
    for line in PAGE.read_text().splitlines():
        section = line[3:] if line.startswith("## ") else section
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and not cells[1].startswith(("rank", "write")):
            result.append((section, *cells))
    return [row for row in result if row[0]]  # type: ignore[misc]


def quoted_names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def our_values(
    measure: str, run: Any = RUN, qrels: Any = QRELS, **options: Any
) -> dict[str, float]:
    """Return our value of each query as listed."""
    frame = rp.evaluate(qrels, run, measure, **options).per_query
    return dict(zip(frame["query"], frame["oblivious"], strict=True))


# ------------------------------------------------------------------------------------- trec_eval


def pytrec_values(
    name: str, run: Any = TIED, qrels: Any = TIED_QRELS, *flags: Any
) -> dict[str, float]:
    theirs = pytest.importorskip("pytrec_eval")
    result = theirs.RelevanceEvaluator(qrels, {name}, *flags).evaluate(run)
    return {query: next(iter(values.values())) for query, values in result.items()}


def check_trec_row(their_name: str, our_name: str) -> None:
    theirs = pytrec_values(their_name)
    our_result = our_values(our_name, TIED, TIED_QRELS, like="trec_eval")
    if their_name == "gm_map":  # of which a query has the logarithm
        total = rp.evaluate(TIED_QRELS, TIED, our_name, like="trec_eval")[our_name].oblivious
        assert total == pytest.approx(math.exp(sum(theirs.values()) / len(theirs)), rel=1e-14)
        return
    assert our_result == theirs
    if their_name.startswith("num_"):
        mean = rp.evaluate(TIED_QRELS, TIED, our_name, like="trec_eval")[our_name].oblivious
        output_lines = [
            *trec_eval(rp.read_qrels(TIED_QRELS), rp.read_run(TIED), [their_name]).summary_lines()
        ]
        assert output_lines == [f"{their_name:<22}\tall\t{sum(theirs.values()):.0f}\n"]
        assert mean * len(theirs) == pytest.approx(sum(theirs.values()))


def check_iprec_of_an_emptied_list() -> None:
    """With -J a list without judged documents becomes empty."""
    check_trec_row("iprec_at_recall_0.10", "IPrec@0.1")
    run, qrels = {"1": {"x": 1.0}}, {"1": {"a": 1}}
    assert math.isnan(pytrec_values("iprec_at_recall_0.00", run, qrels, 1, True)["1"])
    assert our_values("IPrec@0", run, qrels, condensed=True, like="trec_eval") == {"1": 0.0}
    judged, listed = rp.read_qrels(qrels), rp.read_run(run)
    output_lines = [
        *trec_eval(judged, listed, ["iprec_at_recall.0"], judged_only=True).summary_lines()
    ]
    assert output_lines == ["iprec_at_recall_0.00  \tall\t  -nan\n"]


def check_values_of_each_query(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(TIED))
    (tmp_path / "qrels.json").write_text(json.dumps(TIED_QRELS))
    files = [str(tmp_path / "qrels.json"), str(tmp_path / "run.json")]
    options = ["--like", "trec_eval", "-m", "AP", "--per-query", str(tmp_path / "out.csv")]
    assert in_text("eval", *files, *options).returncode == 0
    frame = pd.read_csv(tmp_path / "out.csv", dtype={"query": str})
    theirs = pytrec_values("map")
    assert dict(zip(frame["query"], frame["oblivious"], strict=True)) == theirs
    output_lines = [*trec_eval(rp.read_qrels(TIED_QRELS), rp.read_run(TIED), ["map"]).query_lines()]
    assert output_lines == [f"{'map':<22}\t{q}\t{x:6.4f}\n" for q, x in sorted(theirs.items())]


def check_missing_queries_count_zero() -> None:
    without_one = {query: listed for query, listed in TIED.items() if query != "2"}
    theirs = pytrec_values("map", without_one)
    complete = rp.evaluate(TIED_QRELS, without_one, "AP", like="trec_eval", missing="zero")["AP"]
    assert (len(theirs), complete.queries) == (5, 6)
    assert complete.oblivious == pytest.approx(sum(theirs.values()) / 6, rel=1e-14)
    assert rp.evaluate(TIED_QRELS, without_one, "AP")["AP"].queries == 6
    assert rp.evaluate(TIED_QRELS, without_one, "AP", like="trec_eval")["AP"].queries == 5


def check_level() -> None:
    pairs = {"map": "AP", "ndcg": "nDCG", "bpref": "bpref"}
    for their_name, our_name in pairs.items():
        (measure,) = at_level(parse_all([our_name]), 2)
        theirs = pytrec_values(their_name, TIED, TIED_QRELS, 2)
        assert our_values(str(measure), TIED, TIED_QRELS, like="trec_eval") == theirs
    assert pytrec_values("ndcg", TIED, TIED_QRELS, 2) == pytrec_values("ndcg")


def check_depth() -> None:
    """trec_eval cuts lists in its own order: scores as float32, then descending ids."""
    cut = {
        q: dict(sorted(t.items(), key=lambda row: (np.float32(row[1]), row[0]), reverse=True)[:10])
        for q, t in TIED.items()
    }
    assert our_values("AP", TIED, TIED_QRELS, like="trec_eval", depth=10) == pytrec_values(
        "map", cut
    )
    result = rp.evaluate(TIED_QRELS, TIED, "AP", like="trec_eval", depth=10)
    ends = {row["query"]: (row["min"], row["max"]) for row in result.per_query.to_dicts()}
    for seed in range(5):  # every order of the tie at rank 10 is allowed for
        random = Random(seed)
        orders = {
            q: sorted(t, key=lambda doc: (-np.float32(t[doc]), random.random()))
            for q, t in TIED.items()
        }
        lists = {q: {d: -float(rank) for rank, d in enumerate(o[:10])} for q, o in orders.items()}
        for query, value in pytrec_values("map", lists).items():
            assert ends[query][0] - 1e-12 <= value <= ends[query][1] + 1e-12


def check_condensed_lists() -> None:
    theirs = pytrec_values("map", TIED, TIED_QRELS, 1, True)
    assert our_values("AP", TIED, TIED_QRELS, like="trec_eval", condensed=True) == theirs
    unpooled = {q: {f"x{i}": 9.0 for i in range(5)} | t for q, t in RUN.items()}
    assert our_values("AP", unpooled, condensed=True) == our_values("AP", condensed=True)
    assert set(our_values("Judged@5", unpooled).values()) == {0.0}


def check_trec_formulas() -> None:
    judged, listed = rp.read_qrels(TIED_QRELS), rp.read_run(TIED)
    for name in ("utility", "G", "binG", "Rndcg", "ndcg_rel", "relative_P.5", "Rprec_mult.0.4"):
        result = trec_eval(judged, listed, [name])
        assert result.columns[0].tolist() == list(pytrec_values(name).values()), name
        with pytest.raises(rp.MeasureError):
            rp.parse(name)
    assert len([*trec_eval(judged, listed, ["yaap"]).summary_lines()]) == 1  # pytrec_eval lacks it


# A few lines, and what trec_eval 9.0.8 prints of them.
PREFERENCES = "q u1 p a 2\nq u1 p b 1\nq u1 p c 0\nq u2 p b 3\nq u2 p a 0\nq u2 r b 3\nq u2 r d 2\n"
PREFERRED = "q Q0 a 1 2.0 t\nq Q0 b 2 2.0 t\nq Q0 c 3 1.0 t\nq Q0 e 4 0.5 t\n"
ANNOTATORS = "q 1 a 1\nq 1 b 0\nq 2 b 1\nq 2 d 1\n"
REFERENCE = "a map 0 1\nq 0 0 1\nq P_5 0.4 0\nq map 0.25 0.5\nq zz 0 1\nz map 0 1\n"


def trec_eval_output(tmp_path: Path, judged: str, *arguments: str) -> str:
    (tmp_path / "judged").write_text(judged)
    (tmp_path / "run").write_text(PREFERRED)
    (tmp_path / "z").write_text(REFERENCE)
    files = [str(tmp_path / "judged"), str(tmp_path / "run")]
    return in_text("trec_eval", *arguments, *files, cwd=tmp_path).stdout


def check_several_annotators(tmp_path: Path) -> None:
    result = trec_eval_output(tmp_path, PREFERENCES, "-R", "prefs", "-m", "all_prefs")
    assert result == PRINTED["prefs"]
    assert (
        trec_eval_output(tmp_path, ANNOTATORS, "-R", "qrels_prefs", "-m", "prefs")
        == PRINTED["qrels_prefs"]
    )
    people = trec_eval_output(
        tmp_path, ANNOTATORS, *["-R", "qrels_jg", "-q", "-m", "map_avgjg", "-m", "P_avgjg.2"]
    )
    assert people == PRINTED["qrels_jg"]


def check_standard_scores(tmp_path: Path) -> None:
    requested = ["-q", "-Z", "z", "-m", "map", "-m", "P.5", "-m", "num_q", "-m", "relstring"]
    assert trec_eval_output(tmp_path, "q 0 a 1\nq 0 d 1\n", *requested) == PRINTED["-Z"]


PRINTED = {
    "prefs": """\
runid                 \tall\tt
num_q                 \tall\t1
prefs_num_prefs_poss  \tall\t5
prefs_num_prefs_ful   \tall\t4
prefs_num_prefs_ful_ret\tall\t3
prefs_simp            \tall\t0.8000
prefs_pair            \tall\t0.8750
prefs_avgjg           \tall\t0.7500
prefs_avgjg_Rnonrel   \tall\t0.7500
prefs_simp_ret        \tall\t0.7500
prefs_pair_ret        \tall\t0.8333
prefs_avgjg_ret       \tall\t0.5000
prefs_avgjg_Rnonrel_ret\tall\t0.5000
prefs_simp_imp        \tall\t0.8000
prefs_pair_imp        \tall\t0.8750
prefs_avgjg_imp       \tall\t0.7500
""",
    "qrels_prefs": """\
runid                 \tall\tt
num_q                 \tall\t1
prefs_num_prefs_poss  \tall\t1
prefs_num_prefs_ful   \tall\t1
prefs_num_prefs_ful_ret\tall\t1
prefs_simp            \tall\t1.0000
prefs_pair            \tall\t1.0000
prefs_avgjg           \tall\t0.5000
""",
    "qrels_jg": """\
map_avgjg             \tq\t0.5000
P_avgjg_2             \tq\t0.5000
map_avgjg             \tall\t0.5000
P_avgjg_2             \tall\t0.5000
""",
    "-Z": """\
Zmap                   \tq\t0.0000
ZP_5                   \tq\t-1000000.0000
relstring             \tq\t'-1--'
Znum_q                 \tall\t1.0000
Zmap                   \tall\t0.0000
ZP_5                   \tall\t-1000000.0000
""",
}


# ----------------------------------------------------------------------------------- ir_measures


def ir_measures_values(name: str, run: Any = RUN, qrels: Any = QRELS) -> dict[str, float]:
    theirs = pytest.importorskip("ir_measures")
    measure = theirs.parse_measure(name)
    if (measure.NAME == "ERR" or "exp" in name) and not theirs.gdeval.is_available():
        pytest.skip("perl is not installed")
    return {m.query_id: m.value for m in theirs.iter_calc([measure], qrels, run)}


def check_ir_measures_row(their_name: str, our_name: str) -> None:
    digits = 5 if "ERR" in their_name or "exp" in their_name else 15  # gdeval prints five
    assert rp.parse(their_name) == rp.parse(our_name) or "ERR" in their_name
    our_result = our_values(
        our_name if "ERR" not in their_name else "ERR(max=4)@20", like="ir_measures"
    )
    theirs = ir_measures_values(their_name)
    assert {q: round(x, digits) for q, x in theirs.items()} == pytest.approx(
        {q: round(x, digits) for q, x in our_result.items()}, abs=1e-12 if digits == 15 else 1.01e-5
    )
    if their_name == "NumRelRet":
        theirs_total = pytest.importorskip("ir_measures")
        total = theirs_total.calc_aggregate([theirs_total.NumRelRet], QRELS, RUN)
        assert total[theirs_total.NumRelRet] == sum(our_result.values())
    if their_name == "ERR@20":
        assert our_values("ERR@20") == our_values("ERR(max=3)@20") != our_values("ERR(max=4)@20")
    if "gains" in their_name:
        assert ir_measures_values("nDCG(gains={1: 1})@10") != theirs


def check_rbp() -> None:
    theirs = pytest.importorskip("ir_measures")
    with pytest.raises(ValueError, match="Unsupported measures"):
        theirs.calc_aggregate([theirs.RBP(p=0.8)], QRELS, RUN)
    run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 2}}
    result = rp.evaluate(qrels, run, ["RBP(p=0.5)", "RBP(p=0.5,max=2)", "RBPResidual(p=0.5)"])
    assert [result[m].expected for m in result] == [0.5, 0.5, 0.5]
    lower_grade = rp.evaluate({"q": {"a": 1}}, run, "RBP(p=0.5,max=2)")
    assert lower_grade["RBP(p=0.5,max=2)"].max == 0.25


def check_reciprocal_rank_with_cutoff() -> None:
    assert ir_measures_values("RR@10") == our_values("RR@10")
    run, qrels = {"1": {"a": 1.0, "b": 1.0}}, {"1": {"a": 1}}
    assert ir_measures_values("RR@10", run, qrels) == {"1": 1.0}
    assert ir_measures_values("RR", run, qrels) == {"1": 0.5}
    assert our_values("RR@10", run, qrels, like="ir_measures") == {"1": 0.5}


def check_judged_only() -> None:
    with pytest.raises(rp.MeasureError, match="condensed"):
        rp.parse("AP(judged_only=True)")
    assert ir_measures_values("AP(judged_only=True)") == our_values("AP", condensed=True)


# ------------------------------------------------------------------------------------------ ranx

RANX = """
import json, sys, warnings
warnings.simplefilter("ignore")
import ranx
run, qrels, metrics, lists, tied = json.load(sys.stdin)
def figures(run, qrels, metrics):
    result = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), metrics, return_mean=False)
    return {name: list(map(float, values)) for name, values in result.items()}
def fused(**options):
    return ranx.fuse([ranx.Run(r) for r in lists], **options).to_dict()["q"]
other = {q: dict(list(t.items())[5:]) for q, t in run.items()}
runs = [ranx.Run(run, name="a"), ranx.Run(other, name="b")]
report = ranx.compare(ranx.Qrels(qrels), runs, ["map", "mrr@10"], max_p=0.9)
json.dump({
    "figures": figures(run, qrels, metrics),
    "bpref": figures({"q": {"a": 1.0}}, {"q": {"a": 1}}, ["bpref", "map"])["bpref"],
    "graded": figures({"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 2}}, ["rbp.5", "map"])["rbp.5"],
    "rrf": fused(method="rrf"),
    "minmax": fused(method="sum", norm="min-max"),
    "inverted": fused(method="sum", norm="min-max-inverted"),
    "zmuv": fused(method="sum", norm="zmuv"),
    "order": list(ranx.Run(tied).to_dict()["q"]),
    "report": report.to_dict(),
    "table": str(report),
}, sys.stdout)
"""
LISTS = [{"q": {"a": 3.0, "b": 3.0, "c": 1.0}}, {"q": {"c": 2.0, "d": 2.0}}]
MANY = {"q": {f"d{i:03}": float(i % 3) for i in range(300)}}


@cache
def ranx_results() -> dict[str, Any]:
    """Everything at once: compiling takes minutes, and is left out in a process of its own."""
    pytest.importorskip("ranx")
    metrics = [name for s, t, *_ in page_rows() if s == "ranx" for name in quoted_names(t)[:1]]
    metrics = [m for m in metrics if re.fullmatch(r"[a-z_0-9]+(-precision)?([@.]\d+)?(-l2)?", m)]
    given = [RUN, _positive(QRELS), metrics, LISTS, MANY]
    done = subprocess.run(
        [sys.executable, "-c", RANX],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _positive(qrels: Nested) -> Nested:
    """Without the grade 0, which takes part in nothing but bpref."""
    return {q: {d: g for d, g in judged.items() if g > 0} for q, judged in qrels.items()}


def check_ranx_row(their_name: str, our_name: str) -> None:
    assert rp.parse(their_name.replace("-l2", "")).name == rp.parse(our_name).name
    theirs = ranx_results()["figures"][their_name]
    assert list(our_values(our_name, RUN, _positive(QRELS)).values()) == pytest.approx(
        theirs, abs=1e-14
    )
    shim = our_ranx.evaluate(_positive(QRELS), RUN, their_name, return_mean=False)
    assert shim.tolist() == pytest.approx(theirs, abs=1e-14)


def check_metric_with_level() -> None:
    check_ranx_row("map@10-l2", "AP(rel=2)@10")
    run, qrels = {"q": {"a": 3.0, "b": 2.0}}, {"q": {"a": 2, "b": 3}}
    shim = our_ranx.evaluate(qrels, run, ["dcg-l2", "rbp.5-l3"])
    assert shim["dcg-l2"] == 2 + 3 / math.log2(3)
    assert shim["rbp.5-l3"] == pytest.approx(0.25 * 3)
    assert our_values("DCG(rel=2)", run, qrels) == {"q": 1 + 2 / math.log2(3)}


def check_rbp_adds_up_grades() -> None:
    qrels = {q: dict.fromkeys(judged, 1) for q, judged in _positive(QRELS).items()}
    shim = our_ranx.evaluate(qrels, RUN, "rbp.95", return_mean=False)
    assert list(our_values("RBP(p=0.95)", RUN, qrels).values()) == pytest.approx(shim.tolist())
    run, graded = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 2}}
    shim = our_ranx.evaluate(graded, run, "rbp.5")
    assert ranx_results()["graded"] == [1.0] == [shim]
    assert shim.expected == shim.max == 1.0
    assert our_values("RBP(p=0.5)", run, graded) == {"q": 0.5}


def check_bpref_without_non_relevant() -> None:
    assert not np.isfinite(ranx_results()["bpref"]).all() or ranx_results()["bpref"] != [1.0]
    assert our_values("bpref", {"q": {"a": 1.0}}, {"q": {"a": 1}}) == {"q": 1.0}


def check_argument_order() -> None:
    result = our_ranx.evaluate(our_ranx.Qrels(_positive(QRELS)), our_ranx.Run(RUN), "ndcg@10")
    assert result == pytest.approx(np.mean(ranx_results()["figures"]["ndcg@10"]), rel=1e-14)
    assert result == rp.evaluate(_positive(QRELS), RUN, "nDCG@10")["nDCG@10"].oblivious
    with pytest.raises(rp.InputError, match="name the judgments first"):
        rp.evaluate({"q": {"a": 9, "b": 7, "c": 5}}, {"q": dict.fromkeys("abcd", 1)}, "RR")


def check_compare() -> None:
    runs = {"a": RUN, "b": {q: dict(list(t.items())[5:]) for q, t in RUN.items()}}
    qrels = _positive(QRELS)
    tables = [our_ranx.Run(t, n) for n, t in runs.items()]
    shim = our_ranx.compare(our_ranx.Qrels(qrels), tables, ["map", "mrr@10"], max_p=0.9)
    our_result = rp.compare(qrels, runs, ["AP", "RR@10"])
    assert shim.comparison.to_dict()["pairs"] == our_result.to_dict()["pairs"]
    theirs = ranx_results()["report"]
    for name in ("a", "b"):
        assert shim.to_dict()[name].keys() == theirs[name].keys()
        assert shim.to_dict()[name]["win_tie_loss"] == theirs[name]["win_tie_loss"]
        assert shim.results[name] == pytest.approx(theirs[name]["scores"], rel=1e-12)
        [other] = theirs[name]["comparisons"]
        p = {m: test["p_value"] for m, test in shim.comparisons[name, other].items()}
        assert p == pytest.approx(theirs[name]["comparisons"][other], rel=1e-9)
    rows = [line.split() for line in str(shim).splitlines()]
    assert rows[2:] == [line.split() for line in ranx_results()["table"].splitlines()][2:]
    assert len(our_result.to_dict()["pairs"][0]["measures"]["AP"]["ci"]) == 2


def check_rrf_of_ties() -> None:
    runs = [rp.read_run(table) for table in LISTS]
    theirs = ranx_results()["rrf"]
    assert theirs["a"] != theirs["b"]
    shared = dict(fusion.rrf(runs).to_frame().select("doc", "score").iter_rows())
    assert shared["a"] == shared["b"] == pytest.approx(1 / 61.5)
    assert our_ranx.fuse([our_ranx.Run(t) for t in LISTS], method="rrf").to_dict()["q"] == shared


def check_min_max_of_equal_scores() -> None:
    theirs = ranx_results()["minmax"]
    assert theirs["d"] == 0.0
    our_result = dict(
        fusion.combine([rp.read_run(t) for t in LISTS], normalise="minmax")
        .to_frame()
        .select("doc", "score")
        .iter_rows()
    )
    assert our_result["d"] == 1.0
    assert (our_result["a"], theirs["a"]) == (1.0, 1.0)


def check_inverted_min_max() -> None:
    theirs = ranx_results()["inverted"]
    shim = our_ranx.fuse([our_ranx.Run(LISTS[0])], norm="min-max-inverted", method="sum")
    assert shim.to_dict()["q"] == {"a": 0.0, "b": 0.0, "c": 1.0}
    assert (theirs["a"], theirs["b"]) == (0.0, 0.0)
    negated = {"q": {doc: -x for doc, x in LISTS[0]["q"].items()}}
    plain = our_ranx.fuse([our_ranx.Run(negated)], norm="min-max", method="sum")
    assert plain.to_dict() == shim.to_dict()


def check_z_scores_of_missing_documents() -> None:
    """A list gives its mean, 0, to the document d that it lacks."""
    assert ranx_results()["zmuv"]["d"] == 0.0 > ranx_results()["zmuv"]["c"]
    result = fusion.combine([rp.read_run(t) for t in LISTS], normalise="z").to_frame()
    our_result = dict(result.select("doc", "score").iter_rows())
    assert our_result["d"] == our_result["c"] < our_result["a"]
    with pytest.raises(rp.InputError, match="normalise='z'"):
        our_ranx.fuse([our_ranx.Run(t) for t in LISTS], norm="zmuv")


def check_ties_of_ranx() -> None:
    stable = sorted(MANY["q"], key=lambda doc: -MANY["q"][doc])
    assert ranx_results()["order"] != stable
    assert our_values("RR", MANY, {"q": {stable[4]: 1}}, like="ranx") == {"q": 0.2}


def check_modules_without_counterpart() -> None:
    for name in ("metrics", "data_structures"):
        assert importlib.util.find_spec(f"ranx.{name}") is not None
        assert not hasattr(our_ranx, name)


# ------------------------------------------------------------------- PyTerrier, MTEB, gdeval, BEIR


def check_pyterrier_row(their_name: str, our_name: str) -> None:
    """PyTerrier hands its names to ir_measures."""
    theirs = pytest.importorskip("ir_measures")
    (measure,) = theirs.parse_trec_measure(their_name)
    result = {m.query_id: m.value for m in theirs.iter_calc([measure], TIED_QRELS, TIED)}
    assert our_values(our_name, TIED, TIED_QRELS, like="ir_measures") == result


def frame_of(run: Nested) -> Any:
    """A run as PyTerrier has it, with ranks that nobody reads."""
    rows = [{"qid": q, "docno": d, "score": s, "rank": 9} for q in run for d, s in run[q].items()]
    return pd.DataFrame(rows)


def check_frames() -> None:
    assert our_values("AP", frame_of(RUN)) == our_values("AP")
    assert our_values(
        "AP", frame_of(RUN).rename(columns={"qid": "query_id", "docno": "doc_id"})
    ) == our_values("AP")


def check_experiments() -> None:
    theirs = pytest.importorskip("ir_measures")
    our_result = rp.evaluate(
        TIED_QRELS, {"a": frame_of(TIED), "b": frame_of(RUN)}, "AP", like="ir_measures"
    )
    assert list(our_result) == ["a", "b"]
    for name, run in (("a", TIED), ("b", RUN)):
        wanted = theirs.calc_aggregate([theirs.AP], TIED_QRELS, run)[theirs.AP]
        assert our_result[name]["AP"].oblivious == pytest.approx(wanted, rel=1e-14)
        single = {m.query_id: m.value for m in theirs.iter_calc([theirs.AP], TIED_QRELS, run)}
        frame = our_result[name].per_query
        assert dict(zip(frame["query"], frame["oblivious"], strict=True)) == single


def check_baseline() -> None:
    """Student's t of scipy's, which PyTerrier calls, beside our_values."""
    stats = pytest.importorskip("scipy.stats")
    worse = {q: {d: -s for d, s in t.items()} for q, t in RUN.items()}
    result = rp.compare(QRELS, {"a": frame_of(RUN), "b": frame_of(worse)}, "AP", t_test=True)
    options = result.to_dict()["pairs"][0]["measures"]["AP"]
    a, b = (list(our_values("AP", run).values()) for run in (RUN, worse))
    assert options["p_t"] == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)
    assert options["p"] != options["p_t"]
    assert len(options["ci"]) == 2


@cache
def mteb_results() -> Any:
    pytest.importorskip("mteb")
    metrics = importlib.import_module("mteb._evaluators.retrieval_metrics")
    return metrics.calculate_retrieval_scores(TIED, TIED_QRELS, [5, 10, 100])


def check_mteb_row(their_name: str, our_name: str) -> None:
    name, _, cutoff = their_name.partition("_at_")
    table = getattr(mteb_results(), name)
    (mean,) = (value for key, value in table.items() if key.endswith(f"@{cutoff}"))
    wide = {"order": "trec_eval", "score_dtype": "float64", "missing": "skip"}
    options: Any = wide if name == "mrr" else {"like": "mteb"}
    result = rp.evaluate(TIED_QRELS, TIED, our_name, **options)[our_name].oblivious
    assert round(result, 5) == pytest.approx(round(mean, 5), abs=1e-9)
    if name == "mrr":
        one = {"q": {"a": 1.0, "b": 1.0 - 1e-9}}
        assert our_values("RR@10", one, {"q": {"a": 1}}, like="mteb") == {"q": 0.5}
        assert our_values("RR@10", one, {"q": {"a": 1}}) == {"q": 1.0}


def check_ties_of_mteb() -> None:
    for query, value in our_values("nDCG@10", TIED, TIED_QRELS, like="mteb").items():
        assert mteb_results().all_scores[query]["ndcg_cut_10"] == value


def check_ndcg_of_gdeval() -> None:
    assert rp.parse("ndcg@20") == rp.parse("nDCG@20") != rp.parse("nDCG(gain='exp')@20")
    check_ir_measures_row("nDCG(dcg='exp-log2')@20", "nDCG(gain='exp')@20")


def check_err_of_gdeval() -> None:
    check_ir_measures_row("ERR@20", "ERR(max=4)@20")


def check_ties_of_gdeval() -> None:
    theirs = pytest.importorskip("ir_measures")
    if not theirs.gdeval.is_available():
        pytest.skip("perl is not installed")
    result = theirs.gdeval.iter_calc([theirs.ERR @ 20], TIED_QRELS, TIED)
    our_result = our_values("ERR(max=4)@20", TIED, TIED_QRELS, like="gdeval")
    assert {m.query_id: f"{m.value:.5f}" for m in result} == {
        q: f"{x:.5f}" for q, x in our_result.items()
    }


def check_beir_row(their_name: str, our_name: str) -> None:
    """BEIR asks pytrec_eval, and rounds means to five digits."""
    stem, _, cutoff = their_name.partition("@")
    name = {"NDCG": "ndcg_cut", "MAP": "map_cut", "Recall": "recall", "P": "P"}[stem]
    theirs = pytrec_values(f"{name}.{cutoff}")
    assert our_values(our_name, TIED, TIED_QRELS, like="trec_eval") == theirs
    mean = rp.evaluate(TIED_QRELS, TIED, our_name, like="trec_eval")[our_name].oblivious
    assert round(mean, 5) == round(sum(theirs.values()) / len(theirs), 5)


def check_mrr_of_beir() -> None:
    """As its `mrr` does: a stable sort of the dict, over all judged queries."""
    without_one = {query: listed for query, listed in TIED.items() if query != "2"}
    total = 0.0
    for query, listed in without_one.items():
        top = sorted(listed.items(), key=lambda row: row[1], reverse=True)[:10]
        result = [r for r, (doc, _) in enumerate(top, 1) if TIED_QRELS[query].get(doc, 0) > 0]
        total += 1 / result[0] if result else 0.0
    our_result = rp.evaluate(TIED_QRELS, without_one, "RR@10", order="input", missing="zero")[
        "RR@10"
    ]
    assert our_result.oblivious == pytest.approx(total / len(TIED_QRELS), rel=1e-14)
    assert rp.evaluate(TIED_QRELS, without_one, "nDCG@10", like="trec_eval")["nDCG@10"].queries == 5


def check_identical_ids_are_kept() -> None:
    assert our_values("RR", {"q": {"q": 2.0, "a": 1.0}}, {"q": {"a": 1}}) == {"q": 0.5}
    assert our_values("RR", {"q": {"a": 1.0}}, {"q": {"a": 1}}) == {"q": 1.0}


CHECK_OF_SECTION: dict[str, Callable[[str, str], None]] = {
    "trec_eval, pytrec_eval": check_trec_row,
    "ir_measures": check_ir_measures_row,
    "ranx": check_ranx_row,
    "PyTerrier": check_pyterrier_row,
    "MTEB": check_mteb_row,
    "BEIR": check_beir_row,
}
CHECKS: dict[str, Callable[..., None]] = {
    "`iprec_at_recall_0.10`": check_iprec_of_an_emptied_list,
    "`-q`": check_values_of_each_query,
    "`-c`": check_missing_queries_count_zero,
    "`-l 2`": check_level,
    "`-M 100`": check_depth,
    "`-J`": check_condensed_lists,
    (
        "`utility`, `G`, `binG`, `Rndcg`, `ndcg_rel`, `relative_P`, `Rprec_mult`, `yaap`"
    ): check_trec_formulas,
    "`-R prefs`, `-R qrels_prefs`, `-R qrels_jg`": check_several_annotators,
    "`-Z FILE`": check_standard_scores,
    "`RBP(p=0.8)`": check_rbp,
    "`RR@10`": check_reciprocal_rank_with_cutoff,
    "`AP(judged_only=True)`": check_judged_only,
    "`map@10-l2`": check_metric_with_level,
    "`rbp.95`": check_rbp_adds_up_grades,
    "ranx: `bpref`": check_bpref_without_non_relevant,
    "`evaluate(qrels, run, …)`": check_argument_order,
    "`compare(qrels, [a, b], …)`": check_compare,
    '`fuse([a, b], method="rrf")`': check_rrf_of_ties,
    '`fuse(…, norm="min-max")`': check_min_max_of_equal_scores,
    '`fuse(…, norm="min-max-inverted")`': check_inverted_min_max,
    '`fuse(…, norm="zmuv")`': check_z_scores_of_missing_documents,
    "`ranx.metrics`, `ranx.data_structures`": check_modules_without_counterpart,
    "a frame with `qid`, `docno`, `score`": check_frames,
    "`pt.Experiment([a, b], topics, qrels, …)`": check_experiments,
    "`pt.Experiment(…, perquery=True)`": check_experiments,
    "`pt.Experiment(…, baseline=0)`": check_baseline,
    "`MRR@10`": check_mrr_of_beir,
    "`ignore_identical_ids=True`": check_identical_ids_are_kept,
    "BEIR: ties": lambda: check_beir_row("NDCG@10", "nDCG@10"),
    "ranx: ties": check_ties_of_ranx,
    "MTEB: ties": check_ties_of_mteb,
    "gdeval: ties": check_ties_of_gdeval,
    "`ndcg@20`": check_ndcg_of_gdeval,
    "`err@20`": check_err_of_gdeval,
}


def test_the_page_has_a_table_for_every_peer() -> None:
    sections = {section for section, *_ in page_rows()}
    tools = {"trec_eval, pytrec_eval", "ir_measures", "ranx", "PyTerrier", "MTEB", "gdeval", "BEIR"}
    assert sections == tools
    assert len(page_rows()) > 60


@pytest.mark.slow
@pytest.mark.parametrize("row", page_rows(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_both_tools_behave_as_a_row_says(row: tuple[str, str, str, str], tmp_path: Path) -> None:
    section, theirs, our_result, _ = row
    check = CHECKS.get(f"{section}: {theirs}") or CHECKS.get(theirs)
    if check is not None:
        check(*([tmp_path] if check.__code__.co_argcount else []))
        return
    (their_name,), (our_name,) = quoted_names(theirs), quoted_names(our_result)
    assert str(rp.parse(our_name)) == our_name
    CHECK_OF_SECTION[section](their_name, our_name)
