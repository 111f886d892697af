"""Which unjudged documents to judge first, and judging until the verdict cannot change.

The next document is the one whose grade could change the mean difference most, recomputed after
each answer (Carterette, Allan and Sitaraman 2006, for AP). Judging ends when no grades of the
others can change the sign of the difference, or when its bounds are as narrow as requested.
"""

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
from rankproof.unjudged.shared_documents import UnjudgedSet
from rankproof.unjudged.unjudged_documents import MatchedRun

_ROWS = 1 << 21  # judgments in memory at a time while documents are tried out

QueryDocuments = list[tuple[str, str]]  # query and document
Grader = Callable[
    [QueryDocuments], Sequence[int | None]
]  # None: the judge failed, and it stays unjudged


# ------------------------------------------------------------------------------------- effects


def grading_effects(
    view: WorstCases, which: Sequence[int], measure: Measure, among: tuple[int, float] | None = None
) -> tuple[UnjudgedSet, Float]:
    """Return the unjudged documents of some runs, and what a grade of each alone could change.

    (H,) the largest change of the mean difference of any pair of the runs (of the mean, for one
    run) if a document has the highest grade and all others stay unjudged; positive if it helps the
    first run of the pair. If `view` has only some of the queries, `among` is the number of all and
    their mean.
    """
    documents = view.unjudged(which, measure)
    grades = [view.top(measure)] if measure.definition.grades is None else [1, 3, 5]
    is_counted = np.logical_and.reduce([view.matched[at].counted for at in which])
    now = [view.expected(at, measure) for at in which]
    pairs = list(combinations(range(len(which)), 2)) or [(0, 0)]
    furthest = np.zeros(len(documents))
    for grade in grades:
        then = [_values_with_one_grade(view.matched[at], documents, grade, measure) for at in which]
        for a, b in pairs:
            before = now[a] if a == b else now[a] - now[b]
            after = then[a] if a == b else then[a] - then[b]
            change = _mean_changes(before, after, documents.query, is_counted, among)
            furthest = np.where(np.abs(change) > np.abs(furthest), change, furthest)
    return documents, furthest


def _mean_changes(
    before: Float, after: Float, query: Int, is_counted: Bool, among: tuple[int, float] | None
) -> Float:
    """(H,) how far the mean over queries moves if one query has the value `after`."""
    total, mean = among or _count_and_mean(before, is_counted)
    old = np.where(np.isnan(before), mean, before)[query]
    over = np.maximum(total + np.isnan(before)[query], 1)
    moved = np.where(is_counted[query], np.nan_to_num(after - old), 0.0)
    return np.asarray(moved / over, np.float64)


def _count_and_mean(values: Float, is_counted: Bool) -> tuple[int, float]:
    known = values[is_counted & ~np.isnan(values)]
    return len(known), float(known.mean()) if len(known) else 0.0


def _values_with_one_grade(
    reach: MatchedRun, documents: UnjudgedSet, grade: int, measure: Measure
) -> Float:
    """(H,) the query's expected value if this document alone had the grade.

    NaN where a mean leaves the query out even then.
    """
    met = reach.met
    row = reach.rows_of(documents)
    start = np.searchsorted(met.query, np.arange(reach.queries + 1))
    pooled = met.sampled if measure.definition.unjudged == "inferred precision" else None
    held = np.diff(start)[documents.query]
    value = np.empty(len(documents))
    low = 0
    bounds = np.cumsum(held + 1)
    while low < len(documents):
        before = bounds[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(bounds, before + _ROWS, side="right")))
        some = np.arange(low, high)
        # Each document gets a copy of its query, with its grade among the judgments.
        own, judged = _copies(start, documents.query[some])
        query = np.concatenate([own, np.arange(len(some))])
        rows = np.concatenate([met.row[judged], row[some]])
        grades = np.concatenate([met.grade[judged], np.full(len(some), grade)])
        by_query = np.argsort(query, kind="stable")
        query, rows, grades = query[by_query], rows[by_query], grades[by_query]
        known = rows >= 0 if reach.policy.candidates_only else np.ones(len(rows), np.bool_)
        most = max(met.pool.max_grade, grade)
        pool = pool_of(query[known], grades[known], len(some), most)
        listed = met.listed[documents.query[some]]
        sampled = None
        if pooled is not None:
            of = np.searchsorted(pooled[0], np.arange(reach.queries + 1))
            own, at = _copies(of, documents.query[some])
            sampled = own, pooled[1][at]
        groups = tie_groups(met.ranking, listed, query, rows, grades, pool, sampled)
        found = measure.outcomes(groups).expected
        if reach.policy.undefined == "skip":
            found = np.where(averaged_queries(groups, measure), found, np.nan)
        value[some] = found
        low = high
    return value


def _copies(start: Int, query: Int) -> tuple[Int, Int]:
    """Copy the rows of each of these queries: the copy's number, and the row, of every element."""
    count = np.diff(start)[query]
    owner = np.repeat(np.arange(len(query)), count)
    return owner, np.arange(len(owner)) + (start[query] - np.cumsum(count) + count)[owner]


def judge_next(view: WorstCases, measure: Measure, count: int | None = None) -> pl.DataFrame:
    """query, doc, effect: the documents whose grade could change most, largest effect first.

    The effect is that of the highest grade on the mean difference of the pair of runs that it
    changes most, or on the mean if there is one run.
    """
    if count is not None and count < 1:
        raise InputError(f"{count} documents to judge", remedy="ask for 1 or more")
    documents, change = grading_effects(view, range(len(view.runs)), measure)
    return (
        pl.DataFrame(
            {
                "query": view.qrels.queries.gather(documents.query),
                "doc": documents.doc,
                "effect": np.abs(change),
            }
        )
        .sort("effect", descending=True, maintain_order=True)
        .head(len(documents) if count is None else count)
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
    """Join judgments and later ones; two grades for one document are an InputError."""
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
    """query, doc, grade −1 of documents that were pooled and not judged."""
    left = qrels.sampled
    query = np.arange(0) if left is None else left.query
    doc = qrels.doc.head(0) if left is None else left.doc
    return pl.DataFrame(
        {"query": qrels.queries.gather(query), "doc": doc, "grade": np.full(len(query), -1)}
    )


# ------------------------------------------------------------------------------- a judge's scale


def on_scale(measure: Measure, qrels: Qrels, top: int) -> dict[int, int]:
    """Map a judge's grades 1–5 to the scale of these judgments.

    They stay as they are if the judgments, or the measure, have grades 1–5. Else 5 is the top of
    the scale, each grade below it one less, and 4 is relevant: 0 0 0 1 1 on a scale up to 1,
    0 0 0 1 2 up to 2, 0 0 1 2 3 up to 3. Longer scales are divided into equal steps.
    """
    grades = range(1, 6)
    theirs = top == 5 and len(qrels) > 0 and int(qrels.grade.min()) >= 1
    if measure.definition.grades is not None or theirs:
        return {grade: grade for grade in grades}
    if top > 4:
        return {grade: round((grade - 1) * top / 4) for grade in grades}
    return {grade: min(top, max(0, grade - 5 + max(top, 2))) for grade in grades}


def translated(judge: Grader, scale: Mapping[int, int]) -> Grader:
    """The judge, with its grades mapped to another scale."""

    def grades(asked: QueryDocuments) -> list[int | None]:
        return [None if grade is None else scale[grade] for grade in judge(asked)]

    return grades


def fill_holes(
    runs: Iterable[Run],
    qrels: Qrels,
    measures: Sequence[Measure],
    judge: Grader,
    besides: pl.DataFrame | None = None,
) -> tuple[Qrels, str]:
    """Have the unjudged documents of all runs judged, for the deepest of the measures.

    Returns the judgments with the new ones, and a sentence on how many these are. Documents in
    `besides` (query, doc) stay unjudged.
    """
    cutoffs = [measure.cutoff for measure in measures]
    depth = None if None in cutoffs else max(c for c in cutoffs if c is not None)
    policy = Policy()
    frames = []
    for run in runs:
        documents = UnjudgedSet([MatchedRun(run, qrels, policy)], depth)
        frames.append(
            pl.DataFrame({"query": qrels.queries.gather(documents.query), "doc": documents.doc})
        )
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
    """How far judging went, and the bound that remains."""

    a: str
    b: str
    measure: Measure
    bound: Bound
    settled: bool
    holes: int  # unjudged documents at the start
    judgements: pl.DataFrame = field(repr=False)  # query, doc, grade: in the order they were made
    failed: int = 0  # documents that the judge gave no grade
    until: Literal["certain"] | float = "certain"  # what was to be reached
    batch: int = 1  # documents judged at a time

    @property
    def asked(self) -> int:
        return self.judgements.height + self.failed

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the judgments made, and the bound that remains."""
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
    """Have documents judged until the better of two runs, or their difference, is known.

    `until` is "certain" (no grades of the others can change the sign) or a width of the bounds.
    `judge` gets (query, document) pairs, `batch` at a time, and returns their grades; None is a
    failure, and the document stays unjudged. After each batch the queries it contains are bounded
    again. At most `limit` documents are judged.

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
    """Judging in progress: bounds by query, which each answer renews for its query."""

    def __init__(self, view: WorstCases, measure: Measure, until: Literal["certain"] | float):
        if measure.has_open_scale:
            # Queries are bounded apart, so all must use one scale.
            measure = measure(**{str(measure.definition.open_scale): view.scale})
            if view.scale > view.qrels.grade.max(initial=1):
                raise InputError(
                    f"what {measure.name} takes a grade for rests on the highest to be found",
                    remedy=f"name it: {measure}",
                )
        self.view, self.measure, self.until = view, measure, until
        self.counted = view.matched[0].counted & view.matched[1].counted
        found = view.pair_bounds_by_query(0, 1, measure)
        self.bounds = found
        self.now = view.expected(0, measure) - view.expected(1, measure)
        self.documents, self.change = grading_effects(view, [0, 1], measure)
        self.open = self.counted[self.documents.query]  # (H,) not judged yet
        self.holes = int(self.open.sum())
        self.by_query = np.searchsorted(self.documents.query, np.arange(len(self.now) + 1))
        self.answers: list[tuple[int, int]] = []  # hole and grade
        self.failed = 0

    def pairs(self, which: Int | None = None) -> QueryDocuments:
        """Query and id of some documents, by default of all that are not judged yet."""
        chosen = np.flatnonzero(self.open) if which is None else which
        names = self.view.qrels.queries.gather(self.documents.query[chosen])
        return list(zip(names, self.documents.doc.gather(chosen), strict=True))

    def bound(self) -> Bound:
        return self.view.bound(self.bounds, self.now, self.counted)

    def done(self, bound: Bound) -> bool:
        return bound.certain if self.until == "certain" else bound.width <= self.until

    def run(self, judge: Grader, batch: int, limit: int | None) -> Settled:
        view, documents = self.view, self.documents
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
            self._renew(np.unique(documents.query[[h for h, _ in known]]) if known else None)
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
                    "query": names.gather(documents.query[made]),
                    "doc": documents.doc.gather(made),
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
                place = f"document {shorten(self.documents.doc[hole])}"
                raise InputError(
                    f"the judge gave grade {grade}, outside {low}–{high}",
                    place=place,
                    remedy="name the scale, or have the judge keep to it",
                )

    def first(self, count: int, bound: Bound) -> Int:
        """The documents whose judgment matters most, of those not judged yet.

        A document that could reverse the lead moves the nearer bound if it is not relevant, one
        that could increase the lead if it is; the answers so far say which is more likely.
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
        touched = answered[np.isin(self.documents.query[answered[:, 0]], queries)]
        qrels = _select_judgments(view.qrels, queries, self.documents, touched)
        runs = [_select_lists(r.run, r.met.listed[queries]) for r in view.matched]
        scale = max(view.scale, view.top(self.measure))  # of what the judge may have given
        part = WorstCases(runs, qrels, view.policy, depth=view.depth, scale=scale)
        bounds = part.pair_bounds_by_query(0, 1, self.measure)
        self.bounds.low[queries], self.bounds.high[queries] = bounds.low, bounds.high
        values = [part.expected(at, self.measure) for at in (0, 1)]
        self.now[queries] = values[0] - values[1]
        among = _count_and_mean(self.now, self.counted)
        documents, change = grading_effects(part, [0, 1], self.measure, among)
        left = {
            (int(queries[q]), doc): c
            for q, doc, c in zip(documents.query, documents.doc, change, strict=True)
        }
        for query in queries:
            for row in range(*self.by_query[query : query + 2]):
                self.change[row] = left.get((int(query), self.documents.doc[row]), 0.0)


def _select_judgments(qrels: Qrels, queries: Int, documents: UnjudgedSet, answers: Int) -> Qrels:
    """The judgments of some queries, with answers (document, grade) added."""
    rows = np.concatenate([np.arange(*qrels.start[q : q + 2]) for q in queries])
    held = np.diff(qrels.start)[queries]
    codes = np.concatenate(
        [
            np.repeat(np.arange(len(queries)), held),
            np.searchsorted(queries, documents.query[answers[:, 0]]),
        ]
    )
    doc = pl.concat([qrels.doc.gather(rows), documents.doc.gather(answers[:, 0]).alias("doc")])
    grade = np.concatenate([qrels.grade[rows], answers[:, 1]])
    names = qrels.queries.gather(queries)
    part = build_qrels(qrels.name, names, codes.astype(np.int32), doc, grade)
    if qrels.sampled is None:
        return part
    some = np.flatnonzero(np.isin(qrels.sampled.query, queries))
    query, doc = np.searchsorted(queries, qrels.sampled.query[some]), qrels.sampled.doc.gather(some)
    still = np.flatnonzero(kernels.find_rows(None, part.doc, part.start, doc, query) < 0)
    return replace(part, sampled=Sampled(query[still], doc.gather(still)))


def _select_lists(run: Run, listed: Int) -> Run:
    """Some lists of a run, by their index; −1 is a query that it lacks."""
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
