"""What a sweep runs: its settings, and every configuration they span."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rankproof.config import BesidePath, Count, Settings, Share
from rankproof.errors import InputError
from rankproof.measures import Measure, parse
from rankproof.retrieval.depth import DepthSettings
from rankproof.retrieval.duplicates import DuplicatesSettings
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
from rankproof.retrieval.indexes.flat import FlatSettings
from rankproof.retrieval.parts import (
    EmbedderChoice,
    IndexChoice,
    RerankerChoice,
    RetrieverChoice,
    RewriterChoice,
    SparseChoice,
    is_network,
)
from rankproof.retrieval.sparse.bm25 import Bm25Settings
from rankproof.tradeoffs.load import LoadSettings
from rankproof.tradeoffs.pareto import quality_measure

Name = Annotated[str, StringConstraints(pattern=r"^[\w.+-]{1,60}$")]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Mode = Literal["dense", "sparse", "hybrid", "retriever"]
Built = Literal["dense", "sparse", "hybrid"]
NONE = "none"  # the reranker that is not there
DYNAMIC: Literal["dynamic"] = "dynamic"
SETS = ("RAnWG", "NRecall4", "NRecall5", "P4", "Harm")


class FusionSettings(Settings):
    """How a hybrid makes one list of two."""

    method: Literal["rrf", "weighted", "sum", "mnz"] = "rrf"
    k: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0  # of rrf
    normalise: Literal["minmax", "z", "none"] = "minmax"  # of the others
    weights: tuple[Weight, Weight] = (1.0, 1.0)  # dense, sparse; of rrf and weighted
    depth: Count = 100  # of each list

    @model_validator(mode="after")
    def _weighed(self) -> FusionSettings:
        if not any(self.weights):
            raise InputError("weights: all are 0", remedy="give one above 0")
        if self.method in ("sum", "mnz") and len(set(self.weights)) > 1:
            raise InputError(
                f"weights with the method {self.method}", remedy="use the method weighted, or rrf"
            )
        return self


class LatencySettings(Settings):
    """How times are taken: single queries, the stages of all configurations in turn."""

    queries: Count = 60  # below 59 a p95 has no upper end that holds whatever the distribution
    repeats: Count = 3
    warmup: Annotated[int, Field(ge=0)] = 3  # queries asked first and not counted


class SweepSettings(Settings):
    """embedders × dimensions × indexes × modes × pools × rerankers × prompts, on one corpus."""

    corpus: BesidePath
    qrels: BesidePath | None = None
    grades: dict[int, Annotated[int, Field(ge=0)]] | None = None  # regrade: {0: 1, 1: 5}
    seed: Annotated[int, Field(ge=0)] = 0
    embedders: dict[Name, EmbedderChoice] = {"wordllama": WordllamaSettings()}
    dimensions: list[Count | None] = [None]  # the first so many of each vector; null keeps all
    indexes: dict[Name, IndexChoice] = {"flat": FlatSettings()}
    sparse: SparseChoice = Bm25Settings()
    modes: list[Built] = ["dense", "sparse", "hybrid"]
    retrievers: dict[Name, RetrieverChoice] = {}  # whole engines, each beside the modes
    fusion: FusionSettings = FusionSettings()
    pools: list[Count | Literal["dynamic"]] = [50]
    depth: DepthSettings = DepthSettings()  # of the pool that is dynamic
    rerankers: dict[Name, RerankerChoice | None] = {NONE: None}
    blends: dict[Name, Share] = {}  # reranker → what the first stage's score still counts for
    rewriter: RewriterChoice | None = None
    duplicates: DuplicatesSettings | None = None
    prompts: list[Count] = [10]  # passages given to the generator
    at: list[Count] = [10, 20, 30]  # of the set measures, which need grades 1–5; [] leaves them out
    measures: list[str] = ["nDCG@10", "RR@10"]  # besides the set measures
    best_by: str = "RAnWG@10"
    holes: Literal["leave", "judge"] = "leave"  # judge: grade what nobody judged in any top k
    judge: BesidePath | None = None  # who: a golden set's configuration
    latency: LatencySettings = LatencySettings()
    load: LoadSettings | None = None  # rates at which the first stages are driven
    prices: BesidePath | None = None  # a price file; without it the one that ships
    rerank_prices: dict[Name, str] = {}  # reranker → its name there; an endpoint's model by itself
    generator: str | None = None  # a name in the price file; without one its input costs nothing
    tokens_per_passage: Count | None = None  # of the generator; without it, estimated

    @model_validator(mode="before")
    @classmethod
    def _without_sets(cls, data: Any) -> Any:
        """Where no set measure is computed, the best is so by the first of the others."""
        if isinstance(data, dict) and data.get("at") == [] and "best_by" not in data:
            named = [str(name) for name in data.get("measures") or ["nDCG@10"]]
            first = next((name for name in named if not name.startswith("Harm")), named[0])
            return {**data, "best_by": first}
        return data

    @field_validator("embedders", "dimensions", "indexes", "pools", "rerankers", "prompts", "at")
    @classmethod
    def _some(cls, value: Any, info: ValidationInfo) -> Any:
        if not value and info.field_name != "at":
            raise InputError("nothing is listed", remedy="list one or more, or leave the key out")
        if isinstance(value, list) and len(set(map(str, value))) < len(value):
            raise InputError("something is listed twice", remedy="list each once")
        return value

    @field_validator("measures")
    @classmethod
    def _measures(cls, value: list[str]) -> list[str]:
        return [str(parse(name).require_cutoff()) for name in value]

    @field_validator("best_by")
    @classmethod
    def _quality(cls, value: str) -> str:
        return str(quality_measure(value))

    @model_validator(mode="after")
    def _possible(self) -> SweepSettings:
        if (self.holes == "judge") != (self.judge is not None):
            raise InputError(
                "holes: judge without a judge" if self.judge is None else "a judge of no holes",
                remedy="name both: `holes: judge` and `judge: golden.yaml`",
            )
        if not self.modes and not self.retrievers:
            raise InputError(
                "modes: nothing is listed", remedy="list one or more, or leave the key out"
            )
        if len(set(self.modes)) < len(self.modes):
            raise InputError("modes: something is listed twice", remedy="list each once")
        if self.best_by not in map(str, self.all_measures):
            raise InputError(
                f"best_by: {self.best_by} is not among the measures",
                remedy=f"use one of {', '.join(map(str, self.all_measures))}",
            )
        for name, settings in self.rerankers.items():
            if (settings is None) != (name == NONE):
                raise InputError(
                    f"rerankers: {name} has no settings"
                    if settings is None
                    else f"rerankers: {NONE!r} has settings",
                    remedy=f"only `{NONE}:` stands for no reranker, and it takes no settings",
                )
        for key, named in (("rerank_prices", self.rerank_prices), ("blends", self.blends)):
            unknown = next((name for name in named if name not in self.rerankers), None)
            if unknown is not None:
                raise InputError(
                    f"{key}: there is no reranker {unknown!r}",
                    remedy=f"use {', '.join(self.rerankers)}",
                )
        fixed = [pool for pool in self.pools if pool != DYNAMIC]
        smallest = min([*fixed, *([self.depth.start] if DYNAMIC in self.pools else [])])
        if max(self.prompts) > smallest:
            raise InputError(
                f"a prompt of {max(self.prompts)} passages from a pool of {smallest}",
                remedy="make the pool larger or the prompt smaller",
            )
        if DYNAMIC in self.pools:
            if self.depth.start >= self.depth.deep:
                raise InputError(
                    f"depth: start {self.depth.start} is not below deep {self.depth.deep}",
                    remedy="start shallow and go deep",
                )
            if ("sparse" in self.modes or self.retrievers) and NONE in self.rerankers:
                raise InputError(
                    "a dynamic pool decides by dense scores or by a reranker, and sparse, or a "
                    "retriever of its own, without a reranker has neither",
                    remedy="leave out the mode sparse, the reranker none, or the dynamic pool",
                )
        largest = max(d or 0 for d in self.dimensions)
        for name, embedder in self.embedders.items():
            own = getattr(embedder, "dimensions", None)
            if own is not None and largest > own:
                raise InputError(
                    f"dimensions: {largest} where embedder {name} has {own}",
                    remedy="ask for as many as it has, or fewer",
                )
        return self

    @property
    def all_measures(self) -> list[Measure]:
        """Each measure once, in the order of the table."""
        sets = [f"{name}@{k}" for k in self.at for name in SETS]
        return list(dict.fromkeys(parse(name) for name in (*sets, *self.measures)))


@dataclass(frozen=True, slots=True)
class Configuration:
    """One point of the grid. What a mode does not have is None."""

    mode: Mode
    embedder: str | None
    dimensions: int | None
    index: str | None
    pool: int | Literal["dynamic"]
    reranker: str
    prompt_k: int
    retriever: str | None = None

    @property
    def name(self) -> str:
        """Every setting that tells it from others, for tables."""
        dense = [part for part in (self.embedder, self.index) if part is not None]
        if self.dimensions is not None:
            dense[0] = f"{dense[0]}:{self.dimensions}"
        parts = [self.retriever or self.mode, *dense, f"K={self.pool}"]
        if self.reranker != NONE:
            parts.append(self.reranker)
        return " ".join([*parts, f"top {self.prompt_k}"])

    @property
    def family(self) -> str:
        """What configurations share that differ in their pool alone."""
        return " ".join(part for part in self.name.split(" ") if not part.startswith("K="))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def configurations(settings: SweepSettings) -> Iterator[Configuration]:
    """The grid, in the order of the file; what a mode does not use does not multiply it."""
    for mode in settings.modes:
        dense: list[tuple[str | None, int | None, str | None]] = [(None, None, None)]
        if mode != "sparse":
            dense = list(product(settings.embedders, settings.dimensions, settings.indexes))
        for (embedder, size, index), pool, reranker, prompt in product(
            dense, settings.pools, settings.rerankers, settings.prompts
        ):
            yield Configuration(mode, embedder, size, index, pool, reranker, prompt)
    for name, pool, reranker, prompt in product(
        settings.retrievers, settings.pools, settings.rerankers, settings.prompts
    ):
        yield Configuration("retriever", None, None, None, pool, reranker, prompt, name)


def over_network(settings: SweepSettings, configuration: Configuration) -> bool:
    """Whether a stage of it answers over a network."""
    parts: list[Any] = [settings.rewriter, settings.rerankers[configuration.reranker]]
    if configuration.embedder is not None and configuration.index is not None:
        parts += [settings.embedders[configuration.embedder], settings.indexes[configuration.index]]
    if configuration.retriever is not None:
        parts.append(settings.retrievers[configuration.retriever])
    return any(part is not None and is_network(part) for part in parts)
