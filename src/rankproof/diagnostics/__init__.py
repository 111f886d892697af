"""Cheap tests of an embedder: how it treats names, and conversation around a question.

from rankproof.diagnostics import diagnose_names, diagnose_noise

diagnosis = diagnose_names(embedder, language="fr")     # anything with the Embedder protocol
diagnosis["strip_diacritics"].percent["name"].mean
print(*diagnosis.words(), sep="\\n")

names.py          diagnose_names; from name_lists.py it draws bundles.py, rewritten by
                  ablations.py; mentions.py searches names in a user's corpus
noise.py          diagnose_noise; conversation.py adds the noise
corpus.py         a judged corpus that can be searched; vectors.py embeds each text once
estimates.py      means with intervals; list_similarity.py compares top-k lists
tables.py, sentences.py, rules.py     what is printed, and rules that must hold
checked.py        what the commands return and write; settings.py, their configuration
"""

from __future__ import annotations

from rankproof.diagnostics.ablations import ABLATIONS, Ablation
from rankproof.diagnostics.conversation import LEVELS, add_noise
from rankproof.diagnostics.corpus import JudgedCorpus
from rankproof.diagnostics.estimates import Estimate
from rankproof.diagnostics.name_lists import Author, NameLists, read_lists, shipped_lists
from rankproof.diagnostics.names import NameRow, NamesDiagnosis, diagnose_names
from rankproof.diagnostics.noise import NoiseDiagnosis, NoiseRow, diagnose_noise
from rankproof.diagnostics.rules import Rule, Verdict, check_rules, parse_rule
from rankproof.statistics.rank_similarity import Correlation

__all__ = [
    "ABLATIONS",
    "LEVELS",
    "Ablation",
    "Author",
    "Correlation",
    "Estimate",
    "JudgedCorpus",
    "NameLists",
    "NameRow",
    "NamesDiagnosis",
    "NoiseDiagnosis",
    "NoiseRow",
    "Rule",
    "Verdict",
    "add_noise",
    "check_rules",
    "diagnose_names",
    "diagnose_noise",
    "parse_rule",
    "read_lists",
    "shipped_lists",
]
