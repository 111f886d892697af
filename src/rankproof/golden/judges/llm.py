"""A chat model as judge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankproof.chat import Answer, Chat
from rankproof.golden.judges import QueryPool
from rankproof.golden.requests import Request
from rankproof.golden.settings import LimitsSettings, LlmJudgeSettings


class LlmJudge:
    """Asks over HTTP. Where the server is does not decide what it says: it may move."""

    simulated = False
    parallel = True

    def __init__(self, settings: LlmJudgeSettings, limits: LimitsSettings, **injected: Any):
        self.name = settings.model
        self.model = settings.model
        self.parameters: dict[str, Any] = {
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
            "structured": settings.structured,
        }
        self._structured = settings.structured
        self._chat = Chat(
            settings.model,
            settings.url,
            settings.key_env,
            timeout_s=settings.timeout_s,
            attempts=settings.attempts,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            requests_per_minute=limits.requests_per_minute,
            tokens_per_minute=limits.tokens_per_minute,
            **injected,
        )

    def prepare(self, pools: Sequence[QueryPool]) -> None:
        """Nothing to look at."""

    def ask(self, request: Request) -> Answer:
        schema = request.schema if self._structured else None
        return self._chat.ask(request.system, request.user, schema)

    def stop(self) -> None:
        self._chat.stop()

    def close(self) -> None:
        self._chat.close()
