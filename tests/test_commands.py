"""Every command is one function: command line, Python and `verify` give the same.

python tests/test_commands.py    # writes the table of commands into docs/commands.md
"""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rankproof_cli import in_text

import rankproof as rp
from rankproof.cli import delivery
from rankproof.cli.command_line import build_command_line
from rankproof.commands import registry
from rankproof.commands.options import MemoryOptions
from rankproof.commands.registry import Needs, Source, all_commands, command
from rankproof.presentation.table_result import TableResult
from rankproof.presentation.tables import Column, Table

DATA = Path(rp.__file__).parent / "resources"
QRELS, TIED, PLAIN = (
    str(DATA / name) for name in ("demo-qrels.txt", "demo-saturated.trec", "demo-plain.trec")
)
RUNS = {"demo-saturated": TIED, "demo-plain": PLAIN}
MEASURES = ["nDCG@5", "RBP(rel=1,p=0.8)@100"]
LISTED = ",".join(MEASURES)


@dataclass(frozen=True)
class Case:
    """A small call of a command, as typed and in Python."""

    words: list[str]
    call: Callable[[], Any]
    code: int = 0


CASES = {
    "eval": Case(
        ["eval", QRELS, TIED, PLAIN, "-m", LISTED, "--holes", "--human", QRELS, "--level", "2"],
        lambda: rp.evaluate(QRELS, RUNS, MEASURES, holes=True, human=QRELS, level=2),
    ),
    "compare": Case(
        ["compare", QRELS, TIED, PLAIN, "-m", LISTED, "--order", "docid", "--depth", "20"],
        lambda: rp.compare(QRELS, RUNS, MEASURES, order="docid", depth=20),
    ),
    "gate": Case(
        ["gate", QRELS, PLAIN, TIED, "-m", LISTED, "--margin", "0.02,0.01", "--condensed"],
        lambda: rp.gate(QRELS, PLAIN, TIED, MEASURES, [0.02, 0.01], condensed=True),
        code=3,
    ),
    "leaderboard": Case(
        ["leaderboard", QRELS, TIED, PLAIN, "-m", LISTED, "--memory", "1GB", "--seed", "3"],
        lambda: rp.leaderboard(QRELS, RUNS, MEASURES, memory="1GB", seed=3),
    ),
    "holes": Case(
        ["holes", QRELS, TIED, PLAIN, "-m", "nDCG@5", "--judge-next", "3", "--level", "2"],
        lambda: rp.holes(QRELS, RUNS, "nDCG@5", judge_next=3, level=2),
    ),
    "ties": Case(
        ["ties", TIED, PLAIN, "--at", "5,10", "--score-dtype", "float16"],
        lambda: rp.ties(RUNS, at=[5, 10], score_dtype="float16"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_command_line_python_and_verify_give_the_same(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    stored = tmp_path / "result.json"
    done = in_text(*case.words, "--format", "json", "--out", str(stored))
    assert done.returncode == case.code, done.stderr
    printed = json.loads(done.stdout)
    printed.pop("manifest")
    assert printed == json.loads(json.dumps(case.call().to_dict()))
    verification = rp.verify(stored, [DATA])
    assert verification.same, verification.words()
    assert verification.unmade is None
    assert verification.compared > 10


def test_every_command_that_can_be_repeated_has_a_case_here_or_in_a_test_of_its_own() -> None:
    """A command whose result follows from its inputs is checked against `verify` somewhere."""
    elsewhere = {"ceilings", "recommend", "golden agreement", "golden diff"}
    elsewhere |= {"audit vectors", "audit logits", "audit scores"}
    repeated = {c.name for c in all_commands() if c.replay is not False and not c.prints}
    repeated -= {c.name for c in all_commands() if isinstance(c.replay, str)}
    assert repeated <= set(CASES) | elsewhere


def test_unknown_keywords_are_refused_with_a_suggestion() -> None:
    with pytest.raises(TypeError, match=r"compare\(\) has no argument 'ordr'; did you mean order"):
        rp.compare(QRELS, RUNS, ordr="docid")  # type: ignore[call-overload]


def test_a_policy_is_given_whole_or_in_parts() -> None:
    policy = rp.Policy.of(order="docid", depth=20)
    whole = rp.compare(QRELS, RUNS, "nDCG@5", policy=policy).to_dict()
    assert whole == rp.compare(QRELS, RUNS, "nDCG@5", order="docid", depth=20).to_dict()
    with pytest.raises(rp.InputError, match="policy and order are both given"):
        rp.compare(QRELS, RUNS, "nDCG@5", policy=policy, order="docid")


def test_swapped_arguments_are_refused_in_one_line() -> None:
    run, qrels = rp.read_run(TIED), rp.read_qrels(QRELS)
    for call in (rp.evaluate, rp.holes):
        with pytest.raises(rp.InputError, match=r"judgments come first: \w+\(qrels, run"):
            call(run, qrels, "nDCG@5")


def test_importing_all_commands_loads_neither_numpy_nor_polars_nor_rich() -> None:
    code = (
        "import sys\n"
        "from rankproof.cli.command_line import build_command_line\n"
        "from rankproof.commands.registry import all_commands\n"
        "assert build_command_line() and all_commands()\n"
        "print(sorted({'numpy', 'polars', 'rich', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


PAGE = Path(__file__).parents[1] / "docs" / "commands.md"


def test_the_commands_in_the_docs_are_those_that_exist() -> None:
    assert registry.docs_table() in PAGE.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------ a new command


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> registry.Command:
    """A command that somebody adds: how many lines a file has."""
    from typing import Annotated, Unpack

    def count(
        file: Annotated[str, Source("FILE", "file"), "A text."],
        *,
        twice: Annotated[bool, "Count each line twice."] = False,
        **options: Unpack[MemoryOptions],
    ) -> TableResult:
        """Count the lines of a file."""
        lines = len(Path(file).read_text().splitlines()) * (2 if twice else 1)
        table = Table([Column("lines")], [[lines]])
        return TableResult("count", {"lines": lines}, [table], answer=f"{lines} lines")

    count.__annotations__ |= {
        "file": Annotated[str, Source("FILE", "file"), "A text."],
        "twice": Annotated[bool, "Count each line twice."],
        "options": Unpack[MemoryOptions],
    }
    monkeypatch.setattr(registry, "COMMANDS", dict(registry.COMMANDS))
    command(group="Tools", needs=Needs("judge", ("httpx2",)))(count)
    module = types.ModuleType("rankproof.commands.count")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = registry.command_modules()
    monkeypatch.setattr(registry, "command_modules", lambda: [*names, "count"])
    return registry.COMMANDS["count"]


def test_a_new_command_is_everywhere_at_once(
    counting: registry.Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rankproof.commands import health
    from rankproof.report import write_report

    text, stored = tmp_path / "text.txt", tmp_path / "results" / "count.json"
    text.write_text("a\nb\n")
    arguments: dict[str, Any] = {"file": str(text), "twice": True}
    values = {"format": "json", "out": stored}
    assert delivery.run_command(counting, arguments, values) == 0
    assert json.loads(capsys.readouterr().out)["lines"] == 4, "command line"
    app = build_command_line()
    assert app.get_command(None, "count") is not None
    command_help = app.get_command(None, "count")
    assert command_help is not None
    command_help.main(["--help"], prog_name="rankproof count", standalone_mode=False)
    shown = capsys.readouterr().out
    assert "Count the lines of a file." in shown, "help"
    assert "--twice" in shown
    assert "--memory SIZE" in shown
    verification = rp.verify(stored, [text])
    assert (verification.same, verification.unmade, verification.compared) == (True, None, 1)
    text.write_text("a\n")
    assert rp.verify(stored, [text]).exit_code == 1
    assert health.command_needs()["count"].extra == "judge", "doctor"
    page, unread = write_report(tmp_path / "results")
    assert unread == []
    assert "4 lines" in page.read_text(encoding="utf-8"), "report"
    assert "| `count` | Count the lines of a file. | `rankproof[judge]` |" in registry.docs_table()


if __name__ == "__main__":
    introduction = PAGE.read_text(encoding="utf-8").partition("| command |")[0]
    PAGE.write_text(f"{introduction}{registry.docs_table()}\n", encoding="utf-8")
