"""The tables that `rankproof audit` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rankproof.cli.output import Cell, Column, Table
from rankproof.foundation.phrasing import plural

if TYPE_CHECKING:
    from rankproof.audit import Audit, Reading
    from rankproof.audit.paper_tables import Entry
    from rankproof.measures import Measure


class Tables:
    """The tables of an audit: a column for each thing, or few and narrow ones for people."""

    def __init__(self, audit: Audit, people: bool):
        self.audit = audit
        self.people = people
        self.models = len(audit.models) > 1
        self.datasets = len(audit.datasets) > 1
        self.sizes = any(not reading.full for reading in audit.readings)

    def all(self) -> list[Table]:
        notes = self._notes()
        cutoffs = [
            self._at_cutoffs("distinct", "distinct scores in the top k, mean over queries"),
            self._at_cutoffs("group_size", "documents per distinct score, mean over queries"),
        ]
        if self._covered():
            cutoffs = []
        if not self.people:
            figures = [self._figures(self.audit.measures, notes)]
        else:
            *most, last = self.audit.measures
            figures = [*(self._figures([m], []) for m in most), self._figures([last], notes)]
        return [*figures, self._overview(), *cutoffs, *self.paper()]

    def paper(self) -> list[Table]:
        """The paper's tables, for each low format that stands beside float32."""
        from rankproof.audit.paper_tables import entries, lows

        found = []
        for form in lows(self.audit):
            every = entries(self.audit, form)
            found.append(self._in_points(every, "1"))
            if self.datasets:
                found.append(self._in_points(entries(self.audit, form, apart=True), "6"))
            found += [
                self._counts(every, "distinct", "3: distinct scores"),
                self._counts(every, "group_size", "4: documents per score"),
                self._counts(every, "spearman", "5: ρ to FP32"),
            ]
        return found

    def _covered(self) -> bool:
        """Whether every reading stands in the paper's tables."""
        from rankproof.audit.paper_tables import lows

        return bool(lows(self.audit)) and all(
            r.full and r.format in ("float32", *lows(self.audit)) for r in self.audit.readings
        )

    def _in_points(self, found: list[Entry], number: str) -> Table:
        """A row for each measure: what is expected of each setting, and from worst to best order
        of ties, in hundredths."""
        triples = [found[at : at + 3] for at in range(0, len(found), 3)]
        _, low, high = (entry.title for entry in triples[0])
        names = ["FP32", low, "min–max", high, "min–max"]
        apart = found[0].dataset is not None
        columns = [
            *([Column("model", "text", folds=True)] if self.models else []),
            *([Column("dataset", "text", folds=True)] if apart else []),
            Column("measure", "text"),
            *(Column(name) for name in names),
        ]
        rows: list[list[Cell]] = []
        for triple in triples:
            for measure in self.audit.measures:
                cells: list[Cell] = []
                for entry in triple:
                    expected, least, most = (f"{100 * x:.2f}" for x in entry.measures[measure])
                    cells += [expected, f"{least}–{most}"]
                del cells[1]  # the paper prints no range of FP32
                own: list[Cell] = [triple[0].model] if self.models else []
                own += [triple[0].dataset] if apart else []
                rows.append([*own, str(measure), *cells])
        over = ", each dataset" if apart else _over(found)
        return Table(columns, rows, title=f"paper, Table {number}: expected, in %p{over}")

    def _counts(self, found: list[Entry], figure: str, title: str) -> Table:
        """A row for each setting."""
        values = [getattr(entry, figure) for entry in found]
        single = figure == "spearman"
        cutoffs = [] if single else sorted({k for at in values for k in at})
        rows: list[list[Cell]] = []
        for entry, at in zip(found, values, strict=True):
            numbers: list[Cell] = [at] if single else [at.get(k) for k in cutoffs]
            if self.people and not single:
                numbers = [None if n is None else f"{n:.1f}" for n in numbers]
            rows.append([*([entry.model] if self.models else []), entry.title, *numbers])
        columns = [
            *([Column("model", "text", folds=True)] if self.models else []),
            Column("setting", "text"),
            *([Column("ρ")] if single else [Column(f"k={k}") for k in cutoffs]),
        ]
        return Table(columns, rows, title=f"paper, Table {title}{_over(found)}")

    def summary(self) -> Table:
        """A row for each setting: what each measure is expected to be, the widest range, ρ."""
        measures = self.audit.measures
        columns = [*self._keys(), *(Column(str(m)) for m in measures), *Column.each("range", "ρ")]
        rows = [
            [
                *self._cells(r),
                *(r.evaluation[m].expected for m in measures),
                max(r.evaluation[m].range for m in measures),
                r.agreement.mean,
            ]
            for r in self.audit.readings
        ]
        notes = [
            "expected over all tie orders; range: the widest of all measures, from the worst order "
            "to the best; ρ: to the float32 ranking; --full shows the rest",
            *self._notes(),
        ]
        return Table(columns, rows, notes=notes)

    def _keys(self) -> list[Column]:
        """The columns that say which setting a row is; for people one that gives way."""
        if self.people:
            return [Column("setting", "text", folds=True)]
        return [
            *([Column("model", "text")] if self.models else []),
            *([Column("dataset", "text")] if self.datasets else []),
            *(Column("format", "text"), Column("scoring", "text")),
            *([Column("dimensions")] if self.sizes else []),
        ]

    def _cells(self, reading: Reading) -> list[Cell]:
        from rankproof.audit.sentences import subject

        if self.people:
            return [f"{subject(reading, self.audit)}{reading.label}"]
        return [
            *([reading.model] if self.models else []),
            *([reading.dataset] if self.datasets else []),
            *(reading.format, reading.scoring),
            *([reading.dimensions] if self.sizes else []),
        ]

    def _figures(self, measures: list[Measure], notes: list[str]) -> Table:
        """A row for each setting and measure."""
        columns = [
            *self._keys(),
            *([] if self.people else [Column("measure", "text")]),
            *Column.each("expected", "min", "max", "range", "oblivious"),
            Column("bias", "signed"),
        ]
        rows = [
            [
                *self._cells(reading),
                *([] if self.people else [str(m)]),
                *(s.expected, s.min, s.max, s.range, s.oblivious, s.bias),
            ]
            for reading in self.audit.readings
            for m in measures
            for s in [reading.evaluation[m]]
        ]
        return Table(columns, rows, title=str(measures[0]) if self.people else None, notes=notes)

    def _notes(self) -> list[str]:
        evaluation = self.audit.readings[0].evaluation
        policy = [
            line.replace("in which the run lists them", "of the rows given")
            for line in evaluation.policy.words("")
            if not line.startswith("scores compared as")  # that is what formats are
        ]
        notes = [*(_made(how) for how in self.audit.made), *policy, *self.audit.notes]
        if evaluation.missing:
            absent = plural(evaluation.missing, "judged query is", "judged queries are")
            notes.append(f"{absent} not among those audited")
        return notes

    def _overview(self) -> Table:
        """A row for each setting: agreement, ties, cost."""
        readings = self.audit.readings
        searched = any(r.bytes_per_vector is not None for r in readings)
        names = ["ρ to float32", "ρ undefined", "tied queries"]
        names += ["cut in a tie", "bytes per vector"] if searched else []
        short = {
            "ρ to float32": "ρ",
            "ρ undefined": "no ρ",
            "tied queries": "tied",
            "cut in a tie": "cut",
            "bytes per vector": "bytes",
        }
        names = [short[name] if self.people else name for name in names]
        columns = [*self._keys(), *map(Column, names), Column("seconds")]
        rows = [
            [
                *self._cells(r),
                *(r.agreement.mean, r.agreement.undefined, r.evaluation.tied),
                *([r.cut, _bytes(r)] if searched else []),
                r.seconds,
            ]
            for r in readings
        ]
        notes = [
            "ρ: Spearman’s to the float32 ranking, mean over queries; no ρ: queries all of whose "
            "scores tie",
            "tied: queries with a tie",
        ]
        if searched:
            notes.append("cut: lists, or candidates to rescore, whose last tie goes on")
            notes.append("bytes: per vector; original adds the float32 vector kept beside the code")
        return Table(
            columns, rows, title="agreement, ties, cost" if self.people else None, notes=notes
        )

    def _at_cutoffs(self, figure: str, title: str) -> Table:
        cutoffs = sorted({at.cutoff for r in self.audit.readings for at in r.ties.at})
        rows = []
        for reading in self.audit.readings:
            found = {at.cutoff: getattr(at, figure) for at in reading.ties.at}
            numbers: list[Cell] = [found.get(cutoff) for cutoff in cutoffs]
            if self.people:
                numbers = [None if n is None else f"{n:.1f}" for n in numbers]
            rows.append([*self._cells(reading), *numbers])
        columns = [*self._keys(), *(Column(f"k={cutoff}") for cutoff in cutoffs)]
        return Table(columns, rows, title=title)


def _over(found: list[Entry]) -> str:
    """How many datasets the figures are means over."""
    least, most = (pick(entry.datasets for entry in found) for pick in (min, max))
    some = most if least == most else f"{least} to {most}"
    return "" if most == 1 else f", mean over {some} datasets"


def _made(how: dict[str, Any]) -> str:
    """How one model was audited."""
    name = how["model"] if how.get("dataset") is None else f"{how['model']}, {how['dataset']}"
    ran = f", run in {', '.join(how['ran']['dtypes'])}" if "ran" in how else ""
    queries = plural(how["queries"], "query")
    if how["kind"] == "logits":
        strict = ", scored as the paper does" if how["paper_strict"] else ""
        what = "scores" if how["activation"] is None else f"logits, {how['activation']}"
        return f"{name}: {queries}, {how['pairs']} {what}{strict}{ran}"
    codes = (
        f", {plural(how['candidates'], 'candidate')} of codes rescored" if how["candidates"] else ""
    )
    lists = f"top {how['k']}" if how["pairs"] is None else f"{how['pairs']} candidates reranked"
    return (
        f"{name}: {queries}, {plural(how['documents'], 'document')}, "
        f"{plural(how['dimensions'][0], 'dimension')}, {how['metric']}, {lists}{codes}{ran}"
    )


def _bytes(reading: Reading) -> int | None:
    return None if reading.bytes_per_vector is None else round(reading.bytes_per_vector)
