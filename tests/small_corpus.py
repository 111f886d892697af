"""A corpus of thirty passages and six questions, graded 1 to 5, as a BEIR folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rankproof.retrieval.protocols import Scored

TOPICS = {
    "tides": "tidal turbines in fast straits and the silt that wears their blades",
    "bees": "urban beehives, forage on rooftops and the winter losses of colonies",
    "glass": "medieval glass furnaces, potash from beech ash and the green of forest glass",
    "sleep": "night shifts, sleep debt and the mistakes of tired nurses",
    "ice": "glacier melt water, moulins and the speed of the ice above them",
    "bikes": "shared bicycles, empty docks on hills and the trucks that refill them",
}
VIEWS = [
    "A field study measures {} over three years and finds a clear effect.",
    "A review of {} lists open questions and weak evidence.",
    "Notes on {} by practitioners, with figures from one site.",
    "A model explains {} and predicts what a second site should show.",
    "History of the word, with little on {} itself.",
]


def write_corpus(folder: Path) -> Path:
    """corpus.jsonl, queries.jsonl and qrels/test.tsv in a folder."""
    (folder / "qrels").mkdir(parents=True)
    passages, questions, grades = [], [], ["query-id\tcorpus-id\tscore"]
    for topic, about in TOPICS.items():
        questions.append({"_id": f"ask-{topic}", "text": f"What is known about {about}?"})
        for at, view in enumerate(VIEWS):
            passages.append(
                {
                    "_id": f"{topic}-{at}",
                    "title": f"{topic} {at}",
                    "text": view.format(about),
                    "metadata": {"source": f"{topic}-{at // 2}"},
                }
            )
            grades.append(f"ask-{topic}\t{topic}-{at}\t{5 - at}")
        other = next(t for t in TOPICS if t != topic)
        grades.append(f"ask-{topic}\t{other}-0\t1")
    for name, rows in (("corpus", passages), ("queries", questions)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("\n".join(grades) + "\n", encoding="utf-8")
    return folder


class SharedWords:
    """A reranker that counts the words which question and passage share, on any scale."""

    def __init__(self, scale: float = 1.0):
        self.name, self.fingerprint, self._scale = "words", f"words {scale}", scale

    def score(self, query: str, passages: Sequence[str]) -> Scored:
        asked = set(query.lower().split())
        found = [len(asked & set(text.lower().split())) * self._scale for text in passages]
        return Scored(np.array(found, np.float64), 10 * len(passages), "float64")
