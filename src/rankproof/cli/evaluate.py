"""`rankproof eval`: run × qrels × measures, under every order of the ties."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankproof.cli import inputs, options, output, people, unjudged
from rankproof.cli.options import Format, InputFormat
from rankproof.cli.progress import progress
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import STDOUT
from rankproof.foundation.manifest import digest_ahead

if TYPE_CHECKING:
    from rankproof.data.tables import Qrels
    from rankproof.evaluation import Evaluation, Policy
    from rankproof.measures import Measure
    from rankproof.statistics.two_phase import TwoPhase


def command(
    qrels: options.QrelsArgument,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="Runs; - is standard input.")
    ] = None,
    measure: options.MeasureOption = None,
    judge: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A judge's labels of all queries, in place of QRELS; see --human."
        ),
    ] = None,
    human: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="People's labels of some queries, drawn at random: adds each figure as people "
            "would have it.",
        ),
    ] = None,
    per_query: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write per-query figures to FILE (.parquet or .csv)."),
    ] = None,
    order: options.OrderOption = None,
    missing: options.MissingOption = None,
    candidates_only: options.CandidatesOption = False,
    score_dtype: options.ScoreDtypeOption = None,
    like: options.LikeOption = None,
    condensed: options.CondensedOption = False,
    depth: options.DepthOption = None,
    level: options.LevelOption = None,
    holes: options.HolesOption = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Exit with 1 where a run meets it, such as 'nDCG@10 < 0.42'; may be repeated.",
        ),
    ] = None,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
    out: options.OutOption = None,
    input_format: options.InputFormatOption = None,
    qrels_format: options.QrelsFormatOption = None,
    memory: options.MemoryOption = None,
    spill_dir: options.SpillOption = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="auto|ADDRESS",
            help="Evaluate on Ray: a running cluster or this machine (auto), or the one at ADDRESS."
            " Runs may be folders of shards.",
        ),
    ] = None,
) -> None:
    """Evaluate runs: the expectation over all orders of ties, the range, and what one order says.

    Each figure is a mean over queries. EXPECTED is over all orders of tied documents, MIN and MAX
    are the worst and best of them, OBLIVIOUS is what one tie-break gives, BIAS is how far that is
    from the expectation, STD its standard deviation over orders. JUDGED is the share of the top k
    that somebody judged, where that is not all of it.
    """
    runs = [*(runs or [])] if judge is None else [qrels, *(runs or [])]
    qrels = judge or qrels
    if not runs:
        raise InputError("no run is named", place="eval", remedy="give QRELS, then a RUN or more")
    if human is not None:
        from rankproof.data.sources import is_pipe

        for run in filter(is_pipe, runs):
            raise InputError("--human reads a run twice", place=run, remedy="name a file")
    if out is not None or form is Format.json:  # while numpy loads, on another core
        digest_ahead(runs)

    from rankproof.data.trec import group_ahead

    group_ahead()  # while the rest loads, and judgements are read

    from rankproof.evaluation import Policy, at_level, parse_all, parse_means
    from rankproof.evaluation.result import evaluation_charts, evaluations_table
    from rankproof.evaluation.thresholds import parse_limit
    from rankproof.measures import parse
    from rankproof.unjudged.judged_share import (
        Beside,
        added,
        bounded,
        check_again,
        evaluate_named,
        set_beside,
        with_judged,
    )

    if form is Format.table:
        output.load()
    policy = Policy.of(*(order, missing, candidates_only, score_dtype, like), condensed, depth)
    if holes and depth is not None:
        raise InputError("--holes with --depth", remedy="ask for measures with a cutoff, nDCG@N")
    limits = [parse_limit(text) for text in fail_if or []]
    rules = [replace(limit, measure=at_level([limit.measure], level)[0]) for limit in limits]
    asked_for = measure or ([] if rules else options.DEFAULT_MEASURES)
    known = parse_means if holes else parse_all
    leveled = at_level([parse(name) for name in asked_for], level)
    measures = known([*leveled, *(rule.measure for rule in rules)])
    more = [] if human is None else [human]
    inputs.check_stdin([qrels, *more, *runs])
    output.check_outputs([qrels, *more, *runs], out, per_query)
    if per_query is not None:
        output.check_frame(per_query)
    judged = inputs.load_qrels(qrels, qrels_format, memory)
    measures = inputs.on_scale(measures, measure or rules, judged.scale)
    named = inputs.named(runs)
    how = inputs.read_as(runs, input_format, memory, spill_dir)
    if cluster is not None:
        wanted = with_judged(measures)
        found = _on_cluster(named, judged, wanted, policy, input_format, cluster)
        evaluations = [set_beside(e, measures) for e in found]
    else:
        evaluations, _ = evaluate_named(named, judged, measures, policy, **how)
    beside = [Beside(e.judged) for e in evaluations]
    estimates: list[dict[Measure, TwoPhase]] = []
    theirs: dict[Measure, Measure] = {}
    extra: list[output.Table] = []
    if human is not None:
        from rankproof.statistics.two_phase import add_two_phase, two_phase_of

        labels = inputs.load_qrels(human, qrels_format)
        scale = labels.scale_beside(judged.scale)
        theirs = {m: m.rescaled(judged.scale, scale) for m in measures}
        other = list(dict.fromkeys(theirs.values()))
        second, _ = evaluate_named(named, labels, other, policy, **how)
        sides = list(zip(evaluations, second, strict=True))
        estimates = [two_phase_of(one, other, theirs) for one, other in sides]
        told = [(one.judged, other.judged) for one, other in sides]
        outside = len(set(labels.queries) - set(judged.queries))
        names = [e.name for e in evaluations]
        extra = [people.people_table(names, estimates, theirs, told, outside)]
    if holes:
        check_again(runs)
        read = inputs.load_runs(runs, input_format)
        beside = bounded(beside, read, judged, measures, policy)
    if per_query is not None:
        import polars as pl

        frames = [
            evaluation.per_query.select(pl.lit(evaluation.name).alias("run"), pl.all())
            for evaluation in evaluations
        ]
        output.write_frame(pl.concat(frames), per_query, [qrels, *runs])
    data: dict[str, Any] = {
        "runs": [added(e.to_dict(), b) for e, b in zip(evaluations, beside, strict=True)],
        "policy": policy.to_dict(),
    }
    for run, of in zip(data["runs"], estimates, strict=False):
        add_two_phase(run["measures"], of, theirs)
    made = output.Made(
        "evaluation",
        inputs.roles(qrels, runs) | ({} if human is None else {"human": human}),
        inputs.asked(measures, policy, input_format, qrels_format) | {"holes": holes},
    )
    kept = data
    if out is not None:  # with the values of single queries
        kept = data | {
            "runs": [
                run | evaluation.to_dict(per_query=True) | {"measures": run["measures"]}
                for run, evaluation in zip(data["runs"], evaluations, strict=True)
            ]
        }
    shown = [unjudged.columns_added(evaluations_table(evaluations), beside), *extra]
    quiet = str(per_query) == STDOUT
    charts = evaluation_charts(evaluations)
    output.deliver(form, shown, data, made, out, file=kept, quiet=quiet, charts=charts)
    if form is not Format.table:
        output.tell(*evaluations)
    if rules and policy.missing == "skip":  # a condition holds for fewer queries than judged
        from rankproof.comparison.pairs import missing_note

        for note in missing_note({e.name: e.missing for e in evaluations if e.missing}, policy):
            output.warn(note)
    broken = [line for e in evaluations for rule in rules for line in rule.broken(e)]
    for line in broken:
        output.warn(line)
    if broken:
        raise typer.Exit(1)


def _on_cluster(
    runs: dict[str, str],
    judged: Qrels,
    measures: list[Measure],
    policy: Policy,
    form: InputFormat | None,
    address: str,
) -> list[Evaluation]:
    import io
    from contextlib import redirect_stdout

    from rankproof import cluster
    from rankproof.cluster.runs import evaluate_shards

    word: Any = form
    evaluations = []
    # Ray prints to standard output when a node dies, or it kills a task for memory and repeats it.
    with (
        redirect_stdout(io.StringIO()),
        cluster.connected(address),
        progress("evaluating", len(runs)) as told,
    ):
        for name, path in runs.items():
            evaluations.append(
                evaluate_shards(
                    path, judged, measures, policy, name=name, format=word, progress=told
                )
            )
    return evaluations
