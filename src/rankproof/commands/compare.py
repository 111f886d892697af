"""`compare`: which run is better, and whether ties, chance or unjudged documents decide that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Unpack

from rankproof.commands.options import (
    DEFAULT_MEASURES,
    EvaluationOptions,
    Holes,
    Measures,
    Qrels,
    Runs,
    Seed,
)
from rankproof.commands.registry import Option, command

if TYPE_CHECKING:
    from rankproof.comparison.pairs import Comparison


@command(group="Compare")
def compare(
    qrels: Qrels,
    runs: Runs,
    measures: Measures = DEFAULT_MEASURES,
    *,
    seed: Seed = 0,
    t_test: Annotated[bool, "Add the p of Student's paired t-test."] = False,
    equal: Annotated[
        float | None,
        Option(metavar="DIFFERENCE"),
        "Call runs equal whose difference is shown to be smaller than this.",
    ] = None,
    holes: Holes = None,
    **options: Unpack[EvaluationOptions],
) -> Comparison:
    """Compare runs pairwise: a − b, its p-value, and what every order of ties would make of it.

    LOWEST and HIGHEST are the extremes of a − b over all orders of both runs' ties; the lead is
    certain when they agree in sign, and FLIP is the chance that a random order reverses it. P is
    from a paired randomization test, exact or with 100,000 sign flips, corrected by Holm over all
    pairs and measures; the interval is 95%, Student's t over queries. Without --holes, the range
    over unjudged documents is shown where it changes who is ahead.

    $ rankproof compare qrels.txt a.trec b.trec
    $ rankproof compare qrels.txt a.trec b.trec -m nDCG@5,RR --t-test

    >>> runs = {"a": "try/saturated.trec", "b": "try/plain.trec"}
    >>> comparison = rp.compare("try/qrels.txt", runs, ["nDCG@5"])
    >>> difference = comparison.pairs[0].measures[rp.nDCG @ 5]
    >>> round(difference.oblivious, 3), round(difference.expected, 3)
    (0.053, -0.11)
    """
    from rankproof.commands.inputs import EvaluationInputs
    from rankproof.comparison.differences import Tests
    from rankproof.comparison.pairs import check_two_runs, compare_evaluations
    from rankproof.foundation.progress import progress

    inputs = EvaluationInputs.of("compare", qrels, runs, measures, options)
    check_two_runs(inputs.runs)
    evaluations, view = inputs.evaluate(holes=holes)
    with progress("testing", 1.0):
        tests = Tests(seed=seed, t_test=t_test, equal_within=equal)
        return compare_evaluations(evaluations, tests, groups=inputs.groups, view=view)
