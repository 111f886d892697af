"""A local page to read a golden set and to correct it."""

from rankproof.viewer.desk import Seat
from rankproof.viewer.server import view

__all__ = ["Seat", "view"]
