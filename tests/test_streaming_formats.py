"""Every format in parts: the figures of the whole, and the errors too."""

from __future__ import annotations

import gzip
import json
import math
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.data import frames, sources
from rankproof.data.frames import end_of_record, record_ends
from rankproof.data.objects import json_queries
from rankproof.evaluation import Policy, parse_all
from rankproof.evaluation.streaming import evaluate, shards
from rankproof.evaluation.tie_counts import tie_statistics
from rankproof.foundation import kernels

ROWS = [
    (f"q{i % 37}", f"a document, {i}" if i % 5 == 0 else f"d{i}", (i * 7919 % 101) / 100)
    for i in range(3000)
]
FORMATS = ("r.csv", "r.tsv", "r.jsonl", "r.json", "r.parquet", "r.arrow", "stream.arrow")
PLAIN = ("r.csv", "r.tsv", "r.jsonl", "r.json", "stream.arrow")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    frame = pl.DataFrame(ROWS, schema=["query", "doc", "score"], orient="row")
    frame.write_csv(tmp_path / "r.csv")
    frame.write_csv(tmp_path / "r.tsv", separator="\t")
    frame.write_ndjson(tmp_path / "r.jsonl")
    frame.write_parquet(tmp_path / "r.parquet")
    frame.write_ipc(tmp_path / "r.arrow")
    frame.write_ipc_stream(tmp_path / "stream.arrow")
    lists: dict[str, dict[str, float]] = {}
    for query, doc, score in ROWS:
        lists.setdefault(query, {})[doc] = score
    (tmp_path / "r.json").write_text(json.dumps(lists, indent=1))
    for name in PLAIN:
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    judged = [f"{query}\t{doc}\t1" for query, doc, _ in ROWS[::7]]
    (tmp_path / "q.tsv").write_text("\n".join(["query\tdoc\tgrade", *judged]))
    # A few hundred rows at a time.
    monkeypatch.setattr(evaluate, "BYTES_PER_ROW", (16 << 20) // (3 * 300))
    monkeypatch.setattr(shards, "MIN_TEXT", 1 << 10)
    for module in (sources, shards):
        monkeypatch.setattr(module, "CHUNK", 1 << 12)
    return tmp_path


@pytest.mark.parametrize("name", [*FORMATS, *(f"{name}.gz" for name in PLAIN)])
def test_parts_give_the_figures_of_the_whole(folder: Path, name: str) -> None:
    measures = ["nDCG@10", "AP", "Judged@5"]
    whole = rp.evaluate(folder / "q.tsv", rp.read_run(folder / "r.parquet", name="r"), measures)
    assert evaluate.needs_parts(folder / name, "16MiB")
    parts = rp.evaluate(folder / "q.tsv", folder / name, measures, memory="16MiB")
    assert parts.renamed("r").to_dict() == whole.to_dict()
    counted = tie_statistics(folder / name, memory="16MiB", name="r").to_dict()
    assert counted == tie_statistics(rp.read_run(folder / "r.parquet", name="r")).to_dict()


BROKEN = {
    "csv": ('x,"d\n1",0.5\n', r"r\.csv:3003: the document id 'd\\n1' holds a control character"),
    "tsv": ("x\td\t1\t2\n", r"r\.tsv:3002: 4 columns where the header has 3"),
    "jsonl": ('{"query": "x", "doc": "d", "score": true}\n', r"r\.jsonl:3001: score True is not"),
}


@pytest.mark.parametrize("ending", BROKEN)
def test_an_error_in_a_late_part_has_its_line(folder: Path, ending: str) -> None:
    line, words = BROKEN[ending]
    with (folder / f"r.{ending}").open("a") as file:
        file.write(line)
    with pytest.raises(rp.InputError, match=words):
        rp.evaluate(folder / "q.tsv", folder / f"r.{ending}", "RR", memory="16MiB")


def test_a_query_that_stands_twice_in_json_is_refused(folder: Path) -> None:
    text = (folder / "r.json").read_text().rstrip()[:-1]
    (folder / "r.json").write_text(f'{text}, "q0": {{"d": 1}}}}')
    with pytest.raises(rp.InputError, match="key 'q0' appears twice in one object"):
        rp.evaluate(folder / "q.tsv", folder / "r.json", "RR", memory="16MiB")


# Of several wrong rows the first is named, however many are read at a time.
WRONG = {
    "a document, then a query": ("csv", "query,doc,score\nq,a,1\nq,,2\n,b,3\n"),
    "a document, then a number": ("csv", "query,doc,score\nq,a,1\nq,,2\nq,b,x\n"),
    "a document, then a number in lines": (
        "jsonl",
        '{"query": "q", "doc": "", "score": 1}\n{"query": "q", "doc": "a", "score": true}\n',
    ),
    "a number, then no JSON": ("jsonl", '{"query": "q", "doc": "a", "score": "1"}\n{"query"\n'),
    "a number, then a document": ("json", '{"q": {"a": null}, "r": {"": 1}, "": {"a": 1}}'),
    "a number, then no list": ("json", '{"q": {"a": null}, "r": 3}'),
    "scores, then ranks": ("json", '{"q": {"a": 1}, "r": ["a"], "s": ["a"]}'),
    "ranks, then scores": ("json", '{"q": ["a"], "r": ["b"], "s": {"a": 1}}'),
    "a number past every number, then a document": (
        "json",
        '{"q": {"a": 1}, "r": {"a": 1e400}, "s": {"": 1}}',
    ),
    "the same in lines": (
        "jsonl",
        '{"query": "q", "doc": "a", "score": 1e400}\n{"query": "q", "doc": "", "score": 1}\n',
    ),
    "NaN, then a number past every number": ("json", '{"q": {"a": NaN}, "r": {"a": 1e400}}'),
    "the same in other lines": (
        "jsonl",
        '{"query": "q", "doc": "a", "score": NaN}\n{"query": "q", "doc": "b", "score": 1e400}\n',
    ),
    "a document twice": ("json", '{"q": {"a": 1}, "r": {"a": 1, "a": 2}}'),
    "a document, then no JSON": ("json", '{"q": {"": 1},\n"r": {"a": nan}}'),
    "a document, then the end": ("json", '{"q": {"": 1},\n"r": {"a": 1}'),
    "a document, then more": ("json", '{"q": {"": 1}}\n\n{"r": {"a": 1}}'),
    "a document, then a byte": ("json", '{"q": {"": 1},\n"r": {"a\udcff": 1}}'),
    "no JSON, then a byte": ("json", '{"q": {"a": 1e},\n"r": {"a\udcff": 1}, "s": {"bcdefgh": 1}}'),
    "no object": ("json", '{"q": {"a": 1}, "r": null}'),
    "no object, at last": ("json", '{"q": {"a": 1, "b": 1, "c": 1}, "r": null}'),
    "a byte, then a number": (
        "jsonl",
        '{"query": "q", "doc": "a", "score": 1}\n{"query": "q", "doc": "\udcff", "score": 1}\n{"q',
    ),
    "a number, then a byte": (
        "jsonl",
        '{"query": "q", "doc": "a", "score": "1"}\n{"query": "q", "doc": "\udcff", "score": 1}\n',
    ),
    "a number, then columns": ("csv", "query,doc,score\nq,a,1\n\nq,b,x\nq,c,1,2\n"),
    "columns, then a number": ("csv", "query,doc,score\nq,a,1\nq,c,1,2\nq,b,x\n"),
    "a document, then columns": ("tsv", "query\tdoc\tscore\nq\ta\x01\t1\nq\tc\t1\t2\n"),
    "a number, then a byte in a table": ("csv", "query,doc,score\nq,a,x\nq,\udcff,1\n"),
    "a document, then a byte in a table": ("csv", "query,doc,score\nq,\x7f,1\nq,\udcff,1\n"),
    "a byte, then a number in a table": ("csv", "query,doc,score\nq,\udcff,1\nq,a,x\n"),
    "a number, then quotes": ("csv", 'query,doc,score\nq,a,x\nq,"b"c,1\n'),
    "quotes, then a byte": ("csv", 'query,doc,score\nq,"b"c,1\nq,\udcff,1\n'),
    "a header, then columns": ("csv", "query,do\nq,a,1\n"),
    "a header behind empty lines": ("csv", "\r\n\nquery,doc,score\nq,a,1\nq,b,x\n"),
    "five columns, then six": ("trec", "q Q0 a 1 0.5\nq Q0 b 2 0.4 t\nq Q0 c 3 0.3 t\n"),
    "six columns, then five": ("trec", "q Q0 a 1 0.5 t\nq Q0 b 2 0.4\nq Q0 c 3 0.3\n"),
}


@pytest.mark.parametrize("case", WRONG)
def test_of_several_wrong_rows_the_first_is_named_whole_and_in_parts(
    tmp_path: Path, case: str
) -> None:
    ending, text = WRONG[case]
    run = tmp_path / f"r.{ending}"
    run.write_bytes(text.encode(errors="surrogateescape"))
    check_wrong(run)


def test_of_several_wrong_rows_of_a_table_the_first_is_named(tmp_path: Path) -> None:
    columns = {"query": ["q", "q", None], "doc": ["a", "", "c"], "score": [1.0, 2.0, math.nan]}
    for number, some in enumerate(([0, 1, 2], [0, 2, 1])):
        frame = pl.DataFrame(columns)[some]
        frame.write_parquet(tmp_path / f"{number}.parquet")
        check_wrong(tmp_path / f"{number}.parquet")
        with pytest.raises(rp.InputError, match="row 2: "):
            rp.read_run(frame)


def check_wrong(run: Path) -> None:
    with pytest.raises(rp.InputError) as whole:
        rp.read_run(run)
    with mock.patch.object(frames, "_BLOCK", 2), pytest.raises(rp.InputError) as again:
        rp.read_run(run)
    assert str(again.value) == str(whole.value)
    for rows in (1, 2, 9):
        with (
            mock.patch.object(shards, "MIN_TEXT", 1),
            mock.patch.object(sources, "CHUNK", 8),
            pytest.raises(rp.InputError) as parts,
        ):
            list(shards.Shard(run).chunks(rows))
        assert str(parts.value) == str(whole.value)


LARGE = {
    "trec": "q Q0 d{0} 1 {1} t\n",
    "csv": "q,d{0},{1}\n",
    "jsonl": '{{"query": "q", "doc": "d{0}", "score": {1}}}\n',
    "json": '"q{0}": {{"d{0}": {1}}},',
}


@pytest.mark.parametrize("ending", LARGE)
def test_large_scores_are_refused_in_parts_where_two_may_be_one_float64(
    tmp_path: Path, ending: str
) -> None:
    run, head = tmp_path / f"r.{ending}", "query,doc,score\n" if ending == "csv" else ""
    qrels, measures = rp.read_qrels({"q": {"d1": 1}, "q1": {"d1": 1}}), parse_all("RR")

    def write(*scores: str) -> None:
        lines = [LARGE[ending].format(at, score) for at, score in enumerate(scores)]
        text = head + "".join(lines)
        run.write_text(f"{{{text[:-1]}}}" if ending == "json" else text)

    write("1", "-1e30", "-3.4028235e+38", "1e23", "9007199254740992")
    parts = evaluate.evaluate_stream(run, qrels, measures, Policy())
    whole = replace(rp.evaluate(qrels, run, measures), judged={})
    assert parts.to_dict() == whole.to_dict()
    write("1", "9007199254740993")
    with pytest.raises(rp.InputError, match="score 9007199254740993 is past 2"):
        evaluate.evaluate_stream(run, qrels, measures, Policy())


PAST = {
    "trec": "q Q0 a 1 INF t\nq Q0 b 1 1e400 t\nr Q0 a 1 1e500 t\n",
    "csv": "query,doc,score\nq,a,INF\nq,b,1e400\nr,a,1e500\n",
    "jsonl": "".join(
        f'{{"query": "{q}", "doc": "{d}", "score": {s}}}\n'
        for q, d, s in (("q", "a", "Infinity"), ("q", "b", "1e400"), ("r", "a", "1e500"))
    ),
    "json": '{"q": {"a": Infinity}, "r": {"b": 1e400}, "s": {"a": 1e500}}',
}


@pytest.mark.parametrize("ending", PAST)
def test_a_score_past_every_number_is_the_same_line_in_parts(tmp_path: Path, ending: str) -> None:
    run = tmp_path / f"r.{ending}"
    run.write_text(PAST[ending])
    with pytest.raises(rp.InputError) as whole:
        rp.read_run(run)
    for rows in (1, 2, 9):
        with (
            mock.patch.object(shards, "MIN_TEXT", 1),
            pytest.raises(rp.InputError, match=re.escape(str(whole.value))),
        ):
            list(shards.Shard(run).chunks(rows))
    run.write_text(PAST[ending].replace("1e400", "1e300").replace("1e500", "-1e300"))
    scores = [chunk.rows.score for chunk in shards.Shard(run).chunks(1)]
    assert np.concatenate(scores).tolist() == [math.inf, 1e300, -1e300]


class Labelled:
    label = "file"


@given(
    st.dictionaries(st.text(max_size=5), st.dictionaries(st.text(max_size=5), st.floats(0, 1))),
    st.integers(1, 50),
)
def test_one_json_object_is_read_member_by_member(
    lists: dict[str, dict[str, float]], size: int
) -> None:
    data = json.dumps(lists, ensure_ascii=False).encode(errors="surrogatepass")
    pieces = (data[at : at + size] for at in range(0, len(data), size))
    members = list(json_queries(Labelled(), pieces, 1 << 20))  # type: ignore[arg-type]
    assert {query: listed for query, listed, _ in members} == lists
    assert {query: json.loads(text) for query, _, text in members} == lists


@given(st.text('ab,"\n', max_size=40))
def test_a_record_ends_where_quotes_are_closed(text: str) -> None:
    data = text.encode()
    ends = [
        at + 1 for at, sign in enumerate(text) if sign == "\n" and text[:at].count('"') % 2 == 0
    ]
    assert end_of_record(bytearray(data), '"') == (ends[-1] if ends else 0)
    whole = [end for end in record_ends(data, '"') if end < len(data) or end in ends]
    assert whole == ends
    assert b"".join(data[a:b] for a, b in pairwise([0, *record_ends(data, '"')])) == data


@pytest.mark.parametrize("native", [True, False], ids=["compiled", "general"])
@pytest.mark.parametrize("sign", ["\x00", "\x1f", "\x7f", "\x85", "\x9f"])
def test_ids_with_control_characters_are_refused_with_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool, sign: str
) -> None:
    if not native:
        monkeypatch.setattr(kernels, "native", None)
    (tmp_path / "r.trec").write_text(f"q Q0 a 1 1 t\nq Q0 b{sign} 1 1 t\n")
    with pytest.raises(rp.InputError, match=r"r\.trec:2: the document id .* control character"):
        rp.read_run(tmp_path / "r.trec")
    with pytest.raises(rp.InputError, match=r"the query id .* control character"):
        rp.read_run({f"q{sign}": {"d": 1.0}})
    frame = pl.DataFrame({"query": ["q"] * 2, "doc": ["a", f"long enough a name{sign}"]})
    with pytest.raises(rp.InputError, match=r"row 2: the document id .* control character"):
        rp.read_run(frame.with_columns(score=1.0))
    scattered = {"query": ["b", "a", "b", "a"], "doc": ["x", "y", f"z{sign}", "z"]}
    with pytest.raises(rp.InputError, match=r"row 3: the document id .* control character"):
        rp.read_run(pl.DataFrame(scattered).with_columns(score=1.0))
    with pytest.raises(rp.InputError, match=r"row 3: the document id .* control character"):
        rp.read_qrels(pl.DataFrame(scattered).with_columns(grade=1))
    queries = {"query": ["a", "b", f"a{sign}", f"a{sign}"], "doc": ["x", "y", "z", ""]}
    with pytest.raises(rp.InputError, match=r"row 3: the query id .* control character"):
        rp.read_run(pl.DataFrame(queries).with_columns(score=1.0))
    for column in ("query", "doc"):
        absent = pl.DataFrame({"query": ["a", "b"], "doc": ["x", "y"]} | {column: ["x", None]})
        with pytest.raises(rp.InputError, match=r"row 2: the \w+ id is empty"):
            rp.read_run(absent.with_columns(score=1.0))


@pytest.mark.parametrize("native", [True, False], ids=["compiled", "general"])
@given(ids=st.lists(st.text("ab é日\x00\x1f\x7f\x80\x9f\xa0~\u202e", max_size=26), max_size=6))
def test_both_checks_of_ids_find_the_same_row(native: bool, ids: list[str]) -> None:
    def unfit(text: str) -> bool:
        return not text or any(sign < " " or "\x7f" <= sign <= "\x9f" for sign in text)

    with pytest.MonkeyPatch.context() as patch:
        if not native:
            patch.setattr(kernels, "native", None)
        column = pl.Series(ids, dtype=pl.String)
        found = kernels.first_invalid_id(column)
        alone = np.arange(len(ids) + 1)  # every id a list of its own: none is there twice
        met = None
        try:
            kernels.index_documents(column, alone, check=True)
        except kernels.InvalidId as odd:
            met = odd.row
    assert found == met == next((at for at, text in enumerate(ids) if unfit(text)), None)


def test_a_pipe_larger_than_memory_goes_by_way_of_the_disk(tmp_path: Path) -> None:
    rows = [f"q{i // 100} Q0 document-{i} 1 {i % 10} t" for i in range(200_000)]
    (tmp_path / "r.trec").write_text("\n".join(rows))
    (tmp_path / "q.txt").write_text("".join(f"q{i} 0 document-{i * 100} 1\n" for i in range(50)))
    arguments = ["eval", str(tmp_path / "q.txt"), "-", "-m", "RR", "--format", "json"]
    spill = ["--memory", "16MiB", "--spill-dir", str(tmp_path)]
    piped = rankproof(*arguments, *spill, stdin=(tmp_path / "r.trec").read_bytes())
    assert piped.returncode == 0, piped.stderr
    arguments[2] = str(tmp_path / "r.trec")
    named = rankproof(*arguments)
    found, wanted = (json.loads(done.stdout)["runs"][0]["measures"] for done in (piped, named))
    assert found == wanted
    given = json.loads(piped.stdout)["manifest"]["inputs"]["stdin"]
    assert given["size"] == (tmp_path / "r.trec").stat().st_size
    assert sorted(path.name for path in tmp_path.iterdir()) == ["q.txt", "r.trec"]


def test_a_pipe_of_the_shell_is_read(tmp_path: Path) -> None:
    (tmp_path / "r.trec").write_text("q Q0 d 1 1 t\n")
    (tmp_path / "q.txt").write_text("q 0 d 1\n")
    python = shlex.quote(sys.executable)
    script = f"{python} -m rankproof eval q.txt <(cat r.trec) -m RR --format json"
    done = subprocess.run(["bash", "-c", script], capture_output=True, cwd=tmp_path)
    assert json.loads(done.stdout)["runs"][0]["measures"]["RR"]["expected"] == 1.0, done.stderr


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("r.json", '[{"query": "q", "doc": "a", "score": 1}]', "a JSON list"),
        ("r.txt", "q a 0.5\nq b 0.25\n", "a plain file"),
    ],
)
def test_what_is_read_whole_alone_is_refused_in_parts_for_what_it_is(
    tmp_path: Path, name: str, text: str, what: str
) -> None:
    run = tmp_path / "runs" / name
    run.parent.mkdir()
    run.write_text(text)
    qrels = rp.read_qrels({"q": {"a": 1}})
    assert rp.evaluate(qrels, run, "RR")["RR"].expected == 1
    for named in (run, run.parent, [run]):
        with pytest.raises(rp.InputError) as refused:
            evaluate.evaluate_stream(named, qrels, parse_all("RR"), Policy())
        assert str(refused.value) == (
            f"{run}: {what} cannot be read in pieces; write it as TREC, CSV, JSON lines or Parquet"
        )
