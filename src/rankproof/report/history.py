"""What the last sweep found best, and what changed since."""

from __future__ import annotations

from typing import Any

import polars as pl

from rankproof.foundation.phrasing import plural
from rankproof.presentation.markup import Html
from rankproof.report.configuration_names import name_configurations
from rankproof.report.decision import SEED, ShownSweep
from rankproof.report.page_elements import Section, data_table
from rankproof.report.result_files import StoredResult
from rankproof.tradeoffs.recommend import recommend
from rankproof.tradeoffs.results import Results, read_results
from rankproof.tradeoffs.selection import Limits, pick

_SHOWN = 10  # configurations whose quality changed most
_LEAST_CHANGE = 5e-4  # three decimals show no smaller one


def history_sections(
    sweep: ShownSweep, earlier: StoredResult, position: int, title: str
) -> list[Section]:
    """Return the earlier choice, and the configurations, inputs and settings that differ.

    There is none where the earlier sweep had no value of its measure.
    """
    earlier_measure = earlier.manifest["best_by"]
    old = read_results(earlier.path.parent)
    before, now = old.frame, sweep.results.frame
    if not (before[earlier_measure].is_not_null() & before[earlier_measure].is_not_nan()).any():
        return []
    words = [_choice_sentence(sweep, old, earlier)]
    words.append(
        _differences_sentence(
            sweep, earlier, set(before["configuration"]), set(now["configuration"])
        )
    )
    body: list[Html] = []
    if earlier_measure != sweep.measure or sweep.measure not in before.columns:
        words.append(f"It chose by {earlier_measure}: the scores cannot be compared.")
    else:
        joined = _join(before, now, sweep.measure)
        table = _changes_table(sweep, joined)
        if table is not None:
            body.append(table)
        elif joined.height:
            configurations = plural(joined.height, "configuration")
            words.append(f"The quality of the {configurations} that both have is the same.")
    return [Section(f"history-{position}", title, words, body, quiet=True)]


def _choice_sentence(sweep: ShownSweep, old: Results, earlier: StoredResult) -> str:
    """Return what the last sweep found best, and whether it still is."""
    measure = earlier.manifest["best_by"]
    former = recommend(old, measure=measure, seed=SEED).choices[-1]
    names = name_configurations(old.frame, earlier.manifest.get("config"))
    former_name = names[former.configuration]
    best = pick(sweep.table, Limits(currency=sweep.limits.currency))[0]["configuration"]
    # Two configurations may differ in what the short names leave out.
    is_ambiguous = best != former.configuration and sweep.names[best].short == former_name.short
    day = str(earlier.manifest.get("made", ""))[:10]
    name = former_name.full if is_ambiguous else former_name.short
    sentence = (
        f"The last sweep ({day}) found {name} best, with {measure} {former.row['quality']:.3f}; "
    )
    if best == former.configuration:
        return f"{sentence}it still is."
    best_name = sweep.names[best].full if is_ambiguous else sweep.names[best].short
    is_similar = former.configuration in sweep.similar_to(best)
    suffix = ", not significantly different from the former in quality" if is_similar else ""
    return f"{sentence}now it is {best_name}{suffix}."


def _join(before: pl.DataFrame, now: pl.DataFrame, measure: str) -> pl.DataFrame:
    """Return the configurations of both sweeps with quality and latency, then and now."""
    return now.select("configuration", now=measure, now_ms="latency_p95_ms").join(
        before.select("configuration", then=measure, then_ms="latency_p95_ms"), on="configuration"
    )


def _changes_table(sweep: ShownSweep, joined: pl.DataFrame) -> Html | None:
    """Return the configurations whose quality changed most; None where none did."""
    change = (pl.col("now") - pl.col("then")).abs()
    changed = joined.filter(change >= _LEAST_CHANGE)
    if not changed.height:
        return None
    changed = changed.sort(change, descending=True, maintain_order=True)
    rows: list[list[Any]] = [
        [
            sweep.names[row["configuration"]].short,
            row["then"],
            row["now"],
            row["now"] - row["then"],
            row["then_ms"],
            row["now_ms"],
        ]
        for row in changed.head(_SHOWN).iter_rows(named=True)
    ]
    headings = ["configuration", f"{sweep.measure} then", "now", "change", "p95 ms then", "p95 ms"]
    total = plural(joined.height, "configuration")
    caption = f"Quality that changed: {changed.height} of {total}"
    return data_table(headings, rows, digits=3, caption=caption)


def _differences_sentence(
    sweep: ShownSweep, earlier: StoredResult, before: set[str], now: set[str]
) -> str:
    """Return the configurations, inputs, versions, prices and machines that differ."""
    new, old = sweep.result.manifest, earlier.manifest
    differences = []
    if now != before:
        added = plural(len(now - before), "configuration is", "configurations are")
        removed = plural(len(before - now), "is", "are")
        differences.append(f"{added} new, {removed} gone")
    for role, file in (new.get("inputs") or {}).items():
        old_file = (old.get("inputs") or {}).get(role) or {}
        if old_file.get("sha256") != file.get("sha256"):
            differences.append(f"the {role} file is another")
    versions, old_versions = new.get("versions") or {}, old.get("versions") or {}
    differences += [
        f"{name} {old_versions[name]} is now {version}"
        for name, version in versions.items()
        if name in old_versions and old_versions[name] != version
    ]
    if (new.get("prices") or {}).get("date") != (old.get("prices") or {}).get("date"):
        differences.append("prices are of another date")
    if new.get("machine") != old.get("machine"):
        differences.append("the machine is another, so times do not compare")
    if not differences:
        return "Inputs and versions are the same."
    return f"What differs: {'; '.join(differences)}."
