"""Each row of docs/coming-from.md: theirs and ours are run, and give the same, or what is said."""

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


def tables(ties: bool, queries: int = 6) -> tuple[Nested, Nested]:
    """A run and judgements; queries have numbers, as gdeval wants, and something to find."""
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


RUN, QRELS = tables(ties=False)
TIED, TIED_QRELS = tables(ties=True)


def rows() -> list[tuple[str, str, str, str]]:
    """Section, theirs, ours, difference of every row in a table of three columns."""
    found, section = [], ""
    for line in PAGE.read_text().splitlines():
        section = line[3:] if line.startswith("## ") else section
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == 3 and not cells[1].startswith(("rank", "write")):
            found.append((section, *cells))
    return [row for row in found if row[0]]  # type: ignore[misc]


def names(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def ours(measure: str, run: Any = RUN, qrels: Any = QRELS, **options: Any) -> dict[str, float]:
    """Query → value under the stated order of the ties."""
    frame = rp.evaluate(qrels, run, measure, **options).per_query
    return dict(zip(frame["query"], frame["oblivious"], strict=True))


# ------------------------------------------------------------------------------------- trec_eval


def pytrec(name: str, run: Any = TIED, qrels: Any = TIED_QRELS, *flags: Any) -> dict[str, float]:
    theirs = pytest.importorskip("pytrec_eval")
    found = theirs.RelevanceEvaluator(qrels, {name}, *flags).evaluate(run)
    return {query: next(iter(values.values())) for query, values in found.items()}


def trec_row(their_name: str, our_name: str) -> None:
    theirs = pytrec(their_name)
    mine = ours(our_name, TIED, TIED_QRELS, like="trec_eval")
    if their_name == "gm_map":  # of which a query has the logarithm
        total = rp.evaluate(TIED_QRELS, TIED, our_name, like="trec_eval")[our_name].oblivious
        assert total == pytest.approx(math.exp(sum(theirs.values()) / len(theirs)), rel=1e-14)
        return
    assert mine == theirs
    if their_name.startswith("num_"):
        mean = rp.evaluate(TIED_QRELS, TIED, our_name, like="trec_eval")[our_name].oblivious
        shown = [
            *trec_eval(rp.read_qrels(TIED_QRELS), rp.read_run(TIED), [their_name]).summary_lines()
        ]
        assert shown == [f"{their_name:<22}\tall\t{sum(theirs.values()):.0f}\n"]
        assert mean * len(theirs) == pytest.approx(sum(theirs.values()))


def divides_nothing() -> None:
    """With -J nothing is left of a list that nobody judged."""
    trec_row("iprec_at_recall_0.10", "IPrec@0.1")
    run, qrels = {"1": {"x": 1.0}}, {"1": {"a": 1}}
    assert math.isnan(pytrec("iprec_at_recall_0.00", run, qrels, 1, True)["1"])
    assert ours("IPrec@0", run, qrels, condensed=True, like="trec_eval") == {"1": 0.0}
    judged, listed = rp.read_qrels(qrels), rp.read_run(run)
    shown = [*trec_eval(judged, listed, ["iprec_at_recall.0"], judged_only=True).summary_lines()]
    assert shown == ["iprec_at_recall_0.00  \tall\t  -nan\n"]


def each_query(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(TIED))
    (tmp_path / "qrels.json").write_text(json.dumps(TIED_QRELS))
    files = [str(tmp_path / "qrels.json"), str(tmp_path / "run.json")]
    told = ["--like", "trec_eval", "-m", "AP", "--per-query", str(tmp_path / "out.csv")]
    assert in_text("eval", *files, *told).returncode == 0
    frame = pd.read_csv(tmp_path / "out.csv", dtype={"query": str})
    theirs = pytrec("map")
    assert dict(zip(frame["query"], frame["oblivious"], strict=True)) == theirs
    shown = [*trec_eval(rp.read_qrels(TIED_QRELS), rp.read_run(TIED), ["map"]).query_lines()]
    assert shown == [f"{'map':<22}\t{q}\t{x:6.4f}\n" for q, x in sorted(theirs.items())]


def counts_missing() -> None:
    fewer = {query: listed for query, listed in TIED.items() if query != "2"}
    theirs = pytrec("map", fewer)
    whole = rp.evaluate(TIED_QRELS, fewer, "AP", like="trec_eval", missing="zero")["AP"]
    assert (len(theirs), whole.queries) == (5, 6)
    assert whole.oblivious == pytest.approx(sum(theirs.values()) / 6, rel=1e-14)
    assert rp.evaluate(TIED_QRELS, fewer, "AP")["AP"].queries == 6
    assert rp.evaluate(TIED_QRELS, fewer, "AP", like="trec_eval")["AP"].queries == 5


def level() -> None:
    pairs = {"map": "AP", "ndcg": "nDCG", "bpref": "bpref"}
    for their_name, our_name in pairs.items():
        (measure,) = at_level(parse_all([our_name]), 2)
        theirs = pytrec(their_name, TIED, TIED_QRELS, 2)
        assert ours(str(measure), TIED, TIED_QRELS, like="trec_eval") == theirs
    assert pytrec("ndcg", TIED, TIED_QRELS, 2) == pytrec("ndcg")


def depth() -> None:
    """As its own order has them: float32, then ids down."""
    cut = {
        q: dict(sorted(t.items(), key=lambda row: (np.float32(row[1]), row[0]), reverse=True)[:10])
        for q, t in TIED.items()
    }
    assert ours("AP", TIED, TIED_QRELS, like="trec_eval", depth=10) == pytrec("map", cut)
    found = rp.evaluate(TIED_QRELS, TIED, "AP", like="trec_eval", depth=10)
    assert any("inside a tie" in note for note in found.notes)


def condensed() -> None:
    theirs = pytrec("map", TIED, TIED_QRELS, 1, True)
    assert ours("AP", TIED, TIED_QRELS, like="trec_eval", condensed=True) == theirs
    unpooled = {q: {f"x{i}": 9.0 for i in range(5)} | t for q, t in RUN.items()}
    assert ours("AP", unpooled, condensed=True) == ours("AP", condensed=True)  # no harm is done
    assert set(ours("Judged@5", unpooled).values()) == {0.0}


def in_the_verb() -> None:
    judged, listed = rp.read_qrels(TIED_QRELS), rp.read_run(TIED)
    for name in ("utility", "G", "binG", "Rndcg", "ndcg_rel", "relative_P.5", "Rprec_mult.0.4"):
        found = trec_eval(judged, listed, [name])
        assert found.columns[0].tolist() == list(pytrec(name).values()), name
        with pytest.raises(rp.MeasureError):
            rp.parse(name)
    assert len([*trec_eval(judged, listed, ["yaap"]).summary_lines()]) == 1  # pytrec_eval lacks it


# A few lines, and what trec_eval 9.0.8 prints of them.
PREFERENCES = "q u1 p a 2\nq u1 p b 1\nq u1 p c 0\nq u2 p b 3\nq u2 p a 0\nq u2 r b 3\nq u2 r d 2\n"
PREFERRED = "q Q0 a 1 2.0 t\nq Q0 b 2 2.0 t\nq Q0 c 3 1.0 t\nq Q0 e 4 0.5 t\n"
PEOPLE = "q 1 a 1\nq 1 b 0\nq 2 b 1\nq 2 d 1\n"
REFERENCE = "a map 0 1\nq 0 0 1\nq P_5 0.4 0\nq map 0.25 0.5\nq zz 0 1\nz map 0 1\n"


def verb(tmp_path: Path, judged: str, *arguments: str) -> str:
    (tmp_path / "judged").write_text(judged)
    (tmp_path / "run").write_text(PREFERRED)
    (tmp_path / "z").write_text(REFERENCE)
    files = [str(tmp_path / "judged"), str(tmp_path / "run")]
    return in_text("trec_eval", *arguments, *files, cwd=tmp_path).stdout


def several_people(tmp_path: Path) -> None:
    found = verb(tmp_path, PREFERENCES, "-R", "prefs", "-m", "all_prefs")
    assert found == PRINTED["prefs"]
    assert verb(tmp_path, PEOPLE, "-R", "qrels_prefs", "-m", "prefs") == PRINTED["qrels_prefs"]
    people = verb(tmp_path, PEOPLE, *["-R", "qrels_jg", "-q", "-m", "map_avgjg", "-m", "P_avgjg.2"])
    assert people == PRINTED["qrels_jg"]


def standard_scores(tmp_path: Path) -> None:
    asked = ["-q", "-Z", "z", "-m", "map", "-m", "P.5", "-m", "num_q", "-m", "relstring"]
    assert verb(tmp_path, "q 0 a 1\nq 0 d 1\n", *asked) == PRINTED["-Z"]


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


def by_ir_measures(name: str, run: Any = RUN, qrels: Any = QRELS) -> dict[str, float]:
    theirs = pytest.importorskip("ir_measures")
    measure = theirs.parse_measure(name)
    if (measure.NAME == "ERR" or "exp" in name) and not theirs.gdeval.is_available():
        pytest.skip("perl is not installed")
    return {m.query_id: m.value for m in theirs.iter_calc([measure], qrels, run)}


def ir_measures_row(their_name: str, our_name: str) -> None:
    digits = 5 if "ERR" in their_name or "exp" in their_name else 15  # gdeval prints five
    assert rp.parse(their_name) == rp.parse(our_name) or "ERR" in their_name
    mine = ours(our_name if "ERR" not in their_name else "ERR(max=4)@20", like="ir_measures")
    theirs = by_ir_measures(their_name)
    assert {q: round(x, digits) for q, x in theirs.items()} == pytest.approx(
        {q: round(x, digits) for q, x in mine.items()}, abs=1e-12 if digits == 15 else 1.01e-5
    )
    if their_name == "NumRelRet":
        theirs_total = pytest.importorskip("ir_measures")
        total = theirs_total.calc_aggregate([theirs_total.NumRelRet], QRELS, RUN)
        assert total[theirs_total.NumRelRet] == sum(mine.values())
    if their_name == "ERR@20":
        assert ours("ERR@20") == ours("ERR(max=3)@20") != ours("ERR(max=4)@20")
    if "gains" in their_name:
        assert by_ir_measures("nDCG(gains={1: 1})@10") != theirs


def patience() -> None:
    theirs = pytest.importorskip("ir_measures")
    with pytest.raises(ValueError, match="Unsupported measures"):
        theirs.calc_aggregate([theirs.RBP(p=0.8)], QRELS, RUN)
    run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 2}}
    found = rp.evaluate(qrels, run, ["RBP(p=0.5)", "RBP(p=0.5,max=2)", "RBPResidual(p=0.5)"])
    assert [found[m].expected for m in found] == [0.5, 0.5, 0.5]
    less = rp.evaluate({"q": {"a": 1}}, run, "RBP(p=0.5,max=2)")
    assert less["RBP(p=0.5,max=2)"].max == 0.25


def first_at_ten() -> None:
    assert by_ir_measures("RR@10") == ours("RR@10")
    run, qrels = {"1": {"a": 1.0, "b": 1.0}}, {"1": {"a": 1}}
    assert by_ir_measures("RR@10", run, qrels) == {"1": 1.0}
    assert by_ir_measures("RR", run, qrels) == {"1": 0.5}
    assert ours("RR@10", run, qrels, like="ir_measures") == {"1": 0.5}


def judged_only() -> None:
    with pytest.raises(rp.MeasureError, match="condensed"):
        rp.parse("AP(judged_only=True)")
    assert by_ir_measures("AP(judged_only=True)") == ours("AP", condensed=True)


# ------------------------------------------------------------------------------------------ ranx

RANX = """
import json, sys, warnings
warnings.simplefilter("ignore")
import ranx
run, qrels, metrics, lists, tied = json.load(sys.stdin)
def figures(run, qrels, metrics):
    found = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), metrics, return_mean=False)
    return {name: list(map(float, values)) for name, values in found.items()}
def fused(**told):
    return ranx.fuse([ranx.Run(r) for r in lists], **told).to_dict()["q"]
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
    "shown": str(report),
}, sys.stdout)
"""
LISTS = [{"q": {"a": 3.0, "b": 3.0, "c": 1.0}}, {"q": {"c": 2.0, "d": 2.0}}]
MANY = {"q": {f"d{i:03}": float(i % 3) for i in range(300)}}


@cache
def by_ranx() -> dict[str, Any]:
    """Everything at once: compiling takes minutes, and is left out in a process of its own."""
    pytest.importorskip("ranx")
    metrics = [name for s, t, *_ in rows() if s == "ranx" for name in names(t)[:1]]
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
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _positive(qrels: Nested) -> Nested:
    """Without the grade 0, which takes part in nothing but bpref."""
    return {q: {d: g for d, g in judged.items() if g > 0} for q, judged in qrels.items()}


def ranx_row(their_name: str, our_name: str) -> None:
    assert rp.parse(their_name.replace("-l2", "")).name == rp.parse(our_name).name
    theirs = by_ranx()["figures"][their_name]
    assert list(ours(our_name, RUN, _positive(QRELS)).values()) == pytest.approx(theirs, abs=1e-14)
    shim = our_ranx.evaluate(_positive(QRELS), RUN, their_name, return_mean=False)
    assert shim.tolist() == pytest.approx(theirs, abs=1e-14)


def from_a_level() -> None:
    ranx_row("map@10-l2", "AP(rel=2)@10")
    run, qrels = {"q": {"a": 3.0, "b": 2.0}}, {"q": {"a": 2, "b": 3}}
    shim = our_ranx.evaluate(qrels, run, ["dcg-l2", "rbp.5-l3"])
    assert shim["dcg-l2"] == 2 + 3 / math.log2(3)
    assert shim["rbp.5-l3"] == pytest.approx(0.25 * 3)
    assert ours("DCG(rel=2)", run, qrels) == {"q": 1 + 2 / math.log2(3)}


def adds_up_grades() -> None:
    qrels = {q: dict.fromkeys(judged, 1) for q, judged in _positive(QRELS).items()}
    shim = our_ranx.evaluate(qrels, RUN, "rbp.95", return_mean=False)
    assert list(ours("RBP(p=0.95)", RUN, qrels).values()) == pytest.approx(shim.tolist())
    run, graded = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 2}}
    shim = our_ranx.evaluate(graded, run, "rbp.5")
    assert by_ranx()["graded"] == [1.0] == [shim]
    assert shim.expected == shim.max == 1.0
    assert ours("RBP(p=0.5)", run, graded) == {"q": 0.5}


def divides_by_none() -> None:
    assert not np.isfinite(by_ranx()["bpref"]).all() or by_ranx()["bpref"] != [1.0]
    assert ours("bpref", {"q": {"a": 1.0}}, {"q": {"a": 1}}) == {"q": 1.0}


def judgments_come_first() -> None:
    found = our_ranx.evaluate(our_ranx.Qrels(_positive(QRELS)), our_ranx.Run(RUN), "ndcg@10")
    assert found == pytest.approx(np.mean(by_ranx()["figures"]["ndcg@10"]), rel=1e-14)
    assert found == rp.evaluate(_positive(QRELS), RUN, "nDCG@10")["nDCG@10"].oblivious
    with pytest.raises(rp.InputError, match="name the judgments first"):
        rp.evaluate({"q": {"a": 9, "b": 7, "c": 5}}, {"q": dict.fromkeys("abcd", 1)}, "RR")


def compares() -> None:
    runs = {"a": RUN, "b": {q: dict(list(t.items())[5:]) for q, t in RUN.items()}}
    qrels = _positive(QRELS)
    tables = [our_ranx.Run(t, n) for n, t in runs.items()]
    shim = our_ranx.compare(our_ranx.Qrels(qrels), tables, ["map", "mrr@10"], max_p=0.9)
    mine = rp.compare(qrels, runs, ["AP", "RR@10"])
    assert shim.comparison.to_dict()["pairs"] == mine.to_dict()["pairs"]
    theirs = by_ranx()["report"]
    for name in ("a", "b"):
        assert shim.to_dict()[name].keys() == theirs[name].keys()
        assert shim.to_dict()[name]["win_tie_loss"] == theirs[name]["win_tie_loss"]
        assert shim.results[name] == pytest.approx(theirs[name]["scores"], rel=1e-12)
        [other] = theirs[name]["comparisons"]
        p = {m: told["p_value"] for m, told in shim.comparisons[name, other].items()}
        assert p == pytest.approx(theirs[name]["comparisons"][other], rel=1e-9)
    rows = [line.split() for line in str(shim).splitlines()]
    assert rows[2:] == [line.split() for line in by_ranx()["shown"].splitlines()][2:]
    assert len(mine.to_dict()["pairs"][0]["measures"]["AP"]["ci"]) == 2


def fuses() -> None:
    runs = [rp.read_run(table) for table in LISTS]
    theirs = by_ranx()["rrf"]
    assert theirs["a"] != theirs["b"]
    shared = dict(fusion.rrf(runs).to_frame().select("doc", "score").iter_rows())
    assert shared["a"] == shared["b"] == pytest.approx(1 / 61.5)
    assert our_ranx.fuse([our_ranx.Run(t) for t in LISTS], method="rrf").to_dict()["q"] == shared


def equal_scores() -> None:
    theirs = by_ranx()["minmax"]
    assert theirs["d"] == 0.0
    mine = dict(
        fusion.combine([rp.read_run(t) for t in LISTS], normalise="minmax")
        .to_frame()
        .select("doc", "score")
        .iter_rows()
    )
    assert mine["d"] == 1.0
    assert (mine["a"], theirs["a"]) == (1.0, 1.0)


def distances() -> None:
    theirs = by_ranx()["inverted"]
    shim = our_ranx.fuse([our_ranx.Run(LISTS[0])], norm="min-max-inverted", method="sum")
    assert shim.to_dict()["q"] == {"a": 0.0, "b": 0.0, "c": 1.0}
    assert (theirs["a"], theirs["b"]) == (0.0, 0.0)
    less = {"q": {doc: -x for doc, x in LISTS[0]["q"].items()}}
    plain = our_ranx.fuse([our_ranx.Run(less)], norm="min-max", method="sum")
    assert plain.to_dict() == shim.to_dict()


def lacking_is_the_mean() -> None:
    """d, which the first list lacks, gets as much from it as its mean: 0."""
    assert by_ranx()["zmuv"]["d"] == 0.0 > by_ranx()["zmuv"]["c"]
    found = fusion.combine([rp.read_run(t) for t in LISTS], normalise="z").to_frame()
    mine = dict(found.select("doc", "score").iter_rows())
    assert mine["d"] == mine["c"] < mine["a"]
    with pytest.raises(rp.InputError, match="normalise='z'"):
        our_ranx.fuse([our_ranx.Run(t) for t in LISTS], norm="zmuv")


def no_rule_for_ties() -> None:
    stable = sorted(MANY["q"], key=lambda doc: -MANY["q"][doc])
    assert by_ranx()["order"] != stable
    assert ours("RR", MANY, {"q": {stable[4]: 1}}, like="ranx") == {"q": 0.2}


def of_numba() -> None:
    for name in ("metrics", "data_structures"):
        assert importlib.util.find_spec(f"ranx.{name}") is not None
        assert not hasattr(our_ranx, name)


# ------------------------------------------------------------------- PyTerrier, MTEB, gdeval, BEIR


def pyterrier_row(their_name: str, our_name: str) -> None:
    """PyTerrier hands its names to ir_measures."""
    theirs = pytest.importorskip("ir_measures")
    (measure,) = theirs.parse_trec_measure(their_name)
    found = {m.query_id: m.value for m in theirs.iter_calc([measure], TIED_QRELS, TIED)}
    assert ours(our_name, TIED, TIED_QRELS, like="ir_measures") == found


def frame_of(run: Nested) -> Any:
    """A run as PyTerrier has it, with ranks that nobody reads."""
    rows = [{"qid": q, "docno": d, "score": s, "rank": 9} for q in run for d, s in run[q].items()]
    return pd.DataFrame(rows)


def takes_frames() -> None:
    assert ours("AP", frame_of(RUN)) == ours("AP")
    assert ours("AP", frame_of(RUN).rename(columns={"qid": "query_id", "docno": "doc_id"})) == ours(
        "AP"
    )


def experiments() -> None:
    theirs = pytest.importorskip("ir_measures")
    mine = rp.evaluate(
        TIED_QRELS, {"a": frame_of(TIED), "b": frame_of(RUN)}, "AP", like="ir_measures"
    )
    assert list(mine) == ["a", "b"]
    for name, run in (("a", TIED), ("b", RUN)):
        wanted = theirs.calc_aggregate([theirs.AP], TIED_QRELS, run)[theirs.AP]
        assert mine[name]["AP"].oblivious == pytest.approx(wanted, rel=1e-14)
        single = {m.query_id: m.value for m in theirs.iter_calc([theirs.AP], TIED_QRELS, run)}
        frame = mine[name].per_query
        assert dict(zip(frame["query"], frame["oblivious"], strict=True)) == single


def baseline() -> None:
    """Student's t of scipy's, which PyTerrier calls, beside ours."""
    stats = pytest.importorskip("scipy.stats")
    worse = {q: {d: -s for d, s in t.items()} for q, t in RUN.items()}
    found = rp.compare(QRELS, {"a": frame_of(RUN), "b": frame_of(worse)}, "AP", t_test=True)
    told = found.to_dict()["pairs"][0]["measures"]["AP"]
    a, b = (list(ours("AP", run).values()) for run in (RUN, worse))
    assert told["p_t"] == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=1e-9)
    assert told["p"] != told["p_t"]
    assert len(told["ci"]) == 2


@cache
def by_mteb() -> Any:
    pytest.importorskip("mteb")
    metrics = importlib.import_module("mteb._evaluators.retrieval_metrics")
    return metrics.calculate_retrieval_scores(TIED, TIED_QRELS, [5, 10, 100])


def mteb_row(their_name: str, our_name: str) -> None:
    name, _, cutoff = their_name.partition("_at_")
    table = getattr(by_mteb(), name)
    (mean,) = (value for key, value in table.items() if key.endswith(f"@{cutoff}"))
    wide = {"order": "trec_eval", "score_dtype": "float64", "missing": "skip"}
    options: Any = wide if name == "mrr" else {"like": "mteb"}
    found = rp.evaluate(TIED_QRELS, TIED, our_name, **options)[our_name].oblivious
    assert round(found, 5) == pytest.approx(round(mean, 5), abs=1e-9)
    if name == "mrr":
        one = {"q": {"a": 1.0, "b": 1.0 - 1e-9}}
        assert ours("RR@10", one, {"q": {"a": 1}}, like="mteb") == {"q": 0.5}
        assert ours("RR@10", one, {"q": {"a": 1}}) == {"q": 1.0}


def mtebs_ties() -> None:
    for query, value in ours("nDCG@10", TIED, TIED_QRELS, like="mteb").items():
        assert by_mteb().all_scores[query]["ndcg_cut_10"] == value


def gdevals_ndcg() -> None:
    assert rp.parse("ndcg@20") == rp.parse("nDCG@20") != rp.parse("nDCG(gain='exp')@20")
    ir_measures_row("nDCG(dcg='exp-log2')@20", "nDCG(gain='exp')@20")


def gdevals_err() -> None:
    ir_measures_row("ERR@20", "ERR(max=4)@20")


def gdevals_ties() -> None:
    theirs = pytest.importorskip("ir_measures")
    if not theirs.gdeval.is_available():
        pytest.skip("perl is not installed")
    found = theirs.gdeval.iter_calc([theirs.ERR @ 20], TIED_QRELS, TIED)
    mine = ours("ERR(max=4)@20", TIED, TIED_QRELS, like="gdeval")
    assert {m.query_id: f"{m.value:.5f}" for m in found} == {q: f"{x:.5f}" for q, x in mine.items()}


def beir_row(their_name: str, our_name: str) -> None:
    """BEIR asks pytrec_eval, and rounds means to five digits."""
    stem, _, cutoff = their_name.partition("@")
    name = {"NDCG": "ndcg_cut", "MAP": "map_cut", "Recall": "recall", "P": "P"}[stem]
    theirs = pytrec(f"{name}.{cutoff}")
    assert ours(our_name, TIED, TIED_QRELS, like="trec_eval") == theirs
    mean = rp.evaluate(TIED_QRELS, TIED, our_name, like="trec_eval")[our_name].oblivious
    assert round(mean, 5) == round(sum(theirs.values()) / len(theirs), 5)


def beirs_mrr() -> None:
    """As its `mrr` does: a stable sort of the dict, over all judged queries."""
    fewer = {query: listed for query, listed in TIED.items() if query != "2"}
    total = 0.0
    for query, listed in fewer.items():
        top = sorted(listed.items(), key=lambda row: row[1], reverse=True)[:10]
        found = [r for r, (doc, _) in enumerate(top, 1) if TIED_QRELS[query].get(doc, 0) > 0]
        total += 1 / found[0] if found else 0.0
    mine = rp.evaluate(TIED_QRELS, fewer, "RR@10", order="input", missing="zero")["RR@10"]
    assert mine.oblivious == pytest.approx(total / len(TIED_QRELS), rel=1e-14)
    assert rp.evaluate(TIED_QRELS, fewer, "nDCG@10", like="trec_eval")["nDCG@10"].queries == 5


def keeps_identical_ids() -> None:
    assert ours("RR", {"q": {"q": 2.0, "a": 1.0}}, {"q": {"a": 1}}) == {"q": 0.5}
    assert ours("RR", {"q": {"a": 1.0}}, {"q": {"a": 1}}) == {"q": 1.0}


SECTIONS: dict[str, Callable[[str, str], None]] = {
    "trec_eval, pytrec_eval": trec_row,
    "ir_measures": ir_measures_row,
    "ranx": ranx_row,
    "PyTerrier": pyterrier_row,
    "MTEB": mteb_row,
    "BEIR": beir_row,
}
OTHER: dict[str, Callable[..., None]] = {
    "`iprec_at_recall_0.10`": divides_nothing,
    "`-q`": each_query,
    "`-c`": counts_missing,
    "`-l 2`": level,
    "`-M 100`": depth,
    "`-J`": condensed,
    "`utility`, `G`, `binG`, `Rndcg`, `ndcg_rel`, `relative_P`, `Rprec_mult`, `yaap`": in_the_verb,
    "`-R prefs`, `-R qrels_prefs`, `-R qrels_jg`": several_people,
    "`-Z FILE`": standard_scores,
    "`RBP(p=0.8)`": patience,
    "`RR@10`": first_at_ten,
    "`AP(judged_only=True)`": judged_only,
    "`map@10-l2`": from_a_level,
    "`rbp.95`": adds_up_grades,
    "ranx: `bpref`": divides_by_none,
    "`evaluate(qrels, run, …)`": judgments_come_first,
    "`compare(qrels, [a, b], …)`": compares,
    '`fuse([a, b], method="rrf")`': fuses,
    '`fuse(…, norm="min-max")`': equal_scores,
    '`fuse(…, norm="min-max-inverted")`': distances,
    '`fuse(…, norm="zmuv")`': lacking_is_the_mean,
    "`ranx.metrics`, `ranx.data_structures`": of_numba,
    "a frame with `qid`, `docno`, `score`": takes_frames,
    "`pt.Experiment([a, b], topics, qrels, …)`": experiments,
    "`pt.Experiment(…, perquery=True)`": experiments,
    "`pt.Experiment(…, baseline=0)`": baseline,
    "`MRR@10`": beirs_mrr,
    "`ignore_identical_ids=True`": keeps_identical_ids,
    "BEIR: ties": lambda: beir_row("NDCG@10", "nDCG@10"),
    "ranx: ties": no_rule_for_ties,
    "MTEB: ties": mtebs_ties,
    "gdeval: ties": gdevals_ties,
    "`ndcg@20`": gdevals_ndcg,
    "`err@20`": gdevals_err,
}


def test_the_page_has_a_table_for_every_peer() -> None:
    sections = {section for section, *_ in rows()}
    tools = {"trec_eval, pytrec_eval", "ir_measures", "ranx", "PyTerrier", "MTEB", "gdeval", "BEIR"}
    assert sections == tools
    assert len(rows()) > 60


@pytest.mark.slow
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_a_row_says_what_is_so(row: tuple[str, str, str, str], tmp_path: Path) -> None:
    section, theirs, mine, _ = row
    check = OTHER.get(f"{section}: {theirs}") or OTHER.get(theirs)
    if check is not None:
        check(*([tmp_path] if check.__code__.co_argcount else []))
        return
    (their_name,), (our_name,) = names(theirs), names(mine)
    assert str(rp.parse(our_name)) == our_name
    SECTIONS[section](their_name, our_name)
