"""Read the scale of judgments from the file beside them: `qrels.txt.scale` for `qrels.txt`.

    {"grades": [1, 5], "relevant": 4, "gains": 3}

TREC and BEIR files cannot state what their grades mean, and their readers know no comments, so the
scale has a file of its own.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from rankproof.data.tables import SET_SCALE, Scale
from rankproof.foundation.errors import InputError, shorten

ENDING = ".scale"


def read_scale(qrels: str) -> Scale | None:
    """Return the scale beside a file of judgments; None if there is none."""
    if qrels == "-" or "\0" in qrels or not (file := Path(f"{qrels}{ENDING}")).is_file():
        return None
    values: list[Any] = []
    with suppress(OSError, ValueError, TypeError, KeyError):
        content = json.loads(file.read_text(encoding="utf-8"))
        values = [*content["grades"], content["relevant"], content["gains"]]
    if len(values) == 4 and all(type(value) is int for value in values):
        lowest, highest, relevant, gains = values
        if lowest <= min(relevant, gains) <= max(relevant, gains) <= highest:
            return Scale(lowest, highest, relevant, gains)
    raise InputError(
        f"no scale of grades: {shorten(file.read_bytes()[:200])}",
        place=str(file),
        remedy=f"write {scale_text(SET_SCALE)}, say, or delete it",
    )


def scale_text(scale: Scale) -> str:
    """Return a scale as its file contains it."""
    grades = [scale.lowest, scale.highest]
    return json.dumps({"grades": grades, "relevant": scale.relevant, "gains": scale.gains})
