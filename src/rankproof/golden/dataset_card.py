"""The README.md of an export: what its files are, and how the labels were made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rankproof.foundation.files import read_text
from rankproof.foundation.phrasing import plural
from rankproof.foundation.printable import escape_controls
from rankproof.foundation.redaction import remove_secrets
from rankproof.golden.annotators import (
    JUDGE,
    PAIR_COEFFICIENTS,
    labels_by_person,
    pairwise_agreement,
    settled_labels,
)
from rankproof.golden.health import health_lines
from rankproof.golden.judgments import Correction
from rankproof.golden.result import Golden
from rankproof.golden.store import Store
from rankproof.statistics.agreement import Agreement, Coefficient

_TEMPLATE = Path(__file__).parents[1] / "resources" / "golden_card.md"
_PANEL_NOTE = "(what several judges say together, each as reliable as it proved to be)\n"
_SIMULATED = (
    "**SIMULATED. The judge knew the answers beforehand (noise was added). These files are for "
    "trying things out; figures made from them are evidence of nothing.**\n\n"
)
_LABEL_FILES = """- `people.txt`: TREC qrels of what people graded, as `eval --human` takes them.
- `labels.jsonl`, `labels.csv`: every person's label; `golden import` reads them.
- `corrections.jsonl`: all that people said, what was undone included.
"""
_STALE_FILE = (
    "- `stale.jsonl`: what was said of other texts, or by other judges; it does not count.\n"
)


def dataset_card(store: Store, golden: Golden, mark: str, *, has_stale: bool) -> str:
    """Return the text of README.md; `mark` is in the names of a simulated judge's files."""
    counts, judge = golden.counts, golden.judge
    corrections = store.active_corrections()
    method = golden.config["ranking"]["method"]
    systems = sorted({name for p in golden.passages().values() for name in p.systems})
    files = (_LABEL_FILES if corrections else "") + (_STALE_FILE if has_stale else "")
    return read_text(_TEMPLATE).format(
        language=golden.config.get("language", "en"),
        warning=_SIMULATED if golden.simulated else "",
        judge=f"{judge['name']} ({judge['type']})",
        queries=plural(len(golden.queries), "query"),
        passages=plural(counts.total, "passage"),
        counts=counts,
        orders=plural(counts.orders, "call"),
        cost="not known" if golden.cost is None else f"${golden.cost:.4f}",
        health="".join(f"\n\n{line}" for line in health_lines(store)),
        mark=mark,
        beir="beir-simulated" if golden.simulated else "beir",
        optional_files=files,
        systems=", ".join(f"`{name}`" for name in systems) or "its lists",
        panel_note=_PANEL_NOTE if "members" in judge else "",
        basis="its posterior" if method == "posterior" else f"that of `method: {method}`",
        annotation=_annotation_text(golden, corrections),
    )


def _annotation_text(golden: Golden, corrections: Sequence[Correction]) -> str:
    """Say how many passages people labeled, and how far they agree."""
    labels = [
        label
        for by_person in labels_by_person(corrections).values()
        for label in by_person.values()
        if label.new is not None
    ]
    if not labels:
        return "No person graded a passage: every grade is the judge's."
    people = Counter(_markdown_name(label.who) for label in labels)
    passages = Counter((label.query, label.doc) for label in labels)
    by_several = sum(times > 1 for times in passages.values())
    lines = [
        f"People labelled {len(passages)} of {golden.counts.total} passages, {by_several} of them "
        f"two or more people: {', '.join(f'{name} {people[name]}' for name in sorted(people))}. "
        "Where they differ the median of those who were sure holds, unless it was settled "
        f"({len(settled_labels(corrections))} were).",
        "",
        "| | same grade | κ, quadratic | AC2, quadratic | α, ordinal | passages |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for person, other, pair in pairwise_agreement(corrections, golden.grades_by_judge()):
        if pair.coefficients["exact"].items:
            other_name = "the judge" if other == JUDGE else _markdown_name(other)
            lines.append(_agreement_row(f"{_markdown_name(person)} and {other_name}", pair))
    return "\n".join([*lines, "", "95% intervals are over queries; none where there are few."])


def _markdown_name(who: str) -> str:
    """A person's name that cannot break a table."""
    return escape_controls(remove_secrets(who)).replace("|", "\\|")


def _agreement_row(names: str, pair: Agreement) -> str:
    """A row of the table of agreement, in Markdown."""
    cells = [_agreement_cell(pair.coefficients[name]) for name in PAIR_COEFFICIENTS]
    return f"| {names} | {' | '.join(cells)} | {pair.coefficients['exact'].items} |"


def _agreement_cell(coefficient: Coefficient) -> str:
    """A coefficient with its interval; a dash if it is undefined."""
    if math.isnan(coefficient.value):
        return "–"
    if math.isnan(coefficient.low):
        return f"{coefficient.value:.2f}"
    return f"{coefficient.value:.2f} [{coefficient.low:.2f}, {coefficient.high:.2f}]"
