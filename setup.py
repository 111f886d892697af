"""The compiled inner loops; an installation without a compiler works, only slower."""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

# No contraction: what a fused multiplication rounds would depend on the processor.
# Python calls every function with more than it may ask for.
warned = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
flags = [] if sys.platform == "win32" else ["-O3", *warned, "-ffp-contract=off"]
sources = {
    "rankproof._native": "src/rankproof/_native.c",
    "rankproof.scoring._fixed": "src/rankproof/scoring/_fixed.c",
    "rankproof.scoring._topk": "src/rankproof/scoring/_topk.c",
}
parts = Path("src/rankproof/native").glob("*.c")
setup(
    ext_modules=[
        Extension(
            name,
            [source],
            depends=[str(part) for part in parts] if name == "rankproof._native" else [],
            extra_compile_args=flags,
            py_limited_api=True,
            optional=os.environ.get("RANKPROOF_REQUIRE_NATIVE") != "1",
        )
        for name, source in sources.items()
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
