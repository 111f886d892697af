"""What people and servers hold: arrays, tensors, indexes, answers; and scores of few decimals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import rankproof as rp
from rankproof.audit.input_files import read_logits, read_served, read_vectors
from rankproof.audit.logits import Logits, audit_logits
from rankproof.data import read_run
from rankproof.foundation.errors import InputError

DRAW = np.random.default_rng(5)
VECTORS = DRAW.normal(size=(6, 16)).astype(np.float32)
IDS = ["a", "b", "c", "d", "e", "f"]


def low() -> Any:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    return VECTORS.astype(ml_dtypes.bfloat16)


def test_bfloat16_saved_by_numpy_is_read_as_bfloat16(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", low())
    assert np.load(tmp_path / "v.npy").dtype == np.dtype("V2")
    result = read_vectors(str(tmp_path / "v.npy"))
    assert np.array_equal(result.values.astype(np.float32), low().astype(np.float32))
    assert (result.stored, result.ids) == ("bfloat16", None)


def test_npz_holds_vectors_and_ids(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", embeddings=VECTORS, ids=np.array(IDS))
    result = read_vectors(str(tmp_path / "v.npz"))
    assert np.array_equal(result.values, VECTORS)
    assert result.ids is not None
    assert result.ids.to_list() == IDS
    np.savez(tmp_path / "two.npz", left=VECTORS, right=VECTORS)
    with pytest.raises(InputError, match="2 arrays that could be meant; there are: 'left', 'rig"):
        read_vectors(str(tmp_path / "two.npz"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_safetensors_are_read_as_the_library_reads_them(tmp_path: Path, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    tensor = torch.tensor(VECTORS).to(getattr(torch, dtype))
    library.save_file({"v": tensor}, tmp_path / "v.safetensors", metadata={"made": "here"})
    result = read_vectors(str(tmp_path / "v.safetensors"))
    assert np.array_equal(result.values.astype(np.float32), tensor.float().numpy())
    assert result.stored == (None if dtype == "float32" else dtype)
    cut = (tmp_path / "v.safetensors").read_bytes()[:-8]
    (tmp_path / "v.safetensors").write_bytes(cut)
    with pytest.raises(InputError, match="not a whole safetensors file"):
        read_vectors(str(tmp_path / "v.safetensors"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_note_reports_tensors_and_logits_stored_in_less_than_float32(
    tmp_path: Path, dtype: str
) -> None:
    """A row that is called float32 is of the numbers stored, and these were rounded before."""
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(VECTORS).to(getattr(torch, dtype))
    torch.save(tensor, tmp_path / "v.pt")
    result = read_vectors(str(tmp_path / "v.pt"))
    assert np.array_equal(result.values.astype(np.float32), tensor.float().numpy())
    assert result.stored == dtype
    pairs = {"q": {"a": 2.0, "b": 1.0}}
    torch.save(torch.tensor([0.5, 0.25]).to(tensor.dtype), tmp_path / "l.pt")
    logits = read_logits(str(tmp_path / "l.pt"), rp.read_run(pairs))
    audit = rp.audit.audit_logits(logits, {"q": {"a": 1}}, ["RR"], formats=["bfloat16"])
    assert f"l.pt: stored as {dtype}; float32 scores the numbers stored" in audit.notes


def test_other_arrays_of_a_file_do_not_decide_how_its_vectors_are_stored(tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", vectors=VECTORS, weight=np.ones(3, np.float16))
    assert read_vectors(str(tmp_path / "v.npz")).notes == []


def test_tensors_are_loaded_and_nothing_else_is_run(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(VECTORS).to(torch.bfloat16)
    torch.save({"embeddings": tensor, "ids": IDS}, tmp_path / "v.pt")
    result = read_vectors(str(tmp_path / "v.pt"))
    assert np.array_equal(result.values.astype(np.float32), tensor.float().numpy())
    assert result.ids is not None
    assert result.ids.to_list() == IDS
    torch.save(Path("x"), tmp_path / "bad.pt")  # an object of any class
    with pytest.raises(InputError, match="not a file of tensors alone"):
        read_vectors(str(tmp_path / "bad.pt"))


def test_json_lines_hold_an_id_and_a_vector(tmp_path: Path) -> None:
    rows = [
        json.dumps({"id": i, "embedding": v.tolist()}) for i, v in zip(IDS, VECTORS, strict=True)
    ]
    (tmp_path / "v.jsonl").write_text("\n".join(rows))
    result = read_vectors(str(tmp_path / "v.jsonl"))
    assert np.array_equal(result.values, VECTORS)


@pytest.mark.parametrize("kind", ["Flat", "SQ8", "IVF2,Flat", "IDMap,Flat", "IDMap2,SQbf16"])
def test_faiss_indexes_are_audited_as_stored(tmp_path: Path, kind: str) -> None:
    faiss = pytest.importorskip("faiss")
    index = faiss.index_factory(16, kind, faiss.METRIC_INNER_PRODUCT)
    index.train(np.repeat(VECTORS, 20, 0))
    keys = np.array([40, 10, 30, 20, 60, 50])
    named = not kind.startswith(("Flat", "SQ8"))
    index.add_with_ids(VECTORS, keys) if named else index.add(VECTORS)
    faiss.write_index(index, str(tmp_path / "v.faiss"))
    result = read_vectors(str(tmp_path / "v.faiss"))
    order = np.argsort(keys) if kind.startswith("IVF") else np.arange(6)
    assert result.values == pytest.approx(VECTORS[order], abs=0.05)
    exact = "Flat" in kind
    assert np.array_equal(result.values, VECTORS[order]) == exact
    assert (result.stored is None) == exact
    assert (None if result.ids is None else result.ids.to_list()) == (
        [str(key) for key in keys[order]] if named else None
    )


@pytest.mark.parametrize("kind", ["BFlat", "BHNSW4", "BIVF2", "IDMap,BFlat"])
def test_binary_indexes_of_faiss_hold_signs(tmp_path: Path, kind: str) -> None:
    faiss = pytest.importorskip("faiss")
    bits = np.packbits(VECTORS > 0, axis=1)
    keys = np.array([40, 10, 30, 20, 60, 50])
    if kind == "IDMap,BFlat":
        flat = faiss.IndexBinaryFlat(16)
        index = faiss.IndexBinaryIDMap(flat)
        index.add_with_ids(bits, keys)
    else:
        index = faiss.index_binary_factory(16, kind)
        index.train(np.repeat(bits, 20, 0))
        index.add_with_ids(bits, keys) if kind == "BIVF2" else index.add(bits)
    faiss.write_index_binary(index, str(tmp_path / "v.faiss"))
    result = read_vectors(str(tmp_path / "v.faiss"))
    order = np.argsort(keys) if kind == "BIVF2" else np.arange(6)
    assert np.array_equal(result.values, np.where(VECTORS[order] > 0, 1.0, -1.0))
    assert str(result.stored).startswith("IndexBinary")
    assert (None if result.ids is None else result.ids.to_list()) == (
        None if kind in ("BFlat", "BHNSW4") else [str(key) for key in keys[order]]
    )


@pytest.mark.parametrize("dtype", ["f32", "bf16", "b1"])
def test_usearch_indexes_are_audited_as_stored(tmp_path: Path, dtype: str) -> None:
    usearch = pytest.importorskip("usearch.index")
    metric = "hamming" if dtype == "b1" else "ip"
    index = usearch.Index(ndim=16, metric=metric, dtype=dtype)
    given = np.packbits(VECTORS > 0, axis=1) if dtype == "b1" else VECTORS
    index.add(np.array([40, 10, 30, 20, 60, 50]), given)
    index.save(str(tmp_path / "v.usearch"))
    result = read_vectors(str(tmp_path / "v.usearch"))
    assert result.ids is not None
    assert result.ids.to_list() == ["10", "20", "30", "40", "50", "60"]
    held = VECTORS[[1, 3, 2, 0, 5, 4]]
    want = {"f32": held, "b1": np.where(held > 0, 1.0, -1.0)}.get(dtype, held)
    assert result.values == pytest.approx(want, abs=0.02)
    assert (result.stored is None) == (dtype == "f32")


# -------------------------------------------------------------------------------------- logits

PAIRS = "".join(f"q{q} Q0 d{d} {d + 1} {9 - d} x\n" for q in range(2) for d in range(3))


def sent(folder: Path) -> Any:
    (folder / "sent.trec").write_text(PAIRS)
    return read_run(folder / "sent.trec")


@pytest.mark.parametrize("shape", [(6,), (6, 1), (2, 3)])
def test_an_array_of_logits_has_the_rows_of_the_run(tmp_path: Path, shape: Any) -> None:
    logits = np.arange(6, dtype=np.float32)
    np.save(tmp_path / "z.npy", logits.reshape(shape))
    result = read_logits(str(tmp_path / "z.npy"), sent(tmp_path))
    assert result.query.to_list() == ["q0"] * 3 + ["q1"] * 3
    assert result.doc.to_list() == ["d0", "d1", "d2"] * 2
    assert (result.yes.tolist(), result.no) == (logits.tolist(), None)
    with pytest.raises(InputError, match="nothing says of which query and document"):
        read_logits(str(tmp_path / "z.npy"))


def test_two_columns_are_no_and_yes(tmp_path: Path) -> None:
    both = DRAW.normal(size=(6, 2)).astype(np.float32)
    np.savez(tmp_path / "z.npz", logits=both)
    result = read_logits(str(tmp_path / "z.npz"), sent(tmp_path))
    assert result.no is not None
    assert np.array_equal(np.stack([result.no, result.yes], 1), both)
    np.save(tmp_path / "z.npy", both[:5])
    with pytest.raises(InputError, match=r"shape \(5, 2\) for 6 pairs"):
        read_logits(str(tmp_path / "z.npy"), sent(tmp_path))


# -------------------------------------------------------------------------------------- scores

ITEMS = [(2, 0.9), (0, 0.5), (1, 0.25)]
ANSWERS: dict[str, Any] = {
    "cohere": {"id": "x", "results": [{"index": i, "relevance_score": s} for i, s in ITEMS]},
    "voyage": {"object": "list", "data": [{"relevance_score": s, "index": i} for i, s in ITEMS]},
    "jina": {
        "model": "m",
        "results": [
            {"index": i, "relevance_score": s, "document": {"text": "t"}} for i, s in ITEMS
        ],
    },
    "tei": [{"index": i, "score": s} for i, s in ITEMS],
    "vllm score": {"data": [{"index": i, "object": "score", "score": s} for i, s in ITEMS]},
    "infinity": {
        "object": "rerank",
        "results": [{"relevance_score": s, "index": i, "document": None} for i, s in ITEMS],
    },
}


@pytest.mark.parametrize("server", ANSWERS)
def test_answers_of_servers_are_read_by_their_index(tmp_path: Path, server: str) -> None:
    answer, file = ANSWERS[server], tmp_path / "answers.json"
    file.write_text(json.dumps({"q0": answer, "q1": answer}))
    result = read_served(str(file), sent(tmp_path))
    assert result.scored
    assert result.query.to_list() == ["q0"] * 3 + ["q1"] * 3
    assert result.doc.to_list() == ["d2", "d0", "d1"] * 2
    assert result.yes.tolist() == [0.9, 0.5, 0.25] * 2
    line = json.dumps({"query": "q0", "documents": ["x", "y", "z"], "response": answer})
    file.write_text(line + "\n")
    assert read_served(str(file)).doc.to_list() == ["z", "x", "y"]


def test_answers_without_their_documents_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers.json"
    file.write_text(json.dumps({"q9": ANSWERS["tei"]}))
    with pytest.raises(InputError, match="which documents query 'q9' was asked about"):
        read_served(str(file), sent(tmp_path))
    file.write_text(json.dumps({"query": "q0", "documents": ["x"], "response": ANSWERS["tei"]}))
    with pytest.raises(InputError, match="index 2 of 1 document of query 'q0'"):
        read_served(str(file))


@pytest.mark.parametrize("server", ANSWERS)
def test_a_single_answer_without_its_query_is_refused(tmp_path: Path, server: str) -> None:
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(ANSWERS[server]))
    with pytest.raises(InputError, match=r"nothing says to which query; write {\"query id\": ans"):
        read_served(str(file), sent(tmp_path))


def test_scores_of_unjudged_documents_alone_are_refused(tmp_path: Path) -> None:
    """Texts where ids belong, say."""
    lines = {"query": "q0", "documents": ["a text", "b text", "c"], "response": ANSWERS["tei"]}
    (tmp_path / "lines.jsonl").write_text(json.dumps(lines) + "\n")
    result = read_served(str(tmp_path / "lines.jsonl"))
    with pytest.raises(InputError, match=r"both in .*'c', 'a text', 'b text'.*'d1'"):
        audit_logits(result, {"q0": {"d1": 1}}, "nDCG@10")


def test_a_run_is_read_as_a_file_of_scores(tmp_path: Path) -> None:
    sent(tmp_path)
    result = read_served(str(tmp_path / "sent.trec"))
    assert result.scored
    assert result.yes.tolist() == [9, 8, 7] * 2


def served() -> tuple[Logits, dict[str, dict[str, int]]]:
    queries = [f"q{q}" for q in range(6) for _ in range(40)]
    docs = [f"d{d}" for _ in range(6) for d in range(40)]
    scores = 1 / (1 + np.exp(-np.random.default_rng(3).normal(4, 1.5, 240)))
    judged = {f"q{q}": {f"d{d}": 1 for d in range(4)} for q in range(6)}
    return Logits(pl.Series(queries), pl.Series(docs), scores, scored=True), judged


def test_scores_of_few_decimals_equal_those_of_a_rounded_run() -> None:
    scores, judged = served()
    result = rp.audit.audit_logits(scores, judged, "nDCG@10", decimals=[2, 4])
    assert [r.format for r in result.readings] == [
        *("float32", "float16", "bfloat16", "2 decimals", "4 decimals")
    ]
    for count in (2, 4):
        run = pl.DataFrame(
            {"query": scores.query, "doc": scores.doc, "score": np.round(scores.yes, count)}
        )
        want = rp.evaluate(judged, run, "nDCG@10")["nDCG@10"]
        own = result.reading(f"{count} decimals").evaluation["nDCG@10"]
        assert (own.min, own.expected, own.max) == (want.min, want.expected, want.max)


@pytest.mark.parametrize("margin", [0.5, 0.01, 0.0])
def test_the_fewest_decimals_keep_the_range_and_one_less_does_not(margin: float) -> None:
    scores, judged = served()
    audit = rp.audit.audit_logits(scores, judged, "nDCG@10", decimals=[4], margin=margin)
    least = audit.made[0]["decimals"]["least"]
    verb = "decimal is" if least == 1 else "decimals are"
    assert any(note.startswith(f"{least} {verb} the fewest") for note in audit.notes)

    def spread(count: int) -> float:
        result = rp.audit.audit_logits(scores, judged, "nDCG@10", decimals=[count])
        return result.readings[-1].evaluation["nDCG@10"].range

    assert spread(least) <= margin
    assert least == 0 or spread(least - 1) > margin


def test_logits_are_rounded_after_their_activation() -> None:
    scores, judged = served()
    logits = np.log(scores.yes / (1 - scores.yes))
    given = Logits(scores.query, scores.doc, logits)
    rounded = rp.audit.audit_logits(given, judged, "nDCG@10", decimals=[2]).reading("2 decimals")
    want = rp.audit.audit_logits(scores, judged, "nDCG@10", decimals=[2]).reading("2 decimals")
    assert rounded.evaluation["nDCG@10"].range == want.evaluation["nDCG@10"].range > 0
