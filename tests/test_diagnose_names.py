"""Margins, percentages and intervals of `diagnose_names`, against their definitions."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from toy_embedder import Toy

import rankproof as rp
from rankproof.diagnostics import (
    ABLATIONS,
    Author,
    NameLists,
    NamesDiagnosis,
    diagnose_names,
    shipped_lists,
)
from rankproof.diagnostics.bundles import Bundle, draw_pairs, draw_run
from rankproof.diagnostics.estimates import estimate_means
from rankproof.diagnostics.list_similarity import kendall, overlap
from rankproof.diagnostics.sentences import correlations
from rankproof.foundation.errors import InputError
from rankproof.precision.topk import TopK
from rankproof.presentation.json_values import plain
from rankproof.retrieval.protocols import Vectors
from rankproof.statistics.intervals import percentile_tail
from rankproof.statistics.rank_similarity import (
    fisher_interval,
    mean_correlation,
    query_correlation,
)

QUERIES, RUNS, SEED = 12, 3, 5


@pytest.fixture(scope="module", params=["en", "fr"])
def diagnosis(request: pytest.FixtureRequest) -> NamesDiagnosis:
    return diagnose_names(Toy(), language=request.param, queries=QUERIES, runs=RUNS, seed=SEED)


def cosines_to_first(texts: Sequence[str]) -> list[float]:
    """Cosines of the first text to each of the others, one by one."""
    vectors = [v.astype(np.float64) for v in Toy().embed_queries(texts)]
    q = vectors[0]
    return [float(q @ v / math.sqrt((q @ q) * (v @ v))) for v in vectors[1:]]


def test_with_more_queries_the_first_ones_stay_the_same() -> None:
    lists = shipped_lists("en")
    many = draw_pairs(lists, 40, SEED)
    assert len(set(many)) == 40
    assert draw_pairs(lists, 15, SEED) == many[:15]


def drawn_runs(language: str) -> list[list[Bundle]]:
    lists = shipped_lists(language)
    pairs = draw_pairs(lists, QUERIES, SEED)
    return [list(draw_run(lists, language, pairs, SEED, run)) for run in range(RUNS)]  # type: ignore[arg-type]


def test_margins_and_percentages_are_those_of_the_definition(diagnosis: NamesDiagnosis) -> None:
    runs = drawn_runs(diagnosis.language)

    def margins(bundle: Bundle) -> tuple[float, float, float]:
        c1, c2a, c2b, c3, c4 = cosines_to_first(
            [bundle.question.text, *(p.text for p in bundle.passages)]
        )
        return c1 - max(c2a, c2b), c1 - c3, c1 - c4

    base = np.array([[margins(b) for b in run] for run in runs])  # (R, Q, 3)
    for name in ("strip_diacritics", "gibberish_name", "edit_distance_near_miss"):
        result = diagnosis[name]
        after = np.array([[margins(ABLATIONS[name].apply(b)) for b in run] for run in runs])
        for m, margin in enumerate(("name", "topic", "both")):
            by_run = after[:, :, m].mean(axis=1)
            assert result.margin[margin].mean == pytest.approx(by_run.mean())
            assert result.margin[margin].sd == pytest.approx(by_run.std(ddof=1), abs=1e-12)
            kept = base[:, :, m] >= 0.02
            percents = (after - base)[:, :, m] / base[:, :, m] * 100
            means = [percents[r][kept[r]].mean() for r in range(RUNS)]
            assert result.percent[margin].mean == pytest.approx(np.mean(means))
            assert result.excluded[margin] == (~kept).sum()
        assert result.confused.mean == pytest.approx((after[:, :, 0] <= 0).mean())
    assert diagnosis.ratio.mean == pytest.approx(base[:, :, 0].mean() / base[:, :, 1].mean())


def test_a_mask_removes_exactly_all_of_the_name_margin(diagnosis: NamesDiagnosis) -> None:
    mask = diagnosis["hard_name_mask"]
    assert mask.percent["name"].mean == -100.0
    assert mask.percent["name"].ci == (-100.0, -100.0)
    assert mask.percent["name"].sd == 0.0
    assert mask.margin["name"].mean == 0.0
    assert mask.confused.mean == 1.0


def test_a_margin_that_rises_is_not_said_to_fall(diagnosis: NamesDiagnosis) -> None:
    rows = list(diagnosis.rows)
    at = [row.ablation for row in rows].index("gibberish_name")
    percent = rows[at].percent["name"]
    rows[at] = replace(rows[at], percent={**rows[at].percent, "name": replace(percent, mean=174.2)})
    text = " ".join(replace(diagnosis, rows=tuple(rows)).words())
    assert "the margin rises by 174%; in the paper it falls by 68 to 77%, and" in text
    assert "by -" not in text


def test_an_ablation_that_changes_no_text_changes_no_value() -> None:
    plain = NameLists(
        tuple(Author(given, "Holm") for given in ("Ada", "Bo", "Cy", "Di", "Ed", "Flo")),
        *(("soil", "ice"), "x"),
    )
    diagnosis = diagnose_names(Toy(), lists=plain, queries=6, runs=2)
    result = diagnosis["strip_diacritics"]
    assert result.changed == 0
    text = " ".join(diagnosis.words())
    assert "Not tried, as it changes none of these texts: strip_diacritics." in text
    assert "strip_diacritics 0.0%" not in text, "it does no harm where nothing was tried"
    assert result.percent["name"].mean == 0.0
    assert result.change["name"].ci == (0.0, 0.0)
    assert result.overlap.mean == result.tau.mean == 1.0


def test_each_text_of_a_run_is_embedded_once() -> None:
    toy = Toy()
    diagnose_names(toy, queries=6, runs=1)
    assert len(toy.asked) == len(set(toy.asked))


def test_values_depend_on_the_seed_alone() -> None:
    one, again, other = (
        diagnose_names(Toy(), queries=5, runs=2, seed=seed).to_dict() for seed in (3, 3, 4)
    )
    assert json.dumps(one, allow_nan=False) == json.dumps(again, allow_nan=False)
    assert one["rows"] != other["rows"]


def test_retrieval_is_the_evaluation_of_every_passage_of_the_run(diagnosis: NamesDiagnosis) -> None:
    for name in ("hard_name_mask", "edit_distance_near_miss", "case_punct_perturb"):
        values = []
        for run in drawn_runs(diagnosis.language):
            after = [ABLATIONS[name].apply(b) for b in run]
            ranked: dict[str, dict[str, float]] = {}
            judged: dict[str, dict[str, int]] = {}
            for q, asked in enumerate(after):
                texts = [p.text for b in after for p in b.passages]
                scores = cosines_to_first([asked.question.text, *texts])
                ranked[str(q)] = {str(d): round(s, 6) for d, s in enumerate(scores)}
                judged[str(q)] = {}
                for b, bundle in enumerate(run):
                    for c, passage in enumerate(bundle.passages):
                        forged = name == "edit_distance_near_miss" and c in (1, 2, 4)
                        same = bundle.authors[c] == asked.asked_author and not forged
                        if same and passage.topic == run[q].question.topic:
                            judged[str(q)][str(5 * b + c)] = 1
            values.append(rp.evaluate(judged, ranked, "nDCG@10")["nDCG@10"].expected)
        assert diagnosis[name].retrieval["nDCG@10"].mean == pytest.approx(np.mean(values))


def test_sentences_warn_of_harmful_formatting(diagnosis: NamesDiagnosis) -> None:
    text = "\n".join(diagnosis.words())
    for row in diagnosis.rows:
        if row.family == "formatting":
            warned = f"Warning: {row.ablation}" in text
            assert warned == (abs(row.percent["name"].mean) > 12)
    assert "hard_name_mask takes the whole margin, as it must" in text
    assert "Only 10 points" in text


@pytest.mark.parametrize(
    ("mean", "ci", "text"),
    [
        (-30.0, (-40.0, -20.0), "Warning: initials_form moves the margin by −30.0%"),
        (-13.0, (-20.0, -10.0), "Warning: initials_form moves the margin by −13.0%"),
        (+14.0, (+13.0, +15.0), "Warning: initials_form moves the margin by +14.0%"),
        (-7.5, (-15.4, -2.1), "Not settled by 8 queries (12% or less, or more): initials_form −7"),
        (+7.5, (+2.1, +12.4), "Not settled by 8 queries (12% or less, or more): initials_form +7"),
        (-7.5, (-11.0, -2.1), "Formatting that does no harm (within 12%): initials_form −7.5%"),
    ],
)
def test_formatting_is_harmless_only_if_its_interval_is_narrow(
    diagnosis: NamesDiagnosis, mean: float, ci: tuple[float, float], text: str
) -> None:
    row = diagnosis["initials_form"]
    changed_row = replace(
        row, percent=row.percent | {"name": replace(row.percent["name"], mean=mean, ci=ci)}
    )
    steady = replace(row.percent["name"], mean=0.0, ci=(0.0, 0.0))
    others = [
        replace(other, percent=other.percent | {"name": steady})
        if other.family == "formatting"
        else other
        for other in diagnosis.rows
    ]
    rows = tuple(changed_row if other.ablation == "initials_form" else other for other in others)
    words = replace(diagnosis, rows=rows, queries=8).words()
    assert [line.startswith(text) for line in words if "initials_form" in line].count(True) == 1
    assert ("Not settled" in "\n".join(words)) == text.startswith("Not settled")


# ------------------------------------------------------------------------------------ statistics


def test_an_interval_has_the_quantiles_of_resampled_means() -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(1, 2, 30))
    (figure,) = estimate_means(values, 0)
    means = [
        values[0][:, random.integers(0, 30, 30)].mean() for _ in range(20_000)
    ]  # another generator, the definition
    assert figure.ci[0] == pytest.approx(np.quantile(means, percentile_tail(30)), abs=0.01)
    assert figure.ci[1] == pytest.approx(np.quantile(means, 1 - percentile_tail(30)), abs=0.01)
    assert figure.mean == pytest.approx(values.mean())


def test_constant_shares_have_an_interval_that_allows_for_unseen_values() -> None:
    """But for the base, which is set against itself."""
    share = np.stack([np.ones((2, 8)), np.ones((2, 8)), np.zeros((2, 8))])
    base, ones, zeros = estimate_means(share, 0, (0.0, 1.0), references=1)
    assert base.ci == (1.0, 1.0)
    assert ones.ci == pytest.approx((0.025 ** (1 / 8), 1.0))
    assert zeros.ci == pytest.approx((0.0, 1 - 0.025 ** (1 / 8)))


def test_an_undefined_interval_is_not_printed() -> None:
    diagnosis = diagnose_names(Toy(), queries=3, runs=1)
    text = " ".join(diagnosis.words())
    assert "nan" not in text
    assert "does no harm" not in text
    across = diagnosis.prediction["across_ablations"]
    level = replace(
        across, pearson_ci=fisher_interval(1.0, 10), spearman_ci=fisher_interval(-1.0, 4)
    )
    (sentence,) = correlations({"across_ablations": level}, "change of Δname", "nDCG@10")
    assert "[" not in sentence, "points that all lie on a line have no interval of 0"


def test_undefined_values_do_not_count_in_a_mean_or_its_interval() -> None:
    values = np.array([[1.0, np.nan, 3.0, np.nan] * 3])[None]
    (figure,) = estimate_means(values, 0)
    assert figure.mean == 2.0
    assert figure.ci == (1.0, 3.0)
    (few,) = estimate_means(values[..., :-2], 0)
    assert few.mean == pytest.approx(1.8)
    assert math.isnan(few.ci[0]), "no resample of five goes beyond them"
    (nothing,) = estimate_means(np.full((1, 1, 4), np.nan), 0)
    assert math.isnan(nothing.mean)
    assert plain(nothing) == {"mean": None, "sd": None, "ci": [None, None]}


def test_correlations_equal_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(2)
    margins = random.normal(size=(6, 40)) + np.arange(6)[:, None]
    qualities = 0.5 * margins + random.normal(size=(6, 40)).round(1)
    result = mean_correlation(margins, qualities)
    x, y = margins.mean(axis=1), qualities.mean(axis=1)
    assert result.pearson == pytest.approx(stats.pearsonr(x, y)[0])
    assert result.spearman == pytest.approx(stats.spearmanr(x, y)[0])
    assert (result.points, result.few) == (6, True)
    peer = stats.pearsonr(x, y).confidence_interval(0.95)
    assert result.pearson_ci == pytest.approx((peer.low, peer.high)), "six points, not 240"
    single = query_correlation(margins, qualities, 0)
    assert single.pearson == pytest.approx(stats.pearsonr(margins.ravel(), qualities.ravel())[0])
    assert single.spearman == pytest.approx(stats.spearmanr(margins.ravel(), qualities.ravel())[0])
    assert single.pearson_ci[0] < single.pearson < single.pearson_ci[1]
    assert (single.points, single.few) == (240, False)


def top_k_of(documents: list[int], scores: list[float]) -> TopK:
    return TopK(np.array([scores], np.float32), np.array([documents]), np.zeros(1, np.int64))


@pytest.mark.parametrize("seed", range(8))
def test_kendall_equals_tau_b_of_scipy_over_the_union(seed: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(seed)
    one, other = (
        top_k_of(
            random.choice(14, 8, replace=False).tolist(),
            sorted(random.integers(1, 9, 8).tolist(), reverse=True),
        )
        for _ in range(2)
    )
    score_maps = [
        dict(zip(x.documents[0].tolist(), x.scores[0].tolist(), strict=True)) for x in (one, other)
    ]
    union = sorted(set(score_maps[0]) | set(score_maps[1]))
    x, y = ([h.get(document, -1.0) for document in union] for h in score_maps)
    assert kendall(one, other)[0] == pytest.approx(stats.kendalltau(x, y)[0])
    assert overlap(one, other)[0] == len(set(score_maps[0]) & set(score_maps[1])) / 8


def test_kendall_of_equal_lists_is_one_and_of_disjoint_ones_negative() -> None:
    a, b = top_k_of([1, 2, 3], [3, 2, 1]), top_k_of([4, 5, 6], [3, 2, 1])
    assert kendall(a, a)[0] == 1.0
    assert kendall(a, b)[0] < 0
    assert overlap(a, b)[0] == 0.0
    assert math.isnan(kendall(top_k_of([1], [1.0]), top_k_of([1], [2.0]))[0])


# --------------------------------------------------------------------------------------- a corpus


def corpus_of(tmp_path: Path, queries: Sequence[str]) -> Path:
    folder = tmp_path / "library"
    (folder / "qrels").mkdir(parents=True)
    people = ["Éda Holm", "Bo Lind", "Cy Dee", "Di van Oss"]
    topics = ["soil", "glaciers", "bridges"]
    documents = [
        {"_id": f"d{i}", "text": f"Paper: “On {t}”. Author: {p}."}
        for i, (p, t) in enumerate((p, t) for p in people for t in topics)
    ]
    asked = [{"_id": f"q{i}", "text": text} for i, text in enumerate(queries)]
    for name, rows in (("corpus", documents), ("queries", asked)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    lines = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{3 * i}\t1" for i in range(len(queries)))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines))
    (tmp_path / "authors.csv").write_text(
        "author,topic\n" + "\n".join(f"{p},{t}" for p, t in zip(people, [*topics, ""], strict=True))
    )
    return folder


def test_in_a_corpus_the_queries_that_name_an_author_are_searched(tmp_path: Path) -> None:
    asked = [f"Which works by {p} on soil?" for p in ("Éda Holm", "bo lind", "Cy Dee")]
    folder = corpus_of(tmp_path, [*asked, "Which works on ice?"])
    result = diagnose_names(Toy(), lists=tmp_path / "authors.csv", queries=6, runs=2, corpus=folder)
    assert result.mentions is not None
    assert (result.mentions.queries, result.mentions.of) == (3, 4)
    rows = {row.ablation: row for row in result.mentions.rows}
    assert rows["base"].measure.mean == 1.0
    assert rows["hard_name_mask"].change.mean < 0
    assert rows["hard_name_mask"].queries_changed == 3
    assert rows["hard_name_mask"].passages_changed == 12
    assert rows["name_order_inversion"].queries_changed == 0
    assert rows["strip_diacritics"].queries_changed == 1
    assert result.prediction["across_ablations_in_corpus"].points == 8


def test_a_corpus_without_named_authors_is_reported(tmp_path: Path) -> None:
    folder = corpus_of(tmp_path, ["Which works on ice?", "What is soil?"])
    result = diagnose_names(Toy(), queries=4, runs=1, corpus=folder)
    assert result.mentions is not None
    assert result.mentions.rows == ()
    assert "library: none of 2 judged queries names an author" in result.words()[-1]


# -------------------------------------------------------------------------------------- bad input


class EmbedderWithOneBadVector(Toy):
    def __init__(self, value: float, rows: int = 0):
        super().__init__()
        self.value, self.rows = value, rows

    def _embed(self, texts: Sequence[str]) -> Vectors:
        vectors = super()._embed(texts)
        vectors[0] = self.value
        return vectors[self.rows :]


def small_lists(authors: int, topics: int) -> NameLists:
    return NameLists(
        tuple(Author("Ada", f"Holm{i}") for i in range(authors)),
        tuple(f"topic {i}" for i in range(topics)),
        "list.csv",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"embedder": EmbedderWithOneBadVector(math.nan)},
            "toy: a number that is not finite for the text 'Wh",
        ),
        ({"embedder": EmbedderWithOneBadVector(math.inf)}, "toy: a number that is not finite"),
        ({"embedder": EmbedderWithOneBadVector(0.0)}, "toy: a zero vector for the text"),
        ({"embedder": EmbedderWithOneBadVector(1.0, rows=1)}, "is not a vector for each of"),
        ({"language": "de"}, "language 'de' has no templates; use en or fr"),
        ({"lists": small_lists(1, 5)}, "list.csv: 1 author; give 3 authors or more"),
        ({"lists": small_lists(5, 1)}, "list.csv: 1 topic; give 2 topics or more"),
        (
            {"lists": small_lists(3, 2), "queries": 7},
            "7 queries of 3 authors and 2 topics; ask for 6",
        ),
        ({"queries": 1}, "queries = 1; give 2 or more"),
        ({"runs": 0}, "runs = 0; give 1 or more"),
        ({"seed": -1}, "seed = -1; give 0 or more"),
    ],
)
def test_bad_input_is_refused_in_one_line(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        diagnose_names(**({"embedder": Toy(), "queries": 4, "runs": 1} | settings))  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


class ConstantEmbedder(Toy):
    def _embed(self, texts: Sequence[str]) -> Vectors:
        return np.ones((len(texts), 4), np.float32)


def test_a_model_with_constant_vectors_has_no_percentages() -> None:
    result = diagnose_names(ConstantEmbedder(), queries=4, runs=2)
    assert result.base.excluded["name"] == 8
    assert math.isnan(result["initials_form"].percent["name"].mean)
    assert math.isnan(result.ratio.mean)
    assert result.base.confused.mean == 1.0
    assert json.dumps(result.to_dict(), allow_nan=False)
    text = "\n".join(result.words())
    assert "the model hardly tells these authors apart" in text
    assert "nan" not in text


def test_three_authors_and_two_topics_are_enough() -> None:
    result = diagnose_names(Toy(), lists=small_lists(3, 2), queries=6, runs=2, seed=1)
    assert result["hard_name_mask"].percent["name"].mean == -100.0


def test_relevance_counts_every_passage_by_the_author_on_the_topic() -> None:
    # With three authors and two topics, another bundle's passages are often right as well.
    result = diagnose_names(Toy(), lists=small_lists(3, 2), queries=6, runs=1)
    assert result.base.retrieval["P@1"].mean > 0.5


def test_a_correlation_names_the_point_it_rests_on() -> None:
    random = np.random.default_rng(3)
    margins, qualities = random.normal(size=(2, 10, 1))
    margins[4], qualities[4] = 30.0, 30.0
    result = mean_correlation(margins, qualities, [f"point {at}" for at in range(10)])
    assert result.pearson > 0.9
    assert (result.carried, result.rests_on_one) == ("point 4", True)
    assert abs(result.without) < 0.8
    line = correlations({"across_levels": result}, "change", "nDCG@10")[0]
    assert f"It rests on point 4: without it r = {result.without:.2f}." in line
