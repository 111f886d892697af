"""One JSON client and one cache: a server that misbehaves, processes that die."""

from __future__ import annotations

import base64
import pickle
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import PATIENCE, Loopback, Reply, Request, loopback

from rankproof.foundation.errors import InputError
from rankproof.retrieval.cache import Cache, cache_folder, cache_key
from rankproof.retrieval.chat import Chat
from rankproof.retrieval.http import (
    Address,
    Endpoint,
    JsonClient,
    Refused,
    Unanswered,
    Unreadable,
)

KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)


def client(server: Loopback, waits: list[float] | None = None, **settings: Any) -> JsonClient:
    endpoint = Endpoint(url=server.url, model="m", **settings)
    waited: list[float] = [] if waits is None else waits
    return JsonClient(endpoint, "/do", sleep=waited.append, now=lambda: 1_000_000.0, seed=0)


def said(answer: Any) -> Any:
    """What the tests ask for: {"said": …}."""
    if not isinstance(answer, dict) or "said" not in answer:
        raise Unreadable("the answer says nothing")
    return answer["said"]


def after(*first: Reply) -> Callable[[Request], Reply]:
    """A server that misbehaves in these ways, one after the other, and then answers."""
    return lambda request: (
        first[request.number] if request.number < len(first) else Reply.of({"said": "yes"})
    )


def test_half_a_surrogate_pair_in_an_answer_is_replaced() -> None:
    """A model that stops inside an emoji leaves one, and no file can hold it."""
    whole = Reply(b'{"said": "\\ud83d\\ude00 \\uD83D \\udbff?"}')
    with loopback(lambda _: whole) as server:
        assert client(server, []).post({}, said) == "\N{GRINNING FACE} ? ??"


@pytest.mark.parametrize(
    "bad",
    [
        Reply(status=429),
        Reply(status=408),
        Reply(status=500),
        Reply(status=503, body=b"<html>busy</html>"),
        Reply(status=599),
        Reply(b'{"said": ', claim=500),
        Reply(b'{"said": '),
        Reply(b""),
        Reply(b"[" * 100_000),
        Reply.of({"other": 1}),
        Reply.of([1, 2]),
        Reply(b'{"said": 1}', headers={"Content-Encoding": "gzip"}),
    ],
    ids=range(12),
)
def test_what_may_pass_is_tried_again(bad: Reply) -> None:
    waits: list[float] = []
    with loopback(after(bad, bad)) as server:
        assert client(server, waits).post({"a": 1}, said) == "yes"
        assert [request.json for request in server.requests] == [{"a": 1}] * 3
    assert len(waits) == 2


def test_a_server_that_never_answers_is_given_up_after_the_timeout() -> None:
    with (
        loopback(lambda _: Reply(silent=True)) as server,
        pytest.raises(InputError, match=r"no answer within 0\.05 s \(2 attempts\)"),
    ):
        client(server, timeout_s=0.05, attempts=2).post({}, said)


def test_an_answer_that_only_drips_is_given_up() -> None:
    """Each read has its timeout; all of them together have ten."""
    begun = iter(range(0, 1000, 30))  # half a minute between two looks at the clock
    with (
        loopback(lambda _: Reply(b" " * 1_000_000)) as server,
        pytest.raises(InputError, match=r"no complete answer within 10 s \(1 attempt\)"),
    ):
        JsonClient(Address(server.url, None, 1.0, 1), clock=lambda: next(begun)).post({}, said)


def test_headers_that_only_drip_are_given_up() -> None:
    begun = iter(range(0, 1000, 30))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            taken, _ = server.accept()
            with taken, suppress(OSError):  # until nobody listens any more
                taken.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
                while True:
                    taken.sendall(b"a")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        address = Address(f"http://127.0.0.1:{server.getsockname()[1]}", None, 1.0, 1)
        with pytest.raises(Unanswered, match=r"no complete answer within 10 s \(1 attempt\)"):
            JsonClient(address, clock=lambda: next(begun)).post({}, said)
        dripping.join(PATIENCE)
        assert not dripping.is_alive()  # its connection is closed


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankproof.retrieval.http._LARGEST", 2 << 20)
    with (
        loopback(lambda _: Reply(b" " * (3 << 20))) as server,
        pytest.raises(InputError, match="its answer is larger than 2 MB") as told,
    ):
        client(server).post({}, said)
    assert not isinstance(told.value, Unanswered)
    assert len(server.requests) == 1


def test_a_server_that_is_not_there_is_one_clear_line() -> None:
    with loopback(after()) as server:
        gone = Loopback(server.url, [])
    with pytest.raises(InputError) as raised:
        client(gone, attempts=2).post({}, said)
    assert str(raised.value).startswith(f"{gone.url[7:]}: the connection failed: ")
    assert "run again" in str(raised.value)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 413, 422])
def test_a_refusal_is_not_tried_again(status: int) -> None:
    with loopback(lambda _: Reply.of({"error": {"message": "no\nsuch  model"}}, status)) as server:
        with pytest.raises(InputError) as raised:
            client(server).post({}, said)
        assert len(server.requests) == 1
    message = str(raised.value)
    assert message.startswith(f"{server.url[7:]}: the server answers {status}: 'no such model'; ")
    assert "\n" not in message


def test_waits_double_up_to_a_minute_and_are_shortened_at_random() -> None:
    waits: list[float] = []
    with loopback(lambda _: Reply(status=500)) as server:
        with pytest.raises(InputError, match=r"the server answers 500 \(9 attempts\)"):
            client(server, waits, attempts=9).post({}, said)
        assert len(server.requests) == 9
    longest = [1, 2, 4, 8, 16, 32, 60, 60]
    assert all(most / 2 <= wait <= most for wait, most in zip(waits, longest, strict=True))
    assert len({wait / most for wait, most in zip(waits, longest, strict=True)}) > 1


def test_one_attempt_waits_for_nothing() -> None:
    waits: list[float] = []
    with (
        loopback(lambda _: Reply(status=500)) as server,
        pytest.raises(InputError, match=r"\(1 attempt\)"),
    ):
        client(server, waits, attempts=1).post({}, said)
    assert waits == []


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("1.5", 1.5),
        (formatdate(1_000_090, usegmt=True), 90.0),
        (formatdate(900_000, usegmt=True), 0.0),
    ],
)
def test_retry_after_is_honoured_in_seconds_and_as_a_date(header: str, wait: float) -> None:
    waits: list[float] = []
    with loopback(after(Reply(status=429, headers={"Retry-After": header}))) as server:
        client(server, waits).post({}, said)
    assert waits == [wait]


@pytest.mark.parametrize("header", ["soon", "-3", "", "٣", "Mon, 99 Foo 2020 99:99:99 GMT"])
def test_a_retry_after_that_says_nothing_is_passed_over(header: str) -> None:
    waits: list[float] = []
    reply = Reply(status=503, headers={"Retry-After": header.encode().decode("latin-1")})
    with loopback(after(reply)) as server:
        client(server, waits).post({}, said)
    assert 0.5 <= waits[0] <= 1


def test_a_server_that_asks_for_hours_is_left_alone() -> None:
    reply = Reply(status=429, headers={"Retry-After": "7200"})
    with loopback(lambda _: reply) as server:
        with pytest.raises(InputError, match="7200 s of rest"):
            client(server).post({}, said)
        assert len(server.requests) == 1


def test_the_key_is_sent_and_shown_nowhere() -> None:
    echo = Reply.of({"error": f"bad key {KEY}, starting sk-v****6789 in {KEY!r}"}, 401)
    with loopback(lambda _: echo) as server:
        made = client(server, key_env="TEST_KEY")
        with pytest.raises(InputError) as raised:
            made.post({}, said)
        assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert str(raised.value).endswith("; check the key in $TEST_KEY")
    for text in (str(raised.value), repr(raised.value), repr(made)):
        assert KEY not in text
        assert "sk-v" not in text
        assert "6789" not in text


def test_without_a_key_no_authorization_is_sent_and_a_refusal_says_so() -> None:
    with loopback(lambda _: Reply(status=401)) as server:
        with pytest.raises(InputError, match="give key_env"):
            client(server).post({}, said)
        assert "Authorization" not in server.requests[0].headers


def test_a_key_that_is_not_set_or_cannot_be_sent_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint = Endpoint(url="http://host/v1", model="m", key_env="TEST_KEY")
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(InputError, match="TEST_KEY is not set; export TEST_KEY="):
        JsonClient(endpoint, "/do")
    monkeypatch.setenv("TEST_KEY", "clé-secrète")
    with pytest.raises(InputError, match=r"the key in \$TEST_KEY has characters") as raised:
        JsonClient(endpoint, "/do")
    assert "clé" not in str(raised.value)


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "/v1/do", "/v1/do/"])
def test_a_url_may_be_the_service_or_its_address(end: str) -> None:
    with loopback(after()) as server:
        client(Loopback(server.url + end, [])).post({}, said)
        assert server.requests[0].path == ("/v1/do" if "v1" in end else "/do")


@pytest.mark.parametrize(
    "url", ["", "host/v1", "ftp://host", "http://", "http://a:b:c", "//u:pw@h"]
)
def test_a_url_that_is_none_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(
        InputError, match="is not an address; write it as https://host/v1"
    ) as raised:
        JsonClient(Endpoint(url=url, model="m"), "/do")
    assert "pw" not in str(raised.value)


# ------------------------------------------------------------------------- what goes into a request


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirection_carries_nothing_to_another_host(status: int) -> None:
    with loopback(after()) as other:
        there = Reply(status=status, headers={"Location": f"{other.url}/do"})
        with loopback(lambda _: there) as server:
            with pytest.raises(Refused, match="give the url it redirects to"):
                client(server, key_env="TEST_KEY").post({"prompt": "mine"}, said)
            assert len(server.requests) == 1
        assert other.requests == []


def test_nothing_of_the_environment_goes_along_that_was_not_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password mine\n")
    (tmp_path / ".netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_API_KEY", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "another-account: 1")
    with loopback(lambda _: Reply(status=500)) as proxy, loopback(after()) as server:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("OPENAI_BASE_URL", proxy.url)
        assert client(server).post({"a": 1}, said) == "yes"
        assert proxy.requests == []
        sent = {name.lower() for name in server.requests[0].headers}
    assert sent == {
        *("host", "accept", "accept-encoding", "connection", "user-agent"),
        *("content-length", "content-type"),
    }


def test_a_proxy_is_used_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with loopback(after()) as proxy:
        monkeypatch.setenv("RANKPROOF_PROXY", proxy.url)
        made = client(Loopback("http://elsewhere.invalid", []))
        assert made.post({"a": 1}, said) == "yes"
        assert proxy.requests[0].path == "http://elsewhere.invalid/do"
    monkeypatch.setenv("RANKPROOF_PROXY", "nothing:my-password@")
    with pytest.raises(InputError, match="RANKPROOF_PROXY does not hold the address") as raised:
        client(Loopback("http://elsewhere.invalid", []))
    assert "my-password" not in str(raised.value)


def test_a_certificate_that_does_not_hold_is_refused_at_once(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext"
    command = [*make.split(), "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out"]
    subprocess.run([*command, str(certificate)], check=True, capture_output=True)
    waits: list[float] = []
    with loopback(after(), certificate=(certificate, key)) as server:
        assert server.url.startswith("https://")
        with pytest.raises(InputError, match="its certificate is not valid"):
            client(server, waits).post({"prompt": "mine"}, said)
        assert server.requests == []
    assert waits == []


@pytest.mark.parametrize("key", [f"  {KEY}\n", f"\t{KEY}\r\n"])
def test_white_space_around_a_key_is_no_part_of_it(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", key)
    with loopback(after()) as server:
        client(server, key_env="TEST_KEY").post({}, said)
        assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("key", ["sk-one\ntwo", "sk-\x07bell", "clé-secrète", "sk-“quoted”"])
def test_a_key_that_no_header_takes_is_refused_before_the_first_call(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", key)
    for make in (
        lambda: JsonClient(Address("http://127.0.0.1:1", "TEST_KEY")),
        lambda: Chat("m", "http://127.0.0.1:1", "TEST_KEY"),
    ):
        with pytest.raises(InputError, match=r"the key in \$TEST_KEY has characters") as raised:
            make()
        assert key not in str(raised.value)


def test_a_user_and_password_in_the_url_become_a_header_and_not_both_with_a_key() -> None:
    with loopback(after()) as server:
        url = server.url.replace("://", "://us%40er:p%3Ass@") + "/v1?api-version=2024-10-21"
        made = JsonClient(Address(url), "/do")
        assert made.post({}, said) == "yes"
        (request,) = server.requests
        encoded = base64.b64encode(b"us@er:p:ss").decode()
        assert request.headers["Authorization"] == f"Basic {encoded}"
        assert request.path == "/v1/do?api-version=2024-10-21"
        with pytest.raises(InputError, match="both a key"):
            JsonClient(Address(url, "TEST_KEY"), "/do")


def test_other_methods_paths_and_headers_go_the_same_way() -> None:
    with loopback(after(Reply(status=503))) as server:
        waits: list[float] = []
        made = JsonClient(
            Address(f"{server.url}/v1?tenant=a"), headers={"X-Engine": "mine"}, sleep=waits.append
        )
        heard = made.ask(None, said, method="GET", path="/health")
        assert (heard.value, heard.tries, len(waits)) == ("yes", 2, 1)
        request = server.requests[1]
        assert (request.method, request.path, request.body) == ("GET", "/v1/health?tenant=a", b"")
        assert request.headers["X-Engine"] == "mine"


def test_embeddings_and_reranking_keep_to_a_rate_too() -> None:
    now = [0.0]
    with loopback(after()) as server:
        made = JsonClient(
            Address(server.url),
            requests_per_minute=30,
            clock=lambda: now[0],
            sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
        )
        for _ in range(4):
            made.post({}, said)
    assert now[0] == pytest.approx(6.0)


def test_when_it_is_stopped_nobody_waits_any_longer() -> None:
    with loopback(lambda _: Reply(status=429, headers={"Retry-After": "500"})) as server:
        made = JsonClient(Address(server.url))
        failed: list[str] = []

        def work() -> None:
            try:
                made.post({}, said)
            except Unanswered as error:
                failed.append(str(error))

        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():  # whatever moment it is stopped at
            if server.requests:
                made.stop()
            thread.join(0.01)
        assert len(failed) == len(server.requests) == 1


# ------------------------------------------------------------------------------------------ cache


def test_what_is_put_is_got_in_order_and_nothing_else(tmp_path: Path) -> None:
    with Cache(tmp_path / "made" / "here") as cache:
        assert cache.get_many("f", "query", ["a", "b"]) == [None, None]
        cache.put_many("f", "query", {"a": b"1", "": b"", "c": b"3"})
        assert cache.get_many("f", "query", ["c", "b", "a", "a", ""]) == [
            *(b"3", None, b"1", b"1", b"")
        ]
        assert cache.get_many("f", "passage", ["a"]) == [None]
        assert cache.get_many("g", "query", ["a"]) == [None]
        cache.put_many("f", "query", {"a": b"new"})
        cache.put_many("f", "query", {})
    assert Cache(tmp_path / "made" / "here").get_many("f", "query", ["a"]) == [b"new"]
    assert cache.get_many("f", "query", ["a"]) == [b"new"]  # a closed one opens again


def test_more_texts_than_one_statement_takes(tmp_path: Path) -> None:
    values = {str(i): str(i * i).encode() for i in range(2345)}
    with Cache(tmp_path) as cache:
        cache.put_many("f", "r", values)
        assert cache.get_many("f", "r", list(values)) == list(values.values())


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), unique=True, min_size=2, max_size=5))
def test_different_contents_have_different_keys(parts: list[tuple[str, str, str]]) -> None:
    assert len({cache_key(*part) for part in parts}) == len(parts)


def test_a_boundary_between_parts_is_part_of_the_key() -> None:
    assert cache_key("ab", "c", "d") != cache_key("a", "bc", "d")
    assert cache_key("a", "b", "\ud800") != cache_key("a", "b", "\ud801")  # not even UTF-8


def test_a_file_that_is_no_cache_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "cache.sqlite").write_bytes(
        b"not a database, but long enough to be read as one" * 9
    )
    with pytest.raises(InputError) as raised:
        Cache(tmp_path).get_many("f", "r", ["a"])
    assert str(raised.value) == (
        f"{tmp_path}/cache.sqlite: this is not the cache; "
        "delete the file, or name another folder in $RANKPROOF_CACHE"
    )


def test_a_damaged_cache_is_one_clear_line(tmp_path: Path) -> None:
    with Cache(tmp_path) as cache:
        cache.put_many("f", "r", {str(i): bytes(3000) for i in range(200)})
    file = tmp_path / "cache.sqlite"
    data = bytearray(file.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    file.write_bytes(data)
    with pytest.raises(InputError, match="delete the file"):
        Cache(tmp_path).get_many("f", "r", [str(i) for i in range(200)])


def test_a_cache_of_a_later_version_is_not_touched(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "cache.sqlite")) as connection, connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(InputError, match="layout 7, this version knows 1; update rankproof"):
        Cache(tmp_path).get_many("f", "r", ["a"])


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot make the folder .*name another"):
        Cache(tmp_path / "file").put_many("f", "r", {"a": b""})


def test_the_folder_is_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKPROOF_CACHE", str(tmp_path / "mine"))
    assert Cache().path == tmp_path / "mine" / "cache.sqlite"
    assert pickle.loads(pickle.dumps(Cache())).path == Cache().path
    monkeypatch.delenv("RANKPROOF_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "rankproof"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "rankproof"


WRITER = """
import sys
from rankproof.retrieval.cache import Cache
cache, name = Cache(sys.argv[1]), sys.argv[2]
for i in range(int(sys.argv[3])):
    cache.put_many("f", "r", {f"{name} {i} {j}": b"x" * 2000 for j in range(10)})
    print(i, flush=True)
"""


def test_processes_that_begin_together_share_a_cache(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path, str(name), "5"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for name in range(4)
    ]
    for writer in writers:
        assert writer.communicate()[1] == b""
        assert writer.returncode == 0
    texts = [f"{name} {i} {j}" for name in range(4) for i in range(5) for j in range(10)]
    with Cache(tmp_path) as cache:
        assert cache.get_many("f", "r", texts) == [b"x" * 2000] * 200


def test_a_killed_process_loses_nothing_that_it_stored(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, tmp_path, "w", "1000000"], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        stored = [int(writer.stdout.readline()) for _ in range(5)]
        writer.send_signal(signal.SIGKILL)
    with Cache(tmp_path) as cache:
        texts = [f"w {i} {j}" for i in stored for j in range(10)]
        assert cache.get_many("f", "r", texts) == [b"x" * 2000] * 50
        rows = cache.get_many("f", "r", [f"w {i} {j}" for i in range(300) for j in range(10)])
        # A batch is there as a whole or not at all.
        assert all(len({row is None for row in rows[i : i + 10]}) == 1 for i in range(0, 3000, 10))
        cache.put_many("f", "r", {"after": b"1"})
        assert cache.get_many("f", "r", ["after"]) == [b"1"]


def test_threads_share_a_cache(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Cache(tmp_path) as cache, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: cache.put_many("f", "r", {str(i): str(i).encode()}), range(60)))
        result = list(pool.map(lambda i: cache.get_many("f", "r", [str(i)])[0], range(60)))
    assert result == [str(i).encode() for i in range(60)]
