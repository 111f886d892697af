"""The house stands as docs/architecture.md draws it: imports go down, never up or round."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

import import_graph  # noqa: E402


def test_every_room_has_its_floor() -> None:
    placed = {room for rooms in import_graph.FLOORS for room in rooms}
    found = {
        import_graph.room_of(f"rankproof.{path.stem}")
        for path in import_graph.SOURCE.iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    }
    assert found == placed


@pytest.mark.parametrize("edge", sorted(import_graph.edges()), ids=" imports ".join)
def test_a_room_imports_only_from_below(edge: tuple[str, str]) -> None:
    one, other = map(import_graph.floor_of, edge)
    assert one < other, import_graph.edges()[edge]


def test_the_picture_shows_the_house_as_it_is() -> None:
    drawn = (ROOT / "docs" / "images" / "rooms.svg").read_text(encoding="utf-8")
    assert drawn == import_graph.picture(), "run: python examples/import_graph.py"
