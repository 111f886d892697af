"""How much of a vector is the name: margins of bundles under ten ablations [R §4.2].

    Δname  = s(C1) − max(s(C2a), s(C2b))     the right author against two others
    Δtopic = s(C1) − s(C3)                   the right topic against another
    Δboth  = s(C1) − s(C4)
    ΔΔ%    = (Δ ablated − Δ base)/Δ base · 100, where Δ base ≥ 0.02

The bundles of a run are also a small corpus: each question is asked of all their passages, and
what an ablation costs there is held against what it costs in Δname.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rankproof.diagnostics.ablations import ABLATIONS, Family
from rankproof.diagnostics.bundles import Bundle, draw_pairs, draw_run
from rankproof.diagnostics.corpus import JudgedCorpus
from rankproof.diagnostics.figures import CHANGE, SHARE, Figure, figures
from rankproof.diagnostics.mentions import Mentions, search_mentions
from rankproof.diagnostics.name_lists import (
    Language,
    Lists,
    check_language,
    check_lists,
    read_lists,
    shipped,
)
from rankproof.diagnostics.reshuffle import kendall, overlap
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
FORGED = "edit_distance_near_miss"
FAMILIES = (BASE, "identity", "formatting", "layout")
CONDITIONS = (BASE, *ABLATIONS)
MARGINS = ("name", "topic", "both")
LEAST = 0.02  # a base margin below it makes no percentage
MEASURES = ("nDCG@10", "P@1")  # of the bundles as a corpus
K = 10


@dataclass(frozen=True, slots=True)
class NameRow:
    """One condition: the base, or an ablation held against it query by query.

    >>> from rankproof.diagnostics import diagnose_names
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> found = diagnose_names(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> round(found.rows[0].margin["name"].mean, 3)
    0.483
    """

    ablation: str
    family: Family | None  # None is the base
    margin: dict[str, Figure]  # by MARGINS
    change: dict[str, Figure]  # ablated − base
    percent: dict[str, Figure]  # ΔΔ%, a mean of the percentages of single queries
    percent_of_means: dict[str, float]  # change of the mean margin, of all queries
    excluded: dict[str, int]  # queries × runs whose base margin is below LEAST
    changed: int  # queries × runs in which any text differs from the base
    confused: Figure  # share whose Δname is not above 0: an impostor is as near as the author
    retrieval: dict[str, Figure]  # by MEASURES, in expectation over ties
    retrieval_change: dict[str, Figure]
    overlap: Figure  # of the top K with the base's
    tau: Figure


@dataclass(frozen=True, slots=True)
class NamesDiagnosis(Displayed):
    """What a model makes of names.

    >>> from rankproof.diagnostics import diagnose_names
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> found = diagnose_names(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> found.language, len(found.rows)
    ('en', 11)
    """

    kind: ClassVar[str] = "names"

    embedder: str
    fingerprint: str
    language: Language
    lists: str
    queries: int
    runs: int
    seed: int
    rows: tuple[NameRow, ...]  # the base first
    ratio: Figure  # Δname/Δtopic of the base; sd between runs
    prediction: dict[str, Correlation]  # Δname against MEASURES[0]: across ablations, queries
    mentions: Mentions | None  # the same ablations in the user's corpus

    def summary(self) -> Summary:
        """What the values mean, the main finding first."""
        answer, *notes = self.words()
        return Summary(answer, notes)

    def tables(self) -> list[Table]:
        """A row for each ablation, then of the corpus where one was searched."""
        from rankproof.diagnostics.tables import name_tables

        return name_tables(self)

    def charts(self) -> list[Chart]:
        """The name margin of each condition with its interval."""
        rows = [
            Range(
                row.ablation,
                row.margin["name"].mean,
                *row.margin["name"].ci,
                group=FAMILIES.index(row.family or BASE),
            )
            for row in self.rows
        ]
        return [
            RangeChart(
                f"What a name is worth to {self.embedder} ({self.language})",
                rows,
                "Δname: cosine to the author's passage − to the nearest impostor's",
                groups=FAMILIES,
                zero=True,
                caption="How far the right author's passage leads an impostor's, after each "
                f"rewriting: means of {plural(self.queries, 'query')} × "
                f"{plural(self.runs, 'run')}; bars are 95% intervals over queries.",
            )
        ]

    def __getitem__(self, ablation: str) -> NameRow:
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
        """What is expected, and what is a warning for this model."""
        from rankproof.diagnostics.words import names_sentences

        return names_sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof diagnose names --format json` prints, and names.json holds."""
        return {
            **plain_fields(
                self, "embedder", "fingerprint", "language", "lists", "queries", "runs", "seed"
            ),
            "least_base_margin": LEAST,
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
    lists: Lists | str | Path | None = None,
    queries: int = 100,
    runs: int = 15,
    seed: int = 0,
    corpus: JudgedCorpus | str | Path | None = None,
) -> NamesDiagnosis:
    """Measure how far an embedder tells authors apart, and which rewritings undo that.

    `embedder` is anything with the Embedder protocol. `lists` are authors and topics, or a CSV
    with these columns; by default made-up ones of the language. Each run draws other impostors,
    topics and templates for the same queries. With a `corpus`, the ablations that text allows are
    also searched there, on its queries that name an author of the lists.

    >>> from rankproof.diagnostics import diagnose_names
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> found = diagnose_names(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> found.rows[0].ablation, found.queries
    ('base', 4)
    """
    known = check_language(language)
    for argument, value, least in (("queries", queries, 2), ("runs", runs, 1), ("seed", seed, 0)):
        check_whole_number(argument, value, least)
    if lists is None:
        lists = shipped(known)
    elif not isinstance(lists, Lists):
        lists = read_lists(lists)
    check_lists(lists)
    if isinstance(corpus, str | Path):
        corpus = JudgedCorpus.read(corpus)
    pairs = draw_pairs(lists, queries, seed)
    texts = len(CONDITIONS) * 6 * queries  # a question and five passages each
    with progress("diagnosing names", runs * texts):
        measured = [
            _run(embedder, list(draw_run(lists, known, pairs, seed, run))) for run in range(runs)
        ]
    margins, quality, overlaps, taus, changed = (
        np.stack(parts, axis=-2) for parts in zip(*measured, strict=True)
    )
    change = margins[1:, 0] - margins[0, 0]  # of Δname, (A, R, Q)
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
        rows=_rows(margins, quality, overlaps, taus, changed, seed),
        ratio=_ratio(margins[0], seed),
        prediction=_prediction(change, quality[1:, 0] - quality[0, 0], mentions, seed),
        mentions=mentions,
    )


def _run(embedder: Embedder, bundles: Sequence[Bundle]) -> tuple[Float, Float, Float, Float, Array]:
    """Return of one run margins (C, 3, Q), quality (C, M, Q), overlap, τ and changed (C, Q)."""
    conditions = [list(bundles)]
    conditions += [[ablation.apply(b) for b in bundles] for ablation in ABLATIONS.values()]
    question_texts = [[b.question.text for b in rewritten] for rewritten in conditions]
    passage_texts = [
        [passage.text for b in rewritten for passage in b.passages] for rewritten in conditions
    ]
    questions = embed_queries(embedder, [text for texts in question_texts for text in texts])
    passages = embed_passages(embedder, [text for texts in passage_texts for text in texts])
    margins, scores, grades, changed = [], [], [], []
    before = np.array(passage_texts[0], object)
    relevant = _relevance(bundles)
    for condition, own_questions, own_passages in zip(
        CONDITIONS, question_texts, passage_texts, strict=True
    ):
        vectors = questions(own_questions)
        rows = passages.rows(own_passages)
        s = cosines(vectors[:, None, :], passages.vectors[rows].reshape(len(own_questions), 5, -1))
        c1, c2a, c2b, c3, c4 = s.T
        margins.append([c1 - np.maximum(c2a, c2b), c1 - c3, c1 - c4])
        unique, place = np.unique(rows, return_inverse=True)  # equal texts are scored once
        product = fixed_sum.matrix(
            vectors.astype(np.float32), passages.vectors[unique].astype(np.float32)
        )
        scores.append(product[:, place.ravel()])
        grades.append(_forged(relevant) if condition == FORGED else relevant)
        is_same_question = np.array(
            [a == b for a, b in zip(question_texts[0], own_questions, strict=True)]
        )
        is_kept = (before == np.array(own_passages, object)).reshape(-1, 5).all(axis=1)
        changed.append(~(is_same_question & is_kept))
    quality, overlaps, taus = _retrieve(np.concatenate(scores), np.concatenate(grades))
    return np.array(margins), quality, overlaps, taus, np.array(changed)


def _retrieve(scores: Array, relevant: Array) -> tuple[Float, Float, Float]:
    """Scores (C Q, N) of all passages → quality (C, M, Q), overlap and τ to the base (C, Q)."""
    count = len(CONDITIONS)
    best = top_k([scores], len(scores), min(K, scores.shape[1]))
    # What scores below the last of the top K cannot matter, unless it is relevant.
    is_needed = (scores >= best.scores[:, -1:]) | (relevant > 0)
    evaluation = evaluate_arrays(
        [row[mask] for row, mask in zip(scores, is_needed, strict=True)],
        [row[mask] for row, mask in zip(relevant, is_needed, strict=True)],
        MEASURES,
    )
    quality = np.stack([outcome.expected for outcome in evaluation.outcomes.values()])
    size = len(scores) // count
    parts = (best.scores, best.documents, best.cut)
    base = TopK(*(np.concatenate([part[:size]] * count) for part in parts))
    return (
        quality.reshape(len(MEASURES), count, size).swapaxes(0, 1),
        overlap(base, best).reshape(count, size),
        kendall(base, best).reshape(count, size),
    )


def _relevance(bundles: Sequence[Bundle]) -> Array:
    """(Q, 5 Q) 1 where a passage is by the author asked for, on the topic asked for."""
    codes: dict[Any, int] = {}

    def coded(values: Iterable[Any]) -> Array:
        return np.array([codes.setdefault(value, len(codes)) for value in values])

    authors = coded(author for b in bundles for author in b.authors)
    topics = coded(passage.topic for b in bundles for passage in b.passages)
    asked_authors = coded(b.asked for b in bundles)[:, None]
    asked_topics = coded(b.question.topic for b in bundles)[:, None]
    relevant: Array = ((asked_authors == authors) & (asked_topics == topics)).astype(np.int64)
    return relevant


def _forged(relevant: Array) -> Array:
    """Return `relevant` without passages whose author has a forged name: nobody wrote them."""
    true = np.tile([1, 0, 0, 1, 0], relevant.shape[1] // 5)  # C1 and C3
    by_true_authors: Array = relevant * true
    return by_true_authors


def _rows(
    margins: Float, quality: Float, overlaps: Float, taus: Float, changed: Array, seed: int
) -> tuple[NameRow, ...]:
    """From (C, 3, R, Q), (C, M, R, Q) and (C, R, Q) to a row for each condition."""
    change = margins - margins[0]
    is_large_enough = margins[0] >= LEAST  # (3, R, Q)
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(is_large_enough, change / margins[0] * 100.0, np.nan)
        mean_margins = margins[0].mean(axis=(1, 2))
        of_means = np.where(
            mean_margins != 0, change.mean(axis=(2, 3)) / mean_margins * 100.0, np.nan
        )
    excluded = (~is_large_enough).sum(axis=(1, 2))

    def figures_by_name(
        values: Float, names: Sequence[str], within: Interval | None = None, base: int = 0
    ) -> list[dict[str, Figure]]:
        size = len(names)
        flat = figures(values.reshape(-1, *values.shape[-2:]), seed, within, base * size)
        return [
            dict(zip(names, flat[c * size : (c + 1) * size], strict=True))
            for c in range(len(values))
        ]

    tables = (
        figures_by_name(margins, MARGINS),
        figures_by_name(change, MARGINS),
        figures_by_name(percent, MARGINS),
        figures((margins[:, 0] <= 0).astype(np.float64), seed, SHARE),
        figures_by_name(quality, MEASURES, SHARE),
        figures_by_name(quality - quality[0], MEASURES, CHANGE, base=1),
        figures(overlaps, seed, SHARE, base=1),
        figures(taus, seed, CHANGE, base=1),
    )
    return tuple(
        NameRow(
            condition,
            None if condition == BASE else ABLATIONS[condition].family,
            *(margin, margin_change, percent_change),
            {name: float(of_means[c, m]) for m, name in enumerate(MARGINS)},
            {name: int(excluded[m]) for m, name in enumerate(MARGINS)},
            int(changed[c].sum()),
            *(confused, retrieval, quality_change, shared_top, tau),
        )
        for c, (
            condition,
            margin,
            margin_change,
            percent_change,
            confused,
            retrieval,
            quality_change,
            shared_top,
            tau,
        ) in enumerate(zip(CONDITIONS, *tables, strict=True))
    )


def _ratio(base: Float, seed: int) -> Figure:
    """Δname/Δtopic of the mean margins (3, R, Q)."""
    name, topic, _ = base.mean(axis=1)
    drawn = resampled_means(np.stack([name, topic], axis=1), seed)
    ends = percentile_interval(_over(drawn[:, 0], drawn[:, 1]), len(name))
    by_run = base.mean(axis=2)
    ratios = _over(by_run[0], by_run[1])
    sd = float(ratios.std(ddof=1)) if len(ratios) > 1 else float("nan")
    ratio = _over(name.mean(keepdims=True), topic.mean(keepdims=True))[0]
    return Figure(float(ratio), sd, ends)


def _over(one: Float, other: Float) -> Float:
    """NaN where there is nothing to divide by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(other != 0, one / other, np.nan)


def _prediction(
    cheap: Float, dear: Float, mentions: Mentions | None, seed: int
) -> dict[str, Correlation]:
    """Δname's change against the measure's, (A, R, Q) each, runs averaged."""
    margin_changes, quality_changes = cheap.mean(axis=1), dear.mean(axis=1)
    correlations = {
        "across_ablations": mean_correlation(margin_changes, quality_changes, list(ABLATIONS)),
        "across_queries": query_correlation(margin_changes, quality_changes, seed),
    }
    if mentions is not None and mentions.rows:
        names = [row.ablation for row in mentions.rows[1:]]
        rows = [at for at, name in enumerate(ABLATIONS) if name in names]
        order = [names.index(name) for name in ABLATIONS if name in names]
        correlations["across_ablations_in_corpus"] = mean_correlation(
            margin_changes[rows], mentions.changes[order], [n for n in ABLATIONS if n in names]
        )
    return correlations
