"""What unjudged documents could change: worst cases of runs and differences; what to judge next.

An unjudged document in the top k of a run may have any grade of the scale; the bounds of a measure
are its lowest and highest value over all these grades and all orders of ties. How grades move a
measure is declared where the measure is defined; nothing here asks a judge or decides who is ahead.

bounds.py              `WorstCases`: bounds of means and of mean differences; the result of `holes`
rules.py, graded.py, gains.py, walks.py    bounds of each kind of measure, for one run
differences.py         bounds of the difference of two runs
unjudged_documents.py, shared_documents.py    the unjudged documents of one run, and of several
judging_order.py       which document to judge next, and judging until a difference is certain
sampling.py            estimates from a sample of queries that are judged completely
leave_one_out.py       runs without the judgments that they alone contributed
judged_share.py, requested_bounds.py, tables.py    bounds beside scores; requests; tables
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rankproof.unjudged.bounds import Bound, PairHoles, RunHoles, Unjudged, holes_of

__all__ = ["Bound", "PairHoles", "RunHoles", "Unjudged", "holes_of"]


def __getattr__(name: str) -> Any:
    """Load the module when it is used: most evaluations need no bounds."""
    if name not in __all__:
        raise AttributeError(f"module 'rankproof.unjudged' has no attribute {name!r}")
    from rankproof.unjudged import bounds

    return getattr(bounds, name)
