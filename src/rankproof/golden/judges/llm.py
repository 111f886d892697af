"""A chat model as judge, asked over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from rankproof.foundation.config import Count, Seconds, Settings
from rankproof.foundation.errors import InputError
from rankproof.golden.judges import QueryPool
from rankproof.golden.requests import Request
from rankproof.golden.settings import LimitsSettings, TokenPrice
from rankproof.retrieval.chat import Answer, Chat
from rankproof.retrieval.components import part


class LlmJudgeSettings(Settings):
    """A chat model behind an OpenAI-compatible server."""

    operation: ClassVar[frozenset[str]] = frozenset(
        {
            *("url", "key_env", "timeout_s", "attempts", "price"),
            *("max_tokens", "structured", "logprobs"),
        }
    )

    type: Literal["llm"]
    url: str  # such as http://localhost:8000/v1
    model: str
    key_env: str | None = None  # the environment variable that holds the key
    timeout_s: Seconds = 120.0
    attempts: Count = 6  # of one request: 429, 5xx and broken connections are tried again
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0  # null: the server's default
    max_tokens: Count | None = 1024
    structured: bool = True  # ask for JSON that follows a schema, if the server can
    logprobs: bool = False  # ask for the probability of each grade, if the server can
    price: TokenPrice | None = None  # None: from the price file

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        """Refuse what is not an HTTP address, and one that holds a password."""
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError("this is not an address", remedy="write http://host:port/v1")
        if "@" in parts.netloc:  # the store would keep it
            raise InputError(
                "a name or password in the url", remedy="use a key, named by key_env, instead"
            )
        return value


@part("judge", "llm", extra="judge", imports=("httpx2",), network=True)
class LlmJudge:
    """Asks a chat model over HTTP; its address is not part of its identity, as servers move."""

    simulated = False
    parallel = True

    def __init__(self, settings: LlmJudgeSettings, limits: LimitsSettings, **injected: Any):
        """Set up the client; `injected` are further arguments of `Chat`, for tests."""
        self.name = settings.model
        self.model = settings.model
        self.parameters: dict[str, Any] = {"temperature": settings.temperature}
        self.max_tokens = settings.max_tokens  # of a reply; `JudgeClient` reads it
        self._structured = settings.structured
        self._chat = Chat(
            settings.model,
            settings.url,
            settings.key_env,
            timeout_s=settings.timeout_s,
            attempts=settings.attempts,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            chances=20 if settings.logprobs else 0,
            paid=True,
            requests_per_minute=limits.requests_per_minute,
            tokens_per_minute=limits.tokens_per_minute,
            **injected,
        )

    def prepare(self, pools: Sequence[QueryPool]) -> None:
        """Do nothing: a chat model needs no preparation."""

    def ask(self, request: Request) -> Answer:
        schema = request.schema if self._structured else None
        return self._chat.ask(request.system, request.user, schema)

    def stop(self) -> None:
        self._chat.stop()

    def close(self) -> None:
        self._chat.close()
