"""`rankproof parts`: what a stage of a retrieval stack can be."""

from __future__ import annotations

from typing import Any

from rankproof.cli import options
from rankproof.cli.options import Format


def command(form: options.FormatOption = Format.table) -> None:
    """List the parts of a retrieval stack: what `type:` takes, and what each needs."""
    from rankproof.cli.output import Column, Made, Table, deliver

    described = described_parts()
    columns = [
        *Column.each("kind", "type", "extra", "installed", style="text"),
        Column("what it does", "text", folds=True),
    ]
    rows = [
        (d["kind"], d["type"], d["extra"] or "–", "yes" if d["installed"] else "no", d["does"])
        for d in described
    ]
    deliver(form, [Table(columns, rows)], {"parts": described}, Made("parts", {}, {}))


def described_parts() -> list[dict[str, Any]]:
    """Every part that is declared, here or by a package that is installed."""
    from rankproof.retrieval.parts import every

    return [
        {
            "kind": part.kind,
            "type": part.type,
            "extra": part.extra,
            "installed": part.absent is None,
            "network": part.network,
            "does": part.does,
            "settings": list(part.settings.model_fields),
        }
        for part in every()
    ]
