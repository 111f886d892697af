"""ranx's interface: `from rankproof.compat.ranx import Qrels, Run, compare, evaluate, fuse`.

    evaluate(qrels, run, ["ndcg@10", "map"])            # {"ndcg@10": 0.41, "map": 0.33}
    evaluate(qrels, run, "ndcg@10").expected            # over every order of the ties, and .range

Where no scores tie, the values are ranx's. It leaves ties to an unstable sort, so there is no rule
to reproduce; here tied documents stay in the order of the run. Tied documents share a mean rank in
a fusion. Parameters that only tune ranx's speed (`threads`) or that rankproof does not need (`kind`
of an input file, `n_permutations`, `random_seed`) are accepted and ignored.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, cycle, pairwise, permutations
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import polars as pl

from rankproof.comparison.pairs import Comparison, compare_evaluations
from rankproof.compat.dict_groups import groups_of_dicts, nest_columns, read_lists
from rankproof.data import read_qrels, read_run
from rankproof.data.sources import Source
from rankproof.data.tables import Qrels as RankproofQrels
from rankproof.data.tables import Run as RankproofRun
from rankproof.data.ties import in_order
from rankproof.evaluation import (
    Evaluation,
    MeanScore,
    Policy,
    evaluate_some,
    measure_all,
    parse_means,
)
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import write_atomically
from rankproof.foundation.printable import escape_controls
from rankproof.measures import Measure, parse
from rankproof.presentation.tables import Cell, Column, Marked, Table
from rankproof.presentation.text_formats import latex_table
from rankproof.retrieval.fusion import fuse as fuse_runs
from rankproof.statistics.randomization import randomization_test, t_test
from rankproof.unjudged.judged_share import evaluate_named

__all__ = ["Qrels", "Run", "compare", "evaluate", "fuse"]

Rows = dict[str, dict[str, Any]]  # {query: {document: score or grade}}
RowsLike = Mapping[str, Mapping[str, Any]]


class _Table:
    """Scores or grades by query and document, with the interface of ranx's Run and Qrels."""

    def __init__(self, rows: RowsLike | None = None, name: str | None = None):
        try:
            # By items(): dict() would take a list of two-letter ids for pairs.
            self._rows: Rows = {q: dict(listed.items()) for q, listed in (rows or {}).items()}
        except AttributeError:
            raise InputError(
                "rows are not a dict of dicts",
                place=type(self).__name__,
                remedy="write {query: {document: number}}; rankproof.evaluate takes lists, too",
            ) from None
        self.name = name

    @classmethod
    def from_dict(cls, rows: RowsLike, name: str | None = None) -> Any:
        return cls(rows, name)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], kind: str | None = None, name: str | None = None
    ) -> Any:
        """Read a file of any format that rankproof reads; its format is detected."""
        is_run = cls is Run
        table = read_run(Source(path, as_trec_eval=True)) if is_run else read_qrels(path)
        return cls(_as_rows(table), name or table.name)

    @classmethod
    def from_df(
        cls,
        df: Any,
        q_id_col: str = "q_id",
        doc_id_col: str = "doc_id",
        score_col: str = "score",
        name: str | None = None,
    ) -> Any:
        columns = (df[column].to_list() for column in (q_id_col, doc_id_col, score_col))
        return cls(nest_columns(*columns), name)

    @classmethod
    def from_parquet(
        cls,
        path: str | os.PathLike[str],
        q_id_col: str = "q_id",
        doc_id_col: str = "doc_id",
        score_col: str = "score",
        pd_kwargs: dict[str, Any] | None = None,
        name: str | None = None,
    ) -> Any:
        return cls.from_df(pl.read_parquet(Path(path)), q_id_col, doc_id_col, score_col, name)

    @classmethod
    def from_ir_datasets(cls, dataset: Any, name: str | None = None) -> Any:
        return cls(_as_rows(read_qrels(dataset)), name)

    def add_score(self, q_id: str, doc_id: str, score: Any) -> None:
        self._rows.setdefault(q_id, {})[doc_id] = score

    def add(self, q_id: str, doc_ids: list[str], scores: list[Any]) -> None:
        self._rows[q_id] = dict(zip(doc_ids, scores, strict=True))

    def add_multi(self, q_ids: list[str], doc_ids: Any, scores: Any) -> None:
        for query, docs, values in zip(q_ids, doc_ids, scores, strict=True):
            self.add(query, docs, values)

    def sort(self) -> None:
        """Sort each list by descending score or grade."""
        for query, listed in self._rows.items():
            self._rows[query] = dict(sorted(listed.items(), key=lambda row: -row[1]))

    @property
    def sorted(self) -> bool:
        return all(a >= b for rows in self._rows.values() for a, b in pairwise(rows.values()))

    def keys(self) -> Any:
        return self._rows.keys()

    def get_query_ids(self) -> list[str]:
        return list(self._rows)

    def to_dict(self) -> Rows:
        return {query: dict(listed) for query, listed in self._rows.items()}

    def to_dataframe(self) -> Any:
        """Return a pandas frame with columns q_id, doc_id, score."""
        rows = [(q, doc, x) for q, listed in self._rows.items() for doc, x in listed.items()]
        columns = ["q_id", "doc_id", "score"]
        return importlib.import_module("pandas").DataFrame(rows, columns=columns)

    def save(self, path: str | os.PathLike[str] = "run.json", kind: str | None = None) -> None:
        """Write JSON, JSON in LZ4, TREC or Parquet, by `kind` or the file's ending."""
        target = Path(path)
        kind = kind or {".txt": "trec", ".parq": "parquet"}.get(target.suffix, target.suffix[1:])
        if kind == "json":
            write_atomically(target, lambda file: file.write_text(json.dumps(self._rows)))
        elif kind == "lz4":
            lz4 = importlib.import_module("lz4.frame")
            compressed = lz4.compress(json.dumps(self._rows).encode())
            write_atomically(target, lambda file: file.write_bytes(compressed))
        elif kind == "parquet":
            frame = pl.DataFrame(self.to_dataframe().to_dict("list"))
            write_atomically(target, frame.write_parquet)
        elif kind == "trec":
            text = "".join(self._trec_lines())
            write_atomically(target, lambda file: file.write_text(text, "utf-8"))
        else:
            raise InputError(
                f"kind {shorten(kind)}",
                place=target.name,
                remedy="save as json, lz4, trec or parquet",
            )

    def _trec_lines(self) -> Iterator[str]:
        """Yield the rows in TREC format, the highest score or grade of each query first."""
        for query, listed in self._rows.items():
            descending = sorted(listed.items(), key=lambda row: -row[1])
            for rank, (doc, value) in enumerate(descending, 1):
                if isinstance(self, Run):
                    yield f"{query} Q0 {doc} {rank} {value!r} {self.name}\n"
                else:
                    yield f"{query} 0 {doc} {value}\n"

    @property
    def size(self) -> int:
        return len(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, query: str) -> dict[str, Any]:
        return dict(self._rows[query])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self)} queries)"


class Qrels(_Table):
    """Judgments.

    >>> from rankproof.compat.ranx import Qrels
    >>> Qrels({"q1": {"d1": 1}}, name="mine")
    Qrels('mine', 1 queries)
    """

    @property
    def qrels(self) -> Rows:
        return self._rows

    def set_relevance_level(self, rel_lvl: int = 1) -> None:
        """Lower all grades, so that `rel_lvl` becomes 1 and grades below it 0."""
        self._rows = {
            query: {doc: max(0, grade - rel_lvl + 1) for doc, grade in listed.items()}
            for query, listed in self._rows.items()
        }


class Run(_Table):
    """Scored documents; `evaluate` stores its results in `mean_scores` and `scores`.

    >>> from rankproof.compat.ranx import Run
    >>> Run.from_file("try/plain.trec", name="plain").size
    30
    """

    def __init__(self, rows: RowsLike | None = None, name: str | None = None):
        super().__init__(rows, name)
        self.metadata: dict[str, Any] = {}
        self.scores: dict[str, dict[str, float]] = {}
        self.mean_scores: dict[str, float] = {}
        self.std_scores: dict[str, float] = {}

    @property
    def run(self) -> Rows:
        return self._rows

    def make_comparable(self, qrels: Qrels) -> Run:
        """Reduce the run to the judged queries, with an empty list for those it lacks."""
        self._rows = {query: self._rows.get(query, {}) for query in qrels.keys()}  # noqa: SIM118
        return self


def _as_rows(table: RankproofRun | RankproofQrels) -> Rows:
    return nest_columns(*(column.to_list() for column in table.to_frame()))


class ScoreWithTies(float):
    """A mean over queries; its attributes over every order of ties are computed on access."""

    def __new__(cls, value: float, ties: Callable[[], MeanScore], scale: int) -> ScoreWithTies:
        score = super().__new__(cls, value)
        score._ties, score._scale = ties, scale
        return score

    _ties: Callable[[], MeanScore]
    _scale: int

    @property
    def expected(self) -> float:
        """The mean over every order of the ties."""
        return self._ties().expected * self._scale

    @property
    def min(self) -> float:
        """The value of the worst order of the ties."""
        return self._ties().min * self._scale

    @property
    def max(self) -> float:
        """The value of the best order of the ties."""
        return self._ties().max * self._scale

    @property
    def range(self) -> float:
        """The difference between the best and the worst order."""
        return self._ties().range * self._scale


# Without a cutoff these metrics are of the whole list.
_WHOLE_LIST = {"precision": "SetP", "f1": "SetF", "hit_rate": f"Success@{10**15}"}


def _parse_metric(text: str) -> tuple[Measure, int]:
    """Return rankproof's measure and the lowest grade that counts, of `ndcg@10-l2` or `rbp.95`."""
    name, _, level = text.partition("-l")
    if level and not level.isdecimal():
        raise InputError(f"metric {shorten(text)}", remedy="write the level as ndcg@10-l2")
    measure = parse(_WHOLE_LIST.get(name) or re.sub(r"^rbp@", "rbp.", name))
    return measure, int(level or 1)


@dataclass(frozen=True)
class _MetricValues:
    """The values of one metric, and how to compute them over every order of ties."""

    values: Float  # (Q,)
    scale: int  # by which ranx's values exceed those of `ties`
    ties: Callable[[], MeanScore]


def _evaluate_metrics(
    rows: RowsLike, grades: RowsLike, level: int, metrics: dict[str, Measure]
) -> tuple[list[str], dict[str, _MetricValues]]:
    """Return the queries, and the values of each metric where grades below `level` count 0."""
    policy = Policy("input", "zero", "zero")
    grades = _from_level(grades, level)
    ascending = {query: rows[query] for query in sorted(rows)}
    matches = groups_of_dicts(ascending, grades, "input")  # None: take the way through tables
    if matches is not None:
        max_grade = matches[1].pool.max_grade
    else:
        max_grade = int(read_qrels(grades).grade.max(initial=1))
    # ranx's RBP adds up grades, so that graded judgments give more than 1.
    scales = [max(1, max_grade) if m.name == "RBP" else 1 for m in metrics.values()]
    measures = [
        measure(max=scale) if measure.name == "RBP" else measure
        for measure, scale in zip(metrics.values(), scales, strict=True)
    ]
    if matches is not None:
        queries, outcomes = matches[0], measure_all(matches[1], measures, policy)
    else:
        ranked = in_order(read_lists(rows), "input", settle=True)
        evaluation = evaluate_some(ranked, read_qrels(grades), measures, policy)
        queries, outcomes = evaluation.queries.to_list(), evaluation.outcomes

    @cache
    def evaluate_ties() -> Evaluation:
        return evaluate_some(read_lists(rows), read_qrels(grades), measures, policy)

    def metric_values(measure: Measure, scale: int) -> _MetricValues:
        values = outcomes[measure].oblivious * scale
        return _MetricValues(values, scale, lambda: evaluate_ties()[measure])

    return queries, dict(zip(metrics, map(metric_values, measures, scales), strict=True))


def _from_level(grades: RowsLike, level: int) -> RowsLike:
    """Return the judgments with grades below `level` as 0."""
    if level <= 1:
        return grades
    return {
        query: {doc: 0 if 0 < grade < level else grade for doc, grade in judged.items()}
        for query, judged in grades.items()
    }


def evaluate(
    qrels: Qrels | RowsLike | Any,
    run: Run | RowsLike | Any,
    metrics: str | list[str],
    return_mean: bool = True,
    return_std: bool = False,
    threads: int = 0,
    save_results_in_run: bool = True,
    make_comparable: bool = False,
) -> Any:
    """Return ranx's value of one metric, or {metric: value} of several.

    Without `return_mean` a value is an array with one number for each query.

    >>> from rankproof.compat.ranx import Qrels, Run, evaluate
    >>> run, qrels = Run({"q1": {"d1": 1.0, "d2": 1.0}}), Qrels({"q1": {"d2": 1}})
    >>> score = evaluate(qrels, run, "mrr")
    >>> float(score), score.expected
    (0.5, 0.75)
    """
    metric_names = [metrics] if isinstance(metrics, str) else list(metrics)
    if make_comparable and isinstance(run, Run) and isinstance(qrels, Qrels):
        run = run.make_comparable(qrels)
    grades, rows = _rows_of(qrels), _rows_of(run)
    if not isinstance(run, _Table | Mapping):
        rows = _ranked_as_listed(rows)
    if set(grades) != set(rows):
        raise InputError(
            "the run and the judgements have different queries",
            place="evaluate",
            remedy="pass make_comparable=True",
        )
    parsed = {name: _parse_metric(name) for name in metric_names}
    results: dict[str, Any] = dict.fromkeys(parsed)
    for level in {level for _, level in parsed.values()}:
        of_level = {name: measure for name, (measure, lowest) in parsed.items() if lowest == level}
        queries, metric_values = _evaluate_metrics(rows, grades, level, of_level)
        for name, metric in metric_values.items():
            mean, deviation = float(np.mean(metric.values)), float(np.std(metric.values))
            score = ScoreWithTies(mean, metric.ties, metric.scale)
            if not return_mean:
                results[name] = metric.values
            else:
                results[name] = {"mean": score, "std": deviation} if return_std else score
            if isinstance(run, Run) and save_results_in_run:
                run.mean_scores[name] = mean
                run.scores[name] = dict(zip(queries, metric.values.tolist(), strict=True))
                if return_std and return_mean:
                    run.std_scores[name] = deviation
    return results[metric_names[0]] if len(metric_names) == 1 else results


def _rows_of(table: Any) -> Any:
    """Return {query: {document: number}} of a table, a dict, or an array of pairs per query."""
    if isinstance(table, _Table):
        return table._rows
    if isinstance(table, Mapping):
        return table
    rows: Rows = {}
    for at, pairs in enumerate(table):
        array = np.asarray(pairs)
        if array.ndim != 2 or array.shape[1] != 2:
            raise InputError(
                f"an array of shape {array.shape}",
                place=f"query {at + 1}",
                remedy="give pairs of id and number, or a dict of dicts",
            )
        rows[f"{at:09}"] = {str(int(doc)): value for doc, value in array.tolist()}
    return rows


def _ranked_as_listed(rows: RowsLike) -> RowsLike:
    """Return lists from arrays, whose order ranx keeps, with scores that descend in this order."""
    return {
        query: listed
        if list(listed.values()) == sorted(listed.values(), reverse=True)
        else dict(zip(listed, range(0, -len(listed), -1), strict=True))
        for query, listed in rows.items()
    }


_TESTS: dict[str, Callable[[Float], Float]] = {
    # ranx, too, has p = 0 where the test is undefined.
    "student": lambda differences: np.nan_to_num(t_test(differences), nan=0.0),
    "fisher": lambda differences: randomization_test(differences)[0],
}


class _Comparisons(dict[frozenset[str], dict[str, dict[str, Any]]]):
    """{pair of runs: {metric: {"p_value", "significant"}}}; the pair in either order."""

    def __getitem__(self, names: Any) -> dict[str, dict[str, Any]]:
        return super().__getitem__(frozenset(names))


class Report:
    """ranx's report on several runs.

    `comparison` is rankproof's own, with confidence intervals and the effect of ties.
    """

    def __init__(
        self,
        values: dict[str, dict[str, Float]],
        comparison: Callable[[], Comparison],
        stat_test: str,
        max_p: float,
        rounding_digits: int,
        show_percentages: bool,
    ):
        """Compare `values` {run: {metric: (Q,)}} pair by pair; `comparison` is called on access."""
        self.model_names = list(values)
        self.metrics = list(values[self.model_names[0]])
        self.stat_test, self.max_p = stat_test, max_p
        self.rounding_digits, self.show_percentages = rounding_digits, show_percentages
        self._compare = comparison
        self.results = {
            name: {metric: float(np.mean(column)) for metric, column in columns.items()}
            for name, columns in values.items()
        }
        differences = {
            (one, other): np.stack([values[one][m] - values[other][m] for m in self.metrics])
            for one, other in permutations(self.model_names, 2)
        }
        self.comparisons = _Comparisons()
        for pair in combinations(self.model_names, 2):
            p_values = _TESTS[stat_test](differences[pair]).tolist()
            self.comparisons[frozenset(pair)] = {
                metric: {"p_value": p, "significant": p <= max_p}
                for metric, p in zip(self.metrics, p_values, strict=True)
            }
        self.win_tie_loss = {
            pair: dict(zip(self.metrics, map(_win_tie_loss, rows), strict=True))
            for pair, rows in differences.items()
        }

    @cached_property
    def comparison(self) -> Comparison:
        return self._compare()

    def to_dict(self) -> dict[str, Any]:
        """Return scores, p-values and wins of each run."""
        report: dict[str, Any] = {
            "stat_test": self.stat_test,
            "metrics": self.metrics,
            "model_names": self.model_names,
        }
        for one in self.model_names:
            opponents = [name for name in self.model_names if name != one]
            p_values = {
                other: {m: test["p_value"] for m, test in self.comparisons[one, other].items()}
                for other in opponents
            }
            report[one] = {
                "scores": self.results[one],
                "comparisons": p_values,
                "win_tie_loss": {other: self.win_tie_loss[one, other] for other in opponents},
            }
        return report

    def to_dataframe(self) -> Any:
        """Return a pandas frame with a row for each run."""
        rows = [{"model_names": name, **means} for name, means in self.results.items()]
        return importlib.import_module("pandas").DataFrame(rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` as JSON."""
        text = json.dumps(self.to_dict(), indent=4)
        write_atomically(Path(path), lambda file: file.write_text(text))

    def _table(self) -> Table:
        """Return means by run and metric, marked with the letters of the runs that they beat."""
        letters = dict(zip(self.model_names, cycle(ascii_lowercase), strict=False))
        rows: list[list[Cell]] = [
            [letter, name, *(self._cell(name, metric, letters) for metric in self.metrics)]
            for name, letter in letters.items()
        ]
        return Table(Column.each("#", "Model", *self.metrics, style="text"), rows)

    def _cell(self, run: str, metric: str, letters: dict[str, str]) -> Marked:
        """Return a mean, bold if it is the best, with the letters of the runs that it beats."""
        means = {name: scores[metric] for name, scores in self.results.items()}
        beaten = [
            letter
            for other, letter in letters.items()
            if means[run] > means[other] and self.comparisons[run, other][metric]["significant"]
        ]
        factor, fewer_digits = (100, 2) if self.show_percentages else (1, 0)
        digits = max(0, self.rounding_digits - fewer_digits)
        text = f"{factor * means[run]:.{digits}f}"
        return Marked(text, means[run] == max(means.values()), "".join(beaten))

    def to_latex(self) -> str:
        return latex_table(self._table())

    def __repr__(self) -> str:
        table = self._table()
        superscripts = str.maketrans(ascii_lowercase, "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖ𐞥ʳˢᵗᵘᵛʷˣʸᶻ")
        rows = [[column.heading for column in table.columns]]
        for row in table.rows:
            cells = [c if isinstance(c, Marked) else Marked(str(c)) for c in row]
            rows.append(
                [escape_controls(str(c.value)) + c.mark.translate(superscripts) for c in cells]
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, ["-" * width for width in widths])
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _win_tie_loss(differences: Float) -> dict[str, int]:
    """Return the number of queries on which the first run is better, equal and worse."""
    return {
        "W": int((differences > 0).sum()),
        "T": int((differences == 0).sum()),
        "L": int((differences < 0).sum()),
    }


def compare(
    qrels: Qrels,
    runs: list[Run],
    metrics: str | list[str],
    stat_test: str = "student",
    n_permutations: int = 1000,
    max_p: float = 0.01,
    random_seed: int = 42,
    threads: int = 0,
    rounding_digits: int = 3,
    show_percentages: bool = False,
    make_comparable: bool = False,
) -> Report:
    """Compare runs as ranx does: its means and p-values; `.comparison` is rankproof's.

    Student's p-values are ranx's own. Those of `fisher` come from rankproof's randomization test,
    which counts every flip of signs where queries are few, and draws more flips than ranx
    elsewhere.

    >>> from rankproof.compat.ranx import Qrels, Run, compare
    >>> runs = [Run.from_file(f"try/{name}.trec", name=name) for name in ("saturated", "plain")]
    >>> report = compare(Qrels.from_file("try/qrels.txt"), runs, "ndcg@5")
    >>> print(report)
    #  Model      ndcg@5
    -  ---------  ------
    a  saturated  0.641
    b  plain      0.587
    >>> round(report.comparison["saturated", "plain"][rp.nDCG @ 5].expected, 4)
    -0.1103
    """
    metric_names = [metrics] if isinstance(metrics, str) else list(metrics)
    if stat_test not in _TESTS:
        raise InputError(f"test {shorten(stat_test)}", remedy=f"use one of {', '.join(_TESTS)}")
    values: dict[str, dict[str, Float]] = {}
    for number, run in enumerate(runs, 1):
        result = evaluate(qrels, run, metric_names, False, make_comparable=make_comparable)
        columns = result if len(metric_names) > 1 else {metric_names[0]: result}
        values[run.name or f"run_{number}"] = columns
    if len(values) < len(runs):
        raise InputError("two runs of one name", place="compare", remedy="name each run")
    named_runs = dict(zip(values, runs, strict=True))
    return Report(
        values,
        lambda: _compare_with_intervals(qrels, named_runs, metric_names),
        stat_test=stat_test,
        max_p=max_p,
        rounding_digits=rounding_digits,
        show_percentages=show_percentages,
    )


def _compare_with_intervals(
    qrels: Qrels, runs: dict[str, Run], metric_names: list[str]
) -> Comparison:
    """Compare runs by name with rankproof's own tests and intervals."""
    measures, levels = zip(*map(_parse_metric, metric_names), strict=True)
    if len(set(levels)) > 1:
        raise InputError("metrics of several levels", place="compare", remedy="compare for each")
    named = {name: read_run(_rows_of(run)) for name, run in runs.items()}
    judged = read_qrels(_from_level(_rows_of(qrels), levels[0]))
    evaluations, view = evaluate_named(named, judged, parse_means(measures), Policy(), holes=None)
    return compare_evaluations(evaluations, view=view)


_FUSION_METHODS = {  # of ranx: of rankproof
    **{name: name for name in ("rrf", "sum", "mnz", "max", "isr")},
    "comb_sum": "sum",
    "comb_mnz": "mnz",
    "comb_max": "max",
    "wsum": "weighted",
    "bordafuse": "borda",
    "borda": "borda",
}
_FUSED_NAMES = {"sum": "comb_sum", "mnz": "comb_mnz", "max": "comb_max", "weighted": "weighted_sum"}
_NORMS = {"min-max": "minmax", "min_max": "minmax", "rank": "rank", "sum": "sum", None: "none"}
_INVERTED = ("min-max-inverted", "min_max_inverted")  # min-max of distances, where less is better


def fuse(
    runs: list[Run],
    norm: str | None = "min-max",
    method: str = "wsum",
    params: dict[str, Any] | None = None,
) -> Run:
    """Fuse runs as ranx does; it has more normalisations (max, zmuv, borda) and more methods.

    >>> from rankproof.compat.ranx import Run, fuse
    >>> runs = [Run({"q": {"a": 2, "b": 1}}), Run({"q": {"b": 2, "c": 1}})]
    >>> list(fuse(runs, method="rrf")["q"])
    ['b', 'a', 'c']
    """
    if method not in _FUSION_METHODS:
        raise InputError(
            f"method {shorten(method)}", remedy=f"use one of {', '.join(_FUSION_METHODS)}"
        )
    if norm in _INVERTED:
        norm, runs = "min-max", [Run(_negated(run)) for run in runs]
    if norm not in _NORMS:
        raise InputError(
            f"normalisation {shorten(norm)}",
            remedy="use min-max, min-max-inverted, sum, rank or None; zmuv gives a document that a "
            "list lacks its mean, so use retrieval.fusion.combine(normalise='z')",
        )
    rankproof_method, settings = _FUSION_METHODS[method], dict(params or {})
    if rankproof_method in ("sum", "mnz", "max", "weighted"):
        settings["normalise"] = _NORMS[norm]
    tables = list(map(_rows_of, runs))
    with_documents = [read_run(rows) for rows in tables if any(map(len, rows.values()))]
    fused: Rows = {}
    if with_documents:
        fused = _as_rows(fuse_runs(with_documents, rankproof_method, **settings))
    queries = dict.fromkeys(query for rows in tables for query in rows)
    name = _FUSED_NAMES.get(rankproof_method, method)
    return Run({query: fused.get(query, {}) for query in queries}, name=name)


def _negated(run: Run) -> Rows:
    return {
        query: {doc: -score for doc, score in listed.items()}
        for query, listed in _rows_of(run).items()
    }
