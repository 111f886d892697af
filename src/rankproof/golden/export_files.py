"""Export a golden set as files: TREC, BEIR, JSON lines with text, and a page to read.

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
    corrections.jsonl  what people changed, if anything
    stale.jsonl        what does not count any more, if anything
    index.html         a page to read
    manifest.json      how it was made, and the digest of every file; README.md says it in words

Files of an earlier export to the same folder that this one does not write are removed.

A simulated judge's files say so in their names, in the iteration column of the qrels, in the tag
of the ranking, in every line of JSON, in the README and on the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from rankproof.data.scales import scale_text
from rankproof.data.tables import SET_SCALE
from rankproof.foundation.errors import InputError
from rankproof.foundation.files import claim_folder, read_text, write_lines
from rankproof.foundation.manifest import digest_file, manifest
from rankproof.foundation.redaction import redact_for_publication, remove_secrets
from rankproof.golden.dataset_card import dataset_card
from rankproof.golden.health import judge_health, panel_health
from rankproof.golden.instructions import instruction
from rankproof.golden.labels import COLUMNS, csv_lines, label_rows
from rankproof.golden.page import page
from rankproof.golden.result import Golden, GoldenPassage, GoldenQuery, read_golden
from rankproof.golden.stale import find_stale
from rankproof.golden.store import Store
from rankproof.presentation.display import Displayed
from rankproof.presentation.json_values import plain_fields
from rankproof.presentation.result import Summary
from rankproof.presentation.tables import Table

BEIR_GRADES = {1: 0, 2: 0, 3: 0, 4: 1, 5: 2}
MAX_FAILED = 0.02
_MANIFEST = "manifest.json"
_MARKED_NAMES = (  # of files that a simulated judge's export marks
    *("qrels{}.txt", "qrels{}.txt.scale", "ranking{}.trec"),
    *("golden{}.jsonl", "replies{}.jsonl", "golden{}.csv"),
)
_OWN_NAMES = (  # what an export writes, so that a folder which holds only these may be replaced
    *(name.format(mark) for name in _MARKED_NAMES for mark in ("", ".simulated")),
    *("people.txt", "people.txt.scale", "labels.jsonl", "labels.csv", "corrections.jsonl"),
    *("beir", "beir-simulated", "provenance.tsv", "stale.jsonl"),
    *("index.html", "README.md", _MANIFEST),
)
_CSV_COLUMNS = (
    *("query", "doc", "grade", "rank", "rank_low", "rank_high", "judged_grade", "judged_rank"),
    *("failure", "validated", "corrected", "source"),
)


class TooManyFailed(InputError):
    """More judgments failed than the user allows."""

    exit_code = 1


@dataclass(frozen=True)
class Exported(Displayed):
    """The files of an export."""

    kind: ClassVar[str] = "golden export"

    files: dict[str, Path]  # by name in the folder
    is_ranked: bool  # the passages are in order
    simulated: bool

    @property
    def warnings(self) -> list[str]:
        warnings = []
        if not self.is_ranked:
            warnings.append("the passages are graded and not in order yet: the ranking is empty")
        if self.simulated:
            warnings.append("the judge was simulated: these files are not evidence, and say so")
        return warnings

    def summary(self) -> Summary:
        return Summary("\n".join(map(str, self.files.values())))

    def tables(self) -> list[Table]:
        return []

    def figures(self) -> dict[str, float]:
        return {"files": float(len(self.files))}

    def to_dict(self) -> dict[str, Any]:
        files = {name: str(path) for name, path in self.files.items()}
        return {"files": files, "ranked": self.is_ranked, "simulated": self.simulated}


def export_files(
    store: Store, folder: str | Path, max_failed: float = MAX_FAILED
) -> dict[str, Path]:
    """Write the files of a golden set into a folder; return their paths by name.

    >>> from rankproof.golden.export_files import export_files
    >>> from rankproof.golden.store import Store
    >>> with Store("try/corpus/simulated.golden") as store:
    ...     written = export_files(store, "exported")
    >>> "qrels.simulated.txt" in written
    True
    """
    golden = read_golden(store)
    check_failed(golden, max_failed, str(store.path))
    out = claim_folder(folder, _OWN_NAMES, "golden export")
    contents = _Contents(store, golden)
    files = contents.files()
    stale_files = _stale_files(out, files)
    written = {name: write_lines(out / name, lines) for name, lines in files.items()}
    _remove(stale_files, out)
    digests = {name: digest_file(path) for name, path in written.items()}
    text = json.dumps(contents.manifest() | {"files": digests}, indent=2, ensure_ascii=False)
    return written | {_MANIFEST: write_lines(out / _MANIFEST, [text])}


@dataclass(frozen=True, slots=True)
class _Contents:
    """The files of an export as lines of text."""

    store: Store
    golden: Golden

    @property
    def mark(self) -> str:
        """In the names of a simulated judge's files."""
        return ".simulated" if self.golden.simulated else ""

    def files(self) -> dict[str, Iterable[str]]:
        """Lines of every file but the manifest, by name."""
        golden, mark = self.golden, self.mark
        iteration = "simulated" if golden.simulated else "0"
        graded = _graded_passages(golden)
        files: dict[str, Iterable[str]] = {
            f"qrels{mark}.txt": (
                f"{query.query} {iteration} {p.doc} {p.grade}" for query, p in graded
            ),
            f"qrels{mark}.txt.scale": [scale_text(SET_SCALE)],
            f"ranking{mark}.trec": _trec_ranking(golden, f"golden{mark}"),
            **self._beir_files(graded),
            f"golden{mark}.jsonl": (_to_json(_query_line(golden, q)) for q in golden.queries),
            f"replies{mark}.jsonl": self._reply_lines(),
            "provenance.tsv": self._provenance_lines(),
            f"golden{mark}.csv": csv_lines(self._csv_rows(), _CSV_COLUMNS),
            "index.html": [page(golden)],
        }
        corrections = self.store.active_corrections()
        labels = remove_secrets(list(label_rows(corrections)))
        if labels:
            files["people.txt"] = (
                f"{query.query} 0 {p.doc} {p.people}" for query, p in graded if p.validated
            )
            files["people.txt.scale"] = [scale_text(SET_SCALE)]
            files["labels.jsonl"] = map(_to_json, labels)
            files["labels.csv"] = csv_lines(labels, COLUMNS)
        stale = find_stale(self.store)
        files["README.md"] = [dataset_card(self.store, golden, mark, has_stale=bool(stale))]
        if golden.corrections:
            files["corrections.jsonl"] = (_to_json(asdict(c)) for c in golden.corrections)
        if stale:
            files["stale.jsonl"] = (_to_json(asdict(item)) for item in stale)
        return files

    def _beir_files(
        self, graded: Sequence[tuple[GoldenQuery, GoldenPassage]]
    ) -> dict[str, Iterable[str]]:
        """Lines of the files of a BEIR folder, by name."""
        folder = "beir-simulated" if self.golden.simulated else "beir"
        header = "query-id\tcorpus-id\tscore"
        passages = {p.doc: p for p in self.golden.passages().values()}
        return {
            f"{folder}/corpus.jsonl": (
                _to_json(
                    {"_id": p.doc, "title": "", "text": p.text, "metadata": {"source": p.source}}
                )
                for p in sorted(passages.values(), key=lambda p: p.doc)
            ),
            f"{folder}/queries.jsonl": (
                _to_json({"_id": query.query, "text": query.text}) for query in self.golden.queries
            ),
            f"{folder}/qrels/test.tsv": [
                header,
                *(f"{q.query}\t{p.doc}\t{BEIR_GRADES[p.grade or 1]}" for q, p in graded),
            ],
            f"{folder}/qrels/graded.tsv": [
                header,
                *(f"{q.query}\t{p.doc}\t{p.grade}" for q, p in graded),
            ],
            f"{folder}/qrels/graded.tsv.scale": [scale_text(SET_SCALE)],
        }

    def _csv_rows(self) -> Iterator[dict[str, Any]]:
        for query in self.golden.queries:
            for passage in _query_line(self.golden, query)["passages"]:
                row = {name: passage[name] for name in _CSV_COLUMNS[1:]}
                yield {"query": query.query} | row

    def _provenance_lines(self) -> Iterator[str]:
        yield "query\tdoc\tsystem"
        for (query, doc), passage in self.golden.passages().items():
            for system in passage.systems:
                yield f"{query}\t{doc}\t{system}"

    def _reply_lines(self) -> Iterator[str]:
        """Every reply, with its judge's name and whether that judge's replies count."""
        store, judge = self.store, self.golden.judge
        identities = store.judge_identities()
        current = {*store.current_judges("grade"), *store.current_judges("order")}
        for reply in store.replies():
            identity = identities.get(reply.judge, judge)
            row = remove_secrets(asdict(reply))
            row.pop("parts")  # each is a reply of its own
            row |= {"judge": identity["name"], "simulated": bool(identity.get("simulated"))}
            yield _to_json(row | {"in_force": reply.judge in current})

    def manifest(self) -> dict[str, Any]:
        """How the golden set was made; files by name and digest, never the user's folders."""
        golden = self.golden
        config = golden.config | {"prompts": golden.judge["prompts"]}
        base = manifest("golden", config=config, seed=golden.config["seed"], packages=("numpy",))
        texts = {p.doc: p.text for p in golden.passages().values()}
        facts = base | {
            "inputs": golden.inputs,
            "judge": redact_for_publication(golden.judge),
            "simulated": golden.simulated,
            "scale": [1, 5],
            "counts": asdict(golden.counts),
            "cost": golden.cost,
            "corrections": len(golden.corrections),
            "health": asdict(judge_health(self.store)),
            "instructions": sum(instruction(text) is not None for text in texts.values()),
        }
        members = panel_health(self.store)
        if members:
            facts["judges"] = [asdict(member) for member in members]
        return facts


def _stale_files(folder: Path, files: Iterable[str]) -> list[Path]:
    """Files that the last export wrote into the folder and this one does not.

    If such a file was changed since, it is the user's by now: it is neither removed nor left beside
    files of another golden set, but an error.
    """
    try:
        last = json.loads(read_text(folder / _MANIFEST))
        earlier = dict(last["files"]) if last["kind"] == "golden" else {}
    except (ValueError, KeyError, TypeError):  # no manifest, or of an earlier version
        return []
    stale = []
    for name in earlier.keys() - set(files):
        path, parts = folder / name, PurePosixPath(name).parts
        if not parts or parts[0] not in _OWN_NAMES or ".." in parts or not path.is_file():
            continue
        if digest_file(path) != earlier[name]:
            raise InputError(
                f"{name} was changed since the last export, and is not of this golden set",
                place=str(folder),
                remedy="move it away, or name another folder",
            )
        stale.append(path)
    return stale


def _remove(files: Sequence[Path], out: Path) -> None:
    """Remove files, and folders inside `out` that they leave empty."""
    for path in files:
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == out or any(folder.iterdir()):
                break
            folder.rmdir()


def check_failed(golden: Golden, max_share: float, place: str) -> None:
    """Refuse a golden set in which too many judgments failed."""
    counts = golden.counts
    if counts.failed_share > max_share or counts.total == 0:
        raise TooManyFailed(
            f"{counts.failed} of {counts.total} judgements failed "
            f"({counts.failed_share:.1%}, at most {max_share:.1%} may)",
            place=place,
            remedy="build with --retry-failed, correct them, or raise --max-failed",
        )
    if counts.orders_failed_share > max_share:
        raise TooManyFailed(
            f"{counts.orders_failed} of {counts.orders} calls for an order failed "
            f"({counts.orders_failed_share:.1%}, at most {max_share:.1%} may)",
            place=place,
            remedy="build with --retry-failed, or raise --max-failed",
        )


def _graded_passages(golden: Golden) -> list[tuple[GoldenQuery, GoldenPassage]]:
    """Every passage that has a grade, sorted by the ids of query and document."""
    return [
        (query, passage)
        for query in sorted(golden.queries, key=lambda q: q.query)
        for passage in sorted(query.passages, key=lambda p: p.doc)
        if passage.grade is not None
    ]


def _trec_ranking(golden: Golden, tag: str) -> Iterator[str]:
    """Lines of a TREC run: posterior means as scores, or a countdown where they do not descend.

    Tools order by score; people's moves, or the locks of `method: seed`, can contradict the means.
    """
    for query in golden.queries:
        means = [p.mean or 0.0 for p in query.ranked]
        descends = all(above >= below for above, below in pairwise(means))
        scores = means if descends else [float(n) for n in range(len(means), 0, -1)]
        for p, score in zip(query.ranked, scores, strict=True):
            yield f"{query.query} Q0 {p.doc} {p.rank} {score!r} {tag}"


def _query_line(golden: Golden, query: GoldenQuery) -> dict[str, Any]:
    """A query as a line of golden.jsonl."""
    return {
        **plain_fields(query, "query", "text", "asked"),
        "judge": golden.judge["name"],
        "simulated": golden.simulated,
        "ended": query.reason,
        "calls": query.calls,
        "calls_failed": query.failed,
        "overlap": query.overlap,
        "locks": query.locks,
        "passages": [_passage_item(passage) for passage in query.passages],
    }


def _passage_item(p: GoldenPassage) -> dict[str, Any]:
    """A passage in a line of golden.jsonl."""
    return {
        **plain_fields(p, "doc", "grade", "rank"),
        "rank_low": p.low,
        "rank_high": p.high,
        **plain_fields(p, "mean", "sd", "rrf", "failure"),
        "judged_grade": p.judged,
        **plain_fields(p, "judged_rank", "validated", "corrected"),
        **({"judges": p.votes} if p.votes else {}),
        "systems": p.systems,
        "instruction": instruction(p.text),
        **plain_fields(p, "source", "text"),
    }


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
