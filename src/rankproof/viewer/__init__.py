"""A local page to read a golden set and to correct it."""

from rankproof.viewer.server import view

__all__ = ["view"]
