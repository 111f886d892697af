"""The opening of a page with a sweep: the data, the limits, the choice, what would change it.

The rules are `recommend`'s. The page's script has them too (`assets/page.js`), so that its sliders
can ask again; a test sets the two side by side.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup

from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import plural, typed
from rankproof.foundation.printable import escape_controls
from rankproof.presentation.json_values import plain
from rankproof.presentation.lead_wording import could
from rankproof.report.configuration_names import Words, in_words, meaning
from rankproof.report.page_elements import Section, fold, paragraph
from rankproof.report.result_files import Result
from rankproof.report.svg import element, shown
from rankproof.statistics.intervals import CONFIDENCE, MIN_QUERIES
from rankproof.statistics.resampling import JOINT_RESAMPLES, generator_state
from rankproof.tradeoffs.recommend import Choice, Recommendation, in_brackets, recommend
from rankproof.tradeoffs.results import Results, money, read_results
from rankproof.tradeoffs.selection import Limits, cheaper_or_faster, faster, pick, shortfall

_NAMED = 6  # that stand beside the choice; the others are folded
SEED = 0
PARTS = 55_440  # of 1: halves to twelfths are whole, so that sums which are level stay level
_CELLS = 200_000  # figures of single questions that a page holds: half a megabyte
_DRAWN = 2_000  # questions that a page draws from: a second's work


@dataclass(frozen=True)
class Chosen:
    """A sweep as the page shows it."""

    result: Result
    results: Results
    by: str
    table: pl.DataFrame  # as `recommend` has it, best first
    words: dict[str, Words]
    alike: dict[str, tuple[str, ...]]  # over all pairs at once: those not told apart in quality
    limits: Limits  # that it opens with
    choice: Choice  # within them, as `recommend` makes it; or the row that was named
    within: int  # configurations that keep to them
    named: bool = False

    @property
    def row(self) -> dict[str, Any]:
        """What is chosen."""
        return self.choice.row

    @property
    def name(self) -> str:
        return self.choice.configuration

    def money(self, amount: float) -> str:
        return money(amount, self.limits.currency)


def chosen(result: Result, row: str | None, limits: Limits | None, most: int) -> Chosen:
    """Read a sweep, and choose within the limits; or take a row by its name. `most`
    configurations are what the sliders choose from."""
    results = read_results(result.path.parent)
    asked = replace(limits or Limits(), currency=results.currency)
    given = {name: value for name, value in asdict(asked).items() if name != "currency"}
    found = recommend(results, measure=result.manifest["best_by"], seed=SEED, **given)
    choice = found.choices[-1] if row is None else _taken(found, row)
    table = found.table
    if len(table) > most:  # what is dominated is chosen last
        wanted = pl.col("configuration") == choice.configuration
        table = table.sort(pl.col("pareto") | wanted, descending=True, maintain_order=True)
        table = table.head(most)
        table = table.sort("quality", "latency", descending=[True, False])
    names = table["configuration"].to_list()
    by = found.measure
    return Chosen(
        result,
        results,
        by,
        table,
        in_words(results.frame, result.manifest.get("config")),
        results.similar_by_name(by, names, SEED),
        asked,
        choice,
        int(pick(table, asked)[1].sum()),
        row is not None,
    )


def _taken(found: Recommendation, row: str) -> Choice:
    """A row that was named, set against all others."""
    table, results, by = found.table, found.results, found.measure
    mine = table.filter(pl.col("configuration") == row)
    if results is None or not mine.height:
        raise InputError(f"{row} has no {by}", remedy="name another row")
    others = table["configuration"].to_list()
    return Choice(
        limits=Limits(),
        feasible=True,
        row=mine.row(0, named=True),
        unsettled=results.unsettled(row, by, others),
        similar=results.not_significantly_different(row, by, others, SEED),
    )


# -------------------------------------------------------------------------------- the section


def decision(sweep: Chosen, at: int, title: str) -> Section:
    """The choice and what it rests on."""
    row = sweep.row
    name = sweep.words[row["configuration"]]
    body = [
        *(paragraph(sentence(said), "caveat") for said in sweep.result.manifest.get("caveats", ())),
        _limits(sweep, at),
        element(
            "div",
            [
                element("p", _why(sweep), class_="why"),
                element("p", name.full, class_="name", aria_live="polite"),
                _figures(sweep, row),
                element("p", _command(sweep), class_="command"),
                element("p", _flattered(sweep), class_="note expected"),
            ],
            class_="choice" if sweep.choice.feasible else "choice none",
        ),
        element(
            "div",
            [
                element("div", [_alike(sweep, row)], class_="alike"),
                element("div", [_changes(sweep)], class_="changes"),
            ],
            class_="beside",
        ),
        *_holes(sweep, row),
        _data(sweep),
    ]
    return Section(f"choice-{at}", title, [about(sweep)], body, kind="decision", quiet=True)


def about(sweep: Chosen) -> str:
    """The data in a sentence."""
    made = sweep.result.manifest
    passages = made.get("passages")
    of = f" of {plural(passages, 'passage')}" if isinstance(passages, int) else ""
    machine = made.get("machine") or {}
    where = f", on {plural(machine['cores'], 'core')}" if machine.get("cores") else ""
    return (
        f"{plural(made['queries'], 'question was', 'questions were')} asked{of} in "
        f"{plural(made['configurations'], 'configuration')}{_when(made.get('made'))}{where}. "
        f"Quality is {sweep.by}."
    )


def sentence(note: str) -> str:
    """A note of a sweep as the page says it."""
    return f"{note[:1].upper()}{note[1:]}."


def _when(made: Any) -> str:
    try:
        day = datetime.fromisoformat(made)
    except (TypeError, ValueError):
        return ""
    return f" on {day.day} {day:%B %Y}"


def _why(sweep: Chosen) -> str:
    if sweep.named:
        place = sweep.table["configuration"].index_of(sweep.name)
        return f"As asked for: place {(place or 0) + 1:,} of {len(sweep.table):,} by {sweep.by}"
    limits = sweep.limits
    if not sweep.choice.feasible:
        return f"Nothing is {limits.words()}. Closest: {shortfall(sweep.row, limits)}"
    lead = "The choice" if limits == Limits(currency=limits.currency) else limits.words()
    count = sweep.within
    rule = f"the best {sweep.by}" if limits.quality is None else "the fastest"
    return f"{lead[:1].upper()}{lead[1:]}: {rule} of {plural(count, 'configuration')}"


def _figures(sweep: Chosen, row: dict[str, Any]) -> Markup:
    """The four figures that a limit can be set on."""
    paid = f"without {row['unpriced']}" if row["unpriced"] else "per 1,000 queries"
    parts = [
        (sweep.by, sweep.by, f"{row['quality']:.3f}", span(row)),
        ("p95 latency", "p95 ms", _ms(row["latency"]), _slow(row)),
        ("cost", "cost per 1,000", sweep.money(row["cost"]), paid),
        ("indexes", "index MB", _mb(row["memory"]), ""),
    ]
    return element(
        "dl",
        [
            element(
                "div",
                [
                    element("dt", name, title=meaning(term), data_tip=meaning(term)),
                    element("dd", value, class_="value"),
                    element("dd", beside, class_="beside-it"),
                ],
            )
            for name, term, value, beside in parts
        ],
        class_="figures",
    )


def _slow(row: dict[str, Any]) -> str:
    if row["p95_low"] is None or row["p95_high"] is None:
        return f"give or take {_ms(row['jitter'])}"
    return f"{row['p95_low']:.1f} to {row['p95_high']:.1f} ms"


_FLAGS = (  # the axis in the script, the limit, its option
    ("ms", "sla_ms", "--sla-ms"),
    ("usd", "budget", "--budget"),
    ("mb", "memory_mb", "--memory-mb"),
    ("quality", "quality", "--quality"),
)


def _command(sweep: Chosen) -> str:
    """The same question on the command line."""
    given = ((option, getattr(sweep.limits, name)) for _, name, option in _FLAGS)
    flags = [f"{option} {value:.12g}" for option, value in given if value is not None]
    return " ".join(["rankproof recommend", _folder(sweep), *flags])


def _folder(sweep: Chosen) -> str:
    """The sweep as a command names it; where it lies on this machine nobody else needs to know."""
    folder = sweep.result.path.parent
    return escape_controls(typed(folder.name if folder.is_absolute() else folder))


def _flattered(sweep: Chosen) -> str:
    expected = sweep.choice.expected
    if expected is None:
        return ""
    return (
        "The best of several on these questions is flattered by chance: on questions that it was "
        f"not chosen by, expect about {expected:.3f}{in_brackets(sweep.choice.expected_ci)}."
    )


def _alike(sweep: Chosen, row: dict[str, Any]) -> Markup:
    """What is not told apart from the choice, the cheaper and faster first."""
    head = element("h3", "Not told apart from it")
    if len(sweep.table) == 1:
        return head + paragraph("Nothing else was swept.")
    if not sweep.choice.feasible:
        return head + paragraph("Nothing is within these limits.")
    if sweep.choice.similar is None:
        words = "Whether another is as good is not known: there are no figures of single questions."
        return head + paragraph(words)
    level = set(sweep.choice.similar)
    others = [r for r in sweep.table.iter_rows(named=True) if r["configuration"] in level]
    if not others:
        words = "Nothing: every other one is worse by more than chance explains."
        return head + paragraph(words if sweep.within > 1 else _ALONE)
    others.sort(key=lambda r: (not cheaper_or_faster(r, row), -r["quality"]))
    lines = [_other(sweep, r, row) for r in others]
    rest = []
    if lines[_NAMED:]:
        more = element("ul", lines[_NAMED:])
        rest = [fold(f"and {len(lines) - _NAMED} more", [more])]
    return head + element("ul", lines[:_NAMED]) + Markup("").join(rest)


_ALONE = "Nothing else is within these limits."


def _other(sweep: Chosen, r: dict[str, Any], row: dict[str, Any]) -> Markup:
    said = [f"{sweep.by} {r['quality']:.3f}"]
    if faster(r, row):
        said.append(f"faster: {_ms(r['latency'])}")
    if r["cost"] < row["cost"]:
        said.append(f"cheaper: {sweep.money(r['cost'])}")
    name = sweep.words[r["configuration"]].short
    return element("li", [shown(name), element("span", f" {', '.join(said)}", class_="quiet")])


def _changes(sweep: Chosen) -> Markup:
    """The nearest limits at which another would be chosen."""
    row = sweep.row
    if sweep.named:
        best, _ = pick(sweep.table, sweep.limits)
        line = _instead(sweep, "The best", best)
        return element("h3", "What would be chosen") + element("ul", [line])
    limits = sweep.limits
    axes = (
        ("sla_ms", "latency", _ms),
        ("budget", "cost", sweep.money),
        ("memory_mb", "memory", _mb),
    )
    lines: list[tuple[str, dict[str, Any]]] = []

    def another(lead: str, axis: str, value: float | None) -> bool:
        """Whether with this limit another is chosen."""
        change: dict[str, Any] = {axis: value}
        other, within = pick(sweep.table, replace(limits, **change))
        same = sweep.choice.feasible and other["configuration"] == row["configuration"]
        differs = bool(within.any()) and not same
        lines.extend([(lead, other)] * differs)
        return differs

    for limit, column, form in axes:
        values = sweep.table[column].drop_nulls()
        if row[column] is not None and (below := values.filter(values < row[column])).len():
            another(f"Below {form(row[column])}", limit, float(below.to_numpy().max()))
        given = getattr(limits, limit)
        if given is not None:
            for value in values.filter(values > given).unique().sort():
                raised = _raised(value)
                only: dict[str, Any] = {limit: raised, "currency": limits.currency}
                words = Limits(**only).words()
                if another(f"W{words[1:]}", limit, raised):
                    break
    if limits.quality is not None:
        another("Without a target", "quality", None)
    found = [_instead(sweep, lead, other) for lead, other in lines]
    words = "Nothing: with no other limit on time, money or memory another is chosen."
    if not sweep.choice.feasible:
        words = "No single limit: several would have to be raised."
    listed = element("ul", found) if found else paragraph(words)
    return element("h3", "What would change it") + listed


def _raised(value: float) -> float:
    """A limit that lets a value in: of two digits, as a slider has it."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.6g}")


def _instead(sweep: Chosen, lead: str, row: dict[str, Any]) -> Markup:
    """Another choice, and its figures."""
    name = shown(sweep.words[row["configuration"]].short)
    brief = f" {sweep.by} {row['quality']:.3f}, {_ms(row['latency'])}, {sweep.money(row['cost'])}"
    return element("li", [element("b", f"{lead}: "), name, element("span", brief, class_="quiet")])


def _holes(sweep: Chosen, row: dict[str, Any]) -> list[Markup]:
    """What share is judged, and what the rest could do."""
    found = [paragraph(_judged(row), "holes")]
    if sweep.choice.unsettled:
        names = [sweep.words[n].short for n in sweep.choice.unsettled if n in sweep.words]
        some = "; ".join(names[:3]) + (f"; and {len(names) - 3} more" if len(names) > 3 else "")
        words = (
            f"Grades of unjudged passages {could(all(sweep.choice.unsettled.values()))} put {some} "
            "level with it or ahead: judge them (rankproof holes) before it is decided."
        )
        found.append(paragraph(words, "holes unsettled"))
    return found


def _judged(row: dict[str, Any]) -> str:
    share = row["judged"]
    ends = (row["lowest"], row["highest"])
    if (
        share is None
        or math.isnan(share)
        or share >= 1
        or (None not in ends and ends[0] == ends[1])
    ):
        return ""
    words = (
        f"Of the passages behind this figure {share:.0%} are judged; the rest counts as not "
        "relevant."
    )
    if None not in ends:
        words += f" Judged otherwise, it lies between {row['lowest']:.3f} and {row['highest']:.3f}."
    return words


# -------------------------------------------------------------------------------- the sliders


def _limits(sweep: Chosen, at: int) -> Markup:
    """A slider for each limit on which configurations differ; the script shows them."""
    sliders = []
    for key, column, label in (
        ("ms", "latency", "p95 latency at most"),
        ("usd", "cost", "cost at most"),
        ("mb", "memory", "indexes at most"),
        ("quality", "surely", f"{sweep.by} at least"),
    ):
        values = sweep.table[column].drop_nulls().drop_nans()
        unpriced = key == "usd" and sweep.table["unpriced"].null_count() < len(sweep.table)
        if values.n_unique() < 2 or unpriced:  # a budget with stages that nobody priced
            continue
        name = f"{key}-{at}"
        low = key == "quality"
        sliders.append(
            element(
                "div",
                [
                    element("label", label, for_=name),
                    element("output", "any", for_=name),
                    element(
                        "input",
                        id=name,
                        type="range",
                        min="0",
                        max="1000",
                        value="0" if low else "1000",
                        step="1",
                        data_axis=key,
                        data_least=repr(float(values.min())),  # type: ignore[arg-type]
                        data_most=repr(float(values.max())),  # type: ignore[arg-type]
                    ),
                ],
                class_="limit",
            )
        )
    return element("div", sliders, class_="limits", hidden="")


def _data(sweep: Chosen) -> Markup:
    """What the script chooses from: one list a column, so that names of columns stand once."""
    order = {name: at for at, name in enumerate(sweep.table["configuration"])}
    placed = {name: at for at, name in enumerate(sorted(order))}
    level = sweep.choice.similar
    columns = (
        *("quality", "low", "high", "surely", "latency", "jitter", "among_network"),
        *("cost", "memory"),
        *("prompt_k", "k", "stages", "unpriced", "p95_low", "p95_high"),
        *("judged", "lowest", "highest"),
    )
    data: dict[str, Any] = {
        "by": sweep.by,
        "folder": _folder(sweep),
        "limits": {axis: getattr(sweep.limits, name) for axis, name, _ in _FLAGS},
        "currency": money(0, sweep.limits.currency, "").rstrip("0"),
        "full": [escape_controls(sweep.words[name].full) for name in order],
        "short": [escape_controls(sweep.words[name].short) for name in order],
        **{name: plain(sweep.table[name].to_list()) for name in columns},
        "place": [placed[name] for name in order],
        "first": order[sweep.name],
        "named": sweep.named,
        "level": None if level is None else [order[name] for name in level if name in order],
        "expected": sweep.choice.expected,
        **_values(sweep, list(order)),
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    safe = Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))
    return Markup('<script type="application/json" class="candidates">{}</script>').format(safe)


def _values(sweep: Chosen, names: list[str]) -> dict[str, Any]:
    """Figures of single questions, and where the draws of them begin: with these the script tells
    apart what is within limits as `recommend` does. None where they would not fit."""
    found, values = sweep.results.shared_values(sweep.by, names)
    one = sweep.results.shared_values(sweep.by, names[:1])[1]
    fits = 2 <= values.shape[1] <= _DRAWN and values.size <= _CELLS
    same = found == names and one.shape[1] == values.shape[1]  # all on the same questions
    if not (fits and same and values.min() >= 0 and values.max() <= 1):
        return {"values": None}
    codes = np.rint(values * PARTS).astype("<u2")
    state, increment = generator_state(SEED)
    return {
        "values": b64encode(codes.tobytes()).decode(),
        "parts": PARTS,
        "state": str(state),
        "increment": str(increment),
        "bags": JOINT_RESAMPLES,
        "confidence": CONFIDENCE,
        "few": MIN_QUERIES,
    }


# -------------------------------------------------------------------------------- the figures


def _ms(value: float) -> str:
    return f"{value:.{1 if value < 10 else 0}f} ms"


def _mb(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.{1 if value < 10 else 0}f} MB" if value >= 0.1 else f"{value:.3f} MB"


def span(row: dict[str, Any]) -> str:
    """The interval of a quality."""
    if row["low"] is None or row["high"] is None:
        return "no interval"
    return f"{row['low']:.3f} to {row['high']:.3f}"
