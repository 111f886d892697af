"""High-precision scoring for models of sentence-transformers, transformers and FlagEmbedding.

A model in float16 or bfloat16 computes its scores in that format too, where many of them tie. Here
the model stays in its format, but its output (logits or embeddings) is upcast to float32 before the
scoring step: the activation of a CrossEncoder, the similarity of a SentenceTransformer.
sentence-transformers does this itself from version 6 on; earlier versions do not, nor do the usual
recipes that take a sigmoid of what a network of transformers returns.

Each patch is a forward hook or a replaced attribute, and is undone without a trace.
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

Undo = Callable[[Any], None]  # takes the model, so that an active patch does not keep it alive
Patch = Callable[[Any], Undo]  # changes a model and returns how to undo that

_ABSENT = object()  # stands for an attribute that the instance does not have
_ACTIVE_PATCHES: WeakKeyDictionary[Any, dict[Patch, _ActivePatch]] = WeakKeyDictionary()

_FLAG_ENCODE_METHODS = ("encode", "encode_queries", "encode_corpus")  # of FlagEmbedding's embedders


def high_precision(model: Any, *, head: bool = False) -> HighPrecision:
    """Make a model score in float32 until `restore()` is called or the `with` block ends.

        with high_precision(model):
            scores = model.predict(pairs)

    What is upcast depends on the model:

    - CrossEncoder: the logits, before any activation. If it is a language model that answers yes or
      no, both logits are upcast before they are subtracted.
    - SentenceTransformer: the embeddings that `similarity` and `similarity_pairwise` compare.
      Choose its `similarity_fn_name` before.
    - a network of transformers, or the reranker of FlagEmbedding that holds one: its logits.
    - an embedder of FlagEmbedding: the vectors it returns.

    `head=True` also computes a CrossEncoder's last linear layer in float32, from the same weights,
    so that the logits themselves are not rounded to the model's format. Of a language model's
    output matrix only the two rows of yes and no are computed so.

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
        for patch in _patches_for(model, head):
            handle.apply(patch)
    except BaseException:
        handle.restore()
        raise
    return handle


class HighPrecision:
    """A use of a model in high precision; the model is restored when its last use ends."""

    def __init__(self, model: Any):
        self.model = model
        self._patches: list[Patch] = []

    def apply(self, patch: Patch) -> None:
        """Patch the model, unless another use of it already has, and keep the patch active."""
        active = _ACTIVE_PATCHES.setdefault(self.model, {})
        if patch not in active:
            active[patch] = _ActivePatch(patch(self.model))
        active[patch].uses += 1
        self._patches.append(patch)

    def restore(self) -> None:
        """End this use; undo each patch that no other use needs. A second call does nothing."""
        while self._patches:
            patch = self._patches.pop()
            active = _ACTIVE_PATCHES[self.model]
            active[patch].uses -= 1
            if not active[patch].uses:
                active.pop(patch).undo(self.model)

    def __enter__(self) -> Any:
        return self.model

    def __exit__(self, *_: object) -> None:
        self.restore()


class _ActivePatch:
    """How to undo a patch, and how many uses of the model need it."""

    def __init__(self, undo: Undo):
        self.undo = undo
        self.uses = 0


def is_supported(model: Any) -> bool:
    """True for a CrossEncoder or a SentenceTransformer."""
    library = import_extra("sentence_transformers", "high_precision", "torch")
    return isinstance(model, library.CrossEncoder | library.SentenceTransformer)


def _patches_for(model: Any, head: bool) -> list[Patch]:
    """Return the patches that make this model score in float32, in the order to apply them."""
    if _transformers_network(model) is not None:
        return [_patch_network_head, _patch_network] if head else [_patch_network]
    if all(callable(getattr(model, name, None)) for name in _FLAG_ENCODE_METHODS[1:]):
        _refuse_head(model, head)
        return [_patch_flag_embedder]
    library = import_extra("sentence_transformers", "high_precision", "torch")
    if isinstance(model, library.CrossEncoder):
        is_language_model = find_logit_score(model) is not None
        patches = [_patch_logit_score] if is_language_model else []
        if head:
            patches.insert(0, _patch_yes_no_rows if is_language_model else _patch_head)
        return [*patches, _patch_logits]
    if not isinstance(model, library.SentenceTransformer):
        raise InputError(
            f"{type(model).__name__} is neither a CrossEncoder nor a SentenceTransformer, nor a "
            "model of transformers or FlagEmbedding",
            remedy="give one of these, or score the model's output with "
            "rankproof.precision.sigmoid, softmax, dot or cosine",
        )
    _refuse_head(model, head)
    return [_patch_similarities]


def _refuse_head(model: Any, head: bool) -> None:
    """Refuse head=True for an embedder."""
    if head:
        raise InputError(
            f"{type(model).__name__} has no scoring head", remedy="leave head=True to CrossEncoders"
        )


# --------------------------------------------------------------------------------- upcasting values


def upcast_narrow_floats(values: Any) -> Any:
    """Return floats narrower than 32 bits as float32, also inside a list; all else unchanged."""
    if isinstance(values, list | tuple):
        return [upcast_narrow_floats(value) for value in values]
    if is_torch(values):
        is_narrow = values.is_floating_point() and values.element_size() < 4
        return values.float() if is_narrow else values
    if isinstance(values, np.ndarray) and values.dtype.itemsize < 4 and values.dtype.kind in "fV":
        return values.astype(np.float32)
    return values


class Float32Similarity:
    """A similarity function whose embeddings are upcast first; a class, so that it pickles."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function

    def __call__(self, a: Any, b: Any, *arguments: Any, **options: Any) -> Any:
        return self.function(
            upcast_narrow_floats(a), upcast_narrow_floats(b), *arguments, **options
        )


class _Float32Method:
    """A method whose result is upcast; a class, so that it pickles."""

    def __init__(self, method: Callable[..., Any]):
        self.method = method

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        result = self.method(*arguments, **options)
        if isinstance(result, dict):  # dense, sparse and multi-vector embeddings by name
            return {name: upcast_narrow_floats(value) for name, value in result.items()}
        return upcast_narrow_floats(result)


def _linear_in_float32(inputs: Any, weight: Any, bias: Any) -> Any:
    """Return a linear layer's output computed in float32, also where autocast is on."""
    torch = importlib.import_module("torch")
    bias = None if bias is None else bias.float()
    with torch.autocast(device_type=inputs.device.type, enabled=False):
        return torch.nn.functional.linear(inputs.float(), weight.float(), bias)


def _restore_attributes(model: Any, attributes: dict[str, Any]) -> None:
    """Set attributes of an instance to what they were; delete those that were absent."""
    for name, value in attributes.items():
        if value is _ABSENT:
            del model.__dict__[name]
        else:
            setattr(model, name, value)


# --------------------------------------------------------------------- transformers, FlagEmbedding


def _transformers_network(model: Any) -> Any:
    """Return the network of transformers that this model is, or that its `model` holds, or None.

    Rerankers of FlagEmbedding hold one.
    """
    # Whoever holds a network has imported transformers, so there is no need to import it here.
    network_type = getattr(sys.modules.get("transformers"), "PreTrainedModel", None)
    if network_type is None:
        return None
    inner = getattr(model, "model", None) if hasattr(model, "compute_score") else None
    return next((network for network in (model, inner) if isinstance(network, network_type)), None)


def _patch_network(model: Any) -> Undo:
    """Upcast the logits of a network of transformers."""
    hook = _transformers_network(model).register_forward_hook(_upcast_output)
    return lambda _: hook.remove()


def _patch_network_head(model: Any) -> Undo:
    """Compute the last linear layer of a network of transformers in float32."""
    network = _transformers_network(model)
    if type(network).__name__.endswith("ForCausalLM"):
        raise InputError(
            f"{type(network).__name__} has a head as wide as its vocabulary",
            remedy="load it as a CrossEncoder, whose rows of yes and no are known, or leave "
            "head=True out",
        )
    return _patch_head(network)


def _patch_flag_embedder(model: Any) -> Undo:
    """Upcast the vectors that an embedder of FlagEmbedding returns."""
    names = [name for name in _FLAG_ENCODE_METHODS if hasattr(model, name)]
    originals = {name: model.__dict__.get(name, _ABSENT) for name in names}
    for name in names:
        setattr(model, name, _Float32Method(getattr(model, name)))
    return lambda model: _restore_attributes(model, originals)


# -------------------------------------------------------------------------------- a CrossEncoder


def _patch_logits(model: Any) -> Undo:
    """Upcast the logits of a CrossEncoder's network, before any activation."""
    # From version 6 on the CrossEncoder is the network and returns a dict; before, it holds one.
    sequential = importlib.import_module("torch").nn.Sequential
    network = model if isinstance(model, sequential) else model.model
    if not hasattr(network, "register_forward_hook"):
        raise InputError(
            f"{type(network).__name__} does not run in PyTorch",
            place=type(model).__name__,
            remedy="load the model with backend='torch'",
        )
    hook = network.register_forward_hook(_upcast_output)
    return lambda _: hook.remove()


def _upcast_output(_network: Any, _inputs: Any, output: Any) -> Any:
    """Forward hook: upcast the scores or logits in a network's output."""
    if isinstance(output, MutableMapping) and "scores" in output:  # in version 5 not a dict
        output["scores"] = upcast_narrow_floats(output["scores"])
    elif getattr(output, "logits", None) is not None:
        output.logits = upcast_narrow_floats(output.logits)
    return output


def _patch_head(model: Any) -> Undo:
    """Compute the scoring head in float32: the last linear layer with one output per label."""
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
    hook = heads[-1].register_forward_hook(_layer_in_float32)
    return lambda _: hook.remove()


def _layer_in_float32(layer: Any, inputs: Any, _output: Any) -> Any:
    """Forward hook: compute a linear layer's output again, in float32."""
    return _linear_in_float32(inputs[0], layer.weight, layer.bias)


# ----------------------------------------------------------- language models that answer yes or no


def find_logit_score(model: Any) -> Any:
    """Return the module of a CrossEncoder that makes a score of a language model's logits, or None.

    It subtracts the logit of "no" from that of "yes" at the last token.
    """
    # Identified by its name: earlier versions of sentence-transformers do not have the class.
    modules = model.modules() if hasattr(model, "modules") else ()
    return next((module for module in modules if type(module).__name__ == "LogitScore"), None)


def _patch_logit_score(model: Any) -> Undo:
    """Upcast the last token's logits before that of "no" is subtracted from that of "yes"."""
    hook = find_logit_score(model).register_forward_pre_hook(_upcast_last_token)
    return lambda _: hook.remove()


def _upcast_last_token(module: Any, inputs: Any) -> Any:
    """Forward pre-hook: upcast the logits (B, tokens, V) of the last token and drop the others."""
    features, *other_inputs = inputs
    name = module.module_input_name
    return ({**features, name: upcast_narrow_floats(features[name][:, -1:])}, *other_inputs)


def _patch_yes_no_rows(model: Any) -> Undo:
    """Compute the logits of yes and no in float32: two rows of the output matrix."""
    logit_score = find_logit_score(model)
    tokens = (logit_score.true_token_id, logit_score.false_token_id)
    rows = [token for token in tokens if token is not None]
    output_layer = model.transformers_model.get_output_embeddings()
    hook = output_layer.register_forward_hook(partial(_rows_in_float32, rows))
    return lambda _: hook.remove()


def _rows_in_float32(rows: list[int], layer: Any, inputs: Any, output: Any) -> Any:
    """Forward hook: upcast a linear layer's output and compute these rows of it in float32."""
    bias = None if layer.bias is None else layer.bias[rows]
    logits = output.float()
    logits[..., rows] = _linear_in_float32(inputs[0], layer.weight[rows], bias)
    return logits


# ------------------------------------------------------------------------- a SentenceTransformer


def _patch_similarities(model: Any) -> Undo:
    """Upcast the embeddings that a SentenceTransformer's two similarity functions compare."""
    functions = ("_similarity", "_similarity_pairwise")
    originals = {
        name: model.__dict__.get(name, _ABSENT) for name in ("_similarity_fn_name", *functions)
    }
    model.similarity_fn_name  # noqa: B018 # reading it makes the model create both functions
    patched = {name: Float32Similarity(getattr(model, name)) for name in functions}
    for name, function in patched.items():
        setattr(model, name, function)

    def undo(model: Any) -> None:
        # A similarity that was chosen in the meantime replaced the patch, and stays.
        if all(model.__dict__.get(name) is patched[name] for name in functions):
            _restore_attributes(model, originals)

    return undo
