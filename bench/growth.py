"""How the cost of every verb grows: CPU time and peak memory at three sizes, each in a process.

    .venv/bin/python bench/growth.py [VERB ...]

A size is four times the one before. What the same command takes at a size next to nothing is taken
off, and the slope of the rest is fitted on logarithms: 1 is linear. Ends with 1 where it is above
1.3, or where the steeper of the two steps is even less what noise could add to it. Each cost is the
least of two runs, and of up to five where that is so. Writes its part of bench/RESULTS.md, unless
some verbs alone were named.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import results

from rankproof.foundation.arrays import Array

STEEP = 1.3  # a slope above it is no longer linear, whatever the machine was doing
NOISE = {"cpu": 0.15, "memory": 8.0}  # seconds and MB by which two runs of the same may differ
RUNS = 5  # of which the least counts, at most
STEPS = (4, 16)  # the second and third size over the first
MEASURES = ["-m", "nDCG@10", "-m", "AP"]
CASES: dict[str, tuple[int, Callable[[Path, int], list[str]]]] = {}


def case(name: str, size: int) -> Callable[[Callable[[Path, int], list[str]]], None]:
    """Enters a case: its first size, and a function that makes files and says what to run."""

    def enter(make: Callable[[Path, int], list[str]]) -> None:
        CASES[name] = size, make

    return enter


# ------------------------------------------------------------------------------------ the files


def runs(folder: Path, rows: int, count: int = 1, kind: str = "trec") -> list[str]:
    """Judgements and runs of 100 documents a query, one score in ten a tie."""
    queries = max(2, rows // 100)
    paths = [folder / "qrels.txt", *(folder / f"{i}.{kind}" for i in range(count))]
    generator = np.random.default_rng(rows)
    grades = generator.integers(0, 4, (queries, 10))
    paths[0].write_text(
        "".join(
            f"q{q} 0 d{q * 7 + 9 * i} {grades[q, i]}\n" for q in range(queries) for i in range(10)
        )
    )
    for path in paths[1:]:
        scores = -np.sort(-generator.integers(0, 1000, (queries, 100)) / 1000)
        with path.open("w") as file:
            for q in range(queries):
                for i, score in enumerate(scores[q].tolist()):
                    if kind == "jsonl":
                        file.write(
                            f'{{"query": "q{q}", "doc": "d{q * 7 + i}", "score": {score}}}\n'
                        )
                    else:
                        file.write(f"q{q} Q0 d{q * 7 + i} {i + 1} {score} t\n")
    return [str(path) for path in paths]


def corpus(folder: Path, passages: int, queries: int = 20) -> Path:
    """A BEIR folder of passages of 60 words that begin alike."""
    generator = np.random.default_rng(passages)
    words = np.array([f"word{i}é" if i % 9 == 0 else f"word{i}" for i in range(5000)])
    text = words[(generator.pareto(1.0, (passages, 50)) * 20).astype(int) % 5000]
    head = "the same ten words stand at the head of each "
    place = folder / "corpus"
    (place / "qrels").mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"_id": f"d{i}", "title": "", "text": head + " ".join(row)})
        for i, row in enumerate(text)
    ]
    (place / "corpus.jsonl").write_text("\n".join(lines))
    asked = [
        json.dumps({"_id": f"q{i}", "text": " ".join(text[i % passages, :6])})
        for i in range(queries)
    ]
    (place / "queries.jsonl").write_text("\n".join(asked))
    judged = [f"q{i}\td{i % passages}\t{1 + i % 5}" for i in range(queries)]
    (place / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    return place


def said(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


# ------------------------------------------------------------------------------------ the verbs


@case("eval", 200_000)
def _(folder: Path, size: int) -> list[str]:
    return ["eval", *runs(folder, size), *MEASURES]


@case("eval of JSON lines", 20_000)
def _(folder: Path, size: int) -> list[str]:
    return ["eval", *runs(folder, size, kind="jsonl"), *MEASURES]


@case("trec_eval", 200_000)
def _(folder: Path, size: int) -> list[str]:
    return ["trec_eval", *runs(folder, size)]


@case("ties", 200_000)
def _(folder: Path, size: int) -> list[str]:
    return ["ties", *runs(folder, size)[1:]]


@case("compare", 20_000)
def _(folder: Path, size: int) -> list[str]:
    return ["compare", *runs(folder, size, 2), *MEASURES]


@case("compare of long ties", 50)
def _(folder: Path, size: int) -> list[str]:
    """Of three queries all is judged and all ties, as where a reranker saturates."""
    qrels = "".join(f"q{q} 0 d{i} {(i * 7 + q) % 4}\n" for q in range(3) for i in range(size))
    paths = [said(folder / "qrels.txt", qrels)]
    for name in ("a", "b"):
        rows = "".join(f"q{q} Q0 d{i} 1 1 {name}\n" for q in range(3) for i in range(size))
        paths.append(said(folder / f"{name}.trec", rows))
    return ["compare", *paths, "-m", "nDCG@10"]


@case("holes", 50_000)
def _(folder: Path, size: int) -> list[str]:
    return ["holes", *runs(folder, size, 2), *MEASURES]


@case("gate", 20_000)
def _(folder: Path, size: int) -> list[str]:
    return ["gate", *runs(folder, size, 2), "-m", "nDCG@10", "--margin", "0.5", "--allow-undecided"]


@case("leaderboard", 20_000)
def _(folder: Path, size: int) -> list[str]:
    return ["leaderboard", *runs(folder, size, 3), *MEASURES]


@case("ceilings", 20_000)
def _(folder: Path, size: int) -> list[str]:
    return ["ceilings", *runs(folder, size), "-m", "nDCG", "--at", "10"]


@case("verify", 50_000)
def _(folder: Path, size: int) -> list[str]:
    command(["eval", *runs(folder, size), *MEASURES, "--out", str(folder / "made.json")])
    return ["verify", str(folder / "made.json")]


@case("report", 100_000)
def _(folder: Path, size: int) -> list[str]:
    command(["eval", *runs(folder, size), *MEASURES, "--out", str(folder / "made.json")])
    return ["report", str(folder)]


@case("audit", 2_000)
def _(folder: Path, size: int) -> list[str]:
    generator = np.random.default_rng(size)
    for name, count in (("queries", 50), ("documents", size)):
        np.save(folder / f"{name}.npy", generator.normal(size=(count, 64)).astype(np.float32))
    qrels = said(folder / "qrels.txt", "".join(f"{q} 0 {q % size} 1\n" for q in range(50)))
    vectors = [f"--{name}={folder / name}.npy" for name in ("queries", "documents")]
    return [
        "audit",
        "vectors",
        qrels,
        *vectors,
        "-m",
        "nDCG@10",
        "--formats",
        "float32,bfloat16,int8",
    ]


@case("search", 1_000)
def _(folder: Path, size: int) -> list[str]:
    return ["search", str(corpus(folder, size)), "word1 word2", "--retriever", "sparse"]


@case("sweep", 1_000)
def _(folder: Path, size: int) -> list[str]:
    corpus(folder, size)
    text = "corpus: corpus\nmodes: [sparse]\npools: [30]\nprompts: [10]\n"
    return ["sweep", said(folder / "s.yaml", text), "--out", str(folder / "swept")]


@case("recommend", 4_000)
def _(folder: Path, size: int) -> list[str]:
    values = np.random.default_rng(size).random((size, 3))
    head = "configuration,latency_p50_ms,latency_p95_ms,cost_per_1000,RAnWG@10\n"
    rows = "".join(
        f"c{i},{a:.3f},{99 * a:.3f},{b:.3f},{c:.3f}\n" for i, (a, b, c) in enumerate(values)
    )
    return ["recommend", said(folder / "t.csv", head + rows), "--sla-ms", "50"]


def documents(folder: Path, count: int, questions: int) -> list[str]:
    """Markdown of three sections each, and questions."""
    generator = np.random.default_rng(count)
    place = folder / "documents"
    place.mkdir()
    for i in range(count):
        words = generator.integers(0, 3000, (3, 60))
        sections = (
            f"## Part {j}\n\n" + " ".join(f"w{w}" for w in row) for j, row in enumerate(words)
        )
        said(place / f"{i}.md", f"# Document {i}\n\n" + "\n\n".join(sections))
    words = generator.integers(0, 3000, (questions, 6))
    asked = "\n".join(f"What is {' '.join(f'w{w}' for w in row)}?" for row in words)
    file = said(folder / "questions.txt", asked)
    return ["init", str(place), "--questions", file, "--out", str(folder / "prepared")]


@case("init", 200)
def _(folder: Path, size: int) -> list[str]:
    return documents(folder, size, 5)


@case("choose", 5)
def _(folder: Path, size: int) -> list[str]:
    command(documents(folder, 50, size))
    place = folder / "prepared"
    ids = [
        [json.loads(line)["_id"] for line in (place / name).read_text().splitlines()]
        for name in ("queries.jsonl", "corpus.jsonl")
    ]
    judged = [
        f"{q}\t{ids[1][(i + j) % len(ids[1])]}\t{j}" for i, q in enumerate(ids[0]) for j in (5, 3)
    ]
    (place / "qrels").mkdir()
    said(place / "qrels" / "test.tsv", "\n".join(["query-id\tcorpus-id\tscore", *judged]))
    return ["choose", str(folder / "prepared"), "--judge", "simulated", "--yes"]


def built(folder: Path, size: int) -> list[str]:
    corpus(folder, 300, size)
    text = "corpus: corpus\njudge: {type: simulated, beta: 3}\nranking: {budget: 6}\n"
    return ["golden", "build", said(folder / "g.yaml", text)]


case("golden build", 5)(built)


@case("golden status", 5)
def _(folder: Path, size: int) -> list[str]:
    command(built(folder, size))
    return ["golden", "status", str(folder / "g.golden")]


@case("golden export", 5)
def _(folder: Path, size: int) -> list[str]:
    command(built(folder, size))
    return ["golden", "export", str(folder / "g.golden"), "--out", str(folder / "set")]


@case("golden diff", 5)
def _(folder: Path, size: int) -> list[str]:
    command(built(folder, size))
    return ["golden", "diff", str(folder / "g.golden"), str(folder / "g.golden")]


def labelled(folder: Path, size: int) -> list[str]:
    """A golden set, and the labels of a person who agrees with its judge."""
    command(built(folder, size))
    command(["golden", "export", str(folder / "g.golden"), "--out", str(folder / "set")])
    return [str(folder / "g.golden"), str(folder / "set" / "qrels.simulated.txt")]


@case("golden import", 5)
def _(folder: Path, size: int) -> list[str]:
    return ["golden", "import", *labelled(folder, size), "--as", "ada"]


@case("golden agreement", 5)
def _(folder: Path, size: int) -> list[str]:
    store, qrels = labelled(folder, size)
    return ["golden", "agreement", store, "--human", qrels, "--relevant", "4"]


@case("diagnose names", 10)
def _(folder: Path, size: int) -> list[str]:
    return ["diagnose", "names", "--queries", str(size), "--runs", "2"]


@case("diagnose noise", 10)
def _(folder: Path, size: int) -> list[str]:
    return ["diagnose", "noise", "--queries", str(size), "--runs", "2"]


# ------------------------------------------------------------------------------- and in Python


def in_python(name: str, size: int, code: str) -> None:
    before = "import sys, numpy as np, rankproof as rp\nn = int(sys.argv[1])\n"
    case(name, size)(lambda folder, n: ["-c", before + code, str(n)])


in_python(
    "evaluate_arrays",
    600_000,
    "s = np.random.default_rng(0).normal(size=(n // 100, 100))\n"
    "rp.evaluate_arrays(s, (s > 2).astype(int), ['nDCG@10', 'AP'])",
)
in_python(
    "front of all rows",
    4_000,
    "from rankproof.tradeoffs import pareto_front\n"
    "cost, latency = np.random.default_rng(0).random((2, n))\n"
    "pareto_front(cost, latency, cost + latency)",
)
in_python(
    "ERR of one tie",
    200_000,
    "g = np.zeros((1, n), int); g[0, ::10] = 1; g[0, 0] = 4\n"
    "rp.evaluate_arrays(np.zeros((1, n)), g, ['ERR'])",
)
in_python(
    "ERR@50000 of one tie, grades to 50",
    20_000,
    "g = np.random.default_rng(0).integers(0, 51, (1, n))\n"
    "rp.evaluate_arrays(np.zeros((1, n)), g, ['ERR@50000'])",
)
in_python(
    "UDCG of one tie",
    200_000,
    "g = np.random.default_rng(0).integers(1, 6, (1, n))\n"
    "rp.evaluate_arrays(np.zeros((1, n)), g, [f'UDCG@{n // 3}'])",
)
in_python(
    "AP11, IPrec, GMAP of one tie (sampled)",
    1_000,
    "g = np.zeros((1, n), int); g[0, ::5] = 1\n"
    "rp.evaluate_arrays(np.zeros((1, n)), g, ['AP11', 'IPrec@0.5', 'GMAP'])",
)
in_python(
    "AP11 of queries of 1,000 ties (sampled)",
    30,
    "g = np.zeros((n, 1_000), int); g[:, ::5] = 1\n"
    "rp.evaluate_arrays(np.zeros((n, 1_000)), g, ['AP11'])",
)
in_python(
    "AP11 of many ties",
    20_000,
    "s = np.repeat(np.arange(n)[None, ::-1], 2, axis=1)\n"
    "rp.evaluate_arrays(s, np.tile([[1, 0]], n), ['AP11', 'IPrec@0.5'])",
)
in_python(
    "infAP of one tie",
    20_000,
    "d = [f'd{i}' for i in range(n)]\n"
    "grades = {x: i % 4 - 1 for i, x in enumerate(d)}\n"
    "rp.evaluate({'q': grades}, {'q': dict.fromkeys(d, 1.0)}, 'infAP')",
)
in_python(
    "duplicates",
    500,
    "from rankproof.retrieval.duplicates import suppress\n"
    "head = ' '.join(f'h{i}' for i in range(200))\n"
    "texts = [head + ' ' + ' '.join(f'w{i}x{j}' for j in range(15 + i % 40)) for i in range(n)]\n"
    "suppress([str(i) for i in range(n)], texts)",
)
in_python(
    "duplicates of few words",
    500,
    "from rankproof.retrieval.duplicates import DuplicatesSettings, suppress\n"
    "r = np.random.default_rng(0).integers(0, 30, (n, 3))\n"
    "texts = [' '.join(f'w{w}' for w in row) for row in r]\n"
    "suppress([str(i) for i in range(n)], texts, DuplicatesSettings(shingle=1))",
)
in_python(
    "BM25",
    2_000,
    "from rankproof.retrieval.sparse.bm25 import Bm25\n"
    "r = np.random.default_rng(0).integers(0, 3000, (n, 80))\n"
    "Bm25([' '.join(f'mot{w}é' for w in row) for row in r])",
)
in_python(
    "vectors of long texts",
    250,
    "from rankproof.retrieval.embedders.wordllama import WordllamaEmbedder, WordllamaSettings\n"
    "texts = [f'{i} ' + 'star ' * n for i in range(60)]\n"
    "WordllamaEmbedder(WordllamaSettings()).embed_passages(texts)",
)
in_python(
    "chunks of dots",
    100_000,
    "from rankproof.retrieval.chunks import ChunkSettings, chunk\n"
    "for t in ('.' * n + 'x', '# ' + '#' * n + 'x', 'The cat sat. ' * (n // 13)):\n"
    "    chunk(t, ChunkSettings(headings=True))",
)
in_python(
    "redaction",
    100_000,
    "from rankproof.foundation.redaction import redact_for_publication, register_secret\n"
    "register_secret('sk-a1b2c3d4e5f6g7h8')\n"
    "for t in ('sk-a1b2c ' * (n // 9), '=?' + 'key' * (n // 3), 'http://h' + '?' * n):\n"
    "    redact_for_publication(t)",
)
in_python(
    "int8 codes",
    20_000,
    "from rankproof.precision import encode\nencode(np.ones((n, 256), np.float32), 'int8')",
)


# ---------------------------------------------------------------------------------- measurement


# A process begins with the peak of the one that starts it: this one is small.
WATCH = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(child.pid, 0)
child.returncode = os.waitstatus_to_exitcode(status)
print(child.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def command(arguments: list[str]) -> tuple[float, float]:
    """CPU seconds and peak MB of a process that runs them."""
    start = [] if arguments[0] == "-c" else ["-m", "rankproof"]
    watched = [sys.executable, "-S", "-c", WATCH, sys.executable, *start, *arguments]
    done = subprocess.run(watched, capture_output=True, text=True, check=True)
    code, cpu, memory = done.stdout.split()
    if code not in ("0", "1"):
        raise SystemExit(f"{' '.join(arguments)[:200]}: {done.stderr}")
    return float(cpu), float(memory)


def sizes_of(size: int) -> list[int]:
    """Next to nothing, and the three sizes."""
    return [max(2, size // 50), size, *(size * step for step in STEPS)]


def measured(size: int, make: Callable[[Path, int], list[str]]) -> Array:
    """(4, 2) CPU seconds and MB at each size."""
    found = []
    for count in sizes_of(size):
        with tempfile.TemporaryDirectory() as folder:
            found.append(command(make(Path(folder), count)))
    return np.array(found)


def slopes(size: int, costs: Array, noise: float) -> tuple[float, float]:
    """Of what is above next to nothing, and of the steeper step, less what noise could add; NaN and
    0 where it hardly grows.
    """
    sizes, above = np.array(sizes_of(size)), costs[1:] - costs[0]
    steps = np.maximum(above[1:] - noise, noise) / (np.maximum(above[:-1], 0.0) + noise)
    least = max(0.0, float(np.log(steps.max()) / np.log(STEPS[0])))
    kept = above > noise
    if kept.sum() < 2:
        return np.nan, least
    return float(np.polyfit(np.log(sizes[1:] - sizes[0])[kept], np.log(above[kept]), 1)[0]), least


def main() -> None:
    wanted = sys.argv[1:]
    lines = [
        "Slopes of cost on size, both on logarithms: 1 is linear, `–` hardly grows. In brackets "
        "that of the steeper step from a size to one four times as large, less what "
        f"{NOISE['cpu']} s and {NOISE['memory']:.0f} MB of noise could add. It fails where either "
        f"is above {STEEP}. CPU seconds and MB at the largest of three sizes.",
        "",
        "| | largest size | CPU, s | slope | memory, MB | slope |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    worst: list[tuple[float, str]] = []
    for name, (size, make) in CASES.items():
        if wanted and name not in wanted:
            continue
        costs = measured(size, make)
        for _ in range(RUNS - 1):  # more than two where the machine may have been at other work
            costs = np.minimum(costs, measured(size, make))
            found = [slopes(size, costs[:, i], noise) for i, noise in enumerate(NOISE.values())]
            steepest = max(float(np.nanmax(each)) for each in found)
            if steepest <= STEEP:
                break
        worst.append((steepest, name))
        cpu, memory = ("–" if np.isnan(s) else f"{s:.2f} ({least:.2f})" for s, least in found)
        lines.append(
            f"| {name} | {size * STEPS[-1]:,} | {costs[-1, 0]:.2f} | {cpu} "
            f"| {costs[-1, 1]:.0f} | {memory} |"
        )
        print(lines[-1], file=sys.stderr)
    most = max(worst)
    lines += ["", f"The steepest: {most[1]}, {most[0]:.2f}."]
    if wanted:
        print("\n".join(lines))
    else:
        results.record("How cost grows", lines)
    steep = [f"{name} {value:.2f}" for value, name in worst if value > STEEP]
    if steep:
        raise SystemExit(f"steeper than {STEEP}: {', '.join(steep)}")


if __name__ == "__main__":
    main()
