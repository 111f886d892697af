"""Read files of several formats as documents: a title, a text, and where its pages begin.

Headings are written as in Markdown (`## Title`), whatever the format. A file that cannot be read
raises `Broken` with a short reason, so that the caller can report it and go on with the folder.
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
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rankproof.foundation.errors import shorten
from rankproof.foundation.files import read_csv_rows, read_json_lines
from rankproof.foundation.phrasing import plural
from rankproof.retrieval.chunks import parse_heading

_TEXT_KEYS = ("text", "content", "body", "passage", "contents")
_ID_KEYS = ("_id", "id", "doc_id")
_MAX_LISTED = 3  # line or page numbers in a note
_NOT_IN_IDS = re.compile(r"[\s%\x00-\x1f\x7f]")  # blanks separate the columns of TREC files
_CODE_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_FRONT_MATTER = re.compile(r"\A---\n(.*?)^---\s*$", re.S | re.M)
_TITLE_LINE = re.compile(r"^title:\s*[\"']?(.*)", re.M)


class Broken(Exception):
    """A file that cannot be read, and why."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text to be cut into passages."""

    name: str
    title: str
    text: str
    headings: bool = False  # its headings are written as in Markdown
    pages: tuple[int, ...] = ()  # offset in the text at which each page begins


@dataclass(frozen=True, slots=True)
class Contents:
    """The documents of a file, and notes on what could not be read."""

    documents: list[Document]
    notes: list[str] = field(default_factory=list)


def read_file(path: Path, name: str) -> Contents:
    """Read the documents of a file; `name` is its path in the folder."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Broken(f"cannot be read ({error.strerror or error})") from None
    if not data.strip():
        return Contents([])
    stem = _clean(" ".join(re.split(r"[\s_-]+", path.stem)).strip())
    _, read = FORMATS[path.suffix.lower()]
    return read(data, make_id(name), stem)


def format_of(path: Path) -> str | None:
    """The format that a file's ending names; None if it is not a format of documents."""
    name, _ = FORMATS.get(path.suffix.lower(), (None, None))
    return name


def make_id(name: str) -> str:
    """Return a name as an id: what runs and judgments cannot hold is percent-encoded."""
    return _NOT_IN_IDS.sub(lambda match: quote(match[0]), name)


def _decode(data: bytes, declared: str | None = None) -> tuple[str, list[str]]:
    """Decode bytes; return the text, and a note if the encoding is a guess or does not fit.

    The order is: a byte order mark, UTF-8, the `declared` encoding of an HTML page, Windows-1252.
    """
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
    if declared is not None and (codec := _browser_codec(declared, data)) is not None:
        text = data.decode(codec, "replace")
        return text, [f"some of it is not {declared}, as it says"] if "\ufffd" in text else []
    try:
        return data.decode("cp1252"), ["not UTF-8; read as Windows-1252"]
    except UnicodeDecodeError:
        raise Broken("is neither UTF-8 nor Windows-1252; save it as UTF-8") from None


# Encodings that browsers replace by a superset (https://encoding.spec.whatwg.org).
_SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
# Text encodings of Python that are not character sets.
_NOT_CHARACTER_SETS = {"charmap", "idna", "punycode", "undefined"}
_NOT_CHARACTER_SETS |= {"raw-unicode-escape", "unicode-escape"}
_DECLARATION = b"charset"  # was found as ASCII, so that the encoding must contain ASCII


def _browser_codec(declared: str, data: bytes) -> str | None:
    """Python's name of the encoding that browsers use for a declared one; None if it cannot be.

    UTF-8 has been tried before: it is right nevertheless if few non-ASCII characters are broken.
    """
    try:
        name = codecs.lookup(declared).name
        if name in _NOT_CHARACTER_SETS:
            return None
        contains_ascii = _DECLARATION.decode(name, "replace") == _DECLARATION.decode()
    except (LookupError, ValueError):  # unknown, or not an encoding of text
        return None
    if name.startswith("utf"):
        non_ascii = [char for char in data.decode("utf-8", "replace") if char > "\x7f"]
        return "utf-8" if 2 * non_ascii.count("\ufffd") < len(non_ascii) else None
    return _SUPERSETS.get(name, name) if contains_ascii else None


def _clean(text: str) -> str:
    """Return a text without NUL and lone surrogates, which the files of a project cannot hold."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()


# ------------------------------------------------------------------------- text and Markdown


def _read_text(data: bytes, name: str, stem: str) -> Contents:
    text, notes = _decode(data)
    return Contents([Document(name, stem, text)], notes)


def _read_markdown(data: bytes, name: str, stem: str) -> Contents:
    text, notes = _decode(data)
    title = _markdown_title(text) or stem
    # Front matter is not text, but is blanked rather than cut: spans are offsets in the file.
    text = _FRONT_MATTER.sub(lambda matter: re.sub(r"[^\n]", " ", matter[0]), text)
    return Contents([Document(name, title, text, headings=True)], notes)


def _markdown_title(text: str) -> str | None:
    """The title in the front matter, else the first heading of level 1 outside code."""
    front_matter = _FRONT_MATTER.match(text)
    if front_matter and (title_line := _TITLE_LINE.search(front_matter[1])):
        title = title_line[1].rstrip()  # in the pattern, it would be tried at each blank
        return title[:-1] if title.endswith(('"', "'")) else title
    is_code = False
    for line in text.splitlines():
        if _CODE_FENCE.match(line):
            is_code = not is_code
        elif not is_code and (heading := parse_heading(line)):
            level, title = heading
            if level == 1:
                return title
    return None


# ------------------------------------------------------------------------------------- HTML

_SKIPPED_TAGS = {
    *("script", "style", "noscript", "template", "head", "nav", "svg", "iframe", "button"),
    *("select", "dialog"),
}
_FRAME_TAGS = {"header", "footer", "aside"}  # repeated on every page, unless inside these:
_CONTENT_TAGS = {"main", "article", "section", "blockquote"}
_FRAME_ROLES = {"navigation", "banner", "contentinfo", "complementary", "search", "dialog"}
_INLINE_TAGS = {
    *("a", "abbr", "b", "bdi", "bdo", "cite", "code", "del", "dfn", "em", "font", "i", "ins"),
    *("kbd", "label", "mark", "q", "s", "samp", "small", "span", "strong", "sub", "sup", "time"),
    *("tt", "u", "var", "wbr"),
}
_SPACE_TAGS = {"br", "td", "th", "img"}  # separate words within a block
_NO_BLOCK_END = _INLINE_TAGS | _SPACE_TAGS | _SKIPPED_TAGS | {"pre"}

_HEAD_BYTES = 4096  # in which browsers look for the encoding
_DECLARED_ENCODING = re.compile(
    rb"""(?:<\?xml\s[^>]*?\bencoding|<meta\s[^>]*?\bcharset)\s*=\s*["']?\s*([\w.:-]+)""",
    re.IGNORECASE,
)


def _read_html(data: bytes, name: str, stem: str) -> Contents:
    """Read a page: its text without menus and banners, unless there is no other text."""
    html, etree = _import_reader("lxml.html", "HTML"), _import_reader("lxml.etree", "HTML")
    declaration = _DECLARED_ENCODING.search(data[:_HEAD_BYTES])
    declared = None if declaration is None else declaration[1].decode("ascii")
    page, encoding_notes = _decode(data, declared)
    parser = html.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    try:
        root = html.document_fromstring(page.encode(), parser=parser)
    except (etree.LxmlError, ValueError) as error:
        if "empty" in str(error).lower():
            return Contents([])
        raise Broken(f"is not HTML ({_first_line(error)})") from None
    titles = [node.text_content() for node in (*root.iter("title"), *root.iter("h1"))]
    title = next((t for t in (" ".join(text.split()) for text in titles) if t), stem)
    text = "\n\n".join(_blocks(root, etree, _is_frame)) or "\n\n".join(_blocks(root, etree))
    # Only the log tells that the parser gave up, and that the end of the page is missing.
    parser_notes = [
        f"not read past line {error.line} ({_first_line(error.message).partition(', use')[0]})"
        for error in parser.error_log
        if error.level == etree.ErrorLevels.FATAL
    ]
    document = Document(name, _clean(title), _clean(text), headings=True)
    return Contents([document], [*encoding_notes, *parser_notes[:1]])


def _blocks(
    root: Any, etree: Any, is_skipped: Callable[[Any], bool] = lambda node: False
) -> Iterator[str]:
    """Yield paragraphs, headings and list items as Markdown; code keeps its line breaks."""
    pieces: list[str] = []  # of the block that has not ended yet

    def end_block(prefix: str = "") -> Iterator[str]:
        words = " ".join("".join(pieces).split())
        pieces.clear()
        if words:
            yield prefix + words

    walk = etree.iterwalk(root, events=("start", "end"))
    for event, node in walk:
        tag = node.tag
        if event == "start":
            if tag in _SKIPPED_TAGS or is_skipped(node):
                walk.skip_subtree()
                continue
            if tag == "pre":
                yield from end_block()
                code = node.text_content().strip("\n")
                if code.strip():
                    yield f"```\n{code}\n```"
                walk.skip_subtree()
                continue
            if tag in _SPACE_TAGS:
                pieces.append(" ")
            elif tag not in _INLINE_TAGS:
                yield from end_block()
            pieces.append(node.text or "")
        else:
            if tag not in _NO_BLOCK_END:
                yield from end_block(_block_prefix(tag))
            pieces.append(node.tail or "")
    yield from end_block()


def _is_frame(node: Any) -> bool:
    """True for what is hidden, or the same on every page of a site: menus, footers, banners."""
    if node.get("hidden") is not None or node.get("aria-hidden") == "true":
        return True
    if node.get("role") in _FRAME_ROLES:
        return True
    is_in_content = any(ancestor.tag in _CONTENT_TAGS for ancestor in node.iterancestors())
    return node.tag in _FRAME_TAGS and not is_in_content


def _block_prefix(tag: str) -> str:
    """Markdown's mark of a heading or a list item."""
    if re.fullmatch("h[1-6]", tag):
        return "#" * int(tag[1]) + " "
    return "- " if tag == "li" else ""


# -------------------------------------------------------------------------------------- PDF


_PDF_MEMORY = 2 * 2**30  # bytes, besides the file itself; a thousand pages take a tenth of it
_PDF_SIGNATURE = b"%PDF-"
_PDF_HEAD_BYTES = 1024  # within which the signature begins


def _read_pdf(data: bytes, name: str, stem: str) -> Contents:
    """Read a PDF in another process, which may run out of memory or crash (`pdf_text`)."""
    _import_reader("pypdfium2", "PDF")
    if _PDF_SIGNATURE not in data[:_PDF_HEAD_BYTES]:
        raise Broken("is not a PDF, as its first bytes say")
    command = [sys.executable, "-P", str(Path(__file__).with_name("pdf_text.py"))]
    command.append(str(_PDF_MEMORY + 2 * len(data)))
    process = subprocess.run(command, input=data, capture_output=True, check=False)
    if process.returncode:
        limit = f"{_PDF_MEMORY / 2**30:g} GiB"
        raise Broken(f"is not a readable PDF: reading it failed or took more than {limit}")
    answer = json.loads(process.stdout)
    if "problem" in answer:
        raise Broken(answer["problem"])
    if answer["unreadable"] and len(answer["unreadable"]) == len(answer["pages"]):
        raise Broken("is not a readable PDF: none of its pages can be read")
    pages = [_clean(page).strip() for page in answer["pages"]]
    separator = "\n\n"
    text = separator.join(pages)
    ends = accumulate((len(page) + len(separator) for page in pages), initial=0)
    starts = tuple(ends)[: len(pages)]
    title = " ".join(_clean(answer["title"]).split())
    notes = [] if text.strip() else ["no text on its pages: pictures of text need OCR first"]
    if answer["unreadable"]:
        notes.append(f"pages that cannot be read: {_first_few(answer['unreadable'])}")
    return Contents([Document(name, title or stem, text, pages=starts)], notes)


def _import_reader(module: str, file_format: str) -> Any:
    """Import a module; raise `Broken` with the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise Broken(f"{file_format} needs {package}: pip install 'rankproof[documents]'") from None


# ------------------------------------------------------------------------------ JSONL and CSV


def _read_jsonl(data: bytes, name: str, stem: str) -> Contents:
    text, notes = _decode(data)
    return _read_rows(read_json_lines(text), name, stem, notes)


def _read_csv(data: bytes, name: str, stem: str) -> Contents:
    """Read a row as a document; the delimiter is the most frequent one of the first line."""
    text, notes = _decode(data)
    first_line = text.lstrip("\n").partition("\n")[0]
    delimiter = max(",;\t|", key=first_line.count)
    reader = read_csv_rows(text, delimiter)
    try:
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise Broken(f"is not CSV: line {reader.line_num}: {error}") from None
    return _read_rows(iter(rows), name, stem, notes)


def _read_rows(rows: Iterator[tuple[int, Any]], name: str, stem: str, notes: list[str]) -> Contents:
    """Read each (line, row) as a document; a note lists the lines without a text."""
    documents: list[Document] = []
    lines_without_text: list[int] = []
    ids: set[str] = set()
    for line, row in rows:
        text = _row_text(row)
        if text is None:
            lines_without_text.append(line)
            continue
        row_id = next((str(row[key]) for key in _ID_KEYS if row.get(key) not in (None, "")), "")
        row_id = make_id(row_id or str(line))
        if row_id in ids:
            row_id = f"{row_id}:{line}"
        ids.add(row_id)
        title = row.get("title")
        title = title if isinstance(title, str) and title.strip() else stem
        documents.append(Document(f"{name}:{row_id}", _clean(title), _clean(text)))
    if not documents and lines_without_text:
        raise Broken("has no row with a text; call its column or key `text`")
    if lines_without_text:
        skipped = plural(len(lines_without_text), "line")
        notes = [*notes, f"{skipped} without a text skipped: {_first_few(lines_without_text)}"]
    return Contents(documents, notes)


def _row_text(row: Any) -> str | None:
    """The text of a row: its value under one of `_TEXT_KEYS`, else every column with its name."""
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
    """The first of many numbers, with an ellipsis for the others."""
    return ", ".join(map(str, numbers[:_MAX_LISTED])) + (
        ", …" if len(numbers) > _MAX_LISTED else ""
    )


def _first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return shorten(next(iter(str(error).splitlines()), type(error).__name__)).strip("'\"")


Reader = Callable[[bytes, str, str], Contents]  # of (data, id, title if it has none)
FORMATS: dict[str, tuple[str, Reader]] = {  # by ending
    ".txt": ("text", _read_text),
    ".text": ("text", _read_text),
    ".rst": ("text", _read_text),
    ".md": ("Markdown", _read_markdown),
    ".markdown": ("Markdown", _read_markdown),
    ".html": ("HTML", _read_html),
    ".htm": ("HTML", _read_html),
    ".xhtml": ("HTML", _read_html),
    ".pdf": ("PDF", _read_pdf),
    ".jsonl": ("JSONL", _read_jsonl),
    ".ndjson": ("JSONL", _read_jsonl),
    ".csv": ("CSV", _read_csv),
    ".tsv": ("CSV", _read_csv),
}
