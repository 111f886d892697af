"""The viewer in a real browser: reading, filtering, correcting."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Tab, browser, tab
from playwright.sync_api import Browser, Page, expect
from rankproof_cli import rankproof
from viewed_sets import (
    EVIL,
    PLAIN,
    QUESTIONS,
    build_set,
    corrections,
    marks,
    serving,
    serving_all,
)

from rankproof.foundation.printable import escape_controls
from rankproof.golden.judge_agreement import compare_with_people
from rankproof.golden.result import read_golden, read_queries
from rankproof.golden.store import Store
from rankproof.golden.viewer import reading
from rankproof.golden.viewer.desk import Desk, Seat
from rankproof.golden.viewer.index import Index
from rankproof.golden.viewer.passages import Passage


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_set(tmp_path_factory.mktemp("built"))


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as running:
        yield running


@pytest.fixture
def opened(chromium: Browser, path: Path) -> Iterator[Tab]:
    """The page with its first question; whatever a test does, nothing may go wrong on it."""
    with serving(path) as url, tab(chromium) as found:
        found.page.goto(url)
        expect(found.page.locator(".passage:focus")).to_have_count(1)
        yield found
        assert found.errors == []
        assert {address for address in found.requests if not address.startswith(url)} <= {"data:,"}


def docs(page: Page) -> list[str]:
    return list(page.locator(".passage").evaluate_all("all => all.map(one => one.dataset.doc)"))


def focused(page: Page) -> str:
    return str(page.locator(".passage:focus").get_attribute("data-doc"))


def grade_shown(page: Page, doc: str) -> str:
    pressed = page.locator(f'.passage[data-doc="{doc}"] .segments [aria-pressed="true"]')
    return pressed.inner_text() if pressed.count() else "none"


def said(page: Page, words: str) -> None:
    expect(page.locator("#said")).to_contain_text(words)


def refused(found: Tab) -> int:
    """How often the browser told of a 409 (it always does); these are then expected."""
    count = sum("409" in error for error in found.errors)
    found.errors[:] = [error for error in found.errors if "409" not in error]
    return count


# ------------------------------------------------------------------------------------- reading


def test_the_page_shows_questions_with_counts_and_passages_in_order(
    opened: Tab, path: Path
) -> None:
    page = opened.page
    with Store(path) as store:
        golden = read_golden(store)
    expect(page.locator("#list li")).to_have_count(3)
    expect(page.locator("#count")).to_have_text("3 questions, 60 passages")
    expect(page.locator("#simulated")).to_be_visible()
    assert docs(page) == [p.doc for p in golden.queries[0].passages]
    for p in golden.queries[0].passages:
        assert grade_shown(page, p.doc) == str(p.grade)
    ranked = [p for p in golden.queries[0].passages if p.rank is not None]
    expect(page.locator(".interval")).to_have_count(len(ranked))
    words = page.locator(".interval svg").first.get_attribute("aria-label")
    assert f"95% interval {ranked[0].low} to {ranked[0].high} of {len(ranked)}" in str(words)
    failed = page.locator("#list li").nth(2)
    expect(failed).to_contain_text("1 failed")
    expect(page.locator("#list li").nth(1)).to_contain_text("1 differs")


def test_keys_move_between_passages_and_questions(opened: Tab) -> None:
    page = opened.page
    order = docs(page)
    for key, at in (("j", 1), ("ArrowDown", 2), ("k", 1), ("ArrowUp", 0), ("k", 0)):
        page.keyboard.press(key)
        assert focused(page) == order[at]
    page.keyboard.press("n")
    expect(page.locator("#question h2")).to_have_text(QUESTIONS["q1"])
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#question h2")).to_have_text(QUESTIONS["q0"])
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("5")  # a key is no grade while a window is open
    page.keyboard.press("Escape")
    expect(page.locator("#keys")).to_be_hidden()
    page.reload()
    expect(page.locator("#question h2")).to_have_text(QUESTIONS["q0"])


def test_texts_of_strangers_are_shown_as_text_and_run_nothing(opened: Tab) -> None:
    page = opened.page
    for doc, text in EVIL.items():
        shown = page.locator(".passage").nth(docs(page).index(doc)).locator(".text")
        assert shown.evaluate("one => one.textContent") == escape_controls(text, lines=True)
        only = "one => [...one.children].every(child => child.matches('mark.term'))"
        assert shown.evaluate(only)
    for key in "rcjc":  # the evidence and the comparison show texts and ids, too
        page.keyboard.press(key)
    expect(page.locator("#compare")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    expect(page.locator("#question h2")).to_have_text("<i>whales</i>, case 1?")
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_html_cannot_be_set_by_any_script_of_the_page(opened: Tab) -> None:
    refused = opened.page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return ''; }"
        " catch (error) { return error.name; } }"
    )
    assert refused == "TypeError"
    opened.errors.clear()  # the browser tells of what it refused


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window_and_the_theme_can_be_switched(
    chromium: Browser, path: Path, width: int, dark: bool
) -> None:
    with serving(path) as url, tab(chromium, width=width, dark=dark) as found:
        page = found.page
        page.goto(url)
        if width == 390:
            expect(page.locator("#question")).to_be_hidden()
            page.locator("#list button").first.click()
        expect(page.locator(".passage").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        colour = "getComputedStyle(document.body).backgroundColor"
        colours = {False: "rgb(255, 255, 255)", True: "rgb(20, 23, 27)"}
        assert page.evaluate(colour) == colours[dark]
        page.locator("#theme").click()
        assert page.evaluate(colour) == colours[not dark]
        if width == 390:
            page.get_by_text("← Questions").click()
            expect(page.locator("#list")).to_be_visible()
        assert found.errors == []


# ----------------------------------------------------------------------------------- filtering


def wanted(path: Path, fits: Callable[[Passage], bool]) -> set[tuple[str, str]]:
    with Store(path) as store:
        return {(p.query, p.doc) for p in marks(store, "ada") if fits(p)}


def on_page(page: Page) -> set[tuple[str, str]]:
    """Walk through every question that the list shows."""
    found = set()
    for item in page.locator("#list li").all():
        query = str(item.get_attribute("data-query"))
        item.locator("button").click()
        expect(page.locator("#question h2")).to_have_text(QUESTIONS[query])
        matches = re.search(r"(\d+) of 20", item.inner_text())
        assert matches is not None
        expect(page.locator(".passage")).to_have_count(int(matches[1]))
        found |= {(query, doc) for doc in docs(page)}
    return found


def test_filters_show_the_passages_they_name_and_no_others(opened: Tab, path: Path) -> None:
    page, count = opened.page, opened.page.locator("#count")
    cases: list[tuple[Callable[[], Any], Callable[[Passage], bool]]] = [
        (lambda: page.locator("#grades .g5").click(), lambda p: p.grade == 5),
        (lambda: page.locator("#grades .g0").click(), lambda p: p.grade is None),
        (lambda: page.select_option("#state", "unclear"), lambda p: p.unclear),
        (lambda: page.select_option("#state", "differs"), lambda p: p.differs),
        (lambda: page.select_option("#source", "source:shelf 1"), lambda p: len(p.doc) % 2 == 1),
    ]
    for act, fits in cases:
        act()
        found = wanted(path, fits)
        assert 0 < len(found) < 60
        expect(count).to_contain_text(f", {len(found)} passage")
        assert on_page(page) == found
        page.locator("#clear").click()
        expect(count).to_have_text("3 questions, 60 passages")
    page.select_option("#state", "validated")
    expect(page.locator(".empty")).to_have_text("No passage fits the filter.")


def test_search_finds_words_in_any_case_and_encoding_and_marks_them(opened: Tab) -> None:
    page = opened.page
    page.keyboard.press("/")
    page.keyboard.type("ÉTÉ zoë")
    expect(page.locator("#count")).to_have_text("3 questions, 3 passages")
    expect(page.locator(".passage")).to_have_count(1)
    assert docs(page) == ["emoji"]
    page.locator("#search").fill("NUMBER D11")
    found = page.locator(".passage mark:not(.term)")
    expect(found).to_have_text(["number", "d11", "d11"])
    page.locator("#search").fill("case 2")  # a question that fits brings all its passages
    expect(page.locator("#count")).to_have_text("1 question, 20 passages")
    page.keyboard.press("Enter")
    expect(page.locator(".passage:focus")).to_have_count(1)
    page.locator("#clear").click()
    page.locator("#search").fill("(")  # nothing but itself
    expect(page.locator(".empty")).to_be_visible()


# ---------------------------------------------------------------------------------- correcting


def test_a_grade_by_key_is_stored_survives_a_reload_and_is_exported(
    opened: Tab, path: Path, tmp_path: Path
) -> None:
    page = opened.page
    page.keyboard.press("j")
    doc, old = focused(page), int(grade_shown(page, focused(page)))
    new = 1 if old != 1 else 2
    page.keyboard.press(str(new))
    said(page, f"{doc}: grade {old} → {new}")
    assert focused(page) == doc
    expect(page.locator("#progress")).to_contain_text("Validated 1 of 60 · 0% agree")
    assert corrections(path) == [("q0", doc, "grade", old, new, "ada", None)]
    page.reload()
    expect(page.locator(".passage:focus")).to_have_count(1)
    assert grade_shown(page, doc) == str(new)
    done = rankproof("golden", "export", str(path), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out" / "qrels.simulated.txt").read_text().splitlines()
    assert f"q0 simulated {doc} {new}" in lines
    (change,) = (tmp_path / "out" / "corrections.jsonl").read_text().splitlines()
    assert json.loads(change)["who"] == "ada"


def test_undo_is_a_row_and_gives_back_what_was_there(opened: Tab, path: Path) -> None:
    page = opened.page
    doc = focused(page)
    old = int(grade_shown(page, doc))
    first, second = [grade for grade in (1, 2, 3) if grade != old][:2]
    for grade in (first, second):
        page.keyboard.press(str(grade))
        said(page, f"→ {grade}.")
    page.keyboard.press("n")
    expect(page.locator("#question h2")).to_have_text(QUESTIONS["q1"])
    page.keyboard.press("u")  # goes back to where it was
    said(page, f"{doc}: grade {second} → {first}, undone")
    expect(page.locator("#question h2")).to_have_text(QUESTIONS["q0"])
    assert focused(page) == doc
    page.keyboard.press("u")
    said(page, f"{doc}: grade {first} → {old}, undone")
    assert grade_shown(page, doc) == str(old)
    page.keyboard.press("u")
    said(page, "nothing to undo")
    assert refused(opened) == 1
    assert [(c[3], c[4], c[6]) for c in corrections(path)] == [
        (old, first, None),
        (first, second, None),
        (second, first, 2),
        (first, old, 1),
    ]
    page.keyboard.press("r")
    page.locator(".evidence li").nth(2).get_by_text("redo").click()
    said(page, f"grade {old} → {second}, undone")
    assert grade_shown(page, doc) == str(second)


def test_grades_typed_fast_go_to_the_right_passages(opened: Tab, path: Path) -> None:
    page = opened.page
    order = docs(page)
    page.keyboard.type("1j2j3jn4")  # nobody waits for the server
    expect(page.locator("#question h2")).to_have_text(QUESTIONS["q1"])
    expect(page.locator("#progress")).to_contain_text(re.compile("Validated [34] of 60"))
    made = [(query, doc, new) for query, doc, _, _, new, _, _ in corrections(path)]
    assert made[:3] == [("q0", order[0], 1), ("q0", order[1], 2), ("q0", order[2], 3)]
    assert made[3:] in ([], [("q1", docs(page)[0], 4)])  # never the passage that was left


def test_a_passage_moves_in_the_order_and_back(opened: Tab, path: Path) -> None:
    page = opened.page
    before = docs(page)
    page.keyboard.press("Shift+J")
    said(page, "moved from 1 to 2")
    assert docs(page)[:3] == [before[1], before[0], before[2]]
    assert focused(page) == before[0]
    with Store(path) as store:
        assert [p.doc for p in read_golden(store).queries[0].passages][:2] == docs(page)[:2]
    page.keyboard.press("u")
    said(page, "rank 2 → 1, undone")
    assert docs(page) == before


def test_validated_passages_are_counted_filtered_and_compared_with_the_judge(
    opened: Tab, path: Path
) -> None:
    page = opened.page
    for _ in range(3):
        doc = focused(page)
        page.keyboard.press("v")
        said(page, f"{doc}: grade {grade_shown(page, doc)} validated")
        page.keyboard.press("j")
    doc = focused(page)
    page.keyboard.press("1" if grade_shown(page, doc) == "5" else "5")
    expect(page.locator("#progress")).to_contain_text("Validated 4 of 60 · 75% agree")
    with Store(path) as store:
        found = reading.live_agreement(Index(store, Seat("ada"), {}))
        truly = compare_with_people(read_golden(store)).to_dict()
    assert found["confusion"] == truly["confusion"]
    for name, each in truly["coefficients"].items():
        assert found["coefficients"][name]["value"] == each["value"], name
    page.locator("#progress").click()
    expect(page.locator("#agreement")).to_contain_text("4 passages that the judge and you graded")
    expect(page.locator("#agreement table").first).to_contain_text("same grade0.75")
    expect(page.locator("#health")).to_contain_text("the judge: ")
    page.keyboard.press("Escape")
    page.select_option("#state", "validated")
    expect(page.locator("#count")).to_have_text("1 question, 4 passages")
    page.select_option("#state", "open")
    expect(page.locator("#count")).to_have_text("3 questions, 56 passages")


def test_a_failed_judgment_is_replaced_by_a_grade_and_cannot_be_confirmed(
    opened: Tab, path: Path
) -> None:
    page = opened.page
    page.locator("#grades .g0").click()
    expect(page.locator("#count")).to_have_text("1 question, 1 passage")
    expect(page.locator(".passage")).to_have_count(1)
    expect(page.locator(".passage")).to_contain_text("failed: no JSON")
    page.locator(".passage .text").click()
    page.keyboard.press("v")
    said(page, "no grade to agree with")
    page.keyboard.press("4")
    said(page, "d0: grade none → 4")
    assert corrections(path) == [("q2", "d0", "grade", None, 4, "ada", None)]
    with Store(path) as store:
        assert read_golden(store).counts.failed == 0


def test_drawing_takes_every_passage_once_whatever_the_filter_hides(
    opened: Tab, path: Path
) -> None:
    page = opened.page
    page.locator("#grades .g0").click()
    expect(page.locator("#count")).to_have_text("1 question, 1 passage")
    drawn = set()
    for count in range(1, 6):
        page.keyboard.press("g")
        with Store(path) as store:
            following = Index(store, Seat("ada"), {}).next("random")
        assert following is not None
        expect(page.locator(f'.passage[data-doc="{following["doc"]}"]:focus')).to_have_count(1)
        drawn.add(tuple(following.values()))
        page.keyboard.press("v")
        expect(page.locator("#progress")).to_contain_text(f"Validated {count} of 60")
    assert len(drawn) == 5


def test_the_judge_can_be_hidden_until_a_person_has_graded(opened: Tab) -> None:
    page = opened.page
    page.keyboard.press("h")
    assert docs(page) == sorted(docs(page))
    expect(page.locator(".interval, .passage .badge, .passage .judge")).to_have_count(0)
    expect(page.locator('.passage .segments [aria-pressed="true"]')).to_have_count(0)
    page.keyboard.press("r")
    said(page, "grade the passage first")
    page.keyboard.press("3")
    said(page, "u undoes it")
    expect(page.locator(".passage .judge")).to_have_count(1)
    page.keyboard.press("h")
    expect(page.locator(".passage .judge")).to_have_count(20)


def test_two_passages_are_shown_side_by_side_with_the_judge_s_comparisons(
    opened: Tab, path: Path
) -> None:
    page = opened.page
    with Store(path) as store:
        first, second = store.replies("kind = 'order' AND query = 'q0'")[0].documents[:2]
    passages = page.locator(".passage")
    passages.nth(docs(page).index(first)).locator(".text").click()
    page.keyboard.press("c")
    expect(page.locator(".passage.marked")).to_have_count(1)
    passages.nth(docs(page).index(second)).get_by_text("Compare").click()
    expect(page.locator("#compare .text")).to_have_text(
        [(PLAIN | EVIL)[first].strip(), (PLAIN | EVIL)[second].strip()]
    )
    with Store(path) as store:
        orders = [
            list(reply.result or ())
            for reply in store.replies("kind = 'order' AND query = 'q0'")
            if {first, second} <= set(reply.documents)
        ]
    ahead = sum(order.index(first) < order.index(second) for order in orders)
    assert len(orders) > 0
    words = page.locator("#compare-words").inner_text()
    assert f"The judge saw both in {len(orders)} call" in words
    assert f"; {first} came first in {ahead}." in words


def test_the_judges_own_words_are_shown(opened: Tab, path: Path) -> None:
    page = opened.page
    doc = focused(page)
    page.keyboard.press("r")
    with Store(path) as store:
        ((text,),) = store.rows(
            "SELECT text FROM replies JOIN grades ON reply = id WHERE grades.query = 'q0' "
            "AND doc = ?",
            (doc,),
        )
    expect(page.locator(".evidence pre").first).to_have_text(text)
    expect(page.locator(".evidence")).to_contain_text(f"= {doc}")
    page.keyboard.press("r")
    expect(page.locator(".evidence")).to_have_count(0)


def test_while_a_build_writes_the_page_reads_and_says_so(chromium: Browser, path: Path) -> None:
    with serving(path) as url, tab(chromium) as found:
        page = found.page
        with Store(path, write=True):
            page.goto(url)
            expect(page.locator("#readonly")).to_contain_text(f"process {os.getpid()}")
            expect(page.locator(".passage:focus")).to_have_count(1)
            page.keyboard.press("5")
            said(page, "in use by process")
            assert corrections(path) == []
        page.keyboard.press("5")
        said(page, "u undoes it")
        expect(page.locator("#readonly")).to_be_hidden()
        assert len(corrections(path)) == 1
        assert refused(found) == 1
        assert found.errors == []


# ------------------------------------------------------------------------------ several people


def opened_at(page: Page, url: str) -> None:
    page.goto(url)
    expect(page.locator(".passage:focus")).to_have_count(1)


@pytest.mark.slow
def test_two_people_label_at_once_and_a_third_settles_what_they_disagree_on(
    chromium: Browser, path: Path
) -> None:
    with (
        serving_all(path, Seat("ada"), Seat("bob")) as urls,
        tab(chromium) as first,
        tab(chromium) as second,
    ):
        ada, bob = first.page, second.page
        opened_at(ada, urls[0])
        opened_at(bob, urls[1])
        doc = focused(ada)
        assert focused(bob) == doc
        before = grade_shown(bob, doc)
        ada.keyboard.press("1")
        said(ada, "→ 1")
        bob.keyboard.press("5")
        said(bob, f"{doc}: grade")
        ada.keyboard.press("m")
        ada.keyboard.type("not about whales")
        ada.keyboard.press("Enter")
        said(ada, "validated")
        expect(ada.locator(".passage .remark")).to_have_text("ada: not about whales")
        bob.keyboard.press("j")
        other = focused(bob)
        bob.keyboard.press("s")
        said(bob, f"{other}: not sure")
        bob.reload()
        expect(bob.locator(".passage:focus")).to_have_count(1)
        assert grade_shown(bob, doc) == "5", f"the judge said {before}"
        expect(bob.locator(".remark")).to_have_count(0)  # ada's note is ada's
        expect(bob.locator("#progress")).to_contain_text("Validated 1 of 60")
        bob.locator("#progress").click()
        expect(bob.locator("#agreement table").last).to_contain_text("ada1–0")
        bob.keyboard.press("Escape")
        ada.keyboard.press("u")
        said(ada, "undone")
        ada.keyboard.press("u")  # the note, then the grade; never bob's
        said(ada, "undone")
        ada.keyboard.press("u")
        said(ada, "nothing to undo")
        ada.keyboard.press("2")
        said(ada, "→ 2")
        assert [c[4:6] for c in corrections(path) if c[6] is None][-1] == (2, "ada")
        assert refused(first) == 1
        assert first.errors == second.errors == []
    with serving(path, "carol", settles=True) as url, tab(chromium) as third:
        carol = third.page
        opened_at(carol, url)
        carol.select_option("#state", "unsure")
        expect(carol.locator("#count")).to_have_text("1 question, 1 passage")
        carol.locator("#clear").click()
        carol.keyboard.press("o")
        expect(carol.locator(f'.passage[data-doc="{doc}"]:focus')).to_contain_text("ada: 2")
        expect(carol.locator(".passage:focus")).to_contain_text("bob: 5")
        carol.keyboard.press("4")
        said(carol, "→ 4")
        expect(carol.locator(".passage:focus")).to_contain_text("settled: 4 (carol)")
        carol.locator("#progress").click()
        expect(carol.locator("#agreement")).to_contain_text("ada and bob0.00")
        assert third.errors == []
    with Store(path) as store:
        held = read_golden(store).queries[0].passages
        assert next(p.grade for p in held if p.doc == doc) == 4


def test_a_second_tab_overwrites_nothing_unseen(chromium: Browser, path: Path) -> None:
    with serving(path) as url, tab(chromium) as first, tab(chromium) as second:
        opened_at(first.page, url)
        opened_at(second.page, url)
        doc = focused(first.page)
        first.page.keyboard.press("2")
        said(first.page, "u undoes it")
        second.page.keyboard.press("5")
        said(second.page, "was changed elsewhere meanwhile (ada, ")
        expect(
            second.page.locator(f'.passage[data-doc="{doc}"] .segments [aria-pressed="true"]')
        ).to_have_text("2")  # it shows what is there now
        second.page.keyboard.press("5")
        said(second.page, f"{doc}: grade 2 → 5")
        assert [c[4] for c in corrections(path)] == [2, 5]
        assert refused(second) == 1
        assert first.errors == second.errors == []


def test_the_better_of_two_is_put_above_the_other(opened: Tab, path: Path) -> None:
    page = opened.page
    before = docs(page)
    page.keyboard.press("c")
    page.keyboard.press("j")
    page.keyboard.press("c")
    expect(page.locator("#compare")).to_be_visible()
    page.keyboard.press("ArrowRight")
    said(page, f"{before[1]} is put above {before[0]}")
    expect(page.locator("#compare")).to_be_hidden()
    now = docs(page)
    assert now.index(before[1]) < now.index(before[0])
    with Store(path) as store:
        (row,) = store.corrections()
        assert (row.doc, row.above, row.below) == (before[1], (before[0],), ())


def test_a_grade_gives_every_passage_the_rank_it_has_now(opened: Tab, path: Path) -> None:
    """The graded one stays where it is, and no rank is shown twice."""
    page = opened.page
    order = docs(page)
    page.keyboard.press("1")
    said(page, f"{order[0]}: grade")
    with Store(path) as store:
        ranks = {p.doc: p.rank for p in read_queries(store, "q0")[0].passages}
    assert ranks[order[0]] != 1
    first = page.locator(f'.passage[data-doc="{order[0]}"] .rank')
    expect(first).to_contain_text(f"{ranks[order[0]]}1")  # its rank, and the judge's struck out
    shown = {
        doc: page.locator(f'.passage[data-doc="{doc}"] .rank').evaluate("e => e.firstChild.data")
        for doc in order
        if ranks[doc] is not None
    }
    assert shown == {doc: str(rank) for doc, rank in ranks.items() if rank is not None}
    assert docs(page) == order


def test_the_last_twenty_can_be_looked_at_and_taken_back(opened: Tab, path: Path) -> None:
    page = opened.page
    order = docs(page)
    page.keyboard.type("1j42j3")  # the second one's first grade is not her last word on it
    said(page, f"{order[2]}: grade")
    page.keyboard.press("n")
    expect(page.locator("#question h2")).to_have_text(QUESTIONS["q1"])
    page.keyboard.press("l")
    expect(page.locator("#recent li")).to_have_count(3)
    page.locator("#recent .entry").nth(1).click()
    expect(page.locator(f'.passage[data-doc="{order[1]}"]:focus')).to_have_count(1)
    page.keyboard.press("l")
    page.locator("#recent").get_by_text("undo").last.click()
    said(page, f"{order[0]}: grade 1")
    with Store(path) as store:
        assert [c.doc for c in store.active_corrections()] == [order[1], *order[1:3]]


def test_the_words_of_the_question_are_marked_in_its_passages(opened: Tab) -> None:
    page = opened.page
    marks = page.locator(".passage .text mark.term")
    expect(marks).to_have_count(20)
    assert set(marks.all_inner_texts()) == {"whales"}


def test_on_a_wide_screen_the_evidence_is_beside_the_passage(chromium: Browser, path: Path) -> None:
    with serving(path) as url, tab(chromium, width=1920, height=1080) as found:
        page = found.page
        opened_at(page, url)
        expect(page.locator("#beside h2")).to_have_text(focused(page))
        page.keyboard.press("j")
        expect(page.locator("#beside h2")).to_have_text(focused(page))
        expect(page.locator("#beside pre").first).to_be_visible()
        page.keyboard.press("h")
        expect(page.locator("#beside")).to_contain_text("hidden until you have graded")
        assert page.evaluate("document.documentElement.scrollWidth") <= 1920
        assert found.errors == []


def test_blind_to_the_judge_the_page_shows_it_where_one_has_graded(
    chromium: Browser, path: Path
) -> None:
    Desk(path, Seat("ada")).label("q0", "d3", 2)
    with serving(path, blind=True) as url, tab(chromium) as found:
        page = found.page
        opened_at(page, url)
        expect(page.locator("#blind")).to_be_hidden()
        expect(page.locator(".passage .judge")).to_have_count(1)
        page.keyboard.press("h")
        said(page, "stays hidden")
        page.keyboard.press("4")
        said(page, "u undoes it")
        expect(page.locator(".passage .judge")).to_have_count(2)
        assert found.errors == []
