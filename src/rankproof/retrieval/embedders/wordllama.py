"""Static word vectors from the wordllama package: no torch, no download, thousands of texts a
second."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rankproof.foundation.config import Settings
from rankproof.foundation.errors import InputError, import_extra
from rankproof.retrieval.components import part
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.protocols import Vectors
from rankproof.retrieval.texts import Progress, embed_texts

_BATCH = 256
_CHARACTERS = 1 << 14  # of texts, padded to the longest, whose words' vectors are held at a time
_CONFIG, _WIDTH = "l2_supercat", 256  # the model that is in the package


class WordllamaSettings(Settings):
    """Static word vectors: no torch, no download.

    >>> from rankproof.retrieval.embedders.wordllama import WordllamaSettings
    >>> WordllamaSettings(dimensions=64).dimensions
    64
    """

    type: Literal["wordllama"] = "wordllama"
    dimensions: Literal[64, 128, 256] = 256
    query_prompt: str = ""
    passage_prompt: str = ""


@part("embedder", "wordllama", extra="retrieval", imports=("wordllama",), packages=("wordllama",))
class WordllamaEmbedder:
    """The mean of a text's word vectors, cut to the first `dimensions` and made unit length."""

    def __init__(self, settings: WordllamaSettings, progress: Progress | None = None):
        self.settings = settings
        self.name = f"wordllama-{settings.dimensions}"
        self._progress = progress
        self._model = _load(settings.dimensions)
        self.fingerprint = fingerprint(settings)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self.settings.query_prompt)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self.settings.passage_prompt)

    def _embed(self, texts: Sequence[str], prompt: str) -> Vectors:
        def compute(some: list[str]) -> Vectors:
            prompted = [prompt + text for text in some]
            at_once = max(1, _CHARACTERS // max(map(len, prompted)))
            return np.asarray(self._model.embed(prompted, batch_size=at_once))

        return embed_texts(
            texts,
            compute,
            place=self.name,
            batch=_BATCH,
            dimensions=self.settings.dimensions,
            progress=self._progress,
        )


def _load(dimensions: int) -> Any:
    """The model that is in the package."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        wordllama = import_extra("wordllama", "the embedder wordllama", "retrieval")
    finally:
        root.setLevel(level)  # the package sets these for everybody
        root.handlers[:] = handlers
    folder = Path(str(wordllama.__file__)).parent
    try:
        # The package looks for its tokenizer in a cache; its own folder is laid out like one.
        model = wordllama.WordLlama.load(
            _CONFIG, cache_dir=folder, dim=_WIDTH, trunc_dim=dimensions, disable_download=True
        )
    except (FileNotFoundError, ValueError, AttributeError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(
            f"wordllama cannot load its vectors ({first})",
            remedy="install the package again: pip install --force-reinstall wordllama",
        ) from None
    return model
