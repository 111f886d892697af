"""The same targets, led by the lines of rankproof that a file reaches (atheris, libFuzzer).

    python fuzz/guided.py trec-run build/fuzz/corpus/trec-run -max_total_time=60 -seed=7

Everything after the target goes to libFuzzer. A file that is found is written to the current
folder; `python fuzz/guided.py trec-run crash-…` tries it again.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["rankproof"]):
    from readers import TARGETS


def main() -> None:
    check = TARGETS[sys.argv.pop(1)]
    with tempfile.TemporaryDirectory() as folder:

        def one(data: bytes) -> None:
            check(Path(folder), data)

        atheris.Setup(sys.argv, one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
