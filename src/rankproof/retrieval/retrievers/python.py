"""Retriever that calls a user's function, or a retriever of LangChain or LlamaIndex."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from rankproof.data.hits import read_hits
from rankproof.foundation.config import NonNegative, Settings
from rankproof.foundation.errors import InputError, RankproofError, shorten
from rankproof.retrieval.components import load_object, part, user_code_error
from rankproof.retrieval.identity import source_digest
from rankproof.retrieval.protocols import Retrieved
from rankproof.retrieval.ranked_lists import check_depth, run_from_hits


class PythonSettings(Settings):
    """A function of yours: (text, k) → [(id, score), …]."""

    type: Literal["python"]
    call: str  # module:function
    id: str | None = None  # where a hit has its id, such as metadata.id
    cost_per_1000: NonNegative | None = None  # in the currency of the prices

    @property
    def decides(self) -> dict[str, Any]:
        """A function whose source has changed is another one."""
        return {"source": source_digest(self.call)}


class FunctionRetriever:
    """Wraps a function (text, k), or an object with `.invoke(text)` or `.retrieve(text)`."""

    bytes = 0  # unknown
    build_seconds = 0.0

    def __init__(self, name: str, engine: Any, id_path: str | None = None):
        self.name = name
        self._call = _as_function(engine, name)
        self._id_path = id_path

    def search(
        self, queries: Sequence[str], k: int, query_ids: Sequence[str] | None = None
    ) -> Retrieved:
        """Search one query after the other, each timed by itself.

        Hits beyond k are kept: whoever cuts the list needs them to count its ties.
        """
        check_depth(k)
        hits, seconds = [], []
        for text in queries:
            start = time.perf_counter()
            answer = self._ask(text, k)
            seconds.append(time.perf_counter() - start)
            hits.append(read_hits(answer, self.name, self._id_path))
        return Retrieved(run_from_hits(self.name, query_ids, hits), np.array(seconds, np.float64))

    def _ask(self, text: str, k: int) -> Any:
        """Call the user's function for one question; its exceptions become one-line errors."""
        try:
            answer = self._call(text, k)
            is_iterator = not isinstance(answer, str | bytes) and hasattr(answer, "__next__")
            return list(answer) if is_iterator else answer  # a generator does its work here
        except RankproofError:
            raise
        except Exception as error:
            raise user_code_error(self.name, error, f" for {shorten(text)}") from error


def _as_function(engine: Any, name: str) -> Callable[[str, int], Any]:
    """Return the function (text, k) that asks the engine."""
    for method_name in ("invoke", "retrieve"):  # LangChain, LlamaIndex: k is set in the object
        method = getattr(engine, method_name, None)
        if callable(method):
            return lambda text, k: method(text)
    if callable(engine):
        return lambda text, k: engine(text, k)
    raise InputError(
        f"{shorten(engine)} cannot be asked",
        place=name,
        remedy="give a function (text, k) → [(id, score), …], or an object with .invoke, "
        ".retrieve or .search",
    )


@part("retriever", "python")
def make_python(
    settings: PythonSettings,
    documents: Sequence[str] = (),
    document_ids: Sequence[str] | None = None,
) -> FunctionRetriever:
    """Return a retriever that calls the user's function."""
    return FunctionRetriever(settings.call, load_object(settings.call, "retriever"), settings.id)
