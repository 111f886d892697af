"""People's labels in and out of files, and figures as people would have them."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import polars as pl
import pytest
from golden_sets import settings, truth, write_corpus
from rankproof_cli import rankproof

from rankproof.data.scales import scale_text
from rankproof.data.tables import SET_SCALE
from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest_file
from rankproof.golden.annotators import labels_by_person
from rankproof.golden.building import Build
from rankproof.golden.labels import Label, import_labels, read_labels
from rankproof.golden.store import Store
from rankproof.statistics.two_phase import two_phase

QUERIES, DOCS = 12, 8


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    path = folder / "set.golden"
    corpus = write_corpus(folder / "corpus", queries=QUERIES, documents=DOCS)
    chosen = settings(corpus, ranking={"budget": 2})
    with Store(path, create=True) as store:
        Build(chosen, store).run()
    return path


def said(path: Path) -> dict[tuple[str, str, str], int | None]:
    with Store(path) as store:
        found = labels_by_person(store.active_corrections())
    return {(*key, who): c.new for key, each in found.items() for who, c in each.items()}


FILES = {
    "a.qrels": "q0 0 d1 5\nq0 0 d2 1\nq9 0 elsewhere 3\n",
    "a.csv": "query,doc,grade\nq0,d1,5\nq0,d2,1\nq9,elsewhere,3\n",
    "a.jsonl": "".join(
        json.dumps({"query": q, "doc": d, "grade": g}) + "\n"
        for q, d, g in (("q0", "d1", 5), ("q0", "d2", 1), ("q9", "elsewhere", 3))
    ),
    "who.csv": "query,doc,who,grade,sure,note\nq0,d1,ada,5,True,\nq0,d2,ada,1,,\n",
    "who.jsonl": json.dumps({"query": "q0", "doc": "d1", "who": "ada", "grade": 5})
    + "\n"
    + json.dumps({"query": "q0", "doc": "d2", "who": "ada", "grade": 1, "note": "no"})
    + "\n",
}


@pytest.mark.parametrize("name", FILES)
def test_labels_come_in_from_qrels_csv_and_json_lines(
    name: str, path: Path, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_text(FILES[name])
    who = [] if name.startswith("who") else ["--as", "ada"]
    done = rankproof("golden", "import", str(path), str(file), *who)
    assert done.returncode == 0, done.stderr
    assert said(path) == {("q0", "d1", "ada"): 5, ("q0", "d2", "ada"): 1}
    assert done.stdout.decode().startswith("2 labels of ada")
    left = not who or "1 of passages outside the pools skipped" in done.stdout.decode()
    assert left
    again = rankproof("golden", "import", str(path), str(file), *who)
    assert again.stdout.decode().startswith("0 labels of ada; 2 were there already")
    assert len(said(path)) == 2


def test_a_scale_other_than_1_to_5_must_be_explained(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "binary.qrels"
    file.write_text("q0 0 d1 1\nq0 0 d2 0\n")
    refused = rankproof("golden", "import", str(path), str(file), "--as", "ada")
    assert refused.returncode == 2
    assert b"its grades are 0, 1: not the scale from 1 to 5" in refused.stderr
    assert refused.stderr.count(b"\n") == 1
    file.write_text("q0 0 d1 1\n")  # positives alone: 1 is no "not relevant" here
    with pytest.raises(InputError, match="not the scale from 1 to 5"):
        read_labels(file, "ada")
    file.write_text("q0 0 d1 1\nq0 0 d2 0\n")
    found = read_labels(file, "ada", {0: 1, 1: 5})
    assert [(each.doc, each.grade) for each in found] == [("d1", 5), ("d2", 1)]
    for wrong in ("0=1", "0=1,1=9", "0:1"):
        done = rankproof("golden", "import", str(path), str(file), "--as", "ada", "--grades", wrong)
        assert done.returncode == 2
        assert done.stderr.count(b"\n") == 1
    assert said(path) == {}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.qrels", "q0 0 d1 5\n", "it does not say who labelled; add --as NAME"),
        ("a.csv", "query,doc,who,grade\nq0,d1,ada,x\n", "a.csv:2: grade 'x' is not a whole"),
        ("a.csv", "query,doc,who,grade\nq0,,ada,4\n", "a.csv:2: no doc is given"),
        ("a.csv", "query,doc,who,grade\nq0,d,ada,4\nq0,d,ada,5\n", "a.csv:3: 'ada' labels query"),
        ("a.jsonl", '{"query": "q0", "who": "x"}\n[1]\n', "a.jsonl:2: this is not a JSON object"),
        ("a.jsonl", '{"query": "q0"}\n{"query": "q0", "who": "x"}\n', "a.jsonl:1: no doc is given"),
        ("a.csv", "query,doc,who,grade\nq0,d1,ada,4.5\n", "a.csv:2: grade '4.5' is not a whole"),
        ("a.csv", "query,doc,who,grade,note\nq0,d1,ada,4,a,b\n", "a.csv:2: more cells than the"),
        ("a.csv", 'query,doc,who,grade\nq0,d1,ada,4\nq0,"d2,ada,4\n', "a.csv:3: this is not CSV"),
        ("a.csv", "query,doc,who,grade,sure\nq0,d1,ada,4,maybe\n", "sure 'maybe' is neither true"),
        ("a.csv", "query,doc,who,settles\nq0,d1,ada,si\n", "settles 'si' is neither true nor"),
        ("a.csv", "query,doc,who,grade\nq0,d1,ada,4\nq0,d2,ada,7\n", "grade 7 of query 'q0', doc"),
        ("a.csv", "query,doc,who,who\nq0,d1,ada,bob\n", "a.csv:1: two columns are called 'who'"),
        ("a.tsv", "query\tdoc\twho\tgrade\nq0\td1\tada\t0\n", "its grades are 0: not the scale"),
        ("a.csv", "query,doc,who\nq0,d1,ada\n", "a.csv: no column 'grade'; there are: 'query'"),
        ("a.csv", "query;doc;who;grade\nq0;d1;ada;4,5\n", "a.csv:2: grade '4,5' is not a whole"),
        ("a.csv", "query,doc,who,grade\n", "a.csv: no rows"),
        ("a.csv", "", "a.csv: the file is empty"),
        ("a.jsonl", '{"query": 1, "doc": 2, "who": ["x"], "grade": 5}\n', "who ['x'] is not text"),
        ("a.jsonl", '{"query": 1, "doc": 2, "who": "\\ud800", "grade": 5}\n', "not valid Unicode"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        read_labels(file, None)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize(
    ("name", "first", "mark"),
    [
        ("a.csv", "query;doc;who;grade", ";"),  # as spreadsheets of half of Europe write it
        ("a.csv", "query\tdoc\twho\tgrade", "\t"),
        ("a.txt", "query\tdoc\twho\tgrade", "\t"),
        ("a.csv", "Query-ID,Doc ID,Who,Label", ","),
        ("a.csv", "query, doc, who, grade", ", "),
        ("a.csv.gz", "query,doc,who,grade", ","),
    ],
)
@pytest.mark.parametrize("who", [None, "zoe"])
def test_whoever_a_table_names_keeps_their_labels_however_it_is_written(
    tmp_path: Path, name: str, first: str, mark: str, who: str | None
) -> None:
    """Taken for one person's, everybody's labels would be theirs who is named by --as."""
    rows = [mark.join(row) for row in (("q0", "d1", "ada", "5"), ("q0", "d2", "bob", "1"))]
    text = "\r\n".join([first, *rows, (mark.strip() or mark) * 3, ""])
    data = b"\xef\xbb\xbf" + text.encode()
    file = tmp_path / name
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = read_labels(file, who)
    assert [(x.query, x.doc, x.who, x.grade) for x in found] == [
        *(("q0", "d1", "ada", 5), ("q0", "d2", "bob", 1)),
    ]


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.ipc", "a.json", "a.jsonl"])
def test_whoever_a_table_of_columns_names_keeps_their_labels(tmp_path: Path, name: str) -> None:
    rows = [("q0", "d1", "ada", 5), ("q0", "d2", "bob", 1)]
    table = pl.DataFrame(rows, ["query", "doc", "who", "grade"], orient="row")
    write = {"parquet": "write_parquet", "arrow": "write_ipc", "json": "write_json"}
    write["ipc"] = "write_ipc_stream"
    getattr(table, write.get(name[2:], "write_ndjson"))(tmp_path / name)
    found = read_labels(tmp_path / name, "zoe")
    assert [(x.query, x.doc, x.who, x.grade) for x in found] == rows
    getattr(table.drop("who"), write.get(name[2:], "write_ndjson"))(tmp_path / name)
    assert {x.who for x in read_labels(tmp_path / name, "zoe")} == {"zoe"}


def test_lines_of_labels_may_end_as_on_an_old_macintosh(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"query,doc,grade,who\rq0,d1,5,ada\rq0,d2,1,bob\r")
    found = read_labels(file, None)
    assert [(x.doc, x.who, x.grade) for x in found] == [("d1", "ada", 5), ("d2", "bob", 1)]


def test_a_note_may_be_longer_than_python_lets_a_cell_be(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(f"query,doc,who,grade,note\nq,d,a,4,{'x' * 140_000}\n")
    limit = csv.field_size_limit(1 << 17)  # as it is where nobody changed it
    try:
        assert [len(label.note or "") for label in read_labels(file, None)] == [140_000]
    finally:
        csv.field_size_limit(limit)


def test_cells_are_read_as_tables_write_them(path: Path, tmp_path: Path) -> None:
    """A column with gaps makes a table write 3.0; an empty cell is what a missing column is."""
    file = tmp_path / "a.csv"
    file.write_text(
        "query,doc,who,grade,sure,settles,note\n"
        "q0,d1,ada,3.0,,,\nq0,d2,ada,5,False,no,\nq0,d3,ada,4,TRUE,yes,\nq0,d4,ada,,,,\n"
    )
    found = read_labels(file, None)
    assert [(x.grade, x.sure, x.settles) for x in found] == [
        *((3, True, False), (5, False, False), (4, True, True), (None, True, False)),
    ]
    done = rankproof("golden", "import", str(path), str(file))
    assert done.stdout.decode().strip() == "3 labels of ada; 1 row without a label skipped"


def test_what_is_exported_comes_in_again_as_it_was(path: Path, tmp_path: Path) -> None:
    given = [
        Label("q0", "d1", "ada", 5),
        Label("q0", "d1", "bob", 2, False, '=a "note", with\na comma'),
        Label("q0", "d1", "carol", 4, settles=True),
        Label("q1", "d2", "bob", None, False, "an end of a line\u2028that JSON does not know"),
    ]
    with Store(path, write=True) as store:
        assert import_labels(store, given[:2] + given[3:]).new == 3
        store.add_correction("q0", "d1", "grade", 4, who="carol", settles=True)
        assert import_labels(store, given).known == 4
    out = tmp_path / "out"
    assert rankproof("golden", "export", str(path), "--out", str(out)).returncode == 0
    for name in ("labels.csv", "labels.jsonl"):
        back = read_labels(out / name, None)
        assert sorted(back, key=lambda x: (x.query, x.who)) == given, name
    assert (out / "people.txt").read_text() == "q0 0 d1 4\n"
    frame = pl.read_csv(out / "golden.simulated.csv", infer_schema=False)
    assert frame.height == QUERIES * DOCS
    one = frame.filter((pl.col("query") == "q0") & (pl.col("doc") == "d1")).to_dicts()[0]
    assert (one["grade"], one["validated"]) == ("4", "True")
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlanguage: en\n")
    assert "People labelled 1 of 96 passages, 1 of them two or more people: ada 1, bob 1." in (
        " ".join(card.split())
    )
    assert "| ada and bob | 0.00 |" in card
    assert "the best of `bm25`, pooled" in card


def person(path: Path, queries: int, who: str = "ada") -> None:
    """Somebody who labels whole queries, a grade lower than the judge now and then."""
    with Store(path) as store:
        rows = store.rows("SELECT query, doc, grade FROM grades")
    wanted = {f"q{n}" for n in range(queries)}
    given = [
        Label(q, d, who, max(1, grade - (truth(d, q) == 1))) for q, d, grade in rows if q in wanted
    ]
    with Store(path, write=True) as store:
        import_labels(store, given)


def test_agreement_compares_every_two_people_and_estimates_measures_with_annotators_labels(
    path: Path,
) -> None:
    person(path, 8)
    person(path, 3, "bob")
    done = rankproof("golden", "agreement", str(path), "--format", "json", "-m", "nDCG@5")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(e["who"], e["with"]) for e in told["between"]["pairs"]] == [
        ("ada", "bob"),
        ("ada", "judge"),
        ("bob", "judge"),
    ]
    assert told["between"]["pairs"][0]["figures"]["exact"]["value"] == 1.0
    assert told["people"]["coefficients"]["κ"]["queries"] == 8
    (lists,) = told["as_people"]
    figures = lists["measures"]["nDCG@5"]
    assert (lists["name"], figures["people_queries"], figures["queries"]) == ("bm25", 8, QUERIES)
    assert figures["ci"][0] < figures["estimate"] < figures["ci"][1]
    kept = path.with_name("kept.json")
    kept.write_bytes(done.stdout)
    checked = rankproof("verify", str(kept))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    shown = rankproof("golden", "agreement", str(path), "-m", "nDCG@5").stdout.decode()
    assert "As people would have it" in shown


def exported(path: Path, out: Path) -> set[str]:
    """Export a golden set; return the names of all files in the folder."""
    done = rankproof("golden", "export", str(path), "--out", str(out))
    assert done.returncode == 0, done.stderr.decode()
    return {file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file()}


def test_an_export_removes_what_the_last_one_wrote_and_nothing_else(
    path: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.golden"
    plain.write_bytes(path.read_bytes())
    person(path, 1)
    fresh = exported(plain, tmp_path / "fresh")
    out = tmp_path / "out"
    labelled = exported(path, out)
    assert labelled - fresh == {"people.txt", "people.txt.scale", "labels.jsonl", "labels.csv",
                                "corrections.jsonl"}  # fmt: skip
    (out / "report.html").write_text("of `rankproof report`")
    kept = next(folder for folder in ("beir", "beir-simulated") if (out / folder).is_dir())
    (out / kept / "notes.txt").write_text("a user's own")
    assert exported(plain, out) == fresh | {"report.html", f"{kept}/notes.txt"}
    own = tmp_path / "own"
    own.mkdir()
    (own / "labels.csv").write_text("a user's own, which no export wrote")
    assert exported(plain, own) == fresh | {"labels.csv"}


def test_an_export_does_not_remove_a_file_that_was_changed_since(
    path: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.golden"
    plain.write_bytes(path.read_bytes())
    person(path, 1)
    out = tmp_path / "out"
    exported(path, out)
    (out / "labels.csv").write_text("edited")
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    done = rankproof("golden", "export", str(plain), "--out", str(out))
    assert done.returncode == 2
    assert b"out: labels.csv was changed since the last export" in done.stderr
    assert b"; move it away, or name another folder" in done.stderr
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before


def test_an_export_trusts_no_manifest_that_names_files_elsewhere(
    path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    exported(path, out)
    mine = tmp_path / "mine.txt"
    mine.write_text("a user's own")
    made = json.loads((out / "manifest.json").read_text())
    for name in ("../mine.txt", "beir/../../mine.txt", str(mine)):
        made["files"][name] = digest_file(mine)
    (out / "manifest.json").write_text(json.dumps(made))
    exported(path, out)
    assert mine.exists()


@pytest.mark.parametrize(
    ("overlap", "why"),
    [
        (True, "every rating is the same: nothing could disagree"),
        (False, "no item was rated twice"),
    ],
)
def test_agreement_says_why_the_alpha_of_all_people_is_undefined(
    path: Path, overlap: bool, why: str
) -> None:
    with Store(path, write=True) as store:
        pooled = store.rows("SELECT query, doc FROM grades ORDER BY query, doc LIMIT 30")
        people = ("ada", "bob", "cleo")
        import_labels(
            store,
            [
                Label(q, d, who, 5)
                for at, (q, d) in enumerate(pooled)
                for who in (people if overlap else (people[at % 3],))
            ],
        )
    shown = rankproof("golden", "agreement", str(path))
    assert shown.returncode == 0, shown.stderr.decode()
    assert f"α of all people together is undefined ({why})" in shown.stdout.decode()
    kept = path.with_name("kept.json")
    kept.write_bytes(rankproof("golden", "agreement", str(path), "--format", "json").stdout)
    alpha = json.loads(kept.read_text())["between"]["alpha"]
    assert (alpha["value"], alpha["ci"], alpha["undefined"]) == (None, None, why)
    assert rankproof("verify", str(kept)).returncode == 0


def test_eval_takes_a_judges_labels_and_peoples(tmp_path: Path) -> None:
    judge, human, run = (tmp_path / name for name in ("golden.qrels", "people.qrels", "run.trec"))
    lines: dict[Path, list[str]] = {judge: [], human: [], run: []}
    for q in range(30):
        for d in range(10):
            grade = truth(f"q{q}", f"d{d}")
            lines[judge].append(f"q{q} 0 d{d} {grade}")
            lines[run].append(f"q{q} Q0 d{d} {d + 1} {10 - d} tag")
            if q % 3 == 0:
                lines[human].append(f"q{q} 0 d{d} {max(1, grade - (d % 3 == 0))}")
    for file, text in lines.items():
        file.write_text("\n".join(text) + "\n")
    given = ["--human", str(human), "-m", "nDCG@5", "--format", "json"]
    named = rankproof("eval", "--judge", str(judge), str(run), *given)
    assert named.returncode == 0, named.stderr
    plain = rankproof("eval", str(judge), str(run), *given)
    both = [json.loads(done.stdout)["runs"] for done in (named, plain)]
    assert both[0] == both[1]
    figures = both[0][0]["measures"]["nDCG@5"]["as_people"]

    def values(qrels: Path) -> dict[str, float]:
        out = tmp_path / "per.csv"
        asked = ("-m", "nDCG@5", "--per-query", str(out))
        assert rankproof("eval", str(qrels), str(run), *asked).returncode == 0
        return dict(pl.read_csv(out).select("query", "expected").iter_rows())

    f, y = values(judge), values(human)
    found = two_phase([f[q] for q in f], [y.get(q, float("nan")) for q in f])
    assert figures == {"measure": "nDCG@5"} | json.loads(json.dumps(found.to_dict()))
    assert (figures["people_queries"], figures["queries"]) == (10, 30)
    kept = tmp_path / "kept.json"
    written = rankproof("eval", "--judge", str(judge), str(run), *given[:4], "--out", str(kept))
    assert written.returncode == 0, written.stderr
    assert rankproof("verify", str(kept)).returncode == 0
    told = json.loads(kept.read_text())
    told["runs"][0]["measures"]["nDCG@5"]["as_people"]["estimate"] += 0.01
    kept.write_text(json.dumps(told))
    assert rankproof("verify", str(kept)).returncode == 1
    alone = rankproof("eval", str(judge))
    assert alone.returncode == 2
    assert b"no run is named" in alone.stderr
    shown = rankproof("eval", str(judge), str(run), *given[:4]).stdout.decode()
    assert "are worth" in shown


def scaled(folder: Path) -> tuple[Path, Path, Path]:
    """A judge's labels from 1 to 5 of 40 queries, people's of 15, which only say yes or no.

    In one of these people find nothing relevant, so no mean counts it.
    """
    judge, human, run = (folder / name for name in ("golden.qrels", "people.qrels", "run.trec"))
    lines: dict[Path, list[str]] = {judge: [], human: [], run: []}
    for q in range(40):
        for d in range(10):
            grade = truth(f"q{q}", f"d{d}")
            lines[judge].append(f"q{q} 0 d{d} {max(1, grade - (d + q) % 2)}")
            lines[run].append(f"q{q} Q0 d{d} {d + 1} {10 - d} tag")
            if q < 15:
                lines[human].append(f"q{q} 0 d{d} {int(grade >= 4 and q != 3)}")
    lines[human] += ["q77 0 d1 1"]
    for file, text in lines.items():
        file.write_text("\n".join(text) + "\n")
    (folder / "golden.qrels.scale").write_text(scale_text(SET_SCALE))
    return judge, human, run


def test_labels_on_another_scale_are_measured_as_that_scale_means_it(tmp_path: Path) -> None:
    judge, human, run = map(str, scaled(tmp_path))
    done = rankproof("eval", "--judge", judge, run, "--human", human, "--format", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    figures = told["runs"][0]["measures"]["RR(rel=4)@10"]["as_people"]
    assert (figures["measure"], figures["people_queries"]) == ("RR@10", 14)
    alone = json.loads(rankproof("eval", human, run, "-m", "RR@10", "--format", "json").stdout)
    held = alone["runs"][0]["measures"]["RR@10"]["expected"]
    assert figures["people"] == pytest.approx(15 * held / 14, abs=1e-12)  # but for q77: 0
    kept = tmp_path / "kept.json"
    given = ("--judge", judge, run, "--human", human, "--out", str(kept))
    shown = rankproof("eval", *given)
    assert shown.returncode == 0, shown.stderr
    words = " ".join(shown.stdout.decode().split())
    assert "R@100 by people's labels, nDCG(rel=3)@10, RR(rel=4)@10" in words
    assert "1 query that people labelled without a label of the judge: left out" in words
    assert rankproof("verify", str(kept)).returncode == 0


def test_labels_that_show_the_judges_scale_need_not_say_that_they_are_on_it(tmp_path: Path) -> None:
    judge, human, run = scaled(tmp_path)
    labels_by_person = [row.split() for row in judge.read_text().splitlines()]
    human.write_text(
        "".join(f"{q} 0 {d} {g}\n" for q, _, d, g in labels_by_person if int(q[1:]) < 15)
    )
    kept = tmp_path / "kept.json"
    given = ("eval", "--judge", str(judge), str(run), "--human", str(human), "-m", "RR@10")
    done = rankproof(*given, "--format", "json", "--out", str(kept))
    assert done.returncode == 0, done.stderr
    figures = json.loads(kept.read_text())["runs"][0]["measures"]["RR@10"]["as_people"]
    told = rankproof(*given[:-2], "--format", "json", "--out", str(kept))
    assert told.returncode == 0, told.stderr
    scaled_ones = json.loads(kept.read_text())["runs"][0]["measures"]["RR(rel=4)@10"]["as_people"]
    assert figures["people"] == 1.0  # asked for by name, where any grade is relevant
    assert scaled_ones["measure"] == "RR(rel=4)@10"
    assert scaled_ones["people"] < 1
    assert rankproof("verify", str(kept)).returncode == 0


def test_a_golden_sets_measures_are_those_of_grades_from_1_to_5(path: Path) -> None:
    """As `eval` on its export has them, and not with "not relevant" as a gain."""
    person(path, 8)
    done = rankproof("golden", "agreement", str(path), "--format", "json")
    assert done.returncode == 0, done.stderr
    (lists,) = json.loads(done.stdout)["as_people"]
    assert list(lists["measures"]) == [
        *("nDCG(rel=3)@10", "RR(rel=4)@10", "AP(rel=4)@100", "R(rel=4)@100")
    ]
    out, run = path.with_name("out"), path.with_name("bm25.trec")
    assert rankproof("golden", "export", str(path), "--out", str(out)).returncode == 0
    with Store(path) as store:
        rows = store.rows("SELECT query, doc, rank FROM retrieved WHERE list = 'bm25'")
    run.write_text("".join(f"{q} Q0 {d} {rank} {-rank} x\n" for q, d, rank in rows))
    told = rankproof("eval", str(out / "people.txt"), str(run), "--format", "json")
    assert told.returncode == 0, told.stderr
    own = json.loads(told.stdout)["runs"][0]["measures"]
    for name, figures in lists["measures"].items():
        assert figures["people"] == pytest.approx(own[name]["expected"], abs=1e-12)
    named = rankproof("golden", "agreement", str(path), "-m", "RR@10", "-m", "RAnWG@5")
    assert named.returncode == 0, named.stderr
    assert "write RR(rel=4)@10" in named.stderr.decode()


def test_passages_are_assigned_by_command(path: Path) -> None:
    done = rankproof(
        *("golden", "assign", str(path), "--to", "ada", "--to", "bob", "--queries", "2"),
        *("--format", "json"),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["passages"] == 2 * DOCS
    assert told["people"] == [
        {"who": who, "given": 2 * DOCS, "labelled": 0} for who in ("ada", "bob")
    ]
    refused = rankproof("golden", "assign", str(path), "--to", "ada", "--each", "2")
    assert refused.returncode == 2
    assert b"every passage to 2 of 1 people" in refused.stderr
