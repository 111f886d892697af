"""The text of PDFs, page by page: written by TeX, encrypted, damaged, or made to fill memory."""

from __future__ import annotations

import hashlib
import struct
import zlib
from itertools import cycle
from pathlib import Path

import pytest
from mixed_documents import pdf, pdf_file

import rankproof as rp
from rankproof.projects.reading import FORMATS, Broken, Contents, Document

pytest.importorskip("pypdfium2")


def read(data: bytes) -> Contents:
    return FORMATS[".pdf"][1](data, "name", "file name")


def only(data: bytes) -> Document:
    (document,) = read(data).documents
    return document


# Widths of Computer Modern Roman at 10 pt, from "a" to "z", in thousandths of the size.
_WIDTHS = (
    *(500, 556, 444, 556, 444, 306, 500, 556, 278, 306, 528, 278, 833),
    *(556, 500, 556, 528, 392, 394, 389, 556, 528, 722, 528, 528, 444),
)
_SIZE = 9.9626
_FI, _HYPHEN = "\x0c", "-"  # where Computer Modern has the ligature fi


def tex_pdf(content: str) -> bytes:
    """A page as pdfTeX writes it: its font has no blank, and no glyph where ASCII has one."""
    stretch = " ".join(map(str, _WIDTHS))
    gap = " ".join(["0"] * (ord("a") - ord(_FI) - 1))
    encoding = f"/Differences [{ord(_FI)} /fi {ord(_HYPHEN)} /hyphen]"
    return pdf_file(
        [
            "<< /Type /Catalog /Pages 2 0 R >>",
            "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            f"<< /Type /Font /Subtype /Type1 /BaseFont /ABCDEF+CMR10 /FirstChar {ord(_FI)} "
            f"/LastChar {ord('z')} /Widths [556 {gap} {stretch}] /FontDescriptor 6 0 R "
            f"/Encoding << /Type /Encoding {encoding} >> >>",
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R "
            "/Resources << /Font << /F8 3 0 R >> >> >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
            "<< /Type /FontDescriptor /FontName /ABCDEF+CMR10 /Flags 4 /StemV 69 /XHeight 431 "
            "/FontBBox [-40 -250 1009 750] /Ascent 694 /CapHeight 683 /Descent -194 "
            "/ItalicAngle 0 >>",
        ]
    )


def tex_lines(*lines: str) -> str:
    return f"BT /F8 {_SIZE} Tf 72 720 Td {' 0 -12 Td '.join(lines)} ET"


# TeX's blank of this font is 333 wide and shrinks to 222 where a line is full.
@pytest.mark.parametrize("blank", [222, 278, 333, 500])
def test_words_that_tex_separates_by_offsets_are_separate(blank: int) -> None:
    words = ("the", "b", 28, "ars", "of", "nic", -28, "k", 28, "el")
    array = ""
    for before, item in zip(("", *words), words, strict=False):
        if isinstance(item, int):
            array += str(item)
        else:
            apart = before and isinstance(before, str)
            array += f"{-blank if apart else ''}({item})"
    assert only(tex_pdf(tex_lines(f"[{array}]TJ"))).text == "the bars of nickel"


def test_words_that_are_positioned_one_by_one_are_separate() -> None:
    content = f"BT /F8 {_SIZE} Tf 72 720 Td "
    for word in ("the", "bars", "of", "nickel"):
        width = sum(_WIDTHS[ord(letter) - ord("a")] for letter in word) + 222
        content += f"({word}) Tj {width * _SIZE / 1000:.3f} 0 Td "
    assert only(tex_pdf(content + "ET")).text == "the bars of nickel"


def test_a_ligature_is_read_as_its_letters() -> None:
    assert only(tex_pdf(tex_lines(f"[(we)-333({_FI}nd)]TJ"))).text == "we find"


def test_a_word_that_is_hyphenated_at_the_end_of_a_line_is_read_whole() -> None:
    lines = ("[(a)-333(re)-1(triev)56(al)-333(mea-)]TJ", "[(sure)-333(is)]TJ", "[(half-tied)]TJ")
    assert only(tex_pdf(tex_lines(*lines))).text == "a retrieval measure is\nhalf-tied"


_PADDING = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")


def rc4(key: bytes, data: bytes) -> bytes:
    state, swap = list(range(256)), 0
    for index, byte in zip(range(256), cycle(key), strict=False):
        swap = (swap + state[index] + byte) % 256
        state[index], state[swap] = state[swap], state[index]
    output, first, second = bytearray(), 0, 0
    for byte in data:
        first = (first + 1) % 256
        second = (second + state[first]) % 256
        state[first], state[second] = state[second], state[first]
        output.append(byte ^ state[(state[first] + state[second]) % 256])
    return bytes(output)


def encrypted_pdf(text: str, password: bytes, handler: str = "Standard") -> bytes:
    """A page of text, encrypted by the standard's first method (40 bits), opened by `password`."""
    user, owner = ((word + _PADDING)[:32] for word in (password, b"owner"))
    hidden = rc4(hashlib.md5(owner).digest()[:5], user)
    key = hashlib.md5(user + hidden + struct.pack("<i", -4) + b"id").digest()[:5]
    content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode()
    content = rc4(hashlib.md5(key + bytes([5, 0, 0, 0, 0])).digest()[:10], content)
    encryption = f"/Filter /{handler} /V 1 /R 2 /P -4 /O <{hidden.hex()}>"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R "
        "/Resources << /Font << /F1 3 0 R >> >> >>",
        f"<< /Length {len(content)} >>\nstream\n{content.decode('latin-1')}\nendstream",
        f"<< {encryption} /U <{rc4(key, _PADDING).hex()}> >>",
    ]
    return pdf_file(objects, f"/Encrypt 6 0 R /ID [<{b'id'.hex()}> <{b'id'.hex()}>]")


def test_an_encrypted_pdf_is_read_if_it_opens_without_a_password() -> None:
    assert only(encrypted_pdf("Pumps hum.", b"")).text == "Pumps hum."


@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        ("Standard", "is encrypted; save it without a password"),
        ("Unheard", "is encrypted in an unknown way; save it without a password"),
    ],
)
def test_an_encrypted_pdf_that_does_not_open_says_what_to_do(handler: str, problem: str) -> None:
    with pytest.raises(Broken) as refused:
        read(encrypted_pdf("Pumps hum.", b"secret", handler))
    assert str(refused.value) == problem


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("(  Of\npumps )", "Of pumps"),
        (f"<feff{'Grüße'.encode('utf-16-be').hex()}>", "Grüße"),
        (f"<feff{'𝑥'.encode('utf-16-be').hex()}>", "𝑥"),
        ("<feffd835>", "file name"),  # half of a surrogate pair
        ("()", "file name"),
        ("7", "file name"),
    ],
)
def test_a_title_is_that_of_the_document_or_else_of_the_file(written: str, title: str) -> None:
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] >>",
        f"<< /Title {written} >>",
    ]
    assert only(pdf_file(objects, "/Info 4 0 R")).title == title


def test_pages_without_text_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.pdf").write_bytes(pdf("One. " * 10, "", "Three. " * 10))
    made = rp.init(tmp_path / "in", tmp_path / "out", size=60, by="sentences")
    assert made.passages == 3
    assert read((tmp_path / "in" / "a.pdf").read_bytes()).documents[0].pages == (0, 51, 53)


def test_a_pdf_without_text_says_that_its_pictures_need_ocr() -> None:
    contents = read(pdf("", ""))
    assert contents.notes == ["no text on its pages: pictures of text need OCR first"]


def test_a_page_that_cannot_be_read_is_named_and_the_others_are_read() -> None:
    data = pdf("One.", "Two.", "Three.").replace(b"/Kids [4 0 R 6 0 R", b"/Kids [4 0 R 0 0 R")
    contents = read(data)
    assert contents.documents[0].text.split() == ["One.", "Three."]
    assert contents.notes == ["pages that cannot be read: 2"]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"no PDF at all", "is not a PDF, as its first bytes say"),
        (b"%PDF-1.4 and then nothing", "is not a readable PDF"),
        (pdf("One.")[:400], "is not a readable PDF"),
        (
            pdf("One.").replace(b"/Kids [4 0 R", b"/Kids [9 0 R"),
            "is not a readable PDF: none of its pages can be read",
        ),
    ],
)
def test_a_broken_pdf_is_one_line(data: bytes, problem: str) -> None:
    with pytest.raises(Broken) as refused:
        read(data)
    assert str(refused.value) == problem


def test_a_pdf_whose_table_of_objects_is_wrong_is_read() -> None:
    assert only(pdf("One.").replace(b"startxref\n", b"startxref\n9")).text == "One."


def test_a_pdf_that_would_fill_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice compressed, a stream of blanks is a millionth of its size."""
    monkeypatch.setattr("rankproof.projects.reading._PDF_MEMORY", 2**28)
    deflate = zlib.compressobj(9)
    once = b"".join(deflate.compress(bytes(2**20)) for _ in range(512)) + deflate.flush()
    twice = zlib.compress(once, 9).decode("latin-1")
    filters = "/Filter [/FlateDecode /FlateDecode]"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>",
        f"<< /Length {len(twice)} {filters} >>\nstream\n{twice}\nendstream",
    ]
    with pytest.raises(Broken, match=r"failed or took more than 0\.25 GiB"):
        read(pdf_file(objects))
