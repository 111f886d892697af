"""A golden set, stage by stage. Each stage can run alone, once those before it are done.

    rewrite ─▶ retrieve ─▶ merge ─▶ grade ─▶ prune ─▶ rank

A stage that was done with the same settings is passed over; one whose settings changed is done
again, with the judge's replies taken from the store. What would make it another golden set (the
corpus, the queries, the judge, the seed) is refused.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rankproof.errors import InputError, shorten
from rankproof.golden.asking import Asker
from rankproof.golden.judges import Judge, QueryPool, make_judge
from rankproof.golden.judges.llm import LlmJudgeSettings
from rankproof.golden.judges.scorer import ScorerJudgeSettings
from rankproof.golden.pooling import Inputs, merge, read_inputs, retrieve, rewrite
from rankproof.golden.pruning import prune
from rankproof.golden.requests import Prompt, Request, make_request, read_prompt
from rankproof.golden.settings import GoldenSettings, TokenPrice
from rankproof.golden.store import Kind, Reply, Row, Store, cut
from rankproof.manifest import digest
from rankproof.redaction import redact
from rankproof.retrieval.identity import decides, identity
from rankproof.retrieval.parts import JudgeChoice, describe

Stage = Literal["rewrite", "retrieve", "merge", "grade", "prune", "rank"]
STAGES: tuple[Stage, ...] = get_args(Stage)
Progress = Callable[[str, float], Any]
"""(label, total) → a context manager that yields a function to be told of work done."""

# What a stage's result depends on, beside the stages before it.
_PARTS: dict[Stage, tuple[str, ...]] = {
    "rewrite": ("rewriter",),
    "retrieve": ("embedder", "index", "bm25", "retrievers", "depths"),
    "merge": (),
    "grade": ("judge", "grading", "passage_chars", "language"),
    "prune": ("pruning",),
    "rank": ("ranking",),
}


# What makes a golden set this one, beside its judge and its inputs.
_LASTING = ("only_judged", "sample", "seed", "language", "passage_chars")


@contextmanager
def silent(label: str, total: float) -> Iterator[Callable[[float], None]]:
    yield lambda done: None


@dataclass(slots=True)
class Build:
    """A configuration at work on its store."""

    settings: GoldenSettings
    store: Store
    progress: Progress = silent
    judge: Judge | None = None
    inputs: Inputs = field(init=False)
    prompts: dict[Kind, Prompt] = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = read_inputs(self.settings)
        self.prompts = read_prompts(self.settings)
        self._adopt()

    def run(self, only: Stage | None = None) -> list[Stage]:
        """Every stage that is not done, or one alone; those that ran."""
        ran: list[Stage] = []
        wanted = self.digests()
        for stage in STAGES:
            done = self.store.meta("done", {})
            if only is not None and stage != only:
                if STAGES.index(stage) < STAGES.index(only) and done.get(stage) != wanted[stage]:
                    raise InputError(
                        f"{only} needs {stage}, which is not done with these settings",
                        place=str(self.store.path),
                        remedy=f"run --stage {stage} first, or all of them",
                    )
                continue
            if done.get(stage) == wanted[stage] and stage != only:
                continue
            kept = self._reopen(stage)
            self._run(stage)
            self.store.set_meta("done", kept | {stage: wanted[stage]})
            ran.append(stage)
        if not ran:  # what may be spent, and where things are, may still have changed
            self._keep()
        return ran

    def retry_failed(self) -> int:
        """Have `run` ask again what could not be used in the end; how many requests that is."""
        if not self.store.failed_requests():
            return 0
        self._reopen("grade")  # first: were we killed here, the replies would only be read again
        return self.store.retire_failed()

    def _reopen(self, stage: Stage) -> dict[str, str]:
        """A stage, and all that rests on it, is not done; the stages that stay so.

        The configuration that the store shows is the one of what is in it.
        """
        done = self.store.meta("done", {})
        kept = {s: d for s, d in done.items() if STAGES.index(s) < STAGES.index(stage)}
        with self.store.transaction():
            self.store.set_meta("done", kept)
            for table in ("orders", "ranking", "refined"):
                self.store.replace(table, [])  # an order of other passages is no order of these
            self._keep()
        return kept

    def _keep(self) -> None:
        self.store.set_meta("config", self.settings.model_dump(mode="json"))
        self.store.set_meta("judged by", self._who())

    def digests(self) -> dict[Stage, str]:
        """What each stage's result rests on: its own settings, and all that came before."""
        before: Any = [self.inputs.digests, self.settings.seed, self.inputs.queries]
        found: dict[Stage, str] = {}
        for stage in STAGES:
            parts = {name: decides(getattr(self.settings, name)) for name in _PARTS[stage]}
            if "judge" in parts:
                parts["judge"] = self._who()
            if stage in ("grade", "rank"):
                parts["prompt"] = self.prompts["grade" if stage == "grade" else "order"].digest
            before = found[stage] = digest([before, stage, parts])
        return found

    def _adopt(self) -> None:
        """Take the store for this configuration, or refuse it."""
        chosen = self.settings.model_dump(mode="json")
        held = self.store.meta("config")
        if held is not None:
            mine = {name: chosen.get(name) for name in _LASTING}
            theirs = {name: held.get(name) for name in _LASTING}
            mine["inputs"], theirs["inputs"] = self.inputs.digests, self.store.meta("inputs")
            who, was = self._who(), self._who_was(held["judge"])
            mine["judge"], theirs["judge"] = redact(who), redact(was)  # as the store holds it
            other = next((name for name in mine if mine[name] != theirs.get(name)), None)
            if other is not None:
                was, now = theirs.get(other), mine[other]
                raise InputError(
                    f"holds a golden set with another {other}: {shorten(was)}, not {shorten(now)}",
                    place=str(self.store.path),
                    remedy="name another store",
                )
        else:
            with self.store.transaction():
                self._keep()
                self.store.set_meta("inputs", self.inputs.digests)

    def _who(self) -> Any:
        """What tells the judge from others: what it says of itself, where it was handed in."""
        return _comparable(identity(self.judge or self.settings.judge))

    def _who_was(self, held: Any) -> Any:
        """The judge of a store; of one that does not say, the judge that its settings describe."""
        said = self.store.meta("judged by")
        if said is None:
            try:
                said = identity(TypeAdapter(JudgeChoice).validate_python(held))
            except (InputError, ValidationError):
                return held
        return _comparable(said)

    # --------------------------------------------------------------------------------- stages

    def _run(self, stage: Stage) -> None:
        store, settings, inputs = self.store, self.settings, self.inputs
        if stage == "rewrite":
            with self.progress("rewriting", len(inputs.queries)) as told:
                rewrite(store, settings, inputs, told)
        elif stage == "retrieve":
            total = len(inputs.corpus.documents) + len(inputs.queries)
            with self.progress("retrieving", total) as told:
                retrieve(store, settings, inputs, told)
        elif stage == "merge":
            merge(store, settings)
        elif stage == "grade":
            self._grade()
        elif stage == "prune":
            self._prune()
        else:
            self._rank()

    def _grade(self) -> None:
        requests = grade_requests(self.pools(), self.settings, self.prompts["grade"])
        with self.asker("grading", len(requests)) as asker:
            replies = asker.ask(requests)
        rows: list[Row] = []
        for reply in replies:
            for doc in reply.documents:
                grade = reply.result[doc] if isinstance(reply.result, dict) else None
                rows.append((reply.query, doc, grade, reply.failure, reply.id))
        with self.store.transaction():
            self.store.replace("grades", rows)

    def _prune(self) -> None:
        rows: list[Row] = []
        for query, pool in _grouped(
            self.store.rows(
                "SELECT query, doc, grade FROM pool LEFT JOIN grades USING (query, doc) "
                "ORDER BY query, pool.position"
            )
        ).items():
            kept = prune([grade for _, grade in pool], self.settings.pruning)
            rows += [(query, pool[at][0], place) for place, at in enumerate(kept, 1)]
        with self.store.transaction():
            self.store.replace("subset", rows)

    def _rank(self) -> None:
        from rankproof.golden.refinement import Pool, Refinement, reduced

        settings = self.settings
        found = _grouped(
            self.store.rows(
                "SELECT query, doc, grade, rrf, text FROM subset JOIN grades USING (query, doc) "
                "JOIN pool USING (query, doc) JOIN passages USING (doc) "
                "ORDER BY query, subset.position"
            )
        )
        names = list(found)
        asked: dict[str, str] = dict(self.store.rows("SELECT query, text FROM queries"))
        pools = [Pool([r[1] for r in rows], [r[2] for r in rows]) for rows in found.values()]
        refinement = Refinement(
            pools, settings.refinement, settings.seed, method=settings.ranking.method
        )
        orders: list[Row] = []
        shown: Counter[tuple[int, tuple[int, ...]]] = Counter()
        # A query may end before its budget does: the time left is an upper bound.
        with self.asker("ordering (at most)", len(names) * settings.ranking.budget) as asker:
            count = 0
            while batches := refinement.next_round():
                requests = []
                for at, batch in batches:
                    rows = found[names[at]]
                    passages = [(rows[item][0], rows[item][3]) for item in batch]
                    requests.append(
                        self._order_request(names[at], asked[names[at]], passages, shown[at, batch])
                    )
                    shown[at, batch] += 1
                replies = asker.ask(requests)
                refinement.add(
                    [
                        _items([row[0] for row in found[names[at]]], reply)
                        for (at, _), reply in zip(batches, replies, strict=True)
                    ]
                )
                count += 1
                orders += _numbered(count, replies)
        ranking: list[Row] = []
        refined: list[Row] = []
        for query, reason, result in zip(
            names, refinement.done, refinement.rankings(), strict=True
        ):
            docs = [row[0] for row in found[query]]
            mean = result.posterior.mean
            sd = np.sqrt(np.diag(result.posterior.covariance))
            for rank, item in enumerate(result.order.tolist(), 1):
                figures = (mean[item], sd[item], result.low[item], result.high[item])
                ranking.append(
                    (query, docs[item], rank, *(x.item() for x in figures), result.top[item].item())
                )
            certainty = result.posterior.certainty()
            locked = [
                [docs[i], docs[j], round(float(certainty[i, j]), 6)]
                for i, j in np.argwhere(reduced(result.locks())).tolist()
            ]
            refined.append(
                (
                    query,
                    reason,
                    result.calls,
                    result.failed,
                    result.overlap,
                    json.dumps(locked, ensure_ascii=False),
                )
            )
        with self.store.transaction():
            self.store.replace("orders", orders)
            self.store.replace("ranking", ranking)
            self.store.replace("refined", refined)

    def _order_request(
        self, query: str, question: str, passages: Sequence[tuple[str, str]], repeat: int
    ) -> Request:
        # The refinement shuffles its batches itself. A small pool runs out of orders to show: the
        # same one is a repeat, so that it is answered anew and not counted twice.
        return make_request(
            *("order", self.prompts["order"], query, question, passages),
            seed=self.settings.seed,
            repeat=repeat,
            shuffle=False,
            passage_chars=self.settings.passage_chars,
        )

    # ----------------------------------------------------------------------------- the judge

    def pools(self) -> list[QueryPool]:
        return read_pools(self.store, self.settings.passage_chars)

    @contextmanager
    def asker(self, label: str, total: float) -> Iterator[Asker]:
        """The judge, ready to be asked, with a bar."""
        own = self.judge is None
        judge = self.judge or make_judge(self.settings, self.inputs.qrels)
        try:
            judge.prepare(self.pools())
            self._name(judge)
            limits = self.settings.limits
            with self.progress(label, total) as told:
                yield Asker(
                    *(self.store, judge),
                    price=price_of(self.settings)[0],
                    max_cost=limits.max_cost,
                    concurrency=limits.concurrency,
                    progress=told,
                )
        finally:
            if own:
                judge.close()

    def _name(self, judge: Judge) -> None:
        """Each golden set names its judge."""
        self.store.set_meta(
            "judge",
            {
                "type": describe(self.judge or self.settings.judge)["type"],
                "name": judge.name,
                "model": judge.model,
                "parameters": judge.parameters,
                "simulated": judge.simulated,
                "prompts": {kind: prompt.digest for kind, prompt in self.prompts.items()},
            },
        )


def store_path(settings: GoldenSettings, config: Path) -> Path:
    """Where a configuration keeps its golden set."""
    return settings.store or config.with_name(f"{config.stem}.golden")


def read_prompts(settings: GoldenSettings) -> dict[Kind, Prompt]:
    own = settings.prompts
    return {
        "grade": read_prompt("grade", settings.language, own.grade),
        "order": read_prompt("order", settings.language, own.order),
    }


def read_pools(store: Store, passage_chars: int | None = None) -> list[QueryPool]:
    """Every query with its pool, in the order of the queries; texts as the judge is shown them."""
    rows = store.rows(
        "SELECT pool.query, queries.text, doc, passages.text FROM pool "
        "JOIN queries USING (query) JOIN passages USING (doc) "
        "ORDER BY queries.position, pool.position"
    )
    pools: dict[str, QueryPool] = {}
    for query, question, doc, text in rows:
        pool = pools.setdefault(query, QueryPool(query, question, [], []))
        pool.documents.append(doc)
        pool.texts.append(cut(text, passage_chars))
    return list(pools.values())


def grade_requests(
    pools: Sequence[QueryPool], settings: GoldenSettings, prompt: Prompt, repeat: int = 0
) -> list[Request]:
    """Each pool in batches, best first, so that a deeper pool repeats the batches of this one."""
    size = settings.grading.batch
    return [
        make_request(
            *("grade", prompt, pool.query, pool.question),
            list(zip(pool.documents[at : at + size], pool.texts[at : at + size], strict=True)),
            seed=settings.seed,
            repeat=repeat,
            passage_chars=settings.passage_chars,
        )
        for pool in pools
        for at in range(0, len(pool.documents), size)
    ]


def price_of(settings: GoldenSettings) -> tuple[TokenPrice | None, str]:
    """The judge's price, and where it is from."""
    judge = settings.judge
    if isinstance(judge, ScorerJudgeSettings) and judge.reranker.type == "endpoint":
        return None, "what the reranker's server costs is not counted"
    if not isinstance(judge, LlmJudgeSettings):
        return TokenPrice(input_per_1m=0, output_per_1m=0), "this judge costs nothing"
    if judge.price is not None:
        return judge.price, "prices as configured"
    from rankproof.tradeoffs.prices import read_prices

    prices = read_prices(settings.prices)
    if judge.model not in prices.models:
        return None, f"the price of {judge.model} is not known: give judge.price or a price file"
    each = prices.per_million(judge.model)
    when = prices.models[judge.model].date or prices.date
    told = f"prices of {when}; output tokens counted at the price of input, for want of another"
    old = "; ".join(prices.stale(models=[judge.model]))
    return TokenPrice(input_per_1m=each, output_per_1m=each), f"{told}; {old}" if old else told


def _comparable(said: Any) -> Any:
    """As JSON keeps it; which version of a package computed a reply makes no other golden set."""
    plain = json.loads(json.dumps(said, default=str))
    if isinstance(plain, dict):
        return {name: _comparable(value) for name, value in plain.items() if name != "versions"}
    return plain


def _grouped(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by their first column."""
    found: dict[str, list[Row]] = {}
    for first, *rest in rows:
        found.setdefault(first, []).append(tuple(rest))
    return found


def _items(docs: list[str], reply: Reply) -> list[int] | None:
    """A reply's order as places in the pool; None where the judge failed."""
    if not isinstance(reply.result, list):
        return None
    place = {doc: at for at, doc in enumerate(docs)}
    return [place[doc] for doc in reply.result]


def _numbered(count: int, replies: Sequence[Reply]) -> list[Row]:
    """(query, round, batch, reply) of one round."""
    batch: dict[str, int] = {}
    rows: list[Row] = []
    for reply in replies:
        batch[reply.query] = batch.get(reply.query, 0) + 1
        rows.append((reply.query, count, batch[reply.query], reply.id))
    return rows
