"""Measure how far conversation moves a query embedding, and what rewriting the query recovers.

Each query is written at noise levels 0 to 4, once in each run. Its cosine to the clean query says
how far it moved; its cosine to a relevant passage, what that costs. With a corpus every level is
also searched, and the drop in a measure is compared with the drop in cosine [R §4.4, §4.5].

Shapes: V versions (as typed, then as each rewriter leaves it), L levels, R runs, Q queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rankproof.diagnostics.conversation import LEVELS, add_noise, shipped_questions
from rankproof.diagnostics.corpus import Index, JudgedCorpus
from rankproof.diagnostics.estimates import CHANGE, SHARE, Estimate, defined_mean, estimate_means
from rankproof.diagnostics.list_similarity import kendall, overlap
from rankproof.diagnostics.name_lists import Language, check_language
from rankproof.diagnostics.vectors import cosines, embed_passages, embed_queries
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import check_whole_number
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import progress
from rankproof.presentation.charts import Chart, Curve, CurveChart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain, plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table
from rankproof.retrieval.protocols import Embedder, Rewriter
from rankproof.statistics.intervals import Interval
from rankproof.statistics.rank_similarity import (
    Correlation,
    mean_correlation,
    query_correlation,
)

COSINES = ("clean", "passage")
_RUN_SEEDS = 1_000_003  # above every number of runs: seed · this + run differs for each pair


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """The search results of one level."""

    measure: Estimate  # in expectation over ties
    change: Estimate  # of the measure, query by query, against level 0 as typed
    overlap: Estimate  # share of the top 10 of level 0 that stays
    tau: Estimate  # Kendall's τ to the top 10 of level 0


@dataclass(frozen=True, slots=True)
class NoiseRow:
    """One level, as typed or rewritten; cosines are to the "clean" query and to a "passage".

    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> diagnosis = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> diagnosis.rows[4].level, round(diagnosis.rows[4].cosine["clean"].mean, 2)
    (4, 0.45)
    """

    level: int
    rewriter: str | None  # None: as typed
    cosine: dict[str, Estimate]  # by COSINES
    drop: dict[str, Estimate]  # change of the cosine against level 0 as typed
    percent: dict[str, Estimate]  # that change in percent of each query's cosine at level 0
    recovered: dict[str, float]  # share of the drop that the rewriter undoes; NaN as typed
    retrieval: EndToEnd | None  # None without a corpus
    example: str


@dataclass(frozen=True, slots=True)
class NoiseDiagnosis(Displayed):
    """The effect of conversation on a model.

    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> diagnosis = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> diagnosis.language, diagnosis.queries
    ('en', 4)
    """

    kind: ClassVar[str] = "noise"

    embedder: str
    fingerprint: str
    language: Language
    source: str  # of the questions
    queries: int
    runs: int
    seed: int
    measure: str | None  # of the search; None without a corpus
    rows: tuple[NoiseRow, ...]  # levels as typed, then as each rewriter leaves them
    # Of changes in the cosine to the clean query and in the measure, across levels and queries:
    prediction: dict[str, Correlation]

    def summary(self) -> Summary:
        """The diagnosis in words, the main result first."""
        answer, *notes = self.words()
        return Summary(answer, notes)

    def tables(self) -> list[Table]:
        """A table with a row for each level, as typed and as rewritten."""
        from rankproof.diagnostics.tables import noise_tables

        return noise_tables(self)

    def charts(self) -> list[Chart]:
        """The cosine by level, as typed and as each rewriter leaves it."""
        curves = [
            self._curve(rewriter, group, target)
            for group, rewriter in enumerate([None, *self.rewriters])
            for target in COSINES
        ]
        return [
            CurveChart(
                f"What conversation costs {self.embedder} ({self.language})",
                curves,
                x_label="level of noise",
                y_label="cosine",
                caption="Cosine of a question with conversational noise: means of "
                f"{plural(self.queries, 'query')} × {plural(self.runs, 'run')}; bands are 95% "
                "intervals over queries.",
            )
        ]

    def _curve(self, rewriter: str | None, group: int, target: str) -> Curve:
        """Return the curve of cosines to a target over the levels."""
        version = "as typed" if rewriter is None else f"rewritten by {rewriter}"
        rows = [row for row in self.rows if row.rewriter == rewriter]
        cosine = [row.cosine[target] for row in rows]
        return Curve(
            f"{version}, to {'the clean query' if target == 'clean' else 'passage'}",
            x=[float(row.level) for row in rows],
            y=[estimate.mean for estimate in cosine],
            low=[estimate.ci[0] for estimate in cosine],
            high=[estimate.ci[1] for estimate in cosine],
            dashed=target == "passage",
            group=group,
        )

    @property
    def rewriters(self) -> list[str]:
        """The names of the rewriters."""
        return list(dict.fromkeys(row.rewriter for row in self.rows if row.rewriter is not None))

    def at(self, level: int, rewriter: str | None = None) -> NoiseRow:
        """Return the row of a level, as typed or as a rewriter leaves it."""
        return next(r for r in self.rows if (r.level, r.rewriter) == (level, rewriter))

    def __repr__(self) -> str:
        return "\n".join(self.words())

    def words(self) -> list[str]:
        """Return sentences: what the levels cost, and what rewriting recovers."""
        from rankproof.diagnostics.sentences import noise_sentences

        return noise_sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """Return what `rankproof diagnose noise --format json` prints, and noise.json holds."""
        names = ("embedder", "fingerprint", "language", "source", "queries", "runs", "seed")
        return {
            **plain_fields(self, *names, "measure", "rows"),
            "prediction": {
                "cheap": "change of the cosine to the clean query",
                "dear": None if self.measure is None else f"change of {self.measure}",
                **plain(self.prediction),
            },
            "words": self.words(),
        }


def diagnose_noise(
    embedder: Embedder,
    *,
    language: str = "en",
    corpus: JudgedCorpus | str | Path | None = None,
    rewriters: Sequence[Rewriter] = (),
    queries: int = 100,
    runs: int = 5,
    seed: int = 0,
) -> NoiseDiagnosis:
    """Measure what conversational noise does to queries, and how much of it `rewriters` undo.

    Without a corpus the questions that ship with rankproof are used. With one, each level of its
    judged queries is searched: at most `queries` of them, drawn with the seed.

    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> diagnosis = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> [row.level for row in diagnosis.rows]
    [0, 1, 2, 3, 4]
    """
    known = check_language(language)
    for name, value, minimum in (("queries", queries, 2), ("runs", runs, 1), ("seed", seed, 0)):
        check_whole_number(name, value, minimum)
    if isinstance(corpus, str | Path):
        corpus = JudgedCorpus.read(corpus)
    references: list[str]
    if corpus is None:
        pairs = shipped_questions(known)[:queries]
        clean_queries = [question for question, _ in pairs]
        references = [passage for _, passage in pairs]
        source = f"rankproof's {known} questions"
    else:
        corpus = corpus.sample(queries, seed)
        clean_queries, references = corpus.queries, corpus.documents
        source = corpus.label
    typed = [
        [
            [add_noise(q, level, known, seed * _RUN_SEEDS + run).text for q in clean_queries]
            for run in range(runs)
        ]
        for level in LEVELS
    ]
    versions = np.array([typed, *(_rewrite(rewriter, typed) for rewriter in rewriters)], object)
    texts: list[str] = versions.ravel().tolist()
    with progress("diagnosing noise", len(texts) + len(references)):
        embedded = embed_queries(embedder, texts)
        vectors = embedded(texts).reshape(*versions.shape, -1)  # (V, L, R, Q, D)
        if corpus is None:
            passages = embed_passages(embedder, references)(references)
            searches = None
        else:
            index = corpus.index(embedder)
            passages = index.mean_relevant_vectors()
            searches = _search(index, vectors)
    cosine = np.stack([cosines(vectors, embedded(clean_queries)), cosines(vectors, passages)])
    names = [None, *(rewriter.name for rewriter in rewriters)]
    prediction = {} if searches is None else _prediction(cosine[0], searches[0], names, seed)
    return NoiseDiagnosis(
        embedder=embedder.name,
        fingerprint=embedder.fingerprint,
        language=known,
        source=source,
        queries=len(clean_queries),
        runs=runs,
        seed=seed,
        measure=None if corpus is None else str(corpus.measure),
        rows=_rows(cosine, searches, names, versions[:, :, 0, 0].tolist(), seed),
        prediction=prediction,
    )


def _rewrite(rewriter: Rewriter, levels: list[list[list[str]]]) -> list[list[list[str]]]:
    """Return the texts of each level and run as the rewriter leaves them, asking once for each.

    Each request may cost money. An empty reply leaves the text as it is.
    """
    rewritten: dict[str, str] = {}
    for level in levels:
        for run in level:
            for text in run:
                if text not in rewritten:
                    rewritten[text] = rewriter.rewrite(text) or text
    return [[[rewritten[text] for text in run] for run in level] for level in levels]


def _search(index: Index, vectors: Float) -> Float:
    """Return (3, V, L, R, Q) the measure, and overlap and τ to level 0 as typed."""
    first, _ = index.search(vectors[0, 0, 0])  # level 0 is the same in every run
    results = np.empty((3, *vectors.shape[:-1]))
    for place in np.ndindex(vectors.shape[:3]):
        best, values = index.search(vectors[place])
        results[:, *place] = values, overlap(first, best), kendall(first, best)
    return results


def _rows(
    cosine: Float,
    searches: Float | None,
    names: Sequence[str | None],
    examples: list[list[str]],
    seed: int,
) -> tuple[NoiseRow, ...]:
    """Return a row for each version and level from cosines (2, V, L, R, Q) and `_search`.

    `names` are those of the versions' rewriters, `examples` their texts (V, L).
    """
    clean = cosine[:, :1, :1]
    drop = cosine - clean
    mean_drop = defined_mean(drop, axis=(3, 4))  # (2, V, L)
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(clean != 0, drop / clean * 100.0, np.nan)
        recovered = np.where(mean_drop[:, :1] != 0, 1.0 - mean_drop / mean_drop[:, :1], np.nan)
    recovered[:, 0] = np.nan
    recovered[:, :, 0] = np.nan  # nothing is lost at level 0
    cosine_of, drop_of, percent_of = (
        [
            dict(zip(COSINES, pair, strict=True))
            for pair in zip(*(_estimate_rows(column, seed) for column in values), strict=True)
        ]
        for values in (cosine, drop, percent)
    )
    retrieval: Sequence[EndToEnd | None] = [None] * len(cosine_of)
    if searches is not None:
        retrieval = _end_to_end(searches, seed)
    return tuple(
        NoiseRow(
            level=level,
            rewriter=name,
            cosine=cosine_of[row],
            drop=drop_of[row],
            percent=percent_of[row],
            recovered=dict(zip(COSINES, recovered[:, version, level].tolist(), strict=True)),
            retrieval=retrieval[row],
            example=examples[version][level],
        )
        for row, ((version, name), level) in enumerate(product(enumerate(names), LEVELS))
    )


def _end_to_end(searches: Float, seed: int) -> list[EndToEnd]:
    """Estimate measure, change, overlap and τ of each version and level."""
    measure, overlaps, taus = searches
    columns = (
        _estimate_rows(measure, seed, SHARE),
        _estimate_rows(measure - measure[:1, :1], seed, CHANGE, references=1),
        _estimate_rows(overlaps, seed, SHARE, references=1),
        _estimate_rows(taus, seed, CHANGE, references=1),
    )
    return [EndToEnd(*estimates) for estimates in zip(*columns, strict=True)]


def _estimate_rows(
    values: Float, seed: int, within: Interval | None = None, *, references: int = 0
) -> list[Estimate]:
    """Estimate the mean of each version and level from values (V, L, R, Q)."""
    return estimate_means(values.reshape(-1, *values.shape[-2:]), seed, within, references)


def _prediction(
    clean: Float, measure: Float, names: Sequence[str | None], seed: int
) -> dict[str, Correlation]:
    """Correlate the change of the cosine with that of the measure; both are (V, L, R, Q).

    Level 0 as typed is their reference, and not a point.
    """
    versions = ["" if name is None else f" by {name}" for name in names]
    labels = [f"level {level}{version}" for version in versions for level in LEVELS][1:]
    cosine_changes, measure_changes = (
        (values - values[:1, :1]).mean(axis=2).reshape(-1, values.shape[-1])[1:]
        for values in (clean, measure)
    )
    return {
        "across_levels": mean_correlation(cosine_changes, measure_changes, labels),
        "across_queries": query_correlation(cosine_changes, measure_changes, seed),
    }
