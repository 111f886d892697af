"""`rankproof gate`: a verdict for continuous integration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from rankproof.cli import options
from rankproof.cli.options import Format


def command(
    qrels: options.QrelsArgument,
    baseline: Annotated[
        str,
        typer.Argument(
            metavar="BASELINE",
            help="A run, the JSON of an earlier `eval --out` or `gate --out`, or a sweep's folder.",
        ),
    ],
    candidate: Annotated[
        str, typer.Argument(metavar="CANDIDATE", help="A run, or a sweep's folder.")
    ],
    measure: options.MeasureOption = None,
    margin: Annotated[
        list[float] | None,
        typer.Option(
            metavar="LOSS",
            help="The loss that is tolerated: one for all measures, or one for each in order.",
            show_default="0.01",
        ),
    ] = None,
    allow_undecided: Annotated[
        bool, typer.Option("--allow-undecided", help="Exit with 0 where the queries cannot tell.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random orders of ties.")] = 0,
    order: options.OrderOption = None,
    missing: options.MissingOption = None,
    candidates_only: options.CandidatesOption = False,
    score_dtype: options.ScoreDtypeOption = None,
    like: options.LikeOption = None,
    form: options.FormatOption = Format.table,
    wide: options.WideOption = False,
    out: options.OutOption = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the verdicts as JUnit XML.")
    ] = None,
    qrels_format: options.QrelsFormatOption = None,
) -> None:
    """Let a candidate through if it is no worse than the baseline by more than a margin.

    Exit code 0 where every measure passed: the lower end of the 95% interval of candidate −
    baseline lies above −margin. 1 where one is worse, for its upper end lies below 0, where the
    queries cannot tell, or where the candidate was evaluated on fewer queries or relevant documents
    than the baseline. A summary goes to $GITHUB_STEP_SUMMARY where that is set.
    """
    from rankproof.cli import inputs, output
    from rankproof.comparison.gate import MARGIN, gate_sides, margins_of
    from rankproof.comparison.gate_inputs import read_side, swept_of
    from rankproof.evaluation import Policy, parse_means
    from rankproof.foundation.errors import InputError
    from rankproof.foundation.files import STDOUT, check_output, write_atomically

    policy = Policy.of(order, missing, candidates_only, score_dtype, like)
    parsed = parse_means(measure or options.DEFAULT_MEASURES[:1])
    chosen = {"baseline": swept_of(baseline), "candidate": swept_of(candidate)}
    files = {"qrels": qrels} | {side: path for side, (path, _) in chosen.items()}
    given = list(files.values())
    inputs.check_stdin(given)
    output.check_outputs(given, out, junit)
    judged = inputs.load_qrels(qrels, qrels_format)
    parsed = inputs.on_scale(parsed, measure, judged.scale)
    measures, margins = margins_of(parsed, margin or [MARGIN])
    sides = [
        read_side(path, judged, measures, policy, name)
        for path, name in ((baseline, "baseline"), (candidate, "candidate"))
    ]
    found = gate_sides(
        judged, sides[0], sides[1], measures, margins, allow_undecided=allow_undecided, seed=seed
    )
    made: dict[str, Any] = {"policy": policy.to_dict()}
    asked = {"measures": {str(m): margins[m] for m in measures}} | policy.to_dict()
    asked |= {"allow_undecided": allow_undecided, "qrels_format": qrels_format}
    asked |= {"chosen": {side: name for side, (_, name) in chosen.items() if name}}
    how = output.Made("gate", files, asked, seed)
    if junit is not None:
        text = found.junit()
        write_atomically(junit, lambda file: file.write_bytes(text.encode()), inputs=given)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with check_output(summary, given).open("a", encoding="utf-8") as file:
                file.write(found.markdown() + "\n")
        except (OSError, InputError) as error:
            said = getattr(error, "strerror", None) or getattr(error, "problem", error)
            output.warn(f"{summary}: no summary was written ({said})")
    kept = found.to_dict(per_query=True) | made
    plain = form is Format.md and STDOUT not in (str(out), str(junit))
    output.deliver(
        *(form, found.tables(), found.to_dict() | made, how, out, found.sentences(), kept),
        charts=found.charts(),
        quiet=plain or str(junit) == STDOUT,
    )
    if plain:
        print(found.markdown())
    output.tell(*(side.evaluation for side in sides))
    if not found.passed:
        raise typer.Exit(1)
