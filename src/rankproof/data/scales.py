"""The scale of judgements, in a file beside them: `qrels.txt.scale` is that of `qrels.txt`.

    {"grades": [1, 5], "relevant": 4, "gains": 3}

TREC and BEIR files hold grades and not what they mean, and their readers know no comments: so the
file itself stays as it is for all of them.
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
    """What lies beside a file of judgements; None where nothing does."""
    if qrels == "-" or "\0" in qrels or not (file := Path(f"{qrels}{ENDING}")).is_file():
        return None
    figures: list[Any] = []
    with suppress(OSError, ValueError, TypeError, KeyError):
        said = json.loads(file.read_text(encoding="utf-8"))
        figures = [*said["grades"], said["relevant"], said["gains"]]
    if len(figures) == 4 and all(type(figure) is int for figure in figures):
        lowest, highest, relevant, gains = figures
        if lowest <= min(relevant, gains) <= max(relevant, gains) <= highest:
            return Scale(lowest, highest, relevant, gains)
    raise InputError(
        f"no scale of grades: {shorten(file.read_bytes()[:200])}",
        place=str(file),
        remedy=f"write {scale_text(SET_SCALE)}, say, or delete it",
    )


def scale_text(scale: Scale) -> str:
    """A scale as its file holds it."""
    grades = [scale.lowest, scale.highest]
    return json.dumps({"grades": grades, "relevant": scale.relevant, "gains": scale.gains})
