"""Run in a process of its own: the GPU's kernels in Triton's interpreter, on any processor.

Prints, as JSON, how many searches there were, which of them differ from a full sort of the CPU's
scores, and which kernels ran. See test_gpu_kernels.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
from hard_vectors import hard_vectors

from rankproof.precision import fixed_sum, gpu_duplicates, gpu_scores, gpu_search
from rankproof.precision.formats import round_to

FORMS = ("float32", "float16")  # numpy, in which it computes, has no bfloat16
HARD = ("random", "within a few ulp", "repeated", "huge", "zeros")
SAMPLED = {"FEW_QUERIES": 0, "SAMPLE_SIZES": (64, 64), "GROUP_SAMPLES": 4}
WAYS: dict[str, tuple[int, int, dict[str, Any]]] = {  # queries, documents, settings
    "one query": (1, 200, {"GROUPS": 64}),
    "few": (3, 200, {"GROUPS": 64}),
    "a sample, scores": (2, 700, SAMPLED | {"fused": False}),
    "a sample, bits": (2, 700, SAMPLED | {"fused": True}),
    "neither": (2, 200, {"FEW_QUERIES": 0}),
}
K = 2


class Noted:
    """The kernels, and which of them were asked for."""

    def __init__(self, kernels: Any):
        self._kernels, self.names = kernels, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(self._kernels, name)


@contextmanager
def changed(settings: dict[str, Any]) -> Iterator[None]:
    before = {name: getattr(gpu_search, name) for name in settings}
    try:
        for name, value in settings.items():
            setattr(gpu_search, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(gpu_search, name, value)


def differs(asked: Any, there: Any, low: bool) -> bool:
    form = gpu_scores.name_of(asked.dtype)
    scores = fixed_sum.matrix(*(x.float().numpy() for x in (asked, there)))
    scores = round_to(scores, form) if low else scores
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    ties = (ranked[:, K:] == ranked[:, K - 1 : K]).sum(axis=1)
    found = gpu_search.top_k(asked, there, K, low=low)
    expected = ranked[:, :K], order[:, :K], ties
    pairs = zip((found.scores, found.documents, found.cut), expected, strict=True)
    return not all(np.array_equal(a, b) for a, b in pairs)


def main() -> None:
    noted = Noted(gpu_scores.kernels)
    modules: tuple[Any, ...] = gpu_search, gpu_duplicates, gpu_scores
    for module in modules:
        module.kernels, module.compiled = noted, lambda _: True
    gpu_search._record_or_replay = lambda _key, *given: gpu_search._try_search(*given)
    gpu_duplicates.HEAVY = 64
    different, searches = [], 0
    for (way, (count, total, settings)), form in product(WAYS.items(), FORMS):
        fused = settings.get("fused", False)
        held = {name: value for name, value in settings.items() if name != "fused"}
        hard = {name: hard_vectors(count, total, 24)[name] for name in HARD}
        queries, documents = hard["random"]
        half = np.where(np.arange(total)[:, None] % 3 == 0, queries[:1], documents)
        for name, vectors in {**hard, "a query, often": (queries, half)}.items():
            a, b = (round_to(x, form) for x in vectors)
            if not all(np.isfinite(x).all() for x in (a, b)):
                continue
            asked, there = (torch.from_numpy(x).to(getattr(torch, form)) for x in (a, b))
            with changed(held | {"_can_fuse_product": lambda *_: fused}):  # noqa: B023
                again = name in ("repeated", "a query, often")  # then what is known of it is used
                for low in (False, form != "float32")[: 1 + again]:
                    searches += 1
                    if differs(asked, there, low):
                        different.append(f"{name}, {way}, {form}, low {low}")
            gpu_search.forget()
    print(json.dumps({"searches": searches, "different": different, "kernels": [*noted.names]}))


if __name__ == "__main__":
    main()
