"""Read ids and scores from the answer of a search engine, whatever objects it consists of.

    [("d7", 0.9), …]    ["d7", …]    {"d7": 0.9, …}    [{"id": "d7", "score": 0.9}, …]
    objects with an id and a score: LangChain's, Haystack's documents, LlamaIndex's nodes
    {"documents": […]}, {"retriever": {"documents": […]}}: Haystack's components and pipelines

A dotted path names the id's attribute or key (`metadata.id`). Hits without scores get minus the
rank, and the run's format becomes `ranks`, so that the absence of ties is not taken for a finding.
A passage that is returned twice (two chunks of it) keeps its best score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import polars as pl

from rankproof.data.columns import is_text, not_unicode, past_every_number, to_float
from rankproof.foundation.errors import InputError, shorten

RANKS = "ranks"  # the format of scores that are minus the rank
IDS = ("id", "_id", "doc_id", "node_id")
SCORES = ("score", "_score", "relevance_score", "_relevance_score")
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Hits:
    """The passages of one query, in the engine's order."""

    ids: list[str]
    scores: list[float]
    ranked: bool = False  # True if the scores are only minus the rank


def read_hits(answer: Any, place: str, path: str | None = None, stored: bool = False) -> Hits:
    """Return the hits of an answer, or raise InputError.

    In a `stored` answer (a run that a user holds), an id may also be in the metadata, and a
    repeated document is refused.
    """
    answer = unwrapped(answer)
    if isinstance(answer, set | frozenset):
        raise InputError("a set, which has no order", place=place, remedy="return a list")
    if isinstance(answer, Mapping):
        pairs: list[tuple[Any, Any]] = list(answer.items())
    elif isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise InputError(
            f"returns {shorten(answer)} and no list",
            place=place,
            remedy="return [(id, score), …]",
        )
    else:
        pairs = [_id_and_score(item, place, path, stored) for item in answer]
    ids = [_text_id(value, place, path, stored) for value, _ in pairs]
    if not is_text("".join(ids)):
        invalid = next(text for text in ids if not is_text(text))
        raise not_unicode("document", invalid, place)
    if stored and len(set(ids)) < len(ids):
        repeated = shorten(_first_repeated(ids))
        raise InputError(
            f"document {repeated} a second time", place=place, remedy="keep one of the two"
        )
    scores = [score for _, score in pairs]
    without_score = sum(score is None for score in scores)
    if 0 < without_score < len(scores):
        raise InputError(
            f"{without_score} of {len(scores)} hits have no score",
            place=place,
            remedy="score all of them, or none",
        )
    if without_score:
        return best_of_repeated(ids, [-float(rank) for rank in range(1, len(ids) + 1)], True)
    numbers = [_score(score, place) for score in scores]
    # Stored scores keep their type: their reader also uses what a float cannot hold.
    return best_of_repeated(ids, scores if stored else numbers)


def unwrapped(answer: Any) -> Any:
    """Return the documents inside an answer of Haystack, or values of numpy, torch and pandas."""
    inner = answer
    if isinstance(inner, Mapping) and len(inner) == 1 and "documents" not in inner:
        (inner,) = inner.values()
    if isinstance(inner, Mapping) and isinstance(inner.get("documents"), list | tuple):
        return inner["documents"]
    if hasattr(answer, "tolist"):
        index = getattr(answer, "index", None)  # of a pandas Series: ids, unless it is 0, 1, 2, …
        has_ids = hasattr(index, "dtype") and not hasattr(index, "step")
        return answer.to_dict() if has_ids else answer.tolist()
    return answer.to_list() if isinstance(answer, pl.Series) else answer


def _id_and_score(item: Any, place: str, path: str | None, stored: bool = False) -> tuple[Any, Any]:
    """Return id and score of one hit; None for what it lacks."""
    if isinstance(item, str | Integral):
        return item, None
    if isinstance(item, Sequence) and not isinstance(item, bytes):
        if len(item) != 2:
            raise InputError(
                f"returns {shorten(item)} for a hit", place=place, remedy="return (id, score)"
            )
        document, score = item
        if not isinstance(document, str | Integral):
            document, _ = _id_and_score(document, place, path, stored)
        return document, score
    if path is not None:
        identifier = _follow(item, path)
    else:
        holders = [item]
        if stored:
            inner = (_attribute(item, name) for name in ("metadata", "meta", "payload"))
            holders += [holder for holder in inner if isinstance(holder, Mapping)]
        identifier = _first_attribute(holders, IDS)
    return identifier, _first_attribute([item], SCORES)


def _first_attribute(holders: Sequence[Any], names: Sequence[str]) -> Any:
    """Return the first of these attributes or keys that is present and not None."""
    values = (_attribute(holder, name) for holder in holders for name in names)
    return next((value for value in values if value is not _ABSENT and value is not None), None)


def _follow(item: Any, path: str) -> Any:
    for name in path.split("."):
        item = _attribute(item, name)
        if item is _ABSENT:
            return None
    return item


def _attribute(item: Any, name: str) -> Any:
    if isinstance(item, Mapping):
        return item.get(name, _ABSENT)
    return getattr(item, name, _ABSENT)


def _text_id(value: Any, place: str, path: str | None, stored: bool) -> str:
    if not isinstance(value, bool) and isinstance(value, str | Integral):
        return str(value)
    if value is None:
        lack = f"no {path!r}" if path else "no id"
        remedy = 'say where it is: id="metadata.id", say'
        if stored:
            remedy = "write {query: [(id, score)]}, or give each an id"
        raise InputError(f"a hit has {lack}", place=place, remedy=remedy)
    raise InputError(f"id {shorten(value)} is not text", place=place, remedy="return ids as text")


def _score(score: Any, place: str) -> float:
    value: float | None
    try:
        value = None if isinstance(score, str | bytes | bool | np.bool_) else to_float(score)
    except (TypeError, ValueError):
        value = None
    except OverflowError:
        raise past_every_number("run", score, place) from None
    if value is None:
        raise InputError(
            f"score {shorten(score)} is not a number", place=place, remedy="return numbers"
        )
    if math.isnan(value):
        raise InputError("a score is NaN", place=place, remedy="return numbers")
    return value


def _first_repeated(ids: list[str]) -> str:
    seen: set[str] = set()
    for text in ids:
        if text in seen:
            break
        seen.add(text)
    return text


def best_of_repeated(ids: list[str], scores: list[float], ranked: bool = False) -> Hits:
    """Return the hits with each id once, at its best score."""
    if len(set(ids)) < len(ids):
        best: dict[str, float] = {}
        for name, score in zip(ids, scores, strict=True):
            best[name] = max(score, best.get(name, -math.inf))
        ids, scores = list(best), list(best.values())
    return Hits(ids, scores, ranked)
