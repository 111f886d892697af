"""What several people say of a golden set, and what the order makes of it."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_sets import settings, write_corpus
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from rankproof.foundation.errors import InputError
from rankproof.golden.annotators import (
    assign_passages,
    assigned_passages,
    labels_by_person,
    order_claims,
    people_grades,
)
from rankproof.golden.building import Build
from rankproof.golden.constrained import (
    closest_order,
    consistent_claims,
    constrain,
    sample_constrained,
    sort_topologically,
)
from rankproof.golden.export_files import export_files
from rankproof.golden.judge_agreement import compare_with_people
from rankproof.golden.judgments import Correction
from rankproof.golden.result import GoldenQuery, read_golden, read_queries
from rankproof.golden.store import Store
from rankproof.golden.viewer.desk import Desk, Seat
from rankproof.golden.viewer.reading import evidence


def said(
    number: int,
    doc: str,
    new: int | None,
    who: str = "ada",
    *,
    sure: bool = True,
    settles: bool = False,
    above: tuple[str, ...] = (),
    below: tuple[str, ...] = (),
) -> Correction:
    field: Any = "rank" if above or below else "grade"
    more = (None, sure, settles, above, below)
    return Correction(number, "q", doc, field, None, new, who, "", None, None, *more)


# ------------------------------------------------------------------------------- what is held


def grade_of(rows: list[Correction], judged: int | None = None) -> int | None:
    found = people_grades(rows, {("q", "d"): judged})
    return found["q", "d"].grade if found else None


def test_agreement_with_the_judge_does_not_use_the_judge_to_break_ties(path: Path) -> None:
    draw = np.random.default_rng(0)
    with Store(path, write=True) as store:
        for query, doc in store.rows("SELECT query, doc FROM pool"):
            for who in ("ada", "bob"):
                store.add_correction(query, doc, "grade", int(draw.integers(1, 6)), who=who)
        found = compare_with_people(read_golden(store)).agreement.coefficients
        export_files(store, path.parent / "out")
    each = [row.split() for row in (path.parent / "out/people.txt").read_text().splitlines()]
    assert abs(found["κ, quadratic"].value) < 0.25  # people who guess; the nearer one: 0.5
    assert found["κ, quadratic"].items == len(each)
    lower = [said(1, str(n), 1) for n in range(200)]
    grades = [
        e.grade
        for e in people_grades([*lower, *(said(2, c.doc, 5, "bob") for c in lower)]).values()
    ]
    assert set(grades) == {1, 5}
    assert 2.6 < np.mean(grades) < 3.4


def test_a_person_s_last_label_counts_and_leaves_those_of_others() -> None:
    rows = [said(1, "d", 2), said(2, "d", 5, "bob"), said(3, "d", 4)]
    found = labels_by_person(rows)["q", "d"]
    assert {who: c.new for who, c in found.items()} == {"ada": 4, "bob": 5}


def test_the_median_of_the_sure_holds_and_what_is_settled_outweighs_it() -> None:
    assert grade_of([said(1, "d", 2)], 5) == 2
    two = [said(1, "d", 2), said(2, "d", 5, "bob")]
    assert [grade_of(two, judge) for judge in (None, 2, 3, 4, 5)] == [2, 2, 2, 5, 5]
    three = [*two, said(3, "d", 4, "carol")]
    assert grade_of(three, 1) == 4
    unsure = [*two, said(3, "d", 1, "carol", sure=False)]
    assert grade_of(unsure, 5) == 5
    assert grade_of([said(1, "d", 3, sure=False)], 5) == 3
    assert grade_of([said(1, "d", None, sure=False)], 5) is None
    assert grade_of([*three, said(4, "d", 1, "dan", settles=True)], 5) == 1


# ----------------------------------------------------------------------------------- the order


def test_draws_are_of_the_posterior_where_people_are_right() -> None:
    generator = np.random.default_rng(0)
    root = generator.standard_normal((5, 5)) * 0.4
    covariance = root @ root.T + 0.4 * np.eye(5)
    mean = np.array([-0.8, 0.0, 0.5, 1.0, -0.5])
    above = consistent_claims([(0, 1), (1, 2), (0, 3)], 5)
    every = generator.multivariate_normal(mean, covariance, 1_000_000)
    kept = every[(every[:, 0] > every[:, 1]) & (every[:, 1] > every[:, 2])]
    kept = kept[kept[:, 0] > kept[:, 3]]
    found = sample_constrained(mean, covariance, above, 1)
    assert len(kept) > 5_000
    assert np.abs(found.mean(axis=0) - kept.mean(axis=0)).max() < 0.1
    assert np.abs(found.std(axis=0) - kept.std(axis=0)).max() < 0.1
    ranks = [np.argsort(np.argsort(-x, axis=1), axis=1) for x in (found, kept)]
    top = [(rank < 2).mean(axis=0) for rank in ranks]
    assert np.abs(top[0] - top[1]).max() < 0.06


def test_without_statements_the_draws_are_the_judges_posterior() -> None:
    mean, covariance = np.array([1.0, 0.0, -1.0]), np.eye(3) * 0.25
    found = constrain(mean, covariance, np.zeros((3, 3), bool), 2)
    assert found.order.tolist() == [0, 1, 2]
    assert np.abs(found.mean - mean).max() < 0.08
    assert np.abs(found.sd - 0.5).max() < 0.06


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30)


@given(PAIRS)
def test_claims_are_added_by_weight_and_never_form_a_cycle(pairs: list[tuple[int, int]]) -> None:
    above = consistent_claims(pairs, 7)
    # Literally: a claim is taken unless those taken before lead the other way.
    taken: set[tuple[int, int]] = set()

    def leads(start: int, end: int) -> bool:
        return any(i == start and (j == end or leads(j, end)) for i, j in taken)

    for i, j in pairs:
        if i != j and not leads(j, i):
            taken.add((i, j))
    for i, j in itertools.permutations(range(7), 2):
        assert above[i, j] == leads(i, j)
    order = sort_topologically(above, np.zeros(7)).tolist()
    assert all(order.index(i) < order.index(j) for i, j in taken)


@given(PAIRS, st.permutations(range(7)))
def test_passages_with_the_same_claims_keep_the_judge_s_order(
    pairs: list[tuple[int, int]], judge: list[int]
) -> None:
    above = consistent_claims(pairs, 7)
    mean = -np.array(judge, float)
    place = np.argsort(closest_order(mean, above)).tolist()
    for i, j in itertools.permutations(range(7), 2):
        if above[i, j]:
            assert place[i] < place[j]
        same = (above[i] == above[j]).all() and (above[:, i] == above[:, j]).all()
        if same and mean[i] > mean[j]:
            assert place[i] < place[j]


DOCS = [f"d{n}" for n in range(6)]
STATEMENTS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(DOCS), st.integers(1, 5), st.sampled_from(["ada", "bob"])),
        st.tuples(st.sampled_from(DOCS), st.sampled_from(DOCS), st.sampled_from(["ada", "bob"])),
    ),
    max_size=8,
)


@given(STATEMENTS, st.lists(st.integers(1, 5), min_size=6, max_size=6), st.integers(0, 9))
def test_the_order_never_contradicts_people(
    statements: list[tuple[str, Any, str]], judged: list[int], seed: int
) -> None:
    rows = []
    for number, (doc, what, who) in enumerate(statements, 1):
        if isinstance(what, int):
            rows.append(said(number, doc, what, who))
        elif what != doc:
            rows.append(said(number, doc, 1, who, above=(what,)))
    people = {doc: each for (_, doc), each in people_grades(rows, {}).items()}
    judge = dict(zip(DOCS, judged, strict=True))
    grades = {doc: people[doc].grade if doc in people else judge[doc] for doc in DOCS}
    above = consistent_claims(order_claims(DOCS, rows, grades, people), 6)
    generator = np.random.default_rng(seed)
    found = constrain(generator.standard_normal(6), np.eye(6) * 0.5, above, 3, seed)
    place = {DOCS[item]: at for at, item in enumerate(found.order.tolist())}
    # The last word on two passages holds, whatever was said before.
    if rows and rows[-1].above:
        assert place[rows[-1].doc] < place[rows[-1].above[0]]
    # Grades of people hold among themselves where nobody put a passage above another.
    if all(not row.above for row in rows):
        for doc, other in itertools.permutations(DOCS, 2):
            if doc in people and grades[doc] > grades[other]:
                assert place[doc] < place[other]
                assert found.certainty[DOCS.index(doc), DOCS.index(other)] == 1
    # The interval holds the rank, and who is above whom for certain is locked.
    assert (found.low <= found.high).all()
    locks = found.locks(0.95)
    assert (locks | ~above).all()
    assert not (locks & locks.T).any()


# ------------------------------------------------------------------------------- a golden set


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("people")
    path = folder / "set.golden"
    corpus = write_corpus(folder / "corpus", queries=3, documents=16)
    chosen = settings(corpus, pruning={"target": 6, "size": 10, "negatives": 2})
    with Store(path, create=True) as store:
        Build(chosen, store).run()
    return path


def query_of(path: Path, who: str | None = None) -> GoldenQuery:
    with Store(path) as store:
        return read_queries(store, "q0", who)[0]


def test_a_passage_moved_to_a_rank_has_it_with_certainty_in_every_export(
    path: Path, tmp_path: Path
) -> None:
    last = [p for p in query_of(path).passages if p.rank is not None][-1]
    Desk(path, Seat("ada")).move("q0", last.doc, 1)
    found = query_of(path)
    first = found.passages[0]
    assert (first.doc, first.rank, first.low, first.high) == (last.doc, 1, 1, 1)
    assert all(lock[1] != first.doc for lock in found.locks)
    assert any(lock[0] == first.doc for lock in found.locks)
    with Store(path) as store:
        export_files(store, tmp_path / "out")
    lines = (tmp_path / "out" / "ranking.simulated.trec").read_text().splitlines()
    mine = [line.split() for line in lines if line.startswith("q0 ")]
    assert mine[0][2] == last.doc
    scores = [float(line[4]) for line in mine]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)


def test_what_a_person_regrades_leaves_its_place_to_better_passages(path: Path) -> None:
    before = query_of(path).passages
    best = [p for p in before if p.rank is not None and p.judged == 5][:2]
    assert best
    desk = Desk(path, Seat("ada"))
    for p in best:
        desk.label("q0", p.doc, 1)
    found = {p.doc: p for p in query_of(path).passages if p.rank is not None}
    for p in best:
        lower = found[p.doc]
        for other in found.values():
            if (other.grade or 0) > 1:
                assert (other.rank or 0) < (lower.rank or 0)
                assert (other.low or 0) < (lower.high or 0)
    assert sorted(p.rank or 0 for p in found.values()) == list(range(1, len(found) + 1))


def test_a_passage_that_people_grade_up_comes_into_the_order_before_it_is_built_again(
    path: Path,
) -> None:
    left = next(p for p in query_of(path).passages if p.rank is None)
    Desk(path, Seat("ada")).label("q0", left.doc, 5)
    found = query_of(path)
    here = next(p for p in found.passages if p.doc == left.doc)
    assert here.rank is not None
    worse = [p.rank for p in found.passages if p.rank is not None and (p.grade or 0) < 5]
    assert worse
    assert all(rank is not None and rank > here.rank for rank in worse)


def test_pruning_reads_the_grade_that_holds_when_the_set_is_built_again(
    path: Path, tmp_path: Path, built: Path
) -> None:
    left = next(p for p in query_of(path).passages if p.rank is None)
    Desk(path, Seat("ada")).label("q0", left.doc, 5)
    chosen = settings(built.parent / "corpus", pruning={"target": 6, "size": 10, "negatives": 2})
    with Store(path, write=True) as store:
        assert Build(chosen, store).run() == ["prune", "rank"]
        kept = {doc for (doc,) in store.rows("SELECT doc FROM subset WHERE query = 'q0'")}
        assert left.doc in kept
        assert Build(chosen, store).run() == []


def test_each_person_sees_the_order_of_the_judge_and_their_own_corrections(path: Path) -> None:
    order = [p.doc for p in query_of(path).passages if p.rank is not None]
    Desk(path, Seat("ada")).move("q0", order[-1], 1)
    Desk(path, Seat("bob")).prefer("q0", order[1], order[0])
    assert query_of(path, "ada").passages[0].doc == order[-1]
    bobs = [p.doc for p in query_of(path, "bob").passages]
    assert bobs.index(order[1]) < bobs.index(order[0])
    assert bobs[0] != order[-1]
    both = [p.doc for p in query_of(path).passages]
    assert both[0] == order[-1]
    assert both.index(order[1]) < both.index(order[0])
    with pytest.raises(InputError, match="a passage and itself"):
        Desk(path, Seat("bob")).prefer("q0", order[1], order[1])


def test_undo_takes_back_one_s_own_correction_and_restores_the_order(path: Path) -> None:
    before = query_of(path)
    desk = Desk(path, Seat("ada"))
    order = [p.doc for p in before.passages if p.rank is not None]
    made = desk.move("q0", order[3], 1)
    assert (made.old, made.new) == (4, 1)
    with pytest.raises(InputError, match="was made by 'ada'"):
        Desk(path, Seat("bob")).undo(made.id)
    desk.undo()
    assert query_of(path) == before


def test_what_was_undone_and_done_again_can_be_undone_again(path: Path) -> None:
    desk = Desk(path, Seat("ada"))
    doc = query_of(path).passages[0].doc
    made = desk.label("q0", doc, 2)
    back = desk.undo(made.id)
    with pytest.raises(InputError, match="is undone already"):
        desk.undo(made.id)
    desk.undo(back.id)
    (here,) = (p for p in query_of(path).passages if p.doc == doc)
    assert [c.id for c in here.corrections] == [made.id]
    with Store(path) as store:
        told = {each["id"]: each["undone"] for each in history(store, doc)}
        assert told == {made.id: False, back.id: True, back.id + 1: False}
    desk.undo(made.id)
    assert not any(p.validated for p in query_of(path).passages)


def history(store: Store, doc: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = evidence(store, Seat("ada"), "q0", doc)["history"]
    return found


def test_a_note_and_being_unsure_are_kept_with_the_grade(path: Path) -> None:
    desk = Desk(path, Seat("ada"))
    doc = query_of(path).passages[0].doc
    desk.label("q0", doc, None, sure=False)
    assert not query_of(path).passages[0].validated
    desk.label("q0", doc, 3)
    desk.label("q0", doc, None, note="which whale?")
    last = desk.label("q0", doc, None, sure=True)
    assert (last.new, last.sure, last.note) == (3, True, "which whale?")
    desk.label("q0", doc, None, note="")
    with Store(path) as store:
        assert labels_by_person(store.active_corrections())["q0", doc]["ada"].note is None


# ------------------------------------------------------------------------------- assignment


def test_each_passage_is_assigned_to_two_people_and_a_sample_to_all(path: Path) -> None:
    with Store(path, write=True) as store:
        assert (
            assign_passages(
                store,
                ["ada", "bob", "carol"],
                people_per_passage=2,
                shared_passages=5,
                max_queries=None,
            )
            == 48
        )
        queues = {who: assigned_passages(store, who) for who in ("ada", "bob", "carol")}
        again = assign_passages(
            store,
            ["ada", "bob", "carol"],
            people_per_passage=2,
            shared_passages=5,
            max_queries=None,
        )
        assert again == 48
        assert {who: assigned_passages(store, who) for who in queues} == queues
    keys = [key for queue in queues.values() for key in queue]
    often = {key: keys.count(key) for key in set(keys)}
    assert len(often) == 48
    assert sorted(often.values()).count(3) == 5
    assert set(often.values()) == {2, 3}
    assert max(map(len, queues.values())) - min(map(len, queues.values())) <= 2
    with Store(path, write=True) as store, pytest.raises(InputError, match="every passage to 3"):
        assign_passages(
            store, ["ada", "bob"], people_per_passage=3, shared_passages=0, max_queries=None
        )


def test_a_larger_shared_sample_contains_the_smaller_one(path: Path) -> None:
    dealt = []
    for count in (2, 5, 20):
        copy = path.with_name(f"{count}.golden")
        copy.write_bytes(path.read_bytes())
        with Store(copy, write=True) as store:
            assign_passages(
                store, ["ada", "bob"], people_per_passage=1, shared_passages=count, max_queries=None
            )
            queues = [assigned_passages(store, who).keys() for who in ("ada", "bob")]
        dealt.append(queues[0] & queues[1])
    assert [len(keys) for keys in dealt] == [2, 5, 20]
    assert dealt[0] < dealt[1] < dealt[2]


@pytest.mark.parametrize(
    ("first", "again", "each", "all_of"),
    [
        (["ada", "bob", "carol"], ["carol", "ada", "bob"], 1, 0),
        (["ada", "bob"], ["ada", "bob", "carol"], 2, 3),
        (["ada", "bob", "carol"], ["ada", "bob", "carol"], 2, 5),
    ],
)
def test_assigning_again_gives_no_passage_to_more_people_than_requested(
    path: Path, first: list[str], again: list[str], each: int, all_of: int
) -> None:
    with Store(path, write=True) as store:
        begun = assign_passages(
            store, first, people_per_passage=each, shared_passages=all_of, max_queries=2
        )
        before = {who: assigned_passages(store, who) for who in first}
        count = assign_passages(
            store, again, people_per_passage=each, shared_passages=all_of, max_queries=None
        )
        queues = {who: assigned_passages(store, who) for who in again}
    assert begun < count
    assert all(queues[who].items() >= queue.items() for who, queue in before.items())
    often = Counter(key for queue in queues.values() for key in queue)
    assert sorted(often.values()) == [each] * (count - all_of) + [len(again)] * all_of
    if set(again) == set(first):  # who joins late is given all that is left, and may have less
        assert max(map(len, queues.values())) - min(map(len, queues.values())) <= 2
    last = max(place for queue in before.values() for place in queue.values())
    for who, queue in queues.items():  # what is new comes after what they had
        had = before.get(who, {})
        assert all(place > last for key, place in queue.items() if key not in had)


def test_the_export_says_who_said_what(path: Path, tmp_path: Path) -> None:
    doc = query_of(path).passages[0].doc
    Desk(path, Seat("ada")).label("q0", doc, 2, note="no")
    Desk(path, Seat("bob")).label("q0", doc, 4)
    Desk(path, Seat("carol", settles=True)).label("q0", doc, 3)
    with Store(path) as store:
        assert read_golden(store).counts.validated == 1
        export_files(store, tmp_path / "out")
    rows = [
        json.loads(line)
        for line in (tmp_path / "out" / "corrections.jsonl").read_text().splitlines()
    ]
    assert [(row["who"], row["new"], row["settles"]) for row in rows] == [
        ("ada", 2, False),
        ("bob", 4, False),
        ("carol", 3, True),
    ]


@settings_of(max_examples=12, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["move", "grade"]), st.integers(0, 9), st.integers(1, 10)),
        min_size=1,
        max_size=4,
    )
)
def test_a_passage_has_the_rank_that_it_was_given_last(
    built: Path, tmp_path_factory: pytest.TempPathFactory, acts: list[tuple[str, int, int]]
) -> None:
    path = tmp_path_factory.mktemp("law") / "set.golden"
    path.write_bytes(built.read_bytes())
    desk = Desk(path, Seat("ada"))
    order = [p.doc for p in query_of(path).passages if p.rank is not None]
    for what, item, value in acts:
        doc = order[item]
        if what == "grade":
            desk.label("q0", doc, 1 + value % 5)
        else:
            desk.move("q0", doc, value)
        found = {p.doc: p for p in query_of(path).passages}
        here = found[doc]
        ranked = [p for p in found.values() if p.rank is not None]
        assert sorted(p.rank or 0 for p in ranked) == list(range(1, len(ranked) + 1))
        assert all((p.low or 0) <= (p.rank or 0) <= (p.high or 0) for p in ranked)
        if what == "move":
            assert (here.rank, here.low, here.high) == (value, value, value)
        else:  # among passages that were not moved, grades of people stand in their order
            still = [p for p in ranked if not any(c.field == "rank" for c in p.corrections)]
            graded = [p for p in still if p.validated]
            for one, other in itertools.permutations(graded, 2):
                moved = any(a == "move" for a, _, _ in acts)
                if not moved and (one.grade or 0) > (other.grade or 0):
                    assert (one.rank or 0) < (other.rank or 0)


# ------------------------------------------------------------------- several people, in any turn

WHO = {"ada": Seat("ada"), "bob": Seat("bob"), "carol": Seat("carol", settles=True)}
ACTS = st.lists(
    st.tuples(
        st.sampled_from(sorted(WHO)),
        st.sampled_from(["grade", "grade", "grade", "unsure", "note", "move", "prefer", "undo"]),
        st.integers(0, 15),
        st.integers(1, 10),
    ),
    min_size=1,
    max_size=8,
)


def act(path: Path, docs: list[str], who: str, what: str, item: int, value: int) -> None:
    """One change by one person; one that is refused changes nothing."""
    desk, doc = Desk(path, WHO[who]), docs[item]
    with Store(path) as store:
        own = [c.id for c in store.corrections() if c.who == who]
    with contextlib.suppress(InputError):
        if what == "undo":
            desk.undo(own[value % len(own)] if own else None)
        elif what == "move":
            desk.move("q0", doc, value)
        elif what == "prefer":
            desk.prefer("q0", doc, docs[value])
        else:
            sure, note = (False if what == "unsure" else None), ("?" if what == "note" else None)
            grade = 1 + value % 5 if what == "grade" else None
            desk.label("q0", doc, grade, sure=sure, note=note)


Pairs = set[tuple[str, str]]


def joined(pairs: Pairs, above: str, below: str) -> Pairs:
    """With one more, and all that follows."""
    upper = {above} | {x for x, y in pairs if y == above}
    lower = {below} | {y for x, y in pairs if x == below}
    return pairs | set(itertools.product(upper, lower))


@settings_of(max_examples=15, deadline=None)
@given(ACTS)
def test_order_intervals_and_locks_obey_what_several_people_said_and_undid(
    built: Path,
    tmp_path_factory: pytest.TempPathFactory,
    acts: list[tuple[str, str, int, int]],
) -> None:
    """Against a literal reading: statements taken in turn, the weightiest first."""
    path = tmp_path_factory.mktemp("law") / "set.golden"
    path.write_bytes(built.read_bytes())
    before = query_of(path)
    docs = [p.doc for p in before.passages]
    for each in acts:
        act(path, docs, *each)
    found = query_of(path)
    with Store(path) as store:
        rows = store.active_corrections("q0")
    ranked = {p.doc: p for p in found.passages if p.rank is not None}
    people = {doc: one for (_, doc), one in people_grades(rows, before_grades(before)).items()}
    for p in found.passages:
        assert p.grade == (people[p.doc].grade if p.doc in people else p.judged)
    statements = []
    for c in rows:
        for above, below in [(c.doc, d) for d in c.above] + [(d, c.doc) for d in c.below]:
            statements.append(((True, c.settles, c.id), above, below))
    for above, below in itertools.permutations(ranked, 2):
        both = [people[doc] for doc in (above, below) if doc in people]
        if both and (ranked[above].grade or 9) > (ranked[below].grade or 9):
            settled = len(both) == 2 and all(one.settled for one in both)
            weight = (len(both) == 2, settled, max(one.id for one in both))
            statements.append((weight, above, below))
    taken: Pairs = set()
    for _, above, below in sorted(statements, key=lambda each: each[0], reverse=True):
        if {above, below} <= ranked.keys() and (below, above) not in taken:
            taken = joined(taken, above, below)
    ranks = {doc: p.rank or 0 for doc, p in ranked.items()}
    assert sorted(ranks.values()) == list(range(1, len(ranks) + 1))
    assert all(ranks[above] < ranks[below] for above, below in taken)
    for doc, p in ranked.items():
        least = 1 + sum(below == doc for _, below in taken)
        most = len(ranked) - sum(above == doc for above, _ in taken)
        assert least <= (p.low or 0) <= ranks[doc] <= (p.high or 0) <= most
    locked: Pairs = set()
    for above, below, _ in found.locks:
        locked = joined(locked, above, below)
    assert all(ranks[above] < ranks[below] for above, below in locked)
    assert taken <= locked
    with Store(path, write=True) as store:  # all of it taken back, all is as it was
        for c in reversed(rows):
            store.undo(c.id, who=c.who)
    assert query_of(path) == before


def before_grades(query: GoldenQuery) -> dict[tuple[str, str], int | None]:
    return {(query.query, p.doc): p.judged for p in query.passages}
