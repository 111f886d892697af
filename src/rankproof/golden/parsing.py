"""A judge's reply → grades or an order, strictly: what is not clear is a failure, never a guess.

Accepted: one JSON object, alone or with prose around it, or the same one again; each label once;
grades 1–5 as whole numbers, also written "4" or 4.0. What a model thinks aloud in `<think>` marks
is not its answer. Anything else is `Malformed`, with the reason.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from rankproof.foundation.errors import shorten
from rankproof.golden.judgments import MAX_REPLY_CHARS
from rankproof.golden.requests import Request

_THINKS = re.compile(r"<think(?:ing)?>", re.I)
_THOUGHT = re.compile(r"</think(?:ing)?>", re.I)
_WHOLE = re.compile(r"\{.*\}", re.S)  # an answer, though the mark before it was never closed
_GRADES = ("1", "2", "3", "4", "5")


class Malformed(ValueError):
    """A reply that cannot be used, and why."""


def parse(request: Request, text: str) -> dict[str, int] | list[str]:
    """Grades by document, or documents, the best first.

    >>> from rankproof.golden.parsing import parse
    >>> from rankproof.golden.requests import make_request, read_prompt
    >>> passages = [("d1", "So."), ("d2", "Because.")]
    >>> asked = make_request("grade", read_prompt("grade"), "q", "Why?", passages, shuffle=False)
    >>> parse(asked, 'Here you are: {"A": 2, "B": 5}')
    {'d1': 2, 'd2': 5}
    """
    value = _object(text)
    if request.kind == "grade":
        found = _labels(request, list(value))
        return {
            request.documents[at]: _grade(name, value[name])
            for at, name in sorted(zip(found, value, strict=True))
        }
    if list(value) != ["order"] or not isinstance(value["order"], list):
        raise Malformed(f'not {{"order": […]}}: {shorten(value)}')
    return [request.documents[at] for at in _labels(request, value["order"])]


def _labels(request: Request, given: list[Any]) -> list[int]:
    """The places of labels, each of which must be there once."""
    place = {name: at for at, name in enumerate(request.labels)}
    found = []
    for name in given:
        if not isinstance(name, str) or name not in place:
            raise Malformed(f"there is no label {shorten(name)}")
        if place[name] in found:
            raise Malformed(f"label {name} is given twice")
        found.append(place[name])
    absent = [name for name in request.labels if place[name] not in found]
    if absent:
        raise Malformed(f"label {absent[0]} is missing")
    return found


def _grade(name: str, value: Any) -> int:
    number = value
    if isinstance(value, str) and value.strip() in _GRADES:
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or number not in range(1, 6):
        raise Malformed(f"{shorten(value)} for label {name} is not a grade from 1 to 5")
    return int(number)


def _object(text: str) -> dict[str, Any]:
    """The one JSON object in a text."""
    if not text.strip():
        raise Malformed("the reply is empty")
    if len(text) > MAX_REPLY_CHARS:
        raise Malformed(f"the reply has more than {MAX_REPLY_CHARS:,} characters")
    text = _answer(text)
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    found: dict[str, Any] | None = None
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except RecursionError:
            raise Malformed("the reply is nested too deep") from None
        except Malformed:
            raise
        except ValueError:  # no JSON from here on, or a number of thousands of digits
            at = text.find("{", at + 1)
            continue
        if found is not None and found != value:
            raise Malformed("the reply holds two JSON objects")
        found = value
        at = text.find("{", end)
    if found is None:
        raise Malformed("the reply holds no JSON object")
    return found


def _answer(text: str) -> str:
    """What comes after a model has thought: all behind the last mark that ends a thought."""
    ended = list(_THOUGHT.finditer(text))
    text = text[ended[-1].end() :] if ended else text
    begun = _THINKS.search(text)
    if begun is not None and not _WHOLE.fullmatch(text[begun.end() :].strip()):
        raise Malformed("the reply ends while the model still thinks")
    return text


def spread(
    request: Request, text: str, chances: Sequence[tuple[str, dict[str, float]]]
) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each grade, from how likely each was where one was written.

    E[g] = Σ g·P(g)/Σ P(g) over the grades 1–5 among the likeliest tokens there.
    """
    if "".join(token for token, _ in chances) != text:
        return {}  # tokens that do not make up the text: they are of something else
    starts = list(accumulate((len(token) for token, _ in chances), initial=0))
    found: dict[str, tuple[float, float]] = {}
    for document, name in zip(request.documents, request.labels, strict=True):
        said = list(re.finditer(rf'"{name}"\s*:\s*"?([1-5])', text))
        if len(said) != 1:
            continue
        at = bisect_right(starts, said[0].start(1)) - 1
        likely = {
            int(token.strip().strip('"')): math.exp(chance)
            for token, chance in chances[at][1].items()
            if token.strip().strip('"') in _GRADES
        }
        total = sum(likely.values())
        if total > 0:
            mean = sum(grade * p for grade, p in likely.items()) / total
            square = sum((grade - mean) ** 2 * p for grade, p in likely.items()) / total
            found[document] = (mean, math.sqrt(square))
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key appears twice."""
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise Malformed(f"label {shorten(twice)} is given twice")
    return value
