"""Ten ways to rewrite a bundle: pure functions, in three families.

identity     what tells people apart is destroyed: the name margin should fall
formatting   the same person, written otherwise: the name margin should stay
layout       the record is laid out otherwise
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
NARROW = "\N{NARROW NO-BREAK SPACE}"


@dataclass(frozen=True, slots=True)
class Ablation:
    """A rewriting, and what the reading expects of it.

    >>> from rankproof.diagnostics import ABLATIONS
    >>> ABLATIONS["strip_diacritics"].sentence
    'Accents are taken off everything, on both sides.'
    """

    name: str
    family: Family
    apply: Callable[[Bundle], Bundle]

    @property
    def sentence(self) -> str:
        """What it does, as its function says."""
        return (self.apply.__doc__ or "").splitlines()[0]


ABLATIONS: dict[str, Ablation] = {}
"""Every rewriting by its name.

>>> from rankproof.diagnostics import ABLATIONS
>>> ABLATIONS["strip_diacritics"].family
'formatting'
"""


def _ablation(family: Family) -> Callable[[Callable[[Bundle], Bundle]], Callable[[Bundle], Bundle]]:
    def register(function: Callable[[Bundle], Bundle]) -> Callable[[Bundle], Bundle]:
        ABLATIONS[function.__name__] = Ablation(function.__name__, family, function)
        return function

    return register


# ------------------------------------------------------------------------------------- identity


@_ablation("identity")
def hard_name_mask(bundle: Bundle) -> Bundle:
    """One mask for every author, in the question and in the passages."""
    return _rename(bundle, lambda _: MASKS[bundle.language])


@_ablation("identity")
def gibberish_name(bundle: Bundle) -> Bundle:
    """Every author becomes a code of their own, the same on both sides."""
    return _rename(bundle, gibberish)


@_ablation("identity")
def edit_distance_near_miss(bundle: Bundle) -> Bundle:
    """The impostors bear the true name but for 1 (C2a), 2 (C2b) or 3 letters (C4)."""
    names = [None, *near_misses(bundle.asked.full, bundle.seed)]
    wrong = (0, 1, 2, 0, 3)  # letters that differ, by candidate
    passages = zip(bundle.passages, wrong, strict=True)
    return replace(
        bundle,
        passages=tuple(
            replace(passage, author=names[letters] or passage.author)
            for passage, letters in passages
        ),
    )


# ----------------------------------------------------------------------------------- formatting


@_ablation("formatting")
def initials_form(bundle: Bundle) -> Bundle:
    """Given names become initials on both sides: A. Dupont."""
    return _rename(bundle, initials)


@_ablation("formatting")
def name_order_inversion(bundle: Bundle) -> Bundle:
    """The passages put the family name first: Dupont, Alice."""
    return bundle.change(passage=lambda given, author: replace(given, author=inverted(author)))


@_ablation("formatting")
def case_punct_perturb(bundle: Bundle) -> Bundle:
    """The passages write names in upper, lower or title case, straight apostrophes, no hyphens."""
    return bundle.change(
        passage=lambda given, author: replace(given, author=perturbed(author.full))
    )


@_ablation("formatting")
def strip_diacritics(bundle: Bundle) -> Bundle:
    """Accents are taken off everything, on both sides."""
    return bundle.change(
        question=lambda given: _every_part(given, without_marks),
        passage=lambda given, _: _every_part(given, without_marks),
    )


@_ablation("formatting")
def unicode_normalization_stress(bundle: Bundle) -> Bundle:
    """The question in NFC, the passages in NFD with a narrow no-break space before : ; !"""
    return bundle.change(
        question=lambda given: _every_part(given, composed),
        passage=lambda given, _: _every_part(given, stressed),
    )


# --------------------------------------------------------------------------------------- layout


@_ablation("layout")
def remove_label(bundle: Bundle) -> Bundle:
    """The passages lose the words “Author:”."""
    return bundle.change(passage=lambda given, _: replace(given, label=""))


@_ablation("layout")
def author_position_shift(bundle: Bundle) -> Bundle:
    """The passages begin with the author."""
    return bundle.change(passage=lambda given, _: replace(given, author_first=True))


# -------------------------------------------------------------------------- what they do to text


def gibberish(author: Author) -> str:
    """A code that depends on the name alone: ID-K3TQ7A."""
    digest = hashlib.sha256(unicodedata.normalize("NFC", author.full).encode()).digest()
    return f"ID-{b32encode(digest).decode()[:6]}"


def initials(author: Author) -> str:
    """Jean-Paul van der Holm → J.-P. van der Holm."""
    short = re.sub(r"[^\s-]+", lambda word: f"{word[0][0]}.", author.given)
    return Author(short, author.family).full


def inverted(author: Author) -> str:
    """Ilse van der Holm → van der Holm, Ilse."""
    return f"{author.family}, {author.given}" if author.given else author.family


def perturbed(name: str) -> str:
    """A case chosen by the name itself; curly apostrophes straight, hyphens spaces."""
    plain = name.translate(str.maketrans("’‘-", "'' "))
    cases = (str.upper, str.lower, str.title)
    return cases[hashlib.sha256(name.encode()).digest()[0] % 3](plain)


@lru_cache(1 << 12)  # the same names and topics come again and again
def without_marks(text: str) -> str:
    """Combining marks are dropped: é → e. Letters that are no base and mark (ł, ø) stay."""
    if text.isascii():
        return text
    kept = (c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return unicodedata.normalize("NFC", "".join(kept))


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def stressed(text: str) -> str:
    return re.sub(r"\s?([:;!])", rf"{NARROW}\1", unicodedata.normalize("NFD", text))


def near_misses(name: str, seed: int) -> tuple[str, str, str]:
    """The name with 1, 2 and 3 letters replaced: Levenshtein distances exactly 1, 2 and 3.

    The new letters do not occur in the name. Each then costs an edit of its own, so n of them are
    n edits away and no fewer; where a name has too few letters the rest is appended.
    """
    name = unicodedata.normalize("NFC", name)
    random = np.random.default_rng(seed)
    present = set(name.casefold()) | set(without_marks(name).casefold())
    strange = [c for c in "aeioubcdfghjklmnpqrstvwxyz" if c not in present] or ["0"]
    places = [i for i, c in enumerate(name) if c.isalpha()]
    order = random.permutation(len(places))
    letters: list[str] = list(name)
    made = []
    for count in range(3):
        new = strange[int(random.integers(len(strange)))]
        if count < len(places):
            at = places[int(order[count])]
            letters[at] = new.upper() if name[at].isupper() else new
        else:
            letters.append(new)
        made.append("".join(letters))
    first, second, third = made
    return first, second, third


def _rename(bundle: Bundle, name: Callable[[Author], str]) -> Bundle:
    """The same name for the same person on both sides."""
    return bundle.change(
        question=lambda given: replace(given, author=name(bundle.asked)),
        passage=lambda given, author: replace(given, author=name(author)),
    )


def _every_part(given: P, change: Callable[[str], str]) -> P:
    texts = {
        field: change(value)
        for field in given.__slots__
        if isinstance(value := getattr(given, field), str)
    }
    return replace(given, **texts)  # type: ignore[arg-type]
