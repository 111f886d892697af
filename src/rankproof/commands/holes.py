"""`holes`: what documents that nobody judged could change, and which of them to judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Unpack

from rankproof.commands.options import (
    DEFAULT_MEASURES,
    InputOptions,
    Measures,
    Offline,
    PolicyOptions,
    Qrels,
    Runs,
    Seed,
)
from rankproof.commands.registry import Needs, Option, Output, Source, command

if TYPE_CHECKING:
    import os

    import polars as pl

    from rankproof.data import QrelsLike
    from rankproof.data.tables import Qrels as QrelsTable
    from rankproof.measures.registry import Measure
    from rankproof.unjudged import Unjudged
    from rankproof.unjudged.bounds import WorstCases
    from rankproof.unjudged.judging_order import Grader, QueryDocuments, Settled


@dataclass(frozen=True)
class RecordedJudge:
    """A judge that repeats the grades of an earlier run, as `verify` needs it."""

    grades: Mapping[tuple[str, str], int]
    batch: int

    def ask(self, pairs: Sequence[tuple[str, str]]) -> list[int | None]:
        """The recorded grade of each pair of query and document."""
        return [self.grades.get(pair) for pair in pairs]


def _replay(arguments: dict[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Let the recorded grades take the judge's place."""
    record = stored["manifest"]["call"].get("record")
    if record is None:
        return arguments
    grades = {(query, document): grade for query, document, grade in record["judgements"]}
    return arguments | {"judge": RecordedJudge(grades, record["batch"])}


class HolesOptions(PolicyOptions, InputOptions, total=False):
    """Everything that `holes` shares with commands that evaluate; runs are held whole."""


@command(
    group="Compare",
    needs=Needs(optional={"judge": "judges them"}),
    outputs=[
        Output(
            "to",
            "judging_file",
            "Write the documents to judge (.tsv, .jsonl, or .trec: a run that golden pools), or "
            "with --until the judgments made (.tsv or .jsonl).",
            endings=(".tsv", ".jsonl", ".trec"),
        )
    ],
    replay=_replay,
)
def holes(
    qrels: Qrels,
    runs: Runs,
    measures: Measures = DEFAULT_MEASURES,
    *,
    judge_next: Annotated[
        int | None,
        "List the N documents whose judgment could change most (by the first measure).",
    ] = None,
    judge_sample: Annotated[
        int | None,
        Option(metavar="M"),
        "Draw M queries and estimate from all of their unjudged documents, which --judge judges "
        "or --judged has labels for.",
    ] = None,
    until: Annotated[
        Literal["certain", "95%"] | None,
        "Have unjudged documents of two runs judged until the better one is certain, or whole "
        "queries until it is significant at 95%, by the first measure; needs --judge.",
    ] = None,
    until_width: Annotated[
        float | None,
        Option(metavar="WIDTH", minimum=0),
        "The same until the interval of the difference is no wider than this.",
    ] = None,
    judge: Annotated[
        str | os.PathLike[str] | RecordedJudge | None,
        Source("CONFIG", "judge", digested=False),
        "Who judges: the configuration of a golden set, of which corpus, queries, judge, limits "
        "and prompts are used. Replies are kept in CONFIG.holes.",
    ] = None,
    judged: Annotated[
        QrelsLike | None,
        Source("FILE", "judged"),
        "Judgments made since, in any format that QRELS may have.",
    ] = None,
    leave_one_out: Annotated[
        int | None,
        Option(metavar="DEPTH", minimum=1),
        "QRELS were pooled from the first DEPTH documents of these runs: how each stands without "
        "the judgments that it alone brought in.",
    ] = None,
    provenance: Annotated[
        str | os.PathLike[str] | None,
        Source("FILE", "provenance"),
        "The same from a golden set's provenance.tsv: who brought which document in.",
    ] = None,
    scale: Annotated[
        int | None,
        Option(metavar="G", default_text="as QRELS.scale says, or the largest in QRELS"),
        "Highest grade that a document can have.",
    ] = None,
    seed: Seed = 0,
    offline: Offline = False,
    **options: Unpack[HolesOptions],
) -> Unjudged:
    """Show the worst cases over unjudged documents, and which of them to judge.

    Unjudged documents in the top k of a run may have any grade of the scale; all others stay not
    relevant. Of two runs or more it says whether any grades could change who is ahead. --depth N
    ends lists after rank N.

    $ rankproof holes qrels.txt a.trec b.trec
    $ rankproof holes qrels.txt a.trec b.trec --judge-next 50 --to next.tsv
    $ rankproof holes qrels.txt a.trec b.trec --judge-sample 15 --judged labels.txt

    >>> result = rp.holes("try/qrels.txt", {"a": "try/saturated.trec"}, ["nDCG@5"])
    >>> bound = result.runs[0].measures[rp.nDCG @ 5]
    >>> round(bound.lowest, 3), round(bound.highest, 3)
    (0.26, 0.975)
    """
    from rankproof.commands.inputs import EvaluationInputs, read_judgments, reading
    from rankproof.data import read_run
    from rankproof.foundation.model_hub import go_offline
    from rankproof.unjudged.requested_bounds import find_holes

    go_offline(offline)
    goal: Any = until_width if until is None else until
    _check_request(
        {"judge_next": judge_next, "judge_sample": judge_sample, "until": until}
        | {"until_width": until_width},
        judge,
        judged,
    )
    inputs = EvaluationInputs.of("holes", qrels, runs, measures, options)
    if goal is not None:
        _check_pair(inputs.runs)
    if goal is not None or any(x is not None for x in (judge_next, judge_sample, judged)):
        _check_one_grade(inputs.measures)
    since = None if judged is None else read_judgments(judged)
    with reading(inputs.runs):
        tables = [
            read_run(run, format=options.get("input_format"), name=name)
            for name, run in inputs.runs.items()
        ]
    return find_holes(
        tables,
        inputs.qrels,
        inputs.measures,
        inputs.policy,
        scale=scale,
        judge_next=judge_next,
        judge_sample=judge_sample,
        pool_depth=leave_one_out,
        provenance=None if provenance is None else Path(provenance),
        judged_since=since,
        settle=None if goal is None else partial(_settle, inputs.measures[0], goal, judge, seed),
        judge=None if judge is None else partial(_judge_sample, inputs.measures, judge),
        seed=seed,
    )


def _check_request(ways: Mapping[str, Any], judge: Any, judged: Any) -> None:
    """Refuse arguments that contradict each other or lack one another."""
    from rankproof.foundation.errors import InputError

    chosen = [name for name, value in ways.items() if value is not None]
    flags = [f"--{name.replace('_', '-')}" for name in chosen]
    if len(chosen) > 1:
        raise InputError(f"{flags[0]} and {flags[1]} are two ways", remedy="give one of them")
    if judge is not None and (not chosen or chosen == ["judge_next"]):
        raise InputError(
            "--judge without --until", remedy="say how far: --until certain or --judge-sample 15"
        )
    if judge is None and chosen and chosen[0].startswith("until"):
        raise InputError(
            f"{flags[0]} without a judge", remedy="give both: --until certain --judge golden.yaml"
        )
    if judge is not None and judged is not None and chosen == ["judge_sample"]:
        raise InputError("--judge and --judged for one sample", remedy="give one of them")


def _check_pair(runs: Mapping[str, Any]) -> None:
    from rankproof.foundation.errors import InputError
    from rankproof.foundation.phrasing import plural

    if len(runs) != 2:
        raise InputError(f"{plural(len(runs), 'run')} to settle", remedy="name two")


def _check_one_grade(measures: list[Measure]) -> None:
    """Refuse measures of aspects, for which one grade does not judge a document."""
    from rankproof.foundation.errors import MeasureError

    for measure in measures:
        if measure.needs_aspects:
            raise MeasureError(
                f"which documents to judge next for {measure} is not known",
                remedy="ask for a measure without aspects, P@10 say",
            )


def _settle(measure: Measure, goal: Any, judge: Any, seed: int, view: WorstCases) -> Settled:
    """Have unjudged documents judged in batches until the difference is known well enough."""
    from rankproof.unjudged.judging_order import Settling

    view.check([measure])
    work = Settling(view, measure, goal, seed)
    with _open_judge(judge, work.open_documents(), view, measure) as (grade, batch):
        return replace(work.run(grade, batch, None), batch=batch)


def _judge_sample(
    measures: list[Measure], judge: Any, view: WorstCases, to_judge: pl.DataFrame
) -> tuple[QrelsTable, pl.DataFrame]:
    """Labels for all unjudged documents of a sample, and the same as rows to write."""
    import polars as pl

    from rankproof.data import read_qrels

    graded = next((m for m in measures if m.definition.grades is not None), measures[0])
    with _open_judge(judge, to_judge.rows(), view, graded) as (grade, _):
        grades = pl.Series("grade", grade(to_judge.rows()), pl.Int64)
    judgments = to_judge.with_columns(grades).drop_nulls()
    name = "recorded" if isinstance(judge, RecordedJudge) else str(judge)
    return replace(read_qrels(judgments), name=name), judgments


@contextmanager
def _open_judge(
    judge: Any, pairs: QueryDocuments, view: WorstCases, measure: Measure
) -> Iterator[tuple[Grader, int]]:
    """A function that grades these pairs on the scale of the judgments, and its batch size."""
    if isinstance(judge, RecordedJudge):
        yield judge.ask, judge.batch
        return
    from rankproof.foundation.config import read_config
    from rankproof.foundation.progress import announce
    from rankproof.golden.passage_grading import pair_judge
    from rankproof.golden.pooling import read_inputs
    from rankproof.golden.settings import GoldenSettings
    from rankproof.unjudged.judging_order import map_judge_grades, translate_grades

    config = Path(judge)
    settings = read_config(config, GoldenSettings)
    corpus = read_inputs(settings).corpus
    scale = map_judge_grades(measure, view.qrels, view.top(measure))
    with pair_judge(settings, config.with_suffix(".holes"), corpus, pairs) as grader:
        announce(grader.expected)
        if any(judge_grade != grade for judge_grade, grade in scale.items()):
            counted = ", ".join(map(str, scale.values()))
            announce(f"the judge's grades 1 to 5 count as {counted}")
        yield translate_grades(grader.ask, scale), grader.at_once
