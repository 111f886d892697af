"""`rankproof measures`: the measures there are."""

from __future__ import annotations

from typing import Any

from rankproof.cli import options
from rankproof.cli.options import Format


def command(form: options.FormatOption = Format.table) -> None:
    """List the measures, their parameters and what they mean."""
    from rankproof.cli.output import Column, Made, Table, deliver
    from rankproof.measures import REGISTRY

    described: list[dict[str, Any]] = [
        {
            "name": d.name,
            "cutoff": "needed" if d.needs_cutoff else "optional" if d.takes_cutoff else "none",
            "parameters": {name: p.default for name, p in d.parameters.items()},
            "summary": d.summary,
        }
        for d in REGISTRY.values()
    ]
    rows = [
        (
            d["name"],
            d["cutoff"],
            ", ".join(f"{k}={v!r}" for k, v in d["parameters"].items()),
            d["summary"],
        )
        for d in described
    ]
    columns = [
        Column("measure", "text"),
        Column("@k", "text"),
        Column("parameters", "text"),
        Column("meaning", "text", folds=True),
    ]
    made = Made("measures", {}, {})
    deliver(form, [Table(columns, rows)], {"measures": described}, made)
