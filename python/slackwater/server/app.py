"""The HTTP application: the shim's protocol over the coordinator's calls.

Answers are JSON or an Arrow IPC stream. Every call needs the environment's token. Handlers are
plain functions and run in threads, because a read may wait for a frontier. The lanes of `admission`
have threads of their own, so that waiting statements hold up no lookup, release or cancellation.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote

import structlog

from slackwater.adapter import protocol
from slackwater.adapter.calls import Endpoint, Rows, Text
from slackwater.adapter.coordinator import Coordinator
from slackwater.adapter.protocol import Caller
from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.server.admission import Admission, AdmissionLimits, Lane, lane_of
from slackwater.server.decoding import decoded
from slackwater.server.exchange import (
    AsgiApplication,
    Receive,
    Request,
    Response,
    Send,
    respond,
)
from slackwater.server.lane_threads import LaneThreads

ARROW_STREAM = "application/vnd.apache.arrow.stream"
STOP_AFTER_S = 0.2
CANCEL_AGAIN_S = 0.2
UNWATCHED_S = 0.05
"""So long a call runs before it is watched whether its client goes."""
PARSED_AT_ONCE_BYTES = 64 * 1024
"""The largest request that the loop itself parses."""

CANCEL = "/v1/cancel"

UNTIL_DONE = frozenset({"/v1/write"})
"""Calls that run to their end when the connection breaks: the client sends them again."""

OUTSIDE_BLOCKS = frozenset(
    {
        "/v1/release",
        "/v1/renew",
        "/v1/scanned",
        "/v1/session/close",
        "/v1/waits",
        "/v1/writing",
        CANCEL,
    }
)
"""Calls that belong to no statement, and whose answers leave out the session's transaction."""

_log = structlog.get_logger("server")


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its path, its endpoint, its caller, and its request in the endpoint's type."""

    path: str
    endpoint: Endpoint[Any]
    caller: Caller
    asked: Any


def application(
    coordinator: Coordinator,
    token: str,
    stop: Callable[[str], None],
    confirm: Callable[[], None],
    limits: AdmissionLimits | None = None,
) -> AsgiApplication:
    """The ASGI application. `stop(reason)` ends the process after a broken invariant.

    `confirm` returns while nobody else can lead; its error is the answer to a statement.
    """
    return Face(coordinator, token, stop, confirm, limits or AdmissionLimits())


class Face:
    """Takes requests, decodes and admits them, and runs their calls in the threads of their lane.

    `_timed` and what it calls run in those threads, everything else in the loop.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        token: str,
        stop: Callable[[str], None],
        confirm: Callable[[], None],
        limits: AdmissionLimits,
    ) -> None:
        self._coordinator = coordinator
        self._calls = coordinator.calls
        self._expected = f"Bearer {token}".encode()
        self._stop = stop
        self._confirm = confirm
        self._limits = limits
        self._admission = Admission(limits)
        sizes = {
            Lane.CONTROL: limits.control_threads,
            Lane.QUICK: limits.quick_threads,
            Lane.INSIDE: limits.statements,
            Lane.STATEMENT: limits.statements,
        }
        self._lanes = {lane: LaneThreads(lane.value, size) for lane, size in sizes.items()}
        self._endpoints = self._calls.endpoints()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answers one request; the ASGI application."""
        request = Request(scope["path"], dict(scope["headers"]), receive)
        if scope["method"] != "POST":
            return await respond(send, Response(status=405))
        if not self._is_authorized(request):
            return await respond(send, Response(status=401))
        try:
            response = await self._answered(request)
        except SlackwaterError as error:
            response = _error(error)
        except ConnectionError:
            return None
        await respond(send, response)

    async def _answered(self, request: Request) -> Response:
        path = request.path
        endpoint = self._endpoints.get(path)
        if endpoint is not None:
            raw = await request.body(self._limits.request_bytes)
            if len(raw) > PARSED_AT_ONCE_BYTES:
                asked = await self._in_lane(Lane.CONTROL, decoded, endpoint.request, raw)
            else:
                asked = decoded(endpoint.request, raw)
            return await self._admitted(request, Call(path, endpoint, *asked))
        if path == "/v1/status":
            # The loop itself answers: that waits for no other call.
            return _response(self._coordinator.status(), self._limits.answer_bytes)
        if path == "/v1/attend":
            return await self._attend(request)
        return Response(status=404)

    async def _attend(self, request: Request) -> Response:
        """Stays open as long as an application that has joined lives, then ends its sessions."""
        body = json.loads(await request.body(self._limits.request_bytes))
        await request.disconnected()
        application_id = str(body["application"])
        await self._in_lane(Lane.QUICK, self._coordinator.application_gone, application_id)
        return Response(status=204)

    def _is_authorized(self, request: Request) -> bool:
        return hmac.compare_digest(request.headers.get(b"authorization", b""), self._expected)

    async def _admitted(self, request: Request, call: Call) -> Response:
        """Runs the call in its lane. Raises SLACKWATER_TOO_MANY_REQUESTS."""
        lane = lane_of(call.path, call.caller, call.asked)
        self._admission.enter(lane)
        try:
            work = self._in_lane(lane, self._timed, call)
            if call.path in UNTIL_DONE or lane in (Lane.CONTROL, Lane.QUICK):
                return await work
            if call.caller.session is None:
                return await work
            return await self._unless_gone(request, call.caller, work)
        finally:
            self._admission.leave(lane)

    def _in_lane(
        self, lane: Lane, action: Callable[..., Result], *arguments: Any
    ) -> asyncio.Future[Result]:
        return self._lanes[lane].run(action, *arguments)

    async def _unless_gone(
        self, request: Request, caller: Caller, running: asyncio.Future[Response]
    ) -> Response:
        """The result of the call. If the client disconnects meanwhile, it is cancelled."""
        await asyncio.wait({running}, timeout=UNWATCHED_S)
        if running.done():
            return running.result()
        gone = asyncio.ensure_future(request.disconnected())
        both: set[asyncio.Future[Any]] = {running, gone}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        named = Caller(session=caller.session)
        cancel = Call(
            CANCEL, self._endpoints[CANCEL], named, protocol.Cancel(named_call=caller.call)
        )
        while not running.done():
            # It may not have begun yet, and is not known by its name then.
            await self._in_lane(Lane.CONTROL, self._attempt, cancel)
            await asyncio.wait({running}, timeout=CANCEL_AGAIN_S)
        gone.cancel()
        return running.result()

    def _timed(self, call: Call) -> Response:
        """The answer, with a header for the milliseconds that the coordinator itself took."""
        began = time.perf_counter()
        response = self._answer(call)
        took_ms = (time.perf_counter() - began) * 1000
        response.headers["Server-Timing"] = f"coordinator;dur={took_ms:.3f}"
        return response

    def _answer(self, call: Call) -> Response:
        if call.caller.session is None or call.path in OUTSIDE_BLOCKS:
            return self._attempt(call)
        self._calls.enter(call.caller)
        response = self._attempt(call)
        inside = self._calls.is_inside_block(call.caller.session)
        response.headers["X-Slackwater-Transaction"] = "open" if inside else "none"
        return response

    def _attempt(self, call: Call) -> Response:
        try:
            if call.path not in OUTSIDE_BLOCKS:
                self._confirm()
            return _response(
                call.endpoint.answer(call.caller, call.asked), self._limits.answer_bytes
            )
        except Fenced as error:
            self._end(str(error))
            return _error(user_error("SLACKWATER_FENCED", location=self._coordinator.location))
        except SlackwaterError as error:
            return _error(error)
        except FatalError as error:
            _log.error("invariant broken", error=str(error))
            self._end(str(error))
            return self._internal(str(error))
        except Exception as error:
            _log.exception("call failed", call=call.path)
            return self._internal(f"{type(error).__name__}: {error}")

    def _internal(self, reason: str) -> Response:
        return _error(user_error("SLACKWATER_INTERNAL", reason=reason, log=self._coordinator.log))

    def _end(self, reason: str) -> None:
        """Stops the process after a moment, in which the answer to this call goes out."""
        timer = threading.Timer(STOP_AFTER_S, self._stop, args=(reason,))
        timer.daemon = True
        timer.start()


def _response(result: Rows | Text | Mapping[str, Any] | None, limit_bytes: int) -> Response:
    """The result as an HTTP response. Raises SLACKWATER_TOO_LARGE."""
    if result is None:
        return Response(status=404)
    if isinstance(result, Rows):
        _refuse_large(result.ipc, limit_bytes)
        told = quote(json.dumps(result.notices))
        headers = {"X-Slackwater-Notices": told} if result.notices else {}
        return Response(result.ipc, media_type=ARROW_STREAM, headers=headers)
    if isinstance(result, Text):
        _refuse_large(result.text, limit_bytes)
        return Response(result.text, media_type=result.media_type)
    text = json.dumps(result).encode()
    _refuse_large(text, limit_bytes)
    return Response(text)


def _refuse_large(payload: bytes, limit_bytes: int) -> None:
    if len(payload) > limit_bytes:
        raise user_error(
            "SLACKWATER_TOO_LARGE",
            what="The answer",
            limit=str(limit_bytes),
            advice="Ask for fewer rows at a time.",
        )


STATUSES = {"SLACKWATER_TOO_LARGE": 413, "SLACKWATER_TOO_MANY_REQUESTS": 503}


def _error(error: SlackwaterError) -> Response:
    status = 500 if error.sqlstate.startswith("XX") else STATUSES.get(error.condition, 400)
    return Response(json.dumps({"error": error.to_json()}).encode(), status)
