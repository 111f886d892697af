"""A reranker as judge: its scores, cut into grades, and in order as they are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import model_validator

from rankproof.foundation.config import Settings, Share
from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest
from rankproof.golden.judges import QueryPool
from rankproof.golden.requests import Request
from rankproof.retrieval.chat import Answer
from rankproof.retrieval.components import RerankerChoice, part
from rankproof.retrieval.protocols import Reranker


class ScorerJudgeSettings(Settings):
    """A reranker as judge: scores become grades at cuts, and orders as they are.

    `cuts` are the least scores of grades 2, 3, 4 and 5; else `shares` of all pooled passages that
    score below them.
    """

    type: Literal["cross-encoder"]
    reranker: RerankerChoice
    cuts: tuple[float, float, float, float] | None = None
    shares: tuple[Share, Share, Share, Share] = (0.5, 0.8, 0.9, 0.97)

    @model_validator(mode="after")
    def _ascending(self) -> ScorerJudgeSettings:
        for name, values in (("cuts", self.cuts), ("shares", self.shares)):
            if values is not None and list(values) != sorted(values):
                raise InputError(f"{name} do not ascend", remedy="order them from grade 2 to 5")
        return self


@part("judge", "cross-encoder", extra="torch")
class ScorerJudge:
    """Each passage's score is worked out once; grades and orders are read off it."""

    simulated = False
    parallel = False

    def __init__(self, settings: ScorerJudgeSettings, reranker: Reranker | None = None):
        if reranker is None:
            from rankproof.retrieval.cache import Cache
            from rankproof.retrieval.rerankers import make_reranker

            reranker = make_reranker(settings.reranker, Cache())
        self._reranker = reranker
        self._cuts = settings.cuts
        self._shares = settings.shares
        self._scores: dict[tuple[str, str], float] = {}
        self._tokens: dict[tuple[str, str], int] = {}
        self.name = reranker.name
        self.model = reranker.fingerprint
        # Cuts that are not given are found once all is scored; the shares say as much before.
        self.fingerprint = digest([reranker.fingerprint, settings.cuts or settings.shares])

    @property
    def parameters(self) -> dict[str, Any]:
        if self._cuts is None:
            raise InputError("shares of all scores are not known before all are scored")
        return {"cuts": list(self._cuts)}

    def prepare(self, pools: Sequence[QueryPool]) -> None:
        """Score every pool; the cuts are the scores below which the stated shares lie."""
        if self._cuts is not None:
            return
        for pool in pools:
            self._score(pool.question, pool.texts)
        every = np.sort(
            [self._scores[pool.question, text] for pool in pools for text in pool.texts]
        )
        if not len(every):
            raise InputError("no passages to score", remedy="retrieve some first")
        at = np.minimum((np.array(self._shares) * len(every)).astype(int), len(every) - 1)
        low, weak, good, best = (float(score) for score in every[at])
        self._cuts = (low, weak, good, best)

    def ask(self, request: Request) -> Answer:
        scores = self._score(request.question, request.texts)
        value: dict[str, Any]
        if request.kind == "grade":
            cuts = np.array(self.parameters["cuts"])
            grades = 1 + np.searchsorted(cuts, scores, side="right")
            value = dict(zip(request.labels, grades.tolist(), strict=True))
        else:
            order = np.argsort(-np.array(scores), kind="stable")
            value = {"order": [request.labels[at] for at in order]}
        tokens = sum(self._tokens.pop((request.question, text), 0) for text in request.texts)
        return Answer(json.dumps(value), tokens, 0, 0.0, self.name)

    def close(self) -> None:
        """Nothing is open."""

    def _score(self, question: str, texts: Sequence[str]) -> list[float]:
        unknown = [text for text in dict.fromkeys(texts) if (question, text) not in self._scores]
        if unknown:
            scored = self._reranker.score(question, unknown)
            share, rest = divmod(scored.tokens, len(unknown))
            for at, (text, score) in enumerate(zip(unknown, scored.score, strict=True)):
                if not np.isfinite(score):
                    raise InputError(
                        f"the score {score} is not a number", place=self.name, remedy="rescore it"
                    )
                self._scores[question, text] = float(score)
                self._tokens[question, text] = share + (at < rest)
        return [self._scores[question, text] for text in texts]
