"""Embedder with static word vectors from the wordllama package: thousands of texts a second."""

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
from rankproof.retrieval.model_calls import embed_texts
from rankproof.retrieval.protocols import Vectors

_BATCH = 256
_CHARACTERS_AT_ONCE = 1 << 14  # bounds the memory for word vectors of texts padded to the longest
_CONFIG, _WIDTH = "l2_supercat", 256  # the model that the package contains


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
    """Embeds a text as the mean of its word vectors: the first `dimensions`, at length 1."""

    def __init__(self, settings: WordllamaSettings):
        self.settings = settings
        self.name = f"wordllama-{settings.dimensions}"
        self._model = _load(settings.dimensions)
        self.fingerprint = fingerprint(settings)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self.settings.query_prompt)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self.settings.passage_prompt)

    def _embed(self, texts: Sequence[str], prompt: str) -> Vectors:
        """Return the mean word vector of each text after its prompt."""

        def compute(batch: list[str]) -> Vectors:
            prompted = [prompt + text for text in batch]
            batch_size = max(1, _CHARACTERS_AT_ONCE // max(map(len, prompted)))
            return np.asarray(self._model.embed(prompted, batch_size=batch_size))

        return embed_texts(
            texts,
            compute,
            place=self.name,
            batch=_BATCH,
            dimensions=self.settings.dimensions,
        )


def _load(dimensions: int) -> Any:
    """Load the model from the package's own folder."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        wordllama = import_extra("wordllama", "the embedder wordllama", "retrieval")
    finally:
        root.setLevel(level)  # importing the package changes them
        root.handlers[:] = handlers
    folder = Path(str(wordllama.__file__)).parent
    try:
        # The package looks for its tokenizer in a cache; its own folder has the same layout.
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
