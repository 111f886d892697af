"""How measures are written, read, compared and refused."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankproof as rp
from rankproof import AP, ERR, RBP, RR, P, R, RAnWG, Rprec, nDCG
from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Float, Int
from rankproof.measures import REGISTRY, Definition, Measure, Outcomes

SPELLINGS = [
    "AP", "AP@100", "AP(rel=2)", "AP(rel=2)@100",
    "ERR", "ERR@20", "ERR(max=4)@20", "ERR(max=None)",
    "F1@10", "F1(rel=3)@5", "Hits", "Hits@10", "Hits(rel=2)@1", "Judged@10",
    "P@1", "P@1000000", "P(rel=4)@10", "R", "R@1000", "R(rel=2)@5",
    "RBP", "RBP(p=0.8)", "RBP(p=0.95)@10", "RBP(p=0.5,rel=2)", "RBP(rel=2,p=0.5)", "RBP(p=1)",
    "RBP(p=1e-05)", "RR", "RR@10", "RR(rel=2)@10", "Rprec", "Rprec(rel=2)",
    "Success@1", "Success(rel=2)@5", "bpref", "bpref(rel=2)",
    "infAP", "infAP(rel=2)",
    "nDCG", "nDCG@10", "nDCG(rel=3)@10", "nDCG(gain='exp',rel=3)@10",
    "nDCG(gain='exp')@10", "nDCG(gain='linear')", "nDCG(gain='exp')", "DCG(gain='exp',rel=2)@10",
    "RAnWG@10", "RAnWG(alpha=0.5,cap3=0.2)@30", "RAnWG(alpha=0,cap4=0.5,cap3=0.1)@3",
    "NRecall4@10", "NRecall5@30", "P4@10", "Harm@10",
    "Hit@10", "UDCG@5", "UDCG(penalty=0.5)@10",
    "RBP(p=0.5,max=2)", "RBPResidual", "RBPResidual(p=0.5)@10", "nDCG(gain={1: 1, 2: 3})@10",
    "NumRet", "NumRet(rel=1)", "NumRel", "NumRel(rel=2)", "NumRelRet", "NumRelRet(rel=2)",
    "SetP", "SetP(rel=2)", "SetR", "SetR(rel=2)", "SetF", "SetF(rel=2,beta=0.5)", "SetAP",
    "SetAP(rel=2)", "IPrec@0", "IPrec@0.1", "IPrec(rel=2)@0.25", "IPrec@1", "AP11", "AP11(rel=2)",
    "IPrec(rounding='nearest')@0.2", "AP11(rounding='nearest')",
    "GMAP", "GMAP(rel=2)", "nDCG(gain=exp)@10",
    "alpha_nDCG@10", "alpha_nDCG(alpha=0.3,rel=2)@5", "alpha_DCG(alpha=0,rel=2)@5",
    "ERR_IA(rel=2)@20", "nERR_IA(rel=2)@20", "P_IA(rel=2)@5", "AP_IA", "AP_IA(rel=2)@100",
    "StRecall(rel=2)@10", "StRecall(nuggets=vital)@5", "StRecall(nuggets='vital',partial=1)@5",
]  # fmt: skip


def refusal(spelling: object) -> str:
    """What `parse` says of a measure it refuses: one line."""
    with pytest.raises(rp.MeasureError) as caught:
        rp.parse(spelling)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 350
    return message


# --------------------------------------------------------------------------------- spelling


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_measure_is_written_as_it_was_read(spelling: str) -> None:
    assert str(rp.parse(spelling)) == spelling
    assert rp.parse(str(rp.parse(spelling))) == rp.parse(spelling)


def test_the_spellings_above_name_every_measure_and_parameter() -> None:
    measures = [rp.parse(spelling) for spelling in SPELLINGS]
    for name, definition in REGISTRY.items():
        named = {key for m in measures if m.name == name for key, _ in m.explicit}
        assert any(m.name == name for m in measures), name
        assert named == set(definition.parameters), name


@pytest.mark.parametrize(
    ("measure", "spelling"),
    [
        (nDCG @ 10, "nDCG@10"),
        (nDCG, "nDCG"),
        (AP(rel=2) @ 100, "AP(rel=2)@100"),
        ((AP @ 100)(rel=2), "AP(rel=2)@100"),
        (nDCG(gain="exp") @ 10, "nDCG(gain='exp')@10"),
        (RBP(p=0.5)(rel=2), "RBP(p=0.5,rel=2)"),
        (RBP(p=0.5)(p=0.9), "RBP(p=0.9)"),
        (RAnWG(alpha=0.5, cap3=0.2) @ 30, "RAnWG(alpha=0.5,cap3=0.2)@30"),
        (nDCG @ 10 @ 20, "nDCG@20"),
        (P @ np.int64(5), "P@5"),  # type: ignore[operator]
        (AP(rel=np.int64(2)), "AP(rel=2)"),  # type: ignore[arg-type]
        (RBP(p=np.float64(0.5)), "RBP(p=0.5)"),
        (RBP(p=np.float32(0.5)), "RBP(p=0.5)"),  # type: ignore[arg-type]
    ],
)
def test_a_measure_built_in_python_is_the_one_that_is_read(measure: Measure, spelling: str) -> None:
    assert str(measure) == spelling
    assert repr(measure) == spelling
    assert measure == rp.parse(spelling)
    assert rp.parse(measure) is measure


@pytest.mark.parametrize(
    ("loose", "strict"),
    [
        (" nDCG@10 ", "nDCG@10"),
        ("AP()", "AP"),
        ("RBP( p = 0.5, rel = 2 )@3", "RBP(p=0.5,rel=2)@3"),
        ('nDCG(gain="exp")@10', "nDCG(gain='exp')@10"),
        ("nDCG@010", "nDCG@10"),
    ],
)
def test_loose_spellings_are_read_and_tidied(loose: str, strict: str) -> None:
    assert str(rp.parse(loose)) == strict


# ----------------------------------------------------------------------------------- values


def test_equal_measures_are_one_key() -> None:
    same = [RBP, RBP(p=0.8), RBP(rel=1), RBP(p=0.8, rel=1), rp.parse("RBP(rel=1,p=0.8)")]
    assert len(set(same)) == 1
    assert {nDCG @ 10: "x"}[rp.parse("nDCG(gain='linear')@10")] == "x"
    assert RBP(p=1) == RBP(p=1.0)


def test_measures_that_compute_different_things_differ() -> None:
    different = [nDCG, nDCG @ 10, nDCG @ 11, nDCG(gain="exp") @ 10, RR @ 10, RBP, RBP(p=0.9), ERR]
    assert len(set(different)) == len(different)


def test_parameters_and_cutoffs_leave_the_measure_they_were_set_on() -> None:
    before = str(nDCG)
    _ = nDCG(gain="exp") @ 5
    assert str(nDCG) == before == "nDCG"


def test_a_measure_asked_for_twice_is_computed_once() -> None:
    result = rp.evaluate({"q": {"d": 1}}, {"q": {"d": 1.0}}, ["RBP", RBP(p=0.8), "RBP(rel=1)"])
    assert [str(measure) for measure in result] == ["RBP"]
    assert result["RBP(p=0.8)"] is result[RBP]


# --------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("ndcg@10", "nDCG@10"),
        ("NDCG@5", "nDCG@5"),
        ("ndcg(gain='exp')@10", "nDCG(gain='exp')@10"),
        ("ndcg_cut_10", "nDCG@10"),
        ("ndcg_cut.10", "nDCG@10"),
        ("ndcg_at_10", "nDCG@10"),
        ("ndcg_burges@10", "nDCG(gain='exp')@10"),
        ("dcg@10", "DCG@10"),
        ("dcg_burges", "DCG(gain='exp')"),
        ("nDCG(dcg='exp-log2')@10", "nDCG(gain='exp')@10"),
        ("nDCG(gains={1: 1, 2: 3})", "nDCG(gain={1: 1, 2: 3})"),
        ("map", "AP"),
        ("MAP@100", "AP@100"),
        ("map(rel=2)", "AP(rel=2)"),
        ("map_cut_100", "AP@100"),
        ("AP(judged_only=False)", "AP"),
        ("MRR@10", "RR@10"),
        ("mrr", "RR"),
        ("recip_rank", "RR"),
        ("recall_1000", "R@1000"),
        ("recall_at_100", "R@100"),
        ("Recall@10", "R@10"),
        ("P_5", "P@5"),
        ("precision_at_1", "P@1"),
        ("success_1", "Success@1"),
        ("hit_rate@5", "Success@5"),
        ("RBP.95", "RBP(p=0.95)"),
        ("rbp.8", "RBP(p=0.8)"),
        ("f1@7", "F1@7"),
        ("hits@7", "Hits@7"),
        ("num_rel_ret", "NumRelRet"),
        ("set_P", "SetP"),
        ("set_F", "SetF"),
        ("gm_map", "GMAP"),
        ("11pt_avg", "AP11"),
        ("iprec@0.1", "IPrec@0.1"),
        ("iprec_at_recall_0.10", "IPrec@0.1"),
        ("Bpref", "bpref"),
        ("binary_preference", "bpref"),
        ("RA-nWG@30", "RAnWG@30"),
        ("N-Recall4+@10", "NRecall4@10"),
    ],
)
def test_a_name_of_another_tool_means_ours(theirs: str, ours: str) -> None:
    assert str(rp.parse(theirs)) == ours
    assert rp.parse(theirs) == rp.parse(ours)


def test_names_of_other_tools_are_answered_under_ours_with_one_note() -> None:
    asked = ["map", "nDCG@10", "mrr@10", "AP"]
    result = rp.evaluate({"q": {"d": 1}}, {"q": {"d": 1.0}}, asked)
    assert [str(measure) for measure in result] == ["AP", "nDCG@10", "RR@10"]
    assert result.notes == ("names of other tools: map is AP, mrr@10 is RR@10",)
    assert result["map"] is result["AP"]
    assert not rp.evaluate({"q": {"d": 1}}, {"q": {"d": 1.0}}, ["AP"]).notes


def test_a_measure_of_ir_measures_means_ours() -> None:
    ir = pytest.importorskip("ir_measures")
    theirs = [
        ir.nDCG @ 10, ir.nDCG(dcg="exp-log2") @ 5, ir.AP(rel=2) @ 100, ir.RR, ir.MRR @ 10, ir.R @ 5,
        ir.Success @ 1, ir.RBP(rel=1, p=0.5), ir.IPrec @ 0.1, ir.SetF(beta=2.0), ir.NumRelRet,
        ir.Bpref, ir.ERR @ 20, ir.Judged @ 10,
    ]  # fmt: skip
    ours = [
        "nDCG@10", "nDCG(gain='exp')@5", "AP(rel=2)@100", "RR", "RR@10", "R@5", "Success@1",
        "RBP(p=0.5,rel=1)", "IPrec@0.1", "SetF(beta=2.0)", "NumRet(rel=1)", "bpref", "ERR@20",
        "Judged@10",
    ]  # fmt: skip
    assert [rp.parse(measure) for measure in theirs] == [rp.parse(text) for text in ours]
    with pytest.raises(rp.MeasureError, match="condensed=True"):
        rp.parse(ir.AP(judged_only=True))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("nDGC@10", "nDCG@10"),
        ("P10", "P@10"),
        ("precision", "P@10"),
        ("f1", "F1@10"),
        ("p4", "P4@10"),
        ("r-prec@10", "Rprec"),
        ("hit@5", "Success@5"),
        ("SetPP", "SetP"),
        ("ndgc(\n)@10", "nDCG@10"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(wrong: str, right: str) -> None:
    assert refusal(wrong).endswith(f"did you mean {right}?")


@pytest.mark.parametrize("definition", REGISTRY.values(), ids=lambda d: d.name)
def test_what_other_tools_call_a_measure_is_it(definition: Definition) -> None:
    tails = {"cutoff": ("@7", "_7"), "recall": ("@0.5", "_0.50"), None: ("",)}
    for alias in definition.aliases:
        for tail in tails[definition.at]:
            found = rp.parse(alias.partition("(")[0] + tail)
            assert (found.name, found.alias) == (definition.name, alias.partition("(")[0] + tail)
            assert found.cutoff == (7 if definition.takes_cutoff else None)


def test_a_name_like_no_other_is_answered_with_the_list() -> None:
    message = refusal("qqqqzzzz@10")
    assert all(re.search(rf"\b{name}\b", message) for name in REGISTRY)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("nDCG@0", "whole number from 1"),
        ("nDCG@-1", "whole number from 1"),
        ("nDCG@x", "'x'"),
        ("nDCG@", "whole number from 1"),
        ("nDCG@1.5", "'1.5'"),
        ("nDCG@1e3", "'1e3'"),
        ("nDCG@١٠", "whole number from 1"),
        ("nDCG@10000000000000000000", "whole number from 1 to 10^18"),
        ("nDCG@" + "1" * 5000, "whole number from 1 to 10^18"),
        ("P", "needs a cutoff; write P@10"),
        ("P(rel=2)", "write P(rel=2)@10"),
        ("Success", "needs a cutoff"),
        ("RAnWG", "needs a cutoff"),
        ("Rprec@10", "has no cutoff; write Rprec"),
        ("bpref@5", "has no cutoff"),
    ],
)
def test_a_wrong_cutoff_is_refused(wrong: str, said: str) -> None:
    assert said in refusal(wrong)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("AP(relevance=2)", "no parameter 'relevance'; it takes rel"),
        ("Judged(rel=2)@10", "it takes no parameters"),
        ("AP(self=2)", "no parameter 'self'"),
        ("AP(groups=2)", "no parameter 'groups'"),
        ("AP(cutoff=10)", "no parameter 'cutoff'"),
        ("AP(rel=1.5)", "rel is int"),
        ("AP(rel='2')", "rel is int"),
        ("AP(rel=True)", "rel is int"),
        ("AP(rel=None)", "rel is int"),
        ("AP(rel=[2])", "rel is int"),
        ("RBP(p='high')", "p is float"),
        ("RBP(p=True)", "p is float"),
        ("nDCG(gain='log')@10", "gain is 'linear' or 'exp'"),
        ("nDCG(gain=['exp'])@10", "gain is 'linear' or 'exp'"),
        ("ERR(max='4')@10", "max is None or int"),
        ("AP(rel=0)", "out of range"),
        ("AP(rel=-1)", "out of range"),
        ("AP(rel=0x" + "f" * 60 + ")", "out of range"),
        ("RBP(p=1.01)", "between 0 and 1"),
        ("RBP(p=-0.1)", "between 0 and 1"),
        ("RBP(p=1e999)", "between 0 and 1"),
        ("RAnWG(alpha=-1.0)@5", "out of range"),
        ("RAnWG(alpha=1e999)@5", "alpha lies between 0 and 1e+18"),
        ("RAnWG(cap3=1.5)@5", "between 0 and 1"),
        ("ERR(max=0)@5", "out of range"),
        ("ERR(max=2000)@5", "out of range"),
    ],
)
def test_a_wrong_parameter_is_refused(wrong: str, said: str) -> None:
    assert said in refusal(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        "nDCG(gain=__import__('os').system('true'))@10",
        "AP(rel=open('/etc/passwd').read())",
        "AP(rel=(lambda: 2)())",
        "AP(rel=[x for x in (1,)])",
        "AP(rel=f'{1}')",
        "AP(rel=1 if 1 else 2)",
        "AP(rel:=2)",
        "AP(2)",
        "AP(*[2])",
        "AP(**{'rel': 2})",
        "AP(rel=1,rel=2)",
        "AP(rel=2)(rel=3)@10",
        "AP(rel=2)+f(rel=3)",
        "AP(rel=2).x(rel=3)",
        "AP(rel=2",
        "AP(rel=)",
        "AP(rel=2#)",
        "AP(rel=2;rel=3)",
        "AP(rel=\0)",
        "AP(rel=\n\n;)",
        "AP(rel={[]: 1})",
        "AP(rel=" + "9" * 5000 + ")",
        "AP(rel=" + "-" * 5000 + "1)",
        "AP(rel=" + "(" * 500 + "1" + ")" * 500 + ")",
    ],
)
def test_parameters_are_read_as_literals_and_never_run(wrong: str) -> None:
    message = refusal(wrong)
    assert "cannot read" in message
    assert "AP(rel=2)" in message


@pytest.mark.parametrize(
    "wrong",
    ["", " ", "@10", "(rel=2)", "nDCG @10", "nDCG@10@20", "nDCG@10,RR@10", "AP)rel=2(", 5, None,
     b"nDCG@10", ["nDCG@10"]],
)  # fmt: skip
def test_what_has_no_form_of_a_measure_is_refused(wrong: object) -> None:
    assert "cannot read measure" in refusal(wrong)


@pytest.mark.parametrize(
    "several", ["nDCG@10,RR@10", "RR AP", "AP(rel=2, max=3)@5; RR", "P@5, R@5"]
)
def test_several_measures_in_one_are_to_be_named_one_by_one(several: str) -> None:
    assert "name each by itself: -m nDCG@10 -m RR" in refusal(several)


@settings(max_examples=10 * settings().max_examples)
@given(st.text(max_size=30) | st.from_regex(r"(nDCG|AP|P)\(.{0,12}\)@\d{0,3}", fullmatch=True))
def test_any_text_is_a_measure_or_a_measure_error(text: str) -> None:
    try:
        found = rp.parse(text)
    except rp.MeasureError as error:
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert rp.parse(str(found)) == found


@pytest.mark.parametrize("gain", ["{}", "{1: -1}", "{-1: 1}", "{1: 'x'}", "{True: 1}", "{1: 1e99}"])
def test_gains_that_are_none_are_refused(gain: str) -> None:
    assert "grades and what each is worth" in refusal(f"nDCG(gain={gain})")


def test_a_level_of_recall_lies_between_0_and_1() -> None:
    assert rp.parse("IPrec") == rp.parse("IPrec@0")
    assert "out of range" in refusal("IPrec@2")
    assert "not a level of recall" in refusal("IPrec@x")
    with pytest.raises(rp.MeasureError, match="out of range"):
        rp.parse("IPrec@0.5") @ 1.5


@pytest.mark.parametrize("cutoff", [0, -1, 1.5, 10.0, "10", True, None, 10**18])
def test_a_wrong_cutoff_is_refused_in_python_too(cutoff: object) -> None:
    with pytest.raises(rp.MeasureError, match="whole number from 1"):
        nDCG @ cutoff  # type: ignore[operator]


def test_wrong_parameters_are_refused_in_python_too() -> None:
    with pytest.raises(rp.MeasureError, match="between 0 and 1"):
        RBP(p=float("nan"))
    with pytest.raises(rp.MeasureError, match="no parameter 'k'"):
        AP(k=10)
    with pytest.raises(rp.MeasureError, match="has no cutoff"):
        Rprec @ 10


def test_a_measure_that_needs_a_cutoff_is_refused_before_it_is_computed() -> None:
    with pytest.raises(rp.MeasureError, match="write P@10"):
        rp.evaluate({"q": {"d": 1}}, {"q": {"d": 1.0}}, [R, P])


# ------------------------------------------------------------------------ a measure of one's own


@pytest.fixture
def top_grade() -> Iterator[Measure]:
    """The highest grade in the top k over the highest in the pool."""

    @rp.measure("TopGrade", at="cutoff", limits={"scale": (0.5, 2)}, aliases=("best_grade",))
    def best(groups: TieGroups, cutoff: int, scale: float = 1.0) -> Outcomes:
        """The highest grade in the top k, times `scale`."""

        def highest(rank: Int) -> Float:
            value = np.zeros(groups.queries)
            np.maximum.at(
                value, groups.doc_query, np.where(rank <= cutoff, scale * groups.grade, 0.0)
            )
            return value

        place = groups.place_by_grade
        low, high = highest(groups.worst_rank(place)), highest(groups.best_rank(place))
        return Outcomes((low + high) / 2, low, high, highest(groups.rank), None)

    yield best
    del REGISTRY["TopGrade"]


def test_ones_own_measure_is_evaluated_like_any_other(top_grade: Measure) -> None:
    run = {"a": {"x": 1.0, "y": 1.0, "z": 0.5}, "b": {"x": 1.0}}
    qrels = {"a": {"x": 1, "y": 3, "z": 2}, "b": {"x": 2}, "c": {"x": 1}}
    result = rp.evaluate(qrels, run, ["TopGrade(scale=2)@1", top_grade @ 2, nDCG @ 2])
    assert [str(m) for m in result] == ["TopGrade(scale=2)@1", "TopGrade@2", "nDCG@2"]
    rows = result.per_query.filter(measure="TopGrade(scale=2)@1")
    assert rows["min"].to_list() == [2.0, 4.0, 0.0]
    assert rows["max"].to_list() == [6.0, 4.0, 0.0]
    assert rows["oblivious"].to_list() == [2.0, 4.0, 0.0]
    assert rows["std"].to_list() == [None] * 3
    assert result[top_grade @ 2].expected == (3.0 + 2.0 + 0.0) / 3
    assert result[top_grade @ 2].std is None


def test_ones_own_measure_is_read_and_refused_like_any_other(top_grade: Measure) -> None:
    assert rp.parse("TopGrade@5") == top_grade @ 5
    assert REGISTRY["TopGrade"].summary == "The highest grade in the top k, times `scale`."
    assert "needs a cutoff" in refusal("TopGrade")
    assert "between 0.5 and 2" in refusal("TopGrade(scale=3)@5")
    assert rp.parse("best_grade@5") == top_grade @ 5


def test_a_removed_measure_is_unknown() -> None:
    assert "unknown measure" in refusal("TopGrade@5")


@pytest.mark.parametrize("definition", REGISTRY.values(), ids=lambda d: d.name)
def test_every_measure_says_in_a_sentence_what_it_is(definition: Definition) -> None:
    assert 20 < len(definition.summary) < 160
    assert "\n" not in definition.summary


def test_a_name_that_is_taken_is_not_registered_over() -> None:
    before = REGISTRY["nDCG"]
    with pytest.raises(rp.MeasureError, match="already a measure nDCG"):

        @rp.measure("nDCG", at="cutoff")
        def mine(groups: TieGroups, cutoff: int) -> Outcomes:
            raise AssertionError

    assert REGISTRY["nDCG"] is before


def test_a_geometric_mean_is_not_compared() -> None:
    runs, qrels = {"a": {"q": {"d": 1.0}}, "b": {"q": {"e": 1.0}}}, {"q": {"d": 1}}
    with pytest.raises(rp.MeasureError, match="GMAP is not a plain mean over queries; ask for AP"):
        rp.compare(qrels, runs, "GMAP")
    with pytest.raises(rp.MeasureError, match="GMAP is not a plain mean"):
        rp.leaderboard(qrels, runs, "GMAP")
    with pytest.raises(rp.MeasureError, match="GMAP is not a plain mean"):
        rp.holes(qrels, runs, "GMAP")
