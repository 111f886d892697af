"""Settings that every test shares."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

# derandomize: the same examples every time, so that a red run stays red.
settings.register_profile(
    "rankproof",
    derandomize=True,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=False,
)
settings.load_profile("rankproof")

# What tests make is not found by later ones, nor by the person who runs them.
_KEPT = tempfile.TemporaryDirectory(prefix="rankproof-tests-")
os.environ["RANKPROOF_CACHE"] = _KEPT.name
