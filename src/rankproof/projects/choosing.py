"""A prepared folder → a decision: judge, sweep, fill holes, recommend, and one page.

    FOLDER/golden.golden, golden/   who judged what: the store, and its export
    FOLDER/swept/                   every configuration of sweep.yaml
    FOLDER/report.html              all of it on one page

Every stage goes on where it stopped, and nothing that was answered is asked again. A simulated
judge is taken only where it is asked for by name, and keeps to files of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from rankproof.foundation.config import check_config, read_config, read_keys
from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest_file
from rankproof.foundation.phrasing import plural
from rankproof.foundation.redaction import redact, redact_for_publication
from rankproof.golden.building import Build, store_path
from rankproof.golden.export import export
from rankproof.golden.judges import members
from rankproof.golden.passage_grading import hole_grader
from rankproof.golden.plan import Plan, make_plan
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store, opened_if_built
from rankproof.measures import parse
from rankproof.presentation.json_values import told
from rankproof.presentation.notebook import Displayed
from rankproof.presentation.tables import Table
from rankproof.projects.preparing import CORPUS, GOLDEN, QUERIES, SWEEP
from rankproof.projects.questions import caveat, kept_questions
from rankproof.projects.starters import has_torch
from rankproof.retrieval.components import uses_network
from rankproof.retrieval.workshop import Told, silent
from rankproof.tradeoffs.plan import SweepSettings, configurations
from rankproof.tradeoffs.recommend import Limits, Recommendation, recommend
from rankproof.tradeoffs.sweep import Swept, read_sweep, sweep

SIMULATED = "simulated"
SHIPPED = "qrels/test.tsv"  # what a simulated judge knows
STAGES = ("judging", "comparing", "choosing", "writing the page")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, repr=False)
class Chosen(Displayed):
    """What to deploy, on what evidence, and the page that shows it.

    >>> found = rp.choose("try/corpus", judge="simulated")
    >>> found.words()[0].partition(", p95")[0]
    'Without a limit: hybrid wordllama:256 flat K=30 top 10, RAnWG@10 0.872 (0.809 to 0.936)'
    """

    folder: Path
    recommendation: Recommendation
    swept: Swept
    report: Path
    simulated: bool
    notes: tuple[str, ...]

    def _shown(self) -> Table:
        return self.recommendation._shown()

    def words(self) -> list[str]:
        """The choice in words."""
        return self.recommendation.words()

    def __repr__(self) -> str:
        return "\n".join(self.words())

    def to_dict(self) -> dict[str, Any]:
        return {
            "manifest": self.swept.manifest,
            "folder": str(self.folder),
            "report": str(self.report),
            "words": self.words(),
            **told(self, "simulated", "notes", "recommendation"),
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

    >>> found = rp.choose("try/corpus", judge="simulated", sla_ms=1000)
    >>> found.recommendation.feasible, found.report.name
    (True, 'report.html')
    """
    from rankproof.report import write_report

    place = Path(folder)
    who = _judging(place, judge)
    swept_by = read_config(_there(place, SWEEP), SweepSettings)
    mark = f"-{SIMULATED}" if judge == SIMULATED else ""
    out = place / f"swept{mark}"
    plan = None
    settled = _settled(out, swept_by)
    expected = [] if settled else _sent(swept_by)
    if who is not None:
        store = store_path(who, place / GOLDEN) if not mark else place / f"{SIMULATED}.golden"
        with opened_if_built(store) as opened:
            plan = make_plan(who, opened)
        expected = [*_expected(who, plan, swept_by, settled), *expected]
    for line in expected:
        say(line)
    if expected and not yes and not (confirm is not None and confirm("Go on?")):
        raise InputError("it was not agreed to", remedy="add --yes (in Python yes=True)")
    course = _course(swept_by, who, plan)
    with progress(f"all {len(STAGES)} stages", 1.0) as course.tell:
        if who is not None:
            say(_stage(0))
            with Store(store, create=True) as opened:
                Build(who, opened, course.progress).run()
                written = export(opened, place / f"golden{mark}")
            qrels = written.get("qrels.txt") or written["qrels.simulated.txt"]
            update: dict[str, Any] = {"qrels": qrels}
            if mark:
                update |= {"holes": "leave", "judge": None}
            swept_by = swept_by.model_copy(update=update)
            course.passed(*_JUDGING)
        say(_stage(1))
        judged = hole_grader(swept_by, out, say, course.progress)
        caveats = _caveats(place, bool(mark))
        swept = sweep(swept_by, out, progress=course.progress, judge=judged, notes=caveats)
        course.passed(*_SWEEPING)
        say(_stage(2))
        found = recommend(out, sla_ms=sla_ms, budget=budget, quality=quality)
        say(_stage(3))
        notes = list(swept.manifest["notes"])
        title = f"What to deploy: {place.resolve().name}{' (SIMULATED judge)' if mark else ''}"
        limits = Limits(sla_ms=sla_ms, budget=budget, quality=quality)
        report, broken = write_report(place, None, title, limits=limits)
    notes += [f"left out of the page: {line}" for line in broken]
    return Chosen(place, found, swept, report, bool(mark), tuple(notes))


# ------------------------------------------------------------------------------------- progress

_JUDGING = ("rewriting", "retrieving", "grading", "ordering")  # as these steps call themselves
_SWEEPING = ("embedding", "reranking", "timing", "calling", "judging", "evaluating")
_CLOSING = 2.0  # seconds of choosing, and of the page
_CALL = 2.0  # seconds of a judge's reply, before there is one
_EACH = {"retrieving": 1e-3, "embedding": 1e-3, "reranking": 2e-2, "timing": 2e-3, "calling": 0.5}
_EACH |= {"evaluating": 0.1}  # seconds of a passage, a pair, a question or a configuration


@dataclass(slots=True)
class _Course:
    """How far all stages are: done / (done + left), in the seconds that steps are likely to take.

    A step that begins says how much it has to do; one that does not begin is passed over.
    """

    each: dict[str, float]  # step, the first word of its label → seconds of one of its things
    left: dict[str, float]  # step → seconds
    tell: Callable[[float], None] = lambda share: None
    done: float = 0.0
    told: float = 0.0
    lock: Lock = field(default_factory=Lock)  # judges are asked from several threads

    @contextmanager
    def progress(self, label: str, total: float) -> Iterator[Callable[[float], None]]:
        """What a step is given to tell of its work."""
        step = label.split()[0]
        each = self.each.get(step, 0.0)
        self.left[step] = each * total
        yield lambda amount: self._move(step, each * amount)
        self.passed(step)

    def passed(self, *steps: str) -> None:
        for step in steps:
            self._move(step, self.left.get(step, 0.0))

    def _move(self, step: str, seconds: float) -> None:
        with self.lock:
            seconds = min(seconds, self.left.get(step, 0.0))
            self.left[step] = self.left.get(step, 0.0) - seconds
            self.done += seconds
            share = self.done / (self.done + sum(self.left.values()) + _CLOSING)
            further = max(0.0, share - self.told)
            self.told += further
        self.tell(further)


def _course(grid: SweepSettings, who: GoldenSettings | None, plan: Plan | None) -> _Course:
    """All steps ahead, and what each is likely to take."""
    rows = [*configurations(grid)]
    corpus = grid.corpus / CORPUS
    texts = corpus.stat().st_size / 1000 if corpus.is_file() else 0.0
    each = dict(_EACH)
    counts = {"embedding": texts * len(grid.embedders), "evaluating": len(rows)}
    counts["timing"] = len(rows) * grid.latency.queries * grid.latency.repeats
    if who is not None and plan is not None:
        counts["retrieving"] = texts
        calls = {step.stage: step for step in plan.steps}
        for stage, step in (("grade", "grading"), ("rank", "ordering")):
            seconds = calls[stage].seconds or (_CALL if _paid(who) else 0.01)
            each[step] = each["judging"] = seconds / who.limits.concurrency
            counts[step] = calls[stage].calls
        counts["judging"] = plan.queries * len(rows) if grid.holes == "judge" else 0
    return _Course(each, {step: each[step] * count for step, count in counts.items()})


def _paid(who: GoldenSettings) -> list[Any]:
    """The judges that are asked over a network."""
    return [judge for judge in members(who.judge).values() if judge.type == "llm"]


def _stage(at: int) -> str:
    return f"{at + 1} of {len(STAGES)}: {STAGES[at]}"


def _there(place: Path, name: str) -> Path:
    if not (place / name).is_file():
        absent = "this is a file and no folder" if place.exists() else "there is no such folder"
        raise InputError(
            f"there is no {name} in this folder" if place.is_dir() else absent,
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
        named = said.get("judge")
        if not (isinstance(named, dict) and named.get("type") == SIMULATED):
            said = {**said, "judge": {"type": SIMULATED}}
        return check_config(said, GoldenSettings, place=str(place / GOLDEN), folder=place.resolve())
    named = said.get("judge")
    if named is None:
        raise InputError("it names no judge", place=str(place / GOLDEN), remedy=_who_could(place))
    if isinstance(named, dict) and named.get("type") == SIMULATED:
        raise InputError(
            "a simulated judge is evidence of nothing",
            place=str(place / GOLDEN),
            remedy="name another, or say --judge simulated to try things out",
        )
    return read_config(place / GOLDEN, GoldenSettings)


def _who_could(place: Path) -> str:
    """What would bring a judge: only what works here."""
    ways = ["name a chat endpoint there (judge: {type: llm, url: …, model: …})"]
    torch = "" if has_torch() else ", once rankproof[torch] is installed"
    ways.append(f"or a reranker (judge: {{type: cross-encoder, …}}){torch}")
    if (place / SHIPPED).is_file():
        ways.append("or try things out with --judge simulated")
    return ", ".join(ways)


def _expected(who: GoldenSettings, plan: Plan, grid: SweepSettings, settled: bool) -> list[str]:
    """What judging takes in calls and dollars; empty where nothing is sent to anybody."""
    judges = _paid(who)
    if not judges:
        return []
    calls = sum(step.calls for step in plan.steps)
    said = []
    if calls:
        tokens = sum(step.tokens_in + step.tokens_out for step in plan.steps)
        spent = "at a price that is not known" if plan.cost is None else f"about ${plan.cost:.2f}"
        said.append(f"{plural(calls, 'time')}, {plural(tokens, 'token')}, {spent}")
    if plan.more:
        most = plan.more * who.grading.batch
        said.append(f"of texts that have changed, {_at_most(most, plan)}")
    if grid.holes == "judge" and (said or not settled):
        deepest = max([*grid.at, *grid.prompts])
        most = plan.queries * deepest * sum(1 for _ in configurations(grid))
        beyond = "that" if said else "what is judged"
        said.append(f"of what the sweep finds beyond {beyond}, {_at_most(most, plan)}")
    named = " and ".join(judge.model for judge in judges)
    return [f"{named} is asked {'; and '.join(said)} ({plan.prices})"] if said else []


def _at_most(passages: int, plan: Plan) -> str:
    spent = "" if plan.passage is None else f", about ${passages * plan.passage:.2f}"
    return f"at most {plural(passages, 'passage')}{spent}"


def _sent(grid: SweepSettings) -> list[str]:
    """Who else is sent texts by the sweep."""
    kinds: dict[str, Mapping[str, Any]] = {
        "embedder": grid.embedders, "rewriter": grid.rewriters, "reranker": grid.rerankers
    }  # fmt: skip
    names = [
        f"{kind} {name}"
        for kind, some in kinds.items()
        for name, one in some.items()
        if one is not None and uses_network(one)
    ]
    names += [] if grid.answers is None else [f"generator {grid.answers.generator.model}"]
    if not names:
        return []
    return [f"the sweep sends texts to {', '.join(names)}, at the prices of the price file"]


def _settled(out: Path, grid: SweepSettings) -> bool:
    """Whether the sweep there is this one, of the same texts: what it found has been judged."""
    try:
        made = read_sweep(out).manifest
        held = {file["file"]: file["sha256"] for file in made["inputs"].values() if "file" in file}
        texts = all(held.get(n) == digest_file(grid.corpus / n) for n in (CORPUS, QUERIES))
        now = redact(redact_for_publication(grid.model_dump(mode="json")))
        return texts and _looked_at(made["config"]) == _looked_at(now)
    except (InputError, KeyError, OSError, AttributeError):
        return False


def _looked_at(config: dict[str, Any]) -> dict[str, Any]:
    """What decides which passages are looked at: of the measures, how far down they look."""
    deep = [parse(name).cutoff for name in config["measures"]]
    kept = {key: value for key, value in config.items() if key not in ("qrels", "best_by")}
    return kept | {"measures": deep}


def _caveats(place: Path, simulated: bool) -> list[str]:
    said = caveat(kept_questions(place / QUERIES)) if (place / QUERIES).is_file() else None
    mocked = "the judge was simulated: these figures are evidence of nothing"
    return [*([mocked] if simulated else []), *([said] if said else [])]
