"""High-precision search on a GPU, beside the products it is made of.

    python bench/gpu.py            # on a machine with a CUDA GPU, PyTorch and Triton

1,024 queries × 1,000,000 documents × 1,024 dimensions in bfloat16, k = 1,000. Times are medians
of CUDA-event timings; all contenders take turns. Prints a section for bench/RESULTS.md.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
from rankproof.scoring import gpu

QUERIES, DOCUMENTS, DIMENSIONS, K = 1024, 1_000_000, 1024, 1000
ROUNDS = 15


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds on the GPU."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def main() -> None:
    torch.manual_seed(0)
    unit = torch.nn.functional.normalize
    queries = unit(torch.randn(QUERIES, DIMENSIONS, device="cuda"), dim=1).bfloat16()
    documents = torch.empty(DOCUMENTS, DIMENSIONS, device="cuda", dtype=torch.bfloat16)
    for first in range(0, DOCUMENTS, 100_000):
        documents[first : first + 100_000] = unit(
            torch.randn(100_000, DIMENSIONS, device="cuda"), dim=1
        ).bfloat16()
    held = [torch.empty(QUERIES, DOCUMENTS, device="cuda")]

    def upcast_and_topk() -> Any:
        return torch.topk(torch.mm(queries.float(), documents.float().T), K, dim=1)

    contenders: dict[str, Callable[[], Any]] = {
        "product, bfloat16 result": lambda: torch.mm(queries, documents.T),
        "product, float32 result": lambda: torch.mm(
            queries, documents.T, out_dtype=torch.float32, out=held[0]
        ),
        "search, high precision": lambda: gpu.keys_of_best(queries, documents, K),
        "search, plain bfloat16": lambda: gpu.keys_of_best(queries, documents, K, low=True),
        "torch.topk of the float32 scores": lambda: torch.topk(held[0], K, dim=1),
        "upcast, product, torch.topk": upcast_and_topk,
    }
    for work in contenders.values():
        work()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, work in contenders.items():
            taken[name].append(timed(work))
    milliseconds = {name: statistics.median(times) for name, times in taken.items()}

    held.clear()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    keys, _ = gpu.keys_of_best(queries, documents, K)
    memory = (torch.cuda.max_memory_allocated() - before) / 1e9

    found, rows = gpu.open_keys(keys)
    same, same_rank, distinct = [], [], []
    for q in range(32):
        exact = torch.cat([d.double() @ queries[q].double() for d in documents.split(250_000)])
        best = torch.topk(exact, K).indices
        same.append(len(set(best.tolist()) & set(rows[q].tolist())) / K)
        same_rank.append((best == rows[q]).float().mean().item())
        distinct.append(len(found[q].unique()))
    high = milliseconds["search, high precision"]
    lines = [
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; {QUERIES:,} queries × "
        f"{DOCUMENTS:,} documents × {DIMENSIONS:,} dimensions, bfloat16, k = {K:,}; medians of "
        f"{ROUNDS} interleaved rounds.",
        "",
        "| | ms | × high-precision search |",
        "|:--|--:|--:|",
        *(f"| {name} | {ms:.2f} | {ms / high:.2f} |" for name, ms in milliseconds.items()),
        "",
        f"High precision over the float32 product: "
        f"{high / milliseconds['product, float32 result']:.2f} ×; over plain bfloat16: "
        f"{high / milliseconds['search, plain bfloat16']:.2f} ×; upcast + torch.topk over it: "
        f"{milliseconds['upcast, product, torch.topk'] / high:.1f} ×. "
        f"Peak memory beyond the inputs: {memory:.2f} GB. Documents shared with float64 scoring: "
        f"{100 * statistics.mean(same):.2f}%, at the same rank "
        f"{100 * statistics.mean(same_rank):.1f}%; distinct scores in the top {K:,}: "
        f"{statistics.mean(distinct):.1f} (32 queries).",
    ]
    print("\n".join(lines))


if __name__ == "__main__":
    main()
