"""`compare`: which run is better, and whether ties, chance or unjudged documents decide that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Unpack

from rankproof.commands.options import (
    DEFAULT_MEASURES,
    ComparisonOptions,
    Holes,
    JudgedQrels,
    Measures,
    Runs,
    Seed,
)
from rankproof.commands.registry import Option, command

if TYPE_CHECKING:
    from rankproof.comparison.pairs import Comparison


@command(group="Compare")
def compare(
    qrels: JudgedQrels,
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
    **options: Unpack[ComparisonOptions],
) -> Comparison:
    """Say which run is better, and whether chance, ties or unjudged documents decide that.

    Every pair of runs has one verdict on each measure: ahead, behind, equal or undecided. Its 95%
    interval is over queries, and holds for all pairs and measures of the call together. p is from a
    paired randomization test. --wide and CSV have every value.

    $ rankproof compare qrels.txt a.trec b.trec
    $ rankproof compare qrels.txt a.trec b.trec -m nDCG@5,RR --equal 0.01
    $ rankproof compare qrels.txt a.trec b.trec c.trec --groups groups.tsv --format csv

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
