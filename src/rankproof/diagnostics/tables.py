"""The tables of both diagnoses: a row for each ablation, or for each level of noise."""

from __future__ import annotations

import math

from rankproof.diagnostics.mentions import Mentions
from rankproof.diagnostics.names import MEASURES, MIN_BASE_MARGIN, NameRow, NamesDiagnosis
from rankproof.diagnostics.noise import EndToEnd, NoiseDiagnosis
from rankproof.foundation.phrasing import out_of, plural
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.statistics.intervals import MIN_QUERIES

INTERVAL = f"the interval is a 95% bootstrap over queries, of {MIN_QUERIES} or more"


def name_tables(diagnosis: NamesDiagnosis) -> list[Table]:
    """Return a table of the ablations, and a second one if a corpus was searched."""
    tables = [_ablation_table(diagnosis)]
    mentions = diagnosis.mentions
    if mentions is not None and mentions.rows:
        tables.append(_mentions_table(mentions))
    return tables


def _ablation_table(diagnosis: NamesDiagnosis) -> Table:
    """Return the margins of each ablation, and their effect on searching the bundles."""
    measure = MEASURES[0]
    columns = [
        Column("ablation", "text"),
        Column("family", "text", dim=True, folds=True, drop=2),
        Column("Δname"),
        Column("±", dim=True, drop=1),
        *Column.each("Δtopic", "Δboth", drop=5),
        Column("ΔΔ%", "signed", digits=1),
        Column("± %", dim=True, drop=1, digits=1),
        *Column.each("ci low", "ci high", style="signed", dim=True, drop=4, digits=1),
        Column("left out", dim=True, drop=1),
        Column("confused %", drop=6, digits=1),
        Column(measure, drop=7),
        *Column.each("overlap", "τ", drop=3),
    ]
    rows = [
        (
            row.ablation,
            row.family or "",
            *(row.margin["name"].mean, row.margin["name"].sd),
            *(row.margin["topic"].mean, row.margin["both"].mean),
            *_percent_cells(row),
            row.excluded["name"],
            row.confused.mean * 100.0,
            row.retrieval[measure].mean,
            *(row.overlap.mean, row.tau.mean),
        )
        for row in diagnosis.rows
    ]
    ratio = diagnosis.ratio
    ends = "" if math.isnan(ratio.ci[0]) else f" [{ratio.ci[0]:.3f}, {ratio.ci[1]:.3f}]"
    notes = [
        f"{diagnosis.embedder}, {diagnosis.language}: {plural(diagnosis.queries, 'query')} × "
        f"{plural(diagnosis.runs, 'run')}; name/topic ratio {ratio.mean:.3f}{ends}",
        f"left out of ΔΔ%: rows whose base Δname is below {MIN_BASE_MARGIN}; {INTERVAL}",
        f"{measure}, overlap and τ: the questions searched among the passages of all bundles",
    ]
    return Table(columns, rows, notes=notes)


def _percent_cells(row: NameRow) -> tuple[Cell, ...]:
    """Return ΔΔ% with deviation and interval; nothing for the base, which has no change."""
    if row.family is None:
        return (None,) * 4
    percent = row.percent["name"]
    return (percent.mean, percent.sd, *percent.ci)


def _mentions_table(mentions: Mentions) -> Table:
    """Return what each ablation changes in searching the user's corpus."""
    columns = [
        Column("ablation", "text"),
        Column(mentions.measure),
        Column("change", "signed"),
        *Column.each("ci low", "ci high", style="signed", dim=True, drop=3),
        *Column.each("overlap", "τ", drop=2),
        *Column.each("queries changed", "passages changed", dim=True, drop=1),
    ]
    rows = [
        (
            row.ablation,
            row.measure.mean,
            *(row.change.mean, *row.change.ci),
            *(row.overlap.mean, row.tau.mean),
            *(row.queries_changed, row.passages_changed),
        )
        for row in mentions.rows
    ]
    queries_name = out_of(mentions.queries, mentions.of, "query", "names", "name")
    return Table(columns, rows, notes=[f"{mentions.corpus}: {queries_name} an author"])


def noise_tables(diagnosis: NoiseDiagnosis) -> list[Table]:
    """Return a table with a row for each level, as typed and as rewritten."""
    columns = [
        Column("level"),
        Column("query", "text"),
        Column("to clean"),
        Column("±", dim=True, drop=1),
        Column("drop %", "signed", digits=1),
        *Column.each("ci low", "ci high", style="signed", dim=True, drop=3, digits=1),
        Column("to passage", drop=4),
        Column("drop % ", "signed", drop=4, digits=1),
        Column("recovered %", drop=5, digits=1),
        *(
            [
                Column(diagnosis.measure, drop=6),
                Column("change", "signed", drop=6),
                *Column.each("overlap", "τ", drop=2),
            ]
            if diagnosis.measure is not None
            else []
        ),
    ]
    rows = [
        (
            *(row.level, row.rewriter or "as typed"),
            *(row.cosine["clean"].mean, row.cosine["clean"].sd),
            *(row.percent["clean"].mean, *row.percent["clean"].ci),
            *(row.cosine["passage"].mean, row.percent["passage"].mean),
            row.recovered["clean"] * 100.0,
            *_retrieval_cells(row.retrieval),
        )
        for row in diagnosis.rows
    ]
    notes = [
        f"{diagnosis.embedder}, {diagnosis.language}, {diagnosis.source}: "
        f"{plural(diagnosis.queries, 'query')} × {plural(diagnosis.runs, 'run')}; {INTERVAL}",
        "to clean, to passage: cosines; recovered: share of the drop to the clean query",
    ]
    return [Table(columns, rows, notes=notes)]


def _retrieval_cells(retrieval: EndToEnd | None) -> tuple[Cell, ...]:
    """Return the means of a search; nothing without a corpus."""
    if retrieval is None:
        return ()
    estimates = (retrieval.measure, retrieval.change, retrieval.overlap, retrieval.tau)
    return tuple(estimate.mean for estimate in estimates)
