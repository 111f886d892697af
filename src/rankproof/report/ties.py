"""Sections on ties: evaluations, comparisons, audits of precision."""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup

from rankproof.comparison.pairs import Difference
from rankproof.foundation.errors import first_few
from rankproof.foundation.phrasing import out_of, plural, signed
from rankproof.presentation.lead_wording import ZERO, put_ahead, rests
from rankproof.report.configuration_names import sign_of
from rankproof.report.page_elements import Section, badge, figure, figured, fold, paragraph, table
from rankproof.report.result_files import Result
from rankproof.report.svg import CLIP, Bar, Series, clip, curves, element, ranges

SHOWN = 5e-5  # what four decimals show
_FAINT = "Ties change figures of {} by less than four decimals show."
_RUNS = 8  # whose ties have a sentence
_CUTOFF = re.compile(r"^(.*)@(\d+)$")


def evaluation(result: Result, at: int) -> Section:
    """Table of runs × measures with range bars, and curves where there are several cutoffs."""
    runs = result.data["runs"]
    names = list(dict.fromkeys(measure for run in runs for measure in run["measures"]))
    body: list[Markup] = []
    lines = _curves(runs, names)
    charted = [name for name in names if _family(name) not in lines]
    bars = [
        Bar(
            f"{clip(run['name'], max(16, CLIP - 3 - len(measure)))} · {measure}",
            *(s["expected"], s["min"], s["max"]),
            f"{run['name']}, {measure}: expected {s['expected']:.4f}, from {s['min']:.4f} to "
            f"{s['max']:.4f} by the order of ties; one tie-break says {s['oblivious']:.4f}",
            s["oblivious"],
            group,
        )
        for measure in charted
        for group, run in enumerate(runs)
        if (s := run["measures"].get(measure)) is not None and s["expected"] is not None
    ]
    body.append(
        figure(
            ranges(
                bars,
                "Measures and what ties could make of them",
                axis="value",
                groups=[run["name"] for run in runs],
            ),
            "Dot: expectation over every order of ties. Bar: the least and the most that any order "
            "gives. Upright line: what one tie-break reports.",
        )
    )
    for family, series in lines.items():
        picture = curves(series, f"{family} over k", across="k", up=family, log=True)
        body.append(figure(picture, f"{family}@k: expectation, and the band of every tie-break."))
    heads = [
        "run",
        "measure",
        "expected",
        "min",
        "max",
        "range",
        "oblivious",
        "bias",
        "std",
        "queries",
        *(["judged"] if any("judged" in s for r in runs for s in r["measures"].values()) else []),
    ]
    every = [(run["name"], measure, s) for run in runs for measure, s in run["measures"].items()]
    rows = [[name, measure, *(s.get(head) for head in heads[2:])] for name, measure, s in every]
    if any("holes" in s for _, _, s in every):
        heads.append("over unjudged documents")
        rows = [[*row, _span(s.get("holes"))] for row, (_, _, s) in zip(rows, every, strict=True)]
    body.append(table(heads, rows))
    notes = dict.fromkeys(note for run in runs for note in run.get("notes", ()))
    body += [paragraph(note, "note") for note in notes]
    return Section(f"evaluation-{at}", _titled("Ties", result), _evaluated(runs), body)


def _evaluated(runs: list[dict[str, Any]]) -> list[str]:
    words: list[str] = []
    calm: list[str] = []
    faint: list[str] = []
    for run in runs:
        has = out_of(run["tied"], run["queries"], "query", "has", "have")
        tied = f"{run['name']}: {has} ties"
        wide = max(
            ((s["range"] or 0.0, measure) for measure, s in run["measures"].items()),
            default=(0.0, ""),
        )
        if wide[0] >= SHOWN:
            s = run["measures"][wide[1]]
            words.append(
                f"{tied}, and its {wide[1]} lies anywhere from {s['min']:.4f} to {s['max']:.4f} "
                "by how "
                f"they are broken, and is {s['expected']:.4f} on average."
            )
        else:
            (faint if wide[0] else calm).append(run["name"])
    if len(words) > _RUNS:
        more = plural(len(words) - _RUNS, "more run has", "more runs have")
        words[_RUNS:] = [f"{more} ties that change a figure: they are in the table."]
    for names, say in ((calm, "No tie changes a figure of {}."), (faint, _FAINT)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 4 else ""
            words.append(say.format(", ".join(names[:3] if more else names) + more))
    return words


def _family(measure: str) -> str:
    match = _CUTOFF.match(measure)
    return match[1] if match else measure


def _curves(runs: list[dict[str, Any]], names: list[str]) -> dict[str, list[Series]]:
    """Lines of each measure that has four cutoffs or more."""
    cutoffs: dict[str, list[int]] = {}
    for name in names:
        match = _CUTOFF.match(name)
        if match:
            cutoffs.setdefault(match[1], []).append(int(match[2]))
    found: dict[str, list[Series]] = {}
    for family, ks in cutoffs.items():
        if len(ks) < 4:
            continue
        for run in runs:
            at = [(k, run["measures"].get(f"{family}@{k}")) for k in sorted(ks)]
            kept = [(k, s) for k, s in at if s is not None and s["expected"] is not None]
            found.setdefault(family, []).append(
                Series(
                    run["name"],
                    [float(k) for k, _ in kept],
                    [s["expected"] for _, s in kept],
                    [s["min"] for _, s in kept],
                    [s["max"] for _, s in kept],
                )
            )
    return found


def comparison(result: Result, at: int) -> Section:
    """A matrix of verdicts for each measure, and every figure below it."""
    pairs = result.data["pairs"]
    names = list(dict.fromkeys(name for pair in pairs for name in (pair["a"], pair["b"])))
    measures = list(dict.fromkeys(measure for pair in pairs for measure in pair["measures"]))
    known = {(pair["a"], pair["b"]): pair["measures"] for pair in pairs}
    body = []
    for measure in measures:
        rows = []
        for a in names:
            cells: list[Any] = [a]
            for b in names:
                found = known.get((a, b), {}).get(measure)
                other = known.get((b, a), {}).get(measure)
                cells.append(_verdict(found, 1) if found else _verdict(other, -1) if other else "")
            rows.append(cells)
        body.append(
            table(["row − column", *names], rows, sort=False, caption=f"{measure}: who is ahead")
        )
    heads = ["expected", "oblivious", "lowest", "highest", "p", "p_holm"]
    every = [(pair, measure, d) for pair in pairs for measure, d in pair["measures"].items()]
    more = [name for name in ("judged", "holes") if any(name in d for _, _, d in every)]
    titles = {"judged": "judged of a and b", "holes": "over unjudged documents"}
    rows = [
        [
            *(pair["a"], pair["b"], measure, *(d[head] for head in heads), _span(d["ci"])),
            *(_span(d.get(name), " / " if name == "judged" else " … ") for name in more),
            _word(Difference.from_dict(d)),
        ]
        for pair, measure, d in every
    ]
    heads = ["a", "b", "measure", *heads, "95% interval", *(titles[name] for name in more)]
    body.append(paragraph("* p < 0.05 after Holm's correction.", "note"))
    body.append(fold("Every figure, a − b", [table([*heads, "verdict"], rows)]))
    title, words = _titled("Comparisons", result), _compared(pairs)
    return Section(f"comparison-{at}", title, words, body, words[1] if words[1:] else "")


def _word(d: Difference) -> str:
    if d.reversed:
        return "reversed by ties"
    if d.rests_on_holes:
        if d.rests_on_ties:
            return f"rests on ties {'and' if d.holes_exact else 'and perhaps'} unjudged"
        return f"{rests(d.holes_exact)} unjudged documents"
    if d.certain:
        return "certain"
    if d.rests_on_ties:
        return "rests on tie order"
    return "level at worst" if d.level_at_worst else "sure enough"


def _verdict(d: dict[str, Any], sign: int) -> Markup:
    lead, found = sign * d["expected"], Difference.from_dict(d)
    written = figured(lead, 4, "+")
    unsure = found.rests_on_ties or found.reversed or found.rests_on_holes
    kind = "warn" if unsure else "good"
    significant = " *" if d["p_holm"] is not None and d["p_holm"] < 0.05 else ""
    return Markup("{}{} {}").format(written, significant, badge(_word(found), kind))


def _span(ends: Any, between: str = " … ") -> str:
    return "–" if not ends or None in ends else f"{ends[0]:.4f}{between}{ends[1]:.4f}"


def _compared(pairs: list[dict[str, Any]]) -> list[str]:
    every = [
        (pair, measure, Difference.from_dict(d))
        for pair in pairs
        for measure, d in pair["measures"].items()
    ]
    turned = [item for item in every if item[2].reversed]
    unsure = sum(d.rests_on_ties or d.reversed for _, _, d in every)
    left = [d for _, _, d in every if d.rests_on_holes]
    perhaps = "" if all(d.holes_exact for d in left) else "perhaps "
    clear = sum(d.p_holm < 0.05 for _, _, d in every)
    words = [
        f"{plural(len(every), 'comparison')}: {unsure} resting on how ties are "
        + (f"broken, {len(turned)} of them reversed by it, " if turned else "broken, ")
        + (f"{len(left)} {perhaps}on documents that nobody judged, " if left else "")
        + f"{clear} with p < 0.05 after Holm's correction."
    ]
    for pair, measure, d in turned[:4]:
        ahead, behind = pair["a"], pair["b"]
        if sign_of(measure) * d.oblivious < 0:
            ahead, behind = behind, ahead
        words.append(
            f"By one tie-break {ahead} leads {behind} by {abs(d.oblivious):.4f} in {measure}; "
            f"over all orders of ties it is behind by {abs(d.expected):.4f}. The verdict is "
            "reversed."
        )
    if len(turned) > 4:
        words.append(f"{plural(len(turned) - 4, 'more is', 'more are')} reversed.")
    return words


def gate(result: Result, at: int) -> Section:
    """The verdict, and each measure's difference with its bounds beside the margin."""
    data = result.data
    kind = {"passed": "good", "worse": "warn"}.get(data["verdict"], "plain")
    figures = data["measures"]
    bars = [
        Bar(
            measure,
            d["difference"],
            d["bounds"][0],
            d["bounds"][1],
            f"{measure}: {signed(d['difference'])}, from {signed(d['bounds'][0])} to "
            f"{signed(d['bounds'][1])}; {d['verdict']}",
            -sign_of(measure) * d["margin"],
        )
        for measure, d in figures.items()
    ]
    caption = (
        f"{data['candidate']} − {data['baseline']}: the difference and its 95% bounds. Upright "
        "line: minus the margin; it passes where the lower bound is above that"
    )
    less = [measure for measure in figures if sign_of(measure) < 0]
    turned = f" (the margin, and the upper bound below it, for {', '.join(less)})"
    caption += f"{turned if less else ''}."
    heads = ["measure", "verdict", "difference", "low", "high", "margin", "queries needed"]
    rows = [
        [
            *(measure, d["verdict"], d["difference"], *d["bounds"], d["margin"]),
            d["queries_needed"] if d["verdict"] == "undecided" else None,
        ]
        for measure, d in figures.items()
    ]
    body = [
        element("p", [badge(data["verdict"], kind)]),
        figure(ranges(bars, "Differences", axis="difference", zero=True), caption),
        table(heads, rows),
    ]
    title = _titled(f"Gate: {data['candidate']} against {data['baseline']}", result)
    words = list(data["sentences"])
    gist = words[0].removeprefix(f"{data['candidate']} against {data['baseline']}: ")
    return Section(f"gate-{at}", title, words, body, gist)


def leaderboard(result: Result, at: int) -> Section:
    """Runs by their ranks, with the group that each is not told apart from."""
    runs = result.data["runs"]
    measures = list(runs[0]["measures"])
    lead = measures[0]
    ordered = sorted(runs, key=lambda run: run["measures"][lead]["rank"])
    judged = any("judged" in run["measures"][lead] for run in runs)
    heads = ["rank", "run", "group", *measures, *(["judged"] if judged else [])]
    rows = [
        [
            run["measures"][lead]["rank"],
            run["name"],
            "–".join(map(str, dict.fromkeys(run["measures"][lead]["group"]))),
            *(run["measures"][measure]["expected"] for measure in measures),
            *([run["measures"][lead].get("judged")] if judged else []),
        ]
        for run in ordered
    ]
    first = [run["name"] for run in ordered if run["measures"][lead]["rank"] == 1]
    level = sum(run["measures"][lead]["group"][0] == 1 for run in runs) - len(first)
    behind = "; told apart from all others" if len(first) < len(runs) else ""
    if level:
        behind = f"; not told apart from {plural(level, 'other')}"
    are = "is" if len(first) == 1 else "are level and"
    words = [f"{first_few(first)} {are} first of {len(runs)} by {lead}{behind}."]
    found = [(run["name"], run["measures"][lead]) for run in ordered]
    others = [(name, s.get("lead_exact") is True) for name, s in found if s.get("could_lead")]
    if others:
        words.append(f"Unjudged documents {put_ahead(others)}.")
    title = _titled("Leaderboard", result)
    body = [table(heads, rows), *(paragraph(note, "note") for note in result.data["notes"])]
    return Section(f"leaderboard-{at}", title, words, body)


def audit(result: Result, at: int) -> Section:
    """The ladder of precisions: each format and scoring with its range."""
    readings = result.data["readings"]
    measure = next(iter(readings[0]["measures"]))
    models = list(dict.fromkeys(r["model"] for r in readings))
    bars = []
    for r in readings:
        s = r["measures"][measure]
        if s["expected"] is None:
            continue
        label = _reading(r, models)
        tip = (
            f"{label}: {measure} expected {s['expected']:.4f}, from {s['min']:.4f} to "
            f"{s['max']:.4f}; one tie-break says {s['oblivious']:.4f}"
        )
        group = int(r["scoring"] != "plain")
        bars.append(Bar(label, s["expected"], s["min"], s["max"], tip, s["oblivious"], group))
    picture = ranges(
        bars,
        f"{measure} in every number format",
        axis=measure,
        groups=["the format alone", "rescored in high precision"],
    )
    several = len(models) > 1
    rows = [
        [
            *([r["model"]] if several else []),
            r["format"],
            r["scoring"],
            r["dimensions"],
            r["bytes_per_vector"],
            *(r["measures"][measure][key] for key in ("expected", "min", "max", "range", "bias")),
            r["spearman"]["mean"],
            _distinct(r),
            r["tied"],
        ]
        for r in readings
    ]
    heads = [
        *(["model"] if several else []),
        *("format", "scoring", "dimensions", "bytes", "expected", "min", "max"),
        *("range", "bias", "ρ to float32", "distinct in top 10", "tied queries"),
    ]
    said = [paragraph(sentence) for sentence in result.data["words"]]
    body = [
        figure(
            picture,
            f"{measure} of the same vectors stored and scored in each format. Dot: expectation "
            "over every order of ties. Bar: the least and the most. Upright line: one tie-break.",
        ),
        table(heads, rows, caption=f"{measure} by format and scoring"),
        fold("Every format in words", said),
    ]
    return Section(f"audit-{at}", _titled("Precision", result), [_audited(readings)], body)


def _audited(readings: list[dict[str, Any]]) -> str:
    """How many formats rest on tie order, which most, and what rescoring makes of that."""
    plain, again = ([r for r in readings if (r["scoring"] == "plain") == p] for p in (True, False))
    loose = [r for r in plain if _widest(r)[0] > ZERO]
    still = [r for r in again if _widest(r)[0] > ZERO]
    if not loose:
        return f"No figure in any of {len(plain)} formats rests on tie order."
    worst = max(loose, key=_widest)
    _, measure = _widest(worst)
    s = worst["measures"][measure]
    rescored = f"{len(still)} of {len(again)} do" if still else "none does"
    return (
        f"In {len(loose)} of {len(plain)} formats figures rest on tie order, most of all "
        f"{measure} in {worst['format']}: anywhere from {s['min']:.4f} to {s['max']:.4f}."
        + (f" Rescored in high precision, {rescored}." if again else "")
    )


def _widest(r: dict[str, Any]) -> tuple[float, str]:
    return max((s["range"] or 0.0, measure) for measure, s in r["measures"].items())


def _reading(r: dict[str, Any], models: list[str]) -> str:
    own = f"{r['model']} · " if len(models) > 1 else ""
    size = f" {r['dimensions']}d" if r["dimensions"] else ""
    return f"{own}{r['format']}{size}, {r['scoring']}"


def _distinct(r: dict[str, Any]) -> float | None:
    found = [t for t in r["ties"] if t["cutoff"] == 10] or r["ties"][:1]
    return found[0]["distinct"] if found else None


def _titled(what: str, result: Result) -> str:
    stem = result.path.stem
    return what if stem == result.kind else f"{what}: {stem}"
