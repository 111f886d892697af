"""Answers from prompts: scored by the definition, asked once, set beside the sets behind them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import Loopback, Reply, Request, loopback
from small_corpus import TOPICS, write_corpus

from rankproof.data import read_run
from rankproof.data.beir import read_answers
from rankproof.foundation.errors import InputError
from rankproof.tradeoffs import accuracy_given_hit
from rankproof.tradeoffs.answers import (
    ACCURACY,
    AnswersSettings,
    ChatSettings,
    abstains,
    correlations,
    exact,
    f1,
    prompt_documents,
    words_of,
)
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import Swept, sweep

# ------------------------------------------------------------------------------------ scores

texts = st.lists(
    st.sampled_from(["the", "Cat", "sat", "on", "mat.", "图", "l’eau"]), max_size=6
).map(" ".join)


@given(texts, st.lists(texts, min_size=1, max_size=3))
def test_f1_and_exact_are_their_definitions(answer: str, references: list[str]) -> None:
    def by_definition(a: list[str], b: list[str]) -> float:
        shared = sum(min(a.count(word), b.count(word)) for word in set(a))
        if not shared:
            return 0.0
        precision, recall = shared / len(a), shared / len(b)
        return 2 * precision * recall / (precision + recall)

    said = words_of(answer)
    assert f1(answer, references) == pytest.approx(
        max(by_definition(said, words_of(known)) for known in references)
    )
    assert exact(answer, references) == float(said in [words_of(known) for known in references])


def test_words_are_compared_without_case_punctuation_and_articles() -> None:
    assert words_of("The  Eiffel-Tower, a TOWER!") == ["eiffel", "tower", "tower"]
    assert words_of("図書館 in Kyoto") == ["図", "書", "館", "in", "kyoto"]
    assert exact("the Eiffel tower.", ["Eiffel Tower"]) == 1.0


@pytest.mark.parametrize("said", ["I do not know.", "I don't know", "Je ne sais pas !", " ", "—"])
def test_an_abstention_is_told(said: str) -> None:
    assert abstains(said)


def test_an_answer_that_speaks_of_knowing_is_none() -> None:
    assert not abstains("They do not know it themselves")


# ----------------------------------------------------------------------------------- prompts


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.integers(1, 6))
def test_two_prompts_differ_only_where_a_tie_straddles_the_end(scores: list[int], k: int) -> None:
    docs = [f"d{at}" for at in range(len(scores))]
    run = read_run({"q": dict(zip(docs, map(float, scores), strict=True))})
    frame = prompt_documents(run, k)
    found = {order: tuple(given) for _, order, given in frame.iter_rows()}
    possible = {
        frozenset(order[:k])
        for order in permutations(docs)
        if list(order) == sorted(order, key=lambda d: -scores[int(d[1:])])
    }
    assert frozenset(found["stated"]) in possible
    assert frozenset(found["reversed"]) in possible
    assert (found["stated"] != found["reversed"]) == (len(possible) > 1)


# -------------------------------------------------------------------------------- in a sweep

Says = Callable[[str], str]


def serve(says: Says) -> Callable[[Request], Reply]:
    def reply(request: Request) -> Reply:
        user = request.json["messages"][1]["content"]
        message = {"role": "assistant", "content": says(user)}
        usage = {"prompt_tokens": len(user.split()), "completion_tokens": 3}
        return Reply.of({"model": "m", "choices": [{"message": message}], "usage": usage})

    return reply


def knows(user: str) -> str:
    """Answers rightly where the passage that answers is there, and abstains where none is near."""
    topic = next(name for name, about in TOPICS.items() if about in user.split("Question: ")[1])
    if f"{topic} 0" in user:
        return f"It is {topic}."
    return "I do not know" if topic in ("ice", "glass") else "Something else"


def corpus(folder: Path) -> Path:
    """The small corpus, with an answer to all questions but one."""
    write_corpus(folder)
    file = folder / "queries.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows[:-1]:
        row["answer"] = f"it is {row['_id'].removeprefix('ask-')}"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def settings(server: Loopback, place: Path, **answers: object) -> SweepSettings:
    asked = {"generator": {"url": f"{server.url}/v1", "model": "m"}, **answers}
    prices = place.parent / "prices.yaml"
    prices.write_text("date: 2026-11\nsource: us\nmodels: {m: 2}\n")
    return SweepSettings.model_validate(
        {"corpus": place, "modes": ["sparse", "hybrid"], "pools": [12], "prompts": [2, 5]}
        | {"at": [3, 5], "answers": asked, "prices": prices, "fusion": {"depth": 12}}
        | {"latency": {"queries": 2, "repeats": 1, "warmup": 0}}
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Swept, list[Request]]:
    pytest.importorskip("wordllama")
    place = tmp_path_factory.mktemp("answers")
    with loopback(serve(knows)) as server:
        found = sweep(settings(server, corpus(place / "corpus")), place / "out")
        return found, list(server.requests)


def test_each_distinct_prompt_is_asked_once_and_shared(made: tuple[Swept, list[Request]]) -> None:
    swept, requests = made
    told = pl.read_parquet(swept.folder / "answers.parquet")
    assert told["query"].n_unique() == 5  # one has no reference
    asked = Counter(request.json["messages"][1]["content"] for request in requests)
    assert set(asked.values()) == {1}
    assert len(asked) == told["prompt"].n_unique()
    pairs = told.select("configuration", "query").n_unique()
    assert pairs == 4 * 5
    assert len(asked) < pairs
    assert swept.manifest["answers"]["prompts"] == len(asked)


def test_rows_say_accuracy_abstentions_cost_and_accuracy_given_hit(
    made: tuple[Swept, list[Request]],
) -> None:
    swept, _ = made
    told = pl.read_parquet(swept.folder / "answers.parquet")
    qrels = pl.read_parquet(swept.folder / "judgements.parquet")
    for row in swept.configurations.iter_rows(named=True):
        mine = told.filter(pl.col("configuration") == row["configuration"])
        each = mine.group_by("query").agg(pl.mean("correct"), pl.mean("abstained"))
        assert row[ACCURACY] == pytest.approx(each["correct"].mean())
        assert row["abstained"] == pytest.approx(each["abstained"].mean())
        assert row["answers"] == 5
        assert row[f"{ACCURACY} low"] <= row[ACCURACY] <= row[f"{ACCURACY} high"]
        tokens = mine.group_by("query").agg(total=pl.mean("tokens_in") + pl.mean("tokens_out"))
        mean = tokens["total"].to_numpy().mean()
        assert row["answers_cost_per_1000"] == pytest.approx(1000 * 2 * mean / 1e6)
        correct = dict(each.select("query", "correct").iter_rows())
        hit = accuracy_given_hit(swept.folder / row["run"], qrels, correct, row["prompt_k"])
        if not np.isnan(hit.expected):
            assert row["accuracy given hit"] == pytest.approx(hit.expected)
    words = " ".join(swept.manifest["answers"]["words"])
    assert "distinct prompts, which stand for 20 pairs" in words
    assert "RAnWG@prompt and " in words
    assert set(swept.manifest["answers"]["correlations"]) >= {"RAnWG@prompt", "Harm@prompt"}


def test_the_page_shows_the_answers(made: tuple[Swept, list[Request]], tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    from rankproof.report import write_report

    path, broken = write_report(made[0].folder, tmp_path / "page.html")
    text = path.read_text(encoding="utf-8")
    assert not broken
    assert "<h2>Answers: out</h2>" in text
    assert "Do better sets make better answers here?" in text


def test_nothing_is_asked_again_and_another_answer_is_scored_anew(
    made: tuple[Swept, list[Request]], tmp_path: Path
) -> None:
    swept, _ = made
    place = Path(swept.folder).parent / "corpus"
    queries = place / "queries.jsonl"
    before = queries.read_text()
    with loopback(serve(knows)) as server:
        chosen = settings(server, place)
        queries.write_text(before.replace("it is bees", "honey"))
        try:
            again = sweep(chosen, swept.folder)
        finally:
            queries.write_text(before)
        assert server.requests == []
    names = ("configuration", ACCURACY)
    assert again.configurations.select(names).rows() != swept.configurations.select(names).rows()


def test_a_judge_scores_and_a_reply_without_a_verdict_is_no_zero(tmp_path: Path) -> None:
    def judged(user: str) -> str:
        if "Right answer:" not in user:
            return knows(user)
        if "it is tides" in user:
            return "I cannot say."
        said = re.search(r"Given answer: It is (\w+)", user)
        right = said is not None and f"it is {said[1]}" in user
        return json.dumps({"verdict": "correct" if right else "partly"})

    with loopback(serve(judged)) as server:
        judge = {"url": f"{server.url}/v1", "model": "j"}
        swept = sweep(
            settings(server, corpus(tmp_path / "corpus"), judge=judge, score="judge"),
            tmp_path / "out",
        )
    told = pl.read_parquet(tmp_path / "out" / "answers.parquet")
    assert told.filter(pl.col("query") == "ask-tides")["correct"].is_null().all()
    assert set(told["correct"].drop_nulls().unique()) <= {0.0, 0.5, 1.0}
    assert told.filter("abstained")["correct"].fill_null(0.0).eq(0.0).all()
    assert set(swept.configurations["answers_unscored"]) == {1}


def test_without_references_and_with_half_a_judge_it_is_said(tmp_path: Path) -> None:
    with loopback(serve(knows)) as server:
        chosen = settings(server, write_corpus(tmp_path / "corpus"))
        with pytest.raises(InputError, match="no question has a reference answer"):
            sweep(chosen, tmp_path / "out")
        assert server.requests == []
    chat = ChatSettings(url="http://127.0.0.1:9", model="m")
    for half in ({"score": "judge"}, {"judge": chat}):
        with pytest.raises((InputError, ValueError), match="judge"):
            AnswersSettings.model_validate({"generator": chat, **half})


def test_references_are_read_from_a_line_or_its_metadata(tmp_path: Path) -> None:
    rows = [
        {"_id": "a", "text": "?", "answer": "one"},
        {"_id": "b", "text": "?", "answers": ["one", " ", "two"]},
        {"_id": "c", "text": "?", "metadata": {"answer": "three"}},
        {"_id": "d", "text": "?"},
    ]
    file = tmp_path / "queries.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_answers(file) == {"a": ["one"], "b": ["one", "two"], "c": ["three"]}


def test_the_correlation_of_sets_and_answers_is_pearsons() -> None:
    draw = np.random.default_rng(0)
    x, noise = draw.normal(size=(2, 3, 40))
    y = (x + noise > 0).astype(float)
    rows = [(f"c{c}", f"q{q}") for c in range(3) for q in range(40)]
    names, queries = zip(*rows, strict=True)
    told = pl.DataFrame({"configuration": names, "query": queries, "correct": y.ravel()})
    values = pl.DataFrame({"configuration": names, "query": queries, "value": x.ravel()})
    (found,) = correlations(told, values.with_columns(measure=pl.lit("RAnWG@3")), ["RAnWG@3"], 0)
    assert found.single.pearson == pytest.approx(np.corrcoef(x.ravel(), y.ravel())[0, 1])
    less = [v - v.mean(axis=0) for v in (x, y)]
    assert found.same is not None
    assert found.same.pearson == pytest.approx(np.corrcoef(*(v.ravel() for v in less))[0, 1])
    low, high = found.single.pearson_ci
    assert low < found.single.pearson < high
