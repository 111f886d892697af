"""Recognize runs whose ids are not those of the judgments.

After a corpus was chunked or numbered again, no listed document is judged, and every score is 0. A
sound run on a large corpus with few judgments also lists mostly unjudged documents. So ids count as
changed only in two cases:

- nearly all queries list only documents that no query's judgments know, and next to nothing
  relevant is listed; or
- a fifth of the queries list only unknown documents, while the others list mostly known ones.

Documents are looked up for a sample of queries, so that a large run costs nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from rankproof.data.tables import Qrels, Run
from rankproof.evaluation.matching import MatchedJudgments
from rankproof.foundation.arrays import Int
from rankproof.foundation.phrasing import out_of

_MOSTLY_UNKNOWN = 0.95  # share of queries with only unknown documents: all ids changed
_SOME_UNKNOWN = 0.2  # the same: some ids changed, if the other queries are familiar
_FEWEST = 5  # queries with only unknown documents: fewer may be chance
_FAMILIAR = 0.5  # largest unknown share of the other queries; above, the run is just different
_HARDLY_ANY = 0.02  # share of the relevant documents that the lists could hold: practically none
_SAMPLE = 200  # queries of a kind whose documents are looked up
_DEPTH = 50  # documents looked up of each


@dataclass(frozen=True, slots=True)
class IdProfile:
    """How well the documents of a run are known to the judgments; profiles of parts add up."""

    queries: int  # judged queries that the run answers
    unknown: float  # of these, how many list only unknown documents (estimated from a sample)
    other_queries: int  # sampled queries that list a judged document
    other_unknown: float  # sum of their shares of unknown documents
    relevant: int  # relevant documents listed
    capacity: int  # relevant documents that lists of these lengths could hold
    unicode_form: str = ""  # how ids differ if only their Unicode form does

    @property
    def problem(self) -> str:
        """Return why the ids seem to have changed; "" if they do not."""
        if not self.queries:
            return ""
        unknown_share = self.unknown / self.queries
        hardly_any = self.relevant <= _HARDLY_ANY * self.capacity
        all_changed = unknown_share >= _MOSTLY_UNKNOWN and hardly_any
        some_changed = (
            unknown_share >= _SOME_UNKNOWN
            and self.unknown >= _FEWEST
            and self.other_queries > 0
            and self.other_unknown / self.other_queries < _FAMILIAR
        )
        if not all_changed and not some_changed:
            return ""
        queries = out_of(round(self.unknown), self.queries, "query", "returns", "return")
        reason = f"ids differ in Unicode form: {self.unicode_form}." if self.unicode_form else ""
        return f"{queries} no document that the judgments know; {reason or 'did ids change?'}"


def merge_id_profiles(parts: Iterable[IdProfile]) -> IdProfile:
    """Return the profile of a run from those of its parts."""
    parts = list(parts)
    return IdProfile(
        queries=sum(part.queries for part in parts),
        unknown=sum(part.unknown for part in parts),
        other_queries=sum(part.other_queries for part in parts),
        other_unknown=sum(part.other_unknown for part in parts),
        relevant=sum(part.relevant for part in parts),
        capacity=sum(part.capacity for part in parts),
        unicode_form=next((part.unicode_form for part in parts if part.unicode_form), ""),
    )


def profile_ids(
    run: Run, qrels: Qrels, matched: MatchedJudgments, known: pl.Series | None = None
) -> IdProfile:
    """Return how well the judgments know a run's documents.

    `known` has documents that are known beside the judged ones, such as a baseline's.
    """
    queries = len(matched.listed)
    is_answered = matched.listed >= 0
    is_listed = matched.row >= 0
    is_relevant = matched.grade >= 1
    has_judged = np.bincount(matched.query[is_listed], minlength=queries) > 0
    relevant = np.bincount(matched.query[is_relevant], minlength=queries)
    lengths = np.append(np.diff(run.start), 0)[matched.listed]  # 0 for a missing query
    profile = IdProfile(
        queries=int(is_answered.sum()),
        unknown=0,
        other_queries=0,
        other_unknown=0.0,
        relevant=int((is_listed & is_relevant).sum()),
        capacity=int(np.minimum(lengths, relevant).sum()),
    )
    without = np.flatnonzero(is_answered & ~has_judged)
    if len(without) < _SOME_UNKNOWN * profile.queries or not len(without):
        return profile
    others = np.flatnonzero(is_answered & has_judged)
    judged_ids = qrels.doc if known is None else pl.concat([qrels.doc, known])
    judged_ids = judged_ids.unique()
    new_share, new_ids = _unknown_shares(run, matched.listed[_spread(without)], judged_ids)
    other_share, _ = _unknown_shares(run, matched.listed[_spread(others)], judged_ids)
    if not len(new_share):  # all of these lists are empty
        return profile
    return replace(
        profile,
        unknown=float((new_share == 1.0).mean()) * len(without),
        other_queries=len(other_share),
        other_unknown=float(other_share.sum()),
        unicode_form=unicode_difference(qrels.doc, qrels.name, new_ids, run.name),
    )


def _spread(queries: Int) -> Int:
    """Return at most `_SAMPLE` of the queries, evenly spread."""
    if len(queries) <= _SAMPLE:
        return queries
    return queries[np.linspace(0, len(queries) - 1, _SAMPLE).astype(np.int64)]


def _unknown_shares(run: Run, queries: Int, known: pl.Series) -> tuple[np.ndarray, pl.Series]:
    """Return (n,) the share of unknown documents of each of the run's queries, and their ids."""
    rows = [np.arange(run.start[q], min(run.start[q + 1], run.start[q] + _DEPTH)) for q in queries]
    rows = [row for row in rows if len(row)]
    if not rows:
        return np.zeros(0), run.doc.head(0)
    number = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    doc = run.doc.gather(np.concatenate(rows))
    is_new = ~doc.is_in(known.implode()).to_numpy()
    shares = np.bincount(number, is_new) / np.bincount(number)
    return shares, doc.filter(pl.Series(is_new))


def unicode_difference(known: pl.Series, known_name: str, ids: pl.Series, name: str) -> str:
    """Return "NFC in qrels, NFD in run" if unknown ids are known ones in another Unicode form."""
    unknown = [text for text in ids.unique().to_list() if not str(text).isascii()]
    if not unknown:
        return ""
    known_ids = {str(text) for text in known.unique().to_list() if not str(text).isascii()}
    by_form = {unicodedata.normalize("NFC", text): text for text in known_ids}
    for text in map(str, unknown):
        twin = by_form.get(unicodedata.normalize("NFC", text))
        if twin is not None and twin != text:
            return f"{_form(twin)} in {known_name}, {_form(text)} in {name}"
    return ""


def _form(text: str) -> str:
    forms = ("NFC", "NFD", "NFKC", "NFKD")
    return next((f for f in forms if unicodedata.is_normalized(f, text)), "no normal form")  # type: ignore[arg-type]
