"""doctor says what is there, what is missing and how to mend it, and asks nobody unnamed."""

from __future__ import annotations

import importlib.metadata
import json
import socket
from typing import Any

import pytest
from loopback import Reply, Request, loopback
from rankproof_cli import rankproof

import rankproof as rp
from rankproof.cli import terminal
from rankproof.commands import health, registry


def test_what_needs_something_is_a_verb() -> None:
    words = {command.name.split()[0] for command in registry.all_commands()}
    assert set(health.command_needs()) <= words


def test_nobody_is_asked_who_was_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection")

    monkeypatch.delenv(health.POSTGRES, raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    found = rp.doctor()
    assert found.answers
    assert {check.about for check in found.checks} == {"system", "compiled", "extra", "verb"}


def test_what_is_installed_is_not_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "lacking", lambda extra: ["x"] if extra == "viewer" else [])
    found = {c.name: c.says for c in rp.doctor().checks if c.about == "verb"}
    assert found["holes"] == "needs nothing more"
    golden = "has what it needs (retrieval); can do more with viewer (corrections in the browser)"
    assert found["golden"] == golden


def test_an_extra_that_is_not_there_is_named_with_its_command(
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
        found = {(c.about, c.name): c for c in rp.doctor().checks}
    finally:
        health.required.cache_clear()
    assert found["extra", "judge"].says == "lacks good"
    assert found["verb", "holes"].says == "needs nothing more; can do more with judge (judges them)"
    assert found["verb", "report"].well
    assert found["verb", "sweep"].says.startswith("lacks bm25s; can do more with torch")
    assert found["verb", "sweep"].mend == "pip install 'rankproof[retrieval]'"
    assert found["verb", "init"].mend == "pip install 'rankproof[retrieval]'"  # it reads text so
    assert found["verb", "all others"].well


@pytest.mark.parametrize(
    ("said", "asked"),
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
def test_compiled_code_that_is_not_there_is_built_from_where_the_package_comes(
    said: dict[str, Any] | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rankproof.precision import topk

    class Distribution:
        def read_text(self, name: str) -> str | None:
            return None if said is None else json.dumps(said)

    monkeypatch.delenv("RANKPROOF_NATIVE", raising=False)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution())
    monkeypatch.setattr(topk, "native", None)
    found = {c.name: c for c in health._compiled()}
    assert (
        found["searching"].says == "not built (that takes a C compiler): the same figures, slower"
    )
    options = "--force-reinstall --no-deps --no-cache-dir"
    assert found["searching"].mend == f"pip install {options} {asked}"


def test_a_narrow_terminal_shows_every_command_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(health, "find_spec", lambda name: None)
    monkeypatch.setattr(health, "_gpu", lambda: health.Check("system", "GPU", False, "none"))
    terminal.say(rp.doctor().words())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    extras = {needs.extra for needs in health.command_needs().values() if needs.extra}
    assert {f"      pip install 'rankproof[{extra}]'" for extra in extras} <= set(lines)


@pytest.mark.slow
def test_a_named_endpoint_is_asked_and_one_that_is_silent_ends_with_1() -> None:
    def answer(request: Request) -> Reply:
        if request.method == "GET":
            return Reply.of({"data": [{"id": "small"}]})
        return Reply.of({"choices": [{"message": {"content": "yes"}}], "model": "small"})

    with loopback(answer) as server:
        done = rankproof("doctor", "--url", server.url, "--format", "json")
        asked = rp.doctor(server.url, model="small").checks[-1]
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data["manifest"]["kind"] == "doctor"
    assert data["checks"][-1]["says"] == "answers; models: small"
    assert asked.says.startswith("small answers in ")
    gone = rankproof("doctor", "--url", server.url, "--format", "json")
    assert gone.returncode == 1
    assert not json.loads(gone.stdout)["checks"][-1]["well"]


def test_a_named_server_names_the_extra_that_asks_it_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(health.POSTGRES, "postgresql://me:covert@127.0.0.1:9/x")
    monkeypatch.setattr(health, "find_spec", lambda name: None)
    monkeypatch.setattr(health, "_gpu", lambda: health.Check("system", "GPU", False, "none"))
    found = rp.doctor("http://127.0.0.1:9/v1", milvus="http://127.0.0.1:9")
    servers = {c.name: (c.says, c.mend) for c in found.checks if c.about == "server"}
    assert servers == {
        "endpoint": ("an endpoint needs pydantic", "pip install 'rankproof[judge]'"),
        "PostgreSQL": ("PostgreSQL needs psycopg", "pip install 'rankproof[pgvector]'"),
        "Milvus": ("Milvus needs pymilvus", "pip install 'rankproof[milvus]'"),
    }
    assert not found.answers
    assert "covert" not in str(found)
