"""What a build would ask and cost, before anything is sent.

Calls are counted from the pools in the store, or from the corpus where there are none yet; tokens
are estimated from sampled requests, or from the replies so far.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

from rankproof.foundation.phrasing import plural
from rankproof.golden.building import (
    grade_requests,
    judge_price,
    pool_digests,
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
from rankproof.golden.judgments import MAX_ATTEMPTS, Kind
from rankproof.golden.pooling import Inputs, read_inputs
from rankproof.golden.requests import Prompt, Request, make_request
from rankproof.golden.settings import GoldenSettings, TokenPrice
from rankproof.golden.store import Store
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.retrieval.chat import estimate_tokens

_SAMPLE_SIZE = 200  # requests from which tokens are estimated
_ASSUMPTIONS = (
    "; likely: as the replies so far, else a token for every four bytes; at worst: a token for "
    "every byte, the longest reply allowed, every one asked for twice; a batch that fails both "
    "times is asked in halves, which comes on top"
)


@dataclass(frozen=True, slots=True)
class Step:
    """The calls of one stage to one model."""

    stage: str
    calls: int
    is_upper_bound: bool = False  # the stage may end earlier
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float | None = None  # US dollars, likely; None if no price is known
    stored: int = 0  # calls that have a reply already
    worst: float | None = None  # US dollars at worst
    seconds: float | None = None  # likely, of a call; None before the first reply


@dataclass(frozen=True)
class Plan(Displayed):
    """Calls, tokens and cost of each stage, and what they were estimated from."""

    kind: ClassVar[str] = "dry run"

    steps: list[Step]
    queries: int
    basis: str
    prices: str
    passage_cost: float | None  # US dollars, likely, of grading a passage by itself
    extra_calls: int  # at most, if what fills the pools has changed
    concurrency: int = 1

    @property
    def cost(self) -> float | None:
        """Likely US dollars; None if a price is not known."""
        return _total([step.cost for step in self.steps if step.calls])

    @property
    def worst(self) -> float | None:
        """US dollars at worst; None if a price is not known."""
        return _total([step.worst for step in self.steps if step.calls])

    @property
    def minutes(self) -> float | None:
        """Likely duration; None before the first reply."""
        steps = [step for step in self.steps if step.calls]
        seconds = _total([None if s.seconds is None else s.calls * s.seconds for s in steps])
        return None if seconds is None else seconds / self.concurrency / 60

    def summary(self) -> Summary:
        total = "cost not known"
        if self.cost is not None and self.worst is not None:
            total = f"likely ${self.cost:.4f}, at worst ${self.worst:.4f}"
        if self.minutes is not None:
            total += f", about {max(self.minutes, 0.1):.1f} minutes"
        return Summary(f"{plural(self.queries, 'query')}; {total}. Nothing was sent.")

    def tables(self) -> list[Table]:
        columns = [Column("stage", "text"), *Column.each("calls", "tokens in", "tokens out")]
        columns += Column.each("likely $", "worst $", "stored")
        rows: list[tuple[Cell, ...]] = []
        for step in self.steps:
            calls = f"≤ {step.calls:,}" if step.is_upper_bound else f"{step.calls:,}"
            tokens = (f"{step.tokens_in:,}", f"{step.tokens_out:,}")
            rows.append((step.stage, calls, *tokens, step.cost, step.worst, step.stored))
        return [Table(columns, rows, notes=[f"estimated: {self.basis}", self.prices])]

    def figures(self) -> dict[str, float]:
        known = {"cost": self.cost, "worst": self.worst, "minutes": self.minutes}
        return {name: value for name, value in known.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """What `golden build --dry-run --format json` prints."""
        figures = ("tokens_in", "tokens_out", "cost", "worst", "seconds", "stored")
        stages = [
            {
                **plain_fields(s, "stage", "calls"),
                "at_most": s.is_upper_bound,
                **plain_fields(s, *figures),
            }
            for s in self.steps
        ]
        return {
            "queries": self.queries,
            "stages": stages,
            **plain_fields(self, "cost", "worst", "minutes", "basis", "prices"),
        }


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return None if len(known) < len(values) else sum(known)


def make_plan(settings: GoldenSettings, store: Store | None) -> Plan:
    """Plan all stages, for each judge of a panel; nothing is sent, and nothing is written."""
    planner = _Planner(settings, store)
    judge_plans = [planner.plan_judge(name, judge) for name, judge in planner.panel.items()]
    steps = [planner.rewriting()]
    steps += [judge_plan.grading for judge_plan in judge_plans]
    steps += [judge_plan.ordering for judge_plan in judge_plans]
    return Plan(
        steps=steps,
        queries=len(planner.inputs.queries),
        basis=planner.basis() + _ASSUMPTIONS,
        prices="; ".join(dict.fromkeys(judge_plan.price_source for judge_plan in judge_plans)),
        passage_cost=_total([judge_plan.passage_cost for judge_plan in judge_plans]),
        extra_calls=sum(judge_plan.extra_calls for judge_plan in judge_plans),
        concurrency=settings.limits.concurrency,
    )


@dataclass(frozen=True, slots=True)
class _JudgePlan:
    """What one judge will be asked."""

    grading: Step
    ordering: Step
    price_source: str
    passage_cost: float | None
    extra_calls: int


class _Usage(NamedTuple):
    """Mean tokens for each passage, and seconds of a call."""

    tokens_in: float
    tokens_out: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Judge:
    """A judge with its price and the store that may hold replies of it."""

    name: str  # in a panel; "" for the only judge
    settings: Any
    price: TokenPrice | None
    store: Store | None

    def stage(self, stage: str) -> str:
        return f"{stage} {self.name}".strip()

    def id(self, kind: Kind, prompt: str) -> int:
        """The judge's id under a prompt; 0 if it has answered nothing.

        A chat model is known by its settings, any other judge if it was the last to judge.
        """
        if self.store is None:
            return 0
        if isinstance(self.settings, LlmJudgeSettings):
            parameters = {"temperature": self.settings.temperature}
            decisive = [kind, prompt, self.settings.model, parameters]
            for judge_id, identity in self.store.judge_identities().items():
                names = ("kind", "prompt", "model", "parameters")
                if [identity[name] for name in names] == decisive:
                    return judge_id
            return 0
        last = self.store.meta("judge") or {}
        if last.get("prompts", {}).get(kind) == prompt:
            for member in self.store.panel_members():
                if self.name in ("", member["name"]):
                    return int(member["numbers"][kind])
        return 0

    def mean_usage(self, kind: Kind) -> _Usage | None:
        """What the judge's calls took so far; None before its first reply."""
        if self.store is None:
            return None
        model = getattr(self.settings, "model", None)
        ((count, *means),) = self.store.rows(
            "SELECT COUNT(*), SUM(tokens_in) * 1.0 / SUM(json_array_length(documents)), "
            "SUM(tokens_out) * 1.0 / SUM(json_array_length(documents)), AVG(seconds) "
            "FROM replies JOIN judges ON judges.id = replies.judge "
            "WHERE kind = ? AND counted AND tokens_in > 0 AND (? IS NULL OR said ->> 'model' = ?)",
            (kind, model, model),
        )
        return _Usage(*means) if count else None

    def step(self, stage: str, kind: Kind, requests: Sequence[Request], calls: int) -> Step:
        """Estimate so many calls from sampled requests.

        What a call took so far for each passage is a better guess than its bytes. At worst, every
        byte is a token, a reply as long as allowed, and every request is asked twice.
        """
        share = calls / max(1, len(requests))
        tokens_in: float = sum(map(estimate_request_tokens, requests))
        tokens_out: float = sum(map(estimate_reply_tokens, requests))
        seconds = None
        if usage := self.mean_usage(kind):
            passages = sum(len(request.labels) for request in requests)
            tokens_in, tokens_out = passages * usage.tokens_in, passages * usage.tokens_out
            seconds = usage.seconds
        likely_in, likely_out = round(share * tokens_in), round(share * tokens_out)
        max_reply = getattr(self.settings, "max_tokens", None)
        replies = [max_reply or estimate_reply_tokens(request) for request in requests]
        worst = cost(self.price, sum(map(max_request_tokens, requests)), sum(replies))
        return Step(
            self.stage(stage),
            calls,
            tokens_in=likely_in,
            tokens_out=likely_out,
            cost=cost(self.price, likely_in, likely_out),
            worst=None if worst is None else MAX_ATTEMPTS * share * worst,
            seconds=seconds,
        )


class _Planner:
    """Estimates the calls of each judge from the inputs and pools that all judges share."""

    def __init__(self, settings: GoldenSettings, store: Store | None):
        """Find out which queries and pools a store holds already."""
        sql = "SELECT query, text FROM queries ORDER BY position"
        stored_queries = [] if store is None else store.rows(sql)
        done_stages = {} if store is None else store.meta("done", {})
        self.settings, self.store = settings, store
        self.panel = members(settings.judge)
        self.inputs: Inputs = read_inputs(settings, [query for query, _ in stored_queries])
        self.prompts = read_prompts(settings)
        self.is_pooled = "merge" in done_stages
        new_queries = set(self.inputs.queries)
        self.same_pools = False
        if self.is_pooled:
            new_queries -= set(stored_queries)
            # Pools of the same queries by the same lists stay; of others only the build can tell.
            stored_digests = pool_digests(settings, self.inputs, stored_queries)
            self.same_pools = stored_digests["merge"] == done_stages["merge"]
        self.new_queries = len(new_queries) if self.is_pooled else len(self.inputs.queries)

    def basis(self) -> str:
        """Say what the calls for grading were counted from."""
        if not self.is_pooled:
            return f"grading from {_SAMPLE_SIZE} requests with passages drawn from the corpus"
        basis = "grading from the pools in the store"
        if self.new_queries:
            basis += f" and {plural(self.new_queries, 'new query')}"
        if not self.same_pools:
            basis += "; what fills the pools has changed: passages that are new in them come on top"
        return basis

    def rewriting(self) -> Step:
        """The calls of a chat model that rewrites each query; its price is not known."""
        rewriter = self.settings.rewriter
        if rewriter is None or rewriter.type != "llm":
            return Step("rewrite", 0, cost=0.0)
        from rankproof.retrieval.rewriters.llm import prompt

        language = rewriter.language
        if language == "auto":
            language = self.settings.language
        texts = [text for _, text in self.inputs.queries]
        tokens_in = sum(sum(map(estimate_tokens, prompt(language, text))) for text in texts)
        tokens_out = sum(map(estimate_tokens, texts))
        return Step("rewrite", len(texts), tokens_in=tokens_in, tokens_out=tokens_out)

    def plan_judge(self, name: str, judge_settings: Any) -> _JudgePlan:
        """Plan the grading and ordering of one judge."""
        settings = self.settings.model_copy(update={"judge": judge_settings})
        price, source = judge_price(settings)
        judge = _Judge(name, judge_settings, price, self.store)
        # Without the store, because replies to whole batches say little about single passages.
        single = replace(judge, store=None).step("grade", "grade", self._sampled("grade", 1), 1)
        grading, extra_calls = self._grading(judge)
        return _JudgePlan(
            grading=grading,
            ordering=self._ordering(judge),
            price_source=f"{name}: {source}" if name else source,
            passage_cost=single.cost,
            extra_calls=extra_calls,
        )

    def _grading(self, judge: _Judge) -> tuple[Step, int]:
        """The likely calls for grades, and how many more there may be at most."""
        settings, prompt = self.settings, self.prompts["grade"]
        size = settings.grading.batch
        pool_size = min(settings.depths.pool, len(self.inputs.corpus.documents))
        calls_per_query = -(-pool_size // size)
        sampled = self._sampled("grade", size)
        max_calls = len(self.inputs.queries) * calls_per_query
        if self.store is None or not self.is_pooled:
            return judge.step("grade", "grade", sampled, max_calls), 0
        queries = set(self.inputs.queries)
        pools = read_pools(self.store, settings.passage_chars)
        pools = [pool for pool in pools if (pool.query, pool.question) in queries]
        open_pools = ungraded(self.store, pools, judge.id("grade", prompt.digest))
        open_requests = grade_requests(open_pools, settings, prompt)
        stored = len(grade_requests(pools, settings, prompt)) - len(open_requests)
        calls = len(open_requests) + self.new_queries * calls_per_query
        if self.same_pools:
            max_calls = calls
        shown = open_requests
        if self.new_queries or not open_requests:
            shown = [*open_requests, *sampled]
        step = judge.step("grade", "grade", shown, calls)
        worst = judge.step("grade", "grade", shown, max_calls).worst
        return replace(step, stored=stored, worst=worst), max(0, max_calls - calls)

    def _ordering(self, judge: _Judge) -> Step:
        """The calls for orders at most."""
        settings = self.settings
        stored = 0
        if self.store is not None:
            stored = self.store.number(
                "SELECT COUNT(*) FROM replies "
                "WHERE kind = 'order' AND attempt = 1 AND retired = 0 AND judge = ?",
                (judge.id("order", self.prompts["order"].digest),),
            )
        budget = -(-settings.ranking.budget // len(self.panel))
        calls = max(0, len(self.inputs.queries) * budget - stored)
        sampled = self._sampled("order", settings.ranking.batch)
        step = judge.step("rank", "order", sampled, calls)
        return replace(step, is_upper_bound=True, stored=stored)

    def _sampled(self, kind: Kind, size: int) -> list[Request]:
        """Requests like those to come, with passages drawn at random from the corpus."""
        generator = random.Random(self.settings.seed)
        corpus = self.inputs.corpus
        passages = list(zip(corpus.document_ids, corpus.documents, strict=True))
        size = min(size, len(passages))
        prompt: Prompt = self.prompts[kind]
        requests = []
        for _ in range(_SAMPLE_SIZE):
            query, question = generator.choice(self.inputs.queries)
            batch = generator.sample(passages, size)
            request = make_request(
                kind,
                prompt,
                query=query,
                question=question,
                passages=batch,
                passage_chars=self.settings.passage_chars,
            )
            requests.append(request)
        return requests
