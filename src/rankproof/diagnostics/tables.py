"""The tables of both diagnoses: a row for each ablation, or for each level of noise."""

from __future__ import annotations

import math

from rankproof.diagnostics.figures import Figure
from rankproof.diagnostics.names import LEAST, MEASURES, NamesDiagnosis
from rankproof.diagnostics.noise import NoiseDiagnosis
from rankproof.foundation.phrasing import out_of, plural
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.statistics.intervals import MIN_QUERIES

INTERVAL = f"the interval is a 95% bootstrap over queries, of {MIN_QUERIES} or more"


def name_tables(diagnosis: NamesDiagnosis) -> list[Table]:
    """A row for each ablation; the corpus below it where one was searched."""
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
            *_percent(row.percent["name"], row.family is None),
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
        f"left out of ΔΔ%: rows whose base Δname is below {LEAST}; {INTERVAL}",
        f"{measure}, overlap and τ: the questions searched among the passages of all bundles",
    ]
    tables = [Table(columns, rows, notes=notes)]
    mentions = diagnosis.mentions
    if mentions is not None and mentions.rows:
        searched = [
            (
                row.ablation,
                row.measure.mean,
                *(row.change.mean, *row.change.ci),
                *(row.overlap.mean, row.tau.mean),
                *(row.queries_changed, row.passages_changed),
            )
            for row in mentions.rows
        ]
        head = [
            Column("ablation", "text"),
            Column(mentions.measure),
            Column("change", "signed"),
            *Column.each("ci low", "ci high", style="signed", dim=True, drop=3),
            *Column.each("overlap", "τ", drop=2),
            *Column.each("queries changed", "passages changed", dim=True, drop=1),
        ]
        name = out_of(mentions.queries, mentions.of, "query", "names", "name")
        said = f"{mentions.corpus}: {name} an author"
        tables.append(Table(head, searched, notes=[said]))
    return tables


def noise_tables(diagnosis: NoiseDiagnosis) -> list[Table]:
    """A row for each level, as typed and as rewritten."""
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
    rows: list[tuple[Cell, ...]] = []
    for row in diagnosis.rows:
        ends: tuple[Cell, ...] = ()
        if row.retrieval is not None:
            found = row.retrieval
            ends = tuple(f.mean for f in (found.measure, found.change, found.overlap, found.tau))
        rows.append(
            (
                *(row.level, row.rewriter or "as typed"),
                *(row.cosine["clean"].mean, row.cosine["clean"].sd),
                *(row.percent["clean"].mean, *row.percent["clean"].ci),
                *(row.cosine["passage"].mean, row.percent["passage"].mean),
                row.recovered["clean"] * 100.0,
                *ends,
            )
        )
    notes = [
        f"{diagnosis.embedder}, {diagnosis.language}, {diagnosis.source}: "
        f"{plural(diagnosis.queries, 'query')} × {plural(diagnosis.runs, 'run')}; {INTERVAL}",
        "to clean, to passage: cosines; recovered: share of the drop to the clean query",
    ]
    return [Table(columns, rows, notes=notes)]


def _percent(figure: Figure, base: bool) -> tuple[Cell, ...]:
    """The base has no change."""
    return (None,) * 4 if base else (figure.mean, figure.sd, *figure.ci)
