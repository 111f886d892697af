"""Settings that every test shares."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from optional_packages import absent_package

if TYPE_CHECKING:
    from rankproof.golden.store import Store

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

# A shell starts background jobs with SIGINT ignored, which every child inherits; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What tests make is not found by later ones, nor by the person who runs them.
_KEPT = tempfile.TemporaryDirectory(prefix="rankproof-tests-")
os.environ["RANKPROOF_CACHE"] = _KEPT.name

# What takes long is made once: xdist's processes find the place in their environment.
if "RANKPROOF_TESTS" not in os.environ:
    _SHARED = tempfile.TemporaryDirectory(prefix="rankproof-shared-")
    os.environ["RANKPROOF_TESTS"] = _SHARED.name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: tests wait for servers, for a browser, for what they kill."""
    affinity = getattr(os, "sched_getaffinity", None)
    return 1 + (len(affinity(0)) if affinity else os.cpu_count() or 1)


_RAYS = {"test_cluster.py", "test_cluster_models.py", "test_cluster_search.py"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file is one process's, and those that use Ray are one process's: it is started once."""
    from xdist.scheduler import LoadFileScheduling

    class Together(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "Ray" if Path(file).name in _RAYS else file

    return Together(config, log)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Ray takes a processor's twentieth while it waits: it goes with the last test that uses it."""
    if "ray" in _fixtures(item) and "ray" not in _fixtures(nextitem):
        import ray

        ray.shutdown()


def _fixtures(item: pytest.Item | None) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first, so that no process works long after the others are done."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that fails because an optional package is not installed."""
    report = yield
    _skip_if_package_is_absent(report, call, item)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file that cannot be imported because an optional package is not installed."""
    report = yield
    if report.failed and report.call is not None:
        _skip_if_package_is_absent(report, report.call, collector)
    return report


def _skip_if_package_is_absent(
    report: pytest.TestReport | pytest.CollectReport,
    call: pytest.CallInfo[Any],
    node: pytest.Item | pytest.Collector,
) -> None:
    package = absent_package(call.excinfo.value) if report.failed and call.excinfo else None
    if package:
        line = (node.location[1] if isinstance(node, pytest.Item) else 0) or 0
        report.outcome = "skipped"
        report.longrepr = (str(node.path), line + 1, f"Skipped: needs {package}")


@pytest.fixture(autouse=True)
def _no_secret_is_known_from_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankproof.foundation.redaction._spellings", {})


@pytest.fixture
def path(built: Path, tmp_path: Path) -> Path:
    """A copy, to write to, of the golden set that a file's tests share."""
    return Path(shutil.copy(built, tmp_path / "set.golden"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A new golden set."""
    from rankproof.golden.store import Store

    with Store(tmp_path / "set.golden", create=True) as opened:
        yield opened
