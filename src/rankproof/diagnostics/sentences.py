"""A diagnosis in sentences, with warnings where a model differs from what was published.

The ranges are those of arXiv 2511.09545, tables 4.1, 4.2, 11 and 13: two commercial models in
English and French. They are a comparison, not a requirement.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rankproof.diagnostics.mentions import Mentions
from rankproof.diagnostics.names import MEASURES, MIN_BASE_MARGIN, NameRow, NamesDiagnosis
from rankproof.diagnostics.noise import NoiseDiagnosis
from rankproof.foundation.phrasing import out_of, plural, signed
from rankproof.statistics.intervals import Interval
from rankproof.statistics.rank_similarity import Correlation

SOURCE = "arXiv 2511.09545"

# Lowest and highest values of the paper's models:
PAPER = {  # ΔΔ% by ablation
    "gibberish_name": (-76.9, -68.0),
    "edit_distance_near_miss": (-76.2, -64.4),
}
LAYOUT = (-6.2, 21.8)  # ΔΔ% of both layout ablations
RATIO = (0.53, 0.59)  # Δname/Δtopic
NOISE = (28.0, 40.0)  # percent of the cosine lost from level 0 to 4
BENIGN = 12.0  # |ΔΔ%| up to which the paper calls formatting benign


def names_sentences(diagnosis: NamesDiagnosis) -> list[str]:
    """Return sentences on the base, on each family, and on how margins predict retrieval."""
    sentences = [_base(diagnosis)]
    if math.isnan(diagnosis["hard_name_mask"].percent["name"].mean):
        sentences.append(
            f"No base margin reaches {MIN_BASE_MARGIN}, so there is no percentage to read."
        )
    else:
        sentences += [_mask(diagnosis)]
        sentences += [_lost_identity(diagnosis[name], reason) for name, reason in _IDENTITY.items()]
        sentences += _formatting(diagnosis)
        sentences += [_layout(row) for row in diagnosis.rows if row.family == "layout"]
    return [*sentences, *_retrieval(diagnosis)]


def _base(diagnosis: NamesDiagnosis) -> str:
    """Return what a name is worth, next to a topic, before any ablation."""
    margin, ratio = diagnosis.base.margin["name"].mean, diagnosis.ratio.mean
    text = f"A right name is worth {margin:.3f} of cosine"
    if math.isnan(ratio):
        text += ", and a right topic nothing."
    else:
        low, high = RATIO
        compared = "as" if low <= ratio <= high else "more than" if ratio > high else "less than"
        text += (
            f", {ratio:.2f} times as much as a right topic ({compared} in the models of {SOURCE}, "
            f"“the paper” below: {low}–{high})."
        )
    rows = diagnosis.queries * diagnosis.runs
    excluded = diagnosis.base.excluded["name"]
    if excluded:
        text += (
            f" {out_of(excluded, rows, 'row', 'has', 'have')} a base margin below "
            f"{MIN_BASE_MARGIN} and {'is' if excluded == 1 else 'are'} in no percentage"
            f"{': the model hardly tells these authors apart' if excluded > rows / 5 else ''}."
        )
    return f"{text} Before any ablation, {_confused(diagnosis.base)}."


def _mask(diagnosis: NamesDiagnosis) -> str:
    """Return whether the mask takes all of the margin, as it does unless the embedder is broken."""
    change = diagnosis["hard_name_mask"].percent["name"].mean
    if abs(change + 100.0) <= 1e-9:
        return "hard_name_mask takes the whole margin, as it must."
    return (
        f"Warning: hard_name_mask leaves {100 + change:.2g}% of the margin, and must leave none: "
        "the embedder gives equal texts different vectors."
    )


_IDENTITY = {
    "gibberish_name": "codes in place of names",
    "edit_distance_near_miss": "impostors one or two letters away",
}


def _lost_identity(row: NameRow, reason: str) -> str:
    """Return how far the margin falls where names no longer identify the author."""
    change = row.percent["name"].mean
    low, high = PAPER[row.ablation]
    warning, place = "", "as in the paper"
    if change < low:
        warning, place = "Warning: ", "further than in the paper"
    elif change > high:
        place = "less far than in the paper"
    effect = f"falls by {-change:.0f}%, {place} ({-high:.0f} to {-low:.0f}%)"
    if change >= 0.5:
        effect = f"rises by {change:.0f}%; in the paper it falls by {-high:.0f} to {-low:.0f}%"
    return (
        f"{warning}{row.ablation} ({reason}): the margin {effect}, and {_confused(row)}. A fall is "
        "expected here."
    )


def _formatting(diagnosis: NamesDiagnosis) -> list[str]:
    """Return warnings of harmful formatting, then what is harmless, undecided and not tried."""
    rows = [row for row in diagnosis.rows if row.family == "formatting"]
    sentences: list[str] = []
    harmless: list[str] = []
    undecided: list[str] = []
    for row in rows:
        percent = row.percent["name"]
        if not row.changed:
            continue
        if abs(percent.mean) > BENIGN:
            sentences.append(
                f"Warning: {row.ablation} moves the margin by {_percent(row)}; the same person "
                f"written otherwise should cost no more than {BENIGN:.0f}%. {_REMEDY[row.ablation]}"
            )
        elif all(abs(end) <= BENIGN for end in percent.ci):
            harmless.append(f"{row.ablation} {_percent(row)}")
        elif not math.isnan(percent.mean):
            undecided.append(f"{row.ablation} {_percent(row)}")
    if harmless:
        sentences.append(
            f"Formatting that does no harm (within {BENIGN:.0f}%): {', '.join(harmless)}."
        )
    if undecided:
        queries = plural(diagnosis.queries, "query")
        sentences.append(
            f"Not settled by {queries} ({BENIGN:.0f}% or less, or more): {', '.join(undecided)}."
        )
    if unchanged := [row.ablation for row in rows if not row.changed]:
        sentences.append(f"Not tried, as it changes none of these texts: {', '.join(unchanged)}.")
    return sentences


def _layout(row: NameRow) -> str:
    """Return how a layout ablation moves the margin, with advice outside the paper's range."""
    low, high = LAYOUT
    paper = f"the paper's {_signed(low)} to {_signed(high)}%"
    effect = f"{row.ablation} moves the margin by {_percent(row)}"
    if low <= row.percent["name"].mean <= high:
        return f"{effect} (within {paper})."
    return f"Warning: {effect} (outside {paper}): lay out records as you ask for them."


_REMEDY = {
    "initials_form": "Keep full given names in the index.",
    "name_order_inversion": "Write names in one order.",
    "case_punct_perturb": "Write names in one case, in records and questions.",
    "strip_diacritics": "Treat accents alike in records and questions.",
    "unicode_normalization_stress": "Normalise to NFC before embedding.",
}


def _percent(row: NameRow) -> str:
    """Return ΔΔ% of the name margin with its interval."""
    percent = row.percent["name"]
    return f"{_signed(percent.mean)}%{_interval(percent.ci, _signed)}"


def _interval(ci: Interval, write: Callable[[float], str] = "{:.2f}".format) -> str:
    """Return an interval to put behind its value; "" if it is undefined."""
    return "" if math.isnan(ci[0]) else f" [{write(ci[0])}, {write(ci[1])}]"


def _signed(value: float, digits: int = 1) -> str:
    return signed(value, digits).replace("-", "−")


def _confused(row: NameRow) -> str:
    share = row.confused.mean
    if share == 0:
        return "in no row is an impostor as near as the author"
    return f"an impostor is as near as the author in {share:.1%} of the rows"


def _retrieval(diagnosis: NamesDiagnosis) -> list[str]:
    """Return what the ablations cost in retrieval, and how well margins predict it."""
    base = diagnosis.base.retrieval[MEASURES[0]].mean
    worst = min(diagnosis.rows[1:], key=lambda row: row.retrieval_change[MEASURES[0]].mean)
    loss = worst.retrieval_change[MEASURES[0]].mean
    sentences = [
        f"Searched among all passages of a run, {MEASURES[0]} is {base:.3f}; it changes most under "
        f"{worst.ablation} ({_change(loss)}).",
        *correlations(diagnosis.prediction, "change of Δname", MEASURES[0]),
    ]
    if diagnosis.mentions is not None:
        sentences.append(_mentions(diagnosis.mentions, diagnosis.lists))
    return sentences


def _mentions(mentions: Mentions, lists: str) -> str:
    """Return what the ablations cost in the user's corpus."""
    if not mentions.rows:
        return (
            f"{mentions.corpus}: {mentions.queries or 'none'} of {mentions.of} judged queries "
            f"names an author of {lists}, so names cannot be searched there: list its "
            "authors with --authors."
        )
    worst = min(mentions.rows[1:], key=lambda row: row.change.mean)
    queries_name = plural(mentions.queries, "query names", "queries name")
    return (
        f"{mentions.corpus}, {queries_name} an author: "
        f"{mentions.measure} {mentions.rows[0].measure.mean:.3f}; it changes most under "
        f"{worst.ablation} ({_change(worst.change.mean, worst.change.ci)})."
    )


def correlations(by_name: dict[str, Correlation], cheap_value: str, dear_value: str) -> list[str]:
    """Return how well a value that is cheap to measure predicts one that needs judgments."""
    sentences = []
    for name, correlation in by_name.items():
        scope = name.removeprefix("across_").replace("_", " ")
        if math.isnan(correlation.pearson):
            sentences.append(
                f"Across {scope} the {cheap_value} or {dear_value} does not vary: no correlation."
            )
            continue
        r, rho = correlation.pearson, correlation.spearman
        text = (
            f"Across {scope} the {cheap_value} follows that of {dear_value} with r = {r:.2f}"
            f"{_interval(correlation.pearson_ci)}, ρ = {rho:.2f}"
            f"{_interval(correlation.spearman_ci)}."
        )
        if correlation.few:
            text += f" Only {plural(correlation.points, 'point')}: read it as a hint."
        if correlation.rests_on_one:
            text += f" It rests on {correlation.carried}: without it r = {correlation.without:.2f}."
        sentences.append(text)
    return sentences


def _change(value: float, ci: Interval = (math.nan, math.nan)) -> str:
    """Return a change of a measure or cosine, with its interval if it has one."""
    return f"{_signed(value, 3)}{_interval(ci, lambda end: _signed(end, 3))}"


def noise_sentences(diagnosis: NoiseDiagnosis) -> list[str]:
    """Return the loss from level 0 to 4, what is recovered, and how cosines predict retrieval."""
    sentences = [_cosine_loss(diagnosis)]
    for name in diagnosis.rewriters:
        share = diagnosis.at(4, name).recovered["clean"]
        untouched = diagnosis.at(0, name).cosine["clean"].mean
        recovered = "nothing, as nothing is" if math.isnan(share) else f"{share:.0%} of the cosine"
        sentences.append(
            f"Rewriting by {name} recovers {recovered} lost at level 4; a clean query it leaves "
            f"at {untouched:.3f} of itself."
        )
    retrieval = diagnosis.at(4).retrieval
    if retrieval is not None and diagnosis.measure is not None:
        change = retrieval.change
        sentences.append(
            f"Searched, {diagnosis.measure} changes by {_change(change.mean, change.ci)} at level "
            f"4, and {retrieval.overlap.mean:.0%} of the top 10 stay."
        )
        for name in diagnosis.rewriters:
            rewritten = diagnosis.at(4, name).retrieval
            assert rewritten is not None
            sentences.append(f"Rewritten by {name} it changes by {_change(rewritten.change.mean)}.")
        sentences += correlations(diagnosis.prediction, "change of cosine", diagnosis.measure)
    return sentences


def _cosine_loss(diagnosis: NoiseDiagnosis) -> str:
    """Return how the cosine to the passage falls from level 0 to 4.

    The percentage is that of the mean, as in the paper, and is given only if the change is
    significant.
    """
    clean, noisy = (diagnosis.at(level).cosine["passage"].mean for level in (0, 4))
    low, high = diagnosis.at(4).drop["passage"].ci
    to_clean = f"the cosine to the clean query falls to {diagnosis.at(4).cosine['clean'].mean:.3f}."
    change = (
        f"From level 0 to 4 the cosine to the relevant passage goes from {clean:.3f} to {noisy:.3f}"
    )
    is_significant = low > 0 or high < 0
    if not is_significant or clean <= 0:
        interval = _interval((low, high), lambda end: _signed(end, 3))
        return f"{change}, a change not told apart from none{interval}; {to_clean}"
    loss = (clean - noisy) / clean * 100.0
    lowest, highest = NOISE
    place = "above" if loss > highest else "below" if loss < lowest else "within"
    warning = "Warning: " if loss > highest else ""
    return (
        f"{warning}{change}, {'down' if loss > 0 else 'up'} by {abs(loss):.0f}% ({place} the fall "
        f"of {lowest:.0f}–{highest:.0f}% in {SOURCE}); {to_clean}"
    )
