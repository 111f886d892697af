"""Chunking as an axis of a sweep: the same judgments for every way of cutting."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import rankproof as rp
from rankproof.retrieval.chunks import ChunkSettings
from rankproof.retrieval.workshop import Texts
from rankproof.tradeoffs import recommend
from rankproof.tradeoffs.chunked import cut_documents, cut_with_judgments
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import Swept, sweep

TOPICS = ("tides", "bees", "glass", "sleep", "ice", "bikes", "salt", "moss")


def documents(folder: Path) -> Path:
    """Long documents of which one part answers; judged by spans."""
    (folder / "qrels").mkdir(parents=True)
    rows, asked, judged = [], [], ["query-id\tcorpus-id\tscore"]
    for at, topic in enumerate(TOPICS):
        other = TOPICS[(at + 1) % len(TOPICS)]
        answer = f"The cause of {topic} trouble is the wear of {topic} parts."
        filler = " ".join(f"A note on {other} follows number {n}." for n in range(6))
        text = f"{filler}\n\n{answer}\n\n{filler}"
        begins = text.index(answer)
        rows.append({"_id": f"d{at}", "text": text})
        asked.append({"_id": f"q{at}", "text": f"What is the cause of {topic} trouble?"})
        judged.append(f"q{at}\td{at}#{begins}-{begins + len(answer)}\t5")
        judged.append(f"q{at}\td{at}#0-{len(filler)}\t1")
    for name, lines in (("corpus", rows), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    (folder / "qrels" / "test.tsv").write_text("\n".join(judged) + "\n")
    return folder


def settings(corpus: Path, **more: object) -> SweepSettings:
    chunkings = {"none": None, "small": {"size": 120}, "large": {"size": 400, "overlap": 60}}
    return SweepSettings.model_validate(
        {"corpus": corpus, "modes": ["sparse"], "pools": [8], "prompts": [2], "at": [2]}
        | {"chunkings": chunkings, "generator": "GPT-5 mini"}
        | {"latency": {"queries": 2, "repeats": 1, "warmup": 0}}
        | more
    )


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    place = tmp_path_factory.mktemp("chunked")
    return sweep(settings(documents(place / "corpus")), place / "out")


def test_every_chunking_is_a_row_over_the_same_queries(swept: Swept) -> None:
    frame = swept.configurations
    assert frame["chunking"].to_list() == ["none", "small", "large"]
    assert frame["configuration"].to_list()[1] == "sparse chunking=small K=8 top 2"
    assert frame["RAnWG@2 queries"].to_list() == [len(TOPICS)] * 3
    counts = swept.manifest["chunks"]
    assert counts["none"] == len(TOPICS) < counts["large"] < counts["small"]
    cost = dict(frame.select("chunking", "cost_per_1000").iter_rows())
    assert cost["small"] < cost["large"] < cost["none"]  # of the passages that they put in a prompt


def test_values_are_those_of_the_run_on_the_same_judgments(swept: Swept) -> None:
    judged = swept.folder / "judgements.parquet"
    assert pl.read_parquet(judged).height == 2 * len(TOPICS)
    for row in swept.configurations.iter_rows(named=True):
        found = rp.evaluate(judged, swept.folder / row["run"], ["RAnWG@2", "nDCG(rel=3)@10"])
        assert found["RAnWG@2"].expected == pytest.approx(row["RAnWG@2"])
        assert found["nDCG(rel=3)@10"].expected == pytest.approx(row["nDCG(rel=3)@10"])


def test_a_sweep_of_several_chunkings_has_a_recommendation_and_a_page(
    swept: Swept, tmp_path: Path
) -> None:
    found = recommend(swept.folder, sla_ms=1e6)
    assert found.choices[0].configuration in swept.configurations["configuration"]
    pytest.importorskip("jinja2")
    from rankproof.report import write_report

    path, broken = write_report(swept.folder, tmp_path / "page.html")
    assert not broken
    assert "documents cut by small" in path.read_text(encoding="utf-8")


def credited(cut: ChunkSettings | None, run: dict[str, float], grades: dict[str, int]) -> list[str]:
    """Return the ids of judged spans and unjudged chunks that a list of chunks stands for."""
    texts = Texts(["a", "b"], ["One is here. Two is there.", "Three."])
    chunking = cut_with_judgments(cut, texts, rp.read_qrels({"q": grades}))
    return chunking.credit(rp.read_run({"q": run})).doc.to_list()


SMALL = ChunkSettings(size=13)  # a#0-12, a#13-26, b#0-6


def test_a_judged_span_counts_once_however_it_was_cut() -> None:
    whole = {"a": 5, "b": 2}
    assert credited(None, {"a": 2.0, "b": 1.0}, whole) == ["a", "b"]
    found = {"a#13-26": 3.0, "b#0-6": 2.0, "a#0-12": 1.0}
    assert credited(SMALL, found, whole) == ["a", "b", "a#0-12"]


def test_a_chunk_is_replaced_by_the_good_spans_it_holds_best_first() -> None:
    spans = {"a#0-12": 4, "a#13-26": 5, "a#4-6": 1, "b": 1}
    assert credited(None, {"b": 2.0, "a": 1.0}, spans) == ["b", "a#13-26", "a#0-12"]
    assert credited(SMALL, {"a#0-12": 2.0, "a#13-26": 1.0}, spans) == ["a#0-12", "a#13-26"]


def test_a_chunk_that_is_itself_judged_never_appears_twice() -> None:
    run = {"a#13-26": 2.0, "a#0-12": 1.0}
    assert credited(SMALL, run, {"a": 5, "a#13-26": 5}) == ["a", "a#13-26", "a#0-12"]
    assert credited(SMALL, run, {"a#12-25": 5, "gone": 3}) == ["a#12-25", "a#0-12"]


def test_passages_know_their_documents() -> None:
    texts = Texts(["a", "b"], ["One is here. Two is there.", "Three."])
    passages, spans = cut_documents(SMALL, texts)
    assert passages.texts == ["One is here.", "Two is there.", "Three."]
    assert spans["source"].to_list() == ["a", "a", "b"]
    assert cut_documents(None, texts)[0] is texts


def test_every_chunking_is_driven_under_load(tmp_path: Path) -> None:
    load = {"qps": [200], "seconds": 0.05, "arrivals": "fixed"}
    made = sweep(settings(documents(tmp_path / "corpus"), load=load), tmp_path / "out")
    assert made.load is not None
    engines = ["sparse", "sparse chunking=small", "sparse chunking=large"]
    assert made.load["engine"].to_list() == engines
    assert made.load["answered"].to_list() == [10, 10, 10]


def test_unjudged_chunks_are_judged_with_the_coarsest_chunking_first(tmp_path: Path) -> None:
    """A chunk that holds a judged passage is not sent to the judge."""
    corpus = documents(tmp_path / "corpus")
    (corpus / "golden.yaml").write_text("corpus: .\n")
    asked: list[tuple[str, str]] = []

    def judge(pairs: list[tuple[str, str]]) -> list[int]:
        asked.extend(pairs)
        return [1] * len(pairs)

    chunkings = {"small": {"size": 120}, "large": {"size": 400}}
    chosen = settings(corpus, chunkings=chunkings, holes="judge", judge=corpus / "golden.yaml")
    made = sweep(chosen, tmp_path / "out", judge=judge)
    assert [note.partition(":")[0] for note in made.manifest["notes"][:2]] == ["large", "small"]
    spans: list[tuple[str, int, int]] = []
    for query, doc in asked:
        source, _, span = doc.partition("#")
        first, last = map(int, span.split("-"))
        spans.append((f"{query} {source}", first, last))
    assert min(end - start for _, start, end in spans) <= 120  # chunks of both
    for at, (where, start, end) in enumerate(spans):
        for other, low, high in spans[:at]:
            assert where != other or not low <= start < end <= high
    known = pl.read_parquet(tmp_path / "out" / "judgements.parquet")
    assert set(asked) < set(known.select("query", "doc").iter_rows())
    assert made.configurations["RAnWG@2 judged"].min() == 1.0
