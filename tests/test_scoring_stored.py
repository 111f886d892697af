"""Integer arrays: asked what they are, decoded by that, refused where it cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.foundation.arrays import Array
from rankproof.precision import search
from rankproof.precision.quantized_arrays import Stored, decode_integers

RNG = np.random.default_rng(5)
DOCUMENTS = RNG.standard_normal((400, 64)) * RNG.uniform(0.2, 2, 64) + 0.3
DOCUMENTS = DOCUMENTS.astype(np.float32)
ASKED = RNG.choice(400, 20, replace=False)
QUERIES = (DOCUMENTS[ASKED] + 0.4 * RNG.standard_normal((20, 64))).astype(np.float32)
RANGES = np.stack([DOCUMENTS.min(axis=0), DOCUMENTS.max(axis=0)])
QRELS = {str(query): {str(doc): 1} for query, doc in enumerate(ASKED)}
PRECISIONS = ("int8", "uint8", "binary", "ubinary")


def quantise(vectors: Array, precision: str) -> Array:
    """What sentence-transformers' quantize_embeddings makes, by its definition."""
    if precision.endswith("binary"):
        packed = np.packbits(vectors > 0, axis=-1)
        return np.asarray(packed if precision == "ubinary" else packed.view(np.int8) ^ -128)
    step = (RANGES[1] - RANGES[0]) / 255
    whole = np.clip(np.floor((vectors - RANGES[0]) / step), 0, 255)
    return np.asarray(whole, np.uint8) if precision == "uint8" else np.asarray(whole - 128, np.int8)


def said(precision: str) -> dict[str, Any]:
    if precision.endswith("binary"):
        return {"stored": "bits"}
    return {"stored": "int8", "ranges": RANGES}


def quality(queries: Any, documents: Any, **options: Any) -> float:
    return rp.evaluate(QRELS, search(queries, documents, 50, **options), "RR")["RR"].expected


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_definition_here_is_the_librarys(precision: str) -> None:
    pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers.util.quantization")
    made = library.quantize_embeddings(DOCUMENTS, precision, ranges=RANGES)
    assert made.dtype == quantise(DOCUMENTS, precision).dtype
    # The library divides in float32: a number on the edge of a step may fall to either side.
    assert (made == quantise(DOCUMENTS, precision)).mean() > 0.999


@pytest.mark.parametrize("precision", PRECISIONS)
def test_quantised_vectors_rank_nearly_as_the_floats_do(precision: str) -> None:
    exact = quality(QUERIES, DOCUMENTS, metric="cosine")
    both = [quantise(values, precision) for values in (QUERIES, DOCUMENTS)]
    assert exact > 0.9
    assert quality(*both, metric="cosine", **said(precision)) > exact - 0.08
    assert quality(QUERIES, both[1], metric="cosine", **said(precision)) > exact - 0.08


@pytest.mark.parametrize("precision", ["int8", "uint8"])
def test_a_calibrated_code_is_off_by_half_a_step_at_most(precision: str) -> None:
    back = decode_integers(quantise(DOCUMENTS, precision), "documents", "int8", RANGES)
    step = (RANGES[1] - RANGES[0]) / 255
    assert (np.abs(back - DOCUMENTS) <= step / 2 + 1e-5).all()


@pytest.mark.parametrize("precision", ["binary", "ubinary"])
def test_packed_bits_are_signs_and_bits_that_fill_a_byte_are_dropped(precision: str) -> None:
    cut = DOCUMENTS[:, :61]
    signs = decode_integers(quantise(cut, precision), "documents", "bits", dimensions=61)
    assert (signs == np.where(cut > 0, 1, -1)).all()
    found = search(QUERIES[:, :61], quantise(cut, precision), 5, stored="bits")
    assert len(found) == 100


def test_uncalibrated_int8_is_the_numbers_themselves() -> None:
    codes = RNG.integers(-127, 128, (50, 64)).astype(np.int8)
    run = search(codes[:5], codes, 10, stored="int8")
    wide = codes.astype(np.float32)
    assert run.to_frame().equals(search(wide[:5], wide, 10).to_frame())


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int64, np.bool_])
def test_integers_of_which_nobody_says_what_they_are_are_refused(dtype: Any) -> None:
    codes = RNG.integers(0, 2, (20, 64)).astype(dtype)
    for queries, documents in ((QUERIES, codes), (codes, DOCUMENTS)):
        with pytest.raises(rp.InputError, match="are these numbers, calibrated codes or packed"):
            search(queries, documents, 5)


def test_tensors_of_integers_are_asked_too() -> None:
    torch = pytest.importorskip("torch")
    codes = torch.from_numpy(quantise(DOCUMENTS, "ubinary"))
    with pytest.raises(rp.InputError, match="documents: an array of uint8"):
        search(torch.from_numpy(QUERIES), codes, 5)
    assert len(search(torch.from_numpy(QUERIES), codes, 5, stored="bits")) == 100


@pytest.mark.parametrize(
    ("codes", "stored", "ranges", "message"),
    [
        (quantise(DOCUMENTS, "uint8"), "int8", None, "only their ranges say where 0 lies"),
        (quantise(DOCUMENTS, "int8"), "int8", None, "in every dimension were calibrated"),
        (quantise(DOCUMENTS, "int8"), "int8", RANGES[:, :9], r"the shape \(2, 9\) for 64"),
        (np.full((3, 64), 300), "int8", RANGES, "row 0: 300 is not a code of 8 bits"),
        (np.full((3, 8), -129), "bits", None, "row 0: -129 is not a code of 8 bits"),
        (quantise(DOCUMENTS, "int8"), "bits", RANGES, "ranges belong to int8 codes"),
        (DOCUMENTS > 0, "int8", None, "truth values"),
        (DOCUMENTS, "bits", None, "neither queries nor documents hold integers"),
        (quantise(DOCUMENTS, "ubinary")[:, :4], "bits", None, "64 dimensions and documents 32"),
    ],
)
def test_what_codes_cannot_be_is_refused(
    codes: Array, stored: Stored, ranges: Any, message: str
) -> None:
    with pytest.raises(rp.InputError, match=message):
        search(QUERIES, codes, 5, stored=stored, ranges=ranges)


def test_the_command_line_asks_and_is_told(tmp_path: Path) -> None:
    files = {"queries": QUERIES, "codes": quantise(DOCUMENTS, "uint8"), "ranges": RANGES}
    for name, values in files.items():
        np.save(tmp_path / f"{name}.npy", values)
    lines = [f"{query} 0 {doc} 1\n" for query, docs in QRELS.items() for doc in docs]
    (tmp_path / "qrels.txt").write_text("".join(lines))
    words = [
        "audit",
        "vectors",
        str(tmp_path / "qrels.txt"),
        "--queries",
        str(tmp_path / "queries.npy"),
    ]
    words += ["--documents", str(tmp_path / "codes.npy"), "-m", "RR", "--formats", "float32"]
    asked = rankproof(*words)
    assert asked.returncode == 2
    assert "codes.npy: an array of uint8: are these numbers" in asked.stderr.decode()
    told = rankproof(*words, "--stored", "int8", "--ranges", str(tmp_path / "ranges.npy"))
    assert told.returncode == 0, told.stderr.decode()
    assert "stored as int8; formats are applied to the numbers" in " ".join(
        told.stdout.decode().split()
    )


def test_a_cluster_refuses_integers_as_one_machine_does() -> None:
    pytest.importorskip("ray")
    from rankproof.cluster import search as search_cluster

    with pytest.raises(rp.InputError, match="queries: an array of int8"):
        search_cluster(quantise(QUERIES, "int8"), [DOCUMENTS], 5)
