"""What the figures of a diagnosis say, in sentences.

The ranges are those of arXiv 2511.09545, tables 4.1, 4.2, 11 and 13: two commercial models in
English and French. They are a comparison, not a law.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from rankproof.diagnostics.names import LEAST, MEASURES, NameRow, NamesDiagnosis
from rankproof.diagnostics.noise import NoiseDiagnosis
from rankproof.foundation.phrasing import out_of, plural, signed
from rankproof.statistics.intervals import Interval
from rankproof.statistics.rank_similarity import Correlation

SOURCE = "arXiv 2511.09545"

# ΔΔ% of the paper's models, least and most
PAPER = {
    "gibberish_name": (-76.9, -68.0),
    "edit_distance_near_miss": (-76.2, -64.4),
    "remove_label": (-3.0, 18.1),
    "author_position_shift": (-6.2, 21.8),
}
BENIGN = 12.0  # |ΔΔ%| up to which the paper calls formatting benign
LAYOUT = (-6.2, 21.8)  # of both layout ablations
RATIO = (0.53, 0.59)  # Δname/Δtopic
NOISE = (28.0, 40.0)  # percent of cosine lost from level 0 to 4


def names_sentences(diagnosis: NamesDiagnosis) -> list[str]:
    """The base, each family, then whether the margins foretell retrieval."""
    sentences = [_base(diagnosis)]
    if math.isnan(diagnosis["hard_name_mask"].percent["name"].mean):
        nothing = f"No base margin reaches {LEAST}, so there is no percentage to read."
        return [*sentences, nothing, *_foretold(diagnosis)]
    sentences += _identity(diagnosis)
    sentences += _formatting(diagnosis)
    sentences += _layout(diagnosis)
    return [*sentences, *_foretold(diagnosis)]


def _base(diagnosis: NamesDiagnosis) -> str:
    margin = diagnosis.base.margin["name"].mean
    ratio = diagnosis.ratio.mean
    low, high = RATIO
    beside = "as" if low <= ratio <= high else "more than" if ratio > high else "less than"
    text = f"A right name is worth {margin:.3f} of cosine"
    text += (
        ", and a right topic nothing."
        if math.isnan(ratio)
        else f", {ratio:.2f} times as much as a right topic ({beside} in the models of {SOURCE}, "
        f"“the paper” below: {low}–{high})."
    )
    rows = diagnosis.queries * diagnosis.runs
    excluded = diagnosis.base.excluded["name"]
    if excluded:
        text += (
            f" {out_of(excluded, rows, 'row', 'has', 'have')} a base margin below {LEAST} and "
            f"{'is' if excluded == 1 else 'are'} in no percentage"
            f"{': the model hardly tells these authors apart' if excluded > rows / 5 else ''}."
        )
    return f"{text} Before any ablation, {_confused(diagnosis.base)}."


def _identity(diagnosis: NamesDiagnosis) -> list[str]:
    mask = diagnosis["hard_name_mask"].percent["name"].mean
    sentences = []
    if abs(mask + 100.0) > 1e-9:
        sentences.append(
            f"Warning: hard_name_mask leaves {100 + mask:.2g}% of the margin, and must leave none: "
            "the embedder gives equal texts different vectors."
        )
    else:
        sentences.append("hard_name_mask takes the whole margin, as it must.")
    for name, reason in (
        ("gibberish_name", "codes in place of names"),
        ("edit_distance_near_miss", "impostors one or two letters away"),
    ):
        row = diagnosis[name]
        change = row.percent["name"].mean
        low, high = PAPER[name]
        place = (
            "as in the paper"
            if low <= change <= high
            else "further than in the paper"
            if change < low
            else "less far than in the paper"
        )
        mark = "Warning: " if change < low else ""
        moved = f"falls by {-change:.0f}%, {place} ({-high:.0f} to {-low:.0f}%)"
        if change >= 0.5:
            moved = f"rises by {change:.0f}%; in the paper it falls by {-high:.0f} to {-low:.0f}%"
        sentences.append(
            f"{mark}{name} ({reason}): the margin {moved}, and {_confused(row)}. A fall is "
            "expected here."
        )
    return sentences


def _formatting(diagnosis: NamesDiagnosis) -> list[str]:
    every = [row for row in diagnosis.rows if row.family == "formatting"]
    rows = [row for row in every if row.changed]
    harmful = [row for row in rows if abs(row.percent["name"].mean) > BENIGN]
    sentences = [
        f"Warning: {row.ablation} moves the margin by {_percent(row)}; the same person written "
        f"otherwise should cost no more than {BENIGN:.0f}%. {_REMEDY[row.ablation]}"
        for row in harmful
    ]
    harmless: list[str] = []
    unsettled: list[str] = []
    for row in rows:
        if abs(row.percent["name"].mean) <= BENIGN:
            within = all(abs(end) <= BENIGN for end in row.percent["name"].ci)
            (harmless if within else unsettled).append(f"{row.ablation} {_percent(row)}")
    if harmless:
        sentences.append(
            f"Formatting that does no harm (within {BENIGN:.0f}%): {', '.join(harmless)}."
        )
    if unsettled:
        queries = plural(diagnosis.queries, "query")
        sentences.append(
            f"Not settled by {queries} ({BENIGN:.0f}% or less, or more): {', '.join(unsettled)}."
        )
    if unchanged := [row.ablation for row in every if not row.changed]:
        sentences.append(f"Not tried, as it changes none of these texts: {', '.join(unchanged)}.")
    return sentences


def _layout(diagnosis: NamesDiagnosis) -> list[str]:
    rows = [row for row in diagnosis.rows if row.family == "layout"]
    low, high = LAYOUT
    sentences = []
    for row in rows:
        change = row.percent["name"].mean
        outside = not low <= change <= high
        sentences.append(
            f"{'Warning: ' if outside else ''}{row.ablation} moves the margin by {_percent(row)} "
            f"({'outside' if outside else 'within'} the paper's {_signed(low)} to {_signed(high)}%)"
            f"{': lay out records as you ask for them.' if outside else '.'}"
        )
    return sentences


_REMEDY = {
    "initials_form": "Keep full given names in the index.",
    "name_order_inversion": "Write names in one order.",
    "case_punct_perturb": "Write names in one case, in records and questions.",
    "strip_diacritics": "Treat accents alike in records and questions.",
    "unicode_normalization_stress": "Normalise to NFC before embedding.",
}


def _percent(row: NameRow) -> str:
    figure = row.percent["name"]
    return f"{_signed(figure.mean)}%{_ends(figure.ci, _signed)}"


def _ends(ci: Interval, written: Callable[[float], str] = "{:.2f}".format) -> str:
    """An interval behind its figure; nothing where there is none."""
    return "" if math.isnan(ci[0]) else f" [{written(ci[0])}, {written(ci[1])}]"


def _signed(value: float) -> str:
    return signed(value, 1).replace("-", "−")


def _confused(row: NameRow) -> str:
    share = row.confused.mean
    if share == 0:
        return "in no row is an impostor as near as the author"
    return f"an impostor is as near as the author in {share:.1%} of the rows"


def _foretold(diagnosis: NamesDiagnosis) -> list[str]:
    base = diagnosis.base.retrieval[MEASURES[0]].mean
    worst = min(diagnosis.rows[1:], key=lambda row: row.retrieval_change[MEASURES[0]].mean)
    loss = worst.retrieval_change[MEASURES[0]].mean
    searched = (
        f"Searched among all passages of a run, {MEASURES[0]} is {base:.3f}; it changes most under "
        f"{worst.ablation} ({_moved(loss)})."
    )
    sentences = [searched, *correlations(diagnosis.prediction, "change of Δname", MEASURES[0])]
    mentions = diagnosis.mentions
    if mentions is not None and not mentions.rows:
        sentences.append(
            f"{mentions.corpus}: {mentions.queries or 'none'} of {mentions.of} judged queries "
            f"names an author of {diagnosis.lists}, so names cannot be searched there: list its "
            "authors with --authors."
        )
    elif mentions is not None:
        row = min(mentions.rows[1:], key=lambda row: row.change.mean)
        sentences.append(
            f"{mentions.corpus}, {plural(mentions.queries, 'query names', 'queries name')} an "
            "author: "
            f"{mentions.measure} {mentions.rows[0].measure.mean:.3f}; it changes most under "
            f"{row.ablation} ({_moved(row.change.mean, row.change.ci)})."
        )
    return sentences


def correlations(by_name: dict[str, Correlation], cheap_value: str, dear_value: str) -> list[str]:
    """Whether a cheap figure foretells a dear one."""
    sentences = []
    for name, c in by_name.items():
        over = name.removeprefix("across_").replace("_", " ")
        caution = f" Only {plural(c.points, 'point')}: read it as a hint." if c.few else ""
        if math.isnan(c.pearson):
            sentences.append(
                f"Across {over} the {cheap_value} or {dear_value} does not vary: no correlation."
            )
            continue
        sentences.append(
            f"Across {over} the {cheap_value} follows that of {dear_value} with r = {c.pearson:.2f}"
            f"{_ends(c.pearson_ci)}, ρ = {c.spearman:.2f}{_ends(c.spearman_ci)}.{caution}"
            f"{_carried(c)}"
        )
    return sentences


def _carried(c: Correlation) -> str:
    """Which single point makes the correlation what it is, where one does."""
    if not c.rests_on_one:
        return ""
    return f" It rests on {c.carried}: without it r = {c.without:.2f}."


def _moved(value: float, ci: Interval = (math.nan, math.nan)) -> str:
    return f"{_change(value)}{_ends(ci, _change)}"


def _change(value: float) -> str:
    return signed(value, 3).replace("-", "−")


def _passage(diagnosis: NoiseDiagnosis) -> str:
    """From level 0 to 4, in percent of the mean as the paper has it; what is sure to have moved."""
    clean, high = (diagnosis.at(level).cosine["passage"].mean for level in (0, 4))
    ends = diagnosis.at(4).drop["passage"].ci
    to_clean = f"the cosine to the clean query falls to {diagnosis.at(4).cosine['clean'].mean:.3f}."
    lead = (
        f"From level 0 to 4 the cosine to the relevant passage goes from {clean:.3f} to {high:.3f}"
    )
    if not (ends[0] > 0 or ends[1] < 0) or clean <= 0:
        return f"{lead}, a change not told apart from none{_ends(ends, _change)}; {to_clean}"
    loss = (clean - high) / clean * 100.0
    low_end, high_end = NOISE
    place = "above" if loss > high_end else "below" if loss < low_end else "within"
    mark = "Warning: " if loss > high_end else ""
    return (
        f"{mark}{lead}, {'down' if loss > 0 else 'up'} by {abs(loss):.0f}% ({place} the fall of "
        f"{low_end:.0f}–{high_end:.0f}% in {SOURCE}); {to_clean}"
    )


def noise_sentences(diagnosis: NoiseDiagnosis) -> list[str]:
    """The fall from level 0 to 4, what is recovered, and whether cosine foretells retrieval."""
    high = diagnosis.at(4)
    sentences = [_passage(diagnosis)]
    for name in diagnosis.rewriters:
        share = diagnosis.at(4, name).recovered["clean"]
        untouched = diagnosis.at(0, name).cosine["clean"].mean
        recovered = "nothing, as nothing is" if math.isnan(share) else f"{share:.0%} of the cosine"
        sentences.append(
            f"Rewriting by {name} recovers {recovered} lost at level 4; a clean query it leaves "
            f"at {untouched:.3f} of itself."
        )
    if high.retrieval is not None and diagnosis.measure is not None:
        change = high.retrieval.change
        sentences.append(
            f"Searched, {diagnosis.measure} changes by {_moved(change.mean, change.ci)} at level "
            "4, and "
            f"{high.retrieval.overlap.mean:.0%} of the top 10 stay."
        )
        for name in diagnosis.rewriters:
            again = diagnosis.at(4, name).retrieval
            assert again is not None
            sentences.append(f"Rewritten by {name} it changes by {_moved(again.change.mean)}.")
        sentences += correlations(diagnosis.prediction, "change of cosine", diagnosis.measure)
    return sentences
