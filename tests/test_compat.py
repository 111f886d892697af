"""Other tools' interfaces give their values, and on request those over every order of ties."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import shlex
import subprocess
import sys
from collections import OrderedDict, defaultdict
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args

import numpy as np
import pytest
from rankproof_cli import in_text, rankproof

import rankproof as rp
from rankproof.compat import dict_groups, pytrec_eval
from rankproof.compat import ranx as our_ranx
from rankproof.compat.trec_eval import line_values, trec_eval
from rankproof.compat.trec_lines import requested_lines
from rankproof.data.sources import Source
from rankproof.data.ties import in_order
from rankproof.data.trec import tag_of
from rankproof.evaluation import LIKE, Policy, match_judgments
from rankproof.foundation import kernels
from rankproof.retrieval import fusion

Nested = dict[str, dict[str, Any]]

# ------------------------------------------------------------------------- trec_eval, byte for byte

RUN = """\
1 Q0 d03 1 2.5 tag one
1 Q0 d01 2 2.5 tag one
1 Q0 d09 3 1.75 tag one
1 Q0 d02 4 1.00000001 tag one
1 Q0 d05 5 1.0 tag one
1 Q0 d07 6 -0.5 tag one
10 Q0 d01 1 0.25 tag one
10 Q0 d02 2 0.25 tag one
10 Q0 d03 3 0.25 tag one
10 Q0 d04 4 0.125 tag one
2 Q0 d08 1 9 tag one
2 Q0 d06 2 8 tag one
9 Q0 d01 1 1 tag one
"""
QRELS = """\
1 0 d01 1
1 0 d02 2
1 0 d03 0
1 0 d05 -1
1 0 d06 1
10 0 d01 0
10 0 d02 1
10 0 d03 2
2 0 d01 1
2 0 d08 0
3 0 d01 1
"""

# Output of trec_eval 9.0.8 for these two files.
PRINTED = {
    "": """\
runid                 \tall\ttag
num_q                 \tall\t3
num_ret               \tall\t12
num_rel               \tall\t6
num_rel_ret           \tall\t4
map                   \tall\t0.4333
gm_map                \tall\t0.0144
Rprec                 \tall\t0.4444
bpref                 \tall\t0.3333
recip_rank            \tall\t0.5000
iprec_at_recall_0.00  \tall\t0.5000
iprec_at_recall_0.10  \tall\t0.5000
iprec_at_recall_0.20  \tall\t0.5000
iprec_at_recall_0.30  \tall\t0.5000
iprec_at_recall_0.40  \tall\t0.4667
iprec_at_recall_0.50  \tall\t0.4667
iprec_at_recall_0.60  \tall\t0.4667
iprec_at_recall_0.70  \tall\t0.4667
iprec_at_recall_0.80  \tall\t0.3333
iprec_at_recall_0.90  \tall\t0.3333
iprec_at_recall_1.00  \tall\t0.3333
P_5                   \tall\t0.2667
P_10                  \tall\t0.1333
P_15                  \tall\t0.0889
P_20                  \tall\t0.0667
P_30                  \tall\t0.0444
P_100                 \tall\t0.0133
P_200                 \tall\t0.0067
P_500                 \tall\t0.0027
P_1000                \tall\t0.0013
""",
    "-q -c -m map -m gm_map -m num_rel -m P.5,2 -m num_q": """\
num_rel               \t1\t3
map                   \t1\t0.3000
P_2                   \t1\t0.5000
P_5                   \t1\t0.4000
num_rel               \t10\t2
map                   \t10\t1.0000
P_2                   \t10\t1.0000
P_5                   \t10\t0.4000
num_rel               \t2\t1
map                   \t2\t0.0000
P_2                   \t2\t0.0000
P_5                   \t2\t0.0000
num_q                 \tall\t4
num_rel               \tall\t7
map                   \tall\t0.3250
gm_map                \tall\t0.0023
P_2                   \tall\t0.3750
P_5                   \tall\t0.2000
""",
    "-J -m ndcg_cut.3 -m set_F -m 11pt_avg -m success -m bpref": """\
bpref                 \tall\t0.3333
11pt_avg              \tall\t0.4949
ndcg_cut_3            \tall\t0.5070
success_1             \tall\t0.3333
success_5             \tall\t0.6667
success_10            \tall\t0.6667
set_F                 \tall\t0.4889
""",
    "-m set -N 50 -m utility.1,-1,0,0.5": """\
runid                 \tall\ttag
num_q                 \tall\t3
num_ret               \tall\t12
num_rel               \tall\t6
num_rel_ret           \tall\t4
utility_1,-1,0,0.5    \tall\t21.3333
set_P                 \tall\t0.2778
set_relative_P        \tall\t0.5556
set_recall            \tall\t0.5556
set_map               \tall\t0.2407
set_F                 \tall\t0.3704
""",
    "-m infAP -m gm_bpref -m G -mRndcg -mndcg_rel -myaap -m Rprec_mult.0.5,2 -m ndcg.1=3,2=9": """\
infAP                 \tall\t0.4444
gm_bpref              \tall\t0.0005
Rprec_mult_0.50       \tall\t0.5000
Rprec_mult_2.00       \tall\t0.2778
G                     \tall\t0.4468
ndcg_1=3,2=9          \tall\t0.4779
ndcg_rel              \tall\t0.4597
Rndcg                 \tall\t0.4056
yaap                  \tall\t-0.0280
""",
}
# SHA-256 of its longer outputs.
DIGESTS = {
    "-q -n -l 2 -M 3": "abe6a438ff6dc87655e9c488bd5d1fa048e8aceb6431f5472625f7bcaed64fdc",
    "-q -m all_trec": "387b28e8f57bdb13c07d3d4b82cf9741583edb58ce9bc4b46a7068808b3bd550",
    "-q -m all_trec -l 0": "2862d8aa6110293e9b283c78c92ca9d89db8c94805a5d1bf5d280e3e9df73c03",
    "-qc -mall_trec -l2": "da6e761f4c7a38f817a65cf72df5a1562821117954df44fa6850c6c65aa9bd62",
    "-qJ -m all_trec -m yaap": "638c1299d0c3434de40ce85fd8dbdf6997f3e261427bd5fe22430c538c53d778",
}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "qrels").write_text(QRELS)
    (tmp_path / "run").write_text(RUN)
    return [str(tmp_path / "qrels"), str(tmp_path / "run")]


def run_trec_eval(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return rankproof("trec_eval", *arguments)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    "after",
    [b"", b"\n", b"\n" * (3 << 20), b"\n# made by a b c d\n"],
    ids=["nothing", "feed", "3 MB", "comment"],
)
def test_a_run_has_the_tag_of_its_last_line(after: bytes, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "run"
    body = b"\xef\xbb\xbfq Q0 d 1 1 first\nq Q0 e 2 0.5 last" + after
    path.write_bytes(gzip.compress(body) if packed else body)
    assert tag_of(Source(path)) == "last"


@pytest.mark.parametrize("way", ["-", "/dev/stdin"])
def test_a_run_from_a_pipe_is_read_once_and_keeps_its_tag(files: list[str], way: str) -> None:
    from_file = run_trec_eval("-m", "runid", "-m", "map", *files)
    python = shlex.quote(sys.executable)
    shell_command = f"exec cat {files[1]} | {python} -m rankproof trec_eval -m runid -m map"
    piped = subprocess.run(["sh", "-c", f"{shell_command} {files[0]} {way}"], capture_output=True)
    assert piped.stdout == from_file.stdout
    assert piped.stderr == b"rankproof: stdin: words behind a run's tag are not read\n"


@pytest.mark.parametrize("options", PRINTED)
def test_the_output_equals_that_of_trec_eval_byte_for_byte(options: str, files: list[str]) -> None:
    result = run_trec_eval(*options.split(), *files)
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode() == PRINTED[options]


@pytest.mark.parametrize("options", DIGESTS)
def test_long_outputs_equal_those_of_trec_eval(options: str, files: list[str]) -> None:
    result = run_trec_eval(*options.split(), *files)
    assert hashlib.sha256(result.stdout).hexdigest() == DIGESTS[options]


def test_the_option_ties_adds_expected_lowest_and_highest_values(files: list[str]) -> None:
    lines = (
        run_trec_eval("--ties", "-m", "map", "-m", "recip_rank", *files)
        .stdout.decode()
        .splitlines()
    )
    plain = PRINTED[""].splitlines()
    for line in lines:
        *same, expected, low, high = line.split("\t")
        assert "\t".join(same) in plain
        assert float(low) <= float(expected) <= float(high)
    assert any(line.split("\t")[3] != line.split("\t")[2] for line in lines)
    like = rp.evaluate(files[0], files[1], ["AP"], like="trec_eval")["AP"]
    assert lines[0].split("\t")[3] == f"{like.expected:.4f}"


def test_formulas_of_trec_eval_have_no_values_over_orders_of_ties(files: list[str]) -> None:
    lines = (
        run_trec_eval("--ties", "-m", "binG", "-m", "infAP", *files).stdout.decode().splitlines()
    )
    assert lines[1] == "binG                  \tall\t0.4513\t-\t-\t-"
    assert lines[0].count("\t") == 5
    assert "-" not in lines[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-m prefs", "trec_eval's measure 'prefs' is not offered; there are runid, num_q"),
        ("-m map_avgjg", "trec_eval's measure 'map_avgjg' is not offered"),
        ("-m map -R qrels_jg", "measure 'map' is not offered with -R qrels_jg; there are runid"),
        ("-m prefs -R prefs", "qrels:1: 4 columns; write query person part doc level"),
        ("-R qrels_prefs", "measure 'official' is not offered with -R qrels_prefs"),
        ("-m prefs -R qrels_prefs --ties", "--ties: these figures are of one order of the ties"),
        ("-Z z", "z: there is no such file"),
        ("-m P.", "trec_eval's measure 'P.' is not offered"),
        ("-m P.5,5", "P.'5,5': a cutoff twice, or below 1"),
        ("-m P.inf", "P.'inf': a cutoff twice, or below 1"),
        ("-m Rprec_mult.nan", "'nan' is not a number"),
        ("-m ndcg.1", "'1' is not a grade with its gain; write ndcg.1=3,2=9, say"),
        ("-m utility.1,2", "utility: 2 numbers; trec_eval reads 4"),
        ("-m 11pt_avg..5,.2", "11pt_avg: levels of recall that fall"),
        ("-l -1", "level -1 is negative"),
    ],
)
def test_wrong_options_are_refused_in_one_line(
    options: str, message: str, files: list[str]
) -> None:
    refused = run_trec_eval(*options.split(), *files)
    assert refused.returncode == 2
    assert message in refused.stderr.decode()
    assert refused.stderr.count(b"\n") == 1


def random_tables(seed: int, ties: bool = True, zero: bool = True) -> tuple[Nested, Nested]:
    """Return a run and judgments that share most queries."""
    rng = Random(seed)
    docs = [f"d{i}" for i in range(40)]

    def score() -> float:
        free = rng.uniform(-1, 1)
        return rng.choice([1.0, 0.5, -0.5, free, 1 + 1e-9 * free]) if ties else free

    def grades() -> int:
        return rng.choice([0, 0, 1, 2, 3] if zero else [1, 1, 2, 3])

    run = {f"q{i}": {d: score() for d in rng.sample(docs, rng.randint(1, 40))} for i in range(8)}
    judged = range(2, 10)
    qrels = {f"q{i}": {d: grades() for d in rng.sample(docs, rng.randint(1, 40))} for i in judged}
    return run, qrels


# -------------------------------------------------------------------------------- pytrec_eval

MEASURES = {"ndcg_cut_7", "P.3,8", *pytrec_eval.supported_measures} - {
    *("ndcg_cut", "P", "yaap"),
    "runid",  # uninitialized memory in pytrec_eval
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("level", "judged"), [(1, False), (2, False), (1, True)])
def test_results_equal_those_of_pytrec_eval_to_the_last_bit(
    seed: int, level: int, judged: bool
) -> None:
    theirs = pytest.importorskip("pytrec_eval")
    assert theirs.supported_measures <= pytrec_eval.supported_measures
    run, qrels = random_tables(seed)
    if seed % 2:  # some documents were pooled and not judged
        for judged_docs in qrels.values():
            judged_docs |= {d: -1 for d in judged_docs if d < "d2"} | {"x": 1}
    arguments = (qrels, MEASURES, level, judged)
    reference = theirs.RelevanceEvaluator(*arguments).evaluate(run)
    result = pytrec_eval.RelevanceEvaluator(*arguments).evaluate(run)
    assert result.keys() == reference.keys()
    for query in reference:
        assert result[query].keys() == reference[query].keys()
        for name, value in reference[query].items():
            actual = result[query][name]
            assert actual == value or (math.isnan(actual) and math.isnan(value)), (query, name)
    names = ("map", "gm_map", "num_ret")
    for name in names:
        values = [row[name] for row in reference.values()]
        aggregate = pytrec_eval.compute_aggregated_measure(name, values)
        assert aggregate == pytest.approx(
            theirs.compute_aggregated_measure(name, values), rel=1e-15
        )


@pytest.mark.parametrize("seed", range(8))
def test_groups_of_dicts_give_the_values_of_tables(seed: int) -> None:
    if kernels.native is None:
        pytest.skip("not compiled")
    run, qrels = random_tables(seed)
    quick = dict_groups.groups_of_dicts(run, qrels)
    assert quick is not None
    queries, groups = quick
    names = ["AP", "nDCG", "bpref", "NumRet", "RR", "P@3", "Rprec", "IPrec@0.3", "infAP", "DCG@5"]
    long = rp.evaluate(qrels, run, names, like="trec_eval")
    assert sorted(queries) == long.queries.to_list()
    order = np.argsort(queries)
    for measure in long:
        short = measure.outcomes(groups).oblivious[order]
        assert np.nan_to_num(short).tolist() == long.outcomes[measure].oblivious.tolist()


@pytest.mark.parametrize("name", ["set_F_2.0", "set_F.0.5", "11pt_avg_0.2,0.5", "recall_5,5"])
def test_measures_with_a_parameter_have_the_names_of_pytrec_eval(name: str) -> None:
    theirs = pytest.importorskip("pytrec_eval")
    run, qrels = random_tables(1)
    ours = pytrec_eval.RelevanceEvaluator(qrels, {name}).evaluate(run)
    assert ours == theirs.RelevanceEvaluator(qrels, {name}).evaluate(run)


class Text(str):
    """An id of a subclass of str."""


@pytest.mark.parametrize("order", ["trec_eval", "input"])
@pytest.mark.parametrize("size", [1, 7, 40, 300])
def test_groups_of_dicts_equal_groups_of_tables(
    size: int, order: Literal["trec_eval", "input"]
) -> None:
    if kernels.native is None:
        pytest.skip("not compiled")
    draw = Random(size)
    ids = ["é", "文書", "\U0001f600", "a", "ab", *(f"{'d' * (i % 12)}{i}" for i in range(size))]
    palette: list[Any] = [1, 1.0, -0.0, 0.0, 1e300, -1e300, np.float64(0.5), 1 + 1e-9, 2**60]
    run: Nested = {
        f"q{n:02}": {d: draw.choice(palette[: 1 + n % 9]) for d in draw.sample(ids, size)}
        for n in range(20)
    }
    qrels = {
        q: {d: draw.choice([-1, 0, 2]) for d in draw.sample(ids, min(len(ids), 2 + 9 * n))}
        for n, q in enumerate(run)
    }
    quick = dict_groups.groups_of_dicts(run, qrels, order)
    assert quick is not None
    narrow = "float32" if order == "trec_eval" else None
    policy = Policy(order, "skip", "zero")
    listed = in_order(rp.read_run(run), order, narrow, settle=True)
    groups = match_judgments(listed, rp.read_qrels(qrels), policy).groups()
    pairs: list[tuple[Any, Any]] = [(quick[1], groups), (quick[1].sampled, groups.sampled)]
    for one, other in pairs:
        for column in ("listed", "first", "query", "grade", "rank"):
            assert getattr(one, column).tolist() == getattr(other, column).tolist(), column


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_compiled_and_plain_code_give_equal_values_of_trec_eval(
    seed: int, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels.native is None:
        pytest.skip("not compiled")
    run, qrels = random_tables(seed)
    kinds = [[0], [1], [63], [0, 5, 40], [-(seed % 2), 0, 3], [0, 1, 2], [1, 2], [2]]
    for choices, (query, judged) in zip(kinds, qrels.items(), strict=True):
        qrels[query] = {doc: Random(doc).choice(choices) for doc in judged}
    run["q3"] = {}
    names = {*pytrec_eval.supported_measures, "P.3,8", "Rprec_mult.0.0,0.01,3.5"} - {"P"}
    names |= {"iprec_at_recall.0.05,0.999", "ndcg_cut.1,7"}
    names |= {"utility.1,2,3,4", "ndcg.1=4,3=1", "11pt_avg..2,.5"} if seed > 3 else set()
    _, lines = requested_lines(sorted(names - {"relstring", "iprec_at_recall", "ndcg_cut"}), level)
    quick = dict_groups.groups_of_dicts(run, qrels)
    assert quick is not None
    policy = Policy("trec_eval", "skip", "zero")
    fast = line_values(quick[1], lines, policy)
    monkeypatch.setattr(kernels, "native", None)
    slow = line_values(replace(quick[1]), lines, policy)
    for line, one, other in zip(lines, fast.T, slow.T, strict=True):
        assert str(one.tolist()) == str(other.tolist()), line.label


@pytest.mark.parametrize("seed", range(4))
def test_compiled_and_plain_code_give_equal_sums(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels.native is None:
        pytest.skip("not compiled")
    run, qrels = random_tables(seed, ties=seed % 2 == 0)
    names = ["AP", "AP@3", "AP(rel=2)", "nDCG", "nDCG@4", "nDCG(rel=2)", "DCG@5"]
    both = []
    quick = dict_groups.groups_of_dicts(run, qrels)
    assert quick is not None
    for native in (kernels.native, None):
        monkeypatch.setattr(kernels, "native", native)
        groups = replace(quick[1])
        both.append([rp.parse(name).outcomes(groups).oblivious.tolist() for name in names])
    assert str(both[0]) == str(both[1])  # NaN is not NaN


def test_compiled_sums_refuse_numbers_out_of_range() -> None:
    if kernels.native is None:
        pytest.skip("not compiled")
    one, two, total = np.array([1]), np.array([5]), np.zeros(1)
    with pytest.raises(ValueError, match="no such query"):
        kernels.precision_sum(one, one, one, 1, one)
    with pytest.raises(ValueError, match="no such query or rank"):
        kernels.discounted_sum(one - 1, two, total, total, two)
    with pytest.raises(ValueError, match="no such grade"):
        kernels.native.ideal(np.array([0, 1]), two, total, np.ones(2), 1, total)


def test_compiled_and_plain_code_make_equal_dicts(monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels.native is None:
        pytest.skip("not compiled")
    table = np.array([[0.5, 2.0], [1.0, np.inf], [1.0, -0.0], [np.nan, 0.0]])
    queries = ["q", "r", "s", "t"]
    constants = {"num_q": 1.0}
    fast = pytrec_eval.rows_of(queries, constants, ["a", "b"], table)
    assert pytrec_eval.rows_of(["q"], constants, [], np.zeros((1, 0))) == {"q": constants}
    rows = [("q", "a", 1), ("r", "a", 2), ("q", "b", 3), ("q", "a", 4)]
    nested = kernels.native.nest(rows, 0, 1, 2)
    assert nested == dict_groups.nest_columns(*map(list, zip(*rows, strict=True)))
    assert nested == {"q": {"a": 4, "b": 3}, "r": {"a": 2}}
    assert dict_groups.nest_columns([], [], []) == kernels.native.nest([], 0, 1, 2) == {}
    unfit: list[list[Any]] = [[1], [("q", "a")], [([], "a", 1)]]
    for wrong in unfit:
        with pytest.raises((TypeError, IndexError)):
            kernels.native.nest(wrong, 0, 1, 2)
    monkeypatch.setattr(kernels, "native", None)
    assert str(fast) == str(pytrec_eval.rows_of(queries, constants, ["a", "b"], table))
    assert pytrec_eval.rows_of(["q"], constants, [], np.zeros((1, 0))) == {"q": constants}


def test_frames_and_tuples_of_ir_measures_give_the_values_of_dicts() -> None:
    theirs = pytest.importorskip("ir_measures")
    pandas = pytest.importorskip("pandas")
    from rankproof.compat import ir_measures as ours

    run, qrels = random_tables(2)
    requested = [theirs.AP, theirs.nDCG @ 5, theirs.RR @ 5]
    reference = theirs.calc_aggregate(requested, qrels, run)
    scored = [theirs.ScoredDoc(q, d, x) for q, t in run.items() for d, x in t.items()]
    judged = [theirs.Qrel(q, d, g) for q, t in qrels.items() for d, g in t.items()]
    assert ours.calc_aggregate(requested, iter(judged), iter(scored)) == reference
    frames = pandas.DataFrame(judged), pandas.DataFrame(scored)
    assert ours.calc_aggregate(requested, *frames) == reference
    assert ours.calc_aggregate([theirs.AP], qrels, run) == {theirs.AP: reference[theirs.AP]}


@pytest.mark.parametrize(
    ("listed", "judged"),
    [
        ({"a": True}, {"a": 1}),
        ({"a": 10**400}, {"a": 1}),
        ({"a": 1.0}, {"a": True}),
        ({"a": 1.0}, {"a": 10**30}),
        ({Text("a"): 1.0}, {"a": 1}),
        ({"a": 1.0}, {1: 1}),
        ({"a": math.nan}, {"a": 1}),
        ({"a": np.float32(1)}, {"a": 1}),
        ([("a", 1.0)], {"a": 1}),
    ],
)
def test_compiled_code_declines_unusual_types(listed: Any, judged: Any) -> None:
    if kernels.native is None:
        pytest.skip("not compiled")
    assert kernels.native.settle({"q": listed}, {"q": judged}, 1, 1) is None


def test_tied_documents_keep_the_order_of_an_ordered_dict() -> None:
    listed = OrderedDict(a=1.0, b=1.0, c=1.0)
    listed.move_to_end("a")
    qrels = {"q": {"a": 1}}
    assert dict_groups.groups_of_dicts({"q": listed}, qrels, "input") is None
    again = defaultdict(float, listed)  # a dict subclass that keeps insertion order
    quick = dict_groups.groups_of_dicts({"q": again}, qrels, "input")
    assert quick is None or quick[1].rank.tolist() == [3]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        ({"q": {"a": math.nan}}, "is not a number"),
        ({"q": {"a": "x"}}, "is text, not a number"),
        ({"q": {"a": None}}, "is not a number"),
    ],
)
def test_a_wrong_score_in_a_dict_is_refused_with_its_place(run: Nested, message: str) -> None:
    with pytest.raises(rp.InputError, match=message):
        pytrec_eval.RelevanceEvaluator({"q": {"a": 1}}, {"map"}).evaluate(run)


def test_results_have_expected_values_and_ranges() -> None:
    run, qrels = {"q": {"a": 1.0, "b": 1.0}}, {"q": {"a": 1}}
    result = pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(run)
    assert result == {"q": {"map": 0.5}}
    assert result.expected == {"q": {"map": 0.75}}
    assert (result.min, result.max) == ({"q": {"map": 0.5}}, {"q": {"map": 1.0}})
    assert result.range == {"q": {"map": 0.5}}
    assert pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate({}) == {}


@pytest.mark.parametrize("judged", [False, True])
def test_an_empty_list_is_evaluated_and_no_measures_give_empty_results(judged: bool) -> None:
    run: Nested = {"q": {}, "r": {"a": 1.0}, "not judged": {}}
    qrels = {"q": {"a": 1}, "r": {"a": 1}}
    find = pytrec_eval.RelevanceEvaluator(qrels, {"map", "num_rel"}, 1, judged).evaluate
    nothing = {"num_rel": 1.0, "map": 0.0}
    assert find(run) == {"q": nothing, "r": {"num_rel": 1.0, "map": 1.0}}
    assert find({"q": {}}) == {"q": nothing}
    assert find({}) == find({"not judged": {"a": 1.0}}) == {}
    assert pytrec_eval.RelevanceEvaluator({}, {"map"}, 1, judged).evaluate(run) == {}
    assert pytrec_eval.RelevanceEvaluator(qrels, set()).evaluate(run) == {"q": {}, "r": {}}
    texts = pytrec_eval.RelevanceEvaluator(qrels, {"runid", "relstring"}).evaluate(run)
    assert texts["r"].keys() == {"runid", "relstring"}


def test_lines_are_parsed_as_in_pytrec_eval() -> None:
    run = pytrec_eval.parse_run(["q Q0 a 1 2.5 t", "q Q0 b 2 1 t"])
    assert run == {"q": {"a": 2.5, "b": 1.0}}
    assert pytrec_eval.parse_qrel(["q 0 a 1"]) == {"q": {"a": 1}}
    with pytest.raises(rp.InputError, match="line 2: document a a second time"):
        pytrec_eval.parse_qrel(["q 0 a 1", "q 0 a 2"])


# ------------------------------------------------------------------------------- ir_measures


@pytest.mark.parametrize("seed", range(3))
def test_the_provider_gives_the_values_of_ir_measures(seed: int) -> None:
    theirs = pytest.importorskip("ir_measures")
    from rankproof.compat import ir_measures as ours

    requested = [
        theirs.nDCG @ 10, theirs.nDCG, theirs.AP,
        theirs.AP(rel=2) @ 10, theirs.RR, theirs.P @ 5, theirs.R @ 10, theirs.Rprec, theirs.Bpref,
        theirs.NumRet, theirs.NumRelRet, theirs.NumRel, theirs.SetP, theirs.SetR, theirs.SetF,
        theirs.SetF(beta=2.0), theirs.SetAP, theirs.Success @ 3, theirs.IPrec @ 0.1, theirs.RR @ 5,
        theirs.infAP,
    ]  # fmt: skip
    run, qrels = random_tables(seed)
    # Evaluated apart: together with these, ir_measures may count only judged documents in NumRet,
    # and give nDCG without gains the gains of the other, as its order of sets (of hashes) falls.
    judged = [theirs.AP(judged_only=True), theirs.nDCG(judged_only=True) @ 5]
    for apart in (judged, [theirs.nDCG(gains={1: 2, 2: 5}) @ 5]):
        assert set(ours.iter_calc(apart, qrels, run)) == set(theirs.iter_calc(apart, qrels, run))
    assert sorted(ours.iter_calc(requested, qrels, run), key=str) == sorted(
        theirs.iter_calc(requested, qrels, run), key=str
    )
    assert ours.calc_aggregate(requested, qrels, run) == theirs.calc_aggregate(
        requested, qrels, run
    )
    assert theirs.providers.registry["rankproof"].supports(theirs.nDCG @ 10)
    assert list(ours.rankproof.iter_calc([theirs.AP], qrels, [])) == list(
        theirs.iter_calc([theirs.AP], qrels, [])
    )
    reference = rp.evaluate(qrels, run, "AP", like="ir_measures")["AP"]
    assert ours.expected.calc_aggregate([theirs.AP], qrels, run)[theirs.AP] == pytest.approx(
        reference.expected, rel=1e-12
    )
    assert ours.ranges.calc_aggregate([theirs.AP], qrels, run)[theirs.AP] == pytest.approx(
        reference.range, rel=1e-12
    )


# -------------------------------------------------------------------------------------- ranx

METRICS = [
    "dcg@10", "dcg_burges", "dcg@10-l2", "ndcg_burges@10-l2", "rbp.8-l2",
    "hits", "hits@5", "hit_rate@5", "precision@5", "recall@10", "r-precision", "rbp.8", "mrr",
    "mrr@3", "map", "map@10", "ndcg", "ndcg@10", "ndcg_burges@10", "ndcg@10-l2", "map@10-l2",
]  # fmt: skip


def shared(seed: int) -> tuple[Nested, Nested]:
    run, qrels = random_tables(seed, ties=False, zero=False)
    both = run.keys() & qrels.keys()
    return {q: run[q] for q in both}, {q: qrels[q] for q in both}


RANX_SCRIPT = """
import json, sys, warnings
warnings.simplefilter("ignore")
import ranx
run, qrels, metrics = json.load(sys.stdin)
qrels = ranx.Qrels(qrels)
result = ranx.evaluate(qrels, ranx.Run(run), metrics, return_mean=False)
print(json.dumps({name: list(values) for name, values in result.items()}))
"""


@pytest.mark.slow
def test_values_equal_those_of_ranx_where_nothing_ties() -> None:
    pytest.importorskip("ranx")
    run, qrels = shared(1)
    process = subprocess.run(  # compiling takes minutes and can be disabled only in a new process
        [sys.executable, "-c", RANX_SCRIPT],
        input=json.dumps([run, qrels, METRICS]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    theirs = json.loads(process.stdout)
    ours = our_ranx.evaluate(our_ranx.Qrels(qrels), our_ranx.Run(run), METRICS, return_mean=False)
    for name in METRICS:
        gap = np.abs(np.array(theirs[name]) - ours[name]) / np.maximum(ours[name], 1.0)
        assert gap.max() <= 1e-15, name  # compiled, ranx adds in the same order and the gap is 0


def test_the_fusion_methods_of_ranx_are_those_of_rankproof() -> None:
    """That rankproof's methods equal ranx's own is tested with fusion."""
    tables = [{"q": {"a": 3.0, "b": 2.0, "c": 1.0}}, {"q": {"c": 0.5, "a": 0.25, "d": 0.0}}]
    read_runs = [rp.read_run(table) for table in tables]
    pairs = {"rrf": "rrf", "comb_sum": "sum", "mnz": "mnz", "max": "max", "isr": "isr"}
    for theirs, ours in {**pairs, "bordafuse": "borda"}.items():
        result = our_ranx.fuse([our_ranx.Run(t) for t in tables], method=theirs).to_dict()
        reference = fusion.fuse(read_runs, ours).to_frame()
        assert result == {"q": dict(reference.select("doc", "score").iter_rows())}


def test_a_mean_score_has_values_over_every_order_of_ties() -> None:
    run = our_ranx.Run({"q": {"a": 1.0, "b": 1.0}}, name="x")
    qrels = our_ranx.Qrels({"q": {"b": 1}})
    result = our_ranx.evaluate(qrels, run, "mrr")
    assert (result, result.expected, result.min, result.max, result.range) == (
        0.5,
        0.75,
        0.5,
        1.0,
        0.5,
    )
    assert run.mean_scores == {"mrr": 0.5}
    assert run.scores == {"mrr": {"q": 0.5}}
    both = our_ranx.evaluate(qrels, run, ["mrr", "map"], return_std=True)
    assert both["map"] == {"mean": 0.5, "std": 0.0}
    with pytest.raises(rp.InputError, match="make_comparable=True"):
        our_ranx.evaluate(our_ranx.Qrels({"q": {"b": 1}, "r": {"b": 1}}), run, "mrr")
    two_queries = our_ranx.Qrels({"q": {"b": 1}, "r": {"b": 1}})
    assert our_ranx.evaluate(two_queries, run, "mrr", make_comparable=True) == 0.25


# Values from ranx's own tests.
RANX_TEST_VALUES: list[tuple[str, list[str], dict[str, int], float]] = [
    ("hits@5", list("123457"), dict.fromkeys("1456", 1), 3.0),
    ("map@6", list("123457"), dict.fromkeys("1456", 1), 0.525),
    ("mrr@5", list("23145"), {"3": 1}, 0.5),
    ("precision", list("1234"), {"1": 1}, 0.25),
    ("recall", list("1234"), {"1": 1, "9": 1}, 0.5),
    ("f1", list("1234"), {"1": 1, "9": 1}, 1 / 3),
    ("hit_rate", list("1234"), {"4": 1}, 1.0),
    ("precision", [], {"1": 1}, 0.0),
    ("f1", [], {"1": 1}, 0.0),
]


@pytest.mark.parametrize(("metric", "listed", "judged", "value"), RANX_TEST_VALUES)
def test_values_in_the_tests_of_ranx_are_reproduced(
    metric: str, listed: list[str], judged: dict[str, int], value: float
) -> None:
    run = {"q": {doc: -float(rank) for rank, doc in enumerate(listed)}}
    assert our_ranx.evaluate({"q": judged}, run, metric) == pytest.approx(value, rel=1e-15)


def test_a_query_without_documents_in_any_run_stays_in_the_fusion() -> None:
    tables: list[Nested] = [
        {"q1": {"d1": 1, "d2": 2, "d3": 3}, "q2": {}},
        {"q1": {"d1": 3, "d2": 2}, "q2": {}},
        {"q1": {"d3": 1}, "q2": {}},
    ]
    fused = our_ranx.fuse([our_ranx.Run(t) for t in tables], norm=None, method="bordafuse")
    assert fused.to_dict() == {"q1": {"d1": 5.5, "d2": 5.5, "d3": 7.0}, "q2": {}}
    nothing = our_ranx.fuse([our_ranx.Run({"q": {}})], norm=None, method="comb_sum")
    assert (nothing.to_dict(), nothing.name) == ({"q": {}}, "comb_sum")


@pytest.mark.parametrize("ending", ["json", "lz4", "trec", "txt", "parquet"])
def test_tables_are_saved_and_read_again(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("pandas")
    run = our_ranx.Run({"q": {"a": 0.1, "b": 0.3}}, name="x")
    qrels = our_ranx.Qrels({"q": {"a": 2, "b": 1}})
    for table in (run, qrels):
        path = tmp_path / f"{type(table).__name__}.{ending}"
        table.save(path)
        assert type(table).from_file(path).to_dict() == table.to_dict()
    assert our_ranx.Run.from_df(run.to_dataframe()).run == run.run
    qrels.set_relevance_level(2)
    assert qrels.qrels == {"q": {"a": 1, "b": 0}}
    with pytest.raises(rp.InputError, match="save as json, lz4, trec or parquet"):
        run.save(tmp_path / "run.csv")


def test_arrays_of_pairs_keep_their_order_as_lists() -> None:
    judged = [np.array([[1, 1], [4, 1], [6, 1]]), np.array([[3, 2], [9, 1]])]
    listed = [np.array([[1, 1], [2, 1], [4, 1], [3, 1]]), np.array([[7, 0.1], [3, 0.9]])]
    result = our_ranx.evaluate(judged, listed, ["hits@3", "mrr", "map"], return_mean=False)
    assert result["hits@3"].tolist() == [2, 1]
    assert result["mrr"].tolist() == [1, 0.5]
    assert result["map"].tolist() == [pytest.approx((1 + 2 / 3) / 3), 0.25]
    with pytest.raises(rp.InputError, match="an array of shape"):
        our_ranx.evaluate([np.array([1, 2])], listed[:1], "map")


def test_a_table_can_be_sorted() -> None:
    run = our_ranx.Run({"q": {"a": 1.0, "b": 2.0}})
    before = run.sorted
    run.sort()
    assert (before, run.sorted, list(run["q"])) == (False, True, ["b", "a"])


def test_tables_are_made_and_filled_as_in_ranx(tmp_path: Path) -> None:
    run = our_ranx.Run()
    run.add_score("q", "a", 1.0)
    run.add_multi(["r"], [["a", "b"]], [[2.0, 1.0]])
    assert run.to_dict() == {"q": {"a": 1.0}, "r": {"a": 2.0, "b": 1.0}}
    assert (len(run), run.get_query_ids(), run["q"]) == (2, ["q", "r"], {"a": 1.0})
    (tmp_path / "bm25.trec").write_text("q Q0 a 1 1.0 t\n")
    assert our_ranx.Run.from_file(tmp_path / "bm25.trec").name == "bm25"
    compared = our_ranx.compare(
        our_ranx.Qrels({"q": {"a": 1}, "r": {"b": 1}}),
        [run, our_ranx.Run({"q": {"a": 1.0}, "r": {"b": 1.0}}, name="y")],
        ["mrr", "map"],
    )
    assert compared.comparison["run_1", "y"][rp.RR].expected == -0.25
    assert compared.model_names == ["run_1", "y"]
    with pytest.raises(rp.InputError, match="'tukey'; use one of student, fisher"):
        our_ranx.compare(our_ranx.Qrels({"q": {"a": 1}}), [run], "map", stat_test="tukey")
    with pytest.raises(rp.InputError, match="zmuv gives a document that a list lacks its mean"):
        our_ranx.fuse([run, run], norm="zmuv")


# -------------------------------------------------------------------------------- --like, -c, -M


def test_like_mteb_and_ir_measures_give_the_values_of_pytrec_eval() -> None:
    theirs = pytest.importorskip("pytrec_eval")
    for seed in range(4):
        run, qrels = random_tables(seed)
        reference = theirs.RelevanceEvaluator(qrels, {"map", "ndcg_cut.10"}).evaluate(run)
        tools: tuple[Any, ...] = ("mteb", "ir_measures", "trec_eval")
        for like in tools:
            result = rp.evaluate(qrels, run, ["AP", "nDCG@10"], like=like).per_query
            for query, row in reference.items():
                values = result.filter(query=query)["oblivious"].to_list()
                assert values == [row["map"], row["ndcg_cut_10"]]
            missing = 2 if like == "ir_measures" else 0
            averaged = result.filter(result["oblivious"].is_not_null())
            assert averaged["query"].n_unique() == len(reference) + missing


def test_missing_zero_with_like_trec_eval_is_its_option_c() -> None:
    run, qrels = random_tables(3)
    judged, listed = rp.read_qrels(qrels), rp.read_run(run)
    complete = rp.evaluate(qrels, run, "AP", like="trec_eval", missing="zero")["AP"]
    lines = [*trec_eval(judged, listed, ["map"], complete=True).summary_lines()]
    assert lines[0].split()[-1] == f"{complete.oblivious:.4f}"
    assert complete.queries == 8
    with pytest.raises(rp.InputError, match="contradicts like"):
        rp.evaluate(qrels, run, "AP", like="trec_eval", order="input")


@pytest.mark.parametrize("seed", range(6))
def test_a_depth_is_the_option_m_of_trec_eval(seed: int) -> None:
    run, qrels = random_tables(seed)
    judged, listed = rp.read_qrels(qrels), rp.read_run(run)
    names = {"AP": "map", "nDCG": "ndcg", "bpref": "bpref", "NumRet": "num_ret"}
    result = rp.evaluate(qrels, run, list(names), like="trec_eval", depth=5)
    shown = trec_eval(judged, listed, list(names.values()), depth=5)
    reference = {line.label: c for line, c in zip(shown.lines, shown.columns, strict=True)}
    for ours, theirs in names.items():
        assert result.outcomes[rp.parse(ours)].oblivious.tolist() == reference[theirs].tolist()
    with pytest.raises(rp.InputError, match="depth 0"):
        rp.evaluate(qrels, run, "AP", depth=0)


def test_a_depth_that_cuts_a_tie_is_a_cutoff_in_every_order() -> None:
    run, qrels = {"q": {"a": 1.0, "b": 1.0, "c": 1.0}}, {"q": {"a": 1}}
    result = rp.evaluate(qrels, run, "RR", depth=2)
    assert (result["RR"].expected, result["RR"].min, result["RR"].max) == (0.5, 0.0, 1.0)
    assert result["RR"] == rp.evaluate(qrels, run, "RR@2")["RR@2"]
    assert not result.notes, "every order is counted: no list is said to be cut"


@pytest.mark.parametrize("rows", [{"q": ["d1"]}, {"q": 5}, [("q", "d", 1.0)]])
def test_a_run_of_lists_is_refused_as_ranx_refuses_it(rows: Any) -> None:
    """`dict(["d1"])` is {"d": "1"}."""
    with pytest.raises(rp.InputError, match="Run: rows are not a dict of dicts; write"):
        our_ranx.Run(rows)


def test_a_level_sets_the_lowest_relevant_grade(files: list[str]) -> None:
    options = ["-m", "AP", "-m", "nDCG@5", "-m", "RR(rel=1)", "--level", "2"]
    result = in_text("eval", *files, "--format", "csv", *options).stdout
    assert "AP(rel=2)" in result
    assert "nDCG@5" in result
    assert "RR(rel=1)" in result


def test_like_gdeval_gives_the_values_of_its_perl_script(tmp_path: Path) -> None:
    """gdeval prints five digits, and its ERR assumes 4 as the highest grade."""
    irm = pytest.importorskip("ir_measures")
    if not irm.gdeval.is_available():
        pytest.skip("perl is not installed")
    run, qrels = random_tables(5)
    run = {q[1:]: t for q, t in run.items()}
    qrels = {q[1:]: t | {"x": 1} for q, t in qrels.items()}  # no query lacks a relevant document
    requested = [irm.nDCG(dcg="exp-log2") @ 5, irm.ERR @ 5]
    names = dict(zip(requested, ["nDCG(gain='exp')@5", "ERR(max=4)@5"], strict=True))
    result = rp.evaluate(qrels, run, list(names.values()), like="gdeval").per_query
    shared = run.keys() & qrels.keys()
    for metric in irm.gdeval.iter_calc(requested, qrels, run):
        if metric.query_id in shared:
            row = result.filter(query=metric.query_id, measure=names[metric.measure])
            assert f"{row['oblivious'][0]:.5f}" == f"{metric.value:.5f}"


def test_the_command_line_offers_every_choice_that_python_has() -> None:
    from rankproof import evaluation
    from rankproof.commands import options
    from rankproof.data import ties

    assert get_args(options.Like) == tuple(LIKE)
    assert get_args(options.Order) == get_args(ties.Order)
    assert get_args(options.Missing) == get_args(evaluation.Missing)
    assert set(get_args(options.ScoreType)) == set(get_args(ties.ScoreType))


def test_later_changes_of_the_judgments_change_no_result() -> None:
    qrels = {"q": {"a": 1}}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"map"})
    qrels["q"]["b"] = 1
    qrels["r"] = {"a": 1}
    run = {"q": {"a": 1.0, "b": 2.0}, "r": {"a": 1.0}}
    assert evaluator.evaluate(run) == {"q": {"map": 0.5}}
