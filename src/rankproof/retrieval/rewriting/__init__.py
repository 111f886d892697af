"""A question as a person typed it → a question fit to be searched: by rules, or by a chat model."""

from __future__ import annotations

from rankproof.retrieval.protocols import Rewriter
from rankproof.retrieval.settings import LlmRewriterSettings, RewriterSettings


def make_rewriter(settings: RewriterSettings) -> Rewriter:
    """The rewriter that `settings` describe."""
    if isinstance(settings, LlmRewriterSettings):
        from rankproof.chat import Chat
        from rankproof.retrieval.rewriting.llm import LlmRewriter

        chat = Chat(
            model=settings.model,
            base_url=settings.url,
            key_env=settings.key_env,
            timeout_s=settings.timeout_s,
            attempts=settings.attempts,
        )
        return LlmRewriter(chat, settings.language, name=f"llm {settings.model}")
    from rankproof.retrieval.rewriting.rules import RulesRewriter

    return RulesRewriter(settings.language, settings.keep)
