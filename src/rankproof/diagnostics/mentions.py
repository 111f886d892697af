"""Names end to end in a judged corpus: queries that name an author, and the ablations of text.

Two ablations need records that are laid out in parts and have no meaning here: impostors at an
edit distance, and the position of the author.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rankproof.diagnostics.ablations import (
    MASKS,
    composed,
    gibberish,
    initials,
    inverted,
    perturbed,
    stressed,
    without_marks,
)
from rankproof.diagnostics.bundles import LABELS
from rankproof.diagnostics.corpus import Index, JudgedCorpus
from rankproof.diagnostics.figures import CHANGE, SHARE, Figure, figures
from rankproof.diagnostics.name_lists import Author, Language
from rankproof.diagnostics.reshuffle import kendall, overlap
from rankproof.diagnostics.vectors import embed_passages, embed_queries
from rankproof.foundation.arrays import Float
from rankproof.foundation.progress import progress
from rankproof.presentation.json_values import plain_fields
from rankproof.retrieval.protocols import Embedder

Rewriting = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class MentionRow:
    """An ablation of the whole corpus, searched."""

    ablation: str
    measure: Figure
    change: Figure  # paired, against the base
    overlap: Figure
    tau: Figure
    queries_changed: int
    passages_changed: int


@dataclass(frozen=True, slots=True)
class Mentions:
    """What the ablations cost in a corpus, on the queries that name an author."""

    corpus: str
    measure: str
    queries: int  # that name an author of the list
    of: int  # judged queries
    rows: tuple[MentionRow, ...]  # the base first; none where too few queries name an author
    changes: Float  # (ablations, queries), for correlations

    def to_dict(self) -> dict[str, Any]:
        return plain_fields(self, "corpus", "measure", "queries", "of", "rows")


def search_mentions(
    embedder: Embedder,
    corpus: JudgedCorpus,
    authors: Sequence[Author],
    language: Language,
    seed: int,
) -> Mentions:
    """Search the corpus as it is and under each ablation; at least two queries must name one."""
    named = _Names(authors)
    naming = [row for row, query in enumerate(corpus.queries) if named.pattern.search(query)]
    of = len(corpus.queries)
    if len(naming) < 2:
        empty = np.empty((0, len(naming)))
        return Mentions(corpus.label, str(corpus.measure), len(naming), of, (), empty)
    corpus = corpus.only(naming)
    ways: dict[str, tuple[Rewriting, Rewriting]] = {"base": (str, str)}
    ways |= rewritings(named, language)
    with progress("searching names in the corpus", len(ways) * len(corpus.documents)):
        searched, counts = _search_rewritten(embedder, corpus, ways)
    results = searched[:, :, None, :]  # (C, 3, one run, Q)
    changes = results[:, 0] - results[0, 0]
    tables = [
        figures(results[:, 0], seed, SHARE),
        figures(changes, seed, CHANGE, base=1),
        figures(results[:, 1], seed, SHARE, base=1),
        figures(results[:, 2], seed, CHANGE, base=1),
    ]
    rows = tuple(
        MentionRow(name, *figures_, *count)
        for name, *figures_, count in zip(ways, *tables, counts, strict=True)
    )
    return Mentions(corpus.label, str(corpus.measure), len(naming), of, rows, changes[1:, 0])


def _search_rewritten(
    embedder: Embedder, corpus: JudgedCorpus, ways: dict[str, tuple[Rewriting, Rewriting]]
) -> tuple[Float, list[tuple[int, int]]]:
    """Return (C, 3, Q) measure, overlap and τ to the base; and queries and passages changed."""
    base = corpus.index(embedder).vectors
    results, counts = [], []
    first = None
    for rewrite_query, rewrite_passage in ways.values():
        queries = [rewrite_query(query) for query in corpus.queries]
        documents = [rewrite_passage(document) for document in corpus.documents]
        changed = [row for row, text in enumerate(documents) if text != corpus.documents[row]]
        vectors = base.copy()
        if changed:
            texts = [documents[row] for row in changed]
            vectors[changed] = embed_passages(embedder, texts)(texts)
        best, values = Index(corpus, vectors).search(embed_queries(embedder, queries)(queries))
        first = first or best
        results.append([values, overlap(first, best), kendall(first, best)])
        changed_queries = sum(a != b for a, b in zip(queries, corpus.queries, strict=True))
        counts.append((changed_queries, len(changed)))
    return np.array(results), counts


class _Names:
    """Finds the authors of a list in text, whatever their case."""

    def __init__(self, authors: Sequence[Author]):
        self._author = {author.full.casefold(): author for author in authors}
        longest = sorted((author.full for author in authors), key=len, reverse=True)
        self.pattern = re.compile(
            r"(?<!\w)(?:" + "|".join(map(re.escape, longest)) + r")(?!\w)", re.IGNORECASE
        )

    def renamed(self, name: Callable[[Author], str]) -> Rewriting:
        """Text with every author written otherwise."""

        def rewrite(text: str) -> str:
            return self.pattern.sub(lambda found: self._renamed(found[0], name), text)

        return rewrite

    def _renamed(self, text: str, name: Callable[[Author], str]) -> str:
        author = self._author.get(text.casefold())
        return text if author is None else name(author)


def rewritings(named: _Names, language: Language) -> dict[str, tuple[Rewriting, Rewriting]]:
    """For queries and for passages, what each ablation does to their text."""
    mask = named.renamed(lambda _: MASKS[language])
    code = named.renamed(gibberish)
    short = named.renamed(initials)
    label = re.compile(rf"\b{re.escape(LABELS[language].split()[0].rstrip(':'))}\s?:\s*")
    return {
        "hard_name_mask": (mask, mask),
        "gibberish_name": (code, code),
        "initials_form": (short, short),
        "name_order_inversion": (str, named.renamed(inverted)),
        "case_punct_perturb": (str, named.renamed(lambda author: perturbed(author.full))),
        "strip_diacritics": (without_marks, without_marks),
        "unicode_normalization_stress": (composed, stressed),
        "remove_label": (str, lambda text: label.sub("", text)),
    }
