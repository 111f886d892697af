"""All passages of a set in memory, for the page: filtered, counted, and shown query by query."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from rankproof.foundation.errors import InputError, shorten
from rankproof.golden.annotators import Key, labels_by_person, settled_labels
from rankproof.golden.instructions import instruction
from rankproof.golden.judgments import Correction
from rankproof.golden.result import GoldenPassage, read_queries
from rankproof.golden.store import Store
from rankproof.golden.viewer.desk import Seat
from rankproof.golden.viewer.passages import Filter, Passage, fold, passages
from rankproof.presentation.json_values import plain_fields

if TYPE_CHECKING:
    import polars as pl

UNGRADED = 0  # among the grades of a filter
_MAX_FOLDED_BYTES = 200_000_000  # of texts that are kept for searching
_PRIOR_LABELS = 4.0  # labels that the guess counts for that people agree with the judge, or nearly
_RANK_FIELDS = ("rank", "judged_rank", "low", "high", "top")  # hidden from the blind
_COUNTED_MARKS = ("validated", "differs", "unsure", "unclear", "queue")
_MARKS = (*_COUNTED_MARKS, "noted")


class Index:
    """Every passage as one seat sees it; between requests, only what changed is read again."""

    def __init__(self, store: Store, seat: Seat, holes: Mapping[Key, float]):
        """`holes` are unlabeled passages, by their effect on a comparison of runs."""
        self.store = store
        self.seat = seat
        self.holes = holes
        self._build_state: Any = None
        self._last_correction = 0
        self._passages: dict[str, list[Passage]] = {}
        self._corrections: dict[str, list[Correction]] = {}
        self._questions: dict[str, str] = {}
        self._counts: dict[str, dict[str, Any]] = {}
        self._folded: pl.DataFrame | None = None
        self._flagged: set[str] | None = None
        self.refresh()

    def refresh(self) -> dict[str, list[Passage]]:
        """Read what changed; return the passages of each query, in the set's order."""
        store = self.store
        (build_state,) = store.rows(
            "SELECT (SELECT value FROM meta WHERE key = 'done'), (SELECT MAX(id) FROM replies), "
            "(SELECT COUNT(*) FROM assigned)"
        )
        last_correction = store.number("SELECT MAX(id) FROM corrections")
        if build_state != self._build_state:
            self._read_all()
        elif last_correction != self._last_correction:
            changed = "SELECT DISTINCT query FROM corrections WHERE id > ?"
            for (query,) in store.rows(changed, (self._last_correction,)):
                if query in self._passages:
                    self._corrections[query] = active = store.active_corrections(query)
                    self._passages[query] = list(passages(store, self.seat, active, query))
                    self._counts.pop(query, None)
        self._build_state, self._last_correction = build_state, last_correction
        return self._passages

    def _read_all(self) -> None:
        """Read every query, passage and correction."""
        store = self.store
        self._folded = self._flagged = None
        self._counts = {}
        self._questions = dict(store.rows("SELECT query, text FROM queries ORDER BY position"))
        self._passages = {query: [] for query in self._questions}
        self._corrections = {}
        active = store.active_corrections()
        for correction in active:
            self._corrections.setdefault(correction.query, []).append(correction)
        for passage in passages(store, self.seat, active):
            self._passages[passage.query].append(passage)

    def active_corrections(self) -> list[Correction]:
        """What people said that counts today."""
        self.refresh()
        return [c for corrections in self._corrections.values() for c in corrections]

    def correction_for_author(self, correction: Correction) -> dict[str, Any]:
        """A correction as its author may see it; the blind see neither old values nor ranks."""
        values = asdict(correction)
        by_doc = {p.doc: p for p in self.refresh().get(correction.query, [])}
        passage = by_doc.get(correction.doc)
        if self.seat.blind and not (passage is not None and passage.validated):
            values["old"] = None
            if correction.field == "rank" or correction.undoes is not None:
                values["new"] = None
        return values

    def fits(self, passage: Passage, criteria: Filter) -> bool:
        """True if a passage has one of the grades and the state of a filter."""
        if criteria.grades and (passage.grade or UNGRADED) not in criteria.grades:
            return False
        if criteria.state is None:
            return True
        if criteria.state == "open":
            return not passage.validated
        if criteria.state == "holes":
            return not passage.validated and (passage.query, passage.doc) in self.holes
        if criteria.state == "flagged":
            return passage.doc in self.flagged()
        return bool(getattr(passage, criteria.state))

    def flagged(self) -> Set[str]:
        """Passages that may contain a prompt injection; searched for when first needed."""
        if self._flagged is None:
            rows = self.store.rows("SELECT doc, text FROM passages")
            self._flagged = {doc for doc, text in rows if instruction(text) is not None}
        return self._flagged

    def matching(self, criteria: Filter, query: str | None = None) -> dict[str, Set[str]] | None:
        """The passages of each query that match a filter's words, source and list; None: all.

        `fits` checks its grades and state.
        """
        if not (criteria.words or criteria.source or criteria.found):
            return None
        queries = self._passages if query is None else {query: self._passages[query]}
        matches: dict[str, Set[str]] = {q: {p.doc for p in pool} for q, pool in queries.items()}
        if criteria.source or criteria.found:
            listed = self._listed(criteria, query)
            matches = {q: docs & listed.get(q, set()) for q, docs in matches.items()}
        if criteria.words:
            hits = self._containing(criteria.words, None if query is None else matches[query])
            for name, docs in matches.items():
                question = fold(f"{self._questions[name]} {name}")
                if not all(word in question for word in criteria.words):
                    matches[name] = docs & hits
        return matches

    def _listed(self, criteria: Filter, query: str | None) -> dict[str, set[str]]:
        """Pooled passages with the source and in the lists of a filter, by query."""
        conditions: list[str] = []
        values: list[str] = []
        if query is not None:
            conditions.append("pool.query = ?")
            values.append(query)
        if criteria.source:
            conditions.append("source = ?")
            values.append(criteria.source)
        for name in ("dense", "bm25") if criteria.found else ():
            negation = "" if criteria.found in (name, "both") else "NOT "
            conditions.append(
                f"{negation}EXISTS (SELECT 1 FROM retrieved AS r "
                f"WHERE r.query = pool.query AND r.list = '{name}' AND r.doc = pool.doc)"
            )
        join = "JOIN passages USING (doc) " if criteria.source else ""
        listed: dict[str, set[str]] = {}
        for name, doc in self.store.rows(
            f"SELECT query, doc FROM pool {join}WHERE {' AND '.join(conditions)}", values
        ):
            listed.setdefault(name, set()).add(doc)
        return listed

    def folded(self) -> pl.DataFrame:
        """Every passage (doc, text) as it is searched; cached unless the texts are too large."""
        import polars as pl

        if self._folded is not None:
            return self._folded
        sql = "SELECT doc, text || ' ' || doc || ' ' || IFNULL(source, '') FROM passages"
        rows = self.store.rows(sql)
        columns = {"doc": [doc for doc, _ in rows], "text": [fold(text) for _, text in rows]}
        folded = pl.DataFrame(columns, {"doc": pl.String, "text": pl.String})
        if folded["text"].str.len_bytes().sum() <= _MAX_FOLDED_BYTES:
            self._folded = folded
        return folded

    def _containing(self, words: Sequence[str], among: Set[str] | None) -> Set[str]:
        """Passages with each of the words in their text, name or source."""
        import polars as pl

        remaining = self.folded()
        if among is not None:
            remaining = remaining.filter(pl.col("doc").is_in(list(among)))
        for word in words:
            remaining = remaining.filter(pl.col("text").str.contains(word, literal=True))
        return set(remaining["doc"].to_list())

    def summaries(self, criteria: Filter, query: str | None = None) -> list[dict[str, Any]]:
        """The counts of one query, or of all that have a matching passage, in the set's order."""
        pools = self.refresh()
        matches = self.matching(criteria, query)
        summaries = []
        for name in pools if query is None else [query]:
            docs = None if matches is None else matches[name]
            if criteria.grades or criteria.state:
                fitting = (p for p in pools[name] if self.fits(p, criteria))
                count = sum(docs is None or p.doc in docs for p in fitting)
            else:
                count = len(pools[name] if docs is None else docs)
            if count or criteria.empty or query:
                summaries.append(self._count(name) | {"matches": count})
        return summaries

    def _count(self, query: str) -> dict[str, Any]:
        """The counts of a query, whatever the filter."""
        if query not in self._counts:
            pool = self._passages[query]
            grades = Counter(p.grade for p in pool)
            self._counts[query] = {
                "query": query,
                "text": self._questions[query],
                "passages": len(pool),
                "grades": [grades[grade] for grade in range(1, 6)],
                "failed": sum(p.grade is None and p.failure is not None for p in pool),
                **{mark: sum(getattr(p, mark) for p in pool) for mark in _COUNTED_MARKS},
            }
        return self._counts[query]

    def question(self, query: str, criteria: Filter) -> dict[str, Any]:
        """A query with its passages in order: everything but the judge's replies."""
        marks = {p.doc: p for p in self.refresh().get(query, [])}
        if not marks:
            raise InputError(f"there is no question {shorten(query)}", place=str(self.store.path))
        (golden_query,) = read_queries(self.store, query, self.seat.visible_author)
        replaceable = [c for c in self._corrections.get(query, []) if self._is_replaceable(c)]
        own_labels = {c.doc: c for c in replaceable if c.field == "grade"}
        moves = [c.id for c in replaceable if c.field == "rank"]
        labels = labels_by_person(self._corrections.get(query, [])) if self.seat.settles else {}
        matches = self.matching(criteria, query)
        lists = self._ranks_by_list(query)
        items = []
        for p in golden_query.passages:
            mark = marks[p.doc]
            people = [_label_item(c) for _, c in sorted(labels.get((query, p.doc), {}).items())]
            matches_filter = matches is None or p.doc in matches[query]
            item = self._passage_item(p, mark, own_labels.get(p.doc), lists.get(p.doc, {}))
            item |= {"people": people, "matches": self.fits(mark, criteria) and matches_filter}
            items.append(item)
        if self.seat.blind:
            items.sort(key=lambda item: item["doc"])  # the judge's order would show its opinion
        return {
            **plain_fields(golden_query, "query", "text", "asked", "reason"),
            **plain_fields(golden_query, "calls", "failed", "overlap"),
            "depth": _depth(self.store),
            "ranked": len(golden_query.ranked),
            "moves": moves[-1] if moves else 0,
            "passages": items,
        }

    def _is_replaceable(self, correction: Correction) -> bool:
        """True for a correction that a new one of this seat would replace."""
        if self.seat.settles:
            return correction.settles
        is_label = correction.field == "grade"
        return correction.who == self.seat.who and not (is_label and correction.settles)

    def _ranks_by_list(self, query: str) -> dict[str, dict[str, int]]:
        """The rank of each passage in each list that contains it."""
        ranks: dict[str, dict[str, int]] = {}
        for name, doc, rank in self.store.rows(
            "SELECT list, doc, rank FROM retrieved WHERE query = ? ORDER BY list DESC", (query,)
        ):
            ranks.setdefault(doc, {})[name] = rank
        return ranks

    def _passage_item(
        self, p: GoldenPassage, mark: Passage, label: Correction | None, ranks: Mapping[str, int]
    ) -> dict[str, Any]:
        """A passage for the page, with one's own `label` and its rank in each list."""
        is_hidden = self.seat.blind and not mark.validated
        rank_values = dict.fromkeys(_RANK_FIELDS) if is_hidden else plain_fields(p, *_RANK_FIELDS)
        return {
            **plain_fields(p, "doc", "text", "source"),
            **plain_fields(mark, "grade", "judged"),
            "again": mark.others,
            "failure": mark.failure,
            **rank_values,
            "lists": {} if is_hidden else ranks,
            "mine": None if label is None else _label_item(label),
            "seen": 0 if label is None else label.id,
            **{name: getattr(mark, name) for name in _MARKS},
            "instruction": instruction(p.text),
            "hole": self.holes.get((mark.query, p.doc)) if not mark.validated else None,
        }

    def next(self, by: Literal["gain", "random"]) -> dict[str, str] | None:
        """The passage to label next: where a label tells most, or one drawn by the set's seed.

        One's own queue comes first; who settles is offered what people disagree on.
        """
        pooled = [p for pool in self.refresh().values() for p in pool]
        if self.seat.settles and by == "gain":
            disagreements = self._disagreements()
            keys = [(p.query, p.doc) for p in pooled]
            values = {key: disagreements[key] for key in keys if key in disagreements}
        else:
            candidates = [p for p in pooled if not p.validated and not p.unsure]
            candidates = [p for p in candidates if p.queue] or candidates
            value = self._label_value(pooled) if by == "gain" else lambda p: 0.0
            values = {(p.query, p.doc): value(p) for p in candidates}
        if not values:
            return None
        most = max(values.values()) - 1e-12
        seed = int(self.store.meta("config")["seed"])

        def draw(key: Key) -> bytes:
            return hashlib.sha256(repr((seed, key)).encode()).digest()

        query, doc = min((key for key, value in values.items() if value >= most), key=draw)
        return {"query": query, "doc": doc}

    def _label_value(self, pooled: Sequence[Passage]) -> Callable[[Passage], float]:
        """A function that says how much a label would tell; what decides a comparison is first."""
        gain = _label_gain(pooled)
        return lambda p: gain(p) + 100 * self.holes.get((p.query, p.doc), 0)

    def _disagreements(self) -> dict[Key, float]:
        """How far people's grades are apart where nothing is settled; doubt is half a step."""
        active = self.active_corrections()
        settled = set(settled_labels(active))
        disagreements = {}
        for key, labels in labels_by_person(active).items():
            grades = [label.new for label in labels.values() if label.new is not None]
            distance = float(max(grades) - min(grades)) if grades else 0.0
            distance += 0.5 * any(not label.sure for label in labels.values())
            if distance and key not in settled:
                disagreements[key] = distance
        return disagreements


def _label_item(label: Correction) -> dict[str, Any]:
    """A label for the page."""
    item = {"who": label.who, "grade": label.new, "sure": label.sure}
    return {**item, "note": label.note, "at": label.at}


def _label_gain(pooled: Sequence[Passage]) -> Callable[[Passage], float]:
    """Return a function that estimates how many bits a person's label of a passage would tell.

    The sum of two entropies:
    - of the person's grade, given the judge's. Its distribution is estimated from people's labels
      of passages with that grade by the judge, smoothed by a prior that mostly agrees with it
      (∝ e^−d at d grades apart). Where the judge gave several grades, it is a mean of several.
    - of whether the passage belongs to the top.
    """
    counts = [[0.0] * 5 for _ in range(5)]
    for p in pooled:
        if p.validated and p.judged is not None and p.grade is not None:
            counts[p.judged - 1][p.grade - 1] += 1
    distributions = []  # of the person's grade, for each grade of the judge
    for judged, observed in enumerate(counts):
        prior = [math.exp(-abs(judged - grade)) for grade in range(5)]
        weights = [
            n + _PRIOR_LABELS * weight / sum(prior)
            for n, weight in zip(observed, prior, strict=True)
        ]
        distributions.append([weight / sum(weights) for weight in weights])

    @cache
    def grade_entropy(judge_grades: tuple[int, ...]) -> float:
        mixed = [distributions[grade - 1] for grade in judge_grades] or distributions
        return _entropy([sum(d[grade] for d in mixed) / len(mixed) for grade in range(5)])

    def gain(p: Passage) -> float:
        judge_grades = p.others if p.judged is None else (p.judged, *p.others)
        top_entropy = 0.0 if p.top is None else _entropy([p.top, 1 - p.top])
        return grade_entropy(judge_grades) + top_entropy

    return gain


def _entropy(probabilities: Sequence[float]) -> float:
    return -sum(p * math.log2(p) for p in probabilities if p > 0)


def _depth(store: Store) -> int:
    """The ranks that were to be right."""
    config = store.meta("config")
    return int(config["ranking"]["depth"] or config["pruning"]["target"])
