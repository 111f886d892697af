"""Which conclusions survive a precision, in sentences made of the values of an audit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from rankproof.audit.readings import Difference, Lead, Reading
from rankproof.audit.results import Audit
from rankproof.evaluation import MeanScore
from rankproof.foundation.phrasing import signed
from rankproof.measures import Measure
from rankproof.presentation.lead_wording import ZERO, sign

SCORING_PHRASES = {
    "plain": "plain",
    "high precision": "with high precision",
    "decoded": "rescored (decoded documents)",
    "original": "rescored (original documents)",
}
_SMALLEST_SHOWN = 0.00005  # smaller values round to 0.0000


def sentences(audit: Audit) -> list[str]:
    """Return a sentence per model and format, one on the widest range, then on pairs of models."""
    formats = groupby(audit.readings, lambda r: (r.subject, r.dimensions, r.format))
    lines = [_describe_format(list(group), audit) for _, group in formats]
    widest = _widest_range(audit.readings)
    if widest.size > ZERO:
        lines.append(
            f"Widest range: {widest.measure} in {_setting(widest.reading, audit)}, "
            f"{_size(widest.size)} between the worst and the best tie order."
        )
    else:
        lines.append("No figure of this audit rests on tie order.")
    return lines + _describe_orders(audit)


def verdict(audit: Audit) -> list[str]:
    """Return three sentences to know first, and one on noise where runs were repeated."""
    plain = [reading for reading in audit.readings if reading.pipeline.is_plain]
    careful = [reading for reading in audit.readings if not reading.pipeline.is_plain]
    lines = []
    if plain:
        widest = _widest_range(plain)
        setting = _setting(widest.reading, audit).replace(", plain", "")
        lines.append(
            f"Scored plainly, tie order alone moves {widest.measure} by {_size(widest.size)} in "
            f"{setting}, the most of any setting."
            if widest.size > ZERO
            else "Scored plainly, no figure rests on tie order."
        )
    if careful:
        widest = _widest_range(careful)
        lines.append(
            f"With high precision or rescored, the widest range left is {_size(widest.size)} "
            f"({widest.measure} in {_setting(widest.reading, audit)})."
            if widest.size > ZERO
            else "With high precision or rescored, every range is 0."
        )
    lines.append(_count_open_leads(audit) if audit.leads else _furthest_from_float32(audit))
    return lines + _compare_noise(audit)


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
    return [f"The most that any figure moves: {_join(sizes)}; {comparison}."]


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
    return (
        f"Of {len(audit.leads)} comparisons of two models, {open_leads} rest on tie order and in "
        f"{reversed_leads} the format reverses who leads in float32."
    )


def _furthest_from_float32(audit: Audit) -> str:
    """Return the setting whose expected value is furthest from that of float32."""
    differences = [
        (difference, reading, measure)
        for reading in audit.readings
        for measure, difference in audit.from_float32(reading).items()
    ]
    if not differences:
        return "There is no other setting to compare with float32."
    difference, reading, measure = max(differences, key=lambda row: abs(row[0].expected))
    size = abs(difference.expected)
    if size < _SMALLEST_SHOWN:
        return "In expectation every setting is as in float32."
    side = "above" if difference.expected > 0 else "below"
    # Comparisons with NaN, where too few queries differ, are false.
    is_significant = difference.ci[0] > 0 or difference.ci[1] < 0
    chance = "" if is_significant else ", which may be chance"
    return (
        f"In expectation {measure} is furthest from float32 in {_setting(reading, audit)}: "
        f"{_size(size)} {side}{_interval(difference)}{chance}."
    )


def _interval(difference: Difference) -> str:
    """Return the interval over queries; nothing where too few of them differ."""
    if math.isnan(difference.ci[0]):
        return ""
    low, high = map(signed, difference.ci)
    return f" (95% interval {low} to {high})".replace("-", "−")


def describe_subject(reading: Reading | Lead, audit: Audit) -> str:
    """Return model and dataset, each followed by a comma, where there are several of them."""
    names_model = isinstance(reading, Reading) and len(audit.models) > 1
    model = f"{reading.model}, " if names_model else ""  # type: ignore[union-attr]
    dataset = f"{reading.dataset}, " if len(audit.datasets) > 1 else ""
    return model + dataset


def _setting(reading: Reading, audit: Audit) -> str:
    """Return model and dataset, where there are several, and the setting."""
    return describe_subject(reading, audit) + reading.pipeline.name


def _describe_format(group: list[Reading], audit: Audit) -> str:
    """Return a sentence on all ways of scoring one format."""
    first = group[0]
    place = describe_subject(first, audit)
    cut = "" if first.is_full else f", {first.dimensions} dimensions"
    clauses = [_describe_reading(reading, audit, reading is first) for reading in group]
    if len(set(clauses)) == 1:
        scorings = ""
        if len(group) == 2:
            scorings = f", {_join([SCORING_PHRASES[r.scoring] for r in group])}"
        elif len(group) > 2:
            scorings = ", however scored"
        return f"{place}{first.format}{scorings}{cut}: {clauses[0]}."
    other_clauses = [
        f"{SCORING_PHRASES[reading.scoring]}, {clause}"
        for reading, clause in zip(group[1:], clauses[1:], strict=True)
    ]
    scoring = SCORING_PHRASES[first.scoring]
    return f"{place}{first.format}, {scoring}{cut}: {'; '.join([clauses[0], *other_clauses])}."


def _describe_reading(reading: Reading, audit: Audit, is_first: bool) -> str:
    """Return what tie order can change in one setting, and the first measure's expected value."""
    evaluation = reading.evaluation
    ranges = {m: evaluation[m] for m in evaluation if evaluation[m].range > ZERO}
    if ranges:
        spans = _join([f"{m} {_span(summary)}" for m, summary in ranges.items()])
        text = f"{'' if is_first else 'still '}{spans} depending on tie order"
    else:
        text = "the range is 0" if len(reading.evaluation) == 1 else "every range is 0"
    return f"{text}{_describe_cut(reading)}{_against_float32(reading, audit)}"


def _describe_cut(reading: Reading) -> str:
    """Return in how many lists the range may be wider than the lists can show."""
    touched = {measure: count for measure, count in reading.open.items() if count}
    if not touched:
        return ""
    lists = f"in {max(touched.values())} of {reading.ties.queries} lists"
    if reading.pipeline.rescores:
        return f", though {lists} tie order chose which candidates were rescored"
    measures = "" if len(touched) == len(reading.open) else f" for {_join(map(str, touched))}"
    return f", and more{measures}: {lists} the last tie goes past the depth searched"


def _span(summary: MeanScore) -> str:
    """Return the lowest and the highest value over tie orders."""
    low, high = f"{summary.min:.4f}", f"{summary.max:.4f}"
    if low == high:
        return f"{low} give or take less than 0.0001"
    return f"between {low} and {high}"


def _size(extent: float) -> str:
    """Return a range or a difference to four decimals."""
    return f"{extent:.4f}" if extent >= _SMALLEST_SHOWN else "less than 0.0001"


def _against_float32(reading: Reading, audit: Audit) -> str:
    """Return the first measure's expected value beside that of the exact float32 list."""
    measure = next(iter(reading.evaluation))
    expected = reading.evaluation[measure].expected
    value = f"{measure} {expected:.4f} expected"
    exact = audit.float32_reading(reading)
    if exact is None or exact is reading:
        return f" ({value})"
    other = "float32" if reading.is_full else f"float32 at {exact.dimensions} dimensions"
    if reading.format == "float32" and not exact.pipeline.is_plain:
        other = f"float32 {SCORING_PHRASES[exact.scoring]}"
    difference = expected - exact.evaluation[measure].expected
    if abs(difference) < _SMALLEST_SHOWN:
        is_float32 = reading.format == "float32" and reading.is_full
        return f" ({value})" if is_float32 else f" ({value}, as in {other})"
    side = "above" if difference > 0 else "below"
    interval = _interval(audit.from_float32(reading)[measure])
    interval = interval.replace("(", "[").replace(")", "]")
    return f" ({value}, {abs(difference):.4f} {side} {other}{interval})"


# ------------------------------------------------------------------------------ the order of models


def _describe_orders(audit: Audit) -> list[str]:
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
    return [f"{measure}: whether {a} or {b} is ahead rests on tie order in {_join(settings)}."]


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
