"""sentence-transformers models by name or folder: load, classify, digest, count tokens.

The library loads any checkpoint as any kind of model: where the checkpoint has no head or pooling,
it adds an untrained one; and it keeps the format of the file. Here a model's kind is read from its
files first, and it is loaded in the requested number format.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rankproof.foundation.errors import (
    InputError,
    MissingExtra,
    RankproofError,
    first_line,
    import_extra,
    shorten,
)
from rankproof.foundation.manifest import digest, digest_file, versions
from rankproof.foundation.model_hub import locate

REQUIREMENTS: dict[str, Any] = {  # arguments of `@part` for a component that runs such a model
    "extra": "torch",
    "imports": ("torch", "sentence_transformers"),
    "packages": ("sentence-transformers",),
}
_WEIGHT_FILES = ("*.safetensors", "*.bin", "*.onnx", "*.pt")
_PREDICTION_HEADS = ("HeadModel", "HeadsModel")
Kind = Literal["bi-encoder", "cross-encoder", "late interaction"]
_KIND_OF_TYPE: dict[str, Kind] = {
    "CrossEncoder": "cross-encoder",
    "SentenceTransformer": "bi-encoder",
    "MultiVectorEncoder": "late interaction",
    "ColBERT": "late interaction",  # as PyLate saves it
}


def short_name(model: str) -> str:
    """Return the name without the folders, or the owner, before it."""
    return model.rstrip("/").rpartition("/")[2] or model


# ------------------------------------------------------------------------------------- loading


def load_model(
    model_class: str,
    name: str,
    dtype: str,
    max_tokens: int | None = None,
    device: str | None = None,
) -> Any:
    """Load a SentenceTransformer, CrossEncoder or MultiVectorEncoder in a number format.

    Without a device it goes to the GPU that torch finds, else to the CPU.
    """
    _check_weights(name)
    location, hub_options = locate(name)
    _check_kind(model_class, name)
    torch = import_extra("torch", f"the model {name}", "torch")
    transformers = import_extra("sentence_transformers", f"the model {name}", "torch")
    importlib.import_module("transformers.utils.logging").disable_progress_bar()
    if device is not None:
        _check_device(torch, device)
    model_options = {_dtype_argument(): getattr(torch, dtype)}
    try:
        model = getattr(transformers, model_class)(
            location, model_kwargs=model_options, device=device, **hub_options
        )
    except Exception as error:  # whatever the libraries raise for a model they cannot read
        raise InputError(
            f"sentence-transformers cannot load it ({first_line(error)})",
            place=name,
            remedy="name a folder with a saved model, or one the hub has and is reachable",
        ) from None
    _cast(_torch_module(model), getattr(torch, dtype))
    if max_tokens is not None:
        _limit_tokens(model, name, max_tokens)
    return model


@contextmanager
def model_errors(name: str) -> Iterator[None]:
    """Turn what the libraries raise while a model runs into a one-line error that names it."""
    try:
        yield
    except RankproofError:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {shorten(first_line(error), 90)}"
        raise InputError(
            f"it cannot read these texts ({message})",
            place=name,
            remedy="try a smaller batch, fewer tokens or another device; RANKPROOF_DEBUG=1 shows "
            "where",
        ) from error


def _check_weights(name: str) -> None:
    """Refuse a folder without weights."""
    folder = Path(name).expanduser()
    if folder.is_dir() and not any(next(folder.rglob(w), None) for w in _WEIGHT_FILES):
        raise InputError(
            "this folder holds no weights",
            place=name,
            remedy="name a folder that save_pretrained wrote (model.safetensors)",
        )


def has_weights(folder: Path) -> bool:
    """True if a folder holds the weights of a model."""
    return folder.is_dir() and any(next(folder.glob(weights), None) for weights in _WEIGHT_FILES)


def _check_kind(model_class: str, name: str) -> None:
    """Refuse a model of another kind, which the library would load with an untrained part."""
    kind = model_kind(name)
    if model_class == "CrossEncoder" and kind != "cross-encoder":
        subject = "this"
        if kind is not None:
            subject = "a bi-encoder" if kind == "bi-encoder" else kind
        raise InputError(
            f"{subject} has no head that scores pairs",
            place=name,
            remedy="name a cross-encoder, or a language model that answers yes or no",
        )
    if model_class == "SentenceTransformer" and kind == "cross-encoder":
        raise InputError(
            "a cross-encoder has no vectors: it scores pairs",
            place=name,
            remedy="rerank with it, or name a bi-encoder",
        )
    if model_class == "SentenceTransformer" and kind == "late interaction":
        raise InputError(
            "late interaction has a vector for each token, and none for a text",
            place=name,
            remedy="rerank with it (maxsim), or name a bi-encoder",
        )


def _check_device(torch: Any, device: str) -> None:
    """Refuse a device that torch does not know, or that this machine does not have."""
    try:
        torch.zeros(1, device=device).item()  # the value of a tensor on "meta" cannot be read
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            f"device {shorten(device)} cannot be used ({shorten(first_line(error), 90)})",
            remedy="write cpu, cuda, cuda:1 or mps, as this machine has it, or leave it out",
        ) from None


def _dtype_argument() -> str:
    """Return the name of transformers' argument for the number format, which changed in 4.56."""
    version = versions(["transformers"]).get("transformers", "5")
    numbers = [int(part) for part in version.split(".")[:2] if part.isdigit()]
    return "dtype" if numbers >= [4, 56] or numbers == [5] else "torch_dtype"


def _cast(network: Any, dtype: Any) -> None:
    """Cast what transformers did not load in the format, such as static vectors and dense layers.

    The whole network is never cast at once: that would also round a language model's rotary
    frequencies, which stay float32 in every format.
    """
    pretrained = importlib.import_module("transformers").PreTrainedModel
    loaded: set[int] = set()
    for module in network.modules():
        if isinstance(module, pretrained):
            if module.dtype != dtype:
                module.to(dtype)
            loaded |= {id(parameter) for parameter in module.parameters()}
    for parameter in network.parameters():
        if parameter.is_floating_point() and id(parameter) not in loaded:
            parameter.data = parameter.data.to(dtype)


def _limit_tokens(model: Any, name: str, max_tokens: int) -> None:
    """Set how many tokens of an input the model reads, at most as many as it has positions."""
    configs = (getattr(module, "config", None) for module in _torch_module(model).modules())
    limits = (getattr(config, "max_position_embeddings", None) for config in configs)
    positions = [limit for limit in limits if isinstance(limit, int)]
    if positions and max_tokens > min(positions):
        raise InputError(
            f"max_tokens {max_tokens} is more than the {min(positions)} the model has places for",
            place=name,
            remedy="lower it, or leave it out",
        )
    # A CrossEncoder calls it max_length before version 6.
    attribute = "max_seq_length" if hasattr(model, "max_seq_length") else "max_length"
    setattr(model, attribute, max_tokens)


def _torch_module(model: Any) -> Any:
    """Return the torch module: a CrossEncoder is one from version 6 on, and holds one before."""
    return model if hasattr(model, "modules") else model.model


# ------------------------------------------------------------------------------ a model's files


def model_kind(name: str) -> Kind | None:
    """Return the kind of model that its files describe; None where they describe none of them.

    A cross-encoder has a head for pairs, or is a language model that answers yes or no; late
    interaction has a vector for each token.
    """
    # A missing extra is reported before a missing model, and importing torch only to find out
    # would take seconds.
    for module, package in (("torch", "torch"), ("sentence_transformers", "sentence-transformers")):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(f"the model {name}", package, "torch")
    saved_type = (_read_model_json(name, "config_sentence_transformers.json") or {}).get(
        "model_type"
    )
    if saved_type is not None:
        return _KIND_OF_TYPE.get(saved_type)
    if _read_model_json(name, "modules.json") is not None:
        return "bi-encoder"
    architectures = (_read_model_json(name, "config.json") or {}).get("architectures")
    architecture = ""
    if isinstance(architectures, list) and architectures:
        architecture = str(architectures[0])
    if architecture.endswith(("ForSequenceClassification", "ForCausalLM")):
        return "cross-encoder"
    if architecture == "HF_ColBERT":
        return "late interaction"
    # An encoder without more is loaded as the mean of its token vectors; GPT2LMHeadModel and
    # similar classes predict words.
    is_encoder = architecture.endswith("Model") and not architecture.endswith(_PREDICTION_HEADS)
    return "bi-encoder" if is_encoder or not architecture else None


def declared_activation(name: str) -> str | None:
    """Return the activation that a cross-encoder's files name, such as Identity; None: none."""
    library_config = _read_model_json(name, "config_sentence_transformers.json") or {}
    path = library_config.get("activation_fn")
    config = _read_model_json(name, "config.json") or {}
    section = config.get("sentence_transformers")
    path = path or (section.get("activation_fn") if isinstance(section, dict) else None)
    path = path or config.get("sbert_ce_default_activation_function")  # before version 4
    return str(path).rpartition(".")[2] if path else None


def _read_model_json(name: str, file: str) -> Any:
    """Return the content of a JSON file of the model; None where there is no such file."""
    location, hub_options = locate(name)
    folder = Path(location)
    path: str | Path | None = folder / file
    if not folder.is_dir():
        try:
            path = importlib.import_module("transformers.utils").cached_file(
                location if "/" in location else f"sentence-transformers/{location}",
                file,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False,
                **hub_options,
            )
        except Exception:  # loading the model reports in the library's words what is wrong
            return None
    try:
        return json.loads(Path(path).read_text(encoding="utf-8")) if path else None
    except (OSError, ValueError):
        return None


def model_digest(name: str) -> str:
    """Return a digest of a model's files, or of its name and revision on the hub.

    Files are read, since weights of one architecture agree in names and sizes.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return digest({"hub": name, "revision": _cached_revision(name)})
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and file.suffix != ".md"
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    states = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return _digest_files(folder, tuple(states))


@cache
def _digest_files(folder: Path, states: tuple[tuple[Path, int, int], ...]) -> str:
    """Digest the files; with sizes and times in the cache's key, only changed files are reread."""
    return digest({file.relative_to(folder).as_posix(): digest_file(file) for file, _, _ in states})


def _cached_revision(name: str) -> str | None:
    """Return the commit of a hub's model that lies in the local cache."""
    try:
        home = Path(importlib.import_module("huggingface_hub.constants").HF_HUB_CACHE)
    except ImportError:
        return None
    repository = name if "/" in name else f"sentence-transformers/{name}"
    head = home / f"models--{repository.replace('/', '--')}" / "refs" / "main"
    return head.read_text(encoding="utf-8").strip() if head.is_file() else None


# ------------------------------------------------------------------------------------- tokens


def count_tokens(
    model: Any, texts: Sequence[str], pairs: Sequence[str] | None = None, *, whole: bool = False
) -> list[int]:
    """Return how many tokens the model reads of each text (and its pair), special ones included.

    Texts are truncated as the model truncates them, unless `whole`. Without a tokenizer: 0.
    """
    tokenizer = getattr(model, "tokenizer", None)
    if not callable(tokenizer) or not texts:
        return [0] * len(texts)
    options: dict[str, Any] = {"verbose": False} if whole else {}
    if not whole and (limit := token_limit(model)) is not None:
        options = {"truncation": True, "max_length": limit}
    second = () if pairs is None else (list(pairs),)
    encoded = tokenizer(list(texts), *second, **options)
    return [len(ids) for ids in encoded["input_ids"]]


def token_limit(model: Any) -> int | None:
    """Return the most tokens that the model reads of an input."""
    for attribute in ("max_seq_length", "max_length"):
        limit = getattr(model, attribute, None)
        if isinstance(limit, int):
            return limit
    return None
