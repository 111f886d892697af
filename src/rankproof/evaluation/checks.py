"""What looks wrong with a run, judgements and measures that were brought together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from rankproof.arrays import Bool, Float, Int
from rankproof.errors import InputError, shorten
from rankproof.measures.registry import Measure, renamed
from rankproof.records.hits import RANKS
from rankproof.tables import Qrels, Run, Scale
from rankproof.ties import Ranking

_GRADES = 6  # a scale of judgements has hardly more steps
_SCORES = 12  # and what takes more values is hardly one


def swapped(run: Run, qrels: Qrels) -> tuple[str, bool]:
    """What looks like judgements for a run and a run for judgements, and whether it must be."""
    few = run.score[:_SCORES]  # of most runs these are enough
    if len(run) < 2 or len(qrels) < 2 or (few != np.trunc(few)).any() or few.max() >= _GRADES:
        return "", False
    if run.score.min() < 0 or run.score.max() >= _GRADES:
        return "", False
    if (run.score != np.trunc(run.score)).any():
        return "", False
    lists = np.diff(qrels.start)
    query = np.repeat(np.arange(len(lists)), lists)
    pairs = np.unique(np.stack([query, qrels.grade]), axis=1).shape[1]
    ranks = pairs == len(qrels) and bool((lists > 2).any())  # no two documents of a query tie
    fewer = len(np.unique(run.score)) < len(np.unique(qrels.grade))
    if fewer and ranks and qrels.grade.max() < _GRADES:  # which judgements may be, if few
        return "the grades rank the documents of each query", False
    if fewer and (ranks or len(np.unique(qrels.grade)) > _SCORES):
        seen = f"the run's scores look like grades (0 to {run.score.max():g}) and the grades like "
        return seen + f"scores (up to {qrels.grade.max()})", True
    return "", False


def strangers(name: str, queries: pl.Series, qrels: Qrels) -> InputError:
    """The error for a run and judgements that have no query in common."""
    return InputError(
        f"no query is both in {name} ({some_of(queries)}) "
        f"and in {qrels.name} ({some_of(qrels.queries)})",
        remedy="check that the two files belong together",
    )


def scale_notes(name: str, scale: Scale | None, measures: Sequence[Measure]) -> list[str]:
    """A line where measures count grades that mean "not relevant" on a scale of judgements."""
    better = {m: n for m in measures if (n := m.on_scale(scale)) != m}
    if scale is None or not better:
        return []
    return [
        f"{name} grades {scale.lowest}–{scale.highest}, relevant from {scale.relevant} on: "
        f"{', '.join(map(str, better))} counts lower grades too; write "
        f"{', '.join(map(str, better.values()))}"
    ]


def only_ranks(run: Run, ranking: Ranking) -> bool:
    """Whether the scores only count: 10, 9, 8, …, or 1, 1/2, 1/3, …, or 1/61, 1/62, …"""
    if run.dtype == RANKS:
        return len(run) > 0
    sizes = np.diff(run.start)
    long = np.flatnonzero(sizes > 2)
    if not len(long):
        return False

    def counts(score: Float, inner: Bool) -> bool:
        with np.errstate(all="ignore"):
            steps, turned = np.diff(score)[inner], np.diff(1.0 / score)[inner]
            return bool((steps == -1.0).all() or (np.abs(turned - 1.0) < 1e-6).all())

    # One list says no in nearly every run; only where it says yes are all looked at.
    first = np.sort(run.score[run.start[long[0]] : run.start[long[0] + 1]])[::-1]
    if not counts(first, np.ones(len(first) - 1, np.bool_)):
        return False
    score = run.score
    if ranking.position is not None:
        score = np.empty_like(run.score)
        score[ranking.position] = run.score
    inner = np.ones(len(score), np.bool_)
    inner[run.start[:-1][sizes > 0]] = False
    return counts(score, inner[1:])


def notes_on(qrels: Qrels, measures: Sequence[Measure]) -> list[str]:
    """What is to be said of judgements and measures, whatever the run."""
    notes = [*renamed(measures), *qrels.notes]
    if qrels.negative:
        notes.append(
            f"{qrels.negative} negative grades in {qrels.name} mean “not judged”, as in trec_eval"
        )
    return [*notes, *scale_notes(qrels.name, qrels.scale, measures)]


def check_scale(measure: Measure, grade: Int, place: Callable[[int], str]) -> None:
    """Refuse grades that a measure's scale does not have."""
    scale = measure.definition.grades
    if scale is None:
        return
    outside = (grade < scale[0]) | (grade > scale[1])
    if outside.any():
        at = int(outside.argmax())
        raise InputError(
            f"grade {grade[at]} is outside {scale[0]}–{scale[1]}, the scale of {measure}",
            place=place(at),
            remedy="regrade it, or leave the row out if the passage was not judged",
        )


def some_of(ids: pl.Series) -> str:
    """The first few, for a message."""
    shown = ", ".join(shorten(i, 24) for i in ids.head(3))
    return f"{shown}, …" if len(ids) > 3 else shown
