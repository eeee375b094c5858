"""The HTTP application: the shim's protocol over the coordinator's calls.

Answers are JSON or an Arrow IPC stream. Every call needs the environment's token. Handlers are
plain functions and run in threads, because a read may wait for a frontier; `admission` says which
calls share them, so that statements that wait keep nobody from looking, releasing and cancelling.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote

import structlog
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slackwater.adapter.coordinator import Coordinator
from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.server.admission import Admission, AdmissionLimits, Lane, lane_of

ARROW_STREAM = "application/vnd.apache.arrow.stream"
STOP_AFTER_S = 0.2
CANCEL_AGAIN_S = 0.2
PARSED_AT_ONCE_BYTES = 64 * 1024
"""The loop itself parses requests up to this size."""

UNTIL_DONE = frozenset({"/v1/write"})
"""Calls that end with their outcome, also when the connection breaks: they are sent again then."""

OUTSIDE_BLOCKS = frozenset({"/v1/release", "/v1/renew", "/v1/session/close", "/v1/cancel"})
"""Calls that belong to no statement, and say nothing about the session's transaction."""

_log = structlog.get_logger("server")

Call = Callable[[Mapping[str, Any]], Any]


def application(
    coordinator: Coordinator,
    token: str,
    stop: Callable[[str], None],
    confirm: Callable[[], None],
    limits: AdmissionLimits | None = None,
) -> Starlette:
    """The ASGI application. `stop(reason)` ends the process after a broken invariant.

    `confirm` returns while nobody else can lead; what it raises is the answer to a statement.
    """
    expected = f"Bearer {token}"
    limits = limits or AdmissionLimits()

    def end(reason: str) -> None:
        """Stops the process once the answer to this call is out."""
        timer = threading.Timer(STOP_AFTER_S, stop, args=(reason,))
        timer.daemon = True
        timer.start()

    def timed(path: str, call: Call, body: Mapping[str, Any]) -> Response:
        """The answer, with a header that says how long the coordinator itself took, in ms."""
        began = time.perf_counter()
        response = answer(path, call, body)
        took_ms = (time.perf_counter() - began) * 1000
        response.headers["Server-Timing"] = f"coordinator;dur={took_ms:.3f}"
        return response

    def answer(path: str, call: Call, body: Mapping[str, Any]) -> Response:
        if "session" not in body or path in OUTSIDE_BLOCKS:
            return attempt(path, call, body)
        coordinator.enter(body)
        response = attempt(path, call, body)
        inside = coordinator.is_inside_block(body["session"])
        response.headers["X-Slackwater-Transaction"] = "open" if inside else "none"
        return response

    def attempt(path: str, call: Call, body: Mapping[str, Any]) -> Response:
        try:
            if path not in OUTSIDE_BLOCKS:
                confirm()
            return _response(call(body), limits.answer_bytes)
        except Fenced as error:
            end(str(error))
            return _error(user_error("SLACKWATER_FENCED", location=coordinator.location))
        except SlackwaterError as error:
            return _error(error)
        except FatalError as error:
            _log.error("invariant broken", error=str(error))
            end(str(error))
            return _error(user_error("SLACKWATER_INTERNAL", reason=str(error), log=coordinator.log))
        except Exception as error:
            _log.exception("call failed", call=path)
            return _error(
                user_error(
                    "SLACKWATER_INTERNAL",
                    reason=f"{type(error).__name__}: {error}",
                    log=coordinator.log,
                )
            )

    admission = Admission(limits)
    lanes = {
        Lane.CONTROL: CapacityLimiter(limits.control_threads),
        Lane.QUICK: CapacityLimiter(limits.quick_threads),
        Lane.INSIDE: CapacityLimiter(limits.statements),
        Lane.STATEMENT: CapacityLimiter(limits.statements),
    }
    calls = coordinator.calls()

    def authorized(request: Request) -> bool:
        given = request.headers.get("authorization", "")
        return hmac.compare_digest(given.encode(), expected.encode())

    async def in_lane(lane: Lane, action: Callable[..., Any], *arguments: Any) -> Any:
        return await run_sync(action, *arguments, limiter=lanes[lane])

    async def unless_gone(request: Request, body: Mapping[str, Any], work: Awaitable[Any]) -> Any:
        """What `work` gives. When the client goes meanwhile, its call is cancelled."""
        running = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(request))
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        while not running.done():
            # It may not have begun yet, and is not known by its name then.
            await in_lane(Lane.CONTROL, attempt, "/v1/cancel", calls["/v1/cancel"], body)
            await asyncio.wait({running}, timeout=CANCEL_AGAIN_S)
        gone.cancel()
        return running.result()

    async def served(request: Request, path: str, call: Call, body: dict[str, Any]) -> Response:
        lane = lane_of(path, body)
        try:
            admission.enter(lane)
        except SlackwaterError as error:
            return _error(error)
        try:
            work = in_lane(lane, timed, path, call, body)
            if path in UNTIL_DONE or lane in (Lane.CONTROL, Lane.QUICK) or "session" not in body:
                response: Response = await work
            else:
                body["call"] = uuid.uuid4().hex
                named = {"session": body["session"], "call": body["call"]}
                response = await unless_gone(request, named, work)
            return response
        finally:
            admission.leave(lane)

    def route(path: str, call: Call) -> Route:
        async def endpoint(request: Request) -> Response:
            if not authorized(request):
                return Response(status_code=401)
            try:
                raw = await _body(request, limits.request_bytes)
            except SlackwaterError as error:
                return _error(error)
            if len(raw) > PARSED_AT_ONCE_BYTES:
                body = await in_lane(Lane.CONTROL, json.loads, raw)
            else:
                body = json.loads(raw) if raw else {}
            return await served(request, path, call, body)

        return Route(path, endpoint, methods=["POST"])

    async def status(request: Request) -> Response:
        """Answered by the loop itself: whoever looks whether the leader lives waits for nobody."""
        if not authorized(request):
            return Response(status_code=401)
        return _response(coordinator.status(), limits.answer_bytes)

    async def attend(request: Request) -> Response:
        """Stays open as long as an application that has joined lives."""
        if not authorized(request):
            return Response(status_code=401)
        application_id = str(json.loads(await request.body())["application"])
        await _disconnected(request)
        await in_lane(Lane.QUICK, coordinator.application_gone, application_id)
        return Response(status_code=204)

    routes = [route(path, call) for path, call in calls.items()]
    routes += [
        Route("/v1/attend", attend, methods=["POST"]),
        Route("/v1/status", status, methods=["POST"]),
    ]
    return Starlette(routes=routes)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, limit_bytes: int) -> bytes:
    """The request's body. Raises SLACKWATER_TOO_LARGE.

    What is too much is read all the same and not kept, so that the client gets to the answer.
    """
    size = 0
    chunks: list[bytes] = []
    async for chunk in request.stream():
        size += len(chunk)
        if size <= limit_bytes:
            chunks.append(chunk)
        else:
            chunks.clear()
    if size > limit_bytes:
        raise user_error(
            "SLACKWATER_TOO_LARGE",
            what="The request",
            limit=str(limit_bytes),
            advice="Write fewer rows or a shorter text in one statement.",
        )
    return b"".join(chunks)


def _response(result: Any, limit_bytes: int) -> Response:
    """The answer. Raises SLACKWATER_TOO_LARGE."""
    if result is None:
        return Response(status_code=404)
    if isinstance(result, tuple):
        payload, notices = result
        _refuse_large(payload, limit_bytes)
        headers = {"X-Slackwater-Notices": quote(json.dumps(notices))} if notices else {}
        return Response(payload, media_type=ARROW_STREAM, headers=headers)
    text = json.dumps(result)
    _refuse_large(text, limit_bytes)
    return Response(text, media_type="application/json")


def _refuse_large(payload: bytes | str, limit_bytes: int) -> None:
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
    return Response(
        json.dumps({"error": error.to_json()}), status_code=status, media_type="application/json"
    )
