"""`parts`: the components that a configuration can choose by `type:`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from rankproof.commands.options import COMPONENT_SETTINGS
from rankproof.commands.registry import command

if TYPE_CHECKING:
    from rankproof.presentation.result import Summary
    from rankproof.presentation.tables import Table
    from rankproof.retrieval.components import Component


@dataclass(frozen=True)
class ComponentList:
    """The components that rankproof and installed packages declare.

    >>> rp.parts().to_dict()["parts"][0]["kind"]
    'embedder'
    """

    kind: ClassVar[str] = "parts"
    exit_code: ClassVar[int] = 0
    components: tuple[Component, ...]

    def summary(self) -> Summary:
        from rankproof.presentation.result import Summary

        return Summary("")

    def tables(self) -> list[Table]:
        """One row for each component."""
        from rankproof.presentation.tables import Column, Table

        columns = [
            *Column.each("kind", "type", style="text"),
            *Column.each("extra", "installed", style="text", drop=1),
            Column("what it does", "text", prose=True),
        ]
        rows = [
            (c.kind, c.type, c.extra or "–", "no" if c.missing_module else "yes", c.does)
            for c in self.components
        ]
        return [Table(columns, rows)]

    def full_tables(self) -> list[Table]:
        """The same tables: nothing is left out of them."""
        return self.tables()

    def charts(self) -> list[Any]:
        return []

    def figures(self) -> dict[str, float]:
        return {}

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof parts --format json` prints."""
        parts = [
            {
                "kind": component.kind,
                "type": component.type,
                "extra": component.extra,
                "installed": component.missing_module is None,
                "network": component.network,
                "does": component.does,
                "settings": list(component.settings.model_fields),
            }
            for component in self.components
        ]
        return {"parts": parts}


@command(group="Tools", needs=COMPONENT_SETTINGS, replay="it depends on what is installed")
def parts() -> ComponentList:
    """List the components of a retrieval stack: what `type:` takes, and what each needs.

    $ rankproof parts

    >>> "flat" in [component.type for component in rp.parts().components]
    True
    """
    from rankproof.retrieval.components import list_components

    return ComponentList(tuple(list_components()))
