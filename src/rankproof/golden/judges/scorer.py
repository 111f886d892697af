"""A reranker as judge: its scores are cut into grades, and sorted into orders."""

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
    """A reranker as judge: its scores are cut into grades, and sorted into orders.

    `cuts` are the lowest scores of grades 2, 3, 4 and 5. Without them, `shares` are the shares of
    all pooled passages that score below each cut.
    """

    type: Literal["cross-encoder"]
    reranker: RerankerChoice
    cuts: tuple[float, float, float, float] | None = None
    shares: tuple[Share, Share, Share, Share] = (0.5, 0.8, 0.9, 0.97)

    @model_validator(mode="after")
    def _check_ascending(self) -> ScorerJudgeSettings:
        """Refuse cuts or shares that do not ascend with the grade."""
        for name, values in (("cuts", self.cuts), ("shares", self.shares)):
            if values is not None and list(values) != sorted(values):
                raise InputError(f"{name} do not ascend", remedy="order them from grade 2 to 5")
        return self


@part("judge", "cross-encoder", extra="torch")
class ScorerJudge:
    """Scores each passage once; grades and orders follow from the scores."""

    simulated = False
    parallel = False

    def __init__(self, settings: ScorerJudgeSettings, reranker: Reranker | None = None):
        """Load the configured reranker, unless one is given."""
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
        # The cuts that shares stand for are known only after scoring.
        self.fingerprint = digest([reranker.fingerprint, settings.cuts or settings.shares])

    @property
    def parameters(self) -> dict[str, Any]:
        """The cuts; known after `prepare`."""
        if self._cuts is None:
            raise InputError("shares of all scores are not known before all are scored")
        return {"cuts": list(self._cuts)}

    def prepare(self, pools: Sequence[QueryPool]) -> None:
        """Without configured cuts: score every pool, and cut where the shares say."""
        if self._cuts is not None:
            return
        for pool in pools:
            self._score(pool.question, pool.texts)
        scores = np.sort(
            [self._scores[pool.question, text] for pool in pools for text in pool.texts]
        )
        if not len(scores):
            raise InputError("no passages to score", remedy="retrieve some first")
        index = np.minimum((np.array(self._shares) * len(scores)).astype(int), len(scores) - 1)
        weak, partial, high, clear = scores[index].tolist()
        self._cuts = (weak, partial, high, clear)

    def ask(self, request: Request) -> Answer:
        """Answer from the scores; the tokens of a passage count in the first reply about it."""
        scores = self._score(request.question, request.texts)
        reply: dict[str, Any]
        if request.kind == "grade":
            cuts = np.array(self.parameters["cuts"])
            grades = 1 + np.searchsorted(cuts, scores, side="right")
            reply = dict(zip(request.labels, grades.tolist(), strict=True))
        else:
            order = np.argsort(-np.array(scores), kind="stable")
            reply = {"order": [request.labels[index] for index in order]}
        tokens = sum(self._tokens.pop((request.question, text), 0) for text in request.texts)
        return Answer(
            json.dumps(reply), tokens_in=tokens, tokens_out=0, seconds=0.0, model=self.name
        )

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _score(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return the score of each text; those without one are scored together."""
        unscored = [text for text in dict.fromkeys(texts) if (question, text) not in self._scores]
        if unscored:
            scored = self._reranker.score(question, unscored)
            share, surplus = divmod(scored.tokens, len(unscored))
            for index, (text, score) in enumerate(zip(unscored, scored.score, strict=True)):
                if not np.isfinite(score):
                    raise InputError(
                        f"the score {score} is not a number", place=self.name, remedy="rescore it"
                    )
                self._scores[question, text] = float(score)
                self._tokens[question, text] = share + (index < surplus)
        return [self._scores[question, text] for text in texts]
