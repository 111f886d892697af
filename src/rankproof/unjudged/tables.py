"""What `rankproof holes` shows: what unjudged documents leave open, tables, and what to judge."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rankproof.foundation.phrasing import amount, plural, signed
from rankproof.presentation.lead_wording import may_change_sign, modal_verb, sign
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Cell, Column, Table, span
from rankproof.presentation.terminal import name_in_sentence
from rankproof.statistics.labels import Label
from rankproof.unjudged.leave_one_out import words as leave_one_out_sentences

if TYPE_CHECKING:
    import polars as pl

    from rankproof.measures import Measure
    from rankproof.unjudged.bounds import Bound, PairHoles, RunHoles, Unjudged
    from rankproof.unjudged.sampling import Estimate, Sampled

_MOSTLY_UNJUDGED = 0.5  # judged share below which worst cases say little
_MOST_PAIRS = 10  # that are shown without --wide


# ------------------------------------------------------------------------------------- words


def holes_summary(report: Unjudged) -> Summary:
    """Return what was requested or, without a request, what unjudged documents leave open."""
    if report.leave_one_out is not None:
        lines = leave_one_out_sentences(report.leave_one_out)
    elif report.settled is not None:
        lines = [f"{str(report.settled)[0].upper()}{str(report.settled)[1:]}."]
    elif report.sampled is not None:
        lines = sample_answers(report.sampled)
    elif report.sample_was_drawn and report.to_judge is not None:
        lines = [_drawn_sentence(report.to_judge)]
    else:
        lines = _bounds_answers(report)
    return Summary.of(
        "\n".join(lines), [], next_step=_next_step(report), details=report.assumptions()
    )


def _drawn_sentence(to_judge: pl.DataFrame) -> str:
    queries = plural(to_judge["query"].n_unique(), "query was", "queries were")
    return (
        f"{queries} drawn; judge all {plural(to_judge.height, 'unjudged document')} of the sample "
        "(--to FILE writes them), then run this again with --judged FILE."
    )


def _bounds_answers(report: Unjudged) -> list[str]:
    """Return a sentence for two runs or one, or how many comparisons are open."""
    measures = list(report.runs[0].measures)
    if not report.pairs:
        return [_run_sentence(report.runs[0], measures[0])]
    if len(report.pairs) > 1 or len(measures) > 1:
        return [_count_sentence(report)]
    pair, measure = report.pairs[0], measures[0]
    if pair_label(pair, measure) != "undecided" or not is_mostly_unjudged(report):
        return [pair_sentence(pair, measure)]
    top = f"two top {measure.cutoff}s" if measure.cutoff else "two lists"
    shares = f"{_mean_judged(report):.0%}"
    return [f"Undecided: only {shares} of the {top} is judged.", pair_sentence(pair, measure)]


def _run_sentence(run: RunHoles, measure: Measure) -> str:
    bound, count = run.measures[measure], run.holes[measure]
    if not count:
        return f"Every document that {measure} counts is judged in {run.name}."
    now = "undefined" if math.isnan(bound.expected) else f"{bound.expected:.4f}"
    if math.isnan(bound.lowest):
        return f"{measure} of {run.name} is undefined whatever its unjudged documents are."
    return (
        f"{measure} of {run.name} is {now}, and {modal_verb(bound.exact)} be "
        f"{span(bound.lowest, bound.highest)} with grades for its "
        f"{plural(count, 'unjudged document')}."
    )


def _count_sentence(report: Unjudged) -> str:
    labels = [pair_label(pair, m) for pair in report.pairs for m in pair.measures]
    open_count = labels.count("undecided")
    if not open_count:
        return "No grade of an unjudged document could change who is ahead in any comparison."
    return (
        f"Unjudged documents leave {open_count} of {plural(len(labels), 'comparison')} undecided: "
        f"{_mean_judged(report):.0%} of what counts is judged."
    )


def pair_label(pair: PairHoles, measure: Measure) -> Label:
    """Return the label of run a that holds with every grade of the unjudged documents."""
    return pair.measures[measure].label(measure.sign)


def pair_sentence(pair: PairHoles, measure: Measure) -> str:
    """Return what grades of unjudged documents could do to the difference of two runs."""
    bound, count = pair.measures[measure], pair.holes[measure]
    a, b = name_in_sentence(pair.a), name_in_sentence(pair.b)
    if not count:
        return f"Every document that {measure} counts is judged in {a} and {b}."
    documents = plural(count, "unjudged document")
    if math.isnan(bound.lowest):
        return f"{measure} is undefined whatever the {documents} may be."
    label = pair_label(pair, measure)
    if label == "equal":
        return f"{a} and {b} are equal on {measure} whatever the {documents} may be."
    if label != "undecided":
        ahead, behind = (a, b) if label == "ahead" else (b, a)
        least = min(abs(bound.lowest), abs(bound.highest))
        return (
            f"{ahead} is ahead of {behind} on {measure} by {amount(least)} or more, whatever the "
            f"{documents} may be."
        )
    interval = f"({a} − {b} between {signed(bound.lowest)} and {signed(bound.highest)})"
    if math.isnan(bound.expected):
        graded = plural(count, "unjudged document is", "unjudged documents are")
        return f"{measure} is undefined until {graded} graded {interval}."
    if not may_change_sign(bound.expected, pair.ties[measure], (bound.lowest, bound.highest)):
        return f"Undecided: the order of ties decides who is ahead on {measure} {interval}."
    change = f"{modal_verb(bound.exact)} {_possible_change(pair, bound, measure)}"
    return f"Grades for {documents} {change} on {measure} {interval}."


def _possible_change(pair: PairHoles, bound: Bound, measure: Measure) -> str:
    low, high = sign(bound.lowest), sign(bound.highest)
    if low * high < 0:
        return "put either run ahead"
    ahead = pair.a if measure.sign * (low + high) > 0 else pair.b
    return f"put {name_in_sentence(ahead)} ahead, or leave both equal,"


def sample_answers(sampled: Sampled) -> list[str]:
    """Return which run is ahead by the estimates from a sample, for each pair and measure."""
    return [
        _sample_sentence(a, b, measure, estimate, len(sampled.sampled))
        for (a, b), estimates in sampled.pairs.items()
        for measure, estimate in estimates.items()
    ]


def _sample_sentence(a: str, b: str, measure: Measure, estimate: Estimate, queries: int) -> str:
    low, high = estimate.ci
    label = estimate.label(measure.sign)
    interval = f"95% CI {signed(low)} to {signed(high)}"
    if label == "undecided":
        return (
            f"Undecided on {measure}: {queries} judged queries do not show whether {a} or {b} is "
            f"better ({signed(estimate.estimate)}, {interval})."
        )
    if label == "equal":
        return f"{a} and {b} are equal on {measure} by {queries} judged queries."
    ahead, behind = (a, b) if label == "ahead" else (b, a)
    return (
        f"{ahead} beats {behind} on {measure} by {amount(abs(estimate.estimate))} if every "
        f"document were judged, by {queries} judged queries ({a} − {b}: {interval})."
    )


def _mean_judged(report: Unjudged) -> float:
    """Return the judged share of the top k, mean over runs and measures."""
    shares = [v for run in report.runs for v in run.judged.values() if not math.isnan(v)]
    return sum(shares) / len(shares) if shares else 1.0


def is_mostly_unjudged(report: Unjudged) -> bool:
    """True if so little is judged that worst cases say little."""
    return _mean_judged(report) < _MOSTLY_UNJUDGED


def _next_step(report: Unjudged) -> str:
    """Return how to settle what is open; "" where nothing is, or documents are being judged."""
    has_request = report.to_judge is not None or report.sampled is not None
    if has_request or report.settled is not None or report.leave_one_out is not None:
        return ""
    labels = [pair_label(pair, m) for pair in report.pairs for m in pair.measures]
    if "undecided" not in labels:
        return ""
    way = "--judge-sample 15" if is_mostly_unjudged(report) else "--judge-next 50"
    return f"rankproof holes {{inputs}} {way}"


# ------------------------------------------------------------------------------------ tables


def holes_tables(report: Unjudged) -> list[Table]:
    """Return what was requested or, where one sentence does not say it, the worst cases."""
    if report.leave_one_out is not None:
        return [leave_one_out_table(report.leave_one_out, report.pool_depth)]
    if report.sampled is not None:
        return [sample_table(report.sampled)]
    if report.sample_was_drawn:
        return []
    if report.to_judge is not None:
        return [_next_table(report)]
    rows = sum(len(pair.measures) for pair in report.pairs)
    if rows == 1 or (not report.pairs and len(report.runs[0].measures) == 1):
        return []
    return [pairs_table(report) if 0 < rows <= _MOST_PAIRS else runs_table(report)]


def full_holes_tables(report: Unjudged) -> list[Table]:
    """Return every table with every column."""
    tables = [runs_table(report, full=True)]
    if report.pairs:
        tables.append(pairs_table(report, full=True))
    if report.to_judge is not None and not report.sample_was_drawn:
        tables.append(_next_table(report))
    if report.sampled is not None:
        tables.append(sample_table(report.sampled))
    if report.leave_one_out is not None:
        tables.append(leave_one_out_table(report.leave_one_out, report.pool_depth, full=True))
    return tables


def runs_table(report: Unjudged, full: bool = False) -> Table:
    """Return a row for each run and measure."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("lowest", "expected", "highest"),
        Column("unjudged"),
        *([Column("judged"), Column("ends", "text")] if full else []),
    ]
    rows = []
    for run in report.runs:
        for measure, bound in run.measures.items():
            row: list[Cell] = [run.name, str(measure), bound.lowest, bound.expected, bound.highest]
            row.append(run.holes[measure])
            rows.append([*row, run.judged[measure], bound.kind] if full else row)
    return Table(columns, rows)


def pairs_table(report: Unjudged, full: bool = False) -> Table:
    """Return a row for each pair of runs and measure."""
    columns = [
        *Column.each("a", "b", style="text", folds=True),
        Column("measure", "text"),
        *Column.each("lowest", "a − b", "highest", style="signed"),
        *([Column("certain", "text"), Column("unjudged"), Column("ends", "text")] if full else []),
    ]
    rows = []
    for pair in report.pairs:
        for measure, bound in pair.measures.items():
            row: list[Cell] = [pair.a, pair.b, str(measure)]
            row += [bound.lowest, bound.expected, bound.highest]
            extra = ["yes" if bound.certain else "no", pair.holes[measure], bound.kind]
            rows.append([*row, *extra] if full else row)
    return Table(columns, rows)


def _next_table(report: Unjudged) -> Table:
    """Return the documents whose judgment could change the first measure most."""
    assert report.to_judge is not None
    effect = f"effect on {next(iter(report.runs[0].measures))}"
    columns = [Column("query", "text"), Column("doc", "text", folds=True), Column(effect)]
    return Table(columns, report.to_judge.rows(), title="Judge next")


def sample_table(sampled: Sampled) -> Table:
    """Return estimates from a sample of queries, for runs and pairs."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("as judged", "estimate", "ci low", "ci high"),
    ]
    pairs = ((f"{a} − {b}", estimates) for (a, b), estimates in sampled.pairs.items())
    rows = [
        (name, str(measure), estimate.reported, estimate.estimate, *estimate.ci)
        for name, estimates in [*sampled.runs.items(), *pairs]
        for measure, estimate in estimates.items()
    ]
    return Table(columns, rows)


def leave_one_out_table(rows: pl.DataFrame, pool_depth: int | None, full: bool = False) -> Table:
    """Return each run with and without the judgments that it alone contributed."""
    columns = [
        Column("run", "text", folds=True),
        Column("measure", "text"),
        *Column.each("only its", "value", "without"),
        *([Column("change", "signed"), *Column.each("rank", "rank without")] if full else []),
        *([] if full else [Column("rank")]),
    ]
    pooled = f", as its first {plural(pool_depth, 'document')}" if pool_depth is not None else ""
    note = f"only its: judgments that a run alone contributed{pooled}"
    cells: list[tuple[Cell, ...]] = rows.rows()
    if not full:
        cells = [(*row[:5], _rank_change(*row[6:])) for row in cells]
    return Table(columns, cells, notes=[note])


def _rank_change(before: Cell, after: Cell) -> str:
    ranks = ["–" if rank is None else str(rank) for rank in (before, after)]
    return ranks[0] if before == after else " → ".join(ranks)
