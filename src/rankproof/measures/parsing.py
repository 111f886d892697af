"""Text → measure: `"AP(rel=2)@100"`, and the names that other tools use (`map`, `ndcg_cut_10`)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches

from rankproof.foundation.errors import MeasureError, shorten
from rankproof.measures.registry import REGISTRY, Measure, Value

_SEVERAL = re.compile(r"[,;\s]\s*[^\W\d]")
_FORM = re.compile(r"(?P<name>[^()@\s]+)(?:\((?P<inside>.*)\))?(?:@(?P<cutoff>[^()@]*))?", re.S)


def parse(text: str | Measure) -> Measure:
    """Read a measure, `"AP(rel=2)@100"`; `str(parse(s)) == s`.

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
        return _configured(text, Measure.of(name), inside, cutoff)
    with suppress(MeasureError):
        translated = _of_another_tool(text, name, inside, cutoff)
        if translated is not None:
            return replace(translated, alias=text.strip())
    raise MeasureError(f"unknown measure {shorten(name)}", remedy=_suggestion(text, name))


def _configured(text: str, measure: Measure, inside: str | None, cutoff: str | None) -> Measure:
    """A measure with the parameters and the cutoff that are written behind its name."""
    if inside is not None:
        measure = measure(**_translated_parameters(measure.name, _parameters(text, inside)))
    if cutoff is not None and measure.definition.at == "recall":
        measure = measure @ _recall_level(text, cutoff)
    elif cutoff is not None:
        if not (cutoff.isascii() and cutoff.isdigit() and len(cutoff) <= 18):
            raise MeasureError(
                f"{shorten(text)}: cutoff {shorten(cutoff)} is not a whole number from 1 to 10^18",
                remedy=f"write {measure.name}@10, say",
            )
        measure = measure @ int(cutoff)
    return measure.require_cutoff()


def _recall_level(text: str, level: str) -> float:
    if not re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", level):
        raise MeasureError(
            f"{shorten(text)}: {shorten(level)} is not a level of recall",
            remedy="write IPrec@0.1, say",
        )
    return float(level) if "." in level else int(level)


def _parameters(text: str, inside: str) -> dict[str, Value]:
    """Read "rel=2,max=3" as literals; nothing in it is evaluated."""
    try:
        if len(inside) > 200:  # longer than any measure; Python's parser has limits of its own
            raise ValueError  # noqa: TRY301
        call = ast.parse(f"f({inside})", mode="eval").body
        # `2)(rel=3` between the parentheses makes two calls, `2)+f(rel=3` a sum.
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)) or call.args:
            raise ValueError  # noqa: TRY301
        names = [keyword.arg for keyword in call.keywords]
        if None in names or len(set(names)) < len(names):
            raise ValueError  # noqa: TRY301
        return {str(k.arg): _literal(k.value) for k in call.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise MeasureError(
            f"{shorten(text)}: cannot read the parameters {shorten(inside)}",
            remedy="write them as AP(rel=2) or nDCG(gain='exp')",
        ) from None


class _Word(str):
    """Text that is written without quotation marks."""

    __slots__ = ()
    __repr__ = str.__str__


def _literal(value: ast.expr) -> Value:
    """A literal, or a bare word: gain=exp is gain='exp'."""
    literal: Value = _Word(value.id) if isinstance(value, ast.Name) else ast.literal_eval(value)
    return literal


# ------------------------------------------------------------------------- names of other tools

_AMBIGUOUS = {"hit", "p4"}  # other tools mean something else by these
_NEAREST = {"hit": "Success"}  # where similar letters mislead
_NUMBERED = re.compile(r"(?P<stem>.+?)(?P<sign>_at_|[_.])(?P<number>[0-9]+(?:\.[0-9]+)?)", re.S)
_DCG_OF_IR_MEASURES = {"log2": "linear", "exp-log2": "exp"}  # their dcg= → our gain=


def _known_names() -> dict[str, str]:
    """Every name in lower case → the measure it means: `ndcg_burges` → nDCG(gain='exp')."""
    names = {name.lower(): name for name in REGISTRY if name.lower() not in _AMBIGUOUS}
    for definition in REGISTRY.values():
        for alias in definition.aliases:
            name, bracket, parameters = alias.partition("(")
            names[name.lower()] = f"{definition.name}{bracket}{parameters}"
    return names


def _of_another_tool(
    text: str, name: str, inside: str | None, cutoff: str | None
) -> Measure | None:
    """`map`, `ndcg_cut_10`, `P_5`, `recall_at_100`, `mrr@10`, `RBP.95` as ours; None if unknown."""
    names = _known_names()
    known = names.get(name.lower())
    numbered = _NUMBERED.fullmatch(name)
    if known is None and numbered and inside is None and cutoff is None:
        known, cutoff = names.get(numbered["stem"].lower()), numbered["number"]
        if known == "RBP" and (numbered["sign"] == "." or "." in cutoff):  # a persistence
            inside, cutoff = f"p={cutoff if '.' in cutoff else f'0.{cutoff}'}", None
    if known is None:
        return None
    own_name, _, preset = known.partition("(")
    measure = Measure.of(own_name)
    if preset:
        measure = measure(**_parameters(text, preset[:-1]))
    return _configured(text, measure, inside, cutoff)


def _translated_parameters(name: str, parameters: dict[str, Value]) -> dict[str, Value]:
    """Parameters as ir_measures writes them → ours."""
    if "judged_only" in parameters and "judged_only" not in REGISTRY[name].parameters:
        if parameters["judged_only"] is not False:
            raise MeasureError(
                f"{name}(judged_only=True) is a choice for the whole evaluation here",
                remedy="write condensed=True, --condensed",
            )
        parameters = {k: v for k, v in parameters.items() if k != "judged_only"}
    if name != "nDCG":
        return parameters
    translated: dict[str, Value] = {}
    for key, value in parameters.items():
        if key == "dcg" and isinstance(value, str):
            value = _DCG_OF_IR_MEASURES.get(value, value)
        translated["gain" if key in ("dcg", "gains") else key] = value
    return translated


def alias_notes(measures: Iterable[Measure]) -> list[str]:
    """One note on the measures that were requested by another tool's name."""
    renamed = [f"{m.alias} is {m}" for m in measures if m.alias is not None]
    return [f"names of other tools: {', '.join(renamed)}"] if renamed else []


def _suggestion(text: str, name: str) -> str:
    """The nearest measure, with as much of the text as it takes: `recall_100` → R@100."""
    names = {name.lower(): name for name in REGISTRY} | _known_names() | _NEAREST
    digits = None if name.lower() in names else re.fullmatch(r"(.+?)[_.]?(\d+)", name, re.S)
    stem, cutoff = (digits[1], f"@{digits[2]}") if digits else (name, "")
    close = get_close_matches(stem.lower(), names, n=1, cutoff=0.7)
    if not close:
        return f"known are {', '.join(REGISTRY)}"
    nearest = names[close[0]].partition("(")[0]
    for suffix in (text.strip()[len(name) :] or cutoff, cutoff, "", "@10"):
        with suppress(MeasureError):
            return f"did you mean {parse(nearest + suffix)}?"
    return f"did you mean {nearest}?"
