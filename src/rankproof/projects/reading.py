"""Files of several formats → documents: a title, a text, and where its pages begin.

Headings are written as Markdown's (`## Title`), whatever the format. A file that cannot be read
raises `Broken` with the reason in a few words; whoever reads a folder reports it and goes on.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rankproof.foundation.errors import shorten
from rankproof.foundation.files import read_csv_rows, read_json_lines
from rankproof.retrieval.chunks import parse_heading

_TEXT_KEYS = ("text", "content", "body", "passage", "contents")
_ID_KEYS = ("_id", "id", "doc_id")
_FEW = 3  # notes of one kind that are shown
_UNFIT = re.compile(r"[\s%\x00-\x1f\x7f]")  # of an id: a TREC file parts its columns by blanks
_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_MATTER = re.compile(r"\A---\n(.*?)^---\s*$", re.S | re.M)
_NAMED = re.compile(r"^title:\s*[\"']?(.*)", re.M)


class Broken(Exception):
    """A file that cannot be read, and why."""


@dataclass(frozen=True, slots=True)
class Document:
    """What is cut into passages."""

    name: str
    title: str
    text: str
    headings: bool = False  # whether its headings are written as Markdown's
    pages: tuple[int, ...] = ()  # where each begins in the text


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds, and what is to be said of it."""

    documents: list[Document]
    notes: list[str] = field(default_factory=list)


def read_file(path: Path, name: str) -> Contents:
    """The documents of a file; `name` is what it is called in its folder."""
    data = _bytes(path)
    if not data.strip():
        return Contents([])
    stem = _clean(" ".join(re.split(r"[\s_-]+", path.stem)).strip())
    return FORMATS[path.suffix.lower()][1](data, fit(name), stem)


def kind_of(path: Path) -> str | None:
    """The format that a file's ending says; None where it is no format of documents."""
    found = FORMATS.get(path.suffix.lower())
    return None if found is None else found[0]


def fit(name: str) -> str:
    """A name as an id that stands in any file of runs and judgements."""
    return _UNFIT.sub(lambda match: quote(match[0]), name)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Broken(f"cannot be read ({error.strerror or error})") from None


def _decoded(data: bytes, said: str | None = None) -> tuple[str, list[str]]:
    """Text in the encoding that it is found to be in, else in the one that it `said`, and a note
    where that was a guess."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return _clean(data.decode("utf-16")), []
        except UnicodeDecodeError:
            raise Broken("is not UTF-16, as its first bytes say") from None
    if b"\x00" in data:
        raise Broken("is not text: it holds NUL bytes")
    try:
        return data.decode("utf-8-sig"), []
    except UnicodeDecodeError:
        pass
    if said is not None and (codec := _codec(said, data)) is not None:
        text = data.decode(codec, "replace")
        return text, [f"some of it is not {said}, as it says"] if "\ufffd" in text else []
    try:
        return data.decode("cp1252"), ["not UTF-8; read as Windows-1252"]
    except UnicodeDecodeError:
        raise Broken("is neither UTF-8 nor Windows-1252; save it as UTF-8") from None


# Encodings that browsers take for larger ones.
_LARGER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
# Text encodings of Python that are no character sets.
_NOT_CHARACTER_SETS = {"charmap", "idna", "punycode", "undefined"}
_NOT_CHARACTER_SETS |= {"raw-unicode-escape", "unicode-escape"}
_DECLARATION = b"charset"  # it was found as ASCII, which the page's encoding therefore keeps


def _codec(said: str, data: bytes) -> str | None:
    """Python's name of an encoding, as browsers take it; None where it cannot be the one."""
    try:
        name = codecs.lookup(said).name
        if name in _NOT_CHARACTER_SETS:
            return None
        is_ascii_kept = _DECLARATION.decode(name, "replace") == _DECLARATION.decode()
    except (LookupError, ValueError):  # unknown, or not an encoding of text
        return None
    if name.startswith("utf"):  # which was tried: some bytes are wrong, or it is another
        signs = [sign for sign in data.decode("utf-8", "replace") if sign > "\x7f"]
        return "utf-8" if 2 * signs.count("\ufffd") < len(signs) else None
    return _LARGER.get(name, name) if is_ascii_kept else None


def _clean(text: str) -> str:
    """Without what no file of ours may hold: NUL, and halves of surrogate pairs."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


# ------------------------------------------------------------------------- text and Markdown


def _text(data: bytes, name: str, stem: str) -> Contents:
    text, notes = _decoded(data)
    return Contents([Document(name, stem, text)], notes)


def _markdown(data: bytes, name: str, stem: str) -> Contents:
    text, notes = _decoded(data)
    title = _markdown_title(text) or stem
    # What stands before the text is about it, and none of it; spans go on counting in the file.
    text = _MATTER.sub(lambda matter: re.sub(r"[^\n]", " ", matter[0]), text)
    return Contents([Document(name, title, text, headings=True)], notes)


def _markdown_title(text: str) -> str | None:
    matter = _MATTER.match(text)
    if matter and (named := _NAMED.search(matter[1])):
        title = named[1].rstrip()  # not by the pattern, which would try at each blank
        return title[:-1] if title.endswith(('"', "'")) else title
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (found := parse_heading(line)) and found[0] == 1:
            return found[1]
    return None


# ------------------------------------------------------------------------------------- HTML

_LEFT_OUT = {
    *("script", "style", "noscript", "template", "head", "nav", "svg", "iframe", "button"),
    *("select", "dialog"),
}
_AROUND = {"header", "footer", "aside"}  # of the page, where they stand outside its text
_TEXT = {"main", "article", "section", "blockquote"}
_ROLES = {"navigation", "banner", "contentinfo", "complementary", "search", "dialog"}
_INLINE = {
    *("a", "abbr", "b", "bdi", "bdo", "cite", "code", "del", "dfn", "em", "font", "i", "ins"),
    *("kbd", "label", "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time"),
    *("tt", "u", "var", "wbr"),
}
_APART = {"br", "td", "th", "img"}  # words on both sides stay apart, in one block


_HEAD = 4096  # bytes in which a page says how it is encoded
_ENCODING = re.compile(
    rb"""(?:<\?xml\s[^>]*?\bencoding|<meta\s[^>]*?\bcharset)\s*=\s*["']?\s*([\w.:-]+)""",
    re.IGNORECASE,
)


def _html(data: bytes, name: str, stem: str) -> Contents:
    html, etree = _needed("lxml.html", "HTML"), _needed("lxml.etree", "HTML")
    found = _ENCODING.search(data[:_HEAD])
    page, guessed = _decoded(data, None if found is None else found[1].decode("ascii"))
    parser = html.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    try:
        root = html.document_fromstring(page.encode(), parser=parser)
    except (etree.LxmlError, ValueError) as error:
        if "empty" in str(error).lower():
            return Contents([])
        raise Broken(f"is not HTML ({_first_line(error)})") from None
    said = [node.text_content() for node in (*root.iter("title"), *root.iter("h1"))]
    title = next((t for t in (" ".join(text.split()) for text in said) if t), stem)
    text = "\n\n".join(_blocks(root, etree, _around)) or "\n\n".join(_blocks(root, etree))
    # Where the parser gives up it says so here alone, and the rest of the page is not there.
    notes = [
        f"not read past line {error.line} ({_first_line(error.message).partition(', use')[0]})"
        for error in parser.error_log
        if error.level == etree.ErrorLevels.FATAL
    ]
    return Contents(
        [Document(name, _clean(title), _clean(text), headings=True)], [*guessed, *notes[:1]]
    )


def _blocks(
    root: Any, etree: Any, skipped: Callable[[Any], bool] = lambda node: False
) -> Iterator[str]:
    """Paragraphs, headings and list items; code stays as it is, between fences."""
    held: list[str] = []

    def block(before: str = "") -> Iterator[str]:
        words = " ".join("".join(held).split())
        held.clear()
        if words:
            yield before + words

    walk = etree.iterwalk(root, events=("start", "end"))
    for event, node in walk:
        tag = node.tag
        if event == "start":
            if tag in _LEFT_OUT or skipped(node):
                walk.skip_subtree()
                continue
            if tag == "pre":
                yield from block()
                code = node.text_content().strip("\n")
                if code.strip():
                    yield f"```\n{code}\n```"
                walk.skip_subtree()
                continue
            if tag in _APART:
                held.append(" ")
            elif tag not in _INLINE:
                yield from block()
            held.append(node.text or "")
        else:
            if tag not in _INLINE and tag not in _APART and tag not in _LEFT_OUT and tag != "pre":
                yield from block(_before(tag))
            held.append(node.tail or "")
    yield from block()


def _around(node: Any) -> bool:
    """Whether it is the same on every page of a site, or is not shown: menus, footers, banners."""
    if node.get("hidden") is not None or node.get("aria-hidden") == "true":
        return True
    if node.get("role") in _ROLES:
        return True
    return node.tag in _AROUND and not any(above.tag in _TEXT for above in node.iterancestors())


def _before(tag: str) -> str:
    if re.fullmatch("h[1-6]", tag):
        return "#" * int(tag[1]) + " "
    return "- " if tag == "li" else ""


# -------------------------------------------------------------------------------------- PDF


_PDF_MEMORY = 2 * 2**30  # bytes, beside the file itself; a thousand pages take a tenth
_PDF_SIGNATURE = (b"%PDF-", 1024)  # and within how many bytes it begins


def _pdf(data: bytes, name: str, stem: str) -> Contents:
    _needed("pypdfium2", "PDF")
    signature, length = _PDF_SIGNATURE
    if signature not in data[:length]:
        raise Broken("is not a PDF, as its first bytes say")
    command = [sys.executable, "-P", str(Path(__file__).with_name("pdf_text.py"))]
    command.append(str(_PDF_MEMORY + 2 * len(data)))
    done = subprocess.run(command, input=data, capture_output=True, check=False)
    if done.returncode:
        limit = f"{_PDF_MEMORY / 2**30:g} GiB"
        raise Broken(f"is not a readable PDF: reading it failed or took more than {limit}")
    answer = json.loads(done.stdout)
    if "problem" in answer:
        raise Broken(answer["problem"])
    if answer["unreadable"] and len(answer["unreadable"]) == len(answer["pages"]):
        raise Broken("is not a readable PDF: none of its pages can be read")
    pages = [_clean(page).strip() for page in answer["pages"]]
    starts, at = [], 0
    for page in pages:
        starts.append(at)
        at += len(page) + 2
    text = "\n\n".join(pages)
    title = " ".join(_clean(answer["title"]).split())
    notes = [] if text.strip() else ["no text on its pages: pictures of text need OCR first"]
    if answer["unreadable"]:
        notes.append(f"pages that cannot be read: {_first_few(answer['unreadable'])}")
    return Contents([Document(name, title or stem, text, pages=tuple(starts))], notes)


def _needed(module: str, what: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise Broken(f"{what} needs {package}: pip install 'rankproof[documents]'") from None


# ------------------------------------------------------------------------------ JSONL and CSV


def _jsonl(data: bytes, name: str, stem: str) -> Contents:
    text, notes = _decoded(data)
    return _rows(read_json_lines(text), name, stem, notes)


def _csv(data: bytes, name: str, stem: str) -> Contents:
    text, notes = _decoded(data)
    head = text.lstrip("\n").partition("\n")[0]
    delimiter = max(",;\t|", key=head.count)
    reader = read_csv_rows(text, delimiter)
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise Broken(f"is not CSV: line {reader.line_num}: {error}") from None
    return _rows(iter(rows), name, stem, notes)


def _rows(rows: Iterator[tuple[int, Any]], name: str, stem: str, notes: list[str]) -> Contents:
    """A document of each row; rows without a text are told of."""
    found: list[Document] = []
    bad: list[int] = []
    seen: set[str] = set()
    for number, row in rows:
        text = _row_text(row)
        if text is None:
            bad.append(number)
            continue
        own = next((str(row[key]) for key in _ID_KEYS if row.get(key) not in (None, "")), "")
        ident = fit(own or str(number))
        ident = f"{ident}:{number}" if ident in seen else ident
        seen.add(ident)
        title = row.get("title")
        title = title if isinstance(title, str) and title.strip() else stem
        found.append(Document(f"{name}:{ident}", _clean(title), _clean(text)))
    if not found and bad:
        raise Broken("has no row with a text; call its column or key `text`")
    if bad:
        lines = "line" if len(bad) == 1 else "lines"
        notes = [*notes, f"{len(bad)} {lines} without a text left out: {_first_few(bad)}"]
    return Contents(found, notes)


def _row_text(row: Any) -> str | None:
    """The text of a row: its `text`, `content` or `body`, else every column by name."""
    if not isinstance(row, dict):
        return None
    for key in _TEXT_KEYS:
        if isinstance(row.get(key), str):
            return row[key] if row[key].strip() else None
    columns = [
        f"{key}: {value}"
        for key, value in row.items()
        if isinstance(key, str) and key not in _ID_KEYS and isinstance(value, str) and value.strip()
    ]
    return "\n".join(columns) or None


def _first_few(numbers: list[int]) -> str:
    """Return the first of some numbers as a list, with an ellipsis for the others."""
    return ", ".join(map(str, numbers[:_FEW])) + (", …" if len(numbers) > _FEW else "")


def _first_line(error: BaseException) -> str:
    return shorten(next(iter(str(error).splitlines()), type(error).__name__)).strip("'\"")


Reader = Callable[[bytes, str, str], Contents]
FORMATS: dict[str, tuple[str, Reader]] = {
    ".txt": ("text", _text),
    ".text": ("text", _text),
    ".rst": ("text", _text),
    ".md": ("Markdown", _markdown),
    ".markdown": ("Markdown", _markdown),
    ".html": ("HTML", _html),
    ".htm": ("HTML", _html),
    ".xhtml": ("HTML", _html),
    ".pdf": ("PDF", _pdf),
    ".jsonl": ("JSONL", _jsonl),
    ".ndjson": ("JSONL", _jsonl),
    ".csv": ("CSV", _csv),
    ".tsv": ("CSV", _csv),
}
