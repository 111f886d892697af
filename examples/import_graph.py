"""Draw docs/images/packages.svg: which package of rankproof imports which.

    python examples/import_graph.py

An arrow is an import, at the top of a module or inside a function; imports for type checkers alone
do not count. Arrows that follow from others are omitted.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "rankproof"
PICTURE = ROOT / "docs" / "images" / "packages.svg"

# Layers from top to bottom. A package imports only from packages in later rows.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("commands",),
    ("projects",),
    ("report", "cluster", "compat"),
    ("comparison",),
    ("golden", "audit"),
    ("tradeoffs", "diagnostics"),
    ("retrieval",),
    ("precision", "unjudged"),
    ("evaluation",),
    ("presentation",),
    ("statistics",),
    ("measures",),
    ("data",),
    ("foundation",),
)


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Names of the modules that a tree imports, except below `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imported_modules(node)


def package_of(module: str) -> str | None:
    """Return the package of a module: golden of rankproof.golden.store; None outside."""
    parts = module.split(".")
    if parts[0] != "rankproof" or len(parts) < 2:
        return None
    exists = (SOURCE / parts[1]).is_dir() or (SOURCE / f"{parts[1]}.py").is_file()
    return parts[1] if exists else None


def edges() -> dict[tuple[str, str], set[str]]:
    """Map each pair (importing package, imported package) to the modules that import."""
    importers: dict[tuple[str, str], set[str]] = {}
    for file in sorted(SOURCE.rglob("*.py")):
        module = ".".join(("rankproof", *file.relative_to(SOURCE).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        package = package_of(module)
        if package is None:
            continue
        for name in imported_modules(ast.parse(file.read_text(encoding="utf-8"))):
            imported = package_of(name)
            if imported is not None and imported != package:
                importers.setdefault((package, imported), set()).add(module)
    return importers


def layer_of(package: str) -> int:
    """Return the row of a package in LAYERS; 0 is the top."""
    return next(row for row, packages in enumerate(LAYERS) if package in packages)


def without_implied(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the pairs that do not follow from a chain of others."""
    direct: dict[str, set[str]] = {}
    for importer, imported in pairs:
        direct.setdefault(importer, set()).add(imported)

    def reachable(package: str) -> set[str]:
        """Packages that are imported by those which this package imports."""
        return {
            deeper
            for imported in direct.get(package, ())
            for deeper in (direct.get(imported, set()) | reachable(imported))
        }

    return {
        (importer, imported) for importer, imported in pairs if imported not in reachable(importer)
    }


def picture() -> str:
    """Return an SVG with the layers as rows and imports as lines downward."""
    width, row_height, box_height = 960, 62, 30
    centers = {
        package: (width * (column + 1) / (len(packages) + 1), 30 + row * row_height)
        for row, packages in enumerate(LAYERS)
        for column, package in enumerate(packages)
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {len(LAYERS) * row_height}" '
        'font-family="system-ui, sans-serif" font-size="14" text-anchor="middle">',
        "<title>Packages of rankproof and what they import</title>",
        f'<rect width="{width}" height="{len(LAYERS) * row_height}" fill="#fff"/>',
    ]
    for importer, imported in sorted(without_implied(set(edges()))):
        (x1, y1), (x2, y2) = centers[importer], centers[imported]
        middle = (y1 + y2) / 2
        lines.append(
            f'<path d="M{x1:.0f} {y1 + box_height / 2:.0f} C{x1:.0f} {middle:.0f} {x2:.0f} '
            f'{middle:.0f} {x2:.0f} {y2 - box_height / 2:.0f}" fill="none" stroke="#5b7fa6" '
            'stroke-opacity=".6"/>'
        )
    for package, (x, y) in centers.items():
        box_width = 24 + 8.5 * len(package)
        lines.append(
            f'<rect x="{x - box_width / 2:.0f}" y="{y - box_height / 2:.0f}" '
            f'width="{box_width:.0f}" height="{box_height}" rx="6" fill="#eef3f9" '
            f'stroke="#5b7fa6"/><text x="{x:.0f}" y="{y + 5:.0f}" fill="#1d2b3a">{package}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
