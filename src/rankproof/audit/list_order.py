"""The order in which a collection lists its relevant documents, which can be a bias of its own.

Many reranking sets list the relevant documents first. A sort that keeps the order of ties then
resolves every tie in their favor, and the score is the best that the ties allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.audit.readings import Reading
from rankproof.data.tables import Qrels, Run

SHARE = 0.95  # of the lists from which on it is a pattern; good retrievers stay below
LISTS = 5  # with fewer lists no pattern is reported


@dataclass(frozen=True, slots=True)
class ListOrder:
    """Where nearly all lists have their relevant documents, whatever the scores."""

    position: Literal["first", "last"]
    share: float  # of the lists that hold both relevant and other documents
    lists: int

    def to_dict(self) -> dict[str, Any]:
        """Return the pattern as JSON shows it."""
        return {"relevant": self.position, "share": self.share, "lists": self.lists}


def find_list_order(run: Run, judged: Qrels) -> ListOrder | None:
    """Return the pattern if nearly all lists begin or end with their relevant documents."""
    rows = run.to_frame().select("query", "doc").with_row_index("place")
    relevant = judged.to_frame().filter(pl.col("grade") > 0).select("query", "doc", relevant=True)
    rows = rows.join(relevant, on=["query", "doc"], how="left", maintain_order="left")
    relevant_place = pl.col("place").filter(pl.col("relevant"))
    other_place = pl.col("place").filter(pl.col("relevant").is_null())
    lists = (
        rows.group_by("query")
        .agg(
            first=relevant_place.max() < other_place.min(),
            last=relevant_place.min() > other_place.max(),
        )
        .drop_nulls()
    )
    if lists.height < LISTS:
        return None
    first, last = (float(np.mean(lists[name].to_numpy())) for name in ("first", "last"))
    order = ListOrder("first" if first >= last else "last", max(first, last), lists.height)
    return order if order.share >= SHARE else None


def describe_bias(order: ListOrder, readings: Sequence[Reading]) -> str:
    """Return a sentence on the largest bias that breaking ties in the order of the lists causes.

    The readings must break ties so.
    """
    biases = [(r.evaluation[m].bias, r, m) for r in readings for m in r.evaluation]
    bias, reading, measure = max(biases, key=lambda row: abs(row[0]))
    count = f"{order.share:.0%} of {order.lists} lists"
    pattern = f"{count} name their relevant documents {order.position}"
    if abs(bias) < 0.00005:
        return f"{pattern}; no figure rests on it"
    verb, preposition = ("adds", "to") if bias > 0 else ("takes", "from")
    return (
        f"{pattern}: breaking ties in that order {verb} {abs(bias):.4f} {preposition} {measure} in "
        f"{reading.pipeline.name}; shuffle the lists, or report what is expected"
    )
