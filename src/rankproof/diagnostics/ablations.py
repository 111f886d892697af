"""Ten ways to rewrite a bundle (question and passages): pure functions in three families.

identity     the name no longer identifies the author: the name margin should fall
formatting   the same name in another spelling: the name margin should stay
layout       the parts of the record are rearranged
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from base64 import b32encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeVar

import numpy as np

from rankproof.diagnostics.bundles import Bundle, Passage, Question
from rankproof.diagnostics.name_lists import Author

Family = Literal["identity", "formatting", "layout"]
P = TypeVar("P", Question, Passage)
FAMILIES: tuple[Family, ...] = ("identity", "formatting", "layout")

MASKS = {"en": "AUTHOR_007", "fr": "AUTEUR_007"}
NARROW_SPACE = "\N{NARROW NO-BREAK SPACE}"
# Impostors of edit_distance_near_miss: letters changed in C1, C2a, C2b, C3, C4; 0 keeps the author.
_CHANGED_LETTERS = (0, 1, 2, 0, 3)


@dataclass(frozen=True, slots=True)
class Ablation:
    """A rewriting of bundles, and the family that says what is expected of it.

    >>> from rankproof.diagnostics import ABLATIONS
    >>> ABLATIONS["remove_label"].family
    'layout'
    """

    name: str
    family: Family
    apply: Callable[[Bundle], Bundle]


ABLATIONS: dict[str, Ablation] = {}
"""All ablations by name.

>>> from rankproof.diagnostics import ABLATIONS
>>> ABLATIONS["strip_diacritics"].family
'formatting'
"""


def _ablation(family: Family) -> Callable[[Callable[[Bundle], Bundle]], Callable[[Bundle], Bundle]]:
    """Register a function as an ablation under its name."""

    def register(function: Callable[[Bundle], Bundle]) -> Callable[[Bundle], Bundle]:
        ABLATIONS[function.__name__] = Ablation(function.__name__, family, function)
        return function

    return register


# ------------------------------------------------------------------------------------- identity


@_ablation("identity")
def hard_name_mask(bundle: Bundle) -> Bundle:
    """Replace every author by the same mask, in the question and the passages."""
    return _rename(bundle, lambda _: MASKS[bundle.language])


@_ablation("identity")
def gibberish_name(bundle: Bundle) -> Bundle:
    """Replace each author by a code of their own, in the question and the passages."""
    return _rename(bundle, gibberish)


@_ablation("identity")
def edit_distance_near_miss(bundle: Bundle) -> Bundle:
    """Give the impostors the author's name with 1 (C2a), 2 (C2b) or 3 (C4) letters changed."""
    misspelled = near_misses(bundle.asked_author.full, bundle.seed)
    passages = tuple(
        replace(passage, author=misspelled[letters - 1]) if letters else passage
        for passage, letters in zip(bundle.passages, _CHANGED_LETTERS, strict=True)
    )
    return replace(bundle, passages=passages)


# ----------------------------------------------------------------------------------- formatting


@_ablation("formatting")
def initials_form(bundle: Bundle) -> Bundle:
    """Shorten given names to initials, in the question and the passages: A. Dupont."""
    return _rename(bundle, initials)


@_ablation("formatting")
def name_order_inversion(bundle: Bundle) -> Bundle:
    """Put the family name first in the passages: Dupont, Alice."""
    return bundle.change(passage=lambda passage, author: replace(passage, author=inverted(author)))


@_ablation("formatting")
def case_punct_perturb(bundle: Bundle) -> Bundle:
    """Write names in the passages in another case, with straight apostrophes and no hyphens."""
    return bundle.change(
        passage=lambda passage, author: replace(passage, author=perturbed(author.full))
    )


@_ablation("formatting")
def strip_diacritics(bundle: Bundle) -> Bundle:
    """Remove accents from all text, in the question and the passages."""
    return bundle.change(
        question=lambda question: _change_texts(question, without_marks),
        passage=lambda passage, _: _change_texts(passage, without_marks),
    )


@_ablation("formatting")
def unicode_normalization_stress(bundle: Bundle) -> Bundle:
    """Write the question in NFC, the passages in NFD with a narrow no-break space before : ; !"""
    return bundle.change(
        question=lambda question: _change_texts(question, composed),
        passage=lambda passage, _: _change_texts(passage, decomposed_with_narrow_spaces),
    )


# --------------------------------------------------------------------------------------- layout


@_ablation("layout")
def remove_label(bundle: Bundle) -> Bundle:
    """Drop the label “Author:” from the passages."""
    return bundle.change(passage=lambda passage, _: replace(passage, label=""))


@_ablation("layout")
def author_position_shift(bundle: Bundle) -> Bundle:
    """Put the author at the beginning of the passages."""
    return bundle.change(passage=lambda passage, _: replace(passage, author_first=True))


# -------------------------------------------------------------------- rewritings of names and text


def gibberish(author: Author) -> str:
    """Return a code that depends only on the name: ID-K3TQ7A."""
    digest = hashlib.sha256(unicodedata.normalize("NFC", author.full).encode()).digest()
    return f"ID-{b32encode(digest).decode()[:6]}"


def initials(author: Author) -> str:
    """Return the name with initials: Jean-Paul van der Holm → J.-P. van der Holm."""
    short = re.sub(r"[^\s-]+", lambda word: f"{word[0][0]}.", author.given)
    return Author(short, author.family).full


def inverted(author: Author) -> str:
    """Return the name with the family name first: Ilse van der Holm → van der Holm, Ilse."""
    return f"{author.family}, {author.given}" if author.given else author.family


def perturbed(name: str) -> str:
    """Return the name in upper, lower or title case, which a hash of the name decides.

    Curly apostrophes become straight, hyphens spaces.
    """
    plain = name.translate(str.maketrans("’‘-", "'' "))
    cases = (str.upper, str.lower, str.title)
    return cases[hashlib.sha256(name.encode()).digest()[0] % 3](plain)


@lru_cache(1 << 12)  # names and topics repeat
def without_marks(text: str) -> str:
    """Return the text without combining marks: é → e; ł and ø, which have none, stay."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFD", text)
    return composed("".join(c for c in decomposed if unicodedata.category(c) != "Mn"))


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def decomposed_with_narrow_spaces(text: str) -> str:
    """Return the text in NFD, with a narrow no-break space before : ; !"""
    return re.sub(r"\s?([:;!])", rf"{NARROW_SPACE}\1", unicodedata.normalize("NFD", text))


def near_misses(name: str, seed: int) -> tuple[str, str, str]:
    """Return the name with 1, 2 and 3 letters replaced: Levenshtein distances exactly 1, 2 and 3.

    The new letters do not occur in the name. Each therefore costs an edit of its own, so n of them
    are n edits away and no fewer. In a name of fewer than 3 letters, new ones are appended.
    """
    name = composed(name)
    random = np.random.default_rng(seed)
    present = set(name.casefold()) | set(without_marks(name).casefold())
    absent = [c for c in "aeioubcdfghjklmnpqrstvwxyz" if c not in present] or ["0"]
    places = [i for i, c in enumerate(name) if c.isalpha()]
    order = random.permutation(len(places))
    letters: list[str] = list(name)
    names = []
    for count in range(3):
        new = absent[int(random.integers(len(absent)))]
        if count < len(places):
            at = places[int(order[count])]
            letters[at] = new.upper() if name[at].isupper() else new
        else:
            letters.append(new)
        names.append("".join(letters))
    first, second, third = names
    return first, second, third


def _rename(bundle: Bundle, rename: Callable[[Author], str]) -> Bundle:
    """Rename authors in the question and the passages, each person alike everywhere."""
    return bundle.change(
        question=lambda question: replace(question, author=rename(bundle.asked_author)),
        passage=lambda passage, author: replace(passage, author=rename(author)),
    )


def _change_texts(item: P, change: Callable[[str], str]) -> P:
    """Return a question or passage with each of its text fields changed."""
    texts = {
        field: change(value)
        for field in item.__slots__
        if isinstance(value := getattr(item, field), str)
    }
    return replace(item, **texts)  # type: ignore[arg-type]
