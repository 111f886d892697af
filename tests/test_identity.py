"""What decides a result decides what is used again: no more, so that nothing is paid twice, and no
less, so that two different things never share a result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankproof.foundation.config import Settings
from rankproof.retrieval import components
from rankproof.retrieval.components import (
    ComponentChoice,
    ForeignSettings,
    component_of,
    list_components,
)
from rankproof.retrieval.embedders.endpoint import EmbeddingEndpointSettings
from rankproof.retrieval.identity import environment_digest, fingerprint, identity, is_reproducible
from rankproof.retrieval.rewriters.llm import LlmRewriterSettings


def endpoint(**more: Any) -> EmbeddingEndpointSettings:
    said: dict[str, Any] = {"type": "endpoint", "url": "http://a.example/v1", "model": "m"}
    return EmbeddingEndpointSettings(**said | more)


@pytest.mark.parametrize(
    "moved",
    [
        {"url": "https://elsewhere.example/v2"},
        {"key_env": "OTHER"},
        {"timeout_s": 5.0},
        {"attempts": 2},
        {"batch": 3},
    ],
    ids=str,
)
def test_the_address_of_a_server_does_not_change_identity(moved: dict[str, Any]) -> None:
    assert identity(endpoint()) == identity(endpoint(**moved))


@pytest.mark.parametrize(
    "other",
    [{"model": "n"}, {"shape": "voyage"}, {"dimensions": 64}, {"query_prompt": "query: "}],
    ids=str,
)
def test_what_changes_an_answer_is_another_identity(other: dict[str, Any]) -> None:
    assert identity(endpoint()) != identity(endpoint(**other))


def test_every_setting_of_every_component_is_in_its_identity_or_declared_operational() -> None:
    """A key that says how a server is asked must be named in `operation`, wherever it is."""
    asking = {"url", "key_env", "timeout_s", "attempts", "dsn_env"}
    for part in list_components():
        forgotten = (asking & set(part.settings.model_fields)) - part.settings.operation
        engine = part.kind == "retriever"  # known by its address, where nothing else names it
        assert engine or not forgotten, f"{part.kind} {part.type}: {forgotten}"
        assert part.settings.operation <= set(part.settings.model_fields), part


def test_components_of_another_kind_or_type_have_another_identity() -> None:
    def keys(settings: Settings) -> Any:
        return identity(settings)

    seen: dict[str, Any] = {}
    for part in list_components():
        try:
            chosen = part.settings.model_validate({"type": part.type})
        except ValueError:
            continue  # it needs more than its type
        said = str(keys(chosen))
        assert said not in seen, (part, seen[said])
        seen[said] = part


class Named:
    """An embedder that says what decides its vectors."""

    name = "named"

    def __init__(self, fingerprint: str):
        self.fingerprint = fingerprint

    def embed_queries(self, texts: Sequence[str]) -> Any:
        return np.ones((len(texts), 2), np.float32)

    embed_passages = embed_queries


class Silent(Named):
    """One that does not."""

    def __init__(self) -> None:
        super().__init__("")


def test_the_identity_of_an_object_is_its_fingerprint() -> None:
    assert identity(Named("a")) == identity(Named("a")) != identity(Named("b"))
    one, other = Silent(), Silent()
    assert identity(one) == identity(one) != identity(other)
    assert is_reproducible(identity(Named("a")))
    assert not is_reproducible([{"deep": [identity(one)]}])


def test_the_name_of_a_model_alone_is_not_an_identity() -> None:
    """Two embedders of one model may be prompted differently."""
    one, other = Silent(), Silent()
    one.model = other.model = "minilm"  # type: ignore[attr-defined]
    assert identity(one) != identity(other)
    assert not is_reproducible(identity(one))


def test_a_file_in_the_keys_of_a_users_class_is_identified_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_with_files.py").write_text("class E:\n    pass\n")
    weights, model = tmp_path / "w.npy", tmp_path / "model"
    model.mkdir()
    weights.write_bytes(b"1")
    (model / "model.safetensors").write_bytes(b"1")

    def told(**keys: str) -> Any:
        return identity(ForeignSettings(type="mine_with_files:E", **keys))

    before = told(weights="w.npy", model="model")
    assert before == told(weights=str(weights), model=str(model))  # wherever they lie
    long = "a prompt, and no file: " * 1000
    assert told(prompt=long)["own"] == {"prompt": long}
    weights.write_bytes(b"2")
    changed = told(weights="w.npy", model="model")
    assert changed != before
    (model / "model.safetensors").write_bytes(b"22")
    assert told(weights="w.npy", model="model") != changed


def test_a_users_class_has_another_identity_after_its_file_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "mine_for_identity.py"
    module.write_text("class E:\n    pass\n")
    chosen = ForeignSettings(type="mine_for_identity:E", size=3)  # type: ignore[call-arg]
    before = identity(chosen)
    assert before["own"] == {"size": 3}
    module.write_text("class E:\n    'changed'\n")
    assert identity(chosen) != before
    assert identity(ForeignSettings(type="mine_for_identity:E", size=4)) != identity(chosen)  # type: ignore[call-arg]


def test_measured_times_are_identified_by_machine_and_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = environment_digest(("numpy",))
    assert here == environment_digest(("numpy",))
    monkeypatch.setattr("rankproof.retrieval.identity.machine", lambda: {"cores": 96})
    assert environment_digest(("numpy",)) != here


def test_two_components_of_one_name_are_refused() -> None:
    from rankproof.foundation.errors import InputError

    with pytest.raises(InputError, match="there is already an index of the type 'flat'"):

        @components.part("index", "flat")
        def mine(settings: Settings) -> None: ...

    assert (
        components.find_component("index", "flat").make.__module__
        == "rankproof.retrieval.indexes.flat"
    )


def test_settings_of_another_kind_are_refused() -> None:
    from pydantic import TypeAdapter, ValidationError

    embedder = endpoint()
    assert component_of(embedder).kind == "embedder"
    adapter: TypeAdapter[Any] = TypeAdapter(components.RerankerChoice)
    with pytest.raises(ValidationError, match="give a reranker"):
        adapter.validate_python(embedder)
    assert ComponentChoice("reranker") == ComponentChoice("reranker")


def test_the_identity_of_a_rewriter_contains_its_prompts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen = LlmRewriterSettings(type="llm", url="http://h", model="m")
    before = fingerprint(chosen)
    monkeypatch.setattr(
        "rankproof.retrieval.rewriters.llm.template", lambda language: ("be", "brief")
    )
    assert fingerprint(chosen) != before
