"""Rewriters make a question as a person typed it fit to be searched: by rules or by a model."""

from __future__ import annotations

from typing import Any

from rankproof.retrieval.components import make_component
from rankproof.retrieval.protocols import Rewriter


def make_rewriter(chosen: Any) -> Rewriter:
    """Make the rewriter that settings describe.

    >>> from rankproof.retrieval.rewriters import make_rewriter
    >>> from rankproof.retrieval.rewriters.rules import RulesRewriterSettings
    >>> rewriter = make_rewriter(RulesRewriterSettings())
    >>> rewriter.rewrite("Hello! Could you tell me what whales breathe?")
    'What whales breathe?'
    """
    rewriter: Rewriter = make_component("rewriter", chosen)
    return rewriter
