"""One Ray session for all tests: two workers, and a store smaller than what passes through it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

STORE = 80_000_000  # bytes
TESTS = str(Path(__file__).parent)


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    from rankproof.cluster.session import load_ray

    session = load_ray()
    if session.is_initialized():  # another file's tests began it
        yield session
        return
    with pytest.MonkeyPatch.context() as patch:  # workers import what tests define, and rankproof
        patch.setenv("PYTHONPATH", TESTS, prepend=os.pathsep)  # from where these tests have it
        session.init(
            num_cpus=2,
            object_store_memory=STORE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
    yield session
    session.shutdown()
