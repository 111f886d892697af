"""Write golden.yaml and sweep.yaml to begin with, commented, for what is installed and named."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec

CROSS_ENCODER = "cross-encoder/ms-marco-MiniLM-L6-v2"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
_POOL_SIZE = 50  # passages that are judged, and reranked, for a question
_PROMPT_SIZE = 10  # passages given to the generator


def has_torch() -> bool:
    """True if models that need torch can run here."""
    return all(find_spec(name) is not None for name in ("torch", "sentence_transformers"))


def downloaded_models() -> list[str]:
    """Models of the hub that are on this machine."""
    if find_spec("huggingface_hub") is None:
        return []
    import huggingface_hub

    from rankproof.foundation.model_hub import cached_models

    return cached_models(huggingface_hub)


def _cross_encoder() -> tuple[str, bool]:
    """The name of a reranker, and whether it can run here without a download."""
    is_reranker = re.compile("cross-encoder|rerank", re.I).search
    downloaded = next(filter(is_reranker, downloaded_models()), None)
    return downloaded or CROSS_ENCODER, has_torch() and downloaded is not None


def golden_yaml(url: str | None, model: str | None, key_env: str | None) -> str:
    """Return golden.yaml, with this chat endpoint as judge, else a reranker or none."""
    return f"""\
# Who judges which passages: `rankproof golden build golden.yaml --dry-run` says what it costs.
# Every key: docs/golden.md.

corpus: .                    # this folder: corpus.jsonl and queries.jsonl
# language: fr               # of questions and passages, where it is not English

{_judge(url, model, key_env)}
depths:
  dense: 100                 # passages found by meaning, for each question
  bm25: 100                  # passages found by words
  pool: {_POOL_SIZE}                   # of both merged: this many are judged

ranking:
  budget: 0                  # calls for each question that put the best in order as well; a sweep
                             # reads grades alone, so 0 is enough (80 settles a top 20)
limits:
  concurrency: 4             # requests at a time
  # max_cost: 5.00           # US dollars in all; then it stops, and goes on when you raise it
"""


def _judge(url: str | None, model: str | None, key_env: str | None) -> str:
    """The key `judge` of golden.yaml; only a comment where nothing can judge."""
    if url is not None and model is not None:
        key = f"key_env: {key_env}" if key_env else "# key_env: MY_KEY"
        return f"""\
judge:
  type: llm                  # a chat model, asked for a grade from 1 to 5 of each passage
  url: {json.dumps(url)}
  model: {json.dumps(model)}
  {key:<26} # the environment variable that holds the key
  # price: {{input_per_1m: 0.15, output_per_1m: 0.60}}   # US dollars, where it is not known
"""
    reranker, can_run = _cross_encoder()
    if can_run:
        return f"""\
# No endpoint was named, so a reranker judges: its scores are cut into grades by their share, which
# says which passage is better and not whether any is good. A chat model is the better judge:
#   judge: {{type: llm, url: "http://localhost:8000/v1", model: NAME, key_env: MY_KEY}}
judge:
  type: cross-encoder
  reranker: {{type: cross-encoder, model: {json.dumps(reranker)}}}
"""
    return f"""\
# No endpoint was named and no reranker is on this machine, so nobody can judge yet. Fill this in:
# judge:
#   type: llm                # a chat model behind any server that speaks OpenAI's chat shape
#   url: http://localhost:8000/v1
#   model: NAME
#   key_env: MY_KEY          # the environment variable that holds the key, if there is one
# Or let a reranker judge ({_model_requirement()}):
# judge: {{type: cross-encoder, reranker: {{type: cross-encoder, model: {reranker}}}}}
"""


def sweep_yaml(passages: int, judge: str | None) -> str:
    """Return sweep.yaml for a corpus of this many passages and a judge of this type."""
    pool, prompt = min(_POOL_SIZE, passages), min(_PROMPT_SIZE, passages)
    mark = "" if judge == "llm" else "# "
    holes, judge_file = f"{mark}holes: judge", f"{mark}judge: golden.yaml"
    return f"""\
# What is compared: `rankproof sweep sweep.yaml --plan` lists every configuration.
# Every key: docs/sweep.md; every part: `rankproof parts`.

corpus: .                    # this folder
qrels: golden/qrels.txt      # what `rankproof golden export golden.golden --out golden` writes
# language: fr               # of questions and passages, where it is not English

embedders:
  wordllama: {{type: wordllama}}   # small static vectors: no torch, no download
{_embedder()}
  # yours: {{type: endpoint, url: "http://localhost:8000/v1", model: NAME}}
indexes:
  flat: {{type: flat}}         # every passage is looked at; exact
  # hnsw: {{type: hnsw}}       # a graph: faster for many passages, a little less exact
modes: [dense, sparse, hybrid]   # by meaning, by words (BM25), both fused
pools: [{pool}]                  # candidates that a reranker reads
rerankers:
  none:                      # the order of the first stage
{_reranker(judge)}
prompts: [{prompt}]                # passages given to the generator
# generator: GPT-5 mini      # whose input is paid for: a name in the price file

{holes:<28} # grade what a configuration finds and nobody judged
{judge_file:<28} # by the same judge
"""


def _embedder() -> str:
    """A line with an embedder that needs torch; a comment if it cannot run here yet."""
    line = f"minilm: {{type: sentence-transformers, model: {MINILM}}}"
    if has_torch() and MINILM in downloaded_models():
        return f"  {line}"
    return f"  # {line}   # {_model_requirement()}"


def _model_requirement() -> str:
    """What a model of the hub needs that is not on this machine."""
    return "fetched from the hub once" if has_torch() else "needs rankproof[torch]"


def _reranker(judge: str | None) -> str:
    """A line with a reranker; a comment if it judges, or cannot run here yet."""
    name, can_run = _cross_encoder()
    line = f"cross-encoder: {{type: cross-encoder, model: {name}}}"
    if judge == "cross-encoder":
        return f"  # {line}   # it judges here: it would mark its own work"
    if can_run:
        return f"  {line}"
    return f"  # {line}   # {_model_requirement()}"
