"""The GPU's kernels, run by Triton's interpreter where there is no GPU.

bench/gpu_bits.py does the same on one, with bfloat16 and larger sets.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rankproof

HERE = Path(__file__).parent
KERNELS = Path(rankproof.__file__).parent / "scoring" / "gpu_kernels.py"


@pytest.mark.slow
def test_every_kernel_finds_what_a_full_sort_of_the_cpus_scores_does() -> None:
    pytest.importorskip("triton", reason="Triton has no wheel for this machine")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "interpreted_kernels.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["different"] == []
    assert said["searches"] > 60
    named = re.findall(r"^def (\w+_kernel)\(", KERNELS.read_text(), re.MULTILINE)
    assert len(named) > 10
    assert set(named) <= set(said["kernels"])
