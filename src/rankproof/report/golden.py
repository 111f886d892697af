"""The section of a golden set: grades by question, agreement, and how sure the order is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rankproof.foundation.phrasing import plural
from rankproof.presentation.charts import Range, RangeChart, StackedBar, StackedChart
from rankproof.presentation.html import figure
from rankproof.presentation.markup import Html, element
from rankproof.report.page_elements import Section, badge, data_table, fold, paragraph
from rankproof.report.result_files import StoredResult, titled

GRADES = ("5 answers", "4 highly relevant", "3 partial", "2 weak", "1 not relevant", "no grade")
_ORDERED_QUESTIONS = 12  # whose order is drawn
_BARS = 15  # questions whose grades are drawn in one chart
_RANKED = 20  # passages of a question whose rank is drawn


def golden_section(result: StoredResult, position: int) -> Section:
    """Return the section of a golden set, from its manifest and the lines beside it."""
    manifest = result.data
    questions = _read_questions(result.path.parent)
    body: list[Html] = []
    words = [_counts_sentence(manifest, len(questions))]
    if manifest.get("simulated"):
        words.insert(
            0,
            "SIMULATED: the judge knew the grades beforehand and noise was added. This shows how "
            "the pipeline works; it is evidence of nothing else.",
        )
        body.append(element("p", [badge("simulated judge", "warn")]))
    body += _grade_charts(questions)
    body += _agreement_table(manifest.get("agreement"))
    body += _rank_charts(questions)
    return Section(f"golden-{position}", titled("Golden set", result), words, body)


def _counts_sentence(manifest: dict[str, Any], questions: int) -> str:
    counts = manifest["counts"]
    return (
        f"{plural(questions, 'question')}; {counts['graded']} of "
        f"{plural(counts['total'], 'passage')} graded, {counts['failed']} failed; "
        f"{counts.get('validated', 0)} validated and {counts['corrected']} corrected by people. "
        f"Judge: {manifest['judge']['name']}."
    )


def _read_questions(folder: Path) -> list[dict[str, Any]]:
    """Return the questions of a golden set with their passages; none where no file is there."""
    paths = sorted(folder.glob("golden*.jsonl"))
    if not paths:
        return []
    text = paths[0].read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _grade_charts(questions: list[dict[str, Any]]) -> list[Html]:
    """Return bars of the grades of each question's passages; all but the first are folded."""
    bars = []
    for question in questions:
        grades = [passage["grade"] for passage in question["passages"]]
        sizes = [float(grades.count(grade)) for grade in (5, 4, 3, 2, 1, None)]
        bars.append(StackedBar(question["query"], list(zip(GRADES, sizes, strict=True))))
    charts = [
        StackedChart(
            "Grades of each pool",
            bars[first : first + _BARS],
            digits=0,
            ramp=True,
            caption="Passages of each question's pool by grade.",
        )
        for first in range(0, len(bars), _BARS)
    ]
    figures = [figure(chart) for chart in charts]
    if figures[1:]:
        others = plural(len(bars) - _BARS, "question")
        figures[1:] = [fold(f"The other {others}", figures[1:])]
    return figures


def _agreement_table(agreement: Any) -> list[Html]:
    """Return the agreement of the judge with people, where it was measured."""
    if not isinstance(agreement, dict):
        return []
    rows = [
        [name, measured.get("value"), *(measured.get("ci") or [None, None])]
        for name, measured in agreement.items()
        if isinstance(measured, dict)
    ]
    headings = ["figure", "value", "low", "high"]
    caption = "Agreement of the judge"
    return [data_table(headings, rows, digits=3, caption=caption)] if rows else []


def _rank_charts(questions: list[dict[str, Any]]) -> list[Html]:
    """Return the rank intervals of the passages that were ordered, a chart for each question."""
    ranked = []
    for question in questions:
        passages = [
            passage
            for passage in question["passages"]
            if passage["rank"] is not None and passage["rank_low"] is not None
        ]
        if passages:
            ranked.append((question, passages[:_RANKED]))
    if not ranked:
        return []
    widths = [
        sum(passage["rank_high"] - passage["rank_low"] for passage in passages) / len(passages)
        for _, passages in ranked
    ]
    sentence = (
        f"Of the first {_RANKED} passages of a question, a rank is known to within "
        f"{sum(widths) / len(widths):.1f} places on average (95% of the posterior)."
    )
    folded = [
        fold(f"{question['query']}: {question['text']}", [figure(_rank_chart(question, passages))])
        for question, passages in ranked[:_ORDERED_QUESTIONS]
    ]
    return [paragraph(sentence), *folded]


def _rank_chart(question: dict[str, Any], passages: list[dict[str, Any]]) -> RangeChart:
    rows = [
        Range(
            f"{passage['rank']}. {passage['doc']}",
            float(passage["rank"]),
            float(passage["rank_low"]),
            float(passage["rank_high"]),
            group=5 - (passage["grade"] or 0),
            tip=f"{passage['doc']}: rank {passage['rank']}, between {passage['rank_low']} and "
            f"{passage['rank_high']}; grade {passage['grade']}",
        )
        for passage in passages
    ]
    return RangeChart(
        f"Order for {question['query']}",
        rows,
        axis="rank, best first",
        groups=GRADES,
        ramp=True,
        caption="Rank of each passage, and where it stands in 95% of the posterior.",
    )
