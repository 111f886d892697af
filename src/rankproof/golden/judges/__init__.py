"""Judges: the interface, and one file for each implementation, chosen by `type` in a configuration.

A chat model, a recording, a simulation and a reranker all answer a request with text, so that every
judge's replies are stored, parsed and counted in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rankproof.golden.judges.panel import PanelSettings
from rankproof.golden.judgments import Kind
from rankproof.golden.requests import Request
from rankproof.golden.settings import GoldenSettings
from rankproof.retrieval.chat import Answer
from rankproof.retrieval.components import make_component


@dataclass(frozen=True, slots=True)
class QueryPool:
    """A query and the passages that will be graded for it."""

    query: str
    question: str
    documents: list[str]
    texts: list[str]

    def passages(self) -> Iterator[tuple[str, str]]:
        """Each document with its text."""
        return zip(self.documents, self.texts, strict=True)


class Judge(Protocol):
    """Answers requests with text; `model` and `parameters` hold all that decides its replies."""

    @property
    def name(self) -> str:
        """The name that people read."""

    @property
    def model(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]: ...

    @property
    def simulated(self) -> bool:
        """True if it knows the truth beforehand: its golden sets are not evidence."""

    @property
    def parallel(self) -> bool:
        """True if several threads may ask it at the same time."""

    def prepare(self, pools: Sequence[QueryPool]) -> None:
        """Read every pool that will be graded, before the first request."""

    def ask(self, request: Request) -> Answer: ...

    def close(self) -> None: ...


@runtime_checkable
class Waiting(Protocol):
    """A judge that pauses between attempts, perhaps for long, because its server is busy."""

    def stop(self) -> None:
        """End the pauses; requests that were sent are still answered."""


def make_judge(settings: GoldenSettings, qrels: Path | None = None, chosen: Any = None) -> Judge:
    """Make the configured judge, or the judge with the settings `chosen`, one of a panel.

    `qrels` are the judgments that a simulated judge knows.
    """
    chosen = settings.judge if chosen is None else chosen
    judge: Judge = make_component(
        "judge", chosen, limits=settings.limits, qrels=qrels, seed=settings.seed
    )
    return judge


def members(chosen: Any) -> dict[str, Any]:
    """Settings of each judge of a panel by name; of a single judge under the name ""."""
    return chosen.judges if isinstance(chosen, PanelSettings) else {"": chosen}


def judge_identity(judge: Judge, kind: Kind, prompt: str) -> dict[str, Any]:
    """Return all that decides a judge's replies but the texts that it is shown, and its name.

    `prompt` is the digest of a prompt.
    """
    return {
        "kind": kind,
        "prompt": prompt,
        "model": judge.model,
        "parameters": judge.parameters,
        "simulated": judge.simulated,
        "name": judge.name,
    }
