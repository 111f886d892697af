"""Examples of docstrings on the page of the Python reference: fenced, so that they are code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*?(?=\n\n|\Z)", re.M | re.S)


class Fenced(Extension):
    """`>>>` and what follows to the next blank line becomes a block of code."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            said = obj.docstring.value
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", said)
