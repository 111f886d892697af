"""`high_precision`: sentence-transformers models score in float32, and are restored exactly."""

from __future__ import annotations

import os
import pickle
import sys
from collections import UserDict
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the hub's client is imported
torch = pytest.importorskip("torch", reason="needs the torch extra")
st = pytest.importorskip("sentence_transformers", reason="needs the torch extra")

from tiny_models import (  # noqa: E402
    cross_encoder,
    language_model,
    sentence_transformer,
    sentences,
    write,
)

from rankproof import InputError, MissingExtra  # noqa: E402
from rankproof.foundation.arrays import Array  # noqa: E402
from rankproof.precision import high_precision, sigmoid, softmax  # noqa: E402
from rankproof.precision import model_patching as module  # noqa: E402

LOW = ("bfloat16", "float16")
PAIRS = list(zip(sentences(300, 3, seed=1), sentences(300, 5, seed=2), strict=True))
Module: Any = torch.nn.Module
needs_logit_score = pytest.mark.skipif(
    find_spec("sentence_transformers.cross_encoder.modules") is None,
    reason="earlier versions rerank with no such model",
)
Loader = Callable[[int | None, str], Any]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Loader:
    """Return a CrossEncoder with so many labels, or a SentenceTransformer, in a low format."""
    models: dict[tuple[int | None, str], Any] = {}

    def get(labels: int | None, dtype: str) -> Any:
        if (labels, dtype) not in models:
            folder: Path = tmp_path_factory.mktemp("model")
            models[labels, dtype] = (
                sentence_transformer(folder, dtype)
                if labels is None
                else cross_encoder(folder, labels, dtype)
            )
        return models[labels, dtype]

    return get


def logits_of(model: Any) -> Array:
    """Return the output of the network before any activation, which is exact in float32."""
    logits: Array = model.predict(PAIRS, activation_fn=torch.nn.Identity())
    return logits


def agrees(scores: Array, exact: Array, ulps: float = 3) -> bool:
    """True if float32 scores are within some units in the last place; torch's are off by 2.3."""
    assert scores.dtype == np.float32
    error = np.abs(scores.astype(np.float64) - exact)
    return bool((error <= ulps * np.spacing(np.abs(exact).astype(np.float32))).all())


def distinct(values: Any) -> int:
    return len(np.unique(torch.as_tensor(values).float().numpy()))


def state(model: Any) -> dict[str, Any]:
    """Return every attribute and hook of every module of a model."""
    attributes: dict[str, Any] = {}
    for name, part in model.named_modules():
        for key, value in vars(part).items():
            is_hooks = key.endswith("_hooks")
            attributes[f"{name}.{key}"] = dict(value) if is_hooks else id(value)
    return attributes


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LOW)
def test_one_logit_becomes_a_float32_sigmoid_of_the_low_precision_logit(
    load: Loader, dtype: str
) -> None:
    model = load(1, dtype)
    with high_precision(model):
        scores, logits = model.predict(PAIRS), logits_of(model)
    low = torch.from_numpy(logits).to(getattr(torch, dtype))
    assert (low.float().numpy() == logits).all(), "the backbone left its format"
    assert agrees(scores, 1 / (1 + np.exp(-logits.astype(np.float64))))
    assert distinct(scores) == distinct(logits) > distinct(sigmoid(low, low=True))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", LOW)
def test_two_logits_become_a_float32_softmax(load: Loader, dtype: str) -> None:
    model = load(2, dtype)
    with high_precision(model):
        scores, logits = model.predict(PAIRS, apply_softmax=True), model.predict(PAIRS)
    assert logits.shape == (len(PAIRS), 2)
    wide = logits.astype(np.float64)
    exact = 1 / (1 + np.exp(wide[:, 0] - wide[:, 1]))
    assert agrees(scores[:, 1], exact)
    assert agrees(softmax(logits), exact, ulps=1)
    low = torch.from_numpy(logits).to(getattr(torch, dtype))
    assert distinct(scores[:, 1]) > distinct(softmax(low, low=True))


def test_any_activation_function_gets_float32_logits(load: Loader) -> None:
    model = load(1, "bfloat16")
    dtypes = []

    class Activation(Module):  # type: ignore[misc]
        def forward(self, logits: Any) -> Any:
            dtypes.append(logits.dtype)
            return torch.tanh(logits)

    with high_precision(model):
        logits = logits_of(model)
        scores = model.predict(PAIRS, activation_fn=Activation())
        model.activation_fn = torch.nn.Sigmoid()  # versions before 6 keep the one given
    assert set(dtypes) == {torch.float32}
    assert agrees(scores, np.tanh(logits.astype(np.float64)))


def test_rank_orders_by_float32_scores(load: Loader) -> None:
    model = load(1, "bfloat16")
    query, documents = PAIRS[0][0], [d for _, d in PAIRS[:50]]
    with high_precision(model):
        ranked = model.rank(query, documents)
        scores = model.predict([(query, d) for d in documents])
    assert [r["score"] for r in ranked] == sorted(scores.tolist(), reverse=True)
    assert all(r["score"] == scores[r["corpus_id"]] for r in ranked)


@pytest.mark.parametrize("labels", [1, 2])
def test_the_network_returns_float32_only_inside_the_block(load: Loader, labels: int) -> None:
    model = load(labels, "bfloat16")
    if not isinstance(model, torch.nn.Sequential):
        pytest.skip("sentence-transformers before 6 calls the network inside")
    features = model.preprocess(PAIRS[:4])
    with torch.inference_mode():
        assert model(dict(features))["scores"].dtype == torch.bfloat16
        with high_precision(model):
            assert model(dict(features))["scores"].dtype == torch.float32
        assert model(dict(features))["scores"].dtype == torch.bfloat16


def test_logits_of_a_network_inside_are_upcast_too() -> None:
    from transformers.modeling_outputs import SequenceClassifierOutput

    low = torch.ones(3, 1, dtype=torch.float16)
    output = SequenceClassifierOutput(logits=low)
    assert module._upcast_output(None, (), output).logits.dtype == torch.float32
    # What version 5 hands on is no dict.
    features = module._upcast_output(None, (), UserDict(scores=low))
    assert features["scores"].dtype == torch.float32


@pytest.mark.slow
@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("dtype", LOW)
def test_the_head_in_float32_gives_logits_that_the_format_would_round(
    load: Loader, labels: int, dtype: str
) -> None:
    model = load(labels, dtype)
    with high_precision(model):
        rounded = logits_of(model)
    with high_precision(model, head=True):
        logits = logits_of(model)
    assert distinct(logits) > distinct(rounded)
    step = np.abs(logits) * float(torch.finfo(getattr(torch, dtype)).eps)
    assert (np.abs(logits - rounded) <= 2 * step + 1e-3).all()


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("function", ["cosine", "dot", "euclidean"])
def test_similarities_are_taken_in_float32(load: Loader, dtype: str, function: str) -> None:
    model = load(None, dtype)
    model.similarity_fn_name = function
    vectors = model.encode(sentences(200), convert_to_tensor=True)
    assert vectors.dtype == getattr(torch, dtype)
    with high_precision(model):
        scores = model.similarity(vectors[:9], vectors)
        pairs = model.similarity_pairwise(vectors[:100], vectors[100:])
    wide = vectors.double()
    if function == "cosine":
        wide = torch.nn.functional.normalize(wide, dim=1)
    if function == "euclidean":
        exact = -torch.linalg.vector_norm(wide[:9, None] - wide[None], dim=2)
        exact_pairs = -torch.linalg.vector_norm(wide[:100] - wide[100:], dim=1)
    else:
        exact, exact_pairs = wide[:9] @ wide.T, (wide[:100] * wide[100:]).sum(1)
    assert scores.dtype == pairs.dtype == torch.float32
    # Each of 32 products and sums may round, and so may the two lengths.
    longest = float(wide.norm(dim=1).max())
    size = 34 * 2**-24 * longest**2
    if function == "euclidean":
        size = size**0.5  # torch.cdist takes the root of a difference of products
    assert torch.allclose(scores.double(), exact, rtol=0, atol=size)
    assert torch.allclose(pairs.double(), exact_pairs, rtol=0, atol=size)
    assert distinct(scores) > distinct(scores.to(vectors.dtype))


def test_a_similarity_that_keeps_the_format_compares_float32_embeddings(load: Loader) -> None:
    model = load(None, "bfloat16")
    model.similarity_fn_name = "dot"
    original = model._similarity
    model._similarity = lambda a, b: a @ b.T  # as versions before 6 do
    vectors = model.encode(sentences(100), convert_to_tensor=True)
    plain = model.similarity(vectors[:5], vectors)
    with high_precision(model):
        scores = model.similarity(vectors[:5], vectors)
    assert plain.dtype == torch.bfloat16
    assert scores.dtype == torch.float32
    assert distinct(scores) > distinct(plain)
    model._similarity = original


def test_embeddings_come_as_arrays_lists_and_tensors(load: Loader) -> None:
    model = load(None, "float16")
    vectors = model.encode(sentences(6), convert_to_tensor=True)
    assert {v.dtype for v in module.upcast_narrow_floats(list(vectors))} == {torch.float32}
    assert module.upcast_narrow_floats([1.5, 2.5]) == [1.5, 2.5]
    with high_precision(model):
        expected = model.similarity(vectors[:2], vectors)
        assert torch.equal(model.similarity(vectors[:2].numpy(), vectors.numpy()), expected)
        wide = model.similarity(vectors[:2].double(), vectors.double())
        assert wide.dtype == torch.float64, "nothing is narrowed"


@pytest.mark.parametrize("labels", [1, 2, None])
@pytest.mark.parametrize("dtype", LOW)
def test_the_model_is_restored_exactly(load: Loader, labels: int | None, dtype: str) -> None:
    model = load(labels, dtype)

    def output() -> Any:
        if labels is not None:
            return model.predict(PAIRS[:40])
        vectors = model.encode(sentences(40), convert_to_tensor=True)
        return model.similarity(vectors, vectors)

    expected = output()
    before = state(model)  # after its first use, which chose a similarity and ended training
    with high_precision(model, head=labels is not None) as same:
        assert same is model
        assert state(model) != before
        output()
    assert state(model) == before
    assert (output() == expected).all()


def test_a_similarity_not_chosen_before_is_not_chosen_afterwards(tmp_path: Path) -> None:
    model = sentence_transformer(tmp_path, "bfloat16")
    before = state(model)
    with high_precision(model):
        pass
    assert state(model) == before


def test_a_similarity_chosen_inside_the_block_stays(load: Loader) -> None:
    model = load(None, "bfloat16")
    model.similarity_fn_name = "cosine"
    with high_precision(model):
        model.similarity_fn_name = "dot"
    assert model.similarity_fn_name == "dot"
    assert not isinstance(model._similarity, module.Float32Similarity)


@pytest.mark.parametrize("labels", [1, None])
def test_an_exception_restores_the_model(load: Loader, labels: int | None) -> None:
    model = load(labels, "bfloat16")
    before = state(model)
    with pytest.raises(ZeroDivisionError), high_precision(model):
        _ = 1 / 0
    assert state(model) == before


@pytest.mark.parametrize("labels", [1, None])
def test_of_nested_uses_the_last_to_end_restores_the_model(
    load: Loader, labels: int | None
) -> None:
    model = load(labels, "bfloat16")
    before = state(model)
    first = high_precision(model)
    inside = state(model)
    second = high_precision(model)
    assert state(model) == inside, "one patch serves both"
    first.restore()
    first.restore()
    assert state(model) == inside
    second.restore()
    assert state(model) == before


def test_a_patched_model_can_be_pickled(load: Loader) -> None:
    for labels in (1, None):
        with high_precision(load(labels, "bfloat16")) as model:
            pickle.loads(pickle.dumps(model))


def test_other_models_are_refused_with_the_name_of_their_class(load: Loader) -> None:
    with pytest.raises(InputError, match=r"^Linear is neither a CrossEncoder nor a Sentence"):
        high_precision(torch.nn.Linear(2, 1))
    with pytest.raises(InputError, match="has no scoring head; leave head=True"):
        high_precision(load(None, "bfloat16"), head=True)


def test_a_model_without_a_linear_head_is_refused(
    load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(1, "bfloat16")
    before = state(model)
    monkeypatch.setattr(type(model), "num_labels", 7)
    with pytest.raises(InputError, match="no linear layer gives 7 logits; leave head=True out"):
        high_precision(model, head=True)
    assert state(model) == before


def test_without_sentence_transformers_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtra, match=r"needs sentence-transformers: pip install .*\[torch\]"):
        high_precision(object())


@pytest.fixture(scope="module")
def yes_no_model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A language model in bfloat16 that answers yes or no."""
    return language_model(tmp_path_factory.mktemp("answers"), "bfloat16")


def no_and_yes_logits(model: Any, *, wide: bool = False) -> Array:
    """(N, 2) logits of no and yes, each pair by itself, without the library's scoring."""
    rows = [model.tokenizer.convert_tokens_to_ids(word) for word in ("no", "yes")]
    pair_logits = []
    with torch.inference_mode():
        for pair in PAIRS:
            features = model.preprocess([pair])
            hidden = model.transformers_model.model(features["input_ids"]).last_hidden_state[:, -1]
            matrix = model.transformers_model.get_output_embeddings().weight
            if wide:
                hidden, matrix = hidden.float(), matrix.float()
            pair_logits.append((hidden @ matrix.T)[0, rows].float())
    logits: Array = torch.stack(pair_logits).numpy()
    return logits


def logits_one_by_one(model: Any) -> Array:
    """Return the logits of each pair in a batch of its own, which has no padding."""
    identity = torch.nn.Identity()
    logits: Array = model.predict(PAIRS, batch_size=1, activation_fn=identity)
    return logits


@needs_logit_score
def test_both_logits_of_yes_and_no_are_upcast_before_the_subtraction(yes_no_model: Any) -> None:
    no, yes = no_and_yes_logits(yes_no_model).T
    plain = logits_one_by_one(yes_no_model)
    before = state(yes_no_model)
    with high_precision(yes_no_model):
        patched = logits_one_by_one(yes_no_model)
    assert (patched == yes - no).all()
    assert distinct(patched) > distinct(plain)
    assert state(yes_no_model) == before


@needs_logit_score
def test_two_rows_of_the_output_matrix_are_computed_in_float32(yes_no_model: Any) -> None:
    no, yes = no_and_yes_logits(yes_no_model, wide=True).T
    with high_precision(yes_no_model, head=True):
        patched = logits_one_by_one(yes_no_model)
    assert np.abs(patched - (yes - no)).max() < 1e-5
    assert distinct(patched) == distinct(yes - no)


# ------------------------------------------------------------- transformers and FlagEmbedding


def network(folder: Path, labels: int, dtype: str = "bfloat16") -> tuple[Any, Any]:
    """A classifier of transformers and its tokens of the pairs."""
    transformers = pytest.importorskip("transformers")
    name = write(folder, labels, dtype)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        name, dtype=getattr(torch, dtype)
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    firsts, seconds = zip(*PAIRS, strict=True)
    return model, tokenizer(list(firsts), list(seconds), padding=True, return_tensors="pt")


def test_the_recipes_of_transformers_score_in_float32(tmp_path: Path) -> None:
    model, batch = network(tmp_path, 2)
    before = state(model)
    with torch.no_grad():
        low = model(**batch).logits
        plain = torch.log_softmax(low, dim=1)[:, 1].exp()
        with high_precision(model):
            logits = model(**batch).logits
            scores = torch.log_softmax(logits, dim=1)[:, 1].exp()
    assert (plain.dtype, scores.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(logits, low.float())
    assert distinct(scores) == distinct(low.float()[:, 1] - low.float()[:, 0]) > distinct(plain)
    assert state(model) == before


def test_the_head_of_a_network_of_transformers_is_computed_in_float32(tmp_path: Path) -> None:
    model, batch = network(tmp_path, 1)
    with torch.no_grad():
        low = model(**batch).logits
        with high_precision(model, head=True):
            wide = model(**batch).logits
    assert wide.dtype == torch.float32
    assert torch.equal(wide.to(torch.bfloat16), low)
    assert distinct(wide) > distinct(low)


class FlagLike:
    """A reranker that holds its network and scores pairs as FlagEmbedding does."""

    def __init__(self, model: Any, batch: Any):
        self.model, self.batch = model, batch

    def compute_score(self) -> list[float]:
        with torch.no_grad():
            logits = self.model(**self.batch, return_dict=True).logits.view(-1).float()
        scores: list[float] = torch.sigmoid(logits).tolist()
        return scores


def test_a_reranker_of_flagembedding_gets_its_head_in_float32(tmp_path: Path) -> None:
    reranker = FlagLike(*network(tmp_path, 1))
    before = reranker.compute_score()
    with high_precision(reranker, head=True):
        wide = reranker.compute_score()
    assert len(set(wide)) > len(set(before))
    assert wide == pytest.approx(before, abs=0.01)
    assert reranker.compute_score() == before


class FlagEmbedder:
    """An embedder whose vectors come in the model's format, as FlagEmbedding's do."""

    def encode_queries(self, texts: list[str]) -> Array:
        return np.random.default_rng(len(texts)).normal(size=(len(texts), 64)).astype(np.float16)

    def encode_corpus(self, texts: list[str]) -> dict[str, Array]:
        return {"dense_vecs": self.encode_queries(texts)}


def test_embedders_of_flagembedding_give_float32_vectors() -> None:
    embedder = FlagEmbedder()
    texts = [""] * 200
    low = embedder.encode_queries(texts)
    with high_precision(embedder):
        queries = embedder.encode_queries(texts)
        documents = embedder.encode_corpus(texts)["dense_vecs"]
    assert queries.dtype == documents.dtype == np.float32
    assert np.array_equal(queries, low)
    assert distinct(queries @ documents.T) > distinct(low @ low.T)
    assert vars(embedder) == {}
    with pytest.raises(InputError, match="FlagEmbedder has no scoring head"):
        high_precision(embedder, head=True)
