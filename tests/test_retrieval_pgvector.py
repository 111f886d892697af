"""PostgreSQL with pgvector, on a private server that lives as long as these tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from private_postgres import start_postgres

import rankproof as rp
from rankproof.data.tables import Run
from rankproof.precision import search
from rankproof.retrieval.components import uses_network
from rankproof.retrieval.indexes import make_index
from rankproof.retrieval.indexes.pgvector import PgvectorIndex, PgvectorSettings
from rankproof.retrieval.protocols import Vectors

psycopg = pytest.importorskip("psycopg")
SECRET = "geheim"


def clustered(count: int, seed: int) -> Vectors:
    centres = np.random.default_rng(99).normal(size=(20, 24))
    generator = np.random.default_rng(seed)
    vectors = centres[generator.integers(0, 20, count)] + generator.normal(0, 0.4, (count, 24))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


DOCUMENTS, QUERIES = clustered(1500, seed=1), clustered(40, seed=2)
IDS = [f"d{n}" for n in range(len(DOCUMENTS))]


@pytest.fixture(scope="module")
def dsn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
        folder = tmp_path_factory.mktemp("postgres")
        server = start_postgres(folder)
        try:
            rules = folder / "pg_hba.conf"
            rules.write_text(f"local all reader scram-sha-256\n{rules.read_text()}")
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"CREATE ROLE reader LOGIN PASSWORD '{SECRET}'")
                connection.execute("SELECT pg_reload_conf()")
                connection.execute("CREATE DATABASE bare")
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture(autouse=True)
def _environment(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKPROOF_POSTGRES", dsn)


def make(documents: Vectors = DOCUMENTS, **changed: Any) -> PgvectorIndex:
    settings = PgvectorSettings.model_validate({"type": "pgvector", **changed})
    ids = IDS[: len(documents)]
    index = make_index(settings, documents, ids)
    assert isinstance(index, PgvectorIndex)
    return index


def lists(run: Run) -> list[list[str]]:
    ends = zip(run.start[:-1], run.start[1:], strict=True)
    return [run.doc[int(a) : int(b)].to_list() for a, b in ends]


def recall(result: Run, exact: Run) -> float:
    pairs = zip(lists(result), lists(exact), strict=True)
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in pairs]))


def exact(k: int = 10) -> Run:
    return search(QUERIES, DOCUMENTS, k, document_ids=IDS)


def tables(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        result = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'rankproof%'"
        )
        return {name for (name,) in result}


# --------------------------------------------------------------------------------------- figures


def test_comparing_everything_finds_what_exact_search_finds() -> None:
    result = make().search(QUERIES, 10, [f"q{n}" for n in range(40)])
    assert lists(result.run) == lists(exact())
    assert result.run.score == pytest.approx(exact().score, abs=1e-6)
    assert result.run.queries[0] == "q0"
    assert result.seconds.shape == (40,)
    assert (result.seconds > 0).all()


def test_halves_are_scored_as_halves() -> None:
    result = make(format="float16").search(QUERIES, 10).run
    halves = DOCUMENTS.astype(np.float16).astype(float)
    asked = QUERIES.astype(np.float16).astype(float)
    for query, doc, score in result.to_frame().iter_rows():
        assert score == pytest.approx(float(halves[int(doc[1:])] @ asked[int(query)]), abs=1e-5)
    assert recall(result, exact()) > 0.98


def test_bits_are_scored_by_hamming_distance_and_the_cut_counts_what_ties() -> None:
    result = make(format="bit").search(QUERIES, 10).run
    assert result.cut is not None
    for query, rows in enumerate(lists(result)):
        distance = ((DOCUMENTS > 0) != (QUERIES[query] > 0)).sum(axis=1)
        best = np.lexsort((np.arange(1500), distance))[:10]
        assert rows == [IDS[row] for row in best]
        assert (
            result.cut[query]
            == (distance == distance[best[-1]]).sum() - (distance[best] == distance[best[-1]]).sum()
        )
    assert result.score.max() <= 0


def test_bits_are_rescored_with_the_stored_vectors() -> None:
    result = make(format="bit", candidates=150).search(QUERIES, 10).run
    assert result.cut is not None
    for query, rows in enumerate(lists(result)):
        distance = ((DOCUMENTS > 0) != (QUERIES[query] > 0)).sum(axis=1)
        chosen = np.lexsort((np.arange(1500), distance))[:150]
        product = DOCUMENTS[chosen].astype(float) @ QUERIES[query]
        assert rows == [IDS[row] for row in chosen[np.argsort(-product)[:10]]]
        last = distance[chosen[-1]]
        assert result.cut[query] == (distance == last).sum() - (distance[chosen] == last).sum()


def test_a_graph_finds_nearly_what_comparing_everything_finds() -> None:
    for form, least in (("float32", 0.99), ("float16", 0.98)):
        result = make(method="hnsw", format=form).search(QUERIES, 10).run
        assert recall(result, exact()) >= least
        assert result.cut is None
    rescored = make(method="hnsw", format="bit", candidates=300).search(QUERIES, 10).run
    assert recall(rescored, exact()) > 0.8


def test_a_graph_is_what_the_server_searches(dsn: str) -> None:
    index = make(method="hnsw")
    with index._connect() as connection:
        connection.execute("SET enable_seqscan = off")
        plan = connection.execute(
            f"EXPLAIN {index._query(10)}", {"code": QUERIES[0], "original": QUERIES[0]}
        ).fetchall()
    assert f"Index Scan using {index.table}_code_idx" in plan[1][0]


def test_a_graph_returns_as_many_as_asked_whatever_its_width() -> None:
    narrow = make(method="hnsw", ef_search=1)
    assert [len(rows) for rows in lists(narrow.search(QUERIES, 100).run)] == [100] * 40


def test_more_than_there_is_gives_all_there_is() -> None:
    for method in ("flat", "hnsw"):
        result = make(DOCUMENTS[:5], method=method).search(QUERIES[:2], 50).run
        assert [sorted(rows) for rows in lists(result)] == [IDS[:5]] * 2
    assert len(make().search(QUERIES[:0], 5).run) == 0


# ---------------------------------------------------------------------------------------- tables


def test_a_finished_table_is_used_again_until_it_is_dropped(dsn: str) -> None:
    first = make(method="hnsw", m=7)
    again = make(method="hnsw", m=7, ef_search=333)
    assert again.table == first.table
    assert again.build_seconds == first.build_seconds
    assert again.bytes == first.bytes > DOCUMENTS.nbytes
    other = make(method="hnsw", m=8)
    assert other.table != first.table
    assert {first.table, other.table} <= tables(dsn)
    first.drop()
    assert first.table not in tables(dsn)
    assert other.table in tables(dsn)
    first.drop()  # a second time changes nothing
    with pytest.raises(rp.InputError, match=r"the server says: relation .* does not exist"):
        first.search(QUERIES, 5)


def test_what_was_stopped_half_way_leaves_nothing(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Exception):
        pass

    rows = 0

    def stop_after_a_thousand_rows(index: PgvectorIndex, vector: Any) -> Any:
        nonlocal rows
        rows += 1
        if rows > 1000:
            raise Stop
        return vector

    before = tables(dsn)
    settings = PgvectorSettings(type="pgvector", method="hnsw", m=9)
    with monkeypatch.context() as patched:
        patched.setattr(PgvectorIndex, "_code", stop_after_a_thousand_rows)
        with pytest.raises(Stop):
            make_index(settings, DOCUMENTS, IDS)
    assert tables(dsn) == before
    make_index(settings, DOCUMENTS, IDS)
    assert len(tables(dsn)) == len(before) + 1


def test_a_connection_that_the_server_closed_is_made_again(dsn: str) -> None:
    index = make()
    before = lists(index.search(QUERIES, 5).run)
    with psycopg.connect(dsn, autocommit=True) as connection:
        (ended,) = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        ).fetchone()
    assert ended >= 1
    assert lists(index.search(QUERIES, 5).run) == before
    index.close()
    assert lists(index.search(QUERIES, 5).run) == before


def test_two_at_once_make_one_table(dsn: str) -> None:
    before = tables(dsn)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: make(method="hnsw", m=11), range(4)))
    assert len({index.table for index in made}) == 1
    assert len({index.build_seconds for index in made}) == 1
    assert len(tables(dsn) - before) == 1


# ---------------------------------------------------------------------------------------- errors


def refusal(**changed: Any) -> str:
    with pytest.raises(rp.InputError) as caught:
        make(**changed)
    message = str(caught.value)
    assert SECRET not in message
    assert "\n" not in message
    return message


def test_no_way_to_the_server_is_one_line_without_the_password(
    dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    socket = dsn.partition("host=")[2]
    cases = {
        f"postgresql://u:{SECRET}@127.0.0.1:1/x": "no server answers",
        f"host={tmp_path} password={SECRET}": "no server answers",
        f"postgresql://reader:{SECRET}-not@/postgres?host={socket}": "refuses the user or the",
        f"postgresql://nobody:{SECRET}@/none?host={socket}": "no such database or user",
        f"postgresql://u:{SECRET}@127.0.0.1:port/x": "PostgreSQL ($RANKPROOF_POSTGRES): ",
        SECRET: "cannot connect; write postgresql://host:port/database, with user and password",
        f"postgresql://{SECRET}@[half/x": "cannot connect",
        f"x={SECRET}": "cannot connect",
    }
    for wrong, words in cases.items():
        monkeypatch.setenv("RANKPROOF_POSTGRES", wrong)
        uses_network(PgvectorSettings(type="pgvector"))  # may be asked first, and says something
        assert words in refusal(), wrong
    monkeypatch.delenv("RANKPROOF_POSTGRES")
    assert refusal() == (
        "PostgreSQL: the environment variable RANKPROOF_POSTGRES is not set; "
        "export RANKPROOF_POSTGRES=… and run again"
    )
    monkeypatch.setenv("OTHER", dsn)
    assert len(make(dsn_env="OTHER").search(QUERIES[:1], 3).run) == 3


def test_a_user_who_may_not_create_the_extension_is_told_who_may(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = dsn.partition("host=")[2]
    monkeypatch.setenv("RANKPROOF_POSTGRES", f"postgresql://reader:{SECRET}@/bare?host={socket}")
    assert refusal() == (
        "PostgreSQL ($RANKPROOF_POSTGRES): this user may not create the extension vector; "
        "have an administrator run CREATE EXTENSION vector"
    )


def test_a_server_without_the_extension_is_told_apart(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = "options=-c%20extension_control_path%3D/nowhere"
    monkeypatch.setenv("RANKPROOF_POSTGRES", f"{dsn.replace('/postgres?', '/bare?')}&{elsewhere}")
    assert refusal() == (
        "PostgreSQL ($RANKPROOF_POSTGRES): the extension vector is not installed on the server; "
        "install pgvector there"
    )


@pytest.mark.parametrize(("form", "limit"), [("float32", 2000), ("float16", 4000)])
def test_dimensions_that_a_graph_cannot_hold_are_refused(form: str, limit: int) -> None:
    wide = np.zeros((2, limit + 1), np.float32)
    wide[:, 0] = 1
    assert f"{limit + 1} dimensions; pgvector's HNSW takes {limit} in {form}" in refusal(
        documents=wide, method="hnsw", format=form
    )
    assert len(make(wide[:, :limit], method="hnsw", format=form).search(wide[:1, :limit], 2).run)


def test_what_cannot_be_asked_is_refused() -> None:
    index = make()
    with pytest.raises(rp.InputError, match="queries have 3 dimensions and documents 24"):
        index.search(QUERIES[:, :3], 5)
    with pytest.raises(rp.InputError, match="k = 0"):
        index.search(QUERIES, 0)
    with pytest.raises(rp.InputError, match="1200 passages of one query; pgvector's HNSW returns"):
        make(method="hnsw").search(QUERIES, 1200)


def test_nothing_of_the_connection_string_is_kept(dsn: str) -> None:
    index = make()
    assert os.environ["RANKPROOF_POSTGRES"] == dsn
    assert dsn not in repr(vars(index))


def test_a_sweep_searches_the_server_like_its_own_index(tmp_path: Path) -> None:
    from small_corpus import write_corpus

    from rankproof.foundation.config import check_config
    from rankproof.tradeoffs.plan import SweepSettings
    from rankproof.tradeoffs.sweep import sweep

    write_corpus(tmp_path / "corpus")
    config = {
        "corpus": "corpus",
        "modes": ["dense"],
        "indexes": {"flat": {"type": "flat"}, "server": {"type": "pgvector"}},
        "pools": [20],
        "latency": {"queries": 2, "repeats": 1, "warmup": 0},
    }
    settings = check_config(config, SweepSettings, place="test", folder=tmp_path)
    frame = sweep(settings, tmp_path / "out").configurations
    flat, server = (frame.row(at, named=True) for at in (0, 1))
    assert server["nDCG(rel=3)@10"] == pytest.approx(flat["nDCG(rel=3)@10"], abs=1e-12)
    assert server["overlap@10"] == 1.0
    assert (flat["network"], server["network"]) == (False, False)  # a socket of this machine
    assert server["index_bytes"] > 0
