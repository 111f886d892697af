"""A function of the user's own, or a retriever as LangChain and LlamaIndex have them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from rankproof.data.hits import read_hits
from rankproof.foundation.config import NonNegative, Settings
from rankproof.foundation.errors import InputError, RankproofError, shorten
from rankproof.retrieval.components import failed, load_object, part
from rankproof.retrieval.hits import run_of_hits
from rankproof.retrieval.identity import source_digest
from rankproof.retrieval.protocols import Retrieved
from rankproof.retrieval.row_lists import check_depth


class PythonSettings(Settings):
    """A function of yours: (text, k) → [(id, score), …]."""

    type: Literal["python"]
    call: str  # module:function
    id: str | None = None  # where a hit has its id: metadata.id, say
    cost_per_1000: NonNegative | None = None  # in the currency of the prices

    @property
    def decides(self) -> dict[str, Any]:
        """A function that was changed is another one."""
        return {"source": source_digest(self.call)}


class Called:
    """A callable (text, k), or `.invoke(text)`, or `.retrieve(text)`, as a Retriever."""

    bytes = 0  # nobody can tell
    build_seconds = 0.0

    def __init__(self, name: str, given: Any, path: str | None = None):
        self.name = name
        self._call = _by_shape(given, name)
        self._path = path

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """One query after the other, each timed by itself. What comes beyond k is cut later, with
        its ties."""
        check_depth(k)
        found, seconds = [], []
        for text in queries:
            begun = time.perf_counter()
            try:
                answer = self._call(text, k)
                if not isinstance(answer, str | bytes) and hasattr(answer, "__next__"):
                    answer = list(answer)  # a generator works only now
            except RankproofError:
                raise
            except Exception as error:
                raise failed(self.name, error, f" for {shorten(text)}") from error
            seconds.append(time.perf_counter() - begun)
            found.append(read_hits(answer, self.name, self._path))
        return Retrieved(run_of_hits(self.name, query_ids, found), np.array(seconds, np.float64))


def _by_shape(given: Any, name: str) -> Callable[[str, int], Any]:
    for method in ("invoke", "retrieve"):  # LangChain, LlamaIndex: how many is their own setting
        if callable(found := getattr(given, method, None)):
            return lambda text, k: found(text)
    if callable(given):
        return lambda text, k: given(text, k)
    raise InputError(
        f"{shorten(given)} cannot be asked",
        place=name,
        remedy="give a function (text, k) → [(id, score), …], or an object with .invoke, "
        ".retrieve or .search",
    )


@part("retriever", "python")
def make_python(
    settings: PythonSettings,
    documents: Sequence[str] = (),
    document_ids: Sequence[str] | None = None,
) -> Called:
    return Called(settings.call, load_object(settings.call, "retriever"), settings.id)
