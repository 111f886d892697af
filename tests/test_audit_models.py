"""`rankproof audit --model`: tiny models made here, saved as sentence-transformers saves them."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DOCUMENT = Path(__file__).parents[1] / "docs" / "audit.md"
MAKE = """
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

torch.manual_seed(0)
words = "[PAD] [UNK] [CLS] [SEP] [MASK] {words}".split()
tokenizer = Tokenizer(models.WordLevel({{w: i for i, w in enumerate(words)}}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)]).save("my-model")
fast = PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
    sep_token="[SEP]", mask_token="[MASK]",
)
for labels, folder in ((1, "my-reranker"), (2, "two-labels")):
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, num_labels=labels, max_position_embeddings=64,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    fast.save_pretrained(folder)
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


def audit(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "rankproof", "audit", *words],
        cwd=folder,
        capture_output=True,
    )


def as_json(folder: Path, *words: str) -> Any:
    done = audit(folder, *words, "-m", "nDCG@10", "--format", "json")
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def commands() -> list[str]:
    """The two commands of the document that need a model."""
    return re.findall(r"^\$ rankproof audit (.*--model.*)$", DOCUMENT.read_text(), re.M)


def test_an_embedding_model_is_audited_on_the_judged_queries(folder: Path) -> None:
    data = as_json(folder, *commands()[0].split())
    (made,) = data["made"]
    assert (made["model"], made["queries"], made["documents"]) == ("my-model", 6, 40)
    assert (made["dimensions"], made["metric"]) == ([16], "cosine")
    figures = {(r["format"], r["scoring"]): r["measures"]["nDCG@10"] for r in data["readings"]}
    assert len(figures) == 21

    from sentence_transformers import SentenceTransformer

    import rankproof as rp
    from rankproof.records.beir import read_corpus
    from rankproof.scoring import search

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
    expected = rp.evaluate(run, texts.qrels, "nDCG@10")["nDCG@10"]
    assert figures["bfloat16", "plain"]["expected"] == pytest.approx(expected.expected)
    assert figures["bfloat16", "plain"]["max"] == pytest.approx(expected.max)


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
    done = audit(folder, "--model", "hollow", "--dataset", "my-dataset")
    assert done.returncode == 2
    assert done.stderr.decode() == (
        "rankproof: hollow: this folder holds no weights; name a folder that save_pretrained wrote "
        "(model.safetensors)\n"
    )


def test_a_model_that_does_not_load_is_refused_in_one_line(folder: Path) -> None:
    (folder / "broken").mkdir(exist_ok=True)
    (folder / "broken" / "config.json").write_text("{}")
    (folder / "broken" / "model.safetensors").write_bytes(b"nothing")
    done = audit(folder, "--model", "broken", "--dataset", "my-dataset")
    message = done.stderr.decode()
    assert done.returncode == 2, message
    assert "rankproof: broken: sentence-transformers cannot load it (" in message
    assert "Traceback" not in message


def test_candidates_from_elsewhere_are_refused(folder: Path) -> None:
    (folder / "other.trec").write_text("q0 Q0 zebra 1 1.0 x\n")
    done = audit(
        *(folder, "--model", "my-reranker", "--dataset", "my-dataset"),
        *("--candidates", "other.trec"),
    )
    assert done.returncode == 2
    assert "my-dataset: doc 'zebra' of the candidates has no text" in done.stderr.decode()
