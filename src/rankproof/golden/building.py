"""A golden set, stage by stage. Each stage can run alone, once those before it are done.

    rewrite ─▶ retrieve ─▶ merge ─▶ grade ─▶ prune ─▶ rank

A stage that was done with the same settings is passed over; one whose settings changed is done
again, with the judge's replies taken from the store. A reply is known by what decides it: queries,
passages, systems, limits and judges may come and go, and only what is new is asked.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rankproof.errors import InputError
from rankproof.golden.asking import Asker
from rankproof.golden.joining import join
from rankproof.golden.judges import Judge, QueryPool, make_judge, members, standard
from rankproof.golden.judges.llm import LlmJudgeSettings
from rankproof.golden.judges.scorer import ScorerJudgeSettings
from rankproof.golden.people import Key, held
from rankproof.golden.pooling import Inputs, makers, merge, read_inputs, retrieve, rewrite
from rankproof.golden.pruning import prune
from rankproof.golden.requests import NEWEST, Prompt, Request, make_request, read_prompt
from rankproof.golden.result import posterior_row
from rankproof.golden.settings import GoldenSettings, TokenPrice
from rankproof.golden.store import Kind, Reply, Row, Store, cut, pair
from rankproof.manifest import digest
from rankproof.redaction import redact
from rankproof.retrieval.identity import decides, identity
from rankproof.retrieval.parts import describe
from rankproof.retrieval.workshop import silent

if TYPE_CHECKING:
    from rankproof.golden.refinement import Known

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
            parts = {name: decides(getattr(self.settings, name)) for name in _PARTS[stage]}
            if "judge" in parts:
                parts["judge"] = self._who()
            if stage == "prune" and (people := self._regraded()):
                parts["people"] = sorted(people.items())
            if stage == "prune" and self.judge is None and "" not in members(self.settings.judge):
                said = held(self.store.active_corrections(), {})  # they teach whom to trust
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
                self._settle(before, [judge["numbers"]["order"]], dict(reasons))
            self.store.set_meta("carried", False)

    def _who(self) -> Any:
        """What tells the judge from others: what it says of itself, where it was handed in."""
        return _comparable(identity(self.judge or self.settings.judge))

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
            merge(store, settings, [*store.in_force("grade"), *store.in_force("order")])
        elif stage == "grade":
            self._grade()
        elif stage == "prune":
            self._prune()
        else:
            self._rank()

    def _grade(self) -> None:
        prompt = self.prompts["grade"]
        with self.prepared() as panel:
            for each in panel:
                left = ungraded(self.store, self.pools(), self.number(each.judge, "grade"))
                requests = grade_requests(left, self.settings, prompt)
                with self.askers([each], "grading", len(requests)) as (asker,):
                    asker.ask(requests)
        self._joined()

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
            people = held(self.store.active_corrections(), {})
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
            self._measured(judges, [{"right": r, "apart": a} for r, a in proved])
        with self.store.transaction():
            self.store.replace("grades", rows)
        return sure

    def _measured(self, judges: Sequence[int], figures: Sequence[dict[str, float]]) -> None:
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
        for query, pool in _grouped(
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

    def _rank(self) -> None:
        from rankproof.golden.refinement import Pool, Refinement, reduced

        settings, store = self.settings, self.store
        sure = self._joined()
        people = self._regraded()
        found = _grouped(
            [
                (query, doc, people.get((query, doc), grade), rrf, text, what)
                for query, doc, grade, rrf, text, what in store.rows(
                    "SELECT query, doc, grade, rrf, text, pair FROM subset "
                    "LEFT JOIN grades USING (query, doc) JOIN pool USING (query, doc) "
                    "JOIN pairs USING (query, doc) JOIN passages USING (doc) "
                    "ORDER BY query, subset.position"
                )
            ]
        )
        names = list(found)
        asked: dict[str, str] = dict(store.rows("SELECT query, text FROM queries"))
        pools = []
        for query, rows in found.items():
            said = [
                (row[1], 0.0)
                if (query, row[0]) in people
                else sure.get((query, row[0]), (row[1], 0.0))
                for row in rows
            ]
            doubt = [sd for _, sd in said] if any(sd for _, sd in said) else None
            pools.append(Pool([mean for mean, _ in said], [row[2] for row in rows], doubt))
        orders: list[Row] = []
        shown: Counter[tuple[int, tuple[int, ...]]] = Counter()
        # A query may end before its budget does: the time left is an upper bound.
        most = len(names) * settings.ranking.budget
        with self.prepared() as panel, self.askers(panel, "ordering (at most)", most) as askers:
            who = [self.number(each.judge, "order") for each in panel]
            known = self._known_orders(found, who, orders, shown)
            refinement = Refinement(
                *(pools, settings.refinement, settings.seed, settings.ranking.method, known),
                judges=len(panel),
            )
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
                replies = _dealt(askers, refinement.asked(), requests)
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
        posteriors: list[Row] = []
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
            posteriors.append(posterior_row(query, docs, result.posterior.covariance))
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
        with store.transaction():
            store.replace("orders", orders)
            store.replace("ranking", ranking)
            store.replace("refined", refined)
            store.replace("posteriors", posteriors)
            store.execute("DELETE FROM meta WHERE key = 'ordering'")
            seen = store.meta("surprise") or {}
            for judge, value in refinement.surprise:
                total, count = seen.get(str(who[judge]), (0.0, 0))
                seen[str(who[judge])] = [total + value, count + 1]
            store.set_meta("surprise", seen)
            if len(who) > 1:
                self._measured(who, [{"sharpness": beta} for beta in refinement.sharpness])
            self._settle(settings, who, dict(zip(names, map(str, refinement.done), strict=True)))

    def _known_orders(
        self,
        found: dict[str, list[Row]],
        who: Sequence[int],
        orders: list[Row],
        shown: Counter[tuple[int, tuple[int, ...]]],
    ) -> dict[int, Known]:
        """What the judge said of each pool before this ordering began, of those passages that are
        still in it: under Plackett–Luce the order of some is the order of all with the rest left
        out.

        What it was is fixed when the ordering begins and kept until it ends: a process that was
        killed goes on with the rounds that it would have asked.
        """
        from rankproof.golden.refinement import Known

        store, settings = self.store, self.settings
        pairs = {
            query: {row[4]: at for at, row in enumerate(rows)} for query, rows in found.items()
        }
        begun = digest(
            [self.digests()["rank"], _one(who), {q: sorted(p) for q, p in pairs.items()}]
        )
        held = store.meta("ordering") or {}
        given = f"kind = 'order' AND judge IN ({', '.join(map(str, who))}) AND retired = 0"
        if held.get("of") != begun:
            every = store.rows(f"SELECT id FROM replies WHERE {given}")
            held = {"of": begun, "replies": [number for (number,) in every]}
            store.set_meta("ordering", held)
        before = set(held["replies"])
        said: dict[str, list[Reply]] = {}
        for reply in store.replies(given):
            if reply.id in before and reply.final and reply.query in found:
                said.setdefault(reply.query, []).append(reply)
        offered = set(store.rows("SELECT judge, pair FROM offered"))
        closed = {(q, key): reason for q, key, reason in store.rows("SELECT * FROM settled")}
        known: dict[int, Known] = {}
        for at, (query, rows) in enumerate(found.items()):
            place = pairs[query]
            order: list[list[int]] = []
            by: list[int] = []
            turns = [0] * len(who)
            failed = 0
            for reply in said.get(query, []):
                items = dict(
                    zip(reply.documents, (place.get(p) for p in reply.pairs), strict=False)
                )
                kept = [item for item in items.values() if item is not None]
                if len(set(kept)) < 2:
                    continue
                orders.append((query, 0, len(order) + failed + 1, reply.id))
                turns[who.index(reply.judge)] += 1
                if len(kept) == len(reply.documents):  # shown again, it would be a repeat
                    batch = at, tuple(kept)
                    shown[batch] = max(shown[batch], reply.repeat + 1)
                if not isinstance(reply.result, list):
                    failed += 1
                    continue
                ranked = [items[doc] for doc in reply.result]
                order.append(list(dict.fromkeys(item for item in ranked if item is not None)))
                by.append(who.index(reply.judge))
            # What was said of passages that are still there is spent; but who joined a panel has
            # a share of the budget, though the others have spent it all.
            share = -(-settings.ranking.budget // len(who))
            spent = 0
            for judge, calls in zip(who, turns, strict=True):
                old = sum((judge, row[4]) in offered for row in rows)
                spent += min(calls, share if len(who) > 1 else calls) * old // len(rows)
            reason = closed.get((query, self._settled_key(settings, who, list(place))))
            if sum(turns) or reason:
                known[at] = Known(order, failed, spent, reason, by, turns)
        return known

    @staticmethod
    def _settled_key(settings: GoldenSettings, who: Sequence[int], pairs: Sequence[str]) -> str:
        """All that decides whether a pool's order is finished."""
        asked = [asdict(settings.refinement), settings.ranking.method]
        return digest([_one(who), sorted(pairs), asked])

    def _settle(
        self, settings: GoldenSettings, who: Sequence[int], reasons: dict[str, str]
    ) -> None:
        """Note which orders are finished, and of which passages; inside a transaction."""
        rows = _grouped(
            self.store.rows("SELECT query, pair FROM subset JOIN pairs USING (query, doc)")
        )
        finished, offered = [], []
        for query, reason in reasons.items():
            pairs = [what for (what,) in rows.get(query, [])]
            finished.append((query, self._settled_key(settings, who, pairs), reason))
            offered += [(judge, what) for judge in who for what in pairs]
        self.store.execute_many("INSERT OR REPLACE INTO settled VALUES (?, ?, ?)", finished)
        self.store.execute_many("INSERT OR IGNORE INTO offered VALUES (?, ?)", offered)

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
    def askers(self, panel: Sequence[Member], label: str, total: float) -> Iterator[list[Asker]]:
        """Judges, ready to be asked, with one bar."""
        limits = self.settings.limits
        with self.progress(label, total) as told:
            yield [
                Asker(
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
        kind = describe(self.judge or self.settings.judge)["type"]
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
        parts = {name: decides(getattr(settings, name)) for name in _PARTS[stage]}
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
        first = read_prompt(kind, language, own, edition=1)
        edition = settings.prompts.edition or (1 if begun.get(kind) == first.digest else NEWEST)
        return read_prompt(kind, language, own, edition)

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


def ungraded(store: Store, pools: Sequence[QueryPool], judge: int) -> list[QueryPool]:
    """The pools less what a judge has graded, or failed to; of equal texts the first is asked."""
    known = {what for (what,) in store.rows("SELECT pair FROM answers WHERE judge = ?", (judge,))}
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
    pools: Sequence[QueryPool], settings: GoldenSettings, prompt: Prompt, repeat: int = 0
) -> list[Request]:
    """Each pool in batches, best first, so that what is left of it falls into the same ones."""
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


def _one(judges: Sequence[int]) -> int | list[int]:
    """A judge who judges alone is known by its number."""
    return judges[0] if len(judges) == 1 else list(judges)


def _dealt(
    askers: Sequence[Asker], whose: Sequence[int], requests: Sequence[Request]
) -> list[Reply]:
    """Each request put to its judge; replies in the order of the requests."""
    found: dict[int, Reply] = {}
    for judge, asker in enumerate(askers):
        mine = [at for at, who in enumerate(whose) if who == judge]
        if mine:
            replies = asker.ask([requests[at] for at in mine])
            found |= dict(zip(mine, replies, strict=True))
    return [found[at] for at in range(len(requests))]


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
