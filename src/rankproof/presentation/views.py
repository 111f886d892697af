"""The tables of evaluations and comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from rankproof.data.tables import ids_of
from rankproof.foundation.phrasing import out_of, plural
from rankproof.presentation.tables import Column, Table

if TYPE_CHECKING:
    from rankproof.comparison.pairs import Comparison, Difference
    from rankproof.evaluation import Evaluation


def evaluations(found: Sequence[Evaluation]) -> Table:
    """Rows of run × measure, with the policy below."""
    summaries = [(e, m, e[m]) for e in found for m in e]
    calm = all(s.range == 0 for _, _, s in summaries)
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        Column("expected"),
        *Column.each("min", "max", dim=calm, drop=4),
        Column("range", dim=calm, drop=2),
        Column("oblivious", dim=calm, drop=5),
        Column("bias", "signed", dim=calm, drop=3),
        Column("std", dim=calm, drop=1),
        Column("queries", drop=6),
    ]
    rows = [
        (e.name, str(m), s.expected, s.min, s.max, s.range, s.oblivious, s.bias, s.std, s.queries)
        for e, m, s in summaries
    ]
    return Table(columns, rows, notes=_notes(found, calm))


def _notes(found: Sequence[Evaluation], calm: bool) -> list[str]:
    notes = []
    for e in found:
        parts = [f"{out_of(e.tied, len(ids_of(e, 'queries')), 'query', 'has', 'have')} ties"]
        if e.missing:
            parts.append(
                f"{plural(e.missing, 'judged query is', 'judged queries are')} not in the run"
            )
        if e.unjudged:
            several = plural(e.unjudged, "query of the run has", "queries of the run have")
            parts.append(f"{several} no judgements")
        undefined = {m: e[m].undefined for m in e if e[m].undefined}
        if len(undefined) == len(e) and len(set(undefined.values())) == 1:
            left = plural(next(iter(undefined.values())), "is", "are")
            parts.append(f"{left} left out of every measure")
        elif undefined:
            parts.append("undefined: " + ", ".join(f"{m} for {n}" for m, n in undefined.items()))
        notes.append(f"{e.name}: {'; '.join(parts)}")
    if calm:
        notes.append("no tie changes any of these figures")
    if any(s.std is None for e in found for s in [e[m] for m in e]):
        notes.append("– under std: no closed form for this measure")
    dtypes = dict.fromkeys(e.dtype for e in found)
    notes += found[0].policy.words(" or ".join(dtypes))
    notes += dict.fromkeys(note for e in found for note in e.notes)
    return notes


def pairs(comparison: Comparison) -> Table:
    """A row for each pair and measure."""
    from rankproof.presentation.judged_column import CONDENSED, NOTE, at_most, some_unjudged
    from rankproof.statistics.intervals import FEW

    columns = [
        *Column.each("a", "b", style="text", folds=True),
        Column("measure", "text"),
        Column("expected", "signed"),
        Column("oblivious", "signed", drop=1),
        *Column.each("lowest", "highest", style="signed", drop=4),
        Column("p", "p", drop=3),
        Column("p (Holm)", "p"),
        *Column.each("ci low", "ci high", style="signed"),
        Column("flip", "p", drop=2),
        Column("ties", "text"),
    ]
    with_t = "p_t" in comparison.pairs.figures
    if with_t:
        columns.insert(9, Column("p (t)", "p", drop=5))
    known = [d for pair in comparison.pairs for d in pair.measures.values()]
    open_ = some_unjudged(share for d in known for share in d.judged or ())
    bounded = any(d.holes is not None for d in known)
    if bounded:
        columns += [*Column.each("holes low", "holes high", style="signed", drop=6)]  # or none
    if open_:
        columns.append(Column("judged", "text"))
    rows = []
    for pair in comparison.pairs:
        for m, d in pair.measures.items():
            low, high = d.ci or (None, None)
            student = [d.p_t] if with_t else []
            ends = list(d.holes or (None, None)) if bounded else []
            shares = ["/".join(f"{x:.2f}" for x in d.judged or ())] if open_ else []
            rows.append(
                (
                    *(pair.a, pair.b, str(m), d.expected, d.oblivious, d.lowest, d.highest),
                    *(d.p, d.p_holm, *student, low, high, d.flip, _ties(d), *ends, *shares),
                )
            )
    notes = [
        "each figure is a − b; p: paired randomisation test, which takes differences to be "
        "symmetric about 0; ci: 95%, Student's t over queries"
    ]
    notes += comparison.notes
    if comparison.exact:
        notes.append("p counts every assignment of signs: it is exact")
    few = comparison.pairs.figures["differing"] < FEW
    if few.any():
        notes.append(f"– under ci: fewer than {FEW} queries differ, too few for an interval")
    if (np.isnan(comparison.pairs.figures["low"]) & ~few).any():
        notes.append("– under ci: all queries differ alike, in a measure that has no end")
    if bounded:
        loose = (comparison.pairs.figures["holes_exact"] == 0).any(axis=0)
        reached = at_most(
            str(m) for m, some in zip(comparison.pairs.measures, loose, strict=True) if some
        )
        notes.append(
            "holes: the ends over every grade that unjudged documents in the top k of both could "
            f"have, {comparison.grades}{reached}; all other unjudged documents stay not relevant"
        )
    condensed = comparison.evaluations[0].policy.condensed
    if condensed:
        notes.append(CONDENSED)
    if open_:
        more = "" if bounded or condensed else " (--holes: what that leaves)"
        notes.append(f"{NOTE}; of a and of b{more}")
    return Table(columns, rows, notes=notes)


def _ties(difference: Difference) -> str:
    if difference.reversed:
        return "reversed"
    if difference.certain:
        return "certain"
    if difference.rests_on_ties:
        return "rests on order"
    return "level at worst" if difference.level_at_worst else "sure enough"


def frame(found: pl.DataFrame, notes: Sequence[str] = ()) -> Table:
    """A frame as it is: text to the left, numbers to the right."""
    columns = [
        Column(name, "text" if kind in (pl.String, pl.Boolean) else "", folds=kind == pl.String)
        for name, kind in found.schema.items()
    ]
    return Table(columns, found.rows(), notes=notes)
