"""Asking the judge: from the store where it has answered before, side by side where it has not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace

from rankproof.errors import InputError
from rankproof.golden.judges import Judge, Waiting, standard
from rankproof.golden.parsing import Malformed, parse
from rankproof.golden.requests import Request
from rankproof.golden.settings import TokenPrice
from rankproof.golden.store import Kind, Reply, Store
from rankproof.manifest import digest
from rankproof.retrieval.chat import Answer, estimate_tokens
from rankproof.retrieval.http import Refused

_LISTEN = 0.2  # seconds: polars has Ctrl-C restart a wait, which then no exception ends
_REFUSALS = 20  # so many requests refused, and none answered: something is wrong with all of them


class CostReached(InputError):
    """The next request could cost more than may be spent. Everything so far is stored."""


def estimate_reply(request: Request) -> int:
    """Tokens of a reply: about five for each label, and ten around them."""
    return 5 * len(request.labels) + 10


def estimate_request(request: Request) -> int:
    return estimate_tokens(request.system) + estimate_tokens(request.user)


def cost(price: TokenPrice | None, tokens_in: int, tokens_out: int) -> float | None:
    """US dollars; None where no price is known."""
    if price is None:
        return None
    return (tokens_in * price.input_per_1m + tokens_out * price.output_per_1m) / 1e6


class Asker:
    """Requests → replies, in the order of the requests, whatever order they come in."""

    def __init__(
        self,
        store: Store,
        judge: Judge,
        *,
        price: TokenPrice | None = None,
        max_cost: float | None = None,
        concurrency: int = 4,
        progress: Callable[[float], None] | None = None,
    ):
        if max_cost is not None and price is None:
            raise InputError(
                f"max_cost is {max_cost}, but the price of {judge.name} is not known",
                remedy="give judge.price, or a price file that lists the model",
            )
        self._store, self._judge, self._price = store, judge, price
        self._numbers: dict[tuple[Kind, str], int] = {}
        self._max_cost = max_cost
        self._threads = concurrency if judge.parallel else 1
        self._progress = progress or (lambda done: None)
        self._lock = threading.Lock()
        self._spent = store.spent()  # and what is under way
        self._excess = 1.0  # the most by which a reply has cost more than was estimated
        self._answered = self._refused = 0
        self._stop = threading.Event()
        self._failure: BaseException | None = None  # the one that stopped the others

    def _number(self, kind: Kind, prompt: str) -> int:
        """The judge's number in the store, under a prompt."""
        with self._lock:
            if (kind, prompt) not in self._numbers:
                said = standard(self._judge, kind, prompt)
                self._numbers[kind, prompt] = self._store.judge(said)
            return self._numbers[kind, prompt]

    def key(self, request: Request) -> str:
        """The digest that a request is known by in the store."""
        judge = self._judge
        return digest([request.content, judge.model, judge.parameters])

    def ask(self, requests: Sequence[Request]) -> list[Reply]:
        """The last reply to each: a result, or a failure after the second asking."""
        unique = {self.key(request): request for request in requests}
        found: dict[str, Reply] = {}
        self._stop.clear()
        self._failure = None
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="judge")
        running: dict[str, Future[Reply]] = {}
        try:
            for key, request in unique.items():
                done = self._known(request)
                if done is None:
                    running[key] = pool.submit(self._answer, request)
                else:
                    found[key] = done
                    self._progress(1)
            waiting = set(running.values())
            while waiting and self._failure is None:  # by and by, or Ctrl-C would not be heard
                _, waiting = wait(waiting, _LISTEN, FIRST_EXCEPTION)
            self._check()
            found |= {key: future.result() for key, future in running.items()}
        except BaseException:
            self._halt()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            while under_way := [future for future in running.values() if not future.done()]:
                wait(under_way, _LISTEN)  # they are stored yet
        return [found[self.key(request)] for request in requests]

    def _known(self, request: Request) -> Reply | None:
        """The stored outcome of a request, if there is nothing left to ask."""
        reply = self._store.reply(self.key(request))
        if reply is None or reply.final:
            return reply
        return self._known(request.again())

    def _answer(self, request: Request) -> Reply:
        """Ask until there is a result, or no attempt is left."""
        try:
            reply = self._store.reply(self.key(request)) or self._send(request)
        except BaseException as failure:
            with self._lock:
                self._failure = self._failure or failure
            self._halt()  # at once, so that nobody sends another one
            raise
        if not reply.final:
            return self._answer(request.again())
        self._progress(1)
        return reply

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _halt(self) -> None:
        """Nothing more is sent, and nobody waits to be let in again."""
        self._stop.set()
        if isinstance(self._judge, Waiting):
            self._judge.stop()

    def _send(self, request: Request) -> Reply:
        if self._stop.is_set():
            raise _Stopped
        estimate = cost(self._price, estimate_request(request), estimate_reply(request)) or 0.0
        reserved = self._reserve(estimate)
        spent = 0.0
        try:
            try:
                answer = self._judge.ask(request)
            except Refused as refusal:
                if refusal.status not in (400, 413, 422):
                    raise
                reply = self._refusal(request, refusal)
            else:
                reply = self._read(request, answer)
                spent = reply.cost or 0.0
            number = self._store.add_reply(reply)
        finally:
            with self._lock:
                self._spent += spent - reserved
                if estimate:
                    self._excess = max(self._excess, spent / estimate)
        return replace(reply, id=number)

    def _reserve(self, estimate: float) -> float:
        """Set aside what a request may cost; refuse it where that is too much."""
        with self._lock:
            price = estimate * self._excess
            if self._max_cost is not None and self._spent + price > self._max_cost:
                raise CostReached(
                    f"stopped at ${self._spent:.4f}: the next request could pass max_cost, "
                    f"${self._max_cost:g}",
                    place=str(self._store.path),
                    remedy="every reply is stored; raise max_cost and run again to go on",
                )
            self._spent += price
        return price

    def _read(self, request: Request, answer: Answer) -> Reply:
        result: dict[str, int] | list[str] | None = None
        failure = None
        try:
            result = parse(request, answer.text)
        except Malformed as reason:
            failure = str(reason)
        with self._lock:
            self._answered += 1
        return self._row(request, answer, result, failure)

    def _refusal(self, request: Request, refusal: Refused) -> Reply:
        """A request that the server will not answer fails alone, unless all of them do."""
        with self._lock:
            self._refused += 1
            if self._answered == 0 and self._refused > _REFUSALS:
                raise InputError(
                    f"{refusal.problem} ({self._refused} requests, none answered)",
                    place=refusal.place,
                    remedy=f"{refusal.remedy}, then run again with --retry-failed",
                ) from None
        nothing = Answer("", 0, 0, 0.0, self._judge.model)
        return self._row(request, nothing, None, f"refused: {refusal.problem}")

    def _row(
        self,
        request: Request,
        answer: Answer,
        result: dict[str, int] | list[str] | None,
        failure: str | None,
    ) -> Reply:
        return Reply(
            request=self.key(request),
            content=request.content,
            kind=request.kind,
            query=request.query,
            documents=request.documents,
            attempt=request.attempt,
            repeat=request.repeat,
            prompt=request.prompt,
            model=answer.model,
            parameters=self._judge.parameters,
            text=answer.text,
            result=result,
            failure=failure,
            tokens_in=answer.tokens_in,
            tokens_out=answer.tokens_out,
            counted=answer.counted,
            cost=cost(self._price, answer.tokens_in, answer.tokens_out),
            seconds=answer.seconds,
            tries=answer.tries,
            judge=self._number(request.kind, request.prompt),
            pairs=request.pairs,
        )


class _Stopped(Exception):
    """Another request failed for good; this one was not sent."""
