"""The configuration of a diagnosis."""

from __future__ import annotations

from rankproof.foundation.config import Settings
from rankproof.retrieval.components import EmbedderChoice, RewriterChoice
from rankproof.retrieval.embedders.wordllama import WordllamaSettings


class RuleSettings(Settings):
    """Rules that must not fail, as rules.py parses them."""

    names: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()


class DiagnoseSettings(Settings):
    """The embedder to diagnose, a rewriter to compare with the built-in ones, and the rules."""

    embedder: EmbedderChoice = WordllamaSettings()
    rewriter: RewriterChoice | None = None
    fail_if: RuleSettings = RuleSettings()
