"""The ASGI application of the ingress: limits, paths, and which status says what.

It runs in the loop of the ingress alone. No answer and no log has anything of a request, but for
the name of the source. Source: spec coordinator 6.4.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

import structlog

from slackwater.adapter.catalog.model import CATALOG_NAME
from slackwater.adapter.external.webhooks import PATH, Posted, Verdict, Webhook
from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import SlackwaterError
from slackwater.server.ingress.gate import Behind, Gate
from slackwater.server.ingress.settings import IngressSettings
from slackwater.server.ingress.tokens import Tokens
from slackwater.storage.webhook import RepeatedHeader, header_values

HEALTH = "/_/healthz"
RETRY_AFTER_S = 1
ATTEMPTS = 2
"""How often a request is handed over whose source was changed meanwhile."""
DRAINED = 4
"""So many times the limit is read of a body that is too large, so that its sender hears of it."""

_WEBHOOK = PATH.encode()

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_log = structlog.get_logger("ingress")


@dataclass(frozen=True, slots=True)
class Answer:
    """A status with a text for people."""

    status: int
    text: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Refused(Exception):
    """A request that ends here."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.text)
        self.answer = answer


def _retry(status: int, text: str) -> Answer:
    return Answer(status, text, ((b"retry-after", str(RETRY_AFTER_S).encode()),))


NOT_FOUND = Answer(404, "no such source")
CLOSED = _retry(503, "nobody leads the environment just now; try again")
FULL = _retry(429, "too many requests are under way")
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
        """Called by any thread. When the loop has ended, nobody waits any more."""
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

    def __init__(self, settings: IngressSettings, gate: Gate, tokens: Tokens | None) -> None:
        self._settings = settings
        self._gate = gate
        self._tokens = tokens
        self._requests = 0
        self._bytes = 0
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
        if self._requests >= self._settings.requests:
            return FULL
        self._requests += 1
        try:
            return await asyncio.wait_for(
                self._webhook(scope, receive), self._settings.timeout_ms / 1000
            )
        except asyncio.TimeoutError:
            return LATE
        finally:
            self._requests -= 1

    def _health(self, scope: Scope) -> Answer:
        _only(scope, "GET", "HEAD")
        self._behind()
        return Answer(200, "OK")

    def _behind(self) -> Behind:
        """Who takes requests. Raises `Refused` while nobody does."""
        behind = self._gate.behind
        if behind is None:
            raise Refused(CLOSED)
        try:
            behind.confirm()
        except (SlackwaterError, Fenced):
            raise Refused(CLOSED) from None
        return behind

    async def _webhook(self, scope: Scope, receive: Receive) -> Answer:
        name = _source(scope)
        _only(scope, "POST")
        try:
            headers = header_values(scope["headers"])
        except RepeatedHeader as error:
            return Answer(401, error.reason)
        received_us = time.time_ns() // 1000
        webhook = self._find(*name)
        if webhook.check is None and not self._may(headers, name):
            return UNAUTHORIZED
        expected = _content_length(headers, self._settings.body_bytes)
        if self._bytes + expected > self._settings.memory_bytes:
            return FULL
        self._bytes += expected
        try:
            body = await _body(receive, self._settings.body_bytes)
            return await self._post(webhook, name, body, headers, received_us)
        finally:
            self._bytes -= expected

    def _find(self, schema: str, name: str) -> Webhook:
        webhook = self._behind().webhooks.find(schema, name)
        if webhook is None:
            raise Refused(NOT_FOUND)
        return webhook

    def _may(self, headers: Mapping[str, str], name: tuple[str, str]) -> bool:
        """A source with a CHECK looks after itself; any other needs a token, if there are keys."""
        if self._tokens is None:
            return True
        return self._tokens.allows(headers.get("authorization"), (CATALOG_NAME, name[0]))

    async def _post(
        self,
        webhook: Webhook,
        name: tuple[str, str],
        body: bytes,
        headers: Mapping[str, str],
        received_us: int,
    ) -> Answer:
        """Hands the request over. Once more if the source was changed meanwhile, and never else:

        whether a request that failed otherwise was committed is not certain.
        """
        for attempt in range(ATTEMPTS):
            verdict, said = await self._verdict(webhook, body, headers, received_us)
            if verdict is not Verdict.GONE or attempt + 1 == ATTEMPTS:
                break
            webhook = self._find(*name)
        return answer_of(verdict, said)

    async def _verdict(
        self, webhook: Webhook, body: bytes, headers: Mapping[str, str], received_us: int
    ) -> tuple[Verdict, str]:
        loop = asyncio.get_running_loop()
        if self._verdicts is None or self._verdicts.loop is not loop:
            self._verdicts = _Verdicts(loop)
        verdicts = self._verdicts
        waiting: asyncio.Future[tuple[Verdict, str]] = loop.create_future()

        def done(verdict: Verdict, said: str) -> None:
            verdicts.put(waiting, verdict, said)

        self._behind().webhooks.post(Posted(webhook, body, headers, received_us, done))
        return await waiting


def _only(scope: Scope, *methods: str) -> None:
    if scope["method"] not in methods:
        allowed = ((b"allow", ", ".join(methods).encode()),)
        raise Refused(Answer(405, f"use {methods[0]}", allowed))


def _source(scope: Scope) -> tuple[str, str]:
    """Schema and name of the source that a path names. Raises `Refused`."""
    path: bytes = scope["raw_path"]
    if not path.startswith(_WEBHOOK):
        raise Refused(Answer(404, "nothing is here"))
    try:
        parts = [unquote_to_bytes(p).decode() for p in path[len(_WEBHOOK) :].split(b"/")]
    except UnicodeDecodeError:
        raise Refused(NOT_FOUND) from None
    if len(parts) != 3 or parts[0] != CATALOG_NAME:
        raise Refused(NOT_FOUND)
    return parts[1], parts[2]


def _content_length(headers: Mapping[str, str], limit: int) -> int:
    """How large the body will be, at most. Raises `Refused`."""
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
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(answer.text.encode())).encode()),
        *answer.headers,
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
