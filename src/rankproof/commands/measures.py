"""`measures`: the measures there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankproof.commands.registry import command

if TYPE_CHECKING:
    from rankproof.measures import Definition
    from rankproof.presentation.table_result import TableResult


@command(group="Evaluate", replay="it holds none that follows from its inputs alone")
def measures() -> TableResult:
    """List the measures, their parameters and what they mean.

    $ rankproof measures
    """
    from rankproof.measures import REGISTRY
    from rankproof.presentation.table_result import TableResult
    from rankproof.presentation.tables import Column, Table

    described: list[dict[str, Any]] = [
        {
            "name": definition.name,
            "cutoff": _cutoff(definition),
            "parameters": {
                name: parameter.default
                for name, parameter in definition.parameters.items()
                if name != definition.at
            },
            "summary": definition.summary,
        }
        for definition in REGISTRY.values()
    ]
    columns = [
        Column("measure", "text"),
        Column("@k", "text", drop=2),
        Column("parameters", "text", drop=1),
        Column("meaning", "text", prose=True),
    ]
    rows = []
    for measure in described:
        parameters = ", ".join(f"{k}={v!r}" for k, v in measure["parameters"].items())
        rows.append((measure["name"], measure["cutoff"], parameters, measure["summary"]))
    notes = [
        "rel: the lowest grade that counts as relevant",
        "[T n]: equation n of arXiv 2508.03306; [R §n]: section n of arXiv 2511.09545",
    ]
    table = Table(columns, rows, notes=notes)
    return TableResult("measures", {"measures": described}, [table])


def _cutoff(definition: Definition) -> str:
    """What may follow @ in a measure's name."""
    if definition.at == "recall":
        return "recall"
    if definition.needs_cutoff:
        return "needed"
    return "optional" if definition.takes_cutoff else "none"
