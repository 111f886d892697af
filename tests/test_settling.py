"""Holes judged on the command line until nothing they could be changes the verdict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from golden_sets import honest, reply, truth, write_corpus
from loopback import Reply, loopback
from loopback import Request as Sent
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.foundation.config import read_config
from rankproof.measures import parse
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import sweep
from rankproof.unjudged.judging_order import QueryDocuments, fill_holes, map_judge_grades

NDCG = parse("nDCG@10")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Eight queries, of which the first six passages are judged, on grades 0 to 4."""
    write_corpus(tmp_path / "corpus", queries=8, documents=30)
    rng = np.random.default_rng(0)
    for name, noise in (("a", 1.0), ("b", 4.0)):
        lines = []
        for q in range(8):
            score = [truth(f"q{q}", f"d{n}") + rng.normal(0, noise) for n in range(30)]
            best = np.argsort(-np.array(score))[:12].tolist()
            lines += [f"q{q} Q0 d{n} {at} {score[n]} {name}\n" for at, n in enumerate(best, 1)]
        (tmp_path / f"{name}.trec").write_text("".join(lines))
    judged = [f"q{q} 0 d{n} {truth(f'q{q}', f'd{n}') - 1}\n" for q in range(8) for n in range(6)]
    (tmp_path / "qrels.txt").write_text("".join(judged))
    return tmp_path


def settle(place: Path, url: str, *more: str, price: bool = True) -> tuple[int, str, str]:
    judge = {"type": "llm", "url": url, "model": "m", "attempts": 1}
    if price:
        judge |= {"price": {"input_per_1m": 1.0, "output_per_1m": 1.0}}
    config = {"corpus": "corpus", "judge": judge, "limits": {"concurrency": 2}}
    (place / "golden.yaml").write_text(yaml.safe_dump(config))
    files = [str(place / name) for name in ("qrels.txt", "a.trec", "b.trec")]
    done = rankproof(
        *("holes", *files, "-m", "nDCG@10", "--judge", str(place / "golden.yaml"), *more)
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.slow
def test_a_chat_model_judges_until_the_lead_is_certain_and_no_document_twice(place: Path) -> None:
    made = place / "made.tsv"
    with loopback(honest) as server:
        code, said, told = settle(
            place, server.url, "--until", "certain", "--to", str(made), "--format", "json"
        )
        assert code == 0, told
        found = json.loads(said)["settled"]
        assert found["settled"]
        assert 0 < found["asked"] < found["holes"]
        assert len(server.requests) == found["asked"]
        assert found["words"].startswith(
            f"settled after {found['asked']} of {found['holes']} unjudged documents: a is ahead by "
        )
        assert f"m judges at most {found['holes']} documents; cost: at most $0.0" in told
        kept = place / "kept.json"
        code, again, told = settle(
            place, server.url, "--until", "certain", "--format", "json", "--out", str(kept)
        )
        assert code == 0, told
        assert json.loads(again)["settled"] == found
        assert rankproof("verify", str(kept)).returncode == 0
        assert len(server.requests) == found["asked"]
        assert f"({found['asked']} more are stored)" in told
    # What was judged is a file of judgements, with which the same is certain without a judge.
    judged = rp.read_qrels(made)
    assert len(judged) == found["asked"]
    assert all(g == truth(q, d) - 1 for q, d, g in judged.to_frame().rows())
    files = [str(place / name) for name in ("qrels.txt", "a.trec", "b.trec")]
    done = rankproof("holes", *files, "-m", "nDCG@10", "--judged", str(made), "--format", "json")
    pair = json.loads(done.stdout)["pairs"][0]["measures"]["nDCG@10"]
    assert pair["certain"]
    assert pair["lowest"] == pytest.approx(found["lowest"])


def test_grades_from_before_an_interruption_are_reused(place: Path) -> None:
    def breaks(request: Sent) -> Reply:
        return honest(request) if request.number < 9 else Reply.of({"error": "no"}, 401)

    with loopback(breaks) as server:
        code, _, told = settle(place, server.url, "--until", "certain")
        assert code == 2
        assert "401" in told
    with loopback(honest) as server:
        code, said, told = settle(place, server.url, "--until", "certain", "--format", "json")
        assert code == 0, told
        stored = int(told.split("(")[1].split(" more are stored")[0])
        assert stored >= 9
        assert len(server.requests) == json.loads(said)["settled"]["asked"] - stored


@pytest.mark.slow
def test_judging_ends_at_a_width_and_ungradable_documents_stay_unjudged(
    place: Path,
) -> None:
    def mute(request: Sent) -> Reply:
        return reply("no idea") if "case 3?" in request.body.decode() else honest(request)

    with loopback(mute) as server:
        code, said, told = settle(
            place, server.url, "--until-width", "0.001", "--format", "json", price=False
        )
    assert code == 0, told
    assert "cost: not known" in told
    found = json.loads(said)["settled"]
    assert not found["settled"]
    assert found["failed"] > 0
    count = f"{found['asked']} of {found['holes']} unjudged documents"
    failed = f"({found['failed']} got no grade and stay unjudged)"
    assert found["words"].startswith(f"not settled after {count} {failed}: a is ahead by ")


@pytest.mark.slow
def test_a_judge_grades_a_sample_and_the_other_queries_are_estimated(place: Path) -> None:
    """Eight queries are too few to draw eight from: eight more are made of the same lists."""
    for name in ("qrels.txt", "a.trec", "b.trec"):
        lines = (place / name).read_text().splitlines(keepends=True)
        more = [f"q{int(line[1]) + 8}{line[2:]}" for line in lines]
        (place / name).write_text("".join([*lines, *more]))
    asked = place / "corpus" / "queries.jsonl"
    rows = [json.loads(line) for line in asked.read_text().splitlines()]
    rows += [row | {"_id": f"q{int(row['_id'][1:]) + 8}"} for row in rows]
    asked.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made, kept = place / "made.tsv", place / "kept.json"
    more = ["--judge-sample", "9", "--to", str(made), "--out", str(kept), "--format", "json"]
    with loopback(honest) as server:
        code, said, told = settle(place, server.url, *more)
        assert code == 0, told
        found = json.loads(said)
        assert found["sample"]["judged"] == len(server.requests) == len(found["next"])
        assert len(found["sample"]["sampled"]) == 9
        assert "cost: at most $" in told
        code, again, told = settle(place, server.url, *more)
        assert (code, json.loads(again)["sample"]) == (0, found["sample"]), told
        assert len(server.requests) == found["sample"]["judged"]  # nothing is paid twice
    assert len(rp.read_qrels(made)) == found["sample"]["judged"]
    assert rankproof("verify", str(kept)).returncode == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--until", "certain"), "without a judge"),
        (("--judge", "golden.yaml"), "--judge without --until"),
        (
            ("--judge", "golden.yaml", "--judge-sample", "9", "--judged", "qrels.txt"),
            "--judge and --judged for one sample",
        ),
        (("--until", "certain", "--judge-next", "5"), "two ways"),
    ],
)
def test_a_judge_without_a_goal_and_a_goal_without_a_judge_are_refused(
    place: Path, options: tuple[str, ...], words: str
) -> None:
    files = [str(place / name) for name in ("qrels.txt", "a.trec", "b.trec")]
    done = rankproof("holes", *files, "-m", "nDCG@10", *options)
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 1


def test_a_document_without_a_text_is_refused_before_any_request(place: Path) -> None:
    corpus = place / "corpus" / "corpus.jsonl"
    corpus.write_text("".join(corpus.read_text().splitlines(keepends=True)[:8]))
    with loopback(honest) as server:
        code, _, told = settle(place, server.url, "--until", "certain")
        assert code == 2
        assert "its text is not there" in told
        assert not server.requests


def test_documents_to_judge_can_be_pooled_by_a_golden_set(place: Path) -> None:
    files = [str(place / name) for name in ("qrels.txt", "a.trec", "b.trec")]
    todo = place / "next.trec"
    done = rankproof("holes", *files, "-m", "nDCG@10", "--judge-next", "12", "--to", str(todo))
    assert done.returncode == 0, done.stderr
    config = {
        "corpus": "corpus",
        "judge": {"type": "simulated"},
        "depths": {"dense": 0, "bm25": 0},
        "retrievers": {"next": {"type": "run", "file": "next.trec"}},
        "ranking": {"budget": 0},
    }
    (place / "next.yaml").write_text(yaml.safe_dump(config))
    done = rankproof("golden", "build", str(place / "next.yaml"))
    assert done.returncode == 0, done.stderr
    out = place / "export"
    done = rankproof("golden", "export", str(place / "next.golden"), "--out", str(out))
    assert done.returncode == 0, done.stderr
    judged = rp.read_qrels(out / "qrels.simulated.txt").to_frame().select("query", "doc")
    asked = rp.read_run(todo).to_frame().select("query", "doc")
    assert set(judged.rows()) == set(asked.rows())
    assert judged.height == 12


def test_a_judges_grades_are_mapped_to_the_scale_of_the_judgments() -> None:
    def scale(qrels: dict[str, dict[str, int]], measure: str = "nDCG@10") -> list[int]:
        read = rp.read_qrels(qrels)
        return list(map_judge_grades(parse(measure), read, int(read.grade.max())).values())

    assert scale({"q": {"a": 0, "b": 1}}) == [0, 0, 0, 1, 1]
    assert scale({"q": {"a": 0, "b": 2}}) == [0, 0, 0, 1, 2]
    assert scale({"q": {"a": 0, "b": 3}}) == [0, 0, 1, 2, 3]
    assert scale({"q": {"a": 0, "b": 4}}) == [0, 1, 2, 3, 4]
    assert scale({"q": {"a": 0, "b": 8}}) == [0, 2, 4, 6, 8]
    assert scale({"q": {"a": 1, "b": 5}}) == [1, 2, 3, 4, 5]
    assert scale({"q": {"a": 1, "b": 3}}, "RAnWG@10") == [1, 2, 3, 4, 5]


def test_filling_judges_each_unjudged_document_of_all_runs_once() -> None:
    qrels = rp.read_qrels({"q": {"a": 1}, "r": {"b": 0}})
    runs = [
        rp.read_run({"q": {"a": 3.0, "x": 2.0, "y": 1.0}}, name="one"),
        rp.read_run({"q": {"x": 3.0, "z": 2.0}, "r": {"x": 1.0}}, name="other"),
    ]
    asked: QueryDocuments = []

    def judge(pairs: QueryDocuments) -> list[int | None]:
        asked.extend(pairs)
        return [None if doc == "z" else 4 for _, doc in pairs]

    full, said = fill_holes(runs, qrels, [parse("P@2"), parse("nDCG@2")], judge)
    assert asked == [("q", "x"), ("q", "z"), ("r", "x")]
    assert said.startswith("2 documents that nobody had judged were judged; 1 got no grade")
    assert set(full.to_frame().rows()) == {
        ("q", "a", 1),
        ("q", "x", 1),
        ("r", "b", 0),
        ("r", "x", 1),
    }
    whole = pl.DataFrame({"query": ["q"], "doc": ["a"], "grade": [1]})
    same, said = fill_holes(runs[:1], rp.read_qrels(whole), [parse("P@1")], judge)
    assert len(same) == 1
    assert "no document" in said


@pytest.mark.slow
def test_a_sweep_has_unjudged_documents_judged_before_it_prints_scores(place: Path) -> None:
    partial = [f"q{q} 0 d{n} {truth(f'q{q}', f'd{n}')}\n" for q in range(8) for n in range(6)]
    (place / "partial.txt").write_text("".join(partial))
    who = {"corpus": "corpus", "judge": {"type": "simulated"}}
    (place / "golden.yaml").write_text(yaml.safe_dump(who))
    config = {
        "corpus": "corpus",
        "qrels": "partial.txt",
        "modes": ["sparse"],
        "retrievers": {"a": {"type": "run", "file": "a.trec", "latency_ms": 1}},
        "pools": [12],
        "prompts": [5],
        "at": [5],
        "measures": ["nDCG@5"],
        "best_by": "RAnWG@5",
        "latency": {"queries": 2, "repeats": 1, "warmup": 0},
        "holes": "judge",
        "judge": "golden.yaml",
    }
    (place / "sweep.yaml").write_text(yaml.safe_dump(config))
    out = place / "results"
    done = rankproof("sweep", str(place / "sweep.yaml"), "--out", str(out))
    assert done.returncode == 0, done.stderr
    told = done.stderr.decode()
    assert "simulated judges at most " in told
    assert "documents that nobody had judged were judged" in told
    assert b"Unjudged passages" not in done.stdout
    frame = pl.read_parquet(out / "configurations.parquet")
    for measure in ("RAnWG@5", "nDCG(rel=3)@5"):
        assert frame[f"{measure} judged"].to_list() == [1.0, 1.0]
    held = pl.read_parquet(out / "judgements.parquet")
    assert held.height > len(partial)
    assert all(grade == truth(query, doc) for query, doc, grade in held.rows())
    (place / "sweep.yaml").write_text(yaml.safe_dump(config | {"judge": None}))
    done = rankproof("sweep", str(place / "sweep.yaml"), "--out", str(out))
    assert done.returncode == 2
    assert "holes: judge without a judge" in done.stderr.decode()
    plain = {key: value for key, value in config.items() if key not in ("holes", "judge")}
    (place / "sweep.yaml").write_text(yaml.safe_dump(plain))
    swept = sweep(read_config(place / "sweep.yaml", SweepSettings), place / "open")
    [choice] = swept.recommend(sla_ms=1e6).choices
    done = rankproof("sweep", str(place / "sweep.yaml"), "--out", str(place / "open"))
    has_note = b"Unjudged passages could change 1 comparison" in done.stdout
    assert has_note == (len(choice.unsettled) == 1)
