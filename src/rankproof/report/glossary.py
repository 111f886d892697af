"""What the measures and headings on a page mean, for readers who did not read the paper."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from rankproof.foundation.errors import MeasureError
from rankproof.measures import REGISTRY, parse

_CITED = re.compile(r" ?\[[A-Z] [^\]]*\]")  # the number of a paper's equation
_MEASURE = re.compile(r"\b([A-Za-z][A-Za-z0-9]*)(?:\([^)]*\))?@(?:\d+|prompt)")

TERMS = {
    "low": "The lower end of the 95% interval over queries.",
    "high": "The upper end of the 95% interval over queries.",
    "95%": "95% confidence interval over queries.",
    "judged": "The share of the passages behind the score that is judged. Unjudged ones count as "
    "not relevant.",
    "alike": "Others of no significantly different quality, and of equal latency and cost.",
    "PROC": "The best that any order of the same candidates reaches.",
    "%PROC": "The score in percent of PROC.",
    "ordering headroom": "What a perfect order of the same candidates, better ranking, would add.",
    "retrieval headroom": "What only better or deeper retrieval can add.",
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
    "oblivious": "The score as listed: under one tie-break, which other tools print.",
    "bias": "oblivious − expected: what that tie-break adds.",
    "std": "Standard deviation of the score over orders of tied scores.",
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
    "group": "The ranks from which it is not significantly different.",
    "margin": "How much worse a candidate may be and still pass.",
    "queries needed": "About how many questions would decide it.",
    "not significantly different": "The 95% interval of the paired difference, of all comparisons "
    "together, includes 0.",
}


@lru_cache(256)  # every table asks again, and looking for an unknown measure takes long
def meaning(term: str) -> str | None:
    """Return what a heading or a measure means; None where it speaks for itself."""
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
    words = REGISTRY[name].meaning or _CITED.sub("", REGISTRY[name].summary)
    return words if cutoff is None else f"{words} Here k = {cutoff}."


def measures_in(texts: Iterable[str]) -> list[str]:
    """Return the names of the measures that texts mention, each once."""
    names = (match[1] for text in texts for match in _MEASURE.finditer(text))
    return [name for name in dict.fromkeys(names) if name in REGISTRY]
