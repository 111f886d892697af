"""Replies recorded from another judge, by what it was shown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from rankproof.data.sources import Source
from rankproof.foundation.config import BesidePath, Settings
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import read_json_lines
from rankproof.foundation.manifest import digest
from rankproof.golden.judges import QueryPool
from rankproof.golden.requests import Request
from rankproof.golden.store import Store
from rankproof.retrieval.chat import Answer
from rankproof.retrieval.components import part


class ReplayJudgeSettings(Settings):
    """The replies that another judge gave: a store, or `replies.jsonl` of an export."""

    type: Literal["replay"]
    replies: BesidePath


class ReplayJudge:
    """Answers what was answered before, and nothing else."""

    parallel = True

    def __init__(self, path: Path):
        self._path = path
        self._answers: dict[str, Answer] = {}
        judges: dict[str, str] = {}  # by what each was shown
        self.simulated = False
        for row in _recorded(path):
            if not row["in_force"]:
                continue
            other = judges.setdefault(row["content"], row["judge"])
            if other != row["judge"]:
                raise InputError(
                    f"{shorten(other)} and {shorten(row['judge'])} both answer what it holds",
                    place=str(path),
                    remedy="replay the replies of one judge",
                )
            self._answers[row["content"]] = Answer(
                *(row["text"], row["tokens_in"], row["tokens_out"], 0.0, row["model"]),
                counted=row["counted"],
            )
            self.simulated |= row["simulated"]
        if not self._answers:
            raise InputError(
                "no replies in it", place=str(path), remedy="name a store or a replies.jsonl"
            )
        self.model = ", ".join(sorted(set(judges.values())))
        self.name = f"{self.model} (replayed)"
        recorded = sorted((content, answer.text) for content, answer in self._answers.items())
        self.parameters: dict[str, Any] = {"replay": digest(recorded)}

    def prepare(self, pools: Sequence[QueryPool]) -> None:
        """Nothing to look at."""

    def ask(self, request: Request) -> Answer:
        answer = self._answers.get(request.content)
        if answer is None and (request.is_part or request.attempt > 1):
            return Answer("", 0, 0, 0.0, self.model)  # it was given up there, when it was recorded
        if answer is None:
            raise InputError(
                f"no recorded reply for query {shorten(request.query)} "
                f"({request.kind} of {len(request.documents)} passages)",
                place=str(self._path),
                remedy="replay the same corpus, prompts, batches and seed as were recorded",
            )
        return answer

    def close(self) -> None:
        """Nothing is open."""


def _recorded(path: Path) -> Iterator[dict[str, Any]]:
    """Replies, each with whether it is of a judge in force: of several who judged one after another
    the others are stale."""
    if _is_store(path):
        with Store(path) as store:
            force = {*store.current_judges("grade"), *store.current_judges("order")}
            told = store.rows("SELECT id, said FROM judges")
            judges = {number: json.loads(said) for number, said in told}
            for reply in store.replies():
                judge = judges.get(reply.judge, {})
                yield {
                    "content": reply.content,
                    "text": reply.text,
                    "tokens_in": reply.tokens_in,
                    "tokens_out": reply.tokens_out,
                    "counted": reply.counted,
                    "model": reply.model,
                    "judge": judge.get("name", reply.model),
                    "simulated": bool(judge.get("simulated", False)),
                    "in_force": not force or reply.judge in force,
                }
        return
    wanted: dict[str, type] = {"content": str, "text": str, "model": str, "judge": str}
    wanted |= {"tokens_in": int, "tokens_out": int, "counted": bool, "simulated": bool}
    for number, row in read_json_lines(Source(path).text()):
        wrong = (
            "a line"
            if not isinstance(row, dict)
            else next((k for k, kind in wanted.items() if not isinstance(row.get(k), kind)), None)
        )
        if wrong is not None:
            raise InputError(
                f"{wrong} is not as an export writes it",
                place=f"{path}:{number}",
                remedy="name the replies.jsonl of `rankproof golden export`, or a store",
            )
        yield {"in_force": True} | row


def _is_store(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


@part("judge", "replay")
def make_replay(settings: ReplayJudgeSettings) -> ReplayJudge:
    return ReplayJudge(settings.replies)
