"""Build a golden set in stages; each can run alone once those before it are done.

    rewrite ─▶ retrieve ─▶ merge ─▶ grade ─▶ prune ─▶ rank

A stage that was done with the same settings is skipped; one whose settings changed runs again, with
the judge's replies taken from the store. A reply is known by what decides it: queries, passages,
systems, limits and judges may come and go, and only what is new is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest
from rankproof.foundation.progress import progress
from rankproof.golden.annotators import Key, people_grades
from rankproof.golden.judge_client import JudgeClient
from rankproof.golden.judge_combination import combine_grades
from rankproof.golden.judges import Judge, QueryPool, judge_identity, make_judge, members
from rankproof.golden.judges.llm import LlmJudgeSettings
from rankproof.golden.judges.scorer import ScorerJudgeSettings
from rankproof.golden.judgments import Kind, Row, group_rows, pair_digest, truncate
from rankproof.golden.ordering import rank_passages
from rankproof.golden.pooling import Inputs, merge, read_inputs, retrieve, rewrite
from rankproof.golden.pruning import prune
from rankproof.golden.requests import Prompt, Request, make_request, read_prompt
from rankproof.golden.settings import GoldenSettings, TokenPrice
from rankproof.golden.store import Store, sql_list
from rankproof.retrieval.components import describe_choice
from rankproof.retrieval.identity import identity, value_identity

Stage = Literal["rewrite", "retrieve", "merge", "grade", "prune", "rank"]
STAGES: tuple[Stage, ...] = get_args(Stage)
GradeEstimates = dict[Key, tuple[float, float]]
"""Mean and standard deviation of each grade that is uncertain."""

_STAGE_SETTINGS: dict[Stage, tuple[str, ...]] = {  # that decide its result
    "rewrite": ("rewriter",),
    "retrieve": ("embedder", "index", "bm25", "retrievers", "pool", "depths"),
    "merge": ("passage_chars",),
    "grade": ("judge", "language"),
    "prune": ("pruning",),
    "rank": ("ranking",),
}


class Answer(NamedTuple):
    """A judge's answer about one passage, as the table `answers` holds it."""

    grade: int | None
    mean: float | None
    sd: float | None
    failure: str | None
    reply: int


@dataclass(frozen=True, slots=True)
class Member:
    """A judge of a panel, or the only judge."""

    name: str  # in the panel; "" for the only judge
    settings: Any  # None if the judge was given as an object
    judge: Judge


@dataclass(slots=True)
class Build:
    """The build of a golden set: a configuration and the store that its stages write.

    >>> from pathlib import Path
    >>> from rankproof.golden.building import Build
    >>> from rankproof.golden.settings import GoldenSettings
    >>> from rankproof.golden.store import Store, sql_list
    >>> config = GoldenSettings(corpus=Path("try/corpus"), judge={"type": "simulated"}, sample=2)
    >>> with Store("few.golden", create=True) as store:
    ...     Build(config, store).run()
    ['rewrite', 'retrieve', 'merge', 'grade', 'prune', 'rank']
    """

    settings: GoldenSettings
    store: Store
    judge: Judge | None = None  # in place of the configured one
    inputs: Inputs = field(init=False)
    prompts: dict[Kind, Prompt] = field(init=False)

    def __post_init__(self) -> None:
        known_queries = [query for (query,) in self.store.rows("SELECT query FROM queries")]
        self.inputs = read_inputs(self.settings, known_queries)
        self.prompts = read_prompts(self.settings)
        self._check_language()

    def run(self, only: Stage | None = None) -> list[Stage]:
        """Run all stages that are not done, or one alone; return those that ran."""
        ran: list[Stage] = []
        digests = self.digests()
        for stage in STAGES:
            is_done = self.store.meta("done", {}).get(stage) == digests[stage]
            if only is not None and stage != only:
                if STAGES.index(stage) < STAGES.index(only) and not is_done:
                    raise InputError(
                        f"{only} needs {stage}, which is not done with these settings",
                        place=str(self.store.path),
                        remedy=f"run --stage {stage} first, or all of them",
                    )
                continue
            if is_done and stage != only:
                continue
            done_stages = self._reopen(stage) | {stage: digests[stage]}
            self._run_stage(stage, partial(self.store.set_meta, "done", done_stages))
            ran.append(stage)
        if not ran:  # limits and paths may have changed nevertheless
            self._store_configuration()
        return ran

    def retry_failed(self) -> int:
        """Make `run` ask failed requests again, and return their number."""
        if not self.store.count_failed_requests():
            return 0
        with self.prepared() as panel:
            judges = [
                self.judge_id(member.judge, kind) for member in panel for kind in self.prompts
            ]
        if not self.store.count_failed_requests(judges):
            return 0
        # Reopen before retiring: if the process is killed in between, the next build grades again.
        self._reopen("grade")
        return self.store.retire_failed(judges)

    def _reopen(self, stage: Stage) -> dict[str, str]:
        """Mark a stage and all later ones as not done; return the digests of earlier stages.

        The ranking is deleted, and the new configuration stored, so that the store never shows
        results beside a configuration that they were not made with.
        """
        digests = self.store.meta("done", {})
        earlier = {s: d for s, d in digests.items() if STAGES.index(s) < STAGES.index(stage)}
        with self.store.transaction():
            self.store.set_meta("done", earlier)
            for table in ("orders", "ranking", "refined", "posteriors"):
                self.store.replace(table, [])
            self._store_configuration()
        return earlier

    def _store_configuration(self) -> None:
        """Store the settings and the digests of the input files."""
        self.store.set_meta("config", self.settings.model_dump(mode="json"))
        self.store.set_meta("inputs", self.inputs.digests)

    def digests(self) -> dict[Stage, str]:
        """Digest of all that each stage's result depends on, earlier stages included.

        People's grades decide which passages are put in order and, in a panel, how far each judge
        is trusted.
        """
        digests = pool_digests(self.settings, self.inputs, self.inputs.queries)
        previous = digests["merge"]
        for stage in STAGES[len(digests) :]:
            parts = {
                name: value_identity(getattr(self.settings, name))
                for name in _STAGE_SETTINGS[stage]
            }
            if "judge" in parts:
                parts["judge"] = _without_versions(identity(self.judge or self.settings.judge))
            if stage == "prune" and (regraded := self._regraded()):
                parts["people"] = sorted(regraded.items())
            is_panel = self.judge is None and "" not in members(self.settings.judge)
            if stage == "prune" and is_panel:
                labels = people_grades(self.store.active_corrections())
                parts["people"] = sorted((key, label.grade) for key, label in labels.items())
            if stage in ("grade", "rank"):
                parts["prompt"] = self.prompts["grade" if stage == "grade" else "order"].digest
            previous = digests[stage] = digest([previous, stage, parts])
        return digests

    def _check_language(self) -> None:
        """Refuse a store that was built in another language; a new one gets the configuration."""
        stored = self.store.meta("config")
        if stored is None:
            with self.store.transaction():
                self._store_configuration()
            return
        before, now = stored.get("language"), self.settings.language
        if before != now:
            raise InputError(
                f"holds a golden set with language: {before}, and the configuration says {now}",
                place=str(self.store.path),
                remedy="grades of two languages do not mix: name another store",
            )

    # --------------------------------------------------------------------------------- stages

    def _run_stage(self, stage: Stage, mark_finished: Callable[[], None]) -> None:
        """Run one stage, then mark it as finished."""
        store, settings, inputs = self.store, self.settings, self.inputs
        if stage == "rewrite":
            with progress("rewriting", len(inputs.queries)):
                rewrite(store, settings, inputs)
        elif stage == "retrieve":
            with progress("retrieving", len(inputs.corpus.documents) + len(inputs.queries)):
                retrieve(store, settings, inputs)
        elif stage == "merge":
            judges = [*store.current_judges("grade"), *store.current_judges("order")]
            merge(store, settings, judges)
        elif stage == "grade":
            self._grade()
        elif stage == "prune":
            self._prune()
        else:  # marks itself as finished, in the transaction that stores the ranking
            rank_passages(self, self._combine_grades(), self._regraded(), mark_finished)
            return
        mark_finished()

    def _grade(self) -> None:
        """Ask each judge for the grades that it has not given yet, then combine all."""
        prompt = self.prompts["grade"]
        with self.prepared() as panel:
            for member in panel:
                judge_id = self.judge_id(member.judge, "grade")
                last_reply = self._last_reply_before_grading(judge_id)
                pools = ungraded(self.store, self.pools(), judge_id, last_reply)
                requests = grade_requests(pools, self.settings, prompt)
                with self.clients([member], "grading", len(requests)) as (client,):
                    client.ask(requests)
        self.store.execute("DELETE FROM meta WHERE key = 'grading'")
        self._combine_grades()

    def _last_reply_before_grading(self, judge_id: int) -> int:
        """Id of the last reply that was stored when this judge began to grade these pools.

        It is stored until grading ends, so that a killed process resumes the same batches, although
        some of their passages have been graded since.
        """
        beginnings = self.store.meta("grading") or {}
        grading_digest = digest([self.digests()["grade"], self.settings.grading.batch])
        if beginnings.get(str(judge_id), [""])[0] != grading_digest:
            last_reply = self.store.number("SELECT MAX(id) FROM replies")
            beginnings[str(judge_id)] = [grading_digest, last_reply]
            self.store.set_meta("grading", beginnings)
        return int(beginnings[str(judge_id)][1])

    def _combine_grades(self) -> GradeEstimates:
        """Write `grades` from the judges' answers; return an estimate of each uncertain grade."""
        judges = self.store.current_judges("grade")
        answers: dict[Key, dict[int, Answer]] = {}
        for query, doc, judge, *values in self.store.rows(
            "SELECT query, doc, judge, grade, mean, sd, failure, reply FROM pairs JOIN "
            "(SELECT pair, judge, grade, mean, sd, failure, reply FROM answers "
            f"WHERE judge IN {sql_list(judges)}) USING (pair)"
        ):
            answers.setdefault((query, doc), {})[judge] = Answer(*values)
        if len(judges) == 1:
            rows, estimates = _grades_of_one({k: by[judges[0]] for k, by in answers.items()})
        else:
            rows, estimates = self._grades_of_panel(answers, judges)
        with self.store.transaction():
            self.store.replace("grades", rows)
        return estimates

    def _grades_of_panel(
        self, answers: dict[Key, dict[int, Answer]], judges: Sequence[int]
    ) -> tuple[list[Row], GradeEstimates]:
        """Combine the grades of several judges; store how reliable each is."""
        labels = people_grades(self.store.active_corrections())
        keys = sorted(answers)
        no_answer = Answer(grade=None, mean=None, sd=None, failure=None, reply=0)
        votes = [
            [answers[key].get(judge, no_answer).grade or 0 for judge in judges] for key in keys
        ]
        known = [labels[key].grade if key in labels else 0 for key in keys]
        combined = combine_grades(
            np.array(votes).reshape(-1, len(judges)), np.array(known, np.int64)
        )
        rows: list[Row] = []
        estimates: GradeEstimates = {}
        for index, key in enumerate(keys):
            grade = int(combined.grade[index]) or None
            answers_of_key = [answers[key][judge] for judge in judges if judge in answers[key]]
            closest = min(
                answers_of_key, key=lambda answer: abs((answer.grade or 9) - (grade or 0))
            )
            rows.append((*key, grade, None if grade else closest.failure, closest.reply))
            estimates[key] = float(combined.mean[index]), float(combined.sd[index])
        accuracy, distance = combined.accuracy.tolist(), combined.mean_distance.tolist()
        figures = [{"right": a, "apart": d} for a, d in zip(accuracy, distance, strict=True)]
        self.store_reliability(judges, figures)
        return rows, estimates

    def store_reliability(self, judges: Sequence[int], figures: Sequence[dict[str, float]]) -> None:
        """Store how reliable each judge of a panel is; NaN leaves an earlier value."""
        stored = self.store.meta("reliability") or {}
        for judge, values in zip(map(str, judges), figures, strict=True):
            known = {name: value for name, value in values.items() if value == value}
            stored[judge] = stored.get(judge, {}) | known
        self.store.set_meta("reliability", stored)

    def _regraded(self) -> dict[Key, int]:
        """People's grades, where they differ from the judge's."""
        judge_grades = {
            (query, doc): grade
            for query, doc, grade in self.store.rows("SELECT query, doc, grade FROM grades")
        }
        labels = people_grades(self.store.active_corrections(), judge_grades)
        return {
            key: label.grade
            for key, label in labels.items()
            if label.grade != judge_grades.get(key)
        }

    def _prune(self) -> None:
        """Store the passages to be put in order, chosen by the grades of judges and people."""
        self._combine_grades()  # again: people's labels may have changed which judge is reliable
        regraded = self._regraded()
        pools = group_rows(
            self.store.rows(
                "SELECT query, doc, grade FROM pool LEFT JOIN grades USING (query, doc) "
                "ORDER BY query, pool.position"
            )
        )
        rows: list[Row] = []
        for query, pool in pools.items():
            grades = [regraded.get((query, doc), grade) for doc, grade in pool]
            chosen = prune(grades, self.settings.pruning)
            rows += [(query, pool[index][0], position) for position, index in enumerate(chosen, 1)]
        with self.store.transaction():
            self.store.replace("subset", rows)

    # ----------------------------------------------------------------------------- the judges

    def pools(self) -> list[QueryPool]:
        """Every query with its pool; see `read_pools`."""
        return read_pools(self.store, self.settings.passage_chars)

    def texts(self) -> dict[Key, tuple[str, str]]:
        """(question, passage) of every pooled (query, doc), as the judge is shown them."""
        return {
            (pool.query, doc): (pool.question, text)
            for pool in self.pools()
            for doc, text in pool.passages()
        }

    @contextmanager
    def prepared(self) -> Iterator[list[Member]]:
        """Open the judge, or the judges of a panel, prepared for all pools."""
        with ExitStack() as exits:
            if self.judge is not None:
                panel = [Member("", members(self.settings.judge).get(""), self.judge)]
            else:
                panel = []
                for name, chosen in members(self.settings.judge).items():
                    judge = make_judge(self.settings, self.inputs.qrels, chosen)
                    exits.callback(judge.close)
                    panel.append(Member(name, chosen, judge))
            for member in panel:
                member.judge.prepare(self.pools())
            self._store_judge(panel)
            yield panel

    def judge_id(self, judge: Judge, kind: Kind) -> int:
        """The judge's id in the store, under the current prompt."""
        return self.store.judge_id(judge_identity(judge, kind, self.prompts[kind].digest))

    @contextmanager
    def clients(
        self, panel: Sequence[Member], label: str, total: float
    ) -> Iterator[list[JudgeClient]]:
        """Clients of these judges, which report `total` requests to one progress bar."""
        limits = self.settings.limits
        with progress(label, total):
            yield [
                JudgeClient(
                    self.store,
                    member.judge,
                    price=judge_price(self.settings, member.settings)[0],
                    max_cost=limits.max_cost,
                    concurrency=limits.concurrency,
                )
                for member in panel
            ]

    def _store_judge(self, panel: Sequence[Member]) -> None:
        """Store who judges, as `status` and exports name it."""
        described: list[dict[str, Any]] = [
            {
                "name": member.name or member.judge.name,
                "model": member.judge.model,
                "parameters": member.judge.parameters,
                "simulated": member.judge.simulated,
                "numbers": {kind: self.judge_id(member.judge, kind) for kind in self.prompts},
            }
            for member in panel
        ]
        judge = described[0] if len(described) == 1 else _describe_panel(described)
        judge_type = describe_choice(self.judge or self.settings.judge)["type"]
        prompts = {kind: prompt.digest for kind, prompt in self.prompts.items()}
        self.store.set_meta("judge", {"type": judge_type, **judge, "prompts": prompts})


def _describe_panel(panel: list[dict[str, Any]]) -> dict[str, Any]:
    """Describe a panel by its members; raise InputError if two would be the same judge."""
    ids = [member["numbers"]["grade"] for member in panel]
    for member in panel:
        if ids.count(member["numbers"]["grade"]) > 1:
            raise InputError(
                f"{member['name']} is in the panel twice",
                place="judge",
                remedy="name judges that differ in model or temperature",
            )
    return {
        "name": " + ".join(member["name"] for member in panel),
        "model": " + ".join(member["model"] for member in panel),
        "parameters": {member["name"]: member["parameters"] for member in panel},
        "simulated": any(member["simulated"] for member in panel),
        "members": panel,
    }


def _grades_of_one(answers: dict[Key, Answer]) -> tuple[list[Row], GradeEstimates]:
    """Rows of `grades` from the answers of a single judge, and those it was unsure of."""
    rows = [(*key, answer.grade, answer.failure, answer.reply) for key, answer in answers.items()]
    estimates = {
        key: (answer.mean, answer.sd)
        for key, answer in answers.items()
        if answer.mean is not None and answer.sd is not None
    }
    return rows, estimates


def pool_digests(
    settings: GoldenSettings, inputs: Inputs, queries: Sequence[tuple[str, str]]
) -> dict[Stage, str]:
    """Digest of all that the pools of these queries depend on, by stage."""
    files = {role: file for role, file in inputs.digests.items() if role != "queries"}
    previous: Any = [files, settings.seed, queries]
    digests: dict[Stage, str] = {}
    for stage in STAGES[: STAGES.index("grade")]:
        parts = {name: value_identity(getattr(settings, name)) for name in _STAGE_SETTINGS[stage]}
        previous = digests[stage] = digest([previous, stage, parts])
    return digests


def store_path(settings: GoldenSettings, config: Path) -> Path:
    """The file that holds the golden set of a configuration file."""
    return settings.store or config.with_name(f"{config.stem}.golden")


def read_prompts(settings: GoldenSettings) -> dict[Kind, Prompt]:
    """The configured prompts, or the built-in ones."""
    return {
        kind: read_prompt(kind, settings.language, getattr(settings.prompts, kind))
        for kind in get_args(Kind)
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
        pool.texts.append(truncate(text, passage_chars))
    return list(pools.values())


def ungraded(
    store: Store, pools: Sequence[QueryPool], judge_id: int, last_reply: int | None = None
) -> list[QueryPool]:
    """The pools without what a judge has graded or failed on, in replies up to `last_reply`.

    Of passages with the same text only the first is kept.
    """
    sql = "SELECT pair FROM answers WHERE judge = ? AND reply <= COALESCE(?, reply)"
    known = {pair for (pair,) in store.rows(sql, (judge_id, last_reply))}
    open_pools = []
    for pool in pools:
        remaining = QueryPool(pool.query, pool.question, [], [])
        for doc, text in pool.passages():
            pair = pair_digest(pool.question, text)
            if pair not in known:
                known.add(pair)
                remaining.documents.append(doc)
                remaining.texts.append(text)
        if remaining.documents:
            open_pools.append(remaining)
    return open_pools


def grade_requests(
    pools: Sequence[QueryPool], settings: GoldenSettings, prompt: Prompt
) -> list[Request]:
    """Requests for each pool in batches, best passages first."""
    size = settings.grading.batch
    return [
        make_request(
            "grade",
            prompt,
            query=pool.query,
            question=pool.question,
            passages=list(pool.passages())[start : start + size],
            seed=settings.seed,
            passage_chars=settings.passage_chars,
        )
        for pool in pools
        for start in range(0, len(pool.documents), size)
    ]


def judge_price(settings: GoldenSettings, judge: Any = None) -> tuple[TokenPrice | None, str]:
    """The price of a judge (the configured one if None), and where it comes from, in words."""
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
    per_million = prices.per_million(judge.model)
    date = prices.models[judge.model].date or prices.date
    source = f"prices of {date}; output tokens counted at the price of input, as no other is given"
    if warnings := prices.stale(models=[judge.model]):
        source = "; ".join([source, *warnings])
    return TokenPrice(input_per_1m=per_million, output_per_1m=per_million), source


def _without_versions(value: Any) -> Any:
    """Remove package versions from an identity: an upgrade does not make another golden set."""
    plain = json.loads(json.dumps(value, default=str))
    if isinstance(plain, dict):
        return {k: _without_versions(v) for k, v in plain.items() if k != "versions"}
    return plain
