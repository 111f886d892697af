"""Check that the judgments still describe the documents that the runs list.

After a corpus was chunked or numbered again, no listed document is judged, and every value is 0. A
sound candidate on a large corpus with few judgments also lists mostly unknown documents; so ids
count as changed only if next to nothing relevant is listed, or if some queries list only unknown
documents while the others list known ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rankproof.comparison.gate_inputs import Side
from rankproof.data.tables import Qrels, Run
from rankproof.foundation.phrasing import out_of, plural

_MOSTLY_UNKNOWN = 0.95  # share of unknown documents from which all ids seem to have changed
_CHANGED_QUERIES = 0.2  # share of queries with only unknown documents that makes labels stale
_FAMILIAR = 0.5  # largest unknown share of the other queries; above, it is another engine
_HARDLY_ANY = 0.02  # share of the relevant documents that lists could hold: practically none


@dataclass(frozen=True, slots=True)
class Labels:
    """Whether the judgments still describe what the runs list, and the counts that show it."""

    relevant: int  # relevant judgments of all queries
    baseline: int | None  # number of them that the baseline lists; None: unknown
    candidate: int | None
    neither: int | None
    stale: bool = False
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON has them."""
        return {
            "relevant": self.relevant,
            "listed_by_baseline": self.baseline,
            "listed_by_candidate": self.candidate,
            "listed_by_neither": self.neither,
            "stale": self.stale,
            "why": self.why or None,
        }


def labels_of(qrels: Qrels, baseline: Side, candidate: Side) -> Labels:
    """Return whether the judgments still describe what both sides list."""
    relevant = int((qrels.grade >= 1).sum())
    counts = [
        None if side.evaluation.retrieved < 0 else side.evaluation.retrieved
        for side in (baseline, candidate)
    ]
    changed = sorted(
        role
        for role in baseline.corpus.keys() & candidate.corpus.keys()
        if baseline.corpus[role] != candidate.corpus[role]
    )
    neither = None
    why = ""
    if candidate.run is not None:
        runs = [side.run for side in (baseline, candidate) if side.run is not None]
        neither = _listed_by_none(qrels, runs)
        why = _changed_ids(qrels, baseline, candidate.run, candidate.evaluation.retrieved)
        per_query = relevant / max(1, len(qrels.queries))
        capacity = sum(np.minimum(np.diff(r.start), per_query).sum() for r in runs) / len(runs)
        if not why and relevant - neither <= _HARDLY_ANY * capacity:
            why = (
                f"{out_of(neither, relevant, 'relevant document', 'is', 'are')} listed by neither "
                "run: the ids of the judgements are not those that the runs list."
            )
    if not why and changed:
        why = f"The corpus is another one ({', '.join(changed)} differs by digest)."
    if why:
        why = (
            f"The labels no longer describe the corpus. {why} Nothing is said of the candidate: "
            "label the new documents, or map their ids, and gate again."
        )
    return Labels(relevant, counts[0], counts[1], neither, bool(why), why)


def _listed_by_none(qrels: Qrels, runs: list[Run]) -> int:
    """Return the number of relevant judgments whose document no run lists for the query."""
    unlisted = qrels.to_frame().filter(pl.col("grade") >= 1).select("query", "doc")
    for run in runs:
        listed = run.to_frame().select("query", "doc")
        unlisted = unlisted.join(listed, on=["query", "doc"], how="anti")
    return len(unlisted)


def _changed_ids(qrels: Qrels, baseline: Side, candidate: Run, retrieved: int) -> str:
    """Return why the candidate's ids seem to be new ones; "" if they do not."""
    known = [qrels.doc.cast(pl.String)]
    if baseline.run is not None:
        known.append(baseline.run.doc.cast(pl.String))
    frame = candidate.to_frame().select("query", "doc").with_columns(pl.col("doc").cast(pl.String))
    is_known = pl.col("doc").is_in(pl.concat(known).unique().implode())
    listed = frame.with_columns(is_new=~is_known)
    listed = listed.filter(pl.col("query").is_in(qrels.queries.implode()))
    if not len(listed):
        return ""
    new_share = listed.group_by("query").agg(pl.col("is_new").mean())["is_new"].to_numpy()
    total_share = float(listed["is_new"].mean() or 0.0)  # type: ignore[arg-type]
    is_all_new = new_share == 1.0
    retrieved_before = max(baseline.evaluation.retrieved, 0) or int((qrels.grade >= 1).sum())
    hardly_any = retrieved <= _HARDLY_ANY * retrieved_before
    all_changed = total_share >= _MOSTLY_UNKNOWN and hardly_any
    some_changed = (
        is_all_new.mean() >= _CHANGED_QUERIES
        and not is_all_new.all()
        and new_share[~is_all_new].mean() < _FAMILIAR
    )
    if not all_changed and not some_changed:
        return ""
    return (
        f"{total_share:.0%} of what {candidate.name} lists, and all of it for "
        f"{int(is_all_new.sum())} of {plural(len(is_all_new), 'query')}, are documents that "
        "neither the judgements nor the baseline know."
    )
