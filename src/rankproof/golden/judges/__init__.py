"""Who judges: a small Protocol, one file per implementation, chosen by `type` in a configuration.

A judge answers a request with text, whatever it is: a chat model, a recording, a simulation, a
reranker. So every judge's replies are stored, parsed and counted in one way.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class Judge(Protocol):
    """Requests → text. What decides its replies is in `model` and `parameters`."""

    @property
    def name(self) -> str:
        """For people: who judged."""

    @property
    def model(self) -> str: ...

    @property
    def parameters(self) -> dict[str, Any]: ...

    @property
    def simulated(self) -> bool:
        """Whether it knows the truth beforehand: such a golden set is no evidence."""

    @property
    def parallel(self) -> bool:
        """Whether threads may ask it at the same time."""

    def prepare(self, pools: Sequence[QueryPool]) -> None:
        """Look at everything that will be graded, before anything is."""

    def ask(self, request: Request) -> Answer: ...

    def close(self) -> None: ...


@runtime_checkable
class Waiting(Protocol):
    """A judge that may wait long before it asks again."""

    def stop(self) -> None:
        """Wait no longer; what is sent already is still answered."""


def make_judge(settings: GoldenSettings, qrels: Path | None = None, chosen: Any = None) -> Judge:
    """The judge that a configuration describes, or one `chosen` of its panel; `qrels` is what a
    simulated one knows."""
    chosen = settings.judge if chosen is None else chosen
    found: Judge = make_component(
        "judge", chosen, limits=settings.limits, qrels=qrels, seed=settings.seed
    )
    return found


def members(chosen: Any) -> dict[str, Any]:
    """Who judges: one, under no name, or a panel's by theirs."""
    return chosen.judges if isinstance(chosen, PanelSettings) else {"": chosen}


def judge_identity(judge: Judge, kind: Kind, prompt: str) -> dict[str, Any]:
    """What decides a judge's word, beside the texts that it is shown; and its name."""
    return {
        "kind": kind,
        "prompt": prompt,
        "model": judge.model,
        "parameters": judge.parameters,
        "simulated": judge.simulated,
        "name": judge.name,
    }
