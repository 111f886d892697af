"""The compiled inner loops; an installation without a compiler works, only slower."""

import os
import sys

from setuptools import Extension, setup

flags = [] if sys.platform == "win32" else ["-O3", "-Wall", "-Wextra"]
setup(
    ext_modules=[
        Extension(
            "rankproof._native",
            ["src/rankproof/_native.c"],
            extra_compile_args=flags,
            py_limited_api=True,
            optional=os.environ.get("RANKPROOF_REQUIRE_NATIVE") != "1",
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
