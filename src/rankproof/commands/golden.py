"""`golden`: build a golden set with a judge, let annotators label it, check it, export it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rankproof.commands.options import DEFAULT_MEASURES, JUDGING, Measures, Missing
from rankproof.commands.registry import Option, Source, command

if TYPE_CHECKING:
    from pathlib import Path

    from rankproof.golden.annotators import Assignment
    from rankproof.golden.build_status import GoldenStatus
    from rankproof.golden.comparison import Changes
    from rankproof.golden.export_files import Exported
    from rankproof.golden.judge_agreement import GoldenAgreement
    from rankproof.golden.judge_trials import Trials
    from rankproof.golden.labels import Imported
    from rankproof.golden.plan import Plan
    from rankproof.golden.settings import GoldenSettings
    from rankproof.measures import Measure

Config = Annotated[
    "str | os.PathLike[str]", Source("CONFIG", "config"), "A YAML file; see docs/golden.md."
]
GoldenSet = Annotated[
    "str | os.PathLike[str]", Source("STORE", "golden"), "A golden set: NAME.golden."
]
MaxCost = Annotated[
    float | None,
    Option(minimum=0),
    "US dollars that the golden set may cost in all; then it stops with exit code 1.",
]
Offline = Annotated[
    bool,
    Option(recorded=False),
    "Load models from this machine alone; HF_HUB_OFFLINE=1 says the same.",
]
Stage = Literal["rewrite", "retrieve", "merge", "grade", "prune", "rank"]
_JUDGE_ASKED = "a judge was asked"
_SET_CHANGED = "it changed the golden set"


@command(group="Golden sets", name="golden build", needs=JUDGING, replay=_JUDGE_ASKED)
def build(
    config: Config,
    *,
    stage: Annotated[Stage | None, Option(default_text="all"), "This stage alone."] = None,
    store: Annotated[
        str | os.PathLike[str] | None,
        Option(metavar="FILE", default_text="CONFIG.golden"),
        "Where the golden set is kept.",
    ] = None,
    dry_run: Annotated[bool, "Print calls, tokens and cost; send nothing."] = False,
    max_cost: MaxCost = None,
    retry_failed: Annotated[bool, "Ask again what could not be used."] = False,
    offline: Offline = False,
) -> GoldenStatus | Plan:
    """Build a golden set, or go on where it stopped: nothing that was answered is asked again.

    Stages: rewrite, retrieve, merge, grade, prune, rank. Every reply of the judge is stored the
    moment it arrives; stop it with Ctrl-C, or kill it, and run the same command again.

    $ rankproof golden build judge.yaml --dry-run
    $ rankproof golden build judge.yaml

    >>> rp.golden.build("try/corpus/golden.yaml", dry_run=True).queries
    44
    """
    from pathlib import Path

    from rankproof.foundation.model_hub import go_offline
    from rankproof.foundation.phrasing import plural
    from rankproof.foundation.progress import announce
    from rankproof.golden.build_status import failed_completely, read_status
    from rankproof.golden.building import Build, store_path
    from rankproof.golden.plan import make_plan
    from rankproof.golden.store import Store, open_if_built

    go_offline(offline)
    settings = _read_settings(config, max_cost)
    path = Path(store) if store is not None else store_path(settings, Path(config))
    if dry_run:
        with open_if_built(path) as opened:
            return make_plan(settings, opened)
    with Store(path, create=True) as opened:
        work = Build(settings, opened)
        if retry_failed:
            announce(f"{plural(work.retry_failed(), 'failed request')} will be asked again")
        work.run(stage)
        return read_status(opened, problem=failed_completely(opened))


def _read_settings(config: str | os.PathLike[str], max_cost: float | None) -> GoldenSettings:
    """The configuration, with another limit of its cost if one is given."""
    from pathlib import Path

    from rankproof.foundation.config import check_config, read_config
    from rankproof.golden.settings import GoldenSettings, LimitsSettings

    settings = read_config(Path(config), GoldenSettings)
    if max_cost is None:
        return settings
    limits = settings.limits.model_dump() | {"max_cost": max_cost}
    checked = check_config(limits, LimitsSettings, place="--max-cost")
    return settings.model_copy(update={"limits": checked})


@command(
    group="Golden sets",
    name="golden status",
    needs=JUDGING,
    replay="it tells how a golden set stood",
)
def status(store: GoldenSet) -> GoldenStatus:
    """Say how far along a golden set is, what failed, and what it cost.

    $ rankproof golden status judge.golden

    >>> rp.golden.status("try/corpus/simulated.golden").queries
    44
    """
    from pathlib import Path

    from rankproof.golden.build_status import read_status
    from rankproof.golden.store import Store

    with Store(Path(store)) as opened:
        return read_status(opened)


@command(group="Golden sets", name="golden try", needs=JUDGING, replay=_JUDGE_ASKED)
def try_(
    config: Config,
    *,
    judges: Annotated[
        Mapping[str, str],
        Source("FILE...", "judge", names=("--judge",)),
        "YAML files with a judge each, instead of CONFIG's.",
    ] = {},
    prompts: Annotated[
        Mapping[str, str],
        Source("FILE...", "prompt", names=("--prompt",)),
        "Prompts for grading, instead of ours.",
    ] = {},
    sample: Annotated[int, Option(minimum=1), "Labelled queries."] = 10,
    passages: Annotated[int, Option(minimum=1), "Passages of each."] = 10,
    planted: Annotated[int, Option(minimum=0), "Passages that are made to say: grade it 5."] = 0,
    store: Annotated[
        str | os.PathLike[str] | None,
        Option(metavar="FILE", default_text="CONFIG.try.golden"),
        "Where replies are kept.",
    ] = None,
    max_cost: MaxCost = None,
    offline: Offline = False,
) -> Trials:
    """Try judges or prompts on passages with annotators' labels: who can be read, and who agrees.

    $ rankproof golden try judge.yaml --judge small.yaml --judge large.yaml
    """
    from pathlib import Path

    from rankproof.foundation.config import read_config
    from rankproof.foundation.model_hub import go_offline
    from rankproof.golden.judge_trials import try_judges
    from rankproof.golden.judges import members
    from rankproof.golden.settings import JudgeFile

    go_offline(offline)
    settings = _read_settings(config, max_cost)
    chosen = {n: read_config(Path(f), JudgeFile).judge for n, f in _by_stem(judges).items()}
    wordings = {
        name: settings.prompts.model_copy(update={"grade": Path(file)})
        for name, file in _by_stem(prompts).items()
    }
    variants = {
        " ".join(part for part in (judge, prompt) if part) or "as configured": (own, wording)
        for judge, own in (chosen or members(settings.judge)).items()
        for prompt, wording in (wordings or {"": settings.prompts}).items()
    }
    path = Path(store or Path(config).with_name(f"{Path(config).stem}.try.golden"))
    return try_judges(settings, variants, path, sample=sample, passages=passages, planted=planted)


def _by_stem(files: Mapping[str, str] | Sequence[str | os.PathLike[str]]) -> dict[str, str]:
    """Files by their names without endings; by whole paths where two have the same."""
    from pathlib import Path

    from rankproof.foundation.printable import printable_path

    listed = list(files.values()) if isinstance(files, Mapping) else list(files)
    paths = [os.fspath(file) for file in listed]
    stems = [printable_path(Path(path).stem) for path in paths]
    return {
        stem if stems.count(stem) == 1 else printable_path(path): path
        for stem, path in zip(stems, paths, strict=True)
    }


@command(group="Golden sets", name="golden diff", needs=JUDGING)
def diff(
    old: Annotated[str | os.PathLike[str], Source("OLD", "old"), "A golden set as it was: a copy."],
    new: Annotated[str | os.PathLike[str], Source("NEW", "new"), "The golden set as it is now."],
) -> Changes:
    """Say what changed from one golden set to another: queries, pools, grades, orders, judge.

    $ rankproof golden diff last-month.golden judge.golden
    """
    from pathlib import Path

    from rankproof.golden.comparison import find_changes
    from rankproof.golden.result import read_golden
    from rankproof.golden.store import Store

    with Store(Path(old)) as before, Store(Path(new)) as after:
        return find_changes(read_golden(before), read_golden(after))


@command(group="Golden sets", name="golden export", needs=JUDGING, replay="it wrote files")
def export(
    store: GoldenSet,
    *,
    out: Annotated[
        str | os.PathLike[str], Option(("--out",), metavar="FOLDER"), "A folder for the files."
    ],
    max_failed: Annotated[
        float,
        Option(minimum=0),
        "Refuse, with exit code 1, if a larger share of the judgements failed.",
    ] = 0.02,
) -> Exported:
    """Write TREC qrels and ranking, a BEIR folder, JSON lines with text, and a page to read.

    $ rankproof golden export judge.golden --out judged
    """
    from pathlib import Path

    from rankproof.golden.export_files import Exported, export_files
    from rankproof.golden.store import Store

    with Store(Path(store)) as opened:
        files = export_files(opened, Path(out), max_failed)
        return Exported(
            files=files,
            is_ranked="rank" in opened.meta("done"),
            simulated=bool(opened.meta("judge")["simulated"]),
        )


@command(group="Golden sets", name="golden view", needs=JUDGING, prints=True)
def view(
    store: GoldenSet,
    *,
    port: Annotated[int, Option(minimum=0, default_text="any"), "Port on 127.0.0.1."] = 0,
    browse: Annotated[bool, Option(("--open",)), "Open the page in the browser."] = True,
    people: Annotated[
        Sequence[str],
        Option(("--as",), metavar="NAME", default_text="your login"),
        "Who labels; may be repeated: each gets an address of their own.",
    ] = (),
    settle: Annotated[bool, "See everybody's labels, and settle disagreements."] = False,
    blind: Annotated[bool, "Hide the judge until a passage is graded."] = False,
    runs: Annotated[
        Mapping[str, str],
        Source("RUN...", names=("--run",)),
        "Runs to compare: passages that could change the comparison come first.",
    ] = {},
    measures: Measures = DEFAULT_MEASURES,
) -> int:
    """Read a golden set in the browser and label it there, until Ctrl-C.

    The page is served to this machine alone, at an address that holds a secret. Labels are rows
    of the golden set, with who and when; they can be undone, and exports follow them. Those who
    label do not see what others said.

    $ rankproof golden view judge.golden --as ada
    """
    from pathlib import Path

    from rankproof.foundation.progress import announce
    from rankproof.golden.viewer.desk import Seat
    from rankproof.golden.viewer.server import has_screen, login_name, serve

    path = Path(store)
    seats = [Seat(name.strip(), settle, blind) for name in people or [login_name()]]
    holes = _unjudged_passages(path, runs, measures) if runs else {}

    def show_address(seat: Seat, url: str) -> None:
        print(url if len(seats) == 1 else f"{seat.who} {url}", flush=True)
        if seat is seats[-1]:
            announce("Ctrl-C ends it")
        if browse and has_screen() and len(seats) == 1:
            import webbrowser

            webbrowser.open(url)

    serve(path, seats, port, show_address, holes)
    return 0


def _unjudged_passages(path: Path, runs: Any, measures: Any) -> dict[tuple[str, str], float]:
    """Passages that could change a comparison of runs, by how far."""
    from rankproof.foundation.progress import announce
    from rankproof.golden.store import Store
    from rankproof.golden.viewer.reading import comparison_holes

    parsed, notes = _set_measures(path, measures)
    for note in notes:
        announce(note)
    with Store(path) as store:
        return comparison_holes(store, _load_runs(runs), parsed[0])


def _set_measures(path: Path, measures: Any) -> tuple[list[Measure], list[str]]:
    """Measures that mean grades from 1 to 5 unless they were chosen; warnings about others."""
    from rankproof.data.tables import SET_SCALE
    from rankproof.evaluation import parse_all, scale_notes

    parsed = parse_all(measures)
    if tuple(map(str, parsed)) == DEFAULT_MEASURES:
        parsed = [measure.on_scale(SET_SCALE) for measure in parsed]
    return parsed, list(scale_notes(path.name, SET_SCALE, parsed))


def _load_runs(runs: Any) -> list[Any]:
    from rankproof.commands.inputs import name_runs, reading
    from rankproof.data import read_run

    named = name_runs(runs) if runs else {}
    with reading(named):
        return [read_run(run, name=name) for name, run in named.items()]


@command(group="Golden sets", name="golden assign", needs=JUDGING, replay=_SET_CHANGED)
def assign(
    store: GoldenSet,
    *,
    people: Annotated[
        Sequence[str], Option(("--to",), metavar="NAME"), "A person; may be repeated."
    ],
    each: Annotated[
        int | None,
        Option(minimum=1, default_text="2, or 1 alone"),
        "How many annotators label every passage.",
    ] = None,
    shared: Annotated[
        int, Option(("--all",), minimum=0), "How many passages everybody labels."
    ] = 0,
    queries: Annotated[
        int | None, Option(minimum=1), "From this many queries, drawn by the set's seed."
    ] = None,
) -> Assignment:
    """Assign passages to annotators: each has a queue, and some passages have several annotators.

    Whole queries are assigned, so that a query has a score with annotators' labels. Called
    again with more annotators or queries, it adds to the queues and removes nothing.

    $ rankproof golden assign judge.golden --to ada --to bob --queries 40
    """
    from pathlib import Path

    from rankproof.golden.annotators import Assignment, annotator_progress, assign_passages
    from rankproof.golden.store import Store

    names = [people] if isinstance(people, str) else list(people)
    per_passage = min(2, len(names)) if each is None else each
    with Store(Path(store), write=True) as opened:
        count = assign_passages(opened, names, per_passage, shared, queries)
        progress = annotator_progress(opened, opened.active_corrections())
    assigned = [person for person in progress if person.assigned]
    return Assignment(count, len(names), per_passage, shared, tuple(assigned))


@command(group="Golden sets", name="golden import", needs=JUDGING, replay=_SET_CHANGED)
def import_(
    store: GoldenSet,
    file: Annotated[
        str | os.PathLike[str],
        Source("FILE", "labels"),
        "Qrels, CSV, JSON lines: as any judgements.",
    ],
    *,
    who: Annotated[
        str | None,
        Option(("--as",), metavar="NAME"),
        "Who labelled, where the file does not say.",
    ] = None,
    grades: Annotated[
        str | None,
        Option(metavar="FROM=TO"),
        "What the file's grades are from 1 to 5, such as 0=1,1=4.",
    ] = None,
) -> Imported:
    """Import annotators' labels: each is stored as if its author had used the viewer.

    A file with a column `who` holds several annotators' (query, doc, who, grade, and optionally
    sure and note), as an export's labels.csv and labels.jsonl do; any other is one person's.

    $ rankproof golden import judge.golden labels.csv
    """
    from pathlib import Path

    from rankproof.golden.labels import import_labels, parse_grades, read_labels
    from rankproof.golden.store import Store

    labels = read_labels(os.fspath(file), who, None if grades is None else parse_grades(grades))
    with Store(Path(store), write=True) as opened:
        return import_labels(opened, labels)


def _replay_agreement(arguments: dict[str, Any], stored: Mapping[str, Any]) -> dict[str, Any] | str:
    return "the judge was asked again" if arguments.get("repeats") else arguments


@command(group="Golden sets", name="golden agreement", needs=JUDGING, replay=_replay_agreement)
def agreement(
    store: GoldenSet,
    *,
    human: Annotated[
        str | os.PathLike[str] | None,
        Source("FILE", "human"),
        "Annotators' labels: qrels; else the corrections in the set.",
    ] = None,
    relevant: Annotated[int, "The lowest of annotators' grades that is relevant."] = 1,
    unjudged: Annotated[
        Missing, "Passages of a labelled query without an annotator's label."
    ] = "skip",
    runs: Annotated[
        Mapping[str, str],
        Source("RUN...", names=("--run",)),
        "Runs to measure with annotators' labels; else the set's lists.",
    ] = {},
    measures: Measures = DEFAULT_MEASURES,
    sample: Annotated[int, Option(minimum=1), "Requests that are repeated, with --repeats."] = 50,
    repeats: Annotated[int, Option(minimum=0), "Ask the judge this many more times."] = 0,
    max_cost: MaxCost = None,
) -> GoldenAgreement:
    """Measure how far the judge agrees with annotators and with itself, and they with each other.

    Annotators' labels are a qrels file, or those in the store. Where they labelled whole queries,
    measures of runs are estimated with their labels, and the judge's labels of the rest.
    --repeats asks the judge again, which may cost money; each repeat is stored and paid for once.

    $ rankproof golden agreement judge.golden --human people.qrels
    """
    from pathlib import Path

    from rankproof.golden.judge_agreement import measure_agreement, repeat_grading_of

    path = Path(store)
    parsed, notes = _set_measures(path, measures)
    result = measure_agreement(
        path,
        Path(human) if human is not None else None,
        _load_runs(runs),
        parsed,
        relevant=relevant,
        unjudged=unjudged,
        is_required=not repeats,
    )
    itself = repeat_grading_of(path, sample, repeats, max_cost) if repeats else {}
    return result.with_details(itself, notes)
