"""The scale of judgements, in a file beside them: `qrels.txt.scale` is that of `qrels.txt`.

    {"grades": [1, 5], "relevant": 4, "gains": 3}

TREC and BEIR files hold grades and not what they mean, and their readers know no comments: so the
file itself stays as it is for all of them.
"""

from __future__ import annotations

import json
from pathlib import Path

from rankproof.errors import InputError, shorten
from rankproof.tables import SET_SCALE, Scale

ENDING = ".scale"


def read_scale(qrels: str) -> Scale | None:
    """What lies beside a file of judgements; None where nothing does."""
    if qrels == "-" or "\0" in qrels or not (file := Path(f"{qrels}{ENDING}")).is_file():
        return None
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        lowest, highest = said["grades"]
        figures = (lowest, highest, said["relevant"], said["gains"])
    except (OSError, ValueError, TypeError, KeyError):
        figures = (None,)
    whole = all(type(figure) is int for figure in figures)
    if not whole or not figures[0] <= min(figures[2:]) <= max(figures[2:]) <= figures[1]:  # type: ignore[operator]
        raise InputError(
            f"no scale of grades: {shorten(file.read_bytes()[:200])}",
            place=str(file),
            remedy=f"write {scale_text(SET_SCALE)}, say, or delete it",
        )
    return Scale(*figures)  # type: ignore[arg-type]


def scale_text(scale: Scale) -> str:
    """A scale as its file holds it."""
    grades = [scale.lowest, scale.highest]
    return json.dumps({"grades": grades, "relevant": scale.relevant, "gains": scale.gains})
