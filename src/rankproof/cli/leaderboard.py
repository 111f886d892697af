"""`rankproof leaderboard`: many runs in one table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankproof.cli import options
from rankproof.cli.options import Format


def command(
    qrels: options.QrelsArgument,
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN",
            help="Runs: files, folders, globs or rows of a sweep (FOLDER::ROW).",
            callback=options.rows,
        ),
    ],
    measure: options.MeasureOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the shuffles and resamples.")] = 0,
    order: options.OrderOption = None,
    missing: options.MissingOption = None,
    candidates_only: options.CandidatesOption = False,
    score_dtype: options.ScoreDtypeOption = None,
    like: options.LikeOption = None,
    condensed: options.CondensedOption = False,
    holes: options.HolesOption = False,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
    out: options.OutOption = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw ranks and intervals: .svg or .html."),
    ] = None,
    input_format: options.InputFormatOption = None,
    qrels_format: options.QrelsFormatOption = None,
    memory: options.MemoryOption = None,
    spill_dir: options.SpillOption = None,
) -> None:
    """Rank runs: expected values, ranks with their intervals, and who is told apart from whom.

    The first measure orders the rows. Runs in one GROUP are not told apart by Tukey's HSD over all
    pairs; † is worse than the best of its column; W/T/L counts queries against the best run.
    """
    from rankproof.cli import inputs, output
    from rankproof.comparison.leaderboard import expand, rank_evaluations
    from rankproof.comparison.pairs import missing_note
    from rankproof.evaluation import Policy, parse_means
    from rankproof.foundation.files import STDOUT
    from rankproof.presentation.display import check_chart_path
    from rankproof.unjudged.judged_share import evaluate_named

    policy = Policy.of(order, missing, candidates_only, score_dtype, like, condensed)
    measures = parse_means(measure or options.DEFAULT_MEASURES)
    files = expand(runs, qrels)
    inputs.check_stdin([qrels, *files])
    output.check_outputs([qrels, *files], out, plot)
    if plot is not None:
        check_chart_path(plot)
    judged = inputs.load_qrels(qrels, qrels_format, memory)
    measures = inputs.on_scale(measures, measure, judged.scale)
    evaluations, view = evaluate_named(
        *(inputs.named(files), judged, measures, policy),
        holes=holes or None,
        **inputs.read_as(files, input_format, memory, spill_dir),
    )
    board = rank_evaluations(evaluations, seed=seed, holes=view)
    if view is not None and not holes:  # shown where they change who leads
        board, holes = board.where_others_could_lead()
    data = board.to_dict() | {"policy": policy.to_dict()}
    asked = inputs.asked(measures, policy, input_format, qrels_format) | {"holes": holes}
    made = output.Made("leaderboard", inputs.roles(qrels, files), asked, seed)
    if plot is not None:
        board.plot().save(plot, [qrels, *files])
    full = form not in (Format.latex, Format.md)  # what papers print: values and marks
    table = board.full_table() if form is Format.csv else board.table(full)
    quiet = str(plot) == STDOUT
    output.deliver(
        form, [table], data, made, out, str(board).splitlines(), quiet=quiet, charts=board.charts()
    )
    output.tell(*evaluations)
    if form is not Format.table:
        for note in missing_note(board.missing, policy):
            output.warn(note)
