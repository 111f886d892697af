"""Try judges and prompts side by side on passages that people labeled, before paying for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from rankproof.data import read_qrels
from rankproof.foundation.errors import InputError
from rankproof.golden.building import Build, Member
from rankproof.golden.instructions import PLANTED
from rankproof.golden.judge_agreement import (
    RELEVANT_GRADE,
    HumanAgreement,
    compare_with_people,
    is_rubric_scale,
)
from rankproof.golden.judge_client import JudgeUnresponsive
from rankproof.golden.judgments import Reply
from rankproof.golden.requests import make_request
from rankproof.golden.result import Golden, read_golden
from rankproof.golden.settings import GoldenSettings, PromptSettings
from rankproof.golden.store import Store
from rankproof.presentation.display import Displayed
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.retrieval.http import Refused
from rankproof.statistics.resampling import first_of_permutation


@dataclass(frozen=True, slots=True)
class Trial:
    """One judge, or one prompt, on the labeled passages."""

    name: str
    passages: int
    read: float = 0.0  # share of the requests whose first reply was usable
    failed: int = 0  # passages without a grade in the end
    kappa: float | None = None  # agreement with people's labels; None: not defined
    low: float | None = None
    high: float | None = None
    constant: float | None = None  # share of replies on several passages with a single grade
    tokens_in: float = 0.0  # for each passage
    tokens_out: float = 0.0
    seconds: float = 0.0  # of a call
    cost: float | None = None
    followed: float | None = None  # share of planted instructions obeyed; None: none planted
    labels: str | None = None  # what people's labels were taken for: 1–5 or binary
    problem: str | None = None  # what ended the trial early


@dataclass(frozen=True)
class Trials(Displayed):
    """All judges and prompts that were tried."""

    kind: ClassVar[str] = "golden try"

    trials: tuple[Trial, ...]
    planted: int = 0  # passages with a planted instruction

    @property
    def exit_code(self) -> int:
        """1 if every trial ended early."""
        return int(all(trial.problem is not None for trial in self.trials))

    @property
    def warnings(self) -> list[str]:
        return [f"{trial.name}: {trial.problem}" for trial in self.trials if trial.problem]

    def tables(self) -> list[Table]:
        """A row for each judge or prompt that was tried."""
        # A narrow terminal drops columns from the right.
        names = ["read", "κ", "low", "high", "constant", "in", "out", "seconds"]
        names += [*(["followed"] if self.planted else []), "failed", "passages"]
        columns = [Column("judge", "text", folds=True), *map(Column, names)]
        obeyed = "; followed: planted instructions that were obeyed" if self.planted else ""
        scale = next((f", taken as {t.labels}" for t in self.trials if t.labels), "")
        notes = [
            f"read: replies of which the first could be used; κ with people's labels{scale}, "
            "95% interval",
            "constant: one grade for all passages of a request; in, out: tokens for each passage; "
            f"seconds for a call{obeyed}",
        ]
        return [Table(columns, [self._row(trial) for trial in self.trials], notes=notes)]

    def _row(self, trial: Trial) -> tuple[Cell, ...]:
        """The cells of a trial."""
        followed: list[Cell] = [_percent(trial.followed)] if self.planted else []
        return (
            trial.name,
            _percent(trial.read),
            trial.kappa,
            trial.low,
            trial.high,
            _percent(trial.constant),
            f"{trial.tokens_in:.0f}",
            f"{trial.tokens_out:.0f}",
            f"{trial.seconds:.2f}",
            *followed,
            trial.failed,
            trial.passages,
        )

    def figures(self) -> dict[str, float]:
        return {f"{t.name}/kappa": t.kappa for t in self.trials if t.kappa is not None}

    def to_dict(self) -> dict[str, Any]:
        return {"trials": [asdict(trial) for trial in self.trials]}


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def try_judges(
    settings: GoldenSettings,
    variants: Mapping[str, tuple[Any, PromptSettings]],
    path: Path,
    *,
    sample: int = 10,
    passages: int = 10,
    planted: int = 0,
) -> Trials:
    """Grade the pools of some labeled queries with each (judge, prompts) variant, by name.

    Replies stay in the store at `path`, so that the same trial again asks nothing.
    """
    depths = settings.depths.model_copy(update={"pool": passages})
    update = {"only_judged": True, "sample": sample, "depths": depths}
    trials = []
    with Store(path, create=True) as store:
        for name, (judge, prompts) in variants.items():
            variant = settings.model_copy(update=update | {"judge": judge, "prompts": prompts})
            build = Build(variant, store)
            for stage in ("rewrite", "retrieve", "merge"):
                build.run(stage)
            try:
                build.run("grade")
                trials.append(_measure(name, build, planted))
            except (JudgeUnresponsive, Refused) as error:  # the others are tried nevertheless
                pooled = sum(len(pool.documents) for pool in build.pools())
                trials.append(Trial(name, pooled, failed=pooled, problem=str(error)))
    return Trials(tuple(trials), planted)


def _measure(name: str, build: Build, planted: int) -> Trial:
    """Measure a judge whose grades are in the store."""
    store, golden = build.store, read_golden(build.store)
    with build.prepared() as (member,):
        judge_id = build.judge_id(member.judge, "grade")
        followed = _followed_share(build, member, planted) if planted else None
    condition = "kind = 'grade' AND judge = ? AND retired = 0 AND repeat = 0"
    replies = store.replies(condition, (judge_id,))
    first_attempts = [reply for reply in replies if reply.attempt == 1]
    batches = [_grades(reply) for reply in replies if len(reply.documents) > 1]
    batches = [grades for grades in batches if grades]
    is_constant = [len(set(grades)) == 1 for grades in batches]
    shown = max(1, sum(len(reply.documents) for reply in replies))
    costs = [reply.cost for reply in replies]
    comparison = _compare_with_labels(build, golden)
    kappa = comparison.agreement.coefficients["κ"].to_dict() if comparison else {}
    low, high = kappa.get("ci") or (None, None)
    usable = sum(reply.result is not None for reply in first_attempts)
    return Trial(
        name=name,
        passages=golden.counts.total,
        read=usable / max(1, len(first_attempts)),
        failed=golden.counts.failed,
        kappa=kappa.get("value"),
        low=low,
        high=high,
        constant=sum(is_constant) / len(is_constant) if is_constant else None,
        tokens_in=sum(reply.tokens_in for reply in replies) / shown,
        tokens_out=sum(reply.tokens_out for reply in replies) / shown,
        seconds=sum(reply.seconds for reply in replies) / max(1, len(replies)),
        cost=None if None in costs else sum(cost or 0.0 for cost in costs),
        followed=followed,
        labels=comparison.scale if comparison else None,
    )


def _compare_with_labels(build: Build, golden: Golden) -> HumanAgreement | None:
    """Agreement with people's labels; None if nothing was graded."""
    path = build.inputs.qrels
    if path is None:
        raise InputError("a trial without labels", remedy="name people's labels under qrels")
    labels = read_qrels(path)
    threshold = RELEVANT_GRADE if is_rubric_scale(labels) else 1
    only_relevant = int(labels.grade.min()) >= threshold  # then all other passages are not
    try:
        return compare_with_people(golden, path, unjudged="zero" if only_relevant else "skip")
    except InputError:
        return None


def _followed_share(build: Build, member: Member, passages: int) -> float | None:
    """The share of poor passages that get a 4 or 5 if they contain the instruction to do so."""
    rows = build.store.rows(
        "SELECT pairs.query, pairs.doc FROM pairs JOIN answers USING (pair) "
        "WHERE judge = ? AND grade <= 3 ORDER BY 1, 2",
        (build.judge_id(member.judge, "grade"),),
    )
    texts = build.texts()
    chosen = first_of_permutation(len(rows), passages, build.settings.seed)
    requests = []
    for query, doc in sorted(rows[index] for index in chosen.tolist()):
        question, text = texts[query, doc]
        planted = (doc, f"{text}\n\n{PLANTED[build.settings.language]}")
        prompt = build.prompts["grade"]
        # As a repeat, because the reply is about a passage that is not in the golden set.
        requests.append(
            make_request(
                "grade", prompt, query=query, question=question, passages=[planted], repeat=1
            )
        )
    with build.clients([member], "planting", len(requests)) as (client,):
        grades = [grade for reply in client.ask(requests) for grade in _grades(reply)]
    return sum(grade >= 4 for grade in grades) / len(grades) if grades else None


def _grades(reply: Reply) -> Sequence[int]:
    return list(reply.result.values()) if isinstance(reply.result, dict) else []
