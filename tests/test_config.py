"""Configurations: what people write, checked key by key."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rankproof.foundation.config import read_config, read_keys, read_secret
from rankproof.foundation.errors import InputError, shorten
from rankproof.tradeoffs.plan import SweepSettings, configurations

CASES: list[tuple[str, str, str]] = [
    ("corpus: c\nembeders: {}\n", "unknown key 'embeders'", "did you mean 'embedders'?"),
    ("seed: 1\n", "'corpus' is missing", "add it"),
    ("corpus: c\nindexes: {a: {type: hnws}}\n", "indexes.a: unknown type 'hnws'", "'hnsw'"),
    ("corpus: c\nindexes: {a: {format: int8}}\n", "indexes.a: no type is given", "flat"),
    (
        "corpus: c\nindexes: {a: {type: hnsw, ef_serch: 3}}\n",
        "unknown key 'indexes.a.ef_serch'",
        "did you mean 'ef_search'?",
    ),
    ("corpus: c\nindexes: {a: {type: hnsw, m: 1}}\n", "indexes.a.m: 1", "greater than or equal"),
    ("corpus: c\npools: [50, 50]\n", "pools: something is listed twice", "list each once"),
    ("corpus: c\nmodes: []\n", "modes: nothing is listed", "leave the key out"),
    ("corpus: c\nmeasures: [nDGC@10]\n", "measures: unknown measure 'nDGC'", "nDCG"),
    (
        "corpus: c\nmeasures: [nDCG]\nbest_by: P@3\n",
        "best_by: P(rel=4)@3 is not among",
        "use one of",
    ),
    ("corpus: c\nbest_by: Harm@10\n", "best_by: Harm@10 does not measure quality", "P4@10"),
    ("corpus: c\npools: [5]\n", "a prompt of 10 passages from a pool of 5", "larger"),
    ("corpus: c\nrerankers: {slow: null}\n", "rerankers: slow has no settings", "`none:`"),
    ("corpus: c\nrerank_prices: {x: y}\n", "there is no reranker 'x'", "use none"),
    ("corpus: c\npools: [dynamic]\n", "and there is no reranker", "leave out"),
    (
        "corpus: c\nrerankers: {m: {type: maxsim, model: m}}\npools: [dynamic]\n"
        "depth: {start: 100, deep: 50}\n",
        "depth: start 100 is not below deep 50",
        "start shallow",
    ),
    ("corpus: c\ndimensions: [512]\n", "dimensions: 512 where embedder wordllama has 256", "fewer"),
    ("corpus: c\ncorpus: d\n", "key 'corpus' is given twice", "check that line"),
    ("corpus: [\n", "not YAML", "check that line"),
    ("corpus: 2025-13-45\n", "not YAML: month must be in 1..12", "quote"),
    ("corpus: c\nseed: -1\n", "seed: -1", "greater than or equal to 0"),
    ("corpus: c\npools: [99999999999999999999]\n", "9999999999", "less than or equal"),
    ("corpus: c\npools: [deep]\n", "pools.0: 'deep'", "as an integer, or 'dynamic'"),
    ("corpus: c\nfusion: {weights: [-1, 2]}\n", "fusion.weights.0: -1", "greater than or equal"),
    ("corpus: c\nfusion: {weights: [0, 0]}\n", "fusion: weights: all are 0", "above 0"),
    (
        "corpus: c\nfusion: {method: sum, weights: [9, 1]}\n",
        "fusions.sum: weights with the method sum",
        "use the method weighted",
    ),
    ("- a\n", "where keys belong", "it takes corpus"),
    ("", "the file is empty", "it takes corpus"),
]


@pytest.mark.parametrize(("text", "problem", "remedy"), CASES)
def test_a_wrong_configuration_is_one_line_with_place_and_remedy(
    tmp_path: Path, text: str, problem: str, remedy: str
) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read_config(file, SweepSettings)
    line = str(caught.value)
    assert line.startswith(str(file))
    assert problem in line
    assert remedy in line
    assert "\n" not in line


NESTED = [f"&{name} [{','.join([f'*{inner}'] * 9)}]" for inner, name in pairwise("abcdefghi")]
URL = f"[&a [1,1,1,1,1,1,1,1,1], {', '.join(NESTED)}]"
LISTS = f"corpus: c\nretrievers: {{e: {{type: http, url: {URL}}}}}\n"
EXPANDING = {
    "lists": LISTS,
    "mappings": "x0: &x0 {k: v}\n"
    + "".join(f"x{n + 1}: &x{n + 1} {{a: *x{n}, b: *x{n}}}\n" for n in range(40)),
    "merged mappings": "x0: &x0 {k: v}\n"
    + "".join(f"x{n + 1}: &x{n + 1} {{<<: [*x{n}, *x{n}]}}\n" for n in range(40)),
    "a list in itself": "corpus: &a [*a]\n",
}


@pytest.mark.parametrize("text", EXPANDING.values(), ids=EXPANDING)
def test_aliases_that_expand_without_limit_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bomb.yaml").write_text(text)
    with pytest.raises(InputError, match=r"bomb\.yaml: its aliases .* write out what they"):
        read_keys(tmp_path / "bomb.yaml")


def test_aliases_may_repeat_up_to_a_limit_of_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankproof.foundation.config._MOST_ALIASED", 6)
    file = tmp_path / "some.yaml"
    file.write_text(f"plain: [{', '.join('1' * 100)}]\nlist: &l [1, 2]\ntwo: [*l, *l]\n")
    assert read_keys(file)["two"] == [[1, 2], [1, 2]]
    file.write_text("list: &l [1, 2]\nthree: [*l, *l, *l]\n")
    with pytest.raises(InputError, match="its aliases"):
        read_keys(file)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="limits of Unix")
@pytest.mark.parametrize(
    "arguments",
    [["sweep", "b.yaml", "--plan"], ["golden", "build", "b.yaml"], ["choose", "."]],
    ids=lambda arguments: arguments[0],
)
def test_a_command_ends_on_a_configuration_of_nested_aliases(
    tmp_path: Path, arguments: list[str]
) -> None:
    import resource

    for name in ("b.yaml", "sweep.yaml", "golden.yaml"):
        (tmp_path / name).write_text(LISTS)
    done = subprocess.run(
        [sys.executable, "-m", "rankproof", *arguments],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "write out what they stand for" in done.stderr


def test_a_value_is_read_only_as_far_as_a_message_shows_it() -> None:
    lists: Any = 1
    mappings: Any = 1
    for _ in range(40):
        lists, mappings = [lists] * 9, {"a": mappings, "b": (mappings, {2})}
    inside: list[Any] = []
    inside.append(inside)
    for value in (lists, mappings, inside):
        shown = shorten(value)
        assert len(shown) == 60
        assert shown.endswith("…")
    assert shorten(range(3)) == "range(0, 3)"
    assert shorten(10**5000) == "<int>"
    for value in ([], (), {}, set(), (1,), ["a", {"b": (1.5, None)}, {2}], frozenset({1}), b"c"):
        assert shorten(value) == repr(value)


def test_a_message_is_short_even_if_a_name_is_long(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(f"corpus: c\n? {'x' * 100_000}\n: 1\n")
    with pytest.raises(InputError, match="unknown key 'xxx") as error:
        read_config(tmp_path / "s.yaml", SweepSettings)
    assert len(str(error.value)) < 4000


def test_the_measure_to_choose_by_is_written_in_one_way() -> None:
    assert SweepSettings(corpus=Path("c"), best_by="RAnWG@010").best_by == "RAnWG@10"


def test_yaml_mappings_may_be_merged_and_overridden(tmp_path: Path) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "corpus: c\nindexes:\n  a: &a {type: hnsw, m: 8}\n  b: &b {<<: *a, m: 16}\n"
        "  c: {<<: *b, format: int8}\n"
    )
    found = read_config(file, SweepSettings).model_dump()["indexes"]
    assert [(found[name]["m"], found[name]["format"]) for name in "abc"] == [
        (8, "float32"),
        (16, "float32"),
        (16, "int8"),
    ]


def test_a_path_is_taken_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text("corpus: data/c\nqrels: /q.tsv\n")
    settings = read_config(tmp_path / "sweep.yaml", SweepSettings)
    assert settings.corpus == tmp_path.resolve() / "data/c"
    assert settings.qrels == Path("/q.tsv")


def test_a_model_is_a_folder_beside_the_file_or_a_name(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    file = tmp_path / "sweep.yaml"
    file.write_text(
        "corpus: c\nrerankers:\n  a: {type: maxsim, model: ./mine}\n"
        "  b: {type: cross-encoder, model: org/theirs}\n"
    )
    found = read_config(file, SweepSettings).model_dump()["rerankers"]
    assert Path(found["a"]["model"]) == tmp_path / "mine"
    assert found["b"]["model"] == "org/theirs"


def test_a_file_that_is_missing_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_config(tmp_path / "none.yaml", SweepSettings)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_config(tmp_path / "bytes.yaml", SweepSettings)


def test_a_secret_is_read_only_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "s3cret")
    assert read_secret("SOME_KEY", "judge") == "s3cret"
    assert read_secret(None, "judge") is None
    monkeypatch.delenv("SOME_KEY")
    with pytest.raises(InputError, match="SOME_KEY is not set"):
        read_secret("SOME_KEY", "judge")


def test_a_key_in_place_of_its_variable_is_not_printed() -> None:
    with pytest.raises(InputError, match="name an environment variable") as caught:
        read_secret("sk-very-secret", "api.example.com")
    assert "very-secret" not in str(caught.value)


def test_the_grid_multiplies_only_what_a_mode_uses() -> None:
    some: dict[str, Any] = {"pools": [50, 100], "dimensions": [None, 64], "prompts": [5, 10]}
    some |= {"rerankers": {"m": {"type": "maxsim", "model": "m"}}}
    settings = SweepSettings(corpus=Path("c"), **some)
    grid = list(configurations(settings))
    # dense and hybrid: 2 dimensions × 2 pools × 2 prompts; sparse: 2 pools × 2 prompts
    assert len(grid) == 2 * 8 + 4
    assert len({c.name for c in grid}) == len(grid)
    assert {c.embedder for c in grid if c.mode == "sparse"} == {None}
    pools = [c for c in grid if c.family == grid[0].family]
    assert [c.pool for c in pools] == [50, 100]
