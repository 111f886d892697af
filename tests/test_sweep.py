"""Sweeps: every figure from its definition, nothing paid for twice, nothing lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from loopback import Loopback, Reply, Request, loopback
from rankproof_cli import rankproof
from small_corpus import TOPICS, write_corpus

import rankproof as rp
from rankproof.foundation.config import read_config
from rankproof.foundation.errors import InputError
from rankproof.foundation.locks import Lock
from rankproof.retrieval.embedders import make_embedder
from rankproof.retrieval.embedders.wordllama import WordllamaSettings
from rankproof.tradeoffs.ceilings import ceilings
from rankproof.tradeoffs.plan import SweepSettings, configurations
from rankproof.tradeoffs.sweep import Swept, read_sweep, sweep

pytest.importorskip("wordllama")

PLAIN = """
corpus: corpus
pools: [8, 20]
prompts: [5]
at: [5, 10]
dimensions: [null, 64]
indexes: {flat: {type: flat}, bit: {type: flat, format: bit}}
best_by: RAnWG@5
latency: {queries: 3, repeats: 2, warmup: 1}
"""


def config(folder: Path, text: str) -> Path:
    """A configuration beside a corpus."""
    if not (folder / "corpus").exists():
        write_corpus(folder / "corpus")
    (folder / "sweep.yaml").write_text(text, encoding="utf-8")
    return folder / "sweep.yaml"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    folder = tmp_path_factory.mktemp("sweep")
    return sweep(read_config(config(folder, PLAIN), SweepSettings), folder / "out")


def test_every_configuration_has_a_row_with_every_figure(swept: Swept) -> None:
    frame = swept.configurations
    assert frame.height == 2 * (2 * 2 * 2) + 2  # dense and hybrid, and sparse
    assert frame["configuration"].n_unique() == frame.height
    for k in (5, 10):
        for name in ("RAnWG", "NRecall4", "NRecall5", "P4", "Harm"):
            assert frame[f"{name}@{k}"].is_not_null().all()
            assert (frame[f"{name}@{k} low"] <= frame[f"{name}@{k}"] + 1e-12).all()
            assert (frame[f"{name}@{k} high"] >= frame[f"{name}@{k}"] - 1e-12).all()
    for name in ("nDCG(rel=3)@10", "RR(rel=4)@10", "latency_p50_ms", "latency_p95_ms", "jitter_ms"):
        assert frame[name].is_not_null().all()
    assert (frame["latency_p50_ms"] <= frame["latency_p95_ms"]).all()
    assert (frame["index_bytes"] > 0).all()
    assert frame["best"].sum() == 1
    best = frame.row(by_predicate=pl.col("best"), named=True)
    assert best["RAnWG@5"] == frame["RAnWG@5"].max()
    assert best["overlap@10"] == 1.0
    assert best["tau@10"] == pytest.approx(1.0)


def test_dense_figures_are_those_of_a_search_written_out(swept: Swept) -> None:
    """Every passage compared by numpy, and evaluated as any run."""
    folder = swept.folder.parent / "corpus"
    rows = {
        name: [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("corpus", "queries")
    }
    embedder = make_embedder(WordllamaSettings())
    passages = embedder.embed_passages([f"{r['title']} {r['text']}" for r in rows["corpus"]])
    questions = embedder.embed_queries([r["text"] for r in rows["queries"]])
    for size, name in ((256, "wordllama"), (64, "wordllama:64")):
        a, b = (
            v[:, :size] / np.linalg.norm(v[:, :size], axis=1, keepdims=True)
            for v in (questions, passages)
        )
        scores = a.astype(np.float64) @ b.astype(np.float64).T
        run = {}
        for at, question in enumerate(rows["queries"]):
            best = np.argsort(-scores[at], kind="stable")[:20]
            run[question["_id"]] = {rows["corpus"][d]["_id"]: float(scores[at][d]) for d in best}
        found = swept.configurations.row(
            by_predicate=pl.col("configuration") == f"dense {name} flat K=20 top 5", named=True
        )
        result = rp.evaluate(
            folder / "qrels/test.tsv", run, ["nDCG(rel=3)@10", "RAnWG@5", "NRecall4@10"]
        )
        for measure in result:
            assert found[str(measure)] == pytest.approx(result[measure].expected, abs=1e-9)


def test_ceilings_are_those_of_the_pool(swept: Swept) -> None:
    qrels = swept.folder.parent / "corpus/qrels/test.tsv"
    row = swept.configurations.row(
        by_predicate=pl.col("configuration") == "sparse K=8 top 5", named=True
    )
    (listed,) = [
        file
        for file in (swept.folder / "work" / "lists").glob("*.parquet")
        if pl.read_parquet(file).group_by("query").len()["len"].max() == 8
        and pl.read_parquet(file)["score"].max() > 1.5  # type: ignore[operator]
    ]
    run = pl.read_parquet(listed).select("query", "doc", "score")
    found = ceilings(run, qrels, ["RAnWG", "NRecall4"], at=[5, 10])
    for measure in ("RAnWG@5", "NRecall4@10"):
        assert row[f"{measure} PROC"] == pytest.approx(found[measure].proc, abs=1e-12)
        assert row[f"{measure} %PROC"] == pytest.approx(found[measure].percent, abs=1e-9)


def test_the_manifest_says_how_it_was_made_and_not_where(swept: Swept) -> None:
    made = swept.manifest
    assert made["kind"] == "sweep"
    assert made["config"]["corpus"] == "corpus"
    assert set(made["inputs"]) == {"corpus", "queries", "qrels"}
    assert made["queries"] == len(TOPICS)
    assert made["versions"]["numpy"] == np.__version__
    text = (swept.folder / "sweep.json").read_text()
    assert str(swept.folder.parent) not in text
    again = read_sweep(swept.folder)
    assert again.manifest == made
    assert again.configurations.equals(swept.configurations)


QUALITY = re.compile(r"@\d+( (low|high|min|max|PROC|%PROC|queries))*$")


def test_figures_of_quality_do_not_depend_on_the_day(swept: Swept, tmp_path: Path) -> None:
    again = sweep(read_config(config(tmp_path, PLAIN), SweepSettings), tmp_path / "out")
    names = [name for name in swept.configurations.columns if QUALITY.search(name)]
    assert len(names) > 40
    assert again.configurations.select(names).equals(swept.configurations.select(names))
    assert again.per_query.equals(swept.per_query)


RERANKED = """
corpus: corpus
modes: [hybrid]
pools: [10]
prompts: [5]
rerankers:
  none:
  remote: {type: endpoint, url: "URL", model: rerank-2.5, key_env: SWEEP_TEST_KEY}
generator: GPT-5
tokens_per_passage: 500
latency: {queries: 2, repeats: 2, warmup: 1}
"""


def shared_words(request: Request) -> Reply:
    """A reranker that counts shared words; it says that it read 20 tokens a document."""
    asked = set(request.json["query"].lower().split())
    documents = request.json["documents"]
    results = [
        {"index": at, "relevance_score": len(asked & set(text.lower().split())) / 50}
        for at, text in enumerate(documents)
    ]
    return Reply.of({"results": results, "usage": {"total_tokens": 20 * len(documents)}})


def pairs(server: Loopback, answered: set[int] | None = None) -> Counter[tuple[str, str]]:
    return Counter(
        (request.json["query"], text)
        for request in server.requests
        if answered is None or request.number in answered
        for text in request.json["documents"]
    )


def test_a_sweep_pays_for_each_candidate_once_and_prices_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_TEST_KEY", "very-secret-key")
    with loopback(shared_words) as server:
        file = config(tmp_path, RERANKED.replace("URL", server.url))
        swept = sweep(read_config(file, SweepSettings), tmp_path / "out")
        asked = pairs(server)
        assert len(asked) == 10 * len(TOPICS)
        assert set(asked.values()) == {1}
        count = len(server.requests)
        sweep(read_config(file, SweepSettings), tmp_path / "out")
        assert len(server.requests) == count
    row = swept.configurations.filter(pl.col("reranker") == "remote").row(0, named=True)
    assert row["rerank_tokens"] == pytest.approx(200)
    assert row["rerank_cost_per_1000"] == pytest.approx(1000 * 200 / 1000 * 5e-5)
    assert row["generator_cost_per_1000"] == pytest.approx(1000 * 5 * 500 / 1e6 * 1.25)
    assert row["network"]
    assert row["rerank_p50_ms"] > 0
    for file in (tmp_path / "out").rglob("*"):
        assert file.is_dir() or b"very-secret-key" not in file.read_bytes()


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_repeats_no_call_that_was_answered(tmp_path: Path) -> None:
    process: dict[str, int] = {}
    answered: set[int] = set()

    def answer(request: Request) -> Reply:
        if request.number == 4 and process:
            os.kill(process.pop("pid"), signal.SIGKILL)
            return Reply(b"", claim=10)
        answered.add(request.number)
        return shared_words(request)

    with loopback(answer) as server:
        file = config(tmp_path, RERANKED.replace("URL", server.url))
        command = [sys.executable, "-m", "rankproof", "sweep", str(file), "--out", "out"]
        quiet: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environment = {**os.environ, "SWEEP_TEST_KEY": "k"}
        killed = subprocess.Popen(command, cwd=tmp_path, env=environment, **quiet)
        process["pid"] = killed.pid
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
        done = subprocess.run(command, cwd=tmp_path, env=environment, **quiet, check=False)
        assert done.returncode == 0, done.stderr
        asked = pairs(server, answered)
    assert len(asked) == 10 * len(TOPICS)
    assert set(asked.values()) == {1}
    whole = tmp_path / "whole"
    with loopback(shared_words) as server:
        (tmp_path / "sweep.yaml").write_text(RERANKED.replace("URL", server.url))
        os.environ["SWEEP_TEST_KEY"] = "k"
        expected = sweep(read_config(tmp_path / "sweep.yaml", SweepSettings), whole)
    found = read_sweep(tmp_path / "out")
    assert found.per_query.equals(expected.per_query)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "words", "requests"), [(401, "SWEEP_TEST_KEY", 1), (404, "404", 1)]
)
def test_a_refusal_is_one_line_and_what_was_computed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, words: str, requests: int
) -> None:
    monkeypatch.setenv("SWEEP_TEST_KEY", "very-secret-key")
    with loopback(lambda _: Reply.of({"error": "no"}, status)) as server:
        file = config(tmp_path, RERANKED.replace("URL", server.url))
        done = rankproof("sweep", str(file), "--out", str(tmp_path / "out"))
        assert len(server.requests) == requests
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert "very-secret-key" not in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert list((tmp_path / "out" / "work" / "vectors").glob("*.npy"))
    assert list((tmp_path / "out" / "work" / "lists").glob("*.parquet"))
    assert not (tmp_path / "out" / "sweep.json").exists()


def test_a_second_process_in_the_folder_is_told_of_the_first(tmp_path: Path) -> None:
    file = config(tmp_path, PLAIN)
    with Lock(tmp_path / "out" / "sweep"):
        done = rankproof("sweep", str(file), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert f"in use by process {os.getpid()} on " in done.stderr.decode()


DYNAMIC = """
corpus: corpus
modes: [dense]
pools: [6, 20, dynamic]
depth: {start: 6, deep: 20, pilot: 3, lose: LOSE}
prompts: [5]
rerankers: {words: {type: "small_corpus:SharedWords", scale: SCALE}}
latency: {queries: 2, repeats: 1, warmup: 0}
"""


@pytest.mark.parametrize("scale", [1.0, 0.001])
@pytest.mark.parametrize(("lose", "like"), [("1.0", 6), ("0.0", None)])
def test_a_dynamic_pool_learns_how_deep_to_go_whatever_the_scale_of_scores(
    tmp_path: Path, lose: str, like: int | None, scale: float
) -> None:
    text = DYNAMIC.replace("LOSE", lose).replace("SCALE", str(scale))
    swept = sweep(read_config(config(tmp_path, text), SweepSettings), tmp_path / "out")
    frame = swept.configurations
    dynamic, shallow, deep = (
        frame.row(by_predicate=pl.col("pool") == pool, named=True)
        for pool in ("dynamic", "6", "20")
    )
    assert 0.0 <= dynamic["deep_share"] <= 1.0
    assert dynamic["quality_lost"] is not None
    if like == 6:  # any loss will do: none goes deep
        assert dynamic["deep_share"] == 0.0
        assert dynamic["mean_k"] == like
        assert dynamic["RAnWG@5"] == shallow["RAnWG@5"]
        assert dynamic["tokens_saved"] == pytest.approx(1 - 6 / 20, abs=0.2)
    assert min(shallow["mean_k"], deep["mean_k"]) <= dynamic["mean_k"] <= deep["mean_k"]


def test_duplicates_make_room_for_other_passages(tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "corpus")
    corpus = (folder / "corpus.jsonl").read_text()
    copies = corpus.replace('"_id": "', '"_id": "copy-')
    (folder / "corpus.jsonl").write_text(corpus + copies)
    base = "corpus: corpus\nmodes: [dense]\npools: [10]\nprompts: [5]\nlatency: {queries: 1}\n"
    with_copies = sweep(read_config(config(tmp_path, base), SweepSettings), tmp_path / "a")
    text = base + "duplicates: {threshold: 0.95}\n"
    without = sweep(read_config(config(tmp_path, text), SweepSettings), tmp_path / "b")
    measure = "nDCG(rel=3)@10"
    assert without.configurations[measure][0] > with_copies.configurations[measure][0]


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda c: (c / "corpus.jsonl").write_text(""), "corpus.jsonl: the file is empty"),
        (lambda c: (c / "corpus.jsonl").write_text('{"_id": "a"}\n'), "lacks _id or text"),
        (
            lambda c: (c / "corpus.jsonl").write_text('{"_id": "a", "text": "x \\ud800 y"}\n'),
            "corpus.jsonl:1: half a surrogate pair",
        ),
        (
            lambda c: (c / "corpus.jsonl").write_text('{"_id": "a", "text": "x"}\n' * 2),
            "corpus.jsonl:2: _id 'a' is already on line 1",
        ),
        (lambda c: (c / "queries.jsonl").write_text('{"_id": "q", "text": " "}\n'), "no text"),
        (
            lambda c: (c / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\nx\ty\t5\n"),
            "no question of",
        ),
        (
            lambda c: (c / "qrels/test.tsv").write_text(
                "query-id\tcorpus-id\tscore\nask-ice\tice-0\t1\nask-ice\tice-1\t2\nelse\tx\t0\n"
            ),
            "no grade is above 2, and 4 or 5 means relevant; say what your grades mean: "
            "`grades: {0: 1, 1: 3, 2: 5}`, say",
        ),
        (
            lambda c: (c / "qrels/test.tsv").write_text(
                "query-id\tcorpus-id\tscore\nask-ice\tice-0\t7\n"
            ),
            "say what your grades mean: `grades: {7: 5}`, say",
        ),
    ],
)
def test_a_broken_corpus_is_one_line(tmp_path: Path, break_it: Any, words: str) -> None:
    file = config(tmp_path, PLAIN)
    break_it(tmp_path / "corpus")
    with pytest.raises(InputError) as caught:
        sweep(read_config(file, SweepSettings), tmp_path / "out")
    assert words in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_questions_without_grades_are_left_out_and_counted(tmp_path: Path) -> None:
    file = config(tmp_path, PLAIN)
    with (tmp_path / "corpus/queries.jsonl").open("a") as lines:
        lines.write('{"_id": "more", "text": "and this?"}\n')
    swept = sweep(read_config(file, SweepSettings), tmp_path / "out")
    assert swept.manifest["queries"] == len(TOPICS)
    assert "1 of 7 questions has no graded passage: skipped" in swept.manifest["notes"]


@pytest.mark.slow
def test_the_command_prints_a_table_and_json(tmp_path: Path) -> None:
    file = config(tmp_path, PLAIN)
    planned = rankproof("sweep", str(file), "--plan")
    assert planned.returncode == 0
    assert "18 configurations" in planned.stdout.decode()
    assert not (tmp_path / "out").exists()
    done = rankproof("sweep", str(file), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.decode().split())
    data = json.loads(
        rankproof("sweep", str(file), "--out", str(tmp_path / "out"), "--format", "json").stdout
    )
    assert len(data["configurations"]) == 18
    best = next(row for row in data["configurations"] if row["best"])
    answer = re.match(r"(.+) is best of 18 by RAnWG@5 over 6 queries: 1.000", said)
    assert answer is not None
    rows = {row["configuration"]: row["RAnWG@5"] for row in data["configurations"]}
    assert rows[answer[1]] == best["RAnWG@5"]
    table = rankproof("sweep", str(file), "--out", str(tmp_path / "out"), "--format", "csv").stdout
    exact = pl.read_csv(table, comment_prefix="#").sort("configuration")["p95 ms"].to_list()
    found = pl.DataFrame(data["configurations"]).sort("configuration")["latency_p95_ms"].to_list()
    assert exact == pytest.approx(found, rel=1e-12)


def test_each_configuration_says_what_is_judged_of_it_and_what_the_rest_could_make(
    swept: Swept,
) -> None:
    frame = swept.configurations
    assert {"RAnWG@5 judged", "nDCG(rel=3)@10 judged", "RAnWG@5 lowest"} <= set(frame.columns)
    assert frame["RAnWG@5 judged"].is_between(0, 1).all()
    assert (frame["RAnWG@5 lowest"] <= frame["RAnWG@5"] + 1e-12).all()
    assert (frame["RAnWG@5 highest"] >= frame["RAnWG@5"] - 1e-12).all()
    assert (frame["nDCG(rel=3)@10 judged"] < 1).all()  # six of ten passages are graded
    whole = frame.filter(frame["RAnWG@5 judged"] == 1)
    assert whole.height
    assert (whole["RAnWG@5 highest"] - whole["RAnWG@5 lowest"]).abs().max() == pytest.approx(0.0)


def test_candidates_that_hold_every_judged_passage_are_told_of(tmp_path: Path) -> None:
    text = PLAIN.replace("pools: [8, 20]", "pools: [30]") + "modes: [dense]\n"
    text = text.replace("best_by: RAnWG@5", "best_by: nDCG@10")
    made = sweep(read_config(config(tmp_path, text), SweepSettings), tmp_path / "out")
    [note] = [n for n in made.manifest["notes"] if "every judged passage" in n]
    assert note.startswith("4 of 4 configurations")
    frame = made.configurations
    lowest, value, highest = (frame[f"nDCG(rel=3)@10{e}"] for e in (" lowest", "", " highest"))
    assert (highest >= value - 1e-12).all()
    assert (highest > lowest + 0.01).all()  # it has holes


def made(folder: Path, text: str, out: str = "out") -> Swept:
    return sweep(read_config(config(folder, text), SweepSettings), folder / out)


SMALL = """
corpus: corpus
modes: [sparse]
pools: [20]
at: [5]
latency: {queries: 2, repeats: 1, warmup: 0}
"""


def test_grade_1_is_not_relevant_unless_the_configuration_says_so(tmp_path: Path) -> None:
    text = SMALL + 'measures: ["nDCG@10", "RR@10", "RR(rel=1)@10"]\n'
    frame = made(tmp_path, text).configurations
    assert {"nDCG(rel=3)@10", "RR(rel=4)@10", "RR(rel=1)@10"} <= set(frame.columns)
    assert "RR@10" not in frame.columns
    assert (frame["RR(rel=1)@10"] >= frame["RR(rel=4)@10"]).all()
    form = ("--out", str(tmp_path / "out"), "--format", "csv")
    done = rankproof("sweep", str(tmp_path / "sweep.yaml"), *form)
    assert "nDCG(rel=3)@10" in done.stdout.decode()


def test_judgements_bring_their_scale_to_a_sweep_without_set_measures(tmp_path: Path) -> None:
    file = config(tmp_path, SMALL.replace("at: [5]", "at: []"))
    assert "nDCG@10" in sweep(read_config(file, SweepSettings), tmp_path / "a").configurations
    (tmp_path / "corpus/qrels/test.tsv.scale").write_text(
        '{"grades": [1, 5], "relevant": 4, "gains": 3}'
    )
    frame = sweep(read_config(file, SweepSettings), tmp_path / "b").configurations
    assert {"nDCG(rel=3)@10", "RR(rel=4)@10"} <= set(frame.columns)


def test_quality_is_that_of_the_passages_which_the_prompt_holds(tmp_path: Path) -> None:
    swept = made(tmp_path, SMALL + "prompts: [2, 8]\n")
    assert swept.manifest["best_by"] == "RAnWG@prompt"
    by_prompt = {row["prompt_k"]: row for row in swept.configurations.iter_rows(named=True)}
    for k, row in by_prompt.items():
        for ending in ("", " low", " high", " min", " judged", " PROC", " %PROC"):
            assert row[f"RAnWG@prompt{ending}"] == row[f"RAnWG@{k}{ending}"]
    assert by_prompt[2]["RAnWG@prompt"] != by_prompt[8]["RAnWG@prompt"]
    values = swept.per_query.filter(pl.col("measure") == "RAnWG@prompt")
    mean = values.group_by("configuration").agg(pl.col("value").mean())
    for name, value in mean.iter_rows():
        row = swept.configurations.row(by_predicate=pl.col("configuration") == name, named=True)
        assert value == pytest.approx(row[f"RAnWG@{row['prompt_k']}"])


@pytest.mark.parametrize("by", ["RAnWG@5", "RAnWG@8"])
def test_one_figure_cannot_stand_for_prompts_of_several_sizes(tmp_path: Path, by: str) -> None:
    with pytest.raises(InputError, match=r"is not the quality of prompts of 2 and 8 passages"):
        made(tmp_path, SMALL + f"prompts: [2, 8]\nbest_by: {by}\n")


def test_rewriters_fusions_and_duplicates_are_axes(tmp_path: Path) -> None:
    axes = """
rewriters: {none: , rules: {type: rules, keep: topics}}
fusions: {rrf: {method: rrf}, sum: {method: sum}}
duplicates: {none: , near: {threshold: 0.9}}
"""
    frame = made(tmp_path, SMALL.replace("[sparse]", "[sparse, hybrid]") + axes).configurations
    assert frame.height == 2 * 2 * (1 + 2)  # hybrids alone are fused
    assert frame["configuration"].n_unique() == frame.height
    assert "hybrid wordllama flat rewriter=rules fusion=sum duplicates=near K=20 top 10" in set(
        frame["configuration"]
    )
    one = made(tmp_path, SMALL + "rewriter: {type: rules}\nduplicates: {threshold: 0.9}\n", "b")
    assert one.configurations["configuration"].to_list() == ["sparse K=20 top 10"]
    assert one.configurations["rewriter"].to_list() == ["rules"]


def test_pools_that_nothing_reorders_are_one_row(tmp_path: Path) -> None:
    text = SMALL.replace("pools: [20]", "pools: [4, 10, 20, 30]") + "prompts: [4]\n"
    settings = read_config(config(tmp_path, text), SweepSettings)
    pools = [c.pool for c in configurations(settings)]
    assert pools == [4, 10]  # figures at 10 differ from a pool of 4 to one of 10, and no further
    hybrid = settings.model_copy(update={"modes": ["hybrid"], "pools": [20, 60, 200]})
    assert [c.pool for c in configurations(hybrid)] == [20, 200]  # fused from 100, or from 200


def test_a_language_at_the_top_is_that_of_every_part(tmp_path: Path) -> None:
    parts = "rewriters: {rules: {type: rules}, en: {type: rules, language: en}}\n"
    settings = read_config(config(tmp_path, SMALL + "language: fr\n" + parts), SweepSettings)
    assert settings.sparse.language == "fr"
    spoken = {name: getattr(part, "language", None) for name, part in settings.rewriters.items()}
    assert spoken == {"rules": "fr", "en": "en"}


@pytest.mark.slow
def test_each_row_is_a_file_that_other_verbs_take_by_name(tmp_path: Path) -> None:
    swept = made(tmp_path, SMALL.replace("[sparse]", "[sparse, dense]"))
    qrels = str(swept.folder / "judgements.parquet")
    for row in swept.configurations.iter_rows(named=True):
        found = rp.evaluate(qrels, swept.folder / row["run"], "RAnWG@10")
        assert found["RAnWG@10"].expected == pytest.approx(row["RAnWG@10"], abs=1e-12)
    names = [f"{swept.folder}::{name}" for name in swept.configurations["configuration"]]
    done = rankproof("compare", qrels, *names, "-m", "RAnWG@10", "--format", "json")
    assert done.returncode == 0, done.stderr
    [pair] = json.loads(done.stdout)["pairs"]
    by = dict(swept.configurations.select("configuration", "RAnWG@10").iter_rows())
    apart = by["sparse K=20 top 10"] - by["dense wordllama flat K=20 top 10"]
    assert abs(pair["measures"]["RAnWG@10"]["expected"]) == pytest.approx(abs(apart))
    assert "ci" in pair["measures"]["RAnWG@10"]
    done = rankproof("ceilings", qrels, names[0], "--at", "10")
    assert done.returncode == 0, done.stderr
    done = rankproof("leaderboard", qrels, *names, "-m", "RAnWG@10")
    assert done.returncode == 0, done.stderr
    done = rankproof("gate", qrels, names[0], names[0], "-m", "RAnWG@10")
    assert done.returncode == 0, done.stderr
    done = rankproof("compare", qrels, names[0], f"{swept.folder}::sparse K=20 top 1")
    assert done.returncode == 2
    assert "did you mean 'sparse K=20 top 10'?" in done.stderr.decode()
