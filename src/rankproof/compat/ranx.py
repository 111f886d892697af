"""ranx's interface: `from rankproof.compat.ranx import Qrels, Run, compare, evaluate, fuse`.

    evaluate(qrels, run, ["ndcg@10", "map"])            # {"ndcg@10": 0.41, "map": 0.33}
    evaluate(qrels, run, "ndcg@10").expected            # over every order of the ties, and .range

Where no scores tie the figures are ranx's. It leaves ties to an unstable sort, so that there is no
rule to follow; here they stand as the run lists them. Fused documents that tie share a mean rank.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import cycle, pairwise, permutations
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import polars as pl

from rankproof.comparison.pairs import Comparison, compare_evaluations
from rankproof.compat.dict_groups import groups_of_dicts, nest_columns, read_lists
from rankproof.data import read_qrels, read_run
from rankproof.data.sources import Source
from rankproof.data.tables import Qrels as Judged
from rankproof.data.tables import Run as Listed
from rankproof.data.ties import in_order
from rankproof.evaluation import (
    Evaluation,
    Policy,
    Summary,
    evaluate_some,
    measure_all,
    parse_means,
)
from rankproof.foundation.arrays import Float
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.files import write_atomically
from rankproof.foundation.printable import escape_controls
from rankproof.measures import Measure, parse
from rankproof.presentation.tables import Cell, Column, Marked
from rankproof.presentation.tables import Table as Shown
from rankproof.presentation.text_formats import latex_table
from rankproof.retrieval.fusion import fuse as fuse_runs
from rankproof.statistics.randomization import randomization_test, t_test
from rankproof.unjudged.judged_share import evaluate_named

__all__ = ["Qrels", "Run", "compare", "evaluate", "fuse"]

_COLUMNS = ["q_id", "doc_id", "score"]
Table = dict[str, dict[str, Any]]
Rows = Mapping[str, Mapping[str, Any]]


class _Table:
    """Rows by query and document, as ranx's own classes hold them."""

    def __init__(
        self, rows: Mapping[str, Mapping[str, Any]] | None = None, name: str | None = None
    ):
        try:
            self._rows: Table = {q: dict(listed.items()) for q, listed in (rows or {}).items()}
        except AttributeError:  # a list of two-letter ids would pass for pairs
            raise InputError(
                "rows are not a dict of dicts",
                place=type(self).__name__,
                remedy="write {query: {document: number}}; rankproof.evaluate takes lists, too",
            ) from None
        self.name = name

    @classmethod
    def from_dict(cls, rows: Mapping[str, Mapping[str, Any]], name: str | None = None) -> Any:
        return cls(rows, name)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], kind: str | None = None, name: str | None = None
    ) -> Any:
        """A file of any format that rankproof reads; `kind` need not be told."""
        run = cls is Run
        found = read_run(Source(path, as_trec_eval=True)) if run else read_qrels(path)
        return cls(_dicts(found), name or found.name)

    @classmethod
    def from_df(
        cls,
        df: Any,
        q_id_col: str = "q_id",
        doc_id_col: str = "doc_id",
        score_col: str = "score",
        name: str | None = None,
    ) -> Any:
        return cls(
            nest_columns(*(df[c].to_list() for c in (q_id_col, doc_id_col, score_col))), name
        )

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
        return cls(_dicts(read_qrels(dataset)), name)

    def add_score(self, q_id: str, doc_id: str, score: Any) -> None:
        self._rows.setdefault(q_id, {})[doc_id] = score

    def add(self, q_id: str, doc_ids: list[str], scores: list[Any]) -> None:
        self._rows[q_id] = dict(zip(doc_ids, scores, strict=True))

    def add_multi(self, q_ids: list[str], doc_ids: Any, scores: Any) -> None:
        for query, docs, values in zip(q_ids, doc_ids, scores, strict=True):
            self.add(query, docs, values)

    def sort(self) -> None:
        """The highest number of each list first."""
        for query, listed in self._rows.items():
            self._rows[query] = dict(sorted(listed.items(), key=lambda row: -row[1]))

    @property
    def sorted(self) -> bool:
        return all(a >= b for rows in self._rows.values() for a, b in pairwise(rows.values()))

    def keys(self) -> Any:
        return self._rows.keys()

    def get_query_ids(self) -> list[str]:
        return list(self._rows)

    def to_dict(self) -> Table:
        return {query: dict(listed) for query, listed in self._rows.items()}

    def to_dataframe(self) -> Any:
        """A pandas frame with columns q_id, doc_id, score."""
        rows = [(q, doc, x) for q, listed in self._rows.items() for doc, x in listed.items()]
        return importlib.import_module("pandas").DataFrame(rows, columns=_COLUMNS)

    def save(self, path: str | os.PathLike[str] = "run.json", kind: str | None = None) -> None:
        """JSON, JSON in LZ4, TREC or Parquet, by the ending or by `kind`."""
        to = Path(path)
        kind = kind or {".txt": "trec", ".parq": "parquet"}.get(to.suffix, to.suffix[1:])
        if kind == "json":
            write_atomically(to, lambda file: file.write_text(json.dumps(self._rows)))
        elif kind == "lz4":
            pressed = importlib.import_module("lz4.frame").compress(json.dumps(self._rows).encode())
            write_atomically(to, lambda file: file.write_bytes(pressed))
        elif kind == "parquet":
            frame = pl.DataFrame(self.to_dataframe().to_dict("list"))
            write_atomically(to, frame.write_parquet)
        elif kind == "trec":
            write_atomically(to, lambda file: file.write_text("".join(self._lines()), "utf-8"))
        else:
            raise InputError(
                f"kind {shorten(kind)}", place=to.name, remedy="save as json, lz4, trec or parquet"
            )

    def _lines(self) -> Iterator[str]:
        """The rows as TREC has them."""
        for query, listed in self._rows.items():
            falling = sorted(listed.items(), key=lambda row: -row[1])
            for rank, (doc, value) in enumerate(falling, 1):
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
    """Judgements.

    >>> from rankproof.compat.ranx import Qrels
    >>> Qrels({"q1": {"d1": 1}}, name="mine")
    Qrels('mine', 1 queries)
    """

    @property
    def qrels(self) -> Table:
        return self._rows

    def set_relevance_level(self, rel_lvl: int = 1) -> None:
        """Count grades from this one on."""
        self._rows = {
            query: {doc: max(0, grade - rel_lvl + 1) for doc, grade in listed.items()}
            for query, listed in self._rows.items()
        }


class Run(_Table):
    """Scored documents; `mean_scores` and `scores` hold what `evaluate` found.

    >>> from rankproof.compat.ranx import Run
    >>> Run.from_file("try/plain.trec", name="plain").size
    30
    """

    def __init__(
        self, rows: Mapping[str, Mapping[str, Any]] | None = None, name: str | None = None
    ):
        super().__init__(rows, name)
        self.metadata: dict[str, Any] = {}
        self.scores: dict[str, dict[str, float]] = {}
        self.mean_scores: dict[str, float] = {}
        self.std_scores: dict[str, float] = {}

    @property
    def run(self) -> Table:
        return self._rows

    def make_comparable(self, qrels: Qrels) -> Run:
        """This run on the judged queries alone, with an empty list for those that it lacks."""
        self._rows = {query: self._rows.get(query, {}) for query in qrels.keys()}  # noqa: SIM118
        return self


def _dicts(table: Listed | Judged) -> Table:
    return nest_columns(*(column.to_list() for column in table.to_frame()))


class Figure(float):
    """A mean over queries; `expected`, `min`, `max`, `range` are made when they are asked for."""

    def __new__(cls, value: float, ties: Callable[[], Summary], scale: int) -> Figure:
        figure = super().__new__(cls, value)
        figure._ties, figure._scale = ties, scale
        return figure

    _ties: Callable[[], Summary]
    _scale: int

    @property
    def expected(self) -> float:
        """The mean over every order of the ties."""
        return self._ties().expected * self._scale

    @property
    def min(self) -> float:
        return self._ties().min * self._scale

    @property
    def max(self) -> float:
        return self._ties().max * self._scale

    @property
    def range(self) -> float:
        """How far apart the best and the worst order are."""
        return self._ties().range * self._scale


# Without a cutoff these are of the whole list.
_WHOLE = {"precision": "SetP", "f1": "SetF", "hit_rate": f"Success@{10**15}"}


def _measure(text: str) -> tuple[Measure, int]:
    """`ndcg@10-l2`, `rbp.95`, `map@100` as ours, and the lowest grade that counts."""
    name, _, level = text.partition("-l")
    if level and not level.isdecimal():
        raise InputError(f"metric {shorten(text)}", remedy="write the level as ndcg@10-l2")
    found = parse(_WHOLE.get(name) or re.sub(r"^rbp@", "rbp.", name))
    return found, int(level or 1)


@dataclass(frozen=True)
class _Evaluated:
    """Measures on judgements of which grades below a level count as 0."""

    queries: list[str]
    values: list[Float]  # of each measure
    scales: list[int]
    summaries: list[Callable[[], Summary]]


def _evaluated(rows: Rows, grades: Rows, level: int, measures: list[Measure]) -> _Evaluated:
    policy = Policy("input", "zero", "zero")
    grades = _from_level(grades, level)
    quick = groups_of_dicts({query: rows[query] for query in sorted(rows)}, grades, "input")
    judged = read_qrels(grades) if quick is None else None
    top = int(judged.grade.max(initial=1)) if judged is not None else quick[1].pool.max_grade  # type: ignore[index]
    # Its RBP adds up grades, so that graded judgements give more than 1.
    scales = [max(1, top) if measure.name == "RBP" else 1 for measure in measures]
    own = [m(max=s) if m.name == "RBP" else m for m, s in zip(measures, scales, strict=True)]
    if quick is not None:
        queries, outcomes = quick[0], measure_all(quick[1], own, policy)
    else:
        listed = in_order(read_lists(rows), "input", settle=True)
        found = evaluate_some(listed, read_qrels(grades), own, policy)
        queries, outcomes = found.queries.to_list(), found.outcomes

    @cache
    def ties() -> Evaluation:
        return evaluate_some(read_lists(rows), read_qrels(grades), own, policy)

    values = [outcomes[m].oblivious * s for m, s in zip(own, scales, strict=True)]
    return _Evaluated(queries, values, scales, [lambda m=m: ties()[m] for m in own])  # type: ignore[misc]


def _from_level(grades: Rows, level: int) -> Rows:
    if level <= 1:
        return grades
    return {
        q: {doc: 0 if 0 < grade < level else grade for doc, grade in judged.items()}
        for q, judged in grades.items()
    }


def evaluate(
    qrels: Qrels | Rows | Any,
    run: Run | Rows | Any,
    metrics: str | list[str],
    return_mean: bool = True,
    return_std: bool = False,
    threads: int = 0,
    save_results_in_run: bool = True,
    make_comparable: bool = False,
) -> Any:
    """ranx's `evaluate`: one figure, or {metric: figure}; per query without `return_mean`.

    >>> from rankproof.compat.ranx import Qrels, Run, evaluate
    >>> run, qrels = Run({"q1": {"d1": 1.0, "d2": 1.0}}), Qrels({"q1": {"d2": 1}})
    >>> found = evaluate(qrels, run, "mrr")
    >>> float(found), found.expected
    (0.5, 0.75)
    """
    several = [metrics] if isinstance(metrics, str) else list(metrics)
    if make_comparable and isinstance(run, Run) and isinstance(qrels, Qrels):
        run = run.make_comparable(qrels)
    judged, listed = _plain(qrels), _plain(run)
    if not isinstance(run, _Table | Mapping):
        listed = _as_listed(listed)
    if set(judged) != set(listed):
        raise InputError(
            "the run and the judgements have different queries",
            place="evaluate",
            remedy="pass make_comparable=True",
        )
    named = {text: _measure(text) for text in several}
    results: dict[str, Any] = dict.fromkeys(named)
    for level in {level for _, level in named.values()}:
        texts = {text: measure for text, (measure, lowest) in named.items() if lowest == level}
        found = _evaluated(listed, judged, level, list(texts.values()))
        columns = zip(texts, found.values, found.scales, found.summaries, strict=True)
        for text, values, scale, summary in columns:
            mean, deviation = float(np.mean(values)), float(np.std(values))
            results[text] = Figure(mean, summary, scale) if return_mean else values
            if return_std and return_mean:
                results[text] = {"mean": results[text], "std": deviation}
            if isinstance(run, Run) and save_results_in_run:
                run.mean_scores[text] = mean
                run.scores[text] = dict(zip(found.queries, values.tolist(), strict=True))
                if return_std and return_mean:
                    run.std_scores[text] = deviation
    return results[several[0]] if len(several) == 1 else results


def _plain(table: Any) -> Any:
    """Rows by query: of a table, a dict, or for each query an array of pairs of id and number."""
    if isinstance(table, _Table):
        return table._rows
    if isinstance(table, Mapping):
        return table
    rows: Table = {}
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


def _as_listed(rows: Rows) -> Rows:
    """Arrays stand in the order of the list, whatever the scores are."""
    return {
        query: listed
        if list(listed.values()) == sorted(listed.values(), reverse=True)
        else dict(zip(listed, range(0, -len(listed), -1), strict=True))
        for query, listed in rows.items()
    }


_TESTS: dict[str, Callable[[Float], Float]] = {
    "student": lambda differences: np.nan_to_num(t_test(differences), nan=0.0),  # as ranx has it
    "fisher": lambda differences: randomization_test(differences)[0],
}


class _Pairs(dict[frozenset[str], dict[str, dict[str, Any]]]):
    """Found by two names in either order."""

    def __getitem__(self, names: Any) -> dict[str, dict[str, Any]]:
        return super().__getitem__(frozenset(names))


class Report:
    """ranx's report on several runs; `comparison` is ours, with intervals and what ties change."""

    def __init__(
        self,
        values: dict[str, dict[str, Float]],
        comparison: Callable[[], Comparison],
        stat_test: str,
        max_p: float,
        rounding_digits: int,
        show_percentages: bool,
    ):
        self.model_names = list(values)
        self.metrics = list(values[self.model_names[0]])
        self.stat_test, self.max_p = stat_test, max_p
        self.rounding_digits, self.show_percentages = rounding_digits, show_percentages
        self.results = {
            name: {metric: float(np.mean(of)) for metric, of in figures.items()}
            for name, figures in values.items()
        }
        self.comparisons = _Pairs()
        self.win_tie_loss: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
        self._comparison = comparison
        for one, other in permutations(self.model_names, 2):
            apart = np.stack([values[one][m] - values[other][m] for m in self.metrics])
            if frozenset((one, other)) not in self.comparisons:
                p = zip(self.metrics, _TESTS[stat_test](apart).tolist(), strict=True)
                self.comparisons[frozenset((one, other))] = {
                    metric: {"p_value": value, "significant": value <= max_p} for metric, value in p
                }
            self.win_tie_loss[one, other] = {
                metric: {
                    letter: int((np.sign(row) == sign).sum())
                    for letter, sign in (("W", 1), ("T", 0), ("L", -1))
                }
                for metric, row in zip(self.metrics, apart, strict=True)
            }

    @cached_property
    def comparison(self) -> Comparison:
        return self._comparison()

    def to_dict(self) -> dict[str, Any]:
        """Scores, p-values and wins of each run."""
        found: dict[str, Any] = {
            "stat_test": self.stat_test,
            "metrics": self.metrics,
            "model_names": self.model_names,
        }
        for one in self.model_names:
            others = [other for other in self.model_names if other != one]
            p = {
                other: {m: told["p_value"] for m, told in self.comparisons[one, other].items()}
                for other in others
            }
            wins = {other: self.win_tie_loss[one, other] for other in others}
            found[one] = {"scores": self.results[one], "comparisons": p, "win_tie_loss": wins}
        return found

    def to_dataframe(self) -> Any:
        """A pandas frame with a row for each run."""
        rows = [{"model_names": name, **means} for name, means in self.results.items()]
        return importlib.import_module("pandas").DataFrame(rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """`to_dict` as JSON."""
        write_atomically(
            Path(path), lambda file: file.write_text(json.dumps(self.to_dict(), indent=4))
        )

    def _shown(self) -> Shown:
        """Marks name the runs that a figure is above of where the test tells them apart."""

        def cell(one: str, metric: str) -> Marked:
            means = {name: of[metric] for name, of in self.results.items()}
            share, digits = (100, 2) if self.show_percentages else (1, 0)
            told = [
                letter
                for letter, other in zip(cycle(ascii_lowercase), means, strict=False)
                if means[one] > means[other] and self.comparisons[one, other][metric]["significant"]
            ]
            written = f"{share * means[one]:.{max(0, self.rounding_digits - digits)}f}"
            return Marked(written, means[one] == max(means.values()), "".join(told))

        rows: list[list[Cell]] = [
            [letter, name, *(cell(name, metric) for metric in self.metrics)]
            for letter, name in zip(cycle(ascii_lowercase), self.model_names, strict=False)
        ]
        return Shown(Column.each("#", "Model", *self.metrics, style="text"), rows)

    def to_latex(self) -> str:
        return latex_table(self._shown())

    def __repr__(self) -> str:
        shown = self._shown()
        raised = str.maketrans(ascii_lowercase, "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖ𐞥ʳˢᵗᵘᵛʷˣʸᶻ")
        rows = [[column.heading for column in shown.columns]]
        for row in shown.rows:
            cells = [c if isinstance(c, Marked) else Marked(str(c)) for c in row]
            rows.append([escape_controls(str(c.value)) + c.mark.translate(raised) for c in cells])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        rows.insert(1, ["-" * width for width in widths])
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


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
    """ranx's `compare`: its means and p-values; `.comparison` is ours.

    Student's p-values are ranx's own. Those of `fisher` are of our randomization test, which counts
    every flip of signs where there are few queries and draws more than ranx elsewhere.

    >>> from rankproof.compat.ranx import Qrels, Run, compare
    >>> runs = [Run.from_file(f"try/{name}.trec", name=name) for name in ("saturated", "plain")]
    >>> found = compare(Qrels.from_file("try/qrels.txt"), runs, "ndcg@5")
    >>> print(found)
    #  Model      ndcg@5
    -  ---------  ------
    a  saturated  0.641
    b  plain      0.587
    >>> round(found.comparison["saturated", "plain"][rp.nDCG @ 5].expected, 4)
    -0.1103
    """
    several = [metrics] if isinstance(metrics, str) else list(metrics)
    if stat_test not in _TESTS:
        raise InputError(f"test {shorten(stat_test)}", remedy=f"use one of {', '.join(_TESTS)}")
    values: dict[str, dict[str, Float]] = {}
    for at, run in enumerate(runs, 1):
        figures = evaluate(qrels, run, several, False, make_comparable=make_comparable)
        values[run.name or f"run_{at}"] = figures if len(several) > 1 else {several[0]: figures}
    if len(values) < len(runs):
        raise InputError("two runs of one name", place="compare", remedy="name each run")

    def ours() -> Comparison:
        asked, levels = zip(*map(_measure, several), strict=True)
        if len(set(levels)) > 1:
            raise InputError(
                "metrics of several levels", place="compare", remedy="compare for each"
            )
        named = {name: read_run(_plain(run)) for name, run in zip(values, runs, strict=True)}
        judged = read_qrels(_from_level(_plain(qrels), levels[0]))
        evaluations, view = evaluate_named(named, judged, parse_means(asked), Policy(), holes=None)
        return compare_evaluations(evaluations).over_holes(view, asked=False)

    return Report(values, ours, stat_test, max_p, rounding_digits, show_percentages)


_METHODS = {
    "rrf": "rrf",
    "sum": "sum",
    "mnz": "mnz",
    "max": "max",
    "isr": "isr",
    "comb_sum": "sum",
    "comb_mnz": "mnz",
    "comb_max": "max",
    "wsum": "weighted",
    "bordafuse": "borda",
    "borda": "borda",
}
_NAMES = {"sum": "comb_sum", "mnz": "comb_mnz", "max": "comb_max", "weighted": "weighted_sum"}
_NORMS = {"min-max": "minmax", "min_max": "minmax", "rank": "rank", "sum": "sum", None: "none"}
_DISTANCES = ("min-max-inverted", "min_max_inverted")  # min-max of scores of which less is better


def fuse(
    runs: list[Run],
    norm: str | None = "min-max",
    method: str = "wsum",
    params: dict[str, Any] | None = None,
) -> Run:
    """ranx's `fuse`; of its normalisations all but max, zmuv and borda, of its methods ours.

    >>> from rankproof.compat.ranx import Run, fuse
    >>> runs = [Run({"q": {"a": 2, "b": 1}}), Run({"q": {"b": 2, "c": 1}})]
    >>> list(fuse(runs, method="rrf")["q"])
    ['b', 'a', 'c']
    """
    if method not in _METHODS:
        raise InputError(f"method {shorten(method)}", remedy=f"use one of {', '.join(_METHODS)}")
    if norm in _DISTANCES:
        norm, runs = "min-max", [Run(_negated(run)) for run in runs]
    if norm not in _NORMS:
        raise InputError(
            f"normalisation {shorten(norm)}",
            remedy="use min-max, min-max-inverted, sum, rank or None; zmuv gives a document that a "
            "list lacks its mean, so use retrieval.fusion.combine(normalise='z')",
        )
    ours, settings = _METHODS[method], dict(params or {})
    if ours in ("sum", "mnz", "max", "weighted"):
        settings["normalise"] = _NORMS[norm]
    held = [read_run(_plain(run)) for run in runs if any(map(len, _plain(run).values()))]
    empty: Table = {query: {} for run in runs for query in run.keys()}  # noqa: SIM118
    found = _dicts(fuse_runs(held, ours, **settings)) if held else {}
    return Run({query: found.get(query, {}) for query in empty}, name=_NAMES.get(ours, method))


def _negated(run: Run) -> Table:
    return {q: {doc: -score for doc, score in rows.items()} for q, rows in _plain(run).items()}
