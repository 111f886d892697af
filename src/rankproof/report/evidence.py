"""Sections on evidence: golden sets, and what a model makes of names and noise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rankproof.foundation.phrasing import plural
from rankproof.report.page_elements import Section, badge, figure, fold, paragraph, table
from rankproof.report.result_files import Result, titled
from rankproof.report.svg import Bar, Series, Stack, curves, ranges, stacked

GRADES = ("5 answers", "4 highly relevant", "3 partial", "2 weak", "1 not relevant", "no grade")
FAMILIES = ("base", "identity", "formatting", "layout")
_SHOWN = 12  # queries whose order is drawn
_BARS = 15  # queries whose grades are drawn at once


def golden(result: Result, at: int) -> Section:
    """Grades by query, agreement, and how sure the order is."""
    made = result.data
    counts = made["counts"]
    lines = _lines(result.path.parent)
    stacks = []
    for line in lines:
        grades = [p["grade"] for p in line["passages"]]
        sizes = [float(grades.count(g)) for g in (5, 4, 3, 2, 1, None)]
        stacks.append(Stack(line["query"], list(zip(GRADES, sizes, strict=True))))
    judge = made["judge"]
    words = [
        f"{plural(len(lines), 'question')}; {counts['graded']} of "
        f"{plural(counts['total'], 'passage')} graded, "
        f"{counts['failed']} failed; {counts.get('validated', 0)} validated and "
        f"{counts['corrected']} corrected by people. "
        f"Judge: {judge['name']}."
    ]
    body: list[Markup] = []
    if made.get("simulated"):
        words.insert(
            0,
            "SIMULATED: the judge knew the grades beforehand and noise was added. This shows how "
            "the pipeline works; it is evidence of nothing else.",
        )
        body.append(Markup("<p>{}</p>").format(badge("simulated judge", "warn")))
    caption = "Passages of each question's pool by grade."
    pictures = [
        figure(stacked(part, "Grades of each pool", form=".0f", ramp=True), caption)
        for part in (stacks[low : low + _BARS] for low in range(0, len(stacks), _BARS))
    ]
    body += pictures[:1]
    if pictures[1:]:
        body.append(fold(f"The other {plural(len(stacks) - _BARS, 'question')}", pictures[1:]))
    body += _agreement(made.get("agreement"))
    body += _order(lines)
    return Section(f"golden-{at}", titled("Golden set", result), words, body)


def _lines(folder: Path) -> list[dict[str, Any]]:
    found = sorted(folder.glob("golden*.jsonl"))
    if not found:
        return []
    text = found[0].read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _agreement(found: Any) -> list[Markup]:
    if not isinstance(found, dict) or not found:
        return []
    rows = [[name, *_figures(value)] for name, value in found.items() if isinstance(value, dict)]
    heads = ["figure", "value", "low", "high"]
    return [table(heads, rows, digits=3, caption="Agreement of the judge")] if rows else []


def _figures(value: dict[str, Any]) -> list[Any]:
    ends = value.get("ci") or [None, None]
    return [value.get("value"), ends[0], ends[1]]


def _order(lines: list[dict[str, Any]]) -> list[Markup]:
    """Rank intervals of the passages that were ordered."""
    ranked = [
        (line, [p for p in line["passages"] if p["rank"] is not None and p["rank_low"] is not None])
        for line in lines
    ]
    ranked = [(line, some) for line, some in ranked if some]
    if not ranked:
        return []
    unsure = [
        sum(p["rank_high"] - p["rank_low"] for p in some[:20]) / len(some[:20])
        for _, some in ranked
    ]
    parts = [
        paragraph(
            f"Of the first 20 passages of a question, a rank is known to within "
            f"{sum(unsure) / len(unsure):.1f} places on average (95% of the posterior)."
        )
    ]
    for line, some in ranked[:_SHOWN]:
        bars = [
            Bar(
                f"{p['rank']}. {p['doc']}",
                float(p["rank"]),
                float(p["rank_low"]),
                float(p["rank_high"]),
                f"{p['doc']}: rank {p['rank']}, between {p['rank_low']} and {p['rank_high']}; "
                f"grade {p['grade']}",
                group=5 - (p["grade"] or 0),
            )
            for p in some[:20]
        ]
        picture = ranges(
            bars, f"Order for {line['query']}", axis="rank, best first", groups=GRADES, ramp=True
        )
        caption = "Rank of each passage, and where it stands in 95% of the posterior."
        parts.append(fold(f"{line['query']}: {line['text']}", [figure(picture, caption)]))
    return parts


def names(result: Result, at: int) -> Section:
    """Margins by ablation."""
    data = result.data
    bars = [
        Bar(
            row["ablation"],
            row["margin"]["name"]["mean"],
            *_ends(row["margin"]["name"]),
            f"{row['ablation']}: name margin {row['margin']['name']['mean']:.3f}",
            group=_family(row),
        )
        for row in data["rows"]
        if row["margin"]["name"]["mean"] is not None
    ]
    rows = [
        [
            row["ablation"],
            row["family"] or "",
            *(row["margin"][m]["mean"] for m in ("name", "topic", "both")),
            row["percent"].get("name", {}).get("mean"),
            *_pair(row["percent"].get("name")),
            row["excluded"].get("name"),
        ]
        for row in data["rows"]
    ]
    heads = [
        "ablation",
        "family",
        "Δname",
        "Δtopic",
        "Δboth",
        "Δname change %",
        "low",
        "high",
        "left out",
    ]
    body = [
        figure(
            ranges(
                bars,
                "Name margin by ablation",
                axis="Δname: cosine lead of the right author",
                groups=FAMILIES,
                zero=True,
            ),
            "How far the right author's passage leads an impostor's, after each rewriting; bars "
            "are 95% intervals over queries.",
        ),
        table(heads, rows, digits=3),
    ]
    first, *more = data["words"]
    warnings = [words for words in more if words.startswith("Warning")]
    others = [paragraph(words) for words in more if words not in warnings]
    body += [fold("The rest in words", others)] if others else []
    return Section(f"names-{at}", _told("Names", data), [first, *warnings], body)


def _told(what: str, data: dict[str, Any]) -> str:
    language = {"en": "English", "fr": "French"}.get(data["language"], data["language"])
    return f"{what}: {data['embedder']}, {language}"


def _ends(figure_: dict[str, Any]) -> tuple[float, float]:
    low, high = figure_["ci"]
    mean = figure_["mean"]
    return (mean if low is None else low, mean if high is None else high)


def _pair(figure_: dict[str, Any] | None) -> list[float | None]:
    return [None, None] if not figure_ else list(figure_["ci"])


def _family(row: dict[str, Any]) -> int:
    family = row["family"] or FAMILIES[0]
    return FAMILIES.index(family) if family in FAMILIES else 0


def noise(result: Result, at: int) -> Section:
    """Cosine by level of noise, as typed and as rewritten."""
    data = result.data
    series: dict[tuple[str, str], Series] = {}
    hues: dict[str, int] = {}
    for row in data["rows"]:
        for to, found in row["cosine"].items():
            if found["mean"] is None:
                continue
            who = "as typed" if row["rewriter"] is None else f"rewritten by {row['rewriter']}"
            label = f"{who}, to the {'clean query' if to == 'clean' else to}"
            hues.setdefault(who, len(hues))
            line = series.setdefault(
                (who, to), Series(label, [], [], [], [], dashed=to == "passage", group=hues[who])
            )
            low, high = _ends(found)
            line.x.append(float(row["level"]))
            line.y.append(found["mean"])
            line.low.append(low)
            line.high.append(high)
    rows = [
        [
            row["level"],
            row["rewriter"] or "as typed",
            *(row["cosine"].get(to, {}).get("mean") for to in ("clean", "passage")),
            row["drop"].get("clean", {}).get("mean"),
            row["recovered"].get("clean"),
            row["example"],
        ]
        for row in data["rows"]
    ]
    heads = [
        "level",
        "rewriter",
        "cosine to clean",
        "cosine to passage",
        "drop",
        "recovered",
        "example",
    ]
    body = [
        figure(
            curves(
                list(series.values()),
                "Cosine by level of noise",
                across="level of noise",
                up="cosine",
            ),
            "Cosine of a question with conversational noise; bands are 95% intervals over queries.",
        ),
        table(heads, rows, digits=3),
    ]
    return Section(f"noise-{at}", _told("Noise", data), list(data["words"]), body)
