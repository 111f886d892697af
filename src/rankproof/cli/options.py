"""Options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from rankproof.cli import terminal


class Format(StrEnum):
    table = "table"
    json = "json"
    csv = "csv"
    md = "md"
    latex = "latex"
    html = "html"


# As ties and evaluation have them, whose loading takes longer than a word about an option.
Order = Literal["input", "docid", "trec_eval"]
Missing = Literal["zero", "skip"]
ScoreDtype = Literal["float64", "float32", "float16", "bfloat16"]
Like = Literal["trec_eval", "trec_eval10", "ir_measures", "mteb", "ranx", "gdeval"]
InputFormat: TypeAlias = str


FORMATS = "trec, plain, msmarco, csv, tsv, json, jsonl, mteb, parquet, arrow"  # as records has them


def _format(name: str) -> str:
    """One of the formats that records can read; those of other packages among them."""
    from rankproof.data.formats import check_format

    check_format(name)
    return name


DEFAULT_MEASURES = ["nDCG@10", "RR@10", "AP@100", "R@100"]

QrelsArgument = Annotated[
    str, typer.Argument(metavar="QRELS", help="Judgements; - is standard input.")
]


def rows(runs: list[str] | None) -> list[str] | None:
    """`swept::NAME` is the run of a row of a sweep."""
    if not runs or not any("::" in run for run in runs):
        return runs
    from rankproof.tradeoffs.sweep import find_run_file

    parts = [run.partition("::") for run in runs]
    return [
        str(find_run_file(folder, name))
        if name and Path(folder).is_dir()
        else f"{folder}{mark}{name}"
        for folder, mark, name in parts
    ]


RunsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN",
        help="Runs, or rows of a sweep (FOLDER::ROW); - is standard input.",
        callback=rows,
    ),
]
MeasureOption = Annotated[
    list[str] | None,
    typer.Option(
        "-m",
        "--measure",
        metavar="MEASURE",
        help="Such as nDCG@10 or AP(rel=2)@100; may be repeated. `rankproof measures` lists them.",
        show_default=", ".join(DEFAULT_MEASURES),
    ),
]


def _widen(wanted: bool) -> None:
    terminal.wide = wanted


WideOption = Annotated[
    bool,
    typer.Option(
        "--wide", callback=_widen, help="Print every column whole, however narrow the terminal."
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]
OrderOption = Annotated[
    Order | None, typer.Option(help="Tie-break behind the oblivious figure.", show_default="input")
]
MissingOption = Annotated[
    Missing | None,
    typer.Option(
        help="A judged query that the run lacks counts 0, or is left out.", show_default="zero"
    ),
]
CandidatesOption = Annotated[
    bool,
    typer.Option(
        "--candidates-only", help="Count as relevant only what the run retrieved (rerankers)."
    ),
]
CondensedOption = Annotated[
    bool,
    typer.Option(
        "--condensed", help="Leave out documents that nobody judged before ranking (trec_eval -J)."
    ),
]
DepthOption = Annotated[
    int | None,
    typer.Option(metavar="N", help="End each list after rank N before ranking (trec_eval -M)."),
]
LevelOption = Annotated[
    int | None,
    typer.Option(
        metavar="GRADE",
        help="The lowest grade that is relevant, for measures that name none (trec_eval -l).",
    ),
]
ScoreDtypeOption = Annotated[
    ScoreDtype | None,
    typer.Option(
        help="Round scores to this format before comparing them.", show_default="as they come"
    ),
]
LikeOption = Annotated[
    Like | None,
    typer.Option(
        help="Reproduce another tool (trec_eval is 9 and pytrec_eval): its score format, "
        "tie-break and choice of queries."
    ),
]
InputFormatOption = Annotated[
    InputFormat | None,
    typer.Option(
        metavar="FORMAT",
        parser=_format,
        help=f"Format of the runs: {FORMATS}.",
        show_default="by ending and first bytes",
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="Read runs that would take more in parts, such as 2GB.",
        show_default="half of what is available",
    ),
]
SpillOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Where a streamed run is spilled if its queries are scattered.",
        show_default="the system's temporary folder",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Also write the result as JSON, with how it was made, for `rankproof report`.",
    ),
]


def _offline(wanted: bool) -> bool:
    from rankproof.foundation.model_hub import go_offline

    go_offline(wanted)
    return wanted


OfflineOption = Annotated[
    bool,
    typer.Option(
        "--offline",
        callback=_offline,
        is_eager=True,
        help="Load models from this machine alone; HF_HUB_OFFLINE=1 says the same.",
    ),
]
QrelsFormatOption = Annotated[
    InputFormat | None,
    typer.Option(
        metavar="FORMAT",
        parser=_format,
        help=f"Format of QRELS: {FORMATS}.",
        show_default="by ending and first bytes",
    ),
]
HolesOption = Annotated[
    bool,
    typer.Option(
        "--holes",
        help="Add the lowest and highest figure over every completion of unjudged documents; "
        "`rankproof holes` says more.",
    ),
]
