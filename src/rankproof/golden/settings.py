"""What a golden set's configuration may say.

corpus: my-corpus            # a BEIR folder
judge: {type: llm, url: "http://localhost:8000/v1", model: qwen, price: {input_per_1m: 0.1, …}}
limits: {max_cost: 5.0, concurrency: 8}
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from rankproof.config import BesidePath, Settings
from rankproof.errors import InputError
from rankproof.golden.refinement import RefineSettings
from rankproof.retrieval.settings import (
    Bm25Settings,
    Count,
    EmbedderSettings,
    FlatSettings,
    IndexSettings,
    RerankerSettings,
    RewriterSettings,
    Seconds,
    Share,
    WordllamaSettings,
)

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PerMinute = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Batch = Annotated[int, Field(ge=1, le=100)]


class TokenPrice(Settings):
    """US dollars for a million tokens."""

    input_per_1m: Dollars
    output_per_1m: Dollars


class LlmJudgeSettings(Settings):
    """A chat model behind an OpenAI-compatible server."""

    type: Literal["llm"]
    url: str  # such as http://localhost:8000/v1
    model: str
    key_env: str | None = None  # the environment variable that holds the key
    timeout_s: Seconds = 120.0
    attempts: Count = 6  # of one request: 429, 5xx and broken connections are tried again
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.0  # null: the model's own
    max_tokens: Count | None = 1024
    structured: bool = True  # hold the server to a JSON schema, where it can be
    price: TokenPrice | None = None  # else from the price file

    @field_validator("url")
    @classmethod
    def _an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError(f"{value!r} is no address", remedy="write http://host:port/v1")
        if "@" in parts.netloc:  # a store keeps its configuration
            raise InputError(
                "a name or password in the url", remedy="use a key, named by key_env, instead"
            )
        return value


class ReplayJudgeSettings(Settings):
    """The replies that another judge gave: a store, or `replies.jsonl` of an export."""

    type: Literal["replay"]
    replies: BesidePath


class SimulatedJudgeSettings(Settings):
    """Sees the corpus' own judgements through Plackett–Luce noise; every export says so."""

    type: Literal["simulated"]
    beta: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3.0  # large: little noise
    wrong: Share = 0.0  # of the grades, one step off
    grades: dict[int, Annotated[int, Field(ge=1, le=5)]] | None = None  # grade in qrels → 1–5


class ScorerJudgeSettings(Settings):
    """A reranker as judge: scores become grades at cuts, and orders as they are.

    `cuts` are the least scores of grades 2, 3, 4 and 5; else `shares` of all pooled passages that
    score below them.
    """

    type: Literal["cross-encoder"]
    reranker: RerankerSettings
    cuts: tuple[float, float, float, float] | None = None
    shares: tuple[Share, Share, Share, Share] = (0.5, 0.8, 0.9, 0.97)

    @model_validator(mode="after")
    def _ascending(self) -> ScorerJudgeSettings:
        for name, values in (("cuts", self.cuts), ("shares", self.shares)):
            if values is not None and list(values) != sorted(values):
                raise InputError(f"{name} do not ascend", remedy="order them from grade 2 to 5")
        return self


JudgeSettings = Annotated[
    LlmJudgeSettings | ReplayJudgeSettings | SimulatedJudgeSettings | ScorerJudgeSettings,
    Field(discriminator="type"),
]


class GradingSettings(Settings):
    batch: Batch = 5  # passages that the judge grades in one call


class PruningSettings(Settings):
    """Which graded passages are put in order: see `pruning.prune`."""

    target: Count = 20  # K: the ranks that are to be right
    size: Count = 35  # at least so many passages, where the pool has them
    negatives: Annotated[int, Field(ge=0)] = 5  # of them at least so many of grade 1 or 2


class RankingSettings(Settings):
    """How the subset is put in order; `seed` is the published rule, for comparison."""

    method: Literal["posterior", "seed"] = "posterior"
    batch: Annotated[int, Field(ge=2, le=50)] = 5
    depth: Count | None = None  # ranks that are to be right; else the pruning's target
    per_round: Count = 4
    budget: Annotated[int, Field(ge=0)] = 80  # calls for one query
    target: Annotated[float, Field(gt=0, le=1)] = 0.9  # expected overlap at which it is enough


class LimitsSettings(Settings):
    """What may be spent. None of it changes the result."""

    max_cost: Dollars | None = None  # US dollars, of the golden set in all
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    concurrency: Annotated[int, Field(ge=1, le=256)] = 4


class PromptSettings(Settings):
    """Files in place of the prompts that ship with rankproof."""

    grade: BesidePath | None = None
    order: BesidePath | None = None


class DepthsSettings(Settings):
    """How many passages of a query: from each list, and from both merged."""

    dense: Annotated[int, Field(ge=0)] = 100
    bm25: Annotated[int, Field(ge=0)] = 100
    pool: Count = 50  # of these all are graded

    @model_validator(mode="after")
    def _something(self) -> DepthsSettings:
        if self.dense == 0 and self.bm25 == 0:
            raise InputError("dense and bm25 are both 0", remedy="retrieve something")
        return self


class GoldenSettings(Settings):
    """A golden set: what is asked of which passages, who judges, and what it may cost."""

    corpus: BesidePath  # a BEIR folder
    qrels: BesidePath | None = None  # human labels; else those of the folder, if there are any
    queries: BesidePath | None = None  # JSON lines like queries.jsonl; else those of the folder
    only_judged: bool = False  # only the queries that the qrels label
    sample: Count | None = None  # so many of the queries, by seed
    store: BesidePath | None = None  # else beside the configuration, as NAME.golden
    language: Literal["en", "fr"] = "en"
    seed: Annotated[int, Field(ge=0)] = 0
    rewriter: RewriterSettings | None = None
    embedder: EmbedderSettings = WordllamaSettings()
    index: IndexSettings = FlatSettings()
    bm25: Bm25Settings | None = None  # in the language of the golden set
    depths: DepthsSettings = DepthsSettings()
    judge: JudgeSettings
    passage_chars: Count | None = None  # the judge is shown so many characters of a passage
    grading: GradingSettings = GradingSettings()
    pruning: PruningSettings = PruningSettings()
    ranking: RankingSettings = RankingSettings()
    limits: LimitsSettings = LimitsSettings()
    prompts: PromptSettings = PromptSettings()
    prices: BesidePath | None = None  # a price file; else the one that ships with rankproof

    @field_validator("judge", mode="before")
    @classmethod
    def _one_judge(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise InputError(f"{value!r} where keys belong", remedy="write judge: {type: llm, …}")
        return value

    @property
    def sparse(self) -> Bm25Settings:
        return self.bm25 or Bm25Settings(language=self.language)

    @property
    def refinement(self) -> RefineSettings:
        ranking = self.ranking
        return RefineSettings(
            batch=ranking.batch,
            depth=ranking.depth or self.pruning.target,
            per_round=ranking.per_round,
            budget=ranking.budget,
            target=ranking.target,
        )
