"""Sweeps that go on, grow or meet changed files: nothing is paid for twice, nothing is stale."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from loopback import Loopback, Reply, Request, loopback
from small_corpus import TOPICS, write_corpus

from rankproof.data.hits import Hits
from rankproof.evaluation import evaluate_tables
from rankproof.foundation.config import check_config
from rankproof.foundation.errors import InputError
from rankproof.retrieval.identity import identity
from rankproof.retrieval.protocols import Retrieved
from rankproof.retrieval.ranked_lists import run_from_hits
from rankproof.retrieval.rerankers.maxsim import MaxSimSettings
from rankproof.tradeoffs import outcomes
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.recommend import recommend
from rankproof.tradeoffs.sweep import Swept, sweep

pytest.importorskip("bm25s")

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def run(folder: Path, **config: object) -> Swept:
    """A small sweep of a corpus that is made beside it."""
    if not (folder / "corpus").exists():
        write_corpus(folder / "corpus")
    plain = {
        "corpus": "corpus",
        "modes": ["sparse"],
        "pools": [10],
        "prompts": [5],
        "latency": {"queries": 3, "repeats": 2, "warmup": 1},
    }
    settings = check_config(plain | config, SweepSettings, place="test", folder=folder)
    return sweep(settings, folder / "out")


def serve(request: Request) -> Reply:
    """A chat model that shouts, an embedder that counts letters, a reranker that counts words."""
    sent = request.json
    if "/chat/completions" in request.path:
        answer = {"message": {"role": "assistant", "content": sent["messages"][-1]["content"][5:]}}
        return Reply.of({"model": "m", "choices": [answer]})
    if "/embeddings" in request.path:
        data = [{"embedding": [text.lower().count(c) for c in LETTERS]} for text in sent["input"]]
        return Reply.of({"data": data})
    asked = set(sent["query"].split())
    results = [
        {"index": at, "relevance_score": len(asked & set(text.split()))}
        for at, text in enumerate(sent["documents"])
    ]
    return Reply.of({"results": results, "usage": {"total_tokens": 10}})


def paid(server: Loopback, path: str, refused: set[int] | None = None) -> Counter[str]:
    """How often each text, or pair of texts, was sent."""
    found: Counter[str] = Counter()
    for request in server.requests:
        if path not in request.path or request.number in (refused or ()):
            continue
        sent = request.json
        if path == "rerank":
            found.update(f"{sent['model']} {sent['query']} {text}" for text in sent["documents"])
        else:
            texts = sent["input"] if path == "embeddings" else [sent["messages"][-1]["content"]]
            found.update(texts)
    return found


def test_a_server_rewrites_and_embeds_each_text_once(tmp_path: Path) -> None:
    refused: set[int] = set()

    def fail_once(request: Request) -> Reply:
        if request.number == 4 and not refused:
            refused.add(4)
            return Reply.of({"error": "no"}, 401)
        return serve(request)

    with loopback(fail_once) as server:
        remote = {"url": server.url, "model": "m"}
        config = {
            "modes": ["dense"],
            "rewriter": {"type": "llm", **remote},
            "embedders": {"remote": {"type": "endpoint", **remote}},
        }
        with pytest.raises(InputError, match="401"):
            run(tmp_path, **config)
        swept = run(tmp_path, **config)
        asked, embedded = paid(server, "chat", refused), paid(server, "embeddings")
        count = len(server.requests)
        run(tmp_path, **config)
        assert len(server.requests) == count
    assert len(asked) == len(TOPICS)
    assert len(embedded) == len(TOPICS) + 5 * len(TOPICS)
    assert set(asked.values()) == set(embedded.values()) == {1}
    row = swept.configurations.row(0, named=True)
    assert row["rewrite_p50_ms"] > 0
    assert row["embed_p50_ms"] > 0
    questions = pl.read_parquet(tmp_path / "out" / "questions.parquet")
    assert questions.columns == ["rewriter", "query", "typed", "searched", "kept"]
    stayed = questions.drop_nulls("kept")
    assert (stayed["typed"] == stayed["searched"]).all()
    told = [note for note in swept.manifest["notes"] if "stayed as typed" in note]
    assert len(told) == bool(stayed.height)


def test_a_larger_grid_and_more_patience_repeat_no_call(tmp_path: Path) -> None:
    with loopback(serve) as server:
        remote = {"type": "endpoint", "url": server.url, "model": "rerank-2.5"}
        run(tmp_path, rerankers={"a": remote})
        count = len(server.requests)
        run(tmp_path, rerankers={"a": remote | {"attempts": 3, "timeout_s": 9}})
        assert len(server.requests) == count
        lite = remote | {"model": "rerank-2.5-lite"}
        run(tmp_path, rerankers={"a": remote, "b": lite}, at=[10, 20])
        times = paid(server, "rerank")
    assert {key.split()[0] for key in times} == {"rerank-2.5", "rerank-2.5-lite"}
    assert set(times.values()) == {1}


def test_an_index_that_was_not_written_whole_is_made_again(tmp_path: Path) -> None:
    before = run(tmp_path)
    (index,) = (tmp_path / "out" / "work" / "bm25").glob("*/bm25.npz")
    index.unlink()  # what a process leaves that is killed as it writes
    (tmp_path / "out" / "work" / "finished").unlink()
    after = run(tmp_path)
    assert after.per_query.equals(before.per_query)
    assert index.is_file()


def test_parts_that_are_damaged_are_made_again(tmp_path: Path) -> None:
    pytest.importorskip("wordllama")
    before = run(tmp_path, modes=["hybrid"])
    work = tmp_path / "out" / "work"
    parts = [*work.glob("vectors/*"), *work.glob("lists/*"), *work.glob("bm25/*/*")]
    assert len(parts) >= 5
    for at, part in enumerate(parts):
        part.write_bytes(part.read_bytes()[: 40 * (at % 2)])  # nothing, or the beginning
    (work / "finished").unlink()
    assert run(tmp_path, modes=["hybrid"]).per_query.equals(before.per_query)


def test_a_model_that_was_trained_on_in_its_folder_is_another_model(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    part = MaxSimSettings(type="maxsim", model=str(model))
    digests = []
    for weights in ("first", "second", "first"):
        (model / "model.safetensors").write_text(weights)
        digests.append(identity(part))
    assert digests[0] == digests[2] != digests[1]


def test_questions_that_find_nothing_score_nothing(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "corpus")
    lines = [json.dumps({"_id": f"ask-{topic}", "text": "zzyzx"}) for topic in TOPICS]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    with loopback(serve) as server:
        remote = {"type": "endpoint", "url": server.url, "model": "rerank-2.5"}
        swept = run(tmp_path, rerankers={"none": None, "a": remote})
        assert not server.requests
    assert swept.configurations["RAnWG@10"].to_list() == [0.0, 0.0]
    assert swept.configurations["rerank_tokens"].to_list() == [0.0, 0.0]


def test_an_address_is_written_without_what_may_be_secret(tmp_path: Path) -> None:
    with loopback(serve) as server:
        url = server.url.replace("://", "://me:hunter2@") + "/v1?key=hunter3"
        remote = {"type": "endpoint", "url": url, "model": "rerank-2.5"}
        swept = run(tmp_path, rerankers={"a": remote})
        assert server.requests
    assert swept.manifest["config"]["rerankers"]["a"]["url"] == f"{server.url}/v1"
    for file in (tmp_path / "out").rglob("*"):
        assert file.is_dir() or b"hunter" not in file.read_bytes()


def test_tokens_that_a_server_does_not_count_are_said_to_be_estimated(tmp_path: Path) -> None:
    def silent(request: Request) -> Reply:
        return Reply.of({"results": json.loads(serve(request).body)["results"]})

    for answer, noted in ((serve, False), (silent, True)):
        with loopback(answer) as server:
            remote = {"type": "endpoint", "url": server.url, "model": "rerank-2.5"}
            for _ in ("made", "read from the folder"):
                notes = run(tmp_path / str(noted), rerankers={"a": remote}).manifest["notes"]
                assert any("a does not say how many tokens" in note for note in notes) == noted


PRICES = """
date: 2026-11
source: us
currency: EUR
models:
  embedder: 2
  chat: {per_million_tokens: 3, per_million_output_tokens: 5}
"""
MACHINE = "machine: {per_hour: 7.2, per_gb_hour: 1}\n"


def counts(request: Request) -> Reply:
    """As `serve`, with the tokens that a server counts: 11 a text, 40 read and 6 written."""
    answer = json.loads(serve(request).body)
    if "/embeddings" in request.path:
        answer["usage"] = {"total_tokens": 11 * len(request.json["input"])}
    elif "/chat" in request.path:
        answer["usage"] = {"prompt_tokens": 40, "completion_tokens": 6}
    return Reply.of(answer)


def test_every_stage_has_a_price_and_what_has_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text(PRICES + MACHINE)
    with loopback(counts) as server:
        config: dict[str, object] = {
            "modes": ["dense"],
            "rewriter": {"type": "llm", "url": server.url, "model": "chat"},
            "embedders": {"e": {"type": "endpoint", "url": server.url, "model": "embedder"}},
            "rerankers": {"r": {"type": "endpoint", "url": server.url, "model": "unknown"}},
        }
        swept = run(tmp_path, **config, prices="prices.yaml")
        row = swept.configurations.row(0, named=True)
        assert row["rewrite_cost_per_1000"] == pytest.approx(1000 * (40 * 3 + 6 * 5) / 1e6)
        assert row["embed_tokens"] == pytest.approx(11)
        assert row["embed_cost_per_1000"] == pytest.approx(1000 * 11 * 2 / 1e6)
        assert row["passages_cost_per_million"] == pytest.approx(11 * 2)
        assert row["machine_cost_per_1000"] > 0
        stages = ("rewrite", "embed", "retrieve", "rerank", "generator", "machine")
        total = sum(row[f"{stage}_cost_per_1000"] for stage in stages)
        assert row["cost_per_1000"] == pytest.approx(total)
        assert row["unpriced"] == "rerank (unknown)"
        assert swept.manifest["prices"]["currency"] == "EUR"
        assert any("without a price" in note for note in swept.manifest["notes"])
        with pytest.raises(InputError, match=r"rerank \(unknown\) has no price"):
            recommend(tmp_path / "out", budget=1.0)
        assert recommend(tmp_path / "out", sla_ms=1e6).feasible
        run(tmp_path, **config)  # by the file that ships
        named = pl.read_parquet(tmp_path / "out" / "configurations.parquet")["unpriced"][0]
        assert named == "rewrite (chat), embed (embedder), rerank (unknown)"


class Elsewhere:
    """An engine that is paid for."""

    name, bytes, build_seconds, over_network = "elsewhere", 0, 0.0, True

    def search(self, queries: list[str], k: int, query_ids: list[str] | None = None) -> Retrieved:
        hits = [Hits(["bees-0"], [1.0], False)] * len(queries)
        return Retrieved(run_from_hits(self.name, query_ids, hits), np.full(len(queries), 0.01))


def test_a_price_of_another_kind_is_none(tmp_path: Path) -> None:
    """What reads tokens was free where its price was by the search, and the other way round."""
    models = "models: {chat: {per_1000_searches: 1}, embedder: {per_1000_searches: 2}, far: 3}"
    (tmp_path / "prices.yaml").write_text(f"date: 2026-11\nsource: us\n{models}\n" + MACHINE)
    with loopback(counts) as server:
        swept = run(
            tmp_path,
            modes=["dense"],
            rewriter={"type": "llm", "url": server.url, "model": "chat"},
            embedders={"e": {"type": "endpoint", "url": server.url, "model": "embedder"}},
            retrievers={"far": Elsewhere()},
            prices="prices.yaml",
        )
    chat = "rewrite (chat: no per_million_tokens)"
    assert swept.configurations["unpriced"].to_list() == [
        f"{chat}, embed (embedder: no per_million_tokens)",
        f"{chat}, retrieve (far: no per_1000_searches)",
    ]
    with pytest.raises(InputError, match=r"no per_million_tokens.* has no price"):
        swept.recommend(budget=1.0)


@pytest.mark.parametrize("cost", [-1.0, math.nan, math.inf])
def test_what_an_engine_costs_is_a_number_from_0(tmp_path: Path, cost: float) -> None:
    engine = {"type": "python", "call": "test_sweep_reuse:serve", "cost_per_1000": cost}
    with pytest.raises(InputError, match=r"retrievers.mine.cost_per_1000"):
        run(tmp_path, modes=[], retrievers={"mine": engine})


def test_tokens_that_nobody_counts_are_said_to_be_estimated(tmp_path: Path) -> None:
    for counted, answer in ((False, serve), (True, counts)):
        with loopback(answer) as server:
            notes = run(
                tmp_path / str(counted),
                modes=["dense"],
                rewriter={"type": "llm", "url": server.url, "model": "chat"},
                embedders={"e": {"type": "endpoint", "url": server.url, "model": "embedder"}},
            ).manifest["notes"]
        for name in ("e", "llm"):
            said = f"{name} does not say how many tokens it read: a quarter of the bytes is taken"
            assert (said in notes) is not counted


def test_searches_are_those_of_a_configuration_alone_whatever_else_is_swept(tmp_path: Path) -> None:
    def bills(request: Request) -> Reply:
        answer = json.loads(serve(request).body)
        return Reply.of(answer | {"meta": {"billed_units": {"search_units": 1}}})

    with loopback(bills) as server:
        remote = {"url": server.url, "model": "m"}
        swept = run(
            tmp_path,
            modes=["dense", "sparse"],
            pools=[5, 8],
            embedders={"e": {"type": "endpoint", **remote}},
            rerankers={"r": {"type": "endpoint", **remote}},
        )
    assert swept.configurations["rerank_searches"].to_list() == [1.0] * 4


def test_time_of_the_machine_without_a_price_is_named(tmp_path: Path) -> None:
    (tmp_path / "prices.yaml").write_text("date: 2026-11\nsource: us\nmodels: {a: 1}\n")
    swept = run(tmp_path, prices="prices.yaml")
    assert swept.configurations["unpriced"].to_list() == ["machine time"]


def test_a_sweep_with_nothing_to_do_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(tmp_path)
    monkeypatch.setattr("rankproof.tradeoffs.sweep.Workshop", None)  # not even opened
    after = run(tmp_path)
    assert after.configurations.equals(before.configurations)
    assert after.manifest == before.manifest
    monkeypatch.undo()
    deeper = run(tmp_path, pools=[20])
    assert deeper.configurations["k"].to_list() == [20]


def test_rows_of_a_smaller_grid_are_not_evaluated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run(tmp_path)
    evaluated = []
    real = evaluate_tables

    def counted(*arguments: Any) -> Any:
        evaluated.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(outcomes, "evaluate_tables", counted)
    grown = run(tmp_path, pools=[10, 6])
    assert grown.configurations.height == 2
    assert len(evaluated) == 2  # the list of the new row, and its ceiling
    same = [name for name in before.configurations.columns if "@" in name]
    assert grown.configurations.select(same).row(0) == before.configurations.select(same).row(0)
