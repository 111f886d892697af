"""High-precision scoring for models of sentence-transformers, transformers and FlagEmbedding, in
place and undone exactly.

The model stays in its low format. What leaves it, logits or embeddings, is upcast to float32
before the scoring step: the activation of a CrossEncoder, the similarity of a SentenceTransformer.
sentence-transformers does this itself from version 6; earlier versions score in the low format, and
so do the recipes that take a sigmoid of what a network of transformers puts out.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from rankproof.foundation.errors import InputError, import_extra
from rankproof.precision.array_types import is_torch

Undo = Callable[[Any], None]  # takes the model, so that what is kept about it does not keep it
Change = Callable[[Any], Undo]

_ABSENT = object()
_CHANGED: WeakKeyDictionary[Any, dict[Change, _Held]] = WeakKeyDictionary()


def high_precision(model: Any, *, head: bool = False) -> HighPrecision:
    """Score with a model in float32, until that is undone: a CrossEncoder, a SentenceTransformer,
    a network of transformers, a reranker or embedder of FlagEmbedding.

        with high_precision(model):
            scores = model.predict(pairs)

    or `handle = high_precision(model)` and, later, `handle.restore()`. A CrossEncoder's activation,
    its own or one given to `predict`, gets float32 logits; `similarity` and `similarity_pairwise`
    of a SentenceTransformer get float32 embeddings and take lengths in float32 (choose its
    `similarity_fn_name` before).

    A network of transformers puts out float32 logits, so that a sigmoid, a softmax or a log-softmax
    of them is float32 too; that of a FlagEmbedding reranker likewise. Embedders of FlagEmbedding
    give float32 vectors.

    A language model that answers yes or no has both logits upcast before one is taken from the
    other.

    `head=True` also computes a CrossEncoder's last linear layer in float32, from the same weights,
    so that the logits themselves are not rounded to the model's format; of a language model's
    output matrix the two rows of yes and no.

    A float32 sigmoid still makes ties of logits past 11.84 (float16) or 14.125 (bfloat16). To rank
    there, take the logits: `model.predict(pairs, activation_fn=torch.nn.Identity())`.

    >>> import torch
    >>> from transformers import BertConfig, BertForSequenceClassification
    >>> from rankproof.precision import high_precision
    >>> config = BertConfig(hidden_size=12, num_hidden_layers=1)
    >>> model = BertForSequenceClassification(config).bfloat16()
    >>> with high_precision(model):
    ...     logits = model(torch.tensor([[1, 2]])).logits
    >>> logits.dtype
    torch.float32
    """
    handle = HighPrecision(model)
    try:
        for change in _changes(model, head):
            handle.hold(change)
    except BaseException:
        handle.restore()
        raise
    return handle


class HighPrecision:
    """Ends with its `with` block, or with `restore()`; nested uses end with the last of them."""

    def __init__(self, model: Any):
        self.model = model
        self._holds: list[Change] = []

    def hold(self, change: Change) -> None:
        """Make the change, unless it is already made, and keep it for this handle."""
        made = _CHANGED.setdefault(self.model, {})
        if change not in made:
            made[change] = _Held(change(self.model))
        made[change].handles += 1
        self._holds.append(change)

    def restore(self) -> None:
        """Give the model back as it was; the second time there is nothing to do."""
        while self._holds:
            change = self._holds.pop()
            made = _CHANGED[self.model]
            made[change].handles -= 1
            if not made[change].handles:
                made.pop(change).undo(self.model)

    def __enter__(self) -> Any:
        return self.model

    def __exit__(self, *_: object) -> None:
        self.restore()


class _Held:
    """A change that was made: how to undo it, and how many handles keep it."""

    def __init__(self, undo: Undo):
        self.undo = undo
        self.handles = 0


def widened(values: Any) -> Any:
    """Floats narrower than 32 bits as float32, also inside a list; all else as it is."""
    if isinstance(values, list | tuple):
        return [widened(v) for v in values]
    if is_torch(values):
        narrow = values.is_floating_point() and values.element_size() < 4
        return values.float() if narrow else values
    if isinstance(values, np.ndarray) and values.dtype.itemsize < 4 and values.dtype.kind in "fV":
        return values.astype(np.float32)
    return values


class InFloat32:
    """A similarity function whose embeddings are upcast first; a class, so that it pickles."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, a: Any, b: Any, *rest: Any, **options: Any) -> Any:
        return self.function(widened(a), widened(b), *rest, **options)


def is_supported(model: Any) -> bool:
    """Whether `high_precision` can take the model."""
    transformers = import_extra("sentence_transformers", "high_precision", "torch")
    return isinstance(model, transformers.CrossEncoder | transformers.SentenceTransformer)


def _changes(model: Any, head: bool) -> list[Change]:
    if _network_of(model) is not None:
        return [_widen_network_head, _widen_network] if head else [_widen_network]
    if all(callable(getattr(model, name, None)) for name in _ENCODERS[1:]):
        _refuse_head(model, head)
        return [_widen_encoded]
    transformers = import_extra("sentence_transformers", "high_precision", "torch")
    if isinstance(model, transformers.CrossEncoder):
        answers = [_widen_answers] if answers_of(model) is not None else []
        widen_head = _widen_rows if answers else _widen_head
        return [widen_head, *answers, _widen_logits] if head else [*answers, _widen_logits]
    if not isinstance(model, transformers.SentenceTransformer):
        raise InputError(
            f"{type(model).__name__} is neither a CrossEncoder nor a SentenceTransformer, nor a "
            "model of transformers or FlagEmbedding",
            remedy="give one of these, or score the model's output with "
            "rankproof.precision.sigmoid, softmax, dot or cosine",
        )
    _refuse_head(model, head)
    return [_widen_embeddings]


def _refuse_head(model: Any, head: bool) -> None:
    if head:
        raise InputError(
            f"{type(model).__name__} has no scoring head", remedy="leave head=True to CrossEncoders"
        )


_ENCODERS = ("encode", "encode_queries", "encode_corpus")  # of FlagEmbedding's embedders


def _network_of(model: Any) -> Any:
    """A network of transformers: the model itself, or what a reranker of FlagEmbedding holds."""
    # Whoever holds one has imported both.
    pretrained = getattr(sys.modules.get("transformers"), "PreTrainedModel", None)
    if pretrained is None:
        return None
    inner = getattr(model, "model", None) if hasattr(model, "compute_score") else None
    return next((found for found in (model, inner) if isinstance(found, pretrained)), None)


def _widen_network(model: Any) -> Undo:
    hook = _network_of(model).register_forward_hook(_with_wide_scores)
    return lambda _: hook.remove()


def _widen_network_head(model: Any) -> Undo:
    network = _network_of(model)
    if type(network).__name__.endswith("ForCausalLM"):
        raise InputError(
            f"{type(network).__name__} has a head as wide as its vocabulary",
            remedy="load it as a CrossEncoder, whose rows of yes and no are known, or leave "
            "head=True out",
        )
    return _widen_head(network)


def _widen_encoded(model: Any) -> Undo:
    """Give float32 vectors: what compares them then computes in float32."""
    names = [name for name in _ENCODERS if hasattr(model, name)]
    before = {name: model.__dict__.get(name, _ABSENT) for name in names}
    for name in names:
        setattr(model, name, _Widened(getattr(model, name)))

    return lambda model: _put_back(model, before)


def _put_back(model: Any, before: dict[str, Any]) -> None:
    """Attributes as they were."""
    for name, value in before.items():
        if value is _ABSENT:
            del model.__dict__[name]
        else:
            setattr(model, name, value)


class _Widened:
    """A method whose result is upcast; a class, so that it pickles."""

    def __init__(self, method: Callable[..., Any]):
        self.method = method

    def __call__(self, *given: Any, **options: Any) -> Any:
        found = self.method(*given, **options)
        if isinstance(found, dict):  # dense and other vectors by name
            return {name: widened(value) for name, value in found.items()}
        return widened(found)


def _widen_logits(model: Any) -> Undo:
    """Upcast what leaves the network; every activation comes after that."""
    # From version 6 the CrossEncoder is the network and gives a dict; before, it holds one.
    sequential = importlib.import_module("torch").nn.Sequential
    network = model if isinstance(model, sequential) else model.model
    if not hasattr(network, "register_forward_hook"):
        raise InputError(
            f"{type(network).__name__} does not run in PyTorch",
            place=type(model).__name__,
            remedy="load the model with backend='torch'",
        )
    hook = network.register_forward_hook(_with_wide_scores)
    return lambda _: hook.remove()


def _with_wide_scores(_network: Any, _inputs: Any, output: Any) -> Any:
    if isinstance(output, MutableMapping) and "scores" in output:  # in version 5 no dict
        output["scores"] = widened(output["scores"])
    elif getattr(output, "logits", None) is not None:
        output.logits = widened(output.logits)
    return output


def answers_of(model: Any) -> Any:
    """The part of a CrossEncoder that makes a score of a language model's logits, if it has one."""
    # By its name: earlier versions do not have it.
    parts = model.modules() if hasattr(model, "modules") else ()
    return next((part for part in parts if type(part).__name__ == "LogitScore"), None)


def _widen_answers(model: Any) -> Undo:
    """Upcast the logits of the last token before one is taken from the other."""
    hook = answers_of(model).register_forward_pre_hook(_last_in_float32)
    return lambda _: hook.remove()


def _last_in_float32(part: Any, inputs: Any) -> Any:
    features, *rest = inputs
    name = part.module_input_name
    return ({**features, name: widened(features[name][:, -1:])}, *rest)


def _widen_rows(model: Any) -> Undo:
    """Compute the logits of yes and no once more, in float32: two rows of the output matrix."""
    part = answers_of(model)
    rows = [row for row in (part.true_token_id, part.false_token_id) if row is not None]
    matrix = model.transformers_model.get_output_embeddings()
    hook = matrix.register_forward_hook(partial(_rows_in_float32, rows))
    return lambda _: hook.remove()


def _rows_in_float32(rows: list[int], layer: Any, inputs: Any, output: Any) -> Any:
    torch = importlib.import_module("torch")
    bias = None if layer.bias is None else layer.bias[rows].float()
    wide = output.float()
    with torch.autocast(device_type=inputs[0].device.type, enabled=False):
        wide[..., rows] = torch.nn.functional.linear(
            inputs[0].float(), layer.weight[rows].float(), bias
        )
    return wide


def _widen_head(model: Any) -> Undo:
    """Compute the last layer that is as wide as there are labels once more, in float32."""
    torch = importlib.import_module("torch")
    network = model if isinstance(model, torch.nn.Module) else model.model
    labels = getattr(model, "num_labels", None) or model.config.num_labels
    heads = [
        layer
        for layer in getattr(network, "modules", list)()
        if isinstance(layer, torch.nn.Linear) and layer.out_features == labels
    ]
    if not heads:
        raise InputError(
            f"no linear layer gives {labels} logits",
            place=type(model).__name__,
            remedy="leave head=True out",
        )
    hook = heads[-1].register_forward_hook(_in_float32)
    return lambda _: hook.remove()


def _in_float32(layer: Any, inputs: Any, _output: Any) -> Any:
    torch = importlib.import_module("torch")
    bias = None if layer.bias is None else layer.bias.float()
    with torch.autocast(device_type=inputs[0].device.type, enabled=False):
        return torch.nn.functional.linear(inputs[0].float(), layer.weight.float(), bias)


def _widen_embeddings(model: Any) -> Undo:
    """Wrap the two similarity functions that the model holds; it makes them on first use."""
    functions = ("_similarity", "_similarity_pairwise")
    before = {
        name: model.__dict__.get(name, _ABSENT) for name in ("_similarity_fn_name", *functions)
    }
    model.similarity_fn_name  # noqa: B018
    wrapped = {name: InFloat32(getattr(model, name)) for name in functions}
    for name, function in wrapped.items():
        setattr(model, name, function)

    def undo(model: Any) -> None:
        # A similarity that was chosen meanwhile stays chosen.
        if any(model.__dict__.get(name) is not wrapped[name] for name in functions):
            return
        _put_back(model, before)

    return undo
