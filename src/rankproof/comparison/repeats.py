"""Repeats of one system, such as its runs with R seeds, are averaged per query and compared as one.

Runs named `name@1 … name@R` without gaps are repeats; `bm25@10` and `bm25@100` stay two runs. The
queries are the sample, the repeats are not: a verdict holds for these R. Beside it stand the means
of the repeats, and the share of them that alone would have had another verdict.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.evaluation import Evaluation, several
from rankproof.evaluation.annotator_estimates import (
    AnnotatorEstimates,
    estimate_with_annotators,
)
from rankproof.evaluation.checks import merge_notes
from rankproof.foundation.arrays import Float, Int
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure, Outcomes
from rankproof.presentation.json_values import plain

_REPEAT = re.compile(r"(.+)@([1-9]\d*)")
_NAMED = 3  # systems in a note


def system_of(names: Iterable[str]) -> dict[str, str]:
    """Return the name of each run's system, repeats one after the other: their name without @.

    >>> from rankproof.comparison.repeats import system_of
    >>> system_of(["a@1", "b", "a@2", "bm25@10", "bm25@100"])
    {'a@1': 'a', 'a@2': 'a', 'b': 'b', 'bm25@10': 'bm25@10', 'bm25@100': 'bm25@100'}
    """
    names = list(names)
    numbered: dict[str, dict[int, str]] = {}
    for name in names:
        if match := _REPEAT.fullmatch(name):
            numbered.setdefault(match[1], {})[int(match[2])] = name
    systems: dict[str, str] = {}
    for name in names:
        match = _REPEAT.fullmatch(name)
        repeats = numbered.get(match[1], {}) if match else {}
        if match and len(repeats) > 1 and max(repeats) == len(repeats) and match[1] not in names:
            systems |= {repeats[number]: match[1] for number in sorted(repeats)}
        else:
            systems[name] = name
    return systems


def merge_repeats(evaluations: Sequence[Evaluation]) -> list[Evaluation]:
    """Return one evaluation for each system; repeats stand one after the other."""
    systems = system_of(evaluation.name for evaluation in evaluations)
    merged = []
    for system, members in groupby(evaluations, key=lambda e: systems[e.name]):
        repeats = list(members)
        merged.append(average(system, repeats) if len(repeats) > 1 else repeats[0])
    return merged


def is_list_of_runs(value: Any) -> bool:
    """True for a list of two or more runs: files that exist, tables, frames, or dicts of lists."""
    if not isinstance(value, list | tuple) or len(value) < 2:
        return False
    if all(isinstance(item, str | os.PathLike) for item in value):  # else ids of documents
        return all(Path(os.fspath(item).partition("::")[0]).exists() for item in value)
    return several({str(number): run for number, run in enumerate(value)}) is not None


def common_name(names: Sequence[str]) -> str:
    """Return a name for repeats whose names may differ in any way: what all begin with.

    >>> from rankproof.comparison.repeats import common_name
    >>> common_name(["a@1", "a@2"]), common_name(["new-s1", "new-s2"]), common_name(["x", "y"])
    ('a', 'new', 'x')
    """
    letters = zip(*names, strict=False)
    shared = "".join(same[0] for same in takewhile(lambda x: len(set(x)) == 1, letters))
    return re.sub(r"[-_.@ ]+(s|seed|run)?[-_.@ ]*$", "", shared) or names[0]


def average(name: str, repeats: Sequence[Evaluation]) -> Evaluation:
    """Return the mean of repeats, for each query on which all of them have a value."""
    shared = set.intersection(*(set(e.queries.to_list()) for e in repeats))
    queries = pl.Series("query", sorted(shared), pl.String)
    if not len(queries):
        raise InputError(
            f"the {len(repeats)} repeats share no query",
            place=name,
            remedy="name the parts of one run as one file",
        )
    rows = [e.queries.search_sorted(queries).to_numpy() for e in repeats]
    first = repeats[0]
    missing = pl.concat([e.missing_queries for e in repeats]).unique().sort()
    tied = [e.is_tied[at] for e, at in zip(repeats, rows, strict=True) if e.is_tied is not None]
    merged = Evaluation(
        name=name,
        queries=queries,
        outcomes={m: _mean_outcomes(repeats, rows, m) for m in first.outcomes},
        policy=first.policy,
        dtype=first.dtype,
        missing_queries=missing,
        unjudged_queries=first.unjudged_queries,
        is_tied=np.logical_or.reduce(tied) if tied else None,
        notes=tuple(merge_notes(repeats)),
        relevant=first.relevant,
        retrieved=min(e.retrieved for e in repeats),
        id_profile=next((e.id_profile for e in repeats if e.id_problem), first.id_profile),
        relevant_listed=_fewest_listed(repeats, rows),
        query_bounds=_mean_bounds(repeats, rows),
        groups=None if first.groups is None else first.groups[rows[0]],
        judged={m: float(np.mean([e.judged[m] for e in repeats])) for m in first.judged},
        by_judge=first.by_judge,
        repeats=tuple(repeats),
    )
    return merged if first.annotators is None else _with_annotators(merged, first.annotators)


def _with_annotators(merged: Evaluation, first: AnnotatorEstimates) -> Evaluation:
    """Estimate the means of repeats with annotators' labels of some queries."""
    labeled = [e.annotators.labeled for e in merged.repeats if e.annotators is not None]
    own = average(merged.name, [evaluation for evaluation in labeled if evaluation is not None])
    estimates = estimate_with_annotators(merged, own, first.rescaled, first.unknown_queries)
    return replace(merged, annotators=estimates)


def _mean_outcomes(repeats: Sequence[Evaluation], rows: Sequence[Int], m: Measure) -> Outcomes:
    """Return the mean of each statistic; orders of ties in different repeats are independent."""

    def mean(statistic: str) -> Float:
        values = [e.outcomes[m].in_mean(statistic)[at] for e, at in zip(repeats, rows, strict=True)]
        return np.asarray(np.mean(values, axis=0), np.float64)

    has_variance = all(e.outcomes[m].variance is not None for e in repeats)
    return Outcomes(
        expected=mean("expected"),
        min=mean("min"),
        max=mean("max"),
        oblivious=mean("oblivious"),
        variance=mean("variance") / len(repeats) if has_variance else None,
    )


def _fewest_listed(repeats: Sequence[Evaluation], rows: Sequence[Int]) -> Int | None:
    """Return (Q, G) the relevant documents that every repeat lists; None if one is not counted."""
    counts = [
        e.relevant_listed[at]
        for e, at in zip(repeats, rows, strict=True)
        if e.relevant_listed is not None
    ]
    if len(counts) < len(repeats):
        return None
    grades = max(count.shape[1] for count in counts)
    padded = [np.pad(count, ((0, 0), (0, grades - count.shape[1]))) for count in counts]
    return np.asarray(np.min(padded, axis=0), np.int64)


def _mean_bounds(
    repeats: Sequence[Evaluation], rows: Sequence[Int]
) -> dict[Measure, tuple[Float, Float]]:
    """Return the means of the ends over unjudged documents, which hold for the mean."""
    known = [m for m in repeats[0].query_bounds if all(m in e.query_bounds for e in repeats)]

    def mean(measure: Measure, end: int) -> Float:
        ends = [e.query_bounds[measure][end][at] for e, at in zip(repeats, rows, strict=True)]
        return np.asarray(np.mean(ends, axis=0), np.float64)

    return {m: (mean(m, 0), mean(m, 1)) for m in known}


# ------------------------------------------------------------------------------------- words


def repeat_note(evaluations: Sequence[Evaluation], changed: Float) -> list[str]:
    """Return which runs are means of repeats, their spread, and how often one would differ.

    `changed` are shares of repeats, or of pairs of them, with another verdict; NaN without repeats.
    """
    repeated = [e for e in evaluations if e.repeats]
    if not repeated:
        return []
    named = [
        f"{len(e.repeats)} repeats of {e.name} ({_spread(e)})"
        if at == 0 or len(repeated) == 2
        else f"{len(e.repeats)} of {e.name} ({_spread(e)})"
        for at, e in enumerate(repeated[:_NAMED])
    ]
    others = len(repeated) - len(named)
    if others:
        named.append(f"{others} other systems")
    scope = f"For these {', '.join(named[:-1])}{' and ' if named[:-1] else ''}{named[-1]}"
    known = changed[~np.isnan(changed)]
    if not len(known):
        return [f"{scope}."]
    if len(known) > 1:
        share = f"{known.mean():.0%}" if known.any() else "none"
        return [f"{scope}: {share} of the verdicts on single repeats differ."]
    combinations = int(np.prod([len(e.repeats) for e in repeated]))
    units = plural(combinations, "pair") if len(repeated) > 1 else str(combinations)
    count = round(float(known[0]) * combinations)
    return [f"{scope}: {count or 'none'} of {units} alone would change the verdict."]


def _spread(evaluation: Evaluation) -> str:
    """Return the lowest and the highest mean of a system's repeats on the first measure."""
    means = repeat_means(evaluation, next(iter(evaluation.outcomes)))
    return f"{min(means):.4f}–{max(means):.4f}"


def repeat_means(evaluation: Evaluation, measure: Measure) -> list[float]:
    """Return the mean of each repeat."""
    return [repeat[measure].expected for repeat in evaluation.repeats]


def repeats_dict(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Return the means of repeats by system and measure, as JSON has them; {} without repeats."""
    systems = {
        e.name: {str(m): plain(repeat_means(e, m)) for m in e} for e in evaluations if e.repeats
    }
    return {"repeats": systems} if systems else {}
