"""Which graded passages are put in order, by the definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rankproof.golden.pruning import prune
from rankproof.golden.settings import PruningSettings


def test_all_fives_stay_then_buckets_fill_up_by_rrf() -> None:
    grades = [3, 5, 1, 4, 2, 5, 4, 3, 1, None, 4]
    kept = prune(grades, PruningSettings(target=2, size=7, negatives=2))
    # 5s: 1, 5. Negatives, best RRF first: 2, 4. Three places left: 4s at 3, 6, 10.
    assert kept == [1, 5, 3, 6, 10, 4, 2]
    assert [grades[at] for at in kept] == [5, 5, 4, 4, 4, 2, 1]


def test_fives_are_kept_beyond_the_size() -> None:
    assert len(prune([5] * 60 + [1] * 9, PruningSettings(size=35, negatives=5))) == 65


def test_a_target_larger_than_the_size_wins() -> None:
    assert len(prune([3] * 80, PruningSettings(target=50, size=35))) == 50


@given(
    st.lists(st.sampled_from([None, 1, 2, 3, 4, 5]), max_size=80),
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(0, 10),
)
def test_the_subset_obeys_its_definition(
    grades: list[int | None], target: int, size: int, negatives: int
) -> None:
    kept = prune(grades, PruningSettings(target=target, size=size, negatives=negatives))
    chosen = set(kept)
    assert len(kept) == len(chosen)
    known = [at for at, grade in enumerate(grades) if grade is not None]
    assert chosen <= set(known)
    low = [at for at in known if (grades[at] or 0) <= 2]
    fives = [at for at in known if grades[at] == 5]
    assert set(fives) <= chosen
    assert set(low[:negatives]) <= chosen
    places = max(size, target)
    forced = set(fives) | set(low[:negatives])
    assert len(kept) == min(len(known), max(places, len(forced)))
    # What was left out is no better than what was let in without being forced.
    for out in set(known) - chosen:
        for inside in chosen - forced:
            assert (grades[inside] or 0, -inside) > (grades[out] or 0, -out)
    shown = [(-(grades[at] or 0), at) for at in kept]
    assert shown == sorted(shown)
