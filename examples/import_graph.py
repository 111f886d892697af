"""Draws docs/images/rooms.svg: which room of the house imports which.

    python examples/import_graph.py

A room is a package of rankproof, or a module that stands by itself. An arrow is an import, at the
top of a module or inside a function; imports for type checkers alone do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rankproof"


def imports(tree: ast.AST) -> Iterator[str]:
    """Names of modules that a tree imports; what stands under `if TYPE_CHECKING` is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports(node)


def room_of(module: str) -> str | None:
    """rankproof.golden.store → golden; None outside, and for the package itself."""
    parts = module.split(".")
    if parts[0] != "rankproof" or len(parts) < 2:
        return None
    known = (SOURCE / parts[1]).is_dir() or (SOURCE / f"{parts[1]}.py").is_file()
    return TOGETHER.get(parts[1], parts[1]) if known else None


def edges() -> dict[tuple[str, str], set[str]]:
    """(importing room, imported room) → the modules that do it."""
    found: dict[tuple[str, str], set[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        module = ".".join(("rankproof", *file.relative_to(SOURCE).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        own = room_of(module)
        if own is None:
            continue
        for name in imports(ast.parse(file.read_text(encoding="utf-8"))):
            other = room_of(name)
            if other is not None and other != own:
                found.setdefault((own, other), set()).add(module)
    return found


# From the roof to the ground. A room imports only from the rows below its own.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("showcase", "health"),
    ("choosing",),
    ("report", "viewer", "cluster", "verification", "documents"),
    ("golden", "gating", "compat"),
    ("tradeoffs", "diagnostics", "audit", "standings"),
    ("retrieval",),
    ("comparison", "scoring", "limits", "matrices", "tie_counts"),
    ("unjudged",),
    ("given",),
    ("evaluation",),
    ("results",),
    ("statistics",),
    ("measures", "records"),
    ("ties",),
    ("tables",),
    ("config", "database", "manifest", "kernels"),
    ("lines",),
    ("memory", "files", "hub", "locks", "interrupts", "plugins"),
    ("errors", "arrays", "version", "visible", "sentences"),
    ("redaction",),
)
TOGETHER = {"streaming": "evaluation"}  # one door, whatever the size of a run


def floor_of(room: str) -> int:
    """0 is the roof."""
    return next(floor for floor, rooms in enumerate(FLOORS) if room in rooms)


def reduced(found: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Without the edges that follow from others."""
    below: dict[str, set[str]] = {}
    for one, other in found:
        below.setdefault(one, set()).add(other)

    def reach(room: str) -> set[str]:
        return {
            deep
            for other in below.get(room, ())
            for deep in (below.get(other, set()) | reach(other))
        }

    return {(one, other) for one, other in found if other not in reach(one)}


def picture() -> str:
    """An SVG: rooms in rows, lines downwards."""
    width, row, box = 960, 62, 30
    place = {
        room: (width * (at + 1) / (len(rooms) + 1), 30 + floor * row)
        for floor, rooms in enumerate(FLOORS)
        for at, room in enumerate(rooms)
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {len(FLOORS) * row}" '
        'font-family="system-ui, sans-serif" font-size="14" text-anchor="middle">',
        "<title>Rooms of rankproof and what they import</title>",
        f'<rect width="{width}" height="{len(FLOORS) * row}" fill="#fff"/>',
    ]
    for one, other in sorted(reduced(set(edges()))):
        (x1, y1), (x2, y2) = place[one], place[other]
        middle = (y1 + y2) / 2
        lines.append(
            f'<path d="M{x1:.0f} {y1 + box / 2:.0f} C{x1:.0f} {middle:.0f} {x2:.0f} {middle:.0f} '
            f'{x2:.0f} {y2 - box / 2:.0f}" fill="none" stroke="#5b7fa6" stroke-opacity=".6"/>'
        )
    for room, (x, y) in place.items():
        wide = 24 + 8.5 * len(room)
        lines.append(
            f'<rect x="{x - wide / 2:.0f}" y="{y - box / 2:.0f}" width="{wide:.0f}" height="{box}" '
            'rx="6" fill="#eef3f9" stroke="#5b7fa6"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}" fill="#1d2b3a">{room}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    (ROOT / "docs" / "images" / "rooms.svg").write_text(picture(), encoding="utf-8")
