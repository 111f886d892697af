"""A question as a person typed it → a question fit to be searched: by rules, or by a chat model."""

from __future__ import annotations

from typing import Any

from rankproof.retrieval.components import make
from rankproof.retrieval.protocols import Rewriter


def make_rewriter(chosen: Any) -> Rewriter:
    """The rewriter that settings describe.

    >>> from rankproof.retrieval.rewriters import make_rewriter
    >>> from rankproof.retrieval.rewriters.rules import RulesRewriterSettings
    >>> rewriter = make_rewriter(RulesRewriterSettings())
    >>> rewriter.rewrite("Hello! Could you tell me what whales breathe?")
    'What whales breathe?'
    """
    found: Rewriter = make("rewriter", chosen)
    return found
