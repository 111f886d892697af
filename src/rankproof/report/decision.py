"""The opening of a page with a sweep: the data, the limits, the choice, what would change it.

The rules are those of `recommend`. The page's script has them too (`assets/page.js`), so that its
sliders can choose again without a server; a test compares the two.
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

from rankproof.foundation.errors import InputError
from rankproof.foundation.phrasing import as_sentence, plural, typed
from rankproof.foundation.printable import escape_controls
from rankproof.presentation.json_values import plain
from rankproof.presentation.markup import Html, element, escape, join
from rankproof.report.configuration_names import ConfigurationName, name_configurations
from rankproof.report.glossary import meaning
from rankproof.report.page_elements import Section, fold, paragraph
from rankproof.report.result_files import StoredResult
from rankproof.statistics.distributions import t_quantile
from rankproof.statistics.family import LEAST_ERROR
from rankproof.statistics.intervals import CONFIDENCE, MIN_QUERIES
from rankproof.statistics.resampling import JOINT_RESAMPLES, generator_state
from rankproof.tradeoffs.recommend import Choice, Recommendation, in_brackets, recommend
from rankproof.tradeoffs.results import LEVEL, Results, money, read_results
from rankproof.tradeoffs.selection import Limits, cheaper_or_faster, faster, pick, shortfall

SEED = 0
VALUE_PARTS = 55_440  # values are stored as multiples of 1/55,440: halves to twelfths stay exact
_LISTED = 6  # configurations listed beside the choice; the others are folded
_STORED_VALUES = 200_000  # values of single questions in a page: half a megabyte
_RESAMPLED_QUESTIONS = 2_000  # that the script resamples within a second


@dataclass(frozen=True)
class ShownSweep:
    """A sweep as the page shows it."""

    result: StoredResult
    results: Results
    measure: str  # by which configurations are chosen
    table: pl.DataFrame  # as `recommend` has it, best first
    names: dict[str, ConfigurationName]
    limits: Limits  # that the page opens with
    choice: Choice  # within the limits, as `recommend` makes it; or the row that was named
    within_limits: int  # configurations
    is_named: bool  # a row was named: there was nothing to choose

    @property
    def row(self) -> dict[str, Any]:
        """The values of the chosen configuration."""
        return self.choice.row

    @property
    def name(self) -> str:
        """The chosen configuration."""
        return self.choice.configuration

    def similar_to(self, name: str) -> set[str]:
        """Names of the configurations that do not differ significantly in quality from one."""
        family = self.table["configuration"].to_list()
        labels = self.results.labels(name, self.measure, family, SEED) or {}
        return {other for other, label in labels.items() if label == LEVEL}

    @property
    def free(self) -> str:
        """Why a cost of 0 is 0; "" if a generator is configured."""
        generator = (self.result.manifest.get("config") or {}).get("generator")
        return "" if generator else "no generator configured"

    def money(self, amount: float) -> str:
        """Return an amount in the sweep's currency; a dash for 0 if no generator is configured."""
        return money(amount, self.limits.currency) if amount or not self.free else "–"

    def brief(self, row: dict[str, Any]) -> str:
        """Return quality, latency and cost of a configuration; no cost that is a dash."""
        values = [f"{self.measure} {row['quality']:.3f}", _milliseconds(row["latency"])]
        cost = self.money(row["cost"])
        return ", ".join(values if cost == "–" else [*values, cost])


def read_sweep(
    result: StoredResult, row: str | None, limits: Limits | None, limit: int
) -> ShownSweep:
    """Read a sweep and choose within the limits, or take the configuration named `row`.

    At most `limit` configurations are kept, for the sliders to choose from.
    """
    results = read_results(result.path.parent)
    limits = replace(limits or Limits(), currency=results.currency)
    bounds = {name: value for name, value in asdict(limits).items() if name != "currency"}
    recommendation = recommend(results, measure=result.manifest["best_by"], seed=SEED, **bounds)
    choice = recommendation.choices[-1] if row is None else _named_choice(recommendation, row)
    table, measure = recommendation.table, recommendation.measure
    if len(table) > limit:  # configurations that others dominate go first
        is_kept = pl.col("pareto") | (pl.col("configuration") == choice.configuration)
        table = table.sort(is_kept, descending=True, maintain_order=True).head(limit)
        table = table.sort("quality", "latency", descending=[True, False])
    return ShownSweep(
        result=result,
        results=results,
        measure=measure,
        table=table,
        names=name_configurations(results.frame, result.manifest.get("config")),
        limits=limits,
        choice=choice,
        within_limits=int(pick(table, limits)[1].sum()),
        is_named=row is not None,
    )


def _named_choice(recommendation: Recommendation, name: str) -> Choice:
    """Return a configuration as a choice, compared with all others."""
    table, measure = recommendation.table, recommendation.measure
    results = recommendation.results
    rows = table.filter(pl.col("configuration") == name)
    if results is None or not rows.height:
        raise InputError(f"{name} has no {measure}", remedy="name another row")
    others = table["configuration"].to_list()
    return Choice(
        limits=Limits(),
        feasible=True,
        row=rows.row(0, named=True),
        labels=results.labels(name, measure, others, SEED),
        unsettled=results.unsettled(name, measure, others, SEED),
    )


# -------------------------------------------------------------------------------- the section


def decision_section(sweep: ShownSweep, position: int, title: str) -> Section:
    """Return the choice and what it rests on."""
    row = sweep.row
    caveats = sweep.result.manifest.get("caveats", ())
    choice = [
        element("p", _reason(sweep), class_="why"),
        element("p", sweep.names[sweep.name].full, class_="name", aria_live="polite"),
        _key_values(sweep, row),
        element("p", _command(sweep), class_="command"),
        element("p", _expected_sentence(sweep), class_="note expected"),
    ]
    beside = [
        element("div", [_similar_configurations(sweep, row)], class_="alike"),
        element("div", [_changes(sweep)], class_="changes"),
    ]
    body = [
        *(paragraph(as_sentence(caveat), "caveat") for caveat in caveats),
        _sliders(sweep, position),
        element("div", choice, class_="choice" if sweep.choice.feasible else "choice none"),
        element("div", beside, class_="beside"),
        *_unjudged_paragraphs(sweep, row),
        _script_data(sweep),
    ]
    words = [data_sentence(sweep)]
    return Section(f"choice-{position}", title, words, body, kind="decision", quiet=True)


def data_sentence(sweep: ShownSweep) -> str:
    """Return what was swept: questions, passages, configurations, day and machine."""
    manifest = sweep.result.manifest
    passages = manifest.get("passages")
    of_passages = f" and {plural(passages, 'passage')}" if isinstance(passages, int) else ""
    machine = manifest.get("machine") or {}
    where = f", on {plural(machine['cores'], 'core')}" if machine.get("cores") else ""
    return (
        f"{plural(manifest['queries'], 'question')}{of_passages}, "
        f"{plural(manifest['configurations'], 'configuration')}{_day(manifest.get('made'))}"
        f"{where}. Quality is {sweep.measure}."
    )


def _day(timestamp: Any) -> str:
    """Return " on 3 May 2026", or "" where the time is not known."""
    try:
        day = datetime.fromisoformat(timestamp)
    except (TypeError, ValueError):
        return ""
    return f" on {day.day} {day:%B %Y}"


def _reason(sweep: ShownSweep) -> str:
    """Return why this configuration is shown."""
    if sweep.is_named:
        place = sweep.table["configuration"].index_of(sweep.name) or 0
        return f"As asked for: place {place + 1:,} of {len(sweep.table):,} by {sweep.measure}"
    limits = sweep.limits
    if not sweep.choice.feasible:
        return f"Nothing is {limits.words()}. Closest: {shortfall(sweep.row, limits)}"
    has_limits = limits != Limits(currency=limits.currency)
    lead = limits.lead() if has_limits else "The choice"
    rule = f"the best {sweep.measure}" if limits.quality is None else "the fastest"
    configurations = plural(sweep.within_limits, "configuration")
    return f"{lead}: {rule} of {configurations}"


def _key_values(sweep: ShownSweep, row: dict[str, Any]) -> Html:
    """Return the four values that a limit can be set on."""
    unit = f"without {row['unpriced']}" if row["unpriced"] else "per 1,000 queries"
    unit = sweep.free if sweep.free and not row["cost"] else unit
    values = [
        (sweep.measure, sweep.measure, f"{row['quality']:.3f}", interval_text(row)),
        ("p95 latency", "p95 ms", _milliseconds(row["latency"]), _latency_interval(row)),
        ("cost", "cost per 1,000", sweep.money(row["cost"]), unit),
        ("indexes", "index MB", _megabytes(row["memory"]), ""),
    ]
    entries = []
    for name, term, value, addition in values:
        parts = [
            element("dt", name, title=meaning(term), data_tip=meaning(term)),
            element("dd", value, class_="value"),
            element("dd", addition, class_="beside-it"),
        ]
        entries.append(element("div", parts))
    return element("dl", entries, class_="figures")


def _latency_interval(row: dict[str, Any]) -> str:
    if row["p95_low"] is None or row["p95_high"] is None:
        return f"give or take {_milliseconds(row['jitter'])}"
    return f"{row['p95_low']:.1f} to {row['p95_high']:.1f} ms"


_AXES = (  # the axis in the script, the field of Limits, the option
    ("ms", "sla_ms", "--sla-ms"),
    ("usd", "budget", "--budget"),
    ("mb", "memory_mb", "--memory-mb"),
    ("quality", "quality", "--quality"),
)


def _command(sweep: ShownSweep) -> str:
    """Return the command that asks the same question."""
    limits = ((option, getattr(sweep.limits, name)) for _, name, option in _AXES)
    options = [f"{option} {value:.12g}" for option, value in limits if value is not None]
    return " ".join(["rankproof recommend", _typed_folder(sweep), *options])


def _typed_folder(sweep: ShownSweep) -> str:
    """Return the sweep's path as typed in a command; of an absolute path the last folder alone."""
    folder = sweep.result.path.parent
    return escape_controls(typed(folder.name if folder.is_absolute() else folder))


def _expected_sentence(sweep: ShownSweep) -> str:
    """Return what to expect on new questions; "" where that is not known."""
    expected = sweep.choice.expected
    if expected is None:
        return ""
    return f"Expect about {expected:.3f}{in_brackets(sweep.choice.expected_ci)} on new questions."


# ------------------------------------------------------------------------------- alternatives


def _similar_configurations(sweep: ShownSweep, row: dict[str, Any]) -> Html:
    """Return a list of what is not significantly worse, the cheaper and faster first."""
    heading = element("h3", "Not significantly worse")
    similar = set(sweep.choice.similar or ())
    others = [r for r in sweep.table.iter_rows(named=True) if r["configuration"] in similar]
    reason = _reason_for_none(sweep, has_others=bool(others))
    if reason:
        return heading + paragraph(reason)
    others.sort(key=lambda other: (not cheaper_or_faster(other, row), -other["quality"]))
    items = [_similar_item(sweep, other, row) for other in others]
    listed = [element("ul", items[:_LISTED])]
    if items[_LISTED:]:
        listed.append(fold(f"and {len(items) - _LISTED} more", [element("ul", items[_LISTED:])]))
    return join([heading, *listed])


def _reason_for_none(sweep: ShownSweep, *, has_others: bool) -> str:
    """Return why no similar configuration is listed; "" where some are."""
    if len(sweep.table) == 1:
        return "Nothing else was swept."
    if not sweep.choice.feasible:
        return "Nothing is within these limits."
    if sweep.choice.similar is None:
        return "Whether another is as good is unknown: there are no values of single questions."
    if has_others:
        return ""
    if sweep.within_limits > 1:
        return "None: every other one is significantly worse."
    return "Nothing else is within these limits."


def _similar_item(sweep: ShownSweep, other: dict[str, Any], row: dict[str, Any]) -> Html:
    """Return a configuration, its quality, and what it has over the chosen `row`."""
    values = [f"{sweep.measure} {other['quality']:.3f}"]
    if faster(other, row):
        values.append(f"faster: {_milliseconds(other['latency'])}")
    if other["cost"] < row["cost"]:
        values.append(f"cheaper: {sweep.money(other['cost'])}")
    name = sweep.names[other["configuration"]].short
    return element("li", [escape(name), element("span", f" {', '.join(values)}", class_="quiet")])


def _changes(sweep: ShownSweep) -> Html:
    """Return the nearest limits at which another configuration would be chosen."""
    if sweep.is_named:
        best, _ = pick(sweep.table, sweep.limits)
        items = [_alternative_item(sweep, "The best", best)]
        return element("h3", "What would be chosen") + element("ul", items)
    items = [_alternative_item(sweep, lead, row) for lead, row in _other_choices(sweep)]
    heading = element("h3", "What would change it")
    if items:
        return heading + element("ul", items)
    if sweep.choice.feasible:
        words = "Nothing: with no other limit on time, money or memory another is chosen."
    else:
        words = "No single limit: several would have to be raised."
    return heading + paragraph(words)


def _other_choices(sweep: ShownSweep) -> list[tuple[str, dict[str, Any]]]:
    """Return changed limits in words, each with the row that is then chosen."""
    choices: list[tuple[str, dict[str, Any]]] = []
    axes = (
        ("sla_ms", "latency", _milliseconds),
        ("budget", "cost", sweep.money),
        ("memory_mb", "memory", _megabytes),
    )
    for limit, column, write in axes:
        values = sweep.table[column].drop_nulls()
        current = sweep.row[column]
        below = values.filter(values < current) if current is not None else values.clear()
        if below.len():
            row = _choice_with(sweep, limit, float(below.to_numpy().max()))
            choices += [(f"Below {write(current)}", row)] if row else []
        bound = getattr(sweep.limits, limit)
        if bound is None:
            continue
        for value in values.filter(values > bound).unique().sort():
            raised = _raise_to(value)
            row = _choice_with(sweep, limit, raised)
            if row:
                only: dict[str, Any] = {limit: raised, "currency": sweep.limits.currency}
                choices.append((Limits(**only).lead(), row))
                break
    if sweep.limits.quality is not None:
        row = _choice_with(sweep, "quality", None)
        choices += [("Without a target", row)] if row else []
    return choices


def _choice_with(sweep: ShownSweep, limit: str, value: float | None) -> dict[str, Any] | None:
    """Return the row chosen with one limit changed; None where it is the same or nothing fits."""
    change: dict[str, Any] = {limit: value}
    row, within = pick(sweep.table, replace(sweep.limits, **change))
    is_same = sweep.choice.feasible and row["configuration"] == sweep.name
    return row if within.any() and not is_same else None


def _raise_to(value: float) -> float:
    """Return the smallest limit of two digits that admits a value, as a slider has it."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.6g}")


def _alternative_item(sweep: ShownSweep, lead: str, row: dict[str, Any]) -> Html:
    """Return another choice with its quality, latency and cost."""
    name = escape(sweep.names[row["configuration"]].short)
    values = element("span", f" {sweep.brief(row)}", class_="quiet")
    return element("li", [element("b", f"{lead}: "), name, values])


# ------------------------------------------------------------------------ unjudged passages


def _unjudged_paragraphs(sweep: ShownSweep, row: dict[str, Any]) -> list[Html]:
    """Return what share is judged, and which comparisons the other passages could change."""
    paragraphs = [paragraph(_judged_sentence(row), "holes")]
    unsettled = sweep.choice.unsettled
    if unsettled:
        names = [sweep.names[name].short for name in unsettled if name in sweep.names]
        others = f"; and {len(names) - 3} more" if len(names) > 3 else ""
        words = (
            "Grades of unjudged passages could change the comparison with "
            f"{'; '.join(names[:3])}{others}: judge them first (rankproof holes)."
        )
        paragraphs.append(paragraph(words, "holes unsettled"))
    return paragraphs


def _judged_sentence(row: dict[str, Any]) -> str:
    """Return the judged share and the worst cases; "" where nothing is unjudged."""
    share, low, high = row["judged"], row["lowest"], row["highest"]
    has_bounds = low is not None and high is not None
    if share is None or math.isnan(share) or share >= 1 or (has_bounds and low == high):
        return ""
    words = (
        f"Of the passages behind this score {share:.0%} are judged; unjudged passages count as "
        "not relevant."
    )
    if has_bounds:
        words += f" Depending on their grades it lies between {low:.3f} and {high:.3f}."
    return words


# -------------------------------------------------------------------------------- the sliders


def _sliders(sweep: ShownSweep, position: int) -> Html:
    """Return a slider for each limit on which configurations differ; the script shows them."""
    sliders = []
    for axis, column, label in (
        ("ms", "latency", "p95 latency at most"),
        ("usd", "cost", "cost at most"),
        ("mb", "memory", "indexes at most"),
        ("quality", "surely", f"{sweep.measure} at least"),
    ):
        values = sweep.table[column].drop_nulls().drop_nans()
        # No budget can be set where a stage has no price.
        is_unpriced = axis == "usd" and sweep.table["unpriced"].null_count() < len(sweep.table)
        if values.n_unique() > 1 and not is_unpriced:
            sliders.append(_slider(axis, f"{axis}-{position}", label, values))
    return element("div", sliders, class_="limits", hidden="")


def _slider(axis: str, name: str, label: str, values: pl.Series) -> Html:
    slider = element(
        "input",
        id=name,
        type="range",
        min="0",
        max="1000",
        value="0" if axis == "quality" else "1000",
        step="1",
        data_axis=axis,
        data_least=repr(float(values.min())),  # type: ignore[arg-type]
        data_most=repr(float(values.max())),  # type: ignore[arg-type]
    )
    parts = [element("label", label, for_=name), element("output", "any", for_=name), slider]
    return element("div", parts, class_="limit")


def _script_data(sweep: ShownSweep) -> Html:
    """Return what the script chooses from: a list per column, as the short form of a table."""
    order = {name: at for at, name in enumerate(sweep.table["configuration"])}
    alphabetical = {name: at for at, name in enumerate(sorted(order))}
    similar = sweep.choice.similar
    columns = (
        *("quality", "low", "high", "surely", "latency", "jitter", "among_network"),
        *("cost", "memory"),
        *("prompt_k", "k", "stages", "unpriced", "p95_low", "p95_high"),
        *("judged", "lowest", "highest"),
    )
    data: dict[str, Any] = {
        "by": sweep.measure,
        "folder": _typed_folder(sweep),
        "limits": {axis: getattr(sweep.limits, name) for axis, name, _ in _AXES},
        "currency": money(0, sweep.limits.currency, "").rstrip("0"),
        "free": sweep.free,
        "full": [escape_controls(sweep.names[name].full) for name in order],
        "short": [escape_controls(sweep.names[name].short) for name in order],
        **{name: plain(sweep.table[name].to_list()) for name in columns},
        "place": [alphabetical[name] for name in order],
        "first": order[sweep.name],
        "named": sweep.is_named,
        "level": None if similar is None else [order[name] for name in similar if name in order],
        "expected": sweep.choice.expected,
        **_question_values(sweep, list(order)),
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    safe = Html(text.replace("<", "\\u003c").replace("&", "\\u0026"))
    return element("script", safe, type="application/json", class_="candidates")


def _question_values(sweep: ShownSweep, names: list[str]) -> dict[str, Any]:
    """Return the values of single questions and the state of the random draws.

    With these the script tests differences within other limits exactly as `recommend` does;
    `values` is None where they would not fit into a page.
    """
    known_names, values = sweep.results.shared_values(sweep.measure, names)
    questions_of_first = sweep.results.shared_values(sweep.measure, names[:1])[1].shape[1]
    fits = 2 <= values.shape[1] <= _RESAMPLED_QUESTIONS and values.size <= _STORED_VALUES
    same_questions = known_names == names and questions_of_first == values.shape[1]
    if not (fits and same_questions and values.min() >= 0 and values.max() <= 1):
        return {"values": None}
    multiples = np.rint(values * VALUE_PARTS).astype("<u2")
    state, increment = generator_state(SEED)
    return {
        "values": b64encode(multiples.tobytes()).decode(),
        "parts": VALUE_PARTS,
        "state": str(state),
        "increment": str(increment),
        "bags": JOINT_RESAMPLES,
        "confidence": CONFIDENCE,
        "few": MIN_QUERIES,
        "t": t_quantile((1.0 + CONFIDENCE) / 2.0, values.shape[1] - 1.0),
        "floor": LEAST_ERROR**2,
    }


# ------------------------------------------------------------------------------------ numbers


def _milliseconds(value: float) -> str:
    return f"{value:.{1 if value < 10 else 0}f} ms"


def _megabytes(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.{1 if value < 10 else 0}f} MB" if value >= 0.1 else f"{value:.3f} MB"


def interval_text(row: dict[str, Any]) -> str:
    """Return the 95% interval of a quality in words."""
    if row["low"] is None or row["high"] is None:
        return "no interval"
    return f"{row['low']:.3f} to {row['high']:.3f}"
