"""Arguments become judgments, runs, measures and evaluations: the one place that does it.

A command's function takes paths, tables, frames and dicts alike; `EvaluationInputs` holds what
they turned out to be, and evaluates. Heavy imports stay inside functions: the command line imports
this module to name files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankproof.commands.recording import ROW, name_files, split_row
from rankproof.foundation.errors import InputError, shorten

if TYPE_CHECKING:
    from rankproof.data import QrelsLike, RunLike
    from rankproof.data.tables import Qrels
    from rankproof.evaluation import Evaluation, Policy
    from rankproof.measures import Measure
    from rankproof.unjudged.bounds import WorstCases

_NOT_POLICY = (
    *("policy", "level", "input_format", "qrels_format", "memory", "spill_dir", "groups"),
    *("judge", "human"),
)


def resolve_row(path: str) -> str:
    """`FOLDER::ROW` is the run of that row of a sweep; any other path is left alone."""
    folder, row = split_row(path)
    if not row:
        return path
    from rankproof.tradeoffs.sweep import find_run_file

    return str(find_run_file(folder, row.removeprefix(ROW)))


def is_path(value: object) -> bool:
    """True for a string or a path-like object."""
    return isinstance(value, str | os.PathLike)


def are_named_paths(runs: Any) -> bool:
    """True for {name: path}, also an empty one; nothing has to be imported to know that."""
    return isinstance(runs, Mapping) and all(map(is_path, runs.values()))


def name_runs(runs: Any) -> dict[str, Any]:
    """One run or several as {name: run}; paths are named by the shortest names that differ."""
    from rankproof.evaluation import several

    if is_path(runs):
        runs = [runs]
    if isinstance(runs, Mapping):
        runs = _number_repeats(runs)
    if isinstance(runs, list | tuple) and runs and all(map(is_path, runs)):
        return name_files([resolve_row(os.fspath(path)) for path in runs])
    named = dict(runs) if are_named_paths(runs) else several(runs)
    if named is None:
        named = {str(getattr(runs, "name", "run")): runs}
    return {
        name: resolve_row(os.fspath(run)) if is_path(run) else run for name, run in named.items()
    }


def _number_repeats(runs: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return {name: [run, run]} as {name@1: run, name@2: run}."""
    from rankproof.comparison.repeats import is_list_of_runs

    numbered: dict[Any, Any] = {}
    for name, value in runs.items():
        if is_list_of_runs(value):
            numbered |= {f"{name}@{number}": run for number, run in enumerate(value, 1)}
        else:
            numbered[name] = value
    return numbered


def is_single_run(runs: Any) -> bool:
    """True for one run rather than a list or a mapping of runs."""
    from rankproof.evaluation import several

    return is_path(runs) or (not are_named_paths(runs) and several(runs) is None)


def size_of(paths: Any) -> int:
    """Bytes of the files, for a progress bar; those of a folder are its shards."""
    from rankproof.data.sources import is_file, is_folder

    places = [Path(path) for path in paths if is_path(path) and path != "-"]
    files = [f for place in places for f in (place.rglob("*") if is_folder(place) else [place])]
    return sum(file.stat().st_size for file in files if is_file(file))


def reading(runs: Mapping[str, Any]) -> AbstractContextManager[None]:
    """A progress task for reading these runs."""
    from rankproof.foundation.progress import progress

    label = f"reading {len(runs)} runs" if len(runs) > 1 else "reading"
    return progress(label, size_of(runs.values()))


def read_judgments(
    qrels: QrelsLike,
    qrels_format: str | None = None,
    memory: int | str | None = None,
    *,
    measures: Iterable[Measure] = (),
) -> Qrels:
    """Read judgments, which must fit into `memory` as a whole, if it is given.

    Their aspects are read where one of the `measures` needs them.
    """
    from rankproof.data import read_qrels
    from rankproof.data.beir import chosen_among, qrels_file
    from rankproof.data.sources import Source
    from rankproof.foundation.memory import parse_memory
    from rankproof.foundation.progress import progress

    aspects = any(measure.needs_aspects for measure in measures)
    if not is_path(qrels):
        return read_qrels(qrels, format=qrels_format, aspects=aspects)
    file = qrels_file(qrels)  # type: ignore[arg-type]
    with progress("reading judgments", size_of([file])):
        source = Source(file, limit=None if memory is None else parse_memory(memory))
        table = read_qrels(source, format=qrels_format, aspects=aspects)
    choice_notes = chosen_among(qrels, file)  # type: ignore[arg-type]
    return replace(table, notes=(*choice_notes, *table.notes)) if choice_notes else table


def read_query_groups(groups: Any, qrels: Qrels) -> dict[str, int] | None:
    """Read which queries share a source; refuse groups without a judged query."""
    from rankproof.data.query_groups import read_groups

    if groups is None:
        return None
    group_of = read_groups(groups)
    if not any(query in group_of for query in qrels.queries):
        raise InputError(
            f"no query of {qrels.name} is in a group",
            place=str(groups) if is_path(groups) else "groups",
            remedy="check that the ids are those of the judgments",
        )
    return group_of


def policy_of(options: Mapping[str, Any]) -> Policy:
    """The policy that single keywords or `policy=` describe; giving both is refused."""
    from rankproof.evaluation import Policy

    choices = {name: value for name, value in options.items() if name not in _NOT_POLICY}
    policy = options.get("policy")
    if policy is None:
        return Policy.of(**choices)
    for name, value in choices.items():
        if value not in (None, False):
            raise InputError(f"policy and {name} are both given", remedy="give one of the two")
    if not isinstance(policy, Policy):
        raise InputError(f"policy {shorten(policy)}", remedy="give a rankproof.Policy")
    return policy


def check_judgments_first(command: str, qrels: object, runs: object) -> None:
    """Refuse a call with judgments and runs swapped, if their types show it."""
    from rankproof.data.tables import Qrels, Run
    from rankproof.evaluation import several

    are_runs_first = not is_path(qrels) and several(qrels) is not None
    if isinstance(qrels, Run) or isinstance(runs, Qrels) or are_runs_first:
        raise InputError(
            "runs stand where judgments belong",
            place=command,
            remedy=f"judgments come first: {command}(qrels, run, …)",
        )


def _checked_table(command: str, run: Any, name: str, qrels: Qrels) -> Any:
    """Read a run from memory, refusing what must be judgments; return a path as it is."""
    from rankproof.data import read_run
    from rankproof.data.tables import Run
    from rankproof.evaluation import grade_like_scores, swap_evidence

    if is_path(run) or isinstance(run, Run):
        return run
    table = read_run(run, name=name)
    appearance, is_sure = swap_evidence(len(table), grade_like_scores(table), qrels)
    if is_sure:
        raise InputError(
            appearance,
            place=command,
            remedy="name the judgments first and the run second; if they are, hand over "
            "read_qrels(qrels) and read_run(run)",
        )
    return table


def check_runs_named(command: str, qrels: Any, runs: Any) -> None:
    """Refuse a call without judgments or without runs."""
    if qrels is None or (isinstance(runs, list | tuple | str) and not runs):
        raise InputError(
            "no run is named", place=command, remedy="give QRELS, then RUN..., or --task"
        )


def _unused_groups(qrels: Path) -> list[str]:
    """Return a note if a file of groups lies unused beside the judgments, or in their folder."""
    file = (qrels if qrels.is_dir() else qrels.parent) / "groups.tsv"
    if not file.is_file():
        return []
    return [f"{file.name} beside the judgments is not used: --groups {file} counts groups"]


def _check_read_twice(runs: Mapping[str, Any]) -> None:
    """Refuse pipes where runs are evaluated by two sets of labels."""
    from rankproof.data.sources import is_pipe

    for run in runs.values():
        if is_path(run) and is_pipe(run):
            raise InputError("--human reads a run twice", place=str(run), remedy="name a file")


@dataclass(frozen=True)
class EvaluationInputs:
    """Judgments, runs by name, measures and policy of a command, read from its arguments."""

    qrels: Qrels
    runs: dict[str, RunLike]
    measures: list[Measure]
    policy: Policy
    options: Mapping[str, Any]
    groups: dict[str, int] | None = None  # the group of each query, by number

    @classmethod
    def of(
        cls,
        command: str,
        qrels: Any,
        runs: Any,
        measures: Any,
        options: Mapping[str, Any],
        *,
        parse: Callable[[Any], list[Measure]] | None = None,
    ) -> EvaluationInputs:
        """Read what the arguments name. `parse` reads measures; by default they must be means.

        Default measures are adapted to the scale of the grades.
        """
        from rankproof.commands.options import DEFAULT_MEASURES
        from rankproof.data.tables import Qrels
        from rankproof.evaluation import at_level, parse_means
        from rankproof.measures import Measure
        from rankproof.measures import parse as parse_measure

        check_judgments_first(command, qrels, runs)
        policy = policy_of(options)
        are_defaults = measures in (DEFAULT_MEASURES, DEFAULT_MEASURES[:1])
        listed = [measures] if isinstance(measures, str | Measure) else list(measures)
        leveled = at_level([parse_measure(measure) for measure in listed], options.get("level"))
        parsed = (parse or parse_means)(leveled)
        runs_by_name = name_runs(runs) if runs is not None else {}
        reading_options = options.get("qrels_format"), options.get("memory")
        judged = read_judgments(qrels, *reading_options, measures=parsed)
        if are_defaults:
            parsed = [measure.on_scale(judged.scale) for measure in parsed]
        if not isinstance(qrels, Qrels):
            runs_by_name = {
                name: _checked_table(command, run, name, judged)
                for name, run in runs_by_name.items()
            }
        if any("@" in name for name in runs_by_name):
            from rankproof.comparison.repeats import system_of

            # Repeats stand one after the other.
            runs_by_name = {name: runs_by_name[name] for name in system_of(runs_by_name)}
        groups = read_query_groups(options.get("groups"), judged)
        unused = _unused_groups(Path(qrels)) if groups is None and is_path(qrels) else []
        if unused:
            judged = replace(judged, notes=(*judged.notes, *unused))
        return cls(judged, runs_by_name, parsed, policy, options, groups)

    @property
    def reading_options(self) -> dict[str, Any]:
        """Keywords of `evaluate_named` on how runs are read."""
        names = {"format": "input_format", "memory": "memory", "spill_dir": "spill_dir"}
        return {name: self.options.get(option) for name, option in names.items()}

    def evaluate(
        self, *, holes: bool | None = False, measures: Sequence[Measure] | None = None
    ) -> tuple[list[Evaluation], WorstCases | None]:
        """Evaluate every run; with `holes` also all of them whole, for bounds (see there).

        Annotators' labels of some queries are added, and leave no bounds.
        """
        human = self.options.get("human") if measures is None else None
        if human is not None:
            _check_read_twice(self.runs)
            holes = False
        evaluations, view = self._evaluate(holes, measures)
        if human is not None:
            evaluations = self.with_annotators(evaluations, human)
        elif self.options.get("judge"):
            evaluations = [replace(e, by_judge=True) for e in evaluations]
        return evaluations, view

    def annotators(self, human: Any) -> tuple[EvaluationInputs, dict[Measure, Measure], int]:
        """Return the same inputs with annotators' labels, and each measure on their scale.

        Also how many of their queries the judge did not label.
        """
        labels = read_judgments(human, self.options.get("qrels_format"), measures=self.measures)
        scale = labels.scale_beside(self.qrels.scale)
        rescaled = {m: m.rescaled(self.qrels.scale, scale) for m in self.measures}
        unknown = len(set(labels.queries) - set(self.qrels.queries))
        return replace(self, qrels=labels), rescaled, unknown

    def with_annotators(self, evaluations: Sequence[Evaluation], human: Any) -> list[Evaluation]:
        """Add to each evaluation the estimate of its scores with annotators' labels."""
        from rankproof.evaluation.annotator_estimates import estimate_with_annotators

        inputs, rescaled, unknown = self.annotators(human)
        labeled, _ = inputs.evaluate(measures=list(dict.fromkeys(rescaled.values())))
        return [
            replace(e, annotators=estimate_with_annotators(e, other, rescaled, unknown))
            for e, other in zip(evaluations, labeled, strict=True)
        ]

    def _evaluate(
        self, holes: bool | None, measures: Sequence[Measure] | None
    ) -> tuple[list[Evaluation], WorstCases | None]:
        """Evaluate every run by the judgments."""
        from rankproof.unjudged.judged_share import evaluate_named

        evaluations, view = evaluate_named(
            self.runs,
            self.qrels,
            self.measures if measures is None else measures,
            self.policy,
            holes=holes,
            reading=lambda: reading(self.runs),
            **self.reading_options,
        )
        if self.groups is not None:
            from rankproof.data.query_groups import number_groups

            evaluations = [
                replace(e, groups=number_groups(e.queries, self.groups)) for e in evaluations
            ]
        return evaluations, view
