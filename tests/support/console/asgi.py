"""Requests to an ASGI application, without a socket."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True)
class Got:
    status: int
    headers: dict
    body: bytes

    @property
    def text(self):
        return self.body.decode()


def request(app, path, *, method="GET", host="127.0.0.1:8070", headers=None, body=b""):
    """The answer of `app`; `path` may have a query, and is sent as it is."""
    bare, _, query = path.partition("?")
    given = {"host": host, **(headers or {})}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(bare),
        "raw_path": bare.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in given.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8070),
    }
    sent, given_bodies = [], iter([body])

    async def receive():
        for each in given_bodies:
            return {"type": "http.request", "body": each, "more_body": False}
        return await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start = next(each for each in sent if each["type"] == "http.response.start")
    found = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
    content = b"".join(each.get("body", b"") for each in sent)
    return Got(start["status"], found, content)
