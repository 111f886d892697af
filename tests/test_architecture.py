"""Packages import only from lower layers, as docs/architecture.md draws them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import import_graph  # noqa: E402


def test_every_package_has_a_layer() -> None:
    layered = {package for packages in import_graph.LAYERS for package in packages}
    existing = {
        import_graph.package_of(f"rankproof.{path.stem}")
        for path in import_graph.SOURCE.iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }
    assert existing == layered


@pytest.mark.parametrize("edge", sorted(import_graph.edges()), ids=" imports ".join)
def test_a_package_imports_only_from_lower_layers(edge: tuple[str, str]) -> None:
    importer, imported = map(import_graph.layer_of, edge)
    assert importer < imported, import_graph.edges()[edge]


def test_the_picture_of_the_packages_is_current() -> None:
    drawn = import_graph.PICTURE.read_text(encoding="utf-8")
    assert drawn == import_graph.picture(), "run: python examples/import_graph.py"
