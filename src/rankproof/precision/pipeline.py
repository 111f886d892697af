"""How scores are made: one description that every search, index and audit shares.

A score passes through steps, and each can create or break ties:

    source numbers → number format → candidates, with the ties at their edge → rescoring
                   → metric → score format

A `ScoringPipeline` names the choice made at each step. Four ways of scoring exist:

    plain            all in the format: sums rounded to it, or products of codes
    high precision   the float32 sum of the numbers that a floating-point format holds
    decoded          codes find candidates; the full query scores the decoded documents again
    original         codes find candidates; the full query scores the original documents again
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rankproof.foundation.errors import check_choice, check_whole_number
from rankproof.precision.formats import FLOATS, FORMATS

Metric = Literal["dot", "cosine"]
Rescore = Literal["decoded", "original"]
Scoring = Literal["plain", "high precision", "decoded", "original"]

OVERSAMPLING = 4  # candidates rescored per result, where no number is given


@dataclass(frozen=True, slots=True)
class ScoringPipeline:
    """The number format, way of scoring and metric behind a score; `name` is the printed label.

    >>> from rankproof.precision.pipeline import ScoringPipeline
    >>> ScoringPipeline.of("int8", metric="cosine").name
    'int8, decoded'
    """

    format: str  # a number format, or of logits alone "4 decimals"
    scoring: Scoring
    metric: Metric = "dot"  # of vectors
    candidates: int | None = None  # rescored per query; OVERSAMPLING · k where None
    dimensions: int | None = None  # the first dimensions kept; None for all, and for logits

    @classmethod
    def of(
        cls,
        format: str,  # noqa: A002
        *,
        high_precision: bool = True,
        rescore: str = "decoded",
        metric: str = "dot",
        candidates: int | None = None,
    ) -> ScoringPipeline:
        """Return the pipeline that `search` describes by these arguments; refuse unknown names."""
        if candidates is not None:
            check_whole_number("candidates", candidates, remedy="rescore 1 candidate or more")
        check_choice("metric", metric, get_args(Metric))
        check_choice("rescore", rescore, get_args(Rescore))
        check_choice("number format", format, FORMATS)
        scoring = "plain"
        if high_precision:
            scoring = "high precision" if format in FLOATS else rescore
        return cls(format, scoring, metric, candidates)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        """Format, scoring and kept dimensions: what must be equal to compare two models."""
        dimensions = "" if self.dimensions is None else f", {self.dimensions} dimensions"
        return f"{self.format}, {self.scoring}{dimensions}"

    @property
    def is_plain(self) -> bool:
        """True if all computation stays in the number format."""
        return self.scoring == "plain"

    @property
    def rescores(self) -> bool:
        """True if codes only select candidates, which are then scored again."""
        return self.scoring in get_args(Rescore)

    @property
    def score_dtype(self) -> str:
        """The floating-point format that the scores are rounded to."""
        return self.format if self.is_plain and self.format in FLOATS else "float32"

    @property
    def has_decoded_cosine(self) -> bool:
        """True if the cosine divides by the lengths of the numbers that the format holds.

        A format that rounds changes the length of a vector. Plain scoring and codes of unit
        vectors ignore that; high precision does not.
        """
        return (
            self.metric == "cosine"
            and self.scoring == "high precision"
            and self.format != "float32"
        )

    def candidate_count(self, k: int, documents: int) -> int:
        """Return how many documents the first step keeps for k results."""
        k = min(k, documents)
        if not self.rescores:
            return k
        return min(documents, max(k, self.candidates or OVERSAMPLING * k))
