"""Names of configurations in words, and what every figure on the page means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import polars as pl

from rankproof.foundation.errors import MeasureError
from rankproof.foundation.phrasing import plural
from rankproof.measures import REGISTRY, parse

_SPARSE = {"bm25": "BM25", "lucene": "BM25 as in Lucene"}
_INDEXES = {"flat": "exact", "hnsw": "HNSW"}
_CITED = re.compile(r" ?\[[A-Z] [^\]]*\]")  # of a paper's equation
_MEASURE = re.compile(r"\b([A-Za-z][A-Za-z0-9]*)(?:\([^)]*\))?@(?:\d+|prompt)")

TERMS = {
    "low": "The lower end of the 95% interval over queries.",
    "high": "The upper end of the 95% interval over queries.",
    "95%": "Where the figure of all such queries lies, with 95% confidence.",
    "judged": "The share of the passages behind the figure that somebody judged. What nobody "
    "judged counts as not relevant.",
    "alike": "Others that nothing tells apart from it, in quality, latency or cost.",
    "PROC": "The best that any order of the same candidates reaches.",
    "%PROC": "The figure in percent of PROC: what the order makes of its candidates.",
    "ordering headroom": "What a perfect order of the same candidates would add: for a reranker.",
    "retrieval headroom": "What no order can add, for the candidates lack it: for a deeper or "
    "better search.",
    "p50 ms": "Half of the queries take no longer, in milliseconds.",
    "p95 ms": "95 of 100 queries take no longer, in milliseconds.",
    "p99 ms": "99 of 100 queries take no longer, in milliseconds.",
    "cost per 1,000": "Of 1,000 queries, by the price file.",
    "index MB": "Size of the indexes that the configuration keeps.",
    "overlap@10": "The share of the top 10 that it has in common with the best configuration.",
    "τ@10": "Kendall's τ to the top 10 of the best configuration: 1 is the same order, −1 the "
    "opposite.",
    "front": "No other configuration is as good, as fast and as cheap.",
    "expected": "The mean over every order of tied scores.",
    "min": "The least that any order of tied scores gives.",
    "max": "The most that any order of tied scores gives.",
    "range": "max − min: what the order of tied scores decides.",
    "oblivious": "What one tie-break reports, as tools do that do not look at ties.",
    "bias": "oblivious − expected: what that tie-break adds.",
    "std": "Standard deviation of the figure over orders of tied scores.",
    "p": "The chance of a difference at least so large if the two were alike.",
    "p_holm": "p with Holm's correction for the number of comparisons.",
    "tied queries": "Queries with two or more passages of the same score.",
    "answer accuracy": "How right the answers from the prompt are, from 0 to 1, on average.",
    "given hit": "The same where every passage that answers was given: what is missing "
    "here is the generator's.",
    "abstained": "The share of the questions to which the generator said that it does not know.",
    "tied prompts": "Questions for which ties decide what the prompt holds.",
    "r": "Pearson's correlation with right answers, over pairs of configuration and question.",
    "same question": "The same of each less its mean over configurations: whether for one "
    "question the better set has the better answer.",
    "group": "The ranks that it is not told apart from.",
    "margin": "How much worse a candidate may be and still pass.",
    "queries needed": "About how many questions would decide it.",
    "not told apart": "The difference is no larger than chance explains, over all pairs at once "
    "(max-T, 95%).",
}


def sign_of(measure: str) -> int:
    """Of a difference that puts the first of two ahead; 1 for a measure not known here."""
    try:
        return parse(measure).sign
    except MeasureError:
        return 1


@lru_cache(256)  # every table asks anew, and what is no measure is looked for long
def meaning(term: str) -> str | None:
    """What a heading or a measure means; None where it speaks for itself."""
    if term in TERMS:
        return TERMS[term]
    name: str = term
    cutoff: int | str | None = None
    if term not in REGISTRY:
        try:
            measure = parse(term.replace("@prompt", "@1"))
        except MeasureError:
            return None
        name = measure.name
        cutoff = "the passages of the prompt" if "@prompt" in term else measure.cutoff
    said = REGISTRY[name].meaning or _CITED.sub("", REGISTRY[name].summary)
    return said if cutoff is None else f"{said} Here k = {cutoff}."


def measures_in(texts: Iterable[str]) -> list[str]:
    """Names of the measures that a text speaks of, each once."""
    found = (match[1] for text in texts for match in _MEASURE.finditer(text))
    return [name for name in dict.fromkeys(found) if name in REGISTRY]


@dataclass(frozen=True, slots=True)
class Words:
    """A configuration in words: all of it, and what tells it from the others."""

    full: str
    short: str


def in_words(frame: pl.DataFrame, config: Mapping[str, Any] | None) -> dict[str, Words]:
    """configuration → "BM25, 30 candidates, 5 passages in the prompt"; its own name where a table
    says no more."""
    own = {name: Words(name, name) for name in frame["configuration"]}
    if not {"mode", "embedder", "index", "reranker", "pool"} <= set(frame.columns):
        return own
    rows = list(frame.iter_rows(named=True))
    parts = [_parts(row, config or {}) for row in rows]
    varied = [at == 0 or len({some[at] for some in parts}) > 1 for at in range(len(parts[0]))]
    full = [", ".join(filter(None, some)) for some in parts]
    short = [
        ", ".join(p for p, kept in zip(some, varied, strict=True) if p and kept).replace(
            " vectors", ""
        )
        for some in parts
    ]
    if len(set(short)) < len(rows):  # an axis that has no words yet
        return own
    return {row["configuration"]: Words(f, s) for row, f, s in zip(rows, full, short, strict=True)}


def _parts(row: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    prompt = row.get("prompt_k")
    return [
        _found(row, config),
        _said("questions rewritten by", row.get("rewriter")),
        _said("documents cut by", row.get("chunking")),
        _pool(row, config),
        _said("duplicates dropped by", row.get("duplicates")),
        _said("reranked by", row["reranker"]),
        "" if prompt is None else f"{plural(prompt, 'passage')} in the prompt",
    ]


def _said(words: str, value: Any) -> str:
    return "" if value in (None, "none", True, False) else f"{words} {value}"


def _found(row: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    if row["mode"] == "retriever":
        return str(row["retriever"])
    kind = (config.get("sparse") or {}).get("type", "bm25")
    sparse = _SPARSE.get(kind, str(kind))
    if row["mode"] == "sparse":
        return sparse
    size = "" if row.get("dimensions") is None else f" {row['dimensions']}d"
    dense = f"{row['embedder']}{size} vectors{_index(str(row['index']), config)}"
    if row["mode"] == "dense":
        return dense
    several = len(config.get("fusions") or {}) > 1
    return f"{sparse} + {dense}" + (_said(" fused by", row.get("fusion")) if several else "")


def _index(name: str, config: Mapping[str, Any]) -> str:
    """How vectors are searched: nothing to say of the only one where it is exact."""
    known = config.get("indexes") or {}
    said = {key: _kind(key, value) for key, value in known.items()}
    if len(said) < 2 and said.get(name) == "exact":
        return ""
    alike = list(said.values()).count(said.get(name, name)) > 1
    return f" ({name if alike else said.get(name, name)})"


def _kind(name: str, settings: Any) -> str:
    if not isinstance(settings, Mapping):
        return name
    kind = _INDEXES.get(str(settings.get("type")), str(settings.get("type", name)))
    number = settings.get("format", "float32")
    return kind if number == "float32" else f"{kind}, {number}"


def _pool(row: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    if row["pool"] != "dynamic":
        return plural(int(row["pool"]), "candidate")
    depth = config.get("depth") or {}
    return f"{depth.get('start', '?')} to {depth.get('deep', '?')} candidates"
