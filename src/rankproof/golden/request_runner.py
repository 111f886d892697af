"""Asking the judge: from the store where it has answered before, side by side where it has not."""

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
from rankproof.golden.judges import Judge, Waiting, standard
from rankproof.golden.judgments import ATTEMPTS, Kind, Reply
from rankproof.golden.parsing import Malformed, parse, spread
from rankproof.golden.requests import Request
from rankproof.golden.settings import TokenPrice
from rankproof.golden.store import Store
from rankproof.retrieval.chat import Answer, estimate_tokens
from rankproof.retrieval.http import Refused, Unanswered

_LISTEN = 0.2  # seconds: polars has Ctrl-C restart a wait, which then no exception ends
_IN_A_ROW = 10  # so many requests that nobody answered, one after another: it is not they
_WRAPPING = 64  # tokens that a server may put around the messages


class Halted(InputError):
    """The judge can be asked no more for now. Everything so far is stored."""

    exit_code = 1


class CostReached(Halted):
    """The next request could cost more than may be spent."""


class Unheard(Halted):
    """Many requests in a row that nobody answered."""


def estimate_reply(request: Request) -> int:
    """Tokens of a reply: about five for each label, and ten around them."""
    return 5 * len(request.labels) + 10


def estimate_request(request: Request) -> int:
    return estimate_tokens(request.system) + estimate_tokens(request.user)


def most_tokens(request: Request) -> int:
    """No tokeniser makes more tokens of a request than it has bytes, but for what wraps it."""
    shown = (request.system, request.user, json.dumps(request.schema, ensure_ascii=False))
    return _WRAPPING + sum(len(text.encode("utf-8", "replace")) for text in shown)


def cost(price: TokenPrice | None, tokens_in: int, tokens_out: int) -> float | None:
    """US dollars; None where no price is known."""
    if price is None:
        return None
    return (tokens_in * price.input_per_1m + tokens_out * price.output_per_1m) / 1e6


def _spoilt(reply: Reply) -> bool:
    """Whether nothing is known of several passages, though perhaps one alone is why."""
    return reply.result is None and len(reply.documents) > 1


def _heard(replies: Iterable[Reply]) -> set[str]:
    """Queries of which something could be used."""
    return {reply.query for reply in replies if reply.result is not None}


def _first(spoilt: Sequence[Request], replies: Iterable[Reply]) -> list[Request]:
    """Those to be asked in halves now. Where nothing of a query could be used it may be the
    question, and where nothing at all could, the judge: then one batch is enough to tell."""
    heard, found = _heard(replies), dict[str, list[Request]]()
    for each in spoilt:
        found.setdefault(each.query, []).append(each)
    some = [r for query, mine in found.items() for r in (mine if query in heard else mine[:1])]
    return some if heard else some[:1]


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
        tell: Callable[[str], None] | None = None,
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
        self._tell = tell or (lambda words: None)
        self._freed = threading.Condition(self._lock)
        self._spent = 0.0
        self._held: list[float] = []  # what each request under way may cost at worst
        self._excess = 1.0  # the most by which a reply has cost more than was estimated
        self._learned = Usage()  # from the replies so far
        self._unheard: list[int] = []  # replies that nobody gave, since the last that somebody did
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
        """The last reply to each: a result, or a failure after the second asking.

        Of several passages one may be why nothing could be used. So what failed is asked in halves,
        and halves of these, until a passage that cannot be judged stands alone: see `Reply.parts`.
        """
        self._stop.clear()
        self._failure = None
        self._unheard = []
        self._spent = self._store.spent()  # another judge of a panel may have been asked since
        unique = {self.key(request): request for request in requests}
        found = self._round(unique, self._progress)
        halves: dict[str, list[Request]] = {}
        spoilt = [r for key, r in unique.items() if _spoilt(found[key])]
        while spoilt:
            some = _first(spoilt, found.values())
            halves |= {self.key(request): request.halves() for request in some}
            asked = {self.key(half): half for request in some for half in halves[self.key(request)]}
            said = self._round(asked, lambda done: None)
            found |= said
            heard = _heard(found.values())
            again = [half for key, half in asked.items() if _spoilt(said[key])]
            hopeless = {each.query for each in some} - heard - {each.query for each in again}
            if hopeless and not heard:  # a judge whom nobody can read
                break
            rest = [each for each in spoilt if self.key(each) not in halves]
            spoilt = [each for each in (*again, *rest) if each.query not in hopeless]

        def parts(key: str) -> Iterator[Reply]:
            for half in map(self.key, halves.get(key, ())):
                yield found[half]
                yield from parts(half)

        keys = map(self.key, requests)
        return [replace(found[key], parts=tuple(parts(key))) for key in keys]

    def _round(
        self, unique: Mapping[str, Request], progress: Callable[[float], None]
    ) -> dict[str, Reply]:
        """The last reply to each request, by its key: all that are left, side by side."""
        found: dict[str, Reply] = {}
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="judge")
        running: dict[str, Future[Reply]] = {}
        try:
            left: dict[str, Request] = {}
            for key, request in unique.items():
                done = self._known(request)
                if done is None:
                    left[key] = request
                else:
                    found[key] = done
                    progress(1)
            unknown = not self._learned.replies  # asked before the first is sent: it may be quick
            for key, request in left.items():
                running[key] = pool.submit(self._answer, request, progress)
                if unknown and len(running) == 1:
                    self._probe(running[key], left.values())
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
        return found

    def _probe(self, first: Future[Reply], requests: Collection[Request]) -> None:
        """The first request goes alone: it learns what the server takes and how it counts, and the
        rest is foretold by it."""
        if len(requests) == 1 or not isinstance(self._judge, Waiting):
            return
        while not first.done():
            wait([first], _LISTEN)
        if self._learned.replies:
            self._tell(self.forecast(requests))

    def forecast(self, requests: Collection[Request]) -> str:
        """What requests are likely to cost, and at worst, by what replies have taken so far."""
        likely = sum(
            cost(self._price, *self._learned.likely(request)) or 0.0 for request in requests
        )
        worst = sum(self._worst(request) for request in requests) * ATTEMPTS
        minutes = self._learned.seconds * len(requests) / self._threads / 60
        money = "" if self._price is None else f", likely ${likely:.4f} and at worst ${worst:.4f}"
        return f"{plural(len(requests), 'call')}{money}, about {max(minutes, 0.1):.1f} minutes"

    def _known(self, request: Request) -> Reply | None:
        """The stored outcome of a request, if there is nothing left to ask."""
        reply = self._store.reply(self.key(request))
        if reply is None or reply.final:
            return reply
        return self._known(request.again())

    def _answer(self, request: Request, progress: Callable[[float], None]) -> Reply:
        """Ask until there is a result, or no attempt is left."""
        try:
            reply = self._store.reply(self.key(request)) or self._send(request)
        except BaseException as failure:
            with self._lock:
                self._failure = self._failure or failure
            self._halt()  # at once, so that nobody sends another one
            raise
        if not reply.final:
            return self._answer(request.again(), progress)
        progress(1)
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
        reserved = self._reserve(request, estimate)
        spent = 0.0
        try:
            try:
                answer = self._judge.ask(request)
            except (Refused, Unanswered) as refusal:
                if isinstance(refusal, Refused) and not self._of_its_own(refusal.status):
                    raise
                if self._stop.is_set():  # it was told to wait no longer
                    raise _Stopped from None
                return self._unanswered(request, refusal)
            reply = self._read(request, answer)
            spent = reply.cost or 0.0
            reply = replace(reply, id=self._store.add_reply(reply))
        finally:
            with self._freed:
                self._held.remove(reserved)
                self._spent += spent
                if estimate:
                    self._excess = max(self._excess, spent / estimate)
                self._freed.notify_all()
        if answer.unread is not None:
            return self._counted(reply, answer.unread) if reply.final else reply
        with self._lock:
            self._learned.add(request, reply)
            self._unheard = []
        return reply

    def _of_its_own(self, status: int) -> bool:
        """Whether a refusal may be of this request alone. Some servers say 403, as to a wrong key,
        of a text that they will not read; whoever answered before knows the key."""
        return status in (400, 413, 422) or (status in (403, 451) and self._learned.replies > 0)

    def _worst(self, request: Request, estimate: float | None = None) -> float:
        """US dollars that a request may cost: every byte a token, the longest reply allowed."""
        most = getattr(self._judge, "max_tokens", None)
        bound = cost(self._price, most_tokens(request), most or estimate_reply(request)) or 0.0
        if most is not None:
            return bound
        if estimate is None:
            estimate = cost(self._price, estimate_request(request), estimate_reply(request)) or 0.0
        return estimate * self._excess  # a judge that sets no bound: as the worst so far

    def _reserve(self, request: Request, estimate: float) -> float:
        """Set aside what a request may cost; wait for what is under way, refuse it where the rest
        may not do."""
        with self._freed:
            price = self._worst(request, estimate)
            while (
                self._max_cost is not None
                and self._spent + math.fsum(self._held) + price > self._max_cost
            ):
                if self._stop.is_set():
                    raise _Stopped
                if not self._held:
                    raise CostReached(
                        f"stopped at ${self._spent:.4f}: the next request could pass max_cost, "
                        f"${self._max_cost:g}",
                        place=str(self._store.path),
                        remedy="every reply is stored; raise max_cost and run again to go on",
                    )
                self._freed.wait(_LISTEN)
                price = self._worst(request, estimate)
            self._held.append(price)
        return price

    def _read(self, request: Request, answer: Answer) -> Reply:
        result: dict[str, int] | list[str] | None = None
        failure = None
        try:
            result = parse(request, answer.text)
        except Malformed as reason:
            failure = str(reason)
            if answer.cut:
                failure = f"cut off after {answer.tokens_out:,} tokens: raise max_tokens"
            failure = answer.unread or failure
        return self._row(request, answer, result, failure)

    def _unanswered(self, request: Request, refusal: Refused | Unanswered) -> Reply:
        """A request that the server will not answer fails alone, unless many do one after another:
        then it is not their fault, and they are asked again the next time."""
        how = "refused" if isinstance(refusal, Refused) else "unanswered"
        nothing = Answer("", 0, 0, 0.0, self._judge.model)
        reply = self._row(request, nothing, None, f"{how}: {refusal.problem}")
        reply = replace(reply, id=self._store.add_reply(reply))
        return self._counted(reply, refusal.problem, refusal.place, refusal.remedy)

    def _counted(
        self,
        reply: Reply,
        problem: str,
        place: str | None = None,
        remedy: str | None = "see that the url is that of a chat",
    ) -> Reply:
        """A failure that says nothing of its request, unless there are many in a row."""
        with self._lock:
            self._unheard.append(reply.id)
            if len(self._unheard) < _IN_A_ROW:
                return reply
            failed, self._unheard = self._unheard, []
        self._store.retire(failed)
        raise Unheard(
            f"{problem} ({len(failed)} requests in a row, none answered)",
            place=place or self._judge.name,
            remedy=f"{remedy}: every reply is stored, and these will be asked again",
        ) from None

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
            spread=self._spread(request, answer, result),
            judge=self._number(request.kind, request.prompt.digest),
            pairs=request.pairs,
        )

    @staticmethod
    def _spread(
        request: Request, answer: Answer, result: object
    ) -> dict[str, tuple[float, float]] | None:
        if request.kind != "grade" or result is None or not answer.chances:
            return None
        return spread(request, answer.text, answer.chances) or None


@dataclass(slots=True)
class Usage:
    """What replies have taken, beside what was estimated."""

    replies: int = 0
    _estimated: int = 0
    _told: int = 0
    _labels: int = 0
    _said: int = 0
    _seconds: float = 0.0

    def add(self, request: Request, reply: Reply) -> None:
        self.replies += 1
        self._estimated += estimate_request(request)
        self._told += reply.tokens_in
        self._labels += estimate_reply(request)
        self._said += reply.tokens_out
        self._seconds += reply.seconds

    def likely(self, request: Request) -> tuple[int, int]:
        """Tokens in and out."""
        told, said = self._told / max(1, self._estimated), self._said / max(1, self._labels)
        return round(told * estimate_request(request)), round(said * estimate_reply(request))

    @property
    def seconds(self) -> float:
        return self._seconds / max(1, self.replies)


class _Stopped(Exception):
    """Another request failed for good; this one was not sent."""
