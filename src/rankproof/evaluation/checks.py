"""What looks wrong with a run, judgements and measures that were brought together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankproof.data.hits import RANKS
from rankproof.data.tables import Qrels, Run, Scale
from rankproof.data.ties import rank_run
from rankproof.evaluation.policy import Policy
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure, alias_notes

_GRADES = 6  # a scale of judgements has hardly more steps
_SCORES = 12  # and what takes more values is hardly one


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run's scores look like; that of its parts together is that of the whole."""

    rows: int
    long: bool  # whether a list has more than two documents
    steps: bool  # whether each score is one less than the one before
    turned: bool  # whether 1/score is one more
    split: int  # lists that were cut inside a tie
    few: frozenset[float] | None  # the different scores, where all of them could be grades

    @property
    def only_ranks(self) -> bool:
        """Whether the scores only count: 10, 9, 8, …, or 1, 1/2, 1/3, …, or 1/61, 1/62, …"""
        return self.long and (self.steps or self.turned)


def seen_in(run: Run, policy: Policy, few: frozenset[float] | None) -> Seen:
    """`few` is of the lists as they were given, the rest of those that end where the policy says.

    Condensed lists are those as they came: what was left out says no less of the scores.
    """
    split = 0 if run.cut is None else int((run.cut > 0).sum())
    return Seen(len(run), *_counting(run, policy), split, few)


def seen_together(parts: Iterable[Seen]) -> Seen:
    every = list(parts)
    few = [part.few for part in every if part.few is not None]
    return Seen(
        sum(part.rows for part in every),
        any(part.long for part in every),
        all(part.steps for part in every),
        all(part.turned for part in every),
        sum(part.split for part in every),
        frozenset().union(*few) if len(few) == len(every) else None,
    )


def _counting(run: Run, policy: Policy) -> tuple[bool, bool, bool]:
    """Whether a list is long, and whether scores, or what divides 1, are one apart in all."""
    sizes = np.diff(run.start)
    long = np.flatnonzero(sizes > 2)

    def counts(score: Float, inner: Bool) -> tuple[bool, bool]:
        with np.errstate(all="ignore"):
            steps, turned = np.diff(score)[inner], np.diff(1.0 / score)[inner]
            return bool((steps == -1.0).all()), bool((np.abs(turned - 1.0) < 1e-6).all())

    # One list says no in nearly every run; only where it says yes are all looked at.
    if len(long):
        first = np.sort(run.score[run.start[long[0]] : run.start[long[0] + 1]])[::-1]
        if not any(counts(first, np.ones(len(first) - 1, np.bool_))):
            return True, False, False
    score = run.score
    ranking = rank_run(run, policy.order, policy.score_dtype)
    if ranking.position is not None:
        score = np.empty_like(run.score)
        score[ranking.position] = run.score
    inner = np.ones(len(score), np.bool_)
    inner[run.start[:-1][sizes > 0]] = False
    return len(long) > 0, *counts(score, inner[1:])


def like_grades(run: Run) -> frozenset[float] | None:
    """The different scores of a run where all of them could be grades."""
    for some in (run.score[:_SCORES], run.score):  # of most runs the first are enough
        if (some != np.trunc(some)).any() or (len(some) and some.max() >= _GRADES):
            return None
    if run.score.min(initial=0.0) < 0:
        return None
    return frozenset(np.unique(run.score).tolist())


def swapped(rows: int, few: frozenset[float] | None, qrels: Qrels) -> tuple[str, bool]:
    """What looks like judgements for a run and a run for judgements, and whether it must be.

    `few` is what `like_grades` says of the run, which has so many rows.
    """
    if rows < 2 or len(qrels) < 2 or few is None:
        return "", False
    lists = np.diff(qrels.start)
    query = np.repeat(np.arange(len(lists)), lists)
    pairs = np.unique(np.stack([query, qrels.grade]), axis=1).shape[1]
    ranks = pairs == len(qrels) and bool((lists > 2).any())  # no two documents of a query tie
    grades = len(np.unique(qrels.grade))
    fewer = len(few) < grades
    if fewer and ranks and qrels.grade.max() < _GRADES:  # which judgements may be, if few
        return "the grades rank the documents of each query", False
    if fewer and (ranks or grades > _SCORES):
        said = f"the run's scores look like grades (0 to {max(few):g}) and the grades like "
        return said + f"scores (up to {qrels.grade.max()})", True
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


def notes_on(qrels: Qrels, measures: Sequence[Measure]) -> list[str]:
    """What is to be said of judgements and measures, whatever the run."""
    notes = [*alias_notes(measures), *qrels.notes]
    if qrels.negative:
        notes.append(
            f"{plural(qrels.negative, 'negative grade')} in {qrels.name} "
            f"{'means' if qrels.negative == 1 else 'mean'} “not judged”, as in trec_eval"
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


def odd_scores(name: str, dtype: str, seen: Seen) -> list[str]:
    """What is to be said of a run whose ties cannot be seen, or were decided before."""
    odd = []
    if seen.rows and (dtype == RANKS or seen.only_ranks):
        odd.append(f"the scores of {name} are only ranks: ties cannot be seen in them")
    if seen.split:
        odd.append(
            f"{plural(seen.split, f'list of {name} ends', f'lists of {name} end')} inside a tie: "
            "which documents of the tie are listed was decided before"
        )
    return odd


def odd_pair(name: str, seen: Seen, qrels: Qrels, strange: pl.Series | None) -> list[str]:
    """What is to be said of a run beside judgements; `strange` are some of its documents, where
    none is judged.
    """
    said, _ = swapped(seen.rows, seen.few, qrels)
    odd = [f"are run and judgements swapped? {said}"] if said else []
    if strange is not None:
        odd.append(
            f"no document is both in {name} ({some_of(strange)}) and in {qrels.name} "
            f"({some_of(qrels.doc)}): do both name documents alike?"
        )
    return odd


def some_of(ids: pl.Series) -> str:
    """The first few, for a message."""
    shown = ", ".join(shorten(i, 24) for i in ids.head(3))
    return f"{shown}, …" if len(ids) > 3 else shown
