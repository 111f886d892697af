"""Grade unjudged documents of runs one by one, with the judge of a golden set's configuration.

Each is a request of its own. What was answered before an interruption, or for other runs, comes
from the store, so that only new documents are paid for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rankproof.data.beir import Corpus, read_corpus
from rankproof.foundation.config import read_config
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import announce, progress
from rankproof.golden.annotators import Key
from rankproof.golden.building import judge_price
from rankproof.golden.judge_client import (
    JudgeClient,
    cost,
    estimate_reply_tokens,
    estimate_request_tokens,
)
from rankproof.golden.judges import QueryPool, make_judge
from rankproof.golden.requests import Request, make_request, read_prompt
from rankproof.golden.settings import GoldenSettings, TokenPrice
from rankproof.golden.store import Store
from rankproof.retrieval.chunks import SPAN
from rankproof.tradeoffs.plan import SweepSettings


@dataclass(frozen=True, slots=True)
class PairJudge:
    """Grades (query, document) pairs from 1 to 5; None where the judge gave no usable grade."""

    expected: str  # calls and cost of all pairs, in words
    at_once: int  # pairs that may be asked for in parallel
    ask: Callable[[Sequence[Key]], list[int | None]]
    unanswered: int  # pairs without a stored reply


@contextmanager
def pair_judge(
    settings: GoldenSettings, store: Path, corpus: Corpus, pairs: Sequence[Key]
) -> Iterator[PairJudge]:
    """Open the judge, prepared for these pairs; their texts are in the corpus."""
    requests = _make_requests(settings, corpus, pairs)
    price, price_source = judge_price(settings)
    limits = settings.limits
    with (
        closing(make_judge(settings, settings.human_labels)) as judge,
        Store(store, create=True) as opened,
        progress("judging (at most)", len(requests)),
    ):
        judge.prepare(
            [QueryPool(r.query, r.question, [*r.documents], [*r.texts]) for r in requests.values()]
        )
        client = JudgeClient(
            opened, judge, price=price, max_cost=limits.max_cost, concurrency=limits.concurrency
        )
        open_requests = [r for r in requests.values() if opened.reply(client.key(r)) is None]

        def ask(subset: Sequence[Key]) -> list[int | None]:
            replies = client.ask([requests[pair] for pair in subset])
            return [
                reply.result[doc] if isinstance(reply.result, dict) else None
                for (_, doc), reply in zip(subset, replies, strict=True)
            ]

        expected = _expected_cost(open_requests, len(requests), price)
        yield PairJudge(
            expected=f"{judge.name} judges at most {expected} ({price_source})",
            at_once=limits.concurrency if judge.parallel else 1,
            ask=ask,
            unanswered=len(open_requests),
        )


def _expected_cost(open_requests: Sequence[Request], total: int, price: TokenPrice | None) -> str:
    """Say how many documents are to be judged, of how many, and the highest cost."""
    tokens_in = sum(map(estimate_request_tokens, open_requests))
    tokens_out = sum(map(estimate_reply_tokens, open_requests))
    dollars = cost(price, tokens_in, tokens_out)
    expected = plural(len(open_requests), "document")
    if stored := total - len(open_requests):
        expected += f" ({plural(stored, 'more is', 'more are')} stored)"
    return f"{expected}; cost: {'not known' if dollars is None else f'at most ${dollars:.4f}'}"


def _make_requests(
    settings: GoldenSettings, corpus: Corpus, pairs: Sequence[Key]
) -> dict[Key, Request]:
    """A request for each pair; a document that is a span of another is cut out of it."""
    prompt = read_prompt("grade", settings.language, settings.prompts.grade)
    questions = dict(zip(corpus.query_ids, corpus.queries, strict=True))
    passages = dict(zip(corpus.document_ids, corpus.documents, strict=True))
    requests = {}
    for query, doc in pairs:
        if doc not in passages and (span := re.search(SPAN, doc)) is not None:
            whole = passages.get(doc[: span.start()])
            if whole is not None:
                passages[doc] = whole[int(span[1]) : int(span[2])]
        for kind, name, texts in (("query", query, questions), ("document", doc, passages)):
            if name not in texts:
                raise InputError(
                    f"{kind} {shorten(name)} is to be judged, and its text is not there",
                    place=corpus.label,
                    remedy="name the corpus and the queries that the runs were made from",
                )
        requests[query, doc] = make_request(
            "grade",
            prompt,
            query=query,
            question=questions[query],
            passages=[(doc, passages[doc])],
            passage_chars=settings.passage_chars,
        )
    return requests


def hole_grader(
    settings: SweepSettings, out: Path
) -> Callable[[Sequence[Key]], list[int | None]] | None:
    """A function that announces the cost of a sweep's unjudged documents, then grades them.

    None if the sweep leaves them unjudged.
    """
    if settings.judge is None:
        return None
    judge_settings = read_config(settings.judge, GoldenSettings)
    corpus = read_corpus(settings.corpus, settings.qrels)
    store = out / "work" / "holes.golden"

    def grade(pairs: Sequence[Key]) -> list[int | None]:
        with pair_judge(judge_settings, store, corpus, pairs) as judge:
            if judge.unanswered:
                announce(judge.expected)
            return judge.ask(pairs)

    return grade
