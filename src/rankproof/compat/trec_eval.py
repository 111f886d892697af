"""trec_eval 9's output: the same arguments, the same lines, byte for byte.

Its figures are those of one order of the ties: scores as float32, ties by document id descending.
Sums over queries are made one after the other, as it makes them, so that the last printed digit is
its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from rankproof.arrays import Float
from rankproof.errors import MeasureError, shorten
from rankproof.evaluation import Evaluation, Policy, at_level, evaluate_some, evaluate_tables
from rankproof.measures.registry import Measure, parse
from rankproof.tables import Qrels, Run
from rankproof.ties import in_order

_CUTOFFS = tuple(map(str, (5, 10, 15, 20, 30, 100, 200, 500, 1000)))
_LEVELS = tuple(f"{number / 10:.1f}" for number in range(11))

# In trec_eval's order: its name, ours, the cutoffs it prints where none are named. A measure that
# counts is summed over queries; `rel` says whether -l sets the lowest relevant grade.
_MEASURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "num_ret": ("NumRet", ()),
    "num_rel": ("NumRel", ()),
    "num_rel_ret": ("NumRelRet", ()),
    "map": ("AP", ()),
    "gm_map": ("GMAP", ()),
    "Rprec": ("Rprec", ()),
    "bpref": ("bpref", ()),
    "recip_rank": ("RR", ()),
    "iprec_at_recall": ("IPrec", _LEVELS),
    "P": ("P", _CUTOFFS),
    "recall": ("R", _CUTOFFS),
    "11pt_avg": ("AP11", ()),
    "ndcg": ("nDCG", ()),
    "ndcg_cut": ("nDCG", _CUTOFFS),
    "map_cut": ("AP", _CUTOFFS),
    "success": ("Success", ("1", "5", "10")),
    "set_P": ("SetP", ()),
    "set_recall": ("SetR", ()),
    "set_map": ("SetAP", ()),
    "set_F": ("SetF", ()),
}
_COUNTS = ("num_ret", "num_rel", "num_rel_ret")
ORDER = ("runid", "num_q", *_MEASURES)
NICKNAMES = {
    "official": ("runid", "num_q", *list(_MEASURES)[:10]),
    "set": ("runid", "num_q", *_COUNTS, "set_P", "set_recall", "set_map", "set_F"),
    "all_trec": ORDER,
}
# What its sets hold besides: experiments, and `relstring`.
LEFT_OUT = {
    "set": ("utility", "set_relative_P"),
    "all_trec": (
        *("relstring", "infAP", "gm_bpref", "Rprec_mult", "utility", "binG", "G", "ndcg_rel"),
        *("Rndcg", "relative_P", "set_relative_P", "num_nonrel_judged_ret"),
    ),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A line of the output: trec_eval's measure, the name it prints, and ours."""

    name: str
    printed: str
    measure: Measure


def asked_for(measures: Sequence[str], level: int = 1) -> tuple[set[str], list[Asked]]:
    """What `-m` names, in the order in which trec_eval prints; without any, `official`."""
    wanted: dict[str, tuple[str, ...]] = {}
    for text in measures or ("official",):
        name, dot, parameters = text.partition(".")
        names = NICKNAMES.get(name, (name,))
        for each in names:
            cutoffs = _MEASURES.get(each, ("", ()))[1]
            if each not in ORDER or (dot and not cutoffs):
                raise MeasureError(
                    f"trec_eval's measure {shorten(text)} is not offered",
                    remedy=f"there are {', '.join(ORDER)}, official, set and all_trec",
                )
            wanted.setdefault(each, ())
            if dot:
                wanted[each] = tuple(parameters.split(","))
    lines = []
    for name, (ours, cutoffs) in _MEASURES.items():
        if name in wanted:
            chosen: list[str | None] = [*sorted(wanted[name] or cutoffs, key=_number)]
            lines += [_line(name, ours, cutoff, level) for cutoff in chosen or [None]]
    return set(wanted), lines


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise MeasureError(f"cutoff {shorten(text)} is no number", remedy="write P.5,10") from None


def _line(name: str, ours: str, cutoff: str | None, level: int) -> Asked:
    measure = parse(ours if cutoff is None else f"{ours}@{cutoff}")
    (measure,) = at_level([measure], None if level == 1 else level)
    printed = name
    if cutoff is not None:
        printed += f"_{float(cutoff):.2f}" if ours == "IPrec" else f"_{int(cutoff)}"
    return Asked(name, printed, measure)


@dataclass(frozen=True)
class Output:
    """The lines of an evaluation; with `ties`, what every other order gives beside them."""

    found: Evaluation  # under trec_eval's order alone
    lines: list[Asked]
    shown: set[str]
    queries: int  # over which means are taken
    relevant: int  # documents, where -c counts those of queries that the run lacks
    tag: str
    complete: bool
    ties: Evaluation | None = None
    _each: dict[str, Float] = field(default_factory=dict)

    def single(self) -> Iterator[str]:
        """The lines of each query (-q)."""
        shown = [line for line in self.lines if line.name != "gm_map"]
        columns = [self.found.outcomes[line.measure].oblivious for line in shown]
        beside = [self._beside(line) for line in shown]
        for at, query in enumerate(self.found.queries):
            for line, values, other in zip(shown, columns, beside, strict=True):
                figures = tuple(float(column[at]) for column in other)
                yield _printed(line, query, float(values[at]), figures)

    def summary(self) -> Iterator[str]:
        if "runid" in self.shown:
            yield f"{'runid':<22}\tall\t{self.tag}\n"
        if "num_q" in self.shown:
            yield f"{'num_q':<22}\tall\t{self.queries}\n"
        for line in self.lines:
            values = self.found.outcomes[line.measure].oblivious
            figures = tuple(self._mean(line, column) for column in self._beside(line))
            yield _printed(line, "all", self._mean(line, values), figures)

    def _beside(self, line: Asked) -> tuple[Float, ...]:
        if self.ties is None:
            return ()
        found = self.ties.outcomes[line.measure]
        return found.expected, found.min, found.max

    def _mean(self, line: Asked, values: Float) -> float:
        if line.name == "num_rel" and self.complete:
            return float(self.relevant)
        if line.name == "gm_map":
            total = _sum(np.array([math.log(max(value, 1e-5)) for value in values.tolist()]))
            total += (self.queries - len(values)) * math.log(1e-5)
            return math.exp(total / self.queries)
        total = _sum(values)
        return total if line.name in _COUNTS else total / self.queries


def _sum(values: Float) -> float:
    """One after the other, which decides the last bit."""
    return float(np.cumsum(values)[-1]) if len(values) else 0.0


def _printed(line: Asked, query: str, value: float, beside: tuple[float, ...]) -> str:
    figures = "".join(f"\t{figure:6.4f}" for figure in beside)
    said = f"{int(value)}" if line.name in _COUNTS else f"{value:6.4f}"
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
    ties: bool = False,
) -> Output:
    """What trec_eval prints: `complete` is -c, `level` -l, `depth` -M, `judged_only` -J."""
    shown, lines = asked_for(measures, level)
    wanted = [line.measure for line in lines] or [parse("NumRet")]
    policy = Policy("trec_eval", "skip", "zero", condensed=judged_only)
    settled = in_order(run, "trec_eval", "float32", depth, settle=True)
    found = evaluate_tables(settled, qrels, wanted, policy)
    tied = None
    if ties:
        rounded = Policy("trec_eval", "skip", "zero", False, "float32", judged_only, depth)
        tied = evaluate_some(run, qrels, wanted, rounded)
    return Output(
        found,
        lines,
        shown,
        queries=len(qrels.queries) if complete else len(found.queries),
        relevant=int((qrels.grade > 0).sum()),
        tag=tag,
        complete=complete,
        ties=tied,
    )
