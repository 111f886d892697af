"""An audit against what its parts say alone and plain Python; its words against its figures."""

from __future__ import annotations

import itertools
import math
import os
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import rankproof as rp
from rankproof.audit.readings import rank_agreement
from rankproof.data.beir import read_corpus
from rankproof.foundation.arrays import Array
from rankproof.foundation.files import write_atomically
from rankproof.precision import FORMATS, encode, search, truncate
from rankproof.precision.formats import FLOATS, round_to

MEASURES = ["nDCG@10", "RR@10", "R@100"]
DATA = Path(os.environ.get("RANKPROOF_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))


@cache
def vectors() -> tuple[Array, Array, dict[str, dict[str, int]]]:
    """Queries near documents of crowded topics: no two documents are equal."""
    rng = np.random.default_rng(7)
    documents = rng.standard_normal((30, 48))[rng.integers(0, 30, 1500)]
    documents = documents + 0.8 * rng.standard_normal((1500, 48))
    asked = rng.choice(1500, 25, replace=False)
    queries = documents[asked] + rng.standard_normal((25, 48))
    near = np.argsort(-(documents @ documents[asked].T), axis=0)[:6].T
    qrels = {
        f"q{i}": {f"d{d}": 2 if place == 0 else 1 for place, d in enumerate(result)}
        for i, result in enumerate(near.tolist())
    }
    queries, documents = (
        (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
        for x in (queries, documents)
    )
    return queries, documents, qrels


QUERY_IDS = [f"q{i}" for i in range(25)]
DOCUMENT_IDS = [f"d{i}" for i in range(1500)]


def audit(**given: Any) -> rp.Audit:
    queries, documents, qrels = vectors()
    settings: dict[str, Any] = {"query_ids": QUERY_IDS, "document_ids": DOCUMENT_IDS, "k": 200}
    return rp.audit.audit_embeddings(queries, documents, qrels, MEASURES, **(settings | given))


@cache
def whole() -> rp.Audit:
    return audit(dimensions=[24], curves=True)


def test_every_format_is_read_in_every_way_it_can_be_scored() -> None:
    settings = [(r.format, r.scoring, r.pipeline.dimensions) for r in whole().readings]
    expected = [
        (form, scoring, cut)
        for cut in (None, 24)
        for form in FORMATS
        for scoring in (
            ["plain"]
            if form == "float32"
            else ["plain", "high precision"]
            if form in FLOATS
            else ["plain", "decoded", "original"]
        )
    ]
    assert settings == expected


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("cut", [None, 24])
def test_values_equal_those_of_search_evaluate_and_tie_statistics(
    form: str, cut: int | None
) -> None:
    queries, documents, qrels = vectors()
    if cut is not None:
        queries, documents = truncate(queries, cut), truncate(documents, cut)
    readings = [r for r in whole().readings if r.format == form and r.is_full == (cut is None)]
    for reading in readings:
        run = search(
            *(queries, documents, 200),
            format=form,  # type: ignore[arg-type]
            high_precision=reading.scoring != "plain",
            rescore="original" if reading.scoring == "original" else "decoded",
            query_ids=QUERY_IDS,
            document_ids=DOCUMENT_IDS,
        )
        evaluation = rp.evaluate(qrels, run, MEASURES)
        for measure in MEASURES:
            assert reading.evaluation[measure] == evaluation[measure]
        cutoffs = (1, 3, 5, 10, 20, 50, 100)
        assert reading.ties.at == rp.tie_statistics(run, cutoffs).at
        assert run.cut is not None
        assert reading.cut == (run.cut > 0).sum()
        size = encode(documents[:1], form).bytes_per_vector  # type: ignore[arg-type]
        beside = 4 * documents.shape[1] if reading.scoring == "original" else 0
        assert reading.bytes_per_vector == size + beside
        assert reading.seconds > 0


def test_bfloat16_has_a_range_plainly_and_none_with_high_precision() -> None:
    plain, high = (
        whole().reading("bfloat16", scoring).evaluation["nDCG@10"]
        for scoring in ("plain", "high precision")
    )
    assert plain.range > 0.001
    assert high.range == 0
    ten = {at.cutoff: at for at in whole().reading("bfloat16", "high precision").ties.at}[10]
    assert ten.distinct == 10


def test_rescoring_recovers_what_one_bit_codes_lose() -> None:
    exact = whole().reading("float32").evaluation["nDCG@10"].expected
    plain, decoded, original = (
        whole().reading("bit", scoring).evaluation["nDCG@10"]
        for scoring in ("plain", "decoded", "original")
    )
    assert plain.expected < decoded.expected < original.expected <= exact + 1e-12
    assert plain.range > 0.01
    assert decoded.range == original.range == 0
    assert whole().reading("bit", "original").agreement.mean > (
        whole().reading("bit", "plain").agreement.mean
    )


def test_the_order_of_rows_does_not_matter() -> None:
    queries, documents, qrels = vectors()
    rng = np.random.default_rng(1)
    q, d = rng.permutation(len(queries)), rng.permutation(len(documents))
    settings: dict[str, Any] = {"k": 1500, "order": "docid", "formats": ["float32", "bfloat16"]}
    one = audit(**settings)
    other = rp.audit.audit_embeddings(
        *(queries[q], documents[d], dict(reversed(qrels.items())), MEASURES),
        query_ids=[QUERY_IDS[i] for i in q],
        document_ids=[DOCUMENT_IDS[i] for i in d],
        **settings,
    )
    for a, b in zip(one.readings, other.readings, strict=True):
        assert a.evaluation.to_dict() == b.evaluation.to_dict()
        for one_at, other_at in zip(a.ties.at, b.ties.at, strict=True):
            assert one_at.distinct == other_at.distinct
            assert one_at.group_size == pytest.approx(other_at.group_size)
        assert a.agreement.mean == pytest.approx(b.agreement.mean, abs=1e-6)
    assert one.summary() == other.summary()


def test_rho_equals_that_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(3)
    reference = rng.standard_normal((6, 30))
    scores = np.round(reference + rng.standard_normal((6, 30)))
    scores[5] = 1.0  # all tie: undefined
    result = rank_agreement(np.repeat(np.arange(6), 30), reference.ravel(), scores.ravel())
    expected = [
        stats.spearmanr(a, b).statistic for a, b in zip(reference[:5], scores, strict=False)
    ]
    assert result.mean == pytest.approx(np.mean(expected))
    assert (result.queries, result.undefined) == (5, 1)


def test_rho_ranks_documents_that_were_not_candidates_last() -> None:
    result = audit(formats=["bit"], k=20, candidates_factor=1)
    exact, rescored = (result.reading("bit", s) for s in ("decoded", "original"))
    assert rescored.agreement.mean < 1  # not all of float32's top 20 are candidates
    queries, documents, _ = vectors()
    best = search(queries, documents, 20, format="bit", high_precision=False)
    kept = {tuple(row) for row in best.to_frame().select("query", "doc").iter_rows()}
    reference = search(queries, documents, 20).to_frame()
    rows = [
        (int(query), score, score if (query, doc) in kept else -math.inf)
        for query, doc, score in reference.iter_rows()
    ]
    owner, a, b = map(np.array, zip(*rows, strict=True))
    assert rescored.agreement.mean == pytest.approx(rank_agreement(owner, a, b).mean, abs=1e-9)
    assert exact.agreement.queries <= 25


def test_truncated_vectors_are_compared_with_the_whole_ones() -> None:
    cut = whole().reading("float32", dimensions=24)
    assert cut.dimensions == 24
    assert cut.agreement.mean < 0.95
    assert whole().reading("float32").agreement.mean == 1
    names = [row[0] for row in whole().tables()[0].rows]
    assert "float32, 24 dimensions" in names


def test_the_cosine_is_used_as_metric_on_request() -> None:
    queries, documents, qrels = vectors()
    longer = documents * np.linspace(1, 3, len(documents), dtype=np.float32)[:, None]
    ids: dict[str, Any] = {"query_ids": QUERY_IDS, "document_ids": DOCUMENT_IDS, "k": 50}
    result = rp.audit.audit_embeddings(
        queries, longer, qrels, MEASURES, formats=["float32"], metric="cosine", **ids
    )
    run = search(queries, longer, 50, metric="cosine", **{k: v for k, v in ids.items() if k != "k"})
    expected = rp.evaluate(qrels, run, MEASURES)
    assert result.reading("float32").evaluation["nDCG@10"] == expected["nDCG@10"]


@pytest.mark.parametrize("form", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
def test_vectors_that_a_format_holds_have_the_float32_cosine_in_high_precision(form: Any) -> None:
    queries, documents, qrels = vectors()
    longer = documents * np.linspace(1, 3, len(documents), dtype=np.float32)[:, None]
    queries, longer = round_to(queries, form), round_to(longer, form)
    ids: dict[str, Any] = {"query_ids": QUERY_IDS, "document_ids": DOCUMENT_IDS, "k": 50}
    formats = ["float32", form, "int8"]
    result = rp.audit.audit_embeddings(
        queries, longer, qrels, MEASURES, formats=formats, metric="cosine", **ids
    )
    exact, high = result.reading("float32"), result.reading(form, "high precision")
    assert high.evaluation["nDCG@10"] == exact.evaluation["nDCG@10"]
    assert high.agreement.mean == 1
    plain = result.reading(form, "plain")
    assert plain.agreement.mean < 1
    run = search(queries, longer, format="int8", metric="cosine", **ids)
    expected = rp.evaluate(qrels, run, MEASURES)
    assert result.reading("int8", "decoded").evaluation["nDCG@10"] == expected["nDCG@10"]


def test_queries_without_judgments_are_skipped_and_counted() -> None:
    queries, documents, qrels = vectors()
    fewer = {query: qrels[query] for query in QUERY_IDS[:20]}
    result = rp.audit.audit_embeddings(
        *(queries, documents, fewer, "RR"),
        formats=["float32"],
        query_ids=QUERY_IDS,
        document_ids=DOCUMENT_IDS,
    )
    assert result.readings[0].ties.queries == 20
    assert "5 of 25 queries have no judgments: skipped" in result.notes


# -------------------------------------------------------------------------------------- words


def test_a_format_is_safe_if_it_equals_float32_in_any_order_of_ties() -> None:
    result = whole()
    safe, _, rest = result.summary().answer.partition(". ")
    plain = {r.format: r for r in result.readings if r.pipeline.is_plain and r.is_full}
    for form in safe.removeprefix("Safe: ").split(", "):
        assert all(plain[form].evaluation[m].range <= 0.01 for m in MEASURES)
        apart = result.from_float32(plain[form])
        assert {apart[rp.parse(m)].label(1, 0.01) for m in MEASURES} <= {"equal", "ahead"}
    assert "bit" not in safe.split(", ")
    assert "bit" in rest
    (meaning, *_) = result.summary().notes
    assert meaning.startswith("Safe: nDCG@10, ")
    assert "within 0.01 of float32 (95% CI, 25 queries)" in meaning


def test_a_row_shows_a_format_scored_plainly_with_high_precision_and_rescored() -> None:
    table = whole().tables()[0]
    assert [column.name for column in table.columns] == [
        *("format", "as engines score it", "range from ties", "high precision", "rescored")
    ]
    rows = {row[0]: tuple(row[1:]) for row in table.rows}
    plain, high = (whole().reading("bfloat16", s) for s in ("plain", "high precision"))
    values = plain.evaluation[rp.nDCG @ 10], high.evaluation[rp.nDCG @ 10]
    assert rows["bfloat16"] == (values[0].expected, values[0].range, values[1].expected, None)
    decoded, original = (whole().reading("bit", s) for s in ("decoded", "original"))
    assert rows["bit"][2:] == tuple(
        reading.evaluation[rp.nDCG @ 10].expected for reading in (decoded, original)
    )


def test_without_another_format_there_is_nothing_to_call_safe() -> None:
    summary = audit(formats=["float32"]).summary()
    assert summary.answer == "There is no other format to compare with float32."
    assert not summary.notes
    alone = audit(formats=["bit"]).summary()
    assert alone.answer.endswith("in bit, plain; there is no float32 to compare with.")


def test_a_sentence_states_that_ties_go_past_the_depth() -> None:
    shallow = audit(formats=["bit"], k=10, candidates_factor=2)
    plain, decoded, _ = shallow.readings
    assert plain.open[rp.parse("nDCG@10")] == plain.cut > 0
    (note,) = shallow.summary().notes
    assert f"The last tie goes past the depth searched in {plain.cut} of 25 lists" in note
    assert any(decoded.open.values())
    deep = audit(formats=["bit"], k=1500)
    assert not any(deep.readings[0].open.values())
    assert "depth" not in "".join(deep.summary().notes)


def test_an_open_list_is_one_whose_last_tie_begins_within_the_cutoff() -> None:
    queries, documents, _ = vectors()
    reading = audit(formats=["bit"], k=60).readings[0]
    run = search(queries, documents, 60, format="bit", high_precision=False)
    assert run.cut is not None
    begins = []
    for at, (low, high) in enumerate(itertools.pairwise(run.start.tolist())):
        scores = run.score[low:high].tolist()
        begins.append(scores.index(scores[-1]) + 1 if run.cut[at] else math.inf)
    assert reading.open[rp.parse("R@100")] == sum(b <= 100 for b in begins)
    assert reading.open[rp.parse("nDCG@10")] == sum(b <= 10 for b in begins)


def two_models() -> rp.Audit:
    """`careful` keeps its logits apart; `saturated` is better as its ties happen to fall."""
    rng = np.random.default_rng(5)
    rows = []
    for query in range(12):
        for place in range(30):
            relevant = place < 3
            strength = rng.normal(1.0 if relevant else 0.0)
            rows.append((f"q{query}", f"d{place}", 2.0 * strength, 14.0 + 0.15 * strength))
    frame = pl.DataFrame(rows, schema=["query", "doc", "careful", "saturated"], orient="row")
    qrels = {f"q{q}": {f"d{d}": 1 for d in range(3)} for q in range(12)}
    return rp.Audit.together(
        [
            rp.audit.audit_logits(
                frame.select("query", "doc", logit=name), qrels, ["nDCG@10"], name=name
            )
            for name in ("careful", "saturated")
        ]
    )


def test_models_are_compared_where_tie_order_reverses_them() -> None:
    result = two_models()
    assert result.models == ["careful", "saturated"]
    leads = {(lead.pipeline.format, lead.pipeline.scoring): lead for lead in result.leads}
    low = leads["bfloat16", "plain"]
    assert low.reversed
    assert not low.certain
    a, b = (result.reading("bfloat16", model=m).evaluation["nDCG@10"] for m in result.models)
    assert low.expected == pytest.approx(a.expected - b.expected)
    assert low.difference.oblivious == pytest.approx(a.oblivious - b.oblivious)
    assert low.difference.lowest == pytest.approx(a.min - b.max)
    assert low.difference.highest == pytest.approx(a.max - b.min)
    said = "\n".join(result.orders())
    assert (
        f"nDCG@10, bfloat16, plain: reversed. As ties happen to be broken saturated leads by "
        f"{-low.difference.oblivious:.4f}; over all orders careful leads by {low.expected:.4f}."
    ) in said
    assert "depends on tie order in" in said


def test_models_are_compared_where_a_format_reverses_them() -> None:
    queries, documents, qrels = vectors()
    ids: dict[str, Any] = {"query_ids": QUERY_IDS, "document_ids": DOCUMENT_IDS, "k": 200}
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((48, 48)))[0]
    noise = np.random.default_rng(2).standard_normal(queries.shape) * 0.02
    skewed = np.linspace(5, 0.1, 48)  # one bit cannot tell that the first numbers matter most
    pairs = {
        "even": (queries + noise, documents),
        "skewed": (queries @ rotation / skewed, documents @ rotation * skewed),
    }
    result = rp.Audit.together(
        [
            rp.audit.audit_embeddings(
                *(q, d, qrels, "nDCG@10"), name=name, formats=["float32", "bit"], **ids
            )
            for name, (q, d) in pairs.items()
        ]
    )
    leads = {(lead.pipeline.format, lead.pipeline.scoring): lead.expected for lead in result.leads}
    said = "\n".join(result.orders())
    turned = f"but in bit, plain even leads by {leads['bit', 'plain']:.4f}: the format reverses"
    assert turned in said
    assert leads["float32", "plain"] < 0 < leads["bit", "plain"]


def test_a_sentence_states_that_models_keep_their_order() -> None:
    queries, documents, qrels = vectors()
    ids: dict[str, Any] = {"query_ids": QUERY_IDS, "document_ids": DOCUMENT_IDS}
    noise = 3 * np.random.default_rng(0).standard_normal(queries.shape).astype(np.float32)
    good, bad = (
        rp.audit.audit_embeddings(
            *(q, documents, qrels, "nDCG@10"), name=name, formats=["float32", "float16"], **ids
        )
        for name, q in (("good", queries), ("bad", queries + noise))
    )
    together = rp.Audit.together([good, bad])
    said = "nDCG@10: good is ahead of bad in every format audited, under every tie order."
    assert said in together.orders()
    assert together.tables()[0].rows[0][0] == "good, float32"
    with pytest.raises(rp.InputError, match="two models are named 'good'"):
        rp.Audit.together([good, good])


# ------------------------------------------------------------------------------------- logits


def to_bfloat16(value: float) -> float:
    """Round a float32 to bfloat16, halves to even, with whole numbers alone."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    low, high = bits & 0xFFFF, bits >> 16
    if low > 0x8000 or (low == 0x8000 and high & 1):
        high += 1
    return float(struct.unpack("<f", struct.pack("<I", high << 16))[0])


def to_float32(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def reciprocal_ranks(scores: list[float], relevant: list[bool]) -> list[float]:
    """RR@3 under every order that ties allow."""
    result = []
    for order in itertools.permutations(range(len(scores))):
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order)):
            ranks = [rank for rank, at in enumerate(order, 1) if relevant[at]]
            result.append(1 / ranks[0] if ranks and ranks[0] <= 3 else 0.0)
    return result


@pytest.mark.parametrize("two", [False, True])
@pytest.mark.parametrize("form", ["float32", "bfloat16"])
def test_logits_agree_with_plain_python(form: str, two: bool) -> None:
    rng = np.random.default_rng(11)
    cast = to_bfloat16 if form == "bfloat16" else to_float32
    rows: list[tuple[str, str, float, float]] = []
    for query in range(8):
        rows += [
            (f"q{query}", f"d{d}", float(rng.normal(4, 1.5)), float(rng.normal(-1, 0.01)))
            for d in range(5)
        ]
    qrels = {f"q{q}": {f"d{d}": 1 for d in (1, 4)} for q in range(8)}
    frame = pl.DataFrame(rows, schema=["qid", "docno", "yes", "no"], orient="row")
    frame = frame if two else frame.select("qid", "docno", logit="yes")
    result = rp.audit.audit_logits(frame, qrels, ["RR@3"], formats=[form])

    for scoring in ("plain", "high precision"):
        expected, low, high = [], [], []
        for query in range(8):
            scores = []
            for _, _, yes, no in rows[5 * query : 5 * query + 5]:
                z = cast(to_float32(yes))
                z = to_float32(z - cast(to_float32(no))) if two else z
                activated = cast(to_float32(1 / (1 + math.exp(-z))))
                scores.append(activated if scoring == "plain" else z)
            values = reciprocal_ranks(scores, [d in (1, 4) for d in range(5)])
            expected.append(sum(values) / len(values))
            low.append(min(values))
            high.append(max(values))
        summary = result.reading(form, scoring).evaluation["RR@3"]
        assert summary.expected == pytest.approx(sum(expected) / 8, abs=1e-12)
        assert summary.min == pytest.approx(sum(low) / 8, abs=1e-12)
        assert summary.max == pytest.approx(sum(high) / 8, abs=1e-12)


def test_high_precision_separates_saturated_scores_of_a_reranker() -> None:
    """A list of 100 candidates with logits near 6, as rerankers give: few bfloat16 scores left."""
    rng = np.random.default_rng(0)
    strength = np.sort(rng.normal(4.0, 2.0, 100))[::-1].astype(np.float32)
    frame = pl.DataFrame(
        {"query": ["q"] * 100, "doc": [f"d{i}" for i in range(100)], "logit": strength}
    )
    qrels = {"q": {f"d{i}": 1 for i in (0, 3, 8, 15)}}
    result = rp.audit.audit_logits(frame, qrels, ["nDCG@10"])
    plain, high = (
        {at.cutoff: at for at in result.reading("bfloat16", s).ties.at}
        for s in ("plain", "high precision")
    )
    assert plain[20].distinct <= 3
    assert high[20].distinct >= 15
    exact = result.reading("float32", "high precision").evaluation["nDCG@10"]
    tied = result.reading("bfloat16").evaluation["nDCG@10"]
    assert tied.min < exact.expected < tied.max
    assert exact.range == 0
    assert result.reading("float32", "high precision").agreement.mean == 1


def test_a_float32_sigmoid_saturates_and_the_logit_does_not() -> None:
    frame = pl.DataFrame({"q": ["q"] * 3, "doc": ["a", "b", "c"], "logit": [18.0, 20.0, 25.0]})
    result = rp.audit.audit_logits(frame, {"q": {"c": 1}}, ["RR"], formats=["float32"])
    assert result.reading("float32").ties.at[-1].distinct == 1
    assert result.reading("float32").agreement.undefined == 1
    assert result.reading("float32", "high precision").evaluation["RR"].expected == 1
    ((form, plain, _, high),) = result.tables()[0].rows
    assert isinstance(high, float)
    assert isinstance(plain, float)
    assert (form, round(high - plain, 4)) == ("float32", 0.3889)
    assert "float32" in result.summary().answer


def test_the_order_of_logits_does_not_matter() -> None:
    rng = np.random.default_rng(4)
    frame = pl.DataFrame(
        {
            "query": [f"q{i}" for i in range(6) for _ in range(40)],
            "doc": [f"d{i}" for _ in range(6) for i in range(40)],
            "logit_yes": rng.normal(6, 2, 240),
            "logit_no": rng.normal(-2, 1, 240),
        }
    )
    qrels = {f"q{i}": {"d3": 1, "d7": 2} for i in range(6)}
    one, other = (
        rp.audit.audit_logits(rows, qrels, MEASURES, order="docid")
        for rows in (frame, frame.sample(fraction=1.0, shuffle=True, seed=1))
    )
    for a, b in zip(one.readings, other.readings, strict=True):
        assert a.evaluation.to_dict() == b.evaluation.to_dict()
        assert a.agreement == b.agreement
    assert one.summary() == other.summary()


# ------------------------------------------------------------------------- frames and curves


def test_the_frame_has_a_row_for_each_setting_and_measure() -> None:
    frame = whole().to_frame()
    assert frame.height == len(whole().readings) * len(MEASURES)
    row = frame.row(
        by_predicate=(pl.col("format") == "bit")
        & (pl.col("scoring") == "decoded")
        & (pl.col("dimensions") == 24)
        & (pl.col("measure") == "RR@10"),
        named=True,
    )
    summary = whole().reading("bit", "decoded", dimensions=24).evaluation["RR@10"]
    assert (row["expected"], row["range"], row["bias"]) == (
        *(summary.expected, summary.range, summary.bias),
    )


def test_curves_have_each_measure_at_each_k() -> None:
    frame = whole().curves()
    at_ten = frame.filter(
        (pl.col("measure") == "nDCG") & (pl.col("k") == 10) & (pl.col("dimensions") == 48)
    )
    readings = [r for r in whole().readings if r.is_full]
    assert at_ten["expected"].to_list() == [r.evaluation["nDCG@10"].expected for r in readings]
    assert at_ten["max"].to_list() == [r.evaluation["nDCG@10"].max for r in readings]
    assert (frame["min"] <= frame["max"]).all()


def test_curves_are_drawn_with_all_points(tmp_path: Path) -> None:
    result = audit(formats=["float32", "bit"], curves=True, name="my/model")
    written = result.draw(tmp_path / "a" / "plots")
    names = sorted(path.name for path in (tmp_path / "a" / "plots").iterdir())
    assert names == [p.name for p in written]
    assert names == [f"my_model-{m}.svg" for m in ("R", "RR", "nDCG")]
    drawn = next(p for p in written if p.name == "my_model-nDCG.svg").read_text()
    for word in ("nDCG@k", "float32", "bit", "plain", "original", "expected", "oblivious"):
        assert word in drawn


def test_a_failed_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(rp.InputError, match="No space left"):
        write_atomically(tmp_path / "x.png", lambda path: path.write_bytes(b"1234"))
    assert list(tmp_path.iterdir()) == []


def test_without_curves_there_is_nothing_to_draw() -> None:
    with pytest.raises(rp.InputError, match="curves=True"):
        audit(formats=["float32"]).curves()


@pytest.mark.slow
def test_on_scifact_precision_and_rescoring_narrow_the_range() -> None:
    if not (DATA / "scifact" / "corpus.jsonl").is_file():
        pytest.skip(f"no SciFact in {DATA}; set RANKPROOF_DATA")
    texts = read_corpus(str(DATA / "scifact"))
    qrels = rp.read_qrels(texts.qrels)
    judged = set(qrels.queries)
    asked = [(q, t) for q, t in zip(texts.query_ids, texts.queries, strict=True) if q in judged]
    words: dict[str, int] = {}

    def embed(lines: list[str]) -> Array:
        """The line and the word of every token."""
        split = [[words.setdefault(w, len(words)) for w in line.lower().split()] for line in lines]
        owner = np.repeat(np.arange(len(split)), [len(s) for s in split])
        return np.stack([owner, np.concatenate([np.array(s) for s in split])])

    pairs = [embed(texts.documents), embed([text for _, text in asked])]
    used = np.bincount(np.unique(pairs[0], axis=1)[1], minlength=len(words)) + 1
    rarity = np.log(len(texts.documents) / used)[:, None]
    directions = np.random.default_rng(0).standard_normal((len(words), 96)) * rarity
    documents, queries = (
        np.stack(
            [np.bincount(owner, weights=directions[word, d]) for d in range(96)], axis=1
        ).astype(np.float32)
        for owner, word in pairs
    )
    result = rp.audit.audit_embeddings(
        *(queries, documents, qrels, ["nDCG@10"]),
        formats=["float32", "bfloat16", "bit"],
        metric="cosine",
        k=100,
        query_ids=[q for q, _ in asked],
        document_ids=texts.document_ids,
    )
    figures = {(r.format, r.scoring): r.evaluation["nDCG@10"] for r in result.readings}
    assert figures["bfloat16", "plain"].range > figures["bfloat16", "high precision"].range
    assert figures["bit", "plain"].range > figures["bfloat16", "plain"].range
    assert figures["bit", "original"].expected > figures["bit", "plain"].expected


def test_scored_as_in_the_paper_saturated_logits_tie_in_high_precision_too() -> None:
    import polars as pl

    logits = pl.DataFrame(
        {"query": ["q"] * 4, "doc": list("abcd"), "logit": [18.0, 25.0, 19.5, 2.0]}
    )
    qrels = {"q": {"b": 1}}
    ours, theirs = (
        rp.audit.audit_logits(logits, qrels, "RR", formats=["bfloat16"], paper_strict=strict)
        .reading("bfloat16", "high precision")
        .evaluation["RR"]
        for strict in (False, True)
    )
    assert (ours.min, ours.max) == (1, 1)
    assert theirs.min == pytest.approx(1 / 3)
    assert theirs.max == 1


def test_a_reference_of_other_pairs_is_refused() -> None:
    import polars as pl

    from rankproof.audit.input_files import read_logits

    frame = pl.DataFrame({"query": ["q", "q"], "doc": ["a", "b"], "logit": [1.0, 2.0]})
    other = read_logits(frame.reverse())
    with pytest.raises(rp.InputError, match="the reference has other pairs"):
        rp.audit.audit_logits(frame, {"q": {"a": 1}}, "RR", reference=other)


def test_differences_from_float32_come_with_students_interval() -> None:
    stats = pytest.importorskip("scipy.stats")
    result = whole()
    bit, exact = result.reading("bit"), result.reading("float32")
    apart = result.from_float32(bit)[rp.nDCG @ 10]
    each = [
        r.evaluation.per_query.filter(measure="nDCG@10").sort("query")["expected"].to_numpy()
        for r in (bit, exact)
    ]
    low, high = stats.ttest_rel(*each).confidence_interval()
    assert apart.expected == pytest.approx((each[0] - each[1]).mean())
    assert apart.ci == pytest.approx((low, high))
    assert result.from_float32(exact) == {}


@pytest.mark.parametrize(("where", "verb"), [("first", "adds"), ("last", "takes")])
def test_a_note_reports_lists_that_name_relevant_documents_first(where: str, verb: str) -> None:
    rows = [
        {"query": f"q{q}", "doc": f"d{d}", "logit": float(d % 3)}
        for q in range(8)
        for d in (range(9) if where == "first" else reversed(range(9)))
    ]
    qrels = {f"q{q}": {"d0": 1, "d1": 1} for q in range(8)}
    result = rp.audit.audit_logits(pl.DataFrame(rows), qrels, "nDCG@10", formats=["float32"])
    assert result.made[0]["listing"] == {"relevant": where, "share": 1.0, "lists": 8}
    bias = result.readings[0].evaluation["nDCG@10"].bias
    assert (bias > 0) == (where == "first")
    (note,) = [note for note in result.notes if "relevant documents" in note]
    assert note.startswith(f"100% of 8 lists name their relevant documents {where}: breaking ties")
    assert f"{verb} {abs(bias):.4f}" in note
    mixed = pl.DataFrame(rows).sample(fraction=1.0, shuffle=True, seed=1)
    assert rp.audit.audit_logits(mixed, qrels, "nDCG@10").made[0]["listing"] is None
    by_name = rp.audit.audit_logits(pl.DataFrame(rows), qrels, "nDCG@10", order="docid")
    assert by_name.made[0]["listing"] is None  # ties are broken by other means


def test_formats_are_undecided_where_too_few_queries_differ() -> None:
    queries, documents, qrels = vectors()
    some = {q: qrels[q] for q in QUERY_IDS[:3]}
    result = rp.audit.audit_embeddings(
        *(queries[:3], documents, some, "nDCG@10"),
        query_ids=QUERY_IDS[:3], document_ids=DOCUMENT_IDS, formats=["float32", "bit"], k=50,
    )  # fmt: skip
    (difference,) = result.from_float32(result.reading("bit", "decoded")).values()
    assert difference.differing < 6
    assert difference.label(1, 0.01) == "undecided"


def test_a_measure_that_no_query_defines_is_refused() -> None:
    vectors = np.eye(2, dtype="float32")
    judged = {"0": {"0": 0}, "1": {"1": 0}}
    with pytest.raises(rp.InputError, match="nDCG@10 is defined on no query; check the judgements"):
        rp.audit.audit_embeddings(vectors, vectors, judged, ["nDCG@10"], formats=["bit"])
