"""A measure is a value: `nDCG@10`, `AP(rel=2)@100`. Here the function becomes that value.

    @measure("nDCG", at="cutoff")
    def ndcg(groups: TieGroups, cutoff: int | None, gain: Gain = "linear") -> Outcomes: ...

makes a Measure, enters it in the registry, and with that in the parser, the command line's help
and the table in the documentation.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np

from rankproof.data.tables import Scale
from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Array, Bool, Float, Int
from rankproof.foundation.errors import MeasureError, shorten

Value = int | float | str | bool | None | Mapping[int, float] | tuple[tuple[int, float], ...]

_LARGEST = 10**18  # of a cutoff or a parameter: leaves room in 64 bits for sums with it


@dataclass(frozen=True, slots=True)
class Outcomes:
    """A measure of every query over all orderings of its ties; NaN where it is undefined.

    >>> found = rp.evaluate("try/saturated.trec", "try/qrels.txt", "nDCG@5")
    >>> found.outcomes[rp.nDCG @ 5].expected.shape
    (30,)
    """

    expected: Float  # (Q,)
    min: Float  # (Q,)
    max: Float  # (Q,)
    oblivious: Float  # (Q,) under the stated tie-break
    variance: Float | None  # (Q,) over orderings; None where no closed form is at hand
    counted: Bool | None = None  # (Q,) queries that a mean is over; None: all that are defined

    def averaged(self, figure: str = "expected") -> Float:
        """(Q,) a figure, NaN where it does not count in a mean."""
        values: Float = getattr(self, figure)
        return values if self.counted is None else np.where(self.counted, values, np.nan)

    @staticmethod
    def certain(values: Float) -> Outcomes:
        """Those that no order changes."""
        return Outcomes(values, values, values, values, np.where(np.isnan(values), np.nan, 0.0))

    @staticmethod
    def of_sums(sums: tuple[Float, Float, Float, Float, Float], norm: Float) -> Outcomes:
        """Sums over the groups of each query (their variance the last) over what they are of."""
        expected, low, high, oblivious, variance = sums
        return Outcomes(
            expected / norm, low / norm, high / norm, oblivious / norm, variance / norm**2
        )

    @staticmethod
    def together(parts: Sequence[Outcomes]) -> Outcomes:
        """Those of some queries, and those of the next."""
        if len(parts) == 1:
            return parts[0]

        def column(figure: str) -> Array:
            return np.concatenate([getattr(part, figure) for part in parts])

        some = any(part.counted is not None for part in parts)
        every = [
            np.ones(len(p.expected), np.bool_) if p.counted is None else p.counted for p in parts
        ]
        return Outcomes(
            column("expected"),
            column("min"),
            column("max"),
            column("oblivious"),
            variance=column("variance") if all(p.variance is not None for p in parts) else None,
            counted=np.concatenate(every) if some else None,
        )

    def taken(self, rows: Int) -> Outcomes:
        """Those of these queries."""
        held = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(
            self, **{n: column[rows] for n, column in held.items() if column is not None}
        )

    def settled(self) -> Outcomes:
        """The same figures with min ≤ oblivious, expected ≤ max, which rounding may have bent."""
        low = np.fmin(self.min, self.oblivious)
        high = np.fmax(self.max, self.oblivious)
        low, high = (np.where(np.isnan(self.expected), np.nan, x) for x in (low, high))
        variance = None
        if self.variance is not None:
            variance = np.where(low == high, 0.0 * low, np.maximum(self.variance, 0.0))
        oblivious = np.where(np.isnan(self.expected), np.nan, self.oblivious)
        return Outcomes(np.clip(self.expected, low, high), low, high, oblivious, variance)


@dataclass(frozen=True)
class Definition:
    """What the registry knows of a measure.

    >>> rp.RBP.definition.limits["p"]
    (0.0, 1.0)
    """

    name: str
    function: Callable[..., Outcomes]
    at: str | None  # the argument that `@` sets
    takes_cutoff: bool
    needs_cutoff: bool
    parameters: Mapping[str, inspect.Parameter]
    hints: Mapping[str, Any]
    limits: Mapping[str, tuple[float, float]]
    aliases: tuple[str, ...]
    grades: tuple[int, int] | None
    geometric: bool  # whether its mean over queries is one
    less_is_better: bool
    endless: bool  # whether it may be above 1

    @property
    def summary(self) -> str:
        """The first sentence of the documentation."""
        return (inspect.getdoc(self.function) or "").split("\n\n")[0].replace("\n", " ")

    def check(self, name: str, value: Value) -> Value:
        """The value of a parameter, or a MeasureError."""
        if name not in self.parameters:
            takes = ", ".join(self.parameters) or "no parameters"
            raise MeasureError(f"{self.name} has no parameter {name!r}", remedy=f"it takes {takes}")
        allowed = _members(self.hints[name])
        choices = [choice for choice in allowed if not isinstance(choice, type)]
        types = tuple(choice for choice in allowed if isinstance(choice, type))
        if dict in types and isinstance(value, Mapping):
            return _gains(self.name, name, value)
        types = tuple(kind for kind in types if kind is not dict)
        numeric = (*types, int) if float in types else types
        if value in choices or (isinstance(value, numeric) and not isinstance(value, bool)):
            if not isinstance(value, int | float):
                return value
            low, high = self.limits.get(name, (-_LARGEST, _LARGEST))
            if low <= value <= high and abs(value) < _LARGEST:
                return float(value) if float in types else value
            raise MeasureError(
                f"{self.name}({name}={shorten(value)}) is out of range",
                remedy=f"{name} lies between {low:g} and {min(high, _LARGEST):g}",
            )
        takes = " or ".join([repr(c) for c in choices] + [t.__name__ for t in types])
        takes += " or {grade: gain}" if dict in allowed else ""
        raise MeasureError(f"{self.name}({name}={shorten(value)})", remedy=f"{name} is {takes}")


def _gains(measure: str, name: str, value: Mapping[Any, Any]) -> tuple[tuple[int, float], ...]:
    """{grade: gain} as pairs that ascend, which can be compared and hashed."""
    numbers = [(k, v) for k, v in value.items() if type(k) is int and type(v) in (int, float)]
    if (
        not value
        or len(numbers) < len(value)
        or not all(0 <= k < _LARGEST and 0 <= v < _LARGEST for k, v in numbers)
    ):
        raise MeasureError(
            f"{measure}({name}={shorten(dict(value))})",
            remedy=f"write {measure}({name}={{1: 1, 2: 3}}), say: grades and what each is worth",
        )
    return tuple(sorted((k, float(v)) for k, v in numbers))


def _members(hint: Any) -> tuple[Any, ...]:
    """The types and literal values that an annotation admits."""
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    if typing.get_origin(hint) is tuple:  # the pairs that {grade: gain} becomes
        return (dict,)
    parts = typing.get_args(hint)
    if not parts:
        return (None,) if hint is type(None) else (hint,)
    return tuple(member for part in parts for member in _members(part))


REGISTRY: dict[str, Definition] = {}
"""Every measure by its name: what the registry knows of it.

>>> from rankproof.measures import REGISTRY
>>> REGISTRY["RR"].summary
'One over the rank of the first relevant document [T 17–21]; 0 if it is not in the top k.'
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure with its parameters; `@` sets the cutoff, a call sets parameters.

    Two are equal when they compute the same thing: `RBP == RBP(p=0.8)`.

    >>> rp.nDCG @ 10, rp.AP(rel=2) @ 100
    (nDCG@10, AP(rel=2)@100)
    >>> rp.RBP == rp.RBP(p=0.8)
    True
    """

    name: str
    cutoff: int | None = None
    given: tuple[tuple[str, Value], ...] = field(default=(), compare=False)
    resolved: tuple[tuple[str, Value], ...] = ()
    asked: str | None = field(default=None, compare=False)  # another tool's name, where it was used

    @property
    def definition(self) -> Definition:
        return REGISTRY[self.name]

    @property
    def sign(self) -> int:
        """Of a difference that puts the first of two runs ahead."""
        return -1 if self.definition.less_is_better else 1

    @property
    def most(self) -> float:
        """That it can be: 1, or no end."""
        return math.inf if self.definition.endless else 1.0

    def __matmul__(self, cutoff: float) -> Measure:
        if self.definition.at == "recall":
            return self(recall=cutoff)
        if not self.definition.takes_cutoff:
            raise MeasureError(f"{self.name} has no cutoff", remedy=f"write {self.name}")
        whole = isinstance(cutoff, int | np.integer) and not isinstance(cutoff, bool)
        if not (whole and 1 <= cutoff < _LARGEST):
            raise MeasureError(
                f"{self.name}@{shorten(cutoff)}: the cutoff is not a whole number from 1 to 10^18",
                remedy=f"write {self.name}@10, say",
            )
        return replace(self, cutoff=int(cutoff))

    def __call__(self, /, **parameters: Value) -> Measure:
        plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}
        given = dict(self.given) | plain
        checked = {name: self.definition.check(name, value) for name, value in given.items()}
        return replace(self, given=tuple(given.items()), resolved=_resolve(self.name, checked))

    def __str__(self) -> str:
        at = self.definition.at
        inside = ",".join(f"{name}={value!r}" for name, value in self.given if name != at)
        parameters = f"({inside})" if inside else ""
        where = self.cutoff or dict(self.given).get(at or "")
        return f"{self.name}{parameters}{'' if where is None else f'@{where}'}"

    __repr__ = __str__

    def require_cutoff(self) -> Measure:
        """This measure, or a MeasureError if it says nothing without a cutoff."""
        if self.definition.needs_cutoff and self.cutoff is None:
            raise MeasureError(f"{self} needs a cutoff", remedy=f"write {self}@10, say")
        return self

    def on_scale(self, scale: Scale | None) -> Measure:
        """Counted as a scale of grades means it, where that is not said: RR is RR(rel=4) on 1–5."""
        said = dict(self.given)
        usual = dict(self.resolved).get("rel")
        if scale is None or usual is None or not said.keys().isdisjoint({"rel", "max"}):
            return self
        if not isinstance(said.get("gain", ""), str):  # gains of their own
            return self
        graded = "gain" in self.definition.parameters
        rel = scale.gains if graded else scale.relevant
        return self(rel=rel) if rel != usual else self

    def rescaled(self, of: Scale | None, to: Scale | None) -> Measure:
        """What counts as one scale means it, as another does: RR(rel=4) of 1–5 is RR of 0, 1."""
        given = tuple((name, value) for name, value in self.given if name != "rel")
        plain = replace(self, given=given, resolved=_resolve(self.name, dict(given)))
        return plain.on_scale(to) if plain.on_scale(of) == self else self

    def outcomes(self, groups: TieGroups) -> Outcomes:
        """The five figures of every query."""
        self.require_cutoff()
        arguments = dict(self.resolved)
        if self.definition.takes_cutoff:
            arguments["cutoff"] = self.cutoff
        if self.cutoff is not None:
            groups = groups.within(self.cutoff)
        return self.definition.function(groups, **arguments).settled()


def _resolve(name: str, given: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    return tuple(
        (key, given.get(key, parameter.default))
        for key, parameter in REGISTRY[name].parameters.items()
    )


def measure(
    name: str,
    *,
    at: Literal["cutoff", "recall"] | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
    aliases: tuple[str, ...] = (),
    grades: tuple[int, int] | None = None,
    geometric: bool = False,
    less_is_better: bool = False,
    endless: bool = False,
) -> Callable[[Callable[..., Outcomes]], Measure]:
    """Register a function of tie groups as a measure.

    `at="cutoff"` lets `@k` set the argument `cutoff`; groups that begin past it are then left out.
    Annotate it `int | None` where the measure also makes sense for a whole list. `at="recall"` lets
    `@0.1` set the argument `recall`. `limits` bounds numeric parameters. `aliases` are names that
    other tools use, with the parameters they stand for (`ndcg_burges(gain='exp')`): what is asked
    for under such a name is answered under ours. `grades` is the scale the measure is defined on,
    where it is not 0 and up; `geometric` says that its mean over queries is the geometric one,
    `less_is_better` that who has less of it is ahead, `endless` that it goes above 1: a count, say.

    >>> @rp.measure("Listed")
    ... def listed(groups: rp.TieGroups) -> rp.Outcomes:
    ...     count = groups.listed.astype(float)
    ...     return rp.Outcomes(count, count, count, count, None)
    >>> rp.evaluate_arrays([[2, 1]], [[1, 0]], "Listed")["Listed"].expected
    2.0
    """

    def register(function: Callable[..., Outcomes]) -> Measure:
        held = REGISTRY.get(name)
        # The same function again is a notebook's cell, run again.
        if held is not None and _whence(held.function) != _whence(function):
            raise MeasureError(
                f"there is already a measure {name} ({':'.join(_whence(held.function))})",
                remedy="give yours another name",
            )
        hints = typing.get_type_hints(function)
        signature = dict(inspect.signature(function).parameters)
        signature.pop("groups")
        cutoff = signature.pop("cutoff", None) if at == "cutoff" else None
        REGISTRY[name] = Definition(
            name,
            function,
            at,
            takes_cutoff=cutoff is not None,
            needs_cutoff=cutoff is not None and None not in _members(hints["cutoff"]),
            parameters=signature,
            hints=hints,
            limits=limits or {},
            aliases=aliases,
            grades=grades,
            geometric=geometric,
            less_is_better=less_is_better,
            endless=endless,
        )
        return Measure(name, resolved=_resolve(name, {}))

    return register


def _whence(function: Callable[..., Outcomes]) -> tuple[str, str]:
    return function.__module__, function.__qualname__


_SEVERAL = re.compile(r"[,;\s]\s*[^\W\d]")
_FORM = re.compile(r"(?P<name>[^()@\s]+)(?:\((?P<inside>.*)\))?(?:@(?P<cutoff>[^()@]*))?", re.S)


def parse(text: str | Measure) -> Measure:
    """`"AP(rel=2)@100"` → the measure; `str(parse(s)) == s`.

    Names of other tools (`map`, `ndcg_cut_10`, `mrr@10`) and ir_measures' values mean ours.

    >>> rp.parse("AP(rel=2)@100") == rp.AP(rel=2) @ 100
    True
    >>> rp.parse("ndcg_cut_10")
    nDCG@10
    """
    if isinstance(text, Measure):
        return text.require_cutoff()
    if type(text).__module__.partition(".")[0] == "ir_measures":
        return parse(str(text))
    if isinstance(text, str) and _SEVERAL.search(re.sub(r"\(.*\)", "", text.strip())):
        raise MeasureError(
            f"cannot read measure {shorten(text)}",
            remedy="name each by itself: -m nDCG@10 -m RR, in Python a list",
        )
    form = _FORM.fullmatch(text.strip()) if isinstance(text, str) else None
    if form is None:
        raise MeasureError(
            f"cannot read measure {shorten(text)}", remedy="write it as nDCG@10 or AP(rel=2)@100"
        )
    name, inside, cutoff = form["name"], form["inside"], form["cutoff"]
    if name in REGISTRY:
        return _built(text, Measure(name, resolved=_resolve(name, {})), inside, cutoff)
    with suppress(MeasureError):
        found = _of_another_tool(text, name, inside, cutoff)
        if found is not None:
            return replace(found, asked=text.strip())
    raise MeasureError(f"unknown measure {shorten(name)}", remedy=_suggest(text, name))


def _built(text: str, result: Measure, inside: str | None, cutoff: str | None) -> Measure:
    """A measure with the parameters and the cutoff that stand behind its name."""
    if inside is not None:
        result = result(**_ours(result.name, _parameters(text, inside)))
    if cutoff is not None and result.definition.at == "recall":
        result = result @ _level(text, cutoff)
    elif cutoff is not None:
        if not (cutoff.isascii() and cutoff.isdigit() and len(cutoff) <= 18):
            raise MeasureError(
                f"{shorten(text)}: cutoff {shorten(cutoff)} is not a whole number from 1 to 10^18",
                remedy=f"write {result.name}@10, say",
            )
        result = result @ int(cutoff)
    return result.require_cutoff()


def _level(text: str, level: str) -> float:
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", level):
        raise MeasureError(
            f"{shorten(text)}: {shorten(level)} is not a level of recall",
            remedy="write IPrec@0.1, say",
        )
    return float(level) if "." in level else int(level)


# ------------------------------------------------------------------------- names of other tools

_UNCLEAR = {"hit", "p4"}  # which other tools write for something else than ours
_NEAREST = {"hit": "Success"}  # where the letters mislead
_NUMBERED = re.compile(r"(?P<stem>.+?)(?P<sign>_at_|[_.])(?P<number>[0-9]+(?:\.[0-9]+)?)", re.S)


def _spellings() -> dict[str, str]:
    """Every known name in small letters → what it means here: `ndcg_burges` → nDCG(gain='exp')."""
    found = {name.lower(): name for name in REGISTRY if name.lower() not in _UNCLEAR}
    for definition in REGISTRY.values():
        for alias in definition.aliases:
            name, bracket, rest = alias.partition("(")
            found[name.lower()] = f"{definition.name}{bracket}{rest}"
    return found


def _of_another_tool(
    text: str, name: str, inside: str | None, cutoff: str | None
) -> Measure | None:
    """`map`, `ndcg_cut_10`, `P_5`, `recall_at_100`, `mrr@10`, `RBP.95` as ours; None if unknown."""
    spellings = _spellings()
    meant = spellings.get(name.lower())
    numbered = _NUMBERED.fullmatch(name)
    if meant is None and numbered and inside is None and cutoff is None:
        meant, cutoff = spellings.get(numbered["stem"].lower()), numbered["number"]
        if meant == "RBP" and (numbered["sign"] == "." or "." in cutoff):  # a persistence
            inside, cutoff = f"p={cutoff if '.' in cutoff else f'0.{cutoff}'}", None
    if meant is None:
        return None
    own, _, preset = meant.partition("(")
    result = Measure(own, resolved=_resolve(own, {}))
    if preset:
        result = result(**_parameters(text, preset[:-1]))
    return _built(text, result, inside, cutoff)


def renamed(measures: Iterable[Measure]) -> list[str]:
    """One note on the measures that were asked for under another tool's name."""
    told = [f"{m.asked} is {m}" for m in measures if m.asked is not None]
    return [f"names of other tools: {', '.join(told)}"] if told else []


_THEIRS = {"log2": "linear", "exp-log2": "exp"}  # ir_measures' dcg= → our gain=


def _ours(name: str, parameters: dict[str, Value]) -> dict[str, Value]:
    """Parameters as ir_measures writes them → ours."""
    taken = REGISTRY[name].parameters
    if "judged_only" in parameters and "judged_only" not in taken:
        if parameters["judged_only"] is not False:
            raise MeasureError(
                f"{name}(judged_only=True) is a choice for the whole evaluation here",
                remedy="write condensed=True, --condensed",
            )
        parameters = {k: v for k, v in parameters.items() if k != "judged_only"}
    if name == "nDCG":
        told = {"dcg": "gain", "gains": "gain"}
        parameters = {
            told.get(k, k): _THEIRS.get(v, v) if k == "dcg" and isinstance(v, str) else v
            for k, v in parameters.items()
        }
    return parameters


def _parameters(text: str, inside: str) -> dict[str, Value]:
    try:
        if len(inside) > 200:  # nothing one would write; Python's parser has limits of its own
            raise ValueError  # noqa: TRY301
        call = ast.parse(f"f({inside})", mode="eval").body
        # `2)(rel=3` between the parentheses makes two calls, `2)+f(rel=3` a sum.
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or call.args:
            raise ValueError  # noqa: TRY301
        names = [keyword.arg for keyword in call.keywords]
        if None in names or len(set(names)) < len(names):
            raise ValueError  # noqa: TRY301
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise MeasureError(
            f"{shorten(text)}: cannot read the parameters {shorten(inside)}",
            remedy="write them as AP(rel=2) or nDCG(gain='exp')",
        ) from None


def _suggest(text: str, name: str) -> str:
    """The nearest measure with as much of the rest as it takes: `recall_100` → R@100."""
    spellings = {name.lower(): name for name in REGISTRY} | _spellings() | _NEAREST
    digits = None if name.lower() in spellings else re.fullmatch(r"(.+?)[_.]?(\d+)", name, re.S)
    stem, cutoff = (digits[1], f"@{digits[2]}") if digits else (name, "")
    close = get_close_matches(stem.lower(), spellings, n=1, cutoff=0.7)
    if not close:
        return f"known are {', '.join(REGISTRY)}"
    found = spellings[close[0]].partition("(")[0]
    for rest in (text.strip()[len(name) :] or cutoff, cutoff, "", "@10"):
        with suppress(MeasureError):
            return f"did you mean {parse(found + rest)}?"
    return f"did you mean {found}?"
