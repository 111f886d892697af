"""A folder of documents → a BEIR folder, questions, and configurations to begin with."""

from rankproof.projects.preparing import Prepared

__all__ = ["Prepared"]
