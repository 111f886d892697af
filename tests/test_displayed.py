"""Results in notebooks: a small table, frames, a picture; never a dump of arrays."""

from __future__ import annotations

import html
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from markdown_it import MarkdownIt
from rankproof_cli import csv_rows, in_text
from rich.cells import cell_len

import rankproof as rp
from rankproof.cli import terminal
from rankproof.diagnostics import diagnose_names, diagnose_noise
from rankproof.presentation.charts import (
    Chart,
    Curve,
    CurveChart,
    Point,
    Range,
    RangeChart,
    ScatterChart,
    StackedBar,
    StackedChart,
)
from rankproof.presentation.html import charts_page, fragment, table_html
from rankproof.presentation.result import (
    STORED_ROWS,
    Presentation,
    Summary,
    read_presentation,
    stored,
)
from rankproof.presentation.svg import to_svg
from rankproof.presentation.tables import (
    Cell,
    Column,
    Marked,
    Table,
)
from rankproof.presentation.terminal import drawn_lines, fit, shorten_middle, to_text
from rankproof.presentation.text_formats import (
    latex_table,
    markdown_table,
    to_csv,
    to_latex,
    to_markdown,
)
from rankproof.retrieval.embedders import make_embedder
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
from rankproof.tradeoffs.ceilings import ceilings
from rankproof.tradeoffs.recommend import recommend

DATA = Path(rp.__file__).parent / "resources"
QRELS, PLAIN, TIED = (
    str(DATA / name) for name in ("demo-qrels.txt", "demo-plain.trec", "demo-saturated.trec")
)


def results() -> dict[str, Any]:
    runs = {"plain": PLAIN, "tied": TIED}
    return {
        "evaluation": rp.evaluate(QRELS, TIED, ["nDCG@10", "RR"]),
        "comparison": rp.compare(QRELS, runs, ["nDCG@10", "RR"]),
        "leaderboard": rp.leaderboard(QRELS, runs, ["nDCG@10", "RR"]),
        "gate": rp.gate(QRELS, PLAIN, TIED, "nDCG@10"),
        "ties": rp.tie_statistics(TIED),
        "ceilings": ceilings(PLAIN, QRELS, "nDCG", 10),
    }


RESULTS = results()


@pytest.mark.parametrize("kind", list(RESULTS))
def test_a_result_shows_as_a_small_table_and_gives_frames_and_a_picture(kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    result = RESULTS[kind]
    page = result._repr_html_()
    assert "<table>" in page
    assert len(page) < 10_000
    assert "array(" not in page + repr(result)
    assert len(repr(result)) < 2_000
    frame = result.to_polars()
    assert isinstance(frame, pl.DataFrame)
    assert len(frame) > 0
    other = result.to_pandas()
    assert isinstance(other, pandas.DataFrame)
    assert list(other.columns) == frame.columns
    assert "</circle>" in result.plot().to_svg()
    assert "</circle>" in result.plot()._repr_html_()


@pytest.mark.parametrize("kind", list(RESULTS))
@pytest.mark.parametrize(
    "write", [to_csv, to_markdown, to_latex, to_text, fragment], ids=lambda write: write.__name__
)
def test_every_format_is_the_same_live_and_from_a_stored_result(kind: str, write: Any) -> None:
    live = Presentation.of(RESULTS[kind])
    text = json.dumps({"presentation": stored(RESULTS[kind])}, allow_nan=False)
    read = read_presentation(json.loads(text))
    assert read is not None
    assert write(read) == write(live)
    assert to_svg(read.charts) == to_svg(live.charts)
    assert charts_page(read.charts) == charts_page(live.charts)


def test_undefined_and_endless_values_marks_and_every_chart_survive_storing() -> None:
    columns = [Column("run", "text", folds=True), Column("value", "signed", digits=2)]
    rows: list[tuple[Cell, ...]] = [
        ("a", Marked(float("nan"), True, "†")),
        ("b", float("inf")),
        ("c", 3),
        ("d", None),
    ]
    charts: list[Chart] = [
        RangeChart("ranges", [Range("a", 1.0, None, float("nan"), marker=2.0)], "score"),
        CurveChart("curves", [Curve("a", [1.0, 2.0], [0.5, float("nan")])], "k", "score"),
        ScatterChart("points", [Point("a", 1.0, 2.0, 3.0, "tip", on_front=True)], "ms", "score"),
        StackedChart("parts", [StackedBar("a", [("one", 0.25), ("two", 0.5)])]),
    ]
    table = Table(columns, rows, "Title", ["note"])
    live = Presentation.assemble("kind", Summary("answer", ["note"], "next"), [table], charts)
    assert Presentation.from_dict(json.loads(json.dumps(live.to_dict(), allow_nan=False))) == live
    assert live.tables[0].written() == [["a", "–†"], ["b", "inf"], ["c", "3"], ["d", "–"]]
    drawing = to_svg(live.charts)
    assert all(f">{title}</text>" in drawing for title in ("ranges", "curves", "points", "parts"))
    assert "nan" not in drawing
    assert "var(--" not in drawing


def test_a_stored_table_is_limited_and_says_so() -> None:
    table = Table([Column("n")], [(at,) for at in range(STORED_ROWS + 1)])
    kept = stored(Presentation.assemble("kind", Summary(), [table]))["tables"][0]
    assert len(kept["rows"]) == STORED_ROWS
    assert kept["notes"] == [f"the first {STORED_ROWS} of {STORED_ROWS + 1} rows"]


def test_every_format_carries_the_answer_the_notes_and_the_next_step() -> None:
    table = Table([Column("#"), Column("run", "text")], [(1, "a#b")], notes=["of the table"])
    shown = Presentation.assemble(
        "kind", Summary("The answer.", ["of the result"], "rankproof next"), [table]
    )
    for write in (to_csv, to_markdown, to_text, fragment):
        for words in ("The answer.", "of the table", "of the result", "rankproof next"):
            assert words in write(shown), write.__name__
    tex = to_latex(shown)
    assert re.findall(r"\\item\[\] (.*)", tex) == ["of the table", "of the result"]
    assert tex.startswith("% The answer.")
    assert pl.read_csv(io.StringIO(to_csv(shown)), comment_prefix="#").rows() == [(1, "a#b")]


def test_no_result_prints_all_that_it_holds(tmp_path: Path) -> None:
    vectors = np.eye(3, dtype="float32")
    audited = rp.audit.audit_embeddings(vectors, vectors, {"0": {"0": 1}}, ["RR"], formats=["bit"])
    assert repr(audited) == audited.summary().answer
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "fan.txt").write_text("The fan turns to the left.")
    made = rp.init(tmp_path / "texts", tmp_path / "set")
    assert repr(made) == f"<1 passage and 0 questions in {tmp_path / 'set'}>"
    row = {"configuration": "a", "RAnWG@10": 0.8, "latency_p95_ms": 3.0, "cost_per_1000": 1.0}
    chosen = recommend(pl.DataFrame([row | {"latency_p50_ms": 2.0}]), sla_ms=5)
    assert repr(chosen) == str(chosen)
    assert repr(chosen).startswith("Use a, the only one within 5 ms.")
    assert repr(RESULTS["comparison"]) == "<1 pair of plain, tied on nDCG@10, RR>"
    pytest.importorskip("wordllama")
    embedder = make_embedder(WordllamaSettings())
    for diagnose in (diagnose_names, diagnose_noise):
        found: Any = diagnose(embedder, queries=4, runs=1)
        assert repr(found).splitlines() == found.words()


def test_a_long_table_is_cut_in_notebooks_and_says_so() -> None:
    table = Table([Column("n")], [(at,) for at in range(500)])
    assert table_html(table, rows=60).count("<tr>") == 61
    assert "the first 60 of 500 rows" in table_html(table, rows=60)
    assert "<script>" not in table_html(Table([Column("<script>", "text")], [("<script>",)]))


def test_names_are_shortened_in_the_middle_and_columns_left_out_in_order() -> None:
    assert shorten_middle("abcdefghij", 5) == "ab…ij"
    table = Table(
        [Column("run", "text", folds=True), Column("a"), Column("b", drop=2), Column("c", drop=1)],
        [("x" * 60 + "-end", 0.1234, 0.5, Marked(0.7, True, "†"))],
    )
    whole, _ = fit(table, 200)
    assert [column.name for column in whole.columns] == ["run", "a", "b", "c"]
    assert whole.rows[0][0] == "x" * 60 + "-end", "room is used"
    some, _ = fit(table, 42)
    assert [column.name for column in some.columns] == ["run", "a", "b", "c"]
    assert "…" in str(some.rows[0][0])
    few, _ = fit(table, 34)
    assert [column.name for column in few.columns] == ["run", "a", "b"]
    assert few.notes[-1] == "not shown: c; --wide shows it"


def test_names_are_as_wide_as_the_terminal_shows_them() -> None:
    """A letter of Chinese or an emoji takes two columns: counted as one, rows ran over the edge."""
    assert shorten_middle("检索模型检索模型", 9) == "检索…模型"
    assert shorten_middle("e\u0301" * 5, 5) == "e\u0301" * 5, "an accent takes none"
    names = [f"检索模型的名字很长{at}" for at in range(3)] + ["emoji😀run", "\x1b" * 5]
    columns = [Column("run", "text", folds=True), *Column.each(*names)]
    for room in range(40, 90):
        lines = lines_at(Table(columns, [[name] + [0.5] * 5 for name in names]), room)
        assert max(map(cell_len, lines)) <= room, (room, lines)


def lines_at(table: Table, width: int) -> list[str]:
    """Return the lines of a table on a terminal of this width, which indents them by two."""
    return [line.plain for line in drawn_lines(*fit(table, width - 2))]


def test_sentences_in_a_table_go_on_below_and_lose_no_word() -> None:
    says = "The share of the R relevant documents that is in the top k, one of the two"
    columns = [Column("measure", "text"), Column("figure"), Column("meaning", "text", prose=True)]
    table = Table(columns, [("R", 0.25, says), ("P", 0.5, "Precision")])
    for room in (30, 40, 60, 80):
        lines = lines_at(table, room)
        assert all(len(line) <= room for line in lines)
        begin = next(at for at, line in enumerate(lines) if line.startswith("  R "))
        end = next(at for at, line in enumerate(lines) if line.startswith("  P "))
        assert " ".join(" ".join(lines[begin:end]).replace("0.2500", "").split()) == f"R {says}"
    assert says in "".join(lines_at(table, 120))
    assert f'<td style="text-align:left">{says}</td>' in table_html(table), "a notebook wraps it"


@pytest.mark.parametrize("verb", ["measures", "parts"])
def test_a_listing_says_all_of_what_it_lists_at_80_columns(verb: str) -> None:
    narrow, wide = printed(verb, columns=80), printed(verb, "--wide", columns=80)
    assert max(map(cell_len, narrow.splitlines())) <= 80
    assert sorted(narrow.split()) == sorted(re.sub("─{3,}", "─" * 78, wide).split())


def printed(*words: str, columns: int) -> str:
    done = in_text(*words, env={"COLUMNS": str(columns), "NO_COLOR": "1"})
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_different_names_look_different_on_a_narrow_terminal() -> None:
    """What all end in goes first; then columns that may go, before names that look alike."""
    names = [
        f"dense wordllama:{d} {index} K=30 top 10" for d in (256, 64) for index in ("hnsw", "bit")
    ]
    columns = [Column("configuration", "text", folds=True), Column("quality")]
    columns += [Column(f"figure {at}", drop=9 - at) for at in range(8)]
    rows: list[list[Cell]] = [[name, *([0.25] * 9)] for name in names]
    shown, _ = fit(Table(columns, rows), 80)
    written = [str(row[0]) for row in shown.rows]
    assert len(set(written)) == 4
    assert all(
        shorten_middle(name.removesuffix(" K=30 top 10"), len(w)) == w
        for name, w in zip(names, written, strict=True)
    )
    assert shown.notes[0] == "every configuration ends in: K=30 top 10"
    assert "figure 7" in shown.notes[-1]  # the first to go
    whole, _ = fit(Table(columns, rows), 200)
    assert [row[0] for row in whole.rows] == names


def test_lines_for_people_break_between_words_and_commands_not_at_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    command = "Next: rankproof choose a-folder-with-a-rather-long-name-rankproof"
    terminal.say(["  a note that is longer than a line of forty columns", command])
    said = capsys.readouterr().out.splitlines()
    assert said == ["  a note that is longer than a line of", "  forty columns", command]
    monkeypatch.setenv("COLUMNS", "0")  # as some say that they do not know
    terminal.say([" ".join(["word"] * 60)])
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    "words",
    [("eval", QRELS), ("compare", QRELS), ("leaderboard", QRELS), ("gate", QRELS), ("ties",)],
    ids=lambda words: words[0],
)
def test_no_line_is_wider_than_the_terminal_and_wide_shows_all(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    files = []
    for name, source in (("a-rather-long-name-" * 3 + "v1", PLAIN), ("other-" * 9 + "v2", TIED)):
        path = tmp_path / f"{name}.trec"
        path.write_bytes(Path(source).read_bytes())
        files.append(str(path))
    narrow = printed(*words, *files, columns=80)
    lines = [line.rstrip() for line in narrow.splitlines() if not line.startswith("Next: ")]
    assert max(map(len, lines)) <= 80
    wide = printed(*words, *files, "--wide", columns=80)
    assert "not shown" not in wide
    if words[0] != "gate":  # which names the candidate alone, in a sentence
        assert "a-rather-long-name-" * 3 + "v1" in wide
        assert max(map(len, printed(*words, *files, columns=200).splitlines())) > 80


@pytest.mark.parametrize("verb", ["eval", "gate", "leaderboard", "golden build"])
def test_help_wraps_at_the_terminal_and_flags_show_no_type(verb: str) -> None:
    for columns in (80, 140):
        text = printed(*verb.split(), "-h", columns=columns)
        assert "<bool>" not in text
        assert max(len(line.rstrip()) for line in text.splitlines()) <= columns
    if verb == "eval":
        assert "every order of tied documents" in printed("eval", "-h", columns=80)


def test_ties_as_csv_are_one_table() -> None:
    rows = list(csv_rows(printed("ties", TIED, PLAIN, "--format", "csv", columns=80)))
    assert len(rows) == 16
    assert {row["run"] for row in rows} == {"demo-saturated", "demo-plain"}
    assert all(None not in row and row["largest group"] and row["k"] for row in rows)


def test_what_tex_and_markdown_would_take_for_their_own_is_escaped() -> None:
    table = Table([Column("run", "text")], [["a_b & 50% <x> |y| ~^{}\\$#"]])
    tex = latex_table(table)
    assert r"a\_b \& 50\% \textless{}x\textgreater{} \textbar{}y\textbar{}" in tex
    assert r"\textasciitilde{}\textasciicircum{}\{\}\textbackslash{}\$\#" in tex
    assert r"a_b & 50% \<x> \|y\| \~^{}\\$#" in markdown_table(table)


def test_one_of_everything_is_told_in_the_singular() -> None:
    """A query, a document, a hole, a negative grade, a list that ends inside a tie."""
    qrels = {"q": {"d": 1, "n": -1}}
    runs = {
        "a": {"q": {"d": 1.0}},
        "b": {"q": {"x": 1.0}},
        "c": {"q": {"d": 1.0, "n": 1.0}},
    }
    evaluated = [rp.evaluate(qrels, run, ["RR", "P@1"]) for run in runs.values()]
    found = [
        *evaluated,
        rp.compare(qrels, runs, "RR", holes=True),
        rp.leaderboard(qrels, runs, "RR", holes=True),
        rp.gate(qrels, runs["a"], runs["c"], "P@1"),
        *map(rp.tie_statistics, runs.values()),
    ]
    said = [str(each) for each in found] + [each._repr_html_() for each in found]
    pair = {"a": {"q": {"d": 2.0, "x": 1.0}}, "b": {"q": {"d": 2.0}}}
    said.append(rp.holes({"q": {"d": 1}}, pair, "P@2").summary().answer)
    said += [note for each in evaluated for note in each.notes]
    text = "\n".join(said)
    assert "1 of 1 query has ties" in text
    assert "Grades for 1 unjudged document could" in text.replace("\n", " ")
    assert "1 negative grade in " in text
    plural = r"\b1 (?:[a-z]+ )?(?:queries|documents|runs|lists|holes|grades|measures|others)\b"
    assert not re.findall(plural, text)
    assert not re.findall(r"[+-]0\.0+\b", text)


@pytest.mark.parametrize(
    "name",
    [
        "[a](http://x)",
        "![a](http://x/y.png)",
        "~~a~~",
        "&amp;",
        "&#60;b>",
        "a`b",
        "__a__",
        "*a*|<b>",
    ],
)
def test_markdown_makes_nothing_of_a_name(name: str) -> None:
    """A summary on a forge would link to, or load, what a run's name says."""
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    written = markdown.render(markdown_table(Table([Column("run", "text")], [(name,)])))
    (cell,) = re.findall("<td[^>]*>(.*?)</td>", written, re.S)
    assert html.unescape(cell) == name
    assert "<" not in cell


def test_latex_shows_a_name_as_it_is_and_a_minus_as_one() -> None:
    """A row that began with [ was taken for the room below the row before: an error."""
    columns = [Column("run", "text"), Column("bias", "signed"), Column("n")]
    names = ["[a]", "*b", "c---d", "`e`", "-1"]
    tex = latex_table(Table(columns, [(name, Marked(-0.25, True, "†"), -3) for name in names]))
    rows = [line.split(" & ") for line in tex.splitlines()[4:-2]]
    begins = ["{}[a]", "{}*b", "c-{}-{}-d", r"\textasciigrave{}e\textasciigrave{}", "-1"]
    assert [row[0] for row in rows] == begins
    assert {tuple(row[1:]) for row in rows} == {(r"\textbf{$-$0.2500}$^{\dagger}$", r"$-$3 \\")}
