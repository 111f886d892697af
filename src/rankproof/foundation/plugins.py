"""What other packages bring, through their entry points."""

from __future__ import annotations

from rankproof.foundation.errors import InputError


def load(group: str, what: str) -> None:
    """Import what packages declare for a group; each registers itself."""
    from importlib.metadata import entry_points  # a tenth of what starting takes

    for entry in entry_points(group=group):
        try:
            entry.load()
        except Exception as error:
            raise InputError(
                f"the {what} of {entry.name} cannot be loaded ({error})",
                place=entry.value,
                remedy="update or remove that package",
            ) from None
