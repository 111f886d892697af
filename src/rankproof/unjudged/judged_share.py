"""What was judged, beside each figure of an evaluation, and its bounds where they are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from rankproof.data import RunLike, read_run
from rankproof.data.sources import Format, is_folder, is_pipe
from rankproof.data.tables import Qrels, Run, ids_of
from rankproof.evaluation import EvaluatedRun, Evaluation, Policy, evaluate_tables
from rankproof.foundation.errors import InputError
from rankproof.measures import Judged, Measure

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import WorstCases


_WHOLE = 10**17  # a rank past every list


def judged_beside(measure: Measure, depth: int | None = None) -> Measure:
    """The Judged@k that belongs beside a measure."""
    return Judged @ (measure.cutoff or depth or _WHOLE)


def with_judged(measures: Sequence[Measure]) -> list[Measure]:
    """The measures, and Judged@k for each of their cutoffs."""
    return list(dict.fromkeys([*measures, *map(judged_beside, measures)]))


def set_beside(evaluation: Evaluation, measures: Sequence[Measure]) -> Evaluation:
    """The evaluation of what was asked for, with what is judged beside each figure."""
    return replace(
        evaluation,
        queries=ids_of(evaluation, "queries"),  # as they are: a replacement looks at each field
        outcomes={m: evaluation.outcomes[m] for m in measures},
        judged={m: evaluation.answered_share(judged_beside(m)) for m in measures},
    )


MANY = 12  # runs, of more than which bounds are made on request alone


def check_again(sources: Iterable[object]) -> None:
    """Refuse runs that cannot be read whole a second time, as bounds ask for."""
    for path in (os.fspath(x) for x in sources if isinstance(x, str | os.PathLike)):
        folder = is_folder(path)
        if folder or is_pipe(path):
            why = "a folder is read in parts" if folder else "this can be read only once"
            raise InputError(
                f"what unjudged documents could change (holes) takes a second look, and {why}",
                place=path,
                remedy="name a file",
            )


def evaluate_named(
    runs: Mapping[str, RunLike],
    qrels: Qrels,
    measures: Sequence[Measure],
    policy: Policy,
    *,
    holes: bool | None = False,
    memory: int | str | None = None,
    spill_dir: str | os.PathLike[str] | None = None,
    format: Format | None = None,  # noqa: A002
    reading: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> tuple[list[Evaluation], WorstCases | None]:
    """Several runs on the same judgements, each under its name, with what is judged of it.

    One after the other, so that only one need be held, and one too large in parts. With `holes`
    also all of them for bounds, which those read in parts are read again for; left open (None),
    where none is, they are few, and what nobody judged may change a verdict.
    """
    from rankproof.evaluation.streaming import evaluate_file

    wanted = with_judged(measures)
    unasked = holes is None and memory is None and len(runs) <= MANY
    kept: list[EvaluatedRun] | None = [] if holes or unasked else None
    found = []
    with reading():
        for name, run in runs.items():
            if isinstance(run, str | os.PathLike):
                one = evaluate_file(
                    *(run, qrels, wanted, policy),
                    memory=memory,
                    spill_dir=spill_dir,
                    name=name,
                    format=format,
                    kept=kept,
                )
            else:
                one = evaluate_tables(read_run(run, name=name), qrels, wanted, policy, kept)
            one = set_beside(one, measures)
            found.append(one if one.name == name else one.renamed(name))
    if not holes and not _may_matter(found, kept):
        return found, None
    from rankproof.unjudged.bounds import WorstCases

    if kept is not None and len(kept) == len(runs):
        return found, WorstCases.of(kept, qrels, policy)
    check_again(runs.values())
    with reading():
        read = [read_run(r, format=format, name=n) for n, r in runs.items()]
    return found, WorstCases(read, qrels, policy)


def _may_matter(evaluations: Sequence[Evaluation], kept: Sequence[EvaluatedRun] | None) -> bool:
    """Whether it is worth looking if unjudged documents could change a verdict.

    Nobody asked for it: runs that were read in parts are left alone.
    """
    if not kept or len(kept) < len(evaluations):
        return False
    from rankproof.unjudged.rules import rule_of

    measures = list(evaluations[0].outcomes)
    plain = all(isinstance(m.parameters.get("gain", ""), str) for m in measures)
    if not plain or evaluations[0].policy.condensed or any(rule_of(m) is None for m in measures):
        return False
    # A query that does not count, for want of a relevant document, counts in some completion.
    shares = (each.outcomes[judged_beside(m)].expected for each in kept for m in measures)
    return any((share < 1).any() for share in shares)


def bound_evaluation(
    evaluation: Evaluation, run: Run, qrels: Qrels, measures: Sequence[Measure]
) -> Evaluation:
    """The evaluation with the lowest and highest score over all grades of unjudged documents."""
    from rankproof.unjudged.bounds import WorstCases

    view = WorstCases([run], qrels, evaluation.policy, depth=evaluation.policy.depth)
    bounds = {measure: view.run_bound(0, measure) for measure in measures}
    return replace(evaluation, bounds=bounds, grades=view.grades(measures))
