"""MTEB's retrieval and reranking tasks, scored in float32, with what ties could change.

    from rankproof.precision.mteb import evaluate

    done = evaluate(model, tasks)
    done.result                       mteb's ModelResult, with `ndcg_at_10_expected`, … added
    done["SciFact"]["nDCG@10"].range  the Evaluation of a task

mteb runs the tasks and keeps its own figures; the lists it ranked are measured again under every
order of their ties.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rankproof.data import read_qrels, read_run
from rankproof.data.ties import ScoreType
from rankproof.evaluation import Evaluation, Policy, Summary, evaluate_tables, parse_all
from rankproof.foundation.errors import InputError, import_extra, shorten
from rankproof.measures import Measure
from rankproof.precision.model_patching import InFloat32, high_precision, is_supported

MEASURES = ("nDCG@10", "RR@10", "AP@100", "R@100")
FIGURES = ("expected", "oblivious", "min", "max", "range", "bias", "std")

_NAMES = {
    "AP": "map",
    "P": "precision",
    "R": "recall",
    "RR": "mrr",
    "Success": "hit_rate",
    "nDCG": "ndcg",
}

Key = tuple[str, str, str]  # task, split, subset


@dataclass(frozen=True, eq=False)
class TaskEvaluations:
    """What `evaluate` found: `done["SciFact"]`, or `done["SciFact", "test", "default"]`."""

    result: Any  # mteb's ModelResult, with the figures in the scores of each task
    evaluations: Mapping[Key, Evaluation]
    high_precision: bool  # whether scores were made in float32 by rankproof

    def __getitem__(self, key: str | Key) -> Evaluation:
        keys = [k for k in self.evaluations if key in (k, k[0])]
        if len(keys) == 1:
            return self.evaluations[keys[0]]
        have = ", ".join(map(str, keys or self.evaluations))
        problem = "is one of several" if keys else "was not evaluated"
        raise KeyError(f"{key} {problem}; there are {have}")


def evaluate(
    model: Any,
    tasks: Any,
    *,
    measures: str | Measure | Iterable[str | Measure] = MEASURES,
    high_precision: bool = True,
    score_dtype: ScoreType | None = None,
    **options: Any,
) -> TaskEvaluations:
    """Run MTEB retrieval and reranking tasks and measure their lists under every order of ties.

    `model` and `tasks` are what `mteb.evaluate` takes, and `options` go there. Results are not
    cached unless `cache` is given, and are then always computed anew: a cached score has no lists.

    With high precision, similarities and logits are upcast to float32 before they become scores:
    for sentence-transformers models, for mteb's wrappers around them and for encoders with their
    own `similarity`. Other models score as they do. Without, mteb is left as it is; recent
    versions upcast too. `score_dtype="bfloat16"` shows what scores rounded to that format give.

    Means are over the queries that mteb averages, with trec_eval's order behind `oblivious`.

    >>> from rankproof.precision.mteb import evaluate
    >>> done = evaluate(model, tasks)  # a model and tasks of yours, as for mteb.evaluate
    >>> done["LocalRetrieval"]["nDCG@10"].range
    0.0
    """
    mteb = import_extra("mteb", "rankproof.precision.mteb", "mteb")
    parsed = parse_all(measures)
    names = {measure: _name(measure) for measure in parsed}
    policy = replace(Policy.of(order="trec_eval", score_dtype=score_dtype), undefined="zero")
    listed, leaves = _several(tasks)
    if options.setdefault("cache", None) is not None:
        _check_fresh(options.setdefault("overwrite_strategy", "always"))
    if isinstance(model, mteb.models.ModelMeta):
        model = model.load_model()
    found: dict[Key, Evaluation] = {}

    def measured(task: Any, qrels: Any, results: Any, split: str, subset: str) -> dict[str, float]:
        place = f"{task.metadata.name}, {split}, {subset}"
        evaluation = _measure(place, qrels, _as_scored(task, results), parsed, policy)
        found[task.metadata.name, split, subset] = evaluation
        return {
            f"{names[measure]}_{figure}": value
            for measure in parsed
            for figure, value in _figures(evaluation[measure])
        }

    with ExitStack() as stack:
        precise = high_precision and _in_float32(model, stack)
        for task in leaves:
            own = _with_figures(task, measured)
            stack.enter_context(_replaced(task, "task_specific_scores", own))
        result = mteb.evaluate(model, listed, **options)
    return TaskEvaluations(result, found, precise)


def _check_fresh(strategy: object) -> None:
    if strategy != "always":
        raise InputError(
            f"overwrite_strategy {shorten(strategy)} may reuse scores, which come without the "
            "lists they were made from",
            remedy="leave it out, or use 'always'",
        )


def _name(measure: Measure) -> str:
    """mteb's name of a measure: ndcg_at_10; others are spelt the same way."""
    text = str(measure)
    known = _NAMES.get(measure.name)
    if known is not None and not measure.explicit:
        text = known + text.removeprefix(measure.name)
    return text.lower().replace("@", "_at_")


def _several(tasks: Any) -> tuple[Any, list[Any]]:
    """The tasks for mteb, and those among them, or inside an aggregate, that rank."""
    abstasks = importlib.import_module("mteb.abstasks")
    aggregate = importlib.import_module("mteb.abstasks.aggregated_task").AbsTaskAggregate
    one = isinstance(tasks, abstasks.AbsTask | str)
    listed = tasks if one else list(tasks)
    leaves: list[Any] = []
    waiting = [listed] if one else list(listed)
    if not waiting:
        raise InputError("no task was given", remedy="give one, such as mteb.get_task('SciFact')")
    for task in waiting:  # grows while it is read
        if isinstance(task, aggregate):
            waiting.extend(task.metadata.tasks)
        elif isinstance(task, abstasks.AbsTaskRetrieval):
            leaves.extend([] if any(task is leaf for leaf in leaves) else [task])
        else:
            given = task.metadata.name if isinstance(task, abstasks.AbsTask) else shorten(task)
            raise InputError(
                f"{given} is not a retrieval or reranking task",
                remedy="give mteb.get_task(…) of one that is; run others with mteb.evaluate",
            )
    return listed, leaves


def _in_float32(model: Any, stack: ExitStack) -> bool:
    """Score in float32 until the stack ends; False where the model leaves no way to."""
    if is_supported(model):
        stack.enter_context(high_precision(model))
        return True
    inner = getattr(model, "model", None)
    found = inner is not None and _in_float32(inner, stack)
    if hasattr(model, "encode") and callable(getattr(model, "similarity", None)):
        stack.enter_context(_replaced(model, "similarity", InFloat32(model.similarity)))
        return True
    return found


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute of one object, set for a while and then as it was."""
    before = owner.__dict__.get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _with_figures(
    task: Any, measured: Callable[[Any, Any, Any, str, str], dict[str, float]]
) -> Callable[..., dict[str, float]]:
    """The place where a task may add scores of its own, with figures; mteb merges them in."""
    own = task.task_specific_scores

    def scores(
        scores: Any, qrels: Any, results: Any, hf_split: str, hf_subset: str
    ) -> dict[str, float]:
        more = own(scores, qrels, results, hf_split=hf_split, hf_subset=hf_subset)
        return {**more, **measured(task, qrels, results, hf_split, hf_subset)}

    return scores


def _as_scored(task: Any, results: Any) -> Any:
    """The lists that mteb measured: without the first document where the task skips it."""
    if not getattr(task, "skip_first_result", False):
        return results
    return {
        query: dict(sorted(scores.items(), key=lambda pair: pair[1], reverse=True)[1:])
        for query, scores in results.items()
    }


def _measure(
    name: str, qrels: Any, results: Any, measures: list[Measure], policy: Policy
) -> Evaluation:
    """The queries that have a list, also an empty one, as trec_eval takes them."""
    judged = {query: qrels[query] for query in results if query in qrels}
    return evaluate_tables(read_run(results, name=name), read_qrels(judged), measures, policy)


def _figures(summary: Summary) -> Iterator[tuple[str, float]]:
    for figure in FIGURES:
        value = getattr(summary, figure)
        if value is not None and not math.isnan(value):
            yield figure, float(value)
