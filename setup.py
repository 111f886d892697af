"""The compiled inner loops; an installation without a compiler works, only slower."""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup

if sys.version_info < (3, 11):  # older versions of pip install the dependencies first, or try to
    version = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"rankproof needs Python 3.11 or newer; this is Python {version}")

native = os.environ.get("RANKPROOF_REQUIRE_NATIVE", "0").lower()
if native not in {"0", "1", "false", "true", "no", "yes", "off", "on", ""}:
    sys.exit(f"RANKPROOF_REQUIRE_NATIVE: {native!r} is neither 0 nor 1")

# No contraction: what a fused multiplication rounds would depend on the processor.
# Python calls every function with more than it may ask for.
warned = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
flags = [] if sys.platform == "win32" else ["-O3", *warned, "-ffp-contract=off"]
sources = {
    "rankproof.foundation._native": "src/rankproof/foundation/_native.c",
    "rankproof.precision._fixed": "src/rankproof/precision/_fixed.c",
    "rankproof.precision._topk": "src/rankproof/precision/_topk.c",
}
parts = Path("src/rankproof/foundation/native").glob("*.c")
setup(
    ext_modules=[
        Extension(
            name,
            [source],
            depends=[str(part) for part in parts] if name == "rankproof.foundation._native" else [],
            extra_compile_args=flags,
            py_limited_api=True,
            optional=native not in {"1", "true", "yes", "on"},
        )
        for name, source in sources.items()
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
