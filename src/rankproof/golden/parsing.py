"""Parse a judge's reply into grades or an order; anything ambiguous is a failure, never a guess.

Accepted: one JSON object, alone or with prose around it, or the same object repeated; each label
once; grades 1–5 as whole numbers, also written "4" or 4.0. Text in `<think>` marks, where a model
reasons, is not its answer. Anything else is `Malformed`, with the reason.
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

_THOUGHT_BEGINS = re.compile(r"<think(?:ing)?>", re.I)
_THOUGHT_ENDS = re.compile(r"</think(?:ing)?>", re.I)
_JSON_OBJECT = re.compile(r"\{.*\}", re.S)
_GRADES = ("1", "2", "3", "4", "5")


class Malformed(ValueError):
    """A reply that cannot be used, and why."""


def parse(request: Request, text: str) -> dict[str, int] | list[str]:
    """Parse a reply: grades by document, or documents, best first.

    >>> from rankproof.golden.parsing import parse
    >>> from rankproof.golden.requests import make_request, read_prompt
    >>> passages = [("d1", "So."), ("d2", "Because.")]
    >>> request = make_request("grade", read_prompt("grade"), "q", "Why?", passages, shuffle=False)
    >>> parse(request, 'Here you are: {"A": 2, "B": 5}')
    {'d1': 2, 'd2': 5}
    """
    if not text.strip():
        raise Malformed("the reply is empty")
    if len(text) > MAX_REPLY_CHARS:
        raise Malformed(f"the reply has more than {MAX_REPLY_CHARS:,} characters")
    reply = _parse_object(_remove_thoughts(text))
    if request.kind == "grade":
        _check_labels(request, list(reply))
        return {
            document: _parse_grade(label, reply[label])
            for label, document in zip(request.labels, request.documents, strict=True)
        }
    if list(reply) != ["order"] or not isinstance(reply["order"], list):
        raise Malformed(f'not {{"order": […]}}: {shorten(reply)}')
    _check_labels(request, reply["order"])
    return [request.documents[request.labels.index(label)] for label in reply["order"]]


def _check_labels(request: Request, labels: Sequence[Any]) -> None:
    """Raise `Malformed` unless every label of the request appears exactly once."""
    seen = set()
    for label in labels:
        if not isinstance(label, str) or label not in request.labels:
            raise Malformed(f"there is no label {shorten(label)}")
        if label in seen:
            raise Malformed(f"label {label} is given twice")
        seen.add(label)
    for label in request.labels:
        if label not in seen:
            raise Malformed(f"label {label} is missing")


def _parse_grade(label: str, value: Any) -> int:
    """Return a grade from 1 to 5, also if it is written "4" or 4.0."""
    number = value
    if isinstance(value, str) and value.strip() in _GRADES:
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int | float) or number not in range(1, 6):
        raise Malformed(f"{shorten(value)} for label {label} is not a grade from 1 to 5")
    return int(number)


def _parse_object(text: str) -> dict[str, Any]:
    """Return the only JSON object in a text; the same one may be repeated."""
    decoder = json.JSONDecoder(object_pairs_hook=_reject_repeated_keys)
    result: dict[str, Any] | None = None
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except RecursionError:
            raise Malformed("the reply is nested too deep") from None
        except Malformed:
            raise
        except ValueError:  # not JSON from this brace on, or a number of thousands of digits
            start = text.find("{", start + 1)
            continue
        if result is not None and result != value:
            raise Malformed("the reply holds two JSON objects")
        result = value
        start = text.find("{", end)
    if result is None:
        raise Malformed("the reply holds no JSON object")
    return result


def _reject_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object; raise `Malformed` if a key appears twice, of which json keeps one."""
    value: dict[str, Any] = {}
    for key, item in pairs:
        if key in value:
            raise Malformed(f"label {shorten(key)} is given twice")
        value[key] = item
    return value


def _remove_thoughts(text: str) -> str:
    """Return what follows a model's last thought.

    A mark that begins a thought and is never closed is accepted if only an object follows it.
    """
    thought_ends = list(_THOUGHT_ENDS.finditer(text))
    answer = text[thought_ends[-1].end() :] if thought_ends else text
    unclosed = _THOUGHT_BEGINS.search(answer)
    if unclosed is not None and not _JSON_OBJECT.fullmatch(answer[unclosed.end() :].strip()):
        raise Malformed("the reply ends while the model still thinks")
    return answer


def spread(
    request: Request, text: str, chances: Sequence[tuple[str, dict[str, float]]]
) -> dict[str, tuple[float, float]]:
    """Estimate mean and standard deviation of each grade from the model's token probabilities.

    `chances` are the tokens of `text`, each with the log probabilities of the likeliest tokens at
    its place. Over the grades 1–5 among them, E[g] = Σ g·P(g)/Σ P(g).
    """
    if "".join(token for token, _ in chances) != text:
        return {}  # the tokens belong to another text, such as a hidden thought
    starts = list(accumulate((len(token) for token, _ in chances), initial=0))
    spreads: dict[str, tuple[float, float]] = {}
    for document, label in zip(request.documents, request.labels, strict=True):
        written = list(re.finditer(rf'"{label}"\s*:\s*"?([1-5])', text))
        if len(written) != 1:
            continue
        token = bisect_right(starts, written[0].start(1)) - 1
        probabilities = _grade_probabilities(chances[token][1])
        total = sum(probabilities.values())
        if total > 0:
            mean = sum(grade * p for grade, p in probabilities.items()) / total
            variance = sum((grade - mean) ** 2 * p for grade, p in probabilities.items()) / total
            spreads[document] = (mean, math.sqrt(variance))
    return spreads


def _grade_probabilities(log_probabilities: dict[str, float]) -> dict[int, float]:
    """Probability of each grade among the likeliest tokens of one place."""
    return {
        int(token.strip().strip('"')): math.exp(log_probability)
        for token, log_probability in log_probabilities.items()
        if token.strip().strip('"') in _GRADES
    }
