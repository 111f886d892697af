"""Holes and what is asked beside them: as the verb asks, and `verify` again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from rankproof.data import read_qrels
from rankproof.data.tables import Qrels
from rankproof.evaluation.recorded_inputs import Given
from rankproof.unjudged import leave_one_out
from rankproof.unjudged.bounds import Unjudged, View
from rankproof.unjudged.judging_order import Settled, judge_next, merged
from rankproof.unjudged.sampling import Sampled, draw, estimate


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found; None for what was not asked for."""

    known: Qrels  # with all that was judged since
    found: Unjudged
    settled: Settled | None
    next: pl.DataFrame | None  # documents to judge
    judged: pl.DataFrame | None  # those that were
    sampled: Sampled | None
    left: pl.DataFrame | None

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof holes --format json` prints."""
        data: dict[str, Any] = self.found.to_dict()
        data |= {} if self.settled is None else {"settled": self.settled.to_dict()}
        data |= {} if self.next is None else {"next": self.next.to_dicts()}
        data |= {} if self.sampled is None else {"sample": self.sampled.to_dict()}
        return data | ({} if self.left is None else {"leave_one_out": self.left.to_dicts()})


def look(
    given: Given,
    *,
    since: Qrels | None = None,
    settle: Callable[[View], Settled] | None = None,
    judge: Callable[[View, pl.DataFrame], tuple[Qrels, pl.DataFrame]] | None = None,
) -> Looked:
    """Holes under what is known and was judged `since`; `settle` and `judge` have some judged."""
    asked, files, seed = given.config, given.files, given.seed
    runs, known, measures, policy = list(given.runs()), given.qrels, given.measures, given.policy
    count, sample, depth = (asked[k] for k in ("judge_next", "judge_sample", "leave_one_out"))
    if since is not None and sample is None:
        known = merged(known, since)
    how = {"depth": asked["depth"], "scale": asked["scale"]}
    view = View(runs, known, policy, **how)
    settled = following = judged = sampled = left = None
    if settle is not None:
        settled = settle(view)
        judged = settled.judgements
        if judged.height:
            known = merged(known, read_qrels(judged))
        view = View(runs, known, policy, **how)
    found = view.found(measures)
    if count is not None:
        following = judge_next(view, measures[0], count)
    if sample is not None:
        following = draw(view, measures, sample, seed)
        if judge is not None:
            since, judged = judge(view, following)
        if since is not None:
            sampled = estimate(view, measures, since, sample, seed=seed)
    if depth is not None or "provenance" in files:
        brought = (
            leave_one_out.read_provenance(Path(files["provenance"]))
            if "provenance" in files
            else leave_one_out.contributions(runs, known, depth)
        )
        left = leave_one_out.leave_one_out(runs, known, measures, brought, policy=policy)
    return Looked(known, found, settled, following, judged, sampled, left)
