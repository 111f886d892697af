"""The README.md of an export: what its files are, and how the labels were made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

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
    beir = "beir-simulated" if golden.simulated else "beir"
    warning = _SIMULATED if golden.simulated else ""
    cost = "not known" if golden.cost is None else f"${golden.cost:.4f}"
    health = "".join(f"\n\n{line}" for line in health_lines(store))
    optional_files = (_LABEL_FILES if corrections else "") + (_STALE_FILE if has_stale else "")
    method = golden.config["ranking"]["method"]
    basis = "its posterior" if method == "posterior" else f"that of `method: {method}`"
    names = sorted({name for p in golden.passages().values() for name in p.systems})
    systems = ", ".join(f"`{name}`" for name in names) or "its lists"
    panel_note = ""
    if "members" in judge:
        panel_note = "(what several judges say together, each as reliable as it proved to be)\n"
    return f"""---
language: {golden.config.get("language", "en")}
task_categories: [text-retrieval]
tags: [relevance-judgements, rankproof]
---
# Golden set

{warning}Judge: {judge["name"]} ({judge["type"]}). {plural(len(golden.queries), "query")},
{plural(counts.total, "passage")}: {counts.graded} graded, {counts.failed} failed;
{counts.validated} validated and {counts.corrected} corrected by people.
{plural(counts.orders, "call")} for an order, {counts.orders_failed} failed.
Cost: {cost}.{health}

- `qrels{mark}.txt`: TREC qrels with grades 1–5: 5 answers clearly, 4 highly relevant, 3 partial,
  2 weak, 1 not relevant. `qrels{mark}.txt.scale` says so to `rankproof`; elsewhere say where
  relevance begins, as in `AP(rel=4)`.
- `ranking{mark}.trec`: each query's best passages in order, as a TREC run; scores are posterior
  means, or count down where the order is not theirs (people moved a passage, `method: seed`).
- `{beir}/`: a BEIR folder; grade 5 → 2, 4 → 1, 3 and below → 0, and `qrels/graded.tsv` with grades
  1–5, which `rankproof sweep` takes. Its corpus holds the pooled passages only: to search, use the
  corpus you started from (`corpus:` that, `qrels:` the file above).
- `golden{mark}.jsonl`: a line for each query, with texts, grades, ranks and their intervals.
- `replies{mark}.jsonl`: what the judge said.
- `golden{mark}.csv`: a line for each passage, for spreadsheets.
- `provenance.tsv`: which systems brought a passage in, for `rankproof holes --provenance`.
{optional_files}- `index.html`: the same to read. `manifest.json`: how it was made.

A passage whose judgement failed is in `golden{mark}.jsonl` with its failure, and in no qrels.

## How the labels came about

Passages: for each query the best of {systems}, pooled. A grade is the judge's
{panel_note}unless people gave one; the judge ordered the passages in small batches, and the
order is {basis} given what people said. Prompts, settings and inputs are in `manifest.json`.

{_annotation_text(golden, corrections)}
"""


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
