"""Elasticsearch and OpenSearch through their official clients, against doubles that are strict."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback import Loopback, Reply, Request, loopback
from search_servers import CLIENT, KEY, PASSWORD, USER, Double, Kind, search_server
from small_corpus import write_corpus
from toy_embedder import Toy

from rankproof.foundation.config import check_config, read_config
from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import find_component, make_component, uses_network
from rankproof.retrieval.fusion import rrf
from rankproof.retrieval.identity import fingerprint
from rankproof.retrieval.lucene import LuceneEngine, LuceneSettings
from rankproof.retrieval.model_calls import unit_vectors
from rankproof.retrieval.protocols import Vectors
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import sweep

elasticsearch = pytest.importorskip("elasticsearch")
pytest.importorskip("opensearchpy")

KINDS: tuple[Kind, ...] = ("elasticsearch", "opensearch")
both = pytest.mark.parametrize("kind", KINDS)
TEXTS = [
    "a hen lays an egg",
    "the fox hunts the hen",
    "glass is made of sand",
    "the fox hunts the hen",
    "",
    "a fox in the night",
]
IDS = ["d0", "d1", "d2", "d3", "d4", "d5"]


@pytest.fixture(autouse=True)
def signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", KEY)
    monkeypatch.setenv("ENGINE_PASSWORD", PASSWORD)


class Unit(Toy):
    """Of length 1, as every embedder here; a blank text is zeros."""

    def _embed(self, texts: Any) -> Vectors:
        return unit_vectors(super()._embed(texts))


def settings(kind: Kind, there: Loopback, **more: Any) -> LuceneSettings:
    data = {"type": kind, "url": there.url, **more}
    if "key_env" not in more:
        data |= {"user": USER, "password_env": "ENGINE_PASSWORD"}
    if more.get("mode", "bm25") != "bm25":
        data.setdefault("embedder", Unit())
    chosen = find_component("retriever", kind).settings.model_validate(data)
    assert isinstance(chosen, LuceneSettings)
    return chosen


def engine(kind: Kind, there: Loopback, texts: list[str] = TEXTS, **more: Any) -> LuceneEngine:
    toy = Unit()
    made = make_component(
        *("retriever", settings(kind, there, **more), texts, IDS[: len(texts)]),
        vectors=lambda given: toy.embed_passages(texts),
        embedder=lambda given: toy,
    )
    assert isinstance(made, LuceneEngine)
    return made


@both
def test_words_are_scored_and_a_tie_at_the_cut_is_counted(kind: Kind) -> None:
    with search_server(kind) as (there, double):
        result = engine(kind, there)
        run = result.search(["fox hunts", "zebras"], 1, ["q1", "q2"]).run
        assert run.to_frame().select("query", "doc").rows() == [("q1", "d1")]
        assert run.cut is not None
        assert run.cut.tolist() == [1, 0]  # d3 says the same
        assert run.dtype == "float32"
        assert result.search(["fox hunts"], 5).run.doc.to_list() == ["d1", "d3", "d5"]
        (body,) = (index.body for index in double.indexes.values())
    assert body["mappings"]["properties"] == {"text": {"type": "text", "analyzer": "english"}}
    assert body["settings"]["index"]["similarity"]["default"] == {
        "type": "BM25",
        "k1": 1.2,
        "b": 0.75,
    }
    assert result.bytes > 0
    assert result.name == f"{kind} bm25"


@both
@pytest.mark.parametrize("form", ["float32", "int8", "bit"])
def test_a_graph_of_each_format_is_requested_as_documented(kind: Kind, form: str) -> None:
    with search_server(kind) as (there, double):
        rescored = kind == "elasticsearch" or form != "int8"
        more: dict[str, Any] = {"oversample": 3.0} if rescored else {}
        result = engine(kind, there, mode="knn", format=form, m=8, candidates=50, **more)
        run = result.search(["fox hunts the hen"], 3).run
        assert run.doc.to_list() == ["d1", "d3", "d5"]
        assert run.cut is None
        (index,) = double.indexes.values()
        asked = there.requests[-1].json
    field = index.body["mappings"]["properties"]["vector"]
    vector = Unit().embed_queries(["fox hunts the hen"])[0].tolist()
    if kind == "elasticsearch":
        options = {"float32": "hnsw", "int8": "int8_hnsw", "bit": "bbq_hnsw"}[form]
        assert field == {
            "type": "dense_vector",
            "dims": 256,
            "index": True,
            "similarity": "max_inner_product",
            "index_options": {"type": options, "m": 8, "ef_construction": 100},
        }
        assert asked["knn"] == {
            "field": "vector",
            "query_vector": vector,
            "k": 3,
            "num_candidates": 50,
            "rescore_vector": {"oversample": 3.0},
        }
    else:
        assert field["method"]["engine"] == ("lucene" if form == "int8" else "faiss")
        assert index.body["settings"]["index"]["knn"] is True
        assert asked["query"]["knn"]["vector"] == {
            "vector": vector,
            "k": 3,
            "method_parameters": {"ef_search": 50},
            **({"rescore": {"oversample_factor": 3.0}} if rescored else {}),
        }
    assert index.body["mappings"]["_source"] == {"excludes": ["vector"]}


@both
def test_exact_scores_are_one_plus_the_cosine_of_every_passage(kind: Kind) -> None:
    toy = Unit()
    with search_server(kind) as (there, _):
        run = engine(kind, there, mode="exact").search(["fox hunts the hen"], 6).run
    expected = 1 + toy.embed_passages(TEXTS) @ toy.embed_queries(["fox hunts the hen"])[0]
    frame = run.to_frame()
    assert frame.height == 6  # zeros too: a blank passage is compared like any other
    for doc, score in frame.select("doc", "score").rows():
        assert score == pytest.approx(expected[IDS.index(doc)], abs=1e-6)
    assert frame["doc"].to_list()[:2] == ["d1", "d3"]


@both
def test_a_hybrid_is_fused_here_so_that_its_ties_are_exact(kind: Kind) -> None:
    with search_server(kind) as (there, _):
        asked = ["fox hunts the hen"]
        fused = engine(kind, there, mode="hybrid", depth=4).search(asked, 3, ["q"]).run
        words = engine(kind, there).search(asked, 4, ["q"]).run
        graph = engine(kind, there, mode="knn").search(asked, 4, ["q"]).run
    expected = rrf([words, graph], top=3)
    assert fused.doc.to_list() == expected.doc.to_list()
    assert np.array_equal(fused.score, expected.score)
    assert fused.score[0] == fused.score[1]  # d1 and d3 say the same


@both
def test_a_complete_index_is_reused(kind: Kind) -> None:
    with search_server(kind) as (there, double):
        first = engine(kind, there)
        before = len(there.requests)
        again = engine(kind, there)
        since = [(r.method, r.path) for r in there.requests[before:]]
        ours = f"/{first.index}"
        assert since == [("GET", f"{ours}/_mapping"), ("GET", f"{ours}/_stats/store")]
        assert again.index == first.index
        assert again.build_seconds == first.build_seconds
        assert engine(kind, there, k1=0.9).index != first.index
        assert engine(kind, there, analyzer="french").index != first.index
        assert engine(kind, there, candidates=7).index == first.index
        assert len(double.indexes) == 3


@both
def test_interrupted_indexing_is_resumed(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankproof.retrieval.lucene._ROWS_PER_REQUEST", 2)
    with search_server(kind) as (there, double):
        double.stop_after = 2
        with pytest.raises(InputError, match=r"the server answers 500: .*the disk is full"):
            engine(kind, there, attempts=1)
        (name,) = double.indexes
        assert sorted(double.indexes[name].written) == ["0", "1", "2", "3"]
        double.stop_after, before = None, len(there.requests)
        result = engine(kind, there)
        sent = [r for r in there.requests[before:] if r.path.endswith("_bulk")]
        assert len(sent) == 1
        assert b'"_id":"4"' in sent[0].body
        assert result.index == name
        assert result.search(["fox night"], 1).run.doc.to_list() == ["d5"]


@pytest.mark.slow
@both
def test_rows_rejected_by_a_busy_server_are_sent_again(kind: Kind) -> None:
    with search_server(kind) as (there, double):
        double.busy = 2
        chosen = settings(kind, there)
        waited: list[float] = []
        dialect = engine(kind, there, texts=["x"])._dialect
        double.indexes.clear()
        double.busy = 2
        result = LuceneEngine(chosen, dialect, TEXTS, IDS, None, None, sleep=waited.append)
        assert waited == [1.0]
        assert len(double.indexes[result.index].visible) == 6
        double.busy = 1000
        with pytest.raises(InputError, match=r"too busy to index \(4 attempts\)"):
            LuceneEngine(chosen, dialect, ["y"], ["a"], None, None, sleep=waited.append)


@both
def test_an_index_of_the_users_own_is_only_read(kind: Kind) -> None:
    with search_server(kind) as (there, double):
        made = engine(kind, there)
        theirs = double.indexes.pop(made.index)
        for row, source in theirs.visible.items():
            source["name"] = IDS[int(row)]
        double.indexes["passages"] = theirs
        before = len(there.requests)
        by_row = engine(kind, there, index="passages")
        assert by_row.search(["night"], 3, ["q"]).run.doc.to_list() == ["5"]
        by_name = engine(kind, there, index="passages", id_field="name")
        assert by_name.search(["night"], 3, ["q"]).run.doc.to_list() == ["d5"]
        by_name.drop()
        assert {(r.method, r.path) for r in there.requests[before:]} == {
            ("GET", "/passages/_field_caps?fields=*"),
            ("POST", "/passages/_search"),
        }
        del theirs.visible["5"]["name"]
        with pytest.raises(InputError, match="a hit has no field 'name'; check id_field and its"):
            by_name.search(["night"], 3)
        with pytest.raises(InputError, match=r"answers 404: .*no such index \[none\]"):
            engine(kind, there, index="none").search(["night"], 3)


@pytest.mark.slow
@both
@pytest.mark.parametrize(
    ("setting", "more"),
    [
        ("text_field", {}),
        ("vector_field", {"mode": "knn"}),
        ("vector_field", {"mode": "exact"}),
        ("vector_field", {"mode": "hybrid"}),
        ("id_field", {}),
    ],
)
def test_an_error_names_a_field_that_the_users_index_lacks(
    kind: Kind, setting: str, more: dict[str, Any]
) -> None:
    """A search of it would find nothing, and say nothing."""
    with search_server(kind) as (there, double):
        made = engine(kind, there, mode="hybrid", format="int8")
        double.indexes["passages"] = double.indexes.pop(made.index)
        assert engine(kind, there, index="passages", **more).search(["night"], 3).run.doc.len()
        said = f"{setting} 'titel' is not in the index passages; name one of its fields: "
        with pytest.raises(InputError, match=said + "'text, vector'"):
            engine(kind, there, index="passages", **{**more, setting: "titel"})


@both
def test_of_several_hits_with_one_id_the_best_counts(kind: Kind) -> None:
    with search_server(kind) as (there, double):
        made = engine(kind, there)
        double.indexes["chunks"] = double.indexes.pop(made.index)
        for row, source in double.indexes["chunks"].visible.items():
            source["parent"] = f"p{int(row) // 2}"  # d0 and d1, d2 and d3, d4 and d5
        chunks = engine(kind, there, index="chunks", id_field="parent")
        result = chunks.search(["fox hen"], 6).run.to_frame()
        rows = engine(kind, there, index="chunks").search(["fox hen"], 6).run.to_frame()
    best: dict[str, float] = {}
    for row, score in rows.select("doc", "score").rows():
        best[f"p{int(row) // 2}"] = max(score, best.get(f"p{int(row) // 2}", 0.0))
    assert len(rows) == 4
    assert dict(result.select("doc", "score").rows()) == best
    assert len(best) == 3


@both
def test_only_an_index_of_rankproof_is_dropped(kind: Kind) -> None:
    with search_server(kind) as (there, double):
        engine(kind, there).drop()
        assert double.indexes == {}


def test_an_api_key_is_sent_in_the_form_of_elasticsearch() -> None:
    with search_server("elasticsearch") as (there, _):
        engine("elasticsearch", there, key_env="ENGINE_KEY")
        headers = {name.lower(): text for name, text in there.requests[0].headers.items()}
        assert headers["authorization"] == f"ApiKey {KEY}"


@both
def test_a_wrong_password_is_one_line_without_it(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINE_PASSWORD", "wrong-password")
    with search_server(kind) as (there, _), pytest.raises(InputError) as error:
        engine(kind, there)
    assert "the server answers 401" in str(error.value)
    assert "check the user, the password or the key" in str(error.value)
    assert "wrong-password" not in str(error.value)


def test_a_server_that_is_not_elasticsearch_is_refused() -> None:
    with search_server("elasticsearch") as (there, double):
        double.product = False
        with pytest.raises(InputError, match="the server is not Elasticsearch"):
            engine("elasticsearch", there)


def test_the_error_for_a_newer_client_names_the_version_to_install() -> None:
    with search_server("elasticsearch") as (there, double):
        double.major = CLIENT - 1
        with pytest.raises(InputError) as error:
            engine("elasticsearch", there)
    own = re.escape(".".join(map(str, elasticsearch.__version__)))
    assert re.fullmatch(
        rf"Elasticsearch 127\.0\.0\.1: the server is of version {CLIENT - 1} and refuses the "
        rf"client elasticsearch {own}; install the client of its version: "
        rf"pip install 'elasticsearch=={CLIENT - 1}\.\*'",
        str(error.value),
    )


@both
def test_the_error_states_why_shards_failed(kind: Kind) -> None:
    with search_server(kind) as (there, double):
        result = engine(kind, there)
        double.fails = 2
        with pytest.raises(InputError, match=r"answers 400: .*: no luck with shard 0'; check the"):
            result.search(["fox"], 3)
        double.fails = 1
        with pytest.raises(InputError, match=r"a part of the index answered: .*: no luck with sha"):
            result.search(["fox"], 3)


def test_shards_that_open_again_after_a_change_of_mapping_are_awaited() -> None:
    with search_server("opensearch") as (there, double):
        double.reopens = 3
        result = engine("opensearch", there, mode="exact")
        assert result.bytes > 0
        assert len(result.search(["fox hunts the hen"], 6).run) == 6
        double.closed = 1000
        with pytest.raises(InputError, match=r"0 of 1 shards of the index rankproof-\w+ are open"):
            engine("opensearch", there, mode="exact", timeout_s=0.2)


@both
def test_an_absent_server_is_a_one_line_error(kind: Kind) -> None:
    with search_server(kind) as (there, _):
        pass
    with pytest.raises(InputError, match="no server answers; start it, or check the url"):
        engine(kind, there, attempts=1)


@both
def test_the_error_names_a_refused_passage(kind: Kind) -> None:
    with search_server(kind) as (there, _):
        chosen = settings(kind, there, mode="knn")
        with pytest.raises(InputError, match=r"passage 0 is refused: .*dimensions"):
            make_component(
                *("retriever", chosen, ["x"], ["a"]),
                vectors=lambda _: _Ragged(np.zeros((1, 3), np.float32)),
                embedder=lambda given: given,
            )


class _Ragged(np.ndarray):
    """Rows that are shorter than they say."""

    def __new__(cls, given: Any) -> Any:
        return np.asarray(given).view(cls)

    def __getitem__(self, at: Any) -> Any:
        return np.asarray(self)[at][:2]


def test_rescoring_that_opensearch_would_ignore_is_refused() -> None:
    with pytest.raises(InputError, match="OpenSearch does not rescore int8, and ignores oversam"):
        check_config(
            {"type": "opensearch", "url": "http://localhost:9200", "mode": "knn",
             "embedder": {"type": "wordllama"}, "format": "int8", "oversample": 3},
            find_component("retriever", "opensearch").settings,
            place="x",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"mode": "knn"}, "mode knn needs an embedder"),
        ({"embedder": {"type": "wordllama"}}, "mode bm25 takes no embedder"),
        ({"user": "me"}, "user and password_env belong together"),
        ({"mode": "fuzzy"}, "mode"),
        ({"url": "es.example:9200"}, "url: no address"),
        ({"url": "https://[es"}, "url: no address"),
        ({"url": "https://es.example:port"}, "url: no address"),
        ({"vector_field": "a'b"}, "vector_field"),
        (
            {"mode": "exact", "format": "bit", "embedder": {"type": "wordllama"}},
            "mode exact compares float32",
        ),
    ],
)
@both
def test_settings_that_contradict_each_other_are_refused(
    kind: Kind, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as error:
        check_config(
            {"type": kind, "url": "http://localhost:9200", **more},
            find_component("retriever", kind).settings,
            place="x",
        )
    assert said in str(error.value)


@both
def test_the_identity_of_an_index_of_rankproof_does_not_depend_on_its_address(kind: Kind) -> None:
    def of(url: str, **more: Any) -> Any:
        chosen = find_component("retriever", kind).settings
        return chosen.model_validate({"type": kind, "url": url, **more})

    here, there = of("http://localhost:9200"), of("https://user:word@es.example")
    assert fingerprint(here) == fingerprint(there)
    assert uses_network(there)
    assert not uses_network(here)
    assert fingerprint(of("http://localhost:9200", k1=0.9)) != fingerprint(here)
    own = [of(f"https://{host}.example", index="passages") for host in ("a", "b")]
    assert fingerprint(own[0]) != fingerprint(own[1])


@pytest.mark.slow
@both
def test_an_engine_is_swept_like_any_other(kind: Kind, tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus")
    with search_server(kind) as (there, double):
        said = f"{{type: {kind}, url: '{there.url}', user: {USER}, password_env: ENGINE_PASSWORD"
        (tmp_path / "sweep.yaml").write_text(
            "corpus: corpus\nmodes: []\npools: [10]\nprompts: [5]\nat: [5]\nbest_by: RAnWG@5\n"
            "latency: {queries: 2, repeats: 1, warmup: 0}\nretrievers:\n"
            f"  words: {said}}}\n"
            f"  both: {said}, mode: hybrid, embedder: {{type: 'test_search_servers:Unit'}}}}\n"
        )
        result = sweep(read_config(tmp_path / "sweep.yaml", SweepSettings), tmp_path / "out")
        assert len(double.indexes) == 2
    assert result.configurations["RAnWG@5"].min() > 0.5  # type: ignore[operator]
    assert (result.configurations["index_bytes"] > 0).all()
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes()


@both
def test_the_embedder_of_an_engine_embeds_each_text_once(kind: Kind, tmp_path: Path) -> None:
    """An engine of this machine was timed again and again with it, and cost nothing."""

    def embeds(request: Request) -> Reply:
        texts = request.json["input"]
        data = [{"embedding": [1.0 + text.count(c) for c in "aeiou"]} for text in texts]
        return Reply.of({"data": data, "usage": {"total_tokens": 10 * len(texts)}})

    write_corpus(tmp_path / "corpus")
    prices = "date: 2026-11\nsource: us\nmodels: {m: 7}\nmachine: {per_hour: 0}\n"
    (tmp_path / "prices.yaml").write_text(prices)
    with search_server(kind) as (there, _), loopback(embeds) as paid:
        said = f"{{type: {kind}, url: '{there.url}', user: {USER}, password_env: ENGINE_PASSWORD"
        (tmp_path / "sweep.yaml").write_text(
            "corpus: corpus\nmodes: []\npools: [10]\nprompts: [5]\nat: [5]\nprices: prices.yaml\n"
            "latency: {queries: 3, repeats: 2, warmup: 1}\nretrievers:\n"
            f"  near: {said}, mode: exact, "
            f"embedder: {{type: endpoint, url: '{paid.url}', model: m}}}}\n"
        )
        result = sweep(read_config(tmp_path / "sweep.yaml", SweepSettings), tmp_path / "out")
        sent = [text for request in paid.requests for text in request.json["input"]]
    assert len(sent) == len(set(sent)) == 36
    [row] = result.configurations.to_dicts()
    assert row["network"]
    assert row["embed_cost_per_1000"] == pytest.approx(1000 * 10 * 7 / 1e6)
    assert row["passages_cost_per_million"] == pytest.approx(10 * 7)
    assert row["unpriced"] is None


def test_the_test_double_refuses_unknown_requests() -> None:
    with search_server("opensearch") as (there, double):
        result = engine("opensearch", there)
        with pytest.raises(InputError, match="x_content_parse_exception"):
            result._ask("POST", "/_search", {"size": 1, "_source": False, "from_": 3})
        with pytest.raises(InputError, match="answers 405"):
            result._ask("DELETE", "/_search")
    assert isinstance(double, Double)
