"""Judges and prompts side by side on a slice that people labelled, before one of them is paid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankproof.data import read_qrels
from rankproof.foundation.errors import InputError
from rankproof.golden.building import Build, Member
from rankproof.golden.checking import RELEVANT, against_people, on_rubric
from rankproof.golden.instructions import PLANTED
from rankproof.golden.judge_client import JudgeUnresponsive
from rankproof.golden.judgments import Reply
from rankproof.golden.pooling import Inputs
from rankproof.golden.requests import make_request
from rankproof.golden.result import read_golden
from rankproof.golden.settings import GoldenSettings, PromptSettings
from rankproof.golden.store import Store
from rankproof.retrieval.http import Refused
from rankproof.statistics.resampling import first_of_permutation


@dataclass(frozen=True, slots=True)
class Trial:
    """One judge, or one prompt, on the slice."""

    name: str
    passages: int
    read: float  # share of the requests whose first reply could be read
    failed: int  # passages without a grade in the end
    kappa: float | None  # with people's labels; None: not defined
    low: float | None
    high: float | None
    constant: float | None  # share of replies on several passages that give all of them one grade
    tokens_in: float  # for each passage
    tokens_out: float
    seconds: float  # of a call
    cost: float | None
    followed: float | None  # share of planted instructions that were obeyed; None: none planted
    labels: str | None = None  # what people's labels were taken for: 1–5 or binary
    problem: str | None = None  # what ended its trial, where something did

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def try_judges(
    settings: GoldenSettings,
    variants: Mapping[str, tuple[Any, PromptSettings]],
    path: Path,
    *,
    sample: int = 10,
    passages: int = 10,
    planted: int = 0,
    tell: Callable[[str], None] | None = None,
) -> list[Trial]:
    """Grade the pools of some labelled queries by each judge and prompt.

    Replies stay in the store at `path`: the same trial again asks nothing.
    """
    depths = settings.depths.model_copy(update={"pool": passages})
    slice_ = {"only_judged": True, "sample": sample, "depths": depths}
    found = []
    with Store(path, create=True) as store:
        for name, (judge, prompts) in variants.items():
            chosen = settings.model_copy(update={**slice_, "judge": judge, "prompts": prompts})
            build = Build(chosen, store, tell=tell)
            for stage in ("rewrite", "retrieve", "merge"):
                build.run(stage)
            try:
                build.run("grade")
                found.append(_trial(name, build, planted))
            except (JudgeUnresponsive, Refused) as failure:  # the others are still tried
                found.append(_halted(name, build, failure))
    return found


def _halted(name: str, build: Build, failure: InputError) -> Trial:
    """A judge that could not be asked to the end."""
    pooled = sum(len(pool.documents) for pool in build.pools())
    nothing = (None, None, None, None, 0.0, 0.0, 0.0, None, None)
    return Trial(name, pooled, 0.0, pooled, *nothing, problem=str(failure))


def _trial(name: str, build: Build, planted: int) -> Trial:
    store, qrels = build.store, _labels(build.inputs)
    golden = read_golden(store)
    with build.prepared() as (member,):
        who = build.number(member.judge, "grade")
        followed = _followed(build, member, planted) if planted else None
    replies = store.replies("kind = 'grade' AND judge = ? AND retired = 0 AND repeat = 0", (who,))
    first = [reply for reply in replies if reply.attempt == 1]
    graded = [reply for reply in replies if isinstance(reply.result, dict)]
    wide = [set(_grades(reply)) for reply in graded if len(reply.documents) > 1]
    shown = max(1, sum(len(reply.documents) for reply in replies))
    labels = read_qrels(qrels)
    lowest = RELEVANT if on_rubric(labels) else 1
    only = int(labels.grade.min()) >= lowest  # what is relevant, and the rest is not
    try:
        both = against_people(golden, qrels, unjudged="zero" if only else "skip")
        kappa, scale = both.agreement.coefficients["κ"].to_dict(), both.scale
    except InputError:  # nothing was graded
        kappa, scale = {}, None
    costs = [reply.cost for reply in replies]
    low, high = kappa.get("ci") or (None, None)
    return Trial(
        name,
        golden.counts.total,
        sum(reply.result is not None for reply in first) / max(1, len(first)),
        golden.counts.failed,
        kappa.get("value"),
        low,
        high,
        sum(len(grades) == 1 for grades in wide) / len(wide) if wide else None,
        sum(reply.tokens_in for reply in replies) / shown,
        sum(reply.tokens_out for reply in replies) / shown,
        sum(reply.seconds for reply in replies) / max(1, len(replies)),
        None if None in costs else sum(cost or 0.0 for cost in costs),
        *(followed, scale),
    )


def _followed(build: Build, member: Member, most: int) -> float | None:
    """The share of poor passages that rise to 4 or 5 once they say that they are a 5."""
    who = build.number(member.judge, "grade")
    rows = build.store.rows(
        "SELECT pairs.query, pairs.doc FROM pairs JOIN answers USING (pair) "
        "WHERE judge = ? AND grade <= 3 ORDER BY 1, 2",
        (who,),
    )
    texts = build.texts()
    chosen = first_of_permutation(len(rows), most, build.settings.seed)
    requests = []
    for query, doc in sorted(rows[at] for at in chosen.tolist()):
        question, text = texts[query, doc]
        passage = (doc, f"{text}\n\n{PLANTED[build.settings.language]}")
        requests.append(  # a repeat: what it is said of is no passage of the set
            make_request("grade", build.prompts["grade"], query, question, [passage], repeat=1)
        )
    with build.askers([member], "planting", len(requests)) as (asker,):
        said = [grade for reply in asker.ask(requests) for grade in _grades(reply)]
    return sum(grade >= 4 for grade in said) / len(said) if said else None


def _grades(reply: Reply) -> list[int]:
    return list(reply.result.values()) if isinstance(reply.result, dict) else []


def _labels(inputs: Inputs) -> Path:
    if inputs.qrels is None:
        raise InputError("a trial without labels", remedy="name people's labels under qrels")
    return inputs.qrels
