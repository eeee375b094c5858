"""The HTTP application: the shim's protocol over the coordinator's calls.

Answers are JSON or an Arrow IPC stream. Every call needs the environment's token. Handlers are
plain functions and run in a pool of threads, because a read may wait for a frontier.
"""

from __future__ import annotations

import hmac
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import anyio.to_thread
import structlog
from anyio import CapacityLimiter
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from slackwater.adapter.coordinator import Coordinator
from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError, user_error

ARROW_STREAM = "application/vnd.apache.arrow.stream"
THREADS = 400
QUICK_THREADS = 100
WAITING_REQUESTS = 2_000
REQUEST_LIMIT_BYTES = 64 * 1024 * 1024
STOP_AFTER_S = 0.2
OUTSIDE_BLOCKS = frozenset({"/v1/release", "/v1/renew", "/v1/session/close", "/v1/cancel"})
"""Calls that belong to no statement, and say nothing about the session's transaction."""
QUICK = OUTSIDE_BLOCKS | {
    "/v1/catalog/namespaces",
    "/v1/catalog/list",
    "/v1/catalog/load",
}
"""Calls that wait for no statement. Statements wait for them, so they have threads of their own."""

_log = structlog.get_logger("server")

Call = Callable[[Mapping[str, Any]], Any]


def application(
    coordinator: Coordinator,
    token: str,
    stop: Callable[[str], None],
    confirm: Callable[[], None],
) -> Starlette:
    """The ASGI application. `stop(reason)` ends the process after a broken invariant.

    `confirm` returns while nobody else can lead; what it raises is the answer to a statement.
    """
    expected = f"Bearer {token}"

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
            return _response(call(body))
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

    def authorized(request: Request) -> bool:
        given = request.headers.get("authorization", "")
        return hmac.compare_digest(given.encode(), expected.encode())

    def route(path: str, call: Call) -> Route:
        async def endpoint(request: Request) -> Response:
            if not authorized(request):
                return Response(status_code=401)
            try:
                raw = await _whole(request)
                body = json.loads(raw) if raw else {}
                return await pooled(path, timed, path, call, body)
            except SlackwaterError as error:
                return _error(error)

        return Route(path, endpoint, methods=["POST"])

    async def status(request: Request) -> Response:
        """Answered without the pool, whose threads may all be waiting: it tells that this lives."""
        if not authorized(request):
            return Response(status_code=401)
        return _response(coordinator.status())

    limiters: dict[bool, CapacityLimiter] = {}
    inside = {True: 0, False: 0}

    async def pooled(path: str, work: Callable[..., Response], *arguments: Any) -> Response:
        """Runs `work` in a thread, once one is free. Raises SLACKWATER_TOO_MANY_REQUESTS."""
        quick = path in QUICK
        threads = QUICK_THREADS if quick else THREADS
        if inside[quick] >= threads + WAITING_REQUESTS:
            raise user_error(
                "SLACKWATER_TOO_MANY_REQUESTS",
                what="The coordinator",
                limit=f"{threads + WAITING_REQUESTS} statements",
            )
        if quick not in limiters:
            limiters[quick] = CapacityLimiter(threads)
        inside[quick] += 1
        try:
            return await anyio.to_thread.run_sync(work, *arguments, limiter=limiters[quick])
        finally:
            inside[quick] -= 1

    async def attend(request: Request) -> Response:
        """Stays open as long as an application that has joined lives."""
        if not authorized(request):
            return Response(status_code=401)
        application_id = str(json.loads(await request.body())["application"])
        while (await request.receive())["type"] != "http.disconnect":
            pass
        await run_in_threadpool(coordinator.application_gone, application_id)
        return Response(status_code=204)

    routes = [route(path, call) for path, call in coordinator.calls().items()]
    routes += [
        Route("/v1/attend", attend, methods=["POST"]),
        Route("/v1/status", status, methods=["POST"]),
    ]
    return Starlette(routes=routes)


async def _whole(request: Request) -> bytes:
    """The body. Raises SLACKWATER_TOO_LARGE before it has taken more than the limit."""
    pieces: list[bytes] = []
    taken = 0
    async for piece in request.stream():
        taken += len(piece)
        if taken <= REQUEST_LIMIT_BYTES:
            pieces.append(piece)
        else:
            # It is read to its end all the same: who is sending does not listen before.
            pieces.clear()
    if taken > REQUEST_LIMIT_BYTES:
        raise user_error(
            "SLACKWATER_TOO_LARGE",
            what="The request",
            limit=str(REQUEST_LIMIT_BYTES),
            advice="Write fewer rows or a shorter text in one statement.",
        )
    return b"".join(pieces)


def _response(result: Any) -> Response:
    if result is None:
        return Response(status_code=404)
    if isinstance(result, tuple):
        payload, notices = result
        headers = {"X-Slackwater-Notices": quote(json.dumps(notices))} if notices else {}
        return Response(payload, media_type=ARROW_STREAM, headers=headers)
    return Response(json.dumps(result), media_type="application/json")


def _error(error: SlackwaterError) -> Response:
    status = 500 if error.sqlstate.startswith("XX") else 400
    return Response(
        json.dumps({"error": error.to_json()}), status_code=status, media_type="application/json"
    )
