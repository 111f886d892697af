"""Flat and HNSW indexes: exact in their format, close to it, the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from described_search import find

import rankproof as rp
from rankproof.data.tables import Run
from rankproof.precision import FORMATS, Format, cosine, encode, search
from rankproof.precision.exact_search import to_run
from rankproof.precision.formats import FLOATS, round_to
from rankproof.retrieval.indexes import make_index
from rankproof.retrieval.indexes.flat import FlatIndex, FlatSettings
from rankproof.retrieval.indexes.hnsw import HnswIndex, HnswSettings
from rankproof.retrieval.protocols import Vectors

GRAPHS = ("float32", "float16", "bfloat16", "int8", "bit")


def clustered(count: int, dimensions: int = 40, seed: int = 0) -> Vectors:
    """Unit vectors around 30 centres, which are the same for every seed."""
    centres = np.random.default_rng(99).normal(size=(30, dimensions))
    generator = np.random.default_rng(seed)
    vectors = centres[generator.integers(0, 30, count)] + generator.normal(
        0, 0.4, (count, dimensions)
    )
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


DOCUMENTS, QUERIES = clustered(2000, seed=1), clustered(60, seed=2)
IDS = [f"d{n}" for n in range(len(DOCUMENTS))]


def graph(form: str = "float32", **changed: object) -> HnswSettings:
    return HnswSettings.model_validate({"type": "hnsw", "format": form, **changed})


def lists(run: Run) -> list[list[str]]:
    return [
        run.doc[int(a) : int(b)].to_list() for a, b in zip(run.start, run.start[1:], strict=False)
    ]


def recall(result: Run, exact: Run) -> float:
    pairs = zip(lists(result), lists(exact), strict=True)
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in pairs]))


def same(a: Run, b: Run) -> None:
    assert a.to_frame().equals(b.to_frame())
    assert a.dtype == b.dtype
    assert (a.cut is None) == (b.cut is None)
    if a.cut is not None and b.cut is not None:
        assert a.cut.tolist() == b.cut.tolist()


# ------------------------------------------------------------------------------------------ flat


@pytest.mark.parametrize("high_precision", [True, False])
@pytest.mark.parametrize("form", FORMATS)
def test_every_flat_format_is_exact_search_in_that_format(
    form: Format, high_precision: bool
) -> None:
    index = make_index(FlatSettings(format=form, high_precision=high_precision), DOCUMENTS, IDS)
    ids = [f"q{n}" for n in range(len(QUERIES))]
    result = index.search(QUERIES, 10, ids)
    best = find(
        *(QUERIES, DOCUMENTS, 10),
        format=form,
        high_precision=high_precision,
        metric="cosine",
        are_unit=True,
    )
    dtype = "float32" if high_precision or form not in FLOATS else form
    same(result.run, to_run(best, ids, IDS, len(DOCUMENTS), dtype=dtype, name="flat"))
    assert result.seconds.shape == (60,)
    assert len(set(result.seconds)) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_high_precision_is_the_cosine_of_what_is_stored(form: Format) -> None:
    """Blank passages have no direction: their cosine to everything is 0."""
    vectors = np.concatenate([DOCUMENTS, np.zeros((2, DOCUMENTS.shape[1]), np.float32)])
    index = make_index(FlatSettings(format=form, candidates=2000), vectors)
    result = index.search(QUERIES[:5], len(vectors)).run.to_frame()
    asked = round_to(QUERIES[:5], form) if form in FLOATS else QUERIES[:5]
    expected = cosine(asked, encode(DOCUMENTS, form).decode())
    for query, doc, score in result.select("query", "doc", "score").rows():
        if int(doc) < len(DOCUMENTS):
            assert score == pytest.approx(expected[int(query), int(doc)], abs=2e-7)
        else:
            assert score == 0


def test_flat_bits_can_be_rescored_with_the_original_vectors() -> None:
    settings = FlatSettings(format="bit", rescore="original", candidates=200)
    index = make_index(settings, DOCUMENTS, IDS)
    result = index.search(QUERIES, 10).run
    same(
        result,
        search(
            *(QUERIES, encode(DOCUMENTS, "bit"), 10),
            rescore="original",
            originals=DOCUMENTS,
            candidates=200,
            document_ids=IDS,
        ),
    )
    assert recall(result, search(QUERIES, DOCUMENTS, 10, document_ids=IDS)) > 0.9


@pytest.mark.parametrize(
    ("form", "each"), [("float32", 160), ("float16", 80), ("int8", 44), ("int4", 24), ("bit", 9)]
)
def test_a_flat_index_takes_what_its_numbers_take(form: Format, each: int) -> None:
    assert make_index(FlatSettings(format=form), DOCUMENTS, IDS).bytes == 2000 * each
    rescored = FlatSettings(format=form, rescore="original")
    extra = 0 if form.startswith("float") else 160
    assert make_index(rescored, DOCUMENTS, IDS).bytes == 2000 * (each + extra)


# ------------------------------------------------------------------------------------------ HNSW


@pytest.mark.parametrize(
    ("form", "least"),
    [("float32", 0.99), ("float16", 0.99), ("bfloat16", 0.97), ("int8", 0.95), ("bit", 0.2)],
)
def test_a_graph_finds_nearly_what_comparing_everything_finds(form: str, least: float) -> None:
    exact = search(QUERIES, DOCUMENTS, 10, document_ids=IDS)
    result = make_index(graph(form), DOCUMENTS, IDS).search(QUERIES, 10)
    assert recall(result.run, exact) >= least
    assert result.run.cut is None
    assert result.seconds.shape == (60,)
    assert (result.seconds > 0).all()


def test_a_graph_of_bits_is_scored_by_minus_the_hamming_distance() -> None:
    result = make_index(graph("bit"), DOCUMENTS[:, :37], IDS).search(QUERIES[:, :37], 5).run
    signs, asked = DOCUMENTS[:, :37] > 0, QUERIES[:, :37] > 0
    for query, doc, score in result.to_frame().iter_rows():
        assert score == -float((signs[int(doc[1:])] != asked[int(query)]).sum())


def test_a_graph_of_numbers_is_scored_by_the_inner_product() -> None:
    for form, near in (("float32", 1e-6), ("float16", 1e-3), ("bfloat16", 1e-2), ("int8", 2e-2)):
        result = make_index(graph(form), DOCUMENTS, IDS).search(QUERIES, 5).run
        for query, doc, score in result.to_frame().iter_rows():
            product = float(DOCUMENTS[int(doc[1:])].astype(float) @ QUERIES[int(query)])
            assert score == pytest.approx(product, abs=near)


def test_candidates_are_rescored_with_the_original_vectors() -> None:
    exact = search(QUERIES, DOCUMENTS, 10, document_ids=IDS)
    plain = make_index(graph("bit"), DOCUMENTS, IDS)
    rescored = make_index(graph("bit", candidates=200), DOCUMENTS, IDS)
    result = rescored.search(QUERIES, 10).run
    assert recall(result, exact) > max(0.9, recall(plain.search(QUERIES, 10).run, exact))
    for query, doc, score in result.to_frame().iter_rows():
        product = float(DOCUMENTS[int(doc[1:])].astype(float) @ QUERIES[int(query)])
        assert score == pytest.approx(product, abs=1e-6)
    assert rescored.bytes == plain.bytes + DOCUMENTS.nbytes


def test_a_wider_search_finds_more() -> None:
    exact = search(QUERIES, DOCUMENTS, 1, document_ids=IDS)
    narrow, wide = (
        make_index(graph(m=2, ef_construction=4, ef_search=ef), DOCUMENTS, IDS) for ef in (1, 200)
    )
    result = [recall(index.search(QUERIES, 1).run, exact) for index in (narrow, wide)]
    assert result[0] + 0.2 < result[1]


@pytest.mark.parametrize("form", GRAPHS)
def test_the_same_vectors_give_the_same_graph(form: str) -> None:
    first, second = (make_index(graph(form), DOCUMENTS, IDS) for _ in range(2))
    same(first.search(QUERIES, 20).run, second.search(QUERIES, 20).run)
    assert first.bytes == second.bytes


@pytest.mark.parametrize("form", ["float32", "int8", "bit"])
@pytest.mark.parametrize("candidates", [None, 50])
def test_a_saved_graph_finds_the_same(form: str, candidates: int | None, tmp_path: Path) -> None:
    built = make_index(graph(form, candidates=candidates), DOCUMENTS, IDS)
    assert isinstance(built, HnswIndex)
    loaded = HnswIndex.load(built.save(tmp_path / "deep" / "graph.npz"))
    same(built.search(QUERIES, 10).run, loaded.search(QUERIES, 10).run)
    assert (built.bytes, built.build_seconds) == (loaded.bytes, loaded.build_seconds)
    assert (built.settings, built.name) == (loaded.settings, loaded.name)


def test_a_cache_builds_each_graph_once(tmp_path: Path) -> None:
    def make(**changed: object) -> HnswIndex:
        settings = graph(**changed)  # type: ignore[arg-type]
        index = make_index(settings, DOCUMENTS, IDS, folder=tmp_path)
        assert isinstance(index, HnswIndex)
        return index

    built, again = make(), make()
    assert again.build_seconds == built.build_seconds
    same(built.search(QUERIES, 10).run, again.search(QUERIES, 10).run)
    wider = make(ef_search=500)
    assert wider.build_seconds == built.build_seconds
    assert wider.settings.ef_search == 500
    assert len(list(tmp_path.iterdir())) == 1
    make(m=8)
    make(form="bit")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_damaged_file_in_the_cache_is_built_again(tmp_path: Path) -> None:
    built = make_index(graph(), DOCUMENTS[:50], IDS[:50], folder=tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for wrong in (b"", whole[: len(whole) // 2]):
        file.write_bytes(wrong)
        again = make_index(graph(), DOCUMENTS[:50], IDS[:50], folder=tmp_path)
        same(built.search(QUERIES, 10).run, again.search(QUERIES, 10).run)
        assert len(file.read_bytes()) > len(wrong)
    with pytest.raises(rp.InputError, match="there is no such file; build the index"):
        HnswIndex.load(tmp_path / "other.npz")


# ------------------------------------------------------------------------------------ both kinds


@pytest.mark.parametrize("settings", [FlatSettings(), graph(), graph("bit"), graph(candidates=9)])
def test_more_than_there_is_gives_all_there_is(settings: FlatSettings | HnswSettings) -> None:
    index = make_index(settings, DOCUMENTS[:7])
    result = lists(index.search(QUERIES[:3], 100).run)
    assert [sorted(row) for row in result] == [[str(n) for n in range(7)]] * 3
    nothing = index.search(QUERIES[:0], 5)
    assert (len(nothing.run), nothing.seconds.shape) == (0, (0,))


@pytest.mark.parametrize("settings", [FlatSettings(), FlatSettings(format="bit"), graph()])
def test_what_cannot_be_searched_is_refused(settings: FlatSettings | HnswSettings) -> None:
    with pytest.raises(rp.InputError, match="no vectors to index"):
        make_index(settings, DOCUMENTS[:0])
    with pytest.raises(rp.InputError, match="documents: row 1: nan in a vector"):
        make_index(settings, np.array([[1, 0], [np.nan, 1]], np.float32))
    with pytest.raises(rp.InputError, match="document_ids: id 'a' appears twice"):
        make_index(settings, DOCUMENTS[:2], ["a", "a"])
    index = make_index(settings, DOCUMENTS[:20])
    with pytest.raises(rp.InputError, match="queries have 7 dimensions and documents 40"):
        index.search(QUERIES[:, :7], 5)
    with pytest.raises(rp.InputError, match="k = 0"):
        index.search(QUERIES, 0)
    with pytest.raises(rp.InputError, match="queries: row 0: inf in a vector"):
        index.search(np.full((1, 40), np.inf, np.float32), 5)


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e18])
@pytest.mark.parametrize("k", [1, 7, 400])
def test_one_query_finds_what_many_together_find(scale: float, k: int) -> None:
    rng = np.random.default_rng(5)
    vectors = rng.integers(-2, 3, (300, 24)).astype(np.float32)  # few values: many ties
    vectors[:40] = vectors[0] + rng.normal(0, 1e-7, (40, 24)).astype(np.float32)  # and near ones
    vectors *= np.float32(scale)
    queries = rng.integers(-2, 3, (9, 24)).astype(np.float32) * np.float32(scale)
    index = FlatIndex(FlatSettings(), vectors, pl.Series([f"d{i}" for i in range(300)]))
    together = index.search(queries, k).run
    assert together.cut is not None
    for at in range(9):
        alone = index.search(queries[at : at + 1], k).run
        some = slice(int(together.start[at]), int(together.start[at + 1]))
        assert alone.doc.to_list() == together.doc[some].to_list()
        assert alone.score.tolist() == together.score[some].tolist()
        assert alone.cut is not None
        assert alone.cut[0] == together.cut[at]


def test_a_query_that_is_no_number_is_refused_alone_too() -> None:
    index = FlatIndex(FlatSettings(), np.eye(3, dtype=np.float32), pl.Series(["a", "b", "c"]))
    with pytest.raises(rp.InputError, match="nan in a vector"):
        index.search(np.full((1, 3), np.nan, np.float32), 1)
    with pytest.raises(rp.InputError, match="dimensions"):
        index.search(np.zeros((1, 2), np.float32), 1)
