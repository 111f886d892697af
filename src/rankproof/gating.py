"""A verdict for continuous integration: is the candidate no worse than the baseline?

For each measure, candidate − baseline over the queries both have, with its 95% interval and a
margin that is tolerated:

    passed      the lower end lies above −margin: it is not worse by more than that
    worse       the upper end lies below 0
    undecided   neither: the queries cannot tell; so many would

Of a measure of which less is better the ends trade places, and every sign turns.

A candidate that is worse by the margin or more passes in at most 2.5% of cases, and one that is as
good is called worse in at most 2.5%, for each measure. Where fewer than six queries differ there is
no interval: then the largest share of queries that could differ (Clopper and Pearson), times the
largest change that was seen, must lie within the margin.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from xml.sax.saxutils import escape, quoteattr

import numpy as np
import polars as pl

from rankproof.arrays import Float
from rankproof.comparison import Difference, aligned, compare_evaluations
from rankproof.errors import InputError, MeasureError, shorten
from rankproof.evaluation import Evaluation, Like, Missing, Policy, evaluate_tables, parse_means
from rankproof.measures.registry import Measure, Outcomes, parse
from rankproof.records import QrelsLike, read_qrels, read_run
from rankproof.results.displayed import Displayed, ranges
from rankproof.results.leads import ZERO
from rankproof.results.plain import told
from rankproof.results.tables import Column, Table, as_markdown
from rankproof.statistics.distributions import largest_share
from rankproof.statistics.intervals import CONFIDENCE, FEW, Interval
from rankproof.statistics.power import queries_needed, whole
from rankproof.tables import Qrels, Run
from rankproof.ties import Order, ScoreType
from rankproof.visible import visible

Verdict = Literal["passed", "worse", "undecided"]

MARGIN = 0.01
SHOWN = 5  # queries named in a sentence

_UNKNOWN = 0.95  # of a run's documents: ids that nothing else knows have turned over
_TURNED = 0.2  # of the queries: so many with unknown ids alone make labels stale
_FAMILIAR = 0.5  # of what the other queries list: so much unknown at most, or it is another engine
_FOUND = 0.02  # of the relevant documents that the lists have room for: as good as none


@dataclass(frozen=True, slots=True)
class Gated:
    """One measure: the verdict and what it rests on. Each figure is candidate − baseline."""

    verdict: Verdict
    difference: Difference
    baseline: float
    candidate: float
    margin: float
    bounds: Interval  # what the verdict was read from: the interval, or the bound of few changes
    needed: int | None  # queries that would decide it, at this difference
    most: tuple[tuple[str, float], ...]  # the queries that changed most
    holes: Interval | None = None  # what unjudged documents could make of it; None: not computed
    holes_exact: bool | None = None  # whether grades reach these ends; else they are at most so far
    grades: str = ""  # that these can have, in words

    def to_dict(self) -> dict[str, Any]:
        d = self.difference
        return {
            **told(self, "verdict", "baseline", "candidate"),
            "difference": d.expected,
            **told(d, "ci", "lowest", "highest", "flip", "p", "queries", "differing"),
            **told(self, "bounds", "holes", "holes_exact", "grades", "margin"),
            "queries_needed": self.needed,
            "changed_most": [{"query": q, "difference": x} for q, x in self.most],
        }

    def _holes_matter(self, sign: int) -> bool:
        """Whether unjudged documents could turn the verdict, past what ties alone can do."""
        if self.holes is None:
            return False
        low, high = _gains(self.holes, sign)
        least, most = _gains((self.difference.lowest, self.difference.highest), sign)
        down = low < min(-self.margin, least - 1e-9)
        up = high > max(-self.margin if self.verdict == "worse" else 0.0, most + 1e-9)
        return {"passed": down, "worse": up, "undecided": down or up}[self.verdict]

    def sentence(self, measure: Measure) -> str:
        """What differs, by how much, on which queries most, and what would decide it."""
        d = self.difference
        open_ = []
        if self._holes_matter(measure.sign):
            assert self.holes is not None
            most = "" if self.holes_exact else " at most"
            open_ = [
                "Documents that nobody judged could make it anything from "
                f"{self.holes[0]:+.4f} to {self.holes[1]:+.4f}{most}, with grades {self.grades}: "
                "`rankproof holes` says which to judge first."
            ]
        if d.differing == 0:
            return " ".join(
                [f"{measure}: {self.verdict}. No query of {d.queries} differs.", *open_]
            )
        low, high = self.bounds
        less = "less is better, " if measure.sign < 0 else ""
        span = (
            f"95% from {low:+.4f} to {high:+.4f}"
            if d.ci is not None
            else f"too few for an interval; at most {high:.4f} either way if the rest is alike"
        )
        parts = [
            f"{measure}: {self.verdict}. {self.baseline:.4f} → {self.candidate:.4f}, a change of "
            f"{d.expected:+.4f} ({less}margin {self.margin:g}); {d.differing} of {d.queries} "
            f"queries differ{'s' * (d.differing == 1)}, {span}."
        ]
        named = ", ".join(f"{q} {x:+.3f}" for q, x in self.most)
        parts.append(f"Changed most: {named}.")
        if self.verdict == "passed" and _gains(self.bounds, measure.sign)[1] < 0 and not open_:
            parts.append("It is worse for sure, by less than the margin.")
        if self.verdict == "undecided" and self.needed is not None:
            more = max(1, self.needed - d.queries)
            parts.append(f"About {self.needed} queries would decide it: {more} more.")
        parts += open_
        if d.rests_on_ties:
            parts.append(
                f"Which is ahead rests on how ties are broken "
                f"({d.lowest:+.4f} to {d.highest:+.4f})."
            )
        return " ".join(parts)


def _gains(ends: Interval, sign: int) -> Interval:
    """The least and the most that a candidate gains, where its difference has these ends."""
    return ends if sign > 0 else (-ends[1], -ends[0])


@dataclass(frozen=True, slots=True)
class Labels:
    """Whether the judgements still describe what the runs list."""

    relevant: int  # judged relevant, over all queries
    baseline: int | None  # of which the baseline lists so many; None: not known
    candidate: int | None
    neither: int | None
    stale: bool = False
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "relevant": self.relevant,
            "listed_by_baseline": self.baseline,
            "listed_by_candidate": self.candidate,
            "listed_by_neither": self.neither,
            "stale": self.stale,
            "why": self.why or None,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Gate(Displayed):
    """The verdict over all measures; true where it lets the candidate through.

    >>> before, after = "try/plain.trec", "try/saturated.trec"
    >>> found = rp.gate("try/qrels.txt", before, after, ["nDCG@5"], margin=0.02)
    >>> found.verdict, found.passed
    ('worse', False)
    """

    baseline: str
    candidate: str
    measures: dict[Measure, Gated]
    labels: Labels
    allow_undecided: bool
    seed: int
    evaluation: Evaluation = field(repr=False)  # the candidate's, for the next gate

    @property
    def verdict(self) -> Verdict:
        """Worse if one measure is, passed if all have."""
        found = {gated.verdict for gated in self.measures.values()}
        if "worse" in found:
            return "worse"
        return "undecided" if "undecided" in found else "passed"

    @property
    def passed(self) -> bool:
        allowed = ("passed", "undecided") if self.allow_undecided else ("passed",)
        return self.verdict in allowed and not self.labels.stale

    def __bool__(self) -> bool:
        return self.passed

    def sentences(self) -> list[str]:
        """For reviewers: the whole verdict, then each measure."""
        lead = f"{self.candidate} against {self.baseline}: {self.verdict}."
        if self.labels.stale:
            return [f"{lead} {self.labels.why}"]
        return [lead, *(gated.sentence(m) for m, gated in self.measures.items())]

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    __repr__ = __str__

    def to_dict(self, per_query: bool = False) -> dict[str, Any]:
        """What `rankproof gate --format json` prints; with `per_query`, what `--out` writes."""
        found = {
            **told(self, "passed", "verdict", "baseline", "candidate", "measures", "labels"),
            "sentences": self.sentences(),
            **told(self, "allow_undecided", "seed"),
        }
        return found | {"runs": [self.evaluation.to_dict(per_query=True)]} if per_query else found

    def _shown(self) -> Table:
        columns = [
            *Column.each("measure", "verdict", style="text"),
            *Column.each("baseline", "candidate", drop=3),
            *Column.each("difference", "low", "high", style="signed"),
            Column("margin"),
            Column("over ties", "text", drop=1),
            Column("differ", "text", drop=4),
            Column("queries needed", drop=2),
        ]
        rows = [
            (
                *(str(m), g.verdict, g.baseline, g.candidate, g.difference.expected, *g.bounds),
                g.margin,
                f"{g.difference.lowest:+.4f} to {g.difference.highest:+.4f}",
                f"{g.difference.differing} of {g.difference.queries}",
                g.needed,
            )
            for m, g in self.measures.items()
        ]
        notes = ["candidate − baseline; low and high: 95% over queries"]
        signs = {m.sign for m in self.measures}
        if 1 in signs:
            notes[0] += "; passed: low above −margin; worse: high below 0"
        if -1 in signs:
            less = ", ".join(str(m) for m in self.measures if m.sign < 0)
            notes.append(f"less {less} is better; passed: high below margin; worse: low above 0")
        return Table(columns, rows, notes=notes)

    def markdown(self) -> str:
        """A summary for a pull request."""
        mark = {"passed": "✅", "worse": "❌", "undecided": "❔"}[self.verdict]
        lines = [f"### {mark} rankproof gate: {self.verdict}", ""]
        lines += [f"{sentence}\n" for sentence in self.sentences()]
        return "\n".join([*lines, as_markdown(self._shown()), ""])

    def junit(self) -> str:
        """A test case for each measure, for whatever shows test results."""
        cases = []
        failed = skipped = 0
        for m, gated in self.measures.items():
            inside = ""
            said = visible(self.labels.why if self.labels.stale else gated.sentence(m))
            bad = self.labels.stale or gated.verdict == "worse"
            if bad or (gated.verdict == "undecided" and not self.allow_undecided):
                failed += 1
                inside = f"<failure message={quoteattr(gated.verdict)}>{escape(said)}</failure>"
            elif gated.verdict == "undecided":
                skipped += 1
                inside = f"<skipped message={quoteattr(said)}/>"
            name = quoteattr(f"{m}, margin {gated.margin:g}")
            owner = quoteattr(visible(f"rankproof.gate.{self.candidate}"))
            out = f"<system-out>{escape(said)}</system-out>"
            cases.append(f"  <testcase classname={owner} name={name}>{inside}{out}</testcase>")
        head = (
            f'<testsuite name="rankproof gate" tests="{len(cases)}" failures="{failed}" '
            f'skipped="{skipped}" errors="0">'
        )
        return "\n".join(
            ['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>", ""]
        )

    def plot(self) -> Any:
        """Each difference with its interval, and 0."""
        rows = [
            (f"{m}: {g.verdict}", g.difference.expected, *g.bounds)
            for m, g in self.measures.items()
        ]
        return ranges(rows, "measure", "difference", zero=True)


def gate(
    qrels: QrelsLike,
    baseline: Any,
    candidate: Any,
    measures: str | Measure | Iterable[str | Measure] | Mapping[str | Measure, float],
    margin: float | Sequence[float] = MARGIN,
    *,
    allow_undecided: bool = False,
    seed: int = 0,
    order: Order | None = None,
    missing: Missing | None = None,
    candidates_only: bool = False,
    score_dtype: ScoreType | None = None,
    like: Like | None = None,
) -> Gate:
    """Whether a candidate is no worse than a baseline by more than a margin.

    Both are runs, or results that hold values of every query: the JSON that `eval --out` or
    `gate --out` wrote, a sweep's folder (its best configuration, or `folder::configuration`), what
    `sweep` or `recommend` returned. `measures` may be {measure: margin}. The object is true where
    the candidate passes, so that `assert gate(...)` tells the sentence where it does not.

    >>> before, after = "try/plain.trec", "try/saturated.trec"
    >>> found = rp.gate("try/qrels.txt", before, after, ["nDCG@5"], margin=0.02)
    >>> found.verdict
    'worse'
    """
    policy = Policy.of(order, missing, candidates_only, score_dtype, like)
    parsed, margins = margins_of(measures, margin)
    judged = read_qrels(qrels)
    sides = [
        read_side(source, judged, parsed, policy, fallback)
        for source, fallback in ((baseline, "baseline"), (candidate, "candidate"))
    ]
    return gate_sides(
        judged, sides[0], sides[1], parsed, margins, allow_undecided=allow_undecided, seed=seed
    )


def margins_of(
    measures: Any, margin: float | Sequence[float]
) -> tuple[list[Measure], dict[Measure, float]]:
    """The measures, and the margin of each."""
    if isinstance(measures, Mapping):
        given: list[Any] = list(measures.values())
        parsed = parse_means(list(measures))
    else:
        parsed = parse_means(measures)
        given = [margin] if isinstance(margin, int | float) else list(margin)
        given = given * len(parsed) if len(given) == 1 else given
    if len(given) != len(parsed):
        raise InputError(
            f"{len(given)} margins for {len(parsed)} measures",
            remedy="give one margin, or one for each measure in order",
        )
    for value in given:
        if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
            raise InputError(f"margin {shorten(value)} is not a number from 0", remedy="0.01, say")
    return parsed, dict(zip(parsed, map(float, given), strict=True))


# --------------------------------------------------------------------------- the two sides


@dataclass(frozen=True, slots=True)
class Side:
    """The baseline or the candidate."""

    evaluation: Evaluation
    run: Run | None = None  # its lists, where they are known
    corpus: Mapping[str, str] = field(default_factory=dict)  # digests by file, where known


def read_side(
    source: Any, qrels: Qrels, measures: Sequence[Measure], policy: Policy, fallback: str
) -> Side:
    """A run is evaluated; a result is read."""
    from rankproof.tradeoffs.recommend import Recommendation
    from rankproof.tradeoffs.results import Results

    if isinstance(source, Gate):
        return Side(_having(source.evaluation, measures, "this gate"))
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
    own = isinstance(source, Run | str | os.PathLike)
    run = read_run(source) if own else read_run(source, name=fallback)
    return Side(evaluate_tables(run, qrels, measures, policy), run)


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
        _same_way(data["policy"], policy, path)
    try:
        evaluation = _stored(runs[0], policy)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"cannot read its values ({error})", place=path, remedy="write it again"
        ) from None
    return Side(_having(evaluation, measures, path))


def _same_way(then: Mapping[str, Any], now: Policy, place: str) -> None:
    """Refuse figures that were made under another policy."""
    for name, value in now.to_dict().items():
        if then.get(name) != value:
            raise InputError(
                f"{name} was {then.get(name)!r} there and is {value!r} here",
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


# ------------------------------------------------------------------------------ the verdict


def gate_sides(
    qrels: Qrels,
    baseline: Side,
    candidate: Side,
    measures: Sequence[Measure],
    margins: Mapping[Measure, float],
    *,
    allow_undecided: bool = False,
    seed: int = 0,
) -> Gate:
    """`gate` for two sides that were read before."""
    before, after = baseline.evaluation, candidate.evaluation
    _same_labels(before, after)
    names = (after.name, before.name)
    if names[0] == names[1]:
        names = (f"{names[0]} (candidate)", f"{names[1]} (baseline)")
    pair = [after.renamed(names[0]), before.renamed(names[1])]
    labels = _labels(qrels, baseline, candidate)
    found = compare_evaluations(pair, seed=seed).pairs[0].measures
    holes = _holes(qrels, baseline, candidate, measures)
    gated = {m: _gated(pair, m, found[m], margins[m]) for m in measures}
    gated = {m: replace(g, **holes.get(m, {})) for m, g in gated.items()}
    if labels.stale:  # then no figure says anything of the candidate
        gated = {m: replace(g, verdict="undecided") for m, g in gated.items()}
    return Gate(names[1], names[0], gated, labels, allow_undecided, seed, after)


def _same_labels(before: Evaluation, after: Evaluation) -> None:
    """Refuse a baseline that was measured in another way, or with other judgements."""
    _same_way(before.policy.to_dict(), after.policy, before.name)
    every = after.policy.missing == "zero" and not after.policy.candidates_only
    if every and before.relevant and after.relevant and before.relevant != after.relevant:
        raise InputError(
            f"was measured with {before.relevant} relevant documents, and the candidate with "
            f"{after.relevant}: the judgements have changed",
            place=before.name,
            remedy="evaluate the baseline again",
        )


def _gated(pair: list[Evaluation], measure: Measure, d: Difference, margin: float) -> Gated:
    figure = aligned(pair, measure)["expected"]
    apart = figure[0] - figure[1]
    shared = ~np.isnan(apart)
    apart = np.where(np.abs(apart) < ZERO, 0.0, apart)
    bounds = d.ci or _few(apart[shared], d.expected)
    low, high = _gains(bounds, measure.sign)
    verdict: Verdict = "undecided"
    if d.differing == 0 or low > -margin:
        verdict = "passed"
    elif high < 0:
        verdict = "worse"
    queries = pl.concat([e.queries for e in pair]).unique().sort()
    most = [at for at in np.argsort(-np.abs(np.nan_to_num(apart)), kind="stable") if apart[at]]
    named = [(str(queries[int(at)]), float(apart[at])) for at in most if shared[at]]
    spread = float(apart[shared].std(ddof=1)) if shared.sum() > 1 else math.nan
    gain = measure.sign * d.expected
    distance = max(gain + margin, -gain)  # from 0 or from −margin, the nearer to show
    needed = queries_needed(np.array(distance), np.array(spread))
    before, after = (float(figure[row][shared].mean()) for row in (1, 0))
    return Gated(
        verdict,
        d,
        before,
        after,
        margin,
        bounds,
        whole(float(needed)),
        tuple(named[:SHOWN]),
    )


def _few(apart: Float, expected: float) -> Interval:
    """Bounds where fewer than six queries differ: the largest likely share × the largest change."""
    differing = int((apart != 0).sum())
    assert differing < FEW
    if differing == 0:
        return (0.0, 0.0)
    share = largest_share(differing, len(apart), (1.0 + CONFIDENCE) / 2.0)
    reach = max(share * float(np.abs(apart).max()), abs(expected))
    return (-reach, reach)


def _holes(
    qrels: Qrels, baseline: Side, candidate: Side, measures: Sequence[Measure]
) -> dict[Measure, dict[str, Any]]:
    """What unjudged documents could make of each difference, with which grades; nothing where lists
    are not known."""
    policy = candidate.evaluation.policy
    if baseline.run is None or candidate.run is None or policy.condensed:
        return {}
    from rankproof.unjudged.bounds import View

    pair = [replace(candidate.run, name="candidate"), replace(baseline.run, name="baseline")]
    found: dict[Measure, dict[str, Any]] = {}
    view = View(pair, qrels, policy)
    for measure in measures:
        with suppress(MeasureError):  # a measure that has no rule for holes
            view.check([measure])
            bound, grades = view.pair_bound(0, 1, measure), view.grades([measure])
            ends = {"holes": (bound.lowest, bound.highest), "holes_exact": bound.exact}
            found[measure] = {**ends, "grades": grades}
    return found


def _labels(qrels: Qrels, baseline: Side, candidate: Side) -> Labels:
    """Whether what is judged is still what the runs list."""
    relevant = int((qrels.grade >= 1).sum())
    counts = [
        None if side.evaluation.retrieved < 0 else side.evaluation.retrieved
        for side in (baseline, candidate)
    ]
    changed = sorted(
        role
        for role in baseline.corpus.keys() & candidate.corpus.keys()
        if baseline.corpus[role] != candidate.corpus[role]
    )
    neither = None
    why = ""
    if candidate.run is not None:
        listed = [s.run for s in (baseline, candidate) if s.run is not None]
        neither = _listed_by_none(qrels, listed)
        why = _turned_over(qrels, baseline, candidate.run, candidate.evaluation.retrieved)
        room = sum(
            np.minimum(np.diff(run.start), _mean_relevant(qrels)).sum() for run in listed
        ) / len(listed)
        if not why and relevant - neither <= _FOUND * room:
            why = (
                f"{neither} of {relevant} relevant documents are listed by neither run: the ids of "
                "the judgements are not those that the runs list."
            )
    if not why and changed:
        why = f"The corpus is another one ({', '.join(changed)} differs by digest)."
    if why:
        why = (
            f"The labels no longer describe the corpus. {why} Nothing is said of the candidate: "
            "label the new documents, or map their ids, and gate again."
        )
    return Labels(relevant, counts[0], counts[1], neither, bool(why), why)


def _mean_relevant(qrels: Qrels) -> float:
    return float((qrels.grade >= 1).sum() / max(1, len(qrels.queries)))


def _listed_by_none(qrels: Qrels, runs: list[Run]) -> int:
    """Relevant judgements whose document none of the runs lists for the query."""
    wanted = qrels.to_frame().filter(pl.col("grade") >= 1).select("query", "doc")
    for run in runs:
        wanted = wanted.join(run.to_frame().select("query", "doc"), on=["query", "doc"], how="anti")
    return len(wanted)


def _turned_over(qrels: Qrels, baseline: Side, candidate: Run, found: int) -> str:
    """Why the candidate's ids seem to be new ones; empty where they are not.

    Where labels are few and the corpus is large, most of what a sound candidate lists is new too.
    So all ids have turned over only if next to nothing relevant is found besides, and some only if
    the other queries list what is known.
    """
    known = [qrels.doc.cast(pl.String)]
    if baseline.run is not None:
        known.append(baseline.run.doc.cast(pl.String))
    frame = candidate.to_frame().select("query", "doc").with_columns(pl.col("doc").cast(pl.String))
    new = frame.with_columns(new=~pl.col("doc").is_in(pl.concat(known).unique().implode()))
    judged = new.filter(pl.col("query").is_in(qrels.queries.implode()))
    if not len(judged):
        return ""
    each = judged.group_by("query").agg(pl.col("new").mean())["new"].to_numpy()
    share = float(judged["new"].mean() or 0.0)  # type: ignore[arg-type]
    turned = each == 1.0
    some = turned.mean() >= _TURNED and not turned.all() and each[~turned].mean() < _FAMILIAR
    before = max(baseline.evaluation.retrieved, 0) or int((qrels.grade >= 1).sum())
    if not (share >= _UNKNOWN and found <= _FOUND * before) and not some:
        return ""
    return (
        f"{share:.0%} of what {candidate.name} lists, and all of it for {int(turned.sum())} of "
        f"{len(turned)} queries, are documents that neither the judgements nor the baseline know."
    )
