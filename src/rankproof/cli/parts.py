"""`rankproof parts`: what a stage of a retrieval stack can be."""

from __future__ import annotations

from typing import Any

from rankproof.cli import options
from rankproof.cli.options import Format


def command(form: options.FormatOption = Format.table, wide: options.WideOption = False) -> None:
    """List the parts of a retrieval stack: what `type:` takes, and what each needs."""
    from rankproof.cli.output import Column, Made, Table, deliver

    described = described_parts()
    columns = [
        *Column.each("kind", "type", style="text"),
        *Column.each("extra", "installed", style="text", drop=1),
        Column("what it does", "text", prose=True),
    ]
    rows = [
        (d["kind"], d["type"], d["extra"] or "–", "yes" if d["installed"] else "no", d["does"])
        for d in described
    ]
    deliver(form, [Table(columns, rows)], {"parts": described}, Made("parts", {}, {}))


def described_parts() -> list[dict[str, Any]]:
    """Every part that is declared, here or by a package that is installed."""
    from rankproof.presentation.json_values import told
    from rankproof.retrieval.components import list_components

    return [
        {
            **told(part, "kind", "type", "extra"),
            "installed": part.missing_module is None,
            **told(part, "network", "does"),
            "settings": list(part.settings.model_fields),
        }
        for part in list_components()
    ]
