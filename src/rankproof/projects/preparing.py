"""A folder of documents → a folder that golden sets and sweeps are made from.

    corpus.jsonl      passages: id `file#start-end`, title, text, file, span, headings, pages
    queries.jsonl     questions, typed or generated
    texts.jsonl       what was read from PDF and HTML: the text that spans count in
    provenance.json   every file: its digest, what became of it, and how the folder was made
    golden.yaml, sweep.yaml   to begin with; yours once you change them

Run again, a file that did not change keeps its passages, byte for byte.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from rankproof.foundation.config import check_config, read_config, read_keys
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import (
    check_folder,
    check_output,
    claim_folder,
    read_text,
    write_lines,
)
from rankproof.foundation.manifest import digest_file, manifest
from rankproof.foundation.phrasing import out_of, plural, typed
from rankproof.foundation.printable import printable_path
from rankproof.foundation.redaction import register_address
from rankproof.foundation.version import __version__
from rankproof.golden.settings import GoldenSettings
from rankproof.presentation.json_values import told
from rankproof.presentation.notebook import Displayed
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.projects.questions import (
    Question,
    caveat,
    kept_questions,
    typed_questions,
    write_questions,
)
from rankproof.projects.reading import Broken, Contents, Document, fit, kind_of, read_file
from rankproof.projects.starters import golden_yaml, sweep_yaml
from rankproof.retrieval.chat import Chat
from rankproof.retrieval.chunks import ChunkSettings, Span, chunk
from rankproof.retrieval.workshop import Told, silent
from rankproof.tradeoffs.plan import SweepSettings

CORPUS, QUERIES, TEXTS = "corpus.jsonl", "queries.jsonl", "texts.jsonl"
PROVENANCE, GOLDEN, SWEEP = "provenance.json", "golden.yaml", "sweep.yaml"
OURS = (CORPUS, QUERIES, TEXTS, PROVENANCE, GOLDEN, SWEEP)
_KEPT = ("PDF", "HTML")  # formats whose text is kept: reading them takes long, and spans need it
_LISTED = 20  # files that are named where something is wrong with them
_LINKS = "links to folders"
_OUTSIDE = "links out of the folder"

By = Literal["headings", "separators", "sentences"]
State = Literal["read", "duplicate", "empty", "broken"]


@dataclass(frozen=True, slots=True)
class FileRead:
    """What became of a file."""

    file: str
    format: str
    sha256: str
    size: int
    state: State
    change: Literal["new", "changed", "same"]
    documents: int = 0
    passages: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared(Displayed):
    """A folder that golden sets and sweeps are made from, and what was read into it.

    >>> from pathlib import Path
    >>> Path("texts").mkdir(exist_ok=True)
    >>> _ = Path("texts/fan.txt").write_text("The fan turns to the left.")
    >>> found = rp.init("texts", "texts-set")
    >>> found.passages, found.files[0].state
    (1, 'read')
    """

    folder: Path
    files: tuple[FileRead, ...]
    passages: int
    repeated: int  # passages whose text is that of an earlier one
    questions: tuple[Question, ...]
    gone: tuple[str, ...]  # files of the last time that are no longer there
    others: dict[str, int]  # endings that are no format of documents, and how many files
    notes: tuple[str, ...]
    next: str
    manifest: dict[str, Any]

    def __repr__(self) -> str:
        asked = plural(len(self.questions), "question")
        return f"<{plural(self.passages, 'passage')} and {asked} in {self.folder}>"

    def _shown(self) -> Table:
        states: tuple[State, ...] = ("read", "duplicate", "empty", "broken")
        columns = [Column("format", "text"), *(Column(state) for state in states)]
        columns += [Column("documents"), Column("passages")]
        rows: list[tuple[Cell, ...]] = []
        for name in dict.fromkeys(file.format for file in self.files):
            some = [file for file in self.files if file.format == name]
            count = Counter(file.state for file in some)
            sums = (sum(file.documents for file in some), sum(file.passages for file in some))
            rows.append((name, *(count[state] for state in states), *sums))
        return Table(columns, rows, notes=list(self.notes))

    def to_dict(self) -> dict[str, Any]:
        return {
            "manifest": self.manifest,
            "folder": str(self.folder),
            **told(self, "passages", "repeated"),
            "questions": len(self.questions),
            "generated": sum(q.model is not None for q in self.questions),
            **told(self, "gone", "others", "notes", "next"),
            "files": [asdict(file) | {"notes": list(file.notes)} for file in self.files],
        }


def init(
    folder: str | Path,
    out: str | Path | None = None,
    *,
    questions: str | Path | None = None,
    size: int | None = None,
    overlap: int | None = None,
    by: By | None = None,
    generate: int = 0,
    url: str | None = None,
    model: str | None = None,
    key_env: str | None = None,
    seed: int = 0,
    progress: Told = silent,
) -> Prepared:
    """Read a folder of documents and make a BEIR folder, questions and configurations of it.

    `out` is by default NAME-rankproof. `size`, `overlap` and `by` say how documents are cut; left
    out, as the last time, else 1200 characters, none of them twice, at headings. `url` and `model`
    name a chat endpoint: it judges, and with `generate` it writes so many questions.

    >>> from pathlib import Path
    >>> Path("notes").mkdir(exist_ok=True)
    >>> _ = Path("notes/pump.txt").write_text("A loud pump has air in it.")
    >>> rp.init("notes", "notes-set").passages
    1
    """
    source = check_folder(folder)
    place = _beside(source) if out is None else Path(out)
    before = _claimed(place, source)
    own = [] if questions is None else typed_questions(questions)
    if url is None and model is None and _judge_of(place).get("type") == "llm":
        url, model, key_env = (_judge_of(place).get(key) for key in ("url", "model", "key_env"))
    _check_endpoint(generate, url, model)
    cut = _cutting(before, size, overlap, by)
    read = _read(source, place, before, cut, progress)
    made = manifest(
        "documents",
        config={"chunks": cut, "generate": generate, "url": url, "model": model},
        inputs={} if questions is None else {"questions": questions},
        seed=seed,
        packages=("polars", "pypdfium2", "lxml"),
    )
    record: dict[str, Any] = {"manifest": made, "chunks": cut, "written": {}, "files": []}
    if not before:  # whoever is stopped from here on finds a folder that is ours
        write_lines(place / PROVENANCE, [json.dumps(record, indent=1)])
    _write_corpus(place, read)
    written = _configurations(place, before, len(read.rows), url, model, key_env)
    record |= {"written": written["digests"], "files": [asdict(file) for file in read.files]}
    write_lines(place / PROVENANCE, [json.dumps(record, indent=1, ensure_ascii=False)])
    asked, refused = _asked(place, read.rows, own, generate, url, model, key_env, seed, progress)
    notes = [*_file_notes(read), *refused, *written["kept"]]
    notes += [said for said in (caveat(asked),) if said]
    return Prepared(
        place, tuple(read.files), len(read.rows), read.repeated, tuple(asked), tuple(read.gone),
        read.others, tuple(notes), _next(place, source, asked, written["judge"]), made,
    )  # fmt: skip


# ------------------------------------------------------------------------------- what is asked


def _beside(source: Path) -> Path:
    """NAME-rankproof in this folder; beside the documents where this folder is one of theirs."""
    whole = source.resolve()
    name = f"{whole.name}-rankproof"
    return Path(os.path.relpath(whole.parent / name) if Path.cwd().is_relative_to(whole) else name)


def _claimed(place: Path, source: Path) -> dict[str, Any]:
    """What the last time left there; nothing where it is the first."""
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):
        if (source / name).is_file() and (source / "queries.jsonl").is_file():
            raise InputError(
                "this is a BEIR folder, not one of documents",
                place=str(source),
                remedy="golden, sweep and search read it as it is",
            )
    check_output(place / CORPUS, [source])
    for name in OURS:
        check_output(place / name)
    if not (place / PROVENANCE).is_file():
        claim_folder(place, (), "init")
        return {}
    try:
        before = json.loads(read_text(place / PROVENANCE))
        kind = before["manifest"]["kind"]
        files = {file["file"]: (file["sha256"], file["state"]) for file in before["files"]}
        return {"chunks": dict(before["chunks"]), "written": dict(before["written"]), "kind": kind,
                "files": files}  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            "not what init writes", place=str(place / PROVENANCE), remedy="name a new folder"
        ) from None


def _check_endpoint(generate: int, url: str | None, model: str | None) -> None:
    if (url is None) != (model is None):
        raise InputError(
            f"{'a url without a model' if model is None else 'a model without a url'}",
            remedy="name both: --url http://localhost:8000/v1 --model NAME",
        )
    if generate and url is None:
        raise InputError(
            "nobody is named who would write questions",
            remedy="name a chat endpoint: --url http://localhost:8000/v1 --model NAME",
        )
    if url is not None:
        register_address(url)
        judge = {"type": "llm", "url": url, "model": model}
        check_config({"corpus": ".", "judge": judge}, GoldenSettings, place="--url")


def _cutting(
    before: dict[str, Any], size: int | None, overlap: int | None, by: str | None
) -> dict[str, Any]:
    cut: dict[str, Any] = {"size": 1200, "overlap": 0, "by": "headings"} | before.get("chunks", {})
    given = {"size": size, "overlap": overlap, "by": by}
    cut |= {key: value for key, value in given.items() if value is not None}
    _chunking(cut, headings=True)
    return cut


def _chunking(cut: dict[str, Any], headings: bool) -> ChunkSettings:
    by = cut["by"]
    plain = {"size": cut["size"], "overlap": cut["overlap"], "headings": headings}
    plain |= {"by": "separators" if by == "headings" else by}
    if by != "headings":
        plain["headings"] = False
    return check_config(plain, ChunkSettings, place="chunks")


# --------------------------------------------------------------------------------- what is read


@dataclass(slots=True)
class _Reading:
    files: list[FileRead]
    rows: list[dict[str, Any]]
    gone: list[str]
    others: dict[str, int]
    repeated: int = 0
    texts: dict[str, dict[str, Any]] = field(default_factory=dict)  # of PDF and HTML, by digest


def _read(
    source: Path, place: Path, before: dict[str, Any], cut: dict[str, Any], progress: Told
) -> _Reading:
    """Every file of the folder, its passages, and what is wrong with it."""
    paths, others, unread = _walk(source)
    named = {path.relative_to(source).as_posix(): path for path in paths}
    passages: dict[str, list[dict[str, Any]]] = {}
    known: dict[str, tuple[str, State]] = before.get("files", {})
    texts = _kept_texts(place / TEXTS)
    found = _Reading([_compared(file, known) for file in unread], [], [], others)
    seen: dict[str, str] = {}  # digest of a document's text → the document that had it first
    ways = {headings: _chunking(cut, headings) for headings in (False, True)}
    with progress("documents", len(paths)) as advance:
        for name, path in sorted(named.items(), key=lambda n: (not _held(known, n[0]), n[0])):
            file, documents = _one(path, name, known, texts, found.texts)
            fresh: list[Document] = []
            again: list[str] = []  # where documents of this file stand already
            for document in documents:
                if not document.text.strip():
                    continue
                like = _likeness(document.text)
                if like in seen:
                    again.append(seen[like])
                else:
                    seen[like] = document.name
                    fresh.append(document)
            rows = [
                _row(document, span, file.file)
                for document in fresh
                for span in chunk(document.text, ways[document.headings])
            ]
            passages[name] = rows
            found.files.append(_counted(file, fresh, again, len(rows)))
            advance(1)
    found.files.sort(key=lambda file: file.file)
    found.rows = [row for name in named for row in passages[name]]
    if not found.rows:
        raise InputError(
            _nothing(found), place=str(source),
            remedy="put text, Markdown, HTML, PDF, JSONL or CSV files there",
        )  # fmt: skip
    found.gone = sorted(set(known) - {file.file for file in found.files})
    found.repeated = len(found.rows) - len({_likeness(row["text"]) for row in found.rows})
    return found


def _write_corpus(place: Path, read: _Reading) -> None:
    write_lines(place / CORPUS, (_line(row) for row in read.rows))
    if read.texts:
        write_lines(place / TEXTS, (_line(row) for row in read.texts.values()))
    else:
        (place / TEXTS).unlink(missing_ok=True)


def _held(known: dict[str, tuple[str, State]], name: str) -> bool:
    """Whether a file had passages the last time: it keeps them, and a copy of it gets none."""
    return known.get(name, ("", "broken"))[1] == "read"


def _counted(
    file: FileRead, fresh: Sequence[Document], again: Sequence[str], passages: int
) -> FileRead:
    """A file with what is new in it, and what stands elsewhere already."""
    file = replace(file, documents=len(fresh), passages=passages)
    if file.state == "broken" or (fresh and not again):
        return file
    if not fresh and not again:
        return replace(file, state="empty")
    rows = plural(len(again), "row is", "rows are")
    of = rows if fresh or len(again) > 1 else "it is"
    said = (*file.notes, f"{of} the same as {shorten(unquote(again[0]))}")
    return replace(file, state="read" if fresh else "duplicate", notes=said)


def _nothing(found: _Reading) -> str:
    wrong = next((file for file in found.files if file.state == "broken"), None)
    if wrong is None:
        outside = found.others.get(_OUTSIDE, 0)
        skipped = f" ({plural(outside, 'link')} out of it skipped)" if outside else ""
        return f"no document with text in this folder{skipped}"
    return f"no document could be read: {shorten(wrong.file)} {wrong.notes[0]}"


def _walk(source: Path) -> tuple[list[Path], dict[str, int], list[FileRead]]:
    """Documents by name, what else is there, and what cannot be read; hidden files are none.

    A link to a file outside is no document: whoever shares the corpus would share that file.
    """
    found, others = [], Counter[str]()
    unread = []
    root = source.resolve()

    def broken(path: Path, kind: str, why: str) -> None:
        name = printable_path(path.relative_to(source).as_posix())
        unread.append(FileRead(name, kind, "", 0, "broken", "new", notes=(why,)))

    def closed(error: OSError) -> None:
        broken(Path(error.filename), "folder", f"cannot be read ({error.strerror})")

    for folder, below, names in os.walk(source, onerror=closed):
        below[:] = sorted(name for name in below if not name.startswith("."))
        links = [name for name in below if (Path(folder) / name).is_symlink()]
        others[_LINKS] += len(links)  # which may lead anywhere
        for name in sorted(names):
            path = Path(folder) / name
            if name.startswith("."):
                continue
            if (kind := kind_of(path)) is None:
                others[path.suffix.lower() or "no ending"] += 1
            elif path.is_symlink() and path.is_file() and not path.resolve().is_relative_to(root):
                others[_OUTSIDE] += 1
            elif path.is_file():
                found.append(path)
            else:
                link = path.is_symlink()
                broken(path, kind, "is a link that leads nowhere" if link else "is not a file")
    ordered = sorted(found, key=lambda p: p.relative_to(source).as_posix())
    return ordered, {what: count for what, count in others.most_common() if count}, unread


def _one(
    path: Path,
    name: str,
    known: dict[str, tuple[str, State]],
    texts: dict[str, dict[str, Any]],
    kept: dict[str, dict[str, Any]],
) -> tuple[FileRead, list[Document]]:
    """A file and its documents; what was read from it before is taken where it did not change."""
    kind = kind_of(path) or ""
    shown = printable_path(name)
    try:
        sha, length = digest_file(path), path.stat().st_size
    except OSError as error:
        why = f"cannot be read ({error.strerror or error})"
        unread = FileRead(shown, kind, "", 0, "broken", "new", notes=(why,))
        return _compared(unread, known), []
    file = _compared(FileRead(shown, kind, sha, length, "read", "new"), known)
    try:
        held = texts.get(sha)
        if held is not None and held["version"] == __version__:
            contents = _restored(held, fit(shown))
        else:
            contents = read_file(path, shown)
    except Broken as error:
        return replace(file, state="broken", notes=(str(error),)), []
    if kind in _KEPT:
        kept[sha] = {"sha256": sha, "version": __version__, "notes": contents.notes}
        kept[sha]["documents"] = [asdict(document) for document in contents.documents]
    return replace(file, notes=tuple(contents.notes)), contents.documents


def _compared(file: FileRead, known: dict[str, tuple[str, State]]) -> FileRead:
    """A file with what changed since the last time."""
    if file.file not in known:
        return file
    return replace(file, change="same" if known[file.file][0] == file.sha256 else "changed")


def _kept_texts(path: Path) -> dict[str, dict[str, Any]]:
    """What was read from files before; a file of ours that is damaged is as good as none."""
    if not path.is_file():
        return {}
    with suppress(OSError, ValueError, KeyError, TypeError):
        with path.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        return {row["sha256"]: row for row in rows if {"version", "documents", "notes"} <= set(row)}
    return {}


def _restored(held: dict[str, Any], name: str) -> Contents:
    """What was read, under the name that the file has now."""
    documents = [
        Document(name, d["title"], d["text"], d["headings"], tuple(d["pages"]))
        for d in held["documents"]
    ]
    return Contents(documents, list(held["notes"]))


def _likeness(text: str) -> str:
    """The same for texts that differ in blanks, case and compatible characters alone."""
    plain = re.sub(r"\s+", " ", unicodedata.normalize("NFKC", text).casefold()).strip()
    return sha256(plain.encode("utf-8", "replace")).hexdigest()


def _row(document: Document, span: Span, file: str) -> dict[str, Any]:
    """A passage as BEIR has it, and where it comes from."""
    where: dict[str, Any] = {"source": file, "start": span.start, "end": span.end}
    if span.headings:
        where["headings"] = list(span.headings)
    if document.pages:
        first, last = (bisect_right(document.pages, at) for at in (span.start, span.end - 1))
        where["pages"] = [first, last]
    text = span.read(document.text)
    return {
        "_id": span.name(document.name), "title": document.title, "text": text, "metadata": where
    }  # fmt: skip


# ------------------------------------------------------------------------------------ questions


def _asked(
    place: Path,
    rows: Sequence[dict[str, Any]],
    own: list[Question],
    wanted: int,
    url: str | None,
    model: str | None,
    key_env: str | None,
    seed: int,
    progress: Told,
) -> tuple[list[Question], list[str]]:
    """Questions old and new; each that a model writes is on disk before the next is asked for."""
    path = place / QUERIES
    kept = kept_questions(path) if path.is_file() else []
    earlier = own or [q for q in kept if q.model is None]
    made = [q for q in kept if q.model is not None]
    asked = [*earlier, *made]
    refused: Counter[str] = Counter()
    if own:
        write_lines(path, (_line(q.row()) for q in asked))
    if wanted:
        passages = [(row["_id"], row["text"]) for row in rows]
        chat = Chat(str(model), url, key_env, temperature=0.0, max_tokens=1024)
        try:
            with progress("questions", max(0, wanted - len(made))) as advance:
                for question, why in write_questions(passages, wanted, chat, asked, seed):
                    if question is None:
                        refused[why] += 1
                        continue
                    asked.append(question)
                    write_lines(path, (_line(q.row()) for q in asked))
                    advance(1)
        finally:
            chat.close()
    said = [
        f"{plural(count, 'generated question')} refused: {why}" for why, count in refused.items()
    ]
    short = wanted - sum(q.model is not None for q in asked)
    if short > 0:
        missing = out_of(short, wanted, "question", "is", "are")
        said.append(f"{missing} missing: run it again for other passages")
    return asked, said


# ------------------------------------------------------------------------------- configurations


def _configurations(
    place: Path,
    before: dict[str, Any],
    passages: int,
    url: str | None,
    model: str | None,
    key_env: str | None,
) -> dict[str, Any]:
    """Write those that are not the user's own by now; all are valid, or it is said."""
    written: dict[str, str] = before.get("written", {})
    kept = []
    texts: dict[str, Callable[[], str]] = {
        GOLDEN: lambda: golden_yaml(url, model, key_env),
        SWEEP: lambda: sweep_yaml(passages, _judge_of(place).get("type")),
    }
    digests = {}
    for name, text in texts.items():
        path = place / name
        ours = text().rstrip("\n")
        own = path.is_file() and digest_file(path) != written.get(name)
        if own and read_text(path) != f"{ours}\n":
            digests[name] = written.get(name, "")
            kept.append(f"{name} was changed since and stays as it is")
            continue
        write_lines(path, [ours])
        digests[name] = digest_file(path)
    judge = _judge_of(place).get("type")
    if judge is not None:
        read_config(place / GOLDEN, GoldenSettings)
    read_config(place / SWEEP, SweepSettings)
    return {"digests": digests, "kept": kept, "judge": judge}


def _judge_of(place: Path) -> dict[str, Any]:
    """The judge that golden.yaml names, as it stands there."""
    if (place / GOLDEN).is_file():
        judge = read_keys(place / GOLDEN).get("judge")
        return judge if isinstance(judge, dict) else {}
    return {}


def _next(place: Path, source: Path, asked: Sequence[Question], judge: str | None) -> str:
    """The command to type next."""
    here, there = typed(source), typed(place)
    if not asked:
        return f"rankproof init {here} --out {there} --questions questions.txt"
    if judge is None:
        return f"rankproof init {here} --out {there} --url http://localhost:8000/v1 --model NAME"
    return f"rankproof choose {there}"


# ---------------------------------------------------------------------------------------- words


def _file_notes(read: _Reading) -> list[str]:
    """What is worth knowing of single files."""
    notes = [
        f"{file.file}: {', '.join(file.notes) or file.state}"
        for file in read.files
        if file.notes or file.state != "read"
    ]
    if len(notes) > _LISTED:
        notes = [*notes[:_LISTED], f"and {len(notes) - _LISTED} more, in {PROVENANCE}"]
    listed = [
        plural(count, "link to a folder" if what == _LINKS else what, what)
        for what, count in read.others.items()
        if what != _OUTSIDE
    ]
    if outside := read.others.get(_OUTSIDE):
        lead = "link that leads", "links that lead"
        notes.append(f"skipped {plural(outside, *lead)} out of the folder: copy the files into it")
    if listed:
        notes.append(f"passed over, of no format that is read: {', '.join(listed)}")
    if read.repeated:
        repeat = plural(read.repeated, "passage repeats", "passages repeat")
        notes.append(f"{repeat} another word for word")
    return notes


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)
