"""Sections on sweeps: cost, latency, quality, and what the candidates would allow."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from markupsafe import Markup

from rankproof.report.found import Result
from rankproof.report.parts import Section, figure, fold, paragraph, table
from rankproof.report.svg import Point, Stack, element, scatter, stacked
from rankproof.results.judged import some_unjudged
from rankproof.tradeoffs.pareto import pareto_front

_BARS = 12  # configurations whose ceilings are drawn
_LEAST_MS = 0.01  # of an axis that is logarithmic: nobody may say how long a past run took


def sweep(result: Result, at: int) -> list[Section]:
    """The map of configurations, and their ceilings."""
    folder = result.path.parent
    frame = pl.read_parquet(folder / "configurations.parquet")
    by = result.manifest["best_by"]
    frame = frame.filter(pl.col(by).is_not_null() & pl.col(by).is_not_nan())
    if not frame.height:
        words = [f"{by} is defined on no query: there is nothing to choose by."]
        return [Section(f"sweep-{at}", _titled("Configurations", result), words)]
    columns = (frame[name].to_numpy() for name in ("cost_per_1000", "latency_p95_ms", by))
    frame = frame.with_columns(pl.Series("front", pareto_front(*columns)))
    frame = frame.sort(by, descending=True, maintain_order=True)
    if frame["prompt_k"].n_unique() == 1:  # then it tells nothing apart
        frame = frame.with_columns(pl.col("configuration").str.replace(r" top \d+$", ""))
    names = [n.removesuffix(" PROC") for n in frame.columns if n.endswith(" PROC")]
    sections = [_map(frame, result, by, at)]
    if by in names and (limited := frame.filter(pl.col(f"{by} PROC").is_not_null())).height:
        sections.append(_ceilings(limited, names, result, by, at))
    if "load" in result.manifest and (folder / "load.parquet").is_file():
        sections.append(_load(pl.read_parquet(folder / "load.parquet"), result, at))
    return sections


def _load(driven: pl.DataFrame, result: Result, at: int) -> Section:
    """What each engine takes at each rate."""
    heads = ["engine", "queries a second", "p50 ms", "p95 ms", "p99 ms", "errors", "unanswered"]
    columns = ["engine", "qps", "p50_ms", "p95_ms", "p99_ms", "errors", "lost"]
    body = [table(heads, driven.select(columns).rows(), digits=1)]
    words = list(result.manifest["load"]["words"])
    return Section(f"load-{at}", _titled("Under load", result), words, body)


def _map(frame: pl.DataFrame, result: Result, by: str, at: int) -> Section:
    modes = list(dict.fromkeys(frame["mode"]))
    points = [
        Point(
            row["configuration"],
            max(row["latency_p95_ms"], _LEAST_MS),
            row[by],
            row["cost_per_1000"],
            row["front"],
            _tip(row, by),
            modes.index(row["mode"]),
        )
        for row in frame.iter_rows(named=True)
    ]
    picture = scatter(
        points,
        "Configurations by latency and quality",
        across="p95 latency of a query, ms",
        up=by,
        groups=modes,
    )
    most = max(p.x for p in points)
    slider = _slider(points, by, most, f"sla-{at}")
    known = f"{by} judged" in frame.columns
    shares: list[float] = frame[f"{by} judged"].to_list() if known else []
    open_ = some_unjudged(shares)
    heads = [
        *("configuration", by, "low", "high", *(["judged"] if open_ else []), "%PROC"),
        *("p50 ms", "p95 ms", "$ per 1,000"),
        *("index MB", "overlap@10", "τ@10", "front"),
    ]
    rows = [
        [
            row["configuration"],
            *(row[by], row[f"{by} low"], row[f"{by} high"]),
            *([row[f"{by} judged"]] if open_ else []),
            row.get(f"{by} %PROC"),
            *(row["latency_p50_ms"], row["latency_p95_ms"], row["cost_per_1000"]),
            *(row["index_bytes"] / 1e6, row["overlap@10"], row["tau@10"]),
            row["front"],
        ]
        for row in frame.iter_rows(named=True)
    ]
    made = result.manifest
    best = frame.row(0, named=True)
    front = frame.filter("front").sort("latency_p95_ms")
    fast = front.row(0, named=True)
    words = [
        f"{made['configurations']} configurations on {made['queries']} queries; "
        f"{front.height} of them are worth having: no other is as good, as fast and as cheap.",
        f"Best by {by}: {best['configuration']} with {best[by]:.4f} "
        f"({_span(best, by)}), {best['latency_p95_ms']:.1f} ms at p95, "
        f"${best['cost_per_1000']:.2f} per 1,000 queries.",
    ]
    if fast["configuration"] != best["configuration"]:
        words.append(
            f"Fastest on the front: {fast['configuration']} with {fast[by]:.4f} at "
            f"{fast['latency_p95_ms']:.1f} ms."
        )
    if open_:
        words.append(
            f"Of the passages that these figures are of, {min(shares):.0%} to {max(shares):.0%} "
            "have a judgement; the others count as not relevant."
        )
    body = [
        element("div", [figure(picture, _CAPTION), slider], class_="chooser"),
        table(heads, rows, caption="Every configuration, best first", digits=3),
        paragraph(
            f"Intervals are 95% over queries. Prices of {made['prices']['date']}: "
            f"{made['prices']['source']}. Tokens per passage {made['prices']['tokens_are']}.",
            "note",
        ),
    ]
    return Section(f"sweep-{at}", _titled("Configurations", result), words, body, words[1])


_CAPTION = (
    "Each point is a configuration; the larger, the dearer. Ringed and joined: the Pareto front "
    "over cost, latency and quality. Times are of single queries on the machine named below."
)


def _slider(points: list[Point], by: str, most: float, name: str) -> Markup:
    """A choice under a latency; the page's script moves it, and without one it says the best."""
    ceiling = math.ceil(most)
    best = max(points, key=lambda p: p.y)
    label = element("label", "At most this many ms at p95:", for_=name)
    control = element(
        "input",
        id=name,
        type="range",
        min="0",
        max="1000",
        value="1000",
        step="1",
        data_most=str(ceiling),
        data_least=repr(min(p.x for p in points)),
    )
    said = element("output", f"{ceiling} ms", for_=name)
    words = element(
        "p",
        f"{best.label}: {by} {best.y:.4f} at {best.x:.1f} ms, ${best.cost:.2f} per 1,000 queries",
        class_="chosen",
        data_by=by,
        aria_live="polite",
    )
    return element("div", [label, control, said, words], class_="slider")


def _tip(row: dict[str, Any], by: str) -> str:
    return (
        f"{row['configuration']}: {by} {row[by]:.4f} ({_span(row, by)}), p50 "
        f"{row['latency_p50_ms']:.1f} ms, p95 {row['latency_p95_ms']:.1f} ms, "
        f"${row['cost_per_1000']:.2f} per 1,000 queries"
    )


def _span(row: dict[str, Any], by: str) -> str:
    low, high = row[f"{by} low"], row[f"{by} high"]
    return "–" if low is None or high is None else f"{low:.3f} to {high:.3f}"


def _ceilings(
    frame: pl.DataFrame, names: list[str], result: Result, measure: str, at: int
) -> Section:
    """Realised, ordering headroom, retrieval headroom."""
    top = frame.sort(measure, descending=True, maintain_order=True).head(_BARS)
    stacks, rows = [], []
    for row in top.iter_rows(named=True):
        actual, proc = row[measure], row[f"{measure} PROC"]
        parts = [
            ("realised", actual),
            ("ordering headroom", proc - actual),
            ("retrieval headroom", 1.0 - proc),
        ]
        stacks.append(Stack(row["configuration"], parts))
    for row in frame.iter_rows(named=True):
        for name in names:
            actual, proc = row[name], row[f"{name} PROC"]
            if actual is not None and proc is not None:
                ends = (row[f"{name} PROC low"], row[f"{name} PROC high"])
                percent = row[f"{name} %PROC"]
                rows.append(
                    [
                        row["configuration"],
                        name,
                        actual,
                        proc,
                        *ends,
                        percent,
                        proc - actual,
                        1.0 - proc,
                    ]
                )
    heads = [
        *("configuration", "measure", "actual", "PROC", "low", "high", "%PROC"),
        *("ordering headroom", "retrieval headroom"),
    ]
    best = top.row(0, named=True)
    ordering = best[f"{measure} PROC"] - best[measure]
    retrieval = 1.0 - best[f"{measure} PROC"]
    knob = (
        "a better order of the same candidates"
        if ordering > retrieval
        else "a deeper or better pool"
    )
    words = [
        f"{best['configuration']} realises {best[f'{measure} %PROC']:.1f}% of what its candidates "
        f"allow in {measure}. Ordering could add {ordering:.3f}, retrieval {retrieval:.3f}: "
        f"most is to be gained from {knob}."
    ]
    picture = stacked(stacks, f"Ceilings of {measure}", total=1.0)
    body = [
        figure(
            picture,
            f"{measure}: what was reached, what the best order of the same candidates would add, "
            "and what no order can add because the candidates lack it.",
        ),
        fold(f"Every ceiling: {len(rows)} rows", [table(heads, rows, digits=3)]),
    ]
    return Section(f"ceilings-{at}", _titled("Ceilings", result), words, body)


def _titled(what: str, result: Result) -> str:
    folder = result.path.parent.name
    return what if folder == result.kind else f"{what}: {folder}"
