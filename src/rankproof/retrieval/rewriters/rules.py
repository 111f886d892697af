"""Rewriter that cuts what people write around a question, by rules, in English and French.

A rule may cut only what cannot be the subject: known phrases where a question follows them, and
sentences of words that name no topic (`languages.py`). A name, a number or an acronym therefore
stays wherever it is, as does everything between quotation marks, and a question without such
phrases is returned unchanged. Where everything would be cut, nothing is.

With `keep="question"` the rules go further: where a sentence asks something and can be understood
alone, the sentences that do not ask are cut too, unless they contain a name, a number, an acronym
or a quotation. That loses the subject of "I take blood thinners. Which foods should be avoided?".
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
_FIRST_MASK, _LAST_MASK = 0xE000, 0xF8FF  # private characters that stand for quotations
_MASK = re.compile(f"[{chr(_FIRST_MASK)}-{chr(_LAST_MASK)}]")
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+")
_LETTERS = re.compile(r"[^\W\d_]+")
_LONGEST_CLOSING = 120  # characters; searching the whole of a long text would be slow
Keep = Literal["topics", "question"]
_KNOWN_WORDS = {word for language in LANGUAGES.values() for word in language.empty}


class RulesRewriterSettings(Settings):
    """Greetings, fillers and asides are cut by rules; works offline.

    >>> from rankproof.retrieval.rewriters.rules import RulesRewriterSettings
    >>> RulesRewriterSettings(language="fr").keep
    'topics'
    """

    type: Literal["rules"] = "rules"
    language: Literal["en", "fr", "auto"] = "auto"
    keep: Literal["topics", "question"] = (
        "topics"  # question: sentences that do not ask are cut too
    )


class RulesRewriter:
    """Cuts until nothing more is cut, so that rewriting twice changes nothing more."""

    def __init__(self, language: Literal["en", "fr", "auto"] = "auto", keep: Keep = "topics"):
        self.name = f"rules ({language})" if keep == "topics" else f"question alone ({language})"
        self._language = language
        self._keep = keep

    def rewrite(self, query: str) -> str:
        text = query
        # It ends, since each pass shortens the text or only lowers capitals.
        while (shorter := self._pass(text)) != text:
            text = shorter
        return text

    def _pass(self, text: str) -> str:
        """Return the text after one round of cuts, only tidied where they would leave nothing."""
        if _MASK.search(text):
            return text  # it contains the characters that stand for quotations
        language = LANGUAGES[language_of(text) if self._language == "auto" else self._language]
        quotations: list[str] = []

        def mask(quotation: re.Match[str]) -> str:
            quotations.append(quotation[0])
            return chr(_FIRST_MASK + len(quotations) - 1)

        masked = _QUOTED.sub(mask, text, count=_LAST_MASK - _FIRST_MASK)
        tidied = _lower_shouting(_tidy(_EMOTICON.sub(" ", _EMOJI.sub(" ", masked))))
        for candidate in (_cut(tidied, language, self._keep), tidied):
            unmasked = _unmask(candidate, quotations)
            if _WORD.search(unmasked):
                return unmasked
        return text.strip()


def _unmask(text: str, quotations: list[str]) -> str:
    return _MASK.sub(lambda mask: quotations[ord(mask[0]) - _FIRST_MASK], text)


def _tidy(text: str) -> str:
    """Shorten runs of blanks and of punctuation; no-break spaces stay, as French needs them."""
    text = re.sub(r"[ \t\r\n\f\v]+", " ", text).strip(" ")
    text = re.sub(r"[!?]{2,}", lambda run: "?" if "?" in run[0] else "!", text)
    text = re.sub(r"(?<=\w),{2,}", ",", text)
    return re.sub(r"\.{4,}", "...", text)


def _lower_shouting(text: str) -> str:
    """Return a text in capitals in small letters, except what may be an acronym."""
    letters = "".join(_LETTERS.findall(text))
    shouted = [word for word in _LETTERS.findall(text) if word.isupper() and len(word) > 1]
    if len(shouted) < 4 or sum(c.isupper() for c in letters) < 0.8 * len(letters):
        return text

    def lower(match: re.Match[str]) -> str:
        word = match[0].lower()
        if word.replace("’", "'") in _KNOWN_WORDS:
            return word
        return re.sub(r"[^\W_]+", lower_part, match[0])

    def lower_part(match: re.Match[str]) -> str:
        part = match[0].lower()
        # Short words, words with digits and words without vowels may be acronyms.
        has_vowel = re.search(r"[aeiouyàâéèêëîïôùûœ]", part)
        is_word = len(part) > 4 and has_vowel and not re.search(r"\d", part)
        is_elided = match.string[match.end() : match.end() + 1] in ("'", "’")
        return part if is_word or is_elided or part in _KNOWN_WORDS else match[0]

    lowered = _WORD.sub(lower, text)
    return lowered if lowered == text else _capitalize(lowered)


def _cut(text: str, language: Language, keep: Keep) -> str:
    """Cut hesitations, asides, phrases around sentences and sentences without a topic."""
    cut = language.hesitation.sub("", text)
    cut = language.between.sub(" ", cut)
    sentences = [_cut_aside(sentence, language) for sentence in _split_sentences(cut, language)]
    sentences = list(filter(None, (_cut_ends(sentence, language) for sentence in sentences)))
    topical = _keep_topical(sentences, language)
    if keep == "question":
        topical = _keep_asking(topical, language)
    cut = " ".join(topical).strip(" ,;")
    if cut == text or not cut:
        return cut
    return _capitalize(cut) if text[:1].isupper() else cut


def _cut_aside(sentence: str, language: Language) -> str:
    """Return a question without the aside that a link such as "so" joins to it."""
    for link in language.link.finditer(sentence):
        question = sentence[link.end() :]
        if not _is_empty(sentence[: link.start()], language):
            break
        if language.starter.match(question) and _stands_alone(question, language):
            return question
    return sentence


def _split_sentences(text: str, language: Language) -> list[str]:
    """Split after . ! ? … where a sentence can begin: a capital, a digit, or a question word."""
    sentences, begin = [], 0
    for gap in _SENTENCE.finditer(text):
        after = text[gap.end() : gap.end() + 1]
        if after.isupper() or after.isdigit() or language.starter.match(text, gap.end()):
            sentences.append(text[begin : gap.start()])
            begin = gap.end()
    return [*sentences, text[begin:]]


def _cut_ends(sentence: str, language: Language) -> str:
    """Return a sentence without phrases that lead in to it or close it."""
    if language.courtesy.fullmatch(sentence):
        return ""
    while (shorter := _after_lead(sentence, language)) is not None:
        sentence = shorter
    while (shorter := _before_closing(sentence, language)) is not None:
        sentence = shorter
    return sentence


def _after_lead(sentence: str, language: Language) -> str | None:
    """Return what follows a greeting, a filler or a lead-in; None if the sentence has none."""
    for pattern in (language.greeting, language.filler, language.opener, language.lead_in):
        lead = pattern.match(sentence)
        if lead is None:
            continue
        remaining = sentence[lead.end() :]
        if pattern is language.lead_in or _can_begin(remaining, language, lead[0]):
            return remaining
    return None


def _before_closing(sentence: str, language: Language) -> str | None:
    """Return what precedes "thanks in advance", with its question mark; None without a closing."""
    closing = language.closing.search(sentence, max(0, len(sentence) - _LONGEST_CLOSING))
    if closing is None:
        return None
    before = sentence[: closing.start()]
    mentioned = language.mention.search(before, max(0, len(before) - _LONGEST_CLOSING))
    return None if mentioned else before + re.sub(r"[,.!…]", "", closing["end"]).rstrip()


def _can_begin(text: str, language: Language, lead: str) -> bool:
    """True if the text after a greeting or filler is a question, not the rest of a name.

    "Hello, Dolly!", "Hello!" and "So Solid Crew" are names. After a comma an acronym, a number or
    a small letter can begin a question; without it only a question word.
    """
    if language.starter.match(text):
        return True
    first = _WORD.match(text)
    if first is None or lead.rstrip()[-1] not in ",;:.…–—-":
        return False
    word = first[0]
    is_ordinary = word.replace("’", "'").lower() in language.empty
    is_acronym = word.isupper() and len(word) > 1
    return word[0].isdigit() or word.islower() or is_ordinary or is_acronym


def _keep_topical(sentences: list[str], language: Language) -> list[str]:
    """Drop the sentences that name no topic, if the others can be understood alone."""
    topical = [s for s in sentences if s.rstrip().endswith("?") or not _is_empty(s, language)]
    return topical if _stands_alone(" ".join(topical), language) else sentences


def _keep_asking(sentences: list[str], language: Language) -> list[str]:
    """Drop sentences that neither ask nor name anything, if the questions stand alone."""
    questions = [s for s in sentences if s.rstrip().endswith("?")]
    stand_alone = questions and _stands_alone(" ".join(questions), language)
    if not stand_alone or any(language.asker.search(question) for question in questions):
        return sentences
    return [s for s in sentences if s in questions or _has_name(s, language)]


def _has_name(sentence: str, language: Language) -> bool:
    """True if it has a number, a quotation, a word in capitals, or a capital inside."""
    if re.search(r"\d", sentence) or _MASK.search(sentence):
        return True
    words = _WORD.findall(sentence)
    return any(w.isupper() and len(w) > 1 for w in words) or any(
        w[0].isupper() and w.replace("’", "'").lower() not in language.empty for w in words[1:]
    )


def _stands_alone(text: str, language: Language) -> bool:
    """True if a text names a topic and does not point back to an earlier sentence."""
    return not _is_empty(text, language) and language.reference.search(text) is None


def _is_empty(segment: str, language: Language) -> bool:
    """True if no word names a topic, as words in capitals or with a capital inside always do."""
    if _MASK.search(segment):
        return False
    for position, word in enumerate(_WORD.findall(segment)):
        text = word.replace("’", "'")
        is_name = position > 0 and text[0].isupper() and text.split("'")[0] != "I"
        is_acronym = text.isupper() and len(text) > 1
        if is_name or is_acronym or text.lower() not in language.empty:
            return False
    return True


def _capitalize(text: str) -> str:
    """Capitalize the first word if it is an ordinary one: not pH, not iPhone."""
    first = _WORD.match(text)
    return text[:1].upper() + text[1:] if first and first[0].islower() else text


@part("rewriter", "rules")
def make_rules(settings: RulesRewriterSettings) -> RulesRewriter:
    return RulesRewriter(settings.language, settings.keep)
