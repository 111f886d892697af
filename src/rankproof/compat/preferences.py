"""Judgments by several annotators, as `rankproof trec_eval -R` reads them.

    qrels_jg      query annotator document grade
    qrels_prefs   the same columns; of two documents the one with the higher grade is preferred
    prefs         query annotator part document level; only documents of one part are compared

A preference is a pair of documents of which an annotator prefers one. A run satisfies it if it
ranks the preferred document above the other, or lists that document alone. trec_eval takes shares
of satisfied preferences over three sets of pairs (`Scope`): all; those with both documents listed
("ret"); those with at least one listed ("imp").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from rankproof.data.sources import Source
from rankproof.data.tables import Run
from rankproof.data.trec import place_in, split_fields
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural

Form = Literal["qrels_jg", "qrels_prefs", "prefs"]
Scope = Literal["", "ret", "imp"]
_COLUMNS = ["query", "person", "part", "doc", "level"]  # as error messages name them


def read_annotators(path: str, form: Form) -> pl.DataFrame:
    """Read judgments as columns query, person, part, doc and level, sorted by the first three."""
    source = Source(path)
    lines, fields = split_fields(source.text())
    names = _COLUMNS if form == "prefs" else [name for name in _COLUMNS if name != "part"]
    place = place_in(source)
    if not len(lines):
        raise InputError("there are no judgements", place=source.label, remedy="check the file")
    _refuse_rows(
        fields.list.len() != len(names),
        place,
        lambda row: plural(len(fields[row]), "column"),
        remedy=f"write {' '.join(names)}",
    )
    frame = pl.DataFrame({name: fields.list.get(at) for at, name in enumerate(names)})
    level = frame["level"].cast(pl.Float64, strict=False)
    _refuse_rows(
        ~level.is_finite().fill_null(False),
        place,
        lambda row: f"{fields[row][-1]} is not a number",
        remedy="write a level such as 1",
    )
    frame = frame.with_columns(level=level, part=pl.lit("") if "part" not in names else "part")
    _refuse_rows(
        ~frame.select(pl.struct(_COLUMNS[:-1]).is_first_distinct()).to_series(),
        place,
        lambda row: f"document {shorten(frame['doc'][row])} comes a second time",
        remedy="keep one of the two",
    )
    return frame.select(_COLUMNS).sort(_COLUMNS[:3], maintain_order=True)


def _refuse_rows(
    is_wrong: pl.Series, place: Callable[[int], str], problem: Callable[[int], str], *, remedy: str
) -> None:
    """Raise InputError for the first row that is wrong."""
    if is_wrong.any():
        row = int(is_wrong.arg_max() or 0)
        raise InputError(problem(row), place=place(row), remedy=remedy)


class _Share(NamedTuple):
    """Preferences that the run satisfies, and all preferences, of one annotator and query."""

    satisfied: int
    total: int


@dataclass(frozen=True, slots=True)
class _AnnotatorPreferences:
    """One annotator's preferences among the n documents of a query.

    Documents stand in the order of the list, those that are not listed last.
    """

    preferred: Bool  # (n, n) True if the document of the row is preferred to that of the column
    level: Float  # (n,) NaN where the annotator did not judge the document
    has_one_part: bool  # so that all judged documents are compared
    listed: int  # the first documents, which the run lists

    def share(self, scope: Scope) -> _Share:
        """Return the satisfied and all preferences among the pairs of a scope."""
        preferred, n = self.preferred, self.listed
        among_listed = preferred[:n, :n]
        satisfied = int(np.triu(among_listed, 1).sum())
        if scope == "ret":
            return _Share(satisfied, int(among_listed.sum()))
        satisfied += int(preferred[:n, n:].sum())
        among_not_listed = int(preferred[n:, n:].sum())
        total = int(preferred.sum())
        return _Share(satisfied, total if scope == "" else total - among_not_listed)

    def balanced_share(self, scope: Scope) -> _Share:
        """Return the share with as many non-relevant documents as relevant ones (Rnonrel).

        Of too many non-relevant documents the first are taken; too few are filled up with documents
        ranked below all others.
        """
        relevant = self.level > 0
        non_relevant = self.level <= 0 if self.has_one_part else self.level == 0
        n = self.listed if scope == "ret" else len(self.level)
        relevant_count, non_relevant_count = int(relevant[:n].sum()), int(non_relevant[:n].sum())
        if relevant_count >= non_relevant_count:
            share = self.share(scope)
            added = relevant_count - non_relevant_count
            return _Share(
                share.satisfied + int(relevant[: self.listed].sum()) * added,
                share.total + int(relevant.sum()) * added,
            )
        preferred = self.preferred.copy()
        if self.has_one_part:
            # As trec_eval does: only the first documents of the lowest level count, as if each
            # judged document, those of that level included, were preferred to them.
            lowest = np.flatnonzero(self.level == np.nanmin(self.level))
            preferred[:, lowest] = False
            preferred[np.ix_(~np.isnan(self.level), lowest[:relevant_count])] = True
        else:
            surplus = np.flatnonzero(non_relevant)[int(relevant.sum()) :]
            preferred[surplus] = preferred[:, surplus] = False
        return replace(self, preferred=preferred).share(scope)


def _transitive_closure(preferred: Bool) -> Bool:
    """Return the preferences with all that follow: a over b and b over c means a over c."""
    while True:
        steps = preferred.astype(np.float32)
        closed = preferred | (steps @ steps > 0)
        if np.array_equal(closed, preferred):
            return preferred
        preferred = closed


def _by_annotator(lines: pl.DataFrame, listed: int) -> Iterator[_AnnotatorPreferences]:
    """Yield the preferences of each annotator of a query; column `at` numbers the documents."""
    count = int(lines["at"].to_numpy().max(initial=0)) + 1
    for _, annotator_lines in lines.group_by("person", maintain_order=True):
        parts = annotator_lines.partition_by("part", maintain_order=True)
        preferred, last_level = np.zeros((count, count), np.bool_), np.full(count, np.nan)
        for part in parts:
            level = np.full(count, np.nan)
            level[part["at"].to_numpy()] = part["level"].to_numpy()
            preferred |= level[:, None] > level[None, :]
            is_mixed = ((level > 0) & (last_level == 0)) | ((level == 0) & (last_level > 0))
            if is_mixed.any():
                problem = "has both level 0 and another"
                raise _contradiction(annotator_lines, int(is_mixed.argmax()), problem)
            last_level = np.where(np.isnan(level), last_level, level)
        if len(parts) > 1:
            preferred = _transitive_closure(preferred)
            is_in_circle = preferred.diagonal()
            if is_in_circle.any():
                problem = "is preferred to one that is preferred to it"
                raise _contradiction(annotator_lines, int(is_in_circle.argmax()), problem)
        yield _AnnotatorPreferences(preferred, last_level, len(parts) == 1, listed)


def _contradiction(lines: pl.DataFrame, at: int, problem: str) -> InputError:
    """Return the error for document `at`, of which one annotator says contrary things."""
    query, person, _, doc, *_ = lines.row(lines["at"].to_list().index(at))
    return InputError(
        f"document {shorten(doc)} {problem}",
        place=f"query {shorten(query)}, person {shorten(person)}",
        remedy="give contrary judgements to different people",
    )


def _mean_pair_share(annotators: list[_AnnotatorPreferences], scope: Scope) -> float:
    """Return prefs_pair: the share of satisfied preferences of each pair of documents, averaged.

    A pair that several annotators compared counts once.
    """
    votes: Int = np.stack([a.preferred for a in annotators]).sum(axis=0, dtype=np.int64)
    n, pair_votes = annotators[0].listed, votes + votes.T
    listed, not_listed = slice(n), slice(n, None)
    blocks = [(listed, listed)] if scope == "ret" else [(listed, listed), (listed, not_listed)]
    upper = np.triu(pair_votes, 1)  # each pair once
    shares: list[Array] = []
    for block in blocks:  # summed in trec_eval's order, which decides the last bit
        is_compared = upper[block] > 0
        shares.append(votes[block][is_compared] / pair_votes[block][is_compared])
    values = np.concatenate(shares)
    pairs = len(values)
    if scope == "":
        pairs += int((upper[n:, n:] > 0).sum())
    return float(np.cumsum(values)[-1]) / pairs if len(values) and pairs else 0.0


def _mean_share(shares: list[_Share]) -> float:
    """Return the mean over annotators; 0 if one of them has no preference (0/0 in trec_eval)."""
    total = 0.0
    for share in shares:
        total += share.satisfied / share.total if share.total else np.nan
    return total / len(shares) if total > 0 else 0.0


def _query_values(annotators: list[_AnnotatorPreferences]) -> dict[str, float]:
    """Return trec_eval's preference measures of one query by name."""
    values: dict[str, float] = {}
    scopes: tuple[Scope, ...] = ("", "ret", "imp")
    for scope in scopes:
        suffix = f"_{scope}" if scope else ""
        shares = [annotator.share(scope) for annotator in annotators]
        satisfied, total = (sum(column) for column in zip(*shares, strict=True))
        if scope != "imp":
            values[f"prefs_num_prefs_ful{suffix}"] = satisfied
            balanced = [annotator.balanced_share(scope) for annotator in annotators]
            values[f"prefs_avgjg_Rnonrel{suffix}"] = _mean_share(balanced)
        if scope == "":
            values["prefs_num_prefs_poss"] = total
        values[f"prefs_simp{suffix}"] = satisfied / total if total else 0.0
        values[f"prefs_pair{suffix}"] = _mean_pair_share(annotators, scope)
        values[f"prefs_avgjg{suffix}"] = _mean_share(
            [_Share(share.satisfied, max(share.total, 1)) for share in shares]
        )
    return values


def evaluate_preferences(judged: pl.DataFrame, run: Run) -> tuple[list[str], dict[str, Float]]:
    """Return the queries of judgments and run, ascending, and a column (Q,) for each measure.

    The run's ties are already broken.
    """
    rows = run.to_frame().rename({"score": "place"})  # minus the rank
    judged = judged.filter(pl.col("query").is_in(run.queries.implode()))
    lines = judged.join(rows, on=["query", "doc"], how="left", maintain_order="left")
    # Number the documents of each query: listed ones by rank, then the others by id.
    key = ["query", "place", "doc"]
    documents = lines.select(key).unique()
    documents = documents.sort(key, descending=[False, True, False], nulls_last=True)
    documents = documents.with_columns(at=pl.int_range(pl.len()).over("query"))
    lines = lines.join(documents.drop("place"), on=["query", "doc"], maintain_order="left")
    queries: list[str] = []
    values: list[dict[str, float]] = []
    for (query,), query_lines in lines.group_by("query", maintain_order=True):
        is_listed = query_lines["place"].is_not_null()
        listed = query_lines.filter(is_listed)["doc"].n_unique()
        queries.append(str(query))
        values.append(_query_values(list(_by_annotator(query_lines, listed))))
    names = values[0] if values else {}
    return queries, {name: np.array([row[name] for row in values]) for name in names}
