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
STOP_AFTER_S = 0.2
OUTSIDE_BLOCKS = frozenset({"/v1/release", "/v1/session/close", "/v1/cancel"})
"""Calls that belong to no statement, and say nothing about the session's transaction."""

_log = structlog.get_logger("server")

Call = Callable[[Mapping[str, Any]], Any]


def application(coordinator: Coordinator, token: str, stop: Callable[[str], None]) -> Starlette:
    """The ASGI application. `stop(reason)` ends the process after a broken invariant."""
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
            return attempt(call, body)
        coordinator.enter(body)
        response = attempt(call, body)
        inside = coordinator.is_inside_block(body["session"])
        response.headers["X-Slackwater-Transaction"] = "open" if inside else "none"
        return response

    def attempt(call: Call, body: Mapping[str, Any]) -> Response:
        try:
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
            _log.exception("call failed", call=getattr(call, "__name__", str(call)))
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
            raw = await request.body()
            body = json.loads(raw) if raw else {}
            return await run_in_threadpool(timed, path, call, body)

        return Route(path, endpoint, methods=["POST"])

    async def attend(request: Request) -> Response:
        """Stays open as long as an application that has joined lives."""
        if not authorized(request):
            return Response(status_code=401)
        application_id = str(json.loads(await request.body())["application"])
        while (await request.receive())["type"] != "http.disconnect":
            pass
        await run_in_threadpool(coordinator.application_gone, application_id)
        return Response(status_code=204)

    async def widen() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS

    routes = [route(path, call) for path, call in coordinator.calls().items()]
    app = Starlette(routes=[*routes, Route("/v1/attend", attend, methods=["POST"])])
    app.state.widen = widen
    return app


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
