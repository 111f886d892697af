"""How far a golden set is."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from rankproof.foundation.locks import lock_owner
from rankproof.foundation.phrasing import out_of, plural
from rankproof.golden.annotators import Labeller, labellers
from rankproof.golden.health import Health, Proved, health, panel
from rankproof.golden.instructions import instruction
from rankproof.golden.judgments import Row
from rankproof.golden.result import count, read_queries
from rankproof.golden.store import LAST, Store

_STAGES = ("rewrite", "retrieve", "merge", "grade", "prune", "rank")


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    done: bool
    what: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What is there, what failed, what it cost."""

    steps: list[Step]
    judge: str | None
    simulated: bool
    queries: int
    pooled: int
    graded: int
    failed: int
    orders: int  # that the judge gave
    orders_failed: int
    replies: int
    tokens_in: int
    tokens_out: int
    cost: float | None  # None where some reply has no price
    validated: int  # passages that people graded, be it as the judge did
    corrected: int  # and those they gave another grade or place
    writer: str | None
    failures: dict[str, int]  # why passages have no grade, and orders failed → how often
    stale: dict[str, int]  # why something that was said does not count now → how often
    health: Health
    judges: list[Proved]  # of a panel, each; none where one judges alone
    people: list[Labeller]
    instructions: list[str]  # passages that speak to the judge

    @property
    def spending(self) -> str:
        spent = "cost not known" if self.cost is None else f"${self.cost:.4f}"
        return (
            f"{plural(self.replies, 'reply')}, {self.tokens_in:,} tokens in, "
            f"{self.tokens_out:,} out, "
            f"{spent}"
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"waiting": self.pooled - self.graded - self.failed}


def standing(store: Store) -> Standing:
    """Figures of the store; while it is being built, of the replies so far."""

    def number(sql: str) -> int:
        return int(store.rows(sql)[0][0] or 0)

    done = store.meta("done", {})
    judge = store.meta("judge") or {}
    queries = number("SELECT COUNT(*) FROM queries")
    pooled = number("SELECT COUNT(*) FROM pool")
    grades = "FROM grades WHERE grade IS NOT NULL"
    graded, failed = (
        number(f"SELECT COUNT(*) {grades}"),
        number("SELECT COUNT(*) FROM grades WHERE grade IS NULL"),
    )
    if "grade" not in done:  # the table is written when all is there; the replies come one by one
        who = ", ".join(map(str, store.in_force("grade")))
        answered = f"FROM pairs JOIN answers USING (pair) WHERE judge IN ({who})"
        each = f"(SELECT MAX(grade) AS grade {answered} GROUP BY pairs.query, pairs.doc)"
        graded = number(f"SELECT COUNT(grade) FROM {each}")
        failed = number(f"SELECT COUNT(*) - COUNT(grade) FROM {each}")
    ((calls, lost),) = store.rows("SELECT SUM(calls), SUM(failed) FROM refined")
    if "rank" in done:
        orders, orders_failed = (calls or 0) - (lost or 0), lost or 0
    else:
        who = ", ".join(map(str, store.in_force("order")))
        base = "SELECT COUNT(*) FROM replies WHERE kind = 'order' AND retired = 0 "
        base += f"AND judge IN ({who}) AND"
        orders, orders_failed = number(f"{base} result NOT NULL"), number(f"{base} {LAST}")
    said = store.active_corrections()
    people = count(read_queries(store, order=False)) if said else None
    subset = number("SELECT COUNT(*) FROM subset")
    ends = store.rows("SELECT reason, COUNT(*) FROM refined GROUP BY reason ORDER BY reason")
    ended = ", ".join(f"{times} by {reason}" for reason, times in ends)
    rewritten = number("SELECT COUNT(*) FROM queries WHERE asked IS NOT NULL AND asked <> text")
    lists = store.rows(
        "SELECT list, COUNT(*) FROM retrieved WHERE list NOT LIKE '%~%' GROUP BY list ORDER BY list"
    )
    earlier = number("SELECT COUNT(*) FROM retrieved WHERE list LIKE '%~%'")
    what = {
        "rewrite": f"{plural(queries, 'query')}, {rewritten} rewritten",
        "retrieve": ", ".join(f"{count:,} by {name}" for name, count in lists)
        + (f", {earlier:,} from earlier lists" if earlier else ""),
        "merge": f"{plural(pooled, 'passage')} pooled",
        "grade": f"{graded:,} graded, {failed:,} failed, {pooled:,} in all",
        "prune": f"{plural(subset, 'passage')} to be put in order",
        "rank": f"{plural(orders, 'order')}, {orders_failed:,} failed"
        + (f"; ended {ended}" if ended else ""),
    }
    ((replies, tokens_in, tokens_out, cost, unpriced),) = store.rows(
        "SELECT COUNT(*), SUM(tokens_in), SUM(tokens_out), SUM(cost), SUM(cost IS NULL) "
        "FROM replies"
    )
    writer = None if store.write else lock_owner(store.path)
    return Standing(
        [Step(name, name in done, what[name]) for name in _STAGES],
        judge.get("name"),
        bool(judge.get("simulated")),
        *(queries, pooled, graded, failed, orders, orders_failed),
        *(replies, tokens_in or 0, tokens_out or 0),
        None if unpriced else float(cost or 0.0),
        *((people.validated, people.corrected) if people else (0, 0)),
        None if writer is None else str(writer),
        dict(_failures(store)),
        dict(sorted(Counter(each.reason for each in stale(store)).items())),
        health(store),
        panel(store),
        labellers(store, said),
        [doc for doc, text in store.rows("SELECT doc, text FROM passages") if instruction(text)],
    )


def _failures(store: Store) -> list[Row]:
    """(words, how often) of passages without a grade and of orders that failed, the most first."""
    return store.rows(
        "SELECT failure, COUNT(*) AS times FROM ("
        "SELECT failure FROM grades WHERE grade IS NULL UNION ALL "
        "SELECT failure FROM orders JOIN replies ON orders.reply = replies.id "
        "WHERE replies.result IS NULL) "
        "WHERE failure NOT NULL GROUP BY failure ORDER BY times DESC, failure LIMIT 3"
    )


def nothing_judged(store: Store) -> str | None:
    """What the server said, where every call of a kind came to nothing; else None."""
    found = standing(store)
    for kind, good, bad, said in (
        ("grade", found.graded, found.failed, ("passage", "has no grade", "have no grade")),
        ("order", found.orders, found.orders_failed, ("order", "is of no use", "are of no use")),
    ):
        if bad and not good:
            (words, _), *_ = Counter(
                str(failure)
                for (failure,) in store.rows(
                    f"SELECT failure FROM replies WHERE kind = ? AND retired = 0 AND {LAST}",
                    (kind,),
                )
            ).most_common(1)
            return (
                f"{out_of(bad, bad, *said)}: {words}; see to it, then run again with --retry-failed"
            )
    return None


@dataclass(frozen=True, slots=True)
class Stale:
    """A word that stays on record and does not count: why, and whose it was."""

    query: str
    doc: str | None  # of a grade
    grade: int | None
    who: str
    reason: str
    order: tuple[str, ...] | None = None  # documents, the best first


def stale(store: Store) -> list[Stale]:
    """What was said of other texts, under another prompt or by another judge; and what people said
    of texts that were edited since."""
    return [
        *_stale_grades(store),
        *_stale_orders(store),
        *(
            Stale(c.query, c.doc, c.new, c.who, "the text that a person saw was edited")
            for c in store.outdated_corrections()
        ),
    ]


def _stale_grades(store: Store) -> list[Stale]:
    judge = store.meta("judge") or {}
    force = store.in_force("grade")
    who = judges_of(store)
    asked = {query for (query,) in store.rows("SELECT query FROM queries")}
    rows = store.rows(
        "SELECT answers.query, answers.doc, grade, judge, answers.pair, p.pair FROM answers "
        "LEFT JOIN pairs AS p ON p.query = answers.query AND p.doc = answers.doc "
        f"WHERE grade NOT NULL AND NOT (judge IN ({', '.join(map(str, force))}) "
        "AND answers.pair IN (SELECT pair FROM pairs))"
    )
    found = []
    for query, doc, grade, number, was, now in rows:
        said = who.get(number, {})
        if number not in force:
            reason = _another(judge, said)
        elif query not in asked:
            reason = "its query is gone"
        elif now is None:
            reason = "not in the pool any more"
        else:
            half = len(was) // 2
            reason = (
                "its passage was edited" if was[:half] == now[:half] else "its query was edited"
            )
        found.append(Stale(query, doc, grade, str(said.get("name")), reason))
    return found


def _stale_orders(store: Store) -> list[Stale]:
    """Those of another prompt or judge, and those that say nothing of any two texts of today."""
    judge, force, who = store.meta("judge") or {}, store.in_force("order"), judges_of(store)
    now = {what for (what,) in store.rows("SELECT pair FROM pairs")}
    found = []
    for query, number, result, pairs in store.rows(
        "SELECT query, judge, result, pairs FROM replies "
        "WHERE kind = 'order' AND retired = 0 AND result NOT NULL ORDER BY id"
    ):
        if number not in force:
            reason = f"an order, {_another(judge, who.get(number, {}))}"
        elif sum(what in now for what in json.loads(pairs)) < 2:
            reason = "an order of texts that were edited or are gone"
        else:
            continue
        name = str(who.get(number, {}).get("name"))
        found.append(Stale(query, None, None, name, reason, tuple(json.loads(result))))
    return found


def judges_of(store: Store) -> dict[int, dict[str, Any]]:
    """What is known of each judge, by its number."""
    return {number: json.loads(said) for number, said in store.rows("SELECT id, said FROM judges")}


def _another(judge: dict[str, Any], said: dict[str, Any]) -> str:
    alike = [
        each.get("parameters")
        for each in judge.get("members") or [judge]
        if each.get("model") == said.get("model")
    ]
    if said.get("parameters") in alike:
        return "another prompt"
    return "other settings of the judge" if alike else "another judge"
