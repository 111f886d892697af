"""What a build would ask and cost, before anything is sent."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankproof.foundation.phrasing import plural
from rankproof.golden.building import (
    grade_requests,
    pool_digests,
    price_of,
    read_pools,
    read_prompts,
    ungraded,
)
from rankproof.golden.judge_client import (
    cost,
    estimate_reply_tokens,
    estimate_request_tokens,
    max_request_tokens,
)
from rankproof.golden.judges import members
from rankproof.golden.judges.llm import LlmJudgeSettings
from rankproof.golden.judgments import ATTEMPTS, Kind
from rankproof.golden.pooling import Inputs, read_inputs
from rankproof.golden.requests import Prompt, Request, make_request
from rankproof.golden.settings import GoldenSettings, TokenPrice
from rankproof.golden.store import Store
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
    cost: float | None  # US dollars, likely; None where no price is known
    stored: int = 0  # calls that are answered already
    worst: float | None = None  # US dollars: see `_step`
    seconds: float | None = None  # likely, of a call; None before the first reply


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps, what they were estimated from, and where the prices are from."""

    steps: list[Step]
    queries: int
    basis: str
    prices: str
    passage: float | None  # US dollars, likely, of a passage that is asked for by itself
    more: int  # calls at most that come on top, where what fills the pools has changed

    @property
    def cost(self) -> float | None:
        return _total([step.cost for step in self.steps if step.calls])

    @property
    def worst(self) -> float | None:
        return _total([step.worst for step in self.steps if step.calls])

    def minutes(self, concurrency: int) -> float | None:
        """How long it is likely to take."""
        calls = [step for step in self.steps if step.calls]
        found = _total([None if s.seconds is None else s.calls * s.seconds for s in calls])
        return None if found is None else found / concurrency / 60


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return None if len(known) < len(values) else sum(known)


def make_plan(settings: GoldenSettings, store: Store | None) -> Plan:
    """Calls, tokens and cost of each stage, and of each judge of a panel; nothing is sent and
    nothing is written."""
    there = [] if store is None else store.rows("SELECT query, text FROM queries ORDER BY position")
    inputs = read_inputs(settings, [query for query, _ in there])
    prompts = read_prompts(settings, store)
    asked = len(inputs.queries)
    steps = [_rewriting(settings, inputs)]
    done = {} if store is None else store.meta("done", {})
    pooled = store is not None and "merge" in done
    # Pools of the same queries by the same lists stay; of others only the build can tell.
    same = pooled and pool_digests(settings, inputs, there)["merge"] == done["merge"]
    new = len(set(inputs.queries) - set(there)) if pooled else asked
    size = settings.grading.batch
    each = -(-min(settings.depths.pool, len(inputs.corpus.documents)) // size)
    panel = members(settings.judge)
    orders: list[Step] = []
    prices: list[str] = []
    alone_in_a_call: list[float | None] = []
    more = 0
    for name, judge in panel.items():
        alone = settings.model_copy(update={"judge": judge})
        price, whence = price_of(alone)
        prices.append(f"{name}: {whence}" if name else whence)
        stage = f"grade {name}".strip()
        single = _drawn("grade", prompts["grade"], settings, inputs, 1)
        alone_in_a_call.append(_step(stage, "grade", single, 1, alone, price, None).cost)
        drawn = _drawn("grade", prompts["grade"], settings, inputs, size)
        if store is not None and pooled:
            pools = read_pools(store, settings.passage_chars)
            pools = [pool for pool in pools if (pool.query, pool.question) in set(inputs.queries)]
            requests = grade_requests(pools, settings, prompts["grade"])
            who = _numbered(store, judge, name, "grade", prompts["grade"].digest)
            open_ = grade_requests(ungraded(store, pools, who), settings, prompts["grade"])
            stored = len(requests) - len(open_)
            likely = len(open_) + new * each
            most = likely if same else asked * each
            more += max(0, most - likely)
            shown = open_ if open_ and not new else [*open_, *drawn]
            step = _step(stage, "grade", shown, likely, alone, price, store, stored)
            worst = _step(stage, "grade", shown, most, alone, price, store).worst
            steps.append(replace(step, worst=worst))
        else:
            steps.append(_step(stage, "grade", drawn, asked * each, alone, price, store))
        drawn = _drawn("order", prompts["order"], settings, inputs, settings.ranking.batch)
        spent = 0
        if store is not None:
            who = _numbered(store, judge, name, "order", prompts["order"].digest)
            where = "kind = 'order' AND attempt = 1 AND retired = 0 AND judge = ?"
            spent = store.rows(f"SELECT COUNT(*) FROM replies WHERE {where}", (who,))[0][0]
        most = max(0, asked * -(-settings.ranking.budget // len(panel)) - spent)
        stage = f"rank {name}".strip()
        orders.append(_step(stage, "order", drawn, most, alone, price, store, spent, most=True))
    basis = f"grading from {_DRAWN} requests with passages drawn from the corpus"
    if pooled:
        basis = "grading from the pools in the store"
        basis += f" and {plural(new, 'new query')}" if new else ""
        if not same:
            basis += "; what fills the pools has changed: passages that are new in them come on top"
    basis += (
        "; likely: as the replies so far, else a token for every four bytes; at worst: a token for "
        "every byte, the longest reply allowed, every one asked for twice; a batch that fails both "
        "times is asked in halves, which comes on top"
    )
    said = "; ".join(dict.fromkeys(prices))
    return Plan([*steps, *orders], asked, basis, said, _total(alone_in_a_call), more)


def _numbered(store: Store, judge: Any, name: str, kind: Kind, prompt: str) -> int:
    """The judge's number under a prompt; 0: it has said nothing yet.

    A chat model's settings say all that decides its word. Another is known where it judged last.
    """
    if isinstance(judge, LlmJudgeSettings):
        wanted = [kind, prompt, judge.model, {"temperature": judge.temperature}]
        for number, text in store.rows("SELECT id, said FROM judges"):
            held = json.loads(text)
            if [held[name] for name in ("kind", "prompt", "model", "parameters")] == wanted:
                return int(number)
        return 0
    last = store.meta("judge") or {}
    for held in last.get("members") or [last]:
        if last.get("prompts", {}).get(kind) == prompt and name in ("", held["name"]):
            return int(held["numbers"][kind])
    return 0


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
    kind: Kind,
    requests: Sequence[Request],
    calls: int,
    settings: GoldenSettings,
    price: TokenPrice | None,
    store: Store | None,
    stored: int = 0,
    most: bool = False,
) -> Step:
    """The mean of some requests, for so many calls.

    What a call has taken so far for each passage is likelier than a guess from its bytes. At worst
    every byte is a token, a reply as long as it may be, and every one is asked for twice.
    """
    share = calls / max(1, len(requests))
    tokens_in: float = sum(map(estimate_request_tokens, requests))
    tokens_out: float = sum(map(estimate_reply_tokens, requests))
    seconds = None
    told = [] if store is None else _taken(store, kind, settings)
    if told:
        passages = sum(len(request.labels) for request in requests)
        tokens_in, tokens_out, seconds = passages * told[0], passages * told[1], told[2]
    tokens_in, tokens_out = round(share * tokens_in), round(share * tokens_out)
    longest = getattr(settings.judge, "max_tokens", None)
    replies = [longest or estimate_reply_tokens(request) for request in requests]
    worst = cost(price, sum(map(max_request_tokens, requests)), sum(replies))
    worst = None if worst is None else ATTEMPTS * share * worst
    spent = cost(price, int(tokens_in), int(tokens_out))
    return Step(stage, calls, most, int(tokens_in), int(tokens_out), spent, stored, worst, seconds)


def _taken(store: Store, kind: str, settings: GoldenSettings) -> list[float]:
    """Tokens in and out for each passage, and seconds of a call, of the replies so far."""
    named = getattr(settings.judge, "model", None)
    ((count, *figures),) = store.rows(
        "SELECT COUNT(*), SUM(tokens_in) * 1.0 / SUM(json_array_length(documents)), "
        "SUM(tokens_out) * 1.0 / SUM(json_array_length(documents)), AVG(seconds) "
        "FROM replies JOIN judges ON judges.id = replies.judge "
        "WHERE kind = ? AND counted AND tokens_in > 0 AND (? IS NULL OR said ->> 'model' = ?)",
        (kind, named, named),
    )
    return figures if count else []


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
