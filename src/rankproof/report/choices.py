"""Sections on sweeps: the choice, the map behind it, what candidates allow, how load is borne."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
from markupsafe import Markup

from rankproof.foundation.phrasing import plural
from rankproof.presentation.judged_column import some_unjudged
from rankproof.report.decision import SEED, Chosen, chosen, decision, sentence, span
from rankproof.report.finalists import finalists
from rankproof.report.history import history
from rankproof.report.page_elements import Section, figure, fold, paragraph, table
from rankproof.report.result_files import Result, titled
from rankproof.report.svg import Bar, Point, Stack, ranges, scatter, stacked
from rankproof.tradeoffs.answers import ACCURACY
from rankproof.tradeoffs.ceilings import ceilings
from rankproof.tradeoffs.selection import Limits

_BARS = 12  # configurations whose ceilings are drawn
_LEAST_MS = 0.01  # of an axis that is logarithmic: nobody may say how long a past run took


def sweep(
    result: Result,
    at: int,
    earlier: Result | None = None,
    row: str | None = None,
    limits: Limits | None = None,
    *,
    most: int,
) -> list[Section]:
    """The choice within the limits, the map behind it, questions on which it differs, its ceilings.
    `row` is looked at in place of the choice; `most` configurations are shown, and rows of a
    table."""
    folder = result.path.parent
    frame = pl.read_parquet(folder / "configurations.parquet")
    by = result.manifest["best_by"]
    if not (frame[by].is_not_null() & frame[by].is_not_nan()).any():
        words = [f"{by} is defined on no query: there is nothing to choose by."]
        return [Section(f"sweep-{at}", titled("Configurations", result), words)]
    one = chosen(result, row, limits, most)
    title = "The choice" if row is None else "One configuration"
    sections = [decision(one, at, titled(title, result)), _map(one, frame, at, most)]
    sections += finalists(one, at, titled("Where the finalists differ", result))
    if earlier is not None:
        sections += history(one, earlier, at, titled("Since the last sweep", result))
    if "answers" in result.manifest and ACCURACY in frame.columns:
        sections.append(_answers(one, frame, at, most))
    names = [n.removesuffix(" PROC") for n in frame.columns if n.endswith(" PROC")]
    limited = frame.filter(pl.col(f"{by} PROC").is_not_null()) if by in names else frame.clear()
    if limited.height:
        sections.append(_ceilings(limited, names, one, at, most))
    if "load" in result.manifest and (folder / "load.parquet").is_file():
        sections.append(_load(pl.read_parquet(folder / "load.parquet"), result, at))
    return sections


def _load(driven: pl.DataFrame, result: Result, at: int) -> Section:
    """What each engine takes at each rate."""
    heads = ["engine", "queries a second", "p50 ms", "p95 ms", "p99 ms", "errors", "unanswered"]
    columns = ["engine", "qps", "p50_ms", "p95_ms", "p99_ms", "errors", "lost"]
    body = [table(heads, driven.select(columns).rows(), digits=1)]
    words = list(result.manifest["load"]["words"])
    return Section(f"load-{at}", titled("Under load", result), words, body)


# ------------------------------------------------------------------------------------- the map


def groups(one: Chosen) -> list[list[int]]:
    """Rows of the table that nothing tells apart: not in quality, nor in latency beyond the
    jitter, nor in cost. The first of each stands for it; the choice comes first."""
    rows = list(one.table.iter_rows(named=True))
    first = next(at for at, row in enumerate(rows) if row["configuration"] == one.name)
    left = [first, *(at for at in range(len(rows)) if at != first)]
    found = []
    while left:
        leader = rows[left[0]]
        level = set(one.alike.get(leader["configuration"], ()))
        alike = [left[0]]
        for at in left[1:]:
            row = rows[at]
            same_cost = math.isclose(row["cost"], leader["cost"], abs_tol=1e-9)
            apart = abs(row["latency"] - leader["latency"])
            same_time = apart <= max(row["jitter"], leader["jitter"])
            if row["configuration"] in level and same_cost and same_time:
                alike.append(at)
        found.append(alike)
        taken = set(alike)
        left = [at for at in left if at not in taken]
    return found


def _map(one: Chosen, frame: pl.DataFrame, at: int, most: int) -> Section:
    rows = list(one.table.iter_rows(named=True))
    kinds = dict(frame.select("configuration", "mode").iter_rows())
    modes = list(dict.fromkeys(kinds[row["configuration"]] for row in rows))
    together = groups(one)
    points = [
        Point(
            one.words[row["configuration"]].short,
            max(row["latency"], _LEAST_MS),
            row["quality"],
            row["cost"],
            row["pareto"],
            _tip(one, row, len(some) - 1 if leads else None),
            modes.index(kinds[row["configuration"]]),
            low=row["low"] if leads else None,
            high=row["high"] if leads else None,
            at=index,
            member=not leads,
            chosen=row["configuration"] == one.name,
        )
        for some in together
        for index in some
        for row in [rows[index]]
        for leads in [index == some[0]]
    ]
    picture = scatter(
        points,
        "Configurations by latency and quality",
        across="p95 latency of a query, ms",
        up=one.by,
        groups=modes,
    )
    made = one.result.manifest
    shares = [row["judged"] for row in rows if row["judged"] is not None]
    open_ = some_unjudged(shares)
    front = sum(row["pareto"] for row in rows)
    words = [
        f"{plural(len(rows), 'configuration')}, {len(together):,} that these questions tell "
        "apart in "
        f"quality, latency or cost; {plural(front, 'is', 'are')} on the front: no "
        "other is as good, as fast, as small and as cheap."
    ]
    if made["configurations"] > len(rows):
        words.append(
            f"{plural(made['configurations'] - len(rows), 'more is', 'more are')} left out: "
            "dominated, or without "
            f"{one.by}."
        )
    if open_:
        words.append(
            f"Of the passages that these figures are of, {min(shares):.0%} to {max(shares):.0%} "
            "have a judgement; the others count as not relevant."
        )
    heads = ["configuration", "alike", one.by, "95%", *(["judged"] if open_ else [])]
    heads += ["p95 ms", "cost per 1,000", "index MB", "front"]
    listed = [
        [
            one.words[row["configuration"]].short,
            len(some) - 1,
            row["quality"],
            span(row).replace(" ", "\u00a0"),
            *([row["judged"]] if open_ else []),
            *(row["latency"], row["cost"], row["memory"], any(rows[i]["pareto"] for i in some)),
        ]
        for some in together
        for row in [rows[some[0]]]
    ]
    caption = f"One of each group, {'as asked for' if one.named else 'the choice'} first"
    body = [
        figure(picture, _CAPTION),
        table(heads, listed, caption=caption, digits=3),
        _every(one, frame, open_, most),
        paragraph(
            f"Intervals are 95% over queries. Prices of {made['prices']['date']}: "
            f"{made['prices']['source']}. Tokens per passage {made['prices']['tokens_are']}.",
            "note",
        ),
        *(paragraph(sentence(note), "note") for note in made.get("notes", ())),
    ]
    title = titled("Configurations", one.result)
    return Section(f"sweep-{at}", title, words, body, quiet=True)


_CAPTION = (
    "Each point is a configuration; larger ones cost more. Upright lines are 95% intervals over "
    "queries; small points are not told apart from a large one, which stands for them. "
    "Ringed: the Pareto front over cost, latency, memory and quality; joined: those of it that "
    "nothing faster equals. Times are of single queries on the machine named below."
)


def _every(one: Chosen, frame: pl.DataFrame, open_: bool, most: int) -> Markup:
    by = one.by
    some = frame.filter(pl.col(by).is_not_null() & pl.col(by).is_not_nan())
    some = some.sort(by, descending=True, maintain_order=True)
    heads = [
        *("configuration", by, "low", "high", *(["judged"] if open_ else []), "%PROC"),
        *("p50 ms", "p95 ms", "cost per 1,000"),
        *("index MB", "overlap@10", "τ@10"),
    ]
    rows = [
        [
            row["configuration"],
            *(row[by], row[f"{by} low"], row[f"{by} high"]),
            *([row[f"{by} judged"]] if open_ else []),
            row.get(f"{by} %PROC"),
            *(row["latency_p50_ms"], row["latency_p95_ms"], row["cost_per_1000"]),
            *(row["index_bytes"] / 1e6, row["overlap@10"], row["tau@10"]),
        ]
        for row in some.head(most).iter_rows(named=True)
    ]
    title = f"Every configuration: {plural(len(rows), 'row')}"
    if some.height > most:
        title = f"The best {most:,} of {some.height:,} configurations"
    return fold(title, [table(heads, rows, digits=3)])


def _tip(one: Chosen, row: dict[str, Any], others: int | None) -> str:
    said = (
        f"{one.words[row['configuration']].full}: {one.by} {row['quality']:.4f} ({span(row)}), "
        f"p50 {row['p50']:.1f} ms, p95 {row['p95']:.1f} ms, {one.money(row['cost'])} per 1,000 "
        "queries"
    )
    return f"{said}; {others} others are not told apart from it" if others else said


# --------------------------------------------------------------------------------- the answers


def _answers(one: Chosen, frame: pl.DataFrame, at: int, most: int) -> Section:
    """What each prompt was worth to who answers from it."""
    some = frame.drop_nulls(ACCURACY).sort(ACCURACY, descending=True, maintain_order=True)
    bars = [
        Bar(
            one.words[row["configuration"]].short,
            row[ACCURACY],
            row[ACCURACY] if row[f"{ACCURACY} low"] is None else row[f"{ACCURACY} low"],
            row[ACCURACY] if row[f"{ACCURACY} high"] is None else row[f"{ACCURACY} high"],
            f"{one.words[row['configuration']].full}: {row[ACCURACY]:.3f}, abstained on "
            f"{row['abstained']:.0%}",
        )
        for row in some.head(_BARS).iter_rows(named=True)
    ]
    columns = {
        ACCURACY: ACCURACY,
        f"{ACCURACY} low": "low",
        f"{ACCURACY} high": "high",
        "accuracy given hit": "given hit",
        "abstained": "abstained",
        "answers_tied": "tied prompts",
        "answers_cost_per_1000": "cost per 1,000",
    }
    known = [name for name in columns if name in some.columns]
    heads = ["configuration", one.by, *(columns[name] for name in known)]
    rows = [
        [one.words[row["configuration"]].short, row[one.by], *(row[name] for name in known)]
        for row in some.head(most).iter_rows(named=True)
    ]
    caption = "Answers that are right, with 95% intervals over questions."
    body = [
        figure(ranges(bars, "Answers by configuration", axis=ACCURACY), caption),
        table(heads, rows, digits=3),
        _correlations(one.result.manifest["answers"]["correlations"]),
    ]
    words = list(one.result.manifest["answers"]["words"])[:2]
    return Section(f"answers-{at}", titled("Answers", one.result), words, body, words[1])


def _correlations(found: dict[str, Any]) -> Markup:
    """How far each measure of sets goes with right answers."""
    heads = ["measure", "r", "low", "high", "same question", "low", "high"]
    rows = []
    for measure, each in found.items():
        single, same = each["single"], each["same_question"] or {}
        ends = same.get("pearson_ci") or [None, None]
        rows.append([measure, single["pearson"], *single["pearson_ci"], same.get("pearson"), *ends])
    return table(heads, rows, digits=2, caption="Do better sets make better answers here?")


# -------------------------------------------------------------------------------- the ceilings


def _ceilings(frame: pl.DataFrame, names: list[str], one: Chosen, at: int, most: int) -> Section:
    """Realised, ordering headroom, retrieval headroom."""
    measure = one.by
    best = frame.sort(measure, descending=True, maintain_order=True)
    some = best.head(max(_BARS, most // len(names)))
    stacks, rows = [], []
    for row in some.head(_BARS).iter_rows(named=True):
        actual, proc = row[measure], row[f"{measure} PROC"]
        parts = [
            ("realised", actual),
            ("ordering headroom", proc - actual),
            ("retrieval headroom", 1.0 - proc),
        ]
        stacks.append(Stack(one.words[row["configuration"]].short, parts))
    for row in some.iter_rows(named=True):
        for name in names:
            actual, proc = row[name], row[f"{name} PROC"]
            if actual is not None and proc is not None:
                ends = (row[f"{name} PROC low"], row[f"{name} PROC high"])
                percent = row[f"{name} %PROC"]
                rows.append(
                    [
                        *(one.words[row["configuration"]].short, name, actual, proc, *ends),
                        *(percent, proc - actual, 1.0 - proc),
                    ]
                )
    heads = [
        *("configuration", "measure", "actual", "PROC", "low", "high", "%PROC"),
        *("ordering headroom", "retrieval headroom"),
    ]
    picture = stacked(stacks, f"Ceilings of {measure}", total=1.0)
    body = [
        figure(
            picture,
            f"{measure}: what was reached, what the best order of the same candidates would add, "
            "and what no order can add because the candidates lack it.",
        ),
        fold(
            f"Every ceiling: {plural(len(rows), 'row')}"
            if len(some) == len(best)
            else f"Ceilings of the best {len(some):,} of {len(best):,} configurations",
            [table(heads, rows, digits=3)],
        ),
    ]
    title = titled("Ceilings", one.result)
    return Section(f"ceilings-{at}", title, _advice(one), body)


def _advice(one: Chosen) -> list[str]:
    """What `ceilings` says of the choice, where its list was kept."""
    run = one.results.frame
    if "run" not in run.columns or one.results.judgements is None:
        return []
    file, prompt = run.filter(pl.col("configuration") == one.name).select("run", "prompt_k").row(0)
    if file is None or not (path := one.result.path.parent / file).is_file():
        return []
    measure = one.by.replace("@prompt", f"@{prompt}")
    found = ceilings(path, one.results.judgements, [measure], seed=SEED)
    return [f"{one.words[one.name].short}. {found[measure].words()}", *found.notes()]
