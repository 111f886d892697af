"""What the last sweep said, and what changed since."""

from __future__ import annotations

from typing import Any

import polars as pl

from rankproof.foundation.phrasing import plural
from rankproof.report.configuration_names import in_words
from rankproof.report.decision import SEED, Chosen
from rankproof.report.page_elements import Section, table
from rankproof.report.result_files import Result
from rankproof.tradeoffs.recommend import recommend
from rankproof.tradeoffs.results import read_results
from rankproof.tradeoffs.selection import Limits, pick

_SHOWN = 10  # configurations whose quality changed most
_LEAST = 5e-4  # a change below what is printed


def history(one: Chosen, earlier: Result, at: int, title: str) -> list[Section]:
    """The earlier choice, and the configurations, inputs and settings that differ."""
    by, was_by = one.by, earlier.manifest["best_by"]
    old = read_results(earlier.path.parent)
    before, now = old.frame, one.results.frame
    if not (before[was_by].is_not_null() & before[was_by].is_not_nan()).any():
        return []
    former = recommend(old, measure=was_by, seed=SEED).choices[-1]
    day = str(earlier.manifest.get("made", ""))[:10]
    name = in_words(before, earlier.manifest.get("config"))[former.configuration]
    best = pick(one.table, Limits(currency=one.limits.currency))[0]["configuration"]
    whole = best != former.configuration and one.words[best].short == name.short
    said = name.full if whole else name.short
    words = [
        f"The last sweep ({day}) found {said} best, with {was_by} {former.row['quality']:.3f}; "
        f"{_now(one, best, former.configuration, whole)}."
    ]
    words += _apart(one, earlier, set(before["configuration"]), set(now["configuration"]))
    if was_by != by or by not in before.columns:
        words.append(f"It chose by {was_by}: figures are not set side by side.")
        return [Section(f"history-{at}", title, words, quiet=True)]
    both = now.select("configuration", by, "latency_p95_ms").join(
        before.select("configuration", was=by, was_ms="latency_p95_ms"), on="configuration"
    )
    moved = both.filter((pl.col(by) - pl.col("was")).abs() >= _LEAST).sort(
        (pl.col(by) - pl.col("was")).abs(), descending=True, maintain_order=True
    )
    body = []
    if moved.height:
        rows: list[list[Any]] = [
            [
                one.words[row["configuration"]].short,
                *(row["was"], row[by], row[by] - row["was"]),
                *(row["was_ms"], row["latency_p95_ms"]),
            ]
            for row in moved.head(_SHOWN).iter_rows(named=True)
        ]
        heads = ["configuration", f"{by} then", "now", "change", "p95 ms then", "p95 ms"]
        caption = f"Quality that changed: {moved.height} of {plural(both.height, 'configuration')}"
        body.append(table(heads, rows, digits=3, caption=caption))
    elif both.height:
        several = plural(both.height, "configuration")
        words.append(f"The quality of the {several} that both have is the same.")
    return [Section(f"history-{at}", title, words, body, quiet=True)]


def _now(one: Chosen, best: str, former: str, whole: bool) -> str:
    """What has become of what was best."""
    if best == former:
        return "it still is"
    said = f"now it is {one.words[best].full if whole else one.words[best].short}"
    level = former in one.alike.get(best, ())
    return f"{said}, not told apart from the former in quality" if level else said


def _apart(one: Chosen, earlier: Result, before: set[str], now: set[str]) -> list[str]:
    """Configurations, inputs, versions and prices that differ."""
    made, was = one.result.manifest, earlier.manifest
    said = []
    if now - before or before - now:
        new = plural(len(now - before), "configuration is", "configurations are")
        gone = plural(len(before - now), "is", "are")
        said.append(f"{new} new, {gone} gone")
    for role, file in (made.get("inputs") or {}).items():
        old = (was.get("inputs") or {}).get(role) or {}
        if old.get("sha256") != file.get("sha256"):
            said.append(f"the {role} file is another")
    versions, old_versions = made.get("versions") or {}, was.get("versions") or {}
    said += [
        f"{name} {old_versions[name]} is now {version}"
        for name, version in versions.items()
        if name in old_versions and old_versions[name] != version
    ]
    if (made.get("prices") or {}).get("date") != (was.get("prices") or {}).get("date"):
        said.append("prices are of another date")
    if made.get("machine") != was.get("machine"):
        said.append("the machine is another, so times do not compare")
    return [f"What differs: {'; '.join(said)}."] if said else ["Inputs and versions are the same."]
