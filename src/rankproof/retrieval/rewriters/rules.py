"""Cuts what people write around a question, by rules alone, in English and French.

A rule may cut only what cannot be the subject: known phrases where a question follows them, and
sentences made of nothing but words that name no topic (`languages.py`). So a name, a number or an
acronym stays wherever it stands, as does everything between quotation marks, and a question
without any of this comes back as it was. Where everything would go, nothing goes.

With `keep="question"` the rules go further: where a sentence asks something and can be understood
alone, the sentences that do not ask go too, unless they hold a name, a number, an acronym or a
quotation. That loses the subject of "I take blood thinners. Which foods should be avoided?".
"""

from __future__ import annotations

import re
from typing import Literal

from rankproof.foundation.config import Settings
from rankproof.retrieval.components import part
from rankproof.retrieval.languages import LANGUAGES, Language, language_of

_PICTURE = "[\U0001f000-\U0001faff\u2600-\u263f\u2641\u2643-\u27bf\u2b50\u2b55\u2b1b\u2b1c]"
_EMOJI = re.compile(f"{_PICTURE}(?:[\ufe0e\ufe0f\u200d\u20e3]|{_PICTURE})*")
_EMOTICON = re.compile(r"(?:^|(?<=\s))(?:[:;=8]['’]?-?[)(DPpoO/|]|<3+|[xX]D+|\^\^|:'\()(?=\s|$)")
_QUOTED = re.compile(r'"[^"\n]*"|“[^”\n]*”|«[^»\n]*»|`[^`\n]*`')
_HELD, _LAST_HELD = 0xE000, 0xF8FF  # private characters stand for quotations meanwhile
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+")
_LETTERS = re.compile(r"[^\W\d_]+")
_LONGEST_CLOSING = 120  # characters; a search through the whole of a long text would be slow
Keep = Literal["topics", "question"]
_KNOWN = {word for language in LANGUAGES.values() for word in language.empty}


class RulesRewriterSettings(Settings):
    """Greetings, fillers and asides are cut by rules; works offline.

    >>> from rankproof.retrieval.rewriters.rules import RulesRewriterSettings
    >>> RulesRewriterSettings(language="fr").keep
    'topics'
    """

    type: Literal["rules"] = "rules"
    language: Literal["en", "fr", "auto"] = "auto"
    keep: Literal["topics", "question"] = "topics"  # question: what does not ask goes too


class RulesRewriter:
    """Rewrites until nothing more is cut, so that rewriting twice is rewriting once."""

    def __init__(self, language: Literal["en", "fr", "auto"] = "auto", keep: Keep = "topics"):
        self.name = f"rules ({language})" if keep == "topics" else f"question alone ({language})"
        self._language = language
        self._keep = keep

    def rewrite(self, query: str) -> str:
        text = query
        # Every pass shortens the text, or only lowers capitals: it ends.
        while (shorter := self._pass(text)) != text:
            text = shorter
        return text

    def _pass(self, text: str) -> str:
        """One round of cuts; the text, tidied at most, where they would leave nothing."""
        if any(_HELD <= ord(c) <= _LAST_HELD for c in text):
            return text  # it holds the characters that stand for quotations
        language = LANGUAGES[language_of(text) if self._language == "auto" else self._language]
        held: list[str] = []

        def hold(found: re.Match[str]) -> str:
            held.append(found[0])
            return chr(_HELD + len(held) - 1)

        masked = _QUOTED.sub(hold, text, count=_LAST_HELD - _HELD)
        tidied = _calm(_tidy(_EMOTICON.sub(" ", _EMOJI.sub(" ", masked))))
        cut = _cut(tidied, language, self._keep)
        kept = next((found for found in (cut, tidied) if _WORD.search(_shown(found, held))), None)
        return text.strip() if kept is None else _shown(kept, held)


def _shown(text: str, held: list[str]) -> str:
    return re.sub(
        f"[{chr(_HELD)}-{chr(_LAST_HELD)}]", lambda found: held[ord(found[0]) - _HELD], text
    )


def _tidy(text: str) -> str:
    """Runs of blanks and of punctuation become one. No-break spaces stay: French sets them."""
    text = re.sub(r"[ \t\r\n\f\v]+", " ", text).strip(" ")
    text = re.sub(r"[!?]{2,}", lambda found: "?" if "?" in found[0] else "!", text)
    text = re.sub(r"(?<=\w),{2,}", ",", text)
    return re.sub(r"\.{4,}", "...", text)


def _calm(text: str) -> str:
    """A shouted text in small letters, but for what may be an acronym."""
    letters = "".join(_LETTERS.findall(text))
    shouted = [word for word in _LETTERS.findall(text) if word.isupper() and len(word) > 1]
    if len(shouted) < 4 or sum(c.isupper() for c in letters) < 0.8 * len(letters):
        return text

    def lower(found: re.Match[str]) -> str:
        word = found[0].lower()
        if word.replace("’", "'") in _KNOWN:
            return word
        return re.sub(r"[^\W_]+", lower_part, found[0])

    def lower_part(found: re.Match[str]) -> str:
        part = found[0].lower()
        # Short words, words with digits and words that cannot be spoken may be acronyms.
        spoken = re.search(r"[aeiouyàâéèêëîïôùûœ]", part)
        is_word = len(part) > 4 and spoken and not re.search(r"\d", part)
        elided = found.string[found.end() : found.end() + 1] in ("'", "’")
        return part if is_word or elided or part in _KNOWN else found[0]

    calm = _WORD.sub(lower, text)
    return calm if calm == text else _capital(calm)


def _cut(text: str, language: Language, keep: Keep) -> str:
    cut = language.hesitation.sub("", text)
    cut = language.between.sub(" ", cut)
    sentences = [_without_aside(sentence, language) for sentence in _sentences(cut, language)]
    sentences = list(filter(None, (_ends(sentence, language) for sentence in sentences)))
    kept = _topical(sentences, language)
    if keep == "question":
        kept = _asking(kept, language)
    cut = " ".join(kept).strip(" ,;")
    if cut == text or not cut:
        return cut
    return _capital(cut) if text[:1].isupper() else cut


def _without_aside(sentence: str, language: Language) -> str:
    """A question without the aside that a link such as "so" joins to it."""
    for link in language.link.finditer(sentence):
        rest = sentence[link.end() :]
        if not _is_empty(sentence[: link.start()], language):
            break
        if language.starter.match(rest) and _stands_alone(rest, language):
            return rest
    return sentence


def _sentences(text: str, language: Language) -> list[str]:
    """Split after . ! ? … where a sentence can begin: a capital, a digit, or a question word."""
    found, begin = [], 0
    for gap in _SENTENCE.finditer(text):
        after = text[gap.end() : gap.end() + 1]
        if after.isupper() or after.isdigit() or language.starter.match(text, gap.end()):
            found.append(text[begin : gap.start()])
            begin = gap.end()
    return [*found, text[begin:]]


def _ends(sentence: str, language: Language) -> str:
    """A sentence without what leads in to it and what closes it."""
    if language.courtesy.fullmatch(sentence):
        return ""
    while (rest := _after_lead(sentence, language)) is not None:
        sentence = rest
    while (rest := _before_closing(sentence, language)) is not None:
        sentence = rest
    return sentence


def _after_lead(sentence: str, language: Language) -> str | None:
    """What follows a greeting, a filler or a lead-in; None where the sentence begins with none."""
    for pattern in (language.greeting, language.filler, language.opener, language.lead_in):
        found = pattern.match(sentence)
        if found and (
            pattern is language.lead_in or _can_begin(sentence[found.end() :], language, found[0])
        ):
            return sentence[found.end() :]
    return None


def _before_closing(sentence: str, language: Language) -> str | None:
    """What precedes "thanks in advance", with its question mark; None where nothing closes."""
    closing = language.closing.search(sentence, max(0, len(sentence) - _LONGEST_CLOSING))
    if closing is None:
        return None
    before = sentence[: closing.start()]
    mentioned = language.mention.search(before, max(0, len(before) - _LONGEST_CLOSING))
    return None if mentioned else before + re.sub(r"[,.!…]", "", closing["end"]).rstrip()


def _can_begin(rest: str, language: Language, lead: str) -> bool:
    """Whether what follows a greeting or filler is a question, and not the rest of a name.

    "Hello, Dolly!", "Hello!" and "So Solid Crew" are names. After a comma an acronym, a number or
    a small letter can begin a question; without it only a question word.
    """
    if language.starter.match(rest):
        return True
    first = _WORD.match(rest)
    if first is None or lead.rstrip()[-1] not in ",;:.…–—-":
        return False
    word = first[0]
    plain = word.replace("’", "'").lower() in language.empty
    return word[0].isdigit() or word.islower() or plain or (word.isupper() and len(word) > 1)


def _topical(sentences: list[str], language: Language) -> list[str]:
    """Without the sentences that name no topic, if the others stand alone."""
    rest = [s for s in sentences if s.rstrip().endswith("?") or not _is_empty(s, language)]
    return rest if _stands_alone(" ".join(rest), language) else sentences


def _asking(sentences: list[str], language: Language) -> list[str]:
    """The sentences that ask, if they can be understood alone, and those that name somebody."""
    asking = [s for s in sentences if s.rstrip().endswith("?")]
    alone = asking and _stands_alone(" ".join(asking), language)
    if not alone or any(language.asker.search(sentence) for sentence in asking):
        return sentences
    return [s for s in sentences if s in asking or _names(s, language)]


def _names(sentence: str, language: Language) -> bool:
    """Whether it holds a number, a quotation, a capital inside, or a word in capitals."""
    if re.search(rf"\d|[{chr(_HELD)}-{chr(_LAST_HELD)}]", sentence):
        return True
    words = _WORD.findall(sentence)
    return any(w.isupper() and len(w) > 1 for w in words) or any(
        w[0].isupper() and w.replace("’", "'").lower() not in language.empty for w in words[1:]
    )


def _stands_alone(text: str, language: Language) -> bool:
    """Whether a text names a topic, and does not point back to what was said before it."""
    return not _is_empty(text, language) and language.reference.search(text) is None


def _is_empty(segment: str, language: Language) -> bool:
    """Whether every word is one that names no topic; a capital inside a sentence names one, and so
    does a word in capitals."""
    words = list(_WORD.finditer(segment))
    if re.search(f"[{chr(_HELD)}-{chr(_LAST_HELD)}]", segment):
        return False
    for word in words:
        text = word[0].replace("’", "'")
        inside = word.start() > words[0].start()
        named = inside and text[0].isupper() and text.split("'")[0] != "I"
        acronym = text.isupper() and len(text) > 1
        if named or acronym or text.lower() not in language.empty:
            return False
    return True


def _capital(text: str) -> str:
    """The first word with a capital, if it is an ordinary word: not pH, not iPhone."""
    first = _WORD.match(text)
    return text[:1].upper() + text[1:] if first and first[0].islower() else text


@part("rewriter", "rules")
def make_rules(settings: RulesRewriterSettings) -> RulesRewriter:
    return RulesRewriter(settings.language, settings.keep)
