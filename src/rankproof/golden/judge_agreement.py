"""How far a judge can be trusted: agreement with people, and with itself when asked again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from rankproof.data.tables import SET_SCALE
from rankproof.evaluation.annotator_estimates import AnnotatorEstimates, annotators_table
from rankproof.foundation.arrays import Bool
from rankproof.foundation.config import check_config
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.golden.annotators import (
    PAIR_COEFFICIENTS,
    Key,
    agreement_items,
    people_alpha,
)
from rankproof.golden.building import Build, Member
from rankproof.golden.judgments import Reply, pair_digest
from rankproof.golden.requests import make_request
from rankproof.golden.result import Golden, read_golden
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.tables import Cell, Column, Table
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
    from rankproof.measures.registry import Measure

RELEVANT_GRADE = SET_SCALE.relevant
_BINARY_COEFFICIENTS = ("exact", "κ", "AC1", "α, nominal")
_CONSISTENCY_FIGURES = ("exact", "difference", "sd", "alpha")


@dataclass(frozen=True, slots=True)
class HumanAgreement:
    """The judge compared with people, on passages that both graded."""

    source: str
    scale: Literal["1–5", "binary"]
    pairs: int
    agreement: Agreement
    found: float  # share of people's relevant passages that the judge grades 4 or 5; NaN: none
    true: float  # share of the judge's 4s and 5s that people call relevant; NaN: none
    means: tuple[float, float]  # the judge's mean grade of people's relevant and other passages
    relevant: int  # the lowest of people's grades that is relevant

    def lines(self) -> list[str]:
        """What was compared, and what the judge finds, in words."""
        scale = f"relevant: {self.relevant} or more"
        if self.scale == "binary":
            scale += f", the judge's {RELEVANT_GRADE} or more"
        recall = "people call none of them relevant"
        if not math.isnan(self.found):
            recall = f"of what people call relevant the judge grades {self.found:.0%} 4 or 5"
        precision = "it grades none of them 4 or 5"
        if not math.isnan(self.true):
            precision = f"of what it grades 4 or 5 people call {self.true:.0%} relevant"
        subsets = ("where people say relevant", "elsewhere")
        means = [
            f"{mean:.2f} {subset}"
            for mean, subset in zip(self.means, subsets, strict=True)
            if not math.isnan(mean)
        ]
        return [
            f"{plural(self.pairs, 'passage')}, labels on a {self.scale} scale; {scale}",
            f"{recall}; {precision}",
            f"its mean grade: {', '.join(means)}",
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            **plain_fields(self, "source", "scale", "pairs"),
            "found": _none_if_nan(self.found),
            "true": _none_if_nan(self.true),
            "mean_grade_relevant": _none_if_nan(self.means[0]),
            "mean_grade_other": _none_if_nan(self.means[1]),
            **self.agreement.to_dict(),
        }


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else value


def is_rubric_scale(labels: Qrels) -> bool:
    """True if labels are grades from 1 to 5, by their values or the scale file beside them."""
    return labels.scale_beside(SET_SCALE) == SET_SCALE


def compare_with_people(
    golden: Golden,
    human: Path | None = None,
    *,
    relevant: int = 1,
    unjudged: Literal["skip", "zero"] = "skip",
) -> HumanAgreement:
    """Compare the judge's own grades with a qrels file, or with the corrections in the store.

    Labels that are all within 1–5, some of them 4 or more, are taken to be on the rubric, unless
    `relevant` is more than 1; any others are made binary: `relevant` or more, against the judge's
    4 or more. With `unjudged="zero"`, unlabeled passages of a labeled query count as not relevant:
    on the rubric, as a 1.
    """
    judged = {key: p.judged for key, p in golden.passages().items() if p.judged}
    if human is None:
        grades = {key: p.people for key, p in golden.passages().items()}
        labels = {key: grade for key, grade in grades.items() if grade is not None}
        source, is_rubric = "corrections", True
    else:
        from rankproof.data import read_qrels

        qrels = read_qrels(human)
        # All grades of the rubric are 1 or more, so a higher threshold means another scale.
        source, is_rubric = human.name, is_rubric_scale(qrels) and relevant == 1
        labels = {(query, doc): grade for query, doc, grade in qrels.to_frame().iter_rows()}
        if unjudged == "zero":
            labels = _fill_unlabeled(labels, judged, SET_SCALE.lowest if is_rubric else 0)
    threshold = RELEVANT_GRADE if is_rubric else relevant
    _check_labels(labels, judged, source)
    keys = [key for key in judged if key in labels]
    judge_grades = np.array([judged[key] for key in keys])
    people_grades = np.array([labels[key] for key in keys])
    is_relevant = people_grades >= threshold
    if not is_rubric and unjudged == "skip" and is_relevant.all():
        raise InputError(
            "labels only what is relevant: a judge cannot be wrong on such passages alone",
            place=source,
            remedy="--unjudged zero counts the other pooled passages of a query as not relevant",
        )
    is_high = judge_grades >= RELEVANT_GRADE
    queries = [query for query, _ in keys]
    if is_rubric:
        result = agreement(judge_grades, people_grades, queries=queries)
    else:
        result = _binary_agreement(is_high, is_relevant, queries)
    return HumanAgreement(
        source=source,
        scale="1–5" if is_rubric else "binary",
        pairs=len(keys),
        agreement=result,
        found=_mean(is_high[is_relevant]),
        true=_mean(is_relevant[is_high]),
        means=(_mean(judge_grades[is_relevant]), _mean(judge_grades[~is_relevant])),
        relevant=threshold,
    )


def _check_labels(labels: dict[Key, int], judged: dict[Key, int], source: str) -> None:
    """Raise InputError unless a passage has both a label and a grade of the judge."""
    if labels.keys().isdisjoint(judged):
        raise InputError(
            "no passage has both a grade of the judge and a label of a person",
            place=source,
            remedy="label passages of the pools, or correct some",
        )


def _fill_unlabeled(labels: dict[Key, int], judged: Iterable[Key], lowest: int) -> dict[Key, int]:
    """Labels with the lowest grade for every other judged passage of a labeled query.

    If no judged passage is labeled nothing is added, because the labels may be of another corpus.
    """
    if labels.keys().isdisjoint(judged):
        return labels
    labeled_queries = {query for query, _ in labels}
    in_labeled_queries = [key for key in judged if key[0] in labeled_queries]
    return dict.fromkeys(in_labeled_queries, lowest) | labels


def _binary_agreement(judge: Bool, people: Bool, queries: Sequence[str]) -> Agreement:
    """Agreement on what is relevant, without weighted coefficients, the same on two levels."""
    both = agreement(judge, people, levels=(0, 1), relevant=1, queries=queries)
    coefficients = {name: both.coefficients[name] for name in _BINARY_COEFFICIENTS}
    return Agreement(both.confusion, coefficients)


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def compare_people(store: Store, golden: Golden) -> dict[str, Any]:
    """Agreement of every two people, of each person and the judge, and of all people, for JSON."""
    corrections = store.active_corrections()
    alpha = people_alpha(corrections)
    pairs = agreement_items(corrections, golden.grades_by_judge())
    return {"pairs": pairs, "alpha": None if alpha is None else alpha.to_dict()}


# --------------------------------------------------------------------------------- annotators' view


def estimate_with_labels(
    store: Store,
    golden: Golden,
    human: Path | None,
    *,
    runs: Sequence[Run],
    measures: Sequence[Measure],
) -> dict[str, dict[Measure, TwoPhase]]:
    """Estimate measures with annotators' labels, for runs or, if none is given, the pooled lists.

    Annotators' queries are those of `human`, or those of which every pooled passage was graded.
    Measures mean grades from 1 to 5; for labels on another scale they are translated to it.
    """
    from rankproof.data import read_qrels
    from rankproof.evaluation import Policy, evaluate_tables

    by_judge: dict[str, dict[str, int]] = {query.query: {} for query in golden.queries}
    for (query, doc), passage in golden.passages().items():
        if passage.judged is not None:
            by_judge[query][doc] = passage.judged
    labels, scale = _labels_by_query(golden, human)
    if len(labels) < MIN_QUERIES:
        if runs:
            raise InputError(
                f"people labelled {len(labels)} whole queries, and {MIN_QUERIES} are needed",
                place=str(store.path),
                remedy="label all passages of some: `rankproof golden assign --queries`",
            )
        return {}
    translated = {measure: measure.rescaled(SET_SCALE, scale) for measure in measures}
    judge_qrels = read_qrels({query: docs for query, docs in by_judge.items() if docs})
    people_qrels = read_qrels({query: docs for query, docs in labels.items() if docs})
    estimates = {}
    for run in runs or _pooled_lists(store):
        by_judge_values = evaluate_tables(run, judge_qrels, measures, Policy())
        by_people = evaluate_tables(run, people_qrels, list(translated.values()), Policy())
        two_phase = two_phase_of(by_judge_values, by_people, translated)
        estimates[run.name] = {translated[m]: estimate for m, estimate in two_phase.items()}
    return estimates


def _labels_by_query(
    golden: Golden, human: Path | None
) -> tuple[dict[str, dict[str, int]], Scale | None]:
    """Annotators' labels of whole queries, and the scale they are on."""
    labels: dict[str, dict[str, int]] = {}
    if human is None:
        for query in golden.queries:
            if query.passages and all(p.validated for p in query.passages):
                labels[query.query] = {p.doc: p.people or 0 for p in query.passages}
        return labels, SET_SCALE
    from rankproof.data import read_qrels

    qrels = read_qrels(human)
    queries = {query.query for query in golden.queries}
    for name, doc, grade in qrels.to_frame().iter_rows():
        if name in queries:
            labels.setdefault(name, {})[doc] = grade
    return labels, qrels.scale_beside(SET_SCALE)


def _pooled_lists(store: Store) -> list[Run]:
    """The lists that fill the pools today, as runs."""
    from rankproof.data import read_run

    lists: dict[str, dict[str, dict[str, float]]] = {}
    for query, name, doc, rank in store.rows("SELECT query, list, doc, rank FROM retrieved"):
        if "~" not in name:  # else an earlier list
            lists.setdefault(name, {}).setdefault(query, {})[doc] = -float(rank)
    return [read_run(ranks, name=name) for name, ranks in sorted(lists.items())]


# ------------------------------------------------------------------------------ the judge itself


@dataclass(frozen=True, slots=True)
class Repeatability:
    """How a judge's grades agree when the same passages are graded again."""

    passages: int
    repeats: int
    figures: SelfConsistency

    def to_dict(self) -> dict[str, Any]:
        figures = {name: getattr(self.figures, name).to_dict() for name in _CONSISTENCY_FIGURES}
        return {"passages": self.passages, "repeats": self.repeats, **figures}


def repeat_grading_of(
    path: Path, sample: int, repeats: int, max_cost: float | None = None
) -> dict[str, Repeatability]:
    """Grade a sample again with the judge and configuration of a golden set."""
    with Store(path, write=True) as store:
        config = store.meta("config")
        if max_cost is not None:
            config["limits"]["max_cost"] = max_cost
        settings = check_config(config, GoldenSettings, place=str(path))
        return repeat_grading(Build(settings, store), sample, repeats)


def repeat_grading(build: Build, sample: int, repeats: int) -> dict[str, Repeatability]:
    """Grade a seeded sample of batches again, each time shuffled; by the name of each judge."""
    with build.prepared() as panel:
        return {
            member.name or member.judge.name: _repeat_grading(build, member, sample, repeats)
            for member in panel
        }


def _repeat_grading(build: Build, member: Member, sample: int, repeats: int) -> Repeatability:
    """Grade a seeded sample of one judge's batches again, and compare with its first grades."""
    texts = build.texts()
    graded = _graded_batches(build, member, texts)
    chosen = draw_sample(np.arange(len(graded)), sample, build.settings.seed).tolist()
    batches = [graded[index] for index in chosen]
    rounds: list[list[Reply]] = [batches]
    with build.clients([member], "judging again", len(batches) * repeats) as (client,):
        for repeat in range(1, repeats + 1):
            requests = [
                make_request(
                    "grade",
                    build.prompts["grade"],
                    query=batch.query,
                    question=texts[batch.query, batch.documents[0]][0],
                    passages=[(doc, texts[batch.query, doc][1]) for doc in batch.documents],
                    seed=build.settings.seed,
                    repeat=repeat,
                )
                for batch in batches
            ]
            rounds.append(client.ask(requests))
    keys = [(batch.query, doc) for batch in batches for doc in sorted(batch.documents)]
    table = []
    for replies in rounds:
        grades = {(r.query, doc): float(grade) for r in replies for doc, grade in r.grades.items()}
        table.append([grades.get(key, math.nan) for key in keys])
    figures = self_consistency(np.array(table), queries=[query for query, _ in keys])
    return Repeatability(len(keys), repeats, figures)


def _graded_batches(
    build: Build, member: Member, texts: Mapping[Key, tuple[str, str]]
) -> list[Reply]:
    """The judge's replies whose passages are all in the pools with the same texts."""

    def is_current(reply: Reply) -> bool:
        pairs = zip(reply.documents, reply.pairs, strict=True)
        return all(
            (reply.query, doc) in texts and pair_digest(*texts[reply.query, doc]) == pair
            for doc, pair in pairs
        )

    condition = "kind = 'grade' AND repeat = 0 AND retired = 0 AND judge = ? AND result NOT NULL"
    judge_id = build.judge_id(member.judge, "grade")
    return [reply for reply in build.store.replies(condition, (judge_id,)) if is_current(reply)]


# --------------------------------------------------------------------------------- all together


@dataclass(frozen=True)
class GoldenAgreement(Displayed):
    """How far the judge of a golden set agrees with people, people with each other, and itself."""

    kind: ClassVar[str] = "agreement"

    judge: dict[str, Any]
    human: HumanAgreement | None
    between: dict[str, Any] | None  # people with each other
    estimates: Mapping[str, Mapping[Measure, TwoPhase]]  # with annotators' labels, by run
    itself: Mapping[str, Repeatability] = field(default_factory=dict)  # by the judge's name
    notes: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        warnings = list(self.notes)
        if self.judge.get("simulated"):
            warnings.append("the judge was simulated: its agreement is made up")
        return warnings

    def with_details(
        self, itself: Mapping[str, Repeatability], notes: Sequence[str]
    ) -> GoldenAgreement:
        """The same with the judge's repeatability, and notes about the measures."""
        return replace(self, itself=itself, notes=tuple(notes))

    def tables(self) -> list[Table]:
        """Judge and people, people with each other, measures of runs, and the judge with itself."""
        tables = []
        if self.human is not None:
            title = f"{self.judge['name']} and {self.human.source}"
            coefficients = list(self.human.agreement.coefficients.values())
            tables.append(_coefficient_table(coefficients, title, self.human.lines()))
        if self.between is not None:
            tables.append(_people_table(**self.between))
        if self.estimates:
            by_run = [
                AnnotatorEstimates(dict(estimates), {measure: measure for measure in estimates})
                for estimates in self.estimates.values()
            ]
            tables.append(annotators_table(list(self.estimates), by_run))
        for name, repeated in self.itself.items():
            figures = repeated.figures
            coefficients = [figures.exact, figures.difference, figures.sd, figures.alpha]
            passages = plural(repeated.passages, "passage")
            notes = [f"{passages}, graded {repeated.repeats + 1} times in other orders"]
            tables.append(_coefficient_table(coefficients, f"{name} and itself", notes))
        return tables

    def figures(self) -> dict[str, float]:
        coefficients = {} if self.human is None else self.human.agreement.coefficients
        return {f"people/{name}": c.value for name, c in coefficients.items()}

    def to_dict(self) -> dict[str, Any]:
        itself = {name: repeated.to_dict() for name, repeated in self.itself.items()}
        estimates = [
            {"name": name, "measures": {str(m): e.to_dict() for m, e in by_measure.items()}}
            for name, by_measure in self.estimates.items()
        ]
        return {
            "judge": self.judge,
            "people": None if self.human is None else self.human.to_dict(),
            "between": self.between,
            "as_people": estimates or None,
            "itself": next(iter(itself.values())) if len(itself) == 1 else itself or None,
        }


def measure_agreement(
    path: Path,
    human: Path | None,
    runs: Sequence[Run],
    measures: Sequence[Measure],
    *,
    relevant: int = 1,
    unjudged: Literal["skip", "zero"] = "skip",
    is_required: bool = True,
) -> GoldenAgreement:
    """Measure agreement of a golden set's judge with people, as far as there are labels.

    Without any label it is an error if `is_required`.
    """
    with Store(path) as store:
        golden = read_golden(store)
        has_labels = golden.counts.validated > 0
        if human is None and not has_labels:
            if is_required:
                raise InputError(
                    "nothing to compare the judge with",
                    place=str(path),
                    remedy="name labels with --human, correct some grades, or ask again with "
                    "--repeats 2",
                )
            return GoldenAgreement(golden.judge, None, None, {})
        return GoldenAgreement(
            judge=golden.judge,
            human=compare_with_people(golden, human, relevant=relevant, unjudged=unjudged),
            between=compare_people(store, golden) if human is None else None,
            estimates=estimate_with_labels(store, golden, human, runs=runs, measures=measures),
        )


def _coefficient_table(
    coefficients: Sequence[Coefficient], title: str, notes: Sequence[str]
) -> Table:
    columns = [Column("figure", "text"), *Column.each("value", "ci low", "ci high", "items")]
    columns.append(Column("undefined", "text", prose=True))
    rows = [(c.name, c.value, c.low, c.high, c.items, c.undefined or "") for c in coefficients]
    return Table(columns, rows, title=title, notes=notes)


def _people_table(pairs: Sequence[dict[str, Any]], alpha: dict[str, Any] | None) -> Table:
    """Agreement of every two people, and of each person with the judge."""
    columns = [Column("who", "text", folds=True), *Column.each(*PAIR_COEFFICIENTS, "passages")]
    rows: list[Sequence[Cell]] = []
    for pair in pairs:
        figures = [pair["figures"][name] for name in PAIR_COEFFICIENTS]
        values = [figure["value"] for figure in figures]
        rows.append((f"{pair['who']}, {pair['with']}", *values, figures[0]["items"]))
    notes = []
    if alpha is not None:
        value, reason = alpha["value"], alpha["undefined"]
        shown = f" is undefined ({reason})" if value is None else f": {value:.4f}"
        notes.append(f"α of all people together{shown}")
    return Table(columns, rows, title="Between people", notes=notes)
