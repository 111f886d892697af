"""Several collections in one call: tasks with judgments and runs of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankproof.commands.inputs import EvaluationInputs, is_path
from rankproof.foundation.errors import InputError, shorten

if TYPE_CHECKING:
    from rankproof.comparison.tasks import Collection

TasksLike = Any  # {name: (judgments, runs)}, or "NAME=QRELS,RUN,…" each


def find_tasks(tasks: TasksLike, qrels: Any, runs: Any) -> dict[str, tuple[Any, Any]]:
    """Return judgments and runs of each task; {} where a single collection is meant.

    A folder in place of judgments may hold a folder for each task, with a file or folder `qrels…`.
    """
    if not tasks:
        return {} if runs or not is_path(qrels) else _tasks_of_folder(Path(qrels))
    if qrels is not None or runs:
        raise InputError("judgments beside tasks", remedy="name them inside each task")
    if isinstance(tasks, Mapping):
        return {str(name): (pair[0], pair[1]) for name, pair in tasks.items()}
    found = [_parse_task(text) for text in ([tasks] if isinstance(tasks, str) else tasks)]
    named = dict(found)
    if len(named) < len(found):
        raise InputError("two tasks of one name", place="--task", remedy="name them apart")
    return named


def _parse_task(text: str) -> tuple[str, tuple[Any, Any]]:
    """Return the name, the judgments and the runs of NAME=QRELS,RUN,…"""
    name, _, files = text.partition("=")
    qrels, *runs = [file for file in files.split(",") if file] or [""]
    if not (name and qrels and runs):
        raise InputError(
            f"{shorten(text)} is not a task",
            place="--task",
            remedy="write NAME=QRELS,RUN,…: judgments first, then runs",
        )
    return name, (qrels, _name_runs(runs))


def _name_runs(paths: Sequence[str]) -> dict[str, str]:
    """Name runs by their files, or by their folders where the files are named alike.

    MTEB saves predictions as MODEL/TASK_predictions.json.
    """
    from rankproof.commands.recording import name_given_files
    from rankproof.data.sources import stem

    folders = [Path(path).parent.name for path in paths]
    if len(paths) > 1 and len({stem(path) for path in paths}) == 1 and len(set(folders)) > 1:
        return dict(zip(folders, paths, strict=True))
    return name_given_files(list(paths))


def _tasks_of_folder(folder: Path) -> dict[str, tuple[Any, Any]]:
    """Return the tasks in the folders of a folder; {} unless each has judgments and runs."""
    from rankproof.comparison.leaderboard import expand

    if not folder.is_dir() or any(folder.glob("qrels*")):
        return {}
    tasks: dict[str, tuple[Any, Any]] = {}
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        judgments = sorted(place.glob("qrels*"))
        if not judgments:
            continue
        qrels = place if judgments[0].is_dir() else judgments[0]
        files = [
            file
            for file in expand([str(place)], str(judgments[0]))
            if Path(file).name not in ("corpus.jsonl", "queries.jsonl", "groups.tsv")
        ]
        tasks[place.name] = (str(qrels), _name_runs(files))
    return tasks


def evaluate_tasks(
    command: str,
    tasks: Mapping[str, tuple[Any, Any]],
    measures: Any,
    options: Mapping[str, Any],
    *,
    seed: int,
    equal_within: float | None = None,
) -> Collection:
    """Evaluate the runs of every task, and compare their means over tasks."""
    from rankproof.comparison.tasks import compare_tasks

    if options.get("human") is not None:
        raise InputError(
            "annotators' labels of several tasks",
            place="--human",
            remedy="compare one task at a time",
        )
    evaluations, groups = {}, {}
    for name, (qrels, runs) in tasks.items():
        inputs = EvaluationInputs.of(command, qrels, runs, measures, options)
        evaluations[name], _ = inputs.evaluate()
        groups[name] = inputs.groups
    listed = {tuple(e.outcomes) for runs in evaluations.values() for e in runs}
    if len(listed) > 1:
        raise InputError(
            "the grades of the tasks have other scales, and with them the default measures",
            remedy="name the measures with -m",
        )
    return compare_tasks(evaluations, seed=seed, equal_within=equal_within, groups=groups)
