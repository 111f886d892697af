"""Text for users has the terms of the field, in docs, help and outputs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import rankproof as rp
from rankproof.cli.command_line import build_command_line
from rankproof.commands.registry import all_commands
from rankproof.presentation.result import Presentation
from rankproof.presentation.terminal import to_text

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

# What a reader would have to decode, and what the field says instead.
REPLACED = {
    r"told apart|tells? \w+ (and \w+ )?apart": "significantly different",
    r"completions? of|over holes": "worst case over unjudged documents",
    r"(?<!`)\bholes? (is|are|in|of|to)\b": "unjudged document",
    r"passed over|want of room": "skipped",
    r"people would (make|have)": "with annotators' labels",
    r"speaks? to the judge": "may contain a prompt injection",
    r"\bverbs\b": "commands",
    r"one the run lacks": "missing queries count 0",
    r"turned round|speaks against|wants a better": "reversed, contradicts, needs better",
    r"\bon others\b|not chosen by": "on new queries",
    r"\banew\b|stands twice|is no run": "again, appears twice, is not a run",
}


def terms_in(text: str) -> list[str]:
    """Return what a text says in other than the field's terms; code is not text."""
    prose = re.sub(r"```.*?```|`[^`]*`", " ", text, flags=re.S)
    prose = re.sub(r"\s+", " ", prose)
    return [
        f"{prose[max(0, match.start() - 30) : match.end() + 20]!r}: say {instead}"
        for pattern, instead in REPLACED.items()
        for match in re.finditer(pattern, prose, re.IGNORECASE)
    ]


def test_the_search_finds_what_it_is_for() -> None:
    assert terms_in("Both runs are told apart.") == [
        "'Both runs are told apart.': say significantly different"
    ]
    assert not terms_in("The command `holes` shows worst cases over unjudged documents.")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_documents_use_the_terms_of_the_field(document: Path) -> None:
    assert not terms_in(document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [command.name for command in all_commands()])
def test_help_uses_the_terms_of_the_field(name: str) -> None:
    result = CliRunner().invoke(build_command_line(), [*name.split(), "--help"])
    assert result.exit_code == 0
    assert not terms_in(result.output)
    assert max(map(len, result.output.splitlines())) <= 100


# ------------------------------------------------------------------------------- outputs

JUDGED = {f"q{n}": {"a": 1, "b": 0} for n in range(12)}
LONG = "a-very-long-name-of-a-run-" * 3
RUNS = {
    "all judged": {"one": ["a", "b"], "two": ["b", "a"]},
    "mostly unjudged": {"one": ["a", "u", "v", "w"], "two": ["u", "v", "w", "x"]},
    "some unjudged": {"one": ["a", "b", "u"], "two": ["u", "a", "b"]},
    "equal": {"one": ["a", "b"], "two": ["a", "b"]},
    "long names": {f"{LONG}1": ["a", "u"], f"{LONG}2": ["u", "a"]},
    "forty runs": {f"run{n}": ["a", "b", f"u{n}"] for n in range(40)},
}


@pytest.mark.parametrize("case", RUNS)
def test_holes_prints_an_answer_and_a_next_step(case: str) -> None:
    lists = {
        name: {q: {d: -float(rank) for rank, d in enumerate(docs)} for q in JUDGED}
        for name, docs in RUNS[case].items()
    }
    report = rp.holes(JUDGED, lists, "nDCG@3")
    text = to_text(Presentation.of(report))
    assert not terms_in(text)
    lines = text.splitlines()
    rows = len(report.tables()[0].rows) if report.tables() else 0
    assert len(lines) - rows <= 8
    assert max(map(len, (line for line in lines if not line.startswith("Next")))) <= 80
    labels = [b.label(1) for pair in report.pairs for b in pair.measures.values()]
    assert lines[-1].startswith("Next: rankproof holes") == ("undecided" in labels)


@pytest.mark.parametrize("queries", [1, 12])
@pytest.mark.parametrize("formats", [["float32", "bit"], ["bit"], ["float32"], None])
def test_audit_prints_an_answer_and_a_row_for_each_format(
    queries: int, formats: list[str] | None
) -> None:
    vectors = np.random.default_rng(0).standard_normal((30, 16)).astype(np.float32)
    judged = {str(n): {str(n): 1, str(n + 1): 0} for n in range(queries)}
    audit = rp.audit_vectors(judged, vectors[:queries], vectors, "nDCG@10", formats=formats)
    text = to_text(Presentation.of(audit))
    assert not terms_in(text)
    lines = text.splitlines()
    assert len(list(filter(None, lines))) <= 6 + len(audit.tables()[0].rows)
    assert max(map(len, lines)) <= 80
    assert len(audit.tables()[0].columns) <= 6


def test_doctor_prints_what_works_in_six_lines() -> None:
    lines = to_text(Presentation.of(rp.doctor())).splitlines()
    assert len(lines) <= 6
    assert max(map(len, lines)) <= 80
    assert not terms_in("\n".join(lines))
