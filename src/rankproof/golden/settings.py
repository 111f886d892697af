"""What a golden set's configuration may say.

corpus: my-corpus            # a BEIR folder
judge: {type: llm, url: "http://localhost:8000/v1", model: qwen, price: {input_per_1m: 0.1, …}}
limits: {max_cost: 5.0, concurrency: 8}
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from rankproof.foundation.config import BesidePath, Count, Settings
from rankproof.foundation.errors import InputError
from rankproof.golden.refinement import MethodName, RefineSettings
from rankproof.retrieval.components import (
    EmbedderChoice,
    IndexChoice,
    JudgeChoice,
    RetrieverChoice,
    RewriterChoice,
    SparseChoice,
)
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
from rankproof.retrieval.indexes.flat import FlatSettings
from rankproof.retrieval.sparse.bm25 import Bm25Settings

Dollars = Annotated[float, Field(ge=0, allow_inf_nan=False)]
PerMinute = Annotated[float, Field(gt=0, allow_inf_nan=False)]
ListName = Annotated[str, StringConstraints(pattern=r"^[\w.+-]{1,60}$")]
Batch = Annotated[int, Field(ge=1, le=100)]


class TokenPrice(Settings):
    """US dollars for a million tokens."""

    input_per_1m: Dollars
    output_per_1m: Dollars


class GradingSettings(Settings):
    batch: Batch = 5  # passages that the judge grades in one call


class PruningSettings(Settings):
    """Which graded passages are put in order: see `pruning.prune`."""

    target: Count = 20  # K: the ranks that are to be right
    size: Count = 35  # at least so many passages, where the pool has them
    negatives: Annotated[int, Field(ge=0)] = 5  # of them at least so many of grade 1 or 2


class RankingSettings(Settings):
    """How the subset is put in order; `seed` is the paper's rule and `seed-code` that of its code,
    for comparison."""

    method: MethodName = "posterior"
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
    retrievers: Count = 100  # of each
    runs: Count = 100  # of each given run
    pool: Count = 50  # of these all are graded


class PoolSettings(Settings):
    """Who else fills the pools, beside `embedder`, `bm25` and `retrievers`; each a list by name."""

    embedders: dict[ListName, EmbedderChoice] = {}  # each searched by `index`
    sparse: dict[ListName, SparseChoice] = {}
    runs: list[BesidePath] = []  # of systems, named by their files
    sweep: BesidePath | None = None  # a sweep's configuration: all that it would compare

    @field_validator("embedders", "sparse", mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """A bare list is named by what it lists."""
        if not isinstance(value, list):
            return value
        named: dict[str, Any] = {}
        for each in value:
            said = each if isinstance(each, dict) else {}
            name = str(said.get("model") or said.get("type") or "list").rstrip("/").split("/")[-1]
            name = re.sub(r"[^\w.+-]", "-", name)[:50] or "list"
            while name in named or name in ("dense", "bm25"):
                name += "+"
            named[name] = each
        return named


class JudgeFile(Settings):
    """A judge by itself, to be tried."""

    judge: JudgeChoice


class GoldenSettings(Settings):
    """A golden set: what is asked of which passages, who judges, and what it may cost.

    >>> from pathlib import Path
    >>> from rankproof.golden.settings import GoldenSettings
    >>> GoldenSettings(corpus=Path("try/corpus"), judge={"type": "simulated"}).judge.beta
    3.0
    """

    corpus: BesidePath  # a BEIR folder
    qrels: BesidePath | None = None  # human labels; else those of the folder, if there are any
    queries: BesidePath | None = None  # JSON lines like queries.jsonl; else those of the folder
    only_judged: bool = False  # only the queries that the qrels label
    sample: Count | None = None  # so many of the queries, by seed
    store: BesidePath | None = None  # else beside the configuration, as NAME.golden
    language: Literal["en", "fr"] = "en"
    seed: Annotated[int, Field(ge=0)] = 0
    rewriter: RewriterChoice | None = None
    embedder: EmbedderChoice = WordllamaSettings()
    index: IndexChoice = FlatSettings()
    bm25: SparseChoice | None = None  # in the language of the golden set
    retrievers: dict[ListName, RetrieverChoice] = {}  # whole engines, each a list of the pool
    pool: PoolSettings = PoolSettings()
    depths: DepthsSettings = DepthsSettings()
    judge: JudgeChoice
    passage_chars: Count | None = None  # the judge is shown so many characters of a passage
    grading: GradingSettings = GradingSettings()
    pruning: PruningSettings = PruningSettings()
    ranking: RankingSettings = RankingSettings()
    limits: LimitsSettings = LimitsSettings()
    prompts: PromptSettings = PromptSettings()
    prices: BesidePath | None = None  # a price file; else the one that ships with rankproof

    @model_validator(mode="after")
    def _told_apart(self) -> GoldenSettings:
        pool = self.pool
        runs = [run.name.split(".")[0] for run in pool.runs]
        names = ["dense", "bm25"]
        for key, more in (
            ("retrievers", list(self.retrievers)),
            ("pool.embedders", list(pool.embedders)),
            ("pool.sparse", list(pool.sparse)),
            ("pool.runs", runs),
        ):
            taken = next((name for name in more if name in names or more.count(name) > 1), None)
            if taken is not None:
                raise InputError(
                    f"{key}: {taken!r} is the name of a list already", remedy="give it another name"
                )
            names += more
        if self.ranking.method != "posterior" and getattr(self.judge, "type", "") == "panel":
            raise InputError(
                f"a panel, and ranking.method: {self.ranking.method}",
                remedy="the seed's rule knows one judge: name one, or take method: posterior",
            )
        if not (self.depths.dense or self.depths.bm25 or len(names) > 2 or pool.sweep):
            raise InputError("dense and bm25 are both 0", remedy="retrieve something")
        return self

    @property
    def sparse(self) -> Any:
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
