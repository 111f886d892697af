"""High-precision search on a GPU at every shape, beside a product and torch.topk.

    python bench/gpu.py [all.csv]  # on a machine with a CUDA GPU, PyTorch and Triton; 5 minutes
    python bench/gpu.py --kinds    # documents in other orders and kinds alone

Each shape is a number of queries, documents and dimensions, a format and a k. What a user would do
instead is the float32 product and torch.topk, in blocks of 2³⁰ scores where all do not fit. Times
are medians of CUDA-event timings, contenders in turn; slow shapes have fewer rounds. Of every shape
two queries are compared with a full sort of all exact scores: scores, documents and cuts. Prints a
section for bench/RESULTS.md; exit code 1 if a result is not exact.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("src", "tests")]
from described_search import find  # noqa: E402

from rankproof.precision import gpu_scores, gpu_search  # noqa: E402

QUERIES = 1, 32, 1024, 4096
DOCUMENTS = 100_000, 1_000_000, 10_000_000
DIMENSIONS = 128, 384, 1024
KS = 1, 10, 100, 1000
FORMS = torch.bfloat16, torch.float16, torch.float32
BLOCK = 1 << 30  # scores made at a time by the product


def timed(work: Callable[[], Any]) -> float:
    """Milliseconds on the GPU."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end))


def in_turn(*work: Callable[[], Any], most: int = 24) -> list[float]:
    """The median of each, in as many rounds as a sixth of a second allows, warmed up."""
    for each in work * (2 if sum(map(timed, work)) < 100 else 0):
        each()
    first = [timed(each) for each in work]
    rounds = int(min(most, 150 // max(1.0, sum(first))))
    times = [first, *([timed(each) for each in work] for _ in range(rounds))]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def vectors(count: int, dimensions: int, form: torch.dtype, seed: int) -> Any:
    generator = torch.Generator("cuda").manual_seed(seed)
    made = torch.empty(count, dimensions, device="cuda", dtype=form)
    for some in made.split(1 << 18):
        drawn = torch.randn(some.shape, device="cuda", generator=generator)
        some.copy_(torch.nn.functional.normalize(drawn, dim=1))
    return made


def product(queries: Any, documents: Any, out: Any) -> Any:
    if queries.dtype == torch.float32:
        return torch.mm(queries, documents.T, out=out)
    return torch.mm(queries, documents.T, out_dtype=torch.float32, out=out)


class Instead:
    """The product alone, and with torch.topk."""

    def __init__(self, queries: Any, documents: Any):
        self.queries = queries
        self.blocks = documents.split(max(1, BLOCK // len(queries)))
        self.held = torch.empty(len(queries) * len(self.blocks[0]), device="cuda")

    def scores(self, block: Any) -> Any:
        count = len(self.queries)
        out = self.held[: count * len(block)].view(count, len(block))
        return product(self.queries, block, out)

    def product(self) -> None:
        for block in self.blocks:
            self.scores(block)

    def search(self, k: int) -> Any:
        best = [torch.topk(self.scores(block), k, dim=1) for block in self.blocks]
        if len(best) == 1:
            return best[0]
        return torch.topk(torch.cat([values for values, _ in best], dim=1), k, dim=1)


def wrong(queries: Any, documents: Any, found: dict[int, tuple[Any, Any]]) -> list[int]:
    """The k for which the first and the last query differ from a full sort."""
    ends = torch.tensor([0, len(queries) - 1], device="cuda")
    scores, order = torch.sort(
        gpu_scores.matrix(queries[ends], documents), dim=1, descending=True, stable=True
    )
    bad = []
    for k, (keys, cut) in found.items():
        ours, rows = gpu_scores.open_keys(keys[ends])
        last = scores[:, k - 1 : k]
        ties = (scores[:, k:] == last).sum(dim=1)
        same = torch.equal(ours, scores[:, :k]) and torch.equal(rows, order[:, :k])
        if not (same and torch.equal(cut[ends], ties)):
            bad.append(k)
    return bad


def searched(queries: Any, documents: Any, k: int, into: dict[int, tuple[Any, Any]]) -> None:
    into[k] = gpu_search.keys_of_best(queries, documents, k)


def grid() -> tuple[list[dict[str, Any]], int]:
    rows, bad = [], 0
    for form, dimensions in itertools.product(FORMS, DIMENSIONS):
        everything = vectors(DOCUMENTS[-1], dimensions, form, 1)
        for total, count in itertools.product(DOCUMENTS, QUERIES):
            documents = everything[:total]
            queries = vectors(count, dimensions, form, 2)
            instead: Any = Instead(queries, documents)
            instead.product()
            (alone,) = in_turn(instead.product)
            found: dict[int, tuple[Any, Any]] = {}
            for k in KS:
                ours, theirs = in_turn(
                    partial(searched, queries, documents, k, found), partial(instead.search, k)
                )
                rows.append(
                    {
                        "form": gpu_scores.name_of(form),
                        "queries": count,
                        "documents": total,
                        "dimensions": dimensions,
                        "k": k,
                        "search": ours,
                        "instead": theirs,
                        "product": alone,
                    }
                )
            instead = None
            for k in wrong(queries, documents, found):
                bad += 1
                print(f"not exact: {rows[-1] | {'k': k}}")
        everything = documents = None
        torch.cuda.empty_cache()
    return rows, bad


def orders(documents: Any, queries: Any) -> Iterator[tuple[str, Any]]:
    """The same number of documents in other orders and kinds."""
    total, dimensions = documents.shape
    by_first = torch.argsort(documents.float() @ queries[0].float(), descending=True)
    centres = vectors(1000, dimensions, torch.float32, 3)
    of = torch.arange(total, device="cuda") // (total // 1000)
    near = torch.empty_like(documents)
    for some, which in zip(near.split(1 << 18), of.split(1 << 18), strict=True):
        some.copy_(centres[which] + 0.02 * torch.randn(some.shape, device="cuda"))
    drawn = torch.randint(0, total, (total,), device="cuda")
    half = (drawn % 2 == 0)[:, None]
    yield "random", documents
    yield "sorted, best first", documents[by_first]
    yield "sorted, best last", documents[by_first.flip(0)]
    yield "1,000 clusters, one after the other", near
    yield "each ten times", documents[drawn % (total // 10)]
    yield "1,000 vectors", documents[drawn % 1000]
    yield "ten vectors", documents[drawn % 10]
    yield "ten, one after the other", documents[torch.sort(drawn % 10).values]
    yield "two vectors", documents[drawn % 2]
    yield "one vector", documents[drawn % 1]
    yield "half zeros", torch.where(half, documents, 0)
    yield "half a query", torch.where(half, documents, queries[:1])


def first_search(queries: Any, documents: Any, k: int) -> float:
    """Of documents never searched before, by kernels that are compiled."""
    times = []
    for _ in range(5):
        gpu_search.forget()
        times.append(timed(partial(gpu_search.keys_of_best, queries, documents, k)))
    return statistics.median(times)


def kinds() -> tuple[list[str], int]:
    """The worst over formats and k of each kind of documents, over random ones."""
    names: list[str] = []
    worst: dict[Any, tuple[float, str]] = {}
    bad = 0
    shapes = [*itertools.product(DOCUMENTS[:2], QUERIES[:3])]
    for form, (total, count) in itertools.product(FORMS, shapes):
        whole = vectors(total, 384, form, 1)
        queries = vectors(count, 384, form, 2)
        names = []
        for name, documents in orders(whole, queries):
            names.append(name)
            found: dict[int, tuple[Any, Any]] = {}
            for k in KS:
                for each in (whole, documents):
                    gpu_search.keys_of_best(queries, each, k)
                ms, before = in_turn(
                    partial(searched, queries, documents, k, found),
                    partial(gpu_search.keys_of_best, queries, whole, k),
                    most=12,
                )
                said = f"{gpu_scores.name_of(form)}, k = {k:,}: {ms:.2f} and {before:.2f} ms"
                at = (total, count, name)
                worst[at] = max(worst.get(at, (0.0, "")), (ms / before, said))
            if form == torch.bfloat16:
                ms = first_search(queries, documents, 10)
                before = first_search(queries, whole, 10)
                worst[total, count, name, "first"] = (ms / before, f"{ms:.2f} ms")
            for k in wrong(queries, documents, found):
                bad += 1
                print(f"not exact: {name}, {count} × {total}, {form}, k = {k}")
    past = sorted((x, *at) for at, x in worst.items() if len(at) == 3)[:-7:-1]
    head = " | ".join(f"{count:,} × {total:,}" for total, count in shapes)
    return [
        f"Over random documents, 384 dimensions: the worst of {len(FORMS)} formats and k = "
        f"{', '.join(f'{k:,}' for k in KS)}; in brackets the first search there ever is of them "
        "(bfloat16, k = 10) over the first of random ones.",
        "",
        f"| documents | {head} |",
        "|:--" + "|--:" * len(shapes) + "|",
        *(
            f"| {name} | "
            + " | ".join(
                f"{worst[*at, name][0]:.2f} × ({worst[*at, name, 'first'][0]:.2f})" for at in shapes
            )
            + " |"
            for name in names
        ),
        "",
        "The worst: "
        + "; ".join(
            f"{ratio:.2f} × ({name}, {count:,} × {total:,}, {said})"
            for (ratio, said), total, count, name in past
        )
        + ".",
    ], bad


def public() -> list[str]:
    """What the public call adds, and what it needs."""
    lines = []
    for count, total, dimensions, k in (
        (1024, 1_000_000, 1024, 1000),
        (64, 5_000_000, 384, 100),
        (32, 1_000_000, 1024, 10),
    ):
        documents = vectors(total, dimensions, torch.bfloat16, 1)
        queries = vectors(count, dimensions, torch.bfloat16, 2)

        def search() -> float:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            find(queries, documents, k)  # noqa: B023
            return 1000 * (time.perf_counter() - begin)

        search()
        (kernel,) = in_turn(partial(gpu_search.keys_of_best, queries, documents, k))
        whole = statistics.median(search() for _ in range(7))
        torch.cuda.empty_cache()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        search()
        memory = (torch.cuda.max_memory_allocated() - before) / 1e9
        lines.append(
            f"| {count:,} × {total:,} × {dimensions:,}, k = {k:,} | {kernel:.2f} | {whole:.2f} | "
            f"{whole / kernel:.2f} × | {memory:.2f} |"
        )
    return [
        "| bfloat16 | kernels, ms | `find`, ms | | GB beyond the inputs |",
        "|:--|--:|--:|--:|--:|",
        *lines,
    ]


def formats() -> tuple[list[str], int]:
    """64 queries × 1,000,000 × 384, k = 100, from float32 tensors; checked against the CPU."""
    lines, bad = [], 0
    documents = vectors(1_000_000, 384, torch.float32, 1)
    queries = vectors(64, 384, torch.float32, 2)
    on_cpu: Any = [x[: 1 << 17].cpu().numpy() for x in (queries, documents)]
    for form in ("float8_e4m3", "float8_e5m2", "int8", "int8_dimension", "int4", "bit"):
        cells = []
        for high in (False, True):
            settings: Any = {"format": form, "high_precision": high}
            find(queries, documents, 100, **settings)
            times = []
            for _ in range(3):
                torch.cuda.synchronize()
                begin = time.perf_counter()
                find(queries, documents, 100, **settings)
                times.append(1000 * (time.perf_counter() - begin))
            begin = time.perf_counter()
            theirs = find(on_cpu[0], on_cpu[1], 100, **settings)
            on_these = 1000 * (time.perf_counter() - begin)
            ours = find(queries, documents[: 1 << 17], 100, **settings)
            same = all(
                np.array_equal(getattr(ours, x), getattr(theirs, x))
                for x in ("scores", "documents", "cut")
            )
            if not same:
                bad += 1
                print(f"not the CPU's: {form}, high precision {high}")
            ms = statistics.median(times)
            cells += [f"{ms:.1f}", f"{on_these * len(documents) / (1 << 17) / ms:.0f} ×"]
        lines.append(f"| {form} | {' | '.join(cells)} |")
    return [
        "| 64 × 1,000,000 × 384, k = 100 | plain, ms | CPU's | high precision, ms | CPU's |",
        "|:--|--:|--:|--:|--:|",
        *lines,
    ], bad


def table(rows: list[dict[str, Any]]) -> list[str]:
    def worst(some: list[dict[str, Any]], over: str) -> str:
        row = max(some, key=lambda r: r["search"] / r[over])
        return f"{row['search'] / row[over]:.2f}"

    lines = [
        "| queries | documents | dimensions | "
        + " | ".join(
            f"{gpu_scores.name_of(f)}: product, ms | search, ms | / instead | / product"
            for f in FORMS
        )
        + " |",
        "|--:" * (3 + 4 * len(FORMS)) + "|",
    ]
    for count, total, dimensions in itertools.product(QUERIES, DOCUMENTS, DIMENSIONS):
        cells = [f"{count:,}", f"{total:,}", f"{dimensions:,}"]
        for form in FORMS:
            some = [
                r
                for r in rows
                if (r["queries"], r["documents"], r["dimensions"], r["form"])
                == (count, total, dimensions, gpu_scores.name_of(form))
            ]
            times = [r["search"] for r in some]
            cells += [
                f"{some[0]['product']:.2f}",
                f"{min(times):.2f}–{max(times):.2f}",
                worst(some, "instead"),
                worst(some, "product"),
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    if sys.argv[1:] == ["--kinds"]:
        lines, bad = kinds()
        print("\n".join(lines))
        return bool(bad)
    begin = time.perf_counter()
    rows, bad = grid()
    if len(sys.argv) > 1:
        names = list(rows[0])
        lines = [",".join(names), *(",".join(str(r[n]) for n in names) for r in rows)]
        Path(sys.argv[1]).write_text("\n".join(lines) + "\n")
    by = sorted(rows, key=lambda r: r["search"] / r["instead"])
    large = [
        r
        for r in rows
        if r["queries"] >= 1024 and r["documents"] >= 1_000_000 and r["dimensions"] >= 384
    ]
    by_product = sorted(large, key=lambda r: r["search"] / r["product"])

    def shape(r: dict[str, Any], over: str) -> str:
        return (
            f"{r['search'] / r[over]:.2f} × ({r['queries']:,} × {r['documents']:,} × "
            f"{r['dimensions']:,}, k = {r['k']:,}, {r['form']}: {r['search']:.2f} and "
            f"{r[over]:.2f} ms)"
        )

    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}; {len(rows)} shapes, two "
        f"queries of each checked against a full sort of exact scores: {bad} differ.\n"
    )
    print("Search over product and torch.topk: best " + shape(by[0], "instead") + "; worst:\n")
    for r in by[:-9:-1]:
        print("- " + shape(r, "instead"))
    above = sum(r["search"] > 1.1 * r["instead"] for r in rows)
    print(
        f"\n{above} of {len(rows)} shapes above 1.10 ×. From 1,024 × 1,000,000 × 384 up, search "
        "over the float32 product alone: best "
        + shape(by_product[0], "product")
        + ", worst "
        + shape(by_product[-1], "product")
        + f"; {sum(r['search'] > 2 * r['product'] for r in large)} of {len(large)} above 2 ×.\n"
    )
    print("Times over k = 1, 10, 100 and 1,000; ratios are the worst of the four.\n")
    print("\n".join(table(rows)) + "\n", flush=True)
    for part in (kinds, formats):
        lines, more = part()
        bad += more
        print("\n".join(lines) + "\n", flush=True)
    print("\n".join(public()) + "\n")
    print(f"{bad} results differ; {time.perf_counter() - begin:.0f} s.")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
