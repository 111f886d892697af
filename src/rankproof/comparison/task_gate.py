"""A gate over several collections: the mean over tasks decides, and no task may be worse.

The first line that applies:

    a task is worse                                            worse
    a task was not measured as its baseline was                undecided, whatever is allowed
    the low end of the mean's I is above −margin               passed
    the high end of its F is below 0                           worse; undecided, whatever is
                                                               allowed, if unjudged documents
                                                               could change it
    otherwise                                                  undecided
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rankproof.comparison.gate import Gate, GateLabel, gains, is_fully_judged
from rankproof.comparison.pair_tables import is_mostly_unjudged
from rankproof.comparison.tasks import Collection
from rankproof.comparison.verdict import Verdict
from rankproof.evaluation.checks import merge_notes
from rankproof.foundation.phrasing import plural, signed
from rankproof.measures import Measure
from rankproof.presentation.charts import Chart, Range, range_charts
from rankproof.presentation.display import Displayed
from rankproof.presentation.result import Presentation, Summary
from rankproof.presentation.tables import Cell, Column, Table
from rankproof.presentation.text_formats import to_markdown

_EXIT_CODES = {"passed": 0, "worse": 1, "undecided": 3}


@dataclass(frozen=True, slots=True, repr=False)
class TaskGate(Displayed):
    """The gates of all tasks, and the verdict on their mean; true if the candidate may pass."""

    kind: ClassVar[str] = "task gate"

    gates: dict[str, Gate]
    collection: Collection = field(repr=False)  # of candidate and baseline
    margins: dict[Measure, float]
    allow_undecided: bool

    @property
    def candidate(self) -> str:
        """The name of the candidate."""
        return next(iter(self.gates.values())).candidate

    @property
    def baseline(self) -> str:
        """The name of the baseline."""
        return next(iter(self.gates.values())).baseline

    def mean_verdict(self, measure: Measure) -> Verdict:
        """Return the verdict on the mean over tasks, candidate against baseline."""
        return self.collection.verdict(self.candidate, self.baseline, measure)

    def _mean_label(self, measure: Measure) -> tuple[GateLabel, bool]:
        """Return the label of the mean, and whether an undecided one stays so if allowed."""
        verdict = self.mean_verdict(measure)
        if verdict.differing == 0:
            return "passed", False
        if verdict.ci is None or verdict.family_ci is None:
            return "undecided", False
        if gains(verdict.ci, measure.sign)[0] > -self.margins[measure]:
            return "passed", False
        if gains(verdict.family_ci, measure.sign)[1] >= 0:
            return "undecided", False
        as_judged = all(
            is_fully_judged(g.comparison) or is_mostly_unjudged(g.comparison.evaluations)
            for g in self.gates.values()
        )
        return ("worse", False) if as_judged else ("undecided", True)

    @property
    def is_final(self) -> bool:
        """True if an undecided verdict stays so though undecided is allowed."""
        tasks = [
            g.labels.stale or any(gated.obstacle for gated in g.measures.values())
            for g in self.gates.values()
        ]
        return any(tasks) or any(self._mean_label(m)[1] for m in self.margins)

    @property
    def verdict(self) -> GateLabel:
        """Worse if a task or the mean is, passed if the mean is on every measure."""
        labels = {self._mean_label(measure)[0] for measure in self.margins}
        if "worse" in labels or any(g.verdict == "worse" for g in self.gates.values()):
            return "worse"
        return "undecided" if self.is_final or "undecided" in labels else "passed"

    @property
    def passed(self) -> bool:
        """True if the candidate may be released."""
        return self.exit_code == 0

    def __bool__(self) -> bool:
        return self.passed

    @property
    def exit_code(self) -> int:
        """0 passed, 1 worse, 3 undecided; 0 for undecided if that is allowed and not final."""
        if self.verdict == "undecided" and self.allow_undecided and not self.is_final:
            return 0
        return _EXIT_CODES[self.verdict]

    @property
    def warnings(self) -> list[str]:
        """Notes on what the readers assumed."""
        return merge_notes(e for g in self.gates.values() for e in g.comparison.evaluations)

    # ------------------------------------------------------------------------------ words

    def summary(self) -> Summary:
        """The verdict with its reason."""
        lead = self.verdict.upper()
        if self.exit_code:
            lead += f" (exit {self.exit_code})"
        notes = ["The tasks are those named, not a sample of others."]
        undecided = [task for task, g in self.gates.items() if g.verdict == "undecided"]
        if self.verdict == "passed" and undecided:
            notes.insert(0, f"Alone, {', '.join(undecided)} would be undecided.")
        return Summary.of(f"{lead}: {self._reason()}", notes)

    def _reason(self) -> str:
        """Return what decides, in a sentence."""
        for task, gate in self.gates.items():
            for measure, gated in gate.measures.items():
                if gated.label == "worse":
                    return f"in {task}, {gated.sentence(self.candidate, measure)}"
        for task, gate in self.gates.items():
            for measure, gated in gate.measures.items():
                if gate.labels.stale:
                    return f"in {task}, {gate.labels.why}"
                if gated.obstacle:
                    return f"in {task}, {gated.sentence(self.candidate, measure)}"
        measure = next(m for m in self.margins if self._mean_label(m)[0] == self.verdict)
        return self._mean_reason(measure)

    def _mean_reason(self, measure: Measure) -> str:
        verdict, margin = self.mean_verdict(measure), self.margins[measure]
        mean = f"the mean {measure} of {plural(len(self.gates), 'task')}"
        if self.verdict == "passed":
            low = 0.0 if verdict.ci is None else gains(verdict.ci, measure.sign)[0]
            return (
                f"{self.candidate} loses at most {max(0.0, -low):.4f} on {mean}, and no task is "
                f"worse (margin {margin:g})."
            )
        if self.verdict == "worse":
            loss = -measure.sign * verdict.estimate
            return f"{self.candidate} loses {loss:.4f} on {mean} (margin {margin:g})."
        if self._mean_label(measure)[1]:
            return f"{self.candidate} loses on {mean}, but only as judged."
        return f"{self.candidate} may lose more than {margin:g} on {mean}."

    # ------------------------------------------------------------------------------ data

    def tables(self) -> list[Table]:
        """For each measure a row for each task, and their mean."""
        return [self._table(measure) for measure in self.margins]

    def _table(self, measure: Measure) -> Table:
        columns = [
            Column(f"{measure} in", "text"),
            *Column.each("baseline", "candidate"),
            Column("difference", "signed"),
            *Column.each("95% CI", "verdict", style="text"),
        ]
        rows: list[list[Cell]] = []
        for task, gate in self.gates.items():
            g = gate.measures[measure]
            ends = None if g.verdict.ci is None else g.bounds
            rows.append([task, g.baseline, g.candidate, g.verdict.estimate, _span(ends), g.label])
        s, verdict = self.collection.measures[measure], self.mean_verdict(measure)
        means = [float(s.means[s.runs.index(name)]) for name in (self.baseline, self.candidate)]
        label = self._mean_label(measure)[0]
        rows.append(["mean", *means, verdict.estimate, _span(verdict.ci), label])
        return Table(columns, rows)

    def charts(self) -> list[Chart]:
        """Each task's difference and the mean, with intervals."""
        rows, panels = [], []
        for measure in self.margins:
            verdicts = {t: g.measures[measure].verdict for t, g in self.gates.items()}
            for name, verdict in {**verdicts, "mean": self.mean_verdict(measure)}.items():
                rows.append(Range(name, verdict.estimate, *(verdict.ci or (None, None))))
                panels.append(str(measure))
        title = f"{self.candidate} − {self.baseline}"
        return range_charts(rows, title, "difference", panels=panels, zero=True)

    def figures(self) -> dict[str, float]:
        """The difference of the means over tasks, by measure."""
        return {str(m): self.mean_verdict(m).estimate for m in self.margins}

    def to_dict(self) -> dict[str, Any]:
        """What `--format json` prints."""
        return {
            "passed": self.passed,
            "verdict": self.verdict,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "mean": {
                str(m): {
                    "verdict": self._mean_label(m)[0],
                    "margin": margin,
                    "comparison": self.mean_verdict(m).to_dict(),
                }
                for m, margin in self.margins.items()
            },
            "tasks": {task: gate.to_dict() for task, gate in self.gates.items()},
            "allow_undecided": self.allow_undecided,
        }

    def markdown(self) -> str:
        """Return a summary for a pull request."""
        return f"### rankproof gate: {self.verdict}\n\n{to_markdown(Presentation.of(self))}\n"

    def junit(self) -> str:
        """Return JUnit XML with a test suite for each task."""
        suites = [re.sub(r"<\?xml[^>]*\?>\n", "", gate.junit()) for gate in self.gates.values()]
        return "\n".join(
            ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>", *suites, "</testsuites>", ""]
        )

    def __repr__(self) -> str:
        return f"<gate: {self.candidate} against {self.baseline}: {self.verdict}>"


def _span(ends: tuple[float, float] | None) -> str | None:
    return None if ends is None else f"{signed(ends[0])} to {signed(ends[1])}"
