"""A judge who knows the truth and sees it through noise: for trying things out without cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from rankproof.foundation.config import Settings, Share
from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest
from rankproof.golden.judges import QueryPool
from rankproof.golden.requests import Request
from rankproof.retrieval.chat import Answer, estimate_tokens
from rankproof.retrieval.components import part


class SimulatedJudgeSettings(Settings):
    """Sees the corpus' own judgements through Plackett–Luce noise; every export says so."""

    type: Literal["simulated"]
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3.0  # large: little noise
    wrong: Share = 0.0  # of the grades, one step off
    grades: dict[int, Annotated[int, Field(ge=1, le=5)]] | None = None  # grade in qrels → 1–5


@part("judge", "simulated")
class SimulatedJudge:
    """Grades from qrels, orders by β · utility + Gumbel noise (Plackett–Luce).

    A grade of the qrels becomes 1–5 as `grades` says, else 1 + 4·grade/(the highest); what is not
    judged is 1. The utility of a passage is its grade plus a fixed number in [0, 1), drawn from its
    ids, so that passages of a grade have a true order. The noise is drawn from the request alone.
    """

    simulated = True
    parallel = True

    def __init__(self, settings: SimulatedJudgeSettings, qrels: Path | None, seed: int = 0):
        if qrels is None:
            raise InputError(
                "a simulated judge needs judgements to know",
                remedy="name them under qrels, or use a folder that has qrels/test.tsv",
            )
        from rankproof.data import read_qrels

        self.name = "simulated"
        self.model = "simulated"
        self.parameters: dict[str, Any] = {
            "beta": settings.beta,
            "wrong": settings.wrong,
            "seed": seed,
        }
        frame = read_qrels(qrels).to_frame()
        given = set(frame["grade"].to_list())
        highest = max({1, *given})
        scale = settings.grades or {g: 1 + round(4 * g / highest) for g in given if g >= 0}
        unknown = sorted(given - set(scale))
        if unknown:
            raise InputError(
                f"grade {unknown[0]} of the qrels is not under judge.grades",
                place=str(qrels),
                remedy="say which of 1 to 5 it is",
            )
        self._grade = {(q, d): scale[g] for q, d, g in frame.iter_rows()}
        self._beta, self._wrong, self._seed = settings.beta, settings.wrong, seed

    def prepare(self, pools: Sequence[QueryPool]) -> None:
        """It knows everything already."""

    def ask(self, request: Request) -> Answer:
        generator = np.random.default_rng(_number(digest([self._seed, request.content])))
        grades = [self._grade.get((request.query, doc), 1) for doc in request.documents]
        if request.kind == "grade":
            off = generator.random(len(grades)) < self._wrong
            step = generator.choice([-1, 1], len(grades))
            seen = np.clip(np.array(grades) + off * step, 1, 5)
            text = json.dumps(dict(zip(request.labels, seen.tolist(), strict=True)))
        else:
            utility = [
                grade + _number(digest([request.query, doc])) / 2**64
                for grade, doc in zip(grades, request.documents, strict=True)
            ]
            heard = self._beta * np.array(utility) + generator.gumbel(size=len(grades))
            order = [request.labels[at] for at in np.argsort(-heard, kind="stable")]
            text = json.dumps({"order": order})
        tokens = estimate_tokens(request.system) + estimate_tokens(request.user)
        return Answer(text, tokens, estimate_tokens(text), 0.0, self.model, counted=False)

    def close(self) -> None:
        """Nothing is open."""


def _number(text: str) -> int:
    """64 bits of a text."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
