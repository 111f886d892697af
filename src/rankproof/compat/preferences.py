"""Judgements of several people, as trec_eval reads them with -R: for `rankproof trec_eval` alone.

    qrels_jg      query person document grade
    qrels_prefs   the same; of two documents the one with the higher grade is preferred
    prefs         query person part document level; only documents of one part are compared

A preference holds where the preferred document is ranked above the other, or is listed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from rankproof.data.sources import Source
from rankproof.data.tables import Run
from rankproof.data.trec import place_in, split_fields
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural

Form = Literal["qrels_jg", "qrels_prefs", "prefs"]
_FIELDS = ["query", "person", "part", "doc", "level"]


def read_people(path: str, form: Form) -> pl.DataFrame:
    """Return a file's lines as query, person, part, doc, level, sorted by the first three."""
    source = Source(path)
    lines, fields = split_fields(source.text())
    names = _FIELDS if form == "prefs" else [name for name in _FIELDS if name != "part"]
    place = place_in(source)
    if not len(lines):
        raise InputError("there are no judgements", place=source.label, remedy="check the file")
    wrong = fields.list.len() != len(names)
    if wrong.any():
        at = int(wrong.arg_max() or 0)
        raise InputError(
            plural(len(fields[at]), "column"),
            place=place(at),
            remedy=f"write {' '.join(names)}",
        )
    frame = pl.DataFrame({name: fields.list.get(at) for at, name in enumerate(names)})
    level = frame["level"].cast(pl.Float64, strict=False)
    odd = ~level.is_finite().fill_null(False)
    frame = frame.with_columns(level=level, part=pl.lit("") if "part" not in names else "part")
    again = ~frame.select(pl.struct(_FIELDS[:-1]).is_first_distinct()).to_series()
    for bad, said, remedy in (
        (odd, "is not a number", "write a level such as 1"),
        (again, "comes a second time", "keep one of the two"),
    ):
        if bad.any():
            at = int(bad.arg_max() or 0)
            what = fields[at][-1] if bad is odd else f"document {shorten(frame['doc'][at])}"
            raise InputError(f"{what} {said}", place=place(at), remedy=remedy)
    return frame.select(_FIELDS).sort(_FIELDS[:3], maintain_order=True)


@dataclass(frozen=True, slots=True)
class _PersonPreferences:
    """One person's preferences among a query's documents, in list order, unlisted ones last."""

    above: Bool  # (n, n) whether the document of a row is preferred to that of a column
    level: Float  # (n,) NaN where the document was not judged
    one: bool  # there is one part, so that all documents are compared
    listed: int  # the first so many documents are in the list

    def count(self, above: Bool, among: str) -> tuple[int, int]:
        """Return how many preferences hold, and how many there are.

        `among` is "ret" for pairs of listed documents, "imp" for pairs with at least one listed,
        and "" for all.
        """
        n = self.listed
        pair_counts, held = above[:n, :n], int(np.triu(above[:n, :n], 1).sum())
        if among == "ret":
            return held, int(pair_counts.sum())
        held += int(above[:n, n:].sum())
        every = int(above.sum())
        return held, every if among == "" else every - int(above[n:, n:].sum())

    def count_balanced(self, among: str) -> tuple[int, int]:
        """Return `count` with as many non-relevant documents as there are relevant ones.

        Missing ones count as ranked last; of more than needed, the first are taken.
        """
        good, bad = self.level > 0, self.level <= 0 if self.one else self.level == 0
        n = self.listed if among == "ret" else len(self.level)
        wanted, others = int(good[:n].sum()), int(bad[:n].sum())
        if wanted >= others:
            held, every = self.count(self.above, among)
            more = wanted - others
            return held + int(good[: self.listed].sum()) * more, every + int(good.sum()) * more
        above = self.above.copy()
        if self.one:  # the lowest level, which is compared with itself, too
            last = np.flatnonzero(self.level == np.nanmin(self.level))
            above[:, last] = False
            above[np.ix_(~np.isnan(self.level), last[:wanted])] = True
        else:
            left_out = np.flatnonzero(bad)[int(good.sum()) :]
            above[left_out] = above[:, left_out] = False
        return self.count(above, among)


def _transitive_closure(above: Bool) -> Bool:
    """Return the transitive closure: with a > b and b > c also a > c."""
    while True:
        steps = above.astype(np.float32)
        more = above | (steps @ steps > 0)
        if np.array_equal(more, above):
            return above
        above = more


def _persons(lines: pl.DataFrame, listed: int) -> Iterator[_PersonPreferences]:
    """Yield the preferences of each person who judged a query.

    Column `at` of the lines numbers the documents.
    """
    count = int(lines["at"].to_numpy().max(initial=0)) + 1
    for _, of_person in lines.group_by("person", maintain_order=True):
        parts = of_person.partition_by("part", maintain_order=True)
        above, last = np.zeros((count, count), np.bool_), np.full(count, np.nan)
        for part in parts:
            level = np.full(count, np.nan)
            level[part["at"].to_numpy()] = part["level"].to_numpy()
            above |= level[:, None] > level[None, :]
            mixed = ((level > 0) & (last == 0)) | ((level == 0) & (last > 0))
            if mixed.any():
                raise _contradiction(of_person, int(mixed.argmax()), "has both level 0 and another")
            last = np.where(np.isnan(level), last, level)
        if len(parts) > 1:
            above = _transitive_closure(above)
            if above.diagonal().any():
                at = int(above.diagonal().argmax())
                raise _contradiction(
                    of_person,
                    at,
                    "is preferred to one that is preferred to it",
                )
        yield _PersonPreferences(above, last, len(parts) == 1, listed)


def _contradiction(lines: pl.DataFrame, at: int, problem: str) -> InputError:
    """Return the error for a document about which one person contradicts themselves."""
    query, person, _, doc, *_ = lines.row(lines["at"].to_list().index(at))
    return InputError(
        f"document {shorten(doc)} {problem}",
        place=f"query {shorten(query)}, person {shorten(person)}",
        remedy="give contrary judgements to different people",
    )


def _mean_pair_share(people: list[_PersonPreferences], among: str) -> float:
    """Return the mean, over pairs of documents, of the share of preferences that hold."""
    counts: Int = np.stack([person.above for person in people]).sum(axis=0, dtype=np.int64)
    n, pair_counts = people[0].listed, counts + counts.T
    blocks = [(slice(n), slice(n))] + [(slice(n), slice(n, None))] * (among != "ret")
    first = np.triu(pair_counts, 1)
    shares: list[Array] = []
    for block in blocks:  # trec_eval's order, in which they are summed
        compared = first[block] > 0
        shares.append(counts[block][compared] / pair_counts[block][compared])
    values = np.concatenate(shares)
    number = len(values) + (int((first[n:, n:] > 0).sum()) if among == "" else 0)
    return float(np.cumsum(values)[-1]) / number if len(values) and number else 0.0


def _mean(counts: list[tuple[int, int]]) -> float:
    """Return the mean share over people; 0 where one of them has none, as trec_eval prints 0/0."""
    total = 0.0
    for held, every in counts:
        total += held / every if every else np.nan
    return total / len(counts) if total > 0 else 0.0


def _values_of_query(people: list[_PersonPreferences]) -> dict[str, float]:
    """Return trec_eval's values of one query by name."""
    found: dict[str, float] = {}
    for among in ("", "ret", "imp"):
        end = f"_{among}" if among else ""
        counts = [person.count(person.above, among) for person in people]
        held, every = (sum(column) for column in zip(*counts, strict=True))
        if among != "imp":
            found[f"prefs_num_prefs_ful{end}"] = held
            balanced = [person.count_balanced(among) for person in people]
            found[f"prefs_avgjg_Rnonrel{end}"] = _mean(balanced)
        if not among:
            found["prefs_num_prefs_poss"] = every
        found[f"prefs_simp{end}"] = held / every if every else 0.0
        found[f"prefs_pair{end}"] = _mean_pair_share(people, among)
        found[f"prefs_avgjg{end}"] = _mean([(h, max(e, 1)) for h, e in counts])
    return found


def evaluate_preferences(judged: pl.DataFrame, run: Run) -> tuple[list[str], dict[str, Float]]:
    """Return the queries of judgments and run, ascending, and a column for each measure.

    The run's ties are already broken.
    """
    rows = run.to_frame().rename({"score": "place"})
    judged = judged.filter(pl.col("query").is_in(run.queries.implode()))
    lines = judged.join(rows, on=["query", "doc"], how="left", maintain_order="left")
    # The best come first, those not listed last and by their ids.
    key = ["query", "place", "doc"]
    documents = lines.select(key).unique()
    documents = documents.sort(key, descending=[False, True, False], nulls_last=True)
    documents = documents.with_columns(at=pl.int_range(pl.len()).over("query"))
    lines = lines.join(documents.drop("place"), on=["query", "doc"], maintain_order="left")
    names: list[str] = []
    rows_of: list[dict[str, float]] = []
    for (query,), of_query in lines.group_by("query", maintain_order=True):
        listed = of_query.filter(pl.col("place").is_not_null())["doc"].n_unique()
        names.append(str(query))
        rows_of.append(_values_of_query(list(_persons(of_query, listed))))
    columns = {name: np.array([row[name] for row in rows_of]) for name in (rows_of or [{}])[0]}
    return names, columns
