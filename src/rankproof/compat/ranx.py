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
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from rankproof.arrays import Float
from rankproof.comparison import Comparison
from rankproof.comparison import compare as compare_runs
from rankproof.compat.lists import settled
from rankproof.errors import InputError, shorten
from rankproof.evaluation import Evaluation, Policy, evaluate_some, measure_all
from rankproof.files import write_whole
from rankproof.measures.registry import Measure, parse
from rankproof.records import read_qrels, read_run
from rankproof.retrieval.fusion import fuse as fuse_runs
from rankproof.tables import Qrels as Judged
from rankproof.tables import Run as Listed
from rankproof.ties import in_order

_COLUMNS = ["q_id", "doc_id", "score"]
Table = dict[str, dict[str, Any]]
Rows = Mapping[str, Mapping[str, Any]]


class _Table:
    """Rows by query and document, as ranx's own classes hold them."""

    def __init__(
        self, rows: Mapping[str, Mapping[str, Any]] | None = None, name: str | None = None
    ):
        self._rows: Table = {q: dict(listed) for q, listed in (rows or {}).items()}
        self.name = name

    @classmethod
    def from_dict(cls, rows: Mapping[str, Mapping[str, Any]], name: str | None = None) -> Any:
        return cls(rows, name)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], kind: str | None = None, name: str | None = None
    ) -> Any:
        """A file of any format that rankproof reads; `kind` need not be told."""
        found = read_run(path) if cls is Run else read_qrels(path)
        return cls(_nested(found), name or found.name)

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
        rows: Table = {}
        for query, doc, value in zip(*columns, strict=True):
            rows.setdefault(query, {})[doc] = value
        return cls(rows, name)

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
        return cls(_nested(read_qrels(dataset)), name)

    def add_score(self, q_id: str, doc_id: str, score: Any) -> None:
        self._rows.setdefault(q_id, {})[doc_id] = score

    def add(self, q_id: str, doc_ids: list[str], scores: list[Any]) -> None:
        self._rows[q_id] = dict(zip(doc_ids, scores, strict=True))

    def add_multi(self, q_ids: list[str], doc_ids: Any, scores: Any) -> None:
        for query, docs, values in zip(q_ids, doc_ids, scores, strict=True):
            self.add(query, docs, values)

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
            write_whole(to, lambda file: file.write_text(json.dumps(self._rows)))
        elif kind == "lz4":
            pressed = importlib.import_module("lz4.frame").compress(json.dumps(self._rows).encode())
            write_whole(to, lambda file: file.write_bytes(pressed))
        elif kind == "parquet":
            frame = pl.DataFrame(self.to_dataframe().to_dict("list"))
            write_whole(to, frame.write_parquet)
        elif kind == "trec":
            write_whole(to, lambda file: file.write_text("".join(self._lines())))
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
    """Judgements."""

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
    """Scored documents; `mean_scores` and `scores` hold what `evaluate` found."""

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


def _nested(table: Listed | Judged) -> Table:
    rows: Table = {}
    for query, doc, value in table.to_frame().iter_rows():
        rows.setdefault(query, {})[doc] = value
    return rows


class Figure(float):
    """A mean over queries; `expected`, `min`, `max`, `range` are made when they are asked for."""

    def __new__(cls, value: float, measure: Measure, ties: Callable[[], Evaluation]) -> Figure:
        figure = super().__new__(cls, value)
        figure._measure, figure._ties = measure, ties
        return figure

    _measure: Measure
    _ties: Callable[[], Evaluation]

    @property
    def expected(self) -> float:
        """The mean over every order of the ties."""
        return float(self._ties()[self._measure].expected)

    @property
    def min(self) -> float:
        return float(self._ties()[self._measure].min)

    @property
    def max(self) -> float:
        return float(self._ties()[self._measure].max)

    @property
    def range(self) -> float:
        """How far apart the best and the worst order are."""
        return float(self._ties()[self._measure].range)


# Without a cutoff these are of the whole list.
_WHOLE = {"precision": "SetP", "f1": "SetF", "hit_rate": f"Success@{10**15}"}


def _measure(text: str, top: int = 1) -> Measure:
    """`ndcg@10-l2`, `rbp.95`, `map@100` as ours."""
    name, _, level = text.partition("-l")
    found = parse(_WHOLE.get(name) or re.sub(r"^rbp@", "rbp.", name))
    if found.name == "RBP":
        # What it adds up are grades, so that graded judgements give more than 1.
        found = found(max=top)
    if not level:
        return found
    if not level.isdigit():
        raise InputError(f"metric {shorten(text)}", remedy="write the level as ndcg@10-l2")
    if "gain" not in found.definition.parameters:
        return found(rel=int(level))
    below = dict.fromkeys(range(1, int(level)), 0.0)
    return found(gain=below) if below else found


def evaluate(
    qrels: Qrels | Mapping[str, Mapping[str, Any]],
    run: Run | Mapping[str, Mapping[str, Any]],
    metrics: str | list[str],
    return_mean: bool = True,
    return_std: bool = False,
    threads: int = 0,
    save_results_in_run: bool = True,
    make_comparable: bool = False,
) -> Any:
    """ranx's `evaluate`: one figure, or {metric: figure}; per query without `return_mean`."""
    several = [metrics] if isinstance(metrics, str) else list(metrics)
    if make_comparable and isinstance(run, Run) and isinstance(qrels, Qrels):
        run = run.make_comparable(qrels)
    if set(qrels.keys()) != set(run.keys()):
        raise InputError(
            "the run and the judgements have different queries",
            place="evaluate",
            remedy="pass make_comparable=True",
        )
    rows, grades = _plain(run), _plain(qrels)
    policy = Policy("input", "zero", "zero")
    quick = settled(rows, grades, "input")
    if quick is not None:
        queries, groups = quick
        top = max(1, groups.pool.max_grade)
        measures = [_measure(text, top) for text in several]
        outcomes = measure_all(groups, measures, policy)
    else:
        judged, listed = read_qrels(grades), read_run(rows)
        top = max(1, int(judged.grade.max(initial=1)))
        measures = [_measure(text, top) for text in several]
        found = evaluate_some(in_order(listed, "input", settle=True), judged, measures, policy)
        queries, outcomes = found.queries.to_list(), found.outcomes

    @cache
    def ties() -> Evaluation:
        return evaluate_some(read_run(rows), read_qrels(grades), measures, policy)

    results: dict[str, Any] = {}
    for text, measure in zip(several, measures, strict=True):
        values: Float = outcomes[measure].oblivious
        if measure.name == "RBP":
            values = values * top
        results[text] = Figure(float(np.mean(values)), measure, ties) if return_mean else values
        if isinstance(run, Run) and save_results_in_run:
            run.mean_scores[text] = float(np.mean(values))
            run.scores[text] = dict(zip(queries, values.tolist(), strict=True))
        if return_std and return_mean:
            deviation = float(np.std(values))
            results[text] = {"mean": results[text], "std": deviation}
            if isinstance(run, Run) and save_results_in_run:
                run.std_scores[text] = deviation
    return results[several[0]] if len(several) == 1 else results


def _plain(table: Any) -> Any:
    return table._rows if isinstance(table, _Table) else table


def compare(
    qrels: Qrels, runs: list[Run], metrics: str | list[str], make_comparable: bool = False, **_: Any
) -> Comparison:
    """Our comparison of the runs: with it differences, intervals and what ties could change.

    ranx's report holds p-values of a test of its choice; here they are of a paired randomisation
    test on expected values, corrected for the number of comparisons.
    """
    several = [metrics] if isinstance(metrics, str) else list(metrics)
    if make_comparable:
        runs = [run.make_comparable(qrels) for run in runs]
    named = {run.name or f"run {at}": read_run(_plain(run)) for at, run in enumerate(runs, 1)}
    return compare_runs(named, read_qrels(_plain(qrels)), [_measure(text) for text in several])


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
_NORMS = {"min-max": "minmax", "rank": "rank", "sum": "sum", None: "none"}


def fuse(
    runs: list[Run],
    norm: str | None = "min-max",
    method: str = "wsum",
    params: dict[str, Any] | None = None,
) -> Run:
    """ranx's `fuse`; of its normalisations min-max, sum and rank, of its methods those we have."""
    if method not in _METHODS:
        raise InputError(f"method {shorten(method)}", remedy=f"use one of {', '.join(_METHODS)}")
    if norm not in _NORMS:
        raise InputError(
            f"normalisation {shorten(norm)}",
            remedy="use min-max, sum, rank or None; zmuv gives a document that a list lacks its "
            "mean, so use retrieval.fusion.combine(normalise='z')",
        )
    ours, settings = _METHODS[method], dict(params or {})
    if ours in ("sum", "mnz", "max", "weighted"):
        settings["normalise"] = _NORMS[norm]
    held = [read_run(_plain(run)) for run in runs if any(map(len, _plain(run).values()))]
    empty: Table = {query: {} for run in runs for query in run.keys()}  # noqa: SIM118
    found = _nested(fuse_runs(held, ours, **settings)) if held else {}
    return Run({query: found.get(query, {}) for query in empty}, name=_NAMES.get(ours, method))
