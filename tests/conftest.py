"""Settings that every test shares."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time, on every machine, so that a red run stays red: what decides them
# is the test alone, neither a seed, a clock nor what an earlier run left in a folder.
settings.register_profile(
    "rankproof",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=False,
)
# `make fuzz`: other examples each time, and many more, round after round. It gives the seed and
# prints it (--hypothesis-seed); the same seed makes the same examples.
settings.register_profile(
    "fuzz",
    derandomize=False,
    database=None,
    deadline=None,
    max_examples=200,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
settings.load_profile("rankproof")  # --hypothesis-profile comes after this

# What tests make is not found by later ones, nor by the person who runs them.
_KEPT = tempfile.TemporaryDirectory(prefix="rankproof-tests-")
os.environ["RANKPROOF_CACHE"] = _KEPT.name

# What takes long is made once: xdist's processes find the place in their environment.
if "RANKPROOF_TESTS" not in os.environ:
    _SHARED = tempfile.TemporaryDirectory(prefix="rankproof-shared-")
    os.environ["RANKPROOF_TESTS"] = _SHARED.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that no process works long after the others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(autouse=True)
def _no_secret_is_known_from_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankproof.redaction._known", {})
