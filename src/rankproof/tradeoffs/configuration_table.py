"""The table that says which configuration to use: a few rows, six columns.

`recommend`, `choose` and `sweep` print it; every value of every configuration is behind `--wide`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rankproof.foundation.phrasing import plural
from rankproof.presentation.tables import Column, Table
from rankproof.tradeoffs.results import currency_sign, interval_cell
from rankproof.tradeoffs.selection import Limits, Row

SHOWN = 4  # configurations
NAME_WIDTH = 44  # to which names are shortened in sentences


def configuration_table(
    table: pl.DataFrame,
    verdicts: Mapping[str, str],
    *,
    first: Sequence[str],
    measure: str,
    latency: str,
    limits: Limits,
    shown: int = SHOWN,
) -> Table:
    """Return the `first` configurations and those that no other dominates, best first.

    `table` is that of `recommend`, best first. Money has a column if a limit is on it, or if
    configurations differ in it; else memory has.
    """
    by_name = {row["configuration"]: row for row in table.iter_rows(named=True)}
    undominated = [name for name, row in by_name.items() if row["pareto"]]
    chosen = list(dict.fromkeys([*first, *undominated]))[:shown]
    rows = [row for name, row in by_name.items() if name in chosen]
    sizes = {name_and_sizes(row)[1] for row in rows}
    is_common = len(sizes) == 1 and len(rows) > 1
    fine: dict[str, Any] = {"digits": 1, "exact_zero": True}
    columns: dict[str, Column | None] = {
        "name": Column("configuration", "text", folds=True),
        "quality": Column(measure, digits=3),
        "interval": Column("95% CI", "text") if table["low"].is_not_null().any() else None,
        "latency": Column(f"{latency} ms", **fine),
    }
    differs_in_cost = table["cost"].n_unique() > 1
    if limits.memory_mb is None and (limits.budget is not None or differs_in_cost):
        columns["cost"] = Column(
            f"{currency_sign(limits.currency)}/1000", digits=2, exact_zero=True
        )
    elif table["memory"].is_not_null().any():
        columns["memory"] = Column("MB", **fine)
    columns["verdict"] = Column("verdict", "text") if len(table) > 1 else None
    records = [
        {
            **row,
            "name": name_and_sizes(row)[0] if is_common else row["configuration"],
            "interval": interval_cell(row["low"], row["high"]),
            "verdict": verdicts[row["configuration"]],
        }
        for row in rows
    ]
    return Table.of_records(columns, records)


def name_and_sizes(row: Row) -> tuple[str, str]:
    """Return the name without its numbers of candidates and passages, and these in words.

    >>> name_and_sizes({"configuration": "sparse K=30 top 10", "k": 30, "prompt_k": 10})
    ('sparse', '30 candidates, 10 passages in the prompt')
    """
    name, k, prompt = str(row["configuration"]), row["k"], row["prompt_k"]
    candidates, passages = f" K={k} ", f" top {prompt}"
    if candidates not in name or not name.endswith(passages):
        return name, ""
    sizes = f"{plural(k, 'candidate')}, {plural(prompt, 'passage')} in the prompt"
    return name.removesuffix(passages).replace(candidates.rstrip(), "", 1), sizes
