"""trec_eval 10: what its C program (usnistgov/trec_eval, version 10.0) prints for these files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rankproof as rp
from rankproof.compat import trec_eval as shim
from rankproof.compat.trec_lines import requested_lines

RANKS = (1, 3, 6, 8, 11, 13, 15)
QRELS = "".join(f"1 0 d{rank} 1\n" for rank in RANKS) + "1 0 d2 0\n"
RUN = "".join(f"1 Q0 d{rank} {rank} {16 - rank} t\n" for rank in range(1, 16))
MISSING = "2 0 x 1\n"  # a judged query that the run lacks
Outputs = Callable[..., dict[tuple[str, str], str]]
MEASURES = ("num_ret", "map", "iprec_at_recall..2,.3", "11pt_avg", "rbp", "rbp_resid", "unj")


@pytest.fixture
def outputs(tmp_path: Path) -> Outputs:
    """A function of judgments, measures and options that returns (label, query) → printed value."""

    def run(qrels: str, *measures: str, **options: Any) -> dict[tuple[str, str], str]:
        (tmp_path / "q").write_text(qrels)
        (tmp_path / "r").write_text(RUN)
        judged, table = rp.read_qrels(tmp_path / "q"), rp.read_run(tmp_path / "r")
        output = shim.trec_eval(judged, table, measures, version=10, **options)
        lines = [*output.query_lines(), *output.summary_lines()]
        fields = (line.rstrip("\n").split("\t") for line in lines)
        return {(label.strip(), query): value for label, query, value in fields}

    return run


def test_the_lines_of_version_10(outputs: Outputs) -> None:
    printed = outputs(QRELS + MISSING, *MEASURES, complete=True)
    of_query = {label: value for (label, query), value in printed.items() if query == "1"}
    assert of_query == {
        "num_ret": "15",
        "map": "0.5785",
        "iprec_at_recall_0.20": "1.0000",  # 1.4 of 7 documents is 1; version 9 takes 2
        "iprec_at_recall_0.30": "0.6667",
        "11pt_avg": "0.6394",
        "rbp": "0.3739",
        "rbp_resid": "0.5361",
        "unj_5": "0.4000",
        "unj_10": "0.5000",
        "unj_20": "0.3500",
    }
    assert {value for (_, query), value in printed.items() if query == "2"} == {"0", "0.0000"}
    assert printed["rbp", "all"] == "0.1869"


def test_a_persistence_of_ones_own(outputs: Outputs) -> None:
    printed = outputs(QRELS, "rbp.p=0.5", "rbp_resid.p=0.5")
    assert printed["rbp_p=0.5", "1"] == "0.6452"
    assert printed["rbp_resid_p=0.5", "1"] == "0.1048"


def test_what_version_10_stops_at_or_leaves_undefined_is_refused(outputs: Outputs) -> None:
    with pytest.raises(rp.InputError, match="stops at the judged query '2'"):
        outputs(QRELS + MISSING, "map")
    with pytest.raises(rp.InputError, match="grades above 1"):
        outputs(QRELS + "1 0 d4 2\n", "rbp")
    with pytest.raises(rp.RankproofError, match="other gains"):
        outputs(QRELS, "rbp.1=0.5")


def test_version_9_has_no_rbp(tmp_path: Path) -> None:
    with pytest.raises(rp.RankproofError, match="not offered"):
        requested_lines(["rbp"])


def test_gm_map_with_ties_is_the_mean_over_orders_of_both_queries() -> None:
    run = rp.read_run({q: {"a": 1.0, "b": 1.0} for q in "12"})
    qrels = rp.read_qrels({"1": {"a": 1}, "2": {"b": 1}})
    output = shim.trec_eval(qrels, run, ["gm_map", "gm_bpref"], ties=True)
    gm_map, gm_bpref = output.summary_lines()
    assert gm_map.split() == ["gm_map", "all", "0.7071", "0.7286", "0.5000", "1.0000"]
    assert gm_bpref.split() == ["gm_bpref", "all", "1.0000", "1.0000", "1.0000", "1.0000"]
