"""Check, before a gate, that the judgments still describe the documents that both runs list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from rankproof.comparison.gate_inputs import Side
from rankproof.data.tables import Qrels, Run
from rankproof.evaluation import match_judgments
from rankproof.evaluation.id_profile import profile_ids


@dataclass(frozen=True, slots=True)
class Labels:
    """Whether the judgments still describe what the runs list, and the counts that show it."""

    relevant: int  # relevant judgments of all queries
    baseline: int | None  # number of them that the baseline lists; None: unknown
    candidate: int | None
    neither: int | None
    why: str = ""  # why they no longer do; "" if they do

    @property
    def stale(self) -> bool:
        """True if no value describes the candidate."""
        return bool(self.why)

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


def compare_ids(qrels: Qrels, baseline: Side, candidate: Side) -> Labels:
    """Return whether the judgments still describe what both sides list."""
    counts = [
        None if side.evaluation.retrieved < 0 else side.evaluation.retrieved
        for side in (baseline, candidate)
    ]
    neither = None
    if candidate.runs:
        neither = _listed_by_none(qrels, [*baseline.runs, *candidate.runs])
    why = _id_problem(qrels, baseline, candidate) or _changed_corpus(baseline, candidate)
    return Labels(int((qrels.grade >= 1).sum()), counts[0], counts[1], neither, why)


def _id_problem(qrels: Qrels, baseline: Side, candidate: Side) -> str:
    """Return why ids seem to have changed: documents of the baseline are known ones, too."""
    evaluation = candidate.evaluation
    problem = evaluation.id_problem
    if candidate.runs and baseline.runs and not problem:
        matched = match_judgments(candidate.runs[0], qrels, evaluation.policy)
        known = pl.concat([run.doc for run in baseline.runs])
        problem = profile_ids(candidate.runs[0], qrels, matched, known=known).problem
    if not problem:
        return ""
    return f"in {evaluation.name} {problem} Label the new documents, or map their ids."


def _changed_corpus(baseline: Side, candidate: Side) -> str:
    """Return which files of the corpus are others than those the baseline was made with."""
    changed = sorted(
        role
        for role in baseline.corpus.keys() & candidate.corpus.keys()
        if baseline.corpus[role] != candidate.corpus[role]
    )
    if not changed:
        return ""
    return f"the corpus is another one ({', '.join(changed)} differs by digest)."


def _listed_by_none(qrels: Qrels, runs: list[Run]) -> int:
    """Return the number of relevant judgments whose document no run lists for the query."""
    unlisted = qrels.to_frame().filter(pl.col("grade") >= 1).select("query", "doc")
    for run in runs:
        listed = run.to_frame().select("query", "doc")
        unlisted = unlisted.join(listed, on=["query", "doc"], how="anti")
    return len(unlisted)
