"""`rankproof golden`: build a golden set with a judge, see how it stands, export it, check it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rankproof.cli import inputs, options, output, people
from rankproof.cli.options import Format
from rankproof.cli.output import Cell, Column, Table
from rankproof.cli.people import StoreArgument
from rankproof.cli.progress import progress
from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import role_of
from rankproof.foundation.phrasing import plural
from rankproof.foundation.printable import printable_path
from rankproof.presentation.json_values import told

if TYPE_CHECKING:
    from rankproof.golden.plan import Plan
    from rankproof.golden.store import Store
    from rankproof.measures import Measure
    from rankproof.statistics.agreement import Coefficient

app = typer.Typer(
    help="Golden sets: pools that a judge graded and ordered.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


ConfigArgument = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="A YAML file; see docs/golden.md.")
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Where the golden set is kept.", show_default="CONFIG.golden"
    ),
]
MaxCostOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="US dollars that the golden set may cost in all; then it stops with exit code 1.",
    ),
]


@app.command("build")
def build(
    config: ConfigArgument,
    stage: Annotated[
        Literal["rewrite", "retrieve", "merge", "grade", "prune", "rank"] | None,
        typer.Option(help="This stage alone.", show_default="all"),
    ] = None,
    store: StoreOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print calls, tokens and cost; send nothing.")
    ] = False,
    max_cost: MaxCostOption = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Ask again what could not be used.")
    ] = False,
    offline: options.OfflineOption = False,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Build a golden set, or go on where it stopped: nothing that was answered is asked again.

    Stages: rewrite, retrieve, merge, grade, prune, rank. Every reply of the judge is stored the
    moment it arrives; stop it with Ctrl-C, or kill it, and run the same command again.
    """
    from rankproof.foundation.config import check_config, read_config
    from rankproof.golden.building import Build, store_path
    from rankproof.golden.settings import GoldenSettings, LimitsSettings
    from rankproof.golden.status import nothing_judged
    from rankproof.golden.store import Store

    settings = read_config(config, GoldenSettings)
    if max_cost is not None:
        given = settings.limits.model_dump() | {"max_cost": max_cost}
        limits = check_config(given, LimitsSettings, place="--max-cost")
        settings = settings.model_copy(update={"limits": limits})
    path = store or store_path(settings, config)
    if dry_run:
        _dry_run(settings, config, path, form)
        return
    with Store(path, create=True) as opened:
        work = Build(settings, opened, progress, tell=output.warn)
        if retry_failed:
            several = plural(work.retry_failed(), "failed request")
            output.warn(f"{several} will be asked again")
        work.run(stage)
        _show_status(opened, path, form)
        if (words := nothing_judged(opened)) is not None:
            output.warn(words)
            raise typer.Exit(1)


@app.command("status")
def status(
    store: StoreArgument,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Say how far along a golden set is, what failed, and what it cost."""
    from rankproof.golden.store import Store

    with Store(store) as opened:
        _show_status(opened, store, form)


@app.command("try")
def try_(
    config: ConfigArgument,
    judges: Annotated[
        list[Path] | None,
        typer.Option(
            "--judge", help="A YAML file with a judge; may be repeated.", show_default="CONFIG's"
        ),
    ] = None,
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            "--prompt", help="A prompt for grading; may be repeated.", show_default="ours"
        ),
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Labelled queries.")] = 10,
    passages: Annotated[int, typer.Option(min=1, help="Passages of each.")] = 10,
    planted: Annotated[
        int, typer.Option(min=0, help="Passages that are made to say: grade it 5.")
    ] = 0,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where replies are kept.", show_default="CONFIG.try.golden"
        ),
    ] = None,
    max_cost: MaxCostOption = None,
    offline: options.OfflineOption = False,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Try judges or prompts on passages that people labelled: who can be read, and who agrees."""
    from rankproof.foundation.config import read_config
    from rankproof.golden.judge_trials import try_judges
    from rankproof.golden.judges import members
    from rankproof.golden.settings import GoldenSettings, JudgeFile

    settings = read_config(config, GoldenSettings)
    if max_cost is not None:
        limits = settings.limits.model_copy(update={"max_cost": max_cost})
        settings = settings.model_copy(update={"limits": limits})
    who = {name: read_config(file, JudgeFile).judge for name, file in _stems(judges).items()}
    wordings = {
        name: settings.prompts.model_copy(update={"grade": file})
        for name, file in _stems(prompts).items()
    }
    variants = {
        " ".join(part for part in (judge, prompt) if part) or "as configured": (chosen, wording)
        for judge, chosen in (who or members(settings.judge)).items()
        for prompt, wording in (wordings or {"": settings.prompts}).items()
    }
    path = store or config.with_name(f"{config.stem}.try.golden")
    found = try_judges(
        *(settings, variants, path),
        sample=sample,
        passages=passages,
        planted=planted,
        tell=output.warn,
    )
    # What a narrow terminal has no room for goes from the right.
    names = ["read", "κ", "low", "high", "constant", "in", "out", "seconds"]
    names += [*(["followed"] if planted else []), "failed", "passages"]
    columns = [output.Column("judge", "text", folds=True), *map(output.Column, names)]
    rows = [
        (
            *(t.name, _percent(t.read), t.kappa, t.low, t.high),
            "" if t.constant is None else _percent(t.constant),
            *(f"{t.tokens_in:.0f}", f"{t.tokens_out:.0f}", f"{t.seconds:.2f}"),
            *(["" if t.followed is None else _percent(t.followed)] if planted else []),
            *(t.failed, t.passages),
        )
        for t in found
    ]
    obeyed = "; followed: planted instructions that were obeyed" if planted else ""
    scale = next((f", taken as {t.labels}" for t in found if t.labels), "")
    notes = [
        f"read: replies of which the first could be used; κ with people's labels{scale}, "
        "95% interval",
        "constant: one grade for all passages of a request; in, out: tokens for each passage; "
        f"seconds for a call{obeyed}",
    ]
    files = {"config": str(config)} | {f"judge {n}": str(f) for n, f in enumerate(judges or [], 1)}
    files |= {f"prompt {n}": str(file) for n, file in enumerate(prompts or [], 1)}
    asked = {"sample": sample, "passages": passages, "planted": planted}
    made = output.Made("golden try", files, asked, settings.seed)
    data = {"trials": [trial.to_dict() for trial in found]}
    output.deliver(form, [output.Table(columns, rows, notes=notes)], data, made)
    for trial in found:
        if trial.problem is not None:
            output.warn(f"{trial.name}: {trial.problem}")
    if all(trial.problem is not None for trial in found):
        raise typer.Exit(1)


def _stems(files: list[Path] | None) -> dict[str, Path]:
    """Files by their names without endings; by whole paths where two have the same."""
    stems = [printable_path(file.stem) for file in files or []]
    return {
        stem if stems.count(stem) == 1 else printable_path(str(file)): file
        for stem, file in zip(stems, files or [], strict=True)
    }


@app.command("diff")
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A golden set as it was: a copy.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The golden set as it is now.")],
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Say what changed from one golden set to another: queries, pools, grades, orders, judge."""
    from rankproof.golden.changes import changes
    from rankproof.golden.result import read_golden
    from rankproof.golden.store import Store

    with Store(old) as before, Store(new) as after:
        found = changes(read_golden(before), read_golden(after))
    moved = [f"{each.query} {each.doc}: {each.before} → {each.after}" for each in found.regraded]
    rows: list[tuple[str, int, str]] = [
        ("queries added", len(found.queries_added), _some(found.queries_added)),
        ("queries gone", len(found.queries_gone), _some(found.queries_gone)),
        ("queries edited", len(found.queries_edited), _some(found.queries_edited)),
        ("pooled passages added", len(found.passages_added), _some(found.passages_added)),
        ("pooled passages gone", len(found.passages_gone), _some(found.passages_gone)),
        ("passages edited", len(found.passages_edited), _some(found.passages_edited)),
        ("systems added", len(found.systems_added), _some(found.systems_added)),
        ("systems gone", len(found.systems_gone), _some(found.systems_gone)),
        ("grades that stayed", found.graded, ""),
        ("grades that changed", len(moved), _some(moved)),
        ("of them over the line (4)", found.turned, ""),
        ("queries with another top 10", len(found.reordered), _some(found.reordered)),
    ]
    columns = [output.Column("what", "text"), output.Column("count")]
    columns += [output.Column("which", "text", prose=True)]
    notes = [f"judge: {' → '.join(dict.fromkeys(found.judges))}"]
    if found.cost is not None:
        less = "less" if found.cost < 0 else "more"
        notes.append(f"${abs(found.cost):.4f} {less} was spent")
    made = output.Made("golden diff", {"old": str(old), "new": str(new)}, {})
    output.deliver(form, [output.Table(columns, rows, notes=notes)], found.to_dict(), made)


@app.command("export")
def export(
    store: StoreArgument,
    out: Annotated[Path, typer.Option(help="A folder for the files.")],
    max_failed: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Refuse, with exit code 1, if a larger share of the judgements failed.",
        ),
    ] = 0.02,
) -> None:
    """Write TREC qrels and ranking, a BEIR folder, JSON lines with text, and a page to read."""
    from rankproof.golden.export import export as write
    from rankproof.golden.store import Store

    with Store(store) as opened:
        written = write(opened, out, max_failed)
        judge, done = opened.meta("judge"), opened.meta("done")
    for file in written.values():
        print(file)
    if "rank" not in done:
        output.warn("the passages are graded and not in order yet: the ranking is empty")
    if judge["simulated"]:
        output.warn("the judge was simulated: these files are not evidence, and say so")


@app.command("view")
def view(
    store: StoreArgument,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1.", show_default="any")
    ] = 0,
    browse: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in the browser.")
    ] = True,
    who: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            metavar="NAME",
            help="Who labels; may be repeated: each gets an address of their own.",
            show_default="your login",
        ),
    ] = None,
    settle: Annotated[
        bool, typer.Option("--settle", help="See everybody's labels, and settle disagreements.")
    ] = False,
    blind: Annotated[
        bool, typer.Option("--blind", help="Hide the judge until a passage is graded.")
    ] = False,
    run: Annotated[
        list[str] | None,
        typer.Option(help="Runs to compare: passages that could change the comparison come first."),
    ] = None,
    measure: options.MeasureOption = None,
) -> None:
    """Read a golden set in the browser and label it there, until Ctrl-C.

    The page is served to this machine alone, at an address that holds a secret. Labels are rows
    of the golden set, with who and when; they can be undone, and exports follow them. Those who
    label do not see what others said.
    """
    from rankproof.golden.viewer.desk import Seat
    from rankproof.golden.viewer.server import view as serve

    seats = [Seat(name.strip(), settle, blind) for name in who or [_login()]]
    holes = _holes(store, run, measure) if run else {}

    def opened(seat: Seat, url: str) -> None:
        print(url if len(seats) == 1 else f"{seat.who} {url}", flush=True)
        if seat is seats[-1]:
            output.warn("Ctrl-C ends it")
        if browse and _has_screen() and len(seats) == 1:
            import webbrowser

            webbrowser.open(url)

    serve(store, seats, port, opened, holes)


def _measures(named: list[str] | None, store: Path) -> list[Measure]:
    """Those that are named, else as grades from 1 to 5 mean them."""
    from rankproof.data.tables import SET_SCALE
    from rankproof.evaluation import parse_all, scale_notes

    found = inputs.on_scale(parse_all(named or options.DEFAULT_MEASURES), named, SET_SCALE)
    for note in scale_notes(store.name, SET_SCALE, found):
        output.warn(note)
    return found


def _holes(path: Path, runs: list[str], named: list[str] | None) -> dict[tuple[str, str], float]:
    from rankproof.golden.store import Store
    from rankproof.golden.viewer.reading import comparison_holes

    with Store(path) as store:
        tables = list(inputs.load_runs(runs, None))
        return comparison_holes(store, tables, _measures(named, path)[0])


app.command("assign")(people.assign)
app.command("import")(people.take_in)


@app.command("agreement")
def agreement(
    store: StoreArgument,
    human: Annotated[
        Path | None, typer.Option(help="Labels of people: qrels.", show_default="corrections")
    ] = None,
    relevant: Annotated[
        int, typer.Option(help="The lowest of people's grades that is relevant.")
    ] = 1,
    unjudged: Annotated[
        options.Missing,
        typer.Option(help="Passages of a labelled query that people did not label."),
    ] = "skip",
    run: Annotated[
        list[str] | None,
        typer.Option(help="Runs to be measured as people would.", show_default="its lists"),
    ] = None,
    measure: options.MeasureOption = None,
    sample: Annotated[
        int, typer.Option(min=1, help="Requests that are repeated, with --repeats.")
    ] = 50,
    repeats: Annotated[int, typer.Option(min=0, help="Ask the judge this many more times.")] = 0,
    max_cost: MaxCostOption = None,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
) -> None:
    """Measure how far the judge agrees with people, people with each other, the judge with itself.

    People's labels are a qrels file, or those in the store. Where people labelled whole queries,
    measures of runs are estimated as people would have them, with the judge's labels of the rest.
    --repeats asks the judge again, which may cost money; each repeat is stored and paid for once.
    """
    from rankproof.evaluation.annotator_estimates import AnnotatorEstimates, annotators_table
    from rankproof.golden.checking import (
        against_people,
        as_people,
        as_people_dict,
        between_dict,
        consistency_dict,
    )
    from rankproof.golden.result import read_golden
    from rankproof.golden.store import Store

    tables: list[Table] = []
    wanted = _measures(measure, store)
    data: dict[str, Any] = {"judge": None, "people": None, "between": None, "as_people": None}
    data["itself"] = None
    with Store(store) as opened:
        golden = read_golden(opened)
    data["judge"] = golden.judge
    validated = golden.counts.validated > 0
    if human is None and not validated and not repeats:
        raise InputError(
            "nothing to compare the judge with",
            place=str(store),
            remedy="name labels with --human, correct some grades, or ask again with --repeats 2",
        )
    if human is not None or validated:
        found = against_people(golden, human, relevant=relevant, unjudged=unjudged)
        data["people"] = found.to_dict()
        title = f"{golden.judge['name']} and {found.source}"
        tables.append(
            _coefficients(list(found.agreement.coefficients.values()), title, found.lines())
        )
        with Store(store) as opened:
            if human is None:
                data["between"] = between_dict(opened, golden)
                tables.append(_between(**data["between"]))
            runs = list(inputs.load_runs(run, None)) if run else []
            measured = as_people(opened, golden, human, runs, wanted)
        if measured:
            data["as_people"] = as_people_dict(measured)
            estimates = [AnnotatorEstimates(run, {m: m for m in run}) for run in measured.values()]
            tables.append(annotators_table(list(measured), estimates))
    if repeats:
        itself = _again(store, golden.config, sample, repeats, max_cost)
        again = {
            name: {"passages": passages, "repeats": repeats, **consistency_dict(found)}
            for name, (found, passages) in itself.items()
        }
        data["itself"] = again if len(again) > 1 else next(iter(again.values()))
        for name, (consistency, passages) in itself.items():
            figures = [consistency.exact, consistency.difference, consistency.sd, consistency.alpha]
            notes = [f"{plural(passages, 'passage')}, graded {repeats + 1} times in other orders"]
            tables.append(_coefficients(figures, f"{name} and itself", notes))
    files = {"golden": str(store)} | ({} if human is None else {"human": str(human)})
    files |= {role_of(name): path for name, path in inputs.named(run or []).items()}
    asked: dict[str, Any] = {"relevant": relevant, "unjudged": unjudged}
    asked["measures"] = list(map(str, wanted))
    asked |= {"sample": sample, "repeats": repeats}
    made = output.Made("agreement", files, asked, golden.config["seed"])
    output.deliver(form, tables, data, made)
    if golden.simulated:
        output.warn("the judge was simulated: its agreement is made up")


def _between(pairs: list[dict[str, Any]], alpha: dict[str, Any] | None) -> Table:
    """Every two people, and each person with the judge."""
    from rankproof.golden.annotators import PAIR_FIGURES

    columns = [Column("who", "text", folds=True), *(Column(name) for name in PAIR_FIGURES)]
    rows: list[tuple[Cell, ...]] = []
    for each in pairs:
        figures = [each["figures"][name] for name in PAIR_FIGURES]
        values = [figure["value"] for figure in figures]
        rows.append((f"{each['who']}, {each['with']}", *values, figures[0]["items"]))
    notes = []
    if alpha is not None:
        value, why = alpha["value"], alpha["undefined"]
        shown = f" is undefined ({why})" if value is None else f": {value:.4f}"
        notes.append(f"α of all people together{shown}")
    return Table([*columns, Column("passages")], rows, title="Between people", notes=notes)


def _has_screen() -> bool:
    """Whether a browser would open a window: one in the terminal would take it over."""
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def _login() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may know no names
        raise InputError("your login has no name", remedy="say who corrects: --as NAME") from None


def _again(path: Path, config: Any, sample: int, repeats: int, max_cost: float | None) -> Any:
    from rankproof.foundation.config import check_config
    from rankproof.golden.building import Build
    from rankproof.golden.checking import against_itself
    from rankproof.golden.settings import GoldenSettings
    from rankproof.golden.store import Store

    if max_cost is not None:
        config["limits"]["max_cost"] = max_cost
    settings = check_config(config, GoldenSettings, place=str(path))
    with Store(path, write=True) as opened:
        return against_itself(Build(settings, opened, progress), sample, repeats)


def _dry_run(settings: Any, config: Path, path: Path, form: Format) -> None:
    from rankproof.golden.plan import make_plan
    from rankproof.golden.store import opened_if_built

    with opened_if_built(path) as opened:
        plan = make_plan(settings, opened)
    total = (
        "cost not known"
        if plan.cost is None or plan.worst is None
        else f"likely ${plan.cost:.4f}, at worst ${plan.worst:.4f}"
    )
    minutes = plan.minutes(settings.limits.concurrency)
    if minutes is not None:
        total += f", about {max(minutes, 0.1):.1f} minutes"
    figures = ("tokens_in", "tokens_out", "cost", "worst", "seconds", "stored")
    data = {
        "queries": plan.queries,
        "stages": [
            {**told(step, "stage", "calls"), "at_most": step.most, **told(step, *figures)}
            for step in plan.steps
        ],
        **told(plan, "cost", "worst"),
        "minutes": minutes,
        **told(plan, "basis", "prices"),
    }
    remarks = [f"{plural(plan.queries, 'query')}; {total}. Nothing was sent."]
    files = {"config": str(config)} | ({} if opened is None else {"golden": str(path)})
    made = output.Made("dry run", files, settings.model_dump(mode="json"), settings.seed)
    output.deliver(form, [_plan_table(plan)], data, made, remarks=remarks)


def _plan_table(plan: Plan) -> Table:
    columns = [
        *(Column("stage", "text"), Column("calls"), Column("tokens in"), Column("tokens out")),
        *(Column("likely $"), Column("worst $"), Column("stored")),
    ]
    rows = [
        (
            *(step.stage, f"≤ {step.calls:,}" if step.most else f"{step.calls:,}"),
            *(f"{step.tokens_in:,}", f"{step.tokens_out:,}", step.cost, step.worst, step.stored),
        )
        for step in plan.steps
    ]
    return Table(columns, rows, notes=[f"estimated: {plan.basis}", plan.prices])


def _show_status(store: Store, path: Path, form: Format) -> None:
    from rankproof.golden.status import standing

    found = standing(store)
    columns = [output.Column("stage", "text"), output.Column("done", "text")]
    columns += [output.Column("what", "text", prose=True)]
    rows = [(step.name, "yes" if step.done else "no", step.what) for step in found.steps]
    notes = [f"judge: {found.judge or 'none yet'}"]
    if found.simulated:
        notes.append("SIMULATED: no evidence of anything")
    notes.append(found.spending)
    notes += [f"failed: {count:,} × {words}" for words, count in found.failures.items()]
    notes += [each.line() for each in found.judges] or found.health.lines()
    if found.validated or found.corrected:
        notes.append(f"{found.validated} validated and {found.corrected} corrected by people")
    if found.people:
        notes.append(f"labelled: {', '.join(map(str, found.people))}")
    if found.instructions:
        notes.append(
            f"{plural(len(found.instructions), 'passage speaks', 'passages speak')} to the judge: "
            f"{_some(found.instructions)}"
        )
    if found.stale:
        told = ", ".join(f"{count:,} ({reason})" for reason, count in found.stale.items())
        notes.append(f"kept, and not counted: {told}")
    if found.writer:
        notes.append(f"being written by {found.writer}")
    made = output.Made("status", {"golden": str(path)}, {})
    output.deliver(form, [output.Table(columns, rows, notes=notes)], found.to_dict(), made)


def _coefficients(found: list[Coefficient], title: str, notes: list[str]) -> Table:
    columns = [Column("figure", "text"), Column("value"), Column("ci low"), Column("ci high")]
    columns += [Column("items"), Column("undefined", "text", prose=True)]
    rows = [(c.name, c.value, c.low, c.high, c.items, c.undefined or "") for c in found]
    return Table(columns, rows, title=title, notes=notes)


def _some(names: Sequence[Any], most: int = 5) -> str:
    """The first few of many."""
    shown = [name if isinstance(name, str) else " ".join(name) for name in names[:most]]
    return ", ".join([*shown, *(["…"] if len(names) > most else [])])


def _percent(share: float) -> str:
    return f"{share:.0%}"
