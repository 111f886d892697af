"""`rankproof audit model`: tiny models made here, saved as sentence-transformers saves them."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rankproof_cli import rankproof
from tiny_models import write_language_model

import rankproof as rp
from rankproof.foundation.progress import advance, progress, show_progress

DOCUMENT = Path(__file__).parents[1] / "docs" / "audit.md"
MAKE = """
import torch
from sentence_transformers import MultiVectorEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig, BertForMaskedLM, BertForSequenceClassification, BertModel, PreTrainedTokenizerFast
)

torch.manual_seed(0)
words = "[PAD] [UNK] [CLS] [SEP] [MASK] {words}".split()
tokenizer = Tokenizer(models.WordLevel({{w: i for i, w in enumerate(words)}}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)]).save("my-model")
fast = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
    sep_token="[SEP]", mask_token="[MASK]",
)
def save(kind, labels, folder, dtype=torch.float32, spread=0.5, **more):
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=labels, max_position_embeddings=64,
        initializer_range=spread, **more,
    )
    torch.manual_seed(0)
    kind(config).to(dtype).save_pretrained(folder)
    fast.save_pretrained(folder)
save(BertForSequenceClassification, 1, "my-reranker", spread=0.02)
save(BertForSequenceClassification, 2, "two-labels", spread=0.02)
save(BertForSequenceClassification, 1, "low-reranker", torch.bfloat16)
identity = {{"activation_fn": "torch.nn.modules.linear.Identity"}}
save(BertForSequenceClassification, 1, "own-score", spread=0.02, sentence_transformers=identity)
save(BertForMaskedLM, 1, "neither")
save(BertModel, 1, "encoder")
SentenceTransformer("encoder").save("my-bi-encoder")
MultiVectorEncoder("encoder").save("my-late-model")
save(BertModel, 1, "low-encoder", torch.bfloat16)
SentenceTransformer("low-encoder").save("low-bi-encoder")
"""
WORDS = ["cells", "heart", "virus", "protein", "immune", "lung", "gene", "drug", "trial", "blood"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sentence_transformers")
    made = tmp_path_factory.mktemp("models")
    code = MAKE.format(words=" ".join(WORDS))
    subprocess.run([sys.executable, "-c", code], cwd=made, check=True, capture_output=True)
    data = made / "my-dataset"
    (data / "qrels").mkdir(parents=True)
    draw = random.Random(1)
    documents = [
        {"_id": f"d{i}", "title": draw.choice(WORDS), "text": " ".join(draw.choices(WORDS, k=6))}
        for i in range(40)
    ]
    queries = [{"_id": f"q{i}", "text": " ".join(draw.choices(WORDS, k=3))} for i in range(8)]
    (data / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    (data / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    judged = "".join(f"q{i}\td{3 * i + j}\t1\n" for i in range(6) for j in range(2))
    (data / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    (made / "bm25.trec").write_text(
        "".join(f"q{i} Q0 d{j} {j + 1} {40 - j} bm25\n" for i in range(8) for j in range(20))
    )
    return made


@pytest.fixture(scope="module", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where vectors and logits are kept."""
    place = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RANKPROOF_CACHE", str(place))
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield place


@contextmanager
def counting(amounts: list[float]) -> Iterator[None]:
    """Note every amount of work that is reported, of whatever task is open."""

    @contextmanager
    def display(_label: str, _total: float) -> Iterator[Any]:
        yield amounts.append

    show_progress(display)
    try:
        with progress("auditing", 1):
            yield
    finally:
        show_progress(None)


def subject(folder: Path, model: str, *, reranks: bool = False) -> Any:
    from rankproof.audit.model_audit import AuditedModel
    from rankproof.data import read_qrels, read_run
    from rankproof.data.beir import read_corpus

    texts = read_corpus(str(folder / "my-dataset"))
    run = read_run(folder / "bm25.trec") if reranks else None
    return AuditedModel(model, str(folder / model), texts, read_qrels(texts.qrels), run)


def audit(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return rankproof("audit", "model", *words, cwd=folder)


def as_json(folder: Path, *words: str) -> Any:
    done = audit(folder, *words, "-m", "nDCG@10", "--format", "json")
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def commands() -> list[str]:
    """The two commands of the document that need a model."""
    return re.findall(r"^\$ rankproof audit model (.*)$", DOCUMENT.read_text(), re.M)


@pytest.mark.slow
def test_an_embedding_model_is_audited_on_the_judged_queries(folder: Path) -> None:
    data = as_json(folder, *commands()[0].split())
    (made,) = data["made"]
    assert (made["model"], made["queries"], made["documents"]) == ("my-model", 6, 40)
    assert (made["dimensions"], made["metric"]) == ([16], "cosine")
    figures = {(r["format"], r["scoring"]): r["measures"]["nDCG@10"] for r in data["readings"]}
    assert len(figures) == 21

    from sentence_transformers import SentenceTransformer

    import rankproof as rp
    from rankproof.data.beir import read_corpus
    from rankproof.precision import search

    texts = read_corpus(str(folder / "my-dataset"))
    assert texts.documents[0].split()[0] in WORDS
    assert len(texts.documents[0].split()) == 7  # the title and the text
    model = SentenceTransformer(str(folder / "my-model"), device="cpu")
    run = search(
        *(model.encode(texts.queries), model.encode(texts.documents), 40),
        format="bfloat16",
        high_precision=False,
        metric="cosine",
        query_ids=texts.query_ids,
        document_ids=texts.document_ids,
    )
    expected = rp.evaluate(texts.qrels, run, "nDCG@10")["nDCG@10"]
    assert figures["bfloat16", "plain"]["expected"] == pytest.approx(expected.expected)
    assert figures["bfloat16", "plain"]["max"] == pytest.approx(expected.max)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "kind"), [("my-reranker", "sigmoid"), ("two-labels", "softmax")])
def test_a_cross_encoder_reranks_candidates(folder: Path, model: str, kind: str) -> None:
    data = as_json(folder, *commands()[1].replace("my-reranker", model).split())
    (made,) = data["made"]
    assert (made["activation"], made["queries"], made["pairs"]) == (kind, 6, 120)
    plain, high = (r for r in data["readings"] if r["format"] == "bfloat16")
    assert plain["ties"][-1]["distinct"] < high["ties"][-1]["distinct"]


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    (folder / "hollow").mkdir(exist_ok=True)
    (folder / "hollow" / "config.json").write_text("{}")
    done = audit(folder, "hollow", "--dataset", "my-dataset")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "rankproof: hollow: this folder holds no weights; name a folder that save_pretrained wrote "
        "(model.safetensors)\n"
    )


@pytest.mark.slow
def test_a_model_that_does_not_load_is_refused_in_one_line(folder: Path) -> None:
    (folder / "broken").mkdir(exist_ok=True)
    (folder / "broken" / "config.json").write_text("{}")
    (folder / "broken" / "model.safetensors").write_bytes(b"nothing")
    done = audit(folder, "broken", "--dataset", "my-dataset")
    message = done.stderr.decode()
    assert done.returncode == 2, message
    assert "rankproof: broken: sentence-transformers cannot load it (" in message
    assert "Traceback" not in message


def test_candidates_of_another_corpus_are_refused(folder: Path) -> None:
    (folder / "other.trec").write_text("q0 Q0 zebra 1 1.0 x\n")
    done = audit(
        *(folder, "my-reranker", "--dataset", "my-dataset"),
        *("--candidates", "other.trec"),
    )
    assert done.returncode == 2
    assert "my-dataset: doc 'zebra' of the candidates has no text" in done.stderr.decode()


# ------------------------------------------------------------------------- in the format stated


def test_a_checkpoint_saved_in_bfloat16_is_run_in_float32(folder: Path) -> None:
    """The same weights, saved wide, give the same float32 run; bfloat16 arithmetic does not."""
    from sentence_transformers import CrossEncoder

    from rankproof.audit.model_audit import audit_model

    result = audit_model(subject(folder, "low-reranker", reranks=True), formats=["float32"])
    assert {reading.run for reading in result.readings} == {"float32"}
    model = CrossEncoder(str(folder / "low-reranker"), device="cpu")
    model.model.float().save_pretrained(folder / "widened")
    model.tokenizer.save_pretrained(folder / "widened")
    wide = audit_model(subject(folder, "widened", reranks=True), formats=["float32"])
    for one, other in zip(result.readings, wide.readings, strict=True):
        assert one.evaluation.per_query.equals(other.evaluation.per_query)
        assert one.ties.at == other.ties.at


@pytest.mark.parametrize("model", ["low-reranker", "low-bi-encoder", "answering"])
@pytest.mark.parametrize("reranks", [True, False])
def test_low_runs_are_compared_with_the_real_float32_run(
    folder: Path, model: str, reranks: bool
) -> None:
    from rankproof.audit.model_audit import audit_model

    if model == "answering":
        write_language_model(folder / "answering", "bfloat16", WORDS)
    if not reranks and model != "low-bi-encoder":
        with pytest.raises(rp.InputError, match="a cross-encoder scores pairs, not texts"):
            audit_model(subject(folder, model, reranks=reranks))
        return
    result = audit_model(
        subject(folder, model, reranks=reranks), run_dtypes=["bfloat16"], options={"measures": "AP"}
    )
    (made,) = result.made
    assert made["formats"] == made["ran"]["dtypes"] == ["float32", "bfloat16"]
    assert set(made["ran"]) == {
        *("dtypes", "repeats", "device", "model", "corpus", "questions", "versions")
    }
    assert made["ran"]["versions"]["torch"]
    assert [reading.run for reading in result.readings] == [r.format for r in result.readings]
    exact, low = (
        [r for r in result.readings if r.run == run][-1] for run in ("float32", "bfloat16")
    )
    assert exact.agreement.mean == 1
    assert 0.5 < low.agreement.mean < 1  # of the same numbers in bfloat16 it would be 1 as well


# ------------------------------------------------------------------------- what kind a model is


def test_a_bi_encoder_reranks_candidates_by_its_similarity(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    from rankproof.audit.model_audit import audit_model
    from rankproof.data import read_run
    from rankproof.precision import cosine

    task = subject(folder, "my-bi-encoder", reranks=True)
    result = audit_model(task, formats=["float32", "bit"], options={"measures": "nDCG@10"})
    (made,) = result.made
    assert (made["kind"], made["queries"], made["pairs"]) == ("embeddings", 6, 120)
    model = SentenceTransformer(str(folder / "my-bi-encoder"), device="cpu")
    texts = task.texts
    scores = cosine(model.encode(texts.queries), model.encode(texts.documents))
    listed = read_run(folder / "bm25.trec").to_frame()
    run: dict[str, dict[str, float]] = {}
    for query, doc in listed.select("query", "doc").rows():
        at = texts.query_ids.index(query), texts.document_ids.index(doc)
        run.setdefault(query, {})[doc] = float(scores[at])
    expected = rp.evaluate(texts.qrels, run, "nDCG@10")["nDCG@10"]
    exact = result.reading("float32").evaluation["nDCG@10"]
    assert exact.expected == pytest.approx(expected.expected, abs=1e-6)
    assert exact.max == pytest.approx(expected.max, abs=1e-6)
    original = result.reading("bit", "original").evaluation["nDCG@10"]
    assert original.expected == exact.expected
    assert {reading.cut for reading in result.readings} == {0}


def test_a_model_of_neither_kind_is_refused(folder: Path) -> None:
    for more in ((), ("--candidates", "bm25.trec")):
        done = audit(folder, "neither", "--dataset", "my-dataset", *more)
        assert done.returncode == 2
        assert done.stderr.decode() == (
            "rankproof: neither: this is neither a bi-encoder nor a cross-encoder; name a "
            "SentenceTransformer, a CrossEncoder or a language model that answers yes or no\n"
        )


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("BertModel", "bi-encoder"),
        ("T5EncoderModel", "bi-encoder"),
        ("XLMRobertaForSequenceClassification", "cross-encoder"),
        ("LlamaForCausalLM", "cross-encoder"),
        ("HF_ColBERT", "late interaction"),
        ("GPT2LMHeadModel", None),
        ("GPT2DoubleHeadsModel", None),
        ("T5ForConditionalGeneration", None),
    ],
)
def test_the_architecture_decides_the_kind_of_a_model(
    tmp_path: Path, architecture: str, kind: str | None
) -> None:
    from rankproof.retrieval.sentence_models import model_kind

    (tmp_path / "config.json").write_text(json.dumps({"architectures": [architecture]}))
    assert model_kind(str(tmp_path)) == kind


def test_components_refuse_a_model_of_another_kind(folder: Path) -> None:
    from rankproof.retrieval.sentence_models import load_model

    with pytest.raises(rp.InputError, match="a bi-encoder has no head that scores pairs"):
        load_model("CrossEncoder", str(folder / "my-bi-encoder"), "float32")
    with pytest.raises(rp.InputError, match="a cross-encoder has no vectors"):
        load_model("SentenceTransformer", str(folder / "my-reranker"), "float32")


def test_both_logits_of_an_answer_reach_the_audit(folder: Path) -> None:
    from rankproof.audit.model_audit import audit_model

    write_language_model(folder / "answering", "bfloat16", WORDS)
    result = audit_model(subject(folder, "answering", reranks=True), run_dtypes=["bfloat16"])
    assert result.made[0]["activation"] == "softmax"
    plain, high = (r.ties.at[-1].distinct for r in result.readings if r.run == "bfloat16")
    assert plain < high


# ------------------------------------------------------------------- many models, many datasets


@pytest.mark.slow
def test_the_output_of_models_on_datasets_in_dtypes_is_stored(folder: Path, kept: Path) -> None:
    other = folder / "other-dataset"
    if not other.exists():
        shutil.copytree(folder / "my-dataset", other)
        lines = (other / "queries.jsonl").read_text().splitlines()
        (other / "queries.jsonl").write_text("\n".join(lines[::-1]) + "\n")
    words = (
        *("my-bi-encoder", "my-reranker", "--dataset", "my-dataset", "--dataset", "other-dataset"),
        *("--run-dtypes", "bfloat16", "--candidates", "bm25.trec"),
    )
    data = as_json(folder, *words)
    assert [(how["model"], how["dataset"]) for how in data["made"]] == [
        *(("my-bi-encoder", "my-dataset"), ("my-bi-encoder", "other-dataset")),
        *(("my-reranker", "my-dataset"), ("my-reranker", "other-dataset")),
    ]
    assert {(lead["a"], lead["b"]) for lead in data["leads"]} == {("my-bi-encoder", "my-reranker")}
    assert {lead["dataset"] for lead in data["leads"]} == {"my-dataset", "other-dataset"}
    files = {path: path.stat().st_mtime_ns for path in kept.rglob("*.npy")}
    assert files
    again = as_json(folder, *words)
    assert {path: path.stat().st_mtime_ns for path in kept.rglob("*.npy")} == files
    for reading in (*data["readings"], *again["readings"]):
        del reading["seconds"]
    for said in (again, data):
        del said["manifest"]  # another time
    assert again == data


class Here:
    """A pool of processes whose work is done here, at once."""

    def __init__(self, _processes: int, _context: Any, begin: Any, given: tuple[Any, ...]):
        begin(*given)

    def submit(self, work: Any, *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*given))
        return done

    def shutdown(self, *, cancel_futures: bool) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "reranks"),
    [("my-bi-encoder", False), ("my-reranker", True), ("my-late-model", True)],
)
def test_shards_share_the_work_and_change_no_value(
    folder: Path, model: str, reranks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankproof.audit import model_audit

    def figures(**given: Any) -> list[Any]:
        asked = subject(folder, model, reranks=reranks)
        result = model_audit.audit_model(asked, options={"measures": "nDCG@10"}, **given)
        return [r.evaluation["nDCG@10"] for r in result.readings]

    whole = figures()
    monkeypatch.setenv("RANKPROOF_CACHE", str(tmp_path / "shards"))
    assert figures(shards=2) == whole
    # In parts of 16, a process makes those that it is given, and no more.
    monkeypatch.setenv("RANKPROOF_CACHE", str(tmp_path / "parts"))
    monkeypatch.setattr(model_audit, "PART", 16)
    monkeypatch.setattr("rankproof.retrieval.workshop.PART", 16)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    own = subject(folder, model, reranks=reranks)
    made = (own.reranker if reranks else own.embedder)("float32")
    passages, pairs = own.passages(), own.candidate_pairs() if reranks else None
    model_audit.start_shard("", passages, own.judged_queries(), pairs)
    count = len(passages) if pairs is None else pairs.height
    parts = range(16, count, 32)
    assert [model_audit.run_part(made, at) for at in parts] == [min(16, count - at) for at in parts]
    model_audit._shards.pop().end()
    assert len(list((tmp_path / "parts").rglob("*.npy"))) == len(parts)
    told: list[float] = []
    monkeypatch.setattr(model_audit, "ProcessPoolExecutor", Here)
    with counting(told):
        model_audit.run_in_shards(own, passages, own.judged_queries(), ["float32"], 2)
    model_audit._shards.pop().end()
    assert sum(told) == count
    assert figures() == whole


@pytest.mark.parametrize(
    ("model", "reranks", "reads"),
    [
        ("my-bi-encoder", False, 46),
        ("my-bi-encoder", True, 26),
        ("my-reranker", True, 120),
        ("my-late-model", True, 120),
    ],
)
def test_progress_knows_the_remaining_work_beforehand(
    folder: Path, model: str, reranks: bool, reads: int
) -> None:
    from rankproof.audit.model_audit import audit_model

    own = subject(folder, model, reranks=reranks)
    assert own.count_inputs() == reads
    told: list[float] = []
    with counting(told):
        audit = audit_model(own, run_dtypes=["bfloat16"], options={"measures": "nDCG@10"})
    assert sum(told) == 2 * reads + len(audit.readings)


def test_the_prompt_precedes_every_question(folder: Path) -> None:
    from dataclasses import replace

    from rankproof.audit.model_audit import audit_model

    own = subject(folder, "my-bi-encoder")
    asked = replace(own.texts, queries=[f"virus {text}" for text in own.texts.queries])
    plain, prompted, written = (
        audit_model(one, formats=["float32"], options={"measures": "nDCG@10"}).readings[0]
        for one in (
            own,
            replace(own, prompts={"query_prompt": "virus "}),
            replace(own, texts=asked),
        )
    )
    ours, theirs = prompted.evaluation["nDCG@10"], written.evaluation["nDCG@10"]
    assert ours.expected == theirs.expected != plain.evaluation["nDCG@10"].expected


@pytest.mark.slow
@pytest.mark.parametrize("model", ["maxsim:my-bi-encoder", "my-late-model"])
def test_late_interaction_runs_in_every_format(folder: Path, model: str) -> None:
    words = ("my-bi-encoder", model, "--dataset", "my-dataset")
    data = as_json(folder, *words, "--candidates", "bm25.trec", "--run-dtypes", "bfloat16")
    late = [r for r in data["readings"] if r["model"] == model]
    assert [(r["format"], r["scoring"], r["run"]) for r in late] == [
        (form, scoring, form)
        for form in ("float32", "bfloat16")
        for scoring in ("plain", "high precision")
    ]
    same, exact, plain, high = late
    assert same["measures"] == exact["measures"]
    assert plain["ties"][-1]["distinct"] < high["ties"][-1]["distinct"]
    assert 0.5 < high["spearman"]["mean"] < exact["spearman"]["mean"] == 1
    assert {lead["b"] for lead in data["leads"]} == {model}
    done = audit(folder, model, "--dataset", "my-dataset")
    assert b"late interaction reranks, it does not search" in done.stderr


def test_late_interaction_is_scored_as_its_library_does(folder: Path) -> None:
    import numpy as np
    import torch
    from sentence_transformers import MultiVectorEncoder

    from rankproof.audit.model_audit import _ModelRun
    from rankproof.retrieval.workshop import Workshop

    own = subject(folder, "my-late-model", reranks=True)
    with Workshop(own.passages()) as shop:
        result = {
            dtype: _ModelRun(shop, own, own.judged_queries(), dtype, advance)._rerank()
            for dtype in ("float32", "bfloat16")
        }
    texts = dict(zip(own.texts.document_ids, own.texts.documents, strict=True))
    asked = dict(zip(own.texts.query_ids, own.texts.queries, strict=True))
    for dtype, given in result.items():
        model = MultiVectorEncoder(
            str(folder / "my-late-model"),
            device="cpu",
            model_kwargs={"dtype": getattr(torch, dtype)},
            similarity_fn_name="meanmaxsim",
        ).to(getattr(torch, dtype))
        scores = model.similarity_pairwise(
            model.encode_query([asked[query] for query in given.query]),
            model.encode_document([texts[doc] for doc in given.doc]),
        )
        # Other batches and padding change what a model computes, in bfloat16 by parts of 2⁻⁸.
        near = 1e-5 if dtype == "float32" else 2**-6
        assert np.allclose(given.yes, scores.float().numpy(), rtol=0, atol=near)
        assert given.low is not None
        step = 0.0 if dtype == "float32" else 2**-7
        assert (np.abs(given.low - given.yes) <= step * np.abs(given.yes) + 1e-7).all()


def test_a_model_whose_score_is_its_logit_has_no_activation(
    folder: Path,
) -> None:
    from rankproof.audit.model_audit import audit_model

    own = subject(folder, "own-score", reranks=True)
    result = audit_model(own, run_dtypes=["bfloat16"])
    assert result.made[0]["activation"] == "identity"
    plain, high = (r for r in result.readings if r.run == "bfloat16")
    assert plain.ties.at == high.ties.at
    strict = audit_model(own, run_dtypes=["bfloat16"], paper_strict=True)
    assert strict.made[0]["activation"] == "sigmoid"
    squeezed = next(r for r in strict.readings if r.run == "bfloat16")
    assert squeezed.ties.at[-1].distinct < plain.ties.at[-1].distinct


def test_a_model_that_fails_is_named_in_one_line(folder: Path) -> None:
    """What a library raises while a model runs, such as a GPU whose memory is full."""
    from rankproof.retrieval.sentence_models import model_errors

    said = r"^my-model: .*\(OSError: 'the GPU fell off'\); try"
    with pytest.raises(rp.InputError, match=said), model_errors("my-model"):
        raise OSError("the GPU fell off\nat line 4")
    with pytest.raises(rp.InputError, match=r"^as it was$"), model_errors("my-model"):
        raise rp.InputError("as it was")


@pytest.mark.slow
def test_a_model_runs_on_the_named_device(folder: Path) -> None:
    words = ("my-bi-encoder", "--dataset", "my-dataset", "--formats", "float32")
    assert as_json(folder, *words, "--device", "cpu")["made"][0]["ran"]["device"] == "cpu"
    for device, said in (("cuda:99", "'cuda:99' cannot be used ("), ("meta", "'meta' cannot be")):
        done = audit(folder, *words, "--device", device)
        assert done.returncode == 2
        assert f"device {said}" in done.stderr.decode()
        assert "Traceback" not in done.stderr.decode()
    done = audit(folder, *words, "--device", "cuda:1", "--shards", "2")
    assert b"each of which has a GPU of its own" in done.stderr


@pytest.mark.parametrize("model", ["my-bi-encoder", "my-reranker", "my-late-model"])
def test_repeated_runs_in_other_batches_show_noise(folder: Path, model: str) -> None:
    from rankproof.audit.model_audit import audit_model

    result = audit_model(
        subject(folder, model, reranks=True),
        run_dtypes=["bfloat16"],
        repeats=2,
        options={"measures": ["nDCG@10"]},
    )
    assert result.made[0]["ran"]["repeats"] == 2
    assert all(r.noise is not None and 0 <= r.noise[rp.nDCG @ 10] < 1 for r in result.readings)
    # In float32 the last bit moves, and in lists without ties no rank does.
    exact = result.reading("float32").noise
    assert exact is not None
    assert exact[rp.nDCG @ 10] <= 0.02
    said = " ".join(result.summary().notes)
    assert "The most that any score moves: other batches and padding " in said
    plain = audit_model(
        subject(folder, model, reranks=True),
        run_dtypes=["bfloat16"],
        options={"measures": ["nDCG@10"]},
    )
    for one, other in zip(result.readings, plain.readings, strict=True):
        assert one.evaluation["nDCG@10"].expected == other.evaluation["nDCG@10"].expected
    assert plain.summary().answer == result.summary().answer


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--run-dtypes", "int8"], "'int8' is not one of"),
        (["--run-dtypes", "float16", "--formats", "bit"], "formats goes without run_dtypes"),
        (["--dataset", "other"], "other: there is no such folder"),
        (["--candidates", "a", "--candidates", "b"], "candidates are named 2 times for 1 dataset"),
    ],
)
def test_contradicting_options_are_refused(folder: Path, words: list[str], message: str) -> None:
    done = audit(folder, "my-bi-encoder", "--dataset", "my-dataset", *words)
    assert done.returncode == 2
    assert message in done.stderr.decode()
