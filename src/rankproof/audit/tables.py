"""The tables of an audit: values of every setting, agreement and cost, ties at cutoffs, the paper.

For machines a table has a column for each thing; for people columns are few and narrow, and a
setting is one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rankproof.audit.paper_tables import Entry, MeanRange, entries, paired_formats
from rankproof.audit.readings import Reading
from rankproof.audit.results import Audit
from rankproof.audit.sentences import describe_subject
from rankproof.evaluation import MeanScore
from rankproof.foundation.phrasing import plural
from rankproof.measures import Measure
from rankproof.presentation.lead_wording import ZERO
from rankproof.presentation.tables import Cell, Column, Table


def format_table(audit: Audit) -> Table:
    """Return a row for each format: the first measure as engines score it, and scored better."""
    measure = audit.measures[0]
    rows_of: dict[str, dict[str, MeanScore]] = {}
    for reading in audit.readings:
        cut = "" if reading.is_full else f", {reading.dimensions} dimensions"
        name = f"{describe_subject(reading, audit)}{reading.format}{cut}"
        rows_of.setdefault(name, {})[reading.scoring] = reading.evaluation[measure]
    has_codes = any("original" in scores for scores in rows_of.values())
    has_precise = any(_precise(scores) for scores in rows_of.values())
    columns = [
        Column("format", "text", folds=True),
        *Column.each("as engines score it", "range from ties"),
        *([Column("high precision")] if has_precise else []),
        *([Column("rescored")] if has_codes else []),
    ]
    rows = []
    for name, scores in rows_of.items():
        plain, precise = scores.get("plain"), _precise(scores)
        row: list[Cell] = [name, None, None] if plain is None else [name, plain.expected, "none"]
        if plain is not None and plain.range > ZERO:
            row[2] = plain.range
        row += [None if precise is None else precise.expected] if has_precise else []
        row += [scores["original"].expected if "original" in scores else None] if has_codes else []
        rows.append(row)
    return Table(columns, rows, title=str(measure) if len(audit.measures) > 1 else None)


def _precise(scores: Mapping[str, MeanScore]) -> MeanScore | None:
    return scores.get("high precision") or scores.get("decoded")


def policy_lines(audit: Audit) -> list[str]:
    """Return the policy of the evaluations: the formats are what is audited."""
    return [
        line.replace("in which the run lists them", "of the rows of the file")
        for line in audit.readings[0].evaluation.policy.definitions("")
        if not line.startswith("Scores are compared as")
    ]


def describe_model(made: dict[str, Any]) -> str:
    """Return how one model was audited, in one line."""
    dataset = "" if made.get("dataset") is None else f", {made['dataset']}"
    name = f"{made['model']}{dataset}: {plural(made['queries'], 'query')}"
    run_formats = f", run in {', '.join(made['ran']['dtypes'])}" if "ran" in made else ""
    if made["kind"] == "logits":
        strict = ", scored as the paper does" if made["paper_strict"] else ""
        kind = "scores" if made["activation"] is None else f"logits, {made['activation']}"
        return f"{name}, {made['pairs']} {kind}{strict}{run_formats}"
    codes = ""
    if made["candidates"]:
        codes = f", {plural(made['candidates'], 'candidate')} of codes rescored"
    lists = f"top {made['k']}"
    if made["pairs"] is not None:
        lists = f"{made['pairs']} candidates reranked"
    return (
        f"{name}, {plural(made['documents'], 'document')}, "
        f"{plural(made['dimensions'][0], 'dimension')}, {made['metric']}, {lists}{codes}"
        f"{run_formats}"
    )


class _CostColumn(NamedTuple):
    """A column of the table of agreement, ties and cost."""

    name: str
    short_name: str  # for people
    value: Callable[[Reading], Cell]
    of_searches: bool = False  # only where vectors were searched


_COST_COLUMNS = (
    _CostColumn("ρ to float32", "ρ", lambda r: r.agreement.mean),
    _CostColumn("ρ undefined", "no ρ", lambda r: r.agreement.undefined),
    _CostColumn("tied queries", "tied", lambda r: r.evaluation.tied),
    _CostColumn("cut in a tie", "cut", lambda r: r.cut, True),
    _CostColumn(
        "bytes per vector",
        "bytes",
        lambda r: None if r.bytes_per_vector is None else round(r.bytes_per_vector),
        True,
    ),
    _CostColumn("seconds", "seconds", lambda r: r.seconds),
)


@dataclass(frozen=True)
class AuditTables:
    """All tables of an audit, for people or for machines."""

    audit: Audit
    for_people: bool

    def all(self) -> list[Table]:
        """Return values, agreement and cost, ties at cutoffs, and the paper's tables."""
        measures = self.audit.measures
        values = [self._values([m]) for m in measures]
        if not self.for_people:
            values = [self._values(measures)]
        cutoffs = []
        if not self._is_covered_by_paper():
            cutoffs = [
                self._at_cutoffs("distinct", "distinct scores in the top k, mean over queries"),
                self._at_cutoffs("group_size", "documents per distinct score, mean over queries"),
            ]
        return [*values, self._costs(), *cutoffs, *self._paper()]

    # ------------------------------------------------------------------------------- columns

    @property
    def _has_models(self) -> bool:
        return len(self.audit.models) > 1

    @property
    def _has_datasets(self) -> bool:
        return len(self.audit.datasets) > 1

    @property
    def _has_cuts(self) -> bool:
        return any(not reading.is_full for reading in self.audit.readings)

    def setting_columns(self) -> list[Column]:
        """Return the columns that name a row's setting; for people one that may fold."""
        if self.for_people:
            return [Column("setting", "text", folds=True)]
        return [
            *([Column("model", "text")] if self._has_models else []),
            *([Column("dataset", "text")] if self._has_datasets else []),
            Column("format", "text"),
            Column("scoring", "text"),
            *([Column("dimensions")] if self._has_cuts else []),
        ]

    def setting_cells(self, reading: Reading) -> list[Cell]:
        """Return the cells that name a reading's setting."""
        if self.for_people:
            return [describe_subject(reading, self.audit) + reading.pipeline.name]
        return [
            *([reading.model] if self._has_models else []),
            *([reading.dataset] if self._has_datasets else []),
            reading.format,
            reading.scoring,
            *([reading.dimensions] if self._has_cuts else []),
        ]

    # ------------------------------------------------------------------------- every setting

    def _values(self, measures: Sequence[Measure]) -> Table:
        """Return a row for each setting and measure, with its value under every tie order."""
        title = str(measures[0]) if self.for_people else None
        columns = [
            *self.setting_columns(),
            *([] if self.for_people else [Column("measure", "text")]),
            *Column.each("expected", "min", "max", "range", "oblivious"),
            Column("bias", "signed"),
        ]
        rows: list[list[Cell]] = []
        for reading in self.audit.readings:
            for measure in measures:
                s = reading.evaluation[measure]
                name: list[Cell] = [] if self.for_people else [str(measure)]
                values = [s.expected, s.min, s.max, s.range, s.oblivious, s.bias]
                rows.append([*self.setting_cells(reading), *name, *values])
        return Table(columns, rows, title=title)

    def _costs(self) -> Table:
        """Return a row for each setting: agreement with float32, ties, bytes and seconds."""
        readings = self.audit.readings
        is_search = any(r.bytes_per_vector is not None for r in readings)
        columns = [c for c in _COST_COLUMNS if is_search or not c.of_searches]
        names = [c.short_name if self.for_people else c.name for c in columns]
        rows = [[*self.setting_cells(r), *(c.value(r) for c in columns)] for r in readings]
        notes = [
            "ρ: Spearman’s to the float32 ranking, mean over queries; no ρ: queries all of whose "
            "scores tie",
            "tied: queries with a tie",
        ]
        if is_search:
            notes.append("cut: lists, or candidates to rescore, whose last tie goes on")
            notes.append("bytes: per vector; original adds the float32 vector kept beside the code")
        title = "agreement, ties, cost" if self.for_people else None
        return Table([*self.setting_columns(), *map(Column, names)], rows, title=title, notes=notes)

    def _at_cutoffs(self, attribute: str, title: str) -> Table:
        """Return a row for each setting with one value of its ties at every cutoff."""
        cutoffs = sorted({at.cutoff for r in self.audit.readings for at in r.ties.at})
        rows = []
        for reading in self.audit.readings:
            values = {at.cutoff: getattr(at, attribute) for at in reading.ties.at}
            cells = self._rounded([values.get(cutoff) for cutoff in cutoffs])
            rows.append([*self.setting_cells(reading), *cells])
        columns = [*self.setting_columns(), *(Column(f"k={cutoff}") for cutoff in cutoffs)]
        return Table(columns, rows, title=title)

    def _rounded(self, values: Sequence[float | None]) -> list[Cell]:
        """Return counts; for people with one decimal."""
        if not self.for_people:
            return list(values)
        return [None if value is None else f"{value:.1f}" for value in values]

    # ------------------------------------------------------------------------------ the paper

    def _is_covered_by_paper(self) -> bool:
        """True if every reading stands in the paper's tables."""
        formats = paired_formats(self.audit)
        return bool(formats) and all(
            r.is_full and r.format in ("float32", *formats) for r in self.audit.readings
        )

    def _paper(self) -> list[Table]:
        """Return the paper's tables for each low format that stands beside float32."""
        tables = []
        for form in paired_formats(self.audit):
            means = entries(self.audit, form)
            tables.append(self._in_points(means, "1"))
            if self._has_datasets:
                tables.append(self._in_points(entries(self.audit, form, by_dataset=True), "6"))
            tables += [
                self._counts(means, "distinct", "3: distinct scores"),
                self._counts(means, "group_size", "4: documents per score"),
                self._correlations(means),
            ]
        return tables

    def _in_points(self, rows_of_entries: list[Entry], number: str) -> Table:
        """Return a row for each measure: expected values and ranges of each setting, in %p."""
        triples = [rows_of_entries[i : i + 3] for i in range(0, len(rows_of_entries), 3)]
        low_title, high_title = triples[0][1].title, triples[0][2].title
        has_dataset = rows_of_entries[0].dataset is not None
        columns = [
            *([Column("model", "text", folds=True)] if self._has_models else []),
            *([Column("dataset", "text", folds=True)] if has_dataset else []),
            Column("measure", "text"),
            *Column.each("FP32", low_title, "min–max", high_title, "min–max"),
        ]
        rows: list[list[Cell]] = []
        for exact, low, high in triples:
            for measure in self.audit.measures:
                cells = _points(exact.measures[measure])[:1]  # the paper has no range of FP32
                cells += _points(low.measures[measure]) + _points(high.measures[measure])
                names: list[Cell] = [exact.model] if self._has_models else []
                names += [exact.dataset] if has_dataset else []
                rows.append([*names, str(measure), *cells])
        scope = ", each dataset" if has_dataset else _mean_scope(rows_of_entries)
        return Table(columns, rows, title=f"paper, Table {number}: expected, in %p{scope}")

    def _counts(self, means: list[Entry], attribute: str, title: str) -> Table:
        """Return a row for each setting with one value of its ties at every cutoff."""
        cutoffs = sorted({k for entry in means for k in getattr(entry, attribute)})
        rows = []
        for entry in means:
            values = getattr(entry, attribute)
            rows.append(
                [*self._entry_cells(entry), *self._rounded([values.get(k) for k in cutoffs])]
            )
        return self._entry_table([Column(f"k={k}") for k in cutoffs], rows, title, means)

    def _correlations(self, means: list[Entry]) -> Table:
        """Return a row for each setting with its agreement with float32."""
        rows = [[*self._entry_cells(entry), entry.spearman] for entry in means]
        return self._entry_table([Column("ρ")], rows, "5: ρ to FP32", means)

    def _entry_cells(self, entry: Entry) -> list[Cell]:
        """Return the cells that name the row of an entry."""
        return [*([entry.model] if self._has_models else []), entry.title]

    def _entry_table(
        self, columns: list[Column], rows: list[list[Cell]], title: str, means: list[Entry]
    ) -> Table:
        """Return a table of the paper with a row for each entry."""
        names = [
            *([Column("model", "text", folds=True)] if self._has_models else []),
            Column("setting", "text"),
        ]
        return Table([*names, *columns], rows, title=f"paper, Table {title}{_mean_scope(means)}")


def _points(values: MeanRange) -> list[Cell]:
    """Return an expected value and its range in hundredths."""
    expected, least, largest = (f"{100 * value:.2f}" for value in values)
    return [expected, f"{least}–{largest}"]


def _mean_scope(means: list[Entry]) -> str:
    """Return over how many datasets the values are means."""
    least, most = (pick(entry.datasets for entry in means) for pick in (min, max))
    datasets = most if least == most else f"{least} to {most}"
    return "" if most == 1 else f", mean over {datasets} datasets"
