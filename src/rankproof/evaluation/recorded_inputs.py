"""Settings and input files from which a command, or `verify` after it, makes a result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rankproof.data import read_qrels
from rankproof.data.tables import Qrels


@dataclass(frozen=True)
class RecordedInputs:
    """Settings, and files by role, as a manifest records them."""

    config: Mapping[str, Any]
    files: Mapping[str, str | Path]
    judged: Qrels | None = None  # the judgments, if they were read before

    @cached_property
    def qrels(self) -> Qrels:
        """The judgments of the role `qrels`."""
        if self.judged is not None:
            return self.judged
        return read_qrels(self.files["qrels"], format=self.config.get("qrels_format"))
