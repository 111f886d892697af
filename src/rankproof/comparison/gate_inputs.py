"""Read the two sides of a gate: runs, stored evaluations, or configurations of a sweep."""

from __future__ import annotations

import glob
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.comparison.leaderboard import expand
from rankproof.comparison.repeats import average, common_name, is_list_of_runs
from rankproof.data import read_run
from rankproof.data.sources import is_folder
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import EvaluatedRun, Evaluation, Policy, evaluate_tables
from rankproof.evaluation.annotator_estimates import estimate_with_annotators
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import Measure, Outcomes, parse
from rankproof.unjudged.judged_share import attach_judged, store_bounds, with_judged


@dataclass(frozen=True, slots=True)
class Side:
    """The baseline or the candidate of a gate."""

    evaluation: Evaluation
    # That of each repeat; () for a stored result, or a run that was read in parts.
    runs: tuple[Run, ...] = ()
    corpus: Mapping[str, str] = field(default_factory=dict)  # digests by file, if known

    def repeats(self) -> list[Side]:
        """Return each repeat as a side of its own; a single run is its only one."""
        evaluations = self.evaluation.repeats
        if not evaluations:
            return [self]
        if not self.runs:
            return [Side(evaluation, corpus=self.corpus) for evaluation in evaluations]
        pairs = zip(evaluations, self.runs, strict=True)
        return [Side(evaluation, (run,), self.corpus) for evaluation, run in pairs]


def read_side(
    source: Any,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    fallback: str,
    **reading: Any,
) -> Side:
    """Evaluate a run or read a stored result; `reading` has the format and memory for a run.

    Several runs, as a list, a folder or a pattern, are repeats of one system.
    """
    from rankproof.tradeoffs.recommend import Recommendation
    from rankproof.tradeoffs.results import Results

    if isinstance(source, Evaluation):
        return Side(_with_measures(source, measures, source.name))
    if isinstance(source, Recommendation):
        if source.results is None:
            raise InputError(
                "this recommendation does not know the sweep's results",
                remedy="give the sweep's folder, or folder::configuration",
            )
        return _read_configuration(
            source.results, source.choices[-1].configuration, measures, policy
        )
    if isinstance(source, Results):
        return _read_configuration(source, None, measures, policy)
    if isinstance(getattr(source, "evaluation", None), Evaluation):  # a gate
        return Side(_with_measures(source.evaluation, measures, "this gate"))
    if isinstance(getattr(source, "folder", None), Path):  # a sweep
        source = source.folder
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        folder, configuration = split_configuration(text)
        if (Path(folder) / _SWEEP_FILE).is_file():
            from rankproof.tradeoffs.results import read_results

            return _read_configuration(read_results(folder), configuration, measures, policy)
        if is_folder(text) or (glob.has_magic(text) and not Path(text).exists()):
            return _read_repeats(text, qrels, measures, policy, reading)
        if text.endswith(".json"):
            side = _read_stored(text, measures, policy)
            if side is not None:
                return side
        return _evaluate_file(text, qrels, measures, policy, reading)
    if isinstance(source, Mapping) and all(
        isinstance(x, str | os.PathLike) for x in source.values()
    ):
        source = list(source.values())
    if is_list_of_runs(source):
        sides = [
            read_side(item, qrels, measures, policy, f"{fallback}@{number}", **reading)
            for number, item in enumerate(source, 1)
        ]
        return _average_sides(sides)
    run = source if isinstance(source, Run) else read_run(source, name=fallback)
    evaluation = evaluate_tables(run, qrels, with_judged(measures), policy)
    return Side(attach_judged(evaluation, measures), (run,))


def _read_repeats(
    path: str,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    reading: Mapping[str, Any],
) -> Side:
    """Read the repeats in a folder or of a pattern; files without a common query are one run."""
    files = expand([path])
    sides = [_evaluate_file(file, qrels, measures, policy, reading) for file in files]
    if is_folder(path) and _share_no_query(sides):
        return _evaluate_file(path, qrels, measures, policy, reading)
    return _average_sides(sides) if len(sides) > 1 else sides[0]


def _share_no_query(sides: Sequence[Side]) -> bool:
    """True if no query is answered by two runs: they are parts of one."""
    answered = pl.concat(
        [
            e.queries.filter(~e.queries.is_in(e.missing_queries.implode()))
            for e in (side.evaluation for side in sides)
        ]
    )
    return answered.n_unique() == len(answered)


def _average_sides(sides: Sequence[Side]) -> Side:
    """Return one side for several repeats of a system."""
    name = common_name([side.evaluation.name for side in sides])
    runs = tuple(run for side in sides for run in side.runs)
    return Side(
        average(name, [side.evaluation for side in sides]),
        runs if len(runs) == len(sides) else (),
        sides[0].corpus,
    )


def with_bounds(side: Side, qrels: Qrels) -> Side:
    """Add the ends of every query's values over unjudged documents, if one run is in memory."""
    evaluation = side.evaluation
    if len(side.runs) != 1 or evaluation.policy.condensed:
        return side
    measures = list(evaluation.outcomes)
    return replace(side, evaluation=store_bounds(evaluation, side.runs[0], qrels, measures))


def with_annotators(
    side: Side, labeled: Side, rescaled: Mapping[Measure, Measure], unknown_queries: int
) -> Side:
    """Add annotators' labels: `labeled` is the same side, evaluated by them."""
    if not side.runs:
        raise InputError(
            "holds no lists, which annotators' labels (--human) would be applied to",
            place=side.evaluation.name,
            remedy="name the run itself",
        )

    def annotated(judged: Evaluation, own: Evaluation) -> Evaluation:
        estimates = estimate_with_annotators(judged, own, rescaled, unknown_queries)
        return replace(judged, annotators=estimates)

    repeats = zip(side.evaluation.repeats, labeled.evaluation.repeats, strict=True)
    whole = replace(side.evaluation, repeats=tuple(annotated(*pair) for pair in repeats))
    return replace(side, evaluation=annotated(whole, labeled.evaluation))


def _evaluate_file(
    path: str,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    reading: Mapping[str, Any],
) -> Side:
    """Evaluate a file; the side has a run only if the file was read whole."""
    from rankproof.evaluation.streaming import evaluate_file

    whole: list[EvaluatedRun] = []
    wanted = with_judged(measures)
    evaluation = evaluate_file(path, qrels, wanted, policy, kept=whole, **reading)
    return Side(attach_judged(evaluation, measures), (whole[0].run,) if whole else ())


_SWEEP_FILE = "configurations.parquet"


def split_configuration(source: str) -> tuple[str, str | None]:
    """Split `folder::configuration` of a sweep; return other paths unchanged."""
    folder, _, configuration = source.partition("::")
    is_sweep = (Path(folder) / _SWEEP_FILE).is_file()
    return (folder, configuration or None) if is_sweep else (source, None)


def _with_measures(evaluation: Evaluation, measures: Sequence[Measure], label: str) -> Evaluation:
    """Return an evaluation with these measures only, or refuse one that lacks some."""
    for measure in measures:
        if measure not in evaluation.outcomes:
            available = ", ".join(map(str, evaluation.outcomes))
            raise InputError(
                f"no values of {measure}; there are {available}",
                place=label,
                remedy="name one of these, or give the run itself",
            )
    return replace(
        evaluation,
        outcomes={measure: evaluation.outcomes[measure] for measure in measures},
        _summaries={},
    )


def _read_stored(path: str, measures: Sequence[Measure], policy: Policy) -> Side | None:
    """Read what `eval --out` or `gate --out` wrote; None if the file is a run in JSON."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # the reader of runs reports the error
    if not isinstance(data, dict):
        return None
    is_result = isinstance(data.get("manifest"), dict) or "verdict" in data
    if not is_result and not (isinstance(data.get("runs"), list) and "policy" in data):
        return None
    listed = data.get("runs")
    runs = [r for r in listed if isinstance(r, dict)] if isinstance(listed, list) else []
    if len(runs) > 1:
        names = ", ".join(str(run.get("name")) for run in runs[:4])
        raise InputError(
            f"{len(runs)} runs: {names}", place=path, remedy="evaluate the baseline alone"
        )
    if not runs or "per_query" not in runs[0]:
        raise InputError(
            "no values of single queries, without which nothing can be paired",
            place=path,
            remedy="write it with `rankproof eval --out FILE` or `rankproof gate --out FILE`",
        )
    if isinstance(data.get("policy"), dict):
        check_same_policy(data["policy"], policy, path)
    try:
        evaluation = _parse_evaluation(runs[0], policy)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"cannot read its values ({error})", place=path, remedy="write it again"
        ) from None
    return Side(_with_measures(evaluation, measures, path))


def check_same_policy(stored: Mapping[str, Any], policy: Policy, place: str) -> None:
    """Refuse values that were computed with another policy."""
    for name, value in policy.to_dict().items():
        if stored.get(name) != value:
            raise InputError(
                f"{name} was {shorten(stored.get(name))} there and is {shorten(value)} here",
                place=place,
                remedy="evaluate both in the same way",
            )


def _parse_evaluation(run: dict[str, Any], policy: Policy) -> Evaluation:
    """Return the evaluation in a stored result."""
    values = run["per_query"]
    queries = pl.Series("query", values["query"], dtype=pl.String)

    def numbers(column: Sequence[Any]) -> Float:
        if len(column) != len(queries):
            raise ValueError(f"{len(column)} values of {len(queries)} queries")
        return np.array([math.nan if x is None else float(x) for x in column], np.float64)

    order = queries.arg_sort().to_numpy()
    shares = {name: values.get("judged") for name, values in run.get("measures", {}).items()}
    outcomes = {}
    for measure, columns in values["measures"].items():
        variance = numbers(columns["variance"])[order] if columns.get("variance") else None
        expected, low, high, oblivious = (
            numbers(columns[name])[order] for name in ("expected", "min", "max", "oblivious")
        )
        outcomes[parse(measure)] = Outcomes(expected, low, high, oblivious, variance)
    return Evaluation(
        name=str(run["name"]),
        queries=queries.sort(),
        outcomes=outcomes,
        missing_queries=pl.Series("query", run.get("missing_queries", []), pl.String),
        unjudged_queries=pl.Series("query", run.get("unjudged_queries", []), pl.String),
        is_tied=np.array(values["tied"], np.bool_)[order] if values.get("tied") else None,
        relevant_listed=None
        if values.get("relevant_listed") is None
        else np.array(values["relevant_listed"], np.int64)[order],
        query_bounds={
            parse(measure): (numbers(ends[0])[order], numbers(ends[1])[order])
            for measure, ends in values.get("bounds", {}).items()
        },
        policy=policy,
        dtype=str(run.get("score_dtype", "float64")),
        relevant=int(run.get("relevant", 0)),
        retrieved=int(run.get("retrieved", -1)),
        judged={parse(name): share for name, share in shares.items() if share is not None},
    )


def _read_configuration(
    results: Any, configuration: str | None, measures: Sequence[Measure], policy: Policy
) -> Side:
    """Return one configuration of a sweep: the one named, or its best."""
    if results.per_query is None:
        raise InputError(
            "no values of single queries", place=results.label, remedy="give the sweep's folder"
        )
    frame = results.frame
    names = frame["configuration"]
    if configuration is None:
        best = frame.filter("best") if "best" in frame.columns else frame
        configuration = str(best["configuration"][0])
    if configuration not in names:
        raise InputError(
            f"no configuration {shorten(configuration)}",
            place=results.label,
            remedy=f"use one of {', '.join(names.head(3))}, …",
        )
    values = results.per_query.filter(pl.col("configuration") == configuration)
    outcomes = {measure: _outcomes_of(values, measure, results.label) for measure in measures}
    queries = values["query"].unique().sort()
    inputs = (results.manifest or {}).get("inputs") or {}
    digests = {
        role: str(file.get("sha256"))
        for role, file in inputs.items()
        if role != "qrels" and isinstance(file, dict)
    }
    evaluation = Evaluation(configuration, queries, outcomes, policy, "float64")
    return Side(evaluation, corpus=digests)


def _outcomes_of(values: pl.DataFrame, measure: Measure, label: str) -> Outcomes:
    """Return the values of one measure, sorted by query."""
    rows = values.filter(pl.col("measure") == str(measure)).sort("query")
    if not len(rows):
        available = values["measure"].unique(maintain_order=True).to_list()
        raise InputError(
            f"no values of {measure}; there are {', '.join(available)}",
            place=label,
            remedy="name one of these",
        )
    columns = rows.select(
        pl.col(name if name in rows.columns else "value").cast(pl.Float64).alias(name)
        for name in ("value", "min", "max")
    ).fill_null(math.nan)
    expected, low, high = (columns[name].to_numpy() for name in columns.columns)
    return Outcomes(expected, low, high, expected, None)
