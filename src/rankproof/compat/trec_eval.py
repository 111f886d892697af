"""trec_eval 9's output: the same arguments, the same lines, byte for byte.

Its values are those of one order of the ties: scores as float32, ties by descending document id.
Queries are summed in order, as trec_eval does, so that the last printed digit agrees.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.compat import trec_formulas
from rankproof.compat.preferences import Form, evaluate_preferences
from rankproof.compat.trec_formulas import raise_grades
from rankproof.data import read_qrels
from rankproof.data.sources import Source
from rankproof.data.tables import Qrels, Run
from rankproof.data.ties import Order, TieGroups, in_order
from rankproof.data.trec import place_in, split_fields
from rankproof.evaluation import (
    Evaluation,
    Policy,
    at_level,
    evaluate_some,
    match_judgments,
    measure_all,
    no_common_query,
)
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Float, Int
from rankproof.foundation.errors import InputError, MeasureError, shorten
from rankproof.measures import Measure, parse

Formula = Callable[[Any], Any]  # tie groups → (Q,) figures; of relstring, texts
Make = Callable[[int, Any], Measure | Formula]  # level (-l), what follows the dot →


@dataclass(frozen=True, slots=True)
class _MeasureKind:
    """A measure of trec_eval's, and the parameters that may follow its dot.

    Each rank or share makes a line; numbers and gains make one line together.
    """

    make: Make
    takes: Literal["nothing", "ranks", "shares", "numbers", "gains"] = "nothing"
    usual: Sequence[float] = ()


def _own_measure(name: str) -> Make:
    return lambda level, cut: _at_level(parse(name if cut is None else f"{name}@{cut}"), level)


def _at_level(measure: Measure, level: int) -> Measure | Formula:
    if level < 0:
        raise MeasureError(f"level {level} is negative", remedy="count grades from 0 on")
    leveled = measure if level == 1 else at_level([measure], level or 2)[0]
    if level or leveled == measure:  # of nDCG and NumRet none is asked
        return leveled
    policy = Policy(undefined="zero")  # of ours none counts from grade 0
    return lambda groups: measure_all(raise_grades(groups), [measure], policy)[measure].oblivious


def _formula(formula: Callable[..., Any]) -> Make:
    def make(level: int, told: Any) -> Formula:
        return lambda groups: formula(groups, level, *([] if told is None else [told]))

    return make


def _eleven_points(level: int, shares: Sequence[float]) -> Measure | Formula:
    if not shares:
        return _own_measure("AP11")(level, None)
    if sorted(shares) != list(shares):
        raise MeasureError("11pt_avg: levels of recall that fall", remedy="write 11pt_avg..2,.5,.8")
    return _formula(trec_formulas.averaged_precision)(level, shares)


def _set_f(level: int, told: Sequence[float]) -> Measure | Formula:
    return _at_level(parse("SetF")(beta=told[0]) if told else parse("SetF"), level)


def _ndcg(_: int, gains: Sequence[tuple[int, float]]) -> Measure:
    return parse("nDCG")(gain=dict(gains)) if gains else parse("nDCG")


_RANKS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
_TENTHS = tuple(number / 10 for number in range(11))
_FIFTHS = tuple(number / 5 for number in range(1, 11))
# In trec_eval's order.
_MEASURES: dict[str, _MeasureKind] = {
    "num_ret": _MeasureKind(_own_measure("NumRet")),
    "num_rel": _MeasureKind(_own_measure("NumRel")),
    "num_rel_ret": _MeasureKind(_own_measure("NumRelRet")),
    "map": _MeasureKind(_own_measure("AP")),
    "gm_map": _MeasureKind(_own_measure("AP")),
    "Rprec": _MeasureKind(_own_measure("Rprec")),
    "bpref": _MeasureKind(_own_measure("bpref")),
    "recip_rank": _MeasureKind(_own_measure("RR")),
    "iprec_at_recall": _MeasureKind(_own_measure("IPrec"), "shares", _TENTHS),
    "P": _MeasureKind(_own_measure("P"), "ranks", _RANKS),
    "relstring": _MeasureKind(_formula(trec_formulas.first_grades), "numbers", (10.0,)),
    "recall": _MeasureKind(_own_measure("R"), "ranks", _RANKS),
    "infAP": _MeasureKind(_own_measure("infAP")),
    "gm_bpref": _MeasureKind(_own_measure("bpref")),
    "Rprec_mult": _MeasureKind(_formula(trec_formulas.multiple_r_precision), "shares", _FIFTHS),
    "utility": _MeasureKind(_formula(trec_formulas.utility), "numbers", (1.0, -1.0, 0.0, 0.0)),
    "11pt_avg": _MeasureKind(_eleven_points, "numbers"),
    "binG": _MeasureKind(_formula(trec_formulas.binary_gain)),
    "G": _MeasureKind(_formula(trec_formulas.gain_over_cost), "gains"),
    "ndcg": _MeasureKind(_ndcg, "gains"),
    "ndcg_rel": _MeasureKind(_formula(trec_formulas.ndcg_at_relevant), "gains"),
    "Rndcg": _MeasureKind(_formula(trec_formulas.ndcg_at_levels), "gains"),
    "ndcg_cut": _MeasureKind(_own_measure("nDCG"), "ranks", _RANKS),
    "map_cut": _MeasureKind(_own_measure("AP"), "ranks", _RANKS),
    "relative_P": _MeasureKind(_formula(trec_formulas.relative_precision), "ranks", _RANKS),
    "success": _MeasureKind(_own_measure("Success"), "ranks", (1, 5, 10)),
    "set_P": _MeasureKind(_own_measure("SetP")),
    "set_relative_P": _MeasureKind(_formula(trec_formulas.set_relative_precision)),
    "set_recall": _MeasureKind(_own_measure("SetR")),
    "set_map": _MeasureKind(_own_measure("SetAP")),
    "set_F": _MeasureKind(_set_f, "numbers"),
    "num_nonrel_judged_ret": _MeasureKind(_formula(trec_formulas.judged_others)),
    "yaap": _MeasureKind(_formula(trec_formulas.log_odds)),
}
ORDER = ("runid", "num_q", *_MEASURES)
NICKNAMES = {
    "official": ORDER[: ORDER.index("P") + 1],
    "set": (*ORDER[:5], "utility", *(name for name in ORDER if name.startswith("set_"))),
    "all_trec": ORDER[:-1],
}
_PREFERENCES = {
    name: _MeasureKind(lambda _, __, name=name: itemgetter(name))  # type: ignore[misc]
    for name in (
        *("prefs_num_prefs_poss", "prefs_num_prefs_ful", "prefs_num_prefs_ful_ret"),
        *("prefs_simp", "prefs_pair", "prefs_avgjg", "prefs_avgjg_Rnonrel"),
        *("prefs_simp_ret", "prefs_pair_ret", "prefs_avgjg_ret", "prefs_avgjg_Rnonrel_ret"),
        *("prefs_simp_imp", "prefs_pair_imp", "prefs_avgjg_imp"),
    )
}
_BY_PERSON = {
    "map_avgjg": _MeasureKind(_own_measure("AP")),
    "P_avgjg": _MeasureKind(_own_measure("P"), "ranks", _RANKS),
    "Rprec_mult_avgjg": _MeasureKind(
        _formula(trec_formulas.multiple_r_precision), "shares", _FIFTHS
    ),
}
# What is offered for each format of judgements (-R).
_OFFERED = {"qrels": _MEASURES, "qrels_jg": _BY_PERSON, "prefs": _PREFERENCES}
_OFFERED["qrels_prefs"] = _PREFERENCES
_PREFS = {"all_prefs": ("runid", "num_q", *_PREFERENCES)}
_PREFS["prefs"] = _PREFS["all_prefs"][:8]
_NICKNAMES = {"qrels": NICKNAMES, "qrels_jg": {"qrels_jg": ("runid", "num_q", *_BY_PERSON)}}
_NICKNAMES |= {"prefs": _PREFS, "qrels_prefs": _PREFS}
_SMALLEST_VALUE = 1e-5  # of a value in a geometric mean


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of the output: trec_eval's measure, its printed name, and how it is computed."""

    name: str
    printed: str
    means: Measure | Formula
    level: int
    at: float  # rank, or share of recall: of several the least
    usual: bool  # whether nothing else is told

    @property
    def measure(self) -> Measure | None:
        """The measure of rankproof's, which has a value for every order of ties."""
        return self.means if isinstance(self.means, Measure) else None

    @property
    def formula(self) -> Formula | None:
        return None if isinstance(self.means, Measure) else self.means

    @property
    def adds(self) -> bool:
        """True for a count, which is summed over queries."""
        return self.name.startswith(("num_", "prefs_num_"))


def logs(values: Float) -> Float:
    """Return the logarithms that a geometric mean averages."""
    least = np.maximum(values, _SMALLEST_VALUE).tolist()
    return np.fromiter(map(math.log, least), np.float64, len(least))


def requested_lines(
    measures: Sequence[str], level: int = 1, collection: int = 0, form: str = "qrels"
) -> tuple[set[str], list[OutputLine]]:
    """Return the lines that `-m` names, in trec_eval's order; without any, `official`."""
    wanted: dict[str, str] = {}
    offered, nicknames = _OFFERED[form], _NICKNAMES[form]
    for text in measures or ("official",):
        name, dot, told = text.partition(".")
        for each in nicknames.get(name, (name,)):
            if each not in ("runid", "num_q", *offered) or (dot and not told):
                of = "" if form == "qrels" else f" with -R {form}"
                raise MeasureError(
                    f"trec_eval's measure {shorten(text)} is not offered{of}",
                    remedy=f"there are runid, num_q, {', '.join(offered)}, {', '.join(nicknames)}",
                )
            wanted[each] = wanted.get(each) or told  # trec_eval, too, takes the first it is told
    return set(wanted), [
        line
        for name, kind in offered.items()
        if name in wanted
        for line in _lines(name, kind, wanted[name], level, collection)
    ]


def _lines(
    name: str, kind: _MeasureKind, told: str, level: int, collection: int
) -> Iterator[OutputLine]:
    """Yield the lines of one measure; `told` is what follows its dot."""
    if kind.takes == "nothing":  # trec_eval reads over it, too
        yield OutputLine(name, name, kind.make(level, None), level, 0.0, True)
    elif kind.takes == "ranks":
        for rank in _each(name, told, whole=True) if told else kind.usual:
            yield OutputLine(name, f"{name}_{rank}", kind.make(level, rank), level, rank, True)
    elif kind.takes == "shares":
        for share in _each(name, told, whole=False) if told else kind.usual:
            made = kind.make(level, share)
            yield OutputLine(name, f"{name}_{share:3.2f}", made, level, share, True)
    else:
        read = _pair if kind.takes == "gains" else _number
        values: Any = [read(part) for part in told.split(",")] if told else kind.usual
        if len(kind.usual) > 0 and len(values) != len(kind.usual):
            raise MeasureError(
                f"{name}: {len(values)} numbers", remedy=f"trec_eval reads {len(kind.usual)}"
            )
        if name == "utility":
            values = [*values, collection]
        least = min(values, default=0.0) if name == "11pt_avg" else 0.0
        made = kind.make(level, values)
        usual = not told and not collection
        yield OutputLine(name, f"{name}_{told}" if told else name, made, level, least, usual)


def _each(name: str, told: str, whole: bool) -> list[float]:
    values: list[float] = sorted(map(_whole if whole else _number, told.split(",")))
    if len(set(values)) < len(values) or (whole and values[0] < 1):
        raise MeasureError(
            f"{name}.{shorten(told)}: a cutoff twice, or below 1", remedy="write P.5,10, say"
        )
    return values


def _whole(text: str) -> int:
    """Return a whole number as C's atol reads it: 23.4 is 23."""
    found = re.match(r"\s*\+?([0-9]{1,18})", text)
    return int(found[1]) if found else 0


def _number(text: str) -> float:
    with suppress(ValueError):
        if math.isfinite(float(text)):
            return float(text)
    raise MeasureError(f"{shorten(text)} is not a number", remedy="write P.5,10, say")


def _pair(text: str) -> tuple[int, float]:
    grade, equals, gain = text.partition("=")
    if not equals or not grade.isdecimal():
        raise MeasureError(
            f"{shorten(text)} is not a grade with its gain", remedy="write ndcg.1=3,2=9, say"
        )
    return int(grade), _number(gain)


def compiled_numbers(lines: Iterable[OutputLine]) -> tuple[Int, Float] | None:
    """Return lines as numbers of compiled code; None if it does not know one of them."""
    numbers = {name: number for number, name in enumerate(_MEASURES)}
    if not all(line.usual and line.name in numbers for line in lines):
        return None
    which = np.array([numbers[line.name] for line in lines], np.int64)
    return which, np.array([line.at for line in lines], np.float64)


def line_values(groups: TieGroups, lines: Sequence[OutputLine], policy: Policy) -> Float:
    """Return the values (Q, L) of each line in the groups' order of ties.

    A geometric mean has its logarithms, relstring only zeros.
    """
    left, table = list(lines), np.zeros((groups.queries, len(lines)))
    quick = [line for line in lines if compiled_numbers([line]) is not None]
    if groups.sampled is not None:
        quick = [line for line in quick if line.name != "infAP"]
    numbers = compiled_numbers(quick)
    if quick and numbers is not None:
        found = (groups.listed, groups.doc_query, groups.rank, groups.grade)
        pool = (groups.pool.start, groups.pool.unsorted)
        figures = kernels.trec_eval_values(found, pool, quick[0].level, *numbers)
        if figures is not None:
            if quick == left:
                return figures
            table[:, [lines.index(line) for line in quick]] = figures
            left = [line for line in lines if line not in quick]
    wanted = dict.fromkeys(line.measure for line in left if line.measure is not None)
    outcomes = measure_all(groups, list(wanted), policy)
    empty = groups.listed == 0  # by -J; interpolated precision is then 0/0 there
    for line in left:
        if line.name == "relstring":
            continue
        means = line.means
        values = outcomes[means].oblivious if isinstance(means, Measure) else means(groups)
        if line.name in ("iprec_at_recall", "11pt_avg"):
            nothing = empty & (np.floor(line.at * groups.relevant(line.level) + 0.9) < 1)
            values = np.where(nothing, -np.nan, values)
        table[:, lines.index(line)] = logs(values) if line.name.startswith("gm_") else values
    return table


@dataclass(frozen=True)
class Output:
    """The lines of an evaluation; with `ties`, also the values over all orders of ties."""

    names: list[str]  # of the queries
    columns: list[Any]  # of each line
    lines: list[OutputLine]
    shown: set[str]
    queries: int  # over which means are taken
    relevant: int | None  # documents, where -c counts those of queries that the run lacks
    tag: str
    ties: Evaluation | None = None
    standard: bool = False  # scores beside those of other runs (-Z)

    def single(self) -> Iterator[str]:
        """Yield the lines of each query (-q)."""
        shown = [at for at, line in enumerate(self.lines) if not line.name.startswith("gm_")]
        beside = [self._beside(self.lines[at]) for at in shown]
        for row, query in enumerate(self.names):
            for at, other in zip(shown, beside, strict=True):
                value = self.columns[at][row]
                yield self._printed(self.lines[at], query, value, [float(c[row]) for c in other])

    def summary(self) -> Iterator[str]:
        if "runid" in self.shown:
            yield f"{'runid':<22}\tall\t{self.tag}\n"
        if "num_q" in self.shown:
            number = f"{self.queries:6.4f}" if self.standard else f"{self.queries}"
            yield f"{'Z' * self.standard}{'num_q':<22}\tall\t{number}\n"
        for line, values in zip(self.lines, self.columns, strict=True):
            if line.name != "relstring":
                figures = [self._mean(line, column) for column in self._beside(line)]
                yield self._printed(line, "all", self._mean(line, values), figures)

    def _printed(self, line: OutputLine, query: str, value: Any, beside: list[float]) -> str:
        figures = "".join("\t-" if math.isnan(x) else f"\t{x:6.4f}" for x in beside)
        if isinstance(value, str):
            return f"{line.printed:<22}\t{query}\t'{value}'{figures}\n"
        if line.adds and not self.standard:
            said = f"{int(value)}"
        elif math.isnan(value) and math.copysign(1.0, value) < 0:  # as C prints 0/0
            said = "  -nan"
        else:
            said = f"{float(value):6.4f}"
        return f"{'Z' * self.standard}{line.printed:<22}\t{query}\t{said}{figures}\n"

    def _beside(self, line: OutputLine) -> list[Float]:
        if self.ties is None:
            return []
        if line.measure is None:
            return [np.full(len(self.names), np.nan)] * 3
        found = self.ties.outcomes[line.measure]
        figures = [found.expected, found.min, found.max]
        return [logs(x) for x in figures] if line.name.startswith("gm_") else figures

    def _mean(self, line: OutputLine, values: Float) -> float:
        if line.name == "num_rel" and self.relevant is not None:
            return float(self.relevant)
        if line.name.startswith("gm_"):
            missing = (self.queries - len(values)) * math.log(_SMALLEST_VALUE)
            mean = (_sum(values) + missing) / self.queries
            return math.exp(mean) if mean < 709.0 else math.inf
        return _sum(values) if line.adds else _sum(values) / self.queries


def _sum(values: Float) -> float:
    """Return the sum in order, which decides the last bit."""
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
) -> Output:
    """Return what trec_eval prints.

    `complete` is -c, `level` -l, `depth` -M, `judged_only` -J, `collection` -N, `reference` -Z and
    `form` -R: with another than qrels the judgements are those of `read_people`.
    """
    shown, lines = requested_lines(measures, level, collection, form)
    policy = Policy("trec_eval", "skip", "zero", condensed=judged_only)
    tied = relevant = None
    if not isinstance(judged, Qrels):
        queries = judged["query"].n_unique()
        # Of preferences it breaks ties the other way round.
        groups_of_dicts = in_order(run, _TIES[form], "float32", depth, settle=True)
        if form == "qrels_jg":
            names, columns = _mean_person(judged, groups_of_dicts, lines, policy)
        else:
            names, found = evaluate_preferences(judged, groups_of_dicts)
            columns = [line.formula(found) for line in lines if line.formula is not None]
        if not names:
            raise no_common_query(run.name, run.queries, _grades(judged.unique(["query", "doc"])))
    else:
        queries = len(judged.start) - 1
        ranked = in_order(run, _TIES[form], "float32", depth, settle=True)
        met = match_judgments(ranked, judged, policy)
        if not len(met.listed):
            raise no_common_query(run.name, run.queries, judged)
        groups = met.groups()
        columns = [
            line.formula(groups) if line.name == "relstring" and line.formula else column
            for line, column in zip(lines, line_values(groups, lines, policy).T, strict=True)
        ]
        names = list(met.queries)  # of either kind: polars need not be loaded
        relevant = int((judged.grade > 0).sum()) if complete else None
        if ties:
            rounded = Policy("trec_eval", "skip", "zero", False, "float32", judged_only, depth)
            wanted = dict.fromkeys(line.measure for line in lines if line.measure is not None)
            tied = evaluate_some(run, judged, list(wanted), rounded)
    if reference is not None:
        columns = _standardised(names, lines, columns, reference)
    return Output(
        names,
        columns,
        lines,
        shown,
        queries=queries if complete else len(names),
        relevant=relevant,
        tag=tag,
        ties=tied,
        standard=reference is not None,
    )


def _grades(judged: pl.DataFrame) -> Qrels:
    return read_qrels(judged.select("query", "doc", pl.col("level").alias("grade")))


def _mean_person(
    judged: pl.DataFrame, run: Run, lines: Sequence[OutputLine], policy: Policy
) -> tuple[list[str], list[Float]]:
    """Return the values of each query as means over the people who judged it."""
    names = judged["query"].unique().sort()
    names = names.filter(names.is_in(run.queries.implode()))
    at = {name: number for number, name in enumerate(names)}
    sums, people = np.zeros((len(lines), len(at))), np.zeros(len(at))
    for of_person in judged.partition_by("person", maintain_order=True):
        met = match_judgments(run, _grades(of_person), policy)
        rows = [at[name] for name in kernels.as_polars(met.queries, "query")]
        people[rows] += 1
        if rows:
            sums[:, rows] += line_values(met.groups(), lines, policy).T
    return names.to_list(), list(sums / np.maximum(people, 1))


_TIES: dict[str, Order] = dict.fromkeys(("qrels", "qrels_jg"), "trec_eval")
_TIES |= dict.fromkeys(("prefs", "qrels_prefs"), "docid")

# ----------------------------------------------------------------------- standard scores (-Z)

_UNKNOWN = -1e6  # of a measure that other runs have no spread of


def read_reference(path: str) -> pl.DataFrame:
    """Return mean and standard deviation of each query and measure over other runs."""
    source = Source(path)
    _, fields = split_fields(source.text())
    names = ["query", "measure", "mean", "deviation"]
    texts = {name: fields.list.get(at, null_on_oob=True) for at, name in enumerate(names)}
    frame = pl.DataFrame(texts).with_columns(pl.col(names[2:]).cast(pl.Float64, strict=False))
    odd = (fields.list.len() != 4) | frame["mean"].is_null() | frame["deviation"].is_null()
    if odd.any():
        raise InputError(
            "this is no query, measure, mean and deviation",
            place=place_in(source)(int(odd.arg_max() or 0)),
            remedy="write 301 map 0.25 0.1, say",
        )
    return frame


def _standardised(
    names: list[str], lines: Sequence[OutputLine], columns: list[Any], reference: pl.DataFrame
) -> list[Any]:
    """Return (value − mean)/deviation of each line."""
    told = {(query, name): (mean, spread) for query, name, mean, spread in reference.iter_rows()}
    found: list[Any] = []
    for line, values in zip(lines, columns, strict=True):
        if line.name == "relstring":
            found.append(values)
            continue
        other = [told.get((name, line.printed), (_UNKNOWN, 0.0)) for name in names]
        mean, spread = np.array(other, np.float64).reshape(-1, 2).T
        with np.errstate(all="ignore"):
            score = (values - mean) / spread
        found.append(np.where(spread != 0, score, np.where(values == mean, 0.0, _UNKNOWN)))
    return found
