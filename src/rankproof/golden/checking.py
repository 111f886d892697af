"""How far a judge can be trusted: with itself when asked again, and with people."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rankproof.errors import InputError
from rankproof.golden.building import Build
from rankproof.golden.requests import make_request
from rankproof.golden.result import Golden
from rankproof.golden.store import pair
from rankproof.statistics.agreement import (
    Agreement,
    Coefficient,
    SelfConsistency,
    agreement,
    self_consistency,
)

Pairs = list[tuple[int, int]]  # (judge, person)
RELEVANT = 4  # of the judge's grades


@dataclass(frozen=True, slots=True)
class HumanAgreement:
    """The judge beside people, over passages that both graded."""

    source: str
    scale: Literal["1–5", "binary"]
    pairs: int
    agreement: Agreement
    found: float  # share of what people call relevant that the judge grades 4 or 5; NaN: none
    true: float  # share of what the judge grades 4 or 5 that people call relevant; NaN: none
    means: tuple[float, float]  # the judge's mean grade of what people call relevant, and not

    def to_dict(self) -> dict[str, Any]:
        figures = [self.found, self.true, *self.means]
        found, true, good, bad = (None if math.isnan(x) else x for x in figures)
        return {
            "source": self.source,
            "scale": self.scale,
            "pairs": self.pairs,
            "found": found,
            "true": true,
            "mean_grade_relevant": good,
            "mean_grade_other": bad,
            **self.agreement.to_dict(),
        }


def against_people(
    golden: Golden,
    human: Path | None = None,
    *,
    relevant: int = 1,
    unjudged: Literal["skip", "zero"] = "skip",
    seed: int = 0,
) -> HumanAgreement:
    """The judge's own grades beside a qrels file, or beside the corrections in the store.

    Labels that are all within 1–5, some of them 4 or more, are taken to be on the rubric; any
    others are made binary: `relevant` or more, against the judge's 4 or more.
    """
    judged = {
        (query.query, p.doc): p for query in golden.queries for p in query.passages if p.judged
    }
    if human is None:
        labels = {
            pair: p.grade for pair, p in judged.items() if p.grade is not None and p.validated
        }
        source = "corrections"
    else:
        from rankproof.records import read_qrels

        rows = read_qrels(human).to_frame().iter_rows()
        labels = {(query, doc): grade for query, doc, grade in rows}
        source = human.name
        if unjudged == "zero":
            asked = {query for query, _ in labels}
            labels |= {pair: 0 for pair in judged if pair not in labels and pair[0] in asked}
    both: Pairs = [
        (p.judged, labels[pair]) for pair, p in judged.items() if p.judged and pair in labels
    ]
    if not both:
        raise InputError(
            "no passage has both a grade of the judge and a label of a person",
            place=source,
            remedy="label passages of the pools, or correct some",
        )
    judge = np.array([j for j, _ in both])
    people = np.array([h for _, h in both])
    every = labels.values()  # also of passages outside the pools: they show the scale
    rubric = human is None or (min(every) >= 1 and 4 <= max(every) <= 5)
    good = people >= (RELEVANT if rubric else relevant)
    if not rubric and unjudged == "skip" and good.all():
        raise InputError(
            "labels only what is relevant: a judge cannot be wrong on such passages alone",
            place=source,
            remedy="--unjudged zero counts the other pooled passages of a query as not relevant",
        )
    if rubric:
        result = agreement(judge, people, seed=seed)
    else:
        both_ways = agreement(judge >= RELEVANT, good, levels=(0, 1), relevant=1, seed=seed)
        # Two levels have no distances: weighted coefficients would say the same again.
        wanted = ("exact", "κ", "AC1", _ALPHA)
        kept = {name: c for name, c in both_ways.coefficients.items() if name in wanted}
        result = Agreement(both_ways.confusion, kept)
    return HumanAgreement(
        source,
        "1–5" if rubric else "binary",
        len(both),
        result,
        _share(judge[good] >= RELEVANT),
        _share(good[judge >= RELEVANT]),
        (_share(judge[good]), _share(judge[~good])),
    )


def against_itself(build: Build, sample: int, repeats: int) -> tuple[SelfConsistency, int]:
    """Grade a seeded sample of batches again, each in another order; how many passages."""
    prompt, settings = build.prompts["grade"], build.settings
    texts = {
        (pool.query, doc): (pool.question, text)
        for pool in build.pools()
        for doc, text in zip(pool.documents, pool.texts, strict=True)
    }
    with build.prepared() as judge:
        where = "kind = 'grade' AND repeat = 0 AND retired = 0 AND judge = ? AND result NOT NULL"
        first = [  # what was graded, and stands in the pools with the texts of then
            reply
            for reply in build.store.replies(where, (build.number(judge, "grade"),))
            if all(
                pair(*texts[reply.query, doc]) == what if (reply.query, doc) in texts else False
                for doc, what in zip(reply.documents, reply.pairs, strict=True)
            )
        ]
        chosen = sorted(
            random.Random(settings.seed).sample(range(len(first)), min(sample, len(first)))
        )
        rounds = [[first[at] for at in chosen]]
        with build.asker(judge, "judging again", len(chosen) * repeats) as asker:
            for repeat in range(1, repeats + 1):
                requests = [
                    make_request(
                        *("grade", prompt, reply.query, texts[reply.query, reply.documents[0]][0]),
                        [(doc, texts[reply.query, doc][1]) for doc in reply.documents],
                        seed=settings.seed,
                        repeat=repeat,
                    )
                    for reply in rounds[0]
                ]
                rounds.append(asker.ask(requests))
    keys = [(reply.query, doc) for reply in rounds[0] for doc in sorted(reply.documents)]
    table = []
    for replies in rounds:
        found: dict[tuple[str, str], float] = {}
        for reply in replies:
            if isinstance(reply.result, dict):
                found |= {(reply.query, doc): grade for doc, grade in reply.result.items()}
        table.append([found.get(key, math.nan) for key in keys])
    return self_consistency(np.array(table), seed=build.settings.seed), len(keys)


def consistency_dict(found: SelfConsistency) -> dict[str, Any]:
    """For JSON."""
    return {name: Coefficient.to_dict(getattr(found, name)) for name in _FIGURES}


_ALPHA = "α, nominal"
_FIGURES = ("exact", "difference", "sd", "alpha")


def _share(values: Any) -> float:
    return float(np.mean(values)) if len(values) else math.nan
