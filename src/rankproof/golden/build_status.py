"""How far along a golden set is, what failed, and what it cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from rankproof.foundation.locks import lock_owner
from rankproof.foundation.phrasing import out_of, plural
from rankproof.golden.annotators import AnnotatorProgress, annotator_progress
from rankproof.golden.health import Health, MemberHealth, judge_health, panel_health
from rankproof.golden.instructions import instruction
from rankproof.golden.result import count_passages, read_queries
from rankproof.golden.stale import find_stale
from rankproof.golden.store import FINAL_FAILURE, Store, sql_list
from rankproof.presentation.display import Displayed
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Column, Table

_MAX_LISTED = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One stage of a build."""

    name: str
    done: bool
    what: str  # in words


@dataclass(frozen=True)
class GoldenStatus(Displayed):
    """What a golden set holds, what failed, and what it cost."""

    kind: ClassVar[str] = "status"

    steps: list[Step]
    judge: str | None
    simulated: bool
    queries: int
    pooled: int
    graded: int
    failed: int
    orders: int  # with a result
    orders_failed: int
    replies: int
    tokens_in: int
    tokens_out: int
    cost: float | None  # None if the price of a reply is not known
    validated: int  # passages that people graded, even if as the judge did
    corrected: int  # passages that people gave another grade or place
    writer: str | None
    failures: dict[str, int]  # why passages have no grade, and orders failed → how often
    stale: dict[str, int]  # why something does not count any more → how often
    health: Health
    judges: list[MemberHealth]  # of a panel; [] if one judges alone
    people: list[AnnotatorProgress]
    instructions: list[str]  # passages that may contain a prompt injection
    problem: str | None = None  # why every call of a build failed
    path: str = ""  # of the golden set, as in a command

    @property
    def spending(self) -> str:
        """Requests, tokens and cost in words."""
        tokens = f"{plural(self.replies, 'request')}, {self.tokens_in + self.tokens_out:,} tokens"
        if self.cost is None:
            return f"{tokens}; price of {self.judge} unknown (set judge.price)."
        return f"{tokens}, ${self.cost:.4f}."

    @property
    def exit_code(self) -> int:
        """1 if a build got no usable reply at all."""
        return int(self.problem is not None)

    @property
    def warnings(self) -> list[str]:
        return [] if self.problem is None else [self.problem]

    def summary(self) -> Summary:
        """How far the build is, whether a person checked a grade, and what it cost."""
        lines = [self._progress(), self._checks(), self.spending]
        return Summary.of("\n".join(lines), self._notes(), details=self._stages())

    def _progress(self) -> str:
        """Return how many passages are graded, by whom, and what failed."""
        pending = [step.name for step in self.steps if not step.done]
        failed = f"{self.failed:,} failed" if self.failed else "none failed"
        state = f"In progress ({', '.join(pending)} to do)" if pending else "Done"
        judge = "the simulated judge (no evidence of anything)" if self.simulated else self.judge
        graded = out_of(self.graded, self.pooled, "passage", "graded", "graded")
        by = f" by {judge}" if judge else ""
        return f"{state}: {graded}{by} for {plural(self.queries, 'question')}, {failed}."

    def _checks(self) -> str:
        """Return what annotators checked."""
        if not (self.validated or self.corrected):
            return f"No person has checked a grade yet: rankproof golden view {self.path}"
        labels = f"{self.validated:,} validated and {self.corrected:,} corrected"
        by_annotator = f" ({', '.join(map(str, self.people))})" if self.people else ""
        return f"Annotators: {labels}{by_annotator}."

    def tables(self) -> list[Table]:
        return []

    def full_tables(self) -> list[Table]:
        columns = [Column("stage", "text"), Column("done", "text")]
        columns.append(Column("what", "text", prose=True))
        rows = [(step.name, "yes" if step.done else "no", step.what) for step in self.steps]
        return [Table(columns, rows)]

    def _stages(self) -> list[str]:
        return [f"{step.name}: {step.what}" for step in self.steps]

    def figures(self) -> dict[str, float]:
        names = ("queries", "pooled", "graded", "failed", "orders", "replies")
        return {name: float(getattr(self, name)) for name in names}

    def _notes(self) -> list[str]:
        """Return failures and what is unusual in the judge's replies, the weightiest first."""
        notes = [f"Failed: {count:,} × {words}" for words, count in self.failures.items()]
        notes += [member.line() for member in self.judges] or self.health.lines()
        if self.instructions:
            passages = plural(len(self.instructions), "passage")
            listed = shorten_list(self.instructions)
            notes.append(f"{passages} may contain a prompt injection: {listed}")
        if self.stale:
            reasons = ", ".join(f"{count:,} ({reason})" for reason, count in self.stale.items())
            notes.append(f"Stored but not counted: {reasons}")
        if self.writer:
            notes.append(f"Being written by {self.writer}")
        return notes

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self) | {"waiting": self.pooled - self.graded - self.failed}
        del values["problem"], values["path"]
        return values


def shorten_list(names: Sequence[str | Sequence[str]]) -> str:
    """The first few of many names; a name in several parts is joined by blanks."""
    shown = [name if isinstance(name, str) else " ".join(name) for name in names[:_MAX_LISTED]]
    return ", ".join([*shown, "…"] if len(names) > _MAX_LISTED else shown)


def read_status(store: Store, problem: str | None = None) -> GoldenStatus:
    """Read the status of a golden set; while it is built, from the replies so far."""
    judge = store.meta("judge") or {}
    counts = _Counts(store)
    corrections = store.active_corrections()
    labeled = count_passages(read_queries(store, reorder=False)) if corrections else None
    ((replies, tokens_in, tokens_out, cost, unpriced),) = store.rows(
        "SELECT COUNT(*), SUM(tokens_in), SUM(tokens_out), SUM(cost), SUM(cost IS NULL) "
        "FROM replies"
    )
    writer = None if store.write else lock_owner(store.path)
    stale = Counter(item.reason for item in find_stale(store))
    passages = store.rows("SELECT doc, text FROM passages")
    return GoldenStatus(
        steps=counts.steps(),
        judge=judge.get("name"),
        simulated=bool(judge.get("simulated")),
        queries=counts.queries,
        pooled=counts.pooled,
        graded=counts.graded,
        failed=counts.failed,
        orders=counts.orders,
        orders_failed=counts.orders_failed,
        replies=replies,
        tokens_in=tokens_in or 0,
        tokens_out=tokens_out or 0,
        cost=None if unpriced else float(cost or 0.0),
        validated=labeled.validated if labeled else 0,
        corrected=labeled.corrected if labeled else 0,
        writer=None if writer is None else str(writer),
        failures=_frequent_failures(store),
        stale=dict(sorted(stale.items())),
        health=judge_health(store),
        judges=panel_health(store),
        people=annotator_progress(store, corrections),
        instructions=[doc for doc, text in passages if instruction(text)],
        problem=problem,
        path=str(store.path),
    )


class _Counts:
    """How many queries, passages, grades and orders there are.

    `grades` and `refined` are written when a stage ends; before that, replies are counted.
    """

    def __init__(self, store: Store):
        """Count what the stages stored, or the replies of a stage that has not ended."""
        self.store = store
        self.done = store.meta("done", {})
        self.queries = store.number("SELECT COUNT(*) FROM queries")
        self.pooled = store.number("SELECT COUNT(*) FROM pool")
        graded = "grades"
        if "grade" not in self.done:
            judges = sql_list(store.current_judges("grade"))
            answered = f"FROM pairs JOIN answers USING (pair) WHERE judge IN {judges}"
            graded = f"(SELECT MAX(grade) AS grade {answered} GROUP BY pairs.query, pairs.doc)"
        self.graded = store.number(f"SELECT COUNT(grade) FROM {graded}")
        self.failed = store.number(f"SELECT COUNT(*) - COUNT(grade) FROM {graded}")
        if "rank" in self.done:
            self.orders = store.number("SELECT SUM(calls) - SUM(failed) FROM refined")
            self.orders_failed = store.number("SELECT SUM(failed) FROM refined")
        else:
            judges = sql_list(store.current_judges("order"))
            current = f"kind = 'order' AND retired = 0 AND judge IN {judges}"
            replies = f"SELECT COUNT(*) FROM replies WHERE {current} AND"
            self.orders = store.number(f"{replies} result NOT NULL")
            self.orders_failed = store.number(f"{replies} {FINAL_FAILURE}")

    def steps(self) -> list[Step]:
        """Every stage with its counts in words."""
        store = self.store
        is_rewritten = "asked IS NOT NULL AND asked <> text"
        rewritten = store.number(f"SELECT COUNT(*) FROM queries WHERE {is_rewritten}")
        lists = store.rows(
            "SELECT list, COUNT(*) FROM retrieved WHERE list NOT LIKE '%~%' "
            "GROUP BY list ORDER BY list"
        )
        retrieved = ", ".join(f"{count:,} by {name}" for name, count in lists)
        earlier = store.number("SELECT COUNT(*) FROM retrieved WHERE list LIKE '%~%'")
        if earlier:
            retrieved += f", {earlier:,} from earlier lists"
        subset = store.number("SELECT COUNT(*) FROM subset")
        ends = store.rows("SELECT reason, COUNT(*) FROM refined GROUP BY reason ORDER BY reason")
        ranked = f"{plural(self.orders, 'order')}, {self.orders_failed:,} failed"
        if ends:
            ranked += f"; ended {', '.join(f'{count} by {reason}' for reason, count in ends)}"
        words = {
            "rewrite": f"{plural(self.queries, 'query')}, {rewritten} rewritten",
            "retrieve": retrieved,
            "merge": f"{plural(self.pooled, 'passage')} pooled",
            "grade": f"{self.graded:,} graded, {self.failed:,} failed, {self.pooled:,} in all",
            "prune": f"{plural(subset, 'passage')} to be put in order",
            "rank": ranked,
        }
        return [Step(stage, stage in self.done, text) for stage, text in words.items()]


def _frequent_failures(store: Store) -> dict[str, int]:
    """The three most frequent reasons for a passage without grade or a failed order."""
    rows = store.rows(
        "SELECT failure, COUNT(*) AS times FROM ("
        "SELECT failure FROM grades WHERE grade IS NULL UNION ALL "
        "SELECT failure FROM orders JOIN replies ON orders.reply = replies.id "
        "WHERE replies.result IS NULL) "
        "WHERE failure NOT NULL GROUP BY failure ORDER BY times DESC, failure LIMIT 3"
    )
    return dict(rows)


def failed_completely(store: Store) -> str | None:
    """Why every call for grades, or every call for orders, failed; None if some succeeded."""
    counts = _Counts(store)
    for kind, usable, failed, words in (
        ("grade", counts.graded, counts.failed, ("passage", "has no grade", "have no grade")),
        ("order", counts.orders, counts.orders_failed, ("order", "is of no use", "are of no use")),
    ):
        if failed and not usable:
            failures = store.rows(
                f"SELECT failure FROM replies WHERE kind = ? AND retired = 0 AND {FINAL_FAILURE}",
                (kind,),
            )
            ((failure, _),) = Counter(str(failure) for (failure,) in failures).most_common(1)
            return (
                f"{out_of(failed, failed, *words)}: {failure}; "
                "see to it, then run again with --retry-failed"
            )
    return None
