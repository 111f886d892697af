"""Random transformers of a few thousand parameters, written to a folder and loaded from there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib import import_module as load  # untyped on purpose: the extras may be absent
from pathlib import Path
from typing import Any

WORDS = [f"word{i}" for i in range(120)]


def sentences(count: int, length: int = 6, seed: int = 0) -> list[str]:
    """Different sentences of a few words each."""
    draw = random.Random(seed)
    return [" ".join([*draw.choices(WORDS, k=length), WORDS[i % 120]]) for i in range(count)]


def write(folder: Path, labels: int | None, dtype: str = "float32") -> str:
    """A BERT with one layer, saved in a format; with `labels` a classifier, without an encoder."""
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
    kind(config).to(getattr(torch, dtype)).save_pretrained(folder)
    return str(folder)


def write_language_model(folder: Path, dtype: str = "float32", words: Sequence[str] = WORDS) -> str:
    """A Qwen3 with one layer that knows the words "yes" and "no", as rerankers of its kind do."""
    torch, transformers, tokenizers = map(load, ("torch", "transformers", "tokenizers"))

    special = ["[PAD]", "[UNK]", "[EOS]"]
    vocabulary = {word: i for i, word in enumerate([*special, "yes", "no", *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=64,
        padding_side="left",
        **{f"{name.strip('[]').lower()}_token": name for name in special},
    ).save_pretrained(folder)
    config = transformers.Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=64,
        initializer_range=0.5,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=2,
    )
    torch.manual_seed(0)
    model = transformers.Qwen3ForCausalLM(config)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    return str(folder)


def cross_encoder(folder: Path, labels: int, dtype: str) -> Any:
    torch, library = load("torch"), load("sentence_transformers")
    model = library.CrossEncoder(write(folder, labels), device="cpu")
    model.model.to(getattr(torch, dtype))
    return model


def language_model(folder: Path, dtype: str) -> Any:
    """A CrossEncoder over a causal language model."""
    torch, library = load("torch"), load("sentence_transformers")
    written = write_language_model(folder)
    return library.CrossEncoder(
        written, device="cpu", model_kwargs={"dtype": getattr(torch, dtype)}
    )


def sentence_transformer(folder: Path, dtype: str) -> Any:
    torch, library = load("torch"), load("sentence_transformers")
    model = library.SentenceTransformer(write(folder, None), device="cpu")
    return model.to(getattr(torch, dtype))
