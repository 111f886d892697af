"""BM25 by bm25s, with the words of English or French brought to their stems by Snowball.

    score(q, d) = Σ over words t of q:  idf(t) · tf / (tf + k1 · (1 − b + b · |d|/mean |d|))

is the `lucene` form, with idf(t) = ln(1 + (N − n + ½)/(n + ½)) where n of N documents hold t.
"""

from __future__ import annotations

import logging
import re
import time
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.data.columns import row_ids
from rankproof.foundation.arrays import Array
from rankproof.foundation.config import NonNegative, Settings, Share
from rankproof.foundation.errors import InputError, import_extra
from rankproof.retrieval.archive import read_archive, write_archive
from rankproof.retrieval.components import part
from rankproof.retrieval.languages import WORD
from rankproof.retrieval.protocols import Retrieved
from rankproof.retrieval.ranked_lists import check_depth, run_from_rows, time_each

_FILE = "bm25.npz"
_KIND = "BM25 (2)"  # counted on when the words of a text are found otherwise

_POSSESSIVE = re.compile(r"['’ʼ]s\b")
# The accents of Latin letters, and what lies beyond, some of which is marks too.
_MARKS, _BEYOND = re.compile("[\u0300-\u034e\u0350-\u036f]+"), re.compile("[\u0370-\U0010ffff]+")
_ELISION = re.compile(r"\b(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu)['’ʼ](?=\w)")


class Words:
    """Texts → the stems of their words, in a language; `none` leaves the words as they are.

    Case, accents and ligatures do not tell words apart. English loses the possessive 's, French
    its elisions (l'eau, qu'elle); a single letter is a word ("vitamin C"), and so is a character of
    Chinese or Japanese. French is stemmed
    before its accents go, since its endings need them; English after.
    """

    def __init__(self, language: str):
        stemmer = import_extra("Stemmer", "BM25", "retrieval").Stemmer
        stopwords = import_extra("bm25s.stopwords", "BM25", "retrieval")
        self.language = language
        self._stop: frozenset[str] = frozenset()
        if language == "en":
            self._stop = frozenset(stopwords.STOPWORDS_EN)
            self._stem = stemmer("english").stemWords
        elif language == "fr":
            # Its letters (l, d, …) are elisions, which are gone by then.
            long = (w for w in stopwords.STOPWORDS_FRENCH if len(w) > 1)
            self._stop = frozenset(_fold(w) for w in (*long, "à", "y"))
            self._stem = stemmer("french").stemWords

    def __call__(self, text: str) -> list[str]:
        text = unicodedata.normalize("NFKC", text).casefold()
        text = text.replace("œ", "oe").replace("æ", "ae")
        if self.language == "en":
            words = WORD.findall(_fold(_POSSESSIVE.sub("", text)))
            return list(self._stem([w for w in words if w not in self._stop]))
        if self.language == "fr":
            words = WORD.findall(_ELISION.sub("", text))
            kept = [w for w in words if _folded(w) not in self._stop]
            return [_folded(w) for w in self._stem(kept)]
        return WORD.findall(_fold(text))


def _fold(text: str) -> str:
    """A text without its accents."""
    if text.isascii():
        return text
    parts = _MARKS.sub("", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", _BEYOND.sub(_without_marks, parts))


def _without_marks(found: re.Match[str]) -> str:
    return "".join(c for c in found[0] if not unicodedata.combining(c))


_folded = lru_cache(1 << 16)(_fold)  # for words, which come again


class Bm25Settings(Settings):
    """BM25 with a stemmer and stop words of a language."""

    type: Literal["bm25"] = "bm25"
    language: Literal["en", "fr", "none"] = "en"
    k1: NonNegative = 1.2
    b: Share = 0.75
    method: Literal["lucene", "robertson", "atire", "bm25+", "bm25l"] = "lucene"

    @property
    def decides(self) -> dict[str, str]:
        """How words are found, which no setting says."""
        return {"words": _KIND}


class Bm25:
    """An inverted index of documents, each word's share of the score worked out beforehand.

    >>> from rankproof.retrieval.sparse.bm25 import Bm25
    >>> bm25 = Bm25(["Whales breathe air.", "Sharks are fish."], ["whales", "sharks"])
    >>> bm25.search(["What do whales breathe?"], k=2).run.doc.to_list()
    ['whales']
    """

    def __init__(
        self,
        documents: Sequence[str],
        document_ids: Sequence[str] | None = None,
        settings: Bm25Settings | None = None,
    ):
        self.settings = settings or Bm25Settings()
        self.document_ids = row_ids(document_ids, len(documents), "document_ids")
        self._words = Words(self.settings.language)
        begun = time.perf_counter()
        self._vocabulary: dict[str, int] = {}
        code = self._vocabulary.setdefault
        tokens = [
            [code(word, len(self._vocabulary)) for word in self._words(text)] for text in documents
        ]
        if not self._vocabulary:
            raise InputError(
                "no word to index" if documents else "no documents to index",
                place="BM25",
                remedy="give texts",
            )
        self._engine = _engine(self.settings)
        self._engine.index(
            (tokens, self._vocabulary), create_empty_token=False, show_progress=False
        )
        self.build_seconds = time.perf_counter() - begun

    @property
    def name(self) -> str:
        return "bm25"

    @property
    def bytes(self) -> int:
        """Postings and offsets, and the text of the vocabulary."""
        arrays = (self._engine.scores[part] for part in ("data", "indices", "indptr"))
        text = sum(len(word.encode()) for word in self._vocabulary)
        return int(sum(a.nbytes for a in arrays)) + text

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """The k best documents of each query; those that score nothing are left out.

        Of equal scores the document that comes first is kept; `Run.cut` counts the others.
        """
        check_depth(k)
        best, seconds = time_each(queries, lambda text: self.best(text, k))
        cut = np.array([left for *_, left in best], np.int64)
        found = [(rows, scores) for rows, scores, _ in best]
        run = run_from_rows(self.name, query_ids, self.document_ids, found, "float32", cut)
        return Retrieved(run, seconds)

    def best(self, text: str, k: int) -> tuple[Array, Array, int]:
        """Rows and scores of one query, and how many tie with the last but are left out."""
        return _best(*self._score(text), k)

    def _score(self, text: str) -> tuple[Array, float]:
        """(N,) scores, and the score of a document that holds none of the words."""
        known = [self._vocabulary[word] for word in self._words(text) if word in self._vocabulary]
        if not known:
            return np.zeros(len(self.document_ids), np.float32), 0.0
        scores: Array = self._engine.get_scores_from_ids(known)
        absent = self._engine.nonoccurrence_array  # bm25+ and bm25l give something for nothing
        return scores, 0.0 if absent is None else float(absent[np.array(known)].sum())

    def save(self, folder: str | Path) -> Path:
        """Write the index into a folder: all of it or nothing."""
        engine = self._engine
        said = {
            "settings": self.settings.model_dump(),
            "build_seconds": self.build_seconds,
            "vocabulary": list(self._vocabulary),
            "document_ids": self.document_ids.to_list(),
        }
        arrays = {part: engine.scores[part] for part in ("data", "indices", "indptr")}
        if engine.nonoccurrence_array is not None:
            arrays["absent"] = engine.nonoccurrence_array
        return write_archive(Path(folder) / _FILE, _KIND, said, arrays)

    @classmethod
    def load(cls, folder: str | Path) -> Bm25:
        """An index that was saved; InputError where there is none or it cannot be read."""
        said, arrays = read_archive(Path(folder) / _FILE, _KIND)
        index = cls.__new__(cls)
        index.settings = Bm25Settings.model_validate(said["settings"])
        index.document_ids = pl.Series(said["document_ids"], dtype=pl.String)
        index.build_seconds = said["build_seconds"]
        index._words = Words(index.settings.language)
        index._vocabulary = {word: code for code, word in enumerate(said["vocabulary"])}
        index._engine = _engine(index.settings)
        index._engine.scores = {
            **{part: arrays[part] for part in ("data", "indices", "indptr")},
            "num_docs": len(index.document_ids),
        }
        index._engine.nonoccurrence_array = arrays.get("absent")
        return index


def _engine(settings: Bm25Settings) -> Any:
    bm25s = import_extra("bm25s", "BM25", "retrieval")
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it speaks of every step otherwise
    return bm25s.BM25(k1=settings.k1, b=settings.b, method=settings.method)


def _best(scores: Array, floor: float, k: int) -> tuple[Array, Array, int]:
    """Rows and scores of the k best above the floor, and how many tie with the last but are out."""
    rows = np.flatnonzero(scores > floor)
    left = 0
    if len(rows) > k:
        values = scores[rows]
        bar = np.partition(values, len(values) - k)[len(values) - k]
        above, level = rows[values > bar], rows[values == bar]
        left = len(above) + len(level) - k
        rows = np.concatenate([above, level[: k - len(above)]])
    rows = rows[np.lexsort((rows, -scores[rows]))]
    return rows, scores[rows].astype(np.float64), left


@part(
    "sparse",
    "bm25",
    extra="retrieval",
    imports=("bm25s", "Stemmer"),
    packages=("bm25s", "PyStemmer"),
)
def make_bm25(
    settings: Bm25Settings,
    documents: Sequence[str],
    document_ids: Sequence[str] | None = None,
    folder: Path | None = None,
) -> Bm25:
    """Built, or taken from the folder where it was kept."""
    if folder is None:
        return Bm25(documents, document_ids, settings)
    try:
        return Bm25.load(folder)
    except InputError:  # not built yet, or killed while it was written
        built = Bm25(documents, document_ids, settings)
        built.save(folder)
        return built
