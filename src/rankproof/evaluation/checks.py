"""Find what looks wrong with a run and judgments before their scores are believed.

A run may be swapped with the judgments, share no query or document with them, or have scores that
look like ranks, in which no tie can be seen. Errors stop the evaluation; everything else becomes a
warning beside the scores. Checks that need the scores read a `ScoreProfile`, which the parts of a
large run can merge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankproof.data.hits import RANKS
from rankproof.data.tables import Qrels, Run, Scale
from rankproof.data.ties import rank_run
from rankproof.evaluation.id_profile import unicode_difference
from rankproof.evaluation.policy import Policy
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, first_few, shorten
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure, Outcomes
from rankproof.measures.parsing import alias_notes
from rankproof.measures.registry import without_aspects

if TYPE_CHECKING:
    from rankproof.evaluation.result import Evaluation

_GRADE_LIMIT = 6  # grades of judgments are below this
_MOST_GRADES = 12  # a column with more distinct values is hardly one of grades


@dataclass(frozen=True, slots=True)
class ScoreProfile:
    """What the scores of a run look like."""

    rows: int
    has_long_list: bool  # a list has more than two documents
    falls_by_one: bool  # every score is one less than the one before
    is_reciprocal: bool  # 1/score is always one more than before
    cut_lists: int  # lists that were cut inside a tie
    grade_like: frozenset[float] | None  # the distinct scores, if all of them could be grades

    @property
    def looks_like_ranks(self) -> bool:
        """True if scores only count: 10, 9, 8, …, or 1, 1/2, 1/3, …, or 1/61, 1/62, …"""
        return self.has_long_list and (self.falls_by_one or self.is_reciprocal)


def profile_scores(run: Run, policy: Policy, grade_like: frozenset[float] | None) -> ScoreProfile:
    """Return the profile of lists that end at the policy's depth.

    `grade_like` is that of the uncut lists. Lists are profiled before they are condensed, since
    unjudged documents show the nature of the scores as well as others.
    """
    cut_lists = 0 if run.cut is None else int((run.cut > 0).sum())
    return ScoreProfile(len(run), *_counting_pattern(run, policy), cut_lists, grade_like)


def merge_profiles(parts: Iterable[ScoreProfile]) -> ScoreProfile:
    """Return the profile of a run from those of its parts."""
    parts = list(parts)
    grade_like = [part.grade_like for part in parts if part.grade_like is not None]
    return ScoreProfile(
        rows=sum(part.rows for part in parts),
        has_long_list=any(part.has_long_list for part in parts),
        falls_by_one=all(part.falls_by_one for part in parts),
        is_reciprocal=all(part.is_reciprocal for part in parts),
        cut_lists=sum(part.cut_lists for part in parts),
        grade_like=frozenset().union(*grade_like) if len(grade_like) == len(parts) else None,
    )


def _counting_pattern(run: Run, policy: Policy) -> tuple[bool, bool, bool]:
    """Return `has_long_list`, `falls_by_one` and `is_reciprocal` of a run."""
    sizes = np.diff(run.start)
    long_lists = np.flatnonzero(sizes > 2)

    def steps_of_one(score: Float, follows: Bool) -> tuple[bool, bool]:
        with np.errstate(all="ignore"):
            steps, reciprocal_steps = np.diff(score)[follows], np.diff(1.0 / score)[follows]
            is_reciprocal = np.abs(reciprocal_steps - 1.0) < 1e-6
            return bool((steps == -1.0).all()), bool(is_reciprocal.all())

    # One list rules both patterns out in nearly every run; all are sorted only if it does not.
    if len(long_lists):
        query = long_lists[0]
        one_list = np.sort(run.score[run.start[query] : run.start[query + 1]])[::-1]
        if not any(steps_of_one(one_list, np.ones(len(one_list) - 1, np.bool_))):
            return True, False, False
    score = run.score
    ranking = rank_run(run, policy.order, policy.score_dtype)
    if ranking.position is not None:
        score = np.empty_like(run.score)
        score[ranking.position] = run.score
    follows = np.ones(len(score), np.bool_)  # the row before is of the same list
    follows[run.start[:-1][sizes > 0]] = False
    return len(long_lists) > 0, *steps_of_one(score, follows[1:])


def grade_like_scores(run: Run) -> frozenset[float] | None:
    """Return the distinct scores of a run if all of them could be grades, else None."""
    for score in (run.score[:_MOST_GRADES], run.score):  # the first scores usually decide
        if (score != np.trunc(score)).any() or (len(score) and score.max() >= _GRADE_LIMIT):
            return None
    if run.score.min(initial=0.0) < 0:
        return None
    return frozenset(np.unique(run.score).tolist())


def swap_evidence(rows: int, grade_like: frozenset[float] | None, qrels: Qrels) -> tuple[str, bool]:
    """Return what suggests that run and judgments are swapped, and whether that is certain.

    The text is empty if nothing does. `rows` and `grade_like` are those of the run's profile.
    """
    if rows < 2 or len(qrels) < 2 or grade_like is None:
        return "", False
    sizes = np.diff(qrels.start)
    query = np.repeat(np.arange(len(sizes)), sizes)
    distinct_pairs = np.unique(np.stack([query, qrels.grade]), axis=1).shape[1]
    grades_never_tie = distinct_pairs == len(qrels) and bool((sizes > 2).any())
    grade_count = len(np.unique(qrels.grade))
    if len(grade_like) >= grade_count:
        return "", False
    if grades_never_tie and qrels.grade.max() < _GRADE_LIMIT:  # few judgments may look like this
        return "the grades rank the documents of each query", False
    if grades_never_tie or grade_count > _MOST_GRADES:
        highest = f"{max(grade_like):g}"
        text = f"the run's scores look like grades (0 to {highest}) and the grades like scores"
        return f"{text} (up to {qrels.grade.max()})", True
    return "", False


def no_common_query(name: str, queries: pl.Series, qrels: Qrels) -> InputError:
    """Return the error for a run and judgments that have no query in common."""
    form = unicode_difference(qrels.queries, qrels.name, queries, name)
    if form:
        return InputError(
            f"no query is both in {name} and in {qrels.name}: ids differ in Unicode form, {form}",
            remedy="write both in the same form",
        )
    return InputError(
        f"no query is both in {name} ({example_ids(queries)}) "
        f"and in {qrels.name} ({example_ids(qrels.queries)})",
        remedy="check that the two files belong together",
    )


def scale_notes(name: str, scale: Scale | None, measures: Sequence[Measure]) -> list[str]:
    """Return a note if measures count grades as relevant that the scale calls "not relevant"."""
    on_scale = {m: scaled for m in measures if (scaled := m.on_scale(scale)) != m}
    if scale is None or not on_scale:
        return []
    return [
        f"{name} grades {scale.lowest}–{scale.highest}, relevant from {scale.relevant} on: "
        f"{', '.join(map(str, on_scale))} counts lower grades too; write "
        f"{', '.join(map(str, on_scale.values()))}"
    ]


def input_notes(qrels: Qrels, measures: Sequence[Measure]) -> list[str]:
    """Return the notes on judgments and measures that hold for every run."""
    notes = [*alias_notes(measures), *qrels.notes]
    if qrels.negative:
        notes.append(
            f"{plural(qrels.negative, 'negative grade')} in {qrels.name} "
            f"{'means' if qrels.negative == 1 else 'mean'} “not judged”, as in trec_eval"
        )
    return [*notes, *scale_notes(qrels.name, qrels.scale, measures)]


def bound_notes(outcomes: Mapping[Measure, Outcomes]) -> list[str]:
    """Return a note on each measure whose extremes over tie orders are bounds for some queries."""
    counts = {m: int(o.is_bound.sum()) for m, o in outcomes.items() if o.is_bound is not None}
    return [
        f"{measure}: lowest and highest are bounds for {plural(count, 'query', 'queries')} whose "
        "ties are too large to search"
        for measure, count in counts.items()
        if count
    ]


def check_scale(measure: Measure, grade: Int, place: Callable[[int], str]) -> None:
    """Refuse grades outside the scale that a measure is defined on."""
    scale = measure.definition.grades
    if scale is None:
        return
    outside = (grade < scale[0]) | (grade > scale[1])
    if outside.any():
        row = int(outside.argmax())
        raise InputError(
            f"grade {grade[row]} is outside {scale[0]}–{scale[1]}, the scale of {measure}",
            place=place(row),
            remedy="regrade it, or leave the row out if the passage was not judged",
        )


def check_scales(qrels: Qrels, measures: Sequence[Measure]) -> None:
    """Refuse judgments outside the scale of a measure, or without the aspects that it reads."""
    for measure in measures:
        if measure.needs_aspects and qrels.aspects is None:
            raise without_aspects(measure)
        check_scale(measure, qrels.grade, qrels.place)


def score_warnings(name: str, dtype: str, profile: ScoreProfile) -> list[str]:
    """Return warnings for a run whose ties are invisible (scores are ranks) or already broken."""
    warnings = []
    if profile.rows and (dtype == RANKS or profile.looks_like_ranks):
        warnings.append(rank_warning([name]))
    if profile.cut_lists:
        lists = plural(profile.cut_lists, f"list of {name} ends", f"lists of {name} end")
        warnings.append(
            f"{lists} inside a tie: which documents of the tie are listed was decided before"
        )
    return warnings


def rank_warning(names: Sequence[str]) -> str:
    """Return the warning for runs whose ties are invisible."""
    return f"the scores of {first_few(names)} look like ranks: ties cannot be seen in them"


def merge_notes(evaluations: Iterable[Evaluation]) -> list[str]:
    """Return the notes of several runs, each once; one names all runs that look like ranks."""
    evaluations = list(evaluations)
    about_ranks = {rank_warning([evaluation.name]): evaluation.name for evaluation in evaluations}
    notes = dict.fromkeys(note for evaluation in evaluations for note in evaluation.notes)
    names = [about_ranks[note] for note in notes if note in about_ranks]
    merged = (rank_warning(names) if note in about_ranks else note for note in notes)
    return list(dict.fromkeys(merged))


def pair_warnings(profile: ScoreProfile, qrels: Qrels) -> list[str]:
    """Return a warning if run and judgments seem to be swapped."""
    evidence, _ = swap_evidence(profile.rows, profile.grade_like, qrels)
    return [f"are run and judgments swapped? {evidence}"] if evidence else []


def example_ids(ids: pl.Series) -> str:
    """Return the first three ids for a message."""
    text = ", ".join(shorten(i, 24) for i in ids.head(3))
    return f"{text}, …" if len(ids) > 3 else text
