"""Golden sets from corpus to export."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from golden_sets import honest, ordering, reply, settings, shown, truth, write_corpus
from loopback import Reply, loopback
from loopback import Request as Sent

import rankproof as rp
from rankproof.data.beir import read_corpus
from rankproof.data.tables import SET_SCALE
from rankproof.foundation.errors import InputError
from rankproof.golden.build_status import read_status
from rankproof.golden.building import Build
from rankproof.golden.export_files import TooManyFailed, export_files
from rankproof.golden.judge_agreement import compare_with_people, repeat_grading
from rankproof.golden.judges.replay import ReplayJudge
from rankproof.golden.plan import make_plan
from rankproof.golden.pooling import read_inputs
from rankproof.golden.result import read_golden
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store

ALL = ["rewrite", "retrieve", "merge", "grade", "prune", "rank"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


def built(store: Store, chosen: GoldenSettings) -> Build:
    made = Build(chosen, store)
    made.run()
    return made


def test_every_stage_runs_once(store: Store, corpus: Path) -> None:
    chosen = settings(corpus)
    assert Build(chosen, store).run() == ALL
    calls = len(store.replies())
    assert Build(chosen, store).run() == []
    assert Build(chosen, store).run("rank") == ["rank"]
    assert len(store.replies()) == calls


def test_stages_can_run_one_by_one_and_give_the_same(tmp_path: Path, corpus: Path) -> None:
    chosen = settings(corpus)
    tables = []
    for name in ("whole", "parts"):
        with Store(tmp_path / f"{name}.golden", create=True) as store:
            if name == "whole":
                Build(chosen, store).run()
            else:
                for stage in ALL:
                    assert Build(chosen, store).run(stage) == [stage]  # type: ignore[arg-type]
            tables.append(store.rows("SELECT * FROM ranking ORDER BY query, rank"))
    assert tables[0] == tables[1]
    assert len(tables[0]) == 36


def test_a_stage_says_which_one_it_needs(store: Store, corpus: Path) -> None:
    with pytest.raises(InputError, match="grade needs rewrite, which is not done"):
        Build(settings(corpus), store).run("grade")


def test_a_later_stage_with_other_settings_is_done_again_from_stored_replies(
    store: Store, corpus: Path
) -> None:
    built(store, settings(corpus))
    calls = len(store.replies())
    longer = {"budget": 16, "target": 1.0}
    more = settings(corpus, ranking=longer)
    assert Build(more, store).run() == ["rank"]
    assert len(store.replies()) == calls + 3 * 4  # four calls more for each query, no other
    fewer = settings(corpus, ranking=longer, pruning={"size": 5, "target": 3})
    assert Build(fewer, store).run() == ["prune", "rank"]


def test_an_order_of_other_passages_is_not_shown_with_new_settings(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    built(store, settings(corpus))
    fewer = settings(corpus, pruning={"size": 5, "target": 3})
    with pytest.raises(InputError, match="rank needs prune"):
        Build(fewer, store).run("rank")
    assert store.meta("config")["pruning"]["size"] == 35  # what is in the store is still of these
    assert Build(fewer, store).run("prune") == ["prune"]
    assert store.meta("config")["pruning"]["size"] == 5
    assert {p.rank for query in read_golden(store).queries for p in query.passages} == {None}
    assert export_files(store, tmp_path / "out")["ranking.simulated.trec"].read_text() == ""
    assert [step.done for step in read_status(store).steps] == [True] * 5 + [False]


def test_a_stage_that_was_killed_is_not_done_with_the_settings_before(
    store: Store, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = settings(corpus)
    built(store, before)

    def killed(table: str, rows: Any) -> None:
        replace_table(table, rows)
        if table == "grades":
            raise KeyboardInterrupt

    replace_table = store.replace
    monkeypatch.setattr(store, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        Build(settings(corpus, judge={"type": "simulated", "beta": 2}), store).run()
    monkeypatch.undo()
    assert Build(before, store).run() == ["grade", "prune", "rank"]


def test_a_batch_that_comes_again_is_asked_again(store: Store, tmp_path: Path) -> None:
    # Two passages can be shown in two orders alone: each call has a reply of its own all the same.
    corpus = write_corpus(tmp_path / "two", queries=1, documents=2)
    built(store, settings(corpus))
    rows = store.rows("SELECT reply FROM orders")
    assert len(rows) == len(set(rows)) > 2
    replies = store.replies("kind = 'order'")
    assert len({reply.documents for reply in replies}) == 2
    calls = len(store.replies())
    Build(settings(corpus), store).run("rank")
    assert len(store.replies()) == calls


def test_grades_of_two_languages_do_not_mix_and_the_refusal_says_what_differs(
    store: Store, corpus: Path
) -> None:
    built(store, settings(corpus))
    with pytest.raises(InputError, match="language: en, and the configuration says fr"):
        Build(settings(corpus, language="fr"), store)


def test_the_pool_is_the_lists_merged_by_rrf(store: Store, corpus: Path) -> None:
    chosen = settings(corpus, depths={"dense": 8, "bm25": 8, "pool": 6})
    Build(chosen, store).run("rewrite")
    Build(chosen, store).run("retrieve")
    Build(chosen, store).run("merge")
    lists = store.rows("SELECT query, list, doc, rank FROM retrieved")
    assert {name for _, name, _, _ in lists} == {"dense", "bm25"}
    for query in ("q0", "q1", "q2"):
        scores: dict[str, dict[str, float]] = {"dense": {}, "bm25": {}}
        for of, name, doc, score in store.rows("SELECT query, list, doc, score FROM retrieved"):
            if of == query:
                scores[name][doc] = score
        fused: dict[str, float] = {}
        for found in scores.values():
            for doc, score in found.items():
                above = sum(other > score for other in found.values())
                level = sum(other == score for other in found.values())
                fused[doc] = fused.get(doc, 0.0) + 1 / (60 + above + (level + 1) / 2)
        best = sorted(fused, key=lambda doc: (-round(fused[doc], 12), doc))[:6]
        rows = store.rows("SELECT doc, rrf FROM pool WHERE query = ? ORDER BY position", (query,))
        assert [doc for doc, _ in rows] == best
        assert [rrf for _, rrf in rows] == pytest.approx([fused[doc] for doc in best])


def test_rewritten_questions_are_searched_and_the_judge_sees_the_original(
    store: Store, corpus: Path
) -> None:
    (corpus / "queries.jsonl").write_text(
        json.dumps({"_id": "q0", "text": "Hello! Could you please tell me, what of whales?"}) + "\n"
    )
    build = built(store, settings(corpus, rewriter={"type": "rules"}))
    ((text, asked),) = store.rows("SELECT text, asked FROM queries")
    assert text.startswith("Hello!")
    assert "Hello" not in asked
    assert "whales" in asked
    assert build.pools()[0].question == text


def test_another_rewriter_rewrites_every_query_again(store: Store, corpus: Path) -> None:
    (corpus / "queries.jsonl").write_text(
        json.dumps({"_id": "q0", "text": "Hello! Could you please tell me, what of whales?"}) + "\n"
    )
    built(store, settings(corpus))
    assert store.rows("SELECT text = asked FROM queries") == [(1,)]
    rules = settings(corpus, rewriter={"type": "rules"})
    assert Build(rules, store).run() == ALL
    ((asked,),) = store.rows("SELECT asked FROM queries")
    assert "Hello" not in asked
    Build(settings(corpus), store).run()
    assert store.rows("SELECT text = asked FROM queries") == [(1,)]


def test_only_judged_queries_and_samples_are_seeded(corpus: Path, tmp_path: Path) -> None:
    with (corpus / "queries.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "unjudged", "text": "nobody labelled this"}) + "\n")
    names = []
    for number, seed in enumerate((0, 0, 1, 2, 3)):
        with Store(tmp_path / f"{number}.golden", create=True) as store:
            chosen = settings(corpus, only_judged=True, sample=2, seed=seed)
            Build(chosen, store).run("rewrite")
            names.append(tuple(q for (q,) in store.rows("SELECT query FROM queries")))
    assert names[0] == names[1]
    assert len(set(names)) > 1
    assert all("unjudged" not in found and len(found) == 2 for found in names)


def test_a_larger_sample_of_queries_holds_the_smaller_one(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, rows in (("corpus", 3), ("queries", 60)):
        lines = [json.dumps({"_id": f"{name[0]}{n}", "text": f"text {n}"}) for n in range(rows)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    samples = [
        {query for query, _ in read_inputs(settings(folder, sample=size, seed=3)).queries}
        for size in (3, 7, 30, 59)
    ]
    assert [len(sample) for sample in samples] == [3, 7, 30, 59]
    assert all(small < large for small, large in pairwise(samples))


def test_with_a_true_judge_the_order_is_the_true_one_where_grades_differ(
    store: Store, corpus: Path
) -> None:
    with loopback(honest) as server:
        judge = {"type": "llm", "url": server.url, "model": "m"}
        built(store, settings(corpus, judge=judge, ranking={"budget": 40, "target": 1.0}))
    for query in read_golden(store).queries:
        assert [p.grade for p in query.passages] == sorted(
            (truth(query.query, p.doc) for p in query.passages), reverse=True
        )


def failing(sent: Sent) -> Reply:
    """Cannot grade the third query."""
    return Reply.of({"choices": [{"message": {"content": "no"}}]}) if "case 2" in str(
        sent.json["messages"][1]
    ) else honest(sent)  # fmt: skip


def test_failed_judgments_are_counted_and_never_become_grades(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    with loopback(failing) as server:
        judge = {"type": "llm", "url": server.url, "model": "m"}
        chosen = settings(corpus, judge=judge)
        built(store, chosen)
        counts = read_golden(store).counts
        assert (counts.total, counts.graded, counts.failed) == (36, 24, 12)
        with pytest.raises(TooManyFailed, match=r"12 of 36 judgements failed \(33.3%"):
            export_files(store, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        written = export_files(store, tmp_path / "out", max_failed=0.4)
        qrels = rp.read_qrels(written["qrels.txt"])
        assert sorted(qrels.queries) == ["q0", "q1"]
        lines = [json.loads(line) for line in written["golden.jsonl"].read_text().splitlines()]
        lost = next(line for line in lines if line["query"] == "q2")
        assert {p["grade"] for p in lost["passages"]} == {None}
        assert {p["failure"] for p in lost["passages"]} == {"the reply holds no JSON object"}
        assert "failed: the reply holds no JSON object" in written["index.html"].read_text()
        assert read_status(store).failed == 12

        store.add_correction("q2", "d1", "grade", 4, who="ada")
        assert read_golden(store).counts.failed == 11

    with loopback(honest) as server:  # it works now
        judge["url"] = server.url
        again = Build(settings(corpus, judge=judge), store)
        assert again.retry_failed() == 6  # two batches, and one in the parts that it was asked in
        assert again.run("grade") == ["grade"]
        assert len(server.requests) == 6
        again.run()
        assert again.retry_failed() == 0
        assert again.run() == []
    assert read_golden(store).counts.failed == 0


def test_orders_that_failed_are_counted_and_refused(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    def no_orders(sent: Sent) -> Reply:
        no = Reply.of({"choices": [{"message": {"content": "no"}}]})
        return no if ordering(sent) else honest(sent)

    with loopback(no_orders) as server:
        built(store, settings(corpus, judge={"type": "llm", "url": server.url, "model": "m"}))
    counts = read_golden(store).counts
    assert (counts.failed, counts.orders, counts.orders_failed) == (0, 48, 48)
    found = read_status(store)
    assert (found.orders, found.orders_failed) == (0, 48)  # those of parts are calls as well
    assert found.steps[-1].what == "0 orders, 48 failed; ended 3 by budget"
    with pytest.raises(TooManyFailed, match=r"48 of 48 calls for an order failed \(100.0%"):
        export_files(store, tmp_path / "out")
    written = export_files(store, tmp_path / "out", max_failed=1)
    line = json.loads(written["golden.jsonl"].read_text().splitlines()[0])
    assert (line["calls"], line["calls_failed"]) == (18, 18)


def test_passages_graded_in_two_ways_are_counted_once_while_grading(
    store: Store, corpus: Path
) -> None:
    built(store, settings(corpus))
    build = Build(settings(corpus, grading={"batch": 4}), store)
    build.run("grade")
    store.set_meta("done", {})
    found = read_status(store)
    assert (found.graded, found.failed, found.to_dict()["waiting"]) == (36, 0, 0)


# -------------------------------------------------------------------------------------- exports


def test_exports_are_what_other_tools_read(store: Store, corpus: Path, tmp_path: Path) -> None:
    with loopback(honest) as server:
        judge = {"type": "llm", "url": server.url, "model": "m"}
        built(store, settings(corpus, judge=judge))
    written = export_files(store, tmp_path / "out")
    qrels = rp.read_qrels(written["qrels.txt"]).to_frame().rows()
    assert sorted(qrels) == sorted(
        (f"q{q}", f"d{d}", truth(f"q{q}", f"d{d}")) for q in range(3) for d in range(12)
    )
    beir = read_corpus(tmp_path / "out" / "beir")
    assert (len(beir.documents), beir.query_ids) == (12, ["q0", "q1", "q2"])
    assert beir.documents[beir.document_ids.index("d3")].startswith("passage number d3 ")
    grades = rp.read_qrels(written["beir/qrels/test.tsv"]).to_frame()["grade"].to_list()
    assert sorted(grades) == sorted({5: 2, 4: 1}.get(grade, 0) for _, _, grade in qrels)
    graded = rp.read_qrels(beir.qrels)  # what a sweep of the folder takes, with its scale
    assert graded.to_frame().rows() == sorted(qrels)
    assert graded.scale == rp.read_qrels(written["qrels.txt"]).scale == SET_SCALE
    run = rp.read_run(written["ranking.trec"])
    table = {
        (query, doc): rank
        for query, doc, rank in store.rows("SELECT query, doc, rank FROM ranking")
    }
    assert len(run) == len(table) == 36
    for query in ("q0", "q1", "q2"):
        mine = run.to_frame().filter(query=query).sort("score", descending=True)["doc"].to_list()
        assert mine == sorted(mine, key=lambda doc: table[query, doc])
    manifest = json.loads(written["manifest.json"].read_text())
    assert manifest["judge"]["name"] == "m"
    assert manifest["counts"]["graded"] == 36
    assert manifest["inputs"]["corpus"]["file"] == "corpus.jsonl"
    assert str(tmp_path) not in written["manifest.json"].read_text()
    assert not [name for name in written if "simulated" in name]


def test_a_simulated_golden_set_says_so_everywhere(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    built(store, settings(corpus))
    written = export_files(store, tmp_path / "out")
    assert "qrels.txt" not in written
    rows = written["qrels.simulated.txt"].read_text().splitlines()
    assert {row.split()[1] for row in rows} == {"simulated"}
    runs = written["ranking.simulated.trec"].read_text().splitlines()
    assert {row.split()[5] for row in runs} == {"golden.simulated"}
    for name in ("golden.simulated.jsonl", "replies.simulated.jsonl"):
        assert all(json.loads(line)["simulated"] for line in written[name].read_text().splitlines())
    assert json.loads(written["manifest.json"].read_text())["simulated"] is True
    assert "SIMULATED" in written["README.md"].read_text()
    assert 'role="alert"><strong>Simulated.' in written["index.html"].read_text()
    assert all(name.startswith("beir-simulated/") for name in written if "beir" in name)


def test_an_export_can_be_replayed_without_the_judge(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    with loopback(honest) as server:
        built(store, settings(corpus, judge={"type": "llm", "url": server.url, "model": "m"}))
    first = export_files(store, tmp_path / "out")
    replay = {"type": "replay", "replies": str(first["replies.jsonl"])}
    with Store(tmp_path / "again.golden", create=True) as other:
        built(other, settings(corpus, judge=replay))
        second = export_files(other, tmp_path / "out2")
    for name in ("qrels.txt", "ranking.trec", "beir/qrels/test.tsv"):
        assert first[name].read_bytes() == second[name].read_bytes()
    assert json.loads(second["manifest.json"].read_text())["judge"]["name"] == "m (replayed)"


@pytest.mark.parametrize("recorded", ["set.golden", "out/replies.jsonl"])
def test_a_replay_uses_the_current_judges_replies_and_not_those_of_earlier_judges(
    corpus: Path, tmp_path: Path, recorded: str
) -> None:
    def answer(sent: Sent) -> Reply:
        if sent.json["model"] == "m" or ordering(sent):
            return honest(sent)
        return reply(json.dumps({name: 3 for name, _ in shown(sent)[1]}))

    with loopback(answer) as server, Store(tmp_path / "set.golden", create=True) as store:
        for model in ("m", "other", "m"):  # going back is free
            built(store, settings(corpus, judge={"type": "llm", "url": server.url, "model": model}))
        grades = store.rows("SELECT query, doc, grade FROM grades ORDER BY 1, 2")
        export_files(store, tmp_path / "out")
    replay = {"type": "replay", "replies": str(tmp_path / recorded)}
    with Store(tmp_path / "again.golden", create=True) as again:
        built(again, settings(corpus, judge=replay))
        assert again.rows("SELECT query, doc, grade FROM grades ORDER BY 1, 2") == grades
        assert again.meta("judge")["name"] == "m (replayed)"


def test_the_replies_of_two_judges_are_not_replayed_as_one(corpus: Path, tmp_path: Path) -> None:
    with loopback(honest) as server, Store(tmp_path / "set.golden", create=True) as store:
        two = {name: {"type": "llm", "url": server.url, "model": name} for name in ("a", "b")}
        built(store, settings(corpus, judge={"type": "panel", "judges": two}))
        export_files(store, tmp_path / "out")
    for recorded in ("set.golden", "out/replies.jsonl"):
        with pytest.raises(
            InputError, match=r"'a' and 'b' answered the same request.*of one judge"
        ):
            ReplayJudge(tmp_path / recorded)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_escapes_every_text_and_loads_nothing(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    evil = '<script>alert(1)</script><img src=http://x/y onerror=z> whales & "quotes" <b>'
    lines = [{"_id": "<i>d</i>", "text": evil, "source": "<u>"}]
    lines += [{"_id": f"d{n}", "text": f"whales {n}"} for n in range(3)]
    (corpus / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (corpus / "queries.jsonl").write_text(
        json.dumps({"_id": "<q>", "text": f"whales? {evil}"}) + "\n"
    )
    built(store, settings(corpus))
    text = export_files(store, tmp_path / "out")["index.html"].read_text()
    parser = Tags()
    parser.feed(text)
    tags = {tag for tag, _ in parser.found}
    assert not tags & {"script", "img", "i", "b", "u", "link", "iframe"}
    assert not [1 for _, attributes in parser.found if {"src", "href", "onerror"} & set(attributes)]
    assert "&lt;script&gt;" in text


def test_corrections_flow_into_exports(store: Store, corpus: Path, tmp_path: Path) -> None:
    built(store, settings(corpus))
    before = read_golden(store).queries[0]
    last = before.passages[-1]
    others = [p.doc for p in before.passages[:-1]]
    first = store.add_correction("q0", last.doc, "rank", 1, who="ada", above=others)
    store.add_correction("q0", last.doc, "grade", 5, who="ada", note="it answers")
    after = read_golden(store).queries[0]
    assert [p.doc for p in after.passages] == [last.doc, *(p.doc for p in before.passages[:-1])]
    assert [p.rank for p in after.passages] == list(range(1, 13))
    assert (after.passages[0].grade, after.passages[0].judged) == (5, last.judged)
    written = export_files(store, tmp_path / "out")
    assert f"q0 simulated {last.doc} 5" in written["qrels.simulated.txt"].read_text()
    run = rp.read_run(written["ranking.simulated.trec"]).to_frame().filter(query="q0")
    assert run.sort("score", descending=True)["doc"][0] == last.doc
    changes = [json.loads(x) for x in written["corrections.jsonl"].read_text().splitlines()]
    assert [(c["who"], c["field"], c["new"]) for c in changes] == [
        ("ada", "rank", 1),
        ("ada", "grade", 5),
    ]
    store.undo(first, who="ada")
    store.undo(2, who="ada")
    assert read_golden(store).queries[0] == before


def test_the_page_strikes_out_no_rank_of_a_passage_that_the_judge_did_not_rank(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    built(store, settings(corpus, pruning={"target": 4, "size": 4, "negatives": 1}))
    passages = read_golden(store).queries[0].passages
    unranked = next(p for p in passages if p.rank is None)
    store.add_correction("q0", unranked.doc, "grade", 5, who="ada")
    joined = next(p for p in read_golden(store).queries[0].passages if p.doc == unranked.doc)
    assert joined.rank is not None
    assert joined.judged_rank is None
    text = export_files(store, tmp_path / "out")["index.html"].read_text()
    assert f'<td class="n">{joined.rank}</td>' in text
    assert "None" not in text


def test_grades_that_people_confirm_are_validated_and_those_they_change_are_corrected(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    built(store, settings(corpus))
    same, other, moved, back = read_golden(store).queries[0].passages[:4]
    assert same.judged
    assert back.judged
    store.add_correction("q0", same.doc, "grade", same.judged, who="ada")
    store.add_correction("q0", other.doc, "grade", 1 if other.judged == 5 else 5, who="ada")
    store.add_correction("q0", moved.doc, "rank", 1, who="ada", above=[same.doc, other.doc])
    store.add_correction("q0", back.doc, "grade", 1 if back.judged == 5 else 5, who="ada")
    store.add_correction("q0", back.doc, "grade", back.judged, who="ada")  # as the judge, after all
    changed = {moved.doc, other.doc}
    counts = read_golden(store).counts
    assert (counts.validated, counts.corrected) == (3, 2)
    assert (read_status(store).validated, read_status(store).corrected) == (3, 2)
    written = export_files(store, tmp_path / "out")
    lines = [json.loads(x) for x in written["golden.simulated.jsonl"].read_text().splitlines()]
    told = {p["doc"]: p for p in lines[0]["passages"]}
    assert {doc for doc, p in told.items() if p["validated"]} == {same.doc, other.doc, back.doc}
    assert {doc for doc, p in told.items() if p["corrected"]} == changed
    made = json.loads(written["manifest.json"].read_text())["counts"]
    assert (made["validated"], made["corrected"]) == (3, 2)
    words = "3 validated and 2 corrected by people"
    assert words in written["index.html"].read_text()
    assert words in written["README.md"].read_text().replace("\n", " ")


def test_the_ranking_as_a_run_is_in_the_order_of_its_ranks(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    # The seed's locks hold a passage above one of a higher score.
    chosen = settings(corpus, ranking={"method": "seed-code", "budget": 30}, seed=1)
    built(store, chosen)
    golden = read_golden(store)
    means = [[p.mean or 0.0 for p in query.passages] for query in golden.queries]
    assert any(sorted(each, reverse=True) != each for each in means)
    written = export_files(store, tmp_path / "out")
    frame = rp.read_run(written["ranking.simulated.trec"]).to_frame()
    for query in golden.queries:
        run = frame.filter(query=query.query).sort("score", descending=True)
        assert run["doc"].to_list() == [p.doc for p in query.passages]


def test_locks_are_exported_with_their_certainty(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    built(store, settings(corpus, ranking={"budget": 40, "target": 1.0}))
    written = export_files(store, tmp_path / "out")
    for line in written["golden.simulated.jsonl"].read_text().splitlines():
        query = json.loads(line)
        rank = {p["doc"]: p["rank"] for p in query["passages"]}
        assert query["locks"]
        for above, below, certainty in query["locks"]:
            assert rank[above] < rank[below]
            assert 0.95 <= certainty <= 1


def test_a_manifest_names_no_folder(store: Store, corpus: Path, tmp_path: Path) -> None:
    model = str(tmp_path / "models" / "mine")
    embedder = {"type": "sentence-transformers", "model": model}  # never loaded: depths.dense is 0
    built(store, settings(corpus, embedder=embedder))
    text = export_files(store, tmp_path / "out")["manifest.json"].read_text()
    assert json.loads(text)["config"]["embedder"]["model"] == "mine"
    assert str(tmp_path) not in text


def test_nothing_is_exported_before_it_is_graded(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is graded yet"):
        export_files(store, tmp_path / "out")


# ------------------------------------------------------------------------------------- planning


def test_a_plan_sends_nothing_and_is_close(store: Store, corpus: Path) -> None:
    with loopback(honest) as server:
        price = {"input_per_1m": 3.0, "output_per_1m": 5.0}
        judge = {"type": "llm", "url": server.url, "model": "m", "price": price}
        chosen = settings(corpus, judge=judge)
        plan = make_plan(chosen, None)
        assert server.requests == []
        assert [(s.stage, s.calls) for s in plan.steps] == [
            *(("rewrite", 0), ("grade", 3 * 3), ("rank", 3 * 12))
        ]
        built(store, chosen)
        told = sum(
            len(str(r.json["messages"])) for r in server.requests if "grade how" in str(r.json)
        )
    grade = plan.steps[1]
    assert grade.tokens_in == pytest.approx(told / 4, rel=0.15)
    assert grade.cost == pytest.approx((grade.tokens_in * 3 + grade.tokens_out * 5) / 1e6)
    assert grade.worst is not None
    assert grade.worst > 4 * (grade.cost or 0)
    longer = settings(corpus, judge=judge, ranking={"budget": 14, "target": 1.0})
    more = make_plan(longer, store).steps[-1]
    assert more.calls == 3 * 2
    assert (more.tokens_in, more.tokens_out) == (6 * 100, 6 * 10)  # as the server counted
    assert more.seconds is not None
    later = make_plan(chosen, store)
    assert [(s.calls, s.stored) for s in later.steps[1:]] == [(0, 9), (0, 36)]
    assert later.cost == 0


def test_a_judge_without_a_price_has_no_cost_rather_than_none(corpus: Path) -> None:
    judge = {"type": "llm", "url": "http://127.0.0.1:1", "model": "never heard of"}
    plan = make_plan(settings(corpus, judge=judge), None)
    assert plan.cost is None
    assert "the price of never heard of is not known" in plan.prices


# ------------------------------------------------------------------------------------- checking


@pytest.mark.parametrize(
    ("_id", "words"), [("#7", "queries that begin otherwise"), ("q 7", "without spaces")]
)
def test_a_query_that_its_own_export_would_lose_is_refused(
    corpus: Path, _id: str, words: str, store: Store
) -> None:
    """A line of TREC that begins with # is a comment: the query would be gone from every figure."""
    with (corpus / "queries.jsonl").open("a") as file:
        file.write(json.dumps({"_id": _id, "text": "what of whales?"}) + "\n")
    with pytest.raises(InputError, match=f"'{_id}' cannot be an id in a TREC file.*{words}"):
        built(store, settings(corpus))


def test_agreement_with_people_is_of_the_judges_own_grades(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    with loopback(honest) as server:
        built(store, settings(corpus, judge={"type": "llm", "url": server.url, "model": "m"}))
    golden = read_golden(store)
    labels = tmp_path / "people.txt"
    pairs = [(f"q{q}", f"d{d}") for q in range(3) for d in range(12)]
    labels.write_text("".join(f"{q} 0 {d} {truth(q, d)}\n" for q, d in pairs))
    found = compare_with_people(golden, labels)
    assert (found.scale, found.pairs) == ("1–5", 36)
    assert found.agreement.coefficients["κ"].value == 1
    assert (found.found, found.true) == (1, 1)

    only = [(q, d) for q, d in pairs if truth(q, d) == 5]  # people marked the best alone
    labels.write_text("".join(f"{q} 0 {d} 1\n" for q, d in only))
    with pytest.raises(InputError, match=r"labels only what is relevant.*--unjudged zero"):
        compare_with_people(golden, labels)
    zero = compare_with_people(golden, labels, unjudged="zero")
    asked = {q for q, _ in only}  # a query without any label says nothing
    judged = np.array([truth(q, d) >= 4 for q, d in pairs if q in asked])
    human = np.array([truth(q, d) == 5 for q, d in pairs if q in asked])
    observed = np.mean(judged == human)
    chance = judged.mean() * human.mean() + (1 - judged.mean()) * (1 - human.mean())
    assert zero.pairs == len(human) == 12 * len(asked)
    assert zero.agreement.coefficients["κ"].value == pytest.approx(
        (observed - chance) / (1 - chance)
    )
    assert zero.found == 1
    assert zero.true == pytest.approx(human.sum() / judged.sum())
    labels.write_text("other 0 d1 1\n")
    with pytest.raises(InputError, match="no passage has both"):
        compare_with_people(golden, labels)
    labels.write_text("q0 0 elsewhere 1\n")  # of other documents: nobody said a word of these
    with pytest.raises(InputError, match="no passage has both"):
        compare_with_people(golden, labels, unjudged="zero")
    store.add_correction("q0", "d0", "grade", truth("q0", "d0") % 5 + 1, who="ada")
    corrected = compare_with_people(read_golden(store))
    assert (corrected.source, corrected.pairs) == ("corrections", 1)
    assert corrected.agreement.coefficients["exact"].value == 0


def test_unlabeled_passages_count_as_1_on_the_rubric(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    built(store, settings(corpus))
    golden = read_golden(store)
    judged = next(iter(golden.grades_by_judge().values()))
    labels = tmp_path / "labels.txt"
    some = {pair: grade for pair, grade in judged.items() if grade != 1}
    labels.write_text("".join(f"{q} 0 {d} {grade}\n" for (q, d), grade in some.items()))
    found = compare_with_people(golden, labels, unjudged="zero")
    assert (found.scale, found.pairs) == ("1–5", len(judged))
    assert found.agreement.coefficients["exact"].value == 1
    assert found.lines()[0] == f"{len(judged)} passages, labels on a 1–5 scale; relevant: 4 or more"


def test_without_relevant_labels_shares_and_means_are_undefined(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    built(store, settings(corpus))
    labels = tmp_path / "labels.txt"
    labels.write_text("q0 0 d0 0\nq0 0 d1 0\n")
    found = compare_with_people(read_golden(store), labels)
    compared, shares, means = found.lines()
    assert compared.endswith("binary scale; relevant: 1 or more, the judge's 4 or more")
    assert shares.startswith("people call none of them relevant; ")
    assert means == f"its mean grade: {found.means[1]:.2f} elsewhere"


def test_the_scale_of_human_labels_is_that_of_all_of_them(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    built(store, settings(corpus))
    labels = tmp_path / "labels.txt"
    labels.write_text("q0 0 d0 1\nq0 0 d1 2\nq0 0 elsewhere 5\n")  # of the pool, none is above 2
    found = compare_with_people(read_golden(store), labels)
    assert (found.scale, found.pairs) == ("1–5", 2)
    said = compare_with_people(read_golden(store), labels, relevant=2)  # of another scale, then
    assert (said.scale, said.relevant) == ("binary", 2)


def test_a_judge_is_asked_again_past_the_cache_and_each_repeat_is_stored(
    store: Store, corpus: Path
) -> None:
    with loopback(honest) as server:
        judge = {"type": "llm", "url": server.url, "model": "m"}
        build = built(store, settings(corpus, judge=judge))
        calls = len(server.requests)
        (found,) = repeat_grading(build, sample=4, repeats=2).values()
        assert len(server.requests) == calls + 4 * 2
        assert found.figures.exact.value == 1
        assert found.passages == found.figures.exact.items
        repeat_grading(build, sample=4, repeats=2)
        assert len(server.requests) == calls + 4 * 2
    again = store.replies("repeat > 0")
    assert len({(r.query, tuple(sorted(r.documents))) for r in again}) == 4
    assert len({(r.query, r.documents) for r in again}) > 4  # shown in another order


def test_a_judge_that_contradicts_itself_is_detected(store: Store, corpus: Path) -> None:
    judge = {"type": "simulated", "wrong": 0.5}
    build = built(store, settings(corpus, judge=judge))
    (found,) = repeat_grading(build, sample=9, repeats=3).values()
    assert 0.2 < found.figures.exact.value < 0.9
    assert found.figures.difference.value > 0.1


# ---------------------------------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"judge": {"type": "lmm"}}, "did you mean 'llm'"),
        ({"judge": "simulated"}, "judge: 'simulated' where keys belong; write {type:"),
        ({"judge": {"type": "llm", "model": "m"}}, "'judge.url' is missing"),
        ({"judge": {"type": "llm", "model": "m", "url": "localhost:8000"}}, "is not an address"),
        ({"depths": {"dense": 0, "bm25": 0}}, "both 0"),
        ({"graeding": {}}, "did you mean 'grading'"),
        ({"ranking": {"batch": 1}}, "ranking.batch"),
        ({"limits": {"max_cost": -1}}, "limits.max_cost"),
    ],
)
def test_a_wrong_configuration_is_one_line(
    corpus: Path, change: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        settings(corpus, **change)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ids_that_no_trec_file_can_hold_are_refused(store: Store, corpus: Path) -> None:
    for name in ("a b", "", "\ud800", "a\x00b"):
        (corpus / "queries.jsonl").write_text(json.dumps({"_id": name, "text": "whales?"}) + "\n")
        with pytest.raises(InputError, match=r"\bid\b|half a surrogate"):
            Build(settings(corpus), store)


def test_a_query_without_results_stays_in_the_set_with_an_empty_pool(
    store: Store, corpus: Path, tmp_path: Path
) -> None:
    with (corpus / "queries.jsonl").open("a") as file:
        file.write(json.dumps({"_id": "lost", "text": "zzz"}) + "\n")
    built(store, settings(corpus))
    lost = read_golden(store).queries[-1]
    assert (lost.query, lost.passages, lost.reason) == ("lost", [], None)
    assert "lost" in export_files(store, tmp_path / "out")["golden.simulated.jsonl"].read_text()


def test_the_seed_rule_can_be_chosen(store: Store, corpus: Path) -> None:
    built(store, settings(corpus, ranking={"method": "seed", "budget": 8}))
    assert store.rows("SELECT COUNT(*) FROM ranking") == [(36,)]


def test_a_file_of_queries_needs_no_qrels(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d", "text": "of whales"}) + "\n")
    mine = tmp_path / "mine.jsonl"
    mine.write_text(json.dumps({"_id": "q", "text": "whales, case 0?"}) + "\n")
    with loopback(
        lambda sent: Reply.of({"choices": [{"message": {"content": '{"A": 4}'}}]})
    ) as server:
        judge = {"type": "llm", "url": server.url, "model": "m"}
        built(store, settings(folder, queries=str(mine), judge=judge))
    (query,) = read_golden(store).queries
    (passage,) = query.passages
    assert (passage.grade, passage.rank, query.calls) == (4, 1, 0)
    assert replace(passage, text="") != passage


class Mine:
    """A judge of a user's own: every passage gets the same grade."""

    name, simulated, parallel = "mine", False, False

    def __init__(self, grade: int):
        self.grade, self.model, self.parameters = grade, "constant", {"grade": grade}
        self.asked = 0

    def prepare(self, pools: Any) -> None: ...

    def close(self) -> None: ...

    def ask(self, request: Any) -> Any:
        from rankproof.retrieval.chat import Answer

        self.asked += 1
        value: Any = dict.fromkeys(request.labels, self.grade)
        if request.kind == "order":
            value = {"order": list(request.labels)}
        return Answer(json.dumps(value), 1, 1, 0.0, self.model)


def test_a_judge_given_as_an_object_is_used_and_shares_no_grades_with_others(
    store: Store, corpus: Path
) -> None:
    chosen = settings(corpus)
    four = Mine(4)
    assert Build(chosen, store, judge=four).run() == ALL
    assert four.asked
    assert {grade for (grade,) in store.rows("SELECT grade FROM grades")} == {4}
    assert store.meta("judge")["type"] == "test_golden_build:Mine"
    assert store.meta("judge")["simulated"] is False
    again = Mine(4)
    assert Build(chosen, store, judge=again).run() == []
    assert not again.asked
    two = Mine(2)
    Build(chosen, store, judge=two).run()
    assert two.asked == four.asked
    assert {grade for (grade,) in store.rows("SELECT grade FROM grades")} == {2}
    assert Build(chosen, store, judge=again).run()[0] == "grade"
    assert {grade for (grade,) in store.rows("SELECT grade FROM grades")} == {4}
    assert not again.asked  # what it said before is known


def test_the_settings_may_hold_a_judge_object(tmp_path: Path, corpus: Path) -> None:
    chosen = settings(corpus)
    given = GoldenSettings(**{**dict(chosen), "judge": Mine(3)})
    with Store(tmp_path / "given.golden", create=True) as store:
        assert Build(given, store).run() == ALL
        assert {grade for (grade,) in store.rows("SELECT grade FROM grades")} == {3}
        export_files(store, tmp_path / "out")
    assert "Mine" in (tmp_path / "out" / "manifest.json").read_text()


class Engine:
    """A retriever of a user's own, which finds what words do not."""

    name, bytes, build_seconds, fingerprint = "engine", 0, 0.0, "engine"

    def search(self, queries: Any, k: int, query_ids: Any = None) -> Any:
        from rankproof.retrieval.protocols import Retrieved
        from rankproof.retrieval.ranked_lists import run_from_rows

        found = [(np.array([1, 0]), np.array([2.0, 1.0])) for _ in queries]
        ids = pl.Series(["d3", "d7"])
        run = run_from_rows(self.name, query_ids, ids, found, "float64", None)
        return Retrieved(run, np.zeros(len(found)))


def test_a_search_engine_of_the_user_fills_the_pool_too(store: Store, corpus: Path) -> None:
    chosen = settings(
        corpus, depths={"dense": 0, "bm25": 0, "pool": 50}, retrievers={"mine": Engine()}
    )
    Build(chosen, store).run("rewrite")
    Build(chosen, store).run("retrieve")
    Build(chosen, store).run("merge")
    assert set(store.rows("SELECT DISTINCT list FROM retrieved")) == {("mine",)}
    assert {doc for (doc,) in store.rows("SELECT doc FROM pool")} == {"d7", "d3"}
