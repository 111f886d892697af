"""The order in which a collection lists its relevant documents: a bias of its own.

Many reranking sets list the relevant documents first. A sort that keeps the order of ties then
gives every tie to them, and the figure is the best that the ties allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from rankproof.audit.results import Reading
from rankproof.data.tables import Qrels, Run

SHARE = 0.95  # of lists; what a good retriever ranks first stays below it
LISTS = 5  # fewer say nothing of a habit


@dataclass(frozen=True, slots=True)
class Listing:
    """Where the relevant documents stand in the lists given, whatever their scores."""

    where: Literal["first", "last"]
    share: float  # of the lists that hold both relevant and other documents
    lists: int

    def to_dict(self) -> dict[str, Any]:
        return {"relevant": self.where, "share": self.share, "lists": self.lists}


def habit(run: Run, judged: Qrels) -> Listing | None:
    """Whether nearly all lists, as they were given, begin or end with their relevant documents."""
    frame = run.to_frame().select("query", "doc").with_row_index("at")
    relevant = judged.to_frame().filter(pl.col("grade") > 0).select("query", "doc", relevant=True)
    frame = frame.join(relevant, on=["query", "doc"], how="left", maintain_order="left")
    own, other = (
        pl.col("at").filter(pl.col("relevant")),
        pl.col("at").filter(pl.col("relevant").is_null()),
    )
    found = (
        frame.group_by("query")
        .agg(first=own.max() < other.min(), last=own.min() > other.max())
        .drop_nulls()
    )
    if found.height < LISTS:
        return None
    shares = {where: float(np.mean(found[where].to_numpy())) for where in ("first", "last")}
    where: Literal["first", "last"] = "first" if shares["first"] >= shares["last"] else "last"
    return Listing(where, shares[where], found.height) if shares[where] >= SHARE else None


def sentence(found: Listing, readings: Sequence[Reading]) -> str:
    """The bias by its name, and where it is largest; readings whose ties break as given."""
    biases = ((r.evaluation[m].bias, r.label, m) for r in readings for m in r.evaluation)
    bias, setting, measure = max(biases, key=lambda one: abs(one[0]))
    lists = f"{found.share:.0%} of {found.lists} lists name their relevant documents {found.where}"
    if abs(bias) < 0.00005:
        return f"{lists}; no figure rests on it"
    verb, to = ("adds", "to") if bias > 0 else ("takes", "from")
    return (
        f"{lists}: breaking ties in that order {verb} {abs(bias):.4f} {to} {measure} in {setting}; "
        "shuffle the lists, or report what is expected"
    )
