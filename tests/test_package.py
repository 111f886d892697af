"""The package from outside: its names, what importing it loads, its documents."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rankproof_cli import rankproof

import rankproof as rp

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))


def test_the_public_names_are_these() -> None:
    measures = "AP ERR F1 Harm Hit Hits Judged NRecall4 NRecall5 P P4 R RAnWG RBP RR Rprec Success"
    measures += " alpha_DCG alpha_nDCG AP_IA ERR_IA nERR_IA P_IA StRecall"
    measures += " AP11 GMAP IPrec NumRel NumRelRet NumRet RBPResidual SetAP SetF SetP SetR infAP"
    nouns = "Audit Comparison Evaluation MeanScore Measure Outcomes Qrels QuerySet Run TieGroups"
    nouns += " TieStatistics Verdict"
    boards = "Gate gate Leaderboard leaderboard"
    whole = "ties TieReport Evaluations Policy Prepared init Chosen choose Health doctor"
    whole += " parts ComponentList search SearchResult ceilings diagnose recommend sweep"
    errors = "InputError MeasureError MissingExtra RankproofError"
    verbs = "compare evaluate evaluate_arrays measure parse read_qrels read_run tie_statistics"
    audits = "audit_logits audit_model audit_scores audit_vectors bench holes"
    audits += " Unjudged Verification verify"
    found = f"{nouns} {errors} {verbs} {audits} {boards} {whole} __version__"
    names = f"{measures} DCG UDCG bpref nDCG {found}"
    assert sorted(rp.__all__) == sorted(names.split())


def test_every_public_name_loads() -> None:
    for name in rp.__all__:
        assert getattr(rp, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'ndcg'"):
        _ = rp.ndcg


def test_every_registered_measure_is_a_public_name() -> None:
    from rankproof.measures import REGISTRY

    for name in REGISTRY:
        assert str(getattr(rp, name)) == name


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import sys, rankproof; print(*sorted(m.partition('.')[0] for m in sys.modules))"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "rankproof" in loaded
    assert not {"numpy", "polars", "click", "rich", "torch", "ray", "pandas"} & set(loaded)


def test_evaluating_needs_numpy_and_polars_alone() -> None:
    code = """
import sys
for name in ("click", "rich", "pandas", "pyarrow", "torch", "scipy", "backports.zstd"):
    sys.modules[name] = None
import rankproof as rp
assert rp.evaluate({"q": {"a": 1}}, {"q": {"a": 1.0, "b": 1.0}}, ["RR"])["RR"].expected == 0.75
rp.compare({"q": {"a": 1}}, {"x": {"q": {"a": 1.0}}, "y": {"q": {"b": 1.0}}}, ["RR"])
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_loads_neither_numpy_nor_polars() -> None:
    code = """
import sys
sys.argv = ["rankproof", "--help"]
from rankproof.cli import main
try:
    main()
except SystemExit:
    pass
print(*sorted(m.partition('.')[0] for m in sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "polars"} & set(done.stderr.split())


@pytest.mark.parametrize("asked", ["eval -m nDCG@10 --format json", "trec_eval -q -m all_trec"])
def test_evaluating_trec_files_on_the_command_line_loads_neither_polars_nor_pydantic(
    asked: str,
) -> None:
    data = Path(rp.__file__).parent / "resources"
    code = f"""
import os, sys
sys.argv = ["rankproof", *{asked!r}.split(), {str(data / "demo-qrels.txt")!r},
            {str(data / "demo-saturated.trec")!r}]
from rankproof import cli
os._exit = lambda code: sys.exit(code)
try:
    cli.run()
except SystemExit as stop:
    assert stop.code == 0
print(*sorted(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pydantic", "polars.series", "rich.console"} & set(done.stderr.split())


def pages_with_python() -> list[Path]:
    return [path for path in [ROOT / "README.md", *DOCS] if "```python\n" in path.read_text()]


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with_python(), ids=lambda path: path.name)
def test_python_in_the_documents_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page run one after the other, as a reader would run them."""
    from rankproof.commands.showcase import unpack
    from rankproof.data import formats
    from rankproof.data.sources import ENDINGS
    from rankproof.measures import REGISTRY
    from rankproof.retrieval import components

    components.list_components()  # all are declared by now
    known, declared = dict(REGISTRY), dict(components._registered)
    read, endings = list(formats.FORMATS), dict(ENDINGS)
    monkeypatch.chdir(tmp_path)
    unpack(tmp_path / "try")
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    names = {"__name__": "document"}
    try:
        for number, block in enumerate(blocks):
            exec(compile(block, f"{page.name}-{number}", "exec"), names)
    finally:
        REGISTRY.clear()
        REGISTRY.update(known)
        components._registered.clear()
        components._registered.update(declared)
        formats.FORMATS[:] = read
        formats.REGISTERED.clear()
        ENDINGS.clear()
        ENDINGS.update(endings)


QUOTING = ("ceilings.md", "gate.md", "holes.md", "paper.md", "quickstart.md", "recommend.md")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUOTING)
def test_a_page_quotes_what_its_commands_print(name: str, tmp_path: Path) -> None:
    """Each output that follows a command is compared, line by line. test_audit_… has audit.md."""
    from rankproof.commands.showcase import unpack

    unpack(tmp_path / "try")
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.S | re.M))
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    quotes = re.findall(
        r"^```(?:console\n\$ |sh\n)rankproof ([^\n]*)\n```\n+```text\n(.*?)^```", page, re.S | re.M
    )
    assert quotes
    for command, text in quotes:
        done = rankproof(*command.split(), cwd=tmp_path)
        exit_code = re.search(r"\(exit (\d)\)", text)
        assert done.returncode == (int(exit_code[1]) if exit_code else 0), done.stderr.decode()
        printed = done.stdout.decode().split()
        for line in filter(None, map(str.split, text.splitlines())):
            starts = (n for n, word in enumerate(printed) if word == line[0])
            assert any(printed[n : n + len(line)] == line for n in starts), " ".join(line)


@pytest.mark.slow
def test_shell_in_the_documents_runs(tmp_path: Path) -> None:
    """Commands run in one folder, page after page; a YAML block that names itself is a file.

    Those of the front page run in a folder of their own: test_readme_path.py.
    """
    from rankproof.commands.showcase import unpack

    demo = {"a.trec": "saturated", "b.trec": "plain", "bm25.trec": "plain"}
    demo |= {"dense.trec": "saturated", "run.trec": "saturated"}
    data = Path(rp.__file__).parent / "resources"
    (tmp_path / "qrels.txt").write_bytes((data / "demo-qrels.txt").read_bytes())
    for name, source in demo.items():
        (tmp_path / name).write_bytes((data / f"demo-{source}.trec").read_bytes())
    unpack(tmp_path / "try")
    shutil.copytree(tmp_path / "try" / "corpus", tmp_path / "corpus")
    for path in [ROOT / "README.md", *DOCS]:
        for name, text in re.findall(
            r"^```yaml\n# (\S+\.yaml)\n(.*?)^```", path.read_text(), re.S | re.M
        ):
            assert not (tmp_path / name).exists(), f"{path.name}: {name} is on another page too"
            (tmp_path / name).write_text(text)
    commands = [
        line
        for path in DOCS
        for block in re.findall(r"^```sh\n(.*?)^```", path.read_text(), re.S | re.M)
        for line in block.splitlines()
        if line.startswith("rankproof ")
    ]
    assert len(commands) >= 8
    assert any(line.startswith("rankproof demo") for line in commands)  # test_report.py runs it
    for line in (line for line in commands if not line.startswith("rankproof demo")):
        words = line.partition("  #")[0].split()[1:]
        done = rankproof(*words, cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr.decode())


def test_links_in_the_documents_lead_somewhere() -> None:
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]:
        for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} → {target}"


def test_the_readme_quotes_what_the_demo_computes() -> None:
    data = Path(rp.__file__).parent / "resources"
    text = (ROOT / "README.md").read_text()
    figures = {
        name: rp.evaluate(data / "demo-qrels.txt", data / f"demo-{name}.trec", "nDCG@5")["nDCG@5"]
        for name in ("saturated", "plain")
    }
    tied, plain = figures["saturated"], figures["plain"]
    assert f"| **{tied.oblivious:.3f}** | {tied.expected:.3f} |" in text
    assert f"| {tied.min:.3f}–{tied.max:.3f} |" in text
    assert f"| {plain.oblivious:.3f} | **{plain.expected:.3f}** |" in text
    assert f'"wins" by {tied.oblivious - plain.oblivious:.3f}' in text
    assert f"in truth {plain.expected - tied.expected:.3f} worse" in text


def test_the_measure_table_in_the_documents_is_the_registry() -> None:
    table = subprocess.check_output(
        [sys.executable, "-m", "rankproof", "measures", "--format", "md"], text=True
    )
    rows = table.partition("\n\n")[0]  # notes follow
    assert rows in (ROOT / "docs" / "measures.md").read_text()


def test_without_compiled_code_the_figures_are_the_same(tmp_path: Path) -> None:
    data = Path(rp.__file__).parent / "resources"
    code = f"""
import rankproof as rp
from rankproof.foundation import kernels
for order in ("input", "docid", "trec_eval"):
    for name in ("saturated", "plain"):
        run, qrels = {str(data)!r} + f"/demo-{{name}}.trec", {str(data / "demo-qrels.txt")!r}
        print(rp.evaluate(qrels, run, ["nDCG@10", "AP", "RR", "bpref"], order=order).to_dict())
import sys
print(kernels.native is None, file=sys.stderr)
"""
    import os

    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "RANKPROOF_NATIVE": flag},
            capture_output=True,
            text=True,
            check=True,
        )
        for flag in ("0", "1")
    ]
    assert outputs[0].stderr.strip() == "True"
    assert outputs[0].stdout == outputs[1].stdout


@pytest.mark.slow
def test_the_site_of_the_documents_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.glob("*/index.html"))
    assert len(pages) >= len(DOCS)
    for page in pages:
        for target in re.findall(r'(?:href|src)="([^"#:]+)["#]', page.read_text()):
            found = page.parent / target
            assert found.is_file() or (found / "index.html").is_file(), f"{page} → {target}"


def test_the_version_is_one() -> None:
    assert importlib.metadata.version("rankproof") == rp.__version__


def test_no_module_bears_the_name_of_a_public_function() -> None:
    """Importing such a module would put it in the place of the function: `rp.holes(...)` fails."""
    modules = {path.stem for path in (ROOT / "src" / "rankproof").iterdir()}
    assert not modules & set(rp.__all__)
