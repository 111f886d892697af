"""How far a judge can be trusted: with itself when asked again, and with people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from rankproof.data.tables import SET_SCALE
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.golden.annotators import PAIR_FIGURES, between, everyone
from rankproof.golden.building import Build, Member
from rankproof.golden.judgments import pair
from rankproof.golden.requests import make_request
from rankproof.golden.result import Golden
from rankproof.golden.store import Store
from rankproof.presentation.json_values import told
from rankproof.statistics.agreement import (
    Agreement,
    Coefficient,
    SelfConsistency,
    agreement,
    self_consistency,
)
from rankproof.statistics.intervals import MIN_QUERIES
from rankproof.statistics.resampling import draw_sample
from rankproof.statistics.two_phase import TwoPhase, two_phase_of

if TYPE_CHECKING:
    from rankproof.data.tables import Qrels, Run, Scale
    from rankproof.measures import Measure

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
    relevant: int  # the lowest of people's grades that is

    def lines(self) -> list[str]:
        """For people: what was compared, what the judge finds and what of it is true."""
        by = f"relevant: {self.relevant} or more"
        by += f", the judge's {RELEVANT} or more" * (self.scale == "binary")
        found = (
            "people call none of them relevant"
            if math.isnan(self.found)
            else f"of what people call relevant the judge grades {self.found:.0%} 4 or 5"
        )
        true = (
            "it grades none of them 4 or 5"
            if math.isnan(self.true)
            else f"of what it grades 4 or 5 people call {self.true:.0%} relevant"
        )
        where = ("where people say relevant", "elsewhere")
        means = [f"{x:.2f} {at}" for x, at in zip(self.means, where, strict=True) if x == x]
        return [
            f"{plural(self.pairs, 'passage')}, labels on a {self.scale} scale; {by}",
            f"{found}; {true}",
            f"its mean grade: {', '.join(means)}",
        ]

    def to_dict(self) -> dict[str, Any]:
        figures = [self.found, self.true, *self.means]
        found, true, good, bad = (None if math.isnan(x) else x for x in figures)
        return {
            **told(self, "source", "scale", "pairs"),
            "found": found,
            "true": true,
            "mean_grade_relevant": good,
            "mean_grade_other": bad,
            **self.agreement.to_dict(),
        }


def on_rubric(labels: Qrels) -> bool:
    """Whether people's labels are grades from 1 to 5, as all of them show, or the scale beside."""
    return labels.scale_beside(SET_SCALE) == SET_SCALE


def against_people(
    golden: Golden,
    human: Path | None = None,
    *,
    relevant: int = 1,
    unjudged: Literal["skip", "zero"] = "skip",
) -> HumanAgreement:
    """The judge's own grades beside a qrels file, or beside the corrections in the store.

    Labels that are all within 1–5, some of them 4 or more, are taken to be on the rubric, unless
    `relevant` says more than 1; any others are made binary: `relevant` or more, against the judge's
    4 or more. `unjudged` zero counts what they leave out as not relevant: on the rubric, as a 1.
    """
    judged = {
        (query.query, p.doc): p for query in golden.queries for p in query.passages if p.judged
    }
    if human is None:
        labels = {pair: grade for pair, p in judged.items() if (grade := p.people) is not None}
        source, rubric = "corrections", True
    else:
        from rankproof.data import read_qrels

        given = read_qrels(human)
        labels = {(query, doc): grade for query, doc, grade in given.to_frame().iter_rows()}
        # On the rubric all grades are 1 or more: who says more speaks of another scale.
        source, rubric = human.name, on_rubric(given) and relevant == 1
        if unjudged == "zero" and not labels.keys().isdisjoint(judged):  # of these documents at all
            asked, zero = {query for query, _ in labels}, SET_SCALE.lowest if rubric else 0
            labels |= {pair: zero for pair in judged if pair not in labels and pair[0] in asked}
    shared = [pair for pair in judged if pair in labels]
    both: Pairs = [(judged[pair].judged or 0, labels[pair]) for pair in shared]
    of = [query for query, _ in shared]
    if not both:
        raise InputError(
            "no passage has both a grade of the judge and a label of a person",
            place=source,
            remedy="label passages of the pools, or correct some",
        )
    judge = np.array([j for j, _ in both])
    people = np.array([h for _, h in both])
    good = people >= (RELEVANT if rubric else relevant)
    if not rubric and unjudged == "skip" and good.all():
        raise InputError(
            "labels only what is relevant: a judge cannot be wrong on such passages alone",
            place=source,
            remedy="--unjudged zero counts the other pooled passages of a query as not relevant",
        )
    if rubric:
        result = agreement(judge, people, queries=of)
    else:
        both_ways = agreement(judge >= RELEVANT, good, levels=(0, 1), relevant=1, queries=of)
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
        RELEVANT if rubric else relevant,
    )


def between_dict(store: Store, golden: Golden) -> dict[str, Any]:
    """For JSON: every two people, each person and the judge, all people together."""
    said = store.active_corrections()
    alpha = everyone(said)
    return {
        "pairs": [
            {
                "who": one,
                "with": other,
                "figures": {name: found.coefficients[name].to_dict() for name in PAIR_FIGURES},
            }
            for one, other, found in between(said, golden.judged())
        ],
        "alpha": None if alpha is None else alpha.to_dict(),
    }


def as_people(
    store: Store,
    golden: Golden,
    human: Path | None,
    runs: Sequence[Run],
    measures: Sequence[Measure],
) -> dict[str, dict[Measure, TwoPhase]]:
    """Measures as people would have them, of runs, or of the lists that were pooled.

    People's queries are those of `human`, or those of which they graded every pooled passage.
    Measures are of the scale from 1 to 5; of labels on another they are as that one means them.
    """
    from rankproof.data import read_qrels, read_run
    from rankproof.evaluation import Policy, evaluate_tables

    by_judge = {
        q.query: {p.doc: p.judged for p in q.passages if p.judged is not None}
        for q in golden.queries
    }
    if human is None:
        labels = {
            q.query: {p.doc: p.people or 0 for p in q.passages}
            for q in golden.queries
            if q.passages and all(p.validated for p in q.passages)
        }
        scale: Scale | None = SET_SCALE
    else:
        labels, given = {}, read_qrels(human)
        scale = given.scale_beside(SET_SCALE)
        for query, doc, grade in given.to_frame().iter_rows():
            if query in by_judge:
                labels.setdefault(query, {})[doc] = grade
    if len(labels) < MIN_QUERIES:
        if runs:
            raise InputError(
                f"people labelled {len(labels)} whole queries, and {MIN_QUERIES} are needed",
                place=str(store.path),
                remedy="label all passages of some: `rankproof golden assign --queries`",
            )
        return {}
    tables = list(runs)
    if not tables:
        lists: dict[str, dict[str, dict[str, float]]] = {}
        for query, name, doc, rank in store.rows("SELECT query, list, doc, rank FROM retrieved"):
            if "~" not in name:  # else a list of an earlier day
                lists.setdefault(name, {}).setdefault(query, {})[doc] = -float(rank)
        tables = [read_run(each, name=name) for name, each in sorted(lists.items())]
    sides = [
        read_qrels({query: docs for query, docs in side.items() if docs})
        for side in (by_judge, labels)
    ]
    theirs = {m: m.rescaled(SET_SCALE, scale) for m in measures}
    found = {}
    for table in tables:
        one, other = (
            evaluate_tables(table, side, asked, Policy())
            for side, asked in zip(sides, (measures, list(theirs.values())), strict=True)
        )
        figures = two_phase_of(one, other, theirs)
        found[table.name] = {theirs[m]: each for m, each in figures.items()}
    return found


def as_people_dict(found: dict[str, dict[Measure, TwoPhase]]) -> list[dict[str, Any]]:
    """For JSON."""
    return [
        {"name": name, "measures": {str(m): each.to_dict() for m, each in of.items()}}
        for name, of in found.items()
    ]


def against_itself(
    build: Build, sample: int, repeats: int
) -> dict[str, tuple[SelfConsistency, int]]:
    """Grade a seeded sample of batches again, each in another order; how many passages. By the
    judge's name, or each of a panel's."""
    with build.prepared() as panel:
        return {
            each.name or each.judge.name: _itself(build, each, sample, repeats) for each in panel
        }


def _itself(build: Build, member: Member, sample: int, repeats: int) -> tuple[SelfConsistency, int]:
    judge = member.judge
    prompt, settings = build.prompts["grade"], build.settings
    texts = build.texts()
    where = "kind = 'grade' AND repeat = 0 AND retired = 0 AND judge = ? AND result NOT NULL"
    first = [  # what was graded, and stands in the pools with the texts of then
        reply
        for reply in build.store.replies(where, (build.number(judge, "grade"),))
        if all(
            pair(*texts[reply.query, doc]) == what if (reply.query, doc) in texts else False
            for doc, what in zip(reply.documents, reply.pairs, strict=True)
        )
    ]
    chosen = draw_sample(np.arange(len(first)), sample, settings.seed).tolist()
    rounds = [[first[at] for at in chosen]]
    with build.askers([member], "judging again", len(chosen) * repeats) as (asker,):
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
            found |= {(reply.query, doc): grade for doc, grade in reply.grades.items()}
        table.append([found.get(key, math.nan) for key in keys])
    return self_consistency(np.array(table), queries=[query for query, _ in keys]), len(keys)


def consistency_dict(found: SelfConsistency) -> dict[str, Any]:
    """For JSON."""
    return {name: Coefficient.to_dict(getattr(found, name)) for name in _FIGURES}


_ALPHA = "α, nominal"
_FIGURES = ("exact", "difference", "sd", "alpha")


def _share(values: Any) -> float:
    return float(np.mean(values)) if len(values) else math.nan
