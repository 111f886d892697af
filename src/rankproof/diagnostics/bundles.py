"""Bundles: a question about an author's works on a topic, and five passages to compare it with.

C1        by the author, on the topic
C2a, C2b  by two impostors, on the topic
C3        by the author, on another topic
C4        by another impostor, on another topic

A bundle is drawn for each query of each run; a query is a pair of author and topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from rankproof.diagnostics.name_lists import Author, Language, NameLists
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.statistics.resampling import first_of_permutation

QUESTIONS: dict[Language, tuple[str, ...]] = {
    "en": (
        "Which works by {author} on {topic}?",
        "What has {author} written on {topic}?",
        "Which papers by {author} deal with {topic}?",
        "Find publications by {author} about {topic}.",
        "I am looking for articles by {author} on {topic}.",
    ),
    "fr": (
        "Quels travaux signés {author} portent sur {topic} ?",
        "Qu’a écrit {author} sur {topic} ?",
        "Quels articles par {author} sur {topic} ?",
        "Trouver les publications signées {author} sur {topic}.",
        "Je cherche les textes écrits par {author} sur {topic}.",
    ),
}
WORKS: dict[Language, tuple[str, ...]] = {
    "en": (
        "Research paper: “Recent advances in {topic}”.",
        "Research paper: “A review of {topic}”.",
        "Journal article: “New perspectives on {topic}”.",
        "Book chapter: “Essays on {topic}”.",
        "Doctoral thesis: “Studies in {topic}”.",
    ),
    "fr": (
        "Article de recherche : « Travaux récents sur {topic} ».",
        "Article de revue : « Nouveaux regards sur {topic} ».",
        "Article de recherche : « Une synthèse sur {topic} ».",
        "Chapitre d’ouvrage : « Essais sur {topic} ».",
        "Thèse de doctorat : « Études sur {topic} ».",
    ),
}
LABELS: dict[Language, str] = {"en": "Author: ", "fr": "Auteur : "}


@dataclass(frozen=True, slots=True)
class Question:
    """A question about an author and a topic."""

    template: str  # with {author} and {topic}
    author: str
    topic: str

    @property
    def text(self) -> str:
        return self.template.format(author=self.author, topic=self.topic)


@dataclass(frozen=True, slots=True)
class Passage:
    """A short bibliographic record in two parts: the work, and its author behind a label."""

    work: str  # with {topic}
    label: str
    author: str
    topic: str
    author_first: bool = False

    @property
    def text(self) -> str:
        parts = (self.work.format(topic=self.topic), f"{self.label}{self.author}.")
        return " ".join(reversed(parts) if self.author_first else parts)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A question, its five passages, and the authors behind their names."""

    language: Language
    question: Question
    passages: tuple[Passage, ...]  # C1, C2a, C2b, C3, C4
    asked_author: Author
    authors: tuple[Author, ...]  # of the passages
    seed: int  # of random choices in an ablation

    def change(
        self,
        question: Callable[[Question], Question] | None = None,
        passage: Callable[[Passage, Author], Passage] | None = None,
    ) -> Bundle:
        """Return the bundle with its question, or each passage, rewritten by a function."""
        bundle = self
        if question is not None:
            bundle = replace(bundle, question=question(self.question))
        if passage is not None:
            passages = tuple(map(passage, self.passages, self.authors))
            bundle = replace(bundle, passages=passages)
        return bundle


def draw_pairs(lists: NameLists, queries: int, seed: int) -> list[tuple[int, int]]:
    """Draw the query pairs, as indexes of author and topic: all different, the same in every run.

    With more queries the first ones stay the same.
    """
    possible = len(lists.authors) * len(lists.topics)
    if queries > possible:
        raise InputError(
            f"{plural(queries, 'query')} of {plural(len(lists.authors), 'author')} and "
            f"{plural(len(lists.topics), 'topic')}",
            place=lists.label,
            remedy=f"ask for {possible} or fewer, or give longer lists",
        )
    drawn = first_of_permutation(possible, queries, [seed, 0])
    return [divmod(int(pair), len(lists.topics)) for pair in drawn]


def draw_run(
    lists: NameLists, language: Language, pairs: list[tuple[int, int]], seed: int, run: int
) -> Iterator[Bundle]:
    """Yield a bundle for each query; impostors, other topics and templates are drawn by the run."""
    random = np.random.default_rng([seed, 1, run])
    for author, topic in pairs:
        # Numbers are drawn from one fewer and moved past the asked author or topic.
        drawn = random.choice(len(lists.authors) - 1, min(3, len(lists.authors) - 1), False)
        first, second, *third = (int(other) + (int(other) >= author) for other in drawn)
        other_topic = int(random.integers(len(lists.topics) - 1))
        other_topic += other_topic >= topic
        template = QUESTIONS[language][random.integers(len(QUESTIONS[language]))]
        work = WORKS[language][random.integers(len(WORKS[language]))]
        ablation_seed = int(random.integers(1 << 31))
        last = third[0] if third else second  # with three authors in all
        authors = tuple(lists.authors[a] for a in (author, first, second, author, last))
        topics = [lists.topics[t] for t in (topic, topic, topic, other_topic, other_topic)]
        yield Bundle(
            language=language,
            question=Question(template, authors[0].full, topics[0]),
            passages=tuple(
                Passage(work, LABELS[language], passage_author.full, passage_topic)
                for passage_author, passage_topic in zip(authors, topics, strict=True)
            ),
            asked_author=authors[0],
            authors=authors,
            seed=ablation_seed,
        )
