"""How far conversation moves a query: cosines by level of noise, and what rewriting recovers.

Each query is noised at levels 0 to 4, several times over. Its cosine to the clean query says how
far it moved; its cosine to a relevant passage, what that costs. With a corpus every level is also
searched, and the drop in a measure is held against the drop in cosine [R §4.4, §4.5].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rankproof.diagnostics.conversation import LEVELS, noised, questions
from rankproof.diagnostics.corpus import Index, JudgedCorpus
from rankproof.diagnostics.figures import CHANGE, SHARE, Figure, figures, mean_of
from rankproof.diagnostics.name_lists import Language, check_language
from rankproof.diagnostics.reshuffle import kendall, overlap
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


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """One level, searched."""

    measure: Figure  # in expectation over ties
    change: Figure  # paired, against level 0 as typed
    overlap: Figure  # of the top 10 with that of level 0
    tau: Figure


@dataclass(frozen=True, slots=True)
class NoiseRow:
    """One level, as typed or as rewritten. Cosines are to the `clean` query and to a `passage`.

    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> found = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> found.rows[4].level, round(found.rows[4].cosine["clean"].mean, 2)
    (4, 0.45)
    """

    level: int
    rewriter: str | None  # None: as typed
    cosine: dict[str, Figure]
    drop: dict[str, Figure]  # level − level 0 as typed
    percent: dict[str, Figure]  # that drop in percent of each query's level 0
    recovered: dict[str, float]  # share of the drop that the rewriter made good; NaN as typed
    retrieval: EndToEnd | None
    example: str

    @property
    def label(self) -> str:
        return f"level {self.level}" + (f", {self.rewriter}" if self.rewriter else "")


@dataclass(frozen=True, slots=True)
class NoiseDiagnosis(Displayed):
    """What conversation costs a model.

    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> found = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> found.language, found.queries
    ('en', 4)
    """

    kind: ClassVar[str] = "noise"

    embedder: str
    fingerprint: str
    language: Language
    source: str
    queries: int
    runs: int
    seed: int
    measure: str | None  # end to end
    rows: tuple[NoiseRow, ...]  # levels as typed, then as each rewriter leaves them
    prediction: dict[str, Correlation]

    def summary(self) -> Summary:
        """What the values mean, the main finding first."""
        answer, *notes = self.words()
        return Summary(answer, notes)

    def tables(self) -> list[Table]:
        """A row for each level, as typed and as rewritten."""
        from rankproof.diagnostics.tables import noise_tables

        return noise_tables(self)

    def charts(self) -> list[Chart]:
        """The cosine by level, as typed and as each rewriter leaves it."""
        curves = []
        for group, rewriter in enumerate([None, *self.rewriters]):
            label = "as typed" if rewriter is None else f"rewritten by {rewriter}"
            for target, description in (("clean", "the clean query"), ("passage", "passage")):
                rows = [row for row in self.rows if row.rewriter == rewriter]
                figures = [row.cosine[target] for row in rows]
                curves.append(
                    Curve(
                        f"{label}, to {description}",
                        x=[float(row.level) for row in rows],
                        y=[figure.mean for figure in figures],
                        low=[figure.ci[0] for figure in figures],
                        high=[figure.ci[1] for figure in figures],
                        dashed=target == "passage",
                        group=group,
                    )
                )
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

    @property
    def rewriters(self) -> list[str]:
        return list(dict.fromkeys(row.rewriter for row in self.rows if row.rewriter is not None))

    def at(self, level: int, rewriter: str | None = None) -> NoiseRow:
        """The row of a level."""
        return next(r for r in self.rows if (r.level, r.rewriter) == (level, rewriter))

    def __repr__(self) -> str:
        return "\n".join(self.words())

    def words(self) -> list[str]:
        """What the levels cost, and what rewriting recovers."""
        from rankproof.diagnostics.words import noise_sentences

        return noise_sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof diagnose noise --format json` prints, and noise.json holds."""
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
    """Measure what conversational noise does to queries, and what `rewriters` undo of it.

    Without a corpus the questions of the package are asked. With one, its judged queries are, and
    each level is searched: at most `queries` of them, drawn with the seed.

    >>> from rankproof.diagnostics import diagnose_noise
    >>> from rankproof.retrieval.embedders import make_embedder
    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> found = diagnose_noise(make_embedder(WordllamaSettings()), queries=4, runs=1)
    >>> [row.level for row in found.rows]
    [0, 1, 2, 3, 4]
    """
    known = check_language(language)
    for what, value, least in (("queries", queries, 2), ("runs", runs, 1), ("seed", seed, 0)):
        check_whole_number(what, value, least)
    if isinstance(corpus, str | Path):
        corpus = JudgedCorpus.read(corpus)
    references: list[str]
    if corpus is None:
        pairs = questions(known)[:queries]
        clean_queries = [question for question, _ in pairs]
        references = [passage for _, passage in pairs]
        source = f"rankproof's {known} questions"
    else:
        corpus = corpus.sample(queries, seed)
        clean_queries, references = corpus.queries, corpus.documents
        source = corpus.label
    typed = [
        [
            [noised(q, level, known, seed * 1_000_003 + run).text for q in clean_queries]
            for run in range(runs)
        ]
        for level in LEVELS
    ]
    versions = [typed, *(_rewritten(rewriter, typed) for rewriter in rewriters)]
    texts = [text for levels in versions for level in levels for run in level for text in run]
    with progress("diagnosing noise", len(texts) + len(references)):
        vectors = embed_queries(embedder, texts)
        shape = (len(versions), len(LEVELS), runs, len(clean_queries))
        points = vectors(texts).reshape(*shape, -1)  # (W, L, R, Q, D)
        if corpus is None:
            passages = embed_passages(embedder, references)(references)
            searched = None
        else:
            index = corpus.index(embedder)
            passages = index.relevant()
            searched = _search(index, points)
    cosine = np.stack([cosines(points, vectors(clean_queries)), cosines(points, passages)])
    names = [rewriter.name for rewriter in rewriters]
    prediction = {} if searched is None else _prediction(cosine[0], searched[0], names, seed)
    return NoiseDiagnosis(
        embedder=embedder.name,
        fingerprint=embedder.fingerprint,
        language=known,
        source=source,
        queries=len(clean_queries),
        runs=runs,
        seed=seed,
        measure=None if corpus is None else str(corpus.measure),
        rows=_rows(cosine, searched, names, versions, seed),
        prediction=prediction,
    )


def _rewritten(rewriter: Rewriter, levels: list[list[list[str]]]) -> list[list[list[str]]]:
    """Each text once: a rewriter may be a paid one."""
    rewritten: dict[str, str] = {}
    for level in levels:
        for run in level:
            for text in run:
                if text not in rewritten:
                    rewritten[text] = rewriter.rewrite(text) or text
    return [[[rewritten[text] for text in run] for run in level] for level in levels]


def _search(index: Index, points: Float) -> Float:
    """(3, W, L, R, Q) the measure, overlap and τ to level 0 as typed."""
    first, _ = index.search(points[0, 0, 0])  # level 0 is the same in every run
    results = np.empty((3, *points.shape[:-1]))
    for at in np.ndindex(points.shape[:3]):
        best, values = index.search(points[at])
        results[:, *at] = values, overlap(first, best), kendall(first, best)
    return results


def _rows(
    cosine: Float,
    searched: Float | None,
    names: Sequence[str],
    versions: list[list[list[list[str]]]],
    seed: int,
) -> tuple[NoiseRow, ...]:
    """From (2, W, L, R, Q) cosines and (3, W, L, R, Q) searches to a row for each way and level."""
    clean = cosine[:, :1, :1]
    drop = cosine - clean
    means = mean_of(drop, axis=(3, 4))  # (2, W, L)
    with np.errstate(divide="ignore", invalid="ignore"):
        percent = np.where(clean != 0, drop / clean * 100.0, np.nan)
        recovered = np.where(means[:, :1] != 0, 1.0 - means / means[:, :1], np.nan)
    recovered[:, 0] = np.nan
    recovered[:, :, 0] = np.nan  # nothing was lost at level 0

    def over(values: Float, within: Interval | None = None, base: int = 0) -> list[Figure]:
        """Over ways and levels."""
        return figures(values.reshape(-1, *values.shape[-2:]), seed, within, base)

    cosine_of, drop_of, percent_of = (
        [dict(zip(COSINES, pair, strict=True)) for pair in zip(*map(over, values), strict=True)]
        for values in (cosine, drop, percent)
    )
    retrievals: list[EndToEnd | None] = [None] * len(cosine_of)
    if searched is not None:
        measure, shared, tau = searched
        results = (
            over(measure, SHARE),
            over(measure - measure[:1, :1], CHANGE, base=1),
            over(shared, SHARE, base=1),
            over(tau, CHANGE, base=1),
        )
        retrievals = [EndToEnd(*row) for row in zip(*results, strict=True)]
    places = [(version, level) for version in (None, *names) for level in LEVELS]
    return tuple(
        NoiseRow(
            *(level, version, cosine_of[at], drop_of[at], percent_of[at]),
            {name: float(recovered[c, at // 5, at % 5]) for c, name in enumerate(COSINES)},
            retrievals[at],
            versions[at // 5][level][0][0],
        )
        for at, (version, level) in enumerate(places)
    )


def _prediction(
    clean: Float, measure: Float, names: list[str], seed: int
) -> dict[str, Correlation]:
    """The change of cosine against that of the measure; level 0 as typed is no point."""
    versions = ["", *(f" by {name}" for name in names)]
    labels = [f"level {level}{version}" for version in versions for level in LEVELS][1:]
    cosine_changes, measure_changes = (
        (values - values[:1, :1]).mean(axis=2).reshape(-1, values.shape[-1])[1:]
        for values in (clean, measure)
    )
    return {
        "across_levels": mean_correlation(cosine_changes, measure_changes, labels),
        "across_queries": query_correlation(cosine_changes, measure_changes, seed),
    }
