"""sigmoid, softmax, dot, cosine: against float64, over every low-precision number."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import rankproof as rp
from rankproof.foundation.arrays import Array
from rankproof.precision import cosine, dot, sigmoid, softmax


def every(dtype: type) -> Array:
    """Every finite number of a 16-bit format, ascending."""
    patterns = np.arange(2**16, dtype=np.uint16)
    exponent = 0x7C00 if dtype is np.float16 else 0x7F80
    finite = patterns[(patterns & exponent) != exponent].view(dtype)
    return np.asarray(finite[np.argsort(finite.astype(np.float64), kind="stable")])


def exact_sigmoid(z: Array) -> Array:
    wide = z.astype(np.longdouble)
    small = np.exp(-np.abs(wide))
    return np.asarray(np.where(wide >= 0, 1 / (1 + small), small / (1 + small)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_every_low_precision_logit_keeps_its_rank_on_score_and_logit(dtype: type) -> None:
    logits = every(dtype)
    scores = sigmoid(logits)
    assert scores.dtype == np.float32
    exact = exact_sigmoid(logits.astype(np.float64))
    tiny = np.finfo(np.float32).smallest_subnormal
    unit = np.maximum(np.spacing(exact.astype(np.float32)), tiny).astype(np.float64)
    assert (np.abs(scores.astype(np.float64) - exact.astype(np.float64)) <= unit).all()
    assert (np.diff(scores) >= 0).all(), "the order of logits is never turned round"
    wide = logits.astype(np.float64) + 0.0
    pairs = set(zip(scores.tolist(), wide.tolist(), strict=True))
    assert len(pairs) == len(np.unique(wide)), "distinct logits have distinct (score, logit)"


def test_float32_saturates_and_the_logit_still_tells_apart() -> None:
    scores = sigmoid(np.array([17.5, 18.0, 30.0], np.float32))
    assert len(set(scores.tolist())) == 1


def test_scoring_wholly_in_the_low_format_is_the_high_score_rounded() -> None:
    logits = every(ml_dtypes.bfloat16)
    low = sigmoid(logits, low=True)
    assert np.array_equal(low, sigmoid(logits).astype(ml_dtypes.bfloat16).astype(np.float32))
    assert len(np.unique(low[logits > 0])) < len(np.unique(sigmoid(logits)[logits > 0])) / 4


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_torch_agrees_but_for_results_on_a_rounding_boundary(name: str) -> None:
    torch = pytest.importorskip("torch")
    logits = every(np.float16 if name == "float16" else ml_dtypes.bfloat16)
    values = logits.astype(np.float32)
    values = values[np.abs(values) < 80]
    tensor = torch.tensor(values).to(getattr(torch, name))
    theirs = torch.sigmoid(tensor).float().numpy()
    ours = sigmoid(tensor, low=True)
    assert ours.dtype == tensor.dtype
    ours = ours.float().numpy()
    different = ours != theirs
    assert different.mean() < 0.01
    bits = 11 if name == "float16" else 8
    step = 2.0 ** (np.floor(np.log2(np.maximum(theirs, 2.0**-14))) - bits + 1)
    assert (np.abs(ours - theirs)[different] <= step[different] * 1.01).all()
    assert sigmoid(tensor).dtype == torch.float32


def rounded_once(values: Array) -> Array:
    """Scores in extended precision as the nearest float32 numbers."""
    return np.asarray(values, np.float32)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_scores_are_the_exact_ones_rounded_once(dtype: type) -> None:
    drawn: Array = np.random.default_rng(0).normal(0, 8, (3000, 2)).astype(dtype)
    exact = exact_sigmoid(drawn[:, 0].astype(np.longdouble))
    assert np.array_equal(sigmoid(drawn[:, 0]), rounded_once(exact))
    difference = drawn[:, 1].astype(np.longdouble) - drawn[:, 0].astype(np.longdouble)
    assert np.array_equal(softmax(drawn), rounded_once(exact_sigmoid(difference)))


@pytest.mark.parametrize("size", [1, 3, 64])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_a_score_does_not_depend_on_the_batch_it_is_made_in(dtype: type, size: int) -> None:
    logits: Array = np.random.default_rng(0).normal(0, 6, (1000, 2)).astype(dtype)
    batches = [logits[first : first + size] for first in range(0, len(logits), size)]
    together = np.concatenate([softmax(batch) for batch in batches])
    assert np.array_equal(softmax(logits), together)
    together = np.concatenate([sigmoid(batch[:, 0]) for batch in batches])
    assert np.array_equal(sigmoid(logits[:, 0]), together)


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]
)
def test_tensors_in_batches_have_the_scores_of_arrays(name: str) -> None:
    torch = pytest.importorskip("torch")
    from rankproof.precision import activations

    drawn = 4 * torch.randn(3000, 2, generator=torch.Generator().manual_seed(0))
    logits = drawn.to(getattr(torch, name))
    numbers = logits.double().numpy()
    for scored, expected in (
        (sigmoid(logits[:, 0]), sigmoid(numbers[:, 0])),
        (torch.cat([sigmoid(batch[:, 0]) for batch in logits.split(1)]), sigmoid(numbers[:, 0])),
        (softmax(logits), softmax(numbers)),
        (torch.cat([softmax(batch) for batch in logits.split(7)]), softmax(numbers)),
        (activations._rounded_sigmoid(logits[:, 0].double(), torch), sigmoid(numbers[:, 0])),
    ):  # the last is what a GPU does
        assert scored.dtype == torch.float32
        assert np.array_equal(scored.numpy(), expected)


def test_logits_without_bounds_have_the_scores_at_the_ends() -> None:
    logits = np.array([-np.inf, -1e300, -104.0, -103.0, 0.0, 1e300, np.inf, np.nan])
    scores = [0.0, 0.0, 0.0, np.float32(2.0**-149), 0.5, 1.0, 1.0, np.nan]
    assert np.array_equal(sigmoid(logits), np.array(scores, np.float32), equal_nan=True)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_torch_products_agree_but_for_sums_on_a_rounding_boundary(name: str) -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(n, 64, generator=generator).to(getattr(torch, name)) for n in (40, 50))
    theirs = (a @ b.T).float().numpy()
    ours = dot(a, b, low=True).float().numpy()
    high = dot(a, b).numpy().astype(np.float64)
    different = ours != theirs
    assert different.mean() < 0.02
    halfway = (ours.astype(np.float64) + theirs.astype(np.float64)) / 2
    assert (np.abs(high - halfway)[different] < 1e-4 * np.abs(high)[different] + 1e-5).all()


def test_softmax_of_two_logits_is_the_sigmoid_of_their_difference_in_any_order() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(0, 8, (500, 2)).astype(ml_dtypes.bfloat16)
    wide = z.astype(np.float64)
    exact = 1 / (1 + np.exp(wide[:, 0] - wide[:, 1]))
    assert np.allclose(softmax(z), exact, rtol=1e-6, atol=0)
    assert np.array_equal(softmax(z[:, ::-1], yes=0), softmax(z))
    with pytest.raises(rp.InputError, match="3 logits per pair"):
        softmax(np.zeros((2, 3)))
    with pytest.raises(rp.InputError, match="column 2 of 2"):
        softmax(np.zeros((2, 2)), yes=2)


def test_products_are_float32_sums_of_exact_products() -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=(n, 32)).astype(ml_dtypes.bfloat16) for n in (6, 9))
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert dot(a, b).dtype == np.float32
    assert np.allclose(dot(a, b), exact, rtol=1e-5, atol=1e-5)
    lengths = np.linalg.norm(a.astype(np.float64), axis=1)[:, None] * np.linalg.norm(
        b.astype(np.float64), axis=1
    )
    assert np.allclose(cosine(a, b), exact / lengths, atol=1e-6)
    low = dot(a, b, low=True)
    assert np.array_equal(low, dot(a, b).astype(ml_dtypes.bfloat16).astype(np.float32))


def test_bad_vectors_are_refused() -> None:
    with pytest.raises(rp.InputError, match=r"queries are \(1, 2\) and documents \(1, 3\)"):
        dot(np.zeros((1, 2)), np.zeros((1, 3)))
    with pytest.raises(rp.InputError, match="documents: row 1: a zero vector"):
        cosine(np.ones((1, 2)), np.array([[1.0, 0], [0, 0]]))
    with pytest.raises(rp.InputError, match="holds no numbers"):
        sigmoid(["a"])


def test_scoring_imports_with_numpy_alone() -> None:
    code = """
import sys
for name in ("polars", "ml_dtypes", "torch", "click", "rich"):
    sys.modules[name] = None
import numpy as np
from rankproof.precision import sigmoid, dot, topk
from rankproof.precision.exact_search import find_top_k
from rankproof.precision.pipeline import ScoringPipeline
assert sigmoid(np.float32(0.0)) == 0.5
pipeline = ScoringPipeline.of("float32")
assert find_top_k(np.eye(3), np.eye(3), 1, pipeline).documents.ravel().tolist() == [0, 1, 2]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("dtype", "first"), [(np.float16, 11.8359375), (ml_dtypes.bfloat16, 14.125)]
)
def test_float32_scores_tie_from_here_on_and_on_the_positive_side_alone(
    dtype: type, first: float
) -> None:
    logits = np.unique(every(dtype).astype(np.float32))
    scores = sigmoid(logits)
    tied = logits[:-1][scores[1:] == scores[:-1]]
    assert tied[tied > 1].min() == first
    assert tied[(tied > -88) & (tied < -0.001)].size == 0


@pytest.mark.parametrize("form", ["float16", "bfloat16"])
def test_what_is_called_plain_is_what_torch_computes(form: str) -> None:
    """To a unit in the last place, and but for a handful of values to the bit."""
    torch = pytest.importorskip("torch")
    dtype = np.float16 if form == "float16" else ml_dtypes.bfloat16
    logits = every(dtype)
    tensor = torch.from_numpy(logits.astype(np.float32)).to(getattr(torch, form))
    theirs = torch.sigmoid(tensor).float().numpy()
    assert (sigmoid(tensor, low=True).float().numpy() == sigmoid(logits, low=True)).all()
    assert (sigmoid(logits, low=True) != theirs).sum() <= 8
    pairs = torch.randn(20_000, 2, generator=torch.Generator().manual_seed(0)) * 8
    pairs = pairs.to(getattr(torch, form))
    ours = softmax(pairs.float().numpy().astype(dtype), low=True)
    assert (ours != torch.softmax(pairs, dim=-1)[:, 1].float().numpy()).sum() <= 2
    vectors = torch.randn(200, 64, generator=torch.Generator().manual_seed(1))
    vectors = vectors.to(getattr(torch, form))
    mine = dot(vectors, vectors, low=True).float()
    assert (mine != (vectors @ vectors.T).float()).float().mean() < 0.01
