"""The paper's tables: FP32 | BF16 | BF16 + HPS, means over datasets, in hundredths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import rankproof as rp
from rankproof.audit import Audit
from rankproof.audit.paper_tables import entries
from rankproof.audit.tables import AuditTables
from rankproof.presentation.text_formats import latex_table, markdown_table


def on(dataset: str, seed: int, model: str = "one", *, curves: bool = False) -> Audit:
    """An audit of random logits on a dataset of its own."""
    draw = np.random.default_rng(seed)
    queries = [f"{dataset}{q}" for q in range(8) for _ in range(30)]
    docs = [f"d{d}" for _ in range(8) for d in range(30)]
    qrels = {f"{dataset}{q}": {f"d{d}": 1 for d in range(3)} for q in range(8)}
    frame = pl.DataFrame({"query": queries, "doc": docs, "logit": 4 + 2 * draw.normal(size=240)})
    result = rp.audit.audit_logits(frame, qrels, ["nDCG@10", "RR@10"], name=model, curves=curves)
    return replace(
        result,
        readings=tuple(replace(reading, dataset=dataset) for reading in result.readings),
        made=({**result.made[0], "dataset": dataset},),
    )


def test_the_values_of_a_model_are_means_over_datasets() -> None:
    parts = [on("x", 1), on("y", 2)]
    audit = Audit.together(parts)
    result = entries(audit, "bfloat16")
    assert [entry.title for entry in result] == ["FP32", "BF16", "BF16 + HPS"]
    assert {entry.datasets for entry in result} == {2}
    ways = [("float32", "plain"), ("bfloat16", "plain"), ("bfloat16", "high precision")]
    for entry, (form, scoring) in zip(result, ways, strict=True):
        readings = [part.reading(form, scoring) for part in parts]
        for measure, figures in entry.measures.items():
            own = [reading.evaluation[measure] for reading in readings]
            assert figures == pytest.approx(
                [np.mean([getattr(s, n) for s in own]) for n in ("expected", "min", "max")]
            )
        assert entry.distinct[10] == pytest.approx(
            np.mean([at.distinct for r in readings for at in r.ties.at if at.cutoff == 10])
        )
        assert entry.spearman == pytest.approx(np.mean([r.agreement.mean for r in readings]))
    assert result[1].group_size[10] > result[2].group_size[10] >= result[0].group_size[10] == 1


def test_a_dataset_of_one_model_does_not_hide_the_other_model() -> None:
    audit = Audit.together([on("x", 1), on("y", 2), on("x", 3, "two")])
    assert [(e.model, e.datasets) for e in entries(audit, "float16")[::3]] == [
        ("one", 2),
        ("two", 1),
    ]
    assert [(e.model, e.dataset) for e in entries(audit, "float16", by_dataset=True)[::3]] == [
        *(("one", "x"), ("one", "y"), ("two", "x"))
    ]


def test_tables_are_printed_in_hundredths_with_their_ranges() -> None:
    audit = Audit.together([on("x", 1), on("y", 2)])
    tables = AuditTables(audit, for_people=True)._paper()
    titles = [str(table.title) for table in tables]
    assert [title.split(":")[0][-1] for title in titles] == list("1634516345"[:10])
    first = next(t for t in tables if [c.name for c in t.columns][2:3] == ["BF16"])
    assert [c.name for c in first.columns] == [
        *("measure", "FP32", "BF16", "min–max", "BF16 + HPS", "min–max")
    ]
    (_, low, high) = entries(audit, "bfloat16")
    row = first.rows[0]
    expected, least, most = low.measures[rp.nDCG @ 10]
    assert row[2:4] == [f"{100 * expected:.2f}", f"{100 * least:.2f}–{100 * most:.2f}"]
    assert row[4] == f"{100 * high.measures[rp.nDCG @ 10][0]:.2f}"
    assert "| nDCG@10 |" in markdown_table(first)
    assert r"BF16 + HPS" in latex_table(first)
    written = "".join(line for table in tables for line in latex_table(table).splitlines()[1:])
    assert r"$\rho$" in written
    assert written.isascii()  # what is not, LaTeX refuses or drops
    for table in tables:
        wide = [max(len(c.name), *(len(c.write(row[at])) for row in table.rows))
                for at, c in enumerate(table.columns)]  # fmt: skip
        assert sum(wide) + len(wide) + 1 <= 80


def test_settings_are_drawn_over_one_another(tmp_path: Path) -> None:
    paths = Audit.together([on("x", 1, curves=True)]).draw(tmp_path / "plots")
    (drawn,) = [path for path in paths if path.name == "one-x-overlaid.svg"]
    text = drawn.read_text()
    for name in ("FP32", "low", "low + HPS", "nDCG@k", "RR@k", "nDCG@k, one, x: BF16"):
        assert f">{name}</text>" in text
