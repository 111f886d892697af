"""Embedders: unit vectors in order, whatever texts come and however a server answers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_models
from loopback import Loopback, Reply, Request, loopback
from pydantic import TypeAdapter

from rankproof.foundation.errors import InputError
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import EmbedderChoice
from rankproof.retrieval.embedders import make_embedder
from rankproof.retrieval.embedders.endpoint import EmbeddingEndpointSettings, EndpointEmbedder
from rankproof.retrieval.embedders.sentence_transformers import SentenceTransformersSettings
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
from rankproof.retrieval.model_calls import embed_texts
from rankproof.retrieval.protocols import Embedder

TEXTS = ["the heart pumps blood", "", "stars shine", "the heart pumps blood", " \n", "été à Paris"]


def check_promises(embedder: Embedder, width: int) -> None:
    """What every embedder here promises."""
    vectors = embedder.embed_passages(TEXTS)
    assert vectors.shape == (len(TEXTS), width)
    assert vectors.dtype == np.float32
    blank = [not text.strip() for text in TEXTS]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.where(blank, 0, 1), abs=1e-6)
    assert (vectors[0] == vectors[3]).all()
    backwards = embedder.embed_passages(TEXTS[::-1])
    assert backwards[::-1] == pytest.approx(vectors, abs=1e-6)
    assert embedder.embed_queries([]).shape == (0, width)
    assert embedder.embed_queries([""]).tolist() == [[0.0] * width]
    assert embedder.embed_queries(["stars shine"])[0] @ vectors[2] == pytest.approx(1, abs=1e-5)


# -------------------------------------------------------------------------------------- wordllama


@pytest.mark.parametrize("width", [64, 128, 256])
def test_wordllama_returns_unit_vectors_of_the_requested_dimensions(width: Any) -> None:
    check_promises(make_embedder(WordllamaSettings(dimensions=width)), width)


def test_wordllama_is_the_mean_of_the_word_vectors_it_ships() -> None:
    import wordllama
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    folder = Path(wordllama.__file__).parent
    (table,) = load_file(folder / "weights" / "l2_supercat_256.safetensors").values()
    tokenizer = Tokenizer.from_file(
        str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
    )
    ids = tokenizer.encode("query: stars shine", add_special_tokens=False).ids
    mean = table.astype(np.float64)[ids, :64].mean(axis=0)
    embedder = make_embedder(WordllamaSettings(dimensions=64, query_prompt="query: "))
    assert embedder.embed_queries(["stars shine"])[0] == pytest.approx(
        mean / np.linalg.norm(mean), abs=1e-6
    )


def test_wordllama_pads_few_texts_to_a_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padded to it, all of them would take gigabytes."""
    embedder: Any = make_embedder(WordllamaSettings(dimensions=64))
    alone = [f"star {i} shines" for i in range(40)] + ["star " * 800]
    apart = np.concatenate([embedder.embed_passages([text]) for text in alone])
    tokenize, padded = embedder._model.tokenize, []

    def watched(texts: list[str]) -> Any:
        padded.append(len(texts) * max(map(len, texts)))
        return tokenize(texts)

    monkeypatch.setattr(embedder._model, "tokenize", watched)
    assert embedder.embed_passages(alone).tobytes() == apart.tobytes()
    assert max(padded) < 20_000


def test_the_default_embedder_needs_neither_torch_nor_a_network() -> None:
    code = """
import socket, sys
sys.modules["torch"] = None
def refuse(*_): raise AssertionError("a connection")
socket.socket.connect = refuse
import logging
from rankproof.retrieval.embedders import make_embedder
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
print(make_embedder(WordllamaSettings()).embed_queries(["stars"]).shape)
assert logging.getLogger().level == logging.WARNING and not logging.getLogger().handlers
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("(1, 256)\n", "")


# -------------------------------------------------------------------------- sentence-transformers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("sentence_transformers")
    return tiny_models.write(tmp_path_factory.mktemp("tiny"), None)


def local(model: str, **settings: Any) -> SentenceTransformersSettings:
    return SentenceTransformersSettings(type="sentence-transformers", model=model, **settings)


def test_vectors_are_those_of_the_library_at_unit_length(model: str) -> None:
    from sentence_transformers import SentenceTransformer

    texts = tiny_models.sentences(30)
    expected = SentenceTransformer(model, device="cpu").encode(
        texts, convert_to_numpy=True, normalize_embeddings=True
    )
    embedder = make_embedder(local(model, batch=4))
    assert embedder.embed_passages(texts) == pytest.approx(expected, abs=1e-6)
    check_promises(embedder, 32)


def test_the_first_dimensions_are_kept_and_renormalised(model: str) -> None:
    texts = tiny_models.sentences(5)
    whole = make_embedder(local(model)).embed_passages(texts)[:, :8]
    cut = make_embedder(local(model, dimensions=8)).embed_passages(texts)
    assert cut == pytest.approx(whole / np.linalg.norm(whole, axis=1, keepdims=True), abs=1e-6)
    with pytest.raises(InputError, match="33 dimensions of a model that has 32; ask for 32 or"):
        make_embedder(local(model, dimensions=33))


def test_prompts_precede_the_text_and_differ_by_role(model: str) -> None:
    prompted = make_embedder(local(model, query_prompt="word1 ", passage_prompt="word2 "))
    plain = make_embedder(local(model))
    for role, prompt in (("embed_queries", "word1 "), ("embed_passages", "word2 ")):
        given = getattr(prompted, role)(["word3 word4"])
        assert given == pytest.approx(getattr(plain, role)([prompt + "word3 word4"]), abs=1e-6)
        assert np.abs(given - getattr(plain, role)(["word3 word4"])).max() > 1e-3


def test_max_tokens_cuts_the_text(model: str) -> None:
    text = tiny_models.sentences(1)[0]  # seven words
    short = make_embedder(local(model, max_tokens=5)).embed_passages([text])  # [CLS] … [SEP]
    cut = make_embedder(local(model)).embed_passages([" ".join(text.split()[:3])])
    assert short == pytest.approx(cut, abs=1e-6)
    with pytest.raises(InputError, match="max_tokens 33 is more than the 32 the model has places"):
        make_embedder(local(model, max_tokens=33))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_low_format_runs_the_model_and_comes_back_as_float32(model: str, dtype: Any) -> None:
    texts = tiny_models.sentences(4)
    low = make_embedder(local(model, dtype=dtype))
    check_promises(low, 32)
    exact, rounded = make_embedder(local(model)).embed_passages(texts), low.embed_passages(texts)
    assert 1e-5 < np.abs(exact - rounded).max() < 0.1


def test_stored_vectors_are_not_computed_again(model: str, tmp_path: Path) -> None:
    texts = tiny_models.sentences(6)
    with Cache(tmp_path) as cache:
        first = make_embedder(local(model), cache).embed_passages(texts)
        again = make_embedder(local(model), cache)
        again._model = type("Gone", (), {"encode": None, "encode_document": None})()  # type: ignore[attr-defined]
        assert (again.embed_passages([*texts, texts[0]])[:6] == first).all()


def test_the_fingerprint_changes_with_everything_that_changes_vectors(
    model: str, tmp_path: Path
) -> None:
    changes: list[dict[str, Any]] = [
        *({}, {"dimensions": 8}, {"query_prompt": "q "}, {"passage_prompt": ""}),
        *({"dtype": "bfloat16"}, {"max_tokens": 7}),
    ]
    prints = [make_embedder(local(model, **changed)).fingerprint for changed in changes]
    other = Path(shutil.copytree(model, tmp_path / "other"))
    same = make_embedder(local(str(other), batch=5)).fingerprint
    assert same == prints[0]  # neither the folder's name nor the batch decides a vector
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[-1] ^= 1  # as training does: another number, the same size
    (other / "model.safetensors").write_bytes(weights)
    prints.append(make_embedder(local(str(other))).fingerprint)
    static = (WordllamaSettings(), WordllamaSettings(dimensions=64))
    prints += [make_embedder(settings).fingerprint for settings in static]
    assert len(set(prints)) == len(prints)


def test_an_error_names_the_text_whose_vector_holds_nan(tmp_path: Path) -> None:
    def compute(texts: Sequence[str]) -> Any:
        return [[1.0, np.nan if text == "bad" else 2.0] for text in texts]

    with Cache(tmp_path) as cache:
        with pytest.raises(InputError, match="m: the vector of 'bad' holds NaN or infinity"):
            embed_texts(
                *(["a", "b", "bad", "c"], compute), place="m", batch=2, cache=cache, fingerprint="f"
            )
        assert [v is not None for v in cache.get_many("f", "passage", ["a", "b", "c"])] == [
            *(True, True, False)
        ]


def test_a_folder_without_a_model_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this folder holds no weights"):
        make_embedder(local(str(tmp_path)))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(InputError, match="sentence-transformers cannot load it") as raised:
        make_embedder(local(str(tmp_path)))
    assert "\n" not in str(raised.value)


# --------------------------------------------------------------------------------------- endpoints


def vector(text: str) -> list[float]:
    """What the server of these tests holds for the vector of a text."""
    return [float(len(text)), 1.0, float(sum(map(ord, text)) % 7)]


def answers(request: Request) -> Reply:
    """A well-behaved server that numbers its vectors and gives them backwards."""
    data = [{"index": i, "embedding": vector(t)} for i, t in enumerate(request.json["input"])]
    return Reply.of({"data": data[::-1], "usage": {"total_tokens": 10 * len(data)}})


def remote(server: Loopback, cache: Cache | None = None, **settings: Any) -> EndpointEmbedder:
    given = {"type": "endpoint", "url": f"{server.url}/v1", "model": "m", "attempts": 3}
    checked = EmbeddingEndpointSettings.model_validate(given | settings)
    waits: list[float] = []
    return EndpointEmbedder(checked, cache, sleep=waits.append, seed=0)


def unit(text: str) -> Any:
    exact = np.array(vector(text))
    return pytest.approx(exact / np.linalg.norm(exact), abs=1e-6)


def test_an_endpoint_embeds_each_text_once_in_batches() -> None:
    with loopback(answers) as server:
        embedder = remote(server, batch=2)
        vectors = embedder.embed_passages(TEXTS)
        assert [r.json for r in server.requests] == [
            {"model": "m", "input": ["the heart pumps blood", "stars shine"]},
            {"model": "m", "input": ["été à Paris"]},
        ]
        assert {r.path for r in server.requests} == {"/v1/embeddings"}
        assert (embedder.tokens, embedder.uncounted) == (30, 0)
        assert [v == unit(t) for v, t in zip(vectors, TEXTS, strict=True) if t.strip()] == [
            True
        ] * 4
        check_promises(remote(server, dimensions=3), 3)


def test_shapes_name_role_and_dimensions_differently() -> None:
    with loopback(answers) as server:
        for shape in ("openai", "voyage"):
            embedder = remote(
                server, shape=shape, dimensions=3, query_prompt="Q: ", passage_prompt="P: "
            )
            assert embedder.embed_queries(["a"])[0] == unit("Q: a")
            assert embedder.embed_passages(["a"])[0] == unit("P: a")
        assert [r.json for r in server.requests] == [
            {"model": "m", "input": ["Q: a"], "dimensions": 3},
            {"model": "m", "input": ["P: a"], "dimensions": 3},
            {"model": "m", "input": ["Q: a"], "output_dimension": 3, "input_type": "query"},
            {"model": "m", "input": ["P: a"], "output_dimension": 3, "input_type": "document"},
        ]


def spoil(change: Callable[[list[Any]], Any]) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        data = [{"index": i, "embedding": vector(t)} for i, t in enumerate(request.json["input"])]
        return Reply.of({"data": change(data)})

    return answer


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data[:-1], "1 vector for 2 texts"),
        (lambda data: [*data, data[0]], "3 vectors for 2 texts"),
        (lambda data: None, "no list `data`"),
        (lambda data: [1, 2], "not numbered"),
        (lambda data: [data[0], data[0]], "not numbered"),
        (lambda data: [data[0], {**data[1], "index": 2}], "not numbered"),
        (lambda data: [data[0], {**data[1], "index": True}], "not numbered"),
        (lambda data: [data[0], {**data[1], "embedding": [1.0]}], "differ in length"),
        (lambda data: [data[0], {**data[1], "embedding": ["1", "2", "3"]}], "not numbers"),
        (lambda data: [data[0], {**data[1], "embedding": [1, 2, None]}], "not numbers"),
        (lambda data: [data[0], {**data[1], "embedding": [1, 2, float("nan")]}], "not numbers"),
        (lambda data: [data[0], {**data[1], "embedding": [1, 2, 1e300]}], "not numbers"),
        (lambda data: [{**d, "embedding": []} for d in data], "not numbers"),
        (lambda data: [{**d, "embedding": "AAAA"} for d in data], "not numbers"),
        (lambda data: [{**d, "embedding": [True, False]} for d in data], "not numbers"),
    ],
)
def test_an_answer_of_the_wrong_shape_is_requested_again_and_then_refused(
    change: Callable[[list[Any]], Any], problem: str
) -> None:
    with loopback(spoil(change)) as server:
        with pytest.raises(InputError, match=problem) as raised:
            remote(server).embed_passages(["a", "bb"])
        assert len(server.requests) == 3
    assert str(raised.value).startswith(server.url[7:])


def test_a_server_that_ignores_the_requested_dimensions_is_refused() -> None:
    with loopback(answers) as server, pytest.raises(InputError, match="3 dimensions where 2 were"):
        remote(server, dimensions=2).embed_passages(["a"])


def test_vectors_received_before_a_failure_are_not_paid_again(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(10)]
    broken = True

    def answer(request: Request) -> Reply:
        return (
            Reply(status=500) if broken and "text 6" in request.json["input"] else answers(request)
        )

    with loopback(answer) as server, Cache(tmp_path) as cache:
        with pytest.raises(InputError, match="the server answers 500"):
            remote(server, cache, batch=3).embed_passages(texts)
        asked = len(server.requests)
        broken = False
        vectors = remote(server, cache, batch=3).embed_passages(texts)
        sent = [text for r in server.requests[asked:] for text in r.json["input"]]
        assert sent == texts[6:]
        assert all(v == unit(t) for v, t in zip(vectors, texts, strict=True))
        # Queries and passages may be embedded differently: one is not taken for the other.
        remote(server, cache).embed_queries(texts[:1])
        assert server.requests[-1].json["input"] == texts[:1]
        # A server that moved is not asked again.
        before = len(server.requests)
        remote(server, cache, url=f"{server.url}/v2").embed_passages(texts[:1])
        assert len(server.requests) == before
        # Another model's vectors, or those of another width, are others.
        for changed in ({"model": "n"}, {"dimensions": 3}):
            before = len(server.requests)
            remote(server, cache, **changed).embed_passages(texts[:1])
            assert len(server.requests) == before + 1
        # How the server is asked decides nothing.
        before = len(server.requests)
        remote(server, cache, batch=1, timeout_s=5, attempts=1).embed_passages(texts)
        assert len(server.requests) == before


def test_answers_without_a_count_of_tokens_are_counted() -> None:
    with loopback(spoil(lambda data: data)) as server:
        embedder = remote(server, batch=1)
        embedder.embed_passages(["a", "bb"])
    assert (embedder.tokens, embedder.uncounted) == (0, 2)


def test_blank_texts_alone_are_refused_without_dimensions() -> None:
    with loopback(answers) as server:
        with pytest.raises(InputError, match="every text is blank"):
            remote(server).embed_passages(["", " "])
        assert remote(server).embed_passages([]).shape == (0, 0)
        assert remote(server, dimensions=3).embed_passages([""]).shape == (1, 3)
        assert server.requests == []


def test_cached_vectors_of_other_dimensions_are_refused(tmp_path: Path) -> None:
    with loopback(answers) as server, Cache(tmp_path) as cache:
        embedder = remote(server, cache)
        cache.put_many(embedder.fingerprint, "passage", {"old": np.ones(5, "<f4").tobytes()})
        with pytest.raises(InputError, match="vectors of 3 and of 5 dimensions"):
            embedder.embed_passages(["old", "new"])


def test_the_type_in_a_configuration_chooses_the_embedder() -> None:
    adapter: TypeAdapter[EmbedderChoice] = TypeAdapter(EmbedderChoice)
    given = {"type": "endpoint", "url": "http://host/v1", "model": "m"}
    assert isinstance(make_embedder(adapter.validate_python(given)), EndpointEmbedder)
    assert make_embedder(adapter.validate_python({"type": "wordllama"})).name == "wordllama-256"
