"""What a build would ask and cost, before anything is sent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from rankproof.golden.asking import cost, estimate_reply, estimate_request
from rankproof.golden.building import (
    grade_requests,
    price_of,
    read_pools,
    read_prompts,
    ungraded,
)
from rankproof.golden.pooling import Inputs, read_inputs
from rankproof.golden.requests import Prompt, Request, make_request
from rankproof.golden.settings import GoldenSettings, TokenPrice
from rankproof.golden.store import Kind, Store
from rankproof.retrieval.chat import estimate_tokens

_DRAWN = 200  # requests that stand for all of them


@dataclass(frozen=True, slots=True)
class Step:
    """One stage's calls to a model."""

    stage: str
    calls: int
    most: bool  # an upper bound: the stage may stop earlier
    tokens_in: int
    tokens_out: int
    cost: float | None  # US dollars; None where no price is known
    stored: int = 0  # calls that are answered already


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps, what they were estimated from, and where the prices are from."""

    steps: list[Step]
    queries: int
    basis: str
    prices: str

    @property
    def cost(self) -> float | None:
        costs = [step.cost for step in self.steps if step.calls]
        return None if any(c is None for c in costs) else sum(c for c in costs if c is not None)


def make_plan(settings: GoldenSettings, store: Store | None) -> Plan:
    """Calls, tokens and cost of each stage; nothing is sent and nothing is written."""
    inputs = read_inputs(settings)
    prompts = read_prompts(settings)
    price, whence = price_of(settings)
    asked = len(inputs.queries)
    steps = [_rewriting(settings, inputs)]
    pooled = store is not None and "merge" in store.meta("done", {})
    if store is not None and pooled:
        pools = read_pools(store, settings.passage_chars)
        requests = grade_requests(pools, settings, prompts["grade"])
        left = ungraded(store, pools, _numbered(store, settings, prompts["grade"].digest))
        open_ = grade_requests(left, settings, prompts["grade"])
        steps.append(_step("grade", open_, len(open_), price, len(requests) - len(open_)))
        basis = "grading from the pools in the store"
    else:
        size = settings.grading.batch
        per_query = -(-min(settings.depths.pool, len(inputs.corpus.documents)) // size)
        drawn = _drawn("grade", prompts["grade"], settings, inputs, size)
        steps.append(_step("grade", drawn, asked * per_query, price))
        basis = f"grading from {len(drawn)} requests with passages drawn from the corpus"
    drawn = _drawn("order", prompts["order"], settings, inputs, settings.ranking.batch)
    done = 0
    if store is not None:
        where = "kind = 'order' AND attempt = 1 AND retired = 0"
        done = store.rows(f"SELECT COUNT(*) FROM replies WHERE {where}")[0][0]
    most = max(0, asked * settings.ranking.budget - done)
    steps.append(_step("rank", drawn, most, price, done, most=True))
    basis += "; a token for every four bytes; replies that must be asked for twice not counted"
    return Plan(steps, asked, basis, whence)


def _numbered(store: Store, settings: GoldenSettings, prompt: str) -> int:
    """The judge's number, where it judged last under this prompt; 0: it has said nothing yet."""
    said = store.meta("judge") or {}
    named = getattr(settings.judge, "model", said.get("model"))
    same = said.get("model") == named and said.get("prompts", {}).get("grade") == prompt
    return int(said["numbers"]["grade"]) if same else 0


def _rewriting(settings: GoldenSettings, inputs: Inputs) -> Step:
    """A chat model that rewrites is asked once for each query; its price is not ours to know."""
    if settings.rewriter is None or settings.rewriter.type != "llm":
        return Step("rewrite", 0, False, 0, 0, 0.0)
    from rankproof.retrieval.rewriters.llm import prompt

    language = settings.rewriter.language
    name = settings.language if language == "auto" else language
    said = [sum(map(estimate_tokens, prompt(name, text))) for _, text in inputs.queries]
    texts = [estimate_tokens(text) for _, text in inputs.queries]
    return Step(*("rewrite", len(texts), False, sum(said), sum(texts), None))


def _step(
    stage: str,
    requests: Sequence[Request],
    calls: int,
    price: TokenPrice | None,
    stored: int = 0,
    most: bool = False,
) -> Step:
    """The mean of some requests, for so many calls."""
    share = calls / max(1, len(requests))
    tokens_in = round(share * sum(map(estimate_request, requests)))
    tokens_out = round(share * sum(map(estimate_reply, requests)))
    spent = cost(price, tokens_in, tokens_out)
    return Step(stage, calls, most, tokens_in, tokens_out, spent, stored)


def _drawn(
    kind: Kind, prompt: Prompt, settings: GoldenSettings, inputs: Inputs, size: int
) -> list[Request]:
    """Requests such as there will be, with passages drawn at random."""
    drawn = random.Random(settings.seed)
    passages = list(zip(inputs.corpus.document_ids, inputs.corpus.documents, strict=True))
    size = min(size, len(passages))
    return [
        make_request(
            *(kind, prompt, *drawn.choice(inputs.queries), drawn.sample(passages, size)),
            passage_chars=settings.passage_chars,
        )
        for _ in range(_DRAWN)
    ]
