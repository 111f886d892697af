"""Fine-tune a small cross-encoder and see what its precision does to its numbers.

    python examples/cross_encoder.py prepare DATASET MODEL FOLDER   # CPU; needs rankproof[all]
    python examples/cross_encoder.py train FOLDER LOGITS.npz        # GPU; torch and transformers
    python examples/cross_encoder.py report FOLDER LOGITS.npz       # CPU; prints the table

DATASET is a BEIR folder with a training and a test split, MODEL the folder of a BERT encoder.
`prepare` finds BM25 candidates: hard negatives for training, 100 candidates per test claim.
`train` fits one head with a single logit (sigmoid) and one with two (softmax), and scores the test
candidates with the whole model in float32, float16 and bfloat16. `report` evaluates each plainly
(activation in the low format) and with high precision. `train … --keep FOLDER` keeps the model
with one logit, in float16, as a cross-encoder that sentence-transformers loads.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

CANDIDATES, NEGATIVES, EPOCHS, BATCH, LENGTH, SEED = 100, 7, 6, 64, 256, 13
DTYPES = ("float32", "float16", "bfloat16")
HEADS = {1: "sigmoid", 2: "softmax"}


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    with path.open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            found[row["query-id"]][row["corpus-id"]] = int(row["score"])
    return dict(found)


def prepare(dataset: Path, model: Path, folder: Path) -> None:
    """Texts, BM25 candidates and half-precision weights, small enough to carry to a GPU."""
    import bm25s
    import torch
    from transformers import AutoModel, AutoTokenizer

    corpus = read_jsonl(dataset / "corpus.jsonl")
    queries = {row["_id"]: row["text"] for row in read_jsonl(dataset / "queries.jsonl")}
    texts = [f"{row['title']}. {row['text']}"[:2000] for row in corpus]
    index = bm25s.BM25()
    index.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        qrels = read_qrels(dataset / "qrels" / f"{split}.tsv")
        ids = sorted(qrels)
        tokens = bm25s.tokenize([queries[i] for i in ids], stopwords="en", show_progress=False)
        rows, _ = index.retrieve(tokens, k=CANDIDATES, show_progress=False)
        with (folder / f"{split}.jsonl").open("w") as file:
            for i, found in zip(ids, rows, strict=True):
                record = {
                    "query": i,
                    "text": queries[i],
                    "grades": qrels[i],
                    "candidates": [corpus[row]["_id"] for row in found],
                }
                file.write(json.dumps(record) + "\n")
    with (folder / "texts.jsonl").open("w") as file:
        for row, text in zip(corpus, texts, strict=True):
            file.write(json.dumps({"_id": row["_id"], "text": text}) + "\n")
    AutoModel.from_pretrained(model, dtype=torch.float16).save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(model).save_pretrained(folder / "model")


def train(folder: Path, out: Path, keep: Path | None = None) -> None:
    """Fit both heads, then score the test candidates in every number format."""
    import numpy as np
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    texts = {row["_id"]: row["text"] for row in read_jsonl(folder / "texts.jsonl")}
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")

    def batch(pairs: list[tuple[str, str]]) -> Any:
        return tokenizer(
            [a for a, _ in pairs],
            [b for _, b in pairs],
            truncation="only_second",
            max_length=LENGTH,
            padding=True,
            return_tensors="pt",
        ).to(device)

    training = read_jsonl(folder / "train.jsonl")
    test = read_jsonl(folder / "test.jsonl")
    pairs = [(row["text"], texts[doc]) for row in test for doc in row["candidates"]]
    logits: dict[str, Any] = {}
    for labels, head in HEADS.items():
        random.seed(SEED)
        torch.manual_seed(SEED)
        model = AutoModelForSequenceClassification.from_pretrained(
            folder / "model", num_labels=labels, dtype=torch.float32
        ).to(device)
        optimiser = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01)
        examples = sum(len(row["grades"]) for row in training) * (1 + NEGATIVES)
        steps = EPOCHS * examples // BATCH
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-5, steps + EPOCHS + 1)
        model.train()
        for epoch in range(EPOCHS):
            sample = []
            for row in training:
                negatives = [doc for doc in row["candidates"] if doc not in row["grades"]]
                for doc in row["grades"]:
                    sample.append((row["text"], texts[doc], 1))
                    drawn = random.sample(negatives, NEGATIVES)
                    sample += [(row["text"], texts[other], 0) for other in drawn]
            random.shuffle(sample)
            total = 0.0
            for low in range(0, len(sample), BATCH):
                some = sample[low : low + BATCH]
                target = torch.tensor([y for *_, y in some], device=device)
                with torch.autocast(device, torch.bfloat16):
                    z = model(**batch([(a, b) for a, b, _ in some])).logits
                z = z.float()
                loss = (
                    torch.nn.functional.binary_cross_entropy_with_logits(z[:, 0], target.float())
                    if labels == 1
                    else torch.nn.functional.cross_entropy(z, target)
                )
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                total += loss.item() * len(some)
            print(f"{head} epoch {epoch + 1}: loss {total / len(sample):.4f}", flush=True)
        model.eval()
        for dtype in DTYPES:
            model.to(getattr(torch, dtype))
            with torch.inference_mode():
                found = [
                    model(**batch(pairs[low : low + 256])).logits.float().cpu()
                    for low in range(0, len(pairs), 256)
                ]
            logits[f"{head}_{dtype}"] = torch.cat(found).numpy()
            model.float()
        if keep is not None and labels == 1:
            model.half().save_pretrained(keep)
            tokenizer.save_pretrained(keep)
    np.savez(out, **logits)


def report(folder: Path, file: Path) -> None:
    """The table: each head, format and way of scoring, with its ties."""
    import numpy as np

    import rankproof as rp
    from rankproof.precision import sigmoid, softmax
    from rankproof.precision.formats import numpy_dtype

    test = read_jsonl(folder / "test.jsonl")
    qrels = {row["query"]: row["grades"] for row in test}
    logits = np.load(file)
    print(
        "| head | model in | scoring | nDCG@10 oblivious | expected | range | bias | "
        "RR@10 oblivious | expected | range | distinct in top 10 | in top 100 |\n"
        "|:--|:--|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    )
    for head in HEADS.values():
        for dtype in DTYPES:
            z = logits[f"{head}_{dtype}"]
            low = z.astype(numpy_dtype(dtype))  # exact: these are that format's values
            if head == "sigmoid":
                plain, high = sigmoid(low[:, 0], low=True), z[:, 0]
            else:
                plain, high = softmax(low, low=True), z[:, 1] - z[:, 0]
            for name, scores in (("plain", plain), ("high precision", high)):
                run = {
                    row["query"]: dict(
                        zip(
                            row["candidates"],
                            scores[i * CANDIDATES : (i + 1) * CANDIDATES].tolist(),
                            strict=True,
                        )
                    )
                    for i, row in enumerate(test)
                }
                result = rp.evaluate(qrels, run, ["nDCG@10", "RR@10"])
                ties = rp.tie_statistics(run, [10, 100])
                gain, first = result["nDCG@10"], result["RR@10"]
                print(
                    f"| {head} | {dtype} | {name} | {gain.oblivious:.4f} | {gain.expected:.4f} | "
                    f"{gain.range:.4f} | {gain.bias:+.4f} | {first.oblivious:.4f} | "
                    f"{first.expected:.4f} | {first.range:.4f} | {ties.at[0].distinct:.2f} | "
                    f"{ties.at[1].distinct:.1f} |"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    one = verbs.add_parser("prepare")
    for name in ("dataset", "model", "folder"):
        one.add_argument(name, type=Path)
    for verb in ("train", "report"):
        two = verbs.add_parser(verb)
        two.add_argument("folder", type=Path)
        two.add_argument("logits", type=Path)
        if verb == "train":
            two.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    if arguments.verb == "prepare":
        prepare(arguments.dataset, arguments.model, arguments.folder)
    elif arguments.verb == "train":
        train(arguments.folder, arguments.logits, arguments.keep)
    else:
        report(arguments.folder, arguments.logits)


if __name__ == "__main__":
    main()
