"""Which holes to judge first, and judging them until nothing can change any more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.data import read_qrels
from rankproof.data.tables import Qrels, Run, Sampled, build_qrels
from rankproof.data.ties import pool_of, tie_groups
from rankproof.data.trec import check_trec_ids
from rankproof.evaluation import Policy, averaged_queries
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import amount, plural
from rankproof.measures import Measure
from rankproof.presentation.json_values import plain_fields
from rankproof.unjudged.bounds import Bound, WorstCases, top_grade
from rankproof.unjudged.shared_documents import Holes
from rankproof.unjudged.unjudged_documents import Reach

_ROWS = 1 << 21  # judgements held at a time while holes are tried out

Asked = list[tuple[str, str]]  # query and document
Grader = Callable[[Asked], Sequence[int | None]]  # None: the judge failed, and it stays a hole


# ------------------------------------------------------------------------------------- effects


def effects(
    view: WorstCases, which: Sequence[int], measure: Measure, among: tuple[int, float] | None = None
) -> tuple[Holes, Float]:
    """The holes of some runs, and what grading each alone could change.

    (H,) the change of the mean difference that is furthest from 0, over pairs of the runs, when a
    hole has the highest grade and all others stay as they are; of the mean itself for one run. Its
    sign is a's if it helps the first run of a pair. For a part of the queries `among` is how many
    there are in all, and their mean.
    """
    holes = view.holes(which, measure)
    grades = [view.top(measure)] if measure.definition.grades is None else [1, 3, 5]
    is_counted = np.logical_and.reduce([view.reaches[at].counted for at in which])
    now = [view.expected(at, measure) for at in which]
    pairs = list(combinations(range(len(which)), 2)) or [(0, 0)]
    furthest = np.zeros(len(holes))
    for grade in grades:
        then = [_graded_alone(view.reaches[at], holes, grade, measure) for at in which]
        for a, b in pairs:
            before = now[a] if a == b else now[a] - now[b]
            after = then[a] if a == b else then[a] - then[b]
            change = _of_mean(before, after, holes.query, is_counted, among)
            furthest = np.where(np.abs(change) > np.abs(furthest), change, furthest)
    return holes, furthest


def _of_mean(
    before: Float, after: Float, query: Int, is_counted: Bool, among: tuple[int, float] | None
) -> Float:
    """(H,) how far the mean over queries moves when one query has the value `after`."""
    total, mean = among or _count_and_mean(before, is_counted)
    old = np.where(np.isnan(before), mean, before)[query]
    over = np.maximum(total + np.isnan(before)[query], 1)
    moved = np.where(is_counted[query], np.nan_to_num(after - old), 0.0)
    return np.asarray(moved / over, np.float64)


def _count_and_mean(values: Float, is_counted: Bool) -> tuple[int, float]:
    known = values[is_counted & ~np.isnan(values)]
    return len(known), float(known.mean()) if len(known) else 0.0


def _graded_alone(reach: Reach, holes: Holes, grade: int, measure: Measure) -> Float:
    """(H,) the query's expected value when this hole alone has the grade; NaN where a mean leaves
    the query out even then.
    """
    met = reach.met
    row = reach.find(holes)
    start = np.searchsorted(met.query, np.arange(reach.queries + 1))
    pooled = met.sampled if measure.definition.unjudged == "inferred precision" else None
    held = np.diff(start)[holes.query]
    value = np.empty(len(holes))
    low = 0
    ends = np.cumsum(held + 1)
    while low < len(holes):
        before = ends[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(ends, before + _ROWS, side="right")))
        some = np.arange(low, high)
        # A query of its own for each hole: its judgements, and the hole among them.
        own, judged = _copies(start, holes.query[some])
        query = np.concatenate([own, np.arange(len(some))])
        rows = np.concatenate([met.row[judged], row[some]])
        grades = np.concatenate([met.grade[judged], np.full(len(some), grade)])
        by_query = np.argsort(query, kind="stable")
        query, rows, grades = query[by_query], rows[by_query], grades[by_query]
        known = rows >= 0 if reach.policy.candidates_only else np.ones(len(rows), np.bool_)
        most = max(met.pool.max_grade, grade)
        pool = pool_of(query[known], grades[known], len(some), most)
        listed = met.listed[holes.query[some]]
        sampled = None
        if pooled is not None:
            of = np.searchsorted(pooled[0], np.arange(reach.queries + 1))
            own, at = _copies(of, holes.query[some])
            sampled = own, pooled[1][at]
        groups = tie_groups(met.ranking, listed, query, rows, grades, pool, sampled)
        found = measure.outcomes(groups).expected
        if reach.policy.undefined == "skip":
            found = np.where(averaged_queries(groups, measure), found, np.nan)
        value[some] = found
        low = high
    return value


def _copies(start: Int, query: Int) -> tuple[Int, Int]:
    """What each of these queries owns, one after the other: whose copy it is, and where it lies."""
    count = np.diff(start)[query]
    owner = np.repeat(np.arange(len(query)), count)
    return owner, np.arange(len(owner)) + (start[query] - np.cumsum(count) + count)[owner]


def judge_next(view: WorstCases, measure: Measure, count: int | None = None) -> pl.DataFrame:
    """query, doc, effect: the holes whose judgement could change most, the first ones first.

    The effect is that of the highest grade on the mean difference of the pair of runs that it
    changes most, or on the mean where there is one run.
    """
    if count is not None and count < 1:
        raise InputError(f"{count} documents to judge", remedy="ask for 1 or more")
    holes, change = effects(view, range(len(view.runs)), measure)
    return (
        pl.DataFrame(
            {
                "query": view.qrels.queries.gather(holes.query),
                "doc": holes.doc,
                "effect": np.abs(change),
            }
        )
        .sort("effect", descending=True, maintain_order=True)
        .head(len(holes) if count is None else count)
    )


def judging_file(frame: pl.DataFrame, ending: str) -> bytes:
    """Documents to judge, as a file in which grades are filled in: −1 says "not judged".

    Or judgments that were made, where there are grades; or a TREC run (.trec), best document
    first, which a golden set can pool.
    """
    if ending == ".trec":
        check_trec_ids(frame["query"], frame["doc"], "documents to judge")
        lines = [
            f"{row['query']} Q0 {row['doc']} {at} {row.get('effect', 0.0)!r} next\n"
            for at, row in enumerate(frame.iter_rows(named=True), 1)
        ]
        return "".join(lines).encode()
    rows = frame if "grade" in frame.columns else frame.with_columns(pl.lit(-1).alias("grade"))
    if ending == ".tsv":  # no id holds a tab, and whoever reads the file takes a quote for a letter
        return rows.write_csv(separator="\t", quote_style="never").encode()
    return rows.write_ndjson().encode()


def merged(qrels: Qrels, more: Qrels) -> Qrels:
    """Judgements and those made since; two grades for one document are refused."""
    frame = qrels.to_frame().join(
        more.to_frame(), on=["query", "doc"], how="full", coalesce=True, maintain_order="left_right"
    )
    both = frame.filter(pl.col("grade") != pl.col("grade_right"))
    if both.height:
        query, doc, old, new = both.row(0)
        raise InputError(
            f"query {shorten(query)}, document {shorten(doc)} has grade {old} in {qrels.name} and "
            f"{new} in {more.name}",
            remedy="keep one of the two",
        )
    frame = frame.select("query", "doc", pl.coalesce("grade", "grade_right").alias("grade"))
    frame = pl.concat([frame, _sampled(qrels).join(frame, on=["query", "doc"], how="anti")])
    return replace(read_qrels(frame, name=qrels.name), scale=qrels.scale)


def _sampled(qrels: Qrels) -> pl.DataFrame:
    """query, doc, grade of what was pooled and not judged: −1."""
    left = qrels.sampled
    query = np.arange(0) if left is None else left.query
    doc = qrels.doc.head(0) if left is None else left.doc
    return pl.DataFrame(
        {"query": qrels.queries.gather(query), "doc": doc, "grade": np.full(len(query), -1)}
    )


# ------------------------------------------------------------------------------- a judge's scale


def on_scale(measure: Measure, qrels: Qrels, top: int) -> dict[int, int]:
    """What a judge's grades 1–5 are on the scale of these judgements.

    The same where the judgements, or the measure, have grades 1–5. Else 5 is the top of the scale,
    each grade below it one less, and 4 is relevant: 0 0 0 1 1 on a scale up to 1, 0 0 0 1 2 up to
    2, 0 0 1 2 3 up to 3. Longer scales are taken in equal steps.
    """
    grades = range(1, 6)
    theirs = top == 5 and len(qrels) > 0 and int(qrels.grade.min()) >= 1
    if measure.definition.grades is not None or theirs:
        return {grade: grade for grade in grades}
    if top > 4:
        return {grade: round((grade - 1) * top / 4) for grade in grades}
    return {grade: min(top, max(0, grade - 5 + max(top, 2))) for grade in grades}


def translated(judge: Grader, scale: Mapping[int, int]) -> Grader:
    """A judge whose grades are those of another scale."""

    def grades(asked: Asked) -> list[int | None]:
        return [None if grade is None else scale[grade] for grade in judge(asked)]

    return grades


def fill_holes(
    runs: Iterable[Run],
    qrels: Qrels,
    measures: Sequence[Measure],
    judge: Grader,
    besides: pl.DataFrame | None = None,
) -> tuple[Qrels, str]:
    """The judgements with the holes of all runs judged on a scale of 1–5, and how many were.

    Holes are the unjudged documents in reach of the deepest of the measures; those `besides`
    (query, doc) are none.
    """
    cutoffs = [measure.cutoff for measure in measures]
    depth = None if None in cutoffs else max(c for c in cutoffs if c is not None)
    policy = Policy()
    frames = []
    for run in runs:
        holes = Holes([Reach(run, qrels, policy)], depth)
        frames.append(pl.DataFrame({"query": qrels.queries.gather(holes.query), "doc": holes.doc}))
    asked = pl.concat(frames).unique(maintain_order=True)
    if besides is not None:
        asked = asked.join(besides, on=["query", "doc"], how="anti", maintain_order="left")
    if not asked.height:
        return qrels, "no document in the top k is unjudged"
    graded = next((m for m in measures if m.definition.grades is not None), measures[0])
    top = top_grade(qrels)
    grades = translated(judge, on_scale(graded, qrels, top))(asked.rows())
    made = asked.with_columns(pl.Series("grade", grades, pl.Int64)).drop_nulls()
    failed = asked.height - made.height
    judged = plural(made.height, "document")
    said = f"{judged} that nobody had judged {'was' if made.height == 1 else 'were'} judged"
    if failed:
        said += f"; {failed} got no grade and count as not relevant"
    return (merged(qrels, read_qrels(made)) if made.height else qrels), said


# -------------------------------------------------------------------------------------- settling


@dataclass(frozen=True, slots=True)
class Settled:
    """How far judging went, and what no completion of the rest can change."""

    a: str
    b: str
    measure: Measure
    bound: Bound
    settled: bool
    holes: int  # there were
    judgements: pl.DataFrame = field(repr=False)  # query, doc, grade: those made, in order
    failed: int = 0  # documents that the judge gave no grade
    until: Literal["certain"] | float = "certain"  # what was to be reached
    batch: int = 1  # documents judged at a time

    @property
    def asked(self) -> int:
        return self.judgements.height + self.failed

    def to_dict(self) -> dict[str, Any]:
        """For JSON: what was judged, and how far that went."""
        return {
            **plain_fields(self, "settled", "a", "b", "asked", "holes", "failed"),
            "measure": str(self.measure),
            **plain_fields(self.bound, "lowest", "highest"),
            "words": str(self),
            "judgements": self.judgements.to_dicts(),
        }

    def __str__(self) -> str:
        word = "settled" if self.settled else "not settled"
        failed = f" ({self.failed} got no grade, and stay open)" if self.failed else ""
        after = f"{word} after {self.asked} of {plural(self.holes, 'hole')}{failed}"
        low, high = self.bound.lowest, self.bound.highest
        if math.isnan(low):
            return f"{after}: {self.measure} is undefined, for nothing is relevant"
        if not self.bound.certain:
            ties = "; what is left rests on ties" if self.judgements.height == self.holes else ""
            return f"{after}: {self.a} − {self.b} is {self.bound.span}{ties}"
        if low <= 0 <= high:
            return f"{after}: {self.a} and {self.b} are equal whatever the rest"
        ahead = self.a if self.measure.sign * low > 0 else self.b
        least, most = (amount(end, 3) for end in sorted((abs(low), abs(high))))
        to = "" if self.until == "certain" else f" to {most}"
        return f"{after}: {ahead} is ahead by {least}{to} whatever the rest"


def settle(
    runs: Sequence[Run],
    qrels: Qrels,
    measure: Measure,
    judge: Grader,
    *,
    until: Literal["certain"] | float = "certain",
    batch: int = 1,
    limit: int | None = None,
    policy: Policy | None = None,
    depth: int | None = None,
    scale: int | None = None,
) -> Settled:
    """Have holes judged until the better of two runs, or their difference, is known.

    `until` is "certain" (the sign no longer depends on any completion) or a width of the interval.
    `judge` is given (query, document) pairs, `batch` at a time, and returns their grades; None is
    a failure, and the document stays a hole. After each batch the queries it touched are bounded
    again. At most `limit` documents are asked for.

    >>> from rankproof.unjudged.judging_order import settle
    >>> runs = [rp.read_run({"q": found}, name=found[0]) for found in (["a", "b"], ["b"])]
    >>> done = settle(runs, rp.read_qrels({"q": {"b": 1}}), rp.RR, lambda pairs: [1 for _ in pairs])
    >>> done.settled, done.bound.certain
    (True, True)
    """
    if len(runs) != 2:
        raise InputError(f"{plural(len(runs), 'run')} to settle", remedy="name two")
    if batch < 1:
        raise InputError(f"batches of {batch}", remedy="ask for 1 document or more at a time")
    view = WorstCases(runs, qrels, policy or Policy(), depth=depth, scale=scale)
    view.check([measure])
    return Settling(view, measure, until).run(judge, batch, limit)


class Settling:
    """Per-query ends that are renewed for the queries an answer touched."""

    def __init__(self, view: WorstCases, measure: Measure, until: Literal["certain"] | float):
        if measure.has_open_scale:
            # Parts of the judgements must agree on the scale.
            measure = measure(**{str(measure.definition.open_scale): view.scale})
            if view.scale > view.qrels.grade.max(initial=1):
                raise InputError(
                    f"what {measure.name} takes a grade for rests on the highest to be found",
                    remedy=f"name it: {measure}",
                )
        self.view, self.measure, self.until = view, measure, until
        self.counted = view.reaches[0].counted & view.reaches[1].counted
        found = view.pair_ends(0, 1, measure)
        self.ends = found
        self.now = view.expected(0, measure) - view.expected(1, measure)
        self.found, self.change = effects(view, [0, 1], measure)
        self.open = self.counted[self.found.query]  # (H,) not asked yet
        self.holes = int(self.open.sum())
        self.by_query = np.searchsorted(self.found.query, np.arange(len(self.now) + 1))
        self.answers: list[tuple[int, int]] = []  # hole and grade
        self.failed = 0

    def pairs(self, which: Int | None = None) -> Asked:
        """Query and document of some holes, or of all that may be asked for."""
        chosen = np.flatnonzero(self.open) if which is None else which
        names = self.view.qrels.queries.gather(self.found.query[chosen])
        return list(zip(names, self.found.doc.gather(chosen), strict=True))

    def bound(self) -> Bound:
        return self.view.bound(self.ends, self.now, self.counted)

    def done(self, bound: Bound) -> bool:
        return bound.certain if self.until == "certain" else bound.width <= self.until

    def run(self, judge: Grader, batch: int, limit: int | None) -> Settled:
        view, holes = self.view, self.found
        names = view.qrels.queries
        while True:
            bound = self.bound()
            asked = len(self.answers) + self.failed
            room = batch if limit is None else min(batch, limit - asked)
            settled = self.done(bound)
            if settled or room < 1 or not self.open.any():
                break
            chosen = self.first(room, bound)
            pairs = self.pairs(chosen)
            grades = judge(pairs)
            if len(grades) != len(pairs):
                raise InputError(
                    f"the judge gave {plural(len(grades), 'grade')} for "
                    f"{plural(len(pairs), 'document')}",
                    remedy="return one grade, or None, for each",
                )
            self.open[chosen] = False
            known = [(int(h), int(g)) for h, g in zip(chosen, grades, strict=True) if g is not None]
            self.failed += len(pairs) - len(known)
            self._check(known)
            self.answers += known
            self._renew(np.unique(holes.query[[h for h, _ in known]]) if known else None)
        made = np.array([h for h, _ in self.answers], np.int64)
        return Settled(
            a=view.runs[0].name,
            b=view.runs[1].name,
            measure=self.measure,
            bound=bound,
            settled=settled,
            holes=self.holes,
            judgements=pl.DataFrame(
                {
                    "query": names.gather(holes.query[made]),
                    "doc": holes.doc.gather(made),
                    "grade": np.array([g for _, g in self.answers], np.int64),
                }
            ),
            failed=self.failed,
            until=self.until,
        )

    def _check(self, known: list[tuple[int, int]]) -> None:
        low, high = self.measure.definition.grades or (0, self.view.scale)
        for hole, grade in known:
            if not low <= grade <= high:
                place = f"document {shorten(self.found.doc[hole])}"
                raise InputError(
                    f"the judge gave grade {grade}, outside {low}–{high}",
                    place=place,
                    remedy="name the scale, or have the judge keep to it",
                )

    def first(self, count: int, bound: Bound) -> Int:
        """The open holes whose judgement matters most.

        A hole that could turn the lead round moves the nearer end if it is not relevant, one that
        could raise it if it is; the answers so far say which is the more likely.
        """
        weight = np.abs(self.change)
        if self.until == "certain" and bound.expected:
            good = sum(grade >= self._relevant for _, grade in self.answers)
            chance = (1 + good) / (2 + len(self.answers))
            helps = self.change * bound.expected > 0
            weight = weight * np.where(helps, chance, 1.0 - chance)
        weight = np.where(self.open, weight, -1.0)
        first = np.argsort(-weight, kind="stable")[:count]
        return first[weight[first] >= 0]

    @property
    def _relevant(self) -> int:
        if self.measure.definition.grades is not None:
            return 4
        return self.measure.threshold

    def _renew(self, queries: Int | None) -> None:
        """Bound these queries again with the answers so far."""
        if queries is None:
            return
        view = self.view
        answered = np.array(self.answers, np.int64).reshape(-1, 2)
        touched = answered[np.isin(self.found.query[answered[:, 0]], queries)]
        qrels = _part_of_qrels(view.qrels, queries, self.found, touched)
        runs = [_part_of_run(r.run, r.met.listed[queries]) for r in view.reaches]
        scale = max(view.scale, view.top(self.measure))  # of what the judge may have given
        part = WorstCases(runs, qrels, view.policy, depth=view.depth, scale=scale)
        ends = part.pair_ends(0, 1, self.measure)
        self.ends.low[queries], self.ends.high[queries] = ends.low, ends.high
        values = [part.expected(at, self.measure) for at in (0, 1)]
        self.now[queries] = values[0] - values[1]
        among = _count_and_mean(self.now, self.counted)
        holes, change = effects(part, [0, 1], self.measure, among)
        left = {
            (int(queries[q]), doc): c
            for q, doc, c in zip(holes.query, holes.doc, change, strict=True)
        }
        for query in queries:
            for row in range(*self.by_query[query : query + 2]):
                self.change[row] = left.get((int(query), self.found.doc[row]), 0.0)


def _part_of_qrels(qrels: Qrels, queries: Int, holes: Holes, answers: Int) -> Qrels:
    """The judgements of some queries, with answers (hole, grade) added."""
    rows = np.concatenate([np.arange(*qrels.start[q : q + 2]) for q in queries])
    held = np.diff(qrels.start)[queries]
    codes = np.concatenate(
        [
            np.repeat(np.arange(len(queries)), held),
            np.searchsorted(queries, holes.query[answers[:, 0]]),
        ]
    )
    doc = pl.concat([qrels.doc.gather(rows), holes.doc.gather(answers[:, 0]).alias("doc")])
    grade = np.concatenate([qrels.grade[rows], answers[:, 1]])
    names = qrels.queries.gather(queries)
    part = build_qrels(qrels.name, names, codes.astype(np.int32), doc, grade)
    if qrels.sampled is None:
        return part
    some = np.flatnonzero(np.isin(qrels.sampled.query, queries))
    query, doc = np.searchsorted(queries, qrels.sampled.query[some]), qrels.sampled.doc.gather(some)
    still = np.flatnonzero(kernels.find_rows(None, part.doc, part.start, doc, query) < 0)
    return replace(part, sampled=Sampled(query[still], doc.gather(still)))


def _part_of_run(run: Run, listed: Int) -> Run:
    """Some lists of a run; −1 is a query it lacks."""
    listed = listed[listed >= 0]
    rows = np.concatenate(
        [np.arange(0), *(np.arange(*run.start[at : at + 2]) for at in listed)]
    ).astype(np.int64)
    start = np.append(0, np.cumsum(np.diff(run.start)[listed]))
    return replace(
        run,
        queries=run.queries.gather(listed),
        start=start,
        doc=run.doc.gather(rows),
        score=run.score[rows],
        rest=None if run.rest is None else run.rest[rows],
        cut=None,
        index=None,
        cache={},
    )
