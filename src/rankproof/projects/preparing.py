"""Turn a folder of documents into a folder that golden sets and sweeps are made from.

    corpus.jsonl      passages: id `file#start-end`, title, text, file, span, headings, pages
    queries.jsonl     questions, typed or generated
    groups.tsv        query and file of generated questions, for --groups
    texts.jsonl       text extracted from PDF and HTML, in which spans count
    provenance.json   every file: its digest, what became of it, and how the folder was made
    golden.yaml, sweep.yaml   starting points; yours once you change them

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
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple
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
from rankproof.foundation.progress import advance, progress
from rankproof.foundation.redaction import register_address
from rankproof.foundation.version import __version__
from rankproof.golden.settings import GoldenSettings
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.projects.questions import (
    Question,
    question_caveat,
    read_questions,
    read_typed_questions,
    write_questions,
)
from rankproof.projects.reading import Broken, Contents, Document, format_of, make_id, read_file
from rankproof.projects.starters import golden_yaml, sweep_yaml
from rankproof.retrieval.chat import Chat
from rankproof.retrieval.chunks import ChunkSettings, Span, chunk
from rankproof.tradeoffs.plan import SweepSettings

CORPUS, QUERIES, TEXTS = "corpus.jsonl", "queries.jsonl", "texts.jsonl"
GROUPS, PROVENANCE = "groups.tsv", "provenance.json"
GOLDEN, SWEEP = "golden.yaml", "sweep.yaml"
OWN_FILES = (CORPUS, QUERIES, TEXTS, GROUPS, PROVENANCE, GOLDEN, SWEEP)
_EXTRACTED = ("PDF", "HTML")  # formats whose text is stored: extracting is slow, spans need it
_MAX_FILE_NOTES = 20  # that are listed
_FOLDER_LINKS = "links to folders"
_LINKS_OUTSIDE = "links out of the folder"

By = Literal["headings", "separators", "sentences"]
State = Literal["read", "duplicate", "empty", "broken"]
Known = dict[str, tuple[str, State]]  # files of the last run: digest and state


@dataclass(frozen=True, slots=True)
class FileRead:
    """The outcome of reading one file."""

    file: str
    format: str
    sha256: str = ""  # "" if its bytes cannot be read
    size: int = 0
    state: State = "read"
    change: Literal["new", "changed", "same"] = "new"  # since the last run
    documents: int = 0
    passages: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared(Displayed):
    """A folder that golden sets and sweeps are made from, and what was read into it.

    >>> from pathlib import Path
    >>> Path("texts").mkdir(exist_ok=True)
    >>> _ = Path("texts/fan.txt").write_text("The fan turns to the left.")
    >>> prepared = rp.init("texts", "texts-set")
    >>> prepared.passages, prepared.files[0].state
    (1, 'read')
    """

    folder: Path
    files: tuple[FileRead, ...]
    passages: int
    repeated: int  # passages whose text is that of an earlier one
    questions: tuple[Question, ...]
    gone: tuple[str, ...]  # files of the last run that are no longer there
    others: dict[str, int]  # files of unknown formats, by suffix
    notes: tuple[str, ...]
    next: str  # the command to type next
    manifest: dict[str, Any]

    def __repr__(self) -> str:
        questions = plural(len(self.questions), "question")
        return f"<{plural(self.passages, 'passage')} and {questions} in {self.folder}>"

    kind: ClassVar[str] = "documents"

    def summary(self) -> Summary:
        """How much was read, what changed since the last run, and the command to type next."""
        changes = Counter(file.change for file in self.files)
        passages = plural(self.passages, "passage")
        questions = plural(len(self.questions), "question")
        answer = f"{passages} and {questions} in {self.folder}."
        if changes["changed"] or changes["same"] or self.gone:
            answer += (
                f" Files: {changes['new']} new, {changes['changed']} changed, {len(self.gone)} "
                f"gone, {changes['same']} unchanged."
            )
        return Summary.of(answer, self.notes, next_step=self.next)

    def figures(self) -> dict[str, float]:
        """Counts of passages and questions."""
        return {"passages": float(self.passages), "questions": float(len(self.questions))}

    def tables(self) -> list[Table]:
        """A row for each format of documents."""
        states: tuple[State, ...] = ("read", "duplicate", "empty", "broken")
        columns = [Column("format", "text"), *(Column(state) for state in states)]
        columns += [Column("documents"), Column("passages")]
        rows: list[tuple[Cell, ...]] = []
        for name in dict.fromkeys(file.format for file in self.files):
            files = [file for file in self.files if file.format == name]
            count = Counter(file.state for file in files)
            sums = (sum(file.documents for file in files), sum(file.passages for file in files))
            rows.append((name, *(count[state] for state in states), *sums))
        return [Table(columns, rows)]

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof init --format json` prints."""
        return {
            "manifest": self.manifest,
            "folder": str(self.folder),
            **plain_fields(self, "passages", "repeated"),
            "questions": len(self.questions),
            "generated": sum(q.model is not None for q in self.questions),
            **plain_fields(self, "gone", "others", "notes", "next"),
            "files": [asdict(file) | {"notes": list(file.notes)} for file in self.files],
        }


class _Endpoint(NamedTuple):
    """A chat endpoint that judges, and may write questions."""

    url: str | None
    model: str | None
    key_env: str | None


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
) -> Prepared:
    """Read a folder of documents and make a BEIR folder, questions and configurations of it.

    `out` is by default NAME-rankproof. `size`, `overlap` and `by` say how documents are chunked: by
    default as in the last run, else 1200 characters without overlap, at headings. `url` and `model`
    name a chat endpoint: it judges, and with `generate` it writes so many questions.

    >>> from pathlib import Path
    >>> Path("notes").mkdir(exist_ok=True)
    >>> _ = Path("notes/pump.txt").write_text("A loud pump has air in it.")
    >>> rp.init("notes", "notes-set").passages
    1
    """
    source = check_folder(folder)
    place = _default_folder(source) if out is None else Path(out)
    last_run = _last_run(place, source)
    new_typed = [] if questions is None else read_typed_questions(questions)
    endpoint = _choose_endpoint(place, _Endpoint(url, model, key_env), generate)
    chunking = _choose_chunking(last_run, size, overlap, by)
    corpus = _read_corpus(source, place, last_run, chunking)
    config = {"chunks": chunking, "generate": generate}
    run_manifest = manifest(
        "documents",
        config=config | {"url": endpoint.url, "model": endpoint.model},
        inputs={} if questions is None else {"questions": questions},
        seed=seed,
        packages=("polars", "pypdfium2", "lxml"),
    )
    record: dict[str, Any] = {
        "manifest": run_manifest,
        "chunks": chunking,
        "written": {},
        "files": [],
    }
    if not last_run:  # an interruption from here on leaves a folder that is recognized as init's
        write_lines(place / PROVENANCE, [json.dumps(record, indent=1)])
    _write_corpus(place, corpus)
    digests, config_notes = _write_configurations(place, last_run, len(corpus.rows), endpoint)
    record |= {"written": digests, "files": [asdict(file) for file in corpus.files]}
    write_lines(place / PROVENANCE, [json.dumps(record, indent=1, ensure_ascii=False)])
    all_questions, question_notes = _collect_questions(
        place,
        corpus.rows,
        new_typed=new_typed,
        target_count=generate,
        endpoint=endpoint,
        seed=seed,
    )
    _write_groups(place, all_questions)
    notes = [*_file_notes(corpus), *question_notes, *config_notes]
    notes += filter(None, [question_caveat(all_questions)])
    return Prepared(
        folder=place,
        files=tuple(corpus.files),
        passages=len(corpus.rows),
        repeated=corpus.repeated,
        questions=tuple(all_questions),
        gone=tuple(corpus.gone),
        others=corpus.others,
        notes=tuple(notes),
        next=_next_command(place, source, bool(all_questions)),
        manifest=run_manifest,
    )


# ----------------------------------------------------------------------------------- arguments


def _default_folder(source: Path) -> Path:
    """Return NAME-rankproof here; beside the documents if this folder is one of theirs."""
    resolved = source.resolve()
    name = f"{resolved.name}-rankproof"
    if Path.cwd().is_relative_to(resolved):
        return Path(os.path.relpath(resolved.parent / name))
    return Path(name)


def _last_run(place: Path, source: Path) -> dict[str, Any]:
    """Check that the folder may be written; return what the last run left there, {} if none."""
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):
        if (source / name).is_file() and (source / "queries.jsonl").is_file():
            raise InputError(
                "this is a BEIR folder, not one of documents",
                place=str(source),
                remedy="golden, sweep and search read it as it is",
            )
    check_output(place / CORPUS, [source])
    for name in OWN_FILES:
        check_output(place / name)
    if not (place / PROVENANCE).is_file():
        claim_folder(place, (), "init")
        return {}
    try:
        record = json.loads(read_text(place / PROVENANCE))
        return {
            "chunks": dict(record["chunks"]),
            "written": dict(record["written"]),
            "kind": record["manifest"]["kind"],
            "files": {file["file"]: (file["sha256"], file["state"]) for file in record["files"]},
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            "not what init writes", place=str(place / PROVENANCE), remedy="name a new folder"
        ) from None


def _choose_endpoint(place: Path, endpoint: _Endpoint, generate: int) -> _Endpoint:
    """Return the endpoint of the arguments, else the judge of the last run.

    Raise InputError unless url and model come together, and questions have a writer.
    """
    if endpoint.url is None and endpoint.model is None and _judge_of(place).get("type") == "llm":
        endpoint = _Endpoint(*(_judge_of(place).get(key) for key in _Endpoint._fields))
    url, model, _ = endpoint
    if (url is None) != (model is None):
        raise InputError(
            "a url without a model" if model is None else "a model without a url",
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
    return endpoint


def _choose_chunking(
    last_run: dict[str, Any], size: int | None, overlap: int | None, by: str | None
) -> dict[str, Any]:
    """Return the arguments, completed by the last run's chunking or the default."""
    chosen: dict[str, Any] = {"size": 1200, "overlap": 0, "by": "headings"}
    chosen |= last_run.get("chunks", {})
    arguments = {"size": size, "overlap": overlap, "by": by}
    chosen |= {key: value for key, value in arguments.items() if value is not None}
    _chunk_settings(chosen, headings=True)
    return chosen


def _chunk_settings(chosen: dict[str, Any], headings: bool) -> ChunkSettings:
    """Return the settings for documents with or without headings."""
    at_headings = chosen["by"] == "headings"
    settings = {
        "size": chosen["size"],
        "overlap": chosen["overlap"],
        "headings": headings and at_headings,
        "by": "separators" if at_headings else chosen["by"],
    }
    return check_config(settings, ChunkSettings, place="chunks")


# ------------------------------------------------------------------------------------ documents


@dataclass(slots=True)
class _Corpus:
    """All files of the folder, and the passages of those that are new."""

    files: list[FileRead]
    others: dict[str, int]  # files of unknown formats, and skipped links
    rows: list[dict[str, Any]] = field(default_factory=list)  # passages as BEIR has them
    gone: list[str] = field(default_factory=list)
    repeated: int = 0
    texts: dict[str, dict[str, Any]] = field(default_factory=dict)  # extracted, by digest of file


def _read_corpus(
    source: Path, place: Path, last_run: dict[str, Any], chunking: dict[str, Any]
) -> _Corpus:
    """Read every file of the folder, and cut its documents into passages.

    Of documents with the same text only the first counts. Files that had passages in the last run
    come first, so that they keep them when a copy is added.
    """
    paths, others, unreadable = _walk(source)
    known: Known = last_run.get("files", {})
    corpus = _Corpus([_with_change(file, known) for file in unreadable], others)
    by_name = {path.relative_to(source).as_posix(): path for path in paths}
    passages: dict[str, list[dict[str, Any]]] = {}
    stored_texts = _read_stored_texts(place / TEXTS)
    settings = {headings: _chunk_settings(chunking, headings) for headings in (False, True)}
    name_by_text: dict[str, str] = {}  # digest of a text → the first document that has it
    with progress("documents", len(paths)):
        for name in sorted(by_name, key=lambda n: (known.get(n, ("", "broken"))[1] != "read", n)):
            file, documents = _read_documents(by_name[name], name, known, stored_texts, corpus)
            new: list[Document] = []
            originals: list[str] = []  # of the documents that appeared before
            for document in documents:
                if not document.text.strip():
                    continue
                digest = _text_digest(document.text)
                if digest in name_by_text:
                    originals.append(name_by_text[digest])
                else:
                    name_by_text[digest] = document.name
                    new.append(document)
            passages[name] = [
                _passage_row(document, span, file.file)
                for document in new
                for span in chunk(document.text, settings[document.headings])
            ]
            corpus.files.append(_with_counts(file, len(new), originals, len(passages[name])))
            advance()
    corpus.files.sort(key=lambda file: file.file)
    corpus.rows = [row for name in by_name for row in passages[name]]
    if not corpus.rows:
        remedy = "put text, Markdown, HTML, PDF, JSONL or CSV files there"
        raise InputError(_explain_empty(corpus), place=str(source), remedy=remedy)
    corpus.gone = sorted(set(known) - {file.file for file in corpus.files})
    corpus.repeated = len(corpus.rows) - len({_text_digest(row["text"]) for row in corpus.rows})
    return corpus


def _write_corpus(place: Path, corpus: _Corpus) -> None:
    write_lines(place / CORPUS, map(_to_json, corpus.rows))
    if corpus.texts:
        write_lines(place / TEXTS, map(_to_json, corpus.texts.values()))
    else:
        (place / TEXTS).unlink(missing_ok=True)


def _with_counts(file: FileRead, new: int, originals: Sequence[str], passages: int) -> FileRead:
    """Return a file with its counts and state; `originals` are documents that it repeats."""
    file = replace(file, documents=new, passages=passages)
    if file.state == "broken" or (new and not originals):
        return file
    if not new and not originals:
        return replace(file, state="empty")
    rows = plural(len(originals), "row is", "rows are")
    subject = rows if new or len(originals) > 1 else "it is"
    note = f"{subject} the same as {shorten(unquote(originals[0]))}"
    return replace(file, state="read" if new else "duplicate", notes=(*file.notes, note))


def _explain_empty(corpus: _Corpus) -> str:
    """Say why there is no passage at all."""
    broken = next((file for file in corpus.files if file.state == "broken"), None)
    if broken is None:
        outside = corpus.others.get(_LINKS_OUTSIDE, 0)
        skipped = f" ({plural(outside, 'link')} out of it skipped)" if outside else ""
        return f"no document with text in this folder{skipped}"
    return f"no document could be read: {shorten(broken.file)} {broken.notes[0]}"


def _walk(source: Path) -> tuple[list[Path], dict[str, int], list[FileRead]]:
    """Return the documents by name, counts of other files, and what cannot be read.

    Hidden files are skipped, and links to files outside: sharing the corpus would share them.
    """
    documents, skipped = [], Counter[str]()
    unreadable = []
    root = source.resolve()

    def add_unreadable(path: Path, kind: str, reason: str) -> None:
        name = printable_path(path.relative_to(source).as_posix())
        unreadable.append(FileRead(name, kind, state="broken", notes=(reason,)))

    def add_closed_folder(error: OSError) -> None:
        add_unreadable(Path(error.filename), "folder", f"cannot be read ({error.strerror})")

    for folder, subfolders, names in os.walk(source, onerror=add_closed_folder):
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        skipped[_FOLDER_LINKS] += sum((Path(folder) / name).is_symlink() for name in subfolders)
        for name in sorted(names):
            path = Path(folder) / name
            if name.startswith("."):
                continue
            if (kind := format_of(path)) is None:
                skipped[path.suffix.lower() or "no ending"] += 1
            elif path.is_symlink() and path.is_file() and not path.resolve().is_relative_to(root):
                skipped[_LINKS_OUTSIDE] += 1
            elif path.is_file():
                documents.append(path)
            else:
                is_link = path.is_symlink()
                reason = "is a link that leads nowhere" if is_link else "is not a file"
                add_unreadable(path, kind, reason)
    ordered = sorted(documents, key=lambda p: p.relative_to(source).as_posix())
    return ordered, {what: count for what, count in skipped.most_common() if count}, unreadable


def _read_documents(
    path: Path, name: str, known: Known, stored_texts: dict[str, dict[str, Any]], corpus: _Corpus
) -> tuple[FileRead, list[Document]]:
    """Return a file and its documents; extracted text is added to the corpus.

    Text that was extracted from the same bytes before is not extracted again.
    """
    kind = format_of(path) or ""
    label = printable_path(name)
    try:
        sha, length = digest_file(path), path.stat().st_size
    except OSError as error:
        reason = f"cannot be read ({error.strerror or error})"
        broken = FileRead(label, kind, state="broken", notes=(reason,))
        return _with_change(broken, known), []
    file = _with_change(FileRead(label, kind, sha, length), known)
    try:
        stored = stored_texts.get(sha)
        if stored is not None and stored["version"] == __version__:
            contents = _restore_contents(stored, make_id(label))
        else:
            contents = read_file(path, label)
    except Broken as error:
        return replace(file, state="broken", notes=(str(error),)), []
    if kind in _EXTRACTED:
        corpus.texts[sha] = {
            "sha256": sha,
            "version": __version__,
            "notes": contents.notes,
            "documents": [asdict(document) for document in contents.documents],
        }
    return replace(file, notes=tuple(contents.notes)), contents.documents


def _with_change(file: FileRead, known: Known) -> FileRead:
    """Return a file with whether it changed since the last run."""
    if file.file not in known:
        return file
    return replace(file, change="same" if known[file.file][0] == file.sha256 else "changed")


def _read_stored_texts(path: Path) -> dict[str, dict[str, Any]]:
    """Return the texts that the last run extracted, by digest; {} if absent or damaged."""
    if not path.is_file():
        return {}
    with suppress(OSError, ValueError, KeyError, TypeError):
        with path.open(encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        return {row["sha256"]: row for row in rows if {"version", "documents", "notes"} <= set(row)}
    return {}


def _restore_contents(stored: dict[str, Any], name: str) -> Contents:
    """Return what was extracted before, under the name that the file has now."""
    documents = [
        Document(name, d["title"], d["text"], d["headings"], tuple(d["pages"]))
        for d in stored["documents"]
    ]
    return Contents(documents, list(stored["notes"]))


def _text_digest(text: str) -> str:
    """Return a digest that ignores whitespace, case and compatibility characters."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return sha256(re.sub(r"\s+", " ", folded).strip().encode("utf-8", "replace")).hexdigest()


def _passage_row(document: Document, span: Span, file: str) -> dict[str, Any]:
    """Return a passage as BEIR has it, with its place in the file as metadata."""
    metadata: dict[str, Any] = {"source": file, "start": span.start, "end": span.end}
    if span.headings:
        metadata["headings"] = list(span.headings)
    if document.pages:
        ends = (span.start, span.end - 1)
        metadata["pages"] = [bisect_right(document.pages, at) for at in ends]
    return {
        "_id": span.name(document.name),
        "title": document.title,
        "text": span.read(document.text),
        "metadata": metadata,
    }


# ------------------------------------------------------------------------------------ questions


def _collect_questions(
    place: Path,
    rows: Sequence[dict[str, Any]],
    *,
    new_typed: list[Question],
    target_count: int,
    endpoint: _Endpoint,
    seed: int,
) -> tuple[list[Question], list[str]]:
    """Return the questions, typed then generated, and notes; each is stored before the next.

    `new_typed`, if there are any, replace the typed questions of the last run. `target_count` is
    the number of generated questions in the end, those of earlier runs included.
    """
    path = place / QUERIES
    stored = read_questions(path) if path.is_file() else []
    generated = [q for q in stored if q.model is not None]
    questions = [*(new_typed or [q for q in stored if q.model is None]), *generated]
    if new_typed:
        write_lines(path, (_to_json(q.row()) for q in questions))
    refusals: Counter[str] = Counter()
    if target_count:
        passages = [(row["_id"], row["text"]) for row in rows]
        model, url, key_env = str(endpoint.model), endpoint.url, endpoint.key_env
        with (
            closing(Chat(model, url, key_env, temperature=0.0, max_tokens=1024)) as chat,
            progress("questions", max(0, target_count - len(generated))),
        ):
            for question, reason in write_questions(
                passages, chat, existing=questions, target_count=target_count, seed=seed
            ):
                if question is None:
                    refusals[reason] += 1
                    continue
                questions.append(question)
                write_lines(path, (_to_json(q.row()) for q in questions))
                advance()
    notes = [
        f"{plural(count, 'generated question')} refused: {reason}"
        for reason, count in refusals.items()
    ]
    missing = target_count - sum(q.model is not None for q in questions)
    if missing > 0:
        are = out_of(missing, target_count, "question", "is", "are")
        notes.append(f"{are} missing: run it again for other passages")
    return questions, notes


def _write_groups(place: Path, questions: Sequence[Question]) -> None:
    """Write which generated questions are of one file (`--groups`); typed ones are of none."""
    files = {q.name: q.passage.rpartition("#")[0] for q in questions if q.passage}
    if files:
        rows = (f"{name}\t{file}" for name, file in files.items())
        write_lines(place / GROUPS, ["query\tgroup", *rows])


# ------------------------------------------------------------------------------- configurations


def _write_configurations(
    place: Path, last_run: dict[str, Any], passages: int, endpoint: _Endpoint
) -> tuple[dict[str, str], list[str]]:
    """Write the YAML files that the user has not changed; return their digests, and notes."""
    last_digests: dict[str, str] = last_run.get("written", {})
    templates: dict[str, Callable[[], str]] = {
        GOLDEN: lambda: golden_yaml(*endpoint),
        SWEEP: lambda: sweep_yaml(passages, _judge_of(place).get("type")),
    }
    digests, notes = {}, []
    for name, template in templates.items():
        path, text = place / name, template().rstrip("\n")
        is_changed = path.is_file() and digest_file(path) != last_digests.get(name)
        if is_changed and read_text(path) != f"{text}\n":
            digests[name] = last_digests.get(name, "")
            notes.append(f"{name} was changed since and stays as it is")
            continue
        write_lines(path, [text])
        digests[name] = digest_file(path)
    if _judge_of(place).get("type") is not None:
        read_config(place / GOLDEN, GoldenSettings)
    read_config(place / SWEEP, SweepSettings)
    return digests, notes


def _judge_of(place: Path) -> dict[str, Any]:
    """Return the judge that golden.yaml names, {} if none."""
    if (place / GOLDEN).is_file():
        judge = read_keys(place / GOLDEN).get("judge")
        return judge if isinstance(judge, dict) else {}
    return {}


def _next_command(place: Path, source: Path, has_questions: bool) -> str:
    documents, out = typed(source), typed(place)
    if not has_questions:
        return f"rankproof init {documents} --out {out} --questions questions.txt"
    if _judge_of(place).get("type") is None:
        url = "http://localhost:8000/v1"
        return f"rankproof init {documents} --out {out} --url {url} --model NAME"
    return f"rankproof choose {out}"


# ---------------------------------------------------------------------------------------- notes


def _file_notes(corpus: _Corpus) -> list[str]:
    """Return notes on single files, on skipped ones, and on repeated passages."""
    notes = [
        f"{file.file}: {', '.join(file.notes) or file.state}"
        for file in corpus.files
        if file.notes or file.state != "read"
    ]
    if len(notes) > _MAX_FILE_NOTES:
        notes = [
            *notes[:_MAX_FILE_NOTES],
            f"and {len(notes) - _MAX_FILE_NOTES} more, in {PROVENANCE}",
        ]
    unknown = [
        plural(count, "link to a folder" if what == _FOLDER_LINKS else what, what)
        for what, count in corpus.others.items()
        if what != _LINKS_OUTSIDE
    ]
    if outside := corpus.others.get(_LINKS_OUTSIDE):
        links = plural(outside, "link that leads", "links that lead")
        notes.append(f"skipped {links} out of the folder: copy the files into it")
    if unknown:
        notes.append(f"skipped, of no known format: {', '.join(unknown)}")
    if corpus.repeated:
        repeats = plural(corpus.repeated, "passage repeats", "passages repeat")
        notes.append(f"{repeats} another word for word")
    return notes


def _to_json(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False)
