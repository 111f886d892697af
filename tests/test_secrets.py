"""No secret in any file or line: planted in every field, echoed by a server in every way."""

from __future__ import annotations

import base64
import gzip
import html
import json
import logging
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import polars as pl
import pytest
from golden_sets import honest, write_corpus
from hypothesis import given
from hypothesis import strategies as st
from loopback import PATIENCE, Reply, Request, loopback
from rankproof_cli import rankproof
from test_golden_store import REPLY

from rankproof.foundation.config import check_config, read_secret
from rankproof.foundation.errors import InputError, shorten
from rankproof.foundation.manifest import manifest
from rankproof.foundation.redaction import (
    redact,
    redact_for_publication,
    register_address,
    register_secret,
    remove_secrets,
)
from rankproof.golden.settings import GoldenSettings
from rankproof.golden.store import Store
from rankproof.presentation.charts import Range, RangeChart
from rankproof.presentation.display import Charts
from rankproof.retrieval.chat import Chat
from rankproof.retrieval.components import ForeignSettings
from rankproof.retrieval.http import Address, Endpoint, JsonClient

KEY = "sk-proj-Zq7Rt2/Wv+x9Lm4Kd8"
PASSWORD = "Tr0ub4dor:3&co"
QUERY = "qs-9f8e7d6c5b4a"
SECRETS = (KEY, PASSWORD, QUERY)


def shapes(text: str) -> list[str]:
    """What a server may make of a secret."""
    raw = text.encode()
    return [
        text,
        quote(text, safe=""),
        json.dumps({"seen": text}),
        html.escape(text),
        repr(text),
        raw.hex(),
        base64.b64encode(raw).decode(),
        base64.b64encode(b"Bearer " + raw).decode(),
        base64.b64encode(b"me:" + raw).decode(),
        base64.urlsafe_b64encode(b"a" + raw + b"z").decode(),
        f"{text[:4]}****{text[-4:]}",
        f"{text[:6]}…{text[-4:]}",
        f"{text[:5]}...{text[-3:]}",
        f"begins with {text[:12]}",
        text[-12:],
    ]


def traces(text: str) -> Iterator[bytes]:
    """What of a secret nobody may find: itself, its pieces, its encodings."""
    for form in (text, quote(text, safe=""), json.dumps(text)[1:-1]):
        yield form.encode()
    for at in range(len(text) - 9):
        yield text[at : at + 10].encode()
    raw = text.encode()
    yield raw.hex().encode()
    for before in (b"", b"me:", b"a", b"ab"):
        encoded = base64.b64encode(before + raw)
        yield encoded[6:-4]
        yield encoded[6:-4].translate(bytes.maketrans(b"+/", b"-_"))
    yield f"{text[:4]}*".encode()
    yield f"*{text[-4:]}".encode()


def leaks(data: bytes) -> list[str]:
    return sorted({s for s in SECRETS for trace in traces(s) if trace in data})


@pytest.fixture
def _known() -> None:
    for text in SECRETS:
        register_secret(text)


@pytest.mark.usefixtures("_known")
@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_redacted_in_every_spelling(text: str) -> None:
    for shape in shapes(text):
        said = redact(f"the header was <{shape}> and that is wrong")
        assert not leaks(said.encode()), (shape, said)
        assert said.startswith("the header was <")
        assert said.endswith("> and that is wrong")


@pytest.mark.usefixtures("_known")
def test_other_words_are_not_changed() -> None:
    text = (
        "Which of the 3,000 keys… sky, proj-x (https://host/v1?page=2#top) was at 12:30? 0.125 *x*"
    )
    assert redact(text) == remove_secrets(text) == text


@given(st.text(min_size=8, max_size=40).filter(lambda text: text.strip() == text))
def test_redacting_leaves_nothing_of_a_secret_and_redacting_again_changes_nothing(
    text: str,
) -> None:
    register_secret(text)
    for shape in (text, json.dumps(text), quote(text, safe=""), base64.b64encode(text.encode())):
        redacted = redact(f"<{shape!s}>")
        assert text not in redacted
        assert redact(redacted) == redacted


def test_a_word_of_a_megabyte_can_be_redacted() -> None:
    register_secret(KEY)
    word = "☃" * 1_000_000  # a search from each of its letters would take hours
    assert remove_secrets(word) == word
    assert remove_secrets(f"{word}{KEY[:4]}***{KEY[-4:]}") == f"{word}…"


@pytest.mark.parametrize("text", ["=?" + "key" * 300_000, "http://host/" + "?" * 1_000_000])
def test_a_megabyte_that_begins_like_a_secret_can_be_redacted(text: str) -> None:
    assert redact(text) == text


def test_pieces_of_a_secret_are_redacted_in_one_pass() -> None:
    register_secret(KEY)
    assert remove_secrets(f"{KEY[:12]} " * 100_000) == "… " * 100_000


def test_every_text_of_a_value_is_redacted_and_no_number() -> None:
    register_secret(KEY)
    vector = [0.5, 1.5]
    value = {"a": [KEY, {"b": f"x {KEY}"}], KEY: 1, "v": vector, "n": None, "t": (KEY, 1)}
    found = remove_secrets(value)
    assert found == {"a": ["…", {"b": "x …"}], "…": 1, "v": vector, "n": None, "t": ("…", 1)}
    assert found["v"] is vector


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pw@host/v1", "https://…@host/v1"),
        ("https://token-1234@host", "https://…@host"),
        ("postgresql://u:p%40w@h:5/db", "postgresql://…@h:5/db"),
        ("https://h/v1?api-version=2024-10-21&k=ab", "https://h/v1?api-version=2024-10-21&k=…"),
        ("https://h/v1?sig=a%2Fb", "https://h/v1?sig=…"),
    ],
)
def test_an_address_is_shown_without_known_and_unknown_secrets(url: str, shown: str) -> None:
    assert redact(url) == shown
    assert redact({"url": url}) == {"url": shown}
    assert redact_for_publication(url) == shown.split("?")[0].replace("…@", "")


def test_published_text_names_no_folders() -> None:
    config = {"corpus": "/home/me/data/set", "own": Path("/home/me/x.yaml"), "model": "org/model"}
    expected = {"corpus": "set", "own": "x.yaml", "model": "org/model"}
    assert redact_for_publication(config) == manifest("test", config=config)["config"] == expected


def test_the_password_of_a_connection_string_is_registered_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text in (
        "host=h password='Tr0ub4dor:3&co' user=me",
        "host=h password=Tr0ub4dor:3&co",
        "postgresql://me:Tr0ub4dor%3A3&co@h/db",
    ):
        monkeypatch.setattr("rankproof.foundation.redaction._spellings", {})
        monkeypatch.setenv("MY_DSN", text)
        read_secret("MY_DSN", "PostgreSQL")
        assert str(InputError(f"FATAL: {PASSWORD} is wrong")) == "FATAL: … is wrong"
        assert redact("the host h is up") == "the host h is up"


def test_a_long_value_is_redacted_before_it_is_cut() -> None:
    register_secret(KEY)
    for before in range(40, 60):
        assert not leaks(shorten("x" * before + KEY).encode())
    assert "pw" not in shorten("https://me:" + "pw" * 60 + "@host")


@pytest.mark.parametrize("written", [KEY, "4f3c2b1a09f8e7d6c5b4a3f2e1d0c9b8"])
def test_a_key_in_place_of_its_variable_is_not_shown(written: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        JsonClient(Address("http://127.0.0.1:1", written))
    assert written not in str(raised.value)
    with Store(tmp_path / "a.golden", create=True) as store:
        store.set_meta("config", {"judge": {"key_env": written, "model": "m"}})
        assert store.meta("config") == {"judge": {"key_env": "…", "model": "m"}}
        store.set_meta("config", {"judge": {"key_env": "MY_KEY_2"}})
        assert store.meta("config") == {"judge": {"key_env": "MY_KEY_2"}}


def test_no_request_is_sent_to_a_url_without_its_secret() -> None:
    with pytest.raises(InputError, match="which keeps no password"):
        JsonClient(Address(redact("http://127.0.0.1:1/v1?api-key=abc")))


@pytest.mark.parametrize("field", ["url", "model", "key_env", "timeout_s", "headers", "api_key"])
def test_the_error_of_a_refused_configuration_shows_no_secret(field: str) -> None:
    url = f"ftp://me:{quote(PASSWORD, safe='')}@h?token={QUERY}"
    judge = {"type": "llm", "url": url, "model": "m", field: url}
    with pytest.raises(InputError) as raised:
        check_config({"corpus": "c", "judge": judge}, GoldenSettings, place="set.yaml")
    assert not leaks(str(raised.value).encode())


def test_the_log_of_the_http_library_shows_no_secret(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    echo = Reply.of({"said": KEY}, 200, x_seen=KEY)
    with loopback(lambda _: echo) as server:
        made = JsonClient(Address(f"{server.url}/v1?api-key={QUERY}", "MY_KEY"))
        made.post({}, lambda answer: answer)
    assert "HTTP Request" in caplog.text
    assert not leaks(caplog.text.encode())


# ------------------------------------------------------------------------------------- every verb


def everything(request: Request) -> list[str]:
    """All that a request brought, in every shape."""
    known = [*request.headers.values(), request.path]
    parts = [*known, *SECRETS, f"me:{PASSWORD}"]
    return [shape for part in parts for shape in shapes(part)]


class Echo:
    """Answers as it should, and with everything it was sent; refuses what it is told to refuse."""

    def __init__(self) -> None:
        self.refuses: str | None = None
        self.paths: set[str] = set()
        self.authorized: set[str] = set()

    def __call__(self, request: Request) -> Reply:
        path = request.path.partition("?")[0]
        self.paths.add(path)
        self.authorized.add(request.headers.get("Authorization", ""))
        seen = everything(request)
        if self.refuses is not None and path.startswith(self.refuses):
            problem = {"error": {"message": " ".join(seen), "code": seen[0]}}
            return Reply.of(problem, 401, x_seen=KEY)
        if path.endswith("/embeddings"):
            texts = request.json["input"]
            data: list[Any] = [
                {"index": at, "embedding": [1.0, 1 + len(t) % 7, at % 5], "object": seen}
                for at, t in enumerate(texts)
            ]
            return Reply.of({"data": data, "model": KEY, "usage": {"total_tokens": 9}, "x": seen})
        if path.endswith("/rerank"):
            count = len(request.json["documents"])
            results = [{"index": at, "relevance_score": 1 / (1 + at)} for at in range(count)]
            return Reply.of({"results": results, "meta": {"seen": seen}, "id": KEY})
        if path.startswith("/hits"):
            hits = [
                {"id": doc, "score": 1 / at, "x": seen}
                for at, doc in enumerate(("d0", "d1", "d2"), 1)
            ]
            return Reply.of({"hits": hits, "seen": seen})
        user = request.json["messages"][1]["content"]
        if path.startswith("/rewrite"):
            content = f"What of whales, {KEY}, {user.rpartition(',')[2][:8]}?"
        else:
            content = json.loads(honest(request).body)["choices"][0]["message"]["content"]
            content = f"{content}\nYou sent {' '.join(seen)}".replace("{", "{", 1)
            if self.refuses == "sometimes" and len(self.paths) % 2:
                content = " ".join(seen)
        return Reply.of(
            {"model": f"m {KEY}", "choices": [{"message": {"content": content}}], "usage": None}
        )


def run(folder: Path, *words: str, **environment: str) -> tuple[int, bytes]:
    done = rankproof(*words, cwd=folder, env=environment)
    return done.returncode, done.stdout + done.stderr


def written(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file that a command wrote, compressed columns laid open too."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix not in (
            ".yaml",
            ".py",
            ".pyc",
        ):  # where they were planted
            data = path.read_bytes()
            yield path, data
            if path.suffix == ".parquet":
                yield path, str(pl.read_parquet(path).to_dicts()).encode()
            if path.suffix == ".gz":
                yield path, gzip.decompress(data)
            if b"\x78\x9c" in data:
                yield path, _inflated(data)


def _inflated(data: bytes) -> bytes:
    found = b""
    at = data.find(b"\x78\x9c")
    while at >= 0:
        with suppress(zlib.error):
            found += zlib.decompressobj().decompress(data[at:])
        at = data.find(b"\x78\x9c", at + 1)
    return found


def plant(folder: Path, url: str) -> None:
    write_corpus(folder / "corpus")
    host = url.removeprefix("http://")
    basic = f"http://me:{quote(PASSWORD, safe='')}@{host}"
    embedder = f'{{type: endpoint, url: "{basic}/embed?token={QUERY}", model: m, batch: 8}}'
    keyed = f'url: "{url}/{{}}?api-key={QUERY}", model: m, key_env: PLANTED_KEY, attempts: 1'
    (folder / "embedder.yaml").write_text(
        f"embedder: {embedder}\nrewriter: {{type: llm, {keyed.format('rewrite')}}}\n"
    )
    (folder / "sweep.yaml").write_text(
        f"""
corpus: corpus
grades: {{1: 2, 2: 3, 3: 4, 4: 5}}
embedders: {{served: {embedder}}}
rerankers: {{served: {{type: endpoint, {keyed.format("score")}}}}}
rerank_prices: {{served: rerank-2.5}}
rewriter: {{type: llm, {keyed.format("rewrite")}}}
modes: [dense]
retrievers: {{served: {{type: http, url: "{basic}/hits?token={QUERY}", attempts: 1}}}}
pools: [5]
prompts: [5]
latency: {{queries: 2, repeats: 1, warmup: 1}}
"""
    )
    for name, judge in {
        "judged": f"{{type: llm, {keyed.format('chat')}}}",
        "scored": f"{{type: cross-encoder, reranker: {{type: endpoint, {keyed.format('score')}}}}}",
    }.items():
        (folder / f"{name}.yaml").write_text(
            f"""
corpus: corpus
judge: {judge}
embedder: {embedder}
rewriter: {{type: llm, {keyed.format("rewrite")}}}
depths: {{dense: 6, bm25: 6, pool: 6}}
pruning: {{target: 2, size: 4}}
ranking: {{budget: 3}}
"""
        )


FEW = ("--embedder", "embedder.yaml", "--queries", "4", "--runs", "1")
VERBS = [
    ("sweep", "sweep.yaml", "--format", "json"),
    ("recommend", "sweep-results"),
    ("search", "sweep.yaml", "whales"),
    ("golden", "build", "judged.yaml", "--dry-run"),
    ("golden", "build", "judged.yaml"),
    ("golden", "status", "judged.golden", "--format", "json"),
    ("golden", "export", "judged.golden", "--out", "exported", "--max-failed", "1"),
    ("golden", "agreement", "judged.golden", "--repeats", "1", "--sample", "2"),
    ("golden", "build", "scored.yaml"),
    ("golden", "export", "scored.golden", "--out", "scored", "--max-failed", "1"),
    ("diagnose", "noise", *FEW, "--corpus", "corpus", "--out", "noise"),
    ("diagnose", "names", *FEW, "--out", "names"),
    ("audit", "model", "ours:Served", "--dataset", "corpus", "-m", "RR", "--out", "audit.json"),
    ("verify", "audit.json", "corpus"),
    ("report", "."),
]
# A user's embedder that asks the server, and is named after its address.
OURS = f"""
from rankproof.retrieval.embedders.endpoint import EmbeddingEndpointSettings, EndpointEmbedder

URL = "HERE".replace("//", "//me:{quote(PASSWORD, safe="")}@") + "/embed?token={QUERY}"

def Served():
    return EndpointEmbedder(EmbeddingEndpointSettings(type="endpoint", url=URL, model=URL))
"""


def viewed(folder: Path, store: str) -> dict[str, bytes]:
    """Every page that `golden view` serves, and what it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rankproof", "golden", "view", store, "--no-open", "--as", "Ada"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    query = json.loads((folder / "corpus" / "queries.jsonl").read_text().splitlines()[0])["_id"]
    pages = ["", "set", "questions", f"question?query={query}", "sources", "agreement", "next"]
    found = {}
    for page in pages:
        with urlopen(f"{url}{'api/' if page else ''}{page}", timeout=PATIENCE) as answer:
            found[page] = answer.read()
    process.send_signal(signal.SIGINT)
    found["printed"] = "".join(process.communicate(timeout=PATIENCE)).encode()
    assert process.returncode == 0
    return found


@pytest.mark.slow
def test_no_command_writes_or_prints_a_secret_that_a_server_echoes(tmp_path: Path) -> None:
    echo = Echo()
    said = {}
    with loopback(echo) as server:
        plant(tmp_path, server.url)
        (tmp_path / "ours.py").write_text(OURS.replace("HERE", server.url))
        for words in VERBS:
            environment = {"PLANTED_KEY": f" {KEY}\n", "RANKPROOF_CACHE": str(tmp_path / "cache")}
            code, printed = run(tmp_path, *words, **environment)
            said[words] = (code, printed)
            assert not leaks(printed), (words, printed.decode())
        shown = viewed(tmp_path, "judged.golden")
        assert len(shown) > 5
        assert not {name: leaks(page) for name, page in shown.items() if leaks(page)}
    failed = {words: told for words, told in said.items() if told[0] != 0}
    # The store keeps no query string: whoever asks the judge again is told so.
    again = next(words for words in VERBS if words[:2] == ("golden", "agreement"))
    # Nothing that the server says is an answer: a build in which all failed has failed.
    assert list(failed) == [("golden", "build", "judged.yaml"), again], failed
    assert b"which keeps no password" in failed[again][1]
    assert {"/hits", "/embed/embeddings", "/score/rerank", "/chat/chat/completions"} < echo.paths
    assert f"Bearer {KEY}" in echo.authorized  # the test has teeth
    assert any(text.startswith("Basic ") for text in echo.authorized)
    found = {path.relative_to(tmp_path): leaks(data) for path, data in written(tmp_path)}
    assert len(found) > 30
    assert not {path: names for path, names in found.items() if names}


@pytest.mark.slow
@pytest.mark.parametrize("place", ["/embed", "/score", "/rewrite", "/chat", "/hits"])
def test_no_error_shows_a_secret_that_the_server_echoes(place: str, tmp_path: Path) -> None:
    echo = Echo()
    echo.refuses = place
    with loopback(echo) as server:
        plant(tmp_path, server.url)
        words = ("golden", "build", "judged.yaml") if place == "/chat" else ("sweep", "sweep.yaml")
        code, printed = run(
            tmp_path, *words, PLANTED_KEY=KEY, RANKPROOF_CACHE=str(tmp_path / "cache")
        )
        assert code == 2
        assert b"the server answers 401" in printed
        assert not leaks(printed)
    assert not [path for path, data in written(tmp_path) if leaks(data)]


def test_a_chat_does_not_show_secrets_that_the_server_echoes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    with loopback(Echo()) as server:
        chat = Chat("m", f"{server.url}/rewrite?sig={QUERY}", "MY_KEY")
        answer = chat.ask("s", "what of whales, case 1?")
        assert not leaks(repr([answer, chat, chat._client]).encode())
        assert "whales, …," in answer.text
        chat.close()


def test_secret_settings_of_a_users_component_are_registered() -> None:
    user_settings = {
        "url": "https://me:hunter2-own-0001@h.example/v1",
        "api_key": "own-key-0002-abcdef",
        "inner": [{"Password": "own-word-0003-abcdef", "auth-token": "own-token-0004-abcd"}],
        "tokenizer": "bert-base-uncased",
        "key_env": "OWN_KEY_NAME",
    }
    ForeignSettings(type="mine:Index", **user_settings)
    redacted = remove_secrets(f"{user_settings} {json.dumps(user_settings)}")
    for part in ("0001", "0002", "0003", "0004"):
        assert part not in redacted
    assert "bert-base-uncased" in redacted
    assert "OWN_KEY_NAME" in redacted


def test_a_chart_shows_no_secret() -> None:
    """A model may be named by its address, which then is the name of a row or a title."""
    register_secret("chart-key-0005-abcdef")
    rows = [Range("m chart-key-0005-abcdef", 1.0, 0.5, 2.0)]
    title = "https://me:chart-0006-abcdef@h.example/v1"
    charts = Charts([RangeChart(title, rows, "mean")])
    for picture in (charts.to_svg(), charts.to_html()):
        assert "h.example" in picture
        assert "key-0005" not in picture
        assert "chart-0006" not in picture


def test_the_parameters_of_a_judge_are_stored_without_its_key(tmp_path: Path) -> None:
    register_secret(KEY)
    with Store(tmp_path / "a.golden", create=True) as store:
        store.add_reply(replace(REPLY, parameters={"api_key": KEY, "level": 4}))
        (reply,) = store.replies()
    assert reply.parameters["level"] == 4
    assert not leaks(b"".join(path.read_bytes() for path in tmp_path.iterdir()))


def test_settings_register_the_secrets_of_an_address() -> None:
    Endpoint(url=f"https://me:{quote(PASSWORD, safe='')}@h/v1?api-key={QUERY}", model="gpt-4o-x")
    assert redact(f"{PASSWORD} and {QUERY} for gpt-4o-x") == "… and … for gpt-4o-x"
    register_address("https://h/v1?deployment=gpt-4o-mini-2024", frozenset({"gpt-4o-mini-2024"}))
    assert redact("gpt-4o-mini-2024") == "gpt-4o-mini-2024"
