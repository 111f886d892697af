"""Run × qrels × measures → Evaluation."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, get_args, overload

import numpy as np
import polars as pl

from rankproof import kernels
from rankproof.arrays import Bool, Float, Int
from rankproof.errors import InputError, MeasureError, check_word, shorten
from rankproof.measures.registry import Measure, Outcomes, parse, renamed
from rankproof.records import QrelsLike, RunLike, read_qrels, read_run
from rankproof.records.frames import is_frame
from rankproof.records.hits import RANKS, unwrapped
from rankproof.records.sources import stem
from rankproof.results.displayed import Displayed
from rankproof.results.judged import CONDENSED
from rankproof.results.plain import told
from rankproof.results.tables import Table
from rankproof.tables import Qrels, Run, Scale, as_series, ids_of
from rankproof.ties import (
    TIE_BREAKS,
    Order,
    Pool,
    Ranking,
    ScoreType,
    TieGroups,
    check_order,
    in_order,
    pool_of,
    rank_run,
    round_scores,
    tie_groups,
)

Missing = Literal["zero", "skip"]
Like = Literal["trec_eval", "trec_eval10", "ir_measures", "mteb", "ranx", "gdeval"]
LIKE: dict[Like, dict[str, str]] = {
    "trec_eval": {"order": "trec_eval", "missing": "skip", "score_dtype": "float32"},
    "trec_eval10": {"order": "trec_eval", "missing": "skip", "score_dtype": "float64"},
    "ir_measures": {"order": "trec_eval", "missing": "zero", "score_dtype": "float32"},
    "mteb": {"order": "trec_eval", "missing": "skip", "score_dtype": "float32"},
    "ranx": {"order": "input", "missing": "zero", "score_dtype": "float64"},
    "gdeval": {"order": "trec_eval", "missing": "skip", "score_dtype": "float64"},
}


@dataclass(frozen=True, slots=True)
class Policy:
    """Every choice that a reported number rests on."""

    order: Order = "input"
    missing: Missing = "zero"  # a judged query that the run lacks
    undefined: Missing = "skip"  # a measure that has no value for a query
    candidates_only: bool = False
    score_dtype: ScoreType | None = None  # None: as the scores came
    condensed: bool = False  # lists without the documents that nobody judged
    depth: int | None = None  # lists end behind this rank, under the stated tie-break

    @classmethod
    def of(
        cls,
        order: str | None = None,
        missing: str | None = None,
        candidates_only: bool = False,
        score_dtype: str | None = None,
        like: str | None = None,
        condensed: bool = False,
        depth: int | None = None,
    ) -> Policy:
        """A policy from the user's words; `like` sets what the others leave open."""
        if like is not None and like not in LIKE:
            raise InputError(
                f"rankproof cannot reproduce {shorten(like)}",
                remedy=f"use one of {', '.join(LIKE)}",
            )
        chosen: dict[str, Any] = {}
        if like is not None:
            chosen = LIKE[like] | {"undefined": "zero"}
        given = {"order": order, "missing": missing, "score_dtype": score_dtype}
        for name, value in given.items():
            if value is None:
                continue
            if name in chosen and chosen[name] != value and name != "missing":  # which is -c
                raise InputError(
                    f"{name} {value!r} contradicts like {like!r}, which means {chosen[name]!r}",
                    remedy="give one of the two",
                )
            chosen[name] = value
        if depth is not None and (isinstance(depth, bool) or not 1 <= depth < 1 << 31):
            raise InputError(f"depth {shorten(depth)}", remedy="read 1 document or more of a list")
        policy = cls(candidates_only=candidates_only, condensed=condensed, depth=depth, **chosen)
        check_order(policy.order)
        check_word("missing", policy.missing, get_args(Missing))
        if policy.score_dtype is not None:
            round_scores(np.zeros(1), policy.score_dtype)
        return policy

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def words(self, dtype: str) -> list[str]:
        """The policy in words; `dtype` is the format in which the scores came."""
        have = " with a relevant document" if self.undefined == "skip" else ""
        averaged = (
            f"every judged query{have}; one the run lacks counts 0"
            if self.missing == "zero"
            else f"the judged queries{have} that the run has"
        )
        relevant = (
            "those the run retrieved" if self.candidates_only else "all judged, retrieved or not"
        )
        undefined = "left out" if self.undefined == "skip" else "counted as 0"
        return [
            f"averaged over {averaged}",
            f"undefined values {undefined}",
            f"relevant documents: {relevant}",
            *([CONDENSED] if self.condensed else []),
            *([f"lists end behind rank {self.depth}"] if self.depth else []),
            f"scores compared as {self.score_dtype or dtype}",
            f"oblivious breaks ties by {TIE_BREAKS[self.order]}",
        ]


@dataclass(frozen=True, slots=True)
class Summary:
    """A measure's mean over queries, under every order of the ties.

    >>> found = rp.evaluate("try/saturated.trec", "try/qrels.txt", "nDCG@5")["nDCG@5"]
    >>> round(found.expected, 3), round(found.min, 3), round(found.max, 3), found.queries
    (0.477, 0.315, 0.641, 30)
    """

    expected: float
    oblivious: float
    min: float
    max: float
    std: float | None  # None where the measure has no closed form for it
    queries: int  # over which the means are taken
    undefined: int  # queries for which the measure has no value

    @property
    def range(self) -> float:
        return self.max - self.min

    @property
    def bias(self) -> float:
        return self.oblivious - self.expected

    def to_dict(self) -> dict[str, float | int | None]:
        figures = ("expected", "oblivious", "min", "max", "range", "bias", "std")
        return told(self, *figures, "queries", "undefined")


@as_series(queries="query")
@dataclass(frozen=True, eq=False, repr=False)
class Evaluation(Displayed):
    """The figures of one run; `evaluation["nDCG@10"].expected`.

    >>> found = rp.evaluate("try/saturated.trec", "try/qrels.txt", "nDCG@5")
    >>> found.queries.len(), found.tied, round(found["nDCG@5"].range, 3)
    (30, 30, 0.325)
    """

    name: str
    queries: pl.Series  # (Q,) the queries averaged over
    outcomes: dict[Measure, Outcomes]
    missing: int  # judged queries that the run lacks
    unjudged: int  # queries of the run that have no judgements
    tied: int  # evaluated queries with a tie group of two or more
    policy: Policy
    dtype: str  # in which the scores were compared
    notes: tuple[str, ...] = ()
    ties: TieGroups | None = field(default=None, repr=False)  # to draw orders of; None: not kept
    relevant: int = 0  # documents judged relevant, of the queries averaged over
    retrieved: int = -1  # of which the run lists so many; −1: not counted
    judged: dict[Measure, float] = field(default_factory=dict)  # Judged@k beside each, where asked
    _summaries: dict[Measure, Summary] = field(default_factory=dict, repr=False)

    def __getitem__(self, measure: str | Measure) -> Summary:
        key = parse(measure)
        if key not in self.outcomes:
            have = ", ".join(map(str, self.outcomes))
            raise KeyError(f"{key} was not evaluated; there are {have}")
        if key not in self._summaries:
            geometric = key.definition.geometric
            self._summaries[key] = _summarise(self.outcomes[key], geometric)
        return self._summaries[key]

    def renamed(self, name: str) -> Evaluation:
        """The same figures under another name."""
        return replace(self, name=name)

    def __iter__(self) -> Iterator[Measure]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    @cached_property
    def per_query(self) -> pl.DataFrame:
        """One row per query and measure: query, measure, expected, oblivious, min, max, std."""
        frames = []
        for measure, values in self.outcomes.items():
            variance = values.variance
            frames.append(
                pl.DataFrame(
                    {
                        "query": self.queries,
                        "measure": pl.repeat(str(measure), len(self.queries), eager=True),
                        "expected": values.expected,
                        "oblivious": values.oblivious,
                        "min": values.min,
                        "max": values.max,
                        "std": pl.Series(
                            [None] * len(self.queries) if variance is None else np.sqrt(variance),
                            dtype=pl.Float64,
                        ),
                    }
                )
            )
        return pl.concat(frames)

    def _shown(self) -> Table:
        from rankproof.results import views

        return views.evaluations([self])

    def plot(self) -> Any:
        """A dot for each measure, and the range that its ties leave open."""
        from rankproof.results.displayed import ranges

        rows = [(str(m), s.expected, s.min, s.max) for m in self for s in [self[m]]]
        return ranges(rows, "measure", "expected", "min", "max")

    def __repr__(self) -> str:
        return f"<{str(self).splitlines()[0]}; {', '.join(map(str, self.outcomes))}>"

    def to_dict(self, per_query: bool = False) -> dict[str, Any]:
        """What `rankproof eval --format json` prints for this run.

        With `per_query`, as `eval --out` writes it: also the values of single queries, from which
        a later `gate` takes its baseline.
        """
        found = {
            "name": self.name,
            "queries": len(ids_of(self, "queries")),
            "missing": self.missing,
            "unjudged": self.unjudged,
            "tied": self.tied,
            "score_dtype": self.dtype,
            "measures": {str(measure): self[measure].to_dict() for measure in self.outcomes},
            "notes": list(self.notes),
        }
        if not per_query:
            return found
        figures = ("expected", "min", "max", "oblivious", "variance")
        return found | {
            "relevant": self.relevant,
            "retrieved": self.retrieved,
            "per_query": {
                "query": self.queries.to_list(),
                "measures": {
                    str(measure): {
                        figure: None
                        if getattr(values, figure) is None
                        else [None if x != x else x for x in values.averaged(figure).tolist()]
                        for figure in figures
                    }
                    for measure, values in self.outcomes.items()
                },
            },
        }

    def __str__(self) -> str:
        rows = [
            f"{measure!s:<16} expected {s.expected:.4f}  oblivious {s.oblivious:.4f}  "
            f"[{s.min:.4f}, {s.max:.4f}]  n={s.queries}"
            for measure in self.outcomes
            for s in [self[measure]]
        ]
        count = len(ids_of(self, "queries"))
        return "\n".join([f"{self.name}: {count} queries, {self.tied} tied", *rows])


def _summarise(outcomes: Outcomes, geometric: bool = False) -> Summary:
    """Means over the queries that count and define it, correctly rounded in any order."""
    defined = ~np.isnan(outcomes.averaged())
    count = int(defined.sum())

    def mean(values: Float) -> float:
        if geometric and count:
            least = np.maximum(values[defined], 1e-5)  # where undefined counts as 0
            return math.exp(math.fsum(map(math.log, least)) / count)
        return math.fsum(values[defined].tolist()) / count if count else math.nan

    std = None
    if outcomes.variance is not None and not geometric:
        total = math.fsum(outcomes.variance[defined].tolist())
        std = math.sqrt(total) / count if count else math.nan
    return Summary(
        expected=mean(outcomes.expected),
        oblivious=mean(outcomes.oblivious),
        min=mean(outcomes.min),
        max=mean(outcomes.max),
        std=std,
        queries=count,
        undefined=len(defined) - count,
    )


Several: TypeAlias = "Mapping[str, Run] | Mapping[str, str] | list[Run] | list[str]"


class Choices(TypedDict, total=False):
    """What `Policy.of` takes, by name."""

    order: Order | None
    missing: Missing | None
    candidates_only: bool
    score_dtype: ScoreType | None
    like: Like | None
    condensed: bool
    depth: int | None


class _How(Choices, total=False):
    memory: int | str | None
    spill_dir: str | os.PathLike[str] | None


@overload
def evaluate(
    run: Several,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure],
    **how: Unpack[_How],
) -> dict[str, Evaluation]: ...


@overload
def evaluate(
    run: RunLike,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure],
    **how: Unpack[_How],
) -> Evaluation: ...


def evaluate(
    run: Any,
    qrels: QrelsLike,
    measures: str | Measure | Iterable[str | Measure],
    *,
    order: Order | None = None,
    missing: Missing | None = None,
    candidates_only: bool = False,
    score_dtype: ScoreType | None = None,
    like: Like | None = None,
    condensed: bool = False,
    depth: int | None = None,
    memory: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
) -> Evaluation | dict[str, Evaluation]:
    """Measure a run under every order of its ties.

    `run` and `qrels` are paths, dicts of dicts, frames, (query, document, number) rows, or tables
    read before. Several runs, as {name: run} or a list of paths or tables, give {name: Evaluation}.
    `order` is the tie-break behind `oblivious`: "input" (default), "docid" or
    "trec_eval". `missing` says whether a judged query that the run lacks counts "zero" (default)
    or is left out ("skip"). `candidates_only` takes the relevant documents the run retrieved as
    all there are, for rerankers. `score_dtype` rounds scores before comparing them. `like`
    reproduces another tool: "trec_eval", "trec_eval10", "ir_measures", "mteb", "ranx" or "gdeval";
    `missing` may differ from it, as with trec_eval's -c. `condensed` drops the documents that
    nobody judged before ranking, as trec_eval does with -J; `depth` ends each list behind that
    rank, as with -M.

    A file that would take more than `memory` ("2GB"; by default half of what is available), or a
    folder of files, is evaluated in parts, with the same figures to the last bit. Rows that do not
    stand together by query are then spilled to `spill_dir` (by default the system's temporary
    folder).

    >>> run = {"q1": {"a": 0.9, "b": 0.8, "c": 0.8}}
    >>> found = rp.evaluate(run, {"q1": {"b": 1}}, [rp.nDCG @ 2, "RR"])
    >>> found["RR"].expected, found["RR"].min, found["RR"].max
    (0.41666666666666663, 0.3333333333333333, 0.5)
    """
    policy = Policy.of(order, missing, candidates_only, score_dtype, like, condensed, depth)
    parsed = parse_all(measures)
    several = _several(run)
    if several is None and isinstance(run, Qrels):
        read_run(run)  # which says what is wrong before the judgements are read
    judged = read_qrels(qrels)
    bare = not isinstance(qrels, Qrels)

    def one(source: Any, name: str | None = None) -> Evaluation:
        if isinstance(source, str | os.PathLike):
            from rankproof.streaming import evaluate_file

            return evaluate_file(
                source, judged, parsed, policy, memory=memory, spill_dir=spill_dir, name=name
            )
        table = read_run(source, name=name)
        seen, sure = _swapped(table, judged)
        if sure and bare and not isinstance(source, Run):
            raise InputError(
                seen,
                place="evaluate",
                remedy="name the run first and the judgements second; if they are, hand over "
                "read_run(run) and read_qrels(qrels)",
            )
        return evaluate_tables(table, judged, parsed, policy)

    if several is None:
        return one(run)
    return {name: one(source, name) for name, source in several.items()}


_LISTED = (Mapping, list, tuple)  # what a dict holds for each query of a run


def _several(given: Any) -> dict[str, Any] | None:
    """Runs by name, where more than one run was given; None for a single one."""

    def is_run(value: Any) -> bool:
        if isinstance(value, Mapping):
            return all(isinstance(listed, _LISTED) for listed in value.values())
        return isinstance(value, Run | str | os.PathLike) or is_frame(value)

    if isinstance(given, Mapping):
        values = list(given.values())
        return dict(given) if values and all(map(is_run, values)) and not _one_run(values) else None
    if not isinstance(given, list | tuple) or not given or not all(map(is_run, given)):
        return None
    names = [
        value.name
        if isinstance(value, Run)
        else stem(os.fspath(value))
        if isinstance(value, str | os.PathLike)
        else f"run {number}"
        for number, value in enumerate(given, 1)
    ]
    if len(set(names)) < len(names):
        raise InputError(
            "two runs of one name", place="runs", remedy="name them: {'a': run, 'b': run}"
        )
    return dict(zip(names, given, strict=True))


def _one_run(values: list[Any]) -> bool:
    """Whether the values of a dict are lists of documents, so that the dict is one run."""
    if any(unwrapped(value) is not value for value in values):
        return True
    return all(
        isinstance(value, Mapping)
        and not any(isinstance(listed, _LISTED) for listed in value.values())
        for value in values
    )


_GRADES = 6  # a scale of judgements has hardly more steps
_SCORES = 12  # and what takes more values is hardly one


def _swapped(run: Run, qrels: Qrels) -> tuple[str, bool]:
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


def parse_all(measures: str | Measure | Iterable[str | Measure]) -> list[Measure]:
    """The measures asked for, each once, in order."""
    several = [measures] if isinstance(measures, str | Measure) else list(measures)
    if not several:
        raise InputError("no measure was named", remedy="name one, such as nDCG@10")
    return list(dict.fromkeys(parse(m) for m in several))


def at_level(measures: list[Measure], level: int | None) -> list[Measure]:
    """Measures that call a grade relevant and name none, with this one (trec_eval's -l)."""
    if level is None:
        return measures
    return [
        m(rel=level)
        if isinstance(dict(m.resolved).get("rel"), int)
        and dict(m.given).keys().isdisjoint({"rel", "max"})
        and "gain" not in m.definition.parameters
        else m
        for m in measures
    ]


def parse_means(measures: str | Measure | Iterable[str | Measure]) -> list[Measure]:
    """`parse_all` for differences and intervals, which are those of plain means over queries."""
    parsed = parse_all(measures)
    other = next((m for m in parsed if m.definition.geometric), None)
    if other is not None:
        raise MeasureError(f"{other} is not a plain mean over queries", remedy="ask for AP here")
    return parsed


def evaluate_tables(
    run: Run, qrels: Qrels, measures: Sequence[Measure], policy: Policy
) -> Evaluation:
    """`evaluate` for tables and parsed measures."""
    for measure in measures:
        check_scale(measure, qrels.grade, qrels.place)
    if not (_match(qrels, run) >= 0).any():
        raise strangers(run.name, run.queries, qrels)
    found, (seen, _) = evaluate_some(run, qrels, measures, policy), _swapped(run, qrels)
    odd = [f"are run and judgements swapped? {seen}"] if seen else []
    if not found.retrieved and not run.doc.is_in(qrels.doc.implode()).any():
        odd.append(
            f"no document is both in {run.name} ({some_of(run.doc)}) and in {qrels.name} "
            f"({some_of(qrels.doc)}): do both name documents alike?"
        )
    return replace(found, notes=(*found.notes, *odd)) if odd else found


def strangers(name: str, queries: pl.Series, qrels: Qrels) -> InputError:
    """The error for a run and judgements that have no query in common."""
    return InputError(
        f"no query is both in {name} ({some_of(queries)}) "
        f"and in {qrels.name} ({some_of(qrels.queries)})",
        remedy="check that the two files belong together",
    )


def evaluate_some(
    run: Run, qrels: Qrels, measures: Sequence[Measure], policy: Policy
) -> Evaluation:
    """`evaluate_tables` without its checks, for some of the queries of a larger run."""
    if policy.depth is not None:
        run = in_order(run, policy.order, policy.score_dtype, policy.depth)
    met = meet(run, qrels, policy)
    tied = np.append(met.ranking.tied, False)[met.listed]
    notes = [*notes_on(qrels, measures), *run.notes]
    if only_ranks(run, met.ranking):
        notes.append(f"the scores of {run.name} are only ranks: ties cannot be seen in them")
    split = 0 if run.cut is None else int((run.cut > 0).sum())
    if split:
        notes.append(
            f"{split} lists of {run.name} end inside a tie: which of its documents they hold was "
            "decided before"
        )
    groups = met.groups()
    outcomes = measure_all(groups, measures, policy)
    of_all = [m for m in measures if m.name == "Judged"] if policy.condensed else []
    if of_all:  # condensed lists are judged by construction: what is asked is what was left out
        whole = meet(run, qrels, replace(policy, condensed=False)).groups()
        outcomes |= measure_all(whole, of_all, policy)
    return Evaluation(
        name=run.name,
        queries=met.queries,
        outcomes=outcomes,
        missing=met.missing,
        unjudged=len(run.start) - len(qrels.start) + met.missing,
        tied=int(tied.sum()),
        policy=policy,
        dtype=policy.score_dtype or run.dtype,
        notes=tuple(notes),
        ties=undecided(groups, measures, outcomes),
        relevant=int((met.pool.unsorted >= 1).sum()),
        retrieved=int((groups.grade >= 1).sum()),
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


@dataclass(frozen=True, slots=True, eq=False)
class Met:
    """A run and judgements brought together on the queries evaluated."""

    queries: Any  # (Q,) ids of either kind
    missing: int  # judged queries that the run lacks
    ranking: Ranking
    listed: Int  # (Q,) the ranking's index of each query, or −1
    query: Int  # (P,) of each judgement, ascending
    row: Int  # (P,) of the run that holds the document, or −1
    grade: Int  # (P,)
    pool: Pool
    sampled: tuple[Int, Int] | None = None  # query and row of what was pooled and not judged

    def groups(self) -> TieGroups:
        judged = self.query, self.row, self.grade
        return tie_groups(self.ranking, self.listed, *judged, self.pool, self.sampled)


def meet(run: Run, qrels: Qrels, policy: Policy) -> Met:
    """Find each judged document in the run's lists, as the policy says."""
    listed = _match(qrels, run)
    missing = int((listed < 0).sum())
    pool = _whole_pool(qrels)
    query, queries, grade = pool.query, ids_of(qrels, "queries"), qrels.grade
    docs = ids_of(run, "doc"), ids_of(qrels, "doc")
    row = kernels.lookup(run.index, docs[0], run.start, docs[1], listed[query])
    sampled = None
    if policy.condensed:
        run, row = _condensed(run, row)
    elif qrels.sampled is not None:
        own = qrels.sampled.query, ids_of(qrels.sampled, "doc")
        sampled = own[0], kernels.lookup(run.index, docs[0], run.start, own[1], listed[own[0]])
    ranking = rank_run(run, policy.order, policy.score_dtype)
    if policy.missing == "skip" and missing:
        if sampled is not None:
            kept = listed[sampled[0]] >= 0
            sampled = (np.cumsum(listed >= 0) - 1)[sampled[0][kept]], sampled[1][kept]
        queries, listed, query, row, grade = _keep_listed(queries, listed, query, row, grade)
        pool = pool_of(query, grade, len(listed), pool.max_grade)
    if policy.candidates_only:
        pool = pool_of(query[row >= 0], grade[row >= 0], len(listed), pool.max_grade)
    return Met(queries, missing, ranking, listed, query, row, grade, pool, sampled)


def _condensed(run: Run, row: Int) -> tuple[Run, Int]:
    """The run without its unjudged documents, and the judgements' rows in it."""
    keep = np.zeros(len(run), np.bool_)
    keep[row[row >= 0]] = True
    kept = np.append(0, np.cumsum(keep))
    doc = run.doc.filter(pl.Series(keep)).rechunk()
    rest = None if run.rest is None else run.rest[keep]
    columns: dict[str, Any] = {"doc": doc, "score": run.score[keep], "rest": rest}
    shorter = replace(run, start=kept[run.start], **columns, index=None, cache={})
    return shorter, np.where(row >= 0, kept[row], -1)


def _whole_pool(qrels: Qrels) -> Pool:
    """Every judgement; made once for all runs evaluated on these qrels."""
    if "pool" not in qrels.cache:
        qrels.cache["pool"] = Pool(qrels.start, int(qrels.grade.max(initial=0)), qrels.grade)
    pool: Pool = qrels.cache["pool"]
    return pool


def measure_all(
    groups: TieGroups, measures: Sequence[Measure], policy: Policy
) -> dict[Measure, Outcomes]:
    """Every measure, by default over one set of queries: those with a relevant document.

    Where nothing is relevant nDCG and AP have no value; were RR and P to count 0 there, the
    figures of one table would be means over different queries.
    """

    def of(measure: Measure) -> Outcomes:
        found = measure.outcomes(groups)
        if policy.undefined == "zero":
            return undefined_is_zero(found)
        some = counts(groups, measure)
        return found if some.all() else replace(found, counted=some)

    found = kernels.each(of, measures, len(groups.grade))
    return dict(zip(measures, found, strict=True))


def counts(groups: TieGroups, measure: Measure) -> Bool:
    """(Q,) the queries that a mean is over: those with a relevant document."""
    if measure.definition.grades is not None:  # a scale of its own has its own rule
        return np.ones(groups.queries, np.bool_)
    return np.asarray(groups.relevant(threshold(measure)) > 0, np.bool_)


def threshold(measure: Measure) -> int:
    """The least grade that the measure calls relevant."""
    rel = dict(measure.resolved).get("rel", 1)
    return rel if isinstance(rel, int) else 1  # NumRet(rel=None) asks for no grade


def undecided(
    groups: TieGroups, measures: Sequence[Measure], outcomes: dict[Measure, Outcomes]
) -> TieGroups | None:
    """What is needed to draw orders of the ties; None where no order changes a figure."""
    if not any((found.max > found.min).any() for found in outcomes.values()):
        return None
    cutoffs = [measure.cutoff for measure in measures]
    known = [cutoff for cutoff in cutoffs if cutoff is not None]
    return groups if len(known) < len(cutoffs) else groups.within(max(known))


def undefined_is_zero(outcomes: Outcomes) -> Outcomes:
    def filled(values: Float) -> Float:
        return np.where(np.isnan(values), 0.0, values)

    variance = None if outcomes.variance is None else filled(outcomes.variance)
    return replace(
        outcomes,
        expected=filled(outcomes.expected),
        min=filled(outcomes.min),
        max=filled(outcomes.max),
        oblivious=filled(outcomes.oblivious),
        variance=variance,
    )


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


def _match(qrels: Qrels, run: Run) -> Int:
    """(Q,) where the run has each judged query, or −1; found once for a pair."""
    known = qrels.cache.get("match")
    if known is None or known[0] is not run.start:
        found = kernels.match(ids_of(qrels, "queries"), ids_of(run, "queries"))
        known = qrels.cache["match"] = run.start, found
    listed: Int = known[1]
    return listed


def _keep_listed(
    queries: kernels.Ids, listed: Int, query: Int, row: Int, grade: Int
) -> tuple[kernels.Ids, Int, Int, Int, Int]:
    keep = listed >= 0
    place = np.cumsum(keep) - 1
    rows = keep[query]
    return (
        queries.gather(np.flatnonzero(keep)),
        listed[keep],
        place[query[rows]],
        row[rows],
        grade[rows],
    )


def some_of(ids: pl.Series) -> str:
    """The first few, for a message."""
    shown = ", ".join(shorten(i, 24) for i in ids.head(3))
    return f"{shown}, …" if len(ids) > 3 else shown
