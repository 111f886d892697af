"""Parts are declared once: what `type:` takes, `rankproof parts` and the documents follow."""

from __future__ import annotations

import json
import os
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from golden_sets import honest
from golden_sets import write_corpus as write_graded
from loopback import loopback
from rankproof_cli import rankproof
from small_corpus import write_corpus

from rankproof.foundation.config import read_config
from rankproof.foundation.errors import InputError
from rankproof.retrieval.components import KINDS, PACKAGES, find_component, list_components
from rankproof.tradeoffs.plan import SweepSettings
from rankproof.tradeoffs.sweep import sweep

ROOT = Path(__file__).parents[1]


def modules() -> list[str]:
    return [
        f"{folder}.{module.name}"
        for folder in PACKAGES
        for module in pkgutil.iter_modules(import_module(folder).__path__)
    ]


@pytest.mark.parametrize("module", modules())
def test_every_module_of_the_folders_of_parts_declares_one(module: str) -> None:
    declared = [part for part in list_components() if part.make.__module__ == module]
    assert declared, f"{module} declares no part: is @part(…) forgotten?"


@pytest.mark.parametrize("part", list_components(), ids=lambda part: f"{part.kind}-{part.type}")
def test_every_part_says_what_it_does_and_what_it_needs(part: Any) -> None:
    assert 10 < len(part.does) < 140
    assert part.does.endswith((".", ")"))
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.M))
    assert part.extra is None or part.extra in extras
    assert part.settings.model_fields["type"] is not None
    assert find_component(part.kind, part.type) is part


def test_every_kind_has_a_part() -> None:
    assert {part.kind for part in list_components()} == set(KINDS)


def test_the_command_lists_them() -> None:
    done = rankproof("parts", "--format", "json")
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)["parts"]
    assert [(p["kind"], p["type"]) for p in listed] == [(p.kind, p.type) for p in list_components()]
    flat = next(p for p in listed if p["type"] == "flat")
    assert flat["installed"] is True
    assert "format" in flat["settings"]
    assert b"what it does" in rankproof("parts").stdout


def test_the_table_of_parts_in_the_documents_is_the_registry() -> None:
    """To mend it, replace the table of docs/parts.md by what this test prints."""
    rows = [f"| {p.kind} | `{p.type}` | {p.extra or '–'} | {p.does} |" for p in list_components()]
    table = "\n".join(["| kind | type | extra | what it does |", "|:--|:--|:--|:--|", *rows])
    print(table)
    assert table in (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")


# ------------------------------------------------------------------------ of the user's own

OURS = '''
"""Parts that a user wrote."""

import zlib

import numpy as np

from rankproof.retrieval.ranked_lists import run_from_rows
from rankproof.retrieval.protocols import Retrieved, Scored


class Letters:
    """An embedder."""

    name = "letters"
    fingerprint = "letters 1"

    def __init__(self, width=64):
        self.width = width

    def embed_queries(self, texts):
        vectors = np.zeros((len(texts), self.width), np.float32)
        for row, text in enumerate(texts):
            for at in range(len(text) - 2):
                vectors[row, zlib.crc32(text[at : at + 3].encode()) % self.width] += 1
        length = np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors / np.where(length > 0, length, 1)

    embed_passages = embed_queries


class Mine:
    """An index."""

    name = "mine"
    bytes = 1
    build_seconds = 0.0

    def __init__(self, vectors, document_ids, *, sign=1):
        self.vectors, self.ids, self.sign = vectors, document_ids, sign

    def search(self, queries, k, query_ids=None):
        scores = self.sign * queries @ self.vectors.T
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        found = [(rows, scores[at, rows].astype(float)) for at, rows in enumerate(best)]
        return Retrieved(
            run_from_rows(self.name, query_ids, self.ids, found, "float32", None),
            np.zeros(len(queries)),
        )


class Engine:
    """A whole engine."""

    name = "engine"
    bytes = 2
    build_seconds = 0.0

    def __init__(self, documents, document_ids):
        self.letters = Letters()
        self.index = Mine(self.letters.embed_passages(documents), document_ids)

    def search(self, queries, k, query_ids=None):
        return self.index.search(self.letters.embed_queries(queries), k, query_ids)


class Longest:
    """A reranker."""

    name = "longest"
    fingerprint = "longest 1"

    def score(self, query, passages):
        return Scored(np.array([float(len(p)) for p in passages]), 1, "float64")


class Not:
    """Nothing of the kind."""
'''


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_corpus(tmp_path / "corpus")
    (tmp_path / "ourparts.py").write_text(OURS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ourparts", "broken"):
        sys.modules.pop(name, None)
    return tmp_path


SWEEP = """
corpus: corpus
embedders:
  mine: {type: "ourparts:Letters", width: 128}
  less: {type: "ourparts:Letters"}
indexes:
  flat: {type: flat}
  mine: {type: "ourparts:Mine"}
  worst: {type: "ourparts:Mine", sign: -1}
modes: [dense]
retrievers: {engine: {type: "ourparts:Engine"}}
rerankers: {none: null, long: {type: "ourparts:Longest"}}
pools: [10]
prompts: [5]
at: [5]
best_by: RAnWG@5
latency: {queries: 2, repeats: 1, warmup: 0}
"""


def test_parts_of_the_users_own_are_swept_with_their_own_keys(ours: Path) -> None:
    (ours / "sweep.yaml").write_text(SWEEP)
    found = sweep(read_config(ours / "sweep.yaml", SweepSettings), ours / "out")
    value = dict(found.configurations.select("configuration", "RAnWG@5").rows())
    flat, mine = (value[f"dense mine {index} K=10 top 5"] for index in ("flat", "mine"))
    assert flat == pytest.approx(mine)
    assert value["dense mine worst K=10 top 5"] < mine
    assert value["dense less mine K=10 top 5"] == pytest.approx(value["engine K=10 top 5"])
    assert value["engine K=10 long top 5"] != value["engine K=10 top 5"]


def test_parts_of_the_users_own_make_a_golden_set(ours: Path) -> None:
    write_graded(ours / "graded")
    with loopback(honest) as server:
        said = {
            "corpus": "graded",
            "embedder": {"type": "ourparts:Letters"},
            "index": {"type": "ourparts:Mine"},
            "retrievers": {"engine": {"type": "ourparts:Engine"}},
            "depths": {"dense": 10, "bm25": 0, "pool": 10},
            "judge": {"type": "llm", "url": server.url, "model": "m"},
            "pruning": {"target": 4},
            "ranking": {"budget": 4, "target": 1.0},
        }
        (ours / "set.yaml").write_text(json.dumps(said))
        done = rankproof("golden", "build", str(ours / "set.yaml"))
        assert done.returncode == 0, done.stderr
    from rankproof.golden.store import Store

    with Store(ours / "set.golden") as store:
        lists = {row[0] for row in store.rows("SELECT DISTINCT list FROM retrieved")}
    assert lists == {"dense", "engine"}


def test_an_embedder_of_the_users_own_is_diagnosed(ours: Path) -> None:
    (ours / "d.yaml").write_text('embedder: {type: "ourparts:Letters", width: 512}\n')
    done = rankproof(
        *("diagnose", "names", "--queries", "3", "--runs", "1", "--embedder", str(ours / "d.yaml")),
        *("--format", "json"),
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["manifest"]["config"]["embedder"]
    assert said["type"] == "ourparts:Letters"


def test_an_embedder_of_the_users_own_is_audited(ours: Path) -> None:
    done = rankproof(
        *("audit", "model", "ourparts:Letters", "--dataset", str(ours / "corpus")),
        *("-m", "nDCG@5", "--format", "json"),
    )
    assert done.returncode == 0, done.stderr
    assert "ourparts:Letters" in done.stdout.decode()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("ourparts:Absent", "there is no 'ourparts:Absent'"),
        ("nomodule:Mine", "No module named 'nomodule'"),
        ("ourparts:Not", "cannot be made"),
        ("flatt", "did you mean 'flat'?"),
    ],
)
def test_a_type_that_is_none_is_one_line(ours: Path, given: str, said: str) -> None:
    text = f"corpus: corpus\nmodes: [dense]\nindexes: {{x: {{type: '{given}'}}}}\n"
    (ours / "sweep.yaml").write_text(text)

    def run() -> None:
        sweep(read_config(ours / "sweep.yaml", SweepSettings), ours / "out")

    with pytest.raises(InputError) as error:
        run()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


BROKEN = """
class Part:
    name, fingerprint, bytes, build_seconds = "x", "x", 0, 0.0

    def __init__(self, *material, how, **more):
        self.how = how
        if how == "made":
            raise ValueError("no weights")

    def work(self, *given, **named):
        if self.how == "raises":
            raise KeyError("a lost token")
        return None

    embed_queries = embed_passages = search = score = rewrite = work
"""
PLACES = {
    "embedder": "modes: [dense]\nembedders: {{x: {}}}",
    "index": "modes: [dense]\nindexes: {{x: {}}}",
    "sparse": "modes: [sparse]\nsparse: {}",
    "retriever": "modes: []\nretrievers: {{x: {}}}",
    "reranker": "modes: [sparse]\nrerankers: {{x: {}}}",
    "rewriter": "modes: [sparse]\nrewriter: {}",
}
HOW = {
    "raises": r"broken:Part \(.*broken\.py:12\): KeyError: 'a lost token'; mend it",
    "made": r"broken:Part \(.*broken\.py:8\): ValueError: no weights; mend it",
    "none": "returned None, which has no|is not a vector for each",
}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("kind", PLACES)
def test_what_a_users_part_raises_is_one_line_that_names_it(
    ours: Path, kind: str, how: str
) -> None:
    (ours / "broken.py").write_text(BROKEN)
    chosen = f"{{type: 'broken:Part', how: {how}}}"
    (ours / "s.yaml").write_text(f"corpus: corpus\nat: []\n{PLACES[kind].format(chosen)}\n")
    settings = read_config(ours / "s.yaml", SweepSettings)
    with pytest.raises(InputError, match=HOW[how]) as error:
        sweep(settings, ours / "out")
    assert "\n" not in str(error.value)


def test_a_module_that_fails_as_it_is_imported_is_one_line(ours: Path) -> None:
    (ours / "boom.py").write_text("1 / 0\n")
    (ours / "s.yaml").write_text("corpus: corpus\nretrievers: {x: {type: 'boom:X'}}\n")
    done = rankproof("sweep", "s.yaml", "--plan")
    assert done.returncode == 2
    assert b"boom.py:1) cannot be imported (ZeroDivisionError: division by zero)" in done.stderr
    assert done.stderr.count(b"\n") == 1


PACKAGE = '''
from typing import Literal

from rankproof.foundation.config import Settings
from rankproof.data.hits import read_hits
from rankproof.retrieval.ranked_lists import run_from_hits
from rankproof.retrieval.components import part
from rankproof.retrieval.protocols import Retrieved

import numpy as np


class ShelfSettings(Settings):
    """A shelf on which the first passages stand."""

    type: Literal["shelf"]
    first: int = 0


@part("retriever", "shelf")
class Shelf:
    name, bytes, build_seconds = "shelf", 0, 0.0

    def __init__(self, settings: ShelfSettings, documents, document_ids):
        self.ids = list(document_ids)[settings.first:]

    def search(self, queries, k, query_ids=None):
        hits = [read_hits(self.ids[:k], self.name) for _ in queries]
        return Retrieved(run_from_hits(self.name, query_ids, hits), np.zeros(len(queries)))
'''


def install(folder: Path, module: str, text: str) -> dict[str, str]:
    """A package as pip would leave it, and the environment that sees it."""
    (folder / f"{module}.py").write_text(text)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rankproof.parts]\n{module} = {module}\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"}


@pytest.mark.slow
def test_a_package_joins_in_through_its_entry_point(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    env = install(site, "shelfpack", PACKAGE)
    write_corpus(tmp_path / "corpus")
    (tmp_path / "sweep.yaml").write_text(
        "corpus: corpus\nmodes: []\nretrievers: {s: {type: shelf, first: 3}}\npools: [10]\n"
        "prompts: [5]\nat: [5]\nbest_by: RAnWG@5\nlatency: {queries: 2, repeats: 1, warmup: 0}\n"
    )

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-m", "rankproof", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, cwd=tmp_path)

    listed = call("parts", "--format", "json")
    assert listed.returncode == 0, listed.stderr
    (shelf,) = (p for p in json.loads(listed.stdout)["parts"] if p["type"] == "shelf")
    assert shelf["does"] == "A shelf on which the first passages stand."
    swept = call("sweep", "sweep.yaml", "--format", "json")
    assert swept.returncode == 0, swept.stderr
    (row,) = json.loads(swept.stdout)["configurations"]
    assert row["configuration"] == "s K=10 top 5"
    (tmp_path / "wrong.yaml").write_text(
        "corpus: corpus\nmodes: []\nretrievers: {s: {type: shelf, frist: 3}}\n"
    )
    wrong = call("sweep", "wrong.yaml")
    assert wrong.returncode == 2
    assert "unknown key 'retrievers.s.frist'; did you mean 'first'?" in wrong.stderr


def test_a_package_that_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    env = install(tmp_path, "brokenpack", "import nothing_of_the_name\n")
    command = [sys.executable, "-m", "rankproof", "parts"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 2
    assert "the parts of brokenpack cannot be loaded" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
