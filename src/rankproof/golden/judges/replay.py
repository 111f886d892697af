"""A judge that replays replies recorded from another one, found by what that one was shown."""

from __future__ import annotations

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
from rankproof.presentation.json_values import plain_fields
from rankproof.retrieval.chat import Answer
from rankproof.retrieval.components import part


class ReplayJudgeSettings(Settings):
    """Recorded replies: a store, or `replies.jsonl` of an export."""

    type: Literal["replay"]
    replies: BesidePath


class ReplayJudge:
    """Returns the recorded reply to a request; raises InputError if there is none."""

    parallel = True

    def __init__(self, path: Path):
        """Read all replies; raise InputError if several judges answered the same request."""
        self._path = path
        self._answers: dict[str, Answer] = {}
        judges: dict[str, str] = {}  # name by the digest of what was shown
        self.simulated = False
        for row in _read_replies(path):
            if not row["in_force"]:
                continue
            content, judge = row["content"], row["judge"]
            if judges.setdefault(content, judge) != judge:
                raise InputError(
                    f"{shorten(judges[content])} and {shorten(judge)} answered the same request",
                    place=str(path),
                    remedy="replay the replies of one judge",
                )
            self._answers[content] = Answer(
                text=row["text"],
                tokens_in=row["tokens_in"],
                tokens_out=row["tokens_out"],
                seconds=0.0,
                model=row["model"],
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
        """Do nothing: all replies are known."""

    def ask(self, request: Request) -> Answer:
        """Return the recorded reply."""
        answer = self._answers.get(request.content)
        if answer is None and (request.is_part or request.attempt > 1):
            # The recording gave up before this request.
            return Answer("", tokens_in=0, tokens_out=0, seconds=0.0, model=self.model)
        if answer is None:
            raise InputError(
                f"no recorded reply for query {shorten(request.query)} "
                f"({request.kind} of {len(request.documents)} passages)",
                place=str(self._path),
                remedy="replay the same corpus, prompts, batches and seed as were recorded",
            )
        return answer

    def close(self) -> None:
        """Do nothing: nothing is open."""


def _read_replies(path: Path) -> Iterator[dict[str, Any]]:
    """Read every reply; one of a judge that was replaced by another is not `in_force`."""
    if _is_store(path):
        with Store(path) as store:
            yield from _read_store(store)
        return
    for line, row in read_json_lines(Source(path).text()):
        problem = "a line" if not isinstance(row, dict) else _mistyped_key(row)
        if problem is not None:
            raise InputError(
                f"{problem} is not as an export writes it",
                place=f"{path}:{line}",
                remedy="name the replies.jsonl of `rankproof golden export`, or a store",
            )
        yield {"in_force": True} | row


def _read_store(store: Store) -> Iterator[dict[str, Any]]:
    """Read every reply of a store as an export writes it."""
    current = {*store.current_judges("grade"), *store.current_judges("order")}
    judges = store.judge_identities()
    for reply in store.replies():
        judge = judges.get(reply.judge, {})
        yield {
            **plain_fields(reply, "content", "text", "tokens_in", "tokens_out", "counted", "model"),
            "judge": judge.get("name", reply.model),
            "simulated": bool(judge.get("simulated", False)),
            "in_force": not current or reply.judge in current,
        }


def _mistyped_key(row: dict[str, Any]) -> str | None:
    """The first key whose value is absent or of another type than an export writes."""
    types: dict[str, type] = {"content": str, "text": str, "model": str, "judge": str}
    types |= {"tokens_in": int, "tokens_out": int, "counted": bool, "simulated": bool}
    return next((key for key, kind in types.items() if not isinstance(row.get(key), kind)), None)


def _is_store(path: Path) -> bool:
    """True for a SQLite file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"


@part("judge", "replay")
def make_replay(settings: ReplayJudgeSettings) -> ReplayJudge:
    """Make the judge from its settings."""
    return ReplayJudge(settings.replies)
