"""Several judges on one set."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, StringConstraints, field_validator

from rankproof.foundation.config import Settings
from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import JudgeChoice, part

Name = Annotated[str, StringConstraints(pattern=r"^[\w.+-]{1,60}$")]


class PanelSettings(Settings):
    """Several judges, joined by how reliable each proves to be."""

    type: Literal["panel"]
    judges: Annotated[dict[Name, JudgeChoice], Field(min_length=2, max_length=20)]

    @field_validator("judges")
    @classmethod
    def _one_each(cls, value: dict[str, Any]) -> dict[str, Any]:
        nested = next((n for n, one in value.items() if isinstance(one, PanelSettings)), None)
        if nested is not None:
            raise InputError(f"{nested} is a panel itself", remedy="name its judges here")
        return value


@part("judge", "panel")
def make_panel(settings: PanelSettings) -> NoReturn:
    """Its judges are asked one by one (`judges.make_judges`), never the panel."""
    raise InputError(
        "several judges where one is asked", place="judge", remedy="name one of the panel's"
    )
