"""Whether the judgements still describe what the runs list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rankproof.comparison.gate_inputs import Side
from rankproof.data.tables import Qrels, Run
from rankproof.foundation.phrasing import out_of, plural

_UNKNOWN = 0.95  # of a run's documents: ids that nothing else knows have turned over
_TURNED = 0.2  # of the queries: so many with unknown ids alone make labels stale
_FAMILIAR = 0.5  # of what the other queries list: so much unknown at most, or it is another engine
_FOUND = 0.02  # of the relevant documents that the lists have room for: as good as none


@dataclass(frozen=True, slots=True)
class Labels:
    """Whether the judgements still describe what the runs list."""

    relevant: int  # judged relevant, over all queries
    baseline: int | None  # of which the baseline lists so many; None: not known
    candidate: int | None
    neither: int | None
    stale: bool = False
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "relevant": self.relevant,
            "listed_by_baseline": self.baseline,
            "listed_by_candidate": self.candidate,
            "listed_by_neither": self.neither,
            "stale": self.stale,
            "why": self.why or None,
        }


def labels_of(qrels: Qrels, baseline: Side, candidate: Side) -> Labels:
    """Whether what is judged is still what the runs list."""
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
        listed = [s.run for s in (baseline, candidate) if s.run is not None]
        neither = _listed_by_none(qrels, listed)
        why = _turned_over(qrels, baseline, candidate.run, candidate.evaluation.retrieved)
        each = relevant / max(1, len(qrels.queries))
        room = sum(np.minimum(np.diff(r.start), each).sum() for r in listed) / len(listed)
        if not why and relevant - neither <= _FOUND * room:
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
    """Relevant judgements whose document none of the runs lists for the query."""
    wanted = qrels.to_frame().filter(pl.col("grade") >= 1).select("query", "doc")
    for run in runs:
        wanted = wanted.join(run.to_frame().select("query", "doc"), on=["query", "doc"], how="anti")
    return len(wanted)


def _turned_over(qrels: Qrels, baseline: Side, candidate: Run, found: int) -> str:
    """Why the candidate's ids seem to be new ones; empty where they are not.

    Where labels are few and the corpus is large, most of what a sound candidate lists is new too.
    So all ids have turned over only if next to nothing relevant is found besides, and some only if
    the other queries list what is known.
    """
    known = [qrels.doc.cast(pl.String)]
    if baseline.run is not None:
        known.append(baseline.run.doc.cast(pl.String))
    frame = candidate.to_frame().select("query", "doc").with_columns(pl.col("doc").cast(pl.String))
    new = frame.with_columns(new=~pl.col("doc").is_in(pl.concat(known).unique().implode()))
    judged = new.filter(pl.col("query").is_in(qrels.queries.implode()))
    if not len(judged):
        return ""
    each = judged.group_by("query").agg(pl.col("new").mean())["new"].to_numpy()
    share = float(judged["new"].mean() or 0.0)  # type: ignore[arg-type]
    turned = each == 1.0
    some = turned.mean() >= _TURNED and not turned.all() and each[~turned].mean() < _FAMILIAR
    before = max(baseline.evaluation.retrieved, 0) or int((qrels.grade >= 1).sum())
    if not (share >= _UNKNOWN and found <= _FOUND * before) and not some:
        return ""
    return (
        f"{share:.0%} of what {candidate.name} lists, and all of it for {int(turned.sum())} of "
        f"{plural(len(turned), 'query')}, are documents that neither the judgements nor the "
        "baseline know."
    )
