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
    return parts[1] if known else None


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


if __name__ == "__main__":
    for (one, other), modules in sorted(edges().items()):
        print(f"{one:14} → {other:14} {len(modules)}  {', '.join(sorted(modules))[:90]}")
