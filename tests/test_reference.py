"""The Python reference: every public name stands in it, with an example that runs."""

from __future__ import annotations

import contextlib
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
from ray_session import ray

import rankproof as rp
from rankproof.measures import Measure

griffe = pytest.importorskip("griffe")
pytest.importorskip("wordllama")

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rankproof"
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
NAMED = re.findall(r"^::: rankproof\.(\S+)$", PAGE, re.M)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS = {
    "audit_model": "sentence_transformers",
    "cluster": "ray",
    "compat.ir_measures": "ir_measures",
    "precision.high_precision": "transformers",
    "precision.mteb": "mteb",
}
__all__ = ["ray"]  # a fixture, asked for by its name


def exporting() -> dict[str, list[str]]:
    """Each module that says what it exports: `scoring`, `compat.ranx`; the command line is none."""
    found = {}
    for path in sorted(SOURCE.glob("*/**/*.py")):
        says = re.search(r"^__all__ =", path.read_text(encoding="utf-8"), re.M)
        if says and path.relative_to(SOURCE).parts[0] != "cli":
            steps = [s for s in path.relative_to(SOURCE).with_suffix("").parts if s != "__init__"]
            found[".".join(steps)] = importlib.import_module(
                ".".join(["rankproof", *steps])
            ).__all__
    return found


def public() -> Iterator[str]:
    """Every public name, as the page is to have it: `evaluate`, `scoring.sigmoid`."""
    yield from rp.__all__
    exported = exporting()
    for room, names in exported.items():
        module = importlib.import_module(f"rankproof.{room}")
        for name in names:
            own = (SOURCE / room / f"{name}.py").is_file()  # a module that bears its name
            if getattr(rp, name, None) is not getattr(module, name):
                yield f"{room}.{name}.{name}" if own else f"{room}.{name}"
    yield "compat.ir_measures"  # all names of ir_measures: its docstring says what is added
    taught = {
        f"{module}.{name.strip()}"
        for page in PAGES
        for module, names in re.findall(
            r"^(?:>>> )?from rankproof\.([\w.]+) import (.+)$", page.read_text(), re.M
        )
        for name in names.split(",")
        if module not in exported
    }
    yield from sorted(taught)


@pytest.fixture(scope="module")
def package() -> Any:
    return griffe.load("rankproof", search_paths=[str(ROOT / "src")], resolve_aliases=True)


def docstring(package: Any, name: str) -> str:
    """What the page shows of a name."""
    room, _, own = name.rpartition(".")
    found: Any = getattr(importlib.import_module(f"rankproof.{room}".rstrip(".")), own, None)
    if isinstance(found, Measure):
        found = found.definition.function
    where = name
    if getattr(found, "__qualname__", None) and found.__module__.startswith("rankproof."):
        where = f"{found.__module__.removeprefix('rankproof.')}.{found.__qualname__}"
    said = package[where].docstring
    return "" if said is None else str(said.value)


def test_the_page_names_every_public_name_once() -> None:
    assert sorted(NAMED) == sorted(public())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `rankproof demo --out try` was run."""
    place = tmp_path_factory.mktemp("reference")
    shutil.copytree(demo_folder(), place / "try")
    return place


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model and a task for mteb, which has none that need no download."""
    from test_scoring_mteb import LocalRetrieval
    from tiny_models import sentence_transformer

    model = sentence_transformer(tmp_path_factory.mktemp("encoder"), "bfloat16")
    return {"model": model, "tasks": LocalRetrieval()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The fill_missing parameter is deprecated")  # mteb's own
@pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension` method has been")
@pytest.mark.parametrize("name", [name for name in public() if not name.startswith("cluster.")])
def test_the_example_of_a_public_name_runs(
    name: str, package: Any, folder: Path, request: pytest.FixtureRequest
) -> None:
    given = request.getfixturevalue("benchmark") if name == "precision.mteb.evaluate" else {}
    run_example(name, package, folder, given)


@pytest.mark.slow
@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("name", [name for name in public() if name.startswith("cluster.")])
def test_the_example_of_a_clusters_name_runs(name: str, package: Any, folder: Path) -> None:
    run_example(name, package, folder, {})


def run_example(name: str, package: Any, folder: Path, more: dict[str, Any]) -> None:
    from rankproof.data import formats
    from rankproof.data.sources import ENDINGS
    from rankproof.measures import REGISTRY
    from rankproof.retrieval import components

    given: dict[str, Any] = {"np": np, "rp": rp} | more
    for start, needed in NEEDS.items():
        if name.startswith(start):
            pytest.importorskip(needed)
    text = docstring(package, name)
    assert ">>>" in text, f"{name} has no example"
    components.list_components()  # all are declared by now
    tables: list[dict[Any, Any]] = [REGISTRY, formats.REGISTERED, ENDINGS, components._registered]
    kept = [(table, dict(table)) for table in tables]
    read = list(formats.FORMATS)
    example = doctest.DocTestParser().get_doctest(text, given, name, None, None)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    try:
        with contextlib.chdir(folder):
            failed = runner.run(example, out=told.append).failed
    finally:
        formats.FORMATS[:] = read
        for table, was in kept:
            table.clear()
            table.update(was)
    assert not failed, "".join(told)
    assert len(example.examples) <= 7, f"{name}: an example is short"
