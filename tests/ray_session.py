"""One Ray session for many tests: two workers, and a store smaller than what passes through it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

STORE = 80_000_000  # bytes
TESTS = str(Path(__file__).parent)


@pytest.fixture
def ray() -> Any:
    """It goes with the last of the tests that use it: see conftest.py."""
    pytest.importorskip("ray")
    from rankproof.cluster.session import load_ray

    session = load_ray()
    if not session.is_initialized():
        with pytest.MonkeyPatch.context() as patch:  # workers import what tests define, and
            patch.setenv("PYTHONPATH", TESTS, prepend=os.pathsep)  # rankproof as these tests do
            session.init(
                num_cpus=2,
                object_store_memory=STORE,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="error",
            )
    return session
