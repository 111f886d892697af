"""A prepared folder → a decision: judge, sweep, fill holes, recommend, and one page.

    FOLDER/golden.golden, golden/   who judged what: the store, and its export
    FOLDER/swept/                   every configuration of sweep.yaml
    FOLDER/report.html              all of it on one page

Every stage goes on where it stopped, and nothing that was answered is asked again. A simulated
judge is taken only where it is asked for by name, and keeps to files of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rankproof.config import check_config, read_config, read_keys
from rankproof.documents.preparing import GOLDEN, QUERIES, SWEEP, Told, silent
from rankproof.documents.questions import caveat, kept_questions
from rankproof.errors import InputError
from rankproof.golden.building import Build, store_path
from rankproof.golden.export import export
from rankproof.golden.filling import hole_grader
from rankproof.golden.judges import members
from rankproof.golden.plan import Plan, make_plan
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store
from rankproof.records.beir import read_corpus
from rankproof.results.displayed import Displayed
from rankproof.results.tables import Table
from rankproof.tradeoffs.plan import SweepSettings, configurations
from rankproof.tradeoffs.recommend import Recommendation, recommend
from rankproof.tradeoffs.sweep import Swept, sweep

SIMULATED = "simulated"
STAGES = ("judging", "comparing", "choosing", "writing the page")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, repr=False)
class Chosen(Displayed):
    """What to deploy, on what evidence, and the page that shows it."""

    folder: Path
    recommendation: Recommendation
    swept: Swept
    report: Path
    simulated: bool
    notes: tuple[str, ...]

    def _shown(self) -> Table:
        return self.recommendation._shown()

    def words(self) -> list[str]:
        """The choice in words; without a limit, the best."""
        found = self.recommendation
        if found.choices:
            return found.words()
        row = found.table.row(0, named=True)
        ends = "" if row["low"] is None else f" ({row['low']:.3f} to {row['high']:.3f}, 95%)"
        best = f"Best by {found.measure}: {row['configuration']}, {row['quality']:.3f}{ends}."
        return [best, *found.words()]

    def __repr__(self) -> str:
        return "\n".join(self.words())

    def to_dict(self) -> dict[str, Any]:
        return {
            "manifest": self.swept.manifest,
            "folder": str(self.folder),
            "report": str(self.report),
            "simulated": self.simulated,
            "words": self.words(),
            "notes": list(self.notes),
            "recommendation": self.recommendation.to_dict(),
        }


def choose(
    folder: str | Path,
    *,
    sla_ms: float | None = None,
    budget: float | None = None,
    quality: float | None = None,
    judge: Literal["simulated"] | None = None,
    yes: bool = False,
    confirm: Callable[[str], bool] | None = None,
    say: Say = lambda line: None,
    progress: Told = silent,
) -> Chosen:
    """Judge, sweep and recommend in a folder that `init` prepared, and write a page.

    What it will cost is said before anything is sent: `yes` agrees to it, else `confirm` is asked.
    Interrupt it at any time and call it again.
    """
    from rankproof.report import write_report

    place = Path(folder)
    who = _judging(place, judge)
    swept_by = read_config(_there(place, SWEEP), SweepSettings)
    mark = f"-{SIMULATED}" if judge == SIMULATED else ""
    if who is not None:
        store = store_path(who, place / GOLDEN) if not mark else place / f"{SIMULATED}.golden"
        with Store(store) if _is_store(store) else nullcontext() as opened:
            plan = make_plan(who, opened)
        expected = _expected(who, plan, swept_by)
        if expected:
            say(expected)
            if not yes and not (confirm is not None and confirm("Go on?")):
                raise InputError("it was not agreed to", remedy="add --yes (in Python yes=True)")
        say(_stage(0))
        with Store(store, create=True) as opened:
            Build(who, opened, progress).run()
            written = export(opened, place / f"golden{mark}")
        qrels = written.get("qrels.txt") or written["qrels.simulated.txt"]
        update: dict[str, Any] = {"qrels": qrels}
        if mark:
            update |= {"holes": "leave", "judge": None}
        swept_by = swept_by.model_copy(update=update)
    say(_stage(1))
    out = place / f"swept{mark}"
    swept = sweep(swept_by, out, progress=progress, judge=_filled(swept_by, out, say, progress))
    say(_stage(2))
    found = recommend(out, sla_ms=sla_ms, budget=budget, quality=quality)
    say(_stage(3))
    notes = [*swept.manifest["notes"], *_caveats(place, bool(mark))]
    title = f"What to deploy: {place.resolve().name}{' (SIMULATED judge)' if mark else ''}"
    report, broken = write_report(place, None, title)
    notes += [f"left out of the page: {line}" for line in broken]
    return Chosen(place, found, swept, report, bool(mark), tuple(notes))


def _stage(at: int) -> str:
    return f"{at + 1} of {len(STAGES)}: {STAGES[at]}"


def _there(place: Path, name: str) -> Path:
    if not (place / name).is_file():
        raise InputError(
            f"there is no {name} in this folder" if place.is_dir() else "there is no such folder",
            place=str(place),
            remedy="prepare one: rankproof init DOCUMENTS --questions questions.txt",
        )
    return place / name


def _judging(place: Path, judge: str | None) -> GoldenSettings | None:
    """Who judges; None where judgements are there and nobody is named."""
    if judge is None and not (place / GOLDEN).is_file() and (place / SWEEP).is_file():
        return None
    said = read_keys(_there(place, GOLDEN))
    if not (place / QUERIES).is_file():
        raise InputError(
            "there are no questions in this folder",
            place=str(place),
            remedy="rankproof init DOCUMENTS --questions questions.txt",
        )
    if judge == SIMULATED:
        said = {**said, "judge": {"type": SIMULATED}}
        return check_config(said, GoldenSettings, place=str(place / GOLDEN), folder=place.resolve())
    named = said.get("judge")
    if named is None:
        raise InputError(
            "it names no judge",
            place=str(place / GOLDEN),
            remedy="name a chat endpoint there, or install rankproof[torch] for a reranker, or try "
            "with --judge simulated",
        )
    if isinstance(named, dict) and named.get("type") == SIMULATED:
        raise InputError(
            "a simulated judge is evidence of nothing",
            place=str(place / GOLDEN),
            remedy="name another, or say --judge simulated to try things out",
        )
    return read_config(place / GOLDEN, GoldenSettings)


def _is_store(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _expected(who: GoldenSettings, plan: Plan, grid: SweepSettings) -> str:
    """What it takes in calls and dollars; empty where nothing is sent to anybody."""
    calls = sum(step.calls for step in plan.steps)
    judges = [judge for judge in members(who.judge).values() if judge.type == "llm"]
    if not judges or not calls:
        return ""
    tokens = sum(step.tokens_in + step.tokens_out for step in plan.steps)
    dollars = "at a price that is not known" if plan.cost is None else f"about ${plan.cost:.2f}"
    named = " and ".join(judge.model for judge in judges)
    said = f"{named} is asked {calls:,} times, {tokens:,} tokens, {dollars}"
    if grid.holes == "judge":
        deepest = max([*grid.at, *grid.prompts])
        most = plan.queries * deepest * sum(1 for _ in configurations(grid))
        said += f"; and of what the sweep finds beyond that, at most {most:,} passages"
    return f"{said} ({plan.prices})"


def _filled(settings: SweepSettings, out: Path, say: Say, progress: Told) -> Any:
    if settings.judge is None:
        return None
    corpus = read_corpus(settings.corpus, settings.qrels)
    return hole_grader(settings.judge, out / "work", corpus, say, progress)


def _caveats(place: Path, simulated: bool) -> list[str]:
    said = caveat(kept_questions(place / QUERIES)) if (place / QUERIES).is_file() else None
    mocked = "the judge was simulated: these figures are evidence of nothing"
    return [*([mocked] if simulated else []), *([said] if said else [])]
