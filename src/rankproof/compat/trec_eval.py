"""trec_eval 9's output: the same arguments, the same lines, byte for byte.

Its figures are those of one order of the ties: scores as float32, ties by document id descending.
Sums over queries are made one after the other, as it makes them, so that the last printed digit is
its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rankproof import kernels
from rankproof.arrays import Float
from rankproof.compat import formulas
from rankproof.errors import MeasureError, shorten
from rankproof.evaluation import (
    Evaluation,
    Policy,
    at_level,
    evaluate_some,
    measure_all,
    meet,
    strangers,
)
from rankproof.measures.registry import Measure, Outcomes, parse
from rankproof.tables import Qrels, Run
from rankproof.ties import TieGroups, in_order

Formula = Callable[[TieGroups], Any]  # → (Q,) figures; of relstring, texts
Make = Callable[[int, Any], Measure | Formula]  # level (-l), what follows the dot →


@dataclass(frozen=True, slots=True)
class _Kind:
    """A measure of trec_eval's, and what may follow its dot.

    Ranks and shares make a line each; numbers and gains one line for all of them.
    """

    make: Make
    takes: Literal["nothing", "ranks", "shares", "numbers", "gains"] = "nothing"
    usual: Sequence[float] = ()


def _ours(name: str) -> Make:
    def make(level: int, cut: Any) -> Measure:
        measure = parse(name if cut is None else f"{name}@{cut}")
        return at_level([measure], None if level == 1 else level)[0]

    return make


def _theirs(formula: Callable[..., Any]) -> Make:
    def make(level: int, told: Any) -> Formula:
        return lambda groups: formula(groups, level, *([] if told is None else [told]))

    return make


def _eleven_points(level: int, shares: Sequence[float]) -> Measure | Formula:
    if not shares:
        return _ours("AP11")(level, None)
    if sorted(shares) != list(shares):
        raise MeasureError("11pt_avg: levels of recall that fall", remedy="write 11pt_avg..2,.5,.8")
    return _theirs(formulas.averaged_precision)(level, shares)


def _set_f(level: int, told: Sequence[float]) -> Measure | Formula:
    found = _ours("SetF")(level, None)
    return found(beta=told[0]) if told and isinstance(found, Measure) else found


def _ndcg(_: int, gains: Sequence[tuple[int, float]]) -> Measure:
    return parse("nDCG")(gain=dict(gains)) if gains else parse("nDCG")


_RANKS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
_TENTHS = tuple(number / 10 for number in range(11))
_FIFTHS = tuple(number / 5 for number in range(1, 11))
# In trec_eval's order.
_MEASURES: dict[str, _Kind] = {
    "num_ret": _Kind(_ours("NumRet")),
    "num_rel": _Kind(_ours("NumRel")),
    "num_rel_ret": _Kind(_ours("NumRelRet")),
    "map": _Kind(_ours("AP")),
    "gm_map": _Kind(_ours("AP")),
    "Rprec": _Kind(_ours("Rprec")),
    "bpref": _Kind(_ours("bpref")),
    "recip_rank": _Kind(_ours("RR")),
    "iprec_at_recall": _Kind(_ours("IPrec"), "shares", _TENTHS),
    "P": _Kind(_ours("P"), "ranks", _RANKS),
    "relstring": _Kind(_theirs(formulas.first_grades), "numbers", (10.0,)),
    "recall": _Kind(_ours("R"), "ranks", _RANKS),
    "infAP": _Kind(_ours("infAP")),
    "gm_bpref": _Kind(_ours("bpref")),
    "Rprec_mult": _Kind(_theirs(formulas.multiple_r_precision), "shares", _FIFTHS),
    "utility": _Kind(_theirs(formulas.utility), "numbers", (1.0, -1.0, 0.0, 0.0)),
    "11pt_avg": _Kind(_eleven_points, "numbers"),
    "binG": _Kind(_theirs(formulas.binary_gain)),
    "G": _Kind(_theirs(formulas.gain_over_cost), "gains"),
    "ndcg": _Kind(_ndcg, "gains"),
    "ndcg_rel": _Kind(_theirs(formulas.ndcg_at_relevant), "gains"),
    "Rndcg": _Kind(_theirs(formulas.ndcg_at_levels), "gains"),
    "ndcg_cut": _Kind(_ours("nDCG"), "ranks", _RANKS),
    "map_cut": _Kind(_ours("AP"), "ranks", _RANKS),
    "relative_P": _Kind(_theirs(formulas.relative_precision), "ranks", _RANKS),
    "success": _Kind(_ours("Success"), "ranks", (1, 5, 10)),
    "set_P": _Kind(_ours("SetP")),
    "set_relative_P": _Kind(_theirs(formulas.set_relative_precision)),
    "set_recall": _Kind(_ours("SetR")),
    "set_map": _Kind(_ours("SetAP")),
    "set_F": _Kind(_set_f, "numbers"),
    "num_nonrel_judged_ret": _Kind(_theirs(formulas.judged_others)),
    "yaap": _Kind(_theirs(formulas.log_odds)),
}
ORDER = ("runid", "num_q", *_MEASURES)
NICKNAMES = {
    "official": ORDER[: ORDER.index("P") + 1],
    "set": (*ORDER[:5], "utility", *(name for name in ORDER if name.startswith("set_"))),
    "all_trec": ORDER[:-1],
}
_LEAST = 1e-5  # of a value in a geometric mean


@dataclass(frozen=True, slots=True)
class Asked:
    """A line of the output: trec_eval's measure, the name it prints, and ours or a formula."""

    name: str
    printed: str
    measure: Measure | None  # ours, which knows what other orders of ties would give
    formula: Formula | None
    told: tuple[int, float] = (1, 0.0)  # level, and the least share of recall

    @classmethod
    def of(
        cls, name: str, printed: str, means: Measure | Formula, told: tuple[int, float] = (1, 0.0)
    ) -> Asked:
        if isinstance(means, Measure):
            return cls(name, printed, means, None, told)
        return cls(name, printed, None, means, told)

    @property
    def adds(self) -> bool:
        """Whether it counts, so that queries are summed."""
        return self.name.startswith("num_")

    def logs(self, values: Float) -> Float:
        """What a geometric mean is the mean of."""
        least = np.maximum(values, _LEAST).tolist()
        return np.fromiter(map(math.log, least), np.float64, len(least))


def asked_for(
    measures: Sequence[str], level: int = 1, collection: int = 0
) -> tuple[set[str], list[Asked]]:
    """What `-m` names, in the order in which trec_eval prints; without any, `official`."""
    wanted: dict[str, str] = {}
    for text in measures or ("official",):
        name, dot, told = text.partition(".")
        for each in NICKNAMES.get(name, (name,)):
            if each not in ORDER or (dot and not told):
                raise MeasureError(
                    f"trec_eval's measure {shorten(text)} is not offered",
                    remedy=f"there are {', '.join(ORDER)}, {', '.join(NICKNAMES)}",
                )
            wanted[each] = wanted.get(each) or told  # trec_eval, too, takes the first it is told
    return set(wanted), [
        line
        for name, kind in _MEASURES.items()
        if name in wanted
        for line in _lines(name, kind, wanted[name], level, collection)
    ]


def _lines(name: str, kind: _Kind, told: str, level: int, collection: int) -> Iterator[Asked]:
    """The lines of one measure; `told` stands behind its dot."""
    if kind.takes == "nothing":  # trec_eval reads over it, too
        yield Asked.of(name, name, kind.make(level, None))
    elif kind.takes == "ranks":
        for rank in _each(name, told, whole=True) if told else kind.usual:
            yield Asked.of(name, f"{name}_{rank}", kind.make(level, rank))
    elif kind.takes == "shares":
        for share in _each(name, told, whole=False) if told else kind.usual:
            made = kind.make(level, share)
            yield Asked.of(name, f"{name}_{share:3.2f}", made, (level, share))
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
        yield Asked.of(name, f"{name}_{told}" if told else name, made, (level, least))


def _each(name: str, told: str, whole: bool) -> list[float]:
    values: list[float] = sorted(map(_whole if whole else _number, told.split(",")))
    if len(set(values)) < len(values) or (whole and values[0] < 1):
        raise MeasureError(
            f"{name}.{shorten(told)}: a cutoff twice, or below 1", remedy="write P.5,10, say"
        )
    return values


def _whole(text: str) -> int:
    """As atol reads it: 23.4 is 23."""
    found = re.match(r"\s*\+?([0-9]{1,18})", text)
    return int(found[1]) if found else 0


def _number(text: str) -> float:
    with suppress(ValueError):
        if math.isfinite(float(text)):
            return float(text)
    raise MeasureError(f"{shorten(text)} is no number", remedy="write P.5,10, say")


def _pair(text: str) -> tuple[int, float]:
    grade, equals, gain = text.partition("=")
    if not equals or not grade.isdecimal():
        raise MeasureError(
            f"{shorten(text)} is no grade with its gain", remedy="write ndcg.1=3,2=9, say"
        )
    return int(grade), _number(gain)


def measured(
    groups: TieGroups, lines: Sequence[Asked], policy: Policy
) -> tuple[list[Any], dict[Measure, Outcomes]]:
    """The column of each line under the order that the groups stand in."""
    wanted = list(dict.fromkeys(line.measure for line in lines if line.measure is not None))
    outcomes = measure_all(groups, wanted, policy)
    columns: list[Any] = []
    for line in lines:
        if line.formula is not None:
            columns.append(line.formula(groups))
        elif line.measure is not None:
            columns.append(outcomes[line.measure].oblivious)
    empty = groups.listed == 0
    if empty.any():  # by -J; interpolated precision is then 0/0 there
        for at, line in enumerate(lines):
            if line.name in ("iprec_at_recall", "11pt_avg"):
                rel, share = line.told
                nothing = empty & (np.floor(share * groups.relevant(rel) + 0.9) < 1)
                columns[at] = np.where(nothing, np.nan, columns[at])
    return columns, outcomes


@dataclass(frozen=True)
class Output:
    """The lines of an evaluation; with `ties`, what every other order gives beside them."""

    names: list[str]  # of the queries
    columns: list[Any]  # of each line
    lines: list[Asked]
    shown: set[str]
    queries: int  # over which means are taken
    relevant: int | None  # documents, where -c counts those of queries that the run lacks
    tag: str
    ties: Evaluation | None = None

    def single(self) -> Iterator[str]:
        """The lines of each query (-q)."""
        shown = [at for at, line in enumerate(self.lines) if not line.name.startswith("gm_")]
        beside = [self._beside(self.lines[at]) for at in shown]
        for row, query in enumerate(self.names):
            for at, other in zip(shown, beside, strict=True):
                value = self.columns[at][row]
                yield _printed(self.lines[at], query, value, [float(c[row]) for c in other])

    def summary(self) -> Iterator[str]:
        if "runid" in self.shown:
            yield f"{'runid':<22}\tall\t{self.tag}\n"
        if "num_q" in self.shown:
            yield f"{'num_q':<22}\tall\t{self.queries}\n"
        for line, values in zip(self.lines, self.columns, strict=True):
            if line.name != "relstring":
                figures = [self._mean(line, column) for column in self._beside(line)]
                yield _printed(line, "all", self._mean(line, values), figures)

    def _beside(self, line: Asked) -> list[Float]:
        if self.ties is None:
            return []
        if line.measure is None:
            return [np.full(len(self.names), np.nan)] * 3
        found = self.ties.outcomes[line.measure]
        return [found.expected, found.min, found.max]

    def _mean(self, line: Asked, values: Float) -> float:
        if line.name == "num_rel" and self.relevant is not None:
            return float(self.relevant)
        if line.name.startswith("gm_"):
            missing = (self.queries - len(values)) * math.log(_LEAST)
            return math.exp((_sum(line.logs(values)) + missing) / self.queries)
        return _sum(values) if line.adds else _sum(values) / self.queries


def _sum(values: Float) -> float:
    """One after the other, which decides the last bit."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def _printed(line: Asked, query: str, value: Any, beside: list[float]) -> str:
    figures = "".join("\t-" if math.isnan(x) else f"\t{x:6.4f}" for x in beside)
    if isinstance(value, str):
        said = f"'{value}'"
    else:
        said = f"{int(value)}" if line.adds else f"{float(value):6.4f}".replace("   nan", "  -nan")
    return f"{line.printed:<22}\t{query}\t{said}{figures}\n"


def trec_eval(
    qrels: Qrels,
    run: Run,
    measures: Sequence[str] = (),
    *,
    tag: str = "",
    complete: bool = False,
    level: int = 1,
    depth: int | None = None,
    judged_only: bool = False,
    collection: int = 0,
    ties: bool = False,
) -> Output:
    """What trec_eval prints.

    `complete` is -c, `level` -l, `depth` -M, `judged_only` -J, `collection` -N.
    """
    shown, lines = asked_for(measures, level, collection)
    policy = Policy("trec_eval", "skip", "zero", condensed=judged_only)
    met = meet(in_order(run, "trec_eval", "float32", depth, settle=True), qrels, policy)
    if not len(met.listed):
        raise strangers(run.name, run.queries, qrels)
    columns, outcomes = measured(met.groups(), lines, policy)
    tied = None
    if ties:
        rounded = Policy("trec_eval", "skip", "zero", False, "float32", judged_only, depth)
        tied = evaluate_some(run, qrels, list(outcomes), rounded)
    return Output(
        kernels.series(met.queries, "query").to_list(),
        columns,
        lines,
        shown,
        queries=len(qrels.queries) if complete else len(met.listed),
        relevant=int((qrels.grade > 0).sum()) if complete else None,
        tag=tag,
        ties=tied,
    )
