"""The settings of a panel: several judges who all grade one golden set."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field, StringConstraints, field_validator

from rankproof.foundation.config import Settings
from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import JudgeChoice, part

Name = Annotated[str, StringConstraints(pattern=r"^[\w.+-]{1,60}$")]


class PanelSettings(Settings):
    """Several judges, weighted by how reliable each proves to be (`judge_combination`)."""

    type: Literal["panel"]
    judges: Annotated[dict[Name, JudgeChoice], Field(min_length=2, max_length=20)]

    @field_validator("judges")
    @classmethod
    def _check_members(cls, value: dict[str, Any]) -> dict[str, Any]:
        """Refuse a panel within a panel."""
        for name, judge in value.items():
            if isinstance(judge, PanelSettings):
                raise InputError(f"{name} is a panel itself", remedy="name its judges here")
        return value


@part("judge", "panel")
def make_panel(settings: PanelSettings) -> NoReturn:
    """Raise InputError: a build makes the panel's judges one by one (`judges.members`)."""
    raise InputError(
        "several judges where one is needed", place="judge", remedy="name one of the panel's"
    )
