"""Questions on which the choice and its nearest rival differ most, with their passages.

The rival is the best configuration that differs on ten questions or more: one whose lists are all
but the same shows nothing. Where none does, it is the best whose lists are not the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rankproof.foundation.phrasing import plural, signed
from rankproof.presentation.markup import Html, element, escape
from rankproof.report.decision import ShownSweep
from rankproof.report.page_elements import Section, badge, fold, paragraph
from rankproof.tradeoffs.results import TEXTS

_QUESTIONS = 10
_PASSAGES = 5  # of each list
_PASSAGE_LENGTH = 220  # letters
_LEAST_DIFFERENCE = 1e-9  # below it values are equal

Passages = list[tuple[str, int | None]]  # document and grade, best first


@dataclass(frozen=True)
class _Finalists:
    """The choice and its rival, with what is shown of both."""

    sweep: ShownSweep
    names: tuple[str, str]
    passages: dict[tuple[str, str], Passages]  # by configuration and query
    texts: dict[tuple[str, str], str]  # by "question" or "passage" and id; may be empty


def finalist_sections(sweep: ShownSweep, position: int, title: str) -> list[Section]:
    """Return the section; none without a rival or without values of single questions."""
    values, lists = sweep.results.per_query, sweep.results.lists
    rival = None if values is None or lists is None else _rival(sweep, lists)
    if values is None or lists is None or rival is None:
        return []
    names = (sweep.name, rival)
    differences = _differences(values, sweep.measure, names)
    if not differences.height:
        return []
    largest = differences.head(_QUESTIONS)
    texts = _read_texts(sweep)
    passages = _top_passages(sweep, lists, names, largest["query"].to_list())
    finalists = _Finalists(sweep, names, passages, texts)
    body = [
        _question(finalists, row, is_open=at == 0)
        for at, row in enumerate(largest.iter_rows(named=True))
    ]
    if not texts:
        body.append(paragraph("The sweep kept no texts: passages are shown by their ids.", "note"))
    words = [_comparison_sentence(finalists, differences)]
    return [Section(f"finalists-{position}", title, words, body, quiet=True)]


def _comparison_sentence(finalists: _Finalists, differences: pl.DataFrame) -> str:
    """Say on how many questions the two differ, and which is ahead on how many."""
    sweep = finalists.sweep
    first, second = (sweep.names[name].short for name in finalists.names)
    ahead = int((differences["difference"] > 0).sum())
    sentence = (
        f"On {plural(differences.height, 'question')} {first} and {second} differ in "
        f"{sweep.measure}: the first is ahead on {ahead:,}, behind on "
        f"{differences.height - ahead:,}."
    )
    if differences.height > _QUESTIONS:
        sentence += f" Here are the {_QUESTIONS} on which they differ most."
    return sentence


def _differences(values: pl.DataFrame, measure: str, names: tuple[str, str]) -> pl.DataFrame:
    """Return the questions on which two configurations differ, the largest difference first."""
    difference = pl.col("difference")
    return (
        values.filter((pl.col("measure") == measure) & pl.col("configuration").is_in(names))
        .pivot("configuration", index="query", values="value")
        .with_columns(difference=pl.col(names[0]) - pl.col(names[1]))
        .filter(difference.is_not_nan() & (difference.abs() > _LEAST_DIFFERENCE))
        .sort(difference.abs(), pl.col("query"), descending=[True, False])
    )


def _rival(sweep: ShownSweep, lists: pl.DataFrame) -> str | None:
    """Return the best configuration that differs on many questions, else one with other lists."""
    names = sweep.table["configuration"].to_list()
    known, values = sweep.results.shared_values(sweep.measure, names)
    if sweep.name in known:
        differ = np.abs(values - values[known.index(sweep.name)]) > _LEAST_DIFFERENCE
        differs_often = dict(zip(known, (differ.sum(axis=1) >= _QUESTIONS).tolist(), strict=True))
        for name in names:
            if differs_often.get(name):
                return str(name)
    by_name = {
        str(name): rows.drop("configuration")
        for (name,), rows in lists.partition_by("configuration", as_dict=True).items()
    }
    own = by_name.get(sweep.name)
    for name in names:
        if own is not None and name in by_name and not by_name[name].equals(own):
            return str(name)
    return None


def _read_texts(sweep: ShownSweep) -> dict[tuple[str, str], str]:
    """Return the texts of questions and passages that the sweep kept, by kind and id."""
    file = sweep.result.path.parent / TEXTS
    if not file.is_file():
        return {}
    return {(kind, name): text for kind, name, text in pl.read_parquet(file).iter_rows()}


def _top_passages(
    sweep: ShownSweep, lists: pl.DataFrame, names: tuple[str, str], queries: list[str]
) -> dict[Any, Passages]:
    """Return the first passages of each list with their grades, by configuration and query."""
    rows = lists.with_columns(pl.col("configuration").cast(pl.String)).filter(
        pl.col("configuration").is_in(names) & pl.col("query").is_in(queries)
    )
    grades = sweep.results.judgements
    if grades is not None:
        rows = rows.join(grades, on=["query", "doc"], how="left", maintain_order="left")
    else:
        rows = rows.with_columns(grade=pl.lit(None, pl.Int64))
    ordered = rows.sort("score", descending=True, maintain_order=True)
    groups = ordered.group_by("configuration", "query", maintain_order=True)
    return {
        key: list(zip(group["doc"], group["grade"], strict=True))[:_PASSAGES]
        for key, group in groups
    }


def _question(finalists: _Finalists, row: dict[str, Any], is_open: bool) -> Html:
    """Return a question with the lists of both, folded."""
    query = row["query"]
    lists = [finalists.passages.get((name, query), []) for name in finalists.names]
    documents = [{document for document, _ in passages} for passages in lists]
    columns = []
    for at, (name, passages) in enumerate(zip(finalists.names, lists, strict=True)):
        items = [
            _passage(document, grade, finalists.texts, document in documents[1 - at])
            for document, grade in passages
        ]
        heading = f"{finalists.sweep.names[name].short}: {row[name]:.3f}"
        content = element("ol", items) if items else paragraph("It found nothing.", "quiet")
        columns.append(element("div", [element("p", heading, class_="list-name"), content]))
    question = finalists.texts.get(("question", query), query)
    difference = signed(row["difference"], 3).replace("-", "−")
    return fold(
        f"{difference} · {question}", [element("div", columns, class_="two")], opened=is_open
    )


def _passage(
    document: str, grade: int | None, texts: dict[tuple[str, str], str], is_shared: bool
) -> Html:
    """Return a passage with its grade; what both lists hold is gray."""
    text = texts.get(("passage", document), document)
    if len(text) > _PASSAGE_LENGTH:
        text = f"{text[:_PASSAGE_LENGTH].rstrip(' .')}…"
    kind = "warn" if grade is None else "good" if grade >= 4 else "plain"
    mark = badge("unjudged" if grade is None else f"grade {grade}", kind)
    return element("li", [mark, escape(f" {text}")], class_="shared" if is_shared else None)
