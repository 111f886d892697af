"""Sections on sweeps: the choice, the map behind it, ceilings, answers, behavior under load."""

from __future__ import annotations

import math
from typing import Any

import polars as pl

from rankproof.foundation.phrasing import as_sentence, plural
from rankproof.presentation.charts import (
    Point,
    Range,
    RangeChart,
    ScatterChart,
    StackedBar,
    StackedChart,
)
from rankproof.presentation.html import figure
from rankproof.presentation.judged_column import any_unjudged
from rankproof.presentation.markup import Html
from rankproof.report.decision import (
    SEED,
    ShownSweep,
    decision_section,
    interval_text,
    read_sweep,
)
from rankproof.report.finalists import finalist_sections
from rankproof.report.history import history_sections
from rankproof.report.page_elements import Section, data_table, fold, paragraph
from rankproof.report.result_files import StoredResult, titled
from rankproof.tradeoffs.answers import ACCURACY
from rankproof.tradeoffs.ceilings import ceilings
from rankproof.tradeoffs.selection import Limits

_BARS = 12  # configurations whose ceilings and answers are drawn
_LEAST_MS = 0.01  # on a logarithmic axis; the time of a past run may be unknown, and 0


def sweep_sections(
    result: StoredResult,
    position: int,
    earlier: StoredResult | None = None,
    row: str | None = None,
    limits: Limits | None = None,
    *,
    limit: int,
) -> list[Section]:
    """Return all sections on a sweep, the choice within the limits first.

    `row` names a configuration to look at in place of the choice; at most `limit` configurations
    are shown.
    """
    folder, manifest = result.path.parent, result.manifest
    frame = pl.read_parquet(folder / "configurations.parquet")
    measure = manifest["best_by"]
    if not (frame[measure].is_not_null() & frame[measure].is_not_nan()).any():
        words = [f"{measure} is defined on no query: there is nothing to choose by."]
        return [Section(f"sweep-{position}", titled("Configurations", result), words)]
    sweep = read_sweep(result, row, limits, limit)
    title = titled("The choice" if row is None else "One configuration", result)
    sections = [
        decision_section(sweep, position, title),
        _map_section(sweep, frame, position, limit),
        *finalist_sections(sweep, position, titled("Where the finalists differ", result)),
    ]
    if earlier is not None:
        title = titled("Since the last sweep", result)
        sections += history_sections(sweep, earlier, position, title)
    if "answers" in manifest and ACCURACY in frame.columns:
        sections.append(_answers_section(sweep, frame, position, limit))
    names = [n.removesuffix(" PROC") for n in frame.columns if n.endswith(" PROC")]
    if measure in names:
        bounded = frame.filter(pl.col(f"{measure} PROC").is_not_null())
        if bounded.height:
            sections.append(_ceilings_section(bounded, names, sweep, position, limit))
    if "load" in manifest and (folder / "load.parquet").is_file():
        sections.append(_load_section(pl.read_parquet(folder / "load.parquet"), result, position))
    return sections


def _load_section(load: pl.DataFrame, result: StoredResult, position: int) -> Section:
    """Return the latencies of each engine at each rate of queries."""
    headings = ["engine", "queries a second", "p50 ms", "p95 ms", "p99 ms", "errors", "unanswered"]
    columns = ["engine", "qps", "p50_ms", "p95_ms", "p99_ms", "errors", "lost"]
    body = [data_table(headings, load.select(columns).rows(), digits=1)]
    words = list(result.manifest["load"]["words"])
    return Section(f"load-{position}", titled("Under load", result), words, body)


# ------------------------------------------------------------------------------------- the map


def group_alike(sweep: ShownSweep) -> list[list[int]]:
    """Return groups of rows of the table that differ in nothing beyond chance and jitter.

    Members are not significantly different from the first in quality, within the jitter of its
    latency, and of its cost. The first stands for its group; the choice's group comes first.
    """
    rows = list(sweep.table.iter_rows(named=True))
    first = next(at for at, row in enumerate(rows) if row["configuration"] == sweep.name)
    remaining = [first, *(at for at in range(len(rows)) if at != first)]
    groups = []
    while remaining:
        leader = rows[remaining[0]]
        level = sweep.similar_to(leader["configuration"])
        group = [
            at
            for at in remaining
            if at == remaining[0]
            or (rows[at]["configuration"] in level and _same_price_and_time(rows[at], leader))
        ]
        groups.append(group)
        members = set(group)
        remaining = [at for at in remaining if at not in members]
    return groups


def _same_price_and_time(row: dict[str, Any], other: dict[str, Any]) -> bool:
    difference = abs(row["latency"] - other["latency"])
    same_time: bool = difference <= max(row["jitter"], other["jitter"])
    return same_time and math.isclose(row["cost"], other["cost"], abs_tol=1e-9)


def _map_section(sweep: ShownSweep, frame: pl.DataFrame, position: int, limit: int) -> Section:
    """Return the map of latency and quality, a table of its groups, and every configuration."""
    groups = group_alike(sweep)
    manifest = sweep.result.manifest
    shares = [share for share in sweep.table["judged"].to_list() if share is not None]
    has_unjudged = any_unjudged(shares)
    prices = manifest["prices"]
    notes = [
        f"Intervals are 95% over queries. Prices of {prices['date']}: {prices['source']}. Tokens "
        f"per passage {prices['tokens_are']}.",
        *map(as_sentence, manifest.get("notes", ())),
    ]
    body = [
        figure(map_chart(sweep, frame, groups)),
        _group_table(sweep, groups, has_unjudged),
        _configuration_table(sweep, frame, has_unjudged, limit),
        *(paragraph(note, "note") for note in notes),
    ]
    words = _map_words(sweep, len(groups), shares if has_unjudged else [])
    title = titled("Configurations", sweep.result)
    return Section(f"sweep-{position}", title, words, body, quiet=True)


def _map_words(sweep: ShownSweep, groups: int, judged_shares: list[float]) -> list[str]:
    """Say how many configurations differ, how many are hidden, and what share is judged."""
    count, front = len(sweep.table), int(sweep.table["pareto"].sum())
    words = [
        f"{plural(count, 'configuration')}, {groups:,} that differ significantly in "
        f"quality, latency or cost; {plural(front, 'is', 'are')} on the front: no "
        "other is as good, as fast, as small and as cheap."
    ]
    hidden = sweep.result.manifest["configurations"] - count
    if hidden > 0:
        words.append(
            f"{plural(hidden, 'more is', 'more are')} not shown: dominated, or without "
            f"{sweep.measure}."
        )
    if judged_shares:
        words.append(
            f"{min(judged_shares):.0%}–{max(judged_shares):.0%} of the passages behind these "
            "scores are judged; the others count as not relevant."
        )
    return words


def map_chart(sweep: ShownSweep, frame: pl.DataFrame, groups: list[list[int]]) -> ScatterChart:
    """Return every configuration by latency and quality; the first of a group stands for it."""
    rows = list(sweep.table.iter_rows(named=True))
    modes = dict(frame.select("configuration", "mode").iter_rows())
    mode_names = list(dict.fromkeys(modes[row["configuration"]] for row in rows))
    points = []
    for group in groups:
        for at in group:
            row, is_first = rows[at], at == group[0]
            points.append(
                Point(
                    sweep.names[row["configuration"]].short,
                    x=max(row["latency"], _LEAST_MS),
                    y=row["quality"],
                    size=row["cost"],
                    tip=_point_tip(sweep, row, len(group) - 1 if is_first else 0),
                    group=mode_names.index(modes[row["configuration"]]),
                    low=row["low"] if is_first else None,
                    high=row["high"] if is_first else None,
                    row=at,
                    on_front=row["pareto"],
                    chosen=row["configuration"] == sweep.name,
                    represented=not is_first,
                )
            )
    return ScatterChart(
        "Configurations by latency and quality",
        points,
        x_label="p95 latency of a query, ms",
        y_label=sweep.measure,
        groups=mode_names,
        caption=_MAP_CAPTION,
    )


_MAP_CAPTION = (
    "Each point is a configuration; larger ones cost more. Upright lines are 95% intervals over "
    "queries; small points are not significantly different from a large one, which stands for "
    "them. Ringed: the Pareto front over cost, latency, memory and quality; joined: those of it "
    "that nothing faster equals. Times are of single queries on the machine named below."
)


def _point_tip(sweep: ShownSweep, row: dict[str, Any], represented: int) -> str:
    """Describe a point of the map that stands for `represented` others."""
    cost = sweep.money(row["cost"])
    tip = (
        f"{sweep.names[row['configuration']].full}: {sweep.measure} {row['quality']:.4f} "
        f"({interval_text(row)}), p50 {row['p50']:.1f} ms, p95 {row['p95']:.1f} ms, "
        f"{sweep.free if cost == '–' else f'{cost} per 1,000 queries'}"
    )
    others = f"; {represented} others are not significantly different from it"
    return tip + others if represented else tip


def _group_table(sweep: ShownSweep, groups: list[list[int]], has_unjudged: bool) -> Html:
    """Return a row for each group of configurations that are alike."""
    rows = list(sweep.table.iter_rows(named=True))
    headings = ["configuration", "alike", sweep.measure, "95%"]
    headings += [*(["judged"] if has_unjudged else []), "p95 ms", "cost per 1,000", "index MB"]
    cells = []
    for group in groups:
        row = rows[group[0]]
        cells.append(
            [
                sweep.names[row["configuration"]].short,
                len(group) - 1,
                row["quality"],
                interval_text(row).replace(" ", "\u00a0"),
                *([row["judged"]] if has_unjudged else []),
                row["latency"],
                row["cost"],
                row["memory"],
                "yes" if any(rows[at]["pareto"] for at in group) else "no",
            ]
        )
    first = "the named configuration" if sweep.is_named else "the choice"
    caption = f"One of each group, {first} first"
    return data_table([*headings, "front"], cells, caption=caption, digits=3)


def _configuration_table(
    sweep: ShownSweep, frame: pl.DataFrame, has_unjudged: bool, limit: int
) -> Html:
    """Return the best configurations with all their values, folded."""
    measure = sweep.measure
    known = frame.filter(pl.col(measure).is_not_null() & pl.col(measure).is_not_nan())
    known = known.sort(measure, descending=True, maintain_order=True)
    columns = {
        "configuration": "configuration",
        measure: measure,
        f"{measure} low": "low",
        f"{measure} high": "high",
        **({f"{measure} judged": "judged"} if has_unjudged else {}),
        f"{measure} %PROC": "%PROC",
        "latency_p50_ms": "p50 ms",
        "latency_p95_ms": "p95 ms",
        "cost_per_1000": "cost per 1,000",
        "index_bytes": "index MB",
        "overlap@10": "overlap@10",
        "tau@10": "τ@10",
    }
    rows = [
        [row.get(column) for column in columns]
        for row in known.head(limit).with_columns(pl.col("index_bytes") / 1e6).iter_rows(named=True)
    ]
    title = f"Every configuration: {plural(len(rows), 'row')}"
    if known.height > limit:
        title = f"The best {limit:,} of {known.height:,} configurations"
    return fold(title, [data_table(list(columns.values()), rows, digits=3)])


# --------------------------------------------------------------------------------- the answers


def _answers_section(sweep: ShownSweep, frame: pl.DataFrame, position: int, limit: int) -> Section:
    """Return how right the generator's answers were with each configuration's prompt."""
    known = frame.drop_nulls(ACCURACY).sort(ACCURACY, descending=True, maintain_order=True)
    bars = [
        Range(
            sweep.names[row["configuration"]].short,
            row[ACCURACY],
            row[ACCURACY] if row[f"{ACCURACY} low"] is None else row[f"{ACCURACY} low"],
            row[ACCURACY] if row[f"{ACCURACY} high"] is None else row[f"{ACCURACY} high"],
            tip=f"{sweep.names[row['configuration']].full}: {row[ACCURACY]:.3f}, abstained on "
            f"{row['abstained']:.0%}",
        )
        for row in known.head(_BARS).iter_rows(named=True)
    ]
    headings = {
        ACCURACY: ACCURACY,
        f"{ACCURACY} low": "low",
        f"{ACCURACY} high": "high",
        "accuracy given hit": "given hit",
        "abstained": "abstained",
        "answers_tied": "tied prompts",
        "answers_cost_per_1000": "cost per 1,000",
    }
    columns = [name for name in headings if name in known.columns]
    rows = [
        [
            sweep.names[row["configuration"]].short,
            row[sweep.measure],
            *(row[name] for name in columns),
        ]
        for row in known.head(limit).iter_rows(named=True)
    ]
    caption = "Answers that are right, with 95% intervals over questions."
    answers = sweep.result.manifest["answers"]
    body = [
        figure(RangeChart("Answers by configuration", bars, axis=ACCURACY, caption=caption)),
        data_table(
            ["configuration", sweep.measure, *(headings[name] for name in columns)], rows, digits=3
        ),
        _correlation_table(answers["correlations"]),
    ]
    words = list(answers["words"])[:2]
    title = titled("Answers", sweep.result)
    return Section(f"answers-{position}", title, words, body, gist=words[1])


def _correlation_table(correlations: dict[str, Any]) -> Html:
    """Return how each measure of retrieved sets correlates with right answers."""
    headings = ["measure", "r", "low", "high", "same question", "low", "high"]
    rows = []
    for measure, correlation in correlations.items():
        single, same = correlation["single"], correlation["same_question"] or {}
        same_interval = same.get("pearson_ci") or [None, None]
        rows.append(
            [
                measure,
                single["pearson"],
                *single["pearson_ci"],
                same.get("pearson"),
                *same_interval,
            ]
        )
    caption = "Do better sets make better answers here?"
    return data_table(headings, rows, digits=2, caption=caption)


# -------------------------------------------------------------------------------- the ceilings


def _ceilings_section(
    frame: pl.DataFrame, names: list[str], sweep: ShownSweep, position: int, limit: int
) -> Section:
    """Return what was reached, and what better ranking and better retrieval could add."""
    measure = sweep.measure
    best = frame.sort(measure, descending=True, maintain_order=True)
    shown = best.head(max(_BARS, limit // len(names)))
    rows = [
        _ceiling_cells(row, name, sweep)
        for row in shown.iter_rows(named=True)
        for name in names
        if row[name] is not None and row[f"{name} PROC"] is not None
    ]
    headings = ["configuration", "measure", "actual", "PROC", "low", "high", "%PROC"]
    headings += ["ordering headroom", "retrieval headroom"]
    title = f"Every ceiling: {plural(len(rows), 'row')}"
    if len(shown) < len(best):
        title = f"Ceilings of the best {len(shown):,} of {len(best):,} configurations"
    body = [
        figure(ceilings_chart(sweep, best)),
        fold(title, [data_table(headings, rows, digits=3)]),
    ]
    title = titled("Ceilings", sweep.result)
    return Section(f"ceilings-{position}", title, _ceiling_advice(sweep), body)


def ceilings_chart(sweep: ShownSweep, best: pl.DataFrame) -> StackedChart:
    """Return what the best configurations reached, and what was left to gain."""
    measure = sweep.measure
    return StackedChart(
        f"Ceilings of {measure}",
        [_ceiling_bar(row, sweep) for row in best.head(_BARS).iter_rows(named=True)],
        total=1.0,
        caption=f"{measure}: what was reached, what the best order of the same candidates would "
        "add, and what no order can add because the candidates lack it.",
    )


def _ceiling_bar(row: dict[str, Any], sweep: ShownSweep) -> StackedBar:
    """Return what a configuration reached and its two headrooms as a bar."""
    actual, proc = row[sweep.measure], row[f"{sweep.measure} PROC"]
    parts = [
        ("realised", actual),
        ("ordering headroom", proc - actual),
        ("retrieval headroom", 1.0 - proc),
    ]
    return StackedBar(sweep.names[row["configuration"]].short, parts)


def _ceiling_cells(row: dict[str, Any], measure: str, sweep: ShownSweep) -> list[Any]:
    """Return the row of a configuration in the table of ceilings."""
    actual, proc = row[measure], row[f"{measure} PROC"]
    return [
        sweep.names[row["configuration"]].short,
        measure,
        actual,
        proc,
        row[f"{measure} PROC low"],
        row[f"{measure} PROC high"],
        row[f"{measure} %PROC"],
        proc - actual,
        1.0 - proc,
    ]


def _ceiling_advice(sweep: ShownSweep) -> list[str]:
    """Return what `ceilings` says of the choice, where its run and the judgments were kept."""
    frame = sweep.results.frame
    if "run" not in frame.columns or sweep.results.judgements is None:
        return []
    chosen = frame.filter(pl.col("configuration") == sweep.name)
    file, prompt = chosen.select("run", "prompt_k").row(0)
    if file is None or not (path := sweep.result.path.parent / file).is_file():
        return []
    measure = sweep.measure.replace("@prompt", f"@{prompt}")
    computed = ceilings(path, sweep.results.judgements, [measure], seed=SEED)
    return [f"{sweep.names[sweep.name].short}: {computed[measure].words()}", *computed.notes()]
