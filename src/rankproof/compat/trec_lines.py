"""trec_eval's measures by name, and the lines of output that its option -m requests.

`-m NAME` asks for a measure, `-m NAME.5,10` for one with parameters, and some names (`official`,
`set`, `all_trec`) stand for several measures. Each name becomes one or more `OutputLine`s, which
know how they are printed and how they are computed.
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

from rankproof.compat import trec_formulas
from rankproof.compat.trec_formulas import raise_grades
from rankproof.evaluation import Policy, at_level, measure_all
from rankproof.foundation.arrays import Float, Int
from rankproof.foundation.errors import MeasureError, shorten
from rankproof.measures import Measure, parse
from rankproof.measures.interpolated_precision import RecallLevels, Rounding

Version = Literal[9, 10]
Formula = Callable[[Any], Any]  # tie groups → values (Q,); of relstring, texts
# From level (-l) and parameter; the parameter is None, a number, or a list of numbers or gains.
Factory = Callable[[int, Any], Measure | Formula]


@dataclass(frozen=True, slots=True)
class _MeasureKind:
    """How a measure is made, and which parameters may follow its dot.

    Each rank or share of recall becomes a line of its own; numbers and gains make one line
    together.
    """

    make: Factory
    parameters: Literal["none", "ranks", "shares", "numbers", "gains", "persistence"] = "none"
    defaults: Sequence[float] = ()
    rounding: Rounding = "up"  # of levels of recall


def _rankproof_measure(name: str) -> Factory:
    """Make lines of a measure of rankproof, the parameter being its cutoff."""

    def make(level: int, cutoff: Any) -> Measure | Formula:
        return _with_level(parse(name if cutoff is None else f"{name}@{cutoff}"), level)

    return make


def _with_level(measure: Measure, level: int) -> Measure | Formula:
    """Return the measure with `level` as the lowest relevant grade (-l)."""
    if level < 0:
        raise MeasureError(f"level {level} is negative", remedy="count grades from 0 on")
    if level > 0:
        return measure if level == 1 else at_level([measure], level)[0]
    if at_level([measure], 2) == [measure]:  # nDCG and NumRet have no level
        return measure
    # No measure of rankproof counts grade 0 as relevant, so the grades are raised instead.
    policy = Policy(undefined="zero")
    return lambda groups: measure_all(raise_grades(groups), [measure], policy)[measure].oblivious


def _formula(formula: Callable[..., Any]) -> Factory:
    """Make lines of a formula that takes groups, level and perhaps a parameter."""

    def make(level: int, parameter: Any) -> Formula:
        if parameter is None:
            return lambda groups: formula(groups, level)
        return lambda groups: formula(groups, level, parameter)

    return make


def _eleven_point_average(name: str, rounding: Rounding) -> Factory:
    def make(level: int, recall_levels: Sequence[float]) -> Measure | Formula:
        if not recall_levels:
            return _rankproof_measure(name)(level, None)
        if sorted(recall_levels) != list(recall_levels):
            raise MeasureError(
                "11pt_avg: levels of recall that fall", remedy="write 11pt_avg..2,.5,.8"
            )
        levels = RecallLevels(tuple(recall_levels), rounding)
        return _formula(trec_formulas.averaged_precision)(level, levels)

    return make


def _rbp(_: int, persistence: Sequence[float]) -> Measure:
    return parse("RBP")(p=persistence[-1] if persistence else _PERSISTENCE)


def _rbp_residual(level: int, persistence: Sequence[float]) -> Measure | Formula:
    p = persistence[-1] if persistence else _PERSISTENCE
    return _formula(trec_formulas.rbp_residual)(level, p)


def _set_f(level: int, betas: Sequence[float]) -> Measure | Formula:
    return _with_level(parse("SetF")(beta=betas[0]) if betas else parse("SetF"), level)


def _ndcg(_: int, gains: Sequence[tuple[int, float]]) -> Measure:
    return parse("nDCG")(gain=dict(gains)) if gains else parse("nDCG")


_PERSISTENCE = 0.9  # p of RBP
_RANKS = (5, 10, 15, 20, 30, 100, 200, 500, 1000)
_TENTHS = tuple(number / 10 for number in range(11))
_FIFTHS = tuple(number / 5 for number in range(1, 11))
# In trec_eval's order, which compiled code numbers (native/figures.c).
_MEASURES: dict[str, _MeasureKind] = {
    "num_ret": _MeasureKind(_rankproof_measure("NumRet")),
    "num_rel": _MeasureKind(_rankproof_measure("NumRel")),
    "num_rel_ret": _MeasureKind(_rankproof_measure("NumRelRet")),
    "map": _MeasureKind(_rankproof_measure("AP")),
    "gm_map": _MeasureKind(_rankproof_measure("AP")),
    "Rprec": _MeasureKind(_rankproof_measure("Rprec")),
    "bpref": _MeasureKind(_rankproof_measure("bpref")),
    "recip_rank": _MeasureKind(_rankproof_measure("RR")),
    "iprec_at_recall": _MeasureKind(_rankproof_measure("IPrec"), "shares", _TENTHS),
    "P": _MeasureKind(_rankproof_measure("P"), "ranks", _RANKS),
    "relstring": _MeasureKind(_formula(trec_formulas.first_grades), "numbers", (10.0,)),
    "recall": _MeasureKind(_rankproof_measure("R"), "ranks", _RANKS),
    "infAP": _MeasureKind(_rankproof_measure("infAP")),
    "gm_bpref": _MeasureKind(_rankproof_measure("bpref")),
    "Rprec_mult": _MeasureKind(_formula(trec_formulas.multiple_r_precision), "shares", _FIFTHS),
    "utility": _MeasureKind(_formula(trec_formulas.utility), "numbers", (1.0, -1.0, 0.0, 0.0)),
    "11pt_avg": _MeasureKind(_eleven_point_average("AP11", "up"), "numbers"),
    "binG": _MeasureKind(_formula(trec_formulas.binary_gain)),
    "G": _MeasureKind(_formula(trec_formulas.gain_over_cost), "gains"),
    "ndcg": _MeasureKind(_ndcg, "gains"),
    "ndcg_rel": _MeasureKind(_formula(trec_formulas.ndcg_at_relevant), "gains"),
    "Rndcg": _MeasureKind(_formula(trec_formulas.ndcg_at_levels), "gains"),
    "ndcg_cut": _MeasureKind(_rankproof_measure("nDCG"), "ranks", _RANKS),
    "map_cut": _MeasureKind(_rankproof_measure("AP"), "ranks", _RANKS),
    "relative_P": _MeasureKind(_formula(trec_formulas.relative_precision), "ranks", _RANKS),
    "success": _MeasureKind(_rankproof_measure("Success"), "ranks", (1, 5, 10)),
    "set_P": _MeasureKind(_rankproof_measure("SetP")),
    "set_relative_P": _MeasureKind(_formula(trec_formulas.set_relative_precision)),
    "set_recall": _MeasureKind(_rankproof_measure("SetR")),
    "set_map": _MeasureKind(_rankproof_measure("SetAP")),
    "set_F": _MeasureKind(_set_f, "numbers"),
    "num_nonrel_judged_ret": _MeasureKind(_formula(trec_formulas.judged_non_relevant)),
    "yaap": _MeasureKind(_formula(trec_formulas.log_odds)),
}
MEASURE_NAMES = ("runid", "num_q", *_MEASURES)  # in trec_eval's order
NICKNAMES = {
    "official": MEASURE_NAMES[: MEASURE_NAMES.index("P") + 1],
    "set": (*MEASURE_NAMES[:5], "utility", *(m for m in MEASURE_NAMES if m.startswith("set_"))),
    "all_trec": MEASURE_NAMES[:-1],
}
# What version 10 has instead of version 9, and after it.
_NEAREST = "rounding='nearest'"
_MEASURES_OF_10 = _MEASURES | {
    "iprec_at_recall": _MeasureKind(
        _rankproof_measure(f"IPrec({_NEAREST})"), "shares", _TENTHS, "nearest"
    ),
    "11pt_avg": _MeasureKind(
        _eleven_point_average(f"AP11({_NEAREST})", "nearest"), "numbers", rounding="nearest"
    ),
    "rbp": _MeasureKind(_rbp, "persistence"),
    "rbp_resid": _MeasureKind(_rbp_residual, "persistence"),
    "unj": _MeasureKind(_formula(trec_formulas.unjudged_share), "ranks", (5, 10, 20)),
}
_NICKNAMES_OF_10 = NICKNAMES | {
    "all_trec": (*NICKNAMES["all_trec"], "rbp", "rbp_resid", "unj"),
}
# Their values come by name from evaluate_preferences.
_PREFERENCES = {
    name: _MeasureKind(lambda _, __, name=name: itemgetter(name))  # type: ignore[misc]
    for name in (
        *("prefs_num_prefs_poss", "prefs_num_prefs_ful", "prefs_num_prefs_ful_ret"),
        *("prefs_simp", "prefs_pair", "prefs_avgjg", "prefs_avgjg_Rnonrel"),
        *("prefs_simp_ret", "prefs_pair_ret", "prefs_avgjg_ret", "prefs_avgjg_Rnonrel_ret"),
        *("prefs_simp_imp", "prefs_pair_imp", "prefs_avgjg_imp"),
    )
}
_ANNOTATOR_MEANS = {
    "map_avgjg": _MeasureKind(_rankproof_measure("AP")),
    "P_avgjg": _MeasureKind(_rankproof_measure("P"), "ranks", _RANKS),
    "Rprec_mult_avgjg": _MeasureKind(
        _formula(trec_formulas.multiple_r_precision), "shares", _FIFTHS
    ),
}
_MEASURES_OF_FORM = {  # by format of the judgments (-R)
    "qrels": _MEASURES,
    "qrels_jg": _ANNOTATOR_MEANS,
    "qrels_prefs": _PREFERENCES,
    "prefs": _PREFERENCES,
}
_PREFERENCE_NICKNAMES = {
    "all_prefs": ("runid", "num_q", *_PREFERENCES),
    "prefs": ("runid", "num_q", *_PREFERENCES)[:8],
}
_NICKNAMES_OF_FORM = {
    "qrels": NICKNAMES,
    "qrels_jg": {"qrels_jg": ("runid", "num_q", *_ANNOTATOR_MEANS)},
    "qrels_prefs": _PREFERENCE_NICKNAMES,
    "prefs": _PREFERENCE_NICKNAMES,
}


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of the output: trec_eval's measure, its label, and how it is computed."""

    name: str  # of the measure: P
    label: str  # as printed: P_10
    definition: Measure | Formula
    level: int  # the lowest relevant grade
    parameter: float  # rank or share of recall; of several levels of recall the lowest
    is_default: bool  # False if the user changed numbers or gains
    rounding: Rounding = "up"  # of levels of recall

    @property
    def measure(self) -> Measure | None:
        """The measure of rankproof, which has a value for every order of ties."""
        return self.definition if isinstance(self.definition, Measure) else None

    @property
    def formula(self) -> Formula | None:
        """The formula that only trec_eval has, for lists without ties."""
        return None if isinstance(self.definition, Measure) else self.definition

    @property
    def is_count(self) -> bool:
        """True if the value is summed over queries, not averaged."""
        return self.name.startswith(("num_", "prefs_num_"))

    @property
    def is_geometric_mean(self) -> bool:
        """True if logarithms are averaged over queries."""
        return self.name.startswith("gm_")


def requested_lines(
    measures: Sequence[str],
    level: int = 1,
    collection: int = 0,
    form: str = "qrels",
    version: Version = 9,
) -> tuple[set[str], list[OutputLine]]:
    """Return the measures that `-m` names, and their lines in trec_eval's order.

    Without any, `official` is requested. `level` is -l, `collection` -N, `form` -R.
    """
    parameters: dict[str, str] = {}
    known, nicknames = _MEASURES_OF_FORM[form], _NICKNAMES_OF_FORM[form]
    if form == "qrels" and version == 10:
        known, nicknames = _MEASURES_OF_10, _NICKNAMES_OF_10
    for text in measures or ("official",):
        stem, dot, parameter = text.partition(".")
        for name in nicknames.get(stem, (stem,)):
            if name not in ("runid", "num_q", *known) or (dot and not parameter):
                with_form = "" if form == "qrels" else f" with -R {form}"
                raise MeasureError(
                    f"trec_eval's measure {shorten(text)} is not offered{with_form}",
                    remedy=f"there are runid, num_q, {', '.join(known)}, {', '.join(nicknames)}",
                )
            # Of several parameters of one measure trec_eval takes the first.
            parameters[name] = parameters.get(name) or parameter
    return set(parameters), [
        line
        for name, kind in known.items()
        if name in parameters
        for line in _measure_lines(name, kind, parameters[name], level, collection)
    ]


def _measure_lines(
    name: str, kind: _MeasureKind, parameters: str, level: int, collection: int
) -> Iterator[OutputLine]:
    """Yield the lines of one measure; `parameters` is the text that follows its dot."""
    if kind.parameters == "none":  # trec_eval, too, ignores what follows the dot
        yield OutputLine(name, name, kind.make(level, None), level, 0.0, True)
    elif kind.parameters in ("ranks", "shares"):
        are_ranks = kind.parameters == "ranks"
        for cutoff in _parse_cutoffs(name, parameters, are_ranks=are_ranks) or kind.defaults:
            label = f"{name}_{cutoff}" if are_ranks else f"{name}_{cutoff:3.2f}"
            made = kind.make(level, cutoff)
            yield OutputLine(name, label, made, level, cutoff, True, kind.rounding)
    else:
        values: Any = kind.defaults
        if parameters:
            values = [_PARSERS[kind.parameters](text) for text in parameters.split(",")]
        if len(kind.defaults) > 0 and len(values) != len(kind.defaults):
            raise MeasureError(
                f"{name}: {len(values)} numbers", remedy=f"trec_eval reads {len(kind.defaults)}"
            )
        if name == "utility":
            values = [*values, collection]
        lowest = min(values, default=0.0) if name == "11pt_avg" else 0.0
        label = f"{name}_{parameters}" if parameters else name
        is_default = not parameters and not collection
        made = kind.make(level, values)
        yield OutputLine(name, label, made, level, lowest, is_default, kind.rounding)


def _parse_cutoffs(name: str, parameters: str, *, are_ranks: bool) -> list[float]:
    """Return cutoffs in ascending order: ranks are integers from 1 on, shares any numbers."""
    if not parameters:
        return []
    parse_one = _parse_c_integer if are_ranks else _parse_number
    values: list[float] = sorted(map(parse_one, parameters.split(",")))
    if len(set(values)) < len(values) or (are_ranks and values[0] < 1):
        raise MeasureError(
            f"{name}.{shorten(parameters)}: a cutoff twice, or below 1",
            remedy="write P.5,10, say",
        )
    return values


def _parse_c_integer(text: str) -> int:
    """Return an integer as C's atol reads it: 23.4 is 23, and what is not a number is 0."""
    digits = re.match(r"\s*\+?([0-9]{1,18})", text)
    return int(digits[1]) if digits else 0


def _parse_number(text: str) -> float:
    with suppress(ValueError):
        if math.isfinite(float(text)):
            return float(text)
    raise MeasureError(f"{shorten(text)} is not a number", remedy="write P.5,10, say")


def _parse_gain(text: str) -> tuple[int, float]:
    """Return grade and gain of `1=3`."""
    grade, equals, gain = text.partition("=")
    if not equals or not grade.isdecimal():
        raise MeasureError(
            f"{shorten(text)} is not a grade with its gain", remedy="write ndcg.1=3,2=9, say"
        )
    return int(grade), _parse_number(gain)


def _parse_persistence(text: str) -> float:
    """Return p of `p=0.95`."""
    name, equals, value = text.partition("=")
    if name != "p" or not equals:
        raise MeasureError(
            f"{shorten(text)}: rankproof knows rbp of grades, not of other gains",
            remedy="write rbp.p=0.95, say",
        )
    return _parse_number(value)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "gains": _parse_gain,
    "numbers": _parse_number,
    "persistence": _parse_persistence,
}


def compiled_codes(lines: Iterable[OutputLine]) -> tuple[Int, Float] | None:
    """Return the numbers and parameters (L,) of lines, as compiled code takes them.

    None if one of them is not implemented in compiled code.
    """
    numbers = {name: number for number, name in enumerate(_MEASURES)}
    if not all(
        line.is_default and line.name in numbers and line.rounding == "up" for line in lines
    ):
        return None
    codes = np.array([numbers[line.name] for line in lines], np.int64)
    return codes, np.array([line.parameter for line in lines], np.float64)
