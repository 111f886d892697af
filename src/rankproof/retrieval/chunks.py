"""Documents cut into chunks, and the judgments that apply to each chunk.

A chunk ends at the coarsest boundary in the latter half of its largest size: a separator, the end
of a sentence, the end of a word; only a word longer than a chunk is cut. Judgments belong to spans
of a document, so that they apply to chunks of any size. A judged span applies to a chunk with which
it shares at least half of the shorter of the two, or more than with any other chunk:

    shared(a, b) = min(end) − max(start) ≥ ½ · min(length of a, length of b)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Literal, NamedTuple

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from rankproof.foundation.arrays import Int
from rankproof.foundation.config import Count, Settings
from rankproof.foundation.errors import InputError

_WORD = re.compile(r"\S+")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*)$")
_FENCE = re.compile(r"^ {0,3}(```|~~~)")
# The end of a sentence: . ! ? … with closing quotes, and a blank unless in Chinese and Japanese.
# The look-behind has a run of marks matched from its first one alone: otherwise a line of dots
# would take quadratic time.
_SENTENCE = re.compile(
    r"[.!?…؟।](?<![.!?…؟।]{2})[.!?…؟।]*[\"'”’»)\]]*\s+|[。！？]+[」』”’）]*\s*|\n\s*\n"
)
SPAN = r"#(\d+)-(\d+)$"  # the end of a chunk's id, after that of its document
_NAME = rf"^(.*){SPAN}"


class ChunkSettings(Settings):
    """How documents are cut."""

    size: Count = 1200  # characters of a chunk at most; about 300 tokens of English
    overlap: Annotated[int, Field(ge=0)] = 0  # characters repeated from the chunk before, at most
    by: Literal["separators", "sentences"] = "separators"  # sentences: whole ones, while they fit
    separators: tuple[str, ...] = ("\n\n", "\n")  # the coarsest first; sentences and words follow
    headings: bool = False  # Markdown: cut at each heading, and repeat the headings above a chunk

    @field_validator("separators")
    @classmethod
    def _check_separators(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value):
            raise InputError("an empty separator", remedy=r'write "\n\n", say')
        return value

    @model_validator(mode="after")
    def _check_overlap(self) -> ChunkSettings:
        if 2 * self.overlap > self.size:
            raise InputError(
                f"overlap {self.overlap} is more than half of the size {self.size}",
                remedy="overlap less, or make the chunks larger",
            )
        return self


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk: text[start:end] of its document, and the headings above it there."""

    start: int
    end: int
    headings: tuple[str, ...] = ()

    def name(self, document: str) -> str:
        """Return the chunk's id: its document with start and end."""
        return f"{document}#{self.start}-{self.end}"

    def read(self, text: str) -> str:
        """Return the text that is indexed for the chunk."""
        headings = [" > ".join(self.headings)] if self.headings else []
        return "\n".join([*headings, text[self.start : self.end]])


def chunk(text: str, settings: ChunkSettings | None = None) -> list[Span]:
    """Return the spans of a text in order; together they hold all of it except blanks between."""
    settings = settings or ChunkSettings()
    sections: Iterable[_Section] = [_Section(0, 0, len(text), (), ())]
    if settings.headings:
        sections = _sections(text)
    return [
        Span(start, end, section.headings if number else section.headings_above)
        for section in sections
        for number, (start, end) in enumerate(_SectionCutter(text, section, settings).spans())
    ]


class _Section(NamedTuple):
    """The part of a document below one heading."""

    start: int
    heading_end: int
    end: int
    headings_above: tuple[str, ...]  # above its own heading, which is part of its first chunk
    headings: tuple[str, ...]  # with its own, for its later chunks


def parse_heading(line: str) -> tuple[int, str] | None:
    """Return the level and the title of a heading in Markdown; None for other lines."""
    match = _HEADING.match(line)
    return None if match is None else (len(match[1]), match[2].rstrip(" \t#"))


def _find_headings(text: str) -> list[tuple[int, int, str]]:
    """Return position, level and title of each heading outside fenced code."""
    headings = []
    position, is_fenced = 0, False
    for line in text.splitlines(keepends=True):
        if _FENCE.match(line):
            is_fenced = not is_fenced
        elif not is_fenced and (heading := parse_heading(line.rstrip())):
            headings.append((position, *heading))
        position += len(line)
    return headings


def _sections(text: str) -> Iterator[_Section]:
    """Yield a section for each heading with text below it.

    A heading without text opens the section that follows.
    """
    boundaries = [(0, 0, ""), *_find_headings(text), (len(text), 0, "")]
    titles: dict[int, str] = {}  # by level, of the headings that apply
    section_start: int = 0
    above: tuple[str, ...] | None = None  # the first heading since `section_start`
    for (start, level, title), (end, _, _) in pairwise(boundaries):
        titles = {other: name for other, name in titles.items() if other < level}
        above = tuple(titles.values()) if above is None else above
        if level:
            titles[level] = title
        body = text[start:end].strip()
        has_text = "\n" in body if level else body
        if end == len(text) or has_text:
            heading_end = max(text.find("\n", start, end), start) if level else start
            yield _Section(section_start, heading_end, end, above, tuple(titles.values()))
            section_start, above = end, None


class _Boundaries(NamedTuple):
    """The boundaries of one kind of unit: a separator, a sentence, a word."""

    ends: Int  # (n,) where a unit ends
    starts: Int  # (n,) where the next one begins, after blanks
    min_size: int  # characters of a chunk that may end there


class _SectionCutter:
    """Cuts one section into spans."""

    def __init__(self, text: str, section: _Section, settings: ChunkSettings):
        self.text, self.section, self.settings = text, section, settings
        spans = (word.span() for word in _WORD.finditer(text, section.start, section.end))
        self.words = np.fromiter(chain.from_iterable(spans), np.int64).reshape(-1, 2)
        self.levels = list(self._levels()) if len(self.words) else []  # the coarsest first

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield start and end of each chunk; a heading does not become a chunk of its own."""
        if not len(self.words):
            return
        size, start, last = self.settings.size, self.words[0, 0], self.words[-1, 1]
        min_end = self.section.heading_end
        while last - start > size:
            end, following = self._chunk_end(start, min_end)
            yield int(start), int(end)
            next_start = self._overlap_start(end) if self.settings.overlap else None
            if next_start is None:
                next_start = following
            # The next chunk must also contain new text, not the overlap alone.
            next_end = last if last - next_start <= size else self._chunk_end(next_start)[0]
            start = next_start if start < next_start and next_end > end else following
        yield int(start), int(last)

    def _levels(self) -> Iterator[_Boundaries]:
        """Yield the places where a chunk may end, the best kind first: separators to words."""
        by_separators = self.settings.by == "separators"
        min_size = self.settings.size // 2 if by_separators else 0
        if by_separators:
            for separator in self.settings.separators:
                pattern = re.escape(separator).replace("\\\n", r"\r?\n")  # Windows ends lines so
                yield self._find_boundaries(pattern, min_size)
        yield self._find_boundaries(_SENTENCE, min_size)
        yield _Boundaries(self.words[:-1, 1], self.words[1:, 0], 0)

    def _find_boundaries(self, pattern: str | re.Pattern[str], min_size: int) -> _Boundaries:
        """Find the ends of units, without the blanks that follow them."""
        words = self.words
        matches = re.compile(pattern).finditer(self.text, self.section.start, self.section.end)
        position = np.fromiter((match.end() for match in matches), np.int64)
        next_word = np.searchsorted(words[:, 0], position)
        is_inside = (next_word > 0) & (next_word <= len(words))
        position, next_word = position[is_inside], next_word[is_inside]
        cuts_word = words[next_word - 1, 1] > position
        keep = cuts_word | (next_word < len(words))
        position, next_word, cuts_word = position[keep], next_word[keep], cuts_word[keep]
        next_start = words[np.minimum(next_word, len(words) - 1), 0]
        return _Boundaries(
            ends=np.where(cuts_word, position, words[next_word - 1, 1]),
            starts=np.where(cuts_word, position, next_start),
            min_size=min_size,
        )

    def _chunk_end(self, start: int, min_end: int = 0) -> tuple[int, int]:
        """Return where a chunk ends, beyond `min_end` if it can, and where the next begins."""
        limit = start + self.settings.size
        for lower_bound in (min_end, 0):
            for level in self.levels:
                row = int(np.searchsorted(level.ends, limit, side="right")) - 1
                if row >= 0 and level.ends[row] > max(start + level.min_size, lower_bound):
                    return int(level.ends[row]), int(level.starts[row])
        cut = _whole_character(self.text, limit, start)
        return cut, cut

    def _overlap_start(self, end: int) -> int | None:
        """Return where the next chunk begins to repeat text: at a word, or a sentence."""
        earliest = end - self.settings.overlap
        starts = self.words[:, 0]
        if self.settings.by == "sentences":
            starts = self.levels[0].starts
        row = int(np.searchsorted(starts, earliest))
        if row < len(starts) and starts[row] < end:
            return int(starts[row])
        word_start, word_end = self.words[
            int(np.searchsorted(self.words[:, 0], earliest, side="right")) - 1
        ]
        if word_end - word_start <= self.settings.size:
            return None
        # A script without blanks between words may be cut anywhere.
        return _whole_character(self.text, earliest, earliest - self.settings.overlap)


def _whole_character(text: str, position: int, lower_bound: int) -> int:
    """Move a position back until no combining mark is separated from its letter."""
    boundary = position
    while boundary > lower_bound and (
        unicodedata.combining(text[boundary]) or text[boundary] in "\u200d\ufe0f"
    ):
        boundary -= 1
    return boundary if boundary > lower_bound else position


# --------------------------------------------------------------------------------- a corpus


def chunk_documents(
    ids: Sequence[str], texts: Sequence[str], settings: ChunkSettings | None = None
) -> pl.DataFrame:
    """Return doc, source, start, end and text of every chunk of every document."""
    rows = [
        (span.name(document), document, span.start, span.end, span.read(text))
        for document, text in zip(ids, texts, strict=True)
        for span in chunk(text, settings)
    ]
    text_columns = {"doc": pl.String, "source": pl.String}
    schema = {**text_columns, "start": pl.Int64, "end": pl.Int64, "text": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row")


def judged_spans(judgments: pl.DataFrame, documents: Iterable[str]) -> pl.DataFrame:
    """Return query, source, start, end, grade and judged id for judgments (query, doc, grade).

    A judgment is of a whole document (its end is null), or of a chunk `document#start-end`;
    judgments of other ids are dropped.
    """
    known = pl.DataFrame({"doc": pl.Series(list(documents), dtype=pl.String)})
    whole = judgments.join(known, on="doc", how="semi").select(
        "query",
        pl.col("doc").alias("source"),
        pl.lit(0, pl.Int64).alias("start"),
        pl.lit(None, pl.Int64).alias("end"),
        "grade",
        pl.col("doc").alias("judged"),
    )
    id_parts = pl.col("doc").str.extract_groups(_NAME)
    chunks = (
        judgments.join(known, on="doc", how="anti")
        .select(
            "query",
            id_parts.struct[0].alias("source"),
            id_parts.struct[1].cast(pl.Int64, strict=False).alias("start"),
            id_parts.struct[2].cast(pl.Int64, strict=False).alias("end"),
            "grade",
            pl.col("doc").alias("judged"),
        )
        .join(known.rename({"doc": "source"}), on="source", how="semi")
    )
    return pl.concat([whole, chunks])


def match_judgments(chunks: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return query, doc, judged and grade: which judged span applies to which chunk.

    A span applies to the chunks with which it shares half of the shorter of the two, and to the
    chunk with which it shares most, so that no judgment is lost to a cut in its middle.
    """
    start = pl.max_horizontal("start", "start_judged")
    end = pl.min_horizontal("end", "end_judged")
    shorter = pl.min_horizontal(
        pl.col("end") - pl.col("start"), pl.col("end_judged") - pl.col("start_judged")
    )
    pairs = chunks.select("doc", "source", "start", "end").join(
        spans.with_row_index("span"), on="source", suffix="_judged", maintain_order="right_left"
    )
    shares_most = pl.col("shared") == pl.max("shared").over("span")
    return (
        pairs.with_columns(pl.col("end_judged").fill_null(pl.max("end").over("source")))
        .with_columns(shared=end - start)
        .filter(pl.col("shared") > 0)
        .filter((2 * pl.col("shared") >= shorter) | shares_most)
        .select("query", "doc", "judged", pl.col("grade").cast(pl.Int64))
    )
