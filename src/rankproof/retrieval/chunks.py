"""Documents cut into chunks that know where they come from, and judgements that follow them.

A chunk ends at the coarsest boundary in the latter half of what it may hold: a separator, the end
of a sentence, the end of a word; only a word longer than a chunk is cut. Judgements belong to spans
of a document, so that they hold for chunks of any size: a chunk holds the judged spans with which
it shares at least half of the shorter of the two, or more than any other chunk does.

    shared(a, b) = min(end) − max(start) ≥ ½ · min(length of a, length of b)
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Annotated, Literal

import numpy as np
import polars as pl
from pydantic import Field, field_validator, model_validator

from rankproof.foundation.arrays import Int
from rankproof.foundation.config import Count, Settings
from rankproof.foundation.errors import InputError

_WORD = re.compile(r"\S+")
_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.*)$")
_FENCE = re.compile(r"^ {0,3}(```|~~~)")
# After . ! ? … and what closes with them, where space follows; Chinese and Japanese put none.
# Looked for from the first of them alone: of a line of dots each would be read from every other.
_SENTENCE = re.compile(
    r"[.!?…؟।](?<![.!?…؟।]{2})[.!?…؟।]*[\"'”’»)\]]*\s+|[。！？]+[」』”’）]*\s*|\n\s*\n"
)
SPAN = r"#(\d+)-(\d+)$"  # what a chunk's id adds to that of its document
_NAME = rf"^(.*){SPAN}"


class ChunkSettings(Settings):
    """How documents are cut."""

    size: Count = 1200  # characters of a chunk at most; about 300 tokens of English
    overlap: Annotated[int, Field(ge=0)] = 0  # characters of the one before, at most
    by: Literal["separators", "sentences"] = "separators"  # sentences: whole ones, while they fit
    separators: tuple[str, ...] = ("\n\n", "\n")  # the coarsest first; sentences and words follow
    headings: bool = False  # Markdown: cut at each heading; those above it are part of its text

    @field_validator("separators")
    @classmethod
    def _some(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value):
            raise InputError("an empty separator", remedy=r'write "\n\n", say')
        return value

    @model_validator(mode="after")
    def _moves_on(self) -> ChunkSettings:
        if 2 * self.overlap > self.size:
            raise InputError(
                f"overlap {self.overlap} is more than half of the size {self.size}",
                remedy="overlap less, or make the chunks larger",
            )
        return self


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk: text[start:end] of its document, and the headings that stand above it there."""

    start: int
    end: int
    headings: tuple[str, ...] = ()

    def name(self, document: str) -> str:
        """Its id, which says where it comes from."""
        return f"{document}#{self.start}-{self.end}"

    def read(self, text: str) -> str:
        """What is indexed of it."""
        above = [" > ".join(self.headings)] if self.headings else []
        return "\n".join([*above, text[self.start : self.end]])


def chunk(text: str, settings: ChunkSettings | None = None) -> list[Span]:
    """The spans of a text, in order; together they hold all of it but blanks between them."""
    chosen = settings or ChunkSettings()
    found = []
    sections = _sections(text) if chosen.headings else [(0, 0, len(text), (), ())]
    for low, head, high, above, within in sections:
        for at, (start, end) in enumerate(_cut(text, low, head, high, chosen)):
            found.append(Span(start, end, within if at else above))
    return found


Section = tuple[int, int, int, tuple[str, ...], tuple[str, ...]]
"""Start, end of its heading, end; the headings above it, and those above what follows its own."""


def heading(line: str) -> tuple[int, str] | None:
    """The level and the title of a line of Markdown that is a heading."""
    match = _HEADING.match(line)
    return None if match is None else (len(match[1]), match[2].rstrip(" \t#"))


def _sections(text: str) -> Iterator[Section]:
    """A section for each heading with something below it."""
    above: dict[int, str] = {}
    begins: list[tuple[int, int, str]] = []  # position, level, title
    at, fenced = 0, False
    for line in text.splitlines(keepends=True):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (found := heading(line.rstrip())):
            begins.append((at, *found))
        at += len(line)
    begins = [(0, 0, ""), *begins, (len(text), 0, "")]
    kept: int = 0
    outer: tuple[str, ...] | None = None  # above the first heading that is held back
    for (start, level, title), (end, _, _) in pairwise(begins):
        above = {other: name for other, name in above.items() if other < level}
        outer = tuple(above.values()) if outer is None else outer
        if level:
            above[level] = title
        body = text[start:end].strip()
        # A heading with nothing below it opens the section that follows.
        if end == len(text) or ("\n" in body if level else body):
            head = text.find("\n", start, end) if level else start
            yield kept, max(head, start), end, outer, tuple(above.values())
            kept, outer = end, None


def _cut(
    text: str, low: int, head: int, high: int, settings: ChunkSettings
) -> Iterator[tuple[int, int]]:
    """Spans of one section; its heading is not left alone."""
    spans = (m.span() for m in _WORD.finditer(text, low, high))
    words = np.fromiter(chain.from_iterable(spans), np.int64).reshape(-1, 2)
    if not len(words):
        return
    levels = list(_levels(text, low, high, words, settings))
    size, overlap, (start, last) = settings.size, settings.overlap, (words[0, 0], words[-1, 1])
    while last - start > size:
        end, following = _end(text, start, size, levels, head)
        yield int(start), int(end)
        begins = _again(text, words, end, settings, levels) if overlap else None
        begins = following if begins is None else begins
        # What is said twice must leave room for something new.
        fits = last if last - begins <= size else _end(text, begins, size, levels)[0]
        start = begins if start < begins and fits > end else following
    yield int(start), int(last)


Level = tuple[Int, Int, int]  # where a unit ends and the next begins, and how much comes before


def _levels(text: str, low: int, high: int, words: Int, settings: ChunkSettings) -> Iterator[Level]:
    half = settings.size // 2
    if settings.by == "separators":
        for separator in settings.separators:
            pattern = re.escape(separator).replace("\\\n", r"\r?\n")  # as Windows ends lines
            yield *_boundaries(pattern, text, low, high, words), half
    yield (
        *_boundaries(_SENTENCE, text, low, high, words),
        half if settings.by == "separators" else 0,
    )
    yield words[:-1, 1], words[1:, 0], 0


def _boundaries(
    pattern: str | re.Pattern[str], text: str, low: int, high: int, words: Int
) -> tuple[Int, Int]:
    """Where units end and the next ones begin, without the blanks between."""
    found = re.compile(pattern).finditer(text, low, high)
    at = np.fromiter((m.end() for m in found), np.int64)
    after = np.searchsorted(words[:, 0], at)  # the first word that begins there or later
    inside = (after > 0) & (after <= len(words))
    at, after = at[inside], after[inside]
    cuts = words[after - 1, 1] > at  # within a word
    kept = cuts | (after < len(words))
    at, after, cuts = at[kept], after[kept], cuts[kept]
    begins = words[np.minimum(after, len(words) - 1), 0]
    return np.where(cuts, at, words[after - 1, 1]), np.where(cuts, at, begins)


def _end(
    text: str, start: int, size: int, levels: Sequence[Level], head: int = 0
) -> tuple[int, int]:
    """Where a chunk from here ends, and what follows begins."""
    for past in (head, 0):
        for ends, begins, least in levels:
            at = int(np.searchsorted(ends, start + size, side="right")) - 1
            if at >= 0 and ends[at] > max(start + least, past):
                return int(ends[at]), int(begins[at])
    cut = _whole(text, start + size, start)
    return cut, cut


def _again(
    text: str, words: Int, end: int, settings: ChunkSettings, levels: Sequence[Level]
) -> int | None:
    """Where a chunk begins that repeats the end of the one before: at a word, or a sentence."""
    least = end - settings.overlap
    begins = words[:, 0] if settings.by == "separators" else levels[0][1]
    at = int(np.searchsorted(begins, least))
    if at < len(begins) and begins[at] < end:
        return int(begins[at])
    held = words[int(np.searchsorted(words[:, 0], least, side="right")) - 1]
    unparted = held[1] - held[0] > settings.size  # a script without blanks between words
    return _whole(text, least, least - settings.overlap) if unparted else None


def _whole(text: str, at: int, least: int) -> int:
    """A place at which no mark is parted from its letter."""
    first = at
    while at > least and (unicodedata.combining(text[at]) or text[at] in "\u200d\ufe0f"):
        at -= 1
    return at if at > least else first


# --------------------------------------------------------------------------------- a corpus


def chunk_documents(
    ids: Sequence[str], texts: Sequence[str], settings: ChunkSettings | None = None
) -> pl.DataFrame:
    """doc, source, start, end, text: every chunk of every document."""
    rows = [
        (span.name(name), name, span.start, span.end, span.read(text))
        for name, text in zip(ids, texts, strict=True)
        for span in chunk(text, settings)
    ]
    names = ("doc", "source", "start", "end", "text")
    kinds = (pl.String, pl.String, pl.Int64, pl.Int64, pl.String)
    return pl.DataFrame(rows, schema=dict(zip(names, kinds, strict=True)), orient="row")


def judged_spans(judgements: pl.DataFrame, documents: Iterable[str]) -> pl.DataFrame:
    """query, source, start, end, grade, judged of judgements (query, doc, grade): of a whole
    document, or of a chunk `document#start-end`; what is neither is left out."""
    known = pl.DataFrame({"doc": pl.Series(list(documents), dtype=pl.String)})
    whole = judgements.join(known, on="doc", how="semi").select(
        "query", pl.col("doc").alias("source"), pl.lit(0).alias("start"),
        pl.lit(None, pl.Int64).alias("end"), "grade", pl.col("doc").alias("judged"),
    )  # fmt: skip
    parts = pl.col("doc").str.extract_groups(_NAME)
    part = (
        judgements.join(known, on="doc", how="anti")
        .select(
            "query",
            parts.struct[0].alias("source"),
            parts.struct[1].cast(pl.Int64, strict=False).alias("start"),
            parts.struct[2].cast(pl.Int64, strict=False).alias("end"),
            "grade",
            pl.col("doc").alias("judged"),
        )
        .join(known.rename({"doc": "source"}), on="source", how="semi")
    )
    return pl.concat([whole.cast({"start": pl.Int64}), part])


def held_by(chunks: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """query, doc, judged, grade: which chunk holds which judged span.

    A chunk holds the spans with which it shares half of the shorter, and those with which no chunk
    shares more: no judgement is lost to a cut in its middle.
    """
    low, high = pl.max_horizontal("start", "start_judged"), pl.min_horizontal("end", "end_judged")
    shorter = pl.min_horizontal(
        pl.col("end") - pl.col("start"), pl.col("end_judged") - pl.col("start_judged")
    )
    met = chunks.select("doc", "source", "start", "end").join(
        spans.with_row_index("span"), on="source", suffix="_judged", maintain_order="right_left"
    )
    most = pl.col("shared") == pl.max("shared").over("span")
    return (
        met.with_columns(pl.col("end_judged").fill_null(pl.max("end").over("source")))
        .with_columns(shared=high - low)
        .filter(pl.col("shared") > 0)
        .filter((2 * pl.col("shared") >= shorter) | most)
        .select("query", "doc", "judged", pl.col("grade").cast(pl.Int64))
    )
