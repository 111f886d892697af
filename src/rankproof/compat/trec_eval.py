"""trec_eval 9's output: the same arguments, the same lines, byte for byte.

Its values are those of one tie-break: scores rounded to float32, ties broken by descending document
id. Queries are summed in trec_eval's order, so that the last printed digit agrees. trec_lines.py
says which lines `-m` requests; this module computes and prints them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.compat.preferences import Form, evaluate_preferences
from rankproof.compat.trec_lines import OutputLine, Version, compiled_codes, requested_lines
from rankproof.data import read_qrels
from rankproof.data.sources import Source
from rankproof.data.tables import Qrels, Run
from rankproof.data.ties import Order, TieGroups, in_order
from rankproof.data.trec import place_in, split_fields
from rankproof.evaluation import (
    Like,
    Policy,
    evaluate_some,
    match_judgments,
    match_queries,
    measure_all,
    no_common_query,
    sampling_notes,
)
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.measures import GMAP, Measure, Outcomes
from rankproof.measures.random_orders import estimate_expensive, sample_powers

_SMALLEST_VALUE = 1e-5  # of a value in a geometric mean
_LARGEST_EXPONENT = 709.0  # above it math.exp overflows
_NO_SPREAD = -1e6  # standard score (-Z) where the other runs have no spread


# ------------------------------------------------------------------------------ values of queries


def line_values(groups: TieGroups, lines: Sequence[OutputLine], policy: Policy) -> Float:
    """Return (Q, L) the value of each query and line, for lists whose ties are broken.

    A geometric mean has its logarithms, relstring only zeros.
    """
    compiled = [
        at
        for at, line in enumerate(lines)
        if compiled_codes([line]) is not None
        and (line.name != "infAP" or groups.sampled is None)  # the groups lack unjudged documents
    ]
    table = np.zeros((groups.queries, len(lines)))
    values = _compiled_values(groups, [lines[at] for at in compiled])
    if values is None:
        compiled = []
    elif len(compiled) == len(lines):
        return values
    else:
        table[:, compiled] = values
    remaining = {at: line for at, line in enumerate(lines) if at not in compiled}
    measures = dict.fromkeys(line.measure for line in remaining.values() if line.measure)
    outcomes = measure_all(groups, list(measures), policy)
    for at, line in remaining.items():
        if line.name != "relstring":
            table[:, at] = _line_values(groups, line, outcomes)
    return table


def _compiled_values(groups: TieGroups, lines: Sequence[OutputLine]) -> Float | None:
    """Return (Q, L) values of lines that compiled code implements; None if nothing is compiled."""
    codes = compiled_codes(lines)
    if not lines or codes is None:
        return None
    retrieved = (groups.listed, groups.doc_query, groups.rank, groups.grade)
    pool = (groups.pool.start, groups.pool.unsorted)
    return kernels.trec_eval_values(retrieved, pool, lines[0].level, *codes)


def _line_values(
    groups: TieGroups, line: OutputLine, outcomes: Mapping[Measure, Outcomes]
) -> Float:
    """Return (Q,) the values of one line, from the outcomes of its measure or by its formula."""
    definition = line.definition
    if isinstance(definition, Measure):
        values = outcomes[definition].oblivious
    else:
        values = definition(groups)
    if line.name in ("iprec_at_recall", "11pt_avg"):
        # Interpolated precision of a list that -J has emptied is 0/0 in trec_eval.
        offset = 0.9 if line.rounding == "up" else 0.5
        target = np.floor(line.parameter * groups.relevant(line.level) + offset)
        values = np.where((groups.listed == 0) & (target < 1), -np.nan, values)
    return log_values(values) if line.is_geometric_mean else values


def log_values(values: Float) -> Float:
    """Return the logarithms that a geometric mean averages; values below 1e-5 count as 1e-5."""
    raised = np.maximum(values, _SMALLEST_VALUE).tolist()
    return np.fromiter(map(math.log, raised), np.float64, len(raised))


# ------------------------------------------------------------------------------------ the output


@dataclass(frozen=True)
class Output:
    """The values of an evaluation, and how trec_eval prints them.

    With `ties`, each line also has the expected, lowest and highest value over all orders of ties.
    """

    queries: list[str]
    lines: list[OutputLine]
    columns: list[Any]  # of each line, the values of the queries
    requested: set[str]  # measures
    query_count: int  # over which means are taken: with -c all judged queries
    relevant_count: int | None  # with -c relevant documents, those of missing queries included
    tag: str  # the run's name
    ties: Mapping[OutputLine, Outcomes] | None = None
    notes: Sequence[str] = ()
    is_standardized: bool = False  # values are standard scores (-Z)

    def query_lines(self) -> Iterator[str]:
        """Yield the lines of each query (-q)."""
        shown = [
            (line, values, self._tie_values(line))
            for line, values in zip(self.lines, self.columns, strict=True)
            if not line.is_geometric_mean
        ]
        for row, query in enumerate(self.queries):
            for line, values, tie_values in shown:
                row_ties = [float(column[row]) for column in tie_values]
                yield self._format(line, query, values[row], row_ties)

    def summary_lines(self) -> Iterator[str]:
        """Yield the lines of means and sums over all queries."""
        if "runid" in self.requested:
            yield f"{'runid':<22}\tall\t{self.tag}\n"
        if "num_q" in self.requested:
            count = f"{self.query_count:6.4f}" if self.is_standardized else f"{self.query_count}"
            yield f"{'Z' * self.is_standardized}{'num_q':<22}\tall\t{count}\n"
        for line, values in zip(self.lines, self.columns, strict=True):
            if line.name != "relstring":
                tie_means = [self._mean(line, column) for column in self._tie_values(line)]
                yield self._format(line, "all", self._mean(line, values), tie_means)

    def _format(self, line: OutputLine, query: str, value: Any, tie_values: list[float]) -> str:
        """Return a line of text; an undefined value over orders of ties is a dash."""
        prefix = "Z" if self.is_standardized else ""
        if isinstance(value, str):  # relstring, which is never standardized
            prefix, text = "", f"'{value}'"
        elif line.is_count and not self.is_standardized:
            text = f"{int(value)}"
        elif math.isnan(value) and math.copysign(1.0, value) < 0:  # as C prints 0/0
            text = "  -nan"
        else:
            text = f"{float(value):6.4f}"
        ties = "".join("\t-" if math.isnan(x) else f"\t{x:6.4f}" for x in tie_values)
        return f"{prefix}{line.label:<22}\t{query}\t{text}{ties}\n"

    def _tie_values(self, line: OutputLine) -> list[Float]:
        """Return expected, lowest and highest values (Q,); NaN for trec_eval's own formulas."""
        if self.ties is None:
            return []
        if line not in self.ties:
            return [np.full(len(self.queries), np.nan)] * 3
        outcomes = self.ties[line]
        if not line.is_geometric_mean:
            return [outcomes.expected, outcomes.min, outcomes.max]
        low, high = log_values(outcomes.min), log_values(outcomes.max)
        # `_mean` takes the exponential of the mean of these: E = Π E[M^(1/n)].
        roots = self.query_count * np.log(outcomes.power_mean(1.0 / self.query_count))
        return [np.where(low < high, roots, high), low, high]

    def _mean(self, line: OutputLine, values: Float) -> float:
        """Return the sum of a count, the mean of any other measure."""
        if line.name == "num_rel" and self.relevant_count is not None:
            return float(self.relevant_count)
        if line.is_count:
            return _ordered_sum(values)
        if not line.is_geometric_mean:
            return _ordered_sum(values) / self.query_count
        missing = (self.query_count - len(values)) * math.log(_SMALLEST_VALUE)
        mean = (_ordered_sum(values) + missing) / self.query_count
        return math.exp(mean) if mean < _LARGEST_EXPONENT else math.inf


def _ordered_sum(values: Float) -> float:
    """Return the sum, added one by one: the order decides the last bit."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def trec_eval(
    judged: Qrels | pl.DataFrame,
    run: Run,
    measures: Sequence[str] = (),
    *,
    tag: str = "",
    complete: bool = False,
    level: int = 1,
    depth: int | None = None,
    judged_only: bool = False,
    collection: int = 0,
    form: Form | Literal["qrels"] = "qrels",
    ties: bool = False,
    reference: pl.DataFrame | None = None,
    version: Version = 9,
) -> Output:
    """Return what trec_eval prints.

    `complete` is -c, `level` -l, `depth` -M, `judged_only` -J, `collection` -N, `reference` -Z,
    `form` -R; with a form other than qrels, `judged` is what `read_annotators` returns.
    """
    requested, lines = requested_lines(measures, level, collection, form, version)
    policy = Policy("trec_eval", "skip", "zero", condensed=judged_only)
    score_dtype = "float32" if version == 9 else "float64"
    ranked = in_order(run, _TIE_BREAKS[form], score_dtype, depth, settle=True)
    tied = relevant_count = None
    if isinstance(judged, Qrels):
        judged_queries = len(judged.start) - 1
        if version == 10:
            policy = _policy_of_version_10(judged, ranked, lines, policy, complete)
        queries, columns = _graded_columns(judged, ranked, lines, policy)
        relevant_count = int((judged.grade > 0).sum()) if complete else None
        if ties:
            like: Like = "trec_eval" if version == 9 else "trec_eval10"
            tie_policy = Policy.of(
                like=like, missing=policy.missing, condensed=judged_only, depth=depth
            )
            tied = _evaluate_ties(judged, run, lines, tie_policy)
    else:
        judged_queries = judged["query"].n_unique()
        queries, columns = _annotated_columns(judged, ranked, lines, policy, form)
    if reference is not None:
        columns = _standardize(queries, lines, columns, reference)
    return Output(
        queries=queries,
        lines=lines,
        columns=columns,
        requested=requested,
        query_count=judged_queries if complete else len(queries),
        relevant_count=relevant_count,
        tag=tag,
        ties=tied,
        notes=sampling_notes(run.name, {line.label: x for line, x in (tied or {}).items()}),
        is_standardized=reference is not None,
    )


_TIE_BREAKS: dict[str, Order] = {
    "qrels": "trec_eval",
    "qrels_jg": "trec_eval",
    # Where it reads preferences, trec_eval breaks ties the other way round.
    "prefs": "docid",
    "qrels_prefs": "docid",
}


def _graded_columns(
    judged: Qrels, ranked: Run, lines: Sequence[OutputLine], policy: Policy
) -> tuple[list[str], list[Any]]:
    """Return the queries that judgments and run share, and the values of each line."""
    matches = match_judgments(ranked, judged, policy)
    if not len(matches.listed):
        raise no_common_query(ranked.name, ranked.queries, judged)
    groups = matches.groups()
    is_missing = matches.listed < 0  # by version 10 and -c, which lists one document that is not
    if not policy.condensed:
        listed = np.where(is_missing, 1, groups.listed)
        pooled = groups.sampled and replace(groups.sampled, listed=listed)
        groups = replace(groups, listed=listed, sampled=pooled)
    columns = [
        line.formula(groups) if line.name == "relstring" and line.formula else column
        for line, column in zip(lines, line_values(groups, lines, policy).T, strict=True)
    ]
    for line, column in zip(lines, columns, strict=True):
        if line.name == "unj" or line.label in ("num_ret", "utility", "rbp_resid"):
            column[is_missing] = 0.0
        elif line.label == "relstring":
            column[:] = ["" if no else text for text, no in zip(column, is_missing, strict=True)]
    return list(matches.queries), columns  # without polars, which need not be loaded


def _policy_of_version_10(
    judged: Qrels, ranked: Run, lines: Sequence[OutputLine], policy: Policy, complete: bool
) -> Policy:
    """Return the policy of trec_eval 10; refuse what it stops at, or leaves undefined."""
    if any(line.name == "rbp" for line in lines) and judged.grade.max(initial=0) > 1:
        raise InputError(
            "trec_eval 10 scales grades above 1 by numbers that it never sets",
            place="rbp",
            remedy="ask rankproof eval for RBP(p=0.9,max=GRADE)",
        )
    listed = match_queries(judged, ranked)
    if complete:
        return replace(policy, missing="zero")
    if (listed < 0).any():
        query = judged.queries[int((listed < 0).argmax())]
        raise InputError(
            f"trec_eval 10 stops at the judged query {shorten(query)}, which the run lacks",
            place=ranked.name,
            remedy="-c counts it as 0",
        )
    return policy


def _evaluate_ties(
    judged: Qrels, run: Run, lines: Sequence[OutputLine], policy: Policy
) -> dict[OutputLine, Outcomes]:
    """Return the values over every order of ties of lines whose measure is one of rankproof's."""
    measures = {line: _measure_of_ties(line) for line in lines if line.measure is not None}
    evaluation = evaluate_some(run, judged, list(dict.fromkeys(measures.values())), policy)
    outcomes = {line: evaluation.outcomes[measure] for line, measure in measures.items()}
    for line, measure in measures.items():
        if line.name == "gm_bpref":
            groups = match_judgments(run, judged, policy).groups()
            groups = groups if policy.depth is None else groups.until(policy.depth)
            outcomes[line] = estimate_expensive(measure, groups, sample_powers(outcomes[line]))
    return outcomes


def _measure_of_ties(line: OutputLine) -> Measure:
    """Return the measure of a line; of gm_map the one that knows the orders of all queries."""
    assert line.measure is not None
    return GMAP(**dict(line.measure.explicit)) if line.name == "gm_map" else line.measure


# ------------------------------------------------------------------------ several annotators (-R)


def _annotated_columns(
    judged: pl.DataFrame, ranked: Run, lines: Sequence[OutputLine], policy: Policy, form: str
) -> tuple[list[str], list[Any]]:
    """Return the queries that judgments and run share, and the values of each line."""
    columns: list[Any]
    if form == "qrels_jg":
        queries, columns = _annotator_means(judged, ranked, lines, policy)
    else:
        queries, values = evaluate_preferences(judged, ranked)
        columns = [line.formula(values) for line in lines if line.formula is not None]
    if not queries:
        qrels = _as_qrels(judged.unique(["query", "doc"]))
        raise no_common_query(ranked.name, ranked.queries, qrels)
    return queries, columns


def _annotator_means(
    judged: pl.DataFrame, ranked: Run, lines: Sequence[OutputLine], policy: Policy
) -> tuple[list[str], list[Float]]:
    """Return queries, and the values of each line as means over the annotators of each query."""
    queries = judged["query"].unique().sort()
    queries = queries.filter(queries.is_in(ranked.queries.implode()))
    row_of = {query: row for row, query in enumerate(queries)}
    sums, annotators = np.zeros((len(lines), len(row_of))), np.zeros(len(row_of))
    for annotator_lines in judged.partition_by("person", maintain_order=True):
        matches = match_judgments(ranked, _as_qrels(annotator_lines), policy)
        rows = [row_of[query] for query in kernels.as_polars(matches.queries, "query")]
        annotators[rows] += 1
        if rows:
            sums[:, rows] += line_values(matches.groups(), lines, policy).T
    return queries.to_list(), list(sums / np.maximum(annotators, 1))


def _as_qrels(judged: pl.DataFrame) -> Qrels:
    return read_qrels(judged.select("query", "doc", pl.col("level").alias("grade")))


# --------------------------------------------------------------------------- standard scores (-Z)


def read_reference(path: str) -> pl.DataFrame:
    """Read mean and standard deviation over other runs: columns query, measure, mean, deviation."""
    source = Source(path)
    _, fields = split_fields(source.text())
    names = ["query", "measure", "mean", "deviation"]
    texts = {name: fields.list.get(at, null_on_oob=True) for at, name in enumerate(names)}
    frame = pl.DataFrame(texts).with_columns(pl.col(names[2:]).cast(pl.Float64, strict=False))
    is_odd = (fields.list.len() != 4) | frame["mean"].is_null() | frame["deviation"].is_null()
    if is_odd.any():
        raise InputError(
            "this is no query, measure, mean and deviation",
            place=place_in(source)(int(is_odd.arg_max() or 0)),
            remedy="write 301 map 0.25 0.1, say",
        )
    return frame


def _standardize(
    queries: list[str], lines: Sequence[OutputLine], columns: list[Any], reference: pl.DataFrame
) -> list[Any]:
    """Return (value − mean)/deviation of each line and query; relstring stays as it is."""
    statistics = {
        (query, label): (mean, deviation) for query, label, mean, deviation in reference.iter_rows()
    }
    standardized: list[Any] = []
    for line, values in zip(lines, columns, strict=True):
        if line.name == "relstring":
            standardized.append(values)
            continue
        rows = [statistics.get((query, line.label), (_NO_SPREAD, 0.0)) for query in queries]
        mean, deviation = np.array(rows, np.float64).reshape(-1, 2).T
        with np.errstate(all="ignore"):
            score = (values - mean) / deviation
        without_spread = np.where(values == mean, 0.0, _NO_SPREAD)
        standardized.append(np.where(deviation != 0, score, without_spread))
    return standardized
