"""Which unjudged documents to judge first, and judging until the verdict cannot change.

The next document is the one whose grade could change the mean difference most, recomputed after
each grade (Carterette, Allan and Sitaraman 2006, for AP). Judging ends when no grades of the
remaining documents can change the sign of the difference, or when its bounds are as narrow as
requested. Or whole queries are judged in random order until the interval of the difference over
these excludes 0, at 95% although it is computed after every query.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
import polars as pl

from rankproof.data import read_qrels
from rankproof.data.tables import Qrels, Run, Sampled, build_qrels
from rankproof.data.ties import TieGroups, pool_of, tie_groups
from rankproof.data.trec import check_trec_ids
from rankproof.evaluation import Policy, averaged_queries
from rankproof.foundation import kernels
from rankproof.foundation.arrays import Bool, Float, Int
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.phrasing import amount, plural, signed
from rankproof.measures import Measure
from rankproof.presentation.json_values import plain_fields
from rankproof.statistics.intervals import Interval, interval_or_none, sequential_interval
from rankproof.statistics.resampling import first_of_permutation
from rankproof.unjudged.bounds import Bound, WorstCases, top_grade
from rankproof.unjudged.shared_documents import UnjudgedSet
from rankproof.unjudged.unjudged_documents import MatchedRun

_ROW_LIMIT = 1 << 21  # judgments in memory at a time while documents are graded one by one

QueryDocuments = list[tuple[str, str]]  # ids of a query and of a document
Goal = Literal["certain", "95%"] | float  # a certain sign, a significant one, or a width
Grader = Callable[[QueryDocuments], Sequence[int | None]]  # None: no grade, stays unjudged


# ------------------------------------------------------------------------------------- effects


class QueryMean(NamedTuple):
    """A mean over queries, and how many it is over."""

    queries: int
    mean: float


def grading_effects(
    worst_cases: WorstCases,
    runs: Sequence[int],
    measure: Measure,
    whole: QueryMean | None = None,
) -> tuple[UnjudgedSet, Float]:
    """Return the unjudged documents of some runs, and what a grade of each alone could change.

    (H,) the largest change of the mean difference of any pair of the runs (of the mean, for one
    run) if a document has the highest grade and all others stay unjudged; positive if it helps the
    first run of the pair. If `worst_cases` has only some of the queries, `whole` is the mean of the
    difference over all of them.
    """
    documents = worst_cases.unjudged(runs, measure)
    # A measure of set grades weighs 1, 3 and 5 by their rarity: any of them can change most.
    grades = [worst_cases.top(measure)] if measure.definition.grades is None else [1, 3, 5]
    matched = [worst_cases.matched[run] for run in runs]
    is_counted = np.logical_and.reduce([run.is_counted for run in matched])
    current = [worst_cases.expected(run, measure) for run in runs]
    pairs = list(combinations(range(len(runs)), 2)) or [(0, 0)]
    largest = np.zeros(len(documents))
    for grade in grades:
        graded = [_values_with_one_grade(run, documents, grade, measure) for run in matched]
        for a, b in pairs:
            before = current[a] if a == b else current[a] - current[b]
            after = graded[a] if a == b else graded[a] - graded[b]
            change = _mean_changes(
                before, after, documents.query, is_counted, whole or _query_mean(before, is_counted)
            )
            largest = np.where(np.abs(change) > np.abs(largest), change, largest)
    return documents, largest


def _mean_changes(
    before: Float, after: Float, query: Int, is_counted: Bool, whole: QueryMean
) -> Float:
    """(H,) change of the mean over queries if the query of each document has the value `after`.

    A query without a value before joins the mean: it counts as if it had been at the mean.
    """
    previous = np.where(np.isnan(before), whole.mean, before)[query]
    count = np.maximum(whole.queries + np.isnan(before)[query], 1)
    change = np.where(is_counted[query], np.nan_to_num(after - previous), 0.0)
    return np.asarray(change / count, np.float64)


def _query_mean(values: Float, is_counted: Bool) -> QueryMean:
    """The mean over the counted queries that have a value; 0 if there are none."""
    known = values[is_counted & ~np.isnan(values)]
    return QueryMean(len(known), float(known.mean()) if len(known) else 0.0)


def _values_with_one_grade(
    run: MatchedRun, documents: UnjudgedSet, grade: int, measure: Measure
) -> Float:
    """(H,) expected value of each document's query if this document alone has the grade.

    NaN where a mean skips the query even then.
    """
    row = run.rows_of(documents)
    uses_sampled = measure.definition.unjudged == "inferred precision"
    judged = np.bincount(run.matching.query, minlength=run.queries)
    total_rows = np.cumsum(judged[documents.query] + 1)
    value = np.empty(len(documents))
    low = 0
    while low < len(documents):
        before = total_rows[low - 1] if low else 0
        high = max(low + 1, int(np.searchsorted(total_rows, before + _ROW_LIMIT, side="right")))
        groups = _groups_with_one_grade(
            run, documents.query[low:high], row[low:high], grade, uses_sampled
        )
        expected = measure.outcomes(groups).expected
        if run.policy.undefined == "skip":
            expected = np.where(averaged_queries(groups, measure), expected, np.nan)
        value[low:high] = expected
        low = high
    return value


def _groups_with_one_grade(
    run: MatchedRun, query: Int, row: Int, grade: int, uses_sampled: bool
) -> TieGroups:
    """Tie groups of one copy of its query for each document, with its grade among the judgments."""
    matching, copies = run.matching, len(query)
    copy, judged = _copy_rows(matching.query, run.queries, query)
    copy = np.concatenate([copy, np.arange(copies)])
    rows = np.concatenate([matching.row[judged], row])
    grades = np.concatenate([matching.grade[judged], np.full(copies, grade)])
    by_copy = np.argsort(copy, kind="stable")
    copy, rows, grades = copy[by_copy], rows[by_copy], grades[by_copy]
    pooled = rows >= 0 if run.policy.candidates_only else np.ones(len(rows), np.bool_)
    pool = pool_of(copy[pooled], grades[pooled], copies, max(matching.pool.max_grade, grade))
    sampled = None
    if uses_sampled and matching.sampled is not None:
        sampled_query, sampled_row = matching.sampled
        sampled_copy, index = _copy_rows(sampled_query, run.queries, query)
        sampled = sampled_copy, sampled_row[index]
    listed = matching.listed[query]
    return tie_groups(matching.ranking, listed, copy, rows, grades, pool, sampled)


def _copy_rows(row_query: Int, queries: int, copied: Int) -> tuple[Int, Int]:
    """Number of the copy and row of each row, if all rows of the `copied` queries are copied.

    `row_query` is the query of each row, ascending.
    """
    start = np.searchsorted(row_query, np.arange(queries + 1))
    count = np.diff(start)[copied]
    copy = np.repeat(np.arange(len(copied)), count)
    return copy, np.arange(len(copy)) + (start[copied] - np.cumsum(count) + count)[copy]


def judge_next(worst_cases: WorstCases, measure: Measure, count: int | None = None) -> pl.DataFrame:
    """query, doc, effect: the documents whose grade could change most, largest effect first.

    The effect is that of the highest grade on the mean difference of the pair of runs that it
    changes most, or on the mean if there is one run.
    """
    if count is not None and count < 1:
        raise InputError(f"{count} documents to judge", remedy="ask for 1 or more")
    runs = range(len(worst_cases.runs))
    documents, effects = grading_effects(worst_cases, runs, measure)
    frame = documents.to_frame(worst_cases.qrels).with_columns(effect=np.abs(effects))
    frame = frame.sort("effect", descending=True, maintain_order=True)
    return frame if count is None else frame.head(count)


def judging_file(frame: pl.DataFrame, ending: str) -> bytes:
    """Return a file of this ending with documents to judge, or with judgments.

    Without a column `grade`, each document gets grade −1, "not judged", to be replaced by an
    annotator. A TREC run (.trec) lists the documents in this order, for a golden set to pool.
    """
    if ending == ".trec":
        check_trec_ids(frame["query"], frame["doc"], "documents to judge")
        lines = [
            f"{row['query']} Q0 {row['doc']} {rank} {row.get('effect', 0.0)!r} next\n"
            for rank, row in enumerate(frame.iter_rows(named=True), 1)
        ]
        return "".join(lines).encode()
    rows = frame if "grade" in frame.columns else frame.with_columns(pl.lit(-1).alias("grade"))
    if ending == ".tsv":  # unquoted: no id contains a tab, and readers take a quote literally
        return rows.write_csv(separator="\t", quote_style="never").encode()
    return rows.write_ndjson().encode()


def merge_judgments(earlier: Qrels, later: Qrels) -> Qrels:
    """Join two sets of judgments; two grades for one document are an InputError."""
    frame = earlier.to_frame().join(
        later.to_frame(),
        on=["query", "doc"],
        how="full",
        coalesce=True,
        maintain_order="left_right",
    )
    conflicts = frame.filter(pl.col("grade") != pl.col("grade_right"))
    if conflicts.height:
        query, doc, old, new = conflicts.row(0)
        raise InputError(
            f"query {shorten(query)}, document {shorten(doc)} has grade {old} in {earlier.name} "
            f"and {new} in {later.name}",
            remedy="keep one of the two",
        )
    frame = frame.select("query", "doc", pl.coalesce("grade", "grade_right").alias("grade"))
    still_sampled = _sampled_documents(earlier).join(frame, on=["query", "doc"], how="anti")
    frame = pl.concat([frame, still_sampled])
    return replace(read_qrels(frame, name=earlier.name), scale=earlier.scale)


def _sampled_documents(qrels: Qrels) -> pl.DataFrame:
    """query, doc, grade −1 of documents that were pooled but not judged (for infAP)."""
    sampled = qrels.sampled
    query = np.arange(0) if sampled is None else sampled.query
    doc = qrels.doc.head(0) if sampled is None else sampled.doc
    return pl.DataFrame(
        {"query": qrels.queries.gather(query), "doc": doc, "grade": np.full(len(query), -1)}
    )


# ------------------------------------------------------------------------------- a judge's scale


def map_judge_grades(measure: Measure, qrels: Qrels, top: int) -> dict[int, int]:
    """Map a judge's grades 1–5 to the scale of these judgments.

    They stay as they are if the judgments, or the measure, have grades 1–5. Else 5 is the top of
    the scale, each grade below it one less, and 4 is relevant: 0 0 0 1 1 on a scale up to 1,
    0 0 0 1 2 up to 2, 0 0 1 2 3 up to 3. Longer scales are divided into equal steps.
    """
    grades = range(1, 6)
    has_judge_scale = top == 5 and len(qrels) > 0 and int(qrels.grade.min()) >= 1
    if measure.definition.grades is not None or has_judge_scale:
        return {grade: grade for grade in grades}
    if top > 4:
        return {grade: round((grade - 1) * top / 4) for grade in grades}
    return {grade: min(top, max(0, grade - 5 + max(top, 2))) for grade in grades}


def translate_grades(judge: Grader, scale: Mapping[int, int]) -> Grader:
    """Return a judge that gives the same grades on another scale."""

    def grade_all(documents: QueryDocuments) -> list[int | None]:
        return [None if grade is None else scale[grade] for grade in judge(documents)]

    return grade_all


def fill_holes(
    runs: Iterable[Run],
    qrels: Qrels,
    measures: Sequence[Measure],
    judge: Grader,
    excluded: pl.DataFrame | None = None,
) -> tuple[Qrels, str]:
    """Have the unjudged documents of all runs judged, to the depth of the deepest measure.

    Returns the judgments with the new ones, and a sentence on how many these are. Documents in
    `excluded` (query, doc) stay unjudged.
    """
    cutoffs = [measure.cutoff for measure in measures]
    depth = None if None in cutoffs else max(c for c in cutoffs if c is not None)
    policy = Policy()
    frames = [UnjudgedSet([MatchedRun(run, qrels, policy)], depth).to_frame(qrels) for run in runs]
    to_judge = pl.concat(frames).unique(maintain_order=True)
    if excluded is not None:
        to_judge = to_judge.join(excluded, on=["query", "doc"], how="anti", maintain_order="left")
    if not to_judge.height:
        return qrels, "no document in the top k is unjudged"
    graded = next((m for m in measures if m.definition.grades is not None), measures[0])
    scale = map_judge_grades(graded, qrels, top_grade(qrels))
    grades = translate_grades(judge, scale)(to_judge.rows())
    judgments = to_judge.with_columns(pl.Series("grade", grades, pl.Int64)).drop_nulls()
    judged = plural(judgments.height, "document")
    note = f"{judged} that nobody had judged {'was' if judgments.height == 1 else 'were'} judged"
    if failed := to_judge.height - judgments.height:
        note += f"; {failed} got no grade and count as not relevant"
    if not judgments.height:
        return qrels, note
    return merge_judgments(qrels, read_qrels(judgments)), note


# -------------------------------------------------------------------------------------- settling


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of judging: how many documents were judged, and the bound that remains."""

    a: str
    b: str
    measure: Measure
    bound: Bound
    settled: bool
    holes: int  # unjudged documents at the start
    judgements: pl.DataFrame = field(repr=False)  # query, doc, grade: in the order of judging
    failed: int = 0  # documents that the judge could not grade
    until: Goal = "certain"
    batch: int = 1  # documents judged at a time
    queries: int = 0  # judged completely, from the first that was drawn
    ci: Interval | None = None  # of the difference over these, with the goal 95%

    @property
    def asked(self) -> int:
        """Documents given to the judge, those without a grade included."""
        return self.judgements.height + self.failed

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the judgments made, and the bound that remains."""
        over_queries = {}
        if self.ci is not None:
            over_queries = {"queries": self.queries, "ci": interval_or_none(self.ci)}
        return {
            **plain_fields(self, "settled", "a", "b", "asked", "holes", "failed"),
            "measure": str(self.measure),
            **plain_fields(self.bound, "lowest", "highest"),
            **over_queries,
            "words": str(self),
            "judgements": self.judgements.to_dicts(),
        }

    def __str__(self) -> str:
        word = "settled" if self.settled else "not settled"
        failed = f" ({self.failed} got no grade and stay unjudged)" if self.failed else ""
        after = f"{word} after {self.asked} of {plural(self.holes, 'unjudged document')}{failed}"
        if self.ci is not None:
            return f"{after}, of {plural(self.queries, 'query')}: {self._significance(self.ci)}"
        low, high = self.bound.lowest, self.bound.highest
        if math.isnan(low):
            return f"{after}: {self.measure} is undefined, for nothing is relevant"
        if not self.bound.certain:
            ties = "; the order of ties decides" if self.judgements.height == self.holes else ""
            return f"{after}: {self.a} − {self.b} is {self.bound.span}{ties}"
        if low <= 0 <= high:
            return f"{after}: {self.a} and {self.b} are equal whatever the others are"
        ahead = self.a if self.measure.sign * low > 0 else self.b
        least, most = (amount(end, 3) for end in sorted((abs(low), abs(high))))
        to = "" if self.until == "certain" else f" to {most}"
        return f"{after}: {ahead} is ahead by {least}{to} whatever the others are"

    def _significance(self, ci: Interval) -> str:
        """Return the words for the interval over the judged queries."""
        low, high = ci
        if math.isnan(low):
            return f"undecided, too few queries differ between {self.a} and {self.b}"
        interval = f"{self.a} − {self.b} from {signed(low)} to {signed(high)} at 95%"
        if low <= 0 <= high:
            return f"undecided, {interval}"
        ahead, behind = (self.a, self.b) if self.measure.sign * low > 0 else (self.b, self.a)
        return f"{ahead} is ahead of {behind}, {interval}"


def settle(
    runs: Sequence[Run],
    qrels: Qrels,
    measure: Measure,
    judge: Grader,
    *,
    until: Goal = "certain",
    batch: int = 1,
    limit: int | None = None,
    policy: Policy | None = None,
    depth: int | None = None,
    scale: int | None = None,
    seed: int = 0,
) -> Settled:
    """Have documents judged until the better of two runs, or their difference, is known.

    `until` is "certain" (no grades of the other documents can change the sign), "95%" (whole
    queries, in the order drawn by `seed`, until the difference is significant), or a width of the
    bounds. `judge` gets (query, document) pairs, `batch` at a time, and returns their grades; None
    is a failure, and the document stays unjudged. After each batch the queries it contains are
    bounded again. At most `limit` documents are judged.

    >>> from rankproof.unjudged.judging_order import settle
    >>> runs = [rp.read_run({"q": docs}, name=docs[0]) for docs in (["a", "b"], ["b"])]
    >>> qrels = rp.read_qrels({"q": {"b": 1}})
    >>> result = settle(runs, qrels, rp.RR, lambda pairs: [1 for _ in pairs])
    >>> result.settled, result.bound.certain
    (True, True)
    """
    if len(runs) != 2:
        raise InputError(f"{plural(len(runs), 'run')} to settle", remedy="name two")
    if batch < 1:
        raise InputError(f"batches of {batch}", remedy="ask for 1 document or more at a time")
    worst_cases = WorstCases(runs, qrels, policy or Policy(), depth=depth, scale=scale)
    worst_cases.check([measure])
    return Settling(worst_cases, measure, until, seed).run(judge, batch, limit)


class Settling:
    """Judging in progress: the bounds of each query, renewed when one of its documents is graded.

    Documents are numbered as in `documents`, the unjudged ones of both runs (H).
    """

    def __init__(self, worst_cases: WorstCases, measure: Measure, until: Goal, seed: int = 0):
        if measure.has_open_scale:
            # Queries are bounded one by one, so all must use one scale.
            measure = measure(**{str(measure.definition.open_scale): worst_cases.scale})
            if worst_cases.scale > worst_cases.qrels.grade.max(initial=1):
                raise InputError(
                    f"what {measure.name} takes a grade for rests on the highest to be found",
                    remedy=f"name it: {measure}",
                )
        self.worst_cases, self.measure, self.until = worst_cases, measure, until
        a, b = worst_cases.matched
        self.is_counted = a.is_counted & b.is_counted  # (Q,)
        counted = np.flatnonzero(self.is_counted)
        self.order = counted[first_of_permutation(len(counted), len(counted), seed)]
        self.bounds = worst_cases.pair_bounds_by_query(0, 1, measure)
        self.differences = worst_cases.pair_differences(0, 1, measure)  # (Q,) as judged so far
        self.documents, self.effects = grading_effects(worst_cases, [0, 1], measure)
        self.is_open = self.is_counted[self.documents.query]  # (H,) to be judged
        self.unjudged_at_start = int(self.is_open.sum())
        self.grades: list[tuple[int, int]] = []  # number of a document, and its grade
        self.failed = 0  # documents that the judge could not grade

    def open_documents(self) -> QueryDocuments:
        """All documents that are not judged yet."""
        return self._ids(np.flatnonzero(self.is_open))

    def _ids(self, numbers: Int) -> QueryDocuments:
        queries = self.worst_cases.qrels.queries.gather(self.documents.query[numbers])
        return list(zip(queries, self.documents.doc.gather(numbers), strict=True))

    def bound(self) -> Bound:
        """The bound of the mean difference with the grades so far."""
        return self.worst_cases.bound(self.bounds, self.differences, self.is_counted)

    def judged_queries(self) -> Int:
        """The queries before the first that has an open document, in the order drawn."""
        is_unfinished = np.isin(self.order, self.documents.query[self.is_open])
        return self.order[: int(is_unfinished.argmax())] if is_unfinished.any() else self.order

    def interval(self) -> Interval:
        """The sequential interval of the difference over the queries judged completely."""
        differences = self.differences[self.judged_queries()]
        return sequential_interval(differences[~np.isnan(differences)], len(self.order))

    def is_settled(self, bound: Bound) -> bool:
        if self.until == "95%":
            low, high = self.interval()
            return low > 0 or high < 0
        return bound.certain if self.until == "certain" else bound.width <= self.until

    def run(self, judge: Grader, batch: int, limit: int | None) -> Settled:
        """Have documents judged until the bound is reached, none is open, or the limit is."""
        bound = self.bound()
        while not self.is_settled(bound) and self.is_open.any():
            requested = len(self.grades) + self.failed
            count = batch if limit is None else min(batch, limit - requested)
            if count < 1:
                break
            self._judge(judge, self.choose_next(count, bound))
            bound = self.bound()
        return Settled(
            a=self.worst_cases.runs[0].name,
            b=self.worst_cases.runs[1].name,
            measure=self.measure,
            bound=bound,
            settled=self.is_settled(bound),
            holes=self.unjudged_at_start,
            judgements=self._judgments(),
            failed=self.failed,
            until=self.until,
            queries=len(self.judged_queries()),
            ci=self.interval() if self.until == "95%" else None,
        )

    def _judge(self, judge: Grader, chosen: Int) -> None:
        """Have these documents judged, and bound their queries again."""
        grades = judge(self._ids(chosen))
        if len(grades) != len(chosen):
            raise InputError(
                f"the judge gave {plural(len(grades), 'grade')} for "
                f"{plural(len(chosen), 'document')}",
                remedy="return one grade, or None, for each",
            )
        self.is_open[chosen] = False
        graded = [(int(n), int(g)) for n, g in zip(chosen, grades, strict=True) if g is not None]
        self.failed += len(chosen) - len(graded)
        self._check_scale(graded)
        self.grades += graded
        if graded:
            self._update(np.unique(self.documents.query[[number for number, _ in graded]]))

    def _judgments(self) -> pl.DataFrame:
        """query, doc, grade: the grades so far, in the order in which they were given."""
        numbers = np.array([number for number, _ in self.grades], np.int64)
        grades = np.array([grade for _, grade in self.grades], np.int64)
        queries = self.worst_cases.qrels.queries.gather(self.documents.query[numbers])
        docs = self.documents.doc.gather(numbers)
        return pl.DataFrame({"query": queries, "doc": docs, "grade": grades})

    def _check_scale(self, graded: list[tuple[int, int]]) -> None:
        low, high = self.measure.definition.grades or (0, self.worst_cases.scale)
        for number, grade in graded:
            if not low <= grade <= high:
                raise InputError(
                    f"the judge gave grade {grade}, outside {low}–{high}",
                    place=f"document {shorten(self.documents.doc[number])}",
                    remedy="name the scale, or have the judge keep to it",
                )

    def choose_next(self, count: int, bound: Bound) -> Int:
        """The open documents whose judgment matters most, at most `count` of them.

        With the goal 95% those of the first query that has any, and of those drawn after it.

        The effect of a document that could reverse the lead is weighted by the probability that it
        is not relevant (then the nearer bound moves), of one that could increase the lead by the
        probability that it is relevant. The share of relevant documents so far estimates it.
        """
        if self.until == "95%":
            place = np.empty(len(self.is_counted), np.int64)
            place[self.order] = np.arange(len(self.order))
            open_documents = np.flatnonzero(self.is_open)
            by_query = np.argsort(place[self.documents.query[open_documents]], kind="stable")
            return open_documents[by_query[:count]]
        weight = np.abs(self.effects)
        if self.until == "certain" and bound.expected:
            relevant = sum(grade >= self._relevant_from for _, grade in self.grades)
            probability = (1 + relevant) / (2 + len(self.grades))
            helps_leader = self.effects * bound.expected > 0
            weight = weight * np.where(helps_leader, probability, 1.0 - probability)
        weight = np.where(self.is_open, weight, -1.0)
        chosen = np.argsort(-weight, kind="stable")[:count]
        return chosen[weight[chosen] >= 0]

    @property
    def _relevant_from(self) -> int:
        """The lowest grade that counts as relevant."""
        return self.measure.threshold if self.measure.definition.grades is None else 4

    def _update(self, queries: Int) -> None:
        """Compute bounds, differences and effects of these queries with the grades so far."""
        whole = self.worst_cases
        # Only these queries, with only the judgments and lists that they have.
        graded = np.array(self.grades, np.int64).reshape(-1, 2)
        graded = graded[np.isin(self.documents.query[graded[:, 0]], queries)]
        qrels = _select_judgments(whole.qrels, queries, self.documents, graded)
        runs = [_select_lists(run.run, run.matching.listed[queries]) for run in whole.matched]
        scale = max(whole.scale, whole.top(self.measure))  # the judge may have gone up to either
        part = WorstCases(runs, qrels, whole.policy, depth=whole.depth, scale=scale)
        bounds = part.pair_bounds_by_query(0, 1, self.measure)
        self.bounds.low[queries], self.bounds.high[queries] = bounds.low, bounds.high
        self.differences[queries] = part.pair_differences(0, 1, self.measure)
        documents, effects = grading_effects(
            part, [0, 1], self.measure, _query_mean(self.differences, self.is_counted)
        )
        # `part` numbers queries and documents differently, and lacks those judged by now.
        effect_of = {
            (int(queries[query]), doc): effect
            for query, doc, effect in zip(documents.query, documents.doc, effects, strict=True)
        }
        for number in np.flatnonzero(np.isin(self.documents.query, queries)).tolist():
            key = int(self.documents.query[number]), self.documents.doc[number]
            self.effects[number] = effect_of.get(key, 0.0)


def _select_judgments(qrels: Qrels, queries: Int, documents: UnjudgedSet, graded: Int) -> Qrels:
    """The judgments of some queries, with new grades added: rows of document number and grade."""
    rows = np.concatenate([np.arange(*qrels.start[q : q + 2]) for q in queries])
    counts = np.diff(qrels.start)[queries]
    number, new_grade = graded[:, 0], graded[:, 1]
    codes = np.concatenate(
        [
            np.repeat(np.arange(len(queries)), counts),
            np.searchsorted(queries, documents.query[number]),
        ]
    )
    doc = pl.concat([qrels.doc.gather(rows), documents.doc.gather(number).alias("doc")])
    grade = np.concatenate([qrels.grade[rows], new_grade])
    names = qrels.queries.gather(queries)
    selected = build_qrels(qrels.name, names, codes.astype(np.int32), doc, grade)
    if qrels.sampled is None:
        return selected
    of_queries = np.flatnonzero(np.isin(qrels.sampled.query, queries))
    query, doc = (
        np.searchsorted(queries, qrels.sampled.query[of_queries]),
        qrels.sampled.doc.gather(of_queries),
    )
    is_judged = kernels.find_rows(None, selected.doc, selected.start, doc, query) >= 0
    still_sampled = np.flatnonzero(~is_judged)
    return replace(selected, sampled=Sampled(query[still_sampled], doc.gather(still_sampled)))


def _select_lists(run: Run, listed: Int) -> Run:
    """The run with only the lists of these indices; −1 stands for a query without a list."""
    listed = listed[listed >= 0]
    rows = np.concatenate(
        [np.arange(0), *(np.arange(*run.start[index : index + 2]) for index in listed)]
    ).astype(np.int64)
    return replace(
        run,
        queries=run.queries.gather(listed),
        start=np.append(0, np.cumsum(np.diff(run.start)[listed])),
        doc=run.doc.gather(rows),
        score=run.score[rows],
        rest=None if run.rest is None else run.rest[rows],
        cut=None,
        index=None,
        cache={},
    )
