"""A golden set as files: TREC, BEIR, JSON lines with text, and a page to read.

    qrels.txt          query, 0, document, grade 1–5 of the rubric
    ranking.trec       the order, with posterior means as scores where they descend
    beir/              corpus.jsonl (pooled passages), queries.jsonl, qrels/test.tsv (5 → 2, 4 → 1,
                       3 and below → 0: tools for BEIR call everything above 0 relevant) and
                       qrels/graded.tsv, grades 1–5, which a sweep of the folder takes
    *.scale            beside each file of grades 1–5: what they mean
    golden.jsonl       a line for each query: passages with text, grade, rank and their uncertainty
    replies.jsonl      what the judge said, word for word; a `replay` judge reads it
    provenance.tsv     query, doc, system: whose list brought a passage into the pool
    golden.csv         a line for each passage: grades, rank, who said what
    people.txt         TREC qrels of the passages that people graded, as they did together
    labels.jsonl, .csv every person's label, where there are any; `golden import` reads them
    corrections.jsonl  what people changed, if they did
    stale.jsonl        what was said of texts, or by judges, that are not those of today, if it was
    index.html         for reading
    manifest.json      how it was made, and the digest of every file; README.md says it in words

Files of an earlier export to the same folder that this one does not write are removed.

A simulated judge's files say so in their names, in the iteration column of the qrels, in the tag
of the ranking, in every line of JSON, in the README and on the page.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from rankproof.data.scales import scale_text
from rankproof.data.tables import SET_SCALE
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import claim_folder, read_text, write_lines
from rankproof.foundation.manifest import digest_file, manifest
from rankproof.foundation.phrasing import plural
from rankproof.foundation.printable import escape_controls
from rankproof.foundation.redaction import redact_for_publication, remove_secrets
from rankproof.golden.annotators import JUDGE, PAIR_FIGURES, between, labels, settled
from rankproof.golden.health import card, health, panel
from rankproof.golden.instructions import instruction
from rankproof.golden.judgments import Correction
from rankproof.golden.labels import COLUMNS, csv_lines, label_rows
from rankproof.golden.page import page
from rankproof.golden.result import Golden, GoldenPassage, GoldenQuery, read_golden
from rankproof.golden.status import judges_of, stale
from rankproof.golden.store import Store
from rankproof.presentation.json_values import told
from rankproof.statistics.agreement import Agreement

BEIR_GRADES = {1: 0, 2: 0, 3: 0, 4: 1, 5: 2}
MAX_FAILED = 0.02
MANIFEST = "manifest.json"
OURS = (  # what an export writes, and a folder to export to may hold
    *("people.txt", "people.txt.scale", "labels.jsonl", "labels.csv"),
    *("golden.csv", "golden.simulated.csv", "qrels.txt", "qrels.txt.scale"),
    *("qrels.simulated.txt.scale", "ranking.trec"),
    *("golden.jsonl", "replies.jsonl", "corrections.jsonl"),
    *("qrels.simulated.txt", "ranking.simulated.trec", "golden.simulated.jsonl"),
    *("replies.simulated.jsonl", "beir", "beir-simulated", "provenance.tsv", "stale.jsonl"),
    *("index.html", "README.md", MANIFEST),
)


class TooManyFailed(InputError):
    """More judgements failed than the user allows for."""

    exit_code = 1


def export(store: Store, folder: str | Path, max_failed: float = MAX_FAILED) -> dict[str, Path]:
    """Write the files; those written, by name.

    >>> from rankproof.golden.export import export
    >>> from rankproof.golden.store import Store
    >>> with Store("try/corpus/simulated.golden") as store:
    ...     written = export(store, "exported")
    >>> "qrels.simulated.txt" in written
    True
    """
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
        "provenance.tsv": [
            "query\tdoc\tsystem",
            *(
                f"{query.query}\t{p.doc}\t{system}"
                for query in golden.queries
                for p in query.passages
                for system in p.systems
            ),
        ],
        f"golden{mark}.csv": csv_lines(_flat(golden), FLAT),
        "index.html": [page(golden)],
    }
    said = store.active_corrections()
    labelled = remove_secrets(list(label_rows(said)))
    if labelled:
        files["people.txt"] = (
            f"{query.query} 0 {p.doc} {p.people}" for query, p in _graded(golden) if p.validated
        )
        files["people.txt.scale"] = [scale_text(SET_SCALE)]
        files["labels.jsonl"] = map(_json, labelled)
        files["labels.csv"] = csv_lines(labelled, COLUMNS)
    outdated = stale(store)
    files["README.md"] = [readme(golden, mark, beir, card(store), said, outdated=bool(outdated))]
    if golden.corrections:
        files["corrections.jsonl"] = (_json(asdict(c)) for c in golden.corrections)
    if outdated:
        files["stale.jsonl"] = (_json(asdict(each)) for each in outdated)
    flagged = sum(instruction(p.text) is not None for p in passages.values())
    made = _manifest(golden) | {"health": health(store).to_dict(), "instructions": flagged}
    if several := panel(store):
        made["judges"] = [asdict(each) for each in several]
    stale_files = _stale_files(out, files)
    written = {name: write_lines(out / name, lines) for name, lines in files.items()}
    _remove(stale_files, out)
    made["files"] = {name: digest_file(path) for name, path in written.items()}
    text = json.dumps(made, indent=2, ensure_ascii=False)
    return written | {MANIFEST: write_lines(out / MANIFEST, [text])}


def _stale_files(folder: Path, files: Iterable[str]) -> list[Path]:
    """Return what the last export wrote into the folder and this one does not.

    A file that was changed since is the user's own by now, and is neither removed nor left beside
    files of another golden set.
    """
    try:
        made = json.loads(read_text(folder / MANIFEST))
        earlier = dict(made["files"]) if made["kind"] == "golden" else {}
    except (ValueError, KeyError, TypeError):  # none there, or of an earlier version
        return []
    found = []
    for name in earlier.keys() - set(files):
        path, parts = folder / name, PurePosixPath(name).parts
        if not parts or parts[0] not in OURS or ".." in parts or not path.is_file():
            continue
        if digest_file(path) != earlier[name]:
            raise InputError(
                f"{name} was changed since the last export, and is not of this golden set",
                place=str(folder),
                remedy="move it away, or name another folder",
            )
        found.append(path)
    return found


def _remove(files: Sequence[Path], out: Path) -> None:
    """Remove files, and folders inside `out` that they leave empty."""
    for path in files:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == out or any(folder.iterdir()):
                break
            folder.rmdir()


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


def readme(
    golden: Golden,
    mark: str,
    beir: str,
    lines: Sequence[str],
    said: Sequence[Correction],
    *,
    outdated: bool,
) -> str:
    """A card: what the files are, and how the labels came about."""
    counts = golden.counts
    judge = golden.judge
    warning = (
        "**SIMULATED. The judge knew the answers beforehand (noise was added). These files are for "
        "trying things out; figures made from them are evidence of nothing.**\n\n"
        if golden.simulated
        else ""
    )
    spent = "not known" if golden.cost is None else f"${golden.cost:.4f}"
    labelled = """- `people.txt`: TREC qrels of what people graded, as `eval --human` takes them.
- `labels.jsonl`, `labels.csv`: every person's label; `golden import` reads them.
- `corrections.jsonl`: all that people said, what was undone included.
"""
    kept = "- `stale.jsonl`: what was said of other texts, or by other judges; it does not count.\n"
    also = (labelled if said else "") + (kept if outdated else "")
    method = golden.config["ranking"]["method"]
    rests = "its posterior" if method == "posterior" else f"that of `method: {method}`"
    return f"""---
language: {golden.config.get("language", "en")}
task_categories: [text-retrieval]
tags: [relevance-judgements, rankproof]
---
# Golden set

{warning}Judge: {judge["name"]} ({judge["type"]}). {plural(len(golden.queries), "query")},
{plural(counts.total, "passage")}: {counts.graded} graded, {counts.failed} failed;
{counts.validated} validated and {counts.corrected} corrected by people.
{plural(counts.orders, "call")} for an order, {counts.orders_failed} failed.
Cost: {spent}.{"".join(chr(10) * 2 + line for line in lines)}

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
- `golden{mark}.csv`: a line for each passage, for spreadsheets.
- `provenance.tsv`: which systems brought a passage in, for `rankproof holes --provenance`.
{also}- `index.html`: the same to read. `manifest.json`: how it was made.

A passage whose judgement failed is in `golden{mark}.jsonl` with its failure, and in no qrels.

## How the labels came about

Passages: for each query the best of {_pooled(golden)}, pooled. A grade is the judge's
{_together(golden)}unless people gave one; the judge ordered the passages in small batches, and the
order is {rests} given what people said. Prompts, settings and inputs are in `manifest.json`.

{_people(golden, said)}
"""


def _together(golden: Golden) -> str:
    if "members" not in golden.judge:
        return ""
    return "(what several judges say together, each as reliable as it proved to be)\n"


def _pooled(golden: Golden) -> str:
    systems = sorted({name for q in golden.queries for p in q.passages for name in p.systems})
    return ", ".join(f"`{name}`" for name in systems) or "its lists"


def _people(golden: Golden, said: Sequence[Correction]) -> str:
    """What people had to do with it."""
    own = [c for each in labels(said).values() for c in each.values() if c.new is not None]
    if not own:
        return "No person graded a passage: every grade is the judge's."
    graded = Counter(_name(c.who) for c in own)
    keys = Counter((c.query, c.doc) for c in own)
    several = sum(times > 1 for times in keys.values())
    lines = [
        f"People labelled {len(keys)} of {golden.counts.total} passages, {several} of them two or "
        f"more people: {', '.join(f'{who} {graded[who]}' for who in sorted(graded))}. Where they "
        "differ the median of those who were sure holds, unless it was settled "
        f"({len(settled(said))} were).",
        "",
        "| | same grade | κ, quadratic | AC2, quadratic | α, ordinal | passages |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for one, other, found in between(said, golden.judged()):
        if found.coefficients["exact"].items:
            names = f"{_name(one)} and {'the judge' if other == JUDGE else _name(other)}"
            lines.append(_row(names, found))
    return "\n".join([*lines, "", "95% intervals are over queries; none where there are few."])


def _name(who: str) -> str:
    """A name that makes no table of Markdown."""
    return escape_controls(remove_secrets(who)).replace("|", "\\|")


def _row(names: str, found: Agreement) -> str:
    def cell(name: str) -> str:
        c = found.coefficients[name]
        if math.isnan(c.value):
            return "–"
        return f"{c.value:.2f}" + ("" if math.isnan(c.low) else f" [{c.low:.2f}, {c.high:.2f}]")

    items = found.coefficients["exact"].items
    shown = " | ".join(cell(name) for name in PAIR_FIGURES)
    return f"| {names} | {shown} | {items} |"


FLAT = (
    *("query", "doc", "grade", "rank", "rank_low", "rank_high", "judged_grade", "judged_rank"),
    *("failure", "validated", "corrected", "source"),
)


def _flat(golden: Golden) -> Iterable[dict[str, Any]]:
    for query in golden.queries:
        for passage in _line(golden, query)["passages"]:
            yield {"query": query.query} | {name: passage[name] for name in FLAT[1:]}


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
        **told(query, "query", "text", "asked"),
        "judge": golden.judge["name"],
        "simulated": golden.simulated,
        "ended": query.reason,
        "calls": query.calls,
        "calls_failed": query.failed,
        "overlap": query.overlap,
        "locks": query.locks,
        "passages": [
            {
                **told(p, "doc", "grade", "rank"),
                "rank_low": p.low,
                "rank_high": p.high,
                **told(p, "mean", "sd", "rrf", "failure"),
                "judged_grade": p.judged,
                **told(p, "judged_rank", "validated", "corrected"),
                **({"judges": p.votes} if p.votes else {}),
                "systems": p.systems,
                "instruction": instruction(p.text),
                **told(p, "source", "text"),
            }
            for p in query.passages
        ],
    }


def _replies(store: Store, golden: Golden) -> Iterable[str]:
    who, force = judges_of(store), {*store.in_force("grade"), *store.in_force("order")}
    for reply in store.replies():
        said = who.get(reply.judge, {"name": golden.judge["name"], "simulated": golden.simulated})
        row = remove_secrets(asdict(reply))
        row.pop("parts")  # each is a reply by itself
        row |= {"judge": said["name"], "simulated": said["simulated"]}
        yield _json(row | {"in_force": reply.judge in force})


def _manifest(golden: Golden) -> dict[str, Any]:
    """Files by name and digest; never the folders of whoever made it."""
    config = golden.config | {"prompts": golden.judge["prompts"]}
    counts = asdict(golden.counts)
    made = manifest("golden", config=config, seed=golden.config["seed"], packages=("numpy",))
    return made | {
        "inputs": golden.inputs,
        "judge": redact_for_publication(golden.judge),
        "simulated": golden.simulated,
        "scale": [1, 5],
        "counts": counts,
        "cost": golden.cost,
        "corrections": len(golden.corrections),
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
