"""What a configuration may say of a diagnosis."""

from __future__ import annotations

from rankproof.foundation.config import Settings
from rankproof.retrieval.components import EmbedderChoice, RewriterChoice
from rankproof.retrieval.embedders.wordllama import WordllamaSettings


class RuleSettings(Settings):
    """Rules that must not be broken, as `rules.py` reads them."""

    names: tuple[str, ...] = ()
    noise: tuple[str, ...] = ()


class DiagnoseSettings(Settings):
    """The embedder to diagnose, a rewriter beside the rules, and what must not be."""

    embedder: EmbedderChoice = WordllamaSettings()
    rewriter: RewriterChoice | None = None
    fail_if: RuleSettings = RuleSettings()
