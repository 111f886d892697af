"""Which conclusions survive, in sentences made of the figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from rankproof.audit.results import Apart, Audit, Lead, Reading, Scoring
from rankproof.evaluation import Summary
from rankproof.foundation.phrasing import signed
from rankproof.measures import Measure
from rankproof.presentation.lead_wording import ZERO, sign

HOW: dict[Scoring, str] = {
    "plain": "plain",
    "high precision": "with high precision",
    "decoded": "rescored (decoded documents)",
    "original": "rescored (original documents)",
}


def sentences(audit: Audit) -> list[str]:
    """A sentence for each model and format, the widest range, then the order of the models."""
    said = []
    formats = groupby(audit.readings, lambda r: (r.subject, r.dimensions, r.format))
    for _, group in formats:
        said.append(_format(list(group), audit))
    extent, reading, measure = _widest(audit.readings)
    if extent > ZERO:
        where = f"{subject(reading, audit)}{reading.label}"
        said.append(
            f"Widest range: {measure} in {where}, {_size(extent)} between the worst and the best "
            "tie order."
        )
    else:
        said.append("No figure of this audit rests on tie order.")
    return said + _orders(audit)


def verdict(audit: Audit) -> list[str]:
    """What there is to know first: three sentences, and one of noise where runs were repeated."""
    plain = [reading for reading in audit.readings if reading.scoring == "plain"]
    careful = [reading for reading in audit.readings if reading.scoring != "plain"]
    said = []
    if plain:
        extent, reading, measure = _widest(plain)
        said.append(
            f"Scored plainly, tie order alone moves {measure} by {_size(extent)} in "
            f"{subject(reading, audit)}{reading.label.replace(', plain', '')}, the most of any "
            "setting."
            if extent > ZERO
            else "Scored plainly, no figure rests on tie order."
        )
    if careful:
        extent, reading, measure = _widest(careful)
        said.append(
            f"With high precision or rescored, the widest range left is {_size(extent)} "
            f"({measure} in {subject(reading, audit)}{reading.label})."
            if extent > ZERO
            else "With high precision or rescored, every range is 0."
        )
    last = _ahead_of_all(audit) if audit.leads else _furthest(audit)
    return [*said, last, *_noise(audit)]


def _noise(audit: Audit) -> list[str]:
    """Which moves a figure more: the noise of runs made again, the format run in, or tie order."""
    found = [
        (noise, audit.exact(r), r, m)
        for r in audit.readings
        for m, noise in (r.noise or {}).items()
    ]
    if not found:
        return []
    moved = {
        "other batches and padding": max(noise for noise, *_ in found),
        "the format a model runs in": max(
            abs(r.evaluation[m].expected - exact.evaluation[m].expected) if exact else 0.0
            for _, exact, r, m in found
        ),
        "tie order": max(r.evaluation[m].range for _, _, r, m in found),
    }
    most = max(moved, key=lambda what: moved[what])
    sizes = [f"{what} {_size(size) if size > ZERO else '0'}" for what, size in moved.items()]
    ahead = f"{most} moves it most" if moved[most] > ZERO else "nothing moves it"
    return [f"The most that any figure moves: {_listed(sizes)}; {ahead}."]


def _widest(readings: Sequence[Reading]) -> tuple[float, Reading, Measure]:
    every = ((r.evaluation[m].range, r, m) for r in readings for m in r.evaluation)
    return max(every, key=lambda found: found[0])


def _ahead_of_all(audit: Audit) -> str:
    """In how many comparisons of models something other than the models decides."""
    total = len(audit.leads)
    loose = sum(not lead.certain for lead in audit.leads)
    exact = {
        (lead.a, lead.b, lead.dataset, lead.measure): sign(lead.expected)
        for lead in audit.leads
        if lead.format == "float32" and lead.dimensions is None
    }
    turned = sum(
        sign(lead.expected) * exact.get((lead.a, lead.b, lead.dataset, lead.measure), 0) < 0
        for lead in audit.leads
    )
    return (
        f"Of {total} comparisons of two models, {loose} rest on tie order and in {turned} the "
        "format reverses who leads in float32."
    )


def _furthest(audit: Audit) -> str:
    """The setting whose expectation is furthest from that of float32."""
    found = [
        (abs(apart.mean), apart, reading, m)
        for reading in audit.readings
        for m, apart in audit.apart(reading).items()
    ]
    if not found:
        return "There is no other setting to compare with float32."
    size, apart, reading, measure = max(found, key=lambda one: one[0])
    if size < 0.00005:
        return "In expectation every setting is as in float32."
    side = "above" if apart.mean > 0 else "below"
    told = apart.ci[0] > 0 or apart.ci[1] < 0  # NaN, where too few queries differ, is not
    chance = "" if told else ", which may be chance"
    return (
        f"In expectation {measure} is furthest from float32 in {subject(reading, audit)}"
        f"{reading.label}: {_size(size)} {side}{_interval(apart)}{chance}."
    )


def _interval(apart: Apart) -> str:
    """Of a difference, over queries, where enough of them differ."""
    if math.isnan(apart.ci[0]):
        return ""
    return f" (95% interval {signed(apart.ci[0])} to {signed(apart.ci[1])})".replace("-", "−")


def subject(reading: Reading | Lead, audit: Audit) -> str:
    """Which model on which dataset, as far as there are several, with a comma after each."""
    model = f"{reading.model}, " if isinstance(reading, Reading) and len(audit.models) > 1 else ""
    dataset = f"{reading.dataset}, " if len(audit.datasets) > 1 else ""
    return model + dataset


def _format(group: list[Reading], audit: Audit) -> str:
    """All ways of scoring one format."""
    first = group[0]
    place = subject(first, audit)
    cut = "" if first.full else f", {first.dimensions} dimensions"
    said = [_reading(reading, audit, reading is first) for reading in group]
    if len(set(said)) == 1:  # one sentence for all of them
        every = _listed([HOW[r.scoring] for r in group])
        ways = "" if len(group) == 1 else f", {every if len(group) < 3 else 'however scored'}"
        return f"{place}{first.format}{ways}{cut}: {said[0]}."
    rest = [f"{HOW[r.scoring]}, {part}" for r, part in zip(group[1:], said[1:], strict=True)]
    return f"{place}{first.format}, {HOW[first.scoring]}{cut}: {'; '.join([said[0], *rest])}."


def _reading(reading: Reading, audit: Audit, first: bool) -> str:
    """What tie order can change in one setting, and the first measure's expectation."""
    found = reading.evaluation
    moved = {m: found[m] for m in found if found[m].range > ZERO}
    if moved:
        spans = _listed([f"{m} {_between(s)}" for m, s in moved.items()])
        text = f"{'' if first else 'still '}{spans} depending on tie order"
    else:
        text = "the range is 0" if len(reading.evaluation) == 1 else "every range is 0"
    return f"{text}{_open(reading)}{_against_float32(reading, audit)}"


def _open(reading: Reading) -> str:
    """Where the lists cannot show the whole range."""
    touched = {m: count for m, count in reading.open.items() if count}
    if not touched:
        return ""
    lists = f"in {max(touched.values())} of {reading.ties.queries} lists"
    if reading.scoring in ("decoded", "original"):
        return f", though {lists} tie order chose which candidates were rescored"
    which = "" if len(touched) == len(reading.open) else f" for {_listed(list(map(str, touched)))}"
    return f", and more{which}: {lists} the last tie goes past the depth searched"


def _between(summary: Summary) -> str:
    low, high = f"{summary.min:.4f}", f"{summary.max:.4f}"
    if low == high:
        return f"{low} give or take less than 0.0001"
    return f"between {low} and {high}"


def _size(extent: float) -> str:
    return f"{extent:.4f}" if extent >= 0.00005 else "less than 0.0001"


def _against_float32(reading: Reading, audit: Audit) -> str:
    """The first measure's expectation beside that of the exact float32 list."""
    measure = next(iter(reading.evaluation))
    expected = reading.evaluation[measure].expected
    figure = f"{measure} {expected:.4f} expected"
    exact = audit.exact(reading)
    if exact is None or exact is reading:
        return f" ({figure})"
    beside = "float32" if reading.full else f"float32 at {exact.dimensions} dimensions"
    if reading.format == "float32" and exact.scoring != "plain":
        beside = f"float32 {HOW[exact.scoring]}"
    apart = expected - exact.evaluation[measure].expected
    if abs(apart) < 0.00005 and reading.format == "float32" and reading.full:
        return f" ({figure})"
    if abs(apart) < 0.00005:
        return f" ({figure}, as in {beside})"
    side = "above" if apart > 0 else "below"
    ends = _interval(audit.apart(reading)[measure]).replace("(", "[").replace(")", "]")
    return f" ({figure}, {abs(apart):.4f} {side} {beside}{ends})"


def _orders(audit: Audit) -> list[str]:
    """Each pair of models and measure: where tie orders or formats change who is ahead."""
    said = []
    by_pair: dict[tuple[str, str, str, Measure], list[Lead]] = {}
    for lead in audit.leads:
        place = subject(lead, audit)
        by_pair.setdefault((place, lead.a, lead.b, lead.measure), []).append(lead)
    for (place, a, b, measure), leads in by_pair.items():
        said += [f"{place}{sentence}" for sentence in _pair(a, b, measure, leads)]
    return said


def _pair(a: str, b: str, measure: Measure, leads: list[Lead]) -> list[str]:
    said = [
        f"{measure}, {lead.label}: reversed. As ties happen to be broken "
        f"{_ahead(measure.sign * lead.oblivious, a, b)}; over all orders "
        f"{_ahead(measure.sign * lead.expected, a, b)}."
        for lead in leads
        if lead.reversed
    ]
    open_ = [lead for lead in leads if not lead.certain]
    if open_:
        settings = _listed([f"{x.format} ({x.label.partition(', ')[2]})" for x in open_])
        said.append(f"{measure}: whether {a} or {b} is ahead rests on tie order in {settings}.")
    exact = [lead for lead in leads if lead.format == "float32" and lead.dimensions is None]
    turned: list[Lead] = []
    if exact:
        turned = [lead for lead in leads if sign(lead.expected) * sign(exact[-1].expected) < 0]
        said += [
            f"{measure}: in float32 {_ahead(measure.sign * exact[-1].expected, a, b)}, but in "
            f"{lead.label} {_ahead(measure.sign * lead.expected, a, b)}: the format reverses the "
            "order."
            for lead in turned
        ]
    signs = {sign(measure.sign * lead.expected) for lead in leads}
    if not said and len(signs) == 1:
        if signs == {0}:
            said.append(f"{measure}: {a} and {b} are equal in every format audited.")
        else:
            front, back = (a, b) if signs == {1} else (b, a)
            said.append(
                f"{measure}: {front} is ahead of {back} in every format audited, under every "
                "tie order."
            )
    return said


def _ahead(gain: float, a: str, b: str) -> str:
    if sign(gain) == 0:
        return f"{a} and {b} are equal"
    return f"{a if gain > 0 else b} leads by {_size(abs(gain))}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
