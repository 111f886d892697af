"""Search a judged corpus under the ablations, on its queries that name an author.

The ablations rewrite plain text here, wherever it names an author of the list. Two of the ten need
records with separate parts and are skipped: edit_distance_near_miss and author_position_shift.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rankproof.diagnostics.ablations import (
    MASKS,
    composed,
    decomposed_with_narrow_spaces,
    gibberish,
    initials,
    inverted,
    perturbed,
    without_marks,
)
from rankproof.diagnostics.bundles import LABELS
from rankproof.diagnostics.corpus import Index, JudgedCorpus
from rankproof.diagnostics.estimates import CHANGE, SHARE, Estimate, estimate_means
from rankproof.diagnostics.list_similarity import kendall, overlap
from rankproof.diagnostics.name_lists import Author, Language
from rankproof.diagnostics.vectors import embed_passages, embed_queries
from rankproof.foundation.arrays import Float
from rankproof.foundation.progress import progress
from rankproof.presentation.json_values import plain_fields
from rankproof.retrieval.protocols import Embedder


class Rewriting(NamedTuple):
    """What an ablation does to the text of queries and of passages."""

    query: Callable[[str], str]
    passage: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class MentionRow:
    """The corpus searched under one ablation."""

    ablation: str  # "base" for the corpus as it is
    measure: Estimate
    change: Estimate  # of the measure, query by query, against the base
    overlap: Estimate  # share of the base's top K that stays
    tau: Estimate  # Kendall's τ to the base's top K
    queries_changed: int
    passages_changed: int


@dataclass(frozen=True, slots=True)
class Mentions:
    """The effect of the ablations in a corpus, on the queries that name an author."""

    corpus: str
    measure: str
    queries: int  # queries that name an author of the list
    of: int  # judged queries
    rows: tuple[MentionRow, ...]  # the base first; empty if fewer than two queries name an author
    changes: Float  # (A, Q) changes of the measure under each ablation

    def to_dict(self) -> dict[str, Any]:
        return plain_fields(self, "corpus", "measure", "queries", "of", "rows")


def search_mentions(
    embedder: Embedder,
    corpus: JudgedCorpus,
    authors: Sequence[Author],
    language: Language,
    seed: int,
) -> Mentions:
    """Search the corpus as it is and under each ablation; needs two queries that name an author."""
    names = _AuthorNames(authors)
    naming = [row for row, query in enumerate(corpus.queries) if names.pattern.search(query)]
    judged_queries = len(corpus.queries)
    rows: tuple[MentionRow, ...] = ()
    changes = np.empty((1, 1, len(naming)))
    if len(naming) >= 2:
        corpus = corpus.only(naming)
        rewritings = {"base": Rewriting(str, str), **_rewritings(names, language)}
        with progress("searching names in the corpus", len(rewritings) * len(corpus.documents)):
            measure, overlaps, taus, counts = _search_rewritten(embedder, corpus, rewritings)
        changes = measure - measure[0]
        columns = (
            estimate_means(measure, seed, SHARE),
            estimate_means(changes, seed, CHANGE, references=1),
            estimate_means(overlaps, seed, SHARE, references=1),
            estimate_means(taus, seed, CHANGE, references=1),
        )
        rows = tuple(
            MentionRow(name, *estimates, *count)
            for name, *estimates, count in zip(rewritings, *columns, counts, strict=True)
        )
    return Mentions(
        corpus=corpus.label,
        measure=str(corpus.measure),
        queries=len(naming),
        of=judged_queries,
        rows=rows,
        changes=changes[1:, 0],
    )


def _search_rewritten(
    embedder: Embedder, corpus: JudgedCorpus, rewritings: dict[str, Rewriting]
) -> tuple[Float, Float, Float, list[tuple[int, int]]]:
    """Search the corpus under each of C rewritings, the first of which changes nothing.

    Returns the measure, and overlap and τ with the first (C, 1, Q); and for each rewriting the
    number of queries and of passages that it changes.
    """
    base_vectors = corpus.index(embedder).vectors
    results, counts = [], []
    first = None
    for rewriting in rewritings.values():
        queries = list(map(rewriting.query, corpus.queries))
        documents = list(map(rewriting.passage, corpus.documents))
        changed = [row for row, text in enumerate(documents) if text != corpus.documents[row]]
        vectors = base_vectors.copy()
        if changed:
            texts = [documents[row] for row in changed]
            vectors[changed] = embed_passages(embedder, texts)(texts)
        best, values = Index(corpus, vectors).search(embed_queries(embedder, queries)(queries))
        first = first or best
        results.append([values, overlap(first, best), kendall(first, best)])
        changed_queries = sum(a != b for a, b in zip(queries, corpus.queries, strict=True))
        counts.append((changed_queries, len(changed)))
    measure, overlaps, taus = np.array(results).swapaxes(0, 1)[:, :, None, :]  # one run
    return measure, overlaps, taus, counts


class _AuthorNames:
    """Finds the authors of a list in text, in any case."""

    def __init__(self, authors: Sequence[Author]):
        self._author = {author.full.casefold(): author for author in authors}
        longest_first = sorted((author.full for author in authors), key=len, reverse=True)
        self.pattern = re.compile(
            r"(?<!\w)(?:" + "|".join(map(re.escape, longest_first)) + r")(?!\w)", re.IGNORECASE
        )

    def rewriter(self, rename: Callable[[Author], str]) -> Callable[[str], str]:
        """Return a function that renames every author in a text."""

        def rename_match(match: re.Match[str]) -> str:
            author = self._author.get(match[0].casefold())
            return match[0] if author is None else rename(author)

        return lambda text: self.pattern.sub(rename_match, text)


def _rewritings(names: _AuthorNames, language: Language) -> dict[str, Rewriting]:
    """Return how each ablation rewrites queries and passages."""
    mask = names.rewriter(lambda _: MASKS[language])
    code = names.rewriter(gibberish)
    short = names.rewriter(initials)
    label = re.compile(rf"\b{re.escape(LABELS[language].split()[0].rstrip(':'))}\s?:\s*")
    return {
        "hard_name_mask": Rewriting(mask, mask),
        "gibberish_name": Rewriting(code, code),
        "initials_form": Rewriting(short, short),
        "name_order_inversion": Rewriting(str, names.rewriter(inverted)),
        "case_punct_perturb": Rewriting(str, names.rewriter(lambda a: perturbed(a.full))),
        "strip_diacritics": Rewriting(without_marks, without_marks),
        "unicode_normalization_stress": Rewriting(composed, decomposed_with_narrow_spaces),
        "remove_label": Rewriting(str, lambda text: label.sub("", text)),
    }
