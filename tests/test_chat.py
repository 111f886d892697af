"""A chat model over HTTP, served by a server that misbehaves as it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from loopback import PATIENCE, Reply, Request, loopback

from rankproof.foundation.errors import InputError
from rankproof.retrieval.chat import Chat, estimate_tokens
from rankproof.retrieval.http import RateLimit, Refused, Unanswered

SCHEMA = {"type": "object", "properties": {"A": {"type": "integer"}}, "required": ["A"]}


def said(text: Any, **more: Any) -> Reply:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    body = {"model": "m-1", "choices": [{"message": {"role": "assistant", "content": text}}]}
    return Reply.of({**body, "usage": usage, **more})


def script(*replies: Reply) -> Callable[[Request], Reply]:
    """The replies one after the other, then the last one for ever."""
    waiting: Iterator[Reply] = iter(replies)
    last = replies[-1]
    return lambda request: next(waiting, last)


def asked(*replies: Reply, **options: Any) -> tuple[Any, list[Request], list[float]]:
    """Ask once: the answer or the error, what the server saw, and the waits."""
    waits: list[float] = []
    with loopback(script(*replies)) as server:
        chat = Chat(
            "m", f"{server.url}/v1", sleep=waits.append, **({"timeout_s": PATIENCE} | options)
        )
        try:
            outcome: Any = chat.ask("be brief", "hello?")
        except InputError as error:
            outcome = error
        finally:
            chat.close()
        return outcome, server.requests, waits


def test_an_answer_states_its_cost() -> None:
    answer, (request,), waits = asked(said("hi"))
    assert (answer.text, answer.tokens_in, answer.tokens_out) == ("hi", 7, 3)
    assert (answer.model, answer.counted, answer.tries, waits) == ("m-1", True, 1, [])
    assert answer.seconds > 0
    assert request.path == "/v1/chat/completions"
    assert request.json == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "hello?"},
        ],
        "max_tokens": 1024,
        "temperature": 0.0,
    }


def test_uncounted_tokens_are_estimated_and_marked() -> None:
    answer, _, _ = asked(said("four bytes: é", usage=None))
    assert (
        (answer.counted, answer.tokens_out)
        == (False, estimate_tokens("four bytes: é"))
        == (
            False,
            4,
        )
    )


def test_a_server_without_a_key_gets_none_even_if_the_environment_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-meant-for-another")
    _, (request,), _ = asked(said("hi"))
    assert not [name for name in request.headers if name.lower() == "authorization"]


def test_the_key_comes_from_the_variable_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret-1")
    _, (request,), _ = asked(said("hi"), key_env="MY_KEY")
    assert {k.lower(): v for k, v in request.headers.items()}["authorization"] == "Bearer secret-1"
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(InputError, match="MY_KEY is not set"):
        Chat("m", "http://127.0.0.1:1/v1", key_env="MY_KEY")


@pytest.mark.parametrize(
    "trouble",
    [
        Reply.of({"error": "busy"}, 429),
        Reply.of({"error": {"message": "oops"}}, 500),
        Reply.of({}, 503),
        Reply(b'{"choices": [', claim=4000),
        Reply(b"", claim=10),
        Reply(b"<html>"),
        Reply(b"[]"),
        Reply.of({"choices": []}),
        Reply(b"[" * 100_000),
        said(["not", "text"]),
    ],
)
def test_temporary_failures_are_tried_again(trouble: Reply) -> None:
    answer, requests, waits = asked(trouble, trouble, said("at last"))
    assert (answer.text, answer.tries, len(requests)) == ("at last", 3, 3)
    assert len(waits) == 2
    assert 0.5 <= waits[0] <= 1 <= waits[1] <= 2


def test_a_silent_server_is_tried_again_after_the_timeout() -> None:
    answer, requests, _ = asked(Reply(silent=True), said("awake"), timeout_s=0.5)
    assert answer.text == "awake"
    assert len(requests) == answer.tries >= 2  # on a busy machine more than one may be too late


def test_an_absent_server_is_a_one_line_error() -> None:
    waits: list[float] = []
    chat = Chat("m", "http://127.0.0.1:1/v1", attempts=3, sleep=waits.append)
    with pytest.raises(
        Unanswered, match=r"^127\.0\.0\.1:1: the connection failed: .*\(3 attempts\);"
    ):
        chat.ask("a", "b")
    assert len(waits) == 2
    chat.close()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_refusal_is_a_one_line_error_without_another_attempt(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    body = {"error": {"message": "no\nsuch thing for sk-very-secret"}}
    error, requests, waits = asked(Reply.of(body, status), key_env="MY_KEY")
    assert isinstance(error, Refused)
    assert (error.status, len(requests), waits) == (status, 1, [])
    assert str(status) in str(error)
    assert "secret" not in str(error)
    assert "\n" not in str(error)
    if status == 401:
        assert "check the key in $MY_KEY" in str(error)


def test_no_request_is_repeated_without_credit() -> None:
    body = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    error, requests, _ = asked(Reply.of(body, 429))
    assert len(requests) == 1
    assert "no credit left" in str(error)


def test_a_server_without_schemas_gets_no_schema_from_then_on() -> None:
    def answer(request: Request) -> Reply:
        if "response_format" in request.json:
            return Reply.of({"error": {"message": "response_format is not supported"}}, 400)
        return said("{}")

    with loopback(answer) as server:
        chat = Chat("m", server.url)
        for _ in range(2):
            assert chat.ask("s", "u", SCHEMA).text == "{}"
        sent = ["response_format" in request.json for request in server.requests]
        assert sent == [True, False, False]
        chat.close()


def test_options_refused_one_after_the_other_are_all_dropped() -> None:
    def answer(request: Request) -> Reply:
        for name in ("response_format", "temperature", "logprobs", "max_tokens"):
            if name in request.json:
                more = ", use max_completion_tokens" if name == "max_tokens" else ""
                return Reply.of({"error": {"message": f"{name} is not supported{more}"}}, 400)
        return said("{}")

    with loopback(answer) as server:
        chat = Chat("m", server.url, chances=5)
        assert chat.ask("s", "u", SCHEMA).text == "{}"
        assert len(server.requests) == 5
        assert chat.ask("s", "u", SCHEMA).text == "{}"
        assert len(server.requests) == 6
        chat.close()


def test_a_server_that_accepted_a_schema_always_gets_it() -> None:
    with loopback(script(said("{}"), Reply.of({"error": "bad"}, 400))) as server:
        chat = Chat("m", server.url)
        chat.ask("s", "u", SCHEMA)
        sent = server.requests[0].json["response_format"]
        assert sent["json_schema"] == {"name": "reply", "strict": True, "schema": SCHEMA}
        with pytest.raises(Refused):  # now a 400 is about the question, and one is enough
            chat.ask("s", "u", SCHEMA)
        assert len(server.requests) == 2
        chat.close()


def test_the_token_limit_is_renamed_for_newer_models() -> None:
    def answer(request: Request) -> Reply:
        if "max_tokens" in request.json:
            return Reply.of({"error": {"message": "use 'max_completion_tokens' instead"}}, 400)
        return said(str(request.json["max_completion_tokens"]))

    with loopback(answer) as server:
        chat = Chat("m", server.url, max_tokens=99)
        assert chat.ask("s", "u", SCHEMA).text == "99"
        chat.close()


@pytest.mark.parametrize("status", [400, 403])
def test_log_probabilities_are_dropped_if_refused(status: int) -> None:
    def answer(request: Request) -> Reply:
        if "logprobs" in request.json:
            words = "You are not allowed to request logprobs from this model"
            return Reply.of({"error": {"message": words}}, status)
        return said("{}")

    with loopback(answer) as server:
        chat = Chat("m", server.url, chances=5)
        assert chat.ask("s", "u", SCHEMA).text == "{}"
        assert "response_format" in server.requests[-1].json
        chat.close()


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            {"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": "five"}]},
            "five",
        ),
        ({"content": None, "refusal": "I cannot say"}, "I cannot say"),
        ({"content": None, "reasoning_content": "so it is five"}, "so it is five"),
    ],
)
def test_the_text_is_read_from_every_known_place_of_an_answer(message: Any, text: str) -> None:
    answer, _, _ = asked(Reply.of({"choices": [{"message": message}]}))
    assert answer.text == text


def test_an_error_inside_an_answer_is_quoted() -> None:
    error, _, _ = asked(Reply.of({"error": {"message": "the free tier is used up"}}), attempts=1)
    assert "the server says: 'the free tier is used up' (1 attempt)" in str(error)


def test_threads_that_rename_the_token_limit_at_once_keep_the_schema() -> None:
    gate = threading.Barrier(4, timeout=PATIENCE)

    def answer(request: Request) -> Reply:
        if "max_tokens" in request.json:
            gate.wait()  # all of them sent the old name
            return Reply.of({"error": {"message": "use 'max_completion_tokens' instead"}}, 400)
        return said("held" if "response_format" in request.json else "free")

    with loopback(answer) as server:
        chat = Chat("m", server.url, max_tokens=99)
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(chat.ask, "s", "u", SCHEMA) for _ in range(4)]
        assert [each.result().text for each in asked] == ["held"] * 4
        chat.close()


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("per_minute", [1, 7, 60, 600])
def test_no_minute_has_more_requests_than_the_limit_and_one_second_of_it(per_minute: int) -> None:
    time = Time()
    bucket = RateLimit(per_minute, time, time.sleep)
    moments = []
    for _ in range(4 * per_minute):
        bucket.take()
        moments.append(time.now)
    most = per_minute + max(1, per_minute / 60)
    for begin in moments:
        assert sum(begin <= moment < begin + 60 for moment in moments) <= most
    assert moments[-1] <= 4 * 60  # and the limit is used


def test_a_request_larger_than_a_second_of_tokens_delays_the_next_one() -> None:
    time = Time()
    bucket = RateLimit(6000, time, time.sleep)  # 100 a second
    bucket.take(1000)
    assert time.now == 0
    bucket.take(100)
    assert time.now == pytest.approx(10.0)
    bucket.correct(200)  # the last one took more than planned
    bucket.take(100)
    assert time.now == pytest.approx(13.0)


def test_a_chat_keeps_to_its_limits() -> None:
    time = Time()
    with loopback(lambda request: said("ok")) as server:
        chat = Chat("m", server.url, requests_per_minute=30, sleep=time.sleep, clock=time)
        for _ in range(4):
            chat.ask("s", "u")
        assert time.now == pytest.approx(6.0)
        chat.close()


def test_threads_may_share_a_chat() -> None:
    with loopback(lambda request: said(request.json["messages"][1]["content"])) as server:
        chat = Chat("m", server.url)
        found: dict[int, str] = {}

        def work(number: int) -> None:
            found[number] = chat.ask("s", str(number)).text

        threads = [threading.Thread(target=work, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == {n: str(n) for n in range(12)}
        chat.close()
