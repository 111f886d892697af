"""Elasticsearch and OpenSearch as they are: what users do with them, against brute force."""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback import Reply
from rankproof_cli import rankproof
from real_servers import ask, before, missing, real_servers
from small_corpus import write_corpus
from toy_embedder import Toy

from rankproof.data.tables import Run
from rankproof.foundation.arrays import Array
from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import find_component, make_component
from rankproof.retrieval.fusion import rrf
from rankproof.retrieval.lucene import LuceneEngine
from rankproof.retrieval.model_calls import unit_vectors
from rankproof.retrieval.protocols import Vectors

if (reason := missing()) is not None:
    pytest.skip(reason, allow_module_level=True)
elasticsearch = pytest.importorskip("elasticsearch")
pytest.importorskip("opensearchpy")

both = pytest.mark.parametrize("kind", ["elasticsearch", "opensearch"])
WORDS = ["hen", "fox", "egg", "glass", "sand", "night", "hunt", "lay", "soft", "red", "blue"]
WORDS += ["tree", "river", "stone", "door", "lamp"]
RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, RNG.integers(2, 12))) for _ in range(150)]
TEXTS += [TEXTS[3], TEXTS[3], ""]
IDS = [f"d{row}" for row in range(len(TEXTS))]
QUESTIONS = ["fox hunt night", "red glass", "stone door lamp"]


class Unit(Toy):
    """Of length 1, as every embedder of rankproof; a blank text is zeros."""

    def _embed(self, texts: Any) -> Vectors:
        return unit_vectors(super()._embed(texts))


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with real_servers(tmp_path_factory.mktemp("servers")) as started:
        yield started


def engine(kind: str, url: str, texts: list[str] = TEXTS, **more: Any) -> LuceneEngine:
    toy = Unit()
    data = {"type": kind, "url": url, **more}
    if more.get("mode", "bm25") != "bm25":
        data.setdefault("embedder", toy)
    made = make_component(
        *("retriever", find_component("retriever", kind).settings.model_validate(data)),
        *(texts, IDS[: len(texts)]),
        vectors=lambda given: toy.embed_passages(texts),
        embedder=lambda given: toy,
    )
    assert isinstance(made, LuceneEngine)
    return made


def listed(run: Run) -> list[list[tuple[str, float]]]:
    """(document, score) of every query."""
    rows = list(zip(run.doc.to_list(), run.score.tolist(), strict=True))
    return [rows[a:b] for a, b in zip(run.start[:-1], run.start[1:], strict=True)]


def inner_products() -> Array:
    """(Q, N) of every question with every passage."""
    toy = Unit()
    products: Array = np.float64(toy.embed_queries(QUESTIONS)) @ toy.embed_passages(TEXTS).T
    return products


def bm25(question: str, k1: float, b: float) -> dict[str, float]:
    """Lucene's formula over words between blanks, times k1 + 1 as both servers have it; of the
    passages that hold one of the words."""
    words = [text.split() for text in TEXTS]
    mean = sum(map(len, words)) / sum(map(bool, words))  # a passage without words is not counted
    scores: dict[str, float] = {}
    for word in question.split():
        holding = {row: Counter(text)[word] for row, text in enumerate(words) if word in text}
        total = sum(map(bool, words))
        idf = math.log(1 + (total - len(holding) + 0.5) / (len(holding) + 0.5))
        for row, count in holding.items():
            length = k1 * (1 - b + b * len(words[row]) / mean)
            scores[IDS[row]] = scores.get(IDS[row], 0.0) + (k1 + 1) * idf * count / (count + length)
    return scores


# ---------------------------------------------------------------------------------------- words


@pytest.mark.slow
@both
@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.9, 0.4)])
def test_words_are_scored_by_the_formula(
    kind: str, k1: float, b: float, urls: dict[str, str]
) -> None:
    found = engine(kind, urls[kind], analyzer="standard", k1=k1, b=b)
    run = found.search(QUESTIONS, 200).run
    assert found.bytes > 0
    for question, rows in zip(QUESTIONS, listed(run), strict=True):
        expected = bm25(question, k1, b)
        assert len(rows) == len(expected) < len(TEXTS), "only passages with one of the words"
        assert dict(rows) == pytest.approx(expected, rel=1e-5)
        scores = [score for _, score in rows]
        assert scores == sorted(scores, reverse=True)


@both
def test_ties_left_out_at_the_cut_are_counted(kind: str, urls: dict[str, str]) -> None:
    found = engine(kind, urls[kind])
    whole = found.search([TEXTS[3]], 200).run
    assert set(whole.doc.to_list()[:3]) == {"d3", "d150", "d151"}, "the same passage three times"
    run = found.search([TEXTS[3]], 1).run
    assert run.cut is not None
    assert (run.doc.to_list(), run.cut.tolist()) == (["d3"], [2])
    assert len(found.search(["zebra"], 5).run) == 0


@both
def test_an_index_that_is_whole_is_used_again_and_only_ours_is_dropped(
    kind: str, urls: dict[str, str]
) -> None:
    first = engine(kind, urls[kind], TEXTS[:20])
    again = engine(kind, urls[kind], TEXTS[:20])
    assert (again.index, again.build_seconds) == (first.index, first.build_seconds)
    again.drop()
    with pytest.raises(InputError, match=r"answers 404: .*no such index"):
        first.search(["fox"], 3)


@both
def test_indexing_that_was_stopped_goes_on_where_it_stopped(
    kind: str, urls: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankproof.retrieval.lucene._ROWS_PER_REQUEST", 10)
    bulks: list[bytes] = []

    def stops(request: Any) -> Any:
        if request.path.endswith("/_bulk"):
            bulks.append(request.body)
            if len(bulks) == 3:
                return Reply(b"{}", 500, {"X-Elastic-Product": "Elasticsearch"})
        return forwarded(request)

    with before(urls[kind], stops) as there:
        with pytest.raises(InputError, match="the server answers 500"):
            engine(kind, there.url, TEXTS[:45], attempts=1)
        found = engine(kind, there.url, TEXTS[:45], attempts=1)
    ids = re.findall(rb'"_id": ?"(\d+)"', b"".join(bulks[3:]))
    assert ids == [b"%d" % row for row in range(20, 45)]
    assert ask(urls[kind], "GET", f"/{found.index}/_count")["count"] == 45
    found.drop()


# -------------------------------------------------------------------------------------- vectors


def test_opensearch_compares_every_vector_on_the_first_build_and_on_the_next(
    urls: dict[str, str],
) -> None:
    exact = 1 + inner_products()
    for _ in range(2):
        found = engine("opensearch", urls["opensearch"], mode="exact")
        run = found.search(QUESTIONS, 300).run
        assert found.bytes > 0
        for expected, rows in zip(exact, listed(run), strict=True):
            assert len(rows) == len(TEXTS), "a blank passage, too"
            scores = [score for _, score in rows]
            assert dict(rows) == pytest.approx(dict(zip(IDS, expected, strict=True)), abs=1e-6)
            assert scores == sorted(scores, reverse=True)
    short = found.search([TEXTS[3]], 2).run
    assert short.cut is not None
    assert (short.doc.to_list(), short.cut.tolist()) == (["d3", "d150"], [1])
    found.drop()


def test_a_server_without_scripts_says_why_it_cannot_compare_every_vector(
    urls: dict[str, str],
) -> None:
    found = engine("elasticsearch", urls["elasticsearch"], mode="exact")
    with pytest.raises(InputError, match=r"answers 400: .*script_lang not supported \[painless\]"):
        found.search(QUESTIONS, 3)


@pytest.mark.parametrize("form", ["float32", "int8", "bit"])
def test_a_graph_of_elasticsearch_finds_the_nearest_passages(
    form: str, urls: dict[str, str]
) -> None:
    """As many candidates as passages: what the graph reaches; rescored where it rounds."""
    more: dict[str, Any] = {} if form == "float32" else {"oversample": 3.0}
    url = urls["elasticsearch"]
    found = engine("elasticsearch", url, mode="knn", format=form, candidates=500, **more)
    run = found.search(QUESTIONS, 10).run
    assert run.cut is None
    for expected, rows in zip(1 + inner_products(), listed(run), strict=True):
        assert len(rows) == 10
        best = np.sort(expected)[::-1][:10]
        assert [score for _, score in rows] == pytest.approx(best.tolist(), abs=1e-6)
        assert dict(rows) == pytest.approx({doc: expected[IDS.index(doc)] for doc, _ in rows})


def test_without_oversample_a_graph_of_int8_has_rounded_scores(urls: dict[str, str]) -> None:
    exact = 1 + inner_products()
    for kind in urls:
        found = engine(kind, urls[kind], mode="knn", format="int8", candidates=500)
        rows = listed(found.search(QUESTIONS, 10).run)
        assert [len(each) for each in rows] == [10, 10, 10]
        away = [
            abs(score - expected[IDS.index(doc)])
            for expected, each in zip(exact, rows, strict=True)
            for doc, score in each
        ]
        assert 1e-5 < max(away) < 0.1
        nearest = [IDS[row] for row in exact.argmax(axis=1)]
        assert all(
            best in [doc for doc, _ in each] for best, each in zip(nearest, rows, strict=True)
        )


def test_opensearch_ignores_rescoring_of_int8(urls: dict[str, str]) -> None:
    """Which is why the setting is refused."""
    found = engine("opensearch", urls["opensearch"], mode="knn", format="int8", candidates=500)
    vector = Unit().embed_queries(QUESTIONS[:1])[0].tolist()
    plain: Any = found._dialect.graph_query(vector, 10)
    rescored: Any = found._dialect.graph_query(vector, 10)
    rescored["query"]["knn"]["vector"]["rescore"] = {"oversample_factor": 10.0}
    assert plain != rescored
    names, scores = found._search_one(plain, 10)
    again, same = found._search_one(rescored, 10)
    assert (names, scores.tolist()) == (again, same.tolist())
    with pytest.raises(ValueError, match="OpenSearch does not rescore int8"):
        engine("opensearch", urls["opensearch"], mode="knn", format="int8", oversample=3.0)


@both
def test_a_graph_lists_fewer_than_k_where_there_are_fewer(kind: str, urls: dict[str, str]) -> None:
    found = engine(kind, urls[kind], TEXTS[:7], mode="knn", format="int8")
    assert [len(rows) for rows in listed(found.search(QUESTIONS, 50).run)] == [7, 7, 7]
    found.drop()


@both
def test_a_hybrid_is_the_fusion_of_both_lists(kind: str, urls: dict[str, str]) -> None:
    options: dict[str, Any] = {"format": "int8", "candidates": 500}
    ids = ["a", "b", "c"]
    found = engine(kind, urls[kind], mode="hybrid", depth=20, **options)
    fused = found.search(QUESTIONS, 5, ids).run
    lists = []
    for mode in ("bm25", "knn"):
        found.settings = found.settings.model_copy(update={"mode": mode})
        lists.append(found.search(QUESTIONS, 20, ids).run)
    expected = rrf(lists, top=5)
    assert fused.doc.to_list() == expected.doc.to_list()
    assert np.array_equal(fused.score, expected.score)


# ---------------------------------------------------------------------------- the user's own index


@pytest.fixture(scope="module")
def own(urls: dict[str, str]) -> dict[str, str]:
    """An index of the user's own in each server, and one beside it that has other types."""
    fields = {"body": {"type": "text"}, "uid": {"type": "text"}, "parent": {"type": "keyword"}}
    for url in urls.values():
        ask(url, "PUT", "/own", {"mappings": {"properties": fields}})
        lines: list[Any] = []
        for row, text in enumerate(TEXTS[:60]):
            lines += [{"index": {"_id": f"x{row}"}}]
            lines += [{"body": text, "uid": IDS[row], "parent": f"p{row // 3}"}]
        ask(url, "POST", "/own/_bulk?refresh=true", lines)
        ask(url, "PUT", "/own-years", {"mappings": {"properties": {"body": {"type": "integer"}}}})
        ask(url, "POST", "/own-years/_bulk?refresh=true", [{"index": {}}, {"body": 1999}])
    return urls


@both
def test_ids_of_the_users_own_index_come_from_the_field_that_is_named(
    kind: str, own: dict[str, str]
) -> None:
    by_row = engine(kind, own[kind], index="own", text_field="body")
    by_name = engine(kind, own[kind], index="own", text_field="body", id_field="uid")
    rows, names = (each.search(QUESTIONS, 9).run.doc.to_list() for each in (by_row, by_name))
    assert names == [f"d{row.removeprefix('x')}" for row in rows]
    assert (by_row.bytes, by_row.build_seconds) == (0, 0.0)
    by_row.drop()
    assert ask(own[kind], "GET", "/own/_count")["count"] == 60


@both
def test_of_several_hits_with_one_id_the_best_counts(kind: str, own: dict[str, str]) -> None:
    hits = listed(engine(kind, own[kind], index="own", text_field="body").search(QUESTIONS, 60).run)
    by_parent = engine(kind, own[kind], index="own", text_field="body", id_field="parent")
    for chunks, parents in zip(hits, listed(by_parent.search(QUESTIONS, 60).run), strict=True):
        best: dict[str, float] = {}
        for doc, score in chunks:
            parent = f"p{int(doc.removeprefix('x')) // 3}"
            best[parent] = max(score, best.get(parent, 0.0))
        assert dict(parents) == best
        assert len(parents) < len(chunks)


@both
@pytest.mark.parametrize(
    ("setting", "more"),
    [
        ("text_field", {}),
        ("text_field", {"mode": "hybrid", "vector_field": "body"}),
        ("vector_field", {"mode": "knn"}),
        ("vector_field", {"mode": "exact"}),
        ("id_field", {"text_field": "body"}),
    ],
)
def test_a_mistyped_field_is_named_and_not_searched_in_silence(
    kind: str, setting: str, more: dict[str, Any], own: dict[str, str]
) -> None:
    said = f"{setting} 'bodi' is not in the index own; name one of its fields: 'body, parent, uid'"
    with pytest.raises(InputError, match=said):
        engine(kind, own[kind], index="own", **{**more, setting: "bodi"})


@both
def test_an_index_that_does_not_exist_is_named(kind: str, own: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"answers 404: .*no such index \[onw\]'; check the url"):
        engine(kind, own[kind], index="onw", text_field="body")


@both
def test_shards_that_fail_say_why(kind: str, own: dict[str, str]) -> None:
    found = engine(kind, own[kind], index="own,own-years", text_field="body")
    with pytest.raises(InputError, match=r"only a part of the index answered: .*input string"):
        found.search(["fox"], 3)
    found = engine(kind, own[kind], index="own", text_field="body")
    with pytest.raises(InputError, match=r"answers 400: .*maxClauseCount is set to"):
        found.search([" ".join(f"w{n}" for n in range(9000))], 3)


# ------------------------------------------------------------------------------------ signing in


def forwarded(request: Any, **changes: str) -> dict[str, str]:
    """The headers of a request that a proxy sends on."""
    kept = {
        name: text
        for name, text in request.headers.items()
        if name.lower() in ("accept", "content-type")
    }
    return {**kept, **changes}


@both
def test_a_wrong_password_and_a_right_one(
    kind: str, own: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = f"Basic {base64.b64encode(b'me:planted-password').decode()}"

    def guard(request: Any) -> Any:
        if request.headers.get("authorization", request.headers.get("Authorization")) == wanted:
            return forwarded(request)
        body = b'{"error": {"type": "security_exception", "reason": "unable to sign in"}}'
        return Reply(body, 401, {"X-Elastic-Product": "Elasticsearch"})

    with before(own[kind], guard) as there:
        own_index = {"index": "own", "text_field": "body"}
        signed: dict[str, Any] = {"user": "me", "password_env": "ENGINE_PASSWORD", **own_index}
        monkeypatch.setenv("ENGINE_PASSWORD", "planted-password")
        assert len(engine(kind, there.url, **signed).search(["fox"], 3).run) == 3
        monkeypatch.setenv("ENGINE_PASSWORD", "another-password")
        with pytest.raises(InputError) as error:
            engine(kind, there.url, **signed)
        assert "answers 401" in str(error.value)
        assert "check the user, the password or the key" in str(error.value)
        assert "another-password" not in str(error.value)


@both
def test_a_port_where_nobody_listens_is_one_line(kind: str, urls: dict[str, str]) -> None:
    with before(urls[kind], forwarded) as there:
        pass
    with pytest.raises(InputError, match="no server answers; start it, or check the url"):
        engine(kind, there.url, attempts=1)


def test_elasticsearch_says_that_opensearch_is_another_server(urls: dict[str, str]) -> None:
    with pytest.raises(InputError, match=r"the server is not Elasticsearch|refuses the client"):
        engine("elasticsearch", urls["opensearch"])


def test_the_error_for_a_newer_client_names_the_version_to_install(
    urls: dict[str, str],
) -> None:
    """The proxy asks as the client of the next major version does."""
    own = elasticsearch.__version__[0]

    def newer(request: Any) -> dict[str, str]:
        headers = forwarded(request)
        return {name: text.replace(f"h={own}", f"h={own + 1}") for name, text in headers.items()}

    said = rf"pip install 'elasticsearch=={own}\.\*'$"
    with before(urls["elasticsearch"], newer) as there, pytest.raises(InputError, match=said):
        engine("elasticsearch", there.url)


# ----------------------------------------------------------------------------------- from commands


@pytest.mark.slow
@both
def test_an_engine_is_swept_and_searched_from_the_command_line(
    kind: str, urls: dict[str, str], tmp_path: Path
) -> None:
    write_corpus(tmp_path / "corpus")
    (tmp_path / "sweep.yaml").write_text(
        "corpus: corpus\nmodes: []\npools: [10]\nprompts: [5]\nat: [5]\nbest_by: RAnWG@5\n"
        "latency: {queries: 2, repeats: 1, warmup: 0}\nretrievers:\n"
        f"  words: {{type: {kind}, url: '{urls[kind]}'}}\n"
        f"  typo: {{type: {kind}, url: '{urls[kind]}', index: nowhere}}\n"
    )
    sweep = str(tmp_path / "sweep.yaml")
    done = rankproof("search", sweep, "beehives on rooftops", "--retriever", "words", "-k", "3")
    assert done.returncode == 0, done.stderr
    assert b"bees-" in done.stdout
    done = rankproof("sweep", sweep, "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert b"no such index [nowhere]" in done.stderr
    assert b"Traceback" not in done.stderr
