"""`rankproof`, and `python -m rankproof`."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress


def run() -> None:
    """The entry of the command: a large run is read while the rest of it still loads."""
    gc.set_threshold(100_000)  # modules make much, of which nothing is to be collected
    try:
        words = sys.argv[1:]
        if words[:1] == ["eval"] and not any(
            w.startswith(("--memory", "--cluster")) for w in words
        ):
            # The threads that numpy's BLAS starts would wait for work in a loop, in others' way.
            os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
            from rankproof.foundation.lines import read_ahead

            any(map(read_ahead, words[1:]))  # the first that is one
        from rankproof import cli
    except BaseException as error:  # before there is a door that says so
        from rankproof.foundation.interrupts import interrupted

        if not interrupted(error):
            raise
        with suppress(OSError):
            os.write(2, b"rankproof: stopped\n")
        os._exit(130)  # and nobody waits for what is being read
    cli.run()


if __name__ == "__main__":
    run()
