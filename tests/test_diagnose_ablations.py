"""Bundles and their ablations: what each may change, and what it must leave alone."""

from __future__ import annotations

import unicodedata
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankproof.diagnostics import ABLATIONS, Author, read_lists, shipped_lists
from rankproof.diagnostics.ablations import MASKS, NARROW_SPACE, near_misses, without_marks
from rankproof.diagnostics.bundles import LABELS, Bundle, draw_pairs, draw_run
from rankproof.diagnostics.name_lists import LANGUAGES, Language, normalised, split_name
from rankproof.foundation.errors import InputError


@cache
def bundles(language: Language) -> list[Bundle]:
    lists = shipped_lists(language)
    return list(draw_run(lists, language, draw_pairs(lists, 60, 0), 0, 0))


every = pytest.mark.parametrize("language", LANGUAGES)


def texts_of(bundle: Bundle) -> list[str]:
    """The question, then the passages."""
    return [bundle.question.text, *(passage.text for passage in bundle.passages)]


def levenshtein(a: str, b: str) -> int:
    """By its recursive definition."""

    @cache
    def distance(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(
            distance(i - 1, j) + 1,
            distance(i, j - 1) + 1,
            distance(i - 1, j - 1) + (a[i - 1] != b[j - 1]),
        )

    return distance(len(a), len(b))


@every
def test_the_lists_are_long_and_repeat_no_name(language: Language) -> None:
    lists = shipped_lists(language)
    assert len(lists.authors) >= 200
    assert len(lists.topics) >= 120
    assert len({normalised(a.full) for a in lists.authors}) == len(lists.authors)
    assert len({normalised(t) for t in lists.topics}) == len(lists.topics)
    names = " ".join(a.full for a in lists.authors)
    assert names == unicodedata.normalize("NFC", names)
    assert "-" in names
    assert sum(not a.full.isascii() for a in lists.authors) > 50
    assert sum(" " in a.family for a in lists.authors) > 20  # particles


@every
def test_a_bundle_has_the_author_two_impostors_and_another_topic(language: Language) -> None:
    for b in bundles(language):
        c1, c2a, c2b, c3, c4 = b.passages
        assert (c1.author, c1.topic) == (b.question.author, b.question.topic)
        assert len({c1.author, c2a.author, c2b.author}) == 3
        assert c2a.topic == c2b.topic == c1.topic
        assert c3.author == c1.author
        assert c3.topic != c1.topic
        assert c4.author != c1.author
        assert c4.topic == c3.topic
        assert all(p.label == LABELS[language] for p in b.passages)
        assert all(p.author in p.text and p.topic in p.text for p in b.passages)


@every
def test_runs_share_their_queries_and_a_seed_repeats_the_impostors(
    language: Language,
) -> None:
    lists = shipped_lists(language)
    pairs = draw_pairs(lists, 60, 0)
    first, again, other = (list(draw_run(lists, language, pairs, 0, run)) for run in (0, 0, 1))
    assert first == again
    assert [(b.asked_author, b.question.topic) for b in first] == [
        (b.asked_author, b.question.topic) for b in other
    ]
    assert sum(a.authors[1] == b.authors[1] for a, b in zip(first, other, strict=True)) < 10
    assert draw_pairs(lists, 60, 1) != pairs
    assert len(set(pairs)) == 60


@every
def test_every_ablation_keeps_the_topics(language: Language) -> None:
    for b in bundles(language):
        for name, ablation in ABLATIONS.items():
            after = ablation.apply(b)
            for before, passage in zip(b.passages, after.passages, strict=True):
                if name in ("strip_diacritics", "unicode_normalization_stress"):
                    assert normalised(passage.topic) == normalised(before.topic)
                else:
                    assert (passage.topic, passage.work) == (before.topic, before.work)
            assert after.asked_author == b.asked_author


@every
def test_the_mask_is_the_same_for_every_author(language: Language) -> None:
    for b in bundles(language):
        after = ABLATIONS["hard_name_mask"].apply(b)
        assert {after.question.author, *(p.author for p in after.passages)} == {MASKS[language]}
        assert after.passages[0].text == after.passages[1].text == after.passages[2].text


@every
def test_gibberish_has_one_code_for_each_author(language: Language) -> None:
    codes: dict[Author, str] = {}
    for b in bundles(language):
        after = ABLATIONS["gibberish_name"].apply(b)
        for author, passage in zip(b.authors, after.passages, strict=True):
            assert codes.setdefault(author, passage.author) == passage.author
        assert after.question.author == codes[b.asked_author]
    assert len(set(codes.values())) == len(codes)
    assert all(code.startswith("ID-") and len(code) == 9 for code in codes.values())


@every
def test_impostors_are_exactly_one_two_and_three_letters_from_the_true_name(
    language: Language,
) -> None:
    for b in bundles(language):
        after = ABLATIONS["edit_distance_near_miss"].apply(b)
        distances = [levenshtein(b.asked_author.full, p.author) for p in after.passages]
        assert distances == [0, 1, 2, 0, 3]
        assert after.question == b.question


@given(st.text(min_size=1, max_size=12), st.integers(0, 1000))
def test_near_misses_of_any_string_are_at_their_distances(name: str, seed: int) -> None:
    composed = unicodedata.normalize("NFC", name)
    assert [levenshtein(composed, miss) for miss in near_misses(name, seed)] == [1, 2, 3]


@every
def test_initials_shorten_only_given_names(language: Language) -> None:
    for b in bundles(language):
        after = ABLATIONS["initials_form"].apply(b)
        for author, passage in zip(b.authors, after.passages, strict=True):
            assert passage.author.endswith(author.family)
            assert len(passage.author) < len(author.full)
        assert after.question.author == after.passages[0].author
    one = replace(bundles("en")[0], asked_author=Author("Jean-Paul Émile", "van der Holm"))
    assert ABLATIONS["initials_form"].apply(one).question.author == "J.-P. É. van der Holm"


@every
def test_name_order_is_inverted_in_the_passages_only(language: Language) -> None:
    for b in bundles(language):
        after = ABLATIONS["name_order_inversion"].apply(b)
        assert after.question == b.question
        for author, passage in zip(b.authors, after.passages, strict=True):
            assert passage.author == f"{author.family}, {author.given}"


@every
def test_case_and_punctuation_change_only_in_names_of_passages(language: Language) -> None:
    changed = 0
    for b in bundles(language):
        after = ABLATIONS["case_punct_perturb"].apply(b)
        assert after.question == b.question
        for before, passage in zip(b.passages, after.passages, strict=True):
            # ı and i have one capital
            assert normalised(passage.author).upper() == normalised(before.author).upper()
            assert not {"’", "‘", "-"} & set(passage.author)
            changed += passage.author != before.author
    assert changed > 100


@every
def test_without_diacritics_plain_text_stays_and_marks_go(language: Language) -> None:
    for b in bundles(language):
        after = ABLATIONS["strip_diacritics"].apply(b)
        for before, text in zip(texts_of(b), texts_of(after), strict=True):
            if before.isascii():
                assert text == before
            decomposed = unicodedata.normalize("NFD", text)
            assert not any(unicodedata.category(c) == "Mn" for c in decomposed)
            assert normalised(text) == normalised(before)


@given(st.text(st.characters(max_codepoint=127)))
def test_ascii_text_stays_without_marks_as_it_is(text: str) -> None:
    assert without_marks(text) == text


@every
def test_unicode_stress_is_undone_by_normalisation(language: Language) -> None:
    differ = 0
    for b in bundles(language):
        after = ABLATIONS["unicode_normalization_stress"].apply(b)
        assert after.question.text == unicodedata.normalize("NFC", b.question.text)
        for before, passage in zip(b.passages, after.passages, strict=True):
            text = passage.text
            assert text == unicodedata.normalize("NFD", text)
            differ += text.encode() != before.text.encode()
            for at, c in enumerate(text):
                assert c not in ":;!" or text[at - 1] == NARROW_SPACE
            plain = unicodedata.normalize("NFC", text).replace(NARROW_SPACE, "")
            assert plain == before.text.replace(" :", ":")
    assert differ == 5 * len(bundles(language))


@every
def test_layout_only_moves_or_drops_parts(language: Language) -> None:
    for b in bundles(language):
        bare = ABLATIONS["remove_label"].apply(b)
        first = ABLATIONS["author_position_shift"].apply(b)
        assert bare.question == first.question == b.question
        for before, short, moved in zip(b.passages, bare.passages, first.passages, strict=True):
            assert short.text == before.text.replace(before.label, "")
            assert sorted(moved.text) == sorted(before.text)
            assert moved.text.startswith(f"{before.label}{before.author}")


@pytest.mark.parametrize(
    ("text", "given", "family"),
    [
        ("Ilse van der Holm", "Ilse", "van der Holm"),
        ("Holm, Ilse", "Ilse", "Holm"),
        ("Fatima bint Mansourah", "Fatima", "bint Mansourah"),
        ("Maria dos Santos e Silva", "Maria dos Santos", "e Silva"),
        ("Plato", "", "Plato"),
        ("van Dam", "van", "Dam"),
    ],
)
def test_a_name_is_split_before_its_particles(text: str, given: str, family: str) -> None:
    assert split_name(text) == Author(given, family)


def write_lists(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "authors.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_lists_are_read_with_bom_crlf_and_uneven_columns(tmp_path: Path) -> None:
    content = '\ufefftopic,note,Author\r\nsoil,x,Ada Holm\r\n\r\nice,,"Lind, Bo"\r\n,,Cy Dee\r\n'
    lists = read_lists(write_lists(tmp_path, content))
    assert [a.full for a in lists.authors] == ["Ada Holm", "Bo Lind", "Cy Dee"]
    assert lists.topics == ("soil", "ice")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("name,topic\na,b\n", "there is no column 'author'"),
        ("author\nA B\n", "there is no column 'topic'"),
        ("author,topic,topic\na,b,c\n", "column 'topic' appears twice"),
        ("author,topic\nÉda Holm,x\nEDA-HOLM,y\n", ":3: author 'EDA-HOLM' stands as 'Éda Holm'"),
        ("author,topic\nA,Soil\nB,soil \n", ":3: topic 'soil' stands as 'Soil'"),
        ("author,topic\nA,soil\nB,soil\n", ":3: topic 'soil' stands already on line 2"),
        ('author,topic\n"A,x\n', "not CSV"),
    ],
)
def test_lists_that_cannot_be_used_are_refused_in_one_line(
    tmp_path: Path, content: str, message: str
) -> None:
    with pytest.raises(InputError) as refused:
        read_lists(write_lists(tmp_path, content))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_lists_in_another_encoding_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_lists(write_lists(tmp_path, "author,topic\nÉda,x\n".encode("latin-1")))
