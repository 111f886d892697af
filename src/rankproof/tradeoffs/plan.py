"""The settings of a sweep, and every configuration that they span."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, ValidationInfo, field_validator, model_validator

from rankproof.data.tables import SET_SCALE, Scale
from rankproof.foundation.config import BesidePath, Count, Settings, Share
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure, parse
from rankproof.presentation.display import Displayed
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Column, Table
from rankproof.retrieval.chunks import ChunkSettings
from rankproof.retrieval.components import (
    EmbedderChoice,
    IndexChoice,
    Kind,
    RerankerChoice,
    RetrieverChoice,
    RewriterChoice,
    SparseChoice,
    find_component,
    uses_network,
)
from rankproof.retrieval.depth import DepthSettings
from rankproof.retrieval.duplicates import DuplicatesSettings
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
from rankproof.retrieval.indexes.flat import FlatSettings
from rankproof.retrieval.sparse.bm25 import Bm25Settings
from rankproof.tradeoffs.answers import AnswersSettings
from rankproof.tradeoffs.load import LoadSettings
from rankproof.tradeoffs.pareto import quality_measure
from rankproof.tradeoffs.results import AT_PROMPT

Name = Annotated[str, StringConstraints(pattern=r"^[\w.+-]{1,60}$")]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Mode = Literal["dense", "sparse", "hybrid", "retriever"]
Built = Literal["dense", "sparse", "hybrid"]
NONE = "none"  # the point of an axis that does nothing: no reranker, no rewriter, …
DYNAMIC: Literal["dynamic"] = "dynamic"
SETS = ("RAnWG", "NRecall4", "NRecall5", "P4", "Harm")


class FusionSettings(Settings):
    """How the dense and the sparse list of a hybrid are fused into one."""

    method: Literal["rrf", "weighted", "sum", "mnz"] = "rrf"
    k: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0  # for rrf
    normalise: Literal["minmax", "z", "none"] = "minmax"  # for all but rrf
    weights: tuple[Weight, Weight] = (1.0, 1.0)  # dense, sparse; for rrf and weighted
    depth: Count = 100  # passages of each list

    @model_validator(mode="after")
    def _check_weights(self) -> FusionSettings:
        if not any(self.weights):
            raise InputError("weights: all are 0", remedy="give one above 0")
        if self.method in ("sum", "mnz") and len(set(self.weights)) > 1:
            raise InputError(
                f"weights with the method {self.method}", remedy="use the method weighted, or rrf"
            )
        return self


class LatencySettings(Settings):
    """How times are measured: query by query, with the stages of all configurations in turn."""

    queries: Count = 60  # below 59 a p95 has no upper end that holds whatever the distribution
    repeats: Count = 3
    warmup: Annotated[int, Field(ge=0)] = 3  # queries asked first and not counted


class SweepSettings(Settings):
    """chunkings × rewriters × embedders × dimensions × indexes × modes × fusions × duplicates ×
    pools × rerankers × prompts, on one corpus.

    >>> from pathlib import Path
    >>> from rankproof.tradeoffs.plan import SweepSettings
    >>> SweepSettings(corpus=Path("try/corpus"), modes=["sparse"], pools=[30]).pools
    [30]
    """

    corpus: BesidePath
    qrels: BesidePath | None = None
    grades: dict[int, Annotated[int, Field(ge=0)]] | None = None  # regrade: {0: 1, 1: 5}
    seed: Annotated[int, Field(ge=0)] = 0
    language: str | None = None  # of every component that has one and does not set it
    chunkings: dict[Name, ChunkSettings | None] = {NONE: None}  # none: documents as they are
    rewriters: dict[Name, RewriterChoice | None] = {NONE: None}  # `rewriter: …` is one
    embedders: dict[Name, EmbedderChoice] = {"wordllama": WordllamaSettings()}
    dimensions: list[Count | None] = [None]  # the first so many of each vector; null keeps all
    indexes: dict[Name, IndexChoice] = {"flat": FlatSettings()}
    sparse: SparseChoice = Bm25Settings()
    modes: list[Built] = ["dense", "sparse", "hybrid"]
    retrievers: dict[Name, RetrieverChoice] = {}  # whole engines, each beside the modes
    fusions: dict[Name, FusionSettings] = {"rrf": FusionSettings()}  # `fusion: …` is one
    duplicates: dict[Name, DuplicatesSettings | None] = {NONE: None}  # or the settings of one
    pools: list[Count | Literal["dynamic"]] = [50]
    depth: DepthSettings = DepthSettings()  # of the pool that is dynamic
    rerankers: dict[Name, RerankerChoice | None] = {NONE: None}
    blends: dict[Name, Share] = {}  # reranker → weight of the first stage's score
    prompts: list[Count] = [10]  # passages given to the generator
    at: list[Count] = [10, 20, 30]  # of the set measures, which need grades 1–5; [] skips them
    measures: list[str] = ["nDCG@10", "RR@10"]  # besides the set measures
    best_by: str | None = None  # RAnWG at the prompt; without set measures the first of the others
    holes: Literal["leave", "judge"] = "leave"  # judge: have unjudged passages of any top k graded
    judge: BesidePath | None = None  # the configuration of a golden set, whose judge grades
    latency: LatencySettings = LatencySettings()
    load: LoadSettings | None = None  # rates at which the first stages are driven
    prices: BesidePath | None = None  # a price file; by default the one that ships
    rerank_prices: dict[
        Name, str
    ] = {}  # reranker → its name in the price file; by default its model
    generator: str | None = None  # its name in the price file; without one it costs nothing
    tokens_per_passage: Count | None = None  # that the generator reads; by default estimated
    tokens_per_answer: Count | None = None  # that the generator writes; by default not counted
    answers: AnswersSettings | None = (
        None  # the model that answers from the prompts, and how it is scored
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_shorthands(cls, data: Any) -> Any:
        """Turn `rewriter`, `fusion` and settings of `duplicates` into axes with one point, and add
        the language to every component that has one and does not set it."""
        if not isinstance(data, dict):
            return data
        data = dict(data)
        for one, axis in (("rewriter", "rewriters"), ("fusion", "fusions")):
            if one in data:
                if axis in data:
                    raise InputError(f"{one} and {axis} are both given", remedy=f"use {axis}")
                point = data.pop(one)
                if point is not None:
                    data[axis] = {_point_name(point, one): point}
        duplicates = data.get("duplicates")
        if isinstance(duplicates, DuplicatesSettings) or (
            isinstance(duplicates, dict) and set(duplicates) & set(DuplicatesSettings.model_fields)
        ):
            data["duplicates"] = {"dropped": duplicates}
        elif duplicates is None:
            data.pop("duplicates", None)
        language = data.get("language")
        if isinstance(language, str):
            data["sparse"] = _with_language(
                data.get("sparse", {"type": "bm25"}), "sparse", language
            )
            for axis, kind in _KINDS.items():
                if isinstance(parts := data.get(axis), Mapping):
                    data[axis] = {n: _with_language(p, kind, language) for n, p in parts.items()}
        return data

    @field_validator(
        *("embedders", "dimensions", "indexes", "pools", "rerankers", "prompts", "at"),
        *("rewriters", "fusions", "duplicates", "chunkings"),
    )
    @classmethod
    def _check_axis(cls, value: Any, info: ValidationInfo) -> Any:
        """Raise InputError for an axis without points, or with one twice; `at` may be empty."""
        if not value and info.field_name != "at":
            raise InputError("nothing is listed", remedy="list one or more, or leave the key out")
        if isinstance(value, list) and len(set(map(str, value))) < len(value):
            raise InputError("something is listed twice", remedy="list each once")
        return value

    @field_validator("rerankers", "rewriters", "duplicates", "chunkings")
    @classmethod
    def _check_none(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Raise InputError unless the point `none`, and it alone, has no settings."""
        for name, settings in value.items():
            if (settings is None) != (name == NONE):
                raise InputError(
                    f"{name} has no settings" if settings is None else f"{NONE!r} has settings",
                    remedy=f"only `{NONE}:` stands for no {str(info.field_name).rstrip('s')}, and "
                    "it takes no settings",
                )
        return value

    @field_validator("measures")
    @classmethod
    def _normalize_measures(cls, value: list[str]) -> list[str]:
        return [str(parse(name).require_cutoff()) for name in value]

    @field_validator("best_by")
    @classmethod
    def _normalize_best_by(cls, value: str | None) -> str | None:
        if value is None or value.endswith(AT_PROMPT):
            quality_measure(_at_cutoff(value or "RAnWG@1", 1))
            return value
        return str(quality_measure(value))

    @model_validator(mode="after")
    def _check_together(self) -> SweepSettings:
        """Check what several keys decide together."""
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
        self._check_best_by()
        self._check_reranker_names()
        self._check_pools()
        self._check_dimensions()
        return self

    def _check_best_by(self) -> None:
        """Raise InputError if `best_by` is not measured, or compares prompts of other sizes."""
        if len(self.prompts) > 1 and not self.chosen_by.endswith(AT_PROMPT):
            base = parse(self.chosen_by)
            if base.cutoff is not None:
                raise InputError(
                    f"best_by: {base} is not the quality of prompts of "
                    f"{' and '.join(map(str, self.prompts))} passages",
                    remedy=f"use {str(base).rpartition('@')[0]}{AT_PROMPT}: each at its own",
                )
        needed = {_at_cutoff(self.chosen_by, k) for k in self.prompts}
        if not needed <= set(map(str, self.all_measures)):
            raise InputError(
                f"best_by: {self.chosen_by} is not among the measures",
                remedy=f"use one of {', '.join(map(str, self.all_measures))}",
            )

    def _check_reranker_names(self) -> None:
        for key, names in (("rerank_prices", self.rerank_prices), ("blends", self.blends)):
            unknown = next((name for name in names if name not in self.rerankers), None)
            if unknown is not None:
                raise InputError(
                    f"{key}: there is no reranker {unknown!r}",
                    remedy=f"use {', '.join(self.rerankers)}",
                )

    def _check_pools(self) -> None:
        """Raise InputError for pools smaller than a prompt, and for unusable dynamic pools."""
        is_dynamic = DYNAMIC in self.pools
        fixed = [pool for pool in self.pools if pool != DYNAMIC]
        smallest = min([*fixed, *([self.depth.start] if is_dynamic else [])])
        if max(self.prompts) > smallest:
            raise InputError(
                f"a prompt of {max(self.prompts)} passages from a pool of {smallest}",
                remedy="make the pool larger or the prompt smaller",
            )
        if is_dynamic and set(self.rerankers) == {NONE}:
            raise InputError(
                "pools: a dynamic one goes as deep as a reranker's doubt, and there is no reranker",
                remedy="name a reranker, or leave out the dynamic pool",
            )
        if is_dynamic and self.depth.start >= self.depth.deep:
            raise InputError(
                f"depth: start {self.depth.start} is not below deep {self.depth.deep}",
                remedy="start shallow and go deep",
            )

    def _check_dimensions(self) -> None:
        largest = max(size or 0 for size in self.dimensions)
        for name, embedder in self.embedders.items():
            own = getattr(embedder, "dimensions", None)
            if own is not None and largest > own:
                raise InputError(
                    f"dimensions: {largest} where embedder {name} has {own}",
                    remedy="ask for as many as it has, or fewer",
                )

    def on_scale(self, scale: Scale | None) -> SweepSettings:
        """Return the settings with their measures on the scale of the judgments."""
        if scale is None or self.grades is not None:
            return self
        measures = [str(parse(name).on_scale(scale)) for name in self.measures]
        return self.model_copy(update={"measures": measures, "best_by": self._best(scale)})

    @property
    def _scale(self) -> Scale | None:
        """The scale 1–5 if there are set measures, which need it; the others then use it too."""
        return SET_SCALE if self.at else None

    def _best(self, scale: Scale | None) -> str:
        """Return the measure that chooses the best configuration, on a scale of grades."""
        name = self.best_by or self._default_best()
        if name.endswith(AT_PROMPT) and len(self.prompts) > 1:
            base = parse(_at_cutoff(name, 1)).on_scale(scale)
            return str(base).removesuffix("@1") + AT_PROMPT
        return str(parse(_at_cutoff(name, self.prompts[0])).on_scale(scale))

    def _default_best(self) -> str:
        """Return RAnWG at the prompt; without set measures the first of which more is better."""
        if self.at:
            return f"RAnWG{AT_PROMPT}"
        rising = [name for name in self.measures if parse(_at_cutoff(name, 1)).sign > 0]
        if not rising or len(self.prompts) == 1 or "@" not in rising[0]:
            return (rising or self.measures)[0]
        return rising[0].rpartition("@")[0] + AT_PROMPT

    @property
    def chosen_by(self) -> str:
        """The measure that compares configurations: `RAnWG@10`, or `RAnWG@prompt` where prompts
        differ, each at the number of passages that it gives."""
        return self._best(self._scale)

    def quality(self, configuration: Configuration) -> Measure:
        """Return that measure for one configuration, at the passages of its prompt."""
        return parse(_at_cutoff(self.chosen_by, configuration.prompt_k))

    @property
    def at_prompt(self) -> list[str]:
        """Measures reported at each configuration's own prompt, where prompts differ."""
        if len(self.prompts) == 1:
            return []
        bases = [*(SETS if self.at else ()), self.chosen_by.removesuffix(AT_PROMPT)]
        return list(dict.fromkeys(base for base in bases if "@" not in base))

    @property
    def all_measures(self) -> list[Measure]:
        """Each measure once, in the order of the table."""
        cutoffs = sorted({*self.at, *self.prompts}) if self.at else []
        sets = [f"{name}@{k}" for k in cutoffs for name in SETS]
        chosen = (
            [_at_cutoff(self.chosen_by, k) for k in self.prompts] if self.best_by is None else []
        )
        own = [_at_cutoff(f"{base}{AT_PROMPT}", k) for base in self.at_prompt for k in self.prompts]
        named = [str(parse(name).on_scale(self._scale)) for name in self.measures]
        return list(dict.fromkeys(parse(name) for name in (*sets, *named, *chosen, *own)))


_KINDS: dict[str, Kind] = {
    "rewriters": "rewriter",
    "embedders": "embedder",
    "retrievers": "retriever",
    "rerankers": "reranker",
}


def _with_language(part: Any, kind: Kind, language: str) -> Any:
    """Return the settings of a component with the language, if it has one and none is set."""
    name = part.get("type") if isinstance(part, dict) and "language" not in part else None
    if (
        isinstance(name, str)
        and ":" not in name
        and "language" in find_component(kind, name).settings.model_fields
    ):
        return {**part, "language": language}
    return part


def _point_name(settings: Any, default: str) -> str:
    """Return the name of the only point of an axis: its type or method."""
    keys = settings if isinstance(settings, dict) else getattr(settings, "__dict__", {})
    name = str(keys.get("type") or keys.get("method") or default)
    return name.replace(":", ".")


def _at_cutoff(name: str, k: int) -> str:
    """Return `RAnWG@prompt` as `RAnWG@k`; any other measure as it is."""
    if not name.endswith(AT_PROMPT):
        return str(parse(name))
    return str(parse(f"{name.removesuffix(AT_PROMPT)}@{k}"))


@dataclass(frozen=True, slots=True)
class Configuration:
    """One point of the grid; None for what its mode does not use."""

    mode: Mode
    embedder: str | None
    dimensions: int | None
    index: str | None
    pool: int | Literal["dynamic"]
    reranker: str
    prompt_k: int
    retriever: str | None = None
    rewriter: str = NONE
    fusion: str | None = None
    duplicates: str = NONE
    chunking: str = NONE
    named_axes: tuple[str, ...] = field(default=(), compare=False)  # axes with several points

    @property
    def name(self) -> str:
        """Name with every setting that distinguishes it in the grid."""
        dense = [part for part in (self.embedder, self.index) if part is not None]
        if self.dimensions is not None:
            dense[0] = f"{dense[0]}:{self.dimensions}"
        settings = [
            f"{axis}={value}"
            for axis in self.named_axes
            if (value := getattr(self, axis)) not in (None, NONE)
        ]
        parts = [self.retriever or self.mode, *dense, *settings, f"K={self.pool}"]
        if self.reranker != NONE:
            parts.append(self.reranker)
        return " ".join([*parts, f"top {self.prompt_k}"])

    @property
    def family(self) -> str:
        """Name shared by configurations that differ in their pool alone."""
        return " ".join(part for part in self.name.split(" ") if not part.startswith("K="))

    @property
    def ranks(self) -> Configuration:
        """The configuration without its prompt: all that decides its list."""
        return replace(self, prompt_k=0)

    def to_dict(self) -> dict[str, Any]:
        """The settings as columns."""
        return {key: value for key, value in asdict(self).items() if key != "named_axes"}


def configurations(settings: SweepSettings) -> Iterator[Configuration]:
    """Yield the grid in the order of the file; axes that a mode does not use do not multiply it."""
    axes: dict[str, Mapping[str, Any]] = {
        "rewriter": settings.rewriters,
        "fusion": settings.fusions,
        "duplicates": settings.duplicates,
        "chunking": settings.chunkings,
    }
    named_axes = tuple(axis for axis, points in axes.items() if len(points) > 1)
    first_stages = _first_stages(settings)
    # An engine of its own has chunked its texts already.
    engine_chunking = NONE if NONE in settings.chunkings else next(iter(settings.chunkings))
    for chunking, stage, rewriter, duplicates in product(
        settings.chunkings, first_stages, settings.rewriters, settings.duplicates
    ):
        if stage.retriever is not None and chunking != engine_chunking:
            continue
        depth = 0 if stage.fusion is None else settings.fusions[stage.fusion].depth
        for reranker in settings.rerankers:
            pools = settings.pools
            if reranker == NONE:
                pools = _distinct_pools(settings, depth, 1 if duplicates == NONE else 2)
            for pool, prompt in product(pools, settings.prompts):
                yield Configuration(
                    mode=stage.mode,
                    embedder=stage.embedder,
                    dimensions=stage.dimensions,
                    index=stage.index,
                    pool=pool,
                    reranker=reranker,
                    prompt_k=prompt,
                    retriever=stage.retriever,
                    rewriter=rewriter,
                    fusion=stage.fusion,
                    duplicates=duplicates,
                    chunking=chunking,
                    named_axes=named_axes,
                )


@dataclass(frozen=True, slots=True)
class _FirstStage:
    """A way to retrieve; None for what its mode does not use."""

    mode: Mode
    embedder: str | None = None
    dimensions: int | None = None
    index: str | None = None
    retriever: str | None = None
    fusion: str | None = None


def _first_stages(settings: SweepSettings) -> list[_FirstStage]:
    """Return every way to retrieve: modes with their embedders and fusions, then engines."""
    stages = []
    for mode in settings.modes:
        dense: list[tuple[Any, ...]] = [(None, None, None)]
        if mode != "sparse":
            dense = list(product(settings.embedders, settings.dimensions, settings.indexes))
        fusions = list(settings.fusions) if mode == "hybrid" else [None]
        for (embedder, dimensions, index), fusion in product(dense, fusions):
            stages.append(_FirstStage(mode, embedder, dimensions, index, fusion=fusion))
    return [*stages, *(_FirstStage("retriever", retriever=name) for name in settings.retrievers)]


@dataclass(frozen=True, slots=True, repr=False)
class SweepPlan(Displayed):
    """The configurations of a sweep that was not run."""

    kind: ClassVar[str] = "plan"
    grid: tuple[Configuration, ...]
    network: tuple[bool, ...]  # whether a component of each answers over a network

    @classmethod
    def of(cls, settings: SweepSettings) -> SweepPlan:
        """List the configurations of a sweep."""
        grid = tuple(configurations(settings))
        return cls(grid, tuple(over_network(settings, c) for c in grid))

    def summary(self) -> Summary:
        """The number of configurations."""
        return Summary(notes=[plural(len(self.grid), "configuration")])

    def tables(self) -> list[Table]:
        """One row per configuration."""
        columns = [Column("configuration", "text", folds=True), Column("over a network", "text")]
        pairs = zip(self.grid, self.network, strict=True)
        return [Table(columns, [(c.name, "yes" if network else "no") for c, network in pairs])]

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof sweep --plan --format json` prints."""
        pairs = zip(self.grid, self.network, strict=True)
        return {"configurations": [c.to_dict() | {"network": network} for c, network in pairs]}


def _distinct_pools(settings: SweepSettings, depth: int, times: int) -> list[Any]:
    """Return the pools that give different results without a reranker.

    Of pools that hold all that is measured, and whose lists are fused equally deep, the smallest
    stands for all. `depth` is that of fused lists, `times` how much deeper lists go than pools.
    """
    fixed = [pool for pool in settings.pools if pool != DYNAMIC] or [settings.depth.start]
    cutoffs = [m.cutoff for m in settings.all_measures]
    needed = max([*settings.prompts, *(k if k is not None else 1 << 31 for k in cutoffs)])
    smallest: dict[tuple[int, int], int] = {}
    for pool in sorted(fixed):
        key = (min(pool, needed), max(times * pool, depth) if depth else 0)
        smallest.setdefault(key, pool)
    return [pool for pool in fixed if pool in smallest.values()]


def over_network(settings: SweepSettings, configuration: Configuration) -> bool:
    """True if a component of the configuration answers over a network."""
    return any(uses_network(part) for _, part in parts_of(settings, configuration))


def parts_of(settings: SweepSettings, c: Configuration) -> list[tuple[str, Any]]:
    """Return the settings of every component of a configuration, with its stage."""
    components: list[tuple[str, Any]] = [("rewrite", settings.rewriters[c.rewriter])]
    if c.embedder is not None and c.index is not None:
        components += [
            ("embed", settings.embedders[c.embedder]),
            ("retrieve", settings.indexes[c.index]),
        ]
    if c.retriever is not None:
        components.append(("retrieve", settings.retrievers[c.retriever]))
    if c.mode in ("sparse", "hybrid"):
        components.append(("retrieve", settings.sparse))
    components.append(("rerank", settings.rerankers[c.reranker]))
    return [(stage, part) for stage, part in components if part is not None]
