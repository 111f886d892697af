"""Golden sets: pools of passages that judges graded and ordered, and people corrected.

For evaluation without exhaustive labels. It asks no question about runs; `unjudged` and
`comparison` do. Every reply of a judge is kept in one SQLite file and paid for once.

build      building (stages), settings, plan, pooling, pruning, passage_grading
judges     judges/, requests, parsing, judge_client, judge_combination, instructions
order      ordering, refinement, prior, plackett_luce, constrained, rag_gs_ordering
store      store (tables: resources/golden.sql), judgments (replies, corrections)
people     annotators, labels, viewer/
results    result, build_status, health, stale, judge_agreement, judge_trials, comparison,
           export_files, dataset_card, page
"""

from __future__ import annotations

import importlib
from typing import Any

COMMANDS = ("agreement", "assign", "build", "diff", "export", "import_", "status", "try_", "view")


def __getattr__(name: str) -> Any:
    """The commands as functions: `rankproof.golden.build(...)` is `rankproof golden build`."""
    if name not in COMMANDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("rankproof.commands.golden"), name)
