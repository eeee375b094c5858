"""The pages over HTTP: a Starlette application around `pages`, which only reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any
from urllib.parse import parse_qs

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from slackwater.console import bundle, pages, relations, text
from slackwater.console import log as logs
from slackwater.console.looking import Looking
from slackwater.console.security import COOKIE, HEADERS, LOGIN_S, Door, Hosts
from slackwater.console.snapshot import Snapshot

MENU = (
    ("/", "Objects"),
    ("/activity", "Activity"),
    ("/storage", "Storage"),
    ("/notices", "Notices"),
    ("/log", "Log"),
    ("/bundle", "Report"),
)
LOG_LINES = 200
BODY_BYTES = 4096

_Next = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Shown:
    """A page to be rendered. `query` is what its filter has; None: it has none."""

    template: str
    title: str
    page: Any
    here: str
    query: str | None = None
    remark: str = ""
    refreshes: bool = True
    status: int = 200


@dataclass(frozen=True, slots=True)
class Access:
    """The way in: the names of the console, its door, and whether cookies need TLS."""

    hosts: Hosts
    door: Door | None = None
    is_secure: bool = False


class Renderer:
    """Renders pages out of the templates; what users have named is text and nothing else."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("slackwater.console"),
            autoescape=True,
            undefined=StrictUndefined,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            moment=text.moment, seconds=text.seconds, rate=text.rate, count=text.count
        )

    def page(self, shown: Shown, snapshot: Snapshot) -> str:
        """The page as a whole."""
        return self._rendered("page.html", shown, snapshot)

    def fragment(self, shown: Shown, snapshot: Snapshot) -> str:
        """The part that is replaced when a page is refreshed."""
        return self._rendered("live.html", shown, snapshot)

    def login(self, refusal: str) -> str:
        """The page that asks for the password."""
        return self._environment.get_template("login.html").render(refusal=refusal)

    def _rendered(self, template: str, shown: Shown, snapshot: Snapshot) -> str:
        return self._environment.get_template(template).render(
            menu=MENU,
            here=shown.here,
            title=shown.title,
            template=shown.template,
            page=shown.page,
            query=shown.query,
            remark=shown.remark,
            refreshes=shown.refreshes,
            banner=pages.banner(snapshot),
        )


def application(looking: Looking, access: Access) -> Starlette:
    """The ASGI application."""
    return Console(looking, access).application()


class Console:
    """Answers requests. Handlers that may wait for the leader are plain functions, in threads."""

    def __init__(self, looking: Looking, access: Access) -> None:
        self._looking = looking
        self._access = access
        self._lock = threading.Lock()
        self._renderer = Renderer()

    def application(self) -> Starlette:
        files = str(resources.files("slackwater.console") / "static")
        return Starlette(
            routes=[
                Route("/", self._first),
                Route("/objects/{name:path}", self._object),
                Route("/activity", self._activity),
                Route("/storage", self._storage),
                Route("/notices", self._notices),
                Route("/log", self._log),
                Route("/bundle", self._report),
                Route("/bundle/slackwater-report.zip", self._bundle),
                Route("/login", self._login_page, methods=["GET"]),
                Route("/login", self._log_in, methods=["POST"]),
                Mount("/static", StaticFiles(directory=files)),
            ],
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=self._guarded)],
        )

    async def _guarded(self, request: Request, follow: _Next) -> Response:
        response = await self._admitted(request, follow)
        for name, value in HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("Vary", "HX-Request")
        return response

    async def _admitted(self, request: Request, follow: _Next) -> Response:
        if not self._access.hosts.allows(request.headers.get("host", "")):
            return PlainTextResponse(
                "The console is not known by this name. Use its address, or start it with --name.",
                status_code=421,
            )
        path = request.url.path
        if self._is_inside(request) or path == "/login" or path.startswith("/static/"):
            return await follow(request)
        if _is_refresh(request):
            # What replaces a part of a page would follow a redirection, and replace it by the door.
            return Response(headers={"HX-Redirect": "/login"})
        return RedirectResponse("/login", status_code=303)

    def _is_inside(self, request: Request) -> bool:
        door = self._access.door
        if door is None:
            return True
        with self._lock:
            return door.is_inside(request.cookies.get(COOKIE, ""), time.monotonic())

    def _first(self, request: Request) -> Response:
        query = request.query_params.get("q", "")
        snapshot = self._looking.snapshot(relations.FIRST)
        page = pages.first(snapshot, query)
        remark = pages.too_many(page.graph)
        shown = Shown("first.html", "Objects", page, "/", query, remark)
        return self._response(request, shown, snapshot)

    def _object(self, request: Request) -> Response:
        name = request.path_params["name"]
        snapshot = self._looking.snapshot(relations.OBJECT)
        page = pages.object_page(snapshot, name)
        here = request.scope["raw_path"].decode("latin-1")
        if page is None and snapshot.absence is not None:
            unknown = Shown("missing.html", name, "Nothing is known of it yet.", here)
            return self._response(request, unknown, snapshot)
        if page is None:
            text = "There is no such object, or it was dropped."
            missing = Shown("missing.html", name, text, here, refreshes=False, status=404)
            return self._response(request, missing, snapshot)
        return self._response(request, Shown("object.html", page.entry.name, page, here), snapshot)

    def _activity(self, request: Request) -> Response:
        return self._of_tables(request, relations.ACTIVITY_PAGE, pages.activity)

    def _storage(self, request: Request) -> Response:
        return self._of_tables(request, relations.STORAGE, pages.storage)

    def _notices(self, request: Request) -> Response:
        return self._of_tables(request, relations.NOTICES_PAGE, pages.notices)

    def _of_tables(
        self,
        request: Request,
        asked: frozenset[str],
        page: Callable[[Snapshot], pages.TablesPage],
    ) -> Response:
        snapshot = self._looking.snapshot(asked)
        found = page(snapshot)
        return self._response(
            request, Shown("tables.html", found.title, found, request.url.path), snapshot
        )

    def _log(self, request: Request) -> Response:
        query = request.query_params.get("q", "")
        snapshot = self._looking.snapshot(relations.LOG)
        texts = self._looking.log_lines()
        remark = "" if texts else "The log of the leader is not readable from here."
        page = pages.log(logs.latest(texts, query, LOG_LINES), query, remark)
        return self._response(request, Shown("tables.html", "Log", page, "/log", query), snapshot)

    def _report(self, request: Request) -> Response:
        snapshot = self._looking.snapshot(relations.USED)
        shown = Shown("bundle.html", "Report", None, "/bundle", refreshes=False)
        return self._response(request, shown, snapshot)

    def _bundle(self, _: Request) -> Response:
        snapshot = self._looking.snapshot(relations.BUNDLE)
        content = bundle.packed(
            bundle.files(snapshot, self._looking.log_lines(), self._looking.metrics())
        )
        return Response(content, media_type="application/zip")

    def _login_page(self, _: Request) -> Response:
        return self._login_answer("")

    async def _log_in(self, request: Request) -> Response:
        door = self._access.door
        if door is None:
            return RedirectResponse("/", status_code=303)
        given = parse_qs((await request.body())[:BODY_BYTES].decode(errors="replace"))
        return await run_in_threadpool(self._entered, door, given.get("password", [""])[0])

    def _entered(self, door: Door, password: str) -> Response:
        with self._lock:
            value = door.log_in(password, time.monotonic())
            is_locked = door.is_locked(time.monotonic())
        if value is None:
            again = "Try again in half a minute." if is_locked else "Try again."
            return self._login_answer(f"This is not the password of the console. {again}", 403)
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(
            COOKIE,
            value,
            max_age=int(LOGIN_S),
            secure=self._access.is_secure,
            httponly=True,
            samesite="strict",
        )
        return response

    def _login_answer(self, refusal: str, status: int = 200) -> Response:
        return Response(self._renderer.login(refusal), status, media_type="text/html")

    def _response(self, request: Request, shown: Shown, snapshot: Snapshot) -> Response:
        render = self._renderer.fragment if _is_refresh(request) else self._renderer.page
        return Response(render(shown, snapshot), shown.status, media_type="text/html")


def _is_refresh(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"
