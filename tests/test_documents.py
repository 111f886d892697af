"""A folder of documents becomes passages that know where they come from, and questions."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import Reply, Request, loopback
from mixed_documents import FACTS, QUESTIONS, pdf, write_documents
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.data.query_groups import read_groups
from rankproof.foundation.config import read_config
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import write_lines
from rankproof.golden.settings import GoldenSettings
from rankproof.projects.questions import overlap, refusal
from rankproof.projects.reading import FORMATS, Broken, read_file
from rankproof.tradeoffs.plan import SweepSettings


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    pytest.importorskip("lxml")
    pytest.importorskip("pypdfium2")
    return write_documents(tmp_path / "documents")


def test_every_format_is_read_and_every_passage_knows_its_place(documents: Path) -> None:
    made = rp.init(documents, documents.parent / "set")
    found = rows(made.folder / "corpus.jsonl")
    assert len(found) == made.passages
    assert len({row["_id"] for row in found}) == len(found)
    assert all(row["_id"].split() == [row["_id"]] for row in found)
    texts = "\n".join(row["text"] for row in found)
    assert all(fact in texts for fact in FACTS)
    assert "not for anybody" not in texts
    assert "var x" not in texts
    by_source = {row["metadata"]["source"]: row for row in found}
    assert by_source["octopus.html"]["title"] == "Octopus & squid"
    assert by_source["extra/fish and more.txt"]["_id"].startswith("extra/fish%20and%20more.txt#0-")
    # copy.md comes first by name and says the same as whales.md
    food = next(row for row in found if FACTS[0] in row["text"])
    text = (documents / "copy.md").read_text()
    place = food["metadata"]
    assert text[place["start"] : place["end"]].startswith("## Food")
    assert place["headings"] == ["Whales"]
    assert food["text"].startswith("Whales\n## Food")
    assert next(row for row in found if "ten" in row["text"])["text"] == "animal: crab\nlegs: ten"


def test_menus_and_banners_around_a_text_are_skipped(tmp_path: Path) -> None:
    pytest.importorskip("lxml")
    (tmp_path / "my texts").mkdir()
    page = (
        "<body><header><h1>Shop</h1></header><nav>menu</nav><div role='navigation'>crumbs</div>"
        "<main><article><header>By Ada</header><p>Pumps hum.</p><footer>Seen by Bo</footer>"
        "</article><p hidden>secret</p></main><aside>advert</aside><footer>imprint</footer></body>"
    )
    (tmp_path / "my texts" / "page.html").write_text(page)
    (tmp_path / "my texts" / "only.html").write_text("<body><footer>All there is.</footer></body>")
    matter = "---\ntitle: A fan\ntags: [noise]\n---\n"
    (tmp_path / "my texts" / "fan.md").write_text(f"{matter}\nFans turn.\n")
    (tmp_path / "q.txt").write_text("What hums?")
    made = rp.init(tmp_path / "my texts", tmp_path / "my set", questions=tmp_path / "q.txt")
    found = {row["metadata"]["source"]: row for row in rows(made.folder / "corpus.jsonl")}
    assert found["page.html"]["text"].split("\n\n") == ["By Ada", "Pumps hum.", "Seen by Bo"]
    assert found["only.html"]["text"] == "All there is."
    assert (found["fan.md"]["title"], found["fan.md"]["text"]) == ("A fan", "Fans turn.")
    assert found["fan.md"]["metadata"]["start"] == len(matter) + 1
    assert f"'{tmp_path / 'my set'}'" in made.next  # a shell takes it as it stands


def test_a_page_nested_too_deep_has_a_note(tmp_path: Path) -> None:
    pytest.importorskip("lxml")
    deep = "<p>First.</p>{0}<p>Pumps hum.</p>{1}<p>Last.</p>"
    for depth in (300, 3000):
        page = deep.format("<div>" * depth, "</div>" * depth)
        (tmp_path / f"{depth}.html").write_text(page)
    read, cut = (read_file(tmp_path / f"{depth}.html", "page") for depth in (300, 3000))
    assert read.documents[0].text.split("\n\n") == ["First.", "Pumps hum.", "Last."]
    assert read.notes == []
    assert cut.documents[0].text == "First."
    assert cut.notes == ["not read past line 1 (Excessive depth in document: 2048)"]


_NOT_1252 = "not UTF-8; read as Windows-1252"


@pytest.mark.parametrize(
    ("page", "text", "notes"),
    [
        (b"<p>\x93Caf\xe9\x94</p>", "“Café”", [_NOT_1252]),
        (b'<meta charset="utf-8"><p>\x93Caf\xe9\x94</p>', "“Café”", [_NOT_1252]),
        (b'<meta charset="made-up"><p>\x93Caf\xe9\x94</p>', "“Café”", [_NOT_1252]),
        (b"<meta charset=iso-8859-1><p>\x93Caf\xe9\x94</p>", "“Café”", []),
        (b'<?xml version="1.0" encoding="iso-8859-15"?><p>\xe9t\xe9 \xa4</p>', "été €", []),
        (b'<meta content="text/html; charset=windows-1251"><p>\xc4\xe0</p>', "Да", []),
        (b'<meta charset="latin1"><p>\xc3\xa9</p>', "é", []),
        (b"<meta charset=shift_jis><p>\x93\xfa\x85", "日\ufffd", ["some of it is not shift_jis"]),
        ("<p>Grüße</p>".encode("utf-16"), "Grüße", []),
        (
            b'<meta charset="utf-8"><p>' + "Á für Ärzte".encode() + b"\xff</p>",
            "Á für Ärzte\ufffd",
            ["some of it is not utf-8"],
        ),
        (b'<meta charset="idna"><p>\x93Caf\xe9\x94</p>', "“Café”", [_NOT_1252]),
        (b'<meta charset="punycode"><p>\x93Caf\xe9\x94</p>', "“Café”", [_NOT_1252]),
        (
            b'<meta charset="utf-16"><p>' + "Á für Ärzte".encode() + b"\xff</p>",
            "Á für Ärzte\ufffd",
            ["some of it is not utf-16"],
        ),
        (b'<meta charset="cp037"><p>\x93Caf\xe9\x94</p>', "“Café”", [_NOT_1252]),
        (b'<meta charset="base64"><p>\x93Caf\xe9\x94</p>', "“Café”", [_NOT_1252]),
        (b'<meta charset="undefined"><p>\x93Caf\xe9\x94</p>', "“Café”", [_NOT_1252]),
        (b'<meta charset="unicode_escape"><p>\x93C:\\new\\d</p>', "“C:\\new\\d", [_NOT_1252]),
        (b"<meta charset=gb2312><p>" + "中镕".encode("gbk"), "中镕", []),
        (b"<meta charset=shift_jis><p>" + "日①".encode("cp932"), "日①", []),
        (b"<meta charset=euc-kr><p>" + "한똠".encode("cp949"), "한똠", []),
    ],
)
def test_a_page_is_decoded_by_detection_then_by_its_declaration_or_has_a_note(
    page: bytes, text: str, notes: list[str]
) -> None:
    """What nobody could read was read as something else, and nothing was said."""
    pytest.importorskip("lxml")
    contents = FORMATS[".html"][1](page, "n", "s")
    assert contents.documents[0].text == text
    assert [note.partition(",")[0] for note in contents.notes] == notes


def test_a_page_of_noise_is_not_text() -> None:
    pytest.importorskip("lxml")
    with pytest.raises(Broken, match="it holds NUL bytes"):
        FORMATS[".html"][1](bytes(range(256)) * 9, "n", "s")


@pytest.mark.parametrize(
    ("said", "title"),
    [("  A fan  ", "A fan"), ("'A \"fan\"' ", 'A "fan"'), ("\n  A fan", "A fan"), ('"', "s")],
)
def test_a_title_is_read_without_its_blanks_and_quotes(said: str, title: str) -> None:
    contents = FORMATS[".md"][1](f"---\ntitle:{said}\n---\nFans turn.".encode(), "n", "s")
    assert contents.documents[0].title == title


def test_a_title_with_a_megabyte_of_blanks_is_read_once() -> None:
    title = "A" + " " * 1_000_000 + "fan"
    contents = FORMATS[".md"][1](f"---\ntitle: {title}\n---\nFans turn.".encode(), "n", "s")
    assert contents.documents[0].title == title


def test_links_that_lead_out_of_the_folder_are_skipped_and_counted(
    documents: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key.txt").write_text("A secret of another folder.")
    (outside / "back.txt").symlink_to(documents / "latin.txt")
    (documents / "relative.md").symlink_to(os.path.relpath(outside / "key.txt", documents))
    (documents / "absolute.txt").symlink_to(outside / "key.txt")
    (documents / "link-to-link.txt").symlink_to("absolute.txt")
    (documents / "folder").symlink_to(outside)
    (documents / "and-back.txt").symlink_to(outside / "back.txt")
    (documents / "sub").mkdir()
    (documents / "sub" / "up.txt").symlink_to("../latin.txt")
    (tmp_path / "shortcut").symlink_to(documents)
    for source in (documents, tmp_path / "shortcut"):
        made = rp.init(source, tmp_path / "set")
        assert made.others["links out of the folder"] == 3
        note = "skipped 3 links that lead out of the folder: copy the files into it"
        assert note in made.notes
        read = {file.file for file in made.files}
        assert {"and-back.txt", "sub/up.txt"} <= read
        assert read.isdisjoint({"relative.md", "absolute.txt", "link-to-link.txt"})
        for path in made.folder.rglob("*"):
            assert path.is_dir() or b"secret" not in path.read_bytes(), path


def test_a_folder_of_links_to_elsewhere_holds_no_document(tmp_path: Path) -> None:
    (tmp_path / "key.txt").write_text("A secret.")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").symlink_to("../key.txt")
    with pytest.raises(InputError, match=r"no document .* in this folder \(1 link out of it skip"):
        rp.init(tmp_path / "docs", tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_every_file_of_a_folder_is_read_or_reported(documents: Path) -> None:
    """Links, pipes, names in no encoding, lines that end as on Windows."""
    (documents / "dead.md").symlink_to("nowhere.md")
    (documents / "loop").symlink_to(".")
    (documents / "also.txt").symlink_to("latin.txt")
    os.mkfifo(documents / "pipe.txt")
    paragraphs = [f"Paragraph {at}.\nIt says {at}." for at in range(9)]
    (documents / "windows.txt").write_bytes("\n\n".join(paragraphs).replace("\n", "\r\n").encode())
    for byte in (b"\xfe", b"\xff"):
        named = os.fsencode(documents) + b"/bad\xff" + byte + b" name.txt"
        with open(named, "wb") as file:  # noqa: PTH123 - a name of bytes
            file.write(b"A sump pump has a float, " + str(byte).encode())
    made = rp.init(documents, documents.parent / "set", size=60)
    states = {file.file: (file.state, file.notes) for file in made.files}
    assert states["dead.md"] == ("broken", ("is a link that leads nowhere",))
    assert states["pipe.txt"] == ("broken", ("is not a file",))
    assert states["latin.txt"][0] == "duplicate"  # also.txt comes first by name
    assert states["bad%FF%FE name.txt"] == states["bad%FF%FF name.txt"] == ("read", ())
    ids = [row["_id"] for row in rows(made.folder / "corpus.jsonl")]
    assert len(ids) == len(set(ids))
    assert made.others == {".png": 1, "links to folders": 1}
    assert any(note.endswith(": 1 link to a folder, 1 .png") for note in made.notes), made.notes
    found = [r["text"] for r in rows(made.folder / "corpus.jsonl") if "Paragraph" in r["text"]]
    assert all(text.endswith(".") and text.startswith("Paragraph") for text in found)
    again = rp.init(documents, documents.parent / "set")
    assert {file.change for file in again.files} == {"same"}


def test_a_passage_of_a_pdf_knows_its_pages(tmp_path: Path) -> None:
    pytest.importorskip("pypdfium2")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.pdf").write_bytes(pdf("One. " * 10, "Two. " * 10, "Three. " * 10))
    made = rp.init(tmp_path / "in", tmp_path / "out", size=101, by="sentences")
    pages = [row["metadata"]["pages"] for row in rows(made.folder / "corpus.jsonl")]
    assert pages[0] == [1, 2]
    assert pages[-1][-1] == 3


def test_duplicate_empty_and_broken_files_are_reported_and_skipped(documents: Path) -> None:
    made = rp.init(documents, documents.parent / "set")
    states = {file.file: file.state for file in made.files}
    assert states["whales.md"] == "duplicate"
    assert states["empty.txt"] == "empty"
    assert states["broken.pdf"] == states["noise.txt"] == "broken"
    assert states["latin.txt"] == states["more.jsonl"] == "read"
    assert made.others == {".png": 1}
    said = "\n".join(made.notes)
    assert "latin.txt: not UTF-8; read as Windows-1252" in said
    assert "more.jsonl: 2 lines without a text skipped" not in said  # a row without `text` has one
    assert "more.jsonl: 1 line without a text skipped: 3, 1 row is the same as" in said
    recorded = json.loads((made.folder / "provenance.json").read_text())
    assert {file["file"]: file["state"] for file in recorded["files"]} == states


def test_from_within_the_documents_the_corpus_is_written_beside_them(
    documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(documents / "extra")
    assert rp.init("..").folder == Path("../../documents-rankproof")
    assert (documents.parent / "documents-rankproof" / "corpus.jsonl").is_file()


def test_a_changed_file_changes_its_passages_only(documents: Path) -> None:
    out = documents.parent / "set"
    rp.init(documents, out, size=200)
    before = {row["_id"]: row for row in rows(out / "corpus.jsonl")}
    (documents / "octopus.html").write_text("<p>Octopuses solve puzzles.")
    (documents / "table.csv").unlink()
    made = rp.init(documents, out)  # cut as the last time
    after = {row["_id"]: row for row in rows(out / "corpus.jsonl")}
    changed = {file.file for file in made.files if file.change != "same"}
    assert changed == {"octopus.html"}
    assert made.gone == ("table.csv",)
    sources = {"octopus.html", "table.csv"}
    assert {i: r for i, r in after.items() if r["metadata"]["source"] not in sources} == {
        i: r for i, r in before.items() if r["metadata"]["source"] not in sources
    }
    (documents / "a copy.txt").write_bytes((documents / "latin.txt").read_bytes())
    first = (out / "corpus.jsonl").read_bytes()
    for _ in range(2):  # who came first stays first, whatever a copy is called
        assert rp.init(documents, out).files[0].state == "duplicate"
        assert (out / "corpus.jsonl").read_bytes() == first
    rp.init(documents, out)
    assert (out / "corpus.jsonl").read_bytes() == first


def test_configurations_are_valid_and_kept_once_they_are_changed(documents: Path) -> None:
    out = documents.parent / "set"
    asked = documents.parent / "questions.txt"
    asked.write_text("\n".join([*QUESTIONS, "", QUESTIONS[0]]))
    url = "http://127.0.0.1:9/v1"
    made = rp.init(documents, out, questions=asked, url=url, model="m", key_env="MY_KEY")
    assert [row["text"] for row in rows(out / "queries.jsonl")] == list(QUESTIONS)
    assert made.next == f"rankproof choose {out}"
    golden = read_config(out / "golden.yaml", GoldenSettings)
    assert (golden.judge.type, golden.judge.url, golden.judge.key_env) == ("llm", url, "MY_KEY")
    assert read_config(out / "sweep.yaml", SweepSettings).holes == "judge"
    text = (out / "golden.yaml").read_text().replace("concurrency: 4", "concurrency: 2")
    (out / "golden.yaml").write_text(text)
    again = rp.init(documents, out)
    assert (out / "golden.yaml").read_text() == text
    assert "golden.yaml was changed since and stays as it is" in again.notes
    assert [q.text for q in again.questions] == list(QUESTIONS)


def test_generated_questions_say_so_and_copies_are_refused(documents: Path) -> None:
    said: list[str] = []

    def answer(request: Request) -> Reply:
        text = request.json["messages"][1]["content"].split("\n", 1)[1]
        words = text.split("\n<<<")[0].split()
        copy = request.number == 0
        question = " ".join(words[:8]) + "?" if copy else f"Case {request.number}: why {words[-1]}?"
        said.append(question)
        content = json.dumps({"question": question})
        return Reply.of({"choices": [{"message": {"content": content}}], "model": "m"})

    out = documents.parent / "set"
    with loopback(answer) as server:
        made = rp.init(documents, out, generate=3, url=server.url, model="m")
        asked = len(server.requests)
        rp.init(documents, out, generate=3, url=server.url, model="m")
        assert len(server.requests) == asked  # what is there is not asked for again
    assert asked == 4
    found = rows(out / "queries.jsonl")
    assert [row["text"] for row in found] == said[1:]
    assert all(row["_id"].startswith("generated-") for row in found)
    assert all(row["metadata"]["generated"] == "m" for row in found)
    files = {row["_id"]: row["metadata"]["passage"].split("#")[0] for row in found}
    groups = read_groups(out / "groups.tsv")
    assert groups.keys() == files.keys()
    assert all((groups[x] == groups[y]) == (files[x] == files[y]) for x in files for y in files)
    assert "1 generated question refused: nearly a copy of its passage" in made.notes
    assert any("flatter search by words" in note for note in made.notes)


def test_generating_questions_continues_after_an_interruption(documents: Path) -> None:
    """A server that goes away while it writes questions: what is there is kept and not asked for
    again, and the folder is still one of ours."""

    def answer(request: Request) -> Reply:
        if request.number >= 2 and not back:
            return Reply(b"gone", 401)
        content = json.dumps({"question": f"Why is that so in case {request.number}?"})
        return Reply.of({"choices": [{"message": {"content": content}}], "model": "m"})

    out, back = documents.parent / "set", False
    with loopback(answer) as server:
        with pytest.raises(rp.RankproofError):
            rp.init(documents, out, generate=4, url=server.url, model="m")
        kept = rows(out / "queries.jsonl")
        assert len(kept) == 2
        back = True
        made = rp.init(documents, out, generate=4, url=server.url, model="m")
    assert rows(out / "queries.jsonl")[:2] == kept
    assert len(made.questions) == 4
    assert not any("yours by now" in note for note in made.notes)


def test_init_continues_after_an_interruption_between_two_files(
    documents: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each file that is written the power goes; the same command then ends as if it had
    not."""
    whole = documents.parent / "whole"
    rp.init(documents, whole)
    expected = {path.name: path.read_bytes() for path in whole.iterdir()}
    steps = len(expected) + 1  # provenance is written twice
    for stop in range(1, steps):
        out = documents.parent / f"set {stop}"
        left = stop

        def write(path: Path, *args: Any, **more: Any) -> Any:
            nonlocal left
            if not left:
                raise KeyboardInterrupt
            left -= 1
            return write_lines(path, *args, **more)

        with monkeypatch.context() as patched:
            patched.setattr("rankproof.projects.preparing.write_lines", write)
            with pytest.raises(KeyboardInterrupt):
                rp.init(documents, out)
        made = rp.init(documents, out)
        assert not any("yours by now" in note for note in made.notes), stop
        names = set(expected) - {"provenance.json"}  # which says when
        assert all((out / name).read_bytes() == expected[name] for name in names)


def test_overlap_is_the_share_of_a_questions_words_that_its_passage_has() -> None:
    assert overlap("Do whales sing?", "Whales sing.") == pytest.approx(2 / 3, abs=1e-4)
    assert refusal("whales sing for hours in winter", "Whales sing for hours in winter.", set())
    assert not refusal("Which animals make music all day?", FACTS[1], set())


def test_init_prints_json_with_how_it_was_made(documents: Path) -> None:
    done = rankproof("init", str(documents), "--out", str(documents.parent / "s"), "--format=json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["manifest"]["kind"] == "documents"
    assert data["passages"] == sum(file["passages"] for file in data["files"])
    assert data["next"].endswith("--questions questions.txt")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: there is no such folder; check the path"),
        (["taken/mine.txt"], "taken/mine.txt: this is a file; name the folder that it is in"),
        (["documents", "--out", "documents/set"], "this lies in an input"),
        (["documents", "--out", "taken"], "this folder holds 'mine.txt', which init did not write"),
        (["documents", "--overlap", "900"], "overlap 900 is more than half of the size 1200"),
        (["documents", "--generate", "3"], "nobody is named who would write questions"),
        (["documents", "--url", "http://x/v1"], "a url without a model"),
        (["documents", "--url", "nonsense", "--model", "m"], "this is not an address"),
        (["documents", "--questions", "taken/mine.txt"], "no question in it"),
        (["taken"], "no document with text in this folder"),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    documents: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(documents.parent)
    Path("taken").mkdir()
    Path("taken/mine.txt").write_text("\n")
    done = rankproof("init", *arguments)
    assert done.returncode == 2
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    assert said in lines[0]
    assert not Path("documents-rankproof").exists()


@pytest.mark.parametrize("ending", sorted(FORMATS))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.binary(max_size=200) | st.text(max_size=120).map(lambda t: t.encode("utf-16")))
def test_any_bytes_are_read_or_said_to_be_broken(ending: str, data: bytes) -> None:
    pytest.importorskip("lxml")
    pytest.importorskip("pypdfium2")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{ending}"
        path.write_bytes(data)
        try:
            found = read_file(path, path.name).documents
        except Broken:
            return
    for document in found:
        document.text.encode()
        assert "\x00" not in document.text


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_reported(documents: Path) -> None:
    (documents / "latin.txt").chmod(0)
    (documents / "extra").chmod(0)
    made = rp.init(documents, documents.parent / "set")
    (documents / "extra").chmod(0o700)
    for name in ("latin.txt", "extra"):
        file = next(file for file in made.files if file.file == name)
        assert (file.state, file.notes) == ("broken", ("cannot be read (Permission denied)",))
