"""`doctor` reports what is installed and what is missing, and calls only servers that are named."""

from __future__ import annotations

import importlib.metadata
import json
import socket
from typing import Any

import pytest
from loopback import Reply, Request, loopback
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.commands import health, registry
from rankproof.presentation.result import Presentation
from rankproof.presentation.terminal import print_presentation


def test_everything_that_has_needs_is_a_command() -> None:
    first_words = {command.name.split()[0] for command in registry.all_commands()}
    assert set(health.command_needs()) <= first_words


def test_no_server_is_called_that_was_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection")

    monkeypatch.delenv(health.POSTGRES, raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    result = rp.doctor()
    assert result.answers
    assert {check.about for check in result.checks} == {"system", "compiled", "extra", "verb"}


def test_extras_that_are_installed_are_not_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        health, "missing_packages", lambda extra: ["x"] if extra == "viewer" else []
    )
    outcomes = {c.name: c.says for c in rp.doctor().checks if c.about == "verb"}
    assert outcomes["holes"] == "needs nothing more"
    golden = "has what it needs (retrieval); can do more with viewer (corrections in the browser)"
    assert outcomes["golden"] == golden


def test_a_missing_extra_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ["numpy>=1", "good>=2; extra == 'judge'", "rankproof[judge]; extra == 'retrieval'"]
    lines += ["only-there; sys_platform == 'nowhere' and extra == 'judge'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    monkeypatch.setattr(health, "find_spec", lambda name: None if name == "bm25s" else name)
    monkeypatch.setattr(health, "_gpu", lambda: health.Check("system", "GPU", False, "none"))
    health.required.cache_clear()
    try:
        assert health.required() == {"judge": ("good",), "retrieval": ("good",)}
        checks = {(c.about, c.name): c for c in rp.doctor().checks}
    finally:
        health.required.cache_clear()
    assert checks["extra", "judge"].says == "lacks good"
    assert (
        checks["verb", "holes"].says == "needs nothing more; can do more with judge (judges them)"
    )
    assert checks["verb", "report"].well
    assert checks["verb", "sweep"].says.startswith("lacks bm25s; can do more with torch")
    assert checks["verb", "sweep"].mend == "pip install 'rankproof[retrieval]'"
    assert checks["verb", "init"].mend == "pip install 'rankproof[retrieval]'"  # it reads text so
    assert checks["verb", "all others"].well


@pytest.mark.parametrize(
    ("direct_url", "requirement"),
    [
        (None, "rankproof"),
        (
            {"url": "https://host/rankproof.git", "vcs_info": {"vcs": "git"}},
            "git+https://host/rankproof.git",
        ),
        ({"url": "file:///my%20folder/code", "dir_info": {}}, "'/my folder/code'"),
        ({"url": "file:///code", "dir_info": {"editable": True}}, "--editable /code"),
        ({"url": "file:///dist/x.whl", "archive_info": {}}, "/dist/x.whl"),
    ],
)
def test_missing_compiled_code_is_rebuilt_from_the_origin_of_the_package(
    direct_url: dict[str, Any] | None, requirement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankproof.precision import topk

    class Distribution:
        def read_text(self, name: str) -> str | None:
            return None if direct_url is None else json.dumps(direct_url)

    monkeypatch.delenv("RANKPROOF_NATIVE", raising=False)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution())
    monkeypatch.setattr(topk, "native", None)
    checks = {c.name: c for c in health._compiled()}
    assert (
        checks["searching"].says == "not built (that takes a C compiler): the same values, slower"
    )
    options = "--force-reinstall --no-deps --no-cache-dir"
    assert checks["searching"].mend == f"pip install {options} {requirement}"


def test_every_missing_extra_has_its_command_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(health, "find_spec", lambda name: None)
    monkeypatch.setattr(health, "_gpu", lambda: health.Check("system", "GPU", False, "none"))
    print_presentation(Presentation.of(rp.doctor()))
    lines = capsys.readouterr().out.splitlines()
    text = " ".join(lines)
    extras = {needs.extra for needs in health.command_needs().values() if needs.extra}
    assert all(f"pip install 'rankproof[{extra}]'" in text for extra in extras)


def test_the_answer_names_commands_that_work_and_those_that_lack_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(health.POSTGRES, raising=False)
    monkeypatch.setattr(health, "find_spec", lambda name: None if name == "ml_dtypes" else object())
    monkeypatch.setattr(health, "_gpu", lambda: health.Check("system", "GPU", False, "none"))
    lines = rp.doctor().lines()
    assert lines[0].startswith("Ready: ")
    assert "golden" in lines[0]
    assert lines[1] == "Missing: audit → pip install 'rankproof[scoring]'"
    assert len(lines) <= 6


@pytest.mark.slow
def test_a_named_endpoint_is_called_and_exits_with_1_if_it_does_not_answer() -> None:
    def answer(request: Request) -> Reply:
        if request.method == "GET":
            return Reply.of({"data": [{"id": "small"}]})
        return Reply.of({"choices": [{"message": {"content": "yes"}}], "model": "small"})

    with loopback(answer) as server:
        answered = rankproof("doctor", "--url", server.url, "--format", "json")
        check = rp.doctor(server.url, model="small").checks[-1]
    assert answered.returncode == 0, answered.stderr
    data = json.loads(answered.stdout)
    assert data["manifest"]["kind"] == "doctor"
    assert data["checks"][-1]["says"] == "answers; models: small"
    assert check.says.startswith("small answers in ")
    silent = rankproof("doctor", "--url", server.url, "--format", "json")
    assert silent.returncode == 1
    assert not json.loads(silent.stdout)["checks"][-1]["well"]


def test_each_named_server_names_the_extra_that_its_client_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(health.POSTGRES, "postgresql://me:covert@127.0.0.1:9/x")
    monkeypatch.setattr(health, "find_spec", lambda name: None)
    monkeypatch.setattr(health, "_gpu", lambda: health.Check("system", "GPU", False, "none"))
    result = rp.doctor("http://127.0.0.1:9/v1", milvus="http://127.0.0.1:9")
    servers = {c.name: (c.says, c.mend) for c in result.checks if c.about == "server"}
    assert servers == {
        "endpoint": ("an endpoint needs pydantic", "pip install 'rankproof[judge]'"),
        "PostgreSQL": ("PostgreSQL needs psycopg", "pip install 'rankproof[pgvector]'"),
        "Milvus": ("Milvus needs pymilvus", "pip install 'rankproof[milvus]'"),
    }
    assert not result.answers
    assert "covert" not in str(result)
