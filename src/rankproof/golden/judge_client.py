"""Get a judge's replies: from the store if it has answered before, else by asking it in parallel.

Replies cost money and time, servers fail, and models write what cannot be parsed. `JudgeClient`

- stores every reply as it arrives, so that a build that was interrupted pays for nothing twice;
- keeps the bill below a limit even if every request under way gets the longest reply allowed;
- asks again where a reply cannot be used, and then in halves, down to the passage at fault;
- gives up after many unanswered requests in a row, because then the server is at fault.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace

from rankproof.foundation.errors import InputError
from rankproof.foundation.manifest import digest
from rankproof.foundation.phrasing import plural
from rankproof.foundation.progress import advance, announce
from rankproof.golden.judges import Judge, Waiting, judge_identity
from rankproof.golden.judgments import MAX_ATTEMPTS, Kind, Reply
from rankproof.golden.parsing import Malformed, parse, spread
from rankproof.golden.requests import Request
from rankproof.golden.settings import TokenPrice
from rankproof.golden.store import Store
from rankproof.retrieval.chat import Answer, estimate_tokens
from rankproof.retrieval.http import Refused, Unanswered

OnDone = Callable[[float], None]  # called with the number of requests that were finished
Result = dict[str, int] | list[str]  # grade of each document, or documents best first

_POLL_SECONDS = 0.2  # of each wait: with polars, Ctrl-C does not end a wait but restarts it
_MAX_UNANSWERED_IN_A_ROW = 10  # from then on the server is at fault, not the requests
_CHAT_OVERHEAD_TOKENS = 64  # that a server may put around the messages


class JudgingStopped(InputError):
    """No more requests can be sent for now; every reply so far is stored."""

    exit_code = 1


class CostReached(JudgingStopped):
    """The next request could cost more than may be spent."""


class JudgeUnresponsive(JudgingStopped):
    """Many requests in a row were not answered."""


class _Cancelled(Exception):
    """The request was not sent, because another one failed for good."""


def estimate_reply_tokens(request: Request) -> int:
    """Tokens of a reply: about five for each label, and ten around them."""
    return 5 * len(request.labels) + 10


def estimate_request_tokens(request: Request) -> int:
    """Tokens of the two messages of a request, about."""
    return estimate_tokens(request.system) + estimate_tokens(request.user)


def max_request_tokens(request: Request) -> int:
    """Upper bound of a request's tokens: no tokenizer makes more of a text than it has bytes."""
    texts = (request.system, request.user, json.dumps(request.schema, ensure_ascii=False))
    return _CHAT_OVERHEAD_TOKENS + sum(len(text.encode("utf-8", "replace")) for text in texts)


def cost(price: TokenPrice | None, tokens_in: int, tokens_out: int) -> float | None:
    """US dollars; None if no price is known."""
    if price is None:
        return None
    return (tokens_in * price.input_per_1m + tokens_out * price.output_per_1m) / 1e6


def _can_be_split(reply: Reply) -> bool:
    """True if several passages have no result, of which perhaps only one is at fault."""
    return reply.result is None and len(reply.documents) > 1


def _queries_with_results(replies: Iterable[Reply]) -> set[str]:
    return {reply.query for reply in replies if reply.result is not None}


def _batches_to_split(failed: Sequence[Request], replies: Iterable[Reply]) -> list[Request]:
    """The failed batches to ask in halves next: only one where halves may fail as well.

    Where a query has no result at all, its question may be at fault, and one of its batches is
    enough to find out. Where no query has one, the judge may be, and one batch is enough for all.
    """
    queries_with_results = _queries_with_results(replies)
    failed_by_query: dict[str, list[Request]] = {}
    for batch in failed:
        failed_by_query.setdefault(batch.query, []).append(batch)
    batches: list[Request] = []
    for query, query_batches in failed_by_query.items():
        batches += query_batches if query in queries_with_results else query_batches[:1]
    return batches if queries_with_results else batches[:1]


class JudgeClient:
    """Sends requests to one judge and stores its replies."""

    def __init__(
        self,
        store: Store,
        judge: Judge,
        *,
        price: TokenPrice | None = None,
        max_cost: float | None = None,
        concurrency: int = 4,
    ):
        """`max_cost` is in US dollars; with it, an unknown `price` is an error."""
        if max_cost is not None and price is None:
            raise InputError(
                f"max_cost is {max_cost}, but the price of {judge.name} is not known",
                remedy="give judge.price, or a price file that lists the model",
            )
        self._store, self._judge, self._price = store, judge, price
        self._max_cost = math.inf if max_cost is None else max_cost  # US dollars
        self._thread_count = concurrency if judge.parallel else 1
        self._lock = threading.Lock()  # of everything below
        self._cost_released = threading.Condition(self._lock)
        self._judge_ids: dict[tuple[Kind, str], int] = {}  # in the store, by kind and prompt
        self._spent = 0.0  # US dollars
        self._reserved_costs: list[float] = []  # worst cost of each request under way
        self._max_overrun = 1.0  # largest ratio of a reply's cost to its estimate so far
        self._usage = Usage()
        self._unanswered_in_a_row: list[int] = []  # ids of replies
        self._stopped = threading.Event()  # set: no request is sent any more
        self._first_error: BaseException | None = None

    def key(self, request: Request) -> str:
        """The digest by which the store knows a request to this judge."""
        return digest([request.content, self._judge.model, self._judge.parameters])

    def ask(self, requests: Sequence[Request]) -> list[Reply]:
        """Return the final reply to each request: a result, or the failure of its last attempt.

        A single passage can make a batch fail. So a failed batch is asked again in halves, and
        these too, until the passage at fault is alone; these replies are in `Reply.parts`.
        """
        self._stopped.clear()
        self._first_error = None
        self._unanswered_in_a_row = []
        self._spent = self._store.total_cost()  # other judges of the panel may have spent since
        keyed_requests = {self.key(request): request for request in requests}
        replies = self._ask_all(keyed_requests, advance)
        failed = [batch for key, batch in keyed_requests.items() if _can_be_split(replies[key])]
        halves = self._ask_in_halves(failed, replies)

        def parts(key: str) -> Iterator[Reply]:
            for half in halves.get(key, ()):
                yield replies[self.key(half)]
                yield from parts(self.key(half))

        keys = [self.key(request) for request in requests]
        return [replace(replies[key], parts=tuple(parts(key))) for key in keys]

    def _ask_in_halves(
        self, failed: Sequence[Request], replies: dict[str, Reply]
    ) -> dict[str, list[Request]]:
        """Ask failed batches in halves, down to single passages; return the halves by batch key.

        Their replies are added to `replies`. A query is given up once its passages fail one by one
        and it has no result, and all queries if none of them has one.
        """
        halves: dict[str, list[Request]] = {}
        while failed:
            batches = _batches_to_split(failed, replies.values())
            halves |= {self.key(batch): batch.halves() for batch in batches}
            new_halves = [half for batch in batches for half in halves[self.key(batch)]]
            replies.update(self._ask_all({self.key(h): h for h in new_halves}, lambda count: None))
            failed_halves = [half for half in new_halves if _can_be_split(replies[self.key(half)])]
            queries_with_results = _queries_with_results(replies.values())
            unanswerable_queries = {batch.query for batch in batches} - queries_with_results
            unanswerable_queries -= {half.query for half in failed_halves}
            if unanswerable_queries and not queries_with_results:
                break
            unsplit = [batch for batch in failed if self.key(batch) not in halves]
            failed = [b for b in (*failed_halves, *unsplit) if b.query not in unanswerable_queries]
        return halves

    def _ask_all(self, requests: Mapping[str, Request], report: OnDone) -> dict[str, Reply]:
        """Return the final reply to each request by its key, from the store or from the judge."""
        replies: dict[str, Reply] = {}
        for key, request in requests.items():
            stored = self._stored_reply(request)
            if stored is not None:
                replies[key] = stored
                report(1)
        unanswered = {key: r for key, r in requests.items() if key not in replies}
        return replies | self._send_all(unanswered, report)

    def _stored_reply(self, request: Request) -> Reply | None:
        """The final reply to a request, or None if it has to be asked (again)."""
        reply = self._store.reply(self.key(request))
        if reply is None or reply.final:
            return reply
        return self._stored_reply(request.retry())

    def _send_all(self, requests: Mapping[str, Request], report: OnDone) -> dict[str, Reply]:
        """Send in several threads; return final replies by key, or raise once none is under way."""
        futures: dict[str, Future[Reply]] = {}
        executor = ThreadPoolExecutor(self._thread_count, thread_name_prefix="judge")
        try:
            first_use = not self._usage.replies  # read now: the first reply may come at once
            for key, request in requests.items():
                futures[key] = executor.submit(self._ask_until_final, request, report)
                if first_use and len(futures) == 1:
                    self._wait_for_first(futures[key], requests.values())
            pending = set(futures.values())
            while pending and self._first_error is None:
                _, pending = wait(pending, _POLL_SECONDS, FIRST_EXCEPTION)
            self._raise_first_error()
            return {key: future.result() for key, future in futures.items()}
        except BaseException:
            self._stop_sending()
            raise
        finally:
            executor.shutdown(wait=False, cancel_futures=True)
            while under_way := [future for future in futures.values() if not future.done()]:
                wait(under_way, _POLL_SECONDS)

    def _raise_first_error(self) -> None:
        if self._first_error is not None:
            raise self._first_error

    def _wait_for_first(self, first: Future[Reply], requests: Collection[Request]) -> None:
        """Wait until a server has answered one request, then announce what all will take."""
        if len(requests) == 1 or not isinstance(self._judge, Waiting):
            return
        # The judge learns from one request which options its server accepts.
        while not first.done():
            wait([first], _POLL_SECONDS)
        if self._usage.replies:
            announce(self.forecast(requests))

    def forecast(self, requests: Collection[Request]) -> str:
        """Number, likely and worst cost, and duration of requests, judging by replies so far."""
        likely = sum(cost(self._price, *self._usage.likely_tokens(r)) or 0.0 for r in requests)
        worst = sum(self._worst_cost(request) for request in requests) * MAX_ATTEMPTS
        minutes = self._usage.mean_seconds * len(requests) / self._thread_count / 60
        money = "" if self._price is None else f", likely ${likely:.4f} and at worst ${worst:.4f}"
        return f"{plural(len(requests), 'call')}{money}, about {max(minutes, 0.1):.1f} minutes"

    def _ask_until_final(self, request: Request, report: OnDone) -> Reply:
        """Ask until there is a result or no attempt is left; runs in a thread."""
        try:
            reply = self._store.reply(self.key(request)) or self._send(request)
        except BaseException as error:
            with self._lock:
                self._first_error = self._first_error or error
            self._stop_sending()  # at once, so that no other thread sends another request
            raise
        if not reply.final:
            return self._ask_until_final(request.retry(), report)
        report(1)
        return reply

    def _stop_sending(self) -> None:
        """Send nothing more, and end the judge's pauses between attempts."""
        self._stopped.set()
        if isinstance(self._judge, Waiting):
            self._judge.stop()

    def _send(self, request: Request) -> Reply:
        """Send a request as soon as the cost limit allows, and store the reply or its absence."""
        if self._stopped.is_set():
            raise _Cancelled
        estimate = self._estimated_cost(request)
        reserved = self._reserve_cost(request, estimate)
        spent = 0.0
        try:
            try:
                answer = self._judge.ask(request)
            except (Refused, Unanswered) as error:
                return self._store_unanswered(request, error)
            reply = self._parse(request, answer)
            spent = reply.cost or 0.0
            reply = replace(reply, id=self._store.add_reply(reply))
        finally:
            self._release_cost(reserved, spent, estimate)
        if answer.unread is not None:
            return self._count_unanswered(reply, answer.unread) if reply.final else reply
        with self._lock:
            self._usage.add(request, reply)
            self._unanswered_in_a_row = []
        return reply

    def _estimated_cost(self, request: Request) -> float:
        tokens_in, tokens_out = estimate_request_tokens(request), estimate_reply_tokens(request)
        return cost(self._price, tokens_in, tokens_out) or 0.0

    def _worst_cost(self, request: Request, estimate: float | None = None) -> float:
        """US dollars that a request may cost: every byte a token, the longest reply allowed.

        If the judge does not limit replies: the estimate times the worst overrun so far.
        """
        max_reply_tokens = getattr(self._judge, "max_tokens", None)
        if max_reply_tokens is not None:
            return cost(self._price, max_request_tokens(request), max_reply_tokens) or 0.0
        if estimate is None:
            estimate = self._estimated_cost(request)
        return estimate * self._max_overrun

    def _reserve_cost(self, request: Request, estimate: float) -> float:
        """Set aside the worst cost of a request, and return it.

        Waits for requests under way while they may use up what is left, and raises `CostReached`
        if none is under way and the request could still pass the limit.
        """
        with self._cost_released:
            worst_cost = self._worst_cost(request, estimate)
            while self._spent + math.fsum(self._reserved_costs) + worst_cost > self._max_cost:
                if self._stopped.is_set():
                    raise _Cancelled
                if not self._reserved_costs:
                    raise CostReached(
                        f"stopped at ${self._spent:.4f}: the next request could pass max_cost, "
                        f"${self._max_cost:g}",
                        place=str(self._store.path),
                        remedy="every reply is stored; raise max_cost and run again to go on",
                    )
                self._cost_released.wait(_POLL_SECONDS)
                worst_cost = self._worst_cost(request, estimate)
            self._reserved_costs.append(worst_cost)
        return worst_cost

    def _release_cost(self, reserved: float, spent: float, estimate: float) -> None:
        """Replace a reserved cost by what was spent."""
        with self._cost_released:
            self._reserved_costs.remove(reserved)
            self._spent += spent
            if estimate:
                self._max_overrun = max(self._max_overrun, spent / estimate)
            self._cost_released.notify_all()

    def _parse(self, request: Request, answer: Answer) -> Reply:
        """Turn a judge's answer into a reply: with a result, or with the reason for having none."""
        try:
            result = parse(request, answer.text)
        except Malformed as error:
            failure = str(error)
            if answer.cut:
                failure = f"cut off after {answer.tokens_out:,} tokens: raise max_tokens"
            return self._reply(request, answer, None, answer.unread or failure)
        return self._reply(request, answer, result)

    def _store_unanswered(self, request: Request, error: Refused | Unanswered) -> Reply:
        """Store that a request was not answered; re-raise a refusal that concerns every request."""
        if isinstance(error, Refused) and not self._concerns_one_request(error.status):
            raise error
        if self._stopped.is_set():  # the judge was told not to wait for the server any longer
            raise _Cancelled from None
        kind = "refused" if isinstance(error, Refused) else "unanswered"
        no_answer = Answer("", tokens_in=0, tokens_out=0, seconds=0.0, model=self._judge.model)
        reply = self._reply(request, no_answer, None, f"{kind}: {error.problem}")
        reply = replace(reply, id=self._store.add_reply(reply))
        return self._count_unanswered(reply, error.problem, error.place, error.remedy)

    def _concerns_one_request(self, status: int) -> bool:
        """True if a refusal may be due to the text of this request, not to a wrong key or model."""
        # A 403 can mean either; the key is right if the server has answered before.
        return status in (400, 413, 422) or (status in (403, 451) and self._usage.replies > 0)

    def _count_unanswered(
        self,
        reply: Reply,
        problem: str,
        place: str | None = None,
        remedy: str | None = "see that the url is that of a chat",
    ) -> Reply:
        """Return the reply, a failure; raise `JudgeUnresponsive` if there are too many in a row."""
        with self._lock:
            self._unanswered_in_a_row.append(reply.id)
            if len(self._unanswered_in_a_row) < _MAX_UNANSWERED_IN_A_ROW:
                return reply
            unanswered, self._unanswered_in_a_row = self._unanswered_in_a_row, []
        self._store.retire(unanswered)  # the requests are not at fault: they will be asked again
        raise JudgeUnresponsive(
            f"{problem} ({len(unanswered)} requests in a row, none answered)",
            place=place or self._judge.name,
            remedy=f"{remedy}: every reply is stored, and these will be asked again",
        ) from None

    def _reply(
        self, request: Request, answer: Answer, result: Result | None, failure: str | None = None
    ) -> Reply:
        """Combine a request, the judge's answer and what was made of it, as the store keeps it."""
        grade_spread = None
        if request.kind == "grade" and result is not None and answer.chances:
            grade_spread = spread(request, answer.text, answer.chances) or None
        return Reply(
            request=self.key(request),
            content=request.content,
            kind=request.kind,
            query=request.query,
            documents=request.documents,
            attempt=request.attempt,
            repeat=request.repeat,
            prompt=request.prompt.digest,
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
            spread=grade_spread,
            judge=self._judge_id(request.kind, request.prompt.digest),
            pairs=request.pairs,
        )

    def _judge_id(self, kind: Kind, prompt: str) -> int:
        """The judge's id in the store, under a prompt's digest."""
        with self._lock:
            if (kind, prompt) not in self._judge_ids:
                identity = judge_identity(self._judge, kind, prompt)
                self._judge_ids[kind, prompt] = self._store.judge_id(identity)
            return self._judge_ids[kind, prompt]


@dataclass(slots=True)
class Usage:
    """Tokens and seconds of replies so far, and the tokens that were estimated for them."""

    replies: int = 0
    _tokens_in: int = 0
    _tokens_out: int = 0
    _estimated_in: int = 0
    _estimated_out: int = 0
    _seconds: float = 0.0

    def add(self, request: Request, reply: Reply) -> None:
        self.replies += 1
        self._tokens_in += reply.tokens_in
        self._tokens_out += reply.tokens_out
        self._estimated_in += estimate_request_tokens(request)
        self._estimated_out += estimate_reply_tokens(request)
        self._seconds += reply.seconds

    def likely_tokens(self, request: Request) -> tuple[int, int]:
        """Tokens in and out: the estimate, corrected by how far off estimates have been."""
        ratio_in = self._tokens_in / max(1, self._estimated_in)
        ratio_out = self._tokens_out / max(1, self._estimated_out)
        tokens_in = round(ratio_in * estimate_request_tokens(request))
        return tokens_in, round(ratio_out * estimate_reply_tokens(request))

    @property
    def mean_seconds(self) -> float:
        return self._seconds / max(1, self.replies)
