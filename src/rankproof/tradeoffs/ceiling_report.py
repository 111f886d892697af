"""What candidates allow: ceilings, accuracy given a hit, novelty, and the measure's constants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rankproof.data.tables import Run
from rankproof.evaluation.recorded_inputs import Given
from rankproof.tradeoffs.accuracy import Accuracy, accuracy_given_hit
from rankproof.tradeoffs.ceilings import Ceilings, ceilings
from rankproof.tradeoffs.novelty import Novelty, novelty
from rankproof.tradeoffs.pairs import read_pairs
from rankproof.tradeoffs.sensitivity import Sensitivity, sensitivity


@dataclass(frozen=True, slots=True)
class Allowed:
    """Of each run, at each cutoff; None for what was not asked for."""

    ceilings: list[Ceilings]
    accuracy: list[tuple[str, Accuracy]] | None
    novelty: list[Novelty] | None
    sensitivity: Sensitivity | None

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof ceilings --format json` prints."""
        data: dict[str, Any] = {"runs": [c.to_dict() for c in self.ceilings]}
        if self.accuracy is not None:
            data["accuracy"] = [{"run": name, **a.to_dict()} for name, a in self.accuracy]
        if self.novelty is not None:
            data["novelty"] = [n.to_dict() for n in self.novelty]
        if self.sensitivity is not None:
            data["sensitivity"] = self.sensitivity.to_dict()
        return data


def allowed(given: Given) -> Allowed:
    """Of each run, which are held one at a time."""
    asked, files, qrels, pools = given.config, given.files, given.qrels, given.pools()
    cutoffs, order, seed = asked["cutoffs"], asked["order"], given.seed
    answers = read_pairs(files["correct"], "query", "correct") if "correct" in files else None
    origin = read_pairs(files["sources"], "doc", "source") if "sources" in files else None
    found = Allowed([], None if answers is None else [], None if origin is None else [], None)
    held: dict[str, Run] = {}
    for run in given.runs():
        depth = asked["pool_depth"]
        found.ceilings.append(
            ceilings(
                *(run, qrels, given.measures, cutoffs, pools or None, depth), order=order, seed=seed
            )
        )
        for k in cutoffs:
            if found.accuracy is not None:
                hit = accuracy_given_hit(run, qrels, answers, k, order=order, seed=seed)
                found.accuracy.append((run.name, hit))
            if found.novelty is not None:
                found.novelty.append(
                    novelty(run, qrels, origin, k, beta=asked["beta"], order=order)
                )
        if asked["sensitivity"]:
            held[run.name] = run
    return replace(found, sensitivity=sensitivity(held, qrels, cutoffs[0]) if held else None)
