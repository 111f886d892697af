"""The corpus of the demo keeps what its README says of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import rankproof as rp
from rankproof.data.beir import Corpus, read_corpus

FOLDER = Path(str(files("rankproof") / "resources" / "demo"))
NO_ANSWER = {"q21", "q39"}  # questions without a grade 5

Rows = dict[str, dict[str, Any]]
Grades = dict[str, dict[str, int]]


def rows(name: str) -> Rows:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return {row["_id"]: row for row in map(json.loads, lines)}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return read_corpus(FOLDER)


@pytest.fixture(scope="module")
def passages() -> Rows:
    return rows("corpus.jsonl")


@pytest.fixture(scope="module")
def questions() -> Rows:
    return rows("queries.jsonl")


@pytest.fixture(scope="module")
def grades() -> Grades:
    """The judgements, read without rankproof."""
    header, *lines = (FOLDER / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()
    assert header == "query-id\tcorpus-id\tscore"
    found: Grades = {}
    for line in lines:
        query, passage, grade = line.split("\t")
        assert passage not in found.setdefault(query, {}), line
        found[query][passage] = int(grade)
    return found


def shingles(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return set(zip(words, words[1:], words[2:], strict=False))


def test_rankproof_reads_every_passage_question_and_grade(
    corpus: Corpus, passages: Rows, questions: Rows, grades: Grades
) -> None:
    qrels = rp.read_qrels(corpus.qrels)
    assert corpus.document_ids == list(passages)
    assert corpus.query_ids == list(questions)
    assert corpus.empty == 0
    assert corpus.sources == [row["metadata"]["source"] for row in passages.values()]
    assert sorted(qrels.queries.to_list()) == sorted(questions) == sorted(grades)
    assert len(qrels.grade) == sum(map(len, grades.values()))


def test_the_folder_has_the_size_its_readme_states(
    passages: Rows, questions: Rows, grades: Grades
) -> None:
    asked = Counter(row["metadata"]["language"] for row in questions.values())
    written = Counter(row["metadata"]["language"] for row in passages.values())
    first = " ".join((FOLDER / "README.md").read_text(encoding="utf-8").split())
    assert (
        f"{len(passages)} passages ({written['en']} English, {written['fr']} French), "
        f"{len(questions)} questions ({asked['en']} and {asked['fr']}) and "
        f"{sum(map(len, grades.values())):,} grades"
    ) in first
    assert len(passages) >= 160
    assert len(questions) >= 28
    assert min(asked.values()) >= 12
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < 250_000


def test_every_passage_is_a_paragraph_that_says_where_it_comes_from(passages: Rows) -> None:
    for name, row in passages.items():
        assert 40 <= len(row["text"].split()) <= 110, name
        assert row["title"].strip(), name
        metadata = row["metadata"]
        assert set(metadata) - {"copy_of"} == {"source", "author", "year", "language"}, name
        assert name.startswith(metadata["language"] + "-"), name
        assert 2000 <= metadata["year"] <= 2025, name


def test_most_works_have_several_passages_by_one_author_in_one_language(passages: Rows) -> None:
    works: dict[str, list[dict[str, Any]]] = {}
    for row in passages.values():
        if "copy_of" not in row["metadata"]:
            works.setdefault(row["metadata"]["source"], []).append(row["metadata"])
    assert max(map(len, works.values())) <= 4
    assert sum(len(work) >= 2 for work in works.values()) >= 0.9 * len(works)
    assert all(work == [work[0]] * len(work) for work in works.values())


def test_copies_are_near_and_nothing_else_is(passages: Rows) -> None:
    declared = {
        (row["metadata"]["copy_of"], name)
        for name, row in passages.items()
        if "copy_of" in row["metadata"]
    }
    sets = {n: shingles(f"{row['title']} {row['text']}") for n, row in passages.items()}
    jaccard = {
        (a, b): len(sets[a] & sets[b]) / len(sets[a] | sets[b]) for a, b in combinations(sets, 2)
    }
    assert len(declared) == 12
    assert {pair for pair, likeness in jaccard.items() if likeness >= 0.6} == declared
    assert max(likeness for pair, likeness in jaccard.items() if pair not in declared) < 0.1
    for original, copy in declared:
        assert passages[original]["text"] != passages[copy]["text"]
        assert passages[original]["metadata"]["source"] != passages[copy]["metadata"]["source"]


def test_a_copy_has_the_grade_of_its_original(passages: Rows, grades: Grades) -> None:
    for name, row in passages.items():
        original = row["metadata"].get("copy_of")
        for query, pool in grades.items():
            if original in pool and name in pool:
                assert pool[name] == pool[original], (query, name)


def test_every_question_has_a_graded_pool_to_tell_retrievers_apart(
    passages: Rows, grades: Grades
) -> None:
    for query, pool in grades.items():
        count = Counter(pool.values())
        assert pool.keys() <= passages.keys(), query
        assert set(count) <= {1, 2, 3, 4, 5}, query
        assert 15 <= len(pool) <= 35, query
        assert (count[5] == 0) == (query in NO_ANSWER), query
        assert count[5] <= 4, query
        assert 1 <= count[4] <= 6, query
        assert count[2] >= 1, query
        assert count[1] >= 5, query


def test_evidence_is_rare_for_some_questions_and_abundant_for_others(grades: Grades) -> None:
    good = [sum(grade >= 4 for grade in pool.values()) for pool in grades.values()]
    assert sum(n <= 2 for n in good) >= 8
    assert sum(n >= 6 for n in good) >= 4
    assert max(good) >= 8


def test_a_noisy_question_mirrors_a_clean_one_and_has_its_grades(
    questions: Rows, grades: Grades
) -> None:
    noisy = {n: r for n, r in questions.items() if r["metadata"]["kind"] == "noisy"}
    assert Counter(row["metadata"]["language"] for row in noisy.values()) == {"en": 5, "fr": 3}
    for name, row in noisy.items():
        clean = questions[row["metadata"]["mirrors"]]
        assert clean["metadata"]["kind"] != "noisy"
        assert clean["metadata"]["language"] == row["metadata"]["language"]
        assert len(row["text"].split()) > 3 * len(clean["text"].split())
        assert grades[name] == grades[clean["_id"]]


def test_an_author_question_names_an_author_whose_text_answers_it(
    passages: Rows, questions: Rows, grades: Grades
) -> None:
    authors = {row["metadata"]["author"] for row in passages.values()}
    about = {n: r["text"] for n, r in questions.items() if r["metadata"]["kind"] == "author"}
    assert len(about) >= 6
    for query, text in about.items():
        surnames = {a.split(" ", 1)[1] for a in authors if a.split(" ", 1)[1] in text}
        assert len(surnames) == 1, query
        best = [name for name, grade in grades[query].items() if grade == 5]
        assert all(passages[n]["metadata"]["author"].endswith(*surnames) for n in best), query
        assert any(s.lower() in passages[n]["text"].lower() for n in best for s in surnames), query


def test_some_questions_have_their_best_evidence_in_the_other_language(
    passages: Rows, questions: Rows, grades: Grades
) -> None:
    def languages(query: str) -> set[str]:
        return {passages[n]["metadata"]["language"] for n, g in grades[query].items() if g == 5}

    french = [n for n, row in questions.items() if row["metadata"]["language"] == "fr"]
    assert sum("en" in languages(query) for query in french) >= 3
    assert any(languages(query) == {"en"} for query in french)


def test_french_is_set_with_its_own_spaces_and_apostrophes(passages: Rows, questions: Rows) -> None:
    for name, row in (passages | questions).items():
        if row["metadata"]["language"] == "fr":
            text = f"{row.get('title', '')}\n{row['text']}"
            assert not re.search(r"[^\u00a0][:;!?»%]|«[^\u00a0]|'", text), name
