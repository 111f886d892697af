"""MTEB's retrieval and reranking tasks, scored in float32 and measured under every order of ties.

mteb reports one value per measure: that of the order in which its sort left tied documents. Here
mteb runs the tasks as usual and keeps its own values; the lists that it ranked are evaluated again
by rankproof, and what their ties could change is added to the scores of each task.

    from rankproof.precision.mteb import evaluate

    evaluations = evaluate(model, tasks)
    evaluations.result                       mteb's ModelResult, with `ndcg_at_10_expected`, …
    evaluations["SciFact"]["nDCG@10"].range  from rankproof's Evaluation of a task
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rankproof.data import read_qrels, read_run
from rankproof.data.ties import ScoreType
from rankproof.evaluation import Evaluation, MeanScore, Policy, evaluate_tables, parse_all
from rankproof.foundation.errors import InputError, import_extra, shorten
from rankproof.measures import Measure
from rankproof.precision.model_patching import Float32Similarity, high_precision, is_supported

MEASURES = ("nDCG@10", "RR@10", "AP@100", "R@100")
SUMMARY_FIELDS = ("expected", "oblivious", "min", "max", "range", "bias", "std")

_MTEB_NAMES = {
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
    """The evaluations of all tasks, by task name or by (task, split, subset)."""

    result: Any  # mteb's ModelResult; the scores of each task also hold rankproof's values
    evaluations: Mapping[Key, Evaluation]
    high_precision: bool  # True if rankproof made the model score in float32

    def __getitem__(self, key: str | Key) -> Evaluation:
        matches = [full_key for full_key in self.evaluations if key in (full_key, full_key[0])]
        if len(matches) == 1:
            return self.evaluations[matches[0]]
        choices = ", ".join(map(str, matches or self.evaluations))
        problem = "is one of several" if matches else "was not evaluated"
        raise KeyError(f"{key} {problem}; there are {choices}")


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

    `model`, `tasks` and `options` are passed to `mteb.evaluate`. Results are cached only if `cache`
    is passed, and computed again even then: a cached score comes without the lists behind it.

    With `high_precision`, embeddings and logits are upcast to float32 before they become scores:
    for sentence-transformers models, mteb's wrappers around them, and encoders with their own
    `similarity`. Other models score as usual. Without it, mteb and the model are not changed
    (recent versions of mteb upcast too). `score_dtype="bfloat16"` rounds the scores to that format
    before they are compared.

    Means are over the queries that mteb averages; `oblivious` breaks ties as trec_eval does.

    >>> from rankproof.precision.mteb import evaluate
    >>> evaluations = evaluate(model, tasks)  # a model and tasks of yours, as for mteb.evaluate
    >>> evaluations["LocalRetrieval"]["nDCG@10"].range
    0.0
    """
    mteb = import_extra("mteb", "rankproof.precision.mteb", "mteb")
    parsed_measures = parse_all(measures)
    policy = replace(Policy.of(order="trec_eval", score_dtype=score_dtype), undefined="zero")
    tasks = tasks if _is_single(tasks) else list(tasks)
    ranking_tasks = _ranking_tasks(tasks)
    if options.setdefault("cache", None) is not None:
        _check_overwrite_strategy(options.setdefault("overwrite_strategy", "always"))
    if isinstance(model, mteb.models.ModelMeta):
        model = model.load_model()
    evaluator = _ListEvaluator(parsed_measures, policy)
    with ExitStack() as stack:
        scores_in_float32 = high_precision and _enter_high_precision(model, stack)
        for task in ranking_tasks:
            extended = _extended_task_scores(task, evaluator)
            stack.enter_context(_replaced_attribute(task, "task_specific_scores", extended))
        result = mteb.evaluate(model, tasks, **options)
    return TaskEvaluations(result, evaluator.evaluations, scores_in_float32)


def _check_overwrite_strategy(strategy: object) -> None:
    """Refuse a strategy of mteb's cache that may return scores without computing lists."""
    if strategy != "always":
        raise InputError(
            f"overwrite_strategy {shorten(strategy)} may reuse scores, which come without the "
            "lists they were made from",
            remedy="leave it out, or use 'always'",
        )


# ------------------------------------------------------------------------------------------- tasks


def _is_single(tasks: Any) -> bool:
    """True for one task, or the name of one, instead of several."""
    return isinstance(tasks, importlib.import_module("mteb.abstasks").AbsTask | str)


def _ranking_tasks(tasks: Any) -> list[Any]:
    """Return each retrieval or reranking task once, also those inside aggregates."""
    abstasks = importlib.import_module("mteb.abstasks")
    aggregate_type = importlib.import_module("mteb.abstasks.aggregated_task").AbsTaskAggregate
    pending = [tasks] if _is_single(tasks) else list(tasks)
    if not pending:
        raise InputError("no task was given", remedy="give one, such as mteb.get_task('SciFact')")
    ranking_tasks: list[Any] = []
    for task in pending:  # grows while it is read
        if isinstance(task, aggregate_type):
            pending.extend(task.metadata.tasks)
        elif isinstance(task, abstasks.AbsTaskRetrieval):
            if not any(task is known for known in ranking_tasks):
                ranking_tasks.append(task)
        else:
            name = task.metadata.name if isinstance(task, abstasks.AbsTask) else shorten(task)
            raise InputError(
                f"{name} is not a retrieval or reranking task",
                remedy="give mteb.get_task(…) of one that is; run others with mteb.evaluate",
            )
    return ranking_tasks


def _extended_task_scores(task: Any, evaluator: _ListEvaluator) -> Callable[..., dict[str, float]]:
    """Return a replacement of the task's `task_specific_scores` that adds rankproof's values.

    mteb calls this method for scores that only one task has, and merges them into its own.
    """
    original = task.task_specific_scores

    def task_specific_scores(
        scores: Any, qrels: Any, results: Any, hf_split: str, hf_subset: str
    ) -> dict[str, float]:
        own_scores = original(scores, qrels, results, hf_split=hf_split, hf_subset=hf_subset)
        key = (task.metadata.name, hf_split, hf_subset)
        return {**own_scores, **evaluator.evaluate(key, qrels, _measured_lists(task, results))}

    return task_specific_scores


def _measured_lists(task: Any, results: Any) -> Any:
    """Return the lists that mteb measures: without the best document if the task skips it."""
    if not getattr(task, "skip_first_result", False):
        return results
    return {
        query: dict(sorted(scores.items(), key=lambda pair: pair[1], reverse=True)[1:])
        for query, scores in results.items()
    }


# ------------------------------------------------------------------------------------- evaluations


@dataclass(frozen=True, slots=True)
class _ListEvaluator:
    """Evaluates the lists of one task, split and subset after the other, and keeps the results."""

    measures: list[Measure]
    policy: Policy
    evaluations: dict[Key, Evaluation] = field(default_factory=dict)

    def evaluate(self, key: Key, qrels: Any, results: Any) -> dict[str, float]:
        """Keep the Evaluation of these lists, and return its values named as mteb names its own.

        Queries without a list are skipped, as trec_eval does; an empty list counts.
        """
        judged = {query: qrels[query] for query in results if query in qrels}
        run = read_run(results, name=", ".join(key))
        evaluation = evaluate_tables(run, read_qrels(judged), self.measures, self.policy)
        self.evaluations[key] = evaluation
        return {
            f"{_mteb_name(measure)}_{summary_field}": value
            for measure in self.measures
            for summary_field, value in _defined_values(evaluation[measure])
        }


def _mteb_name(measure: Measure) -> str:
    """Return mteb's name of a measure, such as ndcg_at_10; others are spelled in the same way."""
    text = str(measure)
    mteb_name = _MTEB_NAMES.get(measure.name)
    if mteb_name is not None and not measure.explicit:
        text = mteb_name + text.removeprefix(measure.name)
    return text.lower().replace("@", "_at_")


def _defined_values(summary: MeanScore) -> Iterator[tuple[str, float]]:
    """Yield name and value of each summary field that has one."""
    for name in SUMMARY_FIELDS:
        value = getattr(summary, name)
        if value is not None and not math.isnan(value):
            yield name, float(value)


# ---------------------------------------------------------------------------------- high precision


def _enter_high_precision(model: Any, stack: ExitStack) -> bool:
    """Make a model score in float32 until the stack ends; False if nothing in it can be changed.

    mteb's wrappers hold the model itself in `model`.
    """
    if is_supported(model):
        stack.enter_context(high_precision(model))
        return True
    wrapped = getattr(model, "model", None)
    is_changed = wrapped is not None and _enter_high_precision(wrapped, stack)
    if hasattr(model, "encode") and callable(getattr(model, "similarity", None)):
        similarity = Float32Similarity(model.similarity)
        stack.enter_context(_replaced_attribute(model, "similarity", similarity))
        return True
    return is_changed


@contextmanager
def _replaced_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute of one object inside the block; afterwards restore what it had."""
    instance_value = owner.__dict__.get(name)  # None: the class has it
    setattr(owner, name, value)
    try:
        yield
    finally:
        if instance_value is None:
            delattr(owner, name)
        else:
            setattr(owner, name, instance_value)
