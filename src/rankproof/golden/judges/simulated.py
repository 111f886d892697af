"""A simulated judge: the corpus' own judgments with noise, for trying things out at no cost."""

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
    """Knows the corpus' own judgments, and adds noise; every export says so."""

    type: Literal["simulated"]
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3.0  # high: little noise
    wrong: Share = 0.0  # share of grades that are one step off
    grades: dict[int, Annotated[int, Field(ge=1, le=5)]] | None = None  # grade in qrels → 1–5


@part("judge", "simulated")
class SimulatedJudge:
    """Grades from qrels, orders by β · utility + Gumbel noise (Plackett–Luce).

    A grade of the qrels becomes 1–5 by the mapping `grades`, else as 1 + 4·grade/(highest grade);
    an unjudged passage has 1. A passage's utility is its grade plus a fixed number in [0, 1), a
    hash of its ids, so that passages of one grade have a true order, too. The noise depends on the
    request alone: the same request has the same reply.
    """

    simulated = True
    parallel = True

    def __init__(self, settings: SimulatedJudgeSettings, qrels: Path | None, seed: int = 0):
        """Read the judgments, and map their grades to 1–5."""
        if qrels is None:
            raise InputError(
                "a simulated judge needs judgments",
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
        qrels_grades = set(frame["grade"].to_list())
        highest = max({1, *qrels_grades})
        scale = settings.grades or {g: 1 + round(4 * g / highest) for g in qrels_grades if g >= 0}
        unmapped = sorted(qrels_grades - set(scale))
        if unmapped:
            raise InputError(
                f"grade {unmapped[0]} of the qrels is not under judge.grades",
                place=str(qrels),
                remedy="say which of 1 to 5 it is",
            )
        self._grade = {(q, d): scale[g] for q, d, g in frame.iter_rows()}
        self._beta, self._wrong, self._seed = settings.beta, settings.wrong, seed

    def prepare(self, pools: Sequence[QueryPool]) -> None:
        """Do nothing: the truth is known."""

    def ask(self, request: Request) -> Answer:
        """Answer with grades or an order, as a chat model would write them."""
        generator = np.random.default_rng(_hash_64(digest([self._seed, request.content])))
        grades = [self._grade.get((request.query, doc), 1) for doc in request.documents]
        if request.kind == "grade":
            is_wrong = generator.random(len(grades)) < self._wrong
            step = generator.choice([-1, 1], len(grades))
            noisy = np.clip(np.array(grades) + is_wrong * step, 1, 5)
            text = json.dumps(dict(zip(request.labels, noisy.tolist(), strict=True)))
        else:
            utility = [
                grade + _hash_64(digest([request.query, doc])) / 2**64
                for grade, doc in zip(grades, request.documents, strict=True)
            ]
            noisy = self._beta * np.array(utility) + generator.gumbel(size=len(grades))
            order = [request.labels[index] for index in np.argsort(-noisy, kind="stable")]
            text = json.dumps({"order": order})
        return Answer(
            text,
            tokens_in=estimate_tokens(request.system) + estimate_tokens(request.user),
            tokens_out=estimate_tokens(text),
            seconds=0.0,
            model=self.model,
            counted=False,
        )

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _hash_64(text: str) -> int:
    """Return a hash of a text, an integer of 64 bits."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
