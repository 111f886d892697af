"""sentence-transformers models by name or folder: loading, what decides their output, tokens."""

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

TRANSFORMERS: dict[str, Any] = {  # what a part made of such a model needs
    "extra": "torch",
    "imports": ("torch", "sentence_transformers"),
    "packages": ("sentence-transformers",),
}
_WEIGHTS = ("*.safetensors", "*.bin", "*.onnx", "*.pt")
_HEADS = ("HeadModel", "HeadsModel")
Kind = Literal["bi-encoder", "cross-encoder", "late interaction"]
_SAID: dict[str, Kind] = {
    "CrossEncoder": "cross-encoder",
    "SentenceTransformer": "bi-encoder",
    "MultiVectorEncoder": "late interaction",
    "ColBERT": "late interaction",  # as PyLate saves it
}


def short_name(model: str) -> str:
    """Without the folders, or the owner, before it."""
    return model.rstrip("/").rpartition("/")[2] or model


def load_model(
    kind: str, name: str, dtype: str, max_tokens: int | None = None, device: str | None = None
) -> Any:
    """A SentenceTransformer, CrossEncoder or MultiVectorEncoder, on the device named, or the GPU
    that torch finds, or else on the CPU.

    In the format stated, whatever the checkpoint was saved in.
    """
    _check_weights(name)
    found, how = locate(name)
    _check_kind(kind, name)
    torch = import_extra("torch", f"the model {name}", "torch")
    transformers = import_extra("sentence_transformers", f"the model {name}", "torch")
    importlib.import_module("transformers.utils.logging").disable_progress_bar()
    if device is not None:
        _check_device(torch, device)
    asked = {_dtype_word(): getattr(torch, dtype)}
    try:
        model = getattr(transformers, kind)(found, model_kwargs=asked, device=device, **how)
    except Exception as error:  # whatever the libraries below raise for a model they cannot read
        raise InputError(
            f"sentence-transformers cannot load it ({first_line(error)})",
            place=name,
            remedy="name a folder with a saved model, or one the hub has and is reachable",
        ) from None
    _cast(_network(model), getattr(torch, dtype))
    if max_tokens is not None:
        _shorten_inputs(model, name, max_tokens)
    return model


@contextmanager
def running(name: str) -> Iterator[None]:
    """What the libraries below raise while a model runs, in a line that names it."""
    try:
        yield
    except RankproofError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {shorten(first_line(error), 90)}"
        raise InputError(
            f"it cannot read these texts ({said})",
            place=name,
            remedy="try a smaller batch, fewer tokens or another device; RANKPROOF_DEBUG=1 shows "
            "where",
        ) from error


def kind_of(name: str) -> Kind | None:
    """What the files of a model say that it is; None where it is neither.

    A cross-encoder has a head for pairs, or is a language model that answers yes or no; late
    interaction has a vector for each token.
    """
    # An extra that is absent is told of before a model that is, and neither is worth the seconds
    # that importing torch takes.
    for module, package in (("torch", "torch"), ("sentence_transformers", "sentence-transformers")):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(f"the model {name}", package, "torch")
    said = (_file_of(name, "config_sentence_transformers.json") or {}).get("model_type")
    if said is not None:
        return _SAID.get(said)
    if _file_of(name, "modules.json") is not None:
        return "bi-encoder"
    named = (_file_of(name, "config.json") or {}).get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    if architecture.endswith(("ForSequenceClassification", "ForCausalLM")):
        return "cross-encoder"
    if architecture == "HF_ColBERT":
        return "late interaction"
    # The mean of its token vectors, as the library takes it; GPT2LMHeadModel and its like predict
    # words.
    encodes = architecture.endswith("Model") and not architecture.endswith(_HEADS)
    return "bi-encoder" if encodes or not architecture else None


def activation_of(name: str) -> str | None:
    """What a cross-encoder's files say that its logit goes through, as Identity; None: nothing."""
    own = (_file_of(name, "config_sentence_transformers.json") or {}).get("activation_fn")
    config = _file_of(name, "config.json") or {}
    saved = config.get("sentence_transformers")
    own = own or (saved.get("activation_fn") if isinstance(saved, dict) else None)
    own = own or config.get("sbert_ce_default_activation_function")  # before version 4
    return str(own).rpartition(".")[2] if own else None


def _check_kind(kind: str, name: str) -> None:
    """Both classes of sentence-transformers load anything, the one with a new pooling and the other
    with a new head, which nobody trained."""
    own = kind_of(name)
    if kind == "CrossEncoder" and own != "cross-encoder":
        what = {"bi-encoder": "a bi-encoder", "late interaction": "late interaction"}
        raise InputError(
            f"{what.get(str(own), 'this')} has no head that scores pairs",
            place=name,
            remedy="name a cross-encoder, or a language model that answers yes or no",
        )
    if kind == "SentenceTransformer" and own == "cross-encoder":
        raise InputError(
            "a cross-encoder has no vectors: it scores pairs",
            place=name,
            remedy="rerank with it, or name a bi-encoder",
        )
    if kind == "SentenceTransformer" and own == "late interaction":
        raise InputError(
            "late interaction has a vector for each token, and none for a text",
            place=name,
            remedy="rerank with it (maxsim), or name a bi-encoder",
        )


def _check_device(torch: Any, device: str) -> None:
    """Refuse a device that torch does not know, or that this machine does not have."""
    try:
        torch.zeros(1, device=device).item()  # of a meta device there is no number
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(
            f"device {shorten(device)} cannot be used ({shorten(first_line(error), 90)})",
            remedy="write cpu, cuda, cuda:1 or mps, as this machine has it, or leave it out",
        ) from None


def _file_of(name: str, file: str) -> Any:
    """What a JSON file of the model says; None where it has none."""
    found, how = locate(name)
    folder = Path(found)
    path: str | Path | None = folder / file
    if not folder.is_dir():
        try:
            path = importlib.import_module("transformers.utils").cached_file(
                found if "/" in found else f"sentence-transformers/{found}",
                file,
                _raise_exceptions_for_missing_entries=False,
                _raise_exceptions_for_connection_errors=False,
                **how,
            )
        except Exception:  # whatever the libraries below raise: the loader says it in its words
            return None
    try:
        return json.loads(Path(path).read_text(encoding="utf-8")) if path else None
    except (OSError, ValueError):
        return None


def _check_weights(name: str) -> Path:
    """The folder that a name may be; one without weights is refused."""
    folder = Path(name).expanduser()
    if folder.is_dir() and not any(next(folder.rglob(w), None) for w in _WEIGHTS):
        raise InputError(
            "this folder holds no weights",
            place=name,
            remedy="name a folder that save_pretrained wrote (model.safetensors)",
        )
    return folder


def is_model(folder: Path) -> bool:
    """Whether a folder holds weights."""
    return folder.is_dir() and any(next(folder.glob(weights), None) for weights in _WEIGHTS)


def _dtype_word() -> str:
    """What transformers calls the format to load a model in, by its version."""
    have = versions(["transformers"]).get("transformers", "5")
    numbers = [int(part) for part in have.split(".")[:2] if part.isdigit()]
    return "dtype" if numbers >= [4, 56] or numbers == [5] else "torch_dtype"


def _cast(network: Any, dtype: Any) -> None:
    """What transformers did not load in the format, such as static vectors and dense layers.

    Never the whole network at once: that would round a language model's rotary frequencies too,
    which stay float32 whatever it runs in.
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


def digest_name(name: str) -> str:
    """What tells a model from all others: its files, or its name and revision on the hub.

    Weights of one architecture have one size, so that names and sizes would not do.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return digest({"hub": name, "revision": _revision(name)})
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and file.suffix != ".md"
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    seen = [(file, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return _digest_files(folder, tuple(seen))


@cache
def _digest_files(folder: Path, seen: tuple[tuple[Path, int, int], ...]) -> str:
    """Read again only where a size or a time differs."""
    return digest({file.relative_to(folder).as_posix(): digest_file(file) for file, _, _ in seen})


def count_tokens(
    model: Any, texts: Sequence[str], pairs: Sequence[str] | None = None, *, whole: bool = False
) -> list[int]:
    """Tokens the model reads of each text (with its pair), special ones included, cut as it cuts;
    or all that it has (`whole`).

    Of a model without such a tokenizer: 0.
    """
    tokenizer = getattr(model, "tokenizer", None)
    if not callable(tokenizer) or not texts:
        return [0] * len(texts)
    limit = None if whole else most_tokens(model)
    options: dict[str, Any] = {"verbose": False} if whole else {}
    if limit is not None:
        options = {"truncation": True, "max_length": limit}
    second = () if pairs is None else (list(pairs),)
    encoded = tokenizer(list(texts), *second, **options)
    return [len(ids) for ids in encoded["input_ids"]]


def _network(model: Any) -> Any:
    """The torch module: a CrossEncoder is one from version 6 on, and holds one before."""
    return model if hasattr(model, "modules") else model.model


def _said(model: Any, key: str) -> list[Any]:
    """What the configurations inside the model say of a key."""
    configs = (getattr(module, "config", None) for module in _network(model).modules())
    said = (getattr(config, key, None) for config in configs)
    return [value for value in said if value is not None]


def most_tokens(model: Any) -> int | None:
    """The most tokens the model reads of an input."""
    for name in ("max_seq_length", "max_length"):
        limit = getattr(model, name, None)
        if isinstance(limit, int):
            return limit
    return None


def _shorten_inputs(model: Any, name: str, max_tokens: int) -> None:
    positions = [most for most in _said(model, "max_position_embeddings") if isinstance(most, int)]
    if positions and max_tokens > min(positions):
        raise InputError(
            f"max_tokens {max_tokens} is more than the {min(positions)} the model has places for",
            place=name,
            remedy="lower it, or leave it out",
        )
    # A CrossEncoder calls it max_length before version 6.
    attribute = "max_seq_length" if hasattr(model, "max_seq_length") else "max_length"
    setattr(model, attribute, max_tokens)


def _revision(name: str) -> str | None:
    """The commit of a hub's model that lies in the local cache."""
    try:
        home = Path(importlib.import_module("huggingface_hub.constants").HF_HUB_CACHE)
    except ImportError:
        return None
    place = name if "/" in name else f"sentence-transformers/{name}"
    head = home / f"models--{place.replace('/', '--')}" / "refs" / "main"
    return head.read_text(encoding="utf-8").strip() if head.is_file() else None
