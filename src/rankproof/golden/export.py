"""A golden set as files: TREC, BEIR, JSON lines with text, and a page to read.

    qrels.txt          query, 0, document, grade 1–5 of the rubric
    ranking.trec       the order, with posterior means as scores where they descend
    beir/              corpus.jsonl (pooled passages), queries.jsonl, qrels/test.tsv (5 → 2, 4 → 1,
                       3 and below → 0: tools for BEIR call everything above 0 relevant) and
                       qrels/graded.tsv, grades 1–5, which a sweep of the folder takes
    *.scale            beside each file of grades 1–5: what they mean
    golden.jsonl       a line for each query: passages with text, grade, rank and their uncertainty
    replies.jsonl      what the judge said, word for word; a `replay` judge reads it
    corrections.jsonl  what people changed, if they did
    index.html         for reading
    manifest.json      how it was made; README.md says it in words

A simulated judge's files say so in their names, in the iteration column of the qrels, in the tag
of the ranking, in every line of JSON, in the README and on the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from rankproof.errors import InputError
from rankproof.files import claim_folder, write_whole
from rankproof.golden.page import page
from rankproof.golden.result import Golden, GoldenPassage, GoldenQuery, read_golden
from rankproof.golden.store import Store
from rankproof.manifest import manifest
from rankproof.records.scales import scale_text
from rankproof.redaction import published, without_secrets
from rankproof.tables import SET_SCALE

BEIR_GRADES = {1: 0, 2: 0, 3: 0, 4: 1, 5: 2}
MAX_FAILED = 0.02
OURS = (  # what an export writes, and a folder to export to may hold
    *("qrels.txt", "qrels.txt.scale", "qrels.simulated.txt.scale", "ranking.trec"),
    *("golden.jsonl", "replies.jsonl", "corrections.jsonl"),
    *("qrels.simulated.txt", "ranking.simulated.trec", "golden.simulated.jsonl"),
    *("replies.simulated.jsonl", "beir", "beir-simulated"),
    *("index.html", "README.md", "manifest.json"),
)


class TooManyFailed(InputError):
    """More judgements failed than the user allows for."""


def export(store: Store, folder: str | Path, max_failed: float = MAX_FAILED) -> dict[str, Path]:
    """Write the files; those written, by name."""
    golden = read_golden(store)
    check_failed(golden, max_failed, str(store.path))
    out = claim_folder(folder, OURS, "golden export")
    mark = ".simulated" if golden.simulated else ""
    iteration = "simulated" if golden.simulated else "0"
    beir = "beir-simulated" if golden.simulated else "beir"
    passages = {p.doc: p for query in golden.queries for p in query.passages}
    files: dict[str, Iterable[str]] = {
        f"qrels{mark}.txt": (
            f"{query.query} {iteration} {p.doc} {p.grade}" for query, p in _graded(golden)
        ),
        f"qrels{mark}.txt.scale": [scale_text(SET_SCALE)],
        f"ranking{mark}.trec": _ranking(golden, f"golden{mark}"),
        f"{beir}/corpus.jsonl": (
            _json({"_id": p.doc, "title": "", "text": p.text, "metadata": {"source": p.source}})
            for p in sorted(passages.values(), key=lambda p: p.doc)
        ),
        f"{beir}/queries.jsonl": (
            _json({"_id": query.query, "text": query.text}) for query in golden.queries
        ),
        f"{beir}/qrels/test.tsv": [
            "query-id\tcorpus-id\tscore",
            *(f"{q.query}\t{p.doc}\t{BEIR_GRADES[p.grade or 1]}" for q, p in _graded(golden)),
        ],
        f"{beir}/qrels/graded.tsv": [
            "query-id\tcorpus-id\tscore",
            *(f"{q.query}\t{p.doc}\t{p.grade}" for q, p in _graded(golden)),
        ],
        f"{beir}/qrels/graded.tsv.scale": [scale_text(SET_SCALE)],
        f"golden{mark}.jsonl": (_json(_line(golden, query)) for query in golden.queries),
        f"replies{mark}.jsonl": _replies(store, golden),
        "index.html": [page(golden)],
        "README.md": [readme(golden, mark, beir)],
    }
    if golden.corrections:
        files["corrections.jsonl"] = (_json(asdict(c)) for c in golden.corrections)
    files["manifest.json"] = [json.dumps(_manifest(golden), indent=2, ensure_ascii=False)]
    written = {}
    for name, lines in files.items():
        written[name] = write_whole(out / name, _writer(lines))
    return written


def check_failed(golden: Golden, most: float, place: str) -> None:
    """Refuse a golden set in which too much is missing."""
    counts = golden.counts
    if counts.failed_share > most or counts.total == 0:
        raise TooManyFailed(
            f"{counts.failed} of {counts.total} judgements failed "
            f"({counts.failed_share:.1%}, at most {most:.1%} may)",
            place=place,
            remedy="build with --retry-failed, correct them, or raise --max-failed",
        )
    if counts.orders_failed_share > most:
        raise TooManyFailed(
            f"{counts.orders_failed} of {counts.orders} calls for an order failed "
            f"({counts.orders_failed_share:.1%}, at most {most:.1%} may)",
            place=place,
            remedy="build with --retry-failed, or raise --max-failed",
        )


def readme(golden: Golden, mark: str, beir: str) -> str:
    """What the files are, in words."""
    counts = golden.counts
    judge = golden.judge
    warning = (
        "**SIMULATED. The judge knew the answers beforehand (noise was added). These files are for "
        "trying things out; figures made from them are evidence of nothing.**\n\n"
        if golden.simulated
        else ""
    )
    spent = "not known" if golden.cost is None else f"${golden.cost:.4f}"
    return f"""# Golden set

{warning}Judge: {judge["name"]} ({judge["type"]}). {len(golden.queries)} queries, {counts.total}
passages: {counts.graded} graded, {counts.failed} failed; {counts.validated} validated and
{counts.corrected} corrected by people. {counts.orders} calls for an order, {counts.orders_failed}
failed. Cost: {spent}.

- `qrels{mark}.txt`: TREC qrels with grades 1–5: 5 answers clearly, 4 highly relevant, 3 partial,
  2 weak, 1 not relevant. `qrels{mark}.txt.scale` says so to `rankproof`; elsewhere say where
  relevance begins, as in `AP(rel=4)`.
- `ranking{mark}.trec`: each query's best passages in order, as a TREC run; scores are posterior
  means, or count down where the order is not theirs (people moved a passage, `method: seed`).
- `{beir}/`: a BEIR folder; grade 5 → 2, 4 → 1, 3 and below → 0, and `qrels/graded.tsv` with grades
  1–5, which `rankproof sweep` takes. Its corpus holds the pooled passages only: to search, use the
  corpus you started from (`corpus:` that, `qrels:` the file above).
- `golden{mark}.jsonl`: a line for each query, with texts, grades, ranks and their intervals.
- `replies{mark}.jsonl`: what the judge said.
- `index.html`: the same to read. `manifest.json`: how it was made.

A passage whose judgement failed is in `golden{mark}.jsonl` with its failure, and in no qrels.
"""


def _graded(golden: Golden) -> list[tuple[GoldenQuery, GoldenPassage]]:
    """Every passage that has a grade, queries and documents by id."""
    return [
        (query, passage)
        for query in sorted(golden.queries, key=lambda q: q.query)
        for passage in sorted(query.passages, key=lambda p: p.doc)
        if passage.grade is not None
    ]


def _ranking(golden: Golden, tag: str) -> Iterable[str]:
    for query in golden.queries:
        ranked = [p for p in query.passages if p.rank is not None]
        means = [p.mean or 0.0 for p in ranked]
        # Tools order by score. Where people moved a passage, or the seed's locks did, the means
        # are not in the order: count down instead.
        theirs = all(above >= below for above, below in pairwise(means))
        scores = means if theirs else [float(n) for n in range(len(ranked), 0, -1)]
        for p, score in zip(ranked, scores, strict=True):
            yield f"{query.query} Q0 {p.doc} {p.rank} {score!r} {tag}"


def _line(golden: Golden, query: GoldenQuery) -> dict[str, Any]:
    return {
        "query": query.query,
        "text": query.text,
        "asked": query.asked,
        "judge": golden.judge["name"],
        "simulated": golden.simulated,
        "ended": query.reason,
        "calls": query.calls,
        "calls_failed": query.failed,
        "overlap": query.overlap,
        "locks": query.locks,
        "passages": [
            {
                "doc": p.doc,
                "grade": p.grade,
                "rank": p.rank,
                "rank_low": p.low,
                "rank_high": p.high,
                "mean": p.mean,
                "sd": p.sd,
                "rrf": p.rrf,
                "failure": p.failure,
                "judged_grade": p.judged,
                "judged_rank": p.judged_rank,
                "validated": p.validated,
                "corrected": p.corrected,
                "source": p.source,
                "text": p.text,
            }
            for p in query.passages
        ],
    }


def _replies(store: Store, golden: Golden) -> Iterable[str]:
    for reply in store.replies():
        yield _json(
            without_secrets(asdict(reply))
            | {"judge": golden.judge["name"], "simulated": golden.simulated}
        )


def _manifest(golden: Golden) -> dict[str, Any]:
    """Files by name and digest; never the folders of whoever made it."""
    config = golden.config | {"prompts": golden.judge["prompts"]}
    counts = asdict(golden.counts)
    made = manifest("golden", config=config, seed=golden.config["seed"], packages=("numpy",))
    return made | {
        "inputs": golden.inputs,
        "judge": published(golden.judge),
        "simulated": golden.simulated,
        "counts": counts,
        "cost": golden.cost,
        "corrections": len(golden.corrections),
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _writer(lines: Iterable[str]) -> Any:
    def write(path: Path) -> None:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)

    return write
