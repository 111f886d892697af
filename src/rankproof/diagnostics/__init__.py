"""Cheap tests of an embedder: what it makes of names, and of conversation around a question.

from rankproof.diagnostics import diagnose_names, diagnose_noise

diagnosis = diagnose_names(embedder, language="fr")     # anything with the Embedder protocol
diagnosis["strip_diacritics"].percent["name"].mean
print(*diagnosis.words(), sep="\\n")
"""

from __future__ import annotations

from rankproof.diagnostics.ablations import ABLATIONS, Ablation
from rankproof.diagnostics.conversation import LEVELS, noised
from rankproof.diagnostics.corpus import JudgedCorpus
from rankproof.diagnostics.figures import Figure
from rankproof.diagnostics.name_lists import Author, Lists, read_lists, shipped
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
    "Figure",
    "JudgedCorpus",
    "Lists",
    "NameRow",
    "NamesDiagnosis",
    "NoiseDiagnosis",
    "NoiseRow",
    "Rule",
    "Verdict",
    "check_rules",
    "diagnose_names",
    "diagnose_noise",
    "noised",
    "parse_rule",
    "read_lists",
    "shipped",
]
