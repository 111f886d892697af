"""Bundles: a question about an author and a topic, and the five passages it is held against.

C1        the author, the topic
C2a, C2b  two others, the topic
C3        the author, another topic
C4        another author, another topic
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from rankproof.diagnostics.name_lists import Author, Language, Lists
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
    """What is asked: {author} and {topic} stand in the template."""

    template: str
    author: str
    topic: str

    @property
    def text(self) -> str:
        return self.template.format(author=self.author, topic=self.topic)


@dataclass(frozen=True, slots=True)
class Passage:
    """A short bibliographic record, in two parts: the work and its author."""

    work: str  # {topic} stands in it
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
    """A question, its five passages, and who stands behind each."""

    language: Language
    question: Question
    passages: tuple[Passage, ...]  # C1, C2a, C2b, C3, C4
    asked: Author
    authors: tuple[Author, ...]  # of the passages
    seed: int  # for what an ablation chooses freely

    def change(
        self,
        question: Callable[[Question], Question] | None = None,
        passage: Callable[[Passage, Author], Passage] | None = None,
    ) -> Bundle:
        """The same bundle with its question or its passages rewritten."""
        passages = self.passages
        if passage is not None:
            people = zip(self.passages, self.authors, strict=True)
            passages = tuple(passage(given, author) for given, author in people)
        return replace(
            self,
            question=self.question if question is None else question(self.question),
            passages=passages,
        )

    @property
    def texts(self) -> tuple[str, ...]:
        """The question, then the passages."""
        return (self.question.text, *(passage.text for passage in self.passages))


def draw_pairs(lists: Lists, queries: int, seed: int) -> list[tuple[int, int]]:
    """(author, topic) of each query: all different, the same in every run."""
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
    lists: Lists, language: Language, pairs: list[tuple[int, int]], seed: int, run: int
) -> Iterator[Bundle]:
    """A bundle for each query, with impostors, other topic and templates of this run."""
    random = np.random.default_rng([seed, 1, run])
    for author, topic in pairs:
        # Others than the one asked: drawn from one fewer, and moved past it.
        others = random.choice(len(lists.authors) - 1, min(3, len(lists.authors) - 1), False)
        first, second, *third = (int(other) + (int(other) >= author) for other in others)
        elsewhere = int(random.integers(len(lists.topics) - 1))
        elsewhere += elsewhere >= topic
        question = QUESTIONS[language][random.integers(len(QUESTIONS[language]))]
        work = WORKS[language][random.integers(len(WORKS[language]))]
        own = int(random.integers(1 << 31))
        last = third[0] if third else second
        people = tuple(lists.authors[a] for a in (author, first, second, author, last))
        topics = [lists.topics[t] for t in (topic, topic, topic, elsewhere, elsewhere)]
        yield Bundle(
            language,
            Question(question, people[0].full, topics[0]),
            tuple(
                Passage(work, LABELS[language], person.full, about)
                for person, about in zip(people, topics, strict=True)
            ),
            people[0],
            people,
            own,
        )
