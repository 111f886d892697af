"""Measure how much of an embedding is the name: margins under ten ablations [R §4.2].

    Δname  = s(C1) − max(s(C2a), s(C2b))     the author against two impostors
    Δtopic = s(C1) − s(C3)                   the topic against another one
    Δboth  = s(C1) − s(C4)
    ΔΔ%    = (Δ ablated − Δ base)/Δ base · 100, where Δ base ≥ 0.02

s is the cosine of a bundle's question to one of its passages. The bundles of a run also form a
small corpus: each question is searched among all their passages, and what an ablation costs there
is compared with its effect on Δname.

Shapes: C conditions (the base, then A ablations), M retrieval measures, R runs, Q queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rankproof.diagnostics.ablations import ABLATIONS, FAMILIES, Family
from rankproof.diagnostics.bundles import Bundle, draw_pairs, draw_run
from rankproof.diagnostics.corpus import JudgedCorpus
from rankproof.diagnostics.estimates import CHANGE, SHARE, Estimate, estimate_means
from rankproof.diagnostics.list_similarity import kendall, overlap
from rankproof.diagnostics.mentions import Mentions, search_mentions
from rankproof.diagnostics.name_lists import (
    Language,
    NameLists,
    check_language,
    check_lists,
    read_lists,
    shipped_lists,
)
from rankproof.diagnostics.vectors import cosines, embed_passages, embed_queries
from rankproof.evaluation.matrices import evaluate_arrays
from rankproof.foundation.arrays import Array, Float
from rankproof.foundation.errors import check_whole_number
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import progress
from rankproof.precision import fixed_sum
from rankproof.precision.topk import TopK, top_k
from rankproof.presentation.charts import Chart, Range, RangeChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table
from rankproof.retrieval.protocols import Embedder
from rankproof.statistics.intervals import Interval, percentile_interval
from rankproof.statistics.rank_similarity import (
    Correlation,
    mean_correlation,
    query_correlation,
)
from rankproof.statistics.resampling import resampled_means

BASE = "base"
FORGED = "edit_distance_near_miss"  # the ablation whose impostors have invented names
CONDITIONS = (BASE, *ABLATIONS)
MARGINS = ("name", "topic", "both")
MIN_BASE_MARGIN = 0.02  # changes of smaller margins have no percentage
MEASURES = ("nDCG@10", "P@1")  # of searching the passages of all bundles
K = 10


@dataclass(frozen=True, slots=True)
class NameRow:
    """One condition: the base, or an ablation compared with it query by query.

    >>> from rankproof.diagnostics import diagnose_names
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> diagnosis = diagnose_names(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> round(diagnosis.rows[0].margin["name"].mean, 3)
    0.483
    """

    ablation: str
    family: Family | None  # None for the base
    margin: dict[str, Estimate]  # by MARGINS
    change: dict[str, Estimate]  # of the margin, ablated − base
    percent: dict[str, Estimate]  # ΔΔ%, the mean of the percentages of single queries
    percent_of_means: dict[str, float]  # percentage by which the mean margin changes
    excluded: dict[str, int]  # bundles whose base margin is below MIN_BASE_MARGIN
    changed: int  # bundles in which a text differs from the base
    confused: Estimate  # share of bundles in which an impostor is as near as the author
    retrieval: dict[str, Estimate]  # by MEASURES, in expectation over ties
    retrieval_change: dict[str, Estimate]
    overlap: Estimate  # share of the base's top K that stays
    tau: Estimate  # Kendall's τ to the base's top K


@dataclass(frozen=True, slots=True)
class NamesDiagnosis(Displayed):
    """How a model treats names.

    >>> from rankproof.diagnostics import diagnose_names
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> diagnosis = diagnose_names(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> diagnosis.language, len(diagnosis.rows)
    ('en', 11)
    """

    kind: ClassVar[str] = "names"

    embedder: str
    fingerprint: str
    language: Language
    lists: str  # label of the lists of authors and topics
    queries: int
    runs: int
    seed: int
    rows: tuple[NameRow, ...]  # the base first
    ratio: Estimate  # Δname/Δtopic of the base
    # Of changes in Δname and in MEASURES[0], across ablations and across queries:
    prediction: dict[str, Correlation]
    mentions: Mentions | None  # the ablations in the user's corpus

    def summary(self) -> Summary:
        """The diagnosis in words, the main result first."""
        answer, *notes = self.words()
        return Summary(answer, notes)

    def tables(self) -> list[Table]:
        """A table with a row for each ablation, and another if a corpus was searched."""
        from rankproof.diagnostics.tables import name_tables

        return name_tables(self)

    def charts(self) -> list[Chart]:
        """The name margin of each condition with its interval."""
        groups = (BASE, *FAMILIES)
        rows = [
            Range(
                row.ablation,
                row.margin["name"].mean,
                *row.margin["name"].ci,
                group=groups.index(row.family or BASE),
            )
            for row in self.rows
        ]
        return [
            RangeChart(
                f"What a name is worth to {self.embedder} ({self.language})",
                rows,
                "Δname: cosine to the author's passage − to the nearest impostor's",
                groups=groups,
                zero=True,
                caption="How far the right author's passage leads an impostor's, after each "
                f"rewriting: means of {plural(self.queries, 'query')} × "
                f"{plural(self.runs, 'run')}; bars are 95% intervals over queries.",
            )
        ]

    def __getitem__(self, ablation: str) -> NameRow:
        """Return the row of an ablation."""
        for row in self.rows:
            if row.ablation == ablation:
                return row
        raise KeyError(
            f"{ablation!r} was not measured; there are {[r.ablation for r in self.rows]}"
        )

    @property
    def base(self) -> NameRow:
        return self.rows[0]

    def __repr__(self) -> str:
        return "\n".join(self.words())

    def words(self) -> list[str]:
        """Return sentences: what is as expected, and warnings for this model."""
        from rankproof.diagnostics.sentences import names_sentences

        return names_sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """Return what `rankproof diagnose names --format json` prints, and names.json holds."""
        return {
            **plain_fields(
                self, "embedder", "fingerprint", "language", "lists", "queries", "runs", "seed"
            ),
            "least_base_margin": MIN_BASE_MARGIN,
            **plain_fields(self, "ratio", "rows"),
            "prediction": {
                "cheap": "change of the name margin",
                "dear": f"change of {MEASURES[0]} over the passages of all bundles",
                **plain(self.prediction),
            },
            "corpus": plain(self.mentions),
            "words": self.words(),
        }


def diagnose_names(
    embedder: Embedder,
    *,
    language: str = "en",
    lists: NameLists | str | Path | None = None,
    queries: int = 100,
    runs: int = 15,
    seed: int = 0,
    corpus: JudgedCorpus | str | Path | None = None,
) -> NamesDiagnosis:
    """Measure how well an embedder distinguishes authors, and which rewritings undo that.

    `embedder` is anything with the Embedder protocol. `lists` are authors and topics, or a CSV
    with these columns; by default invented ones in the language. Each run draws other impostors,
    topics and templates for the same queries. A `corpus` is also searched under the ablations that
    apply to plain text, on its queries that name an author of the lists.

    >>> from rankproof.diagnostics import diagnose_names
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> diagnosis = diagnose_names(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> diagnosis.rows[0].ablation, diagnosis.queries
    ('base', 4)
    """
    known = check_language(language)
    for name, value, minimum in (("queries", queries, 2), ("runs", runs, 1), ("seed", seed, 0)):
        check_whole_number(name, value, minimum)
    if lists is None:
        lists = shipped_lists(known)
    elif not isinstance(lists, NameLists):
        lists = read_lists(lists)
    check_lists(lists)
    if isinstance(corpus, str | Path):
        corpus = JudgedCorpus.read(corpus)
    pairs = draw_pairs(lists, queries, seed)
    texts = len(CONDITIONS) * 6 * queries  # a question and five passages each
    with progress("diagnosing names", runs * texts):
        by_run = [
            _measure_run(embedder, list(draw_run(lists, known, pairs, seed, run)))
            for run in range(runs)
        ]
    values = _BundleValues(*(np.stack(parts, axis=-2) for parts in zip(*by_run, strict=True)))
    mentions = None
    if corpus is not None:
        mentions = search_mentions(embedder, corpus, lists.authors, known, seed)
    return NamesDiagnosis(
        embedder=embedder.name,
        fingerprint=embedder.fingerprint,
        language=known,
        lists=lists.label,
        queries=queries,
        runs=runs,
        seed=seed,
        rows=_rows(values, seed),
        ratio=_ratio(values.margins[0], seed),
        prediction=_prediction(values, mentions, seed),
        mentions=mentions,
    )


class _BundleValues(NamedTuple):
    """Values of each bundle under each condition; R runs are stacked before the last axis."""

    margins: Float  # (C, 3, Q) by MARGINS
    quality: Float  # (C, M, Q) by MEASURES
    overlap: Float  # (C, Q) with the base's top K
    tau: Float  # (C, Q) to the base's top K
    changed: Array  # (C, Q) True if a text differs from the base


def _measure_run(embedder: Embedder, bundles: Sequence[Bundle]) -> _BundleValues:
    """Measure the bundles of one run under every condition; each text is embedded once."""
    conditions = [list(bundles)]
    conditions += [[ablation.apply(b) for b in bundles] for ablation in ABLATIONS.values()]
    questions = [[b.question.text for b in rewritten] for rewritten in conditions]
    passages = [[p.text for b in rewritten for p in b.passages] for rewritten in conditions]
    question_vectors = embed_queries(embedder, [text for texts in questions for text in texts])
    passage_vectors = embed_passages(embedder, [text for texts in passages for text in texts])
    margins, scores = [], []
    for question_texts, passage_texts in zip(questions, passages, strict=True):
        vectors = question_vectors(question_texts)
        rows = passage_vectors.rows(passage_texts)
        margins.append(_margins(vectors, passage_vectors.vectors[rows]))
        scores.append(_scores(vectors, passage_vectors.vectors, rows))
    relevant = _relevance(bundles)
    without_forged = relevant * np.tile([1, 0, 0, 1, 0], len(bundles))  # C1 and C3 only
    grades = [without_forged if name == FORGED else relevant for name in CONDITIONS]
    quality, overlaps, taus = _retrieve(np.concatenate(scores), np.concatenate(grades))
    is_same_question = np.array(questions, object) == np.array(questions[0], object)
    is_same_passage = np.array(passages, object) == np.array(passages[0], object)
    all_same_passages = is_same_passage.reshape(len(conditions), -1, 5).all(axis=2)
    return _BundleValues(
        margins=np.array(margins),
        quality=quality,
        overlap=overlaps,
        tau=taus,
        changed=~(is_same_question & all_same_passages),
    )


def _margins(questions: Float, passages: Float) -> list[Float]:
    """Return Δname, Δtopic and Δboth (Q,) of questions (Q, D) and their passages (5 Q, D)."""
    similarity = cosines(questions[:, None, :], passages.reshape(len(questions), 5, -1))
    c1, c2a, c2b, c3, c4 = similarity.T
    return [c1 - np.maximum(c2a, c2b), c1 - c3, c1 - c4]


def _scores(questions: Float, passages: Float, rows: Array) -> Array:
    """Return (Q, N) scores of each question for the N passages with these rows."""
    unique, place = np.unique(rows, return_inverse=True)  # equal texts are scored once
    product = fixed_sum.matrix(questions.astype(np.float32), passages[unique].astype(np.float32))
    scores: Array = product[:, place.ravel()]
    return scores


def _retrieve(scores: Array, relevant: Array) -> tuple[Float, Float, Float]:
    """Evaluate the scores (C Q, N) of all passages under each condition.

    Returns quality (C, M, Q), and overlap and τ to the base (C, Q).
    """
    count = len(CONDITIONS)
    best = top_k([scores], len(scores), min(K, scores.shape[1]))
    # Passages that score below the top K do not matter, unless they are relevant.
    is_needed = (scores >= best.scores[:, -1:]) | (relevant > 0)
    evaluation = evaluate_arrays(
        [row[mask] for row, mask in zip(scores, is_needed, strict=True)],
        [row[mask] for row, mask in zip(relevant, is_needed, strict=True)],
        MEASURES,
    )
    quality = np.stack([outcome.expected for outcome in evaluation.outcomes.values()])
    queries = len(scores) // count
    parts = (best.scores, best.documents, best.cut)
    base = TopK(*(np.concatenate([part[:queries]] * count) for part in parts))
    return (
        quality.reshape(len(MEASURES), count, queries).swapaxes(0, 1),
        overlap(base, best).reshape(count, queries),
        kendall(base, best).reshape(count, queries),
    )


def _relevance(bundles: Sequence[Bundle]) -> Array:
    """(Q, 5 Q) 1 where a passage is by the author and on the topic that the question names."""
    codes: dict[Any, int] = {}

    def code(values: Iterable[Any]) -> Array:
        """Return equal numbers for equal values."""
        return np.array([codes.setdefault(value, len(codes)) for value in values])

    authors = code(author for b in bundles for author in b.authors)
    topics = code(passage.topic for b in bundles for passage in b.passages)
    asked_authors = code(b.asked_author for b in bundles)[:, None]
    asked_topics = code(b.question.topic for b in bundles)[:, None]
    relevant: Array = ((asked_authors == authors) & (asked_topics == topics)).astype(np.int64)
    return relevant


def _rows(values: _BundleValues, seed: int) -> tuple[NameRow, ...]:
    """Estimate a row for each condition from the values of all runs."""
    base = values.margins[0]  # (3, R, Q)
    change = values.margins - base
    is_large_enough = base >= MIN_BASE_MARGIN
    percent = np.where(is_large_enough, _divide(change, base) * 100.0, np.nan)
    percent_of_means = _divide(change.mean(axis=(2, 3)), base.mean(axis=(1, 2))) * 100.0  # (C, 3)
    excluded = (~is_large_enough).sum(axis=(1, 2))
    quality_change = values.quality - values.quality[0]
    estimates: dict[str, Sequence[Any]] = {  # by field of NameRow, one for each condition
        "margin": _estimates_by_name(values.margins, MARGINS, seed),
        "change": _estimates_by_name(change, MARGINS, seed),
        "percent": _estimates_by_name(percent, MARGINS, seed),
        "confused": estimate_means((values.margins[:, 0] <= 0).astype(np.float64), seed, SHARE),
        "retrieval": _estimates_by_name(values.quality, MEASURES, seed, SHARE),
        "retrieval_change": _estimates_by_name(
            quality_change, MEASURES, seed, CHANGE, references=1
        ),
        "overlap": estimate_means(values.overlap, seed, SHARE, references=1),
        "tau": estimate_means(values.tau, seed, CHANGE, references=1),
    }
    return tuple(
        NameRow(
            ablation=condition,
            family=None if condition == BASE else ABLATIONS[condition].family,
            percent_of_means=dict(zip(MARGINS, percent_of_means[c].tolist(), strict=True)),
            excluded=dict(zip(MARGINS, excluded.tolist(), strict=True)),
            changed=int(values.changed[c].sum()),
            **{field: column[c] for field, column in estimates.items()},
        )
        for c, condition in enumerate(CONDITIONS)
    )


def _estimates_by_name(
    values: Float,
    names: Sequence[str],
    seed: int,
    within: Interval | None = None,
    *,
    references: int = 0,
) -> list[dict[str, Estimate]]:
    """Return the estimates of each condition by name; values are (C, names, R, Q)."""
    size = len(names)
    flat = values.reshape(-1, *values.shape[-2:])
    estimates = estimate_means(flat, seed, within, references * size)
    return [
        dict(zip(names, estimates[c * size : (c + 1) * size], strict=True))
        for c in range(len(values))
    ]


def _ratio(base_margins: Float, seed: int) -> Estimate:
    """Estimate Δname/Δtopic, the ratio of mean margins, from (3, R, Q) margins of the base."""
    name, topic, _ = base_margins.mean(axis=1)
    resampled = resampled_means(np.stack([name, topic], axis=1), seed)
    interval = percentile_interval(_divide(resampled[:, 0], resampled[:, 1]), len(name))
    run_name, run_topic, _ = base_margins.mean(axis=2)
    ratios = _divide(run_name, run_topic)  # (R,)
    deviation = float(ratios.std(ddof=1)) if len(ratios) > 1 else float("nan")
    ratio = _divide(name.mean(keepdims=True), topic.mean(keepdims=True))[0]
    return Estimate(float(ratio), deviation, interval)


def _divide(numerator: Float, denominator: Float) -> Float:
    """Return the quotient, NaN where the denominator is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator != 0, numerator / denominator, np.nan)


def _prediction(
    values: _BundleValues, mentions: Mentions | None, seed: int
) -> dict[str, Correlation]:
    """Correlate the change of Δname with that of the first retrieval measure, runs averaged."""
    margin_changes = (values.margins[1:, 0] - values.margins[0, 0]).mean(axis=1)  # (A, Q)
    quality_changes = (values.quality[1:, 0] - values.quality[0, 0]).mean(axis=1)
    correlations = {
        "across_ablations": mean_correlation(margin_changes, quality_changes, list(ABLATIONS)),
        "across_queries": query_correlation(margin_changes, quality_changes, seed),
    }
    if mentions is not None and mentions.rows:
        corpus_row = {row.ablation: at for at, row in enumerate(mentions.rows[1:])}
        shared = [name for name in ABLATIONS if name in corpus_row]
        rows = [at for at, name in enumerate(ABLATIONS) if name in corpus_row]
        corpus_changes = mentions.changes[[corpus_row[name] for name in shared]]
        correlations["across_ablations_in_corpus"] = mean_correlation(
            margin_changes[rows], corpus_changes, shared
        )
    return correlations
