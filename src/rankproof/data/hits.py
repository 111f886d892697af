"""What somebody's engine answers, whatever it is made of → ids and scores.

    [("d7", 0.9), …]    ["d7", …]    {"d7": 0.9, …}    [{"id": "d7", "score": 0.9}, …]
    objects with an id and a score: LangChain's, Haystack's documents, LlamaIndex's nodes
    {"documents": […]}, {"retriever": {"documents": […]}}: Haystack's components and pipelines

A dotted path says where the id is (`metadata.id`: attributes or keys). Without scores the order is
all there is: they become minus the rank, and the run's format is `ranks`, so that nobody takes the
absence of ties for a finding. Of a passage that is named twice (two chunks of it) the best stays.
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

RANKS = "ranks"  # the format of scores that were none
IDS = ("id", "_id", "doc_id", "node_id")
SCORES = ("score", "_score", "relevance_score", "_relevance_score")
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Hits:
    """The passages of one query, best first as the engine sees it."""

    ids: list[str]
    scores: list[float]
    ranked: bool = False  # whether the scores are only minus the rank


def read_hits(answer: Any, place: str, path: str | None = None, kept: bool = False) -> Hits:
    """Ids and scores of an answer; InputError says what is wrong with it.

    Of answers that somebody `kept` there is nobody to ask: an id may also be in the metadata, and a
    document that is named twice is refused.
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
        pairs = [_pair(item, place, path, kept) for item in answer]
    ids = [_id(found, place, path, kept) for found, _ in pairs]
    if not is_text("".join(ids)):
        half = next(found for found in ids if not is_text(found))
        raise not_unicode("document", half, place)
    again = _second(ids) if kept and len(set(ids)) < len(ids) else None
    if again is not None:
        raise InputError(
            f"document {shorten(again)} a second time", place=place, remedy="keep one of the two"
        )
    scores = [score for _, score in pairs]
    silent = sum(score is None for score in scores)
    if 0 < silent < len(scores):
        raise InputError(
            f"{silent} of {len(scores)} hits have no score",
            place=place,
            remedy="score all of them, or none",
        )
    if silent:
        return best_of_repeated(ids, [-float(rank) for rank in range(1, len(ids) + 1)], True)
    numbers = [_score(score, place) for score in scores]
    # What was kept is handed on as it is: its reader sees what a float would leave of it.
    return best_of_repeated(ids, scores if kept else numbers)


def unwrapped(answer: Any) -> Any:
    """The documents of an answer that names them as Haystack's do; else the answer."""
    inner = answer
    if isinstance(inner, Mapping) and len(inner) == 1 and "documents" not in inner:
        (inner,) = inner.values()
    if isinstance(inner, Mapping) and isinstance(inner.get("documents"), list | tuple):
        return inner["documents"]
    if hasattr(answer, "tolist"):  # of numpy, torch, pandas
        named = getattr(answer, "index", None)
        scores = hasattr(named, "dtype") and not hasattr(named, "step")  # not 0, 1, 2, …
        return answer.to_dict() if scores else answer.tolist()
    return answer.to_list() if isinstance(answer, pl.Series) else answer


def _pair(item: Any, place: str, path: str | None, kept: bool = False) -> tuple[Any, Any]:
    """(id, score) of one hit; a score of None where it has none."""
    if isinstance(item, str | Integral):
        return item, None
    if isinstance(item, Sequence) and not isinstance(item, bytes):
        if len(item) != 2:
            raise InputError(
                f"returns {shorten(item)} for a hit", place=place, remedy="return (id, score)"
            )
        first, score = item
        return (
            first if isinstance(first, str | Integral) else _pair(first, place, path, kept)[0]
        ), score
    if path is not None:
        found = _follow(item, path)
    else:
        beside = [_step(item, name) for name in ("metadata", "meta", "payload") if kept]
        homes = [item, *(home for home in beside if isinstance(home, Mapping))]
        named = (_step(home, name) for home in homes for name in IDS)
        found = next((f for f in named if f is not _ABSENT and f is not None), None)
    score = next((s for s in (_step(item, n) for n in SCORES) if s is not _ABSENT), None)
    return (None if found is _ABSENT else found), score


def _follow(item: Any, path: str) -> Any:
    for name in path.split("."):
        item = _step(item, name)
        if item is _ABSENT:
            return None
    return item


def _step(item: Any, name: str) -> Any:
    if isinstance(item, Mapping):
        return item.get(name, _ABSENT)
    return getattr(item, name, _ABSENT)


def _id(found: Any, place: str, path: str | None, kept: bool) -> str:
    if not isinstance(found, bool) and isinstance(found, str | Integral):
        return str(found)
    if found is None:
        said = f"no {path!r}" if path else "no id"
        remedy = 'say where it is: id="metadata.id", say'
        if kept:
            remedy = "write {query: [(id, score)]}, or give each an id"
        raise InputError(f"a hit has {said}", place=place, remedy=remedy)
    raise InputError(f"id {shorten(found)} is not text", place=place, remedy="return ids as text")


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


def _second(ids: list[str]) -> str:
    seen: set[str] = set()
    return next(found for found in ids if found in seen or seen.add(found))  # type: ignore[func-returns-value]


def best_of_repeated(ids: list[str], scores: list[float], ranked: bool = False) -> Hits:
    """Return the hits with each id once, at its best score."""
    if len(set(ids)) < len(ids):
        best: dict[str, float] = {}
        for name, score in zip(ids, scores, strict=True):
            best[name] = max(score, best.get(name, -math.inf))
        ids, scores = list(best), list(best.values())
    return Hits(ids, scores, ranked)
