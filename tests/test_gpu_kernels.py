"""The GPU's kernels where there is no GPU: run by Triton's interpreter, and compiled for one.

bench/gpu_bits.py runs them on one, with bfloat16 and larger sets.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rankproof

HERE = Path(__file__).parent
SOURCE = Path(rankproof.__file__).parent
KERNELS = SOURCE / "precision" / "gpu_kernels.py"
NAMED = set(re.findall(r"^def (\w+_kernel)\(", KERNELS.read_text(), re.MULTILINE))

pytestmark = pytest.mark.slow


def said_by(script: str, **env: str) -> Any:
    pytest.importorskip("triton", reason="Triton has no wheel for this machine")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE.parent), **env},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_kernel_finds_what_a_full_sort_of_the_cpus_scores_does() -> None:
    said = said_by("interpreted_kernels.py")
    assert said["different"] == []
    assert said["searches"] > 60
    assert len(NAMED) > 10
    assert set(said["kernels"]) >= NAMED


@pytest.mark.slow
def test_every_kernel_compiles_for_hopper_and_holds_in_registers_what_it_works_on(
    tmp_path: Path,
) -> None:
    """On the GPU where its tensors lie, too."""
    made = said_by("compiled_kernels.py", TRITON_CACHE_DIR=str(tmp_path))
    assert {one["kernel"] for one in made} == NAMED
    wide = {"*bf16", "*fp16", "*fp32"}
    for kernel in ("lengths", "scan", "rescore", "sums", "hash", "compare"):
        own = [one for one in made if one["kernel"] == f"{kernel}_kernel"]
        assert {one["types"][0] for one in own} == wide, kernel
    sifts = [one for one in made if one["kernel"] == "mark_kernel"]
    assert len({one["types"][0] for one in sifts}) == 3
    for one in made:
        # 64 queries' sums, and the best of each group of them, are more than the registers.
        crowded = one["kernel"] == "scan_kernel" and one["constants"]["QUERIES"] == "64"
        assert not one["spilled"] or crowded, one
    for one in sifts:  # two at a time on a processor: one multiplies while the other packs its bits
        registers = -(-one["registers"] // 8) * 8 * 32 * one["warps"]
        assert 2 * registers <= 65_536, one
        assert 2 * (one["shared"] + 1024) <= 228 * 1024, one
