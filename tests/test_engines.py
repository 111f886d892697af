"""Engines of the user's own in a sweep: a server, a function, a run file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from loopback import Loopback, Reply, Request, loopback
from rankproof_cli import rankproof
from small_corpus import write_corpus

import rankproof as rp
from rankproof.data.hits import read_hits
from rankproof.foundation.config import read_config
from rankproof.foundation.errors import InputError
from rankproof.retrieval.cache import Cache
from rankproof.retrieval.components import make_component, uses_network
from rankproof.retrieval.identity import fingerprint, identity
from rankproof.retrieval.retrievers.http import HttpRetriever, HttpRetrieverSettings
from rankproof.retrieval.retrievers.python import PythonSettings
from rankproof.retrieval.retrievers.run import RunSettings
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import Swept, sweep

ENGINES = """
corpus: corpus
modes: []
pools: [10]
prompts: [5]
at: [5]
best_by: RAnWG@5
latency: {queries: 3, repeats: 2, warmup: 1}
retrievers:
"""


def corpus_texts(folder: Path) -> dict[str, str]:
    rows = map(json.loads, (folder / "corpus/corpus.jsonl").read_text().splitlines())
    return {row["_id"]: f"{row['title']} {row['text']}" for row in rows}


def overlap(texts: dict[str, str], question: str, k: int) -> list[tuple[str, float]]:
    """A small engine: words in common, counted; many passages tie."""
    words = set(question.lower().split())
    result = [(doc, float(len(words & set(text.lower().split())))) for doc, text in texts.items()]
    return sorted(result, key=lambda hit: -hit[1])[:k]


def swept(folder: Path, engines: str) -> Swept:
    if not (folder / "corpus").exists():
        write_corpus(folder / "corpus")
    (folder / "sweep.yaml").write_text(ENGINES + engines, encoding="utf-8")
    return sweep(read_config(folder / "sweep.yaml", SweepSettings), folder / "out")


def server(folder: Path) -> Any:
    """POST {query, k} → {hits: [{id, score}]}, over the corpus of a folder."""
    texts: dict[str, str] = {}

    def answer(request: Request) -> Reply:
        texts.update(texts or corpus_texts(folder))
        assert set(request.json) == {"query", "k"}
        hits = overlap(texts, request.json["query"], request.json["k"])
        return Reply.of({"hits": [{"id": doc, "score": score} for doc, score in hits]})

    return loopback(answer)


def settings(there: Loopback, **more: Any) -> HttpRetrieverSettings:
    return HttpRetrieverSettings.model_validate(
        {"type": "http", "url": f"{there.url}/search", "attempts": 2, **more}
    )


# ------------------------------------------------------------------------------------ http


def test_a_sweep_of_a_server_equals_an_evaluation_of_its_answers(tmp_path: Path) -> None:
    with server(tmp_path) as there:
        result = swept(tmp_path, f"  ours: {{type: http, url: '{there.url}/search'}}\n")
        assert {request.path for request in there.requests} == {"/search"}
    row = result.configurations.row(0, named=True)
    assert row["configuration"] == "ours K=10 top 5"
    texts = corpus_texts(tmp_path)
    rows = map(json.loads, (tmp_path / "corpus/queries.jsonl").read_text().splitlines())
    run = {row["_id"]: dict(overlap(texts, row["text"], 10)) for row in rows}
    expected_value = rp.evaluate(
        tmp_path / "corpus/qrels/test.tsv", run, ["nDCG(rel=3)@10", "RAnWG@5"]
    )
    for measure in ("nDCG(rel=3)@10", "RAnWG@5"):
        assert row[measure] == pytest.approx(expected_value[measure].expected)
        assert row[f"{measure} min"] == pytest.approx(expected_value[measure].min)
        assert row[f"{measure} max"] == pytest.approx(expected_value[measure].max)
    assert row["latency_p95_ms"] > 0
    assert row["network"] is False  # a socket of this machine


def test_a_remote_server_is_called_once_per_question(tmp_path: Path) -> None:
    with server(tmp_path) as there:
        far = there.url.replace("127.0.0.1", "127.1")  # the same, but not known as this machine
        engine = f"  ours: {{type: http, url: '{far}/search'}}\n"
        result = swept(tmp_path, engine)
        assert len(there.requests) == 6
        swept(tmp_path, engine)
        assert len(there.requests) == 6
    assert result.configurations["network"].to_list() == [True]


def test_the_identity_of_a_server_is_its_address_without_secrets_or_its_given_name() -> None:
    def of(url: str, **more: Any) -> Any:
        return fingerprint(
            HttpRetrieverSettings.model_validate({"type": "http", "url": url, **more})
        )

    plain = of("https://host.example/search")
    assert of("https://user:pass@host.example/search?key=abc") == plain
    assert of("https://host.example/search", timeout_s=3, key_env="X", attempts=1) == plain
    assert of("https://other.example/search") != plain
    moved = [of(f"https://{host}.example/search", identity="v7") for host in ("a", "b")]
    assert moved[0] == moved[1] != plain
    assert "pass" not in json.dumps(
        identity(HttpRetrieverSettings(type="http", url="https://user:pass@host.example/s?t=1"))
    )


def test_the_key_of_a_server_is_sent_and_kept_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_KEY", "sk-planted-secret")
    with server(tmp_path) as there:
        swept(tmp_path, f"  ours: {{type: http, url: '{there.url}', key_env: SEARCH_KEY}}\n")
        assert there.requests[0].headers["Authorization"] == "Bearer sk-planted-secret"
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or b"sk-planted-secret" not in file.read_bytes()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply.of({"results": []}), "no list `hits`"),
        (Reply.of({"hits": "many"}), "no list `hits`"),
        (Reply.of({"hits": [{"score": 1.0}]}), "a hit has no id"),
        (Reply.of({"hits": [{"id": "a", "score": "high"}]}), "score 'high' is not a number"),
        (Reply.of({"hits": [{"id": "a", "score": 1}, {"id": "b"}]}), "1 of 2 hits have no score"),
        (Reply(b'{"hits": [{"id": "a", "score": NaN}]}'), "a score is NaN"),
        (Reply(b"<html>"), "not JSON"),
        (Reply(b'{"hits"', claim=90), "the connection failed"),
        (Reply.of({"error": "out of memory"}, 500), "answers 500: 'out of memory'"),
    ],
    ids=["other", "text", "noid", "word", "mixed", "nan", "html", "half", "500"],
)
def test_an_unreadable_answer_is_requested_again_and_then_a_one_line_error(
    reply: Reply, said: str
) -> None:
    with loopback(lambda request: reply) as there:
        engine = HttpRetriever(settings(there), sleep=lambda _: None)
        with pytest.raises(InputError) as error:
            engine.search(["what"], 3)
        assert len(there.requests) == 2
    assert said in str(error.value)
    assert "(2 attempts)" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_server_may_recover_between_attempts(tmp_path: Path) -> None:
    def answer(request: Request) -> Reply:
        if request.number == 0:
            return Reply.of({}, 503, retry_after="1")
        return Reply.of({"hits": [{"id": "a", "score": 0.5}]})

    waited: list[float] = []
    with loopback(answer) as there:
        engine = HttpRetriever(settings(there), sleep=waited.append)
        result = engine.search(["what"], 3, ["q1"])
    assert result.run.to_frame().rows() == [("q1", "a", 0.5)]
    assert waited == [1.0]


def test_answers_of_a_server_are_cached_by_question_and_depth(tmp_path: Path) -> None:
    hits = {"hits": [{"id": "a"}, {"id": "b"}]}
    with loopback(lambda request: Reply.of(hits)) as there, Cache(tmp_path) as cache:
        for _ in range(2):
            engine = HttpRetriever(settings(there), cache=cache)
            run = engine.search(["x", "y", "x"], 2, ["1", "2", "3"]).run
            assert run.dtype == "ranks"
            assert run.doc.to_list() == ["a", "b"] * 3
        assert [request.json for request in there.requests] == [
            {"query": text, "k": 2} for text in ("x", "y")
        ]
        engine.search(["x"], 3)
        assert there.requests[-1].json == {"query": "x", "k": 3}


def test_a_refused_request_is_not_sent_again() -> None:
    with loopback(lambda request: Reply.of({"message": "no such path"}, 404)) as there:
        engine = HttpRetriever(settings(there), sleep=lambda _: None)
        with pytest.raises(InputError, match=r"answers 404: 'no such path'; check the url$"):
            engine.search(["what"], 3)
        assert len(there.requests) == 1


# ---------------------------------------------------------------------------------- python

SHOP = """
TEXTS = {}

def find(text, k):
    words = set(text.lower().split())
    found = [(doc, float(len(words & set(t.lower().split())))) for doc, t in TEXTS.items()]
    return sorted(found, key=lambda hit: -hit[1])[:k]

def broken(text, k):
    return 1 / 0

def nearest(text, k):
    return [(doc, -score) for doc, score in find(text, k)]

def ranked(text, k):
    return [doc for doc, _ in find(text, k)]

def lazily(text, k):
    yield from find(text, k)

def strangers(text, k):
    return [("nobody", 1.0)]

def sometimes(text, k):
    return [] if "bicycles" in text else find(text, k)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_corpus(tmp_path / "corpus")
    (tmp_path / "shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import importlib

    sys.modules.pop("shop", None)
    importlib.invalidate_caches()
    monkeypatch.setattr(importlib.import_module("shop"), "TEXTS", corpus_texts(tmp_path))
    return tmp_path


def test_a_function_is_swept_like_a_server(shop: Path) -> None:
    with server(shop) as there:
        result = swept(
            shop,
            f"  ours: {{type: http, url: '{there.url}'}}\n"
            "  mine: {type: python, call: 'shop:find'}\n"
            "  lazy: {type: python, call: 'shop:lazily'}\n",
        )
    quality = result.configurations.select(pl.col("^(nDCG|RAnWG).*$"))
    assert quality.n_unique() == 1
    assert result.manifest["notes"] == []


def test_a_note_reports_that_a_function_without_scores_hides_its_ties(shop: Path) -> None:
    result = swept(shop, "  mine: {type: python, call: 'shop:ranked'}\n")
    assert result.configurations["score_dtype"].to_list() == ["ranks"]
    said = "retriever mine returns no scores: its order is used as it is, and ties cannot be seen"
    assert said in result.manifest["notes"]
    again = swept(shop, "  mine: {type: python, call: 'shop:ranked'}\n")  # from the disk
    assert said in again.manifest["notes"]


def test_questions_without_hits_are_counted(shop: Path) -> None:
    result = swept(shop, "  mine: {type: python, call: 'shop:sometimes'}\n")
    assert "retriever mine returns nothing for 1 of 6 questions" in result.manifest["notes"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("broken", "ZeroDivisionError for .*: division by zero; mend it"),
        ("nearest", "the scores rise from the first hit to the last in every list"),
        ("strangers", "returns no passage of the corpus"),
        ("absent", "there is no 'shop:absent'"),
        ("TEXTS", "'shop:TEXTS' cannot be called"),
    ],
)
def test_an_unusable_function_is_a_one_line_error(shop: Path, call: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        swept(shop, f"  mine: {{type: python, call: 'shop:{call}'}}\n")
    assert "\n" not in str(error.value)


def test_a_builtin_function_has_no_source_digest(shop: Path) -> None:
    with pytest.raises(InputError, match=r"os\.path:join .* TypeError"):
        swept(shop, "  mine: {type: python, call: 'os.path:join'}\n")


def test_a_changed_function_has_another_identity(shop: Path) -> None:
    chosen = PythonSettings(type="python", call="shop:find")
    before = fingerprint(chosen)
    assert fingerprint(PythonSettings(type="python", call="shop:find")) == before
    (shop / "shop.py").write_text(SHOP + "# mended\n")
    assert fingerprint(chosen) != before


class Document:
    def __init__(self, name: str):
        self.id = None
        self.metadata = {"id": name}


@pytest.mark.parametrize(
    ("answer", "path", "expected_value"),
    [
        ([("a", 2.0), ("b", 1)], None, (["a", "b"], [2.0, 1.0], False)),
        (["a", "b"], None, (["a", "b"], [-1.0, -2.0], True)),
        ({"a": 2.0, "b": 1.0}, None, (["a", "b"], [2.0, 1.0], False)),
        ([{"_id": 7, "_score": 0.5}], None, (["7"], [0.5], False)),
        ([{"m": {"id": "x"}, "score": 1}], "m.id", (["x"], [1.0], False)),
        ([Document("x")], "metadata.id", (["x"], [-1.0], True)),
        ([(Document("x"), 0.25)], "metadata.id", (["x"], [0.25], False)),
        ([("a", 1.0), ("b", 3.0), ("a", 2.0)], None, (["a", "b"], [2.0, 3.0], False)),
        ([], None, ([], [], False)),
    ],
)
def test_hits_of_many_shapes_are_read(answer: Any, path: str | None, expected_value: Any) -> None:
    hits = read_hits(answer, "x", path)
    assert (hits.ids, hits.scores, hits.ranked) == expected_value


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "returns None and no list"),
        ("abc", "returns 'abc' and no list"),
        ([("a", 1.0, 2.0)], "for a hit"),
        ([Document("x")], "a hit has no id; say where it is: id="),
        ([(1.5, 2.0)], "a hit has no id"),
        ([{"id": True}], "id True is not text"),
        ([("a", float("nan"))], "a score is NaN"),
        ([("a", True)], "score True is not a number"),
        ([("a", 1.0), ("\ud800", 0.5)], "document id '\\ud800' is not valid Unicode"),
    ],
)
def test_invalid_hits_are_refused(answer: Any, said: str) -> None:
    with pytest.raises(InputError) as error:
        read_hits(answer, "x")
    assert said in str(error.value)


# ------------------------------------------------------------------------------------- run


def write_trec(folder: Path, file: str) -> None:
    texts = corpus_texts(folder)
    rows = map(json.loads, (folder / "corpus/queries.jsonl").read_text().splitlines())
    lines = [
        f"{row['_id']} Q0 {doc} {rank} {score} past\n"
        for row in rows
        for rank, (doc, score) in enumerate(overlap(texts, row["text"], 30), 1)
    ]
    (folder / file).write_text("".join(lines))


def test_a_run_file_is_swept_with_its_stated_latency_and_cost(shop: Path) -> None:
    write_trec(shop, "bm25.trec")
    result = swept(
        shop,
        "  past: {type: run, file: bm25.trec, latency_ms: 12, cost_per_1000: 0.3}\n"
        "  mine: {type: python, call: 'shop:find'}\n",
    )
    past, mine = result.configurations.iter_rows(named=True)
    assert past["nDCG(rel=3)@10"] == pytest.approx(mine["nDCG(rel=3)@10"])
    assert past["latency_p50_ms"] == past["latency_p95_ms"] == pytest.approx(12)
    assert past["cost_per_1000"] == pytest.approx(0.3)
    assert mine["cost_per_1000"] == 0
    assert result.manifest["notes"] == []


def test_ties_at_the_cut_of_a_run_file_are_counted(shop: Path) -> None:
    (shop / "r.trec").write_text("".join(f"q Q0 d{i} {i} {3 - i // 2} t\n" for i in range(6)))
    engine = make_component("retriever", RunSettings(type="run", file=shop / "r.trec"), [], [])
    run = engine.search(["another text"], 3, ["q"]).run
    assert run.doc.to_list() == ["d0", "d1", "d2"]
    assert run.cut.tolist() == [1]
    assert engine.search(["another text"], 3, ["unknown"]).run.doc.to_list() == []


def test_a_note_reports_a_run_file_without_latency(shop: Path) -> None:
    write_trec(shop, "bm25.trec")
    result = swept(shop, "  past: {type: run, file: bm25.trec}\n")
    assert result.configurations["latency_p95_ms"].to_list() == [0]
    assert result.manifest["notes"] == ["nobody says how long bm25 took (latency_ms): 0 is taken"]


def test_the_identity_of_a_run_file_is_its_content_and_latency(shop: Path) -> None:
    (shop / "a.trec").write_text("q Q0 d 1 1 t\n")
    (shop / "b.trec").write_text("q Q0 d 1 1 t\n")
    a, b = (RunSettings(type="run", file=shop / name) for name in ("a.trec", "b.trec"))
    assert fingerprint(a) == fingerprint(b)
    assert fingerprint(a.model_copy(update={"cost_per_1000": 3.0})) == fingerprint(a)
    assert fingerprint(a.model_copy(update={"latency_ms": 3.0})) != fingerprint(a)
    (shop / "b.trec").write_text("q Q0 e 1 1 t\n")
    assert fingerprint(a) != fingerprint(b)


def test_a_missing_run_file_is_a_one_line_error(shop: Path) -> None:
    (shop / "sweep.yaml").write_text(ENGINES + "  past: {type: run, file: none.trec}\n")
    done = rankproof("sweep", str(shop / "sweep.yaml"), "--out", str(shop / "out"))
    assert done.returncode == 2
    assert b"none.trec" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_settings_of_engines_tell_whether_they_use_the_network() -> None:
    def at(url: str) -> bool:
        return uses_network(HttpRetrieverSettings(type="http", url=url))

    assert not at("http://localhost:8080/x")
    assert not at("http://[::1]:8080/x")
    assert at("https://search.example/x")
    assert not uses_network(PythonSettings(type="python", call="a:b"))
