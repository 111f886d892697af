"""Rerankers against literal loops, the library below them, and a server that misbehaves."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from hypothesis import given
from hypothesis import strategies as st
from loopback import Loopback, Reply, Request, loopback
from small_corpus import write_corpus

from rankproof.foundation.config import check_config
from rankproof.foundation.errors import InputError
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.model_calls import PairScore, score_pairs
from rankproof.retrieval.rerankers import make_reranker
from rankproof.retrieval.rerankers.cross_encoder import CrossEncoderSettings
from rankproof.retrieval.rerankers.endpoint import EndpointReranker, RerankEndpointSettings
from rankproof.retrieval.rerankers.maxsim import MaxSimReranker, MaxSimSettings, max_sim
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import sweep

PASSAGES = tiny_models.sentences(12)
QUERY = "word3 word14 word15"


def literal_max_sim(query: Any, passage: Any) -> float:
    """Three loops: query tokens, passage tokens, dimensions."""
    total = 0.0
    for q in query:
        best = -np.inf
        for p in passage:
            product = 0.0
            for a, b in zip(q, p, strict=True):
                product += float(a) * float(b)
            best = max(best, product)
        total += best
    return total / len(query)


@given(st.integers(1, 5), st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(0, 999))
def test_max_sim_is_the_mean_over_query_tokens_of_the_best_cosine(
    tokens: int, lengths: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)

    def draw(count: int) -> Any:
        x = rng.standard_normal((count, 8))
        return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float16)

    query, passages = draw(tokens), [draw(length) for length in lengths]
    expected = [literal_max_sim(query, passage) for passage in passages]
    assert max_sim(query, passages) == pytest.approx(expected, abs=1e-6)


def test_max_sim_does_not_depend_on_other_passages_of_the_call() -> None:
    """A product of float32 would differ in the last bit with the processor and with the others."""
    random = np.random.default_rng(7)

    def unit(tokens: int) -> Any:
        vectors = random.normal(size=(tokens, 384))
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)

    query, passages = unit(5), [unit(tokens) for tokens in (1, 7, 3, 9)]
    expected = [float(np.float32(literal_max_sim(query, passage))) for passage in passages]
    assert max_sim(query, passages).tolist() == expected
    assert max_sim(query, passages[::-1]).tolist() == expected[::-1]
    assert [max_sim(query, [passage]).item() for passage in passages] == expected


def test_a_text_without_tokens_scores_zero() -> None:
    some, none = np.ones((2, 4), np.float16) / 2, np.zeros((0, 4), np.float16)
    assert max_sim(some, [none, some, none]).tolist() == [0, 1, 0]
    assert max_sim(none, [some, none]).tolist() == [0, 0]
    assert max_sim(some, []).tolist() == []


# ----------------------------------------------------------------------------- local models


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("sentence_transformers")
    return tiny_models.write(tmp_path_factory.mktemp("encoder"), None)


@pytest.fixture(scope="module", params=[1, 2])
def classifier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("sentence_transformers")
    return tiny_models.write(tmp_path_factory.mktemp("classifier"), request.param)


def maxsim(model: str, cache: Cache | None = None, **settings: Any) -> MaxSimReranker:
    made = make_reranker(MaxSimSettings(type="maxsim", model=model, **settings), cache)
    assert isinstance(made, MaxSimReranker)
    return made


@pytest.mark.parametrize("special", [False, True])
def test_max_sim_of_a_model_is_that_of_its_token_vectors(encoder: str, special: bool) -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(encoder, device="cpu")

    def tokens(text: str) -> Any:  # one text at a time: no padding
        vectors = model.encode([text], output_value="token_embeddings")[0].numpy()
        vectors = vectors if special else vectors[1:-1]  # [CLS] … [SEP]
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    scored = maxsim(encoder, special_tokens=special, batch=5).score(QUERY, PASSAGES)
    expected = [literal_max_sim(tokens(QUERY), tokens(passage)) for passage in PASSAGES]
    assert scored.score == pytest.approx(expected, abs=2e-3)  # vectors are kept in float16
    assert scored.dtype == "float32"
    # Three words and two special tokens, and seven and two, for each passage.
    assert scored.tokens == 12 * (5 + 9)


def test_each_passage_is_embedded_once_while_memory_lasts(encoder: str) -> None:
    reranker = maxsim(encoder)
    first = reranker.score(QUERY, PASSAGES)
    reranker.score("word7", PASSAGES[:5])
    again = reranker.score(QUERY, [*PASSAGES[::-1], PASSAGES[0]])
    assert reranker.embedded == 12
    assert again.score[:12][::-1].tolist() == first.score.tolist()
    long = [" ".join(tiny_models.WORDS[i : i + 29]) for i in range(90)]  # 29 × 32 × 2 bytes each
    tight = maxsim(encoder, memory_mb=1)
    for start in range(0, 90, 10):
        tight.score(QUERY, long[start : start + 10])
    tight.score(QUERY, long[-10:])
    assert tight.embedded == 90  # the latest are still there
    assert sum(v.nbytes for v, _ in tight._vectors.values()) <= 1 << 20


def test_memory_is_bounded_and_dropped_passages_are_embedded_again(
    encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reranker = maxsim(encoder)
    monkeypatch.setattr(reranker, "settings", reranker.settings.model_copy(update={"memory_mb": 0}))
    first = reranker.score(QUERY, PASSAGES)
    assert reranker._bytes == 0
    assert reranker.score(QUERY, PASSAGES).score == pytest.approx(first.score, abs=1e-6)
    assert reranker.embedded == 24


def test_static_word_vectors_have_no_tokens_to_compare(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    static = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=4)])
    static.save(str(tmp_path / "static"))
    with pytest.raises(InputError, match="the model has no vectors of single tokens"):
        maxsim(str(tmp_path / "static")).score("a", ["a"])


def cross(model: str, cache: Cache | None = None, **settings: Any) -> Any:
    return make_reranker(CrossEncoderSettings(type="cross-encoder", model=model, **settings), cache)


def logits_of(model: str, dtype: str) -> Any:
    import torch
    from sentence_transformers import CrossEncoder

    library = CrossEncoder(model, device="cpu")
    library.model.to(getattr(torch, dtype))
    pairs = [(QUERY, passage) for passage in PASSAGES]
    output = library.predict(pairs, activation_fn=torch.nn.Identity(), convert_to_numpy=True)
    output = np.asarray(output, np.float64).reshape(len(pairs), -1)
    return output[:, 0] if output.shape[1] == 1 else output[:, 1] - output[:, 0]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cross_encoder_in_high_precision_gives_float32_logits(
    classifier: str, dtype: str
) -> None:
    scored = cross(classifier, dtype=dtype).score(QUERY, PASSAGES)
    assert scored.score == pytest.approx(logits_of(classifier, dtype), abs=1e-5)
    assert scored.dtype == "float32"
    assert scored.tokens == 12 * (3 + 7 + 3)  # [CLS] query [SEP] passage [SEP]
    assert cross(classifier).score(QUERY, []).score.tolist() == []


def test_a_cross_encoder_scored_plainly_gives_probabilities_in_its_own_format(
    classifier: str,
) -> None:
    import torch

    scored = cross(classifier, dtype="bfloat16", high_precision=False).score(QUERY, PASSAGES)
    logits = torch.tensor(logits_of(classifier, "bfloat16"), dtype=torch.float32)
    expected = torch.sigmoid(logits).bfloat16().double().numpy()
    assert scored.score.tolist() == expected.tolist()
    assert scored.dtype == "bfloat16"


def test_tokens_are_counted_after_truncation(classifier: str) -> None:
    long = " ".join(tiny_models.WORDS[:60])
    assert cross(classifier, max_tokens=20).score(QUERY, [long, "word1"]).tokens == 20 + 7


def test_a_model_of_three_labels_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    with pytest.raises(InputError, match="the model has 3 labels; use one with 1 or 2"):
        cross(tiny_models.write(tmp_path, 3))


def test_stored_scores_are_not_computed_again(encoder: str, tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        first = maxsim(encoder, cache).score(QUERY, PASSAGES[:6])
        again = maxsim(encoder, cache)
        scored = again.score(QUERY, [*PASSAGES[:8], PASSAGES[0]])
        assert again.embedded == 2
        assert scored.score[:6].tolist() == first.score.tolist()
        assert scored.score[8] == scored.score[0]
        assert scored.tokens == 9 * 14
        again.score("word9", PASSAGES[:1])  # another query is another score
        other = maxsim(encoder, cache, special_tokens=True)
        other.score(QUERY, PASSAGES[:1])
        assert other.embedded == 1


def test_an_error_names_the_passage_whose_score_is_not_a_number() -> None:
    with pytest.raises(InputError, match="m: the score of 'bad' is nan"):
        score_pairs(
            "q",
            ["ok", "bad"],
            lambda texts: [PairScore(float("nan") if p == "bad" else 1.0, 1.0) for p in texts],
            place="m",
            batch=8,
            dtype="float32",
            fingerprint="f",
        )


# ---------------------------------------------------------------------------------- endpoints


def relevance(query: str, passage: str) -> float:
    return len(set(query.split()) & set(passage.split())) / 3


def answers(request: Request) -> Reply:
    """A well-behaved server of both shapes: best first."""
    asked = request.json
    scored = [
        {"index": i, "relevance_score": relevance(asked["query"], passage)}
        for i, passage in enumerate(asked["documents"])
    ]
    scored.sort(key=lambda item: -item["relevance_score"])
    if "top_k" in asked:
        return Reply.of({"data": scored[: asked["top_k"]], "usage": {"total_tokens": 100}})
    return Reply.of({"results": scored[: asked["top_n"]], "meta": {"billed_units": {}}})


def remote(server: Loopback, cache: Cache | None = None, **settings: Any) -> EndpointReranker:
    given = {"type": "endpoint", "url": server.url, "model": "m", "attempts": 3, **settings}
    waits: list[float] = []
    return EndpointReranker(
        RerankEndpointSettings.model_validate(given), cache, sleep=waits.append, seed=0
    )


@pytest.mark.parametrize("shape", ["cohere", "voyage"])
def test_an_endpoint_scores_each_passage_once_in_their_order(shape: str) -> None:
    passages = [*PASSAGES, "", PASSAGES[4], QUERY]
    with loopback(answers) as server:
        scored = remote(server, shape=shape, batch=5).score(QUERY, passages)
        sent = [r.json["documents"] for r in server.requests]
        assert [len(documents) for documents in sent] == [5, 5, 3]
        assert [p for documents in sent for p in documents] == [*PASSAGES, QUERY]
        assert {r.path for r in server.requests} == {"/rerank"}
    assert scored.score.tolist() == [relevance(QUERY, passage) for passage in passages]
    assert scored.dtype == "float64"


def test_tokens_are_counted_by_the_server_or_marked_as_estimates(tmp_path: Path) -> None:
    with loopback(answers) as server, Cache(tmp_path) as cache:
        voyage = remote(server, cache, shape="voyage", batch=6)
        assert voyage.score(QUERY, PASSAGES).tokens == 200  # two requests
        assert (voyage.tokens, voyage.estimated) == (200, 0)
        again = remote(server, cache, shape="voyage")
        assert again.score(QUERY, PASSAGES).tokens == 200  # what it would have taken
        assert (again.tokens, len(server.requests)) == (0, 2)  # and nothing was asked
        assert 0 < again.score(QUERY, PASSAGES[:3]).tokens < 100
        cohere = remote(server)
        scored = cohere.score(QUERY, PASSAGES)
        assert scored.tokens == round(sum(len(QUERY) + len(p) for p in PASSAGES) / 4)
        assert (cohere.tokens, cohere.estimated) == (0, 1)


def test_token_counts_of_cohere_are_read() -> None:
    def answer(request: Request) -> Reply:
        results = [{"index": 0, "relevance_score": 1}]
        return Reply.of({"results": results, "meta": {"tokens": {"input_tokens": 33}}})

    with loopback(answer) as server:
        reranker = remote(server)
        assert reranker.score("q", ["p"]).tokens == 33
        assert reranker.estimated == 0


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda r: r[:-1], "1 score for 2 passages"),
        (lambda r: None, "no list `results`"),
        (lambda r: [r[0], r[0]], "not numbered 0 to 1"),
        (lambda r: [r[0], {**r[1], "index": 2}], "not numbered"),
        (lambda r: [r[0], {**r[1], "index": "1"}], "not numbered"),
        (lambda r: [r[0], "x"], "not numbered"),
        (lambda r: [r[0], {**r[1], "relevance_score": None}], "not a number"),
        (lambda r: [r[0], {**r[1], "relevance_score": "0.5"}], "not a number"),
        (lambda r: [r[0], {**r[1], "relevance_score": True}], "not a number"),
        (lambda r: [r[0], {**r[1], "relevance_score": float("nan")}], "not a number"),
    ],
)
def test_scores_of_the_wrong_shape_are_requested_again_and_then_refused(
    change: Callable[[list[Any]], Any], problem: str
) -> None:
    results = [{"index": i, "relevance_score": 0.5} for i in range(2)]
    with loopback(lambda _: Reply.of({"results": change(results)})) as server:
        with pytest.raises(InputError, match=problem):
            remote(server).score("q", ["a", "b"])
        assert len(server.requests) == 3


@pytest.mark.parametrize("shape", ["cohere", "jina", "voyage", "tei"])
def test_each_shape_follows_the_documentation_of_its_server(shape: str) -> None:
    def answer(request: Request) -> Reply:
        named, given = ("texts", "score") if shape == "tei" else ("documents", "relevance_score")
        scored: Any = [{"index": i, given: i / 10} for i in range(len(request.json[named]))][::-1]
        key = {"tei": None, "voyage": "data"}.get(shape, "results")
        return Reply.of(scored if key is None else {key: scored})

    with loopback(answer) as server:
        assert remote(server, shape=shape).score("q", ["a", "b"]).score.tolist() == [0.0, 0.1]
        (request,) = server.requests
    expected: dict[str, Any] = {"model": "m", "query": "q", "documents": ["a", "b"]}
    expected |= {"top_k" if shape == "voyage" else "top_n": 2}
    if shape == "tei":
        expected = {"query": "q", "texts": ["a", "b"], "truncate": True}
    assert (request.path, request.json) == ("/rerank", expected)


def test_billed_searches_do_not_depend_on_the_cache(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        count = len(request.json["documents"])
        results = [{"index": i, "relevance_score": 0.5} for i in range(count)]
        return Reply.of({"results": results, "meta": {"billed_units": {"search_units": 1}}})

    with loopback(answer) as server, Cache(tmp_path) as cache:
        reranker = remote(server, cache, batch=4)
        assert reranker.score("q", PASSAGES[:6]).searches == pytest.approx(2)
        assert reranker.searches == 2
        again = remote(server, cache)
        assert again.score("q", PASSAGES[:5]).searches == pytest.approx(1.5)
        assert again.searches == 0
        old = {text: struct.pack("<dd?", 0.25, 3.0, False) for text in PASSAGES[6:8]}
        cache.put_many(again.fingerprint, "rerank q", old)  # from before searches were counted
        scored = again.score("q", PASSAGES[6:8])
        assert (scored.score.tolist(), scored.tokens, scored.searches) == ([0.25, 0.25], 6, None)
    with loopback(answers) as server:
        assert remote(server).score("q", PASSAGES).searches is None


def test_scores_received_before_a_failure_are_stored(tmp_path: Path) -> None:
    broken = True

    def answer(request: Request) -> Reply:
        if broken and PASSAGES[9] in request.json["documents"]:
            return Reply(status=503)
        return answers(request)

    with loopback(answer) as server, Cache(tmp_path) as cache:
        with pytest.raises(InputError, match="the server answers 503"):
            remote(server, cache, batch=4).score(QUERY, PASSAGES)
        broken = False
        before = len(server.requests)
        remote(server, cache, batch=4).score(QUERY, PASSAGES)
        sent = [p for r in server.requests[before:] for p in r.json["documents"]]
        assert sent == PASSAGES[8:]


def test_no_passages_and_blank_ones_are_not_sent() -> None:
    with loopback(answers) as server:
        reranker = remote(server)
        assert reranker.score(QUERY, []).score.tolist() == []
        scored = reranker.score(QUERY, ["", " "])
        assert (scored.score.tolist(), scored.tokens, reranker.estimated) == ([0, 0], 0, 0)
        assert server.requests == []


def test_token_vectors_in_memory_are_counted(encoder: str, tmp_path: Path) -> None:
    reranker = maxsim(encoder)
    assert reranker.bytes_each is None
    reranker.score(QUERY, PASSAGES)
    held = sum(vectors.nbytes for vectors, _ in reranker._vectors.values())
    assert reranker.bytes_each == pytest.approx(held / 12)
    # Words that the model does not know are special tokens to it.
    own = {"type": "maxsim", "model": encoder, "special_tokens": True}
    config = {
        "corpus": write_corpus(tmp_path / "corpus"),
        "modes": ["sparse"],
        "pools": [30],
        "rerankers": {"none": None, "maxsim": own},
        "latency": {"queries": 6, "repeats": 1, "warmup": 0},
    }
    settings = check_config(config, SweepSettings, place="test")
    plain, kept = sweep(settings, tmp_path / "out").configurations["index_bytes"]
    assert kept - plain > 30 * 2 * 32  # thirty passages, each of one token and more
