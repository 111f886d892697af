"""A measure is a value, `nDCG@10` or `AP(rel=2)@100`, made from a function by a decorator.

    @measure("nDCG", at="cutoff", unjudged="ideal gain", reads="best")
    def ndcg(groups: TieGroups, cutoff: int | None, gain: Gain = "linear") -> Outcomes: ...

Other packages know a measure only by what its decorator declares: the parser, the command line's
help, worst cases over unjudged documents, flips, intervals and ceilings work for every measure.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from rankproof.data.tables import Scale
from rankproof.data.ties import TieGroups
from rankproof.foundation.arrays import Float, Int
from rankproof.foundation.errors import MeasureError, shorten
from rankproof.measures.outcomes import Outcomes
from rankproof.measures.properties import Extremes, Reads, UnjudgedEffect
from rankproof.measures.random_orders import estimate_expensive, sample_powers
from rankproof.measures.split_ties import split_outcomes

Value = int | float | str | bool | None | Mapping[int, float] | tuple[tuple[int, float], ...]

_LARGEST = 10**18  # exclusive limit of cutoffs and parameters: their sums fit into 64 bits


@dataclass(frozen=True, kw_only=True)
class Definition:
    """What a measure's function declares; `measure` documents the properties.

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
    meaning: str | None
    grades: tuple[int, int] | None
    geometric: bool
    less_is_better: bool
    upper: float | Callable[[Measure], float]
    step: float | Literal["1/k"]
    rising: bool
    additive: Callable[[Measure, Int], Float] | None
    unjudged: UnjudgedEffect | None
    ignores_unjudged: bool
    best_by_grade: bool
    open_scale: str | None
    reads: Reads
    splits_ties: bool

    @property
    def summary(self) -> str:
        """The first sentence of the function's docstring."""
        return (inspect.getdoc(self.function) or "").split("\n\n")[0].replace("\n", " ")

    def check(self, name: str, value: Value) -> Value:
        """Return a parameter's value as it is stored, or raise a MeasureError."""
        if name not in self.parameters:
            names = ", ".join(self.parameters) or "no parameters"
            raise MeasureError(f"{self.name} has no parameter {name!r}", remedy=f"it takes {names}")
        allowed = _allowed_values(self.hints[name])
        choices = [choice for choice in allowed if not isinstance(choice, type)]
        types = tuple(choice for choice in allowed if isinstance(choice, type))
        if dict in types and isinstance(value, Mapping):
            return _gain_pairs(self.name, name, value)
        types = tuple(kind for kind in types if kind is not dict)
        numeric = (*types, int) if float in types else types
        if value in choices or (isinstance(value, numeric) and not isinstance(value, bool)):
            return self._in_limits(name, value, is_float=float in types)
        expected = " or ".join([repr(c) for c in choices] + [t.__name__ for t in types])
        expected += " or {grade: gain}" if dict in allowed else ""
        raise MeasureError(f"{self.name}({name}={shorten(value)})", remedy=f"{name} is {expected}")

    def _in_limits(self, name: str, value: Value, *, is_float: bool) -> Value:
        """Return a value inside the parameter's limits, or raise a MeasureError."""
        if not isinstance(value, int | float):
            return value
        low, high = self.limits.get(name, (-_LARGEST, _LARGEST))
        if low <= value <= high and abs(value) < _LARGEST:
            return float(value) if is_float else value
        raise MeasureError(
            f"{self.name}({name}={shorten(value)}) is out of range",
            remedy=f"{name} lies between {low:g} and {min(high, _LARGEST):g}",
        )

    def resolve(self, explicit: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
        """Every parameter in the function's order, with its explicit value or its default."""
        return tuple(
            (key, explicit.get(key, parameter.default))
            for key, parameter in self.parameters.items()
        )


def _gain_pairs(measure: str, name: str, value: Mapping[Any, Any]) -> tuple[tuple[int, float], ...]:
    """Return {grade: gain} as ascending pairs, which can be compared and hashed."""
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


def _allowed_values(hint: Any) -> tuple[Any, ...]:
    """Types and literal values that an annotation allows; dict for pairs of grade and gain."""
    if typing.get_origin(hint) is Literal:
        return typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return (dict,)
    members = typing.get_args(hint)
    if not members:
        return (None,) if hint is type(None) else (hint,)
    return tuple(value for member in members for value in _allowed_values(member))


REGISTRY: dict[str, Definition] = {}
"""Every measure by its name.

>>> from rankproof.measures import REGISTRY
>>> REGISTRY["RR"].summary
'One over the rank of the first relevant document [T 17–21]; 0 if it is not in the top k.'
"""


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure with its parameters; `@` sets the cutoff, a call sets parameters.

    Measures are equal if they compute the same, however they are written: `RBP == RBP(p=0.8)`.

    >>> rp.nDCG @ 10, rp.AP(rel=2) @ 100
    (nDCG@10, AP(rel=2)@100)
    >>> rp.RBP == rp.RBP(p=0.8)
    True
    """

    name: str
    cutoff: int | None = None
    explicit: tuple[tuple[str, Value], ...] = field(default=(), compare=False)  # as written
    resolved: tuple[tuple[str, Value], ...] = ()  # every parameter, defaults included
    alias: str | None = field(default=None, compare=False)  # another tool's name, as written

    @staticmethod
    def of(name: str) -> Measure:
        """The measure of this name with its default parameters."""
        return Measure(name, resolved=REGISTRY[name].resolve({}))

    @property
    def definition(self) -> Definition:
        return REGISTRY[self.name]

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter by name, with the defaults."""
        return dict(self.resolved)

    @property
    def sign(self) -> int:
        """1 if a higher value is better, −1 if a lower one is."""
        return -1 if self.definition.less_is_better else 1

    @property
    def upper(self) -> float:
        """The highest possible value; infinite for counts."""
        upper = self.definition.upper
        return upper(self) if callable(upper) else upper

    @property
    def step(self) -> float:
        """The number that every value of a query is a multiple of; 0 if there is none."""
        step = self.definition.step
        if isinstance(step, str):
            return 1.0 / self.cutoff if self.cutoff else 0.0
        return step

    @property
    def has_open_scale(self) -> bool:
        """True if the highest grade in the judgments changes what every other grade is worth."""
        name = self.definition.open_scale
        return name is not None and self.parameters[name] is None

    @property
    def needs_aspects(self) -> bool:
        """True if it reads which aspects of the query a document covers."""
        return self.definition.reads == "aspects"

    @property
    def threshold(self) -> int:
        """The lowest grade that counts as relevant."""
        rel = self.parameters.get("rel", 1)
        return rel if isinstance(rel, int) else 1  # NumRet(rel=None) counts every grade

    @property
    def unjudged_count_as(self) -> str:
        """What unjudged documents count as, in words."""
        is_ignored = self.definition.ignores_unjudged or self.definition.less_is_better
        return "left out" if is_ignored else "not relevant"

    def __matmul__(self, cutoff: float) -> Measure:
        if self.definition.at == "recall":
            return self(recall=cutoff)
        if not self.definition.takes_cutoff:
            raise MeasureError(f"{self.name} has no cutoff", remedy=f"write {self.name}")
        is_integer = isinstance(cutoff, int | np.integer) and not isinstance(cutoff, bool)
        if not (is_integer and 1 <= cutoff < _LARGEST):
            raise MeasureError(
                f"{self.name}@{shorten(cutoff)}: the cutoff is not a whole number from 1 to 10^18",
                remedy=f"write {self.name}@10, say",
            )
        return replace(self, cutoff=int(cutoff))

    def __call__(self, /, **parameters: Value) -> Measure:
        python = {k: v.item() if isinstance(v, np.generic) else v for k, v in parameters.items()}
        explicit = dict(self.explicit) | python
        checked = {name: self.definition.check(name, value) for name, value in explicit.items()}
        resolved = self.definition.resolve(checked)
        return replace(self, explicit=tuple(explicit.items()), resolved=resolved)

    def __str__(self) -> str:
        at = self.definition.at
        inside = ",".join(f"{name}={value!r}" for name, value in self.explicit if name != at)
        parameters = f"({inside})" if inside else ""
        suffix = self.cutoff or dict(self.explicit).get(at or "")
        return f"{self.name}{parameters}{'' if suffix is None else f'@{suffix}'}"

    __repr__ = __str__

    def require_cutoff(self) -> Measure:
        """Return this measure; a MeasureError if it needs a cutoff and has none."""
        if self.definition.needs_cutoff and self.cutoff is None:
            raise MeasureError(f"{self} needs a cutoff", remedy=f"write {self}@10, say")
        return self

    def on_scale(self, scale: Scale | None) -> Measure:
        """Return it with the scale's relevance threshold as `rel`, as RR(rel=4) on grades 1–5.

        An explicit rel, max or {grade: gain} stays.
        """
        explicit = dict(self.explicit)
        current = self.parameters.get("rel")
        if scale is None or current is None or not explicit.keys().isdisjoint({"rel", "max"}):
            return self
        if not isinstance(explicit.get("gain", ""), str):  # {grade: gain} names its own threshold
            return self
        is_graded = "gain" in self.definition.parameters
        rel = scale.gains if is_graded else scale.relevant
        return self(rel=rel) if rel != current else self

    def rescaled(self, of: Scale | None, to: Scale | None) -> Measure:
        """Return the same measure for another scale: RR(rel=4) on 1–5 is RR on grades 0 and 1."""
        explicit = tuple((name, value) for name, value in self.explicit if name != "rel")
        resolved = self.definition.resolve(dict(explicit))
        default = replace(self, explicit=explicit, resolved=resolved)
        return default.on_scale(to) if default.on_scale(of) == self else self

    def outcomes(self, groups: TieGroups) -> Outcomes:
        """Compute the measure for every query of some tie groups."""
        self.require_cutoff()
        if self.needs_aspects and groups.judgment is None:
            raise without_aspects(self)
        arguments = self.parameters
        if self.definition.takes_cutoff:
            arguments["cutoff"] = self.cutoff
        if self.cutoff is not None:
            groups = groups.within(self.cutoff)
        if not self.definition.splits_ties and groups.reaches_past_end:
            return split_outcomes(self, groups).consistent()
        outcomes = self.definition.function(groups, **arguments)
        if self.definition.geometric and outcomes.powers is None:
            outcomes = sample_powers(outcomes)
        if outcomes.expensive is not None and outcomes.expensive.any():
            outcomes = estimate_expensive(self, groups, outcomes)
        return outcomes.consistent()


def without_aspects(measure: Measure) -> MeasureError:
    """Return the error for judgments without the aspects that a document covers."""
    return MeasureError(
        f"{measure} needs judgments with aspects",
        remedy="name a file or a table of query, aspect, document and grade; in Python "
        "read_qrels(…, aspects=True)",
    )


def measure(
    name: str,
    *,
    at: Literal["cutoff", "recall"] | None = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
    aliases: tuple[str, ...] = (),
    meaning: str | None = None,
    grades: tuple[int, int] | None = None,
    geometric: bool = False,
    less_is_better: bool = False,
    endless: bool = False,
    upper: float | Callable[[Measure], float] = 1.0,
    step: float | Literal["1/k"] = 0.0,
    rising: bool = False,
    additive: Callable[[Measure, Int], Float] | None = None,
    unjudged: UnjudgedEffect | None = None,
    ignores_unjudged: bool = False,
    best_by_grade: bool = True,
    open_scale: str | None = None,
    reads: Reads = "all",
    splits_ties: bool = False,
) -> Callable[[Callable[..., Outcomes]], Measure]:
    """Register a function of tie groups as a measure, and declare its properties.

    - `at="cutoff"`: `@k` sets the argument `cutoff`, and groups that begin past it are dropped.
      Annotate it `int | None` if the measure also makes sense for a whole list.
      `at="recall"`: `@0.1` sets the argument `recall`.
    - `limits`: the range of each numeric parameter.
    - `aliases`: names of other tools, with the parameters they stand for
      (`ndcg_burges(gain='exp')`).
    - `meaning`: the measure in plain words, for readers of a report.
    - `grades`: the lowest and highest grade it is defined on, if that is not 0 and up.
    - `geometric`: its mean over queries is the geometric mean, so runs are not compared by it.
    - `less_is_better`: the run with the lower value is ahead.
    - `upper`: its highest value, where intervals end, or a function of the measure; `endless=True`
      means there is none.
    - `step`: values of a query are multiples of this ("1/k": of one over the cutoff).
    - `rising`: never falls when the grade of a listed document rises, and is defined for queries
      without a relevant document. Worst cases over unjudged documents follow from this alone.
    - `additive`: what one relevant document adds at each rank, as a function of the measure and
      ranks (N,), for a measure that is their sum: worst cases of a difference are then exact.
    - `unjudged`: how the grades of unjudged documents change it, unless it is `rising`; see
      `measures/properties.py`.
    - `ignores_unjudged`: unjudged documents are ignored, they do not count as not relevant.
    - `best_by_grade=False`: sorting by grade does not give its best value, so it has no ceiling.
    - `open_scale`: the parameter for the highest grade, where None takes it from the judgments.
    - `reads`: which judged documents decide it; see `measures/properties.py`.
    - `splits_ties`: no rank past `groups.listed` counts, also where a group reaches past it: lists
      that end inside a tie need no other computation.

    >>> @rp.measure("Listed", endless=True)
    ... def listed(groups: rp.TieGroups) -> rp.Outcomes:
    ...     return rp.Outcomes.certain(groups.listed.astype(float))
    >>> rp.evaluate_arrays([[2, 1]], [[1, 0]], "Listed")["Listed"].expected
    2.0
    """

    def register(function: Callable[..., Outcomes]) -> Measure:
        existing = REGISTRY.get(name)
        # The same function may register twice: a notebook runs its cell again.
        if existing is not None and _location(existing.function) != _location(function):
            raise MeasureError(
                f"there is already a measure {name} ({':'.join(_location(existing.function))})",
                remedy="give yours another name",
            )
        hints = typing.get_type_hints(function)
        signature = dict(inspect.signature(function).parameters)
        signature.pop("groups")
        cutoff = signature.pop("cutoff", None) if at == "cutoff" else None
        REGISTRY[name] = Definition(
            name=name,
            function=function,
            at=at,
            takes_cutoff=cutoff is not None,
            needs_cutoff=cutoff is not None and None not in _allowed_values(hints["cutoff"]),
            parameters=signature,
            hints=hints,
            limits=limits or {},
            aliases=aliases,
            meaning=meaning,
            grades=grades,
            geometric=geometric,
            less_is_better=less_is_better,
            upper=math.inf if endless else upper,
            step=step,
            rising=rising,
            additive=additive,
            unjudged=Extremes("lowest", "highest") if rising and unjudged is None else unjudged,
            ignores_unjudged=ignores_unjudged,
            best_by_grade=best_by_grade,
            open_scale=open_scale,
            reads=reads,
            splits_ties=splits_ties,
        )
        return Measure.of(name)

    return register


def _location(function: Callable[..., Outcomes]) -> tuple[str, str]:
    return function.__module__, function.__qualname__
