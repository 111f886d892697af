"""The baseline and the candidate: runs that are evaluated, or results that are read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.data import read_run
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import Evaluated, Evaluation, Policy, evaluate_tables
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import Measure, Outcomes, parse


@dataclass(frozen=True, slots=True)
class Side:
    """The baseline or the candidate."""

    evaluation: Evaluation
    run: Run | None = None  # its lists, where they are known
    corpus: Mapping[str, str] = field(default_factory=dict)  # digests by file, where known


def read_side(
    source: Any,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    fallback: str,
    **reading: Any,
) -> Side:
    """Evaluate a run, or read a result; `reading` are the format and memory of a run's file."""
    from rankproof.tradeoffs.recommend import Recommendation
    from rankproof.tradeoffs.results import Results

    if isinstance(source, Evaluation):
        return Side(_having(source, measures, source.name))
    if isinstance(source, Recommendation):
        if source.results is None:
            raise InputError(
                "this recommendation does not know the sweep's results",
                remedy="give the sweep's folder, or folder::configuration",
            )
        return _swept(source.results, source.choices[-1].configuration, measures, policy)
    if isinstance(source, Results):
        return _swept(source, None, measures, policy)
    if isinstance(getattr(source, "evaluation", None), Evaluation):  # what `gate` returned
        return Side(_having(source.evaluation, measures, "this gate"))
    if isinstance(getattr(source, "folder", None), Path):  # what `sweep` returned
        source = source.folder
    if isinstance(source, str | os.PathLike):
        text = os.fspath(source)
        folder, chosen = swept_of(text)
        if (Path(folder) / _SWEPT).is_file():
            from rankproof.tradeoffs.results import read_results

            return _swept(read_results(folder), chosen, measures, policy)
        if text.endswith(".json"):
            found = _result(text, measures, policy)
            if found is not None:
                return found
        return _evaluate_file(text, qrels, measures, policy, reading)
    run = source if isinstance(source, Run) else read_run(source, name=fallback)
    return Side(evaluate_tables(run, qrels, measures, policy), run)


def _evaluate_file(
    path: str,
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    reading: Mapping[str, Any],
) -> Side:
    """Evaluate a file; a run that was read in parts has no lists to look at afterwards."""
    from rankproof.evaluation.streaming import evaluate_file

    whole: list[Evaluated] = []
    evaluation = evaluate_file(path, qrels, measures, policy, kept=whole, **reading)
    return Side(evaluation, whole[0].run if whole else None)


_SWEPT = "configurations.parquet"


def swept_of(source: str) -> tuple[str, str | None]:
    """`folder::configuration` → both, where that is a sweep's folder; else the path as it is."""
    folder, _, chosen = source.partition("::")
    return (folder, chosen or None) if (Path(folder) / _SWEPT).is_file() else (source, None)


def _having(evaluation: Evaluation, measures: Sequence[Measure], label: str) -> Evaluation:
    for measure in measures:
        if measure not in evaluation.outcomes:
            have = ", ".join(map(str, evaluation.outcomes))
            raise InputError(
                f"no values of {measure}; there are {have}",
                place=label,
                remedy="name one of these, or give the run itself",
            )
    return replace(
        evaluation,
        outcomes={measure: evaluation.outcomes[measure] for measure in measures},
        _summaries={},
    )


def _result(path: str, measures: Sequence[Measure], policy: Policy) -> Side | None:
    """What `eval --out` or `gate --out` wrote; None where the file is a run in JSON."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None  # whatever reads runs says what is wrong with it
    if not isinstance(data, dict):
        return None
    ours = isinstance(data.get("manifest"), dict) or "verdict" in data
    if not ours and not (isinstance(data.get("runs"), list) and "policy" in data):
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
        same_way(data["policy"], policy, path)
    try:
        evaluation = _stored(runs[0], policy)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"cannot read its values ({error})", place=path, remedy="write it again"
        ) from None
    return Side(_having(evaluation, measures, path))


def same_way(then: Mapping[str, Any], now: Policy, place: str) -> None:
    """Refuse figures that were made under another policy."""
    for name, value in now.to_dict().items():
        if then.get(name) != value:
            raise InputError(
                f"{name} was {shorten(then.get(name))} there and is {shorten(value)} here",
                place=place,
                remedy="evaluate both in the same way",
            )


def _stored(run: dict[str, Any], policy: Policy) -> Evaluation:
    values = run["per_query"]
    queries = pl.Series("query", values["query"], dtype=pl.String)

    def column(figures: dict[str, Any], name: str) -> Float:
        found = [math.nan if x is None else float(x) for x in figures[name]]
        if len(found) != len(queries):
            raise ValueError(f"{len(found)} values of {len(queries)} queries")
        return np.array(found, np.float64)

    order = queries.arg_sort().to_numpy()
    outcomes = {}
    for name, figures in values["measures"].items():
        spread = column(figures, "variance")[order] if figures.get("variance") else None
        expected, least, most, stated = (
            column(figures, n)[order] for n in ("expected", "min", "max", "oblivious")
        )
        outcomes[parse(name)] = Outcomes(expected, least, most, stated, spread)
    return Evaluation(
        name=str(run["name"]),
        queries=queries.sort(),
        outcomes=outcomes,
        missing=int(run.get("missing", 0)),
        unjudged=int(run.get("unjudged", 0)),
        tied=int(run.get("tied", 0)),
        policy=policy,
        dtype=str(run.get("score_dtype", "float64")),
        relevant=int(run.get("relevant", 0)),
        retrieved=int(run.get("retrieved", -1)),
    )


def _swept(found: Any, chosen: str | None, measures: Sequence[Measure], policy: Policy) -> Side:
    """One configuration of a sweep: the one named, else its best."""
    if found.per_query is None:
        raise InputError(
            "no values of single queries", place=found.label, remedy="give the sweep's folder"
        )
    names = found.frame["configuration"]
    if chosen is None:
        best = found.frame.filter("best") if "best" in found.frame.columns else found.frame
        chosen = str(best["configuration"][0])
    if chosen not in names:
        raise InputError(
            f"no configuration {shorten(chosen)}",
            place=found.label,
            remedy=f"use one of {', '.join(names.head(3))}, …",
        )
    values = found.per_query.filter(pl.col("configuration") == chosen)
    have = values["measure"].unique(maintain_order=True).to_list()
    outcomes = {}
    queries = values["query"].unique().sort()
    for measure in measures:
        some = values.filter(pl.col("measure") == str(measure)).sort("query")
        if not len(some):
            raise InputError(
                f"no values of {measure}; there are {', '.join(have)}",
                place=found.label,
                remedy="name one of these",
            )
        known = some.select(
            pl.col(name if name in some.columns else "value").cast(pl.Float64).alias(name)
            for name in ("value", "min", "max")
        ).fill_null(math.nan)
        expected, least, most = (known[name].to_numpy() for name in known.columns)
        outcomes[measure] = Outcomes(expected, least, most, expected, None)
    digests = {
        role: str(file.get("sha256"))
        for role, file in ((found.manifest or {}).get("inputs") or {}).items()
        if role != "qrels" and isinstance(file, dict)
    }
    evaluation = Evaluation(chosen, queries, outcomes, 0, 0, 0, policy, "float64")
    return Side(evaluation, corpus=digests)
