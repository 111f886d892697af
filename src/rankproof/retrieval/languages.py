"""What people write around a question, in English and in French: data for the rules.

Patterns are matched without regard to case, except inside (?-i:…): `um` is a hesitation, `UM` may
be a university.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Literal

Name = Literal["en", "fr"]

# Chinese and Japanese put no blanks between words: there each character is one.
_UNSPACED = "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U000323af"
WORD = re.compile(rf"[^\W_{_UNSPACED}]+|[{_UNSPACED}]")


@dataclass(frozen=True)
class Language:
    """Words and patterns of one language. Every pattern is a regular expression."""

    asks: str  # words that begin a question
    greetings: str
    addressees: str  # whom a greeting may greet
    lead_ins: tuple[str, ...]  # "could you tell me": cut where a question word follows
    joints: str  # of these the lead-in takes the word with it: "if", "about"
    openers: tuple[str, ...]  # "quick question:"; cut with the punctuation that follows
    fillers: str  # cut at the start of a sentence, with the punctuation that follows
    hurried: str  # cut there without any, where a question word follows
    asides: str  # cut between two commas
    hesitations: str  # cut anywhere
    closings: tuple[str, ...]  # "thanks in advance": cut at the end of a sentence
    mentions: str  # after these words a closing is what is asked about
    courtesies: tuple[str, ...]  # sentences that say nothing, questions among them
    links: str  # words that join an aside to the question
    refers: str  # words that point back to what was said
    askers: str  # words of the person who asks: what was said of them may matter
    empty: frozenset[str]  # a sentence of these words alone says nothing of a topic

    def compiled(self, pattern: str) -> re.Pattern[str]:
        return re.compile(pattern, re.IGNORECASE)

    @cached_property
    def starter(self) -> re.Pattern[str]:
        """The beginning of a question, or of something that leads to one."""
        leads = "|".join((*self.lead_ins, *self.openers, self.greetings, self.hesitations))
        return self.compiled(rf"(?:(?:{self.asks})\b|(?:{leads})(?![\w-]))")

    @cached_property
    def lead_in(self) -> re.Pattern[str]:
        leads = "|".join(self.lead_ins)
        follow = rf"(?=(?:{self.asks})\b)"
        return self.compiled(rf"(?:{leads})\s*[:,…]?\s+(?:{follow}|(?:{self.joints})\s+)")

    @cached_property
    def opener(self) -> re.Pattern[str]:
        return self.compiled(rf"(?:{'|'.join(self.openers)})\s*[:,.!…–—-]+\s+")

    @cached_property
    def greeting(self) -> re.Pattern[str]:
        return self.compiled(
            rf"(?:{self.greetings})(?:,?\s+(?:{self.addressees}))?(?:\s*[,.!…:;–—-]+\s+|\s+)"
        )

    @cached_property
    def filler(self) -> re.Pattern[str]:
        return self.compiled(rf"(?:{self.fillers})\s*[,.…!]+\s*|(?:{self.hurried})\s+")

    @cached_property
    def between(self) -> re.Pattern[str]:
        return self.compiled(rf",\s*(?:{self.asides})\s*,\s*")

    @cached_property
    def hesitation(self) -> re.Pattern[str]:
        return re.compile(rf"(?:^|(?<=\s))(?:{self.hesitations})(?![\w'’-])[,.…]*\s*")

    @cached_property
    def closing(self) -> re.Pattern[str]:
        endings = "|".join(self.closings)
        return self.compiled(rf"(?:^|[\s,;:.!–—-]{{1,8}})\b(?:{endings})(?P<end>[\s,.!…]*\??)$")

    @cached_property
    def mention(self) -> re.Pattern[str]:
        return self.compiled(rf"\b(?:{self.mentions})[\s:,]*$")

    @cached_property
    def courtesy(self) -> re.Pattern[str]:
        sentences = "|".join((*self.courtesies, *self.closings))
        greeted = rf"(?:{self.greetings})(?:,?\s+(?:{self.addressees}))?"
        return self.compiled(rf"(?:(?:{sentences}|{greeted}|{self.fillers})[\s,.!?…]*){{1,4}}")

    @cached_property
    def link(self) -> re.Pattern[str]:
        return self.compiled(rf"[,;]?\s+(?:{self.links})\s*,?\s+")

    @cached_property
    def reference(self) -> re.Pattern[str]:
        # Not after a hyphen: "est-il" points to the subject of its own sentence.
        return self.compiled(rf"(?<![\w-])(?:{self.refers})\b")

    @cached_property
    def asker(self) -> re.Pattern[str]:
        return self.compiled(rf"(?<![\w-])(?:{self.askers})(?!\w)")


def _words(name: str) -> frozenset[str]:
    """The words of a file that the package ships."""
    file = files("rankproof") / "resources" / "words" / name
    return frozenset(file.read_text(encoding="utf-8").split())


_WHO = r"(?:you|u|anyone|anybody|someone|somebody)(?:\s+(?:guys|here|all|out there))?"
_IF_WHO = rf"(?:if\s+{_WHO}|anyone|anybody|someone|somebody)"  # "You Know Who" is a name
_MILD = r"(?:\s+(?:please|pls|plz|kindly|possibly|maybe|perhaps|just|quickly|briefly|also|really))*"
_TELL = (
    r"(?:tell|explain|show|help|remind|inform|let)(?:\s+to)?(?:\s+(?:me|us))?"
    r"(?:\s+(?:know|understand|out|figure\s+out|find\s+out))?(?:\s+please)?"
)

ENGLISH = Language(
    asks=r"what|what['’]s|which|who|who['’]s|whom|whose|when|where|why|how|is|are|was|were|do|does|"
    rf"did|can|could|will|would|should|has|have|had|if\s+{_WHO}",
    greetings=r"hi+|hello+|hey+|hiya|howdy|greetings|good\s+(?:morning|afternoon|evening|day)|"
    r"dear\s+(?:all|everyone|team|community|sir|madam|sir\s+or\s+madam)",
    addressees=r"there|all|everyone|everybody|team|folks|guys|again|friends?|you\s+all|y['’]all|"
    r"community",
    lead_ins=(
        rf"(?:can|could|would|will){_MILD}\s+{_WHO}{_MILD}(?:\s+be\s+able\s+to)?\s+{_TELL}",
        rf"{_IF_WHO}\s+(?:can|could|would|might|may){_MILD}\s+{_TELL}",
        rf"(?:does|do)\s+{_WHO}{_MILD}(?:\s+happen\s+to)?\s+know",
        rf"{_IF_WHO}\s+(?:happens?\s+to\s+)?knows?",
        rf"(?:please|pls|plz|kindly)\s+{_TELL}",
        r"(?:tell|show)\s+(?:me|us)|explain\s+to\s+(?:me|us)",
        rf"i(?:['’]m|\s+am|\s+was|['’]ve\s+been|\s+have\s+been)?{_MILD}\s+(?:wondering|wonder|"
        r"curious|asking\s+myself|trying\s+to\s+(?:find\s+out|figure\s+out|understand|learn))"
        r"(?:\s+about)?",
        rf"i(?:['’]d|\s+would)?{_MILD}\s+(?:like|love|want|wanted|need|needed|wish){_MILD}\s+to\s+"
        r"(?:know|ask|find\s+out|figure\s+out|learn|understand)(?:\s+you)?(?:\s+more)?(?:\s+about)?",
        r"my\s+question\s+is(?:\s+this)?",
        r"i\s+have\s+no\s+idea|i\s+(?:don['’]t|do\s+not)\s+(?:really\s+)?(?:know|understand)",
    ),
    joints=r"if|whether|about",
    openers=(
        r"(?:just\s+)?(?:a\s+)?(?:(?:quick|silly|dumb|stupid|simple|random|weird|small|basic)\s+)+"
        r"question(?:\s+(?:for\s+you|here))?",
        r"(?:here(?:['’]s|\s+is)\s+)?my\s+question(?:\s+is)?",
        r"i\s+(?:have|had|['’]ve\s+got|got)\s+(?:a|one)\s+(?:(?:quick|silly|dumb|simple|small)\s+)*"
        r"question(?:\s+for\s+you)?",
        r"(?:i['’]m\s+|i\s+am\s+|so\s+|very\s+)*sorry\s+(?:to\s+bother(?:\s+you)?|for\s+"
        r"(?:bothering(?:\s+you)?|the\s+(?:silly|dumb|stupid|basic)\s+question))",
        r"excuse\s+me|pardon\s+me",
        r"(?:i['’]m\s+|i\s+am\s+)?not\s+(?:really\s+|quite\s+)?sure\s+(?:how|if|where|whether)"
        r"(?:\s+[\w'’]+){1,6}?\s+but",
    ),
    fillers=r"so+|well|ok(?:ay)?|alright|anyway|anyways|basically|actually|honestly|seriously|"
    r"literally|like|look|listen|yeah|oh|ah|by\s+the\s+way|(?-i:btw|tbh)|you\s+know|i\s+mean|"
    r"to\s+be\s+honest|right\s+then|now\s+then|please|sorry",
    hurried=r"so+|ok(?:ay)?|anyways?|yeah|please",
    asides=r"you\s+know|i\s+mean|like|basically|actually|honestly|literally|seriously|please|"
    r"to\s+be\s+honest|by\s+the\s+way",
    hesitations=r"u+h+|u+m+|u+hm+|h+m+m+|e+rm+",
    closings=(
        r"ple+a+se+|(?-i:pls|plz|thx|lol|lmao|ty|btw|tbh|idk)|ha(?:ha)+",
        r"(?:many\s+)?thanks+(?:\s+(?:a\s+lot|so\s+much|a\s+million|very\s+much))?"
        r"(?:\s+(?:in\s+advance|again))?(?:\s+for\s+(?:your|the|any|all\s+your|all\s+the)\s+"
        r"(?:help|time|answers?|advice|input|patience))?",
        r"thank\s+you(?:\s+(?:so\s+much|very\s+much|all|guys))?(?:\s+(?:in\s+advance|again))?"
        r"(?:\s+for\s+(?:your|the|any|all\s+your|all\s+the)\s+"
        r"(?:help|time|answers?|advice|input|patience))?",
        r"cheers|if\s+(?:that|this|it)\s+makes\s+(?:any\s+)?sense|if\s+you\s+don['’]t\s+mind|"
        r"or\s+something(?:\s+like\s+that)?|or\s+whatever|just\s+(?:curious|wondering|asking)|"
        r"any\s+help\s+(?:is|would\s+be)\s+(?:much\s+|greatly\s+|really\s+)?appreciated|"
        r"i\s+(?:would\s+|['’]d\s+)?(?:really\s+)?appreciate\s+(?:it|any\s+help|your\s+help)|"
        r"(?:have\s+a\s+)?(?:nice|good|great|lovely)\s+(?:day|evening|weekend|one)|"
        r"(?:best|kind)\s+regards|any\s+ideas",
    ),
    mentions=r"say|says|saying|said|mean|means|word|words|phrase|term|spell|pronounce|write|use|"
    r"using|with|of|the|a|an|to|for|or|and|between|than|called|named|is|are",
    courtesies=(
        r"how\s+are\s+(?:you|things|y['’]all)(?:\s+(?:doing|all|today))*|how['’]s\s+it\s+going|"
        r"what['’]s\s+up|hope\s+(?:you|you['’]re|you\s+are|this|everyone)[\w\s'’]*",
        r"i\s+hope\s+(?:you|you['’]re|you\s+are|this|everyone)[\w\s'’]*(?:well|fine|great|ok|okay|"
        r"question|day|week|weekend)",
        r"can\s+(?:you|anyone|someone)\s+(?:please\s+)?help(?:\s+me)?(?:\s+(?:out|please))*|"
        r"please\s+help(?:\s+me)?|help\s+me(?:\s+please)?",
        r"(?:can|may|could)\s+i\s+ask(?:\s+you)?\s+(?:a|something)(?:\s+(?:quick|silly))?"
        r"(?:\s+question)?",
    ),
    links=r"so|and\s+so|and\s+now|but|anyway|and",
    refers=r"it|its|this|that|these|those|they|them|their|he|him|his|she|her|hers",
    askers=r"i|i['’]\w+|me|my|mine|myself|we|us|our|ours",
    empty=_words("empty.en.txt"),
)

_PEUX = (
    r"(?:est-ce\s+que\s+)?(?:quelqu['’]un\s+|vous\s+|tu\s+)?(?:pourriez|pourrais|pouvez|peux|peut|"
    r"pourrait)(?:[- ](?:vous|tu|on))?"
)
_SVP = r"(?:s['’]il\s+(?:vous|te)\s+pla[iî]t|(?-i:svp|stp))"

FRENCH = Language(
    asks=r"qu['’]est-ce|que|qu['’]|qui|quel|quelle|quels|quelles|quand|où|pourquoi|comment|combien|"
    r"est-ce|est-il|ce\s+que|ce\s+qu['’]|à\s+quoi|à\s+quel|à\s+quelle|de\s+quoi|en\s+quoi|quoi|"
    r"lequel|laquelle|dans\s+quel|dans\s+quelle|peut-on|y\s+a-t-il|existe-t-il|"
    r"(?=[^.?!]{3,120}\w-(?:t-)?(?:ils?|elles?|on)\b[^.!]*\?)\w+",  # Les arbres poussent-ils
    greetings=r"bonjour|bonsoir|salut|coucou|hello|hey+|(?-i:bjr|slt)|rebonjour",
    addressees=r"à\s+tous|à\s+toutes|à\s+vous|à\s+toutes\s+et\s+à\s+tous|tous|toutes|"
    r"tout\s+le\s+monde|les\s+amis|la\s+communauté|madame|monsieur|madame,?\s+monsieur|vous",
    lead_ins=(
        rf"{_PEUX}(?:\s+{_SVP},?)?(?:\s+(?:me|nous))?\s+(?:dire|expliquer|indiquer|rappeler|"
        rf"préciser|aider\s+à\s+(?:comprendre|savoir))(?:,?\s+{_SVP})?",
        r"(?:est-ce\s+que\s+)?(?:quelqu['’]un|vous|tu)\s+(?:sait|savez|sais|saurait|sauriez)",
        r"(?:savez-vous|sais-tu|sauriez-vous|saurais-tu)",
        r"je\s+(?:me\s+(?:demande|demandais|suis\s+toujours\s+demandée?)|(?:voudrais|aimerais|"
        r"souhaiterais|souhaite|veux|voulais|cherche\s+à)(?:\s+(?:bien|juste|simplement))*"
        r"(?:\s+(?:vous|te))?\s+(?:savoir|comprendre|demander))",
        r"j['’](?:aimerais|aurais\s+aimé|aimerai)(?:\s+(?:bien|juste|simplement))*(?:\s+vous)?\s+"
        r"(?:savoir|comprendre|demander)",
        rf"(?:dites-moi|dis-moi|expliquez-moi|explique-moi)(?:\s+{_SVP})?",
        r"ma\s+question\s+est(?:\s+la\s+suivante)?",
        r"je\s+ne\s+(?:sais|comprends)\s+pas",
    ),
    joints=r"si",
    openers=(
        r"(?:juste\s+)?(?:une\s+)?(?:petite\s+|simple\s+)*question(?:\s+(?:rapide|bête|simple|idiote))*",
        r"ma\s+question\s+est(?:\s+la\s+suivante)?|voici\s+ma\s+question",
        r"j['’](?:ai|aurais)\s+une\s+(?:petite\s+|simple\s+)*question(?:\s+(?:rapide|bête|simple))*"
        r"(?:\s+à\s+(?:vous|te)\s+poser)?",
        r"(?:je\s+suis\s+)?désolée?(?:\s+de\s+(?:vous|te)\s+déranger)?|"
        r"excusez-moi(?:\s+de\s+vous\s+déranger)?|excuse-moi(?:\s+de\s+te\s+déranger)?|pardon",
        r"je\s+ne\s+sais\s+pas\s+(?:trop\s+|bien\s+)?(?:comment|si)(?:\s+[\w'’]+){1,6}?,?\s+mais",
    ),
    fillers=r"alors|bon+|ben|bah|bref|voilà|enfin|du\s+coup|en\s+fait|genre|tu\s+vois|vous\s+voyez|"
    r"tu\s+sais|vous\s+savez|franchement|honnêtement|sérieusement|au\s+fait|dis\s+donc|disons|"
    r"oui|ok|ah|oh",
    hurried=r"alors|bon+|ben|bah|bref|du\s+coup|ok|oui",
    asides=r"tu\s+vois|vous\s+voyez|tu\s+sais|vous\s+savez|en\s+fait|du\s+coup|franchement|"
    r"honnêtement|disons|enfin|bref|voilà",
    hesitations=r"e+u+h+|h+e+u+|h+u+m+|h+m+m+|mm+h+",
    closings=(
        rf"{_SVP}|(?-i:mdr|lol|ptdr)|merci(?:\s+(?:beaucoup|bien|infiniment|à\s+(?:tous|vous)))*"
        r"(?:\s+(?:d['’]avance|par\s+avance))?(?:\s+pour\s+(?:votre|ton|vos|tes)\s+"
        r"(?:aide|réponses?|temps|retours?|conseils?))?(?:\s+(?:d['’]avance|par\s+avance))?",
        r"bonne\s+(?:journée|soirée|semaine|fin\s+de\s+journée)|cordialement|bien\s+à\s+vous|"
        r"à\s+bientôt|ou\s+un\s+truc\s+(?:comme\s+ça|du\s+genre)|ou\s+quelque\s+chose\s+comme\s+ça|"
        r"si\s+(?:ça|cela)\s+ne\s+(?:vous|te)\s+dérange\s+pas|par\s+curiosité|"
        r"(?:enfin,?\s+)?si\s+c['’]est\s+clair",
    ),
    mentions=r"dire|dit|dit-on|dites-vous|dis-tu|disent|mot|mots|expression|terme|écrire|écrit|signifie|prononcer|de|du|la|le|"
    r"les|un|une|et|ou|à|avec|pour|que",
    courtesies=(
        r"comment\s+(?:allez-vous|vas-tu|ça\s+va)(?:\s+aujourd['’]hui)?|(?:est-ce\s+que\s+)?ça\s+va|"
        r"j['’]espère\s+que\s+(?:vous|tu|tout|ça|cela)[\w\s'’-]*(?:bien|question|journée|semaine)",
        rf"{_PEUX}(?:\s+{_SVP},?)?\s+(?:m['’]aider|nous\s+aider)(?:\s+{_SVP})?|aidez-moi(?:\s+{_SVP})?",
        r"(?:puis-je|est-ce\s+que\s+je\s+peux)\s+(?:vous\s+|te\s+)?(?:poser\s+une\s+(?:petite\s+)?"
        r"question|demander\s+quelque\s+chose)",
    ),
    links=r"donc|alors|du\s+coup|et\s+du\s+coup|et\s+donc|mais|bref|et",
    askers=r"je|j['’]|me|m['’]|moi|mon|ma|mes|nous|notre|nos",
    refers=r"il|elle|ils|elles|lui|leur|leurs|cet|cette|ces|ça|cela|ceci|celui|celle|ceux|celles",
    empty=_words("empty.fr.txt"),
)

LANGUAGES: dict[Name, Language] = {"en": ENGLISH, "fr": FRENCH}


def language_of(text: str) -> Name:
    """English or French, by the words that one has and the other has not; English in doubt."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    english = sum(word in ENGLISH.empty and word not in FRENCH.empty for word in words)
    french = sum(word in FRENCH.empty and word not in ENGLISH.empty for word in words)
    accents = len(re.findall(r"[éèêëàâçùûîïôœ]", text.lower()))
    return "fr" if french > english or (french == english and accents) else "en"
