"""Levels of noise, what they cost and what rewriting recovers, against their definitions."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_embedder import Toy

import rankproof as rp
from rankproof.diagnostics import LEVELS, JudgedCorpus, add_noise, diagnose_noise
from rankproof.diagnostics.conversation import shipped_questions, shipped_texts
from rankproof.diagnostics.name_lists import LANGUAGES, Language
from rankproof.foundation.errors import InputError
from rankproof.retrieval.protocols import Vectors
from rankproof.retrieval.rewriters import make_rewriter
from rankproof.retrieval.rewriters.rules import RulesRewriterSettings

every = pytest.mark.parametrize("language", LANGUAGES)
DATA = Path(os.environ.get("RANKPROOF_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))


def subsequence(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(piece in rest for piece in part)


@every
def test_a_level_includes_the_noise_of_the_level_below(language: Language) -> None:
    for question, _ in shipped_questions(language):
        levels = [add_noise(question, level, language, 3) for level in LEVELS]
        assert levels[0].text == question
        for lower, higher in pairwise(levels):
            assert subsequence(lower.before, higher.before)
            assert subsequence(lower.after, higher.after)
            added = len(higher.before + higher.after) - len(lower.before + lower.after)
            assert added >= 1
        assert [level.question for level in levels[:4]] == [question] * 4
        assert levels[4].question != question


@every
def test_each_kind_of_noise_begins_at_its_level(language: Language) -> None:
    pieces = shipped_texts(language)
    for kind, first in (
        *(("greetings", 1), ("polite", 1), ("fillers", 2), ("hedges", 2)),
        *(("contexts", 3), ("digressions", 4), ("emoji", 4)),
    ):
        for level in LEVELS:
            noisy = add_noise("Why is it so?", level, language, 1)
            drawn = [*noisy.before, *noisy.after]
            assert bool(set(pieces[kind]) & set(drawn)) == (level >= first), (kind, level)


@given(st.text(max_size=60), st.integers(0, 99), st.sampled_from(LANGUAGES))
def test_any_text_can_be_given_noise_which_a_seed_repeats(
    text: str, seed: int, language: Language
) -> None:
    for level in LEVELS:
        noisy = add_noise(text, level, language, seed)
        assert noisy == add_noise(text, level, language, seed)
        # A slip swaps, drops or doubles letters: it never invents one.
        assert set(noisy.question) <= set(text) | set(text.lower())


@every
def test_questions_ship_with_a_passage_that_answers_them(language: Language) -> None:
    pairs = shipped_questions(language)
    assert len(pairs) == len({q for q, _ in pairs}) >= 30
    assert all(q.rstrip().endswith("?") and p.endswith(".") for q, p in pairs)


def cosine(a: str, b: str) -> float:
    x, y = (v.astype(np.float64) for v in Toy().embed_queries([a, b]))
    return float(x @ y / math.sqrt((x @ x) * (y @ y)))


class PerfectRewriter:
    """Gives back the question that a noised one holds."""

    name = "perfect"

    def __init__(self, language: Language, seeds: Sequence[int]):
        self.calls: list[str] = []
        self._clean = {
            add_noise(q, level, language, seed).text: q
            for q, _ in shipped_questions(language)
            for level in LEVELS
            for seed in seeds
        }

    def rewrite(self, query: str) -> str:
        self.calls.append(query)
        return self._clean[query]


@every
def test_cosines_drops_and_recovery_are_those_of_the_definition(language: Language) -> None:
    rewriter = PerfectRewriter(language, range(2))
    result = diagnose_noise(
        Toy(), language=language, queries=6, runs=2, rewriters=[rewriter], seed=0
    )
    pairs = shipped_questions(language)[:6]
    for level in LEVELS:
        texts = [[add_noise(q, level, language, run).text for q, _ in pairs] for run in range(2)]
        clean = [[cosine(t, q) for t, (q, _) in zip(run, pairs, strict=True)] for run in texts]
        passage = [[cosine(t, p) for t, (_, p) in zip(run, pairs, strict=True)] for run in texts]
        row = result.at(level)
        assert row.cosine["clean"].mean == pytest.approx(np.mean(clean))
        assert row.cosine["passage"].mean == pytest.approx(np.mean(passage))
        assert row.cosine["clean"].sd == pytest.approx(np.mean(clean, axis=1).std(ddof=1), abs=1e-9)
        before = np.array([cosine(q, p) for q, p in pairs])
        percent = (np.array(passage) - before) / before * 100
        assert row.percent["passage"].mean == pytest.approx(percent.mean(), abs=1e-9)
        assert math.isnan(row.recovered["clean"])
        again = result.at(level, "perfect")
        assert again.cosine["clean"].mean == pytest.approx(1.0)
        assert level == 0 or again.recovered["clean"] == pytest.approx(1.0)
    assert len(rewriter.calls) == len(set(rewriter.calls))
    assert json.dumps(result.to_dict(), allow_nan=False)


def test_the_cosine_to_the_clean_query_falls_from_level_to_level() -> None:
    result = diagnose_noise(Toy(), queries=20, runs=2)
    means = [result.at(level).cosine["clean"].mean for level in LEVELS]
    assert means == sorted(means, reverse=True)
    assert means[0] == pytest.approx(1.0)


def corpus_of(tmp_path: Path, grade: int = 1) -> Path:
    folder = tmp_path / "texts"
    (folder / "qrels").mkdir(parents=True)
    pairs = shipped_questions("en")
    rows = {
        "corpus": [{"_id": f"d{i}", "text": p} for i, (_, p) in enumerate(pairs)],
        "queries": [{"_id": f"q{i}", "text": q} for i, (q, _) in enumerate(pairs)],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    judged = [f"q{i}\td{i}\t{grade}" for i in range(len(pairs))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    return folder


@pytest.mark.parametrize(("grade", "measure"), [(1, "nDCG@10"), (5, "NRecall4@10")])
def test_each_level_is_searched_and_measured(tmp_path: Path, grade: int, measure: str) -> None:
    result = diagnose_noise(Toy(), corpus=corpus_of(tmp_path, grade), queries=10, runs=2)
    assert result.measure == measure
    corpus = JudgedCorpus.read(tmp_path / "texts").sample(10, 0)
    for level in (0, 4):
        values = []
        for run in range(2):
            ranked = {
                key: {
                    document: cosine(add_noise(query, level, "en", run).text, text)
                    for document, text in zip(corpus.document_ids, corpus.documents, strict=True)
                }
                for key, query in zip(corpus.query_ids, corpus.queries, strict=True)
            }
            judged = {key: {f"d{key[1:]}": grade} for key in corpus.query_ids}
            values.append(rp.evaluate(judged, ranked, measure)[measure].expected)
        row = result.at(level).retrieval
        assert row is not None
        assert row.measure.mean == pytest.approx(np.mean(values), abs=1e-6)
    base = result.at(0).retrieval
    assert base is not None
    assert (base.change.mean, base.overlap.mean, base.tau.mean) == (0.0, 1.0, 1.0)
    assert result.prediction["across_levels"].points == 4
    assert "Only 4 points" in "\n".join(result.words())


def test_a_sample_of_queries_keeps_their_order(tmp_path: Path) -> None:
    corpus = JudgedCorpus.read(corpus_of(tmp_path))
    some = corpus.sample(7, 0)
    assert len(some.queries) == 7
    assert subsequence(some.query_ids, corpus.query_ids)
    assert some.query_ids == corpus.sample(7, 0).query_ids != corpus.sample(7, 1).query_ids
    assert corpus.sample(100, 0) is corpus
    assert set(corpus.sample(4, 0).query_ids) < set(some.query_ids)


def test_a_corpus_without_judged_queries_is_refused(tmp_path: Path) -> None:
    folder = corpus_of(tmp_path)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nx\td1\t1\n")
    with pytest.raises(InputError, match="0 of 30 queries have a relevant passage"):
        JudgedCorpus.read(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"language": "it"}, "language 'it' has no templates"),
        ({"queries": 1}, "queries = 1"),
        ({"runs": True}, "runs = True"),
        ({"corpus": "nowhere"}, "nowhere: there is no such folder"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        diagnose_noise(Toy(), **settings)  # type: ignore[arg-type]


@pytest.mark.slow
def test_noise_lowers_retrieval_on_scifact() -> None:
    if not (DATA / "scifact").is_dir():
        pytest.skip("no SciFact; set RANKPROOF_DATA")
    from rankproof.retrieval.embedders import make_embedder
    from rankproof.retrieval.embedders.wordllama import WordllamaSettings

    embedder = make_embedder(WordllamaSettings())
    result = diagnose_noise(embedder, corpus=DATA / "scifact", queries=60, runs=1)
    high = result.at(4).retrieval
    assert high is not None
    assert high.change.ci[1] < 0
    assert result.prediction["across_queries"].pearson > 0


class ConstantEmbedder:
    """One vector for every text: noise moves nothing."""

    name = fingerprint = "fixed"

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 2), np.float32)

    embed_passages = embed_queries


def test_an_unchanged_cosine_is_not_called_a_rise_or_a_fall() -> None:
    rules = make_rewriter(RulesRewriterSettings(language="en"))
    first, second = diagnose_noise(ConstantEmbedder(), queries=4, runs=1, rewriters=[rules]).words()
    assert "from 1.000 to 1.000, a change not told apart from none" in first
    assert "recovers nothing, as nothing is lost at level 4" in second
