"""The Python reference: every public name stands in it, with an example that runs."""

from __future__ import annotations

import doctest
import importlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from demo_folder import demo_folder

import rankproof as rp
from rankproof.measures import Measure

griffe = pytest.importorskip("griffe")
pytest.importorskip("wordllama")

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
NAMED = re.findall(r"^::: rankproof\.(\S+)$", PAGE, re.M)
ROOMS = dict.fromkeys(
    name.split(".")[0] for name in NAMED if "." in name
)  # those of which the page names something
NEEDS = {"scoring.high_precision": "transformers"}
OUTSIDE = {"cli", "cluster", "compat", "documents", "golden", "retrieval", "viewer"}


def public() -> Iterator[str]:
    """Every public name, as the page is to have it: `evaluate`, `scoring.sigmoid`."""
    yield from rp.__all__
    for room in ROOMS:
        names: list[str] = importlib.import_module(f"rankproof.{room}").__all__
        yield from (f"{room}.{name}" for name in names if name not in rp.__all__)


@pytest.fixture(scope="module")
def package() -> Any:
    return griffe.load("rankproof", search_paths=[str(ROOT / "src")], resolve_aliases=True)


def docstring(package: Any, name: str) -> str:
    """What the page shows of a name."""
    room, _, own = name.rpartition(".")
    found = getattr(importlib.import_module(f"rankproof.{room}".rstrip(".")), own)
    if isinstance(found, Measure):
        found = found.definition.function
    where = name
    if getattr(found, "__qualname__", None) and found.__module__.startswith("rankproof."):
        where = f"{found.__module__.removeprefix('rankproof.')}.{found.__qualname__}"
    said = package[where].docstring
    return "" if said is None else str(said.value)


def test_the_page_names_every_public_name_once() -> None:
    shown = [re.sub(r"^(\w+)\.(\w+)\.\2$", r"\1.\2", name) for name in NAMED]
    assert sorted(shown) == sorted(public())


def test_every_room_with_public_names_is_on_the_page_or_left_out_by_name() -> None:
    rooms = {path.parent.name for path in (ROOT / "src" / "rankproof").glob("*/__init__.py")}
    with_names = {r for r in rooms if hasattr(importlib.import_module(f"rankproof.{r}"), "__all__")}
    assert with_names - OUTSIDE == set(ROOMS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `rankproof demo --out try` was run."""
    place = tmp_path_factory.mktemp("reference")
    shutil.copytree(demo_folder(), place / "try")
    return place


@pytest.mark.parametrize("name", list(public()))
def test_the_example_of_a_public_name_runs(
    name: str, package: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankproof.measures import REGISTRY
    from rankproof.records import formats
    from rankproof.records.sources import ENDINGS

    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    text = docstring(package, name)
    assert ">>>" in text, f"{name} has no example"
    monkeypatch.chdir(folder)
    kept = [(table, dict(table)) for table in (REGISTRY, formats.REGISTERED, ENDINGS)]
    read = list(formats.FORMATS)
    given: dict[str, Any] = {"np": np, "rp": rp}
    example = doctest.DocTestParser().get_doctest(text, given, name, None, None)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    try:
        failed = runner.run(example, out=told.append).failed
    finally:
        formats.FORMATS[:] = read
        for table, was in kept:
            table.clear()
            table.update(was)  # type: ignore[arg-type]
    assert not failed, "".join(told)
    assert len(example.examples) <= 7, f"{name}: an example is short"
