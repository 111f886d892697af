"""Run in a process of its own: the GPU's kernels compiled for Hopper, on a machine without a GPU.

Searches are made as on a GPU, except that a launch compiles its kernel, with the constants and the
types of what it was given, and does not run it. What a search then finds is nothing; which kernels
it launches does not depend on that, as long as no bar is said to be off. Prints as JSON what
Triton's ptxas made of each. See test_gpu_kernels.py.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from rankproof.precision import gpu_duplicates, gpu_scores, gpu_search

MODULES: tuple[Any, ...] = gpu_search, gpu_duplicates, gpu_scores
THERE: list[bool] = []
DIMENSIONS = 64
# Queries, documents, k, and whether half of the documents are known to be one vector: the ways of
# every format, and those that one of them may stand for, since each kernel is half a second's work.
WAYS = (16, 4096, 16, False), (128, 65_536, 16, True), (16, 1536, 1536, False)
FORMS: dict[torch.dtype, tuple[tuple[int, int, int, bool], ...]] = {
    torch.bfloat16: ((16, 4096, 16, True), (48, 4096, 16, False)),
    torch.float16: (),
    torch.float32: ((1, 4096, 16, False),),
}


class Hopper:
    """As much of a driver as compiling asks for."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: int) -> int:
        return 0


class Compiled:
    """The kernels, which are compiled where they would be launched."""

    def __init__(self, kernels: Any):
        self._kernels, self.made = kernels, dict[str, dict[str, Any]]()

    def __getattr__(self, name: str) -> Any:
        kernel = getattr(self._kernels, name)
        return Launch(name, kernel, self.made) if name.endswith("_kernel") else kernel


class Launch:
    def __init__(self, name: str, kernel: Any, made: dict[str, dict[str, Any]]):
        self.name, self.kernel, self.made = name, kernel, made

    def __getitem__(self, grid: Any) -> Any:
        def compiled(*given: Any, **constants: Any) -> None:
            assert THERE, f"{self.name} would run on another GPU than its tensors'"
            made = self.kernel.run(*given, grid=grid, warmup=True, **constants)
            if made.hash not in self.made:
                self.made[made.hash] = {
                    "kernel": self.name,
                    "types": [t for t in made.src.signature.values() if t != "constexpr"],
                    "constants": {key: str(value) for key, value in constants.items()},
                    "shared": made.metadata.shared,
                    "warps": made.metadata.num_warps,
                    **resources(made.kernel),
                }

        return compiled


def resources(binary: bytes) -> dict[str, int]:
    """What a thread of a kernel takes; its stack is what its registers did not hold."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        said = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "-res-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    found = dict(re.findall(r"\b(REG|STACK|LOCAL):(\d+)", said))
    return {"registers": int(found["REG"]), "spilled": int(found["STACK"]) + int(found["LOCAL"])}


@contextmanager
def there(_: Any) -> Iterator[None]:
    """`gpu_scores.on_device_of`, noted: without it Triton launches on whatever GPU is current."""
    THERE.append(True)
    yield
    THERE.pop()


def set_compiled(value: bool) -> None:
    for module in MODULES:
        module.compiled = lambda _: value


def main() -> None:
    driver.set_active(Hopper())
    kernels = Compiled(gpu_scores.kernels)
    for module in MODULES:
        module.kernels, module.on_device_of = kernels, there
    set_compiled(True)
    gpu_search.SAMPLE_SIZES = 4096, 4096
    gpu_search._record_or_replay = lambda _key, *given: gpu_search._try_search(*given)
    for form, more in FORMS.items():
        for count, total, k, known in WAYS + more:
            queries, documents = (torch.randn(n, DIMENSIONS).to(form) for n in (count, total))
            documents[::2] = 1
            for fused in (True, False) if count == 128 else (False,):
                gpu_search._can_fuse_product = lambda *_: fused  # noqa: B023
                gpu_search.keys_of_best(queries, documents, k)
            if known:
                set_compiled(False)
                assert gpu_duplicates.find_duplicates(documents) is not None
                set_compiled(True)
                gpu_search.keys_of_best(queries, documents, k)
                with there(documents):
                    gpu_duplicates._hashes(documents)
            gpu_search.forget()
    print(json.dumps([*kernels.made.values()]))


if __name__ == "__main__":
    main()
