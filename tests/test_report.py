"""The demo from end to end, and its report in a real browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from browser import Tab, browser, tab
from demo_folder import demo_folder
from playwright.sync_api import Browser
from rankproof_cli import rankproof
from small_corpus import write_corpus

import rankproof as rp
from rankproof.commands.showcase import Demo, build_demo, demo_lines
from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import signed
from rankproof.presentation.charts import Range, RangeChart
from rankproof.presentation.html import table_html
from rankproof.presentation.markup import Html, element, escape
from rankproof.presentation.result import Presentation, Summary, stored
from rankproof.presentation.svg import nice_ticks
from rankproof.presentation.tables import Column, Table
from rankproof.presentation.text_formats import csv_table, latex_table, markdown_table
from rankproof.report import page, write_report
from rankproof.tradeoffs import ceilings, recommend
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.results import LEVEL
from rankproof.tradeoffs.selection import Limits, pick
from rankproof.tradeoffs.sweep import sweep

pytest.importorskip("wordllama")
pytest.importorskip("jinja2")


@contextmanager
def quiet(label: str, total: float) -> Iterator[object]:
    yield lambda amount: None


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    place = tmp_path_factory.mktemp("shown") / "demo"
    shutil.copytree(demo_folder(), place)
    return build_demo(place)


@pytest.fixture(scope="module")
def running() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def opened(demo: Demo, running: Browser) -> Iterator[Tab]:
    with tab(running) as page:
        page.page.goto(demo.report.as_uri())
        yield page


# ------------------------------------------------------------------------------------- the demo


@pytest.mark.slow
def test_the_demo_prints_one_result_in_at_most_twelve_lines(demo: Demo) -> None:
    lines = demo_lines(demo)
    assert len(lines) <= 12
    assert "0.110 worse" in " ".join(lines)
    commands = [line.split() for line in lines if line.startswith("  rankproof ")]
    assert [words[1] for words in commands] == ["compare", "gate", "choose"]
    for words in commands[:2]:
        done = rankproof(*words[1:])
        assert done.returncode == (words[1] == "gate"), done.stderr.decode()


@pytest.mark.slow
def test_the_demo_prints_the_same_digits_when_it_is_run_again(demo: Demo, tmp_path: Path) -> None:
    """In the same folder it is all there; in another only times may differ."""
    when = re.compile(rb"\d{4}-\d\d-\d\dT[\d:+]+")  # the golden set is exported again
    report = when.sub(b"", demo.report.read_bytes())
    assert demo_lines(build_demo(demo.folder)) == demo_lines(demo)
    assert when.sub(b"", demo.report.read_bytes()) == report
    other = tmp_path / "again"
    done = rankproof("demo", "--out", str(other))
    assert done.returncode == 0, done.stderr.decode()
    for name in ("evaluation.json", "comparison.json", "audit.json", "en/names.json"):
        one, two = (
            json.loads((folder / "results" / name).read_text()) for folder in (demo.folder, other)
        )
        assert {k: v for k, v in one.items() if k != "manifest"} == {
            k: v for k, v in two.items() if k != "manifest"
        }
    swept = "corpus/swept-simulated/per_query.parquet"
    frames = [pl.read_parquet(folder / swept) for folder in (demo.folder, other)]
    assert frames[0].equals(frames[1])
    judged = "corpus/golden-simulated/qrels.simulated.txt"
    assert (demo.folder / judged).read_bytes() == (other / judged).read_bytes()
    assert b"0.110 worse" in done.stdout.replace(b"\n", b" ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["evaluation", "comparison", "gate", "audit"])
def test_the_files_of_the_demo_are_reproduced_bit_by_bit(demo: Demo, name: str) -> None:
    found = rp.verify(demo.folder / "results" / f"{name}.json", [demo.folder])
    assert found.same
    assert found.unmade is None
    assert found.compared > 50


@pytest.mark.slow
def test_the_demo_prints_what_choose_prints_for_its_corpus(demo: Demo) -> None:
    again = rp.choose(demo.folder / "corpus", judge="simulated")
    assert again.words() == demo.chosen.words()
    assert again.simulated


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="a limit of Unix")
def test_a_demo_on_a_full_disk_leaves_complete_files_and_continues(
    demo: Demo, tmp_path: Path
) -> None:
    folder = tmp_path / "demo"
    assert "plain.trec: cannot write it (File too large); make room" in _limited(folder, 16)
    assert "corpus.jsonl: cannot write it (File too large); make room" in _limited(folder, 60)
    words = "simulated.golden: it could not be written; make room and run again"
    assert words in _limited(folder, 300)
    written = [path for path in folder.rglob("*") if path.is_file() and ".golden" not in path.name]
    assert len(written) > 10
    for path in written:
        if path.parent.name == "results" and path.suffix == ".json":  # names its own command
            json.loads(path.read_text())
        else:
            assert path.read_bytes() == (demo.folder / path.relative_to(folder)).read_bytes()
    assert build_demo(folder).comparison["pairs"] == demo.comparison["pairs"]
    assert _names(folder) == _names(demo.folder)


def _limited(folder: Path, kibibytes: int) -> str:
    """Return what the demo says where no file may become larger than this."""
    import resource

    done = subprocess.run(
        [sys.executable, "-m", "rankproof", "demo", "--out", str(folder)],
        preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_FSIZE, (kibibytes << 10, kibibytes << 10)
        ),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    return done.stderr.splitlines()[-1]


def _names(folder: Path) -> set[str]:
    """Return the names of all files below a folder."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["results", "vectors", "corpus/swept-simulated/runs"])
def test_a_folder_that_was_deleted_from_the_demo_is_made_again(
    demo: Demo, tmp_path: Path, lost: str
) -> None:
    folder = tmp_path / "demo"
    shutil.copytree(demo.folder, folder)
    shutil.rmtree(folder / lost)
    build_demo(folder)
    assert _names(folder) == _names(demo.folder)


def test_the_demo_does_not_touch_results_of_others(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "mine.json").write_text("{}")
    done = rankproof("demo", "--out", str(tmp_path))
    assert done.returncode == 2
    assert b"holds results, which is not the demo's" in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["results", "mine.json"]


@pytest.mark.parametrize(
    "name", ["qrels.txt", "corpus/queries.jsonl", "corpus/sweep.yaml", "report.html"]
)
def test_the_demo_overwrites_no_file_of_others(tmp_path: Path, name: str) -> None:
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    done = rankproof("demo", "--out", str(tmp_path))
    assert done.returncode == 2
    assert f"holds {name}, which is not the demo's".encode() in done.stderr
    assert mine.read_text() == "mine"
    assert not (tmp_path / "results").exists()


# ----------------------------------------------------------------------------------- the report


class Checker(HTMLParser):
    """Ids, links and what would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if named.get("id"):
            self.ids.append(str(named["id"]))
        if tag == "a":
            self.links.append(str(named.get("href")))
        elif named.get("src") or (tag == "link" and named.get("href") != "data:,"):
            self.fetched.append(str(named))


@pytest.mark.slow
def test_the_page_is_one_file_whose_links_have_targets(demo: Demo) -> None:
    text = demo.report.read_text(encoding="utf-8")
    assert len(text.encode()) < 1_000_000
    page = Checker()
    page.feed(text)
    assert not page.fetched
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    for section in ("Scores", "Precision", "Configurations", "Ceilings", "Golden set", "Names"):
        assert f"<h2>{section}" in text


@pytest.mark.slow
def test_the_page_opens_without_errors_and_without_requests(opened: Tab, demo: Demo) -> None:
    assert opened.errors == []
    asked = [url for url in opened.requests if not url.startswith("data:")]
    assert asked == [demo.report.as_uri()]


@pytest.mark.slow
def test_the_page_opens_with_the_choice_and_sliders_choose_again(opened: Tab, demo: Demo) -> None:
    frame = pl.read_parquet(demo.folder / "corpus/swept-simulated/configurations.parquet")
    choice = opened.page.locator(".decision")
    assert "44 questions and 172 passages, 9 configurations" in (choice.text_content() or "")
    best = float(frame["RAnWG@10"].to_numpy().max())
    assert choice.locator(".figures .value").first.text_content() == f"{best:.3f}"
    name = choice.locator(".name").text_content() or ""
    assert "candidates, 10 passages in the prompt" in name
    slider = choice.locator("input[data-axis=ms]")
    slider.fill("0")
    fastest = float(frame["latency_p95_ms"].to_numpy().min())
    said = choice.locator(".figures .value").nth(1).text_content() or ""
    assert float(said.removesuffix(" ms")) <= max(2 * fastest, fastest + 0.1)
    assert (choice.locator(".why").text_content() or "").startswith("Within ")
    assert "--sla-ms" in (choice.locator(".command").text_content() or "")
    assert opened.page.locator(".point.chosen").count() == 1
    assert opened.page.locator(".point.out").count() > 0
    slider.fill("1000")
    assert choice.locator(".name").text_content() == name
    assert opened.page.locator(".whisker").count() > 0


@pytest.mark.slow
def test_the_page_explains_every_measure_and_shows_ten_questions(opened: Tab) -> None:
    page = opened.page
    head = page.locator("section[id^=sweep] th", has_text="RAnWG@10").first
    assert "best set of k passages" in (head.get_attribute("data-tip") or "")
    terms = page.locator("#glossary dt").all_text_contents()
    assert {"RAnWG", "nDCG", "RR", "p95 ms", "PROC", "judged"} <= set(terms)
    assert page.locator("section[id^=finalists] details").count() == 10
    shown = page.locator("section[id^=finalists] details").first
    assert shown.locator(".badge").count() == 10
    assert "passages are shown by their ids" not in page.content()


@pytest.mark.slow
def test_tables_sort_and_filter_and_legends_switch(opened: Tab) -> None:
    page = opened.page
    page.locator("section[id^=sweep] summary").click()
    table = page.locator("section[id^=sweep] details table.sortable")
    cells = table.locator("tbody tr td:nth-child(7)")
    head = table.locator("thead th:nth-child(7) button")
    head.click()
    down = [float(text) for text in cells.all_text_contents()]
    assert down == sorted(down, reverse=True)
    head.click()
    up = [float(text) for text in cells.all_text_contents()]
    assert up == sorted(up)
    page.locator("section[id^=sweep] .filter").fill("sparse")
    rows = table.locator("tbody tr:visible")
    assert 0 < rows.count() < len(down)
    assert all("sparse" in words for words in rows.all_text_contents())
    page.locator("section[id^=sweep] .filter").fill("")
    figure = page.locator("section[id^=evaluation] figure:has(.series)")
    line = figure.locator(".series").first
    button = figure.locator(".legend button").first
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert "off" in (line.get_attribute("class") or "")
    button.click()
    assert "off" not in (line.get_attribute("class") or "")


@pytest.mark.slow
def test_marks_of_charts_show_their_values_on_keyboard_focus(opened: Tab) -> None:
    point = opened.page.locator(".point.front").first
    point.focus()
    tip = opened.page.locator("#tip")
    assert tip.is_visible()
    assert tip.text_content() == point.get_attribute("data-tip")
    opened.page.keyboard.press("Escape")
    assert not tip.is_visible()


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_nothing_overflows_the_page_in_light_or_dark(
    demo: Demo, running: Browser, width: int
) -> None:
    for dark, paper in ((True, "rgb(20, 23, 27)"), (False, "rgb(255, 255, 255)")):
        with tab(running, width=width, height=844, dark=dark) as shown:
            page = shown.page
            page.goto(demo.report.as_uri())
            assert shown.errors == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
            page.locator("#theme").click()
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") != paper


@pytest.mark.slow
def test_folded_parts_are_open_in_print(demo: Demo, running: Browser) -> None:
    with tab(running) as shown:
        shown.page.goto(demo.report.as_uri())
        shown.page.emulate_media(media="print")
        assert not shown.page.locator(".limits").first.is_visible()
        assert shown.page.pdf(format="A4").startswith(b"%PDF")
        shown.page.set_viewport_size({"width": 700, "height": 1000})  # of A4 between its margins
        wide = "[...document.querySelectorAll('table')].map(t => t.getBoundingClientRect().right)"
        shown.page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        assert max(shown.page.evaluate(wide)) <= 700


HOSTILE = '<script>document.title="owned"</script><img src=x onerror=alert(1)>"\'&'
LONG = "Ω" * 300


def results(folder: Path, *names: str) -> Path:
    """Write an evaluation of runs with these names; by default names that would do harm."""
    names = names or (HOSTILE, LONG)
    rows = [Range(name, 0.5, 0.4, 0.6, marker=0.5) for name in names]
    table = Table([Column("run", "text"), Column("expected")], [(name, 0.5) for name in names])
    presentation = Presentation.assemble(
        "evaluation", Summary(names[0]), [table], [RangeChart(names[0], rows, "nDCG@10")]
    )
    data = {"manifest": {"kind": "evaluation"}, "presentation": stored(presentation)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "eval.json").write_text(json.dumps(data))
    return folder


def test_names_are_shown_as_text_whatever_they_contain(tmp_path: Path, running: Browser) -> None:
    path, _ = write_report(results(tmp_path / "r"))
    text = path.read_text(encoding="utf-8")
    assert "<script>document.title" not in text
    assert "<img" not in text
    with tab(running) as page:
        page.page.goto(path.as_uri())
        assert page.page.title().endswith("rankproof")
        assert page.errors == []
        assert HOSTILE in (page.page.locator("table").first.text_content() or "")
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 1280


def swept(folder: Path, seed: int, count: int = 12, queries: int = 20, letters: str = "") -> Path:
    """A sweep of random figures, with what would do harm among its names."""
    draw = np.random.default_rng(seed)
    names = [f"c{at} {letters}K={10 * (at % 4 + 1)} top {at % 3 + 1}" for at in range(count)]
    names[0] = f"</script>{HOSTILE}"
    values = np.clip(
        draw.normal(draw.choice([0.5, 0.55, 0.8], (count, 1)), 0.2, (count, queries)), 0, 1
    )
    values = np.round(values, 1)
    means = values.mean(axis=1)
    half = 2 * values.std(axis=1) / np.sqrt(queries)
    frame = pl.DataFrame(
        {
            "configuration": names,
            "mode": ["dense"] * count,
            "RAnWG@prompt": means,
            "RAnWG@prompt low": means - half,
            "RAnWG@prompt high": means + half,
            "RAnWG@prompt judged": draw.uniform(0.5, 1, count),
            "latency_p50_ms": (p50 := np.round(draw.lognormal(2, 1, count), 2)),
            "latency_p95_ms": 2 * p50,
            "jitter_ms": draw.choice([0.0, 1.0, 10.0], count),
            "cost_per_1000": draw.choice([0.0, 0.25, 1.5], count),
            "index_bytes": draw.integers(1, 5, count) * 1_000_000,
            "overlap@10": 1.0,
            "tau@10": 1.0,
            "network": draw.random(count) < 0.3,
            "stages": draw.integers(1, 4, count),
            "k": [10 * (at % 4 + 1) for at in range(count)],
            "prompt_k": [at % 3 + 1 for at in range(count)],
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(folder / "configurations.parquet")
    pl.DataFrame(
        {
            "configuration": np.repeat(names, queries).tolist(),
            "query": [f"q{q}" for _ in names for q in range(queries)],
            "measure": "RAnWG@prompt",
            "value": values.ravel(),
        }
    ).write_parquet(folder / "per_query.parquet")
    made = {
        "kind": "sweep",
        "made": f"2026-11-{seed % 28 + 1:02}T00:00:00+00:00",
        "queries": queries,
    }
    made |= {"configurations": count, "best_by": "RAnWG@prompt", "inputs": {}, "versions": {}}
    made |= {"prices": {"date": "2026", "source": "us", "tokens_are": "given"}}
    (folder / "sweep.json").write_text(json.dumps(made))
    return folder


@pytest.mark.slow
def test_the_page_chooses_as_recommend_does(tmp_path: Path, running: Browser) -> None:
    """Random sweeps, random limits: the page's script beside the function that `recommend` asks."""
    given = {"ms": "sla_ms", "usd": "budget", "mb": "memory_mb", "quality": "quality"}
    none = dict.fromkeys(given)
    choose = "asked => document.querySelector('.decision').choose(asked)"
    with tab(running) as opened:
        for seed in range(25):
            folder = swept(tmp_path / f"s{seed}", seed)
            path, broken = write_report(folder)
            assert not broken
            opened.page.goto(path.as_uri())
            draw = np.random.default_rng(seed)
            table = recommend(folder, sla_ms=1e6).table
            for turn in range(20):
                limits = {
                    "ms": float(draw.choice(table["latency"].to_numpy())),
                    "usd": float(draw.choice([0.0, 0.3, 2.0])),
                    "mb": float(draw.choice([0.5, 2.0, 3.0])),
                    "quality": float(draw.choice([0.3, 0.5, 0.7])),
                }
                asked = {key: value for key, value in limits.items() if draw.random() < 0.5}
                named: dict[str, Any] = {given[k]: v for k, v in asked.items()}
                row, within = pick(table, Limits(**named))
                at, level, expected = opened.page.evaluate(choose, none | asked)
                assert table["configuration"][at] == row["configuration"], (seed, asked)
                if named and turn < 6 and within.any():
                    found = recommend(folder, **named).choices[-1]
                    assert [table["configuration"][i] for i in level] == [*(found.similar or ())]
                    assert expected == pytest.approx(found.expected) or "quality" in asked
        assert opened.errors == []


@pytest.mark.slow
def test_each_slider_chooses_what_the_command_below_it_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: Browser
) -> None:
    """The command that the page shows, run as it stands: it names what the page names."""
    monkeypatch.chdir(tmp_path)
    path, _ = write_report(swept(Path("my sweep"), 4))
    with tab(running) as opened:
        opened.page.goto(path.absolute().as_uri())
        choice = opened.page.locator(".decision")
        sliders = {axis: choice.locator(f"[data-axis={axis}]") for axis in ("ms", "usd", "mb")}
        sliders["quality"] = choice.locator("[data-axis=quality]")
        rest = {axis: "0" if axis == "quality" else "1000" for axis in sliders}
        moves = [{}, *({axis: str(at)} for axis in sliders for at in (1, 400, 900))]
        moves.append({"ms": "700", "usd": "900", "mb": "600"})
        for move in moves:
            for axis, slider in sliders.items():
                slider.fill((rest | move)[axis])
            words = shlex.split(choice.locator(".command").text_content() or "")
            assert words[:3] == ["rankproof", "recommend", "my sweep"]
            assert len(words) == 3 + 2 * len(move)  # the limits that are set, and no others
            done = rankproof(*words[1:], "--format", "json")
            said = json.loads(done.stdout)["choices"][-1]
            assert choice.locator(".name").text_content() == said["configuration"], words
            assert (choice.locator(".choice.none").count() == 1) == (done.returncode == 1)
            shown = choice.locator(".limit output").all_text_contents()
            assert sum(limit != "any" for limit in shown) == len(move)
            for value in words[4::2]:  # a limit is shown as it is asked with
                assert any(value in limit for limit in shown)
        assert opened.errors == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "limits"),
    [
        *((count, Limits()) for count in (1, 2, 12)),
        *((12, Limits(**{name: at})) for name in ("sla_ms", "memory_mb") for at in (2, 20)),  # type: ignore[arg-type]
        *((12, Limits(sla_ms=30, budget=0.3)), (12, Limits(quality=0.45))),
        *((12, Limits(sla_ms=0.01, quality=0.9)), (12, Limits(quality=0.9))),
        *((12, Limits(budget=0)), (12, Limits(sla_ms=9, memory_mb=1))),
    ],
)
def test_the_choice_is_the_same_with_and_without_the_script(
    tmp_path: Path, running: Browser, count: int, limits: Limits
) -> None:
    """What Python wrote is what the script says at first, word for word; and it is what
    `recommend` chooses."""
    folder = swept(tmp_path / "s", 3, count=count)
    path, _ = write_report(folder, limits=limits)
    context = running.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    parts = (".why", ".name", ".figures", ".alike", ".changes", ".command", ".expected", ".holes")
    still = [page.locator(f".decision {part}").text_content() for part in parts]
    assert not page.locator(".limits").is_visible()
    assert page.locator(".point.chosen").count() == 1
    context.close()
    with tab(running) as opened:
        opened.page.goto(path.as_uri())
        moved = [opened.page.locator(f".decision {part}").text_content() for part in parts]
        assert opened.page.locator(".limits").is_visible() == (count > 1)
        assert opened.errors == []
        assert opened.page.title().endswith("rankproof")
    assert still == moved
    given = {name: getattr(limits, name) for name in ("sla_ms", "budget", "memory_mb", "quality")}
    assert still[1] == recommend(folder, **given).choices[-1].configuration


def test_limits_that_nothing_meets_name_the_closest_configuration(
    tmp_path: Path, running: Browser
) -> None:
    path, _ = write_report(swept(tmp_path / "s", 5))
    with tab(running) as opened:
        opened.page.goto(path.as_uri())
        opened.page.evaluate(
            "document.querySelector('.decision').choose({ms: 0.001, quality: 0.999})"
        )
        said = opened.page.locator(".why").text_content() or ""
        asked = "within 0.001 ms and at a quality of 0.999 or more"
        assert said.startswith(f"Nothing is {asked}. Closest: ")
        assert "too slow" in said


@pytest.mark.parametrize(("count", "queries", "left"), [(900, 20, 500), (400, 500, 150)])
def test_a_sweep_of_hundreds_stays_below_a_megabyte(
    tmp_path: Path, count: int, queries: int, left: int
) -> None:
    """Of many rows, or of many figures: what is dominated is skipped first, and counted."""
    folder = swept(tmp_path / "s", 1, count=count, queries=queries, letters="long " * 30)
    path, broken = write_report(folder)
    assert not broken
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < 1_000_000
    assert f"{left} more are not shown" in text


def test_the_provenance_of_an_evaluation_leaves_out_its_values(tmp_path: Path) -> None:
    """Those of every query are in the file that the page names."""
    queries = [f"q{i}" for i in range(3_000)]
    (tmp_path / "q.txt").write_text("".join(f"{q} 0 d 1\n" for q in queries))
    (tmp_path / "r.trec").write_text("".join(f"{q} Q0 d 1 1 t\n" for q in queries))
    words = ("eval", "q.txt", "r.trec", "-m", "P@1", "--out", "results/made.json")
    (tmp_path / "results").mkdir()
    assert rankproof(*words, cwd=tmp_path).returncode == 0
    path, _ = write_report(tmp_path / "results")
    text = path.read_text(encoding="utf-8")
    assert "sha256" in text
    assert "q2999" not in text


def test_a_large_page_is_rebuilt_only_if_that_makes_it_shorter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    build = page._PageBuilder.sections

    def counted(builder: page._PageBuilder) -> Any:
        made.append(builder.configurations)
        return build(builder)

    monkeypatch.setattr(page, "_LARGEST_PAGE", 1)
    monkeypatch.setattr(page._PageBuilder, "sections", counted)
    write_report(swept(tmp_path / "s", 1))
    assert made == [400, 250, 150, 80, 40]
    made.clear()
    (tmp_path / "q.txt").write_text("q 0 d 1\n")
    (tmp_path / "r.trec").write_text("q Q0 d 1 1 t\n")
    (tmp_path / "results").mkdir()
    words = ("eval", "q.txt", "r.trec", "-m", "P@1", "--out", "results/made.json")
    assert rankproof(*words, cwd=tmp_path).returncode == 0
    write_report(tmp_path / "results")
    assert made == [400]


def test_a_named_configuration_opens_the_page_instead_of_the_choice(
    tmp_path: Path, running: Browser
) -> None:
    folder = swept(tmp_path / "s", 3)
    table = recommend(folder, sla_ms=1e6).table
    name = table["configuration"][5]
    done = rankproof("report", f"{folder}::{name}")
    assert done.returncode == 0, done.stderr
    place = ".decision .name", ".decision .why", ".decision .changes", ".decision .alike"
    for script in (False, True):
        context = running.new_context(java_script_enabled=script)
        page = context.new_page()
        page.goto((folder / "report.html").as_uri())
        chosen, why, change, alike = (page.locator(part).text_content() for part in place)
        assert chosen == name
        assert why == "As asked for: place 6 of 12 by RAnWG@prompt"
        assert change is not None
        assert change.startswith("What would be chosenThe best: ")
        level = recommend(folder, sla_ms=1e6).results
        assert level is not None
        labels = level.labels(name, "RAnWG@prompt", table["configuration"].to_list(), 0)
        assert labels is not None
        others = [other for other, label in labels.items() if label == LEVEL]
        assert alike is not None
        assert others
        assert others[0] in alike
        if script:  # a limit asks what to choose, and without one it is the row again
            page.evaluate("document.querySelector('.decision').choose({mb: 2})")
            assert page.locator(".decision .why").text_content() != why
            page.evaluate("document.querySelector('.decision').choose({mb: null})")
            assert page.locator(".decision .why").text_content() == why
        context.close()
    done = rankproof("report", f"{folder}::{name}x")
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert f"did you mean {name!r}?" in done.stderr.decode()


def test_the_page_compares_with_the_last_sweep(tmp_path: Path) -> None:
    folder = swept(tmp_path / "s", 7)
    swept(folder / "earlier", 8, count=10)
    text = write_report(folder)[0].read_text(encoding="utf-8")
    assert "Since the last sweep" in text
    assert "The last sweep (2026-11-09) found" in text
    assert "2 configurations are new, 0 are gone" in text
    assert text.count('class="decision"') == 1


def test_a_page_without_script_shows_everything(tmp_path: Path, running: Browser) -> None:
    path, _ = write_report(results(tmp_path / "r"))
    context = running.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("svg .dot").count() == 2
    assert "0.5000" in (page.locator("table").first.text_content() or "")
    context.close()


def test_a_real_sweep_quotes_ceilings_and_the_last_sweep(
    tmp_path: Path,
) -> None:
    place = {"corpus": write_corpus(tmp_path / "corpus"), "modes": ["sparse"], "at": [5, 10]}
    times = {"queries": 2, "repeats": 1, "warmup": 0}
    out = tmp_path / "out"
    for k1 in (1.2, 0.1):  # the second finds a page in the folder
        sparse = {"type": "bm25", "k1": k1}
        given = {**place, "pools": [12], "prompts": [5], "sparse": sparse, "latency": times}
        made = sweep(SweepSettings.model_validate(given), out)
        text = write_report(out)[0].read_text(encoding="utf-8")
    name = made.configurations["configuration"][0]
    best = made.manifest["best_by"]
    run = out / made.configurations["run"][0]
    judged = pl.read_parquet(out / "judgements.parquet")
    assert str(escape(ceilings(run, judged, [best])[best].words())) in text
    assert "The last sweep (" in text
    assert "BM25, 12 candidates, 5 passages in the prompt" in text
    assert name in pl.read_parquet(out / "earlier" / "configurations.parquet")["configuration"]
    texts = pl.read_parquet(out / "texts.parquet")
    assert texts.filter(pl.col("kind") == "question").height == 6


def store(path: Path, result: Any) -> None:
    """Write a result as `--out` does."""
    data = {"manifest": {"kind": result.kind}, **result.to_dict(), "presentation": stored(result)}
    path.write_text(json.dumps(data))


def test_gates_and_leaderboards_have_sections(tmp_path: Path) -> None:
    qrels = {f"q{q}": {"d1": 1} for q in range(40)}
    runs = {
        name: {f"q{q}": {"d1": 1.0 if q % 5 else 0.1, "d2": first} for q in range(40)}
        for name, first in (("a", 0.5), ("b", 0.05))
    }
    found = rp.gate(qrels, runs["a"], runs["b"], "RR", margin=0.02)
    store(tmp_path / "gate.json", found)
    board = rp.leaderboard(qrels, runs, ["RR", "P@1"])
    store(tmp_path / "board.json", board)
    path, broken = write_report(tmp_path)
    text = path.read_text(encoding="utf-8")
    assert not broken
    assert "RR over 40 queries: b is best" in text
    for sentence in found.sentences():
        assert str(escape(sentence)) in text


def test_configurations_do_not_differ_on_a_question_without_a_value(
    tmp_path: Path,
) -> None:
    """Where nothing is relevant RAnWG is undefined for both: their difference is NaN."""
    corpus = write_corpus(tmp_path / "corpus")
    judgements = corpus / "qrels" / "test.tsv"
    head, *rows = [line.split("\t") for line in judgements.read_text().splitlines()]
    first = rows[0][0]
    rows = [[query, doc, "1" if query == first else grade] for query, doc, grade in rows]
    judgements.write_text("\n".join("\t".join(row) for row in [head, *rows]) + "\n")
    given = {"corpus": corpus, "modes": ["dense", "sparse"], "pools": [12], "prompts": [2]}
    times = {"queries": 2, "repeats": 1, "warmup": 0}
    out = tmp_path / "out"
    made = sweep(SweepSettings.model_validate({**given, "latency": times}), out)
    names = made.configurations["configuration"].to_list()
    values = pl.read_parquet(out / "per_query.parquet").filter(measure=made.manifest["best_by"])
    undefined = values.filter(pl.col("value").is_nan() | pl.col("value").is_null())
    assert undefined["query"].unique().to_list() == [first]
    text = write_report(out)[0].read_text(encoding="utf-8")
    (section,) = re.findall(r'<section[^>]*id="finalists-0".*?</section>', text, re.S)
    assert len(names) == 2
    assert "question" in section
    assert "nan" not in section
    asked = pl.read_parquet(out / "texts.parquet").filter(kind="question", id=first)["text"]
    assert asked[0] not in section


def test_a_gate_with_undefined_bounds_has_a_section(tmp_path: Path) -> None:
    """All queries differ alike in a measure that has no end: there is no interval."""
    qrels = {f"q{n}": {"r": 1, "n": 0} for n in range(8)}
    before = {q: {"r": 2.0, "n": 1.0, "m": 0.5} for q in qrels}
    after = {q: {"r": 2.0, "n": 1.0} for q in qrels}
    found = rp.gate(qrels, before, after, "NumRet")
    store(tmp_path / "gate.json", found)
    path, broken = write_report(tmp_path)
    assert not broken
    text = path.read_text(encoding="utf-8")
    assert "NumRet: undecided: -1.0000</title>" in text
    assert "nan" not in text[text.index('id="gate-0"') :].partition("</section>")[0]


def test_an_undefined_difference_is_a_dash_in_every_format() -> None:
    undefined = float("nan")
    assert signed(undefined) == signed(None, 1) == "–"
    column = Column("difference", "signed")
    assert column.write(undefined) == "–"
    table = Table([column], [(undefined,)])
    assert csv_table(table).splitlines()[1] in ("", '""')
    for written in (markdown_table(table), table_html(table), latex_table(table)):
        assert "nan" not in written


def test_a_folder_without_results_and_a_broken_file_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results in this folder"):
        write_report(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        write_report(tmp_path / "none")
    folder = results(tmp_path / "r")
    (folder / "broken.json").write_text('{"runs": [')
    (folder / "other.json").write_text('{"something": "else"}')
    done = rankproof("report", str(folder))
    assert done.returncode == 0
    assert b"skipped: broken.json" in done.stderr
    assert done.stdout.decode().strip() == str(folder / "report.html")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"manifest": {"kind": "sweep", "best_by": "x"}}, "not the sweep"),
        ({"kind": "golden", "counts": {}}, "not the golden"),
        ({"manifest": {"kind": "names"}, "rows": "x"}, "no presentation is stored in it"),
        (
            {"manifest": {"kind": "audit"}, "presentation": {"kind": "audit"}},
            "its presentation cannot be read ('summary')",
        ),
    ],
)
def test_a_file_that_only_looks_like_results_is_skipped(
    tmp_path: Path, data: object, message: str
) -> None:
    (tmp_path / "odd.json").write_text(json.dumps(data))
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere.json")
    with pytest.raises(InputError) as refused:
        write_report(tmp_path)
    assert message in str(refused.value)
    _, broken = write_report(results(tmp_path))
    assert [line.partition(":")[0] for line in broken] == ["gone.json", "odd.json"]
    assert message in broken[1]


def test_without_jinja2_the_errors_say_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['jinja2'] = sys.modules['markupsafe'] = None; "
        "from rankproof.cli import run; run()"
    )
    for words, extra in (("report", "report"), ("demo --out", "demo")):
        done = subprocess.run(
            [sys.executable, "-c", code, *words.split(), str(tmp_path / "x")], capture_output=True
        )
        assert done.returncode == 2, done.stderr.decode()
        assert f"needs jinja2: pip install 'rankproof[{extra}]'".encode() in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.31, 0.68, [0.4, 0.5, 0.6]),
        (-3.0, 12.0, [0.0, 5.0, 10.0]),
        (0.5, 0.5, [0.5]),
    ],
)
def test_ticks_are_round_numbers_inside(low: float, high: float, expected: list[float]) -> None:
    found = nice_ticks(low, high)
    assert found == pytest.approx(expected)


def test_a_page_warns_of_unjudged_documents_and_distinguishes_long_names_of_runs(
    tmp_path: Path,
) -> None:
    """A verdict that unjudged documents could turn is not called certain."""
    names = [f"{'a-very-long-name-of-a-run-' * 2}seed{n}" for n in range(4)]
    qrels = {f"שאלה_{q}": {"a": 1, "b": 0} for q in range(24)}
    listed = {"b": 4.0, "a": 3.0, "x": 2.0, "y": 1.0}
    turned = dict(zip(listed, (3.0, 2.0, 4.0, 1.0), strict=True))
    runs = {name: dict.fromkeys(qrels, turned if n else listed) for n, name in enumerate(names)}
    (tmp_path / "qrels.json").write_text(json.dumps(qrels))
    for name, run in runs.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(run))
    shown = tmp_path / "shown"
    files = [f"{name}.json" for name in names]
    for verb in ("eval", "compare", "leaderboard", "holes"):
        out = f"shown/{verb}.json"
        done = rankproof(verb, "qrels.json", *files, "-m", "RR", "--out", out, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    gated = rankproof(
        *("gate", "qrels.json", *files[:2], "-m", "RR", "--out", "shown/gate.json"), cwd=tmp_path
    )
    assert gated.returncode == 3
    path, left = write_report(shown)
    assert left == []
    text = path.read_text()
    assert "grades of the other documents could change" in text
    assert "<bdi>שאלה_" in text
    assert "Ties move" not in text, "nothing ties"
    labels = re.findall(r"</title>([^<]*) · RR</text>", text)
    assert len(set(labels)) == len(names)
    assert [label[-5:] for label in labels] == [f"seed{n}" for n in range(4)]


def test_an_id_of_a_megabyte_is_scanned_once_for_right_to_left_letters() -> None:
    from rankproof.presentation.markup import mark_up_sentence

    word = "0" * 1_000_000
    assert mark_up_sentence(f"{word} {word}ש, a") == f"{word} <bdi>{word}ש</bdi>, a"
    assert mark_up_sentence(f"ש{':' * 1_000_000}") == f"<bdi>ש</bdi>{':' * 1_000_000}"


def test_a_right_to_left_name_is_isolated_without_the_colon_behind_it() -> None:
    """Word by word its words changed places, and the colon went to its other side."""
    from rankproof.presentation.markup import mark_up_sentence

    assert mark_up_sentence("שלום עולם: 12 of 12") == "<bdi>שלום עולם</bdi>: 12 of 12"
    assert mark_up_sentence("ahead of a-ש.trec.") == "ahead of <bdi>a-ש.trec</bdi>."


@pytest.mark.parametrize("letter", ["W", "8", "x", "模", "Ω"])
def test_a_label_of_wide_letters_fits_its_chart(
    letter: str, tmp_path: Path, running: Browser
) -> None:
    folder = results(tmp_path, HOSTILE, letter * 60)
    with tab(running) as page:
        page.page.goto(write_report(folder)[0].as_uri())
        begins = "[...document.querySelectorAll('.chart .label')].map(t => t.getBBox().x)"
        assert min(page.page.evaluate(begins)) >= 0


def test_an_element_is_escaped_part_by_part_and_no_format_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page of many results holds hundreds of thousands of them."""
    monkeypatch.delattr("string.Formatter.vformat")
    made = element("a", [Html("<b>"), Html("c")], title='"{x}"', data_tip=None, class_="y")
    assert made == '<a title="&quot;{x}&quot;" class="y"><b>c</a>'
    assert element("p", "{0} & more") == "<p>{0} &amp; more</p>"
