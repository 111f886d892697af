"""A golden set of strange texts, and a viewer that serves it: what the viewer's tests share."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from golden_sets import settings, truth

from rankproof.golden.building import Build
from rankproof.golden.judgments import Reply
from rankproof.golden.store import Store
from rankproof.golden.viewer.desk import Seat
from rankproof.golden.viewer.passages import Passage, passages
from rankproof.golden.viewer.server import listen, make_server

# Texts of strangers. The word “whales” lets BM25 find them all.
EVIL = {
    "script": "<script>window.hacked = true</script> whales",
    "image": '<img src="x" onerror="window.hacked = true"> whales',
    "style": '"><style>body { display: none }</style> whales',
    "long": "whales " + "x" * 4000,
    "rtl": "whales \u202eתוקפים\u202c العربية",
    "emoji": "whales 🐋 naïve e\u0301te\u0301 ZOË",
    "a/b?c&d#e": "whales {{ 7 * 7 }} ${7 * 7} &lt;b&gt;",
    "<b>id</b>": "whales, and an id of HTML",
}
PLAIN = {f"d{n}": f"passage number d{n} tells of whales " + "x " * n for n in range(12)}
QUESTIONS = {
    "q0": "what of whales, case 0?",
    "q1": "<i>whales</i>, case 1?",
    "q2": "whales, case 2?",
}


def build_set(folder: Path) -> Path:
    """A small golden set, really built; one judgement failed, one was repeated and differs."""
    corpus = folder / "corpus"
    (corpus / "qrels").mkdir(parents=True)
    rows = [
        {"_id": doc, "title": "", "text": text, "metadata": {"source": f"shelf {len(doc) % 2}"}}
        for doc, text in (PLAIN | EVIL).items()
    ]
    (corpus / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"_id": query, "text": text} for query, text in QUESTIONS.items()]
    (corpus / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    labels = [f"{q}\t{doc}\t{truth(q, doc) - 1}" for q in QUESTIONS for doc in PLAIN | EVIL]
    (corpus / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(labels))
    chosen = settings(corpus, pruning={"target": 6, "size": 12, "negatives": 2})
    path = folder / "set.golden"
    with Store(path, create=True) as store:
        Build(chosen, store).run()
        store.execute(
            "UPDATE grades SET grade = NULL, failure = 'no JSON' WHERE query = 'q2' AND doc = 'd0'"
        )
        again = {"d1": 6 - truth("q1", "d1"), "d2": truth("q1", "d2")}
        assert again["d1"] != truth("q1", "d1")
        store.add_reply(
            Reply(
                *("again", "again", "grade", "q1", ("d1", "d2"), 1, 1, "p", "m", {}, "{}"),
                *(again, None, 1, 1, True, 0.0, 0.0, 1),
            )
        )
    return path


@contextmanager
def serving(path: Path, who: str = "ada", **more: Any) -> Iterator[str]:
    """The address of a running viewer."""
    with serving_all(path, Seat(who, **more)) as (url,):
        yield url


@contextmanager
def serving_all(
    path: Path, *seats: Seat, holes: dict[tuple[str, str], float] | None = None
) -> Iterator[list[str]]:
    """The addresses of several people at one viewer."""
    with Store(path) as store, listen(0) as listener:
        server, urls = make_server(store, seats, listener, holes)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield urls
        finally:
            server.should_exit = True
            thread.join()


def corrections(path: Path) -> list[tuple[Any, ...]]:
    """What people changed in a set."""
    with Store(path) as store:
        return [
            (c.query, c.doc, c.field, c.old, c.new, c.who, c.undoes) for c in store.corrections()
        ]


def marks(store: Store, who: str, **more: bool) -> list[Passage]:
    """Every passage as somebody sees it."""
    return list(passages(store, Seat(who, **more), store.active_corrections()))
