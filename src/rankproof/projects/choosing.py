"""From a prepared folder to a decision: judge, sweep, fill holes, recommend, and one page.

    FOLDER/golden.golden, golden/   who judged what: the store, and its export
    FOLDER/swept/                   every configuration of sweep.yaml
    FOLDER/report.html              all of it on one page

Every stage resumes where it stopped, and nothing that was answered is requested again. A simulated
judge is used only if asked for by name, and its files are kept apart.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Literal

from rankproof.foundation.config import check_config, read_config, read_keys
from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest_file
from rankproof.foundation.phrasing import plural, typed
from rankproof.foundation.progress import announce, combine_progress, confirm
from rankproof.foundation.redaction import redact, redact_for_publication
from rankproof.golden.annotators import people_grades
from rankproof.golden.building import Build, store_path
from rankproof.golden.export_files import export_files
from rankproof.golden.judges import members
from rankproof.golden.passage_grading import hole_grader
from rankproof.golden.plan import Plan, make_plan
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store, open_if_built
from rankproof.measures import parse
from rankproof.presentation.charts import Chart
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table
from rankproof.projects.preparing import CORPUS, GOLDEN, QUERIES, SWEEP
from rankproof.projects.questions import question_caveat, read_questions
from rankproof.projects.starters import has_torch
from rankproof.retrieval.components import uses_network
from rankproof.tradeoffs.plan import SweepSettings, configurations
from rankproof.tradeoffs.recommend import Recommendation, recommend
from rankproof.tradeoffs.selection import Limits
from rankproof.tradeoffs.sweep import Swept, read_sweep, sweep

SIMULATED = "simulated"
BUILT_IN_QRELS = "qrels/test.tsv"  # what a simulated judge knows
STAGES = ("judging", "comparing", "choosing", "writing the page")


@dataclass(frozen=True, slots=True, repr=False)
class Chosen(Displayed):
    """The configuration to deploy, the evidence for it, and the page that shows it.

    >>> chosen = rp.choose("try/corpus", judge="simulated")
    >>> chosen.words()[0].partition(".")[0]
    'Use hybrid wordllama:256 flat, best of 9: 30 candidates, 10 passages in the prompt'
    """

    folder: Path
    recommendation: Recommendation
    swept: Swept
    report: Path
    simulated: bool
    notes: tuple[str, ...]
    unchecked: str = ""  # the judge, if no person has graded a passage of its golden set
    store: Path | None = None  # of that golden set

    kind: ClassVar[str] = "choice"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know of the evidence."""
        return self.notes

    @property
    def exit_code(self) -> int:
        """1 if a limit cannot be kept."""
        return self.recommendation.exit_code

    def summary(self) -> Summary:
        """The choice, how to run it, where the page is, and what to check first."""
        summary = self.recommendation.summary()
        choice = self.recommendation.choices[-1]
        answer, notes, next_step = [summary.answer], [*summary.notes], self._search_command()
        if self.unchecked:
            check = (
                f"No person has checked a grade by {self.unchecked}: label the first 30 passages "
                "there, which could change this most."
            )
            notes.insert(1 if choice.expected is not None else 0, check)
            answer += ["Try it:", f"      {next_step}"] if next_step and choice.feasible else []
            next_step = self._labeling_command()
        return Summary.of(
            "\n".join([*answer, f"Report: {self.report}"]),
            notes,
            next_step=next_step,
            details=summary.details,
        )

    def _search_command(self) -> str:
        """Return the command that searches with the chosen configuration; "" if none can."""
        choice = self.recommendation.choices[-1]
        if choice.row["k"] is None:  # how deep a dynamic pool goes is learned by the sweep
            return ""
        question = next(iter(read_questions(self.folder / QUERIES)), None)
        text = "your question" if question is None else question.text
        name = shlex.quote(choice.configuration)
        config = typed(self.folder / SWEEP)
        return f"rankproof search {config} {shlex.quote(text)} --retriever {name}"

    def _labeling_command(self) -> str:
        """Return the command that shows the passages to label, the most decisive first."""
        choice, folder = self.recommendation.choices[-1], self.swept.folder
        runs = dict(self.swept.configurations.select("configuration", "run").iter_rows())
        rivals = [
            name for name in (choice.similar or ()) if runs[name] != runs[choice.configuration]
        ]
        names = [choice.configuration, *rivals[:1]] if rivals else []
        options = "".join(f" --run {typed(folder / runs[name])}" for name in names)
        return f"rankproof golden view {typed(self.store or '')}{options}"

    def tables(self) -> list[Table]:
        """The chosen configuration beside the best others."""
        return self.recommendation.tables()

    def full_tables(self) -> list[Table]:
        """Every configuration, and what each larger pool adds."""
        return self.recommendation.full_tables()

    def charts(self) -> list[Chart]:
        """The quality of each configuration with its interval, best first."""
        return self.recommendation.charts()

    def figures(self) -> dict[str, float]:
        """Quality, latency and cost of the choice."""
        return self.recommendation.figures()

    def words(self) -> list[str]:
        """The choice in words."""
        return self.recommendation.words()

    def to_dict(self) -> dict[str, Any]:
        """What `rankproof choose --format json` prints."""
        return {
            "manifest": self.swept.manifest,
            "folder": str(self.folder),
            "report": str(self.report),
            "words": self.words(),
            **plain_fields(self, "simulated", "notes", "recommendation"),
        }


def choose(
    folder: str | Path,
    *,
    sla_ms: float | None = None,
    budget: float | None = None,
    quality: float | None = None,
    judge: Literal["simulated"] | None = None,
    yes: bool = False,
) -> Chosen:
    """Judge, sweep and recommend in a folder that `init` prepared, and write a page.

    The cost is announced before anything is sent: `yes` agrees to it; else a terminal asks.
    Interrupt it at any time and call it again.

    >>> chosen = rp.choose("try/corpus", judge="simulated", sla_ms=1000)
    >>> chosen.recommendation.feasible, chosen.report.name
    (True, 'report.html')
    """
    from rankproof.report import write_report

    place = Path(folder)
    golden = _judge_settings(place, judge)
    settings = read_config(_require(place, SWEEP), SweepSettings)
    is_simulated = judge == SIMULATED
    suffix = f"-{SIMULATED}" if is_simulated else ""
    out = place / f"swept{suffix}"
    store = place / f"{SIMULATED}.golden"
    if golden is not None and not is_simulated:
        store = store_path(golden, place / GOLDEN)
    plan = None
    if golden is not None:
        with open_if_built(store) as opened:
            plan = make_plan(golden, opened)
    _agree_to_cost(_expected_requests(golden, plan, settings, out), yes)
    steps = _Steps.plan(settings, golden, plan)
    with combine_progress(f"all {len(STAGES)} stages", 1.0, steps.report_to):
        if golden is not None:
            _announce_stage(0)
            qrels = _judge_passages(golden, store, place / f"golden{suffix}")
            steps.finish(*_JUDGING)
            update: dict[str, Any] = {"qrels": qrels}
            if is_simulated:
                update |= {"holes": "leave", "judge": None}
            settings = settings.model_copy(update=update)
        _announce_stage(1)
        grader = hole_grader(settings, out)
        swept = sweep(settings, out, judge=grader, notes=_caveats(place, is_simulated))
        steps.finish(*_SWEEPING)
        _announce_stage(2)
        recommendation = recommend(out, sla_ms=sla_ms, budget=budget, quality=quality)
        _announce_stage(3)
        title = f"What to deploy: {place.resolve().name}"
        title += " (SIMULATED judge)" if is_simulated else ""
        limits = Limits(sla_ms=sla_ms, budget=budget, quality=quality)
        report, broken = write_report(place, None, title, limits=limits)
    notes = [*swept.manifest["notes"], *(f"missing from the page: {line}" for line in broken)]
    is_open = golden is not None and not is_simulated
    return Chosen(
        folder=place,
        recommendation=recommendation,
        swept=swept,
        report=report,
        simulated=is_simulated,
        notes=tuple(notes),
        unchecked=_unchecked_judge(golden, store) if golden is not None and is_open else "",
        store=store if is_open else None,
    )


def _unchecked_judge(golden: GoldenSettings, store: Path) -> str:
    """Return who judged, if no person has graded a passage; "" if somebody has."""
    with Store(store) as opened:
        if people_grades(opened.active_corrections()):
            return ""
    models = [getattr(judge, "model", judge.type) for judge in members(golden.judge).values()]
    return " and ".join(map(str, models))


def _agree_to_cost(expected: list[str], yes: bool) -> None:
    """Announce what will be sent; raise InputError unless there is nothing or it is agreed to."""
    for line in expected:
        announce(line)
    if expected and not yes and not confirm("Go on?"):
        raise InputError("it was not agreed to", remedy="add --yes (in Python yes=True)")


def _announce_stage(at: int) -> None:
    announce(f"{at + 1} of {len(STAGES)}: {STAGES[at]}")


def _judge_passages(golden: GoldenSettings, store: Path, out: Path) -> Path:
    """Build or continue the golden set, export it, and return its judgments."""
    with Store(store, create=True) as opened:
        Build(golden, opened).run()
        files = export_files(opened, out)
    return files.get("qrels.txt") or files["qrels.simulated.txt"]


# ------------------------------------------------------------------------------------- progress

_JUDGING = ("rewriting", "retrieving", "grading", "ordering")  # first words of the tasks' labels
_SWEEPING = ("embedding", "reranking", "timing", "calling", "judging", "evaluating")
_CLOSING_SECONDS = 2.0  # of choosing, and of the page
_REPLY_SECONDS = 2.0  # of a judge's reply, before there is one
_UNIT_SECONDS = {  # of a passage, a pair, a question or a configuration
    "retrieving": 1e-3,
    "embedding": 1e-3,
    "reranking": 2e-2,
    "timing": 2e-3,
    "calling": 0.5,
    "evaluating": 0.1,
}


@dataclass(slots=True)
class _Steps:
    """One progress for the tasks of all stages: done / (done + remaining), in estimated seconds.

    A task states its total when it begins; until then it counts with an estimate.
    """

    unit_seconds: dict[str, float]  # by step, the first word of a task's label
    remaining: dict[str, float]  # seconds by step
    report: Callable[[float], None] = lambda share: None
    done: float = 0.0  # seconds
    reported: float = 0.0  # share that was reported
    lock: Lock = field(default_factory=Lock)  # judges are called from several threads

    @classmethod
    def plan(cls, grid: SweepSettings, golden: GoldenSettings | None, plan: Plan | None) -> _Steps:
        """Estimate the seconds of every step."""
        rows = sum(1 for _ in configurations(grid))
        corpus = grid.corpus / CORPUS
        passages = corpus.stat().st_size / 1000 if corpus.is_file() else 0.0
        unit_seconds = dict(_UNIT_SECONDS)
        counts = {"embedding": passages * len(grid.embedders), "evaluating": rows}
        counts["timing"] = rows * grid.latency.queries * grid.latency.repeats
        if golden is not None and plan is not None:
            counts["retrieving"] = passages
            calls = {step.stage: step for step in plan.steps}
            for stage, step in (("grade", "grading"), ("rank", "ordering")):
                seconds = calls[stage].seconds or (_REPLY_SECONDS if _llm_judges(golden) else 0.01)
                seconds /= golden.limits.concurrency
                unit_seconds[step] = unit_seconds["judging"] = seconds
                counts[step] = calls[stage].calls
            counts["judging"] = plan.queries * rows if grid.holes == "judge" else 0
        return cls(unit_seconds, {step: unit_seconds[step] * n for step, n in counts.items()})

    def report_to(self, report: Callable[[float], None]) -> Any:
        """Report to the task that is drawn; return the display for the inner tasks."""
        self.report = report
        return self.task

    @contextmanager
    def task(self, label: str, total: float) -> Iterator[Callable[[float], None]]:
        """Count a task as a part of all stages."""
        step = label.split()[0]
        seconds = self.unit_seconds.get(step, 0.0)
        self.remaining[step] = seconds * total
        yield lambda amount: self._advance(step, seconds * amount)
        self.finish(step)

    def finish(self, *steps: str) -> None:
        """Count these steps as done, also those that had nothing to do."""
        for step in steps:
            self._advance(step, self.remaining.get(step, 0.0))

    def _advance(self, step: str, seconds: float) -> None:
        with self.lock:
            seconds = min(seconds, self.remaining.get(step, 0.0))
            self.remaining[step] = self.remaining.get(step, 0.0) - seconds
            self.done += seconds
            share = self.done / (self.done + sum(self.remaining.values()) + _CLOSING_SECONDS)
            gain = max(0.0, share - self.reported)
            self.reported += gain
        self.report(gain)


# ------------------------------------------------------------------------------------- the folder


def _llm_judges(golden: GoldenSettings) -> list[Any]:
    """Return the judges that are called over a network."""
    return [judge for judge in members(golden.judge).values() if judge.type == "llm"]


def _require(place: Path, name: str) -> Path:
    """Return a file of the folder; raise InputError if it is absent."""
    if not (place / name).is_file():
        absent = "this is a file and no folder" if place.exists() else "there is no such folder"
        raise InputError(
            f"there is no {name} in this folder" if place.is_dir() else absent,
            place=str(place),
            remedy="prepare one: rankproof init DOCUMENTS --questions questions.txt",
        )
    return place / name


def _judge_settings(place: Path, judge: str | None) -> GoldenSettings | None:
    """Read who judges; None if the folder comes with judgments and no judge is named."""
    if judge is None and not (place / GOLDEN).is_file() and (place / SWEEP).is_file():
        return None
    keys = read_keys(_require(place, GOLDEN))
    if not (place / QUERIES).is_file():
        raise InputError(
            "there are no questions in this folder",
            place=str(place),
            remedy="rankproof init DOCUMENTS --questions questions.txt",
        )
    named = keys.get("judge")
    names_simulated = isinstance(named, dict) and named.get("type") == SIMULATED
    if judge == SIMULATED:
        if not names_simulated:
            keys = {**keys, "judge": {"type": SIMULATED}}
        return check_config(keys, GoldenSettings, place=str(place / GOLDEN), folder=place.resolve())
    if named is None:
        remedy = _suggest_judges(place)
        raise InputError("it names no judge", place=str(place / GOLDEN), remedy=remedy)
    if names_simulated:
        raise InputError(
            "a simulated judge is evidence of nothing",
            place=str(place / GOLDEN),
            remedy="name another, or say --judge simulated to try things out",
        )
    return read_config(place / GOLDEN, GoldenSettings)


def _suggest_judges(place: Path) -> str:
    """Name the judges that would work in this installation and folder."""
    ways = ["name a chat endpoint there (judge: {type: llm, url: …, model: …})"]
    torch = "" if has_torch() else ", once rankproof[torch] is installed"
    ways.append(f"or a reranker (judge: {{type: cross-encoder, …}}){torch}")
    if (place / BUILT_IN_QRELS).is_file():
        ways.append("or try things out with --judge simulated")
    return ", ".join(ways)


def _expected_requests(
    golden: GoldenSettings | None, plan: Plan | None, grid: SweepSettings, out: Path
) -> list[str]:
    """Say what will be sent to servers, and its cost; empty if nothing is."""
    is_swept = _has_been_swept(out, grid)
    lines = []
    if golden is not None and plan is not None:
        lines = _judge_requests(golden, plan, grid, is_swept)
    return lines if is_swept else [*lines, *_sweep_requests(grid)]


def _judge_requests(
    golden: GoldenSettings, plan: Plan, grid: SweepSettings, is_swept: bool
) -> list[str]:
    """Say how many calls, tokens and dollars judging takes; empty if no server judges."""
    judges = _llm_judges(golden)
    if not judges:
        return []
    parts = []
    calls = sum(step.calls for step in plan.steps)
    if calls:
        tokens = sum(step.tokens_in + step.tokens_out for step in plan.steps)
        cost = "at a price that is not known" if plan.cost is None else f"about ${plan.cost:.2f}"
        parts.append(f"{plural(calls, 'time')}, {plural(tokens, 'token')}, {cost}")
    if plan.extra_calls:
        changed = plan.extra_calls * golden.grading.batch
        parts.append(f"of texts that have changed, {_at_most(changed, plan)}")
    if grid.holes == "judge" and (parts or not is_swept):
        deepest = max([*grid.at, *grid.prompts])
        holes = plan.queries * deepest * sum(1 for _ in configurations(grid))
        beyond = "that" if parts else "what is judged"
        parts.append(f"of what the sweep finds beyond {beyond}, {_at_most(holes, plan)}")
    names = " and ".join(judge.model for judge in judges)
    return [f"{names} is asked {'; and '.join(parts)} ({plan.prices})"] if parts else []


def _at_most(passages: int, plan: Plan) -> str:
    cost = "" if plan.passage_cost is None else f", about ${passages * plan.passage_cost:.2f}"
    return f"at most {plural(passages, 'passage')}{cost}"


def _sweep_requests(grid: SweepSettings) -> list[str]:
    """Say which components of the sweep send texts to a server."""
    axes: dict[str, Mapping[str, Any]] = {
        "embedder": grid.embedders, "rewriter": grid.rewriters, "reranker": grid.rerankers
    }  # fmt: skip
    names = [
        f"{kind} {name}"
        for kind, axis in axes.items()
        for name, component in axis.items()
        if component is not None and uses_network(component)
    ]
    names += [] if grid.answers is None else [f"generator {grid.answers.generator.model}"]
    if not names:
        return []
    return [f"the sweep sends texts to {', '.join(names)}, at the prices of the price file"]


def _has_been_swept(out: Path, grid: SweepSettings) -> bool:
    """True if the folder holds this sweep of the same texts, so that its lists have been judged."""
    try:
        last = read_sweep(out).manifest
        digests = {f["file"]: f["sha256"] for f in last["inputs"].values() if "file" in f}
        for name in (CORPUS, QUERIES):
            if digests.get(name) != digest_file(grid.corpus / name):
                return False
        config = redact(redact_for_publication(grid.model_dump(mode="json")))
        return _listing_settings(last["config"]) == _listing_settings(config)
    except (InputError, KeyError, OSError, AttributeError):
        return False


def _listing_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that decide which passages are judged: of the measures, the cutoffs."""
    cutoffs = [parse(name).cutoff for name in config["measures"]]
    decisive = {key: value for key, value in config.items() if key not in ("qrels", "best_by")}
    return decisive | {"measures": cutoffs}


def _caveats(place: Path, is_simulated: bool) -> list[str]:
    """Return what weakens the evidence: a simulated judge, generated questions."""
    caveats = []
    if is_simulated:
        caveats.append("the judge was simulated: these scores are evidence of nothing")
    if (place / QUERIES).is_file():
        caveats += filter(None, [question_caveat(read_questions(place / QUERIES))])
    return caveats
