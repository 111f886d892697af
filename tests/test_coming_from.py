"""Each row of docs/coming-from.md: theirs means ours, and what is said to differ does."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rankproof_cli import in_text

import rankproof as rp
from rankproof.compat import ranx
from rankproof.compat.trec_eval import asked_for
from rankproof.retrieval import fusion

PAGE = Path(__file__).parents[1] / "docs" / "coming-from.md"
TIED = {"q": {"a": 1.0, "b": 1.0, "c": 0.5}}
JUDGED = {"q": {"b": 3, "c": 1}}


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


@cache
def help_of(verb: str) -> str:
    return in_text(verb, "--help").stdout


def offers(option: str) -> Callable[[], None]:
    def check() -> None:
        assert option in help_of("eval")

    return check


def like(tool: Any, oblivious: float) -> Callable[[], None]:
    def check() -> None:
        assert rp.evaluate(TIED, JUDGED, "RR", like=tool)["RR"].oblivious == oblivious

    return check


def the_run_comes_first() -> None:
    found = ranx.evaluate(ranx.Qrels(JUDGED), ranx.Run(TIED), "ndcg@10")
    assert found == rp.evaluate(TIED, JUDGED, "nDCG@10")["nDCG@10"].oblivious
    with pytest.raises(rp.InputError, match="name the run first"):
        rp.evaluate({"q": dict.fromkeys("abcd", 1)}, {"q": {"a": 9, "b": 7, "c": 5}}, "RR")


def compares() -> None:
    runs = [ranx.Run(TIED, "x"), ranx.Run({"q": {"b": 1.0}}, "y")]
    theirs = ranx.compare(ranx.Qrels(JUDGED), runs, "map").to_dict()["pairs"]
    ours = rp.compare({"x": TIED, "y": {"q": {"b": 1.0}}}, JUDGED, "AP").to_dict()["pairs"]
    assert theirs == ours


def fuses() -> None:
    theirs = ranx.fuse([ranx.Run(TIED), ranx.Run(TIED)], method="rrf").to_dict()
    assert theirs["q"]["a"] == theirs["q"]["b"] == pytest.approx(2 / 61.5)
    alike = fusion.combine([rp.read_run({"q": {"a": 5.0, "b": 5.0}})])
    assert alike.score.tolist() == [1.0, 1.0]


def refuses_zmuv() -> None:
    with pytest.raises(rp.InputError, match="normalise='z'"):
        ranx.fuse([ranx.Run(TIED), ranx.Run(TIED)], norm="zmuv")


def in_the_verb() -> None:
    for name in ("utility", "G", "binG", "Rndcg", "ndcg_rel", "relative_P", "Rprec_mult", "yaap"):
        assert len(asked_for([name])[1]) > 0
        with pytest.raises(rp.MeasureError):
            rp.parse(name)


def not_offered() -> None:
    for name in ("prefs", "qrels_jg", "map_avgjg"):
        with pytest.raises(rp.MeasureError, match="is not offered"):
            asked_for([name])


def condensed() -> None:
    with pytest.raises(rp.MeasureError, match="condensed"):
        rp.parse("AP(judged_only=True)")


def gdevals_ndcg() -> None:
    assert rp.parse("ndcg@20") == rp.parse("nDCG@20") != rp.parse("nDCG(gain='exp')@20")


def gdevals_err() -> None:
    """Without a maximum the highest judged grade is the scale's."""
    found = rp.evaluate(TIED, JUDGED, ["ERR@20", "ERR(max=3)@20", "ERR(max=4)@20"])
    assert found["ERR@20"] == found["ERR(max=3)@20"] != found["ERR(max=4)@20"]


def frames() -> Any:
    """A run as PyTerrier has it, with ranks that nobody reads."""
    rows = [{"qid": q, "docno": d, "score": s, "rank": 9} for q in TIED for d, s in TIED[q].items()]
    return pd.DataFrame(rows)


def takes_frames() -> None:
    assert rp.evaluate(frames(), JUDGED, "AP")["AP"] == rp.evaluate(TIED, JUDGED, "AP")["AP"]


def experiments() -> None:
    found = rp.evaluate({"a": frames(), "b": frames()}, JUDGED, "AP")
    assert list(found) == ["a", "b"]
    assert found["a"].per_query["query"].to_list() == ["q"]


def baseline() -> None:
    rows = frames()
    more = pd.concat([rows, rows.assign(qid="r")])
    judged = JUDGED | {"r": {"a": 1}}
    found = rp.compare({"a": more, "b": more.assign(score=1.0)}, judged, "AP", t_test=True)
    assert "p_t" in found.to_dict()["pairs"][0]["measures"]["AP"]


def keeps_identical_ids() -> None:
    assert rp.evaluate({"q": {"q": 2.0, "a": 1.0}}, {"q": {"a": 1}}, "RR")["RR"].expected == 0.5


def level() -> None:
    offers("--level")()
    from rankproof.evaluation import at_level, parse_all

    assert list(map(str, at_level(parse_all(["AP", "nDCG"]), 2))) == ["AP(rel=2)", "nDCG"]


OTHER: dict[str, Callable[[], None]] = {
    "`-q`": offers("--per-query"),
    "`-c`": offers("--missing"),
    "`-l 2`": level,
    "`-M 100`": offers("--depth"),
    "`-J`": offers("--condensed"),
    "`utility`, `G`, `binG`, `Rndcg`, `ndcg_rel`, `relative_P`, `Rprec_mult`, `yaap`": in_the_verb,
    "`-R prefs`, `-R qrels_jg`, `-Z`": not_offered,
    "`AP(judged_only=True)`": condensed,
    "`evaluate(qrels, run, …)`": the_run_comes_first,
    "`compare(qrels, [a, b], …)`": compares,
    '`fuse([a, b], method="rrf")`': fuses,
    '`fuse(…, norm="min-max")`': fuses,
    '`fuse(…, norm="zmuv")`': refuses_zmuv,
    "a frame with `qid`, `docno`, `score`": takes_frames,
    "`pt.Experiment([a, b], topics, qrels, …)`": experiments,
    "`pt.Experiment(…, perquery=True)`": experiments,
    "`pt.Experiment(…, baseline=0)`": baseline,
    "`ignore_identical_ids=True`": keeps_identical_ids,
    "BEIR: ties": like("trec_eval", 1.0),
    "ranx: ties": like("ranx", 0.5),
    "MTEB: ties": like("mteb", 1.0),
    "gdeval: ties": like("gdeval", 1.0),
    "`ndcg@20`": gdevals_ndcg,
    "`err@20`": gdevals_err,
}


def test_the_page_has_a_table_for_every_peer() -> None:
    sections = {section for section, *_ in rows()}
    tools = {"trec_eval, pytrec_eval", "ir_measures", "ranx", "PyTerrier", "MTEB", "gdeval", "BEIR"}
    assert sections == tools
    assert len(rows()) > 60


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_a_row_says_what_is_so(row: tuple[str, str, str, str]) -> None:
    section, theirs, ours, _ = row
    check = OTHER.get(theirs) or OTHER.get(f"{section}: {theirs}")
    if check is not None:
        check()
        return
    (their_name,), (our_name,) = names(theirs), names(ours)
    assert rp.parse(their_name) == rp.parse(our_name)
    assert str(rp.parse(our_name)) == our_name


def test_what_is_said_of_graded_rbp_is_so() -> None:
    """ranx adds up grades, ours divides by the highest; the residual is what is left."""
    run, qrels = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"a": 2}}
    theirs = ranx.evaluate(ranx.Qrels(qrels), ranx.Run(run), "rbp.5")
    found = rp.evaluate(run, qrels, ["RBP(p=0.5)", "RBP(p=0.5,max=2)", "RBPResidual(p=0.5)"])
    assert theirs == 1.0
    assert [found[m].expected for m in found] == [0.5, 0.5, 0.5]
    less = rp.evaluate(run, {"q": {"a": 1}}, "RBP(p=0.5,max=2)")
    assert less["RBP(p=0.5,max=2)"].max == 0.25
