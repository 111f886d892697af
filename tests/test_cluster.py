"""Evaluation on Ray: one machine's figures to the last bit, and errors in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pytest
from rankproof_cli import rankproof
from ray_session import STORE, ray
from test_streaming import EVERY, grouped, same, workload, write_parquet, write_trec

import rankproof as rp
from rankproof import cluster
from rankproof.cluster import shards
from rankproof.evaluation.streaming.shards import Chunk

__all__ = ["ray"]  # a fixture, found by its name

pytestmark = pytest.mark.usefixtures("ray")


def write_shards(run: pl.DataFrame, folder: Path, rows: int) -> Path:
    """Parquet and TREC by turns, in the order of the rows."""
    folder.mkdir()
    for at, first in enumerate(range(0, run.height, rows)):
        write, ending = (write_parquet, "parquet") if at % 2 else (write_trec, "trec")
        write(run[first : first + rows], folder / f"part-{at:03}.{ending}")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("rows_per_task", "order"), [(40, "input"), (250, "trec_eval"), (10**6, "input")]
)
def test_any_number_of_pieces_and_parts_gives_the_figures_of_one_machine(
    tmp_path: Path,
    rows_per_task: int,
    order: Any,
    together: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rankproof.cluster.runs.MIN_ROWS", 15)  # the last pieces are cut again
    run, judged = workload(11)
    run = grouped(run) if together else run
    folder = write_shards(run, tmp_path / "run", 100)
    found = cluster.evaluate(judged, folder, EVERY, order=order, rows_per_task=rows_per_task)
    same(found, rp.evaluate(judged, run, EVERY, order=order))
    same(found, rp.evaluate(judged, folder, EVERY, order=order))


def test_a_local_ray_listens_only_on_this_machine(ray: Any) -> None:
    ray.get(ray.remote(lambda: None).remote())  # a worker is up, too
    own = psutil.Process()
    listening = [
        connection.laddr.ip
        for process in [own, *own.children(recursive=True)]
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert len(listening) > 3
    assert all(ip_address(ip.removeprefix("::ffff:")).is_loopback for ip in listening)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["ray", "rankproof"])
def test_ray_listens_only_on_this_machine_even_if_loaded_before(first: str) -> None:
    code = f"import {first}; from rankproof.cluster.session import load_ray\n"
    code += "print(load_ray()._private.services.get_node_ip_address())"
    unset = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_ADDRESS"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert ip_address(told.stdout.strip()).is_loopback


def test_one_file_is_cut_into_ranges(tmp_path: Path) -> None:
    run, judged = workload(12, queries=60)
    for write, name in ((write_parquet, "run.parquet"), (write_trec, "run.trec")):
        path = write(run, tmp_path / name)
        found = cluster.evaluate(judged, str(path), EVERY, missing="skip", rows_per_task=100)
        same(found, rp.evaluate(judged, path, EVERY, missing="skip"))


# Ray warns of its own defaults.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_dataset_keeps_the_order_of_its_rows(ray: Any) -> None:
    run, judged = workload(13)
    tables = [run[first : first + 64].to_arrow() for first in range(0, run.height, 64)]
    dataset = ray.data.from_arrow(tables)
    found = cluster.evaluate(judged, dataset, EVERY, rows_per_task=90)
    same(found, rp.evaluate(judged, run, EVERY))


def test_shards_may_be_addresses_of_fsspec(tmp_path: Path) -> None:
    run, judged = workload(14)
    folder = write_shards(run, tmp_path / "run", 100)
    whole = rp.evaluate(judged, run, EVERY)
    same(cluster.evaluate(judged, f"file://{folder}", EVERY), whole)
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, f"run/{file.name}")
    found = cluster.evaluate(judged, f"zip://run::file://{tmp_path}/run.zip", EVERY, name="run")
    same(found, whole)


def test_comparing_shards_is_comparing_runs(tmp_path: Path) -> None:
    runs = {f"r{seed}": workload(seed)[0] for seed in (15, 16)}
    _, judged = workload(15)
    paths = {name: write_shards(run, tmp_path / name, 100) for name, run in runs.items()}
    found = cluster.compare(judged, paths, ["nDCG@10", "AP"], seed=3, rows_per_task=100)
    whole = rp.compare(judged, runs, ["nDCG@10", "AP"], seed=3, holes=False)
    assert found.to_dict() == whole.to_dict()


def forty(folder: Path) -> tuple[list[Path], dict[str, dict[str, int]]]:
    run, judged = workload(17, queries=60)
    rows = -(-run.height // 40)
    folder.mkdir()
    paths = []
    for at in range(40):
        paths.append(folder / f"part-{at:02}.parquet")
        run[at * rows : (at + 1) * rows].write_parquet(paths[-1])
    return paths, judged


@pytest.mark.slow
def test_a_nan_in_shard_37_is_named_with_its_row(tmp_path: Path) -> None:
    paths, judged = forty(tmp_path / "run")
    frame = pl.read_parquet(paths[37])
    score = frame["score"].to_numpy().copy()
    score[3] = np.nan
    frame.with_columns(score=score).write_parquet(paths[37])
    with pytest.raises(rp.InputError) as refused:
        cluster.evaluate(judged, tmp_path / "run", "nDCG@10")
    assert str(refused.value) == (
        f"{paths[37]}: row 4: score nan is not a number; drop the line or rescore it"
    )


@pytest.mark.slow
def test_a_damaged_shard_is_named_and_the_cluster_goes_on(tmp_path: Path, ray: Any) -> None:
    paths, judged = forty(tmp_path / "run")
    whole = cluster.evaluate(judged, tmp_path / "run", "nDCG@10")
    data = paths[21].read_bytes()
    paths[21].write_bytes(data[: len(data) // 2])
    qrels = tmp_path / "qrels.txt"
    qrels.write_text("".join(f"{q} 0 {d} {g}\n" for q, ds in judged.items() for d, g in ds.items()))
    address = ray.get_runtime_context().gcs_address
    arguments = ("eval", str(qrels), str(tmp_path / "run"), "--cluster", address)
    refused = rankproof(*arguments)
    assert (refused.returncode, refused.stdout) == (2, b""), refused.stderr.decode()
    assert refused.stderr.startswith(f"rankproof: {paths[21]}: not parquet, or cut short".encode())
    assert refused.stderr.count(b"\n") == 1
    paths[21].write_bytes(data)
    done = rankproof(*arguments, "-m", "nDCG@10", "--format", "json")
    alone = rankproof(*arguments[:3], "-m", "nDCG@10", "--format", "json")
    assert (done.returncode, done.stderr) == (0, alone.stderr)
    apart, together = (json.loads(run.stdout) for run in (done, alone))
    for said in (apart, together):
        del said["manifest"]  # another command, at another time
    assert apart == together
    same(cluster.evaluate(judged, tmp_path / "run", "nDCG@10"), whole)


def test_a_pair_in_two_shards_is_named_with_its_second_place(tmp_path: Path) -> None:
    paths, judged = forty(tmp_path / "run")
    first = pl.read_parquet(paths[2])
    query, doc, _ = first.row(5)
    more = pl.concat([pl.read_parquet(paths[30]), first[5:6]])
    more.write_parquet(paths[30])
    with pytest.raises(rp.InputError) as refused:
        cluster.evaluate(judged, tmp_path / "run", "nDCG@10", rows_per_task=50)
    assert str(refused.value) == (
        f"{paths[30]}: row {more.height}: query {query!r} lists document {doc!r} a second time; "
        "keep one of the two"
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nothing.parquet", "there is no such file"),
        ("folder", "there are no files in it"),
        ("file:///nowhere/at/all", "cannot fetch it"),
        ("nothing://here", "cannot list it"),
    ],
)
def test_unreadable_input_is_an_error_of_one_line(tmp_path: Path, source: str, words: str) -> None:
    (tmp_path / "folder").mkdir()
    path = source if "://" in source else str(tmp_path / source)
    with pytest.raises(rp.InputError, match=words) as refused:
        cluster.evaluate({"q": {"d": 1}}, path, "RR")
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_run_larger_than_the_store_passes_through_it(tmp_path: Path) -> None:
    rows, queries = 4_000_000, 4_000
    at = np.arange(rows)
    run = pl.DataFrame(
        {"query": at % queries, "doc": at // queries, "score": (at * 7919 % 1009) / 1009}
    )
    assert 40 * rows > 1.9 * STORE  # what goes from reading to measuring
    (tmp_path / "run").mkdir()
    for part in range(4):
        run[part * rows // 4 : (part + 1) * rows // 4].write_parquet(
            tmp_path / f"run/{part}.parquet"
        )
    judged = {str(q): {str(q % 900): 1, str(q % 77): 2} for q in range(0, queries, 3)}
    found = cluster.evaluate(judged, tmp_path / "run", ["nDCG@10", "AP"], rows_per_task=500_000)
    same(found, rp.evaluate(judged, run, ["nDCG@10", "AP"]))


@dataclass(frozen=True, slots=True)
class Deadly(shards.Piece):
    """A piece whose first reader is killed."""

    def chunks(self, block: Any = None) -> Iterator[Chunk]:
        assert self.file is not None
        flag = Path(f"{self.file.path}.flag")
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from shards.Piece.chunks(self, block)


def deadly(file: shards.File, form: Any, rows: int) -> list[shards.Piece]:
    return [
        Deadly(piece.file, piece.form, piece.first, piece.last, piece.rows)
        for piece in shards.cut_file(file, form, rows)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_killed_workers_are_replaced_and_nothing_is_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    run, judged = workload(18)
    run = grouped(run) if together else run
    folder = write_shards(run, tmp_path / "run", 200)
    whole = rp.evaluate(judged, run, EVERY)
    files = sorted(folder.iterdir())
    monkeypatch.setattr("rankproof.cluster.runs.cut_file", deadly)
    found = cluster.evaluate(judged, files, EVERY, rows_per_task=100)
    same(found, whole)
    assert len(list(folder.glob("*.flag"))) == len(files)  # each was killed once


def test_logits_in_shards_are_audited_as_one(tmp_path: Path) -> None:
    run, judged = workload(19)
    logits = run.rename({"score": "logit"}).with_columns(pl.col("logit") * 12)
    (tmp_path / "logits").mkdir()
    for at, first in enumerate(range(0, run.height, 100)):
        logits[first : first + 100].write_parquet(tmp_path / f"logits/{at:02}.parquet")
    measures = ["nDCG@10", "AP"]
    found = cluster.audit_logits(tmp_path / "logits", judged, measures, curves=True)
    same_audit(found, rp.audit.audit_logits(logits, judged, measures, curves=True))


def test_vectors_in_shards_are_audited_as_one(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    queries, documents = (generator.normal(size=(n, 16)).astype(np.float32) for n in (12, 300))
    (tmp_path / "documents").mkdir()
    for at in range(3):
        np.save(tmp_path / f"documents/{at}.npy", documents[at * 100 : (at + 1) * 100])
    judged = {str(q): {str(d): 1 for d in range(q, 300, 37)} for q in range(12)}
    settings: dict[str, Any] = {"dimensions": [8], "k": 50, "metric": "cosine"}
    found = cluster.audit_embeddings(queries, tmp_path / "documents", judged, **settings)
    same_audit(found, rp.audit.audit_embeddings(queries, documents, judged, **settings))


def same_audit(a: rp.Audit, b: rp.Audit) -> None:
    """Equal but for the clock."""
    one, other = a.to_dict(), b.to_dict()
    for reading in [*one["readings"], *other["readings"]]:
        del reading["seconds"]
    assert one == other
    for mine, theirs in zip(a.readings, b.readings, strict=True):
        same(mine.evaluation, theirs.evaluation)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nonsense"])
def test_an_address_without_a_cluster_is_an_error_of_one_line(tmp_path: Path, address: str) -> None:
    (tmp_path / "q.txt").write_text("q 0 d 1\n")
    (tmp_path / "r.trec").write_text("q Q0 d 1 0.5 t\n")
    files = (str(tmp_path / "q.txt"), str(tmp_path / "r.trec"))
    refused = rankproof("eval", *files, "--cluster", address)
    assert (refused.returncode, refused.stdout) == (2, b"")
    assert f"no Ray cluster answers at {address!r}".encode() in refused.stderr
    assert refused.stderr.count(b"\n") == 1
