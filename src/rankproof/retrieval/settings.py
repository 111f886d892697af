"""What a configuration may say of each part of the stack. `type` chooses the implementation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rankproof.config import ModelName, Settings
from rankproof.scoring.formats import Format

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]


# What an answer does not depend on: how it is asked for.
OPERATION = frozenset({"key_env", "timeout_s", "attempts", "batch"})


class Endpoint(Settings):
    """A server that speaks JSON over HTTP. The key is in the environment, never in a file."""

    url: str
    model: str
    key_env: str | None = None  # the environment variable that holds the key
    timeout_s: Seconds = 60.0
    attempts: Count = 6  # of one request: 429, 5xx and broken connections are tried again
    batch: Count = 64


# ------------------------------------------------------------------------------------ embedders


class WordllamaSettings(Settings):
    """Static word vectors: no torch, no download."""

    type: Literal["wordllama"] = "wordllama"
    dimensions: Literal[64, 128, 256] = 256
    query_prompt: str = ""
    passage_prompt: str = ""


class SentenceTransformersSettings(Settings):
    """Any sentence-transformers model, by name or folder. A prompt of None is the model's own."""

    type: Literal["sentence-transformers"]
    model: ModelName
    dimensions: Count | None = None  # keep the first ones (Matryoshka)
    query_prompt: str | None = None
    passage_prompt: str | None = None
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    max_tokens: Count | None = None
    batch: Count = 32


class EmbeddingEndpointSettings(Endpoint):
    """POST {model, input}: OpenAI's shape, or Voyage's with input_type."""

    type: Literal["endpoint"]
    shape: Literal["openai", "voyage"] = "openai"
    dimensions: Count | None = None
    query_prompt: str = ""
    passage_prompt: str = ""


EmbedderSettings = Annotated[
    WordllamaSettings | SentenceTransformersSettings | EmbeddingEndpointSettings,
    Field(discriminator="type"),
]

# -------------------------------------------------------------------------------------- indexes


class FlatSettings(Settings):
    """Every passage is compared: exact in the format it is stored in."""

    type: Literal["flat"] = "flat"
    format: Format = "float32"
    high_precision: bool = True
    rescore: Literal["decoded", "original"] = "decoded"
    candidates: Count | None = None


class HnswSettings(Settings):
    """A graph that is searched in part, by faiss."""

    type: Literal["hnsw"]
    format: Literal["float32", "float16", "bfloat16", "int8", "bit"] = "float32"
    m: Annotated[int, Field(ge=2, le=256)] = 32
    ef_construction: Count = 200
    ef_search: Count = 64
    candidates: Count | None = None  # rescored with the original vectors where given


class PgvectorSettings(Settings):
    """PostgreSQL with the pgvector extension. The connection string is in the environment."""

    type: Literal["pgvector"]
    dsn_env: str = "RANKPROOF_POSTGRES"
    method: Literal["flat", "hnsw"] = "flat"
    format: Literal["float32", "float16", "bit"] = "float32"
    m: Annotated[int, Field(ge=2, le=100)] = 16
    ef_construction: Annotated[int, Field(ge=4, le=1000)] = 64
    ef_search: Annotated[int, Field(ge=1, le=1000)] = 100
    candidates: Count | None = None  # of `bit`: rescored with the stored vectors


IndexSettings = Annotated[
    FlatSettings | HnswSettings | PgvectorSettings, Field(discriminator="type")
]


class Bm25Settings(Settings):
    """BM25 with a stemmer and stop words of a language."""

    type: Literal["bm25"] = "bm25"
    language: Literal["en", "fr", "none"] = "en"
    k1: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.2
    b: Share = 0.75
    method: Literal["lucene", "robertson", "atire", "bm25+", "bm25l"] = "lucene"


# ------------------------------------------------------------------------------------ rerankers


class CrossEncoderSettings(Settings):
    """A sentence-transformers CrossEncoder, scored in high precision."""

    type: Literal["cross-encoder"]
    model: ModelName
    high_precision: bool = True
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    max_tokens: Count | None = None
    batch: Count = 32


class RerankEndpointSettings(Endpoint):
    """POST {model, query, documents} in the shape of Cohere or Voyage."""

    type: Literal["endpoint"]
    shape: Literal["cohere", "voyage"] = "cohere"


class MaxSimSettings(Settings):
    """Late interaction: each query token takes its best passage token; their mean."""

    type: Literal["maxsim"]
    model: ModelName  # a sentence-transformers model; its token vectors are used
    special_tokens: bool = False  # whether [CLS], [SEP] and the like count as tokens
    max_tokens: Count | None = None
    batch: Count = 32
    memory_mb: Count = 1024  # for the token vectors of passages


RerankerSettings = Annotated[
    CrossEncoderSettings | RerankEndpointSettings | MaxSimSettings, Field(discriminator="type")
]

# ------------------------------------------------------------------------------------- rewriting


class RulesRewriterSettings(Settings):
    """Greetings, fillers and asides are cut by rules; works offline."""

    type: Literal["rules"] = "rules"
    language: Literal["en", "fr", "auto"] = "auto"
    keep: Literal["topics", "question"] = "topics"  # question: what does not ask goes too


class LlmRewriterSettings(Endpoint):
    """An OpenAI-compatible chat endpoint rewrites the question."""

    type: Literal["llm"]
    language: Literal["en", "fr", "auto"] = "auto"


RewriterSettings = Annotated[
    RulesRewriterSettings | LlmRewriterSettings, Field(discriminator="type")
]

# ----------------------------------------------------------------------------- pools: what is kept


class DuplicatesSettings(Settings):
    """Passages nearly equal to a better one are dropped before reranking."""

    threshold: Share = 0.9  # Jaccard similarity of word shingles
    shingle: Count = 3


class DepthSettings(Settings):
    """Dynamic K: start shallow, go deep where the ranking is unsure."""

    start: Count = 50
    deep: Count = 100
    margin: Annotated[float, Field(ge=0)] = 0.15  # dense: below it, go deep
    entropy: Annotated[float, Field(ge=0, le=1)] = (
        0.9  # of the reranker, 1 is uniform: above it, go deep
    )
