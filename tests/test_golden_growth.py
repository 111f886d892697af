"""A golden set that grows: what is new is asked, what is known is not, whatever kills the build."""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from golden_sets import Worker, honest, ordering, reply, settings, shown, write_corpus
from loopback import Reply, Request, loopback
from rankproof_cli import rankproof

from rankproof.golden import requests
from rankproof.golden.build_status import read_status
from rankproof.golden.building import Build
from rankproof.golden.export_files import export_files
from rankproof.golden.plan import make_plan
from rankproof.golden.result import read_golden
from rankproof.golden.store import Store


def said(*arguments: object) -> str:
    """What the command line prints."""
    done = rankproof(*map(str, arguments))
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def edit(file: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the rows of a file of JSON lines."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    change(rows)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


# What happens to the set, one after another: to its corpus, or to its configuration.


def begins(corpus: Path, config: dict[str, Any]) -> None:
    """As it is."""


def asks_one_more(corpus: Path, config: dict[str, Any]) -> None:
    edit(
        corpus / "queries.jsonl",
        lambda rows: rows.append({"_id": "q2", "text": "what of whales, case 2?"}),
    )


def mends_a_passage_that_nobody_found(corpus: Path, config: dict[str, Any]) -> None:
    edit(corpus / "corpus.jsonl", lambda rows: rows[-1].update(text="passage number d9 of fish"))


def gains_passages(corpus: Path, config: dict[str, Any]) -> None:
    more = [
        {"_id": f"n{n}", "title": "", "text": f"passage number n{n} of whales"} for n in range(2)
    ]
    edit(corpus / "corpus.jsonl", lambda rows: rows.extend(more))


def mends_a_pooled_passage(corpus: Path, config: dict[str, Any]) -> None:
    edit(corpus / "corpus.jsonl", lambda rows: rows[1].update(text=rows[1]["text"] + " (mended)"))


def gains_a_system(corpus: Path, config: dict[str, Any]) -> None:
    run = corpus.parent / "other.trec"
    run.write_text(
        "".join(f"q{q} Q0 d{9 - n} {n + 1} {9 - n} x\n" for q in (0, 1) for n in range(3))
    )
    config["pool"] = {"runs": [str(run)]}


def may_spend_more(corpus: Path, config: dict[str, Any]) -> None:
    config["ranking"] = {"budget": 8, "target": 1.0}
    config["judge"]["max_tokens"] = 4096
    config["grading"] = {"batch": 3}


def has_another_judge(corpus: Path, config: dict[str, Any]) -> None:
    config["judge"]["model"] = "m2"


def has_the_first_judge_again(corpus: Path, config: dict[str, Any]) -> None:
    config["judge"]["model"] = "m"


def is_judged_by_two(corpus: Path, config: dict[str, Any]) -> None:
    one = config["judge"]
    config["judge"] = {"type": "panel", "judges": {"one": one, "two": one | {"model": "m3"}}}


STEPS = (
    *(begins, asks_one_more, mends_a_passage_that_nobody_found, gains_passages),
    *(mends_a_pooled_passage, gains_a_system, may_spend_more, has_another_judge),
    *(has_the_first_judge_again, is_judged_by_two),
)


def word(sent: Request) -> tuple[str, str, str, tuple[str, ...]]:
    """Who was asked for what, of which texts: the whole of what is paid for."""
    query, passages, _ = shown(sent)
    user = sent.json["messages"][1]["content"]
    kind = "order" if ordering(sent) else "grade"
    mended = {doc: doc + "!" * (doc == "d1" and "(mended)" in user) for _, doc in passages}
    return sent.json["model"], kind, query, tuple(mended[doc] for _, doc in passages)


def tables(path: Path) -> list[Any]:
    with Store(path) as store:
        return [
            *(store.rows(f"SELECT * FROM {t} ORDER BY 1, 2") for t in ("pool", "subset", "pairs")),
            store.rows("SELECT * FROM retrieved ORDER BY 1, 2, 3"),
            store.rows("SELECT query, doc, grade FROM grades ORDER BY 1, 2"),
            store.rows("SELECT * FROM ranking ORDER BY query, rank"),
            store.rows("SELECT * FROM refined ORDER BY query"),
            store.rows("SELECT query, key FROM settled ORDER BY 1, 2"),
        ]


def grown(
    folder: Path,
    worker: Worker,
    deaths: Callable[[], Iterator[int]],
    steps: Sequence[Callable[[Path, dict[str, Any]], None]] = STEPS,
    answer: Callable[[Request], Reply] = honest,
) -> tuple[list[list[tuple[str, str, str, tuple[str, ...]]]], list[list[Any]], int]:
    """Through every step, with kills: what was asked in each, what there was after it, and how
    often the builder was killed."""
    corpus = write_corpus(folder / "corpus", queries=2, documents=10)
    path = folder / "set.golden"
    asked, after, kills = [], [], 0
    with loopback(answer) as server:
        config: dict[str, Any] = {
            "corpus": str(corpus),
            "depths": {"dense": 0, "bm25": 6, "pool": 6},
            "judge": {"type": "llm", "url": f"{server.url}/v1", "model": "m"},
            "pruning": {"target": 3},
            "ranking": {"budget": 4, "target": 1.0},
            "limits": {"concurrency": 1},
        }
        for step in steps:
            step(corpus, config)
            before = len(server.requests)
            for moment in deaths():
                worker.start(config, path, None, moment)
                code = worker.line()
                if code == 0:
                    break
                assert code == -signal.SIGKILL
                kills += 1
            assert code == 0
            asked.append([word(sent) for sent in server.requests[before:]])
            after.append(tables(path))
    return asked, after, kills


def once() -> Iterator[int]:
    yield 0


def again_and_again() -> Iterator[int]:
    """The first dies at its first write, the next at its second: every write is somebody's last."""
    yield from range(1, 10_000)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, worker: Worker) -> Any:
    return grown(tmp_path_factory.mktemp("whole"), worker, once)


def test_every_reply_is_paid_for_once_while_a_set_grows(whole: Any) -> None:
    asked, _, _ = whole
    by_name = dict(zip((step.__name__ for step in STEPS), asked, strict=True))
    grades = Counter(
        (model, query, doc)
        for words in asked
        for model, kind, query, docs in words
        if kind == "grade"
        for doc in docs
    )
    assert set(grades.values()) == {1}
    pairs = {
        name: sorted(
            (query, doc) for _, kind, query, docs in words if kind == "grade" for doc in docs
        )
        for name, words in by_name.items()
    }
    assert len(pairs["begins"]) == 2 * 6
    assert [query for query, _ in pairs["asks_one_more"]] == ["q2"] * 6
    assert {q for _, kind, q, _ in by_name["asks_one_more"] if kind == "order"} == {"q2"}
    assert by_name["mends_a_passage_that_nobody_found"] == []
    assert pairs["gains_passages"] == sorted((f"q{q}", f"n{n}") for q in range(3) for n in range(2))
    assert pairs["mends_a_pooled_passage"] == [(f"q{q}", "d1!") for q in range(3)]
    assert {q for q, _ in pairs["gains_a_system"]} == {"q0", "q1"}
    assert {q for _, kind, q, _ in by_name["gains_a_system"] if kind == "order"} == {"q0", "q1"}
    assert pairs["may_spend_more"] == []  # and orders alone are asked for
    assert by_name["may_spend_more"]
    assert {model for model, _, _, _ in by_name["has_another_judge"]} == {"m2"}
    assert by_name["has_the_first_judge_again"] == []
    assert {model for model, kind, *_ in by_name["is_judged_by_two"] if kind == "grade"} == {"m3"}
    assert pairs["is_judged_by_two"] == pairs["has_another_judge"]


def test_judged_passages_stay_in_the_pools_with_their_provenance(whole: Any) -> None:
    _, after, _ = whole
    first, last = after[0], after[-1]
    assert {row[:2] for row in first[0]} <= {row[:2] for row in last[0]}
    lists = {row[1] for row in last[3]}
    assert {"bm25", "other"} < lists
    assert all(name.startswith("bm25~") for name in lists - {"bm25", "other"})
    assert {row[:2] for row in last[0]} == {row[:2] for row in last[4]}  # and all of it is graded


@pytest.mark.slow
def test_a_set_that_is_killed_at_every_write_grows_into_the_same_and_nothing_is_paid_twice(
    whole: Any, tmp_path: Path, worker: Worker
) -> None:
    asked, after, _ = whole
    asked_killed, after_killed, kills = grown(tmp_path, worker, again_and_again)
    assert kills > 5 * len(STEPS)
    for step, mine, theirs in zip(STEPS, asked_killed, asked, strict=True):
        assert sorted(mine) == sorted(theirs), step.__name__
    for step, mine, theirs in zip(STEPS, after_killed, after, strict=True):
        assert mine == theirs, step.__name__


@pytest.mark.slow
def test_a_build_killed_while_it_splits_a_failing_batch_finds_the_passage_and_asks_nothing_twice(
    tmp_path: Path, worker: Worker
) -> None:
    def spoilt(sent: Request) -> Reply:
        there = {doc for _, doc in shown(sent)[1]}
        return reply("I will not.") if there & {"d0" if ordering(sent) else "d4"} else honest(sent)

    def all_at_once(corpus: Path, config: dict[str, Any]) -> None:
        config["grading"] = {"batch": 6}

    found = []
    for name, deaths in (("whole", once), ("killed", again_and_again)):
        folder = tmp_path / name
        folder.mkdir()
        found.append(grown(folder, worker, deaths, [all_at_once, asks_one_more], spoilt))
    (asked, after, _), (asked_killed, after_killed, kills) = found
    assert kills > 20
    assert [sorted(step) for step in asked_killed] == [sorted(step) for step in asked]
    assert after_killed == after
    for _, doc, grade in after[-1][4]:
        assert (grade is None) == (doc == "d4")


def test_a_plan_knows_what_is_new_and_says_what_it_cannot_know(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=2, documents=10)
    with loopback(honest) as server, Store(tmp_path / "set.golden", create=True) as store:
        price = {"input_per_1m": 1.0, "output_per_1m": 1.0}
        judge = {"type": "llm", "url": server.url, "model": "m", "price": price}
        chosen = settings(corpus, judge=judge, depths={"dense": 0, "bm25": 6, "pool": 6})
        Build(chosen, store).run()

        def planned() -> tuple[int, float, str]:
            plan = make_plan(chosen, store)
            grading = plan.steps[1]
            return grading.calls, grading.worst or 0.0, plan.basis

        assert planned()[:2] == (0, 0.0)
        asks_one_more(corpus, {})
        calls, worst, basis = planned()
        assert calls == 2
        assert "1 new query;" in basis
        assert "changed" not in basis
        gains_passages(corpus, {})
        again, more, basis = planned()
        assert again == calls
        assert more > 2 * worst  # any passage of any pool may be a new one
        assert "what fills the pools has changed" in basis
        Build(chosen, store).run()
        assert planned()[:2] == (0, 0.0)


def test_stale_grades_are_listed_and_kept_but_not_counted(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=2, documents=8)
    path, copy = tmp_path / "set.golden", tmp_path / "before.golden"
    with Store(path, create=True) as store:
        Build(settings(corpus), store).run()
        store.add_correction("q0", "d1", "grade", 2, who="ada")
        store.add_correction("q0", "d2", "grade", 2, who="ada")
    shutil.copy(path, copy)
    edit(corpus / "corpus.jsonl", lambda rows: rows[1].update(text=rows[1]["text"] + " (mended)"))
    edit(corpus / "queries.jsonl", lambda rows: rows[1].update(text="whales, then, case 1?"))
    with Store(path, write=True) as store:
        gone = len(store.replies("kind = 'order' AND query = 'q1'"))
        Build(settings(corpus), store).run()
        assert read_status(store).stale == {
            "its passage was edited": 1,
            "its query was edited": 8,
            "an order of texts that were edited or are gone": gone,
            "the text that a person saw was edited": 1,
        }
        held = {p.doc: p for p in read_golden(store).queries[0].passages}
        assert [c.new for c in held["d2"].corrections] == [2]
        assert not held["d1"].corrections  # it was said of another text
        written = export_files(store, tmp_path / "out")
        listed = [json.loads(line) for line in written["stale.jsonl"].read_text().splitlines()]
        assert len(listed) == 10 + gone > 10
        assert "`stale.jsonl`" in written["README.md"].read_text()
        assert sum(each["order"] is not None for each in listed) == gone
    found = json.loads(said("golden", "diff", copy, path, "--format", "json"))
    assert found["queries_edited"] == ["q1"]
    assert found["passages_edited"] == ["d1"]
    assert (found["queries_added"], found["passages_added"]) == ([], [])
    assert found["manifest"]["kind"] == "golden diff"
    assert "queries edited" in said("golden", "diff", copy, path)
    told = " ".join(said("golden", "status", path).split())
    assert f"{gone} (an order of texts" in told
    assert "1 (its passage was edited)" in told


def test_orders_under_another_prompt_are_kept_listed_and_used_again_at_no_cost(
    tmp_path: Path,
) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=2, documents=8)
    shipped = Path(requests.__file__).parents[1] / "resources" / "prompts" / "order.en.txt"
    own = tmp_path / "order.txt"
    own.write_text("Take your time. " + shipped.read_text(encoding="utf-8"), encoding="utf-8")
    with Store(tmp_path / "set.golden", create=True) as store:
        Build(settings(corpus), store).run()
        kept = store.replies()
        first = len(store.replies("kind = 'order'"))
        Build(settings(corpus, prompts={"order": str(own)}), store).run()
        assert read_status(store).stale == {"an order, another prompt": first}
        every, orders = store.replies(), len(store.replies("kind = 'order'"))
        assert every[: len(kept)] == kept
        assert {reply.kind for reply in every[len(kept) :]} == {"order"}  # grades ask as before
        Build(settings(corpus), store).run()
        assert read_status(store).stale == {"an order, another prompt": orders - first}
        assert store.replies() == every


def test_pools_unite_and_their_provenance_serves_leave_one_out(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=2, documents=10)
    run = tmp_path / "other.trec"
    run.write_text("".join(f"q{q} Q0 d{9 - n} {n + 1} {-n} x\n" for q in (0, 1) for n in range(4)))
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(
        "corpus: corpus\nmodes: [sparse]\npools: [4]\nprompts: [2]\nat: []\n"
        "measures: [nDCG@2]\nsparse: {type: bm25, k1: 0.5}\n"
    )
    pool = {
        "runs": [str(run)],
        "sparse": [{"type": "bm25", "b": 0.1}],
        "embedders": {"static": {"type": "wordllama"}},
        "sweep": str(sweep),
    }
    chosen = settings(corpus, depths={"dense": 0, "bm25": 3, "pool": 8, "runs": 3}, pool=pool)
    with Store(tmp_path / "set.golden", create=True) as store:
        Build(chosen, store).run()
        golden = read_golden(store)
        written = export_files(store, tmp_path / "out")
    systems = {p.doc: set(p.systems) for p in golden.queries[0].passages}
    assert set().union(*systems.values()) == {"bm25", "bm25+", "static", "other", "sparse-4"}
    assert "other" in systems["d9"]
    told = said(
        *("holes", written["qrels.simulated.txt"], run, "-m", "nDCG@3", "--format", "json"),
        *("--provenance", written["provenance.tsv"]),
    )
    (row,) = json.loads(told)["leave_one_out"]
    alone = [
        (q.query, p.doc) for q in golden.queries for p in q.passages if p.systems == ("other",)
    ]
    assert (row["system"], row["judgements"]) == ("other", len(alone))


def test_a_larger_sample_keeps_the_queries_of_the_store(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=8, documents=4)
    with Store(tmp_path / "set.golden", create=True) as store:
        names = []
        for size in (2, 4, 6):
            Build(settings(corpus, sample=size), store).run("rewrite")
            names.append({query for (query,) in store.rows("SELECT query FROM queries")})
    assert names[0] < names[1] < names[2]
    assert [len(found) for found in names] == [2, 4, 6]


def test_a_judge_with_other_settings_is_not_said_to_have_another_prompt(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=1, documents=6)
    with Store(tmp_path / "set.golden", create=True) as store:
        Build(settings(corpus), store).run()
        kept = len(store.replies("kind = 'order'"))
        Build(settings(corpus, judge={"type": "simulated", "beta": 7}), store).run()
        assert read_status(store).stale == {
            "an order, other settings of the judge": kept,
            "other settings of the judge": 6,
        }
        store.execute("UPDATE retrieved SET list = 'dense~123abc' WHERE doc = 'd0'")
        retrieved = read_status(store).steps[1].what
        assert "~" not in retrieved
        assert "from earlier lists" in retrieved
