"""MTEB tasks through rankproof: mteb's own values, and what ties could change."""

from __future__ import annotations

import importlib
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when the hub's client is imported
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")
torch = pytest.importorskip("torch", reason="needs the torch extra")
pytest.importorskip("sentence_transformers", reason="needs the torch extra")
mteb = pytest.importorskip("mteb", reason="needs the mteb extra")
Dataset = pytest.importorskip("datasets", reason="comes with mteb").Dataset
AbsTaskClassification: Any = importlib.import_module("mteb.abstasks").AbsTaskClassification
AbsTaskRetrieval: Any = importlib.import_module("mteb.abstasks").AbsTaskRetrieval
TaskMetadata = importlib.import_module("mteb.abstasks.task_metadata").TaskMetadata

from tiny_models import cross_encoder, sentence_transformer, sentences  # noqa: E402

import rankproof as rp  # noqa: E402
from rankproof import InputError, MissingExtra  # noqa: E402
from rankproof.precision.mteb import MEASURES, SUMMARY_FIELDS, evaluate  # noqa: E402

# mteb calls its own function with a parameter that it has deprecated.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The fill_missing parameter is deprecated"),
    # mteb calls sentence-transformers' method by its former name.
    pytest.mark.filterwarnings("ignore:The `get_sentence_embedding_dimension` method has been"),
]

QUERIES = {f"q{i}": text for i, text in enumerate(sentences(12, 3, seed=3))}
CORPUS = {f"d{i}": text for i, text in enumerate(sentences(60, 6, seed=4))}
QRELS = {q: {f"d{(7 * i + j) % 60}": 1 + j % 2 for j in range(4)} for i, q in enumerate(QUERIES)}
# Every document three times, one of them relevant: nothing but ties.
COPIES = {f"{d}-{copy}": text for d, text in CORPUS.items() for copy in "abc"}
COPY_QRELS = {q: {f"{d}-b": grade for d, grade in docs.items()} for q, docs in QRELS.items()}


def metadata(name: str, kind: str) -> Any:
    return TaskMetadata(
        name=name,
        description="Made for a test.",
        reference="https://example.org",
        dataset={"path": "NA", "revision": "NA"},
        type=kind,
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=("2022-12-22", "2022-12-22"),
        domains=[],
        task_subtypes=[],
        license="cc-by-4.0",
        annotations_creators="derived",
        dialect=[],
        sample_creation="found",
        bibtex_citation="",
    )


class Local(AbsTaskRetrieval):  # type: ignore[misc]
    """A task whose data are in memory."""

    texts = CORPUS
    judged = QRELS
    candidates: dict[str, list[str]] | None = None

    def load_data(self, *_: Any, **__: Any) -> None:
        self.dataset = {
            "default": {
                "test": {
                    "queries": Dataset.from_list(
                        [{"id": q, "text": t} for q, t in QUERIES.items()]
                    ),
                    "corpus": Dataset.from_list(
                        [{"id": d, "text": t, "title": ""} for d, t in self.texts.items()]
                    ),
                    "relevant_docs": {q: dict(docs) for q, docs in self.judged.items()},
                    "top_ranked": self.candidates,
                }
            }
        }
        self.data_loaded = True


class LocalRetrieval(Local):
    metadata = metadata("LocalRetrieval", "Retrieval")


class TiedRetrieval(Local):
    metadata = metadata("TiedRetrieval", "Retrieval")
    texts, judged = COPIES, COPY_QRELS


class SkippingRetrieval(Local):
    metadata = metadata("SkippingRetrieval", "Retrieval")
    skip_first_result = True

    def task_specific_scores(self, *_: Any, **__: Any) -> dict[str, float]:
        return {"of_its_own": 0.25}


class LocalReranking(Local):
    metadata = metadata("LocalReranking", "Reranking")
    candidates = {
        q: sorted({*docs, *(f"d{(11 * i + 3 * j) % 60}" for j in range(20))})
        for i, (q, docs) in enumerate(QRELS.items())
    } | {"q11": []}


class LocalClassification(AbsTaskClassification):  # type: ignore[misc]
    metadata = metadata("LocalClassification", "Classification")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sentence_transformer(tmp_path_factory.mktemp("encoder"), "bfloat16")


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return cross_encoder(tmp_path_factory.mktemp("reranker"), 1, "bfloat16")


def run(model: Any, tasks: Any, **options: Any) -> Any:
    return evaluate(model, tasks, show_progress_bar=False, co2_tracker=False, **options)


def scores(evaluations: Any, number: int = 0) -> dict[str, float]:
    values: dict[str, float] = evaluations.result.task_results[number].scores["test"][0]
    return values


def test_without_ties_all_values_equal_those_of_mteb(encoder: Any) -> None:
    evaluations = run(encoder, LocalRetrieval())
    values = scores(evaluations)
    assert evaluations.high_precision
    assert evaluations["LocalRetrieval"].tied == 0
    assert 0 < values["ndcg_at_10"] < 1
    for name in ("ndcg_at_10", "mrr_at_10", "map_at_100", "recall_at_100"):
        for summary_field in ("expected", "oblivious", "min", "max"):
            assert values[f"{name}_{summary_field}"] == pytest.approx(values[name], abs=6e-6)
        assert values[f"{name}_range"] == values[f"{name}_bias"] == values[f"{name}_std"] == 0


def test_with_ties_mtebs_value_is_the_one_as_listed(encoder: Any) -> None:
    evaluations = run(encoder, [TiedRetrieval()])
    values, evaluation = scores(evaluations), evaluations["TiedRetrieval", "test", "default"]
    assert evaluation.tied == len(QUERIES)
    assert values["ndcg_at_10_oblivious"] == pytest.approx(values["ndcg_at_10"], abs=6e-6)
    assert values["mrr_at_10_oblivious"] == pytest.approx(values["mrr_at_10"], abs=6e-6)
    assert values["ndcg_at_10_min"] < values["ndcg_at_10_expected"] < values["ndcg_at_10_max"]
    assert values["ndcg_at_10_bias"] == evaluation["nDCG@10"].bias
    assert values["main_score"] == values["ndcg_at_10"], "mteb's own values stay"


@pytest.mark.parametrize("kind", ["encoder", "reranker"])
def test_reranking_tasks_run_with_encoders_and_rerankers(
    kind: str, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(kind)
    evaluations = run(model, LocalReranking())
    values = scores(evaluations)
    assert evaluations.high_precision
    assert len(evaluations["LocalReranking"].queries) == len(QUERIES)
    for name in ("ndcg_at_10", "mrr_at_10", "map_at_100", "recall_at_100"):
        assert values[f"{name}_oblivious"] == pytest.approx(values[name], abs=6e-6)


def test_low_precision_scores_tie_and_high_precision_scores_do_not(encoder: Any) -> None:
    high = run(encoder, LocalRetrieval())["LocalRetrieval"]
    low = run(encoder, LocalRetrieval(), score_dtype="bfloat16")["LocalRetrieval"]
    assert high.tied == 0
    assert low.tied > 0
    assert low["nDCG@10"].range > 0
    assert low.dtype == "bfloat16"


def test_without_high_precision_mtebs_own_scores_are_unchanged(encoder: Any) -> None:
    options = {"show_progress_bar": False, "co2_tracker": False, "cache": None}
    plain = mteb.evaluate(encoder, LocalRetrieval(), **options).task_results[0].scores["test"][0]
    evaluations = run(encoder, LocalRetrieval(), high_precision=False)
    assert not evaluations.high_precision
    assert {k: v for k, v in scores(evaluations).items() if k in plain} == plain
    endings = tuple(f"_{name}" for name in SUMMARY_FIELDS)
    new = set(scores(evaluations)) - set(plain)
    assert len(new) == len(MEASURES) * len(SUMMARY_FIELDS)
    assert all(name.endswith(endings) for name in new)


class LowPrecisionEncoder:
    """An encoder of mteb's protocol that scores in the format of its embeddings."""

    def __init__(self, inner: Any):
        self._inner = mteb.models.SentenceTransformerEncoderWrapper(inner)
        self.mteb_model_meta = self._inner.mteb_model_meta

    def encode(self, *inputs: Any, **options: Any) -> Any:
        return torch.as_tensor(self._inner.encode(*inputs, **options)).bfloat16()

    def similarity(self, a: Any, b: Any) -> Any:
        a, b = (torch.nn.functional.normalize(x, dim=1) for x in (a, b))
        return (a @ b.T).float()

    def similarity_pairwise(self, a: Any, b: Any) -> Any:
        return self.similarity(a, b).diagonal()


def test_an_encoder_with_its_own_similarity_compares_float32_embeddings(encoder: Any) -> None:
    model = LowPrecisionEncoder(encoder)
    plain = run(model, LocalRetrieval(), high_precision=False)["LocalRetrieval"]
    high = run(model, LocalRetrieval())
    assert plain.tied > 0
    assert high["LocalRetrieval"].tied == 0
    assert high.high_precision
    assert "similarity" not in vars(model)


def test_the_model_inside_mtebs_wrapper_scores_in_float32(encoder: Any) -> None:
    wrapped = mteb.models.SentenceTransformerEncoderWrapper(encoder)
    same = scores(run(wrapped, LocalRetrieval()))
    assert same == scores(run(encoder, LocalRetrieval()))
    assert "similarity" not in vars(wrapped)


class ConstantSearch:
    """A model that searches by itself, so that there is nothing to upcast."""

    mteb_model_meta = mteb.models.ModelMeta.create_empty()

    def index(self, *_: Any, **__: Any) -> None:
        pass

    def search(self, queries: Any, **_: Any) -> dict[str, dict[str, float]]:
        return {q: {"d0": 1.0, "d7": 1.0, "d14": 0.5} for q in queries["id"]}


def test_a_model_that_searches_by_itself_is_not_changed() -> None:
    evaluations = run(ConstantSearch(), LocalRetrieval())
    assert not evaluations.high_precision
    assert evaluations["LocalRetrieval"].tied == len(QUERIES)


def test_a_task_keeps_its_own_scores_and_skips_its_first_result(encoder: Any) -> None:
    task = SkippingRetrieval()
    values = scores(run(encoder, task))
    assert values["of_its_own"] == 0.25
    assert values["ndcg_at_10_expected"] == pytest.approx(values["ndcg_at_10"], abs=6e-6)
    assert "task_specific_scores" not in vars(task)


def test_several_tasks_run_with_other_measures(encoder: Any) -> None:
    tasks = [LocalRetrieval(), TiedRetrieval()]
    evaluations = run(encoder, tasks, measures=["P@5", "Success@5", "AP(rel=2)@100", "RBP"])
    assert [t.task_name for t in evaluations.result.task_results] == [
        "LocalRetrieval",
        "TiedRetrieval",
    ]
    assert set(evaluations.evaluations) == {
        (name, "test", "default") for name in ("LocalRetrieval", "TiedRetrieval")
    }
    values = scores(evaluations, 1)
    assert values["precision_at_5_oblivious"] == pytest.approx(values["precision_at_5"], abs=6e-6)
    assert values["hit_rate_at_5_oblivious"] == pytest.approx(values["hit_rate_at_5"], abs=6e-6)
    assert {"ap(rel=2)_at_100_expected", "rbp_expected"} <= set(values)
    with pytest.raises(KeyError, match="SciFact was not evaluated; there are"):
        _ = evaluations["SciFact"]


def test_the_tasks_inside_an_aggregate_are_measured(encoder: Any) -> None:
    of = importlib.import_module("mteb.abstasks.aggregate_task_metadata").AggregateTaskMetadata
    base: Any = importlib.import_module("mteb.abstasks.aggregated_task").AbsTaskAggregate

    class Both(base):  # type: ignore[misc]
        metadata = of(
            name="Both",
            description="Made for a test.",
            reference="https://example.org",
            type="Retrieval",
            tasks=[LocalRetrieval(), TiedRetrieval()],
            main_score="ndcg_at_10",
            eval_splits=["test"],
            bibtex_citation="",
        )

    evaluations = run(encoder, Both())
    assert [task for task, _, _ in evaluations.evaluations] == ["LocalRetrieval", "TiedRetrieval"]
    assert [t.task_name for t in evaluations.result.task_results] == ["Both"]


def test_values_are_stored_in_mtebs_result_file(encoder: Any, tmp_path: Path) -> None:
    evaluations = run(encoder, TiedRetrieval(), cache=mteb.ResultCache(cache_path=tmp_path))
    (saved,) = tmp_path.rglob("TiedRetrieval.json")
    again = mteb.TaskResult.from_disk(saved).scores["test"][0]
    assert again["ndcg_at_10_max"] == pytest.approx(scores(evaluations)["ndcg_at_10_max"], abs=1e-6)


def test_the_model_and_the_tasks_are_restored_after_an_error(encoder: Any) -> None:
    encoder.similarity_fn_name = "cosine"
    before = {k: v for k, v in vars(encoder).items() if "similarity" in k}
    task = LocalRetrieval()
    task.judged = {q: {"d0": 1} for q in QUERIES}
    with pytest.raises(InputError, match="no measure"):
        run(encoder, task, measures=[])
    with pytest.raises(TypeError):
        run(encoder, task, no_such_option=1)
    assert {k: v for k, v in vars(encoder).items() if "similarity" in k} == before
    assert "task_specific_scores" not in vars(task)


def test_tasks_and_options_that_cannot_be_run_are_refused(encoder: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="LocalClassification is not a retrieval or reranking"):
        run(encoder, [LocalClassification()])
    with pytest.raises(InputError, match="'SciFact' is not a retrieval or reranking task"):
        run(encoder, "SciFact")
    with pytest.raises(InputError, match="float7"):
        run(encoder, LocalRetrieval(), score_dtype="float7")
    with pytest.raises(InputError, match="no task was given"):
        run(encoder, [])
    cache = mteb.ResultCache(cache_path=tmp_path)
    with pytest.raises(InputError, match="'only-missing' may reuse scores"):
        run(encoder, LocalRetrieval(), cache=cache, overwrite_strategy="only-missing")


def test_without_mteb_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(MissingExtra, match=r"needs mteb: pip install 'rankproof\[mteb\]'"):
        evaluate(None, [])


def test_like_mteb_gives_the_values_of_its_own_evaluator() -> None:
    """Means to mteb's five digits, queries to the last bit; mteb's MRR sorts float64 scores."""
    metrics = importlib.import_module("mteb._evaluators.retrieval_metrics")
    generator = random.Random(5)
    docs = [f"d{i}" for i in range(30)]
    score_choices = [1.0, 1.0 + 1e-9, 0.5, -0.5]
    run = {
        f"q{i}": {d: generator.choice(score_choices) for d in generator.sample(docs, 20)}
        for i in range(40)
    }
    qrels = {q: {d: generator.choice([0, 1, 2]) for d in generator.sample(docs, 12)} for q in run}
    mteb_scores = metrics.calculate_retrieval_scores(run, qrels, [3, 10])
    columns = {
        "nDCG": ("ndcg_cut", "ndcg"),
        "AP": ("map_cut", "map"),
        "R": ("recall", "recall"),
        "P": ("P", "precision"),
        "Success": ("success", "hit_rate"),
    }
    specs = [f"{name}@{k}" for name in columns for k in (3, 10)]
    evaluation = rp.evaluate(qrels, run, specs, like="mteb")
    for row in evaluation.per_query.iter_rows(named=True):
        name, k = row["measure"].split("@")
        expected = mteb_scores.all_scores[row["query"]][f"{columns[name][0]}_{k}"]
        assert row["oblivious"] == expected, row
    for spec in specs:
        name, k = spec.split("@")
        (mean,) = (
            v for n, v in getattr(mteb_scores, columns[name][1]).items() if n.endswith(f"@{k}")
        )
        assert round(evaluation[spec].oblivious, 5) == mean, spec
    wide = rp.evaluate(qrels, run, "RR@10", order="trec_eval", score_dtype="float64")
    narrow = rp.evaluate(qrels, run, "RR@10", like="mteb")
    assert wide["RR@10"].oblivious == pytest.approx(mteb_scores.mrr["MRR@10"], rel=1e-14)
    assert narrow["RR@10"].oblivious != wide["RR@10"].oblivious
