"""The ASGI application of the ingress: its limits, paths and statuses.

It runs in the loop of the ingress alone. No answer and no log has anything of a request, but for
the name of the source. Source: spec coordinator 6.4, checkpoint 5.6.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes

import structlog

from slackwater.adapter.catalog.model import CATALOG_NAME
from slackwater.adapter.sources import changefeeds
from slackwater.adapter.sources.changefeeds import Changefeed, FeedRequest
from slackwater.adapter.sources.webhooks import PATH, Done, Verdict, Webhook, WebhookRequest
from slackwater.adapter.system.exposition import CONTENT_TYPE
from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import SlackwaterError
from slackwater.server.ingress.gate import BackendGate, IngressBackend
from slackwater.server.ingress.settings import IngressSettings
from slackwater.server.ingress.tokens import Tokens
from slackwater.storage.changefeed.messages import (
    DEFAULT_FEED,
    BadMessage,
    MessageTarget,
    target_of,
)
from slackwater.storage.webhook import RepeatedHeader, header_values

HEALTH = "/_/healthz"
METRICS = "/metrics"
RETRY_AFTER_S = 1
ATTEMPTS = 2
"""The most times that a request is handed over, if its source changes meanwhile."""
DRAINED = 4
"""A body that is too large is read up to so many limits, so that its sender reads the answer."""

_WEBHOOK = PATH.encode()
_CHANGEFEED = changefeeds.PATH.encode()
_METRICS_SCHEMA = "mz_internal"
"""The schema for which a token has to count to read metrics."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_log = structlog.get_logger("ingress")


@dataclass(frozen=True, slots=True)
class Answer:
    """A status with a text, for people unless `content_type` says otherwise."""

    status: int
    text: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type: str = "text/plain; charset=utf-8"


class Refused(Exception):
    """Ends a request with an answer."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.text)
        self.answer = answer


def _retry(status: int, text: str) -> Answer:
    return Answer(status, text, ((b"retry-after", str(RETRY_AFTER_S).encode()),))


NOT_FOUND = Answer(404, "no such source")
CLOSED = _retry(503, "nobody leads the environment just now; try again")
FULL = _retry(429, "too many requests are under way")
SCRAPED = _retry(429, "metrics are being gathered for another request")
TOO_LARGE = Answer(413, "the body is too large")
LATE = _retry(503, "it took too long; whether it was committed is not certain")
UNAUTHORIZED = Answer(
    401, "a bearer token for this schema is needed", ((b"www-authenticate", b"Bearer"),)
)
INTERNAL = Answer(500, "internal error")


def answer_of(verdict: Verdict, said: str) -> Answer:
    """The status for a verdict."""
    match verdict:
        case Verdict.COMMITTED:
            return Answer(200, "")
        case Verdict.REFUSED | Verdict.MALFORMED:
            return Answer(400, said)
        case Verdict.TOO_LARGE:
            return Answer(413, said)
        case Verdict.BACKWARDS:
            return Answer(409, said)
        case Verdict.GONE:
            return NOT_FOUND
        case Verdict.FULL:
            return FULL
        case Verdict.UNAVAILABLE:
            return CLOSED
        case Verdict.FAILED:
            return INTERNAL


@dataclass(slots=True)
class _Verdicts:
    """Verdicts on their way from other threads into the loop, many with one wake-up."""

    loop: asyncio.AbstractEventLoop
    lock: threading.Lock = field(default_factory=threading.Lock)
    arrived: list[tuple[asyncio.Future[tuple[Verdict, str]], Verdict, str]] = field(
        default_factory=list
    )

    def put(
        self, waiting: asyncio.Future[tuple[Verdict, str]], verdict: Verdict, said: str
    ) -> None:
        """Passes a verdict to the loop, from any thread. Has no effect once the loop has ended."""
        with self.lock:
            is_first = not self.arrived
            self.arrived.append((waiting, verdict, said))
        if is_first:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        with self.lock:
            arrived, self.arrived = self.arrived, []
        for waiting, verdict, said in arrived:
            if not waiting.done():
                waiting.set_result((verdict, said))


class IngressApp:
    """The application. Used in one loop at a time."""

    def __init__(self, settings: IngressSettings, gate: BackendGate, tokens: Tokens | None) -> None:
        self._settings = settings
        self._gate = gate
        self._tokens = tokens
        self._requests = 0
        self._bytes = 0
        self._is_scraped = False
        self._verdicts: _Verdicts | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            answer = await self._limited(scope, receive)
        except Refused as refused:
            answer = refused.answer
        except Exception as error:
            _log.error("request failed", error=type(error).__name__)
            answer = INTERNAL
        await _send(send, answer, is_head=scope["method"] == "HEAD")

    async def _limited(self, scope: Scope, receive: Receive) -> Answer:
        if scope["path"] == HEALTH:
            return self._health(scope)
        if scope["path"] == METRICS:
            return await self._metrics(scope)
        if self._requests >= self._settings.requests:
            return FULL
        self._requests += 1
        try:
            return await asyncio.wait_for(
                self._posted(scope, receive), self._settings.timeout_ms / 1000
            )
        except asyncio.TimeoutError:
            return LATE
        finally:
            self._requests -= 1

    def _health(self, scope: Scope) -> Answer:
        _only(scope, "GET", "HEAD")
        self._backend()
        return Answer(200, "OK")

    async def _metrics(self, scope: Scope) -> Answer:
        """The metrics, gathered in a thread of their own: senders do not wait for that."""
        _only(scope, "GET", "HEAD")
        headers = _headers(scope)
        if not self._may(headers.get("authorization"), _METRICS_SCHEMA):
            return UNAUTHORIZED
        backend = self._backend()
        if self._is_scraped:
            return SCRAPED
        self._is_scraped = True
        gathered = asyncio.ensure_future(asyncio.to_thread(backend.metrics))
        gathered.add_done_callback(self._scrape_ended)
        try:
            # The thread goes on after the time limit, and is the only one until it ends.
            text = await asyncio.wait_for(
                asyncio.shield(gathered), self._settings.timeout_ms / 1000
            )
        except asyncio.TimeoutError:
            return LATE
        return Answer(200, text.decode(), content_type=CONTENT_TYPE)

    def _scrape_ended(self, ended: asyncio.Future[bytes]) -> None:
        self._is_scraped = False
        if not ended.cancelled():
            # Nobody may wait for it any more.
            ended.exception()

    def _backend(self) -> IngressBackend:
        """The backend, which takes requests. Raises `Refused` while there is none."""
        backend = self._gate.backend
        if backend is None:
            raise Refused(CLOSED)
        try:
            backend.confirm()
        except (SlackwaterError, Fenced):
            raise Refused(CLOSED) from None
        return backend

    async def _posted(self, scope: Scope, receive: Receive) -> Answer:
        if scope["raw_path"].startswith(_CHANGEFEED):
            return await self._changefeed(scope, receive)
        return await self._webhook(scope, receive)

    async def _webhook(self, scope: Scope, receive: Receive) -> Answer:
        parts = _parts(scope, _WEBHOOK)
        if len(parts) != 3 or parts[0] != CATALOG_NAME:
            return NOT_FOUND
        name = parts[1], parts[2]
        _only(scope, "POST")
        headers = _headers(scope)
        received_us = time.time_ns() // 1000
        webhook = self._find(*name)
        if webhook.check is None and not self._may(headers.get("authorization"), name[0]):
            return UNAUTHORIZED
        async with self._body(receive, headers) as body:
            return await self._post(webhook, name, body, headers, received_us)

    async def _changefeed(self, scope: Scope, receive: Receive) -> Answer:
        parts = [part for part in _parts(scope, _CHANGEFEED) if part]
        if len(parts) < 3 or parts[0] != CATALOG_NAME:
            return NOT_FOUND
        target = _target(parts[3:])
        _only(scope, "POST", "PUT")
        headers = _headers(scope)
        query = parse_qs(scope["query_string"].decode("latin-1"))
        source = self._backend().changefeeds.find(parts[1], parts[2])
        if source is None:
            return NOT_FOUND
        if not self._may(_authorization(headers, query), parts[1]):
            return UNAUTHORIZED
        feed = query.get("feed", [DEFAULT_FEED])[0]
        async with self._body(receive, headers) as body:
            return await self._deliver(source, target, feed, body)

    async def _deliver(
        self, source: Changefeed, target: MessageTarget, feed: str, body: bytes
    ) -> Answer:
        def hand_over(done: Done) -> None:
            self._backend().changefeeds.post(FeedRequest(source, target, feed, body, done))

        return answer_of(*await self._told(hand_over))

    @contextlib.asynccontextmanager
    async def _body(self, receive: Receive, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The body of a request; its memory counts until the block ends. Raises `Refused`."""
        expected = _content_length(headers, self._settings.body_bytes)
        if self._bytes + expected > self._settings.memory_bytes:
            raise Refused(FULL)
        self._bytes += expected
        try:
            yield await _body(receive, self._settings.body_bytes)
        finally:
            self._bytes -= expected

    def _find(self, schema: str, name: str) -> Webhook:
        webhook = self._backend().webhooks.find(schema, name)
        if webhook is None:
            raise Refused(NOT_FOUND)
        return webhook

    def _may(self, authorization: str | None, schema: str) -> bool:
        """Whether the token counts for the schema. Without configured keys, none is needed."""
        if self._tokens is None:
            return True
        return self._tokens.allows(authorization, (CATALOG_NAME, schema))

    async def _post(
        self,
        webhook: Webhook,
        name: tuple[str, str],
        body: bytes,
        headers: Mapping[str, str],
        received_us: int,
    ) -> Answer:
        """Hands the request over; if the source was changed meanwhile, once more.

        A request that fails otherwise is not repeated: it may have been committed.
        """
        for attempt in range(ATTEMPTS):
            verdict, said = await self._told(self._posting(webhook, body, headers, received_us))
            if verdict is not Verdict.GONE or attempt + 1 == ATTEMPTS:
                break
            webhook = self._find(*name)
        return answer_of(verdict, said)

    def _posting(
        self, webhook: Webhook, body: bytes, headers: Mapping[str, str], received_us: int
    ) -> Callable[[Done], None]:
        def hand_over(done: Done) -> None:
            self._backend().webhooks.post(WebhookRequest(webhook, body, headers, received_us, done))

        return hand_over

    async def _told(self, hand_over: Callable[[Done], None]) -> tuple[Verdict, str]:
        """The verdict on a request. `hand_over` passes it on, with a function for the verdict."""
        loop = asyncio.get_running_loop()
        if self._verdicts is None or self._verdicts.loop is not loop:
            self._verdicts = _Verdicts(loop)
        verdicts = self._verdicts
        waiting: asyncio.Future[tuple[Verdict, str]] = loop.create_future()

        def done(verdict: Verdict, said: str) -> None:
            verdicts.put(waiting, verdict, said)

        hand_over(done)
        return await waiting


def _only(scope: Scope, *methods: str) -> None:
    if scope["method"] not in methods:
        allowed = ((b"allow", ", ".join(methods).encode()),)
        raise Refused(Answer(405, f"use {methods[0]}", allowed))


def _headers(scope: Scope) -> dict[str, str]:
    """Raises `Refused`."""
    try:
        return header_values(scope["headers"])
    except RepeatedHeader as error:
        raise Refused(Answer(401, error.reason)) from None


def _parts(scope: Scope, prefix: bytes) -> list[str]:
    """The parts of the path behind `prefix`. Raises `Refused`."""
    path: bytes = scope["raw_path"]
    if not path.startswith(prefix):
        raise Refused(Answer(404, "nothing is here"))
    try:
        return [unquote_to_bytes(part).decode() for part in path[len(prefix) :].split(b"/")]
    except UnicodeDecodeError:
        raise Refused(NOT_FOUND) from None


def _target(parts: Sequence[str]) -> MessageTarget:
    """Raises `Refused`."""
    try:
        found = target_of(parts)
    except BadMessage as error:
        raise Refused(Answer(400, error.reason)) from None
    if found is None:
        raise Refused(NOT_FOUND)
    return found


def _authorization(headers: Mapping[str, str], query: Mapping[str, Sequence[str]]) -> str | None:
    """The header Authorization, or one of the token that a feed has in its address."""
    given = headers.get("authorization")
    if given is None and "access_token" in query:
        return f"Bearer {query['access_token'][0]}"
    return given


def _content_length(headers: Mapping[str, str], limit: int) -> int:
    """The most bytes of the body that are kept: its declared length, and at most `limit`."""
    given = headers.get("content-length", "")
    if not (given.isascii() and given.isdecimal()):
        return limit
    # A large one is read all the same, and not kept.
    return min(int(given[:20]), limit)


async def _body(receive: Receive, limit: int) -> bytes:
    """Raises `Refused`."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(Answer(400, "the body did not come to its end"))
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= limit:
            chunks.append(chunk)
        more = message.get("more_body", False)
        if size > limit and (not more or size > DRAINED * limit):
            raise Refused(TOO_LARGE)
        if not more:
            return b"".join(chunks)


async def _send(send: Send, answer: Answer, *, is_head: bool) -> None:
    body = b"" if is_head else answer.text.encode()
    headers = [
        (b"content-type", answer.content_type.encode()),
        (b"content-length", str(len(answer.text.encode())).encode()),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
