"""Chunks against what they promise, and judgements that follow them."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankproof.foundation.errors import InputError
from rankproof.retrieval.chunks import (
    _SENTENCE,
    ChunkSettings,
    Span,
    chunk,
    chunk_documents,
    judged_spans,
    match_judgments,
    parse_heading,
)

pieces = [
    "a",
    "word",
    "A much longer word.",
    "Yes! ",
    " ",
    "\n",
    "\n\n",
    "文章。",
    "é",
    "é",
    "# H\n",
]
texts = st.lists(st.sampled_from(pieces), max_size=60).map("".join)
settings = st.builds(
    ChunkSettings,
    size=st.integers(8, 60),
    overlap=st.integers(0, 4),
    by=st.sampled_from(["separators", "sentences"]),
    separators=st.sampled_from([("\n\n", "\n"), ("\n",), (". ",), ()]),
    headings=st.booleans(),
)


@given(texts, settings)
def test_chunks_contain_the_whole_text_in_order_within_their_size(
    text: str, chosen: ChunkSettings
) -> None:
    spans = chunk(text, chosen)
    seen: set[int] = set()
    for before, span in zip([Span(-1, -1), *spans], spans, strict=False):
        assert span.start > before.start
        assert span.end > before.end
        assert before.end - span.start <= chosen.overlap
        assert 0 < span.end - span.start <= chosen.size
        inside = text[span.start : span.end]
        assert inside == inside.strip()
        seen.update(range(span.start, span.end))
    assert not "".join(c for at, c in enumerate(text) if at not in seen).strip()


@given(st.text(alphabet='.!…。！”") \n\ta'))
def test_a_sentence_ends_after_all_of_its_marks(text: str) -> None:
    plain = re.compile(r"[.!?…؟।]+[\"'”’»)\]]*\s+|[。！？]+[」』”’）]*\s*|\n\s*\n")
    ends = [result.span() for result in plain.finditer(text)]
    assert [result.span() for result in _SENTENCE.finditer(text)] == ends


def test_a_megabyte_of_dots_or_of_hashes_is_read_once() -> None:
    for text in ("." * 1_000_000 + "x", "# " + "#" * 1_000_000 + "x"):
        spans = chunk(text, ChunkSettings(headings=True))
        assert (spans[0].start, spans[-1].end) == (0, len(text))


@given(st.text(alphabet="# \ta"))
def test_a_heading_is_the_text_between_hashes(line: str) -> None:
    match = re.match(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$", line)
    assert parse_heading(line) == (match and (len(match[1]), match[2]))


@given(texts, st.integers(8, 60))
def test_without_overlap_no_text_is_repeated(text: str, size: int) -> None:
    spans = chunk(text, ChunkSettings(size=size))
    assert "".join("".join(text[s.start : s.end].split()) for s in spans) == "".join(text.split())


def read(text: str, **given: object) -> list[str]:
    return [s.read(text) for s in chunk(text, ChunkSettings.model_validate(given))]


def test_a_chunk_ends_at_the_coarsest_boundary_in_its_latter_half() -> None:
    text = "One two three.\n\nFour five.\nSix seven eight nine."
    assert read(text, size=28) == ["One two three.\n\nFour five.", "Six seven eight nine."]
    assert read(text, size=20) == ["One two three.", "Four five.\nSix seven", "eight nine."]
    assert read("x" * 25, size=10) == ["x" * 10, "x" * 10, "x" * 5]


def test_chunks_by_sentences_contain_whole_sentences_while_they_fit() -> None:
    text = "One. Two is longer. Three! Is this four? 这是第一句。这是第二句。"
    assert read(text, size=20, by="sentences") == [
        "One. Two is longer.", "Three! Is this four?", "这是第一句。这是第二句。",
    ]  # fmt: skip
    assert read(text, size=7, by="sentences", overlap=0)[-2:] == ["这是第一句。", "这是第二句。"]


def test_an_overlap_begins_at_a_word_or_a_sentence() -> None:
    text = "alpha beta gamma delta epsilon zeta"
    assert read(text, size=17, overlap=8) == [
        "alpha beta gamma", "gamma delta", "delta epsilon", "epsilon zeta",
    ]  # fmt: skip
    said = "One is. Two is. Three is. Four."
    assert read(said, size=18, overlap=8, by="sentences") == [
        "One is. Two is.", "Two is. Three is.", "Four.",
    ]  # fmt: skip
    assert read(said, size=16, overlap=8, by="sentences") == ["One is. Two is.", "Three is. Four."]


def test_headings_start_a_chunk_and_precede_its_text() -> None:
    text = (
        "Before.\n# Guide\n## Install\nType this now and wait.\n"
        "## Use\nRun.\n```\n# no heading\n```"
    )
    result = chunk(text, ChunkSettings(size=30, headings=True))
    assert [s.read(text) for s in result] == [
        "Before.",
        "# Guide\n## Install\nType this",
        "Guide > Install\nnow and wait.",
        "Guide\n## Use\nRun.\n```\n# no heading",
        "Guide > Use\n```",
    ]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises((InputError, ValueError), match="more than half"):
        ChunkSettings(size=100, overlap=51)
    with pytest.raises((InputError, ValueError), match="empty separator"):
        ChunkSettings(separators=("\n", ""))


# ------------------------------------------------------------------------------- judgements

spans = st.lists(
    st.tuples(
        st.sampled_from("pq"), st.sampled_from("ab"), st.integers(0, 30), st.integers(1, 20),
        st.integers(1, 5),
    ),
    max_size=8,
)  # fmt: skip


@given(spans, st.integers(4, 20), st.integers(0, 2))
def test_a_chunk_holds_spans_that_share_half_of_the_shorter_or_most(
    judged: list[tuple[str, str, int, int, int]], size: int, overlap: int
) -> None:
    documents = {"a": "word " * 9, "b": "longer words than before " * 2}
    chunks = chunk_documents(
        list(documents), list(documents.values()), ChunkSettings(size=size, overlap=overlap)
    )
    rows = [(query, f"{source}#{a}-{a + n}", grade) for query, source, a, n, grade in judged]
    schema = {"query": pl.String, "doc": pl.String, "grade": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    result = match_judgments(chunks, judged_spans(frame, documents))
    expected = []
    for query, source, a, n, grade in judged:
        of_it = [row for row in chunks.iter_rows() if row[1] == source]
        shares = [min(end, a + n) - max(start, a) for _, _, start, end, _ in of_it]
        for (doc, _, start, end, _), shared in zip(of_it, shares, strict=True):
            enough = 2 * shared >= min(end - start, n) or shared == max(shares)
            if shared > 0 and enough:
                expected.append((query, doc, f"{source}#{a}-{a + n}", grade))
    assert sorted(result.iter_rows()) == sorted(expected)


def test_a_judged_document_is_held_by_all_its_chunks_and_a_chunk_by_itself() -> None:
    documents = {"a": "One is here. Two is there.", "b#1-2": "Three."}
    chunks = chunk_documents(list(documents), list(documents.values()), ChunkSettings(size=13))
    assert chunks["doc"].to_list() == ["a#0-12", "a#13-26", "b#1-2#0-6"]
    frame = pl.DataFrame(
        {"query": ["q"] * 4, "doc": ["a", "b#1-2", "a#13-26", "gone#0-5"], "grade": [3, 4, 5, 5]}
    )
    result = match_judgments(chunks, judged_spans(frame, documents))
    assert set(result.select("doc", "judged").iter_rows()) == {
        ("a#0-12", "a"), ("a#13-26", "a"), ("a#13-26", "a#13-26"), ("b#1-2#0-6", "b#1-2"),
    }  # fmt: skip
