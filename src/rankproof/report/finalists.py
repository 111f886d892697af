"""Ten questions on which the choice and its nearest rival differ most, with their passages.

The rival is the best of the others that differs on as many questions: one whose list is all but the
same shows nothing. Where none does, it is the best whose list is another one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from markupsafe import Markup

from rankproof.foundation.phrasing import plural, signed
from rankproof.report.decision import Chosen
from rankproof.report.page_elements import Section, badge, fold, paragraph
from rankproof.report.svg import element, shown
from rankproof.tradeoffs.results import TEXTS

_QUESTIONS = 10
_PASSAGES = 5  # of each list
_LETTERS = 220  # of a passage
_LEAST = 1e-9  # a difference below this is none


def finalists(one: Chosen, at: int, title: str) -> list[Section]:
    """Nothing where there is one configuration, or no figure of single questions."""
    values, lists = one.results.per_query, one.results.lists
    if values is None or lists is None or (rival := _rival(one, lists)) is None:
        return []
    names = (one.name, rival)
    wide = (
        values.filter((pl.col("measure") == one.by) & pl.col("configuration").is_in(names))
        .pivot("configuration", index="query", values="value")
        .with_columns(apart=pl.col(names[0]) - pl.col(names[1]))
        .filter(pl.col("apart").is_not_nan() & (pl.col("apart").abs() > _LEAST))
        .sort(pl.col("apart").abs(), pl.col("query"), descending=[True, False])
    )
    if not wide.height:
        return []
    ahead = int((wide["apart"] > 0).sum())
    first, second = (one.words[name].short for name in names)
    many = plural(wide.height, "question")
    words = [
        f"On {many} {first} and {second} differ in {one.by}: the first is ahead on {ahead:,}, "
        f"behind on {wide.height - ahead:,}."
    ]
    if wide.height > _QUESTIONS:
        words[0] += f" Here are the {_QUESTIONS} on which they differ most."
    texts = _texts(one)
    listed = _listed(one, names, wide["query"].head(_QUESTIONS).to_list())
    body = [
        _question(one, row, names, listed, texts, opened=at == 0)
        for at, row in enumerate(wide.head(_QUESTIONS).iter_rows(named=True))
    ]
    if not texts:
        body.append(paragraph("The sweep kept no texts: passages are shown by their ids.", "note"))
    return [Section(f"finalists-{at}", title, words, body, quiet=True)]


def _rival(one: Chosen, listed: pl.DataFrame) -> str | None:
    names = one.table["configuration"].to_list()
    known, values = one.results.shared_values(one.by, names)
    if one.name in known:
        apart = np.abs(values - values[known.index(one.name)]) > _LEAST
        several = dict(zip(known, (apart.sum(axis=1) >= _QUESTIONS).tolist(), strict=True))
        if (found := next((name for name in names if several.get(name)), None)) is not None:
            return str(found)
    lists = {
        str(name): rows.drop("configuration")
        for (name,), rows in listed.partition_by("configuration", as_dict=True).items()
    }
    mine = lists.get(one.name)
    for name in names:
        if mine is not None and name in lists and not lists[name].equals(mine):
            return str(name)
    return None


def _texts(one: Chosen) -> dict[tuple[str, str], str]:
    file = one.result.path.parent / TEXTS
    if not file.is_file():
        return {}
    return {(kind, name): text for kind, name, text in pl.read_parquet(file).iter_rows()}


def _listed(one: Chosen, names: tuple[str, str], queries: list[str]) -> dict[Any, list[Any]]:
    """(configuration, query) → (doc, grade) from the best down."""
    assert one.results.lists is not None
    some = one.results.lists.filter(
        pl.col("configuration").cast(pl.String).is_in(names) & pl.col("query").is_in(queries)
    ).with_columns(pl.col("configuration").cast(pl.String))
    if one.results.judgements is not None:
        grades = one.results.judgements
        some = some.join(grades, on=["query", "doc"], how="left", maintain_order="left")
    else:
        some = some.with_columns(grade=pl.lit(None, pl.Int64))
    top = some.sort("score", descending=True, maintain_order=True).group_by(
        "configuration", "query", maintain_order=True
    )
    return {
        key: list(zip(rows["doc"], rows["grade"], strict=True))[:_PASSAGES] for key, rows in top
    }


def _question(
    one: Chosen,
    row: dict[str, Any],
    names: tuple[str, str],
    listed: dict[Any, list[Any]],
    texts: dict[tuple[str, str], str],
    opened: bool,
) -> Markup:
    query = row["query"]
    both = [{doc for doc, _ in listed.get((name, query), [])} for name in names]
    columns = []
    for at, name in enumerate(names):
        passages = [
            _passage(doc, grade, texts, doc in both[1 - at])
            for doc, grade in listed.get((name, query), [])
        ]
        nothing = [paragraph("It found nothing.", "quiet")]
        columns.append(
            element(
                "div",
                [
                    element("p", f"{one.words[name].short}: {row[name]:.3f}", class_="list-name"),
                    element("ol", passages) if passages else nothing[0],
                ],
            )
        )
    asked = texts.get(("question", query), query)
    lead = signed(row["apart"], 3).replace("-", "−")
    return fold(f"{lead} · {asked}", [element("div", columns, class_="two")], opened=opened)


def _passage(
    doc: str, grade: int | None, texts: dict[tuple[str, str], str], shared: bool
) -> Markup:
    text = texts.get(("passage", doc), doc)
    said = text if len(text) <= _LETTERS else f"{text[:_LETTERS].rstrip(' .')}…"
    kind = "warn" if grade is None else "good" if grade >= 4 else "plain"
    mark = badge("unjudged" if grade is None else f"grade {grade}", kind)
    return element("li", [mark, shown(f" {said}")], class_="shared" if shared else None)
