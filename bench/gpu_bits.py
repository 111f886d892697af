"""Whether a GPU's search gives the bytes of the CPU's: scores, documents and cuts.

    python bench/gpu_bits.py       # on a machine with a CUDA GPU and PyTorch; exit code 1 if not

Vectors that are hard to search (tests/hard_vectors.py) and a larger random set, in float32, float16
and bfloat16, by dot product and cosine, with high precision and without, with torch's settings
that multiply less precisely on and off. Prints one line for bench/RESULTS.md.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(Path(__file__).parents[1] / "tests")]
from described_search import find  # noqa: E402
from hard_vectors import hard_vectors  # noqa: E402

from rankproof.precision import cosine, dot, fixed_sum, gpu_scores, gpu_search  # noqa: E402
from rankproof.precision.formats import round_to  # noqa: E402

FORMS = ("float32", "float16", "bfloat16")


def bits(best: Any) -> bytes:
    parts = (best.scores, best.documents.astype(np.int64), best.cut.astype(np.int64))
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


def main() -> int:
    sets = hard_vectors(queries=40, documents=5000, dimensions=200)
    rng = np.random.default_rng(1)
    sets["many"] = tuple(  # type: ignore[assignment]
        rng.standard_normal((n, 256), np.float32) for n in (20, 150_000)
    )
    sets["many, repeated"] = (sets["many"][0], sets["many"][1][rng.integers(0, 3000, 150_000)])
    different, searches = [], 0
    gpu_search.SAMPLE_SIZES = (
        256,
        1024,
    )  # so that the bar is set by a sample of thousands of documents too
    for name, (queries, documents) in sets.items():
        for form in FORMS:
            a, b = (round_to(x, form) for x in (queries, documents))
            if not all(np.isfinite(x).all() for x in (a, b)):
                continue
            there = [torch.from_numpy(x).cuda().to(getattr(torch, form)) for x in (a, b)]
            for metric in ("dot", "cosine"):
                if metric == "cosine" and not b.any(axis=1).all():
                    continue
                for high in (True, False):
                    settings: Any = {"format": form, "metric": metric, "high_precision": high}
                    ours = bits(find(a, b, 30, **settings))
                    for precision in ("highest", "high"):
                        torch.set_float32_matmul_precision(precision)
                        searches += 1
                        if bits(find(there[0], there[1], 30, **settings)) != ours:
                            different.append((name, settings, precision))
                torch.set_float32_matmul_precision("highest")
                score = dot if metric == "dot" else cosine
                some = [x[:300] for x in there]
                theirs = score(*(x.cpu().float().numpy() for x in some))
                searches += 1
                if score(*some).cpu().numpy().tobytes() != theirs.tobytes():
                    different.append((name, form, metric))
            wide = there[1][:2000].float()
            if (
                gpu_scores.normalize(wide).cpu().numpy().tobytes()
                != fixed_sum.normalize(wide.cpu().numpy()).tobytes()
            ):
                different.append((name, form, "unit"))
    for case in different:
        print("different:", *case)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton "
        f"{'used' if gpu_scores.kernels else 'absent'}: {searches - len(different)} of "
        f"{searches} searches and score matrices have the CPU's bytes."
    )
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
