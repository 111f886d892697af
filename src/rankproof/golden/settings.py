"""The configuration of a golden set, checked: inputs, pools, judge, order, limits.

corpus: my-corpus            # a BEIR folder
judge: {type: llm, url: "http://localhost:8000/v1", model: qwen, price: {input_per_1m: 0.1, …}}
limits: {max_cost: 5.0, concurrency: 8}
"""

from __future__ import annotations

import re
from pathlib import Path
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
    """How grades are asked for."""

    batch: Batch = 5  # passages that the judge grades in one call


class PruningSettings(Settings):
    """Which graded passages are put in order; see `pruning.prune`."""

    target: Count = 20  # K: number of top ranks that should be right
    size: Count = 35  # passages to put in order, if the pool has as many
    negatives: Annotated[int, Field(ge=0)] = 5  # passages of grade 1 or 2 among them


class RankingSettings(Settings):
    """How the subset is put in order.

    The methods `seed` and `seed-code` are for comparison: the rule of the rag-gs paper, and that of
    its code.
    """

    method: MethodName = "posterior"
    batch: Annotated[int, Field(ge=2, le=50)] = 5
    depth: Count | None = None  # top ranks that should be right; None: pruning.target
    per_round: Count = 4
    budget: Annotated[int, Field(ge=0)] = 80  # calls for one query
    target: Annotated[float, Field(gt=0, le=1)] = 0.9  # expected overlap that ends a query


class LimitsSettings(Settings):
    """What may be spent; no limit changes the result."""

    max_cost: Dollars | None = None  # US dollars for the whole golden set
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    concurrency: Annotated[int, Field(ge=1, le=256)] = 4


class PromptSettings(Settings):
    """Files that replace the built-in prompts."""

    grade: BesidePath | None = None
    order: BesidePath | None = None


class DepthsSettings(Settings):
    """How many passages each system retrieves for a query, and how many are pooled."""

    dense: Annotated[int, Field(ge=0)] = 100
    bm25: Annotated[int, Field(ge=0)] = 100
    retrievers: Count = 100  # of each
    runs: Count = 100  # of each
    pool: Count = 50  # all of them are graded


class PoolSettings(Settings):
    """Systems that fill the pools besides `embedder`, `bm25` and `retrievers`."""

    embedders: dict[ListName, EmbedderChoice] = {}  # each searched by `index`
    sparse: dict[ListName, SparseChoice] = {}
    runs: list[BesidePath] = []  # files of runs, whose names are the systems'
    sweep: BesidePath | None = None  # of which every configuration fills the pools

    @field_validator("embedders", "sparse", mode="before")
    @classmethod
    def _name_components(cls, value: Any) -> Any:
        """Turn a list of components into a mapping, each named by its model or type."""
        if not isinstance(value, list):
            return value
        by_name: dict[str, Any] = {}
        for component in value:
            keys = component if isinstance(component, dict) else {}
            model = str(keys.get("model") or keys.get("type") or "list").rstrip("/").split("/")[-1]
            name = re.sub(r"[^\w.+-]", "-", model)[:50] or "list"
            while name in by_name or name in ("dense", "bm25"):
                name += "+"
            by_name[name] = component
        return by_name


class JudgeFile(Settings):
    """A file that holds only a judge, as `golden try --judge` reads it."""

    judge: JudgeChoice


class GoldenSettings(Settings):
    """The configuration of a golden set: its texts, pools, judge, and limits.

    >>> from pathlib import Path
    >>> from rankproof.golden.settings import GoldenSettings
    >>> GoldenSettings(corpus=Path("try/corpus"), judge={"type": "simulated"}).judge.beta
    3.0
    """

    corpus: BesidePath  # a BEIR folder
    qrels: BesidePath | None = None  # people's labels; None: qrels/test.tsv of the folder, if any
    queries: BesidePath | None = None  # JSON lines; None: the folder's queries.jsonl
    only_judged: bool = False  # restrict to queries that the qrels label
    sample: Count | None = None  # number of queries, drawn by seed; None: all
    store: BesidePath | None = None  # None: NAME.golden beside the configuration
    language: Literal["en", "fr"] = "en"
    seed: Annotated[int, Field(ge=0)] = 0
    rewriter: RewriterChoice | None = None
    embedder: EmbedderChoice = WordllamaSettings()
    index: IndexChoice = FlatSettings()
    bm25: SparseChoice | None = None  # None: BM25 in the language of the golden set
    retrievers: dict[ListName, RetrieverChoice] = {}  # search engines, by the name of their list
    pool: PoolSettings = PoolSettings()
    depths: DepthsSettings = DepthsSettings()
    judge: JudgeChoice
    passage_chars: Count | None = None  # shown to the judge; None: all
    grading: GradingSettings = GradingSettings()
    pruning: PruningSettings = PruningSettings()
    ranking: RankingSettings = RankingSettings()
    limits: LimitsSettings = LimitsSettings()
    prompts: PromptSettings = PromptSettings()
    prices: BesidePath | None = None  # a price file; None: the built-in one

    @model_validator(mode="after")
    def _check_combinations(self) -> GoldenSettings:
        """Refuse two lists of one name, empty pools, and a panel with a method for one judge."""
        pool = self.pool
        names = ["dense", "bm25"]
        for key, new_names in (
            ("retrievers", list(self.retrievers)),
            ("pool.embedders", list(pool.embedders)),
            ("pool.sparse", list(pool.sparse)),
            ("pool.runs", [run.name.split(".")[0] for run in pool.runs]),
        ):
            for name in new_names:
                if name in names:
                    raise InputError(
                        f"{key}: {name!r} is the name of a list already",
                        remedy="give it another name",
                    )
                names.append(name)
        if self.ranking.method != "posterior" and getattr(self.judge, "type", "") == "panel":
            raise InputError(
                f"a panel, and ranking.method: {self.ranking.method}",
                remedy="this method has one judge: name one, or choose method: posterior",
            )
        if not (self.depths.dense or self.depths.bm25 or len(names) > 2 or pool.sweep):
            raise InputError("dense and bm25 are both 0", remedy="retrieve something")
        return self

    @property
    def human_labels(self) -> Path | None:
        """The file with people's labels; None if the folder has none, either."""
        folder_qrels = self.corpus / "qrels" / "test.tsv"
        return self.qrels or (folder_qrels if folder_qrels.is_file() else None)

    @property
    def sparse(self) -> Any:
        """The settings of the list `bm25`."""
        return self.bm25 or Bm25Settings(language=self.language)

    @property
    def refinement(self) -> RefineSettings:
        """What `refinement` needs to put pools in order."""
        ranking = self.ranking
        return RefineSettings(
            batch=ranking.batch,
            depth=ranking.depth or self.pruning.target,
            per_round=ranking.per_round,
            budget=ranking.budget,
            target=ranking.target,
        )
