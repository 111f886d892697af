"""`rankproof holes`: what documents that nobody judged could change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rankproof.cli import inputs, options, output
from rankproof.cli.options import Format
from rankproof.cli.output import Column, Table
from rankproof.cli.progress import progress
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import STDOUT
from rankproof.foundation.phrasing import plural

if TYPE_CHECKING:
    import polars as pl

    from rankproof.data.tables import Qrels
    from rankproof.measures import Measure
    from rankproof.unjudged import Unjudged
    from rankproof.unjudged.bounds import View
    from rankproof.unjudged.judging_order import Asked, Grader, Settled
    from rankproof.unjudged.sampling import Sampled


DepthOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Holes of measures without a cutoff: those in the first N documents of a list.",
        show_default="the whole list",
    ),
]
ScaleOption = Annotated[
    int | None,
    typer.Option(
        metavar="G",
        help="Highest grade that a document can have.",
        show_default="as QRELS.scale says, or the largest in QRELS",
    ),
]


def command(
    qrels: options.QrelsArgument,
    runs: options.RunsArgument,
    measure: options.MeasureOption = None,
    judge_next: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="List the N documents whose judgement could change most (by the first measure).",
        ),
    ] = None,
    judge_sample: Annotated[
        int | None,
        typer.Option(
            metavar="M",
            help="Draw M queries and estimate from all of their holes, which --judge judges or "
            "--judged has labels for.",
        ),
    ] = None,
    until: Annotated[
        Literal["certain"] | None,
        typer.Option(
            help="Have holes of two runs judged until the better one is certain, by the first "
            "measure; needs --judge."
        ),
    ] = None,
    until_width: Annotated[
        float | None,
        typer.Option(
            metavar="WIDTH",
            min=0,
            help="The same until the interval of the difference is no wider than this.",
        ),
    ] = None,
    judge: Annotated[
        Path | None,
        typer.Option(
            metavar="CONFIG",
            help="Who judges: the configuration of a golden set, of which corpus, queries, judge, "
            "limits and prompts are used. Replies are kept in CONFIG.holes.",
        ),
    ] = None,
    judged: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Judgements made since, in any format that QRELS may have."
        ),
    ] = None,
    leave_one_out: Annotated[
        int | None,
        typer.Option(
            metavar="DEPTH",
            min=1,
            help="QRELS were pooled from the first DEPTH documents of these runs: how each stands "
            "without the judgements that it alone brought in.",
        ),
    ] = None,
    provenance: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The same from a golden set's provenance.tsv: who brought which document in.",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the documents to judge (.tsv, .jsonl, or .trec: a run that golden pools), "
            "or with --until the judgements made (.tsv or .jsonl).",
        ),
    ] = None,
    depth: DepthOption = None,
    scale: ScaleOption = None,
    seed: Annotated[int, typer.Option(help="Seed of the sample of queries.")] = 0,
    order: options.OrderOption = None,
    missing: options.MissingOption = None,
    candidates_only: options.CandidatesOption = False,
    score_dtype: options.ScoreDtypeOption = None,
    like: options.LikeOption = None,
    offline: options.OfflineOption = False,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
    out: options.OutOption = None,
    input_format: options.InputFormatOption = None,
    qrels_format: options.QrelsFormatOption = None,
) -> None:
    """Say what unjudged documents could change: lowest and highest over every completion.

    A hole is an unjudged document in the top k of a run named here. Each may have any grade of the
    scale; all other unjudged documents stay not relevant. With two runs or more, also the lowest
    and highest difference, and whether every completion gives it the same sign.
    """
    from rankproof.evaluation import Policy, parse_means
    from rankproof.evaluation.recorded_inputs import Given
    from rankproof.unjudged.judging_order import check_next, write_next
    from rankproof.unjudged.leave_one_out import words as pool_sentences
    from rankproof.unjudged.requested_bounds import look

    policy = Policy.of(order, missing, candidates_only, score_dtype, like)
    measures = parse_means(measure or options.DEFAULT_MEASURES)
    goal = until_width if until is None else until
    ways = {
        "--judge-next": judge_next,
        "--judge-sample": judge_sample,
        "--until": until,
        "--until-width": until_width,
    }
    chosen = [name for name, given in ways.items() if given is not None]
    if len(chosen) > 1:
        raise InputError(f"{chosen[0]} and {chosen[1]} are two ways", remedy="give one of them")
    if to is not None and not chosen:
        raise InputError(
            f"nothing to write to {to}", remedy="add --judge-next 50 or --judge-sample 15"
        )
    asks = goal is not None or judge_sample is not None
    if judge is not None and not asks:
        raise InputError(
            "--judge without --until", remedy="say how far: --until certain or --judge-sample 15"
        )
    if goal is not None and judge is None:
        raise InputError(
            f"{chosen[0]} without a judge", remedy="give both: --until certain --judge golden.yaml"
        )
    if judge is not None and judged is not None and judge_sample is not None:
        raise InputError("--judge and --judged for one sample", remedy="give one of them")
    if goal is not None and len(runs) != 2:
        raise InputError(f"{plural(len(runs), 'run')} to settle", remedy="name two")
    more = [path for path in (judged, judge) if path is not None]
    given = [str(path) for path in (qrels, *more, *runs)]
    inputs.check_stdin(given)
    output.check_outputs(given, out, to)
    if to is not None:
        check_next(to)
    known = inputs.load_qrels(qrels, qrels_format)
    measures = inputs.on_scale(measures, measure, known.scale)
    since = None if judged is None else inputs.load_qrels(judged, None)
    tables = list(inputs.load_runs(runs, input_format))
    files = inputs.roles(qrels, runs)
    if judged is not None:
        files["judged"] = judged
    if provenance is not None:
        files["provenance"] = str(provenance)
    asked = inputs.asked(measures, policy, input_format, qrels_format)
    asked |= {"depth": depth, "scale": scale, "judge_next": judge_next}
    asked |= {"judge_sample": judge_sample, "leave_one_out": leave_one_out}
    looked = look(
        Given(asked, files, seed, known, tables),
        since=since,
        settle=None if goal is None or judge is None else partial(_settle, asked, goal, judge),
        judge=None if judge is None else partial(_judged_sample, measures, judge),
    )
    known, found = looked.known, looked.found
    todo = looked.next if looked.judged is None else looked.judged
    if judge is not None and todo is not None:
        asked["judgements"] = todo.rows()
    shown = [_runs_table(found)]
    remarks = found.words()
    if found.pairs:
        shown.append(_pairs_table(found))
    if looked.settled is not None:
        remarks = [str(looked.settled), *remarks]
    if judge_next is not None and looked.next is not None:
        shown.append(_next_table(looked.next, str(measures[0])))
    if looked.sampled is not None:
        shown.append(_sample_table(looked.sampled))
        remarks = [*found.verdicts(), *looked.sampled.words()]
    elif judge_sample is not None and looked.next is not None:
        drawn = looked.next["query"].n_unique()
        remarks = [
            f"{plural(drawn, 'query was', 'queries were')} drawn; judge the "
            f"{plural(looked.next.height, 'unjudged document')} of "
            f"{'it' if drawn == 1 else 'them'}, "
            "then run this again with --judged FILE."
        ]
    if looked.left is not None:
        shown.append(_left_table(looked.left, leave_one_out))
        remarks = [*pool_sentences(looked.left), *remarks]
    if to is not None and todo is not None:
        write_next(todo, to, given)
    made = output.Made("holes", files, asked, seed)
    output.deliver(form, shown, looked.to_dict(), made, out, remarks, quiet=str(to) == STDOUT)
    output.tell(known, *tables)


def _settle(asked: dict[str, Any], goal: Any, config: Path, view: View) -> Settled:
    """Holes judged as a golden set's passages are, so many at a time, until all is known."""
    from rankproof.measures import parse
    from rankproof.unjudged.judging_order import Settling

    measure = parse(asked["measures"][0])
    view.check([measure])
    work = Settling(view, measure, goal)
    with _judge(config, work.pairs(), view, measure) as (ask, at_once):
        asked |= {"until": goal, "batch": at_once}
        return work.run(ask, at_once, None)


def _judged_sample(
    measures: list[Measure], config: Path, view: View, todo: pl.DataFrame
) -> tuple[Qrels, pl.DataFrame]:
    """Labels for all holes of a sample, and the same as rows to write."""
    import polars as pl

    from rankproof.data import read_qrels

    graded = next((m for m in measures if m.definition.grades is not None), measures[0])
    with _judge(config, todo.rows(), view, graded) as (ask, _):
        grades = pl.Series("grade", ask(todo.rows()), pl.Int64)
    made = todo.with_columns(grades).drop_nulls()
    return replace(read_qrels(made), name=str(config)), made


@contextmanager
def _judge(
    config: Path, pairs: Asked, view: View, measure: Measure
) -> Iterator[tuple[Grader, int]]:
    """Who judges these pairs, on the scale of the judgements, and how many at a time."""
    from rankproof.foundation.config import read_config
    from rankproof.golden.passage_grading import pair_judge
    from rankproof.golden.pooling import read_inputs
    from rankproof.golden.settings import GoldenSettings
    from rankproof.unjudged.judging_order import on_scale, translated

    settings = read_config(config, GoldenSettings)
    corpus = read_inputs(settings).corpus
    scale = on_scale(measure, view.qrels, view.top(measure))
    with pair_judge(settings, config.with_suffix(".holes"), corpus, pairs, progress) as judge:
        output.warn(judge.expected)
        if any(theirs != ours for theirs, ours in scale.items()):
            grades_as_words = ", ".join(map(str, scale.values()))
            output.warn(f"the judge's grades 1 to 5 count as {grades_as_words}")
        yield translated(judge.ask, scale), judge.at_once


def _runs_table(found: Unjudged) -> Table:
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("judged", "lowest", "expected", "highest", "holes"),
        Column("ends", "text"),
    ]
    rows = [
        (run.name, str(m), run.judged[m], b.lowest, b.expected, b.highest, run.holes[m], b.kind)
        for run in found.runs
        for m, b in run.measures.items()
    ]
    return Table(columns, rows, notes=found.assumptions())


def _pairs_table(found: Unjudged) -> Table:
    columns = [
        *Column.each("a", "b", style="text", folds=True),
        Column("measure", "text"),
        *Column.each("lowest", "difference", "highest", style="signed"),
        Column("certain", "text"),
        Column("holes"),
        Column("ends", "text"),
    ]
    rows = [
        (
            *(pair.a, pair.b, str(m), b.lowest, b.expected, b.highest),
            *("yes" if b.certain else "no", pair.holes[m], b.kind),
        )
        for pair in found.pairs
        for m, b in pair.measures.items()
    ]
    return Table(columns, rows, notes=["each figure is a − b"])


def _left_table(left: pl.DataFrame, depth: int | None) -> Table:
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("its own", "value", "without"),
        Column("change", "signed"),
        *Column.each("rank", "rank without"),
    ]
    how = "" if depth is None else f", as its first {plural(depth, 'document')}"
    note = (
        f"without the judgements that a run alone brought in{how}; "
        "ranks are among these runs, each time on the same judgements"
    )
    return Table(columns, left.rows(), title="Leave one out", notes=[note])


def _next_table(todo: pl.DataFrame, measure: str) -> Table:
    columns = [Column("query", "text"), Column("doc", "text", folds=True), Column("effect")]
    note = f"effect: how far the highest grade would move the mean {measure} or its difference"
    return Table(columns, todo.rows(), title="Judge next", notes=[note])


def _sample_table(sampled: Sampled) -> Table:
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("reported", "estimate", "ci low", "ci high"),
    ]
    named = [*sampled.runs.items(), *((f"{a} − {b}", f) for (a, b), f in sampled.pairs.items())]
    rows = [
        (name, str(m), e.reported, e.estimate, *e.ci)
        for name, found in named
        for m, e in found.items()
    ]
    notes = [
        f"as if all {sampled.holes} holes were judged: {len(sampled.sampled)} queries drawn at "
        f"random, all {sampled.judged} holes of them judged; 95% intervals for these "
        f"{sampled.queries} queries"
    ]
    return Table(columns, rows, title="Estimated from the sample", notes=notes)
