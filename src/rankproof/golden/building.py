"""A golden set, stage by stage. Each stage can run alone, once those before it are done.

    rewrite ─▶ retrieve ─▶ merge ─▶ grade ─▶ prune ─▶ rank

A stage that was done with the same settings is passed over; one whose settings changed is done
again, with the judge's replies taken from the store. A reply is known by what decides it: queries,
passages, systems, limits and judges may come and go, and only what is new is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest
from rankproof.foundation.redaction import redact
from rankproof.golden.annotators import Key, held
from rankproof.golden.judge_client import JudgeClient
from rankproof.golden.judge_combination import join
from rankproof.golden.judges import Judge, QueryPool, make_judge, members, standard
from rankproof.golden.judges.llm import LlmJudgeSettings
from rankproof.golden.judges.scorer import ScorerJudgeSettings
from rankproof.golden.judgments import Kind, Row, cut, grouped, pair
from rankproof.golden.ordering import rank_passages, record_finished
from rankproof.golden.pooling import Inputs, makers, merge, read_inputs, retrieve, rewrite
from rankproof.golden.pruning import prune
from rankproof.golden.requests import EDITIONS, NEWEST, Prompt, Request, make_request, read_prompt
from rankproof.golden.settings import GoldenSettings, TokenPrice
from rankproof.golden.store import Store
from rankproof.retrieval.components import describe_choice
from rankproof.retrieval.identity import identity, value_identity
from rankproof.retrieval.workshop import silent

Stage = Literal["rewrite", "retrieve", "merge", "grade", "prune", "rank"]
STAGES: tuple[Stage, ...] = get_args(Stage)
Progress = Callable[[str, float], Any]
"""(label, total) → a context manager that yields a function to be told of work done."""

# What a stage's result depends on, beside the stages before it.
_PARTS: dict[Stage, tuple[str, ...]] = {
    "rewrite": ("rewriter",),
    "retrieve": ("embedder", "index", "bm25", "retrievers", "pool", "depths"),
    "merge": ("passage_chars",),
    "grade": ("judge", "language"),
    "prune": ("pruning",),
    "rank": ("ranking",),
}


@dataclass(slots=True)
class Build:
    """A configuration at work on its store.

    >>> from pathlib import Path
    >>> from rankproof.golden.building import Build
    >>> from rankproof.golden.settings import GoldenSettings
    >>> from rankproof.golden.store import Store
    >>> asked = GoldenSettings(corpus=Path("try/corpus"), judge={"type": "simulated"}, sample=2)
    >>> with Store("few.golden", create=True) as store:
    ...     Build(asked, store).run()
    ['rewrite', 'retrieve', 'merge', 'grade', 'prune', 'rank']
    """

    settings: GoldenSettings
    store: Store
    progress: Progress = silent
    judge: Judge | None = None
    tell: Callable[[str], None] | None = None  # of what the calls of a stage will take
    inputs: Inputs = field(init=False)
    prompts: dict[Kind, Prompt] = field(init=False)

    def __post_init__(self) -> None:
        held = self.store.rows("SELECT query FROM queries")
        self.inputs = read_inputs(self.settings, [query for (query,) in held])
        self.prompts = read_prompts(self.settings, self.store)
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
            done = self._reopen(stage) | {stage: wanted[stage]}
            self._run(stage, partial(self.store.set_meta, "done", done))
            ran.append(stage)
        if not ran:  # what may be spent, and where things are, may still have changed
            self._keep()
        return ran

    def retry_failed(self) -> int:
        """Have `run` ask again what could not be used in the end; how many requests that is."""
        if not self.store.failed_requests():
            return 0
        with self.prepared() as panel:
            judges = [self.number(each.judge, kind) for each in panel for kind in self.prompts]
        if not self.store.failed_requests(judges):
            return 0
        self._reopen("grade")  # first: were we killed here, the replies would only be read again
        return self.store.retire_failed(judges)

    def _reopen(self, stage: Stage) -> dict[str, str]:
        """A stage, and all that rests on it, is not done; the stages that stay so.

        The configuration that the store shows is the one of what is in it.
        """
        done = self.store.meta("done", {})
        kept = {s: d for s, d in done.items() if STAGES.index(s) < STAGES.index(stage)}
        with self.store.transaction():
            self.store.set_meta("done", kept)
            for table in ("orders", "ranking", "refined", "posteriors"):
                self.store.replace(table, [])  # an order of other passages is no order of these
            self._keep()
        return kept

    def _keep(self) -> None:
        self.store.set_meta("config", self.settings.model_dump(mode="json"))
        self.store.set_meta("inputs", self.inputs.digests)

    def digests(self) -> dict[Stage, str]:
        """What each stage's result rests on: its own settings, and all that came before."""
        found = pool_digests(self.settings, self.inputs, self.inputs.queries)
        before = found["merge"]
        for stage in STAGES[len(found) :]:
            parts = {name: value_identity(getattr(self.settings, name)) for name in _PARTS[stage]}
            if "judge" in parts:
                parts["judge"] = self._who()
            if stage == "prune" and (people := self._regraded()):
                parts["people"] = sorted(people.items())
            if stage == "prune" and self.judge is None and "" not in members(self.settings.judge):
                said = held(self.store.active_corrections())  # they teach whom to trust
                parts["people"] = sorted((key, each.grade) for key, each in said.items())
            if stage in ("grade", "rank"):
                parts["prompt"] = self.prompts["grade" if stage == "grade" else "order"].digest
            before = found[stage] = digest([before, stage, parts])
        return found

    def _adopt(self) -> None:
        """Take the store for this configuration, or refuse it."""
        held = self.store.meta("config")
        if held is None:
            with self.store.transaction():
                self._keep()
            return
        was, now = held.get("language"), self.settings.language
        if was != now:
            raise InputError(
                f"holds a golden set with language: {was}, and the configuration says {now}",
                place=str(self.store.path),
                remedy="grades of two languages do not mix: name another store",
            )
        if self.store.meta("carried"):
            self._carry(held)

    def _carry(self, held: dict[str, Any]) -> None:
        """What a store of the first format does not say by itself, and its configuration does."""
        try:
            before = TypeAdapter(GoldenSettings).validate_python(held)
            lists = makers(before)
        except (InputError, ValidationError, OSError):  # a file or a part is not there any more
            before, lists = None, {}
        done, judge = self.store.meta("done", {}), self.store.meta("judge")
        with self.store.transaction():
            for name, said in lists.items():
                self.store.execute(
                    "UPDATE lists SET digest = ?, said = ? WHERE list = ?",
                    (digest(said), json.dumps(redact(said), default=str), name),
                )
            if before is not None and "rank" in done and judge is not None:
                reasons = self.store.rows("SELECT query, reason FROM refined")
                record_finished(self.store, before, [judge["numbers"]["order"]], dict(reasons))
            self.store.set_meta("carried", False)

    def _who(self) -> Any:
        """What tells the judge from others: what it says of itself, where it was handed in."""
        return _comparable(identity(self.judge or self.settings.judge))

    # --------------------------------------------------------------------------------- stages

    def _run(self, stage: Stage, finish: Callable[[], None]) -> None:
        store, settings, inputs = self.store, self.settings, self.inputs
        if stage == "rewrite":
            with self.progress("rewriting", len(inputs.queries)) as told:
                rewrite(store, settings, inputs, told)
        elif stage == "retrieve":
            total = len(inputs.corpus.documents) + len(inputs.queries)
            with self.progress("retrieving", total) as told:
                retrieve(store, settings, inputs, told)
        elif stage == "merge":
            merge(store, settings, [*store.in_force("grade"), *store.in_force("order")])
        elif stage == "grade":
            self._grade()
        elif stage == "prune":
            self._prune()
        else:
            rank_passages(self, self._joined(), self._regraded(), finish)
            return
        finish()

    def _grade(self) -> None:
        prompt = self.prompts["grade"]
        with self.prepared() as panel:
            for each in panel:
                who = self.number(each.judge, "grade")
                left = ungraded(self.store, self.pools(), who, self._begun(who))
                requests = grade_requests(left, self.settings, prompt)
                with self.askers([each], "grading", len(requests)) as (asker,):
                    asker.ask(requests)
        self.store.execute("DELETE FROM meta WHERE key = 'grading'")
        self._joined()

    def _begun(self, judge: int) -> int:
        """The last reply before a judge began to grade these pools: who was killed goes on with
        the batches of then, of which parts may have been graded since."""
        held = self.store.meta("grading") or {}
        of = digest([self.digests()["grade"], self.settings.grading.batch])
        if held.get(str(judge), [""])[0] != of:
            ((last,),) = self.store.rows("SELECT COALESCE(MAX(id), 0) FROM replies")
            held[str(judge)] = [of, last]
            self.store.set_meta("grading", held)
        return int(held[str(judge)][1])

    def _joined(self) -> dict[Key, tuple[float, float]]:
        """Write the grades that hold; mean and standard deviation of each that is not sure.

        Of one judge they are its own; of several, what they say together (`joining.join`).
        """
        judges = self.store.in_force("grade")
        said: dict[Key, dict[int, Row]] = {}
        for query, doc, judge, *answer in self.store.rows(
            "SELECT query, doc, judge, grade, mean, sd, failure, reply FROM pairs JOIN "
            "(SELECT pair, judge, grade, mean, sd, failure, reply FROM answers "
            f"WHERE judge IN ({', '.join(map(str, judges))})) USING (pair)"
        ):
            said.setdefault((query, doc), {})[judge] = tuple(answer)
        sure: dict[Key, tuple[float, float]] = {}
        rows: list[Row] = []
        if len(judges) == 1:
            for key, each in said.items():
                grade, mean, sd, failure, reply = each[judges[0]]
                rows.append((*key, grade, failure, reply))
                if mean is not None:
                    sure[key] = mean, sd
        else:
            keys = sorted(said)
            people = held(self.store.active_corrections())
            votes = [[said[key].get(j, (0,))[0] or 0 for j in judges] for key in keys]
            known = [people[key].grade if key in people else 0 for key in keys]
            found = join(np.array(votes).reshape(-1, len(judges)), np.array(known, np.int64))
            for at, key in enumerate(keys):
                grade = int(found.grade[at]) or None
                heard = [said[key][j] for j in judges if j in said[key]]
                near = min(heard, key=lambda one: abs((one[0] or 9) - (grade or 0)))
                rows.append((*key, grade, None if grade else near[3], near[4]))
                sure[key] = float(found.mean[at]), float(found.sd[at])
            proved = zip(found.right.tolist(), found.apart.tolist(), strict=True)
            self.measured(judges, [{"right": r, "apart": a} for r, a in proved])
        with self.store.transaction():
            self.store.replace("grades", rows)
        return sure

    def measured(self, judges: Sequence[int], figures: Sequence[dict[str, float]]) -> None:
        """Keep how reliable each judge of a panel proved to be."""
        before = self.store.meta("reliability") or {}
        now = {
            str(judge): before.get(str(judge), {}) | {k: v for k, v in said.items() if v == v}
            for judge, said in zip(judges, figures, strict=True)
        }
        self.store.set_meta("reliability", before | now)

    def _regraded(self) -> dict[tuple[str, str], int]:
        """Grades of people, where they are not the judge's."""
        judged = {
            (query, doc): grade
            for query, doc, grade in self.store.rows("SELECT query, doc, grade FROM grades")
        }
        found = held(self.store.active_corrections(), judged)
        return {key: each.grade for key, each in found.items() if each.grade != judged.get(key)}

    def _prune(self) -> None:
        self._joined()  # people's labels may have taught whom to trust
        rows: list[Row] = []
        people = self._regraded()
        for query, pool in grouped(
            self.store.rows(
                "SELECT query, doc, grade FROM pool LEFT JOIN grades USING (query, doc) "
                "ORDER BY query, pool.position"
            )
        ).items():
            grades = [people.get((query, doc), grade) for doc, grade in pool]
            kept = prune(grades, self.settings.pruning)
            rows += [(query, pool[at][0], place) for place, at in enumerate(kept, 1)]
        with self.store.transaction():
            self.store.replace("subset", rows)

    # ----------------------------------------------------------------------------- the judge

    def pools(self) -> list[QueryPool]:
        return read_pools(self.store, self.settings.passage_chars)

    def texts(self) -> dict[tuple[str, str], tuple[str, str]]:
        """(question, passage) of every pooled (query, doc), as the judge is shown them."""
        return {
            (pool.query, doc): (pool.question, text)
            for pool in self.pools()
            for doc, text in zip(pool.documents, pool.texts, strict=True)
        }

    @contextmanager
    def prepared(self) -> Iterator[list[Member]]:
        """The judge, or a panel's judges, who have looked at the pools."""
        with ExitStack() as opened:
            panel = []
            named = members(self.settings.judge)
            for name, chosen in named.items() if self.judge is None else [("", named.get(""))]:
                judge = self.judge or make_judge(self.settings, self.inputs.qrels, chosen)
                if self.judge is None:
                    opened.callback(judge.close)
                judge.prepare(self.pools())
                panel.append(Member(name, chosen, judge))
            self._name(panel)
            yield panel

    def number(self, judge: Judge, kind: Kind) -> int:
        """What the store knows the judge by, under the prompt in force."""
        return self.store.judge(standard(judge, kind, self.prompts[kind].digest))

    @contextmanager
    def askers(
        self, panel: Sequence[Member], label: str, total: float
    ) -> Iterator[list[JudgeClient]]:
        """Judges, ready to be asked, with one bar."""
        limits = self.settings.limits
        with self.progress(label, total) as told:
            yield [
                JudgeClient(
                    *(self.store, each.judge),
                    price=price_of(self.settings, each.chosen)[0],
                    max_cost=limits.max_cost,
                    concurrency=limits.concurrency,
                    progress=told,
                    tell=self.tell,
                )
                for each in panel
            ]

    def _name(self, panel: Sequence[Member]) -> None:
        """Each golden set names its judge."""
        every: list[dict[str, Any]] = [
            {
                "name": each.name or each.judge.name,
                "model": each.judge.model,
                "parameters": each.judge.parameters,
                "simulated": each.judge.simulated,
                "numbers": {kind: self.number(each.judge, kind) for kind in self.prompts},
            }
            for each in panel
        ]
        said = every[0]
        if len(every) > 1:
            taken = [each["numbers"]["grade"] for each in every]
            twice = next((e for e in every if taken.count(e["numbers"]["grade"]) > 1), None)
            if twice is not None:
                raise InputError(
                    f"{twice['name']} is in the panel twice",
                    place="judge",
                    remedy="name judges that differ in model or temperature",
                )
            said = {
                "name": " + ".join(each["name"] for each in every),
                "model": " + ".join(each["model"] for each in every),
                "parameters": {each["name"]: each["parameters"] for each in every},
                "simulated": any(each["simulated"] for each in every),
                "members": every,
            }
        prompts = {kind: prompt.digest for kind, prompt in self.prompts.items()}
        kind = describe_choice(self.judge or self.settings.judge)["type"]
        self.store.set_meta("judge", {"type": kind, **said, "prompts": prompts})


@dataclass(frozen=True, slots=True)
class Member:
    """One of those who judge."""

    name: str  # in its panel; none where it judges alone
    chosen: Any  # its settings, or what was handed in
    judge: Judge


def pool_digests(
    settings: GoldenSettings, inputs: Inputs, queries: Sequence[tuple[str, str]]
) -> dict[Stage, str]:
    """What the pools of some queries rest on, stage by stage."""
    texts = {role: said for role, said in inputs.digests.items() if role != "queries"}
    before: Any = [texts, settings.seed, queries]
    found: dict[Stage, str] = {}
    for stage in STAGES[: STAGES.index("grade")]:
        parts = {name: value_identity(getattr(settings, name)) for name in _PARTS[stage]}
        before = found[stage] = digest([before, stage, parts])
    return found


def store_path(settings: GoldenSettings, config: Path) -> Path:
    """Where a configuration keeps its golden set."""
    return settings.store or config.with_name(f"{config.stem}.golden")


def read_prompts(settings: GoldenSettings, store: Store | None = None) -> dict[Kind, Prompt]:
    """The prompts in force: a set that was begun with an older edition goes on with it."""
    said = {} if store is None else store.meta("judge") or {}
    begun = said.get("prompts", {})

    def chosen(kind: Kind, own: Path | None) -> Prompt:
        language = settings.language
        every = {edition: read_prompt(kind, language, own, edition) for edition in EDITIONS}
        held = [edition for edition in EDITIONS if every[edition].digest == begun.get(kind)]
        return every[settings.prompts.edition or (held[0] if held else NEWEST)]

    own = settings.prompts
    return {"grade": chosen("grade", own.grade), "order": chosen("order", own.order)}


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


def ungraded(
    store: Store, pools: Sequence[QueryPool], judge: int, last: int | None = None
) -> list[QueryPool]:
    """The pools less what a judge has graded, or failed to, be it up to some reply; of equal texts
    the first is asked."""
    answered = "SELECT pair FROM answers WHERE judge = ? AND reply <= COALESCE(?, reply)"
    known = {what for (what,) in store.rows(answered, (judge, last))}
    found = []
    for pool in pools:
        left = QueryPool(pool.query, pool.question, [], [])
        for doc, text in zip(pool.documents, pool.texts, strict=True):
            what = pair(pool.question, text)
            if what not in known:
                known.add(what)
                left.documents.append(doc)
                left.texts.append(text)
        if left.documents:
            found.append(left)
    return found


def grade_requests(
    pools: Sequence[QueryPool], settings: GoldenSettings, prompt: Prompt
) -> list[Request]:
    """Each pool in batches, best first, so that what is left of it falls into the same ones."""
    size = settings.grading.batch
    return [
        make_request(
            *("grade", prompt, pool.query, pool.question),
            list(zip(pool.documents[at : at + size], pool.texts[at : at + size], strict=True)),
            seed=settings.seed,
            passage_chars=settings.passage_chars,
        )
        for pool in pools
        for at in range(0, len(pool.documents), size)
    ]


def price_of(settings: GoldenSettings, judge: Any = None) -> tuple[TokenPrice | None, str]:
    """The price of the judge, or of one of a panel's, and where it is from."""
    judge = settings.judge if judge is None else judge
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
    told = f"prices of {when}; output tokens counted at the price of input, as no other is given"
    old = "; ".join(prices.stale(models=[judge.model]))
    return TokenPrice(input_per_1m=each, output_per_1m=each), f"{told}; {old}" if old else told


def _comparable(said: Any) -> Any:
    """As JSON keeps it; which version of a package computed a reply makes no other golden set."""
    plain = json.loads(json.dumps(said, default=str))
    if isinstance(plain, dict):
        return {name: _comparable(value) for name, value in plain.items() if name != "versions"}
    return plain
