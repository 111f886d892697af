"""`rankproof measures`: the measures there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankproof.cli import options
from rankproof.cli.options import Format

if TYPE_CHECKING:
    from rankproof.measures import Definition


def _cutoff(definition: Definition) -> str:
    if definition.at == "recall":
        return "recall"
    if definition.needs_cutoff:
        return "needed"
    return "optional" if definition.takes_cutoff else "none"


def command(form: options.FormatOption = Format.table, wide: options.WideOption = False) -> None:
    """List the measures, their parameters and what they mean."""
    from rankproof.cli.output import Column, Made, Table, deliver
    from rankproof.measures import REGISTRY

    described: list[dict[str, Any]] = [
        {
            "name": d.name,
            "cutoff": _cutoff(d),
            "parameters": {n: p.default for n, p in d.parameters.items() if n != d.at},
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
        Column("@k", "text", drop=2),
        Column("parameters", "text", drop=1),
        Column("meaning", "text", prose=True),
    ]
    notes = [
        "rel: the lowest grade that counts as relevant",
        "[T n]: equation n of arXiv 2508.03306; [R §n]: section n of arXiv 2511.09545",
    ]
    made = Made("measures", {}, {})
    deliver(form, [Table(columns, rows, notes=notes)], {"measures": described}, made)
