"""Every choice that a figure rests on, by its name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict, get_args

import numpy as np

from rankproof.data.ties import TIE_BREAKS, Order, ScoreType, check_order, round_scores
from rankproof.foundation.errors import InputError, check_choice, shorten
from rankproof.measures import Measure
from rankproof.presentation.judged_column import CONDENSED

Missing = Literal["zero", "skip"]
Like = Literal["trec_eval", "trec_eval10", "ir_measures", "mteb", "ranx", "gdeval"]
LIKE: dict[Like, dict[str, str]] = {
    "trec_eval": {"order": "trec_eval", "missing": "skip", "score_dtype": "float32"},
    "trec_eval10": {
        "order": "trec_eval",
        "missing": "skip",
        "score_dtype": "float64",
        "recall_levels": "nearest",
    },
    "ir_measures": {"order": "trec_eval", "missing": "zero", "score_dtype": "float32"},
    "mteb": {"order": "trec_eval", "missing": "skip", "score_dtype": "float32"},
    "ranx": {"order": "input", "missing": "zero", "score_dtype": "float64"},
    "gdeval": {"order": "trec_eval", "missing": "skip", "score_dtype": "float64"},
}


@dataclass(frozen=True, slots=True)
class Policy:
    """Every choice that a reported number rests on.

    >>> rp.Policy.of(like="trec_eval").order
    'trec_eval'
    """

    order: Order = "input"
    missing: Missing = "zero"  # a judged query that the run lacks
    undefined: Missing = "skip"  # a measure that has no value for a query
    candidates_only: bool = False
    score_dtype: ScoreType | None = None  # None: as the scores came
    condensed: bool = False  # evaluate lists without their unjudged documents
    depth: int | None = None  # lists end after this rank, in every order of ties
    recall_levels: Literal["nearest"] | None = None  # how IPrec and AP11 round them, if not up

    @classmethod
    def of(
        cls,
        order: str | None = None,
        missing: str | None = None,
        candidates_only: bool = False,
        score_dtype: str | None = None,
        like: str | None = None,
        condensed: bool = False,
        depth: int | None = None,
    ) -> Policy:
        """A policy from the user's words; `like` sets what the others leave open."""
        if like is not None and like not in LIKE:
            raise InputError(
                f"rankproof cannot reproduce {shorten(like)}",
                remedy=f"use one of {', '.join(LIKE)}",
            )
        chosen: dict[str, Any] = {}
        if like is not None:
            chosen = LIKE[like] | {"undefined": "zero"}
        given = {"order": order, "missing": missing, "score_dtype": score_dtype}
        for name, value in given.items():
            if value is None:
                continue
            if name in chosen and chosen[name] != value and name != "missing":  # which is -c
                raise InputError(
                    f"{name} {value!r} contradicts like {like!r}, which means {chosen[name]!r}",
                    remedy="give one of the two",
                )
            chosen[name] = value
        if depth is not None and (isinstance(depth, bool) or not 1 <= depth < 1 << 31):
            raise InputError(f"depth {shorten(depth)}", remedy="read 1 document or more of a list")
        policy = cls(candidates_only=candidates_only, condensed=condensed, depth=depth, **chosen)
        check_order(policy.order)
        check_choice("missing", policy.missing, get_args(Missing))
        if policy.score_dtype is not None:
            round_scores(np.zeros(1), policy.score_dtype)
        return policy

    def apply(self, measure: Measure) -> Measure:
        """Return a measure as this policy computes it."""
        is_rounded = "rounding" in measure.definition.parameters
        if self.recall_levels is None or not is_rounded or "rounding" in dict(measure.explicit):
            return measure
        return measure(rounding=self.recall_levels)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def changes(self) -> list[str]:
        """Return a sentence for each choice that is not the default and changes scores."""
        sentences = []
        if self.condensed:
            sentences.append(CONDENSED)
        if self.candidates_only:
            sentences.append("Only listed documents count as relevant.")
        if self.depth is not None:
            sentences.append(f"Lists end at rank {self.depth}.")
        if self.undefined == "zero":
            sentences.append("Queries without a value count 0.")
        if self.score_dtype is not None:
            sentences.append(f"Scores are compared as {self.score_dtype}.")
        return sentences

    def definitions(self, dtype: str) -> list[str]:
        """Return every choice in a sentence; `dtype` is the format in which the scores came."""
        missing = "count 0" if self.missing == "zero" else "are skipped"
        undefined = "are skipped" if self.undefined == "skip" else "count 0"
        return [
            f"Means are over the judged queries; queries missing from a run {missing}, queries "
            f"without a relevant document {undefined}.",
            f"Scores are compared as {self.score_dtype or dtype}.",
            f"As listed: ties broken by {TIE_BREAKS[self.order]}.",
        ]


class Choices(TypedDict, total=False):
    """What `Policy.of` takes, by name."""

    order: Order | None
    missing: Missing | None
    candidates_only: bool
    score_dtype: ScoreType | None
    like: Like | None
    condensed: bool
    depth: int | None
