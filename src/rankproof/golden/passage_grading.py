"""Single passages graded by the judge of a golden set's configuration: what fills holes.

A passage is a request of its own, known by what the judge is shown. So whoever asks again, after a
stop, for other runs or for a larger grid, finds what was answered in the store and pays for the
rest alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rankproof.data.beir import Corpus, read_corpus
from rankproof.foundation.config import read_config
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import announce, open_task
from rankproof.golden.building import Progress, price_of
from rankproof.golden.judge_client import (
    JudgeClient,
    cost,
    estimate_reply_tokens,
    estimate_request_tokens,
)
from rankproof.golden.judges import QueryPool, make_judge
from rankproof.golden.requests import Request, make_request, read_prompt
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store
from rankproof.retrieval.chunks import SPAN
from rankproof.retrieval.workshop import silent
from rankproof.tradeoffs.plan import SweepSettings

Pairs = Sequence[tuple[str, str]]  # query and document


@dataclass(frozen=True, slots=True)
class PairJudge:
    """(query, document) pairs → grades 1–5; None where the judge gave none that can be used."""

    expected: str  # what it takes to judge all, in words
    at_once: int  # pairs that are worth asking together
    ask: Callable[[Pairs], list[int | None]]
    left: int  # pairs that no reply is stored for


@contextmanager
def pair_judge(
    settings: GoldenSettings, store: Path, corpus: Corpus, pairs: Pairs, progress: Progress = silent
) -> Iterator[PairJudge]:
    """The judge, ready for these pairs, whose texts are in the corpus."""
    requests = _requests(settings, corpus, pairs)
    price, whence = price_of(settings)
    shipped = settings.corpus / "qrels" / "test.tsv"  # what a simulated judge knows
    judge = make_judge(settings, settings.qrels or (shipped if shipped.is_file() else None))
    try:
        bar = progress("judging (at most)", len(requests))
        with Store(store, create=True) as opened, bar as told:
            judge.prepare(
                [
                    QueryPool(r.query, r.question, [*r.documents], [*r.texts])
                    for r in requests.values()
                ]
            )
            limits = settings.limits
            asker = JudgeClient(
                *(opened, judge),
                price=price,
                max_cost=limits.max_cost,
                concurrency=limits.concurrency,
                progress=told,
            )
            open_ = [r for r in requests.values() if opened.reply(asker.key(r)) is None]
            spent = cost(
                price,
                sum(map(estimate_request_tokens, open_)),
                sum(map(estimate_reply_tokens, open_)),
            )
            said = "not known" if spent is None else f"at most ${spent:.4f}"
            stored = len(requests) - len(open_)
            expected = (
                f"{judge.name} judges at most {plural(len(open_), 'document')}"
                + (f" ({plural(stored, 'more is', 'more are')} stored)" if stored else "")
                + f"; cost: {said} ({whence})"
            )

            def ask(some: Pairs) -> list[int | None]:
                replies = asker.ask([requests[pair] for pair in some])
                return [
                    reply.result[doc] if isinstance(reply.result, dict) else None
                    for (_, doc), reply in zip(some, replies, strict=True)
                ]

            at_once = limits.concurrency if judge.parallel else 1
            yield PairJudge(expected, at_once, ask, len(open_))
    finally:
        judge.close()


def _requests(
    settings: GoldenSettings, corpus: Corpus, pairs: Pairs
) -> dict[tuple[str, str], Request]:
    """What the judge is shown of each pair."""
    prompt = read_prompt("grade", settings.language, settings.prompts.grade)
    questions = dict(zip(corpus.query_ids, corpus.queries, strict=True))
    passages = dict(zip(corpus.document_ids, corpus.documents, strict=True))
    found = {}
    for query, doc in pairs:
        if doc not in passages and (span := re.search(SPAN, doc)) is not None:
            whole = passages.get(doc[: span.start()])  # a chunk of a document
            if whole is not None:
                passages[doc] = whole[int(span[1]) : int(span[2])]
        for what, name, texts in (("query", query, questions), ("document", doc, passages)):
            if name not in texts:
                raise InputError(
                    f"{what} {shorten(name)} is to be judged, and its text is not there",
                    place=corpus.label,
                    remedy="name the corpus and the queries that the runs were made from",
                )
        found[query, doc] = make_request(
            *("grade", prompt, query, questions[query], [(doc, passages[doc])]),
            passage_chars=settings.passage_chars,
        )
    return found


def hole_grader(settings: SweepSettings, out: Path) -> Callable[[Pairs], list[int | None]] | None:
    """Return who grades the unjudged passages of a sweep; None where the sweep leaves them.

    The cost is announced before anything is sent, when the passages are known.
    """
    if settings.judge is None:
        return None
    who = read_config(settings.judge, GoldenSettings)
    corpus = read_corpus(settings.corpus, settings.qrels)
    kept = out / "work" / "holes.golden"

    def judge(asked: Pairs) -> list[int | None]:
        with pair_judge(who, kept, corpus, asked, open_task) as ready:
            if ready.left:
                announce(ready.expected)
            return ready.ask(asked)

    return judge
