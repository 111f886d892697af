"""What an audit shows: which number formats are safe, and what else changes how that is read.

A setting is safe if it equals float32 within `TOLERANCE` on every measure, by the rule of
`statistics.labels`, and the order of ties moves no measure by more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from rankproof.audit.readings import Lead, Reading
from rankproof.audit.results import Audit
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure
from rankproof.presentation.lead_wording import ZERO, sign
from rankproof.presentation.result import Summary

TOLERANCE = 0.01  # of a measure
_SMALLEST_SHOWN = 0.00005  # smaller values round to 0.0000
_State = Literal["safe", "undecided", "unsafe"]
_STATES: tuple[_State, ...] = ("safe", "undecided", "unsafe")
_WAYS = {
    "high precision": "high precision",
    "decoded": "rescoring",
    "original": "rescoring",
}


def audit_summary(audit: Audit) -> Summary:
    """Return which formats are safe, what models and ties change, and how it was measured."""
    from rankproof.audit.tables import describe_model, policy_lines

    notes = [
        *_meaning(audit),
        *([_count_open_leads(audit)] if audit.leads else []),
        *_compare_noise(audit),
        *_depth_note(audit),
        *audit.notes,
        *_missing_note(audit),
    ]
    details = [*map(describe_model, audit.made), *policy_lines(audit), *_METHOD]
    return Summary.of(answer(audit), notes, details=details)


_METHOD = (
    "as engines score it: all arithmetic in the format; high precision: the float32 sum of a "
    "floating-point format; rescored: candidates of codes scored again by the original vectors.",
    "range from ties: from the worst order of tied documents to the best.",
)


def answer(audit: Audit) -> str:
    """Return which formats are safe, which only with high precision or rescoring, which not."""
    if all(audit.float32_reading(reading) is None for reading in audit.readings):
        widest = _widest_range(audit.readings)
        if widest.size <= ZERO:
            return "No order of ties changes a score; there is no float32 to compare with."
        place = f"{widest.measure} by {_size(widest.size)} in {_setting(widest.reading, audit)}"
        return f"Ties move {place}; there is no float32 to compare with."
    groups: dict[str, list[str]] = {}
    for name, readings in _by_format(audit).items():
        groups.setdefault(_group_of(readings, audit), []).append(name)
    others = [name for name in groups.pop("Safe", []) if name != "float32"]
    groups |= {"Safe": others} if others else {}
    order = ["Safe", *(f"Safe only with {way}" for way in dict.fromkeys(_WAYS.values()))]
    order += ["Undecided", "Not safe"]
    lines = [f"{group}: {', '.join(groups[group])}." for group in order if group in groups]
    return " ".join(lines) or "There is no other format to compare with float32."


def _by_format(audit: Audit) -> dict[str, list[Reading]]:
    """Return the readings of each format and number of dimensions, of all models and datasets."""
    by_format: dict[str, list[Reading]] = {}
    for reading in audit.readings:
        cut = "" if reading.is_full else f" at {reading.dimensions} dimensions"
        by_format.setdefault(f"{reading.format}{cut}", []).append(reading)
    return by_format


def _group_of(readings: Sequence[Reading], audit: Audit) -> str:
    """Return the heading under which the answer names a format."""
    states: dict[str, list[_State]] = {}
    for reading in readings:
        states.setdefault(reading.scoring, []).append(_state(reading, audit))
    worst = {scoring: max(found, key=_STATES.index) for scoring, found in states.items()}
    if worst.get("plain") == "safe":
        return "Safe"
    for scoring, way in _WAYS.items():
        if worst.get(scoring) == "safe":
            return f"Safe only with {way}"
    return "Undecided" if "undecided" in worst.values() else "Not safe"


def _state(reading: Reading, audit: Audit) -> _State:
    """Return whether a setting equals float32 within the tolerance, whatever the order of ties."""
    evaluation = reading.evaluation
    if any(evaluation[measure].range > TOLERANCE for measure in evaluation):
        return "unsafe"
    labels = {
        difference.label(measure.sign, TOLERANCE)
        for measure, difference in audit.from_float32(reading).items()
    }
    if "behind" in labels:
        return "unsafe"
    return "undecided" if "undecided" in labels else "safe"


def _meaning(audit: Audit) -> list[str]:
    """Return what safe means, where the answer says it."""
    if not any(audit.from_float32(reading) for reading in audit.readings):
        return []
    names = ", ".join(map(str, audit.measures))
    queries = plural(audit.readings[0].ties.queries, "query")
    return [
        f"Safe: {names} within {TOLERANCE} of float32 (95% CI, {queries}) in any order of ties."
    ]


def _missing_note(audit: Audit) -> list[str]:
    missing = audit.readings[0].evaluation.missing
    if not missing:
        return []
    return [f"{plural(missing, 'judged query is', 'judged queries are')} not among those audited."]


def _depth_note(audit: Audit) -> list[str]:
    """Return in how many lists ranges may be wider than the lists can show."""
    touched = [(max(r.open.values(), default=0), r) for r in audit.readings]
    count, reading = max(
        touched, key=lambda item: (item[0] > 0, item[1].pipeline.is_plain, item[0])
    )
    if not count:
        return []
    lists = f"in {count} of {reading.ties.queries} lists of {_setting(reading, audit)}"
    if reading.pipeline.rescores:
        return [f"Tie order chose which candidates were rescored {lists}: --candidates-factor 8."]
    return [f"The last tie goes past the depth searched {lists}: ranges may be wider (--k)."]


class _Widest(NamedTuple):
    """The reading and measure with the widest range over tie orders."""

    size: float
    reading: Reading
    measure: Measure


def _widest_range(readings: Sequence[Reading]) -> _Widest:
    """Return the first reading and measure with the widest range."""
    ranges = (_Widest(r.evaluation[m].range, r, m) for r in readings for m in r.evaluation)
    return max(ranges, key=lambda widest: widest.size)


def _compare_noise(audit: Audit) -> list[str]:
    """Return what moves a value more: noise of repeated runs, the run's format, or tie order."""
    noises, format_shifts, ranges = [], [0.0], []
    for reading in audit.readings:
        exact = audit.float32_reading(reading)
        for measure, noise in (reading.noise or {}).items():
            summary = reading.evaluation[measure]
            noises.append(noise)
            ranges.append(summary.range)
            if exact:
                shift = abs(summary.expected - exact.evaluation[measure].expected)
                format_shifts.append(shift)
    if not noises:
        return []
    largest = {
        "other batches and padding": max(noises),
        "the format a model runs in": max(format_shifts),
        "tie order": max(ranges),
    }
    cause = max(largest, key=lambda name: largest[name])
    sizes = [f"{name} {_size(size) if size > ZERO else '0'}" for name, size in largest.items()]
    comparison = f"{cause} moves it most" if largest[cause] > ZERO else "nothing moves it"
    return [f"The most that any score moves: {_join(sizes)}; {comparison}."]


def _count_open_leads(audit: Audit) -> str:
    """Return in how many comparisons of models something other than the models decides."""
    exact_sign = {
        (lead.a, lead.b, lead.dataset, lead.measure): sign(lead.expected)
        for lead in audit.leads
        if lead.is_float32
    }
    open_leads = sum(not lead.certain for lead in audit.leads)
    reversed_leads = sum(
        sign(lead.expected) * exact_sign.get((lead.a, lead.b, lead.dataset, lead.measure), 0) < 0
        for lead in audit.leads
    )
    count = len(audit.leads)
    clauses = [f"tie order decides {open_leads}"] * (open_leads > 0)
    clauses += [f"a format reverses {reversed_leads}"] * (reversed_leads > 0)
    if not clauses:
        return f"No tie order and no format changes any of {count} comparisons of two models."
    return f"Of {count} comparisons of two models, {' and '.join(clauses)} (`words` in JSON)."


def describe_subject(reading: Reading | Lead, audit: Audit) -> str:
    """Return model and dataset, each followed by a comma, where there are several of them."""
    names_model = isinstance(reading, Reading) and len(audit.models) > 1
    model = f"{reading.model}, " if names_model else ""  # type: ignore[union-attr]
    dataset = f"{reading.dataset}, " if len(audit.datasets) > 1 else ""
    return model + dataset


def _setting(reading: Reading, audit: Audit) -> str:
    """Return model and dataset, where there are several, and the setting."""
    return describe_subject(reading, audit) + reading.pipeline.name


def _size(extent: float) -> str:
    """Return a range or a difference to four decimals."""
    return f"{extent:.4f}" if extent >= _SMALLEST_SHOWN else "less than 0.0001"


# ------------------------------------------------------------------------------ the order of models


def describe_orders(audit: Audit) -> list[str]:
    """Return for each pair of models where tie orders or formats change who is ahead."""
    leads_of: dict[tuple[str, str, str, Measure], list[Lead]] = {}
    for lead in audit.leads:
        pair = (describe_subject(lead, audit), lead.a, lead.b, lead.measure)
        leads_of.setdefault(pair, []).append(lead)
    return [
        f"{place}{sentence}"
        for (place, a, b, measure), leads in leads_of.items()
        for sentence in _describe_pair(a, b, measure, leads)
    ]


def _describe_pair(a: str, b: str, measure: Measure, leads: list[Lead]) -> list[str]:
    """Return sentences on one measure of two models: where ties or formats decide who is ahead."""
    lines = [
        *_describe_reversals(a, b, measure, leads),
        *_describe_open_leads(a, b, measure, leads),
        *_describe_format_reversals(a, b, measure, leads),
    ]
    signs = {sign(measure.sign * lead.expected) for lead in leads}
    if lines or len(signs) != 1:
        return lines
    if signs == {0}:
        return [f"{measure}: {a} and {b} are equal in every format audited."]
    ahead, behind = (a, b) if signs == {1} else (b, a)
    return [
        f"{measure}: {ahead} is ahead of {behind} in every format audited, under every tie order."
    ]


def _describe_reversals(a: str, b: str, measure: Measure, leads: list[Lead]) -> list[str]:
    """Return a sentence for each setting whose ties, as broken, reverse the expected order."""
    return [
        f"{measure}, {lead.pipeline.name}: reversed. As ties happen to be broken "
        f"{_who_leads(measure.sign * lead.difference.oblivious, a, b)}; over all orders "
        f"{_who_leads(measure.sign * lead.expected, a, b)}."
        for lead in leads
        if lead.reversed
    ]


def _describe_open_leads(a: str, b: str, measure: Measure, leads: list[Lead]) -> list[str]:
    """Return a sentence that names the settings in which tie order decides who is ahead."""
    settings = []
    for lead in leads:
        if not lead.certain:
            form, _, scoring = lead.pipeline.name.partition(", ")
            settings.append(f"{form} ({scoring})")
    if not settings:
        return []
    return [f"{measure}: whether {a} or {b} is ahead depends on tie order in {_join(settings)}."]


def _describe_format_reversals(a: str, b: str, measure: Measure, leads: list[Lead]) -> list[str]:
    """Return a sentence for each setting whose expected order is not that of float32."""
    exact = next((lead for lead in reversed(leads) if lead.is_float32), None)
    if exact is None:
        return []
    return [
        f"{measure}: in float32 {_who_leads(measure.sign * exact.expected, a, b)}, but in "
        f"{lead.pipeline.name} {_who_leads(measure.sign * lead.expected, a, b)}: the format "
        "reverses the order."
        for lead in leads
        if sign(lead.expected) * sign(exact.expected) < 0
    ]


def _who_leads(gain: float, a: str, b: str) -> str:
    """Return who leads by how much, where a positive gain favors a."""
    if sign(gain) == 0:
        return f"{a} and {b} are equal"
    return f"{a if gain > 0 else b} leads by {_size(abs(gain))}"


def _join(parts: Iterable[str]) -> str:
    """Return "a, b and c"."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last
