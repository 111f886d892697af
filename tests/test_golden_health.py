"""The judge's health card: what the replies that are kept say of who gave them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from golden_sets import settings, truth, write_corpus
from laplace_fit import fit_posterior

from rankproof.golden.build_status import read_status
from rankproof.golden.building import Build
from rankproof.golden.export_files import export_files
from rankproof.golden.health import Health, count_repeated_pairs, judge_health
from rankproof.golden.judges import QueryPool
from rankproof.golden.plackett_luce import Posterior
from rankproof.golden.requests import Request
from rankproof.golden.store import Store
from rankproof.retrieval.chat import Answer


class Judge:
    """Sees the truth through Plackett–Luce noise; some of the time it does something else."""

    simulated = False
    parallel = False

    def __init__(self, habit: str = "", share: float = 0.0) -> None:
        self.name = self.model = f"{habit or 'honest'} {share}"
        self.parameters: dict[str, Any] = {}
        self.habit, self.share = habit, share

    def prepare(self, pools: Sequence[QueryPool]) -> None: ...

    def close(self) -> None: ...

    def ask(self, request: Request) -> Answer:
        drawn = np.random.default_rng(int(request.content[:15], 16))
        if request.kind == "grade":
            grades = [truth(request.query, doc) for doc in request.documents]
            if self.habit == "constant" and drawn.random() < self.share:
                grades = [3] * len(grades)
            return self._says(dict(zip(request.labels, grades, strict=True)))
        seen = [
            2.0 * truth(request.query, doc) + int(doc[1:]) / 12 + drawn.gumbel()
            for doc in request.documents
        ]
        if self.habit == "never wavers":
            seen = [truth(request.query, doc) + int(doc[1:]) / 12 for doc in request.documents]
        order = np.argsort(-np.array(seen)).tolist()
        if self.habit == "circles":  # each is better than the five after it, round and round
            place = [int(doc[1:]) for doc in request.documents]
            wins = [sum(0 < (b - a) % 12 < 6 for b in place) + a / 99 for a in place]
            order = np.argsort(-np.array(wins)).tolist()
        if drawn.random() < self.share:
            if self.habit == "copies":
                order = sorted(order)
            elif self.habit == "last first":
                order = [len(order) - 1, *range(len(order) - 1)]
            elif self.habit == "guesses":
                order = drawn.permutation(len(order)).tolist()
        return self._says({"order": [request.labels[at] for at in order]})

    def _says(self, value: Any) -> Answer:
        return Answer(json.dumps(value), 10, 10, 0.0, self.model)


def card(folder: Path, judge: Judge, budget: int = 24) -> Health:
    corpus = write_corpus(folder / "corpus", queries=6, documents=12)
    ranking = {"budget": budget, "target": 1.0}
    with Store(folder / "set.golden", create=True) as store:
        Build(settings(corpus, ranking=ranking, grading={"batch": 3}), store, judge=judge).run()
        found = judge_health(store)
        assert read_status(store).health == found
        out = export_files(store, folder / "out")
        assert json.loads(out["manifest.json"].read_text())["health"]["words"] == [*found.words]
        assert all(line in out["README.md"].read_text() for line in found.lines())
    return found


def test_an_honest_judge_is_as_consistent_as_the_posterior_assumes(tmp_path: Path) -> None:
    found = card(tmp_path, Judge())
    assert found.words == ("as consistent as the posterior assumes",)
    assert found.orders == 6 * 24
    assert found.position is not None
    assert abs(found.position) < 3
    assert found.repeats is not None
    assert abs(found.repeats) < 2
    assert found.surprise is not None
    assert 0.7 < found.surprise < 1.1


def test_a_judge_that_copies_the_order_it_is_shown_is_detected(tmp_path: Path) -> None:
    found = card(tmp_path, Judge("copies", 0.4))
    assert found.position is not None
    assert found.position > 5
    assert any(words.startswith("copies the order it is shown") for words in found.words)


def test_a_judge_that_puts_first_what_it_is_shown_last_is_detected(tmp_path: Path) -> None:
    found = card(tmp_path, Judge("last first", 0.5))
    assert any(words.startswith("puts first what it is shown last (") for words in found.words)


def test_a_judge_that_guesses_is_harder_to_predict_than_one_that_does_not(tmp_path: Path) -> None:
    honest, guessing = card(tmp_path / "a", Judge()), card(tmp_path / "b", Judge("guesses", 0.5))
    assert (guessing.surprise or 0) > (honest.surprise or 0) + 0.2


def test_a_judge_that_only_guesses_is_not_called_consistent(tmp_path: Path) -> None:
    found = card(tmp_path, Judge("guesses", 1.0))
    assert any("it agrees with itself" in words for words in found.words)
    assert not any("posterior assumes" in words and "consistent" in words for words in found.words)


def test_few_orders_do_not_call_one_that_guesses_consistent(tmp_path: Path) -> None:
    for budget in (2, 4):
        found = card(tmp_path / str(budget), Judge("guesses", 1.0), budget)
        assert found.position is not None
        assert any("not significantly better than guessing" in words for words in found.words)
    assert card(tmp_path / "honest", Judge(), 4).words == (
        "as consistent as the posterior assumes",
    )


def test_a_judge_that_prefers_in_circles_contradicts_itself(tmp_path: Path) -> None:
    found = card(tmp_path, Judge("circles"))
    assert found.repeats is not None
    assert found.repeats > 3
    assert any(words.startswith("contradicts itself") for words in found.words)


def test_a_judge_that_never_wavers_does_not_contradict_itself(tmp_path: Path) -> None:
    found = card(tmp_path, Judge("never wavers"))
    assert found.repeats is not None
    assert found.repeats > 3  # steadier than a posterior that has seen so little of it
    assert found.words == ("more consistent than the posterior assumes",)


def test_constant_replies_are_counted(tmp_path: Path) -> None:
    found = card(tmp_path, Judge("constant", 0.8))
    assert found.graded == 6 * 4
    assert found.constant is not None
    assert 0.6 < found.constant < 1.0
    assert any("one grade" in words for words in found.words)


def test_too_few_replies_give_no_findings(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", queries=1, documents=4)
    with Store(tmp_path / "set.golden", create=True) as store:
        Build(settings(corpus, ranking={"budget": 2}), store, judge=Judge()).run()
        found = judge_health(store)
    assert (found.position, found.repeats, found.surprise, found.words) == (None, None, None, ())
    assert found.lines() == []


def test_comparisons_of_an_honest_judge_agree_as_often_as_is_expected() -> None:
    """The posterior has seen the very orders, so that z lies closer than a normal figure would."""
    found = []
    for seed in range(60):
        drawn = np.random.default_rng([3, seed])
        surplus = variance = 0.0
        for _ in range(4):
            theta = 1.5 * drawn.standard_normal(12)
            batches = [drawn.permutation(12)[:5] for _ in range(16)]
            orders = [batch[np.argsort(-theta[batch] - drawn.gumbel(size=5))] for batch in batches]
            given = [tuple(order.tolist()) for order in orders]
            posterior = fit_posterior(given, np.zeros(12), 1.5**-2)
            pairs, more, spread, *_ = count_repeated_pairs(given, posterior, 1.0, 60, drawn)
            assert pairs > 30
            surplus, variance = surplus + more, variance + spread
        found.append(surplus / math.sqrt(variance))
    assert np.abs(found).max() < 2.5
    assert abs(np.mean(found)) < 0.6
    assert np.std(found) < 1


def test_pairs_of_orders_of_different_lengths_are_counted_as_by_hand() -> None:
    sure = Posterior(np.array([0.0, 40.0, 80.0]), 1e-12 * np.eye(3))
    drawn = np.random.default_rng(0)
    given = [(2, 1, 0), (2, 1), (1, 2), (0, 1)]  # 2 and 1: 2 of 3; 1 and 0: 1 of 2; 2 and 0: once
    assert count_repeated_pairs(given, sure, 1.0, 20, drawn) == (2, (1 - 3) + (0 - 1), 0.0, 1, 4)
    assert count_repeated_pairs([(1, 0)], sure, 1.0, 20, drawn) == (0, 0.0, 0.0, 0, 0)
    assert count_repeated_pairs([], sure, 1.0, 20, drawn) == (0, 0.0, 0.0, 0, 0)
