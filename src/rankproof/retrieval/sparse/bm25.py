"""BM25 by the library bm25s, over words stemmed by Snowball in English or French.

    score(q, d) = Σ over words t of q:  idf(t) · tf / (tf + k1 · (1 − b + b · |d|/mean |d|))

is the `lucene` form, with idf(t) = ln(1 + (N − n + ½)/(n + ½)) where n of N documents contain t.
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
_KIND = "BM25 (2)"  # the number grows when texts are split into words differently

_POSSESSIVE = re.compile(r"['’ʼ]s\b")
# Accents of Latin letters; and all later characters, some of which are combining marks too.
_MARKS, _BEYOND = re.compile("[\u0300-\u034e\u0350-\u036f]+"), re.compile("[\u0370-\U0010ffff]+")
_ELISION = re.compile(r"\b(?:[cdjlmnst]|qu|jusqu|lorsqu|puisqu|quoiqu)['’ʼ](?=\w)")


class Words:
    """Splits a text into the stems of its words; the language `none` leaves words as they are.

    Case, accents and ligatures make no difference. English loses the possessive 's, French its
    elisions (l'eau, qu'elle). A single letter is a word ("vitamin C"), and so is a character of
    Chinese or Japanese. French is stemmed before its accents are removed, since its endings need
    them; English afterwards.
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
            # Single letters (l, d, …) are elisions, which are removed before.
            long = (w for w in stopwords.STOPWORDS_FRENCH if len(w) > 1)
            self._stop = frozenset(_fold(w) for w in (*long, "à", "y"))
            self._stem = stemmer("french").stemWords

    def __call__(self, text: str) -> list[str]:
        """Return the stems of the words of a text, without stop words."""
        text = unicodedata.normalize("NFKC", text).casefold()
        text = text.replace("œ", "oe").replace("æ", "ae")
        if self.language == "en":
            words = WORD.findall(_fold(_POSSESSIVE.sub("", text)))
            return list(self._stem([w for w in words if w not in self._stop]))
        if self.language == "fr":
            words = WORD.findall(_ELISION.sub("", text))
            content_words = [w for w in words if _fold_word(w) not in self._stop]
            return [_fold_word(w) for w in self._stem(content_words)]
        return WORD.findall(_fold(text))


def _fold(text: str) -> str:
    """Return a text without accents."""
    if text.isascii():
        return text
    letters = _MARKS.sub("", unicodedata.normalize("NFD", text))
    return unicodedata.normalize("NFC", _BEYOND.sub(_without_marks, letters))


def _without_marks(match: re.Match[str]) -> str:
    return "".join(c for c in match[0] if not unicodedata.combining(c))


_fold_word = lru_cache(1 << 16)(_fold)  # words repeat


class Bm25Settings(Settings):
    """BM25 with a stemmer and stop words of a language."""

    type: Literal["bm25"] = "bm25"
    language: Literal["en", "fr", "none"] = "en"
    k1: NonNegative = 1.2
    b: Share = 0.75
    method: Literal["lucene", "robertson", "atire", "bm25+", "bm25l"] = "lucene"

    @property
    def decides(self) -> dict[str, str]:
        """The version of the splitting into words, which no key states."""
        return {"words": _KIND}


class Bm25:
    """An inverted index of documents with the score of each word computed beforehand.

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
        start = time.perf_counter()
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
        self.build_seconds = time.perf_counter() - start

    @property
    def name(self) -> str:
        return "bm25"

    @property
    def bytes(self) -> int:
        """Size of postings, offsets and the vocabulary."""
        arrays = (self._engine.scores[part] for part in ("data", "indices", "indptr"))
        text = sum(len(word.encode()) for word in self._vocabulary)
        return int(sum(a.nbytes for a in arrays)) + text

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """Return the k best documents of each query, without those that contain none of its words.

        Of equal scores the first documents are kept; `Run.cut` counts the others.
        """
        check_depth(k)
        best, seconds = time_each(queries, lambda text: self.best(text, k))
        cut = np.array([ties for *_, ties in best], np.int64)
        lists = [(rows, scores) for rows, scores, _ in best]
        run = run_from_rows(self.name, query_ids, self.document_ids, lists, "float32", cut)
        return Retrieved(run, seconds)

    def best(self, text: str, k: int) -> tuple[Array, Array, int]:
        """Return rows and scores of one query, and how many others tie with the last."""
        return _select_best(*self._score(text), k)

    def _score(self, text: str) -> tuple[Array, float]:
        """Return (N,) scores, and the score of a document that contains none of the words."""
        known = [self._vocabulary[word] for word in self._words(text) if word in self._vocabulary]
        if not known:
            return np.zeros(len(self.document_ids), np.float32), 0.0
        scores: Array = self._engine.get_scores_from_ids(known)
        absent = self._engine.nonoccurrence_array  # bm25+ and bm25l: scores of missing words
        return scores, 0.0 if absent is None else float(absent[np.array(known)].sum())

    def save(self, folder: str | Path) -> Path:
        """Write the index into a folder: all of it or nothing."""
        engine = self._engine
        header = {
            "settings": self.settings.model_dump(),
            "build_seconds": self.build_seconds,
            "vocabulary": list(self._vocabulary),
            "document_ids": self.document_ids.to_list(),
        }
        arrays = {part: engine.scores[part] for part in ("data", "indices", "indptr")}
        if engine.nonoccurrence_array is not None:
            arrays["absent"] = engine.nonoccurrence_array
        return write_archive(Path(folder) / _FILE, _KIND, header, arrays)

    @classmethod
    def load(cls, folder: str | Path) -> Bm25:
        """Load a saved index; raise InputError where there is none or it cannot be read."""
        header, arrays = read_archive(Path(folder) / _FILE, _KIND)
        index = cls.__new__(cls)
        index.settings = Bm25Settings.model_validate(header["settings"])
        index.document_ids = pl.Series(header["document_ids"], dtype=pl.String)
        index.build_seconds = header["build_seconds"]
        index._words = Words(index.settings.language)
        index._vocabulary = {word: code for code, word in enumerate(header["vocabulary"])}
        index._engine = _engine(index.settings)
        index._engine.scores = {
            **{part: arrays[part] for part in ("data", "indices", "indptr")},
            "num_docs": len(index.document_ids),
        }
        index._engine.nonoccurrence_array = arrays.get("absent")
        return index


def _engine(settings: Bm25Settings) -> Any:
    """Return an empty engine of bm25s with these settings."""
    bm25s = import_extra("bm25s", "BM25", "retrieval")
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs every step
    return bm25s.BM25(k1=settings.k1, b=settings.b, method=settings.method)


def _select_best(scores: Array, minimum: float, k: int) -> tuple[Array, Array, int]:
    """Return rows and scores of the k best above the minimum, and how many tie with the last."""
    rows = np.flatnonzero(scores > minimum)
    ties = 0
    if len(rows) > k:
        values = scores[rows]
        last = np.partition(values, len(values) - k)[len(values) - k]  # the k-th score
        above, tied = rows[values > last], rows[values == last]
        ties = len(above) + len(tied) - k
        rows = np.concatenate([above, tied[: k - len(above)]])
    rows = rows[np.lexsort((rows, -scores[rows]))]
    return rows, scores[rows].astype(np.float64), ties


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
    """Load the index from the folder, or build it and save it there."""
    if folder is None:
        return Bm25(documents, document_ids, settings)
    try:
        return Bm25.load(folder)
    except InputError:  # not built yet, or interrupted
        built = Bm25(documents, document_ids, settings)
        built.save(folder)
        return built
