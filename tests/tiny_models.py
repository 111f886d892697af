"""Random transformers of a few thousand parameters, written to a folder and loaded from there."""

from __future__ import annotations

import random
from importlib import import_module as load  # untyped on purpose: the extras may be absent
from pathlib import Path
from typing import Any

WORDS = [f"word{i}" for i in range(120)]


def sentences(count: int, length: int = 6, seed: int = 0) -> list[str]:
    """Different sentences of a few words each."""
    draw = random.Random(seed)
    return [" ".join([*draw.choices(WORDS, k=length), WORDS[i % 120]]) for i in range(count)]


def write(folder: Path, labels: int | None) -> str:
    """A BERT with one layer; with `labels` a classifier, without an encoder."""
    torch, transformers, tokenizers = map(load, ("torch", "transformers", "tokenizers"))

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=32,
        **{f"{name.strip('[]').lower()}_token": name for name in special},
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        num_labels=labels or 1,
        initializer_range=0.5,
    )
    torch.manual_seed(0)
    kind = transformers.BertForSequenceClassification if labels else transformers.BertModel
    kind(config).save_pretrained(folder)
    return str(folder)


def cross_encoder(folder: Path, labels: int, dtype: str) -> Any:
    torch, library = load("torch"), load("sentence_transformers")
    model = library.CrossEncoder(write(folder, labels), device="cpu")
    model.model.to(getattr(torch, dtype))
    return model


def sentence_transformer(folder: Path, dtype: str) -> Any:
    torch, library = load("torch"), load("sentence_transformers")
    model = library.SentenceTransformer(write(folder, None), device="cpu")
    return model.to(getattr(torch, dtype))
